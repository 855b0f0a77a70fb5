//! Recording a running system: what its threads wait for, at a cost that is bounded.
//!
//! The kernel writes records of chosen moments into a ring for each CPU, and this process reads them. Nothing of what is
//! recorded is stopped, changed or preloaded.
//!
//! | | |
//! |---|---|
//! | [`permission`] | whether this machine can be recorded, and what to do where it cannot |
//! | [`tracepoint`] | the kernel's tracepoints: numbers and fields |
//! | [`rings`] | where the kernel writes records |
//! | [`budget`] | what recording may cost |
//! | [`windows`] | when what was recorded |
//! | [`threads`] | who threads are |
//! | [`stacks`] | stacks of calls, each kept once |
//!
//! # What it costs
//!
//! A record takes a few µs of the thread that it is about, and more where others wait for that thread meanwhile. So each
//! part of the recording has a [budget](budget::Budget): where its events are rare it is always on, where they are frequent
//! it is on for a part of the time. [`Windows`](super::recorded::Window) say when it was.
//!
//! Not for: what the records mean, which is computed from the [`Recording`].

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use fairlock_report::machine;
use perf_event::data::Sample;
use perf_event::events::Tracepoint as TracepointEvent;

use super::names::Names;
use super::recorded::{Event, Part, Recording, StackId, System, What};

mod budget;
mod permission;
mod rings;
mod stacks;
mod threads;
mod tracepoint;
mod windows;

pub use permission::Refusal;

use budget::{Budget, Limits};
use permission::Facts;
use rings::{Kind, Opened, Read, Rings, Wanted};
use stacks::{Call, Stacks};
use threads::Threads;
use tracepoint::{Field, Tracefs, Tracepoint};
use windows::Windows;

/// What is recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The processes that the report is about; empty: all. Other processes are recorded too, but not where in them a wait
    /// was.
    pub pids: Vec<u32>,
    /// Calls of the C library's lock functions are recorded, too.
    pub traces_calls: bool,
    /// Everything is recorded all the time, whatever it costs the programs.
    pub records_everything: bool,
}

/// What waits in the kernel may cost: records of each CPU.
///
/// Measured on 2 CPUs, where 8 threads wait 250,000 times a second for one spin lock: a record then takes 16 µs of a CPU,
/// since its thread holds up the others, and 1,500 of them 2.4 % of its time. A window of 1,000 is over in 20 ms then.
const KERNEL_WAITS: Limits = Limits { per_second: 1500.0, most: 2000.0, worthwhile: 1000.0 };

/// So many events are kept, at 64 bytes each; of more, the older half is dropped.
const MOST_EVENTS: usize = 4 << 20;
/// The reader looks so often while there are records,
const BUSY: Duration = Duration::from_millis(10);
/// and so often while there are nearly none.
const IDLE: Duration = Duration::from_millis(50);
/// Records in one go that make it busy.
const MANY_RECORDS: u64 = 100;

/// The reader's niceness: before ordinary threads, after real-time ones.
const NICENESS: libc::c_int = -10;

const CONTENTION_BEGINS: Kind = 0;
const CONTENTION_ENDS: Kind = 1;

/// A recording under way.
pub struct Capture {
    options: Options,
    facts: Facts,
    rings: Rings,
    parts: Parts,
    windows: Windows,
    names: Names,
    kept: Kept,
    began: Began,
}

/// When the recording, or this part of it, began.
struct Began {
    date: String,
    at_ns: u64,
}

/// What can be recorded here.
struct Parts {
    kernel_waits: Option<KernelWaits>,
}

struct KernelWaits {
    begins: Opened,
    ends: Opened,
    budget: Budget,
    lock: Field,
    flags: Field,
    ended_lock: Field,
    result: Field,
    /// Waits that were under way when the last window ended, by thread: they may be still.
    under_way: HashMap<u32, Waiting>,
}

/// A wait in the kernel, and what tells that it is still the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    cpu: u32,
    lock: u64,
    flags: u32,
    stack: StackId,
    /// How often the thread has run.
    runs: u64,
}

/// What was read and is kept.
#[derive(Default)]
struct Kept {
    own_pid: u32,
    events: Vec<Event>,
    stacks: Stacks,
    threads: Threads,
    lost: u64,
    records: u64,
    notes: Vec<String>,
}

