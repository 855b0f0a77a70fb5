//! What `RangeLock` costs on the timed machine, counted exactly: who shares writes nothing that others
//! read, who is alone pays for those whom it meets, and only those are woken that can go on.

use std::cell::Cell;

use fairlock::range::{Extent, RangeLock, RawRangeLock, Slotted};
use fairlock_reference::range::Naive;
use fairlock_sim::Sim;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Counts};

use crate::large::{Body, run};

/// As in a static of its own: no line is shared with anything else.
#[repr(align(128))]
struct Alone<R>(RangeLock<R>);

type Lock = Alone<Slotted<Sim>>;

impl<R: RawRangeLock> Alone<R> {
    fn new() -> Self {
        Alone(RangeLock::new_in())
    }
    fn read(&self, extent: Extent) {
        drop(self.0.read(extent));
    }
    fn write(&self, extent: Extent) {
        drop(self.0.write(extent));
    }
}

/// The block of so many positions that has this number.
fn block(number: u64) -> Extent {
    Extent::at(number << BLOCK_SHIFT, 1 << BLOCK_SHIFT).expect("not that many")
}

/// Of the lock's filters, as it is made.
const BLOCK_SHIFT: u32 = 16;
/// With 16 stripes, these two blocks have different ones.
const APART: [u64; 2] = [0, 1];
/// And these the same.
const IN_ONE_STRIPE: [u64; 2] = [0, 13];

/// Keeps the CPU for so long, without a sleep that would count as a wake-up.
fn pass_us(us: u32) {
    timed::compute(us * (1_000.0 / Profile::example().cost.pause_ns) as u32);
}

/// What moved: lines, those of them that were written while others had them, and their copies.
fn lines(counts: &Counts) -> [u64; 3] {
    [counts.transfers, counts.shared_writes, counts.invalidations]
}

// ---- sharing ----

/// So many threads read so often each, all at once, when they have done so before: what the run
/// counted, and how long it took the first and the last to be done, in ns.
fn readers(threads: usize, rounds: u64, range: fn(u64) -> Extent) -> (Counts, u64, u64) {
    let lock = Lock::new();
    let (shortest, longest) = (Cell::new(u64::MAX), Cell::new(0));
    let body = |thread: usize| -> Body<'_> {
        let (lock, shortest, longest) = (&lock, &shortest, &longest);
        let mine = range(thread as u64);
        Box::new(move || {
            // Everybody gets what lines they need, the second time without the lock's first use.
            for _ in 0..2 {
                lock.read(mine);
                pass_us(1_000);
            }
            let began = timed::now();
            (0..rounds).for_each(|_| lock.read(mine));
            let took = timed::now() - began;
            shortest.set(took.min(shortest.get()));
            longest.set(took.max(longest.get()));
        })
    };
    let counts = run((0..threads).map(body).collect());
    (counts, shortest.get(), longest.get())
}

/// Ranges of readers: apart, all the same, each overlapping the next, and everything.
const OF_READERS: [fn(u64) -> Extent; 4] = [
    block,
    |_| block(0),
    |thread| Extent::at(thread << BLOCK_SHIFT, 2 << BLOCK_SHIFT).expect("not that many"),
    |_| Extent::ALL,
];

#[test]
fn readers_write_no_shared_line_and_move_none() {
    for range in OF_READERS {
        for threads in [1, 2, 16, 120] {
            let (few, ..) = readers(threads, 0, range);
            let (many, ..) = readers(threads, 1_000, range);
            assert_eq!(lines(&many), lines(&few), "{threads} threads");
            assert!(many.events > few.events, "they did something");
        }
    }
}

#[test]
fn any_number_of_readers_read_as_fast_as_one() {
    const ROUNDS: u64 = 1_000;
    let cost = Profile::example().cost;
    // The lock's number, where the slots are, that the first is free, that no thread waits for it, how often it was used, that
    // ranges are shared, before and after it is tried for, that no stripe was ever raised, wide ranges that are listed and exclusive ones; and when it leaves
    // whether a thread waits.
    const LOADS: f64 = 11.0;
    // That it is used once more, where the range begins and ends, that it is held, that it is left, that the slot is free.
    const STORES: f64 = 6.0;
    // That it is tried for.
    const UPDATES: f64 = 1.0;
    let one = LOADS * cost.load_ns + STORES * cost.store_ns + UPDATES * cost.rmw_ns;
    let expected = (ROUNDS as f64 * one) as u64;
    for threads in [1, 2, 16, 120, 240] {
        let (_, shortest, longest) = readers(threads, ROUNDS, block);
        assert_eq!((shortest, longest), (expected, expected), "{threads} threads");
        let (_, shortest, longest) = readers(threads, ROUNDS, |_| block(0));
        assert_eq!((shortest, longest), (expected, expected), "{threads} threads, one range");
    }
}

