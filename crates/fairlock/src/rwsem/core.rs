//! What every policy shares: how a thread queues, sleeps, is served, gives up and wakes.
//!
//! ```text
//!   fast_path.rs        mod.rs: the family         compete.rs or shares.rs         here
//!   acquire ──refused─► acquire ─────────────────► spins, or not ───────────────► enter_or_queue ──► sleeps
//!                                                                                      │                ▲
//!                                                                                  the queue            │ wake
//!                                                                                      ▼                │
//!   release ──waiters─► released ────────────────► serve: who is next? ◄──────────► own_queue ──► WakeList
//! ```
//!
//! Who enters when, and who is next, is for the two families of policies to say (`compete.rs`,
//! `shares.rs`), which [`Family`] stands for here.
//!
//! Invariants of the lock, whatever its policy
//! 1. At most one writer holds the lock, and then no reader does.
//! 2. The word names a queue exactly while that queue is not empty, seen under the queue's lock;
//!    `QUEUE_FLAGS` are 0 otherwise.
//! 3. While the lock is free and a thread waits, some thread is about to serve the queue: the one that
//!    released the lock last, a writer that was woken, or (shares) the waiter that keeps time.
//! 4. A shared count that is full is an error before it changes.
//! 5. After the atomic operation that releases the lock, an unlock touches nothing of it unless it has
//!    locked the queue that the word named and found that it still is this lock's: then somebody waits,
//!    and borrows the lock. (Always so where the queue is inline; such a lock must outlive the unlock.)

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::queue_storage::{Inline, OwnQueue, Pooled, QueueStorage};
use super::wait_queue::{Kind, LockedQueue, Node, WAITING, WakeList};
use super::word::*;
use crate::events::{CountEvents, Event, Snapshot};
use crate::guarded::IdentityOf;
use crate::held::Identity;
use crate::platform::{Os, Platform};
use crate::policy::{Policy, TimeFair};

/// What a family of policies decides. `mod.rs` implements it for every policy, by its
/// [`Discipline`].
pub(super) trait Family<P: Platform, L: QueueStorage<P>>: Policy + Sized {
    /// The word after a newcomer of this kind has entered; `None` if it may not.
    fn admit(word: u64, kind: Kind) -> Option<u64>;

    /// Spins, queues and sleeps until the lock is this thread's. False if the deadline passed.
    fn acquire(lock: &RawRwSem<Self, P, L>, kind: Kind, deadline: Option<u64>) -> bool;

    /// The word with the lock shut to newcomers: only waiting threads get it.
    fn shut(word: u64) -> u64;

    /// Somebody who tried was refused, and does not queue.
    fn refused(lock: &RawRwSem<Self, P, L>);

    /// After a release that left the word `word`: free, or with an upgrader alone in it, and with waiters.
    fn released(lock: &RawRwSem<Self, P, L>, word: u64);

