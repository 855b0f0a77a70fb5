//! `fairlock replay`: from a recorded program to batches of cells, and a closer look where it breaks.

use std::sync::Arc;

use fairlock_lab::locks;
use fairlock_lab::workload::LOCKS;
use fairlock_lab::workloads::replay::{self, GLIBC, Prepared, Replay, Shared};
use fairlock_report::program::LockKind;
use fairlock_report::row::Row;

use crate::plan::{Batch, Cell, Simulated};
use crate::report::replays::Scaling;

/// The lock whose uncontended acquisitions cost least: what a program with locks of its own for each thread runs under.
const LIMIT_LOCK: &str = "rwlock";
/// A simulated repetition has one pass through the recording, so that its phases count as much as they do there; but not
/// more acquisitions than this, which take about a second to simulate.
const ACQUISITIONS: f64 = 300_000.0;
/// Shorter a run would have too few time slices and wake-ups, longer it would take minutes to simulate.
const SIMULATED_SECONDS: (f64, f64) = (0.01, 1.0);
/// On real threads: a file may say that a thread is away for hours.
const REAL_SECONDS: (f64, f64) = (1.0, 60.0);
/// How much of a run the timeline of a lock shows.
const TIMELINE_NS: u64 = 1_000_000;

/// What to replay, and how.
#[derive(Debug, Clone)]
pub struct Replaying {
    /// The program's file.
    pub file: String,
    /// The locks, by the names of [`locks::registry`] or `glibc`.
    pub locks: Vec<String>,
    /// Simulated machines; real threads if there is none.
    pub machines: Vec<Simulated>,
    /// Numbers of threads; those that suit the machine if there is none.
    pub threads: Vec<u32>,
    /// Seconds of each repetition; what suits the program if none is given.
    pub seconds: Option<f64>,
    /// Repetitions, or seeds.
    pub repetitions: u32,
}

/// The lab's name of a lock that `fairlock run` knows.
pub fn lock_of_run(program: &Prepared, name: &str) -> String {
    let prefers_writers = |kind| kind == LockKind::PreferWriter;
    match name {
        GLIBC if program.locks.iter().all(|locks| prefers_writers(locks.kind)) => "pthread-writer",
        GLIBC => "pthread",
        other => other,
    }
    .to_owned()
}

/// Powers of two, and all CPUs.
fn up_to(cpus: u32) -> Vec<u32> {
    let powers = (0..).map(|exponent| 1_u32 << exponent).take_while(|threads| *threads < cpus);
    powers.chain([cpus]).collect()
}

impl Replaying {
    /// The program.
    ///
    /// # Errors
    /// A file that cannot be read, or is no program.
    pub fn program(&self) -> Result<Arc<Prepared>, String> {
        replay::program(&self.file)
    }

    /// All cells, a batch for each machine and number of threads.
    ///
    /// # Errors
    /// A file that is no program, a lock that does not run there.
    pub fn batches(&self) -> Result<Vec<Batch>, String> {
        let program = self.program()?;
        let mut names: Vec<String> = Vec::new();
        for name in &self.locks {
            let name = lock_of_run(&program, name);
            let all = match name.as_str() {
                "all" => (LOCKS.all)(!self.machines.is_empty()),
                name => vec![name],
            };
            for name in all {
                let found = match self.machines.is_empty() {
                    true => locks::find(name),
                    false => locks::find_simulated(name),
                };
                found.map_err(|error| error.to_string())?;
                if !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
            }
        }
        let places: Vec<Option<&Simulated>> = match self.machines.is_empty() {
            true => vec![None],
            false => self.machines.iter().map(Some).collect(),
        };
        let mut batches = Vec::new();
        for on in places {
            let threads = match (&self.threads[..], on) {
                // Whatever is asked for, there are as many as there are.
                _ if program.scaling_threads() == 0 => vec![program.usual_threads()],
                ([], None) => vec![program.usual_threads()],
                ([], Some(on)) => up_to(on.profile.topology.cpus()),
                (threads, _) => threads.to_vec(),
            };
            for threads in threads {
                let all = names
                    .iter()
                    .map(|lock| self.cell(&program, lock, on, threads, Shared::Recorded));
                let limit = self.cell(&program, LIMIT_LOCK, on, threads, Shared::Nobody);
                let cells: Vec<Cell> = all.chain([limit]).collect();
                batches.push(Batch { title: cells[0].workload.describe(), cells });
            }
        }
        Ok(batches)
    }

