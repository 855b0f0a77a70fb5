//! A program that can be recorded, with nothing in it for that but the feature `record`:
//!
//! ```sh
//! cargo build --release -p fairlock --features record --example recorded
//! fairlock run --record recorded.toml -- target/release/examples/recorded
//! ```
//!
//! Four threads look something up, one changes it, and two pass jobs to each other.

use std::collections::{BTreeMap, VecDeque};
use std::thread;

use fairlock::{Condvar, Mutex, RwLock};

const LOOK_UPS: u64 = 5_000;
const CHANGES: u64 = 500;
const JOBS: u64 = 1_000;

static PRICES: RwLock<BTreeMap<u64, u64>> = RwLock::new(BTreeMap::new());

/// Jobs on their way, of which there are not many at once.
struct Queue {
    jobs: Mutex<VecDeque<u64>>,
    changed: Condvar,
}

impl Queue {
    const MOST: usize = 8;

    fn put(&self, job: u64) {
        let mut jobs = self.jobs.lock();
        self.changed.wait_while(&mut jobs, |jobs| jobs.len() >= Queue::MOST);
        jobs.push_back(job);
        drop(jobs);
        self.changed.notify_all();
    }

    fn take(&self) -> u64 {
        let mut jobs = self.jobs.lock();
        self.changed.wait_while(&mut jobs, |jobs| jobs.is_empty());
        let job = jobs.pop_front().expect("it waited for one");
        drop(jobs);
        self.changed.notify_all();
        job
    }
}

fn look_up(key: u64) -> Option<u64> {
    PRICES.read().get(&key).copied()
}

fn change(key: u64) {
    PRICES.write().insert(key % 100, key);
}

fn main() {
    let queue = Queue { jobs: Mutex::new(VecDeque::new()), changed: Condvar::new() };
    thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        for _ in 0..4 {
            let looks_up = || _ = (0..LOOK_UPS).filter_map(look_up).max();
            named("reader").spawn_scoped(scope, looks_up).expect("a thread");
        }
        named("writer").spawn_scoped(scope, || (0..CHANGES).for_each(change)).expect("a thread");
        named("sender")
            .spawn_scoped(scope, || (0..JOBS).for_each(|job| queue.put(job)))
            .expect("a thread");
        let taken: u64 = (0..JOBS).map(|_| queue.take()).sum();
        assert_eq!(taken, (0..JOBS).sum());
    });
}
