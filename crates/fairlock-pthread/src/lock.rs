//! What lies in the 56 bytes of a `pthread_rwlock_t`.
//!
//! ```text
//!        0                              32      36       40      44       48    49       50      52
//!   ours [ the lock of the policy …     | owner | passed | numb. | passed | kind| shared | polls | waiters ]
//!   glibc's:                     24: owner        (spare)  (spare)  (spare) kind                  (spare)
//! ```
//!
//! A lock is free if all is zero but its kind, which is how static initialisers make it. (After its
//! first use there may also be what `standstill.rs` remembers.) What counting needs lies where glibc has
//! nothing, so that its own locks can be counted likewise.
//!
//! A process-shared lock has other contents, behind a first word whose bits are all set: every
//! private lock takes that for one that cannot be had at once, so the fast paths do not ask
//! which it is.

use core::cell::UnsafeCell;
use core::mem::{align_of, offset_of, size_of};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU16, AtomicU32};

use fairlock::process_shared::ProcessSharedRwLock;
use fairlock::unguarded::UnguardedRwLock;
use libc::{c_int, pthread_rwlock_t};

use crate::platform::Preloaded;
use crate::standstill::Standstill;

/// What process-shared locks are, whatever the process's policy.
pub(crate) type ProcessShared = ProcessSharedRwLock<Preloaded>;

