//! The run's side of a storm: starts the daemon anew from the program, as a process with threads must
//! not fork, and ends it with all that it forked.
//!
//! Invariants
//! 1. The daemon leads a process group of its own, which all that it forks stays in. The group's
//!    number is not given away before the daemon is waited for, so until then a signal to the group
//!    meets nobody else.
//! 2. When a [`Daemon`] is dropped, its whole group has ended or is about to: it was killed.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering::Acquire;
use std::thread;
use std::time::{Duration, Instant};

use super::shared::{Control, DONE};
use super::storm::{Job, SUBCOMMAND};
use crate::error::LabError;
use crate::workloads::readseek::processes::how;

/// How often the run looks after the daemon.
pub const POLL: Duration = Duration::from_millis(2);
/// How long killed processes may take to be gone, if nobody waits for them but the system.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// A daemon, and the group that it leads.
pub struct Daemon {
    child: Child,
    /// Whether it was waited for, and its number given away.
    is_waited_for: bool,
}

fn failed(what: String) -> LabError {
    LabError::io("run a storm of forks", io::Error::other(what))
}

impl Daemon {
    /// Starts one whose standard input is the shared file.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(program: &Path, job: &Job, file: File) -> Result<Daemon, LabError> {
        let job = serde_json::to_string(job).expect("a job is made of numbers and text");
        let child = Command::new(program)
            .arg0("fairlock")
            .args([SUBCOMMAND, &job])
            .process_group(0)
            .stdin(Stdio::from(file))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let child = child.map_err(|source| LabError::io("start the daemon of forks", source))?;
        Ok(Daemon { child, is_waited_for: false })
    }

    /// Whether it has ended. It is not waited for (invariant 1).
    fn has_ended(&self) -> bool {
        let mut about = MaybeUninit::<libc::siginfo_t>::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `about` is a place for the call to write to, and zeros are a valid value; without
        // an ended child it stays zero.
        let (result, about) = unsafe {
            let result = libc::waitid(libc::P_PID, self.child.id(), about.as_mut_ptr(), flags);
            (result, about.assume_init())
        };
        // SAFETY: the call fills in this part.
        result != 0 || unsafe { about.si_pid() } != 0
    }

    /// Kills all of its group, and waits for it.
    fn end(&mut self) -> io::Result<ExitStatus> {
        if !self.is_waited_for {
            // SAFETY: the call takes integers; invariant 1 says whom it meets.
            unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
        }
        self.is_waited_for = true;
        self.child.wait()
    }

    /// Looks whether it has ended without having done its work.
    ///
    /// # Errors
    /// If so, with its last words.
    pub fn check(&mut self, control: &Control) -> Result<(), LabError> {
        // Acquire: pairs with the daemon's stores. In this order: what has ended stores no more.
        if !self.has_ended() || control.state.load(Acquire) == DONE {
            return Ok(());
        }
        // All of them: nobody else may keep its last words open.
        let status = self.end();
        let status = status.map_err(|source| LabError::io("wait for a process", source))?;
        Err(failed(format!("its daemon {}", how(status, &mut self.child))))
    }

    /// Waits until the daemon has come so far, for so long.
    ///
    /// # Errors
    /// When it ends, or does not come so far in time.
    pub fn wait_until(
        &mut self,
        control: &Control,
        patience: Duration,
        so_far: impl Fn(&Daemon) -> bool,
    ) -> Result<(), LabError> {
        let deadline = Instant::now() + patience;
        loop {
            self.check(control)?;
            if so_far(self) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let seconds = patience.as_secs_f64();
                return Err(failed(format!(
                    "its processes did not answer for {seconds} s and were killed"
                )));
            }
            thread::sleep(POLL);
        }
    }

    /// Whether it has done its work and ended.
    pub fn is_done(&self, control: &Control) -> bool {
        // Acquire: pairs with the daemon's last store.
        control.state.load(Acquire) == DONE && self.has_ended()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // One that has ended is as good.
        let _ = self.end();
        // The others are the system's children now; usually there are none.
        let group = -(self.child.id() as libc::pid_t);
        let deadline = Instant::now() + GONE_WITHIN;
        // SAFETY: signal 0 only asks.
        while unsafe { libc::kill(group, 0) } == 0 && Instant::now() < deadline {
            thread::sleep(POLL);
        }
    }
}
