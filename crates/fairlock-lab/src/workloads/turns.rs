//! `turns`: threads that each read and write, with next to nothing in and between their
//! sections: what a lock's own operations cost, up to those that take a nanosecond.
//!
//! [`mix`](super::mix) looks at every operation, and two looks at the clock take ten times as long
//! as the fastest read. Here a thread works in bursts of [`BURST`] operations. One burst in
//! [`Turns::time_every`] is timed operation by operation; in the others nothing is recorded
//! but how many operations there were. So
//!
//! * rates are those of all operations;
//! * waits, holds and latencies are those of the timed bursts. Their percentiles are fair samples,
//!   their maxima are not: the longest wait of a run is known only where `time_every` is 1;
//! * how many readers pass a writer is not known.
//!
//! What a thread does beside the lock's own operation: it reads the data that the lock protects and
//! checks it (two loads), looks whether the run is over (one load), and counts. How many reads
//! precede a write is drawn once for all of them, from the distribution that drawing each operation
//! by itself would give.

use clap::Args;
use crossbeam_utils::CachePadded;
use fairlock_report::random::{XorShift, jittered};
use fairlock_report::timeline::{HOLD_READ, HOLD_WRITE, WAIT_READ, WAIT_WRITE};
use fairlock_report::units::{Length, at_least_one, parse_percent};
use serde::{Deserialize, Serialize};

use super::{Failure, NOTHING, bodies, check_no_update_was_lost, run_threads};
use crate::error::LabError;
use crate::locks::{LabLock, New, Protected};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::workload::{
    DefaultPoints, Machine, Request, Role, SIMULATION_COST, UnderLock, Workload, check_length,
    check_share, check_thread_count, defaults, percent_of_reads, points, roles, run_under_lock,
    wrong,
};
use crate::world::World;

/// Operations that are timed together, or not at all.
pub const BURST: u64 = 64;

/// Where nothing else is said, one burst in so many is timed: three looks at the clock, 36 ns where
/// this was measured, then cost an operation 0.14 ns on average.
pub const DEFAULT_TIME_EVERY: u32 = 256;

/// The lock whose readers do not wait for each other, so that each of them makes steps of its own on a simulated
/// machine.
const SCALING_LOCK: &str = "rwlock";
/// Host seconds for one simulated second of each thread under it, with 100 PAUSEs between the operations.
const SCALING_SIMULATION_COST: f64 = 1.6;

/// Parameters of [`turns`](self).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Turns {
    /// Threads; each reads and writes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    pub threads: u32,
    /// Share of operations that read; the rest write
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0, value_parser = parse_percent)]
    pub read_percent: f64,
    /// Time inside the lock: pauses (10p) or time (200ns)
    #[arg(long, value_name = "LENGTH", default_value = "0p")]
    pub section: Length,
    /// Time between two operations: pauses (10p) or time (200ns), ±25 %
    #[arg(long, value_name = "LENGTH", default_value = "0p")]
    pub think: Length,
    /// Keep each thread on a CPU of its own
    #[arg(long)]
    pub pinned: bool,
    /// Time one of every N bursts of 64 operations; 1 times all of them, which slows short operations down
    #[arg(long, value_name = "N", default_value_t = DEFAULT_TIME_EVERY, value_parser = at_least_one)]
    pub time_every: u32,
}

impl Default for Turns {
    fn default() -> Turns {
        defaults()
    }
}

