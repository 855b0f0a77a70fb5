//! The locks as [Loom](https://docs.rs/loom) sees them: what [`RwLock`](crate::RwLock),
//! [`RwSem`](crate::RwSem), [`Mutex`](crate::Mutex), [`Condvar`](crate::Condvar) and
//! [`ReentrantMutex`](crate::ReentrantMutex) are made of where a program is built with `--cfg
//! loom`, so that users can check their own code in every schedule.
//!
//! What is modelled: who may hold a lock together, what a release makes visible to whom, blocking,
//! and what tries find; whom a notification is for. What is not: policies, slots, spins, time and
//! memory layout. So a model has few states, and no lock of Fairlock's own is checked by it
//! (`fairlock-check` does that).
//!
//! How it works: a lock consists of Loom's mutexes, which are held for as long as the lock is.
//!
//! | hold | of Loom's mutexes it has |
//! |---|---|
//! | shared | one of its own, which a writer waits for; when it begins, the *door* of its thread for a moment |
//! | upgradable | the *intent* |
//! | exclusive | the intent and the doors of all threads |
//!
//! A writer acquires the intent, then all doors, and then waits for the mutexes of the readers that
//! are inside. So a thread that reads within its own read while a writer waits deadlocks, as it
//! does in reality, and Loom says so. A [`Mutex`](crate::Mutex) is an intent without doors.
//!
//! Why each thread has a door: Loom orders whoever unlocks a mutex before whoever locks it next. If
//! all readers passed the same door, it would order readers, which no lock does, and would hide
//! races between them. It would also explore every order in which they come.
//!
//! Why nothing is missed: Loom only tries another order of two steps if both are operations on the
//! same object. What waits for a mutex conflicts by that mutex. A try that fails conflicts with an
//! unlock, too, which is no operation on a mutex of Loom. So there is a *bell* for each two
//! threads, by which the first tells the second that what is held is about to change. Who changes
//! it rings the bells for all others, and a try first listens to the bells of all others; both are
//! operations that do nothing else. Changes have no bell in common, nor have tries: they cost
//! states only where they meet.
//!
//! A *timed* acquisition is a try: time may always be over. That it waits and then succeeds is the
//! same as that it comes later, and Loom explores that, too.
//!
//! A *condition variable* is a queue of Loom's mutexes, one for each thread that waits, and locked.
//! Its thread locks it once more, and so waits until a notification takes it off the queue and
//! unlocks it. Threads are notified in the order in which they began to wait, as in reality; who
//! acquires the mutex first afterwards is left to Loom. Each change of the queue is preceded by a
//! bell, which is one for all, as the order of any two changes matters. A wait with a deadline only
//! looks whether it has been notified since it released the mutex. From its third timeout in a row
//! on, a thread first lets others run, so that loops end.
//!
//! A lock may be a `static`, which several executions use one after the other: each finds it free.
//! Two at once cannot share its data. They run on different threads of the system, and the one that
//! finds the other panics.
//!
//! A [`ReentrantMutex`](crate::ReentrantMutex) is the real one around a modelled mutex: whether a
//! thread finds its own number does not depend on what others do. Threads have the numbers that
//! Loom gives them.

use core::cell::{Cell, RefCell};
use core::marker::PhantomData;
use core::{iter, mem, ptr};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex as StdMutex, PoisonError, Weak};

use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread::ThreadId;

use crate::events::{CountEvents, NoCounters, Snapshot};
use crate::held::Wanted;
use crate::platform::{Os, Platform};
use crate::policy::ReadMostly;
#[cfg(feature = "send_guard")]
use crate::raw::GuardMayChangeThreads;
use crate::raw::{self, RawLock, RawReadWriteLock, ReadRecursive};
use crate::raw::{GuardStaysOnItsThread, Residence};

/// What [`Mutex`](crate::Mutex) is made of.
pub type RawMutex<P = Os> = RawModel<P, ForMutex>;
/// What [`RwLock`](crate::RwLock) is made of.
pub type RawRwLock<P = Os, B = ReadMostly> = RawModel<P, ForRwLock<B>>;
/// What [`RwSem`](crate::RwSem) is made of.
pub type RawRwSem<Pol, P> = RawModel<P, ForRwSem<Pol>>;

