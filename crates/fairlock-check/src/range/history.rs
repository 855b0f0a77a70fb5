//! What threads did to a range lock and when, and whether a lock may have let them.
//!
//! "When" is a number from one counter. Each thread takes it just outside of an operation
//! (`asked`, `released`) or just inside of a hold (`got`, `releasing`), so that what the checker
//! finds wrong was wrong: it sees holds shorter than they were where holds must not meet, and
//! longer than they were where somebody had to make way.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::AcqRel;

use fairlock::platform::{Os, Platform};
use fairlock::range::{Access, Extent};

/// How long an acquisition was to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Without waiting.
    Try,
    /// For a while.
    Timed,
    /// Until it had the range.
    Wait,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It failed; it was told so before this moment.
    Failed {
        /// By the recorder's clock.
        at: u64,
    },
    /// It held the range from before `got` until after `releasing`, and no longer than `released`.
    Held {
        /// When the acquisition had returned.
        got: u64,
        /// Just before the release.
        releasing: u64,
        /// Just after it.
        released: u64,
    },
}

/// One acquisition and what followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose.
    pub thread: usize,
    /// Of which positions.
    pub extent: Extent,
    /// What it asked for.
    pub access: Access,
    /// How.
    pub way: Way,
    /// Just before it asked.
    pub asked: u64,
    /// From this moment on it waited surely, if it is known to have waited: see [`note_sleep`].
    pub waiting: Option<u64>,
    /// Just before and just after it gave up exclusive access and kept shared access.
    pub downgrade: Option<(u64, u64)>,
    /// How it ended, and when.
    pub outcome: Outcome,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { thread, extent, access, way, asked, waiting, downgrade, outcome } = self;
        write!(f, "thread {thread} at {asked}: {way:?} {access:?} {extent}, {outcome:?}")?;
        if let Some(waiting) = waiting {
            write!(f, ", waited from {waiting}")?;
        }
        if let Some((before, _)) = downgrade {
            write!(f, ", downgraded at {before}")?;
        }
        Ok(())
    }
}

/// One counter for all.
static CLOCK: AtomicU64 = AtomicU64::new(0);

/// A moment: what happened before it happens before what comes after it.
fn tick() -> u64 {
    CLOCK.fetch_add(1, AcqRel)
}

thread_local! {
    /// On which word this thread slept last, and when it began to.
    static SLEEP: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
}

/// As [`Platform::park`], for platforms of recorded threads: who sleeps on a word of its own has
/// been seen by the lock and waits. Who sleeps for the lock over a queue has not; that one is the
/// only one to sleep on the value 2.
pub fn note_sleep(word: &<Os as Platform>::AtomicU32, expected: u32, deadline: Option<u64>) {
    const QUEUE_LOCK: u32 = 2;
    let address = std::ptr::from_ref(word).addr();
    let known = SLEEP.get().is_some_and(|(word, _)| word == address);
    if expected != QUEUE_LOCK && !known {
        SLEEP.set(Some((address, tick())));
    }
    Os::park(word, expected, deadline);
}

/// A hold with what has been recorded about it so far.
pub struct Stay<G> {
    record: Record,
    got: u64,
    guard: G,
}

impl<G> Stay<G> {
    /// With what it holds now.
    pub fn access(&self) -> Access {
        if self.record.downgrade.is_some() { Access::Shared } else { self.record.access }
    }

    /// Of which positions.
    pub fn extent(&self) -> Extent {
        self.record.extent
    }

    /// As another type, or with another one in its place.
    pub fn map<H>(self, change: impl FnOnce(G) -> H) -> Stay<H> {
        Stay { record: self.record, got: self.got, guard: change(self.guard) }
    }

    /// Downgrades the guard.
    pub fn downgrade<H>(mut self, change: impl FnOnce(G) -> H) -> Stay<H> {
        let before = tick();
        let guard = change(self.guard);
        self.record.downgrade = Some((before, tick()));
        Stay { record: self.record, got: self.got, guard }
    }
}

/// What one thread has seen.
pub struct Recorder {
    thread: usize,
    /// In the order of their ends.
    pub records: Vec<Record>,
}

impl Recorder {
    /// Of the thread with this number.
    pub fn new(thread: usize) -> Self {
        Recorder { thread, records: Vec::new() }
    }

    /// Acquires with `acquire`.
    pub fn acquire<G>(
        &mut self,
        extent: Extent,
        access: Access,
        way: Way,
        acquire: impl FnOnce() -> Option<G>,
    ) -> Option<Stay<G>> {
        SLEEP.set(None);
        let asked = tick();
        let guard = acquire();
        let at = tick();
        let record = Record {
            thread: self.thread,
            extent,
            access,
            way,
            asked,
            waiting: SLEEP.get().map(|(_, since)| since),
            downgrade: None,
            outcome: Outcome::Failed { at },
        };
        if guard.is_none() {
            self.records.push(record.clone());
        }
        guard.map(|guard| Stay { record, got: at, guard })
    }

    /// Drops a guard, from whichever thread it came.
    pub fn release<G>(&mut self, stay: Stay<G>) {
        let Stay { mut record, got, guard } = stay;
        let releasing = tick();
        drop(guard);
        record.outcome = Outcome::Held { got, releasing, released: tick() };
        self.records.push(record);
    }
}

/// Whom an acquisition that has failed may have met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Somebody who held or waited for a range that it conflicted with.
    Conflicts,
    /// Somebody who held or waited for any range.
    Anybody,
}

