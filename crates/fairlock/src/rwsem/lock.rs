//! The lock, and everything that is one operation on its word.
//!
//! ```text
//!   here            slow_path.rs                                              serve.rs
//!
//!   read, write ──► acquire_slow ──► enter? ──► wait ─► spin? ─► queue_up ─► sleep ◄─┐
//!   upgrade                                      ▲                             │     │ granted, or
//!                                                └──────── to try again ───────┘     │ to try again
//!   unlock ────────────────────────────────────────────────► released ─► serve ──────┘
//! ```
//!
//! Invariants
//! 1. At most one writer holds the lock, and then no reader does.
//! 2. The word names a queue exactly while that queue is not empty, seen under the queue's lock. Of
//!    `QUEUE_FLAGS`, only one side's `…_OUT` and `WATCHED` may be set otherwise.
//! 3. While the lock is free and a thread waits, some thread is about to serve the queue: the one
//!    that released the lock last, a writer that was woken, or the waiter that keeps time.
//! 4. A shared count that is full is an error before it changes.
//! 5. After the atomic operation that releases the lock, an unlock touches nothing of it unless it
//!    has locked the queue that the word named and found that it still is this lock's: then a
//!    thread waits, and borrows the lock.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::account::Account;
use super::admission::admit_at_once;
use super::own_queue::OwnQueue;
use super::owner::Owner;
use super::queue_pool::{HasQueuePool, PooledQueue};
use super::reader_bias::{ReaderBias, Unbiased};
use super::wait_queue::Kind;
use super::word::*;
use crate::events::{CountEvents, Event, Snapshot};
use crate::held::Identity;
use crate::hold::IdentityOf;
use crate::line::Line;
use crate::platform::{Os, Platform};
use crate::policy::{Policy, TimeFair};
use crate::raw::Wait;

/// The lock without its data: what [`RwSem`](crate::RwSem) is made of.
///
/// 24 bytes. Use it through [`RwSem`](crate::RwSem), through lock_api's traits, or [without
/// guards](crate::unguarded).
///
/// While a thread waits, the lock has a queue from the pool of its process. A lock without a waiter
/// may be freed as soon as its last user has released it, though others may still be inside an
/// unlock that released it before: they leave it alone.
///
/// The pool has 8191 queues at most, of 64 bytes each; it grows with the number of threads that
/// wait at the same time and does not shrink. Threads that have waited may keep half of them, so
/// that threads can wait for 4095 locks at once in any case. Those that would have to wait for one
/// more when no queue is left, or have no memory for one, give way and try again until they have
/// the lock or their time is over. Meanwhile the policy does not know of them, so its guarantees
/// are not for them.
#[repr(C)]
pub struct RawRwSem<Pol = TimeFair, P: Platform = Os, B: ReaderBias = Unbiased> {
    pub(super) word: LockWord<P>,
    pub(super) owner: Owner<P>,
    /// What the two sides owe each other.
    pub(super) account: Account<P>,
    // Up to here locks of all kinds on one platform are alike: `own_queue.rs`, invariant 5.
    pub(super) events: P::Counters,
    /// Of the lock that is built on this one: how its readers enter.
    pub(super) bias: B,
    /// Of that lock, too: what it remembers of them. Here so that no padding is wasted.
    history: B::History,
    pub(super) line: Line<P>,
    pub(super) identity: IdentityOf<P>,
    policy: PhantomData<fn() -> Pol>,
}

