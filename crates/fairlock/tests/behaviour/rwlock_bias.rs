//! When readers of an `RwLock` use slots: by how many reads come for each write, not by how many come
//! in a row.

use std::sync::Barrier;

use fairlock::RwLock;
use fairlock::events::Event;
use fairlock::platform::Counting;
use fairlock::policy::{Bias, BiasPolicy, ReadMostly};

type Counted<B = ReadMostly> = RwLock<(), B, Counting>;

fn read<B: BiasPolicy>(lock: &Counted<B>, times: u32) {
    (0..times).for_each(|_| drop(lock.read()));
}

fn write<B: BiasPolicy>(lock: &Counted<B>, times: u32) {
    (0..times).for_each(|_| drop(lock.write()));
}

fn count<B: BiasPolicy>(lock: &Counted<B>, event: Event) -> u64 {
    fairlock::rwlock::events(lock).get(event)
}

// A thread counts about 64 of its reads at a time, at distances of up to 89 reads, and what it has read before is not known here.
// How long a look takes is measured, and on a slow machine adds to what a write outweighs. So these are bounds. While the
// machine is busy with other things a look seems to take long, and what depends on that is tried again.

const TRIES: u32 = 100;

#[test]
fn slots_begin_with_about_128_reads_and_end_after_256_writes_at_most() {
    let looks = || {
        let lock = Counted::<ReadMostly>::with_policy(());
        read(&lock, 30);
        assert_eq!(count(&lock, Event::BiasBegin), 0);
        read(&lock, 150);
        assert_eq!(count(&lock, Event::BiasBegin), 1);
        write(&lock, 256);
        assert_eq!(count(&lock, Event::BiasEnd), 1);
        let looks = count(&lock, Event::BiasRevoke);
        assert!(looks <= 256, "{looks}");
        looks
    };
    let tried: Vec<u64> = (0..TRIES).map(|_| looks()).take_while(|looks| *looks < 16).collect();
    assert!(tried.len() < TRIES as usize, "{tried:?}");
}

#[test]
fn a_write_takes_sixteen_reads_to_make_up_for() {
    let makes_up = || {
        let lock = Counted::<ReadMostly>::with_policy(());
        write(&lock, 100);
        read(&lock, 1_400);
        assert_eq!(count(&lock, Event::BiasBegin), 0);
        read(&lock, 10_000);
        if count(&lock, Event::BiasBegin) == 0 {
            // Looks, each of which is measured.
            read(&lock, 1_000_000);
            write(&lock, 256);
            return false;
        }
        true
    };
    assert!((0..TRIES).any(|_| makes_up()));
}

#[test]
fn reads_of_many_threads_that_read_little_are_counted() {
    let lock = Counted::<ReadMostly>::with_policy(());
    let (there, over) = (Barrier::new(100), Barrier::new(100));
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                there.wait();
                read(&lock, 10);
                over.wait();
            });
        }
    });
    assert_eq!(count(&lock, Event::BiasBegin), 1);
}

#[test]
fn locks_that_are_read_in_turn_each_get_their_share() {
    let locks: [Counted; 4] = std::array::from_fn(|_| Counted::with_policy(()));
    let read_in_turn = |times| {
        for _ in 0..times {
            locks.iter().for_each(|lock| read(lock, 1));
        }
    };
    // As many reads as begin the bias of one lock, if it got the counts of all.
    read_in_turn(32);
    for lock in &locks {
        assert_eq!(count(lock, Event::BiasBegin), 0);
    }
    read_in_turn(1_000);
    for lock in &locks {
        assert_eq!(count(lock, Event::BiasBegin), 1);
    }
}

#[test]
fn as_many_writes_as_reads_bring_no_slots_however_they_take_turns() {
    let lock = Counted::<ReadMostly>::with_policy(());
    for in_a_row in [1, 10, 100, 1_000, 4_000] {
        for _ in 0..10_000 / in_a_row {
            write(&lock, in_a_row);
            read(&lock, in_a_row);
        }
    }
    assert_eq!(count(&lock, Event::BiasBegin), 0);
}

#[test]
fn slots_come_back_soon_after_the_last_of_many_writes() {
    let lock = Counted::<ReadMostly>::with_policy(());
    write(&lock, 100_000);
    read(&lock, 300_000);
    assert_eq!(count(&lock, Event::BiasBegin), 1);
}

#[test]
fn a_policy_may_want_slots_at_once_or_never() {
    struct AtOnce;
    impl BiasPolicy for AtOnce {
        const BIAS: Bias = Bias { reads: 0, ..Bias::READ_MOSTLY };
    }
    struct Never;
    impl BiasPolicy for Never {
        const BIAS: Bias = Bias { reads: u32::MAX, ..Bias::READ_MOSTLY };
    }
    let lock = Counted::<AtOnce>::with_policy(());
    write(&lock, 1_000);
    read(&lock, 1);
    assert_eq!(count(&lock, Event::BiasBegin), 1);
    let lock = Counted::<Never>::with_policy(());
    (0..100).for_each(|_| {
        read(&lock, 1_000);
        write(&lock, 3);
    });
    assert_eq!(count(&lock, Event::BiasBegin), 0);
}
