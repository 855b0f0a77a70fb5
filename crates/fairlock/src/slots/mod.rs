//! Slots: a thread that reads under an [`RwLock`](crate::RwLock), or holds a range of a
//! [`RangeLock`](crate::RangeLock), says so in cache lines of its own, so that threads share nothing.
//!
//! ```text
//!   process ──► chunk ──► record of thread 1: [ slot | slot | slot | slot ]  owned  [ range | … ]
//!                         record of thread 2: [ slot | slot | slot | slot ]  owned  [ range | … ]
//!                         …                     ▲ one cache line, written by that thread
//! ```
//!
//! What follows is about the slots of readers; those of ranges are in `range.rs`.
//!
//! A thread claims a record at its first read and gives it back when it ends. Records are never
//! freed, so a writer may look at all of them at any time, and a reader that leaves touches
//! nothing but its own record: not even the lock, which may be gone by then.
//!
//! A thread's end is not its last instruction: destructors run after it, in an order that nobody here
//! chooses, and may unlock what the thread still reads. So a record that still says something when
//! its thread ends stays that thread's until it says nothing any more:
//!
//! | `owned` | the record | leaves that state when |
//! |---|---|---|
//! | `FREE` | is nobody's, and empty | a thread claims it |
//! | `OWNED` | is a thread's, which enters and leaves by it | its thread ends: `FREE` if it is empty, else `ENDED` |
//! | `ENDED` | is a thread's that has ended, which only leaves by it | its thread takes it back for one operation ([`EndedThread`]); or it is empty, and a thread claims it |
//!
//! The ended thread remembers the record and which claim of it was its own. If another thread has
//! claimed the record since, the ended thread sees a later claim and leaves the record alone.
//!
//! Invariants
//! 1. A slot's tag is 0, or that of the lock that its thread reads under or tries to. The
//!    record's thread alone sets a tag that is 0; whoever drops the guard clears it.
//! 2. `used` is more than the index of every record that was ever claimed, seen by everybody who
//!    sees a tag in it.
//! 3. A record whose tags are not all 0 is not given to another thread: a guard that was forgotten
//!    keeps its slot, and the record, for ever. Except in the child of a `fork`, see
//!    `Threads::keep_only`. In `FREE` all tags are 0, and in `ENDED` none is set that is 0: so a record
//!    that was seen empty in either stays so until its next claim.
//! 4. `search` does not pass a record that can be claimed: all below it are owned, or were given back
//!    with a tag. Those are found again once their thread has ended the last of its reads without a
//!    guard, or once a lower one is given back.
//! 5. Whoever clears a tag looks at `awaited` *afterwards*; a writer raises `awaited` *before* the
//!    last look at the tag that precedes its sleep. A barrier lies between on both sides.
//! 6. The plain cells are touched by the record's thread alone; in the child of a `fork` by
//!    the only thread that there is.
//! 7. `nested` counts the reads, of those without guards, that came in by a slot that said already
//!    what they would have said. Where the tag is 0 so is the count: a read without a guard that ends
//!    takes the count down first, and clears the tag only where it is 0.
//! 8. Each claim of a record has a number of its own, in `owned`. From `ENDED` only the thread whose
//!    claim it was goes back to `OWNED` with the same number.

pub(crate) mod range;

use core::hint::cold_path;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::chunks::Chunks;
use crate::platform::{AtomicCell, AtomicInt, PlainCell, Platform};
use crate::spin_budget::SpinBudget;

pub(crate) use range::RangeSlot;

/// A platform whose threads have records: what locks need of it that say who reads in slots. Every
/// [`Host`](crate::process::Host) is one.
///
/// # Safety
/// As `Host`: only its implementations implement this.
pub unsafe trait HasRecords: Platform {
    /// The records of this process.
    fn threads() -> &'static Threads<Self>;

    /// The calling thread's record; none where it cannot have one.
    fn thread() -> Option<&'static Record<Self>>;

    /// What the calling thread was given for its record at its end.
    fn ended_thread() -> EndedThread<Self>;

    /// The expensive side of an asymmetric barrier, shared with threads that want one at the same time.
    fn asymmetric_heavy();
}

