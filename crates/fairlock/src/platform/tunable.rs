//! Constants that were chosen or found by trial, with a name and bounds, so that a simulated
//! platform can try others.

use core::ops::RangeInclusive;

/// A constant that was chosen or found by trial, and that
/// [`Platform::tuned`](super::Platform::tuned) may replace. No value within its bounds breaks a
/// lock: only speed and fairness change, and how long somebody may be passed.
/// [`tunables`](crate::tunables()) lists those of the locks.
///
/// ```
/// use fairlock::platform::{Os, Platform, Tunable};
/// const TURNS: Tunable = Tunable::new("turns", 8, 1..=64);
/// assert_eq!((TURNS.name(), TURNS.bounds()), ("turns", 1..=64));
/// assert_eq!(Os::tuned(TURNS), 8); // on real threads it is a constant
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunable {
    name: &'static str,
    value: u32,
    id: u64,
    least: u32,
    most: u32,
}

impl Tunable {
    /// A constant of this name.
    ///
    /// # Panics
    /// If the value is not within the bounds; while compiling, in a `const` item.
    pub const fn new(name: &'static str, value: u32, bounds: RangeInclusive<u32>) -> Self {
        let (least, most) = (*bounds.start(), *bounds.end());
        assert!(least <= value && value <= most, "a tunable's value is within its bounds");
        Tunable { name, value, id: fnv_1a(name), least, most }
    }

    /// The same constant of a lock or policy with a value of its own, whatever that is.
    #[inline(always)]
    #[must_use]
    pub const fn with_value(self, value: u32) -> Self {
        Tunable { value, ..self }
    }

    /// What it is called, in `snake_case`; times end in their unit.
    #[inline(always)]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What it is unless a platform says otherwise.
    #[inline(always)]
    pub const fn value(&self) -> u32 {
        self.value
    }

    /// A number that stands for the name, for a platform to find it by.
    #[inline(always)]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The values that a platform may replace it by.
    pub const fn bounds(&self) -> RangeInclusive<u32> {
        self.least..=self.most
    }
}

/// The hash of Fowler, Noll and Vo, variant 1a, in 64 bits.
const fn fnv_1a(text: &str) -> u64 {
    let (bytes, mut hash, mut at) = (text.as_bytes(), 0xcbf2_9ce4_8422_2325, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_hashed_as_published() {
        assert_eq!(fnv_1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv_1a("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn another_value_is_of_the_same_constant() {
        const ONE: Tunable = Tunable::new("one", 1, 1..=2);
        let seven = ONE.with_value(7);
        assert_eq!((seven.value(), seven.id(), seven.name()), (7, ONE.id(), "one"));
    }
}
