//! What threads do to locks, for `fairlock run`: with the feature `record` each acquisition and
//! release is counted, and recorded operation by operation, in a file that the command reads.
//!
//! * `counts.rs`: where that is possible.
//! * `nothing.rs`: the same types where it is not, of which there are no values, so that nothing is
//!   left of the calls.
//!
//! Not for: locks that are used on other platforms than real threads. These have no
//! [`CountedLock`].

// As in Cargo.toml; models of locks are not recorded. In each file, what the locks use has the same names.
#[cfg_attr(
    not(all(
        feature = "record",
        not(loom),
        target_os = "linux",
        target_env = "gnu",
        target_pointer_width = "64",
        any(target_arch = "x86_64", target_arch = "aarch64")
    )),
    path = "nothing.rs"
)]
mod counts;

pub(crate) use counts::is_counted;
pub use counts::{Acquisition, CountedLock, Counts, Release};

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
