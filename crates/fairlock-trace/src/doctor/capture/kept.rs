//! What was read of the rings and is kept: events, and whom and what they are about.

use std::collections::btree_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use perf_event::data::Sample;

use crate::facts::Frame;

use super::super::names::Names;
use super::super::recorded::{Event, FileId, KERNEL, Part, Recording, StackId, What, Window};
use super::files::{FileCallBegin, Files};
use super::stacks::{Call, Stacks};
use super::threads::Threads;
use super::unwinding::{Calls, Processes, Registers};

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
    /// Stacks of programs in which a call is missing, and what is known before it.
    pub cut: HashMap<StackId, StackId>,
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
        match what {
            _ if thread != NOBODY => self.threads.see(thread, pid),
            // Whose wait that was can be told from the lock.
            Sight::Event(What::KernelWaitEnds { .. }) => {}
            _ => return None,
        }
        Some(Seen { at_ns: sample.time()?, cpu: sample.cpu()?, thread, what })
    }

    /// A thread ended.
    pub fn thread_ended(&mut self, thread: u32, at_ns: u64) {
        self.threads.ended(thread);
        let what = Sight::Event(What::ThreadEnds);
        self.events.push(Seen { at_ns, cpu: 0, thread, what });
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
        let mut calls = Calls::default();
        if self.is_about(pid)
            && let Some(registers) = registers
        {
            let stack = sample.stack_user().unwrap_or_default();
            calls = self.processes.calls(pid, registers, stack, &mut self.stacks);
        }
        self.stack_of_program(&calls, skip)
    }

    /// The stack of these calls, without the innermost ones.
    pub fn stack_of_program(&mut self, calls: &Calls, skip: usize) -> StackId {
        let Calls { calls, known } = calls;
        let stack = self.stacks.stack(calls.get(skip..).unwrap_or_default());
        if let Some(known) = known {
            let before = self.stacks.stack(calls.get(skip..*known).unwrap_or_default());
            self.cut.insert(stack, before);
        }
        stack
    }

    /// While it is traced how a lock function returns, its caller is missing in the stacks of waits. It is known from the
    /// record of the call's beginning.
    fn add_callers(&mut self, seen: &mut [Seen]) {
        if self.cut.is_empty() {
            return;
        }
        // By thread: the lock and the caller's stack.
        let mut calling: HashMap<u32, (u64, StackId)> = HashMap::new();
        for Seen { thread, what, .. } in &mut *seen {
            match what {
                Sight::Event(What::CallBegins { lock, stack, .. }) => {
                    calling.insert(*thread, (*lock, *stack));
                }
                Sight::Event(What::CallEnds { .. }) => {
                    calling.remove(thread);
                }
                _ => {
                    // A call's beginning may have been missed, so it has to be a call with this lock.
                    if let Some((address, stack)) = wait_at_futex(what)
                        && let Some(before) = self.cut.get(stack)
                        && let Some((lock, caller)) = calling.get(thread)
                        && address.wrapping_sub(*lock) < LOCK_BYTES
                    {
                        let calls = [self.stacks.calls(*before), self.stacks.calls(*caller)];
                        *stack = self.stacks.stack(&calls.concat());
                    }
                }
            }
        }
        self.add_only_callers(seen);
    }

    /// Where that record is missing, too, but all other waits for the lock in this function have the same caller, it is that
    /// one.
    fn add_only_callers(&self, seen: &mut [Seen]) {
        let pid = |thread| self.threads.get(thread).map_or(0, |thread| thread.pid);
        // By process and address.
        let mut whole: HashMap<(u32, u64), HashSet<StackId>> = HashMap::new();
        for &mut Seen { thread, ref mut what, .. } in &mut *seen {
            if let Some((address, stack)) = wait_at_futex(what)
                && !self.cut.contains_key(stack)
            {
                whole.entry((pid(thread), address)).or_default().insert(*stack);
            }
        }
        for &mut Seen { thread, ref mut what, .. } in seen {
            if let Some((address, stack)) = wait_at_futex(what)
                && let Some(before) = self.cut.get(stack)
                && let Some(whole) = whole.get(&(pid(thread), address))
            {
                let before = self.stacks.calls(*before);
                let has_same = |other: &&StackId| self.stacks.calls(**other).starts_with(before);
                let mut same = whole.iter().filter(has_same);
                if let (Some(only), None) = (same.next(), same.next()) {
                    *stack = *only;
                }
            }
        }
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
        self.add_callers(&mut seen);
        let mut events = events(&seen, &recording.windows);
        self.name(&mut events, names, recording);
        leave_out_recording(&mut events, recording);
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

/// The futex that a thread was seen to wait at, and its calls.
fn wait_at_futex(what: &mut Sight) -> Option<(u64, &mut StackId)> {
    match what {
        Sight::Event(What::UserWaitBegins { address, stack })
        | Sight::FoundWaiting { address, stack, .. } => Some((*address, stack)),
        _ => None,
    }
}

/// Leaves out waits in the kernel that recording itself causes: those for locks of its events and breakpoints.
fn leave_out_recording(events: &mut Vec<Event>, recording: &Recording) {
    let is_recording: Vec<bool> = (0..recording.stacks.len() as StackId)
        .map(|stack| recording.calls(stack).any(is_part_of_recording))
        .collect();
    events.retain(|event| match event.what {
        What::KernelWaitBegins { stack, .. } | What::KernelWaitUnderWay { stack } => {
            !is_recording[stack as usize]
        }
        _ => true,
    });
}

/// Whether this is one of the kernel's functions that only run where something is recorded.
fn is_part_of_recording(call: &Frame) -> bool {
    const PARTS: [&str; 6] =
        ["handler_chain", "uprobe_", "uretprobe_", "trace_uprobe", "perf_", "tracepoint_"];
    // This one tells of a wait, whoever it is that waits.
    const TELLS: &str = "perf_trace_contention";
    let name = call.function.as_deref().unwrap_or_default().trim_start_matches('_');
    call.module.as_deref() == Some(KERNEL)
        && PARTS.iter().any(|part| name.starts_with(part))
        && !name.starts_with(TELLS)
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

/// A lock of the C library is at most so large, bytes: `pthread_rwlock_t` is.
const LOCK_BYTES: u64 = 56;

/// The number that all threads have that have ended but for their last steps.
const NOBODY: u32 = u32::MAX;

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
    let mut ended: HashSet<u32> = HashSet::new();
    // By lock: threads that wait for it after they were reported to end. That is when their mappings go.
    let mut last_waits: HashMap<u64, Vec<u32>> = HashMap::new();
    let mut calls: HashMap<u32, FileCallBegin> = HashMap::new();
    let mut positions: HashMap<(u32, u32), u64> = HashMap::new();
    for &Seen { at_ns, cpu, thread, what } in seen {
        if what.part().is_some_and(|part| !was_recorded(windows, part, at_ns)) {
            continue;
        }
        let ends_here = match what {
            Sight::Event(What::KernelWaitEnds { lock, .. }) => last_waits.get_mut(&lock),
            _ => None,
        };
        let thread = match (thread, ends_here) {
            // The record of such a wait's end may no longer say whose it is.
            (NOBODY, waiters) => match waiters.and_then(Vec::pop) {
                Some(waiter) => waiter,
                None => continue,
            },
            (_, Some(waiters)) => {
                waiters.retain(|waiter| *waiter != thread);
                thread
            }
            (_, None) => thread,
        };
        let mut push = |at_ns, what| events.push(Event { at_ns, cpu, thread, what });
        match what {
            Sight::Event(what) => {
                match what {
                    What::UserWaitBegins { address, .. } => {
                        waiting.insert(thread, Waiting { address, at_ns, is_under_way: false });
                    }
                    What::KernelWaitBegins { lock, .. } if ended.contains(&thread) => {
                        last_waits.entry(lock).or_default().push(thread);
                    }
                    What::KernelWaitBegins { .. } => {
                        in_kernel.insert(thread);
                    }
                    What::ThreadEnds => {
                        ended.insert(thread);
                        let waited = in_kernel.remove(&thread);
                        if waiting.remove(&thread).is_none() && !waited {
                            continue;
                        }
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
    // Of the others nobody knows how long they waited.
    let at_ns = seen.iter().map(|seen| seen.at_ns).max().unwrap_or_default();
    let unknown = last_waits.into_values().flatten();
    events.extend(unknown.map(|thread| Event { at_ns, cpu: 0, thread, what: What::ThreadEnds }));
    events.sort_by_key(|event| event.at_ns);
    events
}

impl Sight {
    /// Which part of the recording saw it; none: a look at all threads.
    fn part(&self) -> Option<Part> {
        match self {
            Sight::Event(What::ThreadEnds) => None,
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
    use super::super::super::recorded::{FileCall, LockCall};
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
    fn the_caller_of_a_traced_function_is_known_from_the_calls_beginning() {
        let mut kept = Kept::default();
        let call = |kept: &mut Kept, address| kept.stacks.call(Call::Kernel(address), 0, address);
        let [futex, lock, caller, outer] = [1, 2, 3, 4].map(|it| call(&mut kept, it));
        let whole = kept.stacks.stack(&[futex, lock, caller, outer]);
        let stack = kept.stacks.stack(&[caller, outer]);
        let cut = Calls { calls: vec![futex, lock, outer], known: Some(2) };
        let cut = kept.stack_of_program(&cut, 0);
        assert_ne!(cut, whole);
        let function = LockCall::WriteLock;
        let begins = |address| Sight::Event(What::UserWaitBegins { address, stack: cut });
        let sights = [
            Sight::Event(What::CallBegins { function, lock: 64, stack }),
            begins(64 + 16),
            // Of another lock, and after the call.
            begins(1000),
            Sight::Event(What::CallEnds { function, result: 0 }),
            begins(64),
        ];
        let mut seen = sights.map(|what| Seen { at_ns: 1, cpu: 0, thread: 7, what });
        kept.add_callers(&mut seen);
        let stacks: Vec<StackId> = seen
            .iter()
            .filter_map(|seen| match seen.what {
                Sight::Event(What::UserWaitBegins { stack, .. }) => Some(stack),
                _ => None,
            })
            .collect();
        assert_eq!(stacks, [whole, cut, cut]);
        // All other waits for this lock have one caller, or two.
        let wait = |stack| Seen {
            at_ns: 1,
            cpu: 0,
            thread: 7,
            what: Sight::Event(What::UserWaitBegins { address: 64, stack }),
        };
        let other = kept.stacks.stack(&[futex, lock, outer, outer]);
        let elsewhere = kept.stacks.stack(&[lock, outer]);
        let mut seen = [wait(cut), wait(whole), wait(elsewhere)];
        kept.add_callers(&mut seen);
        assert_eq!(seen[0], wait(whole));
        let mut seen = [wait(cut), wait(whole), wait(other)];
        kept.add_callers(&mut seen);
        assert_eq!(seen[0], wait(cut));
    }

    #[test]
    fn waits_that_recording_causes_are_left_out() {
        let frame = |name: &str, module: &str| Frame {
            function: Some(name.to_owned()),
            module: Some(module.to_owned()),
            ..Frame::default()
        };
        let functions = [
            "__pv_queued_spin_lock_slowpath",
            "handler_chain",
            "__perf_event_task_sched_in",
            "uprobe_mmap",
            "perf_trace_contention_begin",
            "vfs_read",
        ];
        let frames = functions.map(|name| frame(name, KERNEL));
        let recording = Recording {
            frames: frames.into_iter().chain([frame("perf_report", "server")]).collect(),
            stacks: vec![vec![0, 1], vec![0, 2], vec![3], vec![4, 0, 5], vec![0, 6]],
            ..Recording::default()
        };
        let event = |what| Event { at_ns: 1, cpu: 0, thread: 7, what };
        let begins = |stack| event(What::KernelWaitBegins { lock: 8, flags: 1, stack });
        let mut events: Vec<Event> = (0..5).map(begins).collect();
        events.push(event(What::KernelWaitUnderWay { stack: 2 }));
        events.push(event(What::UserWaitBegins { address: 64, stack: 0 }));
        let expected = [begins(3), begins(4), events[6]];
        leave_out_recording(&mut events, &recording);
        assert_eq!(events, expected);
    }

    #[test]
    fn a_thread_that_ends_waits_no_longer() {
        let spins = What::KernelWaitBegins { lock: 8, flags: 1, stack: 0 };
        let (begins, ends) = (Sight::Event(spins), Sight::Event(What::ThreadEnds));
        assert_eq!(made(&[(10, begins), (20, ends)]), [(10, spins), (20, What::ThreadEnds)]);
        let waited = [(5, found(false)), (20, ends)];
        assert_eq!(made(&waited), [(5, UNDER_WAY), (20, What::ThreadEnds)]);
        // There is nothing to say of one that did not wait, or no longer did.
        let free = Sight::Event(What::KernelWaitEnds { lock: 8, gave_up: false });
        assert_eq!(made(&[(10, begins), (15, free), (20, ends)]).len(), 2);
        // Of a last wait nobody may see the end.
        let unknown = [(21, spins), (21, What::ThreadEnds)];
        assert_eq!(made(&[(20, ends), (21, begins)]), unknown);
        let last = [(21, spins), (22, What::KernelWaitEnds { lock: 8, gave_up: false })];
        assert_eq!(made(&[(20, ends), (21, begins), (22, free)]), last);
    }

    #[test]
    fn the_end_of_a_last_wait_may_have_nobodys_number() {
        let spins = Sight::Event(What::KernelWaitBegins { lock: 8, flags: 1, stack: 0 });
        let free = Sight::Event(What::KernelWaitEnds { lock: 8, gave_up: false });
        let seen = |at_ns, thread, what| Seen { at_ns, cpu: 0, thread, what };
        let windows = [Window { part: Part::KernelWaits, from_ns: 0, to_ns: 100 }];
        let events = events(
            &[
                seen(10, 7, Sight::Event(What::ThreadEnds)),
                seen(11, 7, spins),
                seen(12, NOBODY, free),
                seen(13, NOBODY, free),
            ],
            &windows,
        );
        let told: Vec<_> = events.iter().map(|event| (event.at_ns, event.thread)).collect();
        assert_eq!(told, [(11, 7), (12, 7)]);
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
