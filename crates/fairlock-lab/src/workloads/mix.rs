//! `mix`: readers and writers of one lock, short sections, short thinks (the microbenchmark
//! behind the Linux kernel's rwsem changes).
//!
//! Either some threads only read and the others only write, or every thread draws each
//! operation anew. Lengths are PAUSE iterations, or nanoseconds converted with the measured
//! length of a PAUSE. Think times vary by ±25 % so that threads do not fall into step.
//!
//! What is measured: every operation's wait; hold, whole latency and longest bypass for every
//! `(64 + 16 · threads)`-th operation, because reading the clock once more or summing the
//! readers' counters takes as long as a tiny section. The bypass of a write is also counted if
//! the write before it waited 50 µs or more, and the longest latency knows all long waits.
//!
//! Timing each read takes about 25 ns. [`Mix::time_reads_every`] thins it out where the
//! throughput of cheap reads is the question; the waits of the other reads are then unknown.

use clap::Args;
use crossbeam_utils::CachePadded;
use fairlock_report::random::{XorShift, jittered};
use fairlock_report::units::{Length, at_least_one, count, parse_percent};
use serde::{Deserialize, Serialize};

use super::client::{Client, Look};
use super::{Body, Failure, check_no_update_was_lost, run_threads};
use crate::error::LabError;
use crate::locks::{LabLock, Protected};
use crate::measure::{Acquisitions, Repetition, ThreadRecord};
use crate::workload::{
    DEFAULT_LOCKS, DefaultPoints, DefaultSubjects, Machine, Request, Role, UnderLock, Workload,
    check_length, check_share, check_thread_count, defaults, percent_of_reads, roles,
    run_under_lock, wrong,
};
use crate::world::World;

/// Who does what.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Roles {
    /// Some threads only read, the others only write.
    Dedicated { readers: u32, writers: u32 },
    /// Every thread draws each operation anew, so many percent of them reads.
    Mixed { threads: u32, read_percent: f64 },
}

/// Parameters of [`mix`](self). Lengths of one role go before those of both.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Mix {
    /// Threads, half of them readers; with --read-percent every thread does both
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub threads: Option<u32>,
    /// Threads that only read, instead of --threads
    #[arg(long, value_name = "N", value_parser = count, conflicts_with_all = ["threads", "read_percent"])]
    pub readers: Option<u32>,
    /// Threads that only write, instead of --threads
    #[arg(long, value_name = "N", value_parser = count, conflicts_with_all = ["threads", "read_percent"])]
    pub writers: Option<u32>,
    /// Share of operations that read; the rest write
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub read_percent: Option<f64>,
    /// Time inside the lock: pauses (10p) or time (200ns)
    #[arg(long, value_name = "LENGTH", default_value = "10p")]
    pub section: Length,
    /// The same for readers
    #[arg(long, value_name = "LENGTH")]
    pub read_section: Option<Length>,
    /// The same for writers
    #[arg(long, value_name = "LENGTH")]
    pub write_section: Option<Length>,
    /// Time between two operations: pauses (10p) or time (200ns)
    #[arg(long, value_name = "LENGTH", default_value = "10p")]
    pub think: Length,
    /// The same after a read
    #[arg(long, value_name = "LENGTH")]
    pub read_think: Option<Length>,
    /// The same after a write
    #[arg(long, value_name = "LENGTH")]
    pub write_think: Option<Length>,
    /// Time one read in N; with more than 1, a starving reader may go unseen in `wait`, though not in the rates
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub time_reads_every: u32,
}

impl Default for Mix {
    fn default() -> Mix {
        defaults()
    }
}

impl Mix {
    /// Threads that only read and threads that only write.
    pub fn dedicated(readers: u32, writers: u32) -> Mix {
        Mix { readers: Some(readers), writers: Some(writers), ..Mix::default() }.settled()
    }

    /// Threads that do both.
    pub fn mixed(threads: u32, read_percent: f64) -> Mix {
        let (threads, read_percent) = (Some(threads), Some(read_percent));
        Mix { threads, read_percent, ..Mix::default() }.settled()
    }

    fn who(&self) -> Roles {
        let threads = self.threads.unwrap_or(2);
        match (self.read_percent, self.readers, self.writers) {
            (Some(read_percent), ..) => Roles::Mixed { threads, read_percent },
            (None, None, None) => {
                Roles::Dedicated { readers: threads - threads / 2, writers: threads / 2 }
            }
            (None, readers, writers) => {
                Roles::Dedicated { readers: readers.unwrap_or(0), writers: writers.unwrap_or(0) }
            }
        }
    }

