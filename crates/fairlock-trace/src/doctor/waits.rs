//! Waits, from what was recorded: who waited for which lock, from when to when, and how the wait ended.
//!
//! Invariants
//! 1. A wait lies inside one window of its part, unless the recorder saw in the next window that it was still the same one;
//!    only the time inside windows counts as waited ([`Wait::seen_ns`]).
//! 2. A thread waits for at most one futex at a time, for at most one lock of the kernel that lets it sleep, and for each
//!    spin lock at most once: an interrupt may need one while the thread waits for another.
//! 3. A wait's end is the first of: the record of its end, the end of its window, the end of the recording.
//!
//! Not for: what the waits mean; see [`diagnoses`](super::diagnoses).

use std::collections::{HashMap, HashSet};

use super::recorded::{Event, Part, Recording, StackId, What, flags};
use super::which_lock::{self, Role, Which};

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The waiter had the lock then.
    Acquired,
    /// Without the lock: out of time, or interrupted.
    GaveUp,
    /// It went on, but nobody looked.
    NotSeen,
}

/// Where a lock is: in the kernel, or in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The process; 0: the kernel.
    pub pid: u32,
    /// The address; 0: not known.
    pub address: u64,
}

/// One wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Of this thread.
    pub thread: u32,
    /// For this lock.
    pub place: Place,
    /// Which lock that is: a place in [`Waits::locks`].
    pub which: u32,
    /// Its calls.
    pub stack: StackId,
    /// From then, ns,
    pub from_ns: u64,
    /// to then.
    pub to_ns: u64,
    /// The part of it that was recorded, ns.
    pub seen_ns: u64,
    /// How it ended.
    pub end: End,
    /// It had begun before anybody looked.
    pub began_before: bool,
}

impl Wait {
    /// How long it was, or was seen to be.
    pub fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// All waits of a recording.
#[derive(Debug, Default)]
pub struct Waits {
    /// In the order of their ends.
    pub waits: Vec<Wait>,
    /// What the calls of waits say: each once.
    pub locks: Vec<Which>,
}

impl Waits {
    /// What this wait is for.
    pub fn which(&self, wait: &Wait) -> &Which {
        &self.locks[wait.which as usize]
    }
}

/// A wait at a futex that goes on within this time at the same lock is the same wait: woken waiters of most locks try,
/// and wait again if another thread was faster. ns
const SAME_WAIT_NS: u64 = 5_000;

/// A lock of a program may have several futexes, at most so far apart: those of `pthread_rwlock_t` have.
const RWLOCK_BYTES: u64 = 16;

#[derive(Clone, Copy)]
struct Open {
    place: Place,
    which: u32,
    stack: StackId,
    from_ns: u64,
    /// Of it this was recorded in earlier windows, and the rest from then on, ns.
    seen_ns: u64,
    seen_from_ns: u64,
    began_before: bool,
}

impl Open {
    fn new(place: Place, which: u32, stack: StackId, at_ns: u64, began_before: bool) -> Open {
        Open { place, which, stack, from_ns: at_ns, seen_ns: 0, seen_from_ns: at_ns, began_before }
    }

    /// Nothing more is seen of it from then on.
    fn cut(self, at_ns: u64) -> Open {
        let seen_ns = self.seen_ns + at_ns.saturating_sub(self.seen_from_ns);
        Open { seen_ns, seen_from_ns: at_ns, ..self }
    }

    /// It is seen again.
    fn resumed(self, at_ns: u64) -> Open {
        Open { seen_from_ns: at_ns, ..self }
    }

    /// Of a wait that was cut off and not seen again.
    fn given_up(self, thread: u32) -> Wait {
        self.ended(thread, self.seen_from_ns, End::NotSeen)
    }

    fn ended(self, thread: u32, to_ns: u64, end: End) -> Wait {
        let Open { place, which, stack, from_ns, began_before, .. } = self;
        let seen_ns = self.seen_ns + to_ns.saturating_sub(self.seen_from_ns);
        Wait { thread, place, which, stack, from_ns, to_ns, seen_ns, end, began_before }
    }
}

/// A thread, or a CPU's idle thread: those all have number 0.
type Waiter = (u32, u32);

struct Reader<'a> {
    recording: &'a Recording,
    found: Waits,
    /// What a stack says, by the stack and the flags.
    known: HashMap<(StackId, u32), Option<u32>>,
    /// Where what stacks say stands in `found.locks`.
    places: HashMap<Which, u32>,
    in_kernel: HashMap<(Waiter, u64), Open>,
    /// The lock that a thread sleeps for.
    sleeps_for: HashMap<Waiter, u64>,
    in_programs: HashMap<u32, Open>,
    /// Where the last wait of a thread at a futex stands in `found.waits`.
    last: HashMap<u32, usize>,
    /// Waits that a window's end cut off; they may go on in the next window.
    cut_in_kernel: HashMap<(Waiter, u64), Open>,
    cut_in_programs: HashMap<u32, Open>,
    /// When windows of waits in the kernel begin.
    openings: HashSet<u64>,
}

