//! What a program does while nobody records it.
//!
//! Recording takes time, which is measured and subtracted. It also slows down what comes after: a processor that reads its
//! clock does not work ahead, and counts and records push other data out of its caches. Between two windows there are
//! stretches in which nothing is counted or recorded, and each thread says how often it acquired locks in these and how
//! much CPU time it used. So it is known what an acquisition takes with all that belongs to it, and for each thread as much
//! is taken from what it computes between two calls as brings it there.
//!
//! It is the same for short computing and for long: what comes after a call does not depend on how much more follows. Of the
//! pairs of a window and a stretch those in the middle count: a program that now and then computes for long does that in
//! some window or in some stretch, and there the two say nothing about each other.
//!
//! A lock that nobody else uses takes a call longer in a program than where recording was measured: by a part of what is
//! around it. That is computing here, as a replay does not have it in its calls. A call that takes far longer has its lock
//! from another CPU or from memory, which a replay has, too.
//!
//! Not where more than a few acquisitions wait: waiting takes CPU time, too, which is no computing.

use std::collections::HashMap;

use fairlock_counts::layout::READ;

use crate::recorded::{Recorded, Step, Thread, Window};

/// With fewer acquisitions the average says little: about one stretch.
const FEWEST: u64 = 8_000;
/// If a larger part of them waits, waiting takes a part of the CPU time that nobody knows.
const MOST_WAITS: f64 = 0.01;
/// Calls that take so many times as long as an undisturbed pair have their lock from elsewhere.
const MOST_PAIRS: f64 = 2.0;
/// That more of what a thread computes is due to recording is not believed.
const MOST: f64 = 0.75;

/// How to turn recorded times into those that were not disturbed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Undisturbed {
    /// What recording adds to what follows a call, ns, by process and thread; 0 for others.
    after_call: HashMap<(u32, u32), f64>,
    /// What is to be taken off a call, ns, likewise; the first of them for others.
    in_call: f64,
    in_calls: HashMap<(u32, u32), f64>,
}

impl Undisturbed {
    /// By what each thread did while nothing was counted or recorded, beside what it did just before that.
    pub(super) fn of(recorded: &Recorded) -> Undisturbed {
        let cost = &recorded.cost;
        let in_calls = cost.acquire[READ] + cost.release[READ] - cost.pair[READ];
        let in_call = (in_calls / 2.0).max(0.0);
        let mut undisturbed =
            Undisturbed { after_call: HashMap::new(), in_call, in_calls: HashMap::new() };
        for thread in &recorded.threads {
            if let Some(found) = Found::of(thread, in_call, cost.pair[READ]) {
                undisturbed.after_call.insert(id(thread), found.after_call);
                undisturbed.in_calls.insert(id(thread), in_call + found.in_call);
            }
        }
        undisturbed
    }

    /// What recording adds to whatever this thread computes after a call, ns.
    pub(super) fn after_call(&self, thread: &Thread) -> f64 {
        self.after_call.get(&id(thread)).copied().unwrap_or(0.0)
    }

    /// What a window of this thread would have taken without recording, ns.
    pub(super) fn length_ns(&self, thread: &Thread, window: &Window) -> f64 {
        let after_call = self.after_call(thread);
        let ns = |step: &Step| match *step {
            Step::Acquire { took_ns, .. } | Step::Release { took_ns, .. } => {
                self.call(took_ns, self.in_call(thread)) as f64
            }
            Step::Compute { ns } => computing(ns, after_call),
            Step::Away { ns } => ns as f64,
        };
        window.steps.iter().map(ns).sum::<f64>() + window.without_cpu_ns as f64
    }

    /// What is to be taken off each call of this thread, ns.
    pub(super) fn in_call(&self, thread: &Thread) -> f64 {
        self.in_calls.get(&id(thread)).copied().unwrap_or(self.in_call)
    }

    /// What a call took, given what is to be taken off.
    pub(super) fn call(&self, took_ns: u64, in_call: f64) -> u64 {
        took_ns.saturating_sub(in_call.round() as u64)
    }
}

/// What computing took, ns, given what recording adds after a call.
pub(super) fn computing(ns: u64, after_call: f64) -> f64 {
    let ns = ns as f64;
    ns - after_call.min(ns * MOST)
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

/// What was found out about a thread, ns.
struct Found {
    /// To be taken off what follows a call.
    after_call: f64,
    /// To be taken off a call, beside what recording adds.
    in_call: f64,
}

impl Found {
    /// None if too little is known.
    fn of(thread: &Thread, in_call: f64, pair: f64) -> Option<Found> {
        // A stretch begins soon after a window, in the same phase of the program, and stands at the beginning of the
        // next one. The first window is of the program's start, and so is what follows it if there is more.
        let skipped = if thread.windows.len() > 2 { 1 } else { 0 };
        let (mut stretches, mut all) = (0, Sum::default());
        let (mut too_much, mut longer, mut computed) = (Vec::new(), Vec::new(), Vec::new());
        for both in thread.windows.windows(2).skip(skipped) {
            let Some(stretch) = both[1].before.filter(|it| it.acquired > 0) else { continue };
            let sum = Sum::of(&both[0], in_call);
            if sum.acquired == 0 {
                continue;
            }
            let [calls, computing] = [sum.calls, sum.computing].map(|ns| ns / sum.acquired as f64);
            let near = if calls < MOST_PAIRS * pair { calls.min(pair) } else { calls };
            longer.push(calls - near);
            too_much.push(near + computing - stretch.cpu_ns as f64 / stretch.acquired as f64);
            computed.extend(both[0].steps.iter().filter_map(|step| match step {
                Step::Compute { ns } => Some(*ns),
                _ => None,
            }));
            stretches += stretch.acquired;
            all.acquired += sum.acquired;
            all.waited += sum.waited;
        }
        let is_enough = stretches >= FEWEST && all.acquired >= FEWEST && !computed.is_empty();
        if !is_enough || all.waited as f64 > MOST_WAITS * all.acquired as f64 {
            return None;
        }
        let after_call = to_take_off(computed, middle(too_much) * all.acquired as f64);
        Some(Found { after_call, in_call: middle(longer) / 2.0 })
    }
}

/// The average of the half in the middle. There are some.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let quarter = values.len() / 4;
    let half = &values[quarter..values.len() - quarter];
    half.iter().sum::<f64>() / half.len() as f64
}

