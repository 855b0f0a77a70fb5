//! What was read of the rings and is kept: events, and whom and what they are about.

use std::collections::btree_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use perf_event::data::Sample;

use super::super::names::Names;
use super::super::recorded::{Event, FileId, Part, Recording, StackId, What, Window};
use super::files::{FileCallBegin, Files};
use super::stacks::{Call, Stacks};
use super::threads::Threads;
use super::unwinding::{Processes, Registers};

/// So many events are kept, at about 64 bytes each; of more, the older half is dropped.
const MOST_EVENTS: usize = 4 << 20;

/// Events, and whom and what they are about.
#[derive(Default)]
pub struct Kept {
    /// Whose doings are left out: the recorder's.
    pub own_pid: u32,
    /// Those whose calls are looked for; empty: all.
    pub pids: Vec<u32>,
    /// Events, nearly in order.
    pub events: Vec<Seen>,
    /// All stacks.
    pub stacks: Stacks,
    /// All threads.
    pub threads: Threads,
    /// All processes' memory.
    pub processes: Processes,
    /// All files.
    pub files: Files,
    /// Records that the kernel had no space for.
    pub lost: u64,
    /// Records that were read.
    pub records: u64,
    /// What could not be recorded, in sentences.
    pub notes: Vec<String>,
}

/// Something that was seen, before it is known whether it makes an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// When, ns.
    pub at_ns: u64,
    /// Where.
    pub cpu: u32,
    /// Whose doing.
    pub thread: u32,
    /// What.
    pub what: Sight,
}

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// An event.
    Event(What),
    /// A call of a program ended, which may have been a wait at a futex.
    FutexEnds(i32),
    /// A look at all threads found this one at a futex.
    FoundWaiting {
        /// The futex.
        address: u64,
        /// The program's calls.
        stack: StackId,
        /// It is the wait that was last seen of this thread.
        is_same: bool,
    },
    /// A wait that was found has ended since.
    FoundGone {
        /// When it was last known to last.
        known_ns: u64,
    },
    /// A look at all threads found this one waiting for a lock of the kernel.
    FoundInKernel {
        /// The kernel's calls.
        stack: StackId,
    },
    /// It has ended since.
    FoundOutOfKernel {
        /// When it was last known to last.
        known_ns: u64,
    },
    /// A call that may read or write a file began.
    FileCallBegins(FileCallBegin),
    /// One ended.
    FileCallEnds(i64),
}

impl Kept {
    /// Says something about the recording, once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// What a record of a thread says; none if it is the recorder's own.
    pub fn seen(&mut self, sample: &Sample, what: Sight) -> Option<Seen> {
        let pid = sample.pid()?;
        if pid == self.own_pid { None } else { self.seen_of_anybody(sample, what) }
    }

    /// What a record of a thread says, even if it is the recorder's own.
    pub fn seen_of_anybody(&mut self, sample: &Sample, what: Sight) -> Option<Seen> {
        let (pid, thread) = (sample.pid()?, sample.tid()?);
        self.threads.see(thread, pid);
        Some(Seen { at_ns: sample.time()?, cpu: sample.cpu()?, thread, what })
    }

    /// Whether the report is about this process.
    pub fn is_about(&self, pid: u32) -> bool {
        pid != self.own_pid && (self.pids.is_empty() || self.pids.contains(&pid))
    }

    /// Too many events: the older half is dropped. Returns since when they are kept.
    pub fn drop_older_half(&mut self) -> Option<u64> {
        if self.events.len() <= MOST_EVENTS {
            return None;
        }
        self.events.sort_by_key(|event| event.at_ns);
        let half = self.events.len() / 2;
        self.events.drain(..half);
        self.note(format!(
            "More than {MOST_EVENTS} events were recorded; the older half was dropped, so the report is about the time since."
        ));
        self.events.first().map(|event| event.at_ns)
    }

    /// The stack of these calls in the kernel.
    pub fn kernel_stack(&mut self, chain: &[u64]) -> StackId {
        let mut calls = Vec::with_capacity(chain.len());
        // Markers of what follows are at the very end of the address space.
        for &address in chain.iter().filter(|&&address| address < u64::MAX - 4095) {
            calls.push(self.stacks.call(Call::Kernel(address), 0, address));
        }
        self.stacks.stack(&calls)
    }

