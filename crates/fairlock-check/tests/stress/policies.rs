//! What each policy guarantees, step by step: threads are led by the lock's own events, never by
//! time. [`Staged`] is the real platform with some additions: a thread that was woken can be kept
//! from running, one that spins can be stopped, each can be told which CPU it is on, and the clock can
//! be moved forward, or stands still.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fairlock::events::{Counters, Event, Snapshot};
use fairlock::lock_api::{RawRwLock, RawRwLockDowngrade, RawRwLockFair, RwLock, RwLockWriteGuard};
use fairlock::platform::{Counting, Platform, Zeroed};
use fairlock::policy::{self, PhaseFair, TimeFair};
use fairlock::process::{Host, Process};
use fairlock::rwsem::RawRwSem;
use fairlock::slots::Record;
use fairlock_reference::linux::{
    self, ImmediateHandoff, Linux3_10, Linux3_16, Linux5_1, Linux5_2, Linux5_3, Linux5_11,
    NoReaderSteal, RawLinuxRwSem,
};

thread_local! {
    /// The actor that this thread is.
    static SLEEP: RefCell<Option<Arc<Sleep>>> = const { RefCell::new(None) };
}

/// What a thread and its stage manager tell each other.
#[derive(Default)]
struct Sleep {
    /// The thread has queued: it sleeps, or is about to.
    reached: AtomicBool,
    /// While this holds, the thread does not come back from a sleep.
    kept: AtomicBool,
    /// The CPU that the thread is told it is on; 0: the real one.
    cpu: AtomicU32,
    /// Turns of spins so far.
    turns: AtomicU32,
    /// The thread stops here, and goes on once this says something else.
    stops_at: AtomicU32,
    /// It has stopped here.
    stopped_at: AtomicU32,
}

/// Places where a thread can be stopped: in a turn of a spin, and when it asks which CPU it is on.
const TURN: u32 = 1;
const CPU: u32 = 2;

impl Sleep {
    fn pass(&self, place: u32) {
        while self.stops_at.load(SeqCst) == place {
            self.stopped_at.store(place, SeqCst);
            thread::yield_now();
        }
    }

    /// Has the thread stop here next, and waits until it has.
    fn stop_at(&self, place: u32) {
        self.stops_at.store(place, SeqCst);
        while self.stopped_at.load(SeqCst) != place {
            thread::yield_now();
        }
    }

    /// Waits until the thread has spun for so many turns more.
    fn spin_on(&self, turns: u32, or: impl Fn() -> bool) {
        let enough = self.turns.load(SeqCst) + turns;
        while self.turns.load(SeqCst) < enough && !or() {
            thread::yield_now();
        }
    }
}

/// What a waiter in the lock's queue parks on, unlike one that waits for the queue's own lock.
const WAITING: u32 = 0;

/// The clock that stands still.
const STILL: usize = 3;

/// How far each test's clock is ahead, ns.
static AHEAD: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// [`Counting`] with a stage manager; each number has a clock of its own.
struct Staged<const CLOCK: usize>;

