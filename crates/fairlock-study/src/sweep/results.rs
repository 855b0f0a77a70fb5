//! What the tasks of a sweep came to: a directory with one file for each, which is whole or not there.
//!
//! A result is written beside its place and then moved there, so that one who reads, or a second one who runs the same
//! task, never sees a part of it; the later of two whole ones stays. A file that a crash of the machine has cut is as
//! good as none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlock_lab::measure::Kept;
use fairlock_report::machine::Machine;
use fairlock_report::row::LockEvents;
use fairlock_report::timeline::Timeline;
use serde::{Deserialize, Serialize};

use super::plan::{Task, Work, version};
use crate::plan::{Cell, Made};

/// What a task came to.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The task's name.
    pub(crate) task: String,
    /// See [`version`].
    pub(crate) version: String,
    /// How long it took, seconds.
    pub(crate) took_s: f64,
    /// Where it ran, if it ran real threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<Machine>,
    /// One for each cell.
    pub(crate) cells: Vec<CellOutcome>,
}

/// What a cell came to in a task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CellOutcome {
    pub(crate) repetitions: Vec<Kept>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<LockEvents>,
    #[serde(default)]
    pub(crate) discarded: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeline: Option<Timeline>,
}

impl CellOutcome {
    /// What a cell with real threads came to.
    pub(crate) fn of(made: Made) -> CellOutcome {
        let Made { repetitions, events, discarded, .. } = made;
        let repetitions = repetitions.into_iter().map(Kept::of).collect();
        CellOutcome { repetitions, events, discarded, timeline: None }
    }
}

/// A result as it was before it was kept.
pub(crate) struct Restored {
    /// The cells, and how the runs began of which that was asked for.
    pub(crate) cells: Vec<(Made, Option<Timeline>)>,
    /// Where it ran, if it ran real threads.
    pub(crate) machine: Option<Machine>,
}

/// The directory of a sweep, as far as it holds results.
#[derive(Debug, Clone)]
pub struct Results {
    results: PathBuf,
    failed: PathBuf,
}

/// A file beside its place that is older than this is of a program that was killed.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);
/// How such files begin.
const UNFINISHED: &str = ".unfinished-";

impl Results {
    /// Those of a sweep's directory, where there may be none yet.
    pub fn of(dir: &Path) -> Results {
        Results { results: dir.join("results"), failed: dir.join("failed") }
    }

