//! Says when other programs disturb a measurement, and waits for them if that is wanted.

use std::time::Duration;

use clap::Args;
use fairlock_report::busy::Busy;
use fairlock_report::screen::{complain, say};
use fairlock_report::units;

/// How long other programs are waited for.
#[derive(Debug, Args)]
pub struct Quiet {
    /// Wait up to SECONDS until other programs leave the CPUs alone, as they distort the figures
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_wait, global = true)]
    wait: Option<Duration>,
}

impl Quiet {
    /// The CPUs that others keep busy, if the kernel tells. Says so if that matters.
    pub fn look(&self) -> Option<f64> {
        look(self.wait)
    }
}

/// As [`Quiet::look`].
pub fn look(wait: Option<Duration>) -> Option<f64> {
    let found = Busy::look()?;
    if found.is_quiet() {
        return Some(found.others);
    }
    let Some(wait) = wait else {
        complain(&format!(
            "warning: other programs keep {} busy; --wait 60 waits for them",
            found.words()
        ));
        return Some(found.others);
    };
    let seconds = units::format_minutes(wait.as_secs_f64());
    say(&format!("other programs keep {} busy: waiting up to {seconds} for them", found.words()));
    let found = found.wait(wait);
    if !found.is_quiet() {
        complain(&format!("warning: other programs still keep {} busy", found.words()));
    }
    Some(found.others)
}
