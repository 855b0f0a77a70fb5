//! Locks that are wrong on purpose.

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

/// Lets nobody in. A command that waits for it for ever is as broken.
pub struct Stuck;

fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

impl LabLock for Stuck {
    fn new(_data: Protected) -> Stuck {
        Stuck
    }

    fn read<R>(&self, _section: impl FnOnce(&Protected) -> R) -> R {
        wait_for_ever()
    }

    fn write<R>(&self, _section: impl FnOnce(&Protected) -> R) -> R {
        wait_for_ever()
    }
}
