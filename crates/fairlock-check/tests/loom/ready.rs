//! The ready list and its poll under Loom: no signal is lost, no sleeper is forgotten and what was
//! published before a signal is seen, in the interleavings of two or three threads with a bound on
//! preemptions and on how many are tried. Waits and locks do not spin here, so that they sleep.
//!
//! Each thing is also built on platforms that order nothing, that lack full fences, or that lose
//! wake-ups, and Loom must notice.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fairlock::ready::{Batch, List, RawCounter, RawEvent, RawPoll, Readiness, ReadyList, Trigger};
use fairlock_check::loom_platform::{
    DeafHasty, Hasty, NoFenceHasty, StubbornHasty, Watched, WeakWideHasty, explore,
};
use fairlock_reference::ready::{RwLockList, SpinList};
use fairlock_reference::spin::{RawQueuedRwLock, RawTicket};
use loom::thread;

const READABLE: Readiness = Readiness::READABLE;
const NOW: Option<Duration> = Some(Duration::ZERO);
const A_MOMENT: Option<Duration> = Some(Duration::from_micros(1));

/// The list under test, and those that it is measured against over the simplest locks.
type Free<P = Hasty> = ReadyList<P>;
type Shared<P = Hasty> = RwLockList<P, RawQueuedRwLock<P>>;
type Exclusive<P = Hasty> = SpinList<P, RawTicket<P>>;

thread_local! {
    static OTHERS_FIRST: Cell<bool> = const { Cell::new(false) };
}

/// Explores a model twice: where a consumer goes on for as long as it can, and where it lets the others
/// come first. Loom finds what else may happen from where two threads have met, and a thread that has
/// not begun has met nobody; so each finds what the other does not.
fn explore_both(name: &str, preemptions: usize, model: fn()) {
    for others_first in [false, true] {
        explore(name, preemptions, move || {
            OTHERS_FIRST.set(others_first);
            model();
        });
    }
}

fn let_others_begin() {
    if OTHERS_FIRST.get() {
        thread::yield_now();
    }
}

/// What the threads of a model share: a poll with two counters, an event, and data that each producer
/// writes before it signals.
struct Scene<L: List> {
    poll: RawPoll<L>,
    counters: [RawCounter<L>; 2],
    event: RawEvent<L>,
    data: [Watched; 2],
}

/// The event's token.
const EVENT: u64 = 2;

impl<L: List> Scene<L> {
    /// Nothing is registered.
    fn bare() -> Arc<Self> {
        Arc::new(Scene {
            poll: RawPoll::new(),
            counters: [RawCounter::new(0), RawCounter::new(0)],
            event: RawEvent::new(),
            data: [Watched::new(), Watched::new()],
        })
    }

    /// Both counters are registered.
    fn counting(trigger: Trigger) -> Arc<Self> {
        let scene = Self::bare();
        for (token, counter) in scene.counters.iter().enumerate() {
            scene.poll.register(counter, token as u64, READABLE, trigger).unwrap();
        }
        scene
    }

    /// The event is registered.
    fn happening(trigger: Trigger) -> Arc<Self> {
        let scene = Self::bare();
        scene.poll.register(&scene.event, EVENT, READABLE, trigger).unwrap();
        scene
    }

    fn tokens(&self, timeout: Option<Duration>) -> Vec<u64> {
        let_others_begin();
        let mut batch = Batch::with_capacity(4);
        self.poll.wait(&mut batch, timeout);
        batch.iter().map(|ready| ready.token).collect()
    }

    /// Waits, and takes what the reported counters have.
    fn gather(&self, timeout: Option<Duration>) -> u64 {
        let tokens = self.tokens(timeout);
        tokens.iter().filter_map(|&token| self.counters[token as usize].read()).sum()
    }

    /// Sleeps and takes until it has so much: for ever, if a signal is lost.
    fn gather_until(&self, sum: u64) {
        let mut gathered = 0;
        while gathered < sum {
            gathered += self.gather(None);
        }
        assert_eq!(gathered, sum);
    }

    fn set(&self) {
        self.event.set(READABLE);
    }
}

fn spawn<L: List>(
    scene: &Arc<Scene<L>>,
    body: impl FnOnce(&Scene<L>) + Send + 'static,
) -> thread::JoinHandle<()> {
    let scene = Arc::clone(scene);
    thread::spawn(move || body(&scene))
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("a panic ends the model");
    }
}

