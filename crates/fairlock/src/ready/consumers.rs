//! The consumers' side: which sources a poll has, which of them are ready, and who sleeps until one is.
//!
//! Consumers take turns at the *desk*, a lock that is never held while somebody sleeps or while user code
//! runs. A wait
//! 1. takes all items off the list and appends them to the desk's FIFO, the oldest first;
//! 2. goes once round the FIFO: an item that is ready is reported. One that is to be reported again while
//!    it is ready stays, at the end, and still counts as queued, so that its producers have nothing to do;
//!    the others leave;
//! 3. with nothing to report, it asks the list to be told of the next push, and sleeps, until the first
//!    timer's time at most (`alarms.rs`).
//!
//! Invariants
//! 1. If an item is on the list or in the FIFO and a consumer sleeps, then one was called and has not been
//!    at the desk since, or somebody is about to call one: a producer that has put something on the list, or
//!    a consumer that leaves the desk. So it is never so that something is ready, everybody sleeps, and no
//!    wake-up is on its way. *Every* producer that puts something on the list that is watched sees to the
//!    call, so that one that is preempted before it delays no other's.
//! 2. If consumers sleep, and there is nothing on the list or in the FIFO, the list knows that they watch,
//!    or one was called and has not been at the desk since.
//! 3. The same with the descriptor, or the poll that this one is in, for consumers that sleep: it is
//!    raised, or about to be, or the list knows that it watches.
//! 4. A source that is not registered, or whose poll is gone, is in no FIFO and on no list.
//! 5. An item that was surveyed stays queued: its links on the list are somebody else's.

use std::sync::{Arc, OnceLock, Weak};

use core::sync::atomic::Ordering::{AcqRel, Release};

use lock_api::{Mutex, MutexGuard};

use super::alarms::Alarms;
use super::batch::{Batch, Ready, Trigger};
use super::fifo::Fifo;
use super::item::{Item, Place, Readiness};
use super::list::{List, OUTSIDE, SLEEPERS, Watchers};
use super::outside::Descriptor;
use super::request::Request;
use super::source::RawSource;
use crate::mutex::RawMutex;
use crate::platform::{AtomicCell, AtomicInt, PlainCell, Platform};

/// What is to be reported of a source, and when.
pub(super) struct Report {
    pub(super) token: u64,
    pub(super) interest: Readiness,
    pub(super) trigger: Trigger,
}

/// Who waits outside for a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// Nobody.
    Never,
    /// Somebody, who is told of the next push.
    Armed,
    /// Somebody, who was told.
    Raised,
}

/// What the consumers share, see the module.
pub(super) struct Consumers<P: Platform> {
    fifo: Fifo<P>,
    /// All items; each knows its index.
    pub(super) items: Vec<*const Item<P>>,
    /// Those of them that become ready by themselves.
    pub(super) alarms: Alarms,
    /// So many sleep, or are about to, or were called and have not been here since.
    pub(super) sleepers: u32,
    pub(super) watched: Watched,
    pub(super) closed: bool,
}

// SAFETY: pointers to items, which may be sent and are registered, and so alive.
unsafe impl<P: Platform> Send for Consumers<P> {}

pub(super) type LockedConsumers<'a, L> =
    MutexGuard<'a, RawMutex<<L as List>::Platform>, Consumers<<L as List>::Platform>>;

/// What a poll and its sources share.
pub struct Shared<L: List> {
    pub(super) list: L,
    /// Consumers sleep on it; counts the calls.
    pub(super) calls: <L::Platform as Platform>::AtomicU32,
    /// Of consumers that sleep.
    to_call: Request<L::Platform>,
    /// Of those who watch from outside.
    to_raise: Request<L::Platform>,
    pub(super) consumers: Mutex<RawMutex<L::Platform>, Consumers<L::Platform>>,
    /// The poll as a source of another one.
    pub(super) source: RawSource<L>,
    /// Its own is the [`RawPoll`], or sources that outlive that would keep it open.
    pub(super) descriptor: OnceLock<Weak<Descriptor>>,
}

fn readable_unless_zero(level: u64) -> Readiness {
    if level == 0 { Readiness::NONE } else { Readiness::READABLE }
}

