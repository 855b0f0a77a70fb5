//! What notifications of a `Condvar` cost on the timed machine.

use std::cell::{Cell, RefCell};

use fairlock::{Condvar, Mutex};
use fairlock_sim::Sim;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Setup, Thread};

/// As in a static of its own: no line is shared with anything else.
#[repr(align(128))]
struct Alone<L>(L);

const WAITERS: usize = 4;
const ALL_WAIT_NS: u64 = 1_000_000;

/// How often threads went to sleep in all, if all of them wait and are notified at once, with the mutex held or not.
fn sleeps(holds: bool) -> u64 {
    let mutex = Alone(Mutex::<_, Sim>::new_in(RefCell::new(Vec::new())));
    let changed = Alone(Condvar::<Sim>::new_in());
    let waiting = Cell::new(0);
    let (mutex, changed, waiting) = (&mutex.0, &changed.0, &waiting);
    let waiter = |who: usize| -> Box<dyn FnOnce() + '_> {
        Box::new(move || {
            // One after the other.
            timed::compute(1_000 * u32::try_from(who + 1).unwrap());
            let mut went_on = mutex.lock();
            waiting.set(waiting.get() + 1);
            changed.wait(&mut went_on);
            went_on.borrow_mut().push(who);
            timed::compute(100);
        })
    };
    let notifier = Box::new(move || {
        while timed::now() < ALL_WAIT_NS {
            timed::compute(1_000);
        }
        let guard = mutex.lock();
        assert_eq!(waiting.get(), WAITERS);
        let _held = holds.then_some(guard);
        assert_eq!(changed.notify_all(), WAITERS);
        timed::compute(1_000);
    });
    let mut bodies: Vec<Box<dyn FnOnce() + '_>> = (0..WAITERS).map(waiter).collect();
    bodies.push(notifier);
    let profile = Profile::example();
    assert!(bodies.len() <= profile.topology.cpus() as usize, "each has a CPU");
    let threads = bodies.into_iter().map(|body| Thread { body, priority: 0 }).collect();
    let setup = Setup { profile: &profile, seed: 1, pinned: true, timeline_ns: 0, tuning: None };
    let report = timed::run(&setup, threads, &|| false, &|| ()).unwrap();
    let mut went_on = mutex.lock().borrow().clone();
    went_on.sort_unstable();
    assert_eq!(went_on, Vec::from_iter(0..WAITERS));
    report.threads.iter().map(|thread| thread.voluntary_switches).sum()
}

/// Once for the notification, and once for the mutex, which the others want as well.
#[test]
fn threads_that_are_notified_at_once_sleep_twice_at_most() {
    for holds in [true, false] {
        let sleeps = sleeps(holds);
        assert!(sleeps <= 2 * WAITERS as u64, "{sleeps}; the mutex is held: {holds}");
    }
}
