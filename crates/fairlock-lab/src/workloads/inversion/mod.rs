//! `inversion-lock`, `inversion-list`: how long a thread of high priority waits for one of low
//! priority that a third one has preempted.
//!
//! Three real-time threads share one CPU:
//!
//! | thread | priority | what it does |
//! |---|---|---|
//! | low | 1 | works for a known time, sleeps for a moment, works again |
//! | hog | 2 | wakes at random moments and computes for milliseconds; shares nothing with the others |
//! | high | 3 | wakes at random moments, even while the hog computes, and does one short operation |
//!
//! * `inversion-lock`: the low thread works while it holds a lock, and the high thread acquires the lock.
//!   Under any lock the high thread may have to wait for the rest of one section. If the hog has preempted
//!   the low thread inside its section, the high thread waits for the hog as well: that is the inversion.
//!   A lock that lends the waiter's priority to the holder avoids it.
//! * `inversion-list`: the low thread signals sources all the time, and the high thread asks the poll what
//!   is ready, with a timeout of zero. The user's code has no section to wait for, only the list may
//!   have one inside a signal.
//!
//! The high thread's `wait` ends when it has the lock, or the answer; its `hold` is what it then does.
//! Operations that waited for at least half of the hog's time are counted as inverted.
//!
//! Locks that only spin are left out: on one CPU a real-time thread that spins keeps the holder from
//! running for ever.

mod list;
mod lock;

use clap::{Args, ValueEnum};
use fairlock_report::random::XorShift;
use fairlock_report::units::{Length, deserialize_time_ns, format_ns, parse_time_ns};
use serde::{Deserialize, Serialize};

use super::{Body, Failure, run_threads_by_priority};
use crate::error::LabError;
use crate::measure::{READER, Repetition, RoleRecorder, ThreadRecord, WRITER};
use crate::workload::{Request, Role, defaults, roles, wrong};
use crate::world::{Priority, World};

pub use self::list::InversionList;
pub use self::lock::InversionLock;

/// The roles that rows carry; the hog has none.
pub const LOW: &str = "low";
/// See [`LOW`].
pub const HIGH: &str = "high";

const LOW_PRIORITY: Priority = 1;
const HOG_PRIORITY: Priority = 2;
const HIGH_PRIORITY: Priority = 3;
/// Who runs it needs one more: to end the run.
pub const HIGHEST_PRIORITY: Priority = HIGH_PRIORITY + 1;

/// How a thread acquires the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Exclusively
    #[serde(alias = "0")]
    Writes,
    /// Shared
    #[serde(alias = "1")]
    Reads,
}

impl Access {
    /// In words, for titles.
    fn words(self) -> &'static str {
        match self {
            Access::Writes => "writes",
            Access::Reads => "reads",
        }
    }
}

/// When the three threads do what they do: parameters of both forms.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// How long the low thread works between two short sleeps: while it holds the lock, or signalling
    #[arg(long = "work", value_name = "TIME", default_value = "50us", value_parser = parse_time_ns)]
    #[serde(deserialize_with = "deserialize_time_ns")]
    pub work_ns: u64,
    /// How long it then sleeps, so that others can run
    #[arg(long = "think", value_name = "TIME", default_value = "20us", value_parser = parse_time_ns)]
    #[serde(deserialize_with = "deserialize_time_ns")]
    pub think_ns: u64,
    /// How long the hog computes each time
    #[arg(long = "hog", value_name = "TIME", default_value = "5ms", value_parser = parse_time_ns)]
    #[serde(deserialize_with = "deserialize_time_ns")]
    pub hog_ns: u64,
    /// How long the hog sleeps in between, ±50 %
    #[arg(long = "hog-every", value_name = "TIME", default_value = "15ms", value_parser = parse_time_ns)]
    #[serde(deserialize_with = "deserialize_time_ns")]
    pub hog_every_ns: u64,
    /// How long the high thread sleeps between two operations, ±50 %
    #[arg(long = "high-every", value_name = "TIME", default_value = "500us", value_parser = parse_time_ns)]
    #[serde(deserialize_with = "deserialize_time_ns")]
    pub high_every_ns: u64,
}

impl Default for Times {
    fn default() -> Times {
        defaults()
    }
}

/// What both forms have to say about real threads.
const NOTE: &str = "Real threads get the priorities 1 to 4 of SCHED_FIFO, which root may give, and others up to \
                    `ulimit -r`.";