// ---- models ----

fn what_was_written_before_a_signal_is_seen_by_who_is_told<L: List>() {
    let scene = Scene::<L>::happening(Trigger::Edge);
    let producer = spawn(&scene, |scene| {
        scene.data[0].add();
        scene.set();
    });
    let told = scene.tokens(NOW) == [EVENT];
    if told {
        assert_eq!(scene.data[0].get(), 1);
    }
    join([producer]);
    assert_eq!(scene.tokens(NOW).len(), usize::from(!told), "one edge, one report");
}

fn a_sleeper_is_woken_and_sees_what_was_written<L: List>() {
    let scene = Scene::<L>::happening(Trigger::Edge);
    let producer = spawn(&scene, |scene| {
        scene.data[0].add();
        scene.set();
    });
    assert_eq!(scene.tokens(None), [EVENT]);
    assert_eq!(scene.data[0].get(), 1);
    join([producer]);
}

fn no_add_is_lost_to_a_sleeper<L: List>(trigger: Trigger) {
    let scene = Scene::<L>::counting(trigger);
    let producer = spawn(&scene, |scene| {
        scene.counters[0].add(1);
        scene.counters[0].add(1);
    });
    scene.gather_until(2);
    join([producer]);
}

fn no_add_is_lost_to_one_who_looks_now_and_then<L: List>(trigger: Trigger) {
    let scene = Scene::<L>::counting(trigger);
    let producer = spawn(&scene, |scene| {
        scene.counters[0].add(1);
        scene.counters[0].add(1);
    });
    let early = scene.gather(NOW) + scene.gather(NOW);
    join([producer]);
    assert_eq!(early + scene.gather(NOW), 2);
}

fn two_producers_of_one_source<L: List>(trigger: Trigger) {
    let scene = Scene::<L>::counting(trigger);
    let threads = [0, 1].map(|_| spawn(&scene, |scene| _ = scene.counters[0].add(1)));
    scene.gather_until(2);
    join(threads);
}

fn two_sources<L: List>(trigger: Trigger) {
    let scene = Scene::<L>::counting(trigger);
    let threads = [0, 1].map(|at| {
        spawn(&scene, move |scene| {
            scene.data[at].add();
            scene.counters[at].add(1);
        })
    });
    scene.gather_until(2);
    assert_eq!([0, 1].map(|at| scene.data[at].get()), [1, 1]);
    join(threads);
}

/// The one signal has returned, the other may be anywhere.
fn a_signal_that_has_returned_is_seen_at_once<L: List>() {
    let scene = Scene::<L>::happening(Trigger::Level);
    let [slow, quick] = [0, 1].map(|_| spawn(&scene, Scene::set));
    join([quick]);
    assert_eq!(scene.tokens(NOW), [EVENT]);
    join([slow]);
    assert_eq!(scene.tokens(NOW), [EVENT]);
}

/// As above, where the other was not there yet when the consumer looked.
fn an_edge_that_has_returned_is_seen_at_once<L: List>() {
    let scene = Scene::<L>::counting(Trigger::Edge);
    let [slow, quick] = [0, 1].map(|_| spawn(&scene, |scene| _ = scene.counters[0].add(1)));
    let early = scene.gather(NOW);
    join([quick]);
    let sum = early + scene.gather(NOW);
    assert!(sum >= 1);
    join([slow]);
    assert_eq!(sum + scene.gather(NOW), 2);
}

fn a_source_that_reports_once_does_so_again_when_it_is_modified<L: List>() {
    let scene = Scene::<L>::happening(Trigger::Once);
    let producer = spawn(&scene, Scene::set);
    assert_eq!(scene.tokens(None), [EVENT]);
    assert_eq!(scene.tokens(NOW), []);
    scene.poll.modify(&scene.event, 7, READABLE, Trigger::Once).unwrap();
    assert_eq!(scene.tokens(NOW), [7]);
    join([producer]);
    assert_eq!(scene.tokens(NOW), []);
}

