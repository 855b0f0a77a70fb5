//! Slots: a thread that reads under an [`RwLock`](crate::RwLock), or holds a range of a
//! [`RangeLock`](crate::RangeLock), says so in cache lines of its own, so that threads write no
//! line in common.
//!
//! ```text
//!   process ──► chunk ──► record of thread 1: [ slot | slot | slot | slot ]  owned  … ──► [ range | … ]
//!                         record of thread 2: [ slot | slot | slot | slot ]  owned  …
//!                         …                     ▲ one cache line, written by that thread
//! ```
//!
//! This header is about the slots of readers; those of ranges are in `range.rs`. A record gets them
//! when its thread first acquires a range. A slot's *tag* names the lock that its thread reads, and
//! is 0 if there is none.
//!
//! A thread claims a record at its first read and gives it back when it ends. Records are never
//! freed, so a writer may look at all of them at any time. A reader that releases the lock touches
//! nothing but its own record: not even the lock, which may be gone by then.
//!
//! A thread's end is not its last instruction: destructors run after it, in an order that nobody
//! here chooses, and may release what the thread still reads. So a record in which a tag is set
//! when its thread ends remains that thread's until all its tags are 0:
//!
//! | `owned` | the record | leaves that state when |
//! |---|---|---|
//! | `FREE` | belongs to nobody, and is empty | a thread claims it |
//! | `OWNED` | belongs to a thread, which acquires and releases by it | its thread ends: `FREE` if it is empty, otherwise `ENDED` |
//! | `ENDED` | belongs to a thread that has ended, which only releases by it | its thread takes it back for one operation ([`EndedThread`]); or it is empty, and another thread claims it |
//!
//! The ended thread remembers the record and the number of its own claim. If another thread has
//! claimed the record since, the ended thread sees a later number and leaves the record alone.
//!
//! Invariants
//! 1. A slot's tag is 0, or that of the lock that its thread reads or tries to read. Only the
//!    record's thread sets a tag that is 0. Dropping the guard clears the tag.
//! 2. `used` is greater than the index of every record that was ever claimed. Every thread that
//!    sees a tag in a record sees such a `used`, too.
//! 3. A record whose tags are not all 0 is not given to another thread: a guard that was forgotten
//!    keeps its slot, and the record, for ever. The child of a `fork` is an exception, see
//!    `Threads::keep_only`. In `FREE` all tags are 0, and in `ENDED` no tag that is 0 is set. So a
//!    record that was seen empty in either state stays empty until its next claim.
//! 4. `search` does not pass a record that can be claimed: each record below it is owned, or was
//!    given back with a tag set. A record given back with a tag is found again once its thread has
//!    ended the last of its reads without a guard, or once a lower one is given back.
//! 5. A thread that clears a tag looks at `awaited` *afterwards*. A writer raises `awaited`
//!    *before* it looks at the tag for the last time and sleeps. Both have a barrier in between.
//! 6. Only the record's thread touches the plain cells; in the child of a `fork`, only the one
//!    thread that exists there.
//! 7. `nested` counts reads without guards that found a slot with the right tag already set, and so
//!    set none. Where the tag is 0, the count is 0: the end of a read without a guard decrements
//!    the count, and clears the tag only if the count is 0.
//! 8. A record gets slots for ranges at most once, from its own thread, and keeps them.
//!    `ranges_used` is to them what `used` is to records (invariant 2).
//! 9. Each claim of a record has a number of its own, in `owned`. Only the thread whose claim it
//!    was brings a record back from `ENDED` to `OWNED` with the same number.
//! 10. A thread that reads with a fence has seen after it that its record is `LISTED`. Whoever
//!     takes a record off the list sets `UNLISTING` before it looks, with a fence in between, and
//!     finds no tag; only then it clears the record's bit. So a writer whose readers all use fences
//!     finds them in the listed records.

pub(crate) mod range;

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::chunks::Chunks;
use crate::line::{Line, Member, Members};
use crate::platform::{AtomicCell, AtomicInt, PlainCell, Platform, cold_path};
use crate::spin_budget::SpinBudget;

pub(crate) use range::RangeSlot;

