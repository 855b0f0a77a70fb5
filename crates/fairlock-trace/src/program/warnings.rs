//! What speaks against believing a replay of a recording.
//!
//! A recording shows windows of a run. The counts are of the whole of it, so they show what is not in the windows: threads that
//! did nothing then, waits that last longer than a window, and bursts.

use std::collections::{BTreeMap, BTreeSet};

use fairlock_counts::snapshot::Snapshot;
use fairlock_report::program::Recorded as About;
use fairlock_report::units::{format_count, format_ns};

use super::Times;
use crate::diagnosis::percent;
use crate::recorded::Recorded;

/// Without a CPU for a larger share of the time, threads did not meet as they would have.
const WITHOUT_CPU: f64 = 0.1;
/// Fewer acquisitions, or a shorter time in seconds, say little.
const FEWEST: u64 = 10_000;
const SHORTEST: f64 = 0.01;
/// Of all acquisitions, or of the run's time, what threads that are missing may have.
const MISSING: f64 = 0.01;
/// Share of threads' time that they wait, from which on it matters; and how much less of that a recording may have.
const WAITING: f64 = 0.05;
const LESS: f64 = 3.0;
/// How much more or less often than in the whole run locks may have been acquired.
const OTHER_RATE: f64 = 1.5;
/// With fewer windows the start may be all that was recorded.
const SEVERAL: usize = 3;

/// Sentences for the file. `about` is what else it says, and `times` how the recorded time was spent.
pub(super) fn of(
    recorded: &Recorded,
    snapshot: Option<&Snapshot>,
    about: &About,
    times: &Times,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if about.without_cpu >= WITHOUT_CPU {
        let share = percent(about.without_cpu);
        warnings.push(format!(
            "threads had no CPU for {share} of the time: record with no more busy threads than CPUs, while other programs leave these alone"
        ));
    }
    if times.acquired < FEWEST || about.recorded_seconds < SHORTEST {
        let time = format_ns(about.recorded_seconds * 1e9);
        warnings.push(format!(
            "only {} acquisitions in {time} were recorded: let the program run longer",
            times.acquired
        ));
    }
    if let Some(snapshot) = snapshot {
        warnings.extend(missing_threads(recorded, snapshot));
        warnings.extend(missing_waits(recorded, snapshot, times));
        warnings.extend(releases_by_others(snapshot));
    }
    warnings.extend(other_rate(recorded, about));
    warnings
}

/// What a thread did in the whole run.
#[derive(Debug, Clone, Copy, Default)]
struct Did {
    acquired: u64,
    waited_ns: u64,
}

impl Did {
    fn add(&mut self, other: Did) {
        self.acquired = self.acquired.saturating_add(other.acquired);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
    }

    fn sum<'a>(all: impl Iterator<Item = &'a Did>) -> Did {
        all.fold(Did::default(), |mut sum, did| {
            sum.add(*did);
            sum
        })
    }
}

/// By the threads of the snapshot, whether they are in the recording.
fn threads(recorded: &Recorded, snapshot: &Snapshot) -> BTreeMap<usize, (bool, Did)> {
    let known: BTreeSet<(u32, u32)> =
        recorded.threads.iter().map(|thread| (thread.pid, thread.tid)).collect();
    let names: BTreeSet<(u32, &str)> =
        recorded.threads.iter().map(|thread| (thread.pid, thread.name.as_str())).collect();
    let mut threads: BTreeMap<usize, (bool, Did)> = BTreeMap::new();
    for used in snapshot.locks.iter().flat_map(|lock| &lock.threads) {
        // The number of one that has ended is not known any more.
        let is_known = known.contains(&(used.pid, used.tid))
            || used.tid == 0 && names.contains(&(used.pid, &*used.name));
        let sum = |both: [u64; 2]| both[0].saturating_add(both[1]);
        let did = Did { acquired: sum(used.acquired), waited_ns: sum(used.waited_ns) };
        threads.entry(used.thread).or_insert((is_known, Did::default())).1.add(did);
    }
    threads.retain(|_, (_, did)| did.acquired > 0 || did.waited_ns > 0);
    threads
}

