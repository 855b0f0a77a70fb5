//! The lock: a woken writer competes with newcomers.
//!
//! ```text
//!   word:   63          48        40        23         0
//!            │ generation │  HANDOFF │ writers │ readers │     generation: not 0 while a thread waits
//!
//!   read, write ──► enter? ──► spin? ──► queue ──► sleep ──► the lock is granted (readers), or
//!                                          │         ▲       taken under the list's lock (writers)
//!                                          ▼         │
//!   unlock ──► free, with waiters? ──────► serve ── wake
//! ```
//!
//! After `kernel/locking/rwsem.c`; `mod.rs` says what differs.
//!
//! Invariants
//! 1. At most one writer holds the lock, and then no reader does.
//! 2. The word has a generation exactly while a waiter is on the list, seen under the list's lock. One of another
//!    generation is what a `fork` has left, and means that no thread waits.
//! 3. While the lock is free and a thread waits, some thread is about to serve the list: the one that released the lock last,
//!    or a writer that was woken.
//! 4. Readers are granted the lock by the thread that serves the list. Writers are woken and take the lock themselves, under
//!    the list's lock (but for an immediate handoff). A writer that was woken and finds the lock taken need not be remembered:
//!    the holder sees the list when it releases the lock, and wakes the head again.
//! 5. `HANDOFF` reserves the lock for the head. It is set under the list's lock, by the head itself or by a thread that serves
//!    the list, once the head has waited for long enough. Only the head takes the lock while it is set. It ends
//!    when the head takes the lock, when readers are granted it, or when a waiter gives up.
//! 6. Without `writer_fast_fail` a writer counts itself before it knows whether the lock is free. Once it has
//!    undone that, it serves the threads that took it for the owner: when it enters, queues or gives up.
//! 7. After the operation that releases the lock an unlock touches nothing of it unless a waiter is on the list, which
//!    borrows the lock.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::events::{CountEvents, Event, Snapshot};
use fairlock::inside::{Line, SpinBudget, at_front};
use fairlock::lock_api::{self, GuardNoSend};
use fairlock::platform::{AtomicCell, AtomicInt, Os, Platform};
use fairlock::policy::SPIN_ON_OWNER_NS;
use fairlock::slots::HasRecords;
use fairlock::unguarded::{Refused, UnguardedRwLock};

use super::wait_list::{InLock, LockedList, Node, WAITING, WOKEN, Waiters, Woken};
use super::{
    Handoff, Policy, ReaderWake, SPIN_FOR_EACH_READER, SPIN_ON_READERS, SPIN_ON_READERS_MOST,
    WriterSpin,
};

const READER: u64 = 1;
const READERS: u64 = (1 << 23) - 1;
/// Below this a word says that a reader may enter, and that there is room for one more.
const READER_LIMIT: u64 = 1 << 22;
/// How many readers may hold the lock without guards: further below the limit than readers that check at the same moment
/// could exceed it.
const UNGUARDED_READERS: u64 = READER_LIMIT - (1 << 16);
const WRITER: u64 = 1 << 23;
const WRITERS: u64 = ((1 << 17) - 1) << 23;
const HANDOFF: u64 = 1 << 40;
const GENERATION: u32 = 48;
/// All of it is 0 while no thread waits.
const FLAGS: u64 = HANDOFF | !0 << GENERATION;

/// A reader that may enter past waiters but found a writer looks for another way in after this many ns, at the cost of its
/// place in the queue: longer than any wait outside a cycle. Chosen for that, not measured.
const LOOK_PAST_WAITERS: u64 = 100_000_000;

fn readers(word: u64) -> u64 {
    word & READERS
}

fn has_writer(word: u64) -> bool {
    word & WRITERS != 0
}

fn is_free(word: u64) -> bool {
    word & (READERS | WRITERS) == 0
}

fn plus_reader(word: u64) -> u64 {
    assert!(readers(word) < READER_LIMIT - 1, "more than 4194303 readers hold this lock at once");
    word + READER
}

