//! Test-and-set, and test-and-test-and-set: swap "held" into the word until "free" comes out.
//!
//! * Test-and-set swaps at every attempt, and so writes the word, in vain or not. All waiters keep pulling the
//!   lock's line to themselves, from each other and from the holder, whose unlock has to wait for it as well:
//!   the worst case that other spin locks are measured against.
//! * Test-and-test-and-set looks first, and swaps only where the word says "free". Waiters share the lock's
//!   line while it is held, so they cost no traffic until it is released. Then all of them miss and swap at
//!   once, one wins, and the others have invalidated each other's copies for nothing: the work per handover
//!   grows with the number of waiters.
//!
//! After Rudolph and Segall, "Dynamic decentralized cache schemes for MIMD parallel processors"
//! (ISCA 1984), without the backoff that Anderson adds (IEEE TPDS 1990). Waiters burn their CPUs, and stall
//! while the holder is preempted: not for production.
//!
//! Invariant
//! 1. Whoever changes the word from `FREE` to `HELD` is the only holder until it stores `FREE`.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, Os, Platform};

/// A test-and-set spin lock, for comparison only.
///
/// # Guarantees
/// Mutual exclusion, and that somebody gets a free lock. There is no order: a thread may wait
/// for ever while others take the lock again and again.
///
/// # Example
/// ```
/// use fairlock_reference::spin::TasLock;
///
/// static COUNT: TasLock<u32> = TasLock::new(0);
///
/// *COUNT.lock() += 1;
/// let count = COUNT.lock();
/// assert!(COUNT.try_lock().is_none());
/// assert_eq!(*count, 1);
/// ```
pub type TasLock<T> = fairlock::lock_api::Mutex<RawTas<Os>, T>;

/// A test-and-test-and-set spin lock, for comparison only. It guarantees what [`TasLock`] does.
///
/// # Example
/// ```
/// use fairlock_reference::spin::TtasLock;
///
/// static COUNT: TtasLock<u32> = TtasLock::new(0);
///
/// *COUNT.lock() += 1;
/// let count = COUNT.lock();
/// assert!(COUNT.try_lock().is_none());
/// assert_eq!(*count, 1);
/// ```
pub type TtasLock<T> = fairlock::lock_api::Mutex<RawTtas<Os>, T>;

/// What [`TasLock`] is made of. Use it through `lock_api`.
pub type RawTas<P = Os> = RawTestAndSet<P, false>;

/// What [`TtasLock`] is made of. Use it through `lock_api`.
pub type RawTtas<P = Os> = RawTestAndSet<P, true>;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// Either lock without its data.
pub struct RawTestAndSet<P: Platform, const LOOKS_FIRST: bool> {
    /// `FREE` or `HELD`.
    word: P::AtomicU32,
}

impl<P: Platform, const LOOKS_FIRST: bool> RawTestAndSet<P, LOOKS_FIRST> {
    #[inline]
    fn take(&self) -> bool {
        // Acquire pairs with the Release in `unlock`; the look before it decides nothing.
        (!LOOKS_FIRST || self.word.load(Relaxed) == FREE) && self.word.swap(HELD, Acquire) == FREE
    }
}

// SAFETY: invariant 1; taking is Acquire, unlocking Release. Guards are inert, and nothing refers
// to the lock but borrows, so it may be moved or dropped while held.
unsafe impl<P: Platform, const LOOKS_FIRST: bool> fairlock::lock_api::RawMutex
    for RawTestAndSet<P, LOOKS_FIRST>
{
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = RawTestAndSet { word: P::AtomicU32::ZERO };
    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        while !self.take() {
            P::relax(None);
        }
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        self.take().then(GuardNoSend::new)
    }
    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        // Release pairs with the Acquire in `take`.
        self.word.store(FREE, Release);
    }
    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) == HELD
    }
}
