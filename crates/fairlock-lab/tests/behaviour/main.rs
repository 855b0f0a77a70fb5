//! The workloads on this machine and on simulated ones, and the `fairlock` command from outside.

mod bench;
mod command;
mod every_lock;
mod forkstorm_kernel;
mod former_names;
mod install;
mod inversion;
mod log_command;
mod measured;
mod pollers;
mod run;
mod screen;
mod simulated;
mod waits;

/// The command as Cargo has built it.
const FAIRLOCK: &str = env!("CARGO_BIN_EXE_fairlock");