// SAFETY: as `Os`, but for the clock.
unsafe impl<const CLOCK: usize> Platform for Staged<CLOCK> {
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicPtr<T> = AtomicPtr<T>;
    type Cell<T: Zeroed> = std::cell::Cell<T>;
    type Counters = Counters;
    type Hold = fairlock::platform::Unchecked;
    fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
        let deadline = deadline.map(|deadline| deadline - AHEAD[CLOCK].load(SeqCst));
        let sleep = SLEEP.with_borrow(Clone::clone);
        if let Some(sleep) = sleep.as_ref().filter(|_| expected == WAITING) {
            sleep.reached.store(true, SeqCst);
        }
        Counting::park(word, expected, deadline);
        while sleep.as_ref().is_some_and(|sleep| sleep.kept.load(SeqCst)) {
            thread::yield_now();
        }
    }
    fn unpark(word: *const AtomicU32) {
        Counting::unpark(word);
    }
    fn relax(until: Option<u64>) -> bool {
        if let Some(sleep) = SLEEP.with_borrow(Clone::clone) {
            sleep.turns.fetch_add(1, SeqCst);
            sleep.pass(TURN);
        }
        Counting::relax(until)
    }
    fn give_way(attempt: u32) {
        Counting::give_way(attempt);
    }
    fn turn() -> u32 {
        Counting::turn()
    }
    fn now() -> u64 {
        if CLOCK == STILL {
            return 1;
        }
        Counting::now() + AHEAD[CLOCK].load(SeqCst)
    }
    fn wake_latency() -> u32 {
        Counting::wake_latency()
    }
    fn note_wake_latency(ns: u32) {
        Counting::note_wake_latency(ns);
    }
    fn cpu() -> u32 {
        let Some(sleep) = SLEEP.with_borrow(Clone::clone) else { return Counting::cpu() };
        sleep.pass(CPU);
        match sleep.cpu.load(SeqCst) {
            0 => Counting::cpu(),
            cpu => cpu,
        }
    }
}

/// The address of each clock's process, as no static is generic.
static PROCESSES: [OnceLock<usize>; 4] = [const { OnceLock::new() }; 4];

thread_local! {
    /// The addresses of the thread's records in them.
    static RECORDS: [Cell<usize>; 4] = const { [const { Cell::new(0) }; 4] };
}

// SAFETY: one process for each platform. A thread keeps its record for ever.
unsafe impl<const CLOCK: usize> Host for Staged<CLOCK> {
    fn process() -> &'static Process<Self> {
        let leak = || ptr::from_ref(Box::leak(Box::new(Process::<Self>::NEW))).expose_provenance();
        let address = *PROCESSES[CLOCK].get_or_init(leak);
        // SAFETY: leaked, of this very type.
        unsafe { &*ptr::with_exposed_provenance(address) }
    }

    fn thread() -> Option<&'static Record<Self>> {
        RECORDS.with(|records| {
            if records[CLOCK].get() == 0 {
                let record = ptr::from_ref(Self::process().new_thread()?);
                records[CLOCK].set(record.expose_provenance());
            }
            // SAFETY: as above.
            Some(unsafe { &*ptr::with_exposed_provenance(records[CLOCK].get()) })
        })
    }
}

/// A lock on this platform that counts what it does.
trait Counted: RawRwLock + Send + Sync + 'static {
    const NAME: &'static str;
    fn events(&self) -> Snapshot;
}

/// Ours.
type Sem<Pol, const CLOCK: usize = 0> = RawRwSem<Pol, Staged<CLOCK>>;

impl<Pol: policy::Policy, const CLOCK: usize> Counted for Sem<Pol, CLOCK> {
    const NAME: &'static str = Pol::NAME;
    fn events(&self) -> Snapshot {
        RawRwSem::events(self)
    }
}

/// Linux's.
type Linux<Pol, const CLOCK: usize = 0> = RawLinuxRwSem<Pol, Staged<CLOCK>>;

impl<Pol: linux::Policy, const CLOCK: usize> Counted for Linux<Pol, CLOCK> {
    const NAME: &'static str = Pol::NAME;
    fn events(&self) -> Snapshot {
        RawLinuxRwSem::events(self)
    }
}

type Lock<R> = Arc<RwLock<R, ()>>;

/// What the lock has counted.
fn events<R: Counted>(lock: &Lock<R>) -> Snapshot {
    // SAFETY: neither locks nor unlocks.
    unsafe { lock.raw() }.events()
}

/// A lock, the threads that use it, and who got in when.
struct Stage<R: Counted> {
    lock: Lock<R>,
    entered: Arc<Mutex<Vec<&'static str>>>,
    actors: RefCell<Vec<Actor>>,
}

struct Actor {
    sleep: Arc<Sleep>,
    /// Dropped when the actor shall leave the lock.
    leave: Option<mpsc::Sender<()>>,
    thread: JoinHandle<()>,
}

