//! What std has on every system, and how locks do without what a system lacks: see the table in
//! `mod.rs`.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// ns since a second before the first call: what never happened, at 0, lies behind, as on other
/// clocks.
#[inline]
pub(super) fn now() -> u64 {
    const BEFORE: u64 = 1_000_000_000;
    static START: OnceLock<Instant> = OnceLock::new();
    let since = START.get_or_init(Instant::now).elapsed().as_nanos();
    u64::try_from(since).unwrap_or(u64::MAX).saturating_add(BEFORE)
}

pub(super) fn nap(ns: u32) {
    std::thread::sleep(Duration::from_nanos(ns.into()));
}

/// The CPUs that this process may use, or all of them: as std has it.
pub(super) fn cpus() -> Option<u32> {
    std::thread::available_parallelism().ok().and_then(|cpus| u32::try_from(cpus.get()).ok())
}

/// Unknown.
#[inline(always)]
pub(super) fn cpu() -> u32 {
    0
}

/// There is no barrier on all CPUs.
pub(super) fn is_asymmetric() -> bool {
    false
}

/// Nobody calls it, see above.
pub(super) fn barrier_on_all_cpus() {
    unreachable!("this system has no asymmetric barrier");
}