fn a_level_stays_while_it_changes<L: List>() {
    let scene = Scene::<L>::happening(Trigger::Level);
    let producer = spawn(&scene, |scene| {
        scene.set();
        scene.event.clear(READABLE);
        scene.set();
    });
    scene.tokens(NOW);
    join([producer]);
    assert_eq!(scene.tokens(NOW), [EVENT]);
    assert_eq!(scene.tokens(NOW), [EVENT]);
}

fn a_source_leaves_while_it_is_signalled<L: List>() {
    let scene = Scene::<L>::happening(Trigger::Level);
    let producer = spawn(&scene, Scene::set);
    let_others_begin();
    scene.poll.deregister(&scene.event).unwrap();
    assert_eq!(scene.tokens(NOW), []);
    // And may enter another poll.
    let other = RawPoll::<L>::new();
    other.register(&scene.event, 8, READABLE, Trigger::Level).unwrap();
    join([producer]);
    let mut batch = Batch::with_capacity(1);
    assert_eq!(other.wait(&mut batch, NOW), 1);
    assert_eq!(scene.tokens(NOW), []);
}

fn a_poll_ends_while_its_source_is_signalled<L: List>() {
    let event = Arc::new(RawEvent::<L>::new());
    let poll = RawPoll::<L>::new();
    poll.register(&*event, 1, READABLE, Trigger::Edge).unwrap();
    let producer = thread::spawn({
        let event = Arc::clone(&event);
        move || event.set(READABLE)
    });
    let_others_begin();
    drop(poll);
    let other = RawPoll::<L>::new();
    other.register(&*event, 2, READABLE, Trigger::Level).unwrap();
    producer.join().expect("a panic ends the model");
    let mut batch = Batch::with_capacity(1);
    assert_eq!(other.wait(&mut batch, NOW), 1);
}

fn a_source_is_reported_as_what_it_was_registered_with<L: List>() {
    let scene = Scene::<L>::happening(Trigger::Level);
    scene.poll.deregister(&scene.event).unwrap();
    scene.set();
    let register = spawn(&scene, |scene| {
        scene.poll.register(&scene.event, 7, READABLE, Trigger::Once).unwrap();
    });
    let producer = spawn(&scene, Scene::set);
    let early = scene.tokens(NOW);
    join([register, producer]);
    let all = [early, scene.tokens(NOW)].concat();
    assert_eq!(all, [7], "once, as what it is now");
}

fn a_level_wakes_two_sleepers<L: List>() {
    let scene = Scene::<L>::happening(Trigger::Level);
    let sleepers = [0, 1].map(|_| spawn(&scene, |scene| assert_eq!(scene.tokens(None), [EVENT])));
    scene.set();
    join(sleepers);
}

fn two_edges_wake_two_sleepers<L: List>() {
    let scene = Scene::<L>::counting(Trigger::Edge);
    let sleepers = [0, 1].map(|_| {
        spawn(&scene, |scene| {
            let mut batch = Batch::with_capacity(1);
            assert_eq!(scene.poll.wait(&mut batch, None), 1);
        })
    });
    scene.counters[0].add(1);
    scene.counters[1].add(1);
    join(sleepers);
}

fn who_gives_up_leaves_nobody_asleep<L: List>() {
    let scene = Scene::<L>::happening(Trigger::Level);
    let hasty = spawn(&scene, |scene| _ = scene.tokens(A_MOMENT));
    let patient = spawn(&scene, |scene| assert_eq!(scene.tokens(None), [EVENT]));
    scene.set();
    join([hasty, patient]);
}

fn a_poll_within_a_poll_is_reported<L: List>() {
    let scene = Scene::<L>::happening(Trigger::Level);
    let outer = RawPoll::<L>::new();
    outer.register(&scene.poll, 9, READABLE, Trigger::Level).unwrap();
    scene.tokens(NOW);
    let producer = spawn(&scene, Scene::set);
    let mut batch = Batch::with_capacity(1);
    while scene.tokens(NOW).is_empty() {
        assert_eq!(outer.wait(&mut batch, None), 1);
    }
    join([producer]);
    // Not that it was cleared.
    assert_eq!(outer.wait(&mut batch, NOW), 1);
}

macro_rules! models {
    ($list:ident: $($model:ident $(($argument:expr))? at most $preemptions:literal;)*) => {$(
        #[test]
        fn $model() {
            explore_both(stringify!($model), $preemptions, || super::$model::<$list>($($argument)?));
        }
    )*};
}

