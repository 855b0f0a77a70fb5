//! Locks that stay fair *and* fast under contention.
//!
//! * [`RwLock`]: the lock to pick. Readers announce themselves in a cache line of their own thread, so
//!   that a read costs about a nanosecond on any number of CPUs while nobody writes; writers are
//!   never starved.
//! * [`RwSem`]: a reader-writer semaphore that shares its time evenly between readers and
//!   writers ([`policy::TimeFair`]), with every policy of the Linux rwsem's history beside it.
//! * [`RangeLock`]: shared and exclusive ranges of positions; ranges that are disjoint, and those that
//!   are shared, have nothing in common to write. [`RangeVec`] and [`RangeSlice`] hand out `&mut [T]`
//!   of disjoint parts.
//! * [`Mutex`]: exclusive access only, in 24 bytes: spins while the owner runs, sleeps in the
//!   order of arrival, and hands itself to a thread that was passed for 4 ms.
//! * [`ready::Poll`]: waits for the first of many sources, as epoll does for descriptors; a
//!   producer that is preempted holds up nobody.
//! * [`ProcessSharedRwLock`](process_shared::ProcessSharedRwLock): a fair reader-writer lock for memory
//!   that several processes map, in 24 bytes without a pointer.
//!
//! Locks are generic over a [`platform`]; users get real threads and never name it.

#[cfg(not(target_os = "linux"))]
compile_error!("fairlock sleeps on Linux's futex: it builds for Linux targets only");

mod barrier;
#[cfg(test)]
mod child_process;
mod chunks;
pub mod events;
mod guarded;
#[doc(hidden)]
pub mod inside;
pub mod mutex;
pub mod platform;
pub mod policy;
pub mod process;
pub mod process_shared;
pub mod range;
pub mod ready;
pub mod rwlock;
pub mod rwsem;
pub mod slots;
mod spin_budget;
mod spin_queue;
pub mod unguarded;
mod wait_queue;

pub use lock_api;
pub use mutex::{Mutex, MutexGuard};
pub use range::{RangeLock, RangeReadGuard, RangeSlice, RangeVec, RangeWriteGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
pub use rwsem::{PolicyRwSem, RwSem, RwSemReadGuard, RwSemUpgradableReadGuard, RwSemWriteGuard};
