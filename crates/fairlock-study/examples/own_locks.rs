//! A lock and a critical section that the lab does not know, beside those that it does: what a crate of yours would
//! have as `benches/locks.rs`.
//!
//! ```sh
//! cargo run --release -p fairlock-study --example own_locks                         # everything of one's own
//! cargo run --release -p fairlock-study --example own_locks -- cache --threads 2,8 --read-percent 90
//! cargo run --release -p fairlock-study --example own_locks -- mix --lock sketch,rwlock,std
//! ```

use std::collections::HashMap;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use fairlock_study::own::lock_api::RawRwLock;
use fairlock_study::own::{Sections, Suite, XorShift};

/// A first sketch of a lock: a counter of readers, all ones for a writer, and threads that yield until it is theirs.
struct Sketch(AtomicU32);

const WRITER: u32 = u32::MAX;

// SAFETY: the word is WRITER while one thread has the lock exclusively, and the number of readers otherwise; both
// change by a compare-exchange from a state in which that is right.
unsafe impl RawRwLock for Sketch {
    const INIT: Sketch = Sketch(AtomicU32::new(0));
    type SharedGuard = ();
    type ExclusiveGuard = ();

    fn lock_shared(&self) {
        while self.try_lock_shared().is_none() {
            thread::yield_now();
        }
    }

    fn try_lock_shared(&self) -> Option<()> {
        let readers = self.0.load(Ordering::Relaxed);
        if readers >= WRITER - 1 {
            return None;
        }
        // Acquire: pairs with the release of whoever wrote.
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        self.0.compare_exchange(readers, readers + 1, acquire, relaxed).ok().map(drop)
    }

    unsafe fn unlock_shared(&self, (): ()) {
        // Release: pairs with the next writer's acquire.
        self.0.fetch_sub(1, Ordering::Release);
    }

    fn lock_exclusive(&self) {
        while self.try_lock_exclusive().is_none() {
            thread::yield_now();
        }
    }

    fn try_lock_exclusive(&self) -> Option<()> {
        // Acquire: pairs with the release of whoever held it before.
        self.0.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).ok().map(drop)
    }

    unsafe fn unlock_exclusive(&self, (): ()) {
        // Release: pairs with the acquire of whoever comes next.
        self.0.store(0, Ordering::Release);
    }

    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WRITER
    }
}

/// What readers and writers do with a lock held.
struct Cache;

impl Sections for Cache {
    const NAME: &'static str = "cache";
    const ABOUT: &'static str = "lookups and updates of a map of 1000 entries";
    type Data = HashMap<u32, u64>;

    fn new() -> Self::Data {
        (0..1000).map(|key| (key, 0)).collect()
    }

    fn read(data: &Self::Data, random: &mut XorShift) {
        black_box(data.get(&random.below(1000)));
    }

    fn write(data: &mut Self::Data, random: &mut XorShift) {
        *data.entry(random.below(1000)).or_default() += 1;
    }
}

fn main() -> ExitCode {
    // Locks first, then sections, which run under each of them.
    Suite::new().rwlock::<Sketch>("sketch", "a first sketch of a lock").sections::<Cache>().main()
}
