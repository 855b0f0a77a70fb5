//! The queue in which the waiters of every lock sleep: a ring of nodes on the waiters' stacks, and
//! the small lock that guards it. Waiting allocates nothing.
//!
//! ```text
//!   oldest ──► node ⇄ node ⇄ node ─┐      the ring's pointer names the oldest node,
//!               ▲──────────────────┘      whose `prev` is the youngest
//! ```
//!
//! Not for: deciding who is next, or waking a waiter. Each lock has nodes of its own, with a state
//! on which the node's owner sleeps.
//!
//! Invariants
//! 1. Links and ring heads are read and written only by the holder of the queue's lock, which is
//!    why the functions here take a [`Locked`]. Once a node is off its ring, its links belong to
//!    the thread that removed it, until that thread wakes the node's owner.
//! 2. A node is on a ring from `push` to `remove`, and lives at least that long: its owner does not
//!    return before the node is off the ring.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, PlainCell, Platform};
use crate::spin_budget::SpinBudget;

/// A node's neighbours. Untyped, as a node type that names itself in a cell's parameter would be
/// infinite.
pub struct Links<P: Platform> {
    next: P::Cell<*const ()>,
    prev: P::Cell<*const ()>,
}

impl<P: Platform> Links<P> {
    /// Of a node that is on no ring.
    pub const NEW: Self = Links { next: P::Cell::ZERO, prev: P::Cell::ZERO };

    /// Whether the node is on a ring. Only `prev` shows that, as chaining uses `next`.
    pub fn is_linked(&self, _locked: &Locked<'_, P>) -> bool {
        !self.prev.get().is_null()
    }

    /// Makes `next` the successor of a node that was removed from its ring.
    pub fn chain<N>(&self, next: &N) {
        self.next.set(ptr::from_ref(next).cast());
    }

    /// The successor by [`chain`](Self::chain), null if none.
    pub fn chained<N>(&self) -> *const N {
        self.next.get().cast()
    }
}

/// A node that can be on a [`Ring`].
pub trait OnRing<P: Platform> {
    /// Its neighbours.
    fn links(&self) -> &Links<P>;
}

/// A FIFO of nodes from which any node may be removed; null when empty.
pub struct Ring<P: Platform, N> {
    oldest: P::Cell<*const ()>,
    nodes: PhantomData<*const N>,
}

fn link<N>(node: &N) -> *const () {
    ptr::from_ref(node).cast()
}

impl<P: Platform, N: OnRing<P>> Ring<P, N> {
    /// Without a node.
    pub const EMPTY: Self = Ring { oldest: P::Cell::ZERO, nodes: PhantomData };

    /// Empties the ring without looking at its nodes, which may be gone.
    pub fn forget_all(&self, _locked: &Locked<'_, P>) {
        self.oldest.set(ptr::null());
    }

    /// The node behind a link.
    ///
    /// # Safety
    /// `link` is null or leads to a node that lives for as long as the result is used.
    unsafe fn node<'a>(link: *const ()) -> Option<&'a N> {
        // SAFETY: null or a node that lives long enough, as the caller promises.
        unsafe { link.cast::<N>().as_ref() }
    }

    /// The node that has been on the ring for longest.
    pub fn oldest<'l>(&self, _locked: &'l Locked<'_, P>) -> Option<&'l N> {
        // SAFETY: the oldest is on the ring and so alive (invariant 2).
        unsafe { Self::node(self.oldest.get()) }
    }

