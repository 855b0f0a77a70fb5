//! Programs of appends on a simulated disk, cut off at each of its operations: what was acknowledged is
//! read back, whole, in order, once.

use std::collections::HashMap;
use std::io::IoSlice;
use std::panic;
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::appending::AppendOptions;
use super::control::Control;
use super::error::{LogError, LogErrorKind};
use super::log::{Log, Submitted};
use super::options::{LogOptions, Prewrite, Recovery, SyncPolicy};
use super::position::Position;
use super::reader::Reader;
use super::retention::Limits;
use super::simulated_disk::{Crash, Failure, Machine, Mischief, SimulatedDisk};
use crate::long::depth;

type TestLog = Log<SimulatedDisk>;

/// The process died.
struct Dead;

const SEGMENT: u64 = 64 << 10;
/// What a limit keeps.
const DAY: Duration = Duration::from_secs(86_400);

/// Says which record it is, and so much of anything that damage shows.
pub(super) fn record(number: u64, length: usize) -> Vec<u8> {
    // Made once: in tests that read a lot it would take most of the time.
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    let noise = NOISE.get_or_init(|| {
        let mut noise = vec![0; 1 << 16];
        Rng::with_seed(0).fill(&mut noise);
        noise
    });
    let length = length.max(16);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&(length as u64).to_le_bytes());
    let mut from = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
    while bytes.len() < length {
        let more = (length - bytes.len()).min(noise.len() - from);
        bytes.extend_from_slice(&noise[from..from + more]);
        from = 0;
    }
    bytes
}

/// The number of a record that is what it was.
fn number_of(bytes: &[u8]) -> u64 {
    let number = bytes.first_chunk().map(|number| u64::from_le_bytes(*number));
    let number = number.expect("a record is shorter than any that was appended");
    assert!(bytes == record(number, bytes.len()), "a record is not what was appended");
    number
}

/// Positions and numbers of all records that a reader gives.
pub(super) fn read_all(reader: &mut Reader<SimulatedDisk>) -> Result<Vec<(u64, u64)>, LogError> {
    let mut found = Vec::new();
    while let Some(record) = reader.next()? {
        found.push((record.position.get(), number_of(record.bytes)));
    }
    Ok(found)
}

/// How a log came to be what is read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// It is open, or was closed.
    Nothing,
    /// The process ended in some other way.
    Process,
    Power,
}

/// What a user of the log knows.
#[derive(Default)]
struct Known {
    next: u64,
    /// Position and number, in order.
    acknowledged: Vec<(u64, u64)>,
    /// All acknowledged below outlives the loss of power.
    durable: u64,
    /// The number and position of what was submitted, and not waited for.
    submitted: HashMap<u64, u64>,
    failed: HashMap<u64, u64>,
    /// Numbers of what was submitted to arrive together, and not waited for.
    together: Vec<Vec<u64>>,
    /// What is behind was cut off, perhaps.
    cut_tried: Option<u64>,
    /// Given up below, and perhaps below that.
    first: u64,
    first_tried: u64,
    /// The position of whatever was acknowledged, ever.
    ever: HashMap<u64, u64>,
    /// What was acknowledged there: somebody may have read it, and no other record may have its position.
    ever_at: HashMap<u64, u64>,
}

impl Known {
    fn acknowledge(&mut self, number: u64, position: u64) {
        self.submitted.remove(&number);
        self.ever.insert(number, position);
        let before = self.ever_at.insert(position, number);
        assert!(before.is_none_or(|it| it == number), "the position {position} has returned");
        let at = self.acknowledged.partition_point(|it| it.0 < position);
        self.acknowledged.insert(at, (position, number));
    }

    fn check(&mut self, found: &[(u64, u64)], after: After) {
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "out of order: {found:?}");
        for &(position, number) in found {
            let is_acknowledged = self.acknowledged.contains(&(position, number));
            let is_submitted = self.submitted.get(&number) == Some(&position);
            let has_failed = self.failed.get(&number) == Some(&position);
            let was_given_up = self.ever.get(&number) == Some(&position);
            assert!(
                is_acknowledged
                    || is_submitted
                    || has_failed && after != After::Nothing
                    || was_given_up && position < self.first && after == After::Power,
                "record {number} at {position} should not be there {after:?}"
            );
            assert!(
                position >= self.first || after == After::Power,
                "record {number} at {position} was given up"
            );
        }
        for numbers in &self.together {
            let there = numbers.iter().filter(|&number| found.iter().any(|it| it.1 == *number));
            let there = there.count();
            assert!(there == 0 || there == numbers.len(), "a part of {numbers:?} {after:?}");
        }
        let is_required = |position: u64| {
            position >= self.first_tried
                && self.cut_tried.is_none_or(|cut| position <= cut)
                && (after != After::Power || position < self.durable)
        };
        let mut lost = None;
        for &(position, number) in &self.acknowledged {
            if found.binary_search(&(position, number)).is_ok() {
                continue;
            }
            assert!(!is_required(position), "record {number} at {position} is lost {after:?}");
            // What was cut off leaves no gap that matters: what comes behind was appended after it.
            if position >= self.first_tried && self.cut_tried.is_none_or(|cut| position <= cut) {
                lost = lost.or(Some(position));
            }
        }
        if let (Some(lost), Some(&(last, _))) = (lost, found.last()) {
            assert!(last < lost, "the record at {lost} is lost, but that at {last} is there");
        }
    }

    /// What was found is what there is.
    fn settle(&mut self, found: &[(u64, u64)], first: u64) {
        (self.first, self.first_tried) = (first, first);
        self.acknowledged = found.to_vec();
        self.ever.extend(found.iter().map(|&(position, number)| (number, position)));
        self.acknowledged.retain(|it| it.0 >= first);
        self.submitted.clear();
        self.failed.clear();
        self.together.clear();
        self.cut_tried = None;
    }
}

