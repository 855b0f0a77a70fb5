//! What every policy shares: the lock word's fast paths, and how a thread queues, is served, gives up and
//! wakes.
//!
//! ```text
//!   acquire ──► one operation on the word
//!      │ refused
//!      ▼
//!   acquire_slow ──► the policy's family: spins, or not ──► enter_or_queue ──► sleeps
//!                                                               │               ▲
//!   release ──► one operation on the word                       ▼               │ wake
//!      │ somebody waits                                      the queue          │
//!      ▼                                                        │               │
//!   released ──► the policy's family ──► serve: who is next? ◄──┘ ──► WakeList ─┘
//! ```
//!
//! Who enters when, and who is next, is for the two families of policies to say (`compete.rs`,
//! `phases/`), which [`Family`] stands for here.
//!
//! Invariants of the lock, whatever its policy
//! 1. At most one writer holds the lock, and then no reader does.
//! 2. The word names a queue exactly while that queue is not empty, seen under the queue's lock;
//!    `QUEUE_FLAGS` are 0 otherwise.
//! 3. While the lock is free and somebody waits, some thread is about to serve the queue: the one that
//!    released the lock last, a writer that was woken, or (phases) the deadline waiter.
//! 4. A shared count that is full is an error before it changes.
//! 5. After the atomic operation that releases the lock, an unlock touches nothing of it unless it has
//!    locked the queue that the word named and found that it still is this lock's: then somebody waits,
//!    and borrows the lock. (Always so where the queue is inline; such a lock must outlive the unlock.)

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::queue_storage::{Inline, OwnQueue, Pooled, PooledWithSpinners, QueueStorage};
use super::wait_queue::{Kind, LockedQueue, Node, WAITING, WakeList};
use super::word::*;
use crate::events::{CountEvents, Event, Snapshot};
use crate::platform::{AtomicCell, Os, Platform};
use crate::policy::{Discipline, Policy};

/// What a family of policies decides. `mod.rs` implements it for every policy, by its
/// [`Discipline`].
pub(super) trait Family: Policy {
    /// The word after a newcomer of this kind has entered; `None` if it may not.
    fn admit<P: Platform, L: QueueStorage<P>>(
        lock: &RawRwSem<Self, P, L>,
        word: u64,
        kind: Kind,
    ) -> Option<u64>
    where
        Self: Sized;

    /// Spins, queues and sleeps until the lock is this thread's. False if the deadline passed.
    fn acquire<P: Platform, L: QueueStorage<P>>(
        lock: &RawRwSem<Self, P, L>,
        kind: Kind,
        deadline: Option<u64>,
    ) -> bool
    where
        Self: Sized;

    /// Somebody who tried was refused, and does not queue.
    fn refused<P: Platform, L: QueueStorage<P>>(lock: &RawRwSem<Self, P, L>)
    where
        Self: Sized;

    /// Somebody is about to queue where nobody waited.
    fn first_waits<P: Platform, L: QueueStorage<P>>(
        lock: &RawRwSem<Self, P, L>,
        queue: &OwnQueue<'_, P, L>,
    ) where
        Self: Sized;

    /// After a release by `side` that left the word `word`: free, or with an upgrader alone in it, and with
    /// somebody who waits.
    fn released<P: Platform, L: QueueStorage<P>>(
        lock: &RawRwSem<Self, P, L>,
        side: Side,
        word: u64,
    ) where
        Self: Sized;

    /// Takes those off the queue that may hold the lock now.
    fn serve<P: Platform, L: QueueStorage<P>>(
        lock: &RawRwSem<Self, P, L>,
        queue: &OwnQueue<'_, P, L>,
    ) -> WakeList<P>
    where
        Self: Sized;

    /// The same after a fair unlock: nobody enters before them.
    fn serve_first<P: Platform, L: QueueStorage<P>>(
        lock: &RawRwSem<Self, P, L>,
        queue: &OwnQueue<'_, P, L>,
    ) -> WakeList<P>
    where
        Self: Sized;