impl<Pol: Policy, P: HasQueuePool, B: ReaderBias> RawRwSem<Pol, P, B> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    pub const NEW: Self = RawRwSem {
        word: LockWord::FREE,
        owner: Owner::NEW,
        account: Account::NEW,
        events: P::Counters::NEW,
        bias: B::NEW,
        history: B::NO_HISTORY,
        line: Line::NEW,
        identity: IdentityOf::<P>::NEW,
        policy: PhantomData,
    };

    #[inline(always)]
    pub(crate) fn bias(&self) -> &B {
        &self.bias
    }

    #[inline(always)]
    pub(crate) fn history(&self) -> &B::History {
        &self.history
    }

    /// What it has counted: see [`events`](super::events).
    pub fn events(&self) -> Snapshot {
        Snapshot::of(&self.events)
    }

    #[inline(always)]
    pub(crate) fn count(&self, event: Event) {
        self.events.count(event);
    }

    // ---- how to acquire it ----

    /// For reading, if no flag is set and no other thread comes in between.
    #[inline]
    pub(crate) fn try_read_once(&self) -> bool {
        let word = self.word.load(Relaxed);
        // Acquire pairs with the Release of `unlock_write`.
        word < READER_LIMIT - 1
            && self.word.compare_exchange_weak(word, word + READER, Acquire, Relaxed).is_ok()
    }

    /// For writing, if it is free and no thread waits.
    #[inline]
    pub(crate) fn write_at_once(&self) -> bool {
        // Acquire pairs with the Release of every unlock.
        let taken = self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok();
        if taken {
            self.owner.note();
        }
        taken
    }

    /// After [`write_at_once`](Self::write_at_once) has failed.
    pub(crate) fn write_slow(&self, wait: Wait) -> bool {
        self.acquire(Kind::Write, wait)
    }

    /// When one operation is not enough. A wait for ever has nothing to report, so the fast path
    /// does without a stack frame.
    #[inline]
    pub(super) fn acquire(&self, kind: Kind, wait: Wait) -> bool {
        match wait {
            Wait::Not => self.try_enter(kind),
            Wait::ForEver => {
                self.acquire_slow_without_deadline(kind);
                true
            }
            Wait::Until(deadline) => self.acquire_slow(kind, Some(deadline)),
        }
    }

    /// Enters if the policy admits a newcomer right now.
    pub(super) fn try_enter(&self, kind: Kind) -> bool {
        let entered = self.word.update(Acquire, |word| admit_at_once(word, kind));
        match entered {
            Ok(_) => self.note_owner(kind),
            Err(_) => self.end_overdue_phase(),
        }
        entered.is_ok()
    }

    #[cold]
    fn acquire_slow_without_deadline(&self, kind: Kind) {
        let acquired = self.acquire_slow(kind, None);
        assert!(acquired, "without a deadline a wait ends with the lock");
    }

    // ---- queries ----

    /// For readers that have another way to enter. Acquire: an answer of yes pairs with the Release
    /// of the last writer's unlock.
    #[inline(always)]
    pub(crate) fn is_open_to_readers(&self) -> bool {
        is_open_to_readers(self.word.load(Acquire))
    }

    /// A thread waits for this lock.
    pub(crate) fn has_waiters(&self) -> bool {
        has_waiters(self.word.load(Relaxed))
    }

    // ---- the queue ----

    /// The place of the queue that a word names. Touches nothing of the lock.
    pub(super) fn place(word: u64) -> &'static PooledQueue<P> {
        P::queue_pool().named(queue_number(word))
    }

    /// The queue that `word` names, locked, if it still is this lock's. Until that is known this
    /// touches nothing of the lock.
    pub(super) fn own_queue(&self, word: u64) -> Option<OwnQueue<'_, P>> {
        debug_assert!(has_waiters(word));
        self.own_queue_in(Self::place(word))
    }

    /// The same if no thread has the queue's lock.
    pub(super) fn try_own_queue(&self, word: u64) -> Option<OwnQueue<'_, P>> {
        debug_assert!(has_waiters(word));
        OwnQueue::try_lock(self.word.atomic(), Self::place(word))
    }

    /// The queue in this place, locked, if it still is this lock's.
    pub(super) fn own_queue_in(&self, place: &'static PooledQueue<P>) -> Option<OwnQueue<'_, P>> {
        OwnQueue::lock(self.word.atomic(), place)
    }

    /// The queue that waiters of this lock are in, or one that is about to be, locked; none if the
    /// pool has none left.
    pub(super) fn queue_to_wait_in(&self) -> Option<OwnQueue<'_, P>> {
        loop {
            let word = self.word.load(Relaxed);
            if !has_waiters(word) {
                // SAFETY: no caller forgets what this returns.
                return unsafe { OwnQueue::acquire(self.word.atomic()) };
            }
            if let Some(queue) = self.own_queue(word) {
                return Some(queue);
            }
        }
    }

    // ---- the owner ----

    pub(super) fn note_owner(&self, kind: Kind) {
        if matches!(kind, Kind::Write | Kind::Upgrade) {
            self.owner.note();
        }
    }

    /// False only if the writer surely does not run.
    pub(crate) fn owner_may_run(&self) -> bool {
        self.owner.may_run()
    }
}

const _: () = assert!(size_of::<RawRwSem<TimeFair>>() <= 24 + size_of::<IdentityOf<Os>>());

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use lock_api::RawRwLock;

    use super::*;
    use crate::policy::{PhaseFair, TimeFair};

    fn refuses_one_reader_too_many<Pol: Policy>() {
        let lock = RawRwSem::<Pol, Os>::NEW;
        lock.word.store(READER_LIMIT - 2, Relaxed);
        let _last = lock.try_lock_shared().expect("room for one more");
        for _ in 0..2 {
            let refused =
                catch_unwind(AssertUnwindSafe(|| lock.acquire(Kind::Read, Wait::ForEver)));
            let message = refused.expect_err("the count is full");
            // As the compiler happens to make it.
            let copied = message.downcast_ref::<&str>().map(|it| it.to_string());
            let message = copied.or_else(|| message.downcast_ref::<String>().cloned());
            let message = message.expect("a message");
            assert!(message.contains("readers hold this lock at once"), "{message}");
            assert_eq!(lock.word.load(Relaxed), READER_LIMIT - 1, "refused before it changes");
        }
        // The queue is not left locked either.
        assert!(lock.queue_to_wait_in().expect("there are queues").is_empty());
    }

    #[test]
    fn a_full_count_of_readers_is_an_error_before_it_changes() {
        refuses_one_reader_too_many::<TimeFair>();
        refuses_one_reader_too_many::<PhaseFair>();
    }
}
