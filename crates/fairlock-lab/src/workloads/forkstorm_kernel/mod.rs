//! `forkstorm-kernel`: processes really forked, against this machine's kernel (the shape of exim in Tim
//! Chen's report on the anon_vma lock, 2013).
//!
//! Each client is a chain of processes. For a connection the daemon forks a handler; for each of its 10
//! messages the handler forks a delivery, which forks a transport: 21 forks at the depths 1, 2 and 3,
//! so that a mapping of theirs has as many anon_vmas above it. Each process finds what its parent left
//! in the mappings, writes there, waits for its own child if it has one, computes and ends. All clients
//! have one daemon, so its mappings are the roots whose locks they meet at.
//!
//! The mappings are private and anonymous, and the kernel keeps them apart. Each has a lock of its own. With
//! `one_lock` all of them have the same one, as in a heap that was in use before it was cut. A forked process writes to
//! `touch` pages of each: one where nothing else is said, as processes like exim's write to their stack,
//! heap and data, and leave most of it as it was. The program's own dozen of writable mappings
//! (stack, heap, data of the program and its libraries) is copied by each fork besides, and so are some
//! that belong to files; what `vmas` changes is not all that a fork costs.
//!
//! An operation is a message; clients are the writers, and `threads` says how many, as in `forkstorm`. `wait` has every call of fork() as its caller saw
//! it: where the kernel lets the child run first on the same CPU, that is in it. `hold` has the innermost
//! processes, from the call of fork() until they were reaped, `latency` the messages. Switches and CPU time
//! are those of all processes of the storm, what each took to start and end included. The idle share is
//! right, but where the kernel looks only at each tick whether a process is in its own code or the
//! kernel's, it counts all time of a process shorter than a tick as its own: then `user` has nearly all
//! and `system` nearly nothing, though forks and exits are the kernel's work. What the kernel's locks
//! cost is between the lines: in how the figures change with clients and mappings.
//!
//! Every run checks that each fork was reaped and ended well, that a connection took its 21 forks, and
//! that each process found its parent's and its own writes in memory and nobody else's.

mod mappings;
mod shared;
mod storm;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use self::mappings::Lock;
use self::shared::{Shared, Slot};
use self::storm::Job;
use crate::error::{LabError, Violation};
use crate::locks::KERNEL;
use crate::measure::{Repetition, RoleRecorder, ThreadRecord, merge_threads};
use crate::workload::{
    DefaultPoints, DefaultSubjects, KERNEL_ALONE, LOCKS, Machine, Request, Role, Subjects,
    Workload, check_kernel, defaults, points, roles, wrong,
};
use crate::world::pages::page_bytes;
use crate::world::processes::{Crew, PATIENCE, Shape, Start, Times};
use crate::world::{Finished, Run, World, of_all_cpus};

use fairlock_report::units::{Length, at_least_one, count, several};
pub use storm::{FORKS, MESSAGES, SUBCOMMAND, work as work_as_daemon};

/// Parameters of [`forkstorm-kernel`](self).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct ForkstormKernel {
    /// Clients, a chain of processes each, with one connection of 10 messages after the other
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    pub threads: u32,
    /// Anonymous mappings of the daemon, which every process inherits
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one)]
    pub vmas: u32,
    /// Pages of each mapping, which the daemon has written to
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = at_least_one)]
    pub pages: u32,
    /// Pages of each mapping that every process writes to
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    pub touch: u32,
    /// Cut the mappings from one that was written to before, so that all of them have one lock in the kernel
    #[arg(long)]
    pub one_lock: bool,
    /// How long every process computes: pauses (10p) or time (200ns)
    #[arg(long, value_name = "LENGTH", default_value = "10us")]
    pub compute: Length,
    /// No parameter: tests are less patient.
    #[arg(skip = PATIENCE)]
    #[serde(skip, default = "patience")]
    pub patience: Duration,
}

