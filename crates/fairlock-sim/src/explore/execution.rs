//! One run of a program: gives turns to its threads as a strategy says, and knows when something
//! is wrong.
//!
//! A thread that reaches an operation announces it and waits for its turn. So whenever a turn is
//! given, everybody's next step is known. The decision is made on the stack of the thread that
//! got there; the thread is only suspended if somebody else goes on.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr;

use super::Limits;
use super::failure::{FailureKind, in_words};
use super::passing::Claim;
use super::schedule::{Choice, MOST_THREADS, Schedule};
use super::state::{Access, FIRST_WORD, Op, Pending, State, Waited, WordId};
use super::state::{memory, queue, sleep_of};
use super::trace::Trace;
use crate::fiber::{self, Fiber, Progress};
use crate::platform::Word;

/// Where a turn is given.
pub(super) struct Decision {
    /// The steps that can be taken: at least one.
    pub(super) enabled: u64,
    /// The thread that took the last step, if any.
    pub(super) previous: Option<usize>,
}

/// Gives the turns, and learns what the steps did.
pub(super) trait Strategy {
    /// Who is next; `None` if the rest of this run need not be seen.
    fn choose(&mut self, decision: &Decision, state: &State) -> Option<Choice>;
    /// The step that was chosen touches this; it has not been taken yet.
    fn takes(&mut self, _choice: Choice, _accesses: &[Access], _state: &State) {}
    /// A thread's store went into its buffer.
    fn buffered(&mut self, _thread: usize) {}
    /// A thread's step waited for its buffer to be empty.
    fn fence(&mut self, _thread: usize) {}
    /// What a thread does from now on comes after everything that has left another's buffer.
    fn drained(&mut self, _thread: usize, _buffer_of: usize) {}
    /// Nobody could go on, so time has passed.
    fn time_passed(&mut self) {}
    /// Another run begins. False if there is none left.
    fn next_run(&mut self) -> bool;
    /// Every run has been seen, as far as the strategy distinguishes them.
    fn is_complete(&self) -> bool {
        false
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    Finished,
    /// Left by its strategy.
    Left,
    /// A schedule that is replayed asks for a step that cannot be taken.
    Strayed,
    Failed(FailureKind),
}

/// Words by address. Never iterated over: addresses must not influence a run.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("addresses are hashed whole")
    }
    fn write_usize(&mut self, address: usize) {
        self.0 = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

pub(super) struct Execution {
    pub(super) state: State,
    strategy: *mut dyn Strategy,
    words: HashMap<usize, WordId, BuildHasherDefault<AddressHasher>>,
    running: usize,
    /// Who is resumed next; `None` ends the run.
    next: Option<usize>,
    previous: Option<usize>,
    /// Threads run up to their first operation.
    starting: bool,
    pub(super) schedule: Schedule,
    pub(super) ending: Option<Ending>,
    /// The first thread that panicked: it runs, and everybody else when it must wait, until it is
    /// out of its guards.
    unwinding: Option<usize>,
    /// How often others were let go on meanwhile.
    detours: u32,
    pub(super) trace: Option<Trace>,
    accesses: Vec<Access>,
}

thread_local! {
    /// Null outside a run.
    static CURRENT: Cell<*mut Execution> = const { Cell::new(ptr::null_mut()) };
}

/// Far more than any unlock needs.
const MOST_DETOURS: u32 = 100_000;

/// What is left where an atomic was.
const GONE: u64 = 0xdead_f1be_dead_f1be;

fn gone<W: Word>() -> u64 {
    if size_of::<W>() == 4 { GONE as u32 as u64 } else { GONE }
}

/// Writes the word at an address.
///
/// # Safety
/// A `W` is alive there.
unsafe fn write_at<W: Word>(address: usize, bits: u64) {
    // SAFETY: a `W` is alive at this address, as the caller promises.
    unsafe { (*ptr::with_exposed_provenance::<W>(address)).set(bits) };
}

/// What the word at an address holds.
///
/// # Safety
/// A `W` is alive there.
unsafe fn peek_at<W: Word>(address: usize) -> u64 {
    // SAFETY: a `W` is alive at this address, as the caller promises.
    unsafe { (*ptr::with_exposed_provenance::<W>(address)).get() }
}

/// A word of either size: what it goes through is compiled once, optimized as this crate is, and not again wherever a
/// lock is explored.
pub(super) trait AnyWord {
    fn get(&self) -> u64;
    fn set(&self, bits: u64);
    fn address(&self) -> usize;
    /// What it holds once its memory is gone.
    fn gone(&self) -> u64;
    fn write_at(&self) -> unsafe fn(usize, u64);
    fn peek_at(&self) -> unsafe fn(usize) -> u64;
}

impl<W: Word> AnyWord for W {
    fn get(&self) -> u64 {
        Word::get(self)
    }
    fn set(&self, bits: u64) {
        Word::set(self, bits);
    }
    fn address(&self) -> usize {
        Word::address(self)
    }
    fn gone(&self) -> u64 {
        gone::<W>()
    }
    fn write_at(&self) -> unsafe fn(usize, u64) {
        write_at::<W>
    }
    fn peek_at(&self) -> unsafe fn(usize) -> u64 {
        peek_at::<W>
    }
}

impl Execution {
    pub(super) fn new(strategy: *mut dyn Strategy) -> Self {
        Execution {
            state: State::default(),
            strategy,
            words: HashMap::default(),
            running: 0,
            next: None,
            previous: None,
            starting: true,
            schedule: Schedule::default(),
            ending: None,
            unwinding: None,
            detours: 0,
            trace: None,
            accesses: Vec::new(),
        }
    }

    /// Forgets the last run. From here to the end of the next one, words are numbered.
    pub(super) fn reset(&mut self, threads: usize, limits: &Limits) {
        self.state.reset(threads, limits);
        self.words.clear();
        (self.next, self.previous, self.starting) = (None, None, true);
        self.schedule.0.clear();
        self.ending = None;
        (self.unwinding, self.detours) = (None, 0);
        if let Some(trace) = &mut self.trace {
            trace.clear();
        }
    }

    /// Runs `fibers` to an end, which is then in `ending`.
    ///
    /// # Safety
    /// `this` is valid and nobody else uses it meanwhile.
    pub(super) unsafe fn run(this: *mut Execution, fibers: &mut [Fiber]) {
        CURRENT.set(this);
        let _leave = Leave;
        for (at, fiber) in fibers.iter_mut().enumerate() {
            // SAFETY: valid and nobody else's, as the caller promises; no fiber runs now.
            unsafe { (*this).running = at };
            let progress = fiber.resume();
            // SAFETY: valid, and no fiber runs now.
            unsafe { (*this).note_progress(at, progress) };
        }
        // SAFETY: valid, and no fiber runs now.
        unsafe { (*this).begin() };
        // SAFETY: valid, and no fiber runs now.
        while let Some(at) = unsafe { (*this).take_next() } {
            let progress = fibers[at].resume();
            // SAFETY: valid, and no fiber runs now.
            unsafe { (*this).note_progress(at, progress) };
        }
    }

    fn begin(&mut self) {
        self.starting = false;
        if self.ending.is_none() && self.unwinding.is_none() {
            self.decide();
        }
    }

    fn take_next(&mut self) -> Option<usize> {
        self.running = self.next.take()?;
        Some(self.running)
    }

    fn note_progress(&mut self, at: usize, progress: Progress) {
        match progress {
            Progress::Suspended => {}
            Progress::Done => {
                self.state.threads[at].op = Op::Ended;
                if self.unwinding.is_some() {
                    self.detour();
                } else if !self.starting {
                    self.decide();
                }
            }
            Progress::Panicked(payload) => {
                self.state.threads[at].op = Op::Ended;
                if self.unwinding.is_none_or(|first| first == at) {
                    let message = fiber::panic_message(&*payload);
                    self.end(Ending::Failed(FailureKind::Panicked { thread: at + 1, message }));
                } else {
                    self.detour();
                }
            }
        }
    }

    fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
        self.next = None;
    }

    /// Another thread goes on, round robin, while one unwinds.
    fn detour(&mut self) {
        self.detours += 1;
        assert!(
            self.detours < MOST_DETOURS,
            "a thread that panicked does not get out of its locks"
        );
        let threads = self.state.threads.len();
        let others = (1..=threads).map(|step| (self.running + step) % threads);
        self.next = others.into_iter().find(|&at| !self.state.threads[at].op.is_ended());
    }

    /// Chooses who is next.
    fn decide(&mut self) {
        loop {
            if self.schedule.len() >= self.state.limits.most_steps {
                let steps = self.schedule.len();
                return self.end(Ending::Failed(FailureKind::Livelock { steps }));
            }
            let enabled = self.state.enabled();
            if enabled == 0 {
                if self.state.all_ended() {
                    return self.end(Ending::Finished);
                }
                if self.state.let_time_pass() {
                    self.strategy().time_passed();
                    continue;
                }
                let stuck = FailureKind::stuck(self);
                return self.end(Ending::Failed(stuck));
            }
            let decision = Decision { enabled, previous: self.previous };
            let strategy = self.strategy;
            // SAFETY: the strategy outlives the run and is used by nothing else meanwhile.
            let choice = unsafe { (*strategy).choose(&decision, &self.state) };
            let Some(choice) = choice else {
                return self.end(Ending::Left);
            };
            if enabled & choice.bit() == 0 {
                return self.end(Ending::Strayed);
            }
            self.schedule.0.push(choice);
            if choice.is_stop() {
                let ns = self.state.stop(choice);
                let what = |_: &mut Trace| format!("is stopped for {}", in_words(ns));
                self.note(choice.actor(), None, what);
                continue;
            }
            match choice.thread() {
                Some(thread) => {
                    self.state.begin_step(choice);
                    self.state.threads[thread].early = choice.is_early();
                    self.state.threads[thread].steps += 1;
                    self.previous = Some(thread);
                    self.next = Some(thread);
                    return;
                }
                None => self.drain(choice),
            }
        }
    }

    fn strategy(&mut self) -> &mut dyn Strategy {
        // SAFETY: the strategy outlives the run and is used by nothing else meanwhile.
        unsafe { &mut *self.strategy }
    }

    /// The running thread's step, or a buffer's, touches this.
    fn takes(&mut self, choice: Choice, accesses: &[Access]) {
        // SAFETY: as in `strategy`.
        unsafe { (*self.strategy).takes(choice, accesses, &self.state) };
    }

    /// The running thread's step touches what was to be expected of it.
    fn takes_as_announced(&mut self) {
        let mut accesses = std::mem::take(&mut self.accesses);
        let choice = self.choice();
        self.state.accesses(choice, &mut accesses);
        self.takes(choice, &accesses);
        self.accesses = accesses;
    }

    fn choice(&self) -> Choice {
        Choice::new(self.running, self.state.threads[self.running].early)
    }

    /// The oldest store of a buffer reaches memory.
    fn drain(&mut self, choice: Choice) {
        let thread = choice.actor() - MOST_THREADS;
        let oldest = self.state.threads[thread].buffer.front().copied();
        let oldest = oldest.expect("only a buffer with a store in it is chosen");
        self.takes(choice, &[Access::write(memory(oldest.word))]);
        for at in 0..self.state.threads.len() {
            if self.state.awaits_store(at, thread, oldest.number) {
                self.strategy().drained(at, thread);
            }
        }
        self.state.threads[thread].buffer.pop_front();
        self.state.note_write(thread, oldest.word);
        self.note(thread, Some(oldest.word), |trace| {
            format!("store of {} arrives", trace.value(oldest.bits))
        });
        // SAFETY: the word is alive: one that goes takes the stores to it along, see `gone`.
        unsafe { (oldest.set)(oldest.address, oldest.bits) };
    }

    fn note(
        &mut self,
        thread: usize,
        word: Option<WordId>,
        what: impl FnOnce(&mut Trace) -> String,
    ) {
        if let Some(trace) = &mut self.trace {
            let what = what(trace);
            let clock = self.state.limits.time.is_some().then_some(self.state.clock);
            let word = word.map(|word| word - FIRST_WORD);
            trace.push(self.schedule.len(), clock, thread, word, what);
        }
    }

    pub(super) fn word_at(&mut self, address: usize) -> WordId {
        let next = self.state.versions.len() as WordId;
        let id = *self.words.entry(address).or_insert(next);
        if id == next {
            self.state.versions.push(0);
            if let Some(trace) = &mut self.trace {
                trace.name_word(address);
            }
        }
        id
    }

    /// What a word holds, for messages.
    pub(super) fn word_name(&self, word: WordId) -> String {
        let word = word - FIRST_WORD;
        match &self.trace {
            Some(trace) => trace.word_name(word),
            None => format!("w{}", word + 1),
        }
    }
}

