//! The default reader-writer lock. Where writes are rare, a read executes no locked instruction and
//! writes no shared cache line, and writers never starve. What exactly is guaranteed is written at
//! [`RwLock`].
//!
//! # How it works
//! A lock is an [`RwSem`](crate::RwSem) under [`TimeFair`], called the semaphore here, and a word,
//! the *bias* (`bias.rs`), which says how readers acquire the lock:
//!
//! | bias | a reader | a writer that holds the semaphore |
//! |---|---|---|
//! | `UNBIASED` | acquires the semaphore | holds the lock |
//! | `BIASED_FENCED` | announces itself in a slot of its own thread (`slots/`), with a full fence; holds the lock if it then sees that no writer holds the semaphore, that it is not shut to readers, that the bias is unchanged, and that its record is listed | waits until no slot of a *listed* record has the lock's number |
//! | `BIASED_UNFENCED` | announces itself with a plain store; holds the lock if it then sees that the bias is unchanged | sets `BIASED_FENCED`, raises a barrier on all CPUs, then waits until no slot of any record has the lock's number |
//! | `BIAS_REVOKING` | as in `BIASED_FENCED` | as in `BIASED_UNFENCED` |
//!
//! ```text
//!        many reads, few writes            no write for twenty revocations' time
//!   UNBIASED ─────────────► BIASED_FENCED ────────────────────────► BIASED_UNFENCED
//!      ▲                     │   ▲   ▲                                   │    │
//!      └─────────────────────┘   │   └── a writer that holds the ────────┘    │ somebody waits
//!            256 writes          │           semaphore                        ▼
//!                                └───────────────────────────────────── BIAS_REVOKING
//! ```
//!
//! "Many reads" are 128, and 16 more for each write since the lock became `UNBIASED`; writes of
//! long ago are partly forgotten. A thread counts its reads in its own record, and about 64 at a
//! time in the lock, as each count is a store to the lock's line. The number of reads in a row
//! would say nothing: under contention TimeFair admits readers for a while, and then writers for a
//! while, however often each side asks. The figures are those of
//! [`Bias::READ_MOSTLY`](crate::policy::Bias::READ_MOSTLY).
//!
//! A reader that finds a writer spins for as long as a wake-up takes, and then acquires the
//! semaphore. A reader that finds no free slot, and an upgradable reader, acquires the semaphore,
//! too. All waiting is done there, and the semaphore alone excludes these readers and other
//! writers.
//!
//! **While a thread waits for the semaphore, readers use slots only until its side is owed
//! enough**, as newcomers that acquire the semaphore do. Then the first waiter shuts the lock, and
//! every reader queues. So [`TimeFair`] bounds how long a thread is passed, however readers acquire
//! the lock. Readers without fences cannot see that the lock is shut, so a thread that queues makes
//! readers use fences (invariant 6).
//!
//! While readers use slots, the semaphore is free most of the time. So unless writers that wait are
//! owed time, they are woken to try again as soon as it is free, instead of being handed it: a lock
//! that is reserved for a writer that first has to wake up would stop all readers meanwhile.
//!
//! # Why it is right
//! A reader that uses a slot first stores its announcement and then loads the state; a writer first
//! stores the state and then loads the slots. As both have a barrier in between, at least one of
//! them sees the other (Dekker). In `BIASED_FENCED` the state is the semaphore's word, and both
//! barriers are full fences. In `BIASED_UNFENCED` the state is the bias; the reader's barrier is
//! free, and the writer's is the asymmetric one, which pays for both.
//!
//! Invariants
//! 1. Only a reader that holds the semaphore changes the bias from `UNBIASED`, and only a reader
//!    that holds the lock changes it from `BIASED_FENCED` to `BIASED_UNFENCED`. So a writer that
//!    holds the semaphore and has waited for all slots has seen every such change, and looks again
//!    if there was one meanwhile.
//! 2. Only a writer that holds the semaphore changes the bias from `BIASED_UNFENCED` or
//!    `BIAS_REVOKING` to `BIASED_FENCED`, or from `BIASED_FENCED` to `UNBIASED`, the latter only
//!    once no slot is used for the lock. Any thread may change it from `BIASED_UNFENCED` to
//!    `BIAS_REVOKING`: writers treat both alike.
//! 3. No other lock of the process ever gets the same number. A slot that was forgotten
//!    blocks the lock for which it was used, wherever that moves, and no other.
//! 4. A thread's reads are interchangeable. Without guards, each unlock ends one of them: one by a
//!    slot if there is any, otherwise one by the semaphore, whichever was acquired last. While a
//!    thread reads by a slot, the bias is not `UNBIASED` (invariant 2), and the lock's number does
//!    not change.
//! 5. An unlock releases with one atomic operation, on a slot or on the semaphore's word. After
//!    that it touches the lock only while it has seen, under the lock of the waiters' queue, that
//!    a thread waits there for this very lock (`rwsem/own_queue.rs`).
//! 6. While somebody is queued, or a writer waits for readers in slots, the bias is not
//!    `BIASED_UNFENCED`, except for moments: a thread that queues or acquires the semaphore looks
//!    at the bias afterwards, and a reader that makes it `BIASED_UNFENCED` looks for such threads
//!    afterwards, both with a fence in between.
//! 7. While the bias is `BIASED_FENCED`, no slot of a record that is not listed is held for the
//!    lock, unless the writer that holds the semaphore is yet to look at all of them. If it gives
//!    up before, it sets `BIAS_REVOKING`.
//!
//! # What it costs
//! * A read: `BIASED_UNFENCED`, two plain stores and a few loads; `BIASED_FENCED`, a full fence
//!   more; `UNBIASED`, what the semaphore costs.
//! * A write, in addition to the semaphore: nothing in `UNBIASED`; in `BIASED_FENCED` a look at the
//!   slots of the threads that have read lately, and at one bit for every other thread; in
//!   `BIASED_UNFENCED` a look at the slots of all threads, and a barrier on all CPUs, which
//!   interrupts them.
//!
//! # Source
//! Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks" (2019). There are three
//! differences. Slots belong to threads, so a reader's line is its own, and no hash is needed to
//! find it. A reader may announce itself by a plain store, thanks to the asymmetric barrier. And in
//! `BIASED_FENCED` a write costs a look at the slots instead of an interrupt on all CPUs, so that
//! one write in a hundred reads does not send all readers to a shared word.

