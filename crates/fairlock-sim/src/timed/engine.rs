//! The engine: takes the next event, and runs the thread that it concerns until that thread's
//! next operation.
//!
//! An operation costs time. A thread that begins one says when it takes effect, suspends its fiber
//! and is resumed at that moment; what it then does to memory is done before anybody else runs. If
//! nothing else is due before that moment, time skips to it and the fiber goes on at once.
//!
//! Invariants
//! 1. A fiber runs only while its thread is its CPU's `current` and is `Doing::Nothing`.
//! 2. A thread is on a run queue exactly while it is `Ready`, and is some CPU's `current` exactly
//!    while it is neither `Ready`, `Asleep` nor `Ended`.
//! 3. An event that names a thread's number is void once the number has changed.
//! 4. A CPU's time belongs to the thread that is its `current`: while that is `Starting`, to the
//!    kernel that switches to it (or to nobody, while an idle CPU wakes up); from then on, to the
//!    kernel for as long as an operation was spent in it (`spend_in_kernel`) or an interrupt
//!    took, and else to the thread itself. Nobody's time is idle.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::cpus::{Cpu, Cpus, Entity};
use super::device::{self, Device, Submitted};
use super::events::{Event, Events};
use super::lines::{Access, Known, LineId, Lines, Service};
use super::random::{Random, sigma};
use super::timeline::Recorder;
use super::{Activity, Counts, Happening, ORIGIN, Ps, Report, Setup, ThreadReport, ps};
use crate::profile::Profile;

/// What a thread is in the middle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Its fiber runs, or is about to.
    Nothing,
    /// Something short that no other thread interrupts.
    Operation,
    /// Uses the CPU until this moment.
    Computing(Ps),
    /// Uses the CPU until a line it has read is written.
    Watching,
    /// Was given a CPU and starts soon.
    Starting,
    /// Waits for a CPU.
    Ready,
    /// Waits for a wake-up, a deadline or the disk.
    Asleep,
    Ended,
}

/// Lines that a spin looks at.
const MOST_READS: usize = 4;

#[derive(Debug)]
struct Task {
    doing: Doing,
    number: u32,
    /// Of a computation that was interrupted.
    left: Ps,
    /// To interrupts, since its present operation or computation began: that much later it ends.
    lost: Ps,
    /// The line that it accessed last: next it often accesses another word there.
    accessed: Known,
    /// Lines read since the last look away, with their versions.
    reads: [(LineId, u32); MOST_READS],
    reads_len: usize,
    /// The word it sleeps on.
    parked_on: Option<usize>,
    turn: u32,
    /// How often it asked not to be preempted and has not taken that back.
    unpreempted: u32,
    /// Since when it watches, if it does.
    watches_since: Ps,
    spun: Ps,
    /// In the kernel, while it was `current` and no longer `Starting`.
    in_kernel: Ps,
    /// Of the CPUs that switched to it.
    switched: Ps,
    report: ThreadReport,
}

impl Task {
    /// A turn of watching is over.
    fn note_spin(&mut self, now: Ps) {
        if self.doing == Doing::Watching {
            self.spun += now - self.watches_since;
        }
    }

    /// All that is known of it, after it ran for so long.
    fn report(&self, ran: Ps) -> ThreadReport {
        ThreadReport {
            // In the midst of a run, time in the kernel may be booked before it has passed.
            user_ns: ran.saturating_sub(self.in_kernel) / 1000,
            system_ns: (self.in_kernel + self.switched) / 1000,
            spinning_ns: self.spun / 1000,
            ..self.report
        }
    }
}

/// What was counted up to a moment.
#[derive(Debug, Clone)]
struct Tally {
    at: Ps,
    counts: Counts,
    threads: Vec<ThreadReport>,
}

impl Tally {
    fn nothing(threads: usize) -> Tally {
        let threads = vec![ThreadReport::default(); threads];
        Tally { at: ORIGIN, counts: Counts::default(), threads }
    }

    /// What was counted since then; `at` is how long ago that was.
    fn since(&self, begin: &Tally) -> Tally {
        let threads = self.threads.iter().zip(&begin.threads);
        Tally {
            at: self.at - begin.at,
            counts: self.counts.since(&begin.counts),
            threads: threads.map(|(end, begin)| end.since(begin)).collect(),
        }
    }
}

/// Times that operations look up, in ps.
#[derive(Debug)]
struct Costs {
    step: Ps,
    pause: Ps,
    clock: Ps,
    observe: Ps,
    smt_slowdown: f64,
    smt_spin: f64,
    switch: Ps,
    migration: Ps,
    wake_call: Ps,
    wake_remote: Ps,
    wake_lines: u64,
    wake_nobody: Ps,
    sleep: Ps,
    load: Ps,
    barrier_call: Ps,
    barrier_wait: Ps,
    barrier_each: Ps,
    interrupt: Ps,
    /// `(idle at least, median, sigma)`, ascending.
    wakenings: Vec<(Ps, f64, f64)>,
}

