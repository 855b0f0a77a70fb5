//! What the kernel keeps to find every process that maps a page: vmas, anon_vmas and chains; and what fork,
//! exit and the walk from a page do to them (`mm/rmap.c`).
//!
//! ```text
//!  depth     process        its vma           its chains: one for each anon_vma that its pages can be in
//!    0       daemon            V0             V0─A0
//!    1         handler         V1             V1─A0  V1─A1
//!    2           delivery      V2             V2─A0  V2─A1  V2─A2
//!    3             transport   V3             V3─A0  V3─A1  V3─A2  V3─A3
//!
//!  A0, the root: its lock protects the trees of A0 to A3, and A0's tree has a chain of every process
//! ```
//!
//! The daemon has some vmas, side by side, each with a root of its own. Fork and exit take the roots' locks
//! one after another in the order of addresses, so whoever waits at one lock meets the same threads again at
//! the next: a convoy.
//!
//! * **Fork**, for each vma, which has `L` chains: one section with `L` inserts puts the copy on the trees
//!   that the vma is on; one with one insert puts it on the tree of an anon_vma of its own. Of the first
//!   section's chains one is allocated before it and the others inside, as the kernel does.
//! * **Exit**, for each vma, which has `L` chains: one section with `L` removes. What nobody names any more
//!   is freed after it.
//! * **The walk** from a page visits every vma that may map it, under the lock held shared.
//!
//! Kernels since 3.19 (7a3ef208e662; the counts are those of 2555283eb40d) let a copy have an ancestor's
//! anon_vma for its own if no vma has that any more and one anon_vma at most was begun below it
//! ([`Family::new`]'s `reuses`). Chains no longer grow with every fork of a process whose parent has exited,
//! and such a fork has one section for each vma.
//!
//! What is left out: the lists' order at exit (the kernel removes from the newest anon_vma to the oldest,
//! here it is the other way round, all of it in one section), page tables, and vmas that are split, merged or
//! unmapped.
//!
//! Invariants
//! 1. Trees, `children` and `active_vmas` are read and written only inside a section of their root's lock;
//!    those of an anon_vma that no tree or vma names yet, before it.
//! 2. A vma's list of chains and a process are its thread's alone. Others find a vma only in a tree.
//! 3. An anon_vma has a reference as long as its tree is not empty, a root one more for each of its
//!    descendants; it is freed with the last one. The daemon's are not.
//! 4. The ancestors of a process, up to the daemon, were forked by its own thread; so each object goes back
//!    to the pool that it came from.
//! 5. After all processes but the daemon have exited, each tree of the daemon has one chain and each pool
//!    what it began with ([`Family::check_quiet`]).

mod arena;
#[cfg(test)]
mod model;
mod tree;
mod visitor;

use std::sync::atomic::Ordering::Relaxed;

use fairlock::platform::{AtomicCell, AtomicInt, Platform};

pub use arena::Pool;
use arena::{AnonVmaNumber, Arena, ChainNumber, Counts, NONE, VmaNumber};
pub use tree::Tangled;
use tree::Tree;
pub use visitor::{LOOK_EVERY, Roots, Visitor};

use super::Failure;
use crate::error::{LabError, Violation};

impl From<Tangled> for Failure {
    fn from(_: Tangled) -> Failure {
        Violation::Tangled.into()
    }
}

/// Pages of each vma.
pub const PAGES: u64 = 16;

/// What a thread's pool must be enough for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processes {
    /// So many at a time, not counting the daemon.
    pub at_once: u32,
    /// Forks between the daemon and the last of them.
    pub deepest: u32,
}

impl Processes {
    /// A handler, a delivery and a transport.
    pub const OF_A_CONNECTION: Processes = Processes { at_once: 3, deepest: 3 };

