//! The deadlines of C as moments of the monotonic clock.

use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME, EINVAL, c_int, clockid_t, timespec};

const SECOND: i64 = 1_000_000_000;

/// A moment of one of C's clocks.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    clock: clockid_t,
    /// ns; before the clock's beginning is 0.
    at: u64,
}

impl Deadline {
    /// # Errors
    /// EINVAL, for nanoseconds that are none and clocks that cannot be waited by.
    ///
    /// # Safety
    /// `time` points to a `timespec`.
    pub(crate) unsafe fn new(clock: clockid_t, time: *const timespec) -> Result<Deadline, c_int> {
        // SAFETY: the caller passes a `timespec`.
        let timespec { tv_sec, tv_nsec, .. } = unsafe { *time };
        if !matches!(clock, CLOCK_MONOTONIC | CLOCK_REALTIME) || !(0..SECOND).contains(&tv_nsec) {
            return Err(EINVAL);
        }
        let at = tv_sec.saturating_mul(SECOND).saturating_add(tv_nsec).max(0) as u64;
        Ok(Deadline { clock, at })
    }

    /// The same moment by the monotonic clock, as far as the clocks can tell now.
    pub(crate) fn monotonic(self) -> u64 {
        if self.clock == CLOCK_MONOTONIC {
            return self.at;
        }
        let ahead = self.at.saturating_sub(now(CLOCK_REALTIME));
        now(CLOCK_MONOTONIC).saturating_add(ahead)
    }

    /// As C has it.
    pub(crate) fn with<R>(self, body: impl FnOnce(clockid_t, *const timespec) -> R) -> R {
        let tv_sec = (self.at / SECOND as u64) as libc::time_t;
        let tv_nsec = (self.at % SECOND as u64) as libc::c_long;
        body(self.clock, &timespec { tv_sec, tv_nsec })
    }

    /// By its own clock: that may have been set meanwhile.
    pub(crate) fn has_passed(self) -> bool {
        now(self.clock) >= self.at
    }
}

fn now(clock: clockid_t) -> u64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives, and both clocks exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * SECOND as u64 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(clock: clockid_t, tv_sec: i64, tv_nsec: i64) -> Result<Deadline, c_int> {
        // SAFETY: it lives.
        unsafe { Deadline::new(clock, &timespec { tv_sec, tv_nsec }) }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        assert!(deadline(CLOCK_REALTIME, 0, -1).is_err());
        assert!(deadline(CLOCK_MONOTONIC, 0, SECOND).is_err());
        assert!(deadline(libc::CLOCK_PROCESS_CPUTIME_ID, 0, 0).is_err());
        assert!(deadline(CLOCK_REALTIME, 0, SECOND - 1).is_ok());
    }

    #[test]
    fn the_past_has_passed_and_the_far_future_has_not() {
        assert!(deadline(CLOCK_REALTIME, -5, 0).is_ok_and(Deadline::has_passed));
        assert!(deadline(CLOCK_REALTIME, 1, 0).is_ok_and(Deadline::has_passed));
        for clock in [CLOCK_REALTIME, CLOCK_MONOTONIC] {
            let never = deadline(clock, i64::MAX, 0).expect("a time");
            assert!(!never.has_passed() && never.monotonic() > now(CLOCK_MONOTONIC));
        }
    }
}
