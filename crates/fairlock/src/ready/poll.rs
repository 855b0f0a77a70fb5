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

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use lock_api::{Mutex, MutexGuard};

use super::alarms::Alarms;
use super::fifo::Fifo;
use super::item::{Item, Place, Readiness};
use super::list::{List, OUTSIDE, SLEEPERS, Watchers};
use super::lock_free::ReadyList;
use super::nesting::HasNesting;
use super::outside::Descriptor;
use super::request::Request;
use super::source::{RawSource, Source};
use crate::mutex::RawMutex;
use crate::platform::{AtomicCell, AtomicInt, Os, PlainCell, Platform, after};
use crate::spin_budget::SpinBudget;

/// When a registered source is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// By every wait for as long as it is ready.
    Level,
    /// By one wait for each signal, or for several signals together, if it is ready then. Also once after
    /// it was registered or modified.
    Edge,
    /// Once; then it is silent until [`RawPoll::modify`].
    Once,
}

impl Trigger {
    fn to_bits(self) -> u32 {
        self as u32
    }

    fn from_bits(bits: u32) -> Trigger {
        match bits {
            0 => Trigger::Level,
            1 => Trigger::Edge,
            _ => Trigger::Once,
        }
    }
}

/// What is to be reported of a source, and when.
struct Report {
    token: u64,
    interest: Readiness,
    trigger: Trigger,
}

/// One source that a wait found ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// What it was registered with.
    pub token: u64,
    /// What it is ready for, of what was asked for.
    pub readiness: Readiness,
}

/// Room for what one wait reports.
///
/// ```
/// use fairlock::ready::Batch;
/// let batch = Batch::with_capacity(64);
/// assert!(batch.is_empty());
/// ```
#[derive(Debug)]
pub struct Batch {
    ready: Vec<Ready>,
    most: usize,
}

impl Batch {
    /// Room for so many; a wait reports no more, and the others next time.
    ///
    /// # Panics
    /// If it is zero: a wait could never end.
    pub fn with_capacity(most: usize) -> Batch {
        assert!(most > 0, "a batch needs room for one ready source at least");
        Batch { ready: Vec::with_capacity(most), most }
    }

    /// What the last wait reported, in the order in which it became ready.
    pub fn iter(&self) -> std::slice::Iter<'_, Ready> {
        self.ready.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// The last wait reported nothing.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    fn is_full(&self) -> bool {
        self.ready.len() == self.most
    }
}

