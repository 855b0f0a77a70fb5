//! Files in every schedule within stated bounds, and by chance beyond: whether some order of the operations
//! explains what each of them saw, and who waits for whom.
//!
//! The file is memory, read and written byte by byte, so that other threads come in between.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use fairlock::RangeLock;
use fairlock::platform::{AtomicCell, AtomicInt, Platform};
use fairlock::range::Slotted;
use fairlock_sim::On;
use fairlock_sim::explore::{self, Explore, Program, Search, Sound};

use super::exclusion::Exclusive;
use super::raw_file::RawFile;
use crate::long::depth;

type P = On<Explore<Sound>>;
/// Each position is a block of its own.
type Ranges = RangeLock<Slotted<P, 2, 0>>;

/// The most bytes that the file has.
const ROOM: usize = 12;
const INITIAL: &[u8] = b"abcd";

/// As a file system does it that locks nothing.
struct Memory {
    bytes: [<P as Platform>::AtomicU32; ROOM],
    length: <P as Platform>::AtomicU32,
    /// Reads do not end while this is set.
    slow: Cell<bool>,
    /// Reads that have begun.
    reads: Cell<u32>,
}

impl Memory {
    fn new() -> Self {
        let byte = |at: usize| AtomicCell::new(INITIAL.get(at).map_or(0, |byte| u32::from(*byte)));
        Memory {
            bytes: std::array::from_fn(byte),
            length: AtomicCell::new(INITIAL.len() as u32),
            slow: Cell::new(false),
            reads: Cell::new(0),
        }
    }
}

