//! Timers in polls, over each of the lists; and polls in polls, to which their timers matter most.

use std::thread;
use std::time::Duration;

use fairlock::ready::{
    Batch, List, PollError, RawCounter, RawPoll, RawTimer, Readiness, ReadyList, Trigger,
};
use fairlock_reference::ready::{RwLockList, SpinList};

const READABLE: Readiness = Readiness::READABLE;
const NOW: Option<Duration> = Some(Duration::ZERO);
const FAR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(3);

fn wait<L: List>(poll: &RawPoll<L>, timeout: Option<Duration>) -> Vec<u64> {
    let mut batch = Batch::with_capacity(8);
    poll.wait(&mut batch, timeout);
    batch.iter().map(|ready| ready.token).collect()
}

/// Waits without end for one source.
fn wait_for_one<L: List>(poll: &RawPoll<L>) -> u64 {
    let mut batch = Batch::with_capacity(1);
    assert_eq!(poll.wait(&mut batch, None), 1);
    batch.iter().next().expect("one").token
}

macro_rules! over_each_list {
    ($($test:ident)*) => {
        mod ready_list { $(#[test] fn $test() { super::$test::<super::ReadyList>(); })* }
        mod rwlock_list { $(#[test] fn $test() { super::$test::<super::RwLockList>(); })* }
        mod spin_list { $(#[test] fn $test() { super::$test::<super::SpinList>(); })* }
    };
}

over_each_list! {
    a_timer_that_is_due_is_reported_by_a_wait_of_zero
    a_wait_ends_at_the_first_timer
    a_timer_may_be_set_before_it_is_registered
    each_trigger_is_kept
    missed_periods_are_one_report
    a_cancelled_timer_is_silent
    a_timer_without_a_poll_counts_too
    an_earlier_timer_wakes_a_sleeper
    an_earlier_timer_is_not_overslept_when_the_one_who_was_called_leaves
    timers_leave_in_any_order
    a_timer_outlives_its_poll
    a_timer_is_set_while_others_are_dropped
    a_timer_ends_the_wait_of_an_outer_poll
    a_timer_is_set_while_an_outer_poll_is_waited_for
    polls_do_not_go_round_in_circles
    two_threads_do_not_make_a_cycle_together
}

fn due<L: List>() -> RawTimer<L> {
    let timer = RawTimer::new();
    timer.set_at(RawTimer::<L>::now());
    timer
}

fn a_timer_that_is_due_is_reported_by_a_wait_of_zero<L: List>() {
    let (poll, timer) = (RawPoll::<L>::new(), RawTimer::new());
    poll.register(&timer, 1, READABLE, Trigger::Level).unwrap();
    assert_eq!(wait(&poll, NOW), []);
    timer.set_after(FAR);
    assert_eq!(wait(&poll, NOW), []);
    timer.set_at(RawTimer::<L>::now());
    assert_eq!(wait(&poll, NOW), [1]);
    assert_eq!(wait(&poll, NOW), [1]);
    assert_eq!((timer.read(), timer.read()), (Some(1), None));
    assert_eq!(wait(&poll, NOW), []);
}

fn a_wait_ends_at_the_first_timer<L: List>() {
    let (poll, timers) = (RawPoll::<L>::new(), [(); 3].map(|()| RawTimer::new()));
    for (token, timer) in timers.iter().enumerate() {
        poll.register(timer, token as u64, READABLE, Trigger::Edge).unwrap();
    }
    timers[0].set_after(FAR);
    let (now, soon) = (RawTimer::<L>::now(), SOON.as_nanos() as u64);
    timers[1].set_at(now + 2 * soon);
    timers[2].set_at(now + soon);
    let mut reported = wait(&poll, None);
    // On a busy machine the second is due, too, when this thread wakes up.
    if reported.len() == 1 {
        reported.extend(wait(&poll, None));
    }
    assert_eq!(reported, [2, 1]);
    assert_eq!(wait(&poll, Some(SOON)), []);
}

fn a_timer_may_be_set_before_it_is_registered<L: List>() {
    let (poll, timer) = (RawPoll::<L>::new(), RawTimer::new());
    timer.set_after(SOON);
    poll.register(&timer, 1, READABLE, Trigger::Level).unwrap();
    assert_eq!(wait(&poll, None), [1]);
    assert_eq!(timer.read(), Some(1));
    let over = due();
    poll.register(&over, 2, READABLE, Trigger::Edge).unwrap();
    assert_eq!(wait(&poll, NOW), [2]);
}

fn each_trigger_is_kept<L: List>() {
    let (poll, edge, once) = (RawPoll::<L>::new(), due(), due());
    poll.register(&edge, 1, READABLE, Trigger::Edge).unwrap();
    poll.register(&once, 2, READABLE, Trigger::Once).unwrap();
    assert_eq!(wait(&poll, NOW), [1, 2]);
    assert_eq!(wait(&poll, NOW), []);
    for timer in [&edge, &once] {
        timer.set_at(1);
    }
    assert_eq!(wait(&poll, NOW), [1]);
    poll.modify(&once, 3, READABLE, Trigger::Once).unwrap();
    assert_eq!(wait(&poll, NOW), [3]);
}

fn missed_periods_are_one_report<L: List>() {
    const PERIOD: Duration = Duration::from_micros(50);
    let (poll, timer) = (RawPoll::<L>::new(), RawTimer::new());
    poll.register(&timer, 1, READABLE, Trigger::Edge).unwrap();
    timer.set_every(PERIOD, PERIOD);
    let began = timer.next().unwrap();
    let mut expirations = 0;
    while expirations < 100 {
        assert_eq!(wait(&poll, None), [1]);
        expirations += timer.read().unwrap_or(0);
    }
    assert_eq!(timer.next().unwrap(), began + expirations * 50_000);
}

fn a_cancelled_timer_is_silent<L: List>() {
    let (poll, timer) = (RawPoll::<L>::new(), due());
    poll.register(&timer, 1, READABLE, Trigger::Level).unwrap();
    assert_eq!(wait(&poll, NOW), [1]);
    assert!(!timer.cancel());
    assert_eq!((wait(&poll, NOW), timer.read()), (vec![], None));
    let is_cancelled_in_time = || {
        timer.set_after(SOON);
        timer.cancel()
    };
    // Once more if it was due before: this thread may not have run.
    while !is_cancelled_in_time() {}
    assert_eq!(wait(&poll, Some(2 * SOON)), []);
}

fn a_timer_without_a_poll_counts_too<L: List>() {
    let timer = due::<L>();
    assert_eq!((timer.read(), timer.read()), (Some(1), None));
    assert_eq!(timer.next(), None);
}

fn an_earlier_timer_wakes_a_sleeper<L: List>() {
    let (poll, far, timer) = (RawPoll::<L>::new(), RawTimer::new(), RawTimer::new());
    poll.register(&far, 1, READABLE, Trigger::Level).unwrap();
    poll.register(&timer, 2, READABLE, Trigger::Level).unwrap();
    far.set_after(FAR);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait(&poll, None));
        timer.set_after(SOON);
        assert_eq!(waiter.join().unwrap(), [2]);
    });
}

fn an_earlier_timer_is_not_overslept_when_the_one_who_was_called_leaves<L: List>() {
    for round in 0..20 {
        let (poll, counter, timer) = (RawPoll::<L>::new(), RawCounter::new(0), RawTimer::new());
        poll.register(&counter, 1, READABLE, Trigger::Edge).unwrap();
        poll.register(&timer, 2, READABLE, Trigger::Edge).unwrap();
        thread::scope(|scope| {
            let waiters = [(); 2].map(|()| scope.spawn(|| wait_for_one(&poll)));
            timer.set_after(SOON.mul_f64(f64::from(round) / 20.0));
            counter.add(1);
            let mut tokens = waiters.map(|waiter| waiter.join().unwrap());
            tokens.sort();
            assert_eq!(tokens, [1, 2]);
        });
    }
}

fn timers_leave_in_any_order<L: List>() {
    let (poll, mut timers) = (RawPoll::<L>::new(), Vec::new());
    for token in 0..6 {
        let timer = RawTimer::new();
        timer.set_after(FAR + SOON * (token * 5 % 6) as u32);
        poll.register(&timer, token, READABLE, Trigger::Level).unwrap();
        timers.push(timer);
    }
    poll.deregister(&timers[0]).unwrap();
    timers.swap_remove(2);
    timers.remove(3);
    for timer in &timers {
        timer.set_at(1);
    }
    let mut tokens = wait(&poll, NOW);
    tokens.sort_unstable();
    assert_eq!(tokens, [1, 4, 5]);
}

fn a_timer_outlives_its_poll<L: List>() {
    let (poll, timer) = (RawPoll::<L>::new(), RawTimer::new());
    poll.register(&timer, 1, READABLE, Trigger::Level).unwrap();
    timer.set_after(FAR);
    drop(poll);
    assert!(timer.cancel());
    timer.set_at(1);
    let poll = RawPoll::<L>::new();
    poll.register(&timer, 2, READABLE, Trigger::Level).unwrap();
    assert_eq!(wait(&poll, NOW), [2]);
    assert_eq!(timer.read(), Some(1));
}

fn a_timer_is_set_while_others_are_dropped<L: List>() {
    const TIMES: usize = 300;
    let (poll, end) = (RawPoll::<L>::new(), RawCounter::new(0));
    poll.register(&end, 0, READABLE, Trigger::Level).unwrap();
    let churn = || {
        for round in 0..TIMES {
            let timer = RawTimer::new();
            timer.set_after(Duration::from_micros(round as u64 % 7 * 10));
            poll.register(&timer, 1, READABLE, Trigger::Level).unwrap();
            timer.set_every(Duration::from_micros(round as u64 % 5 * 10), SOON);
            if round % 3 == 0 {
                timer.cancel();
            }
            if round % 2 == 0 {
                poll.deregister(&timer).unwrap();
            }
        }
    };
    thread::scope(|scope| {
        let churners = [(); 2].map(|()| scope.spawn(churn));
        let waiters = [(); 2].map(|()| scope.spawn(|| while !wait(&poll, None).contains(&0) {}));
        for churner in churners {
            churner.join().unwrap();
        }
        end.add(1);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

fn a_timer_ends_the_wait_of_an_outer_poll<L: List>() {
    let polls = [(); 4].map(|()| RawPoll::<L>::new());
    let timer = RawTimer::new();
    for pair in polls.windows(2) {
        pair[0].register(&pair[1], 7, READABLE, Trigger::Level).unwrap();
    }
    polls[3].register(&timer, 1, READABLE, Trigger::Level).unwrap();
    for _ in 0..3 {
        // From the inside: each finds nothing, and what is outside is told.
        for poll in polls.iter().rev() {
            assert_eq!(wait(poll, NOW), []);
        }
        timer.set_after(SOON);
        for poll in &polls[..3] {
            assert_eq!(wait(poll, None), [7]);
        }
        assert_eq!(wait(&polls[3], NOW), [1]);
        assert_eq!(timer.read(), Some(1));
    }
}

fn a_timer_is_set_while_an_outer_poll_is_waited_for<L: List>() {
    let (inner, outer, timer) = (RawPoll::<L>::new(), RawPoll::<L>::new(), RawTimer::new());
    inner.register(&timer, 1, READABLE, Trigger::Level).unwrap();
    outer.register(&inner, 2, READABLE, Trigger::Edge).unwrap();
    wait(&outer, NOW);
    assert_eq!(wait(&inner, NOW), []);
    for _ in 0..20 {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                while wait(&inner, NOW).is_empty() {
                    assert_eq!(wait(&outer, None), [2]);
                }
            });
            timer.set_after(SOON / 10);
            waiter.join().unwrap();
        });
        assert_eq!(timer.read(), Some(1));
        assert_eq!(wait(&inner, NOW), []);
    }
    outer.deregister(&inner).unwrap();
    timer.set_at(1);
    assert_eq!((wait(&outer, NOW), wait(&inner, NOW)), (vec![], vec![1]));
}

fn polls_do_not_go_round_in_circles<L: List>() {
    let polls = [(); 5].map(|()| RawPoll::<L>::new());
    for pair in polls.windows(2) {
        pair[0].register(&pair[1], 0, READABLE, Trigger::Level).unwrap();
    }
    for poll in &polls {
        let error = polls[4].register(poll, 0, READABLE, Trigger::Level).unwrap_err();
        assert_eq!(error, PollError::Cycle);
    }
    polls[1].deregister(&polls[2]).unwrap();
    polls[4].register(&polls[0], 0, READABLE, Trigger::Level).unwrap();
    let error = polls[1].register(&polls[2], 0, READABLE, Trigger::Level).unwrap_err();
    assert_eq!(error, PollError::Cycle);
}

fn two_threads_do_not_make_a_cycle_together<L: List>() {
    for _ in 0..100 {
        let (one, other) = (RawPoll::<L>::new(), RawPoll::<L>::new());
        let register = |inner: &RawPoll<L>, outer: &RawPoll<L>| {
            outer.register(inner, 0, READABLE, Trigger::Level)
        };
        thread::scope(|scope| {
            let first = scope.spawn(|| register(&one, &other).is_ok());
            assert!(register(&other, &one).is_ok() != first.join().unwrap());
        });
    }
}
