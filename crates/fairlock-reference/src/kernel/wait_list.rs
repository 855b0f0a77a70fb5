//! The list of those that wait for a lock, and the spin lock around it.
//!
//! Invariants
//! 1. The list is read and changed by the holder of its lock alone, but for a look at its head by a waiter that
//!    wants to know whether it is the head.
//! 2. A waiter lives while it is on the list, and a reader's until `granted` is set. Whoever wants to wake it
//!    later knows its address and nothing else.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::platform::{AtomicCell, PlainCell, Platform};

use super::Kernel;

/// A spin lock around a list.
pub(super) trait WaitLock<P: Platform> {
    /// A free one.
    const NEW: Self;
    /// Until [`unlock`](Self::unlock), preemption is forbidden, too.
    fn lock<K: Kernel<Platform = P>>(&self);
    /// By the holder.
    fn unlock<K: Kernel<Platform = P>>(&self);
}

#[repr(C)]
pub(super) struct WaitList<L, P: Platform> {
    lock: L,
    head: P::AtomicPtr<()>,
    tail: P::Cell<*const ()>,
}

/// A waiter, on its own stack. What the kernel keeps on the stack is on the first line, what it touches of
/// the thread itself on the second.
#[repr(C, align(64))]
pub(super) struct Waiter<P: Platform> {
    pub(super) next: P::Cell<*const ()>,
    prev: P::Cell<*const ()>,
    /// A reader's: 1 once it has the lock.
    pub(super) granted: P::AtomicU32,
    pub(super) is_reader: bool,
    pub(super) thread: u64,
    /// When it has waited for too long, in ticks; for locks that have such a time.
    pub(super) due: Cell<u64>,
    pub(super) task: Task<P>,
}

#[repr(C, align(64))]
pub(super) struct Task<P: Platform> {
    /// A writer's: 1 once it was woken, since it last looked at the lock.
    pub(super) woken: P::AtomicU32,
    pub(super) references: P::AtomicU32,
}

impl<P: Platform> Waiter<P> {
    pub(super) fn new(is_reader: bool, thread: u64) -> Self {
        Waiter {
            next: P::Cell::ZERO,
            prev: P::Cell::ZERO,
            granted: P::AtomicU32::new(0),
            is_reader,
            thread,
            due: Cell::new(u64::MAX),
            task: Task { woken: P::AtomicU32::new(0), references: P::AtomicU32::new(0) },
        }
    }

    pub(super) fn pointer(&self) -> *mut () {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Takes a wake-up back if there was one (`set_current_state`); says so.
    pub(super) fn begin_to_sleep(&self) -> bool {
        // Acquire pairs with the Release of whoever wakes it.
        self.task.woken.swap(0, Acquire) != 0
    }

    /// Sleeps until a wake-up, which it takes back (`schedule`).
    pub(super) fn sleep<K: Kernel<Platform = P>>(&self) {
        while !self.begin_to_sleep() {
            P::park(&self.task.woken, 0, None);
            K::has_slept();
        }
    }

    /// A reader's sleep until it has the lock.
    pub(super) fn sleep_until_granted<K: Kernel<Platform = P>>(&self) {
        // Acquire pairs with the Release of whoever grants it the lock.
        while self.granted.load(Acquire) == 0 {
            P::park(&self.granted, 0, None);
            K::has_slept();
        }
    }

    /// Notes that this writer is woken; false if it was before and has not looked since.
    pub(super) fn mark_woken(&self) -> bool {
        // Release pairs with the Acquire of `begin_to_sleep`: a writer that takes this wake-up sees what made
        // it due.
        self.task.woken.swap(1, Release) == 0
    }

    /// Wakes this writer at once, under the list's lock (`wake_up_process`).
    pub(super) fn wake<K: Kernel<Platform = P>>(&self) {
        if self.mark_woken() {
            P::unpark(&raw const self.task.woken);
        } else {
            K::wake_in_vain(self.thread);
        }
    }
}

impl<L: WaitLock<P>, P: Platform> WaitList<L, P> {
    #[allow(clippy::declare_interior_mutable_const)] // part of the lock's own constant
    pub(super) const NEW: Self =
        WaitList { lock: L::NEW, head: AtomicCell::ZERO, tail: PlainCell::ZERO };

    pub(super) fn lock<K: Kernel<Platform = P>>(&self) -> Held<'_, L, K> {
        self.lock.lock::<K>();
        Held(self, PhantomData)
    }

    /// A waiter's look whether it is the head.
    pub(super) fn is_head(&self, waiter: &Waiter<P>) -> bool {
        self.head.load(Relaxed) == waiter.pointer()
    }
}

/// The list with its lock held.
pub(super) struct Held<'a, L: WaitLock<K::Platform>, K: Kernel>(
    &'a WaitList<L, K::Platform>,
    PhantomData<K>,
);

impl<L: WaitLock<K::Platform>, K: Kernel> Drop for Held<'_, L, K> {
    fn drop(&mut self) {
        self.0.lock.unlock::<K>();
    }
}

impl<L: WaitLock<K::Platform>, K: Kernel> Held<'_, L, K> {
    pub(super) fn head(&self) -> *const () {
        self.0.head.load(Relaxed)
    }

    fn set_head(&self, head: *const ()) {
        self.0.head.store(head.cast_mut(), Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head().is_null()
    }

    /// Whether nobody else is on the list.
    pub(super) fn is_alone(&self, waiter: &Waiter<K::Platform>) -> bool {
        self.0.is_head(waiter) && self.0.tail.get() == waiter.pointer()
    }

    /// The waiter at this address, which is on the list, or off it and not granted the lock yet.
    pub(super) fn at(&self, pointer: *const ()) -> Option<&Waiter<K::Platform>> {
        // SAFETY: it lives for as long as it is on the list or not granted the lock (invariant 2), which
        // changes under the lock alone (invariant 1): `self` is that.
        unsafe { pointer.cast::<Waiter<K::Platform>>().as_ref() }
    }

    pub(super) fn push(&self, waiter: &Waiter<K::Platform>) {
        let last = self.0.tail.get();
        waiter.prev.set(last);
        waiter.next.set(ptr::null());
        self.0.tail.set(waiter.pointer());
        match self.at(last) {
            Some(last) => last.next.set(waiter.pointer()),
            None => self.set_head(waiter.pointer()),
        }
    }

    pub(super) fn remove(&self, waiter: &Waiter<K::Platform>) {
        let (prev, next) = (waiter.prev.get(), waiter.next.get());
        match self.at(next) {
            Some(next) => next.prev.set(prev),
            None => self.0.tail.set(prev),
        }
        match self.at(prev) {
            Some(prev) => prev.next.set(next),
            None => self.set_head(next),
        }
    }

    /// Leaves the waiters before `head` off the list.
    pub(super) fn begin_at(&self, head: *const ()) {
        self.set_head(head);
        match self.at(head) {
            Some(head) => head.prev.set(ptr::null()),
            None => self.0.tail.set(ptr::null()),
        }
    }
}

// SAFETY: what is no atomic is read and changed under the lock alone (invariant 1).
unsafe impl<L: Send, P: Platform> Send for WaitList<L, P> {}
// SAFETY: as above.
unsafe impl<L: Sync, P: Platform> Sync for WaitList<L, P> {}
