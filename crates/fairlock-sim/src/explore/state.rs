//! What a run consists of beside its memory: what each thread is about to do and what for it
//! waits, the clock, the stores on their way; and which steps depend on each other.
//!
//! Two steps are independent if taking them in either order ends in the same state and neither
//! lets or keeps the other from being taken. Searches that leave out executions rely on it, so
//! here is the whole of it: every step reads or writes *objects*, and steps are independent if
//! they have no object in common that one of them writes.
//!
//! * Each word is an object; its queue of parked threads is another.
//! * Each thread's store buffer is one: a store into it writes it, a barrier on all CPUs that begins
//!   reads all. What leaves a buffer does not touch it: in either order the barrier ends after it.
//! * The clock is one: a look reads it; time that passes writes it.
//! * Whether a thread is asleep is one: parks, wake-ups and programs that ask.

use std::collections::VecDeque;

use super::Limits;
use super::passing::Passing;
use super::schedule::{Choice, MOST_THREADS};
use super::time::{Pace, SKEW_NS};

/// A word's number, in the order of first touch.
pub(super) type WordId = u32;
/// Something that steps read or write.
pub(super) type Object = u32;

pub(super) const CLOCK: Object = 0;
/// Words before these numbers stand for other things.
pub(super) const FIRST_WORD: WordId = 1 + MOST_THREADS as WordId;

pub(super) fn memory(word: WordId) -> Object {
    2 * word
}
pub(super) fn queue(word: WordId) -> Object {
    2 * word + 1
}
pub(super) fn sleep_of(thread: usize) -> Object {
    2 * (1 + thread as WordId)
}
pub(super) fn buffer_of(thread: usize) -> Object {
    2 * (1 + thread as WordId) + 1
}

/// How a step touches an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub(super) object: Object,
    pub(super) writes: bool,
    /// False if the last write is what let this step be taken, and nothing else could have: the
    /// two cannot be taken the other way round.
    pub(super) reversible: bool,
}

impl Access {
    pub(super) fn read(object: Object) -> Self {
        Access { object, writes: false, reversible: true }
    }
    pub(super) fn write(object: Object) -> Self {
        Access { object, writes: true, reversible: true }
    }
    pub(super) fn after(object: Object) -> Self {
        Access { object, writes: false, reversible: false }
    }
    pub(super) fn conflicts(&self, other: &Access) -> bool {
        self.object == other.object && (self.writes || other.writes)
    }
}

/// What a thread is about to do.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Load(WordId),
    Store(WordId),
    /// A store into the thread's own buffer.
    Buffer,
    Update(WordId),
    /// A full barrier on this thread's CPU.
    Fence,
    /// A full barrier on everybody's CPU begins: what is in their buffers now has to arrive.
    Barrier,
    /// It ends: all of that has.
    BarrierEnds,
    Park(WordId),
    /// Sleeps, or is woken and has not run yet.
    Parked {
        word: WordId,
        address: usize,
        expected: u64,
        deadline: Option<u64>,
        woken: bool,
    },
    Unpark(WordId),
    /// Waits for what it has read to be written, or for a moment; `ends` if the search may end it
    /// at any time.
    Await {
        until: Option<u64>,
        ends: bool,
    },
    Look,
    /// Asks whether a thread sleeps.
    Probe(usize),
    /// Lets time pass.
    Pass,
    /// Never again.
    Frozen,
    Ended,
}

impl Op {
    pub(super) fn is_ended(&self) -> bool {
        matches!(self, Op::Ended)
    }

    /// Nothing more is to be expected of the thread.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Op::Ended | Op::Frozen)
    }
}

