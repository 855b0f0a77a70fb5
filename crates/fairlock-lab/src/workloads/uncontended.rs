//! `uncontended`: one thread locks and unlocks, with nothing in between: what a lock costs when
//! nobody else wants it. The rate is that of whole pairs, lock and unlock.
//!
//! Nothing is timed but the run, and nothing is checked: a thread that is alone cannot be let in
//! wrongly.

use std::collections::BTreeMap;
use std::hint::black_box;

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

/// How the thread takes the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uncontended {
    /// Shared.
    Reads,
    /// Exclusively.
    Writes,
}

impl Uncontended {
    /// The row's `params`.
    pub fn row_params(self) -> BTreeMap<String, f64> {
        let (readers, writers) = if self == Uncontended::Reads { (1.0, 0.0) } else { (0.0, 1.0) };
        [("threads", 1.0), ("readers", readers), ("writers", writers)]
            .map(|(name, value)| (name.to_string(), value))
            .into()
    }
}

/// Runs the workload once on a fresh lock.
///
/// # Errors
/// When the thread cannot be started.
pub fn run<W: World, L: LabLock>(
    request: &Request<'_, W>,
    what: &Uncontended,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let lock = L::new(Protected::new());
    let body: Body<'_> = match what {
        Uncontended::Reads => Box::new(|| {
            let pairs = pairs(world, || lock.read(|data| _ = black_box(data)));
            Ok(ThreadRecord { reader: Some(pairs), ..ThreadRecord::default() })
        }),
        Uncontended::Writes => Box::new(|| {
            let pairs = pairs(world, || lock.write(|data| _ = black_box(data)));
            Ok(ThreadRecord { writer: Some(pairs), ..ThreadRecord::default() })
        }),
    };
    let mut repetition = run_threads(request, NAME, vec![body])?;
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
