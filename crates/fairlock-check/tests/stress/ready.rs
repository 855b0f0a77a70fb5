//! Each list and its poll on real threads: producers and consumers at once, sleeping and not, while
//! sources come and go. Nothing that was signalled is lost, nobody stays asleep.

use std::cell::Cell;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fairlock::events::NoCounters;
use fairlock::platform::{Os, Platform, Zeroed};
use fairlock::process::Process;
use fairlock::ready::{Batch, List, RawCounter, RawEvent, RawPoll, Readiness, ReadyList, Trigger};
use fairlock::slots::Record;
use fairlock_check::real_threads_but;
use fairlock_check::threads::{Dice, watched};
use fairlock_reference::ready::{RwLockList, SpinList};

const READABLE: Readiness = Readiness::READABLE;
const NOW: Option<Duration> = Some(Duration::ZERO);

/// Far longer than a wake-up takes.
const HANGS_AFTER: Duration = Duration::from_secs(5);

const SOURCES: u64 = 5;
const PRODUCERS: u64 = 3;
const CONSUMERS: u64 = 3;

/// Says that everything is over to those who sleep: the token of a source that stays ready.
const OVER: u64 = u64::MAX;

/// Waits in one of three ways; what there is to do.
fn wait<L: List>(poll: &RawPoll<L>, dice: &mut Dice) -> Vec<u64> {
    let timeout = match dice.roll(3) {
        0 => NOW,
        1 => Some(Duration::from_micros(dice.roll(100))),
        _ => None,
    };
    let mut batch = Batch::with_capacity(1 + dice.roll(SOURCES) as usize);
    poll.wait(&mut batch, timeout);
    batch.iter().map(|ready| ready.token).collect()
}

/// Runs producers, and beside them consumers, each of which gets the tokens of its waits until one is
/// `OVER`, which comes last.
fn together<L: List>(
    poll: &RawPoll<L>,
    produce: impl Fn(&mut Dice) + Sync,
    consume: impl Fn(u64) + Sync,
) {
    let over = RawEvent::<L>::new();
    poll.register(&over, OVER, READABLE, Trigger::Level).unwrap();
    let (produce, consume) = (&produce, &consume);
    watched(|| {
        thread::scope(|scope| {
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|seed| scope.spawn(move || produce(&mut Dice::new(seed))))
                .collect();
            for seed in 0..CONSUMERS {
                scope.spawn(move || {
                    let mut dice = Dice::new(PRODUCERS + seed);
                    loop {
                        let tokens = wait(poll, &mut dice);
                        tokens.iter().filter(|&&token| token != OVER).for_each(|&at| consume(at));
                        if tokens.contains(&OVER) {
                            return;
                        }
                    }
                });
            }
            producers.into_iter().for_each(|producer| producer.join().unwrap());
            over.set(READABLE);
        });
    });
    poll.deregister(&over).unwrap();
    // What the consumers have left.
    let mut batch = Batch::with_capacity(1);
    for _ in 0..SOURCES {
        poll.wait(&mut batch, NOW);
        batch.iter().for_each(|ready| consume(ready.token));
    }
}

fn counters<L: List>(poll: &RawPoll<L>, trigger: Trigger) -> Vec<RawCounter<L>> {
    let register = |token| {
        let counter = RawCounter::new(0);
        poll.register(&counter, token, READABLE, trigger).unwrap();
        counter
    };
    (0..SOURCES).map(register).collect()
}

const ADDS: u64 = 4_000;

/// What was added is read, all of it, by those who are told.
fn every_add_is_read<L: List>(trigger: Trigger) {
    let poll = RawPoll::<L>::new();
    let counters = counters(&poll, trigger);
    let read = AtomicU64::new(0);
    let produce = |dice: &mut Dice| {
        for _ in 0..ADDS {
            counters[dice.roll(SOURCES) as usize].add(1);
        }
    };
    together(&poll, produce, |token| {
        read.fetch_add(counters[token as usize].read().unwrap_or(0), Relaxed);
    });
    assert_eq!(read.load(Relaxed), PRODUCERS * ADDS);
}

fn every_level_is_read<L: List>() {
    every_add_is_read::<L>(Trigger::Level);
}

fn every_edge_is_read<L: List>() {
    every_add_is_read::<L>(Trigger::Edge);
}

