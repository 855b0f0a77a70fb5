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

mod kernel;
mod log;

use clap::Args;
use crossbeam_utils::CachePadded;
use fairlock_report::params::Value;
use fairlock_report::units::{
    count, deserialize_bytes, deserialize_time_ns, format_bytes, format_ns, parse_blocks,
    parse_time_ns,
};
use serde::{Deserialize, Serialize};

use super::client::{Client, Look};
use super::log::{START_SECONDS as LOG_START_SECONDS, check_read_bytes};
use super::{Body, Failure, check_no_update_was_lost, run_threads};
use crate::error::LabError;
use crate::locks::{KERNEL, LabLock, New, Protected};
use crate::measure::{Acquisitions, Repetition, ThreadRecord};
use crate::workload::{
    DEFAULT_LOCKS, DefaultPoints, DefaultSubjects, KERNEL_ALONE, LOCKS, Machine, Need, Request,
    Role, SLEEPING_SIMULATION_COST, Subjects, UnderLock, Workload, check_kernel,
    check_thread_count, defaults, points, roles, run_under_erased_lock, wrong,
};
use crate::world::scratch::BLOCK_BYTES;
use crate::world::{DiskLog, World};

/// Large enough that a tail reader seldom meets the wrap, small enough to write anew for each run.
const PREWRITTEN_BYTES: u64 = 8 << 20;
const LONGEST_HOLD_NS: u64 = 1_000_000_000;
/// What a run with a file costs, which is created and synced first.
const FILE_START_SECONDS: f64 = 0.06;
/// A file that is only appended to goes on in a new one when it has grown to this, so that disks do not fill up
/// (two files exist at most). The switch is not counted as the writer's time.
const ROTATE_BYTES: u64 = 1 << 30;

/// Parameters of the forms that do I/O.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Io {
    /// Threads that read the tail; 0 is the write-only baseline
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    pub readers: u32,
    /// Threads that write 4 KiB at a time; 0 is the read-only baseline. At most one where the lock is the kernel's
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    pub writers: u32,
    /// Bytes per read; a write is 4 KiB
    #[arg(long, value_name = "SIZE", default_value = "64k", value_parser = parse_blocks)]
    #[serde(deserialize_with = "deserialize_bytes")]
    pub read_bytes: u32,
    /// The size at which the kernel's forms go on in a new file. No parameter: tests make it small.
    #[arg(skip = ROTATE_BYTES)]
    #[serde(skip, default = "rotate_bytes")]
    pub rotate_bytes: u64,
}

fn rotate_bytes() -> u64 {
    ROTATE_BYTES
}

impl Default for Io {
    fn default() -> Io {
        defaults()
    }
}

impl Io {
    fn roles(&self) -> Vec<Role> {
        roles(&[("reader", self.readers), ("writer", self.writers)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        vec![
            ("read_bytes", format!("reads of {}", format_bytes(self.read_bytes.into()))),
            ("write_bytes", format!("writes of {}", format_bytes(BLOCK_BYTES as f64))),
        ]
    }

    fn validate(&self) -> Result<(), LabError> {
        check_threads(self.readers, self.writers)?;
        check_read_bytes(self.read_bytes)
    }
}

fn check_threads(readers: u32, writers: u32) -> Result<(), LabError> {
    check_thread_count("readers + writers", u64::from(readers) + u64::from(writers))
}

/// Whether the readers share what is appended to, or have a file of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readers {
    Beside,
    Apart,
}

/// The forms under the kernel's own lock: one [`Workload`] each, all with the parameters of [`Io`].
macro_rules! kernels_forms {
    ($(
        $(#[doc = $doc:literal])*
        $form:ident $name:literal: $about:literal, $example:literal, $start:expr, $run:path, $readers:ident;
    )*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $form {
            /// Its parameters.
            #[command(flatten)]
            pub io: Io,
        }

        impl From<Io> for $form {
            fn from(io: Io) -> $form {
                $form { io }
            }
        }

        impl Workload for $form {
            const NAME: &'static str = $name;
            const ABOUT: &'static str = $about;
            const EXAMPLES: &'static [&'static str] = &[$example];
            const SUBJECTS: Subjects = Subjects {
                all: |simulated| if simulated { Vec::new() } else { vec![KERNEL] },
                check: |name, simulated| {
                    check_kernel($name, "dio-lock and dio-sleep", name, simulated)
                },
                ..LOCKS
            };
            const DEFAULT_SUBJECTS: DefaultSubjects = KERNEL_ALONE;
            const GROUP: &'static str = "dio under the kernel's lock";
            const NEEDS: &'static [Need] = &[Need::Directory, Need::DirectIo];
            const START_SECONDS: f64 = $start;
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[points("readers", "0,1,2,4")];

    fn roles(&self) -> Vec<Role> {
                self.io.roles()
            }

            fn words(&self) -> Vec<(&'static str, String)> {
                self.io.words()
            }

            fn validate(&self, _pause_ns: f64) -> Result<(), LabError> {
                self.io.validate()?;
                if self.io.writers > 1 {
                    let valid = "0 or 1: a log has one appender".to_string();
                    return wrong("writers", self.io.writers, valid);
                }
                if self.io.rotate_bytes < 2 * u64::from(self.io.read_bytes) {
                    let valid = format!("at most half of {} bytes", self.io.rotate_bytes);
                    return wrong("read_bytes", self.io.read_bytes, valid);
                }
                Ok(())
            }

            fn facts(&self) -> Vec<(&'static str, Value)> {
                vec![("write_bytes", (BLOCK_BYTES as u32).into())]
            }

            fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
                $run(request, $name, &self.io, Readers::$readers)
            }
        }
    )*};
}