impl Costs {
    fn new(profile: &Profile) -> Costs {
        let (cost, wake, barrier) = (&profile.cost, &profile.wake, &profile.barrier);
        Costs {
            step: ps(cost.step_ns),
            pause: ps(cost.pause_ns).max(1),
            clock: ps(cost.clock_ns),
            observe: ps(cost.observe_ns),
            smt_slowdown: cost.smt_slowdown,
            smt_spin: cost.smt_spin,
            switch: ps(profile.schedule.switch_ns),
            migration: ps(profile.schedule.migration_ns),
            wake_call: ps(wake.call_ns),
            wake_remote: ps(wake.remote_ns),
            wake_lines: wake.lines.into(),
            wake_nobody: ps(wake.nobody_ns),
            sleep: ps(wake.sleep_ns),
            load: ps(cost.load_ns),
            barrier_call: ps(barrier.call_ns),
            barrier_wait: ps(barrier.wait_ns),
            barrier_each: ps(barrier.each_ns),
            interrupt: ps(barrier.interrupt_ns),
            wakenings: wake
                .idle
                .iter()
                .map(|it| (ps(it.idle_ns), it.p50_ns * 1e3, sigma(it.p50_ns, it.p99_ns)))
                .collect(),
        }
    }
}

/// A fiber that gives up its time slice to nobody naps this long after so many attempts, as on
/// real threads.
const YIELDS: u32 = 16;
const NAP: Ps = 50_000_000;
/// After so many operations without an event a thread lets the engine look around.
const MOST_SKIPS: u32 = 1000;

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) now: Ps,
    random: Random,
    events: Events,
    lines: Lines,
    cpus: Cpus,
    device: Device,
    entities: Vec<Entity>,
    tasks: Vec<Task>,
    parked: HashMap<usize, VecDeque<u32>>,
    /// Whose fiber runs.
    current: u32,
    pub(super) alive: usize,
    skips: u32,
    counts: Counts,
    /// What had been counted when counting began and ended, where somebody said so.
    count_begin: Option<Tally>,
    count_end: Option<Tally>,
    costs: Costs,
    woken_watchers: Vec<u32>,
    pub(super) wake_latency: u32,
    recorder: Recorder,
}

impl Engine {
    pub(super) fn new(setup: &Setup<'_>, priorities: &[u8]) -> Engine {
        let profile = setup.profile;
        let entity = |(index, &priority): (usize, &u8)| Entity {
            priority,
            pinned: setup.pinned,
            cpu: profile.topology.place_thread(profile.schedule.placement, index as u32),
            vruntime: 0,
            runs_since: ORIGIN,
            ran: 0,
            ready_order: 0,
        };
        let task = |_: &u8| Task {
            doing: Doing::Asleep,
            number: 0,
            left: 0,
            lost: 0,
            accessed: Known::NOTHING,
            reads: [(0, 0); MOST_READS],
            reads_len: 0,
            parked_on: None,
            turn: 0,
            unpreempted: 0,
            watches_since: 0,
            spun: 0,
            in_kernel: 0,
            switched: 0,
            report: ThreadReport::default(),
        };
        let mut engine = Engine {
            now: ORIGIN,
            random: Random::new(setup.seed),
            events: Events::default(),
            lines: Lines::new(profile, setup.seed),
            cpus: Cpus::new(profile),
            device: Device::new(&profile.device),
            entities: priorities.iter().enumerate().map(entity).collect(),
            tasks: priorities.iter().map(task).collect(),
            parked: HashMap::new(),
            current: 0,
            alive: priorities.len(),
            skips: 0,
            counts: Counts::default(),
            count_begin: None,
            count_end: None,
            costs: Costs::new(profile),
            woken_watchers: Vec::new(),
            wake_latency: fairlock::platform::WAKE_LATENCY_AT_FIRST,
            recorder: Recorder::new(setup.timeline_ns, priorities.len()),
        };
        for thread in 0..priorities.len() as u32 {
            let cpu = engine.entities[thread as usize].cpu;
            if engine.cpus.is_idle(cpu) {
                engine.assign(thread, cpu, 0);
            } else {
                engine.enqueue(thread);
                engine.preempt_for(thread);
            }
        }
        engine
    }

    pub(super) fn report(self) -> Report {
        let end = self.count_end.clone().unwrap_or_else(|| self.tally());
        let Tally { at, counts, threads } = match &self.count_begin {
            Some(begin) => end.since(begin),
            None => end.since(&Tally::nothing(self.tasks.len())),
        };
        Report {
            elapsed_ns: (self.now - ORIGIN) / 1000,
            counted_ns: at / 1000,
            cpus: self.cpus.cpus.len() as u32,
            threads,
            counts,
            timeline: self.recorder.finish(self.now),
        }
    }

