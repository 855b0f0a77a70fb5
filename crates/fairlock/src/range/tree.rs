//! An interval tree over nodes that live with their owners: a newcomer finds a conflicting range
//! among thousands in a few steps, and the tree allocates nothing.
//!
//! ```text
//!              20..=29             each node also knows how far its subtree reaches:
//!             /       \            the greatest `last` in it, of all ranges and of the
//!        5..=70       40..=41      exclusive ones
//!        /    \
//!    0..=9   12..=12
//! ```
//!
//! An AVL tree (Adelson-Velsky and Landis, 1962), augmented as interval trees are (Cormen et al.,
//! *Introduction to Algorithms*, 14.3): a tree of `n` ranges is at most 1.45 log₂ `n` levels high,
//! whatever the positions and the order of arrival, and the same program builds the same tree.
//!
//! Not for: deciding who waits for whom, or for how long.
//!
//! Invariants
//! 1. Links and the root are read and written only by the holder of the lock of the queue that the
//!    tree belongs to, which is why the functions here take a [`Locked`].
//! 2. A node is on the tree from `insert` to `remove`, and does not move or end in between.
//! 3. In order, `first` never falls. Equal ones may stand on either side of each other.
//! 4. `height` is 0 off the tree; on it, 1 more than that of the higher child; those of two
//!    siblings differ by 1 at most.
//! 5. `reach` is what `own_reach` says for the node itself, or what its children reach if that
//!    is further.

use core::marker::PhantomData;
use core::ptr;

use super::{Access, Extent};
use crate::platform::{PlainCell, Platform};
use crate::wait_queue::Locked;

/// Which child.
type Side = usize;
const LEFT: Side = 0;
const RIGHT: Side = 1;

const fn opposite(side: Side) -> Side {
    1 - side
}

/// A range and its place on a [`Tree`]. Links are untyped as those of rings are.
pub(crate) struct Interval<P: Platform> {
    extent: Extent,
    /// 1: shared.
    shared: P::Cell<u32>,
    parent: P::Cell<*const ()>,
    children: [P::Cell<*const ()>; 2],
    height: P::Cell<u32>,
    /// The greatest `last` in the subtree.
    reach: P::Cell<Option<u64>>,
    /// The greatest `last` of an exclusive range in the subtree.
    exclusive_reach: P::Cell<Option<u64>>,
}

impl<P: Platform> Interval<P> {
    /// On no tree yet.
    pub(crate) fn new(extent: Extent, access: Access) -> Self {
        let shared = P::Cell::ZERO;
        shared.set((access == Access::Shared).into());
        Interval {
            extent,
            shared,
            parent: P::Cell::ZERO,
            children: [P::Cell::ZERO, P::Cell::ZERO],
            height: P::Cell::ZERO,
            reach: P::Cell::ZERO,
            exclusive_reach: P::Cell::ZERO,
        }
    }

    #[cfg(test)]
    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    #[cfg(test)]
    pub(crate) fn access(&self, _locked: &Locked<'_, P>) -> Access {
        self.kind()
    }

    pub(crate) fn is_linked(&self, _locked: &Locked<'_, P>) -> bool {
        self.height.get() != 0
    }

    fn kind(&self) -> Access {
        if self.shared.get() == 0 { Access::Exclusive } else { Access::Shared }
    }

    fn conflicts(&self, extent: Extent, access: Access) -> bool {
        self.extent.overlaps(extent) && self.kind().conflicts(access)
    }

    /// How far those ranges of the subtree reach that conflict with such an access.
    fn reach(&self, access: Access) -> &P::Cell<Option<u64>> {
        match access {
            Access::Shared => &self.exclusive_reach,
            Access::Exclusive => &self.reach,
        }
    }

    fn own_reach(&self, access: Access) -> Option<u64> {
        self.kind().conflicts(access).then_some(self.extent.last())
    }
}

/// A node that can be on a [`Tree`].
pub(crate) trait OnTree<P: Platform> {
    /// Its range and its place.
    fn interval(&self) -> &Interval<P>;
}

