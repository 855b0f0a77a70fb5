//! Waiting rooms for rent: what a lock needs only while somebody waits for it.
//!
//! ```text
//!   lock: [ word | … ] ──number──► room: [ queue | clock | tenant ] ──► the lock
//!
//!   not rented: one spare for each thread, the others on a list
//! ```
//!
//! A thread that has to wait rents a room for the lock, and whoever takes the last waiter off its
//! queue gives it back. So there are at most two rooms for each thread: one that it waits in, and a
//! spare one. Rooms are never freed: whoever has learned a room's number may look at it at any
//! time, whoever rents it now.
//!
//! Not for: what waiters do there. That is `queue.rs` and the policy's.
//!
//! Invariants
//! 1. `tenant` is touched only under the lock of the room's queue. It is null, or a lock's: of one
//!    whose word names the room, and which somebody waits for. So it is alive, as waiters borrow
//!    their lock.
//! 2. A room that is not rented has an empty queue. It is one thread's spare, on the list, or in
//!    the hands of one thread, never two of these.
//! 3. The list's head changes with every removal (a counter in its upper half), so that a thread
//!    that was interrupted in the middle of one does not take an old successor for the new one.
//! 4. Nobody waits for a thread in the middle of renting or giving back, nor for one that has the
//!    lock of a queue in a room that is not rented: after a fork that thread may not exist.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::phases::PhaseClock;
use super::queue::{LockedQueue, Queue};
use super::word::ROOMS;
use crate::chunks::Chunks;
use crate::platform::{AtomicCell, PlainCell, Platform};

const ROOMS_PER_CHUNK: usize = 64;
/// 1 KiB of pointers in the process.
const CHUNKS: usize = (ROOMS as usize + 1) / ROOMS_PER_CHUNK;

/// Two cache lines apart, as processors fetch lines in pairs.
#[repr(C, align(128))]
pub struct Room<P: Platform> {
    pub(super) queue: Queue<P>,
    pub(super) clock: PhaseClock<P>,
    pub(super) number: u32,
    /// The lock that rents it. For comparisons only.
    pub(super) tenant: P::Cell<*const ()>,
    /// Not 0: readers do not need to take the lock that rents it. A hint.
    pub(super) beside: P::AtomicU32,
    /// The next on the list, 0 at its end.
    next: P::AtomicU32,
}

// SAFETY: `tenant` and the queue's cells are touched only by the holder of the queue's lock
// (invariant 1, and that of queue.rs); everything else is atomic or constant.
unsafe impl<P: Platform> Sync for Room<P> {}
// SAFETY: what can be moved is borrowed by nobody, so its queue is empty.
unsafe impl<P: Platform> Send for Room<P> {}

impl<P: Platform> Room<P> {
    fn new(index: usize) -> Self {
        Room {
            queue: Queue::NEW,
            clock: PhaseClock::NEW,
            number: index as u32 + 1,
            tenant: P::Cell::ZERO,
            beside: P::AtomicU32::ZERO,
            next: P::AtomicU32::ZERO,
        }
    }
}

/// The rooms of a process.
pub(crate) struct Rooms<P: Platform> {
    rooms: Chunks<P, Room<P>, ROOMS_PER_CHUNK, CHUNKS>,
    /// How many were ever rented.
    used: P::AtomicU32,
    /// The list of those that are not: the number of the first, and how many were ever taken off.
    vacant: P::AtomicU64,
}

/// In `vacant`: one more taken off.
const TAKEN: u64 = 1 << 32;
/// In `vacant`: the first room's number.
const FIRST: u64 = TAKEN - 1;

impl<P: Platform> Rooms<P> {
    pub(crate) const NEW: Self =
        Rooms { rooms: Chunks::NEW, used: P::AtomicU32::ZERO, vacant: P::AtomicU64::ZERO };

    /// The room that a lock's word names.
    #[inline]
    pub(super) fn named(&self, number: u32) -> &Room<P> {
        match self.rooms.get(number as usize - 1) {
            Some(room) => room,
            None => self.named_in_time(number),
        }
    }

    /// The word was seen before the memory that it speaks of; this is about to be seen, too.
    #[cold]
    fn named_in_time(&self, number: u32) -> &Room<P> {
        let mut attempt = 0;
        loop {
            P::give_way(attempt);
            attempt += 1;
            if let Some(room) = self.rooms.get(number as usize - 1) {
                return room;
            }
        }
    }

    fn take(&self) -> Option<&Room<P>> {
        self.take_from_list().or_else(|| self.make())
    }

    fn take_from_list(&self) -> Option<&Room<P>> {
        // Acquire pairs with the Release in `put_on_list`, here and below.
        let mut head = self.vacant.load(Acquire);
        while head & FIRST != 0 {
            let first = self.named((head & FIRST) as u32);
            let rest = u64::from(first.next.load(Relaxed));
            let taken = (head & !FIRST).wrapping_add(TAKEN) | rest;
            match self.vacant.compare_exchange_weak(head, taken, AcqRel, Acquire) {
                Ok(_) => return Some(first),
                Err(found) => head = found,
            }
        }
        None
    }