/// In what the models differ.
pub trait Kind {
    /// A door for each thread that may read.
    const DOORS: usize;
    /// Whether guards may be sent to another thread.
    type Residence: Residence;
    /// What a thread wants that wants to hold the lock exclusively.
    const WANTED: Wanted;
}

/// Of [`RawMutex`].
pub struct ForMutex;

/// Of [`RawRwLock`].
pub struct ForRwLock<B>(PhantomData<fn() -> B>);

/// Of [`RawRwSem`].
pub struct ForRwSem<Pol>(PhantomData<fn() -> Pol>);

impl Kind for ForMutex {
    const DOORS: usize = 0;
    type Residence = GuardStaysOnItsThread;
    const WANTED: Wanted = Wanted::Lock;
}

impl<B> Kind for ForRwLock<B> {
    const DOORS: usize = loom::MAX_THREADS;
    type Residence = GuardStaysOnItsThread;
    const WANTED: Wanted = Wanted::Write;
}

impl<Pol> Kind for ForRwSem<Pol> {
    const DOORS: usize = loom::MAX_THREADS;
    #[cfg(feature = "send_guard")]
    type Residence = GuardMayChangeThreads;
    #[cfg(not(feature = "send_guard"))]
    type Residence = GuardStaysOnItsThread;
    const WANTED: Wanted = Wanted::Write;
}

/// Whether an acquisition waits.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    Yes,
    No,
}

/// Loom has no time: a wait with an end does not wait.
impl From<raw::Wait> for Wait {
    fn from(wait: raw::Wait) -> Self {
        if wait == raw::Wait::ForEver { Wait::Yes } else { Wait::No }
    }
}

/// A lock as Loom sees it, without its data.
///
/// # Panics
/// All functions panic outside of `loom::model`, and if another model that runs at the same time
/// uses the lock.
pub struct RawModel<P, K> {
    state: InExecution<State>,
    kind: PhantomData<fn() -> (P, K)>,
}

/// What belongs to the current execution, and is made anew in each: none until the first use. Never
/// locked during an operation of Loom's.
struct InExecution<S>(StdMutex<Option<(Execution, S)>>);

/// An execution that uses a lock, or has used it.
struct Execution {
    number: usize,
    /// All its threads run on this one of the system, one execution after the other.
    runs_on: std::thread::ThreadId,
    /// Gone when all its threads have ended that have used a lock.
    threads: Weak<()>,
}

impl Execution {
    /// The current one.
    fn current() -> Self {
        let (number, _) = place();
        Execution { number, runs_on: std::thread::current().id(), threads: threads(number) }
    }

    fn is_on_this_thread(&self) -> bool {
        self.runs_on == std::thread::current().id()
    }

    /// Whether it goes on beside the current one.
    fn is_beside(&self) -> bool {
        !self.is_on_this_thread() && self.threads.strong_count() > 0
    }
}

/// Lasts as long as the threads of the current execution that have called this. (Loom's
/// `lazy_static!` could tell when the execution itself ends, but it orders threads, and so would
/// hide races.)
fn threads(execution: usize) -> Weak<()> {
    std::thread_local! {
        static OF_EXECUTION: RefCell<(usize, Weak<()>)> = const { RefCell::new((0, Weak::new())) };
    }
    loom::thread_local! {
        static OF_THREAD: Cell<Option<Arc<()>>> = Cell::new(None);
    }
    OF_EXECUTION.with_borrow_mut(|(number, threads)| {
        let same = threads.upgrade().filter(|_| *number == execution);
        let all = same.unwrap_or_default();
        (*number, *threads) = (execution, Arc::downgrade(&all));
        // Fails in destructors of other such variables, while the thread ends.
        let _ = OF_THREAD.try_with(|own| own.set(Some(all)));
        threads.clone()
    })
}

impl<S> InExecution<S> {
    #[allow(clippy::declare_interior_mutable_const)] // becomes part of a static
    const NEW: Self = InExecution(StdMutex::new(None));

    fn with<R>(&self, new: impl FnOnce() -> S, act: impl FnOnce(&mut S) -> R) -> R {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_here = state.as_ref().is_some_and(|(of, _)| of.is_on_this_thread());
        if !is_here || is_going_on() {
            let current = Execution::current();
            assert!(
                !state.as_ref().is_some_and(|(of, _)| of.is_beside()),
                "two models use this lock at once, as tests do that run in parallel and share a `static`. Make the \
                 lock in the model, or run the tests with --test-threads=1"
            );
            match &mut *state {
                Some((known, _)) if known.number == current.number => *known = current,
                over => *over = Some((current, new())),
            }
        }
        act(&mut state.as_mut().expect("made above").1)
    }
}

