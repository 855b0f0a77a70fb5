//! Random programs in time: threads are stopped for long between any two steps, waiters give up, and
//! others come again and again. Nobody sleeps for ever, nobody is let in beside a writer, and
//! nobody is passed for longer than its lock promises.
//!
//! The programs know nothing of the locks: a few threads, each with a few operations drawn from a
//! seed, some of them many times over. What they found is in `mutations/`.

use std::time::{Duration, Instant};

use fairlock::lock_api::{
    RawRwLockDowngrade, RawRwLockFair, RawRwLockTimed, RawRwLockUpgrade, RawRwLockUpgradeDowngrade,
    RawRwLockUpgradeTimed, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard as Upgradable,
    RwLockWriteGuard,
};
use fairlock::policy::{
    Bias, BiasPolicy, LONGEST_IN_LINE_NS, MOST_OWED_NS, PhaseFair, Policy, ReadMostly, Shares,
    TimeFair,
};
use fairlock::process::Host;
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::RawRwSem;
use fairlock_check::long;
use fairlock_sim::Explored;
use fairlock_sim::explore::{Claim, Cpus, Guarded, Program, Search, Time, hold, pass_time};

// ---- what threads do ----

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Read,
    ReadFair,
    TryRead,
    ReadFor,
    Write,
    WriteFair,
    TryWrite,
    WriteFor,
    /// Holds the right to upgrade, and makes no use of it.
    Upgradable,
    Upgrade,
    UpgradeFor,
    Downgrade,
    DowngradeToUpgradable,
}

/// All that may upgrade, or could have.
const CHANGES: [Op; 6] = [
    Op::Write,
    Op::Upgradable,
    Op::Upgrade,
    Op::UpgradeFor,
    Op::Downgrade,
    Op::DowngradeToUpgradable,
];

const READS: [Op; 4] = [Op::Read, Op::ReadFair, Op::TryRead, Op::ReadFor];

const WRITES: [Op; 8] = [
    Op::Write,
    Op::Write,
    Op::WriteFair,
    Op::TryWrite,
    Op::WriteFor,
    Op::Upgrade,
    Op::UpgradeFor,
    Op::Downgrade,
];

/// One operation, so many times, with a section and a pause of so many ns.
#[derive(Debug, Clone, Copy)]
struct Task {
    op: Op,
    times: u32,
    section: u64,
    pause: u64,
    patience: Duration,
}

const LONGEST_SECTION: u64 = 20_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Each thread does a few things of its own, and the run is over before much is set right.
    Short,
    /// The same, some of them again and again.
    Long,
    /// Readers that are all alike, and writers.
    Readers,
    /// All come right back: the lock is free, or changes hands, most of the time.
    Crowd,
    /// The same, and most change how they hold it.
    Changing,
}

impl Shape {
    fn of(seed: u64) -> Shape {
        [Shape::Short, Shape::Readers, Shape::Long, Shape::Readers][(seed / 2 % 4) as usize]
    }

    /// Executions by chance, and as many by random priorities: short ones take little time.
    fn executions(self) -> u64 {
        if self == Shape::Short { 100 } else { 4 }
    }
}

/// xorshift64*: the same programs everywhere, for ever.
struct Seeded(u64);

