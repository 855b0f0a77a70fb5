//! Presents rows: tables for a terminal, a page to read.

mod answer;
mod charts;
pub mod comparisons;
mod counts;
mod grids;
pub mod machines;
pub mod markdown;
mod page;
mod published;
mod ranking;
pub mod replays;
pub mod terminal;
mod timeline;
pub mod timeline_file;
pub mod validation;

use std::path::Path;

use fairlock_report::recording::Recording;
pub use page::page;

use crate::limit;
use crate::registry;
use crate::study::Study;
use crate::study::claim::{Evidence, Verdict};
use crate::study::summary::{self, Line};

/// Reads a file of rows of any version. Mixes whose [limit] the file does not say have it if their roles alone are
/// there.
///
/// # Errors
/// The file, the line, the field and what is wrong with it.
pub fn read(path: &Path) -> Result<Recording, String> {
    let mut recording = Recording::read(path, registry::current)?;
    limit::fill(&mut recording.rows);
    Ok(recording)
}

/// The verdict on every claim of a study.
pub fn verdicts(study: &Study, recording: &Recording) -> Vec<Verdict> {
    let evidence = Evidence {
        rows: &recording.rows,
        skipped: &recording.skipped,
        cancelled: recording.cancelled,
        quick: recording.header.quick,
    };
    study.claims.iter().map(|claim| claim.verdict(&evidence)).collect()
}

/// A verdict's words without the reasons for which something did not run: a report says each of them once, with
/// all that did not run for it.
fn without_reasons(words: &str, recording: &Recording) -> String {
    recording.skipped.iter().fold(words.to_owned(), |words, skipped| {
        words.replace(&format!(": {}", skipped.reason), "")
    })
}

/// A study and the verdict on each of its claims.
pub type Judged = (Study, Vec<Verdict>);

/// Judges every claim of these studies.
pub fn judge(studies: Vec<Study>, recording: &Recording) -> Vec<Judged> {
    let judge = |study| {
        let verdicts = verdicts(&study, recording);
        (study, verdicts)
    };
    studies.into_iter().map(judge).collect()
}

/// What the summary says about these studies.
pub fn summary(judged: &[Judged]) -> Vec<Line<'_>> {
    judged.iter().flat_map(|(study, verdicts)| summary::lines(study, verdicts)).collect()
}