/// What `act` does with the calling thread's record; where the thread has ended, with the one by which
/// it still reads.
///
/// # Safety
/// `act` sets no tag that is 0: it ends reads, or adds some to a slot's.
#[inline(always)]
pub(crate) unsafe fn with_record<P: HasRecords, R>(act: impl FnOnce(&Record<P>) -> R) -> Option<R> {
    let Some(record) = P::thread() else {
        // SAFETY: the platform answers what the records of this process gave to this thread at its end;
        // `act` sets no tag that is 0, as this function's caller promises.
        return unsafe { P::ended_thread().with_record(P::threads(), act) };
    };
    Some(act(record))
}

/// Locks that one thread can read under at once without touching them: what fits a cache line.
pub(crate) const SLOTS: usize = 4;
/// Ranges that one thread can hold at once, of all locks together, without any memory from elsewhere:
/// what fits two cache lines.
pub(crate) const RANGES: usize = 4;
const RECORDS_PER_CHUNK: usize = 64;
/// So many times 64 threads; later ones do without a record. 4 KiB of pointers in the process.
const CHUNKS: usize = 512;

/// How often a thread that reads past those that wait looks at the clock, in µs: a small part of any budget.
const LOOK_EVERY: u32 = 16;
/// A look costs 28 ns here, a read at least 5, so looks cost 2 % at most.
const MOST_BETWEEN_LOOKS: u32 = 256;

/// In `awaited`: the platform has no asymmetric barrier, so a full one must precede the look at
/// the rest, which says who waits.
const FENCED: u32 = 1 << 31;

/// Of `owned`: whose the record is, and above that how often it was claimed.
const OWNERSHIP: u64 = 0b11;
const FREE: u64 = 0b00;
const OWNED: u64 = 0b01;
const ENDED: u64 = 0b10;
const ONE_CLAIM: u64 = OWNERSHIP + 1;

/// One lock that a thread reads under.
#[repr(C)]
pub struct Slot<P: Platform> {
    tag: P::AtomicU64,
    /// Writers that wait for the tag to change; see [`FENCED`].
    awaited: P::AtomicU32,
    /// What they sleep on: changes when the tag is cleared while somebody waits.
    event: P::AtomicU32,
}

/// One thread's slots. Starts of two cache lines, as processors fetch lines in pairs.
#[repr(C, align(128))]
pub struct Record<P: Platform> {
    slots: [Slot<P>; SLOTS],
    // ---- the second line, which hardly anybody else touches ----
    owned: P::AtomicU64,
    /// Counts the thread's reads, but for those without a fence.
    reads: P::AtomicU32,
    /// Reads past waiters until the thread looks at the clock, and between its looks.
    until_look: P::Cell<u32>,
    between_looks: P::Cell<u32>,
    /// When it looked last, µs.
    looked: P::Cell<u32>,
    /// The room that this thread rents next (`rwsem/queue_pool.rs`), null if it has none. It stays with
    /// the record when the thread ends.
    spare_queue: P::Cell<*const ()>,
    /// The queue of spinners that this thread may be in (`rwsem/queue_storage.rs`), null if none.
    spins_in: P::Cell<*const ()>,
    index: u32,
    /// Reads within the one that each slot says; see invariant 7.
    nested: [P::Cell<u32>; SLOTS],
    ranges: Ranges<P>,
}

/// On lines of their own.
#[repr(C, align(128))]
struct Ranges<P: Platform>([RangeSlot<P>; RANGES]);

const _: () = assert!(size_of::<Ranges<crate::platform::Os>>() == 128, "two cache lines");
const _: () = assert!(size_of::<Record<crate::platform::Os>>() == 256, "two, and those");

// SAFETY: invariant 6 for the plain cells; everything else is atomic.
unsafe impl<P: Platform> Sync for Record<P> {}
// SAFETY: a record is not bound to a thread before it is claimed.
unsafe impl<P: Platform> Send for Record<P> {}

impl<P: HasRecords> Slot<P> {
    const NEW: Self =
        Slot { tag: P::AtomicU64::ZERO, awaited: P::AtomicU32::ZERO, event: P::AtomicU32::ZERO };

    /// Says that this thread is about to read; ordered against what follows by nothing but
    /// [`Platform::asymmetric_light`].
    #[inline(always)]
    pub(crate) fn announce(&self, tag: u64) {
        self.tag.store(tag, Relaxed);
        P::asymmetric_light();
    }

