//! A child process that appends, and a parent that kills it and reads what is left.
//!
//! Each thread of the child numbers its records from where the parent says on. After each acknowledgement
//! it stores the number of its last acknowledged record, and its position, in a page that both map: that
//! outlives the kill.

use std::collections::HashSet;
use std::env;
use std::error::Error;
use std::fmt;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_io::{LogError, LogOptions, LogReader, Position, Prewrite, SyncPolicy};
use fastrand::Rng;

use crate::numbered_records::{record, source_of};

const THREADS: usize = 3;
const SEGMENT_BYTES: u64 = 256 << 10;
/// What a child keeps behind the end, bytes: the rest is given up.
const KEPT: u64 = 3 * SEGMENT_BYTES;
/// No child takes as long to open the log, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(300);
const DIRECTORY: &str = "FAIRLOCK_LOG_KILLS";
const SEED: &str = "FAIRLOCK_LOG_KILLS_SEED";

/// Of each thread: the number of the last record that it began, of the last that was acknowledged and its
/// position, and how many were.
const BEGUN: usize = 0;
const ACKNOWLEDGED: usize = 1;
const POSITION: usize = 2;
const COUNT: usize = 3;
const WORDS: usize = 8;
/// Behind those of all threads.
const TRUNCATED: usize = THREADS * WORDS;
const RECYCLED: usize = TRUNCATED + 1;
const TORN: usize = TRUNCATED + 2;
const FAILED: usize = TRUNCATED + 3;
const READY: usize = TRUNCATED + 4;

/// What happened, in numbers. Whatever is lost or doubled is an error at once.
#[derive(Debug, Default)]
pub struct Figures {
    kills: u64,
    killed_while_opening: u64,
    acknowledged: u64,
    read_back: u64,
    unacknowledged: u64,
    torn: u64,
    recycled: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "kills                      {:>9}", self.kills)?;
        writeln!(f, "  while it opened the log  {:>9}", self.killed_while_opening)?;
        writeln!(f, "records acknowledged       {:>9}", self.acknowledged)?;
        writeln!(f, "records read back          {:>9}", self.read_back)?;
        writeln!(f, "  not acknowledged         {:>9}", self.unacknowledged)?;
        writeln!(f, "acknowledged and lost      {:>9}", 0)?;
        writeln!(f, "read twice                 {:>9}", 0)?;
        writeln!(f, "torn tails                 {:>9}", self.torn)?;
        write!(f, "segments used again        {:>9}", self.recycled)
    }
}

/// A page that the child shares with its parent.
struct Shared(*const [AtomicU64; 512]);

// SAFETY: the page consists of atomic words, and stays mapped.
unsafe impl Send for Shared {}
// SAFETY: the page consists of atomic words, and stays mapped.
unsafe impl Sync for Shared {}

impl Shared {
    fn of(path: &Path) -> std::io::Result<Shared> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len(4096)?;
        // SAFETY: a new mapping, of a file that is long enough; it stays until the process ends.
        let page = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), 4096, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        match page == libc::MAP_FAILED {
            true => Err(std::io::Error::last_os_error()),
            false => Ok(Shared(page.cast())),
        }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: mapped for ever.
        unsafe { &(&*self.0)[at] }
    }

    fn of_thread(&self, thread: usize, what: usize) -> &AtomicU64 {
        self.word(thread * WORDS + what)
    }
}

pub fn is_child() -> bool {
    env::var_os(DIRECTORY).is_some()
}

/// The child: opens the log, checks nothing, appends until it is killed.
pub fn append_until_killed() -> Result<(), Box<dyn Error>> {
    let directory = env::var_os(DIRECTORY).ok_or("no directory")?;
    let directory = Path::new(&directory);
    let mut random = Rng::with_seed(env::var(SEED)?.parse()?);
    let shared = &Shared::of(&directory.join("page"))?;
    let policies = [
        SyncPolicy::EveryCommit,
        SyncPolicy::Interval(Duration::from_millis(1)),
        SyncPolicy::Never,
    ];
    let log = &LogOptions::new()
        .segment_bytes(SEGMENT_BYTES)
        .batch_bytes([4096, 65536][random.usize(..2)])
        .sync(policies[random.usize(..3)])
        .prewrite([Prewrite::Always, Prewrite::Always, Prewrite::Never][random.usize(..3)])
        .open(directory.join("log"))
        .inspect_err(|error| {
            eprintln!("{error}");
            shared.word(FAILED).store(1, Release);
        })?;
    shared.word(TORN).fetch_add(u64::from(log.recovery().torn.is_some()), Release);
    shared.word(READY).store(1, Release);
    // Now and then it is closed, and killed while it is.
    let closes = random.u32(..8) == 0;
    let most = if closes { random.u64(1..40) } else { u64::MAX };
    let append = |thread: usize| {
        let mut number = shared.of_thread(thread, BEGUN).load(Acquire);
        let mut count = 0;
        let mut recycled = 0;
        while count < most {
            count += 1;
            number += 1;
            shared.of_thread(thread, BEGUN).store(number, Release);
            let position = log.append(&record(thread as u64, number))?.get();
            shared.of_thread(thread, POSITION).store(position, Release);
            shared.of_thread(thread, ACKNOWLEDGED).store(number, Release);
            shared.of_thread(thread, COUNT).fetch_add(1, Release);
            if thread == 0 && log.first().get() + 2 * KEPT < position {
                // A record's position, not just any: the last that another thread appended.
                let other = shared.of_thread(1, POSITION).load(Acquire);
                if other < position && position - other < KEPT {
                    // What may be given up is told before.
                    shared.word(TRUNCATED).store(other, Release);
                    log.truncate_before(Position::new(other))?;
                }
                let now = log.stats().recycled_segments;
                shared.word(RECYCLED).fetch_add(now - recycled, Release);
                recycled = now;
            }
        }
        Ok::<(), LogError>(())
    };
    let append = &append;
    let failed: Result<(), LogError> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || append(thread))).collect();
        threads.into_iter().try_for_each(|it| it.join().expect("it does not panic"))
    });
    if let Err(error) = failed {
        eprintln!("{error}");
        shared.word(FAILED).store(1, Release);
    }
    Ok(())
}