/// Ends a run, also when the explorer panics.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        CURRENT.set(ptr::null_mut());
    }
}

/// The run that the calling thread is part of.
#[derive(Clone, Copy)]
pub(super) struct Run(*mut Execution);

impl Run {
    /// `None` outside a run, where operations act at once.
    #[inline]
    pub(super) fn current() -> Option<Run> {
        let current = CURRENT.get();
        (!current.is_null() && fiber::is_inside()).then_some(Run(current))
    }

    #[inline]
    fn with<R>(self, f: impl FnOnce(&mut Execution) -> R) -> R {
        // SAFETY: the execution lives while its fibers run, and `f` does not suspend, so nobody
        // else refers to it meanwhile.
        f(unsafe { &mut *self.0 })
    }

    /// Waits for the turn of the operation. False if the thread unwinds: then operations act at
    /// once, and waits end for no reason.
    fn reach(self, op: impl FnOnce(&mut Execution) -> Op) -> bool {
        if std::thread::panicking() {
            self.reach_while_unwinding(op);
            return false;
        }
        let goes_on = self.with(|run| {
            let op = op(run);
            let running = run.running;
            run.state.announce(running, op);
            if run.starting {
                return false;
            }
            run.decide();
            let goes_on = run.next == Some(running);
            if goes_on {
                run.next = None;
            }
            goes_on
        });
        if !goes_on {
            fiber::suspend();
            // While somebody unwinds, everybody's operations act at once.
            return self.with(|run| run.unwinding.is_none());
        }
        true
    }

