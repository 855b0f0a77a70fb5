//! Threads that stand in a line (`../line.rs`): here, as their places are in records of a process.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use crate::line::{ASLEEP, GONE, Line, Member, Members, OUT};
use crate::platform::{Os, Platform};
use crate::slots::HasRecords;

/// Until this member sleeps.
fn await_sleep(member: &Member<Os>) {
    while member.state() != ASLEEP {
        thread::yield_now();
    }
}

fn my_number() -> u32 {
    Os::thread().expect("there are enough records").member_number()
}

fn at_front<R>(line: &Line<Os>, until: Option<u64>, act: impl FnOnce() -> R) -> Option<R> {
    line.at_front(Os::threads(), my_number(), until, act)
}

fn mine() -> &'static Member<Os> {
    Os::threads().member(my_number())
}

#[test]
fn one_at_a_time_and_everybody_once() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 2_000 };
    let (line, inside, entered) = (Line::<Os>::NEW, AtomicU32::new(0), AtomicU32::new(0));
    let enter = || {
        assert_eq!(inside.fetch_add(1, Relaxed), 0, "alone");
        (0..10).for_each(|_| core::hint::spin_loop());
        inside.fetch_sub(1, Relaxed);
        entered.fetch_add(1, Relaxed);
    };
    thread::scope(|scope| {
        let (line, enter) = (&line, &enter);
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    // Some have no time, and some of those come too late.
                    let until = ((round + thread) % 3 == 0).then(|| Os::now() + round % 64);
                    while at_front(line, until, enter).is_none() {
                        thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!(u64::from(entered.load(Relaxed)), 4 * ROUNDS);
    let now = Some(Os::now());
    assert!(at_front(&line, now, || ()).is_some(), "a line that nobody borrows is empty");
}

#[test]
fn who_has_gone_is_passed_over_and_may_stand_in_line_again() {
    let line = Line::<Os>::NEW;
    let there = Barrier::new(2);
    thread::scope(|scope| {
        let front = scope.spawn(|| at_front(&line, None, || [there.wait(), there.wait()]));
        there.wait();
        assert!(at_front(&line, Some(Os::now()), || ()).is_none(), "it is not its turn");
        assert_eq!(mine().state(), GONE);
        let another = Line::NEW;
        assert!(at_front(&another, None, || ()).is_none(), "in one line at a time");
        let (tell, told) = std::sync::mpsc::channel();
        let line = &line;
        let behind = scope.spawn(move || {
            tell.send(mine()).expect("somebody listens");
            at_front(line, None, || ())
        });
        await_sleep(told.recv().expect("it tells"));
        there.wait();
        front.join().expect("it does not panic");
        behind.join().expect("it does not panic").expect("it becomes the front");
    });
    assert_eq!(mine().state(), OUT);
    assert!(at_front(&line, None, || ()).is_some());
}

#[test]
fn who_comes_again_has_its_old_place() {
    let line = Line::<Os>::NEW;
    let there = Barrier::new(2);
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| at_front(&line, None, || [there.wait(), there.wait()]));
        there.wait();
        assert!(at_front(&line, Some(Os::now()), || ()).is_none());
        let (tell, told) = std::sync::mpsc::channel();
        let (line, order) = (&line, &order);
        scope.spawn(move || {
            tell.send(mine()).expect("somebody listens");
            at_front(line, None, || order.lock().unwrap().push("second"))
        });
        await_sleep(told.recv().expect("it tells"));
        let me = mine();
        scope.spawn(|| {
            await_sleep(me);
            there.wait();
        });
        at_front(line, None, || order.lock().unwrap().push("first")).expect("its turn");
    });
    assert_eq!(*order.lock().unwrap(), ["first", "second"]);
}