/// A platform whose threads have records: what a lock needs whose readers use slots. Every
/// [`Host`](crate::process::Host) is one.
///
/// # Safety
/// What `Host` asks for: only types that implement it implement this.
pub unsafe trait HasRecords: Platform {
    /// The records of this process.
    fn threads() -> &'static Threads<Self>;

    /// The calling thread's record; none where it cannot have one.
    fn thread() -> Option<&'static Record<Self>>;

    /// The same if it has one already.
    fn known_thread() -> Option<&'static Record<Self>> {
        None
    }

    /// What the calling thread was given when it gave back its record.
    fn ended_thread() -> EndedThread<Self>;

    /// The expensive side of an asymmetric barrier, shared by the threads that want one at the same
    /// time.
    fn asymmetric_heavy();
}

/// Runs `act` as the front of the line. None also if the thread has no record.
pub fn at_front<P: HasRecords, R>(
    line: &Line<P>,
    until: Option<u64>,
    act: impl FnOnce() -> R,
) -> Option<R> {
    let number = P::thread()?.member_number();
    line.at_front(P::threads(), number, until, act)
}

/// Runs `act` on the calling thread's record; if the thread has ended, on the record by which it
/// still reads, if any.
///
/// # Safety
/// `act` sets no tag that is 0: it ends reads, or adds reads to a slot whose tag is set.
#[inline(always)]
pub(crate) unsafe fn with_record<P: HasRecords, R>(act: impl FnOnce(&Record<P>) -> R) -> Option<R> {
    let Some(record) = P::thread() else {
        // SAFETY: the platform returns what this thread was given for a record of this process.
        // `act` sets no tag that is 0, as this function's caller promises.
        return unsafe { P::ended_thread().with_record(P::threads(), act) };
    };
    Some(act(record))
}

/// Locks that one thread can read at once without touching them: as many slots as fit a cache line.
pub(crate) const SLOTS: usize = 4;
/// Ranges that one thread can hold at once, of all locks together, without allocating: as many
/// slots as fit two cache lines.
pub(crate) const RANGES: usize = 4;
/// Records that are allocated together at first. Fewer: more allocations. More: a small program
/// pays for records that it does not use. Chosen, not measured.
const FIRST_RECORDS: usize = 8;
/// Chunks of records, each as large as all before it together, and so 32,768 threads with a record;
/// further threads do without.
const CHUNKS: usize = 13;

/// In `awaited`: the platform has no asymmetric barrier, so a full one must precede the look at
/// the remaining bits, which say who waits.
const FENCED: u32 = 1 << 31;

/// In `owned`: who owns the record. The bits above count its claims.
const OWNERSHIP: u64 = 0b11;
const FREE: u64 = 0b00;
const OWNED: u64 = 0b01;
const ENDED: u64 = 0b10;
const ONE_CLAIM: u64 = OWNERSHIP + 1;

/// In `listing`: whether the record is among those that a writer looks at whose readers all use
/// fences.
const UNLISTED: u32 = 0;
const LISTED: u32 = 1;
/// A writer is about to take it off: until then its thread does without it.
const UNLISTING: u32 = 2;

/// One lock that a thread reads.
#[repr(C)]
pub struct Slot<P: Platform> {
    tag: P::AtomicU64,
    /// How many writers wait for the tag to change, and [`FENCED`].
    awaited: P::AtomicU32,
    /// What these writers sleep on: changes when the tag is cleared while somebody waits.
    event: P::AtomicU32,
}

/// One thread's slots. Aligned to two cache lines, as processors fetch lines in pairs.
#[repr(C, align(128))]
pub struct Record<P: Platform> {
    slots: [Slot<P>; SLOTS],
    // ---- the second line, which hardly anybody else touches ----
    owned: P::AtomicU64,
    /// The pooled queue that this thread acquires next (`rwsem/queue_pool.rs`), null if it has
    /// none. It stays with the record when the thread ends.
    spare_queue: P::Cell<*const ()>,
    /// Null until the thread first acquires a range (invariant 8).
    ranges: P::AtomicPtr<Ranges<P>>,
    /// Counts the thread's reads with a fence, or by semaphores of locks whose readers may use
    /// slots.
    reads: P::AtomicU32,
    /// What `reads` was when it was last looked at.
    reads_then: P::AtomicU32,
    listing: P::AtomicU32,
    index: u16,
    /// For each slot, the reads within the first; see invariant 7.
    nested: [P::Cell<u16>; SLOTS],
    /// The thread's place in line (`line.rs`).
    member: Member<P>,
}

