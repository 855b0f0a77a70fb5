//! `dio`: one thread appends, others read the tail, and a lock is held for the whole I/O (the
//! workload behind the Linux kernel's rwsem reader-starvation fix of 2026).
//!
//! The forms of the same contest, all back to back without thinking:
//!
//! * `dio-kernel`: appends and tail reads of a real file with O_DIRECT. The lock is the
//!   kernel's own: an extending write takes the inode's rwsem exclusively, a read shared, both
//!   for the whole I/O. The lab cannot see that lock being granted, so `wait` and `latency`
//!   are the whole I/O, `hold` is empty, and a write's bypass counts the reads that ended
//!   while it was under way.
//! * `dio-kernel-apart`: the same appends and reads, but the readers read another file. What
//!   the device's own queue costs, without the lock.
//! * `dio-log`: the same appends and tail reads, of a `LogFile` of Fairlock's, whose appends overwrite blocks
//!   that are there. The lock is still the kernel's, but both sides take it shared. Readers check every
//!   record.
//! * `dio-log-apart`: the same with the readers on another `LogFile`.
//! * `dio-lock`: the same I/O under the lock under test, on a file of blocks already written
//!   and synced. Overwriting those takes the kernel's lock shared, which leaves the fight to
//!   ours.
//! * `dio-sleep`: no disk; holders sleep for as long as the I/O would take.
//!
//! The first four are about the real kernel. On a simulated machine the other two run, `dio-lock`
//! on its model of a disk.

mod disk;
mod file;
mod kernel;
mod log;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::client::{Client, Look};
use super::scratch::BLOCK_BYTES;
use super::{Body, Failure, Request, check_no_update_was_lost, check_thread_count, run_threads};
use crate::error::LabError;
use crate::locks::{LabLock, Protected};
use crate::measure::{Acquisitions, Repetition, ThreadRecord};
use crate::world::World;

pub use super::scratch::{probe_direct_io, remove_scratch_files};
pub use disk::{Disk, DiskLog};

/// Which lock is fought for, and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DioForm {
    /// The kernel's inode lock, by O_DIRECT I/O on a growing file.
    Kernel,
    /// The same I/O with the readers on another file: no lock is shared, only the device.
    KernelApart,
    /// The same I/O on a `LogFile`, whose appends and reads hold the kernel's lock together.
    Log,
    /// The same with the readers on another `LogFile`.
    LogApart,
    /// The lock under test, held around O_DIRECT I/O.
    Lock,
    /// The lock under test, held while sleeping.
    Sleep,
}

impl DioForm {
    /// All of them.
    pub const ALL: [DioForm; 6] = [
        DioForm::Kernel,
        DioForm::KernelApart,
        DioForm::Log,
        DioForm::LogApart,
        DioForm::Lock,
        DioForm::Sleep,
    ];

    /// The form of the workload of this name.
    pub fn named(workload: &str) -> Option<DioForm> {
        DioForm::ALL.into_iter().find(|form| form.name() == workload)
    }

    /// The name that rows carry.
    pub fn name(self) -> &'static str {
        match self {
            DioForm::Kernel => "dio-kernel",
            DioForm::KernelApart => "dio-kernel-apart",
            DioForm::Log => "dio-log",
            DioForm::LogApart => "dio-log-apart",
            DioForm::Lock => "dio-lock",
            DioForm::Sleep => "dio-sleep",
        }
    }

    /// Whether the lock is the kernel's and not one of the registry.
    pub fn is_kernels(self) -> bool {
        !matches!(self, DioForm::Lock | DioForm::Sleep)
    }
}

/// Parameters of [`dio`](self).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DioParams {
    /// Which of the forms.
    pub form: DioForm,
    /// Threads that write 4 KiB at a time; 0 is the read-only baseline. At most one where the lock is
    /// the kernel's.
    pub writers: u32,
    /// Threads that read the tail; 0 is the write-only baseline.
    pub readers: u32,
    /// Bytes of one read, a multiple of 4096. Not for `dio-sleep`.
    pub read_bytes: u32,
    /// How long a writer holds the lock in `dio-sleep`, ns.
    pub write_hold_ns: u64,
    /// How long a reader holds the lock in `dio-sleep`, ns.
    pub read_hold_ns: u64,
    /// Where the file goes. Not for `dio-sleep`.
    pub directory: PathBuf,
    /// `dio-kernel` goes on in a new file when the file has grown to this, so that disks do
    /// not fill up (two files exist at most). The switch is not counted as the writer's time.
    pub rotate_bytes: u64,
}

impl Default for DioParams {
    /// One writer (20 µs), one reader (64 KiB, 300 µs), in the current directory, under the
    /// lock under test with sleeping holders.
    fn default() -> DioParams {
        DioParams {
            form: DioForm::Sleep,
            writers: 1,
            readers: 1,
            read_bytes: 64 * 1024,
            write_hold_ns: 20_000,
            read_hold_ns: 300_000,
            directory: PathBuf::from("."),
            rotate_bytes: 1 << 30,
        }
    }
}

const LARGEST_READ: u32 = 64 << 20;
const LONGEST_HOLD_NS: u64 = 1_000_000_000;
/// Large enough that a tail reader seldom meets the wrap, small enough to write anew for each run.
const PREWRITTEN_BYTES: u64 = 8 << 20;

