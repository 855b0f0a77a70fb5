//! Runs batches one after the other into a recording, whatever happens to some of them.

use std::path::Path;
use std::time::Duration;

use fairlock_lab::plan::{self, Batch, Plan};
use fairlock_lab::report::recording::{Recording, Skipped, Writer};
use fairlock_lab::report::timeline_file::NamedTimeline;
use fairlock_lab::workload::Need;
use fairlock_lab::workloads::inversion::HIGHEST_PRIORITY;
use fairlock_lab::world::{probe_real_time, remove_scratch_files};

use crate::progress::{self, Progress};

/// What a run came to, beside its recording.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Batches that failed or rows that could not be written, in words.
    pub failures: Vec<String>,
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
            Some(reason) if batch.needs(Need::DirectIo) => Err((false, reason.to_owned())),
            _ => match no_real_time(batch) {
                Some(reason) => Err((false, reason)),
                None => {
                    let plan = Plan { directory: dir.to_owned(), ..Plan::new(batch.cells.clone()) };
                    plan::run(&plan, &mut progress).map_err(|error| (true, error.to_string()))
                }
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
