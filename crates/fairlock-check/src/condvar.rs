//! Scenarios of `Condvar`: threads that wait for tokens, and threads that give them.

use std::time::Duration;

use fairlock::condvar::Condvar;
use fairlock::mutex::{Mutex, MutexGuard};
use fairlock::platform::Platform;

use crate::scenario::{Number, Subject, lists, scenarios};

/// Tokens under a mutex; what is counted at the end are those that were taken.
pub struct Tokens<N> {
    given: N,
    taken: N,
}

impl<N: Number> Tokens<N> {
    fn none(&mut self) -> bool {
        self.given.get() == self.taken.get()
    }
}

/// Tokens that threads wait for.
pub struct Queue<P: Platform, N> {
    tokens: Mutex<Tokens<N>, P>,
    changed: Condvar<P>,
}

impl<P: Platform, N: Number> Subject for Queue<P, N> {
    fn new() -> Self {
        let tokens = Mutex::<_, P>::new_in(Tokens { given: N::zero(), taken: N::zero() });
        Queue { tokens, changed: Condvar::new_in() }
    }
    fn additions(&self) -> u32 {
        assert_eq!(self.changed.notify_all(), 0, "nobody waits when everybody is done");
        let tokens = self.tokens.try_lock().expect("the mutex is free when everybody is done");
        tokens.taken.get()
    }
}

const PATIENCE: Duration = Duration::from_micros(100);

/// Waits for a token and takes it.
pub fn take<P: Platform, N: Number>(queue: &Queue<P, N>) {
    let mut tokens = queue.tokens.lock();
    queue.changed.wait_while(&mut tokens, Tokens::none);
    tokens.taken.add();
}

/// Waits at most once, where nobody else takes tokens: a wait ends for no other reason than a notification.
pub fn take_after_one_wait<P: Platform, N: Number>(queue: &Queue<P, N>) {
    let mut tokens = queue.tokens.lock();
    if tokens.none() {
        queue.changed.wait(&mut tokens);
    }
    assert!(!tokens.none(), "the wait ended without a notification");
    tokens.taken.add();
}

/// Takes a token if there is one in time.
pub fn take_in_time<P: Platform, N: Number>(queue: &Queue<P, N>) {
    let mut tokens = queue.tokens.lock();
    if !queue.changed.wait_while_for(&mut tokens, Tokens::none, PATIENCE).timed_out() {
        tokens.taken.add();
    }
}

/// Takes no token. If it is notified, it passes that on; if its time is over, nobody else has to do so for it.
pub fn pass_on_in_time<P: Platform, N: Number>(queue: &Queue<P, N>) {
    let mut tokens = queue.tokens.lock();
    if tokens.none() && !queue.changed.wait_for(&mut tokens, PATIENCE).timed_out() {
        queue.changed.notify_one();
    }
}

/// Locks and unlocks.
pub fn visit<P: Platform, N: Number>(queue: &Queue<P, N>) {
    queue.tokens.lock().none();
}

/// Gives a token, and notifies while it holds the mutex.
pub fn give<P: Platform, N: Number>(queue: &Queue<P, N>) {
    let tokens = queue.tokens.lock();
    tokens.given.add();
    queue.changed.notify_one();
}

/// Gives a token, and notifies when it has released the mutex.
pub fn give_outside<P: Platform, N: Number>(queue: &Queue<P, N>) {
    queue.tokens.lock().given.add();
    queue.changed.notify_one();
}

/// Gives a token, notifies, and hands the mutex over.
pub fn give_fair<P: Platform, N: Number>(queue: &Queue<P, N>) {
    let tokens = queue.tokens.lock();
    tokens.given.add();
    queue.changed.notify_one();
    MutexGuard::unlock_fair(tokens);
}

/// Gives two tokens, one after the other.
pub fn give_two<P: Platform, N: Number>(queue: &Queue<P, N>) {
    give(queue);
    give_outside(queue);
}

/// Gives two tokens at once.
pub fn give_all<P: Platform, N: Number>(queue: &Queue<P, N>) {
    let tokens = queue.tokens.lock();
    tokens.given.add();
    tokens.given.add();
    queue.changed.notify_all();
}

/// The same, and notifies when it has released the mutex.
pub fn give_all_outside<P: Platform, N: Number>(queue: &Queue<P, N>) {
    let tokens = queue.tokens.lock();
    tokens.given.add();
    tokens.given.add();
    drop(tokens);
    queue.changed.notify_all();
}

scenarios! { Queue<P, N> where P: Platform, N: Number;
    a_notification "a notification": [take_after_one_wait, give] => 1..=1;
    a_notification_outside "a notification outside": [take_after_one_wait, give_outside] => 1..=1;
    a_timeout_beside_a_notification "a timeout beside a notification":
        [take_in_time, give] => 0..=1;
    a_timeout_beside_one_outside "a timeout beside a notification outside":
        [take_in_time, give_outside] => 0..=1;
    a_handover "a handover": [take_after_one_wait, give_fair] => 1..=1;
    nobody_waits "nobody waits": [give, give_all_outside] => 0..=0;

    one_by_one "one by one": [take, take, give_two] => 2..=2;
    all_at_once "all at once": [take, take, give_all] => 2..=2;
    all_at_once_outside "all at once, outside": [take, take, give_all_outside] => 2..=2;
    a_notification_and_a_visitor "a notification and a visitor": [take, visit, give] => 1..=1;
    one_outside_and_a_visitor "a notification outside and a visitor":
        [take, visit, give_outside] => 1..=1;
    a_handover_and_a_visitor "a handover and a visitor": [take, visit, give_fair] => 1..=1;
    a_timeout_takes_no_notification "a timeout takes no notification":
        [pass_on_in_time, take, give] => 1..=1;
    a_timeout_takes_none_outside "a timeout takes no notification outside":
        [pass_on_in_time, take, give_outside] => 1..=1;

    four "four": [take, pass_on_in_time, take, give_all] => 2..=2;
    eight "eight":
        [take, take_in_time, pass_on_in_time, take, visit, give_two, give_all_outside, give_fair] => 2..=3;
}

lists! { Queue<P, N> where P: Platform, N: Number;
    /// Every way to wait beside every way to notify.
    two_threads: [
        a_notification,
        a_notification_outside,
        a_timeout_beside_a_notification,
        a_timeout_beside_one_outside,
        a_handover,
        nobody_waits,
    ];
    /// Somebody else waits, or wants the mutex.
    three_threads: [
        one_by_one,
        all_at_once,
        all_at_once_outside,
        a_notification_and_a_visitor,
        one_outside_and_a_visitor,
        a_handover_and_a_visitor,
        a_timeout_takes_no_notification,
        a_timeout_takes_none_outside,
    ];
}
