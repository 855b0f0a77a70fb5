//! Stand-in for the engine's lock registry.

use crate::plan::LabError;

/// Every lock by name, with one line about it.
pub fn names() -> Vec<(&'static str, &'static str)> {
    vec![
        ("timefair", "Fairlock's flagship policy"),
        ("linux-3.10", "rwsem of Linux 3.10"),
        ("linux-5.1", "rwsem of Linux 5.1"),
        ("linux-5.2", "rwsem of Linux 5.2"),
        ("linux-5.3", "rwsem of Linux 5.3"),
        ("linux-5.11", "rwsem of Linux 5.11"),
        ("no-reader-steal", "rwsem without reader stealing"),
        ("phase-fair", "phases of readers and writers alternate"),
        ("mutex", "Fairlock's adaptive mutex"),
        ("std", "std::sync::RwLock"),
        ("std-mutex", "std::sync::Mutex"),
        ("parking_lot", "parking_lot::RwLock"),
        ("usync", "usync::RwLock"),
        ("sharded", "crossbeam ShardedLock"),
        ("pthread", "pthread_rwlock, default kind"),
        ("pthread-writer", "pthread_rwlock, prefers writers"),
    ]
}

/// The lock called `name`.
pub fn find(name: &str) -> Result<(), LabError> {
    if names().iter().any(|(known, _)| *known == name) {
        return Ok(());
    }
    let known: Vec<_> = names().iter().map(|(name, _)| *name).collect();
    Err(LabError(format!(
        "unknown lock \"{name}\"; the locks are: {}",
        known.join(", ")
    )))
}
