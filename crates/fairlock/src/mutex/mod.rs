//! A mutex in 16 bytes: exclusive access only. What it guarantees is written at [`Mutex`].
//!
//! How it works: one 32-bit word says whether the lock is held, and how its queue is served.
//! 1. A newcomer that finds the lock held waits for a few rounds (`backoff.rs`) and takes it if it
//!    is free then: a short section ends sooner than a sleep.
//! 2. If that fails, it queues with a node on its own stack (`wait_queue.rs`) and sleeps.
//! 3. An unlock that leaves waiters behind wakes the oldest, the head. The lock stays free
//!    meanwhile, so that it is not idle for as long as a wake-up takes: the first thread to arrive
//!    takes it, and the woken head competes like any newcomer.
//! 4. No unlock wakes a head that is awake already.
//! 5. A head that fails and has waited for longer than `HANDOFF_AFTER_NS` reserves the lock: the
//!    next unlock leaves it locked and makes the head its owner. A fair unlock does so at once.
//! 6. A waiter whose deadline passes leaves the queue from wherever it stands. If it was woken, it
//!    wakes the next head in its place.
//!
//! Why it is right: the invariants below. What it costs: one atomic operation to lock and one to
//! unlock while no thread competes, and no memory in addition to the lock and the waiters' stacks.
//!
//! Newcomers do not stand in line, as they do in `kernel/locking/mutex.c`: on the machines that
//! were measured and simulated, handing a lock from one spinning thread to the next costs more than
//! it saves, since each must run at the moment when it is handed the lock. Each waits for twice as
//! long before it looks again, so that they leave the lock's cache line to the owner.
//!
//! Invariants
//! 1. The thread that set `LOCKED`, or was granted the lock, is the only owner until it unlocks.
//! 2. Under the queue's lock, `WAITERS` is set exactly while the ring is not empty.
//! 3. While the lock is free and a thread is on the ring, some thread is about to act on it: the
//!    head (`HEAD_AWAKE`), or the thread that unlocked last and is about to wake the head.
//! 4. `HANDOFF` is set only while the lock is held and a thread waits. So a free lock is never
//!    reserved, and only an unlock has to look at reservations.
//! 5. `WAITERS`, `HEAD_AWAKE` and `HANDOFF` are written under the queue's lock. So while the lock
//!    is held, only the owner writes the word without the queue's lock.
//! 6. A node leaves the ring under the queue's lock: either its own thread removes it, or another
//!    thread removes it and sets its state to `GRANTED` in the same critical section. So under the
//!    queue's lock a node that is not `GRANTED` is on the ring. Storing `GRANTED` is the last
//!    access to a node: its stack frame may be gone right after, and the wake-up that follows uses
//!    the address alone.

mod api;

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub use api::{ArcMutexGuard, MappedMutexGuard, Mutex, MutexGuard, events};

use crate::backoff::Backoff;
use crate::events::{CountEvents, Event, Snapshot};
use crate::held::{Identity, Wanted};
use crate::hold::IdentityOf;
use crate::platform::{AtomicCell, AtomicInt, Os, PlainCell, Platform};
use crate::policy::HANDOFF_AFTER_NS;
use crate::raw::GuardStaysOnItsThread;
use crate::raw::{RawLock, Wait};
use crate::recorded::CountedLock;
use crate::wait_queue::{Links, Locked, OnRing, QueueLock, Ring};

/// A thread holds the lock.
const LOCKED: u32 = 1 << 0;
/// The queue is not empty: an unlock has to look at it.
const WAITERS: u32 = 1 << 1;
/// The head was woken and has neither taken the lock nor found it taken since.
const HEAD_AWAKE: u32 = 1 << 2;
/// The lock is reserved for the head: the next unlock hands it over.
const HANDOFF: u32 = 1 << 3;

fn is_free(word: u32) -> bool {
    word & LOCKED == 0
}

/// State of a node on the ring: its thread sleeps, or is about to.
const WAITING: u32 = 0;
/// The node is the head, and its thread has been woken to try to take the lock.
const WOKEN: u32 = 1;
/// The node's thread owns the lock, and the node is off the ring.
const GRANTED: u32 = 2;

/// One waiter, on its own stack. It starts a cache line, so that the layout of the caller's frame
/// does not decide which of its words share one.
#[repr(align(64))]
struct Node<P: Platform> {
    state: P::AtomicU32,
    /// When its thread began to wait for the lock, ns. On the ring it is read under the queue's
    /// lock.
    since: P::Cell<u64>,
    links: Links<P>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Node<Os>>() == 64, "one cache line");

