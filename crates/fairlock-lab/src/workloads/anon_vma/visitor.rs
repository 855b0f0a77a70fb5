//! The locks of a family's roots, and a thread that takes them and records what happens there.
//!
//! Every section's wait is recorded. One section in [`LOOK_EVERY`] on average, which one being left to
//! chance, is looked at closely: forks and exits repeat themselves after a few dozen sections, and whoever
//! looked at each sixteenth one would see the same few of them all the time. A look times the hold and the
//! inserts, and counts the convoy: who stands at the root, waiting or inside, when this thread comes.
//!
//! For that each thread says where it stands, in a cache line of its own: a section costs two stores there,
//! and only a look reads the others' lines. On a simulated machine these are not the machine's.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;
use fairlock::platform::Platform;
use fairlock_report::random::XorShift;
use fairlock_report::timeline::{HOLD_READ, HOLD_WRITE, WAIT_READ, WAIT_WRITE};

use super::What;
use crate::error::{LabError, Violation};
use crate::locks::{Erased, LabLock, New, Protected};
use crate::measure::RoleRecorder;
use crate::workload::Request;
use crate::workloads::{Failure, NOTHING};
use crate::world::World;

/// One section in so many is looked at closely.
pub const LOOK_EVERY: u32 = 16;

/// The roots' locks, and where each thread stands. The storms are compiled once for each platform instead of once for
/// each lock: a call through a table is nothing against their sections.
pub struct Roots<P: Platform> {
    locks: Box<[Erased<P>]>,
    /// The root at which a thread waits or is inside, plus 1; 0: at none.
    ///
    /// All accesses are relaxed: it is an estimate of a moment, and publishes nothing.
    stands_at: Box<[CachePadded<AtomicU32>]>,
}

impl<P: Platform> Roots<P> {
    /// Free locks of a type, and threads that stand nowhere.
    pub fn of<L: LabLock<Platform = P>>(new: New<L>, roots: u32, threads: u32) -> Roots<P> {
        Roots {
            locks: (0..roots).map(|_| Erased::of(new(Protected::new()))).collect(),
            stands_at: (0..threads).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Whether the locks count as many exclusive sections as the threads do. When all have ended.
    ///
    /// # Errors
    /// [`LabError::Broken`] when they do not.
    pub fn check<W>(
        &self,
        request: &Request<'_, W>,
        workload: &'static str,
        writes: u64,
    ) -> Result<(), LabError> {
        let counts = self.locks.iter().map(|root| root.read(Protected::value));
        match counts.sum::<Result<u64, Violation>>() {
            Ok(counted) if counted == writes => Ok(()),
            Ok(counted) => Err(request.broken(workload, Violation::LostUpdate { writes, counted })),
            Err(violation) => Err(request.broken(workload, violation)),
        }
    }

    /// The lock events of all roots together.
    pub fn events(&self) -> BTreeMap<String, u64> {
        let mut sum = BTreeMap::new();
        for (event, count) in self.locks.iter().flat_map(|root| root.events()) {
            *sum.entry(event).or_default() += count;
        }
        sum
    }

    /// How many threads wait at a root or are inside.
    fn standing_at(&self, root: usize) -> u64 {
        let there = |stands: &&CachePadded<AtomicU32>| stands.load(Relaxed) == root as u32 + 1;
        self.stands_at.iter().filter(there).count() as u64
    }
}

/// The time that a thread spends inserting, from the sections that it looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inserting {
    /// Sections that insert and began while the run was under way.
    sections: u64,
    /// Those of them that were timed.
    timed: u64,
    /// What these took, ns.
    timed_ns: u64,
}

impl Inserting {
    /// All sections together, ns, if any was timed. `look_ns` is what a look at the clock takes: each time
    /// has one in it.
    pub fn ns(&self, look_ns: f64) -> Option<f64> {
        let timed_ns = self.timed_ns as f64 - self.timed as f64 * look_ns;
        let scale = self.sections as f64 / self.timed as f64;
        (self.timed > 0).then(|| timed_ns.max(0.0) * scale)
    }
}

/// One thread at the roots.
pub struct Visitor<'a, W, P: Platform> {
    world: &'a W,
    roots: &'a Roots<P>,
    index: usize,
    random: XorShift,
    /// Sections up to the next look, that one included.
    until_look: u32,
    /// Exclusive sections so far.
    pub writes: u64,
    /// See [`Inserting`].
    pub inserting: Inserting,
}

