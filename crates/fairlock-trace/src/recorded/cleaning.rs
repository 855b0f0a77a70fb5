//! From records, in ticks, to the steps of a thread, in ns.
//!
//! * Between two operations a thread computed, if that did not last long. If it did, the thread has looked at its
//!   CPU time: what is missing to the stretch it spent away, if it went to sleep meanwhile, and without a CPU if it
//!   did not.
//! * What the recording adds to each stretch is subtracted. A stretch that is shorter owes the rest to the next
//!   ones, so that the sum is right.
//! * Releases of what was acquired before the window are left out. What is held at its end is released there.
//!
//! Records may say anything: each takes a bounded time and adds three steps at most, but for the releases at the end,
//! of which there are no more than acquisitions.

use std::collections::{BTreeSet, HashMap};

use fairlock_counts::layout::{PAIRS, READ, WRITE};
use fairlock_counts::record::{Record, What};
use fairlock_counts::recording::{self, Recording};

use super::{Cost, Recorded, Step, Thread, Unrecorded, Window};

/// Ticks as ns.
#[derive(Debug, Clone, Copy)]
struct Clock {
    /// A moment of both clocks.
    ticks: u64,
    ns: u64,
    ns_per_tick: f64,
}

impl Clock {
    /// By the two moments that are farthest apart.
    fn new(moments: &[[u64; 2]]) -> Clock {
        let first = moments.iter().copied().min_by_key(|moment| moment[1]).unwrap_or([0; 2]);
        let last = moments.iter().copied().max_by_key(|moment| moment[1]).unwrap_or([0; 2]);
        let ticks = last[0].saturating_sub(first[0]) as f64;
        let ns = (last[1] - first[1]) as f64;
        let ns_per_tick = Some(ns / ticks).filter(|it| it.is_normal()).unwrap_or(1.0);
        Clock { ticks: first[0], ns: first[1], ns_per_tick }
    }

    fn long(self, ticks: u64) -> f64 {
        ticks as f64 * self.ns_per_tick
    }

    /// CLOCK_MONOTONIC.
    fn at(self, ticks: u64) -> u64 {
        let later = self.long(ticks.saturating_sub(self.ticks)) as u64;
        let earlier = self.long(self.ticks.saturating_sub(ticks)) as u64;
        self.ns.saturating_add(later).saturating_sub(earlier)
    }
}

impl Recorded {
    /// What the file of a process says; who opened windows in it knows when.
    pub(crate) fn new(recording: Recording, wake_up_ns: Option<u64>) -> Recorded {
        let clock = Clock::new(&recording.moments);
        let cost = cost(&recording, clock);
        let mut threads = Vec::new();
        for mut thread in recording.threads {
            threads.push(cleaned(&thread, clock, &cost));
            // As much again is about to be made of the next one.
            thread.words = Vec::new();
        }
        // A thread that recorded nothing but its beginning.
        threads.retain(|thread: &Thread| !thread.windows.is_empty());
        let (windows, windows_ns) = windows(&threads);
        Recorded {
            pid: recording.pid,
            program: recording.program,
            lock_policy: recording.policy,
            began_ns: recording.began,
            elapsed_ns: recording.ended.unwrap_or(recording.taken).saturating_sub(recording.began),
            cost,
            wake_up_ns,
            threads,
            locks: recording.locks,
            windows_ns,
            windows,
            opened: Vec::new(),
            left_out: recording.left_out,
        }
    }
}

fn cost(recording: &Recording, clock: Clock) -> Cost {
    let of_one = |ticks: u64| clock.long(ticks) / PAIRS as f64;
    let of = |which: usize| [READ, WRITE].map(|role| of_one(recording.idle[role][which]));
    let pair = |which: usize| [READ, WRITE].map(|role| of_one(recording.pairs[role][which]));
    Cost {
        acquire: of(0),
        hold: of(1),
        release: of(2),
        gap: of(3),
        pair: pair(0),
        recorded_pair: pair(1),
    }
}

