//! The protocol step by step: the nodes stand in for sleeping threads.

use core::sync::atomic::Ordering::Relaxed;

use super::admission::{CPUS_THAT_SHARE_A_GAP, OpenPhase, looks_at_clock};
use super::serving::READERS_PER_CPU;
use super::waiting::{Outcome, Queued};
use crate::platform::{Os, Platform, ago};
use crate::policy::{Phases, TimeFair};
use crate::rwsem::core::RawRwSem;
use crate::rwsem::owner::is_cpu;
use crate::rwsem::phase_clock::{PhaseClock, ticks};
use crate::rwsem::queue_storage::{Inline, OwnQueue, Pooled, QueueStorageOf, ReaderBias};
use crate::rwsem::wait_queue::{APPOINTED, GRANTED, Kind, Node, WAITING, WOKEN_DEQUEUED};
use crate::rwsem::word::*;
use crate::slots::HasRecords;

type Raw = RawRwSem<TimeFair, Os>;

/// Readers need not take the lock while nobody waits.
struct Biased;

impl ReaderBias for Biased {
    type History = ();
    const NEW: Self = Biased;
    const NO_HISTORY: () = ();
    fn somebody_queued(&self) -> bool {
        true
    }
}

fn waiters<const N: usize>(kinds: [Kind; N]) -> [Node<Os>; N] {
    kinds.map(|kind| Node::new(kind, Os::now()))
}

/// A lock that is held as `word` says, behind which these wait, the first as the deadline waiter,
/// until the phase ends in so many ticks.
fn lock_with(word: u64, nodes: &[Node<Os>], ends_in: i32) -> Raw {
    let lock = Raw::NEW;
    let queue = lock.queue_to_wait_in().expect("it is in the lock");
    nodes.iter().for_each(|node| queue.push(node));
    nodes[0].is_deadline_waiter.set(1);
    queue.clock().begin(PhaseClock::<Os>::now().wrapping_add_signed(ends_in), 0);
    lock.word.store(word | HAS_DEADLINE_WAITER | queue.bits(), Relaxed);
    drop(queue);
    lock
}

fn place(lock: &Raw) -> &Inline<Os> {
    lock.storage.place(lock.word.load(Relaxed))
}

fn clock(lock: &Raw) -> &PhaseClock<Os> {
    QueueStorageOf::clock(&lock.storage, lock.word.load(Relaxed)).expect("it is in the lock")
}

fn ends(lock: &Raw) -> u32 {
    clock(lock).remaining(0) as u32
}

fn queue_for_phase<'a>(lock: &'a Raw, node: &Node<Os>, woken: bool) -> Queued<'a, Inline<Os>> {
    let queue = lock.queue_to_wait_in().expect("it is inline");
    let queued = lock.queue_for_phase(Phases::TIME_FAIR, Side::Write, node, woken, queue);
    queued.expect("it has no other")
}

fn states(nodes: &[Node<Os>]) -> Vec<u32> {
    nodes.iter().map(|node| node.state.load(Relaxed)).collect()
}

/// A quarter of a second, for threads that are stopped meanwhile.
const SOON: i32 = ticks(1 << 28) as i32;

#[test]
fn only_a_lock_that_is_free_in_a_phase_of_writers_has_a_writer_woken() {
    for (word, is_seen_to) in [
        // Readers have their phase by now, and whoever leaves last hands the lock over.
        (READER, true),
        (WRITER | WRITE_PHASE, true),
        (0, false),
        (WRITE_PHASE | CLOSED, false),
    ] {
        let nodes = waiters([Kind::Write, Kind::Write]);
        let lock = lock_with(word, &nodes, SOON);
        let before = lock.word.load(Relaxed);
        assert_eq!(lock.wake_writer(place(&lock)), is_seen_to, "{word:#x}");
        assert_eq!((lock.word.load(Relaxed), states(&nodes)), (before, vec![WAITING; 2]));
    }
    let nodes = waiters([Kind::Write, Kind::Write]);
    let lock = lock_with(WRITE_PHASE, &nodes, SOON);
    assert!(lock.wake_writer(place(&lock)));
    assert_eq!(states(&nodes), [WOKEN_DEQUEUED, WAITING]);
    assert_eq!(lock.word.load(Relaxed) & (WRITER_WOKEN | HAS_DEADLINE_WAITER), WRITER_WOKEN);
}

