//! The workloads on this machine and on simulated ones, and the `fairlock` command from outside.

mod command;
mod every_lock;
mod forkstorm_kernel;
mod install;
mod inversion;
mod log_command;
mod pollers;
mod run;
mod simulated;
mod waits;
