//! The locks under test: what a workload needs of one, and the registry of all of them.
//!
//! Adding a lock is one line in the table of [`registry`], and one name in [`CORE`] if every study is to run it.
//!
//! A lock that can count what its slow paths do is listed with a *counted twin*: the same lock
//! built to count. Speed is measured on the lock itself, which carries no counters; the twin
//! runs once more for its events alone.

mod adapters;
mod broken;
mod erased;
mod inheriting;
mod kernel;
pub mod monitors;
mod protected;
mod pthread;
pub mod ranges;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

pub use adapters::{ApiMutex, ApiRwLock, ParkingLot0_12, ParkingLotMutex0_12, UsyncRwLock};
pub use broken::{Broken, Stuck};
pub use erased::Erased;
pub use inheriting::SimulatedInherit;
pub use kernel::SimulatedKernel;
pub use protected::Protected;
pub use pthread::{PthreadInherit, PthreadMutex, PthreadPreferWriter, PthreadRwLock};

use fairlock::platform::{Counting, Os, Platform};
use fairlock::policy::{PhaseFair, ReadMostly, TimeFair};
use fairlock::{RwLock, RwSem};
use fairlock_reference::kernel::UserSpace;
use fairlock_reference::kernel::mutex::RawKernelMutex;
use fairlock_reference::kernel::rwsem::{self as kernel_rwsem, RawKernelRwSem};
use fairlock_reference::kernel::xadd_rwsem::{self, RawXaddRwSem};
use fairlock_reference::linux::{
    ImmediateHandoff, Linux3_10, Linux3_10Both, Linux3_10FastFail, Linux3_10Spin, Linux3_16,
    Linux5_1, Linux5_2, Linux5_3, Linux5_11, LinuxRwSem, NoReaderSteal,
};
use fairlock_reference::parking_lot::mutex::RawParkingLotMutex;
use fairlock_reference::parking_lot::rwlock::RawParkingLotRwLock;
use fairlock_reference::parking_lot::{V0_12, V0_13};
use fairlock_reference::pthread::mutex::{Normal, RawPthreadMutex};
use fairlock_reference::pthread::rwlock::{
    PreferReader, PreferWriterNonrecursive, RawPthreadRwLock,
};
use fairlock_reference::rust_std::mutex::RawStdMutex;
use fairlock_reference::rust_std::rwlock::RawStdRwLock;
use fairlock_reference::spin::{RawClh, RawMcs, RawQueuedRwLock, RawTas, RawTicket, RawTtas};
use fairlock_sim::Sim;

use self::monitors::UseMonitor;
use self::ranges::UseFileLock;
use crate::error::LabError;
use crate::world::{RealWorld, SimWorld};

/// What stands in place of a lock's name where the kernel's own is measured.
pub const KERNEL: &str = "kernel";

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Beside others that do the same.
    Shared,
    /// By one thread alone.
    Exclusive,
}

/// A lock that is held, by its guard.
pub enum Held<S, X> {
    /// Beside others.
    Shared(S),
    /// By one thread alone.
    Exclusive(X),
}