#[test]
fn the_last_that_waits_is_woken_without_a_trace() {
    let nodes = waiters([Kind::Write]);
    let lock = lock_with(WRITE_PHASE, &nodes, SOON);
    assert!(lock.wake_writer(place(&lock)));
    assert_eq!((lock.word.load(Relaxed), states(&nodes)), (0, vec![WOKEN_DEQUEUED]));
}

#[test]
fn one_that_was_woken_in_vain_is_woken_again() {
    let nodes = waiters([Kind::Write]);
    let lock = lock_with(WRITER | WRITE_PHASE | WRITER_WOKEN, &nodes, SOON);
    let woken = Node::new(Kind::Write, Os::now());
    let queueing = queue_for_phase(&lock, &woken, true);
    assert!(matches!(queueing, Queued::Waits(..)));
    assert_eq!(lock.word.load(Relaxed) & WRITER_WOKEN, 0, "it is back on the queue");
    // SAFETY: the word says that there is a writer, and nobody else is.
    unsafe { lock.unlock_write() };
    assert_eq!((woken.state.load(Relaxed), states(&nodes)), (WOKEN_DEQUEUED, vec![WAITING]));
}

#[test]
fn a_deadline_waiter_that_gives_up_appoints_another() {
    let nodes = waiters([Kind::Write, Kind::Read, Kind::Write]);
    let lock = lock_with(READER | OPEN | READERS_WAIT, &nodes, SOON);
    assert!(lock.withdraw(place(&lock), &nodes[0]));
    assert_eq!(states(&nodes), [WAITING, WAITING, APPOINTED], "the side that is passed");
    assert_eq!(nodes[2].is_deadline_waiter.get(), 1);
    assert!(lock.withdraw(place(&lock), &nodes[2]));
    // Nobody but readers waits, and readers hold the lock: nothing to wait for.
    assert_eq!(nodes[1].state.load(Relaxed), GRANTED);
    assert_eq!(lock.word.load(Relaxed), 2 * READER);
}

#[test]
fn a_phase_without_a_deadline_waiter_is_not_open() {
    let nodes = waiters([Kind::Write, Kind::Upgrade]);
    let lock = lock_with(2 * READER, &nodes[..1], SOON);
    let queue = lock.own_queue(lock.word.load(Relaxed)).expect("somebody waits");
    queue.push_front(&nodes[1]);
    drop(queue);
    let upgrading = lock.word.load(Relaxed) | UPGRADABLE | UPGRADING | OPEN;
    lock.word.store(upgrading, Relaxed);
    assert!(lock.withdraw(place(&lock), &nodes[0]), "nobody else is passed");
    assert_eq!(lock.word.load(Relaxed) & (OPEN | HAS_DEADLINE_WAITER), 0);
}

#[test]
fn whoever_only_tries_ends_a_phase_that_is_over() {
    for _ in 0..100 {
        let nodes = waiters([Kind::Write]);
        let lock = lock_with(READER | OPEN, &nodes, -1);
        // In an open phase not everybody looks.
        let entries = (0..1_000).take_while(|_| lock.try_read()).count();
        assert!(entries < 300, "{entries} entries without a look at the clock");
        assert_eq!(lock.word.load(Relaxed) & (CLOSED | OPEN), CLOSED);
    }
}

#[test]
fn a_thread_that_uses_several_locks_by_turns_looks_at_the_clock_of_each() {
    for locks in 1..50u32 {
        let turns: Vec<_> = (0..10_000).map(|at| at * locks).collect();
        let longest = turns.split(|&turn| looks_at_clock::<Os>(turn)).map(<[u32]>::len).max();
        assert!(longest < Some(300), "{locks} locks: {longest:?}");
    }
}

