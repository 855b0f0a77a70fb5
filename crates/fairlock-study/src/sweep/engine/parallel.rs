//! GNU parallel: on this machine, or over ssh on hosts, to which the program and the plan are copied and from which
//! results come back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Draft, JOBS, LOGS, PROGRAM, State, one_line, output_of, quoted};
use crate::sweep::plan;

const PACKAGE: &str = "GNU parallel (Debian's package parallel)";
const COPIES: &str =
    "rsync (Debian's package rsync), with which GNU parallel copies to and from hosts";
/// What GNU parallel writes about jobs that have ended.
const JOB_LOG: &str = "joblog";
/// A file that is there as long as GNU parallel runs: where it takes a result from a host, it removes the directory,
/// too, if that is empty then, also when another job is about to write there.
const KEEP: &str = "results/.keep";
/// What it says itself.
const SAID: &str = "parallel.log";

pub(super) fn script(draft: &Draft<'_>) -> String {
    let Draft { dir, sweep, jobs, seconds, memory_mib, options, .. } = draft;
    // Of the script's directory, whose name is no template whatever the path to the sweep has in it.
    let own = dir.file_name().unwrap_or_default().display().to_string();
    let mut parts = vec![
        format!("--joblog {own}/{JOB_LOG}"),
        format!("--results '{own}/{LOGS}/{{#}}.log'"),
        format!("--timeout {seconds}"),
    ];
    if draft.exclusive {
        parts.push("--jobs 1".to_owned());
    } else {
        parts.push(format!("--jobs 100% --memfree {memory_mib}M"));
    }
    let (command, input) = if options.hosts.is_empty() {
        let exclusive = if draft.exclusive { " --exclusive" } else { "" };
        let command =
            format!("exec ./{PROGRAM} sweep work .{exclusive} --jobs {own}/{JOBS} --job {{}}");
        (command, format!(":::: <(seq {jobs})"))
    } else {
        parts.extend(
            options.hosts.iter().map(|host| format!("--sshlogin {}", quoted(Path::new(host)))),
        );
        // One task a job: its result is the one file that comes back. A host that is away, or goes away, costs its jobs
        // a second try elsewhere.
        let place = format!(".cache/fairlock/{}-{own}", draft.plan);
        parts.push("--filter-hosts --retries 2".to_owned());
        parts.push(format!("--workdir {place} --basefile {PROGRAM} --basefile {}", plan::FILE));
        parts.push(format!("--basefile {KEEP} --return results/{{}}.json --cleanup"));
        // Nothing is copied for the host `:`, which is this machine.
        let command = format!(
            "if test -e {PROGRAM}; then exec ./{PROGRAM} sweep work . --tasks {{}}; \
             else exec \"$FAIRLOCK_SWEEP/{PROGRAM}\" sweep work \"$FAIRLOCK_SWEEP\" --tasks {{}}; fi"
        );
        (command, format!(":::: {own}/{JOBS}"))
    };
    parts.extend(options.more.iter().cloned());
    format!(
        "#!/bin/bash\n\
         # Written by `fairlock sweep submit`. You may edit it, and run it by hand: bash {SCRIPT}\n\
         cd {} || exit\n\
         {keep}\
         export PARALLEL_SHELL=/bin/bash FAIRLOCK_SWEEP=\"$PWD\"\n\
         exec parallel --will-cite \\\n  {} \\\n  {} \\\n  {input}\n",
        quoted(sweep),
        parts.join(" \\\n  "),
        quoted(Path::new(&format!("{{ {command}; }} 2>&1"))),
        keep = match (options.hosts.is_empty(), options.exclusive) {
            (true, false) => String::new(),
            // What runs real threads waits for what does not, and the other way round.
            (true, true) => "exec 9> parallel.lock && flock 9 || exit\n".to_owned(),
            (false, _) => format!("touch {KEEP} || exit\n"),
        },
        SCRIPT = super::SCRIPT,
    )
}

