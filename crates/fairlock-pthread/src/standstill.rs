//! When a reader is let past a writer that only waits itself.
//!
//! glibc's locks prefer readers unless their kind says otherwise: a read is granted at once while
//! no writer is in. A program may rely on that. Its readers may wait for each other by other means
//! than the lock, and some of them may only poll the lock. The policies here make a newcomer wait
//! behind a writer instead, so such a program could stand still for ever. But only a program that
//! stands still needs to be told from one whose readers merely hold the lock for long, and time is
//! all that tells them apart.
//!
//! A lock therefore remembers since when its readers have refused somebody for the sake of a writer
//! that has not got the lock meanwhile. That memory is the lock's and not the waiting thread's, so
//! that polls and short timed waits of any thread count together.
//!
//! ```text
//!   first refusal             a reader asks again       window over        a reader asks again
//!   │◄────── closed ──────►│  │◄─ open to all ─►│◄───── closed, twice as long ─────►│  │◄─ ...
//!   nobody passes the writer   everybody does
//! ```
//!
//! * *closed*: nobody passes the writer. The first time this takes [`CLOSED`], then twice as long each
//!   time, up to 2<sup>[`LAST_STAGE`]</sup> times. A writer that waits for nothing but reads which end by
//!   themselves gets the lock as soon as one of these periods is longer than the reads are.
//! * *open*: everybody passes, for half as long as the lock was closed before. It begins with the
//!   reader that asks first, so that one which polls rarely does not miss it.
//! * A thread that reads already, under any lock, and asks for another read is *nested*. It is let past at
//!   once, as its own read may be what the writer waits for; but not for longer than four times
//!   [`CLOSED`], as there may always be some nested reader in. Then the lock is closed to all.
//! * All of it is forgotten as soon as a writer gets the lock.
//!
//! The last of these would leave out readers that poll a lock which its writers and other readers keep
//! handing to each other: each refusal may be for another writer. So a lock also remembers since when
//! polls have been refused at all, and lets one of them past each time that this becomes longer than the
//! lock is closed.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicU32};

/// How long a lock is closed at first, in ticks of 2<sup>20</sup> ns: about 100 ms. That is longer than
/// a scheduler keeps a reader from its CPU and than most reads take, and short enough for a
/// program that depends on it at each of its steps.
const CLOSED: u32 = 96;
/// So often is that time doubled: to 1.6 s.
const LAST_STAGE: u32 = 4;
/// A lock is open to nested readers for so many times as long as it is closed before.
const NESTED: u32 = 4;

/// ns to ticks, and ticks to those of `polls`.
const TICK_SHIFT: u32 = 20;
const POLL_SHIFT: u32 = 4;

/// What the owner's word of a lock says while no thread owns it. Threads' numbers have less than
/// 23 bits (`PID_MAX_LIMIT`); here the highest is set.
///
/// ```text
/// 31   30      27     0
/// │1│nested│stage│ since │
/// ```
const MARK: u32 = 1 << 31;
/// The window is or was open to nested readers only, but for its first part if it followed a closed period.
const NESTED_BIT: u32 = 1 << 30;
const STAGE_SHIFT: u32 = 27;
const STAGE: u32 = 7 << STAGE_SHIFT;
/// Since when the lock is closed, in ticks, modulo 39 hours; in the future while it is open.
const SINCE: u32 = (1 << STAGE_SHIFT) - 1;

/// This word of a lock says that a thread owns it for writing.
#[inline(always)]
pub(crate) fn is_owned(owner: u32) -> bool {
    owner as i32 > 0
}

/// What a reader that was refused may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Enter past those that wait; then this is what the lock remembers.
    Enter(Option<Mark>),
    /// Ask again at this moment, in ns, if it is known.
    Wait(Option<u64>),
}

/// What a lock remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    is_nested: bool,
    stage: u32,
    /// In ticks.
    since: u32,
}

impl Mark {
    fn of(owner: u32) -> Option<Mark> {
        (owner & MARK != 0).then_some(Mark {
            is_nested: owner & NESTED_BIT != 0,
            stage: (owner & STAGE) >> STAGE_SHIFT,
            since: owner & SINCE,
        })
    }

