//! Real threads, but for one thing.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use fairlock::events::NoCounters;
use fairlock::platform::{Os, Platform, Zeroed};
use fairlock::process::Process;
use fairlock::slots::Record;

macro_rules! real_threads_but {
    ($($(#[$doc:meta])* $name:ident {
        asymmetric: $asymmetric:expr, records: $records:ident $(, park: $park:path)? $(, unpark: $unpark:path)?
    };)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl Platform for $name {
            type AtomicU32 = AtomicU32;
            type AtomicU64 = AtomicU64;
            type AtomicPtr<T> = AtomicPtr<T>;
            type Cell<T: Zeroed> = Cell<T>;
            type Counters = NoCounters;

            fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
                real_threads_but!(@ or Os::park $(, $park)?)(word, expected, deadline);
            }
            fn unpark(word: *const AtomicU32) {
                real_threads_but!(@ or Os::unpark $(, $unpark)?)(word);
            }
            fn relax(until: Option<u64>) -> bool {
                Os::relax(until)
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
            fn cpu() -> u32 {
                Os::cpu()
            }
            fn process() -> &'static Process<Self> {
                static PROCESS: Process<$name> = Process::NEW;
                &PROCESS
            }
            fn thread() -> Option<&'static Record<Self>> {
                // For those whose records are strange.
                #[allow(dead_code)]
                static ANOTHER: Process<$name> = Process::NEW;
                struct Own(&'static Record<$name>);
                impl Drop for Own {
                    fn drop(&mut self) {
                        real_threads_but!(@ $records $name, ANOTHER).thread_ended(self.0);
                    }
                }
                thread_local! {
                    static OWN: Option<Own> = real_threads_but!(@ $records $name, ANOTHER)
                        .new_thread()
                        .map(Own);
                }
                OWN.try_with(|own| own.as_ref().map(|own| own.0)).ok().flatten()
            }
            fn is_asymmetric() -> bool {
                $asymmetric
            }
            fn asymmetric_light() {
                Os::asymmetric_light();
            }
            fn asymmetric_heavy() {
                assert!(Self::is_asymmetric());
                Os::asymmetric_heavy();
            }
        }
    )*};
    (@ or $usual:path) => { $usual };
    (@ or $usual:path, $other:path) => { $other };
    (@ own $name:ident, $another:ident) => { $name::process() };
    (@ strange $name:ident, $another:ident) => { $another };
}

#[allow(unused_imports)]
pub(crate) use real_threads_but;

real_threads_but! {
    /// There is no asymmetric barrier.
    Symmetric { asymmetric: false, records: own };
    /// Readers say that they read where no writer looks.
    Unseen { asymmetric: Os::is_asymmetric(), records: strange };
}