/// Loom's objects, and who holds what of them.
struct State {
    parts: Arc<Parts>,
    intent: Option<Held>,
    /// Of an exclusive hold.
    doors: Vec<Held>,
    is_exclusive: bool,
    readers: Vec<Reader>,
    /// How many readers there have been.
    reads: usize,
}

struct Parts {
    intent: Arc<Mutex<()>>,
    doors: Vec<Arc<Mutex<()>>>,
    /// By who rings it and who listens to it. Nobody ever waits for a bell.
    bells: [[Condvar; loom::MAX_THREADS]; loom::MAX_THREADS],
}

/// A shared hold, or one that has ended since the last exclusive one: the next writer comes after
/// it.
struct Reader {
    number: usize,
    thread: usize,
    mutex: Arc<Mutex<()>>,
    held: Option<Held>,
}

/// One of Loom's mutexes, locked. A field is dropped before those below it.
struct Held {
    _guard: MutexGuard<'static, ()>,
    _mutex: Arc<Mutex<()>>,
}

// SAFETY: all threads of a model run on one thread of the system. `State` and `Queue` never let a
// guard be dropped elsewhere.
unsafe impl Send for Held {}

fn lock(mutex: &Arc<Mutex<()>>, wait: Wait) -> Option<Held> {
    let guard = match wait {
        Wait::Yes => mutex.lock().unwrap_or_else(PoisonError::into_inner),
        Wait::No => mutex.try_lock().ok()?,
    };
    // SAFETY: only the lifetime changes. The mutex lives for as long as `Held`, which drops the
    // guard first.
    let guard = unsafe { mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(guard) };
    Some(Held { _guard: guard, _mutex: Arc::clone(mutex) })
}

impl Drop for State {
    /// Holds that were forgotten stay: the execution that they belong to may be over.
    fn drop(&mut self) {
        let readers = mem::take(&mut self.readers).into_iter().filter_map(|reader| reader.held);
        let exclusive = mem::take(&mut self.doors).into_iter().chain(self.intent.take());
        readers.chain(exclusive).for_each(mem::forget);
    }
}

/// The number of the execution, and that of the calling thread in it.
fn place() -> (usize, usize) {
    /// Loom has no other way to tell that another execution has begun than that thread ids differ.
    #[derive(Default)]
    struct Numbers(Vec<usize>);

    impl Hasher for Numbers {
        fn write(&mut self, _: &[u8]) {}
        fn write_usize(&mut self, number: usize) {
            self.0.push(number);
        }
        fn finish(&self) -> u64 {
            0
        }
    }

    let mut numbers = Numbers::default();
    let id: ThreadId = loom::thread::current().id();
    id.hash(&mut numbers);
    match numbers.0[..] {
        [execution, thread] if thread < loom::MAX_THREADS => (execution, thread),
        _ => {
            panic!("this version of loom numbers its threads in a way that Fairlock does not know")
        }
    }
}

/// Whether Loom answers. It does while a panic unwinds that is caught in the model, or that began
/// there, but not after a deadlock: no thread of the execution runs then, while guards are still
/// dropped. Loom prints a message instead then.
fn is_going_on() -> bool {
    !std::thread::panicking() || std::panic::catch_unwind(loom::thread::current).is_ok()
}

/// The calling thread's number among those of all executions. After a deadlock one of its own for
/// all: none is needed to release what is held.
pub(crate) fn this_thread() -> u64 {
    if !is_going_on() {
        return u64::MAX;
    }
    let (execution, thread) = place();
    (execution * loom::MAX_THREADS + thread) as u64 + 1
}