    /// Makes room for results.
    ///
    /// # Errors
    /// The operating system's.
    pub fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.results)?;
        fs::create_dir_all(&self.failed)
    }

    /// Removes what programs that were killed have left.
    pub fn clean(&self) {
        let is_unfinished = |entry: &fs::DirEntry| {
            entry.file_name().to_str().is_some_and(|name| name.starts_with(UNFINISHED))
        };
        let entries = fs::read_dir(&self.results).into_iter().flatten().flatten();
        for entry in entries.filter(is_unfinished) {
            let modified = entry.metadata().and_then(|it| it.modified());
            let age = modified.ok().and_then(|it| it.elapsed().ok()).unwrap_or_default();
            if age > LEFT_BEHIND {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// The names of tasks whose results are there, and whole.
    pub fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.results).into_iter().flatten().flatten();
        let name = |entry: fs::DirEntry| {
            let file = entry.file_name();
            let name = file.to_str()?.strip_suffix(".json")?;
            is_whole(&entry.path()).then(|| name.to_owned())
        };
        entries.filter_map(name).collect()
    }

    /// Whether the result of this task is there.
    pub fn has(&self, task: &str) -> bool {
        is_whole(&self.path(task))
    }

    fn path(&self, task: &str) -> PathBuf {
        self.results.join(format!("{task}.json"))
    }

    /// Keeps a result.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn put(&self, outcome: &Outcome) -> io::Result<()> {
        let mut text = serde_json::to_vec(outcome)?;
        text.push(b'\n');
        // Several may run one task, on machines that share the directory.
        let unique = format!("{}-{}-{:x}", outcome.task, std::process::id(), unlikely_number());
        let new = self.results.join(format!("{UNFINISHED}{unique}"));
        let written = write_synced(&new, &text);
        let moved = written.and_then(|()| fs::rename(&new, self.path(&outcome.task)));
        match &moved {
            Ok(()) => _ = fs::remove_file(self.reason(&outcome.task)),
            Err(_) => _ = fs::remove_file(&new),
        }
        moved
    }

    /// What a task came to: its cells with their repetitions, and how the first one's timelines began; none where it
    /// is not there.
    ///
    /// # Errors
    /// The file and what is wrong with it; the result of another version.
    pub(crate) fn get(&self, task: &Task<'_>) -> Result<Option<Restored>, String> {
        let path = self.path(task.name);
        if !is_whole(&path) {
            return Ok(None);
        }
        let wrong = |error: &dyn std::fmt::Display| {
            format!("{}: {error}; remove the file and run the sweep again", path.display())
        };
        let text = fs::read(&path).map_err(|error| wrong(&error))?;
        let outcome: Outcome = serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
        if outcome.task != task.name {
            return Err(wrong(&format!("it is the result of task {}", outcome.task)));
        }
        if outcome.version != version() {
            return Err(wrong(&format!("it is of version {}, not {}", outcome.version, version())));
        }
        let cells: Vec<&Cell> = match task.work {
            Work::Seed { cell, .. } => vec![cell],
            Work::Threads(cells) => cells.iter().collect(),
        };
        if outcome.cells.len() != cells.len() {
            return Err(wrong(&format!("{} cells, not {}", outcome.cells.len(), cells.len())));
        }
        let is_seed = matches!(task.work, Work::Seed { .. });
        let made = |(cell, it): (&Cell, CellOutcome)| {
            let wanted = if is_seed { 1 } else { cell.repetitions as usize };
            if it.repetitions.len() != wanted {
                return Err(wrong(&format!("{} repetitions, not {wanted}", it.repetitions.len())));
            }
            if it.repetitions.iter().any(|kept| !kept.is_of(is_seed)) {
                return Err(wrong(&"a repetition without roles, or without what was counted"));
            }
            let roles: Vec<&str> = cell.workload.roles().iter().map(|role| role.name).collect();
            let repetitions = it.repetitions.into_iter().map(|kept| kept.restored(&roles));
            let repetitions =
                repetitions.collect::<Result<Vec<_>, _>>().map_err(|it| wrong(&it))?;
            let (cell, events, discarded) = (cell.clone(), it.events, it.discarded);
            Ok((Made { cell, repetitions, events, discarded }, it.timeline))
        };
        let machine = outcome.machine;
        let cells =
            cells.into_iter().zip(outcome.cells).map(made).collect::<Result<_, String>>()?;
        Ok(Some(Restored { cells, machine }))
    }

    fn reason(&self, task: &str) -> PathBuf {
        self.failed.join(format!("{task}.txt"))
    }

    /// Keeps why a task failed.
    ///
    /// # Errors
    /// The operating system's.
    pub fn put_failure(&self, task: &str, reason: &str) -> io::Result<()> {
        fs::write(self.reason(task), format!("{reason}\n"))
    }

    /// Why tasks failed, by their names; not of those whose result came later.
    pub fn failures(&self) -> BTreeMap<String, String> {
        let entries = fs::read_dir(&self.failed).into_iter().flatten().flatten();
        let failure = |entry: fs::DirEntry| {
            let file = entry.file_name();
            let name = file.to_str()?.strip_suffix(".txt")?.to_owned();
            let reason = fs::read_to_string(entry.path()).ok()?;
            (!self.has(&name)).then(|| (name, reason.trim().to_owned()))
        };
        entries.filter_map(failure).collect()
    }

    /// Takes over results that are not here yet from another directory.
    ///
    /// # Errors
    /// The operating system's, with the file.
    pub fn take_from(&self, other: &Results, names: &BTreeSet<String>) -> Result<usize, String> {
        let mut taken = 0;
        for name in names.iter().filter(|name| !self.has(name)) {
            let (from, to) = (other.path(name), self.path(name));
            let new = self.results.join(format!("{UNFINISHED}{name}-{}", std::process::id()));
            let moved = fs::copy(&from, &new).and_then(|_| fs::rename(&new, &to));
            moved.map_err(|error| {
                format!("cannot copy {} to {} ({error})", from.display(), to.display())
            })?;
            taken += 1;
        }
        Ok(taken)
    }
}

fn write_synced(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text)?;
    file.sync_data()
}

/// Whether a file ends as one does that was written to its end.
fn is_whole(path: &Path) -> bool {
    // A pipe would be waited for.
    if !fs::metadata(path).is_ok_and(|it| it.is_file()) {
        return false;
    }
    let last = || -> io::Result<u8> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        Ok(last[0])
    };
    last().is_ok_and(|last| last == b'\n')
}

/// A number that two programs on two machines hardly have in common.
fn unlikely_number() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