    /// Takes those off the queue that may hold the lock now.
    fn serve(lock: &RawRwSem<Self, P, L>, queue: &OwnQueue<'_, P, L>) -> WakeList<P>;

    /// The same after a fair unlock: nobody enters before them.
    fn serve_first(lock: &RawRwSem<Self, P, L>, queue: &OwnQueue<'_, P, L>) -> WakeList<P>;

    /// The same for those that may read beside a writer that became a reader.
    fn serve_beside_reader(lock: &RawRwSem<Self, P, L>, queue: &OwnQueue<'_, P, L>) -> WakeList<P>;

    /// `node` has given up and is off the queue. The flags that go with it, and a waiter that takes its
    /// place and has to look at the clock; null if none does.
    fn gave_up(
        lock: &RawRwSem<Self, P, L>,
        queue: &OwnQueue<'_, P, L>,
        node: &Node<P>,
    ) -> (u64, *const P::AtomicU32);
}

/// The lock without its data: what [`RwSem`](crate::RwSem) is made of.
///
/// 56 bytes; 24 with a queue that is [`Pooled`]. Use it through [`RwSem`](crate::RwSem), through lock_api's traits, or
/// [without guards](crate::unguarded).
#[repr(C)]
pub struct RawRwSem<Pol = TimeFair, P: Platform = Os, L: QueueStorage<P> = Inline<P>> {
    pub(super) word: LockWord<Pol, P>,
    pub(super) storage: L,
    pub(super) events: P::Counters,
    pub(super) identity: IdentityOf<P>,
}

/// How an attempt to enter or queue goes on, see [`RawRwSem::enter_or_queue`].
pub(super) enum Step {
    /// Enters, if the word can be changed to this.
    Enter(u64),
    /// Queues, if the word can be changed to this.
    Queue(u64),
}

impl<Pol: Policy, P: Platform, L: QueueStorage<P>> RawRwSem<Pol, P, L> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    pub const NEW: Self = RawRwSem {
        word: LockWord::FREE,
        storage: L::NEW,
        events: P::Counters::NEW,
        identity: IdentityOf::<P>::NEW,
    };

    pub(crate) fn storage(&self) -> &L {
        &self.storage
    }

    /// What it has counted: see [`events`](super::events).
    pub fn events(&self) -> Snapshot {
        Snapshot::of(&self.events)
    }

    #[inline(always)]
    pub(crate) fn count(&self, event: Event) {
        self.events.count(event);
    }

    // ---- enter or queue ----

    /// Enters if the policy admits a newcomer right now.
    pub(super) fn try_enter(&self, kind: Kind) -> bool {
        let entered = self.word.update(Acquire, |word| <Pol as Family<P, L>>::admit(word, kind));
        match entered {
            Ok(_) => self.note_owner(kind),
            Err(_) => Pol::refused(self),
        }
        entered.is_ok()
    }

    /// Calls `with_queue` with this lock's queue, locked, until it returns how the attempt ended; it returns
    /// `None` if the lock's queue is another one by now. While the pool has none left, gives way and asks
    /// `without_queue` instead. `None` if the deadline passed meanwhile.
    ///
    /// The family's `with_queue` goes on in [`queue_as`](Self::queue_as), which asks the family's `step` what
    /// becomes of each word that it sees.
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

    /// Puts `node` on `queue`, or enters, as `step` says of each word seen. The queue, still locked, if it has queued. None if
    /// the lock has another queue.
    pub(super) fn queue_as<'a>(
        &self,
        queue: OwnQueue<'a, P, L>,
        node: &Node<P>,
        at_front: bool,
        mut step: impl FnMut(&OwnQueue<'a, P, L>, u64) -> Step,
    ) -> Option<Option<OwnQueue<'a, P, L>>> {
        let mut word = self.word.load(Relaxed);
        loop {
            if !queue.is_for(word) {
                return None;
            }
            let (next, enters) = match step(&queue, word) {
                Step::Enter(next) => (next, true),
                Step::Queue(next) => (next, false),
            };
            // Acquire, for those that enter, pairs with the Release of everybody who has left.
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) if enters => return Some(None),
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
        Some(Some(queue))
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

    /// After a release that left `word` behind: takes those off the queue that may hold the lock now, and
    /// wakes them. If the queue is not this lock's any more, all those have been served that waited then.
    pub(super) fn serve_after_release(&self, word: u64) {
        if let Some(queue) = self.own_queue(word) {
            let woken = Pol::serve(self, &queue);
            drop(queue);
            woken.wake();
        }
    }

    /// Grants `node`, which wants more than to read, if the holders permit. `reserved` is no more.
    pub(super) fn grant_one(
        &self,
        queue: &LockedQueue<'_, P>,
        node: &Node<P>,
        reserved: u64,
    ) -> WakeList<P> {
        let granted = |word| {
            let next = match node.kind {
                Kind::Write if is_free(word) => word + WRITER,
                Kind::Upgradable if admits_upgradable(word) => plus_reader(word) | UPGRADABLE,
                Kind::Upgrade if readers(word) == 1 => {
                    word - READER - UPGRADABLE - UPGRADING + WRITER
                }
                _ => return None,
            };
            Some(next & !reserved)
        };
        // Acquire pairs with the Release of those that left; `WakeList::grant` passes it on.
        if self.word.update(Acquire, granted).is_err() {
            return WakeList::none();
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
            self.storage.owner().note();
        }
    }

    /// False only if the writer surely does not run.
    pub(crate) fn owner_may_run(&self) -> bool {
        self.storage.owner().may_run()
    }
}

const _: () = assert!(size_of::<RawRwSem<TimeFair>>() <= 56 + size_of::<IdentityOf<Os>>());
const _: () =
    assert!(size_of::<RawRwSem<TimeFair, Os, Pooled<Os>>>() <= 24 + size_of::<IdentityOf<Os>>());

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use lock_api::RawRwLock;

    use super::*;
    use crate::platform::ago;
    use crate::policy::{HANDOFF_AFTER_NS, ImmediateHandoff, Linux5_11, PhaseFair, TimeFair};

    fn refuses_one_reader_too_many<Pol: Policy>() {
        let lock = RawRwSem::<Pol, Os>::NEW;
        lock.word.store(READER_LIMIT - 2, Relaxed);
        let _last = lock.try_lock_shared().expect("room for one more");
        for _ in 0..2 {
            let refused = catch_unwind(AssertUnwindSafe(|| lock.read(None)));
            let message = refused.expect_err("the count is full");
            // As the compiler happens to make it.
            let copied = message.downcast_ref::<&str>().map(|it| it.to_string());
            let message = copied.or_else(|| message.downcast_ref::<String>().cloned());
            let message = message.expect("a message");
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

    /// The queue is served when a newcomer has just taken the lock past its head, which has waited for long.
    fn reserves_a_lock_taken_past_the_head<Pol: Policy>(kind: Kind, owner: u64) {
        let lock = RawRwSem::<Pol, Os>::NEW;
        let head = Node::new(kind, ago(2 * HANDOFF_AFTER_NS));
        let queue = lock.queue_to_wait_in().expect("it is inline");
        queue.note_named();
        queue.push(&head);
        lock.word.store(queue.bits() | WRITER, Relaxed);
        assert!(Pol::serve(&lock, &queue).is_empty(), "another writer has it");
        assert_eq!(lock.word.load(Relaxed), queue.bits() | WRITER | CLOSED, "{}", Pol::NAME);
        lock.word.fetch_sub(WRITER, Relaxed);
        let woken = Pol::serve(&lock, &queue);
        drop(queue);
        woken.wake();
        assert_eq!(lock.word.load(Relaxed), owner, "handed over");
    }

    #[test]
    fn a_lock_that_was_taken_just_before_its_immediate_handoff_is_reserved_then() {
        reserves_a_lock_taken_past_the_head::<ImmediateHandoff>(Kind::Write, WRITER);
        let upgradable = READER | UPGRADABLE;
        reserves_a_lock_taken_past_the_head::<ImmediateHandoff>(Kind::Upgradable, upgradable);
    }

    #[test]
    fn a_waiter_for_upgradable_access_has_the_lock_reserved_when_it_has_waited_for_long() {
        let upgradable = READER | UPGRADABLE;
        reserves_a_lock_taken_past_the_head::<Linux5_11>(Kind::Upgradable, upgradable);
    }
}
