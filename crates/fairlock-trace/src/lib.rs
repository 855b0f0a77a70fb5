//! What the drop-in saw of programs: unmodified programs under Fairlock's locks, what they waited for, and what to try.
//! `fairlock run` is made of this.
//!
//! | | |
//! |---|---|
//! | [`LOCKS`] | what they can be put under |
//! | [`library`] | where the library is that programs are started with |
//! | [`target`] | whether a command is a program that it can be put under |
//! | [`counts`] | the directory that the program's processes leave their counts in |
//! | [`recorded`] | what their threads did, one by one |
//! | [`signals`] | signals that this process waits for and passes on |
//! | [`process`] | one run of the program, to its end |
//! | [`comparison`] | many runs under several locks, what they took |
//! | [`symbols`] | names for addresses |
//! | [`facts`] | plain values with names for all addresses |
//! | [`deadlock`] | threads that wait for each other in a cycle |
//! | [`diagnosis`] | what the facts mean, and what to try |
//! | [`report`] | all that, for a terminal, as JSON Lines, and as a page |
//! | [`program`] | what was recorded, as a program that a replay can run |
//! | [`doctor`] | a system that runs without the drop-in: which disease it has |
//!
//! Not for: the terminal. The command decides what is printed, and when.

pub mod comparison;
pub mod counts;
pub mod deadlock;
pub mod diagnosis;
pub mod doctor;
#[cfg(test)]
mod example;
pub mod facts;
#[cfg(test)]
mod fuzz;
pub mod library;
mod locks;
pub mod process;
pub mod program;
pub mod recorded;
pub mod report;
pub mod signals;
pub mod symbols;
pub mod target;

pub use locks::{DEFAULT_LOCK, GLIBC, LOCKS, check};
