//! `Condvar` on real threads, in the scenarios of which Loom and the explorer see every schedule, and as a bounded
//! channel that many threads use at once.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use fairlock::platform::Os;
use fairlock::{Condvar, Mutex};
use fairlock_check::condvar::{self, Queue};
use fairlock_check::scenario::Scenario;
use fairlock_check::threads::{Dice, Unprotected, repeat, watched};

#[test]
fn a_few_threads() {
    let mut scenarios: Vec<Scenario<Queue<Os, Unprotected>>> = condvar::two_threads();
    scenarios.extend(condvar::three_threads());
    scenarios.extend([condvar::four(), condvar::eight()]);
    repeat("condvar", scenarios, 100);
}

/// More threads than CPUs, which give and take items one by one and all at once, some of them impatiently. Whoever waits
/// is notified by somebody, or all wait for ever.
#[test]
fn a_bounded_channel_among_many_threads_loses_nothing() {
    const SENDERS: u64 = 3;
    const RECEIVERS: u64 = 5;
    const ITEMS: u32 = 6_000;
    const ROOM: usize = 4;

    let (items, has_items, has_room) = (Mutex::new(Vec::new()), Condvar::new(), Condvar::new());
    let (sent, received) = (AtomicU32::new(0), AtomicU32::new(0));
    let send = |dice: &mut Dice| {
        while sent.fetch_add(1, Relaxed) < ITEMS {
            let mut guard = items.lock();
            let is_full = |items: &mut Vec<u32>| items.len() >= ROOM;
            while has_room
                .wait_while_for(&mut guard, is_full, Duration::from_micros(dice.roll(100)))
                .timed_out()
            {}
            guard.push(1);
            if dice.roll(2) == 0 {
                drop(guard);
                has_items.notify_one();
            } else {
                has_items.notify_one();
            }
        }
    };
    let receive = |dice: &mut Dice| {
        loop {
            let mut guard = items.lock();
            if dice.roll(3) == 0 {
                let patience = Duration::from_micros(dice.roll(50));
                _ = has_items.wait_for(&mut guard, patience);
                // It may have taken a notification: whatever that was for, it is looked at below.
            }
            let is_waiting =
                |items: &mut Vec<u32>| items.is_empty() && received.load(Relaxed) < ITEMS;
            has_items.wait_while(&mut guard, is_waiting);
            let Some(item) = guard.pop() else { return };
            has_room.notify_one();
            if received.fetch_add(item, Relaxed) + item == ITEMS {
                has_items.notify_all();
            }
        }
    };
    watched(|| {
        thread::scope(|scope| {
            for seed in 0..SENDERS {
                scope.spawn(move || send(&mut Dice::new(seed)));
            }
            for seed in SENDERS..SENDERS + RECEIVERS {
                scope.spawn(move || receive(&mut Dice::new(seed)));
            }
        });
    });
    assert_eq!(received.into_inner(), ITEMS);
    assert!(items.into_inner().is_empty());
    assert!(!has_items.notify_one() && !has_room.notify_one(), "nobody waits");
}
