//! What each thread did to locks, operation by operation and with times, for a replay of the program elsewhere.
//!
//! A thread records by plain stores into its own pages of the counts file, while a window is open: see
//! [`Recording`](fairlock_counts::layout::Recording). The first window is open from the beginning, so that a short program needs nobody's
//! help; `fairlock run` opens the others. A window ends when its pages are used up, so a program that locks
//! all the time is recorded for a part of the time, and one that seldom does always. While none is open the process is
//! in the mode that only counts, and looks now and then whether there is one: when it waits, and when it measures a
//! hold, which is once in a thousand acquisitions.
//!
//! * Times are ticks of the processor's time stamp counter, read when an operation begins and when it ends. A
//!   record has the ticks since the previous one ended, and those inside the call.
//! * Where a thread did nothing to a lock for long it looks, before it goes on, how much CPU time it has used and
//!   whether it was switched off the CPU: this tells computing from waiting for something else.
//! * What takes the recording itself long (a look, a new page) is in no record. What it costs in each operation is
//!   measured at the beginning, and noted beside the records: see [`idle`](fairlock_counts::layout::Recording::idle).
//!
//! As for counts, no number that stands in the file is believed. Where a thread writes next it knows itself.

use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use fairlock_counts::layout::{Entry, FIRST_WINDOW, LOCKS, PAIRS, READ, RECORDS, Records, WRITE};
use fairlock_counts::map::{Map, monotonic_ns};
use fairlock_counts::record::{How, Record, What};
use libc::{EBUSY, ETIMEDOUT, c_int, pthread_rwlock_t};

use crate::counting::{self, Counted, map};
use crate::functions::{self, Patience};
use crate::lock::{Lock, PREFER_READER, PREFER_WRITER_NONRECURSIVE};
use crate::modes::{self, Choice, Mode};
use crate::platform::keeping_errno;
use crate::thread::Thread;

/// A thread that did nothing to a lock for longer looks where its time went: with two system calls, which take a
/// microsecond.
const LONG_NS: u64 = 10_000;
/// It looks after so many times that long in any case: what it computes between two looks is told from the rest by
/// subtraction, so small errors add up.
const LOOKS: u64 = 100;

/// So many records of a page are left for those of holds that begin on it.
const SPARE: usize = 16;

/// [`LONG_NS`] in ticks; until that is known nobody looks.
static LONG: AtomicU64 = AtomicU64::new(u64::MAX);

/// The time stamp counter. The processor may read it some instructions earlier or later: to keep it from that would take
/// longer than what is measured.
#[inline(always)]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it. A process that has forbidden itself to read it (PR_SET_TSC) cannot be
    // recorded.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: reads a counter that Linux lets every process read.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack));
        }
        ticks
    }
}

fn since(then: u64, now: u64) -> u64 {
    // A counter may differ a little from CPU to CPU.
    now.saturating_sub(then)
}

/// Where a thread writes its next record, and what it needs for that. All zero at first.
pub(crate) struct Position {
    page: Cell<Option<&'static Records>>,
    /// Records on the page.
    used: Cell<u32>,
    /// The window that it records; 0: none.
    window: Cell<u32>,
    /// When its last record ended, ticks.
    ended: Cell<u64>,
    /// When it looked last, ticks.
    looked: Cell<u64>,
    /// Its context switches then.
    switches: Cell<u64>,
    /// It has waited in the operation that goes on.
    waited: Cell<bool>,
}

impl Position {
    /// The thread has ended, or is another one now.
    pub(crate) fn forget(&self) {
        self.page.set(None);
        self.used.set(0);
        self.window.set(0);
    }

    /// The operation that goes on has to wait.
    pub(crate) fn waits(&self) {
        self.waited.set(true);
    }
}

/// Whether this process records, now or at other times.
static RECORDS_AT_TIMES: AtomicBool = AtomicBool::new(false);

/// Goes on recording if a window has been opened. Called now and then, from paths that take long anyway.
#[inline]
pub(crate) fn looks_for_window() {
    if RECORDS_AT_TIMES.load(Relaxed) && map().is_some_and(|map| is_open(window(map))) {
        modes::record(true);
    }
}

fn window(map: &Map) -> u32 {
    map.header().recording.window.load(Relaxed)
}

fn is_open(window: u32) -> bool {
    window % 2 == 1
}

