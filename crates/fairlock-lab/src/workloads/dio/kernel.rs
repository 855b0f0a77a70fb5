//! `dio-kernel` and `dio-kernel-apart`: the kernel's own inode lock, and the device without it.

use std::mem;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Io, Readers};
use crate::error::LabError;
use crate::measure::{Acquisitions, Repetition, RoleRecorder, ThreadRecord};
use crate::workload::Request;
use crate::workloads::client::record_whole;
use crate::workloads::{Body, Failure, run_threads};
use crate::world::scratch::{AlignedBuffer, BLOCK_BYTES};
use crate::world::{Log, World};

/// The file appended to at the moment. Tail readers follow to the next one by its generation.
struct CurrentLog {
    generation: AtomicU64,
    log: Mutex<Arc<Log>>,
}

impl CurrentLog {
    fn create(directory: &Path, bytes: u64) -> Result<CurrentLog, LabError> {
        let log = Arc::new(Log::growing(directory, bytes)?);
        Ok(CurrentLog { generation: AtomicU64::new(0), log: Mutex::new(log) })
    }

    fn get(&self) -> Arc<Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, log: Arc<Log>) -> Arc<Log> {
        let old = mem::replace(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner), log);
        // Relaxed: only a hint to fetch the log again; the mutex orders the log itself.
        self.generation.fetch_add(1, Ordering::Relaxed);
        old
    }
}

/// Runs `dio-kernel` or `dio-kernel-apart` once on fresh files.
///
/// # Errors
/// When the file cannot be used, a reader finds a block that is not what was written, or
/// threads cannot be started.
pub(super) fn run<W: World>(
    request: &Request<'_, W>,
    workload: &'static str,
    params: &Io,
    readers: Readers,
) -> Result<Repetition, LabError> {
    let world = request.world;
    // Readers find a whole tail from their first read on.
    let start_bytes = u64::from(params.read_bytes);
    let current = CurrentLog::create(request.directory, start_bytes)?;
    let other = match readers {
        Readers::Apart => Some(CurrentLog::create(request.directory, start_bytes)?),
        Readers::Beside => None,
    };
    let reads_done = Acquisitions::new(params.readers as usize);
    let mut bodies: Vec<Body<'_>> = Vec::new();
    for index in 0..params.readers as usize {
        let (read_from, reads_done) = (other.as_ref().unwrap_or(&current), &reads_done);
        let mut buffer = AlignedBuffer::new(params.read_bytes as usize);
        bodies.push(Box::new(move || {
            let recorder = read_tail(world, read_from, reads_done, index, &mut buffer)?;
            Ok(ThreadRecord { reader: Some(recorder), ..ThreadRecord::default() })
        }));
    }
    for _ in 0..params.writers {
        let (current, reads_done) = (&current, &reads_done);
        let rotation = Rotation {
            directory: request.directory,
            at_bytes: params.rotate_bytes,
            start_bytes,
            previous: None,
            spent_ns: 0,
        };
        bodies.push(Box::new(move || append(world, current, reads_done, rotation)));
    }
    run_threads(request, workload, bodies)
}

fn read_tail<W: World>(
    world: &W,
    current: &CurrentLog,
    reads_done: &Acquisitions,
    index: usize,
    buffer: &mut AlignedBuffer,
) -> Result<RoleRecorder, Failure> {
    let mut recorder = RoleRecorder::default();
    let mut generation = current.generation.load(Ordering::Relaxed);
    let mut log = current.get();
    loop {
        let newest = current.generation.load(Ordering::Relaxed);
        if newest != generation {
            generation = newest;
            log = current.get();
        }
        let started = world.now();
        let bytes = log.read_tail(buffer)?;
        reads_done.count(index);
        if !record_whole(world, &mut recorder, started, bytes) {
            return Ok(recorder);
        }
    }
}

fn append<W: World>(
    world: &W,
    current: &CurrentLog,
    reads_done: &Acquisitions,
    mut rotation: Rotation<'_>,
) -> Result<ThreadRecord, Failure> {
    let mut recorder = RoleRecorder::default();
    let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
    let mut log = current.get();
    loop {
        if log.len() >= rotation.at_bytes {
            log = rotation.rotate(world, current, log)?;
        }
        let before = reads_done.total();
        let started = world.now();
        let bytes = log.append(&mut buffer)?;
        recorder.bypassed_by(reads_done.total() - before);
        if !record_whole(world, &mut recorder, started, bytes) {
            break;
        }
    }
    Ok(ThreadRecord {
        writer: Some(recorder),
        excluded_ns: rotation.spent_ns,
        ..ThreadRecord::default()
    })
}

/// Goes on in a new file when one has grown enough. The file before the old one is freed
/// then, so that two exist at most and no reader pays for freeing one it still reads.
struct Rotation<'a> {
    directory: &'a Path,
    at_bytes: u64,
    start_bytes: u64,
    previous: Option<Arc<Log>>,
    spent_ns: u64,
}

impl Rotation<'_> {
    fn rotate<W: World>(
        &mut self,
        world: &W,
        current: &CurrentLog,
        full: Arc<Log>,
    ) -> Result<Arc<Log>, LabError> {
        let started = world.now();
        drop(full);
        drop(self.previous.take());
        let fresh = Arc::new(Log::growing(self.directory, self.start_bytes)?);
        self.previous = Some(current.replace(fresh.clone()));
        self.spent_ns += world.now().saturating_sub(started);
        Ok(fresh)
    }
}
