//! The file, structure by structure. A fresh file is all zero, and so is every part of it that has not
//! been written yet.
//!
//! ```text
//!   page 0      Header: whose file it is, how much of the tables below is used
//!   …           modules, stacks, locks, threads: tables of fixed size, filled from the front
//!   …           pages that are given out one by one (Header::next_page):
//!                 Thread ──pages──► Entry × 64: what this thread did to 64 locks
//!                                     └─details──► Details: waits, holds and where, once there are any
//!                        └─records──► Records ─next─► Records …: what it did one by one, if that is recorded;
//!                                     these are given out from the end of the file
//! ```
//!
//! Each lock has a number, which finds it in the table and in every thread's pages. No lock has the
//! number 0.
//!
//! Invariants
//! 1. One thread at a time writes a [`Thread`] and what it refers to. Everybody may read it.
//! 2. What a number or page refers to is complete before the number is stored with Release.
//! 3. Pages and places in tables are given out once and never taken back.
//! 4. A [`Waiting`] is announced before its thread can block, and withdrawn afterwards. So a wait that
//!    never ends is in the file, even if the program is killed.
//!
//! Memory safety must not depend on these invariants, because every process that maps the file can break
//! them: a forked child keeps its parent's map, even after it has given up its rights, or while it runs
//! somebody else's code. So every type here is [`Plain`]: any bytes are a value of it. Numbers of pages
//! and places are checked whenever they come from the file.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// A type of which any bytes are a value, so that it can be copied from a file that others write to.
///
/// # Safety
/// Made of atomic integers alone, without padding that matters and without references.
pub unsafe trait Plain {}

// SAFETY: an atomic integer.
unsafe impl Plain for AtomicU32 {}
// SAFETY: a row of such values, with nothing in between.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: consists of atomic integers and arrays of them alone; see its fields.
unsafe impl Plain for Header {}
// SAFETY: consists of atomic integers and arrays of them alone; see its fields.
unsafe impl Plain for Module {}
// SAFETY: consists of atomic integers and arrays of them alone; see its fields.
unsafe impl Plain for Stack {}
// SAFETY: consists of atomic integers and arrays of them alone; see its fields.
unsafe impl Plain for Lock {}
// SAFETY: consists of atomic integers and arrays of them alone; see its fields.
unsafe impl Plain for Thread {}
// SAFETY: consists of atomic integers and arrays of them alone; see its fields.
unsafe impl Plain for Waiting {}
// SAFETY: consists of atomic integers and arrays of them alone; see its fields.
unsafe impl Plain for Entry {}
// SAFETY: consists of atomic integers and arrays of them alone; see its fields.
unsafe impl Plain for Details {}
// SAFETY: consists of atomic integers and arrays of them alone; see its fields.
unsafe impl Plain for Recording {}
// SAFETY: consists of atomic integers and arrays of them alone; see its fields.
unsafe impl Plain for Records {}

/// Of everything that is handed out.
pub const PAGE: usize = 4096;
/// Of the file. It is sparse: only what is written takes memory.
pub const SIZE: usize = 256 << 20;

/// In [`Header::magic`]: complete, and of this version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"fairlck3");

/// Places in the tables.
pub const MODULES: usize = 512;
/// As above.
pub const STACKS: usize = 4096;
/// As above. Locks beyond are counted together, as number [`OTHERS`].
pub const LOCKS: usize = 16384;
/// As above. Threads beyond are not counted, which [`Header::uncounted_threads`] says.
pub const THREADS: usize = 4096;

/// The lock number of all that have none of their own.
pub const OTHERS: u32 = 1;

/// Locks in one page of entries.
pub const ENTRIES: usize = PAGE / size_of::<Entry>();
/// Pages of entries that a thread can have.
pub const ENTRY_PAGES: usize = LOCKS / ENTRIES;

/// Pages of [`Records`] that a file can have: a quarter of it.
pub const RECORD_PAGES: u32 = 1 << 14;
/// Those that the first window may fill, which the process opens itself: 65,000 records.
pub const FIRST_WINDOW: u32 = RECORD_PAGES / 64;
/// Acquisitions of a stretch in which a thread that records does not count:
/// [`Uncounted`](crate::uncounted::Uncounted).
pub const STRETCH: u32 = 8192;
/// Places of [`Thread::held`].
pub const HELD: usize = 16;
/// Records in one page.
pub const RECORDS: usize = (PAGE - 48) / size_of::<Words>();
/// Pairs of an acquisition and its release that [`Recording::idle`] and [`Recording::pairs`] are about.
pub const PAIRS: u64 = 100;

