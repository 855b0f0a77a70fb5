//! The contents of the file at one moment, added up over threads, in plain values.
//!
//! A file may be damaged, or an attacker may write to it, even while it is read. So it is copied piece by
//! piece with pread(2): if the file becomes shorter that is an error, where a mapping would end the
//! process. Numbers of places and pages are checked before they are used, each page is read once and as
//! one type only, and sums stop at the largest number. So whatever the file contains, a snapshot takes a
//! bounded time, and no more memory than [`MOST_LOCKS`] and [`MOST_USES`] allow.
//!
//! All figures include a wait under way with the time that it has taken so far, as if it ended now. It
//! does not count as an acquisition.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::layout::{
    self, BUCKETS, ENTRIES, HELD, LOCKS_AT, MISUSES, MODULES, MODULES_AT, OTHERS, READ, STACKS,
    STACKS_AT, THREADS, THREADS_AT, WRITE, bucket_end,
};
use crate::map::monotonic_ns;
use crate::source::{Source, header, path, text, thread_name};

/// Locks in a snapshot, at most.
pub const MOST_LOCKS: usize = layout::LOCKS;
/// What threads did to locks, in a snapshot at most: pairs of a thread and a lock. What more of them did
/// is in the locks' sums.
pub const MOST_USES: usize = 1 << 18;
/// Of one lock, likewise.
const MOST_SITES: usize = 256;

/// One process at one moment, with those that it forked off and that are the same program still. A
/// running process goes on meanwhile: figures may differ by what happens during the copy.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The process.
    pub pid: u32,
    /// Its parent when it began, or forked.
    pub parent: u32,
    /// CLOCK_MONOTONIC when counting began, ns.
    pub began: u64,
    /// Likewise when it began to end; none if it runs, or ended without a word.
    pub ended: Option<u64>,
    /// Likewise when this was copied.
    pub taken: u64,
    /// The lock by name.
    pub policy: String,
    /// The program's path.
    pub program: PathBuf,
    /// One hold in so many of a lock by a thread is measured, more often at first.
    pub holds_sampled: u32,
    /// Threads that found no place in the file.
    pub uncounted_threads: u32,
    /// Waits and holds that found none.
    pub uncounted_waits: u64,
    /// Acquisitions that no lock has, as their threads did not count for a moment while they were recorded.
    pub uncounted_acquisitions: u64,
    /// What code was loaded from.
    pub modules: Vec<Module>,
    /// By place.
    pub stacks: BTreeMap<usize, Vec<Frame>>,
    /// Threads that were counted.
    pub threads: Vec<Thread>,
    /// Those that were used at least once, or initialised.
    pub locks: Vec<Lock>,
}

/// One thread, or several that did not live at the same time.
#[derive(Debug, Clone, Default)]
pub struct Thread {
    /// Its process: the file's, or one that was forked off.
    pub pid: u32,
    /// The last one's; 0 if it has ended.
    pub tid: u32,
    /// How many they were.
    pub lives: u32,
    /// Name of the last.
    pub name: Arc<str>,
}

/// Something that code was loaded from.
#[derive(Debug, Clone, Default)]
pub struct Module {
    /// An address minus this is the address in the file.
    pub base: u64,
    /// Its file.
    pub path: PathBuf,
}

/// A return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Index of the module, if known.
    pub module: Option<usize>,
    /// In the module's file, or in memory.
    pub address: u64,
}

/// One lock.
#[derive(Debug, Clone, Default)]
pub struct Lock {
    /// Counts from 2; 1 is all locks that found no place of their own.
    pub number: u32,
    /// Where it is, or was; 0 for number 1.
    pub address: u64,
    /// CLOCK_MONOTONIC when it was initialised or used first, ns.
    pub since: u64,
    /// When it was destroyed.
    pub destroyed: Option<u64>,
    /// Index of a stack; none: statically.
    pub initialised_at: Option<usize>,
    /// Likewise: where it was used first.
    pub first_used_at: Option<usize>,
    /// `PTHREAD_RWLOCK_PREFER_…`.
    pub kind: u32,
    /// Process-shared.
    pub is_shared: bool,
    /// What each thread did to it; only those that did something.
    pub threads: Vec<Use>,
    /// All of it together, by role.
    pub roles: [Role; 2],
    /// Waits by the role that waited, and the role that it found holding the lock.
    pub waited_for: [[Sum; 2]; 2],
    /// Where threads waited, most time first.
    pub sites: Vec<Site>,
    /// Waits under way, the longest first.
    pub waiting: Vec<Waiting>,
    /// Threads that hold it, as far as each has released it itself.
    pub holding: Vec<Holding>,
}

/// A thread that waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The process that the thread belongs to.
    pub pid: u32,
    /// Index of the thread.
    pub thread: usize,
    /// [`READ`] or [`WRITE`].
    pub role: usize,
    /// The role that held the lock when it came.
    pub holder: usize,
    /// For so long, ns.
    pub ns: u64,
    /// Index of the stack that waits, if known.
    pub stack: Option<usize>,
    /// That is this very wait's, not that of an earlier one of this thread for this lock.
    pub is_exact: bool,
    /// Acquisitions during the wait, by role, if known.
    pub passed: Option<[u64; 2]>,
}

