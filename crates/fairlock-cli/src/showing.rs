//! What commands that show results have in common: the width of the terminal, what studies say, pages in files.

use std::io;
use std::path::{Path, PathBuf};

use fairlock_report::recording::{self, Recording};
use fairlock_report::screen::{self, wrapped_lines};
use fairlock_study::harness::runner::Outcome;
use fairlock_study::report::{self, comparisons, terminal};
use fairlock_study::study::Study;

use crate::failure::Failure;

/// What becomes of a run's results at Ctrl-C.
pub(crate) const FINISHED_ARE_KEPT: &str = "finished repetitions are kept";

/// The columns of what is printed.
pub(crate) fn columns() -> usize {
    screen::columns(&io::stdout())
}

/// What each of the studies says, then all of them in one table.
pub(crate) fn studies_text(studies: Vec<Study>, recording: &Recording) -> String {
    let width = columns();
    let judged = report::judge(studies, recording);
    let each = judged.iter();
    let each = each.map(|(study, verdicts)| {
        let compared = comparisons::text(std::slice::from_ref(study), &recording.rows, width);
        terminal::study(study, verdicts, recording, width) + &compared
    });
    each.collect::<String>() + &terminal::summary(&report::summary(&judged), width)
}

/// Writes a page of these files, but never in the place of one of them.
pub(crate) fn write_page(path: &Path, page: &str, files: &[PathBuf]) -> Result<(), Failure> {
    if files.iter().any(|file| recording::is_one_file(file, path)) {
        return Err(Failure::Usage(format!(
            "the page would go into {}, which would be lost; choose another file with --out",
            path.display()
        )));
    }
    std::fs::write(path, page).map_err(|error| {
        Failure::Run(format!(
            "cannot write {} ({error}); choose a writable place with --out",
            path.display()
        ))
    })
}

/// Refuses a name that says of a page of HTML that it is something else.
pub(crate) fn check_page_name(out: &Path) -> Result<(), Failure> {
    const OTHERS: [&str; 5] = ["pdf", "png", "svg", "csv", "txt"];
    let extension = out.extension().and_then(|it| it.to_str()).unwrap_or_default();
    match OTHERS.contains(&extension) {
        false => Ok(()),
        true => Err(Failure::Usage(format!(
            "--out {}: a page is HTML; give a file whose name ends in .html",
            out.display()
        ))),
    }
}

/// What is missing, but for what is going to be told as an error.
pub(crate) fn missing_text(recording: &Recording, outcome: &Outcome) -> String {
    let text = terminal::missing_but_for(recording, &outcome.failed);
    match text.is_empty() {
        true => text,
        false => wrapped_lines(&text, columns()) + "\n",
    }
}

/// How a run ends: with each reason for which something is missing once, and what that is.
pub(crate) fn conclude(
    recording: &Recording,
    outcome: &Outcome,
    unwritten: Vec<String>,
) -> Result<(), Failure> {
    if recording.cancelled {
        return Err(Failure::Cancelled);
    }
    let by_reason = terminal::by_reason(recording);
    let failed =
        by_reason.iter().filter(|(reason, _)| outcome.failed.iter().any(|it| it == reason));
    let failed = failed.map(|(reason, workloads)| terminal::not_run(reason, workloads));
    let failures: Vec<String> = failed.chain(unwritten).collect();
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::Several(failures)),
    }
}
