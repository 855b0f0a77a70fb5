//! The consumers' side of a poll: its sources, which of them may be ready, and the consumers that
//! sleep.
//!
//! # What it guarantees
//! While a source is ready, no consumer sleeps without a wake-up on its way; see
//! [`Poll`](super::Poll).
//!
//! # How it works
//! Consumers take turns under the *consumer lock*, which is never held while somebody sleeps or
//! while user code runs. A wait
//! 1. takes all items off the list and appends them to the FIFO, the oldest first;
//! 2. goes once round the FIFO and reports each item that is ready. An item that is to be reported
//!    again while it is ready stays, at the end, and still counts as queued, so that its producers
//!    have nothing to do; the others leave the FIFO;
//! 3. with nothing to report, asks the list to be told of the next push, and sleeps, until the
//!    first timer's time at most (`alarms.rs`).
//!
//! # Why it is right
//! 1. If an item is on the list or in the FIFO and a consumer sleeps, then some consumer was woken
//!    and has not taken the consumer lock since, or some thread is about to wake one: a producer
//!    that has put something on the list, or a consumer that is about to release the consumer lock.
//!    *Every* producer that puts something on a watched list makes sure of the wake-up, so one that
//!    is preempted before it does delays no other's.
//! 2. If consumers sleep, and nothing is on the list or in the FIFO, the list knows that they
//!    watch, or one of them was woken and has not taken the consumer lock since.
//! 3. The same holds for those that watch from outside, by the descriptor or as an outer poll: the
//!    poll is raised, or about to be, or the list knows that they watch.
//! 4. A source that is not registered, or whose poll is gone, is in no FIFO and on no list.
//! 5. An item that was surveyed stays queued: its links on the list belong to the producer that
//!    links it.
//!
//! # What it costs
//! A wait takes the consumer lock once if something is ready, and again after its spin and after
//! each sleep if not. It looks at each item that was signalled or is still ready. A survey looks at
//! all items of the poll; it happens when a producer was preempted in a window of some ten
//! instructions (`lock_free.rs`).

use std::sync::{Arc, OnceLock, Weak};

use core::sync::atomic::Ordering::{AcqRel, Release};

use super::alarms::Alarms;
use super::batch::{Batch, Ready, Trigger};
use super::fifo::Fifo;
use super::item::{Item, Place, Readiness};
use super::list::{List, OUTSIDE, SLEEPERS, Watchers};
use super::outside::Descriptor;
use super::request::Request;
use super::source::RawSource;
use crate::mutex::{Mutex, MutexGuard};
use crate::platform::{AtomicCell, AtomicInt, PlainCell, Platform};

/// What is to be reported of a source, and when.
pub(super) struct Report {
    pub(super) token: u64,
    pub(super) interest: Readiness,
    pub(super) trigger: Trigger,
}

/// Whether somebody watches a poll from outside: by its descriptor, or as an outer poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// Nobody.
    Never,
    /// Yes, and is told of the next push.
    Armed,
    /// Yes, and was told.
    Raised,
}

/// What the consumers share under the consumer lock, see the module.
pub(super) struct Consumers<P: Platform> {
    fifo: Fifo<P>,
    /// All registered items; each knows its index.
    pub(super) items: Vec<*const Item<P>>,
    /// Those of them that become ready at a moment of the clock.
    pub(super) alarms: Alarms,
    /// How many sleep, or are about to, or were woken and have not taken the lock since.
    pub(super) sleepers: u32,
    pub(super) watched: Watched,
    pub(super) closed: bool,
}

// SAFETY: its pointers lead to registered items, which are alive (invariant 4) and may be sent.
unsafe impl<P: Platform> Send for Consumers<P> {}

pub(super) type LockedConsumers<'a, L> =
    MutexGuard<'a, Consumers<<L as List>::Platform>, <L as List>::Platform>;

/// What a poll and its sources share: a cache line that producers write, and two that consumers do.
#[repr(C, align(64))]
pub struct Shared<L: List> {
    // ---- the first line: a consumer that asks to be told, and a producer that tells it, write the
    // list, too ----
    pub(super) list: L,
    /// Consumers sleep on it; counts the wake-ups.
    pub(super) wake_ups: <L::Platform as Platform>::AtomicU32,
    /// The requests of consumers that sleep.
    to_wake: Request<L::Platform>,
    /// The requests of those that watch from outside.
    to_raise: Request<L::Platform>,
    /// Made when somebody is about to watch from outside for the first time.
    outside: OnceLock<Box<Outside<L>>>,
    // ---- the second and third ----
    pub(super) consumers: Mutex<Consumers<L::Platform>, L::Platform>,
}

