//! What a log costs beside time per append: how long it takes to open after a crash and to read whole, how
//! much room it takes beside its records, and how much memory its process.
//!
//! ```sh
//! cargo run --release -p fairlock-io --example log_figures -- DIRECTORY [GIB]
//! ```

use std::env;
use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use fairlock_io::{LogFile, LogOptions, LogReader, SyncPolicy};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let mut arguments = env::args_os().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("which directory?")?);
    let gibibytes: u64 = match arguments.next() {
        Some(number) => number.to_str().ok_or("a number of GiB")?.parse()?,
        None => 1,
    };
    let path = directory.join("log-figures");
    let outcome = recovery(&path, gibibytes << 30).and_then(|()| room(&path));
    let _ = fs::remove_dir_all(&path);
    outcome?;
    println!("peak memory of this process: {} MiB", peak_memory()? >> 20);
    Ok(())
}

/// A large log is written, left as a crash leaves it, opened again, and read.
fn recovery(path: &Path, size: u64) -> Outcome {
    let _ = fs::remove_dir_all(path);
    let options = LogOptions::new().sync(SyncPolicy::Never);
    let log = options.open(path)?;
    let record = vec![7; 64 << 10];
    let begin = Instant::now();
    while log.committed().get() < size {
        log.append(&record)?;
    }
    println!("written: {} MiB in {:.2?}", size >> 20, begin.elapsed());
    // As a crash: nothing is closed, and nobody is told.
    std::mem::forget(log);
    let crashed = LogReader::open(path)?;
    println!("its end: {}", crashed.committed());
    drop(crashed);
    // A writer that was forgotten still holds the log: a copy of the directory is free.
    let copy = path.with_extension("copy");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir(&copy)?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        fs::copy(entry.path(), copy.join(entry.file_name()))?;
    }
    let outcome = open_and_read(&copy);
    fs::remove_dir_all(&copy)?;
    outcome
}

fn open_and_read(path: &Path) -> Outcome {
    let begin = Instant::now();
    let log = LogFile::open(path)?;
    let found = log.recovery();
    println!(
        "opened after a crash: {:.1?}, {} MiB read, closed before: {}",
        begin.elapsed(),
        found.scanned_bytes >> 20,
        found.was_closed
    );
    let begin = Instant::now();
    let mut reader = log.reader()?.read_bytes(1 << 20);
    let (mut records, mut bytes) = (0_u64, 0_u64);
    while let Some(record) = reader.next()? {
        records += 1;
        bytes += record.bytes.len() as u64;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "read and checked whole: {records} records, {} MiB in {seconds:.2} s, {:.0} MiB/s",
        bytes >> 20,
        bytes as f64 / seconds / f64::from(1 << 20)
    );
    Ok(())
}

/// Bytes on the disk over bytes of records, once the log is closed.
fn room(path: &Path) -> Outcome {
    const BYTES: usize = 16 << 20;
    println!("bytes on disk for each byte of a record:");
    for threads in [1, 16] {
        for size in [100, 1_000, 4_024, 16_000, 100_000] {
            let each = (BYTES / size / threads).min(4_000);
            let _ = fs::remove_dir_all(path);
            let log = LogOptions::new().sync(SyncPolicy::EveryCommit).open(path)?;
            let record = vec![7; size];
            let (log_used, record) = (&log, &record);
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(move || {
                        for _ in 0..each {
                            log_used.append(record).expect("there is room");
                        }
                    });
                }
            });
            let commits = log.stats().commits;
            log.close()?;
            let mut on_disk = 0;
            for entry in fs::read_dir(path)? {
                on_disk += entry?.metadata()?.blocks() * 512;
            }
            let records = each * threads;
            println!(
                "  {threads:2} threads, records of {size:6} bytes: {:6.2} ({:.1} records a commit)",
                on_disk as f64 / (records * size) as f64,
                records as f64 / commits as f64
            );
        }
    }
    Ok(())
}

fn peak_memory() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).ok_or("no peak is told")?;
    let kibibytes: u64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
    Ok(kibibytes << 10)
}
