//! `pthread_rwlock_t` in its two flavours, and `pthread_mutex_t` with and without priority inheritance.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Deref;

use fairlock::platform::Os;

use super::{Access, LabLock, NewLock, Protected};

/// glibc's `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`, an enumerator in `pthread.h`. The
/// plain `PREFER_WRITER_NP` behaves like the default.
const PREFER_WRITER_NONRECURSIVE: libc::c_int = 2;

/// A `pthread_rwlock_t` that does not move, around the data.
///
/// Invariant: `raw` is initialised from `new` to `drop` and stays at its address.
struct Pthread {
    raw: Box<UnsafeCell<libc::pthread_rwlock_t>>,
    data: Protected,
}

// SAFETY: a pthread rwlock may be used and destroyed from any thread; while locks are held
// through `Held`, the borrow keeps `self` alive. `Protected` is Sync by itself.
unsafe impl Send for Pthread {}
// SAFETY: threads use the shared `raw` through the pthread calls alone, which are made for that, and
// `Protected` is Sync by itself.
unsafe impl Sync for Pthread {}

/// The lock is held by this thread; dropping releases it, also when a section panics.
pub struct Held<'a>(&'a Pthread);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: initialised, and held by this thread since `Held` was made.
        let result = unsafe { libc::pthread_rwlock_unlock(self.0.raw.get()) };
        debug_assert_eq!(result, 0);
    }
}

impl Pthread {
    fn new(data: Protected, prefer_writer: bool) -> Pthread {
        let raw = Box::new(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
        let mut attributes = MaybeUninit::<libc::pthread_rwlockattr_t>::uninit();
        // SAFETY: `attributes` is valid for writes; `init` makes it initialised for `setkind`,
        // `rwlock_init` and `destroy`. `raw` is not shared yet.
        unsafe {
            let attributes = attributes.as_mut_ptr();
            assert_eq!(libc::pthread_rwlockattr_init(attributes), 0);
            if prefer_writer {
                let kind = PREFER_WRITER_NONRECURSIVE;
                assert_eq!(libc::pthread_rwlockattr_setkind_np(attributes, kind), 0);
            }
            assert_eq!(libc::pthread_rwlock_init(raw.get(), attributes), 0);
            libc::pthread_rwlockattr_destroy(attributes);
        }
        Pthread { raw, data }
    }

    #[inline]
    fn read(&self) -> Held<'_> {
        // SAFETY: initialised and at a fixed address.
        let result = unsafe { libc::pthread_rwlock_rdlock(self.raw.get()) };
        assert_eq!(result, 0, "pthread_rwlock_rdlock");
        Held(self)
    }

    #[inline]
    fn try_read(&self) -> Option<Held<'_>> {
        // SAFETY: initialised and at a fixed address.
        let result = unsafe { libc::pthread_rwlock_tryrdlock(self.raw.get()) };
        assert!(result == 0 || result == libc::EBUSY, "pthread_rwlock_tryrdlock: {result}");
        (result == 0).then(|| Held(self))
    }

    #[inline]
    fn try_write(&self) -> Option<Held<'_>> {
        // SAFETY: initialised and at a fixed address.
        let result = unsafe { libc::pthread_rwlock_trywrlock(self.raw.get()) };
        assert!(result == 0 || result == libc::EBUSY, "pthread_rwlock_trywrlock: {result}");
        (result == 0).then(|| Held(self))
    }

    #[inline]
    fn write(&self) -> Held<'_> {
        // SAFETY: initialised and at a fixed address.
        let result = unsafe { libc::pthread_rwlock_wrlock(self.raw.get()) };
        assert_eq!(result, 0, "pthread_rwlock_wrlock");
        Held(self)
    }
}

impl Drop for Pthread {
    fn drop(&mut self) {
        // SAFETY: initialised; `&mut self` means that no `Held` is left.
        unsafe { libc::pthread_rwlock_destroy(self.raw.get()) };
    }
}