    /// The stack of the program's calls, from its registers; empty where the report is not about it, or where they are not
    /// known. `skip` of the innermost are left out.
    pub fn user_stack(
        &mut self,
        sample: &Sample,
        registers: Option<Registers>,
        skip: usize,
    ) -> StackId {
        let pid = sample.pid().unwrap_or_default();
        let mut calls = Vec::new();
        if self.is_about(pid)
            && let Some(registers) = registers
        {
            let stack = sample.stack_user().unwrap_or_default();
            calls = self.processes.calls(pid, registers, stack, &mut self.stacks);
        }
        self.stacks.stack(calls.get(skip..).unwrap_or_default())
    }

    /// What was seen since then, in order.
    pub fn since(&self, from_ns: u64) -> Vec<Seen> {
        // It is nearly in order: what one reading brings of several CPUs is not.
        let earlier = from_ns.saturating_sub(1_000_000_000);
        let first = self
            .events
            .iter()
            .rposition(|event| event.at_ns < earlier)
            .map_or(0, |place| place + 1);
        let mut recent: Vec<Seen> =
            self.events[first..].iter().filter(|event| event.at_ns >= from_ns).copied().collect();
        recent.sort_by_key(|event| event.at_ns);
        recent
    }

    /// Moves everything that was seen to the recording, whose windows are known, with names.
    pub fn give(&mut self, names: &mut Names, recording: &mut Recording) {
        let mut seen = std::mem::take(&mut self.events);
        seen.sort_by_key(|event| event.at_ns);
        let mut events = events(&seen, &recording.windows);
        self.name(&mut events, names, recording);
        self.number_files(&mut events, recording);
        for event in &events {
            let mut add = |tid: u32| {
                if let (Entry::Vacant(free), Some(thread)) =
                    (recording.threads.entry(tid), self.threads.get(tid))
                {
                    free.insert(thread.clone());
                }
            };
            add(event.thread);
            match event.what {
                What::Switch { to, .. } => add(to),
                What::Wakes { thread } => add(thread),
                _ => {}
            }
        }
        recording.events = events;
        recording.lost = std::mem::take(&mut self.lost);
        recording.cost.records = std::mem::take(&mut self.records);
        recording.notes.append(&mut self.notes);
        self.threads.forget_ended();
        self.processes.forget_ended();
    }

    /// Gives the events' files to the recording, with new numbers.
    fn number_files(&self, events: &mut [Event], recording: &mut Recording) {
        let mut numbers: HashMap<FileId, FileId> = HashMap::new();
        for event in events {
            if let What::FileCallBegins { file, .. } = &mut event.what {
                let next = recording.files.len() as FileId;
                *file = *numbers.entry(*file).or_insert_with_key(|&file| {
                    recording.files.push(self.files.files[file as usize].clone());
                    next
                });
            }
        }
    }

    /// Gives the events' stacks to the recording, with new numbers.
    fn name(&mut self, events: &mut [Event], names: &mut Names, recording: &mut Recording) {
        let mut numbers: HashMap<StackId, StackId> = HashMap::new();
        let mut wanted = Vec::new();
        for stack in events.iter_mut().filter_map(|event| stack_of(&mut event.what)) {
            let next = wanted.len() as StackId;
            *stack = *numbers.entry(*stack).or_insert_with_key(|&stack| {
                wanted.push(stack);
                next
            });
        }
        self.stacks.name(&wanted, names);
        let mut places: HashMap<u32, Range<u32>> = HashMap::new();
        for &stack in &wanted {
            let mut calls = Vec::new();
            for &call in self.stacks.calls(stack) {
                let range = places.entry(call).or_insert_with(|| {
                    let first = recording.frames.len() as u32;
                    recording.frames.extend_from_slice(self.stacks.frames(call));
                    first..recording.frames.len() as u32
                });
                calls.extend(range.clone());
            }
            recording.stacks.push(calls);
        }
    }
}