    #[cold]
    fn reach_while_unwinding(self, op: impl FnOnce(&mut Execution) -> Op) {
        let waits = self.with(|run| {
            run.unwinding.get_or_insert(run.running);
            let waits = matches!(op(run), Op::Parked { .. } | Op::Await { .. });
            if waits {
                run.detour();
            }
            waits
        });
        if waits {
            fiber::suspend();
        }
    }

    /// The run is over, and this thread with it.
    fn fail(self, kind: FailureKind) -> ! {
        self.with(|run| run.end(Ending::Failed(kind)));
        loop {
            fiber::suspend();
        }
    }

    fn check_alive(self, word: &dyn AnyWord, doing: &'static str) {
        if word.get() == word.gone() && !std::thread::panicking() {
            let kind = self.with(|run| {
                let id = run.word_at(word.address());
                let (thread, word) = (run.running + 1, run.word_name(id));
                FailureKind::Gone { thread, doing, word }
            });
            self.fail(kind);
        }
    }

    pub(super) fn load(self, word: &dyn AnyWord) -> u64 {
        let address = word.address();
        if !self.reach(|run| Op::Load(run.word_at(address))) {
            return word.get();
        }
        self.check_alive(word, "loads");
        self.with(|run| {
            let (running, id) = (run.running, run.word_at(address));
            let own =
                run.state.threads[running].buffer.iter().rfind(|store| store.address == address);
            if let Some(own) = own {
                let bits = own.bits;
                // Had the store arrived, others might have come after it.
                run.takes(run.choice(), &[Access::read(memory(id))]);
                run.state.note_read(running, id);
                run.note(running, Some(id), |trace| {
                    format!("load of its own store: {}", trace.value(bits))
                });
                return bits;
            }
            run.takes(run.choice(), &[Access::read(memory(id))]);
            run.state.note_read(running, id);
            let bits = word.get();
            run.note(running, Some(id), |trace| format!("load: {}", trace.value(bits)));
            bits
        })
    }

