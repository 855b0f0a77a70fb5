//! A recording in which each part of the run has its share.
//!
//! A window ends when so much has been recorded, so one of a busy time is short and one of a quiet time long: taken as they are, quiet
//! times would have too large a part. Here each window is cut so that all cover the same part of the time up to
//! the next one. If that leaves few acquisitions, they cover more, and windows that are shorter stay as they are.
//!
//! A window begins when it was opened, however long nobody did anything then: for a program that locks in
//! bursts, most windows would begin with a burst otherwise. The first window, which is open from the very start, is left out
//! if there are others: it has what the program does once, before its work begins.
//!
//! Time is that of the program without recording, which makes busy times longer, and others not: by the clock alone, a thread
//! that locks for a while and then computes for a while would compute too much.
//!
//! While no window is open, threads look for one now and then, and not at all in stretches in which they do not count. So one
//! that locks all the time begins to record later: what it did until then is not known, but it was not away. Nor was one that
//! did not go to sleep up to its next window: on a busy machine it may have had no CPU. If it kept its CPU, too, and begins
//! far later than one that locks all the time, it computed.

use fairlock_counts::layout::{RECORDS, STRETCH};

use super::undisturbed::Undisturbed;
use crate::recorded::{Recorded, Step, Thread, Window};

/// With fewer windows there is nothing to choose from.
const FEWEST: usize = 3;
/// With fewer acquisitions chance decides too much.
const ENOUGH: usize = 100_000;
/// The part that is tried next if a window lasted no time at all.
const SMALLEST: f64 = 1e-6;
/// That recording makes threads slower than that is not believed.
const MOST_SLOWER: f64 = 8.0;
/// In so many acquisitions a thread looks whether a window is open, if it does not wait before: twice the average.
const UNSEEN: u64 = 2048;
/// Acquisitions after a window in which a thread that locks often may not record: a stretch that is not counted, and what
/// comes before and after it.
const UNCOUNTED: u64 = STRETCH as u64 + 2 * UNSEEN;

/// A window of all threads; CLOCK_MONOTONIC, ns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// It was opened.
    pub(super) from: u64,
    /// The first thread did something in it.
    seen: u64,
    /// It is used up to here.
    pub(super) to: u64,
    /// How many times as long it took from the first operation on, since it was recorded; 1 or more.
    slower: f64,
}

impl Span {
    /// How long it would have been.
    fn undisturbed(&self) -> f64 {
        (self.seen - self.from) as f64 + (self.to - self.seen) as f64 / self.slower
    }

    /// Its beginning, as far as that would have been so long, or all of it.
    fn cut(self, undisturbed: f64) -> Span {
        let before = (self.seen - self.from) as f64;
        let most = match undisturbed - before {
            recorded @ 0.0.. => before + recorded * self.slower,
            _ => undisturbed,
        };
        Span { to: self.to.min(self.from.saturating_add(most as u64)), ..self }
    }
}

/// What is used of a recording.
pub(super) struct Even {
    /// Ascending, none of them overlapping.
    pub(super) windows: Vec<Span>,
    /// All threads, with what is left of their windows.
    pub(super) threads: Vec<Thread>,
}

pub(super) fn evenly(recorded: &Recorded, undisturbed: &Undisturbed) -> Even {
    with_acquisitions(recorded, undisturbed, ENOUGH)
}

/// With so many of them, if there are.
fn with_acquisitions(recorded: &Recorded, undisturbed: &Undisturbed, enough: usize) -> Even {
    let spans = spans(recorded, undisturbed);
    let mut least = 0.0;
    loop {
        let (used, kept) = kept(&spans, least);
        let of_thread = |thread: &Thread| {
            let windows = parts(thread, &spans, &kept);
            Thread { windows, ..without_windows(thread) }
        };
        let threads: Vec<Thread> = recorded.threads.iter().map(of_thread).collect();
        let windows = threads.iter().flat_map(|thread| &thread.windows);
        let acquired: usize = windows.map(super::acquisitions).sum();
        if acquired >= enough || used >= 1.0 {
            return Even { windows: kept.into_iter().flatten().collect(), threads };
        }
        // Of a program that locks in bursts one window may be very short, since it was opened in one.
        least = (2.0 * used).clamp(SMALLEST, 1.0);
    }
}