/// An operation that is recorded, and has begun.
pub(crate) struct Recorded {
    /// Ticks.
    began: u64,
}

impl Recorded {
    /// None if it is not recorded. Called before anything is asked of the lock.
    pub(crate) fn begins(mode: Mode) -> Option<Recorded> {
        if !mode.records() {
            return None;
        }
        let map = map()?;
        let window = window(map);
        if !is_open(window) {
            // It was closed by another process, or has been opened and closed again since it was found open.
            modes::record(false);
            return None;
        }
        Thread::with(|thread| {
            let position = &thread.recording;
            let mut now = ticks();
            let is_new = position.window.get() != window;
            let long = LONG.load(Relaxed);
            if is_new
                || since(position.ended.get(), now) > long
                || since(position.looked.get(), now) / LOOKS > long
            {
                if !goes_on(map, thread, window, is_new, now) {
                    return None;
                }
                now = ticks();
            }
            position.waited.set(false);
            Some(Recorded { began: now })
        })
    }

    /// The thread has asked for the lock, and got this answer.
    pub(crate) fn asked(self, at: &Lock, mode: Mode, role: usize, patience: Patience, code: c_int) {
        let now = ticks();
        // What broke the lock's rules is not repeated.
        if !matches!(code, 0 | EBUSY | ETIMEDOUT) {
            return;
        }
        Thread::with(|thread| {
            let Some(counted) = Counted::of(at, mode, thread) else { return };
            let took = since(self.began, now);
            let what = What::Asked {
                lock: counted.number,
                is_write: role == WRITE,
                how: match patience {
                    Patience::Forever => How::Waits,
                    Patience::None => How::Tries,
                    Patience::Until(_) => How::Timed,
                },
                is_granted: code == 0,
                waited: thread.recording.waited.get(),
                took,
            };
            note(thread, self.began, now, what);
            if took > LONG.load(Relaxed) {
                look(thread, now);
            }
        });
    }

    /// The lock was released, and may be gone; or it was not, as the code says.
    pub(crate) fn released(self, counted: Counted, role: usize, code: c_int) {
        let now = ticks();
        if code != 0 {
            return;
        }
        let took = since(self.began, now);
        let what = What::Released { lock: counted.number, is_write: role == WRITE, took };
        Thread::with(|thread| {
            note(thread, self.began, now, what);
            // Others would wait meanwhile if it had to turn the page when it holds the lock next.
            if thread.recording.used.get() as usize > RECORDS - SPARE {
                turn_page(thread);
            }
        });
    }
}

/// Writes a record of what began and ended then.
#[inline(always)]
fn note(thread: &Thread, began: u64, ended: u64, what: What) {
    let position = &thread.recording;
    let record = Record { since: since(position.ended.get(), began), what };
    position.ended.set(ended);
    push(thread, record);
}

/// Writes a record; false if the window has closed.
#[inline(always)]
fn push(thread: &Thread, record: Record) -> bool {
    let position = &thread.recording;
    let used = position.used.get();
    match position.page.get() {
        Some(page) if (used as usize) < RECORDS => {
            let words = record.encode();
            let places = &page.records[used as usize];
            places.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
            position.used.set(used + 1);
            // Release: what is counted is complete. Its partner is the copy of the reader.
            page.used.store(used + 1, Release);
            true
        }
        _ => push_on_new_page(thread, record),
    }
}

#[cold]
#[inline(never)]
fn push_on_new_page(thread: &Thread, record: Record) -> bool {
    let is_pushed = turn_page(thread) && push(thread, record);
    thread.recording.ended.set(ticks());
    is_pushed
}

/// Goes on on a new page; false if the window has closed. What that takes is in no record.
#[cold]
#[inline(never)]
fn turn_page(thread: &Thread) -> bool {
    let position = &thread.recording;
    let new = map().and_then(|map| new_page(map, thread));
    position.page.set(new);
    position.used.set(0);
    if new.is_none() {
        // Whatever it does until the next window is not recorded.
        position.window.set(0);
    }
    position.ended.set(ticks());
    new.is_some()
}