fn missing_threads(recorded: &Recorded, snapshot: &Snapshot) -> Option<String> {
    let threads = threads(recorded, snapshot);
    let missing: Vec<Did> =
        threads.values().filter(|(is_known, _)| !is_known).map(|(_, did)| *did).collect();
    let all = Did::sum(threads.values().map(|(_, did)| did));
    let theirs = Did::sum(missing.iter());
    let matters = theirs.acquired as f64 >= MISSING * all.acquired as f64
        || theirs.waited_ns as f64 >= MISSING * recorded.elapsed_ns as f64;
    let what = match missing.len() {
        0 => return None,
        1 => "a thread that acquired locks is not in the recording, as it did".to_owned(),
        many => format!("{many} threads that acquired locks are not in the recording, as they did"),
    };
    matters.then(|| format!("{what} nothing in its windows"))
}

/// Waits that last longer than a window.
fn missing_waits(recorded: &Recorded, snapshot: &Snapshot, times: &Times) -> Option<String> {
    let threads = threads(recorded, snapshot);
    let waited_ns = Did::sum(threads.values().map(|(_, did)| did)).waited_ns;
    let time = recorded.elapsed_ns as f64 * threads.len() as f64;
    let share = waited_ns as f64 / time.max(1.0);
    let in_recording = times.waiting as f64 / times.all().max(1) as f64;
    (share >= WAITING && in_recording < share / LESS).then(|| {
        format!(
            "threads waited for locks for {} of their time, and the recording has {}: \
             long waits and holds are not in it",
            percent(share),
            percent(in_recording)
        )
    })
}

/// Of such a hold nobody knows when it ended.
fn releases_by_others(snapshot: &Snapshot) -> Option<String> {
    // A child that was forked off has copies of the locks, and of what its parent holds.
    let used = snapshot.locks.iter().flat_map(|lock| &lock.threads);
    let used = used.filter(|used| used.pid == snapshot.pid);
    let releases = used.flat_map(|used| used.released_of_others).fold(0, u64::saturating_add);
    let what = match releases {
        0 => return None,
        1 => "a lock was".to_owned(),
        many => format!("{} times a lock was", format_count(many as f64)),
    };
    Some(format!(
        "{what} released by another thread than the one that had acquired it: in the recording it is held for longer"
    ))
}

/// So little was recorded of bursts that chance decided how many are in it.
fn other_rate(recorded: &Recorded, about: &About) -> Option<String> {
    let per_second = |acquired: u64| acquired as f64 * 1e9 / recorded.elapsed_ns.max(1) as f64;
    let in_run = per_second(about.acquisitions);
    let in_recording = about.acquisitions_per_s * (1.0 - about.without_cpu);
    let is_near = (in_run / OTHER_RATE..=in_run * OTHER_RATE).contains(&in_recording);
    let is_known = recorded.windows >= SEVERAL && about.acquisitions > 0;
    (is_known && !is_near).then(|| {
        format!(
            "the run had {} acquisitions per second, and what was recorded of it {}: \
             let the program run longer, so that more of its busy and its quiet times is in it",
            format_count(in_run),
            format_count(in_recording)
        )
    })
}

#[cfg(test)]
mod tests {
    use fairlock_counts::snapshot::{Lock, Use};

    use super::*;
    use crate::recorded::Thread;

    const SECOND: u64 = 1_000_000_000;

    /// A run of 10 s, of which there is nothing to say.
    fn good() -> (Recorded, Snapshot, About, Times) {
        let thread = |tid: u32| Thread { pid: 1, tid, name: "worker".into(), ..Thread::default() };
        let recorded = Recorded {
            elapsed_ns: 10 * SECOND,
            threads: vec![thread(2), thread(3)],
            windows: 50,
            ..Recorded::default()
        };
        let used = |thread: usize| Use {
            pid: 1,
            thread,
            tid: thread as u32,
            name: "worker".into(),
            acquired: [900_000, 100_000],
            ..Use::default()
        };
        let lock = Lock { threads: vec![used(2), used(3)], ..Lock::default() };
        let snapshot = Snapshot { pid: 1, locks: vec![lock], ..Snapshot::default() };
        let about = About {
            acquisitions: 2_000_000,
            acquisitions_per_s: 210_000.0,
            recorded_seconds: 0.5,
            ..About::default()
        };
        let times = Times { acquired: 100_000, computing: SECOND, ..Times::default() };
        (recorded, snapshot, about, times)
    }

