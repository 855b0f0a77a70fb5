//! What range locks are tested with: scenarios, an oracle, histories with a checker, locks with a flaw.

pub mod broken;
pub mod history;
pub mod oracle;
pub mod scenarios;

use std::thread;

use fairlock::process::Host;
use fairlock::range::{Extent, RangeLock, RangeReadGuard, RawRangeLock, Slotted};
use fairlock_reference::range::{Naive, SharedWord};

/// The positions of a range that is valid.
pub fn extent(range: impl std::ops::RangeBounds<u64>) -> Extent {
    Extent::of(range).expect("a range that is not empty")
}

/// A lock under test.
pub trait Subject: RawRangeLock + 'static {
    /// Makes the lock keep exact ranges for as long as the guard lives, if it does not anyway.
    fn keep_ranges(_lock: &RangeLock<Self>) -> Option<RangeReadGuard<'_, Self>>
    where
        Self: Sized,
    {
        None
    }
}

impl<P: Host> Subject for Naive<P> {}

impl<P: Host, const STRIPES: usize, const GRAIN: u32> Subject for Slotted<P, STRIPES, GRAIN> {}

/// Where [`Subject::keep_ranges`] reads, if at all, and tests hold what keeps nobody away. No test uses it for anything else.
pub const PIN: u64 = 1 << 40;

impl<P: Host> Subject for SharedWord<P> {
    /// Somebody waits for the word, and reads on afterwards.
    fn keep_ranges(lock: &RangeLock<Self>) -> Option<RangeReadGuard<'_, Self>> {
        let alone = lock.write(Extent::ALL);
        thread::scope(|scope| {
            let reader = scope.spawn(|| lock.read(extent(PIN..=PIN)));
            while lock.raw().ignores_ranges() {
                thread::yield_now();
            }
            drop(alone);
            reader.join().ok()
        })
    }
}