impl DioParams {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// [`LabError::Parameter`] names the first one that does not.
    pub fn validate(&self) -> Result<(), LabError> {
        check_thread_count("readers + writers", u64::from(self.readers) + u64::from(self.writers))?;
        let wrong =
            |name, value: String, valid: String| Err(LabError::Parameter { name, value, valid });
        if self.form.is_kernels() && self.writers > 1 {
            let valid = "0 or 1: a log has one appender".to_string();
            return wrong("writers", self.writers.to_string(), valid);
        }
        if self.form == DioForm::Sleep {
            for (name, ns) in
                [("write_hold_ns", self.write_hold_ns), ("read_hold_ns", self.read_hold_ns)]
            {
                if ns > LONGEST_HOLD_NS {
                    return wrong(name, ns.to_string(), format!("0 to {LONGEST_HOLD_NS}"));
                }
            }
            return Ok(());
        }
        let aligned = self.read_bytes.is_multiple_of(BLOCK_BYTES as u32);
        if !aligned || self.read_bytes == 0 || self.read_bytes > LARGEST_READ {
            let valid = format!("a multiple of {BLOCK_BYTES} up to {LARGEST_READ}");
            return wrong("read_bytes", self.read_bytes.to_string(), valid);
        }
        if self.form.is_kernels() && self.rotate_bytes < 2 * u64::from(self.read_bytes) {
            let valid = format!("at least twice read_bytes: {}", 2 * u64::from(self.read_bytes));
            return wrong("rotate_bytes", self.rotate_bytes.to_string(), valid);
        }
        Ok(())
    }

    /// The row's `params`: what the form depends on, and nothing else.
    pub fn row_params(&self) -> BTreeMap<String, f64> {
        let mut params = BTreeMap::from([
            ("readers".to_string(), f64::from(self.readers)),
            ("writers".to_string(), f64::from(self.writers)),
        ]);
        match self.form {
            DioForm::Sleep => {
                params.insert("write_hold_ns".to_string(), self.write_hold_ns as f64);
                params.insert("read_hold_ns".to_string(), self.read_hold_ns as f64);
            }
            _ => {
                params.insert("write_bytes".to_string(), BLOCK_BYTES as f64);
                params.insert("read_bytes".to_string(), f64::from(self.read_bytes));
            }
        }
        params
    }
}

/// Runs `dio-lock` or `dio-sleep` once on a fresh lock.
///
/// # Errors
/// When the lock breaks the invariant, the file cannot be used, or threads cannot be started.
///
/// # Panics
/// For the kernel's forms, which have no lock under test: see [`run_kernel`].
pub fn run_under_lock<W: Disk, L: LabLock>(
    request: &Request<'_, W>,
    params: &DioParams,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let read_bytes = u64::from(params.read_bytes);
    match params.form {
        DioForm::Sleep => {
            let (read_ns, write_ns) = (params.read_hold_ns, params.write_hold_ns);
            contest::<W, L, ()>(
                request,
                params,
                &|| (),
                &|()| {
                    world.sleep(read_ns);
                    Ok(0)
                },
                &|()| {
                    world.sleep(write_ns);
                    Ok(0)
                },
            )
        }
        DioForm::Lock => {
            let prewritten = PREWRITTEN_BYTES.max(2 * read_bytes);
            let log = world.wrapping_log(&params.directory, prewritten)?;
            contest::<W, L, _>(
                request,
                params,
                &|| log.buffer(read_bytes as usize),
                &|buffer| log.read_tail(buffer),
                &|buffer| log.append(buffer),
            )
        }
        _ => unreachable!("plans send the kernel's forms to `run_kernel`"),
    }
}

/// Runs one of the kernel's forms once on fresh files.
///
/// # Errors
/// When the files cannot be used, a reader finds something else than what was written, or threads
/// cannot be started.
pub fn run_kernel<W: World>(
    request: &Request<'_, W>,
    params: &DioParams,
) -> Result<Repetition, LabError> {
    match params.form {
        DioForm::Log | DioForm::LogApart => log::run(request, params),
        _ => kernel::run(request, params),
    }
}

/// What a holder does with its thread's state `S`; answers the bytes it moved.
type Hold<'a, S> = &'a (dyn Fn(&mut S) -> Result<u64, Failure> + Sync);

/// Readers and writers take the lock back to back.
fn contest<W: World, L: LabLock, S>(
    request: &Request<'_, W>,
    params: &DioParams,
    new_state: &(dyn Fn() -> S + Sync),
    read: Hold<'_, S>,
    write: Hold<'_, S>,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let lock = L::new(Protected::new());
    let threads = (params.readers + params.writers) as usize;
    let acquisitions = Acquisitions::new(threads);
    let bodies = (0..threads).map(|index| {
        let mut client = Client::new(world, &lock, &acquisitions, index);
        let reads = index < params.readers as usize;
        let body = move || {
            let mut state = new_state();
            loop {
                if reads {
                    client.read(Look::Whole, || read(&mut state))?;
                } else {
                    client.write(Look::Whole, || write(&mut state))?;
                }
                if !world.running() {
                    break;
                }
            }
            Ok(ThreadRecord {
                reader: reads.then_some(client.reader),
                writer: (!reads).then_some(client.writer),
                excluded_ns: 0,
            })
        };
        Box::new(body) as Body<'_>
    });
    let workload = params.form.name();
    let mut repetition = run_threads(request, workload, bodies.collect())?;
    check_no_update_was_lost(request, workload, &repetition, lock.read(Protected::value))?;
    repetition.events = lock.events();
    Ok(repetition)
}
