//! The tree of intervals of one anon_vma: which chains, and by them which vmas, map a page.
//!
//! ```text
//!              16..=31             each chain also knows how far its subtree reaches:
//!             /       \            the greatest `last` in it
//!        16..=31     16..=31       (vmas at the same place of forked processes have
//!        /    \                     the same interval: duplicates are the rule)
//!    16..=31 16..=31
//! ```
//!
//! A red-black tree as in `lib/interval_tree.c` and `lib/rbtree.c` of the kernel: ordered by `first`,
//! duplicates to the right. What is in it is reached by numbers into the arena, and each field is an atomic
//! of the platform, for two reasons: a simulated machine charges for each line that an insert touches, which
//! is most of what the lock around it protects; and under a lock that lets two writers in the tree is torn
//! but nothing undefined happens. No published tree can do that.
//!
//! Invariants, while nobody writes
//! 1. In order, `first` never falls.
//! 2. A red chain has no red child, and every path from the root down passes as many black ones.
//! 3. `reach` is the greatest `last` of the chain's own vma and its children's `reach`.
//! 4. A chain that is on no tree is named by no other chain.
//!
//! Whoever finds a path longer than a red-black tree can have stops with [`Tangled`]: some lock did not
//! work.

use std::sync::atomic::Ordering::Relaxed;

use fairlock::platform::{AtomicCell, Platform};

use super::arena::{Arena, Chain, ChainNumber, NONE};

/// The tree has a path that no red-black tree has: somebody wrote beside the holder of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tangled;

/// Twice the logarithm of more chains than an arena can hold.
const LONGEST_PATH: u32 = 64;

/// Which child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}
use Side::{Left, Right};

impl Side {
    const fn opposite(self) -> Side {
        match self {
            Left => Right,
            Right => Left,
        }
    }
}

/// Counts down along a path.
struct Path(u32);

impl Path {
    const fn new() -> Path {
        Path(LONGEST_PATH)
    }

    fn step(&mut self) -> Result<(), Tangled> {
        self.0 = self.0.checked_sub(1).ok_or(Tangled)?;
        Ok(())
    }
}

/// One anon_vma's tree. The caller holds the lock of its root.
pub(super) struct Tree<'a, P: Platform> {
    pub(super) arena: &'a Arena<P>,
    pub(super) root: &'a P::AtomicU32,
}