/// One thread's slots for ranges, on cache lines of their own.
#[repr(C, align(128))]
pub struct Ranges<P: Platform>([RangeSlot<P>; RANGES]);

const _: () = assert!(size_of::<Ranges<crate::platform::Os>>() == 128, "two cache lines");
const _: () = assert!(size_of::<Record<crate::platform::Os>>() == 128, "two cache lines");

impl<P: HasRecords> Ranges<P> {
    /// A slot behind the first that is free.
    #[inline(never)]
    fn another_free(&self) -> Option<&RangeSlot<P>> {
        self.0.windows(2).map(RangeSlot::next).find(|slot| slot.is_free())
    }
}

// SAFETY: only the record's thread touches the plain cells (invariant 6); everything else is
// atomic.
unsafe impl<P: Platform> Sync for Record<P> {}
// SAFETY: a record is not bound to a thread before it is claimed.
unsafe impl<P: Platform> Send for Record<P> {}

impl<P: HasRecords> Slot<P> {
    const NEW: Self =
        Slot { tag: P::AtomicU64::ZERO, awaited: P::AtomicU32::ZERO, event: P::AtomicU32::ZERO };

    /// Says that this thread is about to read. Only [`Platform::asymmetric_light`] orders this
    /// before what follows.
    #[inline(always)]
    pub(crate) fn announce(&self, tag: u64) {
        self.tag.store(tag, Relaxed);
        P::asymmetric_light();
    }

    /// The same, followed by a full fence.
    #[inline(always)]
    pub(crate) fn announce_fenced(&self, tag: u64) {
        P::store_and_fence(&self.tag, tag);
    }