    /// The same with a full barrier.
    #[inline(always)]
    pub(crate) fn announce_fenced(&self, tag: u64) {
        P::store_and_fence(&self.tag, tag);
    }

    /// The thread has left, or did not enter. Touches nothing but the record.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        // Release pairs with the Acquire in `is_held_by`: the next writer comes after this reader.
        self.tag.store(0, Release);
        P::asymmetric_light();
        if self.awaited.load(Relaxed) != 0 {
            self.tell();
        }
    }

    #[cold]
    fn tell(&self) {
        if self.awaited.load(Relaxed) & FENCED != 0 {
            P::fence();
        }
        let writers = self.awaited.load(Relaxed) & !FENCED;
        if writers != 0 {
            // Release pairs with the Acquire in `sleep`: who sees this event sees the tag cleared.
            self.event.fetch_add(1, Release);
            (0..writers).for_each(|_| P::unpark(&self.event));
        }
    }

    #[inline(always)]
    fn is_held_by(&self, is_tag: &impl Fn(u64) -> bool) -> bool {
        is_tag(self.tag.load(Acquire))
    }

    /// Waits until the tag is another. False if the deadline passed.
    #[inline(never)]
    fn wait(&self, is_tag: &impl Fn(u64) -> bool, deadline: Option<u64>) -> bool {
        // As long as a wake-up takes: that never costs more than twice the better choice.
        let mut budget = SpinBudget::new::<P>(P::wake_latency().into(), deadline);
        while self.is_held_by(is_tag) {
            if !budget.relax::<P>() {
                return self.sleep(is_tag, deadline);
            }
        }
        true
    }

    #[cold]
    fn sleep(&self, is_tag: &impl Fn(u64) -> bool, deadline: Option<u64>) -> bool {
        self.awaited.fetch_add(1, Relaxed);
        // Invariant 5; pairs with the barrier in `clear` or `tell`.
        if P::is_asymmetric() {
            P::asymmetric_heavy()
        } else {
            P::fence()
        }
        let left = loop {
            // Acquire pairs with the Release in `tell`.
            let event = self.event.load(Acquire);
            if !self.is_held_by(is_tag) {
                break true;
            }
            if deadline.is_some_and(|deadline| P::now() >= deadline) {
                break false;
            }
            P::park(&self.event, event, deadline);
        };
        self.awaited.fetch_sub(1, Relaxed);
        left
    }
}

impl<P: HasRecords> Record<P> {
    fn new(index: u32) -> Self {
        Record {
            slots: [const { Slot::NEW }; SLOTS],
            owned: P::AtomicU64::ZERO,
            reads: P::AtomicU32::ZERO,
            until_look: P::Cell::ZERO,
            between_looks: P::Cell::ZERO,
            looked: P::Cell::ZERO,
            spare_queue: P::Cell::ZERO,
            spins_in: P::Cell::ZERO,
            index,
            nested: [const { P::Cell::ZERO }; SLOTS],
            ranges: Ranges([const { RangeSlot::NEW }; RANGES]),
        }
    }

    /// For the record's thread only.
    pub(crate) fn spare_queue(&self) -> &P::Cell<*const ()> {
        &self.spare_queue
    }

    /// For the record's thread only.
    pub(crate) fn spins_in(&self) -> &P::Cell<*const ()> {
        &self.spins_in
    }

    /// The first slot, if it says nothing yet: for the path that must be short.
    #[inline(always)]
    pub(crate) fn first_slot(&self) -> Option<&Slot<P>> {
        let [first, ..] = &self.slots;
        if first.tag.load(Relaxed) == 0 {
            return Some(first);
        }
        cold_path();
        None
    }

    /// Counts one of this thread's reads; true for every so many-th.
    #[inline(always)]
    pub(crate) fn counts_read(&self, every: u32) -> bool {
        let reads = self.reads.load(Relaxed).wrapping_add(1);
        self.reads.store(reads, Relaxed);
        reads.is_multiple_of(every)
    }

    /// Counts one of this thread's reads past somebody who waits; true if it should look at the clock.
    #[inline(always)]
    pub(crate) fn is_time_to_look(&self) -> bool {
        let left = self.until_look.get();
        self.until_look.set(left.wrapping_sub(1));
        left == 0
    }

