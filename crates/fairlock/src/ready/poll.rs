//! A poll as its users see it: sources are registered, and threads wait for the first that is
//! ready. What those threads share is in `consumers.rs`.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
};

use core::sync::atomic::Ordering::Acquire;

use super::batch::{Batch, Trigger};
use super::consumers::{Report, Shared};
use super::item::Readiness;
use super::list::{List, SLEEPERS};
use super::lock_free::ReadyList;
use super::nesting::HasNesting;
use super::outside::Descriptor;
use super::source::{RawSource, Source};
#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
use crate::platform::Os;
use crate::platform::{AtomicCell, Platform, after};
use crate::spin_budget::SpinBudget;

/// What is wrong with a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollError {
    /// The source is in this poll, or in another one: it can be in one at a time.
    Registered,
    /// The source is not in this poll.
    NotRegistered,
    /// A poll cannot be a source of itself, nor of a poll that it is in.
    Cycle,
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PollError::Registered => {
                "the source is registered with a poll already: deregister it there, or use modify"
            }
            PollError::NotRegistered => "the source is not registered with this poll: register it",
            PollError::Cycle => {
                "a poll cannot be registered with itself or with one of its sources"
            }
        })
    }
}

impl std::error::Error for PollError {}

/// Waits for the first of many sources, on [`ReadyList`].
///
/// It is for sources in user space what epoll is for descriptors: a signal takes some ten to twenty
/// nanoseconds, and makes no system call unless somebody sleeps. On Linux the poll has a
/// descriptor, so that epoll, mio or tokio can wait for it.
///
/// Share it by reference or in an `Arc`; all its functions may be called from many threads.
///
/// # Guarantees
/// * A wait that begins after a signal has returned reports its source, if the source is still
///   ready and the batch has room; also if another producer was preempted in the middle of a
///   signal.
/// * A signal never waits for another thread. Waiting and registering take the poll's consumer
///   lock, which consumers hold while they go through what is ready, and never while they sleep.
/// * Sources are reported in the order in which they became ready; one that stays ready goes to the
///   end after each report. With N ready sources, each is reported within N waits, whatever the
///   batch's size.
/// * [`Trigger::Level`] wakes all that wait, one after the other, while the source is ready;
///   [`Trigger::Edge`] wakes one. A signal gives at least one report, [`Trigger::Once`] at most
///   one.
/// * After [`deregister`](RawPoll::deregister), or after a source was dropped, it is not reported,
///   and nobody touches it. Both wait for signals of that source that are under way in other
///   threads.
/// * It allocates only when a source is registered, when the poll is first watched from outside,
///   and when a timer is set or begins its next period.
///
/// It takes 256 bytes, and each source 128, on the heap.
///
/// # Example
/// ```
/// use fairlock::ready::{Batch, Counter, Poll, Readiness, Trigger};
/// use std::time::Duration;
///
/// let (poll, counter) = (Poll::new(), Counter::new(0));
/// poll.register(&counter, 42, Readiness::READABLE, Trigger::Level)?;
/// let mut batch = Batch::with_capacity(16);
/// assert_eq!(poll.wait(&mut batch, Some(Duration::ZERO)), 0);
/// std::thread::scope(|scope| {
///     scope.spawn(|| counter.add(1));
///     poll.wait(&mut batch, None);
/// });
/// for ready in &batch {
///     assert_eq!(ready.token, 42);
///     assert_eq!(counter.read(), Some(1));
/// }
/// poll.deregister(&counter)?;
/// # Ok::<(), fairlock::ready::PollError>(())
/// ```
pub type Poll = RawPoll<ReadyList>;

/// A [`Poll`] over any list.
pub struct RawPoll<L: List> {
    shared: Arc<Shared<L>>,
    // Elsewhere than on Linux it only keeps the poll's layout.
    #[cfg_attr(not(all(target_os = "linux", not(fairlock_elsewhere))), allow(dead_code))]
    descriptor: OnceLock<Arc<Descriptor>>,
}

impl<L: List> RawPoll<L> {
    /// A poll without sources.
    pub fn new() -> Self {
        RawPoll { shared: Arc::new(Shared::new()), descriptor: OnceLock::new() }
    }

    /// Waits for `source` from now on, and reports it as `token` when it is ready for some of
    /// `interest`.
    ///
    /// # Errors
    /// [`PollError::Registered`] if the source has a poll, this or another; [`PollError::Cycle`] if
    /// the source is this poll, or one that this poll is in, at whatever depth.
    pub fn register(
        &self,
        source: &impl Source<L>,
        token: u64,
        interest: Readiness,
        trigger: Trigger,
    ) -> Result<(), PollError> {
        let raw = source.source();
        let nested = raw.poll.upgrade();
        // Held until the source is registered, or two threads could make a cycle of two polls.
        let _nesting = nested.as_ref().map(|_| L::Platform::nesting().lock());
        if nested.as_ref().is_some_and(|nested| self.shared.is_inside(nested)) {
            return Err(PollError::Cycle);
        }
        let mut registration = raw.registration.lock();
        if registration.as_ref().is_some_and(|shared| !shared.consumers.lock().closed) {
            return Err(PollError::Registered);
        }
        *registration = Some(Arc::clone(&self.shared));
        let report = Report { token, interest, trigger };
        self.shared.add(&raw.item, Arc::as_ptr(&self.shared), report);
        drop(registration);
        if let Some(nested) = nested {
            nested.begin_to_be_watched();
        }
        Ok(())
    }

