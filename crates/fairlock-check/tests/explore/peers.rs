//! glibc's locks, those of Rust's standard library and parking_lot's, as `fairlock-reference` has them, in every schedule
//! within stated bounds: nobody is let in beside a writer, nobody sleeps for ever, and who may pass whom is as their kinds
//! say.

use std::cell::Cell;

use fairlock::lock_api::{Condvar, Mutex, RawCondvar, RawRwLock, RwLock};
use fairlock_check::brief::Brief;
use fairlock_check::explored::program;
use fairlock_check::scenario::{Scenario, Subject};
use fairlock_check::{mutex, read_write};
use fairlock_reference::parking_lot::condvar::RawParkingLotCondvar;
use fairlock_reference::parking_lot::mutex::RawParkingLotMutex;
use fairlock_reference::parking_lot::rwlock::RawParkingLotRwLock;
use fairlock_reference::parking_lot::{V0_12, V0_13, Version};
use fairlock_reference::pthread::mutex::{Adaptive, Normal, RawPthreadMutex};
use fairlock_reference::pthread::rwlock::{
    PreferReader, PreferWriter, PreferWriterNonrecursive, RawPthreadRwLock,
};
use fairlock_reference::rust_std::condvar::RawStdCondvar;
use fairlock_reference::rust_std::mutex::RawStdMutex;
use fairlock_reference::rust_std::rwlock::RawStdRwLock;
use fairlock_sim::On;
use fairlock_sim::explore::{
    self, Blind, Deaf, Explore, FailureKind, Guarded, Program, Search, Sound, Torn,
};

type P<F = Sound> = On<Explore<F>>;

/// More executions than this of two threads, and preemptions are bounded.
const MOST_OF_TWO: u64 = 5_000;

fn two<S: Subject>(name: &str, scenarios: Vec<Scenario<S>>) {
    for scenario in scenarios {
        let program = program(name, &scenario);
        if !program.assert(&Search::exhaustive().at_most(MOST_OF_TWO)).complete {
            assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
        }
    }
}

fn more<S: Subject>(name: &str, three: Vec<Scenario<S>>, four: Scenario<S>) {
    let three = three.into_iter().map(|scenario| (scenario, 2));
    for (scenario, preemptions) in three.chain([(four, 1)]) {
        let program = program(name, &scenario);
        assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
        program.spurious_wakes(1).assert(&Search::random(1, 1_000));
    }
}

fn eight<S: Subject>(name: &str, scenario: &Scenario<S>) {
    let program = program(name, scenario);
    for seed in 1..=3 {
        program.assert(&Search::pct(seed, 3, 500));
    }
    program.assert(&Search::random(4, 500));
}

fn store_buffers<S: Subject>(name: &str, scenarios: Vec<Scenario<S>>) {
    for scenario in scenarios {
        let program = program(name, &scenario).store_buffers();
        program.assert(&Search::random(1, 1_000));
    }
}

macro_rules! rwlocks {
    ($($module:ident: $raw:ty;)*) => {$(
        mod $module {
            use super::*;
            type Lock = RwLock<$raw, Guarded>;
            const NAME: &str = stringify!($module);
            #[test]
            fn two_threads_in_every_schedule() {
                two::<Lock>(NAME, read_write::two_basic());
            }
            #[test]
            fn three_and_four_threads_with_few_preemptions() {
                let four = read_write::two_readers_and_two_writers();
                more::<Lock>(NAME, read_write::three_basic(), four);
            }
            #[test]
            fn eight_threads_by_chance() {
                eight::<Lock>(NAME, &read_write::eight_readers_and_writers());
            }
            #[test]
            fn with_store_buffers() {
                let (two, three) = (read_write::two_basic(), read_write::three_basic());
                store_buffers::<Lock>(NAME, [two, three].concat());
            }
        }
    )*};
}

macro_rules! mutexes {
    ($($module:ident: $raw:ty;)*) => {$(
        mod $module {
            use super::*;
            type Lock = Mutex<$raw, Guarded>;
            const NAME: &str = stringify!($module);
            #[test]
            fn two_threads_in_every_schedule() {
                two::<Lock>(NAME, mutex::two_basic());
            }
            #[test]
            fn three_and_four_threads_with_few_preemptions() {
                more::<Lock>(NAME, vec![mutex::three()], mutex::four_plain());
            }
            #[test]
            fn eight_threads_by_chance() {
                eight::<Lock>(NAME, &mutex::eight_plain());
            }
            #[test]
            fn with_store_buffers() {
                store_buffers::<Lock>(NAME, [mutex::two_basic(), vec![mutex::three()]].concat());
            }
        }
    )*};
}

