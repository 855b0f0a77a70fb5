//! What the calling process writes: its file, the places of its threads there, and where each thread counts what it does
//! to which lock.
//!
//! A library that counts keeps a [`ThisThread`] for each thread, and says when threads and the process end.
//! Nothing here allocates, looks up a symbol or waits for a lock, as the locks that are counted may be in use inside the
//! program's own allocator and inside the dynamic linker. `errno` stays as it is.
//!
//! Other processes may have the same file in their memory: children that were forked off, which may have
//! given up their rights since, or run what somebody else wants. So no number that is read from it is
//! believed: pages are looked up by [`Map`], which checks them, and sums may wrap.

use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;

use crate::layout::{self, ENTRIES, Entry, LOCKS, LOCKS_AT, OTHERS, Records, THREADS, THREADS_AT};
use crate::map::{Map, monotonic_ns};
use crate::stacks::{self, Frames};
use crate::uncounted::Uncounted;

/// What counts in this process.
struct Process {
    map: Map,
    thread_comes: fn(&ThisThread),
}

/// Null before [`begin`], and where nothing is counted.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// See [`counting::begin`](crate::counting::begin). `holds_sampled` is as in [`layout::Header`].
pub(crate) fn begin(
    directory: &Path,
    policy: &str,
    holds_sampled: u32,
    thread_comes: fn(&ThisThread),
) -> io::Result<()> {
    if map().is_none() {
        let map = Map::create(directory, policy)?;
        map.header().holds_sampled.store(holds_sampled, Relaxed);
        publish(Process { map, thread_comes });
    }
    Ok(())
}

/// Puts it where it stays, without an allocation.
fn publish(process: Process) {
    /// Threads that begin at once each may have one; more than two are not expected, and lose theirs.
    static PLACES: [Place; 2] = [const { Place(MaybeUninit::uninit(), AtomicU32::new(0)) }; 2];
    struct Place(MaybeUninit<Process>, AtomicU32);
    // SAFETY: written once, by the thread that took the place.
    unsafe impl Sync for Place {}
    let Some(place) = PLACES.iter().find(|place| place.1.swap(1, Relaxed) == 0) else { return };
    let place = place.0.as_ptr().cast_mut();
    // SAFETY: this thread's alone, until it is published.
    unsafe { place.write(process) };
    // Release pairs with the Acquire in `process`. Who is late keeps an empty file.
    let _ = PROCESS.compare_exchange(ptr::null_mut(), place, Release, Relaxed);
}

fn process() -> Option<&'static Process> {
    // SAFETY: null, or complete, and stays.
    unsafe { PROCESS.load(Acquire).as_ref() }
}

/// The file of this process, if there is one.
#[inline]
pub fn map() -> Option<&'static Map> {
    process().map(|process| &process.map)
}

/// What a thread knows about itself. All zero at first.
pub struct ThisThread {
    /// The kernel's number of it; 0: not asked yet.
    tid: Cell<u32>,
    /// The page of its counts; 0: none yet.
    page: Cell<u32>,
    /// Holds that are being measured.
    pub(crate) measured: Cell<u32>,
    /// It waits in a place that is not known yet, and is to look where if it still does then,
    /// CLOCK_MONOTONIC, ns; 0: not.
    pub(crate) place_wanted_at: Cell<u64>,
    /// It has come to its end, and takes nothing any more that would have to be given back.
    pub has_ended: Cell<bool>,
    /// Where its counts of some locks are.
    pub recent: Recent,
    /// Where it records what it does.
    pub recording: Position,
    /// A stretch in which nothing is counted.
    pub uncounted: Uncounted,
}

impl ThisThread {
    /// Of a thread that has not counted anything yet.
    pub const fn new() -> ThisThread {
        ThisThread {
            tid: Cell::new(0),
            page: Cell::new(0),
            measured: Cell::new(0),
            place_wanted_at: Cell::new(0),
            has_ended: Cell::new(false),
            recent: Recent::new(),
            recording: Position::new(),
            uncounted: Uncounted::new(),
        }
    }

    /// The kernel's number of the thread, never 0.
    #[inline(always)]
    pub fn tid(&self) -> u32 {
        match self.tid.get() {
            0 => self.ask_tid(),
            tid => tid,
        }
    }

    #[cold]
    fn ask_tid(&self) -> u32 {
        // SAFETY: a plain call.
        let tid = unsafe { libc::gettid() } as u32;
        self.tid.set(tid);
        tid
    }

    /// The page of its counts, given to it now if it has none; none if there is no room.
    #[inline]
    pub fn page(&self, map: &Map) -> Option<u32> {
        match self.page.get() {
            0 => new_thread(map, self),
            page => Some(page),
        }
    }

