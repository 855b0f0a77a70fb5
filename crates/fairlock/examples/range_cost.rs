//! What taking and leaving a range costs when nobody is in the way: alone, beside a second thread
//! elsewhere, and beside 10,000 holders.
//!
//! ```text
//! cargo run --release -p fairlock --example range_cost
//! ```
//!
//! Nanoseconds, the median of rounds in which the locks take turns.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use fairlock::range::{Extent, RangeLock, RawRangeLock, Slotted};
use fairlock_reference::range::{Naive, SharedWord};

const ROUNDS: usize = 31;
const OPERATIONS: u32 = 100_000;
const HOLDERS: u64 = 10_000;
const PAGE: u64 = 4096;

fn page(number: u64) -> Extent {
    Extent::at(number * PAGE, PAGE).expect("not empty")
}

/// Per operation, of many.
fn time(operations: u32, operation: impl Fn()) -> f64 {
    let began = Instant::now();
    (0..operations).for_each(|_| operation());
    began.elapsed().as_nanos() as f64 / f64::from(operations)
}

fn reads<R: RawRangeLock>(lock: &RangeLock<R>, number: u64) -> f64 {
    time(OPERATIONS, || drop(lock.read(page(number))))
}

fn writes<R: RawRangeLock>(lock: &RangeLock<R>, number: u64) -> f64 {
    time(OPERATIONS, || drop(lock.write(page(number))))
}

/// While another thread does the same at its own page, in another part of the file.
fn beside_another<R: RawRangeLock>(
    lock: &RangeLock<R>,
    operations: fn(&RangeLock<R>, u64) -> f64,
) -> f64 {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                operations(lock, 1_001); // not in the stripe of page 0
            }
        });
        operations(lock, 0); // until the other one runs
        let cost = operations(lock, 0);
        over.store(true, Relaxed);
        cost
    })
}

/// One thread holds many ranges; this one takes others between them.
fn beside_many<R: RawRangeLock>() -> [f64; 2] {
    const FEW: u32 = 1_000;
    let lock = RangeLock::<R>::new_in();
    let _held: Vec<_> = (0..HOLDERS).map(|number| lock.write(page(2 * number))).collect();
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let between = page(HOLDERS + 1);
            [time(FEW, || drop(lock.read(between))), time(FEW, || drop(lock.write(between)))]
        });
        thread.join().expect("no panic")
    })
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

struct Samples<R> {
    name: &'static str,
    lock: RangeLock<R>,
    samples: [Vec<f64>; 4],
}

impl<R: RawRangeLock> Samples<R> {
    fn new(name: &'static str) -> Self {
        Samples { name, lock: RangeLock::new_in(), samples: Default::default() }
    }

    fn round(&mut self) {
        let lock = &self.lock;
        let round = [
            reads(lock, 0),
            writes(lock, 0),
            beside_another(lock, reads),
            beside_another(lock, writes),
        ];
        for (samples, sample) in self.samples.iter_mut().zip(round) {
            samples.push(sample);
        }
    }

    fn print(self, many: Option<[f64; 2]>) {
        print!("{:12}", self.name);
        for samples in self.samples {
            print!("{:10.1}", median(samples));
        }
        match many {
            Some([read, write]) => println!("{read:12.0}{write:12.0}"),
            None => println!("{:>12}{:>12}", "-", "-"),
        }
    }
}

fn main() {
    let mut slotted = Samples::<Slotted>::new("RangeLock");
    let mut shared_word = Samples::<SharedWord>::new("SharedWord");
    let mut naive = Samples::<Naive>::new("Naive");
    for _ in 0..ROUNDS {
        slotted.round();
        shared_word.round();
        naive.round();
    }
    println!("ns                 alone           beside another     beside {HOLDERS} holders");
    println!("                read     write      read     write        read       write");
    slotted.print(Some(beside_many::<Slotted>()));
    // Disjoint holders exclude each other until the first conflict.
    shared_word.print(None);
    naive.print(Some(beside_many::<Naive>()));
}
