//! `patterns`: what people build of a mutex and condition variables.
//!
//! | pattern | what threads do |
//! |---|---|
//! | queue | senders put messages into slots, receivers take them out |
//! | barrier | all meet again and again |
//! | semaphore | each takes one of a few permits, works, and returns it |
//! | pool | workers take jobs; a submitter waits until a batch is done |
//! | handoff | a token goes round |
//!
//! What is checked: each message arrives once, those of a sender in order; no thread is a meeting
//! ahead of the others; there are never more threads inside than permits; each job of a batch is done
//! once; each of n threads has every n-th turn.
//!
//! All of them change a few words under the mutex ([`Protected`]), in sections that also show two
//! threads inside at once. A thread waits until its section can do what it has to, then notifies.
//!
//! The mutex with its data and each condition variable have cache lines of their own. One
//! operation of a thread in `TIME_EVERY` is timed, from its first attempt until it is done; so
//! percentiles are fair samples, and maxima are not.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use clap::{Args, ValueEnum};
use crossbeam_utils::CachePadded;
use fairlock::platform::{AtomicCell, Platform};
use fairlock_report::random::{XorShift, jittered};
use fairlock_report::timeline::{HOLD_WRITE, WAIT_WRITE};
use fairlock_report::units::{Length, at_least_one, several};
use serde::{Deserialize, Serialize};

use super::{Body, Failure, NOTHING, bodies, run_threads};
use crate::error::{LabError, Violation};
use crate::locks::monitors::Monitor;
use crate::locks::{LabLock, New, Protected};
use crate::measure::{READER, Repetition, RoleRecorder, ThreadRecord, WRITER};
use crate::workload::{
    DEFAULT_MONITORS, DefaultPoints, DefaultSubjects, MONITORS, Machine, Request, Role, Subjects,
    UnderMonitor, Workload, check_length, check_thread_count, defaults, points, roles,
    run_under_monitor, wrong,
};
use crate::world::World;

/// A look at the clock takes as long as a short section, so few operations are timed.
const TIME_EVERY: u64 = 16;

/// More slots, permits or jobs than this would only take memory.
const MOST_PLACES: u32 = 65_536;

/// What threads build of a mutex and condition variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// A bounded queue between senders and receivers
    Queue,
    /// A barrier at which all threads meet again and again
    Barrier,
    /// A semaphore with a few permits
    Semaphore,
    /// Workers, and a submitter that waits for each batch of jobs
    Pool,
    /// A token that threads hand round
    Handoff,
}

impl Pattern {
    /// What [`Patterns::places`] are.
    fn place(self) -> Option<&'static str> {
        match self {
            Pattern::Queue => Some("slot"),
            Pattern::Semaphore => Some("permit"),
            Pattern::Pool => Some("job"),
            Pattern::Barrier | Pattern::Handoff => None,
        }
    }
}

/// Parameters of [`patterns`](self).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Patterns {
    /// What the threads build
    #[arg(long, value_enum, value_name = "PATTERN", default_value = "queue")]
    pub pattern: Pattern,
    /// Threads: receivers of a queue, workers of a pool, all of any other pattern
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    pub threads: u32,
    /// Senders of a queue [default: 1]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub senders: Option<u32>,
    /// Slots of a queue, permits of a semaphore, jobs of a batch [default: 1]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub places: Option<u32>,
    /// In a queue or a handoff, notify all threads that wait; a handoff then has one condition
    /// variable
    #[arg(long)]
    pub notify_all: bool,
    /// Notify after the mutex was unlocked
    #[arg(long)]
    pub unlock_first: bool,
    /// Work between two operations, and with a permit or on a job: pauses (10p) or time (200ns),
    /// ±25 %
    #[arg(long, value_name = "LENGTH", default_value = "20p")]
    pub work: Length,
}

impl Default for Patterns {
    fn default() -> Patterns {
        defaults()
    }
}

impl Patterns {
    fn counts(&self) -> (u32, u32) {
        (self.senders.unwrap_or(1), self.places.unwrap_or(1))
    }

    fn condvars(&self) -> u32 {
        match self.pattern {
            Pattern::Queue | Pattern::Pool => 2,
            Pattern::Handoff if !self.notify_all => self.threads,
            Pattern::Barrier | Pattern::Semaphore | Pattern::Handoff => 1,
        }
    }
}

