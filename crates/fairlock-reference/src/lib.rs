//! Locks and lists to compare Fairlock's with; not part of Fairlock. For tests and measurements
//! only: nothing in it is stable.
//!
//! * [`spin`]: spin locks as textbooks have them.
//! * [`pthread`], [`rust_std`] and [`parking_lot`]: the locks that programs have today, from glibc, Rust's standard library
//!   and the crate parking_lot, also for simulated machines.
//! * [`kernel`]: the rwsem and the mutex of the Linux kernel as they are written there, for simulated kernels.
//! * [`linux`]: the same rwsem with each policy that it has had, in a form for user space.
//! * [`range`]: range locks that keep every range on one list, or ignore ranges until the first conflict.
//! * [`ready`]: ready lists under a lock.
//! * [`flawed`]: ready lists and polls with a mistake, which the checks have to notice.

pub mod flawed;
mod heap;
pub mod kernel;
pub mod linux;
pub mod parking_lot;
pub mod pthread;
pub mod range;
pub mod ready;
pub mod rust_std;
pub mod spin;

/// Runs the example of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