impl Capture {
    /// Begins to record.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn start(options: &Options) -> Result<Capture, Refusal> {
        let mut facts = Facts::find();
        let tracefs = Tracefs::find();
        facts.tracefs = tracefs.as_ref().err().map(io::Error::kind);
        let found = |name: &str| tracefs.as_ref().ok()?.tracepoint(name).ok();
        let contention = found("lock/contention_begin").zip(found("lock/contention_end"));
        let futexes = found("syscalls/sys_enter_futex").zip(found("syscalls/sys_exit_futex"));
        facts.has_contention = contention.is_some();
        facts.has_futexes = futexes.is_some();
        if let Some(refusal) = permission::refusal(&facts) {
            return Err(refusal);
        }
        Capture::open(options, &mut facts, contention).map_err(|error| {
            facts.perf_event_open = Some(error.raw_os_error().unwrap_or(libc::EINVAL));
            permission::refusal(&facts).expect("a call that fails is refused")
        })
    }

    fn open(
        options: &Options,
        facts: &mut Facts,
        contention: Option<(Tracepoint, Tracepoint)>,
    ) -> io::Result<Capture> {
        // Rings have to be read before they are full. It does no harm where that is not permitted.
        // SAFETY: the call takes numbers only.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, NICENESS) };
        let mut rings = Rings::new()?;
        let now = now_ns();
        let kernel_waits = contention
            .map(|(begin, end)| KernelWaits::new(&mut rings, &begin, &end, now))
            .transpose()?;
        let mut capture = Capture {
            options: options.clone(),
            facts: facts.clone(),
            rings,
            parts: Parts { kernel_waits },
            windows: Windows::default(),
            names: Names::new(),
            kept: Kept { own_pid: std::process::id(), ..Kept::default() },
            began: Began { date: machine::date(), at_ns: now },
        };
        capture.steer();
        Ok(capture)
    }

    /// Records until then, or until `stopped` says that it is enough, which it is asked at least every 50 ms.
    pub fn run_until(&mut self, end: Instant, stopped: &dyn Fn() -> bool) {
        loop {
            let read = self.read();
            self.steer();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || stopped() {
                return;
            }
            self.rings.wait(left.min(if read > MANY_RECORDS { BUSY } else { IDLE }));
        }
    }

    /// Everything since the start, or since the last call. Nothing is recorded until [`run_until`](Self::run_until) goes
    /// on; waits that are under way by then are recorded again.
    pub fn recording(&mut self) -> Recording {
        self.pause();
        let to_ns = now_ns();
        let mut events = std::mem::take(&mut self.kept.events);
        events.sort_by_key(|event| event.at_ns);
        let mut recording = Recording {
            system: System {
                date: std::mem::replace(&mut self.began.date, machine::date()),
                kernel: self.facts.kernel.clone(),
                cpus: self.rings.cpus().len() as u32,
                from_ns: std::mem::replace(&mut self.began.at_ns, to_ns),
                to_ns,
                pids: self.options.pids.clone(),
            },
            windows: self.windows.take(),
            lost: std::mem::take(&mut self.kept.lost),
            notes: permission::notes(&self.facts),
            ..Recording::default()
        };
        recording.notes.append(&mut self.kept.notes);
        recording.cost.records = std::mem::take(&mut self.kept.records);
        self.kept.name(&mut events, &mut self.names, &mut recording);
        recording.events = events;
        self.kept.threads.forget_ended();
        recording
    }

    /// Reads the rings; returns how many records there were.
    fn read(&mut self) -> u64 {
        let before = self.kept.records;
        let Capture { rings, parts, windows, kept, .. } = self;
        let _ = rings.read(&mut |place, read| {
            match read {
                Read::Sample(kind, sample) => {
                    kept.records += 1;
                    match (kind, &mut parts.kernel_waits) {
                        (CONTENTION_BEGINS | CONTENTION_ENDS, Some(waits)) => {
                            let was_spent = waits.budget.is_spent();
                            waits.budget.spend(place, 1.0);
                            if let Some(event) = waits.event(kind, sample, kept)
                                && windows.contains(Part::KernelWaits, event.at_ns)
                            {
                                kept.keep(event);
                            }
                            // The window is to end before the rest is read.
                            if !was_spent && waits.budget.is_spent() {
                                return ControlFlow::Break(());
                            }
                        }
                        _ => {}
                    }
                }
                Read::Comm(comm, is_new_program) => {
                    let name = String::from_utf8_lossy(&comm.comm).into_owned();
                    kept.threads.named(comm.tid, comm.pid, name, is_new_program);
                }
                Read::Fork(fork) => kept.threads.began(fork.tid, fork.pid, fork.ptid),
                Read::Exit(exit) => kept.threads.ended(exit.tid),
                Read::Mmap(_) => {}
                Read::Lost(records) => kept.lost += records,
            }
            ControlFlow::Continue(())
        });
        if let Some(from_ns) = self.kept.drop_older_half() {
            self.windows.cut(from_ns);
        }
        self.kept.records - before
    }

    /// Begins and ends windows, as budgets allow.
    fn steer(&mut self) {
        let now = now_ns();
        if let Some(waits) = &mut self.parts.kernel_waits {
            waits.budget.fill(now);
            let is_open = self.windows.is_open(Part::KernelWaits);
            if is_open && waits.budget.is_spent() && !self.options.records_everything {
                self.close_kernel_waits();
            } else if !is_open
                && (waits.budget.allows_a_window() || self.options.records_everything)
            {
                self.open_kernel_waits();
            }
        }
    }

    /// Ends all windows.
    fn pause(&mut self) {
        self.close_kernel_waits();
    }

    fn open_kernel_waits(&mut self) {
        let Some(waits) = &mut self.parts.kernel_waits else { return };
        // Ends first, so that each wait that is seen to begin can be seen to end.
        if let Err(error) = waits.ends.enable().and_then(|()| waits.begins.enable()) {
            self.kept.note(format!("Waits in the kernel could not be recorded: {error}."));
            return;
        }
        let from_ns = now_ns();
        self.windows.open(Part::KernelWaits, from_ns);
        for (tid, waiting) in waits.under_way.drain() {
            if runs(tid) == Some(waiting.runs) {
                let Waiting { cpu, lock, flags, stack, .. } = waiting;
                let what = What::KernelWaitBegins { lock, flags, stack };
                self.kept.keep(Event { at_ns: from_ns, cpu, thread: tid, what });
            }
        }
    }

    fn close_kernel_waits(&mut self) {
        let Some(window) = self.windows.latest(Part::KernelWaits) else { return };
        let Some(waits) = &mut self.parts.kernel_waits else { return };
        if !self.windows.is_open(Part::KernelWaits) {
            return;
        }
        self.windows.close(Part::KernelWaits, now_ns());
        waits.begins.disable();
        waits.ends.disable();
        self.read();
        let under_way = self.kept.kernel_waits_since(window.from_ns);
        if let Some(waits) = &mut self.parts.kernel_waits {
            waits.under_way = under_way;
        }
    }
}