    /// A store; `may_wait` if it may stay in a buffer for a while.
    pub(super) fn store(self, word: &dyn AnyWord, bits: u64, may_wait: bool) {
        let address = word.address();
        let waits = self.with(|run| run.state.limits.store_buffers && may_wait);
        let op = |run: &mut Execution| {
            let word = run.word_at(address);
            if waits { Op::Buffer } else { Op::Store(word) }
        };
        if !self.reach(op) {
            return word.set(bits);
        }
        self.check_alive(word, "stores to");
        self.with(|run| {
            let (running, id) = (run.running, run.word_at(address));
            if waits {
                run.takes_as_announced();
                run.strategy().buffered(running);
                ptr::from_ref(word).expose_provenance();
                let thread = &mut run.state.threads[running];
                thread.stores += 1;
                let (number, set) = (thread.stores, word.write_at());
                thread.buffer.push_back(Pending { word: id, address, bits, number, set });
                return run.note(running, Some(id), |trace| {
                    format!("store of {} is under way", trace.value(bits))
                });
            }
            run.fence();
            run.takes(run.choice(), &[Access::write(memory(id))]);
            run.state.note_write(running, id);
            run.note(running, Some(id), |trace| {
                format!("store: {} -> {}", trace.value(word.get()), trace.value(bits))
            });
            word.set(bits);
        });
    }