/// A store on its way to memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) word: WordId,
    pub(super) address: usize,
    pub(super) bits: u64,
    /// Counts the thread's stores, from 1.
    pub(super) number: u32,
    /// Writes the word at `address`.
    pub(super) set: unsafe fn(usize, u64),
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) op: Op,
    /// Words read since it last relaxed, with their versions then.
    pub(super) watched: Vec<(WordId, u32)>,
    pub(super) buffer: VecDeque<Pending>,
    /// Stores that it has ever put there.
    pub(super) stores: u32,
    /// For each thread the last store that a barrier waits for; those before it come first.
    barrier: [u32; MOST_THREADS],
    /// It was given its turn the odd way.
    pub(super) early: bool,
    /// Everybody waits, so the turns that this one waits for have passed.
    released: bool,
    /// Odd ways that it may still take.
    spins: u32,
    timeouts: u32,
    wakes: u32,
    jumps: u32,
    pub(super) turns: u32,
    /// Turns it was given.
    pub(super) steps: u32,
    /// It stops for good after so many.
    freezes_after: Option<u32>,
    /// Reads a word like the one it parked on last.
    pub(super) peek: unsafe fn(usize) -> u64,
    pub(super) sleeps: super::Sleeps,
    /// Where time passes: when it can take its next step, unless it waits for something.
    ready: u64,
    /// It is stopped until then.
    stopped_until: u64,
    /// So often it may still be stopped.
    stops: u32,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) pace: Pace,
    pub(super) passing: Passing,
    pub(super) threads: Vec<Thread>,
    pub(super) limits: Limits,
    pub(super) clock: u64,
    /// Counts the writes of each word.
    pub(super) versions: Vec<u32>,
    /// Parked threads, those that parked first in front.
    pub(super) sleepers: Vec<usize>,
}

impl State {
    pub(super) fn reset(&mut self, threads: usize, limits: &Limits) {
        self.limits = limits.clone();
        self.clock = limits.time.as_ref().map_or(0, |time| self.pace.begin(time));
        self.passing.reset();
        self.versions.clear();
        self.versions.resize(FIRST_WORD as usize, 0);
        self.sleepers.clear();
        self.threads.truncate(threads);
        while self.threads.len() < threads {
            self.threads.push(Thread {
                op: Op::Ended,
                watched: Vec::new(),
                buffer: VecDeque::new(),
                stores: 0,
                barrier: [0; MOST_THREADS],
                early: false,
                released: false,
                spins: 0,
                timeouts: 0,
                wakes: 0,
                jumps: 0,
                turns: 0,
                steps: 0,
                freezes_after: None,
                peek: |_| 0,
                sleeps: super::Sleeps::default(),
                ready: 0,
                stopped_until: 0,
                stops: 0,
            });
        }
        for thread in &mut self.threads {
            thread.op = Op::Ended;
            thread.watched.clear();
            thread.buffer.clear();
            thread.stores = 0;
            thread.early = false;
            thread.released = false;
            (thread.spins, thread.timeouts) = (limits.early_spins, limits.early_timeouts);
            (thread.wakes, thread.jumps) = (limits.spurious_wakes, limits.clock_jumps);
            (thread.turns, thread.sleeps) = (0, super::Sleeps::default());
            (thread.steps, thread.freezes_after) = (0, None);
            (thread.ready, thread.stopped_until) = (self.clock, 0);
            thread.stops = limits.time.as_ref().map_or(0, |time| time.most_stops());
        }
        for &(thread, steps) in &limits.frozen {
            self.threads[thread].freezes_after = Some(steps);
        }
    }

    /// Every step that can be taken.
    pub(super) fn enabled(&self) -> u64 {
        if self.limits.time.is_some() {
            return self.enabled_in_time();
        }
        let mut enabled = 0;
        for (at, thread) in self.threads.iter().enumerate() {
            let (normal, early) = self.ways(thread);
            if normal {
                enabled |= Choice::new(at, false).bit();
            }
            if early {
                enabled |= Choice::new(at, true).bit();
            }
            if !thread.buffer.is_empty() {
                enabled |= Choice::new(MOST_THREADS + at, false).bit();
            }
        }
        enabled
    }

    // ---- where time passes ----

    /// When a thread can take its step; none if it waits for another one.
    fn moment(&self, thread: &Thread) -> Option<u64> {
        match thread.op {
            Op::Ended | Op::Frozen => None,
            Op::Parked { woken: false, deadline, .. } => deadline.map(|at| at.max(thread.ready)),
            Op::Await { until, ends } => {
                let goes_on = thread.watched.is_empty()
                    || (until.is_none() && ends)
                    || self.has_change(thread);
                if goes_on { Some(thread.ready) } else { until.map(|at| at.max(thread.ready)) }
            }
            _ => Some(thread.ready),
        }
    }

