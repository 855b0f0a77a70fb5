//! The storm goes from lock to lock, for a few seconds at a time. In each *visit* a new lock meets
//! many *gusts*: threads do random operations on it, of all kinds and with random timeouts and
//! stays, and rest in between. Meanwhile, by the gust's plan (`plan.rs`),
//! * threads are stopped for up to 20 ms, by signals and after a random number of instructions in a
//!   lock or an unlock (`stops.rs`);
//! * they have different priorities, one may be real-time, and all may be on one CPU;
//! * threads end, and use the lock to the very end, in destructors of thread-local variables;
//!   others take their seats;
//! * threads fork, and children use locks (`children.rs`).
//!
//! It is checked that
//! * what the lock protects is never torn, and no write is lost (`protected.rs`);
//! * after each gust all threads come to rest. Nobody comes along who could wake those that
//!   were forgotten, so a lost wake-up shows;
//! * nobody is passed for longer than the lock promises (`bounds.rs`).

pub mod bounds;
pub mod children;
pub mod clock;
pub mod plan;
pub mod protected;
pub mod seats;
pub mod stops;
pub mod subjects;
pub mod visitor;
mod watch;
mod worker;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bounds::{Amount, Promise};
use clock::{now, show};
use subjects::Kind;
use watch::Watch;

/// What is to be done.
pub struct Settings {
    pub duration: Duration,
    /// How long one lock is used that is to learn about its users.
    pub visit: Duration,
    /// After each of these so many locks follow that know nothing yet, for a tenth of that each.
    pub short_visits: u64,
    pub longest_gust: Duration,
    pub subjects: Vec<&'static Kind>,
    pub seed: u64,
    /// Bounds are looked at.
    pub judges: bool,
    pub keeps_going: bool,
    /// Threads that have not come to rest after so long hang.
    pub hang_after: Duration,
}

/// What is known about a kind of lock after some visits.
#[derive(Default, Clone)]
pub struct Tally {
    pub gusts: u64,
    pub operations: u64,
    /// By side: shared, exclusive.
    pub longest_wait: [u64; 2],
    pub longest_bypass: [Option<(Amount, Amount)>; 2],
    pub broken: u64,
    pub stops: u64,
    pub deaths: u64,
    pub forks: u64,
}

/// Locks under `TimeFair` are visited so often for each visit of another.
const ROUNDS_OF_TIME_FAIR: u64 = 3;

/// Where the storm is, for whoever fails.
static WHERE: Mutex<String> = Mutex::new(String::new());

/// Says what went wrong and ends the process.
pub fn fail(what: &str) -> ! {
    static FAILED: AtomicBool = AtomicBool::new(false);
    if FAILED.swap(true, Relaxed) {
        // Another thread is saying it.
        loop {
            stops::sleep(clock::SECOND);
        }
    }
    let place = WHERE.try_lock().map(|place| place.clone()).unwrap_or_default();
    eprintln!("\n{place}\nFAILED: {what}");
    // SAFETY: ends the process. Threads that wait for ever must not be asked for anything.
    unsafe { libc::_exit(1) }
}

/// A number for a name.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The whole storm. Prints a table of what was seen.
pub fn run(settings: &Settings) -> ExitCode {
    stops::install();
    let began = now();
    let ends = began + settings.duration.as_nanos() as u64;
    let mut tallies = vec![Tally::default(); settings.subjects.len()];
    let mut watch = Watch::new(settings);
    let mut visit = 0;
    'storm: loop {
        for (kind, tally) in settings.subjects.iter().zip(&mut tallies) {
            if visit > 0 && now() >= ends {
                break 'storm;
            }
            // The default policy is the one with the most to it.
            if kind.promise != Promise::TimeFair && visit % ROUNDS_OF_TIME_FAIR != 0 {
                continue;
            }
            let visits = settings.short_visits + 1;
            for number in visit * visits..(visit + 1) * visits {
                let length = match number % visits {
                    0 => settings.visit,
                    _ => settings.visit / 10,
                };
                watch.visit(kind, number, length, began, tally);
            }
            println!("{:>9}  {}", show(now() - began), kind.name);
        }
        visit += 1;
        if now() >= ends {
            break;
        }
    }
    report(settings, &tallies, began);
    let broken: u64 = tallies.iter().map(|tally| tally.broken).sum();
    if broken > 0 {
        println!("{broken} bounds were broken");
        return ExitCode::FAILURE;
    }
    println!("nothing went wrong");
    ExitCode::SUCCESS
}

fn report(settings: &Settings, tallies: &[Tally], began: u64) {
    println!(
        "after {}, {} children; longest of each:",
        show(now() - began),
        children::CHILDREN.load(Relaxed)
    );
    println!(
        "{:20} {:>6} {:>11} {:>9} {:>9} {:>22} {:>22} {:>8} {:>6} {:>6}",
        "lock",
        "gusts",
        "operations",
        "read",
        "write",
        "reader passed (bound)",
        "writer passed (bound)",
        "stops",
        "deaths",
        "forks"
    );
    for (kind, tally) in settings.subjects.iter().zip(tallies) {
        let bypass = |side: usize| match tally.longest_bypass[side] {
            Some((bypass, bound)) => format!("{bypass} ({bound})"),
            None => "-".into(),
        };
        println!(
            "{:20} {:>6} {:>11} {:>9} {:>9} {:>22} {:>22} {:>8} {:>6} {:>6}",
            kind.name,
            tally.gusts,
            tally.operations,
            show(tally.longest_wait[0]),
            show(tally.longest_wait[1]),
            bypass(0),
            bypass(1),
            tally.stops,
            tally.deaths,
            tally.forks
        );
    }
}
