//! The lock word of [`RwSem`](crate::RwSem): layout, a name for every condition on it, and the
//! [table](ILLEGAL) of combinations that never occur.

use core::sync::atomic::Ordering;

use crate::platform::{AtomicCell, AtomicInt, Platform};

/// Low 23 bits: shared holders, the upgradable one included.
pub(super) const READERS: u64 = (1 << 23) - 1;
/// One shared holder.
pub(super) const READER: u64 = 1;
/// Below `READER_LIMIT - 1` a word has no flag set, no writer, no waiting thread, and room for one
/// more reader: the fast path's whole condition in one comparison. Linux has no more threads than
/// this (`PID_MAX_LIMIT`), so each may hold the lock once. The rest of the field takes those that
/// are granted the lock from the queue in addition to newcomers that were checked before.
pub(super) const READER_LIMIT: u64 = 1 << 22;
/// How many readers may hold the lock without guards: 65,536 below the limit, so that readers that
/// check at the same moment cannot exceed it together.
pub(super) const UNGUARDED_READERS: u64 = READER_LIMIT - (1 << 16);

/// The writer that holds the lock.
pub(super) const WRITER: u64 = 1 << 23;
/// A second writer, which never occurs.
const TWO_WRITERS: u64 = 1 << 24;

/// Of those that are shut out, the first has not yet looked whether the other side has left: who
/// leaves the lock free wakes it.
pub(super) const MAY_LOOK: u64 = 1 << 39;

/// No upgradable reader enters past the one that waits, which is overdue: it enters even if readers
/// are shut out by then.
pub(super) const UPGRADABLE_OUT: u64 = 1 << 40;

/// Others changed the word each time when a thread was about to queue: they leave the free lock to
/// it. A hint.
pub(super) const WANTED: u64 = 1 << 41;

/// A writer was woken to compete for the lock: no other is woken.
pub(super) const WRITER_WOKEN: u64 = 1 << 43;
/// A thread that waits watches for entries: none has come since this was set.
pub(super) const WATCHED: u64 = 1 << 44;

/// Bits 45 to 57: the number of the queue that the waiters are on, 0 if no thread waits. Changes
/// only under the lock of that queue.
pub(super) const QUEUE: u64 = ((1 << 13) - 1) << QUEUE_SHIFT;
/// How many queues a word can name.
pub(super) const QUEUES: u32 = (1 << 13) - 1;
const QUEUE_SHIFT: u32 = 45;

/// No reader enters, unless one only tries while no thread waits.
pub(super) const READERS_OUT: u64 = 1 << 58;
/// No writer enters, with the same exception.
pub(super) const WRITERS_OUT: u64 = 1 << 59;
pub(super) const BOTH_OUT: u64 = READERS_OUT | WRITERS_OUT;
/// The running phase is the writers'. Meaningful only while a thread waits.
pub(super) const WRITE_PHASE: u64 = 1 << 60;
/// The thread that leaves the lock free must serve the queue.
pub(super) const MUST_SERVE: u64 = 1 << 61;
/// One of the shared holders may upgrade.
pub(super) const UPGRADABLE: u64 = 1 << 62;
/// That holder waits for the other readers to leave; no reader enters.
pub(super) const UPGRADING: u64 = 1 << 63;

/// That a thread waits and how the queue is served. While none waits, at most one side's `…_OUT`
/// and `WATCHED` are set.
pub(super) const QUEUE_FLAGS: u64 = QUEUE
    | READERS_OUT
    | WRITERS_OUT
    | UPGRADABLE_OUT
    | WRITE_PHASE
    | MUST_SERVE
    | WRITER_WOKEN
    | WATCHED
    | MAY_LOOK;

/// A queue's number as it stands in the word.
pub(super) const fn queue_bits(number: u32) -> u64 {
    (number as u64) << QUEUE_SHIFT
}

/// The number of the queue that the waiters are on; 0 if no thread waits.
#[inline(always)]
pub(super) fn queue_number(word: u64) -> u32 {
    ((word & QUEUE) >> QUEUE_SHIFT) as u32
}

/// The two sides that share a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Read = 0,
    Write = 1,
}

impl Side {
    pub(super) const BOTH: [Side; 2] = [Side::Read, Side::Write];

    pub(super) fn other(self) -> Side {
        match self {
            Side::Read => Side::Write,
            Side::Write => Side::Read,
        }
    }
}

#[inline(always)]
pub(super) fn readers(word: u64) -> u64 {
    word & READERS
}