    fn cell(
        &self,
        program: &Prepared,
        lock: &str,
        on: Option<&Simulated>,
        threads: u32,
        shared: Shared,
    ) -> Cell {
        let seconds = self.seconds.unwrap_or_else(|| {
            let pass = program.pass_ns() as f64 / 1e9;
            let (seconds, (least, most)) = match on {
                None => (pass, REAL_SECONDS),
                Some(_) => {
                    let most = ACQUISITIONS / program.rate(threads).max(1.0);
                    (pass.min(most), SIMULATED_SECONDS)
                }
            };
            seconds.clamp(least, most)
        });
        let replay = Replay { file: self.file.clone(), threads: Some(threads), shared };
        Cell {
            workload: replay.into(),
            lock: lock.to_owned(),
            repetitions: self.repetitions,
            seconds,
            on: on.cloned(),
            for_limit: false,
        }
    }

    /// What to run once more to see how threads begin under each lock where the first one breaks.
    ///
    /// # Errors
    /// As [`batches`](Replaying::batches).
    pub fn closer_looks(&self, rows: &[Row]) -> Result<Vec<Batch>, String> {
        let program = self.program()?;
        let mut batches = Vec::new();
        for scaling in Scaling::of(rows) {
            let on = self.machines.iter().find(|on| on.machine() == scaling.machine);
            let (Some(on), Some(threads)) = (on, scaling.knee()) else { continue };
            let on = Simulated { timeline_ns: TIMELINE_NS, ..on.clone() };
            let cells = scaling.lock_names().map(|lock| Cell {
                repetitions: 1,
                seconds: TIMELINE_NS as f64 / 1e9,
                ..self.cell(&program, lock, Some(&on), threads, Shared::Recorded)
            });
            let cells: Vec<Cell> = cells.collect();
            batches.push(Batch { title: "timelines".to_owned(), cells });
        }
        Ok(batches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaying(locks: &[&str], machines: Vec<Simulated>) -> Replaying {
        Replaying {
            file: "example".to_owned(),
            locks: locks.iter().map(|lock| (*lock).to_owned()).collect(),
            machines,
            threads: Vec::new(),
            seconds: None,
            repetitions: 2,
        }
    }

    #[test]
    fn each_machine_has_threads_up_to_its_cpus_and_a_limit() {
        let on = Simulated::find("graviton3", 1).unwrap();
        let cpus = on.profile.topology.cpus();
        let batches = replaying(&["rwsem", "rwlock"], vec![on]).batches().unwrap();
        assert_eq!(batches.len(), up_to(cpus).len());
        let locks: Vec<&str> = batches[0].cells.iter().map(|cell| cell.lock.as_str()).collect();
        assert_eq!(locks, ["rwsem", "rwlock", "rwlock"]);
        assert_eq!(up_to(64), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(up_to(48), [1, 2, 4, 8, 16, 32, 48]);
    }

    #[test]
    fn glibcs_lock_is_the_one_whose_kind_the_program_uses() {
        let program = replay::program("example").unwrap();
        assert_eq!(lock_of_run(&program, GLIBC), "pthread");
        assert_eq!(lock_of_run(&program, "rwsem"), "rwsem");
    }

    #[test]
    fn a_repetition_has_a_length_that_can_be_run_however_long_the_steps_are() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text =
            "format = 1\n[[lock]]\nid = 1\nname = \"it\"\n[[kind]]\nname = \"w\"\nthreads = 1\n";
        std::fs::write(&file, format!("{text}steps = [\"r1 5 .1 ~3600000000000\"]")).unwrap();
        let on = Simulated::find("graviton3", 1).unwrap();
        for (machines, seconds) in [(Vec::new(), 60.0), (vec![on], 1.0)] {
            let file = file.path().display().to_string();
            let of_file = Replaying { file, ..replaying(&["rwlock"], machines) };
            assert_eq!(of_file.batches().unwrap()[0].cells[0].seconds, seconds);
        }
    }

    #[test]
    fn a_lock_that_is_not_there_is_refused() {
        let refused = replaying(&["fast"], Vec::new()).batches().unwrap_err();
        assert!(refused.contains("`fast`") && refused.contains("rwsem"), "{refused}");
    }
}
