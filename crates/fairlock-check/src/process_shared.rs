//! Scenarios of `ProcessSharedRwLock`.

use fairlock::platform::Platform;
use fairlock::process_shared::ProcessSharedRwLock;
use fairlock::unguarded::{Refused, UnguardedRwLock};

use crate::scenario::{Number, Subject, lists, scenarios};

/// The lock with what it protects.
pub struct Protected<P: Platform, N> {
    /// Whoever has it uses the number.
    pub lock: ProcessSharedRwLock<P>,
    /// What it protects.
    pub number: N,
}

impl<P: Platform, N: Number> Protected<P, N> {
    /// As a reader, who leaves: the number.
    pub fn look(&self) -> u32 {
        let number = self.number.get();
        // SAFETY: callers have acquired it for reading.
        unsafe { self.lock.unlock_read() };
        number
    }

    /// As a writer, who leaves: adds one.
    pub fn add(&self) {
        self.number.add();
        // SAFETY: callers have acquired it for writing.
        unsafe { self.lock.unlock_write() };
    }
}

impl<P: Platform, N: Number> Subject for Protected<P, N> {
    fn new() -> Self {
        Protected { lock: ProcessSharedRwLock::NEW, number: N::zero() }
    }
    fn additions(&self) -> u32 {
        assert_eq!(self.lock.try_write(), Ok(()), "the lock is free when everybody is done");
        let number = self.number.get();
        // SAFETY: acquired above.
        unsafe { self.lock.unlock_write() };
        assert!(!self.lock.is_locked());
        number
    }
}

/// A moment from now.
pub fn soon<P: Platform>() -> Option<u64> {
    Some(P::now() + 100_000)
}

/// Reads.
pub fn read<P: Platform, N: Number>(it: &Protected<P, N>) {
    assert_eq!(it.lock.read(None, false), Ok(()));
    it.look();
}

/// Writes.
pub fn write<P: Platform, N: Number>(it: &Protected<P, N>) {
    assert_eq!(it.lock.write(None), Ok(()));
    it.add();
}

/// Writes, and writes again.
pub fn write_twice<P: Platform, N: Number>(it: &Protected<P, N>) {
    write(it);
    write(it);
}

/// Reads if it gets the lock in time.
pub fn read_in_time<P: Platform, N: Number>(it: &Protected<P, N>) {
    match it.lock.read(soon::<P>(), false) {
        Ok(()) => _ = it.look(),
        refused => assert_eq!(refused, Err(Refused::TimedOut)),
    }
}

/// Writes if it gets the lock in time.
pub fn write_in_time<P: Platform, N: Number>(it: &Protected<P, N>) {
    match it.lock.write(soon::<P>()) {
        Ok(()) => it.add(),
        refused => assert_eq!(refused, Err(Refused::TimedOut)),
    }
}

/// Writes if nobody is in the way.
pub fn try_write<P: Platform, N: Number>(it: &Protected<P, N>) {
    if it.lock.try_write().is_ok() {
        it.add();
    }
}

/// Tries to read and then to write.
pub fn try_both<P: Platform, N: Number>(it: &Protected<P, N>) {
    if it.lock.try_read(false).is_ok() {
        it.look();
    }
    try_write(it);
}

/// Deadlocks with a writer in between, but for `past_waiters`.
pub fn read_recursively<P: Platform, N: Number>(it: &Protected<P, N>) {
    assert_eq!(it.lock.read(None, false), Ok(()));
    assert_eq!(it.lock.read(None, true), Ok(()));
    let number = it.look();
    assert_eq!(it.look(), number, "nobody writes in between");
}

/// The same without waiting for the second.
pub fn try_recursively<P: Platform, N: Number>(it: &Protected<P, N>) {
    assert_eq!(it.lock.read(None, false), Ok(()));
    assert_eq!(it.lock.try_read(true), Ok(()), "while a reader is in, no writer is");
    it.look();
    it.look();
}

fn six_reads<P: Platform, N: Number>(it: &Protected<P, N>) {
    (0..6).for_each(|_| read(it));
}

fn six_writes<P: Platform, N: Number>(it: &Protected<P, N>) {
    (0..6).for_each(|_| write(it));
}

