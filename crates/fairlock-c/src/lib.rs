//! Fairlock for C and C++: what `include/fairlock.h` declares. Each `fairlock_…` function has its page
//! there; in Rust use the crate `fairlock`.
//!
//! * `code.rs`: errors as numbers, and the boundary that no panic crosses.
//! * `copies.rs`: several copies of this library in one process, of which the first serves all.
//! * `watched.rs`: what is announced to checkers of races, if one watches.
//! * `clock.rs`: deadlines on C's clocks.
//! * `owned.rs`: a lock that knows its writer. `rwlock.rs` and `mutex.rs` are it, by address.
//! * `cond.rs`: the condition variable.
//! * `process_shared.rs`: the lock for memory that processes share.
//! * `range.rs`: the range lock, and the pool that its memory comes from.
//! * `ready.rs`: the poll and its sources.
//!
//! Invariants
//! 1. Locks that lie in C's memory are free when all their bytes are 0, and own nothing: memory that
//!    holds a free one may be given back, copied over or zeroed.
//! 2. After the atomic operation that releases a lock, its unlock touches none of it, or only memory
//!    that is a lock of the same kind for ever (`range.rs`).
//! 3. Every function begins with `served_by_first!` (`copies.rs`).
//! 4. What a C caller can get wrong is an error before anything changes, as far as the lock knows.
//!
//! The header is made from these files; `tests/c_programs.rs` says how to renew it.

// C's names, and its rules for pointers: each function's page says what it takes, the header's head
// what holds for all of them.
#![allow(non_camel_case_types, clippy::missing_safety_doc)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "fairlock-c is for Linux only: its copies find each other by notes in ELF files, and its polls have descriptors. \
     The locks themselves, fairlock in Rust, build elsewhere, too"
);

mod clock;
mod code;
mod cond;
mod copies;
mod mutex;
mod owned;
mod process_shared;
mod range;
mod ready;
mod rwlock;
mod watched;

pub use cond::*;
pub use mutex::*;
pub use process_shared::*;
pub use range::*;
pub use ready::*;
pub use rwlock::*;
pub use watched::fairlock_lock_ends;