#[test]
fn readers_do_not_wait_for_readers_when_the_last_other_waiter_joins_those() {
    let nodes = waiters([Kind::Upgradable, Kind::Read]);
    let lock = lock_with(READER | CLOSED | READERS_WAIT, &nodes, -1);
    let knobs = Phases::TIME_FAIR;
    let queue = lock.own_queue(lock.word.load(Relaxed)).expect("somebody waits");
    let granted = lock.serve_phases(knobs, &queue);
    drop(queue);
    granted.wake();
    assert_eq!(states(&nodes), [GRANTED; 2]);
    assert_eq!(lock.word.load(Relaxed), (3 * READER) | UPGRADABLE);
}

#[test]
fn a_downgrade_beside_waiting_writers_is_no_phase_of_its_own() {
    let nodes = waiters([Kind::Write]);
    let lock = lock_with(WRITER | WRITE_PHASE, &nodes, SOON);
    let before = ends(&lock);
    // SAFETY: held, as the word says.
    unsafe { lock.downgrade_to_read() };
    assert_eq!(ends(&lock), before);
    assert!(!lock.try_read(), "the phase is the writers' still");
    assert_eq!(states(&nodes), [WAITING]);
}

#[test]
fn an_upgrade_that_fails_is_no_turn_after_which_it_is_the_readers() {
    let nodes = waiters([Kind::Write, Kind::Read]);
    let lock = lock_with(WRITER | READERS_WAIT, &nodes, SOON);
    // SAFETY: held, as the word says.
    unsafe { lock.take_back_upgrade() };
    assert_eq!(states(&nodes), [WAITING; 2]);
    assert_eq!(lock.word.load(Relaxed) & (READERS | UPGRADABLE), READER | UPGRADABLE);

    let nodes = waiters([Kind::Read]);
    let lock = lock_with(WRITER | READERS_WAIT, &nodes, SOON);
    // SAFETY: held, as the word says.
    unsafe { lock.take_back_upgrade() };
    assert_eq!(states(&nodes), [GRANTED], "nobody but readers is left");
}

#[test]
fn a_wake_up_that_took_long_does_not_make_the_phase_longer_by_as_much() {
    let nodes = waiters([Kind::Write, Kind::Write]);
    let lock = lock_with(WRITER | WRITE_PHASE, &nodes[1..], SOON);
    let knobs = Phases::TIME_FAIR;
    let before = ends(&lock);
    let a_second_ago = PhaseClock::<Os>::now().wrapping_sub(ticks(1_000_000_000));
    nodes[0].woken_at.set(a_second_ago.max(1));
    nodes[0].state.store(GRANTED, Relaxed);
    let outcome = lock.sleep_until_phase(knobs, place(&lock), &nodes[0], false, None);
    assert!(matches!(outcome, Outcome::Granted));
    let longer = ends(&lock).wrapping_sub(before);
    assert!(longer <= ticks(10_000_000), "{longer} ticks");
}

#[test]
fn those_that_readers_have_passed_for_a_budget_are_not_told_to_try_again() {
    for (ends_in, woken) in [(SOON, true), (-1, false)] {
        let lock = RawRwSem::<TimeFair, Os, Pooled<Os, Biased>>::NEW;
        let node = Node::new(Kind::Write, Os::now());
        let queue = lock.queue_to_wait_in().expect("there are enough");
        queue.clock().begin(PhaseClock::<Os>::now().wrapping_add_signed(ends_in), 0);
        lock.word.store(queue.bits(), Relaxed);
        queue.note_named();
        queue.push(&node);
        drop(queue);
        assert_eq!(lock.wake_waiters(lock.word.load(Relaxed)), woken);
        assert_eq!(node.state.load(Relaxed), if woken { WOKEN_DEQUEUED } else { WAITING });
        if !woken {
            let queue = lock.own_queue(lock.word.load(Relaxed)).expect("it waits");
            queue.remove(&node);
            lock.word.store(0, Relaxed);
        }
    }
}