    /// All that was counted up to now.
    fn tally(&self) -> Tally {
        let threads = self.tasks.iter().zip(&self.entities).enumerate();
        let report = |(thread, (task, entity)): (usize, (&Task, &Entity))| {
            let runs = self.cpus.cpus[entity.cpu as usize].current == Some(thread as u32);
            let unbooked = if runs { self.now.saturating_sub(entity.runs_since) } else { 0 };
            task.report(entity.ran + unbooked)
        };
        Tally { at: self.now, counts: self.counts, threads: threads.map(report).collect() }
    }

    /// What was counted until now does not count; see [`super::begin_counting`].
    pub(super) fn begin_counting(&mut self) {
        self.count_begin = Some(self.tally());
    }

    /// What is counted from now on does not count; see [`super::end_counting`].
    pub(super) fn end_counting(&mut self) {
        if self.count_end.is_none() {
            self.count_end = Some(self.tally());
        }
    }

    // ---- events ----

    /// Lets the next event happen and answers the thread that goes on; `None` if nothing will
    /// ever happen again.
    pub(super) fn next(&mut self) -> Option<Option<u32>> {
        let (at, event) = self.events.pop()?;
        assert!(at >= self.now, "time does not run backwards");
        self.now = at;
        self.counts.events += 1;
        Some(self.happen(event))
    }

    fn happen(&mut self, event: Event) -> Option<u32> {
        match event {
            Event::Step(thread, number) => return self.step(thread, number),
            Event::Deadline(thread, number) => return self.deadline(thread, number),
            Event::Start(thread) => return self.start(thread),
            Event::Slice(cpu, look) => self.look_at_slice(cpu, look),
            Event::LineFree(line) => self.line_free(line),
            Event::DeviceDone(thread) => self.device_done(thread),
        }
        None
    }

    /// The time until which the thread wanted to wait has come.
    fn deadline(&mut self, thread: u32, number: u32) -> Option<u32> {
        let task = &mut self.tasks[thread as usize];
        if task.number != number {
            return None;
        }
        if task.doing != Doing::Asleep {
            return self.step(thread, number);
        }
        if let Some(address) = task.parked_on.take() {
            let queue = self.parked.get_mut(&address).expect("it sleeps there");
            queue.retain(|&other| other != thread);
        }
        self.wake(thread, None);
        None
    }

    /// The thread's CPU has been switched to it.
    fn start(&mut self, thread: u32) -> Option<u32> {
        let (cpu, doing) = (self.entities[thread as usize].cpu, self.tasks[thread as usize].doing);
        assert_eq!(self.cpus.cpus[cpu as usize].current, Some(thread));
        assert_eq!(doing, Doing::Starting);
        self.plan_slice(cpu);
        if self.cpus.cpus[cpu as usize].resched {
            self.switch_out(thread);
            return None;
        }
        let left = std::mem::take(&mut self.tasks[thread as usize].left);
        self.record(thread, Activity::Runs);
        self.begin(thread, Doing::Computing(self.now + left), self.now + left);
        let number = self.tasks[thread as usize].number;
        if left == 0 { self.step(thread, number) } else { None }
    }

    /// The cache line can serve the next request.
    fn line_free(&mut self, line: LineId) {
        let next = self.lines.serve_next(line, self.now, &mut self.counts);
        if let Some((thread, done, more)) = next {
            let number = self.tasks[thread as usize].number;
            let cpu = self.entities[thread as usize].cpu;
            let done = done + self.slowed(cpu, self.costs.step);
            self.events.at(done, Event::Step(thread, number));
            if more {
                let free = self.lines.free_at(line).max(self.now);
                self.events.at(free, Event::LineFree(line));
            }
        }
    }

    /// The device has done what the thread waits for.
    fn device_done(&mut self, thread: u32) {
        let (next, place_for) = self.device.finished(&mut self.random);
        if let Some((next, time)) = next {
            self.events.at(self.now + time, Event::DeviceDone(next));
        }
        if let Some(refused) = place_for {
            self.wake(refused, None);
        }
        self.wake(thread, None);
    }

    /// The thread's operation, computation or watch is over.
    fn step(&mut self, thread: u32, number: u32) -> Option<u32> {
        let task = &mut self.tasks[thread as usize];
        if task.number != number {
            return None;
        }
        // Voids what else was planned for it.
        task.number += 1;
        if task.lost > 0 {
            let until = self.now + std::mem::take(&mut task.lost);
            let doing = match task.doing {
                Doing::Computing(_) => Doing::Computing(until),
                doing => doing,
            };
            self.begin(thread, doing, until);
            return None;
        }
        if self.is_to_leave(thread) {
            self.switch_out(thread);
            return None;
        }
        if self.tasks[thread as usize].doing == Doing::Watching {
            self.record(thread, Activity::Runs);
        }
        let task = &mut self.tasks[thread as usize];
        task.note_spin(self.now);
        task.doing = Doing::Nothing;
        self.current = thread;
        Some(thread)
    }