mod api;
mod bias;
mod unguarded;

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::events::{Event, Snapshot};
use crate::held::Wanted;
use crate::platform::{AtomicCell, Os, Platform, cold_path};
use crate::policy::{BiasPolicy, ReadMostly, TimeFair};
use crate::raw::GuardStaysOnItsThread;
use crate::raw::{RawLock, RawReadWriteLock, Wait};
use crate::recorded::CountedLock;
use crate::rwsem::{HasQueuePool, RawRwSem};
use crate::slots::{Readers, Record, Slot};
use crate::spin_budget::SpinBudget;
pub use api::{
    ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard, ArcRwLockWriteGuard, MappedRwLockReadGuard,
    MappedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
    events,
};
pub(crate) use bias::TUNABLES;
use bias::*;

/// How many reads one thread can nest within a read by one slot.
const MOST_NESTED: u16 = u16::MAX;

/// The lock without its data: what [`RwLock`] is made of. Use it through `lock_api`.
pub struct RawRwLock<P: HasQueuePool = Os, B = ReadMostly> {
    sem: RawRwSem<TimeFair, P, Bias<P>>,
    policy: PhantomData<fn() -> B>,
}

/// What a read guard remembers: the slot by which the thread reads; none if by the semaphore.
/// Inert: forgetting it keeps the lock locked.
pub struct Shared<P: Platform> {
    slot: Option<&'static Slot<P>>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<RwLock<()>>() <= 32 + size_of::<crate::hold::IdentityOf<Os>>());

impl<P: Platform> Shared<P> {
    #[inline(always)]
    fn by(slot: &'static Slot<P>) -> Self {
        Shared { slot: Some(slot) }
    }

