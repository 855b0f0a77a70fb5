//! The clock that the kernel stamps records with.

use std::fs;
use std::sync::OnceLock;

/// The kernel's `CLOCK_MONOTONIC`, ns.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux, and the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let now = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    (now - ahead_ns()) as u64
}

/// So far is the clock ahead that this process is shown, ns: in a time namespace it is another one than that of stamps.
fn ahead_ns() -> i64 {
    static AHEAD: OnceLock<i64> = OnceLock::new();
    *AHEAD.get_or_init(|| {
        let offsets = fs::read_to_string("/proc/self/timens_offsets").ok();
        offsets.as_deref().and_then(offset_ns).unwrap_or(0)
    })
}

/// That of `CLOCK_MONOTONIC`; see time_namespaces(7).
fn offset_ns(offsets: &str) -> Option<i64> {
    let offset = offsets.lines().find_map(|line| line.trim_start().strip_prefix("monotonic"))?;
    let mut parts = offset.split_whitespace();
    let (seconds, ns): (i64, i64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_as_the_kernel_writes_them() {
        let offsets = "monotonic           -3         5\nboottime             7         0\n";
        assert_eq!(offset_ns(offsets), Some(-2_999_999_995));
        assert_eq!(offset_ns("monotonic 0 0\nboottime 7 0\n"), Some(0));
        assert_eq!(offset_ns("boottime 7 0\n"), None);
    }
}
