//! What stands in the file at one moment, added up over threads, in plain values.
//!
//! A file may be damaged, or somebody else's: numbers of places and pages are checked before they
//! are followed, and sums stop at the largest number.
//!
//! A wait under way is in all figures with what it has taken up to now, as if it had ended then; but
//! nothing was acquired by it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use crate::layout::{
    self, BUCKETS, ENTRIES, FIRST_PAGE, MISUSES, OTHERS, PAGES, READ, STACKS, WRITE, bucket_end,
};
use crate::map::{Map, monotonic_ns};

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
    /// The lock policy by name.
    pub policy: String,
    /// The program's path.
    pub program: PathBuf,
    /// One hold in so many of a lock by a thread is measured, more often at first.
    pub holds_sampled: u32,
    /// Threads that found no place in the file.
    pub uncounted_threads: u32,
    /// Waits and holds that found none.
    pub uncounted_waits: u64,
    /// What code was loaded from.
    pub modules: Vec<Module>,
    /// By place; most are empty.
    pub stacks: Vec<Vec<Frame>>,
    /// Threads that were counted.
    pub threads: Vec<Thread>,
    /// Those that were used at least once, or initialised.
    pub locks: Vec<Lock>,
}

/// One thread, or several that did not live at the same time.
#[derive(Debug, Clone, Default)]
pub struct Thread {
    /// The last one's; 0 if it has ended.
    pub tid: u32,
    /// How many they were.
    pub lives: u32,
    /// Name of the last.
    pub name: String,
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
    pub name: String,
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
#[derive(Debug, Clone)]
pub struct Histogram {
    /// How many.
    pub count: u64,
    /// Together, ns.
    pub sum: u64,
    /// The longest, ns.
    pub max: u64,
    /// See [`layout::bucket`].
    pub buckets: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { count: 0, sum: 0, max: 0, buckets: [0; BUCKETS] }
    }
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
        let total: u64 = self.buckets.iter().sum();
        let rank = ((share * total as f64).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
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
        self.buckets[layout::bucket(ns)] += 1;
    }

    /// All of another, too.
    pub fn add(&mut self, other: &Histogram) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
    }

    fn add_mapped(&mut self, other: &layout::Histogram) {
        self.count = self.count.saturating_add(other.count.load(Relaxed));
        self.sum = self.sum.saturating_add(other.sum.load(Relaxed));
        self.max = self.max.max(other.max.load(Relaxed));
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += u64::from(theirs.load(Relaxed));
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
    /// What stands in the file now.
    pub fn of(map: &Map) -> Snapshot {
        let header = map.header();
        let mut locks: Vec<Lock> = Vec::new();
        // Acquire: invariant 2.
        let used = header.locks.load(Acquire);
        for number in 0..used.min(layout::LOCKS as u32) {
            locks.push(lock(map, number));
        }
        let pages = map.threads().iter().map(|page| page.load(Acquire)).filter(is_page);
        let pages: Vec<u32> = pages.collect();
        // Before anything that these threads did: what they hold does not change while they wait.
        let waiting: Vec<_> =
            pages.iter().map(|page| Seen::of(&map.thread(*page).waiting)).collect();
        let mut passed = vec![[0u64; 2]; locks.len()];
        let threads = pages.iter().enumerate();
        let threads =
            threads.map(|(index, page)| add_thread(map, index, *page, &mut locks, &mut passed));
        let threads: Vec<Thread> = threads.collect();
        let taken = monotonic_ns();
        let ended = Some(header.ended.load(Relaxed)).filter(|at| *at != 0);
        let are_passes_known = header.is_shared_by_fork.load(Relaxed) == 0;
        for (index, (page, seen)) in pages.iter().zip(&waiting).enumerate() {
            let thread = map.thread(*page);
            let Some(seen) = seen.as_ref().filter(|seen| seen.goes_on(&thread.waiting)) else {
                continue;
            };
            let Some(lock) = locks.get_mut(seen.lock) else { continue };
            let mut waiting = Waiting {
                pid: thread.pid.load(Relaxed),
                thread: index,
                ns: ended.unwrap_or(taken).saturating_sub(seen.since),
                ..seen.waiting.clone()
            };
            if are_passes_known && !lock.is_shared && lock.number != OTHERS {
                waiting.passed = passes(seen.passed, passed[seen.lock], lock);
            }
            add_wait(lock, waiting, &threads[index]);
        }
        locks.retain(|lock| lock.acquired() > 0 || lock.address != 0 || !lock.waiting.is_empty());
        for lock in &mut locks {
            lock.sites.sort_by_key(|site| std::cmp::Reverse(site.waits.ns));
            lock.waiting.sort_by_key(|waiting| std::cmp::Reverse(waiting.ns));
            still_held(lock);
        }
        Snapshot {
            pid: header.pid.load(Relaxed),
            parent: header.parent.load(Relaxed),
            began: header.began.load(Relaxed),
            ended,
            taken,
            policy: String::from_utf8_lossy(text(&header.policy)).into_owned(),
            program: path(&header.program),
            holds_sampled: header.holds_sampled.load(Relaxed),
            uncounted_threads: header.uncounted_threads.load(Relaxed),
            uncounted_waits: header.uncounted_waits.load(Relaxed),
            modules: modules(map),
            stacks: stacks(map),
            threads,
            locks,
        }
    }
}

