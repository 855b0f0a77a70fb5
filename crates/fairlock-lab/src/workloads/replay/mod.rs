//! `replay`: the threads of a recorded program, with its locks, holds and times away.
//!
//! What a thread does is a [sequence of steps](fairlock_report::program), which `fairlock run --record` wrote, or
//! somebody by hand. The file also says which locks are shared by whom and which kinds of threads there are
//! more of when a replay has more threads; nothing else is assumed. Times of computing are the same on every machine; what
//! the locks cost there follows from their own code.
//!
//! A recording has seconds of a program, a repetition may have milliseconds: each begins at another moment of the
//! recording, drawn by its seed, and all threads at the same one, so that phases of the program stay together. More threads
//! than were recorded repeat those that were, each from a place of its own near that moment.
//!
//! A lock that a thread holds already it does not acquire once more: whether it could is a matter of the lock, and the
//! program has its answer.
//!
//! Real threads check that the locks exclude; on a simulated machine that takes no time. Real threads time one acquisition
//! in sixteen, simulated ones all, and what a step costs the lab itself is measured and taken from the times to compute.

mod player;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use clap::{Args, ValueEnum};
use crossbeam_utils::CachePadded;
use fairlock_report::program::{Arrivals, Program, Sharing, Step};
use fairlock_report::random::XorShift;
use fairlock_report::row::LockShare;
use fairlock_report::units::at_least_one;
use serde::{Deserialize, Serialize};

use self::player::{Guarded, LockUse, Player};
use super::{Body, run_threads};
use crate::error::LabError;
use crate::locks::{Broken, LabLock};
use crate::measure::Repetition;
use crate::workload::{
    DefaultPoints, DefaultSubjects, Machine, Request, Role, UnderLock, Workload,
    check_thread_count, defaults, roles, run_under_lock, wrong,
};

/// The program that is replayed if no file is named.
const EXAMPLE: &str = "example";

/// Workers that look things up in a table and now and then change an entry, and one thread that renews the table.
const EXAMPLE_PROGRAM: &str = r#"
format = 1

[[lock]]
id = 1
name = "the table"

[[lock]]
id = 2
count = 4
name = "entries"

[[kind]]
name = "worker"
threads = 2
steps = [
    "r1 250 .1 900 r1 300 w2 80 .2 .1 700 r1 200 .1 1100 w3 120 .3 800",
    "r1 260 .1 800 r1 280 w4 90 .4 .1 900 r1 220 .1 1000 w5 110 .5 600",
]

[[kind]]
name = "updater"
threads = 1
scales = false
steps = ["w1 2000 .1 ~200000"]
"#;

/// Who uses the same lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shared {
    /// Those that the file says
    Recorded,
    /// Nobody: each thread has locks of its own, and never waits. What the program would do without contention
    Nobody,
}

/// Parameters of [`replay`](self).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Replay {
    /// A file of `fairlock run --record`; `example` is a small program of its own
    #[arg(long, value_name = "FILE", default_value = EXAMPLE)]
    pub file: String,
    /// Threads of the kinds that scale; those that do not come on top. As many as were recorded if not given
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub threads: Option<u32>,
    /// Who uses the same lock
    #[arg(long, value_enum, value_name = "WHO", default_value = "recorded")]
    pub shared: Shared,
}

impl Default for Replay {
    fn default() -> Replay {
        defaults()
    }
}

