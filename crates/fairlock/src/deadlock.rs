//! Deadlocks between threads, found while they happen, and lock orders that could lead to one.
//!
//! With the feature `deadlock_detection`, each acquisition of a [`RwLock`](crate::RwLock), a
//! [`RwSem`](crate::RwSem), a [`Mutex`](crate::Mutex) or a
//! [`ReentrantMutex`](crate::ReentrantMutex) notes who made it and where; of a `ReentrantMutex`
//! that its thread holds already, none does, as it never waits.
//! * [`check_deadlock`] looks at the threads that wait now, and says which of them wait for each
//!   other in a cycle.
//! * [`lock_order_cycles`] looks at what was noted since the program began. If one thread asks for
//!   B while it holds A, and another asks for A while it holds B, they can deadlock, even if they
//!   never did.
//!
//! A thread that waits for a lock waits for all others that hold it. A reader that could share the
//! lock with its holders waits for the writers that queued before it. A wait with a deadline ends
//! by itself and is never part of a deadlock, nor of a lock order.
//!
//! Both functions only look: they take no lock of this crate, and stop nobody.
//!
//! # Limits
//! * Of a thread that holds more than 32 locks, those beyond are not known. Beyond 16,384 lock
//!   orders no more are noted, which [`knows_all_lock_orders`] says.
//! * Beyond some 16,000 locks that have been written, all locks count as written (see
//!   [`lock_order_cycles`]).
//! * With the feature `send_guard` nothing is known of an [`RwSem`](crate::RwSem), as its guards
//!   may be anywhere.
//! * [`RangeLock`](crate::RangeLock), locks behind lock_api 0.4 and the locks of other crates are
//!   not known. Nor are joins of threads, channels and condition variables, for which a thread may
//!   wait as well.
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
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

pub use crate::held::Access;
use crate::held::order::{self, Edge, Point};
use crate::held::records::{self, Seen, Thread};
use crate::held::stack::{self, Frames};

/// Where a thread was when it asked for a lock: the functions that called each other, from the
/// inside out. Displayed, it has a line for each function, and with debug information one more for
/// its place. Looking these up takes milliseconds. Empty on 32-bit Windows, where no thread can
/// look at its stack without a lock.
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

    /// The type of the lock without its data, such as `RawRwLock`, with the full paths of its
    /// parts. A `ReentrantMutex` is the `RawMutex` that it consists of. Displayed, an acquisition
    /// has the short name, such as `RwLock`.
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

/// The lock, its type as users write it, the access and the line.
impl Display for Acquisition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (name, lock) = (shown(self.type_name), self.lock);
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

    /// The thread as gettid(2), ps(1) and debuggers know it. (Asking for std's `ThreadId` may
    /// allocate, which a lock must not do on the thread's behalf.)
    pub fn thread_id(&self) -> i32 {
        self.thread_id
    }

    /// The thread's name, of which the kernel keeps 15 bytes. A thread without a name of its own
    /// has its parent's.
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