impl RawFile for Memory {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reads.set(self.reads.get() + 1);
        while self.slow.get() {
            explore::pass_time(1_000);
        }
        let there = (self.length.load(Acquire) as usize).saturating_sub(offset as usize);
        let bytes = self.bytes.iter().skip(offset as usize).take(there);
        let read = buffer.iter_mut().zip(bytes).map(|(to, from)| *to = from.load(Acquire) as u8);
        Ok(read.count())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        for (at, byte) in (offset as usize..).zip(bytes) {
            self.bytes[at].store(u32::from(*byte), Release);
            if self.length.load(Acquire) as usize <= at {
                self.length.store(at as u32 + 1, Release);
            }
        }
        Ok(bytes.len())
    }

    fn read_slices(&self, _buffers: &mut [IoSliceMut<'_>], _offset: u64) -> io::Result<usize> {
        unreachable!("nobody here has slices");
    }

    fn write_slices(&self, _slices: &[IoSlice<'_>], _offset: u64) -> io::Result<usize> {
        unreachable!("nobody here has slices");
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let old = self.length.swap(length as u32, AcqRel) as usize;
        for byte in self.bytes.iter().take(old).skip(length as usize) {
            byte.store(0, Release);
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.length.load(Acquire).into())
    }
}

/// An operation, in bytes.
#[derive(Debug, Clone, Copy)]
enum Op {
    Read(usize, usize),
    Write(usize, &'static [u8]),
    Append(&'static [u8]),
    SetLen(usize),
    Len,
}
use Op::{Append, Len, Read, SetLen, Write};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Seen(Vec<u8>),
    Number(u64),
    Done,
}

/// An operation, what it saw, and when, by a clock that ticks with each call and each return.
#[derive(Debug)]
struct Done {
    op: Op,
    outcome: Outcome,
    called: u32,
    returned: u32,
}

struct State {
    file: Exclusive<Memory, Ranges, P>,
    clock: <P as Platform>::AtomicU32,
    history: RefCell<Vec<Done>>,
    /// For checks: a slow reader is done.
    has_read: Cell<bool>,
}

impl State {
    fn new() -> Self {
        State {
            file: Exclusive::new(Memory::new()).expect("memory has a length"),
            clock: AtomicCell::new(0),
            history: RefCell::default(),
            has_read: Cell::new(false),
        }
    }

    fn memory(&self) -> &Memory {
        self.file.file()
    }

    fn run(&self, op: Op) -> Outcome {
        match op {
            Read(offset, size) => {
                let mut buffer = vec![0; size];
                let read = self.file.read(&mut buffer[..], offset as u64);
                buffer.truncate(read.unwrap_or_else(|failure| panic!("{}", failure.source)));
                Outcome::Seen(buffer)
            }
            Write(offset, bytes) => {
                assert!(self.file.write(bytes, offset as u64).is_ok());
                Outcome::Done
            }
            Append(bytes) => Outcome::Number(self.file.append(bytes).ok().expect("there is room")),
            SetLen(length) => {
                assert!(self.file.set_len(length as u64).is_ok());
                Outcome::Done
            }
            Len => Outcome::Number(self.file.len()),
        }
    }

    /// Runs it and remembers when. The clock makes each step count that calls and returns are ordered by.
    fn record(&self, op: Op) {
        let called = self.clock.fetch_add(1, AcqRel);
        let outcome = self.run(op);
        let returned = self.clock.fetch_add(1, AcqRel);
        self.history.borrow_mut().push(Done { op, outcome, called, returned });
    }

    fn is_linearizable(&self) {
        self.record(Read(0, ROOM));
        self.record(Len);
        assert_eq!(self.file.len(), u64::from(self.memory().length.load(Acquire)), "invariant 1");
        let history = self.history.borrow();
        let mut left: Vec<&Done> = history.iter().collect();
        assert!(is_explained(INITIAL, &mut left), "no order explains {history:#?}");
    }
}

/// What an operation does to a file that nobody else uses.
fn alone(file: &mut Vec<u8>, op: Op) -> Outcome {
    let overwrite = |file: &mut Vec<u8>, offset: usize, bytes: &[u8]| {
        file.resize(file.len().max(offset + bytes.len()), 0);
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    match op {
        Read(offset, size) => Outcome::Seen(file.iter().skip(offset).take(size).copied().collect()),
        Write(offset, bytes) => {
            overwrite(file, offset, bytes);
            Outcome::Done
        }
        Append(bytes) => {
            let end = file.len();
            overwrite(file, end, bytes);
            Outcome::Number(end as u64)
        }
        SetLen(length) => {
            file.resize(length, 0);
            Outcome::Done
        }
        Len => Outcome::Number(file.len() as u64),
    }
}

/// Whether these operations, in some order that keeps to the clock, see what they saw.
fn is_explained(file: &[u8], left: &mut Vec<&Done>) -> bool {
    let Some(first_return) = left.iter().map(|done| done.returned).min() else {
        return true;
    };
    (0..left.len()).any(|at| {
        let done = left.remove(at);
        let mut file = file.to_vec();
        let fits = done.called < first_return && alone(&mut file, done.op) == done.outcome;
        let explained = fits && is_explained(&file, left);
        left.insert(at, done);
        explained
    })
}

/// A thread for each list of operations.
fn program(threads: &'static [&'static [Op]]) -> Program<State> {
    let program = Program::new(format!("{threads:?}"), State::new);
    let run = |program: Program<State>, ops: &'static [Op]| {
        program.thread(move |state: &State| ops.iter().for_each(|op| state.record(*op)))
    };
    threads.iter().copied().fold(program, run).finally(State::is_linearizable)
}

#[test]
fn two_threads_are_linearizable_in_every_schedule() {
    let programs: [&[&[Op]]; 6] = [
        &[&[SetLen(1)], &[Read(0, 6)]],
        &[&[SetLen(1)], &[Append(b"xy")]],
        &[&[SetLen(5)], &[Append(b"xy")]],
        &[&[Write(3, b"XY")], &[SetLen(2)]],
        &[&[Write(3, b"XY")], &[Append(b"pq")]],
        &[&[Write(4, b"XY")], &[Append(b"pq")]],
    ];
    for threads in programs {
        let report = program(threads).assert(&Search::exhaustive().preemptions(2));
        assert!(report.complete, "{report}");
    }
}

#[test]
fn cuts_beside_appends_and_reads_are_linearizable() {
    let programs: [&[&[Op]]; 9] = [
        &[&[SetLen(1)], &[Read(0, 6)], &[Append(b"xy")]],
        &[&[SetLen(1)], &[Append(b"x"), Read(2, 4)], &[Read(0, 6), Len]],
        // It becomes a cut if the append is first.
        &[&[SetLen(5)], &[Append(b"xy")], &[Read(3, 6)]],
        &[&[SetLen(5), SetLen(2)], &[Append(b"xy")], &[Append(b"z"), Read(0, 8)]],
        &[&[SetLen(2)], &[SetLen(3)], &[Append(b"xy"), Read(1, 5)]],
        // Below the end until the cut comes, across the end, and beyond it until the append comes.
        &[&[SetLen(2)], &[Write(1, b"XYZ")], &[Read(0, 6)]],
        &[&[SetLen(2)], &[Write(3, b"XY")], &[Append(b"pq"), Read(2, 6)]],
        &[&[Read(3, 5), SetLen(3)], &[Write(5, b"XY")], &[Append(b"pq")]],
        &[&[Write(5, b"XY")], &[Append(b"pqr")], &[Read(4, 4)]],
    ];
    for threads in programs {
        let program = program(threads);
        program.assert(&Search::exhaustive().preemptions(1).at_most(depth(1_500, 4_000)));
        program.assert(&Search::pct(1, 3, depth(500, 1_500)));
        program.assert(&Search::random(2, depth(400, 1_000)));
        program.store_buffers().assert(&Search::pct(3, 3, depth(400, 1_000)));
    }
}

/// Thread 0 reads all, until thread 3's appends have returned. Thread 1 waits for it, for what thread 2 then
/// wants to read. If thread 1 kept the appends waiting, there would be no end.
fn behind_a_slow_reader(waits: Op, left: &'static [u8]) {
    let until_it_waits = |state: &State| {
        while state.memory().slow.get() && state.file.ranges().raw().waiting() == 0 {
            explore::pass_time(1_000);
        }
    };
    // Before, later ones may pass it.
    let until_it_is_next = |state: &State| {
        while state.memory().slow.get() && !state.file.ranges().raw().hands_out_in_order() {
            explore::pass_time(1_000_000);
        }
    };
    let program = Program::new(format!("{waits:?} waits"), || {
        let state = State::new();
        state.memory().slow.set(true);
        state
    });
    let program = program
        .thread(|state: &State| {
            state.record(Read(0, ROOM));
            state.has_read.set(true);
        })
        .thread(move |state| {
            while state.memory().reads.get() == 0 {
                explore::pass_time(1_000);
            }
            state.record(waits);
        })
        .thread(move |state| {
            until_it_is_next(state);
            let seen = state.run(Read(3, 1));
            assert_ne!(seen, Outcome::Seen(vec![b'd']), "who waited was passed");
        })
        .thread(move |state| {
            until_it_waits(state);
            state.record(Append(b"x"));
            state.record(Append(b"y"));
            state.memory().slow.set(false);
            // What was appended, while thread 1 may be about to change it.
            while !state.has_read.get() {
                explore::pass_time(1_000);
            }
            state.record(Read(4, 2));
        })
        .finally(move |state| {
            state.is_linearizable();
            assert_eq!(state.run(Read(0, ROOM)), Outcome::Seen(left.to_vec()));
        });
    program.assert(&Search::random(1, depth(500, 1_500)));
}

#[test]
fn appends_go_on_behind_a_cut_that_waits_for_a_reader_and_reads_do_not_pass_it() {
    behind_a_slow_reader(SetLen(1), b"a");
}

#[test]
fn appends_go_on_behind_a_write_across_the_end_that_waits_for_a_reader() {
    behind_a_slow_reader(Write(3, b"DEF"), b"abcDEF");
}