/// Who may be let in before somebody who conflicts with them and waited when they asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passing {
    /// So many, for each waiter.
    AtMost(usize),
    /// Before a waiting writer: readers only, and those only that waited when a writer that was
    /// ahead of it left. Before a waiting reader: nobody.
    Phases,
}

/// What a lock promises beyond exclusion.
#[derive(Debug, Clone, Copy)]
pub struct Promises {
    /// For what tries and timed acquisitions may fail.
    pub failures: Blame,
    /// Who may be let in before somebody who waits.
    pub passing: Passing,
}

/// What a history without fault consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Acquisitions that had their range.
    pub holds: usize,
    /// Acquisitions that had not.
    pub failures: usize,
    /// Acquisitions that surely waited.
    pub waits: usize,
    /// The most who were let in before somebody who waited when they asked.
    pub most_passed: usize,
}

impl Record {
    /// Until when it may have kept others away.
    fn end(&self) -> u64 {
        match self.outcome {
            Outcome::Failed { at } => at,
            Outcome::Held { released, .. } => released,
        }
    }

    /// From when until when it was surely in, and with which access.
    fn stays(&self) -> impl Iterator<Item = (u64, u64, Access)> {
        let stays = match (self.outcome, self.downgrade) {
            (Outcome::Failed { .. }, _) => [None, None],
            (Outcome::Held { got, releasing, .. }, None) => {
                [Some((got, releasing, self.access)), None]
            }
            (Outcome::Held { got, releasing, .. }, Some((before, _))) => {
                [Some((got, before, Access::Exclusive)), Some((before, releasing, Access::Shared))]
            }
        };
        stays.into_iter().flatten()
    }

    fn got(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Held { got, .. } => Some(got),
            Outcome::Failed { .. } => None,
        }
    }

    /// A try that fails keeps nobody away.
    fn held_or_waited(&self) -> bool {
        self.way != Way::Try || self.got().is_some()
    }

    fn conflicts(&self, other: &Record) -> bool {
        self.extent.overlaps(other.extent) && self.access.conflicts(other.access)
    }

    fn is_in_beside(&self, other: &Record) -> bool {
        self.extent.overlaps(other.extent)
            && self.stays().any(|(from, to, access)| {
                let mut others = other.stays();
                others.any(|(since, until, by)| from < until && since < to && access.conflicts(by))
            })
    }

    /// Whether this one could not but fail because of the other.
    fn may_blame(&self, other: &Record, failures: Blame) -> bool {
        let meets = |from: u64, to: u64| self.asked < to && from < self.end();
        let conflicts = |access: Access| {
            failures == Blame::Anybody
                || self.extent.overlaps(other.extent) && self.access.conflicts(access)
        };
        let exclusive_until = other.downgrade.map_or(other.end(), |(_, after)| after);
        other.held_or_waited()
            && (conflicts(other.access) && meets(other.asked, exclusive_until)
                || conflicts(Access::Shared) && meets(exclusive_until, other.end()))
    }

    /// Whether the other was let in before this one, which waited when the other asked.
    fn was_passed_by(&self, other: &Record) -> bool {
        let (Some(waiting), Some(got), Some(others)) = (self.waiting, self.got(), other.got())
        else {
            return false;
        };
        other.asked > waiting && others < got && self.conflicts(other)
    }

    /// Whether `passer`, a reader, could have been let in before this one, a writer, because
    /// `leaver`, another writer that was ahead, left.
    fn lets_pass(&self, passer: &Record, leaver: &Record) -> bool {
        let leaving = match leaver.outcome {
            Outcome::Failed { at } => leaver.asked..at,
            Outcome::Held { releasing, released, .. } => {
                leaver.downgrade.map_or(releasing, |(before, _)| before)..released
            }
        };
        leaver.access == Access::Exclusive
            && leaver.held_or_waited()
            && leaver.asked < self.got().unwrap_or(u64::MAX)
            && leaving.start < passer.got().unwrap_or(u64::MAX)
            && passer.asked < leaving.end
    }
}

/// Whether a lock with these promises can have such a history.
///
/// # Errors
/// What it should not have let happen.
pub fn check(records: &[Record], promises: Promises) -> Result<Summary, String> {
    let mut summary = Summary::default();
    for record in records {
        match record.outcome {
            Outcome::Held { .. } => summary.holds += 1,
            Outcome::Failed { .. } => {
                summary.failures += 1;
                let mut others = records.iter().filter(|other| !std::ptr::eq(*other, record));
                if !others.any(|other| record.may_blame(other, promises.failures)) {
                    return Err(format!("failed for no reason: {record}"));
                }
            }
        }
    }
    for (at, record) in records.iter().enumerate() {
        if let Some(other) = records[..at].iter().find(|other| other.is_in_beside(record)) {
            return Err(format!("both were in: {other}; {record}"));
        }
    }
    for record in records.iter().filter(|record| record.waiting.is_some()) {
        summary.waits += 1;
        let passers = records.iter().filter(|other| record.was_passed_by(other));
        let passers: Vec<&Record> = passers.collect();
        summary.most_passed = summary.most_passed.max(passers.len());
        let wrong = match promises.passing {
            Passing::AtMost(most) => passers.get(most),
            Passing::Phases => passers.iter().find(|&passer| {
                let is_reader = passer.access == Access::Shared;
                let mut others = records.iter().filter(|other| !std::ptr::eq(*other, record));
                !(is_reader && others.any(|leaver| record.lets_pass(passer, leaver)))
            }),
        };
        if let Some(passer) = wrong {
            return Err(format!("passed: {record}; by {passer}, {} in all", passers.len()));
        }
    }
    Ok(summary)
}
