//! The `fairlock` command.

// They panic where an output is closed or full: `fairlock_report::screen` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod doctor_command;
mod failure;
mod fit_command;
mod install;
mod list_command;
mod log_command;
mod manual;
mod replay_command;
mod run_command;
mod showing;
mod sweep_command;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