/// A `pthread_mutex_t` that does not move, around the data.
///
/// Invariant: `raw` is initialised from `new` to `drop` and stays at its address.
pub(super) struct Mutex {
    raw: Box<UnsafeCell<libc::pthread_mutex_t>>,
    data: Protected,
}

// SAFETY: a pthread mutex may be used and destroyed from any thread, and is unlocked by the thread that
// locked it, when a `HeldMutex`, which no other thread gets, is dropped. `Protected` is Sync by itself.
unsafe impl Send for Mutex {}
// SAFETY: threads use the shared `raw` through the pthread calls alone, which are made for that, and
// `Protected` is Sync by itself.
unsafe impl Sync for Mutex {}

/// The mutex is held by this thread; dropping releases it, also when a section panics.
pub struct HeldMutex<'a>(&'a Mutex);

impl Drop for HeldMutex<'_> {
    fn drop(&mut self) {
        // SAFETY: initialised, and held by this thread since `HeldMutex` was made.
        let result = unsafe { libc::pthread_mutex_unlock(self.0.raw.get()) };
        debug_assert_eq!(result, 0);
    }
}

impl Deref for HeldMutex<'_> {
    type Target = Protected;

    fn deref(&self) -> &Protected {
        &self.0.data
    }
}

/// A `pthread_cond_t` that does not move.
///
/// Invariant: `raw` is initialised from `new` to `drop` and stays at its address.
pub struct PthreadCondvar {
    raw: Box<UnsafeCell<libc::pthread_cond_t>>,
}

// SAFETY: a pthread condition variable may be used and destroyed from any thread.
unsafe impl Send for PthreadCondvar {}
// SAFETY: threads use the shared `raw` through the pthread calls alone, which are made for that.
unsafe impl Sync for PthreadCondvar {}

impl PthreadCondvar {
    pub(super) fn new() -> PthreadCondvar {
        PthreadCondvar { raw: Box::new(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER)) }
    }

    /// Releases the mutex, waits, and acquires the mutex again.
    #[inline]
    pub(super) fn wait(&self, held: &mut HeldMutex<'_>) {
        // SAFETY: both are initialised and at fixed addresses, and this thread holds the mutex.
        let result = unsafe { libc::pthread_cond_wait(self.raw.get(), held.0.raw.get()) };
        assert_eq!(result, 0, "pthread_cond_wait");
    }

    #[inline]
    pub(super) fn notify_one(&self) {
        // SAFETY: initialised and at a fixed address.
        unsafe { libc::pthread_cond_signal(self.raw.get()) };
    }

    #[inline]
    pub(super) fn notify_all(&self) {
        // SAFETY: initialised and at a fixed address.
        unsafe { libc::pthread_cond_broadcast(self.raw.get()) };
    }
}

impl Drop for PthreadCondvar {
    fn drop(&mut self) {
        // SAFETY: initialised; `&mut self` means that no thread waits.
        unsafe { libc::pthread_cond_destroy(self.raw.get()) };
    }
}

impl Mutex {
    /// `protocol` says what waiters lend to the holder.
    fn new(data: Protected, protocol: libc::c_int) -> Mutex {
        let raw = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: `attributes` is valid for writes; `init` makes it initialised for `setprotocol`,
        // `mutex_init` and `destroy`. `raw` is not shared yet.
        unsafe {
            let attributes = attributes.as_mut_ptr();
            assert_eq!(libc::pthread_mutexattr_init(attributes), 0);
            assert_eq!(libc::pthread_mutexattr_setprotocol(attributes, protocol), 0);
            assert_eq!(libc::pthread_mutex_init(raw.get(), attributes), 0);
            libc::pthread_mutexattr_destroy(attributes);
        }
        Mutex { raw, data }
    }

    #[inline]
    pub(super) fn lock(&self) -> HeldMutex<'_> {
        // SAFETY: initialised and at a fixed address.
        let result = unsafe { libc::pthread_mutex_lock(self.raw.get()) };
        assert_eq!(result, 0, "pthread_mutex_lock");
        HeldMutex(self)
    }

    #[inline]
    fn try_lock(&self) -> Option<HeldMutex<'_>> {
        // SAFETY: initialised and at a fixed address.
        let result = unsafe { libc::pthread_mutex_trylock(self.raw.get()) };
        assert!(result == 0 || result == libc::EBUSY, "pthread_mutex_trylock: {result}");
        (result == 0).then(|| HeldMutex(self))
    }
}