scenarios! { Protected<P, N> where P: Platform, N: Number;
    two_writers "two writers": [write, write] => 2..=2;
    a_reader_and_a_writer "a reader and a writer": [read, write] => 1..=1;
    a_writer_twice_and_a_writer "a writer twice, and a writer": [write_twice, write] => 3..=3;
    tries_and_a_writer "tries and a writer": [try_both, write] => 1..=2;
    a_try_to_write_and_a_writer "a try to write and a writer": [try_write, write] => 1..=2;
    two_tries_to_write "two tries to write": [try_write, try_write] => 1..=2;
    a_timed_writer_and_a_reader "a timed writer and a reader": [write_in_time, read] => 0..=1;
    a_timed_writer_and_a_writer "a timed writer and a writer": [write_in_time, write] => 1..=2;
    a_timed_reader_and_a_writer "a timed reader and a writer": [read_in_time, write] => 1..=1;
    two_timed_writers "two timed writers": [write_in_time, write_in_time] => 1..=2;
    a_recursive_reader_and_a_writer "a recursive reader and a writer":
        [read_recursively, write] => 1..=1;
    a_recursive_try_and_a_writer "a recursive try and a writer": [try_recursively, write] => 1..=1;
    a_recursive_reader_and_a_timed_writer "a recursive reader and a timed writer":
        [read_recursively, write_in_time] => 0..=1;

    three_writers "three writers": [write, write, write] => 3..=3;
    a_reader_and_two_writers "a reader and two writers": [read, write, write] => 2..=2;
    two_readers_and_a_writer "two readers and a writer": [read, read, write] => 1..=1;
    a_timeout_before_both "a timeout before both": [write_in_time, read, write] => 1..=2;
    a_timeout_before_two_readers "a timeout before two readers":
        [write_in_time, read, read] => 0..=1;
    two_timeouts_before_a_reader "two timeouts before a reader":
        [write_in_time, write_in_time, read] => 0..=2;
    two_timeouts_before_a_writer "two timeouts before a writer":
        [write_in_time, write_in_time, write] => 1..=3;
    both_in_time_beside_a_reader "both in time beside a reader":
        [read_in_time, write_in_time, read] => 0..=1;
    both_in_time_beside_a_writer "both in time beside a writer":
        [read_in_time, write_in_time, write] => 1..=2;
    recursion_among_both "recursion among both": [read_recursively, read, write] => 1..=1;
    recursion_among_writers "recursion among writers":
        [read_recursively, write, write_in_time] => 1..=2;
    tries_among_both "tries among both": [try_both, read, write] => 1..=2;

    pairs "pairs": [read, read, write, write] => 2..=2;
    all_in_time "all in time": [read_in_time, write_in_time, write_in_time, read] => 0..=2;
    timeouts_among_all "timeouts among all": [write_in_time, write_in_time, read, write] => 1..=3;
    recursion_among_all "recursion among all":
        [read_recursively, write_in_time, read, write] => 1..=2;

    eight "eight": [
        read, write, write_in_time, read_recursively, write_twice, read_in_time, write_in_time, try_both
    ] => 3..=6;
    six_times_each "six times each": [six_reads, six_reads, six_writes] => 6..=6;
}

lists! { Protected<P, N> where P: Platform, N: Number;
    /// Every operation beside a writer.
    two_threads: [
        two_writers,
        a_reader_and_a_writer,
        a_writer_twice_and_a_writer,
        tries_and_a_writer,
        a_timed_writer_and_a_reader,
        a_timed_writer_and_a_writer,
        a_timed_reader_and_a_writer,
        two_timed_writers,
        a_recursive_reader_and_a_writer,
        a_recursive_try_and_a_writer,
        a_recursive_reader_and_a_timed_writer,
    ];
    /// Somebody who waits or gives up between others.
    three_threads: [
        three_writers,
        a_reader_and_two_writers,
        two_readers_and_a_writer,
        a_timeout_before_both,
        a_timeout_before_two_readers,
        two_timeouts_before_a_reader,
        two_timeouts_before_a_writer,
        both_in_time_beside_a_reader,
        both_in_time_beside_a_writer,
        recursion_among_both,
        recursion_among_writers,
        tries_among_both,
    ];
    /// All sorts.
    four_threads: [pairs, all_in_time, timeouts_among_all, recursion_among_all];
}