    /// The page of its counts, 0 if it has none yet.
    #[inline(always)]
    pub fn known_page(&self) -> u32 {
        self.page.get()
    }

    /// Whether some of its holds is measured.
    #[inline(always)]
    pub fn is_measuring(&self) -> bool {
        self.measured.get() != 0
    }

    /// When it is to look where it waits, CLOCK_MONOTONIC, ns; none if it does not wait, or if that
    /// is known.
    #[inline]
    pub fn place_wanted_at(&self) -> Option<u64> {
        Some(self.place_wanted_at.get()).filter(|at| *at != 0)
    }

    /// Where it counts what it does to the lock of this number; none if there is no room.
    #[inline]
    pub fn entry(&self, map: &'static Map, number: u32) -> Option<&'static Entry> {
        let counts = map.known_thread(self.page(map)?);
        let number = number as usize;
        let slot = counts.pages.get(number / ENTRIES)?;
        let page = match slot.load(Relaxed) {
            0 => {
                let page = map.new_page()?;
                // Release pairs with the Acquire of the snapshot.
                slot.store(page, Release);
                page
            }
            page => page,
        };
        map.entries(page)?.get(number % ENTRIES)
    }

    /// In the child of a `fork`, where the calling thread is another one.
    pub fn forked(&self) {
        self.tid.set(0);
        self.page.set(0);
        self.place_wanted_at.set(0);
        self.measured.set(0);
        self.recent.forget();
        self.recording.forget();
        self.uncounted.forget();
    }
}

impl Default for ThisThread {
    fn default() -> Self {
        Self::new()
    }
}

/// Where a thread found the entries of the locks that it used last. The very last stands apart: with
/// that the processor need not wait for the lock's number to know where to count.
pub struct Recent {
    last: Cell<Option<&'static Entry>>,
    last_number: Cell<u32>,
    numbers: [Cell<u32>; RECENT],
    entries: [Cell<Option<&'static Entry>>; RECENT],
}

/// Whether the lock of this number has its entry at this place of its page. If not, a signal's handler has used another
/// lock between two steps here.
#[inline(always)]
fn is_place_of(entry: &Entry, number: u32) -> bool {
    let place = ptr::from_ref(entry).addr() / size_of::<Entry>();
    place % ENTRIES == number as usize % ENTRIES
}

/// A power of two. A thread of a large library has dozens of locks in hand; more would not leave room in the words of a
/// thread for a library that is loaded later.
const RECENT: usize = 64;

impl Recent {
    const fn new() -> Recent {
        Recent {
            last: Cell::new(None),
            last_number: Cell::new(0),
            numbers: [const { Cell::new(0) }; RECENT],
            entries: [const { Cell::new(None) }; RECENT],
        }
    }

    #[inline(always)]
    fn last(&self, number: u32) -> Option<&'static Entry> {
        if self.last_number.get() != number {
            return None;
        }
        self.last.get().filter(|entry| is_place_of(entry, number))
    }

    /// The entry of the lock of this number, if it is there, for callers to whom a look at the very last pays.
    #[inline(always)]
    pub fn last_or_recent(&self, number: u32) -> Option<&'static Entry> {
        self.last(number).or_else(|| self.find(number))
    }

    /// The entry of the lock of this number, if it is there; it becomes the very last.
    #[inline]
    pub fn find(&self, number: u32) -> Option<&'static Entry> {
        let at = number as usize % RECENT;
        let found = if self.numbers[at].get() == number { self.entries[at].get() } else { None };
        self.last_number.set(number);
        self.last.set(found);
        found
    }

    /// The entry of the lock of this number is this.
    pub fn keep(&self, number: u32, entry: &'static Entry) {
        let at = number as usize % RECENT;
        self.numbers[at].set(number);
        self.entries[at].set(Some(entry));
    }

    /// None is known any more.
    pub fn forget(&self) {
        // A lock that has no number yet has 0, too: it must not find anything under that.
        self.last_number.set(0);
        self.last.set(None);
        self.numbers.iter().for_each(|number| number.set(0));
        self.entries.iter().for_each(|entry| entry.set(None));
    }
}

/// Where a thread writes its next record, and what it needs for that: see [`recorder`](crate::recorder).
pub struct Position {
    pub(crate) page: Cell<Option<&'static Records>>,
    /// Records on the page.
    pub(crate) used: Cell<u32>,
    /// The window that it records; 0: none.
    pub(crate) window: Cell<u32>,
    /// When its last record ended, ticks.
    pub(crate) ended: Cell<u64>,
    /// When it looked last, ticks.
    pub(crate) looked: Cell<u64>,
    /// Its context switches then.
    pub(crate) switches: Cell<u64>,
    /// It has waited in the operation that goes on.
    pub(crate) waited: Cell<bool>,
    /// When it began to record in this window, ticks.
    pub(crate) began: Cell<u64>,
    /// Pages that it has filled since.
    pub(crate) filled: Cell<u32>,
}