/// By what those outside watch a poll.
pub(super) struct Outside<L: List> {
    /// The poll as a source of another one.
    pub(super) source: RawSource<L>,
    /// The poll owns it: sources that outlive the poll do not keep it open.
    pub(super) descriptor: OnceLock<Weak<Descriptor>>,
}

fn readable_unless_zero(level: u64) -> Readiness {
    if level == 0 { Readiness::NONE } else { Readiness::READABLE }
}

impl<L: List> Shared<L> {
    pub(super) fn new() -> Self {
        let consumers = Consumers {
            fifo: Fifo::EMPTY,
            items: Vec::new(),
            alarms: Alarms::NONE,
            sleepers: 0,
            watched: Watched::Never,
            closed: false,
        };
        Shared {
            list: L::NEW,
            wake_ups: AtomicCell::ZERO,
            to_wake: Request::NONE,
            to_raise: Request::NONE,
            outside: OnceLock::new(),
            consumers: Mutex::new_in(consumers),
        }
    }

    // ---- outside ----

    /// By what those outside watch this poll, made now if there is nothing yet.
    pub(super) fn outside(self: &Arc<Self>) -> &Outside<L> {
        self.outside.get_or_init(|| {
            let source = RawSource::of_poll(Arc::downgrade(self), readable_unless_zero);
            Box::new(Outside { source, descriptor: OnceLock::new() })
        })
    }

    /// The poll as a source, if it ever was one.
    pub(super) fn source(&self) -> Option<&RawSource<L>> {
        self.outside.get().map(|outside| &outside.source)
    }

    pub(super) fn descriptor(&self) -> Option<Arc<Descriptor>> {
        self.outside.get()?.descriptor.get().and_then(Weak::upgrade)
    }

    /// Sets the level of the poll as a source.
    fn set_level(&self, level: u64) -> Option<&RawSource<L>> {
        let source = self.source()?;
        source.item.level.swap(level, AcqRel);
        Some(source)
    }

    // ---- telling ----

    /// Tells those that watched the list of a push.
    #[cold]
    pub(super) fn tell(&self, watchers: Watchers) {
        if watchers & SLEEPERS != 0 {
            self.to_wake.answer(|| self.wake());
        }
        if watchers & OUTSIDE != 0 {
            self.to_raise.answer(|| self.raise());
        }
    }

    /// Wakes a consumer.
    pub(super) fn wake(&self) {
        self.wake_ups.fetch_add(1, Release);
        L::Platform::unpark(&self.wake_ups);
    }

    fn raise(&self) {
        if let Some(descriptor) = self.descriptor() {
            descriptor.raise();
        }
        if let Some(source) = self.set_level(1) {
            source.signal();
        }
    }

    fn lower(&self) {
        if let Some(descriptor) = self.descriptor() {
            descriptor.lower();
        }
        self.set_level(0);
    }

    /// From now on somebody watches from outside.
    pub(super) fn begin_to_be_watched(&self) {
        let mut consumers = self.consumers.lock();
        // Perhaps nothing is ready: then the next wait lowers it.
        self.raise();
        consumers.watched = Watched::Raised;
        self.tell_alarms(&mut consumers);
    }

    /// Whether this poll is `other`, or inside it at any depth.
    pub(super) fn is_inside(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let mut poll = Some(Arc::clone(self));
        while let Some(inner) = poll {
            if Arc::ptr_eq(&inner, other) {
                return true;
            }
            poll = inner.source().and_then(|source| source.registration.lock().clone());
        }
        false
    }

    // ---- under the consumer lock ----

    /// Moves everything from the list to the FIFO.
    pub(super) fn collect(&self, consumers: &mut LockedConsumers<'_, L>) {
        let consumers = &mut **consumers;
        let survey = self.list.take(|item| {
            // SAFETY: on the list, so registered (invariant 4), and a registered item is alive.
            let item = unsafe { &*item };
            if item.place() == Place::Surveyed {
                item.set_place(Place::Held);
            } else {
                // SAFETY: `remove` and `close` take it off the FIFO before its source may move or
                // end.
                unsafe { consumers.fifo.append(item, Place::Held) };
            }
        });
        if survey {
            self.survey(consumers);
        }
    }

