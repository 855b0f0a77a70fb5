//! What it costs a program to be counted, and to be recorded: whole runs, interleaved, against those without the
//! drop-in.
//!
//! ```sh
//! cargo build --release -p fairlock-pthread
//! cargo run --release -p fairlock-trace --example recording_overhead -- 9 ./program arguments
//! ```
//! The first argument is the number of rounds. The program's output is thrown away. Where others use the CPUs, too, the
//! CPU time says more than the time by the clock.

use std::error::Error;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fairlock_report::row::Estimate;
use fairlock_report::statistics::estimate;
use fairlock_trace::comparison::order;
use fairlock_trace::counts::Counts;
use fairlock_trace::library;
use fairlock_trace::recorded::Windows;

/// How a run is looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Noted {
    Nothing,
    Counts,
    Records,
}

/// A lock by name, none for the program as it is.
type Side = (Option<&'static str>, Noted);

const SIDES: [Side; 7] = [
    (None, Noted::Nothing),
    (Some("rwsem"), Noted::Nothing),
    (Some("rwsem"), Noted::Counts),
    (Some("rwsem"), Noted::Records),
    (Some("glibc"), Noted::Nothing),
    (Some("glibc"), Noted::Counts),
    (Some("glibc"), Noted::Records),
];

/// CPU time of all children so far, s.
fn cpu_seconds() -> f64 {
    // SAFETY: plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` lives.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    [usage.ru_utime, usage.ru_stime]
        .iter()
        .map(|time| time.tv_sec as f64 + time.tv_usec as f64 / 1e6)
        .sum()
}

/// Seconds by the clock and on CPUs, and operations in the records.
fn run(command: &[String], (lock, noted): Side) -> Result<[f64; 3], Box<dyn Error>> {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]).stdout(Stdio::null()).stderr(Stdio::null());
    let counts = Counts::create()?;
    let mut windows = Windows::new(&counts);
    if let Some(lock) = lock {
        child.env("LD_PRELOAD", library::find()?).env("FAIRLOCK_LOCK", lock);
    }
    if noted != Noted::Nothing {
        child.env("FAIRLOCK_COUNTS", counts.path());
    }
    if noted == Noted::Records {
        child.env("FAIRLOCK_RECORD", "1");
    }
    let (cpu, began) = (cpu_seconds(), Instant::now());
    let mut child = child.spawn()?;
    let has_ended = AtomicBool::new(false);
    let status = std::thread::scope(|scope| {
        let ticks = scope.spawn(|| {
            while noted == Noted::Records && !has_ended.load(Relaxed) {
                windows.tick();
                std::thread::park_timeout(Duration::from_millis(50));
            }
        });
        let status = child.wait();
        has_ended.store(true, Relaxed);
        ticks.thread().unpark();
        status
    })?;
    let seconds = began.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("{}: {status}", command.join(" ")).into());
    }
    let threads = windows.read()?.processes.into_iter().flat_map(|process| process.threads);
    let steps = threads.flat_map(|thread| thread.windows).map(|window| window.steps.len());
    Ok([seconds, cpu_seconds() - cpu, steps.sum::<usize>() as f64])
}

fn shown(Estimate { median, low, high }: Estimate) -> String {
    format!("{median:.3} [{low:.3}, {high:.3}]")
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: u32 = arguments.next().ok_or("how many rounds?")?.parse()?;
    let command: Vec<String> = arguments.collect();
    if command.is_empty() {
        return Err("which program?".into());
    }
    let mut found: Vec<Vec<[f64; 3]>> = vec![Vec::new(); SIDES.len()];
    for round in 0..rounds {
        for side in order(SIDES.len(), round) {
            found[side].push(run(&command, SIDES[side])?);
        }
    }
    println!("{rounds} rounds: medians, and over the same round without the drop-in\n");
    println!("{:16} {:>8} {:>22} {:>8} {:>22} {:>9}", "", "s", "over", "CPU s", "over", "steps");
    for (side, (lock, noted)) in SIDES.iter().enumerate() {
        let name = match noted {
            Noted::Nothing => lock.unwrap_or("none").to_owned(),
            Noted::Counts => format!("{}+counts", lock.unwrap_or_default()),
            Noted::Records => format!("{}+records", lock.unwrap_or_default()),
        };
        let median = |which: usize| {
            let mine: Vec<f64> = found[side].iter().map(|round| round[which]).collect();
            estimate(&mine).median
        };
        let over = |which: usize| {
            let rounds = found[side].iter().zip(&found[0]);
            let ratios: Vec<f64> = rounds.map(|(mine, none)| mine[which] / none[which]).collect();
            shown(estimate(&ratios))
        };
        let [seconds, cpu, steps] = [0, 1, 2].map(median);
        let (seconds_over, cpu_over) = (over(0), over(1));
        println!("{name:16} {seconds:8.3} {seconds_over:>22} {cpu:8.3} {cpu_over:>22} {steps:9}");
    }
    Ok(())
}
