//! Writing what each thread does to locks, operation by operation and with times, for a replay of the program elsewhere.
//!
//! A thread records by plain stores into its own pages of the counts file, while a window is open: see
//! [`layout::Recording`](crate::layout::Recording). The first window is open from the beginning, so that a short program
//! needs nobody's help; `fairlock run` opens the others. A window ends when its pages are used up, so a program that locks
//! all the time is recorded for a part of the time, and one that seldom does always. While none is open the process only
//! counts, and looks now and then whether there is one: when it waits, and when it measures a hold, which is once in a
//! thousand acquisitions.
//!
//! * Times are ticks of the processor's time stamp counter, read when an operation begins and when it ends. A
//!   record has the ticks since the previous one ended, and those inside the call.
//! * Where a thread did nothing to a lock for long it looks, before it goes on, how much CPU time it has used and
//!   whether it was switched off the CPU: this tells computing from waiting for something else.
//! * Counting and recording slow a thread down by more than can be measured from inside: they push other data out of its
//!   caches. So after each window a thread that locks often works for a stretch in which it does neither:
//!   [`Uncounted`](crate::uncounted::Uncounted). What that took stands at the beginning of its next window.
//! * What takes the recording itself long (a look, a new page) is in no record. What it costs in each operation is
//!   measured at the beginning, and noted beside the records: see
//!   [`layout::Recording::idle`](crate::layout::Recording::idle).
//!
//! As for counts, no number that stands in the file is believed. Where a thread writes next it knows itself.

use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::OnceLock;

use crate::layout::{
    ENTRIES, Entry, FIRST_WINDOW, LOCKS, PAGE, PAIRS, READ, RECORDS, Records, WRITE,
};
use crate::map::{Map, monotonic_ns};
use crate::process::{ThisThread, keeping_errno, map, store_name, switches};
use crate::record::{How, Record, What};

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
pub(crate) fn ticks() -> u64 {
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

/// What tells the library that operations which begin now are recorded, or that none are; there if this process records,
/// now or at other times.
static RECORD: OnceLock<fn(bool)> = OnceLock::new();

/// Goes on recording if a window has been opened. Called now and then, from paths that take long anyway.
#[inline]
pub(crate) fn looks_for_window() {
    if let Some(record) = RECORD.get() {
        if map().is_some_and(|map| is_open(window(map))) {
            record(true);
        }
    }
}

/// No window is open.
#[cold]
fn rests() {
    if let Some(record) = RECORD.get() {
        record(false);
    }
}

fn window(map: &Map) -> u32 {
    map.header().recording.window.load(Relaxed)
}

#[inline(always)]
pub(crate) fn is_open(window: u32) -> bool {
    window % 2 == 1
}

/// The moment, in ticks, from which on a thread that does so many operations from now on does not lock often.
pub(crate) fn is_long_from_now(operations: u32) -> u64 {
    ticks().saturating_add(LONG.load(Relaxed).saturating_mul(operations.into()))
}

/// An operation that is recorded, and has begun.
#[derive(Debug)]
pub struct Operation {
    /// Ticks.
    began: u64,
}

/// What a thread asked of a lock, and the answer.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// [`READ`] or [`WRITE`].
    pub role: usize,
    /// How long it would have waited.
    pub how: How,
    /// It got the lock.
    pub is_granted: bool,
}

impl Operation {
    /// None if it is not recorded, as no window is open. Called before anything is asked of the lock, by the thread
    /// itself.
    #[inline]
    pub fn begins(thread: &ThisThread) -> Option<Operation> {
        let map = map()?;
        let window = window(map);
        if thread.uncounted.is_under_way() {
            // It ends with the acquisition that finds the window open.
            return None;
        }
        if !is_open(window) {
            // It was closed by another process, or has been opened and closed again since it was found open.
            rests();
            return None;
        }
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
        Some(Operation { began: now })
    }

