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
//! Who starts how decides what a lock's queue looks like at first, and under some locks what it looks like ever after:
//! [`Mix::order`] says in which order readers and writers stand, [`Mix::arrival`] how they come to the lock. While
//! threads arrive nothing is measured: neither operations nor times nor lock events. CPU time and context
//! switches of real threads are of the whole run, as is the time that they are divided by.
//!
//! A bench of readers and writers also runs each role alone, from which the limit of the mix follows.
//!
//! Timing each read takes about 25 ns. [`Mix::time_reads_every`] thins it out where the
//! throughput of cheap reads is the question; the waits of the other reads are then unknown.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use clap::{Args, ValueEnum};
use crossbeam_utils::CachePadded;
use fairlock_report::random::{XorShift, jittered, shuffle};
use fairlock_report::units::{Length, at_least_one, count, parse_percent};
use serde::{Deserialize, Serialize};

use super::arrival::Arrival as Arriving;
use super::client::{Client, Look, hold};
use super::{Failure, bodies, check_no_update_was_lost, run_threads_within};
use crate::error::LabError;
use crate::locks::{LabLock, New, Protected};
use crate::measure::{Acquisitions, READER, Repetition, ThreadRecord, WRITER};
use crate::workload::{
    DEFAULT_LOCKS, DefaultPoints, DefaultSubjects, Machine, Request, Role, UnderLock, Workload,
    check_length, check_share, check_thread_count, defaults, numbered, percent_of_reads, roles,
    run_under_lock, wrong,
};
use crate::world::{Window, World};

/// Who does what.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Roles {
    /// Some threads only read, the others only write.
    Dedicated { readers: u32, writers: u32 },
    /// Every thread draws each operation anew, so many percent of them reads.
    Mixed { threads: u32, read_percent: f64 },
}

/// In which order readers and writers stand, and begin on the CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Readers first, then writers
    Apart,
    /// Reader, writer, reader, writer; unequal numbers are spread evenly
    Interleaved,
    /// Another order in each repetition
    Shuffled,
}

/// How threads come to the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// All at one moment
    Together,
    /// One after the other; measured once the last one has come
    Staggered,
    /// The same behind one thread more, which holds the lock until all others wait for it; measured from its release
    Queued,
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Order::Apart => "apart",
            Order::Interleaved => "interleaved",
            Order::Shuffled => "shuffled",
        }
    }
}