    /// This thread looks at the clock. It does so about every [`LOOK_EVERY`], however long it reads
    /// and whatever it does between reads, and at a read taken by chance, as it may read under several locks by turns.
    pub(crate) fn note_look(&self) {
        let now = (P::now() >> 10) as u32;
        let elapsed = now.wrapping_sub(self.looked.get());
        self.looked.set(now);
        // By steps, as the thread may have been away: so many reads took so long, but for one of them.
        let between = self.between_looks.get().max(1);
        let between = if elapsed < LOOK_EVERY { between * 2 } else { between / 4 };
        let between = between.clamp(1, MOST_BETWEEN_LOOKS);
        self.between_looks.set(between);
        let by_chance = P::turn().wrapping_mul(0x9e37_79b9) >> 16;
        self.until_look.set(between / 2 + by_chance % between);
    }

    /// A slot that says nothing yet.
    #[inline(always)]
    pub(crate) fn free_slot(&self) -> Option<&Slot<P>> {
        self.slots.iter().find(|slot| slot.tag.load(Relaxed) == 0)
    }

    /// One read more in a slot that says already that this thread reads: without a store that others
    /// see, so no writer can object. `None` if no slot says so, false if it counts `most` already.
    pub(crate) fn nest(&self, is_tag: impl Fn(u64) -> bool, most: u32) -> Option<bool> {
        let at = self.slots.iter().position(|slot| is_tag(slot.tag.load(Relaxed)))?;
        let nested = self.nested[at].get();
        if nested < most {
            self.nested[at].set(nested + 1);
        }
        Some(nested < most)
    }

    /// Ends a read of this thread's, without a guard, by a slot that says so. False if none does.
    #[inline(always)]
    pub(crate) fn leave(&self, is_tag: impl Fn(u64) -> bool) -> bool {
        let ([first, ..], [nested, ..]) = (&self.slots, &self.nested);
        if is_tag(first.tag.load(Relaxed)) && nested.get() == 0 {
            first.clear();
            return true;
        }
        self.leave_nested_or_another(is_tag)
    }

    /// Which of several slots with such a tag does not matter: each is one of this thread's reads.
    #[cold]
    fn leave_nested_or_another(&self, is_tag: impl Fn(u64) -> bool) -> bool {
        let Some(at) = self.slots.iter().position(|slot| is_tag(slot.tag.load(Relaxed))) else {
            return false;
        };
        match self.nested[at].get() {
            0 => self.slots[at].clear(),
            nested => self.nested[at].set(nested - 1),
        }
        true
    }

    /// A slot for a range that says nothing yet.
    #[inline(always)]
    pub(crate) fn free_range(&self) -> Option<&RangeSlot<P>> {
        self.ranges.0.iter().find(|slot| slot.is_free())
    }

    fn is_empty(&self) -> bool {
        // Acquire pairs with the Release in `clear`: the record's next thread comes after the last
        // time that the one before left by it.
        self.slots.iter().all(|slot| slot.tag.load(Acquire) == 0)
            && self.ranges.0.iter().all(RangeSlot::is_free)
    }

    fn claim(&self) -> bool {
        // Acquire pairs with the Release in `disown`.
        let found = self.owned.load(Acquire);
        // Invariant 3.
        let is_claimable = match found & OWNERSHIP {
            FREE => true,
            ENDED => self.is_empty(),
            _ => false,
        };
        let claimed = (found & !OWNERSHIP).wrapping_add(ONE_CLAIM) | OWNED;
        if !is_claimable || self.owned.compare_exchange(found, claimed, Acquire, Relaxed).is_err() {
            return false;
        }
        if !P::is_asymmetric() {
            // A writer may still be about to count itself out.
            self.slots.iter().for_each(|slot| _ = slot.awaited.fetch_or(FENCED, Relaxed));
            self.ranges.0.iter().for_each(RangeSlot::fence_always);
        }
        true
    }

    /// For the record's thread only. If the record is not empty: the number of its claim, by which the
    /// thread finds it again.
    fn disown(&self) -> Option<u64> {
        let claim = self.owned.load(Relaxed) & !OWNERSHIP;
        let is_empty = self.is_empty();
        // Release pairs with the Acquire in `claim`.
        self.owned.store(claim | if is_empty { FREE } else { ENDED }, Release);
        (!is_empty).then_some(claim)
    }

    /// Makes it the ended thread's again whose claim this was. False if it is another's by now.
    fn take_back(&self, claim: u64) -> bool {
        self.owned.compare_exchange(claim | ENDED, claim | OWNED, Relaxed, Relaxed).is_ok()
    }
}