    /// The thread has released the lock, or did not acquire it. Touches nothing but the record.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        // Release pairs with the Acquire in `is_held_by`: the next writer comes after this reader.
        self.tag.store(0, Release);
        P::asymmetric_light();
        if self.awaited.load(Relaxed) != 0 {
            self.wake_writers();
        }
    }

    #[cold]
    fn wake_writers(&self) {
        if self.awaited.load(Relaxed) & FENCED != 0 {
            P::fence();
        }
        let writers = self.awaited.load(Relaxed) & !FENCED;
        if writers != 0 {
            // Release pairs with the Acquire in `sleep`: a writer that sees this event sees the tag
            // cleared.
            self.event.fetch_add(1, Release);
            (0..writers).for_each(|_| P::unpark(&self.event));
        }
    }

    #[inline(always)]
    fn is_held_by(&self, is_tag: &impl Fn(u64) -> bool) -> bool {
        is_tag(self.tag.load(Acquire))
    }

    /// Waits until the tag has changed to another. False if the deadline passed.
    #[inline(never)]
    fn wait(&self, is_tag: &impl Fn(u64) -> bool, deadline: Option<u64>) -> bool {
        // A spin that lasts as long as a wake-up never costs more than twice the better choice.
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
        // Invariant 5; pairs with the barrier in `clear` or `wake_writers`.
        if P::is_asymmetric() {
            P::asymmetric_heavy()
        } else {
            P::fence()
        }
        let left = loop {
            // Acquire pairs with the Release in `wake_writers`.
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

/// Each record is a member by its number.
impl<P: Platform> Members<P> for Threads<P> {
    fn member(&self, number: u32) -> &Member<P> {
        let mut attempt = 0;
        loop {
            if let Some(record) = self.records.get(number as usize - 1) {
                return &record.member;
            }
            // The number was seen before the memory that it speaks of; this is about to be seen,
            // too.
            P::give_way(attempt);
            attempt += 1;
        }
    }
}

/// By how much the counts of two threads with neighbouring records differ at first: in `is_one_in`,
/// by about a third of the way round.
const READS_APART: u32 = 7;

/// True for one in `every` of the numbers that `n` counts through, and at changing distances: a
/// thread may read several locks in turn, and each is to get its share, on average.
#[inline(always)]
fn is_one_in(n: u32, every: u32) -> bool {
    // 2^32 over the golden ratio: the multiples of this spread evenly.
    every <= 1 || n.wrapping_mul(0x9e37_79b9) < u32::MAX / every
}

impl<P: HasRecords> Record<P> {
    fn new(index: u32) -> Self {
        Record {
            slots: [const { Slot::NEW }; SLOTS],
            owned: P::AtomicU64::ZERO,
            spare_queue: P::Cell::ZERO,
            ranges: P::AtomicPtr::ZERO,
            // Threads that read a few times each count at different reads.
            reads: P::AtomicU32::new(index.wrapping_mul(READS_APART)),
            reads_then: P::AtomicU32::ZERO,
            listing: P::AtomicU32::new(UNLISTED),
            index: index as u16,
            nested: [const { P::Cell::ZERO }; SLOTS],
            member: Member::NEW,
        }
    }

    /// For the record's thread only.
    pub(crate) fn spare_queue(&self) -> &P::Cell<*const ()> {
        &self.spare_queue
    }

    /// The number of its thread's place in line.
    pub(crate) fn member_number(&self) -> u32 {
        u32::from(self.index) + 1
    }

    /// The first slot, if its tag is 0: for the path that must be short.
    #[inline(always)]
    pub(crate) fn first_slot(&self) -> Option<&Slot<P>> {
        let [first, ..] = &self.slots;
        if first.tag.load(Relaxed) == 0 {
            return Some(first);
        }
        cold_path();
        None
    }

    /// Counts one of this thread's reads; true for one in `every`.
    #[inline(always)]
    pub(crate) fn counts_read(&self, every: u32) -> bool {
        let reads = self.reads.load(Relaxed).wrapping_add(1);
        self.reads.store(reads, Relaxed);
        is_one_in(reads, every)
    }

    /// Whether it was, for the read that was counted last.
    pub(crate) fn has_counted(&self, every: u32) -> bool {
        is_one_in(self.reads.load(Relaxed), every)
    }

    /// Invariant 10.
    #[inline(always)]
    pub(crate) fn is_listed(&self) -> bool {
        self.listing.load(Relaxed) == LISTED
    }

    /// A slot whose tag is 0.
    #[inline(always)]
    pub(crate) fn free_slot(&self) -> Option<&Slot<P>> {
        self.slots.iter().find(|slot| slot.tag.load(Relaxed) == 0)
    }

    /// A slot with such a tag.
    pub(crate) fn slot_with(&self, is_tag: impl Fn(u64) -> bool) -> Option<&Slot<P>> {
        self.slots.iter().find(|slot| is_tag(slot.tag.load(Relaxed)))
    }

    /// Adds a read to a slot that already says that this thread reads. Other threads see no store,
    /// so no writer has to be asked. `None` if there is no such slot, false if it counts `most`
    /// already.
    pub(crate) fn nest(&self, is_tag: impl Fn(u64) -> bool, most: u16) -> Option<bool> {
        let at = self.slots.iter().position(|slot| is_tag(slot.tag.load(Relaxed)))?;
        let nested = self.nested[at].get();
        if nested < most {
            self.nested[at].set(nested + 1);
        }
        Some(nested < most)
    }

    /// Ends one of this thread's reads without a guard, by a slot with such a tag. False if there
    /// is none.
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

    /// A slot for a range that is free.
    #[inline(always)]
    pub(crate) fn free_range(&self) -> Option<&RangeSlot<P>> {
        self.free_range_in(P::threads)
    }

    /// The same for a record of `threads`.
    #[inline(always)]
    pub(crate) fn free_range_in<'a, 't: 'a>(
        &'a self,
        threads: impl FnOnce() -> &'t Threads<P>,
    ) -> Option<&'a RangeSlot<P>> {
        // Relaxed: this thread has set it, or claimed the record since.
        // SAFETY: null, or slots that the record's process keeps (invariant 8).
        let ranges = match unsafe { self.ranges.load(Relaxed).as_ref() } {
            Some(ranges) => ranges,
            None => threads().make_ranges(self)?,
        };
        let first = &ranges.0[0];
        if first.is_free() { Some(first) } else { ranges.another_free() }
    }

    /// Its slots for ranges, none if it has none.
    fn range_slots(&self) -> &[RangeSlot<P>] {
        // Acquire pairs with the Release in `make_ranges`.
        // SAFETY: null, or slots that the record's process keeps (invariant 8).
        unsafe { self.ranges.load(Acquire).as_ref() }.map_or(&[], |ranges| &ranges.0)
    }

    fn is_empty(&self) -> bool {
        // Acquire pairs with the Release in `clear`: the record's next thread comes after the last
        // release by its previous one.
        self.slots.iter().all(|slot| slot.tag.load(Acquire) == 0)
            && self.range_slots().iter().all(RangeSlot::is_free)
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
            // Not a store, as a writer may still be about to decrement `awaited`.
            self.slots.iter().for_each(|slot| _ = slot.awaited.fetch_or(FENCED, Relaxed));
        }
        true
    }

    /// For the record's thread only. If the record is not empty, returns the number of its claim,
    /// by which the thread finds it again.
    fn disown(&self) -> Option<u64> {
        let claim = self.owned.load(Relaxed) & !OWNERSHIP;
        let is_empty = self.is_empty();
        // Release pairs with the Acquire in `claim`.
        self.owned.store(claim | if is_empty { FREE } else { ENDED }, Release);
        (!is_empty).then_some(claim)
    }

    /// Gives the record back to the ended thread whose claim this was. False if another thread has
    /// claimed it.
    fn take_back(&self, claim: u64) -> bool {
        self.owned.compare_exchange(claim | ENDED, claim | OWNED, Relaxed, Relaxed).is_ok()
    }
}

