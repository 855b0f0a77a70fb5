//! Runs batches one after the other into a recording, whatever happens to some of them.

use std::path::Path;
use std::time::Duration;

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
    /// Batches that failed or rows that could not be written, in words.
    pub failures: Vec<String>,
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
    for batch in batches {
        if progress::cancelled() {
            break;
        }
        let result = match no_direct_io {
            Some(reason) if batch.needs_direct_io() => Err((false, reason.to_owned())),
            _ => match no_real_time(batch) {
                Some(reason) => Err((false, reason)),
                None => plan_of(batch, dir)
                    .and_then(|plan| {
                        plan::run(&plan, &mut progress).map_err(|error| error.to_string())
                    })
                    .map_err(|error| (true, error)),
            },
        };
        match result {
            Ok(_) => {}
            Err((failed, reason)) => {
                let what = if failed { "failed" } else { "left out" };
                let workloads = batch.workloads();
                let named = workloads.join(", ");
                progress.say(&format!("{} ({named}) {what}: {reason}", batch.title));
                if failed {
                    outcome.failures.push(format!("{}: {reason}", batch.title));
                }
                for workload in workloads {
                    let machine = batch.machine().map(str::to_owned);
                    let reason = reason.clone();
                    let skipped = Skipped { workload: workload.to_owned(), machine, reason };
                    let written = progress.writer().map(|writer| writer.skipped(&skipped));
                    if let Some(Err(error)) = written {
                        outcome.failures.push(error.to_string());
                    }
                    recording.skipped.push(skipped);
                }
            }
        }
    }
    if progress::cancelled() {
        recording.cancelled = true;
        if let Some(Err(error)) = progress.writer().map(Writer::cancelled) {
            outcome.failures.push(error.to_string());
        }
        remove_scratch_files();
    }
    progress.finish();
    // Also the rows of batches that failed later on.
    recording.rows.append(&mut progress.rows);
    recording.timelines.append(&mut progress.timelines);
    outcome.full_timelines.append(&mut progress.full_timelines);
    if let Some(error) = progress.write_error.take() {
        outcome.failures.push(format!("results could not be written: {error}"));
    }
    outcome
}
