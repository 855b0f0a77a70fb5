//! What was counted, to the terminal and to files: the one place that asks for it.

use std::fmt::Write;

use fairlock_counts::layout::{READ, WRITE};
use fairlock_counts::snapshot::Snapshot;
use fairlock_lab::dropin::comparison::Comparison;
use fairlock_lab::dropin::counts::Counts;

use super::{Run, warn};

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
    if moment == Moment::Meanwhile {
        run.say("fairlock: counted up to now");
    }
    if let Some(comparison) = comparison {
        run.say(&comparison.to_string());
    }
    if moment != Moment::Uncounted {
        run.say(&text(&snapshots));
    }
}

/// A line for each lock.
fn text(snapshots: &[Snapshot]) -> String {
    if snapshots.iter().all(|snapshot| snapshot.locks.is_empty()) {
        return "fairlock: no pthread_rwlock was used".to_owned();
    }
    let mut text = String::new();
    for snapshot in snapshots.iter().filter(|snapshot| !snapshot.locks.is_empty()) {
        let (program, pid) = (snapshot.program.display(), snapshot.pid);
        // Nothing fails that is written to a string.
        let _ = writeln!(text, "fairlock: {program} ({pid}), {}", snapshot.policy);
        for lock in &snapshot.locks {
            let _ = writeln!(
                text,
                "  lock {} at {:#x}: {} reads, {} writes, {} waited",
                lock.number,
                lock.address,
                lock.roles[READ].acquired,
                lock.roles[WRITE].acquired,
                lock.waited()
            );
        }
    }
    text
}
