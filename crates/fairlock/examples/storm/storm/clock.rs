//! The clock of everything the storm notes: ns of CLOCK_MONOTONIC, which the locks' deadlines are
//! in, too.

use fairlock::platform::{Os, Platform};

pub const MICROSECOND: u64 = 1_000;
pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

#[inline(always)]
pub fn now() -> u64 {
    Os::now()
}

/// Of `ns`, for people.
pub fn show(ns: u64) -> String {
    match ns {
        0..MILLISECOND => format!("{:.1} µs", ns as f64 / MICROSECOND as f64),
        MILLISECOND..SECOND => format!("{:.2} ms", ns as f64 / MILLISECOND as f64),
        _ => format!("{:.2} s", ns as f64 / SECOND as f64),
    }
}
