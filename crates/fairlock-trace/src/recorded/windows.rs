//! The times in which running programs record.
//!
//! Nothing is asked of a program: two words of its file say that a window is open, and how much may be written
//! in it. The program closes it then. A window that is not used up stays open. Invariants
//! 1. A window is opened only when the last one is closed, by this process alone.
//! 2. A window may fill a 256th of the pages that are left; up to a 64th if there are many threads, so that each has
//!    some. So there are always pages for the next.
//! 3. The next one does not begin before a 64th of the time that the program has run by then; later by as much as the
//!    window may fill more than a 256th of the pages; and not before [`DISTANCE`]. So however long a program runs, its
//!    recording reaches to its end, and what it costs becomes less with time.
//!
//! Many short windows tell more than a few long ones: a program has phases, of milliseconds often, and which of them a
//! window falls into is chance.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::time::{Duration, Instant};

use fairlock_counts::layout::RECORD_PAGES;
use fairlock_counts::map::monotonic_ns;
use fairlock_counts::record::LOCK_BITS;
use fairlock_counts::recording::{Recording, State};

use super::Recorded;
use crate::counts::Counts;

/// From the beginning of a window to that of the next, at least.
const DISTANCE: Duration = Duration::from_millis(25);
/// New files are looked for so often.
const LOOKS: Duration = Duration::from_millis(50);
/// Pages of a window, at least: four thousand operations.
const FEWEST_PAGES: u32 = 16;
/// For each thread, if there are so many.
const PAGES_OF_THREAD: u32 = 4;
/// Pages of records that are read, at most: as many as one process can have.
const MOST_PAGES: usize = RECORD_PAGES as usize;
/// A window's number, as far as records have it.
const NUMBERS: u32 = (1 << LOCK_BITS) - 1;
/// Processes whose files are looked after, at most.
const MOST_FILES: usize = 1 << 12;

/// Opens windows in all processes that record into a directory.
#[derive(Debug)]
pub struct Windows<'a> {
    counts: &'a Counts,
    /// Files in which windows are opened, and when the next one is due.
    files: HashMap<OsString, Instant>,
    /// Those that are known, also if nothing is to be done there any more.
    known: HashSet<OsString>,
    /// See [`Recorded::opened`].
    opened: HashMap<OsString, Vec<(u32, u64)>>,
    wake_up_ns: Option<u64>,
}

/// What a run's processes recorded.
#[derive(Debug, Default)]
pub struct Run {
    /// Oldest first.
    pub processes: Vec<Recorded>,
    /// Processes that were not looked at, as there was too much in those before.
    pub left_out: usize,
}