#[test]
fn one_that_was_woken_in_vain_finds_its_budget_used_up() {
    let lock = Raw::NEW;
    lock.word.store(WRITER, Relaxed);
    let (first, again) = (Node::new(Kind::Write, Os::now()), Node::new(Kind::Write, Os::now()));
    for (node, back) in [(&first, false), (&again, true)] {
        let queued = queue_for_phase(&lock, node, back);
        assert!(matches!(queued, Queued::Waits(_, true)), "as the deadline waiter");
        let left = clock(&lock).remaining(ticks(node.since()));
        assert_eq!(left > 0, !back);
        assert!(lock.withdraw(place(&lock), node));
    }
}

#[test]
fn a_free_lock_whose_phase_is_over_is_not_kept_for_its_side() {
    let nodes = waiters([Kind::Write, Kind::Write]);
    let lock = lock_with(0, &nodes, -1);
    let knobs = Phases::TIME_FAIR;
    let queue = lock.own_queue(lock.word.load(Relaxed)).expect("somebody waits");
    let granted = lock.serve_phases(knobs, &queue);
    drop(queue);
    assert_eq!(granted.len(), 1);
    granted.wake();
    assert_eq!(states(&nodes), [GRANTED, WAITING]);
}

#[test]
fn an_open_phase_that_is_over_is_entered_by_nobody_who_looks() {
    for (kind, word) in [(Kind::Read, 0), (Kind::Write, WRITE_PHASE)] {
        for (ends_in, is_over) in [(SOON, false), (-1, true)] {
            let nodes = waiters([Kind::Write, Kind::Write]);
            let lock = lock_with(word | OPEN, &nodes, ends_in);
            let before = lock.word.load(Relaxed);
            let mut over = 0;
            for _ in 0..1_000 {
                match lock.enter_open_phase(kind) {
                    OpenPhase::Entered => lock.word.store(before, Relaxed),
                    OpenPhase::IsOver => over += 1,
                    OpenPhase::NotEntered => unreachable!("it is free and open"),
                }
            }
            assert_eq!(over > 0, is_over, "{kind:?}: {over} of 1000 looked and turned away");
            nodes.iter().for_each(|node| place_of(&lock).remove(node));
        }
    }
}

/// Its queue, locked.
fn place_of(lock: &Raw) -> OwnQueue<'_, Os, Inline<Os>> {
    lock.own_queue(lock.word.load(Relaxed)).expect("somebody waits")
}

#[test]
fn whoever_finds_an_open_phase_over_ends_it() {
    let nodes = waiters([Kind::Write]);
    let lock = lock_with(READER | OPEN, &nodes, -1);
    let newcomer = Node::new(Kind::Read, Os::now());
    let queue = lock.queue_to_wait_in().expect("it is inline");
    let queued = lock.queue_for_phase(Phases::TIME_FAIR, Side::Read, &newcomer, false, queue);
    assert!(matches!(queued, Some(Queued::Waits(..))));
    assert_eq!(lock.word.load(Relaxed) & (OPEN | CLOSED), CLOSED);
    assert!(lock.withdraw(place(&lock), &newcomer));
    assert!(lock.withdraw(place(&lock), &nodes[0]));
}

/// A lock in an open phase of writers that stay away for as long as they hold it.
fn lock_of_writers(nodes: &[Node<Os>]) -> Raw {
    let lock = lock_with(WRITER | WRITE_PHASE | OPEN, nodes, SOON);
    let estimates = clock(&lock).estimates();
    estimates.set_hold(Side::Write, 2);
    estimates.step_return(Side::Write, 2);
    lock
}

#[test]
fn a_writer_that_is_alone_wakes_a_second_one_without_a_timer() {
    let nodes = waiters([Kind::Write, Kind::Write, Kind::Read]);
    let lock = lock_of_writers(&nodes);
    lock.wake_another(lock.word.load(Relaxed));
    assert_eq!(states(&nodes), [WAITING, WOKEN_DEQUEUED, WAITING]);
    let flags = OPEN | HAS_DEADLINE_WAITER;
    assert_eq!(lock.word.load(Relaxed) & flags, flags, "the first is the deadline waiter still");
}

