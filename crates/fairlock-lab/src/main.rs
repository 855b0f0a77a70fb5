//! The `fairlock` command.

mod bench;
mod cli;
mod install;
mod log_command;
mod progress;
mod run_command;
mod runner;
mod watchdog;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
