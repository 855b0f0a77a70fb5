//! What a few threads do with a lock, written once for every checker.
//!
//! A scenario says what each thread does, as a function over a lock with what it protects, and how
//! many additions may have been made when all are done. Which platform the lock is on, and how it is
//! noticed that two were let in beside each other, is up to who runs it: Loom
//! ([`loom_platform::check`](crate::loom_platform::check)), the explorer
//! ([`explored::program`](crate::explored::program)) or real threads
//! ([`threads::repeat`](crate::threads::repeat)).

use std::ops::RangeInclusive;

/// A number that a lock protects. Somebody who gets at it beside a writer is noticed.
pub trait Number: 'static {
    /// Zero.
    fn zero() -> Self;

    /// The number. Callers keep writers away.
    fn get(&self) -> u32;

    /// Adds one. Callers are alone.
    fn add(&self);
}

/// A lock, and the numbers that it protects.
pub trait Subject: Sized + 'static {
    /// Free, and nothing added.
    fn new() -> Self;

    /// What was added by the threads of a scenario, all of whom have left.
    ///
    /// # Panics
    /// If the lock is not free.
    fn additions(&self) -> u32;
}

/// What one thread does.
pub type Step<S> = fn(&S);

/// A few threads with one lock.
#[derive(Debug)]
pub struct Scenario<S> {
    /// Who they are.
    pub name: &'static str,
    /// How it begins.
    pub new: fn() -> S,
    /// One for each thread.
    pub steps: Vec<Step<S>>,
    /// How many additions they may make together.
    pub added: RangeInclusive<u32>,
}

impl<S> Clone for Scenario<S> {
    fn clone(&self) -> Self {
        Scenario { steps: self.steps.clone(), added: self.added.clone(), ..*self }
    }
}

impl<S: Subject> Scenario<S> {
    /// With a new lock.
    pub fn new<const N: usize>(
        name: &'static str,
        steps: [Step<S>; N],
        added: RangeInclusive<u32>,
    ) -> Self {
        Scenario { name, new: S::new, steps: steps.into(), added }
    }

    /// Begins with such a lock instead.
    pub fn beginning_with(self, new: fn() -> S) -> Self {
        Scenario { new, ..self }
    }

    /// With so many additions, whatever was said before.
    pub fn adding(self, added: RangeInclusive<u32>) -> Self {
        Scenario { added, ..self }
    }

    /// All threads are done.
    ///
    /// # Panics
    /// If the lock is not free, or something was lost or added twice.
    pub fn assert_end(&self, subject: &S) {
        let additions = subject.additions();
        assert!(self.added.contains(&additions), "{}: {additions} additions", self.name);
    }
}

/// Functions that return a scenario each, generic as the steps are.
macro_rules! scenarios {
    ($subject:ty where $a:ident: $of_a:ident, $b:ident: $of_b:ident;
     $($name:ident $text:literal: [$($step:ident),*] => $added:expr;)*) => {$(
        #[doc = concat!("In words: ", $text, ".")]
        pub fn $name<$a: $of_a, $b: $of_b>() -> $crate::scenario::Scenario<$subject> {
            $crate::scenario::Scenario::new($text, [$($step::<$a, $b>),*], $added)
        }
    )*};
}

/// Functions that return several.
macro_rules! lists {
    ($subject:ty where $a:ident: $of_a:ident, $b:ident: $of_b:ident;
     $($(#[$doc:meta])* $name:ident: [$($scenario:ident),* $(,)?];)*) => {$(
        $(#[$doc])*
        pub fn $name<$a: $of_a, $b: $of_b>() -> Vec<$crate::scenario::Scenario<$subject>> {
            vec![$($scenario()),*]
        }
    )*};
}

pub(crate) use {lists, scenarios};