    /// In a family whose processes have so many vmas.
    const fn need(self, vmas: u32) -> Counts {
        Counts {
            vmas: vmas * self.at_once,
            // Those of ancestors that exited are there as long as a descendant runs.
            anon_vmas: vmas * self.at_once * self.deepest,
            chains: vmas * self.at_once * (self.deepest + 1),
        }
    }
}

/// Vmas of a process at most: with so many locks nobody meets anybody.
const MOST_VMAS: u32 = 256;
/// Vmas of one process of each thread, all together: with what they need, some 100 MB.
const MOST_VMAS_OF_ALL: u64 = 1 << 16;

/// Whether each of so many threads can have processes with so many vmas.
///
/// # Errors
/// [`LabError::Parameter`] names `vmas`.
pub fn check_vmas(vmas: u32, threads: u32) -> Result<(), LabError> {
    let of_all = u64::from(vmas) * u64::from(threads);
    if (1..=MOST_VMAS).contains(&vmas) && of_all <= MOST_VMAS_OF_ALL {
        return Ok(());
    }
    let valid = format!("1 to {MOST_VMAS}, and all threads together at most {MOST_VMAS_OF_ALL}");
    Err(LabError::Parameter { name: "vmas", value: vmas.to_string(), valid })
}

/// What a section does to trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It only inserts, as fork does.
    Inserts,
    /// It only removes, as exit does.
    Removes,
}

/// What a section does; called once.
pub type Inside<'a> = dyn FnMut() -> Result<(), Tangled> + 'a;

/// Where the sections run that fork and exit need, and what happens between them.
pub trait Sections {
    /// Runs `inside`, once, while holding the lock of the `root`-th root exclusively.
    ///
    /// # Errors
    /// When the lock is seen not to work. `inside` may have run; the family is not to be used any more.
    fn write(&mut self, root: usize, what: What, inside: &mut Inside<'_>) -> Result<(), Failure>;

    /// Fork has copied one vma and holds no lock; a kernel copies that vma's page tables now. Called once
    /// for each vma of the parent, also after the last one; exit does not call it.
    fn between_vmas(&mut self);
}

/// The sections of a thread beside which no other one runs: without locks.
pub struct Alone;

impl Sections for Alone {
    fn write(&mut self, _root: usize, _what: What, inside: &mut Inside<'_>) -> Result<(), Failure> {
        Ok(inside()?)
    }

    fn between_vmas(&mut self) {}
}

/// The vmas of one process, in the order of their addresses; none: it does not run.
#[derive(Debug, Default)]
pub struct Process {
    vmas: Vec<VmaNumber>,
}

/// One vma of a copy of a process that never gets more of them.
#[derive(Debug)]
#[must_use = "its chains stay on the trees until it is unmapped"]
pub struct LoneVma(VmaNumber);

/// Everything under the locks.
pub struct Family<P: Platform> {
    arena: Arena<P>,
    daemon: Process,
    reuses: bool,
    /// What each pool began with.
    each: Counts,
}

impl<P: Platform> Family<P> {
    /// A daemon with so many vmas, and a pool for each of the threads that will fork from it.
    pub fn new(
        vmas: u32,
        threads: u32,
        processes: Processes,
        reuses: bool,
    ) -> (Family<P>, Vec<Pool>) {
        let each = processes.need(vmas);
        let (arena, mut pools) = Arena::new(threads + 1, each);
        let mut own = pools.pop().expect("one more than threads");
        let mut family = Family { arena, daemon: Process::default(), reuses, each };
        let daemon = (0..vmas).map(|place| family.begin_root(&mut own, place)).collect();
        family.daemon = Process { vmas: daemon };
        (family, pools)
    }

    /// A vma with an anon_vma that has no parent.
    fn begin_root(&self, pool: &mut Pool, place: u32) -> VmaNumber {
        let (vma, anon_vma, chain) = (pool.vma(), pool.anon_vma(), pool.chain());
        let first = u64::from(place) * PAGES;
        self.arena.vma(vma).begin((first, first + PAGES - 1));
        self.arena.vma(vma).anon_vma.store(anon_vma, Relaxed);
        self.begin_anon_vma(anon_vma, place, NONE);
        self.link(vma, chain, anon_vma).expect("nobody else is here yet");
        vma
    }