/// A lock around the workloads' [`Protected`] data.
///
/// Both sections get a shared reference: the data is made of atomics, so that a broken lock
/// shows as a violated invariant and never as undefined behaviour of the lab.
pub trait LabLock: Send + Sync + 'static {
    /// What the lock and the data under it are made of.
    type Platform: Platform;
    /// Runs `section` with the lock held shared.
    fn read<R>(&self, section: impl FnOnce(&Protected<Self::Platform>) -> R) -> R;
    /// Runs `section` with the lock held shared (a mutex: exclusively) if it can be had at once;
    /// never waits for another holder.
    fn try_read<R>(&self, section: impl FnOnce(&Protected<Self::Platform>) -> R) -> Option<R>;
    /// Runs `section` with the lock held exclusively.
    fn write<R>(&self, section: impl FnOnce(&Protected<Self::Platform>) -> R) -> R;
    /// The lock, held until this is dropped: for holds that end in any order.
    type Hold<'a>;
    /// Acquires the lock (a mutex: exclusively) and keeps it.
    fn hold(&self, access: Access) -> Self::Hold<'_>;
    /// As [`hold`](LabLock::hold) if the lock can be had at once; never waits for another holder.
    fn try_hold(&self, access: Access) -> Option<Self::Hold<'_>>;
    /// Slow-path events counted by this lock since it was made; empty if it counts none.
    fn events(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// A lock that is registered by its type.
pub trait NewLock: LabLock + Sized {
    /// Bytes of a lock without its data, those on the heap included.
    const BYTES: usize;
    /// A free lock around `data`.
    fn new(data: Protected<Self::Platform>) -> Self;
}

/// Makes a free lock around data.
pub type New<L> = fn(Protected<<L as LabLock>::Platform>) -> L;

/// Where a lock comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One of Fairlock's for users.
    Ours,
    /// Linux's rwsem in user space, with one of its policies: shows what that would do.
    Preset,
    /// One that people use today, for comparison.
    Peer,
    /// To measure against; run by name only, never as one of [`all`]. It is a textbook's spin lock, whose
    /// waiters can waste a whole time slice for each handover if there are more threads than CPUs; or one
    /// of [`INHERITING`] or [`PARKING`]; or a step of study S3 between two kernels
    /// ([`Linux3_10Spin`], [`Linux3_10FastFail`], [`Linux3_10Both`]); or the
    /// kernel's own rwsem or mutex, whose waiters sleep and spin on what only a simulated kernel knows.
    Reference,
    /// Wrong on purpose: shows that the lab catches a broken lock. Not listed.
    Broken,
}

/// A task for a lock whose type only its name says: compiled for every lock of this machine that is measured on it, so
/// that no call in a measured section goes through a table, or once for [all of them](Erased).
pub trait UseLock {
    /// What comes of it.
    type Output;
    /// Does it under a lock of this type, or several.
    fn with<L: LabLock>(self, new: New<L>) -> Self::Output;
}

/// Which build of a lock runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// The lock itself: what is measured.
    Plain,
    /// Its counted twin.
    Counted,
}

/// A machine on which registered locks run.
pub trait HasLocks {
    /// Does something with the lock of this name, if it runs here.
    fn with_lock<V: UseLock>(name: &str, build: Build, what: V) -> Option<V::Output>;
    /// As [`with_lock`](HasLocks::with_lock), compiled once for all locks.
    fn with_erased<V: UseLock>(name: &str, build: Build, what: V) -> Option<V::Output>;
    /// As [`with_erased`](HasLocks::with_erased), with a lock over a file: a range lock, or any other around all of it.
    fn with_file_lock<V: UseFileLock>(name: &str, build: Build, what: V) -> Option<V::Output>;
    /// As [`with_lock`](HasLocks::with_lock), with a mutex that has condition variables.
    fn with_monitor<V: UseMonitor>(name: &str, build: Build, what: V) -> Option<V::Output>;
}

impl HasLocks for RealWorld {
    fn with_lock<V: UseLock>(name: &str, build: Build, what: V) -> Option<V::Output> {
        match build {
            Build::Plain => with_plain(name, what),
            Build::Counted => Self::with_erased(name, build, what),
        }
    }

    fn with_erased<V: UseLock>(name: &str, build: Build, what: V) -> Option<V::Output> {
        Some(match build {
            Build::Plain => what.with(plain(name)?),
            Build::Counted => what.with(counted(name)?),
        })
    }

    fn with_file_lock<V: UseFileLock>(name: &str, build: Build, what: V) -> Option<V::Output> {
        match ranges::find(name) {
            Some(_) => ranges::with_real(name, what),
            None => Self::with_erased(name, build, ranges::OverAll(what)),
        }
    }

    fn with_monitor<V: UseMonitor>(name: &str, build: Build, what: V) -> Option<V::Output> {
        monitors::with_real(name, build, what)
    }
}

impl HasLocks for SimWorld {
    fn with_lock<V: UseLock>(name: &str, _build: Build, what: V) -> Option<V::Output> {
        Some(what.with(simulated(name)?))
    }

    fn with_erased<V: UseLock>(name: &str, build: Build, what: V) -> Option<V::Output> {
        Self::with_lock(name, build, what)
    }