impl Windows<'_> {
    /// For the processes that will record here. Sleeps a few times for a moment, to measure how long a wake-up takes:
    /// so it should be called before the program starts.
    pub fn new(counts: &Counts) -> Windows<'_> {
        let (files, known, opened) = Default::default();
        Windows { counts, files, known, opened, wake_up_ns: wake_up_ns() }
    }

    /// Opens the windows that are due, while the program runs, and says when to call this again; takes some
    /// microseconds for each process.
    ///
    /// What goes wrong with a file means that its process is recorded no further.
    pub fn tick(&mut self) -> Instant {
        let now = Instant::now();
        self.tick_at(now, monotonic_ns());
        let due = self.files.values().copied().fold(now + LOOKS, Instant::min);
        due.max(now + DISTANCE / 8)
    }

    /// `now_ns` is the same moment by the clock of the files.
    fn tick_at(&mut self, now: Instant, now_ns: u64) {
        for name in self.counts.names().unwrap_or_default() {
            if self.known.len() < MOST_FILES && self.known.insert(name.clone()) {
                self.files.insert(name, now);
            }
        }
        let (counts, opened) = (self.counts, &mut self.opened);
        self.files.retain(|name, due| {
            if *due <= now {
                let Some(distance) = look_after(counts, name, now_ns, opened) else { return false };
                *due = now + distance;
            }
            true
        });
    }

    /// What all processes recorded up to now. Files that are no counts are left out, and so are processes that recorded
    /// nothing.
    ///
    /// # Errors
    /// Those of readdir(3).
    pub fn read(&self) -> io::Result<Run> {
        let mut run = Run::default();
        let mut pages = MOST_PAGES;
        let mut files: Vec<(u64, OsString)> = Vec::new();
        for name in self.counts.names()? {
            let file = self.counts.open(&name);
            let state = file.and_then(|file| State::read(&file));
            files.extend(state.ok().filter(|it| it.window != 0).map(|state| (state.began, name)));
        }
        files.sort();
        for (_, name) in files {
            if pages == 0 || run.processes.len() >= MOST_FILES {
                run.left_out += 1;
                continue;
            }
            let file = self.counts.open(&name);
            let recording = file.and_then(|file| Recording::read(&file, pages));
            let Ok(Some(recording)) = recording else { continue };
            pages -= recording.pages.min(pages);
            let opened = self.opened.get(&name).cloned().unwrap_or_default();
            let recorded = Recorded { opened, ..Recorded::new(recording, self.wake_up_ns) };
            if !recorded.threads.is_empty() {
                run.processes.push(recorded);
            }
        }
        Ok(run)
    }
}

/// Opens a window in this file, if one may be opened, and notes when. Returns how long to wait for the next; none if there
/// will be none.
fn look_after(
    counts: &Counts,
    name: &OsString,
    now: u64,
    opened: &mut HashMap<OsString, Vec<(u32, u64)>>,
) -> Option<Duration> {
    let file = counts.open_to_write(name).ok()?;
    let state = match State::read(&file) {
        Ok(state) => state,
        // Not complete yet, or no counts at all.
        Err(_) => return Some(DISTANCE),
    };
    let left = RECORD_PAGES.saturating_sub(state.record_pages);
    if state.has_ended || left == 0 {
        return None;
    }
    // 0: it does not record, or has not begun yet. Odd: invariant 1.
    if state.window == 0 || state.window % 2 == 1 {
        return Some(DISTANCE / 2);
    }
    let for_threads = state.threads.saturating_mul(PAGES_OF_THREAD).min(left / 64);
    let pages = (left / 256).max(for_threads).max(FEWEST_PAGES);
    state.open_window(&file, pages).ok()?;
    let number = state.window.wrapping_add(1) & NUMBERS;
    opened.entry(name.clone()).or_default().push((number, now));
    let elapsed = Duration::from_nanos(now.saturating_sub(state.began));
    Some(DISTANCE.max(elapsed.mul_f64(4.0 * f64::from(pages) / f64::from(left))))
}