    fn begin_anon_vma(&self, number: AnonVmaNumber, root: u32, parent: AnonVmaNumber) {
        let anon_vma = self.arena.anon_vma(number);
        anon_vma.root.store(root, Relaxed);
        anon_vma.parent.store(parent, Relaxed);
        anon_vma.references.store(1, Relaxed);
        anon_vma.children.store(0, Relaxed);
        anon_vma.active_vmas.store(1, Relaxed);
        anon_vma.tree.store(NONE, Relaxed);
    }

    /// The process that everybody forks from.
    pub fn daemon(&self) -> &Process {
        &self.daemon
    }

    /// Makes `child`, which does not run, a copy of `parent`.
    ///
    /// # Errors
    /// When a lock is seen not to work.
    ///
    /// # Panics
    /// When the thread has more processes, or deeper ones, than its pool was made for.
    pub fn fork(
        &self,
        sections: &mut dyn Sections,
        pool: &mut Pool,
        parent: &Process,
        child: &mut Process,
    ) -> Result<(), Failure> {
        debug_assert!(child.vmas.is_empty(), "a process is forked once before it exits");
        for &vma in &parent.vmas {
            child.vmas.push(self.fork_vma(sections, pool, vma)?);
            sections.between_vmas();
        }
        Ok(())
    }

    /// Copies the `place`-th vma of a process alone, as a fork would.
    ///
    /// # Errors
    /// When a lock is seen not to work.
    ///
    /// # Panics
    /// As [`Family::fork`].
    pub fn copy_one(
        &self,
        sections: &mut dyn Sections,
        pool: &mut Pool,
        process: &Process,
        place: usize,
    ) -> Result<LoneVma, Failure> {
        self.fork_vma(sections, pool, process.vmas[place]).map(LoneVma)
    }

    /// Does to a vma what the exit of its process would.
    ///
    /// # Errors
    /// When a lock is seen not to work.
    pub fn unmap_one(
        &self,
        sections: &mut dyn Sections,
        pool: &mut Pool,
        vma: LoneVma,
    ) -> Result<(), Failure> {
        self.exit_vma(sections, pool, vma.0)
    }

    fn fork_vma(
        &self,
        sections: &mut dyn Sections,
        pool: &mut Pool,
        vma: VmaNumber,
    ) -> Result<VmaNumber, Failure> {
        let parent = self.arena.vma(vma).anon_vma.load(Relaxed);
        let place = self.arena.anon_vma(parent).root.load(Relaxed);
        let copy = pool.vma();
        self.arena.vma(copy).begin(self.arena.vma(vma).interval());

        // The first chain is made before the lock is taken, the others under it.
        let first = pool.chain();
        sections.write(place as usize, What::Inserts, &mut || {
            self.copy_chains(pool, vma, copy, first)
        })?;
        if self.arena.vma(copy).anon_vma.load(Relaxed) != NONE {
            return Ok(copy);
        }

        let (own, chain) = (pool.anon_vma(), pool.chain());
        self.begin_anon_vma(own, place, parent);
        self.arena.anon_vma(self.root(place)).references.fetch_add(1, Relaxed);
        self.arena.vma(copy).anon_vma.store(own, Relaxed);
        sections.write(place as usize, What::Inserts, &mut || {
            if self.reuses {
                add(&self.arena.anon_vma(parent).children, 1);
            }
            self.link(copy, chain, own)
        })?;
        Ok(copy)
    }

