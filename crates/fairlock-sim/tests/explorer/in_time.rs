//! The explorer where time passes: stops come between any two steps, a schedule brings all of it back,
//! and who is passed for too long is found, but not who waits for one that is stopped.

use std::sync::atomic::Ordering::SeqCst;

use fairlock::lock_api::{RawRwLock, RwLock};
use fairlock::platform::{AtomicCell, Platform};
use fairlock::policy::PhaseFair;
use fairlock::rwsem::RawRwSem;
use fairlock_reference::linux::{Handoff, Knobs, Policy, RawLinuxRwSem, WriterSpin};
use fairlock_sim::Explored;
use fairlock_sim::explore::{Claim, FailureKind, Program, Search, Time, hold, pass_time};

type Word = <Explored as Platform>::AtomicU32;

/// Two stores next to each other, and somebody who looks 50 µs later.
fn looks_between(time: Time) -> Program<Word> {
    Program::new("a look between two stores", || Word::new(0))
        .thread(|word| {
            word.store(1, SeqCst);
            word.store(2, SeqCst);
        })
        .thread(|word| {
            pass_time(50_000);
            assert_ne!(word.load(SeqCst), 1, "long after both stores");
        })
        .in_time(time)
}

#[test]
fn a_thread_may_be_stopped_between_any_two_steps() {
    for search in [Search::exhaustive(), Search::random(1, 1_000), Search::pct(1, 3, 1_000)] {
        let program = looks_between(Time::new().stops(1));
        let failure = program.check(&search).expect_err("it was stopped between the stores");
        assert!(matches!(failure.kind, FailureKind::Panicked { thread: 2, .. }), "{failure}");
        assert!(failure.schedule.to_string().contains("1~"), "{failure}");
        assert!(failure.trace.contains("is stopped for"), "{failure}");
        let schedule = failure.schedule.to_string().parse().expect("as it was printed");
        let again = program.replay(&schedule).expect_err("again");
        assert_eq!((&again.kind, &again.trace), (&failure.kind, &failure.trace));
        // Without stops no thread falls behind.
        let report = looks_between(Time::new().stops(0)).assert(&search);
        assert!(report.executions > 1);
    }
}

#[test]
fn an_exhaustive_search_tries_all_stops_within_its_bounds() {
    let report = looks_between(Time::new().stops(1).stopped_for(1_000..=1_000))
        .assert(&Search::exhaustive().preemptions(1));
    assert!(report.complete && report.executions > 5, "{report}");
}

#[test]
fn a_timeout_comes_when_it_is_due_and_not_before() {
    let program = Program::new("a sleeper with a deadline", || Word::new(0))
        .thread(|word| {
            let deadline = Explored::now() + 20_000;
            Explored::park(word, 0, Some(deadline));
            let (now, value) = (Explored::now(), word.load(SeqCst));
            assert!(now >= deadline || value == 1, "it was woken or it is time");
            assert!(now < deadline + 40_000, "and not long after that");
        })
        .thread(|word| {
            pass_time(15_000);
            word.store(1, SeqCst);
            Explored::unpark(word);
        })
        .in_time(Time::new().stops(0));
    program.assert(&Search::random(1, 500));
    assert!(program.assert(&Search::exhaustive()).complete);
}

/// Readers steal, and nothing is ever reserved.
struct Unfair;

impl Policy for Unfair {
    const NAME: &'static str = "unfair";
    const KNOBS: Knobs =
        Knobs { writer_spins: WriterSpin::Never, handoff: Handoff::Never, ..Knobs::LINUX_5_11 };
}

/// Readers that overlap, and a writer that may be passed by them for 100 µs.
fn readers_overlap<R: RawRwLock + 'static>(bound: fn(Claim) -> Claim) -> Program<RwLock<R, ()>> {
    let readers = |lock: &RwLock<R, ()>| {
        for _ in 0..50 {
            hold(
                Claim::READ,
                || Some(lock.read()),
                |guard| {
                    pass_time(10_000);
                    drop(guard);
                },
            );
        }
    };
    Program::new(std::any::type_name::<R>(), || RwLock::new(()))
        .threads(3, readers)
        .thread(move |lock| {
            pass_time(25_000);
            hold(bound(Claim::WRITE), || Some(lock.write()), drop);
        })
        .in_time(Time::new())
}

#[test]
fn a_writer_that_is_passed_for_too_long_is_found() {
    let bounds: [fn(Claim) -> Claim; 1] = [|write| write.passed_for_at_most(100_000)];
    for bound in bounds {
        for search in [Search::random(1, 100), Search::pct(1, 3, 100)] {
            let failure = readers_overlap::<RawLinuxRwSem<Unfair, Explored>>(bound)
                .check(&search)
                .expect_err("unfair");
            let FailureKind::Passed { thread: 4, ns, bound, ref by, .. } = failure.kind else {
                panic!("{failure}");
            };
            assert!(ns > bound && by.iter().all(|&(passer, times)| passer < 4 && times > 0));
            // Nobody is passed by more than the readers that are there, and stops do not count.
            readers_overlap::<RawRwSem<PhaseFair, Explored>>(self::bounded).assert(&search);
        }
    }
}

fn bounded(write: Claim) -> Claim {
    write.passed_for_at_most(100_000).passed_without_a_break_for_at_most(100_000)
}
