//! What was counted, to the terminal and to files: the one place that asks for it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use fairlock_lab::dropin::comparison::Comparison;
use fairlock_lab::dropin::counts::Counts;
use fairlock_lab::dropin::report::Report;
use fairlock_lab::dropin::report::facts::Compared;

use super::{Run, warn};

/// Of the text.
const WIDTH: usize = 120;

/// When a report is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// The program runs.
    Meanwhile,
    /// It has ended.
    End,
    /// The run that was to be counted did not happen.
    Uncounted,
}

/// Reports what stands in the counts now.
pub(super) fn present(run: &Run, counts: &Counts, comparison: Option<&Comparison>, moment: Moment) {
    let snapshots = match counts.snapshots() {
        Ok(snapshots) => snapshots,
        Err(error) => return warn(&format!("warning: cannot read the counts: {error}")),
    };
    if let Some(comparison) = comparison {
        run.say(&comparison.to_string());
    }
    let command: Vec<String> =
        run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let compared = comparison.map(Compared::from);
    let report = Report::new(&snapshots, compared.as_ref(), &command);
    match moment {
        Moment::Meanwhile => {
            run.say("fairlock: counted up to now");
            run.say(&report.terminal(WIDTH));
        }
        Moment::End => run.say(&report.terminal(WIDTH)),
        Moment::Uncounted => {}
    }
    for path in &run.report {
        match write(&report, path) {
            Ok(()) => run.say(&format!("fairlock: wrote {}", path.display())),
            Err(error) => warn(&format!("warning: cannot write {}: {error}", path.display())),
        }
    }
}

/// A page if the name says so, else lines.
fn write(report: &Report, path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html")) {
        true => file.write_all(report.page().as_bytes())?,
        false => report.write_lines(&mut file)?,
    }
    file.flush()
}