impl<R: Counted> Stage<R> {
    fn new() -> Self {
        Stage {
            lock: Arc::new(RwLock::new(())),
            entered: Arc::default(),
            actors: RefCell::default(),
        }
    }

    fn count(&self, event: Event) -> u64 {
        events(&self.lock).get(event)
    }

    fn until(&self, event: Event, count: u64) {
        while self.count(event) < count {
            thread::yield_now();
        }
    }

    /// Starts a thread that asks for the lock, notes when it has it, and holds it until told.
    fn ask(&self, name: &'static str, hold: fn(&Lock<R>, &mut dyn FnMut())) -> Arc<Sleep> {
        self.ask_on(0, name, hold)
    }

    /// As [`ask`](Self::ask), on this CPU.
    fn ask_on(
        &self,
        cpu: u32,
        name: &'static str,
        hold: fn(&Lock<R>, &mut dyn FnMut()),
    ) -> Arc<Sleep> {
        let (leave, told) = mpsc::channel::<()>();
        let sleep = Arc::new(Sleep { cpu: AtomicU32::new(cpu), ..Sleep::default() });
        let (lock, entered, mine) = (self.lock.clone(), self.entered.clone(), sleep.clone());
        let thread = thread::spawn(move || {
            SLEEP.set(Some(mine));
            hold(&lock, &mut || {
                entered.lock().unwrap().push(name);
                let _ = told.recv();
            });
        });
        let actor = Actor { sleep: sleep.clone(), leave: Some(leave), thread };
        self.actors.borrow_mut().push(actor);
        sleep
    }

    /// As [`ask`](Self::ask), and returns when the thread is in the queue.
    fn queue(&self, name: &'static str, hold: fn(&Lock<R>, &mut dyn FnMut())) {
        let sleep = self.ask(name, hold);
        while !sleep.reached.load(SeqCst) {
            thread::yield_now();
        }
    }

    fn queue_reader(&self, name: &'static str) {
        self.queue(name, |lock, inside| {
            let _guard = lock.read();
            inside();
        });
    }

    fn queue_writer(&self, name: &'static str) {
        self.queue(name, |lock, inside| {
            let _guard = lock.write();
            inside();
        });
    }

    /// The same for the writer of a test, which is alone in the queue. False if it took so long to queue that the lock is
    /// reserved for it.
    fn queue_writer_in_time(&self) -> bool {
        self.queue_writer("writer");
        self.count(Event::WlockHandoff) == 0
    }

    fn keep_last_asleep(&self, asleep: bool) {
        self.actors.borrow().last().expect("somebody was queued").sleep.kept.store(asleep, SeqCst);
    }

    /// Everybody leaves as soon as they have been in; says in which order they got in.
    fn finish(self) -> Vec<&'static str> {
        let mut actors = self.actors.into_inner();
        for actor in &mut actors {
            actor.leave = None;
            actor.sleep.kept.store(false, SeqCst);
        }
        for actor in actors {
            actor.thread.join().unwrap();
        }
        assert!(self.lock.try_write().is_some(), "free in the end");
        std::mem::take(&mut self.entered.lock().unwrap())
    }
}

/// The lock is left by its last holder while a writer waits, and before that writer runs a reader
/// and a writer try to get in. Who does?
fn passes_a_woken_writer<R: Counted>() -> (bool, bool) {
    let stage = Stage::<R>::new();
    let holder = stage.lock.read();
    let in_time = stage.queue_writer_in_time();
    stage.keep_last_asleep(true);
    drop(holder);
    if !in_time && R::NAME != Linux::<ImmediateHandoff>::NAME {
        stage.finish();
        return passes_a_woken_writer::<R>();
    }
    // The lock may be left to readers for a moment.
    let lingering = stage.count(Event::WakeWriter) == 0;
    let reader_passes = !lingering && stage.lock.try_read().is_some();
    let writer_passes = !lingering && stage.lock.try_write().is_some();
    assert_eq!(stage.finish(), ["writer"]);
    (reader_passes, writer_passes)
}

