//! The parking lot: a queue of threads that sleep, with a lock around it.
//!
//! # How it works
//! ```text
//!   lock   FREE · TAKEN · CONTENDED: taken, and somebody may sleep until it is free
//!   head ─▶ waiter ─next▶ waiter ─next▶ waiter ◀─ tail
//! ```
//!
//! A thread that is to sleep takes the lock, looks once more whether it has to, goes to the end of the queue, frees the
//! lock and sleeps on a word of its own. Whoever wakes threads takes the lock, takes them off the front, decides under the
//! lock what that does to the word of *their* lock, frees the lock, and then wakes them, one call each. It takes those that
//! can hold their lock together, and one more: up to the first that wants it alone.
//!
//! A notification of a condition variable takes waiters off its queue and appends them to the mutex's, whose lock
//! it takes second.
//!
//! In version 0.12 each queue also has a moment from which on a wake-up is to be a handover. When it has passed, the
//! next wake-up puts it off by up to 1 ms, by chance.
//!
//! # Why it is right
//! 1. The queue, and what is in it, is read and changed by the holder of its lock alone. Who took waiters off the
//!    queue has them to itself until it wakes them.
//! 2. A waiter lives while `sleeps` is 1. Only who took it off the queue changes that, once, and does not touch the waiter
//!    afterwards.
//! 3. A thread sleeps on `lock` only while it is `CONTENDED`, and whoever has slept leaves it so. So each time that it
//!    becomes free one of the sleepers is woken, until none is left.
//!
//! # What it costs
//! Two locked instructions for the lock, one line for each waiter, and a call to the system for each sleep and each
//! wake-up. Nothing is allocated. Version 0.12 reads the clock at each wake-up.
//!
//! # Source
//! `src/parking_lot.rs`, `src/word_lock.rs` and `src/thread_parker/linux.rs` of parking_lot_core 0.9.12 and 0.10.0, by
//! Amanieu d'Antras and others, after WebKit's `WTF::ParkingLot`.
//!
//! What differs, and why
//! * The original's `WordLock` around a queue keeps those that wait for it on a list and wakes the one that has waited for
//!   longest. Here they sleep on its word, as for a mutex of the standard library, after the same spin. Both wake one at each
//!   release, let newcomers pass, and cost a compare-exchange and another locked instruction.
//! * The original clears the word that a waiter sleeps on before it frees the queue's lock, and remembers the addresses of
//!   these words until it wakes the waiters; if they are more than eight, on the heap. Here the word is cleared right before the
//!   call, and the waiters stay linked until then. What it writes for each waiter under the lock, whether the lock
//!   was handed over, is on the same line. So nothing has to be remembered, and as many lines move under the lock.
//! * A waiter is on its thread's stack and on a line of its own, wherever the stack is. The original's is a thread's local
//!   variable, on whichever lines that falls.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::platform::{AtomicCell, PlainCell, Platform};

use super::{Spin, Version};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const CONTENDED: u32 = 2;

/// How a waiter wants its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// Beside others.
    Shared,
    Alone,
}

/// A queue of the lot, on a line of its own.
#[repr(C, align(64))]
pub(super) struct Queue<V: Version, P: Platform> {
    lock: P::AtomicU32,
    /// What [`chance`] was last; 0 before that.
    seed: P::Cell<u32>,
    head: P::Cell<*const ()>,
    tail: P::Cell<*const ()>,
    /// From this moment on a wake-up is to be a handover.
    due: P::Cell<u64>,
    version: PhantomData<fn() -> V>,
}

/// A waiter, on its own stack.
#[repr(C, align(64))]
struct Waiter<P: Platform> {
    /// 1 until somebody wakes it: what it sleeps on.
    sleeps: P::AtomicU32,
    next: P::Cell<*const ()>,
    wants: Wants,
    /// 1 if it was handed the lock that it waits for.
    handed: P::Cell<u8>,
}

