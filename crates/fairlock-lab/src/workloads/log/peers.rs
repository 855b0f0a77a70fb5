//! Logs that people use today, under the workload.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use okaywal::{Configuration, LogVoid, WriteAheadLog};

use super::{Log, SharedLog, Syncing, failed, segment_bytes};
use crate::error::LabError;
use crate::workloads::Failure;
use crate::world::scratch::ScratchDirectory;

/// A segment is handed over when this share of it is used, as the crate has it where nothing is said.
const CHECKPOINT_AT: f64 = 0.75;

/// The crate `okaywal`: writes through the page cache into preallocated files, one fsync for all threads that
/// wait for one. Its records are read by their positions, so it has no tail here.
pub(super) struct Okaywal {
    log: Option<WriteAheadLog>,
    record_bytes: usize,
    asked_for: PathBuf,
    // Last, as it is removed after the log has ended.
    _directory: ScratchDirectory,
}

impl SharedLog for Okaywal {
    type Appender = Vec<u8>;
    type Tail = Infallible;
    const SYNCS: &'static [Syncing] = &[Syncing::EveryCommit];
    const IS_READ: bool = false;

    fn create(params: &Log, asked_for: &Path) -> Result<Okaywal, LabError> {
        let directory = ScratchDirectory::create(asked_for)?;
        let bytes = segment_bytes(params.read_bytes);
        let log = Configuration::default_for(directory.path())
            .preallocate_bytes(u32::try_from(bytes).unwrap_or(u32::MAX))
            .checkpoint_after_bytes((bytes as f64 * CHECKPOINT_AT) as u64)
            .open(LogVoid)
            .map_err(|error| failed("create", asked_for, error))?;
        Ok(Okaywal {
            log: Some(log),
            record_bytes: params.record_bytes as usize,
            asked_for: asked_for.to_owned(),
            _directory: directory,
        })
    }

    fn appender(&self) -> Vec<u8> {
        vec![0; self.record_bytes]
    }

    fn append(&self, record: &mut Vec<u8>) -> Result<(), Failure> {
        let log = self.log.as_ref().expect("there until it is dropped");
        let appended = log.begin_entry().and_then(|mut entry| {
            entry.write_chunk(record)?;
            entry.commit()
        });
        match appended {
            Ok(_) => Ok(()),
            Err(error) => Err(failed("append to", &self.asked_for, error).into()),
        }
    }

    fn tail(&self) -> Result<Infallible, LabError> {
        let valid = "0 with okaywal, which has no tail to read".to_string();
        Err(LabError::Parameter { name: "readers", value: "more".to_string(), valid })
    }

    fn read_tail(&self, tail: &mut Infallible) -> Result<Option<u64>, Failure> {
        match *tail {}
    }
}

impl Drop for Okaywal {
    fn drop(&mut self) {
        if let Some(log) = self.log.take() {
            // Its files are removed next.
            let _ = log.shutdown();
        }
    }
}