impl Workload for Replay {
    const NAME: &'static str = "replay";
    const ABOUT: &'static str =
        "what a recorded program does with its locks, with any number of threads";
    const EXAMPLES: &'static [&'static str] = &[
        "--threads 2,8",
        "--on graviton3 --threads 8,64 --lock pthread,rwsem,rwlock",
        "--shared nobody        without any contention",
    ];
    const NOTE: &'static str = "These replay the small program `example`; name another by --file. `fairlock run --record FILE -- PROGRAM` records a program; `fairlock replay FILE` says where it \
                                stops scaling, and shows that on a page.";
    const DEFAULT_SUBJECTS: DefaultSubjects = DefaultSubjects {
        here: &["rwlock", "rwsem", "pthread", "std"],
        simulated: &["rwlock", "rwsem", "linux-5.11", "mutex"],
    };
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[];

    fn roles(&self) -> Vec<Role> {
        let threads = self.staff().iter().sum();
        roles(&[("thread", threads)])
    }

    /// By the names of their kinds.
    fn thread_names(&self, _seed: u64) -> Vec<String> {
        let Ok(program) = program(&self.file) else { return Vec::new() };
        let staff = self.staff();
        let names = program.kinds.iter().zip(staff).flat_map(|(kind, threads)| {
            (1..=threads).map(|number| format!("{} {number}", kind.name))
        });
        names.collect()
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let file = Path::new(&self.file).file_name().unwrap_or_default().to_string_lossy();
        let mut words = vec![("file", file.into_owned())];
        if self.shared == Shared::Nobody {
            words.push(("shared", "each thread with locks of its own".to_owned()));
        }
        words
    }

    fn validate(&self, _pause_ns: f64) -> Result<(), LabError> {
        if let Err(invalid) = program(&self.file) {
            return wrong(
                "file",
                &self.file,
                format!("a program that can be replayed ({invalid})"),
            );
        }
        check_thread_count("threads", self.threads())?;
        let Ok(program) = program(&self.file) else { return Ok(()) };
        let threads = self.threads() as u32;
        match Instances::<Broken>::places(&program, threads, self.shared) {
            (count, _) if count > MOST_INSTANCES => {
                let valid = format!("so many that all of them have at most {MOST_INSTANCES} locks");
                wrong("threads", format!("{threads}, with {count} locks"), valid)
            }
            _ => Ok(()),
        }
    }

    fn settled(mut self) -> Replay {
        if let Ok(program) = program(&self.file) {
            self.threads = self.threads.or(Some(program.scaling_threads().max(1)));
        }
        self
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_lock(self, request)
    }
}

impl Replay {
    /// Threads of each kind; none of a program that cannot be read.
    fn staff(&self) -> Vec<u32> {
        let Ok(program) = program(&self.file) else { return Vec::new() };
        program.staff(self.threads.unwrap_or_else(|| program.scaling_threads()))
    }
}

/// A program, and where in its sequences a thread can begin.
pub struct Prepared {
    program: Program,
    /// By kind and sequence: moments at which nothing is held, with the time of all steps before, in ns, and the step.
    rests: Vec<Vec<Vec<(u64, usize)>>>,
}

impl std::ops::Deref for Prepared {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

/// Of a sequence, at most: more moments to begin at make no difference.
const MOST_RESTS: usize = 4096;

impl Prepared {
    fn new(mut program: Program) -> Prepared {
        for kind in &mut program.kinds {
            // A thread without a step would spin.
            kind.sequences.retain(|steps| !steps.is_empty());
        }
        let rests = program.kinds.iter().map(|kind| kind.sequences.iter().map(|it| rests(it)));
        Prepared { rests: rests.map(Iterator::collect).collect(), program }
    }
}

impl Prepared {
    /// How long the longest sequence takes, ns, without what its locks take.
    pub fn pass_ns(&self) -> u64 {
        let sequences = self.kinds.iter().flat_map(|kind| &kind.sequences);
        sequences.map(|steps| steps.iter().map(|step| step.ns()).sum()).max().unwrap_or(0)
    }
}

fn rests(steps: &[Step]) -> Vec<(u64, usize)> {
    let (mut held, mut ns) = (0_u32, 0_u64);
    let mut all = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        if held == 0 && matches!(step, Step::Acquire { .. } | Step::Away(_)) {
            all.push((ns, at));
        }
        ns = ns.saturating_add(step.ns());
        match step {
            Step::Acquire { .. } => held += 1,
            Step::Release(_) => held -= 1,
            Step::Compute(_) | Step::Away(_) => {}
        }
    }
    let every = all.len().div_ceil(MOST_RESTS).max(1);
    let kept: Vec<_> = all.into_iter().step_by(every).collect();
    if kept.is_empty() { vec![(0, 0)] } else { kept }
}

/// The program of this file, read once.
///
/// # Errors
/// A file that cannot be read, or is no program.
pub fn program(file: &str) -> Result<Arc<Prepared>, String> {
    static READ: Mutex<BTreeMap<String, Arc<Prepared>>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = read.get(file) {
        return Ok(program.clone());
    }
    let program = match file {
        EXAMPLE => EXAMPLE_PROGRAM.parse(),
        file => Program::read(Path::new(file)),
    };
    let prepared = Arc::new(Prepared::new(program.map_err(|invalid| invalid.to_string())?));
    read.insert(file.to_owned(), prepared.clone());
    Ok(prepared)
}