/// Those that a wake-up has taken off the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    /// How many of them want the lock beside others.
    pub(super) shared: u64,
    /// Whether the last of them wants it alone.
    pub(super) alone: bool,
    /// Whether the queue is not empty.
    pub(super) leaves_others: bool,
    /// Whether there are any, and the lock is to be handed over to them.
    pub(super) is_due: bool,
}

/// What became of those that a notification took off a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Requeued {
    /// Whether one of them is woken and others are on the second queue.
    pub(super) wakes_and_moves: bool,
    /// Whether the first queue is not empty.
    pub(super) leaves_others: bool,
}

impl<P: Platform> Waiter<P> {
    fn new(wants: Wants) -> Self {
        Waiter { sleeps: P::AtomicU32::new(1), next: P::Cell::ZERO, wants, handed: P::Cell::ZERO }
    }

    fn pointer(&self) -> *const () {
        ptr::from_ref(self).cast()
    }
}

impl<V: Version, P: Platform> Queue<V, P> {
    #[allow(clippy::declare_interior_mutable_const)] // part of the locks' own constants
    pub(super) const NEW: Self = Queue {
        lock: P::AtomicU32::ZERO,
        seed: P::Cell::ZERO,
        head: P::Cell::ZERO,
        tail: P::Cell::ZERO,
        due: P::Cell::ZERO,
        version: PhantomData,
    };

    /// Sleeps at the end of the queue until it is woken, unless `has_to`, which is asked with the queue's lock held,
    /// answers no. True if the lock that it waits for was handed over to it; otherwise it has to look at that again.
    pub(super) fn park(&self, wants: Wants, has_to: impl FnOnce() -> bool) -> bool {
        self.park_after(wants, has_to, || ())
    }

    /// As [`park`](Self::park), with `before_sleep` once it is in the queue, whose lock is free then.
    pub(super) fn park_after(
        &self,
        wants: Wants,
        has_to: impl FnOnce() -> bool,
        before_sleep: impl FnOnce(),
    ) -> bool {
        let waiter = Waiter::<P>::new(wants);
        {
            let queue = self.lock();
            if !has_to() {
                return false;
            }
            queue.push(&waiter);
        }
        before_sleep();
        // Acquire pairs with the Release in `wake`.
        while waiter.sleeps.load(Acquire) != 0 {
            P::park(&waiter.sleeps, 1, None);
        }
        waiter.handed.get() != 0
    }

    /// Wakes those at the front up to the first that wants the lock alone. With the queue's lock held, `settle` makes of
    /// their lock what follows from that, and says whether it hands the lock over to them.
    pub(super) fn unpark(&self, settle: impl FnOnce(Taken) -> bool) {
        let queue = self.lock();
        let first = queue.0.head.get();
        let mut taken = Taken { shared: 0, alone: false, leaves_others: false, is_due: false };
        let mut rest = first;
        while let Some(waiter) = queue.at(rest)
            && !taken.alone
        {
            rest = waiter.next.get();
            match waiter.wants {
                Wants::Shared => taken.shared += 1,
                Wants::Alone => taken.alone = true,
            }
        }
        queue.begin_at(rest);
        taken.leaves_others = !rest.is_null();
        taken.is_due = V::HANDS_OVER && first != rest && queue.is_due();
        let handed = settle(taken).into();
        let mut at = first;
        while at != rest {
            // SAFETY: invariants 1 and 2: this thread took it off the queue and has not woken it.
            let waiter = unsafe { &*at.cast::<Waiter<P>>() };
            waiter.handed.set(handed);
            at = waiter.next.get();
        }
        drop(queue);
        let mut at = first;
        while at != rest {
            // SAFETY: as above.
            at = unsafe { Self::wake(at.cast()) };
        }
    }