    fn lengths(&self) -> [(&'static str, Length); 4] {
        [
            ("read_section", self.read_section.unwrap_or(self.section)),
            ("write_section", self.write_section.unwrap_or(self.section)),
            ("read_think", self.read_think.unwrap_or(self.think)),
            ("write_think", self.write_think.unwrap_or(self.think)),
        ]
    }
}

/// One length where both roles have the same, else one for each.
fn settle(both: &mut Length, read: &mut Option<Length>, write: &mut Option<Length>) {
    let (of_reads, of_writes) = (read.unwrap_or(*both), write.unwrap_or(*both));
    if of_reads == of_writes {
        (*both, *read, *write) = (of_reads, None, None);
    }
}

impl Workload for Mix {
    const NAME: &'static str = "mix";
    const ABOUT: &'static str =
        "readers and writers (or threads that do both) on one lock, short sections, short thinking";
    const SITUATION: Option<&'static str> = Some("Short sections");
    const EXAMPLES: &'static [&'static str] = &[
        "--lock rwlock,std,usync --threads 2,8,32 --section 10p --think 200ns",
        "--lock all --threads 8 --read-percent 99 --out mix.jsonl",
        "--on ivybridge-ex-8s --lock linux-5.1,linux-5.2 --threads 8,64,240",
        "--on ivybridge-ex-8s --threads 8 --timeline mix.json",
    ];
    const DEFAULT_SUBJECTS: DefaultSubjects = DefaultSubjects {
        here: &["rwlock", "rwsem", "std", "parking_lot", "usync"],
        ..DEFAULT_LOCKS
    };
    const DEFAULT_POINTS: &'static [DefaultPoints] =
        &[DefaultPoints { option: "threads", values: "2,8", unless: &["readers", "writers"] }];

    fn roles(&self) -> Vec<Role> {
        match self.who() {
            Roles::Dedicated { readers, writers } => {
                roles(&[("reader", readers), ("writer", writers)])
            }
            Roles::Mixed { threads, .. } => roles(&[("thread", threads)]),
        }
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = Vec::new();
        if let Some(percent) = self.read_percent {
            words.push(("read_percent", percent_of_reads(percent)));
        }
        let length = |name: &'static str, words: &str, length: Option<Length>| {
            length.map(|length| (name, format!("{words} {}", length.words())))
        };
        let sections = [
            length("section", "section", Some(self.section)),
            length("read_section", "read section", self.read_section),
            length("write_section", "write section", self.write_section),
        ];
        words.extend(sections.into_iter().flatten());
        words.push(("think", format!("think {}", self.think.words())));
        for (name, after, length) in [
            ("read_think", "a read", self.read_think),
            ("write_think", "a write", self.write_think),
        ] {
            words.extend(length.map(|it| (name, format!("think {} after {after}", it.words()))));
        }
        words
    }

    fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        if let (None, None, Some(1), None) =
            (self.readers, self.writers, self.threads, self.read_percent)
        {
            let valid = "at least 2, half readers and half writers; or say how many read with \
                         read_percent, or with readers and writers";
            return wrong("threads", 1, valid.to_string());
        }
        check_thread_count("threads", self.threads())?;
        if let Some(read_percent) = self.read_percent {
            check_share(read_percent)?;
        }
        if self.time_reads_every == 0 {
            return wrong("time_reads_every", 0, "1 (all) or more".to_string());
        }
        let mut lengths = self.lengths().into_iter();
        lengths.try_for_each(|(name, length)| check_length(name, length, pause_ns))
    }

    fn settled(mut self) -> Mix {
        if let Roles::Dedicated { readers, writers } = self.who()
            && self.threads() != 1
        {
            (self.readers, self.writers) = (Some(readers), Some(writers));
        }
        self.threads = Some(self.threads() as u32);
        settle(&mut self.section, &mut self.read_section, &mut self.write_section);
        settle(&mut self.think, &mut self.read_think, &mut self.write_think);
        self
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_lock(self, request)
    }
}

/// How a thread picks its next operation: a read if 32 random bits are below this.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ReadShare(u64);

impl ReadShare {
    const ALWAYS: ReadShare = ReadShare(1 << 32);
    const NEVER: ReadShare = ReadShare(0);

    pub(super) fn percent(percent: f64) -> ReadShare {
        ReadShare((percent / 100.0 * Self::ALWAYS.0 as f64).round() as u64)
    }

    pub(super) fn has_reads(self) -> bool {
        self.0 > Self::NEVER.0
    }

    pub(super) fn has_writes(self) -> bool {
        self.0 < Self::ALWAYS.0
    }

    #[inline]
    pub(super) fn pick(self, random: &mut XorShift) -> bool {
        self == ReadShare::ALWAYS || u64::from(random.next_u32()) < self.0
    }
}

fn shares(roles: Roles) -> Vec<ReadShare> {
    match roles {
        // Readers first, then writers: round-robin pinning then spreads both roles evenly.
        Roles::Dedicated { readers, writers } => {
            let readers = (0..readers).map(|_| ReadShare::ALWAYS);
            readers.chain((0..writers).map(|_| ReadShare::NEVER)).collect()
        }
        Roles::Mixed { threads, read_percent } => {
            vec![ReadShare::percent(read_percent); threads as usize]
        }
    }
}