/// `PTHREAD_RWLOCK_PREFER_READER_NP`, the default.
pub(crate) const PREFER_READER: c_int = 0;
/// `PTHREAD_RWLOCK_PREFER_WRITER_NP`: to glibc the same, as reads may be recursive.
pub(crate) const PREFER_WRITER: c_int = 1;
/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`: reads are not recursive.
pub(crate) const PREFER_WRITER_NONRECURSIVE: c_int = 2;

/// In `flags`.
const IS_SHARED: u16 = 1 << 8;

/// A `pthread_rwlock_t`.
#[repr(C)]
pub(crate) struct Lock {
    state: UnsafeCell<[u64; 4]>,
    /// The thread that holds it for writing. Only that thread can see its own number here. While
    /// there is none: 0, or what `standstill.rs` remembers.
    owner: AtomicU32,
    /// Acquisitions by readers while somebody waited, counted only for reports.
    passed_reads: AtomicU32,
    /// Its number in the counts' file; 0: none yet.
    pub(crate) number: AtomicU32,
    /// As `passed_reads`, of writers.
    passed_writes: AtomicU32,
    /// Low byte: the kind. High byte: 1 if it is process-shared.
    flags: AtomicU16,
    /// Since when polls have been refused (`standstill.rs`).
    polls: AtomicU16,
    /// Threads that wait for it, counted only for reports.
    pub(crate) waiters: AtomicU32,
}

/// The places that glibc writes itself, in its own locks.
#[repr(C)]
struct Glibcs {
    readers_and_futexes: [u32; 4],
    /// Not used since 2.25.
    spare: [u32; 2],
    owner: AtomicU32,
    is_shared: AtomicU32,
    /// Elision, a byte, is not used since 2.25 either.
    elision_and_spare: [u32; 4],
    flags: u32,
}

const _: () = {
    assert!(size_of::<Lock>() == size_of::<pthread_rwlock_t>());
    assert!(align_of::<Lock>() <= align_of::<pthread_rwlock_t>());
    assert!(size_of::<Lock>() == 56, "as on x86-64 and aarch64");
    assert!(offset_of!(Lock, flags) == 48 && offset_of!(Glibcs, flags) == 48);
    assert!(offset_of!(Glibcs, owner) == 24 && offset_of!(Glibcs, is_shared) == 28);
    assert!(offset_of!(Lock, number) >= offset_of!(Glibcs, elision_and_spare) + 4);
    assert!(cfg!(target_endian = "little"), "the kind is the low byte of glibc's flags");
    let others = (PREFER_READER | PREFER_WRITER) & PREFER_WRITER_NONRECURSIVE;
    assert!(others == 0, "one bit tells the kind that is not recursive");
};

impl Lock {
    /// # Safety
    /// It is a `pthread_rwlock_t` that is initialised and stays so during `'a`, as everybody
    /// must see to who uses one.
    #[inline(always)]
    pub(crate) unsafe fn at<'a>(lock: *mut pthread_rwlock_t) -> &'a Lock {
        // SAFETY: the size and alignment are the same, see above; the caller promises that it is initialised and
        // stays so.
        unsafe { &*lock.cast() }
    }

    /// A free one.
    ///
    /// # Safety
    /// Nobody uses this memory, which is that of a `pthread_rwlock_t`.
    pub(crate) unsafe fn initialise(lock: *mut pthread_rwlock_t, kind: c_int, is_shared: bool) {
        // SAFETY: the caller promises that nobody uses this memory.
        unsafe { lock.write_bytes(0, 1) };
        // SAFETY: zeros are an initialised lock.
        let initialised = unsafe { Self::at(lock) };
        let shared = if is_shared { IS_SHARED } else { 0 };
        initialised.flags.store(kind as u16 | shared, Relaxed);
        if is_shared {
            // SAFETY: inside the lock, which nobody uses yet.
            unsafe { lock.cast::<u64>().write(u64::MAX) };
        }
    }

    /// As the lock of the process's policy.
    #[inline(always)]
    pub(crate) fn of<L: UnguardedRwLock>(&self) -> &L {
        const {
            assert!(size_of::<L>() <= 32 && align_of::<L>() <= 8, "the state's room");
        }
        // SAFETY: in its place and aligned; all zero is a free lock of every policy (see the test),
        // and no thread writes to it by another one.
        unsafe { &*self.state.get().cast() }
    }

    /// If it is process-shared.
    pub(crate) fn process_shared(&self) -> &ProcessShared {
        const {
            assert!(size_of::<ProcessShared>() <= 24 && align_of::<ProcessShared>() <= 8);
        }
        // SAFETY: behind the first word there is room for it, aligned; zeros are free; and the flags say that no
        // thread uses the lock as another one.
        unsafe { &*self.state.get().cast::<u64>().add(1).cast() }
    }

    #[inline(always)]
    pub(crate) fn is_shared(&self) -> bool {
        self.flags.load(Relaxed) & IS_SHARED != 0
    }

    /// Neither process-shared nor of the kind whose readers pass no writer that waits: one comparison,
    /// for paths that must be short.
    #[inline(always)]
    pub(crate) fn may_have_slots(&self) -> bool {
        self.flags.load(Relaxed) & (IS_SHARED | PREFER_WRITER_NONRECURSIVE as u16) == 0
    }

    pub(crate) fn kind(&self) -> c_int {
        (self.flags.load(Relaxed) & !IS_SHARED).into()
    }

    pub(crate) fn is_recursive(&self) -> bool {
        self.kind() != PREFER_WRITER_NONRECURSIVE
    }

    #[inline(always)]
    pub(crate) fn owner(&self) -> &AtomicU32 {
        &self.owner
    }

    pub(crate) fn standstill(&self) -> Standstill<'_> {
        Standstill { owner: &self.owner, polls: &self.polls }
    }

    /// Acquisitions while somebody waits, by role.
    pub(crate) fn passed(&self, role: usize) -> &AtomicU32 {
        if role == fairlock_counts::layout::READ { &self.passed_reads } else { &self.passed_writes }
    }

    fn glibcs(&self) -> &Glibcs {
        // SAFETY: a `Lock` has the size of glibc's structure, whose functions write atomically what is read here.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }

    /// Of a lock of glibc's.
    pub(crate) fn glibcs_owner(&self) -> u32 {
        self.glibcs().owner.load(Acquire)
    }

    /// Of a lock of glibc's.
    pub(crate) fn glibcs_is_shared(&self) -> bool {
        self.glibcs().is_shared.load(Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modes;

    fn is_zero<L: UnguardedRwLock>() -> bool {
        let free = L::FREE;
        // SAFETY: the bytes of a value that lives. Padding, if there is any, is not looked at by
        // anybody; what is compared here is at worst an arbitrary byte of it.
        let bytes = unsafe {
            core::slice::from_raw_parts(core::ptr::from_ref(&free).cast::<u8>(), size_of::<L>())
        };
        bytes.iter().all(|byte| *byte == 0)
    }

    #[test]
    fn a_free_lock_is_all_zero_whatever_the_policy() {
        assert!(is_zero::<modes::RwSem>());
        assert!(is_zero::<modes::PhaseFair>());
        assert!(is_zero::<modes::RwLock>());
        assert!(is_zero::<modes::Linux<fairlock_reference::linux::Linux3_10>>());
        assert!(is_zero::<modes::Linux<fairlock_reference::linux::Linux5_11>>());
        assert!(is_zero::<ProcessShared>());
    }
}
