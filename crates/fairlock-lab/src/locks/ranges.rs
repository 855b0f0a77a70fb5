//! Locks over a file: range locks, and any lock of the [registry](super::registry) around all of it.
//!
//! Adding a range lock is one line in [`registry`]'s table.

use std::collections::BTreeMap;

use crossbeam_utils::CachePadded;
use fairlock::platform::{Os, Platform};
use fairlock::range::{Extent, RangeLock, RawRangeLock, Slotted};
use fairlock_reference::range::{Naive, SharedWord, Under};
use fairlock_reference::spin::RawMcs;
use fairlock_sim::Sim;
use fairlock_sim::timed::Unpreempted;

use super::{LabLock, New, Protected, UseLock};
use crate::error::LabError;

/// What a workload over a file needs of a lock.
pub trait FileLock: Send + Sync + 'static {
    /// What the lock is made of.
    type Platform: Platform;
    /// Whether a read sees all of a write or nothing of it.
    const IS_ATOMIC: bool = true;
    /// Runs `section` with the range held shared.
    fn read<R>(&self, extent: Extent, section: impl FnOnce() -> R) -> R;
    /// Runs `section` with the range held exclusively.
    fn write<R>(&self, extent: Extent, section: impl FnOnce() -> R) -> R;
    /// Slow-path events counted by this lock since it was made; empty if it counts none.
    fn events(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// No lock, as page caches are read by most kernels.
pub struct NoLock<P>(std::marker::PhantomData<fn() -> P>);

impl<P> NoLock<P> {
    const BYTES: usize = 0;

    fn new() -> Self {
        NoLock(std::marker::PhantomData)
    }
}

impl<P: Platform> FileLock for NoLock<P> {
    type Platform = P;
    const IS_ATOMIC: bool = false;

    #[inline]
    fn read<R>(&self, _extent: Extent, section: impl FnOnce() -> R) -> R {
        section()
    }

    #[inline]
    fn write<R>(&self, _extent: Extent, section: impl FnOnce() -> R) -> R {
        section()
    }
}

/// A range lock, on lines of its own wherever it is.
pub struct Ranged<R: RawRangeLock>(CachePadded<RangeLock<R>>);

impl<R: RawRangeLock> Ranged<R> {
    const BYTES: usize = size_of::<RangeLock<R>>();

    fn new() -> Self {
        Ranged(CachePadded::new(RangeLock::new_in()))
    }
}

impl<R: RawRangeLock + 'static> FileLock for Ranged<R> {
    type Platform = R::Platform;

    #[inline]
    fn read<T>(&self, extent: Extent, section: impl FnOnce() -> T) -> T {
        let _held = self.0.read(extent);
        section()
    }

    #[inline]
    fn write<T>(&self, extent: Extent, section: impl FnOnce() -> T) -> T {
        let _held = self.0.write(extent);
        section()
    }
}

/// One lock over the whole file: what a vnode or inode lock is.
pub struct Whole<L>(pub L);

impl<L: LabLock> FileLock for Whole<L> {
    type Platform = L::Platform;

    #[inline]
    fn read<R>(&self, _extent: Extent, section: impl FnOnce() -> R) -> R {
        self.0.read(|_| section())
    }

    #[inline]
    fn write<R>(&self, _extent: Extent, section: impl FnOnce() -> R) -> R {
        self.0.write(|_| section())
    }

    fn events(&self) -> BTreeMap<String, u64> {
        self.0.events()
    }
}

/// The lock under [`RangeLock`] where nothing else is said.
type DefaultRange<P> = Slotted<P>;

/// What is to be done with a lock over a file, see [`UseLock`].
pub trait UseFileLock {
    /// What comes of it.
    type Output;
    /// Does it under a lock of this type, over which nothing is held.
    fn with<L: FileLock>(self, lock: L) -> Self::Output;
}

/// The same with any lock around the whole file.
pub(super) struct OverAll<V>(pub(super) V);

impl<V: UseFileLock> UseLock for OverAll<V> {
    type Output = V::Output;

