//! Counting and recording, as the library that `fairlock run` preloads does it for
//! `pthread_rwlock_t`. That library may be in the same process, and has a file of its own.
//!
//! Whether the process counts is decided by its environment: before `main`, so that nothing is
//! missed, or at the first operation on any lock if that comes earlier. Where nothing is counted,
//! operations go on as if there were no such feature.
//!
//! * An acquisition is counted when it has been made, and a release just before it happens: so a
//!   lock that a thread has acquired more often than released is one that it holds.
//! * An acquisition that is counted first tries, so that it is known whether it had to wait.
//! * Nothing here allocates after the first operation, or takes a lock. A signal's handler may come
//!   in between, and loses a count then, no more.

use core::ffi::c_void;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release as Released};
use core::sync::atomic::{AtomicU8, AtomicU32};
use std::env;
use std::os::unix::ffi::OsStrExt;

use fairlock_counts::counting::{self, Counted, Ending};
use fairlock_counts::layout::{OWN_LOCKS, PAIRS, READ, WRITE};
use fairlock_counts::process::{self, Origin, ThisThread};
use fairlock_counts::record::How;
use fairlock_counts::recorder::{self, Asked, OWN, Operation};

use super::{Patience, Role};
use crate::end_key::EndKey;

/// Whether the process counts, and whether it also records, for the moment.
static MODE: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const OFF: u8 = 1;
const COUNTS: u8 = 2;
const RECORDS: u8 = 3;

std::thread_local! {
    /// Without a destructor: it can be used until the very end of the thread.
    static THREAD: ThisThread = const { ThisThread::new() };
}

impl Role {
    fn index(self) -> usize {
        match self {
            Role::Read => READ,
            Role::Write => WRITE,
        }
    }
}

impl From<Patience> for How {
    fn from(patience: Patience) -> How {
        match patience {
            Patience::Waits => How::Waits,
            Patience::Tries => How::Tries,
            Patience::Timed => How::Timed,
        }
    }
}

/// What a lock has for its counts.
pub type Counts = CountedLock;

/// What a lock has for its counts. It goes where its lock goes, and says in the file when the lock
/// is dropped.
#[derive(Debug)]
#[repr(align(8))] // as the locks that have one
pub struct CountedLock {
    /// In the file; 0 until it is first used while the process counts.
    number: AtomicU32,
    /// Threads that wait for it.
    waiters: AtomicU32,
    /// Acquisitions while somebody waited, by role.
    passed: [AtomicU32; 2],
}

impl CountedLock {
    #[allow(clippy::declare_interior_mutable_const)] // becomes a part of a static
    pub(crate) const NEW: CountedLock = CountedLock::numbered(0);

    const fn numbered(number: u32) -> CountedLock {
        CountedLock {
            number: AtomicU32::new(number),
            waiters: AtomicU32::new(0),
            passed: [const { AtomicU32::new(0) }; 2],
        }
    }

    #[inline(always)]
    pub(crate) fn of_lock(&self) -> Option<&CountedLock> {
        Some(self)
    }

    /// Where the thread counts what it does to this lock; none if there is no room. The process
    /// counts.
    #[inline]
    fn by(&self, thread: &ThisThread) -> Option<Counted> {
        let number = self.number.load(Relaxed);
        match thread.recent.find(number) {
            Some(entry) => Some(Counted { entry, number }),
            None => self.find(thread),
        }
    }

    #[cold]
    #[inline(never)]
    fn find(&self, thread: &ThisThread) -> Option<Counted> {
        let map = process::map()?;
        let number = match self.number.load(Relaxed) {
            0 => {
                let address = core::ptr::from_ref(self).cast();
                let new = process::new_lock(map, thread, address, Origin::Used, 0, false);
                process::keep_number(map, &self.number, new)
            }
            known => known,
        };
        let entry = thread.entry(map, number)?;
        thread.recent.keep(number, entry);
        Some(Counted { entry, number })
    }
}

impl counting::Lock for CountedLock {
    #[inline(always)]
    fn waiters(&self) -> &AtomicU32 {
        &self.waiters
    }
    #[inline(always)]
    fn passed(&self, role: usize) -> &AtomicU32 {
        &self.passed[role]
    }
}

impl Drop for CountedLock {
    #[inline]
    fn drop(&mut self) {
        let number = *self.number.get_mut();
        if number != 0 {
            process::map().into_iter().for_each(|map| process::lock_ends(map, number));
        }
    }
}

/// Whether the process counts.
#[inline(always)]
fn counts() -> bool {
    match MODE.load(Relaxed) {
        OFF => false,
        UNDECIDED => decide(),
        _ => true,
    }
}

/// An operation of this thread that is recorded, and begins; none if the process only counts, for
/// the moment.
#[inline]
fn recorded(thread: &ThisThread) -> Option<Operation> {
    if MODE.load(Relaxed) == RECORDS { Operation::begins(thread) } else { None }
}

/// Whether operations that begin now are recorded. The process counts.
fn record(operations: bool) {
    MODE.store(if operations { RECORDS } else { COUNTS }, Relaxed);
}

/// This lock's operations are counted now.
#[inline(always)]
pub(crate) fn is_counted(lock: Option<&CountedLock>) -> bool {
    lock.is_some() && counts()
}

/// An acquisition that is counted, and has begun.
pub struct Acquisition<'a> {
    lock: &'a CountedLock,
    role: Role,
    patience: Patience,
    /// If a window is open.
    operation: Option<Operation>,
}