/// The next page of this thread. If the window has no more, it is closed.
fn new_page(map: &'static Map, thread: &Thread) -> Option<&'static Records> {
    let counts = map.thread(counting::page_of(map, thread)?)?;
    let Some(number) = map.new_record_page() else {
        let recording = &map.header().recording;
        let window = thread.recording.window.get();
        let _ = recording.window.compare_exchange(window, window.wrapping_add(1), Relaxed, Relaxed);
        modes::record(false);
        return None;
    };
    let page = map.records(number)?;
    // SAFETY: a plain call.
    page.pid.store(unsafe { libc::getpid() } as u32, Relaxed);
    page.tid.store(thread.tid(), Relaxed);
    counting::store_name(&page.name);
    store_moment(&page.moment);
    let [first, last] = &counts.records;
    // Release pairs with the copy of the reader: the page says whose it is.
    match map.records(last.load(Relaxed)) {
        Some(last) => last.next.store(number, Release),
        None => first.store(number, Release),
    }
    last.store(number, Relaxed);
    Some(page)
}

/// What comes before an operation that is not one of many in a row. False if the window has closed.
#[cold]
#[inline(never)]
fn goes_on(map: &Map, thread: &Thread, window: u32, is_new: bool, now: u64) -> bool {
    let position = &thread.recording;
    if is_new {
        // A thread needs its place before it has pages.
        if counting::page_of(map, thread).is_none() {
            return false;
        }
        position.window.set(window);
        position.ended.set(now);
        if !push(thread, Record { since: 0, what: What::Window { number: window, ticks: now } }) {
            return false;
        }
    }
    look(thread, now)
}

/// Notes where the time went up to now. False if the window has closed.
#[cold]
#[inline(never)]
fn look(thread: &Thread, now: u64) -> bool {
    let position = &thread.recording;
    let cpu_ns = cpu_ns();
    let switches = counting::switches();
    let before = position.switches.replace(switches);
    let more = |before: u64, now: u64| (now as u32).wrapping_sub(before as u32).min(255) as u8;
    let what = What::Looked {
        cpu_ns,
        voluntary: more(before, switches),
        involuntary: more(before >> 32, switches >> 32),
    };
    note(thread, now, now, what);
    let ended = ticks();
    position.ended.set(ended);
    position.looked.set(ended);
    position.window.get() != 0
}

/// The calling thread's CPU time.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives.
    keeping_errno(|| unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) });
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn store_moment([to_ticks, to_ns]: &[AtomicU64; 2]) {
    to_ticks.store(ticks(), Relaxed);
    to_ns.store(monotonic_ns(), Relaxed);
}

/// The process exits in order.
pub(crate) fn process_ends() {
    let Some(map) = map() else { return };
    let recording = &map.header().recording;
    if RECORDS_AT_TIMES.load(Relaxed) {
        store_moment(&recording.moments[1]);
    }
}

// ---- the beginning ----

/// Measures what recording costs, and opens the first window. The mode is decided.
pub(crate) fn begin(mode: Mode) {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    let Some(map) = map() else { return };
    if HAS_BEGUN.swap(true, Relaxed) {
        return;
    }
    let recording = &map.header().recording;
    let first = [ticks(), monotonic_ns()];
    recording.moments[0].iter().zip(first).for_each(|(to, from)| to.store(from, Relaxed));
    // A checker would be told of a lock that the program does not have.
    if !mode.announces() {
        Thread::with(|thread| measure(map, mode, thread));
    }
    // Measuring takes long enough for this; if nothing was measured, so does waiting.
    let mut now = [ticks(), monotonic_ns()];
    while now[1] < first[1] + 10 * LONG_NS {
        core::hint::spin_loop();
        now = [ticks(), monotonic_ns()];
    }
    recording.moments[1].iter().zip(now).for_each(|(to, from)| to.store(from, Relaxed));
    LONG.store(since(first[0], now[0]) * LONG_NS / (now[1] - first[1]), Relaxed);
    recording.until.store(FIRST_WINDOW, Relaxed);
    let window = window(map);
    recording.window.store(window.wrapping_add(1 + window % 2), Release);
    RECORDS_AT_TIMES.store(true, Relaxed);
    modes::record(true);
}

/// A lock of this library's own, by which it measures.
struct Own(UnsafeCell<pthread_rwlock_t>);
// SAFETY: a lock, which threads may use at once.
unsafe impl Sync for Own {}

/// No lock in the file has this number.
const OWN: u32 = LOCKS as u32;
/// So often each thing is measured.
const ROUNDS: usize = 5;