    /// Takes the first waiter, or all of them, off this queue and appends them to the queue `to`, which
    /// is asked for with this queue's lock held; without one nothing happens. Of those taken the first
    /// is woken instead if `wakes` says so, with both queues' locks held. `settle` is told what was
    /// done before the locks are released. Returns how many were taken.
    pub(super) fn requeue<'a>(
        &'a self,
        all: bool,
        to: impl FnOnce() -> Option<&'a Self>,
        wakes: impl FnOnce() -> bool,
        settle: impl FnOnce(Requeued),
    ) -> usize {
        let from = self.lock();
        let Some(to) = to() else { return 0 };
        let to = to.lock();
        let wakes = wakes();
        let first = from.0.head.get();
        let (mut last, mut rest, mut count) = (ptr::null(), first, 0);
        while let Some(waiter) = from.at(rest)
            && (all || count == 0)
        {
            // The original notes here which queue the waiter is on.
            waiter.handed.set(0);
            (last, rest, count) = (rest, waiter.next.get(), count + 1);
        }
        let woken = from.at(first).filter(|_| wakes);
        let moved = woken.map_or(first, |woken| woken.next.get());
        from.begin_at(rest);
        let moves = usize::from(woken.is_some()) < count;
        if moves {
            to.append(moved, last);
        }
        settle(Requeued { wakes_and_moves: wakes && moves, leaves_others: !rest.is_null() });
        let woken = woken.map(Waiter::pointer);
        drop(to);
        drop(from);
        if let Some(woken) = woken {
            // SAFETY: invariants 1 and 2: this thread took it off the queue and has not woken it.
            unsafe { Self::wake(woken.cast()) };
        }
        count
    }

    /// Wakes a waiter that was taken off the queue; the next one.
    ///
    /// # Safety
    /// The caller took it off the queue and has not woken it.
    unsafe fn wake(waiter: *const Waiter<P>) -> *const () {
        // SAFETY: invariant 2. The place of the word is all that is used once the word is 0.
        unsafe {
            let next = (*waiter).next.get();
            let word = &raw const (*waiter).sleeps;
            // Release pairs with the Acquire in `park`.
            (*word).store(0, Release);
            P::unpark(word);
            next
        }
    }

    // ---- the queue's lock ----

    fn lock(&self) -> Held<'_, V, P> {
        // Acquire pairs with the Release in `Held::drop`, here and below.
        if self.lock.compare_exchange_weak(FREE, TAKEN, Acquire, Relaxed).is_err() {
            self.wait();
        }
        Held(self)
    }

    #[cold]
    fn wait(&self) {
        let mut spin = Spin::<V, P>::new();
        let mut mine = TAKEN;
        let mut word = self.lock.load(Relaxed);
        loop {
            if word == FREE {
                match self.lock.compare_exchange_weak(FREE, mine, Acquire, Relaxed) {
                    Ok(_) => return,
                    Err(found) => word = found,
                }
                continue;
            }
            if word == TAKEN && spin.goes_on() {
                word = self.lock.load(Relaxed);
                continue;
            }
            if word == TAKEN
                && let Err(found) =
                    self.lock.compare_exchange_weak(TAKEN, CONTENDED, Relaxed, Relaxed)
            {
                word = found;
                continue;
            }
            P::park(&self.lock, CONTENDED, None);
            // Who has slept cannot know whether others do.
            mine = CONTENDED;
            spin = Spin::new();
            word = self.lock.load(Relaxed);
        }
    }
}

/// A queue with its lock held.
struct Held<'a, V: Version, P: Platform>(&'a Queue<V, P>);

impl<V: Version, P: Platform> Drop for Held<'_, V, P> {
    fn drop(&mut self) {
        if self.0.lock.swap(FREE, Release) == CONTENDED {
            P::unpark(&raw const self.0.lock);
        }
    }
}

