//! Beginning and end: of the process, of its threads, and of its children.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};

use fairlock_counts::process::{self, ThisThread};
use fairlock_counts::recorder;

use crate::thread::Thread;
use crate::{modes, platform};

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Runs when the process exits.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn start() {
    modes::Mode::get();
}

/// The end of the process is not one of its threads for the destructors of keys.
extern "C" fn end() {
    Thread::with(|thread| {
        recorder::process_ends();
        process::process_ends(&thread.counts);
    });
}

/// The key whose destructor tells the end of a thread, plus one; 0: none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Asks for what tells forks and the ends of threads, before any of them can matter. Threads that
/// come here at once each ask: that does no harm.
pub(crate) fn prepare() {
    let mut key = 0;
    // SAFETY: plain calls; the functions live as long as the process, as glibc forgets them if the
    // library is unloaded.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        if libc::pthread_key_create(&mut key, Some(thread_ends)) == 0 {
            KEY.store(key + 1, Release);
        }
    }
}

unsafe extern "C" fn in_child() {
    Thread::with(|thread| {
        thread.counts.forked();
        platform::forked(thread);
    });
}

/// Whether this library will be told when this thread ends; asks for it.
pub(crate) fn will_tell_its_end(thread: &ThisThread) -> bool {
    if thread.has_ended.get() {
        return false;
    }
    match KEY.load(Acquire) {
        0 => false,
        // SAFETY: the key exists. glibc has room for it in the thread itself if it is one of the
        // first 32, which one asked for at the start of the process is.
        key => unsafe { libc::pthread_setspecific(key - 1, ptr::from_ref(thread).cast()) == 0 },
    }
}

unsafe extern "C" fn thread_ends(_: *mut c_void) {
    Thread::with(|thread| {
        thread.counts.has_ended.set(true);
        platform::thread_ends(thread);
        process::thread_ends(&thread.counts);
    });
}
