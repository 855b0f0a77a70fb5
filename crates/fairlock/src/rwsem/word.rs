//! The lock word of [`RwSem`](crate::RwSem): layout, and a name for every condition on it.

/// Low 32 bits: shared holders, the upgradable one included.
pub(super) const READERS: u64 = 0xffff_ffff;
/// One shared holder.
pub(crate) const READER: u64 = 1;
/// A word below this has no flag set, no writer in or trying, and room for one more reader: the
/// fast path's whole condition in one comparison.
pub(super) const READER_LIMIT: u64 = 1 << 31;

/// Bits 32 to 55: the writer that holds the lock. Without `writer_fast_fail` also every writer
/// that has added its bias in vain and not yet removed it.
pub(super) const WRITERS: u64 = 0x00ff_ffff << 32;
/// One writer.
pub(crate) const WRITER: u64 = 1 << 32;

/// The queue is not empty. Changes only under the queue's lock.
pub(super) const WAITERS: u64 = 1 << 56;
/// Nobody enters but the waiter that the lock is reserved for.
pub(super) const CLOSED: u64 = 1 << 57;
/// Phases: newcomers of the running side enter and look at the clock only now and then.
pub(super) const OPEN: u64 = 1 << 58;
/// Phases: the running phase is the writers'. Meaningful only with `WAITERS`.
pub(super) const WRITE_PHASE: u64 = 1 << 59;
/// Phases: some waiter sleeps with the phase's end as its deadline and will close it.
pub(super) const GUARDED: u64 = 1 << 60;
/// One of the shared holders may upgrade.
pub(crate) const UPGRADABLE: u64 = 1 << 61;
/// That holder waits for the other readers to leave; no reader enters.
pub(super) const UPGRADING: u64 = 1 << 62;

/// Everything that says how the queue is served, none of it meaningful without `WAITERS`.
pub(super) const QUEUE_FLAGS: u64 = WAITERS | CLOSED | OPEN | WRITE_PHASE | GUARDED;

/// The two sides that share a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Read = 0,
    Write = 1,
}

#[inline(always)]
pub(super) fn readers(word: u64) -> u64 {
    word & READERS
}

#[inline(always)]
pub(super) fn has_writer(word: u64) -> bool {
    word & WRITERS != 0
}

/// Nobody holds the lock in any mode.
#[inline(always)]
pub(super) fn is_free(word: u64) -> bool {
    word & (READERS | WRITERS) == 0
}

#[inline(always)]
pub(super) fn has_waiters(word: u64) -> bool {
    word & WAITERS != 0
}

/// As far as the holders are concerned a reader may enter.
#[inline(always)]
pub(super) fn admits_reader(word: u64) -> bool {
    word & (WRITERS | UPGRADING) == 0
}

/// As far as the holders are concerned an upgradable reader may enter.
#[inline(always)]
pub(super) fn admits_upgradable(word: u64) -> bool {
    word & (WRITERS | UPGRADING | UPGRADABLE) == 0
}

/// The side whose phase runs; see `WRITE_PHASE`.
#[inline(always)]
pub(super) fn phase(word: u64) -> Side {
    if word & WRITE_PHASE != 0 { Side::Write } else { Side::Read }
}

/// The word with one more shared holder.
///
/// # Panics
/// When the count is full, before it changes. Guards that were leaked by `mem::forget` are the
/// only way to get there.
#[inline(always)]
pub(super) fn plus_reader(word: u64) -> u64 {
    assert!(
        readers(word) < READER_LIMIT - 1,
        "more than 2147483647 readers hold this lock at once: are guards being leaked?"
    );
    word + READER
}