/// What a thread remembers of its record once it has
/// [ended](crate::process::Process::thread_ended). It needs this to end reads without guards that
/// it has not ended before.
///
/// Plain words; all zero is [`NONE`](Self::NONE).
#[repr(C)]
pub struct EndedThread<P: Platform> {
    /// Null, or a record that lives as long as the thread's process. Another thread may have
    /// claimed it since.
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
    /// For a thread that has not ended, or that held nothing when it did.
    pub const NONE: Self = EndedThread { record: ptr::null(), claim: 0 };

    /// Runs `act` on the record, if it still belongs to this thread.
    ///
    /// # Safety
    /// The calling thread was given this for its record, which is among those of `threads`. `act`
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

/// What writers change, on lines apart from `used`, which all of them read.
#[repr(C, align(128))]
struct Costs<P: Platform> {
    /// How many locks have got a number so far.
    locks: P::AtomicU64,
    /// What a barrier on all CPUs and a look at all records cost here, ns: a running estimate; 0
    /// before the first.
    revocation_ns: P::AtomicU32,
    /// How long a writer's look at the listed records takes here, ns: a running estimate; 0 before
    /// the first.
    look_ns: P::AtomicU32,
}

/// How many records there can be.
pub(crate) const MOST_RECORDS: usize = FIRST_RECORDS << (CHUNKS - 1);
/// How many records' bits are in one word.
const RECORDS_PER_WORD: usize = u64::BITS as usize;
/// How many of these are on one cache line.
const WORDS_PER_LINE: usize = 8;

type Records<P> = Chunks<P, Record<P>, FIRST_RECORDS, CHUNKS>;
type AllRanges<P> = Chunks<P, Ranges<P>, FIRST_RECORDS, CHUNKS>;

/// The records of all threads of a process, and the numbers by which locks are named in them.
pub struct Threads<P: Platform> {
    records: Records<P>,
    /// The slots for ranges of those records that have some.
    ranges: AllRanges<P>,
    costs: Costs<P>,
    used: P::AtomicU32,
    ranges_used: P::AtomicU32,
    /// A bit for each record that is listed.
    listed: [P::AtomicU64; MOST_RECORDS / RECORDS_PER_WORD],
    /// Where to begin to look for a free record. The upper half counts the records given back, so
    /// that a thread that has found all records taken notices that one no longer is.
    search: P::AtomicU64,
}

/// The estimate before the first was measured, ns. Lower: readers drop their fences too early, and
/// the next writes pay for it. Higher: too late. Chosen, not measured, for machines on which
/// interrupts between CPUs are expensive.
const REVOCATION_AT_FIRST: u32 = 10_000;
/// A sample counts for at most this many ns, as its thread may have been preempted. Chosen, not
/// measured: far above any barrier.
const LONGEST_REVOCATION: u64 = 1_000_000;

/// The estimate before a look was measured, ns: that of a few slots.
const LOOK_AT_FIRST: u32 = 100;
/// The least, so that it can grow again; and the most, beyond any look.
const LOOK_AT_LEAST: u32 = 16;
const LONGEST_LOOK: u64 = 1_000_000;

/// The readers of a lock that a writer looks for.
#[derive(Clone, Copy)]
pub(crate) enum Readers {
    /// Each has raised a fence after it announced itself: they are in listed records.
    UseFences,
    /// They are in any record.
    Any,
}

/// In `search`: one record given back.
const GIVEN_BACK: u64 = 1 << 32;

impl<P: HasRecords> Threads<P> {
    #[allow(clippy::declare_interior_mutable_const)] // becomes part of a static
    pub(crate) const NEW: Self = Threads {
        records: Chunks::NEW,
        ranges: Chunks::NEW,
        costs: Costs {
            locks: P::AtomicU64::ZERO,
            revocation_ns: P::AtomicU32::ZERO,
            look_ns: P::AtomicU32::ZERO,
        },
        used: P::AtomicU32::ZERO,
        ranges_used: P::AtomicU32::ZERO,
        listed: [const { P::AtomicU64::ZERO }; MOST_RECORDS / RECORDS_PER_WORD],
        search: P::AtomicU64::ZERO,
    };

