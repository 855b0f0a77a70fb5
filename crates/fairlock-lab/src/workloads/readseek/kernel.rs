//! `readseek-kernel` and `readseek-kernel-tmpfs`: `lseek` and `read` of a real file.
//!
//! Each worker opens the file for itself: `lseek` moves the position of a file description, so two
//! workers with one description would move each other. The file has no name while it is used, so
//! that nothing of it can be left behind.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::Body;
use super::{Access, LabError, Reads, Request, Worker, World, run_threads};
use crate::measure::Repetition;
use crate::world::pages::{Aligned, bytes_of, torn, words};
use crate::world::scratch::in_memory;

/// What files in memory are called where the system lists them.
pub(super) const MEMORY: &CStr = c"fairlock-readseek";

/// Where the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the request's directory.
    Directory,
    /// In the kernel's memory.
    Tmpfs,
}

/// Runs either form once on a fresh file.
///
/// # Errors
/// When the file cannot be used, or threads cannot be started.
pub fn run<W: World>(
    request: &Request<'_, W>,
    workload: &'static str,
    params: &Reads,
    place: Place,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let file = match place {
        Place::Tmpfs => in_memory(MEMORY)?,
        Place::Directory => in_directory(request.directory)?,
    };
    let zeros = vec![0; params.block_bytes as usize];
    for block in 0..params.blocks() {
        let offset = u64::from(block) * u64::from(params.block_bytes);
        file.write_all_at(&zeros, offset).map_err(|source| LabError::io("write a file", source))?;
    }
    let think = params.think.pauses(world.pause_ns());
    let mut bodies: Vec<Body<'_>> = Vec::new();
    for number in 0..params.workers() {
        let access = SystemCalls::open(file.as_raw_fd(), 0, params)?;
        let worker = Worker::new(access, params, number, false, world.seed(), think);
        bodies.push(Box::new(move || worker.work(world)));
    }
    run_threads(request, workload, bodies)
}

/// A file in `directory` that has lost its name.
fn in_directory(directory: &Path) -> Result<File, LabError> {
    static CREATED: AtomicU64 = AtomicU64::new(0);
    let number = CREATED.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("fairlock-readseek-{}-{number}", process::id()));
    let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let unnamed = opened.and_then(|file| fs::remove_file(&path).map(|()| file));
    unnamed.map_err(|source| LabError::io(format!("create `{}`", path.display()), source))
}

/// A worker's own description of the file.
pub(super) struct SystemCalls {
    file: File,
    /// Where the first block begins.
    base: u64,
    block_bytes: u32,
    buffer: Aligned<u64>,
    /// What is written, filled anew for each stamp.
    writing: Aligned<u64>,
}

impl SystemCalls {
    /// Another description of the file that this process has open here.
    pub(super) fn open(
        descriptor: RawFd,
        base: u64,
        params: &Reads,
    ) -> Result<SystemCalls, LabError> {
        let path = format!("/proc/self/fd/{descriptor}");
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let block_words = words(params.block_bytes);
        Ok(SystemCalls {
            file: file.map_err(|source| LabError::io(format!("open `{path}` again"), source))?,
            base,
            block_bytes: params.block_bytes,
            buffer: Aligned::new(block_words),
            writing: Aligned::new(block_words * params.write_blocks as usize),
        })
    }

    /// Where a block begins.
    pub(super) fn offset(&self, block: u32) -> u64 {
        self.base + u64::from(block) * u64::from(self.block_bytes)
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Access for SystemCalls {
    #[inline]
    fn read(&mut self, block: u32, granted: impl FnOnce()) -> Result<(), LabError> {
        let position = SeekFrom::Start(self.offset(block));
        self.file.seek(position).map_err(|source| LabError::io("seek in a file", source))?;
        let bytes = bytes_of(self.buffer.words_mut());
        let read = self.file.read(bytes);
        granted();
        match read {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(count) => {
                let short = format!("only {count} of {} bytes came back", bytes.len());
                Err(LabError::io("read a file", io::Error::other(short)))
            }
            Err(source) => Err(LabError::io("read a file", source)),
        }
    }

    fn write(
        &mut self,
        blocks: Range<u32>,
        stamp: u64,
        granted: impl FnOnce(),
    ) -> Result<(), LabError> {
        let offset = self.offset(blocks.start);
        self.writing.words_mut().fill(stamp);
        let written = self.file.write_all_at(bytes_of(self.writing.words_mut()), offset);
        granted();
        written.map_err(|source| LabError::io("write a file", source))
    }

    #[inline]
    fn torn(&self) -> Option<(u64, u64)> {
        torn(self.buffer.words())
    }
}
