//! The kernel's spin lock: one word, where the first waiter spins on it and the others queue.
//!
//! ```text
//!   63                 16       8        0
//!   │ youngest waiter's node │ PENDING │ LOCKED │
//! ```
//!
//! After `kernel/locking/qspinlock.c`, with two differences, neither of which changes who touches which line
//! when. The node's address stands where the kernel has the number of a CPU and of a node on it; so the
//! word has 64 bits. And what the kernel does to one byte of it by a store is a locked operation on the word.
//!
//! Invariants
//! 1. `LOCKED` belongs to the holder. `PENDING` belongs to one waiter outside the queue, who takes the lock
//!    next; the front of the queue waits for both.
//! 2. A node lives until its owner has the lock and the word names another node, or none; a successor that
//!    the word named has then linked itself.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::platform::{AtomicCell, AtomicInt, Platform};

use super::Kernel;
use super::wait_list::WaitLock;

const LOCKED: u64 = 1;
const PENDING: u64 = 1 << 8;
const TAIL: u64 = !0 << 16;

/// How long a newcomer waits for the pending waiter to become the holder (`_Q_PENDING_LOOPS`).
const PENDING_TURNS: u32 = 1 << 9;

pub(super) struct SpinLock<P: Platform> {
    word: P::AtomicU64,
}

/// One waiter, on its own stack.
#[repr(align(64))]
struct Node<P: Platform> {
    next: P::AtomicPtr<Node<P>>,
    is_front: P::AtomicU32,
}

impl<P: Platform> Node<P> {
    fn name(&self) -> u64 {
        // Aligned to 64 bytes, of 48 bits: six bits fall off at the end, sixteen are free at the front.
        (ptr::from_ref(self).expose_provenance() as u64) << 10
    }

    fn named(word: u64) -> *const Node<P> {
        ptr::with_exposed_provenance(((word & TAIL) >> 10) as usize)
    }
}

impl<P: Platform> WaitLock<P> for SpinLock<P> {
    const NEW: Self = SpinLock { word: P::AtomicU64::ZERO };

    fn lock<K: Kernel<Platform = P>>(&self) {
        K::forbid_preemption();
        if let Err(found) = self.word.compare_exchange(0, LOCKED, Acquire, Relaxed) {
            self.lock_slow::<K>(found);
        }
    }

    fn unlock<K: Kernel<Platform = P>>(&self) {
        self.word.fetch_sub(LOCKED, Release);
        K::allow_preemption();
    }
}

impl<P: Platform> SpinLock<P> {
    #[cold]
    fn lock_slow<K: Kernel<Platform = P>>(&self, mut word: u64) {
        let mut turns = PENDING_TURNS;
        while word == PENDING && turns > 0 {
            P::relax(None);
            word = self.word.load(Relaxed);
            turns -= 1;
        }
        if word & !LOCKED != 0 {
            return self.queue::<K>();
        }
        // Acquire pairs with `unlock`'s Release if nobody has the lock.
        let before = self.word.fetch_or(PENDING, Acquire);
        if before & !LOCKED != 0 {
            if before & PENDING == 0 {
                self.word.fetch_and(!PENDING, Relaxed);
            }
            return self.queue::<K>();
        }
        let mut is_locked = before & LOCKED != 0;
        while is_locked {
            is_locked = self.word.load(Acquire) & LOCKED != 0;
            if is_locked {
                P::relax(None);
            }
        }
        self.word.fetch_sub(PENDING - LOCKED, Relaxed);
    }

    fn queue<K: Kernel<Platform = P>>(&self) {
        let node =
            Node { next: P::AtomicPtr::new(ptr::null_mut()), is_front: P::AtomicU32::new(0) };
        if self.word.load(Relaxed) == 0
            && self.word.compare_exchange(0, LOCKED, Acquire, Relaxed).is_ok()
        {
            return;
        }
        let before = K::exchange_part(&self.word, TAIL, node.name());
        let mut next = ptr::null_mut();
        if before & TAIL != 0 {
            // SAFETY: invariant 2: its owner waits for this store. Release pairs with the loads below.
            unsafe {
                (*Node::<P>::named(before)).next.store(ptr::from_ref(&node).cast_mut(), Release)
            };
            // Acquire pairs with the Release at this function's end.
            while node.is_front.load(Acquire) == 0 {
                P::relax(None);
            }
            next = node.next.load(Acquire);
        }
        let word = loop {
            let word = self.word.load(Acquire);
            if word & (LOCKED | PENDING) == 0 {
                break word;
            }
            P::relax(None);
        };
        if word == node.name() && self.word.compare_exchange(word, LOCKED, Relaxed, Relaxed).is_ok()
        {
            return;
        }
        self.word.fetch_or(LOCKED, Relaxed);
        let mut attempt = 0;
        while next.is_null() {
            P::give_way(attempt);
            attempt += 1;
            next = node.next.load(Acquire);
        }
        // SAFETY: invariant 2: the successor waits for this store.
        unsafe { (*next).is_front.store(1, Release) };
    }
}
