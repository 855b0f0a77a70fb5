//! What a program does while nobody records it.
//!
//! Recording takes time, which is measured and subtracted. It also slows down what comes after: a processor that reads its
//! clock does not work ahead, and counts and records push other data out of its caches. Between two windows there are
//! stretches in which nothing is counted or recorded, and each thread says how often it acquired locks in these and how
//! much CPU time it used. So it is known what an acquisition takes with all that belongs to it, and computing is scaled to
//! that.
//!
//! Not where more than a few acquisitions wait: waiting takes CPU time, too, which is no computing.

use fairlock_counts::layout::READ;

use crate::recorded::{Recorded, Step, Thread, Unrecorded};

/// With fewer acquisitions the average says little.
const FEWEST: u64 = 10_000;
/// If a larger part of them waits, waiting takes a part of the CPU time that nobody knows.
const MOST_WAITS: f64 = 0.01;
/// It is not believed beyond.
const FACTORS: std::ops::RangeInclusive<f64> = 0.25..=4.0;

/// How to turn recorded times into those that were not disturbed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Undisturbed {
    /// The factor for computing.
    pub(super) computing: f64,
    /// What recording adds inside a call, ns.
    in_call: f64,
}

impl Undisturbed {
    /// By what the threads did while nothing was counted or recorded. `even` is the part of the recording that is used.
    pub(super) fn of(recorded: &Recorded, even: &[Thread]) -> Undisturbed {
        let cost = &recorded.cost;
        let in_calls = cost.acquire[READ] + cost.release[READ] - cost.pair[READ];
        let in_call = (in_calls / 2.0).max(0.0);
        let computing = factor(recorded, even, in_call).unwrap_or(1.0);
        Undisturbed { computing, in_call }
    }

    /// What a call took.
    pub(super) fn call(self, took_ns: u64) -> u64 {
        took_ns.saturating_sub(self.in_call as u64)
    }
}

/// Whether the time before a window is of the program's work: the first window is of its start, and so is what follows
/// that if there is more.
fn is_of_work(thread: &Thread, window: usize) -> bool {
    window > 1 || thread.windows.len() < 3
}

fn factor(recorded: &Recorded, even: &[Thread], in_call: f64) -> Option<f64> {
    let unrecorded = recorded.threads.iter().flat_map(|thread| {
        let windows = thread.windows.iter().enumerate();
        let of_work = windows.filter(|(index, _)| is_of_work(thread, *index));
        of_work.filter_map(|(_, window)| window.before)
    });
    let all = unrecorded.fold(Unrecorded::default(), |sum, it| Unrecorded {
        cpu_ns: sum.cpu_ns.saturating_add(it.cpu_ns),
        acquired: sum.acquired.saturating_add(it.acquired),
    });
    let (mut acquired, mut waited, mut calls, mut computing) = (0_u64, 0_u64, 0.0, 0.0);
    for step in even.iter().flat_map(|thread| &thread.windows).flat_map(|window| &window.steps) {
        match *step {
            Step::Acquire { waited: true, granted, .. } => {
                waited += 1;
                acquired += u64::from(granted);
            }
            Step::Acquire { took_ns, granted, .. } => {
                acquired += u64::from(granted);
                calls += (took_ns as f64 - in_call).max(0.0);
            }
            Step::Release { took_ns, .. } => calls += (took_ns as f64 - in_call).max(0.0),
            Step::Compute { ns } => computing += ns as f64,
            Step::Away { .. } => {}
        }
    }
    let is_enough = all.acquired >= FEWEST && acquired >= FEWEST && computing > 0.0;
    if !is_enough || waited as f64 > MOST_WAITS * acquired as f64 {
        return None;
    }
    let wanted = all.cpu_ns as f64 / all.acquired as f64 * acquired as f64;
    Some(((wanted - calls) / computing).clamp(*FACTORS.start(), *FACTORS.end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{Cost, How, Window};

    fn acquire(waited: bool) -> Step {
        let how = How::Waits;
        Step::Acquire { lock: 2, write: false, how, granted: true, waited, took_ns: 25 }
    }

    /// So many turns in each of three windows, with 100 ns of computing in each; between windows an acquisition takes so
    /// many ns.
    fn recorded(turns: usize, unrecorded_ns: u64, waited: bool) -> Recorded {
        let release = Step::Release { lock: 2, took_ns: 15 };
        let steps = [acquire(waited), Step::Compute { ns: 40 }, release, Step::Compute { ns: 60 }];
        let window = |number: u32| Window {
            number,
            began_ns: u64::from(number) * 1_000_000_000,
            lasted_ns: turns as u64 * 140,
            before: (number > 1).then_some(Unrecorded {
                // The start computes a lot.
                cpu_ns: 50_000 * unrecorded_ns + if number == 2 { 1_000_000_000 } else { 0 },
                acquired: 50_000,
            }),
            steps: steps.repeat(turns),
            ..Window::default()
        };
        let windows = (1..=4).map(window).collect();
        let cost =
            Cost { acquire: [20.0; 2], release: [10.0; 2], pair: [10.0; 2], ..Cost::default() };
        let threads = vec![Thread { windows, ..Thread::default() }];
        Recorded { threads, cost, ..Recorded::default() }
    }

    #[test]
    fn computing_takes_as_long_as_while_nothing_was_recorded() {
        let recorded = recorded(5000, 70, false);
        let found = Undisturbed::of(&recorded, &recorded.threads);
        // 20 ns of 30 inside calls are the recording's; 70 - (25 - 10) - (15 - 10) are left for 100.
        assert!((found.computing - 0.5).abs() < 1e-9, "{found:?}");
        assert_eq!(found.call(25), 15);
        assert_eq!(found.call(3), 0);
    }

    #[test]
    fn where_threads_wait_or_little_is_known_computing_stays_as_it_was() {
        for recorded in [recorded(5000, 70, true), recorded(100, 70, false)] {
            assert_eq!(Undisturbed::of(&recorded, &recorded.threads).computing, 1.0);
        }
        let far = recorded(5000, 100_000, false);
        assert_eq!(Undisturbed::of(&far, &far.threads).computing, 4.0);
    }
}
