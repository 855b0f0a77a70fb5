//! The explorer itself: what it must find, what it must not leave out, and that a failure can be
//! seen again.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};

use fairlock::platform::{AtomicCell, AtomicInt, Platform};
use fairlock::process::Host;
use fairlock_sim::explore::{
    Explore, FailureKind, Flaw, Guarded, NoBarrier, OwnBarrier, Program, Schedule, Search, Sound,
};
use fairlock_sim::{Explored, On};

type Word = <Explored as Platform>::AtomicU32;

fn words<const N: usize>() -> [Word; N] {
    std::array::from_fn(|_| Word::new(0))
}

/// Two threads, each of which stores to one word and loads the other: whether both may load 0.
fn both_load_zero(order: Ordering, buffers: bool, barrier: bool) -> bool {
    type State = ([Word; 2], [Word; 2], Word);
    let program = Program::new("store buffering", || (words(), words(), Word::new(0)));
    let body = move |at: usize| {
        move |(words, found, other): &State| {
            words[at].store(1, order);
            if barrier {
                other.fetch_add(1, Relaxed);
            }
            found[at].store(words[1 - at].load(order), SeqCst);
        }
    };
    let check = |(_, found, _): &State| {
        let found = found.each_ref().map(|it| it.load(Relaxed));
        assert_ne!(found, [0, 0], "both loaded zero");
    };
    let program = program.thread(body(0)).thread(body(1)).finally(check);
    let program = if buffers { program.store_buffers() } else { program };
    match program.check(&Search::exhaustive()) {
        Ok(report) => {
            assert!(report.complete, "{report}");
            false
        }
        Err(failure) => {
            assert!(matches!(failure.kind, FailureKind::FinalCheck { .. }), "{failure}");
            true
        }
    }
}

#[test]
fn store_buffers_allow_what_one_order_of_all_does_not() {
    assert!(!both_load_zero(Relaxed, false, false));
    assert!(both_load_zero(Relaxed, true, false));
    assert!(!both_load_zero(SeqCst, true, false));
    assert!(!both_load_zero(Relaxed, true, true));
}

#[test]
fn store_buffers_keep_stores_in_order() {
    for buffers in [false, true] {
        let program = Program::new("message passing", words::<2>)
            .thread(|[data, flag]| {
                data.store(1, Relaxed);
                flag.store(1, Relaxed);
            })
            .thread(|[data, flag]| {
                if flag.load(Relaxed) == 1 {
                    assert_eq!(data.load(Relaxed), 1, "the message is there");
                }
            });
        let program = if buffers { program.store_buffers() } else { program };
        assert!(program.assert(&Search::exhaustive()).complete);
    }
}

#[test]
fn a_thread_sees_its_own_stores() {
    let program = Program::new("forwarding", words::<1>)
        .threads(2, |[word]| {
            word.store(7, Relaxed);
            assert_eq!(word.load(Relaxed), 7);
        })
        .store_buffers();
    assert!(program.assert(&Search::exhaustive()).complete);
}

/// The same with an asymmetric barrier: its light side in one thread, its heavy one in the other.
fn both_load_zero_on<F: Flaw>(search: &Search) -> bool {
    type Word<F> = <On<Explore<F>> as Platform>::AtomicU32;
    let state = || -> [Word<F>; 4] { std::array::from_fn(|_| Word::<F>::new(0)) };
    let program = Program::new("asymmetric store buffering", state)
        .thread(|[own, other, found, _]: &[Word<F>; 4]| {
            own.store(1, Relaxed);
            On::<Explore<F>>::asymmetric_light();
            found.store(other.load(Relaxed), SeqCst);
        })
        .thread(|[other, own, _, found]| {
            own.store(1, Relaxed);
            On::<Explore<F>>::asymmetric_heavy();
            found.store(other.load(Relaxed), SeqCst);
        })
        .finally(|[_, _, found, other]| {
            let found = [found.load(Relaxed), other.load(Relaxed)];
            assert_ne!(found, [0, 0], "both loaded zero");
        })
        .store_buffers();
    match program.check(search) {
        Ok(_) => false,
        Err(failure) => {
            assert!(matches!(failure.kind, FailureKind::FinalCheck { .. }), "{failure}");
            true
        }
    }
}

