//! Which thread may enter, and the word after it has.

use super::wait_queue::Kind;
use super::word::*;

/// No reader, or no writer, enters past those that wait.
pub(super) fn shut(side: Side) -> u64 {
    if side == Side::Read { READERS_OUT } else { WRITERS_OUT }
}

/// The word once no thread enters any more.
pub(super) fn shut_to_all(word: u64) -> u64 {
    word | BOTH_OUT | MUST_SERVE
}

/// The word after a newcomer has entered; none if it may not.
pub(super) fn admit(word: u64, kind: Kind) -> Option<u64> {
    let side = side_of(kind);
    let held = word;
    let word = word & !WATCHED;
    match kind {
        // It holds the lock already.
        Kind::Upgrade => (readers(word) == 1).then(|| held - READER - UPGRADABLE + WRITER),
        _ if is_out(word, side) || is_free(word) && word & WANTED != 0 => None,
        // Writers that wait in their own phase are served when the lock is free: readers must not
        // overlap.
        Kind::Read | Kind::Upgradable
            if has_waiters(word)
                && word & (WRITE_PHASE | MUST_SERVE) == WRITE_PHASE | MUST_SERVE
                && !is_free(word) =>
        {
            None
        }
        Kind::Read if admits_reader(word) => Some(plus_reader(word)),
        Kind::Write if is_free(word) => Some(word + WRITER),
        Kind::Upgradable if admits_upgradable(word) && word & UPGRADABLE_OUT == 0 => {
            Some(plus_reader(word) | UPGRADABLE)
        }
        _ => None,
    }
}

/// Newcomers of this side do not enter.
pub(super) fn is_out(word: u64, side: Side) -> bool {
    word & shut(side) != 0
}

/// The word after a thread that only tries has entered: without waiters it passes none.
pub(super) fn admit_at_once(word: u64, kind: Kind) -> Option<u64> {
    let word = word & !WANTED;
    admit(if has_waiters(word) { word } else { word & !QUEUE_FLAGS }, kind)
}

/// The word after one has used a moment in which the other side has left its phase's lock free.
pub(super) fn enter_gap(word: u64, kind: Kind) -> Option<u64> {
    let side = side_of(kind);
    if !is_out(word, side) || is_shut(word) || !is_free(word) {
        return None;
    }
    let word = word & !WATCHED;
    // Without waiters it is the end of the other side's phase.
    let word = if has_waiters(word) { word } else { 0 };
    match kind {
        Kind::Read => Some(word + READER),
        Kind::Write => Some(word + WRITER),
        Kind::Upgradable => Some((word + READER) | UPGRADABLE),
        Kind::Upgrade => None,
    }
}

/// The word once a thread of this side that was woken to compete has come.
pub(super) fn came(word: u64, side: Side) -> u64 {
    if side == Side::Write { word & !WRITER_WOKEN } else { word }
}

pub(super) fn side_of(kind: Kind) -> Side {
    match kind {
        Kind::Read | Kind::Upgradable => Side::Read,
        Kind::Write | Kind::Upgrade => Side::Write,
    }
}
