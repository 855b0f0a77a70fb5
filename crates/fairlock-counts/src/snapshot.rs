//! What stands in the file at one moment, added up over threads, in plain values.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::layout::{self, BUCKETS, ENTRIES, OTHERS, READ, WRITE, bucket_end};
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
    /// Of so many acquisitions of a lock by a thread, one has its hold measured; of the first ones
    /// more.
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
}

/// What readers, or writers, did to a lock.
#[derive(Debug, Clone, Default)]
pub struct Role {
    /// Acquisitions.
    pub acquired: u64,
    /// Attempts that were refused.
    pub refused: u64,
    /// Of the acquisitions that could not enter at once.
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
}

/// A count and a sum of times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Together, ns.
    pub ns: u64,
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
        self.count += 1;
        self.sum += ns;
        self.max = self.max.max(ns);
        self.buckets[layout::bucket(ns)] += 1;
    }

    /// All of another, too.
    pub fn add(&mut self, other: &Histogram) {
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
    }

    fn add_mapped(&mut self, other: &layout::Histogram) {
        self.count += other.count.load(Relaxed);
        self.sum += other.sum.load(Relaxed);
        self.max = self.max.max(other.max.load(Relaxed));
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += u64::from(theirs.load(Relaxed));
        }
    }
}

impl Lock {
    /// Acquisitions of both roles.
    pub fn acquired(&self) -> u64 {
        self.roles.iter().map(|role| role.acquired).sum()
    }

    /// Acquisitions that could not enter at once.
    pub fn waited(&self) -> u64 {
        self.roles.iter().map(|role| role.wait.count).sum()
    }

    /// Time waited, ns.
    pub fn waited_ns(&self) -> u64 {
        self.roles.iter().map(|role| role.wait.sum).sum()
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
        let pages = map.threads().iter().map(|page| page.load(Acquire)).filter(|page| *page != 0);
        let threads =
            pages.enumerate().map(|(index, page)| add_thread(map, index, page, &mut locks));
        let threads = threads.collect();
        locks.retain(|lock| lock.acquired() > 0 || lock.address != 0);
        for lock in &mut locks {
            lock.sites.sort_by_key(|site| std::cmp::Reverse(site.waits.ns));
        }
        Snapshot {
            pid: header.pid.load(Relaxed),
            parent: header.parent.load(Relaxed),
            began: header.began.load(Relaxed),
            ended: Some(header.ended.load(Relaxed)).filter(|at| *at != 0),
            taken: monotonic_ns(),
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
    let place =
        |place: &std::sync::atomic::AtomicU32| (place.load(Relaxed) as usize).checked_sub(1);
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

fn add_thread(map: &Map, index: usize, page: u32, locks: &mut [Lock]) -> Thread {
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
        if page == 0 {
            continue;
        }
        for (place, entry) in map.entries(page).iter().enumerate() {
            let acquired = entry.acquired.each_ref().map(|count| count.load(Relaxed));
            let refused = entry.refused.each_ref().map(|count| count.load(Relaxed));
            let details = entry.details.load(Acquire);
            if acquired == [0; 2] && refused == [0; 2] && details == 0 {
                continue;
            }
            // A lock that came after the table was copied belongs to the next snapshot.
            let Some(lock) = locks.get_mut(first * ENTRIES + place) else { continue };
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
                lock.roles[role].acquired += acquired[role];
                lock.roles[role].refused += u64::from(refused[role]);
            }
            if details != 0 {
                add_details(map.details(details), lock, &mut used);
            }
            lock.threads.push(used);
        }
    }
    life
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
            sum.longest_hold_at =
                (details.longest_hold_at[role].load(Relaxed) as usize).checked_sub(1);
        }
        sum.hold.add_mapped(&details.hold[role]);
        let bypass = &details.bypass[role];
        sum.bypass = sum.bypass.max((value(&bypass.others), value(&bypass.ns)));
        sum.bypass_same = sum.bypass_same.max(value(&bypass.same));
        sum.bypass_sum += value(&bypass.others_sum);
        let holders = &details.holders[role];
        let seen = [&holders.looked_at, &holders.preempted, &holders.slept].map(value);
        sum.holders.iter_mut().zip(seen).for_each(|(mine, theirs)| *mine += theirs);
        for holder in [READ, WRITE] {
            let (mine, theirs) =
                (&mut lock.waited_for[role][holder], &details.waited_for[role][holder]);
            mine.count += value(&theirs.count);
            mine.ns += value(&theirs.ns);
        }
    }
    for site in &details.sites {
        let Some(stack) = (site.stack.load(Acquire) as usize).checked_sub(1) else { break };
        let role = site.role.load(Relaxed) as usize;
        let waits = Sum { count: value(&site.waits.count), ns: value(&site.waits.ns) };
        match lock.sites.iter_mut().find(|known| known.stack == stack && known.role == role) {
            Some(known) => {
                known.waits.count += waits.count;
                known.waits.ns += waits.ns;
            }
            None => lock.sites.push(Site { stack, role, waits }),
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
