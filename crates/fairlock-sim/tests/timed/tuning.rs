//! Other values for the constants of the locks: what is refused, that they hold for one run only, and that no
//! value breaks a lock.

use std::cell::Cell;

use fairlock::lock_api;
use fairlock::platform::Tunable;
use fairlock::policy::{PhaseFair, TimeFair};
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::RawRwSem;
use fairlock::tunables;
use fairlock_sim::Sim;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Counts, Failure, Setup, Thread};
use fairlock_sim::tuning::Tuning;

use crate::large::Body;

type Sem = RawRwSem<TimeFair, Sim>;
type Default = RawRwLock<Sim>;

/// As in a static of its own: no line is shared with anything else.
#[repr(align(128))]
struct Alone<R>(lock_api::RwLock<R, ()>);

/// Who holds a lock, as the simulated threads see it.
#[derive(Default)]
struct Holders {
    readers: Cell<u32>,
    writer: Cell<bool>,
}

impl Holders {
    fn read(&self, section: u32) {
        assert!(!self.writer.get(), "a reader beside a writer");
        self.readers.set(self.readers.get() + 1);
        timed::compute(section);
        assert!(!self.writer.get(), "a writer beside a reader");
        self.readers.set(self.readers.get() - 1);
    }
    fn write(&self, section: u32) {
        assert!(!self.writer.replace(true), "a writer beside a writer");
        timed::compute(section);
        assert_eq!(self.readers.get(), 0, "readers beside a writer");
        self.writer.set(false);
    }
}

/// More threads than CPUs that read, that write, and that do both by turns, most of them for short, and a few that come now
/// and then and stay longer: so often each.
fn mix<R: lock_api::RawRwLock>(rounds: u32, tuning: Option<&Tuning>) -> Result<Counts, Failure> {
    let (lock, holders) =
        (Alone(lock_api::RwLock::<R, ()>::from_raw(R::INIT, ())), Holders::default());
    let profile = Profile::example();
    let threads = profile.topology.cpus() + 2;
    let body = |index: u32| -> Body<'_> {
        let (lock, holders) = (&lock.0, &holders);
        Box::new(move || {
            for round in 0..rounds {
                let (writes, section, away) = match index {
                    0 | 1 => (false, 10, 10),
                    2 => (true, 10, 10),
                    3 => (round % 32 == 31, 2_000, 5_000),
                    _ => (round % index == 0, index, 3 * index),
                };
                if writes {
                    let _held = lock.write();
                    holders.write(section);
                } else {
                    let _held = lock.read();
                    holders.read(section);
                }
                timed::compute(away);
            }
        })
    };
    let threads = (0..threads).map(|index| Thread { body: body(index), priority: 0 });
    let setup = Setup { profile: &profile, seed: 1, pinned: false, timeline_ns: 0, tuning };
    timed::run(&setup, threads.collect(), &|| false, &|| ()).map(|report| report.counts)
}

fn counts<R: lock_api::RawRwLock>(tuning: Option<&Tuning>) -> Counts {
    mix::<R>(300, tuning).expect("no deadlock")
}

