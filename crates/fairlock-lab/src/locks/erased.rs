//! A lock of any type around data of one platform, behind a table of functions.
//!
//! Workloads are compiled once for it instead of once for each lock, where a call through a table changes nothing: on
//! simulated machines, which do not see it, for counted twins, of which only the events are read, where sections take
//! microseconds, and in replays, which take off what a step costs the lab.

use std::collections::BTreeMap;

use crossbeam_utils::CachePadded;
use fairlock::platform::Platform;

use super::{Access, LabLock, Protected};

/// A lock runs a section that it is given, and it does so once.
const ONCE: &str = "a lock runs a section once";

/// See the module. The lock is alone on its cache lines.
pub struct Erased<P: Platform>(Box<dyn AnyLock<P>>);

impl<P: Platform> Erased<P> {
    /// This lock.
    pub fn of(lock: impl LabLock<Platform = P>) -> Erased<P> {
        Erased(Box::new(CachePadded::new(lock)))
    }

    /// The type of the lock within.
    #[cfg(test)]
    pub fn type_name(&self) -> &'static str {
        self.0.type_name()
    }
}

impl<P: Platform> LabLock for Erased<P> {
    type Platform = P;

    fn read<R>(&self, section: impl FnOnce(&Protected<P>) -> R) -> R {
        let (mut section, mut done) = (Some(section), None);
        self.0.read(&mut |data| done = section.take().map(|section| section(data)));
        done.expect(ONCE)
    }

    fn try_read<R>(&self, section: impl FnOnce(&Protected<P>) -> R) -> Option<R> {
        let (mut section, mut done) = (Some(section), None);
        self.0.try_read(&mut |data| done = section.take().map(|section| section(data)));
        done
    }

    fn write<R>(&self, section: impl FnOnce(&Protected<P>) -> R) -> R {
        let (mut section, mut done) = (Some(section), None);
        self.0.write(&mut |data| done = section.take().map(|section| section(data)));
        done.expect(ONCE)
    }

    type Hold<'a> = Box<dyn AnyHold + 'a>;

    fn hold(&self, access: Access) -> Self::Hold<'_> {
        self.0.hold(access)
    }

    fn try_hold(&self, access: Access) -> Option<Self::Hold<'_>> {
        self.0.try_hold(access)
    }

    fn events(&self) -> BTreeMap<String, u64> {
        self.0.events()
    }
}

/// What holds a lock until it is dropped.
pub trait AnyHold {}

impl<T> AnyHold for T {}

/// [`LabLock`], as an object.
trait AnyLock<P: Platform>: Send + Sync {
    fn read(&self, section: &mut dyn FnMut(&Protected<P>));
    fn try_read(&self, section: &mut dyn FnMut(&Protected<P>));
    fn write(&self, section: &mut dyn FnMut(&Protected<P>));
    fn hold(&self, access: Access) -> Box<dyn AnyHold + '_>;
    fn try_hold(&self, access: Access) -> Option<Box<dyn AnyHold + '_>>;
    fn events(&self) -> BTreeMap<String, u64>;
    #[cfg(test)]
    fn type_name(&self) -> &'static str;
}

impl<L: LabLock> AnyLock<L::Platform> for CachePadded<L> {
    fn read(&self, section: &mut dyn FnMut(&Protected<L::Platform>)) {
        (**self).read(section);
    }

    fn try_read(&self, section: &mut dyn FnMut(&Protected<L::Platform>)) {
        (**self).try_read(section);
    }

    fn write(&self, section: &mut dyn FnMut(&Protected<L::Platform>)) {
        (**self).write(section);
    }

    fn hold(&self, access: Access) -> Box<dyn AnyHold + '_> {
        Box::new((**self).hold(access))
    }

    fn try_hold(&self, access: Access) -> Option<Box<dyn AnyHold + '_>> {
        Some(Box::new((**self).try_hold(access)?))
    }

    fn events(&self) -> BTreeMap<String, u64> {
        (**self).events()
    }

    #[cfg(test)]
    fn type_name(&self) -> &'static str {
        std::any::type_name::<L>()
    }
}