mod ready_list {
    use super::*;

    models! {
        Free:
        what_was_written_before_a_signal_is_seen_by_who_is_told at most 3;
        a_sleeper_is_woken_and_sees_what_was_written at most 3;
        no_add_is_lost_to_a_sleeper(Trigger::Level) at most 2;
        no_add_is_lost_to_one_who_looks_now_and_then(Trigger::Edge) at most 3;
        two_producers_of_one_source(Trigger::Edge) at most 1;
        two_sources(Trigger::Level) at most 1;
        a_signal_that_has_returned_is_seen_at_once at most 2;
        an_edge_that_has_returned_is_seen_at_once at most 2;
        a_source_that_reports_once_does_so_again_when_it_is_modified at most 2;
        a_level_stays_while_it_changes at most 3;
        a_source_leaves_while_it_is_signalled at most 2;
        a_poll_ends_while_its_source_is_signalled at most 2;
        a_source_is_reported_as_what_it_was_registered_with at most 2;
        a_level_wakes_two_sleepers at most 1;
        two_edges_wake_two_sleepers at most 1;
        who_gives_up_leaves_nobody_asleep at most 1;
        a_poll_within_a_poll_is_reported at most 2;
    }
}

mod rwlock_list {
    use super::*;

    models! {
        Shared:
        what_was_written_before_a_signal_is_seen_by_who_is_told at most 2;
        no_add_is_lost_to_a_sleeper(Trigger::Level) at most 2;
        two_sources(Trigger::Level) at most 1;
        a_source_that_reports_once_does_so_again_when_it_is_modified at most 2;
        a_source_leaves_while_it_is_signalled at most 2;
    }
}

mod spin_list {
    use super::*;

    models! {
        Exclusive:
        what_was_written_before_a_signal_is_seen_by_who_is_told at most 2;
        no_add_is_lost_to_a_sleeper(Trigger::Level) at most 1;
        a_source_that_reports_once_does_so_again_when_it_is_modified at most 2;
        a_source_leaves_while_it_is_signalled at most 2;
    }
}

#[test]
fn a_survey_sees_what_is_linked_meanwhile() {
    explore("survey", 2, a_signal_that_has_returned_is_seen_at_once::<Free<StubbornHasty>>);
}

// ---- flaws ----

/// What Loom says about a model with a flaw.
fn report(preemptions: usize, model: fn()) -> String {
    let failure = catch_unwind(AssertUnwindSafe(|| explore_both("flawed", preemptions, model)));
    let failure = failure.expect_err("the checker must notice the flaw");
    match failure.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => (*other.downcast_ref::<&str>().unwrap_or(&"not a message")).to_owned(),
    }
}

/// Those of the third list are its lock's.
#[test]
fn relaxed_orderings_are_noticed() {
    let models: [(fn(), &str); 3] = [
        (a_signal_that_has_returned_is_seen_at_once::<Free<WeakWideHasty>>, "assertion"),
        (|| two_sources::<Free<WeakWideHasty>>(Trigger::Level), "deadlock"),
        (|| two_sources::<Shared<WeakWideHasty>>(Trigger::Level), "deadlock"),
    ];
    for (model, notice) in models {
        let message = report(2, model);
        assert!(message.contains(notice), "{message}");
    }
}

#[test]
fn missing_fences_are_noticed() {
    for model in [
        || no_add_is_lost_to_a_sleeper::<Free<NoFenceHasty>>(Trigger::Level),
        || no_add_is_lost_to_a_sleeper::<Shared<NoFenceHasty>>(Trigger::Level),
        || no_add_is_lost_to_a_sleeper::<Exclusive<NoFenceHasty>>(Trigger::Level),
    ] {
        let message = report(3, model);
        assert!(message.contains("deadlock"), "{message}");
    }
}

#[test]
fn lost_wake_ups_are_noticed() {
    for model in [
        a_sleeper_is_woken_and_sees_what_was_written::<Free<DeafHasty>>,
        a_sleeper_is_woken_and_sees_what_was_written::<Shared<DeafHasty>>,
        a_sleeper_is_woken_and_sees_what_was_written::<Exclusive<DeafHasty>>,
    ] {
        let message = report(2, model);
        assert!(message.contains("deadlock"), "{message}");
    }
}