    /// An update; torn, others may come between its load and its store.
    pub(super) fn update(
        self,
        word: &dyn AnyWord,
        change: &dyn Fn(u64) -> Option<u64>,
        torn: bool,
    ) -> u64 {
        if torn {
            let old = self.load(word);
            if let Some(new) = change(old) {
                self.store(word, new, false);
            }
            return old;
        }
        let address = word.address();
        if !self.reach(|run| Op::Update(run.word_at(address))) {
            let old = word.get();
            if let Some(new) = change(old) {
                word.set(new);
            }
            return old;
        }
        self.check_alive(word, "updates");
        self.with(|run| {
            let (running, id) = (run.running, run.word_at(address));
            let old = word.get();
            let new = change(old);
            let object = memory(id);
            let access = if new.is_some() { Access::write(object) } else { Access::read(object) };
            run.fence();
            run.takes(run.choice(), &[access]);
            run.state.note_read(running, id);
            match new {
                Some(new) => {
                    run.state.note_write(running, id);
                    run.note(running, Some(id), |trace| {
                        format!("update: {} -> {}", trace.value(old), trace.value(new))
                    });
                    word.set(new);
                }
                None => run.note(running, Some(id), |trace| {
                    format!("update refused: {}", trace.value(old))
                }),
            }
            old
        })
    }

    /// The word's memory goes.
    pub(super) fn gone(self, word: &dyn AnyWord) {
        if std::thread::panicking() {
            return;
        }
        let address = word.address();
        let buffers = self.with(|run| run.state.limits.store_buffers);
        if buffers {
            let lost = self.with(|run| {
                let running = run.running;
                // Nobody else has a reason to see what it stored there last.
                run.state.threads[running].buffer.retain(|store| store.address != address);
                let mut others = run.state.threads.iter().enumerate();
                let lost = others
                    .find(|(_, thread)| thread.buffer.iter().any(|store| store.address == address));
                let thread = lost.map(|(at, _)| at + 1)?;
                let word = run.word_at(address);
                Some(FailureKind::Gone { thread, doing: "stores to", word: run.word_name(word) })
            });
            if let Some(kind) = lost {
                self.fail(kind);
            }
        }
        word.set(word.gone());
        // The word's memory ends with it, so an optimizer may take this last store for useless.
        std::hint::black_box(word);
    }