    /// The next younger node, none after the youngest.
    pub fn younger<'l>(&self, locked: &'l Locked<'_, P>, node: &N) -> Option<&'l N> {
        // SAFETY: a neighbour is on the ring and so alive (invariant 2).
        let next = unsafe { Self::node::<'l>(node.links().next.get()) };
        next.filter(|next| self.oldest.get() != link(*next) && node.links().is_linked(locked))
    }

    /// All nodes, oldest first.
    pub fn iter<'l>(&'l self, locked: &'l Locked<'_, P>) -> impl Iterator<Item = &'l N> {
        core::iter::successors(self.oldest(locked), |node| self.younger(locked, node))
    }

    /// Links `node` as the youngest. It must not move until it is off the ring.
    pub fn push(&self, locked: &Locked<'_, P>, node: &N) {
        let links = node.links();
        let Some(oldest) = self.oldest(locked) else {
            links.next.set(link(node));
            links.prev.set(link(node));
            self.oldest.set(link(node));
            return;
        };
        // SAFETY: the youngest is on the ring and so alive (invariant 2).
        let youngest = unsafe { Self::node(oldest.links().prev.get()) };
        let youngest = youngest.expect("a ring has no end");
        links.next.set(link(oldest));
        links.prev.set(link(youngest));
        youngest.links().next.set(link(node));
        oldest.links().prev.set(link(node));
    }

    /// Links `node` as the oldest.
    pub fn push_front(&self, locked: &Locked<'_, P>, node: &N) {
        self.push(locked, node);
        self.oldest.set(link(node));
    }

    /// Removes `node`, wherever it stands.
    pub fn remove(&self, _locked: &Locked<'_, P>, node: &N) {
        let links = node.links();
        // SAFETY: both neighbours are on the ring and so alive (invariant 2).
        let neighbours = unsafe { (Self::node(links.next.get()), Self::node(links.prev.get())) };
        let (Some(next), Some(prev)) = neighbours else { unreachable!("a linked node has both") };
        if ptr::eq(next, node) {
            self.oldest.set(ptr::null());
        } else {
            prev.links().next.set(link(next));
            next.links().prev.set(link(prev));
            if self.oldest.get() == link(node) {
                self.oldest.set(link(next));
            }
        }
        links.next.set(ptr::null());
        links.prev.set(ptr::null());
    }
}

#[cfg(test)]
impl<P: Platform, N: OnRing<P>> Ring<P, N> {
    /// All nodes, oldest first, checked in both directions.
    pub(crate) fn all(&self, locked: &Locked<'_, P>) -> Vec<*const N> {
        let mut found = Vec::new();
        let Some(oldest) = self.oldest(locked) else {
            return found;
        };
        let mut node = oldest;
        loop {
            found.push(ptr::from_ref(node));
            // SAFETY: a neighbour is on the ring and so alive (invariant 2).
            let next = unsafe { Self::node(node.links().next.get()) }.expect("a ring has no end");
            assert_eq!(next.links().prev.get(), link(node), "neighbours know each other");
            if ptr::eq(next, oldest) {
                return found;
            }
            node = next;
        }
    }
}

/// The lock that guards a queue, held for a few instructions at a time.
pub struct QueueLock<P: Platform> {
    /// 0: free. 1: held. 2: held, and somebody may sleep until it is free.
    state: P::AtomicU32,
}

impl<P: Platform> QueueLock<P> {
    /// Free.
    pub const NEW: Self = QueueLock { state: P::AtomicU32::ZERO };

    /// Takes the lock even if some thread seems to hold it.
    ///
    /// # Safety
    /// Nobody holds it: a thread that seems to does not exist, as in the child of a `fork`.
    pub unsafe fn seize(&self) -> Locked<'_, P> {
        self.state.store(1, Relaxed);
        Locked { lock: self }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> Option<Locked<'_, P>> {
        // Acquire as in `lock`.
        self.state.compare_exchange(0, 1, Acquire, Relaxed).ok().map(|_| Locked { lock: self })
    }

    /// Takes the lock. Spins for as long as a wake-up takes and then sleeps, so that a preempted
    /// holder of lower priority can run.
    pub fn lock(&self) -> Locked<'_, P> {
        let free = || self.state.compare_exchange_weak(0, 1, Acquire, Relaxed).is_ok();
        if !free() {
            let mut budget = SpinBudget::new::<P>(P::wake_latency().into(), None);
            // Acquire pairs with the Release in `Locked::drop`.
            while !(self.state.load(Relaxed) == 0 && free()) {
                if !budget.relax::<P>() {
                    while self.state.swap(2, Acquire) != 0 {
                        P::park(&self.state, 2, None);
                    }
                    break;
                }
            }
        }
        Locked { lock: self }
    }
}

/// The queue's lock is held; released when dropped.
pub struct Locked<'a, P: Platform> {
    lock: &'a QueueLock<P>,
}

impl<P: Platform> Drop for Locked<'_, P> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `QueueLock::lock`.
        if self.lock.state.swap(0, Release) == 2 {
            P::unpark(&self.lock.state);
        }
    }
}
