//! `inversion-list`: a list of ready sources between the threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{LOW, NOTE, Times, contest, executed};
use crate::error::{Failure, LabError, Violation};
use crate::measure::Repetition;
use crate::pollers::{Poller, Trigger};
use crate::workload::{
    DEFAULT_POLLERS, DefaultSubjects, Machine, Need, POLLERS, Request, Role, Subjects, WithPoller,
    Workload, run_with_poller,
};

/// Sources that the low one signals in turn. Signals come faster than they are read, so most of them
/// find their source on the list already.
const SOURCES: usize = 64;
/// Signals between two looks at the clock.
const SIGNALS_PER_LOOK: usize = 16;

/// Parameters of [`inversion-list`](super).
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InversionList {
    /// When the threads do what they do.
    #[command(flatten)]
    pub times: Times,
}

impl Workload for InversionList {
    const NAME: &'static str = "inversion-list";
    const ABOUT: &'static str = "real-time threads on one CPU: a hog preempts a producer while another thread asks what is ready";
    const EXAMPLES: &'static [&'static str] = &["", "--on x86-12          needs no permission"];
    const NOTE: &'static str = NOTE;
    const SUBJECTS: Subjects = POLLERS;
    const DEFAULT_SUBJECTS: DefaultSubjects = DEFAULT_POLLERS;
    const NEEDS: &'static [Need] = &[Need::RealTime];

    fn roles(&self) -> Vec<Role> {
        Times::roles()
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        self.times.words()
    }

    fn validate(&self, _pause_ns: f64) -> Result<(), LabError> {
        self.times.validate()
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_with_poller(self, request)
    }
}

/// Sources, the poller that reports them, and what was read of them.
struct Sources<P: Poller> {
    counters: Vec<P::Counter>,
    poller: P,
}

impl<P: Poller> Sources<P> {
    fn new() -> Result<Self, LabError> {
        let poller = P::new()?;
        let mut counters = Vec::with_capacity(SOURCES);
        for token in 0..SOURCES as u64 {
            let counter = P::counter()?;
            poller.register(&counter, token, Trigger::Edge)?;
            counters.push(counter);
        }
        Ok(Sources { counters, poller })
    }

    /// Asks which are ready, without waiting; calls `answered` and reads each of them. Answers the sum
    /// of what it read, none if nothing was ready.
    fn read(&self, batch: &mut P::Batch, answered: impl FnOnce()) -> Result<Option<u64>, LabError> {
        let ready = self.poller.wait(batch, Duration::ZERO)?;
        answered();
        let mut sum = None;
        for place in 0..ready {
            let counter = &self.counters[P::token(batch, place) as usize];
            // Nothing in it: read already, with the signal before.
            let count = P::read(counter)?.unwrap_or_default();
            sum = Some(sum.unwrap_or(0) + count);
        }
        Ok(sum)
    }
}

impl WithPoller for InversionList {
    fn run_with<W: Machine, P: Poller>(
        &self,
        request: &Request<'_, W>,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let sources = Sources::<P>::new()?;
        let total_read = AtomicU64::new(0);
        let work = || {
            let ends = world.now() + self.times.work_ns;
            let mut signals = 0;
            while world.now() < ends {
                for _ in 0..SIGNALS_PER_LOOK {
                    P::add(&sources.counters[signals % SOURCES])?;
                    signals += 1;
                }
            }
            Ok(signals as u64)
        };
        let visit = |batch: &mut P::Batch| -> Result<u64, Failure> {
            let mut got = 0;
            let read = sources.read(batch, || got = world.now())?;
            total_read.fetch_add(read.unwrap_or_default(), Ordering::Relaxed);
            Ok(got)
        };
        let batch = || P::batch(SOURCES);
        let repetition = contest(request, Self::NAME, &self.times, &work, &batch, &visit)?;
        // What is left, as far as the poller knows of it.
        let mut batch = P::batch(SOURCES);
        while let Some(read) = sources.read(&mut batch, || ())? {
            total_read.fetch_add(read, Ordering::Relaxed);
        }
        let (writes, counted) = (executed(&repetition, LOW), total_read.into_inner());
        if counted != writes {
            return Err(request.broken(Self::NAME, Violation::LostUpdate { writes, counted }));
        }
        Ok(repetition)
    }
}
