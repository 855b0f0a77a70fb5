//! glibc's mutex: one word, and a release that wakes one thread if anybody may sleep.
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
//! A thread that finds the mutex taken makes it `CONTENDED` and sleeps, again and again, until the exchange finds it
//! `FREE`. Then it has it, as `CONTENDED`. A release makes it `FREE` and wakes one thread if it was `CONTENDED`.
//!
//! The [`Normal`] kind sleeps at once. The [`Adaptive`] one spins before that, for twice as many turns as lately were
//! enough, and 10 more, but at most 100.
//!
//! # Why it is right
//! 1. Whoever changes the word from `FREE` has the mutex until it makes it `FREE`.
//! 2. A thread sleeps only while the word is `CONTENDED`, and whoever has slept leaves it so. So each release wakes one
//!    of the sleepers until none is left.
//!
//! # What it costs
//! Without contention two locked instructions, a compare-exchange and an exchange, and four stores: glibc notes the owner,
//! and how many threads use the mutex. A program with one thread gets by without the locked instructions; this does not.
//!
//! # Source
//! `lll_lock` and `lll_unlock` as glibc's `sysdeps/nptl/lowlevellock.h` describes them, after "Mutex, Mutex3" of Ulrich
//! Drepper, "Futexes are tricky" (2011); `PTHREAD_MUTEX_ADAPTIVE_NP` and the tunable `glibc.pthread.mutex_spin_count`
//! of the GNU C Library's manual. Spinners look at the word before they try to take it, as they do in later versions. On
//! x86 these take several turns between two looks; here one, as on other processors.
//!
//! What differs from glibc: no other kinds, no timeouts, no shared memory.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, Os, Platform};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const CONTENDED: u32 = 2;

/// How waiting begins: what `pthread_mutexattr_settype` sets.
pub trait Kind: Send + Sync + 'static {
    /// Whether a thread spins before it sleeps.
    const SPINS: bool;
}

/// `PTHREAD_MUTEX_NORMAL`, the default: sleeps at once.
#[derive(Debug)]
pub struct Normal;

/// `PTHREAD_MUTEX_ADAPTIVE_NP`: spins first.
#[derive(Debug)]
pub struct Adaptive;

impl Kind for Normal {
    const SPINS: bool = false;
}

impl Kind for Adaptive {
    const SPINS: bool = true;
}

/// glibc's mutex, for comparison only. See the [module](self) for what it guarantees.
///
/// # Example
/// ```
/// use fairlock_reference::pthread::mutex::PthreadMutex;
///
/// static COUNT: PthreadMutex<u32> = PthreadMutex::new(0);
///
/// *COUNT.lock() += 1;
/// let count = COUNT.lock();
/// assert!(COUNT.try_lock().is_none());
/// assert_eq!(*count, 1);
/// ```
pub type PthreadMutex<T, K = Normal> = fairlock::lock_api::Mutex<RawPthreadMutex<K, Os>, T>;

/// The mutex without its data: what [`PthreadMutex`] is made of. Use it through `lock_api`.
#[repr(C)]
pub struct RawPthreadMutex<K: Kind, P: Platform = Os> {
    word: P::AtomicU32,
    /// 1 while somebody has the mutex; glibc has the number of its thread. Only the holder writes it, and `users`.
    owner: P::AtomicU32,
    /// What glibc counts so that nobody destroys a mutex in use.
    users: P::AtomicU32,
    /// How many turns of a spin were enough lately, on average.
    spins: P::AtomicU32,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind, P: Platform> RawPthreadMutex<K, P> {
    #[inline]
    fn take(&self) -> bool {
        // Acquire pairs with the Release in `unlock`.
        self.word.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn note_owner(&self) {
        self.owner.store(1, Relaxed);
        self.users.store(self.users.load(Relaxed).wrapping_add(1), Relaxed);
    }

    #[inline]
    fn forget_owner(&self) {
        self.owner.store(0, Relaxed);
        self.users.store(self.users.load(Relaxed).wrapping_sub(1), Relaxed);
    }

    #[cold]
    fn wait(&self) {
        if K::SPINS {
            self.spin_and_sleep();
        } else {
            self.sleep();
        }
    }

    fn sleep(&self) {
        let mut is_contended = self.word.load(Relaxed) == CONTENDED;
        // Acquire as in `take`.
        while is_contended || self.word.swap(CONTENDED, Acquire) != FREE {
            P::park(&self.word, CONTENDED, None);
            is_contended = false;
        }
    }

    fn spin_and_sleep(&self) {
        /// As many as `glibc.pthread.mutex_spin_count` unless it was set.
        const MOST: u32 = 100;
        let lately = self.spins.load(Relaxed);
        let most = MOST.min(2 * lately + 10);
        let mut turns = 0;
        loop {
            if turns >= most {
                if !self.take() {
                    self.sleep();
                }
                break;
            }
            turns += P::relax_turns(most - turns);
            if self.word.load(Relaxed) == FREE && self.take() {
                break;
            }
        }
        // An eighth of the way towards what it took now. Neither is above `MOST`.
        let next = lately as i32 + (turns as i32 - lately as i32) / 8;
        self.spins.store(next as u32, Relaxed);
    }
}

// SAFETY: invariant 1; taking is Acquire, unlocking Release. Guards are inert, and nothing refers to the lock but borrows,
// so it may be moved or dropped while held.
unsafe impl<K: Kind, P: Platform> fairlock::lock_api::RawMutex for RawPthreadMutex<K, P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = RawPthreadMutex {
        word: P::AtomicU32::ZERO,
        owner: P::AtomicU32::ZERO,
        users: P::AtomicU32::ZERO,
        spins: P::AtomicU32::ZERO,
        kind: PhantomData,
    };
    type Guard = GuardNoSend;

    #[inline]
    fn lock(&self) -> GuardNoSend {
        if !self.take() {
            self.wait();
        }
        self.note_owner();
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock(&self) -> Option<GuardNoSend> {
        self.take().then(|| {
            self.note_owner();
            GuardNoSend::new()
        })
    }
    #[inline]
    unsafe fn unlock(&self, _guard: GuardNoSend) {
        self.forget_owner();
        // Release pairs with the Acquire in `take` and `sleep`.
        if self.word.swap(FREE, Release) == CONTENDED {
            P::unpark(&raw const self.word);
        }
    }
    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != FREE
    }
}