impl Position {
    const fn new() -> Position {
        Position {
            page: Cell::new(None),
            used: Cell::new(0),
            window: Cell::new(0),
            ended: Cell::new(0),
            looked: Cell::new(0),
            switches: Cell::new(0),
            waited: Cell::new(false),
            began: Cell::new(0),
            filled: Cell::new(0),
        }
    }

    /// The thread has ended, or is another one now.
    pub fn forget(&self) {
        self.page.set(None);
        self.used.set(0);
        self.window.set(0);
        self.filled.set(0);
    }

    /// The operation that goes on has to wait.
    pub fn waits(&self) {
        self.waited.set(true);
    }
}

// ---- locks ----

/// How a lock came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was initialised here.
    Initialised,
    /// It was used here for the first time.
    Used,
}

/// Gives the lock at this address a place in the table of locks, with the place of the caller. Returns its number, which is
/// [`OTHERS`] if there is no room. `kind` and `is_shared` are as in [`layout::Lock`].
#[cold]
pub fn new_lock(
    map: &Map,
    thread: &ThisThread,
    address: *const (),
    origin: Origin,
    kind: u32,
    is_shared: bool,
) -> u32 {
    let Some(number) = map.new_place::<layout::Lock>(&map.header().locks, LOCKS_AT, LOCKS) else {
        return OTHERS;
    };
    let lock = &map.locks()[number as usize];
    lock.since.store(monotonic_ns(), Relaxed);
    lock.kind.store(kind, Relaxed);
    lock.is_shared.store(is_shared.into(), Relaxed);
    // SAFETY: a plain call.
    lock.made_by[0].store(unsafe { libc::getpid() } as u32, Relaxed);
    lock.made_by[1].store(thread.tid(), Relaxed);
    let place = stacks::place(map, &Frames::here()).map_or(0, |place| place + 1);
    match origin {
        Origin::Initialised => lock.initialised_at.store(place, Relaxed),
        Origin::Used => lock.first_used_at.store(place, Relaxed),
    }
    // Release pairs with the Acquire of the snapshot.
    lock.address.store(address.addr() as u64, Release);
    number
}

/// Keeps a lock's number in this word, which is 0 before: `new`, or the one that another thread was faster to give to it.
/// Then the place of `new` stays empty.
pub fn keep_number(map: &Map, word: &AtomicU32, new: u32) -> u32 {
    match word.compare_exchange(0, new, Relaxed, Relaxed) {
        Ok(_) => new,
        Err(found) => {
            if new != OTHERS {
                map.locks()[new as usize].address.store(0, Relaxed);
            }
            found
        }
    }
}

/// The lock of this number is destroyed, if it has a place of its own.
pub fn lock_ends(map: &Map, number: u32) {
    if number > OTHERS && number < LOCKS as u32 {
        map.locks()[number as usize].destroyed.store(monotonic_ns(), Relaxed);
    }
}

// ---- threads ----

#[cold]
fn new_thread(map: &Map, thread: &ThisThread) -> Option<u32> {
    let page = ended_thread(map).or_else(|| {
        let place = map.new_place::<u32>(&map.header().threads, THREADS_AT, THREADS)?;
        let page = map.new_page()?;
        map.threads()[place as usize].store(page, Release);
        Some(page)
    });
    let Some(page) = page else {
        if !thread.has_ended.get() {
            map.header().uncounted_threads.fetch_add(1, Relaxed);
        }
        return None;
    };
    let counts = map.thread(page)?;
    store_name(&counts.name);
    counts.tid.store(thread.tid(), Relaxed);
    // SAFETY: a plain call.
    let pid = unsafe { libc::getpid() } as u32;
    counts.pid.store(pid, Relaxed);
    if pid != map.header().pid.load(Relaxed) {
        map.header().is_shared_by_fork.store(1, Relaxed);
    }
    counts.lives.store(counts.lives.load(Relaxed).wrapping_add(1), Relaxed);
    thread.page.set(page);
    if let Some(process) = process() {
        (process.thread_comes)(thread);
    }
    Some(page)
}

/// The calling thread's.
pub(crate) fn store_name(places: &[AtomicU64; 2]) {
    let mut name = [0u8; 16];
    // SAFETY: sixteen bytes, as many as the call writes.
    keeping_errno(|| unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) });
    for (place, half) in places.iter().zip(name.chunks_exact(8)) {
        place.store(u64::from_ne_bytes(half.try_into().expect("eight bytes")), Relaxed);
    }
}

const ONE_TAKEN: u64 = 1 << 32;