impl Seeded {
    fn new(seed: u64) -> Self {
        Seeded((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
    fn among<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn task(&mut self, ops: &[Op], times: &[u32]) -> Task {
        Task {
            op: self.among(ops),
            times: self.among(times),
            section: self.among(&[
                0,
                1_000,
                1_000,
                10_000,
                10_000,
                50_000,
                200_000,
                LONGEST_SECTION,
            ]),
            pause: self.among(&[0, 500, 5_000, 100_000]),
            patience: Duration::from_micros(self.among(&[1, 30, 100, 1_000])),
        }
    }

    /// A few things, one after the other.
    fn tasks(&mut self, times: &[u32]) -> Vec<Task> {
        let tasks = 1 + self.below(3);
        (0..tasks)
            .map(|_| {
                let ops: &[Op] = if self.below(2) == 0 { &READS } else { &WRITES };
                self.task(ops, times)
            })
            .collect()
    }

    /// Again and again, with little in between.
    fn right_back(&mut self, ops: &[Op], times: u32) -> Vec<Task> {
        let task = Task {
            op: self.among(ops),
            times,
            section: self.among(&[0, 1_000, 10_000]),
            pause: self.among(&[0, 500, 5_000]),
            patience: Duration::from_micros(self.among(&[1, 10, 30, 100])),
        };
        vec![task]
    }

    /// One writer, or two, among readers: all come right back, and some readers give up. In every third
    /// crowd somebody who may upgrade stays for long, and readers come in beside it.
    fn crowd(&mut self) -> Vec<Vec<Task>> {
        let stays = self.below(3) == 0;
        let (writers, readers) = (1 + self.below(2), 2 + self.below(2));
        let times = if stays { 300 } else { 50 };
        let mut all: Vec<_> =
            (0..writers).map(|_| self.right_back(&[Op::Write], 2 * times)).collect();
        all.extend((0..readers).map(|_| self.right_back(&[Op::Read, Op::ReadFor], times)));
        if stays {
            let section = LONGEST_SECTION;
            all.push(vec![Task { op: Op::Upgrade, section, ..self.task(&[Op::Upgrade], &[1]) }]);
        }
        all
    }

    /// Two or three that change how they hold the lock again and again, in every other program all
    /// in the same way; up to two readers; and one or two that want to upgrade once. In every other
    /// program one more thread writes once.
    fn changing(&mut self) -> Vec<Vec<Task>> {
        let (changing, readers) = (2 + self.below(2), self.below(3));
        let are_alike = self.below(2) == 0;
        let mut one = |ops: &[Op]| {
            let section = self.among(&[1_000, 50_000, 200_000]);
            Task { section, pause: self.among(&[0, 500, 5_000]), ..self.task(ops, &[200]) }
        };
        let first = one(&CHANGES);
        let mut all = vec![vec![first]];
        all.extend((1..changing).map(|_| vec![if are_alike { first } else { one(&CHANGES) }]));
        all.extend((0..readers).map(|_| vec![one(&READS)]));
        let once = Task { section: 1_000, ..self.task(&[Op::Upgrade], &[1]) };
        all.extend(vec![vec![once]; 1 + self.below(2)]);
        if self.below(2) == 0 {
            all.push(vec![Task { section: 200_000, ..self.task(&[Op::Write], &[1]) }]);
        }
        all
    }

    /// What each thread does.
    fn threads(&mut self, shape: Shape) -> Vec<Vec<Task>> {
        let threads = 3 + self.below(3);
        match shape {
            Shape::Crowd => self.crowd(),
            Shape::Changing => self.changing(),
            Shape::Short => (0..threads).map(|_| self.tasks(&[1, 1, 2])).collect(),
            Shape::Long => (0..threads).map(|_| self.tasks(&[1, 1, 1, 3, 30, 300])).collect(),
            Shape::Readers => {
                let reader = vec![self.task(&READS, &[3, 30, 300])];
                let readers = 1 + self.below(threads - 1);
                let mut all = vec![reader; readers];
                all.extend((readers..threads).map(|_| vec![self.task(&WRITES, &[1, 3, 30])]));
                all
            }
        }
    }
}

// ---- locks ----

trait Raw:
    RawRwLockDowngrade
    + RawRwLockFair
    + RawRwLockTimed<Duration = Duration>
    + RawRwLockUpgrade
    + RawRwLockUpgradeDowngrade
    + RawRwLockUpgradeTimed
    + 'static
{
    const HAS_SLOTS: bool;
}

impl<Pol: Policy> Raw for RawRwSem<Pol, Explored> {
    const HAS_SLOTS: bool = false;
}

impl<B: BiasPolicy> Raw for RawRwLock<Explored, B> {
    const HAS_SLOTS: bool = true;
}

/// For how long newcomers may pass a reader and a writer that are first in line.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    reader: u64,
    writer: u64,
    upgradable: u64,
    /// By readers while readers hold the lock at every moment.
    unbroken: u64,
}

/// What bounds depend on.
struct Facts {
    /// Threads are stopped for long, or give the lock away: a side may be ahead by all that can be owed.
    uneven: bool,
    /// The longest section, and the longest of those that only read, ns.
    section: u64,
    read: u64,
    /// How many threads read.
    readers: u64,
    /// All threads run on one CPU, as far as the lock knows.
    one_cpu: bool,
    /// Readers have slots.
    slots: bool,
}

/// A wake-up or two, and the steps on the way.
const SLACK: u64 = 100_000;

/// What locks take a wake-up for on the explored platform.
const WAKE_LATENCY: u64 = 8_000;

fn bounds(shares: Shares, facts: &Facts) -> Bounds {
    let &Facts { uneven, section, read, readers, one_cpu, slots } = facts;
    let slack = u64::from(shares.slack) * WAKE_LATENCY;
    // The side that waits has been ahead. Where all is even it rarely is by more than two slacks and four sections: not promised, but
    // a finer net.
    let ahead = if uneven { MOST_OWED_NS } else { MOST_OWED_NS.min(2 * slack + 4 * section) };
    // It is passed until the other side owes it the slack.
    let phase = ahead + slack + SLACK;
    // Before that: the lock was shut when it came, for the other side's phase to begin.
    let shut = section;
    // A writer that waits in its side's phase competes once, and once more in a phase of readers that have slots. Then its
    // side's phase may be over.
    let writer = (1 + u64::from(slots)) * section + shut + phase;
    // Readers whose entries collide stand in a line first. Those that are woken on one CPU enter one by one, and the phase may end
    // before the next. A reader that has the lock already is passed until it runs, by those that join it while the last writer's
    // section would have lasted.
    let in_line = if readers > 1 { LONGEST_IN_LINE_NS } else { 0 };
    let phases = if one_cpu { readers.max(1) } else { 1 };
    let reader = in_line + phases * (shut + phase + section);
    // An upgradable reader waits like a plain one, and in addition for the slack and for one that holds the lock upgradable.
    let upgradable = reader + slack + section + SLACK;
    Bounds { reader, writer, upgradable, unbroken: 2 * phase + section + read }
}

fn run<R: Raw>(lock: &RwLock<R, Guarded>, task: Task, bounds: Bounds) {
    let Task { op, section, patience, .. } = task;
    let read = Claim::READ
        .passed_for_at_most(bounds.reader)
        .passed_without_a_break_for_at_most(bounds.unbroken);
    let write = Claim::WRITE
        .passed_for_at_most(bounds.writer)
        .passed_without_a_break_for_at_most(bounds.unbroken);
    let upgradable = Claim::UPGRADABLE.passed_for_at_most(bounds.upgradable);
    let reads = |guard: RwLockReadGuard<'_, R, Guarded>| {
        guard.get();
        pass_time(section);
        guard.get();
        drop(guard);
    };
    let writes = |guard: RwLockWriteGuard<'_, R, Guarded>| {
        guard.add();
        pass_time(section);
        drop(guard);
    };
    match op {
        Op::Read => hold(read, || Some(lock.read()), reads),
        Op::ReadFair => hold(
            read,
            || Some(lock.read()),
            |guard| {
                pass_time(section);
                RwLockReadGuard::unlock_fair(guard);
            },
        ),
        Op::TryRead => hold(read, || lock.try_read(), reads),
        Op::ReadFor => hold(read, || lock.try_read_for(patience), reads),
        Op::Write => hold(write, || Some(lock.write()), writes),
        Op::WriteFair => hold(
            write,
            || Some(lock.write()),
            |guard| {
                guard.add();
                pass_time(section);
                RwLockWriteGuard::unlock_fair(guard);
            },
        ),
        Op::TryWrite => hold(write, || lock.try_write(), writes),
        Op::WriteFor => hold(write, || lock.try_write_for(patience), writes),
        Op::Upgradable => hold(
            upgradable,
            || Some(lock.upgradable_read()),
            |guard| {
                guard.get();
                pass_time(section);
                drop(guard);
            },
        ),
        Op::Upgrade => hold(
            upgradable,
            || Some(lock.upgradable_read()),
            |guard| {
                pass_time(section / 2);
                let guard = Upgradable::upgrade(guard);
                guard.add();
                pass_time(section / 2);
            },
        ),
        Op::UpgradeFor => hold(
            upgradable,
            || lock.try_upgradable_read_for(patience),
            |guard| {
                pass_time(section / 2);
                match Upgradable::try_upgrade_for(guard, patience) {
                    Ok(guard) => guard.add(),
                    Err(guard) => _ = guard.get(),
                }
            },
        ),
        Op::Downgrade => hold(
            write,
            || Some(lock.write()),
            |guard| {
                guard.add();
                pass_time(section / 2);
                let guard = RwLockWriteGuard::downgrade(guard);
                guard.get();
                pass_time(section / 2);
            },
        ),
        Op::DowngradeToUpgradable => hold(
            write,
            || Some(lock.write()),
            |guard| {
                guard.add();
                pass_time(section / 2);
                let guard = RwLockWriteGuard::downgrade_to_upgradable(guard);
                guard.get();
                pass_time(section / 2);
            },
        ),
    };
}

