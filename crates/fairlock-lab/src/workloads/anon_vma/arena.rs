//! Where the objects of the family live: vmas, anon_vmas and chains, all made before the run.
//!
//! Objects are named by numbers; 0 names nothing. Each is alone on its cache line. Each thread takes them
//! from a [`Pool`] of its own and puts them back there, so that no allocator is measured.

use std::sync::atomic::Ordering::Relaxed;

use fairlock::platform::{AtomicCell, Platform};

/// Names a vma.
pub(super) type VmaNumber = u32;
/// Names an anon_vma.
pub(super) type AnonVmaNumber = u32;
/// Names a chain.
pub(super) type ChainNumber = u32;
/// The number of no object. The arena has one there nevertheless, which nobody uses unless a lock does not
/// work: who follows a torn tree may come there.
pub(super) const NONE: u32 = 0;

/// A piece of one process's memory.
#[repr(align(64))]
pub(super) struct Vma<P: Platform> {
    first: P::AtomicU64,
    last: P::AtomicU64,
    /// Its own, for pages that it writes.
    pub(super) anon_vma: P::AtomicU32,
    /// Its chains, the oldest ancestor's first, linked by [`Chain::next`].
    pub(super) chains: P::AtomicU32,
    pub(super) last_chain: P::AtomicU32,
}

impl<P: Platform> Vma<P> {
    pub(super) fn begin(&self, (first, last): (u64, u64)) {
        self.first.store(first, Relaxed);
        self.last.store(last, Relaxed);
        self.anon_vma.store(NONE, Relaxed);
        self.chains.store(NONE, Relaxed);
        self.last_chain.store(NONE, Relaxed);
    }

    pub(super) fn interval(&self) -> (u64, u64) {
        (self.first.load(Relaxed), self.last.load(Relaxed))
    }
}

/// What pages of a vma, and of the copies that its process's children have of it, lead to.
#[repr(align(64))]
pub(super) struct AnonVma<P: Platform> {
    /// The place of its root's lock among the roots: also the number of the vma in each process.
    pub(super) root: P::AtomicU32,
    /// That of the vma that its own was copied from.
    pub(super) parent: P::AtomicU32,
    /// Reasons not to free it: its tree, and on a root each of its descendants.
    pub(super) references: P::AtomicU32,
    /// Anon_vmas that have it as their parent and chains on their trees; 0 where anon_vmas are not reused.
    pub(super) children: P::AtomicU32,
    /// Vmas whose own it is; 1 where anon_vmas are not reused.
    pub(super) active_vmas: P::AtomicU32,
    /// The tree of chains.
    pub(super) tree: P::AtomicU32,
}

/// A vma's membership in an anon_vma.
#[repr(align(64))]
pub(super) struct Chain<P: Platform> {
    pub(super) vma: P::AtomicU32,
    pub(super) anon_vma: P::AtomicU32,
    /// The vma's next one.
    pub(super) next: P::AtomicU32,
    pub(super) left: P::AtomicU32,
    pub(super) right: P::AtomicU32,
    /// See `Tree::placed`.
    pub(super) parent_and_color: P::AtomicU32,
    /// The greatest `last` in the subtree.
    pub(super) reach: P::AtomicU64,
}

/// All objects.
pub(super) struct Arena<P: Platform> {
    vmas: Box<[Vma<P>]>,
    anon_vmas: Box<[AnonVma<P>]>,
    pub(super) chains: Box<[Chain<P>]>,
}

/// How many objects of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) vmas: u32,
    pub(super) anon_vmas: u32,
    pub(super) chains: u32,
}

/// The objects that one thread may use.
#[derive(Debug, Default)]
pub struct Pool {
    vmas: Vec<VmaNumber>,
    anon_vmas: Vec<AnonVmaNumber>,
    chains: Vec<ChainNumber>,
}

impl<P: Platform> Arena<P> {
    /// Objects for so many pools, and the pools.
    pub(super) fn new(pools: u32, each: Counts) -> (Arena<P>, Vec<Pool>) {
        let count = |of_each: u32| 0..=pools * of_each;
        let zero = || P::AtomicU32::ZERO;
        let arena = Arena {
            vmas: count(each.vmas)
                .map(|_| Vma {
                    first: AtomicCell::ZERO,
                    last: AtomicCell::ZERO,
                    anon_vma: zero(),
                    chains: zero(),
                    last_chain: zero(),
                })
                .collect(),
            anon_vmas: count(each.anon_vmas)
                .map(|_| AnonVma {
                    root: zero(),
                    parent: zero(),
                    references: zero(),
                    children: zero(),
                    active_vmas: zero(),
                    tree: zero(),
                })
                .collect(),
            chains: count(each.chains)
                .map(|_| Chain {
                    vma: zero(),
                    anon_vma: zero(),
                    next: zero(),
                    left: zero(),
                    right: zero(),
                    parent_and_color: zero(),
                    reach: AtomicCell::ZERO,
                })
                .collect(),
        };
        // From 1, and the lowest is taken first.
        let share = |pool: u32, of_each: u32| (1..=of_each).rev().map(move |i| pool * of_each + i);
        let pools = (0..pools).map(|pool| Pool {
            vmas: share(pool, each.vmas).collect(),
            anon_vmas: share(pool, each.anon_vmas).collect(),
            chains: share(pool, each.chains).collect(),
        });
        (arena, pools.collect())
    }

    pub(super) fn vma(&self, number: VmaNumber) -> &Vma<P> {
        &self.vmas[number as usize]
    }

    pub(super) fn anon_vma(&self, number: AnonVmaNumber) -> &AnonVma<P> {
        &self.anon_vmas[number as usize]
    }

    pub(super) fn chain(&self, number: ChainNumber) -> &Chain<P> {
        &self.chains[number as usize]
    }
}

/// A pool has what all processes of its thread can need at once.
const ENOUGH: &str = "a thread has no more processes than its pool was made for";

impl Pool {
    pub(super) fn vma(&mut self) -> VmaNumber {
        self.vmas.pop().expect(ENOUGH)
    }

    pub(super) fn anon_vma(&mut self) -> AnonVmaNumber {
        self.anon_vmas.pop().expect(ENOUGH)
    }

    pub(super) fn chain(&mut self) -> ChainNumber {
        self.chains.pop().expect(ENOUGH)
    }

    pub(super) fn free_vma(&mut self, number: VmaNumber) {
        self.vmas.push(number);
    }

    pub(super) fn free_anon_vma(&mut self, number: AnonVmaNumber) {
        self.anon_vmas.push(number);
    }

    pub(super) fn free_chain(&mut self, number: ChainNumber) {
        self.chains.push(number);
    }

    /// False after something was freed twice.
    pub(super) fn has_nothing_twice(&self) -> bool {
        [&self.vmas, &self.anon_vmas, &self.chains].into_iter().all(|numbers| {
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            sorted.is_sorted_by(|one, next| one < next)
        })
    }

    /// How many objects of each kind it has now.
    pub(super) fn counts(&self) -> Counts {
        Counts {
            vmas: self.vmas.len() as u32,
            anon_vmas: self.anon_vmas.len() as u32,
            chains: self.chains.len() as u32,
        }
    }
}