/// A source that reports once is read by one at a time, who then asks for the next report.
fn who_asks_for_one_report_gets_one<L: List>() {
    let poll = RawPoll::<L>::new();
    let counters = counters(&poll, Trigger::Once);
    let reported: Vec<AtomicBool> = (0..SOURCES).map(|_| AtomicBool::new(false)).collect();
    let read = AtomicU64::new(0);
    let produce = |dice: &mut Dice| {
        for _ in 0..ADDS {
            counters[dice.roll(SOURCES) as usize].add(1);
        }
    };
    together(&poll, produce, |token| {
        let at = token as usize;
        assert!(!reported[at].swap(true, Relaxed), "reported twice");
        read.fetch_add(counters[at].read().unwrap_or(0), Relaxed);
        reported[at].store(false, Relaxed);
        poll.modify(&counters[at], token, READABLE, Trigger::Once).unwrap();
    });
    assert_eq!(read.load(Relaxed), PRODUCERS * ADDS);
}

/// After the last edge of each source comes a report.
fn a_report_comes_after_each_edge<L: List>() {
    let poll = RawPoll::<L>::new();
    let events: Vec<RawEvent<L>> = (0..SOURCES).map(|_| RawEvent::new()).collect();
    for (token, event) in events.iter().enumerate() {
        poll.register(event, token as u64, READABLE, Trigger::Edge).unwrap();
    }
    let edges: Vec<AtomicU64> = (0..SOURCES).map(|_| AtomicU64::new(0)).collect();
    let seen: Vec<AtomicU64> = (0..SOURCES).map(|_| AtomicU64::new(0)).collect();
    let produce = |dice: &mut Dice| {
        for _ in 0..ADDS {
            let at = dice.roll(SOURCES) as usize;
            edges[at].fetch_add(1, SeqCst);
            events[at].set(READABLE);
        }
    };
    together(&poll, produce, |token| {
        let at = token as usize;
        seen[at].fetch_max(edges[at].load(SeqCst), SeqCst);
    });
    for (edges, seen) in edges.iter().zip(&seen) {
        assert_eq!(seen.load(SeqCst), edges.load(SeqCst));
    }
}

/// One source is never quiet; the others are served all the same.
fn a_busy_source_starves_nobody<L: List>() {
    const ROUNDS: u64 = 300;
    let poll = RawPoll::<L>::new();
    let (busy, quiet) = (RawEvent::<L>::new(), RawCounter::<L>::new(0));
    poll.register(&busy, 0, READABLE, Trigger::Edge).unwrap();
    poll.register(&quiet, 1, READABLE, Trigger::Edge).unwrap();
    let over = AtomicBool::new(false);
    watched(|| {
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    busy.set(READABLE);
                }
            });
            let mut batch = Batch::with_capacity(1);
            for _ in 0..ROUNDS {
                quiet.add(1);
                let mut waits = 0;
                while quiet.get() > 0 {
                    waits += 1;
                    poll.wait(&mut batch, None);
                    if batch.iter().any(|ready| ready.token == 1) {
                        quiet.read();
                    }
                }
                assert!(waits <= 2, "two sources, {waits} waits");
            }
            over.store(true, Relaxed);
        });
    });
}

/// Sources enter, change and leave, some by being dropped, while they and others are signalled, and
/// what is reported is a registered source's.
fn sources_come_and_go<L: List>() {
    const STAYS: u64 = 300;
    const LAST: u64 = 1 << 32;
    let poll = RawPoll::<L>::new();
    let counters = counters(&poll, Trigger::Level);
    let read = AtomicU64::new(0);
    let produce = |dice: &mut Dice| {
        for round in 0..STAYS {
            counters[dice.roll(SOURCES) as usize].add(1);
            let event = RawEvent::<L>::new();
            let trigger = [Trigger::Level, Trigger::Edge, Trigger::Once][dice.roll(3) as usize];
            poll.register(&event, LAST + round, READABLE, trigger).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| (0..dice.roll(8)).for_each(|_| event.set(READABLE)));
                poll.modify(&event, LAST + round, READABLE, trigger).unwrap();
                event.clear(READABLE);
                if round.is_multiple_of(2) {
                    poll.deregister(&event).unwrap();
                }
            });
        }
    };
    together(&poll, produce, |token| match counters.get(token as usize) {
        Some(counter) => _ = read.fetch_add(counter.read().unwrap_or(0), Relaxed),
        None => assert!((LAST..LAST + STAYS).contains(&token), "{token}"),
    });
    assert_eq!(read.load(Relaxed), PRODUCERS * STAYS);
}