    /// Puts the copy of a vma where the vma itself is (`anon_vma_clone`).
    fn copy_chains(
        &self,
        pool: &mut Pool,
        vma: VmaNumber,
        copy: VmaNumber,
        first: ChainNumber,
    ) -> Result<(), Tangled> {
        let mut chain = first;
        let mut of_parent = self.arena.vma(vma).chains.load(Relaxed);
        loop {
            let anon_vma = self.arena.chain(of_parent).anon_vma.load(Relaxed);
            self.link(copy, chain, anon_vma)?;
            if self.reuses {
                self.adopt(copy, anon_vma);
            }
            of_parent = self.arena.chain(of_parent).next.load(Relaxed);
            if of_parent == NONE {
                return Ok(());
            }
            chain = pool.chain();
        }
    }

    /// Makes an anon_vma that no vma has for its own any more, and that one child at most was
    /// begun from, the copy's own. Never a root: the daemon has that.
    fn adopt(&self, copy: VmaNumber, number: AnonVmaNumber) {
        let anon_vma = self.arena.anon_vma(number);
        let copy = self.arena.vma(copy);
        let is_unused =
            || anon_vma.active_vmas.load(Relaxed) == 0 && anon_vma.children.load(Relaxed) < 2;
        if copy.anon_vma.load(Relaxed) == NONE && is_unused() {
            copy.anon_vma.store(number, Relaxed);
            add(&anon_vma.active_vmas, 1);
        }
    }

    /// Puts a vma on an anon_vma's tree (`anon_vma_chain_link`).
    fn link(
        &self,
        vma: VmaNumber,
        chain: ChainNumber,
        anon_vma: AnonVmaNumber,
    ) -> Result<(), Tangled> {
        let link = self.arena.chain(chain);
        link.vma.store(vma, Relaxed);
        link.anon_vma.store(anon_vma, Relaxed);
        link.next.store(NONE, Relaxed);
        let vma = self.arena.vma(vma);
        match vma.last_chain.load(Relaxed) {
            NONE => vma.chains.store(chain, Relaxed),
            last => self.arena.chain(last).next.store(chain, Relaxed),
        }
        vma.last_chain.store(chain, Relaxed);
        self.tree(anon_vma).insert(chain)
    }

    fn tree(&self, anon_vma: AnonVmaNumber) -> Tree<'_, P> {
        Tree { arena: &self.arena, root: &self.arena.anon_vma(anon_vma).tree }
    }

    /// Ends a process, if it runs.
    ///
    /// # Errors
    /// When a lock is seen not to work.
    pub fn exit(
        &self,
        sections: &mut dyn Sections,
        pool: &mut Pool,
        process: &mut Process,
    ) -> Result<(), Failure> {
        for vma in process.vmas.drain(..) {
            self.exit_vma(sections, pool, vma)?;
        }
        Ok(())
    }

    fn exit_vma(
        &self,
        sections: &mut dyn Sections,
        pool: &mut Pool,
        vma: VmaNumber,
    ) -> Result<(), Failure> {
        let own = self.arena.vma(vma).anon_vma.load(Relaxed);
        let place = self.arena.anon_vma(own).root.load(Relaxed);
        let mut left = NONE;
        sections.write(place as usize, What::Removes, &mut || {
            left = self.unlink(pool, vma, own)?;
            Ok(())
        })?;
        while left != NONE {
            let chain = self.arena.chain(left);
            self.put(pool, place, chain.anon_vma.load(Relaxed));
            pool.free_chain(left);
            left = chain.next.load(Relaxed);
        }
        pool.free_vma(vma);
        Ok(())
    }