/// The lock without its data. Use it through `lock_api`, or [without guards](fairlock::unguarded). 32 bytes; 16 with
/// waiters [in a table](super::InTable).
#[repr(C)]
pub struct RawLinuxRwSem<Pol, P: Platform = Os, W: Waiters<P> = InLock<P>> {
    word: P::AtomicU64,
    owner: Owner<P>,
    spinners: Line<P>,
    waiters: W,
    events: P::Counters,
    policy: PhantomData<fn() -> Pol>,
}

/// The lock around data.
pub type LinuxRwSem<T, Pol, P = Os> = lock_api::RwLock<RawLinuxRwSem<Pol, P>, T>;

/// The CPU of the last writer, as [`Platform::cpu`] says it, or [`READERS_OWN`].
struct Owner<P: Platform>(P::AtomicU32);

/// Readers were let in last. It stays when they leave: a writer spins again once another writer has had the lock.
const READERS_OWN: u32 = !1;

impl<P: Platform> Owner<P> {
    fn note_writer(&self) {
        self.0.store(P::cpu(), Relaxed);
    }

    fn note_readers(&self) {
        self.0.store(READERS_OWN, Relaxed);
    }

    fn is_readers(&self) -> bool {
        self.0.load(Relaxed) == READERS_OWN
    }

    /// False only if the writer surely does not run: it had this thread's CPU.
    fn may_run(&self) -> bool {
        let cpu = self.0.load(Relaxed);
        matches!(cpu, 0 | u32::MAX) || cpu != P::cpu()
    }
}