// ---- alone ----

/// Searches of all slots after which a writer looks whether ranges are still shared.
const UNTIL_SHARING_ENDS: u64 = 64;

/// How long it takes one thread to write this often, in ns, and what the run counted, where other
/// threads have shared ranges before, or still `share` them.
fn writes(others: u64, share: bool, rounds: u64) -> (u64, Counts) {
    let lock = Lock::new();
    let took = Cell::new(0);
    let mut bodies: Vec<Body<'_>> = vec![Box::new(|| {
        pass_us(1_000);
        let before = if share { 1 } else { UNTIL_SHARING_ENDS };
        (0..before).for_each(|_| lock.write(block(0)));
        let began = timed::now();
        (0..rounds).for_each(|_| lock.write(block(0)));
        took.set(timed::now() - began);
    })];
    bodies.extend((0..others).map(|other| -> Body<'_> {
        let lock = &lock;
        Box::new(move || {
            let _guard = lock.0.read(block(1 + other));
            pass_us(if share { 2_000 } else { 0 });
        })
    }));
    let counts = run(bodies);
    (took.get(), counts)
}

/// In how many chunks the slots of so many threads are: the first has those of eight, each further one those of
/// as many threads as all before it.
pub(crate) fn chunks(threads: u64) -> u64 {
    threads.div_ceil(8).next_power_of_two().ilog2() as u64 + 1
}

/// What a write takes, in ns, with these loads and its stores and updates.
fn one_write(loads: f64) -> f64 {
    let cost = Profile::example().cost;
    // As a reader, but for its cell, which it fills and empties. The word of its stripe goes up and
    // down.
    let (stores, updates) = (8.0, 2.0);
    loads * cost.load_ns + stores * cost.store_ns + updates * cost.rmw_ns
}

/// As a reader, but for who waits when it leaves; its stripe; once more the sizes of blocks that
/// were raised; and the filters when it leaves, with its cell.
const LOADS_OF_A_WRITE: f64 = 9.0 + 1.0 + 1.0 + 5.0;

#[test]
fn a_writer_alone_moves_no_line_and_looks_at_no_slot() {
    const ROUNDS: u64 = 1_000;
    for others in [0, 1, 16, 60, 120] {
        let (took, many) = writes(others, false, ROUNDS);
        let expected = (ROUNDS as f64 * one_write(LOADS_OF_A_WRITE)) as u64;
        assert_eq!(took, expected, "{others} others");
        assert_eq!(lines(&many), lines(&writes(others, false, 0).1), "{others} others");
    }
}

#[test]
fn a_writer_next_to_readers_moves_no_line_and_looks_once_at_each_slot() {
    const ROUNDS: u64 = UNTIL_SHARING_ENDS / 2;
    // Of each other thread: its tag, where its range begins, and that its next slot was not used.
    const EACH: f64 = 3.0;
    for others in [1, 16, 60, 120] {
        // How many threads there are, a pointer to each chunk of their slots, the slots that were used; that the own next one
        // was not, and how often the own one was.
        let search = 1.0 + chunks(others + 1) as f64 + EACH * others as f64 + 2.0;
        let (took, many) = writes(others, true, ROUNDS);
        let expected = (ROUNDS as f64 * one_write(LOADS_OF_A_WRITE + search)) as u64;
        assert_eq!(took, expected, "{others} others");
        assert_eq!(lines(&many), lines(&writes(others, true, 0).1), "{others} others");
    }
}

// ---- in turn ----