/// What a thread remembers of its record once it has [ended](crate::process::Process::thread_ended): by
/// it, the reads without guards end that the thread had not ended before.
///
/// Plain words; all zero is [`NONE`](Self::NONE).
#[repr(C)]
pub struct EndedThread<P: Platform> {
    /// Null, or a record that lives as long as the thread's process. It may be another thread's by now.
    record: *const Record<P>,
    /// The number of the claim by which it was this thread's.
    claim: u64,
}

impl<P: Platform> Clone for EndedThread<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for EndedThread<P> {}

impl<P: HasRecords> EndedThread<P> {
    /// Of a thread that has not ended, or that held nothing when it did.
    pub const NONE: Self = EndedThread { record: ptr::null(), claim: 0 };

    /// What `act` does with the record, if it is still this thread's.
    ///
    /// # Safety
    /// This is what the calling thread remembers of its record, which is among those of `threads`. `act`
    /// sets no tag that is 0.
    #[cold]
    pub(crate) unsafe fn with_record<R>(
        self,
        threads: &Threads<P>,
        act: impl FnOnce(&Record<P>) -> R,
    ) -> Option<R> {
        // SAFETY: null or a record of `threads`, where it stays.
        let record = unsafe { self.record.as_ref() }?;
        if !record.take_back(self.claim) {
            return None;
        }
        let done = act(record);
        threads.release(record);
        Some(done)
    }
}

/// The records of all threads of a process, and the numbers by which locks are named in them.
pub struct Threads<P: Platform> {
    records: Chunks<P, Record<P>, RECORDS_PER_CHUNK, CHUNKS>,
    /// Locks that got a number so far.
    locks: P::AtomicU64,
    /// What a barrier on all CPUs takes a writer here, ns: a running estimate; 0 before the first.
    barrier_ns: P::AtomicU32,
    used: P::AtomicU32,
    /// Where to look for a free record, and above that how often one was given back, by which a
    /// thread that has found all of them taken sees that this is no longer so.
    search: P::AtomicU64,
}

/// Before one was measured, ns: a value for machines whose interrupts between CPUs are expensive.
const BARRIER_AT_FIRST: u32 = 10_000;
/// A sample counts for at most this many ns, as its thread may have been preempted.
const LONGEST_BARRIER: u64 = 1_000_000;

/// Of `search`: one record given back.
const GIVEN_BACK: u64 = 1 << 32;

impl<P: HasRecords> Threads<P> {
    #[allow(clippy::declare_interior_mutable_const)] // becomes part of a static
    pub(crate) const NEW: Self = Threads {
        records: Chunks::NEW,
        locks: P::AtomicU64::ZERO,
        barrier_ns: P::AtomicU32::ZERO,
        used: P::AtomicU32::ZERO,
        search: P::AtomicU64::ZERO,
    };