fn patience() -> Duration {
    PATIENCE
}

impl Default for ForkstormKernel {
    fn default() -> ForkstormKernel {
        defaults()
    }
}

const MOST_CLIENTS: u32 = 64;
const MOST_VMAS: u32 = 1024;
const MOST_PAGES: u32 = 1024;
/// Of all processes of a storm together.
const MOST_BYTES: u64 = 1 << 30;
/// At a storm's end each client has three processes that have yet to compute, and 64 clients may
/// share one CPU.
const LONGEST_COMPUTE_NS: f64 = 1e7;

/// The most processes that this user may have.
fn most_processes() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is a place for the call to write to. Should it fail, there is no limit to heed.
    unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &mut limit) };
    limit.rlim_cur
}

impl ForkstormKernel {
    /// The most processes that a storm has at once: the daemon, and a client's three.
    pub fn processes(&self) -> u64 {
        3 * u64::from(self.threads) + 1
    }

    fn lock(&self) -> Lock {
        if self.one_lock { Lock::Shared } else { Lock::Own }
    }

    fn validate_below(&self, most_processes: u64, pause_ns: f64) -> Result<(), LabError> {
        for (name, value, least, most) in [
            ("threads", self.threads, 1, MOST_CLIENTS),
            ("vmas", self.vmas, 1, MOST_VMAS),
            ("pages", self.pages, 1, MOST_PAGES),
            ("touch", self.touch, 0, self.pages),
        ] {
            if !(least..=most).contains(&value) {
                return wrong(name, value, format!("{least} to {most}"));
            }
        }
        if self.processes() > most_processes {
            let valid = format!(
                "at most {} here: a client has three processes at once, and this user may have \
                 {most_processes} (`ulimit -u`)",
                most_processes.saturating_sub(1) / 3
            );
            return wrong("threads", self.threads, valid);
        }
        let written = u64::from(self.pages) + (self.processes() - 1) * u64::from(self.touch);
        if written * u64::from(self.vmas) * page_bytes() as u64 > MOST_BYTES {
            let valid = format!("at most {MOST_BYTES} bytes for all mappings of all processes");
            return wrong("pages", self.pages, valid);
        }
        if f64::from(self.compute.pauses(pause_ns)) * pause_ns > LONGEST_COMPUTE_NS {
            return wrong("compute", self.compute, "at most 10ms".to_string());
        }
        Ok(())
    }
}

impl Workload for ForkstormKernel {
    const NAME: &'static str = "forkstorm-kernel";
    const ABOUT: &'static str =
        "chains of processes that are really forked, each mapping under its own lock in the kernel";
    const EXAMPLES: &'static [&'static str] = &[
        "--threads 1,2,4,8",
        "--threads 8 --vmas 1,16,64       what mappings cost",
        "--threads 4 --touch 0,4 --compute 100us",
        "--threads 16 --vmas 64 --one-lock --compute 0p",
    ];
    const NOTE: &'static str = "A message is two forks, and the first one of a connection is three; up to three processes of \
         each client exist at once. In the table `wait` is the time of the calls of fork(), `hold` that of the \
         innermost processes, and `latency` that of the messages. Where the kernel samples user and system time \
         at clock ticks, only the idle share of the CPU times is right.";
    const SUBJECTS: Subjects = Subjects {
        all: |simulated| if simulated { Vec::new() } else { vec![KERNEL] },
        check: |name, simulated| check_kernel(ForkstormKernel::NAME, "forkstorm", name, simulated),
        ..LOCKS
    };
    const DEFAULT_SUBJECTS: DefaultSubjects = KERNEL_ALONE;
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[points("threads", "1,2,4,8")];

    fn roles(&self) -> Vec<Role> {
        roles(&[("client", self.threads)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = vec![("vmas", format!("{} vmas", self.vmas))];
        words.extend(self.one_lock.then(|| ("one_lock", "one lock for all".to_owned())));
        words.extend([
            ("pages", format!("mappings of {}", several(self.pages.into(), "page"))),
            ("touch", format!("{} of each written", several(self.touch.into(), "page"))),
            ("compute", format!("computes {}", self.compute.words())),
        ]);
        words
    }

    fn threads(&self) -> u64 {
        self.processes()
    }

    fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        self.validate_below(most_processes(), pause_ns)
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        measure(request, self).map(|measured| measured.repetition)
    }
}

