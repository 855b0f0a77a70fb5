//! Data that notices when two threads touch it at once.

use std::sync::atomic::Ordering::Relaxed;

use fairlock::platform::AtomicCell;

use super::backend::{Explore, Flaw, Sound};
use crate::platform::Atomic;

/// A number for a lock to protect. Its operations are several steps each, so in some execution
/// of a lock that lets a writer in beside others they meet: then readers panic, or additions are
/// lost.
///
/// ```
/// use fairlock_sim::explore::Guarded;
/// let number = Guarded::new();
/// number.add();
/// assert_eq!(number.get(), 1);
/// ```
pub struct Guarded<F: Flaw = Sound> {
    value: Atomic<u32, Explore<F>>,
}

impl Guarded {
    /// Zero, on a platform without flaws.
    pub fn new() -> Self {
        Self::new_on()
    }
}

impl<F: Flaw> Guarded<F> {
    /// Zero.
    pub fn new_on() -> Self {
        Guarded { value: AtomicCell::new(0) }
    }

    /// Reads it.
    ///
    /// # Panics
    /// If somebody writes it at the same time.
    pub fn get(&self) -> u32 {
        let value = self.value.load(Relaxed);
        assert_eq!(value, self.value.load(Relaxed), "somebody writes beside a reader");
        value
    }

    /// Adds one, in two steps.
    ///
    /// # Panics
    /// If somebody writes it at the same time.
    pub fn add(&self) {
        let value = self.value.load(Relaxed);
        self.value.store(value + 1, Relaxed);
        assert_eq!(self.value.load(Relaxed), value + 1, "somebody writes beside a writer");
    }
}

impl Default for Guarded {
    fn default() -> Self {
        Self::new()
    }
}
