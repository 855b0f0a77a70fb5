//! Range locks on real threads: everything at once on a few cells, with a checker of exclusion and
//! of lost updates, and histories that are held against what each lock promises; and locks with a
//! flaw that all this catches.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use fairlock::range::{
    Access, ArcRangeReadGuard, ArcRangeWriteGuard, Extent, RangeLock, RangeReadGuard,
    RangeWriteGuard, RawRangeLock, Slotted,
};
use fairlock_check::range::history::{
    Blame, Outcome, Passing, Promises, Record, Recorder, Stay, Summary, Way,
};
use fairlock_check::range::scenarios::{self, Positions};
use fairlock_check::range::{PIN, broken, extent, history};
use fairlock_check::threads::{Dice, Protected, THREADS, Unprotected, repeat, watched};
use fairlock_reference::range::{Naive, SharedWord};
use platforms::{Deaf, Noted, SLEEPS};

mod platforms {
    use std::cell::Cell;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

    use fairlock::events::NoCounters;
    use fairlock::platform::{Os, Platform, Zeroed};
    use fairlock::process::Process;
    use fairlock::slots::Record;

    use fairlock_check::range::history::note_sleep;
    use fairlock_check::real_threads_but;

    real_threads_but! {
        /// When threads began to sleep is recorded.
        Noted { asymmetric: Os::is_asymmetric(), records: own, park: note_sleep };
        /// Wake-ups are lost.
        Deaf { asymmetric: Os::is_asymmetric(), records: own, park: count_sleep, unpark: wake_nobody };
    }

    /// How often threads went to sleep on [`Deaf`].
    pub static SLEEPS: AtomicU32 = AtomicU32::new(0);

    fn wake_nobody(_word: *const AtomicU32) {}

    fn count_sleep(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
        SLEEPS.fetch_add(1, Relaxed);
        Os::park(word, expected, deadline);
    }
}

// ---- everything at once ----

const CELLS: u64 = 12;

enum Guard<'a, R: RawRangeLock> {
    Read(RangeReadGuard<'a, R>),
    Write(RangeWriteGuard<'a, R>),
    ArcRead(ArcRangeReadGuard<R>),
    ArcWrite(ArcRangeWriteGuard<R>),
}

impl<R: RawRangeLock> Guard<'_, R> {
    fn downgraded(self) -> Self {
        match self {
            Guard::Write(guard) => Guard::Read(RangeWriteGuard::downgrade(guard)),
            Guard::ArcWrite(guard) => Guard::ArcRead(ArcRangeWriteGuard::downgrade(guard)),
            shared => shared,
        }
    }
}

/// A lock over cells of so many positions each.
struct Field<R> {
    lock: Arc<RangeLock<R>>,
    cells: [Protected; CELLS as usize],
    unit: u64,
    /// The last position that is locked at all.
    last: u64,
}

/// Beyond all cells.
const PINS: std::ops::Range<u64> = PIN..PIN + 5;

impl<R: RawRangeLock> Field<R> {
    fn new(unit: u64, has_pins: bool) -> Self {
        let cells = std::array::from_fn(|_| Protected::default());
        let last = if has_pins { PINS.start - 1 } else { u64::MAX };
        Field { lock: Arc::new(RangeLock::new_in()), cells, unit, last }
    }

    /// A few cells, or now and then all and everything beyond.
    fn some(&self, dice: &mut Dice) -> Extent {
        if dice.roll(20) == 0 {
            return extent(..=self.last);
        }
        let first = dice.roll(CELLS);
        let end = (first + 1 + dice.roll(4)).min(CELLS);
        extent(first * self.unit..end * self.unit)
    }