    /// The thread has asked for a lock. Its number is asked for when the time has been taken, as that may take long; the
    /// operation is in no record if there is none.
    #[inline(never)]
    pub fn asked(self, thread: &ThisThread, asked: Asked, number: impl FnOnce() -> Option<u32>) {
        let now = ticks();
        let Some(lock) = number() else { return };
        let took = since(self.began, now);
        let what = What::Asked {
            lock,
            is_write: asked.role == WRITE,
            how: asked.how,
            is_granted: asked.is_granted,
            waited: thread.recording.waited.get(),
            took,
        };
        note(thread, self.began, now, what);
        if took > LONG.load(Relaxed) {
            look(thread, now);
        }
    }

    /// The thread has released the lock of this number, which may be gone.
    #[inline(never)]
    pub fn released(self, thread: &ThisThread, number: u32, role: usize) {
        let now = ticks();
        let took = since(self.began, now);
        let what = What::Released { lock: number, is_write: role == WRITE, took };
        note(thread, self.began, now, what);
        // Others would wait meanwhile if it had to turn the page when it holds the lock next.
        if thread.recording.used.get() as usize > RECORDS - SPARE {
            turn_page(thread);
        }
    }
}

/// Writes a record of what began and ended then.
#[inline(always)]
fn note(thread: &ThisThread, began: u64, ended: u64, what: What) {
    let position = &thread.recording;
    let record = Record { since: since(position.ended.get(), began), what };
    position.ended.set(ended);
    push(thread, record);
}

