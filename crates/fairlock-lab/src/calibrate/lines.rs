//! How long a cache line takes from one CPU to another, and what an owner gets out of it meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use crossbeam_utils::CachePadded;

use crate::error::LabError;
use crate::world::{RealWorld, World, pin_to};

/// Exchanges in one sample: short, so that an interruption spoils few samples.
const EXCHANGES: u64 = 100;
/// Samples of one pair and round.
const SAMPLES: usize = 100;
/// A pair takes no longer, whatever happens to its CPUs.
const LONGEST_NS: u64 = 100_000_000;
/// Tries between two looks at whether the partner is still there.
const TRIES: u32 = 1000;

/// One-way transfers between the CPUs of `pair`, ns: half of what it takes two threads to change a
/// word by turns, each by trying to compare-exchange until it is its turn.
///
/// # Errors
/// No thread could be started.
pub fn transfers(world: &RealWorld, pair: (usize, usize)) -> Result<Vec<f64>, LabError> {
    let word = CachePadded::new(AtomicU64::new(0));
    let over = CachePadded::new(AtomicBool::new(false));
    // Changes the word from `from`, or says that the other side is gone.
    let step = |from: u64| -> bool {
        loop {
            for _ in 0..TRIES {
                // Relaxed: nothing is published with the word.
                let tried =
                    word.compare_exchange(from, from + 1, Ordering::Relaxed, Ordering::Relaxed);
                if tried.is_ok() {
                    return true;
                }
            }
            if over.load(Ordering::Relaxed) {
                return false;
            }
        }
    };
    thread::scope(|scope| {
        let partner = thread::Builder::new().spawn_scoped(scope, || {
            pin_to(pair.1);
            let mut turn = 1;
            while step(turn) {
                turn += 2;
            }
        });
        let partner = partner.map_err(|error| LabError::io("start a thread", error))?;
        let leader = thread::Builder::new().spawn_scoped(scope, || {
            pin_to(pair.0);
            let end = world.now() + LONGEST_NS;
            let mut turn = 0;
            // The first exchange waits for the partner to start.
            step_until(&step, &mut turn);
            let mut samples = Vec::with_capacity(SAMPLES);
            while samples.len() < SAMPLES && world.now() < end {
                let started = world.now();
                for _ in 0..EXCHANGES {
                    step_until(&step, &mut turn);
                }
                samples.push((world.now() - started) as f64 / (2 * EXCHANGES) as f64);
            }
            over.store(true, Ordering::Relaxed);
            samples
        });
        let samples = match leader {
            Ok(leader) => leader.join().map_err(|_| LabError::Panicked("ping-pong".to_owned())),
            Err(error) => Err(LabError::io("start a thread", error)),
        };
        over.store(true, Ordering::Relaxed);
        // Its panic, if any, is the scope's.
        let _ = partner.join();
        samples
    })
}

/// One exchange of the leader.
fn step_until(step: &impl Fn(u64) -> bool, turn: &mut u64) {
    if step(*turn) {
        *turn += 2;
    }
}

/// A word that several CPUs change without a pause, for a while.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Contest {
    /// How long, ns.
    pub ns: f64,
    /// How often it was changed.
    pub changes: u64,
    /// Among these, by a CPU that took it from another of its group.
    pub near: u64,
    /// By one that took it from a CPU of another group.
    pub far: u64,
}

impl Contest {
    /// Whether others wanted the word, too, until the end: their CPUs may have been somebody else's.
    pub fn was_contested(&self) -> bool {
        self.near + self.far >= OWNERSHIPS
    }

    /// How often an owner changed the word before it went to another CPU.
    pub fn in_a_row(&self) -> f64 {
        self.changes as f64 / self.owners()
    }

    /// From one owner to the next, ns.
    pub fn ownership_ns(&self) -> f64 {
        self.ns / self.owners()
    }

    /// How much longer it takes to get the word from another group than `far_ns`, where within a group it
    /// takes `near_ns`.
    pub fn far_factor(&self, near_ns: f64, far_ns: f64) -> f64 {
        (self.ns - self.near as f64 * near_ns) / (self.far as f64 * far_ns)
    }

