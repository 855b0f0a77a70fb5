//! A log of stamped 4 KiB blocks in a scratch file, by O_DIRECT.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::scratch::{AlignedBuffer, BLOCK_BYTES, Scratch, explain, set_stamp, stamp};
use crate::error::{Failure, LabError, Violation};

/// How much is written at a time where speed is not measured.
const FILL_BYTES: usize = 1 << 20;

/// A log of blocks, each stamped with its number. One appender at a time; whoever reads the
/// tail checks that the newest block is the one it must be.
pub struct Log {
    scratch: Scratch,
    /// The number of the next block. Stored after its predecessor is written.
    next: CachePadded<AtomicU64>,
    /// Blocks in the file if the log wraps around, else it grows.
    wraps_at: Option<u64>,
}

impl Log {
    /// A log that grows, starting with `bytes` already written.
    pub(crate) fn growing(directory: &Path, bytes: u64) -> Result<Log, LabError> {
        Log::create(directory, bytes, false)
    }

    /// A log of `bytes` already written blocks that is overwritten from its start.
    pub(crate) fn wrapping(directory: &Path, bytes: u64) -> Result<Log, LabError> {
        Log::create(directory, bytes, true)
    }

    fn create(directory: &Path, bytes: u64, wraps: bool) -> Result<Log, LabError> {
        let blocks = bytes / BLOCK_BYTES as u64;
        let scratch = Scratch::create(directory)?;
        let mut fill = AlignedBuffer::new(FILL_BYTES);
        let mut number = 0;
        while number < blocks {
            let offset = number * BLOCK_BYTES as u64;
            let mut filled = 0;
            for block in fill.bytes().chunks_exact_mut(BLOCK_BYTES) {
                if number == blocks {
                    break;
                }
                set_stamp(block, number);
                number += 1;
                filled += BLOCK_BYTES;
            }
            scratch.write(&fill.bytes()[..filled], offset)?;
        }
        scratch.file.sync_all().map_err(|source| explain(directory, "sync a file in", source))?;
        let next = CachePadded::new(AtomicU64::new(blocks));
        Ok(Log { scratch, next, wraps_at: wraps.then_some(blocks) })
    }

    fn position(&self, number: u64) -> u64 {
        self.wraps_at.map_or(number, |blocks| number % blocks) * BLOCK_BYTES as u64
    }

    /// How far the log has grown, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.next.load(Ordering::Relaxed) * BLOCK_BYTES as u64
    }

    /// Writes the next block; answers its length.
    pub(crate) fn append(&self, buffer: &mut AlignedBuffer) -> Result<u64, Failure> {
        let number = self.next.load(Ordering::Relaxed);
        let block = &mut buffer.bytes()[..BLOCK_BYTES];
        set_stamp(block, number);
        self.scratch.write(block, self.position(number))?;
        // Release: pairs with the load in `read_tail`, which may read this block from now on.
        self.next.store(number + 1, Ordering::Release);
        Ok(BLOCK_BYTES as u64)
    }

    /// Fills `buffer` with the newest blocks; answers its length.
    pub(crate) fn read_tail(&self, buffer: &mut AlignedBuffer) -> Result<u64, Failure> {
        let newest = self.next.load(Ordering::Acquire) - 1;
        let position = self.position(newest);
        let length = buffer.bytes().len() as u64;
        // Just after a wrap the newest block is not at the end of what is read.
        let offset = (position + BLOCK_BYTES as u64).saturating_sub(length);
        self.scratch.read(buffer.bytes(), offset)?;
        let found = stamp(&buffer.bytes()[(position - offset) as usize..]);
        if found == newest {
            Ok(length)
        } else {
            Err(Violation::StaleBlock { expected: newest, found }.into())
        }
    }
}
