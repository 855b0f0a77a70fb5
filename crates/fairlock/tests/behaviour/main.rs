//! What users of the crate rely on, one file for each type or promise.
//!
//! `cargo test -p fairlock --test behaviour mutex::` runs those of one file. What takes a search or
//! a crowd of threads is in the crate `fairlock-check`.

mod condvar;
mod guards;
mod instruction_count;
mod layers;
#[cfg(feature = "lock_api_04")]
mod lock_api_0_4;
mod mutex;
mod range_lock;
mod range_many;
mod range_programs;
mod range_slice;
mod ready;
mod ready_channel;
#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
mod ready_descriptor;
mod ready_model;
mod ready_timer;
mod recursion;
mod reentrant;
mod rwlock_bias;
mod tunables;
