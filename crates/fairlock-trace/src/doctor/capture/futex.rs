//! Futexes, on which all locks of programs sleep: which calls wait.

/// `futex_wait` of newer kernels, which has the same number on all machines.
pub const SYS_FUTEX_WAIT: i64 = 455;

/// Operations of `futex` that wait: `FUTEX_WAIT`, `FUTEX_LOCK_PI`, `FUTEX_WAIT_BITSET`, `FUTEX_WAIT_REQUEUE_PI` and
/// `FUTEX_LOCK_PI2`.
const WAITING: [u32; 5] = [0, 9, 6, 11, 13];
/// `FUTEX_PRIVATE_FLAG`.
const PRIVATE: u32 = 128;
/// `FUTEX_CLOCK_REALTIME`.
const REALTIME: u32 = 256;

/// Whether this operation of `futex` waits.
pub fn waits(operation: u32) -> bool {
    WAITING.contains(&(operation & !(PRIVATE | REALTIME)))
}

/// The kernel's filter for calls that wait. It has no way to mask bits, so it lists them, the most frequent first.
pub fn filter() -> String {
    let mut operations = Vec::new();
    for flags in [PRIVATE, PRIVATE | REALTIME, 0, REALTIME] {
        operations.extend(WAITING.map(|operation| format!("op == {}", operation | flags)));
    }
    operations.join(" || ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_wait_are_told_from_others() {
        for waiting in [0, 128, 128 | 9, 256 | 128 | 9, 6 | 128, 13, 11] {
            assert!(waits(waiting), "{waiting}");
        }
        for other in [1, 129, 3, 4, 5, 7, 8, 10, 12, 128 | 10] {
            assert!(!waits(other), "{other}");
        }
    }

    #[test]
    fn the_kernels_filter_lets_through_what_waits() {
        let filter = filter();
        let listed =
            |operation: u32| filter.split(" || ").any(|it| it == format!("op == {operation}"));
        for operation in 0..512 {
            assert_eq!(listed(operation), waits(operation), "{operation}");
        }
    }
}
