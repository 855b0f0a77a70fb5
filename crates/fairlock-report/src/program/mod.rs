//! A program as a replay runs it: which locks it has, which threads share them, and what each thread does with them.
//!
//! `fairlock run --record` writes such a program to a file, `fairlock replay` runs it with more threads, other locks,
//! or on another machine. The file is TOML and says everything that decides a replay, for people to read and change;
//! nothing is added to it silently. It can also be written by hand:
//!
//! ```
//! use fairlock_report::program::{Program, Step};
//!
//! let program: Program = r#"
//! format = 1
//!
//! [[lock]]                # lock 1
//! id = 1
//! name = "the table"
//!
//! [[kind]]                # two threads that look things up, or as many as --threads says
//! name = "worker"
//! threads = 2
//! steps = ["r1 120 .1 900"]
//!
//! [[kind]]                # one that updates once in a millisecond, however many workers there are
//! name = "updater"
//! threads = 1
//! scales = false
//! steps = ["w1 300 .1 ~1000000"]
//! "#.parse()?;
//! assert_eq!(program.kinds[0].sequences[0][3], Step::Compute(900));
//! # Ok::<(), fairlock_report::program::Invalid>(())
//! ```
//!
//! # Steps
//! | written | a thread |
//! |---|---|
//! | `r3`, `w3` | acquires lock 3 for reading, for writing |
//! | `r3?`, `w3?` | tries to; if it is refused, all up to the release of lock 3 still happens, without the lock |
//! | `.3` | releases lock 3 |
//! | `120` | computes for 120 ns |
//! | `~5000` | is away for 5000 ns: it sleeps, or waits for I/O or for another thread |
//! | `# …` | nothing: a comment, up to the end of the line |
//!
//! A thread that has done its last step starts again with the first. A lock that a thread holds already it does not acquire
//! once more.
//!
//! Not for: recording, which is the drop-in's; running, which is the lab's.

mod steps;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use steps::{Access, Step};

/// Numbers of locks, at most: each thread of a replay has a table of them.
const MOST_LOCKS: u32 = 1 << 16;
/// Threads of a kind, at most.
const MOST_THREADS: u32 = 4096;
/// A step that is longer is a slip of the finger: an hour, ns.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// No machine takes longer to wake a thread up, ns.
const LONGEST_WAKE_UP_NS: u64 = 1_000_000_000;
/// Bytes of a file, at most: recordings have some millions.
const LARGEST_FILE: u64 = 256 << 20;

/// The version of the format; readers refuse others.
const FORMAT: u32 = 1;

/// Why a text is no program, in one line that says what is wrong, where, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

/// What a replay runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Where it comes from; none if somebody wrote it.
    pub recorded: Option<Recorded>,
    /// Whether a thread that is late makes up for it.
    pub arrivals: Arrivals,
    /// Its locks. No two have the same number.
    pub locks: Vec<Locks>,
    /// What its threads do.
    pub kinds: Vec<Kind>,
}

/// When a thread that was away goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// As long after it left as in the recording. A closed loop: a slow lock makes for less work.
    #[default]
    Closed,
    /// When it did in the recording, or at once if it is late. An open loop: work arrives at a fixed rate, and piles up
    /// if locks are slow.
    Open,
}

/// Locks with numbers in a row that are created in the same place and shared in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locks {
    /// The first one's number, at least 1.
    pub id: u32,
    /// How many there are.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u32,
    /// What to call them: for a recorded one, where it was initialised.
    pub name: String,
    /// What the program asks of them.
    #[serde(default)]
    pub kind: LockKind,
    /// Which threads use the same one.
    #[serde(default)]
    pub shared: Sharing,
}

fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

/// What a program asks of a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// What glibc does by default: readers pass writers that wait.
    #[default]
    PreferReader,
    /// Readers wait behind writers (`PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`).
    PreferWriter,
}

/// Which threads use the same lock, however many threads there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sharing {
    /// All.
    #[default]
    All,
    /// So many: the first ones of a kind share one, the next another one.
    Groups(u32),
    /// Each thread has its own.
    Nobody,
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sharing::All => f.write_str("all"),
            Sharing::Groups(threads) => write!(f, "groups of {threads}"),
            Sharing::Nobody => f.write_str("nobody"),
        }
    }
}