#[test]
fn a_second_writer_that_has_the_timer_leaves_it_to_another_waiter() {
    let nodes = waiters([Kind::Write, Kind::Read]);
    let lock = lock_of_writers(&nodes);
    lock.wake_another(lock.word.load(Relaxed));
    assert_eq!(states(&nodes), [WOKEN_DEQUEUED, APPOINTED], "the other gets the timer");
    assert_eq!(nodes[1].is_deadline_waiter.get(), 1);
    let flags = OPEN | HAS_DEADLINE_WAITER;
    assert_eq!(lock.word.load(Relaxed) & flags, flags);
}

#[test]
fn a_second_writer_that_is_the_last_to_wait_leaves_no_trace() {
    let nodes = waiters([Kind::Write]);
    let lock = lock_of_writers(&nodes);
    lock.wake_another(lock.word.load(Relaxed));
    assert_eq!((lock.word.load(Relaxed), states(&nodes)), (WRITER, vec![WOKEN_DEQUEUED]));
}

#[test]
fn nobody_is_woken_into_a_phase_that_ends_nor_a_writer_where_those_come_straight_back() {
    let nodes = waiters([Kind::Write, Kind::Write]);
    let lock = lock_of_writers(&nodes);
    let closed = lock.word.load(Relaxed) & !OPEN | CLOSED;
    lock.word.store(closed, Relaxed);
    lock.wake_another(closed);
    assert_eq!((lock.word.load(Relaxed), states(&nodes)), (closed, vec![WAITING; 2]));
    nodes.iter().for_each(|node| place_of(&lock).remove(node));

    let lock = lock_of_writers(&nodes);
    clock(&lock).estimates().set_hold(Side::Write, 100);
    lock.wake_another(lock.word.load(Relaxed));
    assert_eq!(states(&nodes), [WAITING; 2]);
}

#[test]
fn whoever_is_alone_in_a_phase_wakes_one_of_its_side_and_else_of_the_other() {
    for (in_phase, word) in [(Kind::Read, READER), (Kind::Write, WRITER | WRITE_PHASE)] {
        let other = if in_phase == Kind::Read { Kind::Write } else { Kind::Read };
        let nodes = waiters([other, in_phase, other]);
        let lock = lock_of_writers(&nodes);
        let flags = lock.word.load(Relaxed) & !(WRITERS | WRITE_PHASE) | READERS_WAIT;
        lock.word.store(flags | word, Relaxed);
        lock.wake_another(lock.word.load(Relaxed));
        assert_eq!(states(&nodes), [WAITING, WOKEN_DEQUEUED, WAITING]);
        let readers_wait = lock.word.load(Relaxed) & READERS_WAIT != 0;
        assert_eq!(readers_wait, other == Kind::Read, "none is left where the reader was woken");
        lock.wake_another(lock.word.load(Relaxed));
        let woken = states(&nodes).iter().filter(|&&state| state == WOKEN_DEQUEUED).count();
        assert_eq!(woken, 2, "one of the other side");
    }
}

#[test]
fn a_lock_that_is_free_in_an_open_phase_is_entered_by_the_other_side() {
    for (kind, word, entered) in [(Kind::Read, WRITE_PHASE, READER), (Kind::Write, 0, WRITER)] {
        let nodes = waiters([Kind::Write, Kind::Write]);
        let lock = lock_with(word | OPEN, &nodes, SOON);
        let before = lock.word.load(Relaxed);
        assert!(matches!(lock.enter_open_phase(kind), OpenPhase::Entered));
        assert_eq!(lock.word.load(Relaxed), before + entered, "the phase is as it was");
        assert!(matches!(lock.enter_open_phase(Kind::Write), OpenPhase::NotEntered));
        lock.word.store(before, Relaxed);
        nodes.iter().for_each(|node| place_of(&lock).remove(node));
    }
}

