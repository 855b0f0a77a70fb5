//! What was counted, to the terminal and to files: the one place that asks for it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use fairlock_counts::snapshot::Snapshot;
use fairlock_report::printable::printable;
use fairlock_report::screen::{self, complain};
use fairlock_report::units;
use fairlock_trace::comparison::{Comparison, Exit};
use fairlock_trace::counts::Counts;
use fairlock_trace::facts::Compared;
use fairlock_trace::report::Report;

use super::Run;

/// When a report is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// The program runs.
    Meanwhile,
    /// It has ended like this.
    End(Exit),
    /// All its runs have.
    Compared,
    /// It was stopped before its end, and what follows it did not happen.
    Stopped,
    /// The run that was to be counted did not happen.
    Uncounted,
}

/// What was counted up to now; none, with a message, if it cannot be read.
pub(super) fn read(counts: &Counts) -> Option<Vec<Snapshot>> {
    match counts.read() {
        Ok(counted) => {
            if counted.left_out > 0 {
                complain(&format!(
                    "warning: the report is about the first {}; {} more were counted, which is too \
                     much for one report",
                    units::counted(counted.snapshots.len() as u64, "process"),
                    counted.left_out
                ));
            }
            Some(counted.snapshots)
        }
        Err(error) => {
            complain(&format!("warning: cannot read the counts: {error}"));
            None
        }
    }
}

/// Reports what stands in the counts now.
pub(super) fn present(run: &Run, counts: &Counts, moment: Moment) {
    if let Some(snapshots) = read(counts) {
        let mut report = Report::new(&snapshots, None, &command(run));
        if let Moment::End(exit) = moment {
            report.run.exit = Some(exit);
        }
        tell(run, report, moment);
    }
}

/// Reports what runs took under several locks, and what was counted once under each, by its name; of
/// one of them, if it is among them, everything.
pub(super) fn present_compared(
    run: &Run,
    comparison: &Comparison,
    counted: &[(String, Vec<Snapshot>)],
    main: &str,
    others_busy_cpus: Option<f64>,
    moment: Moment,
) {
    let compared = Compared::from(comparison);
    let snapshots = counted.iter().find(|(lock, _)| lock == main).map(|(_, snapshots)| snapshots);
    let snapshots = snapshots.map_or(&[][..], |snapshots| snapshots);
    let mut report = Report::new(snapshots, Some(&compared), &command(run));
    report.add_counted(counted);
    report.run.others_busy_cpus = others_busy_cpus;
    run.say(&report.answers(columns()));
    run.say(&comparison.text(columns()));
    tell(run, report, moment);
}

/// The program and its arguments, fit to be shown.
pub(super) fn command(run: &Run) -> Vec<String> {
    let words = run.command.iter().map(|word| word.to_string_lossy());
    words.map(|word| printable(&word).into_owned()).collect()
}

/// Of what is said.
fn columns() -> usize {
    screen::columns(&io::stderr())
}

fn tell(run: &Run, report: Report, moment: Moment) {
    match moment {
        Moment::Meanwhile => {
            run.say("fairlock: counted up to now");
            run.say(&report.terminal(columns()));
        }
        Moment::Compared => run.say(&report.terminal_after_runs(columns())),
        Moment::End(_) => run.say(&report.terminal(columns())),
        Moment::Stopped => {
            run.say("fairlock: what the run that was stopped had counted up to then");
            run.say(&report.terminal_after_runs(columns()));
        }
        Moment::Uncounted => {}
    }
    let is_page = |path: &Path| {
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"))
    };
    let reports = run.report.iter().map(|path| (path, is_page(path)));
    for (path, is_page) in reports.chain(run.json.iter().map(|path| (path, false))) {
        match write(&report, path, is_page) {
            Ok(()) => run.say(&format!("fairlock: wrote {}", path.display())),
            Err(error) => complain(&format!("warning: cannot write {}: {error}", path.display())),
        }
    }
}

/// A page or lines.
fn write(report: &Report, path: &Path, is_page: bool) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    match is_page {
        true => file.write_all(report.page().as_bytes())?,
        false => report.write_lines(&mut file)?,
    }
    file.flush()
}