    fn warnings(
        change: impl Fn(&mut Recorded, &mut Snapshot, &mut About, &mut Times),
    ) -> Vec<String> {
        let (mut recorded, mut snapshot, mut about, mut times) = good();
        change(&mut recorded, &mut snapshot, &mut about, &mut times);
        of(&recorded, Some(&snapshot), &about, &times)
    }

    #[test]
    fn of_a_good_recording_there_is_nothing_to_say() {
        assert_eq!(warnings(|_, _, _, _| ()), [""; 0]);
    }

    #[test]
    fn threads_without_a_cpu_are_told() {
        let said = warnings(|_, _, about, _| about.without_cpu = 0.25);
        let expected = "threads had no CPU for 25.0 % of the time: record with no more busy threads than CPUs, while other programs leave these alone";
        assert_eq!(said, [expected]);
    }

    #[test]
    fn a_recording_of_little_is_told() {
        let few = warnings(|_, _, _, times| times.acquired = 50);
        let expected = "only 50 acquisitions in 500ms were recorded: let the program run longer";
        assert_eq!(few, [expected]);
        let short = warnings(|_, _, about, _| about.recorded_seconds = 0.002);
        assert!(short[0].starts_with("only 100000 acquisitions in 2.00ms"), "{short:?}");
    }

    #[test]
    fn threads_that_are_missing_are_told_if_they_matter() {
        let forget = |recorded: &mut Recorded| recorded.threads.truncate(1);
        let said = warnings(|recorded, _, _, _| forget(recorded));
        assert_eq!(
            said,
            [
                "a thread that acquired locks is not in the recording, as it did nothing in its windows"
            ]
        );
        let seldom = |snapshot: &mut Snapshot| snapshot.locks[0].threads[1].acquired = [500, 0];
        let said = warnings(|recorded, snapshot, _, _| {
            forget(recorded);
            seldom(snapshot);
        });
        assert_eq!(said, [""; 0]);
        let said = warnings(|recorded, snapshot, _, _| {
            forget(recorded);
            seldom(snapshot);
            snapshot.locks[0].threads[1].waited_ns = [SECOND / 5, 0];
        });
        assert_eq!(said.len(), 1, "{said:?}");
        // One that has ended goes by its name.
        let said = warnings(|recorded, snapshot, _, _| {
            forget(recorded);
            snapshot.locks[0].threads[1].tid = 0;
        });
        assert_eq!(said, [""; 0]);
    }

    #[test]
    fn waits_that_are_missing_are_told() {
        let said = |recorded_ns: u64| {
            warnings(|_, snapshot, _, times| {
                snapshot.locks[0].threads[1].waited_ns = [0, 4 * SECOND];
                times.waiting = recorded_ns;
            })
        };
        let expected = "threads waited for locks for 20.0 % of their time, and the recording has 1.00 %: \
                        long waits and holds are not in it";
        assert_eq!(said(SECOND / 100), [expected]);
        assert_eq!(said(SECOND / 10), [""; 0]);
    }

    #[test]
    fn releases_by_other_threads_are_told() {
        let said = |releases: u64| {
            warnings(|_, snapshot, _, _| {
                snapshot.locks[0].threads[1].released_of_others = [releases, 0];
            })
        };
        assert!(said(1)[0].starts_with("a lock was released by another thread than"));
        assert!(said(6660)[0].starts_with("6.66k times a lock was released by another"));
        let of_child = |_: &mut Recorded, snapshot: &mut Snapshot, _: &mut About, _: &mut Times| {
            let child = &mut snapshot.locks[0].threads[1];
            (child.pid, child.released_of_others) = (7, [2, 0]);
        };
        let said = warnings(of_child);
        assert!(said.iter().all(|it| !it.contains("released")), "it has copies: {said:?}");
    }

    #[test]
    fn a_recording_with_more_or_fewer_bursts_than_the_run_is_told() {
        for rate in [50_000.0, 900_000.0] {
            let said = warnings(|_, _, about, _| about.acquisitions_per_s = rate);
            assert!(said[0].starts_with("the run had 200k acquisitions per second"), "{said:?}");
            let start = warnings(|recorded, _, about, _| {
                about.acquisitions_per_s = rate;
                recorded.windows = 1;
            });
            assert_eq!(start, [""; 0]);
        }
    }
}
