//! Slurm: one job array, an element for each job.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::{Draft, LOGS, State, output_of, quoted};

const PACKAGE: &str = "Slurm (Debian's package slurm-client)";

pub(super) fn script(draft: &Draft<'_>) -> String {
    let Draft { jobs, seconds, memory_mib, dir, .. } = draft;
    let minutes = seconds.div_ceil(60);
    // Slurm takes a percent sign for the beginning of a placeholder.
    let logs = dir.join(LOGS).display().to_string().replace('%', "%%");
    let mut text = format!(
        "#!/bin/bash\n\
         # Written by `fairlock sweep submit`. You may edit it, and submit it by hand: sbatch {SCRIPT}\n\
         #SBATCH --job-name={}\n\
         #SBATCH --array=1-{jobs}\n\
         #SBATCH --chdir={}\n\
         #SBATCH --output={}\n\
         #SBATCH --open-mode=append\n\
         #SBATCH --time={}:{:02}:00\n\
         #SBATCH --ntasks=1\n",
        draft.name(),
        quoted(dir),
        quoted(&Path::new(&logs).join("%a.log")),
        minutes / 60,
        minutes % 60,
        SCRIPT = super::SCRIPT,
    );
    if draft.exclusive {
        text += "# Real threads: nobody else on the node, and all of its memory.\n#SBATCH --exclusive\n#SBATCH --mem=0\n";
    } else {
        let _ = writeln!(text, "#SBATCH --cpus-per-task=1\n#SBATCH --mem={memory_mib}M");
    }
    for option in &draft.options.more {
        let _ = writeln!(text, "#SBATCH {option}");
    }
    let _ = writeln!(text, "{}", draft.command("\"$SLURM_ARRAY_TASK_ID\""));
    text
}

pub(super) fn submit(script: &Path) -> Result<String, String> {
    let said = said_by(Command::new("sbatch").arg("--parsable").arg(script))?;
    // With several clusters: `1234;cluster`.
    let id = said.trim().split(';').next().unwrap_or_default().to_owned();
    match id.parse::<u64>() {
        Ok(_) => Ok(id),
        Err(_) => Err(format!("sbatch said \"{}\", which is no number of a job", said.trim())),
    }
}

/// What a program of Slurm's prints.
fn said_by(command: &mut Command) -> Result<String, String> {
    output_of(command, PACKAGE).map_err(|said| {
        let advice = [
            ("contact slurm controller", "wait until `scontrol ping` finds it"),
            ("configuration source", "use a machine of the cluster, or set SLURM_CONF"),
            ("Invalid job array", "give fewer --jobs than the cluster's MaxArraySize"),
        ];
        match advice.iter().find(|(words, _)| said.contains(words)) {
            Some((_, advice)) => format!("{said}; {advice}"),
            None => said,
        }
    })
}

pub(super) fn states(id: &str, jobs: &BTreeSet<usize>) -> Result<BTreeMap<usize, State>, String> {
    let queue = ["--noheader", "--array", "--states=all", "-j", id, "-o", "%K %T"];
    let mut states: BTreeMap<usize, State> = match said_by(Command::new("squeue").args(queue)) {
        Ok(said) => said.lines().filter_map(queued).collect(),
        // All of its jobs ended some minutes ago.
        Err(said) if said.contains("Invalid job id") => BTreeMap::new(),
        Err(said) => return Err(said),
    };
    // How jobs ended is told elsewhere. Without it they have ended all the same.
    let has_ended = |job: &usize| matches!(states.get(job), Some(State::Ended(_)));
    if jobs.iter().any(has_ended) {
        let shown = said_by(Command::new("scontrol").args(["-o", "show", "job", id]));
        states.extend(shown.unwrap_or_default().lines().filter_map(ended));
    }
    if jobs.iter().any(|job| !states.contains_key(job)) {
        let account = ["-n", "-X", "-P", "-j", id, "-o", "JobID,State,ExitCode"];
        let accounts = said_by(Command::new("sacct").args(account)).unwrap_or_default();
        for (job, state) in accounts.lines().filter_map(accounted) {
            states.entry(job).or_insert(state);
        }
    }
    Ok(states)
}

fn state(word: &str) -> State {
    match word.split_whitespace().next().unwrap_or_default() {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD"
        | "RESV_DEL_HOLD" | "SPECIAL_EXIT" => State::Waiting,
        "RUNNING" | "COMPLETING" | "RESIZING" | "SIGNALING" | "STAGE_OUT" | "STOPPED"
        | "SUSPENDED" => State::Running,
        other => State::Ended(other.to_owned()),
    }
}

/// The same of a job with the exit code `3:0`, which is an exit status and a signal.
fn state_with(word: &str, exit_code: &str) -> State {
    match state(word) {
        State::Ended(how) if how == "FAILED" => State::Ended(match exit_code.split_once(':') {
            Some((status, "0")) => format!("FAILED, exit status {status}"),
            Some((_, signal)) => format!("FAILED, killed by signal {signal}"),
            None => how,
        }),
        other => other,
    }
}

/// `7 RUNNING`.
fn queued(line: &str) -> Option<(usize, State)> {
    let (job, word) = line.trim().split_once(' ')?;
    Some((job.parse().ok()?, state(word)))
}

/// `JobId=130 ArrayJobId=123 ArrayTaskId=7 … JobState=TIMEOUT … ExitCode=0:1 …`, if it has ended.
fn ended(line: &str) -> Option<(usize, State)> {
    let field = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name));
    let state = state_with(field("JobState=")?, field("ExitCode=")?);
    let job = field("ArrayTaskId=")?.parse().ok()?;
    matches!(state, State::Ended(_)).then_some((job, state))
}

/// `123_7|TIMEOUT|0:0`.
fn accounted(line: &str) -> Option<(usize, State)> {
    let mut fields = line.split('|');
    let (id, word, exit_code) = (fields.next()?, fields.next()?, fields.next()?);
    Some((id.split_once('_')?.1.parse().ok()?, state_with(word, exit_code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_ended(job: usize, how: &str) -> Option<(usize, State)> {
        Some((job, State::Ended(how.to_owned())))
    }

    #[test]
    fn what_slurm_says_of_jobs_is_understood() {
        assert_eq!(queued("7 RUNNING"), Some((7, State::Running)));
        assert_eq!(queued("12 PENDING"), Some((12, State::Waiting)));
        assert_eq!(queued("3 NODE_FAIL"), has_ended(3, "NODE_FAIL"));
        assert_eq!(accounted("123_7|CANCELLED by 0|0:15"), has_ended(7, "CANCELLED"));
        assert_eq!(accounted("123_[8-9]|PENDING|0:0"), None);
        let of = |state: &str, code: &str| {
            ended(&format!("JobId=130 ArrayTaskId=7 JobState={state} Reason=None ExitCode={code}"))
        };
        assert_eq!(of("TIMEOUT", "0:1"), has_ended(7, "TIMEOUT"));
        assert_eq!(of("FAILED", "3:0"), has_ended(7, "FAILED, exit status 3"));
        assert_eq!(of("FAILED", "0:9"), has_ended(7, "FAILED, killed by signal 9"));
        assert_eq!(of("RUNNING", "0:0"), None);
    }
}
