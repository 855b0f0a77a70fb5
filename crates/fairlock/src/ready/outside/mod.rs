//! A descriptor by which another event loop waits for a poll: readable while something may be
//! ready, or when the time of the poll's first timer has come.
//!
//! Only Linux has all that it is made of. On other systems a poll has none: there is no function
//! that makes one, and no value of this type.

#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
mod linux;
#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
pub(super) use linux::Descriptor;

/// There is none on this system.
#[cfg(not(all(target_os = "linux", not(fairlock_elsewhere))))]
pub(super) enum Descriptor {}

#[cfg(not(all(target_os = "linux", not(fairlock_elsewhere))))]
impl Descriptor {
    pub(super) fn raise(&self) {
        match *self {}
    }

    pub(super) fn lower(&self) {
        match *self {}
    }

    pub(super) fn raise_at(&self, _moment: Option<u64>) {
        match *self {}
    }
}
