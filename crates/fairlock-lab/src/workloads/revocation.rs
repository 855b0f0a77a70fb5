//! `revocation`: what a writer waits for when everybody has just read and nobody holds the lock.
//!
//! Readers and one writer alternate. Each reader reads so many times; then all readers keep running while
//! the writer acquires the lock once. The lock is free at that moment, so the lock alone causes the
//! writer's wait: if readers do not write the shared word, the lock has to make sure that none of them is
//! about to acquire it. The writer's wait, hold and latency are timed at every write. The rates mean
//! nothing, because readers and writer alternate.
//!
//! Without reads between the writes this is the cost of a write after a write.
//!
//! Threads never hold the lock at the same time, so even the lock `broken` passes. A lost write is noticed.

use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use crossbeam_utils::CachePadded;
use fairlock_report::params::Value;
use fairlock_report::units::{at_least_one, count, counted};
use serde::{Deserialize, Serialize};

use super::{Body, Failure, check_no_update_was_lost, run_threads};
use crate::error::LabError;
use crate::locks::{LabLock, New, Protected};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::workload::{
    DefaultPoints, Machine, Request, Role, UnderLock, Workload, check_thread_count, defaults,
    points, roles, run_under_erased_lock,
};
use crate::world::World;

/// A thread whose turn does not come within this sleeps between two looks: where threads outnumber
/// CPUs, it stands in the way of those whose turn it is.
const WATCH_NS: u64 = 1_000_000;
const NAP_NS: u64 = 20_000;
const PAUSES_BETWEEN_LOOKS: u32 = 4;

/// Parameters of [`revocation`](self).
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Revocation {
    /// Threads that read; one more writes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub readers: u32,
    /// Reads of each of them between two writes; 0 for the cost of a write after a write. By default they read for
    /// about 100 µs: long enough for a lock to favour readers again
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = count)]
    pub reads_between: u32,
}

impl Default for Revocation {
    fn default() -> Revocation {
        defaults()
    }
}

impl Workload for Revocation {
    const NAME: &'static str = "revocation";
    const ABOUT: &'static str =
        "a write right after many reads by others: what readers' speed costs a writer";
    const EXAMPLES: &'static [&'static str] =
        &["--lock rwlock,sharded,std --readers 1,3 --reads-between 0,50000"];
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[points("reads_between", "0,50000")];

    fn roles(&self) -> Vec<Role> {
        roles(&[("reader", self.readers), ("writer", 1)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        vec![(
            "reads_between",
            format!("{} between writes", counted(self.reads_between.into(), "read")),
        )]
    }

    fn validate(&self, _pause_ns: f64) -> Result<(), LabError> {
        check_thread_count("readers", self.readers.into())
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        vec![("threads", (self.readers + 1).into()), ("writers", 1.into())]
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_erased_lock(self, request)
    }
}

/// Whose turn it is. Release and acquire: nothing of a phase may seem to happen in the next.
#[derive(Default)]
struct Turns {
    /// Turns that readers have taken, all together.
    read: CachePadded<AtomicU64>,
    /// Turns that the writer has taken.
    written: CachePadded<AtomicU64>,
}

impl UnderLock for Revocation {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let lock = CachePadded::new(new(Protected::new()));
        let lock: &L = &lock;
        let turns = Turns::default();
        let (lock, turns) = (lock, &turns);
        let mut bodies: Vec<Body<'_>> = Vec::new();
        for _ in 0..self.readers {
            bodies.push(Box::new(|| read(world, lock, turns, self.reads_between)));
        }
        bodies.push(Box::new(|| write(world, lock, turns, self.readers.into())));
        let mut repetition = run_threads(request, Revocation::NAME, bodies)?;
        let value = lock.read(Protected::value);
        check_no_update_was_lost(request, Revocation::NAME, &repetition, value)?;
        repetition.events = lock.events();
        Ok(repetition)
    }
}

fn read<W: World, L: LabLock>(
    world: &W,
    lock: &L,
    turns: &Turns,
    reads: u32,
) -> Result<ThreadRecord, Failure> {
    let mut reader = RoleRecorder::default();
    for turn in 0.. {
        if !until(world, || turns.written.load(Ordering::Acquire) == turn) {
            break;
        }
        for _ in 0..reads {
            lock.read(|data| data.read_around(|| ()))?;
        }
        reader.executed += u64::from(reads);
        reader.ops += u64::from(reads);
        turns.read.fetch_add(1, Ordering::Release);
    }
    Ok(ThreadRecord { reader: Some(reader), ..ThreadRecord::default() })
}

fn write<W: World, L: LabLock>(
    world: &W,
    lock: &L,
    turns: &Turns,
    readers: u64,
) -> Result<ThreadRecord, Failure> {
    let mut writer = RoleRecorder::default();
    for turn in 1.. {
        if !until(world, || turns.read.load(Ordering::Acquire) == turn * readers) {
            break;
        }
        let asked = world.now();
        let (got, result) = lock.write(|data| (world.now(), data.write_around(|| ())));
        result?;
        writer.time(asked, got, world.now());
        writer.executed += 1;
        writer.ops += 1;
        turns.written.store(turn, Ordering::Release);
    }
    Ok(ThreadRecord { writer: Some(writer), ..ThreadRecord::default() })
}

/// Waits for its turn; false if the run is over.
fn until<W: World>(world: &W, is_due: impl Fn() -> bool) -> bool {
    let began = world.now();
    loop {
        if !world.running() {
            return false;
        }
        if is_due() {
            return true;
        }
        if world.now().saturating_sub(began) < WATCH_NS {
            world.compute(PAUSES_BETWEEN_LOOKS);
        } else {
            world.sleep(NAP_NS);
        }
    }
}
