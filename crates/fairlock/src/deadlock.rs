//! Deadlocks between threads, found while they happen, and lock orders that could lead to one.
//!
//! With the feature `deadlock_detection`, each acquisition of a [`RwLock`](crate::RwLock), a
//! [`RwSem`](crate::RwSem), a [`Mutex`](crate::Mutex) or a [`ReentrantMutex`](crate::ReentrantMutex) notes who made it and
//! where; of a `ReentrantMutex` that its thread holds already, none does, as it never waits.
//! * [`check_deadlock`] looks at the threads that wait now, and says which of them wait for each other in a cycle.
//! * [`lock_order_cycles`] looks at what was noted since the program began. If one thread asks for B while it holds A, and
//!   another asks for A while it holds B, they can deadlock, even if they never did.
//!
//! A thread that waits for a lock waits for all others that hold it. A reader that could share the lock with its holders
//! waits for the writers that queued before it. A wait with a deadline ends by itself and is never part of a deadlock,
//! nor of a lock order.
//!
//! Both functions only look: they take no lock of this crate, and stop nobody.
//!
//! # Limits
//! * Of a thread that holds more than 32 locks, those beyond are not known. Beyond 16,384 lock orders no more are noted.
//! * Beyond some 16,000 locks that have been written, all locks count as written (see [`lock_order_cycles`]).
//! * With the feature `send_guard` nothing is known of an [`RwSem`](crate::RwSem), as its guards may be anywhere.
//! * [`RangeLock`](crate::RangeLock), locks behind lock_api 0.4 and the locks of other crates are not known. Nor are joins of
//!   threads, channels and condition variables, for which a thread may wait as well.
//!
//! # Example
//! A program that has a thread look for deadlocks:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! std::thread::spawn(|| {
//!     loop {
//!         std::thread::sleep(Duration::from_secs(10));
//!         for (number, threads) in fairlock::deadlock::check_deadlock().iter().enumerate() {
//!             eprintln!("deadlock {number}:");
//!             threads.iter().for_each(|thread| eprintln!("{thread}"));
//!         }
//!     }
//! });
//! ```

use core::fmt::{self, Display, Formatter};
use core::panic::Location;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

pub use crate::held::Access;
use crate::held::order::{self, Edge, Point};
use crate::held::records::{self, Seen, Thread};
use crate::held::stack::{self, Frames};

/// Where a thread was when it asked for a lock: the functions that called each other, from the inside out. Displayed, it has a
/// line for each function, and with debug information one more for its place. Looking these up takes milliseconds. Empty on
/// 32-bit Windows, where no thread can look at its stack without a lock.
#[derive(Clone)]
pub struct Backtrace {
    frames: Frames,
    location: &'static Location<'static>,
}

impl Display for Backtrace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let here = std::env::current_dir().unwrap_or_default();
        for (at, frame) in stack::named(&self.frames, self.location).iter().enumerate() {
            let newline = if at == 0 { "" } else { "\n" };
            write!(f, "{newline}{at:>6}: {}", frame.function)?;
            if let Some((file, line)) = &frame.place {
                let file = file.strip_prefix(&here).unwrap_or(file);
                write!(f, "\n             at {}:{line}", file.display())?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Backtrace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// A lock that a thread holds or asks for, and where it asked for it.
#[derive(Debug, Clone)]
pub struct Acquisition {
    lock: usize,
    type_name: &'static str,
    access: Access,
    location: &'static Location<'static>,
    backtrace: Backtrace,
}

impl Acquisition {
    fn of(point: &Point) -> Self {
        Acquisition {
            lock: point.lock.id,
            type_name: (point.lock.type_name)(),
            access: point.access,
            location: point.place,
            backtrace: Backtrace { frames: point.frames, location: point.place },
        }
    }

    fn of_seen(seen: &Seen, access: Access) -> Self {
        let (lock, place, frames) = (seen.lock, seen.place, seen.frames);
        Acquisition::of(&Point { lock, access, place, frames })
    }

    /// The lock, by a number that no other lock has.
    pub fn lock(&self) -> usize {
        self.lock
    }

    /// The type of the lock without its data, such as `RawRwLock`, with the full paths of its parts. A `ReentrantMutex` is the
    /// `RawMutex` that it consists of.
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// How the thread holds the lock or wants to hold it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The line that asked for the lock.
    pub fn location(&self) -> &'static Location<'static> {
        self.location
    }

    /// Where the thread was when it acquired the lock or began to wait for it.
    pub fn backtrace(&self) -> &Backtrace {
        &self.backtrace
    }
}

/// The lock, its type without paths, the access and the line.
impl Display for Acquisition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (name, lock) = (without_paths(self.type_name), self.lock);
        write!(f, "{name} {lock:#x} ({}) at {}", self.access, self.location)
    }
}