    /// The memory of the records, and of their slots for ranges.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> [usize; 2] {
        [self.records.bytes(), self.ranges.bytes()]
    }

    /// A number for a lock; no two get the same.
    pub(crate) fn new_lock(&self) -> u64 {
        self.costs.locks.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn revocation_ns(&self) -> u64 {
        match self.costs.revocation_ns.load(Relaxed) {
            0 => REVOCATION_AT_FIRST.into(),
            ns => ns.into(),
        }
    }

    /// Adds a sample to the estimate: a barrier, and a look at all records, which counts for less,
    /// as it interrupts no other thread. May lose a concurrent one.
    pub(crate) fn note_revocation(&self, barrier_ns: u64, look_ns: u64) {
        let ns = (barrier_ns + look_ns / 4).min(LONGEST_REVOCATION);
        let estimate = (3 * self.revocation_ns() + ns) / 4;
        self.costs.revocation_ns.store(estimate.max(1) as u32, Relaxed);
    }

    /// How long it takes a writer to find that nobody reads by a slot, ns.
    pub(crate) fn look_ns(&self) -> u32 {
        match self.costs.look_ns.load(Relaxed) {
            0 => LOOK_AT_FIRST,
            ns => ns,
        }
    }

    /// Puts the calling thread's record on the list. False if it is just being taken off.
    #[cold]
    pub(crate) fn list(&self, record: &Record<P>) -> bool {
        // Acquire pairs with the Release in `unlist_idle`: that bit has been cleared before this
        // one is set.
        if record.listing.load(Acquire) == UNLISTED {
            let (word, bit) = self.bit_of(record);
            // Release: a writer that sees the bit sees the record.
            word.fetch_or(bit, Release);
            record.listing.store(LISTED, Relaxed);
        }
        record.is_listed()
    }

    /// The record's bit in `listed`.
    fn bit_of(&self, record: &Record<P>) -> (&P::AtomicU64, u64) {
        let index = usize::from(record.index);
        (&self.listed[index / RECORDS_PER_WORD], 1 << (index % RECORDS_PER_WORD))
    }

    /// Takes the records off the list whose threads have not read since the last call.
    #[cold]
    pub(crate) fn unlist_idle(&self) {
        self.all_listed(|record| {
            let reads = record.reads.load(Relaxed);
            if record.reads_then.load(Relaxed) != reads {
                record.reads_then.store(reads, Relaxed);
            } else if record.listing.compare_exchange(LISTED, UNLISTING, Relaxed, Relaxed).is_ok() {
                // Invariant 10; pairs with the fence in `announce_fenced`.
                P::fence_after_update();
                let next = match record.slots.iter().all(|slot| slot.tag.load(Acquire) == 0) {
                    true => {
                        let (word, bit) = self.bit_of(record);
                        // Release: a writer that does not see the record comes after its readers.
                        word.fetch_and(!bit, Release);
                        UNLISTED
                    }
                    false => LISTED,
                };
                record.listing.store(next, Release);
            }
            true
        });
    }

    /// Whether `ask` is true of every listed record; stops at the first of which it is not.
    #[inline(always)]
    fn all_listed(&self, mut ask: impl FnMut(&Record<P>) -> bool) -> bool {
        let words = (self.used.load(Relaxed) as usize).div_ceil(RECORDS_PER_WORD);
        // Acquire pairs with the Release in `list`, and with that in `unlist_idle`.
        let is_empty = |word: &P::AtomicU64| word.load(Acquire) == 0;
        self.listed[..words].chunks(WORDS_PER_LINE).enumerate().all(|(line, words)| {
            // Thousands of threads may have read once. Without a branch for each word that takes a
            // third of the time.
            if words.len() == WORDS_PER_LINE
                && words.iter().fold(true, |all, word| all & is_empty(word))
            {
                return true;
            }
            let first = line * WORDS_PER_LINE;
            words.iter().zip(first..).all(|(word, at)| {
                let mut bits = word.load(Acquire);
                while bits != 0 {
                    let index = at * RECORDS_PER_WORD + bits.trailing_zeros() as usize;
                    if !ask(self.records.get(index).expect("made before it is listed")) {
                        return false;
                    }
                    bits &= bits - 1;
                }
                true
            })
        })
    }

    /// Looks whether somebody reads by a slot with such a tag, and adds a sample to the estimate if
    /// nobody does. May lose a concurrent one. From then on it does not look at threads that have
    /// not read for long.
    #[cold]
    pub(crate) fn measure_look(&self, is_tag: impl Fn(u64) -> bool) {
        self.unlist_idle();
        // What a look at the clock takes is taken off.
        let before = P::now();
        let began = P::now();
        let found = self.any_reader(Readers::UseFences, is_tag);
        let ns = (P::now() - began).saturating_sub(began - before);
        if !found {
            let estimate = self.look_ns();
            // Not much more than the estimate, as the thread may have been stopped; less at once.
            let ns = ns.min(4 * u64::from(estimate)).min(LONGEST_LOOK) as u32;
            let next = ns.min((3 * estimate + ns) / 4).max(LOOK_AT_LEAST);
            self.costs.look_ns.store(next, Relaxed);
        }
    }

    /// A record for the calling thread: the lowest that is free, as writers look at all up to the
    /// highest ever used. None if there are more threads than records, or no memory.
    pub(crate) fn claim(&self) -> Option<&Record<P>> {
        // Acquire pairs with the Release in `release`: a record given back is seen to be free.
        let search = self.search.load(Acquire);
        for index in search as u32 as usize..Records::<P>::MOST {
            let record = self.records.get_or_make(index, |index| Record::new(index as u32))?;
            if record.claim() {
                self.raise_used(index as u32 + 1);
                self.list(record);
                let further = (search & !(GIVEN_BACK - 1)) | (index as u64 + 1);
                // Fails if a record was given back meanwhile, perhaps one that was seen taken
                // (invariant 4), or if another thread was faster, which has got nearly as far.
                let _ = self.search.compare_exchange(search, further, Relaxed, Relaxed);
                return Some(record);
            }
        }
        None
    }

    /// Slots for the ranges of a record that has none, for that record's thread. None if there is
    /// no memory.
    #[cold]
    fn make_ranges<'a>(&'a self, record: &Record<P>) -> Option<&'a Ranges<P>> {
        let mut used = self.ranges_used.load(Acquire);
        // A record asks once, so there are enough, unless threads were left behind in here by
        // `fork`.
        while (used as usize) < AllRanges::<P>::MOST {
            let new = |_| Ranges([const { RangeSlot::NEW }; RANGES]);
            let ranges = self.ranges.get_or_make(used as usize, new)?;
            // AcqRel: as in `raise_used`.
            match self.ranges_used.compare_exchange(used, used + 1, AcqRel, Acquire) {
                Ok(_) => {
                    if !P::is_asymmetric() {
                        ranges.0.iter().for_each(RangeSlot::fence_always);
                    }
                    // Release pairs with the Acquire in `range_slots`.
                    record.ranges.store(ptr::from_ref(ranges).cast_mut(), Release);
                    return Some(ranges);
                }
                Err(found) => used = found,
            }
        }
        None
    }

    /// Gives a record back, as its thread has ended. For that thread only.
    pub(crate) fn release(&self, record: &Record<P>) -> EndedThread<P> {
        let left = record.disown();
        let mut found = self.search.load(Relaxed);
        loop {
            let first = u64::from(u32::from(record.index).min(found as u32));
            let now_free = ((found & !(GIVEN_BACK - 1)) | first).wrapping_add(GIVEN_BACK);
            // Release pairs with the Acquire in `claim`.
            match self.search.compare_exchange(found, now_free, Release, Relaxed) {
                Ok(_) => break,
                Err(newer) => found = newer,
            }
        }
        left.map_or(EndedThread::NONE, |claim| EndedThread { record, claim })
    }

    /// In the child of a `fork`, whose only thread has the record `own`: ends what the other
    /// threads read and for whom they waited. What a thread that had ended before still held, for
    /// instance by a guard that it forgot, remains; but no record keeps a pooled queue, as all of
    /// them are about to be free. `left_line` is called with each line that one of the threads was
    /// in, or was about to enter or leave.
    ///
    /// # Safety
    /// The calling thread is the only one in this process, which began with its `fork`. It was not
    /// in a lock's code.
    pub(crate) unsafe fn keep_only(
        &self,
        own: Option<&Record<P>>,
        mut left_line: impl FnMut(*const ()),
    ) {
        // All places, not only those up to `used`: a thread may have been about to raise it.
        let places = 0..Records::<P>::MOST;
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
            if record.listing.load(Relaxed) == UNLISTING {
                record.listing.store(LISTED, Relaxed);
                let (word, bit) = self.bit_of(record);
                word.fetch_or(bit, Relaxed);
            }
            if let Some(line) = record.member.forked() {
                left_line(line);
            }
            // The thread that remains may have the guards of ranges that other threads acquired.
            record.range_slots().iter().for_each(|slot| slot.forked(is_gone));
            if !is_own {
                record.spare_queue.set(ptr::null());
            }
            if is_gone {
                self.release(record);
            }
        }
    }

    fn raise_used(&self, used: u32) {
        let mut found = self.used.load(Relaxed);
        while found < used {
            // AcqRel: a thread that sees the count sees all chunks up to it, also those that others
            // made.
            match self.used.compare_exchange(found, used, AcqRel, Acquire) {
                Ok(_) => break,
                Err(newer) => found = newer,
            }
        }
    }

    /// Whether `ask` is true of every slot by which such readers read; stops at the first of which
    /// it is not.
    #[inline(always)]
    fn all(&self, readers: Readers, mut ask: impl FnMut(&Slot<P>) -> bool) -> bool {
        let ask = |record: &Record<P>| record.slots.iter().all(&mut ask);
        match readers {
            Readers::UseFences => self.all_listed(ask),
            Readers::Any => {
                // Invariant 2. Records below `used` were published before it was raised.
                let used = self.used.load(Acquire) as usize;
                self.records.all_of_first(used, ask)
            }
        }
    }

    /// The same for the slots for ranges.
    #[inline(always)]
    pub(crate) fn all_ranges<'a>(&'a self, mut ask: impl FnMut(&'a RangeSlot<P>) -> bool) -> bool {
        let used = self.ranges_used.load(Acquire) as usize;
        self.ranges.all_of_first(used, |ranges| RangeSlot::all_used(&ranges.0, &mut ask))
    }

    /// Whether some thread reads a lock with such a tag, or tries to.
    #[inline(always)]
    pub(crate) fn any_reader(&self, readers: Readers, is_tag: impl Fn(u64) -> bool) -> bool {
        !self.all(readers, |slot| !slot.is_held_by(&is_tag))
    }

    /// Waits until every slot that now has such a tag has another. The caller makes sure that no
    /// more reads begin with such a tag. Says when it begins to wait for one of them. False if the
    /// deadline passed.
    #[inline(always)]
    pub(crate) fn wait_for_readers(
        &self,
        readers: Readers,
        is_tag: impl Fn(u64) -> bool,
        deadline: Option<u64>,
        mut begins: impl FnMut(),
    ) -> bool {
        self.all(readers, |slot| {
            !slot.is_held_by(&is_tag) || {
                begins();
                slot.wait(&is_tag, deadline)
            }
        })
    }
}
