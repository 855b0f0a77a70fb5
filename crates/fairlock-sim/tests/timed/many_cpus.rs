//! `TimeFair` where many CPUs want the lock at the same moment, again and again: nobody is left out, and readers do not slow each other down
//! to a crawl.

use std::cell::Cell;

use fairlock::lock_api;
use fairlock::policy::TimeFair;
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::RawRwSem;
use fairlock_sim::Sim;
use fairlock_sim::timed;

use crate::large::{Body, run};

/// As in a static of its own: no line is shared with anything else.
#[repr(align(128))]
struct Alone<L>(L);

/// Who reads; the others write.
type Reads = fn(u32) -> bool;

/// How many sections each of so many threads has completed after 20 ms.
fn sections<R: lock_api::RawRwLock>(threads: u32, reads: Reads) -> Vec<u32> {
    let lock = Alone(lock_api::RwLock::<R, ()>::from_raw(R::INIT, ()));
    let completed: Vec<Cell<u32>> = (0..threads).map(|_| Cell::new(0)).collect();
    let bodies = completed.iter().zip(0..).map(|(completed, index)| {
        let lock = &lock.0;
        Box::new(move || {
            while timed::now() < 20_000_000 {
                match reads(index) {
                    true => _ = lock.read(),
                    false => _ = lock.write(),
                }
                completed.set(completed.get() + 1);
                timed::compute(10);
            }
        }) as Body<'_>
    });
    run(bodies.collect());
    completed.iter().map(Cell::get).collect()
}

const ROLES: [(&str, Reads); 3] =
    [("readers", |_| true), ("writers", |_| false), ("both", |index| index % 2 == 0)];

#[test]
fn nobody_is_left_out() {
    // Several numbers, as steps of threads that run in step can hit each other every time.
    for threads in [7, 16, 30] {
        for (who, reads) in ROLES {
            for (lock, each) in [
                ("rwsem", sections::<RawRwSem<TimeFair, Sim>>(threads, reads)),
                ("rwlock", sections::<RawRwLock<Sim>>(threads, reads)),
            ] {
                let least = each.iter().min().expect("there are threads");
                assert!(*least > 0, "{lock}, {threads} threads, {who}: {each:?}");
            }
        }
    }
}

#[test]
fn many_readers_read_at_least_half_as_much_as_two() {
    let [two, many] = [2, 240].map(|threads| -> u32 {
        sections::<RawRwSem<TimeFair, Sim>>(threads, |_| true).iter().sum()
    });
    assert!(many * 2 >= two, "240 threads: {many}, two: {two}");
}