/// How many windows there are, and how long somebody recorded in them, ns.
fn windows(threads: &[Thread]) -> (usize, u64) {
    let mut times: Vec<(u64, u64)> = threads
        .iter()
        .flat_map(|thread| &thread.windows)
        .map(|window| (window.began_ns, window.began_ns.saturating_add(window.lasted_ns)))
        .collect();
    times.sort_unstable();
    let numbers = threads.iter().flat_map(|thread| &thread.windows).map(|window| window.number);
    let numbers: BTreeSet<u32> = numbers.collect();
    let (mut sum, mut known) = (0_u64, 0);
    for (began, ended) in times {
        sum = sum.saturating_add(ended.saturating_sub(began.max(known)));
        known = known.max(ended);
    }
    (numbers.len(), sum)
}

fn cleaned(recorded: &recording::Thread, clock: Clock, cost: &Cost) -> Thread {
    let mut thread = Thread {
        pid: recorded.pid,
        tid: recorded.tid,
        name: recorded.name.clone(),
        ..Thread::default()
    };
    let mut window: Option<Cleaning<'_>> = None;
    for record in recorded.records() {
        match (record.what, &mut window) {
            (What::Window { number, ticks }, _) => {
                let before = window.take().and_then(|window| window.end(cost));
                thread.windows.extend(before);
                window = Some(Cleaning::new(number, ticks, clock, cost));
            }
            (What::Uncounted { acquired, cpu_ns }, Some(window)) => {
                window.window.before = Some(Unrecorded { cpu_ns, acquired });
            }
            (_, Some(window)) => window.add(record, &mut thread),
            (_, None) => {}
        }
    }
    thread.windows.extend(window.and_then(|window| window.end(cost)));
    thread
}

/// A window of a thread that is being cleaned.
struct Cleaning<'a> {
    window: Window,
    clock: Clock,
    cost: &'a Cost,
    /// What it holds: whether to write, how often, and the number of the step that acquired it first.
    held: HashMap<u32, (bool, u32, usize)>,
    /// What recording adds to the stretch that goes on.
    adds: f64,
    /// What it added and was not subtracted yet.
    owed: f64,
    /// CPU time at the last look.
    cpu_ns: Option<u64>,
    /// What it has spent on the CPU since, as far as that was recorded.
    spent: f64,
    lasted: f64,
}

