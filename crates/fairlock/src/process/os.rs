//! The process of real threads: their records, in thread-local variables whose destructors give
//! them back.
//!
//! A thread may also use its first lock after its thread-local variables were destroyed. On Unix a
//! pthread key (`end_key.rs`) gives such a thread's record back, if there is a key left and it is
//! not too late for that. Elsewhere, where only a callback that std does not know of runs so late,
//! nobody does: a record is lost for each such thread.
//!
//! A lock that is used when the record has been given back works by its semaphore alone, whatever
//! runs then.

use core::cell::Cell;
use std::thread::LocalKey;

#[cfg(all(unix, not(miri)))]
use super::fork;
use super::{Host, Process};
#[cfg(unix)]
use crate::end_key::EndKey;
use crate::platform::{Counting, Os, Symmetric};
use crate::slots::{EndedThread, Record};

macro_rules! real_processes {
    ($($platform:ident)*) => {$(
        impl $platform {
            /// The calling thread's record; null before it has one and once it has given it back.
            /// The variable has no destructor, so it can be read until the thread's last
            /// instruction.
            #[inline(always)]
            fn record() -> &'static LocalKey<Cell<*const Record<Self>>> {
                std::thread_local! {
                    static RECORD: Cell<*const Record<$platform>> =
                        const { Cell::new(core::ptr::null()) };
                }
                &RECORD
            }

            /// What the calling thread was given for its record. This variable has no destructor
            /// either.
            fn ended() -> &'static LocalKey<Cell<EndedThread<Self>>> {
                std::thread_local! {
                    static ENDED: Cell<EndedThread<$platform>> =
                        const { Cell::new(EndedThread::NONE) };
                }
                &ENDED
            }

            /// Whether the calling thread has given back its record; it gets no other. This
            /// variable has no destructor either.
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
                #[cfg(unix)]
                static KEY: EndKey = EndKey::NEW;
                std::thread_local! {
                    static LEAVER: Leaver = const { Leaver };
                }
                struct Leaver;
                impl Drop for Leaver {
                    fn drop(&mut self) {
                        #[cfg(unix)]
                        KEY.disarm();
                        $platform::end_thread();
                    }
                }
                #[cfg(unix)]
                unsafe extern "C" fn end_thread(_: *mut core::ffi::c_void) {
                    $platform::end_thread();
                }
                // Also for a thread that gets no record, as it may wait in a pooled queue.
                #[cfg(all(unix, not(miri)))]
                fork::handle();
                if Self::has_ended().get() {
                    return None;
                }
                // Fails if the thread's variables have been destroyed already.
                LEAVER.try_with(|_| ()).ok()?;
                #[cfg(unix)]
                KEY.arm(end_thread);
                let record = Self::process().new_thread()?;
                Self::record().set(record);
                Some(record)
            }

            /// This process is the child of a `fork` by the calling thread.
            ///
            /// # Safety
            /// What [`Process::forked`] asks for.
            #[cfg(all(unix, not(miri)))]
            unsafe fn forked() {
                // SAFETY: the calling thread is the child's only one and not in a lock's code, as
                // the caller promises. The pointer is null or a record, and records live as long as
                // the process.
                unsafe { Self::process().forked(Self::record().get().as_ref()) };
            }
        }

        // SAFETY: there is one static process. A thread's record, and what remains of it, are in
        // variables of that thread alone.
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
#[cfg(all(unix, not(miri)))]
pub(super) unsafe fn all_forked() {
    // SAFETY: the calling thread is the child's only one and not in a lock's code, as the caller
    // promises.
    unsafe {
        Os::forked();
        Counting::forked();
        Symmetric::forked();
    }
}