/// With room for as many.
impl Clone for Batch {
    fn clone(&self) -> Batch {
        let mut batch = Batch::with_capacity(self.most);
        batch.ready.extend_from_slice(&self.ready);
        batch
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = &'a Ready;
    type IntoIter = std::slice::Iter<'a, Ready>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

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
pub(super) struct Desk<P: Platform> {
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
unsafe impl<P: Platform> Send for Desk<P> {}

pub(super) type AtDesk<'a, L> =
    MutexGuard<'a, RawMutex<<L as List>::Platform>, Desk<<L as List>::Platform>>;

/// What a poll and its sources share.
pub struct Shared<L: List> {
    pub(super) list: L,
    /// Consumers sleep on it; counts the calls.
    calls: <L::Platform as Platform>::AtomicU32,
    /// Of consumers that sleep.
    to_call: Request<L::Platform>,
    /// Of those who watch from outside.
    to_raise: Request<L::Platform>,
    pub(super) desk: Mutex<RawMutex<L::Platform>, Desk<L::Platform>>,
    /// The poll as a source of another one.
    pub(super) source: RawSource<L>,
    /// Its own is the [`RawPoll`], or sources that outlive that would keep it open.
    descriptor: OnceLock<Weak<Descriptor>>,
}

fn readable_unless_zero(level: u64) -> Readiness {
    if level == 0 { Readiness::NONE } else { Readiness::READABLE }
}

impl<L: List> Shared<L> {
    fn new(this: Weak<Self>) -> Self {
        let desk = Desk {
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
            desk: Mutex::from_raw(RawMutex::NEW, desk),
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
    fn begin_to_be_watched(&self) {
        let mut desk = self.desk.lock();
        // Perhaps in vain: then the next wait lowers it.
        self.raise();
        desk.watched = Watched::Raised;
        self.tell_alarms(&mut desk);
    }

    /// Whether this is that poll, or is in it, or in one that is in it and so on.
    fn is_inside(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let mut poll = Some(Arc::clone(self));
        while let Some(inner) = poll {
            if Arc::ptr_eq(&inner, other) {
                return true;
            }
            poll = inner.source.registration.lock().clone();
        }
        false
    }

    // ---- at the desk ----

    /// Everything that is on the list comes into the FIFO.
    pub(super) fn collect(&self, desk: &mut AtDesk<'_, L>) {
        let desk = &mut **desk;
        let survey = self.list.take(|item| {
            // SAFETY: on the list, so registered, and alive until it is taken off.
            let item = unsafe { &*item };
            if item.place() == Place::Surveyed {
                item.set_place(Place::Held);
            } else {
                // SAFETY: it leaves the FIFO before it is deregistered.
                unsafe { desk.fifo.append(item, Place::Held) };
            }
        });
        if survey {
            self.survey(desk);
        }
    }

    /// Asks to be told of the next push, for `watchers` and for whoever watches from outside and has not
    /// been told: what was taken off the list took their requests along. False if there is something to
    /// take.
    fn watch(&self, desk: &AtDesk<'_, L>, mut watchers: Watchers) -> bool {
        if watchers & SLEEPERS != 0 {
            self.to_call.ask();
        }
        if desk.watched == Watched::Armed {
            watchers |= OUTSIDE;
            self.to_raise.ask();
        }
        watchers == 0 || self.list.watch(watchers)
    }

    /// Items that somebody is linking, or has linked since everything was taken off the list, come into the
    /// FIFO too, see `lock_free.rs`.
    #[cold]
    fn survey(&self, desk: &mut Desk<L::Platform>) {
        for &item in &desk.items {
            // SAFETY: registered, so alive.
            let item = unsafe { &*item };
            if item.place() == Place::Elsewhere && item.is_claimed() {
                // SAFETY: it leaves the FIFO before it is deregistered.
                unsafe { desk.fifo.append(item, Place::Surveyed) };
            }
        }
    }

    /// An item that may be ready comes into the FIFO, unless it is on the list or will be.
    pub(super) fn queue(desk: &mut Desk<L::Platform>, item: &Item<L::Platform>) {
        if item.place() != Place::Elsewhere {
            return;
        }
        let place = Self::keep(item);
        if place != Place::Elsewhere {
            // SAFETY: it leaves the FIFO before it is deregistered.
            unsafe { desk.fifo.append(item, place) };
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
    fn report(&self, desk: &mut Desk<L::Platform>, batch: &mut Batch) {
        for _ in 0..desk.fifo.len() {
            if batch.is_full() {
                return;
            }
            let Some((item, place)) = desk.fifo.take_oldest() else { return };
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
                unsafe { desk.fifo.append(item, place) };
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

    /// Whoever leaves the desk sees to those who sleep.
    fn leave(&self, mut desk: AtDesk<'_, L>) {
        let is_watched = desk.watched != Watched::Never;
        let mut comes_more = !desk.fifo.is_empty();
        let lowers = is_watched && !comes_more;
        if !comes_more {
            if is_watched {
                // Even if it is armed: one that was told long ago may raise it only now.
                self.lower();
                desk.watched = Watched::Armed;
            }
            let sleep = desk.sleepers > 0 && !L::FLAWS.forgets_sleepers;
            let watchers = if sleep { SLEEPERS } else { 0 };
            comes_more = !self.watch(&desk, watchers);
        }
        if comes_more && desk.watched == Watched::Armed {
            self.raise();
            desk.watched = Watched::Raised;
        }
        // After it was lowered: an alarm that is due raises it.
        let calls = self.see_to_alarms(&mut desk, lowers);
        let calls = calls || comes_more && desk.sleepers > 0 && !L::FLAWS.calls_nobody;
        drop(desk);
        if calls {
            self.call();
        }
    }

    // ---- registration ----

    /// Makes an item one of the poll's, and sets what is reported of it: at once, so that nobody reports it
    /// as what it was before.
    fn add(&self, item: &Item<L::Platform>, home: *const Self, report: Report) {
        let mut desk = self.desk.lock();
        let index = u32::try_from(desk.items.len()).expect("a poll has fewer than 2^32 sources");
        item.keep.index.set(index);
        desk.items.push(item);
        desk.alarms.insert(item);
        item.attach(home.cast());
        self.set(desk, item, report);
    }

    /// Sets what is reported of a registered item, and looks whether it is ready already.
    fn set(&self, mut desk: AtDesk<'_, L>, item: &Item<L::Platform>, report: Report) {
        item.keep.token.set(report.token);
        item.keep.interest.set(report.interest.bits());
        item.keep.trigger.set(report.trigger.to_bits());
        // What was signalled before comes before it.
        self.collect(&mut desk);
        item.enable();
        L::Platform::fence_after_update();
        if !Self::readiness_of(item).is_empty() {
            Self::queue(&mut desk, item);
        }
        self.leave(desk);
    }

    /// Takes an item out. Nothing of it is touched by the poll afterwards.
    pub(super) fn remove(&self, item: &Item<L::Platform>) {
        Self::detach(item);
        let mut desk = self.desk.lock();
        if desk.closed {
            return;
        }
        self.collect(&mut desk);
        if item.place() != Place::Elsewhere {
            desk.fifo.remove(item);
            item.release();
        }
        desk.alarms.remove(item);
        let index = item.keep.index.get();
        desk.items.swap_remove(index as usize);
        if let Some(&moved) = desk.items.get(index as usize) {
            // SAFETY: registered, so alive.
            let moved = unsafe { &*moved };
            desk.alarms.remove(moved);
            moved.keep.index.set(index);
            desk.alarms.insert(moved);
        }
        // What else was on the list is in the FIFO now, and those who put it there may not tell anybody.
        self.leave(desk);
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
    fn close(&self) {
        let mut desk = self.desk.lock();
        desk.closed = true;
        desk.alarms.clear();
        for item in std::mem::take(&mut desk.items) {
            // SAFETY: registered, so alive: who removes it has to come to the desk first.
            Self::detach(unsafe { &*item });
        }
        self.collect(&mut desk);
        while let Some((item, _)) = desk.fifo.take_oldest() {
            item.release();
        }
    }
}

/// Waits for the first of many sources, on [`ReadyList`].
///
/// What epoll is for descriptors, this is for sources in user space: signalling one is some ten to twenty
/// nanoseconds, without a system call unless somebody sleeps. It has a descriptor, so that it can itself be
/// waited for in epoll, mio or tokio.
///
/// Share it by reference or in an `Arc`; all its functions may be called from many threads.
///
/// # Guarantees
/// * A wait that begins after a signal has returned reports its source, if it is still ready then and there
///   is room for it; also if another producer was preempted in the middle of a signal.
/// * A signal never waits for another thread. A wait, and registering, wait for other consumers at most,
///   which hold a lock for as long as they go through what is ready, and never while they sleep.
/// * Sources are reported in the order in which they became ready; one that stays ready goes to the end
///   after each report. With N sources ready, each is reported within N waits, whatever the batch's size.
/// * [`Trigger::Level`] wakes all that wait, one after the other, while the source is ready;
///   [`Trigger::Edge`] wakes one. A signal gives at least one report, [`Trigger::Once`] at most one.
/// * After [`deregister`](RawPoll::deregister) or dropping a source nothing of it is reported, and nobody
///   touches it. Both wait for signals of that source that are under way in other threads.
/// * No allocation but when a source is registered, or a timer set or its next period begun.
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
    descriptor: OnceLock<Arc<Descriptor>>,
}

impl<L: List> RawPoll<L> {
    /// A poll without sources.
    pub fn new() -> Self {
        RawPoll {
            shared: Arc::new_cyclic(|this| Shared::new(Weak::clone(this))),
            descriptor: OnceLock::new(),
        }
    }

    /// Waits for `source` from now on, and reports it as `token` when it is ready for some of `interest`.
    ///
    /// # Errors
    /// [`PollError::Registered`] if the source has a poll, this or another; [`PollError::Cycle`] if the
    /// source is this poll, or one that this poll is in, at whatever depth.
    pub fn register(
        &self,
        source: &impl Source<L>,
        token: u64,
        interest: Readiness,
        trigger: Trigger,
    ) -> Result<(), PollError> {
        let raw = source.source();
        let nested = raw.poll.upgrade();
        // Held until it is registered, or two threads could make a circle of two polls.
        let _nesting = nested.as_ref().map(|_| L::Platform::nesting().lock());
        if nested.as_ref().is_some_and(|nested| self.shared.is_inside(nested)) {
            return Err(PollError::Cycle);
        }
        let mut registration = raw.registration.lock();
        if registration.as_ref().is_some_and(|shared| !shared.desk.lock().closed) {
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

    /// Changes what is reported of a source, and looks anew: one that is ready is reported once more,
    /// whatever the trigger.
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
        if !registration.as_ref().is_some_and(|shared| Arc::ptr_eq(shared, &self.shared)) {
            return Err(PollError::NotRegistered);
        }
        let report = Report { token, interest, trigger };
        self.shared.set(self.shared.desk.lock(), &raw.item, report);
        Ok(())
    }

    /// Waits for the source no longer. Nothing of it is reported, by any thread, to a wait that begins
    /// after this has returned.
    ///
    /// # Errors
    /// [`PollError::NotRegistered`] if the source is not in this poll.
    pub fn deregister(&self, source: &impl Source<L>) -> Result<(), PollError> {
        let raw = source.source();
        let mut registration = raw.registration.lock();
        if !registration.as_ref().is_some_and(|shared| Arc::ptr_eq(shared, &self.shared)) {
            return Err(PollError::NotRegistered);
        }
        self.shared.remove(&raw.item);
        *registration = None;
        Ok(())
    }

    /// Waits until a source is ready or the time is over, and fills the batch; answers how many are ready.
    /// Without a timeout it waits for as long as it takes, with a timeout of zero it does not wait at all.
    pub fn wait(&self, batch: &mut Batch, timeout: Option<Duration>) -> usize {
        batch.ready.clear();
        let shared = &*self.shared;
        let (mut sleeps, mut spins) = (timeout != Some(Duration::ZERO), true);
        let deadline = timeout.filter(|_| sleeps).and_then(after::<L::Platform>);
        let mut desk = shared.desk.lock();
        loop {
            shared.collect(&mut desk);
            shared.expire(&mut desk);
            shared.report(&mut desk, batch);
            if !batch.is_empty() || !sleeps {
                break;
            }
            let until = desk.alarms.until(deadline);
            if std::mem::take(&mut spins) {
                drop(desk);
                self.spin(until);
                desk = shared.desk.lock();
                continue;
            }
            // Read before the list is asked: who is told of us counts afterwards. Acquire pairs with the
            // Release in `call`: what we were called for is not overlooked.
            let calls = shared.calls.load(Acquire);
            if !shared.watch(&desk, SLEEPERS) {
                continue;
            }
            desk.sleepers += 1;
            desk.alarms.sleep(until);
            drop(desk);
            L::Platform::park(&shared.calls, calls, until);
            desk = shared.desk.lock();
            desk.sleepers -= 1;
            desk.alarms.wake(until);
            sleeps = deadline.is_none_or(|deadline| L::Platform::now() < deadline);
        }
        shared.leave(desk);
        batch.len()
    }

    /// For as long as a wake-up would take.
    fn spin(&self, deadline: Option<u64>) {
        let mut budget =
            SpinBudget::new::<L::Platform>(L::Platform::wake_latency().into(), deadline);
        while self.shared.list.is_empty() && budget.relax::<L::Platform>() {}
    }
}

impl<L: List<Platform = Os>> RawPoll<L> {
    /// A descriptor that is readable while something may be ready: register it for reading in epoll, mio or
    /// tokio, and call [`wait`](Self::wait) with a timeout of zero when it is. It belongs to the poll: do not
    /// read, write or close it.
    ///
    /// It stays readable until a wait has found nothing more, so with an edge-triggered event loop wait until
    /// nothing is ready: what comes then is a new edge. It may be readable although nothing is ready: at
    /// first, when another consumer was faster, and when a timer was cancelled at the last moment. A wait
    /// that finds nothing ends that.
    ///
    /// Made at the first call, of an eventfd, a timerfd and an epoll descriptor that watches both; only from
    /// then on signals pay for it, and only those that come when nothing was ready. It is closed on exec, and
    /// with the poll.
    ///
    /// # Errors
    /// The system's, where no descriptor can be made: too many are open. Then nothing has changed.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(descriptor) = self.descriptor.get() {
            return Ok(descriptor.as_fd());
        }
        let new = Arc::new(Descriptor::new()?);
        let descriptor = self.descriptor.get_or_init(|| new);
        self.shared.descriptor.get_or_init(|| Arc::downgrade(descriptor));
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
        &self.shared.source
    }
}

impl<L: List> Default for RawPoll<L> {
    fn default() -> Self {
        RawPoll::new()
    }
}

impl<L: List> fmt::Debug for RawPoll<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let desk = self.shared.desk.lock();
        f.debug_struct("Poll")
            .field("sources", &desk.items.len())
            .field("sleepers", &desk.sleepers)
            .finish_non_exhaustive()
    }
}

impl<L: List> Drop for RawPoll<L> {
    fn drop(&mut self) {
        self.shared.source.unregister();
        self.shared.close();
    }
}

/// A poll without its sources.
const _: () = assert!(size_of::<Shared<ReadyList>>() <= 512);