impl Workload for Turns {
    const NAME: &'static str = "turns";
    const ABOUT: &'static str =
        "threads that read and write alternately, empty sections: what the lock itself costs";
    const SITUATION: Option<&'static str> = Some("Sections of a few nanoseconds");
    const EXAMPLES: &'static [&'static str] = &[
        "--threads 1,2,8 --read-percent 100,99.9,99,90,50",
        "--lock rwlock,parking_lot --threads 2 --read-percent 100 --pinned",
        "--read-percent 99 --time-every 1          every wait, slower",
        "--on ivybridge-ex-8s --threads 2,240 --think 100p --seconds 0.001",
    ];
    const DEFAULT_POINTS: &'static [DefaultPoints] =
        &[points("threads", "1,2,8"), points("read_percent", "99")];

    fn roles(&self) -> Vec<Role> {
        roles(&[("thread", self.threads)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = vec![
            ("read_percent", percent_of_reads(self.read_percent)),
            ("section", format!("section {}", self.section.words())),
            ("think", format!("think {}", self.think.words())),
        ];
        words.extend(self.pinned.then(|| ("pinned", "pinned".to_owned())));
        let every = (self.time_every == 1).then(|| "every operation timed".to_owned());
        words.extend(every.map(|it| ("time_every", it)));
        words
    }

    fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        check_thread_count("threads", self.threads.into())?;
        check_share(self.read_percent)?;
        if self.time_every == 0 {
            return wrong("time_every", 0, "1 (every operation) or more".to_string());
        }
        check_length("section", self.section, pause_ns)?;
        check_length("think", self.think, pause_ns)
    }

    fn is_pinned(&self) -> bool {
        self.pinned
    }

    fn simulation_cost(&self, lock: &str, _cpus: u32) -> f64 {
        match lock {
            SCALING_LOCK => SIMULATION_COST + f64::from(self.threads) * SCALING_SIMULATION_COST,
            _ => SIMULATION_COST,
        }
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_lock(self, request)
    }
}

/// Draws how many reads precede the next write.
#[derive(Debug, Clone, Copy)]
struct ReadRuns {
    share: f64,
    /// 1 over the logarithm of the share.
    scale: f64,
}

impl ReadRuns {
    fn percent(percent: f64) -> ReadRuns {
        let share = percent / 100.0;
        ReadRuns { share, scale: share.ln().recip() }
    }

    /// Geometric: `n` or more reads with the probability `shareⁿ`.
    #[inline]
    fn draw(self, random: &mut XorShift) -> u64 {
        if self.share == 1.0 {
            return u64::MAX;
        }
        // Above 0 and at most 1, so that its logarithm is finite.
        let uniform = (f64::from(random.next_u32()) + 1.0) / 2f64.powi(32);
        (uniform.ln() * self.scale) as u64
    }
}

impl UnderLock for Turns {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let lock = CachePadded::new(new(Protected::new()));
        let lock: &L = &lock;
        let runs = ReadRuns::percent(self.read_percent);
        let time_every = self.time_every;
        let bodies = bodies(self.threads, &|index| {
            let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(index.into());
            let thread = TurnTaker {
                world,
                lock,
                section: self.section.pauses(world.pause_ns()),
                think: self.think.pauses(world.pause_ns()),
                random: XorShift::new(seed),
                reader: RoleRecorder::default(),
                writer: RoleRecorder::default(),
            };
            Box::new(move || thread.work(runs, time_every))
        });
        let mut repetition = run_threads(request, Turns::NAME, bodies)?;
        check_no_update_was_lost(request, Turns::NAME, &repetition, lock.read(Protected::value))?;
        repetition.events = lock.events();
        Ok(repetition)
    }
}

/// One thread.
struct TurnTaker<'a, W, L> {
    world: &'a W,
    lock: &'a L,
    section: u32,
    think: u32,
    random: XorShift,
    reader: RoleRecorder,
    writer: RoleRecorder,
}