fn without_windows(thread: &Thread) -> Thread {
    let Thread { pid, tid, name, windows: _, in_calls_ns, waited_ns } = thread;
    Thread {
        pid: *pid,
        tid: *tid,
        name: name.clone(),
        windows: Vec::new(),
        in_calls_ns: *in_calls_ns,
        waited_ns: *waited_ns,
    }
}

/// The windows in the order of their beginnings. Their numbers begin anew at some time.
fn spans(recorded: &Recorded, undisturbed: &Undisturbed) -> Vec<Span> {
    let windows = recorded.threads.iter().flat_map(|thread| {
        thread.windows.iter().map(move |window| (window, undisturbed.length_ns(thread, window)))
    });
    let mut all: Vec<(&Window, f64)> = windows.collect();
    all.sort_by_key(|(window, _)| (window.began_ns, super::end(window), window.number));
    // With how long its threads recorded, and how long that would have taken.
    let mut spans: Vec<(u32, Span, [f64; 2])> = Vec::new();
    for (window, length_ns) in all {
        let (number, seen, to) = (window.number, window.began_ns, super::end(window));
        let more = [window.lasted_ns as f64, length_ns];
        match spans.last_mut() {
            Some((known, span, sums)) if *known == number => {
                span.to = span.to.max(to);
                sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            }
            _ => spans.push((number, Span { from: seen, seen, to, slower: 1.0 }, more)),
        }
    }
    let mut before = 0;
    for (number, span, [lasted, length]) in &mut spans {
        span.slower = (*lasted / length.max(1.0)).clamp(1.0, MOST_SLOWER);
        let mut opened = recorded.opened.iter().rev();
        let opened = opened.find(|(opened, at)| opened == number && *at <= span.seen);
        // The clocks of threads may be off a little.
        span.from = opened.map_or(span.seen, |(_, at)| (*at).max(before).min(span.seen));
        before = span.to;
    }
    spans.into_iter().map(|(_, span, _)| span).collect()
}

/// What is kept of each window: a part of its time that all have, or at least this one. Also says which.
fn kept(spans: &[Span], at_least: f64) -> (f64, Vec<Option<Span>>) {
    let Some((last, others)) = spans.split_last() else { return (1.0, Vec::new()) };
    let first = spans[0];
    let is_start = spans.len() >= FEWEST && first.to - first.from < (last.to - first.from) / 2;
    let of_start = usize::from(is_start);
    // Until the next one. Nobody knows when the one after the last would have come.
    let mut times: Vec<u64> =
        spans.windows(2).map(|pair| pair[1].from.saturating_sub(pair[0].from)).collect();
    let usual = times.last().copied().unwrap_or(u64::MAX);
    times.push(usual.max(last.to - last.from));
    // As long as the window is open, the program does less.
    let undisturbed = |span: &Span, time: u64| {
        let lasted = (span.to - span.from) as f64;
        (time as f64 - lasted + span.undisturbed()).max(1.0)
    };
    let part = |(span, time): (&Span, &u64)| span.undisturbed() / undisturbed(span, *time);
    let parts = others.iter().zip(&times).skip(of_start).map(part);
    let least = parts.fold(1.0, f64::min).max(at_least);
    let cut = |(index, (span, time)): (usize, (&Span, &u64))| {
        // All of it, whatever the rounding.
        let kept = if least >= 1.0 { *span } else { span.cut(least * undisturbed(span, *time)) };
        (index >= of_start && kept.to > kept.from).then_some(kept)
    };
    (least, spans.iter().zip(&times).enumerate().map(cut).collect())
}

