//! The process of real threads: their records, in thread-local variables that tell their ends.

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
            /// The calling thread's: null before the first use and after the last. Without a
            /// destructor, so that it can be asked to the very end.
            #[inline(always)]
            fn record() -> &'static LocalKey<Cell<*const Record<Self>>> {
                std::thread_local! {
                    static RECORD: Cell<*const Record<$platform>> =
                        const { Cell::new(core::ptr::null()) };
                }
                &RECORD
            }

            /// What it was given for its record at its end. Without a destructor likewise.
            fn ended() -> &'static LocalKey<Cell<EndedThread<Self>>> {
                std::thread_local! {
                    static ENDED: Cell<EndedThread<$platform>> =
                        const { Cell::new(EndedThread::NONE) };
                }
                &ENDED
            }

            /// Whether it has given back its record, and gets no other. Without a destructor likewise.
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
                // SAFETY: as in `thread`.
                if let Some(record) = unsafe { record.as_ref() } {
                    // SAFETY: this thread's, which has just forgotten it.
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
                // Also by a thread that gets no record, as it may wait in a pooled queue.
                fork::handle();
                if Self::has_ended().get() {
                    return None;
                }
                // Fails if the thread's variables were destroyed already.
                LEAVER.try_with(|_| ()).ok()?;
                KEY.arm(end_thread);
                let record = Self::process().new_thread()?;
                Self::record().set(record);
                Some(record)
            }

            /// This process is the child of a `fork` by the calling thread.
            ///
            /// # Safety
            /// Of [`Process::forked`].
            unsafe fn forked() {
                // SAFETY: the caller's; and as in `thread`.
                unsafe { Self::process().forked(Self::record().get().as_ref()) };
            }
        }

        // SAFETY: one static process; a thread's record, and what is left of it, are in variables of that
        // thread.
        unsafe impl Host for $platform {
            fn process() -> &'static Process<Self> {
                static PROCESS: Process<$platform> = Process::NEW;
                &PROCESS
            }
            #[inline(always)]
            fn thread() -> Option<&'static Record<Self>> {
                // SAFETY: null or a record, which live as long as the process.
                unsafe { Self::record().get().as_ref() }.or_else(Self::new_record)
            }
            fn ended_thread() -> EndedThread<Self> {
                Self::ended().get()
            }
        }
    )*};
}

real_processes!(Os Counting Symmetric);

/// In the child of a `fork`.
///
/// # Safety
/// Of [`Process::forked`].
pub(super) unsafe fn all_forked() {
    // SAFETY: the caller is the child's only thread, and does not come from a lock's code.
    unsafe {
        Os::forked();
        Counting::forked();
        Symmetric::forked();
    }
}

/// A pthread key whose destructor tells the end of threads that use their first lock when their variables
/// have been destroyed already, in the destructor of another key: the variable that tells it otherwise
/// comes too late there (with glibc), and each such thread would keep a record for ever.
///
/// Nobody deletes the key. Where the library that contains this is unloaded, no thread has a value for
/// it: of one that had the variable was destroyed, which takes the value away, or never is, which keeps
/// the library loaded.
struct EndKey {
    /// Plus one; 0: none yet.
    key: AtomicU32,
}

impl EndKey {
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    const NEW: Self = EndKey { key: AtomicU32::new(0) };

    /// The calling thread's end is told to `destructor`; unless there is no key left, or no memory.
    fn arm(&self, destructor: unsafe extern "C" fn(*mut c_void)) {
        let key = match self.key.load(Ordering::Relaxed) {
            0 => self.create(destructor),
            key => key,
        };
        if key != 0 {
            // SAFETY: the key exists. Any value does but null.
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
        // SAFETY: plain calls; the destructor is a function of this library, which is there when it runs,
        // see above. A key that another thread was faster to create nobody has used.
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
