//! What a signal costs on the timed machine, counted exactly: of a source that is queued, one update of
//! its own line; of one that is not, one update of the list beside; and from producer to consumer two
//! lines, there and back.

use std::cell::Cell;
use std::time::Duration;

use fairlock::ready::{Batch, List, RawCounter, RawEvent, RawPoll, Readiness, ReadyList, Trigger};
use fairlock_reference::ready::{RwLockList, SpinList};
use fairlock_sim::Sim;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Counts};

use crate::large::{Body, run};

const READABLE: Readiness = Readiness::READABLE;

/// Keeps the CPU for so long, without a sleep that would count as a wake-up.
fn pass_us(us: u32) {
    timed::compute(us * (1_000.0 / Profile::example().cost.pause_ns) as u32);
}

/// Until the machine's clock shows this.
fn pass_until_us(us: u32) {
    let left = u64::from(us) * 1_000 - timed::now();
    timed::compute((left as f64 / Profile::example().cost.pause_ns) as u32);
}

/// What moved: lines, those of them that were written while others had them, and their copies.
fn lines(counts: &Counts) -> [u64; 3] {
    [counts.transfers, counts.shared_writes, counts.invalidations]
}

/// So much of the machine's time.
fn cost(loads: u32, stores: u32, updates: u32) -> f64 {
    let cost = Profile::example().cost;
    f64::from(loads) * cost.load_ns
        + f64::from(stores) * cost.store_ns
        + f64::from(updates) * cost.rmw_ns
}

/// What is ready now.
fn look<L: List>(poll: &RawPoll<L>, batch: &mut Batch) -> usize {
    poll.wait(batch, Some(Duration::ZERO))
}

// ---- a source that is queued ----

/// So many threads add so often to a counter each that is on the list already, all at once: what the run
/// counted, and how long it took the first and the last to be done, in ns.
fn adders(threads: usize, rounds: u64) -> (Counts, u64, u64) {
    let poll = RawPoll::<ReadyList<Sim>>::new();
    let counters: Vec<_> = (0..threads).map(|_| RawCounter::new(0)).collect();
    for counter in &counters {
        poll.register(counter, 0, READABLE, Trigger::Level).expect("new");
    }
    let (shortest, longest) = (Cell::new(u64::MAX), Cell::new(0));
    let body = |counter| -> Body<'_> {
        let counter: &RawCounter<_> = counter;
        let (shortest, longest) = (&shortest, &longest);
        Box::new(move || {
            counter.add(1);
            pass_us(1_000);
            let began = timed::now();
            (0..rounds).for_each(|_| _ = counter.add(1));
            let took = timed::now() - began;
            shortest.set(took.min(shortest.get()));
            longest.set(took.max(longest.get()));
        })
    };
    let counts = run(counters.iter().map(body).collect());
    (counts, shortest.get(), longest.get())
}

#[test]
fn producers_of_queued_sources_share_nothing() {
    for threads in [1, 2, 16, 120] {
        let (few, ..) = adders(threads, 0);
        let (many, ..) = adders(threads, 1_000);
        assert_eq!(lines(&many), lines(&few), "{threads} threads");
        assert!(many.events > few.events, "they did something");
    }
}

#[test]
fn a_signal_of_a_queued_source_is_one_load_more_than_the_count() {
    const ROUNDS: u32 = 1_000;
    // The count, read and exchanged; and whether it is queued.
    let expected = (f64::from(ROUNDS) * cost(2, 0, 1)) as u64;
    for threads in [1, 2, 16, 120] {
        let (_, shortest, longest) = adders(threads, ROUNDS.into());
        assert_eq!((shortest, longest), (expected, expected), "{threads} threads");
    }
}

// ---- a source that is not ----

/// So many sources are signalled between two looks of the thread that does both.
const SOURCES: u32 = 10;