/// What so many rounds cost in which two threads take turns, one long after the other.
fn in_turn<R: RawRangeLock>(rounds: u64, first: fn(&Alone<R>), second: fn(&Alone<R>)) -> [u64; 3] {
    let lock = Alone::<R>::new();
    let body = |turn: u32, step: fn(&Alone<R>)| -> Body<'_> {
        let lock = &lock;
        Box::new(move || {
            pass_us(100 * turn);
            for _ in 0..rounds {
                step(lock);
                pass_us(200);
            }
        })
    };
    lines(&run(vec![body(0, first), body(1, second)]))
}

/// What one more round costs, of this many.
fn each_of<R: RawRangeLock>(rounds: u64, first: fn(&Alone<R>), second: fn(&Alone<R>)) -> [f64; 3] {
    let (few, many) = (in_turn(3, first, second), in_turn(3 + rounds, first, second));
    [0, 1, 2].map(|at| (many[at] - few[at]) as f64 / rounds as f64)
}

/// What one more round costs, before a writer looks whether ranges are still shared.
fn each_round<R: RawRangeLock>(first: fn(&Alone<R>), second: fn(&Alone<R>)) -> [f64; 3] {
    each_of(UNTIL_SHARING_ENDS - 4, first, second)
}

/// Two threads take turns with these: lines that move, are written while the other has them, and copies
/// that this takes away, a round.
fn each_turn(first: fn(&Lock), second: fn(&Lock)) -> [f64; 3] {
    each_round::<Slotted<Sim>>(first, second)
}

fn all(count: u32) -> [f64; 3] {
    [count.into(); 3]
}

#[test]
fn who_shares_pays_nothing_for_others_that_share() {
    let apart = each_turn(|lock| lock.read(block(0)), |lock| lock.read(block(1)));
    assert_eq!(apart, all(0));
    let one = each_turn(|lock| lock.read(block(0)), |lock| lock.read(block(0)));
    assert_eq!(one, all(0));
    let wide = each_turn(|lock| lock.read(Extent::ALL), |lock| lock.read(block(0)));
    assert_eq!(wide, all(0));
}

#[test]
fn writers_apart_share_at_most_a_stripe() {
    let apart = each_turn(|lock| lock.write(block(APART[0])), |lock| lock.write(block(APART[1])));
    assert_eq!(apart, all(0));
    // Each takes the stripe from the other.
    let in_one_stripe = each_turn(
        |lock| lock.write(block(IN_ONE_STRIPE[0])),
        |lock| lock.write(block(IN_ONE_STRIPE[1])),
    );
    assert_eq!(in_one_stripe, all(2));
    let same = each_turn(|lock| lock.write(block(0)), |lock| lock.write(block(0)));
    assert_eq!(same, all(2), "which is what the same range costs");
}

#[test]
fn where_reads_and_writes_take_turns_sharing_seldom_ends() {
    let rounds = 10 * UNTIL_SHARING_ENDS;
    let each =
        each_of::<Slotted<Sim>>(rounds, |lock| lock.read(block(0)), |lock| lock.write(block(1)));
    // The reader's slot; and each time sharing ends the line that says so, to the writer and back.
    assert_eq!(each, [1.0 + 2.0 / UNTIL_SHARING_ENDS as f64; 3]);
}

#[test]
fn a_writer_looks_at_slots_of_readers_who_look_at_its_stripe() {
    let apart = each_turn(|lock| lock.read(block(0)), |lock| lock.write(block(1)));
    assert_eq!(apart, all(1), "the reader's slot");
    let same = each_turn(|lock| lock.read(block(0)), |lock| lock.write(block(0)));
    assert_eq!(same, all(2), "and the stripe");
    let wide_reader = each_turn(|lock| lock.read(Extent::ALL), |lock| lock.write(block(0)));
    assert_eq!(wide_reader, all(2), "who looks at all stripes");
}

#[test]
fn wide_writers_write_what_everybody_looks_at() {
    // The reader's slot, and the words about wide ranges.
    let reader = each_turn(|lock| lock.read(block(0)), |lock| lock.write(Extent::ALL));
    assert_eq!(reader, all(2));
    // The narrow writer's slot, those words, and its stripe.
    let writer = each_turn(|lock| lock.write(block(0)), |lock| lock.write(Extent::ALL));
    assert_eq!(writer, all(3));
}