impl<P: Platform> OnRing<P> for Node<P> {
    fn links(&self) -> &Links<P> {
        &self.links
    }
}

impl<P: Platform> Node<P> {
    /// `since` must be set once the node is where it stays, as a simulated machine sees where a
    /// cell is written.
    fn new() -> Self {
        Node { state: P::AtomicU32::ZERO, since: P::Cell::ZERO, links: Links::NEW }
    }

    /// Acquire pairs with the Release in `RawMutex::hand_to`.
    fn is_granted(&self) -> bool {
        self.state.load(Acquire) == GRANTED
    }
}

/// The lock without its data: what [`Mutex`] is made of.
#[repr(C)]
pub struct RawMutex<P: Platform = Os> {
    word: P::AtomicU32,
    queue_lock: QueueLock<P>,
    waiters: Ring<P, Node<P>>,
    events: P::Counters,
    identity: IdentityOf<P>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Mutex<()>>() <= 16 + size_of::<IdentityOf<Os>>());

impl<P: Platform> RawMutex<P> {
    /// What it has counted: see [`events`].
    pub fn events(&self) -> Snapshot {
        Snapshot::of(&self.events)
    }
}

// SAFETY: only the ring has plain cells, and only the holder of the queue's lock touches them
// (`wait_queue.rs`, invariant 1); everything else is atomic.
unsafe impl<P: Platform> Sync for RawMutex<P> {}
// SAFETY: no thread borrows a lock that is moved, so its queue is empty and the pointer null.
unsafe impl<P: Platform> Send for RawMutex<P> {}