impl<'a, W: World, P: Platform> Visitor<'a, W, P> {
    /// The `index`-th thread of those that the roots were made for.
    pub fn new(world: &'a W, roots: &'a Roots<P>, index: u32) -> Self {
        let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(index.into());
        let mut random = XorShift::new(!seed);
        Visitor {
            world,
            roots,
            index: index as usize,
            until_look: 1 + random.below(LOOK_EVERY),
            random,
            writes: 0,
            inserting: Inserting::default(),
        }
    }

    /// Runs `inside` while holding the root's lock exclusively.
    ///
    /// # Errors
    /// When the lock is seen not to work.
    pub fn write<R>(
        &mut self,
        recorder: &mut RoleRecorder,
        root: usize,
        what: What,
        inside: impl FnOnce() -> R,
    ) -> Result<R, Failure> {
        let (world, roots) = (self.world, self.roots);
        self.writes += 1;
        let convoy = self.comes_to(root);
        let looks = convoy.is_some();
        let counts = what == What::Inserts && world.running();
        world.mark(WAIT_WRITE);
        let asked = world.now();
        let (got, result) = roots.locks[root].write(|data| {
            world.mark(HOLD_WRITE);
            let got = world.now();
            let result = data.write_around(|| {
                let began = if looks { world.now() } else { 0 };
                let result = inside();
                (result, if looks { world.now().saturating_sub(began) } else { 0 })
            });
            world.mark(NOTHING);
            (got, result)
        });
        self.leaves(recorder, convoy, asked, got);
        let (result, inside_ns) = result?;
        if counts {
            self.inserting.sections += 1;
            self.inserting.timed += u64::from(looks);
            self.inserting.timed_ns += inside_ns;
        }
        Ok(result)
    }

    /// Runs `inside` while holding the root's lock shared.
    ///
    /// # Errors
    /// When the lock is seen not to work.
    pub fn read<R>(
        &mut self,
        recorder: &mut RoleRecorder,
        root: usize,
        inside: impl FnOnce() -> R,
    ) -> Result<R, Failure> {
        let (world, roots) = (self.world, self.roots);
        let convoy = self.comes_to(root);
        world.mark(WAIT_READ);
        let asked = world.now();
        let mut inside = Some(inside);
        let mut section = |data: &Protected<P>| {
            world.mark(HOLD_READ);
            let got = world.now();
            let result = data.read_around(|| inside.take().map(|inside| inside()));
            world.mark(NOTHING);
            (got, result)
        };
        // Tries first, and blocks only then, as the kernel's walks do.
        let lock = &roots.locks[root];
        let (got, result) = lock.try_read(&mut section).unwrap_or_else(|| lock.read(&mut section));
        self.leaves(recorder, convoy, asked, got);
        Ok(result?.expect("a lock runs a section once"))
    }

    /// The length of the convoy there, if this is a section to look at.
    fn comes_to(&mut self, root: usize) -> Option<u64> {
        self.roots.stands_at[self.index].store(root as u32 + 1, Relaxed);
        self.until_look -= 1;
        if self.until_look > 0 {
            return None;
        }
        // From 1 to twice as many, less 1: so many on average.
        self.until_look = 1 + self.random.below(2 * LOOK_EVERY - 1);
        Some(self.roots.standing_at(root))
    }

    fn leaves(&mut self, recorder: &mut RoleRecorder, convoy: Option<u64>, asked: u64, got: u64) {
        if let Some(convoy) = convoy {
            recorder.hold.record(self.world.now().saturating_sub(got));
            recorder.convoy.record(convoy);
        }
        recorder.wait.record(got.saturating_sub(asked));
        self.roots.stands_at[self.index].store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fairlock_sim::Sim;
    use fairlock_sim::profile::Profile;

    use super::*;
    use crate::locks::{NewLock, find};
    use crate::measure::Distribution;
    use crate::world::{RealWorld, SimWorld, Worker};

    type Lock = std::sync::RwLock<Protected>;

    fn request(world: &RealWorld) -> Request<'_, RealWorld> {
        let lock = find("std").unwrap().name;
        Request::new(world, lock, 1)
    }