/// Whether a number can be that of a page that was handed out.
fn is_page(page: &u32) -> bool {
    (FIRST_PAGE..PAGES).contains(page)
}

/// The index of the stack that this word names.
fn stack_index(word: u32) -> Option<usize> {
    (word as usize).checked_sub(1).filter(|index| *index < STACKS)
}

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
    fn of(waiting: &layout::Waiting) -> Option<Seen> {
        // Acquire pairs with the Release of the thread: what it wrote before.
        let turn = waiting.turn.load(Acquire);
        let [role, holder] =
            [&waiting.role, &waiting.holder].map(|role| role.load(Relaxed) as usize);
        // Acquire: the stack is complete.
        let stack = stack_index(waiting.stack.load(Acquire));
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
        let is_wait = turn % 2 == 1 && role <= WRITE && holder <= WRITE && seen.lock != 0;
        (is_wait && seen.goes_on(waiting)).then_some(seen)
    }

    /// The same wait goes on.
    fn goes_on(&self, waiting: &layout::Waiting) -> bool {
        // Pairs with the fence of the thread before it announces another wait.
        fence(Acquire);
        waiting.turn.load(Relaxed) == self.turn
    }
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
    match lock.sites.iter_mut().find(|known| (known.stack, known.role) == (site.stack, site.role)) {
        Some(known) => known.waits.add(site.waits),
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
    for role in [READ, WRITE] {
        for pid in lock.threads.iter().map(|used| used.pid).collect::<BTreeSet<u32>>() {
            let of_process = |used: &&Use| used.pid == pid;
            let released: u64 = lock
                .threads
                .iter()
                .filter(of_process)
                .map(|used| used.released_of_others[role])
                .sum();
            let is_of = |holding: &Holding| holding.role == role && holding.pid == pid;
            let mut left = released;
            for holding in lock.holding.iter_mut().rev().filter(|holding| is_of(holding)) {
                let gone = left.min(u64::from(holding.times));
                holding.times -= gone as u32;
                left -= gone;
            }
        }
    }
    lock.holding.retain(|holding| holding.times > 0);
}

fn modules(map: &Map) -> Vec<Module> {
    let used = map.header().modules.load(Acquire) as usize;
    let modules = map.modules().iter().take(used);
    modules.map(|it| Module { base: it.base.load(Relaxed), path: path(&it.path) }).collect()
}

fn stacks(map: &Map) -> Vec<Vec<Frame>> {
    map.stacks().iter().map(stack).collect()
}

fn stack(stack: &layout::Stack) -> Vec<Frame> {
    if stack.is_complete.load(Acquire) == 0 {
        return Vec::new();
    }
    let frames = stack.frames.iter().map(|frame| frame.load(Relaxed));
    let frame = |frame| {
        let (module, address) = layout::parts(frame);
        Frame { module: (module != layout::NO_MODULE).then_some(module as usize), address }
    };
    frames.take_while(|frame| *frame != 0).map(frame).collect()
}

