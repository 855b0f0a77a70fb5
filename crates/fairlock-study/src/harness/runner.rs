//! Runs batches one after the other into a recording, whatever happens to some of them.

use std::io::ErrorKind;
use std::mem;
use std::path::Path;
use std::time::{Duration, Instant};

use fairlock_lab::error::LabError;
use fairlock_lab::workload::{Need, THIS_PROGRAM};
use fairlock_lab::workloads::inversion::HIGHEST_PRIORITY;
use fairlock_lab::world::{probe_real_time, remove_scratch_files};
use fairlock_report::recording::{Recording, Skipped, Writer};

use crate::limit;
use crate::plan::{Batch, Cell, Engine};
use crate::report::timeline_file::NamedTimeline;
use crate::study::Study;
use crate::study::deciding::{self, Means};

use super::progress::{self, Progress};

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

/// Whether the engine takes all cells, before the first one runs.
///
/// # Errors
/// The first value that is wrong, and what would be valid.
pub fn check(batches: &[Batch]) -> Result<(), String> {
    let mut cells = batches.iter().flat_map(|batch| &batch.cells);
    cells.try_for_each(|cell| cell.validate().map_err(|error| error.to_string()))
}

/// Why a batch with real-time threads cannot run, if it is one and cannot.
fn no_real_time(batch: &Batch) -> Option<String> {
    if !batch.needs(Need::RealTime) {
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

/// What to run.
pub struct Job<'a> {
    /// In this order.
    pub batches: &'a [Batch],
    /// Where scratch files go.
    pub dir: &'a Path,
    /// Why workloads with real I/O cannot run, if they cannot.
    pub no_direct_io: Option<&'a str>,
    /// A run that takes longer than its time and this ends the program.
    pub patience: Duration,
    /// What gets more repetitions as long as it is undecided, and until when.
    pub decide: Option<(&'a [Study], Instant)>,
}

impl<'a> Job<'a> {
    /// Batches without files, each as often as it says.
    pub fn new(batches: &'a [Batch], patience: Duration) -> Job<'a> {
        let dir = Path::new(".");
        Job { batches, dir, no_direct_io: None, patience, decide: None }
    }
}

/// Runs the batches into a recording.
pub fn run(job: &Job<'_>, recording: &mut Recording, writer: Option<&mut Writer>) -> Outcome {
    let mut outcome = Outcome::default();
    let batches = job.batches;
    let measured_s = batches
        .iter()
        .flat_map(|batch| &batch.cells)
        .map(|cell| f64::from(cell.repetitions) * cell.seconds)
        .sum();
    let mut progress = Progress::new(measured_s, job.patience, writer);
    let mut engine = Engine::new(job.dir, Path::new(THIS_PROGRAM));
    if job.decide.is_some() {
        engine = engine.keeping();
    }
    // Where one batch found no room, the others need not try.
    let mut no_room = None;
    for batch in batches {
        if progress::cancelled() {
            break;
        }
        let result = match &no_room {
            Some(reason) if batch.needs(Need::Directory) => {
                Err(Missing::Failed(String::clone(reason)))
            }
            _ => run_one(batch, &mut engine, job.no_direct_io, &mut progress),
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
    if let Some((studies, until)) = job.decide
        && let Err(error) = decide(studies, batches, until, &mut engine, &mut progress)
    {
        outcome.fail(error.to_string());
    }
    if progress::cancelled() {
        recording.cancelled = true;
        progress.was_cancelled();
        remove_scratch_files();
    }
    progress.finish();
    // Also the rows of batches that failed later on.
    recording.rows.append(&mut progress.rows);
    // What was repeated changed the figures of the mixes that it belongs to.
    limit::fill(&mut recording.rows);
    recording.timelines.append(&mut progress.timelines);
    outcome.full_timelines.append(&mut progress.full_timelines);
    outcome.write_error = progress.write_error.take();
    if job.decide.is_some()
        && outcome.write_error.is_none()
        && let Some(writer) = progress.into_writer().filter(|writer| !writer.left_the_older())
    {
        // What is there says the same, at greater length.
        let _ = writer.compact(recording);
    }
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

/// Repeats what the studies' claims are undecided about.
fn decide(
    studies: &[Study],
    batches: &[Batch],
    until: Instant,
    engine: &mut Engine,
    progress: &mut Progress<'_>,
) -> Result<(), LabError> {
    let cells: Vec<Cell> = batches.iter().flat_map(|batch| batch.cells.iter().cloned()).collect();
    let left_s = || until.saturating_duration_since(Instant::now()).as_secs_f64();
    progress.goes_on(left_s());
    let mut rows = mem::take(&mut progress.rows);
    let mut written: Vec<u32> = cells.iter().map(|cell| cell.repetitions).collect();
    let place = |is_it: &dyn Fn(&Cell) -> bool| cells.iter().position(is_it);
    let mut again = |cell: &Cell| {
        if progress::cancelled() {
            return Ok(None);
        }
        let row = engine.again(cell, progress)?;
        let place = place(&|known| known == cell);
        if let (Some(row), Some(place)) = (&row, place)
            && is_worth_writing(written[place], row.repetitions)
        {
            progress.rewrite(row);
            written[place] = row.repetitions;
        }
        Ok(row)
    };
    let mut means = Means { again: &mut again, left_s: &left_s };
    let done = deciding::decide(studies, &cells, &mut rows, &mut means);
    for row in &rows {
        let place = place(&|cell| cell.is_of(row));
        if place.is_some_and(|place| written[place] < row.repetitions) {
            progress.rewrite(row);
        }
    }
    progress.rows = rows;
    done
}

/// Whether a row is written again now that it has so many repetitions. A row lists all of them; written for each
/// one more, it would make a file that grows with the square of their number.
fn is_worth_writing(written: u32, now: u32) -> bool {
    now >= written + 1 + written / 8
}

fn run_one(
    batch: &Batch,
    engine: &mut Engine,
    no_direct_io: Option<&str>,
    progress: &mut Progress<'_>,
) -> Result<(), Missing> {
    if let (Some(reason), true) = (no_direct_io, batch.needs(Need::DirectIo)) {
        return Err(Missing::LeftOut(reason.to_owned()));
    }
    if let Some(reason) = no_real_time(batch) {
        return Err(Missing::LeftOut(reason));
    }
    engine.run(&batch.cells, progress).map(drop).map_err(|error| match no_room(&error) {
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
    fn a_row_that_grows_is_written_so_often_that_its_file_stays_in_proportion() {
        let (mut written, mut sum) = (3, 0);
        for now in 4..=1000 {
            if is_worth_writing(written, now) {
                (written, sum) = (now, sum + now);
            }
        }
        assert!(written > 880 && sum < 10 * 1000, "{written}, {sum}");
        assert!((3..8).all(|written| is_worth_writing(written, written + 1)));
    }

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
