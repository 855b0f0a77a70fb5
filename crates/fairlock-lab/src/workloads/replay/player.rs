//! One thread of a replay: does its steps, checks its locks, and times them.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use fairlock::platform::Os;
use fairlock_report::program::{self, Step};
use fairlock_report::random::XorShift;
use fairlock_report::timeline::{HOLD_READ, HOLD_WRITE, WAIT_READ, WAIT_WRITE};

use super::super::{Failure, NOTHING};
use crate::error::Violation;
use crate::locks::{Access, Broken, Erased, LabLock, New, NewLock, Protected};
use crate::measure::{RoleRecorder, ThreadRecord};
use crate::world::World;

/// Where asking the clock takes time, one acquisition in so many is timed, on average: two readings take as long as a
/// fast lock. Which one is drawn, since a program's steps have a rhythm of their own.
const TIMED: u32 = 16;
/// A thread that acquires a lock less often than this, in ns, times all acquisitions: that takes a hundredth of its time.
const SELDOM_NS: u64 = 10_000;
/// A computation that is longer asks at its end whether the run is over.
const LONG_NS: u64 = 10_000;
/// A thread that computes for longer asks again and again, after so many ns. What is left once the run is over is not done:
/// the file may say that a thread computes for an hour.
const SLICE_NS: u64 = 1_000_000;
/// The same for a thread that sleeps.
const NAP_NS: u64 = 50_000_000;
/// After so many steps a thread asks in any case: its steps may all be short.
const MOST_STEPS: u32 = 256;
/// What a step costs the lab is measured on so many parts of a sequence, each of so many steps.
const PARTS: usize = 16;
/// As above.
const PART_STEPS: usize = 250;
/// Longer computations are shortened for that: they cost the lab as much, and a PAUSE does not always take as long.
const PART_NS: u64 = 50;
/// So often, each time with what was found before; the median of the later half is taken.
const ROUNDS: usize = 30;

/// A lock, and the two words that notice if it lets two threads in: they lie beside it, so that they
/// cost little where the lock's line has moved anyway.
pub(super) struct Guarded<L> {
    lock: L,
    begun: AtomicU64,
    ended: AtomicU64,
}