/// Frames of a [`Stack`].
pub const FRAMES: usize = 14;
/// Places of [`Details::sites`].
pub const SITES: usize = 24;

/// How a lock is asked for. Index of everything that stands here once for each role.
pub const READ: usize = 0;
/// As above.
pub const WRITE: usize = 1;

/// In [`Header::policy`] of a program that links Fairlock: whichever locks it has chosen itself.
pub const OWN_LOCKS: &str = "own";

/// The first page: whose counts these are. Children of a `fork` go on in their parent's file, and
/// begin one of their own when they become another program.
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`], stored last.
    pub magic: AtomicU64,
    /// The process.
    pub pid: AtomicU32,
    /// Its parent when it began, or forked.
    pub parent: AtomicU32,
    /// CLOCK_MONOTONIC when counting began, ns.
    pub began: AtomicU64,
    /// The next page that is not handed out yet.
    pub next_page: AtomicU32,
    /// Used places of the table.
    pub modules: AtomicU32,
    /// As above, with 0 and [`OTHERS`].
    pub locks: AtomicU32,
    /// As above.
    pub threads: AtomicU32,
    /// The first of the threads' places whose threads have ended, a page; and how often one was
    /// taken, in the upper half.
    pub ended_threads: AtomicU64,
    /// Threads that found no place.
    pub uncounted_threads: AtomicU32,
    /// Waits and holds that found no page.
    pub uncounted_waits: AtomicU64,
    /// Acquisitions of the stretches in which threads that record did not count:
    /// [`Uncounted`](crate::uncounted::Uncounted).
    pub uncounted_acquisitions: AtomicU64,
    /// One hold in so many of a lock by a thread is measured, more often at first.
    pub holds_sampled: AtomicU32,
    /// The lock by name, ends at the first 0; or [`OWN_LOCKS`].
    pub policy: [AtomicU8; 32],
    /// The program's path, likewise.
    pub program: [AtomicU8; 512],
    /// CLOCK_MONOTONIC when the process began to end, ns; 0: it runs, or ended without a word.
    pub ended: AtomicU64,
    /// Not 0: a process that was forked off counts here, too. Its locks are copies, so what
    /// [`Details::passed`] sums up belongs to several.
    pub is_shared_by_fork: AtomicU32,
    /// Pages of [`Records`] that were handed out.
    pub record_pages: AtomicU32,
    /// Of the processes that count here, if they record.
    pub recording: Recording,
}

/// What threads look at before they record an operation, and what the records mean. All zero where
/// nothing is recorded.
///
/// Threads record while a window is open. Whoever wants one stores [`until`](Self::until), then makes the
/// number odd; the thread that finds the pages used up makes it even. While the number is odd only threads
/// change it, and while it is even only the one process that opens windows.
#[repr(C, align(64))]
pub struct Recording {
    /// The number of the window, odd while it is open. On a line that is hardly ever written.
    pub window: AtomicU32,
    /// The window ends when [`Header::record_pages`] has come to this.
    pub until: AtomicU32,
    /// Moments when the process began, and a little later or when it ended, each as ticks and as
    /// CLOCK_MONOTONIC, ns; 0: not yet. [`Records`] have more.
    pub moments: [[AtomicU64; 2]; 2],
    /// What is recorded of a lock that nobody else uses and a program that does nothing in between, by
    /// role: the times inside the acquisition, from there to the release, inside that, and from there to
    /// the next acquisition. In ticks, of [`PAIRS`] pairs together.
    pub idle: [[AtomicU64; 4]; 2],
    /// Ticks that so many pairs took while they were not recorded, and while they were; by role.
    pub pairs: [[AtomicU64; 2]; 2],
}

/// Something that code was loaded from.
#[repr(C)]
pub struct Module {
    /// Where it lies: an address minus this is the address in the file.
    pub base: AtomicU64,
    /// Its path, ends at the first 0. Empty: not complete.
    pub path: [AtomicU8; 504],
}

/// Return addresses, innermost first. 0 ends it. The table is filled by hash: a stack is at the
/// place that its hash names, or a few behind.
#[repr(C)]
pub struct Stack {
    /// The hash of the stack that this place is for; 0: free.
    pub claimed: AtomicU64,
    /// See [`frame`].
    pub frames: [AtomicU64; FRAMES],
    /// Not 0 once the frames are complete.
    pub is_complete: AtomicU64,
}

/// The module of a frame whose module is not known: the rest is an address.
pub const NO_MODULE: u64 = 0xffff;

/// A frame as it stands in a [`Stack`]: the module's place, and the address minus its base.
pub fn frame(module: u64, offset: u64) -> u64 {
    module << 48 | offset & 0xffff_ffff_ffff
}

/// The two parts of a [`frame`].
pub fn parts(frame: u64) -> (u64, u64) {
    (frame >> 48, frame & 0xffff_ffff_ffff)
}

/// One lock. A lock that is destroyed keeps its place; one that is initialised anew gets another.
#[repr(C)]
pub struct Lock {
    /// Where it is, or was. Not 0 once the rest is complete.
    pub address: AtomicU64,
    /// CLOCK_MONOTONIC, ns: when it was initialised or first used.
    pub since: AtomicU64,
    /// CLOCK_MONOTONIC when it was destroyed, ns; 0 before.
    pub destroyed: AtomicU64,
    /// Where it was initialised: place of a [`Stack`] plus one; 0: statically.
    pub initialised_at: AtomicU32,
    /// Where it was used first; likewise.
    pub first_used_at: AtomicU32,
    /// `PTHREAD_RWLOCK_PREFER_…`.
    pub kind: AtomicU32,
    /// Not 0: process-shared.
    pub is_shared: AtomicU32,
    /// The process and the thread that initialised it or used it first. Zero in files of versions that
    /// did not note them yet.
    pub made_by: [AtomicU32; 2],
    /// Fills two lines.
    pub spare: [AtomicU64; 10],
}

/// One thread, or several that did not live at the same time.
#[repr(C, align(4096))]
pub struct Thread {
    /// The kernel's number of the thread; 0 once it has ended without a lock held.
    pub tid: AtomicU32,
    /// Its process: the file's, or one that was forked off, whose locks keep their numbers.
    pub pid: AtomicU32,
    /// How many threads have had this place.
    pub lives: AtomicU32,
    /// As set by prctl(2) when the thread came.
    pub name: [AtomicU64; 2],
    /// The next on the list of [`Header::ended_threads`], a page.
    pub next_ended: AtomicU32,
    /// The page of each [`ENTRIES`] locks; 0: none yet.
    pub pages: [AtomicU32; ENTRY_PAGES],
    /// Not 0: it has ended and left a lock held. Nobody else gets this place then.
    pub left_holds: AtomicU32,
    /// The lock that it waits for.
    pub waiting: Waiting,
    /// The first page of [`Records`], and the last; 0: none yet.
    pub records: [AtomicU32; 2],
    /// What it has acquired in a stretch that is not counted, and holds: the lock's number, shifted left by one, plus the role;
    /// 0 and 1: nothing. Zero in files of versions that did not note it yet.
    pub held: [AtomicU32; HELD],
    /// Acquisitions in the stretch that goes on, which nothing counts; [`Header::uncounted_acquisitions`] has those of
    /// stretches that are over. 0 in files of versions that did not note it yet.
    pub uncounted: AtomicU32,
}

/// The lock that a thread waits for, and what it needs to be named while the wait goes on.
#[repr(C)]
#[derive(Default)]
pub struct Waiting {
    /// Odd while the thread waits; it changes when a wait begins and when it ends. What was read
    /// between two equal, odd values is of one wait.
    pub turn: AtomicU32,
    /// The lock's number.
    pub lock: AtomicU32,
    /// [`READ`] or [`WRITE`].
    pub role: AtomicU32,
    /// The role that held the lock when the thread came.
    pub holder: AtomicU32,
    /// Where it waits: place of a [`Stack`] plus one; 0: not known. Most are written when the wait
    /// has lasted already, so that one that is over soon takes no time for it.
    pub stack: AtomicU32,
    /// Where it waited for this lock before; likewise.
    pub stack_before: AtomicU32,
    /// Acquisitions of the lock while somebody waited, up to the beginning of the wait; by role.
    pub passed: [AtomicU32; 2],
    /// CLOCK_MONOTONIC when the wait began, ns.
    pub since: AtomicU64,
}

/// What a thread did to one lock.
#[repr(C)]
#[derive(Default)]
pub struct Entry {
    /// By role.
    pub acquired: [AtomicU64; 2],
    /// Refused attempts, by role: `try` found it taken, or a timed one ran out of time.
    pub refused: [AtomicU32; 2],
    /// The page of the [`Details`]; 0: none yet.
    pub details: AtomicU32,
    /// For the thread alone: how often it acquired the lock once more during the hold that is
    /// measured.
    pub held: AtomicU32,
    /// For the thread alone: CLOCK_MONOTONIC when a hold began that is measured, ns; 0: none.
    pub since: AtomicU64,
    /// How often the thread released it, by role. What it acquired more often it holds.
    pub released: [AtomicU32; 2],
    /// For the thread alone: the acquisition whose hold is measured next, by role.
    pub next_measured: [AtomicU64; 2],
}

/// Waits and holds of one thread at one lock.
#[repr(C, align(4096))]
pub struct Details {
    /// From the request to the acquisition, of those that could not enter at once; by role.
    pub wait: [Histogram; 2],
    /// Measured ones, by role; see [`Header::holds_sampled`].
    pub hold: [Histogram; 2],
    /// By the role that waited, and the role that held the lock when it came.
    pub waited_for: [[Sum; 2]; 2],
    /// By role.
    pub bypass: [Bypass; 2],
    /// What happened during measured holds; by role.
    pub holders: [Holders; 2],
    /// Where this thread waited. The place of a stack that is new is the first empty one, or
    /// else that of the last.
    pub sites: [Site; SITES],
    /// Where its longest measured hold of each role ended: place of a [`Stack`] plus one.
    pub longest_hold_at: [AtomicU32; 2],
    /// Its acquisitions while somebody waited, by role. Over all threads these are what
    /// [`Waiting::passed`] was taken from.
    pub passed: [AtomicU64; 2],
    /// Where it waited last, of the waits whose places are known, by role: place of a [`Stack`] plus
    /// one; 0: of none.
    pub waited_at: [AtomicU32; 2],
    /// Where one of its acquisitions of each role was made: place of a [`Stack`] plus one; 0: none
    /// was looked at.
    pub acquired_at: [AtomicU32; 2],
    /// Which one: the value of [`Entry::acquired`] with it.
    pub acquired_at_count: [AtomicU64; 2],
    /// For the thread alone: context switches when a hold began that is measured plus one, involuntary
    /// in the upper half; 0: not looked at.
    pub switches: AtomicU64,
    /// Calls that broke the lock's rules, by role and [`Misuse`]. Zero in files of versions that did
    /// not count them yet.
    pub misused: [[Misused; MISUSES]; 2],
    /// Waits that ran out of time, by role; they are in `wait`, too. Zero in files of versions that
    /// did not count them yet, which had them nowhere.
    pub timed_out: [AtomicU64; 2],
}

/// What one thread did, operation by operation; see [`record`](crate::record).
#[repr(C, align(4096))]
pub struct Records {
    /// The next page of those that had this place; 0: none yet.
    pub next: AtomicU32,
    /// How many of the records are complete.
    pub used: AtomicU32,
    /// The thread's process, and the thread.
    pub pid: AtomicU32,
    /// As above.
    pub tid: AtomicU32,
    /// As [`Thread::name`].
    pub name: [AtomicU64; 2],
    /// A moment when the page was handed out, as ticks and as CLOCK_MONOTONIC, ns.
    pub moment: [AtomicU64; 2],
    /// Each as [`record::Record::encode`](crate::record::Record::encode) has it.
    pub records: [Words; RECORDS],
}

/// A record as it stands in a page.
pub type Words = [AtomicU64; 2];

/// How a call broke a lock's rules: index into [`Details::misused`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misuse {
    /// `EDEADLK`: the thread held the lock already.
    Deadlock,
    /// `EPERM`: nobody held what was to be released. Of unlock, which has the role of what it seemed to
    /// release.
    NotHeld,
    /// `EINVAL`: no lock, no such clock, or a time that is none.
    Invalid,
    /// `EAGAIN`: there are as many readers as can be counted.
    TooManyReaders,
}

/// How many there are.
pub const MISUSES: usize = 4;

/// Calls by one thread that broke a rule.
#[repr(C)]
#[derive(Default)]
pub struct Misused {
    /// How many.
    pub calls: AtomicU64,
    /// Where the first one was made: place of a [`Stack`] plus one; 0: not known.
    pub first_at: AtomicU32,
}

/// A count and a sum of times, ns.
#[repr(C)]
#[derive(Default)]
pub struct Sum {
    /// How many.
    pub count: AtomicU64,
    /// Together, ns.
    pub ns: AtomicU64,
}

/// The most that one wait had to let pass.
#[repr(C)]
#[derive(Default)]
pub struct Bypass {
    /// Acquisitions by the other role during one wait, at most.
    pub others: AtomicU64,
    /// How long that wait was, ns.
    pub ns: AtomicU64,
    /// Acquisitions by the same role during one wait, at most.
    pub same: AtomicU64,
    /// Of the other role, over all waits.
    pub others_sum: AtomicU64,
}

/// What happened to those that held the lock.
#[repr(C)]
#[derive(Default)]
pub struct Holders {
    /// Holds that were looked at.
    pub looked_at: AtomicU64,
    /// Those in which the kernel took the CPU away.
    pub preempted: AtomicU64,
    /// Those in which the thread went to sleep.
    pub slept: AtomicU64,
}

/// A place in the program that waits.
#[repr(C)]
#[derive(Default)]
pub struct Site {
    /// Place of a [`Stack`] plus one; 0: free.
    pub stack: AtomicU32,
    /// [`READ`] or [`WRITE`].
    pub role: AtomicU32,
    /// Its waits.
    pub waits: Sum,
}

/// Times by length: four buckets to a doubling, from 64 ns to 68 s.
#[repr(C)]
pub struct Histogram {
    /// How many.
    pub count: AtomicU64,
    /// Together, ns.
    pub sum: AtomicU64,
    /// The longest, ns.
    pub max: AtomicU64,
    /// See [`bucket`].
    pub buckets: [AtomicU32; BUCKETS],
}

/// Of a [`Histogram`].
pub const BUCKETS: usize = 120;
const FIRST_OCTAVE: u32 = 6;

/// The bucket of a time.
///
/// ```
/// use fairlock_counts::layout::{bucket, bucket_end, BUCKETS};
/// assert_eq!(bucket(0), 0);
/// assert_eq!(bucket(u64::MAX), BUCKETS - 1);
/// for ns in [64, 100, 12_345, 1_000_000_007] {
///     assert!(ns < bucket_end(bucket(ns)) && bucket_end(bucket(ns) - 1) <= ns);
/// }
/// ```
pub fn bucket(ns: u64) -> usize {
    let octave = (ns | 1).ilog2();
    if octave < FIRST_OCTAVE {
        return 0;
    }
    let quarter = (ns >> (octave - 2)) & 3;
    // One less would be below: bucket 0 is all that is shorter.
    let index = 1 + (octave - FIRST_OCTAVE) as usize * 4 + quarter as usize;
    index.min(BUCKETS - 1)
}

