//! Scenarios of what people build of `Mutex` and `Condvar`: a queue of one slot, a barrier, a
//! semaphore, a pool of workers, turns, and shards. The threads check what each of these promises.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use fairlock::condvar::Condvar;
use fairlock::mutex::{Mutex, MutexGuard};
use fairlock::platform::Platform;

use crate::scenario::{Number, Scenario, Subject};

/// Whom a thread notifies, and when: with the mutex held, or after its release.
#[derive(Debug, Clone, Copy)]
pub enum Notify {
    /// One thread, with the mutex held.
    One,
    /// One thread, after the release.
    OneOutside,
    /// All threads, with the mutex held. All wait at one condition variable then.
    All,
    /// All threads, after the release.
    AllOutside,
}

impl Notify {
    fn reaches_all(self) -> bool {
        matches!(self, Notify::All | Notify::AllOutside)
    }

    /// How a scenario begins whose threads notify in this way.
    fn beginning<P: Platform, N: Number, T: Pattern>(self) -> fn() -> Monitor<P, N, T> {
        match self {
            Notify::One => || Monitor::notifying(Notify::One),
            Notify::OneOutside => || Monitor::notifying(Notify::OneOutside),
            Notify::All => || Monitor::notifying(Notify::All),
            Notify::AllOutside => || Monitor::notifying(Notify::AllOutside),
        }
    }
}

/// What threads do with a monitor.
pub type Scenarios<P, N, T> = Vec<Scenario<Monitor<P, N, T>>>;

/// What a monitor keeps for its pattern, and what threads do with it.
pub trait Pattern: Default + 'static {
    /// What it is called.
    const NAME: &str;

    /// The ways to notify with which it works.
    const WAYS: &[Notify];

    /// Two threads.
    fn two_threads<P: Platform, N: Number>() -> Scenarios<P, N, Self>;

    /// Three threads, or four.
    fn more_threads<P: Platform, N: Number>() -> Scenarios<P, N, Self>;
}

/// The scenarios of a pattern: what its threads do, each by a method of its monitor.
macro_rules! pattern {
    ($pattern:ident: $($way:ident),*;
     $($list:ident: $($text:literal: [$($step:ident($($with:expr),*)),*] => $counted:expr;)*)*) => {
        impl Pattern for $pattern {
            const NAME: &str = stringify!($pattern);
            const WAYS: &[Notify] = &[$(Notify::$way),*];

            $(fn $list<P: Platform, N: Number>() -> Scenarios<P, N, Self> {
                vec![$(Scenario::new(
                    $text,
                    [$(|monitor: &Monitor<P, N, Self>| monitor.$step($($with),*)),*],
                    $counted,
                )),*]
            })*
        }
    };
}

/// Of a thread that waits for as long as it takes.
const PATIENT: bool = true;
/// Of a thread that waits for a while.
const IMPATIENT: bool = false;
const A_WHILE: Duration = Duration::from_micros(100);

type Held<'a, P, N, T> = MutexGuard<'a, (T, N), P>;

/// A mutex with its condition variables, what a pattern keeps, and a number that a scenario counts.
pub struct Monitor<P: Platform, N, T> {
    notify: Notify,
    state: Mutex<(T, N), P>,
    conditions: [Condvar<P>; 3],
    /// Threads add to these without the mutex: one at a time, if the pattern keeps its promise.
    apart: [N; 2],
    /// Notified threads whose wait has not returned.
    owed: AtomicUsize,
}

impl<P: Platform, N: Number, T: Pattern> Monitor<P, N, T> {
    fn notifying(notify: Notify) -> Self {
        Monitor {
            notify,
            state: Mutex::<_, P>::new_in((T::default(), N::zero())),
            conditions: [const { Condvar::new_in() }; 3],
            apart: [N::zero(), N::zero()],
            owed: AtomicUsize::new(0),
        }
    }

    fn condition(&self, at: usize) -> &Condvar<P> {
        &self.conditions[if self.notify.reaches_all() { 0 } else { at }]
    }

    /// Ends a section, and notifies.
    fn end(&self, state: Held<'_, P, N, T>, at: usize) {
        let is_outside = matches!(self.notify, Notify::OneOutside | Notify::AllOutside);
        let _held = (!is_outside).then_some(state);
        self.notify(at, self.notify.reaches_all());
    }

    fn notify(&self, at: usize, all: bool) {
        let changed = self.condition(at);
        let count = if all { changed.notify_all() } else { changed.notify_one().into() };
        self.owed.fetch_add(count, Relaxed);
    }

    /// Waits while `condition` holds. False if a thread that is not patient gives up: it has taken
    /// no notification, so it does not look again.
    fn wait(
        &self,
        state: &mut Held<'_, P, N, T>,
        at: usize,
        is_patient: bool,
        condition: impl Fn(&(T, N)) -> bool,
    ) -> bool {
        let changed = self.condition(at);
        while condition(state) {
            if is_patient {
                changed.wait(state);
            } else if changed.wait_for(state, A_WHILE).timed_out() {
                return false;
            }
            self.owed.fetch_sub(1, Relaxed); // wraps if this thread was faster than the other
        }
        true
    }
}