/// The program with this number for a lock with these phases.
fn program<R: Raw>(
    name: &str,
    shares: Shares,
    seed: u64,
    shape: Shape,
) -> Program<RwLock<R, Guarded>> {
    let threads = Seeded::new(seed).threads(shape);
    program_of::<R>(name, shares, seed, shape, threads)
}

/// The program in which each thread does this.
fn program_of<R: Raw>(
    name: &str,
    shares: Shares,
    seed: u64,
    shape: Shape,
    threads: Vec<Vec<Task>>,
) -> Program<RwLock<R, Guarded>> {
    // Without stops bounds are shorter, and more is found that needs none.
    let stops = seed.is_multiple_of(2);
    let longest = |counts: fn(&Task) -> bool| {
        let tasks = threads.iter().flatten().filter(|task| counts(task));
        tasks.map(|task| task.section).max().unwrap_or(0)
    };
    let (section, read) = (longest(|_| true), longest(|task| READS.contains(&task.op)));
    let reads = |tasks: &&Vec<Task>| tasks.iter().any(|task| READS.contains(&task.op));
    let readers = threads.iter().filter(reads).count() as u64;
    let cpus = [Cpus::OneEach, Cpus::Unknown, Cpus::One][(seed / 8 % 3) as usize];
    let one_cpu = cpus != Cpus::OneEach;
    let slots = R::HAS_SLOTS;
    let is_fair = |task: &Task| matches!(task.op, Op::ReadFair | Op::WriteFair);
    // A thread that changes how it holds the lock has it for both sides.
    let changes = shape == Shape::Changing;
    let uneven = stops || changes || threads.iter().flatten().any(is_fair);
    let bounds = bounds(shares, &Facts { uneven, section, read, readers, one_cpu, slots });
    let name = format!("{name}, program {seed}: {threads:?}");
    let program = Program::new(name, || RwLock::<R, Guarded>::new(Guarded::new()));
    let program = threads.into_iter().fold(program, |program, tasks| {
        program.thread(move |lock| {
            Explored::thread().expect("a thread of a program has a record");
            for task in &tasks {
                for _ in 0..task.times {
                    run(lock, *task, bounds);
                    pass_time(task.pause);
                }
            }
        })
    });
    let time = if stops { Time::new() } else { Time::new().stops(0) };
    program
        .finally(|lock| drop(lock.try_write().expect("the lock is free when everybody is done")))
        .most_steps(1_000_000)
        .cpus(cpus)
        .in_time(time)
}