/// A thread that waits for ever.
#[derive(Debug, Clone)]
pub struct DeadlockedThread {
    thread_id: i32,
    name: Option<String>,
    waits_for: Acquisition,
    holds: Vec<Acquisition>,
}

impl DeadlockedThread {
    fn of(thread: &Thread, wait: &Seen) -> Self {
        DeadlockedThread {
            thread_id: thread.tid,
            name: name_of(thread.tid),
            waits_for: Acquisition::of_seen(wait, wait.wanted().access()),
            holds: thread.holds.iter().map(|it| Acquisition::of_seen(it, it.access())).collect(),
        }
    }

    /// The thread as gettid(2), ps(1) and debuggers know it. (Asking for std's `ThreadId` may allocate, which a lock must
    /// not do on the thread's behalf.)
    pub fn thread_id(&self) -> i32 {
        self.thread_id
    }

    /// The thread's name, of which the kernel keeps 15 bytes. A thread without a name of its own has its parent's.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Where the thread was when it began to wait.
    pub fn backtrace(&self) -> &Backtrace {
        self.waits_for.backtrace()
    }

    /// What it waits for.
    pub fn waits_for(&self) -> &Acquisition {
        &self.waits_for
    }

    /// What it holds, of which the thread before it in the cycle waits for something.
    pub fn holds(&self) -> &[Acquisition] {
        &self.holds
    }
}

/// What the thread waits for and what it holds, with backtraces.
impl Display for DeadlockedThread {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or("?");
        writeln!(f, "thread {name:?} ({}) waits for {}", self.thread_id, self.waits_for)?;
        writeln!(f, "{}", self.waits_for.backtrace)?;
        for hold in &self.holds {
            writeln!(f, "  and holds {hold}")?;
            writeln!(f, "{}", hold.backtrace)?;
        }
        Ok(())
    }
}

