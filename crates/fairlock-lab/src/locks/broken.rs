//! Locks that are wrong on purpose.

use fairlock::platform::{Os, Platform};

use super::{Access, LabLock, NewLock, Protected};

/// No lock at all. A workload that does not fail with it checks nothing.
pub struct Broken<P: Platform = Os>(pub(super) Protected<P>);

impl<P: Platform> LabLock for Broken<P> {
    type Platform = P;

    fn read<R>(&self, section: impl FnOnce(&Protected<P>) -> R) -> R {
        section(&self.0)
    }

    fn try_read<R>(&self, section: impl FnOnce(&Protected<P>) -> R) -> Option<R> {
        Some(section(&self.0))
    }

    fn write<R>(&self, section: impl FnOnce(&Protected<P>) -> R) -> R {
        section(&self.0)
    }

    type Hold<'a> = ();

    fn hold(&self, _access: Access) {}

    fn try_hold(&self, _access: Access) -> Option<()> {
        Some(())
    }
}

impl<P: Platform> NewLock for Broken<P> {
    const BYTES: usize = 0;

    fn new(data: Protected<P>) -> Self {
        Broken(data)
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
    type Platform = Os;

    fn read<R>(&self, _section: impl FnOnce(&Protected) -> R) -> R {
        wait_for_ever()
    }

    fn try_read<R>(&self, _section: impl FnOnce(&Protected) -> R) -> Option<R> {
        None
    }

    fn write<R>(&self, _section: impl FnOnce(&Protected) -> R) -> R {
        wait_for_ever()
    }

    type Hold<'a> = ();

    fn hold(&self, _access: Access) {
        wait_for_ever()
    }

    fn try_hold(&self, _access: Access) -> Option<()> {
        None
    }
}

impl NewLock for Stuck {
    const BYTES: usize = 0;

    fn new(_data: Protected) -> Stuck {
        Stuck
    }
}
