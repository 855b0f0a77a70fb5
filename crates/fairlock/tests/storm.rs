//! Some moments of the storm under every lock, so that the storm itself keeps working: nothing is
//! torn or lost, and nobody waits for ever. How long somebody is passed is left to the long run
//! (CONTRIBUTING.md).

#![cfg(all(target_os = "linux", not(fairlock_elsewhere)))]

#[path = "../examples/storm/storm/mod.rs"]
#[allow(dead_code)]
mod storm;

use std::cell::Cell;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use std::time::Duration;

use fairlock::events::NoCounters;
use fairlock::platform::{Os, Platform, Zeroed};
use fairlock::policy::PhaseFair;
use fairlock::process::Process;
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::RawRwSem;
use fairlock::slots::Record;
use fairlock_check::threads::platforms::Unseen;
use fairlock_check::{real_threads_but, threads as stress};
use storm::bounds::Promise;
use storm::subjects::{AtOnce, Kind, guarded};
use storm::{Settings, subjects};

real_threads_but! {
    /// Wake-ups are lost.
    Deaf { asymmetric: Os::is_asymmetric(), records: own, park: Os::park, unpark: wake_nobody };
}

fn wake_nobody(_word: *const AtomicU32) {}

/// Locks with a flaw, and how it shows.
static FLAWED: [(Kind, &str); 2] = [
    (
        Kind {
            name: "unseen",
            promise: Promise::Nothing,
            new: guarded::<RawRwLock<Unseen, AtOnce>>,
        },
        "FAILED: torn",
    ),
    (
        Kind { name: "deaf", promise: Promise::Nothing, new: guarded::<RawRwSem<PhaseFair, Deaf>> },
        "FAILED: hang",
    ),
];

/// In a process of its own, which fails.
const FLAW: &str = "STORM_FLAW";

fn short(subjects: Vec<&'static Kind>) -> Settings {
    Settings {
        duration: Duration::ZERO, // One visit of each.
        visit: Duration::from_millis(60),
        short_visits: 1,
        longest_gust: Duration::from_millis(40),
        subjects,
        seed: 1,
        judges: false,
        keeps_going: false,
        hang_after: Duration::from_secs(10),
    }
}

#[test]
fn every_lock_withstands_a_short_storm() {
    assert_eq!(storm::run(&short(subjects::ALL.iter().collect())), ExitCode::SUCCESS);
}

#[test]
fn a_storm_shows_the_flaws_of_a_lock() {
    const THIS: &str = "a_storm_shows_the_flaws_of_a_lock";
    if let Ok(name) = std::env::var(FLAW) {
        let flawed = FLAWED.iter().find(|(kind, _)| kind.name == name).expect("one of these");
        let hang_after = Duration::from_secs(1);
        let (duration, visit) = (Duration::from_secs(60), Duration::from_secs(1));
        storm::run(&Settings { duration, visit, hang_after, ..short(vec![&flawed.0]) });
        return;
    }
    let program = std::env::current_exe().expect("a running program has a path");
    let runs = FLAWED.iter().map(|(kind, shows)| {
        let mut run = Command::new(&program);
        run.args([THIS, "--exact", "--nocapture"]).env(FLAW, kind.name).stderr(Stdio::piped());
        (run.stdout(Stdio::null()).spawn().expect("programs can be started"), shows)
    });
    for (run, shows) in runs.collect::<Vec<_>>() {
        let output = run.wait_with_output().expect("a program ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(shows), "{errors}");
    }
}