    fn with_file_lock<V: UseFileLock>(name: &str, build: Build, what: V) -> Option<V::Output> {
        match ranges::find(name) {
            Some(_) => ranges::with_simulated(name, what),
            None => Self::with_erased(name, build, ranges::OverAll(what)),
        }
    }

    fn with_monitor<V: UseMonitor>(name: &str, _build: Build, what: V) -> Option<V::Output> {
        monitors::with_simulated(name, what)
    }
}

/// A registered lock.
pub struct Descriptor {
    /// The name used in plans and rows.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// Where it comes from.
    pub kind: Kind,
    /// Bytes of a lock without its data, those on the heap included.
    pub bytes: usize,
    /// Whether it has a counted twin.
    pub has_twin: bool,
    /// Whether its source runs on a simulated machine.
    pub is_simulated: bool,
}

impl Descriptor {
    /// Whether waiters spin until they have the lock, whatever other threads could run: true of a
    /// textbook's spin lock, which has no slow path to count and lends no priority.
    pub fn only_spins(&self) -> bool {
        let is_sleeper =
            self.has_twin || INHERITING.contains(&self.name) || PARKING.contains(&self.name);
        self.kind == Kind::Reference && !is_sleeper
    }
}

macro_rules! registry {
    ($(
        $kind:ident $name:literal $lock:ty
        $(, compiled: $once:ident)? $(, counted: $twin:ty)? $(, simulated: $simulated:ty)?,
        $about:literal;
    )*) => {
        /// Every registered lock, in listing order, the broken ones included.
        pub fn registry() -> &'static [Descriptor] {
            const LOCKS: &[Descriptor] = &[$(Descriptor {
                name: $name,
                about: $about,
                kind: Kind::$kind,
                bytes: <$lock as NewLock>::BYTES,
                has_twin: registry!(@is_given $($twin)?),
                is_simulated: registry!(@is_given $($simulated)?),
            }),*];
            LOCKS
        }

        fn with_plain<V: UseLock>(name: &str, what: V) -> Option<V::Output> {
            match name {
                $($name => Some(registry!(@with what, $lock $(, $once)?)),)*
                _ => None,
            }
        }

        fn plain(name: &str) -> Option<New<Erased<Os>>> {
            match name {
                $($name => Some(|data| Erased::of(<$lock>::new(data))),)*
                _ => None,
            }
        }

        fn counted(name: &str) -> Option<New<Erased<Counting>>> {
            match name {
                $($($name => Some(|data| Erased::of(<$twin>::new(data))),)?)*
                _ => None,
            }
        }

        fn simulated(name: &str) -> Option<New<Erased<Sim>>> {
            match name {
                $($($name => Some(|data| Erased::of(<$simulated>::new(data))),)?)*
                _ => None,
            }
        }
    };
    (@with $what:ident, $lock:ty) => { $what.with::<$lock>(NewLock::new) };
    // The kernel's own forms: they run on real threads to be checked, and are measured on simulated machines.
    (@with $what:ident, $lock:ty, once) => {
        $what.with::<Erased<Os>>(|data| Erased::of(<$lock>::new(data)))
    };
    (@is_given) => { false };
    (@is_given $given:ty) => { true };
}

/// One of Fairlock's locks around the workloads' data: on [`Os`] as users get it, on [`Counting`]
/// built to count, on [`Sim`] for simulated machines.
type Sem<Pol, P = Os> = RwSem<Protected<P>, Pol, P>;
type LinuxSem<Pol, P = Os> = LinuxRwSem<Protected<P>, Pol, P>;
type DefaultLock<P = Os> = RwLock<Protected<P>, ReadMostly, P>;

/// The kernel's own rwsem, which knows its scheduler on a simulated machine only.
type KernelSem<V> = ApiRwLock<RawKernelRwSem<V, UserSpace>>;
type SimulatedKernelSem<V> = ApiRwLock<RawKernelRwSem<V, SimulatedKernel>, Sim>;
/// The same of 2013 and 2014.
type XaddSem<V> = ApiRwLock<RawXaddRwSem<V, UserSpace>>;
type SimulatedXaddSem<V> = ApiRwLock<RawXaddRwSem<V, SimulatedKernel>, Sim>;