    fn look_at_slice(&mut self, cpu: u32, look: u32) {
        let state = &mut self.cpus.cpus[cpu as usize];
        if state.slice_look != look {
            return;
        }
        state.slice_planned = false;
        if state.ready.is_empty() {
            return;
        }
        self.move_to_idle(cpu);
        let state = &self.cpus.cpus[cpu as usize];
        let Some(running) = state.current else { return };
        if !state.ready.is_empty() {
            if self.cpus.is_over(&self.entities[running as usize], self.now) {
                self.reschedule(cpu);
            }
            self.plan_slice(cpu);
        }
    }

    /// The tick's balancing: a thread that waits here goes to an idle CPU, wherever that is.
    fn move_to_idle(&mut self, cpu: u32) {
        let ready = &self.cpus.cpus[cpu as usize].ready;
        let Some(at) = ready.iter().position(|&it| !self.entities[it as usize].pinned) else {
            return;
        };
        let cpus = self.cpus.cpus.len() as u32;
        let Some(idle) =
            (1..cpus).map(|away| (cpu + away) % cpus).find(|&it| self.cpus.is_idle(it))
        else {
            return;
        };
        let thread = self.cpus.cpus[cpu as usize].ready.swap_remove(at);
        let latency = self.wake_latency_of(idle);
        self.assign(thread, idle, latency);
    }

    // ---- scheduling ----

    fn begin(&mut self, thread: u32, doing: Doing, until: Ps) {
        let task = &mut self.tasks[thread as usize];
        task.doing = doing;
        task.number += 1;
        if until > self.now {
            self.events.at(until, Event::Step(thread, task.number));
        }
    }

    /// Gives a CPU that runs nobody to a thread, which starts after `delay`. What that is longer than a
    /// switch, an idle CPU has woken up.
    fn assign(&mut self, thread: u32, cpu: u32, delay: Ps) {
        let (entity, task) =
            (&mut self.entities[thread as usize], &mut self.tasks[thread as usize]);
        task.switched += delay.min(self.costs.switch);
        let mut delay = delay;
        if entity.cpu != cpu {
            entity.cpu = cpu;
            task.report.migrations += 1;
            task.switched += self.costs.migration;
            delay += self.costs.migration;
        }
        let state = &mut self.cpus.cpus[cpu as usize];
        assert_eq!(state.current, None);
        state.current = Some(thread);
        state.resched = false;
        self.counts.switches += 1;
        self.entities[thread as usize].runs_since = self.now + delay;
        self.tasks[thread as usize].doing = Doing::Starting;
        self.record(thread, Activity::Ready);
        self.events.at(self.now + delay, Event::Start(thread));
    }

    fn enqueue(&mut self, thread: u32) {
        self.tasks[thread as usize].doing = Doing::Ready;
        self.record(thread, Activity::Ready);
        let entity = &mut self.entities[thread as usize];
        let cpu = entity.cpu;
        self.cpus.enqueue(thread, entity);
        self.plan_slice(cpu);
    }

    fn plan_slice(&mut self, cpu: u32) {
        let state = &self.cpus.cpus[cpu as usize];
        if state.ready.is_empty() || state.slice_planned {
            return;
        }
        let Some(running) = state.current else { return };
        let ends = self.cpus.slice_ends(&self.entities[running as usize], self.now);
        let state = &mut self.cpus.cpus[cpu as usize];
        state.slice_planned = true;
        state.slice_look += 1;
        let look = state.slice_look;
        self.events.at(ends, Event::Slice(cpu, look));
    }

    /// The running thread is to leave the CPU, now or at the end of its operation.
    fn reschedule(&mut self, cpu: u32) {
        let Some(running) = self.cpus.cpus[cpu as usize].current else { return };
        let task = &mut self.tasks[running as usize];
        match task.doing {
            _ if task.unpreempted > 0 => self.cpus.cpus[cpu as usize].resched = true,
            Doing::Computing(until) => {
                task.left = until - self.now;
                task.number += 1;
                self.switch_out(running);
            }
            Doing::Watching => {
                task.number += 1;
                self.switch_out(running);
            }
            _ => self.cpus.cpus[cpu as usize].resched = true,
        }
    }

    /// Whether a running thread's CPU is for somebody else, as soon as the thread may be preempted.
    fn is_to_leave(&self, thread: u32) -> bool {
        let cpu = self.entities[thread as usize].cpu;
        self.cpus.cpus[cpu as usize].resched && self.tasks[thread as usize].unpreempted == 0
    }

    /// A running thread is preempted.
    fn switch_out(&mut self, thread: u32) {
        let task = &mut self.tasks[thread as usize];
        task.note_spin(self.now);
        task.report.involuntary_switches += 1;
        self.leave_cpu(thread);
        self.enqueue(thread);
        let cpu = self.entities[thread as usize].cpu;
        self.run_next(cpu);
    }

    fn leave_cpu(&mut self, thread: u32) {
        let entity = &mut self.entities[thread as usize];
        self.cpus.book(entity, self.now);
        self.cpus.cpus[entity.cpu as usize].current = None;
    }