/// The name of a thread of this process, if it still exists.
fn name_of(tid: i32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// A type's name without the paths of its parts.
fn without_paths(name: &str) -> String {
    let mut short = String::new();
    let mut start = 0;
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    while start < name.len() {
        let part = name[start..].find(|letter| !is_part(letter)).unwrap_or(name.len() - start);
        let (part, rest) = name[start..].split_at(part);
        if rest.starts_with("::") && !part.is_empty() {
            start += part.len() + 2;
            continue;
        }
        let other = rest.find(is_part).unwrap_or(rest.len());
        short.push_str(part);
        short.push_str(&rest[..other]);
        start += part.len() + other;
    }
    short
}

/// All deadlocks that there are now. The threads of each wait in a cycle: each for the next, and the last for the first. A
/// thread is in one cycle at most; threads that wait for one of a cycle are not listed.
///
/// A deadlock is listed by every call, as it lasts for ever. There are hardly any false alarms: after a cycle was found, its
/// waits and holds are looked at again, and have to be the same ones. Where a reader waits behind a writer, that is repeated
/// 20 ms later, because some readers pass writers; a reader that got no CPU in that time may be listed although it has been
/// let in.
///
/// # Example
/// ```
/// let deadlocks = fairlock::deadlock::check_deadlock();
/// assert!(deadlocks.is_empty());
/// ```
pub fn check_deadlock() -> Vec<Vec<DeadlockedThread>> {
    let threads = records::threads();
    let mut found: Vec<_> =
        cycles(&threads).into_iter().filter(|cycle| cycle.lasts(&threads)).collect();
    if found.iter().any(Cycle::has_reader_behind_writer) {
        /// Far longer than a thread takes that runs to say that its wait has ended. Chosen, not measured.
        const A_WHILE: Duration = Duration::from_millis(20);
        std::thread::sleep(A_WHILE);
        found.retain(|cycle| cycle.lasts(&threads));
    }
    let of_cycle = |cycle: Cycle| -> Vec<_> {
        let waits = cycle.links.iter().filter_map(|link| Some((link, threads[link.thread].wait?)));
        waits.map(|(link, wait)| DeadlockedThread::of(&threads[link.thread], &wait)).collect()
    };
    found.into_iter().map(of_cycle).collect()
}

/// Threads of which each waits for the next.
struct Cycle {
    links: Vec<Link>,
}

/// A thread that waits for another one.
#[derive(Clone, Copy)]
struct Link {
    thread: usize,
    next: usize,
    /// What the other thread holds; none if it waits to write.
    held: Option<Seen>,
}

impl Cycle {
    fn lasts(&self, threads: &[Thread]) -> bool {
        self.links.iter().all(|link| {
            let holds = |held: &Seen| threads[link.next].holds_still(held);
            threads[link.thread].waits_still() && link.held.as_ref().is_none_or(holds)
        })
    }

    fn has_reader_behind_writer(&self) -> bool {
        self.links.iter().any(|link| link.held.is_none())
    }
}

/// All for which this thread waits.
fn blocking(threads: &[Thread], thread: usize) -> Vec<Link> {
    let Some(wait) = threads[thread].wait else { return Vec::new() };
    let others = || threads.iter().enumerate().filter(move |(at, _)| *at != thread);
    let holders = others().flat_map(|(next, other)| {
        let of_lock = other.holds.iter().filter(|it| it.lock.id == wait.lock.id);
        let blocks = of_lock.filter(|it| wait.wanted().waits_for(it.access()));
        blocks.map(move |held| Link { thread, next, held: Some(*held) })
    });
    let holders: Vec<_> = holders.collect();
    if !holders.is_empty() || !wait.wanted().stands_behind_writers() {
        return holders;
    }
    let is_ahead = |it: &Seen| {
        it.lock.id == wait.lock.id
            && it.wanted().access() == Access::Exclusive
            && it.turn() < wait.turn()
    };
    let ahead = others().filter(|(_, other)| other.wait.as_ref().is_some_and(is_ahead));
    ahead.map(|(next, _)| Link { thread, next, held: None }).collect()
}

/// All cycles among these threads, of which each is in one at most.
fn cycles(threads: &[Thread]) -> Vec<Cycle> {
    let mut found = Vec::new();
    let mut is_done = vec![false; threads.len()];
    for start in 0..threads.len() {
        // The way to where we are: a thread, and whom of those that it waits for we have not followed yet.
        let mut way = vec![(start, blocking(threads, start))];
        let mut taken: Vec<Link> = Vec::new();
        while let Some((_, left)) = way.last_mut() {
            let Some(link) = left.pop() else {
                way.pop().inspect(|(thread, _)| is_done[*thread] = true);
                taken.pop();
                continue;
            };
            if is_done[link.next] {
                continue;
            }
            taken.push(link);
            if let Some(from) = way.iter().position(|(thread, _)| *thread == link.next) {
                found.push(Cycle { links: taken.split_off(from) });
                way[from..].iter().for_each(|(thread, _)| is_done[*thread] = true);
                // Who led here may be in another cycle.
                way.truncate(from);
                taken.truncate(from.saturating_sub(1));
                continue;
            }
            way.push((link.next, blocking(threads, link.next)));
        }
    }
    found
}

/// Locks that threads acquire in a cycle: each thread holds one when it asks for the next. If each of them comes that far
/// before any goes on, they wait for each other for ever.
///
/// Displayed, it says which threads did what where, with backtraces, and what to do.
#[derive(Debug, Clone)]
pub struct OrderCycle {
    steps: Vec<OrderStep>,
    needs_writers: bool,
}

/// Whether some thread of the path would wait for the next one only if a writer queued in between.
fn needs_writers(path: &[&Edge]) -> bool {
    let next = path.iter().cycle().skip(1);
    path.iter().zip(next).any(|(edge, next)| !edge.waits_for(next))
}

impl OrderCycle {
    fn of(path: &[&Edge]) -> Self {
        let steps = path.iter().map(|edge| OrderStep::of(edge)).collect();
        OrderCycle { steps, needs_writers: needs_writers(path) }
    }

    /// What each thread did. The lock that one of them asked for is the one that the next held; the last asked for the one that
    /// the first held.
    pub fn steps(&self) -> &[OrderStep] {
        &self.steps
    }
}

/// A thread held a lock when it asked for another.
#[derive(Debug, Clone)]
pub struct OrderStep {
    thread_id: i32,
    thread_name: String,
    held: Acquisition,
    asked: Acquisition,
}

impl OrderStep {
    fn of(edge: &Edge) -> Self {
        let name: Vec<u8> = edge.thread_name.into_iter().take_while(|it| *it != 0).collect();
        OrderStep {
            thread_id: edge.tid,
            thread_name: String::from_utf8_lossy(&name).into_owned(),
            held: Acquisition::of(&edge.held),
            asked: Acquisition::of(&edge.asked),
        }
    }

    /// The first thread that did so, as gettid(2) knew it. It may have ended, and others may have done the same.
    pub fn thread_id(&self) -> i32 {
        self.thread_id
    }

    /// The name that the thread had, of which the kernel keeps 15 bytes.
    pub fn thread_name(&self) -> &str {
        &self.thread_name
    }

    /// The lock that it held, and where it had acquired it.
    pub fn held(&self) -> &Acquisition {
        &self.held
    }

    /// The lock that it asked for, and where.
    pub fn asked(&self) -> &Acquisition {
        &self.asked
    }
}

impl Display for OrderCycle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let count = self.steps.len();
        writeln!(f, "{count} locks are acquired in a cycle, so {count} threads can deadlock:")?;
        for step in &self.steps {
            let (name, id) = (&step.thread_name, step.thread_id);
            writeln!(f, "thread {name:?} ({id}) held {}", step.held)?;
            writeln!(f, "{}", step.held.backtrace)?;
            writeln!(f, "  and asked for {}", step.asked)?;
            writeln!(f, "{}", step.asked.backtrace)?;
        }
        if self.needs_writers {
            writeln!(
                f,
                "A read waits for another thread's read if a writer queues between the two."
            )?;
        }
        write!(
            f,
            "Acquire these locks in the same order everywhere, or drop one guard before asking for the next, or ask by \
             a try_ function and release what you hold if it fails."
        )
    }
}

