//! The reader-writer semaphore of the Linux kernel in user space, with its policies, and
//! Fairlock's own policies over the same machinery.
//!
//! One 64-bit word says who holds the lock and how its queue is served. Uncontended acquisitions and
//! releases are one atomic operation on that word. Everybody else waits in one queue of nodes on the
//! waiters' stacks, which allocates nothing. Only where the accesses of many threads collide do some of them stand in a
//! line (`../line.rs`) first, for which a thread needs a record. The queue is inline, in the lock, or pooled: acquired while
//! somebody waits. Pooled queues come in blocks from the platform, never from the program's allocator.
//!
//! From the ground up; each file imports only those before it:
//!
//! | file | what |
//! |---|---|
//! | `word.rs` | the lock word: layout, a name for every condition on it, the table of combinations that never occur |
//! | `wait_queue.rs` | the queue: nodes, two rings, and the list of those to be woken |
//! | `account.rs` | what the two sides owe each other |
//! | `phase_clock.rs` | when the running phase ends |
//! | `free_list.rs`, `queue_pool.rs`, `queue_storage.rs` | where the queue is: inline or pooled |
//! | `core.rs` | what all policies share: how a thread queues, sleeps, is served, gives up and wakes |
//! | `compete.rs` | the Linux family: a woken writer competes with newcomers for the lock |
//! | `shares.rs` | [`TimeFair`](crate::policy::TimeFair) and [`PhaseFair`](crate::policy::PhaseFair): the sides divide the lock's time |
//! | `mod.rs` | the face: each policy with its family |
//! | `fast_path.rs`, `conversions.rs` | acquisitions and releases; fair unlock, downgrade, upgrade |
//! | `guarded.rs`, `api.rs`, `unguarded.rs` | the lock with guards, and without |
//!
//! # Recursion
//! A thread that holds the lock shared and asks for it shared again deadlocks if a writer queued
//! in between: the writer waits for the first hold, the second for the writer. One that asks for it exclusively
//! waits for itself. Debug builds panic at the second blocking acquisition, for which they name the caller's line
//! and what to do. `try_read` and `try_write` are safe.
//!
//! # Panics while holding
//! Guards release in their destructors, so a panic releases; there is no poisoning.

mod account;
mod api;
mod compete;
mod conversions;
mod core;
mod fast_path;
mod free_list;
mod guarded;
mod owner;
mod phase_clock;
mod queue_pool;
mod queue_storage;
mod shares;
mod unguarded;
mod wait_queue;
mod word;

pub use self::core::RawRwSem;
pub use api::{
    ArcRwSemReadGuard, ArcRwSemUpgradableReadGuard, ArcRwSemWriteGuard, MappedRwSemReadGuard,
    MappedRwSemWriteGuard, RwSem, RwSemReadGuard, RwSemUpgradableReadGuard, RwSemWriteGuard,
    events,
};
pub use queue_pool::{HasQueuePool, QueuePool};
pub(crate) use queue_storage::ReaderBias;
pub use queue_storage::{Inline, Pooled, QueueStorage, Unbiased};

use self::core::Family;
use crate::platform::{Platform, Tunable};
use crate::policy::{Discipline, Policy};
use queue_storage::OwnQueue;
use wait_queue::{Kind, Node, WakeList};

/// The constants of this folder that were chosen or found by trial.
pub(crate) const TUNABLES: &[Tunable] = shares::TUNABLES;

/// Each policy by its family: all that this file decides.
impl<Pol: Policy, P: Platform, L: QueueStorage<P>> Family<P, L> for Pol {
    fn admit(word: u64, kind: Kind) -> Option<u64> {
        match Pol::DISCIPLINE {
            Discipline::Compete(knobs) => compete::admit(knobs, word, kind),
            Discipline::Shares(_) => shares::admit_at_once(word, kind),
        }
    }

    fn acquire(lock: &RawRwSem<Pol, P, L>, kind: Kind, deadline: Option<u64>) -> bool {
        let acquired = match Pol::DISCIPLINE {
            Discipline::Compete(knobs) => lock.compete(knobs, kind, deadline),
            Discipline::Shares(_) => lock.acquire_share(kind, deadline),
        };
        if acquired {
            lock.note_owner(kind);
        }
        acquired
    }

    fn shut(word: u64) -> u64 {
        match Pol::DISCIPLINE {
            Discipline::Compete(_) => word | word::CLOSED,
            Discipline::Shares(_) => shares::shut_to_all(word),
        }
    }

    fn refused(lock: &RawRwSem<Pol, P, L>) {
        if let Discipline::Shares(_) = Pol::DISCIPLINE {
            lock.end_overdue_share();
        }
    }

    fn released(lock: &RawRwSem<Pol, P, L>, word: u64) {
        match Pol::DISCIPLINE {
            Discipline::Compete(_) => lock.serve_after_release(word),
            Discipline::Shares(_) => lock.released_share(word),
        }
    }

    fn serve(lock: &RawRwSem<Pol, P, L>, queue: &OwnQueue<'_, P, L>) -> WakeList<P> {
        match Pol::DISCIPLINE {
            Discipline::Compete(knobs) => lock.serve_competitors(knobs, queue),
            Discipline::Shares(_) => lock.serve_shares(queue),
        }
    }

    fn serve_first(lock: &RawRwSem<Pol, P, L>, queue: &OwnQueue<'_, P, L>) -> WakeList<P> {
        match Pol::DISCIPLINE {
            Discipline::Compete(knobs) => lock.hand_to_head(knobs, queue),
            Discipline::Shares(_) => lock.serve_shares(queue),
        }
    }

    fn serve_beside_reader(lock: &RawRwSem<Pol, P, L>, queue: &OwnQueue<'_, P, L>) -> WakeList<P> {
        match Pol::DISCIPLINE {
            Discipline::Compete(knobs) => lock.serve_competitors(knobs, queue),
            Discipline::Shares(_) if !queue.may_read_be_joined() => WakeList::none(),
            Discipline::Shares(_) => lock.begin_reading(queue),
        }
    }

    fn gave_up(
        lock: &RawRwSem<Pol, P, L>,
        queue: &OwnQueue<'_, P, L>,
        node: &Node<P>,
    ) -> (u64, *const P::AtomicU32) {
        match Pol::DISCIPLINE {
            Discipline::Compete(_) => (compete::GAVE_UP, ::core::ptr::null()),
            Discipline::Shares(_) => lock.gave_up_share(queue, node),
        }
    }
}
