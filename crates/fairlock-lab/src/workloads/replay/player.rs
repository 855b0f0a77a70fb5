//! One thread of a replay: does its steps, checks its locks, and times them.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use fairlock::platform::Os;
use fairlock_report::program::{self, Step};
use fairlock_report::timeline::{HOLD_READ, HOLD_WRITE, WAIT_READ, WAIT_WRITE};

use super::super::{Failure, NOTHING};
use crate::error::Violation;
use crate::locks::{Access, Broken, LabLock, Protected};
use crate::measure::{RoleRecorder, ThreadRecord};
use crate::world::World;

/// Where asking the clock takes time, one acquisition in so many is timed: two readings take as long as a fast lock.
const TIMED: u32 = 16;
/// A computation that is longer asks at its end whether the run is over.
const LONG_NS: u64 = 10_000;
/// Rounds in which what a step costs the lab is measured.
const ROUNDS: usize = 2000;

/// A lock, and the two words that notice if it lets two threads in: they lie beside it, so that they
/// cost little where the lock's line has moved anyway.
pub(super) struct Guarded<L> {
    lock: L,
    begun: AtomicU64,
    ended: AtomicU64,
}

impl<L: LabLock> Guarded<L> {
    pub(super) fn new() -> Guarded<L> {
        let lock = L::new(Protected::new());
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
    /// By number.
    pub(super) locks: Vec<Option<&'a Guarded<L>>>,
    pub(super) steps: &'a [Step],
    /// Where it begins.
    pub(super) first: usize,
    /// Whether it comes back when it did in the recording.
    pub(super) is_open: bool,
    /// What a time away has too much, ns.
    pub(super) wake_up_ns: u64,
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
    before: u64,
    /// When it got it, if that is timed.
    since: Option<u64>,
}

/// What a thread has done so far.
struct Playing<'a, 'b, W, L: LabLock> {
    of: &'b Player<'a, W, L>,
    holds: Vec<Holding<'a, L>>,
    roles: [RoleRecorder; 2],
    uses: Vec<LockUse>,
    untimed: u32,
    /// Time to compute that is left, or overdrawn, ns.
    owed: i64,
    step_ns: i64,
    began: u64,
    /// The time of all steps so far, ns.
    scheduled: u64,
}

impl<'a, W: World, L: LabLock> Player<'a, W, L> {
    /// Does the steps again and again until the run is over.
    pub(super) fn play(self) -> Result<(ThreadRecord, Vec<LockUse>), Failure> {
        let step_ns = self.step_cost()?;
        let mut playing = self.begin(step_ns);
        let mut at = self.first;
        while playing.step(self.steps[at])? {
            at = if at + 1 == self.steps.len() { 0 } else { at + 1 };
        }
        // The last first, as is usual.
        while let Some(holding) = playing.holds.pop() {
            playing.release(holding)?;
        }
        let [reader, writer] = playing.roles;
        let record = |role: RoleRecorder| (role.executed > 0).then_some(role);
        let (reader, writer) = (record(reader), record(writer));
        Ok((ThreadRecord { reader, writer, excluded_ns: 0 }, playing.uses))
    }

    fn begin(&self, step_ns: i64) -> Playing<'a, '_, W, L> {
        Playing {
            of: self,
            holds: Vec::with_capacity(8),
            roles: Default::default(),
            uses: vec![LockUse::default(); self.locks.len()],
            untimed: 0,
            owed: 0,
            step_ns,
            began: self.world.now(),
            scheduled: 0,
        }
    }

    /// What the lab itself needs for a step, ns: nothing on a simulated machine.
    fn step_cost(&self) -> Result<i64, Failure> {
        let world = self.world;
        if world.clock().is_some() {
            return Ok(0);
        }
        let free = Guarded::<Broken<Os>>::new();
        let acquire = Step::Acquire { lock: 0, access: program::Access::Read, tries: false };
        let steps = [acquire, Step::Compute(0), Step::Release(0), Step::Compute(0)];
        let locks = vec![Some(&free)];
        let player =
            Player { world, locks, steps: &steps, first: 0, is_open: false, wake_up_ns: 0 };
        let mut playing = player.begin(0);
        let began = world.now();
        for _ in 0..ROUNDS {
            for step in steps {
                playing.step(step)?;
            }
        }
        let ns = world.now().saturating_sub(began);
        Ok((ns / (ROUNDS * steps.len()) as u64) as i64)
    }
}

impl<'a, W: World, L: LabLock> Playing<'a, '_, W, L> {
    /// Does one step; false once the run is over.
    #[inline]
    fn step(&mut self, step: Step) -> Result<bool, Failure> {
        self.owed -= self.step_ns;
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
        self.owed += ns as i64;
        if self.owed > 0 {
            self.owed = self.of.world.work(self.owed as u64) as i64;
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
        world.sleep(ns.saturating_sub(self.of.wake_up_ns).max(1));
    }

    #[inline]
    fn acquire(&mut self, id: u32, access: program::Access, tries: bool) -> Result<bool, Failure> {
        let world = self.of.world;
        let (access, waits, holds) = match access {
            program::Access::Read => (Access::Shared, WAIT_READ, HOLD_READ),
            program::Access::Write => (Access::Exclusive, WAIT_WRITE, HOLD_WRITE),
        };
        let Some(lock) = self.of.locks.get(id as usize).copied().flatten() else {
            return Ok(true);
        };
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
        self.untimed = if is_timed { TIMED } else { self.untimed } - 1;
        world.mark(waits);
        let asked = free_clock.or_else(|| is_timed.then(|| world.now()));
        let hold = match tries {
            false => Some(lock.lock.hold(access)),
            true => lock.lock.try_hold(access),
        };
        let since = world.clock().or_else(|| is_timed.then(|| world.now()));
        let role = (access == Access::Exclusive) as usize;
        if let (Some(asked), Some(since)) = (asked, since) {
            let ns = since.saturating_sub(asked);
            let weight = if free_clock.is_some() { 1 } else { u64::from(TIMED) };
            self.uses[id as usize].in_calls_ns += ns * weight;
            self.roles[role].wait.record(ns);
        }
        let Some(hold) = hold else {
            world.mark(self.mark());
            self.holds.push(nothing);
            return Ok(world.running());
        };
        world.mark(holds);
        let before = lock.begin(access)?;
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
        lock.end(access, kept.before)?;
        let since = kept.since;
        let releases = since.map(|_| world.clock().unwrap_or_else(|| world.now()));
        drop(kept);
        world.mark(self.mark());
        if let (Some(since), Some(releases)) = (since, releases) {
            let is_free = world.clock();
            let released = is_free.unwrap_or_else(|| world.now());
            let weight = if is_free.is_some() { 1 } else { u64::from(TIMED) };
            self.uses[id as usize].in_calls_ns += released.saturating_sub(releases) * weight;
            let role = (access == Access::Exclusive) as usize;
            self.roles[role].hold.record(releases.saturating_sub(since));
        }
        Ok(())
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