/// A thread that holds a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
    /// The process that the thread belongs to.
    pub pid: u32,
    /// Index of the thread.
    pub thread: usize,
    /// It has ended.
    pub has_ended: bool,
    /// [`READ`] or [`WRITE`].
    pub role: usize,
    /// So many times: reads may be recursive.
    pub times: u32,
    /// Index of the stack that acquired it, if known.
    pub acquired_at: Option<usize>,
    /// That is this very acquisition's, not that of an earlier one by this thread.
    pub is_exact: bool,
}

/// What a thread did to a lock.
#[derive(Debug, Clone, Default)]
pub struct Use {
    /// The process that the thread belongs to.
    pub pid: u32,
    /// Index of the thread, or threads.
    pub thread: usize,
    /// The thread's, or that of the last in this place of the file; 0 if that has ended.
    pub tid: u32,
    /// Threads that have had this place.
    pub lives: u32,
    /// Name of the last.
    pub name: Arc<str>,
    /// By role.
    pub acquired: [u64; 2],
    /// Waited for it, by role.
    pub waited: [u64; 2],
    /// Together, ns.
    pub waited_ns: [u64; 2],
    /// Holds that it released without having acquired them itself, by role.
    pub released_of_others: [u64; 2],
}

/// What readers, or writers, did to a lock.
#[derive(Debug, Clone, Default)]
pub struct Role {
    /// Acquisitions.
    pub acquired: u64,
    /// Attempts that were refused.
    pub refused: u64,
    /// Those of them that waited, and ran out of time.
    pub timed_out: u64,
    /// Of requests that could not enter at once, whether they did then, ran out of time or still wait.
    pub wait: Histogram,
    /// Of those that were measured.
    pub hold: Histogram,
    /// Acquisitions by the other role during one wait, at most, and how long that wait was, ns.
    pub bypass: (u64, u64),
    /// Acquisitions by the same role during one wait, at most.
    pub bypass_same: u64,
    /// Acquisitions by the other role, over all waits.
    pub bypass_sum: u64,
    /// Holds that were looked at, those in which the kernel took the CPU away, and those in which
    /// the thread slept.
    pub holders: [u64; 3],
    /// Index of the stack at which the longest measured hold ended.
    pub longest_hold_at: Option<usize>,
    /// Calls that broke the lock's rules, by [`layout::Misuse`].
    pub misused: [Misused; MISUSES],
}

/// Calls that broke a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Misused {
    /// How many.
    pub calls: u64,
    /// Index of the stack that made one of them.
    pub at: Option<usize>,
}

impl Misused {
    /// All of another, too.
    pub fn add(&mut self, other: Misused) {
        self.calls = self.calls.saturating_add(other.calls);
        self.at = self.at.or(other.at);
    }
}

/// A count and a sum of times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Together, ns.
    pub ns: u64,
}

impl Sum {
    /// All of another, too.
    pub fn add(&mut self, other: Sum) {
        self.count = self.count.saturating_add(other.count);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

/// A place in the program that waited.
#[derive(Debug, Clone)]
pub struct Site {
    /// Index of its stack.
    pub stack: usize,
    /// [`READ`] or [`WRITE`].
    pub role: usize,
    /// Its waits.
    pub waits: Sum,
}

/// Times by length.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// How many.
    pub count: u64,
    /// Together, ns.
    pub sum: u64,
    /// The longest, ns.
    pub max: u64,
    /// See [`layout::bucket`]; empty if there are none.
    pub buckets: Vec<u64>,
}

impl Histogram {
    /// The time that this share (0 to 1) of all is not longer than, ns, at most 19 % too much; none
    /// if there are none.
    ///
    /// ```
    /// use fairlock_counts::snapshot::Histogram;
    /// let mut waits = Histogram::default();
    /// (1..=100).for_each(|us| waits.record(us * 1000));
    /// let p50 = waits.quantile(0.5).expect("there are some");
    /// assert!((50_000..60_000).contains(&p50));
    /// assert_eq!(waits.quantile(1.0), Some(100_000));
    /// ```
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let total = self.buckets.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let rank = ((share * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0_u64;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen = seen.saturating_add(*count);
            if *count > 0 && seen >= rank {
                return Some(bucket_end(bucket).saturating_sub(1).min(self.max));
            }
        }
        None
    }

    /// One more.
    pub fn record(&mut self, ns: u64) {
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(ns);
        self.max = self.max.max(ns);
        self.add_to(layout::bucket(ns), 1);
    }

    /// All of another, too.
    pub fn add(&mut self, other: &Histogram) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        let buckets = other.buckets.iter().enumerate();
        buckets.for_each(|(bucket, count)| self.add_to(bucket, *count));
    }

    fn add_mapped(&mut self, other: &layout::Histogram) {
        self.count = self.count.saturating_add(other.count.load(Relaxed));
        self.sum = self.sum.saturating_add(other.sum.load(Relaxed));
        self.max = self.max.max(other.max.load(Relaxed));
        let buckets = other.buckets.iter().enumerate();
        buckets.for_each(|(bucket, count)| self.add_to(bucket, count.load(Relaxed).into()));
    }

    fn add_to(&mut self, bucket: usize, more: u64) {
        if more > 0 {
            self.buckets.resize(BUCKETS, 0);
            self.buckets[bucket] = self.buckets[bucket].saturating_add(more);
        }
    }
}

impl Lock {
    /// Acquisitions of both roles.
    pub fn acquired(&self) -> u64 {
        self.sum(|role| role.acquired)
    }

    /// Requests that could not enter at once.
    pub fn waited(&self) -> u64 {
        self.sum(|role| role.wait.count)
    }