impl<V: Version, P: Platform> Held<'_, V, P> {
    /// The waiter at this address, which is on the queue.
    fn at(&self, waiter: *const ()) -> Option<&Waiter<P>> {
        // SAFETY: it lives while it is on the queue (invariant 2), and does not leave it while `self` has the lock, unless
        // `self` lets it (invariant 1).
        unsafe { waiter.cast::<Waiter<P>>().as_ref() }
    }

    fn push(&self, waiter: &Waiter<P>) {
        let last = self.0.tail.get();
        waiter.next.set(ptr::null());
        match self.at(last) {
            Some(last) => last.next.set(waiter.pointer()),
            None => self.0.head.set(waiter.pointer()),
        }
        self.0.tail.set(waiter.pointer());
    }

    /// Appends waiters that are linked from `first` to `last` and on no queue.
    fn append(&self, first: *const (), last: *const ()) {
        if let Some(last) = self.at(last) {
            last.next.set(ptr::null());
        }
        match self.at(self.0.tail.get()) {
            Some(tail) => tail.next.set(first),
            None => self.0.head.set(first),
        }
        self.0.tail.set(last);
    }

    /// Leaves the waiters before `head` off the queue.
    fn begin_at(&self, head: *const ()) {
        self.0.head.set(head);
        if head.is_null() {
            self.0.tail.set(ptr::null());
        }
    }

    /// Whether this wake-up is to be a handover; then the next one is due within 1 ms.
    fn is_due(&self) -> bool {
        /// Handovers are at most this far apart, ns; the original's figure.
        const MOST: u32 = 1_000_000;
        let now = P::now();
        if now <= self.0.due.get() {
            return false;
        }
        let seed = chance(self.0.seed.get());
        self.0.seed.set(seed);
        self.0.due.set(now + u64::from(seed % MOST));
        true
    }
}

/// The next number by chance after this one; 0 begins (`xorshift`, Marsaglia 2003).
fn chance(seed: u32) -> u32 {
    let mut next = seed.max(1);
    next ^= next << 13;
    next ^= next >> 17;
    next ^ next << 5
}

// SAFETY: what is no atomic is read and changed under the lock alone (invariant 1).
unsafe impl<V: Version, P: Platform> Send for Queue<V, P> {}
// SAFETY: as above.
unsafe impl<V: Version, P: Platform> Sync for Queue<V, P> {}

/// A wake-up step by step: the waiters stand in for threads that sleep.
#[cfg(test)]
mod tests {
    use core::slice;

    use super::super::{V0_12, V0_13};
    use super::*;
    use fairlock::platform::Os;

    fn waiters<const N: usize>(wants: [Wants; N]) -> [Waiter<Os>; N] {
        wants.map(Waiter::new)
    }

    fn queue_up<V: Version>(queue: &Queue<V, Os>, waiters: &[Waiter<Os>]) {
        let held = queue.lock();
        waiters.iter().for_each(|waiter| held.push(waiter));
    }

    fn are_awake<const N: usize>(waiters: &[Waiter<Os>; N]) -> [bool; N] {
        waiters.each_ref().map(|waiter| waiter.sleeps.load(Relaxed) == 0)
    }

    fn unpark<V: Version>(queue: &Queue<V, Os>, hands_over: bool) -> Taken {
        let mut seen = None;
        queue.unpark(|taken| {
            seen = Some(taken);
            hands_over
        });
        seen.expect("it settles once")
    }

    #[test]
    fn a_wake_up_takes_the_readers_up_to_the_first_writer_and_that_writer() {
        use Wants::{Alone, Shared};
        let queue = Queue::<V0_13, Os>::NEW;
        let waiters = waiters([Shared, Shared, Alone, Shared, Alone, Alone, Shared]);
        queue_up(&queue, &waiters);
        let takes = |shared, alone, leaves_others, awake: usize| {
            let taken = Taken { shared, alone, leaves_others, is_due: false };
            assert_eq!(unpark(&queue, false), taken);
            assert_eq!(are_awake(&waiters), [0, 1, 2, 3, 4, 5, 6].map(|at| at < awake));
        };
        takes(2, true, true, 3);
        takes(1, true, true, 5);
        takes(0, true, true, 6);
        takes(1, false, false, 7);
        takes(0, false, false, 7);
        assert!(waiters.iter().all(|waiter| waiter.handed.get() == 0));
    }