    fn enabled_in_time(&self) -> u64 {
        let moments = self.threads.iter().map(|thread| self.moment(thread));
        let Some(earliest) = moments.clone().flatten().min() else {
            return 0;
        };
        let mut enabled = 0;
        for (at, moment) in moments.enumerate() {
            if moment.is_some_and(|moment| moment <= earliest + SKEW_NS) {
                enabled |= Choice::new(at, false).bit();
                // Not while it waits: it does not run then, and its next step is as good.
                let thread = &self.threads[at];
                let waits = matches!(thread.op, Op::Parked { woken: false, .. } | Op::Await { .. });
                if thread.stops > 0 && !waits {
                    enabled |= Choice::stop(at).bit();
                }
            }
        }
        enabled
    }

    /// A thread takes its step, or is stopped before it: it is its moment, which this returns.
    fn come_to(&mut self, choice: Choice) -> u64 {
        self.pace.note(choice);
        let at = choice.actor();
        let moment = self.moment(&self.threads[at]).expect("it can go on");
        let (before, now) = (self.clock, self.clock.max(moment));
        if now > before {
            let within = (0..self.threads.len()).filter(|&at| self.passing.is_within(at));
            let stopped = within.map(|at| self.threads[at].stopped_until).max().unwrap_or(0);
            self.passing.pass(now - stopped.clamp(before, now));
            self.clock = now;
        }
        moment
    }

    /// A thread is given its turn.
    pub(super) fn begin_step(&mut self, choice: Choice) {
        if self.limits.time.is_some() {
            // From its own moment on: a thread that others have run ahead of takes its steps as fast as they do.
            self.threads[choice.actor()].ready = self.come_to(choice) + self.pace.step();
        }
    }

    /// A thread is stopped before its step. For how long.
    pub(super) fn stop(&mut self, choice: Choice) -> u64 {
        self.come_to(choice);
        let ns = self.pace.stop();
        let until = self.clock + ns;
        let thread = &mut self.threads[choice.actor()];
        thread.stops -= 1;
        (thread.ready, thread.stopped_until) = (until, until);
        ns
    }

    /// A thread lets time pass: its own where time passes anyway.
    pub(super) fn pass_time(&mut self, at: usize, ns: u64) {
        if self.limits.time.is_some() {
            self.threads[at].ready = self.clock + ns;
        } else {
            self.clock += ns;
        }
    }

    // ---- where it stands still ----

    fn ways(&self, thread: &Thread) -> (bool, bool) {
        match thread.op {
            Op::Ended | Op::Frozen => (false, false),
            Op::Load(_) | Op::Probe(_) | Op::Pass | Op::Buffer => (true, false),
            Op::Look => (true, thread.jumps > 0),
            // Full barriers, all of them.
            Op::Store(_)
            | Op::Update(_)
            | Op::Unpark(_)
            | Op::Park(_)
            | Op::Fence
            | Op::Barrier => (thread.buffer.is_empty(), false),
            Op::BarrierEnds => {
                let mut others = self.threads.iter().zip(thread.barrier);
                let has_arrived = |(other, last): (&Thread, u32)| {
                    other.buffer.front().is_none_or(|oldest| oldest.number > last)
                };
                (others.all(has_arrived), false)
            }
            Op::Parked { woken: true, .. } => (true, false),
            Op::Parked { deadline: Some(deadline), .. } => {
                let passed = deadline <= self.clock;
                (passed, !passed && thread.timeouts > 0)
            }
            Op::Parked { deadline: None, .. } => (false, thread.wakes > 0),
            Op::Await { until, ends } => {
                let goes_on = thread.released
                    || until.is_some_and(|until| until <= self.clock)
                    || thread.watched.is_empty()
                    || self.has_change(thread);
                (goes_on, !goes_on && ends && thread.spins > 0)
            }
        }
    }

    fn has_change(&self, thread: &Thread) -> bool {
        thread.watched.iter().any(|&(word, seen)| self.versions[word as usize] != seen)
    }

    /// A wait that a single write ended, and that nothing else could have ended.
    fn has_one_cause(&self, thread: &Thread, ends: bool) -> bool {
        let [(word, seen)] = thread.watched[..] else { return false };
        self.versions[word as usize] == seen + 1 && !(ends && thread.spins > 0)
    }

    /// A step that ends a wait for no other reason than time, and that what others do may undo.
    pub(super) fn is_end_of_wait(&self, choice: Choice) -> bool {
        let parked =
            |thread: usize| matches!(self.threads[thread].op, Op::Parked { woken: false, .. });
        choice.is_early() || choice.thread().is_some_and(parked)
    }

