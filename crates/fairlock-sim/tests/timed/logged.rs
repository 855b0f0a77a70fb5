//! [`Sim`] with a log: what each thread does to which word, to be held against what a lock says that it does.

use std::cell::RefCell;
use std::sync::atomic::Ordering::{self, AcqRel};

use fairlock::events::NoCounters;
use fairlock::platform::{AtomicCell, AtomicInt, PlainCell, Platform, Zeroed};
use fairlock_sim::Sim;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Report, Setup, Thread};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) thread: usize,
    pub(crate) address: usize,
    pub(crate) what: &'static str,
}

thread_local! {
    static LOG: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// The log of the last run.
pub(crate) fn log_of_run(look: impl FnOnce(&[Entry])) {
    LOG.with_borrow(|log| look(log));
}

fn log<T>(word: *const T, what: &'static str) {
    if let Some(thread) = timed::thread() {
        let address = word.addr();
        LOG.with_borrow_mut(|log| log.push(Entry { thread, address, what }));
    }
}

/// [`Sim`] with a log.
pub(crate) struct Logged;

#[repr(transparent)]
pub(crate) struct Word<A>(pub(crate) A);

// SAFETY: `Sim`'s.
unsafe impl<V: Copy, A: AtomicCell<V>> AtomicCell<V> for Word<A> {
    const ZERO: Self = Word(A::ZERO);
    fn new(value: V) -> Self {
        Word(A::new(value))
    }
    fn value(&mut self) -> V {
        self.0.value()
    }
    fn load(&self, order: Ordering) -> V {
        log(self, "load");
        self.0.load(order)
    }
    fn store(&self, value: V, order: Ordering) {
        log(self, "store");
        self.0.store(value, order);
    }
    fn swap(&self, value: V, order: Ordering) -> V {
        log(self, "exchange");
        self.0.swap(value, order)
    }
    fn compare_exchange(
        &self,
        current: V,
        new: V,
        success: Ordering,
        failure: Ordering,
    ) -> Result<V, V> {
        let result = self.0.compare_exchange(current, new, success, failure);
        log(self, if result.is_ok() { "compare-exchange" } else { "compare-exchange fails" });
        result
    }
    fn compare_exchange_weak(
        &self,
        current: V,
        new: V,
        success: Ordering,
        failure: Ordering,
    ) -> Result<V, V> {
        self.compare_exchange(current, new, success, failure)
    }
}

// SAFETY: `Sim`'s.
unsafe impl<V: Copy, A: AtomicInt<V>> AtomicInt<V> for Word<A> {
    fn fetch_add(&self, value: V, order: Ordering) -> V {
        log(self, "add");
        self.0.fetch_add(value, order)
    }
    fn fetch_sub(&self, value: V, order: Ordering) -> V {
        log(self, "add");
        self.0.fetch_sub(value, order)
    }
    fn fetch_or(&self, value: V, order: Ordering) -> V {
        log(self, "or");
        self.0.fetch_or(value, order)
    }
    fn fetch_and(&self, value: V, order: Ordering) -> V {
        log(self, "and");
        self.0.fetch_and(value, order)
    }
}

#[repr(transparent)]
pub(crate) struct Plain<C>(C);

// SAFETY: `Sim`'s.
unsafe impl<T: Zeroed, C: PlainCell<T>> PlainCell<T> for Plain<C> {
    const ZERO: Self = Plain(C::ZERO);
    fn get(&self) -> T {
        log(self, "load");
        self.0.get()
    }
    fn set(&self, value: T) {
        log(self, "store");
        self.0.set(value);
    }
}

// SAFETY: `Sim`'s.
unsafe impl Platform for Logged {
    type AtomicU32 = Word<<Sim as Platform>::AtomicU32>;
    type AtomicU64 = Word<<Sim as Platform>::AtomicU64>;
    type AtomicPtr<T> = Word<<Sim as Platform>::AtomicPtr<T>>;
    type Cell<T: Zeroed> = Plain<<Sim as Platform>::Cell<T>>;
    type Counters = NoCounters;
    type Hold = fairlock::platform::Unchecked;
    fn park(word: &Self::AtomicU32, expected: u32, deadline: Option<u64>) {
        log(word, "sleep");
        Sim::park(&word.0, expected, deadline);
    }
    fn unpark(word: *const Self::AtomicU32) {
        log(word, "wake one");
        Sim::unpark(word.cast());
    }
    fn unpark_many(word: *const Self::AtomicU32, most: u32) -> u32 {
        log(word, if most == 1 { "wake one" } else { "wake all" });
        Sim::unpark_many(word.cast(), most)
    }
    fn relax(until: Option<u64>) -> bool {
        Sim::relax(until)
    }
    fn relax_turns(turns: u32) -> u32 {
        Sim::relax_turns(turns)
    }
    fn give_way(attempt: u32) {
        Sim::give_way(attempt);
    }
    fn turn() -> u32 {
        Sim::turn()
    }
    fn now() -> u64 {
        Sim::now()
    }
    fn wake_latency() -> u32 {
        Sim::wake_latency()
    }
    fn note_wake_latency(ns: u32) {
        Sim::note_wake_latency(ns);
    }
    fn cpu() -> u32 {
        Sim::cpu()
    }
}

impl Word<<Sim as Platform>::AtomicU64> {
    /// The first half of an exchange of a part.
    pub(crate) fn exchanged(&self) -> u64 {
        log(self, "exchange");
        self.0.fetch_add(0, AcqRel)
    }
}

/// On the example machine; the log begins anew.
pub(crate) fn run(bodies: Vec<Box<dyn FnOnce() + '_>>) -> Report {
    LOG.take();
    let profile = Profile::example();
    let setup = Setup { profile: &profile, seed: 1, pinned: true, timeline_ns: 0, tuning: None };
    let threads = bodies.into_iter().map(|body| Thread { body, priority: 0 }).collect();
    timed::run(&setup, threads, &|| false, &|| ()).expect("nobody waits for ever")
}
