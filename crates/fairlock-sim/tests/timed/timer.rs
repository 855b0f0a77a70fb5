//! Timers in polls on the machine on which operations take time: consumers sleep until a timer's time has
//! come, once for each, and others are left asleep.

use std::cell::Cell;
use std::time::Duration;

use fairlock::ready::{Batch, RawCounter, RawPoll, RawTimer, Readiness, ReadyList, Trigger};
use fairlock_sim::Sim;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{self, Report, Setup, Thread};

type List = ReadyList<Sim>;
type Body<'a> = Box<dyn FnOnce() + 'a>;

const MS: u64 = 1_000_000;

fn run(bodies: Vec<Body<'_>>) -> Report {
    let threads = bodies.into_iter().map(|body| Thread { body, priority: 0 }).collect();
    let profile = Profile::example();
    let setup = Setup { profile: &profile, seed: 1, pinned: true, timeline_ns: 0, tuning: None };
    timed::run(&setup, threads, &|| false, &|| ()).unwrap()
}

fn with_timer(poll: &RawPoll<List>, trigger: Trigger) -> RawTimer<List> {
    let timer = RawTimer::new();
    poll.register(&timer, 1, Readiness::READABLE, trigger).unwrap();
    timer
}

#[test]
fn a_consumer_sleeps_once_for_each_period() {
    let consumer = || {
        let poll = RawPoll::new();
        let timer = with_timer(&poll, Trigger::Level);
        let began = RawTimer::<List>::now();
        timer.set_every(Duration::from_millis(1), Duration::from_millis(1));
        for period in 1..=20 {
            assert_eq!(poll.wait(&mut Batch::with_capacity(4), None), 1);
            let late = RawTimer::<List>::now() - began - period * MS;
            assert!(late < MS / 10, "{late} ns");
            assert_eq!(timer.read(), Some(1));
        }
    };
    let report = run(vec![Box::new(consumer)]);
    assert_eq!(report.threads[0].voluntary_switches, 20);
}

#[test]
fn an_earlier_timer_wakes_one_of_many_and_a_later_one_none() {
    let (poll, late) = (RawPoll::<List>::new(), Cell::new(0));
    let (timers, end) = ([(); 2].map(|()| with_timer(&poll, Trigger::Once)), RawCounter::new(0));
    poll.register(&end, 2, Readiness::READABLE, Trigger::Level).unwrap();
    let consumer = || {
        let mut batch = Batch::with_capacity(4);
        while !batch.iter().any(|ready| ready.token == 2) {
            poll.wait(&mut batch, None);
            if batch.iter().any(|ready| ready.token == 1) {
                late.set(late.get() + 1);
            }
        }
    };
    let setter = || {
        timed::sleep(MS);
        // All sleep. One is woken, and sleeps until then.
        timers[0].set_after(Duration::from_millis(10));
        timed::sleep(MS);
        timers[1].set_after(Duration::from_millis(12));
        timed::sleep(20 * MS);
        end.add(1);
    };
    let mut bodies: Vec<Body<'_>> = (0..3).map(|_| Box::new(consumer) as Body<'_>).collect();
    bodies.push(Box::new(setter));
    let report = run(bodies);
    assert_eq!(late.get(), 2);
    let sleeps: u64 = report.threads[..3].iter().map(|thread| thread.voluntary_switches).sum();
    // Once each at first, one again until the first timer, and one each time after a timer or a call.
    assert!(sleeps <= 8, "{sleeps} sleeps");
}

#[test]
fn the_outer_poll_sleeps_until_the_inner_ones_timer() {
    let consumer = || {
        let (outer, inner) = (RawPoll::<List>::new(), RawPoll::new());
        let timer = with_timer(&inner, Trigger::Level);
        outer.register(&inner, 3, Readiness::READABLE, Trigger::Edge).unwrap();
        let mut batch = Batch::with_capacity(4);
        let began = RawTimer::<List>::now();
        outer.wait(&mut batch, None);
        assert_eq!(inner.wait(&mut batch, Some(Duration::ZERO)), 0);
        timer.set_after(Duration::from_millis(3));
        assert_eq!(outer.wait(&mut batch, None), 1);
        assert_eq!(inner.wait(&mut batch, Some(Duration::ZERO)), 1);
        let took = RawTimer::<List>::now() - began;
        assert!((3 * MS..4 * MS).contains(&took), "{took} ns");
    };
    let report = run(vec![Box::new(consumer)]);
    assert_eq!(report.threads[0].voluntary_switches, 1);
}