impl Workload for Patterns {
    const NAME: &'static str = "patterns";
    const ABOUT: &'static str =
        "queues, barriers, semaphores, pools and handoffs, of a mutex and condition variables";
    const EXAMPLES: &'static [&'static str] = &[
        "--pattern queue --senders 10 --threads 10 --places 1,100 --notify-all",
        "--pattern semaphore --threads 16 --places 1,8 --unlock-first",
        "--pattern barrier,handoff --threads 2,4,16 --lock mutex,parking_lot-mutex-0.12",
        "--pattern pool --threads 12 --places 24 --on x86-12 --seconds 0.01",
    ];
    const SUBJECTS: Subjects = MONITORS;
    const DEFAULT_SUBJECTS: DefaultSubjects = DEFAULT_MONITORS;
    const SITUATION: Option<&'static str> = Some("Threads that wait for each other");
    const DEFAULT_POINTS: &'static [DefaultPoints] =
        &[points("pattern", "queue,barrier,semaphore,pool,handoff"), points("threads", "4")];

    fn roles(&self) -> Vec<Role> {
        match self.pattern {
            Pattern::Queue => roles(&[("receiver", self.threads), ("sender", self.counts().0)]),
            Pattern::Pool => roles(&[("worker", self.threads), ("submitter", 1)]),
            _ => roles(&[("thread", self.threads)]),
        }
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let name = self.pattern.to_possible_value().expect("none is hidden");
        let mut words = vec![("pattern", name.get_name().to_owned())];
        words.extend(self.senders.map(|count| ("senders", several(count.into(), "sender"))));
        let place = self.places.zip(self.pattern.place());
        words.extend(place.map(|(count, place)| ("places", several(count.into(), place))));
        words.extend(self.notify_all.then(|| ("notify_all", "notify all".to_owned())));
        words.extend(self.unlock_first.then(|| ("unlock_first", "unlock first".to_owned())));
        words.push(("work", format!("work {}", self.work.words())));
        words
    }

    fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        let pattern = self.pattern;
        let (senders, places) = self.counts();
        check_thread_count("threads", self.threads.into())?;
        check_thread_count("senders", senders.into())?;
        if pattern != Pattern::Queue && self.senders.is_some() {
            return wrong("senders", senders, "none but for a queue".to_string());
        }
        match pattern.place() {
            None if self.places.is_some() => {
                let valid = "none but for a queue, a semaphore or a pool";
                return wrong("places", places, valid.to_string());
            }
            _ if !(1..=MOST_PLACES).contains(&places) => {
                return wrong("places", places, format!("1 to {MOST_PLACES}"));
            }
            _ => {}
        }
        if self.notify_all && !matches!(pattern, Pattern::Queue | Pattern::Handoff) {
            return wrong("notify_all", true, "only for a queue or a handoff".to_string());
        }
        check_length("work", self.work, pause_ns)
    }

    fn settled(self) -> Patterns {
        let (senders, places) = self.counts();
        Patterns {
            senders: self.senders.or((self.pattern == Pattern::Queue).then_some(senders)),
            places: self.places.or(self.pattern.place().map(|_| places)),
            ..self
        }
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_monitor(self, request)
    }
}

/// Which threads a section notifies, by their condition variable.
#[derive(Clone, Copy)]
enum Notify {
    NoThread,
    One(usize),
    All(usize),
}

/// What a section comes to: it has to wait, or it is done.
type Attempt<R> = Result<Option<(R, Notify)>, Violation>;
/// None once the run is over.
type Done<R> = Result<Option<R>, Violation>;
type Data<M> = Protected<<M as LabLock>::Platform>;

/// What all threads of a run share.
struct Shared<'a, W, M: Monitor> {
    world: &'a W,
    params: &'a Patterns,
    work: u32,
    lock: CachePadded<M>,
    condvars: Vec<CachePadded<M::Condvar>>,
    /// The slots of a queue, on the machine that the lock is on.
    slots: Vec<CachePadded<<M::Platform as Platform>::AtomicU64>>,
    /// How many messages of each sender have arrived.
    arrived: Vec<AtomicU64>,
    /// How often each job of the batch was done.
    jobs: Vec<AtomicU64>,
    /// How many threads have a permit.
    inside: AtomicU64,
}

/// One thread.
struct Thread {
    /// Its number; senders follow the receivers.
    index: u32,
    random: XorShift,
    recorder: RoleRecorder,
}

impl Thread {
    /// How many operations it has done before this one.
    fn before(&self) -> u64 {
        self.recorder.executed
    }
}

fn expect(what: &'static str, expected: u64, found: u64) -> Result<(), Violation> {
    if found == expected { Ok(()) } else { Err(Violation::Agreement { what, expected, found }) }
}

