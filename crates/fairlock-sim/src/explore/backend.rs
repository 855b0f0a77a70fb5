//! The seam: the locks' operations as steps of a run, and platforms with a flaw.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use fairlock::events::NoCounters;

use super::Cpus;
use super::execution::{AnyWord, Run};
use super::state::Waited;
use crate::platform::{Backend, Word};

/// Runs begin at this moment of the locks' clock, ns: what was never set looks as far ahead as the locks' ticks can say.
const ORIGIN: u64 = (1 << 37) + (1 << 30);

/// A moment of the locks' clock on the run's.
fn moment(ns: u64) -> u64 {
    ns.saturating_sub(ORIGIN)
}

/// The scheduler for which every atomic operation is a point where another thread may go on;
/// with a flaw, if one is given.
#[derive(Debug, Clone, Copy)]
pub struct Explore<F = Sound>(PhantomData<F>);

/// What is wrong with a platform: an explorer that does not notice is worth nothing.
pub trait Flaw: Send + Sync + 'static {
    /// `unpark` wakes nobody.
    const DEAF: bool = false;
    /// `park` does not look at the word before it sleeps.
    const BLIND: bool = false;
    /// Others may come between the load and the store of an update, so that a compare-exchange
    /// can succeed although the word has changed.
    const TORN: bool = false;
    /// A barrier on all CPUs is none.
    const NO_BARRIER: bool = false;
    /// A barrier on all CPUs is one on the caller's only.
    const OWN_BARRIER: bool = false;
    /// A full fence is none.
    const NO_FENCE: bool = false;
    /// No flaw: there is no asymmetric barrier, so locks use full fences.
    const SYMMETRIC: bool = false;
}

macro_rules! flaws {
    ($($(#[$doc:meta])* $name:ident { $($flaw:ident)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;
        impl Flaw for $name {
            $(const $flaw: bool = true;)*
        }
    )*};
}

flaws! {
    /// Nothing is wrong.
    Sound {}
    /// Loses every wake-up.
    Deaf { DEAF }
    /// Sleeps without looking.
    Blind { BLIND }
    /// Has updates in two parts.
    Torn { TORN }
    /// Has no barrier on all CPUs.
    NoBarrier { NO_BARRIER }
    /// Has a barrier on the caller's CPU in place of one on all.
    OwnBarrier { OWN_BARRIER }
    /// Has no full fences.
    NoFence { NO_FENCE }
    /// Nothing is wrong, but it has no asymmetric barrier.
    Symmetric { SYMMETRIC }
    /// Has neither an asymmetric barrier nor full fences.
    SymmetricNoFence { SYMMETRIC NO_FENCE }
}

// Not inlined: the tests that explore locks are hardly optimized, and this crate is.

#[inline(never)]
fn load(word: &dyn AnyWord) -> u64 {
    Run::current().map_or_else(|| word.get(), |run| run.load(word))
}

#[inline(never)]
fn store(word: &dyn AnyWord, bits: u64, may_wait: bool) {
    match Run::current() {
        None => word.set(bits),
        Some(run) => run.store(word, bits, may_wait),
    }
}

#[inline(never)]
fn update(word: &dyn AnyWord, change: &dyn Fn(u64) -> Option<u64>, torn: bool) -> u64 {
    match Run::current() {
        None => {
            let old = word.get();
            if let Some(new) = change(old) {
                word.set(new);
            }
            old
        }
        Some(run) => run.update(word, change, torn),
    }
}

#[inline(never)]
fn gone(word: &dyn AnyWord) {
    if let Some(run) = Run::current() {
        run.gone(word);
    }
}

/// Spins and budgets are some multiple of this; the clock stands still or jumps beyond them.
const WAKE_LATENCY_NS: u32 = 8_000;

// SAFETY: one simulated thread runs at a time, and an operation is one step; stores wait in their thread's
// buffer where a program asks for that, as processors have it. Flaws are wrong on purpose, see `Atomic`.
unsafe impl<F: Flaw> Backend for Explore<F> {
    type Counters = NoCounters;
    fn load<W: Word>(word: &W, _order: Ordering) -> u64 {
        load(word)
    }
    fn store<W: Word>(word: &W, bits: u64, order: Ordering) {
        store(word, bits, order != Ordering::SeqCst);
    }
    fn update<W: Word>(word: &W, change: impl Fn(u64) -> Option<u64>) -> u64 {
        update(word, &change, F::TORN)
    }
    fn gone<W: Word>(word: &W) {
        gone(word);
    }
    fn park<W: Word>(word: &W, expected: u64, deadline: Option<u64>) {
        let run = Run::current().expect("outside a run nobody could wake a sleeper");
        run.park(word, expected, deadline.map(moment), !F::BLIND);
    }
    fn unpark(address: usize, most: u32) -> u32 {
        Run::current().map_or(0, |run| run.unpark(address, if F::DEAF { 0 } else { most }))
    }
    fn relax(until: Option<u64>) -> bool {
        let run = Run::current().expect("outside a run nothing would change");
        run.wait_for_change(until.map(moment), until.is_some()) == Waited::ToTheEnd
            && until.is_some()
    }
    fn relax_turns(turns: u32) -> u32 {
        let run = Run::current().expect("outside a run nothing would change");
        if run.wait_for_change(None, true) == Waited::ToTheEnd { turns } else { 1 }
    }
    fn touch(_address: usize, _write: bool) {}
    fn give_way(_attempt: u32) {
        let run = Run::current().expect("outside a run there are no others");
        run.wait_for_change(None, true);
    }
    fn turn() -> u32 {
        Run::current().map_or(0, Run::turn)
    }
    fn now() -> u64 {
        ORIGIN + Run::current().map_or(0, Run::look)
    }
    fn wake_latency() -> u32 {
        WAKE_LATENCY_NS
    }
    fn note_wake_latency(_ns: u32) {}
    fn cpu() -> u32 {
        match Run::current().map(Run::running) {
            None | Some((_, Cpus::Unknown)) => 0,
            Some((_, Cpus::One)) => 1,
            Some((thread, Cpus::OneEach)) => thread as u32 + 1,
        }
    }
    fn cpus() -> u32 {
        match Run::current().map(Run::running) {
            // Where the CPUs are unknown they may be fewer than threads run.
            Some((_, Cpus::One | Cpus::Unknown)) => 1,
            _ => u32::MAX,
        }
    }
    fn thread() -> Option<usize> {
        Run::current().map(|run| run.running().0)
    }
    fn quietly<R>(act: impl FnOnce() -> R) -> R {
        Run::quietly(act)
    }
    const SHARES_BARRIERS: bool = false;
    const IS_ASYMMETRIC: bool = !F::SYMMETRIC;
    const FENCES: bool = !F::NO_FENCE;
    const ROUNDS_BEFORE_SLEEP: u32 = 1;
    fn barrier_on_all_cpus() {
        match Run::current() {
            Some(run) if F::OWN_BARRIER => run.full_fence(),
            Some(run) if !F::NO_BARRIER => run.barrier_on_all_cpus(),
            _ => {}
        }
    }
    fn fence() {
        if let Some(run) = Run::current().filter(|_| !F::NO_FENCE) {
            run.full_fence();
        }
    }
}
