//! A storm over every lock of the crate, on real threads: whether it stays fair and alive while
//! threads are stopped at any instruction, die, fork, and are moved and starved by the scheduler.
//!
//! ```text
//! cargo run --release -p fairlock --example storm -- --seconds 600
//! ```
//!
//! `storm/mod.rs` says what happens and what is checked. Exit status 0: nothing was torn or lost,
//! nobody waited for ever, and nobody was passed for longer than the lock promises. 1: not so; the
//! output says which lock, which seed, who waited and for whom. 2: the arguments make no sense.
//!
//! On Linux only: threads are stopped by its signals, and watched in its `/proc`.

#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
mod command;
#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
mod storm;

#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
use fairlock_check::threads as stress;

#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(not(all(target_os = "linux", not(fairlock_elsewhere))))]
fn main() {
    println!("the storm is for Linux only");
}