/// How much to take off each of these times, as far as [`MOST`] allows, so that they become less by `sum` together.
fn to_take_off(mut times: Vec<u64>, sum: f64) -> f64 {
    times.sort_unstable();
    // From the shortest on: those that are too short to give their part leave it to the longer ones.
    let mut left = sum.max(0.0);
    for (shorter, ns) in times.iter().enumerate() {
        let (each, most) = (left / (times.len() - shorter) as f64, *ns as f64 * MOST);
        if each <= most {
            return each;
        }
        left -= most;
    }
    f64::INFINITY
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

    /// What it computes in a turn, as it would without recording.
    fn computing_in_turn(found: &Undisturbed, thread: &Thread) -> f64 {
        let after_call = found.after_call(thread);
        computing(40, after_call) + computing(60, after_call)
    }

    #[test]
    fn computing_takes_as_long_as_while_nothing_was_recorded() {
        let one = thread(7, 5000, 70, false);
        let found = undisturbed(vec![one.clone()]);
        // 20 ns of 30 inside calls are the recording's; 70 - (25 - 10) - (15 - 10) are left for 100.
        assert!((computing_in_turn(&found, &one) - 50.0).abs() < 1e-9, "{found:?}");
        let in_call = found.in_call(&one);
        assert_eq!((found.call(25, in_call), found.call(3, in_call)), (15, 0));
    }

    #[test]
    fn what_a_call_takes_longer_than_alone_is_computing_if_it_is_not_much() {
        let of = |pair: f64| {
            let cost =
                Cost { acquire: [20.0; 2], release: [pair; 2], pair: [pair; 2], ..Cost::default() };
            let one = thread(7, 5000, 70, false);
            let recorded = Recorded { threads: vec![one.clone()], cost, ..Recorded::default() };
            let found = Undisturbed::of(&recorded);
            (computing_in_turn(&found, &one).round(), found.in_call(&one).round())
        };
        // Calls take 25 and 15, of which recording adds 10 each: 20 are left.
        assert_eq!(of(14.0), (56.0, 13.0));
        assert_eq!(of(9.0), (50.0, 10.0), "far longer");
        assert_eq!(of(30.0), (50.0, 10.0), "not longer");
    }

    #[test]
    fn each_thread_is_compared_with_itself() {
        let mut seldom = thread(8, 5000, 70, false);
        seldom.windows.iter_mut().for_each(|window| window.before = None);
        let threads = [thread(7, 5000, 70, false), seldom, thread(9, 5000, 90, false)];
        let found = undisturbed(threads.to_vec());
        let computing = threads.map(|thread| computing_in_turn(&found, &thread).round());
        assert_eq!(computing, [50.0, 100.0, 70.0]);
    }

    #[test]
    fn computing_for_long_now_and_then_is_not_taken_for_the_recordings() {
        let mut one = thread(7, 5000, 70, false);
        one.windows = vec![one.windows[3].clone(); 16];
        // Once in a window, and once in a stretch.
        one.windows[5].steps.push(Step::Compute { ns: 4_000_000 });
        one.windows[9].before = Some(Unrecorded { cpu_ns: 9_000_000, acquired: 8192 });
        let found = undisturbed(vec![one.clone()]);
        assert!((computing_in_turn(&found, &one) - 50.0).abs() < 0.1, "{found:?}");
        let long = computing(4_000_000, found.after_call(&one));
        assert!(long > 3_999_900.0, "{long}");
    }

    #[test]
    fn what_is_short_keeps_a_part_and_the_rest_is_taken_off_what_is_longer() {
        // 3 of the first, and 13 of each other one.
        assert_eq!(to_take_off(vec![100, 4, 50], 29.0), 13.0);
        assert_eq!((computing(4, 13.0), computing(50, 13.0)), (1.0, 37.0));
        assert_eq!(to_take_off(vec![100, 4], -5.0), 0.0);
        assert_eq!(computing(100, to_take_off(vec![100, 4], 1000.0)), 25.0);
    }

    #[test]
    fn where_threads_wait_or_little_is_known_computing_stays_as_it_was() {
        for one in [thread(7, 5000, 70, true), thread(7, 100, 70, false)] {
            assert_eq!(undisturbed(vec![one.clone()]).after_call(&one), 0.0);
        }
        let slower = thread(7, 5000, 100_000, false);
        assert_eq!(undisturbed(vec![slower.clone()]).after_call(&slower), 0.0);
    }
}