/// Writes a record; false if the window has closed.
#[inline(always)]
fn push(thread: &ThisThread, record: Record) -> bool {
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
fn push_on_new_page(thread: &ThisThread, record: Record) -> bool {
    let is_pushed = turn_page(thread) && push(thread, record);
    thread.recording.ended.set(ticks());
    is_pushed
}

/// Goes on on a new page; false if the window has closed. What that takes is in no record.
#[cold]
#[inline(never)]
fn turn_page(thread: &ThisThread) -> bool {
    let position = &thread.recording;
    position.filled.set(position.filled.get().saturating_add(1));
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
fn new_page(map: &'static Map, thread: &ThisThread) -> Option<&'static Records> {
    let counts = map.thread(thread.page(map)?)?;
    let Some(number) = map.new_record_page() else {
        let recording = &map.header().recording;
        let window = thread.recording.window.get();
        let _ = recording.window.compare_exchange(window, window.wrapping_add(1), Relaxed, Relaxed);
        rests();
        return None;
    };
    let page = map.records(number)?;
    // SAFETY: a plain call.
    page.pid.store(unsafe { libc::getpid() } as u32, Relaxed);
    page.tid.store(thread.tid(), Relaxed);
    store_name(&page.name);
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
fn goes_on(map: &'static Map, thread: &ThisThread, window: u32, is_new: bool, now: u64) -> bool {
    let position = &thread.recording;
    if is_new {
        // A thread needs its place before it has pages.
        if thread.page(map).is_none() {
            return false;
        }
        position.window.set(window);
        position.ended.set(now);
        position.began.set(now);
        // The first page is new.
        position.filled.set(0);
        if !push(thread, Record { since: 0, what: What::Window { number: window, ticks: now } }) {
            return false;
        }
    }
    let is_open = look(thread, now);
    let (acquired, cpu_ns) = thread.uncounted.sum.get();
    if is_open && is_new && acquired != 0 {
        thread.uncounted.sum.set((0, 0));
        push(thread, Record { since: 0, what: What::Uncounted { acquired, cpu_ns } });
        thread.recording.ended.set(ticks());
    }
    is_open
}

/// Notes where the time went up to now. False if the window has closed.
#[cold]
#[inline(never)]
fn look(thread: &ThisThread, now: u64) -> bool {
    let position = &thread.recording;
    let cpu_ns = cpu_ns();
    let switches = switches();
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

/// Begins a stretch in which the thread does not count, if it is time: it has recorded much in a short time since the last
/// one, and no window is open. Called now and then, when the thread has released a lock.
#[inline]
pub(crate) fn may_stop_counting(thread: &ThisThread) {
    if thread.recording.filled.get() != 0 {
        may_stop_counting_now(thread);
    }
}

#[cold]
#[inline(never)]
fn may_stop_counting_now(thread: &ThisThread) {
    let position = &thread.recording;
    if map().is_none_or(|map| is_open(window(map))) {
        return;
    }
    let records = u64::from(position.filled.get()) * RECORDS as u64;
    let is_often = since(position.began.get(), ticks()) / records < LONG.load(Relaxed);
    position.filled.set(0);
    if is_often {
        thread.stops_counting();
    }
}

/// The calling thread's CPU time.
pub(crate) fn cpu_ns() -> u64 {
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
pub fn process_ends() {
    let Some(map) = map() else { return };
    let recording = &map.header().recording;
    if RECORD.get().is_some() {
        store_moment(&recording.moments[1]);
    }
}

// ---- the beginning ----

/// Begins to record, once: opens the first window. Before that it measures what recording costs, by what `prepare` returns,
/// if anything: that locks and unlocks [`PAIRS`] times, in this role and by the way that the program's locks go, a lock
/// of the number [`OWN`] that nobody else uses. This leaves no trace in counts and records.
///
/// From now on `record` is told whether operations that begin are recorded: a library need not call
/// [`Operation::begins`] while they are not. It may be told the same more than once, by any thread, and also inside an
/// operation.
///
/// The process counts. Of threads that call this at once, one prepares and measures.
pub fn begin<F: Fn(usize)>(
    thread: &ThisThread,
    record: fn(bool),
    prepare: impl FnOnce() -> Option<F>,
) {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    let Some(map) = map() else { return };
    if HAS_BEGUN.swap(true, Relaxed) {
        return;
    }
    let recording = &map.header().recording;
    let first = [ticks(), monotonic_ns()];
    recording.moments[0].iter().zip(first).for_each(|(to, from)| to.store(from, Relaxed));
    if let Some(pairs) = prepare() {
        measure(map, thread, record, &pairs);
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
    // Nobody else sets it.
    let _ = RECORD.set(record);
    record(true);
}

/// The number of the lock by which is measured. No lock in the file has it.
pub const OWN: u32 = LOCKS as u32;
/// So often each thing is measured.
const ROUNDS: usize = 5;

/// What is counted and recorded meanwhile goes to memory that is not the file's.
fn measure(map: &'static Map, thread: &ThisThread, record: fn(bool), pairs: &dyn Fn(usize)) {
    // At the place of its number on a page, so that it is found as fast as others.
    #[repr(align(4096))]
    struct Page(Entry);
    static ENTRY: Page = Page(Entry {
        acquired: [const { AtomicU64::new(0) }; 2],
        refused: [const { AtomicU32::new(0) }; 2],
        details: AtomicU32::new(0),
        held: AtomicU32::new(0),
        since: AtomicU64::new(0),
        released: [const { AtomicU32::new(0) }; 2],
        // No hold is measured.
        next_measured: [const { AtomicU64::new(u64::MAX) }; 2],
    });
    const { assert!(align_of::<Page>() == PAGE && OWN as usize % ENTRIES == 0) };
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
    thread.recent.keep(OWN, &ENTRY.0);
    let recording = &map.header().recording;
    let position = &thread.recording;
    for role in [READ, WRITE] {
        let mut took = [[u64::MAX; 2]; ROUNDS];
        for round in &mut took {
            // Not recorded, then recorded.
            for (window, took) in [0, 1].into_iter().zip(round) {
                record(is_open(window));
                position.page.set(Some(&SCRATCH));
                position.used.set(0);
                // Already in the window: its beginning is not to be measured.
                position.window.set(1);
                recording.window.store(window, Relaxed);
                let began = ticks();
                pairs(role);
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
    record(false);
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