#[test]
fn readers_steal_in_linux_5_11_only_and_writers_in_all_of_linux() {
    assert_eq!(passes_a_woken_writer::<Linux<Linux5_11>>(), (true, true));
    assert_eq!(passes_a_woken_writer::<Linux<NoReaderSteal>>(), (false, true));
    assert_eq!(passes_a_woken_writer::<Linux<Linux5_3>>(), (false, true));
    assert_eq!(passes_a_woken_writer::<Linux<Linux5_2>>(), (false, true));
    assert_eq!(passes_a_woken_writer::<Linux<Linux5_1>>(), (false, true));
    assert_eq!(passes_a_woken_writer::<Linux<Linux3_16>>(), (false, true));
    assert_eq!(passes_a_woken_writer::<Linux<Linux3_10>>(), (false, true));
    assert_eq!(passes_a_woken_writer::<Linux<ImmediateHandoff>>(), (false, false));
    assert_eq!(passes_a_woken_writer::<Sem<PhaseFair>>(), (false, false));
    assert_eq!(passes_a_woken_writer::<Sem<TimeFair>>(), (false, false));
}

/// Nobody joins readers past a waiting writer, whichever policy without stealing.
fn a_reader_queues_behind_a_writer<R: Counted>() {
    let stage = Stage::<R>::new();
    let holder = stage.lock.read();
    stage.queue_writer("writer");
    assert!(stage.lock.try_read().is_none(), "{}", R::NAME);
    stage.queue_reader("reader");
    drop(holder);
    assert_eq!(stage.finish(), ["writer", "reader"], "{}", R::NAME);
}

#[test]
fn a_reader_queues_behind_a_waiting_writer() {
    a_reader_queues_behind_a_writer::<Linux<NoReaderSteal>>();
    a_reader_queues_behind_a_writer::<Linux<Linux5_2>>();
    a_reader_queues_behind_a_writer::<Linux<Linux5_1>>();
    a_reader_queues_behind_a_writer::<Linux<Linux3_16>>();
    a_reader_queues_behind_a_writer::<Linux<Linux3_10>>();
    a_reader_queues_behind_a_writer::<Linux<ImmediateHandoff>>();
    a_reader_queues_behind_a_writer::<Sem<PhaseFair>>();
    // Stealing needs a lock that no reader holds.
    a_reader_queues_behind_a_writer::<Linux<Linux5_11>>();
}

#[test]
fn linux_5_3_lets_a_spinning_reader_pass_a_waiting_writer() {
    loop {
        let stage = Stage::<Linux<Linux5_3>>::new();
        let holder = stage.lock.read();
        if !stage.queue_writer_in_time() {
            drop(holder);
            stage.finish();
            continue;
        }
        let spun = stage.count(Event::OptLock);
        stage.ask("reader", |lock, inside| {
            let _guard = lock.read();
            inside();
        });
        stage.until(Event::OptLock, spun + 1);
        drop(holder);
        assert_eq!(stage.finish(), ["reader", "writer"]);
        break;
    }
}

/// Two writers spin, the second behind the first, and on the CPU where the owner before the first was.
/// The first has just got the lock.
fn a_spinner_behind_a_spinner_that_got_the_lock<R: Counted>() {
    let stage = Stage::<R>::new();
    let write: fn(&Lock<R>, &mut dyn FnMut()) = |lock, inside| {
        let _guard = lock.write();
        inside();
    };
    stage.ask_on(1, "holder", write);
    while stage.entered.lock().unwrap().is_empty() {
        thread::yield_now();
    }
    let first = stage.ask_on(2, "first", write);
    first.stop_at(TURN);
    let second = stage.ask_on(3, "second", write);
    second.spin_on(1, || false);
    second.cpu.store(1, SeqCst);
    let Actor { leave, thread, .. } = stage.actors.borrow_mut().remove(0);
    drop(leave);
    thread.join().unwrap();
    first.stop_at(CPU);
    // Long enough to be at the front, had the first left it.
    second.spin_on(2, || stage.count(Event::OptFail) > 0);
    first.stops_at.store(0, SeqCst);
    let lock = stage.lock.clone();
    assert_eq!(stage.finish(), ["holder", "first", "second"], "{}", R::NAME);
    let events = events(&lock);
    let [got, failed] = [Event::OptLock, Event::OptFail].map(|event| events.get(event));
    assert_eq!((got, failed), (2, 0), "{}", R::NAME);
}

