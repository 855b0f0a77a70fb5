//! What a thread pays for others that are idle: it reads, with some writes, next to threads that have read the lock once.
//!
//! ```text
//! cargo run --release -p fairlock --example idle_threads
//! ```
//!
//! Nanoseconds for each operation, the median of rounds in which the locks take turns.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(20);

/// Reads, with one write after this many.
fn time(reads: u32, read: &dyn Fn(), write: &dyn Fn()) -> f64 {
    let began = Instant::now();
    let mut operations = 0.0;
    while began.elapsed() < ROUND {
        (0..reads).for_each(|_| read());
        write();
        operations += f64::from(reads) + 1.0;
    }
    began.elapsed().as_nanos() as f64 / operations
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn beside(idle: usize) {
    let (ours, std) = (fairlock::RwLock::new(0_u64), std::sync::RwLock::new(0_u64));
    let [have_read, over] = [Barrier::new(idle + 1), Barrier::new(idle + 1)];
    thread::scope(|scope| {
        for _ in 0..idle {
            let reader = thread::Builder::new().stack_size(64 << 10);
            let reads = || {
                black_box(*ours.read());
                have_read.wait();
                over.wait();
            };
            reader.spawn_scoped(scope, reads).expect("another thread");
        }
        have_read.wait();
        for reads in [10, 100, 1_000, 10_000, 100_000] {
            let mut times = [vec![], vec![]];
            for _ in 0..ROUNDS {
                let read = || drop(black_box(ours.read()));
                times[0].push(time(reads, &read, &|| *ours.write() += 1));
                let read = || drop(black_box(std.read()));
                times[1].push(time(reads, &read, &|| *std.write().expect("not poisoned") += 1));
            }
            let [ours, std] = times.map(median);
            println!("{idle:>12} {reads:>16} {ours:>9.1} {std:>9.1}");
        }
        over.wait();
    });
}

fn main() {
    println!("idle threads  reads per write  fairlock       std");
    [0, 100, 1_000, 4_000].into_iter().for_each(beside);
}