    /// Takes a vma off all trees (`unlink_anon_vmas`). Returns the first chain of those whose tree is
    /// empty now; the others are freed.
    fn unlink(
        &self,
        pool: &mut Pool,
        vma: VmaNumber,
        own: AnonVmaNumber,
    ) -> Result<ChainNumber, Tangled> {
        let mut left = NONE;
        let mut at = self.arena.vma(vma).chains.load(Relaxed);
        while at != NONE {
            let chain = self.arena.chain(at);
            let next = chain.next.load(Relaxed);
            let anon_vma = chain.anon_vma.load(Relaxed);
            let tree = self.tree(anon_vma);
            tree.remove(at)?;
            if tree.is_empty() {
                if self.reuses {
                    let parent = self.arena.anon_vma(anon_vma).parent.load(Relaxed);
                    subtract(&self.arena.anon_vma(parent).children, 1);
                }
                chain.next.store(left, Relaxed);
                left = at;
            } else {
                pool.free_chain(at);
            }
            at = next;
        }
        if self.reuses {
            subtract(&self.arena.anon_vma(own).active_vmas, 1);
        }
        Ok(left)
    }

    /// Drops the reference that an anon_vma's tree was, and with the last one the anon_vma.
    fn put(&self, pool: &mut Pool, place: u32, number: AnonVmaNumber) {
        if self.arena.anon_vma(number).references.fetch_sub(1, Relaxed) == 1 {
            self.arena.anon_vma(self.root(place)).references.fetch_sub(1, Relaxed);
            pool.free_anon_vma(number);
        }
    }

    /// Calls `visit` for each vma that may map the page, with its first and last one. The `place`-th vma
    /// of each process begins at page `place` times [`PAGES`], and the caller holds the lock of that root,
    /// shared at least.
    ///
    /// # Errors
    /// When the lock is seen not to work.
    pub fn walk(&self, page: u64, visit: &mut dyn FnMut((u64, u64))) -> Result<(), Tangled> {
        let root = self.root((page / PAGES) as u32);
        self.tree(root).for_each((page, page), &mut |chain| {
            let vma = self.arena.chain(chain).vma.load(Relaxed);
            visit(self.arena.vma(vma).interval());
        })
    }

    /// Everything that must hold when only the daemon runs. `pools` are all that the family came with.
    ///
    /// # Errors
    /// What does not.
    pub fn check_quiet(&self, pools: &[Pool]) -> Result<(), Violation> {
        let is_whole = |pool: &Pool| pool.counts() == self.each && pool.has_nothing_twice();
        if !pools.iter().all(is_whole) {
            return Err(Violation::Leak {
                what: "a thread has not the objects that it began with",
            });
        }
        (0_u32..).zip(&self.daemon.vmas).try_for_each(|(place, &vma)| self.check_root(place, vma))
    }

    fn check_root(&self, place: u32, vma: VmaNumber) -> Result<(), Violation> {
        let mut chains = 0;
        let page = u64::from(place) * PAGES;
        self.walk(page, &mut |_| chains += 1).map_err(|Tangled| Violation::Tangled)?;
        let root = self.arena.anon_vma(self.root(place));
        let only = self.arena.vma(vma).chains.load(Relaxed);
        for (holds, what) in [
            (chains == 1, "a tree has not the daemon's chain alone"),
            (root.tree.load(Relaxed) == only, "a tree has another chain than the daemon's"),
            (root.references.load(Relaxed) == 1, "a root has not one reference"),
            (root.active_vmas.load(Relaxed) == 1, "a root has not one active vma"),
            (root.children.load(Relaxed) == 0, "a root has children"),
        ] {
            if !holds {
                return Err(Violation::Leak { what });
            }
        }
        Ok(())
    }

    /// The daemon's anon_vma of this place.
    fn root(&self, place: u32) -> AnonVmaNumber {
        self.arena.vma(self.daemon.vmas[place as usize]).anon_vma.load(Relaxed)
    }
}

/// Under the lock that protects the number.
fn add(number: &impl AtomicInt<u32>, more: u32) {
    number.store(number.load(Relaxed) + more, Relaxed);
}

/// Under the lock that protects the number; wraps where that lock did not work.
fn subtract(number: &impl AtomicInt<u32>, less: u32) {
    number.store(number.load(Relaxed).wrapping_sub(less), Relaxed);
}