impl Drop for Mutex {
    fn drop(&mut self) {
        // SAFETY: initialised; `&mut self` means that nobody holds it.
        unsafe { libc::pthread_mutex_destroy(self.raw.get()) };
    }
}

macro_rules! mutex {
    ($(#[$about:meta])* $name:ident, $protocol:ident) => {
        $(#[$about])*
        pub struct $name(pub(super) Mutex);

        impl LabLock for $name {
            type Platform = Os;

            #[inline]
            fn read<R>(&self, section: impl FnOnce(&Protected) -> R) -> R {
                section(&self.0.lock().0.data)
            }

            #[inline]
            fn try_read<R>(&self, section: impl FnOnce(&Protected) -> R) -> Option<R> {
                Some(section(&self.0.try_lock()?.0.data))
            }

            #[inline]
            fn write<R>(&self, section: impl FnOnce(&Protected) -> R) -> R {
                section(&self.0.lock().0.data)
            }

            type Hold<'a> = HeldMutex<'a>;

            #[inline]
            fn hold(&self, _access: Access) -> HeldMutex<'_> {
                self.0.lock()
            }

            #[inline]
            fn try_hold(&self, _access: Access) -> Option<HeldMutex<'_>> {
                self.0.try_lock()
            }
        }

        impl NewLock for $name {
            const BYTES: usize =
                size_of::<Box<()>>() + size_of::<libc::pthread_mutex_t>();

            fn new(data: Protected) -> Self {
                $name(Mutex::new(data, libc::$protocol))
            }
        }
    };
}

mutex!(
    /// `pthread_mutex_t` with default attributes.
    PthreadMutex,
    PTHREAD_PRIO_NONE
);
mutex!(
    /// `pthread_mutex_t` whose holder runs with the highest priority of its waiters.
    PthreadInherit,
    PTHREAD_PRIO_INHERIT
);

macro_rules! flavour {
    ($(#[$about:meta])* $name:ident, prefer_writer: $prefer_writer:literal) => {
        $(#[$about])*
        pub struct $name(Pthread);

        impl LabLock for $name {
            type Platform = Os;

            #[inline]
            fn read<R>(&self, section: impl FnOnce(&Protected) -> R) -> R {
                let held = self.0.read();
                section(&held.0.data)
            }

            #[inline]
            fn try_read<R>(&self, section: impl FnOnce(&Protected) -> R) -> Option<R> {
                let held = self.0.try_read()?;
                Some(section(&held.0.data))
            }

            #[inline]
            fn write<R>(&self, section: impl FnOnce(&Protected) -> R) -> R {
                let held = self.0.write();
                section(&held.0.data)
            }

            type Hold<'a> = Held<'a>;

            #[inline]
            fn hold(&self, access: Access) -> Held<'_> {
                match access {
                    Access::Shared => self.0.read(),
                    Access::Exclusive => self.0.write(),
                }
            }

            #[inline]
            fn try_hold(&self, access: Access) -> Option<Held<'_>> {
                match access {
                    Access::Shared => self.0.try_read(),
                    Access::Exclusive => self.0.try_write(),
                }
            }
        }

        impl NewLock for $name {
            const BYTES: usize =
                size_of::<Box<()>>() + size_of::<libc::pthread_rwlock_t>();

            fn new(data: Protected) -> Self {
                $name(Pthread::new(data, $prefer_writer))
            }
        }
    };
}

flavour!(
    /// `pthread_rwlock_t` with default attributes.
    PthreadRwLock,
    prefer_writer: false
);
flavour!(
    /// `pthread_rwlock_t` that prefers writers and forbids recursive reads.
    PthreadPreferWriter,
    prefer_writer: true
);