impl<P, K: Kind> RawModel<P, K> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // as that of the real locks
    pub const NEW: Self = RawModel { state: InExecution::NEW, kind: PhantomData };

    /// Nothing is counted.
    pub fn events(&self) -> Snapshot {
        Snapshot::of(&NoCounters::NEW)
    }

    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.state.with(|| State::new(K::DOORS), act)
    }

    fn parts(&self) -> Arc<Parts> {
        self.with(|state| Arc::clone(&state.parts))
    }

    /// Before what is held changes.
    fn announce(&self) {
        if is_going_on() {
            self.parts().bells[place().1].iter().for_each(Condvar::notify_all);
        }
    }

    /// Before a look at what is held that others may change.
    fn look<R>(&self, at: impl FnOnce(&mut State) -> R) -> R {
        let thread = place().1;
        self.parts().bells.iter().for_each(|bells| bells[thread].notify_all());
        self.with(at)
    }

    /// Closes the doors and waits for the readers inside. The caller has the intent. False if it
    /// does not wait and somebody reads.
    fn exclude_readers(&self, wait: Wait) -> bool {
        let parts = self.parts();
        let doors = parts.doors.iter().map(|door| lock(door, wait)).collect::<Option<Vec<_>>>();
        let Some(doors) = doors else { return false };
        self.announce();
        // No operation of Loom's is between the last look at the readers and the change.
        while let Some((number, mutex, is_inside)) = self.with(|state| {
            let reader = state.readers.first()?;
            Some((reader.number, Arc::clone(&reader.mutex), reader.held.is_some()))
        }) {
            if is_inside && wait == Wait::No {
                return false;
            }
            drop(lock(&mutex, Wait::Yes));
            self.with(|state| state.readers.retain(|reader| reader.number != number));
        }
        self.with(|state| {
            state.doors = doors;
            state.is_exclusive = true;
        });
        true
    }

    fn acquire_exclusive(&self, wait: Wait) -> bool {
        let Some(intent) = lock(&self.parts().intent, wait) else { return false };
        let alone = self.exclude_readers(wait);
        if alone {
            self.with(|state| state.intent = Some(intent));
        }
        alone
    }

    fn acquire_upgradable(&self, wait: Wait) -> bool {
        let Some(intent) = lock(&self.parts().intent, wait) else { return false };
        self.announce();
        self.with(|state| state.intent = Some(intent));
        true
    }

    /// A mutex for a new reader, locked.
    fn new_reader(&self) -> (Arc<Mutex<()>>, Held) {
        let mutex = Arc::new(Mutex::new(()));
        let held = lock(&mutex, Wait::Yes).expect("nobody else has it");
        (mutex, held)
    }

    /// No writer is inside or can enter before this returns.
    fn add_reader(&self, (mutex, held): (Arc<Mutex<()>>, Held)) -> usize {
        let thread = place().1;
        self.with(|state| {
            let number = state.reads;
            state.reads += 1;
            state.readers.push(Reader { number, thread, mutex, held: Some(held) });
            number
        })
    }

    fn acquire_shared(&self, wait: Wait) -> Option<usize> {
        let reader = self.new_reader();
        let _door = lock(&self.parts().doors[place().1], wait)?;
        self.announce();
        Some(self.add_reader(reader))
    }

    /// Past a writer that waits, if this thread reads already: no writer can be inside then.
    fn acquire_recursively(&self, wait: Wait) -> Option<usize> {
        let thread = place().1;
        let reads = |reader: &Reader| reader.thread == thread && reader.held.is_some();
        if !self.with(|state| state.readers.iter().any(reads)) {
            return self.try_or_wait_shared(wait);
        }
        let reader = self.new_reader();
        self.announce();
        Some(self.add_reader(reader))
    }

    fn try_or_wait_shared(&self, wait: Wait) -> Option<usize> {
        if wait == Wait::No && self.look(|state| state.is_exclusive) {
            return None;
        }
        self.acquire_shared(wait)
    }

    fn release_shared(&self, number: usize) {
        self.announce();
        drop(self.with(|state| {
            let reader = state.readers.iter_mut().find(|reader| reader.number == number);
            reader.expect("a shared hold").held.take()
        }));
    }

    fn release_exclusive(&self) {
        self.announce();
        drop(self.with(|state| {
            state.is_exclusive = false;
            (mem::take(&mut state.doors), state.intent.take())
        }));
    }

    fn try_upgrade(&self) -> bool {
        let reads = |state: &mut State| state.readers.iter().any(|reader| reader.held.is_some());
        !self.look(reads) && self.exclude_readers(Wait::No)
    }
}

// SAFETY: whoever holds the lock exclusively holds the intent, which excludes others like it, and
// every door, and has waited for all readers, of whom none can come meanwhile. Loom's mutexes order
// memory. An acquisition that fails drops what it has of them. A hold that is forgotten stays in
// the state. Any thread may unlock Loom's mutexes.
unsafe impl<P: Platform, K: Kind> RawLock for RawModel<P, K> {
    type Platform = P;
    type Residence = K::Residence;
    const WANTED: Wanted = K::WANTED;