/// So many programs; of each some executions by chance and as many by random priorities.
fn explore<R: Raw>(name: &str, shares: Shares, programs: u64, shape: fn(u64) -> Shape) {
    let began = Instant::now();
    let (mut executions, mut steps) = (0, 0);
    for seed in 0..programs {
        let shape = shape(seed);
        let program = program::<R>(name, shares, seed, shape);
        let each = shape.executions();
        for search in [Search::random(seed, each), Search::pct(seed, 3, each)] {
            match program.check(&search) {
                Ok(report) => {
                    executions += report.executions;
                    steps = steps.max(report.longest);
                }
                Err(failure) => {
                    executions += failure.execution;
                    panic!("execution {executions} of all: {failure}");
                }
            }
        }
    }
    let took = began.elapsed();
    eprintln!("{name}: {executions} executions, at most {steps} steps, {took:.1?}");
}

/// Readers use slots without a fence, at once and after each write as soon as the clock has moved.
struct AtOnce;

impl BiasPolicy for AtOnce {
    const BIAS: Bias = Bias { reads: 0, reads_per_look: 1, patience: 0, ..Bias::READ_MOSTLY };
}

/// The same with fences, for ever.
struct Fenced;

impl BiasPolicy for Fenced {
    const BIAS: Bias = Bias { patience: u32::MAX, ..AtOnce::BIAS };
}