/// Adds to a word. A broken lock can make it less than nothing.
fn add<P: Platform>(data: &Protected<P>, word: usize, count: i64) -> u64 {
    let value = data.word(word).wrapping_add_signed(count);
    data.set_word(word, value);
    value
}

/// So many of what is made by this: a loop, as it is compiled for every lock.
fn many<T>(count: u32, new: impl Fn() -> T) -> Vec<T> {
    let mut all = Vec::with_capacity(count as usize);
    for _ in 0..count {
        all.push(new());
    }
    all
}

fn atomics(count: u32) -> Vec<AtomicU64> {
    many(count, || AtomicU64::new(0))
}

impl<W: World, M: Monitor> Shared<'_, W, M> {
    fn notify(&self, notify: Notify) {
        match notify {
            Notify::NoThread => {}
            Notify::One(at) => M::notify_one(&self.condvars[at]),
            Notify::All(at) => M::notify_all(&self.condvars[at]),
        }
    }

    /// Attempts with the mutex held, and waits in between, until one is done. Then notifies.
    #[inline]
    fn section<R>(
        &self,
        waits_at: usize,
        mut attempt: impl FnMut(&Data<M>) -> Attempt<R>,
    ) -> Done<R> {
        let (world, unlock_first) = (self.world, self.params.unlock_first);
        world.mark(WAIT_WRITE);
        let done = self.lock.write_when(&self.condvars[waits_at], |data| {
            if !world.running() {
                return Some(Ok(None));
            }
            world.mark(HOLD_WRITE);
            let attempted = data.write_around(|| attempt(data)).flatten();
            world.mark(WAIT_WRITE);
            match attempted {
                Ok(None) => None,
                Ok(Some((result, notify))) => {
                    if !unlock_first {
                        self.notify(notify);
                    }
                    Some(Ok(Some((result, notify))))
                }
                Err(violation) => Some(Err(violation)),
            }
        });
        world.mark(NOTHING);
        Ok(done?.map(|(result, notify)| {
            if unlock_first {
                self.notify(notify);
            }
            result
        }))
    }

    /// A section that is timed now and then.
    #[inline]
    fn timed<R>(
        &self,
        thread: &mut Thread,
        waits_at: usize,
        attempt: impl FnMut(&Data<M>) -> Attempt<R>,
    ) -> Done<R> {
        if !thread.before().is_multiple_of(TIME_EVERY) {
            return self.section(waits_at, attempt);
        }
        let asked = self.world.now();
        let done = self.section(waits_at, attempt)?;
        let wait = self.world.now().saturating_sub(asked);
        thread.recorder.wait.record(wait);
        thread.recorder.latency.record(wait);
        Ok(done)
    }

    fn work(&self, thread: &mut Thread) {
        self.world.compute(jittered(self.work, &mut thread.random));
    }

    /// A thread that does operations until the run is over.
    fn runs(
        &self,
        index: u32,
        operation: impl Fn(&mut Thread) -> Done<()>,
    ) -> Result<RoleRecorder, Failure> {
        let world = self.world;
        let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(index.into());
        let (random, recorder) = (XorShift::new(seed), RoleRecorder::default());
        let mut thread = Thread { index, random, recorder };
        let mut operations = || {
            while world.running() && operation(&mut thread)?.is_some() {
                thread.recorder.executed += 1;
                if world.running() {
                    thread.recorder.ops += 1;
                    self.work(&mut thread);
                }
            }
            Ok(())
        };
        let result = operations().inspect_err(|_: &Violation| world.stop());
        // A thread that waits has found the run under way with the mutex held. So it waits by the
        // time that this one has had the mutex.
        self.lock.write(|_| ());
        self.condvars.iter().for_each(|condvar| M::notify_all(condvar));
        result?;
        Ok(thread.recorder)
    }
}

/// The queue: messages that were sent and received.
const SENT: usize = 0;
const RECEIVED: usize = 1;
/// Its condition variables.
const NOT_FULL: usize = 0;
const NOT_EMPTY: usize = 1;
/// A message has its sender above its number.
const SENDER: u64 = 1 << 40;

/// The barrier: threads that have arrived, and meetings.
const ARRIVED: usize = 0;
const GENERATION: usize = 1;

/// The semaphore: permits that are taken.
const PERMITS: usize = 0;

/// The pool: jobs that were submitted, taken and done.
const SUBMITTED: usize = 0;
const TAKEN: usize = 1;
const FINISHED: usize = 2;
/// Its condition variables.
const HAS_JOBS: usize = 0;
const BATCH_DONE: usize = 1;

/// The handoff: turns that are over.
const TURN: usize = 0;