impl FromStr for Sharing {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Sharing, Invalid> {
        let groups = || {
            let threads = text.strip_prefix("groups of ")?.trim().parse().ok()?;
            (threads > 0).then_some(Sharing::Groups(threads))
        };
        match text.trim() {
            "all" => Ok(Sharing::All),
            "nobody" => Ok(Sharing::Nobody),
            _ => groups().ok_or_else(|| {
                Invalid(format!(
                    "shared = \"{text}\": give \"all\", \"nobody\", or \"groups of N\" for N threads that share one"
                ))
            }),
        }
    }
}

impl Serialize for Sharing {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sharing {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Sharing, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Threads that do the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// What to call one.
    pub name: String,
    /// How many there were.
    pub threads: u32,
    /// Whether a replay with more threads has more of them.
    pub scales: bool,
    /// What they do: one sequence for each recorded thread. Each begins and ends without a lock held.
    pub sequences: Vec<Vec<Step>>,
}

/// Where a program comes from. A replay needs only what its fields say it needs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recorded {
    /// The command that was recorded.
    pub command: String,
    /// The lock under which it ran.
    pub lock: String,
    /// The CPUs it could use.
    pub cpus: u32,
    /// What they were.
    pub cpu: String,
    /// How long the program ran, seconds.
    pub seconds: f64,
    /// For how much of that it was recorded, seconds.
    pub recorded_seconds: f64,
    /// Acquisitions in the whole run.
    pub acquisitions: u64,
    /// Acquisitions per second while it was recorded and its threads had a CPU, all threads together: what a replay with
    /// the same threads under the same lock on the same machine should come to.
    pub acquisitions_per_s: f64,
    /// Share of the threads' recorded time inside calls of the lock: acquiring, waiting, releasing.
    pub in_lock: f64,
    /// Share of it computing.
    pub computing: f64,
    /// Share of it away.
    pub away: f64,
    /// Share of it without a CPU although there was something to compute. It is not in the steps: the machine of the
    /// replay has CPUs of its own.
    pub without_cpu: f64,
    /// By what factor computing in the steps differs from what was recorded. Recording slows down what it records by more than
    /// the time that it takes itself; this factor makes an acquisition and what belongs to it take as much CPU time as while
    /// nothing was recorded.
    pub computing_scaled_by: f64,
    /// What recording added to an acquisition and its release, ns. It has been subtracted from the steps.
    pub cost_ns: f64,
    /// How much longer than asked for a sleep takes on the machine that recorded, ns: a replay takes as much from each
    /// time away, since its own machine adds what a wake-up takes there.
    pub wake_up_ns: u64,
    /// What speaks against believing a replay, in sentences without a full stop at their end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Program {
    /// Reads a file.
    ///
    /// # Errors
    /// One that cannot be read, or is no program; the message names the file. Devices, pipes and files above 256 MB are not
    /// read: they need not have an end.
    pub fn read(path: &Path) -> Result<Program, Invalid> {
        let of_file = |what: &dyn fmt::Display| Invalid(format!("{}: {what}", path.display()));
        let about = std::fs::metadata(path);
        if about.as_ref().is_ok_and(|about| !about.is_file()) {
            return Err(of_file(
                &"it is no regular file; give a file that `fairlock run --record` wrote",
            ));
        }
        if let Some(about) = about.ok().filter(|about| about.len() > LARGEST_FILE) {
            return Err(of_file(&format_args!(
                "it has {} MB, and at most {} are read; give a file that `fairlock run --record` wrote",
                about.len() >> 20,
                LARGEST_FILE >> 20
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| {
            let hint = match error.kind() {
                std::io::ErrorKind::NotFound => {
                    "; record one with `fairlock run --record FILE -- PROGRAM`"
                }
                std::io::ErrorKind::InvalidData => {
                    "; give a file that `fairlock run --record` wrote"
                }
                _ => "",
            };
            of_file(&format_args!("cannot read it: {error}{hint}"))
        })?;
        text.parse().map_err(|invalid| of_file(&invalid))
    }

    /// How many threads there were of kinds that scale.
    pub fn scaling_threads(&self) -> u32 {
        let scaling = self.kinds.iter().filter(|kind| kind.scales);
        scaling.map(|kind| kind.threads).sum()
    }

    /// Threads of each kind where there are so many of those that scale: in the proportions of the recording, but at
    /// least one of each. Kinds that do not scale have as many as they had.
    pub fn staff(&self, scaling: u32) -> Vec<u32> {
        let recorded = f64::from(self.scaling_threads().max(1));
        let share = |kind: &Kind| match kind.scales {
            true => f64::from(kind.threads) * f64::from(scaling) / recorded,
            false => f64::from(kind.threads),
        };
        let mut staff: Vec<u32> = self.kinds.iter().map(|kind| share(kind) as u32).collect();
        for (threads, kind) in staff.iter_mut().zip(&self.kinds) {
            if kind.scales && scaling > 0 {
                *threads = (*threads).max(1);
            }
        }
        let scales = |index: &usize| self.kinds[*index].scales;
        let sum = |staff: &[u32]| -> u32 {
            (0..staff.len()).filter(scales).map(|index| staff[index]).sum()
        };
        // Whom the rounding has taken most from gets what is left.
        while sum(&staff) < scaling {
            let missing = |index: usize| share(&self.kinds[index]) - f64::from(staff[index]);
            let most = (0..staff.len()).filter(scales);
            let most = most.max_by(|one, other| missing(*one).total_cmp(&missing(*other)));
            match most {
                Some(index) => staff[index] += 1,
                None => break,
            }
        }
        staff
    }

    /// The locks of this number.
    pub fn lock(&self, id: u32) -> Option<&Locks> {
        self.locks.iter().find(|locks| (locks.id..locks.end()).contains(&id))
    }

    /// Whether it can be run.
    ///
    /// # Errors
    /// The first thing that is wrong.
    fn check(&self) -> Result<(), Invalid> {
        let wrong = |what: String| Err(Invalid(what));
        if self.kinds.is_empty() {
            return wrong("there is no [[kind]]: give what at least one thread does".to_owned());
        }
        let mut numbers: BTreeMap<u32, &Locks> = BTreeMap::new();
        for locks in &self.locks {
            let Locks { id, count, .. } = *locks;
            if id == 0 || count == 0 || id.saturating_add(count) > MOST_LOCKS {
                return wrong(format!(
                    "lock {id} with count = {count}: give counts of at least 1, and numbers from 1 to {}",
                    MOST_LOCKS - 1
                ));
            }
            let before = numbers.range(..locks.end()).next_back().map(|(_, before)| before);
            if let Some(before) = before.filter(|before| before.end() > locks.id) {
                return wrong(format!(
                    "lock {} is there twice (\"{}\", \"{}\"): give each lock one number",
                    locks.id.max(before.id),
                    before.name,
                    locks.name
                ));
            }
            numbers.insert(locks.id, locks);
        }
        let names: BTreeSet<&str> = self.kinds.iter().map(|kind| kind.name.as_str()).collect();
        if names.len() < self.kinds.len() {
            return wrong("two kinds have the same name: give each another one".to_owned());
        }
        for kind in &self.kinds {
            kind.check(&numbers)
                .map_err(|what| Invalid(format!("kind \"{}\": {what}", kind.name)))?;
        }
        let mut steps = self.kinds.iter().flat_map(|kind| kind.sequences.iter().flatten());
        if !steps.any(|step| matches!(step, Step::Acquire { .. })) {
            return wrong(
                "no thread acquires a lock, so there is nothing to compare: give steps like \"r1 120 .1\""
                    .to_owned(),
            );
        }
        self.recorded.as_ref().map_or(Ok(()), Recorded::check)
    }
}

impl Recorded {
    fn check(&self) -> Result<(), Invalid> {
        let numbers = [
            ("seconds", self.seconds),
            ("recorded_seconds", self.recorded_seconds),
            ("acquisitions_per_s", self.acquisitions_per_s),
            ("in_lock", self.in_lock),
            ("computing", self.computing),
            ("away", self.away),
            ("without_cpu", self.without_cpu),
            ("computing_scaled_by", self.computing_scaled_by),
            ("cost_ns", self.cost_ns),
        ];
        let is_wrong = |value: f64| !value.is_finite() || value < 0.0;
        if let Some((name, value)) = numbers.into_iter().find(|(_, value)| is_wrong(*value)) {
            return Err(Invalid(format!("[recorded] {name} = {value}: give a number from 0 on")));
        }
        match self.wake_up_ns {
            0..=LONGEST_WAKE_UP_NS => Ok(()),
            ns => Err(Invalid(format!(
                "[recorded] wake_up_ns = {ns}: give at most a second, {LONGEST_WAKE_UP_NS} ns"
            ))),
        }
    }
}

impl Locks {
    /// The number after the last one's.
    fn end(&self) -> u32 {
        self.id + self.count
    }
}

impl Kind {
    fn check(&self, locks: &BTreeMap<u32, &Locks>) -> Result<(), String> {
        if !(1..=MOST_THREADS).contains(&self.threads) {
            let threads = self.threads;
            return Err(format!(
                "threads = {threads}: give 1 to {MOST_THREADS}, or delete the kind"
            ));
        }
        if self.sequences.iter().all(|steps| steps.is_empty()) {
            return Err("it has no steps: give some, or delete the kind".to_owned());
        }
        for (number, steps) in self.sequences.iter().enumerate() {
            let wrong = |at: usize, what: String| {
                Err(format!("sequence {}, step {}: {what}", number + 1, at + 1))
            };
            if !steps.is_empty() && steps.iter().all(|step| step.ns() == 0) {
                return wrong(0, "nothing in it takes time: compute or be away".to_owned());
            }
            let mut held: Vec<(u32, Access)> = Vec::new();
            for (at, step) in steps.iter().enumerate() {
                if step.ns() > LONGEST_NS {
                    return wrong(at, format!("`{step}`: give at most an hour, {LONGEST_NS} ns"));
                }
                let Some(id) = step.lock() else { continue };
                let known = locks.range(..=id).next_back();
                if known.is_none_or(|(_, locks)| locks.end() <= id) {
                    return wrong(at, format!("`{step}`: there is no lock {id}; add a [[lock]]"));
                }
                match step {
                    Step::Release(_) => match held.iter().rposition(|(held, _)| *held == id) {
                        Some(place) => drop(held.remove(place)),
                        None => {
                            return wrong(at, format!("`{step}`: lock {id} is not held there"));
                        }
                    },
                    Step::Acquire { access, tries, .. } => {
                        let is_alone = |(lock, held): &(u32, Access)| {
                            *lock == id && (*held == Access::Write || *access == Access::Write)
                        };
                        if !tries && held.iter().any(is_alone) {
                            return wrong(
                                at,
                                format!(
                                    "`{step}`: waits for ever, as the thread holds lock {id} already; release it by `.{id}` before"
                                ),
                            );
                        }
                        held.push((id, *access));
                    }
                    Step::Compute(_) | Step::Away(_) => {}
                }
            }
            if let Some((id, _)) = held.last() {
                let last = steps.len() - 1;
                return wrong(last, format!("lock {id} is held at the end; release it by `.{id}`"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_KINDS: &str = r#"
        format = 1
        [[lock]]
        id = 1
        name = "table"
        [[lock]]
        id = 2
        count = 3
        name = "entries"
        shared = "groups of 4"
        [[kind]]
        name = "worker"
        threads = 3
        steps = ["r1 10 w4 .1 5 .4 ~20 # a comment", ""]
        [[kind]]
        name = "updater"
        threads = 1
        scales = false
        steps = ["w1? 3 .1"]
    "#;

    fn program() -> Program {
        TWO_KINDS.parse().unwrap()
    }

    #[test]
    fn a_thread_may_acquire_what_it_holds_only_to_read_it_again_or_by_a_try() {
        let with = |steps: &str| {
            let text = format!(
                "format = 1\n[[lock]]\nid = 1\nname = \"a\"\n[[kind]]\nname = \"k\"\nthreads = 1\nsteps = [\"{steps}\"]"
            );
            text.parse::<Program>().map(|_| ()).map_err(|wrong| wrong.to_string())
        };
        for fine in ["r1 r1 9 .1 .1", "r1 w1? 9 .1 .1", "w1 .1 w1 9 .1"] {
            assert_eq!(with(fine), Ok(()), "{fine}");
        }
        for stuck in ["w1 w1 9 .1 .1", "r1 5 w1 9 .1 .1", "w1 r1 9 .1 .1"] {
            let said = with(stuck).unwrap_err();
            assert!(said.contains("waits for ever") && said.contains("step"), "{said}");
        }
    }

    #[test]
    fn a_written_program_is_read() {
        let program = program();
        assert_eq!(program.recorded, None);
        assert_eq!(program.arrivals, Arrivals::Closed);
        assert_eq!(program.lock(4).unwrap().shared, Sharing::Groups(4));
        assert!(program.lock(5).is_none() && program.lock(0).is_none());
        let [worker, updater] = &program.kinds[..] else { panic!() };
        assert!(worker.scales && !updater.scales);
        let expected = [
            Step::Acquire { lock: 1, access: Access::Read, tries: false },
            Step::Compute(10),
            Step::Acquire { lock: 4, access: Access::Write, tries: false },
            Step::Release(1),
            Step::Compute(5),
            Step::Release(4),
            Step::Away(20),
        ];
        assert_eq!(worker.sequences[0], expected);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut program = program();
        program.recorded = Some(Recorded {
            command: "./server \"a\nb\"".to_owned(),
            lock: "glibc".to_owned(),
            seconds: 1.25,
            acquisitions_per_s: 1e6 / 3.0,
            ..Recorded::default()
        });
        program.arrivals = Arrivals::Open;
        let long = [Step::Compute(7), Step::Away(123_456_789)];
        program.kinds[0].sequences[1] = long.repeat(500);
        let text = program.to_string();
        assert_eq!(text.parse(), Ok(program), "{text}");
        assert!(text.lines().all(|line| line.len() < 130), "{text}");
    }

    #[test]
    fn more_threads_are_more_of_those_that_scale() {
        let program = program();
        assert_eq!(program.scaling_threads(), 3);
        assert_eq!(program.staff(64), [64, 1]);
        let mut two = program.clone();
        two.kinds[1].scales = true;
        assert_eq!(two.staff(4), [3, 1]);
        assert_eq!(two.staff(8), [6, 2]);
        assert_eq!(two.staff(9), [7, 2]);
        assert_eq!(two.staff(1), [1, 1], "at least one of each");
        assert_eq!(two.staff(240), [180, 60]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_what_would_be_right() {
        let cases = [
            ("format = 1", "format = 2", "format 2"),
            ("count = 3", "count = 0", "at least 1"),
            ("id = 2", "id = 1", "twice"),
            ("id = 1", "id = 3", "twice"),
            ("name = \"updater\"", "name = \"worker\"", "same name"),
            ("threads = 3", "threads = 0", "threads = 0"),
            ("w4 ", "w9 ", "kind \"worker\": sequence 1, step 3: `w9`: there is no lock 9"),
            (" .4", "", "step 6: lock 4 is held at the end"),
            (" .1 5", " .1 .1 5", "step 5: `.1`: lock 1 is not held"),
            ("w1? 3 .1", "w1? .1", "nothing in it takes time"),
            ("w1? 3 .1", "w1? x .1", "`x`"),
            ("w1? 3 .1", "w1? 3ms .1", "`3ms`"),
            ("w1? 3 .1", "", "has no steps"),
            ("w1? 3 .1", "w1? 99999999999999999 .1", "at most an hour"),
            ("w1? 3 .1", "w1? 99999999999999999999999 .1", "is not a step"),
            ("count = 3", "count = 4000000000", "from 1 to 65535"),
            ("threads = 3", "threads = 5000", "1 to 4096"),
            ("groups of 4", "groups of 0", "groups of N"),
            ("groups of 4", "some", "\"nobody\""),
            ("threads = 1", "thread = 1", "thread"),
        ];
        for (right, wrong, part) in cases {
            assert_eq!(TWO_KINDS.matches(right).count(), 1, "{right}");
            let text = TWO_KINDS.replace(right, wrong);
            let said = text.parse::<Program>().expect_err(wrong).to_string();
            assert!(said.contains(part) && !said.contains('\n'), "`{said}` lacks `{part}`");
        }
        let idle = TWO_KINDS.replace("r1 10 w4 .1 5 .4 ~20", "15").replace("w1? 3 .1", "3");
        assert!(idle.parse::<Program>().unwrap_err().to_string().contains("acquires a lock"));
        for (wrong, part) in [
            ("acquisitions_per_s = nan", "[recorded] acquisitions_per_s = NaN: give a number"),
            ("acquisitions_per_s = -5.0", "acquisitions_per_s = -5"),
            ("cost_ns = inf", "cost_ns = inf"),
            (
                "wake_up_ns = 1000000001",
                "[recorded] wake_up_ns = 1000000001: give at most a second",
            ),
        ] {
            let text = TWO_KINDS.replace(
                "[[lock]]\n        id = 1",
                &format!("[recorded]\n{wrong}\n[[lock]]\nid = 1"),
            );
            let said = text.parse::<Program>().expect_err(wrong).to_string();
            assert!(said.contains(part) && !said.contains('\n'), "`{said}` lacks `{part}`");
        }
        assert!("".parse::<Program>().is_err());
        let said = Program::read(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(said.contains("/no/such/file") && said.contains("--record"), "{said}");
    }

    #[test]
    fn what_need_not_have_an_end_is_not_read() {
        for endless in ["/dev/zero", "/"] {
            let said = Program::read(Path::new(endless)).unwrap_err().to_string();
            assert!(said.contains("no regular file"), "{said}");
        }
        let large = tempfile::NamedTempFile::new().unwrap();
        large.as_file().set_len(LARGEST_FILE + (1 << 20)).unwrap();
        let said = Program::read(large.path()).unwrap_err().to_string();
        assert!(said.contains("it has 257 MB, and at most 256 are read"), "{said}");
    }
}