/// Locks of one origin that a thread has for itself, at most.
const MOST_OWN: u32 = 64;
/// Locks of a run, at most: each takes some hundred bytes.
const MOST_INSTANCES: usize = 1 << 22;

/// The locks of a run: which of them a thread uses under a number.
struct Instances<L> {
    locks: Vec<CachePadded<Guarded<L>>>,
    /// By lock number: where its first instance is, and how many threads share one (0: all).
    places: BTreeMap<u32, (usize, u32)>,
}

impl<L: LabLock> Instances<L> {
    /// For so many threads.
    fn new(program: &Program, threads: u32, shared: Shared) -> Instances<L> {
        let (count, places) = Self::places(program, threads, shared);
        let locks = (0..count).map(|_| CachePadded::new(Guarded::new())).collect();
        Instances { locks, places }
    }

    /// How many there are, and which of them stand for a number.
    fn places(
        program: &Program,
        threads: u32,
        shared: Shared,
    ) -> (usize, BTreeMap<u32, (usize, u32)>) {
        let mut count = 0_usize;
        let mut places = BTreeMap::new();
        for locks in &program.locks {
            let sharing = match shared {
                Shared::Recorded => locks.shared,
                Shared::Nobody => Sharing::Nobody,
            };
            let (sharers, instances) = match sharing {
                Sharing::All => (0, 1),
                Sharing::Groups(sharers) => (sharers, threads.div_ceil(sharers)),
                Sharing::Nobody => (1, threads),
            };
            // Nobody waits for locks of a thread's own, so a few can stand for many.
            let most = if sharers == 1 { MOST_OWN } else { locks.count };
            let first = count;
            count += locks.count.min(most) as usize * instances as usize;
            for number in 0..locks.count {
                let place = first + (number % most) as usize * instances as usize;
                places.insert(locks.id + number, (place, sharers));
            }
        }
        (count, places)
    }

    /// Those of one thread, by lock number.
    fn of_thread(&self, thread: u32) -> Vec<Option<&Guarded<L>>> {
        let last = self.places.keys().next_back().copied().unwrap_or(0);
        let of = |id| {
            let (first, sharers) = *self.places.get(&id)?;
            let instance = thread.checked_div(sharers).unwrap_or(0);
            Some(&*self.locks[first + instance as usize])
        };
        (0..=last).map(of).collect()
    }
}

impl UnderLock for Replay {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let program = program(&self.file).map_err(|invalid| LabError::Parameter {
            name: "file",
            value: self.file.clone(),
            valid: invalid,
        })?;
        let staff = self.staff();
        let threads: u32 = staff.iter().sum();
        let instances = Instances::<L>::new(&program, threads, self.shared);
        let uses: Mutex<Vec<LockUse>> = Mutex::new(Vec::new());
        let moment = {
            // Real threads all have one seed: each run begins at another moment all the same.
            let seed = world.seed() ^ repetition_of_real_threads(world.seed());
            f64::from(XorShift::new(seed).next_u32()) / 2f64.powi(32)
        };
        let wake_up_ns = program.recorded.as_ref().map_or(0, |recorded| recorded.wake_up_ns);
        let mut bodies: Vec<Body<'_>> = Vec::new();
        for (kind, &of_kind) in staff.iter().enumerate() {
            let sequences = &program.kinds[kind].sequences;
            for number in 0..of_kind {
                let index = bodies.len() as u32;
                let sequence = number as usize % sequences.len();
                let rests = &program.rests[kind][sequence];
                let is_copy = number as usize >= sequences.len();
                let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(index.into());
                let place = place(rests, moment, is_copy, &mut XorShift::new(seed));
                let player = Player {
                    world,
                    locks: instances.of_thread(index),
                    steps: &sequences[sequence],
                    first: place,
                    is_open: program.arrivals == Arrivals::Open,
                    wake_up_ns,
                };
                let uses = &uses;
                bodies.push(Box::new(move || {
                    let (record, used) = player.play()?;
                    let mut all = uses.lock().unwrap_or_else(PoisonError::into_inner);
                    let count = all.len().max(used.len());
                    all.resize(count, LockUse::default());
                    all.iter_mut().zip(used).for_each(|(sum, used)| *sum += used);
                    Ok(record)
                }));
            }
        }
        let mut repetition = run_threads(request, Replay::NAME, bodies)?;
        for lock in &instances.locks {
            for (event, count) in lock.events() {
                *repetition.events.entry(event).or_default() += count;
            }
        }
        let uses = uses.into_inner().unwrap_or_else(PoisonError::into_inner);
        repetition.locks = shares(&program, &uses, threads, repetition.elapsed_ns);
        Ok(repetition)
    }
}