    /// A number for a lock; no two get the same.
    pub(crate) fn new_lock(&self) -> u64 {
        self.locks.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn barrier_ns(&self) -> u64 {
        match self.barrier_ns.load(Relaxed) {
            0 => BARRIER_AT_FIRST.into(),
            ns => ns.into(),
        }
    }

    /// May lose a concurrent sample.
    pub(crate) fn note_barrier(&self, ns: u64) {
        let estimate = (3 * self.barrier_ns() + ns.min(LONGEST_BARRIER)) / 4;
        self.barrier_ns.store(estimate.max(1) as u32, Relaxed);
    }

    /// A record for the calling thread; none if there are more threads than records, or no memory.
    /// The lowest that is free, as writers look at all up to the highest ever used.
    pub(crate) fn claim(&self) -> Option<&Record<P>> {
        // Acquire pairs with the Release in `release`: what was given back looks so.
        let search = self.search.load(Acquire);
        for index in search as u32 as usize..CHUNKS * RECORDS_PER_CHUNK {
            let record = self.records.get_or_make(index, |index| Record::new(index as u32))?;
            if record.claim() {
                self.raise_used(index as u32 + 1);
                let further = (search & !(GIVEN_BACK - 1)) | (index as u64 + 1);
                // Fails if one was given back meanwhile, perhaps among those seen taken
                // (invariant 4), or if another thread was faster: then it is nearly as far.
                let _ = self.search.compare_exchange(search, further, Relaxed, Relaxed);
                return Some(record);
            }
        }
        None
    }

    /// Gives a record back: its thread has ended. For that thread only.
    pub(crate) fn release(&self, record: &Record<P>) -> EndedThread<P> {
        let left = record.disown();
        let mut found = self.search.load(Relaxed);
        loop {
            let first = u64::from(record.index.min(found as u32));
            let now_free = ((found & !(GIVEN_BACK - 1)) | first).wrapping_add(GIVEN_BACK);
            // Release pairs with the Acquire in `claim`.
            match self.search.compare_exchange(found, now_free, Release, Relaxed) {
                Ok(_) => break,
                Err(newer) => found = newer,
            }
        }
        left.map_or(EndedThread::NONE, |claim| EndedThread { record, claim })
    }

    /// In the child of a `fork`, whose only thread has the record `own`: the others are gone, and
    /// with them what they read and whom they waited for. What a thread still held that had ended
    /// before, be it by a guard that it forgot, remains; but no room, all of which are about to be vacant.
    /// `left_spinning` is told each queue of spinners that one of those threads was in, or about to
    /// enter or leave.
    ///
    /// # Safety
    /// The calling thread is the only one, and came from the `fork` by which this process began. It
    /// was not in a lock's code.
    pub(crate) unsafe fn keep_only(
        &self,
        own: Option<&Record<P>>,
        mut left_spinning: impl FnMut(*const ()),
    ) {
        // Not up to `used`: a thread may have been about to raise it.
        let places = 0..CHUNKS * RECORDS_PER_CHUNK;
        for record in places.map_while(|index| self.records.get(index)) {
            let is_own = own.is_some_and(|own| core::ptr::eq(own, record));
            let is_gone = !is_own && record.owned.load(Relaxed) & OWNERSHIP == OWNED;
            for (slot, nested) in record.slots.iter().zip(&record.nested) {
                slot.awaited.fetch_and(FENCED, Relaxed);
                if is_gone {
                    slot.tag.store(0, Relaxed);
                    nested.set(0);
                }
            }
            // Guards of ranges may be with the thread that is left.
            record.ranges.0.iter().for_each(|slot| slot.forked(is_gone));
            if !is_own {
                record.spare_queue.set(ptr::null());
            }
            if is_gone {
                if !record.spins_in.get().is_null() {
                    left_spinning(record.spins_in.get());
                    record.spins_in.set(ptr::null());
                }
                self.release(record);
            }
        }
    }

    fn raise_used(&self, used: u32) {
        let mut found = self.used.load(Relaxed);
        while found < used {
            // AcqRel: whoever sees the count sees the chunks up to it, also those of others.
            match self.used.compare_exchange(found, used, AcqRel, Acquire) {
                Ok(_) => break,
                Err(newer) => found = newer,
            }
        }
    }

    /// Asks every slot of the threads that have ever read, until one says no; true if none does.
    #[inline(always)]
    fn all(&self, mut ask: impl FnMut(&Slot<P>) -> bool) -> bool {
        // Invariant 2: records below `used` were published before it was raised.
        let used = self.used.load(Acquire) as usize;
        self.records.all_of_first(used, |record| record.slots.iter().all(&mut ask))
    }

    /// Asks every slot for a range likewise.
    #[inline(always)]
    pub(crate) fn all_ranges<'a>(&'a self, mut ask: impl FnMut(&'a RangeSlot<P>) -> bool) -> bool {
        let used = self.used.load(Acquire) as usize;
        self.records.all_of_first(used, |record| record.ranges.0.iter().all(&mut ask))
    }

    /// Some thread reads under a lock with such a tag, or tries to.
    #[inline(always)]
    pub(crate) fn any_reader(&self, is_tag: impl Fn(u64) -> bool) -> bool {
        !self.all(|slot| !slot.is_held_by(&is_tag))
    }

    /// Waits until every slot that has such a tag now has another. The caller sees to it that no
    /// thread enters by one any more. False if the deadline passed.
    #[inline(always)]
    pub(crate) fn wait_for_readers(
        &self,
        is_tag: impl Fn(u64) -> bool,
        deadline: Option<u64>,
    ) -> bool {
        self.all(|slot| !slot.is_held_by(&is_tag) || slot.wait(&is_tag, deadline))
    }
}
