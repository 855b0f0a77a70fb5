//! The end of threads that use a lock for the first time when their thread-local variables are gone.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

/// A pthread key whose destructor runs at the end of threads that use their first lock in the destructor of
/// another key, when their thread-local variables have been destroyed already. With glibc a variable
/// made there is never destroyed, so without the key each such thread would keep a record for ever.
///
/// Nobody deletes the key. When the library that contains this is unloaded, no thread has a value for it: a
/// thread that had one has either destroyed its variable, which takes the value away, or has not, which
/// keeps the library loaded.
pub(crate) struct EndKey {
    /// The key plus one; 0 if there is none yet.
    key: AtomicU32,
}

impl EndKey {
    /// A key yet to be created.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub(crate) const NEW: Self = EndKey { key: AtomicU32::new(0) };

    /// From now on `destructor` runs at the calling thread's end, unless no key is left, or no memory.
    pub(crate) fn arm(&self, destructor: unsafe extern "C" fn(*mut c_void)) {
        let key = match self.key.load(Ordering::Relaxed) {
            0 => self.create(destructor),
            key => key,
        };
        if key != 0 {
            // SAFETY: the key exists, and any value but null makes its destructor run.
            unsafe { libc::pthread_setspecific(key - 1, core::ptr::from_ref(self).cast()) };
        }
    }

    /// It does not run any more at the calling thread's end.
    pub(crate) fn disarm(&self) {
        match self.key.load(Ordering::Relaxed) {
            0 => {}
            // SAFETY: the key exists.
            key => _ = unsafe { libc::pthread_setspecific(key - 1, core::ptr::null()) },
        }
    }

    #[cold]
    fn create(&self, destructor: unsafe extern "C" fn(*mut c_void)) -> u32 {
        let mut new = 0;
        // SAFETY: plain calls. The destructor is a function of this library, which is still loaded when it
        // runs, see above. If another thread created the key first, nobody has used this one.
        unsafe {
            if libc::pthread_key_create(&mut new, Some(destructor)) != 0 {
                return 0;
            }
            let (none, relaxed) = (0, Ordering::Relaxed);
            match self.key.compare_exchange(none, new + 1, relaxed, relaxed) {
                Ok(_) => new + 1,
                Err(first) => {
                    libc::pthread_key_delete(new);
                    first
                }
            }
        }
    }
}
