//! What each thread holds, so that deadlocks are found: those of one thread with itself, in debug
//! builds, and with the feature `deadlock_detection` those between threads (`../deadlock.rs`).
//!
//! A guard keeps a [`Holding`]. It tells that its lock is acquired, used and released, and an
//! acquisition that may wait first asks whether the wait could end. [`Unchecked`] does none of this
//! and costs nothing; [`Checked`] remembers the holds of real threads (`records.rs`).
//!
//! Not for: letting anybody wait, or deciding who may enter. A hold that is not remembered only
//! means that a deadlock is not found. Nothing here takes a lock or calls the program's allocator,
//! as that may itself take locks of this crate.

// Where nothing is checked, only `Unchecked` has a use.
#![cfg_attr(
    any(loom, not(any(debug_assertions, feature = "deadlock_detection"))),
    allow(dead_code)
)]

#[cfg(feature = "deadlock_detection")]
pub(crate) mod order;
pub(crate) mod records;
#[cfg(feature = "deadlock_detection")]
pub(crate) mod stack;

use core::panic::Location;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::recorded::{CountedLock, Counts};
use records::{Hold, Record};

/// How a thread holds a lock, or wants to hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// With other readers.
    Shared,
    /// With other readers, and as the only one that may upgrade.
    Upgradable,
    /// Alone. A mutex is always held like this.
    Exclusive,
}

impl core::fmt::Display for Access {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Access::Shared => "read",
            Access::Upgradable => "upgradable read",
            Access::Exclusive => "exclusive",
        })
    }
}

/// What a thread asks for when it may have to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// A read, which may wait behind queued writers.
    Read,
    /// A read that passes queued writers, for threads that may hold the lock for reading already.
    RecursiveRead,
    /// An upgradable read.
    UpgradableRead,
    /// A write.
    Write,
    /// The end of all other reads: the thread holds the lock upgradable and wants it exclusively.
    Upgrade,
    /// A mutex.
    Lock,
}

impl Wanted {
    /// How the thread holds the lock once it has got what it asked for.
    pub fn access(self) -> Access {
        match self {
            Wanted::Read | Wanted::RecursiveRead => Access::Shared,
            Wanted::UpgradableRead => Access::Upgradable,
            Wanted::Write | Wanted::Upgrade | Wanted::Lock => Access::Exclusive,
        }
    }

    /// Whether it waits for another thread that holds the lock like this.
    #[cfg(feature = "deadlock_detection")]
    pub(crate) fn waits_for(self, held: Access) -> bool {
        match self.access() {
            Access::Shared => held == Access::Exclusive,
            Access::Upgradable => held != Access::Shared,
            Access::Exclusive => true,
        }
    }

    /// Whether it may wait for writers that queued before it, though it could share the lock with
    /// those who hold it.
    #[cfg(feature = "deadlock_detection")]
    pub(crate) fn stands_behind_writers(self) -> bool {
        matches!(self, Wanted::Read | Wanted::UpgradableRead)
    }

