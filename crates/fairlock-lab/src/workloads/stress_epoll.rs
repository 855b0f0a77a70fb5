//! `stress-epoll`: many threads that add to counters of their own, back to back, and one that waits for all of
//! them (the stress test of Nam Cao's "eventpoll: Replace rwlock with spinlock").
//!
//! Each producer stays on a CPU, round robin. The consumer does not, unless it is a real-time thread: then it stays
//! on the last one. Its batch has space for all counters, and it reads each one that is reported. What the source
//! reports, events per millisecond, is the rate of the writers here, in thousands a second.
//!
//! It counts *additions*, and a consumer that seldom comes looks fast: each read takes more of them at once.
//! So rows have beside it the reads (the reader's operations), the calls that waited, how many additions one
//! read brought, and how long after an addition it was read.
//!
//! The source's program ends when so many additions were read. Here a run ends with its time, as all runs do:
//! producers add until then, and the consumer reads on until it has it all, which does not count.

use std::time::Duration;

use clap::Args;
use fairlock_report::random::{XorShift, jittered};
use fairlock_report::units::{Length, at_least_one, count};
use serde::{Deserialize, Serialize};

use super::{Body, Failure, run_threads_by_priority};
use crate::error::LabError;
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::pollers::{PATIENCE, Poller, STAMP_EVERY, Source, Trigger, Written, sources};
use crate::workload::{
    DEFAULT_POLLERS, DefaultPoints, DefaultSubjects, Machine, POLLERS, Request, Role, Subjects,
    WithPoller, Workload, check_length, check_thread_count, defaults, points, roles,
    run_with_poller, running, wrong,
};
use crate::world::{FAIR, Priority, World};

/// Host seconds for one simulated second of each thread that runs: with a think, or under a lock.
const SIMULATION_COST: f64 = 1.6;
/// The same back to back, where no thread waits for another one.
const BACK_TO_BACK_SIMULATION_COST: f64 = 37.0;
/// The list that is so.
const LOCK_FREE_LIST: &str = "ready";

/// Parameters of [`stress-epoll`](self).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct StressEpoll {
    /// Threads that add, each to a counter of its own
    #[arg(long = "threads", value_name = "N", default_value_t = 8, value_parser = at_least_one)]
    pub writers: u32,
    /// The thread that waits for all of them; there is one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count, hide = true)]
    pub readers: u32,
    /// When a source is reported
    #[arg(long, value_enum, default_value = "level")]
    pub trigger: Trigger,
    /// Time between two additions of a thread: pauses (10p) or time (200ns), ±25 %. On a simulated machine it may
    /// stand for the system call around an addition
    #[arg(long, value_name = "LENGTH", default_value = "0p")]
    pub think: Length,
    /// Real-time priority of the thread that waits: 1 to 98 (SCHED_FIFO), or 0 for none. On real threads only. The
    /// run fails if that thread takes nearly all of its CPU
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count)]
    pub consumer_priority: u32,
}

/// The highest one is that of the thread that ends the run.
const HIGHEST_CONSUMER_PRIORITY: u32 = 98;

impl Default for StressEpoll {
    fn default() -> StressEpoll {
        defaults()
    }
}

impl Workload for StressEpoll {
    const NAME: &'static str = "stress-epoll";
    const ABOUT: &'static str = "threads that each add to a counter, and one that waits for all: epoll and lists like its own";
    const EXAMPLES: &'static [&'static str] = &[
        "",
        "--poller kernel,ready --threads 8,128 --trigger edge",
        "--poller spin-list-mcs --threads 1          it only spins",
        "--poller kernel --think 20us --consumer-priority 1",
        "--on x86-12 --poller ready,rwlock-list-queued,spin-list-mcs --think 300ns",
    ];
    const SUBJECTS: Subjects = POLLERS;
    const DEFAULT_SUBJECTS: DefaultSubjects = DEFAULT_POLLERS;
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[points("writers", "8,16,32,64,128")];

    fn roles(&self) -> Vec<Role> {
        roles(&[("reader", self.readers), ("writer", self.writers)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = vec![
            ("trigger", self.trigger.words().to_owned()),
            ("think", format!("think {}", self.think.words())),
        ];
        if self.consumer_priority != 0 {
            let priority = format!("consumer of priority {}", self.consumer_priority);
            words.push(("consumer_priority", priority));
        }
        words
    }

    fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        check_thread_count("writers", self.writers.into())?;
        if self.readers != 1 {
            return wrong("readers", self.readers, "1: one thread waits".to_string());
        }
        if self.consumer_priority > HIGHEST_CONSUMER_PRIORITY {
            let valid = format!("0 to {HIGHEST_CONSUMER_PRIORITY}");
            return wrong("consumer_priority", self.consumer_priority, valid);
        }
        check_length("think", self.think, pause_ns)
    }

    fn check_subject(&self, name: &str, simulated: bool) -> Result<(), LabError> {
        if simulated && self.consumer_priority != 0 {
            let valid = "0 on a simulated machine".to_string();
            return wrong("consumer_priority", self.consumer_priority, valid);
        }
        (Self::SUBJECTS.check)(name, simulated)
    }

    fn simulation_cost(&self, lock: &str, cpus: u32) -> f64 {
        let is_back_to_back = lock == LOCK_FREE_LIST && self.think == Length::Pauses(0);
        let of_each = if is_back_to_back { BACK_TO_BACK_SIMULATION_COST } else { SIMULATION_COST };
        running(self.writers + self.readers, cpus) * of_each
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_with_poller(self, request)
    }
}

impl WithPoller for StressEpoll {
    fn run_with<W: Machine, P: Poller>(
        &self,
        request: &Request<'_, W>,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let poller = P::new()?;
        let sources = sources::<P>(self.writers, &poller, self.trigger, 0)?;
        let written = Written::default();
        let consumer =
            Consumer { world, poller: &poller, sources: &sources, written: &written, params: self };
        // At most 98: see `validate`.
        let priority = self.consumer_priority as Priority;
        let mut bodies: Vec<(Priority, Body<'_>)> =
            vec![(priority, Box::new(move || consumer.consume()))];
        for (index, source) in sources.iter().enumerate() {
            let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(index as u64);
            let producer = Producer {
                world,
                source,
                written: &written,
                think: self.think.pauses(world.pause_ns()),
                random: XorShift::new(seed),
            };
            let body = move || {
                world.stay(index);
                producer.produce::<P>()
            };
            bodies.push((FAIR, Box::new(body)));
        }
        run_threads_by_priority(request, StressEpoll::NAME, bodies)
    }
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
    params: &'a StressEpoll,
}

impl<W: World, P: Poller> Consumer<'_, W, P> {
    fn consume(self) -> Result<ThreadRecord, Failure> {
        let Consumer { world, poller, written, params, .. } = self;
        let mut reader = RoleRecorder { wait_calls: Some(0), ..RoleRecorder::default() };
        let mut batch = P::batch(self.sources.len());
        let (mut read, mut calls) = (0, 0);
        while !written.are_all_read(params.writers, read) {
            // Before the wait: what has returned until now, that has to report.
            let have_ended = written.have_ended(params.writers);
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