/// How long it takes to signal each of them so often, in ns, when all were taken off the list before.
fn pushes<L: List<Platform = Sim>>(rounds: u32) -> u64 {
    let poll = RawPoll::<L>::new();
    let events: Vec<_> = (0..SOURCES).map(|_| RawEvent::new()).collect();
    for event in &events {
        poll.register(event, 0, READABLE, Trigger::Edge).expect("new");
    }
    let took = Cell::new(0);
    run(vec![Box::new(|| {
        let mut batch = Batch::with_capacity(SOURCES as usize);
        for round in 0..=rounds {
            let began = timed::now();
            events.iter().for_each(|event| event.set(READABLE));
            // The first brings the lines here.
            if round > 0 {
                took.set(took.get() + timed::now() - began);
            }
            assert_eq!(look(&poll, &mut batch), SOURCES as usize);
        }
    })]);
    took.get()
}

#[test]
fn a_push_is_one_update_of_the_list_and_two_of_the_source() {
    const ROUNDS: u32 = 100;
    // What it is ready for, then that it is being linked, the head, and that it is linked. Its state, its
    // poll and the head are read; the link is written.
    let expected = (f64::from(ROUNDS * SOURCES) * cost(3, 1, 4)) as u64;
    assert_eq!(pushes::<ReadyList<Sim>>(ROUNDS), expected);
    assert!(pushes::<RwLockList<Sim>>(ROUNDS) > expected);
    assert!(pushes::<SpinList<Sim>>(ROUNDS) > expected);
}

// ---- from producer to consumer ----

/// What so many deliveries cost, one long after the other: each of so many producers signals its source,
/// in turn, and then the consumer takes all of them.
fn deliveries<L: List<Platform = Sim>>(producers: u32, rounds: u32) -> [u64; 3] {
    let poll = RawPoll::<L>::new();
    let events: Vec<_> = (0..producers).map(|_| RawEvent::new()).collect();
    for event in &events {
        poll.register(event, 0, READABLE, Trigger::Edge).expect("new");
    }
    let turn = 100;
    let round = turn * (producers + 1);
    let produce = |(event, nth): (_, u32)| -> Body<'_> {
        let event: &RawEvent<L> = event;
        Box::new(move || {
            for at in 0..rounds {
                pass_until_us(round * at + turn * nth + turn);
                event.set(READABLE);
            }
        })
    };
    let mut bodies: Vec<_> = events.iter().zip(0..).map(produce).collect();
    bodies.push(Box::new(|| {
        let mut batch = Batch::with_capacity(producers as usize);
        for at in 1..=rounds {
            pass_until_us(round * at);
            assert_eq!(look(&poll, &mut batch), producers as usize);
        }
    }));
    lines(&run(bodies))
}

/// What one more round costs.
fn each_round<L: List<Platform = Sim>>(producers: u32) -> [f64; 3] {
    const ROUNDS: u32 = 50;
    let (few, many) = (deliveries::<L>(producers, 3), deliveries::<L>(producers, 3 + ROUNDS));
    [0, 1, 2].map(|at| (many[at] - few[at]) as f64 / f64::from(ROUNDS))
}

#[test]
fn a_delivery_moves_two_lines_there_and_back() {
    // The source's line and the list's come to the producer; both go to the consumer.
    assert_eq!(each_round::<ReadyList<Sim>>(1)[0], 4.0);
    // The list's goes from producer to producer.
    for producers in [2, 10] {
        let moved = each_round::<ReadyList<Sim>>(producers)[0];
        assert_eq!(moved, f64::from(3 * producers + 1), "{producers} producers");
    }
}

#[test]
fn other_lists_move_no_fewer_lines() {
    for producers in [1, 2, 10] {
        let free = each_round::<ReadyList<Sim>>(producers)[0];
        assert!(each_round::<RwLockList<Sim>>(producers)[0] >= free);
        assert!(each_round::<SpinList<Sim>>(producers)[0] >= free);
    }
}
