//! Runs batches one after the other into a recording, whatever happens to some of them.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use fairlock_lab::error::LabError;
use fairlock_lab::grid;
use fairlock_lab::plan::{self, Cell, Plan};
use fairlock_lab::report::recording::{Recording, Skipped, Writer};
use fairlock_lab::report::timeline_file::NamedTimeline;
use fairlock_lab::study::Batch;
use fairlock_lab::workloads::dio::remove_scratch_files;
use fairlock_lab::workloads::inversion::HIGHEST_PRIORITY;
use fairlock_lab::world::probe_real_time;

use crate::progress::{self, Progress};

/// What a run came to, beside its recording.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Why batches failed, each reason once. The recording says which workloads are missing for it.
    pub failed: Vec<String>,
    /// Why results could not be written, if so.
    pub write_error: Option<String>,
    /// How runs on simulated machines began, where that was asked for.
    pub full_timelines: Vec<NamedTimeline>,
}

/// The engine's cells for a batch.
fn plan_of(batch: &Batch, dir: &Path) -> Result<Plan, String> {
    let cells = batch.cells.iter().map(|cell| {
        Ok(Cell {
            workload: grid::workload(&cell.workload, &cell.params, dir)?,
            lock: cell.lock.clone(),
            repetitions: cell.repetitions,
            seconds: cell.seconds,
            on: cell.on.clone(),
        })
    });
    Ok(Plan { cells: cells.collect::<Result<_, String>>()? })
}

/// Whether the engine takes all cells, before the first one runs.
///
/// # Errors
/// The first value that is wrong, and what would be valid.
pub fn check(batches: &[Batch], dir: &Path) -> Result<(), String> {
    for batch in batches {
        for cell in plan_of(batch, dir)?.cells {
            cell.validate().map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Why a batch with real-time threads cannot run, if it is one and cannot.
fn no_real_time(batch: &Batch) -> Option<String> {
    if !batch.needs_real_time() {
        return None;
    }
    probe_real_time(HIGHEST_PRIORITY).err().map(|error| error.to_string())
}

/// Why a batch is not in the recording, or not all of it.
enum Missing {
    /// The machine does not have what it needs.
    LeftOut(String),
    /// It was begun.
    Failed(String),
    /// As above, for want of room for its files.
    NoRoom(String),
}

/// Runs the batches; `no_direct_io` is why workloads with real I/O cannot run, if they cannot. A
/// run that takes longer than its time and `patience` ends the program.
pub fn run(
    batches: &[Batch],
    dir: &Path,
    no_direct_io: Option<&str>,
    patience: Duration,
    recording: &mut Recording,
    writer: Option<&mut Writer>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let measured_s = batches
        .iter()
        .flat_map(|batch| &batch.cells)
        .map(|cell| f64::from(cell.repetitions) * cell.seconds)
        .sum();
    let mut progress = Progress::new(measured_s, patience, writer);
    // Where one batch found no room, the others need not try.
    let mut no_room = None;
    for batch in batches {
        if progress::cancelled() {
            break;
        }
        let result = match &no_room {
            Some(reason) if batch.needs_directory() => Err(Missing::Failed(String::clone(reason))),
            _ => run_one(batch, dir, no_direct_io, &mut progress),
        };
        let reason = match result {
            Ok(()) => continue,
            Err(Missing::LeftOut(reason)) => reason,
            Err(Missing::Failed(reason)) => outcome.fail(reason),
            Err(Missing::NoRoom(reason)) => {
                no_room = Some(reason.clone());
                outcome.fail(reason)
            }
        };
        for workload in batch.workloads() {
            let machine = batch.machine().map(str::to_owned);
            let reason = reason.clone();
            let skipped = Skipped { workload: workload.to_owned(), machine, reason };
            progress.skipped(&skipped);
            recording.skipped.push(skipped);
        }
    }
    if progress::cancelled() {
        recording.cancelled = true;
        progress.was_cancelled();
        remove_scratch_files();
    }
    progress.finish();
    // Also the rows of batches that failed later on.
    recording.rows.append(&mut progress.rows);
    recording.timelines.append(&mut progress.timelines);
    outcome.full_timelines.append(&mut progress.full_timelines);
    outcome.write_error = progress.write_error.take();
    outcome
}

impl Outcome {
    fn fail(&mut self, reason: String) -> String {
        if !self.failed.contains(&reason) {
            self.failed.push(reason.clone());
        }
        reason
    }
}

fn run_one(
    batch: &Batch,
    dir: &Path,
    no_direct_io: Option<&str>,
    progress: &mut Progress<'_>,
) -> Result<(), Missing> {
    if let (Some(reason), true) = (no_direct_io, batch.needs_direct_io()) {
        return Err(Missing::LeftOut(reason.to_owned()));
    }
    if let Some(reason) = no_real_time(batch) {
        return Err(Missing::LeftOut(reason));
    }
    let plan = plan_of(batch, dir).map_err(Missing::Failed)?;
    plan::run(&plan, progress).map(drop).map_err(|error| match no_room(&error) {
        true => Missing::NoRoom(error.to_string()),
        false => Missing::Failed(error.to_string()),
    })
}

/// Whether the disk is full: the system says so, or took only a part of what was to be written.
fn no_room(error: &LabError) -> bool {
    let LabError::Io { source, .. } = error else { return false };
    matches!(
        source.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::WriteZero
    )
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_failures_and_a_reason_is_kept_once() {
        let of = |kind: ErrorKind| {
            no_room(&LabError::Io { action: "write".to_owned(), source: io::Error::from(kind) })
        };
        assert!(of(ErrorKind::StorageFull) && !of(ErrorKind::PermissionDenied));
        assert!(!no_room(&LabError::Panicked(String::new())));
        let mut outcome = Outcome::default();
        for reason in ["full", "other", "full"] {
            assert_eq!(outcome.fail(reason.to_owned()), reason);
        }
        assert_eq!(outcome.failed, ["full", "other"]);
    }
}