    fn write(&self, wait: raw::Wait) -> bool {
        match wait.into() {
            Wait::Yes => self.acquire_exclusive(Wait::Yes),
            Wait::No => !self.look(|state| state.is_held()) && self.acquire_exclusive(Wait::No),
        }
    }
    unsafe fn unlock_write(&self, _fair: bool) {
        self.release_exclusive();
    }

    fn is_locked(&self) -> bool {
        self.look(|state| state.is_held())
    }

    fn id(&self) -> *const () {
        ptr::from_ref(self).cast()
    }
}

impl State {
    /// Of a free lock.
    fn new(doors: usize) -> Self {
        let mutex = || Arc::new(Mutex::new(()));
        let parts = Parts {
            intent: mutex(),
            doors: (0..doors).map(|_| mutex()).collect(),
            bells: core::array::from_fn(|_| core::array::from_fn(|_| Condvar::new())),
        };
        State {
            parts: Arc::new(parts),
            intent: None,
            doors: Vec::new(),
            is_exclusive: false,
            readers: Vec::new(),
            reads: 0,
        }
    }

    fn is_held(&self) -> bool {
        self.intent.is_some() || self.readers.iter().any(|reader| reader.held.is_some())
    }
}

// SAFETY: as above. An upgradable holder has the intent, so there is one at a time, and readers
// need only their doors. A downgrade gives up mutexes without an operation of Loom's in between,
// and has its own as a reader before that.
unsafe impl<P: Platform, K: Kind> RawReadWriteLock for RawModel<P, K> {
    /// The number of the reader.
    type Shared = usize;

    fn read(&self, wait: raw::Wait) -> Option<usize> {
        self.try_or_wait_shared(wait.into())
    }
    unsafe fn unlock_read(&self, shared: usize, _fair: bool) {
        self.release_shared(shared);
    }
    unsafe fn recover_shared(&self) -> usize {
        let thread = place().1;
        self.with(|state| {
            let mut holds = state.readers.iter().filter(|reader| reader.held.is_some());
            let own = holds.clone().find(|reader| reader.thread == thread);
            own.or_else(|| holds.next()).expect("a shared hold").number
        })
    }

    unsafe fn downgrade_to_read(&self) -> usize {
        let number = self.add_reader(self.new_reader());
        self.release_exclusive();
        number
    }
    unsafe fn downgrade_to_upgradable(&self) {
        self.announce();
        drop(self.with(|state| {
            state.is_exclusive = false;
            mem::take(&mut state.doors)
        }));
    }

    fn upgradable(&self, wait: raw::Wait) -> bool {
        match wait.into() {
            Wait::Yes => self.acquire_upgradable(Wait::Yes),
            Wait::No => {
                !self.look(|state| state.intent.is_some()) && self.acquire_upgradable(Wait::No)
            }
        }
    }
    unsafe fn unlock_upgradable(&self, _fair: bool) {
        self.announce();
        drop(self.with(|state| state.intent.take()));
    }
    unsafe fn downgrade_upgradable(&self) -> usize {
        let number = self.add_reader(self.new_reader());
        // SAFETY: held upgradable, as the caller promises.
        unsafe { self.unlock_upgradable(false) };
        number
    }
    unsafe fn upgrade(&self, wait: raw::Wait) -> bool {
        match wait.into() {
            Wait::Yes => self.exclude_readers(Wait::Yes),
            Wait::No => self.try_upgrade(),
        }
    }

    fn is_locked_exclusive(&self) -> bool {
        self.look(|state| state.is_exclusive)
    }
}

// SAFETY: as above; no writer is inside while the calling thread reads.
unsafe impl<P: Platform, K: Kind> ReadRecursive for RawModel<P, K> {
    fn read_recursive(&self, wait: raw::Wait) -> Option<usize> {
        self.acquire_recursively(wait.into())
    }
}

/// What [`Condvar`](crate::Condvar) is made of.
///
/// # Panics
/// As those of [`RawModel`].
pub struct RawCondvar<P = Os> {
    queue: InExecution<Queue>,
    platform: PhantomData<fn() -> P>,
}