#[test]
fn a_list_of_everything_moves_lines_whatever_the_ranges() {
    let readers = each_round::<Naive<Sim>>(|l| l.read(block(0)), |l| l.read(block(1)));
    let writers = each_round::<Naive<Sim>>(|l| l.write(block(0)), |l| l.write(block(1)));
    // The list's lock each time, and entries, which may share lines.
    for each in [readers, writers] {
        assert!(each[0] >= 2.0 && each[1] >= 2.0, "{each:?}");
    }
}

// ---- wake-ups ----

/// Nobody sleeps but to wait for a range: so many wake-ups there were.
fn wake_ups(bodies: Vec<Body<'_>>) -> u64 {
    run(bodies).wakeups
}

/// Holds a range from the beginning on for so long.
fn holds<'a>(lock: &'a Lock, extent: Extent, exclusive: bool, us: u32) -> Body<'a> {
    Box::new(move || {
        if exclusive {
            let _guard = lock.0.write(extent);
            pass_us(us);
        } else {
            let _guard = lock.0.read(extent);
            pass_us(us);
        }
    })
}

/// Comes at 100 µs, when all that are there from the beginning on are, or some later, so that there is
/// no crowd at the queue's lock, and gets its range at `us` or soon after.
fn waits<'a>(lock: &'a Lock, extent: Extent, exclusive: bool, later: u32, us: u32) -> Body<'a> {
    Box::new(move || {
        pass_us(100 + later);
        if exclusive {
            lock.write(extent);
        } else {
            lock.read(extent);
        }
        let (now, us) = (timed::now() / 1_000, u64::from(us));
        assert!((us..us + 50).contains(&now), "{now} and not {us}");
    })
}

#[test]
fn a_writer_that_waits_for_many_is_woken_once() {
    let lock = Lock::new();
    let mut bodies: Vec<_> = (0..10)
        .map(|reader| holds(&lock, block(reader), false, 200 + 10 * reader as u32))
        .collect();
    bodies.push(waits(&lock, Extent::of(..10 << BLOCK_SHIFT).expect("not empty"), true, 0, 290));
    assert_eq!(wake_ups(bodies), 1);
    let lock = Lock::new();
    let mut bodies: Vec<_> =
        (0..10).map(|writer| holds(&lock, block(writer), true, 200 + 10 * writer as u32)).collect();
    bodies.push(waits(&lock, Extent::ALL, true, 0, 290));
    assert_eq!(wake_ups(bodies), 1, "wide, and behind writers");
}

#[test]
fn readers_that_wait_for_a_writer_are_woken_once_each_for_their_range() {
    let lock = Lock::new();
    let mut bodies = vec![holds(&lock, block(0), true, 300)];
    bodies.extend((0..10).map(|later| waits(&lock, block(0), false, 10 * later, 300)));
    // They all come to the queue's lock, on which each may sleep once more.
    let wake_ups = wake_ups(bodies);
    assert!((10..=20).contains(&wake_ups), "{wake_ups}");
}

#[test]
fn writers_in_line_are_woken_once_each() {
    let lock = Lock::new();
    let mut bodies = vec![holds(&lock, block(0), true, 300)];
    bodies.extend((0..10).map(|later| -> Body<'_> {
        let lock = &lock;
        Box::new(move || {
            pass_us(100 + 10 * later);
            let _guard = lock.0.write(block(0));
            pass_us(50);
        })
    }));
    assert_eq!(wake_ups(bodies), 10);
}

#[test]
fn only_those_are_woken_whose_range_is_left() {
    let lock = Lock::new();
    let mut bodies: Vec<Body<'_>> = Vec::new();
    for number in 0..10 {
        let us = 300 + 100 * number;
        let mine = block(number.into());
        bodies.push(holds(&lock, mine, true, us));
        bodies.push(waits(&lock, mine, number % 2 == 0, 10 * number, us));
    }
    assert_eq!(wake_ups(bodies), 10);
}

#[test]
fn who_waits_for_two_ranges_is_woken_when_the_last_is_left() {
    let lock = Lock::new();
    let both = Extent::of(..2 << BLOCK_SHIFT).expect("not empty");
    for exclusive in [false, true] {
        let bodies = vec![
            holds(&lock, block(0), true, 500),
            holds(&lock, block(1), true, 300),
            waits(&lock, both, exclusive, 0, 500),
        ];
        assert_eq!(wake_ups(bodies), 1);
    }
}