    /// Time waited, ns.
    pub fn waited_ns(&self) -> u64 {
        self.sum(|role| role.wait.sum)
    }

    fn sum(&self, of: impl Fn(&Role) -> u64) -> u64 {
        self.roles.iter().map(of).fold(0, u64::saturating_add)
    }
}

impl Snapshot {
    /// [`began`](Snapshot#structfield.began) of what can be read from this file; none if it is no counts
    /// file.
    pub fn began(file: &File) -> Option<u64> {
        header(&Source::of(file)).map(|header| header.began.load(Relaxed)).ok()
    }

    /// What stands in the file now.
    ///
    /// # Errors
    /// Those of pread(2), and one that says so if this is no such file, is not complete yet, or is another
    /// version's.
    pub fn read(file: &File) -> io::Result<Snapshot> {
        let mut source = Source::of(file);
        let header = header(&source)?;
        // Invariant 2: first the numbers, then what they refer to.
        let used = (header.locks.load(Relaxed) as usize).min(MOST_LOCKS);
        let locks: Vec<layout::Lock> = source.read(LOCKS_AT, used)?;
        let mut locks: Vec<Lock> =
            (0..).zip(&locks).map(|(number, found)| lock(number, found)).collect();
        let pages: Vec<AtomicU32> = source.read(THREADS_AT, THREADS)?;
        let pages = pages.iter().filter_map(|page| source.page(page.load(Relaxed)));
        let pages: Vec<usize> = pages.collect();
        // Before anything that these threads did: what they hold does not change while they wait.
        let waiting = pages.iter().map(|page| Seen::of(&source, page + WAITING_AT));
        let waiting: Vec<Option<Seen>> = waiting.collect::<io::Result<_>>()?;
        let mut sums = Sums { passed: vec![[0; 2]; locks.len()], uses: 0, uncounted: 0 };
        let mut threads = Vec::new();
        for page in &pages {
            let thread = add_thread(&mut source, threads.len(), *page, &mut locks, &mut sums)?;
            threads.push(thread);
        }
        // Once more: what happened meanwhile is known now.
        let header: layout::Header = source.one(0)?;
        let taken = monotonic_ns();
        let ended = Some(header.ended.load(Relaxed)).filter(|at| *at != 0);
        let are_passes_known = header.is_shared_by_fork.load(Relaxed) == 0;
        for (index, (page, seen)) in pages.iter().zip(waiting).enumerate() {
            let Some(seen) = seen else { continue };
            if !seen.goes_on(&source, page + WAITING_AT)? {
                continue;
            }
            let Some(lock) = locks.get_mut(seen.lock) else { continue };
            let mut waiting = Waiting {
                pid: threads[index].pid,
                thread: index,
                ns: ended.unwrap_or(taken).saturating_sub(seen.since),
                ..seen.waiting
            };
            if are_passes_known && !lock.is_shared && lock.number != OTHERS {
                waiting.passed = passes(seen.passed, sums.passed[seen.lock], lock);
            }
            add_wait(lock, waiting, &threads[index]);
        }
        locks.retain(|lock| lock.acquired() > 0 || lock.address != 0 || !lock.waiting.is_empty());
        for lock in &mut locks {
            lock.sites.sort_by_key(|site| std::cmp::Reverse(site.waits.ns));
            lock.waiting.sort_by_key(|waiting| std::cmp::Reverse(waiting.ns));
            still_held(lock);
        }
        let modules: Vec<layout::Module> =
            source.read(MODULES_AT, (header.modules.load(Relaxed) as usize).min(MODULES))?;
        let module =
            |it: &layout::Module| Module { base: it.base.load(Relaxed), path: path(&it.path) };
        Ok(Snapshot {
            pid: header.pid.load(Relaxed),
            parent: header.parent.load(Relaxed),
            began: header.began.load(Relaxed),
            ended,
            taken,
            policy: String::from_utf8_lossy(&text(&header.policy)).into_owned(),
            program: path(&header.program),
            holds_sampled: header.holds_sampled.load(Relaxed),
            uncounted_threads: header.uncounted_threads.load(Relaxed),
            uncounted_waits: header.uncounted_waits.load(Relaxed),
            uncounted_acquisitions: header
                .uncounted_acquisitions
                .load(Relaxed)
                .saturating_add(sums.uncounted),
            modules: modules.iter().map(module).collect(),
            stacks: stacks(&source.read(STACKS_AT, STACKS)?),
            threads,
            locks,
        })
    }
}

/// The index of the stack that this word names.
pub(crate) fn stack_index(word: u32) -> Option<usize> {
    (word as usize).checked_sub(1).filter(|index| *index < STACKS)
}

/// In the page of a [`layout::Thread`].
const WAITING_AT: usize = std::mem::offset_of!(layout::Thread, waiting);

/// Likewise.
const HELD_AT: usize = std::mem::offset_of!(layout::Thread, held);

/// A thread's [`layout::Waiting`] at one moment.
struct Seen {
    turn: u32,
    lock: usize,
    since: u64,
    passed: [u32; 2],
    /// What of it needs no more.
    waiting: Waiting,
}

