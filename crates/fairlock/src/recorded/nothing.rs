//! Where nothing is counted: types without values.

use super::{Patience, Role};

/// What a lock has for its counts: nothing.
#[derive(Debug)]
pub struct Counts;

impl Counts {
    pub(crate) const NEW: Counts = Counts;

    #[inline(always)]
    pub(crate) fn of_lock(&self) -> Option<&CountedLock> {
        None
    }
}

/// No lock has one.
#[derive(Debug)]
pub enum CountedLock {}

/// No operation is.
#[inline(always)]
pub(crate) fn is_counted(_lock: Option<&CountedLock>) -> bool {
    false
}

/// There is none.
#[derive(Debug)]
pub enum Acquisition {}

impl Acquisition {
    #[inline(always)]
    pub(crate) fn begins(
        _lock: Option<&CountedLock>,
        _role: Role,
        _patience: Patience,
    ) -> Option<Acquisition> {
        None
    }
    #[inline(always)]
    pub(crate) fn waits<R>(&self, _for_writer: bool, _wait: impl FnOnce() -> R) -> R {
        match *self {}
    }
    #[inline(always)]
    pub(crate) fn ends(self, _is_granted: bool) {
        match self {}
    }
}

/// There is none.
#[derive(Debug)]
pub enum Release {}

impl Release {
    #[inline(always)]
    pub(crate) fn begins(_lock: Option<&CountedLock>, _role: Role) -> Option<Release> {
        None
    }
    #[inline(always)]
    pub(crate) fn ends(self) {
        match self {}
    }
}