#[test]
fn an_asymmetric_barrier_forbids_what_store_buffers_allow() {
    let one_preemption = Search::exhaustive().preemptions(1);
    for search in
        [Search::exhaustive(), one_preemption, Search::random(1, 2_000), Search::pct(1, 3, 2_000)]
    {
        assert!(!both_load_zero_on::<Sound>(&search), "{search}");
        assert!(both_load_zero_on::<NoBarrier>(&search), "{search}");
        assert!(both_load_zero_on::<OwnBarrier>(&search), "{search}");
    }
}

#[test]
fn a_barrier_comes_to_each_cpu_at_a_moment_of_its_own() {
    // Another thread's barrier does not stand for one's own fence: it may come to the reader before
    // this thread's store has left the buffer.
    let program = |fences: bool| {
        Program::new("a borrowed barrier", words::<4>)
            .thread(|[slot, state, found, _]| {
                slot.store(1, Relaxed);
                found.store(state.load(Relaxed) + 1, SeqCst);
            })
            .thread(move |[slot, state, found, number]| {
                state.store(1, Relaxed);
                if fences {
                    Explored::fence();
                }
                // A barrier that begins later, and has ended.
                if number.load(Relaxed) == 0 && number.load(Relaxed) == 2 {
                    let both = slot.load(Relaxed) == 0 && found.load(Relaxed) == 1;
                    assert!(!both, "the reader saw nobody, and nobody saw it");
                }
            })
            .thread(|[_, _, _, number]| {
                number.fetch_add(1, Relaxed);
                Explored::asymmetric_heavy();
                number.fetch_add(1, Relaxed);
            })
            .store_buffers()
    };
    assert!(program(true).assert(&Search::exhaustive()).complete);
    let failure = program(false).check(&Search::exhaustive()).expect_err("no fence");
    assert!(matches!(failure.kind, FailureKind::Panicked { .. }), "{failure}");
}

// ---- small programs, to see that nothing is left out ----

/// What a random program's threads do.
#[derive(Debug, Clone, Copy)]
enum Step {
    Load(usize),
    Store(usize, u32),
    Add(usize),
    Exchange(usize, u32),
    /// Spins while the word is this.
    AwaitNot(usize, u32),
    Nap,
    /// Sleeps while the word is this, at most until this moment.
    Park(usize, u32, Option<u64>),
    Unpark(usize),
    Look,
    Fence,
    Barrier,
}

#[derive(Clone)]
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn step(&mut self) -> Step {
        let (word, value) = (self.below(2) as usize, self.below(3) as u32);
        match self.below(14) {
            0..=2 => Step::Load(word),
            3..=5 => Step::Store(word, value),
            6 => Step::Add(word),
            7 => Step::Exchange(word, value),
            8 => Step::AwaitNot(word, value),
            9 => Step::Nap,
            10 => Step::Park(word, value, (self.below(2) == 0).then_some(100)),
            11 | 12 => Step::Unpark(word),
            _ => Step::Look,
        }
    }
}

impl Numbers {
    /// Stores, loads, and what lets buffers drain.
    fn step_with_barriers(&mut self) -> Step {
        let (word, value) = (self.below(2) as usize, self.below(3) as u32);
        match self.below(10) {
            0..=2 => Step::Load(word),
            3..=5 => Step::Store(word, value),
            6 => Step::Add(word),
            7 => Step::Fence,
            _ => Step::Barrier,
        }
    }
}