    /// Why a thread that holds the lock like this must not wait for it: what happens, and what to
    /// do instead.
    fn refused_within(self, held: Access) -> Option<(&'static str, &'static str)> {
        use Access::{Exclusive, Shared, Upgradable};
        use Wanted::{Lock, Read, RecursiveRead, UpgradableRead, Upgrade, Write};
        Some(match (self, held) {
            (RecursiveRead, Shared | Upgradable) => return None,
            // That is the hold which is upgraded.
            (Upgrade, Upgradable | Exclusive) => return None,
            (Read, Shared | Upgradable) => (
                "a read within a read: as soon as a writer queues between the two, it waits for the first, and the \
                 second waits for the writer, for ever",
                "Pass the first guard or the data on, or use try_read",
            ),
            (Read | RecursiveRead, Exclusive) => (
                "a read within a write: it would wait for this thread's own write, for ever",
                "Use the write guard, which can read as well, or downgrade it",
            ),
            (UpgradableRead, Shared) => (
                "an upgradable read within a read: as soon as a writer queues between the two, it waits for the \
                 first, and the second waits for the writer, for ever",
                "Begin with the upgradable read, or use try_upgradable_read",
            ),
            (UpgradableRead, Upgradable) => (
                "an upgradable read within an upgradable read: there is only one at a time, so it would wait for this \
                 thread's own, for ever",
                "Pass the first guard on",
            ),
            (UpgradableRead, Exclusive) => (
                "an upgradable read within a write: it would wait for this thread's own write, for ever",
                "Use the write guard, or downgrade it",
            ),
            (Write, Shared) => (
                "a write within a read: it would wait for this thread's own read, for ever",
                "Drop the read guard first, or begin with upgradable_read and upgrade that",
            ),
            (Write, Upgradable) => (
                "a write within an upgradable read: it would wait for this thread's own read, for ever",
                "Upgrade the guard",
            ),
            (Write, Exclusive) => (
                "a write within a write: it would wait for this thread's own write, for ever",
                "Pass the first guard or the data on, or drop the first write guard before",
            ),
            (Upgrade, Shared) => (
                "an upgrade beside another read: it would wait for that read, which is this thread's own, for ever",
                "Drop the other read guard first",
            ),
            (Lock, _) => (
                "a mutex locked twice: it would wait for this thread's own guard, for ever",
                "Pass the first guard or the data on, or drop the first guard before",
            ),
        })
    }
}

/// A lock as checks know it: a number that no other lock has at the same time, and its type.
#[derive(Debug, Clone, Copy)]
pub struct Lock {
    pub(crate) id: usize,
    #[cfg(feature = "deadlock_detection")]
    pub(crate) type_name: fn() -> &'static str,
}

impl Lock {
    /// `id` is what the lock's [`Identity`] says, or another number that no other lock has; never
    /// null. The second is `core::any::type_name::<RwLock<T>>` or the like.
    #[inline(always)]
    pub fn new(id: *const (), _type_name: fn() -> &'static str) -> Self {
        Lock {
            id: id.addr(),
            #[cfg(feature = "deadlock_detection")]
            type_name: _type_name,
        }
    }
}

/// A field of locks, by which the checks know them.
pub trait Identity: Send + Sync + 'static {
    /// Of a new lock. Zeros are one, too.
    const NEW: Self;

    /// What identifies the lock at this address, of which this is a field.
    fn of(&self, lock: *const ()) -> *const ();

    /// What counts the lock's operations; none where they are not counted.
    #[doc(hidden)]
    #[inline(always)]
    fn counted(&self) -> Option<&CountedLock> {
        None
    }
}

/// The lock's address, where nothing is checked. It takes no room.
#[derive(Debug)]
pub struct Address;

impl Identity for Address {
    const NEW: Self = Address;

    #[inline(always)]
    fn of(&self, lock: *const ()) -> *const () {
        lock
    }
}

/// A number that no other lock ever gets. An address could become another lock's when this one is
/// moved or dropped, and what is known of the old one would be taken for the new one's: the order
/// in which it was acquired, or a guard that was forgotten.
#[derive(Debug)]
pub struct Number {
    /// 0 until somebody asks.
    number: AtomicUsize,
}

impl Identity for Number {
    const NEW: Self = Number { number: AtomicUsize::new(0) };

    fn of(&self, _lock: *const ()) -> *const () {
        static LOCKS: AtomicUsize = AtomicUsize::new(0);
        let number = match self.number.load(Relaxed) {
            0 => {
                // Twice an odd number, as no number of an RwLock is.
                let new = LOCKS.fetch_add(1, Relaxed) << 2 | 2;
                self.number.compare_exchange(0, new, Relaxed, Relaxed).map_or_else(|it| it, |_| new)
            }
            known => known,
        };
        core::ptr::without_provenance(number)
    }
}

