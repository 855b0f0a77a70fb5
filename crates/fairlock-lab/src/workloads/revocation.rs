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

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use serde::{Deserialize, Serialize};

use super::{Body, Failure, Request, check_no_update_was_lost, check_thread_count, run_threads};
use crate::error::LabError;
use crate::locks::{LabLock, Protected};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::world::World;

/// The name that rows carry.
pub const NAME: &str = "revocation";

/// A thread whose turn does not come within this sleeps between two looks: where threads outnumber
/// CPUs, it stands in the way of those whose turn it is.
const WATCH_NS: u64 = 1_000_000;
const NAP_NS: u64 = 20_000;
const PAUSES_BETWEEN_LOOKS: u32 = 4;

/// Parameters of [`revocation`](self).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RevocationParams {
    /// Threads that read; one more writes.
    pub readers: u32,
    /// Reads of each of them between two writes.
    pub reads_between: u32,
}

impl Default for RevocationParams {
    /// One reader, reading for some 100 µs: long enough for a lock to favour readers again.
    fn default() -> RevocationParams {
        RevocationParams { readers: 1, reads_between: 50_000 }
    }
}

impl RevocationParams {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// [`LabError::Parameter`] names the first one that does not.
    pub fn validate(&self) -> Result<(), LabError> {
        check_thread_count("readers", self.readers.into())
    }

    /// The row's `params`.
    pub fn row_params(&self) -> BTreeMap<String, f64> {
        let readers = f64::from(self.readers);
        [
            ("threads", readers + 1.0),
            ("readers", readers),
            ("writers", 1.0),
            ("reads_between", self.reads_between.into()),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
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

/// Runs the workload once on a fresh lock.
///
/// # Errors
/// When the lock loses a write, or threads cannot be started.
pub fn run<W: World, L: LabLock>(
    request: &Request<'_, W>,
    params: &RevocationParams,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let lock = L::new(Protected::new());
    let turns = Turns::default();
    let (lock, turns) = (&lock, &turns);
    let mut bodies: Vec<Body<'_>> = Vec::new();
    for _ in 0..params.readers {
        bodies.push(Box::new(|| read(world, lock, turns, params.reads_between)));
    }
    bodies.push(Box::new(|| write(world, lock, turns, params.readers.into())));
    let mut repetition = run_threads(request, NAME, bodies)?;
    check_no_update_was_lost(request, NAME, &repetition, lock.read(Protected::value))?;
    repetition.events = lock.events();
    Ok(repetition)
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