/// Every way in which a program can end: what its threads saw, and the words.
fn outcomes(steps: &[Vec<Step>], buffers: bool, search: &Search) -> Option<BTreeSet<Vec<u64>>> {
    struct State {
        words: [Word; 2],
        seen: Vec<RefCell<Vec<u64>>>,
    }
    let outcomes = Rc::new(RefCell::new(BTreeSet::new()));
    let threads = steps.len();
    let mut program = Program::new("random", move || State {
        words: words(),
        seen: (0..threads).map(|_| RefCell::default()).collect(),
    });
    program = program.clock_jumps(1).most_steps(400);
    for (at, steps) in steps.iter().cloned().enumerate() {
        program = program.thread(move |State { words, seen }| {
            for &step in &steps {
                let found = match step {
                    Step::Load(word) => u64::from(words[word].load(Relaxed)),
                    Step::Store(word, value) => {
                        words[word].store(value, Relaxed);
                        0
                    }
                    Step::Add(word) => words[word].fetch_add(1, Relaxed).into(),
                    Step::Exchange(word, value) => {
                        let found = words[word].compare_exchange(value, 9, Relaxed, Relaxed);
                        found.unwrap_or_else(|found| 100 + found).into()
                    }
                    Step::AwaitNot(word, value) => {
                        let until = Some(1_000_000);
                        while words[word].load(Relaxed) == value && !Explored::relax(until) {}
                        u64::from(words[word].load(Relaxed) != value)
                    }
                    Step::Nap => {
                        Explored::give_way(0);
                        0
                    }
                    Step::Park(word, value, deadline) => {
                        Explored::park(&words[word], value, deadline);
                        0
                    }
                    Step::Unpark(word) => {
                        Explored::unpark(&raw const words[word]);
                        0
                    }
                    Step::Look => Explored::now(),
                    Step::Fence => {
                        Explored::fence();
                        0
                    }
                    Step::Barrier => {
                        Explored::asymmetric_heavy();
                        0
                    }
                };
                seen[at].borrow_mut().push(found);
            }
        });
    }
    let result = Rc::clone(&outcomes);
    program = program.finally(move |State { words, seen }| {
        let mut outcome: Vec<u64> = seen.iter().flat_map(|seen| seen.borrow().clone()).collect();
        outcome.extend(words.iter().map(|word| u64::from(word.load(Relaxed))));
        result.borrow_mut().insert(outcome);
    });
    if buffers {
        program = program.store_buffers();
    }
    match program.check(search) {
        Ok(report) if report.complete => Some(outcomes.take()),
        // Sleeps for ever, somewhere: the set is not complete.
        Ok(_) => None,
        Err(failure) => {
            assert!(
                matches!(
                    failure.kind,
                    FailureKind::Deadlock { .. } | FailureKind::LostWakeUp { .. }
                ),
                "{failure}"
            );
            Some(BTreeSet::from([vec![u64::MAX]]))
        }
    }
}

/// The reductions leave out nothing that ends differently.
fn compare(threads: usize, length: usize, programs: u64, buffers: bool, bound: Option<u32>) {
    compare_with(Numbers::step, threads, length, programs, buffers, bound);
}

fn compare_with(
    step: fn(&mut Numbers) -> Step,
    threads: usize,
    length: usize,
    programs: u64,
    buffers: bool,
    bound: Option<u32>,
) {
    let mut compared = 0;
    for seed in 0..programs {
        let mut numbers = Numbers(seed * 7919 + threads as u64 * 31 + length as u64);
        let steps: Vec<Vec<Step>> =
            (0..threads).map(|_| (0..length).map(|_| step(&mut numbers)).collect()).collect();
        let search = match bound {
            None => Search::exhaustive(),
            Some(bound) => Search::exhaustive().preemptions(bound),
        };
        let search = search.at_most(60_000);
        let all = outcomes(&steps, buffers, &search.clone().unreduced());
        let reduced = outcomes(&steps, buffers, &search);
        if let (Some(all), Some(reduced)) = (all, reduced) {
            let missing: Vec<_> = all.difference(&reduced).collect();
            assert!(missing.is_empty(), "{seed}: {steps:?} can end as {missing:?}");
            compared += 1;
        }
    }
    assert!(compared * 3 > programs, "only {compared} of {programs} programs are small enough");
}

#[test]
fn the_reduction_leaves_out_nothing_that_two_threads_can_do() {
    compare(2, 5, 1000, false, None);
}

#[test]
fn the_reduction_leaves_out_nothing_that_three_threads_can_do() {
    compare(3, 2, 200, false, None);
    compare(3, 3, 300, false, None);
}

#[test]
fn the_reduction_leaves_out_nothing_with_store_buffers() {
    compare(2, 3, 400, true, None);
    compare(3, 2, 60, true, None);
}

#[test]
fn the_bounded_reduction_leaves_out_nothing_with_store_buffers() {
    for bound in 0..=2 {
        compare(2, 3, 300, true, Some(bound));
        compare(3, 2, 60, true, Some(bound));
    }
}