impl<P: Platform, N: Number, T: Pattern> Subject for Monitor<P, N, T> {
    fn new() -> Self {
        Self::notifying(T::WAYS[0])
    }
    fn additions(&self) -> u32 {
        assert!(self.conditions.iter().all(|changed| !changed.notify_one()), "no thread waits");
        assert_eq!(self.owed.load(Relaxed), 0, "as many waits ended as notifications came");
        self.state.try_lock().expect("the mutex is free").1.get()
    }
}

/// The scenarios with each way to notify, and what to call that.
pub fn in_each_way<P: Platform, N: Number, T: Pattern>(
    scenarios: fn() -> Scenarios<P, N, T>,
) -> impl Iterator<Item = (String, Scenario<Monitor<P, N, T>>)> {
    T::WAYS.iter().flat_map(move |way| {
        let name = format!("{}, {way:?}", T::NAME);
        let begin =
            move |scenario: Scenario<_>| (name.clone(), scenario.beginning_with(way.beginning()));
        scenarios().into_iter().map(begin)
    })
}

/// A queue of one slot. Its messages are numbered. What is counted are those received.
#[derive(Default)]
pub struct Slot {
    message: Option<u32>,
    sent: u32,
}

const HAS_MESSAGE: usize = 0;
const HAS_ROOM: usize = 1;

impl<P: Platform, N: Number> Monitor<P, N, Slot> {
    fn send(&self, messages: u32) {
        for _ in 0..messages {
            let mut state = self.state.lock();
            self.wait(&mut state, HAS_ROOM, PATIENT, |(slot, _)| slot.message.is_some());
            state.0.message = Some(state.0.sent);
            state.0.sent += 1;
            self.end(state, HAS_MESSAGE);
        }
    }

    fn receive(&self, messages: u32, is_patient: bool) {
        for _ in 0..messages {
            let mut state = self.state.lock();
            if self.wait(&mut state, HAS_MESSAGE, is_patient, |(slot, _)| slot.message.is_none()) {
                let message = state.0.message.take();
                assert_eq!(message, Some(state.1.get()), "each message once, in order");
                state.1.add();
                self.end(state, HAS_ROOM);
            }
        }
    }
}

pattern! { Slot: One, OneOutside, All, AllOutside;
    two_threads:
        "a queue": [receive(2, PATIENT), send(2)] => 2..=2;
    more_threads:
        "two receivers": [receive(1, PATIENT), receive(1, PATIENT), send(2)] => 2..=2;
        "a receiver gives up": [receive(1, IMPATIENT), receive(1, PATIENT), send(2)] => 1..=2;
        "two senders": [send(1), send(1), receive(2, PATIENT)] => 2..=2;
}

/// Threads that meet, twice. What is counted are arrivals.
#[derive(Default)]
pub struct Barrier;

impl<P: Platform, N: Number> Monitor<P, N, Barrier> {
    /// A thread that is not patient looks again and again.
    fn meet(&self, parties: u32, is_patient: bool) {
        for generation in 0..2 {
            let mut state = self.state.lock();
            state.1.add();
            let is_closed = |(_, arrived): &(_, N)| arrived.get() / parties == generation;
            if !is_closed(&state) {
                self.end(state, 0);
                continue;
            }
            while !self.wait(&mut state, 0, is_patient, is_closed) {}
            assert_eq!(state.1.get() / parties, generation + 1, "two generations ahead");
        }
    }
}

pattern! { Barrier: All, AllOutside;
    two_threads:
        "two": [meet(2, PATIENT), meet(2, PATIENT)] => 4..=4;
        "one looks again": [meet(2, IMPATIENT), meet(2, PATIENT)] => 4..=4;
    more_threads:
        "three": [meet(3, PATIENT), meet(3, PATIENT), meet(3, PATIENT)] => 6..=6;
        "four": [meet(4, PATIENT), meet(4, PATIENT), meet(4, PATIENT), meet(4, PATIENT)] => 8..=8;
}

/// A semaphore: which permits are taken. What is counted is how often a thread took one.
#[derive(Default)]
pub struct Semaphore([bool; 2]);

impl<P: Platform, N: Number> Monitor<P, N, Semaphore> {
    /// Takes a permit and returns it, or gives up.
    fn pass(&self, permits: usize, is_patient: bool) {
        let mut state = self.state.lock();
        let none_is_free = |(taken, _): &(Semaphore, N)| !taken.0[..permits].contains(&false);
        if !self.wait(&mut state, 0, is_patient, none_is_free) {
            return;
        }
        let mine = state.0.0.iter().position(|taken| !taken).expect("a permit is free");
        state.0.0[mine] = true;
        state.1.add();
        drop(state);
        self.apart[mine].add();
        let mut state = self.state.lock();
        state.0.0[mine] = false;
        self.end(state, 0);
    }
}

