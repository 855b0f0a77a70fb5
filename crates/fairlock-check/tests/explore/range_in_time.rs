//! Range locks in time: threads are stopped for long between any two steps, waiters give up, and others come again and
//! again. Nobody sleeps for ever, no conflicting ranges are held at once, and nobody is passed for longer than is promised: also
//! a wide range by many narrow ones.

use std::time::Duration;

use fairlock::policy::HANDOFF_AFTER_NS;
use fairlock::process::Host;
use fairlock::range::{Extent, RangeLock, RangeReadGuard, RangeWriteGuard, Slotted};
use fairlock_check::long;
use fairlock_check::range::scenarios::extent;
use fairlock_sim::Explored;
use fairlock_sim::explore::{Claim, Guarded, Program, Search, Time, hold, pass_time};

const POSITIONS: u64 = 6;

/// Each position is a block, and ranges of more than four have coarse ones.
struct Positions {
    lock: RangeLock<Slotted<Explored, 2, 0>>,
    data: [Guarded; POSITIONS as usize],
}

impl Positions {
    fn new() -> Self {
        Positions { lock: RangeLock::new_in(), data: std::array::from_fn(|_| Guarded::new()) }
    }

    fn of(&self, extent: Extent) -> impl Iterator<Item = &Guarded> {
        self.data[extent.first() as usize..=extent.last() as usize].iter()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Read,
    TryRead,
    ReadFor,
    Write,
    TryWrite,
    WriteFor,
    Downgrade,
    /// Beside ranges in all slots of its thread.
    WriteApart,
}

/// One operation, so many times, with a section and a pause of so many ns.
#[derive(Debug, Clone, Copy)]
struct Task {
    op: Op,
    range: (u64, u64),
    times: u32,
    section: u64,
    pause: u64,
    patience: Duration,
}

/// xorshift64*: the same programs everywhere, for ever.
struct Seeded(u64);

impl Seeded {
    fn new(seed: u64) -> Self {
        Seeded((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn among<T: Copy>(&mut self, all: &[T]) -> T {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        all[(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % all.len()]
    }

    fn task(&mut self, ops: &[Op], times: &[u32]) -> Task {
        Task {
            op: self.among(ops),
            range: self.among(&[(0, 1), (1, 2), (0, 2), (1, 3), (0, 6), (2, 6)]),
            times: self.among(times),
            section: self.among(&[0, 1_000, 10_000, 50_000, LONGEST_SECTION]),
            pause: self.among(&[0, 500, 5_000, 100_000]),
            patience: Duration::from_micros(self.among(&[1, 30, 100, 1_000])),
        }
    }

    /// A few things in each of a few threads.
    fn few(&mut self) -> Vec<Vec<Task>> {
        const ALL: [Op; 8] = [
            Op::Read,
            Op::TryRead,
            Op::ReadFor,
            Op::Write,
            Op::TryWrite,
            Op::WriteFor,
            Op::Downgrade,
            Op::WriteApart,
        ];
        let threads = self.among(&[3, 4, 5]);
        let tasks = |it: &mut Self| {
            (0..it.among(&[1, 2, 3])).map(|_| it.task(&ALL, &[1, 1, 2, 30])).collect()
        };
        (0..threads).map(|_| tasks(self)).collect()
    }

    /// Some come right back, again and again, to ranges that one or two others want as well.
    fn crowd(&mut self) -> Vec<Vec<Task>> {
        let stream = self.among(&[
            [Op::Read; 2],
            [Op::Write; 2],
            [Op::Read, Op::Write],
            [Op::Read, Op::ReadFor],
        ]);
        let mut all: Vec<Vec<Task>> = (0..self.among(&[2, 3]))
            .map(|_| {
                let range = self.among(&[(0, 1), (0, 2), (1, 3)]);
                let section = self.among(&[10_000, 50_000, LONGEST_SECTION]);
                vec![Task { range, section, pause: 500, ..self.task(&stream, &[150]) }]
            })
            .collect();
        for _ in 0..self.among(&[1, 2]) {
            let range = self.among(&[(0, 2), (0, 3), (0, 6)]);
            let ops = self.among(&[
                [Op::Write, Op::Write],
                [Op::Write, Op::WriteFor],
                [Op::Read, Op::Write],
            ]);
            all.push(vec![Task { range, section: 1_000, ..self.task(&ops, &[3]) }]);
        }
        all
    }

    /// One goes back and forth between ranges before and behind one that others want: who looks at its slot meanwhile must not
    /// mix the two, and sleep until a range is released that no thread holds.
    fn passers_by(&mut self) -> Vec<Vec<Task>> {
        const SECTIONS: [u64; 3] = [0, 1_000, 50_000];
        let once = |it: &mut Self, ops: &[Op], range| {
            let section = it.among(&SECTIONS);
            Task { range, section, ..it.task(ops, &[1]) }
        };
        let passes_by = [(0, 1), (4, 6), (0, 1), (4, 6)]
            .map(|range| once(self, &[Op::Read, Op::Write], range))
            .to_vec();
        let holds = once(self, &[Op::Read], (1, 4));
        let waits = once(self, &[Op::Write, Op::WriteApart], (2, 3));
        vec![passes_by, vec![holds], vec![waits]]
    }
}

const LONGEST_SECTION: u64 = 200_000;

/// A wake-up or two, and the steps on the way.
const SLACK: u64 = 100_000;

/// Newcomers may pass again for so long after a range that was reserved.
const OPEN_AGAIN: u64 = 500_000;

/// For how long newcomers may pass a waiter: 4 ms, and while others that are before it have their turn.
fn bound(threads: usize) -> u64 {
    HANDOFF_AFTER_NS + threads as u64 * (OPEN_AGAIN + 2 * LONGEST_SECTION + SLACK)
}

fn run(it: &Positions, task: Task, bound: u64) {
    let Task { op, range: (from, to), section, patience, .. } = task;
    let (range, lock) = (extent(from, to), &it.lock);
    let read = Claim::READ.to_range(from, to - 1).passed_for_at_most(bound);
    let write = Claim::WRITE.to_range(from, to - 1).passed_for_at_most(bound);
    let reads = |guard: RangeReadGuard<'_, _>| {
        it.of(range).for_each(|number| _ = number.get());
        pass_time(section);
        it.of(range).for_each(|number| _ = number.get());
        drop(guard);
    };
    let writes = |guard: RangeWriteGuard<'_, _>| {
        it.of(range).for_each(Guarded::add);
        pass_time(section);
        drop(guard);
    };
    match op {
        Op::Read => hold(read, || Some(lock.read(range)), reads),
        Op::TryRead => hold(read, || lock.try_read(range), reads),
        Op::ReadFor => hold(read, || lock.try_read_for(range, patience), reads),
        Op::Write => hold(write, || Some(lock.write(range)), writes),
        Op::TryWrite => hold(write, || lock.try_write(range), writes),
        Op::WriteFor => hold(write, || lock.try_write_for(range, patience), writes),
        Op::Downgrade => hold(
            write,
            || Some(lock.write(range)),
            |guard| {
                it.of(range).for_each(Guarded::add);
                pass_time(section / 2);
                reads(RangeWriteGuard::downgrade(guard));
            },
        ),
        // A thread stopped on the way to its slots is stopped within the lock, too.
        Op::WriteApart => hold(
            write,
            || {
                let slots = [10, 11, 12, 13].map(|at| lock.read(extent(at, at + 1)));
                Some((slots, lock.write(range)))
            },
            |(slots, guard)| {
                writes(guard);
                drop(slots);
            },
        ),
    };
}

fn program(name: &str, seed: u64, threads: Vec<Vec<Task>>) -> Program<Positions> {
    let bound = bound(threads.len());
    let name = format!("{name} {seed}: {threads:?}");
    let program = threads.into_iter().fold(Program::new(name, Positions::new), |program, tasks| {
        program.thread(move |it| {
            Explored::thread().expect("a thread of a program has a record");
            for task in &tasks {
                for _ in 0..task.times {
                    run(it, *task, bound);
                    pass_time(task.pause);
                }
            }
        })
    });
    // Without stops more is found that needs none.
    let time = if seed.is_multiple_of(2) { Time::new() } else { Time::new().stops(0) };
    program
        .finally(|it| drop(it.lock.try_write(Extent::ALL).expect("free when everybody is done")))
        .most_steps(1_000_000)
        .in_time(time)
}

fn explore(name: &str, programs: u64, executions: u64, threads: fn(&mut Seeded) -> Vec<Vec<Task>>) {
    let mut longest = 0;
    for seed in 0..programs {
        let program = program(name, seed, threads(&mut Seeded::new(seed)));
        for search in [Search::random(seed, executions), Search::pct(seed, 3, executions)] {
            longest = longest.max(program.assert(&search).longest);
        }
    }
    eprintln!("{name}: {programs} programs, at most {longest} steps");
}

#[test]
fn a_few_things() {
    explore("a few things", long::depth(90, 3_000), long::depth(12, 40), Seeded::few);
}

#[test]
fn crowds_that_come_right_back() {
    explore("a crowd", long::depth(40, 1_500), 3, Seeded::crowd);
}

#[test]
fn ranges_before_and_behind() {
    explore("before and behind", long::depth(150, 3_000), 40, Seeded::passers_by);
}
