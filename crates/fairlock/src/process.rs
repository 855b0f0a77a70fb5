//! What the locks of one process share: the records of its threads, waiting rooms, and barriers on
//! all CPUs.
//!
//! One such object exists for each [`Platform`]; where the process is a simulated one it begins
//! and ends with a run.
//!
//! Several copies of this crate in one program, by their versions or in libraries that are loaded,
//! each have their own, and share nothing: a lock is used through the copy that made it, so its
//! readers are in the records where its writers look. In Rust the types see to that, as those of two
//! copies are two types; the C library has its copies find each other, and one of them works for all. What they have in common is harmless to
//! share: the kernel's asymmetric barrier reaches all threads of the process, and registering for
//! it twice is registering once. [`Os`](crate::platform::Os) and
//! [`Counting`](crate::platform::Counting) are two copies in this sense.

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use crate::mutex::RawMutex;
use crate::platform::{AtomicCell, AtomicInt, PlainCell, Platform};
use crate::rwsem::Rooms;
use crate::shared_barrier::SharedBarrier;
use crate::slots::{EndedThread, Record, Threads};
use crate::spin_queue::SpinQueue;

/// What the locks of one process share. At the beginning of a line, so that the same words share one
/// wherever it is: a simulated process is on the heap, and costs the same in every run.
#[repr(align(128))]
pub struct Process<P: Platform> {
    pub(crate) threads: Threads<P>,
    /// Locks that got a number so far.
    locks: P::AtomicU64,
    /// What a barrier on all CPUs takes here, ns: a running estimate; 0 before the first.
    barrier_ns: P::AtomicU32,
    pub(crate) rooms: Rooms<P>,
    barrier: SharedBarrier<P>,
    /// Held while a poll is registered with another one, so that no two make a circle together.
    pub(crate) nesting: lock_api::Mutex<RawMutex<P>, ()>,
}

/// Before one was measured, ns: a value for machines whose interrupts between CPUs are dear.
const BARRIER_AT_FIRST: u32 = 10_000;
/// A sample counts for at most this, as its thread may have been preempted.
const LONGEST_BARRIER: u64 = 1_000_000;