pattern! { Semaphore: One, OneOutside;
    two_threads:
        "one permit": [pass(1, PATIENT), pass(1, PATIENT)] => 2..=2;
        "one gives up": [pass(1, IMPATIENT), pass(1, PATIENT)] => 1..=2;
    more_threads:
        "two permits": [pass(2, PATIENT), pass(2, PATIENT), pass(2, PATIENT)] => 3..=3;
        "one of three gives up": [pass(1, PATIENT), pass(1, IMPATIENT), pass(1, PATIENT)] => 2..=3;
}

/// Jobs for workers. What is counted are those that are done.
#[derive(Default)]
pub struct Jobs {
    submitted: u32,
    taken: u32,
    is_closed: bool,
}

const HAS_JOB: usize = 0;
const ALL_DONE: usize = 1;

impl<P: Platform, N: Number> Monitor<P, N, Jobs> {
    /// Does jobs until there are no more. A worker that is not patient retires when it is idle.
    fn work(&self, is_patient: bool) {
        let is_idle = |(jobs, _): &(Jobs, N)| jobs.taken == jobs.submitted && !jobs.is_closed;
        let mut state = self.state.lock();
        while self.wait(&mut state, HAS_JOB, is_patient, is_idle)
            && state.0.taken != state.0.submitted
        {
            let job = state.0.taken;
            state.0.taken += 1;
            drop(state);
            self.apart[job as usize].add();
            state = self.state.lock();
            state.1.add();
            if state.1.get() == state.0.submitted {
                self.end(state, ALL_DONE);
                state = self.state.lock();
            }
        }
    }

    /// Submits two jobs, waits until they are done, and closes the pool.
    fn submit(&self) {
        for _ in 0..2 {
            let mut state = self.state.lock();
            state.0.submitted += 1;
            self.end(state, HAS_JOB);
        }
        let mut state = self.state.lock();
        self.wait(&mut state, ALL_DONE, PATIENT, |(_, done)| done.get() < 2);
        state.0.is_closed = true;
        drop(state);
        self.notify(HAS_JOB, true);
        assert!(self.apart.iter().all(|job| job.get() == 1), "each job was done once");
    }
}

pattern! { Jobs: One, OneOutside;
    two_threads:
        "a worker": [work(PATIENT), submit()] => 2..=2;
    more_threads:
        "two workers": [work(PATIENT), work(PATIENT), submit()] => 2..=2;
        "a worker retires": [work(IMPATIENT), work(PATIENT), submit()] => 2..=2;
}

/// Turns, two for each thread. What is counted are those that are over.
#[derive(Default)]
pub struct Turns;

impl<P: Platform, N: Number> Monitor<P, N, Turns> {
    /// A thread that is not patient looks again and again.
    fn take(&self, mine: usize, threads: usize, is_patient: bool) {
        for _ in 0..2 {
            let mut state = self.state.lock();
            let is_not_mine = |(_, over): &(Turns, N)| over.get() as usize % threads != mine;
            while !self.wait(&mut state, mine, is_patient, is_not_mine) {}
            state.1.add();
            self.end(state, (mine + 1) % threads);
        }
    }
}

pattern! { Turns: One, OneOutside, All, AllOutside;
    two_threads:
        "two": [take(1, 2, PATIENT), take(0, 2, PATIENT)] => 4..=4;
        "one looks again": [take(1, 2, IMPATIENT), take(0, 2, PATIENT)] => 4..=4;
    more_threads:
        "three": [take(2, 3, PATIENT), take(1, 3, PATIENT), take(0, 3, PATIENT)] => 6..=6;
}

/// Numbers under a mutex each.
pub struct Shards<P: Platform, N>([Mutex<N, P>; 2]);

impl<P: Platform, N: Number> Subject for Shards<P, N> {
    fn new() -> Self {
        Shards([Mutex::<_, P>::new_in(N::zero()), Mutex::<_, P>::new_in(N::zero())])
    }
    fn additions(&self) -> u32 {
        self.0.iter().map(|shard| shard.try_lock().expect("the mutex is free").get()).sum()
    }
}

impl<P: Platform, N: Number> Shards<P, N> {
    fn add_in(&self, order: [usize; 2]) {
        order.iter().for_each(|&shard| self.0[shard].lock().add());
    }

    fn add_in_time(&self) {
        for shard in &self.0 {
            shard.try_lock_for(A_WHILE).inspect(|shard| shard.add());
        }
    }

    fn add_to_both(&self) {
        let shards = self.0.each_ref().map(Mutex::lock);
        shards.iter().for_each(|shard| shard.add());
    }
}

/// Two threads that add to one shard after the other, from either end, or to both at once.
pub fn shards<P: Platform, N: Number>() -> Vec<Scenario<Shards<P, N>>> {
    vec![
        Scenario::new(
            "from either end",
            [|shards| shards.add_in([0, 1]), |shards| shards.add_in([1, 0])],
            4..=4,
        ),
        Scenario::new("both at once", [Shards::add_to_both, Shards::add_to_both], 4..=4),
        Scenario::new("in time", [Shards::add_in_time, Shards::add_to_both], 2..=4),
    ]
}
