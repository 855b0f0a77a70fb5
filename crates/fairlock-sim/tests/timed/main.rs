//! The timed machine, and what locks cost on it, counted exactly.
//!
//! `cargo test -p fairlock-sim --test timed rwlock::` runs those of one lock.

mod condvar;
mod kernel;
mod large;
mod logged;
mod machine;
mod many_cpus;
mod peers;
mod places;
mod range;
mod range_many;
mod ready;
mod rwlock;
mod shares;
mod timer;
mod tuning;
mod writers;
