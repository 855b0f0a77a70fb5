//! Ready lists that [`ReadyList`](fairlock::ready::ReadyList) is measured against: those of Linux's epoll, on
//! which a preempted producer holds up everybody. They take fairlock's poll and sources:
//! `RawPoll::<RwLockList>::new()`.
//!
//! * [`RwLockList`]: until July 2025, producers share a reader-writer lock.
//! * [`SpinList`]: since then, everybody takes one lock.

mod rwlock_list;
mod spin_list;

pub use rwlock_list::RwLockList;
pub use spin_list::SpinList;
