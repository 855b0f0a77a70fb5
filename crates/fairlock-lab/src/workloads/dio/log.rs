//! `dio-log` and `dio-log-apart`: a log whose appends no reader stalls, and the device without that.

use super::{DioForm, DioParams};
use crate::error::LabError;
use crate::measure::Repetition;
use crate::workloads::Request;
use crate::workloads::log::{BLOCK_RECORD_BYTES, Contest, LogParams, Syncing, TailedLog, contest};
use crate::workloads::scratch::BLOCK_BYTES;
use crate::world::World;

/// Runs `dio-log` or `dio-log-apart` once on fresh logs.
///
/// An append is one block, as in `dio-kernel`, and not synced, as there. What is appended to uses its
/// segments again before it is measured, so that nothing is written ahead meanwhile.
///
/// # Errors
/// When a log cannot be used, a reader misses a record that was acknowledged, or threads cannot be
/// started.
pub(super) fn run<W: World>(
    request: &Request<'_, W>,
    params: &DioParams,
) -> Result<Repetition, LabError> {
    let log_params = LogParams {
        writers: params.writers,
        readers: params.readers,
        record_bytes: BLOCK_RECORD_BYTES,
        read_bytes: params.read_bytes,
        sync: Syncing::Never,
        directory: params.directory.clone(),
    };
    let appended = TailedLog::fresh(&log_params)?;
    if params.writers > 0 {
        appended.recycle()?;
    }
    let other = match params.form {
        DioForm::LogApart => Some(TailedLog::fresh(&log_params)?),
        _ => None,
    };
    let read = other.as_ref().unwrap_or(&appended);
    // Readers find a whole tail from their first read on.
    read.fill_tail()?;
    let logs = Contest {
        workload: params.form.name(),
        appended: &appended,
        read,
        append_bytes: BLOCK_BYTES as u64,
    };
    contest(request, &logs, &log_params)
}
