//! The process of real threads: their records, in thread-local variables whose destructors give them back.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use std::thread::LocalKey;

use super::{Host, Process, fork};
use crate::platform::{Counting, Os, Symmetric};
use crate::slots::{EndedThread, Record};

macro_rules! real_processes {
    ($($platform:ident)*) => {$(
        impl $platform {
            /// The calling thread's record; null before it has one and once it has given it back. The
            /// variable has no destructor, so it can be read until the thread's last instruction.
            #[inline(always)]
            fn record() -> &'static LocalKey<Cell<*const Record<Self>>> {
                std::thread_local! {
                    static RECORD: Cell<*const Record<$platform>> =
                        const { Cell::new(core::ptr::null()) };
                }
                &RECORD
            }

            /// What the calling thread was given for its record. This variable has no destructor either.
            fn ended() -> &'static LocalKey<Cell<EndedThread<Self>>> {
                std::thread_local! {
                    static ENDED: Cell<EndedThread<$platform>> =
                        const { Cell::new(EndedThread::NONE) };
                }
                &ENDED
            }

            /// Whether the calling thread has given back its record; it gets no other. This variable has no
            /// destructor either.
            fn has_ended() -> &'static LocalKey<Cell<bool>> {
                std::thread_local! {
                    static HAS_ENDED: Cell<bool> = const { Cell::new(false) };
                }
                &HAS_ENDED
            }

            /// The calling thread ends: it gives back its record, if it has one.
            fn end_thread() {
                Self::has_ended().set(true);
                let record = Self::record().replace(core::ptr::null());
                // SAFETY: null or a record, and records live as long as the process.
                if let Some(record) = unsafe { record.as_ref() } {
                    // SAFETY: this thread's own record, which the thread has just forgotten.
                    Self::ended().set(unsafe { Self::process().thread_ended(record) });
                }
            }

            #[cold]
            fn new_record() -> Option<&'static Record<Self>> {
                static KEY: EndKey = EndKey::NEW;
                std::thread_local! {
                    static LEAVER: Leaver = const { Leaver };
                }
                struct Leaver;
                impl Drop for Leaver {
                    fn drop(&mut self) {
                        KEY.disarm();
                        $platform::end_thread();
                    }
                }
                unsafe extern "C" fn end_thread(_: *mut c_void) {
                    $platform::end_thread();
                }
                // Also for a thread that gets no record, as it may wait in a pooled queue.
                fork::handle();
                if Self::has_ended().get() {
                    return None;
                }
                // Fails if the thread's variables have been destroyed already.
                LEAVER.try_with(|_| ()).ok()?;
                KEY.arm(end_thread);
                let record = Self::process().new_thread()?;
                Self::record().set(record);
                Some(record)
            }

            /// This process is the child of a `fork` by the calling thread.
            ///
            /// # Safety
            /// What [`Process::forked`] asks for.
            unsafe fn forked() {
                // SAFETY: the calling thread is the child's only one and not in a lock's code, as the
                // caller promises. The pointer is null or a record, and records live as long as the
                // process.
                unsafe { Self::process().forked(Self::record().get().as_ref()) };
            }
        }

        // SAFETY: there is one static process. A thread's record, and what remains of it, are in variables
        // of that thread alone.
        unsafe impl Host for $platform {
            fn process() -> &'static Process<Self> {
                static PROCESS: Process<$platform> = Process::NEW;
                &PROCESS
            }
            #[inline(always)]
            fn thread() -> Option<&'static Record<Self>> {
                // SAFETY: null or a record, and records live as long as the process.
                unsafe { Self::record().get().as_ref() }.or_else(Self::new_record)
            }
            #[inline(always)]
            fn known_thread() -> Option<&'static Record<Self>> {
                // SAFETY: as above.
                unsafe { Self::record().get().as_ref() }
            }
            fn ended_thread() -> EndedThread<Self> {
                Self::ended().get()
            }
        }
    )*};
}

real_processes!(Os Counting Symmetric);

/// To be called in the child of a `fork`.
///
/// # Safety
/// What [`Process::forked`] asks for.
pub(super) unsafe fn all_forked() {
    // SAFETY: the calling thread is the child's only one and not in a lock's code, as the caller promises.
    unsafe {
        Os::forked();
        Counting::forked();
        Symmetric::forked();
    }
}

/// A pthread key whose destructor runs at the end of threads that use their first lock in the destructor of
/// another key, when their thread-local variables have been destroyed already. With glibc a variable
/// made there is never destroyed, so without the key each such thread would keep a record for ever.
///
/// Nobody deletes the key. When the library that contains this is unloaded, no thread has a value for it: a
/// thread that had one has either destroyed its variable, which takes the value away, or has not, which
/// keeps the library loaded.
struct EndKey {
    /// The key plus one; 0 if there is none yet.
    key: AtomicU32,
}

impl EndKey {
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    const NEW: Self = EndKey { key: AtomicU32::new(0) };

    /// From now on `destructor` runs at the calling thread's end, unless no key is left, or no memory.
    fn arm(&self, destructor: unsafe extern "C" fn(*mut c_void)) {
        let key = match self.key.load(Ordering::Relaxed) {
            0 => self.create(destructor),
            key => key,
        };
        if key != 0 {
            // SAFETY: the key exists, and any value but null makes its destructor run.
            unsafe { libc::pthread_setspecific(key - 1, core::ptr::from_ref(self).cast()) };
        }
    }

    fn disarm(&self) {
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