rwlocks! {
    pthread: RawPthreadRwLock<PreferReader, P>;
    pthread_writer: RawPthreadRwLock<PreferWriter, P>;
    pthread_writer_nonrecursive: RawPthreadRwLock<PreferWriterNonrecursive, P>;
    std_rwlock: RawStdRwLock<P>;
    parking_lot: RawParkingLotRwLock<Brief<V0_13>, P>;
    parking_lot_fair: RawParkingLotRwLock<Brief<V0_12>, P>;
}

mutexes! {
    pthread_mutex: RawPthreadMutex<Normal, P>;
    pthread_mutex_adaptive: RawPthreadMutex<Adaptive, P>;
    std_mutex: RawStdMutex<P>;
    parking_lot_mutex: RawParkingLotMutex<Brief<V0_13>, P>;
    parking_lot_mutex_fair: RawParkingLotMutex<Brief<V0_12>, P>;
}

/// A release of version 0.12 hands the lock over when time has passed since the last handover, and only then.
#[test]
fn parking_lot_hands_over_sooner_or_later() {
    fn check<S: Subject>(name: &str, few: Vec<Scenario<S>>, eight: &Scenario<S>) {
        for scenario in few {
            let program = program(name, &scenario).clock_jumps(1);
            assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
        }
        let program = program(name, eight).clock_jumps(2);
        program.assert(&Search::random(1, 1_000));
    }
    type Fair = RawParkingLotRwLock<Brief<V0_12>, P>;
    let few = [read_write::two_basic(), read_write::three_basic()].concat();
    check::<RwLock<Fair, Guarded>>("fair", few, &read_write::eight_readers_and_writers());
    type FairMutex = RawParkingLotMutex<Brief<V0_12>, P>;
    let few = [mutex::two_basic(), vec![mutex::three()]].concat();
    check::<Mutex<FairMutex, Guarded>>("fair mutex", few, &mutex::eight_plain());
}

/// Beside the brief spins above.
#[test]
fn parking_lot_with_spins_of_ten_rounds() {
    fn check<V: Version>(name: &str) {
        type Lock<V> = RwLock<RawParkingLotRwLock<V, P>, Guarded>;
        eight::<Lock<V>>(name, &read_write::eight_readers_and_writers());
        type ItsMutex<V> = Mutex<RawParkingLotMutex<V, P>, Guarded>;
        eight::<ItsMutex<V>>(name, &mutex::eight_plain());
    }
    check::<V0_12>("parking_lot 0.12");
    check::<V0_13>("parking_lot 0.13");
}

// ---- condition variables ----

/// Tokens that were given and taken, and where threads wait for one.
type Tokens<C> = (Mutex<<C as RawCondvar>::RawMutex, [Guarded; 2]>, Condvar<C>);

fn take<C: RawCondvar>((tokens, changed): &Tokens<C>) {
    let mut tokens = tokens.lock();
    changed.wait_while(&mut tokens, |[given, taken]| given.get() == taken.get());
    tokens[1].add();
}

/// Gives this many tokens at once and notifies, with the mutex held or after its release.
fn give<C: RawCondvar>((tokens, changed): &Tokens<C>, count: u32, is_held: bool) {
    let notify = || {
        if count == 1 { _ = changed.notify_one() } else { _ = changed.notify_all() }
    };
    let tokens = tokens.lock();
    (0..count).for_each(|_| tokens[0].add());
    if is_held {
        notify();
        drop(tokens);
    } else {
        drop(tokens);
        notify();
    }
}

#[test]
fn no_notification_is_lost() {
    fn check<C: RawCondvar + 'static>() {
        let name = std::any::type_name::<C>();
        let program = || Program::new(name, || -> Tokens<C> { Default::default() }).thread(take);
        for is_held in [true, false] {
            let one = program().thread(move |tokens| give(tokens, 1, is_held));
            assert!(one.assert(&Search::exhaustive().preemptions(3)).complete);
            let one_by_one = program().thread(take).thread(move |tokens| {
                give(tokens, 1, is_held);
                give(tokens, 1, is_held);
            });
            let at_once = program().thread(take).thread(move |tokens| give(tokens, 2, is_held));
            for two in [one_by_one, at_once] {
                let two = two.finally(|(tokens, changed)| {
                    assert_eq!(tokens.lock().each_ref().map(Guarded::get), [2, 2]);
                    assert_eq!(changed.notify_all(), 0, "no thread waits");
                });
                assert!(two.assert(&Search::exhaustive().preemptions(1)).complete);
                two.assert(&Search::random(1, 500));
            }
        }
    }
    check::<RawStdCondvar<P>>();
    check::<RawParkingLotCondvar<Brief<V0_13>, P>>();
    check::<RawParkingLotCondvar<Brief<V0_12>, P>>();
}