/// A stack of a program, in place of flags of the kernel.
const IN_PROGRAM: u32 = u32::MAX;

/// The waits of a recording.
pub fn of(recording: &Recording) -> Waits {
    let mut reader = Reader {
        recording,
        found: Waits::default(),
        known: HashMap::new(),
        places: HashMap::new(),
        in_kernel: HashMap::new(),
        sleeps_for: HashMap::new(),
        in_programs: HashMap::new(),
        last: HashMap::new(),
        cut_in_kernel: HashMap::new(),
        cut_in_programs: HashMap::new(),
        openings: recording
            .windows
            .iter()
            .filter(|window| window.part == Part::KernelWaits)
            .map(|window| window.from_ns)
            .collect(),
    };
    let mut closings: Vec<(u64, Part)> =
        recording.windows.iter().map(|window| (window.to_ns, window.part)).collect();
    closings.sort_by_key(|closing| closing.0);
    let mut closings = closings.into_iter().peekable();
    for event in &recording.events {
        while let Some((at_ns, part)) = closings.next_if(|(at_ns, _)| *at_ns < event.at_ns) {
            reader.close(part, at_ns);
        }
        reader.take(event);
    }
    for (at_ns, part) in closings {
        reader.close(part, at_ns);
    }
    let to_ns = recording.system.to_ns;
    reader.close(Part::KernelWaits, to_ns);
    reader.close(Part::UserWaits, to_ns);
    reader.give_up_cut();
    let mut found = reader.found;
    one_place_for_each_lock(&mut found);
    found.waits.sort_by_key(|wait| wait.to_ns);
    found
}

