//! The locks of the crate parking_lot, form and all: what many Rust programs use today, also on a simulated machine.
//!
//! | file | is | in the crates |
//! |---|---|---|
//! | [`rwlock`] | `parking_lot::RwLock` | `parking_lot`, `src/raw_rwlock.rs` |
//! | [`mutex`] | `parking_lot::Mutex` | `parking_lot`, `src/raw_mutex.rs` |
//! | [`condvar`] | `parking_lot::Condvar` | `parking_lot`, `src/raw_condvar.rs` |
//! | `lot` | the queues of threads that sleep | `parking_lot_core`, `src/parking_lot.rs` and `src/word_lock.rs` |
//!
//! They follow the algorithms of the originals, with the same words and the same operations on them, in both of the
//! [versions](Version) that programs have. On real threads, tests hold their answers and the order in which they admit
//! threads against the crates' own.
//!
//! # What differs from the originals, and why
//! * The originals have one table of queues for all locks of a program: a lock finds its queue by a hash of its address. Here
//!   the queues are in the lock, each on a cache line of its own, as in the table. So two locks never share a queue, which
//!   is rare in the originals, and nobody looks up the table, which takes loads of lines that hardly ever change. But the
//!   locks are larger: the originals take 8 bytes and 1.
//! * No timeouts, no upgradable reads, no reads that pass waiting writers (`read_recursive`), no `downgrade`, no `bump`, no
//!   `unlock_fair` and no detection of deadlocks. So the bit for upgradable readers is missing.
//!   Each of these adds a branch to slow paths at most.
//! * Version 0.12 tries hardware transactions on x86 if its feature `hardware-lock-elision` is on, which it is not by
//!   default. This does not.
//!
//! **Not for production**: wherever these run, the crate does, too.

use core::marker::PhantomData;

use fairlock::platform::Platform;

pub mod condvar;
mod lot;
pub mod mutex;
pub mod rwlock;

/// What differs between the versions of parking_lot, for its locks: whether a release ever hands its lock over, and how
/// long a spin lasts.
///
/// | | [`V0_12`] | [`V0_13`] |
/// |---|---|---|
/// | a release with sleepers | keeps the lock until it has the queue | makes the lock free, then looks for whom to wake |
/// | a newcomer passes those who were woken | for 0.5 ms on average, up to 1 ms | for ever |
/// | turns of the first three rounds of a spin | 2, 4, 8 | 1, 2, 4 |
pub trait Version: Send + Sync + 'static {
    /// Whether a release hands the lock over to those that it wakes, if the queue's last handover was long enough ago.
    const HANDS_OVER: bool;
    /// Turns of the first round of a spin, at least one. The next rounds double it.
    const FIRST_ROUND: u32;
    /// Rounds of a spin, at least one. Those after the third yield. A checker, to which a round is as good as ten, may
    /// have fewer.
    const ROUNDS: u32 = 10;
}

/// parking_lot 0.12, which is in most programs: eventually fair.
#[derive(Debug)]
pub struct V0_12;

/// parking_lot 0.13: not fair.
#[derive(Debug)]
pub struct V0_13;

impl Version for V0_12 {
    const HANDS_OVER: bool = true;
    const FIRST_ROUND: u32 = 2;
}

impl Version for V0_13 {
    const HANDS_OVER: bool = false;
    const FIRST_ROUND: u32 = 1;
}

/// A spin of a few rounds (`SpinWait`). Between two of them its owner looks at what it waits for.
struct Spin<V, P> {
    rounds: u32,
    of: PhantomData<fn() -> (V, P)>,
}

impl<V: Version, P: Platform> Spin<V, P> {
    /// Rounds without a yield.
    const BUSY: u32 = 3;

    fn new() -> Self {
        Spin { rounds: 0, of: PhantomData }
    }

    /// Passes the next round; false if there is none left, so that the thread should sleep.
    fn goes_on(&mut self) -> bool {
        if self.rounds >= V::ROUNDS {
            return false;
        }
        self.rounds += 1;
        if self.rounds <= Self::BUSY {
            self.pass();
        } else {
            P::give_way(self.rounds - Self::BUSY - 1);
        }
        true
    }

    /// Passes the next round without a yield, or the last one again: between two attempts to change a word that others
    /// change, too.
    fn backs_off(&mut self) {
        self.rounds = V::ROUNDS.min(self.rounds + 1);
        self.pass();
    }

    /// The turns of this round, all of them: nobody looks at anything meanwhile.
    fn pass(&self) {
        let mut turns = V::FIRST_ROUND << (self.rounds - 1);
        while turns > 0 {
            turns -= P::relax_turns(turns).min(turns);
        }
    }
}
