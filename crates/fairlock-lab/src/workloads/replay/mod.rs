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
//! Real threads check that the locks exclude; on a simulated machine that takes no time. Simulated threads time all
//! acquisitions, and so do real ones that seldom acquire a lock; others time one in sixteen. What a step costs the lab itself is
//! measured and taken from the times to compute. A thread whose run is over leaves its steps at once, also in the middle of a long
//! one; what it waited after the run's end counts for nothing.

mod player;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use clap::{Args, ValueEnum};
use crossbeam_utils::CachePadded;
use fairlock_report::program::{Arrivals, Locks, Program, Sharing, Step};
use fairlock_report::random::XorShift;
use fairlock_report::row::{HERE, LockShare};
use fairlock_report::units::at_least_one;
use serde::{Deserialize, Serialize};

use self::player::{Guarded, LockUse, Player};
use super::{Body, Failure, add_events, run_threads};
use crate::error::LabError;
use crate::locks::{Broken, LabLock, New};
use crate::measure::Repetition;
use crate::workload::{
    DefaultPoints, DefaultSubjects, Machine, Request, Role, UnderLock, Workload,
    check_thread_count, defaults, roles, run_under_erased_lock, wrong,
};
use crate::world::World;

/// Acquisitions of threads that never wait that a CPU simulates in a second, measured on one of 2026 with five recordings,
/// which took 0.6 to 1.2 times as long. Where threads wait there are fewer, and each takes longer: that about evens out.
const SIMULATED_PER_S: f64 = 1_000_000.0;

/// What `fairlock run` calls the C library's own lock.
pub const GLIBC: &str = "glibc";

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
        let (count, _) = Instances::<Broken>::places(&program, threads, self.shared);
        if count > MOST_INSTANCES {
            let valid = format!("so many that all of them have at most {MOST_INSTANCES} locks");
            return wrong("threads", format!("{threads}, with {count} locks"), valid);
        }
        let places = program.places(&self.staff());
        if places > MOST_PLACES {
            let valid =
                format!("so many that the locks each one uses are at most {MOST_PLACES} in all");
            return wrong("threads", format!("{threads}, which use {places} locks in all"), valid);
        }
        Ok(())
    }

    fn simulation_cost(&self, _lock: &str, _cpus: u32) -> f64 {
        let Ok(program) = program(&self.file) else { return 0.0 };
        let threads = self.threads.unwrap_or_else(|| program.usual_threads());
        program.rate(threads) / SIMULATED_PER_S
    }

    fn settled(mut self) -> Replay {
        if let Ok(program) = program(&self.file) {
            self.threads = self.threads.or(Some(program.usual_threads()));
        }
        self
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_erased_lock(self, request)
    }
}

impl Replay {
    /// Threads of each kind; none of a program that cannot be read.
    fn staff(&self) -> Vec<u32> {
        let Ok(program) = program(&self.file) else { return Vec::new() };
        program.staff(self.threads.unwrap_or_else(|| program.scaling_threads()))
    }
}

/// A program, whose sequences have been taken out and prepared.
pub struct Prepared {
    program: Program,
    /// By kind.
    sequences: Vec<Vec<Sequence>>,
}

/// What a thread of a replay does.
struct Sequence {
    /// These name locks by their places in `locks`, so that a thread needs a table of those only that it uses.
    steps: Vec<Step>,
    /// The program's numbers of the locks that it uses.
    locks: Vec<u32>,
    /// Moments at which nothing is held, with the time of all steps before, in ns, and the step.
    rests: Vec<(u64, usize)>,
    /// What a step costs the lab on real threads, ns.
    step_ns: OnceLock<f64>,
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
        let sequences = program.kinds.iter_mut().map(|kind| {
            let sequences = std::mem::take(&mut kind.sequences).into_iter();
            // A thread without a step would spin.
            sequences.filter(|steps| !steps.is_empty()).map(Sequence::new).collect()
        });
        Prepared { sequences: sequences.collect(), program }
    }

    /// How long the longest sequence takes, ns, without what its locks take.
    pub fn pass_ns(&self) -> u64 {
        self.sequences.iter().flatten().map(Sequence::ns).max().unwrap_or(0)
    }

    /// Threads as there were in the recording: of the kinds that scale, or all if there is none.
    pub fn usual_threads(&self) -> u32 {
        match self.scaling_threads() {
            0 => self.kinds.iter().map(|kind| kind.threads).sum(),
            scaling => scaling,
        }
    }

    /// Locks of one origin that a thread needs if it has its own: nobody waits for those, so a few can stand for many.
    fn most_used(&self, locks: &Locks) -> u32 {
        let numbers = locks.id..locks.id + locks.count;
        let used = self.sequences.iter().flatten().map(|sequence| {
            let before = |number: u32| sequence.locks.partition_point(|id| *id < number);
            (before(numbers.end) - before(numbers.start)) as u32
        });
        used.max().unwrap_or(0).min(MOST_OWN)
    }

    /// Locks in the tables of all threads, with so many of each kind.
    fn places(&self, staff: &[u32]) -> u64 {
        let of_kind = |(sequences, threads): (&Vec<Sequence>, &u32)| -> u64 {
            let threads = *threads as usize;
            let used = sequences.iter().cycle().take(threads).map(|it| it.locks.len() as u64);
            used.sum()
        };
        self.sequences.iter().zip(staff).map(of_kind).sum()
    }

    /// Acquisitions per second of so many threads that never wait.
    pub fn rate(&self, threads: u32) -> f64 {
        let of_kind = |sequences: &Vec<Sequence>, threads: u32| {
            let rates = sequences.iter().map(Sequence::rate).sum::<f64>();
            f64::from(threads) * rates / sequences.len().max(1) as f64
        };
        let kinds = self.sequences.iter().zip(self.staff(threads));
        kinds.map(|(sequences, threads)| of_kind(sequences, threads)).sum()
    }
}

