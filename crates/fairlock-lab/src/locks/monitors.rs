//! Mutexes with condition variables: what queues, barriers and semaphores are built of.
//!
//! Each is a mutex of the [registry](super::registry) under the same name. Adding one is a line
//! in the table below and an implementation of [`Monitor`].

use std::sync::PoisonError;

use fairlock::platform::{Counting, Os, Platform};
use fairlock_reference::parking_lot::condvar::RawParkingLotCondvar;
use fairlock_reference::parking_lot::mutex::RawParkingLotMutex;
use fairlock_reference::parking_lot::{V0_12, V0_13, Version};
use fairlock_reference::rust_std::condvar::RawStdCondvar;
use fairlock_reference::rust_std::mutex::RawStdMutex;
use fairlock_sim::Sim;
use lock_api::{RawCondvar, RawMutex};

use super::pthread::PthreadCondvar;
use super::{
    ApiMutex, Broken, Build, Kind, LabLock, MutexOn, New, NewLock, ParkingLotMutex0_12, Protected,
    PthreadMutex, SimulatedParkingLotMutex,
};
use crate::error::LabError;

/// A mutex with condition variables.
pub trait Monitor: LabLock {
    /// A condition variable for this mutex.
    type Condvar: Send + Sync + 'static;
    /// A condition variable at which no thread waits.
    fn condvar() -> Self::Condvar;
    /// Acquires the mutex, and makes an attempt. As long as that answers none, waits at the
    /// condition variable and makes another one. The answer.
    fn write_when<T>(
        &self,
        condvar: &Self::Condvar,
        attempt: impl FnMut(&Protected<Self::Platform>) -> Option<T>,
    ) -> T;
    /// Notifies one thread that waits.
    fn notify_one(condvar: &Self::Condvar);
    /// Notifies all threads that wait.
    fn notify_all(condvar: &Self::Condvar);
}

/// The functions of a [`Monitor`], by the types' own.
macro_rules! functions {
    (
        $data:ty, |$self:ident, $condvar:ident, $guard:ident|
        new: $new:expr, lock: $lock:expr, wait: $wait:expr, one: $one:expr, all: $all:expr $(,)?
    ) => {
        #[inline]
        fn condvar() -> Self::Condvar {
            $new
        }

        #[inline]
        fn write_when<T>(
            &$self,
            $condvar: &Self::Condvar,
            mut attempt: impl FnMut(&$data) -> Option<T>,
        ) -> T {
            let mut $guard = $lock;
            loop {
                if let Some(result) = attempt(&$guard) {
                    return result;
                }
                $wait;
            }
        }

        #[inline]
        fn notify_one($condvar: &Self::Condvar) {
            $one;
        }

        #[inline]
        fn notify_all($condvar: &Self::Condvar) {
            $all;
        }
    };
}

impl<P: Platform> Monitor for MutexOn<P> {
    type Condvar = fairlock::Condvar<P>;

    functions! { Protected<P>, |self, condvar, guard|
        new: fairlock::Condvar::new_in(),
        lock: self.lock(),
        wait: condvar.wait(&mut guard),
        one: condvar.notify_one(),
        all: condvar.notify_all(),
    }
}

impl Monitor for std::sync::Mutex<Protected> {
    type Condvar = std::sync::Condvar;

    functions! { Protected, |self, condvar, guard|
        new: std::sync::Condvar::new(),
        lock: self.lock().unwrap_or_else(PoisonError::into_inner),
        wait: guard = condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
        one: condvar.notify_one(),
        all: condvar.notify_all(),
    }
}

impl Monitor for ParkingLotMutex0_12 {
    type Condvar = parking_lot_0_12::Condvar;

    functions! { Protected, |self, condvar, guard|
        new: parking_lot_0_12::Condvar::new(),
        lock: self.0.lock(),
        wait: condvar.wait(&mut guard),
        one: condvar.notify_one(),
        all: condvar.notify_all(),
    }
}

impl Monitor for PthreadMutex {
    type Condvar = PthreadCondvar;

    functions! { Protected, |self, condvar, guard|
        new: PthreadCondvar::new(),
        lock: self.0.lock(),
        wait: condvar.wait(&mut guard),
        one: condvar.notify_one(),
        all: condvar.notify_all(),
    }
}

/// The condition variable of a raw mutex of `lock_api`.
pub trait HasCondvar: RawMutex + Sized {
    /// Its type.
    type Condvar: RawCondvar<RawMutex = Self> + Send + Sync + 'static;
}

impl HasCondvar for parking_lot::RawMutex {
    type Condvar = parking_lot::RawCondvar;
}

impl<V: Version, P: Platform> HasCondvar for RawParkingLotMutex<V, P> {
    type Condvar = RawParkingLotCondvar<V, P>;
}

impl<P: Platform> HasCondvar for RawStdMutex<P> {
    type Condvar = RawStdCondvar<P>;
}

