//! What an `AtomicFile` costs beside the bare system calls: 4 KiB reads and writes of a file in the
//! page cache, at places of each thread's own.
//!
//! Both are measured by turns, and compared within each turn: what else the machine does changes
//! more slowly than that.
//!
//! `cargo run --release -p fairlock-io --example overhead -- [ROUNDS] [DIRECTORY]`

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use fairlock_io::AtomicFile;

const BLOCK: usize = 4096;
/// Of each thread.
const BLOCKS: u64 = 256;
/// Of each thread in each turn: some milliseconds, which drown what starting takes.
const OPERATIONS: u64 = 8_192;
const DEFAULT_ROUNDS: usize = 60;
/// Of the rounds, to learn how far their median can be trusted.
const RESAMPLES: usize = 2_000;

/// A way to do one operation.
type Operate<'a> = &'a (dyn Fn(&mut [u8], u64) + Sync);

/// The time of one operation of each thread, in nanoseconds.
fn time(threads: u64, operate: Operate<'_>) -> f64 {
    let barrier = Barrier::new(threads as usize);
    let work = |thread: u64| {
        let mut buffer = [1; BLOCK];
        barrier.wait();
        let started = Instant::now();
        for operation in 0..OPERATIONS {
            let block = thread * BLOCKS + operation % BLOCKS;
            operate(&mut buffer, block * BLOCK as u64);
        }
        started.elapsed().as_nanos() as f64 / OPERATIONS as f64
    };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let times = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        times.fold(0.0, f64::max)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

/// Between which values the median of 95 % of the resamples lies.
fn interval(values: &[f64]) -> (f64, f64) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut pick = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        values[((state >> 11) % values.len() as u64) as usize]
    };
    let mut medians: Vec<f64> =
        (0..RESAMPLES).map(|_| median(values.iter().map(|_| pick()).collect())).collect();
    medians.sort_by(f64::total_cmp);
    (medians[RESAMPLES / 40], medians[RESAMPLES - 1 - RESAMPLES / 40])
}

/// Prints one line.
fn compare(name: &str, threads: u64, rounds: usize, bare: Operate<'_>, atomic: Operate<'_>) {
    let (mut of_bare, mut of_atomic, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // Neither is always the first.
        let (one, other) = if round % 2 == 0 {
            let one = time(threads, bare);
            (one, time(threads, atomic))
        } else {
            let other = time(threads, atomic);
            (time(threads, bare), other)
        };
        of_bare.push(one);
        of_atomic.push(other);
        ratios.push(other / one);
    }
    let (from, to) = interval(&ratios);
    println!(
        "{name:<6} {threads:>7} {:>9.0} {:>10.0} {:>7.3}   {from:.3} .. {to:.3}",
        median(of_bare),
        median(of_atomic),
        median(ratios),
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().map_or(Ok(DEFAULT_ROUNDS), |rounds| rounds.parse())?;
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    if rounds == 0 {
        return Err("give at least 1 round".into());
    }
    let directory = tempfile::tempdir_in(directory)?;
    let path = directory.path().join("file");
    let file = AtomicFile::create(&path)?;
    file.write_all_at(&vec![1; 2 * BLOCKS as usize * BLOCK], 0)?;
    let plain = File::options().read(true).write(true).open(&path)?;

    println!(
        "{BLOCK} bytes in the page cache, {rounds} rounds, medians; ratio of times with 95 % interval"
    );
    println!("{:<6} {:>7} {:>9} {:>10} {:>7}", "what", "threads", "bare ns", "atomic ns", "ratio");
    for threads in [1, 2] {
        compare(
            "read",
            threads,
            rounds,
            &|buffer, offset| assert_eq!(plain.read_at(buffer, offset).expect("read"), BLOCK),
            &|buffer, offset| assert_eq!(file.read_at(buffer, offset).expect("read"), BLOCK),
        );
    }
    for threads in [1, 2] {
        compare(
            "write",
            threads,
            rounds,
            &|buffer, offset| assert_eq!(plain.write_at(buffer, offset).expect("written"), BLOCK),
            &|buffer, offset| file.write_all_at(buffer, offset).expect("written"),
        );
    }
    Ok(())
}