impl Seen {
    /// None if the thread does not wait, or another wait begins meanwhile.
    fn of(source: &Source<'_>, at: usize) -> io::Result<Option<Seen>> {
        // First the turn alone: a copy of all of it says nothing about the order of its words.
        let turn = turn(source, at)?;
        if turn % 2 == 0 {
            return Ok(None);
        }
        let waiting: layout::Waiting = source.one(at)?;
        let [role, holder] =
            [&waiting.role, &waiting.holder].map(|role| role.load(Relaxed) as usize);
        let stack = stack_index(waiting.stack.load(Relaxed));
        let seen = Seen {
            turn,
            lock: waiting.lock.load(Relaxed) as usize,
            since: waiting.since.load(Relaxed),
            passed: waiting.passed.each_ref().map(|passed| passed.load(Relaxed)),
            waiting: Waiting {
                role,
                holder,
                stack: stack.or_else(|| stack_index(waiting.stack_before.load(Relaxed))),
                is_exact: stack.is_some(),
                ..Waiting::default()
            },
        };
        let is_wait = role <= WRITE && holder <= WRITE && seen.lock != 0;
        Ok((is_wait && seen.goes_on(source, at)?).then_some(seen))
    }

    /// The same wait goes on.
    fn goes_on(&self, source: &Source<'_>, at: usize) -> io::Result<bool> {
        Ok(turn(source, at)? == self.turn)
    }
}

/// What [`layout::Waiting::turn`] is now.
fn turn(source: &Source<'_>, at: usize) -> io::Result<u32> {
    let turn: AtomicU32 = source.one(at + std::mem::offset_of!(layout::Waiting, turn))?;
    Ok(turn.load(Relaxed))
}

/// Acquisitions since `before`, given how many all threads counted.
fn passes(before: [u32; 2], counted: [u64; 2], lock: &Lock) -> Option<[u64; 2]> {
    let passed =
        [READ, WRITE].map(|role| u64::from((counted[role] as u32).wrapping_sub(before[role])));
    // More than ever happened: some were not counted, and the difference says nothing.
    let is_sound = [READ, WRITE].iter().all(|role| passed[*role] <= lock.roles[*role].acquired);
    is_sound.then_some(passed)
}

/// A wait under way, in all figures.
fn add_wait(lock: &mut Lock, waiting: Waiting, thread: &Thread) {
    let (role, ns) = (waiting.role, waiting.ns);
    let once = Sum { count: 1, ns };
    let sum = &mut lock.roles[role];
    sum.wait.record(ns);
    if let Some(passed) = waiting.passed {
        sum.bypass = sum.bypass.max((passed[1 - role], ns));
        sum.bypass_same = sum.bypass_same.max(passed[role]);
        sum.bypass_sum = sum.bypass_sum.saturating_add(passed[1 - role]);
    }
    lock.waited_for[role][waiting.holder].add(once);
    if let Some(stack) = waiting.stack {
        add_site(lock, Site { stack, role, waits: once });
    }
    let at = match lock.threads.iter().position(|used| used.thread == waiting.thread) {
        Some(at) => at,
        None => {
            lock.threads.push(Use {
                pid: waiting.pid,
                thread: waiting.thread,
                tid: thread.tid,
                lives: thread.lives,
                name: thread.name.clone(),
                ..Use::default()
            });
            lock.threads.len() - 1
        }
    };
    let used = &mut lock.threads[at];
    used.waited[role] = used.waited[role].saturating_add(1);
    used.waited_ns[role] = used.waited_ns[role].saturating_add(ns);
    lock.waiting.push(waiting);
}

fn add_site(lock: &mut Lock, site: Site) {
    let is_full = lock.sites.len() >= MOST_SITES;
    match lock.sites.iter_mut().find(|known| (known.stack, known.role) == (site.stack, site.role)) {
        Some(known) => known.waits.add(site.waits),
        None if is_full => {}
        None => lock.sites.push(site),
    }
}

/// Forgets holds that somebody else has released: glibc allows it. Threads that have ended cannot
/// have anything to release, so theirs are the first.
fn still_held(lock: &mut Lock) {
    if lock.holding.is_empty() {
        return;
    }
    lock.holding.sort_by_key(|holding| holding.has_ended);
    let mut released: BTreeMap<(u32, usize), u64> = BTreeMap::new();
    for used in &lock.threads {
        for role in [READ, WRITE] {
            let sum = released.entry((used.pid, role)).or_default();
            *sum = sum.saturating_add(used.released_of_others[role]);
        }
    }
    for holding in lock.holding.iter_mut().rev() {
        let Some(left) = released.get_mut(&(holding.pid, holding.role)) else { continue };
        let gone = (*left).min(u64::from(holding.times));
        holding.times -= gone as u32;
        *left -= gone;
    }
    lock.holding.retain(|holding| holding.times > 0);
}

fn stacks(stacks: &[layout::Stack]) -> BTreeMap<usize, Vec<Frame>> {
    let known = stacks.iter().map(stack).enumerate();
    known.filter(|(_, frames)| !frames.is_empty()).collect()
}

fn stack(stack: &layout::Stack) -> Vec<Frame> {
    if stack.is_complete.load(Relaxed) == 0 {
        return Vec::new();
    }
    let frames = stack.frames.iter().map(|frame| frame.load(Relaxed));
    let frame = |frame| {
        let (module, address) = layout::parts(frame);
        Frame { module: (module != layout::NO_MODULE).then_some(module as usize), address }
    };
    frames.take_while(|frame| *frame != 0).map(frame).collect()
}