/// How long threads stay away, in PAUSE iterations of this machine.
#[derive(Debug, Clone, Copy)]
struct Thinks {
    read: u32,
    write: u32,
}

/// True the first time and then once in so many.
#[derive(Debug, Clone, Copy)]
struct Every {
    period: u32,
    left: u32,
}

impl Every {
    fn new(period: u32) -> Every {
        Every { period, left: 0 }
    }

    #[inline]
    fn is_due(&mut self) -> bool {
        let due = self.left == 0;
        self.left = if due { self.period } else { self.left } - 1;
        due
    }
}

/// Decides how closely to look at each operation of one thread.
#[derive(Debug, Clone, Copy)]
struct Looks {
    /// For timing all of an operation.
    whole: Every,
    /// For timing a read's wait.
    read: Every,
}

impl Looks {
    #[inline]
    fn at_read(&mut self) -> Look {
        if !self.read.is_due() { Look::Count } else { self.at_write() }
    }

    #[inline]
    fn at_write(&mut self) -> Look {
        if self.whole.is_due() { Look::Whole } else { Look::Wait }
    }
}

/// What threads do inside the lock, between looks of the lab at it.
pub(crate) trait Inside: Sync {
    /// With the lock held shared.
    fn read(&self, random: &mut XorShift);
    /// With the lock held exclusively.
    fn write(&self, random: &mut XorShift);
}

/// Computing for so many PAUSEs.
struct Computing<'a, W> {
    world: &'a W,
    read: u32,
    write: u32,
}

impl<W: World> Inside for Computing<'_, W> {
    #[inline]
    fn read(&self, _random: &mut XorShift) {
        self.world.compute(self.read);
    }

    #[inline]
    fn write(&self, _random: &mut XorShift) {
        self.world.compute(self.write);
    }
}

impl UnderLock for Mix {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
    ) -> Result<Repetition, LabError> {
        let pause_ns = request.world.pause_ns();
        let [read, write, _, _] = self.lengths().map(|(_, length)| length.pauses(pause_ns));
        let inside = Computing { world: request.world, read, write };
        self.run_inside::<W, L>(request, Mix::NAME, &inside)
    }
}

impl Mix {
    /// Runs once on a fresh lock, whatever threads do inside it.
    pub(crate) fn run_inside<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        workload: &'static str,
        inside: &impl Inside,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let lock = CachePadded::new(L::new(Protected::new()));
        let lock: &L = &lock;
        let pause_ns = world.pause_ns();
        let [_, _, read, write] = self.lengths().map(|(_, length)| length.pauses(pause_ns));
        let thinks = Thinks { read, write };
        let shares = shares(self.who());
        let acquisitions = Acquisitions::new(shares.len());
        let looks = Looks {
            whole: Every::new(64 + 16 * shares.len() as u32),
            read: Every::new(self.time_reads_every),
        };

        let bodies = shares.iter().enumerate().map(|(index, &share)| {
            let client = Client::new(world, lock, &acquisitions, index);
            let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(index as u64);
            let random = XorShift::new(seed);
            Box::new(move || work(world, client, share, inside, thinks, looks, random)) as Body<'_>
        });
        let mut repetition = run_threads(request, workload, bodies.collect())?;
        check_no_update_was_lost(request, workload, &repetition, lock.read(Protected::value))?;
        repetition.events = lock.events();
        Ok(repetition)
    }
}

/// One thread's loop.
fn work<W: World, L: LabLock>(
    world: &W,
    mut client: Client<'_, W, L>,
    share: ReadShare,
    inside: &impl Inside,
    thinks: Thinks,
    mut looks: Looks,
    mut random: XorShift,
) -> Result<ThreadRecord, Failure> {
    loop {
        let think = if share.pick(&mut random) {
            let look = looks.at_read();
            client.read(look, || {
                inside.read(&mut random);
                Ok(0)
            })?;
            thinks.read
        } else {
            let look = looks.at_write();
            client.write(look, || {
                inside.write(&mut random);
                Ok(0)
            })?;
            thinks.write
        };
        if !world.running() {
            break;
        }
        world.compute(jittered(think, &mut random));
    }
    Ok(ThreadRecord {
        reader: share.has_reads().then_some(client.reader),
        writer: share.has_writes().then_some(client.writer),
        excluded_ns: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_taken_as_often_as_asked() {
        let mut every = Every::new(3);
        let due: Vec<bool> = (0..7).map(|_| every.is_due()).collect();
        assert_eq!(due, [true, false, false, true, false, false, true]);
        let mut always = Every::new(1);
        assert!((0..5).all(|_| always.is_due()));
    }

    #[test]
    fn read_shares_include_their_ends() {
        let mut random = XorShift::new(1);
        assert!((0..1000).all(|_| ReadShare::percent(100.0).pick(&mut random)));
        assert!(!(0..1000).any(|_| ReadShare::percent(0.0).pick(&mut random)));
        assert!(!ReadShare::percent(100.0).has_writes());
        assert!(ReadShare::percent(99.9).has_writes());
    }
}
