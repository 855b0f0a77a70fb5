//! `shards`: threads that pick one of several locks at random for each operation, as a map with
//! shards does. Most of them are free when they are picked, and their cache lines are elsewhere.
//!
//! Each lock has cache lines of its own. One operation of a thread in `TIME_EVERY` is timed.
//! What is checked: each section finds its shard's data whole, and each write is counted at the
//! end.

use clap::Args;
use crossbeam_utils::CachePadded;
use fairlock_report::random::{XorShift, jittered};
use fairlock_report::timeline::{HOLD_READ, HOLD_WRITE, WAIT_READ, WAIT_WRITE};
use fairlock_report::units::{Length, at_least_one, parse_percent, several};
use serde::{Deserialize, Serialize};

use super::{Failure, NOTHING, add_events, bodies, check_no_update_was_lost, run_threads};
use crate::error::LabError;
use crate::locks::{LabLock, New, Protected};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::workload::{
    DefaultPoints, Machine, Request, Role, UnderLock, Workload, check_length, check_share,
    check_thread_count, defaults, percent_of_reads, points, roles, run_under_lock, running, wrong,
};
use crate::world::World;

/// A look at the clock takes as long as an operation, so few are timed.
const TIME_EVERY: u64 = 64;

/// Host seconds for one simulated second of each thread.
const SIMULATION_COST_OF_EACH: f64 = 5.0;

/// More locks than this would only take memory.
const MOST_LOCKS: u32 = 65_536;

/// Parameters of [`shards`](self).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Shards {
    /// Threads; each reads and writes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    pub threads: u32,
    /// Locks; each operation picks one at random
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one)]
    pub shards: u32,
    /// Share of operations that read; the rest write
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0, value_parser = parse_percent)]
    pub read_percent: f64,
    /// Time between two operations: pauses (10p) or time (200ns), ±25 %
    #[arg(long, value_name = "LENGTH", default_value = "0p")]
    pub think: Length,
}

impl Default for Shards {
    fn default() -> Shards {
        defaults()
    }
}

impl Workload for Shards {
    const NAME: &'static str = "shards";
    const ABOUT: &'static str =
        "threads that pick one of many locks at random: what the shards of a map cost";
    const SITUATION: Option<&'static str> = Some("One lock of many at random");
    const EXAMPLES: &'static [&'static str] = &[
        "--threads 8 --shards 4,16,1024 --read-percent 99,90,50",
        "--lock mutex,std-mutex,parking_lot-mutex --read-percent 0 --threads 2,8,32",
        "--on graviton3 --threads 64 --shards 64 --think 20p --seconds 0.001",
    ];
    const DEFAULT_POINTS: &'static [DefaultPoints] =
        &[points("threads", "8"), points("shards", "4,16,1024")];

    fn roles(&self) -> Vec<Role> {
        roles(&[("thread", self.threads)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        vec![
            ("shards", several(self.shards.into(), "shard")),
            ("read_percent", percent_of_reads(self.read_percent)),
            ("think", format!("think {}", self.think.words())),
        ]
    }

    fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        check_thread_count("threads", self.threads.into())?;
        if !(1..=MOST_LOCKS).contains(&self.shards) {
            return wrong("shards", self.shards, format!("1 to {MOST_LOCKS}"));
        }
        check_share(self.read_percent)?;
        check_length("think", self.think, pause_ns)
    }

    /// Threads that hardly ever wait for each other make steps of their own.
    fn simulation_cost(&self, _lock: &str, cpus: u32) -> f64 {
        running(self.threads, cpus) * SIMULATION_COST_OF_EACH
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_lock(self, request)
    }
}

impl UnderLock for Shards {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let mut locks = Vec::new();
        for _ in 0..self.shards {
            locks.push(CachePadded::new(new(Protected::new())));
        }
        let locks: &[CachePadded<L>] = &locks;
        let bodies =
            bodies(self.threads, &|index| Box::new(move || self.operates(world, locks, index)));
        let mut repetition = run_threads(request, Shards::NAME, bodies)?;
        let mut writes = Ok(0);
        for lock in locks {
            let of_lock = lock.read(Protected::value);
            writes = writes.and_then(|all| Ok(all + of_lock?));
            add_events(&mut repetition, lock.events());
        }
        check_no_update_was_lost(request, Shards::NAME, &repetition, writes)?;
        Ok(repetition)
    }
}

impl Shards {
    fn operates<W: World, L: LabLock>(
        &self,
        world: &W,
        locks: &[CachePadded<L>],
        index: u32,
    ) -> Result<ThreadRecord, Failure> {
        let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(index.into());
        let mut random = XorShift::new(seed);
        let think = self.think.pauses(world.pause_ns());
        let reads_below = (self.read_percent / 100.0 * 2f64.powi(32)) as u64;
        let [mut reader, mut writer] = [RoleRecorder::default(), RoleRecorder::default()];
        while world.running() {
            let lock = &locks[random.below(self.shards) as usize];
            let is_read = u64::from(random.next_u32()) < reads_below;
            let recorder = if is_read { &mut reader } else { &mut writer };
            let asked = recorder.executed.is_multiple_of(TIME_EVERY).then(|| world.now());
            let got = |what| {
                world.mark(what);
                asked.map(|_| world.now())
            };
            world.mark(if is_read { WAIT_READ } else { WAIT_WRITE });
            let got = if is_read {
                lock.read(|data| data.read_around(|| got(HOLD_READ)))
            } else {
                lock.write(|data| data.write_around(|| got(HOLD_WRITE)))
            }?;
            world.mark(NOTHING);
            if let Some((asked, got)) = asked.zip(got) {
                recorder.time(asked, got, world.now());
            }
            recorder.executed += 1;
            if world.running() {
                recorder.ops += 1;
                world.compute(jittered(think, &mut random));
            }
        }
        Ok(ThreadRecord {
            reader: (self.read_percent > 0.0).then_some(reader),
            writer: (self.read_percent < 100.0).then_some(writer),
            excluded_ns: 0,
        })
    }
}