    fn run_next(&mut self, cpu: u32) {
        self.cpus.cpus[cpu as usize].resched = false;
        let next = self.cpus.take_next(cpu, &self.entities, self.now);
        match next.or_else(|| self.cpus.steal(cpu, &self.entities)) {
            Some(thread) => self.assign(thread, cpu, self.costs.switch),
            None => self.cpus.cpus[cpu as usize].idle_since = self.now,
        }
    }

    /// The running thread sleeps; its fiber suspends itself right after.
    fn fall_asleep(&mut self, thread: u32, deadline: Option<Ps>) {
        let task = &mut self.tasks[thread as usize];
        task.doing = Doing::Asleep;
        task.number += 1;
        task.report.voluntary_switches += 1;
        if let Some(deadline) = deadline {
            self.events.at(deadline.max(self.now), Event::Deadline(thread, task.number));
        }
        self.record(thread, Activity::Sleeps);
        self.leave_cpu(thread);
        let cpu = self.entities[thread as usize].cpu;
        self.run_next(cpu);
    }

    fn wake(&mut self, thread: u32, by: Option<u32>) {
        assert_eq!(self.tasks[thread as usize].doing, Doing::Asleep);
        self.tasks[thread as usize].number += 1;
        self.counts.wakeups += 1;
        if let Some(by) = by {
            let cpu = self.entities[by as usize].cpu;
            self.recorder.moment(thread, cpu, self.now, Happening::Woken { by });
        }
        let waker_cpu = by.map(|by| self.entities[by as usize].cpu);
        let cpu = self.cpus.choose(&self.entities[thread as usize], waker_cpu);
        if self.cpus.is_idle(cpu) {
            let latency = self.wake_latency_of(cpu);
            self.cpus.place_woken(&mut self.entities[thread as usize]);
            self.assign(thread, cpu, latency);
            return;
        }
        let entity = &mut self.entities[thread as usize];
        entity.cpu = cpu;
        self.cpus.place_woken(entity);
        self.enqueue(thread);
        self.preempt_for(thread);
    }

    /// Whether a thread that became ready takes the CPU from the running one, and if so, does.
    fn preempt_for(&mut self, thread: u32) {
        let ready = &self.entities[thread as usize];
        let cpu = ready.cpu;
        let Some(running) = self.cpus.cpus[cpu as usize].current else { return };
        if self.cpus.preempts(ready, &self.entities[running as usize], self.now) {
            self.reschedule(cpu);
        }
    }

    /// From the call to running on an idle CPU.
    fn wake_latency_of(&mut self, cpu: u32) -> Ps {
        let idle = self.now.saturating_sub(self.cpus.cpus[cpu as usize].idle_since);
        let entry = self.costs.wakenings.iter().rev().find(|&&(from, ..)| idle >= from);
        let &(_, median, sigma) = entry.unwrap_or(&self.costs.wakenings[0]);
        self.random.lognormal(median, sigma) as Ps
    }

    fn record(&mut self, thread: u32, activity: Activity) {
        if self.recorder.is_on() {
            let cpu = self.entities[thread as usize].cpu;
            self.recorder.activity(thread, cpu, self.now, activity);
        }
    }

    // ---- what a running thread does; true: its fiber has to suspend itself ----

    /// Uses the CPU for a short while.
    #[inline]
    pub(super) fn spend(&mut self, time: Ps) -> bool {
        self.reach(self.now + time)
    }

    /// As [`Self::spend`], as part of a call.
    fn spend_in_kernel(&mut self, time: Ps) -> bool {
        self.tasks[self.current as usize].in_kernel += time;
        self.spend(time)
    }

    /// As [`Self::spend`], to wait.
    fn spend_spinning(&mut self, time: Ps) -> bool {
        self.tasks[self.current as usize].spun += time;
        self.spend(time)
    }

    pub(super) fn spend_clock(&mut self) -> bool {
        self.spend(self.costs.clock)
    }

    pub(super) fn spend_observe(&mut self) -> bool {
        self.costs.observe != 0 && self.spend(self.costs.observe)
    }

    /// An operation that takes effect at this moment.
    #[inline]
    fn reach(&mut self, moment: Ps) -> bool {
        if self.may_skip_to(moment) {
            self.now = moment;
            self.counts.events += 1;
            return false;
        }
        self.begin_step(Doing::Operation, moment);
        true
    }

    fn begin_step(&mut self, doing: Doing, until: Ps) {
        let task = &mut self.tasks[self.current as usize];
        task.doing = doing;
        task.number += 1;
        self.events.at(until, Event::Step(self.current, task.number));
    }

    #[inline]
    fn may_skip_to(&mut self, moment: Ps) -> bool {
        self.skips += 1;
        let cpu = self.entities[self.current as usize].cpu;
        let free = self.events.next_at() > moment
            && !self.cpus.cpus[cpu as usize].resched
            && self.skips < MOST_SKIPS;
        if !free {
            self.skips = 0;
        }
        free
    }

    /// Where the threads' stacks are.
    pub(super) fn set_stacks(&mut self, stacks: impl Iterator<Item = Range<usize>>) {
        self.lines.set_stacks(stacks);
    }

