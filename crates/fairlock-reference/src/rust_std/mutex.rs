//! The standard library's mutex: one word; a thread that waits spins for a moment, then sleeps.
//!
//! # Guarantees
//! Mutual exclusion, and that somebody gets a free mutex. There is no order: a thread that is woken competes with those
//! that arrive, so it may wait for ever.
//!
//! # How it works
//! | word | the mutex is |
//! |---|---|
//! | `FREE` | free |
//! | `TAKEN` | taken |
//! | `CONTENDED` | taken, and somebody may sleep |
//!
//! A thread that finds the mutex `TAKEN` spins until it is anything else, for 100 turns at most. If it is free then, the
//! thread takes it. Otherwise the thread makes it `CONTENDED` and sleeps; when it is awake, it spins again. A release makes
//! it `FREE`, and wakes one thread if it was `CONTENDED`. Nobody spins while it is `CONTENDED`: others wait for longer.
//!
//! # Why it is right
//! 1. Whoever changes the word from `FREE` has the mutex until it makes it `FREE`.
//! 2. A thread sleeps only while the word is `CONTENDED`, and whoever has slept leaves it so. So each release wakes one
//!    of the sleepers until none is left.
//!
//! # What it costs
//! Without contention two locked instructions, a compare-exchange and an exchange.
//!
//! # Source
//! `library/std/src/sys/sync/mutex/futex.rs` of Rust 1.95, by Mara Bos and others.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, Os, Platform};

use super::spin_until;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const CONTENDED: u32 = 2;

/// The standard library's mutex, for comparison only. See the [module](self) for what it guarantees.
///
/// # Example
/// ```
/// use fairlock_reference::rust_std::mutex::StdMutex;
///
/// static COUNT: StdMutex<u32> = StdMutex::new(0);
///
/// *COUNT.lock() += 1;
/// let count = COUNT.lock();
/// assert!(COUNT.try_lock().is_none());
/// assert_eq!(*count, 1);
/// ```
pub type StdMutex<T> = fairlock::lock_api::Mutex<RawStdMutex<Os>, T>;

/// The mutex without its data: what [`StdMutex`] is made of. Use it through `lock_api`.
pub struct RawStdMutex<P: Platform = Os> {
    word: P::AtomicU32,
}

impl<P: Platform> RawStdMutex<P> {
    #[inline]
    fn take(&self) -> bool {
        // Acquire pairs with the Release in `unlock`.
        self.word.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok()
    }

    fn spin(&self) -> u32 {
        spin_until::<P>(|| self.word.load(Relaxed), |word| word != TAKEN)
    }

    #[cold]
    fn wait(&self) {
        let mut word = self.spin();
        if word == FREE {
            // Acquire as in `take`.
            match self.word.compare_exchange(FREE, TAKEN, Acquire, Relaxed) {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
        // Who has waited cannot know whether others do.
        while word == CONTENDED || self.word.swap(CONTENDED, Acquire) != FREE {
            P::park(&self.word, CONTENDED, None);
            word = self.spin();
        }
    }
}

// SAFETY: invariant 1; taking is Acquire, unlocking Release. Guards are inert, and nothing refers to the lock but borrows,
// so it may be moved or dropped while held.
unsafe impl<P: Platform> fairlock::lock_api::RawMutex for RawStdMutex<P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = RawStdMutex { word: P::AtomicU32::ZERO };
    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        if !self.take() {
            self.wait();
        }
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        self.take().then(GuardNoSend::new)
    }
    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        // Release pairs with the Acquire in `take` and `wait`.
        if self.word.swap(FREE, Release) == CONTENDED {
            P::unpark(&raw const self.word);
        }
    }
    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != FREE
    }
}