impl<P: Platform> RawMutex<P> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub const NEW: Self = RawMutex {
        word: P::AtomicU32::ZERO,
        queue_lock: QueueLock::NEW,
        waiters: Ring::EMPTY,
        events: P::Counters::NEW,
        identity: IdentityOf::<P>::NEW,
    };

    /// Takes the lock if it is free and no thread waits.
    #[inline]
    fn take_idle(&self) -> bool {
        // Acquire pairs with the Release of every unlock.
        self.word.compare_exchange(0, LOCKED, Acquire, Relaxed).is_ok()
    }

    /// Takes the lock if it is free, past all waiters.
    #[inline]
    fn take_free(&self) -> bool {
        let mut word = self.word.load(Relaxed);
        while is_free(word) {
            // Acquire pairs with the Release of every unlock.
            match self.word.compare_exchange_weak(word, word | LOCKED, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
        false
    }

    /// False if the deadline passed.
    #[cold]
    fn lock_slow(&self, deadline: Option<u64>) -> bool {
        if self.take_free() {
            return true;
        }
        let since = P::now();
        if self.spin(deadline, || false) {
            self.events.count(Event::OptLock);
            return true;
        }
        self.events.count(Event::OptFail);
        let node = Node::<P>::new();
        node.since.set(since);
        self.take_or_queue(&node) || self.wait(&node, deadline)
    }

    /// Takes the lock of a thread that was notified at this moment.
    pub(crate) fn lock_notified(&self, since: u64) {
        if !self.spin(None, || false) {
            let node = Node::<P>::new();
            node.since.set(since);
            _ = self.take_or_queue(&node) || self.wait(&node, None);
        }
    }

    /// Takes the lock as soon as it is free. Returns false when it is better to sleep, or when
    /// `done` says so.
    fn spin(&self, deadline: Option<u64>, done: impl Fn() -> bool) -> bool {
        let mut backoff = Backoff::<P>::from_a_lock();
        while !done() {
            let word = self.word.load(Relaxed);
            if is_free(word) {
                // Acquire pairs with the Release of every unlock.
                if self.word.compare_exchange(word, word | LOCKED, Acquire, Relaxed).is_ok() {
                    return true;
                }
            } else if word & HANDOFF != 0 {
                return false;
            }
            if !backoff.goes_on() || deadline.is_some_and(|deadline| P::now() >= deadline) {
                return false;
            }
        }
        false
    }

    // ---- sleeping ----

    /// Waits on the ring. False if the deadline passed.
    fn wait(&self, node: &Node<P>, deadline: Option<u64>) -> bool {
        loop {
            // Acquire pairs with the Release in `hand_to`.
            match node.state.load(Acquire) {
                GRANTED => return true,
                WOKEN => {
                    if self.take_as_head(node, deadline) {
                        return true;
                    }
                }
                _ if deadline.is_some_and(|deadline| P::now() >= deadline) => {
                    if self.withdraw(node) {
                        return false;
                    }
                }
                _ => {
                    self.events.count(Event::MutexSleep);
                    P::park(&node.state, WAITING, deadline);
                }
            }
        }
    }

    /// Takes the lock if it was freed in the meantime, else queues.
    fn take_or_queue(&self, node: &Node<P>) -> bool {
        let locked = self.queue_lock.lock();
        let mut word = self.word.load(Relaxed);
        loop {
            let free = is_free(word);
            // If it is held, the owner's unlock will see `WAITERS`, which keeps invariant 3.
            let next = word | if free { LOCKED } else { WAITERS };
            // Acquire pairs with the Release of every unlock.
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) if free => return true,
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        self.waiters.push(&locked, node);
        false
    }

    /// The attempt of a head that was woken. After a failure its state is `WAITING` or `GRANTED`.
    fn take_as_head(&self, node: &Node<P>, deadline: Option<u64>) -> bool {
        // A fair unlock may hand it the lock while it spins.
        let stolen = self.spin(deadline, || node.is_granted());
        let locked = self.queue_lock.lock();
        if !stolen {
            if node.is_granted() {
                return false;
            }
            if !self.take_or_reserve(&locked, node) {
                // Relaxed: states other than `GRANTED` change under the queue's lock.
                node.state.store(WAITING, Relaxed);
                return false;
            }
        }
        debug_assert!(self.is_head(&locked, node), "only the head is woken");
        self.waiters.remove(&locked, node);
        self.word.fetch_and(!(HEAD_AWAKE | self.waiters_if_none(&locked)), Relaxed);
        true
    }

    /// Takes the lock for the head. If that fails, the head is about to sleep again: the next
    /// unlock has to wake it or, if it has waited for too long, to hand it the lock. (It may have
    /// begun to wait by the clock of the thread that notified it, which may be a little ahead.)
    fn take_or_reserve(&self, _locked: &Locked<'_, P>, head: &Node<P>) -> bool {
        let mut word = self.word.load(Relaxed);
        loop {
            let free = is_free(word);
            let next = if free {
                word | LOCKED
            } else if P::now().saturating_sub(head.since.get()) > HANDOFF_AFTER_NS {
                (word & !HEAD_AWAKE) | HANDOFF
            } else {
                word & !HEAD_AWAKE
            };
            // Acquire pairs with the Release of every unlock.
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) => return free,
                Err(found) => word = found,
            }
        }
    }

    /// Removes a waiter that gives up from the queue. False if it has been granted the lock.
    fn withdraw(&self, node: &Node<P>) -> bool {
        let locked = self.queue_lock.lock();
        if node.is_granted() {
            return false;
        }
        let of_head = if self.is_head(&locked, node) { HEAD_AWAKE | HANDOFF } else { 0 };
        self.waiters.remove(&locked, node);
        let clear = of_head | self.waiters_if_none(&locked);
        let word = self.word.fetch_and(!clear, Relaxed);
        // An unlock may have relied on this waiter, as it was awake (invariant 3).
        let woken = if is_free(word) { self.wake_head(&locked) } else { None };
        drop(locked);
        self.unpark(woken);
        true
    }

    fn is_head(&self, locked: &Locked<'_, P>, node: &Node<P>) -> bool {
        self.waiters.oldest(locked).is_some_and(|head| core::ptr::eq(head, node))
    }

    /// The flag to clear once the last waiter has left the ring.
    fn waiters_if_none(&self, locked: &Locked<'_, P>) -> u32 {
        if self.waiters.oldest(locked).is_none() { WAITERS } else { 0 }
    }

    // ---- unlocking ----

    /// Unlocks if no thread waits.
    ///
    /// # Safety
    /// The caller holds the lock.
    #[inline]
    unsafe fn release_idle(&self) -> bool {
        // Release pairs with the Acquire of the next owner.
        self.word.compare_exchange(LOCKED, 0, Release, Relaxed).is_ok()
    }

    #[cold]
    fn unlock_slow(&self) {
        let mut word = self.word.load(Relaxed);
        while word & HANDOFF == 0 {
            let free = word & !LOCKED;
            // Release pairs with the Acquire of the next owner.
            match self.word.compare_exchange_weak(word, free, Release, Relaxed) {
                Ok(_) => {
                    // Also if somebody has taken the lock by now: only a head that is awake can
                    // find out that it has waited for too long.
                    if free & WAITERS != 0 && free & HEAD_AWAKE == 0 {
                        let locked = self.queue_lock.lock();
                        let woken = self.wake_head(&locked);
                        drop(locked);
                        self.unpark(woken);
                    }
                    return;
                }
                Err(found) => word = found,
            }
        }
        self.unlock_fair_slow();
    }

    #[cold]
    fn unlock_fair_slow(&self) {
        let locked = self.queue_lock.lock();
        let Some(head) = self.waiters.oldest(&locked) else {
            // A store is enough, by invariants 2 and 5.
            // Release pairs with the Acquire of the next owner.
            self.word.store(0, Release);
            return;
        };
        let granted = self.hand_to(&locked, head);
        drop(locked);
        self.unpark(Some(granted));
    }

    /// Makes the head the owner.
    fn hand_to(&self, locked: &Locked<'_, P>, head: &Node<P>) -> *const P::AtomicU32 {
        self.waiters.remove(locked, head);
        let waiters = WAITERS & !self.waiters_if_none(locked);
        // A store is enough, by invariant 5. Relaxed: the next owner acquires by its node's state.
        self.word.store(LOCKED | waiters, Relaxed);
        self.events.count(Event::MutexHandoff);
        let state = &raw const head.state;
        // Release pairs with the Acquire in `wait` and `Node::is_granted`.
        head.state.store(GRANTED, Release);
        state
    }

    /// Marks the head as woken, so that it tries to take the lock, unless it is awake already or
    /// will be handed the lock. Returns the word to [unpark](Self::unpark).
    fn wake_head(&self, locked: &Locked<'_, P>) -> Option<*const P::AtomicU32> {
        let head = self.waiters.oldest(locked)?;
        if self.word.load(Relaxed) & (HEAD_AWAKE | HANDOFF) != 0 {
            return None;
        }
        self.word.fetch_or(HEAD_AWAKE, Relaxed);
        // Relaxed: the head looks at everything else under the queue's lock.
        head.state.store(WOKEN, Relaxed);
        Some(&raw const head.state)
    }

    /// Wakes the thread whose state has just changed, by the state's address alone: the node may be
    /// gone (invariant 6). Not under the queue's lock, as the woken thread would have to wait for
    /// that.
    fn unpark(&self, state: Option<*const P::AtomicU32>) {
        if let Some(state) = state {
            self.events.count(Event::MutexWake);
            P::unpark(state);
        }
    }
}

