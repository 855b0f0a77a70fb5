//! Threads that wait for each other in a cycle, found in the waits under way.
//!
//! A thread that waits to write waits for all holders of the lock. A thread that waits to read waits for
//! the writer that holds the lock or, if none does, for the writers that queued earlier. If these threads
//! wait, too, and following the waits leads back to the first thread, none of them can continue, whatever
//! the policy. (Unless one of the waits has a time limit, which is not known here.)
//!
//! Not for: locks of other kinds. A cycle that includes a mutex is not found.

use std::collections::HashMap;

use super::facts::{Holding, Lock, Waiting};

/// A reader under a lock that lets reads be recursive passes waiting writers after a second, so it is
/// not stuck behind them before twice that time.
pub const STUCK_BEHIND_WRITER_NS: u64 = 2_000_000_000;

/// Threads each of which waits for the next, and the last for the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle<'a> {
    /// One for each thread.
    pub links: Vec<Link<'a>>,
}

/// A thread of a cycle, the lock that it waits for, and how the next thread blocks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link<'a> {
    /// Index of the lock.
    pub lock: usize,
    /// The wait.
    pub waiting: &'a Waiting,
    /// The hold of the next thread; none if that only waits to write.
    pub holding: Option<&'a Holding>,
}

/// All cycles among these locks of one process; a thread is in one of them at most.
pub fn cycles(locks: &[Lock]) -> Vec<Cycle<'_>> {
    let mut waits: Vec<(usize, &Waiting)> = Vec::new();
    for (index, lock) in locks.iter().enumerate() {
        waits.extend(lock.waiting.iter().map(|waiting| (index, waiting)));
    }
    let by_thread: HashMap<usize, usize> =
        waits.iter().enumerate().map(|(at, (_, waiting))| (waiting.thread, at)).collect();
    // Those that wait only have others that wait in a cycle.
    let next = |at: usize| -> Vec<(usize, Link<'_>)> {
        let (lock, waiting) = waits[at];
        let in_the_way = in_the_way(&locks[lock], waiting).into_iter();
        in_the_way
            .filter_map(|(thread, holding)| {
                Some((*by_thread.get(&thread)?, Link { lock, waiting, holding }))
            })
            .collect()
    };
    let mut found = Vec::new();
    let mut is_done = vec![false; waits.len()];
    for start in 0..waits.len() {
        // The way to where we are: a wait, and what follows it that was not tried yet.
        let mut way = vec![(start, next(start))];
        let mut taken: Vec<Link<'_>> = Vec::new();
        while let Some((_, left)) = way.last_mut() {
            let Some((at, link)) = left.pop() else {
                let (done, _) = way.pop().expect("there was a last one");
                is_done[done] = true;
                taken.pop();
                continue;
            };
            if is_done[at] {
                continue;
            }
            taken.push(link);
            if let Some(from) = way.iter().position(|(on_way, _)| *on_way == at) {
                found.push(Cycle { links: taken.split_off(from) });
                way.iter().for_each(|(on_way, _)| is_done[*on_way] = true);
                break;
            }
            way.push((at, next(at)));
        }
    }
    found
}

/// The threads that this wait is for, and how they hold the lock.
fn in_the_way<'a>(lock: &'a Lock, waiting: &Waiting) -> Vec<(usize, Option<&'a Holding>)> {
    let holds = |role: &'static str| lock.holding.iter().filter(move |it| it.role == role);
    let held = |it: &'a Holding| (it.thread, Some(it));
    if waiting.role == "writes" {
        return holds("reads").chain(holds("writes")).map(held).collect();
    }
    let writers: Vec<_> = holds("writes").map(held).collect();
    if !writers.is_empty() || waiting.wait_ns < STUCK_BEHIND_WRITER_NS {
        return writers;
    }
    let earlier = |it: &&Waiting| it.role == "writes" && it.wait_ns >= waiting.wait_ns;
    lock.waiting.iter().filter(earlier).map(|it| (it.thread, None)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(thread: usize, role: &str, wait_ns: u64) -> Waiting {
        Waiting { thread, role: role.to_owned(), wait_ns, ..Waiting::default() }
    }

    fn holds(thread: usize, role: &str) -> Holding {
        Holding { thread, role: role.to_owned(), times: 1, ..Holding::default() }
    }

    fn lock(waiting: Vec<Waiting>, holding: Vec<Holding>) -> Lock {
        Lock { waiting, holding, ..Lock::default() }
    }

    /// The threads of each cycle.
    fn threads(locks: &[Lock]) -> Vec<Vec<usize>> {
        let cycles = cycles(locks).into_iter();
        cycles.map(|it| it.links.iter().map(|link| link.waiting.thread).collect()).collect()
    }

    const LONG: u64 = STUCK_BEHIND_WRITER_NS;

    #[test]
    fn a_thread_that_waits_for_itself_is_a_cycle_of_one() {
        let locks = [lock(vec![waits(1, "writes", 5)], vec![holds(1, "reads"), holds(2, "reads")])];
        assert_eq!(threads(&locks), [[1]]);
        assert_eq!(cycles(&locks)[0].links[0].holding, Some(&locks[0].holding[0]));
    }

    #[test]
    fn threads_that_wait_for_each_other_are_found_over_any_number_of_locks() {
        for length in [2, 3, 7] {
            let mut locks: Vec<Lock> = (0..length)
                .map(|at| {
                    let waiting = vec![waits(at, "reads", 5)];
                    lock(waiting, vec![holds((at + 1) % length, "writes")])
                })
                .collect();
            let mut found = threads(&locks);
            found[0].sort_unstable();
            assert_eq!(found, [(0..length).collect::<Vec<_>>()]);
            // Others that wait for them are in no cycle, and hide none.
            locks[0].waiting.insert(0, waits(100, "writes", 9));
            locks[1].waiting.push(waits(101, "writes", 1));
            assert_eq!(threads(&locks)[0].len(), length);
            assert_eq!(threads(&locks).len(), 1);
            // The last one holds nothing any more.
            locks[length - 1].holding.clear();
            assert_eq!(threads(&locks), [[0; 0]; 0]);
        }
    }

    #[test]
    fn holders_that_run_are_no_cycle() {
        let locks = [lock(
            vec![waits(1, "writes", LONG), waits(2, "writes", LONG)],
            vec![holds(3, "reads"), holds(4, "reads")],
        )];
        assert!(cycles(&locks).is_empty());
        assert!(cycles(&[lock(vec![waits(1, "reads", LONG)], vec![holds(2, "reads")])]).is_empty());
    }

    #[test]
    fn a_read_behind_a_writer_that_waits_for_its_reader_is_a_cycle_if_it_lasts() {
        let with = |ns| {
            let waiting = vec![waits(2, "writes", ns + 1), waits(1, "reads", ns)];
            threads(&[lock(waiting, vec![holds(1, "reads")])])
        };
        assert_eq!(with(LONG).len(), 1);
        assert!(with(LONG - 1).is_empty());
    }

    #[test]
    fn two_circles_are_two() {
        let pair = |first: usize| {
            [
                lock(vec![waits(first, "writes", 1)], vec![holds(first + 1, "reads")]),
                lock(vec![waits(first + 1, "writes", 1)], vec![holds(first, "reads")]),
            ]
        };
        let locks: Vec<Lock> = pair(0).into_iter().chain(pair(2)).collect();
        assert_eq!(threads(&locks).len(), 2);
    }
}
