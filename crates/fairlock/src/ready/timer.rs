//! A source that becomes ready at a moment of the clock: timerfd without descriptor and system
//! calls.
//!
//! Its deadline is in its item, under the lock of its registration and, if it has a poll, under the
//! poll's consumer lock too; the poll keeps the deadlines of all its timers (`alarms.rs`).

use std::time::Duration;

use core::sync::atomic::Ordering::AcqRel;

use super::item::{Item, Readiness};
use super::list::List;
use super::lock_free::ReadyList;
use super::source::{RawSource, Source};
use crate::platform::{AtomicCell, PlainCell, Platform, after};

/// Becomes readable at a moment, once or again and again: what timerfd is, in user space.
///
/// Any thread sets it, before or after it is registered. Readable from when its time has come until
/// it is [read](RawTimer::read), set anew or cancelled.
///
/// # Guarantees
/// * A [wait](super::RawPoll::wait) that begins, or goes on, when the time has come reports it,
///   also one with a timeout of zero. It is never early; how late it is, is up to the system's
///   timers.
/// * Nobody spins or looks again and again: a consumer sleeps until the first timer, and one is
///   woken if another thread sets an earlier one.
/// * Periods that nobody looked at in time are one report, and [`read`](RawTimer::read) tells how
///   many. They do not shift: a periodic timer's moments are its first one plus whole periods.
/// * Setting, cancelling and reading take the poll's consumer lock, which consumers hold while they
///   go through what is ready. Setting a timer takes logarithmic time in the number of the poll's
///   timers, and allocates now and then, as the beginning of a period does: the timers are in a
///   sorted set.
///
/// The clock is the monotonic one: a machine's sleep does not count.
///
/// # Example
/// ```
/// use fairlock::ready::{Batch, Poll, Readiness, Timer, Trigger};
/// use std::time::Duration;
///
/// let (poll, timer) = (Poll::new(), Timer::new());
/// poll.register(&timer, 9, Readiness::READABLE, Trigger::Level)?;
/// timer.set_after(Duration::from_millis(2));
/// let mut batch = Batch::with_capacity(8);
/// assert_eq!(poll.wait(&mut batch, None), 1);
/// assert_eq!(timer.read(), Some(1));
/// assert_eq!(timer.read(), None);
/// # Ok::<(), fairlock::ready::PollError>(())
/// ```
pub type Timer = RawTimer<ReadyList>;

/// A [`Timer`] for polls over any list.
pub struct RawTimer<L: List> {
    source: Box<RawSource<L>>,
}

fn readiness(expirations: u64) -> Readiness {
    if expirations > 0 { Readiness::READABLE } else { Readiness::NONE }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl<L: List> RawTimer<L> {
    /// A timer that is not set.
    pub fn new() -> Self {
        RawTimer { source: Box::new(RawSource::new(0, readiness)) }
    }

    /// What its clock shows: nanoseconds since an arbitrary start.
    pub fn now() -> u64 {
        L::Platform::now()
    }

    /// Sets it to expire once, after this duration. Forgets expirations that were not read, as
    /// everything does that sets or cancels the timer.
    pub fn set_after(&self, duration: Duration) {
        self.set(after::<L::Platform>(duration).unwrap_or(u64::MAX), 0);
    }

    /// Sets it to expire once, when [its clock](Self::now) shows `deadline`, in ns; at once if that
    /// is over.
    ///
    /// ```
    /// use fairlock::ready::Timer;
    /// let timer = Timer::new();
    /// timer.set_at(Timer::now());
    /// assert_eq!(timer.read(), Some(1));
    /// ```
    pub fn set_at(&self, deadline: u64) {
        self.set(deadline.max(1), 0);
    }

    /// Sets it to expire after `first`, and then every `period`.
    ///
    /// # Panics
    /// If the period is zero: it would expire infinitely often.
    pub fn set_every(&self, first: Duration, period: Duration) {
        assert!(!period.is_zero(), "a periodic timer needs a period longer than zero");
        self.set(after::<L::Platform>(first).unwrap_or(u64::MAX), nanoseconds(period));
    }

    /// Cancels it. Returns whether it would have expired: false if it was not set, or has expired
    /// for the last time.
    pub fn cancel(&self) -> bool {
        self.change(|item| {
            item.expire(L::Platform::now());
            let was_set = item.deadline.get() != 0;
            Self::replace(item, 0, 0);
            was_set
        })
    }

    /// How often it has expired since it was set or last read; `None` if it has not.
    pub fn read(&self) -> Option<u64> {
        let expirations = self.change(|item| {
            item.expire(L::Platform::now());
            item.level.swap(0, AcqRel)
        });
        (expirations > 0).then_some(expirations)
    }

    /// When it expires next, in ns of [its clock](Self::now); `None` if it is not set.
    pub fn next(&self) -> Option<u64> {
        let deadline = self.change(|item| item.deadline.get());
        (deadline != 0).then_some(deadline)
    }

    fn set(&self, deadline: u64, period: u64) {
        self.change(|item| Self::replace(item, deadline, period));
    }

    fn replace(item: &Item<L::Platform>, deadline: u64, period: u64) {
        item.level.swap(0, AcqRel);
        item.deadline.set(deadline);
        item.period.set(period);
    }

    /// Runs `change` under the locks of the deadline.
    fn change<R>(&self, change: impl FnOnce(&Item<L::Platform>) -> R) -> R {
        let registration = self.source.registration.lock();
        match &*registration {
            Some(shared) => shared.change_alarm(&self.source.item, change),
            None => change(&self.source.item),
        }
    }
}

impl<L: List> Default for RawTimer<L> {
    fn default() -> Self {
        RawTimer::new()
    }
}

impl<L: List> Source<L> for RawTimer<L> {
    fn source(&self) -> &RawSource<L> {
        &self.source
    }
}