/// The first time, ns, that is in a later bucket.
pub fn bucket_end(bucket: usize) -> u64 {
    if bucket >= BUCKETS - 1 {
        return u64::MAX;
    }
    let octave = FIRST_OCTAVE + (bucket / 4) as u32;
    (4 + bucket as u64 % 4) << (octave - 2)
}

/// A table's place in the file, in pages.
const fn pages(length: usize, size: usize) -> usize {
    (length * size).div_ceil(PAGE)
}

/// Offset of the table of [`Module`]s.
pub const MODULES_AT: usize = PAGE;
/// Offset of the table of [`Stack`]s.
pub const STACKS_AT: usize = MODULES_AT + PAGE * pages(MODULES, size_of::<Module>());
/// Offset of the table of [`Lock`]s.
pub const LOCKS_AT: usize = STACKS_AT + PAGE * pages(STACKS, size_of::<Stack>());
/// Offset of the table of the pages of [`Thread`]s.
pub const THREADS_AT: usize = LOCKS_AT + PAGE * pages(LOCKS, size_of::<Lock>());
/// The first page that is handed out.
pub const FIRST_PAGE: u32 = (THREADS_AT / PAGE + pages(THREADS, 4)) as u32;
/// Pages there are.
pub const PAGES: u32 = (SIZE / PAGE) as u32;

const _: () = {
    assert!(size_of::<Header>() == PAGE);
    assert!(size_of::<Module>() == 512);
    assert!(size_of::<Stack>() == 128);
    assert!(size_of::<Lock>() == 128);
    assert!(size_of::<Thread>() == PAGE);
    assert!(size_of::<Entry>() == 64);
    assert!(size_of::<Details>() == PAGE);
    assert!(size_of::<Records>() == PAGE);
    assert!(LOCKS <= 1 << crate::record::LOCK_BITS);
};

/// Whether a number can be that of a page that is handed out.
pub fn is_page(page: u32) -> bool {
    (FIRST_PAGE..PAGES).contains(&page)
}