/// How late a thread of this process wakes up after a short sleep: the median of some.
fn wake_up_ns() -> Option<u64> {
    const SLEEPS: usize = 21;
    const SLEEP: Duration = Duration::from_micros(200);
    let measure = || {
        // SAFETY: of this thread alone, which is new. The kernel would let it sleep 50 µs longer otherwise.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let mut late = [(); SLEEPS].map(|()| {
            let began = Instant::now();
            std::thread::sleep(SLEEP);
            began.elapsed().saturating_sub(SLEEP).as_nanos() as u64
        });
        late.sort_unstable();
        late[SLEEPS / 2]
    };
    std::thread::Builder::new().spawn(measure).ok()?.join().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use fairlock_counts::map::Map;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The process closes its window. Returns how many pages that one had.
    fn close(map: &Map) -> u32 {
        let header = map.header();
        let until = header.recording.until.load(Relaxed);
        let pages = until - header.record_pages.swap(until, Relaxed);
        let window = header.recording.window.load(Relaxed);
        assert_eq!(window % 2, 1, "it was open");
        header.recording.window.store(window + 1, Relaxed);
        pages
    }

    #[test]
    fn a_window_is_opened_when_the_last_one_is_closed_and_its_time_has_come() {
        let counts = Counts::create().expect("a folder");
        let mut windows = Windows::new(&counts);
        let map = Map::create(counts.path(), "rwsem").expect("a file");
        let window = || map.header().recording.window.load(Relaxed);
        let began = Instant::now();
        let mut tick_after =
            |after: Duration| windows.tick_at(began + after, 1 + after.as_nanos() as u64);
        map.header().began.store(1, Relaxed);
        tick_after(Duration::ZERO);
        assert_eq!(window(), 0, "it does not record");
        map.header().recording.window.store(1, Relaxed);
        tick_after(50 * MS);
        assert_eq!(window(), 1, "it is open");
        close(&map);
        tick_after(100 * MS);
        assert_eq!(window(), 3);
        assert_eq!(close(&map), RECORD_PAGES / 256);
        tick_after(124 * MS);
        assert_eq!(window(), 4, "it is too early");
        tick_after(125 * MS);
        assert_eq!(window(), 5);
        let left = RECORD_PAGES - map.header().record_pages.load(Relaxed);
        assert_eq!(close(&map), left / 256);
        map.header().threads.store(50, Relaxed);
        tick_after(200 * MS);
        assert_eq!(close(&map), 50 * PAGES_OF_THREAD, "each thread has some");
        map.header().ended.store(1, Relaxed);
        tick_after(900 * MS);
        assert_eq!(window(), 8, "it has ended");
        let opened: Vec<(u32, u64)> = windows.opened.into_values().flatten().collect();
        assert!(
            matches!(opened[..], [(3, 100_000_001), (5, 125_000_001), (7, 200_000_001)]),
            "{opened:?}"
        );
    }

    #[test]
    fn the_longer_a_program_runs_the_farther_apart_are_its_windows_and_all_of_it_is_covered() {
        [1, 200].into_iter().for_each(all_of_a_day_is_covered);
    }

    fn all_of_a_day_is_covered(threads: u32) {
        let counts = Counts::create().expect("a folder");
        let map = Map::create(counts.path(), "rwsem").expect("a file");
        map.header().recording.window.store(1, Relaxed);
        map.header().threads.store(threads, Relaxed);
        map.header().began.store(1, Relaxed);
        let mut windows = Windows::new(&counts);
        let start = Instant::now();
        let mut elapsed = Duration::ZERO;
        let mut opened = 0;
        // A program that fills each window at once.
        while elapsed < Duration::from_secs(24 * 3600) {
            close(&map);
            windows.tick_at(start + elapsed, 1 + elapsed.as_nanos() as u64);
            let window = map.header().recording.window.load(Relaxed);
            assert_eq!(window % 2, 1, "after {elapsed:?}, {threads} threads");
            opened += 1;
            let left = f64::from(RECORD_PAGES - map.header().record_pages.load(Relaxed));
            let pages = f64::from(map.header().recording.until.load(Relaxed))
                - f64::from(RECORD_PAGES)
                + left;
            // A microsecond for what is rounded.
            elapsed += DISTANCE.max(elapsed.mul_f64(4.0 * pages / left)) + MS / 1000;
        }
        assert!(opened > 100, "{opened} with {threads} threads");
    }

    #[test]
    fn what_is_no_file_of_counts_is_left_alone() {
        let counts = Counts::create().expect("a folder");
        let path = counts.path().join("1-0.counts");
        let size = fairlock_counts::layout::SIZE as u64;
        std::fs::File::create(&path)
            .and_then(|file| file.set_len(size))
            .expect("a writable folder");
        let mut windows = Windows::new(&counts);
        windows.tick();
        let written = std::fs::read(&path).expect("it is there");
        assert!(written.iter().all(|byte| *byte == 0));
        assert!(windows.read().expect("it can be listed").processes.is_empty());
    }
}