/// glibc's lock as this project has written it again, for machines without glibc.
type SimulatedPthread<K> = ApiRwLock<RawPthreadRwLock<K, Sim>, Sim>;

/// parking_lot's, likewise.
type SimulatedParkingLot<V> = ApiRwLock<RawParkingLotRwLock<V, Sim>, Sim>;
type SimulatedParkingLotMutex<V> = ApiMutex<RawParkingLotMutex<V, Sim>, Sim>;

type MutexOn<P> = fairlock::Mutex<Protected<P>, P>;

/// Mutexes that are registered for `inversion-lock`: with priority inheritance, and the same without.
pub const INHERITING: [&str; 2] = ["pthread-mutex", "pthread-inherit"];

/// Locks of parking_lot that are run by name only, although their waiters sleep.
pub const PARKING: [&str; 3] = ["parking_lot-0.12", "parking_lot-mutex", "parking_lot-mutex-0.12"];

/// The locks that every study runs: `"core"` in a study's list of locks stands for those of them that its
/// workload can run. A lock that is to be in every study is one more name here.
pub const CORE: [&str; 2] = ["rwlock", "rwsem"];

registry! {
    Ours "rwlock" DefaultLock, counted: DefaultLock<Counting>, simulated: DefaultLock<Sim>, "RwLock, the default: readers announce themselves in a slot of their own thread";
    Ours "rwsem" Sem<TimeFair>, counted: Sem<TimeFair, Counting>, simulated: Sem<TimeFair, Sim>, "RwSem: readers and writers share the lock's time";
    Ours "phase-fair" Sem<PhaseFair>, counted: Sem<PhaseFair, Counting>, simulated: Sem<PhaseFair, Sim>, "RwSem whose phases admit no newcomer past a waiter";
    Preset "linux-3.10" LinuxSem<Linux3_10>, counted: LinuxSem<Linux3_10, Counting>, simulated: LinuxSem<Linux3_10, Sim>, "rwsem of Linux 3.10: writers steal, no thread spins";
    Preset "linux-3.16" LinuxSem<Linux3_16>, counted: LinuxSem<Linux3_16, Counting>, simulated: LinuxSem<Linux3_16, Sim>, "rwsem of Linux 3.16: writers spin on a running writer before they queue";
    Preset "linux-5.1" LinuxSem<Linux5_1>, counted: LinuxSem<Linux5_1, Counting>, simulated: LinuxSem<Linux5_1, Sim>, "rwsem of Linux 5.1: a wake-up takes the readers up to the first writer";
    Preset "linux-5.2" LinuxSem<Linux5_2>, counted: LinuxSem<Linux5_2, Counting>, simulated: LinuxSem<Linux5_2, Sim>, "rwsem of Linux 5.2: a wake-up takes all queued readers, at most 256";
    Preset "linux-5.3" LinuxSem<Linux5_3>, counted: LinuxSem<Linux5_3, Counting>, simulated: LinuxSem<Linux5_3, Sim>, "rwsem of Linux 5.3 to 5.10: readers spin, writers spin on readers";
    Preset "linux-5.11" LinuxSem<Linux5_11>, counted: LinuxSem<Linux5_11, Counting>, simulated: LinuxSem<Linux5_11, Sim>, "rwsem of Linux 5.11 and later: readers steal past waiters";
    Preset "no-reader-steal" LinuxSem<NoReaderSteal>, counted: LinuxSem<NoReaderSteal, Counting>, simulated: LinuxSem<NoReaderSteal, Sim>, "linux-5.11 without reader stealing, as a patch of 2026 proposes";
    Preset "immediate-handoff" LinuxSem<ImmediateHandoff>, counted: LinuxSem<ImmediateHandoff, Counting>, simulated: LinuxSem<ImmediateHandoff, Sim>, "linux-5.11 whose releases hand the lock to the head of the queue: what 4 ms of stealing are for";
    Ours "mutex" MutexOn<Os>, counted: MutexOn<Counting>, simulated: MutexOn<Sim>, "Mutex: spins and yields for a moment, then sleeps in its queue; readers take it exclusively";
    Peer "std" std::sync::RwLock<Protected>, simulated: ApiRwLock<RawStdRwLock<Sim>, Sim>, "std::sync::RwLock";
    Peer "std-mutex" std::sync::Mutex<Protected>, simulated: ApiMutex<RawStdMutex<Sim>, Sim>, "std::sync::Mutex; readers take it exclusively";
    Peer "parking_lot" ApiRwLock<parking_lot::RawRwLock>, simulated: SimulatedParkingLot<V0_13>, "parking_lot::RwLock of parking_lot 0.13";
    Peer "usync" UsyncRwLock, "usync::RwLock";
    Peer "sharded" crossbeam_utils::sync::ShardedLock<Protected>, "crossbeam ShardedLock: one lock per shard, writers take all";
    Peer "pthread" PthreadRwLock, simulated: SimulatedPthread<PreferReader>, "pthread_rwlock_t with its default kind: readers first";
    Peer "pthread-writer" PthreadPreferWriter, simulated: SimulatedPthread<PreferWriterNonrecursive>, "pthread_rwlock_t that prefers writers (non-recursive)";
    Reference "linux-3.10-spin" LinuxSem<Linux3_10Spin>, counted: LinuxSem<Linux3_10Spin, Counting>, simulated: LinuxSem<Linux3_10Spin, Sim>, "linux-3.10 whose queued writers spin on a running writer: first of two tweaks of 2013";
    Reference "linux-3.10-fast-fail" LinuxSem<Linux3_10FastFail>, counted: LinuxSem<Linux3_10FastFail, Counting>, simulated: LinuxSem<Linux3_10FastFail, Sim>, "linux-3.10 whose writers add no bias to a lock that is held: second of two tweaks of 2013";
    Reference "linux-3.10-both" LinuxSem<Linux3_10Both>, counted: LinuxSem<Linux3_10Both, Counting>, simulated: LinuxSem<Linux3_10Both, Sim>, "linux-3.10 with both tweaks of 2013";
    Reference "tas" ApiMutex<RawTas<Os>>, simulated: ApiMutex<RawTas<Sim>, Sim>, "test-and-set: every attempt writes the lock's line; readers take it exclusively";
    Reference "ttas" ApiMutex<RawTtas<Os>>, simulated: ApiMutex<RawTtas<Sim>, Sim>, "test-and-test-and-set: waiters read until it is free; readers take it exclusively";
    Reference "ticket" ApiMutex<RawTicket<Os>>, simulated: ApiMutex<RawTicket<Sim>, Sim>, "ticket lock: first come, first served, all watch one word; readers take it exclusively";
    Reference "mcs" ApiMutex<RawMcs<Os>>, simulated: ApiMutex<RawMcs<Sim>, Sim>, "MCS: a queue, each waits on its own line; readers take it exclusively";
    Reference "clh" ApiMutex<RawClh<Os>>, simulated: ApiMutex<RawClh<Sim>, Sim>, "CLH: a queue, each waits on its predecessor's line; readers take it exclusively";
    Reference "queued-rwlock" ApiRwLock<RawQueuedRwLock<Os>>, simulated: ApiRwLock<RawQueuedRwLock<Sim>, Sim>, "the kernel's qrwlock: readers and writers queue for an MCS lock and spin";
    Reference "kernel-mutex-3.10" ApiMutex<RawKernelMutex<UserSpace>>, compiled: once, simulated: ApiMutex<RawKernelMutex<SimulatedKernel>, Sim>, "the mutex of Linux 3.10 in the kernel's own form, which only a simulated kernel can run well; readers take it exclusively";
    Reference "kernel-3.10" XaddSem<xadd_rwsem::Linux3_10>, compiled: once, simulated: SimulatedXaddSem<xadd_rwsem::Linux3_10>, "linux-3.10 in the kernel's own form";
    Reference "kernel-3.10-spin" XaddSem<xadd_rwsem::Linux3_10Spin>, compiled: once, simulated: SimulatedXaddSem<xadd_rwsem::Linux3_10Spin>, "linux-3.10-spin in the kernel's own form";
    Reference "kernel-3.10-fast-fail" XaddSem<xadd_rwsem::Linux3_10FastFail>, compiled: once, simulated: SimulatedXaddSem<xadd_rwsem::Linux3_10FastFail>, "linux-3.10-fast-fail in the kernel's own form";
    Reference "kernel-3.10-both" XaddSem<xadd_rwsem::Linux3_10Both>, compiled: once, simulated: SimulatedXaddSem<xadd_rwsem::Linux3_10Both>, "linux-3.10-both in the kernel's own form";
    Reference "kernel-3.16" XaddSem<xadd_rwsem::Linux3_16>, compiled: once, simulated: SimulatedXaddSem<xadd_rwsem::Linux3_16>, "linux-3.16 in the kernel's own form";
    Reference "kernel-5.1" KernelSem<kernel_rwsem::Linux5_1>, compiled: once, simulated: SimulatedKernelSem<kernel_rwsem::Linux5_1>, "linux-5.1 in the kernel's own form";
    Reference "kernel-5.2" KernelSem<kernel_rwsem::Linux5_2>, compiled: once, simulated: SimulatedKernelSem<kernel_rwsem::Linux5_2>, "linux-5.2 in the kernel's own form";
    Reference "kernel-5.11" KernelSem<kernel_rwsem::Linux5_11>, compiled: once, simulated: SimulatedKernelSem<kernel_rwsem::Linux5_11>, "linux-5.11 in the kernel's own form";
    Reference "kernel-no-reader-steal" KernelSem<kernel_rwsem::NoReaderSteal>, compiled: once, simulated: SimulatedKernelSem<kernel_rwsem::NoReaderSteal>, "no-reader-steal in the kernel's own form";
    Reference "parking_lot-0.12" ParkingLot0_12, simulated: SimulatedParkingLot<V0_12>, "parking_lot::RwLock of parking_lot 0.12, which hands the lock over within a millisecond";
    Reference "parking_lot-mutex" ApiMutex<parking_lot::RawMutex>, simulated: SimulatedParkingLotMutex<V0_13>, "parking_lot::Mutex of parking_lot 0.13; readers take it exclusively";
    Reference "parking_lot-mutex-0.12" ParkingLotMutex0_12, simulated: SimulatedParkingLotMutex<V0_12>, "parking_lot::Mutex of parking_lot 0.12; readers take it exclusively";
    Reference "pthread-mutex" PthreadMutex, simulated: ApiMutex<RawPthreadMutex<Normal, Sim>, Sim>, "pthread_mutex_t with its default kind; readers acquire it exclusively";
    Reference "pthread-inherit" PthreadInherit, simulated: SimulatedInherit, "pthread_mutex_t that lends waiters' priorities to its holder (PTHREAD_PRIO_INHERIT)";
    Broken "broken" Broken, simulated: Broken<Sim>, "excludes nobody; every workload must notice";
    Broken "stuck" Stuck, "nobody ever acquires it; the command must notice";
}