#[test]
fn the_reduction_leaves_out_nothing_with_barriers_on_all_cpus() {
    compare_with(Numbers::step_with_barriers, 2, 3, 400, true, None);
    compare_with(Numbers::step_with_barriers, 2, 4, 200, true, None);
    compare_with(Numbers::step_with_barriers, 3, 2, 200, true, None);
}

#[test]
fn the_bounded_reduction_leaves_out_nothing_with_barriers_on_all_cpus() {
    for bound in 0..=2 {
        compare_with(Numbers::step_with_barriers, 2, 3, 400, true, Some(bound));
        compare_with(Numbers::step_with_barriers, 3, 2, 200, true, Some(bound));
    }
}

#[test]
fn the_bounded_reduction_leaves_out_nothing_within_the_bound() {
    for bound in 0..=2 {
        compare(2, 4, 100, false, Some(bound));
        compare(3, 3, 200, false, Some(bound));
    }
}

#[test]
fn a_schedule_is_replayed_exactly() {
    let program = Program::new("three without a lock", Guarded::new).threads(3, |it| it.add());
    for search in [
        Search::exhaustive(),
        Search::exhaustive().preemptions(1),
        Search::random(3, 1000),
        Search::pct(3, 2, 1000),
    ] {
        let found = program.check(&search).expect_err("there is no lock");
        let schedule: Schedule = found.schedule.to_string().parse().expect("as printed");
        let again = program.replay(&schedule).expect_err("as it failed before");
        assert_eq!((&again.kind, &again.trace), (&found.kind, &found.trace));
        assert_eq!(again.schedule, found.schedule);
        assert!(found.to_string().contains(&format!("replay: {}", found.schedule)), "{found}");
    }
}

#[test]
fn a_program_that_is_not_deterministic_is_found_out() {
    let runs = Rc::new(RefCell::new(0));
    let program = Program::new("fickle", words::<2>)
        .thread(move |words| {
            *runs.borrow_mut() += 1;
            if *runs.borrow() < 3 {
                words[0].store(1, Relaxed);
            }
        })
        .thread(|words| _ = (words[0].load(Relaxed), words[1].load(Relaxed)));
    let failure = program.check(&Search::exhaustive().unreduced()).expect_err("it is fickle");
    assert_eq!(failure.kind, FailureKind::NotDeterministic, "{failure}");
}

// ---- what must be found ----

/// A lock that looks and then takes.
fn check_then_set(word: &Word) {
    while word.load(Relaxed) != 0 {
        Explored::relax(None);
    }
    word.store(1, Relaxed);
}

/// The same in one step.
fn compare_and_set(word: &Word) {
    while word.compare_exchange(0, 1, Relaxed, Relaxed).is_err() {
        Explored::relax(None);
    }
}

fn spin_lock(acquire: fn(&Word)) -> Program<(Word, Guarded)> {
    Program::new("a spin lock", || (Word::new(0), Guarded::new()))
        .threads(2, move |(word, data)| {
            acquire(word);
            data.add();
            word.store(0, Relaxed);
        })
        .finally(|(_, data)| assert_eq!(data.get(), 2, "every addition counts"))
}

#[test]
fn a_lock_that_looks_before_it_takes_is_broken() {
    for search in [Search::exhaustive(), Search::random(1, 1000), Search::pct(1, 3, 1000)] {
        let failure = spin_lock(check_then_set).check(&search).expect_err("both get in");
        let right =
            matches!(failure.kind, FailureKind::Panicked { .. } | FailureKind::FinalCheck { .. });
        assert!(right, "{failure}");
    }
    assert!(spin_lock(compare_and_set).assert(&Search::exhaustive()).complete);
}

/// 0 free, 1 held, 2 held with sleepers.
fn futex_lock(word: &Word, looks_again: bool) {
    if word.compare_exchange(0, 1, Relaxed, Relaxed).is_ok() {
        return;
    }
    if looks_again {
        while word.swap(2, Relaxed) != 0 {
            Explored::park(word, 2, None);
        }
    } else {
        // The holder may have gone before it could see that somebody will sleep.
        while word.compare_exchange(0, 2, Relaxed, Relaxed).is_err() {
            let found = word.load(Relaxed);
            if found != 0 {
                Explored::park(word, found, None);
            }
        }
    }
}

fn futex_unlock(word: &Word) {
    if word.swap(0, Relaxed) == 2 {
        Explored::unpark(word);
    }
}

