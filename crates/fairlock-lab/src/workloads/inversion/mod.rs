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

mod kernel;
mod lists;
mod locks;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Body, Failure, Request, run_threads_by_priority};
use crate::error::LabError;
use crate::measure::statistics::XorShift;
use crate::measure::{READER, Repetition, RoleRecorder, ThreadRecord, WRITER};
use crate::plan::KERNEL;
use crate::units::Length;
use crate::world::{Priority, World};

pub use lists::{ListDescriptor, registry as lists};
pub(crate) use locks::run as run_lock;

/// The roles that rows carry; the hog has none.
pub const LOW: &str = "low";
/// See [`LOW`].
pub const HIGH: &str = "high";

const LOW_PRIORITY: Priority = 1;
const HOG_PRIORITY: Priority = 2;
const HIGH_PRIORITY: Priority = 3;
/// Who runs it needs one more: to end the run.
pub const HIGHEST_PRIORITY: Priority = HIGH_PRIORITY + 1;

/// What is between the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InversionForm {
    /// A lock of the registry.
    Lock,
    /// A list of ready sources.
    List,
}

impl InversionForm {
    /// Both.
    pub const ALL: [InversionForm; 2] = [InversionForm::List, InversionForm::Lock];

    /// The name that rows carry.
    pub fn name(self) -> &'static str {
        match self {
            InversionForm::Lock => "inversion-lock",
            InversionForm::List => "inversion-list",
        }
    }

    /// The form of the workload of this name.
    pub fn named(workload: &str) -> Option<InversionForm> {
        InversionForm::ALL.into_iter().find(|form| form.name() == workload)
    }

    /// What `all` means as its locks: all that it can run, the list of the kernel's epoll included.
    pub fn all_locks(self, simulated: bool) -> Vec<&'static str> {
        match self {
            InversionForm::Lock => locks::all(simulated),
            InversionForm::List => {
                let runs = |list: &&ListDescriptor| !simulated || list.simulated.is_some();
                lists().iter().filter(runs).map(|list| list.name).collect()
            }
        }
    }

    /// Whether it runs with a lock, or list, of this name.
    ///
    /// # Errors
    /// [`LabError::UnknownLock`] and its like, with what would be valid.
    pub fn check_lock(self, name: &str, simulated: bool) -> Result<(), LabError> {
        let known = self.all_locks(simulated);
        match self {
            InversionForm::Lock => locks::check(name, simulated),
            InversionForm::List if known.contains(&name) => Ok(()),
            InversionForm::List if name == KERNEL => {
                let instead = "inversion-list with the lists of this program";
                Err(LabError::KernelNotSimulated { workload: self.name(), instead })
            }
            InversionForm::List => Err(LabError::UnknownLock { name: name.to_string(), known }),
        }
    }
}

/// Parameters of [`inversion`](self).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InversionParams {
    /// What is between the threads.
    pub form: InversionForm,
    /// How long the low one works between two sleeps, ns of the CPU: a section under the lock, or
    /// signals.
    pub work_ns: u64,
    /// How long it then sleeps, ns: somebody else has to run, too.
    pub think_ns: u64,
    /// How long the hog computes each time, ns.
    pub hog_ns: u64,
    /// How long it sleeps between, ns on average: from half to one and a half times that.
    pub hog_every_ns: u64,
    /// How long the high one sleeps between two operations, likewise.
    pub high_every_ns: u64,
    /// Whether the low one takes the lock shared. Only for locks.
    pub low_reads: bool,
    /// Whether the high one takes the lock shared. Only for locks.
    pub high_reads: bool,
}

impl Default for InversionParams {
    /// Sections of 50 µs, a hog of 5 ms 50 times in a second, and 2000 operations of the high one.
    fn default() -> InversionParams {
        InversionParams {
            form: InversionForm::Lock,
            work_ns: 50_000,
            think_ns: 20_000,
            hog_ns: 5_000_000,
            hog_every_ns: 15_000_000,
            high_every_ns: 500_000,
            low_reads: false,
            high_reads: false,
        }
    }
}

/// Longer ones would make runs end late.
const LONGEST_NS: u64 = 100_000_000;

impl InversionParams {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// [`LabError::Parameter`] names the first one that does not.
    pub fn validate(&self) -> Result<(), LabError> {
        let times = [
            ("work_ns", self.work_ns),
            ("think_ns", self.think_ns),
            ("hog_ns", self.hog_ns),
            ("hog_every_ns", self.hog_every_ns),
            ("high_every_ns", self.high_every_ns),
        ];
        for (name, ns) in times {
            if !(1..=LONGEST_NS).contains(&ns) {
                let valid = format!("1 to {LONGEST_NS}");
                return Err(LabError::Parameter { name, value: ns.to_string(), valid });
            }
        }
        if self.hog_every_ns < self.hog_ns {
            // With what the low one takes of the rest, the kernel would stop them.
            let valid = format!("at least hog_ns: {}", self.hog_ns);
            let value = self.hog_every_ns.to_string();
            return Err(LabError::Parameter { name: "hog_every_ns", value, valid });
        }
        Ok(())
    }

    /// The row's `params`.
    pub fn row_params(&self) -> BTreeMap<String, f64> {
        let mut params = vec![
            ("work_ns", self.work_ns as f64),
            ("think_ns", self.think_ns as f64),
            ("hog_ns", self.hog_ns as f64),
            ("hog_every_ns", self.hog_every_ns as f64),
            ("high_every_ns", self.high_every_ns as f64),
        ];
        if self.form == InversionForm::Lock {
            params.push(("low_reads", f64::from(u8::from(self.low_reads))));
            params.push(("high_reads", f64::from(u8::from(self.high_reads))));
        }
        params.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    /// From half to one and a half times `mean_ns`.
    fn jittered(random: &mut XorShift, mean_ns: u64) -> u64 {
        mean_ns / 2 + u64::from(random.below(mean_ns as u32))
    }
}

/// The list of this name.
///
/// # Panics
/// If there is none: see [`InversionForm::check_lock`].
pub(crate) fn list(name: &str) -> &'static ListDescriptor {
    lists().iter().find(|list| list.name == name).expect("the list was checked")
}

/// What the low one does at once; answers how many operations that was.
type Work<'a> = &'a (dyn Fn() -> Result<u64, Failure> + Sync);
/// The high one's operation, with what it keeps; answers when it had what it asked for.
type Visit<'a, S> = &'a (dyn Fn(&mut S) -> Result<u64, Failure> + Sync);

/// Runs the three threads.
fn contest<W: World, S>(
    request: &Request<'_, W>,
    params: &InversionParams,
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
            world.sleep(InversionParams::jittered(&mut random, params.hog_every_ns));
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
            world.sleep(InversionParams::jittered(&mut random, params.high_every_ns));
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
    let mut repetition = run_threads_by_priority(request, params.form.name(), bodies)?;
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
