//! Groups on real threads: one alone, many at once, and what a panic leaves.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Barrier;
use std::thread;

use super::checked::{Checked, Refused};

const THREADS: usize = 6;
const STEPS: u32 = 500;

fn never(_write: u32) -> bool {
    false
}

fn now_and_then(write: u32) -> bool {
    write % 7 > 4
}

/// Now and then a write takes as long as others need to come along.
fn never_but_slowly(write: u32) -> bool {
    if write % 16 == 0 {
        thread::yield_now();
    }
    false
}

fn in_the_second(write: u32) -> bool {
    assert!(write != 1, "the second write panics");
    false
}

/// Whether it panics.
fn panics<R>(act: impl FnOnce() -> R) -> bool {
    panic::catch_unwind(AssertUnwindSafe(act)).is_err()
}

#[test]
fn what_is_only_submitted_is_written_when_somebody_waits_or_the_batch_is_full() {
    let checked: Checked = Checked::new(1, 3, never);
    let submitted = [0, 1, 2].map(|number| checked.submit(number));
    assert_eq!(checked.writes(), 0);
    checked.submit_only(3);
    assert_eq!(checked.writes(), 1, "there was no room for another");
    for submitted in submitted {
        checked.wait(submitted).expect("it is there");
    }
    assert_eq!(checked.writes(), 1, "nobody waits for the last");
    checked.flush().expect("nothing fails");
    checked.flush().expect("there is nothing more");
    assert_eq!(checked.writes(), 2);
    assert_eq!(checked.finish(4), 4);
}

#[test]
fn a_failure_takes_along_what_was_submitted_since_and_its_place_is_taken() {
    let checked: Checked = Checked::new(1, 2, |write| write == 0 || write == 2);
    let [first, second, third] = [0, 1, 2].map(|number| checked.submit(number));
    for submitted in [first, second, third] {
        assert_eq!(checked.wait(submitted), Err(Refused(0)));
    }
    checked.append(3).expect("there is room again");
    assert_eq!(checked.append(4), Err(Refused(2)));
    checked.append(5).expect("once more");
    assert_eq!(checked.wait(first), Err(Refused(0)), "the answer stands");
    assert_eq!(checked.finish(6), 2);
}

#[test]
fn failures_one_after_the_other_take_no_memory() {
    let checked: Checked = Checked::new(1, 2, |write| write != 100);
    let first = checked.submit(0);
    for number in 1..100 {
        checked.append(number).expect_err("it is refused");
    }
    assert_eq!(checked.failures(), 1);
    checked.wait(first).expect_err("it was the first");
    checked.append(100).expect_err("it is refused");
    checked.append(101).expect("it is the one that is not refused");
    checked.append(102).expect_err("it is refused");
    assert_eq!(checked.failures(), 2);
}

#[test]
fn of_a_failure_that_nobody_waits_for_the_next_flush_tells_once() {
    let checked: Checked = Checked::new(1, 2, |write| matches!(write, 0 | 2 | 4));
    let [waits, relies] = [0, 1].map(|number| checked.submit(number));
    for _ in 0..2 {
        assert_eq!(checked.wait(waits), Err(Refused(0)), "the answer stands");
    }
    checked.append(2).expect("there is room again");
    assert_eq!(checked.flush(), Err(Refused(0)), "nobody was told of the second");
    checked.flush().expect("it was told");
    assert_eq!(checked.wait(relies), Err(Refused(0)));
    checked.flush().expect("whoever waits again takes nothing from anybody");

    // Whoever submits finds the batch full, and writes it.
    for number in 3..6 {
        checked.submit_only(number);
    }
    assert_eq!(checked.writes(), 3);
    checked.append(6).expect("there is room again");
    assert_eq!(checked.append(7), Err(Refused(4)));
    assert_eq!(checked.flush(), Err(Refused(2)), "of the last somebody knows");
    checked.flush().expect("it was told");
    assert_eq!(checked.finish(8), 2);
}

#[test]
fn a_flush_that_tells_nobody_leaves_it_to_the_next() {
    let checked: Checked = Checked::new(1, 2, |write| write == 0);
    checked.submit_only(0);
    checked.flush_unheard();
    checked.submit_only(1);
    checked.flush_unheard();
    assert_eq!(checked.writes(), 2);
    assert_eq!(checked.flush(), Err(Refused(0)));
    checked.flush().expect("it was told");
    assert_eq!(checked.finish(2), 1);
}

/// Numbers of which some are only submitted, some waited for, some flushed.
fn crowd(most: usize, refuses: fn(u32) -> bool) -> (usize, Checked) {
    let checked = Checked::new(THREADS, most, refuses);
    let begin = Barrier::new(THREADS);
    thread::scope(|scope| {
        for thread in 0..THREADS as u32 {
            let (checked, begin) = (&checked, &begin);
            scope.spawn(move || {
                begin.wait();
                for step in 0..STEPS {
                    let number = thread * STEPS + step;
                    // Threads that only submit, that always wait, and that mix.
                    match (thread % 3, step % 5) {
                        (0, _) | (2, 0 | 1) => checked.submit_only(number),
                        (2, 2) => {
                            checked.submit_only(number);
                            let _ = checked.flush();
                        }
                        _ => _ = checked.append(number),
                    }
                }
            });
        }
    });
    (checked.finish(THREADS * STEPS as usize), checked)
}

#[test]
fn many_threads_lose_nothing_and_nobody_sleeps_for_ever() {
    for most in [1, 3, 50] {
        for refuses in [never, never_but_slowly] {
            let (there, checked) = crowd(most, refuses);
            assert_eq!(there, THREADS * STEPS as usize);
            assert!(checked.writes() as usize >= there / most);
        }
    }
}

#[test]
fn many_threads_are_told_of_each_failure() {
    for most in [1, 3, 50] {
        let (there, checked) = crowd(most, now_and_then);
        assert!(there > 0 && there < THREADS * STEPS as usize);
        assert!(checked.writes() as usize >= there / most);
    }
}

#[test]
fn a_panic_in_a_write_reaches_everybody_who_waits() {
    for most in [1, 2, 50] {
        let checked: Checked = Checked::new(THREADS, most, in_the_second);
        let settled = checked.submit(0);
        checked.wait(settled).expect("the first write does nothing wrong");
        thread::scope(|scope| {
            let sleepers = (1..=THREADS as u32).map(|thread| {
                let checked = &checked;
                scope.spawn(move || {
                    for step in 0..STEPS {
                        let _ = checked.append(thread * STEPS + step);
                    }
                })
            });
            for sleeper in sleepers.collect::<Vec<_>>() {
                sleeper.join().expect_err("what it waits for is never written");
            }
        });
        assert!(panics(|| checked.submit(1)));
        assert!(panics(|| checked.flush()));
        checked.wait(settled).expect("it is there all the same");
    }
}

#[test]
fn a_panic_while_something_is_added_reaches_everybody_who_comes_later() {
    let checked: Checked = Checked::new(1, 2, never);
    let submitted = checked.submit(0);
    assert!(panics(|| checked.submit_by(|_| panic!("while it is added"))));
    assert!(panics(|| checked.wait(submitted)));
}