// SAFETY: there is one owner at a time (invariant 1): a fair unlock passes the lock to the next
// owner without its being free in between. Acquisitions are Acquire, releases Release. An
// acquisition that fails holds nothing and leaves no node queued (`withdraw`). A lock that is moved
// or dropped while held has empty queues, as waiters borrow it.
unsafe impl<P: Platform> RawLock for RawMutex<P> {
    type Platform = P;
    type Residence = GuardStaysOnItsThread;
    const WANTED: Wanted = Wanted::Lock;

    #[inline]
    fn write(&self, wait: Wait) -> bool {
        if wait == Wait::Not {
            return self.take_free();
        }
        self.take_idle() || wait.has_ended_well(self.lock_slow(wait.deadline()))
    }
    #[inline]
    unsafe fn unlock_write(&self, fair: bool) {
        // SAFETY: the lock is held, as the caller promises.
        match unsafe { self.release_idle() } {
            true => {}
            false if fair => self.unlock_fair_slow(),
            false => self.unlock_slow(),
        }
    }

    fn is_locked(&self) -> bool {
        !is_free(self.word.load(Relaxed))
    }

    fn id(&self) -> *const () {
        self.identity.of(ptr::from_ref(self).cast())
    }

    #[inline(always)]
    fn counted(&self) -> Option<&CountedLock> {
        self.identity.counted()
    }
}

