//! `uncontended`: a thread locks and unlocks, with nothing in between. That is what a lock costs when no
//! other thread wants it, or only other readers do. The rate is that of pairs of lock and unlock. Each
//! thread is pinned to a CPU of its own.
//!
//! Only the run as a whole is timed. Nothing is checked, because no thread writes beside another one. The
//! sections are empty, without anything that keeps a compiler from removing them: locks are made of
//! atomics, which compilers do not remove.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Body, Request, run_threads};
use crate::error::LabError;
use crate::locks::{LabLock, Protected};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::world::World;

/// The name that rows carry.
pub const NAME: &str = "uncontended";

/// Pairs between two looks whether the run is over: 2 to 100 µs of them.
const PAIRS: u64 = 1000;

/// Who takes the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uncontended {
    /// So many readers.
    Reads(u32),
    /// One writer.
    Writes,
}

impl Uncontended {
    /// The row's `params`.
    pub fn row_params(self) -> BTreeMap<String, f64> {
        let (readers, writers) = match self {
            Uncontended::Reads(readers) => (f64::from(readers), 0.0),
            Uncontended::Writes => (0.0, 1.0),
        };
        [("threads", readers + writers), ("readers", readers), ("writers", writers)]
            .map(|(name, value)| (name.to_string(), value))
            .into()
    }
}

/// Runs the workload once on a fresh lock.
///
/// # Errors
/// When a thread cannot be started.
pub fn run<W: World, L: LabLock>(
    request: &Request<'_, W>,
    what: &Uncontended,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let lock = L::new(Protected::new());
    // By value, so that no pair has to look up where the lock is.
    let lock = &lock;
    let reader = || -> Body<'_> {
        Box::new(move || {
            let pairs = pairs(world, move || lock.read(|_| ()));
            Ok(ThreadRecord { reader: Some(pairs), ..ThreadRecord::default() })
        })
    };
    let writer = || -> Body<'_> {
        Box::new(move || {
            let pairs = pairs(world, move || lock.write(|_| ()));
            Ok(ThreadRecord { writer: Some(pairs), ..ThreadRecord::default() })
        })
    };
    let bodies = match *what {
        Uncontended::Reads(readers) => (0..readers).map(|_| reader()).collect(),
        Uncontended::Writes => vec![writer()],
    };
    let mut repetition = run_threads(request, NAME, bodies)?;
    repetition.events = lock.events();
    Ok(repetition)
}

#[inline]
fn pairs<W: World>(world: &W, pair: impl Fn()) -> RoleRecorder {
    let mut recorder = RoleRecorder::default();
    loop {
        (0..PAIRS).for_each(|_| pair());
        recorder.executed += PAIRS;
        if !world.running() {
            return recorder;
        }
        recorder.ops += PAIRS;
    }
}
