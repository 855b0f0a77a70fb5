//! Threads that sleep until they are told something, in the order in which they came, on nodes on their
//! own stacks: waiting allocates nothing, and nobody is woken who has nothing to do.
//!
//! Not for: deciding who is told what.
//!
//! Invariants
//! 1. A queue is read and written by whoever holds the lock of the state that it is in, or owns it.
//! 2. A node is on one queue from `push` until it is taken off, and told once, after that. To be told is
//!    the last that others do with it: its stack frame may be gone right after, and the wake-up that
//!    follows uses the address alone.

use std::mem;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Release};

use fairlock::platform::{AtomicCell, PlainCell, Platform};

/// What a thread that sleeps is told; as the word that it sleeps on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// Its batch is written.
    Written = 1,
    /// To look at the state again.
    Look = 2,
}

/// Nothing yet.
const WAITING: u32 = 0;

/// One thread that sleeps, on its own stack.
pub(super) struct Waiter<P: Platform> {
    told: P::AtomicU32,
    /// Untyped: a node type that names itself in a cell's parameter would be infinite.
    younger: P::Cell<*const ()>,
}

impl<P: Platform> Waiter<P> {
    pub(super) fn new() -> Self {
        Waiter { told: AtomicCell::new(WAITING), younger: PlainCell::ZERO }
    }

    /// Until it is told something.
    pub(super) fn sleep(&self) -> News {
        loop {
            // Acquire pairs with the Release in `Taken::tell`.
            match self.told.load(Acquire) {
                WAITING => P::park(&self.told, WAITING, None),
                told if told == News::Written as u32 => return News::Written,
                _ => return News::Look,
            }
        }
    }
}

#[cfg(test)]
impl<P: Platform> Waiter<P> {
    /// What it was told.
    pub(super) fn news(&self) -> Option<News> {
        match self.told.load(Acquire) {
            WAITING => None,
            _ => Some(self.sleep()),
        }
    }
}

/// Threads that sleep, oldest first.
pub(super) struct Queue<P: Platform> {
    /// Null if there are none.
    oldest: *const Waiter<P>,
    /// Of no meaning if there are none.
    youngest: *const Waiter<P>,
}

// SAFETY: invariant 1; and what is told to a node goes by its atomic word.
unsafe impl<P: Platform> Send for Queue<P> {}

impl<P: Platform> Queue<P> {
    pub(super) const EMPTY: Self = Queue { oldest: ptr::null(), youngest: ptr::null() };

    pub(super) fn is_empty(&self) -> bool {
        self.oldest.is_null()
    }

    /// As the youngest.
    ///
    /// # Safety
    /// `waiter` stays where it is until it has been told something.
    pub(super) unsafe fn push(&mut self, waiter: &Waiter<P>) {
        // SAFETY: the caller promises that the waiter stays until it has been told something.
        self.append(unsafe { Queue::of(waiter) });
    }

    /// As the oldest.
    ///
    /// # Safety
    /// As [`push`](Self::push).
    pub(super) unsafe fn push_front(&mut self, waiter: &Waiter<P>) {
        // SAFETY: the caller promises that the waiter stays until it has been told something.
        let younger = mem::replace(self, unsafe { Queue::of(waiter) });
        self.append(younger);
    }

    /// # Safety
    /// As [`push`](Self::push).
    unsafe fn of(waiter: &Waiter<P>) -> Self {
        Queue { oldest: waiter, youngest: waiter }
    }

    /// Adds all of `younger`.
    pub(super) fn append(&mut self, younger: Queue<P>) {
        if self.is_empty() {
            *self = younger;
        } else if !younger.is_empty() {
            // SAFETY: invariant 2, a node on a queue is alive.
            unsafe { &(*self.youngest).younger }.set(younger.oldest.cast());
            self.youngest = younger.youngest;
        }
    }

    /// Takes off the oldest.
    pub(super) fn pop(&mut self) -> Option<Taken<P>> {
        // SAFETY: invariant 2, a node on a queue is alive.
        let oldest = unsafe { self.oldest.as_ref() }?;
        self.oldest = match ptr::eq(oldest, self.youngest) {
            true => ptr::null(),
            false => oldest.younger.get().cast(),
        };
        Some(Taken(oldest))
    }

    pub(super) fn take(&mut self) -> Queue<P> {
        mem::replace(self, Queue::EMPTY)
    }

    /// Tells all, oldest first.
    pub(super) fn tell(mut self, news: News) {
        while let Some(taken) = self.pop() {
            taken.tell(news);
        }
    }
}

/// A thread that sleeps and is on no queue any more.
#[must_use = "it sleeps until it is told something"]
pub(super) struct Taken<P: Platform>(*const Waiter<P>);

impl<P: Platform> Taken<P> {
    /// Wakes it. Not while holding the lock that it wants next.
    pub(super) fn tell(self, news: News) {
        // SAFETY: invariant 2, it is alive until the store below.
        let told = unsafe { &(*self.0).told };
        let address = ptr::from_ref(told);
        // Release pairs with the Acquire in `Waiter::sleep`.
        told.store(news as u32, Release);
        P::unpark(address);
    }
}

#[cfg(test)]
mod tests {
    use std::array;

    use fairlock::platform::Os;

    use super::*;

    fn order(queue: &mut Queue<Os>, waiters: &[Waiter<Os>]) -> Vec<usize> {
        let taken = std::iter::from_fn(|| queue.pop());
        let index = |it: Taken<Os>| waiters.iter().position(|waiter| ptr::eq(waiter, it.0));
        taken.map(|it| index(it).expect("one of them")).collect()
    }

    #[test]
    fn waiters_leave_in_the_order_in_which_they_came() {
        let waiters: [Waiter<Os>; 5] = array::from_fn(|_| Waiter::new());
        let (mut queue, mut more) = (Queue::EMPTY, Queue::EMPTY);
        // SAFETY: the waiters outlive the queues.
        unsafe {
            queue.push(&waiters[0]);
            queue.push(&waiters[1]);
            more.push(&waiters[2]);
            more.push_front(&waiters[3]);
        }
        queue.append(more);
        queue.append(Queue::EMPTY);
        // SAFETY: the waiters outlive the queues.
        unsafe { queue.push(&waiters[4]) };
        assert_eq!(order(&mut queue, &waiters), [0, 1, 3, 2, 4]);
        assert!(queue.is_empty());
        // SAFETY: the waiters outlive the queues.
        unsafe { queue.push_front(&waiters[2]) };
        assert_eq!(order(&mut queue, &waiters), [2], "a node can be used again");
    }

    #[test]
    fn a_waiter_that_was_told_before_it_sleeps_does_not_sleep() {
        for news in [News::Written, News::Look] {
            let waiter: Waiter<Os> = Waiter::new();
            let mut queue = Queue::EMPTY;
            // SAFETY: the waiter lives until it is told.
            unsafe { queue.push(&waiter) };
            queue.tell(news);
            assert_eq!(waiter.sleep(), news);
        }
    }
}
