//! Adapters for locks that come with guards of their own.

use std::collections::BTreeMap;
use std::sync::{PoisonError, TryLockError, TryLockResult};

use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use fairlock::platform::{Os, Platform};
use fairlock::policy::{Policy, ReadMostly};
use fairlock::process::Host;
use fairlock::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, RwSem, RwSemReadGuard,
    RwSemWriteGuard, events,
};
use fairlock_reference::linux::{LinuxRwSem, RawLinuxRwSem};
use lock_api::{RawMutex, RawRwLock};

use super::{Access, Held, LabLock, NewLock, Protected};

/// The sections and holds of a [`LabLock`], by the guards that they have; a mutex reads exclusively.
macro_rules! sections {
    (
        $self:ident, $data:ty;
        guards: $shared:ty, $exclusive:ty;
        read: $read:expr, try_read: $try_read:expr, write: $write:expr, try_write: $try_write:expr,
    ) => {
        #[inline]
        fn read<T>(&$self, section: impl FnOnce(&$data) -> T) -> T {
            section(&$read)
        }

        #[inline]
        fn try_read<T>(&$self, section: impl FnOnce(&$data) -> T) -> Option<T> {
            Some(section(&*$try_read?))
        }

        #[inline]
        fn write<T>(&$self, section: impl FnOnce(&$data) -> T) -> T {
            section(&$write)
        }

        type Hold<'a> = Held<$shared, $exclusive>;

        #[inline]
        fn hold(&$self, access: Access) -> Self::Hold<'_> {
            match access {
                Access::Shared => Held::Shared($read),
                Access::Exclusive => Held::Exclusive($write),
            }
        }

        #[inline]
        fn try_hold(&$self, access: Access) -> Option<Self::Hold<'_>> {
            Some(match access {
                Access::Shared => Held::Shared($try_read?),
                Access::Exclusive => Held::Exclusive($try_write?),
            })
        }
    };
}

/// Fairlock's own, with any policy.
impl<Pol: Policy, P: Host> LabLock for RwSem<Protected<P>, Pol, P> {
    type Platform = P;

    sections! { self, Protected<P>;
        guards: RwSemReadGuard<'a, Protected<P>, Pol, P>, RwSemWriteGuard<'a, Protected<P>, Pol, P>;
        read: RwSem::read(self),
        try_read: RwSem::try_read(self),
        write: RwSem::write(self),
        try_write: RwSem::try_write(self),
    }

    fn events(&self) -> BTreeMap<String, u64> {
        counted::<P>(|| fairlock::rwsem::events(self))
    }
}

impl<Pol: Policy, P: Host> NewLock for RwSem<Protected<P>, Pol, P> {
    const BYTES: usize = size_of::<RwSem<(), Pol, P>>();

    fn new(data: Protected<P>) -> Self {
        RwSem::with_policy(data)
    }
}

/// Linux's rwsem in user space, with any of its policies.
impl<Pol: fairlock_reference::linux::Policy, P: Host> LabLock for LinuxRwSem<Protected<P>, Pol, P> {
    type Platform = P;

    sections! { self, Protected<P>;
        guards: RwLockReadGuardOf<'a, Pol, P>, RwLockWriteGuardOf<'a, Pol, P>;
        read: self.read(),
        try_read: self.try_read(),
        write: self.write(),
        try_write: self.try_write(),
    }

    fn events(&self) -> BTreeMap<String, u64> {
        // SAFETY: neither locks nor unlocks.
        counted::<P>(|| unsafe { self.raw() }.events())
    }
}

type RwLockReadGuardOf<'a, Pol, P> =
    lock_api::RwLockReadGuard<'a, RawLinuxRwSem<Pol, P>, Protected<P>>;
type RwLockWriteGuardOf<'a, Pol, P> =
    lock_api::RwLockWriteGuard<'a, RawLinuxRwSem<Pol, P>, Protected<P>>;

impl<Pol: fairlock_reference::linux::Policy, P: Host> NewLock for LinuxRwSem<Protected<P>, Pol, P> {
    const BYTES: usize = size_of::<RawLinuxRwSem<Pol, P>>();

    fn new(data: Protected<P>) -> Self {
        lock_api::RwLock::new(data)
    }
}

/// Fairlock's default lock.
impl<P: Host> LabLock for RwLock<Protected<P>, ReadMostly, P> {
    type Platform = P;

