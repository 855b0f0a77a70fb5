//! What a hot backup costs an appender: how long appends take with and without one being made beside them.
//!
//! A log is filled, then appended to in rounds: in turn alone, beside checkpoints that are made one after the
//! other in the same file system, and, if a directory on another is named, beside checkpoints that are made there. It
//! prints the medians over the rounds.
//!
//! ```sh
//! cargo run --release -p fairlock-io --example log_backup_figures -- DIRECTORY [DIRECTORY ELSEWHERE]
//! ```

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlock_io::{LogError, LogFile, LogOptions};

/// Before the first round: four segments are full.
const FILLED: u64 = 300 << 20;
const ROUNDS: usize = 9;
const APPENDS: usize = 2_000;
const RECORD: usize = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let places: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let directory = places.first().ok_or("which directory?")?;
    let path = directory.join("log-backup-figures");
    let _ = fs::remove_dir_all(&path);
    let outcome = measure(&path, &places);
    let _ = fs::remove_dir_all(&path);
    outcome
}

fn measure(path: &Path, places: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let log = LogOptions::new().open(path)?;
    let block = vec![7; 1 << 20];
    while log.committed().get() < FILLED {
        log.append(&block)?;
    }
    let cases: Vec<Option<PathBuf>> = [None]
        .into_iter()
        .chain(places.iter().map(|place| Some(place.join("log-backup-figures-copy"))))
        .collect();
    let mut found: Vec<Vec<Round>> = cases.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (case, rounds) in cases.iter().zip(&mut found) {
            rounds.push(round(&log, case.as_deref())?);
        }
    }
    println!("appends of {RECORD} bytes, {ROUNDS} rounds of {APPENDS} each, medians:");
    for (case, rounds) in cases.iter().zip(&found) {
        let median = |of: fn(&Round) -> u64| {
            let mut values: Vec<u64> = rounds.iter().map(of).collect();
            values.sort_unstable();
            values[values.len() / 2]
        };
        println!(
            "  {}: p50 {:.1?}, p99 {:.1?}; {} backups a round, each {:.1?}, {} MiB linked, {} MiB copied",
            case.as_ref().map_or("alone".to_owned(), |copy| format!("beside {}", copy.display())),
            Duration::from_nanos(median(|it| it.p50)),
            Duration::from_nanos(median(|it| it.p99)),
            median(|it| it.backups),
            Duration::from_nanos(median(|it| it.backup_ns)),
            median(|it| it.linked) >> 20,
            median(|it| it.copied) >> 20,
        );
    }
    log.close()?;
    Ok(())
}

/// Times in nanoseconds.
#[derive(Default)]
struct Round {
    p50: u64,
    p99: u64,
    backups: u64,
    /// Each, on average.
    backup_ns: u64,
    /// By the last backup.
    linked: u64,
    copied: u64,
}

fn round(log: &LogFile, copy: Option<&Path>) -> Result<Round, LogError> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let backing_up = copy.map(|copy| scope.spawn(|| back_up(log, copy, &is_over)));
        let appended = append(log);
        is_over.store(true, Ordering::Relaxed);
        let backed_up = match backing_up {
            Some(thread) => thread.join().expect("it does not panic")?,
            None => Round::default(),
        };
        let (p50, p99) = appended?;
        Ok(Round { p50, p99, ..backed_up })
    })
}

fn append(log: &LogFile) -> Result<(u64, u64), LogError> {
    let record = [7; RECORD];
    let mut times = Vec::with_capacity(APPENDS);
    for _ in 0..APPENDS {
        let begin = Instant::now();
        log.append(&record)?;
        times.push(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    times.sort_unstable();
    Ok((times[APPENDS / 2], times[APPENDS * 99 / 100]))
}

/// Makes one backup after the other.
fn back_up(log: &LogFile, copy: &Path, is_over: &AtomicBool) -> Result<Round, LogError> {
    let mut made = Round::default();
    let mut time = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let _ = fs::remove_dir_all(copy);
        let begin = Instant::now();
        let checkpoint = log.checkpoint(copy)?;
        time += begin.elapsed();
        made.backups += 1;
        (made.linked, made.copied) = (checkpoint.linked_bytes, checkpoint.copied_bytes);
    }
    let _ = fs::remove_dir_all(copy);
    let each = time.as_nanos() / u128::from(made.backups.max(1));
    Ok(Round { backup_ns: u64::try_from(each).unwrap_or(u64::MAX), ..made })
}