    /// The same for those that may read beside a writer that became a reader.
    fn serve_beside_reader<P: Platform, L: QueueStorage<P>>(
        lock: &RawRwSem<Self, P, L>,
        queue: &OwnQueue<'_, P, L>,
    ) -> WakeList<P>
    where
        Self: Sized;

    /// `node` has given up and is off the queue. The flags that go with it, and a waiter that takes its
    /// place as the deadline waiter and is to be woken for that; null if nobody does.
    fn gave_up<P: Platform, L: QueueStorage<P>>(
        lock: &RawRwSem<Self, P, L>,
        queue: &OwnQueue<'_, P, L>,
        node: &Node<P>,
    ) -> (u64, *const P::AtomicU32)
    where
        Self: Sized;
}

/// The lock without its data: what [`RwSem`](crate::RwSem) is made of.
///
/// 64 bytes; 24 with a queue that is [`Pooled`], 32 [with spinners](PooledWithSpinners). Use it through
/// [`RwSem`](crate::RwSem) or [`PolicyRwSem`](crate::PolicyRwSem).
#[repr(C)]
pub struct RawRwSem<Pol, P: Platform = Os, L: QueueStorage<P> = Inline<P>> {
    pub(super) word: LockWord<Pol, P>,
    pub(super) storage: L,
    pub(super) events: P::Counters,
}

/// How an attempt to enter or queue goes on, see [`RawRwSem::enter_or_queue`].
pub(super) enum Step {
    /// Enters, if the word can be changed to this.
    Enter(u64),
    /// Queues, if the word can be changed to this.
    Queue(u64),
    /// Looks again, at a word that has become this meanwhile.
    Again(u64),
    /// Neither: there is something else to do first.
    Stop,
}

