//! The seam between `dio-lock` and the disk: a real file, or the model of a simulated machine.

use std::path::Path;

use super::direct_io::Log;
use super::scratch::{AlignedBuffer, BLOCK_BYTES};
use super::{RealWorld, SimWorld, World};
use crate::error::{Failure, LabError};

/// A machine with a disk.
pub trait Disk: World {
    /// A log on it.
    type Log: DiskLog;

    /// A log of `bytes` already written blocks that is overwritten from its start.
    ///
    /// # Errors
    /// When it cannot be created in `directory`.
    fn wrapping_log(&self, directory: &Path, bytes: u64) -> Result<Self::Log, LabError>;
}

/// A log of 4 KiB blocks. One appender at a time, and no reader meanwhile: what the lock under
/// test is for.
pub trait DiskLog: Sync {
    /// A thread's buffer for what it reads and writes.
    type Buffer;

    /// A buffer of `bytes`.
    fn buffer(&self, bytes: usize) -> Self::Buffer;

    /// Writes the next block; answers its length.
    ///
    /// # Errors
    /// When the disk fails.
    fn append(&self, buffer: &mut Self::Buffer) -> Result<u64, Failure>;

    /// Reads as many of the newest blocks as fit `buffer`; answers their length.
    ///
    /// # Errors
    /// When the disk fails, or the newest block is not what was written last.
    fn read_tail(&self, buffer: &mut Self::Buffer) -> Result<u64, Failure>;
}

impl Disk for RealWorld {
    type Log = Log;

    fn wrapping_log(&self, directory: &Path, bytes: u64) -> Result<Log, LabError> {
        Log::wrapping(directory, bytes)
    }
}

impl DiskLog for Log {
    type Buffer = AlignedBuffer;

    fn buffer(&self, bytes: usize) -> AlignedBuffer {
        AlignedBuffer::new(bytes)
    }

    fn append(&self, buffer: &mut AlignedBuffer) -> Result<u64, Failure> {
        Log::append(self, buffer)
    }

    fn read_tail(&self, buffer: &mut AlignedBuffer) -> Result<u64, Failure> {
        Log::read_tail(self, buffer)
    }
}

/// A log that takes time and holds nothing: what is wrong with a lock shows in the data that it
/// protects.
pub struct SimulatedLog;

impl Disk for SimWorld {
    type Log = SimulatedLog;

    fn wrapping_log(&self, _directory: &Path, _bytes: u64) -> Result<SimulatedLog, LabError> {
        Ok(SimulatedLog)
    }
}

impl DiskLog for SimulatedLog {
    /// How many bytes fit.
    type Buffer = u64;

    fn buffer(&self, bytes: usize) -> u64 {
        bytes as u64
    }

    fn append(&self, _buffer: &mut u64) -> Result<u64, Failure> {
        let bytes = BLOCK_BYTES as u64;
        fairlock_sim::timed::transfer(true, bytes);
        Ok(bytes)
    }

    fn read_tail(&self, buffer: &mut u64) -> Result<u64, Failure> {
        fairlock_sim::timed::transfer(false, *buffer);
        Ok(*buffer)
    }
}