/// Ranges, found by where they are; the root is null when there are none.
pub(crate) struct Tree<P: Platform, N> {
    root: P::Cell<*const ()>,
    nodes: PhantomData<*const N>,
}

fn link<N>(node: &N) -> *const () {
    ptr::from_ref(node).cast()
}

impl<P: Platform, N: OnTree<P>> Tree<P, N> {
    pub(crate) const EMPTY: Self = Tree { root: P::Cell::ZERO, nodes: PhantomData };

    pub(crate) fn is_empty(&self, _locked: &Locked<'_, P>) -> bool {
        self.root.get().is_null()
    }

    /// The first range, by where it begins, of those that overlap `extent` and conflict with such
    /// an access.
    pub(crate) fn any<'l>(
        &self,
        _locked: &'l Locked<'_, P>,
        extent: Extent,
        access: Access,
    ) -> Option<&'l N> {
        let mut place = self.root();
        while let Some(node) = place {
            let left = Self::child(node, LEFT);
            // If the one on the left that reaches so far begins too late to overlap, then so does
            // all that is not on the left, by invariant 3: one way down is enough.
            place = if Self::reach(left, access) >= Some(extent.first()) {
                left
            } else if node.interval().conflicts(extent, access) {
                return Some(node);
            } else {
                Self::child(node, RIGHT)
            };
        }
        None
    }

    /// Puts `node` on the tree. Until it is off again it must stay where it is, and nobody may have
    /// a `&mut` to it, nor move a box that owns it.
    pub(crate) fn insert(&self, locked: &Locked<'_, P>, node: &N) {
        debug_assert!(!node.interval().is_linked(locked), "on one tree at a time");
        let first = node.interval().extent.first();
        let (mut parent, mut side) = (None, LEFT);
        let mut place = self.root();
        while let Some(above) = place {
            side = if first < above.interval().extent.first() { LEFT } else { RIGHT };
            parent = Some(above);
            place = Self::child(above, side);
        }
        match parent {
            Some(parent) => Self::set_child(parent, side, Some(node)),
            None => self.root.set(link(node)),
        }
        self.settle(Some(node));
    }

    /// Takes `node` off, wherever it stands.
    pub(crate) fn remove(&self, locked: &Locked<'_, P>, node: &N) {
        debug_assert!(node.interval().is_linked(locked), "taken off once");
        let lowest = match (Self::child(node, LEFT), Self::child(node, RIGHT)) {
            (Some(left), Some(right)) => {
                let heir = Self::leftmost(right);
                let above_heir = Self::parent(heir).expect("below the node");
                self.replace(heir, Self::child(heir, RIGHT));
                Self::set_child(heir, LEFT, Some(left));
                Self::set_child(heir, RIGHT, Self::child(node, RIGHT));
                self.replace(node, Some(heir));
                Some(if ptr::eq(above_heir, node) { heir } else { above_heir })
            }
            (left, right) => {
                self.replace(node, left.or(right));
                Self::parent(node)
            }
        };
        let interval = node.interval();
        interval.parent.set(ptr::null());
        interval.children.iter().for_each(|child| child.set(ptr::null()));
        interval.height.set(0);
        self.settle(lowest);
    }

    /// Makes a range on the tree shared.
    pub(crate) fn set_shared(&self, locked: &Locked<'_, P>, node: &N) {
        debug_assert!(node.interval().is_linked(locked), "others look for it there");
        node.interval().shared.set(1);
        self.settle(Some(node));
    }

    // ---- looking around ----

    /// The node behind a link.
    ///
    /// # Safety
    /// `link` is null or leads to a node that lives for as long as the result is used.
    unsafe fn node<'a>(link: *const ()) -> Option<&'a N> {
        // SAFETY: null or a live node, as the caller promises; links come from `link` and so lead
        // to an `N`.
        unsafe { link.cast::<N>().as_ref() }
    }

    fn root<'l>(&self) -> Option<&'l N> {
        // SAFETY: invariant 2, a linked node is alive. Results leave this file only with the
        // lifetime of the `Locked`, while nobody can take the node off.
        unsafe { Self::node(self.root.get()) }
    }

    fn parent(node: &N) -> Option<&N> {
        // SAFETY: invariant 2, what a linked node leads to is linked and so alive.
        unsafe { Self::node(node.interval().parent.get()) }
    }

    fn child(node: &N, side: Side) -> Option<&N> {
        // SAFETY: invariant 2, what a linked node leads to is linked and so alive.
        unsafe { Self::node(node.interval().children[side].get()) }
    }

    fn leftmost(mut node: &N) -> &N {
        while let Some(left) = Self::child(node, LEFT) {
            node = left;
        }
        node
    }

    fn height(subtree: Option<&N>) -> u32 {
        subtree.map_or(0, |node| node.interval().height.get())
    }

    fn reach(subtree: Option<&N>, access: Access) -> Option<u64> {
        subtree.and_then(|node| node.interval().reach(access).get())
    }

    // ---- changing ----

    fn set_child(node: &N, side: Side, child: Option<&N>) {
        node.interval().children[side].set(child.map_or(ptr::null(), link));
        if let Some(child) = child {
            child.interval().parent.set(link(node));
        }
    }

    /// Puts another node, with its subtree, where this one stands.
    fn replace(&self, node: &N, by: Option<&N>) {
        let Some(parent) = Self::parent(node) else {
            self.root.set(by.map_or(ptr::null(), link));
            if let Some(by) = by {
                by.interval().parent.set(ptr::null());
            }
            return;
        };
        let is_left = parent.interval().children[LEFT].get() == link(node);
        Self::set_child(parent, if is_left { LEFT } else { RIGHT }, by);
    }

    /// Invariants 4 and 5 for everything from this node up, where they hold below it.
    fn settle(&self, lowest: Option<&N>) {
        let mut place = lowest;
        while let Some(node) = place {
            place = Self::parent(self.balance(node));
        }
    }

    /// Invariants 4 and 5 for this subtree, where they hold for its children and their heights
    /// differ by 2 at most. Returns its new root.
    fn balance<'l>(&self, node: &'l N) -> &'l N {
        for side in [LEFT, RIGHT] {
            let (child, other) = (Self::child(node, side), Self::child(node, opposite(side)));
            let Some(child) = child.filter(|_| Self::height(child) > Self::height(other) + 1)
            else {
                continue;
            };
            let inner = Self::height(Self::child(child, opposite(side)));
            if inner > Self::height(Self::child(child, side)) {
                self.lift(child, opposite(side));
            }
            return self.lift(node, side);
        }
        Self::update(node);
        node
    }

    /// Puts the child of this side above `node`: a rotation, which keeps invariant 3.
    fn lift<'l>(&self, node: &'l N, side: Side) -> &'l N {
        let child = Self::child(node, side).expect("it is the higher one");
        let between = Self::child(child, opposite(side));
        self.replace(node, Some(child));
        Self::set_child(child, opposite(side), Some(node));
        Self::set_child(node, side, between);
        Self::update(node);
        Self::update(child);
        child
    }

    fn update(node: &N) {
        let interval = node.interval();
        let [left, right] = [Self::child(node, LEFT), Self::child(node, RIGHT)];
        interval.height.set(1 + Self::height(left).max(Self::height(right)));
        for access in [Access::Shared, Access::Exclusive] {
            let below = Self::reach(left, access).max(Self::reach(right, access));
            interval.reach(access).set(interval.own_reach(access).max(below));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;
    use crate::platform::Os;
    use crate::wait_queue::QueueLock;

    struct Node {
        interval: Interval<Os>,
        name: usize,
    }

    impl OnTree<Os> for Node {
        fn interval(&self) -> &Interval<Os> {
            &self.interval
        }
    }

    type Nodes = Tree<Os, Node>;

    // A box asserts uniqueness when it moves.
    fn node(name: usize, extent: Extent, access: Access) -> Rc<Node> {
        Rc::new(Node { interval: Interval::new(extent, access), name })
    }

    /// All names in order; checks the invariants on the way.
    fn names(tree: &Nodes) -> Vec<usize> {
        fn visit<'l>(subtree: Option<&'l Node>, found: &mut Vec<&'l Node>) {
            let Some(node) = subtree else { return };
            let children = [Nodes::child(node, LEFT), Nodes::child(node, RIGHT)];
            for child in children.into_iter().flatten() {
                let parent = Nodes::parent(child).map(ptr::from_ref);
                assert_eq!(parent, Some(ptr::from_ref(node)), "children know their parents");
            }
            visit(children[LEFT], found);
            found.push(node);
            visit(children[RIGHT], found);

            let [left, right] = children.map(Nodes::height);
            assert_eq!(node.interval.height.get(), 1 + left.max(right));
            assert!(left.abs_diff(right) <= 1, "{left} and {right} high");
            for access in [Access::Shared, Access::Exclusive] {
                let own = node.interval.own_reach(access);
                let below = children.map(|child| Nodes::reach(child, access));
                assert_eq!(node.interval.reach(access).get(), own.max(below[0]).max(below[1]));
            }
        }
        let root = tree.root();
        assert!(root.is_none_or(|root| Nodes::parent(root).is_none()));
        let mut found = Vec::new();
        visit(root, &mut found);
        assert!(found.is_sorted_by_key(|node| node.interval.extent.first()));
        found.iter().map(|node| node.name).collect()
    }

    fn height(tree: &Nodes) -> u32 {
        Nodes::height(tree.root())
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(Extent, Access),
        /// At this place in the order of arrival, modulo how many there are.
        Remove(usize),
        SetShared(usize),
    }

    /// Few positions, so that many begin at the same one, at both ends of what there is.
    fn extent() -> impl Strategy<Value = Extent> {
        let length = prop_oneof![4 => 1..6u64, 1 => 1..40u64];
        (0..40u64, length, any::<bool>()).prop_map(|(offset, length, at_end)| {
            let offset = if at_end { u64::MAX - offset } else { offset };
            Extent::at(offset, length.min((u64::MAX - offset).saturating_add(1))).unwrap()
        })
    }

    fn access() -> impl Strategy<Value = Access> {
        prop_oneof![2 => Just(Access::Shared), 1 => Just(Access::Exclusive)]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (extent(), access()).prop_map(|(extent, access)| Step::Insert(extent, access)),
            3 => any::<usize>().prop_map(Step::Remove),
            1 => any::<usize>().prop_map(Step::SetShared),
        ]
    }

    fn at<T>(list: &[T], place: usize) -> Option<usize> {
        (!list.is_empty()).then(|| place % list.len())
    }

    proptest! {
        #[cfg_attr(miri, ignore = "proptest looks for files, which Miri does not let it see")]
        #[test]
        fn the_first_conflict_is_found_whatever_came_and_went(
            steps in prop::collection::vec((step(), extent(), access()), 1..120),
        ) {
            let lock = QueueLock::<Os>::NEW;
            let tree = Nodes::EMPTY;
            let mut there: Vec<(Rc<Node>, Access)> = Vec::new();
            for (name, (step, asked, asked_access)) in steps.into_iter().enumerate() {
                let locked = lock.lock();
                match step {
                    Step::Insert(extent, access) => {
                        there.push((node(name, extent, access), access));
                        tree.insert(&locked, &there.last().unwrap().0);
                    }
                    Step::Remove(place) => if let Some(place) = at(&there, place) {
                        let (gone, _) = there.remove(place);
                        tree.remove(&locked, &gone);
                        prop_assert!(!gone.interval.is_linked(&locked));
                    },
                    Step::SetShared(place) => if let Some(place) = at(&there, place) {
                        there[place].1 = Access::Shared;
                        tree.set_shared(&locked, &there[place].0);
                    },
                }
                let mut found = names(&tree);
                found.sort_unstable();
                prop_assert!(there.iter().map(|(node, _)| node.name).eq(found));
                prop_assert_eq!(tree.is_empty(&locked), there.is_empty());
                for (node, access) in &there {
                    prop_assert!(node.interval.is_linked(&locked));
                    prop_assert_eq!(node.interval.access(&locked), *access);
                }

                let conflicts = |node: &Node, access: Access| {
                    node.interval.extent().overlaps(asked) && access.conflicts(asked_access)
                };
                let expected = there.iter().filter(|(node, access)| conflicts(node, *access));
                let expected = expected.map(|(node, _)| node.interval.extent().first()).min();
                let found = tree.any(&locked, asked, asked_access);
                prop_assert_eq!(found.map(|node| node.interval.extent().first()), expected);
                prop_assert!(
                    found.is_none_or(|node| conflicts(node, node.interval.access(&locked)))
                );
            }
        }
    }

    const MANY: usize = if cfg!(miri) { 100 } else { 10_000 };
    /// 1.4405 log₂(10,000 + 2) - 0.3277, the height of the thinnest AVL tree.
    const HIGHEST: u32 = 18;

    fn page(number: usize) -> Extent {
        Extent::at(number as u64 * 4096, 4096).unwrap()
    }

    #[test]
    fn sorted_arrivals_and_departures_leave_it_low() {
        for mut order in [(0..MANY).collect::<Vec<_>>(), (0..MANY).rev().collect()] {
            let lock = QueueLock::<Os>::NEW;
            let locked = lock.lock();
            let tree = Nodes::EMPTY;
            let nodes: Vec<_> =
                (0..MANY).map(|name| node(name, page(name), Access::Exclusive)).collect();
            for &name in &order {
                tree.insert(&locked, &nodes[name]);
            }
            assert!(names(&tree).into_iter().eq(0..MANY));
            assert!(height(&tree) <= HIGHEST, "{} high", height(&tree));
            for (name, node) in nodes.iter().enumerate() {
                let found = tree.any(&locked, page(name), Access::Shared).unwrap();
                assert!(ptr::eq(found, &**node));
            }
            // All but every tenth, then the rest.
            order.sort_by_key(|name| name % 10 == 0);
            for (gone, &name) in order.iter().enumerate() {
                tree.remove(&locked, &nodes[name]);
                assert!(tree.any(&locked, page(name), Access::Exclusive).is_none());
                if gone % 1_000 == 0 {
                    assert_eq!(names(&tree).len(), MANY - gone - 1);
                }
            }
            assert!(tree.is_empty(&locked));
        }
    }

    #[test]
    fn identical_ranges_are_kept_apart() {
        let lock = QueueLock::<Os>::NEW;
        let locked = lock.lock();
        let tree = Nodes::EMPTY;
        let nodes: Vec<_> = (0..MANY).map(|name| node(name, page(7), Access::Shared)).collect();
        nodes.iter().for_each(|node| tree.insert(&locked, node));
        assert!(names(&tree).into_iter().eq(0..MANY), "in the order of arrival");
        assert!(height(&tree) <= HIGHEST);
        assert!(tree.any(&locked, page(7), Access::Shared).is_none());
        for node in &nodes[1..] {
            tree.remove(&locked, node);
        }
        assert_eq!(tree.any(&locked, page(7), Access::Exclusive).unwrap().name, 0);
    }

    #[test]
    fn one_exclusive_range_is_found_behind_many_shared_ones() {
        let lock = QueueLock::<Os>::NEW;
        let locked = lock.lock();
        let tree = Nodes::EMPTY;
        let shared: Vec<_> = (0..100).map(|name| node(name, Extent::ALL, Access::Shared)).collect();
        shared.iter().for_each(|node| tree.insert(&locked, node));
        let exclusive = node(100, Extent::of(u64::MAX..=u64::MAX).unwrap(), Access::Exclusive);
        tree.insert(&locked, &exclusive);
        assert_eq!(tree.any(&locked, Extent::ALL, Access::Shared).unwrap().name, 100);
        assert!(tree.any(&locked, Extent::of(..9).unwrap(), Access::Shared).is_none());
        assert!(tree.any(&locked, Extent::of(..9).unwrap(), Access::Exclusive).is_some());
        tree.set_shared(&locked, &exclusive);
        assert!(tree.any(&locked, Extent::ALL, Access::Shared).is_none());
    }
}
