//! Real threads, but for one thing. What their locks share is in pages of its own.

use std::alloc::Layout;
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use fairlock::events::NoCounters;
use fairlock::platform::{Os, Platform, Zeroed};
use fairlock::process::Process;
use fairlock::slots::Record;

/// New pages, added to those that are `mapped`; null if there are none.
pub fn map(layout: Layout, mapped: &AtomicUsize) -> *mut u8 {
    let pages = pages::map(layout);
    if !pages.is_null() {
        mapped.fetch_add(layout.size(), Relaxed);
    }
    pages
}

/// Gives back pages that came from [`map`].
///
/// # Safety
/// As [`Platform::deallocate`]; it came from [`map`].
pub unsafe fn unmap(memory: *mut u8, layout: Layout, mapped: &AtomicUsize) {
    // SAFETY: mapped in this size and used by nobody any more, as the caller promises.
    unsafe { pages::unmap(memory, layout) };
    mapped.fetch_sub(layout.size(), Relaxed);
}

#[cfg(unix)]
mod pages {
    use std::alloc::Layout;
    use std::ptr;

    pub(super) fn map(layout: Layout) -> *mut u8 {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: asks for new pages.
        let pages = unsafe { libc::mmap(ptr::null_mut(), layout.size(), access, kind, -1, 0) };
        if pages == libc::MAP_FAILED { ptr::null_mut() } else { pages.cast() }
    }

    pub(super) unsafe fn unmap(memory: *mut u8, layout: Layout) {
        // SAFETY: mapped in this size and used by nobody any more, as the caller promises.
        assert_eq!(unsafe { libc::munmap(memory.cast(), layout.size()) }, 0);
    }
}

/// From the system's allocator, cleared, where there is no mmap.
#[cfg(not(unix))]
mod pages {
    use std::alloc::{GlobalAlloc, Layout, System};

    pub(super) fn map(layout: Layout) -> *mut u8 {
        // SAFETY: platforms ask for memory of a size that is not 0.
        unsafe { System.alloc_zeroed(layout) }
    }

    pub(super) unsafe fn unmap(memory: *mut u8, layout: Layout) {
        // SAFETY: allocated for this layout and used by nobody any more, as the caller promises.
        unsafe { System.dealloc(memory, layout) };
    }
}

/// Defines platforms that are `Os` but for what is given. Where it is used, `AtomicU32`, `AtomicU64`,
/// `AtomicPtr`, `Cell`, `NoCounters`, `Os`, `Platform`, `Process`, `Record` and `Zeroed` are in scope.
#[macro_export]
macro_rules! real_threads_but {
    ($($(#[$doc:meta])* $name:ident {
        asymmetric: $asymmetric:expr, records: $records:ident $(, park: $park:path)? $(, unpark: $unpark:path)?
        $(, relax: $relax:path)?
    };)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl $name {
            /// Bytes that its locks have mapped.
            pub fn mapped() -> &'static std::sync::atomic::AtomicUsize {
                static MAPPED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
                &MAPPED
            }
            fn ended() -> &'static std::thread::LocalKey<Cell<fairlock::slots::EndedThread<Self>>> {
                thread_local! {
                    static ENDED: Cell<fairlock::slots::EndedThread<$name>> =
                        const { Cell::new(fairlock::slots::EndedThread::NONE) };
                }
                &ENDED
            }
        }

        // SAFETY: as `Os`. One without barriers or with strange records is wrong on purpose, and protects only
        // what is atomic.
        unsafe impl Platform for $name {
            type AtomicU32 = AtomicU32;
            type AtomicU64 = AtomicU64;
            type AtomicPtr<T> = AtomicPtr<T>;
            type Cell<T: Zeroed> = Cell<T>;
            type Counters = NoCounters;
            type Hold = fairlock::platform::Unchecked;
            fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
                real_threads_but!(@ or Os::park $(, $park)?)(word, expected, deadline);
            }
            fn unpark(word: *const AtomicU32) {
                real_threads_but!(@ or Os::unpark $(, $unpark)?)(word);
            }
            fn relax(until: Option<u64>) -> bool {
                real_threads_but!(@ or Os::relax $(, $relax)?)(until)
            }
            fn give_way(attempt: u32) {
                Os::give_way(attempt);
            }
            fn turn() -> u32 {
                Os::turn()
            }
            fn now() -> u64 {
                Os::now()
            }
            fn wake_latency() -> u32 {
                Os::wake_latency()
            }
            fn note_wake_latency(ns: u32) {
                Os::note_wake_latency(ns);
            }
            fn cpus() -> u32 {
                Os::cpus()
            }
            fn cpu() -> u32 {
                Os::cpu()
            }
            fn is_asymmetric() -> bool {
                $asymmetric
            }
            fn asymmetric_light() {
                Os::asymmetric_light();
            }
            fn barrier_on_all_cpus() {
                assert!(Self::is_asymmetric());
                Os::barrier_on_all_cpus();
            }
            unsafe fn allocate(layout: std::alloc::Layout) -> *mut u8 {
                $crate::threads::platforms::map(layout, Self::mapped())
            }
            unsafe fn deallocate(memory: *mut u8, layout: std::alloc::Layout) {
                // SAFETY: mapped in this size and used by nobody any more, as the caller promises.
                unsafe { $crate::threads::platforms::unmap(memory, layout, Self::mapped()) };
            }
        }

        // SAFETY: as `Os`, but for strange records, which are wrong on purpose.
        unsafe impl fairlock::process::Host for $name {
            fn process() -> &'static Process<Self> {
                static PROCESS: Process<$name> = Process::NEW;
                &PROCESS
            }
            fn ended_thread() -> fairlock::slots::EndedThread<Self> {
                Self::ended().get()
            }
            fn thread() -> Option<&'static Record<Self>> {
                // For those whose records are strange.
                #[allow(dead_code)]
                static ANOTHER: Process<$name> = Process::NEW;
                struct Own(&'static Record<$name>);
                impl Drop for Own {
                    fn drop(&mut self) {
                        let process = real_threads_but!(@ $records $name, ANOTHER);
                        // SAFETY: this thread's, which has just become inaccessible to it.
                        let ended = unsafe { process.thread_ended(self.0) };
                        $name::ended().set(ended);
                    }
                }
                thread_local! {
                    static OWN: Option<Own> = {
                        real_threads_but!(@ number $records $name);
                        real_threads_but!(@ $records $name, ANOTHER).new_thread().map(Own)
                    };
                }
                OWN.try_with(|own| own.as_ref().map(|own| own.0)).ok().flatten()
            }
            fn asymmetric_heavy() {
                assert!(Self::is_asymmetric());
                Os::asymmetric_heavy();
            }
        }
    )*};
    (@ or $usual:path) => { $usual };
    (@ or $usual:path, $other:path) => { $other };
    (@ own $name:ident, $another:ident) => { <$name as fairlock::process::Host>::process() };
    (@ strange $name:ident, $another:ident) => { &$another };
    (@ number own $name:ident) => {};
    // Where writers look each number is known, too: a line finds its members there.
    (@ number strange $name:ident) => { _ = <$name as fairlock::process::Host>::process().new_thread() };
}

real_threads_but! {
    /// There is no asymmetric barrier.
    Symmetric { asymmetric: false, records: own };
    /// Readers say that they read where no writer looks.
    Unseen { asymmetric: Os::is_asymmetric(), records: strange };
}
