//! Stand-in for the engine's lock registry.
#![allow(missing_docs)]

use crate::error::LabError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ours,
    Peer,
    Broken,
}

pub struct Descriptor {
    pub name: &'static str,
    pub about: &'static str,
    pub kind: Kind,
}

const fn lock(name: &'static str, about: &'static str) -> Descriptor {
    let kind = Kind::Peer;
    Descriptor { name, about, kind }
}

static REGISTRY: [Descriptor; 16] = [
    lock("timefair", "Fairlock's flagship policy"),
    lock("linux-3.10", "rwsem of Linux 3.10"),
    lock("linux-5.1", "rwsem of Linux 5.1"),
    lock("linux-5.2", "rwsem of Linux 5.2"),
    lock("linux-5.3", "rwsem of Linux 5.3"),
    lock("linux-5.11", "rwsem of Linux 5.11"),
    lock("no-reader-steal", "rwsem without reader stealing"),
    lock("phase-fair", "phases of readers and writers alternate"),
    lock("mutex", "Fairlock's adaptive mutex"),
    lock("std", "std::sync::RwLock"),
    lock("std-mutex", "std::sync::Mutex"),
    lock("parking_lot", "parking_lot::RwLock"),
    lock("usync", "usync::RwLock"),
    lock("sharded", "crossbeam ShardedLock"),
    lock("pthread", "pthread_rwlock, default kind"),
    lock("pthread-writer", "pthread_rwlock, prefers writers"),
];

pub fn registry() -> &'static [Descriptor] {
    &REGISTRY
}

pub fn names() -> Vec<&'static str> {
    registry().iter().map(|lock| lock.name).collect()
}

pub fn find(name: &str) -> Result<&'static Descriptor, LabError> {
    registry()
        .iter()
        .find(|lock| lock.name == name)
        .ok_or_else(|| LabError::UnknownLock {
            name: name.to_owned(),
            known: names(),
        })
}
