//! Files for storage engines: one whose operations are atomic, and a log that no reader stalls.
//!
//! * [`AtomicFile`]: reads, writes, appends and truncations that overlap behave as if they were executed
//!   one after the other. Used by many threads at once, at offsets. [`Handle`] is one user's place in it,
//!   for whatever takes [`Read`](std::io::Read), [`Write`](std::io::Write) and [`Seek`](std::io::Seek);
//!   [`AtomicFileError`] says what went wrong, where, and how much was done before.
//! * [`LogFile`]: O_DIRECT appends with group commit, recovery and recycling; [`LogReader`] follows it live
//!   in any process. [`LogOptions`] open it, [`Position`] says where a record is, [`LogError`] what went
//!   wrong.
//!
//! POSIX asks for atomic read(2) and write(2). On Linux's ext4, btrfs and tmpfs a read that overlaps
//! a write may nevertheless see any part of it. A lock around the whole file would make operations atomic, but
//! would also make operations on different parts wait for each other. An [`AtomicFile`] locks ranges
//! ([`RangeLock`](fairlock::RangeLock)), so only operations that overlap wait.
//!
//! The kernel does lock the inode for the whole of a direct I/O, so a reader of a log's tail stalls an append
//! that makes the file longer. A [`LogFile`] therefore gives its files their blocks ahead of the appends.
//!
//! # Example
//! ```
//! use fairlock_io::AtomicFile;
//! use std::thread;
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("pages");
//! let file = AtomicFile::create(path)?;
//! file.write_all_at(&[1; 65536], 0)?;
//!
//! thread::scope(|scope| {
//!     scope.spawn(|| file.write_all_at(&[2; 65536], 0));
//!     scope.spawn(|| file.append(&[3; 65536]));
//!     scope.spawn(|| {
//!         let mut page = vec![0; 65536];
//!         file.read_exact_at(&mut page, 0).expect("it is as long as that");
//!         assert!(page == vec![1; 65536] || page == vec![2; 65536], "never a part of each");
//!     });
//! });
//! assert_eq!(file.len(), 2 * 65536);
//! # Ok::<(), std::io::Error>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!(
    "fairlock-io is for Linux only: it needs O_DIRECT, fallocate, flock and files by the descriptor of their directory. \
     Elsewhere, lock ranges of a file with fairlock's RangeLock around its positioned reads and writes"
);

mod atomic_file;
mod log_file;
#[cfg(test)]
mod long;
#[cfg(test)]
mod test_directory;

pub use atomic_file::{AtomicFile, AtomicFileError, Handle, Operation};
pub use log_file::{
    AppendOptions, Checkpoint, Completion, Damage, Damaged, FailureMetrics, Followed, GivenUp,
    Latency, LogError, LogErrorKind, LogFile, LogMetrics, LogOptions, LogReader, LogStats,
    LogSummary, LogWriter, OpenMode, Position, Prewrite, Prewriting, Record, Records, Recovery,
    RepairOptions, RepairReport, SegmentMetrics, Submitted, SubmittedAll, SyncPolicy, Verified,
};

/// Runs the example of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