/// A run, with what rows have no place for.
#[derive(Debug)]
pub struct Measured {
    /// The figures of a row.
    pub repetition: Repetition,
    /// Processes that were forked.
    pub forks: u64,
}

/// Runs it once, and says all that is known about it.
///
/// # Errors
/// When an invariant does not hold, the system refuses to fork, or processes cannot be started, or do
/// not end when they are told to; then they are killed.
pub fn measure<W: World>(
    request: &Request<'_, W>,
    params: &ForkstormKernel,
) -> Result<Measured, LabError> {
    let duration = Duration::from_nanos(request.duration_ns);
    let job = Job {
        params: params.clone(),
        compute_pauses: params.compute.pauses(request.world.pause_ns()),
        longest: duration + params.patience,
    };
    let start = Start {
        program: request.program,
        subcommand: SUBCOMMAND,
        name: "storm's daemon",
        patience: params.patience,
    };
    let shape = Shape { processes: 1, slots: params.threads as usize, words: 0 };
    let shared = Shared::create(c"fairlock-forkstorm", shape)?;
    let times = Crew::start(start, &shared, &job)?.work(duration, request.cancelled)?;
    let (_, shared) = &shared;
    if let Some(fault) = shared.common().first() {
        return Err(request.broken(ForkstormKernel::NAME, fault.violation()?));
    }
    measured(shared, times).map_err(|violation| request.broken(ForkstormKernel::NAME, violation))
}

/// What a storm that has ended left behind.
fn measured(shared: &Shared, times: Times) -> Result<Measured, Violation> {
    let total = |of: fn(&Slot) -> &std::sync::atomic::AtomicU64| -> u64 {
        shared.slots().iter().map(|slot| of(slot).load(Relaxed)).sum()
    };
    let (forks, reaped) = (total(|slot| &slot.forks), total(|slot| &slot.reaped));
    if forks != reaped {
        return Err(Violation::ForkCount { forks, expected: reaped });
    }
    let clients = shared.slots().iter().map(|slot| {
        let recorder = RoleRecorder {
            ops: slot.ops.load(Relaxed),
            executed: slot.executed.load(Relaxed),
            wait: slot.fork.distribution(),
            hold: slot.life.distribution(),
            latency: slot.message.distribution(),
            ..RoleRecorder::default()
        };
        let output = ThreadRecord { writer: Some(recorder), ..ThreadRecord::default() };
        Finished { output, usage: slot.used.usage() }
    });
    // The daemon has no role, but switches of its own.
    let daemon = shared.usages().map(|usage| Finished { output: ThreadRecord::default(), usage });
    let repetition = merge_threads(Run {
        elapsed_ns: times.elapsed_ns,
        counted_ns: times.ended_ns,
        cpus_ns: of_all_cpus(times.ended_ns),
        workers: clients.chain(daemon).collect(),
        simulated: None,
    });
    Ok(Measured { repetition, forks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_that_this_user_may_not_have_is_refused_before_it_starts() {
        let params = ForkstormKernel { threads: 10, ..ForkstormKernel::default() };
        assert!(params.validate_below(31, 10.0).is_ok());
        let said = params.validate_below(30, 10.0).unwrap_err().to_string();
        for words in ["`threads` is 10", "at most 9 here", "ulimit -u"] {
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn a_connection_takes_the_forks_of_the_source() {
        assert_eq!((MESSAGES, FORKS), (10, 21));
    }
}