fn lock(number: u32, lock: &layout::Lock) -> Lock {
    let place = |place: &AtomicU32| stack_index(place.load(Relaxed));
    Lock {
        number,
        address: lock.address.load(Relaxed),
        since: lock.since.load(Relaxed),
        destroyed: Some(lock.destroyed.load(Relaxed)).filter(|at| *at != 0),
        initialised_at: place(&lock.initialised_at),
        first_used_at: place(&lock.first_used_at),
        kind: lock.kind.load(Relaxed),
        is_shared: lock.is_shared.load(Relaxed) != 0,
        ..Lock::default()
    }
}

/// What is added up over threads beside the locks.
struct Sums {
    /// [`layout::Details::passed`] of each lock.
    passed: Vec<[u64; 2]>,
    /// How many [`Use`]s there are.
    uses: usize,
    /// [`layout::Thread::uncounted`].
    uncounted: u64,
}

fn add_thread(
    source: &mut Source<'_>,
    index: usize,
    page: usize,
    locks: &mut [Lock],
    sums: &mut Sums,
) -> io::Result<Thread> {
    let thread: layout::Thread = source.one(page)?;
    let life = Thread {
        pid: thread.pid.load(Relaxed),
        tid: thread.tid.load(Relaxed),
        lives: thread.lives.load(Relaxed),
        name: thread_name(&thread.name).into(),
    };
    sums.uncounted += u64::from(thread.uncounted.load(Relaxed));
    let mut held: Vec<Held> = thread.held.iter().map(Held::new).collect();
    for (first, page) in thread.pages.iter().enumerate() {
        let Some(page) = source.page(page.load(Relaxed)) else { continue };
        for (place, (entry, balance)) in entries(source, page)?.iter().enumerate() {
            let acquired = entry.acquired.each_ref().map(|count| count.load(Relaxed));
            let refused = entry.refused.each_ref().map(|count| count.load(Relaxed));
            let details = entry.details.load(Relaxed);
            if acquired == [0; 2] && refused == [0; 2] && *balance == [0; 2] && details == 0 {
                continue;
            }
            // A lock that came after the table was copied belongs to the next snapshot.
            let number = first * ENTRIES + place;
            let Some(lock) = locks.get_mut(number) else { continue };
            let mut used = Use {
                pid: life.pid,
                thread: index,
                tid: life.tid,
                lives: life.lives,
                name: Arc::clone(&life.name),
                acquired,
                ..Use::default()
            };
            for role in [READ, WRITE] {
                let sum = &mut lock.roles[role];
                sum.acquired = sum.acquired.saturating_add(acquired[role]);
                sum.refused = sum.refused.saturating_add(u64::from(refused[role]));
                used.released_of_others[role] = u64::from(balance[role].min(0).unsigned_abs());
            }
            let details = source.page(details).map(|page| source.one(page)).transpose()?;
            if let Some(details) = &details {
                add_details(details, lock, &mut used);
                for (sum, more) in sums.passed[number].iter_mut().zip(&details.passed) {
                    *sum = sum.wrapping_add(more.load(Relaxed));
                }
            }
            if sums.uses == MOST_USES {
                continue;
            }
            // Of locks that are counted together nobody knows which one is held.
            for role in [READ, WRITE].into_iter().filter(|_| lock.number > OTHERS) {
                let place =
                    details.as_ref().and_then(|it| stack_index(it.acquired_at[role].load(Relaxed)));
                let these = held.iter_mut().filter(|it| it.lock == number && it.role == role);
                these.for_each(|it| it.acquired_at = place);
                if let Ok(times @ 1..) = u32::try_from(balance[role]) {
                    let count = details.as_ref().map(|it| it.acquired_at_count[role].load(Relaxed));
                    lock.holding.push(Holding {
                        pid: used.pid,
                        thread: index,
                        has_ended: thread.left_holds.load(Relaxed) != 0,
                        role,
                        times,
                        acquired_at: place,
                        is_exact: place.is_some() && count == Some(acquired[role]),
                    });
                }
            }
            lock.threads.push(used);
            sums.uses += 1;
        }
    }
    // Once more: what it goes on acquiring and releasing, or has counted meanwhile, is not held in this list.
    let still: [AtomicU32; HELD] = source.one(page + HELD_AT)?;
    for (held, still) in held.into_iter().zip(&still).filter(|(held, _)| held.word != 0) {
        let lock = locks.get_mut(held.lock).filter(|lock| lock.number > OTHERS);
        let Some(lock) = lock.filter(|_| held.word == still.load(Relaxed)) else { continue };
        let is_it = |it: &&mut Holding| it.thread == index && it.role == held.role;
        match lock.holding.iter_mut().find(is_it) {
            Some(known) => known.times = known.times.saturating_add(1),
            None => lock.holding.push(Holding {
                pid: life.pid,
                thread: index,
                has_ended: false,
                role: held.role,
                times: 1,
                acquired_at: held.acquired_at,
                is_exact: false,
            }),
        }
    }
    Ok(life)
}

/// A place of [`layout::Thread::held`].
struct Held {
    word: u32,
    lock: usize,
    role: usize,
    /// Where the thread acquired it earlier: index of a stack.
    acquired_at: Option<usize>,
}

impl Held {
    fn new(word: &AtomicU32) -> Held {
        let word = word.load(Relaxed);
        Held { word, lock: (word >> 1) as usize, role: (word & 1) as usize, acquired_at: None }
    }
}