fn tuning(pairs: impl IntoIterator<Item = (&'static str, u32)>) -> Tuning {
    let pairs = pairs.into_iter().map(|(name, value)| (name.to_owned(), value));
    Tuning::new(pairs).expect("known names and values within bounds")
}

/// Every constant with the value that `choose` finds for it.
fn all(choose: impl Fn(&Tunable) -> u32) -> Tuning {
    tuning(tunables().iter().map(|constant| (constant.name(), choose(constant))))
}

#[test]
fn an_unknown_name_is_refused_and_the_known_ones_are_named() {
    let error = Tuning::new([("spin".to_owned(), 4), ("spinn".to_owned(), 4)]).unwrap_err();
    assert!(error.starts_with("there is no constant spinn: use absence_ns, "), "{error}");
    for constant in tunables() {
        assert!(error.contains(constant.name()), "{error}");
    }
}

#[test]
fn a_value_out_of_bounds_is_refused_and_the_bounds_are_named() {
    for value in [0, 1_025] {
        let error = Tuning::new([("slack".to_owned(), value)]).unwrap_err();
        assert_eq!(error, format!("slack is {value}: it may be from 1 to 1024"));
    }
}

#[test]
fn a_name_given_twice_is_refused() {
    let twice = [("spin".to_owned(), 4), ("spin".to_owned(), 4)];
    assert_eq!(Tuning::new(twice).unwrap_err(), "spin is given twice: give it one value");
}

#[test]
fn a_tuning_is_in_the_order_of_the_names_and_equals_another_of_the_same_values() {
    let (one, other) = (tuning([("slack", 4), ("naps", 1)]), tuning([("naps", 1), ("slack", 4)]));
    assert!(one.iter().eq([("naps", 1), ("slack", 4)]));
    assert_eq!(one, other);
    assert!(!one.is_empty() && Tuning::default().is_empty());
}

#[test]
fn every_constant_has_a_name_and_an_id_of_its_own() {
    for (at, one) in tunables().iter().enumerate() {
        for other in &tunables()[at + 1..] {
            assert!(one.name() != other.name() && one.id() != other.id(), "{one:?} and {other:?}");
        }
    }
}

#[test]
fn without_a_tuning_and_with_the_usual_values_a_run_is_the_same() {
    let usual = all(Tunable::value);
    for counts in [counts::<Sem>, counts::<Default>, counts::<RawRwSem<PhaseFair, Sim>>] {
        let untuned = counts(None);
        assert_eq!(counts(Some(&Tuning::default())), untuned);
        assert_eq!(counts(Some(&usual)), untuned);
    }
}

#[test]
fn a_run_with_another_slack_is_another_one_and_the_same_each_time() {
    let short = tuning([("slack", 8)]);
    let tuned = counts::<Sem>(Some(&short));
    assert_ne!(tuned, counts::<Sem>(None));
    assert_eq!(tuned, counts::<Sem>(Some(&short)));
}

#[test]
fn a_tuning_does_not_make_anybody_pass_where_nobody_is_ever_passed() {
    let (policys, usual) = (counts::<RawRwSem<PhaseFair, Sim>>, counts::<Sem>(None));
    let knobs = tuning([("slack", 8), ("spin", 2)]);
    assert_eq!(policys(Some(&knobs)), policys(None));
    assert_ne!(counts::<Sem>(Some(&knobs)), usual);
}

#[test]
fn each_of_several_runs_at_once_has_its_own_tuning() {
    let expected = [8, 48, 200].map(|slack| counts::<Sem>(Some(&tuning([("slack", slack)]))));
    std::thread::scope(|scope| {
        let runs = [8, 48, 200].map(|slack| {
            scope.spawn(move || {
                let tuning = tuning([("slack", slack)]);
                [(); 3].map(|()| counts::<Sem>(Some(&tuning)))
            })
        });
        for (run, expected) in runs.into_iter().zip(expected) {
            assert_eq!(run.join().unwrap(), [expected; 3]);
        }
    });
}

#[test]
fn a_tuning_ends_with_its_run_also_if_that_panics() {
    let untuned = counts::<Sem>(None);
    let tuning = tuning([("slack", 8)]);
    let profile = Profile::example();
    let setup =
        Setup { profile: &profile, seed: 1, pinned: false, timeline_ns: 0, tuning: Some(&tuning) };
    // A simulated thread, and what the run calls on the real one.
    let body: Body<'_> = Box::new(|| panic!("on purpose"));
    let failed = timed::run(&setup, vec![Thread { body, priority: 0 }], &|| false, &|| ());
    assert_eq!(failed.unwrap_err(), Failure::Panicked("on purpose".to_owned()));
    assert_eq!(counts::<Sem>(None), untuned);
    let caught = std::panic::catch_unwind(|| {
        let body: Body<'_> = Box::new(|| (0..10_000).for_each(|_| timed::sleep(1)));
        let threads = vec![Thread { body, priority: 0 }];
        timed::run(&setup, threads, &|| panic!("on purpose"), &|| ())
    });
    assert!(caught.is_err());
    assert_eq!(counts::<Sem>(None), untuned);
}

#[test]
fn no_value_within_its_bounds_breaks_a_lock() {
    let each = tunables().iter().flat_map(|constant| {
        let (least, most) = constant.bounds().into_inner();
        [least, most].map(|value| tuning([(constant.name(), value)]))
    });
    let together = [all(|it| *it.bounds().start()), all(|it| *it.bounds().end())];
    for tuning in each.chain(together) {
        for (name, mix) in [
            ("rwsem", mix::<Sem> as fn(u32, Option<&Tuning>) -> Result<Counts, Failure>),
            ("rwlock", mix::<Default>),
        ] {
            if let Err(failure) = mix(150, Some(&tuning)) {
                panic!("{name} with {tuning:?}: {failure:?}");
            }
        }
    }
}