/// As `I`, of a lock whose operations are counted where that is possible.
#[derive(Debug)]
pub struct WithCounts<I> {
    identity: I,
    counts: Counts,
}

impl<I: Identity> Identity for WithCounts<I> {
    const NEW: Self = WithCounts { identity: I::NEW, counts: Counts::NEW };

    #[inline(always)]
    fn of(&self, lock: *const ()) -> *const () {
        self.identity.of(lock)
    }
    #[inline(always)]
    fn counted(&self) -> Option<&CountedLock> {
        self.counts.of_lock()
    }
}

/// What a guard remembers of its hold, and what is asked before it is acquired. Guards that are
/// forgotten count as held, which they are.
///
/// A front calls, in this order:
/// 1. [`check`](Self::check), before an acquisition that may wait for ever.
/// 2. [`ask`](Self::ask), before one that may wait for ever.
/// 3. [`waiting`](Self::waiting), when one that may wait for ever begins to wait; dropped when the
///    wait has ended.
/// 4. [`begin`](Self::begin), when the lock has been acquired in any way.
/// 5. [`change`](Self::change) while it is held.
/// 6. [`end`](Self::end), *before* the lock is released: otherwise the next holder's hold might be
///    noted while this one is still there.
pub trait Holding: Sized + Send + Sync + 'static {
    /// Whether the functions below do anything.
    const CHECKS: bool;
    /// Of a hold that is not remembered.
    const NONE: Self;

    /// A thread's wait for a lock.
    type Waiting;

    /// How locks are known to the functions below.
    type Identity: Identity;

    /// The calling thread is about to acquire `lock`, and may wait for it.
    ///
    /// # Panics
    /// If it holds the lock already so that the wait would never end. The message says what to do,
    /// and where the first hold began; the panic is at the caller's line.
    #[track_caller]
    fn check(lock: Lock, wanted: Wanted);

    /// As [`check`](Self::check), for a thread that will release this hold before.
    #[track_caller]
    fn check_return(&self, lock: Lock, wanted: Wanted);

    /// The calling thread is about to acquire `lock`, however long that takes. Notes where, and the
    /// lock order.
    #[track_caller]
    fn ask(lock: Lock, wanted: Wanted);

    /// The calling thread begins to wait for `lock` for as long as it takes, where it has asked for
    /// it, or at the caller's line if it has not.
    #[track_caller]
    #[must_use]
    fn waiting(lock: Lock, wanted: Wanted) -> Self::Waiting;

    /// The calling thread has acquired the lock, at the caller's line.
    #[track_caller]
    #[must_use]
    fn begin(lock: Lock, access: Access) -> Self;

    /// A guard takes the place of one that the calling thread has forgotten, of such a hold.
    #[must_use]
    fn recover(lock: Lock, access: Access) -> Self;

    /// The lock has been upgraded or downgraded, or is about to be downgraded.
    fn change(&mut self, access: Access);

    /// The lock is about to be released, by whichever thread.
    fn end(self);
}

