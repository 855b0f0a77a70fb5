//! HyperQueue: one job, a task of its array for each of ours.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Draft, State, output_of};

const PACKAGE: &str = "HyperQueue (`pip install hyperqueue`)";

pub(super) fn script(draft: &Draft<'_>) -> String {
    let Draft { title, jobs, seconds, .. } = draft;
    let mut text = format!(
        "#!/bin/bash\n\
         # Written by `fairlock sweep submit`. You may edit it, and submit it by hand: hq submit {SCRIPT}\n\
         #HQ --name=fairlock-{}\n\
         #HQ --array=1-{jobs}\n\
         #HQ --time-limit={seconds}s\n\
         #HQ --stdout={log}\n\
         #HQ --stderr={log}\n",
        title.replace(|it: char| !it.is_alphanumeric(), "-"),
        log = draft.log("%{TASK_ID}"),
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
    let _ = writeln!(text, "{}", draft.command("\"$HQ_TASK_ID\""));
    text
}

pub(super) fn submit(script: &Path) -> Result<String, String> {
    let mut command = Command::new("hq");
    command.args(["--output-mode=quiet", "submit", "--directives=file"]).arg(script);
    let said = output_of(&mut command, PACKAGE)?;
    let id = said.trim().to_owned();
    match id.parse::<u64>() {
        Ok(_) => Ok(id),
        Err(_) => Err(format!("hq said \"{id}\", which is no number of a job")),
    }
}

pub(super) fn states(id: &str) -> Result<BTreeMap<usize, State>, String> {
    let command = &mut Command::new("hq");
    let said = match output_of(command.args(["--output-mode=json", "task", "list", id]), PACKAGE) {
        Ok(said) => said,
        // A server that was started anew.
        Err(said) if said.contains("not found") => return Ok(BTreeMap::new()),
        Err(said) => return Err(said),
    };
    let jobs: Value = serde_json::from_str(&said)
        .map_err(|error| format!("hq task list did not answer with JSON: {error}"))?;
    let tasks = jobs.as_object().into_iter().flat_map(|jobs| jobs.values());
    Ok(tasks.flat_map(|tasks| tasks.as_array().into_iter().flatten()).filter_map(of).collect())
}

/// `{"id": 7, "state": "failed", "error": "…"}`.
fn of(task: &Value) -> Option<(usize, State)> {
    let number = usize::try_from(task.get("id")?.as_u64()?).ok()?;
    let state = match task.get("state")?.as_str()? {
        "waiting" => State::Waiting,
        "running" => State::Running,
        other => match task.get("error").and_then(Value::as_str) {
            Some(error) => State::Ended(format!("{other}: {error}")),
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
        let failed = of(r#"{"id": 4, "state": "failed", "error": "Time limit reached"}"#);
        assert_eq!(failed, Some((4, State::Ended("failed: Time limit reached".to_owned()))));
    }
}
