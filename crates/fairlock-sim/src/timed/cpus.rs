//! CPUs and their run queues.
//!
//! Two classes, as in Linux: real-time threads run first in, first out by priority; the fair class
//! shares a CPU by slices, and the thread with the least virtual runtime goes next. This file
//! holds the state and the choices; the engine acts on them.

use super::{Ps, ps};
use crate::profile::Profile;

/// A thread as its scheduler sees it.
#[derive(Debug, Clone)]
pub(super) struct Entity {
    /// 0: the fair class.
    pub(super) priority: u8,
    /// May not leave its CPU.
    pub(super) pinned: bool,
    /// Where it runs or ran last.
    pub(super) cpu: u32,
    /// CPU time in the fair class, kept near that of its CPU's others.
    pub(super) vruntime: Ps,
    /// Since when it runs.
    pub(super) runs_since: Ps,
    /// How long it ran in all, as far as that is booked.
    pub(super) ran: Ps,
    /// When it became ready, if it is.
    pub(super) ready_order: u64,
}

#[derive(Debug)]
pub(super) struct Cpu {
    /// Runs, or has been given the CPU and starts soon.
    pub(super) current: Option<u32>,
    /// Ready to run.
    pub(super) ready: Vec<u32>,
    pub(super) idle_since: Ps,
    /// The running thread is to leave at the end of its operation.
    pub(super) resched: bool,
    /// The number of the planned look at the slice; others are void.
    pub(super) slice_look: u32,
    pub(super) slice_planned: bool,
    /// Virtual runtime that newcomers start from.
    pub(super) least_vruntime: Ps,
    /// Real-time use in the present period, for throttling.
    pub(super) real_time_used: Ps,
    pub(super) real_time_period: u64,
}

/// All CPUs.
#[derive(Debug)]
pub(super) struct Cpus {
    pub(super) cpus: Vec<Cpu>,
    /// CPUs to try for a thread that wakes, nearest first, by the cluster's first CPU: whole idle
    /// cores before idle siblings.
    clusters: Vec<std::ops::Range<u32>>,
    cores: Vec<std::ops::Range<u32>>,
    pub(super) slice: Ps,
    pub(super) tick: Ps,
    pub(super) granularity: Ps,
    orders: u64,
}

/// Linux throttles real-time threads to this share of each period.
const REAL_TIME_PERIOD: Ps = 1_000_000_000_000;
const REAL_TIME_SHARE: Ps = 950_000_000_000;

impl Cpus {
    pub(super) fn new(profile: &Profile) -> Cpus {
        let topology = &profile.topology;
        let cpu = |_| Cpu {
            current: None,
            ready: Vec::new(),
            idle_since: 0,
            resched: false,
            slice_look: 0,
            slice_planned: false,
            least_vruntime: 0,
            real_time_used: 0,
            real_time_period: 0,
        };
        Cpus {
            cpus: (0..topology.cpus()).map(cpu).collect(),
            clusters: (0..topology.cpus()).map(|cpu| topology.cluster(cpu)).collect(),
            cores: (0..topology.cpus()).map(|cpu| topology.core(cpu)).collect(),
            slice: ps(profile.schedule.slice_ns),
            tick: (1e12 / profile.schedule.hz) as Ps,
            granularity: ps(profile.schedule.wakeup_granularity_ns),
            orders: 0,
        }
    }

    pub(super) fn is_idle(&self, cpu: u32) -> bool {
        let cpu = &self.cpus[cpu as usize];
        cpu.current.is_none() && cpu.ready.is_empty()
    }

    pub(super) fn siblings(&self, cpu: u32) -> impl Iterator<Item = u32> {
        self.cores[cpu as usize].clone().filter(move |&sibling| sibling != cpu)
    }

    /// Where a thread that wakes should run: where it ran before if that is idle, else an idle CPU
    /// that shares a cache with it or with its waker, else where it ran before.
    pub(super) fn choose(&self, entity: &Entity, waker_cpu: Option<u32>) -> u32 {
        if entity.pinned || self.is_idle(entity.cpu) {
            return entity.cpu;
        }
        for near in [Some(entity.cpu), waker_cpu].into_iter().flatten() {
            let cluster = self.clusters[near as usize].clone();
            let whole_core =
                |&cpu: &u32| self.cores[cpu as usize].clone().all(|sibling| self.is_idle(sibling));
            let found = cluster.clone().find(whole_core);
            if let Some(cpu) = found.or_else(|| cluster.clone().find(|&cpu| self.is_idle(cpu))) {
                return cpu;
            }
        }
        entity.cpu
    }

