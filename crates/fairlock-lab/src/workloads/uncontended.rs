//! `uncontended`: a thread locks and unlocks, with nothing in between. That is what a lock costs when no
//! other thread wants it, or only other readers do. The rate is that of pairs of lock and unlock. Each
//! thread is pinned to a CPU of its own.
//!
//! Only the run as a whole is timed. Nothing is checked, because no thread writes beside another one. The
//! sections are empty, without anything that keeps a compiler from removing them: locks are made of
//! atomics, which compilers do not remove.

use clap::Args;
use crossbeam_utils::CachePadded;
use fairlock_report::units::count;
use serde::{Deserialize, Serialize};

use super::{Body, bodies, run_threads};
use crate::error::LabError;
use crate::locks::{LabLock, New, Protected};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::workload::{
    DefaultPoints, Machine, Request, Role, UnderLock, Workload, check_thread_count, defaults,
    roles, run_under_lock, wrong,
};
use crate::world::World;

/// Pairs between two looks whether the run is over: 2 to 100 µs of them.
const PAIRS: u64 = 1000;

/// Parameters of [`uncontended`](self).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Uncontended {
    /// Readers, each on a CPU of its own
    #[arg(long, value_name = "N", value_parser = count)]
    pub readers: Option<u32>,
    /// Writers: one alone, or none
    #[arg(long, value_name = "N", value_parser = count)]
    pub writers: Option<u32>,
}

impl Default for Uncontended {
    fn default() -> Uncontended {
        defaults()
    }
}

impl Uncontended {
    /// So many readers.
    pub fn reads(readers: u32) -> Uncontended {
        Uncontended { readers: Some(readers), writers: Some(0) }
    }

    /// One writer.
    pub fn writes() -> Uncontended {
        Uncontended { readers: Some(0), writers: Some(1) }
    }

    fn counts(&self) -> (u32, u32) {
        match (self.readers, self.writers) {
            (None, None | Some(0)) => (1, 0),
            (readers, writers) => (readers.unwrap_or(0), writers.unwrap_or(0)),
        }
    }
}

impl Workload for Uncontended {
    const NAME: &'static str = "uncontended";
    const ABOUT: &'static str =
        "pinned threads that lock and unlock: what a pair costs alone, or among readers";
    const EXAMPLES: &'static [&'static str] = &[
        "--lock rwlock,std,parking_lot --seconds 0.02 --repetitions 15",
        "--lock rwlock,sharded --readers 1,2",
        "--writers 1",
    ];
    const DEFAULT_POINTS: &'static [DefaultPoints] =
        &[DefaultPoints { option: "writers", values: "0,1", unless: &["readers"] }];

    fn roles(&self) -> Vec<Role> {
        let (readers, writers) = self.counts();
        roles(&[("reader", readers), ("writer", writers)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn validate(&self, _pause_ns: f64) -> Result<(), LabError> {
        match self.counts() {
            (readers @ 1.., 0) => check_thread_count("readers", readers.into()),
            (0, 1) => Ok(()),
            (readers, writers) => wrong(
                "readers + writers",
                format!("{readers} + {writers}"),
                "readers alone, or one writer alone".to_string(),
            ),
        }
    }

    fn settled(self) -> Uncontended {
        let (readers, writers) = self.counts();
        Uncontended { readers: Some(readers), writers: Some(writers) }
    }

    fn is_pinned(&self) -> bool {
        true
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_lock(self, request)
    }
}

impl UnderLock for Uncontended {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let lock = CachePadded::new(new(Protected::new()));
        let lock: &L = &lock;
        // By value, so that no pair has to look up where the lock is.
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
        let bodies = match self.counts() {
            (0, _) => vec![writer()],
            (readers, _) => bodies(readers, &|_| reader()),
        };
        let mut repetition = run_threads(request, Uncontended::NAME, bodies)?;
        repetition.events = lock.events();
        Ok(repetition)
    }
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