    pub(super) fn park(
        self,
        word: &dyn AnyWord,
        expected: u64,
        deadline: Option<u64>,
        looks: bool,
    ) {
        let address = word.address();
        if !self.reach(|run| Op::Park(run.word_at(address))) {
            // Lets those go on that it waits for.
            if std::thread::panicking() {
                self.reach_while_unwinding(|_| Op::Await { until: None, ends: false });
            }
            return;
        }
        self.check_alive(word, "parks on");
        let sleeps = self.with(|run| {
            let (running, id) = (run.running, run.word_at(address));
            run.fence();
            run.state.note_read(running, id);
            let found = word.get();
            if looks && found != expected {
                run.takes(run.choice(), &[Access::read(memory(id))]);
                run.note(running, Some(id), |_| format!("does not sleep: {found:#x}"));
                return false;
            }
            run.takes_as_announced();
            run.note(running, Some(id), |_| match deadline {
                None => format!("sleeps while {expected:#x}"),
                Some(deadline) => format!("sleeps while {expected:#x}, until {deadline} ns"),
            });
            run.state.sleepers.push(running);
            run.state.threads[running].peek = word.peek_at();
            ptr::from_ref(word).expose_provenance();
            let sleeps = &mut run.state.threads[running].sleeps;
            (sleeps.asleep, sleeps.count) = (true, sleeps.count + 1);
            run.state.passing.sleeps(running);
            true
        });
        if !sleeps {
            return;
        }
        let parked = |run: &mut Execution| {
            let word = run.word_at(address);
            Op::Parked { word, address, expected, deadline, woken: false }
        };
        if !self.reach(parked) {
            return;
        }
        self.with(|run| {
            let running = run.running;
            run.takes_as_announced();
            let woken = matches!(run.state.threads[running].op, Op::Parked { woken: true, .. });
            run.state.end_sleep(running);
            let word = run.word_at(address);
            run.note(running, Some(word), |_| match (woken, deadline) {
                (true, _) => "is awake".to_string(),
                (false, Some(deadline)) => format!("wakes up: it is {deadline} ns or later"),
                (false, None) => "wakes up for no reason".to_string(),
            });
        });
    }

    /// Wakes up to `most` threads in one step, as the kernel does; says how many.
    pub(super) fn unpark(self, address: usize, most: u32) -> u32 {
        if !self.reach(|run| Op::Unpark(run.word_at(address))) {
            return 0;
        }
        self.with(|run| {
            let (running, id) = (run.running, run.word_at(address));
            run.fence();
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let woken: Vec<_> = run.state.sleepers_on(address).take(most).collect();
            let mut accesses = vec![Access::write(queue(id))];
            accesses.extend(woken.iter().map(|&thread| Access::write(sleep_of(thread))));
            run.takes(run.choice(), &accesses);
            for &thread in &woken {
                run.state.wake(thread);
            }
            run.note(running, Some(id), |_| match &woken[..] {
                [] if most == 0 => "wakes, but nobody hears".to_string(),
                [] => "wakes nobody".to_string(),
                woken => {
                    let names: Vec<_> = woken.iter().map(|at| format!("t{}", at + 1)).collect();
                    format!("wakes {}", names.join(", "))
                }
            });
            woken.len() as u32
        })
    }

    /// Waits until something that was read since the last such wait is written, or until a moment;
    /// if it `ends`, the search may end it at any time.
    pub(super) fn wait_for_change(self, until: Option<u64>, ends: bool) -> Waited {
        if !self.reach(|_| Op::Await { until, ends }) {
            return Waited::ToTheEnd;
        }
        self.with(|run| {
            let running = run.running;
            run.takes_as_announced();
            let waited = run.state.end_await(running);
            run.note(running, None, |_| match waited {
                Waited::Some => "something it has read was written".to_string(),
                Waited::ToTheEnd => "has waited for long enough".to_string(),
            });
            waited
        })
    }