/// Seen by all programs of a test: it should not test nothing.
#[derive(Default, Debug)]
struct Seen {
    crashes: u64,
    crashes_in_recovery: u64,
    torn: u64,
    lost: u64,
    recycled: u64,
    given_up_by_limit: u64,
    full: u64,
    failures: u64,
    records: u64,
    cuts: u64,
}

struct Program {
    machine: Machine,
    /// What the log is opened with gives up segments.
    limits: Limits,
    /// No segment was begun that is later.
    newest: u64,
    random: Rng,
    known: Known,
    after: After,
    /// Now and then an operation fails.
    fails: bool,
    /// Now and then the disk is full.
    fills: bool,
    /// The process may die while a log is opened.
    crashes_again: bool,
    is_full: bool,
    seen: Seen,
}

impl Program {
    fn new(seed: u64) -> Program {
        Program {
            machine: Machine::new(seed),
            limits: Limits::default(),
            newest: 0,
            random: Rng::with_seed(seed),
            known: Known::default(),
            after: After::Nothing,
            fails: false,
            fills: false,
            crashes_again: false,
            is_full: false,
            seen: Seen::default(),
        }
    }

    fn options(&mut self) -> LogOptions {
        let random = &mut self.random;
        let mut options = LogOptions::new()
            .segment_bytes(SEGMENT)
            .batch_bytes([4096, 16384, 65536][random.usize(..3)])
            .sync(policy(random.usize(..3)))
            .prewrite([Prewrite::Always, Prewrite::Never][random.usize(..2)]);
        if random.bool() {
            options = options.retain_bytes(random.u64(1..5) * SEGMENT);
        }
        if random.u32(..4) == 0 {
            options = options.retain_for(DAY);
        }
        self.limits = Limits::of(&options);
        options
    }

    /// Limits may have given up what is not needed when this segment is being written.
    fn may_be_given_up(&mut self, newest: u64) {
        self.newest = self.newest.max(newest);
        let needed = match self.limits {
            // Any may be old.
            Limits { time: Some(_), .. } => 1,
            Limits { bytes: Some(bytes), .. } => (bytes / SEGMENT).max(2),
            _ => return,
        };
        let kept = (self.newest + 1).saturating_sub(needed);
        self.known.first_tried = self.known.first_tried.max(kept * SEGMENT);
    }

    /// The last segment that there is, as after a crash.
    fn last_segment(&self) -> u64 {
        let names = self.machine.names();
        let numbers = names.iter().filter_map(|name| name.strip_suffix(".segment")?.parse().ok());
        numbers.max().unwrap_or(0)
    }

    /// Crashes, if it did not, and is started again.
    fn restart(&mut self, crash: Crash) {
        self.seen.crashes += 1;
        self.machine.restart(crash);
        self.after = match (self.after, crash) {
            (After::Power, _) | (_, Crash::Power) => After::Power,
            _ => After::Process,
        };
    }

    /// Opens the log and reads all of it.
    fn open(&mut self) -> Result<(TestLog, SyncPolicy), Dead> {
        loop {
            // Who only reads sees the same.
            let before = match Reader::open(self.machine.disk()) {
                Ok(mut reader) => Some(self.must(read_all(&mut reader))?),
                Err(error) if *error.kind() == LogErrorKind::NotALog => None,
                Err(_) if self.machine.is_dead() => return Err(Dead),
                Err(error) => panic!("{error}; {}", self.machine.describe()),
            };
            let again = self.crashes_again && self.random.u32(..3) > 0;
            if again {
                let operations = self.machine.operations();
                self.machine.crash_at(operations + self.random.u64(..16));
            }
            let options = self.options();
            let opened = Log::open(self.machine.disk(), options.clone());
            if opened.is_err() || self.machine.is_dead() {
                self.may_be_given_up(self.last_segment());
            }
            if self.machine.is_dead() {
                if !again {
                    return Err(Dead);
                }
                drop(opened);
                self.seen.crashes_in_recovery += 1;
                let crash = [Crash::Process, Crash::Power][self.random.usize(..2)];
                self.restart(crash);
                continue;
            }
            if again {
                self.machine.crash_at(u64::MAX);
            }
            let log = match opened {
                Ok(log) => log,
                Err(error) => {
                    self.expect_failure(&error);
                    self.after = self.after.max_process();
                    self.make_room();
                    continue;
                }
            };
            let Recovery { torn, lost_bytes, .. } = *log.recovery();
            self.seen.torn += u64::from(torn.is_some());
            self.seen.lost += u64::from(lost_bytes > 0);
            self.newest = 0;
            self.may_be_given_up((log.committed().get() - 1) / SEGMENT);
            let kept = log.first().get();
            let found = self.read(&log)?;
            self.known.check(&found, self.after);
            if let Some(mut before) = before {
                before.retain(|it| it.0 >= kept);
                // But for a batch that is whole, and was not yet committed: it is when the log is opened.
                assert!(
                    found.starts_with(&before),
                    "a reader sees something else: {before:?} than {found:?}, first {} {}",
                    log.first(),
                    self.machine.describe()
                );
            }
            self.known.settle(&found, log.first().get());
            // What a limit could not give up at the opening it gives up later.
            self.may_be_given_up((log.committed().get() - 1) / SEGMENT);
            self.known.durable = log.committed().get();
            self.after = After::Nothing;
            return Ok((log, options.sync));
        }
    }