    #[test]
    fn a_convoy_is_all_who_stand_at_the_root_this_thread_included() {
        let world = RealWorld::new(false);
        let roots = Roots::of(<Lock as NewLock>::new, 2, 4);
        let mut visitor = Visitor::new(&world, &roots, 0);
        for (thread, root) in [(1, 2), (2, 1), (3, 2)] {
            roots.stands_at[thread].store(root, Relaxed);
        }
        let mut recorder = RoleRecorder::default();
        for root in [0, 1] {
            visitor.until_look = 1;
            visitor.write(&mut recorder, root, What::Removes, || ()).unwrap();
            let there = visitor.roots.standing_at(root);
            assert_eq!(there, [1, 2][root], "it stands there no more");
        }
        visitor.until_look = 1;
        visitor.read(&mut recorder, 1, || assert_eq!(roots.standing_at(1), 3)).unwrap();
        let convoys = recorder.convoy.latency();
        assert_eq!((convoys.count, convoys.max, convoys.mean), (3, 3, 8.0 / 3.0));
    }

    #[test]
    fn a_convoy_at_one_lock_is_as_long_as_there_are_threads() {
        type Mutex = fairlock::Mutex<Protected<Sim>, Sim>;
        let world = SimWorld::new(Arc::new(Profile::example()), 1, 0, false);
        let roots = Roots::of(<Mutex as NewLock>::new, 1, 4);
        let workers = (0..4).map(|index| {
            let mut visitor = Visitor::new(&world, &roots, index);
            let (world, mut recorder) = (&world, RoleRecorder::default());
            Box::new(move || {
                // Nobody ends before the others: whoever releases the lock may have it again at once.
                while world.running() {
                    let hold = || world.compute(50);
                    visitor.write(&mut recorder, 0, What::Removes, hold).unwrap();
                }
                recorder.convoy
            }) as Worker<'_, Distribution>
        });
        let run = world.run(300_000, &|| false, workers.collect()).unwrap();
        let mut convoys = Distribution::new();
        run.workers.iter().for_each(|worker| convoys.merge(&worker.output));
        let convoys = convoys.latency();
        assert_eq!((convoys.p50, convoys.max), (4, 4), "{convoys:?}");
        assert!(convoys.count > 20 && convoys.mean > 3.5, "{convoys:?}");
    }

    #[test]
    fn one_section_in_so_many_is_looked_at_and_none_is_always_passed_over() {
        let world = RealWorld::new(false);
        let roots = Roots::of(<Lock as NewLock>::new, 1, 1);
        let mut visitor = Visitor::new(&world, &roots, 0);
        let mut recorder = RoleRecorder::default();
        let mut looks_at = [0_u32; LOOK_EVERY as usize];
        let rounds = 4000;
        for section in 0..rounds * LOOK_EVERY {
            let before = recorder.hold.count();
            visitor.write(&mut recorder, 0, What::Inserts, || ()).unwrap();
            let looked = (recorder.hold.count() - before) as u32;
            looks_at[(section % LOOK_EVERY) as usize] += looked;
        }
        // Chance: each is looked at as often as the others, 250 times.
        assert!(looks_at.iter().all(|count| (150..350).contains(count)), "{looks_at:?}");
        assert!(looks_at.iter().sum::<u32>().abs_diff(rounds) < 300, "{looks_at:?}");
        assert_eq!(recorder.wait.count(), u64::from(rounds * LOOK_EVERY));
        roots.check(&request(&world), "here", visitor.writes).unwrap();
        assert!(roots.check(&request(&world), "here", visitor.writes + 1).is_err());
        // Outside a run nothing counts as inserting.
        assert_eq!(visitor.inserting.ns(0.0), None);
    }

    #[test]
    fn the_time_of_inserts_is_scaled_from_the_sections_that_were_timed() {
        let inserting = Inserting { sections: 160, timed: 10, timed_ns: 5000 };
        assert_eq!(inserting.ns(20.0), Some(4800.0 * 16.0));
        // A clock that takes longer than what it times.
        assert_eq!(inserting.ns(600.0), Some(0.0));
    }
}