impl Reader<'_> {
    fn which(&mut self, stack: StackId, bits: u32) -> Option<u32> {
        if let Some(known) = self.known.get(&(stack, bits)) {
            return *known;
        }
        let calls = self.recording.calls(stack);
        let which = match bits {
            IN_PROGRAM => which_lock::in_program(calls),
            _ => Some(which_lock::in_kernel(bits, calls)),
        };
        let place = which.map(|which| {
            let locks = &mut self.found.locks;
            *self.places.entry(which).or_insert_with_key(|which| {
                locks.push(which.clone());
                locks.len() as u32 - 1
            })
        });
        self.known.insert((stack, bits), place);
        place
    }

    fn take(&mut self, event: &Event) {
        let Event { at_ns, cpu, thread, what } = *event;
        let waiter = (thread, if thread == 0 { cpu } else { 0 });
        match what {
            What::KernelWaitBegins { lock, flags, stack } => {
                let Some(which) = self.which(stack, flags) else { return };
                let place = Place { pid: 0, address: lock };
                let cut = self.cut_in_kernel.remove(&(waiter, lock));
                let open = match cut {
                    // The recorder repeats a window's open waits at the first moment of the next one.
                    Some(cut) if self.openings.contains(&at_ns) => cut.resumed(at_ns),
                    cut => {
                        self.found.waits.extend(cut.map(|cut| cut.given_up(thread)));
                        Open::new(place, which, stack, at_ns, false)
                    }
                };
                if flags & flags::SPIN == 0 {
                    // The record of an end may be missing. Who sleeps for one lock sleeps for no other (invariant 2).
                    if let Some(other) = self.sleeps_for.insert(waiter, lock)
                        && other != lock
                    {
                        self.in_kernel.remove(&(waiter, other));
                    }
                }
                // A mutex's waiter begins again when it has spun in vain: that is one wait, which sleeps.
                // Of other locks a second beginning means that the record of the first one's end is missing, so nobody knows
                // how long that wait was.
                if flags & flags::MUTEX == 0 {
                    self.in_kernel.remove(&(waiter, lock));
                }
                let begun = self.in_kernel.entry((waiter, lock)).or_insert(open);
                if flags & flags::SPIN == 0 {
                    (begun.which, begun.stack) = (which, stack);
                }
            }
            What::KernelWaitEnds { lock, gave_up } => {
                if let Some(open) = self.in_kernel.remove(&(waiter, lock)) {
                    let end = if gave_up { End::GaveUp } else { End::Acquired };
                    self.found.waits.push(open.ended(thread, at_ns, end));
                }
            }
            What::UserWaitBegins { address, stack } => {
                self.begin_at_futex(event, address, stack, false)
            }
            What::UserWaitUnderWay { address, stack } => {
                self.begin_at_futex(event, address, stack, true)
            }
            What::UserWaitEnds { result } => {
                if let Some(open) = self.in_programs.remove(&thread) {
                    self.end_at_futex(thread, open, at_ns, result);
                } else if let Some(cut) = self.cut_in_programs.remove(&thread) {
                    // Nobody saw it end: it is known to have lasted until then.
                    self.found.waits.push(Wait {
                        seen_ns: cut.seen_ns,
                        ..cut.ended(thread, at_ns, End::NotSeen)
                    });
                }
            }
            What::KernelWaitUnderWay { stack } => {
                let calls = self.recording.calls(stack);
                let reads = calls.clone().any(|call| call.name().contains("down_read"));
                let writes = calls.clone().any(|call| call.name().contains("down_write"));
                let bits = match (reads, writes) {
                    (true, _) => flags::READ,
                    (_, true) => flags::WRITE,
                    _ => flags::MUTEX,
                };
                let Some(which) = self.which(stack, bits) else { return };
                let place = Place { pid: 0, address: 0 };
                let open = Open::new(place, which, stack, at_ns, true);
                self.in_kernel.entry((waiter, 0)).or_insert(open);
            }
            What::ThreadEnds => {
                // The records of their ends are missing, so nobody knows how long these waits were.
                self.in_kernel.retain(|(other, _), _| *other != waiter);
                self.cut_in_kernel.retain(|(other, _), _| *other != waiter);
                self.in_programs.remove(&thread);
                self.cut_in_programs.remove(&thread);
            }
            _ => {}
        }
    }

    fn begin_at_futex(&mut self, event: &Event, address: u64, stack: StackId, began_before: bool) {
        let thread = event.thread;
        // A record of an end may be lost; a thread that begins again is no longer there (invariant 2).
        self.in_programs.remove(&thread);
        let Some(which) = self.which(stack, IN_PROGRAM) else { return };
        let pid = self.recording.threads.get(&thread).map_or(thread, |thread| thread.pid);
        let place = Place { pid, address };
        let open = match self.cut_in_programs.remove(&thread) {
            Some(cut) if began_before && cut.place == place => cut.resumed(event.at_ns),
            cut => {
                self.found.waits.extend(cut.map(|cut| cut.given_up(thread)));
                Open::new(place, which, stack, event.at_ns, began_before)
            }
        };
        self.in_programs.insert(thread, open);
    }

    fn end_at_futex(&mut self, thread: u32, open: Open, at_ns: u64, result: i32) {
        // The lock was free again before the kernel looked: nobody slept, but the waiter tries and may wait on.
        const CHANGED: i32 = -libc::EAGAIN;
        if result == CHANGED {
            return;
        }
        // Interrupted, or out of time: without the lock.
        let end = if result == 0 { End::Acquired } else { End::GaveUp };
        let before = self.last.get(&thread).map(|&index| &mut self.found.waits[index]);
        if let Some(before) = before
            && before.place == open.place
            && before.which == open.which
            // Whoever ran out of time, or got a lock with priority inheritance, is through.
            && before.end == End::Acquired
            && !self.found.locks[open.which as usize].inherits_priority
            && open.from_ns.saturating_sub(before.to_ns) < SAME_WAIT_NS
        {
            before.to_ns = at_ns;
            before.end = end;
            before.seen_ns += at_ns.saturating_sub(open.from_ns);
            return;
        }
        self.last.insert(thread, self.found.waits.len());
        self.found.waits.push(open.ended(thread, at_ns, end));
    }

    /// Nobody sees how the rest of what was cut off went on.
    fn give_up_cut(&mut self) {
        let in_kernel = self.cut_in_kernel.drain().map(|((waiter, _), cut)| cut.given_up(waiter.0));
        self.found.waits.extend(in_kernel);
        let in_programs = self.cut_in_programs.drain().map(|(thread, cut)| cut.given_up(thread));
        self.found.waits.extend(in_programs);
    }

    /// Nothing of this part is known from then on.
    fn close(&mut self, part: Part, at_ns: u64) {
        match part {
            Part::KernelWaits => {
                let open = self.in_kernel.drain();
                self.cut_in_kernel.extend(open.map(|(key, open)| (key, open.cut(at_ns))));
            }
            Part::UserWaits => {
                let open = self.in_programs.drain();
                self.cut_in_programs.extend(open.map(|(thread, open)| (thread, open.cut(at_ns))));
                self.last.clear();
            }
            Part::CloseLook | Part::Calls => {}
        }
    }
}