    fn word(self) -> u32 {
        let nested = if self.is_nested { NESTED_BIT } else { 0 };
        MARK | nested | self.stage << STAGE_SHIFT | self.since & SINCE
    }

    fn refused_at(now: u32) -> Mark {
        Mark { is_nested: false, stage: 0, since: now }
    }

    /// How long the lock is closed.
    fn closed(self) -> u32 {
        CLOSED << self.stage
    }

    /// How long it will still be open, if it is.
    fn remaining(self, now: u32) -> Option<u32> {
        let remaining = self.since.wrapping_sub(now) & SINCE;
        // More than a window is the past.
        (1..=NESTED * (CLOSED << LAST_STAGE)).contains(&remaining).then_some(remaining)
    }

    fn is_open(self, now: u32, to_nested: bool) -> bool {
        let Some(remaining) = self.remaining(now) else { return false };
        if !self.is_nested || to_nested {
            return true;
        }
        // The first part of what a nested reader opened is for everybody: otherwise nested readers
        // could always be the first to ask.
        let before = CLOSED << self.stage.saturating_sub(1);
        self.stage > 0 && remaining > NESTED * before - before / 2
    }

    /// The lock has been closed for long enough.
    fn is_over(self, now: u32) -> bool {
        self.remaining(now).is_none() && now.wrapping_sub(self.since) & SINCE >= self.closed()
    }

    /// Open from now on.
    fn opened(self, now: u32, is_nested: bool) -> Mark {
        let window = if is_nested { NESTED * self.closed() } else { self.closed() / 2 };
        Mark { is_nested, stage: (self.stage + 1).min(LAST_STAGE), since: now.wrapping_add(window) }
    }

    /// When that will be so, in ns.
    fn over_at(self, now: u32) -> u64 {
        let left = self.since.wrapping_add(self.closed()).wrapping_sub(now) & SINCE;
        u64::from(left.min(SINCE / 2)) << TICK_SHIFT
    }
}

/// A reader that the policy refused asks, having found this in the owner's word.
fn ask(owner: u32, now: u32, is_nested: bool) -> (Answer, Option<Mark>) {
    if is_owned(owner) {
        return (Answer::Wait(None), None);
    }
    match Mark::of(owner) {
        None if is_nested => {
            let since = now.wrapping_add(NESTED * CLOSED);
            (Answer::Enter(Some(Mark { is_nested: true, stage: 0, since })), None)
        }
        None => {
            let mark = Mark::refused_at(now);
            (Answer::Wait(Some(mark.over_at(now))), Some(mark))
        }
        Some(mark) if mark.is_open(now, is_nested) => (Answer::Enter(None), None),
        Some(mark) if mark.is_over(now) => (Answer::Enter(Some(mark.opened(now, is_nested))), None),
        Some(mark) => (Answer::Wait(Some(mark.over_at(now))), None),
    }
}

/// What a lock remembers of readers that were refused: the owner's word while nobody owns it, and since
/// when polls have been refused.
#[derive(Clone, Copy)]
pub(crate) struct Standstill<'a> {
    pub(crate) owner: &'a AtomicU32,
    /// In 16 ticks, modulo 18 minutes; 0: not.
    pub(crate) polls: &'a AtomicU16,
}