impl<L: List> Shared<L> {
    pub(super) fn new(this: Weak<Self>) -> Self {
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
            calls: AtomicCell::ZERO,
            to_call: Request::NONE,
            to_raise: Request::NONE,
            consumers: Mutex::from_raw(RawMutex::NEW, consumers),
            source: RawSource::of_poll(this, readable_unless_zero),
            descriptor: OnceLock::new(),
        }
    }

    // ---- telling ----

    /// Tells those who watched the list of a push.
    #[cold]
    pub(super) fn tell(&self, watchers: Watchers) {
        if watchers & SLEEPERS != 0 {
            self.to_call.answer(|| self.call());
        }
        if watchers & OUTSIDE != 0 {
            self.to_raise.answer(|| self.raise());
        }
    }

    /// Wakes a consumer.
    pub(super) fn call(&self) {
        self.calls.fetch_add(1, Release);
        L::Platform::unpark(&self.calls);
    }

    pub(super) fn descriptor(&self) -> Option<Arc<Descriptor>> {
        self.descriptor.get().and_then(Weak::upgrade)
    }

    fn raise(&self) {
        if let Some(descriptor) = self.descriptor() {
            descriptor.raise();
        }
        self.source.item.level.swap(1, AcqRel);
        self.source.signal();
    }

    fn lower(&self) {
        if let Some(descriptor) = self.descriptor() {
            descriptor.lower();
        }
        self.source.item.level.swap(0, AcqRel);
    }

    /// From now on somebody outside is told.
    pub(super) fn begin_to_be_watched(&self) {
        let mut consumers = self.consumers.lock();
        // Perhaps in vain: then the next wait lowers it.
        self.raise();
        consumers.watched = Watched::Raised;
        self.tell_alarms(&mut consumers);
    }

    /// Whether this is that poll, or is in it, or in one that is in it and so on.
    pub(super) fn is_inside(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let mut poll = Some(Arc::clone(self));
        while let Some(inner) = poll {
            if Arc::ptr_eq(&inner, other) {
                return true;
            }
            poll = inner.source.registration.lock().clone();
        }
        false
    }

    // ---- at the consumers ----

    /// Everything that is on the list comes into the FIFO.
    pub(super) fn collect(&self, consumers: &mut LockedConsumers<'_, L>) {
        let consumers = &mut **consumers;
        let survey = self.list.take(|item| {
            // SAFETY: on the list, so registered, and alive until it is taken off.
            let item = unsafe { &*item };
            if item.place() == Place::Surveyed {
                item.set_place(Place::Held);
            } else {
                // SAFETY: it leaves the FIFO before it is deregistered.
                unsafe { consumers.fifo.append(item, Place::Held) };
            }
        });
        if survey {
            self.survey(consumers);
        }
    }

    /// Asks to be told of the next push, for `watchers` and for whoever watches from outside and has not
    /// been told: what was taken off the list took their requests along. False if there is something to
    /// take.
    pub(super) fn watch(&self, consumers: &LockedConsumers<'_, L>, mut watchers: Watchers) -> bool {
        if watchers & SLEEPERS != 0 {
            self.to_call.ask();
        }
        if consumers.watched == Watched::Armed {
            watchers |= OUTSIDE;
            self.to_raise.ask();
        }
        watchers == 0 || self.list.watch(watchers)
    }

    /// Items that somebody is linking, or has linked since everything was taken off the list, come into the
    /// FIFO too, see `lock_free.rs`.
    #[cold]
    fn survey(&self, consumers: &mut Consumers<L::Platform>) {
        for &item in &consumers.items {
            // SAFETY: registered, so alive.
            let item = unsafe { &*item };
            if item.place() == Place::Elsewhere && item.is_claimed() {
                // SAFETY: it leaves the FIFO before it is deregistered.
                unsafe { consumers.fifo.append(item, Place::Surveyed) };
            }
        }
    }

    /// An item that may be ready comes into the FIFO, unless it is on the list or will be.
    pub(super) fn queue(consumers: &mut Consumers<L::Platform>, item: &Item<L::Platform>) {
        if item.place() != Place::Elsewhere {
            return;
        }
        let place = Self::keep(item);
        if place != Place::Elsewhere {
            // SAFETY: it leaves the FIFO before it is deregistered.
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
            // SAFETY: registered, so alive. Detached from the FIFO's borrow to be appended again.
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
                // SAFETY: it leaves the FIFO before it is deregistered.
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

    /// What is to be reported of a held item, and where it is afterwards.
    fn look(item: &Item<L::Platform>, trigger: Trigger) -> (Readiness, Place) {
        if trigger == Trigger::Level {
            let readiness = Self::readiness_of(item);
            if !readiness.is_empty() {
                return (readiness, Place::Held);
            }
        }
        // Let go first, look then: what a producer does in between makes it queue the item.
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

    /// Where an item is to be that is elsewhere and ready: with the consumers, unless it is on the list. One
    /// that somebody links may not come there soon.
    fn keep(item: &Item<L::Platform>) -> Place {
        if item.claim() {
            Place::Held
        } else if item.is_being_linked() {
            Place::Surveyed
        } else {
            Place::Elsewhere
        }
    }

    /// Whoever leaves the consumers sees to those who sleep.
    pub(super) fn leave(&self, mut consumers: LockedConsumers<'_, L>) {
        let is_watched = consumers.watched != Watched::Never;
        let mut comes_more = !consumers.fifo.is_empty();
        let lowers = is_watched && !comes_more;
        if !comes_more {
            if is_watched {
                // Even if it is armed: one that was told long ago may raise it only now.
                self.lower();
                consumers.watched = Watched::Armed;
            }
            let sleep = consumers.sleepers > 0 && !L::FLAWS.forgets_sleepers;
            let watchers = if sleep { SLEEPERS } else { 0 };
            comes_more = !self.watch(&consumers, watchers);
        }
        if comes_more && consumers.watched == Watched::Armed {
            self.raise();
            consumers.watched = Watched::Raised;
        }
        // After it was lowered: an alarm that is due raises it.
        let calls = self.see_to_alarms(&mut consumers, lowers);
        let calls = calls || comes_more && consumers.sleepers > 0 && !L::FLAWS.calls_nobody;
        drop(consumers);
        if calls {
            self.call();
        }
    }

    // ---- registration ----

    /// Makes an item one of the poll's, and sets what is reported of it: at once, so that nobody reports it
    /// as what it was before.
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

    /// Sets what is reported of a registered item, and looks whether it is ready already.
    pub(super) fn set(
        &self,
        mut consumers: LockedConsumers<'_, L>,
        item: &Item<L::Platform>,
        report: Report,
    ) {
        item.keep.token.set(report.token);
        item.keep.interest.set(report.interest.bits());
        item.keep.trigger.set(report.trigger.to_bits());
        // What was signalled before comes before it.
        self.collect(&mut consumers);
        item.enable();
        L::Platform::fence_after_update();
        if !Self::readiness_of(item).is_empty() {
            Self::queue(&mut consumers, item);
        }
        self.leave(consumers);
    }

    /// Takes an item out. Nothing of it is touched by the poll afterwards.
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
            // SAFETY: registered, so alive.
            let moved = unsafe { &*moved };
            consumers.alarms.remove(moved);
            moved.keep.index.set(index);
            consumers.alarms.insert(moved);
        }
        // What else was on the list is in the FIFO now, and those who put it there may not tell anybody.
        self.leave(consumers);
    }

    /// Nobody signals the item any more, or is about to touch the poll because of it.
    fn detach(item: &Item<L::Platform>) {
        item.detach();
        let mut attempt = 0;
        while !item.is_left() && !L::FLAWS.leaves_at_once {
            L::Platform::give_way(attempt);
            attempt += 1;
        }
    }

    /// The poll is gone: lets go of all items.
    pub(super) fn close(&self) {
        let mut consumers = self.consumers.lock();
        consumers.closed = true;
        consumers.alarms.clear();
        for item in std::mem::take(&mut consumers.items) {
            // SAFETY: registered, so alive: who removes it has to come to the consumers first.
            Self::detach(unsafe { &*item });
        }
        self.collect(&mut consumers);
        while let Some((item, _)) = consumers.fifo.take_oldest() {
            item.release();
        }
    }
}

/// A poll without its sources.
const _: () = assert!(size_of::<Shared<super::ReadyList>>() <= 512);
