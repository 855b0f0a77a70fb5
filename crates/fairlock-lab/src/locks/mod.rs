//! The locks under test: what a workload needs of one, and the registry of all of them.
//!
//! Adding a lock is one line in [`registry`]'s table. A workload is compiled once per lock,
//! so that no call in a measured section goes through a pointer.

mod adapters;
mod broken;
mod protected;
mod pthread;

use std::collections::BTreeMap;
use std::sync::OnceLock;

pub use adapters::{ApiMutex, ApiRwLock, UsyncRwLock};
pub use broken::Broken;
pub use protected::Protected;
pub use pthread::{PthreadPreferWriter, PthreadRwLock};

use crate::error::LabError;
use crate::measure::Repetition;
use crate::workloads::{Request, dio, mix};
use crate::world::RealWorld;

/// A lock around the workloads' [`Protected`] data.
///
/// Both sections get a shared reference: the data is made of atomics, so that a broken lock
/// shows as a violated invariant and never as undefined behaviour of the lab.
pub trait LabLock: Send + Sync + 'static {
    /// A free lock around `data`.
    fn new(data: Protected) -> Self;
    /// Runs `section` with the lock held shared.
    fn read<R>(&self, section: impl FnOnce(&Protected) -> R) -> R;
    /// Runs `section` with the lock held exclusively.
    fn write<R>(&self, section: impl FnOnce(&Protected) -> R) -> R;
    /// Slow-path events counted by this lock since it was made; empty if it counts none.
    fn events(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// Where a lock comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One of Fairlock's.
    Ours,
    /// One that people use today, for comparison.
    Peer,
    /// Wrong on purpose: proves that the workloads' checks catch a broken lock. Not listed.
    Broken,
}

type Runner<P> = fn(&Request<'_, RealWorld>, &P) -> Result<Repetition, LabError>;

/// A registered lock: what it is, and each workload compiled for it.
pub struct Descriptor {
    /// The name used in plans and rows.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// Where it comes from.
    pub kind: Kind,
    pub(crate) mix: Runner<mix::MixParams>,
    pub(crate) dio: Runner<dio::DioParams>,
}

impl Descriptor {
    fn of<L: LabLock>(kind: Kind, name: &'static str, about: &'static str) -> Descriptor {
        Descriptor {
            name,
            about,
            kind,
            mix: mix::run::<RealWorld, L>,
            dio: dio::run_under_lock::<RealWorld, L>,
        }
    }
}

macro_rules! registry {
    ($($kind:ident $name:literal $lock:ty, $about:literal;)*) => {
        vec![$(Descriptor::of::<$lock>(Kind::$kind, $name, $about)),*]
    };
}

/// Every registered lock, in listing order, the broken one included.
pub fn registry() -> &'static [Descriptor] {
    static REGISTRY: OnceLock<Vec<Descriptor>> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        registry! {
            Peer "std" std::sync::RwLock<Protected>, "std::sync::RwLock";
            Peer "std-mutex" std::sync::Mutex<Protected>, "std::sync::Mutex; readers take it exclusively";
            Peer "parking_lot" ApiRwLock<parking_lot::RawRwLock>, "parking_lot::RwLock";
            Peer "usync" UsyncRwLock, "usync::RwLock";
            Peer "sharded" crossbeam_utils::sync::ShardedLock<Protected>, "crossbeam ShardedLock: one lock per shard, writers take all";
            Peer "pthread" PthreadRwLock, "pthread_rwlock_t as it comes: readers first";
            Peer "pthread-writer" PthreadPreferWriter, "pthread_rwlock_t that prefers writers (non-recursive)";
            Broken "broken" Broken, "lets everybody in; every workload must notice";
        }
    })
}

/// The names that listings and error messages show: all but the broken lock.
pub fn names() -> Vec<&'static str> {
    registry().iter().filter(|lock| lock.kind != Kind::Broken).map(|lock| lock.name).collect()
}

/// The lock of this name.
///
/// # Errors
/// [`LabError::UnknownLock`] with all valid names.
pub fn find(name: &str) -> Result<&'static Descriptor, LabError> {
    registry()
        .iter()
        .find(|lock| lock.name == name)
        .ok_or_else(|| LabError::UnknownLock { name: name.to_string(), known: names() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let unique: BTreeSet<_> = registry().iter().map(|lock| lock.name).collect();
        assert_eq!(unique.len(), registry().len());
    }

    #[test]
    fn an_unknown_lock_is_answered_with_the_valid_names() {
        let message = match find("stf") {
            Ok(_) => panic!("`stf` is not registered"),
            Err(error) => error.to_string(),
        };
        assert!(message.contains("`stf`"), "{message}");
        for name in names() {
            assert!(message.contains(name), "{message}");
        }
        assert!(!message.contains("broken"), "{message}");
    }
}
