//! The `fairlock` command.

mod bench;
mod cli;
mod progress;
mod runner;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