impl<'a> Cleaning<'a> {
    fn new(number: u32, ticks: u64, clock: Clock, cost: &'a Cost) -> Cleaning<'a> {
        let window = Window { number, began_ns: clock.at(ticks), ..Window::default() };
        let (held, adds, owed) = (HashMap::new(), 0.0, 0.0);
        let (cpu_ns, spent, lasted) = (None, 0.0, 0.0);
        Cleaning { window, clock, cost, held, adds, owed, cpu_ns, spent, lasted }
    }

    fn add(&mut self, record: Record, thread: &mut Thread) {
        let since = self.clock.long(record.since);
        self.lasted += since;
        match record.what {
            What::Asked { lock, is_write, how, is_granted, waited, took } => {
                self.computes(since);
                let took_ns = self.is_in_call(took, thread);
                if waited {
                    thread.waited_ns = thread.waited_ns.saturating_add(took_ns);
                }
                if is_granted {
                    self.makes_way(lock, is_write);
                }
                let step = self.window.steps.len();
                self.window.steps.push(Step::Acquire {
                    lock,
                    write: is_write,
                    how: how.into(),
                    granted: is_granted,
                    waited,
                    took_ns,
                });
                if is_granted {
                    self.held.entry(lock).or_insert((is_write, 0, step)).1 += 1;
                }
                self.adds = match is_granted {
                    true => self.cost.hold[usize::from(is_write)],
                    false => self.cost.gap[usize::from(is_write)],
                };
            }
            What::Released { lock, is_write, took } => {
                self.computes(since);
                let took_ns = self.is_in_call(took, thread);
                self.adds = self.cost.gap[usize::from(is_write)];
                // Else it was acquired before the window, or by somebody else.
                if let Some((_, times, _)) = self.held.get_mut(&lock) {
                    *times -= 1;
                    if *times == 0 {
                        self.held.remove(&lock);
                    }
                    self.window.steps.push(Step::Release { lock, took_ns });
                }
            }
            What::Looked { cpu_ns, voluntary, involuntary } => {
                let on_cpu = match self.cpu_ns.replace(cpu_ns) {
                    // In all since the last look, and not before this stretch.
                    Some(before) => {
                        let used = Record::cpu_ns_between(before, cpu_ns) as f64;
                        (used - self.spent).clamp(0.0, since)
                    }
                    None => {
                        self.window.stayed = voluntary == 0;
                        self.window.kept_cpu = voluntary == 0 && involuntary == 0;
                        since
                    }
                };
                self.computes(on_cpu);
                let off_cpu = (since - on_cpu).round() as u64;
                if voluntary > 0 {
                    self.is_away(off_cpu);
                } else {
                    let without_cpu = &mut self.window.without_cpu_ns;
                    *without_cpu = without_cpu.saturating_add(off_cpu);
                }
                (self.spent, self.adds) = (0.0, 0.0);
            }
            What::Window { .. } | What::Uncounted { .. } => {}
        }
    }

    /// A call that took so many ticks.
    fn is_in_call(&mut self, took: u64, thread: &mut Thread) -> u64 {
        let took = self.clock.long(took);
        self.lasted += took;
        self.spent += took;
        let ns = took.round() as u64;
        thread.in_calls_ns = thread.in_calls_ns.saturating_add(ns);
        ns
    }

    /// Before the lock is acquired that it seems to hold: somebody else has released it, which glibc allows.
    fn makes_way(&mut self, lock: u32, is_write: bool) {
        let Some((was_write, times, _)) = self.held.get(&lock).copied() else { return };
        if is_write || was_write {
            self.held.remove(&lock);
            self.releases(lock, times, 0);
        }
    }

    fn releases(&mut self, lock: u32, times: u32, took_ns: u64) {
        let release = Step::Release { lock, took_ns };
        self.window.steps.extend((0..times).map(|_| release));
    }

    fn computes(&mut self, ns: f64) {
        self.spent += ns;
        self.owed += std::mem::take(&mut self.adds);
        let paid = self.owed.min(ns);
        self.owed -= paid;
        // What is less than one is not lost, either.
        let ns = ns - paid;
        let whole = ns.round();
        self.owed += whole - ns;
        match self.window.steps.last_mut() {
            _ if whole < 1.0 => {}
            Some(Step::Compute { ns }) => *ns = ns.saturating_add(whole as u64),
            _ => self.window.steps.push(Step::Compute { ns: whole as u64 }),
        }
    }

    fn is_away(&mut self, more: u64) {
        match self.window.steps.last_mut() {
            _ if more == 0 => {}
            Some(Step::Away { ns }) => *ns = ns.saturating_add(more),
            _ => self.window.steps.push(Step::Away { ns: more }),
        }
    }

    /// None if nothing happened in it.
    fn end(mut self, cost: &Cost) -> Option<Window> {
        let mut held: Vec<_> = std::mem::take(&mut self.held).into_iter().collect();
        held.sort_by_key(|(_, (_, _, step))| std::cmp::Reverse(*step));
        for (lock, (is_write, times, _)) in held {
            let took = cost.release[usize::from(is_write)].round() as u64;
            self.releases(lock, times, took);
        }
        self.window.lasted_ns = self.lasted as u64;
        (!self.window.steps.is_empty()).then_some(self.window)
    }
}

#[cfg(test)]
mod tests {
    use fairlock_counts::record::How;

    use super::*;