#[test]
fn two_readers_share_a_gap_in_an_open_phase_of_writers_and_no_more() {
    let shares = Os::cpus() <= CPUS_THAT_SHARE_A_GAP.value();
    for (flags, may_share) in [(WRITE_PHASE | OPEN, shares), (WRITE_PHASE, false)] {
        let nodes = waiters([Kind::Write, Kind::Write]);
        let lock = lock_with(flags | READER, &nodes, SOON);
        let before = lock.word.load(Relaxed);
        let entered = matches!(lock.enter_open_phase(Kind::Read), OpenPhase::Entered);
        assert_eq!(entered, may_share);
        assert_eq!(lock.word.load(Relaxed), before + u64::from(may_share) * READER);
        lock.word.store(before + READER, Relaxed);
        for kind in [Kind::Read, Kind::Write] {
            assert!(matches!(lock.enter_open_phase(kind), OpenPhase::NotEntered), "two are in");
        }
        lock.word.store(before, Relaxed);
        nodes.iter().for_each(|node| place_of(&lock).remove(node));
    }
}

/// All entries into an open phase of readers come from this CPU, and the row of them began so many ticks ago: whether another
/// reader is woken.
fn wakes_another_after(ticks: u32) -> bool {
    let record = Os::thread().expect("there are enough");
    let nodes = waiters([Kind::Write, Kind::Read]);
    let lock = lock_with(OPEN | READERS_WAIT, &nodes, SOON);
    for _ in 0..8 {
        lock.note_row(lock.word.load(Relaxed), 16);
        record.begin_row(PhaseClock::<Os>::now().wrapping_sub(ticks));
    }
    let is_woken = states(&nodes)[1] != WAITING;
    let queue = place_of(&lock);
    nodes.iter().filter(|node| node.is_linked(&queue)).for_each(|node| queue.remove(node));
    is_woken
}

#[test]
fn whoever_is_alone_wakes_another_unless_its_entries_follow_each_other_closely() {
    if !is_cpu(Os::cpu()) {
        return eprintln!(
            "skipped: the kernel does not tell threads their CPU here, so nobody knows who is alone"
        );
    }
    // This thread may be stopped or moved in some of these, but not in half of them.
    let woken = |ticks| (0..100).filter(|_| wakes_another_after(ticks)).count();
    let (slow, fast) = (woken(10_000), woken(0));
    assert!(slow > 50, "{slow} of 100");
    assert!(fast < 50, "{fast} of 100");
}

#[test]
fn a_free_moment_of_writers_is_not_for_a_read_that_outlasts_their_phase() {
    let nodes = waiters([Kind::Write, Kind::Write]);
    let lock = lock_with(WRITE_PHASE | OPEN, &nodes, SOON);
    let estimates = clock(&lock).estimates();
    estimates.note_budget(ticks(1_000_000));
    for (hold, enters) in [(ticks(10_000), true), (2 * SOON as u32, false)] {
        estimates.set_hold(Side::Read, hold);
        let before = lock.word.load(Relaxed);
        for _ in 0..1_000 {
            // The phase is shorter than the longest hold that an estimate can say.
            clock(&lock).end(PhaseClock::<Os>::now().wrapping_add(ticks(2_000_000)));
            let entered = matches!(lock.enter_open_phase(Kind::Read), OpenPhase::Entered);
            // This thread may not have run for so long that the read does not fit any more.
            let is_late = clock(&lock).remaining(PhaseClock::<Os>::now()) <= hold as i32;
            assert!(entered == enters || enters && is_late, "a read of {hold} ticks");
            lock.word.store(before, Relaxed);
        }
    }
    nodes.iter().for_each(|node| place_of(&lock).remove(node));
}

/// What the lock in this state makes of its queue, as the last holder leaves: so many are granted it.
fn serve(lock: &Raw) -> u32 {
    let queue = place_of(lock);
    let woken = lock.serve_phases(Phases::TIME_FAIR, &queue);
    drop(queue);
    let granted = woken.len();
    woken.wake();
    granted
}

