//! Reader-writer locks that stay fair *and* fast under contention.
//!
//! * [`RwSem`]: a reader-writer semaphore that shares its time evenly between readers and
//!   writers ([`policy::TimeFair`]), with every policy of the Linux rwsem's history beside it.
//!
//! Locks are generic over a [`platform`]; users get real threads and never name it.

pub mod events;
pub mod platform;
pub mod policy;
pub mod rwsem;
mod spin_queue;
mod wait_queue;

pub use lock_api;
pub use rwsem::{PolicyRwSem, RwSem, RwSemReadGuard, RwSemUpgradableReadGuard, RwSemWriteGuard};