impl<Pol: Policy, P: HasRecords, W: Waiters<P>> RawLinuxRwSem<Pol, P, W> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    pub const NEW: Self = RawLinuxRwSem {
        word: AtomicCell::ZERO,
        owner: Owner(AtomicCell::ZERO),
        spinners: Line::NEW,
        waiters: W::NONE,
        events: P::Counters::NEW,
        policy: PhantomData,
    };

    /// What it has counted; nothing unless its platform counts.
    pub fn events(&self) -> Snapshot {
        Snapshot::of(&self.events)
    }

    // ---- acquire and release ----

    #[inline]
    fn read(&self, deadline: Option<u64>) -> bool {
        self.read_at_once() || self.read_slow(deadline)
    }

    #[inline]
    fn read_at_once(&self) -> bool {
        let word = self.word.load(Relaxed);
        // Acquire pairs with the Release of `unlock_write`.
        word < READER_LIMIT - 1
            && self.word.compare_exchange_weak(word, word + READER, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn write(&self, deadline: Option<u64>) -> bool {
        let is_free = match Pol::KNOBS.writer_fast_fail {
            // Acquire pairs with the Release of every unlock.
            true => self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok(),
            // `write_slow` takes this back.
            false => self.word.fetch_add(WRITER, Acquire) == 0,
        };
        let acquired = is_free || self.write_slow(deadline);
        if acquired {
            self.owner.note_writer();
        }
        acquired
    }

    fn try_read(&self) -> bool {
        self.forget_dead_waiters();
        self.update(Self::with_reader).is_ok_and(|before| self.after_reader_entry(before))
    }

    fn try_write(&self) -> bool {
        self.forget_dead_waiters();
        let entered = self.update(|word| {
            let passes = !has_waiters(word) || Pol::KNOBS.writer_steals && word & HANDOFF == 0;
            (is_free(word) && passes).then_some(word + WRITER)
        });
        if entered.is_ok() {
            self.owner.note_writer();
        }
        entered.is_ok()
    }

    #[inline]
    fn unlock_read(&self) {
        // Release pairs with the Acquire of the next writer.
        let word = self.word.fetch_sub(READER, Release);
        if word >= READER_LIMIT {
            self.released(word - READER);
        }
    }

    #[inline]
    fn unlock_write(&self) {
        // Release pairs with the Acquire of the next holder.
        let word = self.word.fetch_sub(WRITER, Release);
        if word != WRITER {
            self.released(word - WRITER);
        }
    }

    /// After a release that left `word` behind.
    #[cold]
    fn released(&self, word: u64) {
        if !is_free(word) || word >> GENERATION != W::generation() {
            return;
        }
        let list = self.lock_list();
        let woken = self.serve(&list);
        drop(list);
        woken.wake();
    }

    // ---- readers ----

    #[cold]
    fn read_slow(&self, deadline: Option<u64>) -> bool {
        if self.try_read() || Pol::KNOBS.reader_spins && self.spin(true, deadline) {
            return true;
        }
        let node = Node::new(true, self.address());
        let list = self.lock_list();
        let mut word = self.word.load(Relaxed);
        loop {
            let entered = Self::with_reader(word);
            let next = entered.unwrap_or(word | Self::has_waiter());
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) if entered.is_some() => {
                    self.events.count(Event::RlockFast);
                    return true;
                }
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        list.push(&node);
        // The last holder may have left just before that.
        let woken = self.serve(&list);
        drop(list);
        woken.wake();
        let acquired = self.sleep_until_granted(&node, deadline);
        if acquired {
            self.events.count(Event::Rlock);
        }
        acquired
    }

    /// The word after a newcomer has entered to read; none if it may not. It passes waiters only where no other reader holds
    /// the lock, so that a stream of overlapping readers does not keep writers out.
    fn with_reader(word: u64) -> Option<u64> {
        let steals = Pol::KNOBS.reader_steals && word & (READERS | HANDOFF) == 0;
        let may_enter = !has_writer(word) && (!has_waiters(word) || steals);
        may_enter.then(|| plus_reader(word))
    }

    /// A reader that stole the lock from readers at the head of the list grants it to them, too.
    fn after_reader_entry(&self, before: u64) -> bool {
        let has_stolen = has_waiters(before);
        self.events.count(if has_stolen { Event::RlockSteal } else { Event::RlockFast });
        if has_stolen {
            let list = self.lock_list();
            let woken = match list.head().filter(|head| head.is_reader) {
                Some(_) => self.serve(&list),
                None => Woken::none(),
            };
            drop(list);
            woken.wake();
        }
        true
    }

    /// False if the deadline has passed.
    fn sleep_until_granted(&self, node: &Node<P>, mut deadline: Option<u64>) -> bool {
        while !node.is_granted() {
            if is_over::<P>(deadline) {
                if self.withdraw(node) {
                    return false;
                }
                deadline = None;
                continue;
            }
            self.count_sleep(node);
            P::park(&node.state, WAITING, deadline);
        }
        true
    }

    // ---- writers ----

    #[cold]
    fn write_slow(&self, mut deadline: Option<u64>) -> bool {
        if !Pol::KNOBS.writer_fast_fail {
            // Others may have taken this writer for an owner and gone to sleep: invariant 6.
            self.word.fetch_sub(WRITER, Relaxed);
        }
        self.forget_dead_waiters();
        let entered = match Pol::KNOBS.writer_spins {
            WriterSpin::BeforeQueueing => self.spin(false, deadline),
            _ => self.try_write(),
        };
        if entered {
            return true;
        }
        let node = Node::new(false, self.address());
        let mut list = self.lock_list();
        self.word.fetch_or(Self::has_waiter(), Relaxed);
        list.push(&node);
        let mut has_just_queued = true;
        // Of the spin since it queued or woke up.
        let mut budget = None;
        loop {
            if !node.is_on(&list) {
                node.forget_wake_up();
                drop(list);
                return self.sleep_until_granted(&node, None);
            }
            if self.take(&list, &node) {
                self.events.count(Event::Wlock);
                if budget.is_some() {
                    self.events.count(Event::OptLock);
                }
                return true;
            }
            // The last holder may have left just before it queued: then no other thread would serve those before it.
            let woken = if has_just_queued { self.serve(&list) } else { Woken::none() };
            has_just_queued = false;
            if node.state.load(Relaxed) == WOKEN {
                node.state.store(WAITING, Relaxed);
                if is_free(self.word.load(Relaxed)) {
                    continue; // The lock is free, so the thread that was woken just now is this one at most.
                }
            }
            drop(list);
            woken.wake();
            let spins = Pol::KNOBS.writer_spins == WriterSpin::InQueue;
            if !spins || !self.spin_in_queue(&node, &mut budget, deadline) {
                budget = None;
                if !self.sleep_until_woken(&node, &mut deadline) {
                    return false;
                }
            }
            list = self.lock_list();
        }
    }

    /// A queued writer's attempt (`rwsem_try_write_lock` in Linux).
    fn take(&self, list: &LockedList<'_, P>, node: &Node<P>) -> bool {
        let is_head = list.is_head(node);
        let mut word = self.word.load(Relaxed);
        loop {
            let is_reserved = word & HANDOFF != 0;
            let takes = is_free(word);
            let may_go_on = match takes {
                true => is_head || Pol::KNOBS.writer_steals && !is_reserved,
                false => is_head && !is_reserved && is_due::<Pol, P>(node),
            };
            if !may_go_on {
                return false;
            }
            let next = if takes { (word + WRITER) & !HANDOFF } else { word | HANDOFF };
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) if takes => {
                    list.remove(node);
                    if list.is_empty() {
                        self.word.fetch_and(!FLAGS, Relaxed);
                    }
                    return true;
                }
                Ok(_) => {
                    self.events.count(Event::WlockHandoff);
                    // The holder may have left before it could see the reservation.
                    word = next;
                }
                Err(found) => word = found,
            }
        }
    }

    /// False if the deadline has passed, and the writer is off the list.
    fn sleep_until_woken(&self, node: &Node<P>, deadline: &mut Option<u64>) -> bool {
        while node.state.load(Relaxed) == WAITING {
            if is_over::<P>(*deadline) {
                if self.withdraw(node) {
                    return false;
                }
                *deadline = None;
                continue;
            }
            self.count_sleep(node);
            P::park(&node.state, WAITING, *deadline);
        }
        true
    }

    /// Watches the word while the lock is another writer's that may run. True if the queued writer should look at its place in
    /// the list; false if it should sleep.
    fn spin_in_queue(
        &self,
        node: &Node<P>,
        budget: &mut Option<SpinBudget>,
        deadline: Option<u64>,
    ) -> bool {
        let fresh = || SpinBudget::new::<P>(SPIN_ON_OWNER_NS, deadline);
        let mut spun = Event::OptNospin;
        loop {
            if node.state.load(Relaxed) != WAITING {
                return true;
            }
            let word = self.word.load(Relaxed);
            if is_free(word) {
                // Reserved, or without stealing, it is for the head alone, which is woken. So an
                // attempt fails only when another writer has come first, never without an end.
                return Pol::KNOBS.writer_steals && word & HANDOFF == 0;
            }
            let is_worth_it = has_writer(word) && self.owner.may_run();
            if !(is_worth_it && budget.get_or_insert_with(fresh).relax::<P>()) {
                self.events.count(spun);
                return false;
            }
            spun = Event::OptFail;
        }
    }

    // ---- those that spin before they queue ----

    /// One thread at a time. True once it has the lock.
    fn spin(&self, reads: bool, deadline: Option<u64>) -> bool {
        let word = self.word.load(Relaxed);
        let is_hopeless = self.is_readers_own() || has_writer(word) && !self.owner.may_run();
        if word & HANDOFF != 0 || is_hopeless {
            self.events.count(Event::OptNospin);
            return false;
        }
        let spin = || self.spin_at_front(reads, deadline);
        let entered = at_front::<P, _>(&self.spinners, deadline, spin).unwrap_or(false);
        self.events.count(if entered { Event::OptLock } else { Event::OptFail });
        entered
    }

    fn spin_at_front(&self, reads: bool, deadline: Option<u64>) -> bool {
        let mut budget: Option<SpinBudget> = None;
        let mut on_readers = false;
        loop {
            let word = self.word.load(Relaxed);
            if word & HANDOFF != 0 || self.is_readers_own() {
                return false;
            }
            // A spinner takes what is free, past any queue: that is what Linux calls optimistic.
            let is_open = if reads { !has_writer(word) } else { is_free(word) };
            if is_open {
                let entered = if reads { plus_reader(word) } else { word + WRITER };
                if self.word.compare_exchange_weak(word, entered, Acquire, Relaxed).is_ok() {
                    if !reads {
                        // Before the next spinner comes to the front, which would otherwise take the CPU of
                        // the owner before for this one's.
                        self.owner.note_writer();
                    }
                    return true;
                }
                continue;
            }
            let holds_writer = has_writer(word);
            let may_spin = match holds_writer {
                true => self.owner.may_run(),
                false => Pol::KNOBS.writer_spins_on_readers,
            };
            if !may_spin {
                return false;
            }
            if on_readers == holds_writer {
                (on_readers, budget) = (!holds_writer, None);
            }
            let budget = budget.get_or_insert_with(|| {
                let ns = match on_readers {
                    true => (SPIN_ON_READERS + SPIN_FOR_EACH_READER * readers(word))
                        .min(SPIN_ON_READERS_MOST),
                    false => SPIN_ON_OWNER_NS,
                };
                SpinBudget::new::<P>(ns, deadline)
            });
            if !budget.relax::<P>() {
                return false;
            }
        }
    }

    /// Readers were let in last, and writers do not spin on readers.
    fn is_readers_own(&self) -> bool {
        !Pol::KNOBS.writer_spins_on_readers && self.owner.is_readers()
    }

    // ---- serve those that wait; with the list's lock held ----

    /// Grants the head of the list the lock, or wakes it, as far as the holders permit (`rwsem_mark_wake`).
    fn serve(&self, list: &LockedList<'_, P>) -> Woken<P> {
        let Some(head) = list.head() else { return Woken::none() };
        if head.is_reader {
            return self.grant_readers(list, head);
        }
        if Pol::KNOBS.handoff == Handoff::Immediate {
            return self.hand_over_or_reserve(list, head);
        }
        if !is_free(self.word.load(Relaxed)) {
            return Woken::none();
        }
        self.events.count(Event::WakeWriter);
        Woken::writer(list, head)
    }

    fn grant_readers(&self, list: &LockedList<'_, P>, head: &Node<P>) -> Woken<P> {
        // One reader first: if a writer got in before, there is nothing to count.
        let mut word = self.word.load(Relaxed);
        loop {
            let next = match has_writer(word) {
                false => plus_reader(word),
                true if word & HANDOFF == 0 && is_due::<Pol, P>(head) => word | HANDOFF,
                true => return Woken::none(),
            };
            match self.word.compare_exchange_weak(word, next, Acquire, Relaxed) {
                Ok(_) if !has_writer(word) => break,
                Ok(_) => {
                    self.events.count(Event::RlockHandoff);
                    word = next;
                }
                Err(found) => word = found,
            }
        }
        let woken = match Pol::KNOBS.wake {
            ReaderWake::FrontRun => list.take_readers(u32::MAX, true),
            ReaderWake::Batch(most) => list.take_readers(most.max(1), false),
        };
        debug_assert!(woken.len() > 0, "the head is a reader");
        self.word.fetch_add(u64::from(woken.len() - 1) * READER, Relaxed);
        self.owner.note_readers();
        // Readers are in, so nothing is reserved any more.
        self.word.fetch_and(if list.is_empty() { !FLAGS } else { !HANDOFF }, Relaxed);
        self.events.add(Event::WakeReader, u64::from(woken.len()));
        woken
    }

    /// Hands the lock to the writer at the head if it is free, else reserves it for that writer.
    fn hand_over_or_reserve(&self, list: &LockedList<'_, P>, head: &Node<P>) -> Woken<P> {
        let next = |word| match is_free(word) {
            true => Some((word + WRITER) & !HANDOFF),
            false => (word & HANDOFF == 0).then_some(word | HANDOFF),
        };
        match self.update(next) {
            Ok(word) if is_free(word) => {
                let mut woken = Woken::none();
                woken.take(list, head);
                if list.is_empty() {
                    self.word.fetch_and(!FLAGS, Relaxed);
                }
                self.events.count(Event::WakeWriter);
                woken
            }
            Ok(_) => {
                self.events.count(Event::WlockHandoff);
                Woken::none()
            }
            Err(_) => Woken::none(),
        }
    }

    /// Takes a waiter that gives up off the list, and serves those behind it. False if it is off already.
    fn withdraw(&self, node: &Node<P>) -> bool {
        let list = self.lock_list();
        if !node.is_on(&list) {
            return false;
        }
        list.remove(node);
        // The lock may have been reserved for it; the next head asks anew.
        self.word.fetch_and(if list.is_empty() { !FLAGS } else { !HANDOFF }, Relaxed);
        let woken = self.serve(&list);
        drop(list);
        woken.wake();
        self.events.count(if node.is_reader { Event::RlockFail } else { Event::WlockFail });
        true
    }

    // ---- the word and the list ----

    fn address(&self) -> *const () {
        ptr::from_ref(self).cast()
    }

    fn lock_list(&self) -> LockedList<'_, P> {
        let address = self.address();
        self.waiters.list(address).lock(address)
    }

    /// In the word while a thread waits.
    fn has_waiter() -> u64 {
        W::generation() << GENERATION
    }

    /// A `fork` has left a word with waiters that do not exist in this process.
    fn forget_dead_waiters(&self) {
        let dead = |word| has_waiters(word) && word >> GENERATION != W::generation();
        let _ = self.update(|word| dead(word).then_some(word & !FLAGS));
    }

    /// Makes the word what `next` says of it. The word before; an error with the last one seen if `next` says nothing.
    fn update(&self, next: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
        let mut word = self.word.load(Relaxed);
        while let Some(after) = next(word) {
            // Acquire, for those that enter, pairs with the Release of those that have left.
            match self.word.compare_exchange_weak(word, after, Acquire, Relaxed) {
                Ok(before) => return Ok(before),
                Err(found) => word = found,
            }
        }
        Err(word)
    }

    fn count_sleep(&self, node: &Node<P>) {
        self.events.count(if node.is_reader { Event::SleepReader } else { Event::SleepWriter });
    }
}