/// The protocol step by step: the nodes stand in for sleeping threads.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::ago;

    type Raw = RawMutex<Os>;

    fn node(since: u64) -> Node<Os> {
        let node = Node::<Os>::new();
        node.since.set(since);
        node
    }

    fn unlock(lock: &Raw) {
        // SAFETY: every test below unlocks what it holds.
        if !unsafe { lock.release_idle() } {
            lock.unlock_slow();
        }
    }

    fn state(node: &Node<Os>) -> u32 {
        node.state.load(Relaxed)
    }

    fn flags(lock: &Raw) -> u32 {
        lock.word.load(Relaxed)
    }

    #[test]
    fn uncontended_the_word_says_that_it_is_held_and_nothing_else() {
        let lock = Raw::NEW;
        assert!(lock.take_idle());
        assert_eq!(lock.word.load(Relaxed), LOCKED);
        assert!(!lock.take_idle());
        assert!(!lock.take_free());
        unlock(&lock);
        assert_eq!(lock.word.load(Relaxed), 0);
    }

    #[test]
    fn a_released_lock_can_be_taken_before_the_woken_head_runs() {
        let (lock, head) = (Raw::NEW, node(Os::now()));
        assert!(lock.take_idle());
        assert!(!lock.take_or_queue(&head));
        unlock(&lock);
        assert_eq!((flags(&lock), state(&head)), (WAITERS | HEAD_AWAKE, WOKEN));
        assert!(lock.take_free());
        unlock(&lock);
        assert!(lock.take_as_head(&head, None));
        assert_eq!(flags(&lock), LOCKED);
        unlock(&lock);
        assert_eq!(lock.word.load(Relaxed), 0);
    }

    #[test]
    fn a_head_that_waited_too_long_is_handed_the_lock() {
        let (lock, head) = (Raw::NEW, node(ago(2 * HANDOFF_AFTER_NS)));
        assert!(lock.take_idle());
        assert!(!lock.take_or_queue(&head));
        unlock(&lock);
        assert!(lock.take_free());
        assert!(!lock.take_as_head(&head, None));
        assert_eq!((flags(&lock), state(&head)), (LOCKED | WAITERS | HANDOFF, WAITING));
        unlock(&lock);
        assert_eq!((flags(&lock), state(&head)), (LOCKED, GRANTED));
        assert!(!lock.take_free());
        unlock(&lock);
        assert_eq!(lock.word.load(Relaxed), 0);
    }

    #[test]
    fn a_head_that_gives_up_takes_its_reservation_with_it() {
        let (lock, head, next) = (Raw::NEW, node(ago(2 * HANDOFF_AFTER_NS)), node(Os::now()));
        assert!(lock.take_idle());
        assert!(!lock.take_or_queue(&head));
        assert!(!lock.take_or_queue(&next));
        assert!(!lock.take_as_head(&head, None));
        assert_eq!(flags(&lock), LOCKED | WAITERS | HANDOFF);
        assert!(lock.withdraw(&head));
        assert_eq!(flags(&lock), LOCKED | WAITERS);
        unlock(&lock);
        assert_eq!(state(&next), WOKEN);
        assert!(lock.withdraw(&next));
        assert_eq!(lock.word.load(Relaxed), 0);
    }

    #[test]
    fn a_woken_head_that_gives_up_wakes_the_next() {
        let (lock, head, next) = (Raw::NEW, node(Os::now()), node(Os::now()));
        assert!(lock.take_idle());
        assert!(!lock.take_or_queue(&head));
        assert!(!lock.take_or_queue(&next));
        unlock(&lock);
        assert_eq!((state(&head), state(&next)), (WOKEN, WAITING));
        assert!(lock.withdraw(&head));
        assert_eq!((flags(&lock), state(&next)), (WAITERS | HEAD_AWAKE, WOKEN));
        assert!(lock.take_as_head(&next, None));
        unlock(&lock);
        assert_eq!(lock.word.load(Relaxed), 0);
    }

    #[test]
    fn a_waiter_in_the_middle_leaves_the_others_in_order() {
        let (lock, nodes) = (Raw::NEW, [(); 3].map(|()| node(Os::now())));
        assert!(lock.take_idle());
        for node in &nodes {
            assert!(!lock.take_or_queue(node));
        }
        assert!(lock.withdraw(&nodes[1]));
        for node in [&nodes[0], &nodes[2]] {
            assert_eq!(state(node), WAITING);
            lock.unlock_fair_slow();
            assert_eq!(state(node), GRANTED);
        }
        lock.unlock_fair_slow();
        assert_eq!(lock.word.load(Relaxed), 0);
    }

    #[test]
    fn a_waiter_that_was_granted_the_lock_cannot_give_up() {
        let (lock, head) = (Raw::NEW, node(Os::now()));
        assert!(lock.take_idle());
        assert!(!lock.take_or_queue(&head));
        lock.unlock_fair_slow();
        assert!(!lock.withdraw(&head));
        assert_eq!(state(&head), GRANTED);
    }
}
