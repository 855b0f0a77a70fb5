//! What a lock costs when nobody else wants it: ns for lock and unlock, shared and exclusive, side
//! by side with the locks people use.
//!
//! ```text
//! cargo run --release -p fairlock-lab --example uncontended
//! ```
//!
//! Each lock's loop runs in turn with all others', round after round, so that a machine that
//! changes its speed changes all of them. The figure is the median over rounds, with the quartiles.

use std::hint::black_box;
use std::time::Instant;

use fairlock::policy::{Linux5_11, PhaseFair};
use fairlock::{Mutex, PolicyRwSem, RwSem};

const PAIRS: u32 = 500_000;
const ROUNDS: usize = 61;

type Timed = (&'static str, Box<dyn Fn() -> f64>);

/// ns for one turn of `pair`.
fn time(pair: impl Fn()) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        pair();
    }
    start.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

macro_rules! timed {
    ($name:literal, $lock:expr, $method:ident) => {{
        let lock = $lock;
        let pair = move || time(|| drop(black_box(lock.$method())));
        ($name, Box::new(pair) as Box<dyn Fn() -> f64>)
    }};
}

fn print(title: &str, locks: &[Timed]) {
    let mut rounds = vec![Vec::new(); locks.len()];
    for _ in 0..ROUNDS {
        for ((_, run), rounds) in locks.iter().zip(&mut rounds) {
            rounds.push(run());
        }
    }
    println!("{title}, ns: median [quartiles]");
    for ((name, _), rounds) in locks.iter().zip(&mut rounds) {
        rounds.sort_by(f64::total_cmp);
        let at = |share: usize| rounds[(ROUNDS - 1) * share / 4];
        println!("  {name:<24} {:6.2} [{:.2}, {:.2}]", at(2), at(1), at(3));
    }
}

fn main() {
    print(
        "read lock and unlock",
        &[
            timed!("std::sync::RwLock", std::sync::RwLock::new(0), read),
            timed!("parking_lot::RwLock", parking_lot::RwLock::new(0), read),
            timed!("usync::RwLock", usync::RwLock::new(0), read),
            timed!("RwSem (timefair)", RwSem::new(0), read),
            timed!("RwSem (phase-fair)", PolicyRwSem::<_, PhaseFair>::new(0), read),
            timed!("RwSem (linux-5.11)", PolicyRwSem::<_, Linux5_11>::new(0), read),
        ],
    );
    print(
        "write lock and unlock",
        &[
            timed!("std::sync::RwLock", std::sync::RwLock::new(0), write),
            timed!("parking_lot::RwLock", parking_lot::RwLock::new(0), write),
            timed!("usync::RwLock", usync::RwLock::new(0), write),
            timed!("RwSem (timefair)", RwSem::new(0), write),
            timed!("RwSem (phase-fair)", PolicyRwSem::<_, PhaseFair>::new(0), write),
            timed!("RwSem (linux-5.11)", PolicyRwSem::<_, Linux5_11>::new(0), write),
            timed!("std::sync::Mutex", std::sync::Mutex::new(0), lock),
            timed!("Mutex", Mutex::new(0), lock),
        ],
    );
}