impl<R: HasCondvar + Send + Sync + 'static, P: Platform> Monitor for ApiMutex<R, P> {
    type Condvar = lock_api::Condvar<R::Condvar>;

    functions! { Protected<P>, |self, condvar, guard|
        new: lock_api::Condvar::new(),
        lock: self.0.lock(),
        wait: condvar.wait(&mut guard),
        one: condvar.notify_one(),
        all: condvar.notify_all(),
    }
}

/// Waits by looking again and again: it may have missed its notification.
impl<P: Platform> Monitor for Broken<P> {
    type Condvar = ();

    fn condvar() {}

    fn write_when<T>(
        &self,
        _condvar: &(),
        mut attempt: impl FnMut(&Protected<P>) -> Option<T>,
    ) -> T {
        loop {
            if let Some(result) = attempt(&self.0) {
                return result;
            }
            P::relax(None);
        }
    }

    fn notify_one(_condvar: &()) {}

    fn notify_all(_condvar: &()) {}
}

/// A task for a monitor whose type only its name says, see [`UseLock`](super::UseLock).
pub trait UseMonitor {
    /// What comes of it.
    type Output;
    /// Does it with a monitor of this type.
    fn with<M: Monitor>(self, new: New<M>) -> Self::Output;
}

macro_rules! registry {
    ($($name:literal $lock:ty $(, counted: $twin:ty)? $(, simulated: $simulated:ty)?;)*) => {
        /// The names, with whether each runs on a simulated machine.
        const MONITORS: &[(&str, bool)] = &[$(($name, registry!(@is_given $($simulated)?))),*];

        pub(super) fn with_real<V: UseMonitor>(
            name: &str,
            build: Build,
            what: V,
        ) -> Option<V::Output> {
            match (name, build) {
                $(($name, Build::Plain) => Some(what.with::<$lock>(NewLock::new)),
                $(($name, Build::Counted) => Some(what.with::<$twin>(NewLock::new)),)?)*
                _ => None,
            }
        }

        pub(super) fn with_simulated<V: UseMonitor>(name: &str, what: V) -> Option<V::Output> {
            match name {
                $($($name => Some(what.with::<$simulated>(NewLock::new)),)?)*
                _ => None,
            }
        }
    };
    (@is_given) => { false };
    (@is_given $given:ty) => { true };
}

registry! {
    "mutex" MutexOn<Os>, counted: MutexOn<Counting>, simulated: MutexOn<Sim>;
    "std-mutex" std::sync::Mutex<Protected>, simulated: ApiMutex<RawStdMutex<Sim>, Sim>;
    "parking_lot-mutex" ApiMutex<parking_lot::RawMutex>, simulated: SimulatedParkingLotMutex<V0_13>;
    "parking_lot-mutex-0.12" ParkingLotMutex0_12, simulated: SimulatedParkingLotMutex<V0_12>;
    "pthread-mutex" PthreadMutex;
    "broken" Broken, simulated: Broken<Sim>;
}

/// The names of all that are listed and run there.
pub fn names(simulated: bool) -> Vec<&'static str> {
    let runs = MONITORS.iter().filter(|(_, is_simulated)| *is_simulated || !simulated);
    let is_listed = |name: &&str| super::find(name).is_ok_and(|lock| lock.kind != Kind::Broken);
    runs.map(|(name, _)| *name).filter(is_listed).collect()
}

/// Whether the lock of this name has a condition variable that runs there.
///
/// # Errors
/// [`LabError::UnknownLock`] and [`LabError::NoCondvar`], with the valid names.
pub fn check(name: &str, simulated: bool) -> Result<(), LabError> {
    super::find(name)?;
    match MONITORS.iter().find(|(known, _)| *known == name) {
        Some((_, is_simulated)) if *is_simulated || !simulated => Ok(()),
        _ => {
            Err(LabError::NoCondvar { name: name.to_string(), simulated, known: names(simulated) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_monitor_is_a_lock_of_the_registry_and_the_broken_one_is_not_listed() {
        for (name, is_simulated) in MONITORS {
            let lock = super::super::find(name).unwrap_or_else(|error| panic!("{error}"));
            assert!(lock.is_simulated || !is_simulated, "{name}");
        }
        assert_eq!(names(false).len(), MONITORS.len() - 1);
        assert!(check("broken", true).is_ok());
    }

    #[test]
    fn a_lock_without_a_condition_variable_is_answered_with_those_that_have_one() {
        let message = check("rwsem", false).unwrap_err().to_string();
        assert!(message.contains("`rwsem`") && message.contains("pthread-mutex"), "{message}");
        let message = check("pthread-mutex", true).unwrap_err().to_string();
        assert!(message.contains("simulated") && message.ends_with("mutex-0.12"), "{message}");
        assert!(check("foo", false).unwrap_err().to_string().contains("no lock `foo`"));
    }
}