macro_rules! remembers_nothing {
    ($(#[$about:meta])* $name:ident, $identity:ty) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $name;

        impl Holding for $name {
            const CHECKS: bool = false;
            const NONE: Self = $name;
            type Waiting = ();
            type Identity = $identity;
            #[inline(always)]
            fn check(_lock: Lock, _wanted: Wanted) {}
            #[inline(always)]
            fn check_return(&self, _lock: Lock, _wanted: Wanted) {}
            #[inline(always)]
            fn ask(_lock: Lock, _wanted: Wanted) {}
            #[inline(always)]
            fn waiting(_lock: Lock, _wanted: Wanted) {}
            #[inline(always)]
            fn begin(_lock: Lock, _access: Access) -> Self {
                $name
            }
            #[inline(always)]
            fn recover(_lock: Lock, _access: Access) -> Self {
                $name
            }
            #[inline(always)]
            fn change(&mut self, _access: Access) {}
            #[inline(always)]
            fn end(self) {}
        }
    };
}

remembers_nothing! {
    /// Remembers nothing: for releases, and where threads are simulated.
    Unchecked, Address
}

#[cfg(not(all(any(debug_assertions, feature = "deadlock_detection"), not(loom))))]
remembers_nothing! {
    /// As [`Unchecked`], of locks whose operations may be counted.
    UncheckedCounted, WithCounts<Address>
}

/// What real threads hold. None if the hold could not be remembered: its thread holds too many
/// locks already, or is about to end, or there is no memory.
#[derive(Debug)]
pub struct Checked(Option<Hold>);

/// What guards of real threads remember in this build. Nothing where locks are models: all threads
/// of a model are one thread of the system, and Loom itself finds deadlocks.
#[cfg(all(any(debug_assertions, feature = "deadlock_detection"), not(loom)))]
pub(crate) type OfOs = Checked;
/// What guards of real threads remember in this build.
#[cfg(not(all(any(debug_assertions, feature = "deadlock_detection"), not(loom))))]
pub(crate) type OfOs = UncheckedCounted;

impl Holding for Checked {
    const CHECKS: bool = true;
    const NONE: Self = Checked(None);
    type Waiting = Waiting;
    type Identity = WithCounts<Number>;

    fn check(lock: Lock, wanted: Wanted) {
        check_beside(None, lock, wanted);
    }

    fn check_return(&self, lock: Lock, wanted: Wanted) {
        check_beside(self.0.as_ref(), lock, wanted);
    }

    fn ask(_lock: Lock, _wanted: Wanted) {
        #[cfg(feature = "deadlock_detection")]
        if let Some(record) = Record::own() {
            record.ask(_lock, _wanted, Location::caller());
        }
    }

    #[cfg(feature = "deadlock_detection")]
    fn waiting(lock: Lock, wanted: Wanted) -> Waiting {
        let place = Location::caller();
        Waiting(Record::own().and_then(|record| record.wait(lock, wanted, place)))
    }

    #[cfg(not(feature = "deadlock_detection"))]
    fn waiting(_lock: Lock, _wanted: Wanted) -> Waiting {
        Waiting
    }

    fn begin(lock: Lock, access: Access) -> Self {
        let place = Location::caller();
        Checked(Record::own().and_then(|record| record.hold(lock, access, place)))
    }

    fn recover(lock: Lock, access: Access) -> Self {
        Checked(Record::known().and_then(|record| record.recover(lock.id, access)))
    }

    fn change(&mut self, access: Access) {
        if let Some(hold) = &mut self.0 {
            hold.change(access);
        }
    }

    fn end(self) {
        if let Some(hold) = &self.0 {
            hold.end();
        }
    }
}

/// Panics if the calling thread holds the lock already, other than by `own`, so that a wait would
/// never end.
#[track_caller]
fn check_beside(own: Option<&Hold>, lock: Lock, wanted: Wanted) {
    let Some(record) = Record::known() else { return };
    let mut others = record.holds_of(lock.id).filter(|it| own.is_none_or(|own| !own.is(it)));
    let refused = others.find_map(|held| {
        wanted.refused_within(held.access).map(|(happens, instead)| (happens, instead, held))
    });
    if let Some((happens, instead, held)) = refused {
        panic!(
            "{happens}. {instead}. The first was acquired at {} (debug builds and the feature \
             deadlock_detection check this)",
            held.place
        );
    }
}

/// A thread waits until this is dropped.
#[cfg(feature = "deadlock_detection")]
#[derive(Debug)]
pub struct Waiting(Option<records::Wait>);

#[cfg(feature = "deadlock_detection")]
impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(wait) = &self.0 {
            wait.end();
        }
    }
}

/// A thread waits until this is dropped; only the feature `deadlock_detection` wants to know.
#[cfg(not(feature = "deadlock_detection"))]
#[derive(Debug)]
pub struct Waiting;

#[cfg(test)]
mod tests;
