//! What a program does while nobody records it.
//!
//! Recording takes time, which is measured and subtracted. It also slows down what comes after: a processor that reads its
//! clock does not work ahead, and counts and records push other data out of its caches. Between two windows there are
//! stretches in which nothing is counted or recorded, and each thread says how often it acquired locks in these and how
//! much CPU time it used. So it is known what an acquisition takes with all that belongs to it, and computing is scaled to
//! that, for each thread by its own.
//!
//! Not where more than a few acquisitions wait: waiting takes CPU time, too, which is no computing.

use std::collections::HashMap;

use fairlock_counts::layout::READ;

use crate::recorded::{Recorded, Step, Thread, Window};

/// With fewer acquisitions the average says little: about one stretch.
const FEWEST: u64 = 8_000;
/// If a larger part of them waits, waiting takes a part of the CPU time that nobody knows.
const MOST_WAITS: f64 = 0.01;
/// It is not believed below. Nothing becomes slower by not being recorded.
const FACTORS: std::ops::RangeInclusive<f64> = 0.25..=1.0;

/// How to turn recorded times into those that were not disturbed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Undisturbed {
    /// The factor for computing, by process and thread; 1 for others.
    computing: HashMap<(u32, u32), f64>,
    /// What recording adds inside a call, ns.
    in_call: f64,
}

impl Undisturbed {
    /// By what each thread did while nothing was counted or recorded, beside what it did just before that.
    pub(super) fn of(recorded: &Recorded) -> Undisturbed {
        let cost = &recorded.cost;
        let in_calls = cost.acquire[READ] + cost.release[READ] - cost.pair[READ];
        let in_call = (in_calls / 2.0).max(0.0);
        let of_thread = |thread: &Thread| Some((id(thread), factor(thread, in_call)?));
        let computing = recorded.threads.iter().filter_map(of_thread).collect();
        Undisturbed { computing, in_call }
    }

    /// The factor for what this thread computes.
    pub(super) fn computing(&self, thread: &Thread) -> f64 {
        self.computing.get(&id(thread)).copied().unwrap_or(1.0)
    }

    /// What a call took.
    pub(super) fn call(&self, took_ns: u64) -> u64 {
        took_ns.saturating_sub(self.in_call as u64)
    }
}

fn id(thread: &Thread) -> (u32, u32) {
    (thread.pid, thread.tid)
}

/// What a window has, ns.
#[derive(Debug, Default)]
struct Sum {
    acquired: u64,
    waited: u64,
    calls: f64,
    computing: f64,
}

impl Sum {
    fn of(window: &Window, in_call: f64) -> Sum {
        let mut sum = Sum::default();
        for step in &window.steps {
            match *step {
                Step::Acquire { waited: true, granted, .. } => {
                    sum.waited += 1;
                    sum.acquired += u64::from(granted);
                }
                Step::Acquire { took_ns, granted, .. } => {
                    sum.acquired += u64::from(granted);
                    sum.calls += (took_ns as f64 - in_call).max(0.0);
                }
                Step::Release { took_ns, .. } => sum.calls += (took_ns as f64 - in_call).max(0.0),
                Step::Compute { ns } => sum.computing += ns as f64,
                Step::Away { .. } => {}
            }
        }
        sum
    }
}

/// None if too little is known.
fn factor(thread: &Thread, in_call: f64) -> Option<f64> {
    // A stretch begins soon after a window, in the same phase of the program, and stands at the beginning of the
    // next one. The first window is of the program's start, and so is what follows it if there is more.
    let skipped = if thread.windows.len() > 2 { 1 } else { 0 };
    let (mut stretches, mut all) = (0_u64, Sum::default());
    let (mut took, mut calls, mut computing) = (0.0, 0.0, 0.0);
    for pair in thread.windows.windows(2).skip(skipped) {
        let Some(stretch) = pair[1].before else { continue };
        let sum = Sum::of(&pair[0], in_call);
        if sum.acquired == 0 {
            continue;
        }
        let times = stretch.acquired as f64 / sum.acquired as f64;
        took += stretch.cpu_ns as f64;
        calls += sum.calls * times;
        computing += sum.computing * times;
        stretches += stretch.acquired;
        all.acquired += sum.acquired;
        all.waited += sum.waited;
    }
    let is_enough = stretches >= FEWEST && all.acquired >= FEWEST && computing > 0.0;
    if !is_enough || all.waited as f64 > MOST_WAITS * all.acquired as f64 {
        return None;
    }
    Some(((took - calls) / computing).clamp(*FACTORS.start(), *FACTORS.end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{Cost, How, Unrecorded};

    fn acquire(waited: bool) -> Step {
        let how = How::Waits;
        Step::Acquire { lock: 2, write: false, how, granted: true, waited, took_ns: 25 }
    }

    /// So many turns in each of four windows, with 100 ns of computing in each; between windows an acquisition takes so
    /// many ns.
    fn thread(tid: u32, turns: usize, unrecorded_ns: u64, waited: bool) -> Thread {
        let release = Step::Release { lock: 2, took_ns: 15 };
        let steps = [acquire(waited), Step::Compute { ns: 40 }, release, Step::Compute { ns: 60 }];
        let window = |number: u32| Window {
            number,
            began_ns: u64::from(number) * 1_000_000_000,
            lasted_ns: turns as u64 * 140,
            before: (number > 1).then_some(Unrecorded {
                // The start computes a lot.
                cpu_ns: 8192 * unrecorded_ns + if number == 2 { 1_000_000_000 } else { 0 },
                acquired: 8192,
            }),
            steps: steps.repeat(turns),
            ..Window::default()
        };
        Thread { pid: 1, tid, windows: (1..=4).map(window).collect(), ..Thread::default() }
    }

    fn undisturbed(threads: Vec<Thread>) -> Undisturbed {
        let cost =
            Cost { acquire: [20.0; 2], release: [10.0; 2], pair: [10.0; 2], ..Cost::default() };
        Undisturbed::of(&Recorded { threads, cost, ..Recorded::default() })
    }

    #[test]
    fn computing_takes_as_long_as_while_nothing_was_recorded() {
        let one = thread(7, 5000, 70, false);
        let found = undisturbed(vec![one.clone()]);
        // 20 ns of 30 inside calls are the recording's; 70 - (25 - 10) - (15 - 10) are left for 100.
        assert!((found.computing(&one) - 0.5).abs() < 1e-9, "{found:?}");
        assert_eq!(found.call(25), 15);
        assert_eq!(found.call(3), 0);
    }

    #[test]
    fn each_thread_has_a_factor_of_its_own() {
        let mut seldom = thread(8, 5000, 70, false);
        seldom.windows.iter_mut().for_each(|window| window.before = None);
        let threads = [thread(7, 5000, 70, false), seldom, thread(9, 5000, 90, false)];
        let found = undisturbed(threads.to_vec());
        let factors = threads.map(|thread| (found.computing(&thread) * 100.0).round());
        assert_eq!(factors, [50.0, 100.0, 70.0]);
    }

    #[test]
    fn where_threads_wait_or_little_is_known_computing_stays_as_it_was() {
        for one in [thread(7, 5000, 70, true), thread(7, 100, 70, false)] {
            assert_eq!(undisturbed(vec![one.clone()]).computing(&one), 1.0);
        }
        let slower = thread(7, 5000, 100_000, false);
        assert_eq!(undisturbed(vec![slower.clone()]).computing(&slower), 1.0);
    }
}
