//! `Condvar` in every schedule within stated bounds: no notification is lost, also next to timeouts,
//! and all that are notified go on.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use fairlock::condvar::Condvar;
use fairlock_check::long::depth;
use fairlock_check::scenario::Scenario;
use fairlock_check::{condvar, explored};
use fairlock_sim::explore::{
    self, Blind, Cpus, Deaf, Explore, FailureKind, Flaw, Guarded, Program, Search, Sound,
};
use fairlock_sim::{Explored, On};

type Queue<F = Sound> = condvar::Queue<On<Explore<F>>, Guarded<F>>;
type Mutex<T> = fairlock::Mutex<T, Explored>;

fn program<F: Flaw>(scenario: &Scenario<Queue<F>>) -> Program<Queue<F>> {
    explored::program("", scenario)
}

#[test]
fn two_threads_in_every_schedule() {
    for scenario in condvar::two_threads() {
        let program = program::<Sound>(&scenario).spurious_wakes(1);
        if !program.assert(&Search::exhaustive().at_most(depth(10_000, 50_000))).complete {
            let search = Search::exhaustive().preemptions(depth(2, 3));
            assert!(program.assert(&search).complete);
        }
    }
}

#[test]
fn three_and_four_threads_with_few_preemptions() {
    for scenario in condvar::three_threads() {
        let program = program::<Sound>(&scenario).cpus(Cpus::One);
        let search = Search::exhaustive().preemptions(depth(1, 2));
        assert!(program.assert(&search).complete);
    }
    let four = program::<Sound>(&condvar::four()).cpus(Cpus::One);
    assert!(four.assert(&Search::exhaustive().preemptions(1)).complete);
}

#[test]
fn eight_threads_by_chance() {
    let program = program::<Sound>(&condvar::eight()).clock_jumps(1).spurious_wakes(1);
    for seed in 1..=3 {
        program.assert(&Search::pct(seed, 3, 2_000));
    }
    program.assert(&Search::random(4, 2_000));
}

#[test]
fn two_threads_with_store_buffers() {
    for scenario in [condvar::a_notification_outside(), condvar::a_timeout_beside_one_outside()] {
        let program = program::<Sound>(&scenario).store_buffers();
        program.assert(&Search::exhaustive().at_most(50_000));
    }
}

/// Threads that wait, once each, until somebody has closed the door.
#[derive(Default)]
struct Door {
    closed: Cell<bool>,
    /// Who began to wait, and who went on, in their order.
    began: RefCell<Vec<usize>>,
    went_on: RefCell<Vec<usize>>,
}

type Place = (Mutex<Door>, Condvar<Explored>);

fn wait(place: &Place, who: usize) {
    let (mutex, changed) = place;
    let mut door = mutex.lock();
    if !door.closed.get() {
        door.began.borrow_mut().push(who);
        changed.wait(&mut door);
        door.went_on.borrow_mut().push(who);
    }
}

fn waiters_and(waiters: usize, closer: impl Fn(&Place) + 'static) -> Program<Place> {
    let new = || (Mutex::new_in(Default::default()), Condvar::new_in());
    let program = Program::new(format!("{waiters} that wait and one that notifies"), new);
    (0..waiters)
        .fold(program, |program, who| program.thread(move |place| wait(place, who)))
        .thread(closer)
        .finally(|(mutex, changed)| {
            let door = mutex.try_lock().expect("the mutex is free");
            door.went_on.borrow_mut().sort_unstable();
            door.began.borrow_mut().sort_unstable();
            assert_eq!(door.began, door.went_on);
            assert!(!changed.notify_one(), "no thread waits");
        })
}

#[test]
fn a_notification_goes_to_as_many_as_it_says() {
    let program = waiters_and(2, |(mutex, changed)| {
        let door = mutex.lock();
        door.closed.set(true);
        let waiting = door.began.borrow().len();
        assert_eq!(changed.notify_one(), waiting > 0);
        drop(door);
        assert_eq!(changed.notify_all(), waiting.saturating_sub(1));
    });
    assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
}

/// It has waited for the mutex for longer than 4 ms since its notification, was up since, and went to sleep again: the
/// mutex is reserved for it. How long it waited for the notification does not count.
#[test]
fn a_notified_waiter_that_is_due_is_not_passed_any_more() {
    type State = (Place, Cell<bool>);
    let program = Program::new("a notified waiter that is due", || -> State {
        ((Mutex::new_in(Default::default()), Condvar::new_in()), Cell::new(false))
    });
    let program = program
        .thread(|(place, done)| {
            wait(place, 0);
            done.set(true);
        })
        .thread(|((mutex, changed), done)| {
            let door = mutex.lock();
            door.closed.set(true);
            let notified = changed.notify_one();
            let before = explore::sleeps_of(0);
            explore::pass_time(5_000_000);
            drop(door);
            let mut reserved = false;
            for _ in 0..3 {
                let door = mutex.lock();
                assert!(!reserved || done.get(), "passed a waiter that is due");
                let sleeps = explore::sleeps_of(0);
                reserved |=
                    notified && before.asleep && sleeps.asleep && sleeps.count > before.count;
                drop(door);
            }
        });
    assert!(program.assert(&Search::exhaustive().preemptions(3)).complete);
}

/// A thread that notifies borrows the condition variable alone, not the mutex.
#[test]
fn a_waiter_may_free_the_mutex_as_soon_as_it_has_been_notified() {
    let program = || {
        Program::new("a mutex that is gone", Condvar::<Explored>::new_in)
            .thread(|changed| {
                let mutex = Box::new(Mutex::new_in(()));
                changed.wait_for(&mut mutex.lock(), Duration::from_micros(100));
            })
            .thread(|changed| _ = changed.notify_one())
            .thread(|changed| _ = changed.notify_all())
            .finally(|changed| assert!(!changed.notify_one(), "nobody waits"))
    };
    assert!(program().assert(&Search::exhaustive().preemptions(depth(2, 3))).complete);
}

fn with_a_flaw<F: Flaw>() -> FailureKind {
    let program = program::<F>(&condvar::a_notification());
    let failure = program.check(&Search::exhaustive()).expect_err("the flaw must be noticed");
    failure.kind
}

#[test]
fn the_explorer_notices_flaws() {
    let kind = with_a_flaw::<Deaf>();
    assert!(matches!(kind, FailureKind::LostWakeUp { .. }), "{kind}");
    let kind = with_a_flaw::<Blind>();
    assert!(matches!(kind, FailureKind::LostWakeUp { .. }), "{kind}");
}
