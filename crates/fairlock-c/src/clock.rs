//! Deadlines as C has them, on the clock that locks wait by.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use fairlock::platform::{Os, Platform};

use crate::code::{Trouble, borrowed};

const SECOND: u64 = 1_000_000_000;

/// The locks' own moment so many ns from now; none if that is beyond its end.
pub(crate) fn after(nanoseconds: u64) -> Option<u64> {
    Os::now().checked_add(nanoseconds)
}

/// A moment of one of C's clocks.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    clock: c_int,
    /// Since the clock's zero; saturated.
    nanoseconds: u64,
}

impl Moment {
    /// # Safety
    /// `time` is null or points to a time.
    pub(crate) unsafe fn of(clock: c_int, time: *const libc::timespec) -> Result<Moment, Trouble> {
        // SAFETY: the caller passes null or a time.
        let time = unsafe { borrowed(time) }?;
        if !matches!(clock, libc::CLOCK_MONOTONIC | libc::CLOCK_REALTIME) {
            return Err(Trouble::Invalid);
        }
        match u64::try_from(time.tv_nsec) {
            Ok(fraction) if fraction < SECOND => {
                let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                let fraction = if time.tv_sec < 0 { 0 } else { fraction };
                let nanoseconds = seconds.saturating_mul(SECOND).saturating_add(fraction);
                Ok(Moment { clock, nanoseconds })
            }
            _ => Err(Trouble::Invalid),
        }
    }

    /// Since its clock's zero.
    pub(crate) fn nanoseconds(self) -> u64 {
        self.nanoseconds
    }

    /// Attempts it until then, with deadlines of the locks' clock. The clock may be set back in between:
    /// it is not too late before it says so.
    pub(crate) fn wait<T>(
        self,
        mut attempt: impl FnMut(Option<u64>) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        loop {
            match attempt(self.deadline()) {
                Err(Trouble::TimedOut) if !self.has_come() => {}
                outcome => return outcome,
            }
        }
    }

    /// The same on the locks' clock, as it is set now. None if that is beyond its end.
    pub(crate) fn deadline(self) -> Option<u64> {
        match self.clock {
            libc::CLOCK_MONOTONIC => Some(self.nanoseconds),
            clock => after(self.nanoseconds.saturating_sub(now(clock))),
        }
    }

    fn has_come(self) -> bool {
        self.clock == libc::CLOCK_MONOTONIC || now(self.clock) >= self.nanoseconds
    }
}

fn now(clock: c_int) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the clock is one that Linux always has, so the call fills `time`.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(SECOND) + time.tv_nsec as u64
}