    #[inline(never)]
    fn with<L: LabLock>(self, new: New<L>) -> V::Output {
        self.0.with(Whole(new(Protected::new())))
    }
}

/// A registered range lock.
pub struct RangeDescriptor {
    /// The name used in plans and rows.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// Bytes of a lock over which nothing is held.
    pub bytes: usize,
}

macro_rules! registry {
    ($($name:literal $lock:ty, simulated: $simulated:ty, $about:literal;)*) => {
        /// Every registered range lock, in listing order.
        pub fn registry() -> &'static [RangeDescriptor] {
            const LOCKS: &[RangeDescriptor] = &[$(RangeDescriptor {
                name: $name,
                about: $about,
                bytes: <$lock>::BYTES,
            }),*];
            LOCKS
        }

        pub(super) fn with_real<V: UseFileLock>(name: &str, what: V) -> Option<V::Output> {
            match name {
                $($name => Some(what.with(<$lock>::new())),)*
                _ => None,
            }
        }

        pub(super) fn with_simulated<V: UseFileLock>(name: &str, what: V) -> Option<V::Output> {
            match name {
                $($name => Some(what.with(<$simulated>::new())),)*
                _ => None,
            }
        }
    };
}

registry! {
    "range" Ranged<DefaultRange<Os>>, simulated: Ranged<DefaultRange<Sim>>, "RangeLock, the default";
    "naive" Ranged<Naive<Os>>, simulated: Ranged<Naive<Sim>>, "a mutex over one list of all ranges, as FreeBSD's was until 2023";
    "naive-mcs" Ranged<Naive<Os, Under<RawMcs<Os>>>>, simulated: Ranged<Naive<Sim, Under<Unpreempted<RawMcs<Sim>>>>>, "naive whose mutex spins for as long as it takes, as a kernel's does; to be simulated";
    "shared-word" Ranged<SharedWord<Os>>, simulated: Ranged<SharedWord<Sim>>, "one word for the whole file until the first conflict, then as naive; FreeBSD's today";
    "none" NoLock<Os>, simulated: NoLock<Sim>, "no lock: reads can be torn, which is counted";
}

/// The range lock of this name.
pub fn find(name: &str) -> Option<&'static RangeDescriptor> {
    registry().iter().find(|lock| lock.name == name)
}

/// All their names.
pub fn names() -> Vec<&'static str> {
    registry().iter().map(|lock| lock.name).collect()
}

/// The names of range locks and of all locks that run there.
pub fn all(on_simulated_machine: bool) -> Vec<&'static str> {
    let others = if on_simulated_machine { super::all_simulated() } else { super::all() };
    [names(), others].concat()
}

/// Whether a file can be under a lock of this name, a range lock or one of all locks.
///
/// # Errors
/// As [`super::find`] and [`super::find_simulated`], with the range locks among the valid names.
pub fn check(name: &str, on_simulated_machine: bool) -> Result<(), LabError> {
    if find(name).is_some() {
        return Ok(());
    }
    let found = if on_simulated_machine { super::find_simulated(name) } else { super::find(name) };
    found.map(drop).map_err(|error| match error {
        LabError::UnknownLock { name, known } => {
            LabError::UnknownLock { name, known: [names(), known].concat() }
        }
        LabError::NotSimulated { name, known } => {
            LabError::NotSimulated { name, known: [names(), known].concat() }
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_range_lock_has_the_name_of_another_lock() {
        let unique: BTreeSet<_> = names().into_iter().collect();
        assert_eq!(unique.len(), registry().len());
        for name in names() {
            assert!(super::super::find(name).is_err(), "{name}");
        }
    }

    #[test]
    fn unknown_names_are_answered_with_range_locks_and_others() {
        assert!(check("naive", true).is_ok() && check("std", false).is_ok());
        let unknown = check("foo", false).unwrap_err().to_string();
        let real_only = check("usync", true).unwrap_err().to_string();
        for message in [unknown, real_only] {
            assert!(message.contains("naive") && message.contains("rwsem"), "{message}");
        }
    }
}
