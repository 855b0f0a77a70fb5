//! Parts of a test that run in processes of their own: the test program is started anew for each.
//!
//! A part may die by a signal or hang without taking the test along, may change what a process has only one
//! of (its directory, its user, what is preloaded), and may fork while nobody else runs in it. The test `part` of
//! this program does what its process was started for; on its own it does nothing.

use std::env;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PART: &str = "FAIRLOCK_LOG_PART";
const PLACE: &str = "FAIRLOCK_LOG_PLACE";

/// Few parts take as long, but those that hang.
const PATIENCE: Duration = Duration::from_secs(300);

/// The parts of a module: what they are called, and what they do in the place that they are given.
pub type Parts = [(&'static str, fn(&Path))];

/// Does what this process was started for, if it is a part.
pub fn run(parts: &[&Parts]) {
    let (Ok(part), Some(place)) = (env::var(PART), env::var_os(PLACE)) else { return };
    let mut found = parts.iter().copied().flatten().filter(|(name, _)| *name == part);
    let (_, act) = found.next().unwrap_or_else(|| panic!("no part is called {part}"));
    assert!(found.next().is_none(), "two parts are called {part}");
    act(Path::new(&place));
}

/// A part that runs; it is killed when this is dropped.
pub struct Part {
    name: String,
    pub process: Child,
}

impl Part {
    /// Starts it, with more in its environment.
    pub fn start(name: &str, place: &Path, environment: &[(&str, String)]) -> Part {
        Part::start_with_output(name, place, environment, Stdio::null())
    }

    /// The same, and what it prints goes there.
    pub fn start_with_output(
        name: &str,
        place: &Path,
        environment: &[(&str, String)],
        output: Stdio,
    ) -> Part {
        let process = Command::new(env::current_exe().expect("this test has a path"))
            .args(["--exact", "part", "--nocapture"])
            .env(PART, name)
            .env(PLACE, place)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output)
            .spawn()
            .expect("it starts");
        Part { name: name.to_owned(), process }
    }

    /// Waits until it has ended; an error if a signal has ended it, a check has failed, or it hangs.
    pub fn ends_well(self) -> Result<(), String> {
        self.ends_well_within(PATIENCE)
    }

    /// The same for a part that has more to do.
    pub fn ends_well_within(mut self, patience: Duration) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < patience {
            if let Some(status) = self.process.try_wait().expect("it is a child") {
                return match status.success() {
                    true => Ok(()),
                    false => Err(format!("{}: {status}", self.name)),
                };
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(format!("{}: it hangs", self.name))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It has ended if the test went well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