    /// The running thread is done with a word.
    pub(super) fn gone(&mut self, address: usize) {
        self.lines.gone(address);
    }

    /// Asks for a line.
    #[inline]
    pub(super) fn access(&mut self, address: usize, access: Access) -> bool {
        let line = self.line_at(address);
        let thread = self.current;
        let cpu = self.entities[thread as usize].cpu;
        match self.lines.request(line, (thread, cpu), access, self.now, &mut self.counts) {
            Service::At(moment) => self.reach(moment + self.slowed(cpu, self.costs.step)),
            Service::Queued(first) => {
                let task = &mut self.tasks[thread as usize];
                task.doing = Doing::Operation;
                task.number += 1;
                if let Some(at) = first {
                    self.events.at(at, Event::LineFree(line));
                }
                true
            }
        }
    }

    /// The line at an address that the running thread accesses.
    #[inline]
    fn line_at(&mut self, address: usize) -> LineId {
        self.lines.at_known(address, &mut self.tasks[self.current as usize].accessed)
    }

    /// A load took effect.
    #[inline]
    pub(super) fn note_read(&mut self, address: usize) {
        let line = self.line_at(address);
        let version = self.lines.version(line);
        let task = &mut self.tasks[self.current as usize];
        let known = task.reads[..task.reads_len].iter_mut().find(|(id, _)| *id == line);
        if let Some(read) = known {
            read.1 = version;
        } else if task.reads_len < MOST_READS {
            task.reads[task.reads_len] = (line, version);
            task.reads_len += 1;
        } else {
            task.reads.rotate_left(1);
            task.reads[MOST_READS - 1] = (line, version);
        }
    }

    /// A write took effect: those that watched look again.
    #[inline]
    pub(super) fn note_write(&mut self, address: usize) {
        let line = self.line_at(address);
        let mut watchers = std::mem::take(&mut self.woken_watchers);
        self.lines.written(line, &mut watchers);
        for &thread in &watchers {
            if self.tasks[thread as usize].doing == Doing::Watching {
                // It may be anywhere in its turn.
                let notice = self.random.below(self.costs.pause + self.costs.load);
                self.begin(thread, Doing::Watching, self.now + notice + 1);
            }
        }
        watchers.clear();
        self.woken_watchers = watchers;
    }

    /// What takes this time while the core's other threads are idle.
    #[inline]
    fn slowed(&self, cpu: u32, time: Ps) -> Ps {
        if self.costs.smt_slowdown == 1.0 {
            return time;
        }
        let slowdown = |sibling: u32| match self.cpus.cpus[sibling as usize].current {
            None => 1.0,
            Some(it) if self.tasks[it as usize].doing == Doing::Watching => self.costs.smt_spin,
            Some(_) => self.costs.smt_slowdown,
        };
        let slowest = self.cpus.siblings(cpu).map(slowdown).fold(1.0, f64::max);
        if slowest == 1.0 { time } else { (time as f64 * slowest) as Ps }
    }

    pub(super) fn compute(&mut self, pauses: u32) -> bool {
        self.work(self.costs.pause * u64::from(pauses))
    }

    pub(super) fn work(&mut self, mut time: Ps) -> bool {
        time = self.slowed(self.entities[self.current as usize].cpu, time);
        if time == 0 {
            return false;
        }
        let until = self.now + time;
        if self.may_skip_to(until) {
            self.now = until;
            self.counts.events += 1;
            return false;
        }
        self.begin_step(Doing::Computing(until), until);
        true
    }

    /// A turn of a spin. Answers whether to suspend; the fiber then calls [`Self::unwatch`].
    pub(super) fn relax(&mut self, until: Option<Ps>) -> bool {
        let thread = self.current;
        let task = &self.tasks[thread as usize];
        let reads = &task.reads[..task.reads_len];
        let changed = reads.iter().any(|&(line, version)| self.lines.version(line) != version);
        if changed || reads.is_empty() {
            return self.spend_spinning(self.costs.pause);
        }
        if until.is_some_and(|until| until <= self.now) {
            return false;
        }
        for at in 0..self.tasks[thread as usize].reads_len {
            let (line, _) = self.tasks[thread as usize].reads[at];
            self.lines.watch(line, thread);
        }
        self.record(thread, Activity::Spins);
        let task = &mut self.tasks[thread as usize];
        task.doing = Doing::Watching;
        task.watches_since = self.now;
        task.number += 1;
        let number = task.number;
        if let Some(until) = until {
            self.events.at(until, Event::Deadline(thread, number));
        }
        if self.is_to_leave(thread) {
            self.events.at(self.now, Event::Step(thread, number));
        }
        true
    }

    /// The look away is over; what was read before it is forgotten.
    pub(super) fn unwatch(&mut self) {
        let thread = self.current;
        let len = std::mem::take(&mut self.tasks[thread as usize].reads_len);
        for at in 0..len {
            let (line, _) = self.tasks[thread as usize].reads[at];
            self.lines.unwatch(line, thread);
        }
    }