    fn must<T>(&self, result: Result<T, LogError>) -> Result<T, Dead> {
        match result {
            Ok(it) => Ok(it),
            Err(_) if self.machine.is_dead() => Err(Dead),
            Err(error) => panic!("{error}; {}", self.machine.describe()),
        }
    }

    fn read(&self, log: &TestLog) -> Result<Vec<(u64, u64)>, Dead> {
        loop {
            match log.reader().and_then(|mut reader| read_all(&mut reader)) {
                // By a limit, meanwhile: what is left is after it.
                Err(error) if matches!(error.kind(), LogErrorKind::Truncated { .. }) => {
                    assert!(!self.limits.is_none(), "{error}");
                }
                read => return self.must(read),
            }
        }
    }

    fn expect_failure(&mut self, error: &LogError) {
        match error.kind() {
            LogErrorKind::StorageFull => {
                assert!(self.is_full || self.fills, "{error}");
                assert!(error.segment().is_some() && error.offset().is_some(), "{error}");
                assert!(error.path().starts_with("/simulated"), "{error}");
                self.seen.full += 1;
            }
            LogErrorKind::System(_) | LogErrorKind::SyncFailed => {
                assert!(self.fails, "{error}");
                self.seen.failures += 1;
            }
            _ => panic!("{error}; {}", self.machine.describe()),
        }
    }

    /// Before it is closed or dropped.
    fn look_at(&mut self, log: &TestLog) {
        let metrics = log.metrics();
        self.seen.recycled += metrics.segments.used_again;
        self.seen.given_up_by_limit += metrics.segments.given_up_by_limit;
    }

    fn make_room(&mut self) {
        self.is_full = false;
        self.machine.set_capacity(usize::MAX);
    }

    fn some_record(&mut self) -> (u64, Vec<u8>) {
        let number = self.known.next;
        self.known.next += 1;
        let random = &mut self.random;
        let length = match random.u32(..10) {
            0..4 => random.usize(16..200),
            4..6 => random.usize(3900..4200),
            6..8 => random.usize(4096..20_000),
            // What remains of a block, of a segment, or hardly too much.
            8 => 4096 - 48 - 24 - random.usize(..3) * 8,
            _ => (60 << 10) - 72 - random.usize(..2) * 4096,
        };
        (number, record(number, length))
    }

    /// Submits a record; none if that failed.
    fn submit(&mut self, log: &TestLog) -> Result<Option<(Submitted, u64)>, Dead> {
        let (number, bytes) = self.some_record();
        let cut = self.random.usize(..=bytes.len());
        let slices = [IoSlice::new(&bytes[..cut]), IoSlice::new(&bytes[cut..])];
        match log.submit(&slices) {
            Ok(submitted) => {
                self.known.submitted.insert(number, submitted.position().get());
                self.may_be_given_up(submitted.position().get() / SEGMENT);
                Ok(Some((submitted, number)))
            }
            Err(_) if self.machine.is_dead() => Err(Dead),
            Err(error) => {
                self.expect_failure(&error);
                Ok(None)
            }
        }
    }