/// A program's reader-writer lock has several futexes: all its waits get the address of the first one that was seen.
fn one_place_for_each_lock(found: &mut Waits) {
    use super::found::Kind;
    let locks = &found.locks;
    let is_rwlock =
        |wait: &Wait| wait.place.pid != 0 && locks[wait.which as usize].kind == Kind::UserRwlock;
    let mut places: Vec<Place> =
        found.waits.iter().filter(|wait| is_rwlock(wait)).map(|wait| wait.place).collect();
    places.sort_unstable();
    places.dedup();
    let mut first = HashMap::new();
    let mut begins = Place { pid: 0, address: 0 };
    for place in places {
        if place.pid != begins.pid || place.address - begins.address >= RWLOCK_BYTES {
            begins = place;
        }
        first.insert(place, begins);
    }
    for wait in &mut found.waits {
        if let Some(place) = first.get(&wait.place)
            && locks[wait.which as usize].kind == Kind::UserRwlock
        {
            wait.place = *place;
        }
    }
}

/// The roles of a lock can be in each other's way; those of the same one need not be.
pub fn is_other(one: Role, other: Role) -> bool {
    one != other && one != Role::Lock && other != Role::Lock
}

#[cfg(test)]
mod tests {
    use crate::facts::Frame;

    use super::super::recorded::{KERNEL, System, Thread, Window};
    use super::*;

    /// A recording of one second with a stack of the kernel (0), one of a program that reads (1) and writes (2).
    fn recording(events: &[(u64, u32, What)]) -> Recording {
        let frame = |name: &str, module: &str| Frame {
            function: Some(name.to_owned()),
            module: Some(module.to_owned()),
            ..Frame::default()
        };
        let frames = vec![
            frame("rwsem_down_write_slowpath", KERNEL),
            frame("vm_mmap_pgoff", KERNEL),
            frame("pthread_rwlock_rdlock", "libc.so.6"),
            frame("pthread_rwlock_wrlock", "libc.so.6"),
            frame("serve", "server"),
            frame("__mutex_lock", KERNEL),
        ];
        let window = |part, from_ns, to_ns| Window { part, from_ns, to_ns };
        let event = |&(at_ns, thread, what)| Event { at_ns, cpu: 0, thread, what };
        Recording {
            system: System { from_ns: 0, to_ns: 1_000_000_000, cpus: 2, ..System::default() },
            threads: (1..9).map(|tid| (tid, Thread { pid: 1, ..Thread::default() })).collect(),
            frames,
            stacks: vec![vec![0, 1], vec![2, 4], vec![3, 4], vec![5, 1]],
            windows: vec![
                window(Part::KernelWaits, 0, 500_000_000),
                window(Part::KernelWaits, 800_000_000, 1_000_000_000),
                window(Part::UserWaits, 0, 1_000_000_000),
            ],
            events: events.iter().map(event).collect(),
            ..Recording::default()
        }
    }

    const MS: u64 = 1_000_000;

    fn begins(lock: u64) -> What {
        What::KernelWaitBegins { lock, flags: flags::WRITE, stack: 0 }
    }

    fn ends(lock: u64) -> What {
        What::KernelWaitEnds { lock, gave_up: false }
    }

    #[test]
    fn a_thread_that_ended_waits_for_nothing() {
        let found = of(&recording(&[
            (10 * MS, 1, begins(7)),
            (20 * MS, 2, begins(7)),
            (30 * MS, 1, What::ThreadEnds),
            (900 * MS, 2, What::ThreadEnds),
        ]));
        assert_eq!(found.waits, []);
    }

    #[test]
    fn a_wait_ends_with_its_record_or_with_its_window() {
        let found = of(&recording(&[
            (10 * MS, 1, begins(7)),
            (20 * MS, 2, begins(7)),
            (30 * MS, 1, ends(7)),
            // Of the second one nothing was seen for 300 ms: this end may be another wait's.
            (900 * MS, 2, ends(7)),
            (910 * MS, 3, begins(8)),
        ]));
        let seen: Vec<_> =
            found.waits.iter().map(|wait| (wait.thread, wait.length_ns() / MS, wait.end)).collect();
        assert_eq!(seen, [(1, 20, End::Acquired), (2, 480, End::NotSeen), (3, 90, End::NotSeen)]);
    }