impl KernelWaits {
    fn new(
        rings: &mut Rings,
        begin: &Tracepoint,
        end: &Tracepoint,
        now_ns: u64,
    ) -> io::Result<KernelWaits> {
        let with_calls = Wanted { kernel_calls: true, ..Wanted::default() };
        let begins =
            rings.open(CONTENTION_BEGINS, TracepointEvent::with_id(begin.id), with_calls, None)?;
        let ends = rings.open(
            CONTENTION_ENDS,
            TracepointEvent::with_id(end.id),
            Wanted::default(),
            None,
        )?;
        Ok(KernelWaits {
            begins,
            ends,
            budget: Budget::new(KERNEL_WAITS, rings.cpus().len(), now_ns),
            lock: begin.field("lock_addr"),
            flags: begin.field("flags"),
            ended_lock: end.field("lock_addr"),
            result: end.field("ret"),
            under_way: HashMap::new(),
        })
    }

    /// What a record says; none if it is about the recorder itself, or cut off.
    fn event(&self, kind: Kind, sample: &Sample, kept: &mut Kept) -> Option<Event> {
        let raw = sample.raw()?;
        if sample.pid()? == kept.own_pid {
            return None;
        }
        let what = if kind == CONTENTION_BEGINS {
            let stack = kept.kernel_stack(sample.callchain().unwrap_or_default());
            What::KernelWaitBegins {
                lock: self.lock.unsigned(raw)?,
                flags: self.flags.unsigned(raw)? as u32,
                stack,
            }
        } else {
            let gave_up = self.result.signed(raw)? != 0;
            What::KernelWaitEnds { lock: self.ended_lock.unsigned(raw)?, gave_up }
        };
        kept.event(sample, what)
    }
}

