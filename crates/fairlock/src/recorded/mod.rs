//! What threads do to locks, for `fairlock run`: with the feature `record` each acquisition and
//! release is counted, and recorded operation by operation, in a file that the command reads.
//!
//! * `counts.rs`: where that is possible.
//! * `nothing.rs`: the same types where it is not, of which there are no values, so that nothing is
//!   left of the calls.
//!
//! Not for: locks that are used on other platforms than real threads. These have no
//! [`CountedLock`].

#[cfg(fairlock_records)]
mod counts;
#[cfg(fairlock_records)]
pub(crate) use counts::is_counted;
#[cfg(fairlock_records)]
pub use counts::{Acquisition, CountedLock, Release};

#[cfg(not(fairlock_records))]
mod nothing;
#[cfg(not(fairlock_records))]
pub(crate) use nothing::is_counted;
#[cfg(not(fairlock_records))]
pub use nothing::{Acquisition, CountedLock, Release};

/// How a lock is asked for. A mutex is always written. An upgradable holder reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// With others.
    Read,
    /// Alone.
    Write,
}

/// How long a thread would wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// As long as it takes.
    Waits,
    /// Not at all.
    Tries,
    /// Until some time.
    Timed,
}

/// The thread holds the lock in another way from now on, which took no time: it has released it,
/// and acquired it again.
#[inline(always)]
pub(crate) fn changes(lock: Option<&CountedLock>, from: Role, to: Role) {
    if let Some(release) = Release::begins(lock, from) {
        release.ends();
    }
    acquired(lock, to);
}

/// The thread holds a lock for which it has neither asked nor waited.
#[inline(always)]
pub(crate) fn acquired(lock: Option<&CountedLock>, role: Role) {
    if let Some(acquisition) = Acquisition::begins(lock, role, Patience::Waits) {
        acquisition.ends(true);
    }
}