impl Standstill<'_> {
    fn ticks(now: u64) -> u32 {
        (now >> TICK_SHIFT) as u32 & SINCE
    }

    /// A reader asks that was refused at `now`. If it is told to enter, and could, it says so by
    /// [`entered`](Self::entered).
    ///
    /// `is_poll`: it will not wait for an answer, but may come back.
    pub(crate) fn ask(self, now: u64, is_nested: bool, is_poll: bool) -> Answer {
        let ticks = Self::ticks(now);
        let owner = self.owner.load(Relaxed);
        let (answer, mark) = ask(owner, ticks, is_nested);
        if let Some(mark) = mark {
            // Not if a writer has just got the lock.
            _ = self.owner.compare_exchange(owner, mark.word(), Relaxed, Relaxed);
        }
        match answer {
            Answer::Wait(Some(_)) if is_poll && self.is_polled_for_long(owner, ticks) => {
                let mark = Mark::of(owner).unwrap_or(Mark::refused_at(ticks));
                let stage = (mark.stage + 1).min(LAST_STAGE);
                Answer::Enter(Some(Mark { is_nested: false, stage, since: ticks }))
            }
            Answer::Wait(until) => Answer::Wait(until.map(|until| now + until)),
            enter => enter,
        }
    }

    fn is_polled_for_long(self, owner: u32, ticks: u32) -> bool {
        let now = (ticks >> POLL_SHIFT) as u16;
        match self.polls.load(Relaxed) {
            0 => {
                // 0 says something else; a little earlier does no harm, later would look like long ago.
                self.polls.store(if now == 0 { u16::MAX } else { now }, Relaxed);
                false
            }
            since => {
                let closed = Mark::of(owner).map_or(CLOSED, Mark::closed);
                u32::from(now.wrapping_sub(since)) > closed >> POLL_SHIFT
            }
        }
    }

    /// A reader has entered past those that wait.
    pub(crate) fn entered(self, mark: Option<Mark>, is_poll: bool) {
        if is_poll {
            self.polls.store(0, Relaxed);
        }
        let Some(mark) = mark else { return };
        let owner = self.owner.load(Relaxed);
        if !is_owned(owner) {
            // If others enter at the same time each has the same to say.
            _ = self.owner.compare_exchange(owner, mark.word(), Relaxed, Relaxed);
        }
    }

    /// A writer has the lock.
    pub(crate) fn is_written(self) -> bool {
        is_owned(self.owner.load(Relaxed))
    }

    /// It remembers anything of readers that were refused since a writer last had the lock.
    pub(crate) fn is_known(self) -> bool {
        self.owner.load(Relaxed) & MARK != 0
    }

    /// A reader is refused that cannot be let past the writer: that has to give way itself.
    pub(crate) fn refused(self, now: u64) {
        let mark = Mark::refused_at(Self::ticks(now));
        _ = self.owner.compare_exchange(0, mark.word(), Relaxed, Relaxed);
    }

    /// Opens the lock for those that were refused, if there are any: by a writer that gives way, or by a
    /// reader that it is to give way to. Then this is how long it is closed afterwards, in ns.
    pub(crate) fn give_way(self, now: u64) -> Option<u64> {
        let (owner, ticks) = (self.owner.load(Relaxed), Self::ticks(now));
        let opened = match Mark::of(owner)? {
            mark if mark.remaining(ticks).is_some() => mark,
            mark => mark.opened(ticks, false),
        };
        _ = self.owner.compare_exchange(owner, opened.word(), Relaxed, Relaxed);
        Some(u64::from(opened.closed()) << TICK_SHIFT)
    }

    /// Everybody is let past the writers that wait.
    pub(crate) fn is_open(self, now: u64) -> bool {
        Mark::of(self.owner.load(Relaxed)).is_some_and(|mark| mark.is_open(Self::ticks(now), false))
    }
}