#[inline(always)]
pub(super) fn has_writer(word: u64) -> bool {
    word & WRITER != 0
}

/// This side holds the lock.
#[inline(always)]
pub(super) fn is_held_by(word: u64, side: Side) -> bool {
    match side {
        Side::Read => readers(word) != 0,
        Side::Write => has_writer(word),
    }
}

/// No thread holds the lock in any mode.
#[inline(always)]
pub(super) fn is_free(word: u64) -> bool {
    word & (READERS | WRITER) == 0
}

/// No thread enters.
#[inline(always)]
pub(super) fn is_shut(word: u64) -> bool {
    word & BOTH_OUT == BOTH_OUT
}

#[inline(always)]
pub(super) fn has_waiters(word: u64) -> bool {
    word & QUEUE != 0
}

/// As far as the holders are concerned a reader may enter.
#[inline(always)]
pub(super) fn admits_reader(word: u64) -> bool {
    word & (WRITER | UPGRADING) == 0
}

/// A reader may enter past those that wait and are woken: no writer holds the lock.
///
/// A free lock that readers are shut out of may be about to be handed over, by a thread to which
/// its word belongs. A thread that waits to upgrade is counted itself, and waits on for as long as
/// others are.
#[inline(always)]
pub(super) fn admits_past_waiters(word: u64) -> bool {
    match word & UPGRADING == 0 {
        true => readers(word) != 0 || word & (WRITER | READERS_OUT) == 0,
        false => readers(word) > 1,
    }
}

/// Readers that have another way to enter may use it: no writer holds the lock, no thread is about
/// to upgrade, and readers are not shut out.
#[inline(always)]
pub(super) fn is_open_to_readers(word: u64) -> bool {
    word & (WRITER | UPGRADING | READERS_OUT) == 0
}

/// As far as the holders are concerned an upgradable reader may enter.
#[inline(always)]
pub(super) fn admits_upgradable(word: u64) -> bool {
    word & (WRITER | UPGRADING | UPGRADABLE) == 0
}

/// The side whose phase runs; see `WRITE_PHASE`.
#[inline(always)]
pub(super) fn phase(word: u64) -> Side {
    if word & WRITE_PHASE != 0 { Side::Write } else { Side::Read }
}

/// The count is full.
#[cold]
#[cfg_attr(debug_assertions, track_caller)]
pub(super) fn too_many_readers() -> ! {
    panic!("more than four million readers hold this lock at once: are guards being leaked?");
}

/// The word with one more shared holder.
///
/// # Panics
/// When the count is full, before it changes. Guards that were leaked by `mem::forget` are the
/// only way to get there.
#[inline(always)]
pub(super) fn plus_reader(word: u64) -> u64 {
    if readers(word) >= READER_LIMIT - 1 {
        too_many_readers();
    }
    word + READER
}

/// A combination that no transition of the word may leave behind.
struct Illegal {
    what: &'static str,
    holds: fn(u64) -> bool,
}

/// What never occurs in a word. Without waiters one side may stay shut out, and `WATCHED` set.
/// Debug builds look at every transition.
const ILLEGAL: &[Illegal] = &[
    Illegal {
        what: "an upgradable reader that is not counted among the readers",
        holds: |word| word & UPGRADABLE != 0 && readers(word) == 0,
    },
    Illegal {
        what: "an upgrade without an upgradable holder",
        holds: |word| word & UPGRADING != 0 && (word & UPGRADABLE == 0 || !has_waiters(word)),
    },
    Illegal {
        what: "a writer next to readers",
        holds: |word| has_writer(word) && readers(word) != 0,
    },
    Illegal { what: "two writers", holds: |word| word & TWO_WRITERS != 0 },
    Illegal {
        what: "more than one side that is shut out although no thread waits",
        holds: |word| {
            let others = QUEUE_FLAGS & !(BOTH_OUT | WATCHED);
            !has_waiters(word) && (word & others != 0 || is_shut(word))
        },
    },
    Illegal {
        what: "both sides are shut out, and the unlocking thread would not serve the queue",
        holds: |word| is_shut(word) && word & MUST_SERVE == 0,
    },
];

/// The word of a lock: std's operations, after each of which debug builds check [`ILLEGAL`].
#[repr(transparent)]
pub(super) struct LockWord<P: Platform>(P::AtomicU64);

impl<P: Platform> LockWord<P> {
    #[allow(clippy::declare_interior_mutable_const)] // becomes part of statics
    pub(super) const FREE: Self = LockWord(P::AtomicU64::ZERO);

