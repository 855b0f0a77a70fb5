//! A program that can be recorded, with nothing in it for that but the feature `record`:
//!
//! ```sh
//! cargo build --release -p fairlock --features record --example recorded
//! fairlock run --record recorded.toml -- target/release/examples/recorded
//! ```
//!
//! Four threads look something up, one changes it, and two pass jobs to each other. Each has done something before any goes
//! on, so that however busy the CPUs are, they live at the same time: threads one after the other are recorded as one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Barrier;
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
    let together = Barrier::new(7);
    // So many times, and all threads meet after the first.
    let repeat = |times: u64, what: &mut dyn FnMut(u64)| {
        what(0);
        together.wait();
        (1..times).for_each(what);
    };
    thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        for _ in 0..4 {
            let looks_up = || repeat(LOOK_UPS, &mut |key| _ = look_up(key));
            named("reader").spawn_scoped(scope, looks_up).expect("a thread");
        }
        let changes = || repeat(CHANGES, &mut change);
        named("writer").spawn_scoped(scope, changes).expect("a thread");
        let sends = || repeat(JOBS, &mut |job| queue.put(job));
        named("sender").spawn_scoped(scope, sends).expect("a thread");
        let mut taken = 0;
        repeat(JOBS, &mut |_| taken += queue.take());
        assert_eq!(taken, (0..JOBS).sum());
    });
}