/// The entries on the page there, each with how many more times the thread acquired the lock than it
/// released it, by role. Where it goes on doing both nobody can say: 0.
fn entries(source: &Source<'_>, page: usize) -> io::Result<Vec<(layout::Entry, [i32; 2])>> {
    const TRIES: usize = 4;
    let counts = |entry: &layout::Entry, role: usize| {
        // The same number of bits as of the others.
        let acquired = entry.acquired[role].load(Relaxed) as u32;
        (acquired, entry.released[role].load(Relaxed))
    };
    let is_busy = |one: &layout::Entry, other: &layout::Entry| {
        [READ, WRITE].iter().any(|role| counts(one, *role).1 != counts(other, *role).1)
    };
    let mut before: Vec<layout::Entry> = source.read(page, ENTRIES)?;
    let mut found: Vec<layout::Entry> = source.read(page, ENTRIES)?;
    for _ in 1..TRIES {
        if !before.iter().zip(&found).any(|(before, found)| is_busy(before, found)) {
            break;
        }
        before = found;
        found = source.read(page, ENTRIES)?;
    }
    let balance = |before: &layout::Entry, found: &layout::Entry| {
        [READ, WRITE].map(|role| match (counts(before, role), counts(found, role)) {
            // Nothing was released from before to after the acquisitions were copied.
            ((_, released), (acquired, still)) if released == still => {
                acquired.wrapping_sub(released) as i32
            }
            _ => 0,
        })
    };
    let both = before.iter().zip(found);
    let with_balance = both.map(|(before, found)| {
        let balance = balance(before, &found);
        (found, balance)
    });
    Ok(with_balance.collect())
}

fn add_details(details: &layout::Details, lock: &mut Lock, used: &mut Use) {
    let value = |word: &AtomicU64| word.load(Relaxed);
    for role in [READ, WRITE] {
        let sum = &mut lock.roles[role];
        used.waited[role] = value(&details.wait[role].count);
        used.waited_ns[role] = value(&details.wait[role].sum);
        sum.wait.add_mapped(&details.wait[role]);
        let longest = value(&details.hold[role].max);
        if longest > sum.hold.max {
            sum.longest_hold_at = stack_index(details.longest_hold_at[role].load(Relaxed));
        }
        sum.hold.add_mapped(&details.hold[role]);
        sum.timed_out = sum.timed_out.saturating_add(value(&details.timed_out[role]));
        let bypass = &details.bypass[role];
        sum.bypass = sum.bypass.max((value(&bypass.others), value(&bypass.ns)));
        sum.bypass_same = sum.bypass_same.max(value(&bypass.same));
        sum.bypass_sum = sum.bypass_sum.saturating_add(value(&bypass.others_sum));
        let holders = &details.holders[role];
        let seen = [&holders.looked_at, &holders.preempted, &holders.slept].map(value);
        for (mine, theirs) in sum.holders.iter_mut().zip(seen) {
            *mine = mine.saturating_add(theirs);
        }
        for (mine, theirs) in sum.misused.iter_mut().zip(&details.misused[role]) {
            let at = stack_index(theirs.first_at.load(Acquire));
            mine.add(Misused { calls: value(&theirs.calls), at });
        }
        for holder in [READ, WRITE] {
            let theirs = &details.waited_for[role][holder];
            let theirs = Sum { count: value(&theirs.count), ns: value(&theirs.ns) };
            lock.waited_for[role][holder].add(theirs);
        }
    }
    for site in &details.sites {
        let Some(stack) = stack_index(site.stack.load(Acquire)) else { break };
        let role = site.role.load(Relaxed) as usize;
        if role <= WRITE {
            let waits = Sum { count: value(&site.waits.count), ns: value(&site.waits.ns) };
            add_site(lock, Site { stack, role, waits });
        }
    }
}