fn futex_program(looks_again: bool) -> Program<(Word, Guarded)> {
    Program::new("a futex lock", || (Word::new(0), Guarded::new()))
        .threads(2, move |(word, data)| {
            futex_lock(word, looks_again);
            data.add();
            futex_unlock(word);
        })
        .finally(|(_, data)| assert_eq!(data.get(), 2, "every addition counts"))
}

#[test]
fn a_futex_lock_that_does_not_say_that_it_sleeps_loses_a_wake_up() {
    for search in [Search::exhaustive(), Search::random(1, 1000), Search::pct(1, 3, 1000)] {
        let failure = futex_program(false).check(&search).expect_err("nobody wakes the sleeper");
        assert!(matches!(failure.kind, FailureKind::LostWakeUp { .. }), "{failure}");
        assert!(futex_program(true).check(&search).is_ok());
    }
    assert!(futex_program(true).assert(&Search::exhaustive()).complete);
}

#[test]
fn two_locks_in_two_orders_are_a_deadlock() {
    let body = |first: usize| {
        move |locks: &[Word; 2]| {
            futex_lock(&locks[first], true);
            futex_lock(&locks[1 - first], true);
            futex_unlock(&locks[1 - first]);
            futex_unlock(&locks[first]);
        }
    };
    let program = Program::new("two orders", words::<2>).thread(body(0)).thread(body(1));
    let failure = program.check(&Search::exhaustive()).expect_err("each waits for the other");
    assert!(matches!(failure.kind, FailureKind::Deadlock { .. }), "{failure}");
    let program = Program::new("one order", words::<2>).thread(body(0)).thread(body(0));
    assert!(program.assert(&Search::exhaustive()).complete);
}

#[test]
fn a_spin_without_end_is_a_livelock() {
    let program = Program::new("ping", words::<1>).threads(2, |[word]| {
        for _ in 0.. {
            word.fetch_add(1, Relaxed);
        }
    });
    let failure = program.check(&Search::random(1, 1)).expect_err("no end");
    assert_eq!(failure.kind, FailureKind::Livelock { steps: 5_000 }, "{failure}");
}

#[test]
fn a_word_that_is_used_after_its_end_is_noticed() {
    use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};
    // A thread lends a word of its own stack, and does not wait until it is given back.
    type State = (AtomicPtr<Word>, Word);
    let program = |waits: bool| {
        Program::new("lends", || (AtomicPtr::new(std::ptr::null_mut()), Word::new(0)))
            .thread(move |(place, flag): &State| {
                let own = Word::new(0);
                place.store((&raw const own).cast_mut(), SeqCst);
                flag.store(1, SeqCst);
                while waits && flag.load(SeqCst) != 2 {
                    Explored::relax(None);
                }
            })
            .thread(|(place, flag): &State| {
                if flag.load(SeqCst) == 1 {
                    // SAFETY: not sound if the other does not wait, which is the point: its stack
                    // stays mapped, and what it left there says that it is gone.
                    unsafe { (*place.load(SeqCst)).store(5, SeqCst) };
                }
                flag.store(2, SeqCst);
            })
    };
    let failure = program(false).check(&Search::exhaustive()).expect_err("it is gone");
    assert!(matches!(failure.kind, FailureKind::Gone { .. }), "{failure}");
}

#[test]
fn a_store_on_its_way_to_a_word_that_goes_is_noticed() {
    type State = (std::sync::atomic::AtomicPtr<Word>, [Word; 2]);
    // The lender trusts a sign that can overtake... nothing: stores arrive in order.
    let program = |in_order: bool| {
        Program::new("lends", || (Default::default(), words::<2>()))
            .thread(|(place, [lent, back]): &State| {
                let own = Word::new(0);
                place.store((&raw const own).cast_mut(), SeqCst);
                lent.store(1, SeqCst);
                while back.load(Relaxed) == 0 {
                    Explored::relax(None);
                }
            })
            .thread(move |(place, [lent, back]): &State| {
                while lent.load(Relaxed) == 0 {
                    Explored::relax(None);
                }
                // SAFETY: the lender waits; but not if told before.
                let borrowed = unsafe { &*place.load(SeqCst) };
                if in_order {
                    borrowed.store(5, Relaxed);
                    back.store(1, Relaxed);
                } else {
                    back.store(1, Relaxed);
                    borrowed.store(5, Relaxed);
                }
            })
            .store_buffers()
    };
    assert!(program(true).assert(&Search::exhaustive()).complete);
    let failure = program(false).check(&Search::exhaustive()).expect_err("it is gone");
    assert!(matches!(failure.kind, FailureKind::Gone { .. }), "{failure}");
}