fn stack_of(what: &mut What) -> Option<&mut StackId> {
    match what {
        What::KernelWaitBegins { stack, .. }
        | What::UserWaitBegins { stack, .. }
        | What::UserWaitUnderWay { stack, .. }
        | What::KernelWaitUnderWay { stack }
        | What::CallBegins { stack, .. } => Some(stack),
        _ => None,
    }
}

/// A thread's wait at a futex.
#[derive(Clone, Copy)]
struct Waiting {
    address: u64,
    /// It was seen to begin, or was first found, then.
    at_ns: u64,
    /// It was found under way.
    is_under_way: bool,
}

/// What happened, from what was seen in this order.
///
/// A look at all threads finds some whose wait was seen to begin: nothing is new about those. It finds others in a wait
/// that began when nobody looked, after one whose end nobody saw: that one has lasted as long as its window at least.
fn events(seen: &[Seen], windows: &[Window]) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::with_capacity(seen.len());
    let mut waiting: HashMap<u32, Waiting> = HashMap::new();
    let mut in_kernel: HashSet<u32> = HashSet::new();
    let mut calls: HashMap<u32, FileCallBegin> = HashMap::new();
    let mut positions: HashMap<(u32, u32), u64> = HashMap::new();
    for &Seen { at_ns, cpu, thread, what } in seen {
        if what.part().is_some_and(|part| !was_recorded(windows, part, at_ns)) {
            continue;
        }
        let mut push = |at_ns, what| events.push(Event { at_ns, cpu, thread, what });
        match what {
            Sight::Event(what) => {
                match what {
                    What::UserWaitBegins { address, .. } => {
                        waiting.insert(thread, Waiting { address, at_ns, is_under_way: false });
                    }
                    What::KernelWaitBegins { .. } => {
                        in_kernel.insert(thread);
                    }
                    What::KernelWaitEnds { .. } => {
                        in_kernel.remove(&thread);
                    }
                    _ => {}
                }
                push(at_ns, what);
            }
            Sight::FutexEnds(result) => {
                if waiting.remove(&thread).is_some() {
                    push(at_ns, What::UserWaitEnds { result });
                }
            }
            Sight::FoundWaiting { address, stack, is_same } => {
                let window = latest(windows, Part::UserWaits, at_ns);
                let from_ns = window.map_or(0, |window| window.from_ns);
                match waiting.get_mut(&thread) {
                    Some(wait) if wait.address == address && wait.at_ns >= from_ns => continue,
                    Some(wait) if is_same && wait.is_under_way => continue,
                    Some(_) if is_same => {}
                    Some(wait) => {
                        let earlier = latest(windows, Part::UserWaits, from_ns.saturating_sub(1));
                        let known_ns = earlier
                            .map_or(wait.at_ns, |window| window.to_ns)
                            .clamp(wait.at_ns, at_ns);
                        push(known_ns, What::UserWaitEnds { result: 0 });
                    }
                    None => {}
                }
                waiting.insert(thread, Waiting { address, at_ns, is_under_way: true });
                push(at_ns, What::UserWaitUnderWay { address, stack });
            }
            Sight::FoundGone { known_ns } => {
                if waiting.get(&thread).is_some_and(|wait| wait.at_ns <= known_ns) {
                    waiting.remove(&thread);
                    push(known_ns, What::UserWaitEnds { result: 0 });
                }
            }
            Sight::FoundInKernel { stack } => {
                if in_kernel.insert(thread) {
                    push(at_ns, What::KernelWaitUnderWay { stack });
                }
            }
            Sight::FoundOutOfKernel { known_ns } => {
                if in_kernel.remove(&thread) {
                    push(known_ns, What::KernelWaitEnds { lock: 0, gave_up: false });
                }
            }
            Sight::FileCallBegins(begin) => {
                calls.insert(thread, begin);
                let FileCallBegin { call: Some(call), file, bytes, .. } = begin else { continue };
                let position = positions.get(&(begin.pid, begin.descriptor)).copied();
                let offset = begin.offset.or(position).filter(|_| !begin.appends);
                push(at_ns, What::FileCallBegins { call, file, offset, bytes });
            }
            Sight::FileCallEnds(result) => {
                let Some(begin) = calls.remove(&thread) else { continue };
                let descriptor = (begin.pid, begin.descriptor);
                if let Ok(result) = u64::try_from(result) {
                    match (begin.call, begin.offset) {
                        (None, _) => {
                            positions.insert(descriptor, result);
                        }
                        // An appended write moves the position to an end that is not known.
                        (Some(_), None) if begin.appends => {
                            positions.remove(&descriptor);
                        }
                        (Some(_), None) => {
                            positions.entry(descriptor).and_modify(|position| *position += result);
                        }
                        (Some(_), Some(_)) => {}
                    }
                }
                if begin.call.is_some() {
                    push(at_ns, What::FileCallEnds { result });
                }
            }
        }
    }
    events.sort_by_key(|event| event.at_ns);
    events
}