    /// For what identifies a lock by its word's address.
    #[inline(always)]
    pub(super) fn atomic(&self) -> &P::AtomicU64 {
        &self.0
    }

    #[inline(always)]
    fn check(before: u64, after: u64) {
        if cfg!(debug_assertions) {
            Self::assert_legal(before, after);
        }
    }

    #[cold]
    fn assert_legal(before: u64, after: u64) {
        let illegal = ILLEGAL.iter().find(|illegal| (illegal.holds)(after));
        if let Some(Illegal { what, .. }) = illegal {
            // What users can cause, by an `unsafe impl Send` of their own around a guard.
            assert!(
                readers(before) > 0 || after != before.wrapping_sub(READER),
                "a read was released that no thread holds ({before:#018x}): was its guard sent to another thread? Only \
                 those of an RwSem may be"
            );
            panic!("a lock word that must not occur: {what}: {before:#018x} -> {after:#018x}");
        }
    }

    #[inline(always)]
    pub(super) fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    /// By a thread to whom the word belongs.
    #[inline(always)]
    pub(super) fn store(&self, value: u64, order: Ordering) {
        Self::check(value, value);
        self.0.store(value, order);
    }

    /// Makes the word what `next` says of it. The word before; an error with the last one seen if
    /// `next` says nothing.
    #[inline]
    pub(super) fn update(
        &self,
        success: Ordering,
        mut next: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        let mut word = self.load(Ordering::Relaxed);
        while let Some(after) = next(word) {
            match self.compare_exchange_weak(word, after, success, Ordering::Relaxed) {
                Ok(before) => return Ok(before),
                Err(found) => word = found,
            }
        }
        Err(word)
    }

    #[inline(always)]
    pub(super) fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let result = self.0.compare_exchange(current, new, success, failure);
        result.inspect(|&before| Self::check(before, new))
    }

    #[inline(always)]
    pub(super) fn compare_exchange_weak(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let result = self.0.compare_exchange_weak(current, new, success, failure);
        result.inspect(|&before| Self::check(before, new))
    }

    #[inline(always)]
    pub(super) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        let before = self.0.fetch_add(value, order);
        Self::check(before, before.wrapping_add(value));
        before
    }

    #[inline(always)]
    pub(super) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        let before = self.0.fetch_sub(value, order);
        Self::check(before, before.wrapping_sub(value));
        before
    }

    #[inline(always)]
    pub(super) fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        let before = self.0.fetch_or(value, order);
        Self::check(before, before | value);
        before
    }

    #[inline(always)]
    pub(super) fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        let before = self.0.fetch_and(value, order);
        Self::check(before, before & value);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;

    fn says(word: u64) -> Option<String> {
        let checked = std::panic::catch_unwind(|| LockWord::<Os>::assert_legal(0, word));
        let message = checked.err()?;
        Some(message.downcast_ref::<String>().expect("a message").clone())
    }

    #[test]
    fn a_release_of_a_read_that_no_thread_holds_is_told_from_other_mistakes() {
        let after = 0_u64.wrapping_sub(READER);
        let checked = std::panic::catch_unwind(|| LockWord::<Os>::assert_legal(0, after));
        let message = checked.expect_err("it must not occur");
        let message = message.downcast_ref::<String>().expect("a message");
        assert!(message.contains("sent to another thread"), "{message}");
    }

    #[test]
    fn combinations_that_must_not_occur_are_named() {
        let waiting = queue_bits(1);
        for legal in [
            0,
            3 * READER,
            WRITER,
            (2 * READER) | UPGRADABLE,
            WRITERS_OUT | WATCHED,
            waiting | WRITER | WRITE_PHASE | MUST_SERVE,
            waiting | READER | WRITERS_OUT | MUST_SERVE,
            waiting | BOTH_OUT | MUST_SERVE,
            waiting | READER | UPGRADABLE | UPGRADING,
        ] {
            assert_eq!(says(legal), None, "{legal:#x}");
        }
        for (illegal, named) in [
            (BOTH_OUT, "no thread waits"),
            (READER | WRITE_PHASE, "no thread waits"),
            (waiting | BOTH_OUT, "would not serve"),
            (UPGRADABLE, "not counted"),
            (waiting | READER | UPGRADING, "without an upgradable holder"),
            (WRITER | READER, "next to readers"),
            (2 * WRITER, "two writers"),
        ] {
            let message = says(illegal).expect("it must not occur");
            assert!(message.contains(named), "{message}");
        }
    }
}