impl<L: LabLock> Guarded<L> {
    pub(super) fn new(new: New<L>) -> Guarded<L> {
        let lock = new(Protected::new());
        Guarded { lock, begun: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    pub(super) fn events(&self) -> std::collections::BTreeMap<String, u64> {
        self.lock.events()
    }

    /// The writes so far, for somebody who has the lock.
    fn value(&self) -> Result<u64, Violation> {
        let begun = self.begun.load(Ordering::Relaxed);
        let ended = self.ended.load(Ordering::Relaxed);
        if begun == ended { Ok(ended) } else { Err(Violation::TornRead { begun, ended }) }
    }

    /// The lock has been acquired.
    fn begin(&self, access: Access) -> Result<u64, Violation> {
        match access {
            Access::Shared => self.value(),
            Access::Exclusive => {
                let before = self.value().map_err(|_| self.overlaps())?;
                self.begun.store(before + 1, Ordering::Relaxed);
                Ok(before)
            }
        }
    }

    /// The lock is about to be released.
    fn end(&self, access: Access, before: u64) -> Result<(), Violation> {
        match access {
            Access::Shared => match self.value()? {
                after if after == before => Ok(()),
                after => Err(Violation::ChangedRead { before, after }),
            },
            Access::Exclusive => {
                let expected = (before + 1, before);
                let found =
                    (self.begun.load(Ordering::Relaxed), self.ended.load(Ordering::Relaxed));
                if found != expected {
                    return Err(self.overlaps());
                }
                self.ended.store(before + 1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn overlaps(&self) -> Violation {
        let found = self.begun.load(Ordering::Relaxed);
        Violation::OverlappingWrites { expected: self.ended.load(Ordering::Relaxed), found }
    }
}

/// What was done with a lock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LockUse {
    /// For reading, and for writing.
    pub(super) acquired: [u64; 2],
    /// Time in its calls, ns: acquiring it, with all waits, and releasing it.
    pub(super) in_calls_ns: u64,
}

impl AddAssign for LockUse {
    fn add_assign(&mut self, other: LockUse) {
        self.acquired.iter_mut().zip(other.acquired).for_each(|(sum, it)| *sum += it);
        self.in_calls_ns += other.in_calls_ns;
    }
}

/// A thread.
pub(super) struct Player<'a, W, L> {
    pub(super) world: &'a W,
    /// Those that its steps name, by their places here.
    pub(super) locks: Vec<&'a Guarded<L>>,
    pub(super) steps: &'a [Step],
    /// Where it begins.
    pub(super) first: usize,
    /// Whether it comes back when it did in the recording.
    pub(super) is_open: bool,
    /// What a time away has too much, ns.
    pub(super) wake_up_ns: u64,
    /// How long the run is, ns.
    pub(super) length_ns: u64,
    /// What it draws from.
    pub(super) seed: u64,
    /// What the lab itself needs for a step, ns; see [`step_cost`].
    pub(super) step_ns: f64,
}

/// A lock that the thread holds.
struct Holding<'a, L: LabLock> {
    id: u32,
    access: Access,
    lock: &'a Guarded<L>,
    /// None if the thread holds it already, or was refused: then there is nothing to release.
    hold: Option<Kept<'a, L>>,
}

struct Kept<'a, L: LabLock> {
    _hold: L::Hold<'a>,
    /// What it found; none if it does not look.
    before: Option<u64>,
    /// When it got it, if that is timed.
    since: Option<u64>,
}

/// What a thread has done so far.
struct Playing<'a, 'b, W, L: LabLock> {
    of: &'b Player<'a, W, L>,
    holds: Vec<Holding<'a, L>>,
    roles: [RoleRecorder; 2],
    uses: Vec<LockUse>,
    /// One acquisition in so many is timed; how many are not before the next one.
    timed: u32,
    untimed: u32,
    random: XorShift,
    /// Time to compute that is left, or overdrawn, ns.
    owed: f64,
    began: u64,
    /// The run's end: what comes after it does not count.
    ends: u64,
    /// The time of all steps so far, ns.
    scheduled: u64,
}

impl<'a, W: World, L: LabLock> Player<'a, W, L> {
    /// Does the steps again and again until the run is over.
    pub(super) fn play(self) -> Result<(ThreadRecord, Vec<LockUse>), Failure> {
        let mut playing = self.begin();
        let (mut at, mut unasked) = (self.first, 0);
        while playing.step(self.steps[at])? {
            (at, unasked) = (at + 1, unasked + 1);
            if at == self.steps.len() {
                (at, unasked) = (0, MOST_STEPS);
            }
            if unasked == MOST_STEPS {
                if !self.world.running() {
                    break;
                }
                unasked = 0;
            }
        }
        // The last first, as is usual.
        while let Some(holding) = playing.holds.pop() {
            playing.release(holding)?;
        }
        playing.count_no_time_twice();
        let [reader, writer] = playing.roles;
        let record = |role: RoleRecorder| (role.executed > 0).then_some(role);
        let (reader, writer) = (record(reader), record(writer));
        Ok((ThreadRecord { reader, writer, excluded_ns: 0 }, playing.uses))
    }

    fn begin(&self) -> Playing<'a, '_, W, L> {
        let began = self.world.now();
        Playing {
            of: self,
            holds: Vec::with_capacity(8),
            roles: Default::default(),
            uses: vec![LockUse::default(); self.locks.len()],
            timed: if self.world.clock().is_some() || self.is_seldom() { 1 } else { TIMED },
            untimed: 0,
            random: XorShift::new(self.seed),
            owed: 0.0,
            began,
            ends: self.world.measured_since().unwrap_or(began).saturating_add(self.length_ns),
            scheduled: 0,
        }
    }

    /// Whether it acquires locks so seldom that timing all of them takes next to nothing.
    fn is_seldom(&self) -> bool {
        let acquired = self.steps.iter().filter(|it| matches!(it, Step::Acquire { .. })).count();
        let ns: u64 = self.steps.iter().map(|step| step.ns()).sum();
        ns / acquired.max(1) as u64 >= SELDOM_NS
    }
}

/// What the lab itself needs for a step of these on real threads, ns, beside what the step is. A player
/// computes for so much less. It depends on the steps, since what is computed in PAUSEs is rounded.
pub(super) fn step_cost<W: World>(world: &W, steps: &[Step]) -> Result<f64, Failure> {
    let steps = without_locks(steps);
    if steps.is_empty() {
        return Ok(0.0);
    }
    let new: New<Erased<Os>> = |data| Erased::of(Broken::new(data));
    let free: Vec<_> = (0..=MOST_FREE).map(|_| Guarded::new(new)).collect();
    let computing: f64 = steps.iter().map(|step| step.ns() as f64).sum();
    let more_than = |step_ns: f64| -> Result<f64, Failure> {
        let player = Player {
            world,
            locks: free.iter().collect(),
            steps: &steps,
            first: 0,
            is_open: false,
            wake_up_ns: 0,
            length_ns: 0,
            seed: 0,
            step_ns,
        };
        let mut playing = player.begin();
        let began = world.now();
        for step in &steps {
            playing.step(*step)?;
        }
        let took = world.now().saturating_sub(began) as f64;
        Ok((took - computing + playing.owed) / steps.len() as f64)
    };
    // What a step costs depends a little on how much is computed beside it, and so on what is taken off.
    let (mut step_ns, mut found) = (0.0, Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        step_ns = (step_ns + more_than(step_ns)?).max(0.0);
        found.push(step_ns);
    }
    let later = &mut found[ROUNDS / 2..];
    later.sort_by(f64::total_cmp);
    Ok(later[later.len() / 2])
}

/// Locks that a thread holds at once in [`without_locks`], at most.
const MOST_FREE: u32 = 15;

/// Parts of a sequence for one thread alone: with as few locks as are held at once, so that only the lab's own part
/// in a step takes time.
fn without_locks(steps: &[Step]) -> Vec<Step> {
    let parts = steps.len().div_ceil(PART_STEPS).clamp(1, PARTS);
    let mut alone = Vec::new();
    for part in 0..parts {
        let first = steps.len() * part / parts;
        // The lock's number, and which one stands for it.
        let mut held: Vec<(u32, u32)> = Vec::new();
        for step in &steps[first..(first + PART_STEPS).min(steps.len())] {
            match *step {
                Step::Acquire { lock, access, tries } => {
                    let known = held.iter().find(|(id, _)| *id == lock).map(|(_, free)| *free);
                    let mut unused =
                        (0..MOST_FREE).filter(|it| held.iter().all(|(_, free)| free != it));
                    let free = known.or_else(|| unused.next()).unwrap_or(MOST_FREE);
                    held.push((lock, free));
                    alone.push(Step::Acquire { lock: free, access, tries });
                }
                Step::Release(lock) => {
                    if let Some(at) = held.iter().rposition(|(id, _)| *id == lock) {
                        alone.push(Step::Release(held.remove(at).1));
                    }
                }
                Step::Compute(ns) => alone.push(Step::Compute(ns.min(PART_NS))),
                Step::Away(_) => {}
            }
        }
        alone.extend(held.into_iter().rev().map(|(_, free)| Step::Release(free)));
    }
    alone
}

impl<'a, W: World, L: LabLock> Playing<'a, '_, W, L> {
    /// Does one step; false once the run is over.
    #[inline]
    fn step(&mut self, step: Step) -> Result<bool, Failure> {
        self.owed -= self.of.step_ns;
        self.scheduled += step.ns();
        match step {
            Step::Acquire { lock, access, tries } => self.acquire(lock, access, tries),
            Step::Release(lock) => {
                if let Some(at) = self.holds.iter().rposition(|holding| holding.id == lock) {
                    let holding = self.holds.remove(at);
                    self.release(holding)?;
                }
                Ok(true)
            }
            Step::Compute(ns) => {
                self.compute(ns);
                Ok(ns < LONG_NS || self.of.world.running())
            }
            Step::Away(ns) => {
                self.stay_away(ns);
                Ok(self.of.world.running())
            }
        }
    }

    #[inline]
    fn compute(&mut self, ns: u64) {
        self.owed += ns as f64;
        while self.owed > SLICE_NS as f64 {
            self.owed -= (SLICE_NS - self.of.world.work(SLICE_NS)) as f64;
            if !self.of.world.running() {
                return;
            }
        }
        if self.owed >= 1.0 {
            let whole = self.owed as u64;
            self.owed = self.owed.fract() + self.of.world.work(whole) as f64;
        }
    }

    #[cold]
    fn stay_away(&mut self, ns: u64) {
        let world = self.of.world;
        let ns = match self.of.is_open {
            false => ns,
            true => {
                let now = world.clock().unwrap_or_else(|| world.now());
                let due = self.began.saturating_add(self.scheduled);
                match due.saturating_sub(now) {
                    0 => return,
                    left => left,
                }
            }
        };
        // The machine adds its own.
        let mut ns = ns.saturating_sub(self.of.wake_up_ns).max(1);
        if ns <= NAP_NS {
            return world.sleep(ns);
        }
        let now = || world.clock().unwrap_or_else(|| world.now());
        let due = now().saturating_add(ns);
        while ns > 0 && world.running() {
            world.sleep(ns.min(NAP_NS));
            ns = due.saturating_sub(now());
        }
    }

    #[inline]
    fn acquire(&mut self, id: u32, access: program::Access, tries: bool) -> Result<bool, Failure> {
        let world = self.of.world;
        let (access, waits, holds) = match access {
            program::Access::Read => (Access::Shared, WAIT_READ, HOLD_READ),
            program::Access::Write => (Access::Exclusive, WAIT_WRITE, HOLD_WRITE),
        };
        let lock = self.of.locks[id as usize];
        let nothing = Holding { id, access, lock, hold: None };
        if self
            .holds
            .iter()
            .any(|holding| std::ptr::eq(holding.lock, lock) && holding.hold.is_some())
        {
            self.holds.push(nothing);
            return Ok(true);
        }
        let free_clock = world.clock();
        let is_timed = free_clock.is_some() || self.untimed == 0;
        self.untimed = match is_timed {
            true if self.timed > 1 => self.random.below(2 * self.timed - 1),
            true => 0,
            false => self.untimed - 1,
        };
        world.mark(waits);
        let asked = free_clock.or_else(|| is_timed.then(|| world.now()));
        let hold = match tries {
            false => Some(lock.lock.hold(access)),
            true => lock.lock.try_hold(access),
        };
        let since = world.clock().or_else(|| is_timed.then(|| world.now()));
        let role = (access == Access::Exclusive) as usize;
        if let (Some(asked), Some(since)) = (asked, since) {
            self.count_call(id, asked, since);
            self.roles[role].wait.record(since.saturating_sub(asked));
        }
        let Some(hold) = hold else {
            world.mark(self.mark());
            self.holds.push(nothing);
            return Ok(world.running());
        };
        world.mark(holds);
        // A read that looks at what the lock protects makes its line move once more, so few do where that takes time.
        let looks = access == Access::Exclusive || is_timed;
        let before = looks.then(|| lock.begin(access)).transpose()?;
        let hold = Some(Kept { _hold: hold, before, since });
        self.holds.push(Holding { id, access, lock, hold });
        self.roles[role].executed += 1;
        let running = world.running();
        if running {
            self.roles[role].ops += 1;
            self.uses[id as usize].acquired[role] += 1;
        }
        Ok(running)
    }

    #[inline]
    fn release(&mut self, holding: Holding<'a, L>) -> Result<(), Failure> {
        let world = self.of.world;
        let Holding { id, access, lock, hold } = holding;
        let Some(kept) = hold else { return Ok(()) };
        kept.before.map(|before| lock.end(access, before)).transpose()?;
        let since = kept.since;
        let releases = since.map(|_| world.clock().unwrap_or_else(|| world.now()));
        drop(kept);
        world.mark(self.mark());
        if let (Some(since), Some(releases)) = (since, releases) {
            let released = world.clock().unwrap_or_else(|| world.now());
            self.count_call(id, releases, released);
            let role = (access == Access::Exclusive) as usize;
            self.roles[role].hold.record(releases.saturating_sub(since));
        }
        Ok(())
    }

    /// A call of a lock that was timed: what of it lies within the run counts.
    #[inline]
    fn count_call(&mut self, id: u32, from: u64, to: u64) {
        let ns = to.min(self.ends).saturating_sub(from);
        self.uses[id as usize].in_calls_ns += ns * u64::from(self.timed);
    }

    /// Those few calls that were timed may by chance have been long ones: no thread is in calls for longer than the run.
    fn count_no_time_twice(&mut self) {
        let all_ns: u64 = self.uses.iter().map(|it| it.in_calls_ns).sum();
        let length_ns = self.of.length_ns;
        if all_ns > length_ns {
            let part = length_ns as f64 / all_ns as f64;
            self.uses
                .iter_mut()
                .for_each(|it| it.in_calls_ns = (it.in_calls_ns as f64 * part) as u64);
        }
    }

    /// What a timeline shows of it while it waits for nothing.
    fn mark(&self) -> &'static str {
        match self.holds.iter().rev().find(|holding| holding.hold.is_some()) {
            None => NOTHING,
            Some(holding) if holding.access == Access::Shared => HOLD_READ,
            Some(_) => HOLD_WRITE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::RealWorld;

    fn read(lock: u32) -> Step {
        Step::Acquire { lock, access: program::Access::Read, tries: false }
    }

    #[test]
    fn steps_for_one_thread_alone_have_one_lock_for_each_that_is_held_at_once() {
        let steps = [
            Step::Release(9),
            read(70),
            read(80),
            Step::Compute(7),
            read(70),
            Step::Away(1_000_000),
            Step::Release(70),
            Step::Release(80),
            read(90),
            Step::Compute(5_000_000),
        ];
        let alone = [
            read(0),
            read(1),
            Step::Compute(7),
            read(0),
            Step::Release(0),
            Step::Release(1),
            read(1),
            Step::Compute(PART_NS),
            Step::Release(1),
            Step::Release(0),
        ];
        assert_eq!(without_locks(&steps), alone);
        let many: Vec<Step> = (0..100).map(read).collect();
        let locks = without_locks(&many);
        assert!(locks.iter().all(|step| step.lock().is_some_and(|lock| lock <= MOST_FREE)));
        assert_eq!(locks.len(), 200);
    }

    #[test]
    fn what_a_step_costs_the_lab_is_known_whatever_the_steps_are() {
        let world = RealWorld::new(false);
        let turn = [read(3), Step::Compute(20), Step::Release(3), Step::Compute(35)];
        for steps in [&turn.repeat(10_000)[..], &turn, &turn[1..2], &[Step::Away(5)], &[]] {
            let Ok(ns) = step_cost(&world, steps) else { panic!("nobody else has these locks") };
            assert!(ns >= 0.0 && ns.is_finite(), "{ns}");
        }
    }
}
