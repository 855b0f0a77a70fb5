//! A clock that is read in a few nanoseconds, so that what is measured with it is little disturbed.
//!
//! It is the processor's counter where that runs at one rate on all CPUs, whatever they do: on aarch64,
//! and on x86-64 where the time stamp counter is invariant. Elsewhere it is the monotonic clock.

use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds since it was made.
pub(super) struct Clock {
    /// Nanoseconds in [`ONE`] ticks, and the ticks at the beginning; none where the counter is of no use.
    counter: Option<(u64, u64)>,
    begun: Instant,
}

/// A power of two, so that dividing by it is a shift.
const ONE: u64 = 1 << 31;

impl Clock {
    /// Starts at 0. The first one of a process takes as long as [`rate`] measures.
    pub(super) fn new() -> Clock {
        static RATE: OnceLock<Option<u64>> = OnceLock::new();
        let rate = *RATE.get_or_init(rate);
        Clock { counter: rate.map(|rate| (rate, ticks())), begun: Instant::now() }
    }

    /// The time now, ns. On another CPU it may be a few ticks off.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        match self.counter {
            Some((rate, begun)) => ns(ticks().saturating_sub(begun), rate),
            None => self.begun.elapsed().as_nanos() as u64,
        }
    }
}

#[inline]
fn ns(ticks: u64, rate: u64) -> u64 {
    (u128::from(ticks) * u128::from(rate) / u128::from(ONE)) as u64
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Nanoseconds in [`ONE`] ticks, compared with the monotonic clock over 20 ms: off by a few millionths.
#[cfg(target_arch = "x86_64")]
fn rate() -> Option<u64> {
    use std::arch::x86_64::__cpuid;
    use std::time::Duration;

    const MEASURED: Duration = Duration::from_millis(20);
    /// The leaf about power management, and its bit for an invariant time stamp counter in EDX.
    const POWER: u32 = 0x8000_0007;
    const IS_INVARIANT: u32 = 1 << 8;
    /// Both clocks are read this often at each end; the reading that took the least time counts.
    const READINGS: usize = 20;

    if __cpuid(0x8000_0000).eax < POWER || __cpuid(POWER).edx & IS_INVARIANT == 0 {
        return None;
    }
    let read_both = || {
        let readings = (0..READINGS).map(|_| {
            let (before, now, after) = (ticks(), Instant::now(), ticks());
            (after.saturating_sub(before), before / 2 + after / 2, now)
        });
        let (_, ticks, now) = readings.min().expect("there are some");
        (ticks, now)
    };
    let (first_ticks, first) = read_both();
    std::thread::sleep(MEASURED);
    let (last_ticks, last) = read_both();
    let ns = last.duration_since(first).as_nanos();
    let ticks = last_ticks.checked_sub(first_ticks)?;
    u64::try_from((ns * u128::from(ONE)).checked_div(u128::from(ticks))?).ok()
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: reads a counter that Linux lets every process read.
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// Nanoseconds in [`ONE`] ticks, by the frequency that the processor states.
#[cfg(target_arch = "aarch64")]
fn rate() -> Option<u64> {
    let frequency: u64;
    // SAFETY: reads a register that Linux lets every process read.
    unsafe { std::arch::asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack)) };
    (1_000_000_000 * ONE).checked_div(frequency)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn ticks() -> u64 {
    0
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn rate() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds_also_after_years() {
        let quarter = ONE / 4;
        assert_eq!(
            [0, 3, 4, 4_000_000_001].map(|ticks| ns(ticks, quarter)),
            [0, 0, 1, 1_000_000_000]
        );
        assert_eq!(ns(u64::MAX, quarter), u64::MAX / 4);
        // At 24 MHz.
        assert_eq!(ns(24_000_000, 1_000_000_000 * ONE / 24_000_000), 999_999_999);
    }

    #[test]
    fn it_starts_anew_and_goes_on_with_and_without_the_counter() {
        let counting = Clock::new();
        let plain = Clock { counter: None, begun: Instant::now() };
        for clock in [counting, plain] {
            let (mut last, mut changes) = (clock.now(), 0);
            while changes < 100 {
                let now = clock.now();
                // Two CPUs' counters may differ by a few ticks.
                assert!(now + 10_000 >= last, "{now} after {last}");
                changes += usize::from(now != last);
                last = now;
            }
        }
    }
}
