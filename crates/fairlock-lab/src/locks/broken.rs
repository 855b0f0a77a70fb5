//! A lock that lets everybody in.

use super::{LabLock, Protected};

/// No lock at all. A workload that does not fail with it checks nothing.
pub struct Broken(Protected);

impl LabLock for Broken {
    fn new(data: Protected) -> Broken {
        Broken(data)
    }

    fn read<R>(&self, section: impl FnOnce(&Protected) -> R) -> R {
        section(&self.0)
    }

    fn write<R>(&self, section: impl FnOnce(&Protected) -> R) -> R {
        section(&self.0)
    }
}