/// The name of a lock's type as users write it: without paths, and `RwLock` for `RawRwLock`.
fn shown(type_name: &str) -> String {
    let name = without_paths(type_name);
    name.strip_prefix("Raw").map(str::to_owned).unwrap_or(name)
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

/// All deadlocks that there are now. The threads of each wait in a cycle: each for the next, and
/// the last for the first. A thread is in one cycle at most; threads that wait for one of a cycle
/// are not listed.
///
/// A deadlock is listed by every call, as it lasts for ever. There are hardly any false alarms:
/// after a cycle was found, its waits and holds are looked at again, and have to be the same ones.
/// Where a reader waits behind a writer, that is repeated 20 ms later, because some readers pass
/// writers; a reader that got no CPU in that time may be listed although it has been let in.
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
        /// Far longer than a thread takes that runs to say that its wait has ended. Chosen, not
        /// measured.
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
        // The way to where we are: a thread, and whom of those that it waits for we have not
        // followed yet.
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

/// Locks that threads acquire in a cycle: each thread holds one when it asks for the next. If each
/// of them comes that far before any goes on, they wait for each other for ever.
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

    /// What each thread did. The lock that one of them asked for is the one that the next held; the
    /// last asked for the one that the first held.
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

    /// The first thread that did so, as gettid(2) knew it. It may have ended, and others may have
    /// done the same.
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

/// Locks that were acquired in cycles since the program began, by different threads, although these
/// may never have met. One cycle for each set of locks, the shortest first.
///
/// Left out are cycles that cannot become a deadlock:
/// * Some thread would not wait for the next one. A read waits for another thread's read only if a
///   writer queues between the two: cycles of reads are listed once all these locks have been asked
///   for exclusively as well, by whichever thread. A recursive read passes writers.
/// * Two of the threads cannot be there at once, as both hold the same lock, and cannot share it.
///
/// A cycle is listed though its threads never run at the same time, because one waits for the
/// other's end, or though nobody else is left that could queue as a writer.
///
/// Only acquisitions without a deadline count, as others give up.
///
/// # Limits
/// * Lock orders that were not noted are in no cycle: see [`knows_all_lock_orders`].
/// * Of the orders noted, all cycles of 2 locks are found, however many locks and cycles there are.
/// * Cycles of 3 to 8 locks are searched for by growing length. A search among very many cycles
///   ends early: for each length it gives up after 262,144 steps or 1,000 cycles, and goes on with
///   the next length. Locks and orders that are in no cycle take no steps.
/// * Cycles of more than 8 locks are not searched for.
///
/// Without cycles it takes time in proportion to the number of lock orders noted, some milliseconds
/// for thousands. Among very many cycles it takes about a second, and several in a debug build;
/// longer where two locks were acquired in both orders beside thousands of different sets of other
/// locks, all of which are compared.
///
/// # Example
/// ```
/// use fairlock::deadlock::{knows_all_lock_orders, lock_order_cycles};
///
/// // At the end of a test:
/// let cycles = lock_order_cycles();
/// assert!(cycles.is_empty(), "{}", cycles[0]);
/// assert!(knows_all_lock_orders());
/// ```
pub fn lock_order_cycles() -> Vec<OrderCycle> {
    let orders = Orders::in_cycles(order::edges());
    let mut found: Vec<_> = orders.cycles().into_iter().collect();
    found.sort_unstable_by(|(one, _), (other, _)| (one.len(), one).cmp(&(other.len(), other)));
    found.iter().map(|(_, path)| OrderCycle::of(path)).collect()
}

/// Whether [`lock_order_cycles`] looks at all lock orders that there were. False, from then on,
/// once one could not be noted: beyond 16,384 of them, those of locks long dropped included; of a
/// thread that held more than 9 locks, or one lock 32 times; or without memory.
///
/// # Example
/// ```
/// use fairlock::Mutex;
///
/// let locks = [const { Mutex::new(()) }; 11];
/// let guards: Vec<_> = locks[..10].iter().map(Mutex::lock).collect();
/// assert!(fairlock::deadlock::knows_all_lock_orders());
/// let one_more = locks[10].lock();
/// assert!(!fairlock::deadlock::knows_all_lock_orders(), "the thread held too many locks");
/// ```
pub fn knows_all_lock_orders() -> bool {
    order::are_all_noted()
}

/// Lock orders, of which each can be in a cycle.
struct Orders {
    /// The edges by the lock that was held and the one that was asked for.
    edges: BTreeMap<usize, BTreeMap<usize, Vec<&'static Edge>>>,
    /// The locks that were held when this one was asked for.
    before: BTreeMap<usize, BTreeSet<usize>>,
}

impl Orders {
    /// Those of the edges that are in cycles of edges.
    fn in_cycles(edges: Vec<&'static Edge>) -> Self {
        let component = Orders::of(&edges).components();
        let is_in_cycle =
            |it: &&Edge| component.get(&it.held.lock.id) == component.get(&it.asked.lock.id);
        let edges: Vec<_> = edges.into_iter().filter(is_in_cycle).collect();
        Orders::of(&edges)
    }

    fn of(all: &[&'static Edge]) -> Self {
        let mut orders = Orders { edges: BTreeMap::new(), before: BTreeMap::new() };
        for edge in all {
            let (held, asked) = (edge.held.lock.id, edge.asked.lock.id);
            orders.edges.entry(held).or_default().entry(asked).or_default().push(edge);
            orders.before.entry(asked).or_default().insert(held);
        }
        orders
    }

    fn behind(&self, lock: usize) -> impl Iterator<Item = usize> {
        self.edges.get(&lock).into_iter().flat_map(|it| it.keys().copied())
    }

    fn before(&self, lock: usize) -> impl Iterator<Item = usize> {
        self.before.get(&lock).into_iter().flatten().copied()
    }

    /// For each lock, one of those that it leads to and that lead back to it; the same one for all
    /// these: strongly connected components, by Kosaraju's algorithm.
    fn components(&self) -> HashMap<usize, usize> {
        // Each behind all that it leads to, except for those that lead back to it.
        let mut in_order = Vec::new();
        let mut seen = HashSet::new();
        for &start in self.edges.keys() {
            let mut left = vec![(start, false)];
            while let Some((lock, is_done)) = left.pop() {
                if is_done {
                    in_order.push(lock);
                } else if seen.insert(lock) {
                    left.push((lock, true));
                    left.extend(self.behind(lock).map(|it| (it, false)));
                }
            }
        }
        let mut component = HashMap::new();
        for start in in_order.into_iter().rev() {
            let mut left = vec![start];
            while let Some(lock) = left.pop() {
                component.entry(lock).or_insert_with(|| {
                    left.extend(self.before(lock));
                    start
                });
            }
        }
        component
    }

    /// A cycle for each set of locks.
    fn cycles(&self) -> HashMap<Vec<usize>, Vec<&'static Edge>> {
        /// Locks in a cycle, at most. Chosen, not measured: longer ones are hard to act on.
        const LONGEST: usize = 8;
        /// Steps to take for each length. Chosen, not measured.
        const MOST_STEPS: usize = 1 << 18;
        /// Cycles to find for each length: of some KiB each. Chosen, not measured: nobody reads
        /// more.
        const MOST_CYCLES: usize = 1_000;
        let mut found = HashMap::new();
        for length in 2..=LONGEST {
            let (steps, cycles) =
                if length == 2 { (usize::MAX, usize::MAX) } else { (MOST_STEPS, MOST_CYCLES) };
            let mut search = Search { orders: self, length, steps, cycles, found };
            self.edges.keys().for_each(|&start| search.begin(start));
            found = search.found;
        }
        found
    }
}

/// A search for cycles of some length.
struct Search<'orders> {
    orders: &'orders Orders,
    length: usize,
    /// Steps that may still be taken: edges to look at.
    steps: usize,
    /// Cycles that may still be found.
    cycles: usize,
    /// A cycle for each set of locks.
    found: HashMap<Vec<usize>, Vec<&'static Edge>>,
}

