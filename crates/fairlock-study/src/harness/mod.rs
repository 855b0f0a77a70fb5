//! Runs benches and studies: options, what to run, a bar on the terminal, and what becomes of it.

mod bar;
pub mod bench;
pub mod interrupts;
pub mod progress;
pub mod quiet;
pub mod replaying;
pub mod runner;
pub mod sweeping;
mod watchdog;