    fn acquire(
        &self,
        recorder: &mut Recorder,
        (extent, access, way): (Extent, Access, Way),
        dice: &mut Dice,
    ) -> Option<Stay<Guard<'_, R>>> {
        let lock = &self.lock;
        let short = Duration::from_micros(dice.roll(200));
        let owned = dice.roll(4) == 0;
        recorder.acquire(extent, access, way, || match (access, way) {
            (Access::Shared, Way::Try) => lock.try_read(extent).map(Guard::Read),
            (Access::Shared, Way::Timed) => lock.try_read_for(extent, short).map(Guard::Read),
            (Access::Shared, Way::Wait) if owned => Some(Guard::ArcRead(lock.read_arc(extent))),
            (Access::Shared, Way::Wait) => Some(Guard::Read(lock.read(extent))),
            (Access::Exclusive, Way::Try) => lock.try_write(extent).map(Guard::Write),
            (Access::Exclusive, Way::Timed) => lock.try_write_for(extent, short).map(Guard::Write),
            (Access::Exclusive, Way::Wait) if owned => {
                Some(Guard::ArcWrite(lock.write_arc(extent)))
            }
            (Access::Exclusive, Way::Wait) => Some(Guard::Write(lock.write(extent))),
        })
    }

    /// Looks at or writes the cells of a hold. How many it has written.
    fn visit(&self, stay: &Stay<Guard<'_, R>>) -> u64 {
        let cells = self.cells.iter().enumerate().filter(|&(at, _)| {
            let at = at as u64 * self.unit;
            stay.extent().overlaps(extent(at..at + self.unit))
        });
        match stay.access() {
            Access::Shared => {
                cells.for_each(|(_, cell)| cell.read());
                0
            }
            Access::Exclusive => cells.map(|(_, cell)| cell.write()).count() as u64,
        }
    }

    /// One acquisition of a random kind and what belongs to it. How many writes it has made.
    fn operate<'a>(
        &'a self,
        recorder: &mut Recorder,
        dice: &mut Dice,
        carrier: &mpsc::Sender<Stay<Guard<'a, R>>>,
    ) -> u64 {
        let access = if dice.roll(3) == 0 { Access::Exclusive } else { Access::Shared };
        let way = match dice.roll(8) {
            0..2 => Way::Try,
            2..4 => Way::Timed,
            _ => Way::Wait,
        };
        let wanted = (self.some(dice), access, way);
        let Some(mut stay) = self.acquire(recorder, wanted, dice) else { return 0 };
        let mut writes = self.visit(&stay);
        match dice.roll(8) {
            // Beside it, another one or two.
            0 => {
                for _ in 0..2 {
                    let wanted = (self.some(dice), access, Way::Try);
                    if let Some(second) = self.acquire(recorder, wanted, dice) {
                        writes += self.visit(&second);
                        recorder.release(second);
                    }
                }
            }
            1..3 if access == Access::Exclusive => {
                stay = stay.downgrade(Guard::downgraded);
                writes += self.visit(&stay);
            }
            3 => {
                carrier.send(stay).expect("there to the end");
                return writes;
            }
            _ => {}
        }
        recorder.release(stay);
        writes
    }
}

/// What a run has shown.
struct Findings {
    records: Vec<Record>,
    /// Somebody was beside a writer, an update was lost, or something is held at the end.
    fault: Option<&'static str>,
}

impl Findings {
    fn check(&self, promises: Promises) -> Result<Summary, String> {
        if let Some(fault) = self.fault {
            return Err(fault.to_owned());
        }
        history::check(&self.records, promises)
    }
}

const STEPS: u64 = 200;