/// Longer ones would make runs end late.
const LONGEST_NS: u64 = 100_000_000;

impl Times {
    fn roles() -> Vec<Role> {
        roles(&[(LOW, 1), ("hog", 1), (HIGH, 1)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        vec![
            ("work_ns", format!("work of {}", format_ns(self.work_ns as f64))),
            ("hog_ns", format!("hog of {}", format_ns(self.hog_ns as f64))),
        ]
    }

    fn validate(&self) -> Result<(), LabError> {
        let times = [
            ("work_ns", self.work_ns),
            ("think_ns", self.think_ns),
            ("hog_ns", self.hog_ns),
            ("hog_every_ns", self.hog_every_ns),
            ("high_every_ns", self.high_every_ns),
        ];
        for (name, ns) in times {
            if !(1..=LONGEST_NS).contains(&ns) {
                return wrong(name, ns, format!("1 to {LONGEST_NS}"));
            }
        }
        if self.hog_every_ns < self.hog_ns {
            // With what the low one takes of the rest, the kernel would stop them.
            return wrong(
                "hog_every_ns",
                self.hog_every_ns,
                format!("at least hog_ns: {}", self.hog_ns),
            );
        }
        Ok(())
    }

    /// From half to one and a half times `mean_ns`.
    fn jittered(random: &mut XorShift, mean_ns: u64) -> u64 {
        mean_ns / 2 + u64::from(random.below(mean_ns as u32))
    }
}

/// What the low one does at once; answers how many operations that was.
type Work<'a> = &'a (dyn Fn() -> Result<u64, Failure> + Sync);
/// The high one's operation, with what it keeps; answers when it had what it asked for.
type Visit<'a, S> = &'a (dyn Fn(&mut S) -> Result<u64, Failure> + Sync);

/// Runs the three threads.
fn contest<W: World, S>(
    request: &Request<'_, W>,
    workload: &'static str,
    params: &Times,
    work: Work<'_>,
    new_state: &(dyn Fn() -> S + Sync),
    visit: Visit<'_, S>,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let hog_pauses = Length::Nanoseconds(params.hog_ns).pauses(world.pause_ns());
    let random = |thread: u64| XorShift::new(world.seed().wrapping_mul(3).wrapping_add(thread));
    let low = move || {
        let mut writer = RoleRecorder::default();
        while world.running() {
            let done = work()?;
            writer.executed += done;
            if world.running() {
                writer.ops += done;
                world.sleep(params.think_ns);
            }
        }
        Ok(ThreadRecord { writer: Some(writer), ..ThreadRecord::default() })
    };
    let hog = move || {
        let mut random = random(1);
        while world.running() {
            world.sleep(Times::jittered(&mut random, params.hog_every_ns));
            if world.running() {
                world.compute(hog_pauses);
            }
        }
        Ok(ThreadRecord::default())
    };
    let high = move || {
        let mut random = random(2);
        let mut reader = RoleRecorder { inverted: Some(0), ..RoleRecorder::default() };
        let mut state = new_state();
        loop {
            world.sleep(Times::jittered(&mut random, params.high_every_ns));
            if !world.running() {
                break;
            }
            let asked = world.now();
            let got = visit(&mut state)?;
            reader.time(asked, got, world.now());
            reader.executed += 1;
            reader.ops += u64::from(world.running());
            if got.saturating_sub(asked) >= params.hog_ns / 2 {
                reader.inverted = reader.inverted.map(|count| count + 1);
            }
        }
        Ok(ThreadRecord { reader: Some(reader), ..ThreadRecord::default() })
    };
    let bodies: Vec<(Priority, Body<'_>)> = vec![
        (LOW_PRIORITY, Box::new(low)),
        (HOG_PRIORITY, Box::new(hog)),
        (HIGH_PRIORITY, Box::new(high)),
    ];
    let mut repetition = run_threads_by_priority(request, workload, bodies)?;
    for (side, role) in [(WRITER, LOW), (READER, HIGH)] {
        let done = repetition.roles.remove(side).expect("each of them did something");
        repetition.roles.insert(role, done);
    }
    Ok(repetition)
}

/// How often a role acted, operations that ended after the run included.
fn executed(repetition: &Repetition, role: &str) -> u64 {
    repetition.roles.get(role).map_or(0, |role| role.executed)
}
