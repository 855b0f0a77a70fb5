//! Cache lines: who has a copy, who is served when, and what that costs.
//!
//! A line is owned by one CPU, shared by several, or in memory only. A write takes it from all
//! others, and the line serves one such transfer after the other, so a line that everybody writes
//! is a queue. A read takes a shared copy: the first one after a write as a transfer, the next
//! ones a little apart while they are under way together.
//!
//! Requests take effect in the order in which they are served. A CPU that owns the line keeps the
//! use of it until the next one's request has reached it: a compare-exchange that fails can be tried
//! again, and the next field of a structure be written, before the line is gone. A request that nobody
//! is before travels for half of its transfer. One that waited while the line was on its way to the owner
//! is right behind it, and how long the owner then keeps the line differs between machines (`keep`). Between
//! sockets, who waits also gets the line later than without a wait (`contended`): whoever keeps order
//! among requests there has to resolve their conflict first.
//!
//! Lines are numbered by their first use, so that addresses decide nothing. On a thread's stack a line has its
//! number for as long as the words on it live, and the next one that the thread uses gets the lowest number
//! that is free: as if a lock's waiters were always at the same depth, however large the frames are that the
//! compiler makes.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use super::random::Random;
use super::{Counts, Ps, ps};
use crate::profile::{Arbitration, Profile};

/// A line's number.
pub(super) type LineId = u32;

/// What a CPU wants of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Load,
    Store,
    /// A locked instruction, successful or not.
    Update,
}

/// When a request is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// It takes effect at this moment.
    At(Ps),
    /// It waits for [`Lines::serve_next`]; the first to do so has that called at this moment.
    Queued(Option<Ps>),
}

/// Bytes of a line, as a power of two.
const LINE_SHIFT: usize = 6;
const NOBODY: u32 = u32::MAX;

#[derive(Debug)]
struct Line {
    owner: u32,
    sharers: Box<[u64]>,
    /// CPUs that owned it and are about to lose it, and when they do.
    leaving: Vec<(u32, Ps)>,
    busy_until: Ps,
    /// How often a write took it: a copy read before the last one is stale.
    version: u32,
    /// Threads that wait for the next write.
    watchers: Vec<u32>,
    /// Requests that wait to be chosen; unused if the first to come is the first served.
    queued: Vec<Request>,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    thread: u32,
    cpu: u32,
    access: Access,
}

/// A line's number that somebody knows, which is out of date once a number was withdrawn.
#[derive(Debug)]
pub(super) struct Known {
    key: usize,
    id: LineId,
    withdrawn: u64,
}

impl Known {
    /// No address is in this line.
    pub(super) const NOTHING: Known = Known { key: usize::MAX, id: 0, withdrawn: 0 };
}

/// What lines on a thread's stack are called.
#[derive(Debug)]
struct StackLines {
    addresses: Range<usize>,
    /// Those whose words are gone.
    free: BTreeSet<LineId>,
}

/// All lines.
#[derive(Debug)]
pub(super) struct Lines {
    ids: HashMap<usize, LineId, BuildHasherDefault<MixAddress>>,
    /// How often a line was no longer to have its number.
    withdrawn: u64,
    lines: Vec<Line>,
    /// The threads' stacks, in the order of their addresses.
    stacks: Vec<StackLines>,
    cpus: usize,
    /// Transfer times between all pairs of CPUs.
    transfer: Vec<Ps>,
    load: Ps,
    store: Ps,
    update: Ps,
    memory: Ps,
    invalidate: Ps,
    share: Ps,
    arbitration: Arbitration,
    /// In 1/1024 of a transfer, as are the next two.
    spread: u64,
    keep: u64,
    contended: u64,
    /// Transfers that take longer than this leave their socket.
    within_socket: Ps,
    step: Ps,
    random: Random,
}

/// Addresses are no adversaries: one multiplication spreads them.
#[derive(Default)]
struct MixAddress(u64);