/// Polls end while their sources are signalled, and the sources go on elsewhere.
fn polls_come_and_go<L: List>() {
    const POLLS: u64 = 200;
    let counters: Vec<RawCounter<L>> = (0..SOURCES).map(|_| RawCounter::new(0)).collect();
    let over = AtomicBool::new(false);
    watched(|| {
        thread::scope(|scope| {
            for seed in 0..PRODUCERS {
                let (counters, over) = (&counters, &over);
                scope.spawn(move || {
                    let mut dice = Dice::new(seed);
                    while !over.load(Relaxed) {
                        counters[dice.roll(SOURCES) as usize].add(1);
                    }
                });
            }
            let mut batch = Batch::with_capacity(SOURCES as usize);
            for _ in 0..POLLS {
                let poll = RawPoll::<L>::new();
                for (token, counter) in counters.iter().enumerate() {
                    poll.register(counter, token as u64, READABLE, Trigger::Level).unwrap();
                }
                assert!(poll.wait(&mut batch, None) > 0);
                for ready in &batch {
                    assert!(counters[ready.token as usize].read().is_some());
                }
            }
            over.store(true, Relaxed);
        });
    });
}

/// A poll is waited for in another one.
fn every_add_is_read_through_a_poll_within_a_poll<L: List>() {
    let (inner, outer) = (RawPoll::<L>::new(), RawPoll::<L>::new());
    let counters = counters(&inner, Trigger::Level);
    outer.register(&inner, 0, READABLE, Trigger::Edge).unwrap();
    watched(|| {
        thread::scope(|scope| {
            for seed in 0..PRODUCERS {
                let counters = &counters;
                scope.spawn(move || {
                    let mut dice = Dice::new(seed);
                    for _ in 0..ADDS {
                        counters[dice.roll(SOURCES) as usize].add(1);
                    }
                });
            }
            let (mut of_outer, mut of_inner) = (Batch::with_capacity(1), Batch::with_capacity(2));
            let mut read = 0;
            while read < PRODUCERS * ADDS {
                outer.wait(&mut of_outer, None);
                while inner.wait(&mut of_inner, NOW) > 0 {
                    for ready in &of_inner {
                        read += counters[ready.token as usize].read().unwrap_or(0);
                    }
                }
            }
        });
    });
}

// ---- a producer that stops ----

/// The first thread that wakes somebody stops, until this is 2; it is 1 while it stands there.
static STOPPED: AtomicU32 = AtomicU32::new(0);

fn unpark_unless_first(word: *const AtomicU32) {
    if STOPPED.compare_exchange(0, 1, SeqCst, SeqCst).is_ok() {
        while STOPPED.load(SeqCst) == 1 {
            thread::yield_now();
        }
    }
    Os::unpark(word);
}

real_threads_but! {
    /// The first wake-up is held back until it is released.
    Stopping { asymmetric: false, records: own, unpark: unpark_unless_first };
}

#[test]
fn a_producer_that_stops_before_it_wakes_a_sleeper_does_not_keep_others_from_it() {
    let poll = RawPoll::<ReadyList<Stopping>>::new();
    let (of_stopped, of_other) = (RawEvent::new(), RawEvent::new());
    poll.register(&of_stopped, 0, READABLE, Trigger::Edge).unwrap();
    poll.register(&of_other, 1, READABLE, Trigger::Edge).unwrap();
    let (told, is_told) = mpsc::channel();
    let got_it = thread::scope(|scope| {
        let (poll, of_stopped) = (&poll, &of_stopped);
        scope.spawn(move || {
            let mut batch = Batch::with_capacity(2);
            while !batch.iter().any(|ready| ready.token == 1) {
                poll.wait(&mut batch, None);
            }
            // Nobody listens any more if this took too long.
            let _ = told.send(());
        });
        scope.spawn(move || {
            while STOPPED.load(SeqCst) != 2 {
                of_stopped.set(READABLE);
            }
        });
        while STOPPED.load(SeqCst) == 0 {
            thread::yield_now();
        }
        of_other.set(READABLE);
        let got_it = is_told.recv_timeout(HANGS_AFTER);
        STOPPED.store(2, SeqCst);
        got_it
    });
    assert!(got_it.is_ok(), "what another producer signalled is not seen");
}

macro_rules! over_each_list {
    ($($test:ident)*) => {
        mod ready_list { $(#[test] fn $test() { super::$test::<super::ReadyList>(); })* }
        mod rwlock_list { $(#[test] fn $test() { super::$test::<super::RwLockList>(); })* }
        mod spin_list { $(#[test] fn $test() { super::$test::<super::SpinList>(); })* }
    };
}

over_each_list! {
    every_level_is_read
    every_edge_is_read
    who_asks_for_one_report_gets_one
    a_report_comes_after_each_edge
    a_busy_source_starves_nobody
    sources_come_and_go
    polls_come_and_go
    every_add_is_read_through_a_poll_within_a_poll
}