    fn owners(&self) -> f64 {
        (self.near + self.far).max(1) as f64
    }

    /// How long an owner changes the word after it has come, where each change takes `change_ns`. The
    /// last one that it manages ends up to one such time before the word leaves: half, on average.
    pub fn used_ns(&self, change_ns: f64) -> f64 {
        (self.in_a_row() - 0.5) * change_ns
    }
}

/// Contests of one run.
const CONTESTS: usize = 100;
/// A contest ends when the first CPU has got the word so often from another, or has changed it so often.
const OWNERSHIPS: u64 = 100;
const MOST_CHANGES: u64 = 20_000;

/// Has the CPUs of all `groups` change one word, each as fast as it can. With a single CPU nobody takes
/// the word away.
///
/// # Errors
/// No thread could be started.
pub fn contests(world: &RealWorld, groups: &[&[usize]]) -> Result<Vec<Contest>, LabError> {
    const NOBODY: usize = usize::MAX;
    let cpus: Vec<(usize, usize)> = groups
        .iter()
        .enumerate()
        .flat_map(|(group, cpus)| cpus.iter().map(move |&cpu| (cpu, group)))
        .collect();
    // Who changed it last, by place in `cpus`.
    let word = CachePadded::new(AtomicUsize::new(NOBODY));
    let ready = CachePadded::new(AtomicUsize::new(0));
    // The contest under way from 1 on; at first not all are there, and `over` ends it.
    let current = CachePadded::new(AtomicUsize::new(0));
    let over = CONTESTS + 1;
    let change = |me: usize, counts: &mut Contest| {
        // Relaxed: nothing is published with the word.
        let before = word.swap(me, Ordering::Relaxed);
        counts.changes += 1;
        if before != me && before != NOBODY {
            let is_near = cpus[before].1 == cpus[me].1;
            *if is_near { &mut counts.near } else { &mut counts.far } += 1;
        }
    };
    let follow = |me: usize| {
        pin_to(cpus[me].0);
        let mut counts = [Contest::default(); CONTESTS + 1];
        ready.fetch_add(1, Ordering::Relaxed);
        loop {
            let at = current.load(Ordering::Relaxed);
            if at == over {
                return counts;
            }
            change(me, &mut counts[at]);
        }
    };
    let lead = || {
        pin_to(cpus[0].0);
        while ready.load(Ordering::Relaxed) < cpus.len() - 1 {
            thread::yield_now();
        }
        let mut counts = [Contest::default(); CONTESTS + 1];
        for (at, counts) in counts.iter_mut().enumerate().skip(1) {
            let started = world.now();
            current.store(at, Ordering::Relaxed);
            while counts.near + counts.far < OWNERSHIPS && counts.changes < MOST_CHANGES {
                change(0, counts);
            }
            counts.ns = (world.now() - started) as f64;
        }
        current.store(over, Ordering::Relaxed);
        counts
    };
    let all = thread::scope(|scope| {
        let spawn = |me: usize| {
            let follow = &follow;
            thread::Builder::new().spawn_scoped(scope, move || follow(me))
        };
        let followers: Result<Vec<_>, _> = (1..cpus.len()).map(spawn).collect();
        let leader = followers.and_then(|followers| {
            Ok((thread::Builder::new().spawn_scoped(scope, lead)?, followers))
        });
        let (leader, followers) = leader.map_err(|error| {
            current.store(over, Ordering::Relaxed);
            LabError::io("start a thread", error)
        })?;
        let threads = std::iter::once(leader).chain(followers);
        let counts: Result<Vec<_>, _> = threads.map(|thread| thread.join()).collect();
        counts.map_err(|_| LabError::Panicked("a contest for a word".to_owned()))
    })?;
    let sum = |at: usize| {
        all.iter().fold(Contest::default(), |sum, counts| Contest {
            ns: sum.ns + counts[at].ns, // Only the leader's.
            changes: sum.changes + counts[at].changes,
            near: sum.near + counts[at].near,
            far: sum.far + counts[at].far,
        })
    };
    Ok((1..=CONTESTS).map(sum).collect())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use fairlock::platform::{AtomicCell, Platform};
    use fairlock_sim::Sim;
    use fairlock_sim::profile::Profile;
    use fairlock_sim::timed::{self, Setup, Thread};

    use super::*;
    use crate::calibrate::cpus::Cpus;

    #[test]
    fn a_line_goes_to_and_fro() {
        let Some(pair) = Cpus::here().two_cores() else { return };
        let samples = transfers(&RealWorld::new(false), pair).unwrap();
        assert!(!samples.is_empty());
        assert!(samples.iter().all(|&ns| ns > 0.0));
    }

    #[test]
    fn two_threads_on_one_cpu_come_to_an_end() {
        let cpu = Cpus::here().list[0].number;
        transfers(&RealWorld::new(false), (cpu, cpu)).unwrap();
        contests(&RealWorld::new(false), &[&[cpu, cpu]]).unwrap();
    }

    #[test]
    fn one_cpu_keeps_a_word_that_nobody_else_wants() {
        let cpu = Cpus::here().list[0].number;
        let found = contests(&RealWorld::new(false), &[&[cpu]]).unwrap();
        assert_eq!(found.len(), CONTESTS);
        for contest in found {
            assert_eq!((contest.changes, contest.near, contest.far), (MOST_CHANGES, 0, 0));
            assert!(contest.ns > 0.0);
        }
    }

    #[test]
    fn owners_from_the_same_group_and_from_another_are_told_apart() {
        let Some((one, other)) = Cpus::here().two_cores() else { return };
        let world = RealWorld::new(false);
        let near = contests(&world, &[&[one, other]]).unwrap();
        assert!(near.iter().all(|it| it.far == 0) && near.iter().any(|it| it.near > 0));
        let far = contests(&world, &[&[one], &[other]]).unwrap();
        assert!(far.iter().all(|it| it.near == 0) && far.iter().any(|it| it.far > 0));
    }

    #[test]
    fn a_simulated_machine_gives_back_the_part_that_it_was_given() {
        for keep in [0.1, 0.3, 0.5, 0.8] {
            let mut profile = Profile::example();
            profile.line.keep = keep;
            let word = <Sim as Platform>::AtomicU64::new(0);
            let found = Cell::new(Contest::default());
            let body = |me: u64| {
                let (word, found) = (&word, &found);
                Box::new(move || {
                    for _ in 0..1000 {
                        let before = word.swap(me, Ordering::Relaxed);
                        let mut contest = found.get();
                        contest.changes += 1;
                        contest.far += u64::from(before != me);
                        found.set(contest);
                    }
                }) as Box<dyn FnOnce()>
            };
            let bodies = [1, 2].map(|me| Thread { body: body(me), priority: 0 });
            let setup =
                Setup { profile: &profile, seed: 1, pinned: true, timeline_ns: 0, tuning: None };
            timed::run(&setup, bodies.into(), &|| false, &|| ()).unwrap();
            // Threads begin on different sockets.
            let (change_ns, transfer_ns) = (profile.cost.rmw_ns, profile.line.cross_ns[0]);
            let part = found.get().used_ns(change_ns) / transfer_ns;
            assert!((part - keep).abs() <= change_ns / transfer_ns, "{part} for {keep}");
        }
    }

    #[test]
    fn what_an_owner_gets_done_says_how_long_it_used_the_word() {
        let contest = Contest { ns: 1300.0, changes: 145, near: 8, far: 2 };
        assert_eq!((contest.in_a_row(), contest.ownership_ns()), (14.5, 130.0));
        assert_eq!(contest.used_ns(5.0), 70.0);
        assert!(!contest.was_contested());
        // Eight transfers take 50 ns each, and the other two 450: three times 150.
        assert_eq!(Contest { ns: 1300.0, near: 8, far: 2, ..contest }.far_factor(50.0, 150.0), 3.0);
    }
}