    /// Appends some records that arrive together.
    fn append_all(&mut self, log: &TestLog, policy: SyncPolicy) -> Result<(), Dead> {
        let records: Vec<_> = (0..self.random.usize(1..5))
            .map(|_| self.some_record())
            .map(|(number, bytes)| (number, record(number, bytes.len() / 4)))
            .collect();
        let bytes: Vec<&[u8]> = records.iter().map(|(_, bytes)| bytes.as_slice()).collect();
        let mut options = AppendOptions::new();
        options.durable = [None, Some(false), Some(true)][self.random.usize(..3)];
        let durable = options.durable.unwrap_or(policy == SyncPolicy::EveryCommit);
        let numbers: Vec<u64> = records.iter().map(|(number, _)| *number).collect();
        let submitted = match log.submit_all(&bytes, &options) {
            Ok(submitted) => submitted,
            Err(_) if self.machine.is_dead() => return Err(Dead),
            Err(error) => {
                self.expect_failure(&error);
                return Ok(());
            }
        };
        let places = numbers.iter().copied().zip(submitted.positions().iter().map(|it| it.get()));
        self.known.submitted.extend(places.clone());
        let last = submitted.last().expect("there is one");
        self.may_be_given_up(last.position().get() / SEGMENT);
        self.known.together.push(numbers.clone());
        let waited = log.wait(last);
        if self.machine.is_dead() {
            return Err(Dead);
        }
        self.known.together.clear();
        if let Err(error) = waited {
            self.expect_failure(&error);
            for (number, position) in places {
                self.known.submitted.remove(&number);
                self.known.failed.insert(number, position);
            }
            return Ok(());
        }
        for (number, position) in places {
            self.seen.records += 1;
            self.known.acknowledge(number, position);
            if durable {
                self.known.durable = self.known.durable.max(position + 1);
            }
        }
        Ok(())
    }

    /// Cuts off the end of the log.
    fn cut(&mut self, log: &TestLog) -> Result<(), Dead> {
        let known = &mut self.known;
        let first = log.first().get();
        let begin = known.acknowledged.partition_point(|it| it.0 < first);
        let position = match self.random.usize(begin..=known.acknowledged.len()) {
            at if at < known.acknowledged.len() => known.acknowledged[at].0,
            _ => 0,
        };
        known.cut_tried = Some(position);
        let cut = log.truncate_after(Position::new(position));
        if !self.limits.is_none() {
            if let Err(error) = &cut {
                if matches!(error.kind(), LogErrorKind::Truncated { .. }) {
                    // By a limit, meanwhile.
                    self.known.cut_tried = None;
                    return Ok(());
                }
            }
        }
        self.seen.cuts += 1;
        let is_cut = self.ended(cut)?;
        if is_cut {
            self.known.acknowledged.retain(|it| it.0 <= position);
        }
        let found = self.read(log)?;
        self.known.check(&found, After::Nothing);
        let before = std::mem::replace(&mut self.known.acknowledged, found);
        // What covers the others, or gives up those before, may be lost with the power.
        let gone = before.into_iter().filter(|it| !self.known.acknowledged.contains(it));
        self.known.failed.extend(gone.map(|(position, number)| (number, position)));
        self.known.cut_tried = None;
        Ok(())
    }

    fn wait(
        &mut self,
        log: &TestLog,
        policy: SyncPolicy,
        (submitted, number): (Submitted, u64),
    ) -> Result<(), Dead> {
        let waited = log.wait(submitted);
        if self.machine.is_dead() {
            return Err(Dead);
        }
        match waited {
            Ok(position) => {
                assert_eq!(position, submitted.position());
                self.seen.records += 1;
                self.known.acknowledge(number, position.get());
                if policy == SyncPolicy::EveryCommit {
                    self.known.durable = self.known.durable.max(position.get() + 1);
                }
            }
            Err(error) => {
                self.expect_failure(&error);
                self.known.submitted.remove(&number);
                self.known.failed.insert(number, submitted.position().get());
            }
        }
        Ok(())
    }

    fn ended<T>(&mut self, result: Result<T, LogError>) -> Result<bool, Dead> {
        if self.machine.is_dead() {
            return Err(Dead);
        }
        if let Err(error) = &result {
            self.expect_failure(error);
        }
        Ok(result.is_ok())
    }

