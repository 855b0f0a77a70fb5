//! Lets the system calls of a process that appends to a log fail, again and again, and reads the log back each
//! time.
//!
//! Reads, writes, syncs, renames, and whatever else the log asks of the system fail at random: not at all, in
//! part, or although they were done. The process opens the log, appends from several threads, truncates
//! behind them, follows with a reader, closes the log or drops it, or is killed. Then the log is read without
//! faults: every acknowledged record must be there, whole, in order, once; no record that was never
//! appended; and none whose append failed, unless the log was not closed after that. The first difference
//! ends the program, and leaves the log where it is.
//!
//! Needs a C compiler (`cc`, or what `CC` says).
//!
//! `cargo run --release -p fairlock-io --example log_faults -- [ROUNDS] [DIRECTORY] [SEED]`

use std::error::Error;
use std::path::PathBuf;

#[path = "../tests/accidents/faulting.rs"]
mod faulting;
#[path = "../tests/accidents/numbered_records.rs"]
mod numbered_records;
#[path = "../tests/accidents/preloaded/mod.rs"]
mod preloaded;

const DEFAULT_ROUNDS: u64 = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    if faulting::is_child() {
        return faulting::live();
    }
    let mut arguments = std::env::args().skip(1);
    let rounds = match arguments.next() {
        Some(rounds) => {
            rounds.parse().map_err(|_| "how many rounds? give a number, then a directory")?
        }
        None => DEFAULT_ROUNDS,
    };
    let directory = arguments.next().map_or(PathBuf::from("."), PathBuf::from);
    let seed = match arguments.next() {
        Some(seed) => seed.parse().map_err(|_| "the seed must be a number")?,
        None => 0,
    };
    let Some(figures) = faulting::torment(&directory, rounds, seed, &[])? else {
        return Err("a C compiler is needed".into());
    };
    println!("{figures}");
    Ok(())
}