    /// Two ticks to a ns, and what recording adds: 10 ns to a hold, 4 to a gap.
    fn cleaned_of(whats: &[(u64, What)]) -> Thread {
        let window = [(0, What::Window { number: 1, ticks: 3000 })];
        let words = window
            .iter()
            .chain(whats)
            .map(|(since, what)| Record { since: *since, what: *what }.encode());
        let mut idle = [[0, 20, 0, 8]; 2];
        idle.iter_mut().flatten().for_each(|ticks| *ticks *= PAIRS);
        let recording = Recording {
            idle,
            moments: vec![[3000, 5000], [1000, 4000], [2000, 4500]],
            threads: vec![recording::Thread { words: words.collect(), ..Default::default() }],
            ..Recording::default()
        };
        let mut recorded = Recorded::new(recording, None);
        assert_eq!(recorded.threads.len(), 1);
        recorded.threads.remove(0)
    }

    fn steps(whats: &[(u64, What)]) -> Vec<Step> {
        cleaned_of(whats).windows.remove(0).steps
    }

    fn asked(lock: u32, is_write: bool) -> What {
        let (how, is_granted) = (How::Waits, true);
        What::Asked { lock, is_write, how, is_granted, waited: false, took: 60 }
    }

    fn released(lock: u32) -> What {
        What::Released { lock, is_write: false, took: 40 }
    }

    fn looked(cpu_ns: u64, voluntary: u8, involuntary: u8) -> What {
        What::Looked { cpu_ns, voluntary, involuntary }
    }

    fn acquire(lock: u32, write: bool) -> Step {
        let how = super::super::How::Waits;
        Step::Acquire { lock, write, how, granted: true, waited: false, took_ns: 30 }
    }

    fn release(lock: u32) -> Step {
        Step::Release { lock, took_ns: 20 }
    }

    #[test]
    fn ticks_become_ns_and_what_recording_adds_is_taken_away() {
        let thread =
            cleaned_of(&[(0, asked(2, false)), (120, released(2)), (208, asked(2, false))]);
        let [window] = &thread.windows[..] else { panic!("{thread:?}") };
        assert_eq!((window.began_ns, window.lasted_ns), (5000, 30 + 60 + 20 + 104 + 30));
        let [hold, gap] = [50, 100].map(|ns| Step::Compute { ns });
        let given_back = Step::Release { lock: 2, took_ns: 0 };
        let steps = [acquire(2, false), hold, release(2), gap, acquire(2, false), given_back];
        assert_eq!(window.steps, steps);
        assert_eq!((thread.in_calls_ns, thread.waited_ns), (80, 0));
    }

    #[test]
    fn a_stretch_that_is_shorter_than_what_recording_adds_owes_the_rest_to_the_next() {
        let steps = steps(&[
            (0, asked(2, false)),
            (12, released(2)),
            (40, asked(2, true)),
            (0, released(2)),
        ]);
        // 6 ns of 10; then 4 and 4 of 20; then 10 that nobody pays.
        let gap = Step::Compute { ns: 12 };
        assert_eq!(steps, [acquire(2, false), release(2), gap, acquire(2, true), release(2)]);
    }

    #[test]
    fn rounding_does_not_change_the_sum() {
        let mut whats = Vec::new();
        for _ in 0..1000 {
            // 2.5 ns and 0.5 ns more than what recording adds.
            whats.extend([(13, asked(2, false)), (21, released(2))]);
        }
        let compute = |step: &Step| if let Step::Compute { ns } = step { *ns } else { 0 };
        let sum: u64 = steps(&whats).iter().map(compute).sum();
        // Nothing was before the first.
        assert_eq!(sum, 3000 + 4);
    }

    #[test]
    fn releases_of_earlier_acquisitions_are_left_out_and_holds_are_ended() {
        let steps = steps(&[
            (0, released(3)),
            (8, asked(2, false)),
            (20, asked(4, true)),
            (20, released(5)),
            (8, asked(2, false)),
        ]);
        let ends = [4, 2, 2].map(|lock| Step::Release { lock, took_ns: 0 });
        let acquired = [acquire(2, false), acquire(4, true), acquire(2, false)];
        assert_eq!(steps, [&acquired[..], &ends[..]].concat());
    }

