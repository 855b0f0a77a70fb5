//! A log of stamped 4 KiB blocks in a scratch file, by O_DIRECT.
//!
//! The file keeps its name while it is used, although an unlinked one could not be left
//! behind: an unlinked file stays on ext4's orphan list, its appends skip adding and removing
//! it there, and came out up to a quarter faster than those of a log that anybody could find
//! again. So names are registered, and removed when the file is dropped or the process is
//! interrupted.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use crate::error::{LabError, Violation};
use crate::workloads::Failure;

/// The unit of writes, and the alignment of everything: fits any disk's O_DIRECT rules.
pub(super) const BLOCK_BYTES: usize = 4096;
/// How much is written at a time where speed is not measured.
const FILL_BYTES: usize = 1 << 20;

static SCRATCH_FILES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn scratch_files() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    SCRATCH_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes every scratch file of this process, also those in use. For whoever handles an
/// interrupt and is about to exit: files that still run keep working without their names.
pub fn remove_scratch_files() {
    for path in std::mem::take(&mut *scratch_files()) {
        // Gone already is as good.
        let _ = fs::remove_file(path);
    }
}

/// Whether direct I/O works in `directory`: writes one block there and removes it again.
///
/// # Errors
/// [`LabError::NoDirectIo`] if the filesystem refuses it, [`LabError::Io`] if files cannot be
/// created there at all.
pub fn probe_direct_io(directory: &Path) -> Result<(), LabError> {
    Scratch::create(directory)?.write(AlignedBuffer::new(BLOCK_BYTES).bytes(), 0)
}

/// Bytes aligned to a block, as O_DIRECT wants them.
pub struct AlignedBuffer {
    storage: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    pub(super) fn new(len: usize) -> AlignedBuffer {
        let storage = vec![0; len + BLOCK_BYTES];
        let start = storage.as_ptr().align_offset(BLOCK_BYTES);
        AlignedBuffer { storage, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.len]
    }
}

fn set_stamp(block: &mut [u8], stamp: u64) {
    block[..8].copy_from_slice(&stamp.to_le_bytes());
}

fn stamp(block: &[u8]) -> u64 {
    u64::from_le_bytes(block[..8].try_into().expect("eight bytes"))
}

/// A file that is removed when dropped.
struct Scratch {
    file: File,
    path: PathBuf,
    directory: PathBuf,
}

impl Scratch {
    fn create(directory: &Path) -> Result<Scratch, LabError> {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("fairlock-scratch-{}-{number}", process::id()));
        // Registered first: an interrupt between the two must find it.
        scratch_files().insert(path.clone());
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_DIRECT)
            .open(&path);
        match opened {
            Ok(file) => Ok(Scratch { file, path, directory: directory.to_path_buf() }),
            Err(source) => {
                // A filesystem that refuses the flag may have created the file before it did.
                forget(&path);
                Err(explain(directory, "create a file in", source))
            }
        }
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<(), LabError> {
        let written = self.file.write_at(bytes, offset);
        self.whole("write to a file in", bytes.len(), written)
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), LabError> {
        let read = self.file.read_at(bytes, offset);
        self.whole("read from a file in", bytes.len(), read)
    }

    fn whole(&self, action: &str, wanted: usize, got: io::Result<usize>) -> Result<(), LabError> {
        let got = got.and_then(|bytes| {
            let short = || io::Error::other(format!("only {bytes} of {wanted} bytes went through"));
            if bytes == wanted { Ok(()) } else { Err(short()) }
        });
        got.map_err(|source| explain(&self.directory, action, source))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        forget(&self.path);
    }
}

fn forget(path: &Path) {
    if scratch_files().remove(path) {
        // Not existing is as good.
        let _ = fs::remove_file(path);
    }
}

/// EINVAL is how a filesystem says that it has no O_DIRECT: everything here is aligned.
fn explain(directory: &Path, action: &str, source: io::Error) -> LabError {
    if source.raw_os_error() == Some(libc::EINVAL) {
        LabError::NoDirectIo { directory: directory.to_path_buf() }
    } else {
        LabError::io(format!("{action} `{}`", directory.display()), source)
    }
}

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
    pub(super) fn growing(directory: &Path, bytes: u64) -> Result<Log, LabError> {
        Log::create(directory, bytes, false)
    }

    /// A log of `bytes` already written blocks that is overwritten from its start.
    pub(super) fn wrapping(directory: &Path, bytes: u64) -> Result<Log, LabError> {
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
    pub(super) fn len(&self) -> u64 {
        self.next.load(Ordering::Relaxed) * BLOCK_BYTES as u64
    }

    /// Writes the next block; answers its length.
    pub(super) fn append(&self, buffer: &mut AlignedBuffer) -> Result<u64, Failure> {
        let number = self.next.load(Ordering::Relaxed);
        let block = &mut buffer.bytes()[..BLOCK_BYTES];
        set_stamp(block, number);
        self.scratch.write(block, self.position(number))?;
        // Release: pairs with the load in `read_tail`, which may read this block from now on.
        self.next.store(number + 1, Ordering::Release);
        Ok(BLOCK_BYTES as u64)
    }

    /// Fills `buffer` with the newest blocks; answers its length.
    pub(super) fn read_tail(&self, buffer: &mut AlignedBuffer) -> Result<u64, Failure> {
        let newest = self.next.load(Ordering::Acquire) - 1;
        let position = self.position(newest);
        let length = buffer.len as u64;
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