impl<W: World, M: Monitor> Shared<'_, W, M> {
    /// Where a message is, or will be.
    fn slot(&self, message: u64) -> &<M::Platform as Platform>::AtomicU64 {
        &self.slots[(message % self.slots.len() as u64) as usize]
    }

    fn change_of_queue(&self, at: usize) -> Notify {
        if self.params.notify_all { Notify::All(at) } else { Notify::One(at) }
    }

    fn sends(&self, thread: &mut Thread) -> Done<()> {
        let sender = thread.index - self.params.threads;
        let message = u64::from(sender) * SENDER + thread.before();
        self.timed(thread, NOT_FULL, |data| {
            let sent = data.word(SENT);
            if sent.wrapping_sub(data.word(RECEIVED)) >= self.slots.len() as u64 {
                return Ok(None);
            }
            self.slot(sent).store(message, Relaxed);
            add(data, SENT, 1);
            Ok(Some(((), self.change_of_queue(NOT_EMPTY))))
        })
    }

    fn receives(&self, thread: &mut Thread) -> Done<()> {
        self.timed(thread, NOT_EMPTY, |data| {
            if data.word(RECEIVED) == data.word(SENT) {
                return Ok(None);
            }
            self.arrives(data)?;
            Ok(Some(((), self.change_of_queue(NOT_FULL))))
        })
    }

    /// Takes the oldest message and checks that it is its sender's next.
    fn arrives(&self, data: &Data<M>) -> Result<(), Violation> {
        let message = self.slot(data.word(RECEIVED)).load(Relaxed);
        add(data, RECEIVED, 1);
        let arrived = &self.arrived[(message / SENDER) as usize];
        let expected = arrived.load(Relaxed);
        arrived.store(expected + 1, Relaxed);
        expect("message of a sender", expected, message % SENDER)
    }

    fn meets(&self, thread: &mut Thread) -> Done<()> {
        let (mine, all) = (thread.before(), u64::from(self.params.threads));
        let mut has_arrived = false;
        self.timed(thread, 0, |data| {
            let now = data.word(GENERATION);
            if has_arrived {
                if now == mine {
                    return Ok(None);
                }
                expect("generation after a meeting", mine + 1, now)?;
                return Ok(Some(((), Notify::NoThread)));
            }
            expect("generation before a meeting", mine, now)?;
            has_arrived = true;
            if add(data, ARRIVED, 1) < all {
                return Ok(None);
            }
            data.set_word(ARRIVED, 0);
            add(data, GENERATION, 1);
            Ok(Some(((), Notify::All(0))))
        })
    }

    fn takes_a_permit(&self, thread: &mut Thread) -> Done<()> {
        let permits = u64::from(self.params.counts().1);
        let taken = self.timed(thread, 0, |data| {
            if data.word(PERMITS) >= permits {
                return Ok(None);
            }
            add(data, PERMITS, 1);
            Ok(Some(((), Notify::NoThread)))
        })?;
        if taken.is_none() {
            return Ok(None);
        }
        let inside = self.inside.fetch_add(1, Relaxed) + 1;
        self.work(thread);
        self.inside.fetch_sub(1, Relaxed);
        expect("number of threads inside", inside.min(permits), inside)?;
        self.section(0, |data| {
            add(data, PERMITS, -1);
            Ok(Some(((), Notify::One(0))))
        })
    }

    fn job(&self, job: u64) -> &AtomicU64 {
        &self.jobs[(job % self.jobs.len() as u64) as usize]
    }

    fn does_a_job(&self, thread: &mut Thread) -> Done<()> {
        let taken = self.timed(thread, HAS_JOBS, |data| {
            let job = data.word(TAKEN);
            if job == data.word(SUBMITTED) {
                return Ok(None);
            }
            add(data, TAKEN, 1);
            Ok(Some((job, Notify::NoThread)))
        })?;
        let Some(job) = taken else { return Ok(None) };
        self.work(thread);
        self.job(job).fetch_add(1, Relaxed);
        self.section(HAS_JOBS, |data| {
            let is_last = add(data, FINISHED, 1) == data.word(SUBMITTED);
            let notify = if is_last { Notify::One(BATCH_DONE) } else { Notify::NoThread };
            Ok(Some(((), notify)))
        })
    }

    fn submits_a_batch(&self) -> Done<()> {
        for _ in &self.jobs {
            let submitted = self.section(HAS_JOBS, |data| {
                add(data, SUBMITTED, 1);
                Ok(Some(((), Notify::One(HAS_JOBS))))
            })?;
            if submitted.is_none() {
                return Ok(None);
            }
        }
        let is_done = self.section(BATCH_DONE, |data| {
            let is_done = data.word(FINISHED) == data.word(SUBMITTED);
            Ok(is_done.then_some(((), Notify::NoThread)))
        })?;
        if is_done.is_some() {
            for job in &self.jobs {
                expect("number of times that a job was done", 1, job.swap(0, Relaxed))?;
            }
        }
        Ok(is_done)
    }

    fn takes_its_turn(&self, thread: &mut Thread) -> Done<()> {
        let all = u64::from(self.params.threads);
        let mine = thread.before() * all + u64::from(thread.index);
        let next = (thread.index + 1) % self.params.threads;
        let (waits_at, notify) = match self.params.notify_all {
            true => (0, Notify::All(0)),
            false => (thread.index as usize, Notify::One(next as usize)),
        };
        self.timed(thread, waits_at, |data| {
            let turn = data.word(TURN);
            if turn % all != mine % all {
                return Ok(None);
            }
            expect("turn", mine, turn)?;
            add(data, TURN, 1);
            Ok(Some(((), notify)))
        })
    }
}

