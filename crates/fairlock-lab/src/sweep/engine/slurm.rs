//! Slurm: one job array, an element for each job.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::{Draft, State, output_of};

const PACKAGE: &str = "Slurm (Debian's package slurm-client)";

pub(super) fn script(draft: &Draft<'_>) -> String {
    let Draft { title, jobs, seconds, memory_mib, .. } = draft;
    let minutes = seconds.div_ceil(60);
    let mut text = format!(
        "#!/bin/bash\n\
         # Written by `fairlock sweep submit`. You may edit it, and submit it by hand: sbatch {SCRIPT}\n\
         #SBATCH --job-name=fairlock-{}\n\
         #SBATCH --array=1-{jobs}\n\
         #SBATCH --ntasks=1\n\
         #SBATCH --mem={memory_mib}M\n\
         #SBATCH --time={}:{:02}:00\n\
         #SBATCH --output={}\n\
         #SBATCH --open-mode=append\n",
        title.replace(|it: char| !it.is_alphanumeric(), "-"),
        minutes / 60,
        minutes % 60,
        draft.log("%a"),
        SCRIPT = super::SCRIPT,
    );
    if draft.exclusive {
        text += "# Real threads: nobody else on the node.\n#SBATCH --exclusive\n";
    } else {
        text += "#SBATCH --cpus-per-task=1\n";
    }
    for option in &draft.options.more {
        let _ = writeln!(text, "#SBATCH {option}");
    }
    let _ = writeln!(text, "{}", draft.command("\"$SLURM_ARRAY_TASK_ID\""));
    text
}

pub(super) fn submit(script: &Path) -> Result<String, String> {
    let said = output_of(Command::new("sbatch").arg("--parsable").arg(script), PACKAGE)?;
    // With several clusters: `1234;cluster`.
    let id = said.trim().split(';').next().unwrap_or_default().to_owned();
    match id.parse::<u64>() {
        Ok(_) => Ok(id),
        Err(_) => Err(format!("sbatch said \"{}\", which is no number of a job", said.trim())),
    }
}

pub(super) fn states(id: &str) -> Result<BTreeMap<usize, State>, String> {
    let mut states = BTreeMap::new();
    // Jobs that ended some minutes ago are known to the accounting only, where there is one.
    let account = ["-n", "-X", "-P", "-j", id, "-o", "JobID,State"];
    if let Ok(said) = output_of(Command::new("sacct").args(account), PACKAGE) {
        states.extend(said.lines().filter_map(accounted));
    }
    if let Ok(said) = output_of(Command::new("scontrol").args(["-o", "show", "job", id]), PACKAGE) {
        states.extend(said.lines().filter_map(shown));
    }
    let queue = ["--noheader", "--array", "--states=all", "-j", id, "-o", "%K %T"];
    match output_of(Command::new("squeue").args(queue), PACKAGE) {
        Ok(said) => states.extend(said.lines().filter_map(queued)),
        // It has forgotten the job.
        Err(said) if said.contains("Invalid job id") => {}
        Err(said) => return Err(said),
    }
    Ok(states)
}

fn state(word: &str) -> State {
    match word.split_whitespace().next().unwrap_or_default() {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "SUSPENDED" => State::Waiting,
        "RUNNING" | "COMPLETING" | "STAGE_OUT" => State::Running,
        other => State::Ended(other.to_owned()),
    }
}

/// `123_7|TIMEOUT`.
fn accounted(line: &str) -> Option<(usize, State)> {
    let (id, word) = line.split_once('|')?;
    Some((id.split_once('_')?.1.parse().ok()?, state(word)))
}

/// `JobId=130 ArrayJobId=123 ArrayTaskId=7 … JobState=TIMEOUT …`, for one that waits `ArrayTaskId=7-9`.
fn shown(line: &str) -> Option<(usize, State)> {
    let field = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name));
    Some((field("ArrayTaskId=")?.parse().ok()?, state(field("JobState=")?)))
}

/// `7 RUNNING`.
fn queued(line: &str) -> Option<(usize, State)> {
    let (job, word) = line.trim().split_once(' ')?;
    Some((job.parse().ok()?, state(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_slurm_says_of_jobs_is_understood() {
        assert_eq!(queued("7 RUNNING"), Some((7, State::Running)));
        assert_eq!(queued("12 PENDING"), Some((12, State::Waiting)));
        assert_eq!(
            accounted("123_7|CANCELLED by 0"),
            Some((7, State::Ended("CANCELLED".to_owned())))
        );
        assert_eq!(accounted("123_[8-9]|PENDING"), None);
        let line = "JobId=130 ArrayJobId=123 ArrayTaskId=7 JobName=x UserId=a(0) JobState=TIMEOUT Reason=None";
        assert_eq!(shown(line), Some((7, State::Ended("TIMEOUT".to_owned()))));
    }
}