    /// Asks to be told of the next push, for `watchers` and for those outside that have not been
    /// told yet: emptying the list also took their requests off. False if the list is not empty.
    pub(super) fn watch(&self, consumers: &LockedConsumers<'_, L>, mut watchers: Watchers) -> bool {
        if watchers & SLEEPERS != 0 {
            self.to_wake.ask();
        }
        if consumers.watched == Watched::Armed {
            watchers |= OUTSIDE;
            self.to_raise.ask();
        }
        watchers == 0 || self.list.watch(watchers)
    }

    /// Moves items to the FIFO that a producer is linking, or has linked since the list was
    /// emptied; see `lock_free.rs`.
    #[cold]
    fn survey(&self, consumers: &mut Consumers<L::Platform>) {
        for &item in &consumers.items {
            // SAFETY: `items` has registered items only, which are alive.
            let item = unsafe { &*item };
            if item.place() == Place::Elsewhere && item.is_claimed() {
                // SAFETY: `remove` and `close` take it off the FIFO before its source may move or
                // end.
                unsafe { consumers.fifo.append(item, Place::Surveyed) };
            }
        }
    }

    /// Puts an item that may be ready into the FIFO, unless it is on the list or will be.
    pub(super) fn queue(consumers: &mut Consumers<L::Platform>, item: &Item<L::Platform>) {
        if item.place() != Place::Elsewhere {
            return;
        }
        let place = Self::keep(item);
        if place != Place::Elsewhere {
            // SAFETY: `remove` and `close` take it off the FIFO before its source may move or end.
            unsafe { consumers.fifo.append(item, place) };
        }
    }

    /// What is to be reported of an item.
    fn readiness_of(item: &Item<L::Platform>) -> Readiness {
        if !item.is_live() {
            return Readiness::NONE;
        }
        let asked = Readiness::from_bits(item.keep.interest.get()) | Readiness::CLOSED;
        item.readiness() & asked
    }

    /// Goes once round the FIFO, or until the batch is full.
    pub(super) fn report(&self, consumers: &mut Consumers<L::Platform>, batch: &mut Batch) {
        for _ in 0..consumers.fifo.len() {
            if batch.is_full() {
                return;
            }
            let Some((item, place)) = consumers.fifo.take_oldest() else { return };
            let item: *const Item<L::Platform> = item;
            // SAFETY: in the FIFO, so registered (invariant 4) and alive. Without the FIFO's
            // borrow, so that the item can be appended again.
            let item = unsafe { &*item };
            let trigger = Trigger::from_bits(item.keep.trigger.get());
            let (readiness, place) = match place {
                Place::Held => Self::look(item, trigger),
                Place::Surveyed | Place::Elsewhere => {
                    let readiness = Self::readiness_of(item);
                    let stays = trigger == Trigger::Level && !readiness.is_empty();
                    (readiness, if stays { place } else { Place::Elsewhere })
                }
            };
            if place != Place::Elsewhere {
                // SAFETY: `remove` and `close` take it off the FIFO before its source may move or
                // end.
                unsafe { consumers.fifo.append(item, place) };
            }
            if !readiness.is_empty() {
                if trigger == Trigger::Once {
                    item.disable();
                }
                batch.ready.push(Ready { token: item.keep.token.get(), readiness });
            }
        }
    }

    /// What to report of a held item, and where the item is afterwards.
    fn look(item: &Item<L::Platform>, trigger: Trigger) -> (Readiness, Place) {
        if trigger == Trigger::Level {
            let readiness = Self::readiness_of(item);
            if !readiness.is_empty() {
                return (readiness, Place::Held);
            }
        }
        // Released first, then looked at: a producer that changes the level in between queues the
        // item.
        let early = L::FLAWS.looks_too_early.then(|| Self::readiness_of(item));
        if L::FLAWS.releases_in_two_steps {
            item.release_in_two_steps();
        } else {
            item.release();
        }
        let readiness = early.unwrap_or_else(|| Self::readiness_of(item));
        let stays = trigger == Trigger::Level && !readiness.is_empty();
        (readiness, if stays { Self::keep(item) } else { Place::Elsewhere })
    }

    /// Where to keep an item that is elsewhere and ready: with the consumers, unless it is on the
    /// list. An item that a producer is linking may take long to get there, so that one is
    /// surveyed.
    fn keep(item: &Item<L::Platform>) -> Place {
        if item.claim() {
            Place::Held
        } else if item.is_being_linked() {
            Place::Surveyed
        } else {
            Place::Elsewhere
        }
    }

