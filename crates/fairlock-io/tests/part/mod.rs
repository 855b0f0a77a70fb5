//! Parts of a test that run in processes of their own: the test program is started anew for each.
//!
//! A part may die by a signal or hang without taking the test along. A test program with parts has a test
//! `part`, which does what [`asked`] says; on its own it does nothing.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PART: &str = "FAIRLOCK_LOG_PART";
const PLACE: &str = "FAIRLOCK_LOG_PLACE";

/// No part takes as long, but one that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// What this process is to do, and where; none if it is no part.
pub fn asked() -> Option<(String, PathBuf)> {
    Some((env::var(PART).ok()?, PathBuf::from(env::var_os(PLACE)?)))
}

/// A part that runs; it is killed when this is dropped.
pub struct Part {
    name: String,
    process: Child,
}

impl Part {
    /// Starts it, with more in its environment.
    pub fn start(name: &str, place: &Path, environment: &[(&str, String)]) -> Part {
        let process = Command::new(env::current_exe().expect("this test has a path"))
            .args(["--exact", "part", "--nocapture"])
            .env(PART, name)
            .env(PLACE, place)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        Part { name: name.to_owned(), process }
    }

    /// Waits until it has ended; an error if a signal has ended it, a check has failed, or it hangs.
    pub fn ends_well(mut self) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
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