impl Kept {
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn event(&mut self, sample: &Sample, what: What) -> Option<Event> {
        let thread = sample.tid()?;
        self.threads.see(thread, sample.pid()?);
        Some(Event { at_ns: sample.time()?, cpu: sample.cpu()?, thread, what })
    }

    fn keep(&mut self, event: Event) {
        self.events.push(event);
    }

    /// If there are too many events; returns from when on they are kept.
    fn drop_older_half(&mut self) -> Option<u64> {
        if self.events.len() <= MOST_EVENTS {
            return None;
        }
        self.events.sort_by_key(|event| event.at_ns);
        let half = self.events.len() / 2;
        self.events.drain(..half);
        self.note(format!(
            "More than {MOST_EVENTS} events happened; the older ones were dropped, and the report is about the time since."
        ));
        self.events.first().map(|event| event.at_ns)
    }

    fn kernel_stack(&mut self, chain: &[u64]) -> StackId {
        let mut calls = Vec::with_capacity(chain.len());
        // Markers of what follows are at the very end of the address space.
        for &address in chain.iter().filter(|&&address| address < u64::MAX - 4095) {
            calls.push(self.stacks.call(Call::Kernel(address), 0, address));
        }
        self.stacks.stack(&calls)
    }

    /// Waits in the kernel that have begun since then and not ended.
    fn kernel_waits_since(&mut self, from_ns: u64) -> HashMap<u32, Waiting> {
        // Events are nearly in order, but for what the last reading brought from other CPUs.
        let earlier = from_ns.saturating_sub(1_000_000_000);
        let first = self
            .events
            .iter()
            .rposition(|event| event.at_ns < earlier)
            .map_or(0, |place| place + 1);
        let mut recent: Vec<&Event> =
            self.events[first..].iter().filter(|event| event.at_ns >= from_ns).collect();
        recent.sort_by_key(|event| event.at_ns);
        let mut waiting = HashMap::new();
        for event in recent {
            match event.what {
                What::KernelWaitBegins { lock, flags, stack } => {
                    waiting.insert(
                        event.thread,
                        Waiting { cpu: event.cpu, lock, flags, stack, runs: 0 },
                    );
                }
                What::KernelWaitEnds { .. } => {
                    waiting.remove(&event.thread);
                }
                _ => {}
            }
        }
        waiting.retain(|&tid, wait| runs(tid).is_some_and(|runs| (wait.runs = runs) == ()));
        waiting
    }

    /// Gives stacks and threads of these events to the recording, the stacks with new numbers.
    fn name(&mut self, events: &mut [Event], names: &mut Names, recording: &mut Recording) {
        let mut numbers: HashMap<StackId, StackId> = HashMap::new();
        let mut wanted = Vec::new();
        for event in &mut *events {
            if let Some(stack) = stack_of(&mut event.what) {
                let next = wanted.len() as StackId;
                *stack = *numbers.entry(*stack).or_insert_with_key(|&stack| {
                    wanted.push(stack);
                    next
                });
            }
        }
        self.stacks.name(&wanted, names);
        let mut places: HashMap<u32, std::ops::Range<u32>> = HashMap::new();
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
        for event in events {
            let mut add = |tid: u32| {
                if let Some(thread) = self.threads.get(tid) {
                    recording.threads.entry(tid).or_insert_with(|| thread.clone());
                }
            };
            add(event.thread);
            match event.what {
                What::Switch { to, .. } => add(to),
                What::Wakes { thread } => add(thread),
                _ => {}
            }
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

/// How often a thread has run, which tells whether it still waits as before; none: it has ended, or may not be looked at.
fn runs(tid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let count = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok()
    };
    Some(count("voluntary_ctxt_switches:")? + count("nonvoluntary_ctxt_switches:")?)
}

/// The kernel's `CLOCK_MONOTONIC`, which it stamps records with, ns.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux, and the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