    /// Nobody can take a step: lets time pass until somebody can. False if that does not help.
    pub(super) fn let_time_pass(&mut self) -> bool {
        let mut helps = false;
        for thread in &mut self.threads {
            if let Op::Await { until: None, ends: true } = thread.op {
                (thread.released, helps) = (true, true);
            }
        }
        if helps {
            return true;
        }
        let earliest = self.threads.iter().filter_map(|thread| match thread.op {
            Op::Parked { deadline, .. } => deadline,
            Op::Await { until, .. } => until,
            _ => None,
        });
        let Some(earliest) = earliest.min() else {
            return false;
        };
        self.clock = self.clock.max(earliest);
        true
    }

    pub(super) fn all_ended(&self) -> bool {
        self.threads.iter().all(|thread| thread.op.is_over() && thread.buffer.is_empty())
    }

    /// What a thread is about to do, or nothing ever again. A sleeper is still to be woken: whoever
    /// wakes it would otherwise wake another.
    pub(super) fn announce(&mut self, at: usize, op: Op) {
        let thread = &mut self.threads[at];
        let freezes = thread.freezes_after.is_some_and(|after| thread.steps >= after);
        let sleeps = matches!(op, Op::Parked { .. });
        if self.limits.time.is_some() && matches!(op, Op::Await { until: None, ends: true }) {
            thread.ready += self.pace.nap();
        }
        thread.op = if freezes && !sleeps { Op::Frozen } else { op };
    }

    pub(super) fn any_frozen(&self) -> bool {
        self.threads.iter().any(|thread| matches!(thread.op, Op::Frozen))
    }

    /// What a step would touch if it were taken now; what a failed update would only read, it may
    /// write.
    pub(super) fn accesses(&self, choice: Choice, found: &mut Vec<Access>) {
        found.clear();
        let Some(at) = choice.thread() else {
            let oldest = self.threads[choice.actor() - MOST_THREADS].buffer.front();
            found.extend(oldest.map(|oldest| Access::write(memory(oldest.word))));
            return;
        };
        let (thread, early) = (&self.threads[at], choice.is_early());
        match thread.op {
            Op::Ended | Op::Frozen | Op::Fence | Op::BarrierEnds => {}
            Op::Buffer => found.push(Access::write(buffer_of(at))),
            Op::Barrier => {
                found.extend((0..self.threads.len()).map(|of| Access::read(buffer_of(of))));
            }
            Op::Load(word) => found.push(Access::read(memory(word))),
            Op::Store(word) | Op::Update(word) => found.push(Access::write(memory(word))),
            Op::Park(word) => found.extend([
                Access::read(memory(word)),
                Access::write(queue(word)),
                Access::write(sleep_of(at)),
            ]),
            // After the one who woke it, not after who parked there since.
            Op::Parked { woken: true, .. } => found.push(Access::after(sleep_of(at))),
            Op::Parked { word, deadline, .. } => {
                found.extend([Access::write(queue(word)), Access::write(sleep_of(at))]);
                if deadline.is_some() {
                    let read = Access::read(CLOCK);
                    found.push(if early { Access::write(CLOCK) } else { read });
                }
            }
            Op::Unpark(word) => {
                found.push(Access::write(queue(word)));
                found.extend((0..self.threads.len()).map(|of| Access::write(sleep_of(of))));
            }
            // The turns have passed because nobody else could go on: after everything.
            Op::Await { .. } if thread.released => {}
            Op::Await { until: None, ends } if !early && self.has_one_cause(thread, ends) => {
                found.push(Access::after(memory(thread.watched[0].0)));
            }
            Op::Await { until, .. } => {
                let read = |&(word, _): &(WordId, u32)| Access::read(memory(word));
                found.extend(thread.watched.iter().map(read));
                if until.is_some() {
                    let read = Access::read(CLOCK);
                    found.push(if early { Access::write(CLOCK) } else { read });
                }
            }
            Op::Look => {
                let passes = early || self.limits.tick_ns > 0;
                found.push(if passes { Access::write(CLOCK) } else { Access::read(CLOCK) });
            }
            Op::Pass => found.push(Access::write(CLOCK)),
            Op::Probe(of) => found.push(Access::read(sleep_of(of))),
        }
    }

    // ---- what steps do ----

