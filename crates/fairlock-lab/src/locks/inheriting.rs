//! A mutex of a simulated machine that lends its waiters' priorities to its holder, as the kernel's
//! futexes for PTHREAD_PRIO_INHERIT do.
//!
//! ```text
//!   word: │ registrations │ holder's number + 1, 0 if it is free │
//! ```
//!
//! To acquire a free lock, or to release one that nobody waits for, takes one compare-exchange. While
//! threads wait, the holder runs with the highest priority among theirs and its own, and hands the lock
//! over to the waiter of the highest priority, the first among equals.
//!
//! Invariants
//! 1. A waiter registers and counts that in the word in one step. A release succeeds only with the count
//!    that the holder knew. So no waiter is overlooked.
//! 2. Simulated threads change places only at operations on simulated words, so everything between two
//!    operations on the word belongs to the first.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fairlock::platform::{AtomicCell, Platform};
use fairlock_sim::{Sim, timed};

use super::{Access, LabLock, NewLock, Protected};

type Word = <Sim as Platform>::AtomicU64;
type Futex = <Sim as Platform>::AtomicU32;

const HOLDER: u64 = (1 << 32) - 1;
const REGISTRATION: u64 = 1 << 32;

struct Waiter {
    thread: usize,
    priority: u8,
    /// 1 when it has the lock. On the waiter's stack: which line a word of the heap lies on depends on the allocator, and
    /// so would what it costs.
    granted: *const Futex,
}

// SAFETY: any thread may use the word, and its owner does not leave `lock` before it is 1.
unsafe impl Send for Waiter {}

/// See the module.
pub struct SimulatedInherit {
    word: Word,
    /// Part of the simulated kernel, and so of no cost. Never held across an operation.
    waiters: Mutex<Vec<Waiter>>,
    data: Protected<Sim>,
}

impl SimulatedInherit {
    fn waiters(&self) -> MutexGuard<'_, Vec<Waiter>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Outside a run nobody else is there.
    fn caller() -> usize {
        timed::thread().unwrap_or(0)
    }

    fn lock(&self) {
        let me = Self::caller();
        let mut word = self.word.load(Relaxed);
        loop {
            let is_free = word & HOLDER == 0;
            let taken = if is_free { word | (me as u64 + 1) } else { word + REGISTRATION };
            // Acquire pairs with the Release in `unlock`.
            match self.word.compare_exchange(word, taken, Acquire, Relaxed) {
                Ok(_) if is_free => return,
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        let priority = timed::priority(me);
        let granted = Futex::new(0);
        self.waiters().push(Waiter { thread: me, priority, granted: &raw const granted });
        let holder = (word & HOLDER) as usize - 1;
        if timed::priority(holder) < priority {
            timed::set_priority(holder, priority);
        }
        while granted.load(Acquire) == 0 {
            Sim::park(&granted, 0, None);
        }
    }

    fn try_lock(&self) -> bool {
        let taken = Self::caller() as u64 + 1;
        let mut word = self.word.load(Relaxed);
        // The lock is handed over to waiters, so a free lock has none.
        while word & HOLDER == 0 {
            // Acquire pairs with the Release in `unlock`.
            match self.word.compare_exchange(word, word | taken, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
        false
    }

    /// `own` is the priority that the caller had before it took the lock.
    fn unlock(&self, own: u8) {
        let me = Self::caller();
        let mut word = self.word.load(Relaxed);
        let next = loop {
            let next = {
                let waiters = self.waiters();
                let highest = waiters.iter().map(|waiter| waiter.priority).max();
                waiters.iter().position(|waiter| Some(waiter.priority) == highest)
            };
            let holder = next.map_or(0, |at| self.waiters()[at].thread as u64 + 1);
            let released = word & !HOLDER | holder;
            match self.word.compare_exchange(word, released, AcqRel, Relaxed) {
                Ok(_) => break next,
                Err(found) => word = found,
            }
        };
        // The others have no higher priority than the next holder, which needs nobody's.
        let next = next.map(|at| self.waiters().remove(at));
        if let Some(next) = next {
            // SAFETY: its owner does not leave `lock`, where the word is, before it reads this. After a panic in a run no
            // fiber goes on, and none is unwound.
            unsafe { &*next.granted }.store(1, Release);
            Sim::unpark(next.granted);
        }
        // Last: what others lent is for all of this.
        if timed::priority(me) != own {
            timed::set_priority(me, own);
        }
    }
}

/// The lock is held by this thread; dropping releases it.
pub struct HeldInherit<'a> {
    lock: &'a SimulatedInherit,
    /// The priority that the thread had before it took the lock.
    own: u8,
}

impl Drop for HeldInherit<'_> {
    fn drop(&mut self) {
        self.lock.unlock(self.own);
    }
}

impl LabLock for SimulatedInherit {
    type Platform = Sim;

    fn read<R>(&self, section: impl FnOnce(&Protected<Sim>) -> R) -> R {
        section(&self.hold(Access::Shared).lock.data)
    }

    fn try_read<R>(&self, section: impl FnOnce(&Protected<Sim>) -> R) -> Option<R> {
        Some(section(&self.try_hold(Access::Shared)?.lock.data))
    }

    fn write<R>(&self, section: impl FnOnce(&Protected<Sim>) -> R) -> R {
        section(&self.hold(Access::Exclusive).lock.data)
    }

    type Hold<'a> = HeldInherit<'a>;

    fn hold(&self, _access: Access) -> HeldInherit<'_> {
        let own = timed::priority(Self::caller());
        self.lock();
        HeldInherit { lock: self, own }
    }

    fn try_hold(&self, _access: Access) -> Option<HeldInherit<'_>> {
        let own = timed::priority(Self::caller());
        self.try_lock().then(|| HeldInherit { lock: self, own })
    }
}

impl NewLock for SimulatedInherit {
    const BYTES: usize = size_of::<Word>();

    fn new(data: Protected<Sim>) -> Self {
        SimulatedInherit { word: Word::new(0), waiters: Mutex::default(), data }
    }
}