/// Who waits, the oldest first.
struct Queue {
    /// Rung before each look at the queue and each change. Nobody ever waits for it.
    bell: Arc<Condvar>,
    /// The address of the mutex of those that wait.
    mutex: usize,
    waiters: VecDeque<Waiter>,
    /// How many there have been.
    waits: usize,
    /// For each thread how many of its last waits have timed out in a row.
    timed_out: [u32; loom::MAX_THREADS],
}

struct Waiter {
    number: usize,
    /// Unlocked by the notification.
    held: Held,
}

impl Queue {
    fn new() -> Self {
        Queue {
            bell: Arc::new(Condvar::new()),
            mutex: 0,
            waiters: VecDeque::new(),
            waits: 0,
            timed_out: [0; loom::MAX_THREADS],
        }
    }
}

impl Drop for Queue {
    /// As that of [`State`].
    fn drop(&mut self) {
        mem::take(&mut self.waiters).into_iter().for_each(mem::forget);
    }
}

impl<P: Platform> RawCondvar<P> {
    /// Without waiters.
    #[allow(clippy::declare_interior_mutable_const)] // as that of the real one
    pub const NEW: Self = RawCondvar { queue: InExecution::NEW, platform: PhantomData };

    fn look<R>(&self, at: impl FnOnce(&mut Queue) -> R) -> R {
        let bell = self.queue.with(Queue::new, |queue| Arc::clone(&queue.bell));
        bell.notify_all();
        self.queue.with(Queue::new, at)
    }

    /// As that of the [real one](crate::condvar::RawCondvar::wait).
    ///
    /// # Panics
    /// If threads wait here with another mutex.
    ///
    /// # Safety
    /// The calling thread holds the mutex.
    #[track_caller]
    pub unsafe fn wait(&self, mutex: &RawMutex<P>, deadline: Option<u64>) -> bool {
        let own = Arc::new(Mutex::new(()));
        let held = lock(&own, Wait::Yes).expect("nobody else has it");
        let address = ptr::from_ref(mutex).addr();
        let number = self.look(|queue| {
            let is_its_own = queue.waiters.is_empty() || queue.mutex == address;
            is_its_own.then(|| {
                queue.mutex = address;
                queue.waits += 1;
                queue.waiters.push_back(Waiter { number: queue.waits, held });
                queue.waits
            })
        });
        let number = number.unwrap_or_else(|| {
            panic!(
                "threads wait on this Condvar with another Mutex: give each Mutex a Condvar of its own"
            )
        });
        // SAFETY: held, as the caller promises.
        unsafe { mutex.unlock_write(false) };
        let is_notified = match raw::Wait::until(deadline).into() {
            Wait::Yes => lock(&own, Wait::Yes).is_some(),
            Wait::No => !self.withdraw(number),
        };
        mutex.write(raw::Wait::ForEver);
        is_notified
    }

    /// Removes a waiter whose time is over. False if it was notified before.
    fn withdraw(&self, number: usize) -> bool {
        /// Timeouts in a row after which a thread lets others run first. A loop of waits that time
        /// out would go on for ever otherwise, as Loom interrupts nobody without a reason. But then
        /// Loom no longer tries both orders of the timeout and what another thread is about to do.
        /// More: a loop has more executions.
        const PATIENCE: u32 = 2;
        let thread = place().1;
        if self.queue.with(Queue::new, |queue| queue.timed_out[thread] >= PATIENCE) {
            loom::thread::yield_now();
        }
        let own = self.look(|queue| {
            let place = queue.waiters.iter().position(|waiter| waiter.number == number);
            queue.timed_out[thread] = if place.is_some() { queue.timed_out[thread] + 1 } else { 0 };
            place.and_then(|place| queue.waiters.remove(place))
        });
        own.is_some()
    }

    /// Notifies the thread that has waited longest. False if nobody waits.
    pub fn notify_one(&self) -> bool {
        self.notify(1) == 1
    }

    /// Notifies all threads that wait. Returns how many.
    pub fn notify_all(&self) -> usize {
        self.notify(usize::MAX)
    }

    fn notify(&self, most: usize) -> usize {
        let notified: Vec<Waiter> =
            self.look(|queue| iter::from_fn(|| queue.waiters.pop_front()).take(most).collect());
        notified.into_iter().map(|waiter| drop(waiter.held)).count()
    }
}