    #[test]
    fn a_wait_that_ran_out_of_time_and_one_for_a_lock_that_is_handed_over_are_over() {
        let reads = What::UserWaitBegins { address: 0x1000, stack: 1 };
        let timed_out = What::UserWaitEnds { result: -110 };
        let found = of(&recording(&[
            (MS, 1, reads),
            (2 * MS, 1, timed_out),
            (2 * MS + 1_000, 1, reads),
            (3 * MS, 1, What::UserWaitEnds { result: -4 }),
        ]));
        let seen: Vec<_> =
            found.waits.iter().map(|wait| (wait.length_ns() / MS, wait.end)).collect();
        assert_eq!(seen, [(1, End::GaveUp), (0, End::GaveUp)]);
    }

    #[test]
    fn who_sleeps_for_another_lock_no_longer_waits_for_the_first() {
        let spins = What::KernelWaitBegins { lock: 9, flags: flags::SPIN, stack: 0 };
        let found = of(&recording(&[
            (MS, 1, begins(7)),
            (2 * MS, 1, spins),
            (3 * MS, 1, ends(9)),
            (10 * MS, 1, begins(8)),
            (12 * MS, 1, ends(8)),
        ]));
        let seen: Vec<_> =
            found.waits.iter().map(|wait| (wait.place.address, wait.length_ns() / MS)).collect();
        assert_eq!(seen, [(9, 1), (8, 2)]);
    }

    #[test]
    fn a_wait_that_goes_on_in_the_next_window_is_one_and_counts_where_it_was_seen() {
        let found = of(&recording(&[
            (400 * MS, 1, begins(7)),
            // The recorder saw that it still is the same one.
            (800 * MS, 1, begins(7)),
            (900 * MS, 1, ends(7)),
        ]));
        let [wait] = found.waits[..] else { panic!("{:?}", found.waits) };
        assert_eq!((wait.length_ns(), wait.seen_ns, wait.end), (500 * MS, 200 * MS, End::Acquired));
    }

    #[test]
    fn a_wait_that_begins_twice_is_the_second_one() {
        let spins = What::KernelWaitBegins { lock: 9, flags: flags::SPIN, stack: 0 };
        let found = of(&recording(&[(MS, 1, spins), (5 * MS, 1, spins), (6 * MS, 1, ends(9))]));
        assert_eq!(found.waits.iter().map(Wait::length_ns).collect::<Vec<_>>(), [MS]);
    }

    #[test]
    fn a_mutex_that_spins_first_waits_once() {
        let spins = What::KernelWaitBegins { lock: 7, flags: flags::MUTEX | flags::SPIN, stack: 3 };
        let sleeps = What::KernelWaitBegins { lock: 7, flags: flags::MUTEX, stack: 3 };
        let found = of(&recording(&[(MS, 1, spins), (2 * MS, 1, sleeps), (5 * MS, 1, ends(7))]));
        assert_eq!(found.waits.iter().map(Wait::length_ns).collect::<Vec<_>>(), [4 * MS]);
    }

    #[test]
    fn futexes_of_one_rwlock_are_one_lock_and_a_retry_is_one_wait() {
        let reads = |address| What::UserWaitBegins { address, stack: 1 };
        let writes = |address| What::UserWaitBegins { address, stack: 2 };
        let woken = What::UserWaitEnds { result: 0 };
        let changed = What::UserWaitEnds { result: -11 };
        let found = of(&recording(&[
            (MS, 1, writes(0x1008)),
            (2 * MS, 2, reads(0x1000)),
            (3 * MS, 1, woken),
            (3 * MS + 2_000, 1, writes(0x1008)),
            (4 * MS, 1, woken),
            (4 * MS, 2, woken),
            (5 * MS, 2, reads(0x2000)),
            (5 * MS + 100, 2, changed),
        ]));
        let seen: Vec<_> = found
            .waits
            .iter()
            .map(|wait| {
                (wait.thread, wait.place.address, wait.length_ns() / MS, found.which(wait).role)
            })
            .collect();
        assert_eq!(seen, [(1, 0x1000, 3, Role::Write), (2, 0x1000, 2, Role::Read)]);
        assert_eq!(found.locks[0].user, "serve");
    }

    #[test]
    fn a_wait_that_was_under_way_all_the_time_is_seen() {
        let found = of(&recording(&[(0, 4, What::UserWaitUnderWay { address: 0x1008, stack: 2 })]));
        let [wait] = found.waits[..] else { panic!("{:?}", found.waits) };
        assert_eq!(
            (wait.length_ns(), wait.end, wait.began_before),
            (1000 * MS, End::NotSeen, true)
        );
    }
}
