//! With a list of ready sources between the threads. Adding one is one line in [`registry`]'s table.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlock::platform::Os;
use fairlock::ready::{Batch, List, RawCounter, RawPoll, Readiness, ReadyList, Trigger};
use fairlock_reference::ready::{RwLockList, SpinList};
use fairlock_sim::Sim;

use super::{InversionForm, InversionParams, LOW, contest, executed, kernel};
use crate::error::{LabError, Violation};
use crate::measure::Repetition;
use crate::plan::KERNEL;
use crate::workloads::{Failure, Request, broken};
use crate::world::{RealWorld, SimWorld, World};

/// Sources that the low one signals in turn. Signals come faster than they are read, so most of them
/// find their source on the list already.
pub(super) const SOURCES: usize = 64;
/// Signals between two looks at the clock.
const SIGNALS_PER_LOOK: usize = 16;

type Runner<W> = fn(&Request<'_, W>, &InversionParams) -> Result<Repetition, LabError>;

/// A registered list, with the workload compiled for it.
pub struct ListDescriptor {
    /// The name used in plans and rows.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    pub(crate) real: Runner<RealWorld>,
    /// On a simulated machine; none for the kernel's.
    pub(crate) simulated: Option<Runner<SimWorld>>,
}

macro_rules! registry {
    ($($name:literal $list:ident, $about:literal;)*) => {
        vec![$(ListDescriptor {
            name: $name,
            about: $about,
            real: run::<RealWorld, $list<Os>>,
            simulated: Some(run::<SimWorld, $list<Sim>>),
        }),*]
    };
}

/// Every list, in listing order.
pub fn registry() -> &'static [ListDescriptor] {
    static REGISTRY: OnceLock<Vec<ListDescriptor>> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut lists = registry! {
            "ready" ReadyList, "ReadyList: a producer that is preempted holds up nobody";
            "rwlock-list" RwLockList, "epoll's list before July 2025: producers share a reader-writer lock";
            "spin-list" SpinList, "epoll's list since: one lock for everybody";
        };
        lists.push(ListDescriptor {
            name: KERNEL,
            about: "epoll itself, on eventfds: nobody is preempted inside the kernel's spinlock",
            real: kernel::run::<RealWorld>,
            simulated: None,
        });
        lists
    })
}

/// The sources as the two threads see them.
pub(super) trait Sources: Sync {
    /// What the reader keeps.
    type State;
    fn new_state(&self) -> Self::State;
    fn signal(&self, source: usize) -> Result<(), Failure>;
    /// Asks which are ready, without waiting; calls `answered` and reads each of them. Answers the sum
    /// of what it read, none if nothing was ready.
    fn read(
        &self,
        state: &mut Self::State,
        answered: &mut dyn FnMut(),
    ) -> Result<Option<u64>, Failure>;
}

/// The sources of a poll of Fairlock's.
struct Polled<L: List> {
    counters: Vec<RawCounter<L>>,
    poll: RawPoll<L>,
}

impl<L: List> Sources for Polled<L> {
    type State = Batch;

    fn new_state(&self) -> Batch {
        Batch::with_capacity(SOURCES)
    }

    fn signal(&self, source: usize) -> Result<(), Failure> {
        self.counters[source].add(1);
        Ok(())
    }

    fn read(&self, batch: &mut Batch, answered: &mut dyn FnMut()) -> Result<Option<u64>, Failure> {
        self.poll.wait(batch, Some(Duration::ZERO));
        answered();
        let counts = batch.iter().map(|ready| self.counters[ready.token as usize].read());
        Ok(counts.map(Option::unwrap_or_default).reduce(|sum, count| sum + count))
    }
}

fn run<W: World, L: List>(
    request: &Request<'_, W>,
    params: &InversionParams,
) -> Result<Repetition, LabError> {
    let poll = RawPoll::new();
    let counters: Vec<RawCounter<L>> = (0..SOURCES).map(|_| RawCounter::new(0)).collect();
    for (token, counter) in counters.iter().enumerate() {
        poll.register(counter, token as u64, Readiness::READABLE, Trigger::Edge)
            .expect("a new source has no poll");
    }
    run_sources(request, params, &Polled { counters, poll })
}

/// Runs the three threads on any sources; afterwards everything that was signalled has been read.
pub(super) fn run_sources<W: World, S: Sources>(
    request: &Request<'_, W>,
    params: &InversionParams,
    sources: &S,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let total_read = AtomicU64::new(0);
    let work = || {
        let ends = world.now() + params.work_ns;
        let mut signals = 0;
        while world.now() < ends {
            for _ in 0..SIGNALS_PER_LOOK {
                sources.signal(signals % SOURCES)?;
                signals += 1;
            }
        }
        Ok(signals as u64)
    };
    let visit = |state: &mut S::State| {
        let mut got = 0;
        let read = sources.read(state, &mut || got = world.now())?;
        total_read.fetch_add(read.unwrap_or_default(), Ordering::Relaxed);
        Ok(got)
    };
    let repetition = contest(request, params, &work, &|| sources.new_state(), &visit)?;
    let failed = |failure| match failure {
        Failure::Error(error) => error,
        Failure::Violation(it) => broken(request.lock, InversionForm::List.name(), it),
    };
    // What is left, as far as the poll knows of it.
    let mut state = sources.new_state();
    while let Some(read) = sources.read(&mut state, &mut || ()).map_err(failed)? {
        total_read.fetch_add(read, Ordering::Relaxed);
    }
    let (writes, counted) = (executed(&repetition, LOW), total_read.into_inner());
    if counted != writes {
        return Err(failed(Violation::LostUpdate { writes, counted }.into()));
    }
    Ok(repetition)
}