/// All ways to come in by turns: slots after a few reads, and none again after a few writes.
struct ByTurns;

impl BiasPolicy for ByTurns {
    const BIAS: Bias = Bias { reads: 4, writes: 4, reads_per_look: 4, patience: 1 };
}

macro_rules! locks {
    ($($test:ident: $raw:ty, $policy:ty;)*) => {$(
        #[test]
        fn $test() {
            explore::<$raw>(stringify!($test), <$policy>::SHARES, long::depth(120, 2_400), Shape::of);
        }
    )*};
}

locks! {
    time_fair: RawRwSem<TimeFair, Explored>, TimeFair;
    phase_fair: RawRwSem<PhaseFair, Explored>, PhaseFair;
    rwlock: RawRwLock<Explored, ReadMostly>, TimeFair;
    rwlock_with_slots_at_once: RawRwLock<Explored, AtOnce>, TimeFair;
    rwlock_with_slots_and_fences: RawRwLock<Explored, Fenced>, TimeFair;
    rwlock_with_slots_by_turns: RawRwLock<Explored, ByTurns>, TimeFair;
}

/// Where all come right back, a lock is often free while somebody waits, and whoever serves the queue
/// then does so beside newcomers.
#[test]
fn crowds_that_come_right_back() {
    let shares = TimeFair::SHARES;
    let crowd = |_| Shape::Crowd;
    let programs = long::depth(60, 4_000);
    explore::<RawRwSem<TimeFair, Explored>>("rwsem", shares, programs, crowd);
    explore::<RawRwLock<Explored, ReadMostly>>("rwlock", shares, programs, crowd);
    explore::<RawRwLock<Explored, Fenced>>("rwlock with slots", shares, programs, crowd);
}

/// Where most change how they hold the lock, a thread that waits for the right to upgrade finds it taken most of the time.
#[test]
fn threads_that_change_how_they_hold_it() {
    let changing = |_| Shape::Changing;
    let programs = long::depth(16, 1_600);
    explore::<RawRwSem<TimeFair, Explored>>("rwsem", TimeFair::SHARES, programs, changing);
    explore::<RawRwSem<PhaseFair, Explored>>("phase-fair", PhaseFair::SHARES, programs, changing);
    explore::<RawRwLock<Explored, ReadMostly>>("rwlock", TimeFair::SHARES, programs, changing);
}

/// While readers use slots, a writer that is woken competes. One that downgrades each time, and
/// comes right back, is faster than the wake-up.
#[test]
fn a_writer_is_not_passed_for_long_by_one_that_downgrades() {
    let task = |op, section, pause| {
        let patience = Duration::from_micros(30);
        vec![Task { op, times: 200, section, pause, patience }]
    };
    let threads = vec![
        task(Op::Downgrade, 200_000, 0),
        task(Op::Downgrade, 200_000, 500),
        task(Op::Read, 50_000, 5_000),
        task(Op::Read, 1_000, 500),
    ];
    let name = "two that downgrade";
    let program = program_of::<RawRwLock<Explored, ReadMostly>>(
        name,
        TimeFair::SHARES,
        0,
        Shape::Changing,
        threads,
    );
    for seed in 0..4 {
        program.assert(&Search::pct(seed, 3, long::depth(4, 100)));
    }
}