    // ---- scheduling, by the thread itself ----

    /// It keeps its CPU until it has taken that back as often.
    pub(super) fn forbid_preemption(&mut self) {
        self.tasks[self.current as usize].unpreempted += 1;
    }

    /// What was put off happens at the end of its next operation.
    pub(super) fn allow_preemption(&mut self) {
        let unpreempted = &mut self.tasks[self.current as usize].unpreempted;
        assert!(*unpreempted > 0, "preemption was not forbidden");
        *unpreempted -= 1;
    }

    /// Somebody else should have its CPU.
    pub(super) fn is_to_yield(&self) -> bool {
        let cpu = self.entities[self.current as usize].cpu;
        self.cpus.cpus[cpu as usize].resched
    }

    pub(super) fn is_on_cpu(&self, thread: usize) -> bool {
        let task = &self.tasks[thread];
        !matches!(task.doing, Doing::Starting | Doing::Ready | Doing::Asleep | Doing::Ended)
    }

    pub(super) fn ticks(&self, time: Ps) -> u64 {
        time / self.cpus.tick
    }

    /// It stays on this CPU from now on.
    pub(super) fn stay(&mut self) {
        self.entities[self.current as usize].pinned = true;
    }

    // ---- sleeping ----

    pub(super) fn spend_sleep(&mut self) -> bool {
        self.spend_in_kernel(self.costs.sleep)
    }

    /// The way into the kernel and to the queue of sleepers: three quarters of a call that finds
    /// nobody there. The rest is the way back.
    pub(super) fn spend_way_in(&mut self) -> bool {
        self.spend_in_kernel(self.way_in())
    }

    pub(super) fn spend_way_back(&mut self) -> bool {
        self.spend_in_kernel(self.costs.wake_nobody - self.way_in())
    }

    /// What is left of going to sleep after the way in.
    pub(super) fn spend_rest_of_sleep(&mut self) -> bool {
        self.spend_in_kernel(self.costs.sleep.saturating_sub(self.way_in()))
    }

    fn way_in(&self) -> Ps {
        self.costs.wake_nobody / 4 * 3
    }

    pub(super) fn spend_wake_nobody(&mut self) -> bool {
        self.spend_in_kernel(self.costs.wake_nobody)
    }

    /// The rest of a call that has woken a thread which ran on the CPU `before` and will on `next`.
    pub(super) fn spend_wake(&mut self, (before, next): (u32, u32)) -> bool {
        let here = self.entities[self.current as usize].cpu;
        let rest = self.costs.wake_call.saturating_sub(self.costs.wake_nobody);
        let remote = if next == here { 0 } else { self.costs.wake_remote };
        let fetched = if before == here { 0 } else { self.lines.between(here, before) };
        self.spend_in_kernel(rest + remote + self.costs.wake_lines * fetched)
    }

    pub(super) fn sleep_until(&mut self, moment: Ps) {
        self.fall_asleep(self.current, Some(moment));
    }

    /// The running thread can be woken from now on, though it does not sleep yet.
    pub(super) fn park(&mut self, address: usize) {
        let thread = self.current;
        self.parked.entry(address).or_default().push_back(thread);
        self.tasks[thread as usize].parked_on = Some(address);
    }

    /// Sleeps, unless it was woken since [`Self::park`].
    pub(super) fn sleep_if_parked(&mut self, deadline: Option<Ps>) -> bool {
        let thread = self.current;
        let parked = self.tasks[thread as usize].parked_on.is_some();
        if parked {
            self.fall_asleep(thread, deadline);
        }
        parked
    }

    /// How long a turn of a spin takes.
    pub(super) fn pause(&self) -> Ps {
        self.costs.pause
    }

    /// How many threads are parked there, those included that are only about to sleep.
    pub(super) fn parked_at(&self, address: usize) -> u32 {
        self.parked.get(&address).map_or(0, |parked| parked.len() as u32)
    }

    /// Wakes a thread that is parked there and answers where it ran and will run. None if nobody
    /// sleeps there; one that is about to does not.
    pub(super) fn unpark(&mut self, address: usize) -> Option<(u32, u32)> {
        let thread = self.parked.get_mut(&address)?.pop_front()?;
        self.tasks[thread as usize].parked_on = None;
        if self.tasks[thread as usize].doing != Doing::Asleep {
            return None;
        }
        let before = self.entities[thread as usize].cpu;
        self.wake(thread, Some(self.current));
        Some((before, self.entities[thread as usize].cpu))
    }