/// What is left of a thread's windows. Where it may have been at work and did not see that a window was open, there is one
/// without steps.
fn parts(thread: &Thread, spans: &[Span], kept: &[Option<Span>]) -> Vec<Window> {
    let acquired: usize = thread.windows.iter().map(super::acquisitions).sum();
    let lasted: u64 = thread.windows.iter().map(|window| window.lasted_ns).sum();
    let of_one = lasted / acquired.max(1) as u64;
    let mut windows = thread.windows.iter().peekable();
    let mut parts = Vec::new();
    // The end of a stretch that began after its last window.
    let mut stretch = 0;
    let mut is_first = true;
    let seen = spans.iter().map(|span| span.seen).skip(1).chain([u64::MAX]);
    for ((span, kept), next_seen) in spans.iter().zip(kept).zip(seen) {
        let Some(next) = windows.peek() else { break };
        let is_here = next.began_ns < next_seen;
        if let Some(kept) = kept {
            let was_there = !is_first || is_here && next.began_ns <= span.seen;
            let sees_late = is_here && span.seen - span.from <= of_one.saturating_mul(UNSEEN);
            let until = match (next.stayed && !is_first, sees_late) {
                (true, _) => u64::MAX,
                (false, true) => span.seen.max(stretch),
                (false, false) => stretch,
            };
            let until = if is_here { until.min(next.began_ns) } else { until }.min(kept.to);
            if was_there && until > span.from {
                let lasted_ns = until - span.from;
                let unseen_ns = of_one.saturating_mul(UNSEEN);
                let is_computing =
                    next.kept_cpu && is_here && next.began_ns - span.from > unseen_ns;
                // On average it sees the window in half of that.
                let ns = lasted_ns.saturating_sub(unseen_ns / 2);
                let steps = if is_computing { vec![Step::Compute { ns }] } else { Vec::new() };
                let (number, began_ns) = (next.number, span.from);
                parts.push(Window { number, began_ns, lasted_ns, steps, ..Window::default() });
            }
        }
        while let Some(window) = windows.next_if(|window| window.began_ns < next_seen) {
            parts.extend(kept.and_then(|kept| cut(window, kept)));
            let is_often = 2 * super::asked(window) >= RECORDS;
            let lasts = if is_often { of_one.saturating_mul(UNCOUNTED) } else { 0 };
            stretch = super::end(window).saturating_add(lasts);
            is_first = false;
        }
    }
    parts
}

/// A thread's part of a window; none if it came later.
fn cut(window: &Window, span: Span) -> Option<Window> {
    let whole = super::end(window);
    if window.began_ns >= span.to {
        return None;
    }
    if whole <= span.to {
        return Some(window.clone());
    }
    let lasted_ns = span.to - window.began_ns;
    // Recording took time, too, which is in no step.
    let all: u64 = window.steps.iter().map(ns).sum();
    let most = (all as f64 * lasted_ns as f64 / window.lasted_ns.max(1) as f64) as u64;
    let mut steps = Vec::new();
    let mut held: Vec<u32> = Vec::new();
    let mut passed = 0;
    for step in &window.steps {
        let left = most - passed;
        let step = match *step {
            Step::Compute { ns } => Step::Compute { ns: ns.min(left) },
            Step::Away { ns } => Step::Away { ns: ns.min(left) },
            step => step,
        };
        passed = (passed + ns(&step)).min(most);
        match step {
            Step::Acquire { lock, granted: true, .. } => held.push(lock),
            Step::Release { lock, .. } => {
                if let Some(at) = held.iter().rposition(|held| *held == lock) {
                    held.remove(at);
                }
            }
            _ => {}
        }
        steps.push(step);
        if passed >= most {
            break;
        }
    }
    steps.extend(held.into_iter().rev().map(|lock| Step::Release { lock, took_ns: 0 }));
    let share = lasted_ns as f64 / window.lasted_ns.max(1) as f64;
    let without_cpu_ns = (window.without_cpu_ns as f64 * share) as u64;
    let Window { number, began_ns, before, stayed, kept_cpu, .. } = *window;
    Some(Window { number, began_ns, before, stayed, kept_cpu, lasted_ns, without_cpu_ns, steps })
}

