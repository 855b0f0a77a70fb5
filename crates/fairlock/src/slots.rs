//! Reader slots: a thread that reads under an [`RwLock`](crate::RwLock) says so in a cache line of
//! its own, so that readers share nothing.
//!
//! ```text
//!   process ──► chunk ──► record of thread 1: [ slot | slot | slot | slot ]  owned
//!                         record of thread 2: [ slot | slot | slot | slot ]  owned
//!                         …                     ▲ one cache line, written by that thread
//! ```
//!
//! A thread claims a record at its first read and gives it back when it ends. Records are never
//! freed, so a writer may look at all of them at any time, and a reader that leaves touches
//! nothing but its own record: not even the lock, which may be gone by then.
//!
//! Invariants
//! 1. A slot's tag is 0, or that of the lock that its thread reads under or tries to. The
//!    record's thread alone sets a tag that is 0; whoever drops the guard clears it.
//! 2. `used` is more than the index of every record that was ever claimed, seen by everybody who
//!    sees a tag in it.
//! 3. A record whose tags are not all 0 is not given to another thread: a guard that was forgotten
//!    keeps its slot, and the record, for ever.
//! 4. Whoever clears a tag looks at `awaited` *afterwards*; a writer raises `awaited` *before* the
//!    last look at the tag that precedes its sleep. A barrier lies between on both sides.
//! 5. `spare_room` is touched by the record's thread alone.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::chunks::Chunks;
use crate::platform::{AtomicCell, AtomicInt, PlainCell, Platform};
use crate::spin_budget::SpinBudget;

/// Locks that one thread can read under at once without touching them: what fits a cache line.
pub(crate) const SLOTS: usize = 4;
const RECORDS_PER_CHUNK: usize = 64;
/// So many times 64 threads; later ones do without a record. 4 KiB of pointers in the process.
const CHUNKS: usize = 512;

/// In `awaited`: the platform has no asymmetric barrier, so a full one must precede the look at
/// the rest, which counts waiting writers.
const FENCED: u32 = 1 << 31;

/// One lock that a thread reads under.
#[repr(C)]
pub struct Slot<P: Platform> {
    tag: P::AtomicU64,
    /// Writers that wait for the tag to change; see [`FENCED`].
    awaited: P::AtomicU32,
    /// What they sleep on: changes when the tag is cleared while somebody waits.
    event: P::AtomicU32,
}

/// One thread's slots. Two cache lines apart, as processors fetch lines in pairs.
#[repr(C, align(128))]
pub struct Record<P: Platform> {
    slots: [Slot<P>; SLOTS],
    // ---- the second line, which hardly anybody else touches ----
    owned: P::AtomicU32,
    /// Counts the thread's reads, but for those without a fence.
    reads: P::AtomicU32,
    /// The room that this thread rents next (`rwsem/rooms.rs`), null if it has none. It stays with
    /// the record when the thread ends.
    spare_room: P::Cell<*const ()>,
}

// SAFETY: invariant 5 for the plain cell; everything else is atomic.
unsafe impl<P: Platform> Sync for Record<P> {}
// SAFETY: a record is not bound to a thread before it is claimed.
unsafe impl<P: Platform> Send for Record<P> {}

impl<P: Platform> Slot<P> {
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
        // Invariant 4; pairs with the barrier in `clear` or `tell`.
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

impl<P: Platform> Record<P> {
    const NEW: Self = Record {
        slots: [const { Slot::NEW }; SLOTS],
        owned: P::AtomicU32::ZERO,
        reads: P::AtomicU32::ZERO,
        spare_room: P::Cell::ZERO,
    };

    /// For the record's thread only.
    pub(crate) fn spare_room(&self) -> &P::Cell<*const ()> {
        &self.spare_room
    }

    /// The first slot, if it says nothing yet: for the path that must be short.
    #[inline(always)]
    pub(crate) fn first_slot(&self) -> Option<&Slot<P>> {
        let [first, ..] = &self.slots;
        (first.tag.load(Relaxed) == 0).then_some(first)
    }

    /// Counts one of this thread's reads; true for every so many-th.
    #[inline(always)]
    pub(crate) fn counts_read(&self, every: u32) -> bool {
        let reads = self.reads.load(Relaxed).wrapping_add(1);
        self.reads.store(reads, Relaxed);
        reads.is_multiple_of(every)
    }

    /// A slot that says nothing yet.
    #[inline(always)]
    pub(crate) fn free_slot(&self) -> Option<&Slot<P>> {
        self.slots.iter().find(|slot| slot.tag.load(Relaxed) == 0)
    }

    /// Gives the record back: its thread has ended.
    pub fn release(&self) {
        // Release pairs with the Acquire in `claim`.
        self.owned.store(0, Release);
    }

    fn claim(&self) -> bool {
        if self.owned.load(Relaxed) != 0
            || self.owned.compare_exchange(0, 1, Acquire, Relaxed).is_err()
        {
            return false;
        }
        if self.slots.iter().any(|slot| slot.tag.load(Relaxed) != 0) {
            self.release(); // Invariant 3.
            return false;
        }
        let fenced = if P::is_asymmetric() { 0 } else { FENCED };
        // A writer may still be about to count itself out.
        self.slots.iter().for_each(|slot| _ = slot.awaited.fetch_or(fenced, Relaxed));
        true
    }
}

/// The records of all threads of a process.
pub(crate) struct Threads<P: Platform> {
    records: Chunks<P, Record<P>, RECORDS_PER_CHUNK, CHUNKS>,
    used: P::AtomicU32,
}

impl<P: Platform> Threads<P> {
    pub(crate) const NEW: Self = Threads { records: Chunks::NEW, used: P::AtomicU32::ZERO };

    /// A record for the calling thread; none if there are more threads than records, or no memory.
    pub(crate) fn claim(&self) -> Option<&Record<P>> {
        for index in 0..CHUNKS * RECORDS_PER_CHUNK {
            let record = self.records.get_or_make(index, |_| Record::NEW)?;
            if record.claim() {
                self.raise_used(index as u32 + 1);
                return Some(record);
            }
        }
        None
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