/// How far apart threads arrive where nothing is said: more than a wake-up takes, so that they sleep when the next comes.
const STAGGER: Length = Length::Nanoseconds(100_000);
/// Closer together the clock and the kernel's timers decide who is first.
const SHORTEST_STAGGER_NS: u64 = 1_000;
/// Longer a run would look as if it hung.
const LONGEST_ARRIVAL_NS: u64 = 1_000_000_000;

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
    /// In which order readers and writers stand; apart if not given
    #[arg(long, value_enum, value_name = "ORDER")]
    pub order: Option<Order>,
    /// How threads come to the lock
    #[arg(long, value_enum, value_name = "HOW", default_value = "together")]
    pub arrival: Arrival,
    /// Time from one thread's arrival to the next one's; 100us if not given
    #[arg(long, value_name = "LENGTH")]
    pub stagger: Option<Length>,
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

    /// In the order in which the threads start.
    fn shares(&self, seed: u64) -> Vec<ReadShare> {
        match self.who() {
            Roles::Dedicated { readers, writers } => {
                in_order(readers, writers, self.order.unwrap_or(Order::Apart), seed)
            }
            Roles::Mixed { threads, read_percent } => {
                vec![ReadShare::percent(read_percent); threads as usize]
            }
        }
    }

    fn stagger_ns(&self, pause_ns: f64) -> u64 {
        match self.stagger.unwrap_or(STAGGER) {
            Length::Pauses(pauses) => (f64::from(pauses) * pause_ns) as u64,
            Length::Nanoseconds(ns) => ns,
        }
    }

    fn validate_arrival(&self, pause_ns: f64) -> Result<(), LabError> {
        if let (Some(order), Some(_)) = (self.order, self.read_percent) {
            let valid = "only where some threads read and the others write: every thread does \
                         both with read_percent";
            return wrong("order", order.name(), valid.to_string());
        }
        if let (Some(stagger), Arrival::Together) = (self.stagger, self.arrival) {
            let valid = "only with arrival staggered or queued: these threads arrive together";
            return wrong("stagger", stagger, valid.to_string());
        }
        if self.arrival == Arrival::Together {
            return Ok(());
        }
        let (stagger_ns, threads) = (self.stagger_ns(pause_ns), self.threads());
        let longest_ns = LONGEST_ARRIVAL_NS / threads;
        if !(SHORTEST_STAGGER_NS..=longest_ns).contains(&stagger_ns) {
            let longest = Length::Nanoseconds(longest_ns).words();
            let valid = format!("1µs to {longest}, so that {threads} threads arrive in a second");
            return wrong("stagger", self.stagger.unwrap_or(STAGGER), valid);
        }
        Ok(())
    }

    fn lengths(&self) -> [(&'static str, Length); 4] {
        [
            ("read_section", self.read_section.unwrap_or(self.section)),
            ("write_section", self.write_section.unwrap_or(self.section)),
            ("read_think", self.read_think.unwrap_or(self.think)),
            ("write_think", self.write_think.unwrap_or(self.think)),
        ]
    }

    fn pauses(&self, pause_ns: f64) -> [u32; 4] {
        self.lengths().map(|(_, length)| length.pauses(pause_ns))
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
        "--on ivybridge-ex-8s --lock linux-5.1,linux-5.2 --threads 32 --order interleaved --arrival queued",
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

    fn alone(&self) -> Vec<Mix> {
        let Roles::Dedicated { readers, writers } = self.who() else { return Vec::new() };
        let [read_section, write_section, read_think, write_think] =
            self.lengths().map(|(_, length)| length);
        // A role alone has no order, and no lengths beside its own.
        let alone = |readers, writers, section, think| Mix {
            section,
            think,
            arrival: self.arrival,
            stagger: self.stagger,
            time_reads_every: if readers > 0 { self.time_reads_every } else { 1 },
            ..Mix::dedicated(readers, writers)
        };
        let roles = [
            alone(readers, 0, read_section, read_think),
            alone(0, writers, write_section, write_think),
        ];
        roles.into_iter().filter(|role| role.threads() > 0).collect()
    }

    fn thread_names(&self, seed: u64) -> Vec<String> {
        let (mut readers, mut writers) = (0, 0);
        let name = |share: ReadShare| {
            let (role, number) =
                if share.has_reads() { (READER, &mut readers) } else { (WRITER, &mut writers) };
            *number += 1;
            format!("{role} {number}")
        };
        let mut names = match self.who() {
            Roles::Dedicated { .. } => self.shares(seed).into_iter().map(name).collect(),
            Roles::Mixed { .. } => numbered(&self.roles()),
        };
        if self.arrival == Arrival::Queued {
            names.push("holder".to_owned());
        }
        names
    }

    fn arrival_ns(&self, pause_ns: f64) -> u64 {
        match self.arrival {
            Arrival::Together => 0,
            Arrival::Staggered => self.threads().saturating_mul(self.stagger_ns(pause_ns)),
            // One more for the last thread to queue.
            Arrival::Queued => (self.threads() + 1).saturating_mul(self.stagger_ns(pause_ns)),
        }
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = Vec::new();
        if let Some(percent) = self.read_percent {
            words.push(("read_percent", percent_of_reads(percent)));
        }
        let has = |name| self.roles().iter().any(|role| role.name == name);
        let is_used = self.read_percent.is_some()
            || has(READER) && self.read_section.is_none()
            || has(WRITER) && self.write_section.is_none();
        let length = |name: &'static str, words: &str, length: Option<Length>| {
            length.map(|length| (name, format!("{words} {}", length.words())))
        };
        let sections = [
            length("section", "section", is_used.then_some(self.section)),
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
        words.extend(match self.order {
            None | Some(Order::Apart) => None,
            Some(Order::Interleaved) => Some(("order", "roles interleaved".to_owned())),
            Some(Order::Shuffled) => Some(("order", "roles shuffled".to_owned())),
        });
        words.extend(match self.arrival {
            Arrival::Together => None,
            Arrival::Staggered => Some(("arrival", "threads arrive one by one".to_owned())),
            Arrival::Queued => {
                Some(("arrival", "threads arrive one by one behind a holder".to_owned()))
            }
        });
        words.extend(self.stagger.map(|it| ("stagger", format!("{} apart", it.words()))));
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
        self.validate_arrival(pause_ns)?;
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
            self.order = self.order.or(Some(Order::Apart));
        }
        if self.arrival != Arrival::Together {
            self.stagger = self.stagger.or(Some(STAGGER));
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

/// The shares of so many readers and writers, in this order.
fn in_order(readers: u32, writers: u32, order: Order, seed: u64) -> Vec<ReadShare> {
    let threads = readers + writers;
    // Of the first so many threads as many read as fits their part of all threads, rounded up: a reader is the first.
    let readers_among = |first: u32| match order {
        Order::Interleaved => {
            (u64::from(first) * u64::from(readers)).div_ceil(u64::from(threads)) as u32
        }
        Order::Apart | Order::Shuffled => first.min(readers),
    };
    let reads = (0..threads).map(|thread| readers_among(thread + 1) > readers_among(thread));
    let share = |reads| if reads { ReadShare::ALWAYS } else { ReadShare::NEVER };
    let mut shares: Vec<ReadShare> = reads.map(share).collect();
    if order == Order::Shuffled {
        shuffle(&mut shares, &mut XorShift::new(seed));
    }
    shares
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
pub trait Inside: Sync {
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
        new: New<L>,
    ) -> Result<Repetition, LabError> {
        let pause_ns = request.world.pause_ns();
        let [read, write, _, _] = self.pauses(pause_ns);
        let inside = Computing { world: request.world, read, write };
        self.run_inside(request, new, Mix::NAME, &inside)
    }
}

impl Mix {
    /// Runs once on a fresh lock, whatever threads do inside it.
    pub fn run_inside<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
        workload: &'static str,
        inside: &impl Inside,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let lock = CachePadded::new(new(Protected::new()));
        let lock: &L = &lock;
        let pause_ns = world.pause_ns();
        let [_, _, read, write] = self.pauses(pause_ns);
        let thinks = Thinks { read, write };
        // Real threads all have one seed, and the clock of a simulated machine does not run before its threads.
        let shares = self.shares(world.seed().wrapping_add(world.now()));
        let acquisitions = Acquisitions::new(shares.len());
        let looks = Looks {
            whole: Every::new(64 + 16 * shares.len() as u32),
            read: Every::new(self.time_reads_every),
        };

        let events_before = Mutex::new(BTreeMap::new());
        let note_events =
            || *events_before.lock().unwrap_or_else(PoisonError::into_inner) = lock.events();
        let arriving = (self.arrival != Arrival::Together).then(|| {
            let behind_a_holder = self.arrival == Arrival::Queued;
            Arriving::new(shares.len(), self.stagger_ns(pause_ns), behind_a_holder, note_events)
        });
        let window = match arriving {
            None => Window::FromTheStart(request.duration_ns),
            Some(_) => Window::OnceArrived(request.duration_ns),
        };
        let arriving = arriving.as_ref();

        let mut bodies = bodies(shares.len() as u32, &|index| {
            let index = index as usize;
            let share = shares[index];
            let client = Client::new(world, lock, &acquisitions, index);
            let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(index as u64);
            let random = XorShift::new(seed);
            let client = match arriving {
                None => client,
                Some(_) => client.of_arriving_thread(),
            };
            Box::new(move || {
                if let Some(arriving) = arriving {
                    arriving.arrive(world, index);
                }
                work(world, client, share, inside, thinks, looks, random)
            })
        });
        let holder = arriving.filter(|it| it.has_holder());
        if let Some(arriving) = holder {
            bodies.push(Box::new(move || {
                hold(world, lock, || arriving.hold(world))?;
                Ok(ThreadRecord::default())
            }));
        }
        let mut repetition = run_threads_within(request, workload, window, bodies)?;
        let held = u64::from(holder.is_some());
        let writes = lock.read(Protected::value).map(|writes| writes.saturating_sub(held));
        check_no_update_was_lost(request, workload, &repetition, writes)?;
        repetition.events = lock.events();
        subtract(&mut repetition.events, &events_before);
        Ok(repetition)
    }
}

fn subtract(events: &mut BTreeMap<String, u64>, before: &Mutex<BTreeMap<String, u64>>) {
    let before = before.lock().unwrap_or_else(PoisonError::into_inner);
    for (event, count) in events {
        *count -= before.get(event).copied().unwrap_or(0);
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

    /// The threads by the first letters of their roles.
    fn letters(readers: u32, writers: u32, order: Order, seed: u64) -> String {
        let shares = in_order(readers, writers, order, seed);
        shares.into_iter().map(|it| if it.has_reads() { 'r' } else { 'w' }).collect()
    }

    #[test]
    fn unequal_numbers_are_spread_evenly() {
        let cases = [
            (4, 4, "rwrwrwrw"),
            (4, 2, "rrwrrw"),
            (2, 4, "rwwrww"),
            (5, 3, "rrwrrwrw"),
            (1, 3, "rwww"),
            (3, 0, "rrr"),
            (0, 2, "ww"),
        ];
        for (readers, writers, expected) in cases {
            assert_eq!(letters(readers, writers, Order::Interleaved, 0), expected);
        }
        assert_eq!(letters(3, 2, Order::Apart, 0), "rrrww");
    }

    #[test]
    fn each_seed_shuffles_the_same_roles_in_another_way() {
        let orders: Vec<String> = (0..8).map(|seed| letters(8, 8, Order::Shuffled, seed)).collect();
        for order in &orders {
            assert_eq!((order.matches('r').count(), order.matches('w').count()), (8, 8), "{order}");
        }
        let different: std::collections::BTreeSet<&String> = orders.iter().collect();
        assert_eq!(different.len(), orders.len(), "{orders:?}");
        assert_eq!(orders[3], letters(8, 8, Order::Shuffled, 3));
    }

    #[test]
    fn threads_are_named_in_the_order_in_which_they_stand() {
        let names = |order| {
            let mix = Mix { order: Some(order), ..Mix::dedicated(2, 2) };
            mix.thread_names(1)
        };
        assert_eq!(names(Order::Apart), ["reader 1", "reader 2", "writer 1", "writer 2"]);
        assert_eq!(names(Order::Interleaved), ["reader 1", "writer 1", "reader 2", "writer 2"]);
        let queued = Mix { arrival: Arrival::Queued, ..Mix::mixed(2, 50.0) };
        assert_eq!(queued.thread_names(1), ["thread 1", "thread 2", "holder"]);
    }

    #[test]
    fn words_tell_only_what_is_unusual() {
        let words = |mix: Mix| -> Vec<String> {
            mix.settled().words().into_iter().map(|(_, words)| words).collect()
        };
        assert_eq!(words(Mix::default()), ["section 10 pauses", "think 10 pauses"]);
        let queued = Mix {
            order: Some(Order::Interleaved),
            arrival: Arrival::Queued,
            ..Mix::dedicated(2, 2)
        };
        let expected =
            ["roles interleaved", "threads arrive one by one behind a holder", "100µs apart"];
        assert_eq!(words(queued)[2..], expected);
    }
}