/// Locks that were acquired in cycles since the program began, by different threads, although these may never have met. One
/// cycle for each set of locks.
///
/// Left out are cycles that cannot become a deadlock:
/// * Some thread would not wait for the next one. A read waits for another thread's read only if a writer queues between
///   the two: cycles of reads are listed once all these locks have been asked for exclusively as well, by whichever thread. A
///   recursive read passes writers.
/// * Two of the threads cannot be there at once, as both hold the same lock, and cannot share it.
///
/// A cycle is listed though its threads never run at the same time, because one waits for the other's end, or though nobody
/// else is left that could queue as a writer.
///
/// Only acquisitions without a deadline count, as others give up. It takes time in proportion to the number of lock orders
/// noted; a search among very many cycles ends early.
///
/// # Example
/// ```
/// for cycle in fairlock::deadlock::lock_order_cycles() {
///     eprintln!("{cycle}");
/// }
/// ```
pub fn lock_order_cycles() -> Vec<OrderCycle> {
    let edges = order::edges();
    let mut search = Search { from: HashMap::new(), found: HashMap::new(), steps: 0 };
    for edge in &edges {
        search.from.entry(edge.held.lock.id).or_default().push(*edge);
    }
    let mut starts: Vec<_> = search.from.keys().copied().collect();
    starts.sort_unstable();
    for start in starts {
        search.go_on(start, start, &mut Vec::new());
    }
    let mut found: Vec<_> = search.found.into_iter().collect();
    found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    found.iter().map(|(_, path)| OrderCycle::of(path)).collect()
}

/// A search for cycles of edges.
struct Search {
    /// The edges by the lock that was held.
    from: HashMap<usize, Vec<&'static Edge>>,
    /// A cycle for each set of locks.
    found: HashMap<Vec<usize>, Vec<&'static Edge>>,
    /// Edges that were followed.
    steps: usize,
}

impl Search {
    /// Locks in a cycle, at most. Chosen, not measured: longer ones are hard to act on.
    const LONGEST: usize = 8;
    /// Edges to follow, at most: less than a second. Chosen, not measured.
    const MOST_STEPS: usize = 1 << 20;

    /// Finds the cycles that go on with this path from `start`, the least of their locks, to `lock`.
    fn go_on(&mut self, start: usize, lock: usize, path: &mut Vec<&'static Edge>) {
        if path.len() == Self::LONGEST {
            return;
        }
        for edge in self.from.get(&lock).cloned().unwrap_or_default() {
            self.steps += 1;
            if self.steps > Self::MOST_STEPS {
                return;
            }
            let next = edge.asked.lock.id;
            let was_there = path.iter().any(|it| it.held.lock.id == next);
            let follows = path.last().is_none_or(|last| last.may_wait_for(edge));
            let is_possible = follows && !path.iter().any(|it| it.excludes(edge));
            if next < start || !is_possible || (was_there && next != start) {
                continue;
            }
            path.push(edge);
            match next == start {
                true => self.note(path),
                false => self.go_on(start, next, path),
            }
            path.pop();
        }
    }

    /// The path has come back to where it started.
    fn note(&mut self, path: &[&'static Edge]) {
        let [first, .., last] = path else { return };
        if last.may_wait_for(first) && order::by_different_threads(path) {
            let locks: HashSet<_> = path.iter().map(|edge| edge.held.lock.id).collect();
            let mut locks: Vec<_> = locks.into_iter().collect();
            locks.sort_unstable();
            let known = self.found.entry(locks).or_insert_with(|| path.to_vec());
            if needs_writers(known) && !needs_writers(path) {
                *known = path.to_vec();
            }
        }
    }
}

#[cfg(test)]
mod tests;
