//! The command: its arguments, and its help.

use std::process::ExitCode;
use std::time::Duration;

use crate::storm::{self, Settings, subjects};

const HELP: &str = "\
Locks under a storm: fairness and liveness on real threads.

usage: storm [--seconds N] [--lock NAME,...] [--seed N] [--keep-going]

  --seconds N      how long the storm takes in all (60), but every lock is visited once
  --lock NAME,...  only these locks (all)
  --seed N         of all random numbers (one that differs from run to run, and is printed)
  --keep-going     broken bounds are counted instead of ending the run; torn data and hangs end it always

The same seed and lock give the same threads the same operations and the same stops to suffer; when
these meet is up to the machine. Root may also change priorities; then holders are starved by their
priority, too.

The table at the end has a row for each lock: how often the weather changed (gusts), the longest waits of readers and writers, and
the longest time, or how often, a waiter was passed by somebody who came later. The bound behind that is what the lock
promises, with the longest hold and the longest wait for a CPU that were seen then, as no lock can shorten these.

Behind a name: -at-once uses slots from the first read on, -restless changes all the time how readers come in, -symmetric has no
barrier on other CPUs; unguarded- is the interface for C; condvar is a lock made of
a mutex and a condition variable.

example: cargo run --release -p fairlock --example storm -- --seconds 30 --lock rwlock,rwsem --seed 7
";

pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        let names: Vec<_> = subjects::ALL.iter().map(|subject| subject.name).collect();
        println!("{HELP}\nlocks: {}", names.join(", "));
        return ExitCode::SUCCESS;
    }
    match settings(&arguments) {
        Ok(settings) => {
            println!("seed {}", settings.seed);
            storm::run(&settings)
        }
        Err(error) => {
            eprintln!("{error}; --help says what is allowed");
            ExitCode::from(2)
        }
    }
}

/// A visit with the short ones that follow it takes two of these.
const LONGEST_VISIT: Duration = Duration::from_secs(2);
const SHORTEST_VISIT: Duration = Duration::from_millis(100);

fn settings(arguments: &[String]) -> Result<Settings, String> {
    let mut settings = Settings {
        duration: Duration::from_secs(60),
        visit: LONGEST_VISIT,
        short_visits: 10,
        longest_gust: Duration::from_secs(3),
        subjects: subjects::ALL.iter().collect(),
        seed: storm::clock::now() % 1_000_000,
        judges: true,
        keeps_going: false,
        hang_after: Duration::from_secs(6),
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        let number = |text: &String| {
            text.parse::<u64>()
                .map_err(|_| format!("{argument} takes a whole number, not {text:?}"))
        };
        match argument.as_str() {
            "--seconds" => settings.duration = Duration::from_secs(number(value()?)?),
            "--seed" => settings.seed = number(value()?)?,
            "--keep-going" => settings.keeps_going = true,
            "--lock" => {
                settings.subjects = value()?.split(',').map(subject).collect::<Result<_, _>>()?
            }
            other => return Err(format!("{other:?} is no option")),
        }
    }
    let locks = settings.subjects.len() as u32;
    settings.visit = (settings.duration / (2 * locks)).clamp(SHORTEST_VISIT, LONGEST_VISIT);
    Ok(settings)
}

fn subject(name: &str) -> Result<&'static subjects::Kind, String> {
    let found = subjects::ALL.iter().find(|subject| subject.name == name);
    found.ok_or(format!("{name:?} is no lock of the storm"))
}