    /// Releases the consumer lock. If something may still be ready, wakes one that sleeps; else
    /// asks the list to be told, so that invariants 1 to 3 hold.
    pub(super) fn release(&self, mut consumers: LockedConsumers<'_, L>) {
        let is_watched = consumers.watched != Watched::Never;
        let mut has_more = !consumers.fifo.is_empty();
        let lowers = is_watched && !has_more;
        if !has_more {
            if is_watched {
                // Even if it is armed: a producer that is preempted before it raises the poll may
                // do so only now.
                self.lower();
                consumers.watched = Watched::Armed;
            }
            let sleep = consumers.sleepers > 0 && !L::FLAWS.forgets_sleepers;
            let watchers = if sleep { SLEEPERS } else { 0 };
            has_more = !self.watch(&consumers, watchers);
        }
        if has_more && consumers.watched == Watched::Armed {
            self.raise();
            consumers.watched = Watched::Raised;
        }
        // After the poll was lowered: an alarm that is due raises it.
        let wakes = self.see_to_alarms(&mut consumers, lowers);
        let wakes = wakes || has_more && consumers.sleepers > 0 && !L::FLAWS.calls_nobody;
        drop(consumers);
        if wakes {
            self.wake();
        }
    }

    // ---- registration ----

    /// Adds an item to the poll and sets what is reported of it, both under one lock, so that no
    /// consumer reports it with what was set before.
    pub(super) fn add(&self, item: &Item<L::Platform>, home: *const Self, report: Report) {
        let mut consumers = self.consumers.lock();
        let index =
            u32::try_from(consumers.items.len()).expect("a poll has fewer than 2^32 sources");
        item.keep.index.set(index);
        consumers.items.push(item);
        consumers.alarms.insert(item);
        item.attach(home.cast());
        self.set(consumers, item, report);
    }

    /// Sets what is reported of a registered item, and queues it if it is ready already.
    pub(super) fn set(
        &self,
        mut consumers: LockedConsumers<'_, L>,
        item: &Item<L::Platform>,
        report: Report,
    ) {
        item.keep.token.set(report.token);
        item.keep.interest.set(report.interest.bits());
        item.keep.trigger.set(report.trigger.to_bits());
        // Sources that were signalled before come before it.
        self.collect(&mut consumers);
        item.enable();
        L::Platform::fence_after_update();
        if !Self::readiness_of(item).is_empty() {
            Self::queue(&mut consumers, item);
        }
        self.release(consumers);
    }

    /// Removes an item. The poll does not touch it afterwards.
    pub(super) fn remove(&self, item: &Item<L::Platform>) {
        Self::detach(item);
        let mut consumers = self.consumers.lock();
        if consumers.closed {
            return;
        }
        self.collect(&mut consumers);
        if item.place() != Place::Elsewhere {
            consumers.fifo.remove(item);
            item.release();
        }
        consumers.alarms.remove(item);
        let index = item.keep.index.get();
        consumers.items.swap_remove(index as usize);
        if let Some(&moved) = consumers.items.get(index as usize) {
            // SAFETY: `items` has registered items only, which are alive.
            let moved = unsafe { &*moved };
            consumers.alarms.remove(moved);
            moved.keep.index.set(index);
            consumers.alarms.insert(moved);
        }
        // What else was on the list is in the FIFO now, and the producers that put it there may
        // tell nobody.
        self.release(consumers);
    }

    /// From now on no signal of the item touches the poll. Waits for those that are under way.
    fn detach(item: &Item<L::Platform>) {
        item.detach();
        let mut attempt = 0;
        while !item.is_left() && !L::FLAWS.leaves_at_once {
            L::Platform::give_way(attempt);
            attempt += 1;
        }
    }

    /// Releases all items: the poll ends.
    pub(super) fn close(&self) {
        let mut consumers = self.consumers.lock();
        consumers.closed = true;
        consumers.alarms.clear();
        for item in std::mem::take(&mut consumers.items) {
            // SAFETY: registered, so alive: to remove it, its source takes the consumer lock first.
            Self::detach(unsafe { &*item });
        }
        self.collect(&mut consumers);
        while let Some((item, _)) = consumers.fifo.take_oldest() {
            item.release();
        }
    }
}

#[cfg(target_pointer_width = "64")]
#[cfg(not(loom))]
const _: () = {
    use crate::{hold::IdentityOf, platform::Os};
    // Numbers of locks take room.
    let has_numbers = size_of::<IdentityOf<Os>>() > 0;
    assert!(has_numbers || size_of::<Shared<super::ReadyList>>() == 192, "three cache lines");
};
#[cfg(target_pointer_width = "64")]
const _: () = assert!(core::mem::offset_of!(Shared<super::ReadyList>, consumers) == 64);