impl Sight {
    /// Which part of the recording saw it; none: a look at all threads.
    fn part(&self) -> Option<Part> {
        match self {
            Sight::Event(what) => Some(match what {
                What::KernelWaitBegins { .. } | What::KernelWaitEnds { .. } => Part::KernelWaits,
                What::UserWaitBegins { .. } | What::UserWaitEnds { .. } => Part::UserWaits,
                What::CallBegins { .. } | What::CallEnds { .. } => Part::Calls,
                _ => Part::CloseLook,
            }),
            Sight::FutexEnds(_) => Some(Part::UserWaits),
            Sight::FileCallBegins(_) | Sight::FileCallEnds(_) => Some(Part::CloseLook),
            _ => None,
        }
    }
}

/// Whether this moment is in a window of this part.
fn was_recorded(windows: &[Window], part: Part, at_ns: u64) -> bool {
    latest(windows, part, at_ns).is_some_and(|window| at_ns <= window.to_ns)
}

/// The part's latest window that has begun by then.
fn latest(windows: &[Window], part: Part, at_ns: u64) -> Option<&Window> {
    let begun = windows.partition_point(|window| window.from_ns <= at_ns);
    windows[..begun].iter().rev().find(|window| window.part == part)
}

#[cfg(test)]
mod tests {
    use super::super::super::recorded::FileCall;
    use super::*;

    const WINDOWS: [Window; 4] = [
        Window { part: Part::UserWaits, from_ns: 0, to_ns: 100 },
        Window { part: Part::KernelWaits, from_ns: 0, to_ns: 100 },
        Window { part: Part::CloseLook, from_ns: 0, to_ns: 100 },
        Window { part: Part::UserWaits, from_ns: 1000, to_ns: 1100 },
    ];
    const BEGINS: Sight = Sight::Event(What::UserWaitBegins { address: 64, stack: 1 });
    const UNDER_WAY: What = What::UserWaitUnderWay { address: 64, stack: 2 };

    fn found(is_same: bool) -> Sight {
        Sight::FoundWaiting { address: 64, stack: 2, is_same }
    }

    /// What is made of sights of one thread at these times.
    fn made(seen: &[(u64, Sight)]) -> Vec<(u64, What)> {
        let seen: Vec<Seen> =
            seen.iter().map(|&(at_ns, what)| Seen { at_ns, cpu: 0, thread: 7, what }).collect();
        events(&seen, &WINDOWS).iter().map(|event| (event.at_ns, event.what)).collect()
    }

    fn begins(at_ns: u64) -> (u64, What) {
        (at_ns, What::UserWaitBegins { address: 64, stack: 1 })
    }

    fn ends(at_ns: u64) -> (u64, What) {
        (at_ns, What::UserWaitEnds { result: 0 })
    }

    #[test]
    fn a_call_that_was_no_wait_ends_none() {
        assert_eq!(made(&[(10, Sight::FutexEnds(0))]), []);
        assert_eq!(
            made(&[(10, BEGINS), (20, Sight::FutexEnds(0)), (30, Sight::FutexEnds(0))]),
            [begins(10), ends(20)]
        );
    }