impl<'a> Acquisition<'a> {
    /// None if it is not counted. Before anything is asked of the lock.
    #[inline(always)]
    pub(crate) fn begins(
        lock: Option<&'a CountedLock>,
        role: Role,
        patience: Patience,
    ) -> Option<Acquisition<'a>> {
        let lock = lock?;
        if counts() { Some(Self::begins_counted(lock, role, patience)) } else { None }
    }

    #[inline(never)]
    fn begins_counted(lock: &'a CountedLock, role: Role, patience: Patience) -> Acquisition<'a> {
        let operation = THREAD.with(recorded);
        Acquisition { lock, role, patience, operation }
    }

    /// Waits, as the lock could not be had at once.
    #[cold]
    pub(crate) fn waits<R: Ending>(&self, for_writer: bool, wait: impl FnOnce() -> R) -> R {
        THREAD.with(|thread| match self.lock.by(thread) {
            Some(counted) => counted.wait(self.lock, thread, self.role.index(), for_writer, wait),
            None => wait(),
        })
    }

    /// The thread has the lock, or not.
    #[inline(never)]
    pub(crate) fn ends(self, is_granted: bool) {
        let role = self.role.index();
        let count = |thread: &ThisThread| {
            if is_granted && thread.acquired_uncounted(self.lock.number.load(Relaxed), role) {
                return None;
            }
            let counted = self.lock.by(thread)?;
            match is_granted {
                true => counted.acquired(self.lock, thread, role),
                false => counted.refused(role),
            }
            Some(counted.number)
        };
        THREAD.with(|thread| match self.operation {
            Some(operation) => {
                let asked = Asked { role, how: self.patience.into(), is_granted };
                operation.asked(thread, asked, || count(thread));
            }
            None => _ = count(thread),
        });
    }
}

/// A release that is counted, and about to be made. It does not borrow the lock, which may be gone
/// afterwards.
pub struct Release {
    counted: Counted,
    role: usize,
    operation: Option<Operation>,
}

impl Release {
    /// None if it is not counted. Before the lock is released.
    #[inline(always)]
    pub(crate) fn begins(lock: Option<&CountedLock>, role: Role) -> Option<Release> {
        let lock = lock?;
        if counts() { Self::begins_counted(lock, role.index()) } else { None }
    }

    #[inline(never)]
    fn begins_counted(lock: &CountedLock, role: usize) -> Option<Release> {
        THREAD.with(|thread| {
            if thread.releases_uncounted(lock.number.load(Relaxed), role) {
                return None;
            }
            let counted = lock.by(thread)?;
            let operation = recorded(thread);
            counted.releases(thread, role);
            Some(Release { counted, role, operation })
        })
    }

    /// The lock is released.
    #[inline(never)]
    pub(crate) fn ends(self) {
        THREAD.with(|thread| {
            if let Some(operation) = self.operation {
                operation.released(thread, self.counted.number, self.role);
            }
            self.counted.released(thread, self.role, true);
        });
    }
}

// ---- the beginning and the end ----

/// Runs when the program is loaded, or the library that contains this.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    counts();
}

/// Decides whether the process counts. Operations of other threads, and of the program's allocator,
/// go on uncounted meanwhile.
#[cold]
#[inline(never)]
fn decide() -> bool {
    if MODE.compare_exchange(UNDECIDED, OFF, Acquire, Relaxed).is_err() {
        return matches!(MODE.load(Acquire), COUNTS | RECORDS);
    }
    let counts = process::keeping_errno(begin);
    if counts {
        // Release: what was prepared. Who sees the mode finds the file by an Acquire of its own.
        MODE.store(COUNTS, Released);
        let records = env::var_os("FAIRLOCK_RECORD").is_some_and(|value| value == "1");
        if records {
            THREAD.with(|thread| recorder::begin(thread, record, || Some(pairs)));
        }
    }
    counts
}

fn begin() -> bool {
    let Some(directory) = env::var_os("FAIRLOCK_COUNTS").filter(|it| !it.is_empty()) else {
        return false;
    };
    let begins = counting::begin(directory.as_bytes(), OWN_LOCKS, None, thread_comes);
    if begins {
        // SAFETY: plain calls; the functions are of this library, and the C library forgets them
        // when it is unloaded.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
            libc::atexit(process_ends);
        }
    }
    begins
}

/// Locks and unlocks as the program does, a lock that is one word: what recording adds is the same
/// for any.
fn pairs(role: usize) {
    static LOCK: CountedLock = CountedLock::numbered(OWN);
    static WORD: AtomicU32 = AtomicU32::new(0);
    let role = if role == READ { Role::Read } else { Role::Write };
    for _ in 0..PAIRS {
        let acquisition = Acquisition::begins(Some(&LOCK), role, Patience::Waits);
        let is_free = WORD.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        acquisition.into_iter().for_each(|it| it.ends(is_free));
        let release = Release::begins(Some(&LOCK), role);
        WORD.swap(0, Released);
        release.into_iter().for_each(Release::ends);
    }
}

static KEY: EndKey = EndKey::NEW;

fn thread_comes(_: &ThisThread) {
    KEY.arm(thread_ends);
}

unsafe extern "C" fn thread_ends(_: *mut c_void) {
    THREAD.with(|thread| {
        thread.has_ended.set(true);
        process::thread_ends(thread);
    });
}

unsafe extern "C" fn in_child() {
    THREAD.with(ThisThread::forked);
}

extern "C" fn process_ends() {
    recorder::process_ends();
    THREAD.with(process::process_ends);
}