    #[test]
    fn those_that_are_woken_are_told_whether_they_were_handed_the_lock() {
        let queue = Queue::<V0_13, Os>::NEW;
        let waiters = waiters([Wants::Shared, Wants::Alone, Wants::Shared]);
        queue_up(&queue, &waiters);
        unpark(&queue, true);
        unpark(&queue, false);
        assert_eq!(waiters.each_ref().map(|waiter| waiter.handed.get()), [1, 1, 0]);
    }

    #[test]
    fn who_comes_after_a_wake_up_queues_up_behind_those_who_were_left() {
        let queue = Queue::<V0_13, Os>::NEW;
        let [first, second, third] = waiters([Wants::Alone; 3]);
        for waiter in [&first, &second] {
            queue.lock().push(waiter);
        }
        unpark(&queue, false);
        queue.lock().push(&third);
        assert!(unpark(&queue, false).leaves_others);
        assert_eq!(second.sleeps.load(Relaxed), 0);
        assert!(!unpark(&queue, false).leaves_others);
        assert_eq!(third.sleeps.load(Relaxed), 0);
        queue.lock().push(&first);
        assert!(unpark(&queue, false).alone);
    }

    #[test]
    fn those_that_are_requeued_stand_behind_those_that_are_there() {
        let (from, to) = (Queue::<V0_13, Os>::NEW, Queue::NEW);
        let [there, one, two, three, four] = waiters([Wants::Alone; 5]);
        queue_up(&to, slice::from_ref(&there));
        for waiter in [&one, &two, &three, &four] {
            from.lock().push(waiter);
        }
        let requeue = |all, wakes| {
            let mut seen = None;
            let count = from.requeue(all, || Some(&to), || wakes, |requeued| seen = Some(requeued));
            let Requeued { wakes_and_moves, leaves_others } = seen.expect("it settles once");
            (count, wakes_and_moves, leaves_others)
        };
        let is_awake = |waiter: &Waiter<Os>| waiter.sleeps.load(Relaxed) == 0;
        assert_eq!(requeue(false, true), (1, false, true));
        assert!(is_awake(&one));
        assert_eq!(requeue(false, false), (1, false, true));
        assert!(!is_awake(&two));
        assert_eq!(requeue(true, true), (2, true, false));
        assert!(is_awake(&three));
        for waiter in [&there, &two, &four] {
            assert!(!is_awake(waiter));
            assert!(unpark(&to, false).alone && is_awake(waiter));
        }
        assert_eq!(requeue(true, true), (0, false, false));
        assert_eq!(from.requeue(true, || None, || true, |_| unreachable!()), 0);
    }

    #[test]
    fn nobody_sleeps_who_need_not() {
        let queue = Queue::<V0_12, Os>::NEW;
        assert!(!queue.park(Wants::Alone, || false));
        assert!(!unpark(&queue, false).alone);
    }

    #[test]
    fn a_handover_is_due_at_the_first_wake_up_of_somebody_and_then_within_a_millisecond() {
        let queue = Queue::<V0_12, Os>::NEW;
        assert!(!unpark(&queue, false).is_due);
        assert_eq!(queue.due.get(), 0);
        let waiters = waiters([Wants::Alone; 3]);
        queue_up(&queue, &waiters);
        assert!(unpark(&queue, true).is_due);
        let before = Os::now();
        // Not before that moment,
        queue.due.set(u64::MAX);
        assert!(!unpark(&queue, false).is_due);
        // and at the first wake-up after it.
        queue.due.set(before - 1);
        assert!(unpark(&queue, true).is_due);
        assert!((before..Os::now() + 1_000_000).contains(&queue.due.get()));
    }

    #[test]
    fn handovers_are_half_a_millisecond_apart_on_average() {
        let mut seed = 0;
        let mut next = || {
            seed = chance(seed);
            seed
        };
        assert_eq!([next(), next(), next()], [270_369, 67_634_689, 2_647_435_461]);
        let sum: u64 = (0..10_000).map(|_| u64::from(next() % 1_000_000)).sum();
        assert!((495_000..505_000).contains(&(sum / 10_000)), "{sum}");
    }
}
