//! Spin locks as textbooks have them: what other locks are measured against.
//!
//! | lock | order | idea |
//! |---|---|---|
//! | [`TasLock`] | none | swap until it was free |
//! | [`TtasLock`] | none | look until it is free, then swap |
//! | [`TicketLock`] | first come, first served | draw a number, wait until it is called |
//! | [`McsLock`] | first come, first served | a queue; each waits on a line of its own |
//! | [`ClhLock`] | first come, first served | a queue; each waits on its predecessor's line |
//! | [`QueuedRwLock`] | first come, first served | readers and writers, one of whom waits at the lock |
//!
//! **Not for production.** Who waits burns a CPU, and nobody notices that the holder, or in a
//! queue the next waiter, does not run: with more threads than CPUs everybody waits for the
//! scheduler, for milliseconds at a time. [`fairlock::Mutex`] and [`fairlock::RwSem`]
//! sleep instead. None of these is recursive, none is poisoned by a panic, and none has time-outs.

mod clh;
mod mcs;
mod queued_rwlock;
mod tas;
mod ticket;
mod ttas;

pub use clh::{ClhLock, ClhTurn, RawClh};
pub use mcs::{McsLock, RawMcs};
pub use queued_rwlock::{QueuedRwLock, RawQueuedRwLock};
pub use tas::{RawTas, TasLock};
pub use ticket::{RawTicket, TicketLock};
pub use ttas::{RawTtas, TtasLock};