/// How it ended.
pub(super) enum Queueing<'a, P: Platform, L: QueueStorage<P>> {
    /// The node is on this queue, which is still locked.
    Queued(OwnQueue<'a, P, L>),
    /// The lock is the thread's, and it is not queued.
    Entered(OwnQueue<'a, P, L>),
    /// [`Step::Stop`].
    Stopped(OwnQueue<'a, P, L>),
}

impl<Pol: Policy, P: Platform, L: QueueStorage<P>> RawRwSem<Pol, P, L> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    pub const NEW: Self = {
        assert!(
            L::HAS_SPINNERS || matches!(Pol::DISCIPLINE, Discipline::Phases(_)),
            "a policy of the Linux family needs a queue of spinners: use PooledWithSpinners"
        );
        RawRwSem { word: LockWord::FREE, storage: L::NEW, events: P::Counters::NEW }
    };

    pub(crate) fn storage(&self) -> &L {
        &self.storage
    }

    /// What it has counted, as [`events`] says.
    pub(crate) fn events(&self) -> Snapshot {
        Snapshot::of(&self.events)
    }

    #[inline(always)]
    pub(crate) fn count(&self, event: Event) {
        self.events.count(event);
    }

    // ---- shared ----

    #[inline]
    pub(crate) fn read(&self, deadline: Option<u64>) -> bool {
        self.try_read_once() || self.acquire_slow(Kind::Read, deadline)
    }

    /// A slow path that has nothing to report lets the fast path do without a stack frame.
    #[inline]
    pub(super) fn read_without_deadline(&self) {
        if !self.try_read_once() {
            self.acquire_slow_without_deadline(Kind::Read);
        }
    }

    #[inline]
    pub(crate) fn try_read_once(&self) -> bool {
        let word = self.word.load(Relaxed);
        // Acquire pairs with the Release of `unlock_write`.
        word < READER_LIMIT - 1
            && self.word.compare_exchange_weak(word, word + READER, Acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn try_read(&self) -> bool {
        self.try_read_once() || self.try_enter(Kind::Read)
    }

    /// # Safety
    /// The caller holds the lock shared, and not upgradable.
    #[inline]
    pub(crate) unsafe fn unlock_read(&self) {
        // Release pairs with the Acquire of the next writer.
        let word = self.word.fetch_sub(READER, Release);
        if word >= READER_LIMIT {
            self.released(Side::Read, word - READER);
        }
    }

    // ---- exclusive ----

    /// Takes the lock if it is free and nobody waits.
    #[inline]
    pub(crate) fn write_at_once(&self) -> bool {
        let taken = self.try_write_once();
        if taken {
            self.storage.owner_cpu().store(P::cpu(), Relaxed);
        }
        taken
    }

    /// After [`write_at_once`](Self::write_at_once) has failed. False if the deadline passed.
    pub(crate) fn write_slow(&self, deadline: Option<u64>) -> bool {
        self.acquire_slow(Kind::Write, deadline)
    }

    #[inline]
    pub(super) fn write(&self, deadline: Option<u64>) -> bool {
        self.write_at_once() || self.write_slow(deadline)
    }

    #[inline]
    pub(super) fn write_without_deadline(&self) {
        if !self.write_at_once() {
            self.acquire_slow_without_deadline(Kind::Write);
        }
    }

    #[inline]
    pub(super) fn try_write_once(&self) -> bool {
        if const { Self::ADDS_BIAS_FIRST } {
            // `acquire_slow` takes the bias away again.
            return self.word.fetch_add(WRITER, Acquire) == 0;
        }
        // Acquire pairs with the Release of every unlock.
        self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn try_write(&self) -> bool {
        self.try_enter(Kind::Write)
    }

    pub(crate) const ADDS_BIAS_FIRST: bool = LockWord::<Pol, P>::ADDS_BIAS_FIRST;

    /// # Safety
    /// The caller holds the lock exclusively.
    #[inline]
    pub(crate) unsafe fn unlock_write(&self) {
        // Release pairs with the Acquire of the next holder.
        let word = self.word.fetch_sub(WRITER, Release);
        if word != WRITER {
            self.released(Side::Write, word - WRITER);
        }
    }

    // ---- upgradable ----

    pub(crate) fn try_upgradable(&self) -> bool {
        self.try_enter(Kind::Upgradable)
    }

    pub(crate) fn upgradable(&self, deadline: Option<u64>) -> bool {
        self.try_upgradable() || self.acquire_slow(Kind::Upgradable, deadline)
    }

    // ---- who asks ----

    pub(crate) fn is_locked(&self) -> bool {
        !is_free(self.word.load(Relaxed))
    }

    /// A writer holds the lock, as far as one load of the word tells. Acquire: an answer of no pairs
    /// with the Release of the last writer's unlock.
    #[inline]
    pub(crate) fn has_writer(&self) -> bool {
        has_writer(self.word.load(Acquire))
    }

    /// For readers that have another way to enter. Acquire as in [`has_writer`](Self::has_writer).
    #[inline(always)]
    pub(crate) fn entrance(&self) -> Entrance {
        let word = self.word.load(Acquire);
        match (is_open_to_readers(word), has_waiters(word)) {
            (true, false) => Entrance::Free,
            (true, true) => Entrance::PastWaiters(word),
            (false, _) => Entrance::Shut,
        }
    }

    /// Readers hold the lock.
    #[inline]
    pub(crate) fn has_readers(&self) -> bool {
        readers(self.word.load(Relaxed)) != 0
    }

    /// Somebody waits for this lock.
    pub(crate) fn has_waiters(&self) -> bool {
        has_waiters(self.word.load(Relaxed))
    }

    pub(crate) fn is_locked_exclusive(&self) -> bool {
        has_writer(self.word.load(Relaxed))
    }

    // ---- enter or queue ----

    /// Enters if the policy admits a newcomer right now.
    pub(super) fn try_enter(&self, kind: Kind) -> bool {
        let mut word = self.word.load(Relaxed);
        while let Some(entered) = Pol::admit(self, word, kind) {
            match self.word.compare_exchange_weak(word, entered, Acquire, Relaxed) {
                Ok(_) => {
                    self.note_owner(kind);
                    return true;
                }
                Err(found) => word = found,
            }
        }
        Pol::refused(self);
        false
    }

    #[cold]
    pub(super) fn acquire_slow(&self, kind: Kind, deadline: Option<u64>) -> bool {
        let acquired = Pol::acquire(self, kind, deadline);
        if acquired {
            self.note_owner(kind);
        }
        acquired
    }

    #[cold]
    fn acquire_slow_without_deadline(&self, kind: Kind) {
        let acquired = self.acquire_slow(kind, None);
        assert!(acquired, "without a deadline a wait ends with the lock");
    }

    /// Calls `with_queue` with this lock's queue, locked, until it says how that ended; it says nothing
    /// where the lock has another queue by now. While the pool has none left, gives way and asks
    /// `without_queue` instead. None if the deadline passed meanwhile.
    pub(super) fn enter_or_queue<'a, R>(
        &'a self,
        deadline: Option<u64>,
        mut without_queue: impl FnMut() -> Option<R>,
        mut with_queue: impl FnMut(OwnQueue<'a, P, L>) -> Option<R>,
    ) -> Option<R> {
        let mut attempt = 0;
        loop {
            match self.queue_to_wait_in() {
                Some(queue) => {
                    if let Some(ended) = with_queue(queue) {
                        return Some(ended);
                    }
                }
                None => {
                    if deadline.is_some_and(|deadline| P::now() >= deadline) {
                        return None;
                    }
                    P::give_way(attempt);
                    attempt += 1;
                    if let Some(ended) = without_queue() {
                        return Some(ended);
                    }
                }
            }
        }
    }

    /// Puts `node` on `queue`, or enters, as `step` says of each word seen. None if the lock has another
    /// queue.
    pub(super) fn queue_as<'a>(
        &self,
        queue: OwnQueue<'a, P, L>,
        node: &Node<P>,
        at_front: bool,
        mut step: impl FnMut(&OwnQueue<'a, P, L>, u64) -> Step,
    ) -> Option<Queueing<'a, P, L>> {
        let mut word = self.word.load(Relaxed);
        loop {
            if !queue.is_for(word) {
                return None;
            }
            let (next, enters) = match step(&queue, word) {
                Step::Enter(next) => (next, true),
                Step::Queue(next) => (next, false),
                Step::Again(found) => {
                    word = found;
                    continue;
                }
                Step::Stop => return Some(Queueing::Stopped(queue)),
            };
            // Acquire, for those that enter, pairs with the Release of everybody who has left.
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) if enters => return Some(Queueing::Entered(queue)),
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        queue.note_named();
        if at_front {
            queue.push_front(node)
        } else {
            queue.push(node)
        }
        queue.note_queued();
        Some(Queueing::Queued(queue))
    }

    /// The queue that `word` names, locked, if it still is this lock's. Until that is known this touches
    /// nothing of the lock.
    pub(super) fn own_queue(&self, word: u64) -> Option<OwnQueue<'_, P, L>> {
        debug_assert!(has_waiters(word));
        self.own_queue_in(self.storage.place(word))
    }

    /// The same if nobody has the queue's lock.
    pub(super) fn try_own_queue(&self, word: u64) -> Option<OwnQueue<'_, P, L>> {
        debug_assert!(has_waiters(word));
        OwnQueue::try_lock(&self.storage, self.word.atomic(), self.storage.place(word))
    }

    /// The queue in this place, locked, if it still is this lock's.
    pub(super) fn own_queue_in<'a>(&'a self, place: &'a L::Place) -> Option<OwnQueue<'a, P, L>> {
        OwnQueue::lock(&self.storage, self.word.atomic(), place)
    }

    /// The queue that waiters of this lock are in, or one that is about to be, locked; none if the pool has
    /// none left.
    pub(super) fn queue_to_wait_in(&self) -> Option<OwnQueue<'_, P, L>> {
        loop {
            let word = if L::IS_INLINE { 0 } else { self.word.load(Relaxed) };
            if !has_waiters(word) {
                // SAFETY: this lock's own word, and nobody forgets what this returns.
                return unsafe { self.storage.acquire(self.word.atomic()) };
            }
            if let Some(queue) = self.own_queue(word) {
                return Some(queue);
            }
        }
    }

    // ---- sleep, or give up ----

    /// Sleeps until granted or, returning false, until the deadline.
    pub(super) fn sleep_until_granted(
        &self,
        place: &L::Place,
        node: &Node<P>,
        mut deadline: Option<u64>,
    ) -> bool {
        while !node.is_granted() {
            if deadline.is_some_and(|deadline| P::now() >= deadline) {
                if self.withdraw(place, node) {
                    return false;
                }
                deadline = None;
                continue;
            }
            self.count_sleep(node.kind);
            P::park(&node.state, WAITING, deadline);
        }
        node.wake_chain();
        true
    }

    pub(super) fn count_sleep(&self, kind: Kind) {
        self.events.count(match kind {
            Kind::Read => Event::SleepReader,
            _ => Event::SleepWriter,
        });
    }

    /// Takes a waiter that gives up off the queue, and serves those that waited behind it.
    /// False if it is off already: then its state is about to say why.
    pub(super) fn withdraw(&self, place: &L::Place, node: &Node<P>) -> bool {
        let Some(queue) = self.own_queue_in(place) else {
            return false;
        };
        if !node.is_linked(&queue) {
            return false;
        }
        queue.remove(node);
        let (mut clear, appointed) = Pol::gave_up(self, &queue, node);
        if queue.is_empty() {
            clear |= QUEUE_FLAGS;
        }
        if node.kind == Kind::Upgrade {
            clear |= UPGRADING;
        }
        self.word.fetch_and(!clear, Relaxed);
        let woken = if queue.is_empty() { WakeList::none() } else { Pol::serve(self, &queue) };
        drop(queue);
        woken.wake();
        if !appointed.is_null() {
            P::unpark(appointed);
        }
        self.events.count(match node.kind {
            Kind::Read => Event::RlockFail,
            _ => Event::WlockFail,
        });
        true
    }

    // ---- release, and serve those that wait ----

    /// After a release that left `word` behind, with some flag set.
    #[cold]
    pub(super) fn released(&self, side: Side, word: u64) {
        let upgrader_alone = word & UPGRADING != 0 && readers(word) == 1;
        if !has_waiters(word) || !(is_free(word) || upgrader_alone) {
            return;
        }
        Pol::released(self, side, word);
    }

    /// After a release that left `word` behind: takes those off the queue that may hold the lock now, and
    /// wakes them. If the queue is not this lock's any more, all those have been served that waited then.
    pub(super) fn serve_after_release(&self, word: u64) {
        if let Some(queue) = self.own_queue(word) {
            let woken = Pol::serve(self, &queue);
            drop(queue);
            woken.wake();
        }
    }

    /// Grants `node`, which wants more than to read, if the holders permit.
    pub(super) fn grant_one(&self, queue: &LockedQueue<'_, P>, node: &Node<P>) -> WakeList<P> {
        let mut word = self.word.load(Relaxed);
        loop {
            let next = match node.kind {
                Kind::Write if is_free(word) => word + WRITER,
                Kind::Upgradable if admits_upgradable(word) => plus_reader(word) | UPGRADABLE,
                Kind::Upgrade if readers(word) == 1 => {
                    word - READER - UPGRADABLE - UPGRADING + WRITER
                }
                _ => return WakeList::none(),
            };
            // Acquire pairs with the Release of those that left; `WakeList::grant` passes it on.
            match self.word.compare_exchange_weak(word, next & !CLOSED, Acquire, Relaxed) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        let mut woken = WakeList::none();
        woken.take(queue, node);
        if queue.is_empty() {
            self.word.fetch_and(!QUEUE_FLAGS, Relaxed);
        }
        self.events.count(Event::WakeWriter);
        woken
    }

    // ---- the owner ----

    pub(super) fn note_owner(&self, kind: Kind) {
        if matches!(kind, Kind::Write | Kind::Upgrade) {
            self.storage.owner_cpu().store(P::cpu(), Relaxed);
        }
    }

    /// False only if the writer surely does not run: it acquired the lock on the CPU that this
    /// thread runs on now. It cannot see a writer that was preempted on another CPU, and is
    /// wrong about one that has moved since.
    pub(crate) fn owner_may_run(&self) -> bool {
        // 0 is unknown, and `u32::MAX` what a thread stores that the kernel does not tell its CPU;
        // other values that are no CPU are no CPU of this thread's either.
        let owner = self.storage.owner_cpu().load(Relaxed);
        owner == 0 || owner == u32::MAX || owner != P::cpu()
    }
}

const _: () = assert!(size_of::<RawRwSem<crate::policy::TimeFair>>() <= 64);
const _: () = assert!(size_of::<RawRwSem<crate::policy::TimeFair, Os, Pooled<Os>>>() <= 24);
const _: () =
    assert!(size_of::<RawRwSem<crate::policy::Linux5_11, Os, PooledWithSpinners<Os>>>() <= 32);

/// What the semaphore says to readers that have another way to enter.
pub(crate) enum Entrance {
    /// Enter.
    Free,
    /// Enter past those that wait, if [`has_budget`](RawRwSem::has_budget) agrees; the word.
    PastWaiters(u64),
    /// A writer holds the lock or is about to upgrade, or the phase is closed.
    Shut,
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use lock_api::RawRwLock;

    use super::*;
    use crate::policy::{ImmediateHandoff, Linux5_11, PhaseFair, TimeFair};

    fn refuses_one_reader_too_many<Pol: Policy>() {
        let lock = RawRwSem::<Pol, Os>::NEW;
        lock.word.store(READER_LIMIT - 2, Relaxed);
        let _last = lock.try_lock_shared().expect("room for one more");
        for _ in 0..2 {
            let refused = catch_unwind(AssertUnwindSafe(|| lock.read(None)));
            let message = refused.expect_err("the count is full");
            let message = message.downcast_ref::<&str>().expect("a message");
            assert!(message.contains("readers hold this lock at once"), "{message}");
            assert_eq!(lock.word.load(Relaxed), READER_LIMIT - 1, "refused before it changes");
        }
        // The queue is not left locked either.
        assert!(lock.queue_to_wait_in().expect("it is inline").is_empty());
    }

    #[test]
    fn a_full_count_of_readers_is_an_error_before_it_changes() {
        refuses_one_reader_too_many::<TimeFair>();
        refuses_one_reader_too_many::<PhaseFair>();
        refuses_one_reader_too_many::<Linux5_11>();
    }

    #[test]
    fn a_lock_that_was_taken_just_before_its_immediate_handoff_is_reserved_then() {
        let lock = RawRwSem::<ImmediateHandoff, Os>::NEW;
        let head = Node::new(Kind::Write, 0);
        let queue = lock.queue_to_wait_in().expect("it is inline");
        queue.note_named();
        queue.push(&head);
        lock.word.store(queue.bits() | WRITER, Relaxed);
        assert!(ImmediateHandoff::serve(&lock, &queue).is_empty(), "another writer has it");
        assert_eq!(lock.word.load(Relaxed), queue.bits() | WRITER | CLOSED);
        lock.word.fetch_sub(WRITER, Relaxed);
        let woken = ImmediateHandoff::serve(&lock, &queue);
        drop(queue);
        woken.wake();
        assert_eq!(lock.word.load(Relaxed), WRITER, "handed over");
    }
}