/// How long a step was.
fn ns(step: &Step) -> u64 {
    match *step {
        Step::Acquire { took_ns, .. } | Step::Release { took_ns, .. } => took_ns,
        Step::Compute { ns } | Step::Away { ns } => ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::How;

    const MS: u64 = 1_000_000;

    fn window(number: u32, began_ms: u64, lasted_ms: u64) -> Window {
        let acquire = Step::Acquire {
            lock: 2,
            write: true,
            how: How::Waits,
            granted: true,
            waited: false,
            took_ns: 0,
        };
        let release = Step::Release { lock: 2, took_ns: 0 };
        let turn = [acquire, Step::Compute { ns: 1000 }, release, Step::Compute { ns: 9000 }];
        let steps = turn.repeat((lasted_ms * 100) as usize);
        let (began_ns, lasted_ns) = (began_ms * MS, lasted_ms * MS);
        Window { number, began_ns, lasted_ns, steps, ..Window::default() }
    }

    fn recorded(windows: &[(u64, u64)]) -> Recorded {
        let windows = windows.iter().zip(1..);
        let windows = windows.map(|((began, lasted), number)| window(number, *began, *lasted));
        let thread = Thread { windows: windows.collect(), ..Thread::default() };
        Recorded { threads: vec![thread], ..Recorded::default() }
    }

    fn evenly_of(recorded: &Recorded) -> Even {
        with_acquisitions(recorded, &Undisturbed::of(recorded), 0)
    }

    fn times(windows: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let threads = evenly_of(&recorded(windows)).threads;
        let windows = threads[0].windows.iter();
        windows.map(|window| (window.began_ns / MS, window.lasted_ns / MS)).collect()
    }

    #[test]
    fn busy_and_quiet_times_have_their_share() {
        let all = [(0, 3), (100, 20), (200, 5), (300, 20), (400, 90), (500, 20)];
        assert_eq!(times(&all), [(100, 5), (200, 5), (300, 5), (400, 5), (500, 5)]);
        // A window that is twice as far from the next one stands for twice the time.
        let all = [(0, 3), (100, 20), (200, 20), (400, 5), (500, 20)];
        assert_eq!(times(&all), [(100, 5), (200, 10), (400, 5), (500, 5)]);
    }

    #[test]
    fn a_time_that_recording_makes_longer_has_no_larger_share_for_that() {
        let mut all = recorded(&[(0, 3), (100, 20), (200, 20), (300, 20), (400, 20)]);
        for window in all.threads[0].windows.iter_mut().step_by(2) {
            // Half of the time was the recording's own.
            window.steps.truncate(window.steps.len() / 2);
        }
        let kept = |span: &Span| ((span.from / MS, span.to / MS), span.undisturbed() / MS as f64);
        let even = evenly_of(&all);
        let (times, lengths): (Vec<_>, Vec<f64>) = even.windows.iter().map(kept).unzip();
        // The second is 10 ms of 90. As much of 100 ms are 11.1.
        assert_eq!(times, [(100, 111), (200, 220), (300, 311), (400, 420)]);
        let first = lengths[0];
        assert!((lengths[1] - 10.0).abs() < 0.01 && (first - 11.1).abs() < 0.02, "{lengths:?}");
        let computed = |window: &Window| {
            let computed = window.steps.iter().map(ns);
            computed.sum::<u64>() as f64 / MS as f64
        };
        let computed: Vec<f64> = even.threads[0].windows.iter().map(computed).collect();
        assert!((computed[0] - 11.1).abs() < 0.02 && (computed[1] - 10.0).abs() < 0.01);
    }

    #[test]
    fn a_short_window_is_no_measure_for_the_others_if_little_is_left_then() {
        let all = recorded(&[(0, 3), (100, 20), (200, 1), (300, 20), (400, 20)]);
        let lasted = |enough: usize| -> Vec<u64> {
            let even = with_acquisitions(&all, &Undisturbed::of(&all), enough);
            even.windows.iter().map(|span| (span.to - span.from) / MS).collect()
        };
        assert_eq!(lasted(300), [1, 1, 1, 1]);
        assert_eq!(lasted(1000), [4, 1, 4, 4]);
        assert_eq!(lasted(1_000_000), [20, 1, 20, 20]);
    }

    #[test]
    fn a_window_that_lasted_no_time_does_not_keep_the_others_from_being_used() {
        let all = recorded(&[(0, 3), (100, 20), (200, 0), (300, 20), (400, 20)]);
        let even = with_acquisitions(&all, &Undisturbed::of(&all), 1_000_000);
        assert_eq!(even.windows.iter().map(|span| span.to - span.from).sum::<u64>(), 60 * MS);
    }

    #[test]
    fn a_program_that_is_recorded_all_the_time_is_left_as_it_is() {
        assert_eq!(times(&[(0, 2000)]), [(0, 2000)]);
        assert_eq!(
            times(&[(0, 900), (900, 100), (1000, 100)]),
            [(0, 900), (900, 100), (1000, 100)]
        );
    }

    #[test]
    fn the_start_is_left_out_if_there_is_more() {
        assert_eq!(times(&[(0, 50), (100, 50), (200, 50)]), [(100, 50), (200, 50)]);
        assert_eq!(times(&[(0, 50), (100, 50)]), [(0, 50), (100, 50)]);
    }

    fn shorter(step: Step, by: u64) -> Step {
        match step {
            Step::Compute { ns } => Step::Compute { ns: ns / by },
            step => step,
        }
    }

    /// With windows that are opened so many ms before anything is done in them.
    fn opened_before(windows: &[(u64, u64)], ms: u64) -> Recorded {
        let opened = windows.iter().zip(1..).skip(1);
        let opened = opened.map(|((began, _), number)| (number, (began - ms) * MS));
        Recorded { opened: opened.collect(), ..recorded(windows) }
    }

    #[test]
    fn a_window_begins_when_it_is_opened() {
        let windows = [(0, 3), (160, 4), (260, 4), (360, 4)];
        let mut recorded = opened_before(&windows, 60);
        // One is opened in a burst, and soon full.
        recorded.opened[1].1 = 260 * MS;
        for window in &mut recorded.threads[0].windows {
            let turn: Vec<Step> =
                window.steps[..4].iter().map(|step| shorter(*step, 100)).collect();
            window.steps = turn.repeat((window.lasted_ns / 100) as usize);
        }
        let even = evenly_of(&recorded);
        let kept: Vec<(u64, u64)> =
            even.windows.iter().map(|span| (span.from / MS, span.to / MS)).collect();
        assert_eq!(kept, [(100, 116), (260, 264), (300, 306)]);
        let bursts: Vec<u64> =
            even.threads[0].windows.iter().map(|window| window.began_ns / MS).collect();
        assert_eq!(bursts, [260], "asleep in the others");
    }

    #[test]
    fn a_thread_at_work_that_sees_a_window_late_was_not_away_before() {
        let windows = [(0, 3), (110, 50), (210, 50), (310, 50)];
        let even = evenly_of(&opened_before(&windows, 10));
        let windows = &even.threads[0].windows;
        let times: Vec<(u64, u64)> =
            windows.iter().map(|window| (window.began_ns / MS, window.lasted_ns / MS)).collect();
        assert_eq!(times, [(100, 10), (110, 50), (200, 10), (210, 50), (300, 10), (310, 50)]);
        assert!(windows.iter().step_by(2).all(|unknown| unknown.steps.is_empty()));
    }

    #[test]
    fn a_thread_that_did_not_go_to_sleep_was_not_away_where_it_had_no_cpu() {
        let mut all = recorded(&[(0, 3), (100, 20), (200, 20), (300, 20), (400, 20)]);
        let mut other = all.threads[0].clone();
        // It has no CPU when the second window is opened, nor in all of the third.
        other.windows[1].began_ns += 15 * MS;
        other.windows.remove(2);
        let unknown = |all: &Recorded| -> Vec<(u64, u64)> {
            let windows = evenly_of(all).threads.remove(1).windows;
            let empty = windows.into_iter().filter(|it| it.steps.is_empty());
            empty.map(|it| (it.began_ns / MS, it.lasted_ns / MS)).collect()
        };
        for window in &mut other.windows {
            let lasted: u64 = window.steps.drain(400..).map(|step| ns(&step)).sum();
            window.steps.push(Step::Away { ns: lasted });
        }
        all.threads.push(other);
        assert!(unknown(&all).is_empty());
        all.threads[1].windows.iter_mut().for_each(|window| window.stayed = true);
        assert_eq!(unknown(&all), [(100, 15), (200, 20)]);
    }

    #[test]
    fn a_thread_that_keeps_its_cpu_and_does_not_see_a_window_for_long_computes() {
        let mut all = opened_before(&[(0, 3), (160, 30), (260, 30), (360, 30)], 60);
        let computed = |all: &Recorded| -> Vec<u64> {
            let windows = evenly_of(all).threads.remove(0).windows;
            let alone = windows.iter().filter(|window| window.steps.len() == 1);
            alone.map(|window| ns(&window.steps[0]) / MS).collect()
        };
        assert!(computed(&all).is_empty(), "it may have slept");
        let windows = &mut all.threads[0].windows;
        windows.iter_mut().for_each(|window| (window.stayed, window.kept_cpu) = (true, true));
        // Less half of the 20 ms in which it would have seen the window.
        assert_eq!(computed(&all), [49, 49, 49]);
    }

    #[test]
    fn a_thread_at_work_that_does_not_count_in_a_window_was_not_away() {
        let mut all = recorded(&[(0, 3), (100, 20), (200, 20), (300, 20)]);
        let mut other = all.threads[0].clone();
        other.windows.remove(2);
        let empty = |windows: &[Window]| {
            windows.iter().filter(|it| it.steps.is_empty()).map(|it| it.began_ns / MS).collect()
        };
        all.threads.push(other);
        let of = |all: &Recorded| -> Vec<u64> { empty(&evenly_of(all).threads[1].windows) };
        assert_eq!(of(&all), [200]);
        // One that locks seldom counts all the time.
        let [_, seldom] = &mut all.threads[..] else { unreachable!() };
        seldom.windows.iter_mut().for_each(|window| window.steps.truncate(400));
        assert!(of(&all).is_empty());
    }

    #[test]
    fn of_time_without_a_cpu_a_cut_leaves_its_part() {
        let mut all = recorded(&[(0, 3), (100, 20), (200, 5), (300, 20)]);
        for window in &mut all.threads[0].windows {
            window.without_cpu_ns = window.lasted_ns / 4;
        }
        let windows = &evenly_of(&all).threads[0].windows;
        assert!(windows.iter().all(|window| window.without_cpu_ns == window.lasted_ns / 4));
        assert_eq!(windows[0].lasted_ns, 5 * MS);
    }

    #[test]
    fn what_is_held_at_a_cut_is_released() {
        let all = recorded(&[(0, 3), (100, 20), (200, 5), (300, 20)]);
        for window in &evenly_of(&all).threads[0].windows {
            let count = |wanted: &dyn Fn(&Step) -> bool| {
                window.steps.iter().filter(|step| wanted(step)).count()
            };
            let acquired = count(&|step| matches!(step, Step::Acquire { .. }));
            assert_eq!(acquired, count(&|step| matches!(step, Step::Release { .. })));
            let sum: u64 = window.steps.iter().map(ns).sum();
            assert_eq!(sum, window.lasted_ns);
        }
    }
}
