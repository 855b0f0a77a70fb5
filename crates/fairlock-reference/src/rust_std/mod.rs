//! The locks of Rust's standard library on Linux, form and all: what Rust programs use today, also on a simulated
//! machine.
//!
//! | file | is | in the library |
//! |---|---|---|
//! | [`rwlock`] | `std::sync::RwLock` since Rust 1.62 | `library/std/src/sys/sync/rwlock/futex.rs` |
//! | [`mutex`] | `std::sync::Mutex` since Rust 1.62 | `library/std/src/sys/sync/mutex/futex.rs` |
//! | [`condvar`] | `std::sync::Condvar` since Rust 1.62 | `library/std/src/sys/sync/condvar/futex.rs` |
//!
//! They follow the algorithms that the library's comments describe, with the same words and the same operations on them,
//! but without poisoning, which costs a load at each acquisition. On real threads, tests hold their answers and the order in
//! which they admit threads against the library's own.
//!
//! **Not for production**: wherever these run, the library has its own.

use fairlock::platform::Platform;

pub mod condvar;
pub mod mutex;
pub mod rwlock;

/// Turns of a spin before a thread sleeps: the library's figure, which it calls a roll of dice.
const TURNS: u32 = 100;

/// Spins until what `look` answers `is_done`, or for [`TURNS`]; the last answer.
#[inline]
fn spin_until<P: Platform>(look: impl Fn() -> u32, is_done: impl Fn(u32) -> bool) -> u32 {
    let mut turns = TURNS;
    loop {
        let state = look();
        if is_done(state) || turns == 0 {
            return state;
        }
        turns -= P::relax_turns(turns).min(turns);
    }
}