/// A record has two roles; [`Patterns::run_under`] gives them their names when the run is over.
fn as_reader(recorder: RoleRecorder) -> ThreadRecord {
    ThreadRecord { reader: Some(recorder), ..ThreadRecord::default() }
}

fn as_writer(recorder: RoleRecorder) -> ThreadRecord {
    ThreadRecord { writer: Some(recorder), ..ThreadRecord::default() }
}

impl UnderMonitor for Patterns {
    fn run_under<W: Machine, M: Monitor>(
        &self,
        request: &Request<'_, W>,
        new: New<M>,
    ) -> Result<Repetition, LabError> {
        let world = request.world;
        let (senders, places) = self.counts();
        let count = |pattern, count| if self.pattern == pattern { count } else { 0 };
        let shared = Shared {
            world,
            params: self,
            work: self.work.pauses(world.pause_ns()),
            lock: CachePadded::new(new(Protected::new())),
            condvars: many(self.condvars(), || CachePadded::new(M::condvar())),
            slots: many(count(Pattern::Queue, places), || CachePadded::new(AtomicCell::ZERO)),
            arrived: atomics(senders),
            jobs: atomics(count(Pattern::Pool, places)),
            inside: AtomicU64::new(0),
        };
        let shared = &shared;
        let of_threads = |index| -> Body<'_> {
            Box::new(move || {
                let done = match self.pattern {
                    Pattern::Queue => shared.runs(index, |thread| shared.receives(thread)),
                    Pattern::Barrier => shared.runs(index, |thread| shared.meets(thread)),
                    Pattern::Semaphore => {
                        shared.runs(index, |thread| shared.takes_a_permit(thread))
                    }
                    Pattern::Pool => shared.runs(index, |thread| shared.does_a_job(thread)),
                    Pattern::Handoff => shared.runs(index, |thread| shared.takes_its_turn(thread)),
                };
                done.map(if self.pattern == Pattern::Queue { as_reader } else { as_writer })
            })
        };
        let of_senders = |sender| -> Body<'_> {
            let index = self.threads + sender;
            Box::new(move || shared.runs(index, |thread| shared.sends(thread)).map(as_writer))
        };
        let mut all = bodies(self.threads, &of_threads);
        match self.pattern {
            Pattern::Queue => all.append(&mut bodies(senders, &of_senders)),
            Pattern::Pool => all.push(Box::new(move || {
                shared.runs(self.threads, |_| shared.submits_a_batch())?;
                Ok(ThreadRecord::default())
            })),
            Pattern::Barrier | Pattern::Semaphore | Pattern::Handoff => {}
        }
        let mut repetition = run_threads(request, Patterns::NAME, all)?;
        if self.pattern == Pattern::Queue {
            let sent = repetition.roles.get(WRITER).map_or(0, |sender| sender.executed);
            let counted = shared.lock.write(|data| {
                while data.word(RECEIVED) != data.word(SENT) {
                    shared.arrives(data)?;
                }
                Ok(data.word(RECEIVED))
            });
            counted
                .and_then(|counted| expect("number of messages", sent, counted))
                .map_err(|violation| request.broken(Patterns::NAME, violation))?;
        }
        let names = self.roles();
        let of_writers = usize::from(self.pattern == Pattern::Queue);
        for (role, at) in [(READER, 0), (WRITER, of_writers)] {
            if let Some(done) = repetition.roles.remove(role) {
                repetition.roles.insert(names[at].name, done);
            }
        }
        repetition.events = shared.lock.events();
        Ok(repetition)
    }
}
