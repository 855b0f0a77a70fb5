//! Systems without an interface of their own here: threads sleep in `parking_lot_core`'s table of
//! addresses, which is built on what each system has.
//!
//! Two things differ from a system whose kernel keeps the sleepers:
//! * The table grows by the program's global allocator when more threads sleep than ever before. So
//!   an allocator must not use these locks itself.
//! * In the child of a `fork` the table still has the parent's sleepers, which are no more, and its
//!   parts are as the `fork` found them. So the child does not use it: a thread that has to wait
//!   there looks again every millisecond.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot_core::{DEFAULT_UNPARK_TOKEN, FilterOp, ParkToken};

pub(super) use super::portable::{barrier_on_all_cpus, cpu, cpus, is_asymmetric, nap, now};

/// What tells this crate's sleepers from all others in the table. A random number.
const OURS: ParkToken = ParkToken(0xfa1e_10c0);

pub(super) fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
    let left = deadline.map(|deadline| Duration::from_nanos(deadline.saturating_sub(now())));
    if fork::is_child() {
        const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
        std::thread::sleep(left.unwrap_or(BETWEEN_LOOKS).min(BETWEEN_LOOKS));
        return;
    }
    // None if the clock ends first.
    let deadline = left.and_then(|left| Instant::now().checked_add(left));
    // SAFETY: the word is alive and this crate's. The functions neither panic nor use the table.
    unsafe {
        parking_lot_core::park(
            word.as_ptr().addr(),
            // Under the lock that `unpark` takes after the word was changed.
            || word.load(Relaxed) == expected,
            || (),
            |_, _| (),
            OURS,
            deadline,
        );
    }
}

pub(super) fn unpark(word: *const AtomicU32) {
    unpark_many(word, 1);
}

/// Wakes `most` threads, and says how many slept.
pub(super) fn unpark_many(word: *const AtomicU32, most: u32) -> u32 {
    if fork::is_child() {
        return 0;
    }
    let mut found = 0;
    // SAFETY: the address may be another's by now, if the word is gone. But only a thread that this
    // crate has parked is woken, and it looks again. The functions neither panic nor use the table.
    unsafe {
        parking_lot_core::unpark_filter(
            word.addr(),
            |token| match token == OURS {
                true if found == most => FilterOp::Stop,
                true => {
                    found += 1;
                    FilterOp::Unpark
                }
                false => FilterOp::Skip,
            },
            |_| DEFAULT_UNPARK_TOKEN,
        );
    }
    found
}

#[cfg(all(unix, not(miri)))]
mod fork {
    use core::sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
    };

    /// Whether this process was made by `fork`, after its parent had used the table.
    static IS_CHILD: AtomicBool = AtomicBool::new(false);
    static HANDLED: AtomicBool = AtomicBool::new(false);

    /// Whether the table is the parent's. Before the first use of the table it installs the handler
    /// that finds out.
    pub(super) fn is_child() -> bool {
        // Acquire pairs with the Release below: the handler is installed before anybody sleeps.
        if !HANDLED.load(Acquire) {
            // SAFETY: the handler is a plain function of this library, and changes one word.
            // Installing it twice does no harm. If there is no memory, the next call tries again.
            if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } == 0 {
                HANDLED.store(true, Release);
            }
        }
        IS_CHILD.load(Relaxed)
    }

    unsafe extern "C" fn in_child() {
        IS_CHILD.store(true, Relaxed);
    }
}

#[cfg(not(all(unix, not(miri))))]
mod fork {
    /// There is no `fork` on this system.
    pub(super) fn is_child() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, AtomicUsize};
    use std::thread;

    use super::*;

    /// Waits until the word is not 0.
    fn wait_for(word: &AtomicU32) {
        while word.load(Relaxed) == 0 {
            park(word, 0, None);
        }
    }

    #[test]
    fn a_wake_up_is_for_one_of_those_on_its_word() {
        let (words, left) = ([AtomicU32::new(0), AtomicU32::new(0)], AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    wait_for(&words[0]);
                    left.fetch_add(1, Relaxed);
                    // The next one.
                    unpark(&words[0]);
                });
            }
            scope.spawn(|| wait_for(&words[1]));
            words[0].store(1, Relaxed);
            unpark(&words[0]);
            while left.load(Relaxed) < 3 {
                thread::yield_now();
            }
            words[1].store(1, Relaxed);
            unpark(&words[1]);
        });
    }

    #[test]
    fn a_wake_up_leaves_another_s_sleeper_at_the_same_address_asleep() {
        let (word, asleep, over) =
            (AtomicU32::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let key = word.as_ptr().addr();
        thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the address is this test's. The functions neither panic nor use the
                // table.
                unsafe {
                    let tell = || asleep.store(true, Relaxed);
                    parking_lot_core::park(key, || true, tell, |_, _| (), ParkToken(0), None);
                }
                assert!(over.load(Relaxed), "woken by its own waker only");
            });
            while !asleep.load(Relaxed) {
                thread::yield_now();
            }
            unpark(&word);
            over.store(true, Relaxed);
            // SAFETY: the address is this test's. The function neither panics nor uses the table.
            unsafe { parking_lot_core::unpark_one(key, |_| DEFAULT_UNPARK_TOKEN) };
        });
    }
}
