//! What the feature `deadlock_detection` says of two functions that acquire two locks in opposite orders: first when they
//! run one after the other, and then when they deadlock.
//!
//! ```sh
//! cargo run -p fairlock --features deadlock_detection --example deadlock
//! ```

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use fairlock::{Mutex, RwLock, deadlock};

static ACCOUNTS: RwLock<[u64; 2]> = RwLock::new([100, 0]);
static JOURNAL: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Holds the accounts when it asks for the journal.
fn transfer(amount: u64, between: impl FnOnce()) {
    let mut accounts = ACCOUNTS.write();
    between();
    accounts[0] -= amount;
    accounts[1] += amount;
    JOURNAL.lock().push(amount);
}

/// Holds the journal when it asks for the accounts.
fn audit(between: impl FnOnce()) {
    let journal = JOURNAL.lock();
    between();
    assert_eq!(journal.iter().sum::<u64>(), ACCOUNTS.read()[1]);
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread")
}

fn main() {
    spawn("transfer", || transfer(10, || ())).join().expect("no panic");
    spawn("audit", || audit(|| ())).join().expect("no panic");
    deadlock::lock_order_cycles().iter().for_each(|cycle| println!("{cycle}\n"));

    static BOTH_HOLD_ONE: Barrier = Barrier::new(2);
    spawn("transfer", || transfer(10, || _ = BOTH_HOLD_ONE.wait()));
    spawn("audit", || audit(|| _ = BOTH_HOLD_ONE.wait()));
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(50));
        let deadlocks = deadlock::check_deadlock();
        if !deadlocks.is_empty() {
            println!("deadlock:");
            deadlocks.iter().flatten().for_each(|thread| println!("{thread}"));
            return;
        }
    }
}