    #[inline(always)]
    fn by_semaphore() -> Self {
        Shared { slot: None }
    }
}

impl<P: HasQueuePool, B: BiasPolicy> RawRwLock<P, B> {
    /// Whether the lock counts reads and writes to find out whether readers should use slots.
    const COUNTS: bool = B::BIAS.reads != u32::MAX;

    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    pub const NEW: Self = RawRwLock { sem: RawRwSem::NEW, policy: PhantomData };

    /// What it has counted: see [`events`].
    pub fn events(&self) -> Snapshot {
        self.sem.events()
    }

    /// What identifies the lock to the check for recursion: its number, which no other lock ever
    /// has. Its address could become another lock's when this one is dropped or moved while a
    /// forgotten guard still counts as held.
    fn id(&self) -> *const () {
        let bias = self.bias().load(Relaxed);
        let number = match number(bias) {
            0 => self.get_number(),
            number => number,
        };
        // Odd, as no number of another lock is (`held::Number`).
        core::ptr::without_provenance((number as usize) << 1 | 1)
    }

    /// Gives the lock a number before readers use slots, which changes nothing else.
    #[cold]
    fn get_number(&self) -> u64 {
        let number = P::threads().new_lock();
        match self.bias().compare_exchange(0, word_of(number, 0, UNBIASED), Relaxed, Relaxed) {
            Ok(_) => number,
            Err(others) => bias::number(others),
        }
    }

    /// After how many reads readers use slots; the platform may say otherwise where reads are
    /// counted.
    #[inline(always)]
    fn reads() -> u32 {
        match B::BIAS.reads {
            0 | u32::MAX => B::BIAS.reads,
            reads => P::tuned(READS.with_value(reads)),
        }
    }

    /// While the bias is `UNBIASED`, each thread counts its reads in its own record, and so many at
    /// a time in the lock.
    #[inline(always)]
    fn reads_per_count() -> u32 {
        Self::reads().clamp(1, P::tuned(MOST_PER_COUNT))
    }

    /// See [`Bias::patience`](crate::policy::Bias::patience).
    #[inline(always)]
    fn patience() -> u32 {
        P::tuned(PATIENCE.with_value(B::BIAS.patience))
    }

    #[inline(always)]
    fn bias(&self) -> &P::AtomicU64 {
        self.sem.bias().word()
    }

    #[inline(always)]
    fn history(&self) -> &History<P> {
        self.sem.history()
    }

    // ---- readers ----

    /// Reads by this slot without a fence: the bias is `BIASED_UNFENCED`.
    #[inline(always)]
    fn read_unfenced(&self, slot: &'static Slot<P>, bias: u64) -> Option<Shared<P>> {
        slot.announce(bias);
        // Acquire pairs with the Release in `drop_fences` and `begin_bias`: this read comes after
        // all writers before that.
        if self.bias().load(Acquire) == bias {
            return Some(Shared::by(slot));
        }
        cold_path();
        slot.clear();
        None
    }

    /// Reads by this slot, with a fence.
    #[inline(always)]
    fn read_fenced(
        &self,
        own: &'static Record<P>,
        slot: &'static Slot<P>,
        bias: u64,
    ) -> Option<Shared<P>> {
        slot.announce_fenced(bias);
        // The semaphore before the bias: a writer that has come and gone in between may have made
        // the lock `UNBIASED`. Its Release pairs with the Acquire in `is_open_to_readers`. Acquire
        // as in `read_unfenced`.
        let is_open = self.sem.is_open_to_readers();
        if !is_open || self.bias().load(Acquire) != bias || !own.is_listed() {
            slot.clear();
            return None;
        }
        Some(Shared::by(slot))
    }