    /// Puts a thread on its CPU's run queue.
    pub(super) fn enqueue(&mut self, thread: u32, entity: &mut Entity) {
        self.orders += 1;
        entity.ready_order = self.orders;
        self.cpus[entity.cpu as usize].ready.push(thread);
    }

    /// A thread that slept starts near the others: half a slice ahead at most.
    pub(super) fn place_woken(&self, entity: &mut Entity) {
        let least = self.cpus[entity.cpu as usize].least_vruntime;
        entity.vruntime = entity.vruntime.max(least.saturating_sub(self.slice / 2));
    }

    /// Takes the next thread to run off a CPU's queue.
    pub(super) fn take_next(&mut self, cpu: u32, entities: &[Entity], now: Ps) -> Option<u32> {
        let throttled = self.is_throttled(cpu, now);
        let cpu = &mut self.cpus[cpu as usize];
        let key = |&thread: &u32| {
            let entity = &entities[thread as usize];
            let real_time = if throttled { 0 } else { entity.priority };
            // Real-time threads go by priority, then in turn; the others by virtual runtime.
            let vruntime = if real_time > 0 { 0 } else { entity.vruntime };
            (std::cmp::Reverse(real_time), vruntime, entity.ready_order)
        };
        let (at, _) = cpu.ready.iter().enumerate().min_by_key(|(_, thread)| key(thread))?;
        let thread = cpu.ready.swap_remove(at);
        let entity = &entities[thread as usize];
        if entity.priority == 0 {
            cpu.least_vruntime = cpu.least_vruntime.max(entity.vruntime);
        }
        Some(thread)
    }

    /// A thread for a CPU that has nothing to do, from the longest queue: nearest CPUs first.
    pub(super) fn steal(&mut self, cpu: u32, entities: &[Entity]) -> Option<u32> {
        let movable =
            |from: &Cpu| from.ready.iter().position(|&thread| !entities[thread as usize].pinned);
        let longest = |range: std::ops::Range<u32>, cpus: &[Cpu]| {
            range
                .filter(|&from| movable(&cpus[from as usize]).is_some())
                .max_by_key(|&from| (cpus[from as usize].ready.len(), std::cmp::Reverse(from)))
        };
        let near = self.clusters[cpu as usize].clone();
        let from =
            longest(near, &self.cpus).or_else(|| longest(0..self.cpus.len() as u32, &self.cpus))?;
        let from = &mut self.cpus[from as usize];
        let at = movable(from)?;
        Some(from.ready.swap_remove(at))
    }

    /// Whether a thread that became ready takes the CPU from the running one.
    pub(super) fn preempts(&self, woken: &Entity, running: &Entity, now: Ps) -> bool {
        if woken.priority != running.priority {
            return woken.priority > running.priority;
        }
        let ran = running.vruntime + now.saturating_sub(running.runs_since);
        woken.priority == 0 && ran > woken.vruntime + self.granularity
    }

    /// Books the time that a thread ran when it leaves its CPU.
    pub(super) fn book(&mut self, entity: &mut Entity, now: Ps) {
        let ran = now.saturating_sub(entity.runs_since);
        entity.runs_since = now;
        entity.ran += ran;
        let cpu = &mut self.cpus[entity.cpu as usize];
        if entity.priority == 0 {
            entity.vruntime += ran;
        } else {
            let period = now / REAL_TIME_PERIOD;
            if cpu.real_time_period != period {
                (cpu.real_time_period, cpu.real_time_used) = (period, 0);
            }
            cpu.real_time_used += ran;
        }
    }

    fn is_throttled(&self, cpu: u32, now: Ps) -> bool {
        let cpu = &self.cpus[cpu as usize];
        cpu.real_time_period == now / REAL_TIME_PERIOD && cpu.real_time_used >= REAL_TIME_SHARE
    }

    /// When to look next whether the running thread has had its time, if others wait.
    pub(super) fn slice_ends(&self, entity: &Entity, now: Ps) -> Ps {
        let whole = if entity.priority == 0 { self.slice } else { REAL_TIME_SHARE };
        let end = (entity.runs_since + whole).max(now + 1);
        // Only the tick looks.
        end.div_ceil(self.tick) * self.tick
    }

    /// Whether the running thread has had its time.
    pub(super) fn is_over(&self, entity: &Entity, now: Ps) -> bool {
        let ran = now.saturating_sub(entity.runs_since);
        match entity.priority {
            0 => ran >= self.slice,
            _ => ran >= REAL_TIME_SHARE || self.is_throttled(entity.cpu, now),
        }
    }
}