    /// So many steps of a user.
    fn live(&mut self, steps: usize) -> Result<(), Dead> {
        let (mut log, mut policy) = self.open()?;
        let mut unwaited: Vec<(Submitted, u64)> = Vec::new();
        for _ in 0..steps {
            if self.fails && self.random.u32(..8) == 0 {
                let failure =
                    [Failure::Nothing, Failure::Part, Failure::Whole][self.random.usize(..3)];
                let at = self.machine.operations() + self.random.u64(..6);
                self.machine.fail_at(at, failure);
            }
            if self.fills && self.random.u32(..6) == 0 {
                match self.is_full {
                    true => self.make_room(),
                    false => {
                        self.is_full = true;
                        let used = self.machine.blocks_used();
                        self.machine.set_capacity(used + self.random.usize(..40));
                    }
                }
            }
            match self.random.u32(..25) {
                20..22 => self.append_all(&log, policy)?,
                22 => {
                    for submitted in unwaited.drain(..) {
                        self.wait(&log, policy, submitted)?;
                    }
                    self.cut(&log)?;
                }
                0..10 => {
                    unwaited.extend(self.submit(&log)?);
                    for submitted in unwaited.drain(..) {
                        self.wait(&log, policy, submitted)?;
                    }
                }
                10..14 => {
                    for _ in 0..self.random.usize(1..8) {
                        unwaited.extend(self.submit(&log)?);
                    }
                }
                14 => {
                    let committed = log.committed().get();
                    if self.ended(log.sync())? {
                        self.known.durable = self.known.durable.max(committed);
                    }
                }
                15..17 => {
                    let known = &self.known;
                    let position = match self.random.usize(..=known.acknowledged.len()) {
                        at if at < known.acknowledged.len() => known.acknowledged[at].0,
                        _ => log.committed().get(),
                    };
                    self.known.first_tried = self.known.first_tried.max(position);
                    if self.ended(log.truncate_before(Position::new(position)))? {
                        let first = self.known.first.max(position);
                        self.known.first = first;
                        self.known.acknowledged.retain(|it| it.0 >= first);
                    }
                }
                17 => {
                    let found = self.read(&log)?;
                    self.known.check(&found, After::Nothing);
                }
                18 => {
                    self.machine.advance(DAY * self.random.u32(..3) / 2);
                    let given_up = log.retain();
                    if self.ended(given_up)? {
                        let first = self.known.first.max(log.first().get());
                        self.known.first = first;
                        self.known.acknowledged.retain(|it| it.0 >= first);
                    }
                }
                19 => {
                    self.look_at(&log);
                    for submitted in unwaited.drain(..) {
                        self.wait(&log, policy, submitted)?;
                    }
                    let closed = log.close();
                    let closed = self.ended(closed)?;
                    self.after = if closed { After::Nothing } else { After::Process };
                    (log, policy) = self.open()?;
                }
                _ => {
                    self.look_at(&log);
                    drop(log);
                    if self.machine.is_dead() {
                        return Err(Dead);
                    }
                    unwaited.clear();
                    self.after = After::Process;
                    (log, policy) = self.open()?;
                }
            }
        }
        for submitted in unwaited.drain(..) {
            self.wait(&log, policy, submitted)?;
        }
        self.look_at(&log);
        let closed = log.close();
        self.after = if self.ended(closed)? { After::Nothing } else { After::Process };
        Ok(())
    }
}

impl After {
    fn max_process(self) -> After {
        match self {
            After::Nothing => After::Process,
            other => other,
        }
    }
}

fn policy(number: usize) -> SyncPolicy {
    let never_again = SyncPolicy::Interval(Duration::from_secs(3600));
    [SyncPolicy::EveryCommit, never_again, SyncPolicy::Never][number]
}

/// A program that dies at operation `at`, is started again and goes on; operations that it took.
fn run(seed: u64, at: u64, crash: Crash, set: impl Fn(&mut Program), seen: &mut Seen) -> u64 {
    let mut program = Program::new(seed);
    set(&mut program);
    program.machine.crash_at(at);
    // Its choices do not depend on where it dies.
    let lived = program.live(24);
    let operations = program.machine.operations();
    if lived.is_err() {
        program.restart(crash);
        program.crashes_again = true;
        program.random = Rng::with_seed(seed ^ at << 32);
        let more = program.random.u64(..200);
        while program.live(6).is_err() {
            program.restart(Crash::Process);
        }
        program.crashes_again = false;
        program.machine.crash_at(program.machine.operations() + more);
        if program.live(6).is_err() {
            program.restart(crash);
        }
    }
    program.make_room();
    program.fails = false;
    program.fills = false;
    program.crashes_again = false;
    program.machine.fail_no_more();
    program.machine.crash_at(u64::MAX);
    let ended = program.live(3);
    assert!(ended.is_ok(), "nothing kills it any more");
    let Ok((log, _)) = program.open() else { unreachable!("nothing kills it any more") };
    drop(log);
    let more = program.seen;
    seen.crashes += more.crashes;
    seen.crashes_in_recovery += more.crashes_in_recovery;
    seen.torn += more.torn;
    seen.lost += more.lost;
    seen.recycled += more.recycled;
    seen.given_up_by_limit += more.given_up_by_limit;
    seen.full += more.full;
    seen.failures += more.failures;
    seen.records += more.records;
    seen.cuts += more.cuts;
    operations
}

/// Says which program it was if it fails.
struct Told<'a>(&'a str, u64, u64, Crash);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Told(test, seed, at, crash) = self;
            eprintln!("{test}: seed {seed}, crash at operation {at} ({crash:?})");
        }
    }
}