/// Kills children so many times; fails if a record was lost, doubled or changed.
pub fn kill(directory: &Path, kills: u64, arguments: &[&str]) -> Result<Figures, Box<dyn Error>> {
    let program = env::current_exe()?;
    let shared = Shared::of(&directory.join("page"))?;
    let mut figures = Figures::default();
    let mut random = Rng::with_seed(kills);
    let mut unknown: [HashSet<u64>; THREADS] = Default::default();
    for kill in 0..kills {
        shared.word(READY).store(0, Release);
        let mut child = Command::new(&program)
            .args(arguments)
            .env(DIRECTORY, directory)
            .env(SEED, kill.to_string())
            .stdout(Stdio::null())
            .spawn()?;
        // From before it opens the log until it has filled some segments.
        let most = [2_000, 10_000, 40_000][random.usize(..3)];
        let pause = Duration::from_micros(random.u64(..most));
        if random.u32(..4) > 0 {
            let began = Instant::now();
            while shared.word(READY).load(Acquire) == 0 && child.try_wait()?.is_none() {
                if began.elapsed() > PATIENCE {
                    child.kill()?;
                    child.wait()?;
                    return Err(format!("kill {kill}: the child does not open the log").into());
                }
                thread::sleep(Duration::from_micros(200));
            }
        }
        thread::sleep(pause);
        child.kill()?;
        child.wait()?;
        figures.kills += 1;
        figures.killed_while_opening += u64::from(shared.word(READY).load(Acquire) == 0);
        if shared.word(FAILED).load(Acquire) != 0 {
            return Err(format!("kill {kill}: the child met an error").into());
        }
        for (thread, unknown) in unknown.iter_mut().enumerate() {
            let begun = shared.of_thread(thread, BEGUN).load(Acquire);
            if begun > shared.of_thread(thread, ACKNOWLEDGED).load(Acquire) {
                unknown.insert(begun);
            }
        }
        check(directory, &shared, &unknown, &mut figures)
            .map_err(|error| format!("kill {kill}: {error}"))?;
    }
    figures.acknowledged =
        (0..THREADS).map(|thread| shared.of_thread(thread, COUNT).load(Acquire)).sum();
    figures.torn = shared.word(TORN).load(Acquire);
    figures.recycled = shared.word(RECYCLED).load(Acquire);
    Ok(figures)
}

/// Reads all of the log as the kill left it. What was begun, and not acknowledged when a child was
/// killed, may be there or not.
fn check(
    directory: &Path,
    shared: &Shared,
    unknown: &[HashSet<u64>; THREADS],
    figures: &mut Figures,
) -> Result<(), Box<dyn Error>> {
    let path = directory.join("log");
    if !path.join("control").exists() {
        return Ok(());
    }
    let mut reader = LogReader::open(&path)?;
    let truncated = shared.word(TRUNCATED).load(Acquire);
    if reader.first().get() > truncated.max(4096) {
        return Err(format!("begins at {}, not at {truncated}", reader.first()).into());
    }
    let mut last = [0; THREADS];
    let mut last_position = 0;
    while let Some(record) = reader.next()? {
        let position = record.position.get();
        let Some((thread, number)) = source_of(record.bytes) else {
            return Err(format!("what is at {position} was never appended").into());
        };
        let before = std::mem::replace(&mut last[thread as usize], number);
        let unknown = &unknown[thread as usize];
        if position <= last_position || number <= before {
            return Err(format!("record {number} of {thread} at {position} is there twice").into());
        }
        last_position = position;
        if number > shared.of_thread(thread as usize, BEGUN).load(Acquire) {
            return Err(format!("record {number} of {thread} was not begun").into());
        }
        if before > 0 && (before + 1..number).any(|it| !unknown.contains(&it)) {
            return Err(format!("lost some of {before}..{number} of {thread}").into());
        }
        figures.read_back += 1;
        figures.unacknowledged += u64::from(unknown.contains(&number));
    }
    for (thread, &last) in last.iter().enumerate() {
        let acknowledged = shared.of_thread(thread, ACKNOWLEDGED).load(Acquire);
        let position = shared.of_thread(thread, POSITION).load(Acquire);
        if last < acknowledged && position >= truncated {
            return Err(format!("lost {last}..={acknowledged} of {thread}").into());
        }
    }
    Ok(())
}