/// How long a lock is closed at first, ns.
pub(crate) const CLOSED_NS: u64 = (CLOSED as u64) << TICK_SHIFT;

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1 << 40;

    #[derive(Default)]
    struct Lock {
        owner: AtomicU32,
        polls: AtomicU16,
    }

    impl Lock {
        /// Asks at so many ticks after the start, and enters if it may.
        fn enters(&self, at: u32, is_nested: bool, is_poll: bool) -> bool {
            let standstill = Standstill { owner: &self.owner, polls: &self.polls };
            let now = START + (u64::from(at) << TICK_SHIFT);
            match standstill.ask(now, is_nested, is_poll) {
                Answer::Enter(mark) => {
                    standstill.entered(mark, is_poll);
                    true
                }
                Answer::Wait(until) => {
                    assert!(until.is_none_or(|until| until > now));
                    false
                }
            }
        }

        fn is_written(&self) {
            self.owner.store(0, Relaxed);
        }
    }

    #[test]
    fn a_refused_reader_passes_after_a_time_and_others_for_half_as_long() {
        let lock = Lock::default();
        assert!(!lock.enters(0, false, false) && !lock.enters(CLOSED - 1, false, false));
        let late = 5 * CLOSED;
        assert!(lock.enters(late, false, false), "the window begins with the first that asks");
        assert!(lock.enters(late + CLOSED / 2 - 1, false, false));
        let closes = late + CLOSED / 2;
        assert!(!lock.enters(closes, false, false));
        assert!(!lock.enters(closes + 2 * CLOSED - 1, false, false), "then for twice as long");
        assert!(lock.enters(closes + 2 * CLOSED, false, false));
    }

    #[test]
    fn a_writer_that_gets_the_lock_makes_it_forget() {
        let lock = Lock::default();
        assert!(!lock.enters(0, false, false));
        lock.is_written();
        assert!(!lock.enters(2 * CLOSED, false, false));
        assert!(lock.enters(3 * CLOSED, false, false));
        lock.is_written();
        assert!(!lock.enters(3 * CLOSED + 1, false, false));
    }

    #[test]
    fn nothing_is_remembered_while_a_writer_is_in() {
        let lock = Lock::default();
        lock.owner.store(77, Relaxed);
        assert!(!lock.enters(0, false, true) && !lock.enters(9 * CLOSED, true, true));
        assert_eq!((lock.owner.load(Relaxed), lock.polls.load(Relaxed)), (77, 0));
    }

    #[test]
    fn a_nested_reader_passes_at_once_but_not_for_ever() {
        let lock = Lock::default();
        let mut refused = 0;
        for at in 0..6 * CLOSED {
            refused += u32::from(!lock.enters(at, true, false));
        }
        assert_eq!(refused, CLOSED);
    }

    #[test]
    fn others_pass_where_nested_readers_are_always_the_first_to_ask() {
        for is_poll in [false, true] {
            let lock = Lock::default();
            let enters = (0..20 * CLOSED).step_by(10).any(|at| {
                lock.enters(at, true, false);
                lock.enters(at + 5, false, is_poll)
            });
            assert!(enters, "poll: {is_poll}");
        }
    }

    #[test]
    fn a_poll_passes_in_the_end_although_writers_come_and_go() {
        let lock = Lock::default();
        let mut passed = 0;
        for at in 1..20 * CLOSED {
            if at % (CLOSED / 2) == 0 {
                lock.is_written();
            }
            passed += u32::from(lock.enters(at, false, true));
        }
        assert!((10..20).contains(&passed), "{passed}: once in each closed time");
    }

    #[test]
    fn however_rarely_a_reader_polls_it_passes() {
        for every in [1, 10, CLOSED / 2, CLOSED, 1_000, 5_000, 60_000, 3_600_000] {
            let lock = Lock::default();
            let polls = (1..100_000u32).position(|times| lock.enters(times * every, false, true));
            assert!(polls.is_some_and(|polls| polls as u32 * every <= CLOSED + every), "{every}");
        }
    }

    #[test]
    fn readers_whose_reads_end_let_the_writer_in() {
        // Each read takes half a second; each of them polls, all the time.
        const READ: u32 = 500;
        let lock = Lock::default();
        let mut readers = [0u32; 8];
        let mut free_at = None;
        for at in 1..20_000 {
            for ends in &mut readers {
                if *ends <= at && lock.enters(at, false, true) {
                    *ends = at + READ;
                }
            }
            if at > READ && readers.iter().all(|ends| *ends <= at) {
                free_at = Some(at);
                break;
            }
        }
        assert!(free_at.is_some_and(|at| at < 6 * READ), "{free_at:?}");
    }

    #[test]
    fn a_writer_gives_way_only_where_somebody_was_refused() {
        let lock = Lock::default();
        let standstill = Standstill { owner: &lock.owner, polls: &lock.polls };
        assert_eq!(standstill.give_way(START), None);
        assert!(!standstill.is_open(START));
        standstill.refused(START);
        assert_eq!(standstill.give_way(START + CLOSED_NS), Some(2 * CLOSED_NS));
        assert!(standstill.is_open(START + CLOSED_NS));
        assert!(!standstill.is_open(START + 2 * CLOSED_NS));
    }

    #[test]
    fn clocks_may_wrap() {
        let lock = Lock::default();
        let wraps = SINCE - (START >> TICK_SHIFT) as u32 % SINCE;
        let before = wraps - CLOSED / 2;
        assert!(!lock.enters(before, false, false) && !lock.enters(wraps + 5, false, false));
        assert!(lock.enters(before + CLOSED, false, false));
    }
}