/// Threads that do everything, and one that drops guards of theirs. With `pins`, meanwhile this one holds more ranges than
/// it has slots.
fn everything_at_once<R: RawRangeLock>(threads: u64, unit: u64, seed: u64, pins: bool) -> Findings {
    let field = Field::<R>::new(unit, pins);
    let pins = if pins { PINS } else { 0..0 };
    let pins: Vec<_> = pins.map(|at| field.lock.read(extent(at..=at))).collect();
    let (carrier, carried) = mpsc::channel();
    let results: Vec<(u64, Vec<Record>)> = thread::scope(|scope| {
        let mut handles = Vec::new();
        for number in 0..threads {
            let (field, carrier) = (&field, carrier.clone());
            handles.push(scope.spawn(move || {
                let mut dice = Dice::new(seed * threads + number);
                let mut recorder = Recorder::new(number as usize);
                let step = |_| field.operate(&mut recorder, &mut dice, &carrier);
                let writes = (0..STEPS).map(step).sum();
                (writes, recorder.records)
            }));
        }
        drop(carrier);
        handles.push(scope.spawn(move || {
            let mut recorder = Recorder::new(threads as usize);
            carried.into_iter().for_each(|stay| recorder.release(stay));
            (0, recorder.records)
        }));
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    drop(pins);
    let is_free = field.lock.try_write(Extent::ALL).is_some();
    let writes: u64 = results.iter().map(|(writes, _)| writes).sum();
    let violated = field.cells.iter().any(|cell| cell.violated.load(Relaxed));
    let counted: u64 = field.cells.iter().map(|cell| cell.count.load(Relaxed)).sum();
    let faults = [
        (violated, "a range was granted beside a conflicting writer"),
        (counted != writes, "an update was lost"),
        (!is_free, "something is held when everybody is done"),
    ];
    Findings {
        records: results.into_iter().flat_map(|(_, records)| records).collect(),
        fault: faults.into_iter().find_map(|(is_so, fault)| is_so.then_some(fault)),
    }
}

/// Several runs, each with other numbers, and more until threads have met: on a busy machine each of
/// two may do all it has to within its time slice.
fn withstands<R: RawRangeLock>(threads: u64, unit: u64, (promises, pins): (Promises, bool)) {
    const RUNS: u64 = 4;
    const MOST_RUNS: u64 = 200;
    let mut waits = 0;
    for seed in 0..MOST_RUNS {
        let findings = watched(|| everything_at_once::<R>(threads, unit, seed, pins));
        let summary = findings.check(promises).unwrap_or_else(|wrong| panic!("{wrong}"));
        eprintln!("{summary:?}");
        waits += summary.waits;
        if seed + 1 >= RUNS && waits > 0 {
            return;
        }
    }
    panic!("nobody is known to have waited");
}

/// First come, first served: whoever waits keeps everybody away who comes later.
const QUEUE: Promises = Promises { failures: Blame::Anybody, passing: Passing::AtMost(0) };
/// Past a waiting writer come readers who waited for what another writer left; nobody else.
const PHASES: Promises = Promises { failures: Blame::Conflicts, passing: Passing::Phases };
/// Anybody passes for a while. For how long is not seen from outside, as who waits may have no CPU: the explorer sees that.
const FOR_A_WHILE: Promises = Promises { passing: Passing::AtMost(usize::MAX), ..PHASES };

macro_rules! locks_withstand_everything {
    ($($lock:ident: $subject:ty, $promises:expr;)*) => {$(
        mod $lock {
            use super::*;
            #[test]
            fn withstands_a_mix_of_everything_on_single_positions() {
                withstands::<$subject>(THREADS, 1, $promises);
            }
            /// Who come and go, so that often nothing is held.
            #[test]
            fn withstands_a_mix_of_everything_by_two_threads() {
                withstands::<$subject>(2, 1, $promises);
            }
            #[test]
            fn withstands_a_mix_of_everything_on_pages() {
                withstands::<$subject>(THREADS, 4096, $promises);
            }
            #[test]
            fn withstands_a_mix_of_everything_on_large_extents() {
                withstands::<$subject>(THREADS, 3 << 20, $promises);
            }
        }
    )*};
}

locks_withstand_everything! {
    slotted: Slotted<Noted>, (FOR_A_WHILE, false);
    slotted_with_two_stripes: Slotted<Noted, 2, 0>, (FOR_A_WHILE, false);
    slotted_in_order: Slotted<Noted>, (PHASES, true);
    slotted_in_order_with_two_stripes: Slotted<Noted, 2, 0>, (PHASES, true);
    naive: Naive<Noted>, (QUEUE, false);
    shared_word: SharedWord<Noted>, (QUEUE, false);
}

// ---- flaws ----

const NOTHING: Promises = Promises { failures: Blame::Anybody, ..FOR_A_WHILE };

/// What the cells and the history say about a lock with a flaw.
fn reports<R: RawRangeLock>(promises: Promises) -> (Option<&'static str>, String) {
    let findings: Vec<Findings> =
        (0..8).map(|seed| watched(|| everything_at_once::<R>(THREADS, 1, seed, false))).collect();
    let fault = findings.iter().find_map(|findings| findings.fault);
    let wrong =
        findings.iter().find_map(|findings| history::check(&findings.records, promises).err());
    (fault, wrong.unwrap_or_default())
}

#[test]
fn cells_and_histories_show_a_lock_that_lets_everybody_in() {
    let (fault, wrong) = reports::<broken::Open>(NOTHING);
    assert!(fault.is_some());
    assert!(wrong.starts_with("both were in"), "{wrong}");
}

#[test]
fn cells_and_histories_show_a_lock_that_ignores_the_last_position() {
    let (fault, wrong) = reports::<broken::Short<Naive<Noted>>>(NOTHING);
    assert!(fault.is_some());
    assert!(wrong.starts_with("both were in"), "{wrong}");
}

#[test]
fn histories_show_a_lock_that_lets_newcomers_pass() {
    let (fault, wrong) = reports::<broken::Barging<Noted>>(QUEUE);
    assert_eq!(fault, None);
    assert!(wrong.starts_with("passed"), "{wrong}");
}

#[test]
fn histories_show_a_lock_that_fails_for_no_reason() {
    let promises = Promises { failures: Blame::Conflicts, ..NOTHING };
    let (fault, wrong) = reports::<broken::Timid<Noted>>(promises);
    assert_eq!(fault, None);
    assert!(wrong.starts_with("failed for no reason"), "{wrong}");
}

/// Thirty times as long as threads take that end.
const LONG: Duration = Duration::from_secs(1);
/// As long as they may take where the machine does much else.
const VERY_LONG: Duration = Duration::from_secs(120);

/// Whether threads of their own end. If they do not, they are left behind.
fn end_within(long: Duration, body: impl FnOnce() + Send + 'static) -> bool {
    let (done, watch) = mpsc::channel();
    thread::spawn(move || {
        body();
        // Nobody listens to one that took too long.
        _ = done.send(());
    });
    watch.recv_timeout(long).is_ok()
}

#[test]
fn lost_wake_ups_leave_threads_behind() {
    /// One waits for the other; often, because it may not sleep yet when its turn comes.
    fn hand_overs<R: RawRangeLock + 'static>(long: Duration) -> bool {
        end_within(long, || {
            let lock = RangeLock::<R>::new_in();
            for _ in 0..200 {
                let before = SLEEPS.load(Relaxed);
                let alone = lock.write(Extent::ALL);
                thread::scope(|scope| {
                    let reader = scope.spawn(|| drop(lock.read(extent(7..8))));
                    for _ in 0..1_000 {
                        if SLEEPS.load(Relaxed) != before {
                            break;
                        }
                        thread::yield_now();
                    }
                    drop(alone);
                    reader.join().unwrap();
                });
            }
        })
    }
    assert!(hand_overs::<Naive<Noted>>(VERY_LONG));
    assert!(hand_overs::<SharedWord<Noted>>(VERY_LONG));
    assert!(!hand_overs::<Naive<Deaf>>(LONG));
    assert!(!hand_overs::<SharedWord<Deaf>>(LONG));
}

// ---- the checker itself ----

/// A record of an acquisition that was asked for, got and released at these moments.
fn held(positions: std::ops::Range<u64>, access: Access, at: [u64; 3]) -> Record {
    let [asked, got, releasing] = at;
    Record {
        thread: 0,
        extent: extent(positions),
        access,
        way: Way::Wait,
        asked,
        waiting: None,
        downgrade: None,
        outcome: Outcome::Held { got, releasing, released: releasing + 1 },
    }
}

fn waited(record: Record, since: u64) -> Record {
    Record { waiting: Some(since), ..record }
}

fn failed(positions: std::ops::Range<u64>, access: Access, [asked, at]: [u64; 2]) -> Record {
    let record = held(positions, access, [asked, at, at]);
    Record { way: Way::Try, outcome: Outcome::Failed { at }, ..record }
}

use Access::{Exclusive, Shared};

#[test]
fn holds_that_meet_are_faults_only_if_they_conflict() {
    let check = |a: &Record, b: Record| history::check(&[a.clone(), b], NOTHING).is_ok();
    let writer = held(0..4, Exclusive, [0, 1, 9]);
    assert!(!check(&writer, held(3..5, Shared, [2, 3, 4])));
    assert!(!check(&writer, held(3..5, Shared, [2, 3, 20])));
    assert!(check(&writer, held(4..5, Shared, [2, 3, 4])));
    assert!(check(&writer, held(3..5, Shared, [2, 11, 12])));
    assert!(check(&held(0..4, Shared, [0, 1, 9]), held(3..5, Shared, [2, 3, 4])));
    let downgraded = Record { downgrade: Some((5, 6)), ..writer };
    assert!(check(&downgraded, held(0..4, Shared, [2, 7, 8])));
    assert!(!check(&downgraded, held(0..4, Shared, [2, 4, 8])));
    assert!(!check(&downgraded, held(0..4, Exclusive, [2, 7, 8])));
}

#[test]
fn a_failure_needs_somebody_who_conflicts() {
    let promises = Promises { failures: Blame::Conflicts, ..NOTHING };
    let check = |other: Record, failed: Record| history::check(&[other, failed], promises).is_ok();
    let writer = held(0..4, Exclusive, [0, 5, 9]);
    assert!(check(writer.clone(), failed(3..4, Shared, [6, 7])), "held");
    assert!(check(writer.clone(), failed(3..4, Shared, [2, 3])), "waited for");
    assert!(check(writer.clone(), failed(3..4, Shared, [9, 12])), "about to be released");
    assert!(!check(writer.clone(), failed(3..4, Shared, [11, 12])), "released before");
    assert!(!check(writer.clone(), failed(4..5, Shared, [6, 7])), "disjoint");
    assert!(!check(held(0..4, Shared, [0, 5, 9]), failed(3..4, Shared, [6, 7])), "shared");
    let downgraded = Record { downgrade: Some((6, 7)), ..writer };
    assert!(!check(downgraded, failed(3..4, Shared, [8, 12])), "shared by then");
    let beside = failed(0..4, Exclusive, [5, 8]);
    assert!(!check(beside, failed(3..4, Shared, [6, 7])), "another try that failed");
}

#[test]
fn who_waits_is_passed_only_by_whom_the_lock_allows() {
    let leaver = held(0..4, Exclusive, [0, 1, 10]);
    let writer = waited(held(0..4, Exclusive, [2, 30, 31]), 3);
    let with = |others: &[Record], passing| {
        let records = [&[leaver.clone(), writer.clone()], others].concat();
        history::check(&records, Promises { passing, ..NOTHING }).is_ok()
    };
    let waiting_reader = held(0..1, Shared, [5, 12, 13]);
    let late_reader = held(0..1, Shared, [15, 16, 17]);
    let early_reader = held(0..1, Shared, [1, 14, 17]);
    let disjoint_writer = held(4..5, Exclusive, [15, 16, 17]);
    let late_writer = held(0..1, Exclusive, [5, 20, 21]);
    for (other, at_most_none, phases) in [
        (waiting_reader.clone(), false, true),
        (late_reader.clone(), false, false),
        (early_reader, true, true),
        (disjoint_writer, true, true),
        (late_writer, false, false),
    ] {
        let others = [other];
        assert_eq!(with(&others, Passing::AtMost(0)), at_most_none, "{}", others[0]);
        assert_eq!(with(&others, Passing::Phases), phases, "{}", others[0]);
    }
    let both = [waiting_reader, late_reader];
    assert!(with(&both, Passing::AtMost(2)));
    assert!(!with(&both, Passing::AtMost(1)));
}

/// What Loom and the explorer see every schedule of.
fn a_few_threads<R: RawRangeLock + Send + Sync + 'static>(name: &str) {
    repeat::<Positions<R, Unprotected>>(name, scenarios::all(), 30);
}

#[test]
fn a_few_threads_over_a_few_positions() {
    a_few_threads::<Slotted<fairlock::platform::Os, 2, 0>>("two stripes");
    a_few_threads::<Slotted<fairlock::platform::Os, 1, 0>>("one stripe");
}
