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
//! A red-black tree that does what the kernel's does (`interval_tree_generic.h` over `rbtree_augmented.h`):
//! ordered by `first`, duplicates to the right, so that a walk visits them in the order of their inserts. What
//! is in it is reached by numbers into the arena, and each field is an atomic of the platform, for two
//! reasons: a simulated machine charges for each line that an insert touches, which is most of what the
//! lock around it protects; and under a lock that lets two writers in the tree is torn but nothing
//! undefined happens. No published tree can do that.
//!
//! Invariants, while nobody writes
//! 1. In order, `first` never falls; those with the same are in the order of their inserts.
//! 2. The root is black, a red chain has no red child, and every path from the root down passes as many
//!    black ones.
//! 3. `reach` is the greatest of `last` of the chain's own vma and its children's `reach`.
//! 4. A chain that is on no tree is named by no tree and by no chain on one; nobody writes to the chain
//!    that is none.
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

    /// Calls `visit` for each chain whose interval meets `first..=last`, in order. Where [`Tangled`] ends it,
    /// some have been visited.
    pub(super) fn for_each(
        &self,
        (first, last): (u64, u64),
        visit: &mut dyn FnMut(ChainNumber),
    ) -> Result<(), Tangled> {
        // As many as the arena can hold: more means that the walk goes in circles.
        let mut left = self.arena.chains.len();
        self.visit_below(self.root.load(Relaxed), (first, last), &mut left, 0, visit)
    }

    fn visit_below(
        &self,
        at: ChainNumber,
        (first, last): (u64, u64),
        left: &mut usize,
        depth: u32,
        visit: &mut dyn FnMut(ChainNumber),
    ) -> Result<(), Tangled> {
        if at == NONE || self.chain(at).reach.load(Relaxed) < first {
            return Ok(());
        }
        if depth == LONGEST_PATH {
            return Err(Tangled);
        }
        *left = left.checked_sub(1).ok_or(Tangled)?;
        self.visit_below(self.child(at, Left), (first, last), left, depth + 1, visit)?;
        let own = self.interval(at);
        if own.0 > last {
            return Ok(());
        }
        if own.1 >= first {
            visit(at);
        }
        self.visit_below(self.child(at, Right), (first, last), left, depth + 1, visit)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fairlock::platform::Os;
    use proptest::prelude::*;

    use super::super::arena::{AnonVmaNumber, Counts, Pool};
    use super::*;

    /// One tree, and everything that can be on it.
    struct Grove {
        arena: Arena<Os>,
        pool: Pool,
        root: AnonVmaNumber,
    }

    impl Grove {
        fn of(chains: u32) -> Grove {
            let each = Counts { vmas: chains, anon_vmas: 1, chains };
            let (arena, mut pools) = Arena::new(1, each);
            let mut pool = pools.pop().unwrap();
            let root = pool.anon_vma();
            Grove { arena, pool, root }
        }

        fn tree(&self) -> Tree<'_, Os> {
            Tree { arena: &self.arena, root: &self.arena.anon_vma(self.root).tree }
        }

        /// A chain of a vma of its own, not on the tree.
        fn chain(&mut self, interval: (u64, u64)) -> ChainNumber {
            let (vma, chain) = (self.pool.vma(), self.pool.chain());
            self.arena.vma(vma).begin(interval);
            self.arena.chain(chain).vma.store(vma, Relaxed);
            chain
        }

        fn insert(&mut self, interval: (u64, u64)) -> ChainNumber {
            let chain = self.chain(interval);
            self.tree().insert(chain).unwrap();
            chain
        }

        fn remove(&mut self, chain: ChainNumber) {
            self.tree().remove(chain).unwrap();
            self.pool.free_vma(self.arena.chain(chain).vma.load(Relaxed));
            self.pool.free_chain(chain);
        }

        fn found(&self, interval: (u64, u64)) -> Vec<ChainNumber> {
            let mut found = Vec::new();
            self.tree().for_each(interval, &mut |chain| found.push(chain)).unwrap();
            found
        }

        /// Checks all invariants; answers the chains in order.
        fn check(&self) -> Vec<ChainNumber> {
            let tree = self.tree();
            let mut found = Vec::new();
            let root = tree.root.load(Relaxed);
            assert!(!tree.is_red(root), "a red root");
            black_height(&tree, root, NONE, &mut found);
            assert!(found.is_sorted_by_key(|&chain| tree.interval(chain).0), "not in order");
            let there: BTreeSet<_> = found.iter().copied().collect();
            assert_eq!(there.len(), found.len(), "a chain that is there twice");
            for &chain in &found {
                for named in [tree.child(chain, Left), tree.child(chain, Right)] {
                    assert!(named == NONE || there.contains(&named), "{chain} names {named}");
                }
            }
            let none = self.arena.chain(NONE);
            let words = [&none.left, &none.right, &none.parent_and_color, &none.vma];
            assert_eq!(
                words.map(|word| word.load(Relaxed)),
                [0; 4],
                "no chain has been written to"
            );
            assert_eq!(none.reach.load(Relaxed), 0, "no chain has been written to");
            found
        }
    }

    /// Black chains on each path down.
    fn black_height(
        tree: &Tree<'_, Os>,
        at: ChainNumber,
        parent: ChainNumber,
        found: &mut Vec<ChainNumber>,
    ) -> u32 {
        if at == NONE {
            return 0;
        }
        let is_red = tree.is_red(at);
        assert_eq!(tree.placed(at).0, parent, "the parent of {at}");
        assert_eq!(tree.chain(at).reach.load(Relaxed), tree.true_reach(at), "the reach of {at}");
        let left = black_height(tree, tree.child(at, Left), at, found);
        found.push(at);
        let right = black_height(tree, tree.child(at, Right), at, found);
        assert_eq!(left, right, "black chains below {at}");
        let red_child = [Left, Right].into_iter().any(|side| tree.is_red(tree.child(at, side)));
        assert!(!is_red || !red_child, "{at} is red and has a red child");
        left + u32::from(!is_red)
    }

    fn height(tree: &Tree<'_, Os>, at: ChainNumber) -> u32 {
        let below = |side| height(tree, tree.child(at, side));
        if at == NONE { 0 } else { 1 + below(Left).max(below(Right)) }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert((u64, u64)),
        /// At this place in order, modulo how many there are.
        Remove(usize),
    }

    /// Few different ones: vmas at the same place are the rule.
    fn interval() -> impl Strategy<Value = (u64, u64)> {
        let any = (0..24u64, 0..12u64).prop_map(|(first, more)| (first, first + more));
        prop_oneof![3 => Just((8, 11)), 1 => Just((0, 40)), 3 => any]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => interval().prop_map(Step::Insert),
            4 => any::<usize>().prop_map(Step::Remove),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn the_tree_is_in_order_and_complete_whatever_came_and_went(
            steps in prop::collection::vec((step(), interval()), 1..150),
        ) {
            let mut grove = Grove::of(150);
            // In the order of the tree.
            let mut there: Vec<(ChainNumber, (u64, u64))> = Vec::new();
            for (step, asked) in steps {
                match step {
                    Step::Insert(interval) => {
                        let place = there.partition_point(|(_, other)| other.0 <= interval.0);
                        there.insert(place, (grove.insert(interval), interval));
                    }
                    Step::Remove(place) if !there.is_empty() => {
                        let (gone, _) = there.remove(place % there.len());
                        grove.remove(gone);
                    }
                    Step::Remove(_) => {}
                }
                let expected: Vec<_> = there.iter().map(|(chain, _)| *chain).collect();
                prop_assert_eq!(grove.check(), expected);
                prop_assert_eq!(grove.tree().is_empty(), there.is_empty());
                let meets = |(first, last): (u64, u64)| first <= asked.1 && asked.0 <= last;
                let expected = there.iter().filter(|(_, interval)| meets(*interval));
                let expected: Vec<_> = expected.map(|(chain, _)| *chain).collect();
                prop_assert_eq!(grove.found(asked), expected);
            }
        }
    }

    #[test]
    fn thousands_of_identical_intervals_make_a_flat_tree() {
        let mut grove = Grove::of(4096);
        let chains: Vec<_> = (0..4096).map(|_| grove.insert((16, 31))).collect();
        assert_eq!(grove.check(), chains, "not in the order of their inserts");
        let height_of = |grove: &Grove| height(&grove.tree(), grove.tree().root.load(Relaxed));
        // Twice the logarithm is what red-black trees guarantee.
        assert!((13..=24).contains(&height_of(&grove)), "{}", height_of(&grove));
        // The oldest exit first: all from one side.
        chains[..3584].iter().for_each(|&chain| grove.remove(chain));
        assert_eq!(grove.check(), chains[3584..]);
        assert!((10..=18).contains(&height_of(&grove)), "{}", height_of(&grove));
        assert_eq!(grove.found((31, 40)), chains[3584..]);
        assert!(grove.found((32, 40)).is_empty());
        chains[3584..].iter().for_each(|&chain| grove.remove(chain));
        assert!(grove.tree().is_empty());
    }

    #[test]
    fn a_tree_in_circles_is_noticed_by_whoever_follows_it() {
        let torn = || {
            let mut grove = Grove::of(16);
            let chains: Vec<_> = (0..12).map(|_| grove.insert((0, 9))).collect();
            let root = grove.tree().root.load(Relaxed);
            for &chain in chains.iter().filter(|&&chain| chain != root) {
                grove.tree().set_child(chain, Left, chain);
                grove.tree().set_child(chain, Right, root);
            }
            (grove, root)
        };
        let (mut grove, _) = torn();
        let late = grove.chain((0, 9));
        assert_eq!(grove.tree().insert(late), Err(Tangled));
        let (grove, root) = torn();
        assert_eq!(grove.tree().remove(root), Err(Tangled));
        let (grove, _) = torn();
        assert_eq!(grove.tree().for_each((0, 9), &mut |_| ()), Err(Tangled));
    }

    #[test]
    fn a_walk_through_a_torn_tree_visits_nothing_twice_as_often_at_each_level() {
        let mut grove = Grove::of(41);
        let chains: Vec<_> = (0..41).map(|_| grove.chain((0, 9))).collect();
        for pair in chains.windows(2) {
            grove.tree().set_child(pair[0], Left, pair[1]);
            grove.tree().set_child(pair[0], Right, pair[1]);
        }
        chains.iter().for_each(|&chain| grove.arena.chain(chain).reach.store(99, Relaxed));
        grove.tree().root.store(chains[0], Relaxed);
        // Ways down: 2 to the 40th. None of the chains meets the second interval.
        for interval in [(0, 9), (50, 60)] {
            assert_eq!(grove.tree().for_each(interval, &mut |_| ()), Err(Tangled));
        }
    }
}
