//! The reader-writer semaphore of the Linux kernel in user space, with its policies, and
//! Fairlock's own policies over the same machinery.
//!
//! One 64-bit word says who holds the lock and how its queue is served (`word.rs`). Uncontended
//! acquisitions and releases are one atomic operation on that word. Everybody else waits in one
//! queue of nodes on the waiters' stacks (`queue.rs`), which allocates nothing. The queue is in the
//! lock, or in a room that it rents while somebody waits (`storage.rs`, `rooms.rs`); rooms come in
//! blocks from the platform, never from the program's allocator. What happens in the queue is the
//! policy's business, in two families:
//!
//! * `compete.rs`: the Linux family. A woken writer competes with newcomers for the lock.
//! * `phases.rs`: [`TimeFair`](crate::policy::TimeFair) and
//!   [`PhaseFair`](crate::policy::PhaseFair). The lock is handed over, and a running phase
//!   admits newcomers within a budget.
//!
//! Invariants of the lock, whatever its policy
//! 1. At most one writer holds the lock, and then no reader does.
//! 2. The word names a room exactly while the queue in it is not empty, seen under the queue's
//!    lock; `QUEUE_FLAGS` are 0 otherwise.
//! 3. While the lock is free and somebody waits, some thread is on its way to serve the queue:
//!    the one that released the lock last, one that is called, or (phases) the guard with a
//!    timer.
//! 4. A shared count that is full is an error before it changes.
//! 5. After the atomic operation that releases the lock, an unlock touches nothing of it unless it
//!    has locked the queue in the room that the word named and found that the room still is this
//!    lock's: then somebody waits, and borrows the lock. (Always so if the room is the lock's own;
//!    that lock must outlive the unlock.)
//!
//! # Recursion
//! A thread that holds the lock shared and asks for it shared again deadlocks if a writer queued
//! in between: the writer waits for the first hold, the second for the writer. One that asks for it exclusively
//! waits for itself. Debug builds panic at the second blocking acquisition, for which they name the caller's line
//! and what to do. `try_read` and `try_write` are safe.
//!
//! # Panics while holding
//! Guards release in their destructors, so a panic releases; there is no poisoning.

/// Why a debug build panics at a read.
pub(crate) const READ_WITHIN_READ: &str = "this thread holds this lock for reading already: a second \
    blocking read deadlocks as soon as a writer waits in between. Keep the first guard, or use try_read \
    (this check is in debug builds only)";
/// Why a debug build panics at a write.
pub(crate) const WRITE_WITHIN_READ: &str = "this thread holds this lock for reading: a write would wait for \
    that read, and so for itself, for ever. End the read first, or begin with upgradable_read (this check \
    is in debug builds only)";

mod api;
mod compete;
mod free_list;
mod phases;
mod queue_pool;
mod queue_storage;
mod wait_queue;
mod word;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub use api::{
    PolicyRwSem, RwSem, RwSemReadGuard, RwSemUpgradableReadGuard, RwSemWriteGuard, events,
};
pub use queue_pool::{HasQueuePool, QueuePool};
pub(crate) use queue_storage::ReaderBias;
pub use queue_storage::{Inline, NoSpinners, Pooled, PooledWithSpinners, QueueStorage, Unbiased};

use crate::events::{CountEvents, Event, Snapshot};
use crate::platform::{AtomicCell, Os, PlainCell, Platform};
use crate::policy::{Discipline, Policy};
use crate::unguarded::Refused;
use queue_storage::OwnQueue;
use wait_queue::{Kind, Node, WakeList};
use word::*;

/// A reader that may enter past waiters but found a writer looks for another way in after so many ns,
/// at the cost of its place in the queue: longer than a handful of phases, so only those do who wait
/// in a circle.
const LOOK_PAST_WAITERS: u64 = 100_000_000;

/// The lock without its data: what [`RwSem`] is made of.
///
/// 64 bytes; 24 with its room [`Pooled`], 32 [with spinners](PooledWithSpinners). Use it through [`RwSem`] or [`PolicyRwSem`].
#[repr(C)]
pub struct RawRwSem<Pol, P: Platform = Os, L: QueueStorage<P> = Inline<P>> {
    word: LockWord<Pol, P>,
    storage: L,
    events: P::Counters,
}

