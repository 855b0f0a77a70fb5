//! The `fairlock` command.

mod bench;
mod cli;
mod progress;
mod session;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