kernels_forms! {
    /// `dio-kernel`: the kernel's inode lock, by O_DIRECT I/O on a growing file.
    DioKernel "dio-kernel":
        "O_DIRECT appends alongside O_DIRECT tail reads of one file, under the kernel's own inode lock",
        "--readers 0,1,4 --read-bytes 4k,64k,1m", FILE_START_SECONDS, kernel::run, Beside;
    /// `dio-kernel-apart`: the same I/O with the readers on another file; no lock is shared, only the device.
    DioKernelApart "dio-kernel-apart":
        "O_DIRECT appends to one file alongside reads of another: what the device costs, without the lock",
        "--readers 0,1,4", FILE_START_SECONDS, kernel::run, Apart;
    /// `dio-log`: the same I/O on a `LogFile`, whose appends and reads hold the kernel's lock together.
    DioLog "dio-log":
        "O_DIRECT appends to a LogFile, which overwrite blocks written ahead, alongside reads of its tail",
        "--readers 0,1,4", LOG_START_SECONDS, log::run, Beside;
    /// `dio-log-apart`: the same with the readers on another `LogFile`.
    DioLogApart "dio-log-apart":
        "O_DIRECT appends to a LogFile alongside reads of another one: what the device costs",
        "--readers 0,1,4", LOG_START_SECONDS, log::run, Apart;
}

/// `dio-lock`: the lock under test, held around O_DIRECT I/O.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DioLock {
    /// Its parameters.
    #[command(flatten)]
    pub io: Io,
}

impl Workload for DioLock {
    const NAME: &'static str = "dio-lock";
    const ABOUT: &'static str = "O_DIRECT overwrites of a preallocated file alongside tail reads, under a lock of this program";
    const SITUATION: Option<&'static str> = Some("Holders wait for a disk");
    const EXAMPLES: &'static [&'static str] = &["--readers 0,1,4 --read-bytes 4k,64k,1m"];
    const NEEDS: &'static [Need] = &[Need::Directory, Need::DirectIo];
    const START_SECONDS: f64 = FILE_START_SECONDS;
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[points("readers", "0,1,2,4")];

    fn roles(&self) -> Vec<Role> {
        self.io.roles()
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        self.io.words()
    }

    fn validate(&self, _pause_ns: f64) -> Result<(), LabError> {
        self.io.validate()
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        vec![("write_bytes", (BLOCK_BYTES as u32).into())]
    }

    fn simulation_cost(&self, _lock: &str, _cpus: u32) -> f64 {
        SLEEPING_SIMULATION_COST
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_erased_lock(self, request)
    }
}