    /// A barrier begins: it waits for what is in the buffers now.
    pub(super) fn begin_barrier(&mut self, at: usize) {
        let mut last = [0; MOST_THREADS];
        for (last, thread) in last.iter_mut().zip(&self.threads) {
            *last = thread.stores;
        }
        self.threads[at].barrier = last;
    }

    /// Whether the barrier of a thread, if it is in one, waits for another's store.
    pub(super) fn awaits_store(&self, at: usize, by: usize, number: u32) -> bool {
        matches!(self.threads[at].op, Op::BarrierEnds) && number <= self.threads[at].barrier[by]
    }

    pub(super) fn note_read(&mut self, at: usize, word: WordId) {
        let version = self.versions[word as usize];
        let watched = &mut self.threads[at].watched;
        match watched.iter_mut().find(|(known, _)| *known == word) {
            Some((_, seen)) => *seen = version,
            None => watched.push((word, version)),
        }
    }

    /// A thread's own write is not news to itself.
    pub(super) fn note_write(&mut self, at: usize, word: WordId) {
        if self.limits.time.is_some() {
            self.let_go_on(word);
        }
        self.versions[word as usize] += 1;
        let version = self.versions[word as usize];
        let watched = &mut self.threads[at].watched;
        if let Some((_, seen)) = watched.iter_mut().find(|(known, _)| *known == word) {
            *seen = version;
        }
    }

    /// A word is about to change: who waits for that goes on now.
    fn let_go_on(&mut self, word: WordId) {
        for at in 0..self.threads.len() {
            let thread = &self.threads[at];
            let waits = matches!(thread.op, Op::Await { until, ends } if until.is_some() || !ends);
            let watches = thread.watched.iter().any(|&(watched, _)| watched == word);
            if waits && watches && !self.has_change(thread) {
                let fetches = self.pace.step();
                self.threads[at].ready = self.threads[at].ready.max(self.clock + fetches);
            }
        }
    }

    /// The end of a wait for a change: whether its moment is known to have passed.
    pub(super) fn end_await(&mut self, at: usize) -> Waited {
        let clock = self.clock;
        let thread = &mut self.threads[at];
        let Op::Await { until, .. } = thread.op else { unreachable!("it waits") };
        thread.watched.clear();
        let released = std::mem::take(&mut thread.released);
        if thread.early {
            thread.spins -= 1;
            self.clock = clock.max(until.unwrap_or(0));
        }
        let passed = until.is_some_and(|until| until <= self.clock);
        if passed || released || self.threads[at].early { Waited::ToTheEnd } else { Waited::Some }
    }

    /// The end of a sleep.
    pub(super) fn end_sleep(&mut self, at: usize) {
        let thread = &mut self.threads[at];
        let Op::Parked { deadline, .. } = thread.op else { unreachable!("it sleeps") };
        if thread.early {
            match deadline {
                Some(deadline) => {
                    thread.timeouts -= 1;
                    self.clock = self.clock.max(deadline);
                }
                None => thread.wakes -= 1,
            }
        }
        thread.sleeps.asleep = false;
        self.sleepers.retain(|&sleeper| sleeper != at);
    }

    /// A look at the clock.
    pub(super) fn look(&mut self, at: usize) -> u64 {
        self.clock += self.limits.tick_ns;
        if self.threads[at].early {
            self.threads[at].jumps -= 1;
            self.clock += self.limits.jump_ns;
        }
        self.clock
    }

    /// The threads that sleep on the word at `address`; first the one that has slept longest.
    pub(super) fn sleepers_on(&self, address: usize) -> impl Iterator<Item = usize> {
        let is_there = move |sleeper: &usize| matches!(self.threads[*sleeper].op, Op::Parked { address: at, .. } if at == address);
        self.sleepers.iter().copied().filter(is_there)
    }

    pub(super) fn wake(&mut self, sleeper: usize) {
        self.sleepers.retain(|&other| other != sleeper);
        self.threads[sleeper].sleeps.asleep = false;
        if self.limits.time.is_some() {
            self.threads[sleeper].ready = self.clock + self.pace.wake_up();
        }
        if let Op::Parked { woken, .. } = &mut self.threads[sleeper].op {
            *woken = true;
        }
    }
}

/// How a wait for a change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// Something was written.
    Some,
    /// All the time or all the turns have passed.
    ToTheEnd,
}