/// More programs, by `FAIRLOCK_LOG_CRASHES`: how many times as many.
fn times() -> u64 {
    let times = std::env::var("FAIRLOCK_LOG_CRASHES");
    times.ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

fn run_each(
    test: &str,
    seeds: std::ops::Range<u64>,
    stride: u64,
    set: impl Fn(&mut Program) + Copy,
) -> Seen {
    let mut seen = Seen::default();
    for seed in seeds {
        let operations = {
            let _told = Told(test, seed, u64::MAX, Crash::Process);
            run(seed, u64::MAX, Crash::Process, set, &mut seen)
        };
        let mut at = seed % stride;
        while at <= operations {
            for crash in [Crash::Process, Crash::Power] {
                let _told = Told(test, seed, at, crash);
                run(seed, at, crash, set, &mut seen);
            }
            at += stride;
        }
    }
    println!("{test}: {seen:?}");
    seen
}

#[test]
fn what_was_acknowledged_outlives_a_crash_at_any_operation() {
    let seen = run_each("crashes", 0..3 * times(), depth(5, 2), |_| {});
    assert!(seen.crashes > depth(80, 200), "{seen:?}");
    assert!(seen.crashes_in_recovery > depth(20, 50), "{seen:?}");
    assert!(seen.torn > 0 && seen.lost > 0 && seen.recycled > 0, "{seen:?}");
    assert!(seen.given_up_by_limit > 0, "{seen:?}");
}

#[test]
fn a_failed_operation_loses_and_doubles_nothing() {
    let seen = run_each("failures", 100..100 + 16 * times(), depth(29, 13), |program| {
        program.fails = true;
    });
    assert!(seen.failures > depth(45, 100), "{seen:?}");
}

#[test]
fn a_full_disk_loses_and_doubles_nothing() {
    let seen = run_each("full disks", 500..500 + 16 * times(), depth(29, 13), |program| {
        program.fills = true;
    });
    assert!(seen.full > depth(45, 100), "{seen:?}");
}

/// Whether any of some programs finds that the disk lies.
fn finds(mischief: Mischief) -> bool {
    (0..40).any(|seed| {
        let program = || {
            for at in (20..120).step_by(9) {
                let lie = |program: &mut Program| program.machine.set_mischief(mischief);
                run(seed, at, Crash::Power, lie, &mut Seen::default());
            }
        };
        panic::catch_unwind(program).is_err()
    })
}

#[test]
fn a_disk_that_lies_is_found_out() {
    for mischief in [
        Mischief::NoSync,
        Mischief::NoDurableWrites,
        Mischief::NoSyncOfNames,
        Mischief::NoSyncOfPage,
    ] {
        assert!(finds(mischief), "{mischief:?} went unnoticed");
    }
}

#[test]
fn what_a_failed_batch_left_in_a_segment_that_is_used_again_is_not_found() {
    let options =
        LogOptions::new().segment_bytes(64 << 10).batch_bytes(4096).prewrite(Prewrite::Never);
    let append = |log: &TestLog, number, length| {
        let bytes = record(number, length);
        let submitted = log.submit(&[IoSlice::new(&bytes)]).expect("submitted");
        log.wait(submitted).map(Position::get)
    };
    let mut tried = 0;
    // Three times, as it also depends on the thread that makes segments ahead.
    let each = (0..3 * 16).flat_map(|it| (0..10).map(move |dies| (it % 16, dies)));
    for (later, dies) in each {
        let machine = Machine::new(later);
        let log = Log::open(machine.disk(), options.clone()).expect("opened");
        let first = append(&log, 0, 30_000).expect("written");
        machine.fail_at(machine.operations() + later, Failure::Whole);
        // It does not fit into the first segment.
        match append(&log, 1, 50_000) {
            Err(error) if (error.segment(), error.offset()) == (Some(1), Some(4096)) => tried += 1,
            _ => continue,
        }
        machine.fail_no_more();
        // What failed was told to who appended it.
        log.close().expect("closed");

        let log = Log::open(machine.disk(), options.clone()).expect("opened");
        let second = append(&log, 2, 100).expect("written");
        // It dies on the way into the file that the failed batch is in.
        machine.crash_at(machine.operations() + dies);
        let third = append(&log, 3, 50_000).ok().filter(|_| !machine.is_dead());
        drop(log);
        machine.restart(Crash::Process);
        let log = Log::open(machine.disk(), options.clone()).expect("opened");
        let found = read_all(&mut log.reader().expect("opened")).expect("read");
        assert!(found.starts_with(&[(first, 0), (second, 2)]), "{found:?}");
        assert!(found[2..].iter().all(|&(_, number)| number == 3), "{found:?}");
        assert!(third.is_none() || found.len() == 3, "{found:?}");
    }
    assert!(tried > 0, "it never failed there");
}

#[test]
fn a_failed_batch_does_not_return_in_the_place_of_the_one_that_replaced_it() {
    let options =
        LogOptions::new().segment_bytes(64 << 10).sync(SyncPolicy::Never).prewrite(Prewrite::Never);
    for seed in 0..60 {
        let machine = Machine::new(seed);
        let log = Log::open(machine.disk(), options.clone()).expect("opened");
        let append = |number| {
            let bytes = record(number, 100);
            let submitted = log.submit(&[IoSlice::new(&bytes)]).expect("submitted");
            log.wait(submitted)
        };
        machine.fail_at(machine.operations(), Failure::Whole);
        assert!(append(0).is_err());
        for number in 1..4 {
            assert!(append(number).is_ok());
        }
        machine.restart(Crash::Power);
        drop(log);
        let log = Log::open(machine.disk(), options.clone()).expect("opened");
        let found = read_all(&mut log.reader().expect("opened")).expect("read");
        let numbers: Vec<u64> = found.iter().map(|&(_, number)| number).collect();
        assert!([1, 2, 3].starts_with(&numbers), "{numbers:?}");
    }
}

#[test]
fn of_syncs_at_once_none_says_that_all_is_well_after_one_has_failed() {
    for seed in 0..depth(60, 200) {
        let machine = Machine::new(seed);
        // Nothing is made ahead: the next operation is a sync.
        let options = LogOptions::new()
            .segment_bytes(16 << 20)
            .prewrite(Prewrite::Never)
            .sync(SyncPolicy::Never);
        let log = Log::open(machine.disk(), options).expect("opened");
        let bytes = record(0, 100);
        let submitted = log.submit(&[IoSlice::new(&bytes)]).expect("submitted");
        log.wait(submitted).expect("written");
        machine.fail_at(machine.operations(), Failure::Nothing);
        let together = Barrier::new(3);
        let synced: Vec<bool> = thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        together.wait();
                        log.sync().is_ok()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(synced, [false; 3], "the system says so once");
    }
}

#[test]
fn a_sync_or_the_close_tells_once_of_failures_that_nobody_was_told_of() {
    let machine = Machine::new(0);
    // Nothing is made ahead: the next operation is a write.
    let options = LogOptions::new().segment_bytes(16 << 20).prewrite(Prewrite::Never);
    let log = Log::open(machine.disk(), options).expect("opened");
    let submit = |number| {
        let bytes = record(number, 100);
        log.submit(&[IoSlice::new(&bytes)]).expect("submitted")
    };
    let position = log.wait(submit(0)).expect("written");
    machine.fail_at(machine.operations(), Failure::Nothing);
    assert!(log.wait(submit(1)).is_err());
    log.sync().expect("who appended knows");
    log.truncate_after(position).expect("nothing is behind it");

    // Of two in one batch, one does not wait, and the other does so twice.
    let (waits, relies) = (submit(2), submit(3));
    machine.fail_at(machine.operations(), Failure::Nothing);
    for _ in 0..2 {
        assert!(log.wait(waits).is_err());
    }
    log.truncate_after(position).expect("nothing is behind it");
    log.wait(submit(4)).expect("it is well again");
    assert!(log.sync().is_err(), "one of the records is not there, and nobody knows");
    log.sync().expect("it was told");
    assert!(log.wait(relies).is_err());

    // Nobody waits, and a later record is written.
    let _ = submit(5);
    machine.fail_at(machine.operations(), Failure::Nothing);
    log.truncate_after(Position::START).expect("all that is there is given up");
    log.wait(submit(6)).expect("it is well again");
    assert!(log.close().is_err(), "one of the records is not there, and nobody knows");
    let log = Log::open(machine.disk(), LogOptions::new()).expect("it was closed all the same");
    assert!(log.recovery().was_closed);
    let found = read_all(&mut log.reader().expect("opened")).expect("read");
    assert_eq!(found.iter().map(|&(_, number)| number).collect::<Vec<_>>(), [6]);
}

#[test]
fn what_the_thread_that_syncs_could_not_write_is_told_by_the_next_sync() {
    let machine = Machine::new(0);
    let options = LogOptions::new()
        .segment_bytes(16 << 20)
        .prewrite(Prewrite::Never)
        .sync(SyncPolicy::Interval(Duration::from_millis(1)));
    let log = Log::open(machine.disk(), options).expect("opened");
    let submit = |number| log.submit(&[IoSlice::new(&record(number, 100))]).expect("submitted");
    log.wait(submit(0)).expect("written");
    log.sync().expect("synced");
    machine.fail_at(machine.operations(), Failure::Nothing);
    let _ = submit(1);
    let began = Instant::now();
    while log.metrics().failures.commits == 0 {
        assert!(began.elapsed() < Duration::from_secs(300), "it hangs");
        thread::yield_now();
    }
    log.wait(submit(2)).expect("it is well again");
    assert!(log.sync().is_err(), "the thread has told nobody");
    log.close().expect("it was told");
}

#[test]
fn what_is_durable_by_itself_has_no_gap_before_it_in_the_segment_before() {
    for seed in 0..40 {
        let machine = Machine::new(seed);
        let options = LogOptions::new()
            .segment_bytes(64 << 10)
            .prewrite(Prewrite::Never)
            .sync(SyncPolicy::Never);
        let log = Log::open(machine.disk(), options.clone()).expect("opened");
        let append = |number, length, durable| {
            let bytes = record(number, length);
            let options = AppendOptions::new().durable(durable);
            let submitted = log.submit_with(&[IoSlice::new(&bytes)], &options).expect("submitted");
            log.wait(submitted).expect("written");
        };
        append(0, 40_000, false);
        log.sync().expect("synced");
        // It does not fit into the first segment.
        append(1, 40_000, true);
        machine.restart(Crash::Power);
        drop(log);
        let log = Log::open(machine.disk(), options).expect("opened");
        let found = read_all(&mut log.reader().expect("opened")).expect("read");
        let numbers: Vec<u64> = found.iter().map(|&(_, number)| number).collect();
        assert_eq!(numbers, [0, 1], "seed {seed}");
    }
}

#[test]
fn after_a_failed_sync_of_acknowledged_records_the_log_takes_no_more() {
    let hourly = SyncPolicy::Interval(Duration::from_secs(3600));
    for (sync, refuses) in
        [(SyncPolicy::EveryCommit, false), (hourly, true), (SyncPolicy::Never, true)]
    {
        let options = LogOptions::new().segment_bytes(64 << 10).sync(sync);
        let machine = Machine::new(0);
        let log = Log::open(machine.disk(), options).expect("opened");
        let append = |number| {
            let bytes = record(number, 100);
            log.wait(log.submit(&[IoSlice::new(&bytes)])?)
        };
        append(0).expect("it is well");
        log.settle();
        machine.fail_at(machine.operations(), Failure::Nothing);
        assert_eq!(
            log.sync().is_err(),
            refuses,
            "{sync:?}: with every commit there is nothing to sync"
        );
        machine.fail_no_more();
        let later = [append(1).map(|_| ()), log.sync()];
        for result in &later {
            let kind = result.as_ref().err().map(LogError::kind);
            assert_eq!(kind == Some(&LogErrorKind::SyncFailed), refuses, "{sync:?}: {kind:?}");
        }
    }
}

#[test]
fn segments_go_only_when_the_device_knows_where_the_log_begins_even_after_a_failure() {
    let options = LogOptions::new().segment_bytes(SEGMENT).prewrite(Prewrite::Never);
    let mut failed = 0;
    for (seed, later) in (0..8).flat_map(|seed| (0..8).map(move |later| (seed, later))) {
        let machine = Machine::new(seed);
        let log = Log::open(machine.disk(), options.clone()).expect("opened");
        let positions: Vec<Position> = (0..4)
            .map(|number| {
                let bytes = record(number, 50_000);
                log.wait(log.submit(&[IoSlice::new(&bytes)])?)
            })
            .collect::<Result<_, _>>()
            .expect("nothing fails");
        machine.fail_at(machine.operations() + later, Failure::Nothing);
        failed += u64::from(log.truncate_before(positions[3]).is_err());
        machine.fail_no_more();
        log.truncate_before(positions[3]).expect("nothing fails any more");
        machine.restart(Crash::Power);
        drop(log);
        let log = Log::open(machine.disk(), options.clone()).expect("no segment is missing");
        let found = read_all(&mut log.reader().expect("opened")).expect("read");
        assert_eq!(found.last(), Some(&(positions[3].get(), 3)));
    }
    assert!(failed > 0, "it never failed there");
}

#[test]
fn followers_hear_of_a_cut_if_and_only_if_it_is_made() {
    for crash in [Crash::Process, Crash::Power] {
        for operation in 0.. {
            let machine = Machine::new(operation);
            let options = LogOptions::new().segment_bytes(64 << 10);
            let log = Log::open(machine.disk(), options.clone()).expect("opened");
            let [kept, ..] = [0, 1, 2].map(|number| {
                let submitted = log.submit(&[IoSlice::new(&record(number, 100))]);
                submitted.and_then(|submitted| log.wait(submitted)).expect("appended")
            });
            let told = |machine: &Machine| {
                let control = Control::open(&machine.disk(), false).expect("opened");
                control.look().expect("looked").cuts
            };
            let before = told(&machine);
            log.settle();
            machine.crash_at(machine.operations() + operation);
            let cut = log.truncate_after(kept);
            let is_done = !machine.is_dead();
            assert_eq!(cut.is_ok(), is_done);
            drop(log);
            machine.restart(crash);
            let is_told = told(&machine) != before;
            let log = Log::open(machine.disk(), options).expect("opened");
            let found = read_all(&mut log.reader().expect("opened")).expect("read");
            assert_eq!(found.len(), if is_told { 1 } else { 3 }, "{operation}, {crash:?}");
            if is_done {
                break;
            }
        }
    }
}

#[test]
fn what_stays_when_the_rest_is_cut_off_is_whole_whenever_the_power_is_lost() {
    for seed in 0..20 {
        for operation in 0.. {
            let machine = Machine::new(seed);
            let options = LogOptions::new().segment_bytes(64 << 10).sync(SyncPolicy::Never);
            let log = Log::open(machine.disk(), options.clone()).expect("opened");
            // The file is on the device.
            let first = log.submit(&[IoSlice::new(&record(9, 100))]).expect("submitted");
            log.wait(first).and_then(|_| log.sync()).expect("synced");
            // One batch, of which a part stays.
            let submitted: Vec<_> = (0..6)
                .map(|number| {
                    log.submit(&[IoSlice::new(&record(number, 3000))]).expect("submitted")
                })
                .collect();
            let places: Vec<_> =
                submitted.into_iter().map(|it| log.wait(it).expect("appended")).collect();
            log.settle();
            machine.crash_at(machine.operations() + operation);
            let is_done = log.truncate_after(places[3]).is_ok();
            drop(log);
            machine.restart(Crash::Power);
            // What is cut off may not be covered yet for who only reads.
            let mut reader = Reader::open(machine.disk()).expect("its end is known");
            read_all(&mut reader).expect("nothing is damaged");
            let log = Log::open(machine.disk(), options).expect("opened");
            let found = read_all(&mut log.reader().expect("opened")).expect("nothing is damaged");
            if is_done {
                assert_eq!(found.len(), 5, "{seed}");
                break;
            }
        }
    }
}