/// Locks that are not Fairlock's to know: those of a [`Suite`](https://docs.rs/fairlock-study).
static ADDED: Mutex<Vec<&'static Descriptor>> = Mutex::new(Vec::new());

/// Adds a lock to those that are found by their names.
///
/// # Errors
/// If there is one of this name.
pub fn add(lock: Descriptor) -> Result<(), String> {
    if find(lock.name).is_ok() {
        return Err(format!("there is a lock `{}` already; give another name", lock.name));
    }
    ADDED.lock().unwrap_or_else(PoisonError::into_inner).push(Box::leak(Box::new(lock)));
    Ok(())
}

/// The names of the locks that were added.
pub fn added() -> Vec<&'static str> {
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    added.iter().map(|lock| lock.name).collect()
}

/// All registered locks and those added.
fn everything() -> impl Iterator<Item = &'static Descriptor> {
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    added.into_iter().chain(registry())
}

fn names_of(kinds: &[Kind]) -> Vec<&'static str> {
    everything().filter(|lock| kinds.contains(&lock.kind)).map(|lock| lock.name).collect()
}

/// The names that error messages show: all but the broken locks.
pub fn names() -> Vec<&'static str> {
    names_of(&[Kind::Ours, Kind::Preset, Kind::Peer, Kind::Reference])
}