#[test]
fn very_short_reads_begin_with_as_many_as_can_run_and_the_others_are_next() {
    let most = READERS_PER_CPU.value().saturating_mul(Os::cpus());
    let (very_short, long) = (1, ticks(1_000_000_000));
    for (hold, writers, granted) in
        [(very_short, 1, most), (long, 1, most + 3), (very_short, 0, most + 3)]
    {
        let readers: Vec<Node<Os>> =
            (0..most + 3).map(|_| Node::new(Kind::Read, Os::now())).collect();
        let writer = Node::new(Kind::Write, Os::now());
        let lock = lock_with(WRITE_PHASE | READERS_WAIT, &readers, -1);
        clock(&lock).estimates().set_hold(Side::Read, hold);
        if writers > 0 {
            place_of(&lock).push(&writer);
        }
        assert_eq!(serve(&lock), granted);
        let word = lock.word.load(Relaxed);
        assert_eq!(word & READERS, u64::from(granted));
        assert_eq!(word & READERS_WAIT != 0, granted <= most, "whether readers wait");
        if granted <= most {
            let queue = place_of(&lock);
            let waits: Vec<bool> = readers.iter().map(|reader| reader.is_linked(&queue)).collect();
            let expected: Vec<bool> = (0..most + 3).map(|index| index >= most).collect();
            assert_eq!(waits, expected, "those that came last wait");
            drop(queue);
            lock.word.store(word & !READERS | CLOSED, Relaxed);
            assert_eq!(serve(&lock), 1, "the writer");
            lock.word.store(lock.word.load(Relaxed) & !WRITERS | CLOSED, Relaxed);
            assert_eq!(serve(&lock), 3, "the others");
            assert_eq!(lock.word.load(Relaxed), 3 * READER);
        } else if writers > 0 {
            place_of(&lock).remove(&writer);
        }
    }
}

#[test]
fn an_upgradable_reader_takes_no_plain_readers_place() {
    let most = READERS_PER_CPU.value().saturating_mul(Os::cpus());
    let readers: Vec<Node<Os>> = (0..most).map(|_| Node::new(Kind::Read, Os::now())).collect();
    let writers = [Kind::Upgradable, Kind::Write].map(|kind| Node::new(kind, Os::now()));
    let lock = lock_with(WRITE_PHASE | READERS_WAIT | CLOSED, &readers, -1);
    clock(&lock).estimates().set_hold(Side::Read, 1);
    writers.iter().for_each(|writer| place_of(&lock).push(writer));
    assert_eq!(serve(&lock), most + 1);
    let word = lock.word.load(Relaxed);
    assert_eq!(word & (UPGRADABLE | READERS_WAIT), UPGRADABLE, "no reader is left");
    place_of(&lock).remove(&writers[1]);
}

/// Writers of this age wait in an open phase of writers, whose turn is over.
fn lock_after_a_turn(nodes: &[Node<Os>]) -> Raw {
    let lock = lock_with(WRITE_PHASE | OPEN, nodes, SOON);
    clock(&lock).begin_turn(PhaseClock::<Os>::now().wrapping_sub(u32::MAX / 4));
    lock
}

const LONG: u64 = 50_000_000;

#[test]
fn whoever_finds_a_turn_over_makes_room_for_one_that_has_waited_for_long() {
    for (waited, makes_room) in [(LONG, true), (0, false)] {
        let nodes = [waited, 0].map(|waited| Node::new(Kind::Write, ago(waited)));
        let lock = lock_after_a_turn(&nodes);
        let before = lock.word.load(Relaxed);
        let mut makes_room_at = |_: &u32| {
            let seen = lock.enter_open_phase(Kind::Write);
            lock.word.store(before, Relaxed);
            matches!(seen, OpenPhase::IsOver)
        };
        assert_eq!((0..1_000).find(&mut makes_room_at).is_some(), makes_room);
        nodes.iter().for_each(|node| place_of(&lock).remove(node));
    }
}