impl<W: World, L: LabLock> TurnTaker<'_, W, L> {
    fn work(mut self, runs: ReadRuns, time_every: u32) -> Result<ThreadRecord, Failure> {
        let mut reads = runs.draw(&mut self.random);
        'run: for burst in 0_u32.. {
            let timed = burst.is_multiple_of(time_every);
            let mut left = BURST;
            while left > 0 {
                let count = if reads == 0 { 1 } else { reads.min(left) };
                let goes_on = match (reads == 0, timed) {
                    (true, true) => self.timed_write()?,
                    (true, false) => self.write()?,
                    (false, true) => self.timed_reads(count)?,
                    (false, false) => self.reads(count)?,
                };
                if !goes_on {
                    break 'run;
                }
                left -= count;
                reads = if reads == 0 { runs.draw(&mut self.random) } else { reads - count };
            }
        }
        Ok(ThreadRecord {
            reader: (runs.share > 0.0).then_some(self.reader),
            writer: (runs.share < 1.0).then_some(self.writer),
            excluded_ns: 0,
        })
    }

    /// So many reads one after the other; false if the run was over before the last one was.
    #[inline]
    fn reads(&mut self, count: u64) -> Result<bool, Failure> {
        let TurnTaker { world, lock, section, think, .. } = *self;
        for done in 0..count {
            world.mark(WAIT_READ);
            lock.read(|data| {
                world.mark(HOLD_READ);
                // Nothing lies between the ends of an empty section: one look is enough.
                let result = match section {
                    0 => data.value().map(drop),
                    pauses => data.read_around(|| world.compute(pauses)),
                };
                world.mark(NOTHING);
                result
            })?;
            if !world.running() {
                self.reader.ops += done;
                self.reader.executed += done + 1;
                return Ok(false);
            }
            if think > 0 {
                self.stay_away();
            }
        }
        self.reader.ops += count;
        self.reader.executed += count;
        Ok(true)
    }

    #[inline]
    fn write(&mut self) -> Result<bool, Failure> {
        let world = self.world;
        world.mark(WAIT_WRITE);
        self.lock.write(|data| {
            world.mark(HOLD_WRITE);
            let result = data.write_around(|| world.compute(self.section));
            world.mark(NOTHING);
            result
        })?;
        Ok(self.count(WRITE))
    }

    #[cold]
    fn timed_reads(&mut self, count: u64) -> Result<bool, Failure> {
        let world = self.world;
        for _ in 0..count {
            world.mark(WAIT_READ);
            let asked = world.now();
            let (got, result) = self.lock.read(|data| {
                world.mark(HOLD_READ);
                let got = world.now();
                let result = data.read_around(|| world.compute(self.section));
                world.mark(NOTHING);
                (got, result)
            });
            result?;
            self.reader.time(asked, got, world.now());
            if !self.count(READ) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[cold]
    fn timed_write(&mut self) -> Result<bool, Failure> {
        let world = self.world;
        world.mark(WAIT_WRITE);
        let asked = world.now();
        let (got, result) = self.lock.write(|data| {
            world.mark(HOLD_WRITE);
            let got = world.now();
            let result = data.write_around(|| world.compute(self.section));
            world.mark(NOTHING);
            (got, result)
        });
        result?;
        self.writer.time(asked, got, world.now());
        Ok(self.count(WRITE))
    }

    /// Counts one operation; false if the run was over before it ended.
    #[inline]
    fn count(&mut self, is_read: bool) -> bool {
        let recorder = if is_read { &mut self.reader } else { &mut self.writer };
        recorder.executed += 1;
        if !self.world.running() {
            return false;
        }
        recorder.ops += 1;
        self.stay_away();
        true
    }

    #[inline]
    fn stay_away(&mut self) {
        self.world.compute(jittered(self.think, &mut self.random));
    }
}

const READ: bool = true;
const WRITE: bool = false;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_reads_have_the_length_that_the_share_gives() {
        for (percent, mean) in [(99.9, 999.0), (99.0, 99.0), (90.0, 9.0), (50.0, 1.0)] {
            let runs = ReadRuns::percent(percent);
            let mut random = XorShift::new(1);
            let draws = 1_000_000;
            let total: u64 = (0..draws).map(|_| runs.draw(&mut random)).sum();
            let found = total as f64 / f64::from(draws);
            assert!((found / mean - 1.0).abs() < 0.005, "{percent} %: {found}");
        }
    }

    #[test]
    fn shares_include_their_ends() {
        let mut random = XorShift::new(1);
        let mut draw = |percent| ReadRuns::percent(percent).draw(&mut random);
        assert!((0..1000).all(|_| draw(0.0) == 0));
        assert!((0..1000).all(|_| draw(100.0) == u64::MAX));
    }
}