#[test]
fn a_spinner_never_takes_an_owner_that_has_left_for_the_spinner_that_followed_it() {
    a_spinner_behind_a_spinner_that_got_the_lock::<Linux<Linux3_16, STILL>>();
    a_spinner_behind_a_spinner_that_got_the_lock::<Linux<Linux5_3, STILL>>();
    a_spinner_behind_a_spinner_that_got_the_lock::<Linux<Linux5_11, STILL>>();
    a_spinner_behind_a_spinner_that_got_the_lock::<Linux<ImmediateHandoff, STILL>>();
}

/// Behind a writer wait a reader, a writer and a reader. How many readers does its release wake?
fn readers_woken_past_a_writer<R: Counted>() -> u64 {
    let stage = Stage::<R>::new();
    let holder = stage.lock.write();
    stage.queue_reader("first");
    stage.queue_writer("writer");
    stage.queue_reader("last");
    drop(holder);
    stage.until(Event::WakeReader, 1);
    let woken = stage.count(Event::WakeReader);
    stage.finish();
    woken
}

#[test]
fn linux_5_1_wakes_readers_up_to_the_first_writer() {
    assert_eq!(readers_woken_past_a_writer::<Linux<Linux5_1>>(), 1);
    assert_eq!(readers_woken_past_a_writer::<Linux<Linux3_16>>(), 1);
    assert_eq!(readers_woken_past_a_writer::<Linux<Linux3_10>>(), 1);
}

#[test]
fn linux_5_2_wakes_readers_anywhere_in_the_queue() {
    assert_eq!(readers_woken_past_a_writer::<Linux<Linux5_2>>(), 2);
    assert_eq!(readers_woken_past_a_writer::<Linux<Linux5_3>>(), 2);
    assert_eq!(readers_woken_past_a_writer::<Linux<Linux5_11>>(), 2);
    assert_eq!(readers_woken_past_a_writer::<Linux<NoReaderSteal>>(), 2);
    assert_eq!(readers_woken_past_a_writer::<Linux<ImmediateHandoff>>(), 2);
}

#[test]
fn phase_fair_lets_all_waiting_readers_in_between_two_writers() {
    let stage = Stage::<Sem<PhaseFair>>::new();
    let holder = stage.lock.write();
    stage.queue_writer("writer");
    stage.queue_reader("reader");
    stage.queue_reader("reader");
    stage.queue_reader("reader");
    drop(holder);
    stage.until(Event::WakeReader, 3);
    assert_eq!(stage.count(Event::PhaseRead), 1);
    assert_eq!(stage.finish(), ["reader", "reader", "reader", "writer"]);
}

#[test]
fn phase_fair_passes_a_waiting_reader_by_one_writer() {
    let stage = Stage::<Sem<PhaseFair>>::new();
    let holder = stage.lock.read();
    stage.queue_writer("first writer");
    stage.queue_writer("second writer");
    stage.queue_reader("reader");
    drop(holder);
    assert_eq!(stage.finish(), ["first writer", "reader", "second writer"]);
}

/// The order in which three writers that queued behind a fourth get the lock.
fn order_of_writers<R: Counted>() -> Vec<&'static str> {
    let stage = Stage::<R>::new();
    let holder = stage.lock.write();
    stage.queue_writer("first");
    stage.queue_writer("second");
    stage.queue_writer("third");
    drop(holder);
    stage.finish()
}

#[test]
fn phase_fair_serves_writers_in_the_order_in_which_they_queued() {
    assert_eq!(order_of_writers::<Sem<PhaseFair>>(), ["first", "second", "third"]);
}

