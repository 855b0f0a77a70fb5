//! Files that last as long as a run, read and written by O_DIRECT, and directories of such files.
//!
//! They keep their names while they are used, although unlinked ones could not be left
//! behind: an unlinked file stays on ext4's orphan list, its appends skip adding and removing
//! it there, and came out up to a quarter faster than those of a log that anybody could find
//! again. So names are registered, and removed when the file is dropped or the process is
//! interrupted.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::LabError;

/// The unit of writes, and the alignment of everything: fits any disk's O_DIRECT rules.
pub(crate) const BLOCK_BYTES: usize = 4096;

static SCRATCH_FILES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn scratch_files() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    SCRATCH_FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes every scratch file of this process, also those in use, and scratch directories with what is
/// in them. For whoever handles an interrupt and is about to exit: files that still run keep working
/// without their names.
pub fn remove_scratch_files() {
    for path in std::mem::take(&mut *scratch_files()) {
        remove(&path);
    }
}

/// How often removing a directory is tried: a log that still runs may make files in it meanwhile.
const ATTEMPTS: u32 = 100;

fn remove(path: &Path) {
    if !path.is_dir() {
        // Gone already is as good.
        let _ = fs::remove_file(path);
        return;
    }
    for _ in 0..ATTEMPTS {
        if fs::remove_dir_all(path).is_ok() || !path.exists() {
            return;
        }
    }
}

/// A file in the kernel's own tmpfs, which needs no mount. The name is only for listings.
pub(crate) fn in_memory(name: &CStr) -> Result<File, LabError> {
    // SAFETY: the name is a C string; the call touches no other memory.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(LabError::io("create a file in memory", io::Error::last_os_error()));
    }
    // SAFETY: just opened, and nobody else knows it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// The path of a new file or directory in `directory`, registered.
fn new_path(directory: &Path) -> PathBuf {
    static CREATED: AtomicU64 = AtomicU64::new(0);
    let number = CREATED.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("fairlock-scratch-{}-{number}", process::id()));
    // Registered first: an interrupt between the two must find it.
    scratch_files().insert(path.clone());
    path
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
    pub(crate) fn new(len: usize) -> AlignedBuffer {
        let storage = vec![0; len + BLOCK_BYTES];
        let start = storage.as_ptr().align_offset(BLOCK_BYTES);
        AlignedBuffer { storage, start, len }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.len]
    }
}

/// Numbers a block, so that a reader knows which one it got.
pub(crate) fn set_stamp(block: &mut [u8], stamp: u64) {
    block[..8].copy_from_slice(&stamp.to_le_bytes());
}

/// The block's number.
pub(crate) fn stamp(block: &[u8]) -> u64 {
    u64::from_le_bytes(block[..8].try_into().expect("eight bytes"))
}

/// A file that is removed when dropped.
pub(crate) struct Scratch {
    pub(crate) file: File,
    path: PathBuf,
    directory: PathBuf,
}

impl Scratch {
    pub(crate) fn create(directory: &Path) -> Result<Scratch, LabError> {
        let path = new_path(directory);
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

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), LabError> {
        let written = self.file.write_at(bytes, offset);
        self.whole("write to a file in", bytes.len(), written)
    }

    pub(crate) fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), LabError> {
        let read = self.file.read_at(bytes, offset);
        self.whole("read from a file in", bytes.len(), read)
    }

    /// As [`read`](Self::read); none if the file ends before.
    pub(crate) fn read_or_end(
        &self,
        bytes: &mut [u8],
        offset: u64,
    ) -> Result<Option<()>, LabError> {
        match self.file.read_at(bytes, offset) {
            Ok(read) if read < bytes.len() => Ok(None),
            read => self.whole("read from a file in", bytes.len(), read).map(Some),
        }
    }

    fn whole(&self, action: &str, wanted: usize, got: io::Result<usize>) -> Result<(), LabError> {
        let got = got.and_then(|bytes| {
            // A file takes only a part where there is no room for the rest.
            let kind = io::ErrorKind::WriteZero;
            let short =
                || io::Error::new(kind, format!("only {bytes} of {wanted} bytes went through"));
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
        remove(path);
    }
}

/// A directory that is removed when dropped, with all that is in it. Whoever uses files in it is dropped
/// before.
pub(crate) struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    pub(crate) fn create(directory: &Path) -> Result<ScratchDirectory, LabError> {
        let path = new_path(directory);
        let created = ScratchDirectory(path);
        fs::create_dir(&created.0)
            .map_err(|source| explain(directory, "create a directory in", source))?;
        Ok(created)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        forget(&self.0);
    }
}

/// The type of the file system that holds `dir`, from the mount table.
pub fn filesystem_of(dir: &Path) -> String {
    let Ok(dir) = dir.canonicalize() else {
        return String::new();
    };
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (_, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
            dir.starts_with(point).then_some((point.len(), kind))
        })
        // The deepest mount point wins; of two on one point the later one covers the earlier.
        .max_by_key(|(depth, _)| *depth)
        .map(|(_, kind)| kind.to_owned())
        .unwrap_or_default()
}

/// EINVAL is how a filesystem says that it has no O_DIRECT: everything here is aligned.
pub(crate) fn explain(directory: &Path, action: &str, source: io::Error) -> LabError {
    if source.raw_os_error() == Some(libc::EINVAL) {
        let filesystem = filesystem_of(directory);
        LabError::NoDirectIo { directory: directory.to_path_buf(), filesystem }
    } else {
        LabError::io(format!("{action} `{}`", directory.display()), source)
    }
}