#[test]
fn a_turn_goes_to_the_one_that_has_waited_longest_and_the_other_queues() {
    let nodes = [LONG, 0].map(|waited| Node::new(Kind::Write, ago(waited)));
    let newcomer = Node::new(Kind::Write, Os::now());
    let lock = lock_after_a_turn(&nodes);
    let ends = ends(&lock);
    assert!(matches!(queue_for_phase(&lock, &newcomer, false), Queued::Waits(_, true)));
    assert_eq!(states(&nodes), [WOKEN_DEQUEUED, WAITING]);
    assert_eq!(newcomer.is_deadline_waiter.get(), 1, "it was the first one's task");
    assert_eq!(clock(&lock).remaining(0) as u32, ends, "the phase is as long as before");
    let word = lock.word.load(Relaxed);
    assert_eq!(word & (HAS_DEADLINE_WAITER | OPEN | CLOSED), HAS_DEADLINE_WAITER);
    for node in [&nodes[1], &newcomer] {
        place_of(&lock).remove(node);
    }
}

#[test]
fn a_turn_goes_on_where_nobody_has_waited_for_long() {
    let nodes = waiters([Kind::Read]);
    let newcomer = Node::new(Kind::Write, Os::now());
    let lock = lock_after_a_turn(&nodes);
    assert!(matches!(queue_for_phase(&lock, &newcomer, false), Queued::Entered));
    assert_eq!(states(&nodes), [WAITING]);
    lock.word.store(lock.word.load(Relaxed) - WRITER, Relaxed);
    place_of(&lock).remove(&nodes[0]);
}

#[test]
fn in_its_own_phase_a_thread_waits_awake_for_a_short_section_of_the_other_side() {
    let nodes = waiters([Kind::Write]);
    let lock = lock_with(OPEN, &nodes, SOON);
    let flags = lock.word.load(Relaxed);
    for (side, mine, others) in [(Side::Write, WRITE_PHASE, READER), (Side::Read, 0, WRITER)] {
        let other = if side == Side::Read { Side::Write } else { Side::Read };
        let word = flags | mine;
        for (hold, is_soon) in [(1, true), (0xffff, false)] {
            clock(&lock).estimates().set_hold(other, hold);
            assert_eq!(lock.soon_mine(word + others, side), is_soon, "{side:?}, {hold}");
        }
        clock(&lock).estimates().set_hold(other, 1);
        assert!(!lock.soon_mine(word, side), "free: if it is not let in, time will not help");
        assert!(!lock.soon_mine((word ^ WRITE_PHASE) + others, side), "the other side's phase");
        assert!(!lock.soon_mine((word | CLOSED) + others, side), "a phase that is over");
    }
    place_of(&lock).remove(&nodes[0]);
}

#[test]
fn a_phase_that_closes_late_was_no_long_hold() {
    const LATE: u32 = ticks(4_000_000_000);
    const HOLD: u32 = ticks(1_000_000);
    let is_unchanged = || {
        let nodes = waiters([Kind::Write]);
        let lock = lock_with(OPEN + READER, &nodes, -(LATE as i32));
        clock(&lock).estimates().set_hold(Side::Read, HOLD);
        while lock.close(lock.word.load(Relaxed), OPEN).is_err() {}
        clock(&lock).note_hold(Side::Read, PhaseClock::<Os>::now(), true);
        place_of(&lock).remove(&nodes[0]);
        clock(&lock).estimates().expected_hold(Side::Read) == HOLD
    };
    // This thread may be stopped in between for longer than the hold.
    assert!((0..100).any(|_| is_unchanged()));
}

#[test]
fn who_is_granted_the_lock_in_an_open_phase_is_not_noted_as_the_youngest() {
    for (open, noted) in [(0, true), (OPEN, false)] {
        let nodes = waiters([Kind::Write]);
        let lock = lock_with(open + READER, &nodes, SOON);
        let reader = Node::<Os>::new(Kind::Read, Os::now());
        reader.state.store(GRANTED, Relaxed);
        let place = place_of(&lock).place();
        clock(&lock).estimates().set_hold(Side::Read, 1_000);
        lock.sleep_until_phase(Phases::TIME_FAIR, place, &reader, false, None);
        clock(&lock).note_hold(Side::Read, PhaseClock::<Os>::now(), false);
        assert_eq!(clock(&lock).estimates().expected_hold(Side::Read) != 1_000, noted);
        place_of(&lock).remove(&nodes[0]);
    }
}