fn has_waiters(word: u64) -> bool {
    word >> GENERATION != 0
}

fn is_over<P: Platform>(deadline: Option<u64>) -> bool {
    deadline.is_some_and(|deadline| P::now() >= deadline)
}

fn is_due<Pol: Policy, P: Platform>(node: &Node<P>) -> bool {
    Pol::KNOBS.handoff.is_due(P::now() - node.since)
}

// SAFETY: invariant 1. Every way to acquire is Acquire, both ways to release are Release. Guards are inert.
unsafe impl<Pol: Policy, P: HasRecords, W: Waiters<P>> lock_api::RawRwLock
    for RawLinuxRwSem<Pol, P, W>
{
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = Self::NEW;
    type SharedGuard = GuardNoSend;
    type ExclusiveGuard = GuardNoSend;

    #[inline]
    fn lock_shared(&self) -> GuardNoSend {
        self.read(None);
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock_shared(&self) -> Option<GuardNoSend> {
        (self.read_at_once() || self.try_read()).then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock_shared(&self, _guard: GuardNoSend) {
        self.unlock_read();
    }

    #[inline]
    fn lock_exclusive(&self) -> GuardNoSend {
        self.write(None);
        GuardNoSend::new()
    }

    #[inline]
    fn try_lock_exclusive(&self) -> Option<GuardNoSend> {
        self.try_write().then(GuardNoSend::new)
    }

    #[inline]
    unsafe fn unlock_exclusive(&self, _guard: GuardNoSend) {
        self.unlock_write();
    }

    fn is_locked(&self) -> bool {
        !is_free(self.word.load(Relaxed))
    }

    fn is_locked_exclusive(&self) -> bool {
        has_writer(self.word.load(Relaxed))
    }
}

impl<Pol: Policy, P: HasRecords, W: Waiters<P>> RawLinuxRwSem<Pol, P, W> {
    /// A reader may enter past all that wait: no writer holds the lock. While readers hold the lock, a writer's count is a failed
    /// attempt, about to be undone.
    fn with_reader_past_waiters(word: u64) -> Option<u64> {
        let may_enter = readers(word) != 0 || word & (WRITERS | HANDOFF) == 0;
        (may_enter && readers(word) < UNGUARDED_READERS).then_some(word + READER)
    }

    #[cold]
    fn try_read_unguarded(&self, past_waiters: bool) -> Result<(), Refused> {
        self.forget_dead_waiters();
        // A woken writer that finds the lock taken is woken again by the release of this reader.
        if past_waiters && self.update(Self::with_reader_past_waiters).is_ok() {
            return Ok(());
        }
        if readers(self.word.load(Relaxed)) >= UNGUARDED_READERS {
            return Err(Refused::Full);
        }
        self.try_read().then_some(()).ok_or(Refused::Busy)
    }

    #[cold]
    fn read_unguarded(&self, deadline: Option<u64>, past_waiters: bool) -> Result<(), Refused> {
        loop {
            match self.try_read_unguarded(past_waiters) {
                Err(Refused::Busy) => {}
                entered_or_full => return entered_or_full,
            }
            // Readers may come in past the writer meanwhile that wait for what this thread holds.
            let look = past_waiters.then(|| P::now().saturating_add(LOOK_PAST_WAITERS));
            let ends = match (look, deadline) {
                (Some(look), Some(deadline)) => Some(look.min(deadline)),
                (look, deadline) => look.or(deadline),
            };
            if self.read_slow(ends) {
                return Ok(());
            }
            if ends == deadline {
                return Err(Refused::TimedOut);
            }
        }
    }
}

// SAFETY: as for `RawRwLock`.
unsafe impl<Pol: Policy, P: HasRecords, W: Waiters<P>> UnguardedRwLock
    for RawLinuxRwSem<Pol, P, W>
{
    const FREE: Self = Self::NEW;

    #[inline]
    fn read(&self, deadline: Option<u64>, past_waiters: bool) -> Result<(), Refused> {
        match self.read_at_once() {
            true => Ok(()),
            false => self.read_unguarded(deadline, past_waiters),
        }
    }

    #[inline]
    fn try_read(&self, past_waiters: bool) -> Result<(), Refused> {
        match self.read_at_once() {
            true => Ok(()),
            false => self.try_read_unguarded(past_waiters),
        }
    }

    #[inline]
    fn read_at_once(&self) -> bool {
        RawLinuxRwSem::read_at_once(self)
    }

    #[inline]
    fn write(&self, deadline: Option<u64>) -> Result<(), Refused> {
        RawLinuxRwSem::write(self, deadline).then_some(()).ok_or(Refused::TimedOut)
    }

    fn try_write(&self) -> Result<(), Refused> {
        RawLinuxRwSem::try_write(self).then_some(()).ok_or(Refused::Busy)
    }

    #[inline]
    unsafe fn unlock_read(&self) {
        RawLinuxRwSem::unlock_read(self);
    }

    #[inline]
    unsafe fn unlock_write(&self) {
        RawLinuxRwSem::unlock_write(self);
    }

    fn has_writer(&self) -> bool {
        // Acquire: an answer of no pairs with the Release of the last writer's unlock.
        has_writer(self.word.load(Acquire))
    }

    fn is_locked(&self) -> bool {
        !is_free(self.word.load(Relaxed))
    }
}

const _: () = assert!(size_of::<RawLinuxRwSem<(), Os>>() <= 32);

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use lock_api::RawRwLock;

    use super::*;
    use crate::linux::{HasTable, ImmediateHandoff, InTable, Linux3_10, Linux5_11, Table};

    #[test]
    fn a_full_count_of_readers_is_an_error_before_it_changes() {
        let lock = RawLinuxRwSem::<Linux5_11>::NEW;
        lock.word.store(READER_LIMIT - 2, Relaxed);
        let _last = lock.try_lock_shared().expect("there is room for one more");
        for _ in 0..2 {
            let refused = catch_unwind(AssertUnwindSafe(|| lock.read(None)));
            refused.expect_err("the count is full");
            assert_eq!(lock.word.load(Relaxed), READER_LIMIT - 1, "refused before it changes");
        }
        assert!(lock.lock_list().is_empty(), "the list is not left locked either");
        assert_eq!(UnguardedRwLock::read(&lock, None, true), Err(Refused::Full));
    }

    /// The list is served when a newcomer has just taken the lock past its head.
    #[test]
    fn a_lock_that_was_taken_just_before_its_immediate_handoff_is_reserved_then() {
        let lock = RawLinuxRwSem::<ImmediateHandoff>::NEW;
        let head = Node::new(false, lock.address());
        let waits = RawLinuxRwSem::<ImmediateHandoff>::has_waiter();
        let list = lock.lock_list();
        list.push(&head);
        lock.word.store(waits | WRITER, Relaxed);
        assert_eq!(lock.serve(&list).len(), 0, "another writer has it");
        assert_eq!(lock.word.load(Relaxed), waits | WRITER | HANDOFF);
        lock.word.fetch_sub(WRITER, Relaxed);
        let woken = lock.serve(&list);
        drop(list);
        woken.wake();
        assert!(head.is_granted());
        assert_eq!(lock.word.load(Relaxed), WRITER, "handed over");
    }

    struct Waiting;

    impl HasTable<Os> for Waiting {
        fn table() -> &'static Table<Os> {
            static TABLE: Table<Os> = Table::NEW;
            &TABLE
        }
    }

    /// What a child sees in which no thread waits, though the word says so.
    fn after_a_fork<Pol: Policy>(held: u64, unlock: fn(&RawLinuxRwSem<Pol, Os, InTable<Waiting>>)) {
        let lock = RawLinuxRwSem::<Pol, Os, InTable<Waiting>>::NEW;
        // Its list is never left locked, as this is no `fork`.
        let node = Node::new(false, lock.address());
        lock.lock_list().push(&node);
        lock.word.store(held | RawLinuxRwSem::<Pol, Os, InTable<Waiting>>::has_waiter(), Relaxed);
        // SAFETY: no other thread uses this table.
        unsafe { Waiting::table().forked() };
        unlock(&lock);
        assert_eq!(node.state.load(Relaxed), WAITING, "a thread of the parent is left alone");
        assert!(lock.try_read());
        lock.unlock_read();
        assert!(lock.write(Some(0)));
        lock.unlock_write();
        assert_eq!(lock.word.load(Relaxed), 0);
    }

    #[test]
    fn a_child_goes_on_with_a_lock_that_other_threads_waited_for() {
        after_a_fork::<Linux5_11>(WRITER, |lock| lock.unlock_write());
        after_a_fork::<Linux5_11>(READER, |lock| lock.unlock_read());
        after_a_fork::<Linux3_10>(WRITER, |lock| lock.unlock_write());
        assert!(size_of::<RawLinuxRwSem<Linux3_10, Os, InTable<Waiting>>>() <= 16);
    }
}