impl UnderLock for DioLock {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
    ) -> Result<Repetition, LabError> {
        let read_bytes = u64::from(self.io.read_bytes);
        let prewritten = PREWRITTEN_BYTES.max(2 * read_bytes);
        let log = request.world.wrapping_log(request.directory, prewritten)?;
        contest(
            request,
            new,
            DioLock::NAME,
            (self.io.readers, self.io.writers),
            &|| log.buffer(read_bytes as usize),
            &|buffer| log.read_tail(buffer),
            &|buffer| log.append(buffer),
        )
    }
}

/// `dio-sleep`: the lock under test, held while sleeping.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct DioSleep {
    /// Threads that read; 0 is the write-only baseline
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    pub readers: u32,
    /// Threads that write; 0 is the read-only baseline
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    pub writers: u32,
    /// How long a reader holds the lock
    #[arg(long = "read-hold", value_name = "TIME", default_value = "300us", value_parser = parse_time_ns)]
    #[serde(deserialize_with = "deserialize_time_ns")]
    pub read_hold_ns: u64,
    /// How long a writer holds the lock
    #[arg(long = "write-hold", value_name = "TIME", default_value = "20us", value_parser = parse_time_ns)]
    #[serde(deserialize_with = "deserialize_time_ns")]
    pub write_hold_ns: u64,
}

impl Default for DioSleep {
    fn default() -> DioSleep {
        defaults()
    }
}

impl Workload for DioSleep {
    const NAME: &'static str = "dio-sleep";
    const ABOUT: &'static str =
        "readers and writers that sleep under the lock, for as long as an I/O takes";
    const SITUATION: Option<&'static str> = Some("Holders sleep");
    const EXAMPLES: &'static [&'static str] =
        &["--lock rwlock,rwsem,std --readers 0,1,2,4 --read-hold 300us"];
    const DEFAULT_SUBJECTS: DefaultSubjects = DefaultSubjects {
        here: &["rwlock", "rwsem", "std", "parking_lot", "usync"],
        ..DEFAULT_LOCKS
    };
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[points("readers", "0,1,2,4")];

    fn roles(&self) -> Vec<Role> {
        roles(&[("reader", self.readers), ("writer", self.writers)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        vec![
            ("read_hold_ns", format!("read hold {}", format_ns(self.read_hold_ns as f64))),
            ("write_hold_ns", format!("write hold {}", format_ns(self.write_hold_ns as f64))),
        ]
    }

    fn validate(&self, _pause_ns: f64) -> Result<(), LabError> {
        check_threads(self.readers, self.writers)?;
        let holds = [("write_hold_ns", self.write_hold_ns), ("read_hold_ns", self.read_hold_ns)];
        holds.into_iter().try_for_each(|(name, ns)| match ns {
            0..=LONGEST_HOLD_NS => Ok(()),
            _ => wrong(name, ns, format!("0 to {LONGEST_HOLD_NS}")),
        })
    }

    fn simulation_cost(&self, _lock: &str, _cpus: u32) -> f64 {
        SLEEPING_SIMULATION_COST
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_erased_lock(self, request)
    }
}

impl UnderLock for DioSleep {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let hold = |ns| {
            world.sleep(ns);
            Ok(0)
        };
        contest(
            request,
            new,
            DioSleep::NAME,
            (self.readers, self.writers),
            &|| (),
            &|()| hold(self.read_hold_ns),
            &|()| hold(self.write_hold_ns),
        )
    }
}

/// What a holder does with its thread's state `S`; answers the bytes it moved.
type Hold<'a, S> = &'a (dyn Fn(&mut S) -> Result<u64, Failure> + Sync);

/// Readers and writers take the lock back to back.
fn contest<W: World, L: LabLock, S>(
    request: &Request<'_, W>,
    new: New<L>,
    workload: &'static str,
    (readers, writers): (u32, u32),
    new_state: &(dyn Fn() -> S + Sync),
    read: Hold<'_, S>,
    write: Hold<'_, S>,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let lock = CachePadded::new(new(Protected::new()));
    let lock: &L = &lock;
    let threads = (readers + writers) as usize;
    let acquisitions = Acquisitions::new(threads);
    let bodies = (0..threads).map(|index| {
        let mut client = Client::new(world, lock, &acquisitions, index);
        let reads = index < readers as usize;
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
    let mut repetition = run_threads(request, workload, bodies.collect())?;
    check_no_update_was_lost(request, workload, &repetition, lock.read(Protected::value))?;
    repetition.events = lock.events();
    Ok(repetition)
}