    /// Tries every way to read that needs no waiting. Inlined: what a call puts on the stack would
    /// have to reach the cache before a fence ends, which makes a read with a fence half as
    /// expensive again.
    #[inline(always)]
    fn read_at_once(&self) -> Option<Shared<P>> {
        let bias = self.bias().load(Relaxed);
        if bias & BIASED_UNFENCED != 0 {
            return self.read_unfenced(P::thread()?.first_slot()?, bias);
        }
        // Not rare, but one more jump hardly matters here.
        cold_path();
        if is_biased(bias) {
            let own = P::thread()?;
            let shared = self.read_fenced(own, own.first_slot()?, bias)?;
            if own.counts_read(P::tuned(READS_PER_LOOK.with_value(B::BIAS.reads_per_look))) {
                self.look(bias);
            }
            return Some(shared);
        }
        if Self::COUNTS && P::thread().is_none_or(|own| own.counts_read(Self::reads_per_count())) {
            return self.read_and_count();
        }
        self.sem.try_read_once().then(Shared::by_semaphore)
    }

    #[cold]
    fn read_and_count(&self) -> Option<Shared<P>> {
        self.sem.try_read_once().then(|| self.counted())
    }

    /// The caller has just acquired the semaphore. One in
    /// [`reads_per_count`](Self::reads_per_count) of a thread's reads counts for all of them, with
    /// no locked instruction; each read counts of a thread without a record.
    #[inline]
    fn counted(&self) -> Shared<P> {
        let bias = self.bias().load(Relaxed);
        if Self::COUNTS && mode(bias) == UNBIASED {
            let reads = match P::thread() {
                None => 1,
                Some(own) if own.has_counted(Self::reads_per_count()) => Self::reads_per_count(),
                Some(_) => 0,
            };
            if reads != 0 && self.history().count_reads(reads, enough(Self::reads())) {
                self.begin_bias(bias);
            }
        }
        Shared::by_semaphore()
    }

    #[cold]
    fn wait_to_read(&self) -> Shared<P> {
        self.read_slow(None).expect("without a deadline a wait ends with the lock")
    }

    /// Reads by a slot or by the semaphore. None if the deadline passed.
    #[cold]
    fn read_slow(&self, deadline: Option<u64>) -> Option<Shared<P>> {
        if let Some(shared) = self.read_by_slot_soon(deadline) {
            return Some(shared);
        }
        self.sem.read(Wait::until(deadline)).map(|()| self.counted())
    }

    /// Reads by a slot, now or as soon as a writer has released the lock. None if the caller should
    /// rather wait for the semaphore.
    #[inline(always)]
    fn read_by_slot_soon(&self, deadline: Option<u64>) -> Option<Shared<P>> {
        let mut budget = None;
        while is_biased(self.bias().load(Relaxed)) {
            if !self.sem.has_writer() {
                if let Some(shared) = self.read_by_any_slot() {
                    return Some(shared);
                }
                if !self.sem.has_writer() {
                    break; // No slot is free, or a writer has come and gone.
                }
            }
            // A writer holds the lock, and may release it sooner than a sleep would end.
            let budget = budget
                .get_or_insert_with(|| SpinBudget::new::<P>(P::wake_latency().into(), deadline));
            if !self.sem.owner_may_run() || !budget.relax::<P>() {
                break;
            }
        }
        None
    }

    /// Reads by any slot of this thread that is free.
    fn read_by_any_slot(&self) -> Option<Shared<P>> {
        let bias = self.bias().load(Relaxed);
        if !is_biased(bias) {
            return None;
        }
        let own = P::thread()?;
        let slot = own.free_slot()?;
        if bias & BIASED_UNFENCED != 0 {
            return self.read_unfenced(slot, bias);
        }
        if !own.is_listed() && !P::threads().list(own) {
            return None;
        }
        self.read_fenced(own, slot, bias)
    }

    /// Reads by a slot or the semaphore, without waiting.
    #[cold]
    fn try_read(&self) -> Option<Shared<P>> {
        if let Some(shared) = self.read_by_any_slot() {
            return Some(shared);
        }
        self.sem.read(Wait::Not).map(|()| self.counted())
    }

