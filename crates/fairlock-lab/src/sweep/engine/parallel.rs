//! GNU parallel: on this machine, or over ssh on hosts, to which the program and the plan are copied and from which
//! results come back.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Draft, JOBS, LOGS, PROGRAM, State, log_file, output_of, quoted};
use crate::sweep::plan;

const PACKAGE: &str = "GNU parallel (Debian's package parallel)";
const JOB_LOG: &str = "joblog";

pub(super) fn script(draft: &Draft<'_>) -> String {
    let Draft { dir, sweep, seconds, memory_mib, options, .. } = draft;
    let mut parts = vec![
        format!("parallel --will-cite --arg-file {}", quoted(&dir.join(JOBS))),
        format!("--joblog {}", quoted(&dir.join(JOB_LOG))),
        format!("--results {}", quoted(&dir.join(LOGS).join("{#}.log"))),
        format!("--timeout {seconds}"),
    ];
    if draft.exclusive {
        parts.push("--jobs 1".to_owned());
    } else {
        parts.push(format!("--jobs 100% --memfree {memory_mib}M"));
    }
    let command = if options.hosts.is_empty() {
        format!("{} sweep work {} --tasks {{}}", quoted(draft.program), quoted(sweep))
    } else {
        parts.extend(
            options.hosts.iter().map(|host| format!("--sshlogin {}", quoted(Path::new(host)))),
        );
        // One task a job: its result is the one file that comes back.
        parts.push(format!("--basefile {PROGRAM} --basefile {}", plan::FILE));
        parts.push("--workdir ... --return results/{}.json --cleanup".to_owned());
        format!("./{PROGRAM} sweep work . --tasks {{}}")
    };
    parts.extend(options.more.iter().cloned());
    format!(
        "#!/bin/bash\n\
         # Written by `fairlock sweep submit`. You may edit it, and run it by hand: bash {SCRIPT}\n\
         cd {} || exit\n\
         {} \\\n  {}\n",
        quoted(sweep),
        parts.join(" \\\n  "),
        quoted(Path::new(&command)),
        SCRIPT = super::SCRIPT,
    )
}

/// Starts it in the background; its number of a process and when that began, which no other process has.
pub(super) fn submit(script: &Path, dir: &Path) -> Result<String, String> {
    output_of(Command::new("parallel").arg("--version"), PACKAGE)?;
    let log = dir.join(LOGS).join("parallel.log");
    let (out, err) = (log_file(&log)?, log_file(&log.with_extension("err"))?);
    let mut command = Command::new("bash");
    command.arg(script).stdin(Stdio::null()).stdout(out).stderr(err);
    // Ctrl-C is for the program that waits, not for what it waits for.
    let child = command.process_group(0).spawn();
    let child = child.map_err(|error| format!("cannot run bash: {error}"))?;
    let began = began(child.id()).unwrap_or_default();
    Ok(format!("{}-{began}", child.id()))
}

/// When a process began, as the kernel counts it.
fn began(process: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may have spaces: state, parent, … The 20th of these is the beginning.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18).map(str::to_owned)).flatten()
}

pub(super) fn states(id: &str, dir: &Path, jobs: usize) -> Result<BTreeMap<usize, State>, String> {
    let text = fs::read_to_string(dir.join(JOB_LOG)).unwrap_or_default();
    let mut states: BTreeMap<usize, State> = text.lines().skip(1).filter_map(logged).collect();
    let known = id
        .split_once('-')
        .and_then(|(process, since)| Some((process.parse::<u32>().ok()?, since.to_owned())));
    let is_under_way = known.is_some_and(|(process, since)| began(process) == Some(since));
    for job in 1..=jobs {
        let state = match is_under_way {
            true => State::Running,
            false => State::Ended("GNU parallel ended before it".to_owned()),
        };
        states.entry(job).or_insert(state);
    }
    Ok(states)
}

/// `3 : 1764090000.1 2.5 0 0 1 0 command`: number, host, start, seconds, bytes sent and received, exit value, signal.
fn logged(line: &str) -> Option<(usize, State)> {
    let mut fields = line.split('\t');
    let number = fields.next()?.parse().ok()?;
    let (exit, signal) = (fields.nth(5)?, fields.next()?);
    let how = match (exit, signal) {
        ("-1", _) => "it took longer than its time".to_owned(),
        (exit, "0") => format!("exit status {exit}"),
        (_, signal) => format!("signal {signal}"),
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
        assert_eq!(of("0\t9"), Some((3, State::Ended("signal 9".to_owned()))));
        let late = State::Ended("it took longer than its time".to_owned());
        assert_eq!(of("-1\t15"), Some((3, late)));
    }

    #[test]
    fn a_process_that_has_ended_is_not_under_way() {
        let own = began(std::process::id()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let states = |id: &str| states(id, dir.path(), 1).unwrap();
        assert_eq!(states(&format!("{}-{own}", std::process::id()))[&1], State::Running);
        let other = states(&format!("{}-1{own}", std::process::id()));
        assert!(matches!(other[&1], State::Ended(_)));
    }
}