/// Starts it in the background; its machine, its number of a process and when that began, which no other process has:
/// `here/1234-567`.
pub(super) fn submit(script: &Path, dir: &Path, over_ssh: bool) -> Result<String, String> {
    output_of(Command::new("parallel").arg("--version"), PACKAGE)?;
    if over_ssh {
        output_of(Command::new("rsync").arg("--version"), COPIES)?;
    }
    let log = dir.join(LOGS).join(SAID);
    let said =
        File::create(&log).map_err(|error| format!("cannot write {} ({error})", log.display()))?;
    let mut command = Command::new("bash");
    command.arg(script).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    // Ctrl-C is for the program that waits, not for what it waits for.
    let child = command.process_group(0).spawn();
    let child = child.map_err(|error| format!("cannot run bash: {error}"))?;
    let began = began(child.id()).unwrap_or_default();
    Ok(format!("{}/{}-{began}", machine(), child.id()))
}

/// What this machine is called.
fn machine() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// When a process began, as the kernel counts it; none if it has ended.
fn began(process: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may have spaces: state, parent, … The 20th of these is the beginning.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18).map(str::to_owned)).flatten()
}

pub(super) fn states(
    id: &str,
    dir: &Path,
    jobs: &BTreeSet<usize>,
) -> Result<BTreeMap<usize, State>, String> {
    let (on, process) = id.rsplit_once('/').unwrap_or_default();
    if on != machine() {
        return Err(format!(
            "GNU parallel was started on {on}, and this is {}: ask there",
            machine()
        ));
    }
    let known = process.split_once('-');
    let known = known.and_then(|(process, since)| Some((process.parse::<u32>().ok()?, since)));
    let is_under_way =
        known.is_some_and(|(process, since)| began(process).as_deref() == Some(since));
    // After the process, which may log a job and end in between.
    let text = fs::read_to_string(dir.join(JOB_LOG)).unwrap_or_default();
    let mut states: BTreeMap<usize, State> = text.lines().skip(1).filter_map(logged).collect();
    for job in jobs {
        states.entry(*job).or_insert_with(|| match is_under_way {
            true => State::Running,
            false => State::Ended(ended_before(dir)),
        });
    }
    Ok(states)
}

/// What is said of a job of which GNU parallel says nothing.
fn ended_before(dir: &Path) -> String {
    let said = fs::read_to_string(dir.join(LOGS).join(SAID)).unwrap_or_default();
    match one_line(&said) {
        said if said.is_empty() => "GNU parallel ended before it".to_owned(),
        said => format!("GNU parallel ended before it: {said}"),
    }
}

/// `3 : 1764090000.1 2.5 0 0 1 0 command`: number, host, start, seconds, bytes sent and received, exit value, signal.
fn logged(line: &str) -> Option<(usize, State)> {
    let mut fields = line.split('\t');
    let number = fields.next()?.parse().ok()?;
    let (exit, signal) = (fields.nth(5)?, fields.next()?);
    let how = match (exit, signal) {
        ("-1", _) => "it took longer than its time".to_owned(),
        (exit, "0") => format!("exit status {exit}"),
        (_, signal) => format!("killed by signal {signal}"),
    };
    Some((number, State::Ended(how)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_parallel_logs_of_jobs_is_understood() {
        let of = |exit: &str| logged(&format!("3\t:\t1764090000.1\t2.5\t0\t0\t{exit}\tcommand"));
        assert_eq!(of("1\t0"), Some((3, State::Ended("exit status 1".to_owned()))));
        assert_eq!(of("0\t9"), Some((3, State::Ended("killed by signal 9".to_owned()))));
        let late = State::Ended("it took longer than its time".to_owned());
        assert_eq!(of("-1\t15"), Some((3, late)));
    }

    #[test]
    fn a_process_that_has_ended_is_not_under_way() {
        let own = began(std::process::id()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let states = |id: &str| states(id, dir.path(), &BTreeSet::from([1]));
        let here = format!("{}/{}", machine(), std::process::id());
        assert_eq!(states(&format!("{here}-{own}")).unwrap()[&1], State::Running);
        let other = states(&format!("{here}-1{own}")).unwrap();
        assert_eq!(other[&1], State::Ended("GNU parallel ended before it".to_owned()));
        let error = states("elsewhere-far-away/1-2").unwrap_err();
        assert!(error.contains("elsewhere-far-away") && error.contains("ask there"), "{error}");
    }
}