    /// Readers use slots from now on. Invariant 1: the caller holds the semaphore, so no writer
    /// does.
    #[cold]
    fn begin_bias(&self, bias: u64) {
        let number = match number(bias) {
            0 => P::threads().new_lock(),
            number => number,
        };
        let writes = P::tuned(WRITES.with_value(B::BIAS.writes.into()));
        let next = word_of(number, writes, BIASED_FENCED);
        // Release pairs with the Acquire of readers that use slots because of it.
        if self.bias().compare_exchange(bias, next, AcqRel, Relaxed).is_ok() {
            self.history().note_write_seen(next);
            self.sem.count(Event::BiasBegin);
            if Self::patience() == 0 && P::is_asymmetric() {
                self.drop_fences(next);
            }
        }
    }

    /// Called now and then by a reader that uses fences: drops them if no write has happened for
    /// long enough. Invariant 1: the caller holds the lock.
    #[cold]
    fn look(&self, bias: u64) {
        if bias & BIASED_FENCED != 0 && P::is_asymmetric() && self.is_quiet(bias) {
            self.drop_fences(bias);
        }
    }

    /// Readers use no fences from now on, unless somebody is queued or a writer waits for readers
    /// in slots. Invariant 1: the caller holds the lock.
    fn drop_fences(&self, bias: u64) {
        if self.sem.has_waiters() || self.sem.has_writer() {
            return;
        }
        // Release pairs with the Acquire of readers that use no fence because of it.
        let unfenced = bias - BIASED_FENCED + BIASED_UNFENCED;
        if self.bias().compare_exchange(bias, unfenced, AcqRel, Relaxed).is_ok() {
            self.sem.count(Event::BiasUnfenced);
            // Invariant 6; pairs with the fences in `note_waiter` and `revoke`.
            P::fence_after_update();
            if self.sem.has_waiters() || self.sem.has_writer() {
                self.sem.bias().begin_revoking();
            }
        }
    }

    /// Whether no write has happened for `patience` times as long as a revocation costs.
    fn is_quiet(&self, bias: u64) -> bool {
        let patience = || P::threads().revocation_ns() * u64::from(Self::patience());
        self.history().is_quiet(bias, patience)
    }

    /// The slot by which this thread reads the lock, if it does so by one.
    fn own_slot(&self) -> Option<&'static Slot<P>> {
        // Relaxed: if this thread reads by a slot, the number is the one that it saw then
        // (invariant 4).
        let bias = self.bias().load(Relaxed);
        if !is_biased(bias) {
            return None;
        }
        P::thread()?.slot_with(|tag| number(tag) == number(bias))
    }

    // ---- writers ----

    /// Waits for the readers in slots. The caller holds the semaphore exclusively, and still does
    /// afterwards, also if this returns false: then there are readers in slots.
    #[inline(always)]
    fn exclude_readers(&self, wait: Wait) -> bool {
        // Relaxed: the semaphore orders this after every change from `UNBIASED` (invariant 1).
        let bias = self.bias().load(Relaxed);
        if is_biased(bias) {
            return self.revoke(bias, wait);
        }
        self.count_write();
        true
    }

    /// The caller holds the semaphore exclusively, and the bias is `UNBIASED`.
    #[inline(always)]
    fn count_write(&self) {
        if Self::COUNTS {
            self.history().count_write(outweighed::<P>(Self::reads()));
        }
    }