impl Sequence {
    fn new(mut steps: Vec<Step>) -> Sequence {
        let locks: BTreeSet<u32> = steps.iter().filter_map(|step| step.lock()).collect();
        let locks: Vec<u32> = locks.into_iter().collect();
        for step in &mut steps {
            if let Step::Acquire { lock, .. } | Step::Release(lock) = step {
                *lock = locks.binary_search(lock).expect("it is one of them") as u32;
            }
        }
        Sequence { rests: rests(&steps), locks, steps, step_ns: OnceLock::new() }
    }

    /// What a step costs the lab, ns: on a simulated machine nothing.
    fn step_cost<W: World>(&self, world: &W) -> Result<f64, Failure> {
        if world.name() != HERE {
            return Ok(0.0);
        }
        match self.step_ns.get() {
            Some(known) => Ok(*known),
            None => {
                let step_ns = player::step_cost(world, &self.steps)?;
                Ok(*self.step_ns.get_or_init(|| step_ns))
            }
        }
    }

    fn ns(&self) -> u64 {
        self.steps.iter().fold(0, |sum: u64, step| sum.saturating_add(step.ns()))
    }

    /// Acquisitions per second without a wait.
    fn rate(&self) -> f64 {
        let acquired = self.steps.iter().filter(|step| matches!(step, Step::Acquire { .. }));
        acquired.count() as f64 * 1e9 / self.ns().max(1) as f64
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
/// Places in the tables of all threads, at most: each takes some ten bytes.
const MOST_PLACES: u64 = 1 << 24;

/// The locks of a run: which of them a thread uses under a number.
struct Instances<L> {
    locks: Vec<CachePadded<Guarded<L>>>,
    /// By the first number of locks with one origin.
    places: BTreeMap<u32, Place>,
}

/// Where the instances of locks with one origin are.
#[derive(Debug, Clone, Copy)]
struct Place {
    first: usize,
    /// How many each of those who share has.
    count: u32,
    /// Threads that share one; 0 for all.
    sharers: u32,
}

impl<L: LabLock> Instances<L> {
    /// For so many threads.
    fn new(new: New<L>, program: &Prepared, threads: u32, shared: Shared) -> Instances<L> {
        let (count, places) = Self::places(program, threads, shared);
        let locks = (0..count).map(|_| CachePadded::new(Guarded::new(new))).collect();
        Instances { locks, places }
    }

    /// How many there are, and which of them stand for a number.
    fn places(program: &Prepared, threads: u32, shared: Shared) -> (usize, BTreeMap<u32, Place>) {
        let mut first = 0;
        let mut places = BTreeMap::new();
        for locks in &program.locks {
            let sharing = match shared {
                Shared::Recorded => locks.shared,
                Shared::Nobody => Sharing::Nobody,
            };
            let (sharers, instances, count) = match sharing {
                Sharing::All => (0, 1, locks.count),
                Sharing::Groups(1) | Sharing::Nobody => (1, threads, program.most_used(locks)),
                Sharing::Groups(sharers) => (sharers, threads.div_ceil(sharers), locks.count),
            };
            places.insert(locks.id, Place { first, count, sharers });
            first += count as usize * instances as usize;
        }
        (first, places)
    }

    /// Those that one thread has under these numbers, which ascend.
    fn of_thread(&self, thread: u32, ids: &[u32]) -> Vec<&Guarded<L>> {
        let mut ranks: BTreeMap<u32, u32> = BTreeMap::new();
        let of = |&id: &u32| {
            let (&origin, place) =
                self.places.range(..=id).next_back().expect("a program has the locks of its steps");
            let group = thread.checked_div(place.sharers).unwrap_or(0);
            // Of its own locks it has only those that it uses.
            let number = match place.sharers {
                1 => {
                    let rank = ranks.entry(origin).or_default();
                    std::mem::replace(rank, *rank + 1) % place.count
                }
                _ => id - origin,
            };
            let at = place.first + (group * place.count + number) as usize;
            &*self.locks[at]
        };
        ids.iter().map(of).collect()
    }
}

impl UnderLock for Replay {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let program = program(&self.file).map_err(|invalid| LabError::Parameter {
            name: "file",
            value: self.file.clone(),
            valid: invalid,
        })?;
        let staff = self.staff();
        let threads: u32 = staff.iter().sum();
        let instances = Instances::new(new, &program, threads, self.shared);
        let uses: Mutex<BTreeMap<u32, LockUse>> = Mutex::new(BTreeMap::new());
        let moment = {
            // Real threads all have one seed: each run begins at another moment all the same.
            let seed = world.seed() ^ repetition_of_real_threads(world.seed());
            f64::from(XorShift::new(seed).next_u32()) / 2f64.powi(32)
        };
        let wake_up_ns = program.recorded.as_ref().map_or(0, |recorded| recorded.wake_up_ns);
        let mut bodies: Vec<Body<'_>> = Vec::new();
        for (kind, &of_kind) in staff.iter().enumerate() {
            let sequences = &program.sequences[kind];
            for number in 0..of_kind {
                let index = bodies.len() as u32;
                let sequence = &sequences[number as usize % sequences.len()];
                let is_copy = number as usize >= sequences.len();
                let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(index.into());
                let place = place(&sequence.rests, moment, is_copy, &mut XorShift::new(seed));
                let player = Player {
                    world,
                    locks: instances.of_thread(index, &sequence.locks),
                    steps: &sequence.steps,
                    first: place,
                    is_open: program.arrivals == Arrivals::Open,
                    wake_up_ns,
                    length_ns: request.duration_ns,
                    seed,
                    step_ns: sequence
                        .step_cost(world)
                        .map_err(|failure| request.failed(Replay::NAME, failure))?,
                };
                let uses = &uses;
                bodies.push(Box::new(move || {
                    let (record, used) = player.play()?;
                    let mut all = uses.lock().unwrap_or_else(PoisonError::into_inner);
                    for (&id, used) in sequence.locks.iter().zip(used) {
                        *all.entry(id).or_default() += used;
                    }
                    Ok(record)
                }));
            }
        }
        let mut repetition = run_threads(request, Replay::NAME, bodies)?;
        for lock in &instances.locks {
            add_events(&mut repetition, lock.events());
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
fn shares(
    program: &Program,
    uses: &BTreeMap<u32, LockUse>,
    threads: u32,
    elapsed_ns: u64,
) -> Vec<LockShare> {
    let all_ns = (elapsed_ns as f64 * f64::from(threads)).max(1.0);
    let seconds = elapsed_ns.max(1) as f64 / 1e9;
    let share = |locks: &Locks| {
        let mut sum = LockUse::default();
        uses.range(locks.id..locks.id + locks.count).for_each(|(_, it)| sum += *it);
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
    use crate::world::{RealWorld, SimWorld};
    use fairlock_sim::profile::Profile;

    #[test]
    fn a_thread_begins_where_it_holds_nothing() {
        let prepared = Prepared::new(EXAMPLE_PROGRAM.parse().unwrap());
        let rests = &prepared.sequences[0][0].rests;
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
        let (_file, replay) = written(&["w1 5 w2 5 .2 .1 w59999 5 .59999"]);
        let used = program(&replay.file).unwrap();
        let nobodys =
            Instances::<Broken>::new(crate::locks::NewLock::new, &used, 10, Shared::Nobody);
        assert_eq!(nobodys.locks.len(), 10 * 3);
        let all: Vec<_> = (0..10).flat_map(|it| nobodys.of_thread(it, &[1, 2, 59999])).collect();
        let places: BTreeSet<_> = all.into_iter().map(std::ptr::from_ref).collect();
        assert_eq!(places.len(), 10 * 3);
        let (count, _) = Instances::<Broken>::places(&used, 10, Shared::Recorded);
        assert_eq!(count, 60000);
        let many: String = (1..=100).map(|id| format!("r{id} 5 .{id} ")).collect();
        let (_file, replay) = written(&[&many]);
        let many = program(&replay.file).unwrap();
        let (count, _) = Instances::<Broken>::places(&many, 10, Shared::Nobody);
        assert_eq!(count, 10 * MOST_OWN as usize);
    }

    #[test]
    fn threads_of_a_group_share_each_of_its_locks() {
        let mut program: Program = EXAMPLE_PROGRAM.parse().unwrap();
        program.locks[1].shared = Sharing::Groups(2);
        let prepared = Prepared::new(program);
        let all =
            Instances::<Broken>::new(crate::locks::NewLock::new, &prepared, 3, Shared::Recorded);
        assert_eq!(all.locks.len(), 1 + 2 * 4);
        let of = |thread| {
            let locks = all.of_thread(thread, &[1, 2, 5]).into_iter();
            locks.map(std::ptr::from_ref).collect::<Vec<_>>()
        };
        assert_eq!(of(0), of(1));
        assert_eq!(of(0)[0], of(2)[0]);
        assert!(of(0)[1] != of(2)[1] && of(0)[1] != of(0)[2]);
    }

    /// A lock, and kinds of one thread each that have these steps.
    fn written(steps: &[&str]) -> (tempfile::NamedTempFile, Replay) {
        let mut text = "format = 1\n[[lock]]\nid = 1\ncount = 60000\nname = \"it\"\n".to_owned();
        for (number, steps) in steps.iter().enumerate() {
            text += &format!("[[kind]]\nname = \"{number}\"\nthreads = 1\nsteps = [\"{steps}\"]\n");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        let replay = Replay { file: file.path().display().to_string(), ..Replay::default() };
        (file, replay)
    }

    /// Once on real threads, and once on a simulated machine.
    fn of_both(replay: &Replay, ns: u64) -> [Repetition; 2] {
        let (real, simulated) =
            (RealWorld::new(false), SimWorld::new(Arc::new(Profile::example()), 1, 0, false));
        let run = |ran: Result<Repetition, LabError>| ran.unwrap();
        [
            run(replay.run(&Request::new(&real, "rwlock", ns))),
            run(replay.run(&Request::new(&simulated, "rwlock", ns))),
        ]
    }

    #[test]
    fn a_thread_whose_steps_are_all_short_ends_with_the_run() {
        let (_file, replay) = written(&["w1 100 .1 100", "50"]);
        let [_, simulated] = of_both(&replay, 100_000);
        assert!(simulated.locks[0].writes_per_s > 0.0);
    }

    #[test]
    fn hours_of_computing_of_holding_and_of_absence_end_with_the_run() {
        const HOUR: &str = "3600000000000";
        let (_file, replay) = written(&[
            &format!("w1 {HOUR} .1"),
            &format!("r1 ~{HOUR} .1"),
            &format!("r2 5 .2 ~{HOUR}"),
        ]);
        let [_, simulated] = of_both(&replay, 2_000_000);
        assert!(simulated.locks[0].share > 0.0);
    }

    #[test]
    fn waits_count_only_as_far_as_they_lie_within_the_run() {
        let (_file, replay) =
            written(&["w1 300000000 .1 5", "w1 300000000 .1 5", "w1 300000000 .1 5"]);
        let [real, simulated] = of_both(&replay, 1_000_000).map(|ran| ran.locks[0].share);
        assert!(real <= 1.0, "{real}");
        assert!((0.6..0.7).contains(&simulated), "two of three wait all the time: {simulated}");
    }

    #[test]
    fn a_thread_has_a_table_only_of_the_locks_that_it_uses() {
        let (_file, replay) = written(&["w59999 5 .59999 r7 5 .7"]);
        let program = program(&replay.file).unwrap();
        assert_eq!(program.sequences[0][0].locks, [7, 59999]);
        assert_eq!(program.places(&[4096]), 2 * 4096);
        let many: String = (1..=5000).map(|id| format!("r{id} 5 .{id} ")).collect();
        let (_file, replay) = written(&[&many]);
        let said = Replay { threads: Some(4096), ..replay }.validate(1.0).unwrap_err().to_string();
        assert!(said.contains("threads") && said.contains("20480000 locks"), "{said}");
    }

    #[test]
    fn an_estimate_of_a_simulation_is_of_its_acquisitions() {
        let (_file, replay) = written(&["w1 400 .1 600", "5"]);
        let replay = Replay { threads: Some(20), ..replay };
        assert_eq!(replay.simulation_cost("rwlock", 64), 10e6 / SIMULATED_PER_S);
    }

    #[test]
    fn where_nothing_scales_there_are_the_threads_that_were_recorded() {
        let mut program: Program = EXAMPLE_PROGRAM.parse().unwrap();
        program.kinds[0].scales = false;
        let prepared = Prepared::new(program);
        assert_eq!((prepared.scaling_threads(), prepared.usual_threads()), (0, 3));
        assert_eq!(prepared.staff(3), [2, 1]);
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error_that_says_how_to_record_one() {
        let replay = Replay { file: "/no/such/file".to_owned(), ..Replay::default() };
        let said = replay.validate(1.0).unwrap_err().to_string();
        assert!(said.contains("/no/such/file") && said.contains("--record"), "{said}");
    }
}