    fn put_on_list(&self, room: &Room<P>) {
        let mut head = self.vacant.load(Relaxed);
        loop {
            room.next.store((head & FIRST) as u32, Relaxed);
            let first = head & !FIRST | u64::from(room.number);
            match self.vacant.compare_exchange_weak(head, first, Release, Relaxed) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }

    #[cold]
    fn make(&self) -> Option<&Room<P>> {
        let mut used = self.used.load(Relaxed);
        while used < ROOMS {
            let room = self.rooms.get_or_make(used as usize, Room::new)?;
            match self.used.compare_exchange(used, used + 1, Relaxed, Relaxed) {
                Ok(_) => return Some(room),
                Err(found) => used = found,
            }
        }
        None
    }
}

/// A room for the calling thread to rent, with its queue locked; none if all are rented or there
/// is no memory for more.
pub(super) fn rent<P: Platform>() -> Option<(&'static Room<P>, LockedQueue<'static, P>)> {
    let room = spare().or_else(|| P::process().rooms.take())?;
    if let Some(queue) = room.queue.try_lock() {
        debug_assert!(queue.is_empty() && room.tenant.get().is_null(), "invariant 2");
        return Some((room, queue));
    }
    // Somebody is late and finds out just now that his lock does not rent it any more; or was about
    // to when this process was forked off (invariant 4).
    let other = rent();
    P::process().rooms.put_on_list(room);
    other
}

fn spare<P: Platform>() -> Option<&'static Room<P>> {
    let spare = P::thread()?.spare_room();
    let room = spare.get();
    if !room.is_null() {
        spare.set(ptr::null());
    }
    // SAFETY: null, or set by `give_back` to a room of this process, which is never freed.
    unsafe { room.cast::<Room<P>>().as_ref() }
}

/// The room is not rented any more, and in this thread's hands.
pub(super) fn give_back<P: Platform>(room: &Room<P>) {
    match P::thread().map(|record| record.spare_room()) {
        Some(spare) if spare.get().is_null() => spare.set(ptr::from_ref(room).cast()),
        _ => P::process().rooms.put_on_list(room),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use lock_api::{RwLock, RwLockUpgradableReadGuard};

    use super::*;
    use crate::platform::{Counting, Os};
    use crate::policy::TimeFair;
    use crate::rwsem::{RawRwSem, Rented};

    type Lock<P> = RwLock<RawRwSem<TimeFair, P, Rented<P>>, u32>;

    fn take_all<P: Platform>(rooms: &Rooms<P>) -> Vec<&Room<P>> {
        std::iter::from_fn(|| rooms.take()).collect()
    }

    #[test]
    fn each_room_is_in_one_hand_and_there_are_8191() {
        let rooms = Rooms::<Os>::NEW;
        let all = take_all(&rooms);
        let numbers: BTreeSet<_> = all.iter().map(|room| room.number).collect();
        assert!(numbers.into_iter().eq(1..=8191));
        assert!(all.iter().all(|room| ptr::eq(rooms.named(room.number), *room)));
        rooms.put_on_list(all[7]);
        rooms.put_on_list(all[1000]);
        assert_eq!(rooms.take().map(|room| room.number), Some(1001));
        assert_eq!(rooms.take().map(|room| room.number), Some(8));
        assert!(rooms.take().is_none());
    }

    /// Each waiter goes to sleep before the next one comes.
    #[test]
    fn waiting_again_and_again_for_many_locks_needs_two_rooms_for_each_thread_at_most() {
        const THREADS: u32 = 4;
        for _ in 0..5 {
            let locks: Vec<Lock<Counting>> = (0..50).map(|_| Lock::default()).collect();
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        for lock in &locks {
                            let mut guard = lock.write();
                            *guard += 1;
                            thread::yield_now();
                        }
                    });
                }
            });
            // At least one wait for each lock, whatever the scheduler does.
            for lock in &locks {
                let held = lock.read();
                assert!(lock.try_write_for(Duration::from_nanos(1)).is_none());
                drop(held);
                assert_eq!(lock.try_write().map(|count| *count), Some(THREADS));
            }
        }
        // This thread and that of the other test count, too. What threads that have ended have left
        // is rented by later ones.
        let used = Counting::process().rooms.used.load(Relaxed);
        assert!(used <= 2 * (THREADS + 2), "{used} rooms");
    }

    #[test]
    fn without_a_room_a_thread_is_let_in_all_the_same_or_gives_up_in_time() {
        let rooms = &Os::process().rooms;
        let lock = Lock::<Os>::default();
        let all = take_all(rooms);
        let held = lock.write();
        thread::scope(|scope| {
            let timed = || lock.try_read_for(Duration::from_millis(1)).is_none();
            assert!(scope.spawn(timed).join().expect("it does not panic"), "it is held");
            let writer = scope.spawn(|| *lock.write() += 1);
            let reader = scope.spawn(|| _ = *lock.read());
            thread::yield_now();
            drop(held);
            writer.join().expect("it is let in");
            reader.join().expect("it is let in");

            let guard = lock.upgradable_read();
            let (reads, told) = mpsc::channel();
            let (leave, leaves) = mpsc::channel::<()>();
            let reader = &lock;
            scope.spawn(move || {
                let _guard = reader.read();
                reads.send(()).expect("somebody listens");
                leaves.recv().expect_err("it is not told anything");
            });
            told.recv().expect("it reads");
            let short = Duration::from_millis(1);
            let guard = RwLockUpgradableReadGuard::try_upgrade_for(guard, short);
            let guard = guard.expect_err("somebody else reads");
            drop(leave);
            *RwLockUpgradableReadGuard::upgrade(guard) += 1;
        });
        assert_eq!(*lock.read(), 2);
        all.into_iter().for_each(|room| rooms.put_on_list(room));
    }

    /// As after a fork in which that somebody was left behind.
    #[test]
    fn a_room_whose_queue_somebody_has_locked_is_not_waited_for() {
        thread::spawn(|| {
            let (room, queue) = rent::<Counting>().expect("there are rooms");
            drop(queue);
            let late = room.queue.lock();
            give_back(room);
            let (other, queue) = rent::<Counting>().expect("there are others");
            assert_ne!(room.number, other.number);
            drop((late, queue));
            give_back(other);
        })
        .join()
        .expect("it does not panic");
    }
}