fn lock(map: &Map, number: u32) -> Lock {
    let lock = &map.locks()[number as usize];
    let place = |place: &AtomicU32| stack_index(place.load(Relaxed));
    Lock {
        number,
        address: lock.address.load(Acquire),
        since: lock.since.load(Relaxed),
        destroyed: Some(lock.destroyed.load(Relaxed)).filter(|at| *at != 0),
        initialised_at: place(&lock.initialised_at),
        first_used_at: place(&lock.first_used_at),
        kind: lock.kind.load(Relaxed),
        is_shared: lock.is_shared.load(Relaxed) != 0,
        ..Lock::default()
    }
}

fn add_thread(
    map: &Map,
    index: usize,
    page: u32,
    locks: &mut [Lock],
    passed: &mut [[u64; 2]],
) -> Thread {
    let thread = map.thread(page);
    let name: Vec<u8> =
        thread.name.iter().flat_map(|part| part.load(Relaxed).to_ne_bytes()).collect();
    let life = Thread {
        tid: thread.tid.load(Relaxed),
        lives: thread.lives.load(Relaxed),
        name: String::from_utf8_lossy(text(&name)).into_owned(),
    };
    for (first, page) in thread.pages.iter().enumerate() {
        let page = page.load(Acquire);
        if !is_page(&page) {
            continue;
        }
        for (place, entry) in map.entries(page).iter().enumerate() {
            let balance = [READ, WRITE].map(|role| balance(entry, role));
            let acquired = entry.acquired.each_ref().map(|count| count.load(Relaxed));
            let refused = entry.refused.each_ref().map(|count| count.load(Relaxed));
            let details = entry.details.load(Acquire);
            if acquired == [0; 2] && refused == [0; 2] && balance == [0; 2] && details == 0 {
                continue;
            }
            // A lock that came after the table was copied belongs to the next snapshot.
            let number = first * ENTRIES + place;
            let Some(lock) = locks.get_mut(number) else { continue };
            let mut used = Use {
                pid: thread.pid.load(Relaxed),
                thread: index,
                tid: life.tid,
                lives: life.lives,
                name: life.name.clone(),
                acquired,
                ..Use::default()
            };
            for role in [READ, WRITE] {
                let sum = &mut lock.roles[role];
                sum.acquired = sum.acquired.saturating_add(acquired[role]);
                sum.refused = sum.refused.saturating_add(u64::from(refused[role]));
                used.released_of_others[role] = u64::from(balance[role].min(0).unsigned_abs());
            }
            let details = is_page(&details).then(|| map.details(details));
            if let Some(details) = details {
                add_details(details, lock, &mut used);
                for (sum, more) in passed[number].iter_mut().zip(&details.passed) {
                    *sum = sum.wrapping_add(more.load(Relaxed));
                }
            }
            // Of locks that are counted together nobody knows which one is held.
            for role in [READ, WRITE].into_iter().filter(|_| lock.number > OTHERS) {
                if let Ok(times @ 1..) = u32::try_from(balance[role]) {
                    let place =
                        details.and_then(|it| stack_index(it.acquired_at[role].load(Relaxed)));
                    let count = details.map(|it| it.acquired_at_count[role].load(Relaxed));
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
        }
    }
    life
}

/// How many more times the thread acquired the lock than it released it. Where it goes on doing both
/// nobody can say: 0.
fn balance(entry: &layout::Entry, role: usize) -> i32 {
    const TRIES: usize = 4;
    for _ in 0..TRIES {
        let released = entry.released[role].load(Acquire);
        let acquired = entry.acquired[role].load(Acquire);
        if entry.released[role].load(Relaxed) == released {
            return (acquired as u32).wrapping_sub(released).cast_signed();
        }
    }
    0
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

fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(text(bytes).to_vec()))
}

const _: () = assert!(OTHERS == 1, "as the documentation of `Lock::number` says");

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Release;

    use super::*;

    /// A file with one lock, number 2, and the page of a thread that knows it: the map, the thread,
    /// and what it did to the lock.
    struct Counted {
        map: Map,
        thread: u32,
        entries: u32,
        details: u32,
        _directory: tempfile::TempDir,
    }

    impl Counted {
        fn new() -> Counted {
            let directory = tempfile::tempdir().expect("a folder");
            let map = Map::create(directory.path(), "glibc").expect("a counts file");
            let [thread, entries, details] = [(); 3].map(|()| map.new_page().expect("a page"));
            map.header().locks.store(3, Relaxed);
            map.locks()[2].address.store(0x1000, Release);
            map.entries(entries)[2].details.store(details, Release);
            map.thread(thread).tid.store(17, Relaxed);
            map.thread(thread).pages[0].store(entries, Release);
            map.threads()[0].store(thread, Release);
            Counted { map, thread, entries, details, _directory: directory }
        }

        fn entry(&self) -> &layout::Entry {
            &self.map.entries(self.entries)[2]
        }

        fn waiting(&self) -> &layout::Waiting {
            &self.map.thread(self.thread).waiting
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

        fn lock(&self) -> Lock {
            Snapshot::of(&self.map).locks.remove(0)
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
        counted.map.details(counted.details).passed[READ].store(60, Relaxed);

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
        let misused = &counted.map.details(counted.details).misused;
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
        counted.map.details(counted.details).passed[READ].store(60, Relaxed);
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
        let details = counted.map.details(counted.details);
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
        counted.map.thread(counted.thread).left_holds.store(1, Relaxed);
        let earlier = Holding { is_exact: false, has_ended: true, ..holding };
        assert_eq!(held(&counted), [earlier]);

        // Another thread releases one of the two for it, then both.
        let [thread, entries] = [(); 2].map(|()| counted.map.new_page().expect("a page"));
        counted.map.thread(thread).pages[0].store(entries, Release);
        counted.map.threads()[1].store(thread, Release);
        let other = &counted.map.entries(entries)[2];
        other.released[READ].store(1, Relaxed);
        assert_eq!(held(&counted)[0].times, 1);
        other.released[READ].store(2, Relaxed);
        assert!(held(&counted).is_empty());
    }

    #[test]
    fn numbers_that_lead_out_of_the_file_are_not_followed() {
        for wrong in [1, FIRST_PAGE - 1, PAGES, u32::MAX] {
            let counted = Counted::new();
            counted.waits(0);
            counted.entry().details.store(wrong, Relaxed);
            counted.map.thread(counted.thread).pages[1].store(wrong, Relaxed);
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
    fn a_thread_and_the_end_of_the_process_are_found_with_what_was_counted() {
        let directory = tempfile::tempdir().expect("a folder");
        let map = Map::create(directory.path(), "glibc").expect("a counts file");
        let number = map.header().locks.load(Relaxed);
        map.header().locks.store(number + 1, Relaxed);
        map.locks()[number as usize].address.store(0x1000, Release);
        let [thread, entries] = [(); 2].map(|()| map.new_page().expect("a page"));
        let first = number as usize / ENTRIES;
        map.entries(entries)[number as usize % ENTRIES].acquired[WRITE].store(3, Relaxed);
        map.thread(thread).tid.store(17, Relaxed);
        map.thread(thread).lives.store(2, Relaxed);
        map.thread(thread).name[0].store(u64::from_ne_bytes(*b"worker\0\0"), Relaxed);
        map.thread(thread).pages[first].store(entries, Release);
        map.threads()[0].store(thread, Release);

        let running = Snapshot::of(&map);
        assert!(running.ended.is_none() && running.taken >= running.began);
        let [thread] = &running.threads[..] else { panic!("{:?}", running.threads) };
        assert_eq!((thread.tid, thread.lives, thread.name.as_str()), (17, 2, "worker"));
        let [used] = &running.locks[0].threads[..] else { panic!("{:?}", running.locks) };
        assert_eq!((used.thread, used.acquired), (0, [0, 3]));

        map.header().ended.store(running.taken, Relaxed);
        assert_eq!(Snapshot::of(&map).ended, Some(running.taken));
    }
}