    #[test]
    fn what_was_seen_outside_of_windows_is_left_out() {
        assert_eq!(made(&[(10, BEGINS), (101, Sight::FutexEnds(0)), (999, BEGINS)]), [begins(10)]);
    }

    #[test]
    fn a_wait_that_was_seen_to_begin_is_not_found_again() {
        assert_eq!(made(&[(1001, BEGINS), (1002, found(false))]), [begins(1001)]);
    }

    #[test]
    fn a_wait_that_goes_on_is_told_once() {
        let seen = [(5, found(false)), (1002, found(true)), (1050, Sight::FutexEnds(0))];
        assert_eq!(made(&seen), [(5, UNDER_WAY), ends(1050)]);
        let seen = [(10, BEGINS), (1002, found(true)), (1050, Sight::FutexEnds(0))];
        assert_eq!(made(&seen), [begins(10), (1002, UNDER_WAY), ends(1050)]);
    }

    #[test]
    fn another_wait_ends_the_one_before_with_its_window() {
        assert_eq!(
            made(&[(10, BEGINS), (1002, found(false))]),
            [begins(10), ends(100), (1002, UNDER_WAY)]
        );
    }

    #[test]
    fn a_wait_that_is_gone_lasted_until_it_was_last_seen() {
        let seen = [(5, found(false)), (1002, Sight::FoundGone { known_ns: 5 })];
        assert_eq!(made(&seen), [(5, UNDER_WAY), ends(5)]);
        // It was seen to end, or another one was seen to begin.
        let seen = [
            (5, found(false)),
            (50, Sight::FutexEnds(0)),
            (1002, Sight::FoundGone { known_ns: 5 }),
        ];
        assert_eq!(made(&seen), [(5, UNDER_WAY), ends(50)]);
        let seen = [(5, found(false)), (60, BEGINS), (1002, Sight::FoundGone { known_ns: 5 })];
        assert_eq!(made(&seen), [(5, UNDER_WAY), begins(60)]);
    }

    #[test]
    fn a_position_is_known_from_the_first_seek_on() {
        let begin = |call, offset, appends| {
            let (pid, descriptor, file, bytes) = (7, 3, 0, 10);
            Sight::FileCallBegins(FileCallBegin {
                call,
                pid,
                descriptor,
                file,
                offset,
                bytes,
                appends,
            })
        };
        let (read, write) = (Some(FileCall::Read), Some(FileCall::Write));
        let calls = [
            (begin(read, None, false), 10),
            (begin(None, None, false), 500),
            (begin(read, None, false), 8),
            (begin(write, Some(64), false), 10),
            (begin(write, None, false), -5),
            (begin(write, None, false), 10),
            (begin(write, None, true), 10),
            (begin(read, None, false), 10),
        ];
        let seen = calls
            .iter()
            .flat_map(|&(begin, result)| [(1, begin), (1, Sight::FileCallEnds(result))]);
        let offsets =
            made(&seen.collect::<Vec<_>>()).into_iter().filter_map(|(_, what)| match what {
                What::FileCallBegins { offset, .. } => Some(offset),
                _ => None,
            });
        let expected = [None, Some(500), Some(64), Some(508), Some(508), None, None];
        assert_eq!(offsets.collect::<Vec<_>>(), expected);
        // What began before the window is not known.
        assert_eq!(made(&[(1, Sight::FileCallEnds(10))]), []);
    }

    #[test]
    fn a_wait_in_the_kernel_is_found_only_if_it_was_not_seen_to_begin() {
        let begin = What::KernelWaitBegins { lock: 8, flags: 4, stack: 0 };
        let find = Sight::FoundInKernel { stack: 3 };
        let gone = Sight::FoundOutOfKernel { known_ns: 20 };
        assert_eq!(made(&[(10, Sight::Event(begin)), (20, find)]), [(10, begin)]);
        let under_way = (20, What::KernelWaitUnderWay { stack: 3 });
        let end = (20, What::KernelWaitEnds { lock: 0, gave_up: false });
        assert_eq!(made(&[(20, find), (30, find), (40, gone), (50, gone)]), [under_way, end]);
    }
}