// ---- who passes whom ----

/// Whether a reader that arrives while a writer sleeps until another reader leaves is ever let in beside that reader.
fn a_reader_passes_a_writer<R: RawRwLock + 'static>() -> bool {
    thread_local! {
        static PASSES: Cell<bool> = const { Cell::new(false) };
    }
    PASSES.set(false);
    /// The lock, and whether the first reader is inside.
    type State<R> = (RwLock<R, ()>, Cell<bool>);
    let new = || -> State<R> { (RwLock::new(()), Cell::new(false)) };
    let program = Program::new("a reader past a writer", new)
        .thread(|(lock, _): &State<R>| drop(lock.write()))
        .thread(|(lock, is_read)| {
            let writer_sleeps = explore::sleeps_of(0).asleep && is_read.get();
            let guard = lock.read();
            if writer_sleeps && is_read.get() {
                PASSES.set(true);
            }
            drop(guard);
        })
        .thread(|(lock, is_read)| {
            let guard = lock.read();
            is_read.set(true);
            // Others may be faster than this thread.
            explore::sleeps_of(0);
            is_read.set(false);
            drop(guard);
        });
    assert!(program.assert(&Search::exhaustive().preemptions(3)).complete);
    PASSES.get()
}

#[test]
fn readers_pass_a_waiting_writer_unless_they_are_told_not_to() {
    fn check<R: RawRwLock + 'static>(passes: bool) {
        assert_eq!(a_reader_passes_a_writer::<R>(), passes, "{}", std::any::type_name::<R>());
    }
    check::<RawPthreadRwLock<PreferReader, P>>(true);
    check::<RawPthreadRwLock<PreferWriter, P>>(true);
    check::<RawPthreadRwLock<PreferWriterNonrecursive, P>>(false);
    check::<RawStdRwLock<P>>(false);
    check::<RawParkingLotRwLock<Brief<V0_12>, P>>(false);
    check::<RawParkingLotRwLock<Brief<V0_13>, P>>(false);
}

// ---- the explorer is checked ----

fn with_a_flaw<S: Subject>(name: &str, scenario: Scenario<S>) -> FailureKind {
    let program = program(name, &scenario.adding(0..=3));
    let found = program.check(&Search::exhaustive().preemptions(2).at_most(100_000));
    let failure = found.expect_err("the explorer must notice the flaw");
    let again = program.replay(&failure.schedule).expect_err("and again");
    assert_eq!((&again.kind, &again.trace), (&failure.kind, &failure.trace));
    failure.kind
}

fn assert_sleeps(name: &str, kind: &FailureKind) {
    let is_sleep = matches!(kind, FailureKind::Deadlock { .. } | FailureKind::LostWakeUp { .. });
    assert!(is_sleep, "{name}: {kind}");
}

fn assert_found(name: &str, kind: &FailureKind) {
    assert!(!matches!(kind, FailureKind::NotDeterministic), "{name}: {kind}");
}

macro_rules! flaws_are_noticed {
    ($lock:ident, $torn:expr, $asleep:expr, $($name:literal: $raw:ident<$($kind:ty)?>),*) => {$({
        type Flawed<F> = $lock<$raw<$($kind,)? P<F>>, Guarded<F>>;
        assert_sleeps($name, &with_a_flaw::<Flawed<Deaf>>($name, $asleep));
        assert_sleeps($name, &with_a_flaw::<Flawed<Blind>>($name, $asleep));
        assert_found($name, &with_a_flaw::<Flawed<Torn>>($name, $torn));
    })*};
}

#[test]
fn the_explorer_notices_lost_wake_ups_and_torn_updates() {
    flaws_are_noticed!(
        RwLock, read_write::two_writers(), read_write::a_reader_and_two_writers(),
        "pthread": RawPthreadRwLock<PreferReader>,
        "pthread-writer": RawPthreadRwLock<PreferWriter>,
        "pthread-writer-nonrecursive": RawPthreadRwLock<PreferWriterNonrecursive>,
        "std": RawStdRwLock<>,
        "parking_lot": RawParkingLotRwLock<Brief<V0_13>>,
        "parking_lot, fair": RawParkingLotRwLock<Brief<V0_12>>
    );
    flaws_are_noticed!(
        Mutex, mutex::two(), mutex::three(),
        "pthread-mutex": RawPthreadMutex<Normal>,
        "pthread-mutex, adaptive": RawPthreadMutex<Adaptive>,
        "std-mutex": RawStdMutex<>,
        "parking_lot-mutex": RawParkingLotMutex<Brief<V0_13>>,
        "parking_lot-mutex, fair": RawParkingLotMutex<Brief<V0_12>>
    );
}
