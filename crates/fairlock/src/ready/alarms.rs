//! The sources of a poll that become ready at a moment of the clock: timers, and polls that have
//! timers. Which of them is the first, and which sleeper wakes up for it.
//!
//! A consumer sleeps until the first alarm at most. When an alarm is set that is earlier than any
//! sleeper knows of, one of them is woken and goes to sleep again, for a shorter time.
//!
//! Invariants
//! 1. An item of the poll is in the set exactly if its `deadline` is not 0, with that deadline.
//! 2. If consumers sleep and there is an alarm, one of them wakes up at the first alarm or before,
//!    or was woken and has not taken the consumer lock since. So nobody oversleeps an alarm.
//! 3. Those that watch from outside were told of the first alarm since it was set (by the
//!    descriptor's timer, by the poll's deadline in the outer poll), unless the poll is raised.
//!
//! Locks are taken from the inner poll to the outer one: consumer lock, registration of the poll,
//! consumer lock of the poll that it is in. No poll is in itself (`RawPoll::register`), so there is
//! an order.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use core::sync::atomic::Ordering::AcqRel;

use super::consumers::{LockedConsumers, Shared, Watched};
use super::item::Item;
use super::list::List;
use crate::platform::{AtomicInt, PlainCell, Platform};

/// No moment: later than all, in ns of the platform's clock.
const NEVER: u64 = u64::MAX;

/// Kept under the consumer lock.
pub(super) struct Alarms {
    /// Deadlines, in ns of the platform's clock, and the items' indices.
    pending: BTreeSet<(u64, u32)>,
    /// The first alarm of which those outside were told; alarms are not at 0.
    told: Option<NonZeroU64>,
    /// The earliest moment at which a sleeper is known to wake up by itself, in ns of the clock.
    waking: u64,
    /// At least how many sleepers wake up then: those that wake up later are not remembered.
    waking_then: u32,
}

impl Alarms {
    pub(super) const NONE: Alarms =
        Alarms { pending: BTreeSet::new(), told: None, waking: NEVER, waking_then: 0 };

    /// Notes that those outside are told of `first`. True if that is news to them.
    fn tell(&mut self, first: Option<u64>) -> bool {
        let before = std::mem::replace(&mut self.told, first.and_then(NonZeroU64::new));
        before != self.told
    }

    fn first(&self) -> Option<u64> {
        self.pending.first().map(|&(deadline, _)| deadline)
    }

    fn is_overslept(&self) -> bool {
        self.first().is_some_and(|first| first < self.waking)
    }

    /// Until when a consumer may sleep whose wait ends at `deadline`.
    pub(super) fn until(&self, deadline: Option<u64>) -> Option<u64> {
        match (deadline, self.first()) {
            (Some(deadline), Some(first)) => Some(deadline.min(first)),
            (deadline, first) => deadline.or(first),
        }
    }

    /// A consumer is about to sleep until then.
    pub(super) fn sleep(&mut self, until: Option<u64>) {
        let Some(until) = until else { return };
        if until < self.waking {
            (self.waking, self.waking_then) = (until, 1);
        } else if until == self.waking {
            self.waking_then += 1;
        }
    }

    /// A consumer that slept until then is awake.
    pub(super) fn wake(&mut self, until: Option<u64>) {
        if self.waking != NEVER && until == Some(self.waking) {
            self.waking_then -= 1;
            if self.waking_then == 0 {
                // Others may wake up early enough, but nobody remembers.
                self.waking = NEVER;
            }
        }
    }

    pub(super) fn insert<P: Platform>(&mut self, item: &Item<P>) {
        let deadline = item.deadline.get();
        if deadline != 0 {
            self.pending.insert((deadline, item.keep.index.get()));
        }
    }

    pub(super) fn remove<P: Platform>(&mut self, item: &Item<P>) {
        let deadline = item.deadline.get();
        if deadline != 0 {
            self.pending.remove(&(deadline, item.keep.index.get()));
        }
    }

    /// The poll ends.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
    }

    /// Takes out an alarm whose time has come.
    fn take_due(&mut self, now: u64) -> Option<u32> {
        if self.first()? > now {
            return None;
        }
        self.pending.pop_first().map(|(_, index)| index)
    }
}

impl<P: Platform> Item<P> {
    /// Adds to the level how often the item's time has come until `now`, and sets its next
    /// deadline.
    pub(super) fn expire(&self, now: u64) {
        let (deadline, period) = (self.deadline.get(), self.period.get());
        if deadline == 0 || deadline > now {
            return;
        }
        let times = match period {
            0 => 1,
            period => 1 + (now - deadline) / period,
        };
        // Release pairs with the Acquire in `Item::readiness`.
        self.level.fetch_add(times, AcqRel);
        self.deadline.set(match period {
            0 => 0,
            period => deadline.saturating_add(times.saturating_mul(period)),
        });
    }
}