impl Search<'_> {
    /// False if the search has to end.
    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0 && self.cycles > 0
    }

    /// Finds the cycles of which this is the least lock.
    fn begin(&mut self, start: usize) {
        let distances = self.distances_to(start);
        self.go_on(start, start, &distances, &mut Vec::new());
    }

    /// From how many edges away each lock leads back to `start`, by way of greater ones. Without
    /// those from which a cycle would be too long.
    fn distances_to(&mut self, start: usize) -> HashMap<usize, usize> {
        let mut distances = HashMap::from([(start, 0)]);
        let mut last = vec![start];
        for distance in 1..self.length {
            let mut farther = Vec::new();
            for lock in last.into_iter().flat_map(|lock| self.orders.before(lock)) {
                if !self.step() {
                    return distances;
                }
                if lock > start && !distances.contains_key(&lock) {
                    distances.insert(lock, distance);
                    farther.push(lock);
                }
            }
            last = farther;
        }
        distances
    }

    /// Finds the cycles that go on with this path from `start` to `lock`.
    fn go_on(
        &mut self,
        start: usize,
        lock: usize,
        distances: &HashMap<usize, usize>,
        path: &mut Vec<&'static Edge>,
    ) {
        let left = self.length - path.len();
        let orders = self.orders;
        let Some(behind) = orders.edges.get(&lock) else { return };
        let range = if left == 1 { start..=start } else { start + 1..=usize::MAX };
        for (&next, edges) in behind.range(range) {
            let comes_back = distances.get(&next).is_some_and(|it| *it < left);
            let was_there = left > 1 && path.iter().any(|it| it.held.lock.id == next);
            for edge in edges {
                if !self.step() {
                    return;
                }
                if !comes_back || was_there {
                    break;
                }
                let follows = path.last().is_none_or(|last| last.may_wait_for(edge));
                if !follows || path.iter().any(|it| it.excludes(edge)) {
                    continue;
                }
                path.push(edge);
                match left {
                    1 => self.note(path),
                    _ => self.go_on(start, next, distances, path),
                }
                path.pop();
            }
        }
    }

    /// The path has come back to where it started.
    fn note(&mut self, path: &[&'static Edge]) {
        let [first, .., last] = path else { return };
        if last.may_wait_for(first) && order::by_different_threads(path) {
            let mut locks: Vec<_> = path.iter().map(|edge| edge.held.lock.id).collect();
            locks.sort_unstable();
            let known = self.found.entry(locks).or_insert_with(|| {
                self.cycles -= 1; // there was a step, so it is not 0
                path.to_vec()
            });
            if needs_writers(known) && !needs_writers(path) {
                *known = path.to_vec();
            }
        }
    }
}

#[cfg(test)]
mod tests;
