//! `stress-epoll`: many threads that add to counters of their own, back to back, and one that waits for all of
//! them (the stress test of Nam Cao's "eventpoll: Replace rwlock with spinlock").
//!
//! Each producer stays on a CPU, round robin, the consumer does not. The consumer's batch has space for all
//! counters; it reads each one that is reported. What the source reports, events per millisecond, is the rate
//! of the writers here, in thousands a second.
//!
//! It counts *additions*, and a consumer that seldom comes looks fast: each read takes more of them at once.
//! So rows have beside it the reads (the reader's operations), the calls that waited, how many additions one
//! read brought, and how long after an addition it was read.
//!
//! The source's program ends when so many additions were read. Here a run ends with its time, as all runs do:
//! producers add until then, and the consumer reads on until it has it all, which does not count.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::epoll::{PATIENCE, Poller, STAMP_EVERY, Source, Trigger, Written, sources};
use super::mix::jittered;
use super::{Body, Failure, Request, check_length, check_thread_count, run_threads};
use crate::error::LabError;
use crate::measure::statistics::XorShift;
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::units::Length;
use crate::world::World;

/// The name that rows carry.
pub const NAME: &str = "stress-epoll";

/// Parameters of [`stress-epoll`](self).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StressEpollParams {
    /// Threads that add, each to a counter of its own.
    pub producers: u32,
    /// When a counter is reported.
    pub trigger: Trigger,
    /// What a producer does between two additions, ±25 %. On a simulated machine it may stand for the system
    /// call around an addition.
    pub think: Length,
}

impl Default for StressEpollParams {
    /// Eight producers, level-triggered, back to back.
    fn default() -> StressEpollParams {
        StressEpollParams { producers: 8, trigger: Trigger::Level, think: Length::Pauses(0) }
    }
}

impl StressEpollParams {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// [`LabError::Parameter`] names the first one that does not.
    pub fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        check_thread_count("writers", self.producers.into())?;
        check_length("think", self.think, pause_ns)
    }

    /// The row's `params`.
    pub fn row_params(&self, pause_ns: f64) -> BTreeMap<String, f64> {
        [
            ("readers", 1.0),
            ("writers", f64::from(self.producers)),
            ("trigger", f64::from(self.trigger.number())),
            ("think_pauses", self.think.pauses(pause_ns).into()),
            ("pause_ns", pause_ns),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    }
}

/// Runs the workload once on a fresh poller.
///
/// # Errors
/// When an event is lost, the system has no more descriptors, or threads cannot be started.
pub fn run<W: World, P: Poller>(
    request: &Request<'_, W>,
    params: &StressEpollParams,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let poller = P::new()?;
    let sources = sources::<P>(params.producers, &poller, params.trigger, 0)?;
    let written = Written::default();
    let consumer =
        Consumer { world, poller: &poller, sources: &sources, written: &written, params };
    let mut bodies: Vec<Body<'_>> = vec![Box::new(move || consumer.consume())];
    for (index, source) in sources.iter().enumerate() {
        let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(index as u64);
        let producer = Producer {
            world,
            source,
            written: &written,
            think: params.think.pauses(world.pause_ns()),
            random: XorShift::new(seed),
        };
        bodies.push(Box::new(move || {
            world.stay(index);
            producer.produce::<P>()
        }));
    }
    run_threads(request, NAME, bodies)
}

struct Producer<'a, W, C> {
    world: &'a W,
    source: &'a Source<C>,
    written: &'a Written,
    think: u32,
    random: XorShift,
}

impl<W: World, C> Producer<'_, W, C> {
    fn produce<P: Poller<Counter = C>>(mut self) -> Result<ThreadRecord, Failure> {
        let mut writer = RoleRecorder::default();
        let mut writing = self.written.begin();
        let added = self.add_until_the_end::<P>(&mut writer);
        // The consumer hears of the end by one more addition, whatever the end was.
        writer.executed += 1;
        writing.tell(writer.executed);
        let added = added.and(P::add(&self.source.counter));
        drop(writing);
        added?;
        Ok(ThreadRecord { writer: Some(writer), ..ThreadRecord::default() })
    }

    #[inline]
    fn add_until_the_end<P: Poller<Counter = C>>(
        &mut self,
        writer: &mut RoleRecorder,
    ) -> Result<(), LabError> {
        let Producer { world, source, .. } = *self;
        let mut until_stamp = 0;
        loop {
            if until_stamp == 0 {
                source.stamp.leave(writer.executed + 1, || world.now());
                until_stamp = STAMP_EVERY;
            }
            until_stamp -= 1;
            P::add(&source.counter)?;
            writer.executed += 1;
            if !world.running() {
                return Ok(());
            }
            writer.ops += 1;
            if self.think > 0 {
                world.compute(jittered(self.think, &mut self.random));
            }
        }
    }
}

struct Consumer<'a, W, P: Poller> {
    world: &'a W,
    poller: &'a P,
    sources: &'a [Source<P::Counter>],
    written: &'a Written,
    params: &'a StressEpollParams,
}

impl<W: World, P: Poller> Consumer<'_, W, P> {
    fn consume(self) -> Result<ThreadRecord, Failure> {
        let Consumer { world, poller, written, params, .. } = self;
        let mut reader = RoleRecorder { wait_calls: Some(0), ..RoleRecorder::default() };
        let mut batch = P::batch(self.sources.len());
        let (mut read, mut calls) = (0, 0);
        while !written.are_all_read(params.producers, read) {
            // Before the wait: what has returned until now, that has to report.
            let have_ended = written.have_ended(params.producers);
            let timeout = if have_ended { Duration::ZERO } else { PATIENCE };
            let reported = poller.wait(&mut batch, timeout)?;
            calls += u64::from(world.running());
            let before = read;
            for place in 0..reported {
                read += self.deliver(P::token(&batch, place), &mut reader)?;
            }
            if have_ended && read == before {
                return Err(written.lost(read).into());
            }
        }
        reader.wait_calls = Some(calls);
        Ok(ThreadRecord { reader: Some(reader), ..ThreadRecord::default() })
    }

    /// Reads a counter that was reported; answers what was in it.
    fn deliver(&self, token: u64, reader: &mut RoleRecorder) -> Result<u64, LabError> {
        let source = &self.sources[token as usize];
        let count = P::read(&source.counter)?;
        if self.params.trigger == Trigger::Once {
            self.poller.rearm(&source.counter, token)?;
        }
        let Some(count) = count else { return Ok(0) };
        if let Some(latency) = source.took(count, || self.world.now()) {
            reader.wait.record(latency);
            reader.latency.record(latency);
        }
        reader.executed += 1;
        reader.ops += u64::from(self.world.running());
        Ok(count)
    }
}