    #[inline(never)]
    fn revoke(&self, mut bias: u64, wait: Wait) -> bool {
        self.sem.count(Event::BiasRevoke);
        let threads = P::threads();
        let mine = number(bias);
        let is_mine = |tag: u64| number(tag) == mine;
        loop {
            let readers = readers(bias);
            let barrier_ns = match readers {
                Readers::Any => self.revoke_unfenced(bias),
                Readers::UseFences => {
                    P::fence_after_update();
                    0
                }
            };
            let looked = if barrier_ns == 0 { 0 } else { P::now() };
            let spends = spent_by_look(threads.look_ns());
            if tally(bias) % P::tuned(TALLY_PER_MEASURED_LOOK) < spends {
                threads.measure_look(is_mine);
            }
            let mut since = 0;
            let left = if wait == Wait::Not {
                !threads.any_reader(readers, is_mine)
            } else {
                let begins = || since = if since == 0 { P::now() } else { since };
                let left = threads.wait_for_readers(readers, is_mine, wait.deadline(), begins);
                if since != 0 {
                    self.sem.note_reads(since);
                }
                left
            };
            if !left {
                self.sem.bias().keep_revoking(bias);
                return false;
            }
            if barrier_ns != 0 {
                let look_ns = if since == 0 { P::now() } else { since } - looked;
                threads.note_revocation(barrier_ns, look_ns);
            }
            // A reader that held the lock may have changed it.
            bias = self.bias().load(Relaxed);
            if bias & BIASED_FENCED != 0 {
                break;
            }
        }
        // Nobody reads by a slot, so nobody else writes the bias now.
        let next = match tally(bias).checked_sub(spent_by_look(threads.look_ns())) {
            Some(tally) => word_of(mine, tally, BIASED_FENCED),
            None => {
                self.sem.count(Event::BiasEnd);
                bias - BIASED_FENCED + UNBIASED
            }
        };
        self.bias().store(next, Relaxed);
        if !is_biased(next) {
            self.history().forget();
        }
        true
    }

    /// Sets `BIASED_FENCED` and raises a barrier, so that every reader has seen that or is seen.
    /// How long that took, ns.
    #[cold]
    fn revoke_unfenced(&self, bias: u64) -> u64 {
        self.sem.count(Event::BiasBarrier);
        let began = P::now();
        self.bias().store(word_of(number(bias), tally(bias), BIASED_FENCED), Relaxed);
        P::asymmetric_heavy();
        (P::now() - began).max(1)
    }

    /// Whether some thread has announced in a slot that it reads, or tries to.
    fn has_reader_in_slot(&self) -> bool {
        let bias = self.bias().load(Relaxed);
        is_read(P::threads(), bias)
    }

    /// A writer may have to wait for the semaphore.
    fn begin_revoking(&self) {
        self.sem.bias().begin_revoking();
    }

    /// The semaphore exclusively, when it cannot be had at once.
    #[cold]
    fn write_slow(&self, wait: Wait) -> bool {
        if wait == Wait::Not {
            return self.sem.write(wait);
        }
        self.begin_revoking();
        let acquired = self.sem.write_slow(wait);
        assert!(acquired || wait != Wait::ForEver, "a wait for ever ends with the lock");
        acquired
    }
}

// SAFETY: a writer is alone in the semaphore and in the slots (invariants 1 and 2); acquisitions
// are Acquire, releases Release. A lock's number moves with it and is never reused once the lock is
// dropped, so a forgotten guard affects no other lock (invariant 3). Guards stay on their threads,
// as slots do.
unsafe impl<P: HasQueuePool, B: BiasPolicy> RawLock for RawRwLock<P, B> {
    type Platform = P;
    type Residence = GuardStaysOnItsThread;
    const WANTED: Wanted = Wanted::Write;

    #[inline(always)]
    fn write(&self, wait: Wait) -> bool {
        // If it does not wait, first a look that disturbs no other thread.
        if wait == Wait::Not && self.has_reader_in_slot() {
            return false;
        }
        let at_once = wait != Wait::Not && self.sem.write_at_once();
        if !at_once && !wait.has_ended_well(self.write_slow(wait)) {
            return false;
        }
        let alone = wait.has_ended_well(self.exclude_readers(wait));
        if !alone {
            // SAFETY: the semaphore is held exclusively, by one of the calls above.
            unsafe { self.sem.unlock_write(false) };
        }
        alone
    }

    #[inline(always)]
    unsafe fn unlock_write(&self, fair: bool) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { self.sem.unlock_write(fair) };
    }

    fn is_locked(&self) -> bool {
        self.sem.is_locked() || self.has_reader_in_slot()
    }

    fn id(&self) -> *const () {
        RawRwLock::id(self)
    }

    #[inline(always)]
    fn counted(&self) -> Option<&CountedLock> {
        RawLock::counted(&self.sem)
    }

    fn has_writer(&self) -> bool {
        self.sem.has_writer()
    }
}