/// The place of a thread that has ended.
fn ended_thread(map: &Map) -> Option<u32> {
    let list = &map.header().ended_threads;
    // Acquire pairs with the Release in `thread_ends`.
    let mut head = list.load(Acquire);
    loop {
        let page = head as u32;
        // None at 0, the end of the list.
        let next = map.thread(page)?.next_ended.load(Relaxed);
        let rest = (head & !(ONE_TAKEN - 1)).wrapping_add(ONE_TAKEN) | u64::from(next);
        match list.compare_exchange_weak(head, rest, Acquire, Acquire) {
            Ok(_) => return Some(page),
            Err(found) => head = found,
        }
    }
}

/// The thread has come to its end: another may go on in its place, unless it holds a lock, which
/// nobody could tell from what the other holds then.
pub fn thread_ends(thread: &ThisThread) {
    thread.counts_again();
    thread.uncounted.forget();
    let page = thread.page.replace(0);
    thread.measured.set(0);
    thread.recent.forget();
    thread.recording.forget();
    let Some(map) = map() else { return };
    let Some(counts) = map.thread(page) else { return };
    let turn = counts.waiting.turn.load(Relaxed);
    // It left a wait without coming back from it.
    counts.waiting.turn.store(turn.wrapping_add(turn % 2), Relaxed);
    if holds_any(map, counts) {
        return counts.left_holds.store(1, Relaxed);
    }
    counts.tid.store(0, Relaxed);
    let list = &map.header().ended_threads;
    let mut head = list.load(Relaxed);
    loop {
        counts.next_ended.store(head as u32, Relaxed);
        let first = head & !(ONE_TAKEN - 1) | u64::from(page);
        // Release pairs with the Acquire in `ended_thread`: what this thread counted.
        match list.compare_exchange_weak(head, first, Release, Relaxed) {
            Ok(_) => return,
            Err(found) => head = found,
        }
    }
}

/// Whether a thread has acquired some lock more often than it released it.
fn holds_any(map: &Map, thread: &layout::Thread) -> bool {
    let pages = thread.pages.iter().filter_map(|page| map.entries(page.load(Relaxed)));
    let holds = |entry: &Entry| {
        let acquired = entry.acquired.iter().map(|count| count.load(Relaxed) as u32);
        let released = entry.released.iter().map(|count| count.load(Relaxed));
        acquired.zip(released).any(|(acquired, released)| acquired != released)
    };
    pages.flatten().any(holds)
}

/// The process exits in order. The thread that does so stays in the file as it is: it may hold what
/// others wait for. A process that was forked off has no file of its own, and leaves its place.
pub fn process_ends(thread: &ThisThread) {
    let Some(header) = map().map(Map::header) else { return };
    thread.counts_again();
    // SAFETY: a plain call.
    if header.pid.load(Relaxed) == unsafe { libc::getpid() } as u32 {
        header.ended.store(monotonic_ns(), Relaxed);
    } else {
        thread_ends(thread);
    }
}

/// The calling thread's context switches, involuntary ones in the upper half.
pub fn switches() -> u64 {
    // SAFETY: zero is a value of it.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: `usage` lives.
    keeping_errno(|| unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) });
    (usage.ru_nivcsw as u64) << 32 | usage.ru_nvcsw as u64 & 0xffff_ffff
}

/// Calls what may change `errno`, which is the program's.
pub fn keeping_errno<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: this thread's own, which is always there.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: this thread's own, which is always there.
    let before = unsafe { errno.read() };
    let result = body();
    // SAFETY: this thread's own, which is always there.
    unsafe { errno.write(before) };
    result
}

/// To standard error, without an allocation.
pub fn say(parts: &[&[u8]]) {
    for part in parts {
        // SAFETY: the bytes live. What cannot be written is not said.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_signals_handler_used_last_is_not_taken_for_another_lock() {
        let page: &[Entry; ENTRIES] =
            Box::leak(Box::new(std::array::from_fn(|_| Entry::default())));
        let recent = Recent::new();
        let place =
            |number: u32| (page.as_ptr().addr() / size_of::<Entry>() + number as usize) % ENTRIES;
        // As in a page of the file, which begins at a multiple of its size.
        let first = (ENTRIES - place(0)) % ENTRIES;
        let entry = |number: usize| &page[(first + number) % ENTRIES];
        [5, 6].into_iter().for_each(|number| recent.keep(number, entry(number as usize)));
        assert!(recent.find(5).is_some_and(|found| ptr::eq(found, entry(5))));
        // The handler came before the first of two words was read or written.
        recent.last.set(Some(entry(6)));
        assert!(recent.last(5).is_none());
        assert!(recent.last_or_recent(5).is_some_and(|found| ptr::eq(found, entry(5))));
    }
}