impl<P: Platform> Tree<'_, P> {
    pub(super) fn is_empty(&self) -> bool {
        self.root.load(Relaxed) == NONE
    }

    /// Puts a chain, which is on no tree, where its vma's interval belongs.
    pub(super) fn insert(&self, number: ChainNumber) -> Result<(), Tangled> {
        let (first, last) = self.interval(number);
        let (mut parent, mut side, mut at) = (NONE, Right, self.root.load(Relaxed));
        let mut path = Path::new();
        while at != NONE {
            path.step()?;
            if self.chain(at).reach.load(Relaxed) < last {
                self.chain(at).reach.store(last, Relaxed);
            }
            parent = at;
            side = if first < self.interval(at).0 { Left } else { Right };
            at = self.child(at, side);
        }
        let chain = self.chain(number);
        chain.left.store(NONE, Relaxed);
        chain.right.store(NONE, Relaxed);
        chain.reach.store(last, Relaxed);
        self.place(number, parent, true);
        if parent == NONE {
            self.root.store(number, Relaxed);
        } else {
            self.set_child(parent, side, number);
        }
        self.balance_after_insert(number)
    }

    /// Takes a chain off the tree that it is on.
    pub(super) fn remove(&self, number: ChainNumber) -> Result<(), Tangled> {
        let (left, right) = (self.child(number, Left), self.child(number, Right));
        let (deficient, below, was_red);
        if left == NONE || right == NONE {
            below = if left == NONE { right } else { left };
            (deficient, was_red) = self.placed(number);
            self.replace(number, below);
            self.propagate(deficient, NONE)?;
        } else {
            let successor = self.leftmost(right)?;
            let (parent, successor_was_red) = self.placed(successor);
            below = self.child(successor, Right);
            was_red = successor_was_red;
            if parent == number {
                deficient = successor;
            } else {
                deficient = parent;
                self.replace(successor, below);
                self.set_child(successor, Right, right);
                self.set_parent(right, successor);
            }
            self.replace(number, successor);
            self.set_child(successor, Left, left);
            self.set_parent(left, successor);
            self.set_red(successor, self.is_red(number));
            self.propagate(deficient, successor)?;
            self.update_reach(successor);
            self.propagate(self.placed(successor).0, NONE)?;
        }
        if was_red { Ok(()) } else { self.balance_after_remove(deficient, below) }
    }

    /// Calls `visit` for each chain whose interval meets `first..=last`, in order.
    pub(super) fn for_each(
        &self,
        (first, last): (u64, u64),
        visit: &mut dyn FnMut(ChainNumber),
    ) -> Result<(), Tangled> {
        // As many as the arena can hold: more means that the walk goes in circles.
        let mut left = self.arena.chains.len();
        self.visit_below(self.root.load(Relaxed), (first, last), 0, &mut |number| {
            left = left.checked_sub(1).ok_or(Tangled)?;
            visit(number);
            Ok(())
        })
    }

    fn visit_below(
        &self,
        at: ChainNumber,
        (first, last): (u64, u64),
        depth: u32,
        visit: &mut dyn FnMut(ChainNumber) -> Result<(), Tangled>,
    ) -> Result<(), Tangled> {
        if at == NONE || self.chain(at).reach.load(Relaxed) < first {
            return Ok(());
        }
        if depth == LONGEST_PATH {
            return Err(Tangled);
        }
        self.visit_below(self.child(at, Left), (first, last), depth + 1, visit)?;
        let own = self.interval(at);
        if own.0 > last {
            return Ok(());
        }
        if own.1 >= first {
            visit(at)?;
        }
        self.visit_below(self.child(at, Right), (first, last), depth + 1, visit)
    }

    fn balance_after_insert(&self, mut number: ChainNumber) -> Result<(), Tangled> {
        let mut path = Path::new();
        loop {
            path.step()?;
            let mut parent = self.placed(number).0;
            if parent == NONE {
                self.set_red(number, false);
                return Ok(());
            }
            let (grandparent, parent_is_red) = self.placed(parent);
            if !parent_is_red {
                return Ok(());
            }
            let side = self.side_of(parent, grandparent);
            let uncle = self.child(grandparent, side.opposite());
            if self.is_red(uncle) {
                self.set_red(parent, false);
                self.set_red(uncle, false);
                self.set_red(grandparent, true);
                number = grandparent;
                continue;
            }
            if number == self.child(parent, side.opposite()) {
                self.rotate(parent, side);
                parent = number;
            }
            self.rotate(grandparent, side.opposite());
            self.set_red(parent, false);
            self.set_red(grandparent, true);
            return Ok(());
        }
    }

    /// The paths through `number`, a child of `parent`, lack a black chain.
    fn balance_after_remove(
        &self,
        mut parent: ChainNumber,
        mut number: ChainNumber,
    ) -> Result<(), Tangled> {
        let mut path = Path::new();
        loop {
            path.step()?;
            if self.is_red(number) || parent == NONE {
                if number != NONE {
                    self.set_red(number, false);
                }
                return Ok(());
            }
            let side = self.side_of(number, parent);
            let mut sibling = self.child(parent, side.opposite());
            if self.is_red(sibling) {
                self.rotate(parent, side);
                self.set_red(sibling, false);
                self.set_red(parent, true);
                sibling = self.child(parent, side.opposite());
            }
            let near = self.child(sibling, side);
            if !self.is_red(near) && !self.is_red(self.child(sibling, side.opposite())) {
                self.set_red(sibling, true);
                number = parent;
                parent = self.placed(number).0;
                continue;
            }
            if !self.is_red(self.child(sibling, side.opposite())) {
                self.rotate(sibling, side.opposite());
                self.set_red(near, false);
                self.set_red(sibling, true);
                sibling = near;
            }
            self.rotate(parent, side);
            self.set_red(sibling, self.is_red(parent));
            self.set_red(parent, false);
            self.set_red(self.child(sibling, side.opposite()), false);
            return Ok(());
        }
    }

    /// Moves a chain down to one side; its other child takes its place.
    fn rotate(&self, down: ChainNumber, side: Side) {
        let up = self.child(down, side.opposite());
        let inner = self.child(up, side);
        self.set_child(down, side.opposite(), inner);
        if inner != NONE {
            self.set_parent(inner, down);
        }
        self.replace(down, up);
        self.set_child(up, side, down);
        self.set_parent(down, up);
        self.chain(up).reach.store(self.chain(down).reach.load(Relaxed), Relaxed);
        self.update_reach(down);
    }

    /// Lets `new`, or nothing, be what `old` was to its parent.
    fn replace(&self, old: ChainNumber, new: ChainNumber) {
        let parent = self.placed(old).0;
        if parent == NONE {
            self.root.store(new, Relaxed);
        } else {
            self.set_child(parent, self.side_of(old, parent), new);
        }
        if new != NONE {
            self.set_parent(new, parent);
        }
    }

    /// Makes `reach` true again from `at` up to `end`, or until nothing changes.
    fn propagate(&self, mut at: ChainNumber, end: ChainNumber) -> Result<(), Tangled> {
        let mut path = Path::new();
        while at != end && at != NONE {
            path.step()?;
            if !self.update_reach(at) {
                break;
            }
            at = self.placed(at).0;
        }
        Ok(())
    }

    /// Whether it changed.
    fn update_reach(&self, number: ChainNumber) -> bool {
        let chain = self.chain(number);
        let reach = self.true_reach(number);
        let changed = chain.reach.load(Relaxed) != reach;
        if changed {
            chain.reach.store(reach, Relaxed);
        }
        changed
    }

    fn true_reach(&self, number: ChainNumber) -> u64 {
        let below = [Left, Right].map(|side| match self.child(number, side) {
            NONE => 0,
            child => self.chain(child).reach.load(Relaxed),
        });
        self.interval(number).1.max(below[0]).max(below[1])
    }

    fn leftmost(&self, mut at: ChainNumber) -> Result<ChainNumber, Tangled> {
        let mut path = Path::new();
        loop {
            path.step()?;
            match self.child(at, Left) {
                NONE => return Ok(at),
                left => at = left,
            }
        }
    }

    fn chain(&self, number: ChainNumber) -> &Chain<P> {
        self.arena.chain(number)
    }

    fn interval(&self, number: ChainNumber) -> (u64, u64) {
        self.arena.vma(self.chain(number).vma.load(Relaxed)).interval()
    }

    fn child(&self, number: ChainNumber, side: Side) -> ChainNumber {
        self.link(number, side).load(Relaxed)
    }

    fn set_child(&self, number: ChainNumber, side: Side, child: ChainNumber) {
        self.link(number, side).store(child, Relaxed);
    }

    fn link(&self, number: ChainNumber, side: Side) -> &P::AtomicU32 {
        let chain = self.chain(number);
        match side {
            Left => &chain.left,
            Right => &chain.right,
        }
    }

    fn side_of(&self, number: ChainNumber, parent: ChainNumber) -> Side {
        if self.child(parent, Left) == number { Left } else { Right }
    }

    /// The parent, and whether the chain is red: one word, as in the kernel.
    fn placed(&self, number: ChainNumber) -> (ChainNumber, bool) {
        let word = self.chain(number).parent_and_color.load(Relaxed);
        (word >> 1, word & 1 == 1)
    }

    fn place(&self, number: ChainNumber, parent: ChainNumber, red: bool) {
        self.chain(number).parent_and_color.store(parent << 1 | u32::from(red), Relaxed);
    }

    fn set_parent(&self, number: ChainNumber, parent: ChainNumber) {
        self.place(number, parent, self.placed(number).1);
    }

    fn is_red(&self, number: ChainNumber) -> bool {
        number != NONE && self.placed(number).1
    }

    fn set_red(&self, number: ChainNumber, red: bool) {
        self.place(number, self.placed(number).0, red);
    }
}
