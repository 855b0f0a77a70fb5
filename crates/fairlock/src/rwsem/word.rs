//! The lock word of [`RwSem`](crate::RwSem): layout, and a name for every condition on it.

/// Low 23 bits: shared holders, the upgradable one included.
pub(super) const READERS: u64 = (1 << 23) - 1;
/// One shared holder.
pub(super) const READER: u64 = 1;
/// A word below this has no flag set, no writer in or trying, nobody waiting, and room for one
/// more reader: the fast path's whole condition in one comparison. Linux has no more threads than
/// this (`PID_MAX_LIMIT`), so each may hold the lock once. The rest of the field takes what is let
/// in from the queue beside newcomers that were checked before.
pub(super) const READER_LIMIT: u64 = 1 << 22;
/// So many readers may come in without guards: so far below the limit that those that look at once
/// do not pass it.
pub(super) const UNGUARDED_READERS: u64 = READER_LIMIT - (1 << 16);

/// Bits 23 to 42: the writer that holds the lock. Without `writer_fast_fail` also every writer
/// that has added its bias in vain and not yet removed it: no more than a million may be between
/// these two steps at once.
pub(super) const WRITERS: u64 = ((1 << 20) - 1) << 23;
/// One writer.
pub(super) const WRITER: u64 = 1 << 23;

/// Phases, with only writers waiting: one of them was called to compete for the lock, and has neither
/// entered nor gone back to sleep. Whoever leaves the lock free leaves it to that one.
pub(super) const CALLED_WRITER: u64 = 1 << 43;
/// Phases: a reader waits, or did a moment ago. A hint, set and cleared under the queue's lock.
pub(super) const READERS_WAIT: u64 = 1 << 44;

/// Bits 45 to 57: the number of the room that the waiters are in, 0 if nobody waits. Changes only
/// under the lock of the queue in that room. A lock with a room of its own calls it 1.
pub(super) const ROOM: u64 = ((1 << 13) - 1) << ROOM_SHIFT;
/// So many rooms can be told apart.
pub(super) const ROOMS: u32 = (1 << 13) - 1;
const ROOM_SHIFT: u32 = 45;

/// Nobody enters but the waiter that the lock is reserved for.
pub(super) const CLOSED: u64 = 1 << 58;
/// Phases: newcomers of the running side enter and look at the clock only now and then.
pub(super) const OPEN: u64 = 1 << 59;
/// Phases: the running phase is the writers'. Meaningful only while somebody waits.
pub(super) const WRITE_PHASE: u64 = 1 << 60;
/// Phases: some waiter sleeps with the phase's end as its deadline and will close it.
pub(super) const GUARDED: u64 = 1 << 61;
/// One of the shared holders may upgrade.
pub(super) const UPGRADABLE: u64 = 1 << 62;
/// That holder waits for the other readers to leave; no reader enters.
pub(super) const UPGRADING: u64 = 1 << 63;

/// That somebody waits and how the queue is served: all of it is 0 while nobody waits.
pub(super) const QUEUE_FLAGS: u64 =
    ROOM | CLOSED | OPEN | WRITE_PHASE | GUARDED | CALLED_WRITER | READERS_WAIT;

/// A room's number as it stands in the word.
pub(super) const fn room_bits(number: u32) -> u64 {
    (number as u64) << ROOM_SHIFT
}

/// The number of the room that the waiters are in; 0 if nobody waits.
#[inline(always)]
pub(super) fn room_number(word: u64) -> u32 {
    ((word & ROOM) >> ROOM_SHIFT) as u32
}

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
    word & ROOM != 0
}

/// As far as the holders are concerned a reader may enter.
#[inline(always)]
pub(super) fn admits_reader(word: u64) -> bool {
    word & (WRITERS | UPGRADING) == 0
}

/// A reader may enter past those that wait and are called: no writer is in.
///
/// Beside readers what looks like a writer has added its bias in vain, and is about to see that. A
/// free lock that is closed is just being handed over, by somebody to whom its word belongs.
#[inline(always)]
pub(super) fn admits_past_waiters(word: u64) -> bool {
    word & UPGRADING == 0 && (readers(word) != 0 || word & (WRITERS | CLOSED) == 0)
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
        "more than 4194303 readers hold this lock at once: are guards being leaked?"
    );
    word + READER
}