    /// Lets another thread have the CPU, if one waits for it.
    pub(super) fn give_way(&mut self, attempt: u32) -> bool {
        let thread = self.current;
        if self.tasks[thread as usize].unpreempted > 0 {
            // Whoever got the CPU might wait for this thread, and keep the CPU meanwhile.
            return self.spend_spinning(self.costs.pause);
        }
        if attempt >= YIELDS {
            self.fall_asleep(thread, Some(self.now + NAP));
            return true;
        }
        let cpu = self.entities[thread as usize].cpu;
        let ready = &self.cpus.cpus[cpu as usize].ready;
        let last = ready.iter().map(|&it| self.entities[it as usize].vruntime).max();
        let Some(last) = last else {
            return self.spend_in_kernel(self.costs.wake_nobody);
        };
        self.leave_cpu(thread);
        let entity = &mut self.entities[thread as usize];
        entity.vruntime = entity.vruntime.max(last);
        self.tasks[thread as usize].report.voluntary_switches += 1;
        self.enqueue(thread);
        self.run_next(cpu);
        true
    }

    pub(super) fn priority(&self, thread: usize) -> u8 {
        self.entities[thread].priority
    }

    /// Gives a thread another priority; whoever should run now on its CPU does, at the latest when
    /// the caller's operation ends.
    pub(super) fn set_priority(&mut self, thread: usize, priority: u8) {
        let cpu = self.entities[thread].cpu as usize;
        let running = self.cpus.cpus[cpu].current;
        if running == Some(thread as u32) && self.entities[thread].runs_since < self.now {
            // What it ran until now counts in the class that it had.
            self.cpus.book(&mut self.entities[thread], self.now);
        }
        self.entities[thread].priority = priority;
        let Some(running) = running else { return };
        let running = &self.entities[running as usize];
        let is_due = |&it: &u32| self.cpus.preempts(&self.entities[it as usize], running, self.now);
        if self.cpus.cpus[cpu].ready.iter().any(is_due) {
            self.reschedule(cpu as u32);
        }
    }

    /// Hands a request to the disk and sleeps; false if it has to be handed in again.
    pub(super) fn transfer(&mut self, write: bool, bytes: u64) -> bool {
        let thread = self.current;
        let request = device::Request { thread, write, bytes };
        let submitted = self.device.submit(request, &mut self.random);
        if let Submitted::Served(time) = submitted {
            self.events.at(self.now + time, Event::DeviceDone(thread));
        }
        self.fall_asleep(thread, None);
        submitted != Submitted::Refused
    }

    // ---- the rest ----

    pub(super) fn turn(&mut self) -> u32 {
        let task = &mut self.tasks[self.current as usize];
        task.turn = task.turn.wrapping_add(1);
        task.turn
    }

    pub(super) fn cpu(&self) -> u32 {
        self.entities[self.current as usize].cpu + 1
    }

    pub(super) fn cpus(&self) -> u32 {
        self.cpus.cpus.len() as u32
    }

    /// The number of the thread that is running.
    pub(super) fn running(&self) -> usize {
        self.current as usize
    }

    /// A barrier on all CPUs. Those that run another thread are interrupted now; one that spins
    /// does not look away for long enough to lose anything.
    pub(super) fn spend_barrier(&mut self) -> bool {
        let runs = |thread: &u32| {
            *thread != self.current && self.tasks[*thread as usize].doing != Doing::Starting
        };
        let running = |cpu: &Cpu| cpu.current.filter(runs);
        let others: Vec<u32> = self.cpus.cpus.iter().filter_map(running).collect();
        let mut time = self.costs.barrier_call;
        if !others.is_empty() {
            time += self.costs.barrier_wait + self.costs.barrier_each * others.len() as u64;
        }
        for thread in others {
            let task = &mut self.tasks[thread as usize];
            if matches!(task.doing, Doing::Operation | Doing::Computing(_)) {
                task.lost += self.costs.interrupt;
                task.in_kernel += self.costs.interrupt;
            }
        }
        self.spend_in_kernel(time)
    }

    pub(super) fn mark(&mut self, what: &'static str) {
        if self.recorder.is_on() {
            let cpu = self.entities[self.current as usize].cpu;
            self.recorder.mark(self.current, cpu, self.now, what);
        }
    }

    /// The thread's body returned.
    pub(super) fn ended(&mut self, thread: u32) {
        self.tasks[thread as usize].doing = Doing::Ended;
        self.tasks[thread as usize].number += 1;
        self.alive -= 1;
        self.record(thread, Activity::Sleeps);
        self.leave_cpu(thread);
        let cpu = self.entities[thread as usize].cpu;
        self.run_next(cpu);
    }

    /// What everybody who has not ended waits for.
    pub(super) fn waits(&self) -> Vec<String> {
        let mut words: Vec<usize> = Vec::new();
        let of = |(index, task): (usize, &Task)| {
            let what = match (task.doing, task.parked_on) {
                (Doing::Ended, _) => return None,
                (_, Some(address)) => {
                    let known = words.iter().position(|&word| word == address);
                    let word = known.unwrap_or_else(|| {
                        words.push(address);
                        words.len() - 1
                    });
                    format!("sleeps on word {word} until somebody wakes it")
                }
                (Doing::Watching, _) => "spins until a word changes".to_string(),
                (doing, _) => format!("{doing:?}"),
            };
            Some(format!("thread {index} {what}"))
        };
        self.tasks.iter().enumerate().filter_map(of).collect()
    }
}