/// What `all` means: the locks that stand any number of threads.
pub fn all() -> Vec<&'static str> {
    names_of(&[Kind::Ours, Kind::Preset, Kind::Peer])
}

/// What `all` means on a simulated machine: those of [`all`] whose source runs there.
pub fn all_simulated() -> Vec<&'static str> {
    all().into_iter().filter(|name| find_simulated(name).is_ok()).collect()
}

/// The names of the locks that run on a simulated machine.
pub fn simulated_names() -> Vec<&'static str> {
    let listed = everything().filter(|lock| lock.kind != Kind::Broken);
    listed.filter(|lock| lock.is_simulated).map(|lock| lock.name).collect()
}

/// The lock of this name, if it runs on a simulated machine.
///
/// # Errors
/// [`LabError::UnknownLock`] with all valid names, [`LabError::NotSimulated`] with those that run
/// there.
pub fn find_simulated(name: &str) -> Result<&'static Descriptor, LabError> {
    let lock = find(name)?;
    if lock.is_simulated {
        return Ok(lock);
    }
    Err(LabError::NotSimulated { name: name.to_string(), known: simulated_names() })
}

/// The lock of this name.
///
/// # Errors
/// [`LabError::UnknownLock`] with all valid names.
pub fn find(name: &str) -> Result<&'static Descriptor, LabError> {
    everything()
        .find(|lock| lock.name == name)
        .ok_or_else(|| LabError::UnknownLock { name: name.to_string(), known: names() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock::policy::Policy;
    use fairlock_report::former_names;
    use std::any::type_name;
    use std::collections::BTreeSet;
    use std::thread;

    struct TypeName;

    impl UseLock for TypeName {
        type Output = &'static str;

        fn with<L: LabLock>(self, _new: New<L>) -> &'static str {
            type_name::<L>()
        }
    }

    #[test]
    fn names_are_unique() {
        let unique: BTreeSet<_> = registry().iter().map(|lock| lock.name).collect();
        assert_eq!(unique.len(), registry().len());
    }

    fn counts_and_is_simulated<Here, Twin, Simulated>(lock: &Descriptor) {
        assert_eq!(with_plain(lock.name, TypeName), Some(type_name::<Here>()));
        let twin = counted(lock.name).unwrap()(Protected::new());
        assert_eq!(twin.type_name(), type_name::<Twin>());
        let simulated = simulated(lock.name).unwrap()(Protected::new());
        assert_eq!(simulated.type_name(), type_name::<Simulated>());
    }

    #[test]
    fn our_locks_carry_their_policies_names_and_count() {
        fn check<Pol: Policy>() {
            let lock =
                find(former_names::lock(Pol::NAME)).unwrap_or_else(|error| panic!("{error}"));
            assert!(lock.kind == Kind::Ours);
            counts_and_is_simulated::<Sem<Pol>, Sem<Pol, Counting>, Sem<Pol, Sim>>(lock);
        }
        check::<TimeFair>();
        check::<PhaseFair>();
    }

    #[test]
    fn locks_of_linux_carry_their_policies_names_and_count() {
        fn check<Pol: fairlock_reference::linux::Policy>(kind: Kind) {
            let lock = find(Pol::NAME).unwrap_or_else(|error| panic!("{error}"));
            assert!(lock.kind == kind && !lock.only_spins());
            counts_and_is_simulated::<LinuxSem<Pol>, LinuxSem<Pol, Counting>, LinuxSem<Pol, Sim>>(
                lock,
            );
        }
        check::<Linux3_10>(Kind::Preset);
        check::<Linux3_16>(Kind::Preset);
        check::<Linux5_1>(Kind::Preset);
        check::<Linux5_2>(Kind::Preset);
        check::<Linux5_3>(Kind::Preset);
        check::<Linux5_11>(Kind::Preset);
        check::<NoReaderSteal>(Kind::Preset);
        check::<ImmediateHandoff>(Kind::Preset);
        check::<Linux3_10Spin>(Kind::Reference);
        check::<Linux3_10FastFail>(Kind::Reference);
        check::<Linux3_10Both>(Kind::Reference);
    }

    /// A read is tried from another thread: before, under and after a write, and during a read.
    struct Tries {
        is_mutex: bool,
    }

    impl UseLock for Tries {
        type Output = ();

        fn with<L: LabLock>(self, new: New<L>) {
            tries(new, self.is_mutex);
        }
    }

    fn tries<L: LabLock>(new: New<L>, is_mutex: bool) {
        let lock = new(Protected::new());
        let lock = &lock;
        let try_elsewhere = || {
            let tried = thread::scope(|scope| {
                scope.spawn(|| lock.try_read(|data| data.read_around(|| data.value()))).join()
            });
            tried.unwrap().map(|read| read.unwrap().unwrap())
        };
        assert_eq!(try_elsewhere(), Some(0), "{} is free", type_name::<L>());
        lock.write(|data| {
            let tried = data.write_around(try_elsewhere).unwrap();
            assert_eq!(tried, None, "{} is held", type_name::<L>());
        });
        assert_eq!(try_elsewhere(), Some(1), "{} is free again", type_name::<L>());
        let beside = lock.try_read(|_| try_elsewhere()).expect("nobody has it");
        assert_eq!(beside.is_none(), is_mutex, "{} is read", type_name::<L>());
    }

    #[test]
    fn a_read_that_is_tried_succeeds_on_a_free_lock_and_fails_under_a_writer() {
        for lock in registry().iter().filter(|lock| lock.kind != Kind::Broken) {
            let is_mutex = lock.about.contains("exclusively") || INHERITING.contains(&lock.name);
            assert!(with_plain(lock.name, Tries { is_mutex }).is_some());
            let twin = RealWorld::with_lock(lock.name, Build::Counted, Tries { is_mutex });
            assert_eq!(twin.is_some(), lock.has_twin);
            let simulated = SimWorld::with_lock(lock.name, Build::Plain, Tries { is_mutex });
            assert_eq!(simulated.is_some(), lock.is_simulated);
        }
    }

    #[test]
    fn a_broken_lock_lets_a_try_in_under_a_writer() {
        let lock = Broken::<Os>::new(Protected::new());
        let tried = lock.write(|data| data.write_around(|| lock.try_read(|data| data.value())));
        assert!(matches!(tried, Ok(Some(Err(_)))), "{tried:?}");
        assert_eq!(Stuck::new(Protected::new()).try_read(|_| ()), None);
    }

    #[test]
    fn a_peer_that_was_not_written_again_does_not_run_on_a_simulated_machine() {
        let error = find_simulated("usync").err().unwrap().to_string();
        assert!(error.contains("`usync`") && error.contains("rwsem, phase-fair"), "{error}");
        assert!(!error.contains("sharded") && !error.contains("broken"), "{error}");
        let peers =
            ["std", "std-mutex", "parking_lot", "pthread", "pthread-writer", "pthread-mutex"];
        for peer in peers.into_iter().chain(PARKING) {
            assert!(find_simulated(peer).is_ok(), "{peer}");
        }
        assert!(find_simulated("rwsem").is_ok());
        assert!(find_simulated("foo").err().unwrap().to_string().contains("no lock"));
    }

    #[test]
    fn who_waits_for_a_lock_of_parking_lot_sleeps() {
        for name in PARKING {
            let lock = find(name).unwrap_or_else(|error| panic!("{error}"));
            assert!(lock.kind == Kind::Reference && !lock.only_spins(), "{name}");
        }
        assert!(find("ticket").is_ok_and(Descriptor::only_spins));
    }

    #[test]
    fn all_leaves_out_the_locks_that_only_a_name_selects() {
        let all = all();
        for lock in registry() {
            let is_run_by_name = matches!(lock.kind, Kind::Reference | Kind::Broken);
            assert_ne!(all.contains(&lock.name), is_run_by_name, "{}", lock.name);
            assert!(find(lock.name).is_ok());
        }
        assert!(all.contains(&"mutex") && !all.contains(&"ticket"));
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
