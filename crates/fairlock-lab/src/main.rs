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
    // What reads the output may stop, as `head` does: that ends the command, and is no error of its own.
    // SAFETY: the default is what this signal had when the process began.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    cli::main()
}