impl<L: List> Shared<L> {
    /// Makes the items ready whose time has come.
    pub(super) fn expire(&self, consumers: &mut LockedConsumers<'_, L>) {
        if consumers.alarms.pending.is_empty() {
            return;
        }
        let now = L::Platform::now();
        let mut any = false;
        while let Some(index) = consumers.alarms.take_due(now) {
            // SAFETY: `items` has registered items only, which are alive.
            let item = unsafe { &*consumers.items[index as usize] };
            item.expire(now);
            consumers.alarms.insert(item);
            Self::queue(consumers, item);
            any = true;
        }
        if any {
            // A poll that is being signalled is on the list, and was ready before the alarm.
            self.collect(consumers);
        }
    }

    /// Changes at which moment an item becomes ready. The poll may be closed meanwhile.
    pub(super) fn change_alarm<R>(
        &self,
        item: &Item<L::Platform>,
        change: impl FnOnce(&Item<L::Platform>) -> R,
    ) -> R {
        let mut consumers = self.consumers.lock();
        if consumers.closed {
            return change(item);
        }
        consumers.alarms.remove(item);
        let result = change(item);
        consumers.alarms.insert(item);
        let wakes = self.see_to_alarms(&mut consumers, false);
        drop(consumers);
        if wakes {
            self.wake();
        }
        result
    }

    /// Keeps invariants 2 and 3: returns whether a sleeper has to be woken. `lowered` if an alarm
    /// may have raised the poll, and the poll was lowered since.
    pub(super) fn see_to_alarms(
        &self,
        consumers: &mut LockedConsumers<'_, L>,
        lowered: bool,
    ) -> bool {
        if consumers.watched != Watched::Never {
            let first = consumers.alarms.first();
            let is_news = consumers.alarms.tell(first);
            // The descriptor's timer stays expired until it is set again.
            if is_news {
                if let Some(descriptor) = self.descriptor() {
                    descriptor.raise_at(first);
                }
            }
            if is_news || lowered && first.is_some() {
                self.tell_outer_poll(first);
            }
        }
        consumers.sleepers > 0 && consumers.alarms.is_overslept()
    }

    /// Tells somebody who begins to watch from outside of the first alarm.
    pub(super) fn tell_alarms(&self, consumers: &mut LockedConsumers<'_, L>) {
        let first = consumers.alarms.first();
        consumers.alarms.tell(first);
        if let Some(descriptor) = self.descriptor() {
            descriptor.raise_at(first);
        }
        self.tell_outer_poll(first);
    }

    fn tell_outer_poll(&self, first: Option<u64>) {
        let Some(source) = self.source() else { return };
        let registration = source.registration.lock();
        if let Some(outer) = &*registration {
            let first = first.unwrap_or(0);
            outer.change_alarm(&source.item, |item| item.deadline.set(first));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;
    use crate::ready::Readiness;

    fn item(index: u32, deadline: u64, period: u64) -> Item<Os> {
        let item = Item::<Os>::new(0, |_| Readiness::NONE);
        item.keep.index.set(index);
        item.deadline.set(deadline);
        item.period.set(period);
        item
    }

    #[test]
    fn a_sleeper_oversleeps_an_alarm_that_nobody_wakes_up_for() {
        let mut alarms = Alarms::NONE;
        alarms.sleep(alarms.until(None));
        assert!(!alarms.is_overslept());
        let late = item(0, 20, 0);
        alarms.insert(&late);
        assert!(alarms.is_overslept());
        assert_eq!(alarms.until(None), Some(20));
        assert_eq!(alarms.until(Some(10)), Some(10));
        alarms.sleep(Some(20));
        alarms.sleep(Some(20));
        alarms.wake(Some(20));
        assert!(!alarms.is_overslept());
        alarms.insert(&item(1, 15, 0));
        assert!(alarms.is_overslept());
        alarms.sleep(Some(15));
        assert!(!alarms.is_overslept());
        alarms.wake(Some(15));
        assert!(alarms.is_overslept());
    }

    #[test]
    fn due_alarms_come_in_the_order_of_their_deadlines() {
        let mut alarms = Alarms::NONE;
        for (index, deadline) in [30, 10, 20].into_iter().enumerate() {
            alarms.insert(&item(index as u32, deadline, 0));
        }
        assert_eq!(alarms.take_due(9), None);
        assert_eq!([alarms.take_due(20), alarms.take_due(20)], [Some(1), Some(2)]);
        assert_eq!(alarms.take_due(20), None);
    }

    #[test]
    fn periods_that_were_missed_are_counted() {
        use core::sync::atomic::Ordering::Relaxed;

        let item = item(0, 100, 10);
        item.expire(99);
        assert_eq!((item.level.load(Relaxed), item.deadline.get()), (0, 100));
        item.expire(100);
        assert_eq!((item.level.load(Relaxed), item.deadline.get()), (1, 110));
        item.expire(135);
        assert_eq!((item.level.load(Relaxed), item.deadline.get()), (4, 140));
    }
}
