//! `dio-log` and `dio-log-apart`: a log whose appends no reader stalls, and the device without that.

use super::{Io, Readers};
use crate::error::LabError;
use crate::measure::Repetition;
use crate::workload::Request;
use crate::workloads::log::{BLOCK_RECORD_BYTES, Contest, Log, Syncing, TailedLog, contest};
use crate::world::World;
use crate::world::scratch::BLOCK_BYTES;

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
    workload: &'static str,
    params: &Io,
    readers: Readers,
) -> Result<Repetition, LabError> {
    let log_params = Log {
        writers: params.writers,
        readers: params.readers,
        record_bytes: BLOCK_RECORD_BYTES,
        read_bytes: params.read_bytes,
        sync: Syncing::Never,
    };
    let appended = TailedLog::fresh(&log_params, request.directory)?;
    if params.writers > 0 {
        appended.recycle()?;
    }
    let other = match readers {
        Readers::Apart => Some(TailedLog::fresh(&log_params, request.directory)?),
        Readers::Beside => None,
    };
    let read = other.as_ref().unwrap_or(&appended);
    // Readers find a whole tail from their first read on.
    read.fill_tail()?;
    let logs = Contest { workload, appended: &appended, read, append_bytes: BLOCK_BYTES as u64 };
    contest(request, &logs, &log_params)
}