    sections! { self, Protected<P>;
        guards:
            RwLockReadGuard<'a, Protected<P>, ReadMostly, P>,
            RwLockWriteGuard<'a, Protected<P>, ReadMostly, P>;
        read: RwLock::read(self),
        try_read: RwLock::try_read(self),
        write: RwLock::write(self),
        try_write: RwLock::try_write(self),
    }

    fn events(&self) -> BTreeMap<String, u64> {
        counted::<P>(|| fairlock::rwlock::events(self))
    }
}

impl<P: Host> NewLock for RwLock<Protected<P>, ReadMostly, P> {
    const BYTES: usize = size_of::<RwLock<(), ReadMostly, P>>();

    fn new(data: Protected<P>) -> Self {
        RwLock::with_policy(data)
    }
}

/// Fairlock's own mutex; readers take it exclusively.
impl<P: Platform> LabLock for Mutex<Protected<P>, P> {
    type Platform = P;

    sections! { self, Protected<P>;
        guards: MutexGuard<'a, Protected<P>, P>, MutexGuard<'a, Protected<P>, P>;
        read: self.lock(),
        try_read: self.try_lock(),
        write: self.lock(),
        try_write: self.try_lock(),
    }

    fn events(&self) -> BTreeMap<String, u64> {
        counted::<P>(|| fairlock::mutex::events(self))
    }
}

impl<P: Platform> NewLock for Mutex<Protected<P>, P> {
    const BYTES: usize = size_of::<Mutex<(), P>>();

    fn new(data: Protected<P>) -> Self {
        Mutex::new_in(data)
    }
}

/// What a lock on a counting platform has counted.
fn counted<P: Platform>(counts: impl FnOnce() -> events::Snapshot) -> BTreeMap<String, u64> {
    if size_of::<P::Counters>() == 0 { BTreeMap::new() } else { by_name(&counts()) }
}

// Not a part of `counted`, which is compiled for every lock.
fn by_name(counts: &events::Snapshot) -> BTreeMap<String, u64> {
    counts.iter().map(|(event, count)| (event.name().to_string(), count)).collect()
}

/// Any `lock_api` 0.5 reader-writer lock, by its raw type. A lock that counts events needs an
/// adapter of its own that overrides [`LabLock::events`].
pub struct ApiRwLock<R: RawRwLock, P: Platform = Os>(lock_api::RwLock<R, Protected<P>>);

impl<R, P> LabLock for ApiRwLock<R, P>
where
    R: RawRwLock + Send + Sync + 'static,
    P: Platform,
{
    type Platform = P;

    sections! { self, Protected<P>;
        guards:
            lock_api::RwLockReadGuard<'a, R, Protected<P>>,
            lock_api::RwLockWriteGuard<'a, R, Protected<P>>;
        read: self.0.read(),
        try_read: self.0.try_read(),
        write: self.0.write(),
        try_write: self.0.try_write(),
    }
}

impl<R, P> NewLock for ApiRwLock<R, P>
where
    R: RawRwLock + Send + Sync + 'static,
    P: Platform,
{
    const BYTES: usize = size_of::<R>();

    fn new(data: Protected<P>) -> Self {
        ApiRwLock(lock_api::RwLock::new(data))
    }
}

/// Any `lock_api` 0.5 mutex that counts nothing, by its raw type; readers take it exclusively.
pub struct ApiMutex<R: RawMutex, P: Platform = Os>(pub(super) lock_api::Mutex<R, Protected<P>>);

impl<R, P> LabLock for ApiMutex<R, P>
where
    R: RawMutex + Send + Sync + 'static,
    P: Platform,
{
    type Platform = P;

    sections! { self, Protected<P>;
        guards:
            lock_api::MutexGuard<'a, R, Protected<P>>,
            lock_api::MutexGuard<'a, R, Protected<P>>;
        read: self.0.lock(),
        try_read: self.0.try_lock(),
        write: self.0.lock(),
        try_write: self.0.try_lock(),
    }
}

impl<R, P> NewLock for ApiMutex<R, P>
where
    R: RawMutex + Send + Sync + 'static,
    P: Platform,
{
    const BYTES: usize = size_of::<R>();

    fn new(data: Protected<P>) -> Self {
        ApiMutex(lock_api::Mutex::new(data))
    }
}

/// usync's lock; it speaks an older `lock_api`.
pub struct UsyncRwLock(usync::RwLock<Protected>);

impl LabLock for UsyncRwLock {
    type Platform = Os;

    sections! { self, Protected;
        guards: usync::RwLockReadGuard<'a, Protected>, usync::RwLockWriteGuard<'a, Protected>;
        read: self.0.read(),
        try_read: self.0.try_read(),
        write: self.0.write(),
        try_write: self.0.try_write(),
    }
}