/// A writer that is woken to compete may see the next one overtake it, once.
#[test]
fn time_fair_serves_writers_in_their_order_but_for_one_overtaking() {
    let order = order_of_writers::<Sem<TimeFair>>();
    let place = |name| order.iter().position(|&it| it == name).unwrap();
    let (first, second, third) = (place("first"), place("second"), place("third"));
    assert_eq!(order.len(), 3);
    assert!(first < third, "{order:?}");
    let overtaken = [second < first, third < second].iter().filter(|&&it| it).count();
    assert!(overtaken <= 1, "{order:?}");
}

#[test]
fn time_fair_lets_all_waiting_readers_in_together() {
    let stage = Stage::<Sem<TimeFair>>::new();
    let holder = stage.lock.write();
    stage.queue_writer("writer");
    stage.queue_reader("reader");
    stage.queue_reader("reader");
    stage.queue_reader("reader");
    drop(holder);
    stage.actors.borrow_mut()[0].leave = None;
    stage.until(Event::WakeReader, 3);
    assert_eq!(stage.count(Event::PhaseRead), 1);
    stage.finish();
}

#[test]
fn time_fair_lets_a_writer_in_after_one_phase_of_readers() {
    let stage = Stage::<Sem<TimeFair>>::new();
    let holder = stage.lock.read();
    stage.queue_writer("writer");
    // Its alarm, if nobody else looks at the clock.
    stage.until(Event::PhaseClosed, 1);
    assert!(stage.lock.try_read().is_none(), "the lock is shut");
    stage.queue_reader("reader");
    drop(holder);
    assert_eq!(stage.finish(), ["writer", "reader"]);
}

#[test]
fn a_fair_unlock_hands_the_lock_to_the_writer_that_waits() {
    fn hands_over<R: Counted + RawRwLockFair>() {
        let stage = Stage::<R>::new();
        let holder = stage.lock.write();
        stage.queue_writer("writer");
        stage.keep_last_asleep(true);
        RwLockWriteGuard::unlock_fair(holder);
        assert!(stage.lock.try_read().is_none(), "{}", R::NAME);
        assert!(stage.lock.try_write().is_none(), "{}", R::NAME);
        assert_eq!(stage.finish(), ["writer"]);
    }
    hands_over::<Sem<PhaseFair>>();
    hands_over::<Sem<TimeFair>>();
}

#[test]
fn after_four_milliseconds_nobody_steals_from_a_writer() {
    loop {
        let began = Instant::now();
        let stage = Stage::<Linux<Linux5_11, 1>>::new();
        let holder = stage.lock.read();
        stage.queue_writer("writer");
        stage.keep_last_asleep(true);
        drop(holder);
        let Some(stolen) = stage.lock.try_read() else {
            let as_long = began.elapsed() >= Duration::from_millis(4);
            assert!(as_long, "the writer has not waited for long");
            // The test itself has: once more.
            stage.finish();
            continue;
        };
        AHEAD[1].fetch_add(5_000_000, SeqCst);
        stage.keep_last_asleep(false);
        stage.until(Event::WlockHandoff, 1);
        stage.until(Event::SleepWriter, 2);
        stage.keep_last_asleep(true);
        drop(stolen);
        assert!(stage.lock.try_read().is_none(), "reserved");
        assert!(stage.lock.try_write().is_none(), "reserved");
        assert_eq!(stage.finish(), ["writer"]);
        break;
    }
}

#[test]
fn a_downgrade_lets_all_waiting_readers_in() {
    fn lets_in<R: Counted + RawRwLockDowngrade>() {
        let stage = Stage::<R>::new();
        let holder = stage.lock.write();
        stage.queue_reader("reader");
        stage.queue_reader("reader");
        let holder = RwLockWriteGuard::downgrade(holder);
        stage.until(Event::WakeReader, 2);
        drop(holder);
        stage.finish();
    }
    lets_in::<Sem<PhaseFair>>();
    lets_in::<Sem<TimeFair>>();
}
