//! The kernel's mutex, as the lock of the anon_vma trees was before it became a semaphore.
//!
//! ```text
//!   count:  FREE · HELD, one less · less: held, and somebody waits, or came while it was held
//!   owner:  who holds it; 0 if nobody
//! ```
//!
//! A thread subtracts 1 from `count` and holds the mutex if it was free. Otherwise it spins while the owner runs,
//! one spinner at a time (`spin_queue.rs`), and takes a free mutex past the list. If the owner does not run, the
//! thread goes on the list, sets `count` to `CONTENDED` and sleeps. A release adds 1. If that does not make `count`
//! `FREE`, the release takes `wait_lock`, sets `count` to `FREE` there and wakes the head of the list, which has to
//! compete for the mutex. Every newcomer subtracts 1, so one that only spins sends the release this way, too; and
//! until the release has `wait_lock`, nobody can take the mutex.
//!
//! After `kernel/mutex.c`, `kernel/mutex.h` and `arch/x86/include/asm/mutex_64.h` of Linux 3.10, with
//! `CONFIG_MUTEX_SPIN_ON_OWNER`. Since 3.10 ("mutex: Queue mutex spinners with MCS lock to reduce cacheline
//! contention", Waiman Long) spinners queue.
//!
//! What differs from the kernel, and why
//! * `count` is one less than the kernel's, whose free mutex is 1: a fresh word is zero here.
//! * No signals, no debugging, no real-time waiters, no `ww_mutex`: no table depends on them.
//! * A waiter has a word to sleep on, `woken`, where the kernel has the thread's state.
//! * Preemption is forbidden while spinning and under `wait_lock`, not also between the two.
//!
//! Invariants
//! 1. Whoever changes `count` from `FREE` holds the mutex, and only the holder changes it back.
//! 2. A waiter sleeps only after `count` was below `HELD` under `wait_lock`. So the next release takes `wait_lock`,
//!    too, and wakes the head of the list.
//! 3. Whoever takes the mutex past the list may set `count` to `HELD`, so that its release wakes nobody. The head of
//!    the list was woken by the release before, and is about to look at `count` again.
//! 4. A waiter is on the list until it has the mutex.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, AtomicInt, Platform};

use super::spin_queue::SpinQueue;
use super::ticket_lock::TicketLock;
use super::wait_list::{WaitList, Waiter};
use super::{Kernel, Unpreempted};

/// The lock without its data. Use it through `lock_api`.
#[repr(C, align(64))]
pub struct RawKernelMutex<K: Kernel> {
    count: <K::Platform as Platform>::AtomicU64,
    waiters: WaitList<TicketLock<K::Platform>, K::Platform>,
    owner: <K::Platform as Platform>::AtomicU64,
    spinners: SpinQueue<K::Platform, true>,
}

const FREE: u64 = 0;
const HELD: u64 = u64::MAX;
const CONTENDED: u64 = u64::MAX - 1;

/// What a turn at the front of the spinners came to.
enum Turn {
    Acquired,
    /// The owner does not run, or another one has come.
    Queue,
    /// Somebody was faster, or is about to release it.
    Again {
        had_owner: bool,
    },
}

impl<K: Kernel> RawKernelMutex<K> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    pub const NEW: Self = RawKernelMutex {
        count: AtomicCell::ZERO,
        waiters: WaitList::NEW,
        owner: AtomicCell::ZERO,
        spinners: SpinQueue::NEW,
    };

    // ---- acquire and release ----

    #[inline]
    fn acquire(&self) {
        // Acquire pairs with the Releases of `release` and `wake_head`, here and below.
        if self.count.fetch_sub(1, Acquire) != FREE {
            self.acquire_slow();
        }
        self.note_owner();
    }

    #[inline]
    fn release(&self) {
        self.owner.store(0, Relaxed);
        if self.count.fetch_add(1, Release) != HELD {
            self.wake_head();
        }
    }

    fn note_owner(&self) {
        self.owner.store(K::current() + 1, Relaxed);
    }

    #[cold]
    fn wake_head(&self) {
        let list = self.waiters.lock::<K>();
        self.count.store(FREE, Release);
        if let Some(head) = list.at(list.head()) {
            head.wake::<K>();
        }
    }

    // ---- waiters ----

    #[cold]
    fn acquire_slow(&self) {
        if self.spin() {
            return;
        }
        let waiter = Waiter::new(false, K::current());
        let mut list = self.waiters.lock::<K>();
        list.push(&waiter);
        // The kernel looks twice, too, before it sleeps for the first time.
        if !self.acquire_queued() {
            while !self.acquire_queued() {
                // A wake-up so far was for what this attempt has seen.
                waiter.begin_to_sleep();
                drop(list);
                waiter.sleep::<K>();
                list = self.waiters.lock::<K>();
            }
        }
        list.remove(&waiter);
        self.note_owner();
        if list.is_empty() {
            self.count.store(HELD, Relaxed);
        }
    }

    /// With `wait_lock` held.
    fn acquire_queued(&self) -> bool {
        let count = self.count.load(Relaxed);
        (count == FREE || count == HELD) && self.count.swap(CONTENDED, Acquire) == FREE
    }

    // ---- spinners ----

    /// False if this thread has to queue.
    fn spin(&self) -> bool {
        let _unpreempted = Unpreempted::<K>::new();
        let owner = self.owner.load(Relaxed);
        if owner != 0 && !K::is_on_cpu(owner - 1) {
            return false;
        }
        let mut turns = 0;
        loop {
            match self.spinners.at_front(|| self.turn()) {
                Turn::Acquired => return true,
                Turn::Queue => return false,
                Turn::Again { had_owner: true } => {}
                Turn::Again { had_owner: false } => {
                    turns += 1;
                    if K::is_to_yield() || turns > K::TURNS_WITHOUT_OWNER {
                        return false;
                    }
                }
            }
            // No spin that waits for a change: the next turn writes the queue's word again, as in the kernel.
            K::Platform::give_way(turns);
        }
    }

    fn turn(&self) -> Turn {
        let owner = self.owner.load(Relaxed);
        if owner != 0 && !self.outlasts(owner) {
            return Turn::Queue;
        }
        if self.count.load(Relaxed) == FREE
            && self.count.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
        {
            // While the next one still stands behind this one.
            self.note_owner();
            return Turn::Acquired;
        }
        Turn::Again { had_owner: owner != 0 }
    }

    /// Spins for as long as this owner runs inside; says whether nobody came after it.
    fn outlasts(&self, owner: u64) -> bool {
        while self.owner.load(Relaxed) == owner && K::is_on_cpu(owner - 1) && !K::is_to_yield() {
            K::relax();
        }
        self.owner.load(Relaxed) == 0
    }
}

// SAFETY: invariant 1. Every way to acquire is Acquire, both ways to release are Release. Guards are inert.
unsafe impl<K: Kernel> fairlock::lock_api::RawMutex for RawKernelMutex<K> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = Self::NEW;
    type Guard = GuardNoSend;

    fn lock(&self) -> GuardNoSend {
        self.acquire();
        GuardNoSend::new()
    }

    fn try_lock(&self) -> Option<GuardNoSend> {
        self.count.compare_exchange(FREE, HELD, Acquire, Relaxed).ok()?;
        self.note_owner();
        Some(GuardNoSend::new())
    }

    unsafe fn unlock(&self, _guard: GuardNoSend) {
        self.release();
    }

    fn is_locked(&self) -> bool {
        self.count.load(Relaxed) != FREE
    }
}
