//! Kills the process that appends to a log, again and again, and reads the log back each time.
//!
//! The process appends from several threads, truncates behind them, and tells through a page that it
//! shares with this one which records were acknowledged. SIGKILL ends it at any moment. Then every
//! acknowledged record must be there, whole, in order, once, and none that was never appended.
//!
//! `cargo run --release -p fairlock-io --example log_kills -- [KILLS] [DIRECTORY]`

use std::error::Error;
use std::path::PathBuf;

#[path = "../tests/accidents/killing.rs"]
mod killing;
#[path = "../tests/accidents/numbered_records.rs"]
mod numbered_records;

const DEFAULT_KILLS: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    if killing::is_child() {
        return killing::append_until_killed();
    }
    let mut arguments = std::env::args().skip(1);
    let kills = match arguments.next() {
        Some(kills) => {
            kills.parse().map_err(|_| "how many kills? give a number, then a directory")?
        }
        None => DEFAULT_KILLS,
    };
    let directory = match arguments.next() {
        Some(path) => tempfile::tempdir_in(PathBuf::from(path))?,
        None => tempfile::tempdir_in(".")?,
    };
    let figures = killing::kill(directory.path(), kills, &[])?;
    println!("{figures}");
    Ok(())
}
