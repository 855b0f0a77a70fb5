//! HyperQueue: one job, a task of its array for each of ours.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Draft, LOGS, State, output_of};

/// The Python package has the same name and lacks the command.
const PACKAGE: &str = "HyperQueue (https://github.com/It4innovations/hyperqueue; `pip install hyperqueue` does not bring it)";

pub(super) fn script(draft: &Draft<'_>) -> String {
    let Draft { jobs, seconds, dir, .. } = draft;
    // Standard error goes the same way as standard output: two files of one name would overwrite each other. HyperQueue
    // knows double quotes only, and no placeholder behind another percent sign.
    let mut text = format!(
        "#!/bin/bash\n\
         # Written by `fairlock sweep submit`. You may edit it, and submit it by hand: hq submit {SCRIPT}\n\
         #HQ --name={}\n\
         #HQ --array=1-{jobs}\n\
         #HQ --cwd=\"{dir}\"\n\
         #HQ --stdout={LOGS}/%{{TASK_ID}}.log\n\
         #HQ --stderr=none\n\
         #HQ --time-limit={seconds}s\n",
        draft.name(),
        dir = dir.display(),
        SCRIPT = super::SCRIPT,
    );
    if draft.exclusive {
        text += "# Real threads: all CPUs of a worker, which has to have its machine for itself.\n#HQ --cpus=all\n";
    } else {
        text += "#HQ --cpus=1\n";
    }
    for option in &draft.options.more {
        let _ = writeln!(text, "#HQ {option}");
    }
    let _ = writeln!(text, "{} 2>&1", draft.command("\"$HQ_TASK_ID\""));
    text
}

/// Its number and the server's, as each server counts from 1: `3@Hqtzfc`.
pub(super) fn submit(script: &Path) -> Result<String, String> {
    let server = server()?;
    let said = said_by(&["--output-mode=quiet", "submit", "--directives=file"], Some(script))?;
    match said.trim().parse::<u64>() {
        Ok(number) => Ok(format!("{number}@{server}")),
        Err(_) => Err(format!("hq said \"{}\", which is no number of a job", said.trim())),
    }
}

pub(super) fn states(id: &str) -> Result<BTreeMap<usize, State>, String> {
    let (number, server_then) = id.split_once('@').unwrap_or((id, ""));
    if server()? != server_then {
        // A new server knows nothing of jobs from before, unless it has their journal and with it their server's name.
        return Ok(BTreeMap::new());
    }
    let said = said_by(&["--output-mode=json", "task", "list", number], None)?;
    let jobs: Value = serde_json::from_str(&said)
        .map_err(|error| format!("hq task list did not answer with JSON: {error}"))?;
    let tasks = jobs.as_object().into_iter().flat_map(|jobs| jobs.values());
    Ok(tasks.flat_map(|tasks| tasks.as_array().into_iter().flatten()).filter_map(of).collect())
}

/// What the server that runs now is called.
fn server() -> Result<String, String> {
    let said = said_by(&["--output-mode=json", "server", "info"], None)?;
    let about: Value = serde_json::from_str(&said)
        .map_err(|error| format!("hq server info did not answer with JSON: {error}"))?;
    let name = about.get("server_uid").and_then(Value::as_str);
    name.map(str::to_owned).ok_or_else(|| "hq server info did not say server_uid".to_owned())
}

/// What hq prints.
fn said_by(args: &[&str], file: Option<&Path>) -> Result<String, String> {
    output_of(Command::new("hq").args(args).args(file), PACKAGE).map_err(|said| {
        match said.contains("Invalid server directory") {
            true => format!("{said}; start one with `hq server start`, or set HQ_SERVER_DIR"),
            // It gives that advice itself.
            false => said,
        }
    })
}

/// `{"id": 7, "state": "failed", "error": "…"}`.
fn of(task: &Value) -> Option<(usize, State)> {
    let number = usize::try_from(task.get("id")?.as_u64()?).ok()?;
    let state = match task.get("state")?.as_str()? {
        "waiting" => State::Waiting,
        "running" => State::Running,
        other => match task.get("error").and_then(Value::as_str) {
            Some(error) => State::Ended(format!("{other}: {}", error.trim_end_matches('.'))),
            None => State::Ended(other.to_owned()),
        },
    };
    Some((number, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hyperqueue_says_of_tasks_is_understood() {
        let of = |text: &str| of(&serde_json::from_str(text).unwrap());
        assert_eq!(of(r#"{"id": 3, "state": "running"}"#), Some((3, State::Running)));
        let failed = of(r#"{"id": 4, "state": "failed", "error": "Time limit reached."}"#);
        assert_eq!(failed, Some((4, State::Ended("failed: Time limit reached".to_owned()))));
        let canceled = of(r#"{"id": 5, "state": "canceled"}"#);
        assert_eq!(canceled, Some((5, State::Ended("canceled".to_owned()))));
    }
}