impl<Pol: Policy, P: Platform, L: QueueStorage<P>> RawRwSem<Pol, P, L> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    pub const NEW: Self = {
        assert!(
            L::HAS_SPINNERS || matches!(Pol::DISCIPLINE, Discipline::Phases(_)),
            "a policy of the Linux family needs a queue of spinners: use PooledWithSpinners"
        );
        RawRwSem { word: LockWord::FREE, storage: L::NEW, events: P::Counters::NEW }
    };

    pub(crate) fn storage(&self) -> &L {
        &self.storage
    }

    /// What it has counted, as [`events`] says.
    pub(crate) fn events(&self) -> Snapshot {
        Snapshot::of(&self.events)
    }

    #[inline(always)]
    pub(crate) fn count(&self, event: Event) {
        self.events.count(event);
    }

    // ---- shared ----

    #[inline]
    pub(crate) fn read(&self, deadline: Option<u64>) -> bool {
        self.try_read_once() || self.acquire_slow(Kind::Read, deadline)
    }

    /// A slow path that has nothing to report lets the fast path do without a stack frame.
    #[inline]
    pub(crate) fn read_without_deadline(&self) {
        if !self.try_read_once() {
            self.acquire_slow_without_deadline(Kind::Read);
        }
    }

    #[inline]
    pub(crate) fn try_read_once(&self) -> bool {
        let word = self.word.load(Relaxed);
        // Acquire pairs with the Release of `unlock_write`.
        word < READER_LIMIT - 1
            && self.word.compare_exchange_weak(word, word + READER, Acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn try_read(&self) -> bool {
        self.try_read_once() || self.try_enter(Kind::Read)
    }

    /// After [`try_read_once`](Self::try_read_once) has failed, for callers without guards.
    ///
    /// One that may enter past waiters and has to wait, as a writer is in, looks again now and then:
    /// readers may have come in past it meanwhile, who wait for what its thread holds.
    #[cold]
    pub(crate) fn read_unguarded(
        &self,
        deadline: Option<u64>,
        past_waiters: bool,
    ) -> Result<(), Refused> {
        loop {
            match self.try_read_unguarded(past_waiters) {
                Err(Refused::Busy) => {}
                entered_or_full => return entered_or_full,
            }
            let look = past_waiters.then(|| P::now().saturating_add(LOOK_PAST_WAITERS));
            let ends = match (look, deadline) {
                (Some(look), Some(deadline)) => Some(look.min(deadline)),
                (look, deadline) => look.or(deadline),
            };
            if self.acquire_slow(Kind::Read, ends) {
                return Ok(());
            }
            if ends == deadline {
                return Err(Refused::TimedOut);
            }
        }
    }

    /// The same without waiting.
    #[cold]
    pub(crate) fn try_read_unguarded(&self, past_waiters: bool) -> Result<(), Refused> {
        let mut word = self.word.load(Relaxed);
        loop {
            if readers(word) >= UNGUARDED_READERS {
                return Err(Refused::Full);
            }
            if !past_waiters || !admits_past_waiters(word) {
                break;
            }
            // Whoever is called finds the lock taken and waits on: in the Linux family it is called
            // again by the release of this reader, in phases it clears `WRITER_WOKEN` as it queues
            // again and serves the queue if this reader has left by then. Acquire pairs with the
            // Release of `unlock_write`.
            match self.word.compare_exchange_weak(word, plus_reader(word), Acquire, Relaxed) {
                Ok(_) => return Ok(()),
                Err(found) => word = found,
            }
        }
        self.try_enter(Kind::Read).then_some(()).ok_or(Refused::Busy)
    }

    /// Closes a phase of readers while somebody waits, before its budget ends. Not where the lock is
    /// free for the moment: then whoever closed it would have to hand it over, and the next reader
    /// is as good a moment.
    pub(crate) fn end_read_phase(&self) {
        let Discipline::Phases(_) = Pol::DISCIPLINE else { return };
        let mut word = self.word.load(Relaxed);
        while has_waiters(word) && readers(word) > 0 && word & (CLOSED | WRITE_PHASE) == 0 {
            // The last of the readers sees it, and hands the lock over.
            let closed = (word | CLOSED) & !OPEN;
            match self.word.compare_exchange_weak(word, closed, Relaxed, Relaxed) {
                Ok(_) => return self.count(Event::PhaseClosed),
                Err(found) => word = found,
            }
        }
    }

    /// # Safety
    /// The caller holds the lock shared, and not upgradable.
    #[inline]
    pub(crate) unsafe fn unlock_read(&self) {
        // Release pairs with the Acquire of the next writer.
        let word = self.word.fetch_sub(READER, Release);
        if word >= READER_LIMIT {
            self.left(Side::Read, word - READER);
        }
    }

    // ---- exclusive ----

    /// Takes the lock if it is free and nobody waits.
    #[inline]
    pub(crate) fn write_at_once(&self) -> bool {
        let taken = self.try_write_once();
        if taken {
            self.storage.owner_cpu().store(P::cpu(), Relaxed);
        }
        taken
    }

    /// After [`write_at_once`](Self::write_at_once) has failed. False if the deadline passed.
    pub(crate) fn write_slow(&self, deadline: Option<u64>) -> bool {
        self.acquire_slow(Kind::Write, deadline)
    }

    #[inline]
    fn write(&self, deadline: Option<u64>) -> bool {
        self.write_at_once() || self.write_slow(deadline)
    }

    #[inline]
    fn write_without_deadline(&self) {
        if !self.write_at_once() {
            self.acquire_slow_without_deadline(Kind::Write);
        }
    }

    #[inline]
    fn try_write_once(&self) -> bool {
        if const { Self::ADDS_BIAS_FIRST } {
            // `acquire_slow` takes the bias away again.
            return self.word.fetch_add(WRITER, Acquire) == 0;
        }
        // Acquire pairs with the Release of every unlock.
        self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn try_write(&self) -> bool {
        self.try_enter(Kind::Write)
    }

    pub(crate) const ADDS_BIAS_FIRST: bool = LockWord::<Pol, P>::ADDS_BIAS_FIRST;

    /// # Safety
    /// The caller holds the lock exclusively.
    #[inline]
    pub(crate) unsafe fn unlock_write(&self) {
        // Release pairs with the Acquire of the next holder.
        let word = self.word.fetch_sub(WRITER, Release);
        if word != WRITER {
            self.left(Side::Write, word - WRITER);
        }
    }

    // ---- the rest, by family ----

    /// Enters if the policy lets a newcomer in right now.
    fn try_enter(&self, kind: Kind) -> bool {
        let mut word = self.word.load(Relaxed);
        while let Some(entered) = self.admit(word, kind) {
            match self.word.compare_exchange_weak(word, entered, Acquire, Relaxed) {
                Ok(_) => {
                    self.note_owner(kind);
                    return true;
                }
                Err(found) => word = found,
            }
        }
        self.end_overdue_phase();
        false
    }

    /// The word after a newcomer of this kind has entered; `None` if it may not.
    fn admit(&self, word: u64, kind: Kind) -> Option<u64> {
        match Pol::DISCIPLINE {
            Discipline::Compete(knobs) => compete::admit(knobs, word, kind),
            Discipline::Phases(knobs) => self.admit_in_phase(knobs, word, kind),
        }
    }

    #[cold]
    fn acquire_slow(&self, kind: Kind, deadline: Option<u64>) -> bool {
        let acquired = match Pol::DISCIPLINE {
            Discipline::Compete(knobs) => self.compete(knobs, kind, deadline),
            Discipline::Phases(knobs) => self.wait_for_phase(knobs, kind, deadline),
        };
        if acquired {
            self.note_owner(kind);
        }
        acquired
    }

    #[cold]
    fn acquire_slow_without_deadline(&self, kind: Kind) {
        let acquired = self.acquire_slow(kind, None);
        assert!(acquired, "without a deadline a wait ends with the lock");
    }

    /// After a release that left `word` behind, with some flag set.
    #[cold]
    fn left(&self, side: Side, word: u64) {
        let upgrader_alone = word & UPGRADING != 0 && readers(word) == 1;
        if !has_waiters(word) || !(is_free(word) || upgrader_alone) {
            return;
        }
        match Pol::DISCIPLINE {
            Discipline::Compete(_) => self.serve_left(word),
            Discipline::Phases(knobs) => self.left_in_phase(knobs, side, word),
        }
    }

    /// After a release that left `word` behind: lets in whoever may come in now, and wakes them.
    /// If the room is not this lock's any more, all those have been served that waited then.
    fn serve_left(&self, word: u64) {
        if let Some(queue) = self.attend(word) {
            let granted = self.serve(&queue);
            drop(queue);
            granted.grant();
        }
    }

    fn serve(&self, queue: &OwnQueue<'_, P, L>) -> WakeList<P> {
        match Pol::DISCIPLINE {
            Discipline::Compete(knobs) => self.serve_competitors(knobs, queue),
            Discipline::Phases(knobs) => self.serve_phases(knobs, queue),
        }
    }

    /// The queue in the room that `word` names, if that is this lock's still. Until that is known it
    /// touches nothing of the lock.
    fn attend(&self, word: u64) -> Option<OwnQueue<'_, P, L>> {
        debug_assert!(has_waiters(word));
        self.lock_own(self.storage.place(word))
    }

    /// The same if nobody has the queue's lock.
    fn try_attend(&self, word: u64) -> Option<OwnQueue<'_, P, L>> {
        debug_assert!(has_waiters(word));
        OwnQueue::try_lock_own(&self.storage, self.word.atomic(), self.storage.place(word))
    }

    /// The queue in this room, if that is this lock's still.
    fn lock_own<'a>(&'a self, place: &'a L::Place) -> Option<OwnQueue<'a, P, L>> {
        OwnQueue::lock_own(&self.storage, self.word.atomic(), place)
    }

    /// The queue in this lock's room, or in one that is about to be. For those that want to wait;
    /// none if there is no room left.
    fn lock_to_wait(&self) -> Option<OwnQueue<'_, P, L>> {
        loop {
            let word = if L::IS_INLINE { 0 } else { self.word.load(Relaxed) };
            if !has_waiters(word) {
                // SAFETY: this lock's own, and nobody forgets what this returns.
                return unsafe { self.storage.acquire(self.word.atomic()) };
            }
            if let Some(queue) = self.attend(word) {
                return Some(queue);
            }
        }
    }

    fn note_owner(&self, kind: Kind) {
        if matches!(kind, Kind::Write | Kind::Upgrade) {
            self.storage.owner_cpu().store(P::cpu(), Relaxed);
        }
    }

    /// False only if the writer surely does not run: it acquired the lock on the CPU that this
    /// thread runs on now. It cannot see a writer that was preempted on another CPU, and is
    /// wrong about one that has moved since.
    pub(crate) fn owner_may_run(&self) -> bool {
        // 0 is unknown, and `u32::MAX` what a thread stores that the kernel does not tell its CPU;
        // other values that are no CPU are no CPU of this thread's either.
        let owner = self.storage.owner_cpu().load(Relaxed);
        owner == 0 || owner == u32::MAX || owner != P::cpu()
    }

    /// Takes a waiter that gives up off the queue, and serves those it stood in the way of.
    /// False if it is off already: then its state is about to say why.
    fn withdraw(&self, place: &L::Place, node: &Node<P>) -> bool {
        let Some(queue) = self.lock_own(place) else {
            return false;
        };
        if !node.is_linked(&queue) {
            return false;
        }
        queue.remove(node);
        let mut clear = 0;
        if queue.is_empty() {
            clear |= QUEUE_FLAGS;
        }
        let mut appointed = core::ptr::null();
        if node.is_deadline_waiter.get() != 0 {
            match self.appoint(&queue) {
                Some(state) => appointed = state,
                None => clear |= HAS_DEADLINE_WAITER | OPEN,
            }
        }
        if queue.oldest_reader().is_none() {
            clear |= READERS_WAIT;
        }
        if node.kind == Kind::Upgrade {
            clear |= UPGRADING;
        }
        if let Discipline::Compete(_) = Pol::DISCIPLINE {
            // The lock may have been reserved for this waiter; whoever heads the queue now asks anew.
            clear |= CLOSED;
        }
        self.word.fetch_and(!clear, Relaxed);
        let granted = if queue.is_empty() { WakeList::none() } else { self.serve(&queue) };
        drop(queue);
        granted.grant();
        if !appointed.is_null() {
            P::unpark(appointed);
        }
        self.events.count(match node.kind {
            Kind::Read => Event::RlockFail,
            _ => Event::WlockFail,
        });
        true
    }

    // ---- upgradable ----

    pub(crate) fn try_upgradable(&self) -> bool {
        self.try_enter(Kind::Upgradable)
    }

    pub(crate) fn upgradable(&self, deadline: Option<u64>) -> bool {
        self.try_upgradable() || self.acquire_slow(Kind::Upgradable, deadline)
    }

    // ---- fair unlock, downgrade, upgrade ----

    /// # Safety
    /// The caller holds the lock shared, and not upgradable.
    #[inline]
    pub(crate) unsafe fn unlock_read_fair(&self) {
        // SAFETY: the caller's.
        unsafe { self.unlock_fair(READER) };
    }

    /// # Safety
    /// The caller holds the lock exclusively.
    #[inline]
    pub(crate) unsafe fn unlock_write_fair(&self) {
        // SAFETY: the caller's.
        unsafe { self.unlock_fair(WRITER) };
    }

    /// # Safety
    /// The caller holds the lock upgradable.
    #[inline]
    pub(crate) unsafe fn unlock_upgradable_fair(&self) {
        // SAFETY: the caller's.
        unsafe { self.unlock_fair(READER | UPGRADABLE) };
    }

    /// # Safety
    /// The caller holds the lock exclusively; afterwards it holds it shared.
    pub(crate) unsafe fn downgrade_to_read(&self) {
        // SAFETY: the caller's.
        unsafe { self.downgrade(0) };
    }

    /// # Safety
    /// The caller holds the lock exclusively; afterwards it holds it upgradable.
    pub(crate) unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: the caller's.
        unsafe { self.downgrade(UPGRADABLE) };
    }

    /// # Safety
    /// The caller holds the lock in the mode of `held`: `READER`, `WRITER` or
    /// `READER | UPGRADABLE`.
    #[inline]
    unsafe fn unlock_fair(&self, held: u64) {
        // Release pairs with the Acquire of the next holder.
        if self.word.compare_exchange(held, 0, Release, Relaxed).is_err() {
            self.unlock_fair_slow(held);
        }
    }

    #[cold]
    fn unlock_fair_slow(&self, held: u64) {
        let mut word = self.word.load(Relaxed);
        loop {
            if has_waiters(word) {
                if let Some(queue) = self.attend(word) {
                    return self.unlock_to_waiters(held, queue);
                }
                word = self.word.load(Relaxed);
                continue;
            }
            match self.word.compare_exchange_weak(word, word - held, Release, Relaxed) {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
    }

    fn unlock_to_waiters(&self, held: u64, queue: OwnQueue<'_, P, L>) {
        let mut word = self.word.load(Relaxed);
        loop {
            let mut after = word - held;
            if has_waiters(word) {
                // Closed, nobody can enter between the release and the handing over.
                after = (after | CLOSED) & !OPEN;
            }
            match self.word.compare_exchange_weak(word, after, Release, Relaxed) {
                Ok(_) if has_waiters(after) => break,
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
        let granted = match Pol::DISCIPLINE {
            Discipline::Compete(knobs) => self.hand_to_head(knobs, &queue),
            Discipline::Phases(knobs) => self.serve_phases(knobs, &queue),
        };
        drop(queue);
        granted.grant();
    }

    /// Goes back from an upgrade that turned out not to be one: no turn of a writer's was used, so it is
    /// not the turn of the other side.
    ///
    /// # Safety
    /// The caller holds the lock exclusively, by an upgrade; afterwards it holds it upgradable.
    pub(crate) unsafe fn take_back_upgrade(&self) {
        // As in `downgrade`.
        let word = self.word.fetch_add((READER | UPGRADABLE).wrapping_sub(WRITER), Release);
        if has_waiters(word) {
            self.serve_left(word);
        }
    }

    /// # Safety
    /// The caller holds the lock exclusively; afterwards it holds it shared, with the right to
    /// upgrade if `keep` is `UPGRADABLE`, without if it is 0.
    unsafe fn downgrade(&self, keep: u64) {
        // Release pairs with the Acquire of readers that enter now.
        // One step from WRITER to what is kept; `keep` is the larger, so the difference wraps.
        let word = self.word.fetch_add((READER | keep).wrapping_sub(WRITER), Release);
        if has_waiters(word) {
            self.admit_beside_reader(word);
        }
    }

    /// # Safety
    /// The caller holds the lock upgradable.
    #[inline]
    pub(crate) unsafe fn unlock_upgradable(&self) {
        let word = self.word.fetch_sub(READER | UPGRADABLE, Release) - (READER | UPGRADABLE);
        if has_waiters(word) {
            if is_free(word) {
                self.left(Side::Read, word);
            } else {
                // The next upgradable reader may be able to join those that read.
                self.serve_left(word);
            }
        }
    }

    /// # Safety
    /// The caller holds the lock upgradable; afterwards it holds it shared.
    pub(crate) unsafe fn downgrade_upgradable(&self) {
        let word = self.word.fetch_and(!UPGRADABLE, Release);
        if has_waiters(word) {
            self.serve_left(word);
        }
    }

    /// Those that may read beside a reader that just stopped being more than that: all waiting
    /// readers, as after any phase of a writer.
    #[cold]
    fn admit_beside_reader(&self, word: u64) {
        let Some(queue) = self.attend(word) else {
            return;
        };
        let granted = match Pol::DISCIPLINE {
            Discipline::Compete(knobs) => self.serve_competitors(knobs, &queue),
            // A phase that begins with nobody would be a new budget for newcomers, again and again.
            Discipline::Phases(_) if !queue.may_read_be_joined() => WakeList::none(),
            Discipline::Phases(knobs) => self.begin_read_phase(knobs, &queue),
        };
        drop(queue);
        granted.grant();
    }

    /// # Safety
    /// The caller holds the lock upgradable; if this returns true it holds it exclusively.
    pub(crate) unsafe fn try_upgrade(&self) -> bool {
        let mut word = self.word.load(Relaxed);
        while readers(word) == 1 {
            // Acquire pairs with the Release of the readers that left.
            let upgraded = word - READER - UPGRADABLE + WRITER;
            match self.word.compare_exchange_weak(word, upgraded, Acquire, Relaxed) {
                Ok(_) => {
                    self.note_owner(Kind::Upgrade);
                    return true;
                }
                Err(found) => word = found,
            }
        }
        false
    }

    /// # Safety
    /// The caller holds the lock upgradable. If this returns true it holds it exclusively, else
    /// still upgradable.
    pub(crate) unsafe fn upgrade(&self, deadline: Option<u64>) -> bool {
        // SAFETY: passed on.
        if unsafe { self.try_upgrade() } {
            return true;
        }
        let upgraded = self.upgrade_slow(deadline);
        if upgraded {
            self.note_owner(Kind::Upgrade);
        }
        upgraded
    }

    #[cold]
    fn upgrade_slow(&self, deadline: Option<u64>) -> bool {
        self.events.count(Event::Upgrade);
        let node = Node::new(Kind::Upgrade, P::now());
        let mut attempt = 0;
        loop {
            if let Some(queue) = self.lock_to_wait() {
                let place = queue.place();
                if self.queue_for_upgrade(queue, &node) {
                    return self.sleep_until_granted(place, &node, deadline);
                }
                continue; // The lock has another room by now.
            }
            // SAFETY: the lock is held upgradable, as this function's callers must.
            if unsafe { self.try_upgrade() } {
                return true;
            }
            if deadline.is_some_and(|deadline| P::now() >= deadline) {
                return false;
            }
            P::give_way(attempt);
            attempt += 1;
        }
    }

    /// False if it is not this lock's queue.
    fn queue_for_upgrade(&self, queue: OwnQueue<'_, P, L>, node: &Node<P>) -> bool {
        if let Discipline::Phases(knobs) = Pol::DISCIPLINE
            && queue.is_empty()
        {
            self.begin_first_phase(knobs, queue.clock(), P::now());
        }
        let mut word = self.word.load(Relaxed);
        loop {
            if !queue.is_for(word) {
                return false;
            }
            debug_assert!(word & UPGRADABLE != 0 && word & UPGRADING == 0);
            let next = word | queue.bits() | UPGRADING;
            match self.word.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        queue.note_named();
        queue.push_front(node);
        queue.note_queued();
        // The last other reader may have left just before that.
        let granted = self.serve(&queue);
        drop(queue);
        granted.grant();
        true
    }

    /// Sleeps until granted or, returning false, until the deadline.
    fn sleep_until_granted(
        &self,
        place: &L::Place,
        node: &Node<P>,
        mut deadline: Option<u64>,
    ) -> bool {
        while !node.is_granted() {
            if deadline.is_some_and(|deadline| P::now() >= deadline) {
                if self.withdraw(place, node) {
                    return false;
                }
                deadline = None;
                continue;
            }
            self.count_sleep(node.kind);
            P::park(&node.state, wait_queue::WAITING, deadline);
        }
        node.wake_chain();
        true
    }

    fn count_sleep(&self, kind: Kind) {
        self.events.count(match kind {
            Kind::Read => Event::SleepReader,
            _ => Event::SleepWriter,
        });
    }

    pub(crate) fn is_locked(&self) -> bool {
        !is_free(self.word.load(Relaxed))
    }

    /// A writer holds the lock, as far as one load of the word tells. Acquire: an answer of no pairs
    /// with the Release of the last writer's unlock.
    #[inline]
    pub(crate) fn has_writer(&self) -> bool {
        has_writer(self.word.load(Acquire))
    }

    /// For readers that have another way in. Acquire as in [`has_writer`](Self::has_writer).
    #[inline(always)]
    pub(crate) fn entrance(&self) -> Entrance {
        let word = self.word.load(Acquire);
        match (is_open_to_readers(word), has_waiters(word)) {
            (true, false) => Entrance::Free,
            (true, true) => Entrance::PastWaiters(word),
            (false, _) => Entrance::Shut,
        }
    }

    /// Readers hold the lock.
    #[inline]
    pub(crate) fn has_readers(&self) -> bool {
        readers(self.word.load(Relaxed)) != 0
    }

    /// Somebody waits for this lock.
    pub(crate) fn has_waiters(&self) -> bool {
        has_waiters(self.word.load(Relaxed))
    }

    pub(crate) fn is_locked_exclusive(&self) -> bool {
        has_writer(self.word.load(Relaxed))
    }
}

const _: () = assert!(size_of::<RawRwSem<crate::policy::TimeFair>>() <= 64);
const _: () = assert!(size_of::<RawRwSem<crate::policy::TimeFair, Os, Pooled<Os>>>() <= 24);
const _: () =
    assert!(size_of::<RawRwSem<crate::policy::Linux5_11, Os, PooledWithSpinners<Os>>>() <= 32);

/// What the semaphore says to readers that have another way in.
pub(crate) enum Entrance {
    /// Come in.
    Free,
    /// Come in past those that wait, if [`has_budget`](RawRwSem::has_budget) agrees; the word.
    PastWaiters(u64),
    /// A writer is in or about to upgrade, or the phase is closed.
    Shut,
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use lock_api::RawRwLock;

    use super::*;
    use crate::policy::{ImmediateHandoff, Linux5_11, PhaseFair, TimeFair};

    fn refuses_one_reader_too_many<Pol: Policy>() {
        let lock = RawRwSem::<Pol, Os>::NEW;
        lock.word.store(READER_LIMIT - 2, Relaxed);
        let _last = lock.try_lock_shared().expect("room for one more");
        for _ in 0..2 {
            let refused = catch_unwind(AssertUnwindSafe(|| lock.read(None)));
            let message = refused.expect_err("the count is full");
            let message = message.downcast_ref::<&str>().expect("a message");
            assert!(message.contains("readers hold this lock at once"), "{message}");
            assert_eq!(lock.word.load(Relaxed), READER_LIMIT - 1, "refused before it changes");
        }
        // The queue is not left locked either.
        assert!(lock.lock_to_wait().expect("a room").is_empty());
    }

    #[test]
    fn a_full_count_of_readers_is_an_error_before_it_changes() {
        refuses_one_reader_too_many::<TimeFair>();
        refuses_one_reader_too_many::<PhaseFair>();
        refuses_one_reader_too_many::<Linux5_11>();
    }

    #[test]
    fn a_lock_that_was_taken_just_before_its_immediate_handoff_is_reserved_then() {
        let lock = RawRwSem::<ImmediateHandoff, Os>::NEW;
        let head = Node::new(Kind::Write, 0);
        let queue = lock.lock_to_wait().expect("a room");
        queue.note_named();
        queue.push(&head);
        lock.word.store(queue.bits() | WRITER, Relaxed);
        assert!(lock.serve(&queue).is_empty(), "another writer has it");
        assert_eq!(lock.word.load(Relaxed), queue.bits() | WRITER | CLOSED);
        lock.word.fetch_sub(WRITER, Relaxed);
        let granted = lock.serve(&queue);
        drop(queue);
        granted.grant();
        assert_eq!(lock.word.load(Relaxed), WRITER, "handed over");
    }
}