impl Hasher for MixAddress {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("addresses are hashed as usize")
    }
    fn write_usize(&mut self, address: usize) {
        let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A part of a transfer, in 1/1024.
fn parts(part: f64) -> u64 {
    (part * 1024.0) as u64
}

impl Lines {
    pub(super) fn new(profile: &Profile, seed: u64) -> Lines {
        let cpus = profile.topology.cpus();
        let transfer = |from, to| profile.transfer_ns(from, to);
        Lines {
            ids: HashMap::default(),
            withdrawn: 0,
            lines: Vec::new(),
            stacks: Vec::new(),
            cpus: cpus as usize,
            transfer: (0..cpus)
                .flat_map(|from| (0..cpus).map(move |to| ps(transfer(from, to))))
                .collect(),
            load: ps(profile.cost.load_ns),
            store: ps(profile.cost.store_ns),
            update: ps(profile.cost.rmw_ns),
            memory: ps(profile.line.memory_ns),
            invalidate: ps(profile.line.invalidate_ns),
            share: ps(profile.line.share_ns),
            arbitration: profile.line.arbitration,
            spread: parts(profile.line.spread),
            keep: parts(profile.line.keep),
            contended: parts(profile.line.contended),
            within_socket: ps(profile.line.socket_ns),
            step: ps(profile.cost.step_ns),
            random: Random::new(!seed),
        }
    }

    /// The line at an address, for somebody who knows one, and knows this one from then on.
    #[inline]
    pub(super) fn at_known(&mut self, address: usize, known: &mut Known) -> LineId {
        let key = address >> LINE_SHIFT;
        if known.key != key || known.withdrawn != self.withdrawn {
            *known = Known { key, id: self.at(address), withdrawn: self.withdrawn };
        }
        known.id
    }

    /// The line at an address.
    fn at(&mut self, address: usize) -> LineId {
        let key = address >> LINE_SHIFT;
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        let free = self.stack(address).and_then(|stack| stack.free.pop_first());
        let id = free.unwrap_or_else(|| self.add());
        self.ids.insert(key, id);
        id
    }

    /// Where the threads' stacks are.
    pub(super) fn set_stacks(&mut self, stacks: impl Iterator<Item = Range<usize>>) {
        let lines = |addresses| StackLines { addresses, free: BTreeSet::new() };
        self.stacks = stacks.map(lines).collect();
        self.stacks.sort_unstable_by_key(|stack| stack.addresses.start);
    }

    /// The stack that this address is on.
    fn stack(&mut self, address: usize) -> Option<&mut StackLines> {
        let after = self.stacks.partition_point(|stack| stack.addresses.start <= address);
        let stack = self.stacks[..after].last_mut()?;
        stack.addresses.contains(&address).then_some(stack)
    }

    /// A word is gone: if it was on a stack, its line's number is free for another.
    pub(super) fn gone(&mut self, address: usize) {
        if self.stack(address).is_some()
            && let Some(id) = self.ids.remove(&(address >> LINE_SHIFT))
            && let Some(stack) = self.stack(address)
        {
            stack.free.insert(id);
            self.withdrawn += 1;
        }
    }

    fn add(&mut self) -> LineId {
        let id = self.lines.len() as LineId;
        self.lines.push(Line {
            owner: NOBODY,
            sharers: vec![0; self.cpus.div_ceil(64)].into(),
            leaving: Vec::new(),
            busy_until: 0,
            version: 0,
            watchers: Vec::new(),
            queued: Vec::new(),
        });
        id
    }

    /// A thread asks for a line.
    pub(super) fn request(
        &mut self,
        id: LineId,
        (thread, cpu): (u32, u32),
        access: Access,
        now: Ps,
        counts: &mut Counts,
    ) -> Service {
        if let Some(cost) = self.hit(id, cpu, access, now) {
            return Service::At(now + cost);
        }
        let line = &mut self.lines[id as usize];
        if self.arbitration != Arbitration::Fifo && line.busy_until > now {
            line.queued.push(Request { thread, cpu, access });
            return Service::Queued((line.queued.len() == 1).then_some(line.busy_until));
        }
        Service::At(self.serve(id, cpu, access, now, counts))
    }

    /// When the line can serve the next of those that are queued.
    pub(super) fn free_at(&self, id: LineId) -> Ps {
        self.lines[id as usize].busy_until
    }

    /// Serves one of those that wait: which thread, when, and whether more wait.
    pub(super) fn serve_next(
        &mut self,
        id: LineId,
        now: Ps,
        counts: &mut Counts,
    ) -> Option<(u32, Ps, bool)> {
        let line = &self.lines[id as usize];
        let chosen = match self.arbitration {
            _ if line.queued.is_empty() => return None,
            Arbitration::Fifo => 0,
            Arbitration::Random => self.random.below(line.queued.len() as u64) as usize,
            Arbitration::Nearest => {
                let near = if line.owner == NOBODY { 0 } else { line.owner };
                let distance = |request: &Request| self.between(near, request.cpu);
                let nearest = line.queued.iter().enumerate().min_by_key(|(_, it)| distance(it));
                nearest.map_or(0, |(at, _)| at)
            }
        };
        let request = self.lines[id as usize].queued.remove(chosen);
        let done = match self.hit(id, request.cpu, request.access, now) {
            Some(cost) => now + cost,
            None => self.serve(id, request.cpu, request.access, now, counts),
        };
        Some((request.thread, done, !self.lines[id as usize].queued.is_empty()))
    }

    /// What it costs if this CPU's own cache can do it.
    #[inline]
    fn hit(&self, id: LineId, cpu: u32, access: Access, now: Ps) -> Option<Ps> {
        let line = &self.lines[id as usize];
        let (cost, shared_will_do) = match access {
            Access::Load => (self.load, true),
            Access::Store => (self.store, false),
            Access::Update => (self.update, false),
        };
        let has_it = line.owner == cpu
            || shared_will_do && line.is_sharer(cpu)
            || line.leaving.iter().any(|&(it, until)| it == cpu && now + self.step + cost <= until);
        has_it.then_some(cost)
    }

    #[inline]
    pub(super) fn between(&self, from: u32, to: u32) -> Ps {
        self.transfer[from as usize * self.cpus + to as usize]
    }

    /// Serves a request that misses, as soon as the line is free; answers when it takes effect.
    fn serve(&mut self, id: LineId, cpu: u32, access: Access, now: Ps, counts: &mut Counts) -> Ps {
        let line = &self.lines[id as usize];
        let waits = line.busy_until > now;
        let start = now.max(line.busy_until);
        let owned = line.owner != NOBODY;
        let (mut nearest, mut farthest, mut others) = (Ps::MAX, 0, 0);
        if owned {
            nearest = self.between(line.owner, cpu);
            (farthest, others) = (nearest, 1);
        } else {
            for sharer in line.sharers().filter(|&sharer| sharer != cpu) {
                let distance = self.between(sharer, cpu);
                nearest = nearest.min(distance);
                farthest = farthest.max(distance);
                others += 1;
            }
        }
        if waits && farthest > self.within_socket {
            let longer = |time: Ps| time.saturating_mul(self.contended) >> 10;
            (nearest, farthest) = (longer(nearest), longer(farthest));
        }
        if self.spread > 0 {
            let factor = 1024 - self.spread + self.random.below(2 * self.spread + 1);
            (nearest, farthest) = (nearest.saturating_mul(factor) >> 10, (farthest * factor) >> 10);
        }
        let from_memory = others == 0 && !line.is_sharer(cpu);
        let keep = if waits { self.keep } else { parts(0.5) };
        let kept = |latency: Ps| (latency * keep) >> 10;
        if access == Access::Load {
            let latency = if from_memory { self.memory } else { nearest };
            // The first copy after a write is a transfer like others.
            let occupied = if owned || from_memory { latency } else { self.share.min(latency) };
            counts.transfers += 1;
            let line = &mut self.lines[id as usize];
            if owned {
                line.loses_owner(now, start + kept(latency));
                line.add_sharer(line.owner);
                line.owner = NOBODY;
            }
            line.add_sharer(cpu);
            line.busy_until = start + occupied;
            return start + latency;
        }
        let own = if access == Access::Store { self.store } else { self.update };
        let latency = if from_memory {
            self.memory
        } else if others == 0 {
            own // The only copy is its own.
        } else {
            farthest + self.invalidate * (others - 1)
        };
        counts.transfers += u64::from(!line.is_sharer(cpu));
        counts.shared_writes += u64::from(others > 0);
        counts.invalidations += others;
        let line = &mut self.lines[id as usize];
        if owned {
            line.loses_owner(now, start + kept(latency));
        }
        line.sharers.fill(0);
        line.owner = cpu;
        line.busy_until = start + latency;
        start + latency
    }

    // ---- waiting for a write ----

    pub(super) fn version(&self, id: LineId) -> u32 {
        self.lines[id as usize].version
    }

    /// A write took effect: hands out those that watched.
    #[inline]
    pub(super) fn written(&mut self, id: LineId, watchers: &mut Vec<u32>) {
        let line = &mut self.lines[id as usize];
        line.version = line.version.wrapping_add(1);
        watchers.append(&mut line.watchers);
    }

    pub(super) fn watch(&mut self, id: LineId, thread: u32) {
        self.lines[id as usize].watchers.push(thread);
    }

    pub(super) fn unwatch(&mut self, id: LineId, thread: u32) {
        self.lines[id as usize].watchers.retain(|&watcher| watcher != thread);
    }
}

impl Line {
    #[inline]
    fn is_sharer(&self, cpu: u32) -> bool {
        self.sharers[cpu as usize / 64] & (1 << (cpu % 64)) != 0
    }

    fn loses_owner(&mut self, now: Ps, at: Ps) {
        self.leaving.retain(|&(_, until)| until > now);
        self.leaving.push((self.owner, at));
    }

    fn add_sharer(&mut self, cpu: u32) {
        self.sharers[cpu as usize / 64] |= 1 << (cpu % 64);
    }

    fn sharers(&self) -> impl Iterator<Item = u32> + '_ {
        self.sharers.iter().zip(0u32..).flat_map(|(&word, at)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                (left != 0).then(|| {
                    left &= left - 1;
                    at * 64 + bit
                })
            })
        })
    }
}