    #[test]
    fn a_lock_that_somebody_else_has_released_is_released_before_it_is_asked_for_again() {
        let steps = steps(&[(0, asked(2, false)), (20, asked(2, true)), (20, released(2))]);
        let given_back = Step::Release { lock: 2, took_ns: 0 };
        assert_eq!(steps, [acquire(2, false), given_back, acquire(2, true), release(2)]);
        // One that it does not get it may hold.
        let (how, is_granted) = (How::Tries, false);
        let refused =
            What::Asked { lock: 2, is_write: true, how, is_granted, waited: false, took: 0 };
        let steps = self::steps(&[(0, asked(2, false)), (20, refused), (8, released(2))]);
        assert!(matches!(steps[1], Step::Acquire { granted: false, .. }), "{steps:?}");
        assert_eq!((steps.len(), steps[2]), (3, release(2)));
    }

    #[test]
    fn time_off_the_cpu_is_away_if_the_thread_went_to_sleep_and_left_out_if_not() {
        let a_look = |after| (200_000, after);
        let whats = |after| [(0, looked(70, 0, 0)), a_look(after), (0, asked(2, true))];
        let first = |after| cleaned_of(&whats(after));
        let thread = first(looked(30_070, 1, 0));
        let [compute, away] = [Step::Compute { ns: 30_000 }, Step::Away { ns: 70_000 }];
        assert_eq!(thread.windows[0].steps[..2], [compute, away]);
        assert_eq!(thread.windows[0].without_cpu_ns, 0);
        let thread = first(looked(30_070, 0, 2));
        assert_eq!(thread.windows[0].steps[..2], [compute, acquire(2, true)]);
        assert_eq!(thread.windows[0].without_cpu_ns, 70_000);
        // All of it on the CPU, by a clock that differs a little.
        let thread = first(looked(100_080, 0, 0));
        assert_eq!(thread.windows[0].steps[0], Step::Compute { ns: 100_000 });
    }

    #[test]
    fn whether_a_thread_slept_before_a_window_is_known_from_its_first_look() {
        for (voluntary, involuntary, expected) in
            [(0, 0, [true, true]), (0, 3, [true, false]), (1, 0, [false, false])]
        {
            let thread = cleaned_of(&[
                (0, looked(70, voluntary, involuntary)),
                (20, asked(2, false)),
                (200_000, looked(90_000, 1 - voluntary, 0)),
            ]);
            assert_eq!([thread.windows[0].stayed, thread.windows[0].kept_cpu], expected);
        }
        assert!(!cleaned_of(&[(0, asked(2, false))]).windows[0].stayed, "it did not look");
    }

    #[test]
    fn cpu_time_of_short_stretches_is_not_that_of_a_long_one() {
        let steps = steps(&[
            (0, looked(0, 0, 0)),
            (8_000, asked(2, false)),
            (12_020, released(2)),
            // 10,060 ns up to here, and 5,000 of the rest.
            (100_000, looked(15_060, 1, 0)),
        ]);
        let (hold, gap, away) =
            (Step::Compute { ns: 6000 }, Step::Compute { ns: 4996 }, Step::Away { ns: 45_000 });
        let before = Step::Compute { ns: 4000 };
        assert_eq!(steps, [before, acquire(2, false), hold, release(2), gap, away]);
    }

    #[test]
    fn what_no_window_begins_is_left_out() {
        let words = vec![Record { since: 1, what: asked(2, false) }.encode(), [7, 7]];
        let threads = vec![recording::Thread { words, ..Default::default() }];
        let recorded = Recorded::new(Recording { threads, ..Recording::default() }, None);
        assert_eq!((recorded.threads.len(), recorded.windows, recorded.windows_ns), (0, 0, 0));
    }
}
