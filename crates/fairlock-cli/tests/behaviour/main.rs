//! The `fairlock` command from outside, and the workloads that start it.

mod bench;
mod command;
mod doctor;
mod forkstorm_kernel;
mod former_names;
mod install;
mod inversion;
mod json;
mod log_command;
mod readseek_processes;
mod replay;
mod run;
mod rust_programs;
mod screen;
mod study_file;
mod sweep;
mod waits;

/// The command as Cargo has built it.
const FAIRLOCK: &str = env!("CARGO_BIN_EXE_fairlock");