/// Locks and unlocks by the program's own way, without a trace in counts and records: these go to memory that
/// is not the file's.
fn measure(map: &'static Map, mode: Mode, thread: &Thread) {
    static LOCK: Own = Own(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
    static ENTRY: Entry = Entry {
        acquired: [const { AtomicU64::new(0) }; 2],
        refused: [const { AtomicU32::new(0) }; 2],
        details: AtomicU32::new(0),
        held: AtomicU32::new(0),
        since: AtomicU64::new(0),
        released: [const { AtomicU32::new(0) }; 2],
        // No hold is measured.
        next_measured: [const { AtomicU64::new(u64::MAX) }; 2],
    };
    static SCRATCH: Records = Records {
        next: AtomicU32::new(0),
        used: AtomicU32::new(0),
        pid: AtomicU32::new(0),
        tid: AtomicU32::new(0),
        name: [const { AtomicU64::new(0) }; 2],
        moment: [const { AtomicU64::new(0) }; 2],
        records: [const { [const { AtomicU64::new(0) }; 2] }; RECORDS],
    };
    const { assert!(2 * PAIRS as usize <= RECORDS - SPARE, "there is no second page") };
    let lock = LOCK.0.get();
    // Slots of readers would ask the kernel for barriers, which a program may forbid itself later; a lock of this
    // kind has none, and what recording adds is the same.
    let kind = match mode.choice() {
        Choice::RwLock => PREFER_WRITER_NONRECURSIVE,
        _ => PREFER_READER,
    };
    // SAFETY: this thread alone comes here; then the lock lives, and is initialised.
    unsafe {
        Lock::initialise(lock, kind, false);
        Lock::at(lock).number.store(OWN, Relaxed);
    }
    thread.recent.keep(OWN, &ENTRY);
    let recording = &map.header().recording;
    let position = &thread.recording;
    for role in [READ, WRITE] {
        let mut took = [[u64::MAX; 2]; ROUNDS];
        for round in &mut took {
            // Not recorded, then recorded.
            for (window, took) in [0, 1].into_iter().zip(round) {
                modes::record(is_open(window));
                position.page.set(Some(&SCRATCH));
                position.used.set(0);
                // Already in the window: its beginning is not to be measured.
                position.window.set(1);
                recording.window.store(window, Relaxed);
                let began = ticks();
                for _ in 0..PAIRS {
                    // SAFETY: the lock is initialised, and this thread holds it in between.
                    unsafe {
                        match role {
                            READ => functions::pthread_rwlock_rdlock(lock),
                            _ => functions::pthread_rwlock_wrlock(lock),
                        };
                        functions::pthread_rwlock_unlock(lock);
                    }
                }
                *took = since(began, ticks());
                recording.window.store(0, Relaxed);
            }
        }
        let records = &SCRATCH.records[..position.used.get() as usize];
        store_idle(&recording.idle[role], records);
        for (is_recorded, to) in recording.pairs[role].iter().enumerate() {
            to.store(median(&mut took.map(|round| round[is_recorded])), Relaxed);
        }
    }
    modes::record(false);
    position.forget();
    thread.recent.forget();
}

/// The average times that the records have, of as many as there are pairs: the counter may be coarse, so that
/// single times say little.
fn store_idle(idle: &[AtomicU64; 4], records: &[[AtomicU64; 2]]) {
    let mut times = [[0; PAIRS as usize]; 4];
    let mut known = [0; 4];
    for words in records {
        let record = Record::decode(words.each_ref().map(|word| word.load(Relaxed)));
        let Some(Record { since, what }) = record else { continue };
        let both = match what {
            What::Asked { took, .. } => [(0, took), (3, since)],
            What::Released { took, .. } => [(1, since), (2, took)],
            _ => continue,
        };
        for (which, ticks) in both {
            if let Some(place) = times[which].get_mut(known[which]) {
                *place = ticks;
                known[which] += 1;
            }
        }
    }
    for (to, (times, known)) in idle.iter().zip(times.iter_mut().zip(known)) {
        let times = &mut times[..known];
        times.sort_unstable();
        // The longest are those of an interrupt, and of the first time.
        let usual = &times[..known - known / 10];
        let sum: u64 = usual.iter().sum();
        to.store(sum * PAIRS / (usual.len() as u64).max(1), Relaxed);
    }
}

/// There are some.
fn median<const N: usize>(values: &mut [u64; N]) -> u64 {
    values.sort_unstable();
    values[N / 2]
}