#[test]
fn a_panic_beside_held_locks_is_reported_as_it_was() {
    struct Held<'a>(&'a Word);
    impl Drop for Held<'_> {
        fn drop(&mut self) {
            futex_unlock(self.0);
        }
    }
    let program = Program::new("a panic under a lock", words::<2>)
        .thread(|words| {
            futex_lock(&words[0], true);
            let _held = Held(&words[0]);
            futex_lock(&words[1], true);
            let _also_held = Held(&words[1]);
            panic!("as planned");
        })
        .thread(|words| {
            futex_lock(&words[1], true);
            futex_unlock(&words[1]);
            futex_lock(&words[0], true);
            futex_unlock(&words[0]);
        });
    for search in [Search::exhaustive(), Search::random(5, 10)] {
        let failure = program.check(&search).expect_err("it panics");
        let expected = FailureKind::Panicked { thread: 1, message: "as planned".into() };
        assert_eq!(failure.kind, expected, "{failure}");
    }
}

// ---- threads that stop for good ----

#[test]
fn whoever_waits_for_a_frozen_thread_is_reported() {
    let search = Search::exhaustive();
    let failure = futex_program(true).finally(|_| {}).check_frozen_anywhere(0, &search);
    let failure = failure.expect_err("frozen with the lock");
    let FailureKind::Deadlock { waits } = &failure.kind else { panic!("{failure}") };
    assert!(waits.contains(&"t1 is frozen".to_string()), "{failure}");
    assert!(failure.program.contains("thread 1 frozen after 1 steps"), "{failure}");
    // Before it has the lock, nobody waits for it.
    let program = futex_program(true).frozen(0, 0).finally(|(_, data)| assert_eq!(data.get(), 1));
    let report = program.assert(&search);
    assert!(report.complete && report.frozen == report.executions, "{report}");
}

#[test]
fn nobody_waits_for_a_thread_frozen_between_its_updates() {
    let program = Program::new("three updates", words::<1>)
        .thread(|[word]| (0..3).for_each(|_| _ = word.fetch_add(1, Relaxed)))
        .thread(|[word]| _ = word.fetch_add(10, Relaxed))
        .finally(|[word]| assert!((10..=13).contains(&word.load(Relaxed))));
    let report = program.assert_frozen_anywhere(0, &Search::exhaustive());
    // With 0, 1, 2 and 3 steps of the one, the other comes at 1, 2, 3 and 4 places.
    assert!(report.complete, "{report}");
    assert_eq!((report.executions, report.frozen), (10, 6));
}

#[test]
fn what_a_frozen_thread_has_stored_arrives() {
    let program = Program::new("a store and no more", words::<1>)
        .thread(|[word]| {
            word.store(1, Relaxed);
            word.store(2, Relaxed);
        })
        .thread(|[word]| while word.load(Relaxed) == 0 && !Explored::relax(None) {})
        .frozen(0, 1)
        .store_buffers()
        .finally(|[word]| assert_eq!(word.load(Relaxed), 1));
    assert!(program.assert(&Search::exhaustive()).complete);
}

#[test]
fn a_wake_up_of_a_frozen_sleeper_wakes_nobody_else() {
    let sleep = |[word]: &[Word; 1]| {
        while word.load(Relaxed) == 0 {
            Explored::park(word, 0, None);
        }
    };
    let program = |calls: usize| {
        Program::new("two sleepers", words::<1>)
            .threads(2, sleep)
            .thread(move |[word]| {
                word.store(1, Relaxed);
                (0..calls).for_each(|_| Explored::unpark(word));
            })
            // One load, one park.
            .frozen(0, 2)
    };
    let failure = program(1).check(&Search::exhaustive()).expect_err("the frozen one is woken");
    assert!(matches!(failure.kind, FailureKind::LostWakeUp { .. }), "{failure}");
    assert!(program(2).assert(&Search::exhaustive()).complete);
}