    pub(super) fn look(self) -> u64 {
        let in_turn = self.reach(|_| Op::Look);
        self.with(|run| {
            let running = run.running;
            if !in_turn {
                return run.state.clock;
            }
            run.takes_as_announced();
            let now = run.state.look(running);
            run.note(running, None, |_| format!("looks at the clock: {now} ns"));
            now
        })
    }

    pub(super) fn turn(self) -> u32 {
        self.with(|run| {
            let thread = &mut run.state.threads[run.running];
            thread.turns = thread.turns.wrapping_add(1);
            thread.turns
        })
    }

    pub(super) fn sleeps_of(self, thread: usize) -> super::Sleeps {
        let in_turn = self.reach(|_| Op::Probe(thread));
        self.with(|run| {
            if in_turn {
                run.takes_as_announced();
            }
            let sleeps = run.state.threads[thread].sleeps;
            let running = run.running;
            run.note(running, None, |_| format!("looks at t{}: {sleeps:?}", thread + 1));
            sleeps
        })
    }

    pub(super) fn pass_time(self, ns: u64) {
        if self.reach(|_| Op::Pass) {
            self.with(|run| {
                let running = run.running;
                run.takes_as_announced();
                run.state.pass_time(running, ns);
                run.note(running, None, |_| format!("lets {ns} ns pass"));
            });
        }
    }

    // ---- claims: no steps, just what the run remembers of a thread ----

    fn is_watched(self) -> bool {
        !std::thread::panicking() && self.with(|run| run.state.limits.time.is_some())
    }

    pub(super) fn claim(self, claim: Claim) {
        if self.is_watched() {
            self.with(|run| run.state.passing.claim(run.running, claim));
        }
    }

    pub(super) fn claimed(self, entered: bool) {
        if self.is_watched() {
            let wrong = self.with(|run| {
                run.note(run.running, None, |_| {
                    let claimed = if entered { "has what it claimed" } else { "gets nothing" };
                    claimed.to_string()
                });
                run.state.passing.claimed(run.running, entered)
            });
            if let Some(kind) = wrong {
                self.fail(kind);
            }
        }
    }

    pub(super) fn unclaim(self) {
        if self.is_watched() {
            self.with(|run| run.state.passing.unclaim(run.running));
        }
    }

    /// A full barrier of this thread.
    pub(super) fn full_fence(self) {
        if self.with(|run| run.state.limits.store_buffers) && self.reach(|_| Op::Fence) {
            self.with(|run| {
                run.fence();
                run.takes(run.choice(), &[]);
                run.note(run.running, None, |_| "fence".into());
            });
        }
    }

    /// A full barrier of all threads, which comes to each at a moment of its own.
    pub(super) fn barrier_on_all_cpus(self) {
        if !self.with(|run| run.state.limits.store_buffers) || !self.reach(|_| Op::Barrier) {
            return;
        }
        self.with(|run| {
            run.fence();
            run.takes_as_announced();
            let running = run.running;
            run.state.begin_barrier(running);
            // Which of these came before does not matter: the barrier would have waited.
            (0..run.state.threads.len()).for_each(|of| run.strategy().drained(running, of));
            run.note(running, None, |_| "a barrier on all CPUs begins".into());
        });
        if self.reach(|_| Op::BarrierEnds) {
            self.with(|run| {
                run.takes_as_announced();
                run.note(run.running, None, |_| "the barrier has come to all CPUs".into());
            });
        }
    }

    /// Does something that is no part of the run.
    pub(super) fn quietly<R>(act: impl FnOnce() -> R) -> R {
        let current = CURRENT.replace(ptr::null_mut());
        let result = act();
        CURRENT.set(current);
        result
    }

    pub(super) fn running(self) -> (usize, super::Cpus) {
        self.with(|run| (run.running, run.state.limits.cpus))
    }
}

impl Execution {
    fn fence(&mut self) {
        if self.state.limits.store_buffers {
            let running = self.running;
            self.strategy().fence(running);
        }
    }
}