const _: () = assert!(OTHERS == 1, "as the documentation of `Lock::number` says");

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Release;

    use super::*;
    use crate::layout::{FIRST_PAGE, PAGE, PAGES};
    use crate::map::Map;
    use crate::regular;

    /// A file with one lock, number 2, and the page of a thread that knows it: the map, the thread,
    /// and what it did to the lock.
    struct Counted {
        map: Map,
        thread: u32,
        entries: u32,
        details: u32,
        _directory: tempfile::TempDir,
    }

    fn snapshot(map: &Map) -> Snapshot {
        let file = regular::open(&map.path()).expect("it is there");
        Snapshot::read(&file).expect("a counts file")
    }

    impl Counted {
        fn new() -> Counted {
            let directory = tempfile::tempdir().expect("a folder");
            let map = Map::create(directory.path(), "glibc").expect("a counts file");
            let [thread, entries, details] = [(); 3].map(|()| map.new_page().expect("a page"));
            map.header().locks.store(3, Relaxed);
            map.locks()[2].address.store(0x1000, Release);
            map.entries(entries).expect("a page")[2].details.store(details, Release);
            map.thread(thread).expect("a page").tid.store(17, Relaxed);
            map.thread(thread).expect("a page").pages[0].store(entries, Release);
            map.threads()[0].store(thread, Release);
            Counted { map, thread, entries, details, _directory: directory }
        }

        fn entry(&self) -> &layout::Entry {
            &self.map.entries(self.entries).expect("a page")[2]
        }

        fn waiting(&self) -> &layout::Waiting {
            &self.map.thread(self.thread).expect("a page").waiting
        }

        /// Waits to write since then, when readers had the lock 40 times past other waits.
        fn waits(&self, since: u64) {
            let waiting = self.waiting();
            waiting.lock.store(2, Relaxed);
            waiting.role.store(WRITE as u32, Relaxed);
            waiting.holder.store(READ as u32, Relaxed);
            waiting.since.store(since, Relaxed);
            waiting.stack.store(8, Relaxed);
            waiting.passed[READ].store(40, Relaxed);
            waiting.turn.store(1, Release);
        }

        fn snapshot(&self) -> Snapshot {
            snapshot(&self.map)
        }

        fn lock(&self) -> Lock {
            self.snapshot().locks.remove(0)
        }
    }

    #[test]
    fn a_wait_under_way_is_counted_with_its_place_and_what_passed_it() {
        let counted = Counted::new();
        let began = counted.map.header().began.load(Relaxed);
        counted.map.header().ended.store(began + 7000, Relaxed);
        counted.waits(began + 2000);
        counted.entry().acquired[READ].store(100, Relaxed);
        counted.entry().released[READ].store(100, Relaxed);
        counted.map.details(counted.details).expect("a page").passed[READ].store(60, Relaxed);

        let lock = counted.lock();
        let [waiting] = &lock.waiting[..] else { panic!("{:?}", lock.waiting) };
        assert_eq!((waiting.role, waiting.holder, waiting.ns), (WRITE, READ, 5000));
        assert_eq!((waiting.stack, waiting.is_exact), (Some(7), true));
        assert_eq!(waiting.passed, Some([20, 0]));
        assert_eq!((lock.waited(), lock.waited_ns(), lock.acquired()), (1, 5000, 100));
        assert_eq!(lock.roles[WRITE].bypass, (20, 5000));
        assert_eq!(lock.waited_for[WRITE][READ], Sum { count: 1, ns: 5000 });
        assert_eq!((lock.sites[0].stack, lock.sites[0].role), (7, WRITE));
        assert_eq!((lock.threads[0].waited, lock.threads[0].waited_ns), ([0, 1], [0, 5000]));
        assert!(lock.holding.is_empty());

        // Nobody looked, but an earlier wait's place is known.
        counted.waiting().stack.store(0, Relaxed);
        counted.waiting().stack_before.store(5, Relaxed);
        let waiting = counted.lock().waiting.remove(0);
        assert_eq!((waiting.stack, waiting.is_exact), (Some(4), false));

        // The wait ends.
        counted.waiting().turn.store(2, Release);
        let lock = counted.lock();
        assert_eq!((lock.waited(), lock.waiting.len()), (0, 0));
    }

    #[test]
    fn calls_that_broke_a_rule_are_summed_by_role_and_kind_with_a_place() {
        let counted = Counted::new();
        let misused = &counted.map.details(counted.details).expect("a page").misused;
        let twice = &misused[WRITE][layout::Misuse::Deadlock as usize];
        twice.calls.store(20_000, Relaxed);
        twice.first_at.store(8, Release);
        misused[READ][layout::Misuse::NotHeld as usize].calls.store(3, Relaxed);
        let lock = counted.lock();
        let of = |role: usize, kind| lock.roles[role].misused[kind as usize];
        let deadlock = Misused { calls: 20_000, at: Some(7) };
        assert_eq!(of(WRITE, layout::Misuse::Deadlock), deadlock);
        assert_eq!(of(READ, layout::Misuse::NotHeld), Misused { calls: 3, at: None });
        assert_eq!(of(READ, layout::Misuse::Deadlock), Misused::default());
    }

    #[test]
    fn what_passed_a_wait_is_not_told_where_it_cannot_be_known() {
        let counted = Counted::new();
        counted.waits(0);
        // More passed, by this, than there were acquisitions: not all were counted.
        assert_eq!(counted.lock().waiting[0].passed, None);
        counted.entry().acquired[READ].store(100, Relaxed);
        counted.map.details(counted.details).expect("a page").passed[READ].store(60, Relaxed);
        assert_eq!(counted.lock().waiting[0].passed, Some([20, 0]));
        // A child of a fork has copies of the locks.
        counted.map.header().is_shared_by_fork.store(1, Relaxed);
        assert_eq!(counted.lock().waiting[0].passed, None);
    }

    #[test]
    fn what_was_acquired_and_not_released_is_held() {
        let counted = Counted::new();
        let entry = counted.entry();
        entry.acquired[READ].store(9, Relaxed);
        entry.released[READ].store(7, Relaxed);
        let details = counted.map.details(counted.details).expect("a page");
        details.acquired_at[READ].store(4, Relaxed);
        details.acquired_at_count[READ].store(9, Relaxed);
        let held = |counted: &Counted| counted.lock().holding;
        let holding = Holding {
            role: READ,
            times: 2,
            acquired_at: Some(3),
            is_exact: true,
            ..Holding::default()
        };
        assert_eq!(held(&counted), std::slice::from_ref(&holding));
        details.acquired_at_count[READ].store(8, Relaxed);
        counted.map.thread(counted.thread).expect("a page").left_holds.store(1, Relaxed);
        let earlier = Holding { is_exact: false, has_ended: true, ..holding };
        assert_eq!(held(&counted), [earlier]);

        // Another thread releases one of the two for it, then both.
        let [thread, entries] = [(); 2].map(|()| counted.map.new_page().expect("a page"));
        counted.map.thread(thread).expect("a page").pages[0].store(entries, Release);
        counted.map.threads()[1].store(thread, Release);
        let other = &counted.map.entries(entries).expect("a page")[2];
        other.released[READ].store(1, Relaxed);
        assert_eq!(held(&counted)[0].times, 1);
        other.released[READ].store(2, Relaxed);
        assert!(held(&counted).is_empty());
    }

    #[test]
    fn what_was_acquired_in_a_stretch_that_is_not_counted_is_held() {
        let counted = Counted::new();
        let thread = counted.map.thread(counted.thread).expect("a page");
        thread.held[0].store(2 << 1 | WRITE as u32, Relaxed);
        // Behind a gap, and of locks that are not there.
        thread.held[3].store(2 << 1 | READ as u32, Relaxed);
        thread.held[4].store(u32::MAX, Relaxed);
        thread.held[5].store((OTHERS) << 1, Relaxed);
        let write = Holding { role: WRITE, times: 1, ..Holding::default() };
        let read = Holding { role: READ, ..write.clone() };
        assert_eq!(counted.lock().holding, [write.clone(), read.clone()]);

        // It counted others before, and one of them is held, too.
        let entry = counted.entry();
        entry.acquired[READ].store(9, Relaxed);
        entry.released[READ].store(8, Relaxed);
        let details = counted.map.details(counted.details).expect("a page");
        details.acquired_at[READ].store(4, Relaxed);
        details.acquired_at[WRITE].store(6, Relaxed);
        details.acquired_at_count[READ].store(8, Relaxed);
        let read = Holding { times: 2, acquired_at: Some(3), ..read };
        assert_eq!(counted.lock().holding, [read, Holding { acquired_at: Some(5), ..write }]);
    }

    #[test]
    fn numbers_that_lead_out_of_the_file_are_not_followed() {
        for wrong in [1, FIRST_PAGE - 1, PAGES, u32::MAX] {
            let counted = Counted::new();
            counted.waits(0);
            counted.entry().details.store(wrong, Relaxed);
            counted.map.thread(counted.thread).expect("a page").pages[1].store(wrong, Relaxed);
            counted.map.threads()[1].store(wrong, Relaxed);
            counted.waiting().stack.store(wrong.max(STACKS as u32 + 1), Relaxed);
            assert_eq!(counted.lock().waiting[0].stack, None);
            counted.waiting().role.store(wrong.max(2), Relaxed);
            assert!(counted.lock().waiting.is_empty());
            counted.waiting().role.store(0, Relaxed);
            counted.waiting().lock.store(wrong.max(3), Relaxed);
            assert!(counted.lock().waiting.is_empty());
        }
    }

    #[test]
    fn a_page_that_is_named_again_is_not_read_again() {
        let counted = Counted::new();
        counted.entry().acquired[READ].store(9, Relaxed);
        counted.map.threads().iter().for_each(|page| page.store(counted.thread, Relaxed));
        let thread = counted.map.thread(counted.thread).expect("a page");
        thread.pages.iter().for_each(|page| page.store(counted.entries, Relaxed));
        counted.map.header().locks.store(u32::MAX, Relaxed);
        let snapshot = counted.snapshot();
        assert_eq!((snapshot.threads.len(), snapshot.locks[0].threads.len()), (1, 1));
        assert_eq!(snapshot.locks[0].acquired(), 9);
        // A page is one thing.
        counted.entry().details.store(counted.thread, Relaxed);
        thread.pages[1].store(counted.details, Relaxed);
        assert_eq!(counted.lock().acquired(), 9);
    }

    #[test]
    fn a_file_that_is_too_short_is_an_error() {
        let counted = Counted::new();
        let file = File::options().write(true).open(counted.map.path()).expect("it is there");
        let reader = regular::open(&counted.map.path()).expect("it is there");
        assert!(Snapshot::read(&reader).is_ok());
        file.set_len(PAGE as u64).expect("it can be cut");
        assert!(Snapshot::read(&reader).is_err());
        // As if it were cut after it was found to be long enough.
        let source = Source::of(&reader);
        assert!(source.read::<layout::Lock>(LOCKS_AT, 2).is_err());
        assert!(source.one::<layout::Header>(0).is_ok());
    }

    #[test]
    fn a_thread_and_the_end_of_the_process_are_found_with_what_was_counted() {
        let directory = tempfile::tempdir().expect("a folder");
        let map = Map::create(directory.path(), "glibc").expect("a counts file");
        let number = map.header().locks.load(Relaxed);
        map.header().locks.store(number + 1, Relaxed);
        map.locks()[number as usize].address.store(0x1000, Release);
        let [thread, entries] = [(); 2].map(|()| map.new_page().expect("a page"));
        let first = number as usize / ENTRIES;
        map.entries(entries).expect("a page")[number as usize % ENTRIES].acquired[WRITE]
            .store(3, Relaxed);
        map.thread(thread).expect("a page").tid.store(17, Relaxed);
        map.thread(thread).expect("a page").lives.store(2, Relaxed);
        map.thread(thread).expect("a page").name[0]
            .store(u64::from_ne_bytes(*b"worker\0\0"), Relaxed);
        map.thread(thread).expect("a page").pages[first].store(entries, Release);
        map.threads()[0].store(thread, Release);

        let running = snapshot(&map);
        assert!(running.ended.is_none() && running.taken >= running.began);
        let [thread] = &running.threads[..] else { panic!("{:?}", running.threads) };
        assert_eq!((thread.tid, thread.lives, &*thread.name), (17, 2, "worker"));
        let [used] = &running.locks[0].threads[..] else { panic!("{:?}", running.locks) };
        assert_eq!((used.thread, used.acquired), (0, [0, 3]));

        map.header().ended.store(running.taken, Relaxed);
        assert_eq!(snapshot(&map).ended, Some(running.taken));
    }
}
