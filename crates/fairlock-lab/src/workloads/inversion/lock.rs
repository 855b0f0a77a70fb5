//! `inversion-lock`: a lock between the threads.

use clap::Args;
use crossbeam_utils::CachePadded;
use fairlock_report::units::Length;
use serde::{Deserialize, Serialize};

use super::{Access, HIGH, LOW, NOTE, Times, contest, executed};
use crate::error::{LabError, Violation};
use crate::locks::{self, INHERITING, LabLock, New, Protected};
use crate::measure::Repetition;
use crate::workload::{
    DefaultSubjects, LOCKS, Machine, Need, Request, Role, SLEEPING_SIMULATION_COST, Subjects,
    UnderLock, Workload, defaults, run_under_erased_lock,
};

/// Parameters of [`inversion-lock`](super).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct InversionLock {
    /// When the threads do what they do.
    #[command(flatten)]
    #[serde(flatten)]
    pub times: Times,
    /// How the low thread acquires the lock
    #[arg(long, value_enum, value_name = "ACCESS", default_value = "writes")]
    pub low: Access,
    /// How the high thread acquires the lock
    #[arg(long, value_enum, value_name = "ACCESS", default_value = "writes")]
    pub high: Access,
}

impl Default for InversionLock {
    fn default() -> InversionLock {
        defaults()
    }
}

/// All that it can run, those included that lend priorities.
fn all(simulated: bool) -> Vec<&'static str> {
    let all = (LOCKS.all)(simulated);
    let more = INHERITING.into_iter().filter(|name| check(name, simulated).is_ok());
    all.into_iter().chain(more).collect()
}

fn check(name: &str, simulated: bool) -> Result<(), LabError> {
    (LOCKS.check)(name, simulated)?;
    match locks::find(name)?.only_spins() {
        true => Err(LabError::Spins { name: name.to_string(), workload: InversionLock::NAME }),
        false => Ok(()),
    }
}

impl Workload for InversionLock {
    const NAME: &'static str = "inversion-lock";
    const ABOUT: &'static str = "real-time threads on one CPU: a hog preempts the lock's holder while another thread waits for it";
    const EXAMPLES: &'static [&'static str] = &[
        "--lock mutex,pthread-mutex,pthread-inherit --work 200us",
        "--lock rwlock,rwsem --low reads,writes --high reads,writes",
        "--on x86-12          needs no permission",
    ];
    const NOTE: &'static str = NOTE;
    const SUBJECTS: Subjects = Subjects { all, check, ..LOCKS };
    const DEFAULT_SUBJECTS: DefaultSubjects = DefaultSubjects {
        here: &[
            "rwlock",
            "rwsem",
            "mutex",
            "std",
            "std-mutex",
            "parking_lot",
            "pthread",
            "pthread-writer",
            "pthread-mutex",
            "pthread-inherit",
        ],
        simulated: &["rwlock", "rwsem", "mutex", "pthread-inherit"],
    };
    const NEEDS: &'static [Need] = &[Need::RealTime];

    fn roles(&self) -> Vec<Role> {
        Times::roles()
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = self.times.words();
        words.push(("low", format!("low {}", self.low.words())));
        words.push(("high", format!("high {}", self.high.words())));
        words
    }

    fn validate(&self, _pause_ns: f64) -> Result<(), LabError> {
        self.times.validate()
    }

    fn simulation_cost(&self, _lock: &str, _cpus: u32) -> f64 {
        SLEEPING_SIMULATION_COST
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_erased_lock(self, request)
    }
}

impl UnderLock for InversionLock {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let lock = CachePadded::new(new(Protected::new()));
        let lock: &L = &lock;
        let section = Length::Nanoseconds(self.times.work_ns).pauses(world.pause_ns());
        let work = || {
            match self.low {
                Access::Reads => {
                    lock.read(|data| data.read_around(|| world.compute(section)))?;
                }
                Access::Writes => {
                    lock.write(|data| data.write_around(|| world.compute(section)))?;
                }
            }
            Ok(1)
        };
        let visit = |(): &mut ()| {
            let (got, result) = match self.high {
                Access::Reads => lock.read(|data| (world.now(), data.read_around(|| ()))),
                Access::Writes => lock.write(|data| (world.now(), data.write_around(|| ()))),
            };
            result?;
            Ok(got)
        };
        let mut repetition = contest(request, Self::NAME, &self.times, &work, &|| (), &visit)?;
        let of = |role, access| match access {
            Access::Reads => 0,
            Access::Writes => executed(&repetition, role),
        };
        let writes = of(LOW, self.low) + of(HIGH, self.high);
        let lost = |counted| Violation::LostUpdate { writes, counted };
        match lock.read(Protected::value) {
            Ok(counted) if counted == writes => {}
            Ok(counted) => return Err(request.broken(Self::NAME, lost(counted))),
            Err(violation) => return Err(request.broken(Self::NAME, violation)),
        }
        repetition.events = lock.events();
        Ok(repetition)
    }
}