/// What repetitions on real threads differ by.
fn repetition_of_real_threads(seed: u64) -> u64 {
    thread_local!(static RUNS: Cell<u64> = const { Cell::new(0) });
    match seed {
        0 => RUNS.with(|runs| runs.replace(runs.get() + 1)),
        _ => 0,
    }
}

/// Where a thread begins, if all begin at this part of their recording.
fn place(rests: &[(u64, usize)], moment: f64, is_copy: bool, random: &mut XorShift) -> usize {
    /// How far from the moment a copy of a recorded thread may begin, as part of the recording.
    const APART: f64 = 0.05;
    let (last, _) = rests[rests.len() - 1];
    let apart = if is_copy { APART * f64::from(random.next_u32()) / 2f64.powi(32) } else { 0.0 };
    let ns = ((moment + apart) % 1.0 * last as f64) as u64;
    let after = rests.partition_point(|(begins, _)| *begins <= ns);
    rests[after.saturating_sub(1)].1
}

/// What threads did with the locks of each name.
fn shares(program: &Program, uses: &[LockUse], threads: u32, elapsed_ns: u64) -> Vec<LockShare> {
    let all_ns = (elapsed_ns as f64 * f64::from(threads)).max(1.0);
    let seconds = elapsed_ns.max(1) as f64 / 1e9;
    let share = |locks: &fairlock_report::program::Locks| {
        let mut sum = LockUse::default();
        let ids = locks.id as usize..(locks.id + locks.count) as usize;
        uses.iter().enumerate().filter(|(id, _)| ids.contains(id)).for_each(|(_, it)| sum += *it);
        LockShare {
            id: locks.id,
            count: locks.count,
            name: locks.name.clone(),
            reads_per_s: sum.acquired[0] as f64 / seconds,
            writes_per_s: sum.acquired[1] as f64 / seconds,
            share: sum.in_calls_ns as f64 / all_ns,
        }
    };
    program.locks.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_begins_where_it_holds_nothing() {
        let prepared = Prepared::new(EXAMPLE_PROGRAM.parse().unwrap());
        let rests = &prepared.rests[0][0];
        assert_eq!(rests.iter().map(|(_, at)| *at).collect::<Vec<_>>(), [0, 4, 11, 15]);
        assert_eq!(rests[1].0, 1150);
        let mut random = XorShift::new(1);
        assert_eq!(place(rests, 0.0, false, &mut random), 0);
        assert_eq!(place(rests, 0.99, false, &mut random), 11);
        for _ in 0..100 {
            let at = place(rests, 0.97, true, &mut random);
            assert!(rests.iter().any(|(_, rest)| *rest == at));
        }
    }

    #[test]
    fn threads_are_named_by_their_kinds() {
        let replay = Replay { threads: Some(3), ..Replay::default() };
        let names = ["worker 1", "worker 2", "worker 3", "updater 1"];
        assert_eq!(replay.thread_names(0), names);
        assert_eq!(replay.threads(), 4);
        assert_eq!(Replay::default().settled().threads, Some(2));
    }

    #[test]
    fn a_few_locks_of_a_threads_own_stand_for_many() {
        let mut program: Program = EXAMPLE_PROGRAM.parse().unwrap();
        program.locks[1].count = 1000;
        let (count, places) = Instances::<Broken>::places(&program, 10, Shared::Nobody);
        assert_eq!(count, 10 * (1 + MOST_OWN as usize));
        assert_eq!(places[&2], places[&(2 + MOST_OWN)]);
        assert_ne!(places[&2], places[&3]);
        let (count, _) = Instances::<Broken>::places(&program, 10, Shared::Recorded);
        assert_eq!(count, 1001);
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error_that_says_how_to_record_one() {
        let replay = Replay { file: "/no/such/file".to_owned(), ..Replay::default() };
        let said = replay.validate(1.0).unwrap_err().to_string();
        assert!(said.contains("/no/such/file") && said.contains("--record"), "{said}");
    }
}