// SAFETY: as for `RawLock`. The semaphore admits one upgradable holder, which becomes the writer
// once it is alone in the semaphore and then in the slots.
unsafe impl<P: HasQueuePool, B: BiasPolicy> RawReadWriteLock for RawRwLock<P, B> {
    type Shared = Shared<P>;

    #[inline(always)]
    fn read(&self, wait: Wait) -> Option<Shared<P>> {
        self.read_at_once().or_else(|| match wait {
            Wait::Not => self.try_read(),
            Wait::ForEver => Some(self.wait_to_read()),
            Wait::Until(deadline) => self.read_slow(Some(deadline)),
        })
    }

    #[inline(always)]
    unsafe fn unlock_read(&self, shared: Shared<P>, fair: bool) {
        match shared.slot {
            Some(slot) => slot.clear(),
            // SAFETY: held shared, and not by a slot, as the caller promises.
            None => unsafe { self.sem.unlock_read((), fair) },
        }
    }

    unsafe fn recover_shared(&self) -> Shared<P> {
        self.own_slot().map_or_else(Shared::by_semaphore, Shared::by)
    }

    fn upgradable(&self, wait: Wait) -> bool {
        self.sem.upgradable(wait)
    }

    unsafe fn unlock_upgradable(&self, fair: bool) {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { self.sem.unlock_upgradable(fair) };
    }

    unsafe fn upgrade(&self, wait: Wait) -> bool {
        if wait == Wait::Not && self.has_reader_in_slot() {
            return false;
        }
        // SAFETY: held upgradable, as the caller promises.
        if !unsafe { self.sem.upgrade(wait) } {
            return false;
        }
        let alone = self.exclude_readers(wait);
        if !alone {
            // SAFETY: the semaphore is held exclusively since `upgrade` above.
            unsafe { self.sem.downgrade_to_upgradable() };
        }
        alone
    }

    unsafe fn downgrade_upgradable(&self) -> Shared<P> {
        // SAFETY: held upgradable, as the caller promises.
        unsafe { self.sem.downgrade_upgradable() };
        Shared::by_semaphore()
    }

    unsafe fn downgrade_to_read(&self) -> Shared<P> {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { self.sem.downgrade_to_read() };
        Shared::by_semaphore()
    }

    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: held exclusively, as the caller promises.
        unsafe { self.sem.downgrade_to_upgradable() };
    }

    fn is_locked_exclusive(&self) -> bool {
        self.sem.is_locked_exclusive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::policy::Bias;
    use crate::slots::HasRecords;

    /// Readers use slots from the first read on, without fences where the platform allows that.
    struct AtOnce;

    impl BiasPolicy for AtOnce {
        const BIAS: Bias = Bias { reads: 0, reads_per_look: 1, patience: 0, ..Bias::READ_MOSTLY };
    }

    #[test]
    fn a_writer_that_gives_up_leaves_readers_without_fences_to_the_next_one() {
        let [idle, reads, tried] = [const { Barrier::new(2) }; 3];
        let lock: RwLock<(), AtOnce> = RwLock::with_policy(());
        let other = crate::RwLock::new(());
        // Two, as a thread's first read only says that slots are to be used.
        (0..2).for_each(|_| drop(lock.read()));
        thread::scope(|scope| {
            scope.spawn(|| {
                drop(other.read());
                idle.wait();
                idle.wait();
                let _held = lock.read();
                reads.wait();
                tried.wait();
            });
            idle.wait();
            // The first notes what has been read, the second finds that nothing came since.
            (0..2).for_each(|_| Os::threads().unlist_idle());
            idle.wait();
            reads.wait();
            let timed = lock.try_write_for(Duration::from_millis(1)).is_some();
            let tries = lock.try_write().is_some();
            tried.wait();
            assert!(!timed);
            assert!(!tries, "the reader's record is not listed");
        });
        assert!(lock.try_write().is_some());
    }
}
