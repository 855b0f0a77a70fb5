//! What a program's threads do with its locks, to a file that `fairlock replay` runs.

use std::fs;
use std::path::Path;
use std::time::Instant;

use fairlock_lab::machine;
use fairlock_report::machine::Machine;
use fairlock_report::printable::printable;
use fairlock_report::program::{Program, Sharing};
use fairlock_report::screen::complain;
use fairlock_report::units::{counted, format_ns, plural};
use fairlock_trace::counts::Counts;
use fairlock_trace::program;
use fairlock_trace::recorded::Windows;

use super::Run;
use super::present::read;

/// A recording under way.
pub(super) struct Recorder<'a> {
    windows: Windows<'a>,
    due: Instant,
}

impl<'a> Recorder<'a> {
    /// Of a program that starts now.
    pub(super) fn new(windows: Windows<'a>) -> Recorder<'a> {
        Recorder { windows, due: Instant::now() }
    }

    /// When it has to be looked after.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Looks after it, if it is time.
    pub(super) fn goes_on(&mut self) {
        if self.due <= Instant::now() {
            self.due = self.windows.tick();
        }
    }

    /// Writes the file, and says what is in it.
    pub(super) fn write(self, run: &Run, counts: &Counts, file: &Path) {
        let shown = file.display();
        let recorded = match self.windows.read() {
            Ok(recorded) => recorded,
            Err(error) => {
                return complain(&format!("warning: cannot read the recording: {error}"));
            }
        };
        let snapshots = read(counts).unwrap_or_default();
        let words = run.command.iter().map(|word| word.to_string_lossy());
        let command = words.collect::<Vec<_>>().join(" ");
        let Machine { cpu, cpus, .. } = machine::here(None);
        let about_run = program::Run { command: printable(&command).into_owned(), cpu, cpus };
        let Some(program) = program::of_run(&recorded.processes, &snapshots, &about_run) else {
            return complain(&format!(
                "warning: no thread acquired a pthread_rwlock, or a lock of Fairlock with the feature `record`, so there is nothing to replay and {shown} was not written"
            ));
        };
        if let Err(error) = fs::write(file, program.to_string()) {
            return complain(&format!(
                "warning: cannot write {shown} ({error}); choose a file in a writable directory with --record"
            ));
        }
        // Programs that link Fairlock have two files, and of one of them often nothing is used.
        let used = recorded.processes.iter().filter(|process| !process.threads.is_empty());
        let others = used.count().saturating_sub(1) as u64;
        run.say(&about(&program, others));
        for warning in program.recorded.iter().flat_map(|recorded| &recorded.warnings) {
            complain(&format!("warning: {}", printable(warning)));
        }
        run.say(&format!("fairlock: replay it with: fairlock replay {shown} --on graviton3"));
    }
}

/// What was recorded, in a sentence.
fn about(program: &Program, others: u64) -> String {
    let kinds = program.kinds.iter().map(|kind| {
        let more = if kind.scales { ", more in a larger replay" } else { "" };
        format!("{} \"{}\"{more}", kind.threads, printable(&kind.name))
    });
    let kinds = kinds.collect::<Vec<_>>().join("; ");
    let count = |own: bool| -> u64 {
        let locks = program.locks.iter().filter(|it| (it.shared == Sharing::Nobody) == own);
        locks.map(|locks| u64::from(locks.count)).sum()
    };
    let (shared, own) = (count(false), count(true));
    let shared = format!("{shared} shared {}", plural(shared, "lock"));
    let own = match own {
        0 => "no private ones".to_owned(),
        1 => "1 private one".to_owned(),
        own => format!("{own} private ones"),
    };
    let recorded = program.recorded.clone().unwrap_or_default();
    let others = match others {
        0 => String::new(),
        others => format!("; {} with fewer acquisitions left out", counted(others, "recording")),
    };
    format!(
        "fairlock: recorded {} of {}: threads: {kinds}; {shared}, {own}{others}",
        format_ns(recorded.recorded_seconds * 1e9),
        format_ns(recorded.seconds * 1e9)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = r#"
        format = 1
        [[lock]]
        id = 1
        name = "table"
        [[kind]]
        name = "\u001b[31mred"
        threads = 2
        steps = ["r1 5 .1"]
    "#;

    #[test]
    fn a_summary_counts_shared_and_private_locks_and_sends_no_escapes_to_the_terminal() {
        let own = "[[lock]]\nid = 2\ncount = 3\nname = \"own\"\nshared = \"nobody\"\n[[kind]]";
        for (text, part) in [
            (PROGRAM.to_owned(), "; 1 shared lock, no private ones"),
            (PROGRAM.replace("[[kind]]", own), "; 1 shared lock, 3 private ones"),
        ] {
            let said = about(&text.parse().unwrap(), 0);
            assert!(said.ends_with(part), "{said}");
            assert!(said.contains(r#"2 "\x1b[31mred", more in a larger replay"#), "{said}");
        }
    }
}
