//! A destructor that runs at a thread's end, for threads whose thread-local variables have been
//! destroyed already.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A pthread key whose destructor runs at the end of threads that use their first lock in the
/// destructor of another key, when their thread-local variables have been destroyed already. With
/// glibc a variable made there is never destroyed, so without the key each such thread would keep a
/// record for ever.
///
/// Nobody deletes the key. When the library that contains this is unloaded, no thread has a value
/// for it: a thread that had one has either destroyed its variable, which takes the value away, or
/// has not, which keeps the library loaded.
pub(crate) struct EndKey {
    /// The key plus one; 0 if there is none yet.
    key: AtomicUsize,
}

type Destructor = unsafe extern "C" fn(*mut c_void);

impl EndKey {
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub(crate) const NEW: Self = EndKey { key: AtomicUsize::new(0) };

    /// From now on `destructor` runs at the calling thread's end, unless no key is left, or no
    /// memory.
    pub(crate) fn arm(&self, destructor: Destructor) {
        let key = match self.key.load(Ordering::Relaxed) {
            0 => self.create(destructor),
            key => key,
        };
        if key != 0 {
            // SAFETY: the key exists, and any value but null makes its destructor run.
            unsafe { libc::pthread_setspecific(system_key(key), core::ptr::from_ref(self).cast()) };
        }
    }

    pub(crate) fn disarm(&self) {
        match self.key.load(Ordering::Relaxed) {
            0 => {}
            // SAFETY: the key exists.
            key => _ = unsafe { libc::pthread_setspecific(system_key(key), core::ptr::null()) },
        }
    }

    /// The key plus one, or 0 if none is left.
    #[cold]
    fn create(&self, destructor: Destructor) -> usize {
        let mut new = 0;
        // SAFETY: plain calls. The destructor is a function of this library, which is still loaded
        // when it runs, see above. If another thread created the key first, nobody has used this
        // one.
        unsafe {
            if libc::pthread_key_create(&mut new, Some(destructor)) != 0 {
                return 0;
            }
            let (none, relaxed) = (0, Ordering::Relaxed);
            match self.key.compare_exchange(none, new as usize + 1, relaxed, relaxed) {
                Ok(_) => new as usize + 1,
                Err(first) => {
                    libc::pthread_key_delete(new);
                    first
                }
            }
        }
    }
}

/// What the system calls a key, which is a small number of a type that differs from system to
/// system.
fn system_key(key: usize) -> libc::pthread_key_t {
    (key - 1) as libc::pthread_key_t
}