    /// Changes what is reported of a source, and looks at it again: if it is ready it is reported
    /// once more, whatever the trigger.
    ///
    /// # Errors
    /// [`PollError::NotRegistered`] if the source is not in this poll.
    pub fn modify(
        &self,
        source: &impl Source<L>,
        token: u64,
        interest: Readiness,
        trigger: Trigger,
    ) -> Result<(), PollError> {
        let raw = source.source();
        let registration = raw.registration.lock();
        self.check_is_in(&registration)?;
        let report = Report { token, interest, trigger };
        self.shared.set(self.shared.consumers.lock(), &raw.item, report);
        Ok(())
    }

    /// Removes the source. No wait, in any thread, that begins after this has returned reports it.
    ///
    /// # Errors
    /// [`PollError::NotRegistered`] if the source is not in this poll.
    pub fn deregister(&self, source: &impl Source<L>) -> Result<(), PollError> {
        let raw = source.source();
        let mut registration = raw.registration.lock();
        self.check_is_in(&registration)?;
        self.shared.remove(&raw.item);
        *registration = None;
        Ok(())
    }

    /// Fails unless a source with this registration is in this poll.
    fn check_is_in(&self, registration: &Option<Arc<Shared<L>>>) -> Result<(), PollError> {
        match registration {
            Some(shared) if Arc::ptr_eq(shared, &self.shared) => Ok(()),
            _ => Err(PollError::NotRegistered),
        }
    }

    /// Waits until a source is ready or the timeout is over, fills the batch, and returns how many
    /// are ready. Without a timeout it waits for as long as it takes; with a timeout of zero it
    /// does not wait at all.
    pub fn wait(&self, batch: &mut Batch, timeout: Option<Duration>) -> usize {
        batch.ready.clear();
        let shared = &*self.shared;
        let (mut sleeps, mut spins) = (timeout != Some(Duration::ZERO), true);
        let deadline = timeout.filter(|_| sleeps).and_then(after::<L::Platform>);
        let mut consumers = shared.consumers.lock();
        loop {
            shared.collect(&mut consumers);
            shared.expire(&mut consumers);
            shared.report(&mut consumers, batch);
            if !batch.is_empty() || !sleeps {
                break;
            }
            let until = consumers.alarms.until(deadline);
            if std::mem::take(&mut spins) {
                drop(consumers);
                self.spin(until);
                consumers = shared.consumers.lock();
                continue;
            }
            // Read before the list is asked, so a wake-up for this request changes it afterwards.
            // Acquire pairs with the Release in `wake`: this consumer sees what it was woken for.
            let wake_ups = shared.wake_ups.load(Acquire);
            if !shared.watch(&consumers, SLEEPERS) {
                continue;
            }
            consumers.sleepers += 1;
            consumers.alarms.sleep(until);
            drop(consumers);
            L::Platform::park(&shared.wake_ups, wake_ups, until);
            consumers = shared.consumers.lock();
            consumers.sleepers -= 1;
            consumers.alarms.wake(until);
            sleeps = deadline.is_none_or(|deadline| L::Platform::now() < deadline);
        }
        shared.release(consumers);
        batch.len()
    }

    /// Spins until something is on the list, for as long as a wake-up would take at most.
    fn spin(&self, deadline: Option<u64>) {
        let mut budget =
            SpinBudget::new::<L::Platform>(L::Platform::wake_latency().into(), deadline);
        while self.shared.list.is_empty() && budget.relax::<L::Platform>() {}
    }
}

#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
#[cfg_attr(docsrs, doc(cfg(target_os = "linux")))]
impl<L: List<Platform = Os>> RawPoll<L> {
    /// A descriptor that is readable while something may be ready: register it for reading in
    /// epoll, mio or tokio, and call [`wait`](Self::wait) with a timeout of zero when it is. It
    /// belongs to the poll: do not read, write or close it.
    ///
    /// It stays readable until a wait has found nothing more. So in an edge-triggered event loop
    /// wait until nothing is ready; the next signal is a new edge. It may be readable although
    /// nothing is ready: at first, when another consumer was faster, and when a timer was cancelled
    /// at the last moment. A wait that finds nothing ends that.
    ///
    /// On Linux only. The first call makes it, of an eventfd, a timerfd and an epoll descriptor
    /// that watches both. Only from then on do signals pay for it, and only those that come when
    /// nothing was ready. It is closed on exec, and with the poll.
    ///
    /// # Errors
    /// The system's error, where no descriptor can be made, as when too many are open. Then nothing
    /// has changed.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(descriptor) = self.descriptor.get() {
            return Ok(descriptor.as_fd());
        }
        let new = Arc::new(Descriptor::new()?);
        let descriptor = self.descriptor.get_or_init(|| new);
        self.shared.outside().descriptor.get_or_init(|| Arc::downgrade(descriptor));
        self.shared.begin_to_be_watched();
        Ok(descriptor.as_fd())
    }

    /// [`descriptor`](Self::descriptor) as a number.
    ///
    /// # Errors
    /// As there.
    pub fn raw_descriptor(&self) -> io::Result<RawFd> {
        Ok(self.descriptor()?.as_raw_fd())
    }
}

impl<L: List> Source<L> for RawPoll<L> {
    fn source(&self) -> &RawSource<L> {
        &self.shared.outside().source
    }
}

impl<L: List> Default for RawPoll<L> {
    fn default() -> Self {
        RawPoll::new()
    }
}

impl<L: List> fmt::Debug for RawPoll<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let consumers = self.shared.consumers.lock();
        f.debug_struct("Poll")
            .field("sources", &consumers.items.len())
            .field("sleepers", &consumers.sleepers)
            .finish_non_exhaustive()
    }
}

impl<L: List> Drop for RawPoll<L> {
    fn drop(&mut self) {
        if let Some(source) = self.shared.source() {
            source.unregister();
        }
        self.shared.close();
    }
}