impl NewLock for UsyncRwLock {
    const BYTES: usize = size_of::<usync::RwLock<()>>();

    fn new(data: Protected) -> Self {
        UsyncRwLock(usync::RwLock::new(data))
    }
}

/// parking_lot 0.12's lock, which speaks an older `lock_api`, too.
pub struct ParkingLot0_12(parking_lot_0_12::RwLock<Protected>);

impl LabLock for ParkingLot0_12 {
    type Platform = Os;

    sections! { self, Protected;
        guards:
            parking_lot_0_12::RwLockReadGuard<'a, Protected>,
            parking_lot_0_12::RwLockWriteGuard<'a, Protected>;
        read: self.0.read(),
        try_read: self.0.try_read(),
        write: self.0.write(),
        try_write: self.0.try_write(),
    }
}

impl NewLock for ParkingLot0_12 {
    const BYTES: usize = size_of::<parking_lot_0_12::RwLock<()>>();

    fn new(data: Protected) -> Self {
        ParkingLot0_12(parking_lot_0_12::RwLock::new(data))
    }
}

/// parking_lot 0.12's mutex; readers take it exclusively.
pub struct ParkingLotMutex0_12(pub(super) parking_lot_0_12::Mutex<Protected>);

impl LabLock for ParkingLotMutex0_12 {
    type Platform = Os;

    sections! { self, Protected;
        guards:
            parking_lot_0_12::MutexGuard<'a, Protected>,
            parking_lot_0_12::MutexGuard<'a, Protected>;
        read: self.0.lock(),
        try_read: self.0.try_lock(),
        write: self.0.lock(),
        try_write: self.0.try_lock(),
    }
}

impl NewLock for ParkingLotMutex0_12 {
    const BYTES: usize = size_of::<parking_lot_0_12::Mutex<()>>();

    fn new(data: Protected) -> Self {
        ParkingLotMutex0_12(parking_lot_0_12::Mutex::new(data))
    }
}

// A poisoned lock still locks; the panic that poisoned it is reported by the run.

fn taken<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl LabLock for std::sync::RwLock<Protected> {
    type Platform = Os;

    sections! { self, Protected;
        guards:
            std::sync::RwLockReadGuard<'a, Protected>,
            std::sync::RwLockWriteGuard<'a, Protected>;
        read: std::sync::RwLock::read(self).unwrap_or_else(PoisonError::into_inner),
        try_read: taken(std::sync::RwLock::try_read(self)),
        write: std::sync::RwLock::write(self).unwrap_or_else(PoisonError::into_inner),
        try_write: taken(std::sync::RwLock::try_write(self)),
    }
}

impl NewLock for std::sync::RwLock<Protected> {
    const BYTES: usize = size_of::<std::sync::RwLock<()>>();

    fn new(data: Protected) -> Self {
        std::sync::RwLock::new(data)
    }
}

impl LabLock for std::sync::Mutex<Protected> {
    type Platform = Os;

    sections! { self, Protected;
        guards: std::sync::MutexGuard<'a, Protected>, std::sync::MutexGuard<'a, Protected>;
        read: self.lock().unwrap_or_else(PoisonError::into_inner),
        try_read: taken(self.try_lock()),
        write: self.lock().unwrap_or_else(PoisonError::into_inner),
        try_write: taken(self.try_lock()),
    }
}

impl NewLock for std::sync::Mutex<Protected> {
    const BYTES: usize = size_of::<std::sync::Mutex<()>>();

    fn new(data: Protected) -> Self {
        std::sync::Mutex::new(data)
    }
}

/// As its documentation has it, each on a cache line of its own.
const SHARDS: usize = 8;

impl LabLock for ShardedLock<Protected> {
    type Platform = Os;

    sections! { self, Protected;
        guards: ShardedLockReadGuard<'a, Protected>, ShardedLockWriteGuard<'a, Protected>;
        read: ShardedLock::read(self).unwrap_or_else(PoisonError::into_inner),
        try_read: taken(ShardedLock::try_read(self)),
        write: ShardedLock::write(self).unwrap_or_else(PoisonError::into_inner),
        try_write: taken(ShardedLock::try_write(self)),
    }
}

impl NewLock for ShardedLock<Protected> {
    const BYTES: usize = size_of::<ShardedLock<()>>() + SHARDS * size_of::<CachePadded<u64>>();

    fn new(data: Protected) -> Self {
        ShardedLock::new(data)
    }
}
