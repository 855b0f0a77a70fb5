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
//! Timing each read takes about 25 ns. [`MixParams::time_reads_every`] thins it out where the
//! throughput of cheap reads is the question; the waits of the other reads are then unknown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::client::{Client, Look};
use super::{
    Body, Failure, Request, check_length, check_no_update_was_lost, check_share,
    check_thread_count, run_threads,
};
use crate::error::LabError;
use crate::locks::{LabLock, Protected};
use crate::measure::statistics::XorShift;
use crate::measure::{Acquisitions, Repetition, ThreadRecord};
use crate::units::Length;
use crate::world::World;

/// The name that rows carry.
pub const NAME: &str = "mix";

/// Who does what.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Roles {
    /// Some threads only read, the others only write.
    Dedicated {
        /// Threads that read.
        readers: u32,
        /// Threads that write.
        writers: u32,
    },
    /// Every thread does both.
    Mixed {
        /// How many threads.
        threads: u32,
        /// Share of reads, 0 to 100 %; fractions are fine.
        read_percent: f64,
    },
}

impl Roles {
    /// All of them.
    pub fn threads(self) -> u64 {
        match self {
            Roles::Dedicated { readers, writers } => u64::from(readers) + u64::from(writers),
            Roles::Mixed { threads, .. } => u64::from(threads),
        }
    }
}

/// Parameters of [`mix`](self).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MixParams {
    /// Who does what.
    pub roles: Roles,
    /// How long a reader holds the lock.
    pub read_section: Length,
    /// How long a writer holds the lock.
    pub write_section: Length,
    /// How long a thread stays away after a read.
    pub read_think: Length,
    /// How long a thread stays away after a write.
    pub write_think: Length,
    /// Times one read in so many; 1 times all. With more, a starving reader may go unseen in
    /// `wait`, though not in the rates.
    pub time_reads_every: u32,
}

impl Default for MixParams {
    /// One reader, one writer, 10 PAUSE iterations inside and outside.
    fn default() -> MixParams {
        let length = Length::Pauses(10);
        MixParams {
            roles: Roles::Dedicated { readers: 1, writers: 1 },
            read_section: length,
            write_section: length,
            read_think: length,
            write_think: length,
            time_reads_every: 1,
        }
    }
}

impl MixParams {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// [`LabError::Parameter`] names the first one that does not.
    pub fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        check_thread_count("threads", self.roles.threads())?;
        if let Roles::Mixed { read_percent, .. } = self.roles {
            check_share(read_percent)?;
        }
        if self.time_reads_every == 0 {
            return Err(LabError::Parameter {
                name: "time_reads_every",
                value: "0".to_string(),
                valid: "1 (all) or more".to_string(),
            });
        }
        let mut lengths = self.lengths().into_iter();
        lengths.try_for_each(|(name, length)| check_length(name, length, pause_ns))
    }

    fn lengths(&self) -> [(&'static str, Length); 4] {
        [
            ("read_section", self.read_section),
            ("write_section", self.write_section),
            ("read_think", self.read_think),
            ("write_think", self.write_think),
        ]
    }

    /// The row's `params`: lengths in PAUSE iterations (and `pause_ns` to convert them), and
    /// either `readers` and `writers` or `read_percent`; `threads` always.
    pub fn row_params(&self, pause_ns: f64) -> BTreeMap<String, f64> {
        let mut params = BTreeMap::new();
        params.insert("threads".to_string(), self.roles.threads() as f64);
        params.insert("pause_ns".to_string(), pause_ns);
        params.insert("time_reads_every".to_string(), f64::from(self.time_reads_every));
        match self.roles {
            Roles::Dedicated { readers, writers } => {
                params.insert("readers".to_string(), f64::from(readers));
                params.insert("writers".to_string(), f64::from(writers));
            }
            Roles::Mixed { read_percent, .. } => {
                params.insert("read_percent".to_string(), read_percent);
            }
        }
        for (name, length) in self.lengths() {
            params.insert(format!("{name}_pauses"), f64::from(length.pauses(pause_ns)));
        }
        params
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

/// Lengths in PAUSE iterations of this machine.
#[derive(Debug, Clone, Copy)]
struct Pauses {
    read_section: u32,
    write_section: u32,
    read_think: u32,
    write_think: u32,
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

/// Runs the workload once on a fresh lock.
///
/// # Errors
/// When the lock breaks the invariant, or threads cannot be started.
pub fn run<W: World, L: LabLock>(
    request: &Request<'_, W>,
    params: &MixParams,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let lock = L::new(Protected::new());
    let pause_ns = world.pause_ns();
    let pauses = Pauses {
        read_section: params.read_section.pauses(pause_ns),
        write_section: params.write_section.pauses(pause_ns),
        read_think: params.read_think.pauses(pause_ns),
        write_think: params.write_think.pauses(pause_ns),
    };
    let shares = shares(params.roles);
    let acquisitions = Acquisitions::new(shares.len());
    let looks = Looks {
        whole: Every::new(64 + 16 * shares.len() as u32),
        read: Every::new(params.time_reads_every),
    };

    let bodies = shares.iter().enumerate().map(|(index, &share)| {
        let client = Client::new(world, &lock, &acquisitions, index);
        let random = XorShift::new(world.seed().wrapping_mul(1 << 32).wrapping_add(index as u64));
        Box::new(move || work(world, client, share, pauses, looks, random)) as Body<'_>
    });
    let mut repetition = run_threads(request, NAME, bodies.collect())?;
    check_no_update_was_lost(request, NAME, &repetition, lock.read(Protected::value))?;
    repetition.events = lock.events();
    Ok(repetition)
}

/// One thread's loop.
fn work<W: World, L: LabLock>(
    world: &W,
    mut client: Client<'_, W, L>,
    share: ReadShare,
    pauses: Pauses,
    mut looks: Looks,
    mut random: XorShift,
) -> Result<ThreadRecord, Failure> {
    loop {
        let think = if share.pick(&mut random) {
            let look = looks.at_read();
            client.read(look, || {
                world.compute(pauses.read_section);
                Ok(0)
            })?;
            pauses.read_think
        } else {
            let look = looks.at_write();
            client.write(look, || {
                world.compute(pauses.write_section);
                Ok(0)
            })?;
            pauses.write_think
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

/// Uniform in 75 % to 125 % of `pauses`.
#[inline]
pub(super) fn jittered(pauses: u32, random: &mut XorShift) -> u32 {
    let quarter = pauses / 4;
    if quarter == 0 {
        return pauses;
    }
    pauses - quarter + random.below(2 * quarter + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_keeps_its_mean() {
        let mut random = XorShift::new(1);
        let total: u32 = (0..10_000).map(|_| jittered(100, &mut random)).sum();
        assert!((990_000..1_010_000).contains(&total), "{total}");
        assert_eq!(jittered(0, &mut random), 0);
    }

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