impl<P: Platform> Process<P> {
    /// A process whose threads have not used a lock yet.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub const NEW: Self = Process {
        threads: Threads::NEW,
        rooms: Rooms::NEW,
        barrier: SharedBarrier::NEW,
        locks: P::AtomicU64::ZERO,
        barrier_ns: P::AtomicU32::ZERO,
        nesting: lock_api::Mutex::from_raw(RawMutex::NEW, ()),
    };

    /// A number for a lock; no two get the same.
    pub(crate) fn new_lock(&self) -> u64 {
        self.locks.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn barrier_ns(&self) -> u64 {
        match self.barrier_ns.load(Relaxed) {
            0 => BARRIER_AT_FIRST.into(),
            ns => ns.into(),
        }
    }

    /// May lose a concurrent sample.
    pub(crate) fn note_barrier(&self, ns: u64) {
        let estimate = (3 * self.barrier_ns() + ns.min(LONGEST_BARRIER)) / 4;
        self.barrier_ns.store(estimate.max(1) as u32, Relaxed);
    }

    /// A record for a thread of this process that has none yet, [given
    /// back](Self::thread_ended) when it ends; none if there are too many, and then it does
    /// without. For those that implement a [`Platform`], as all that follow.
    pub fn new_thread(&self) -> Option<&Record<P>> {
        self.threads.claim()
    }

    /// The thread to which this record was given ends: from now on it reads without a record. What it
    /// still reads it ends by what this returns, as its [`Platform::ended_thread`].
    ///
    /// # Safety
    /// The calling thread has the record from [`new_thread`](Self::new_thread) of this process and has
    /// not given it back; [`Platform::thread`] answers it to nobody any more; and the only references to
    /// it that are left are those in guards.
    pub unsafe fn thread_ended(&self, record: &Record<P>) -> EndedThread<P> {
        self.threads.release(record)
    }

    /// What `act` does with the calling thread's record; where the thread has ended, with the one by which
    /// it still reads.
    ///
    /// # Safety
    /// `act` sets no tag that is 0: it ends reads, or adds some to a slot's.
    #[inline(always)]
    pub(crate) unsafe fn with_record<R>(act: impl FnOnce(&Record<P>) -> R) -> Option<R> {
        let Some(record) = P::thread() else {
            // SAFETY: the platform answers what `thread_ended` of this process has given to this thread;
            // the rest is the caller's.
            return unsafe { P::ended_thread().with_record(&P::process().threads, act) };
        };
        Some(act(record))
    }

    /// What the threads were in the middle of that a `fork` has left behind is over: reading by slots,
    /// waiting in rented rooms, barriers. Locks that they held stay held.
    ///
    /// # Safety
    /// This process is the child of a `fork`, and the calling thread, which has the record `own`, is
    /// its only one. It did not fork in the middle of one of this crate's functions, as a signal
    /// handler can. It can write to the locks that others waited for, and its parent does not see
    /// that: they are in memory that is neither kept from the child nor shared with it.
    pub unsafe fn forked(&self, own: Option<&Record<P>>) {
        let left_spinning = |spinners: *const ()| {
            // SAFETY: set by a thread that borrowed this queue of spinners, and had not let go of it:
            // it only has no more to do in this process.
            unsafe { &*spinners.cast::<SpinQueue<P>>() }.forked();
        };
        // SAFETY: the caller's.
        unsafe {
            self.threads.keep_only(own, left_spinning);
            self.rooms.forked(own.map_or(ptr::null(), |own| own.spare_room().get()));
        }
        self.barrier.forked();
    }

    /// Returns when a [barrier on all CPUs](Platform::barrier_on_all_cpus) has ended that began
    /// after the call: one of this call's own, or one that another thread's call began.
    pub fn pass_barrier(&self) {
        self.barrier.pass();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};
    use std::thread;

    use super::*;
    use crate::platform::{Counting, Os, Symmetric};
    use crate::slots::range::{Claim, HELD};

    type Records = Threads<Os>;

    fn claim(threads: &Records) -> &Record<Os> {
        threads.claim().expect("there are enough")
    }

    fn address<P: Platform>(record: &Record<P>) -> usize {
        ptr::from_ref(record).addr()
    }

    #[test]
    fn the_lowest_free_record_is_given_out() {
        let threads = Records::NEW;
        let records: Vec<_> = (0..200).map(|_| claim(&threads)).collect();
        for free in [150, 3, 199, 64] {
            threads.release(records[free]);
        }
        for lowest in [3, 64, 150, 199] {
            assert!(ptr::eq(claim(&threads), records[lowest]));
        }
        let next = claim(&threads);
        assert!(records.iter().all(|record| !ptr::eq(next, *record)));
    }

    #[test]
    fn a_record_that_still_says_something_is_nobody_elses() {
        let threads = Records::NEW;
        let [first, forgotten] = [claim(&threads), claim(&threads)];
        let slot = forgotten.free_slot().expect("a fresh record");
        slot.announce(7);
        threads.release(forgotten);
        let next = claim(&threads);
        assert!(!ptr::eq(next, forgotten));
        assert!(threads.any_reader(|tag| tag == 7), "a forgotten guard keeps its slot");
        // SAFETY: this test is alone with these records.
        unsafe { threads.keep_only(Some(next), |_| ()) };
        assert!(threads.any_reader(|tag| tag == 7), "also in the child of a fork");
        slot.clear();
        // `keep_only` has given back a lower one.
        assert!(ptr::eq(claim(&threads), first));
        assert!(ptr::eq(claim(&threads), forgotten), "found again");
    }

    #[test]
    fn ranges_that_are_held_stay_so_in_the_child_of_a_fork_and_others_are_dropped() {
        let threads = Records::NEW;
        let [own, other] = [claim(&threads), claim(&threads)];
        let take = || {
            let slot = other.free_range().expect("a fresh record");
            slot.announce(Claim::new(7, true), 0, 9);
            slot
        };
        let [held, trying] = [take(), take()];
        held.set(Claim::new(7, true), HELD);
        // SAFETY: this test is alone with these records.
        unsafe { threads.keep_only(Some(own), |_| ()) };
        let rival = Claim::new(7, false);
        assert_eq!(held.keeps_away(rival, 9, 9), Some(HELD), "its guard may be here");
        assert_eq!(trying.keeps_away(rival, 9, 9), None, "nobody goes on with it");
        let next = claim(&threads);
        assert!(!ptr::eq(next, other), "not while a range is held in it");
        held.clear_unseen();
        threads.release(own);
        assert!(ptr::eq(claim(&threads), own));
        assert!(ptr::eq(claim(&threads), other), "found again");
    }

    #[test]
    fn records_claimed_and_given_back_at_once_have_one_owner_each_and_none_is_lost() {
        const THREADS: usize = 4;
        let (threads, there) = (Records::NEW, Barrier::new(THREADS));
        let lowest = claim(&threads);
        threads.release(lowest);
        let (owned, ever) = (Mutex::new(HashSet::new()), Mutex::new(HashSet::new()));
        let claim_and_release = || {
            there.wait();
            for _ in 0..5_000 {
                let records = [claim(&threads), claim(&threads)];
                for record in records.map(address) {
                    assert!(owned.lock().expect("no panic").insert(record), "two owners");
                    ever.lock().expect("no panic").insert(record);
                }
                for record in records {
                    owned.lock().expect("no panic").remove(&address(record));
                    threads.release(record);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(claim_and_release);
            }
        });
        assert!(ever.into_inner().expect("no panic").len() <= 2 * THREADS);
        assert!(ptr::eq(claim(&threads), lowest));
    }

    #[test]
    fn threads_that_come_and_go_use_no_more_records_than_there_were_at_once() {
        const AT_ONCE: usize = 8;
        /// Of the crate's other tests, the forks use records of `Symmetric`, too.
        const OTHERS: usize = 8;
        let body = || Symmetric::thread().map(address).expect("a record for each");
        let mut ever = HashSet::new();
        for _ in 0..10_000 / AT_ONCE {
            let threads = [(); AT_ONCE].map(|()| thread::spawn(body));
            ever.extend(threads.map(|thread| thread.join().expect("no panic")));
        }
        assert!(ever.len() <= AT_ONCE + OTHERS, "{}", ever.len());
    }

    #[test]
    fn threads_that_first_read_in_the_destructor_of_a_key_give_their_records_back() {
        static EVER: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        unsafe extern "C" fn read(_: *mut libc::c_void) {
            let record = Counting::thread();
            let slot = record.and_then(Record::free_slot).expect("a record, with slots");
            slot.announce(9);
            slot.clear();
            EVER.lock().expect("no panic").extend(record.map(address));
        }
        let mut key = 0;
        // SAFETY: the destructor is a function.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(read)) }, 0);
        // SAFETY: the key exists; any value but null.
        let body = move || unsafe { libc::pthread_setspecific(key, (&raw const EVER).cast()) };
        const THREADS: usize = 100;
        for _ in 0..THREADS {
            assert_eq!(thread::spawn(body).join().expect("no panic"), 0);
        }
        let mut ever = EVER.lock().expect("no panic");
        assert_eq!(ever.len(), THREADS);
        ever.sort_unstable();
        ever.dedup();
        // Of the crate's other tests, the forks use records of `Counting`, too.
        assert!(ever.len() <= 10, "{} records", ever.len());
    }

    /// Asks for its thread's record when it goes.
    struct Late;

    impl Drop for Late {
        fn drop(&mut self) {
            if let Some(slot) = Os::thread().and_then(Record::free_slot) {
                slot.announce(9);
                slot.clear();
            }
        }
    }

    #[test]
    fn a_thread_local_that_reads_when_it_goes_does_no_harm() {
        std::thread_local! {
            static LATE: Late = const { Late };
        }
        // Made before the record and after it, so that it goes in both orders; and without one.
        for order in 0..3 {
            let body = move || {
                if order == 0 {
                    LATE.with(|_| ());
                }
                if order < 2 {
                    assert!(Os::thread().is_some());
                }
                LATE.with(|_| ());
            };
            thread::spawn(body).join().expect("no panic");
        }
    }
}
