//! The waiters of one lock: two rings ([`crate::wait_queue`]) of nodes on the waiters' stacks,
//! under one queue lock.
//!
//! ```text
//!   readers ──► node ⇄ node ⇄ node ─┐      each list is a ring; the pointer names the oldest,
//!                ▲──────────────────┘      whose `prev` is the youngest
//!   writers ──► node ⇄ node ─┐
//!                ▲───────────┘
//! ```
//!
//! Invariants
//! 1. Links and list heads are read and written only by the holder of the queue's lock.
//! 2. A node is on a list from `push` to `remove`; its owner does not return before it is off.
//! 3. A thread that takes a node off a list stores [`GRANTED`] or [`WOKEN_DEQUEUED`] into its state
//!    *after* the last look at the node: from that store on the node's stack frame may be gone. The
//!    wake-up that follows uses the address alone.

use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::word::Side;
use crate::platform::{AtomicCell, PlainCell, Platform};
use crate::wait_queue::{Links, Locked, OnRing, QueueLock, Ring};

/// State of a node: its owner waits.
pub(crate) const WAITING: u32 = 0;
/// The lock is the owner's; the node is off the list.
pub(crate) const GRANTED: u32 = 1;
/// The owner should start over; the node is off the list.
pub(crate) const WOKEN_DEQUEUED: u32 = 2;
/// The owner goes on waiting, and has to look at the clock (`slow_path.rs`); the node is still on
/// the list.
pub(crate) const APPOINTED: u32 = 3;

/// What a waiter wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// Shared with the right to upgrade; waits among the writers, as only one thread at a time
    /// holds it in this mode.
    Upgradable,
    /// Holds it upgradable, wants it exclusively; always the front of the writers.
    Upgrade,
}

/// One waiter, on its own stack. It starts a cache line, so that the layout of the caller's frame
/// does not decide which of its words share one.
#[repr(align(64))]
pub(crate) struct Node<P: Platform> {
    pub(crate) state: P::AtomicU32,
    pub(crate) kind: Kind,
    /// When it came to queue, ns.
    since: u64,
    /// It was woken to compete, and another thread was faster.
    pub(crate) has_lost: bool,
    /// 1 once it was told to look whether the other side has left.
    pub(crate) has_looked: P::Cell<u8>,
    /// When it was taken off to be granted, ns; 0 if that was not noted.
    pub(crate) woken_at: P::Cell<u64>,
    /// The wake chain: waiters behind this one that its owner wakes when it is granted, and how
    /// many.
    chain: P::Cell<*const ()>,
    chain_length: P::Cell<u32>,
    links: Links<P>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Node<crate::platform::Os>>() == 64, "one cache line");

impl<P: Platform> OnRing<P> for Node<P> {
    fn links(&self) -> &Links<P> {
        &self.links
    }
}

impl<P: Platform> Node<P> {
    pub(crate) fn new(kind: Kind, since: u64, has_lost: bool) -> Self {
        Node {
            state: P::AtomicU32::new(WAITING),
            kind,
            since,
            has_lost,
            has_looked: P::Cell::ZERO,
            woken_at: P::Cell::ZERO,
            chain: P::Cell::ZERO,
            chain_length: P::Cell::ZERO,
            links: Links::NEW,
        }
    }

    /// When it came to queue, ns.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }
}

/// The two lists with their lock.
pub struct Queue<P: Platform> {
    lock: QueueLock<P>,
    readers: Ring<P, Node<P>>,
    writers: Ring<P, Node<P>>,
}

impl<P: Platform> Queue<P> {
    pub(crate) const NEW: Self =
        Queue { lock: QueueLock::NEW, readers: Ring::EMPTY, writers: Ring::EMPTY };

    pub(crate) fn lock(&self) -> LockedQueue<'_, P> {
        LockedQueue { queue: self, locked: self.lock.lock() }
    }

    /// Empties and unlocks it: in the child of a `fork`, where those who waited or had the lock do
    /// not exist.
    ///
    /// # Safety
    /// The calling thread is the only one in its process, and does not have the lock.
    pub(crate) unsafe fn forked(&self) {
        // SAFETY: the calling thread is the process's only one, and does not have the lock, as it
        // promises.
        let locked = unsafe { self.lock.seize() };
        self.readers.forget_all(&locked);
        self.writers.forget_all(&locked);
    }

    /// The same if no thread has the lock.
    pub(crate) fn try_lock(&self) -> Option<LockedQueue<'_, P>> {
        Some(LockedQueue { queue: self, locked: self.lock.try_lock()? })
    }
}

/// The queue with its lock held.
pub struct LockedQueue<'a, P: Platform> {
    queue: &'a Queue<P>,
    locked: Locked<'a, P>,
}

impl<P: Platform> LockedQueue<'_, P> {
    fn ring_of(&self, kind: Kind) -> &Ring<P, Node<P>> {
        if kind == Kind::Read { &self.queue.readers } else { &self.queue.writers }
    }

    /// Adds a waiter behind all others. It must stay where it is until it is off the list.
    pub(crate) fn push(&self, node: &Node<P>) {
        self.ring_of(node.kind).push(&self.locked, node);
    }

    /// Adds a waiter before all others of its list, but behind an upgrader, which holds the lock
    /// already, and behind writers that have waited for longer.
    pub(crate) fn push_front(&self, node: &Node<P>) {
        let ring = self.ring_of(node.kind);
        let oldest = ring.oldest(&self.locked);
        let stays_first = |oldest: &&Node<P>| {
            oldest.kind == Kind::Upgrade || node.kind == Kind::Write && oldest.since < node.since
        };
        if let Some(first) = oldest.filter(stays_first) {
            ring.remove(&self.locked, first);
            self.push_front(node);
            ring.push_front(&self.locked, first);
        } else {
            ring.push_front(&self.locked, node);
        }
    }

    /// Takes a waiter off its list, wherever it stands.
    pub(crate) fn remove(&self, node: &Node<P>) {
        self.ring_of(node.kind).remove(&self.locked, node);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.oldest_reader().is_none() && self.oldest_writer().is_none()
    }

    /// Only this waiter, which is on the queue, waits for more than shared access.
    pub(crate) fn is_only_writer(&self, node: &Node<P>) -> bool {
        self.queue.writers.younger(&self.locked, node).is_none()
            && self.oldest_writer().is_some_and(|oldest| ptr::eq(oldest, node))
    }

    pub(crate) fn oldest_reader(&self) -> Option<&Node<P>> {
        self.queue.readers.oldest(&self.locked)
    }

    /// The front of those that wait for more than shared access.
    pub(crate) fn oldest_writer(&self) -> Option<&Node<P>> {
        self.queue.writers.oldest(&self.locked)
    }

    /// The front of those that wait for exclusive access and do not hold the lock.
    pub(crate) fn oldest_exclusive(&self) -> Option<&Node<P>> {
        self.queue.writers.iter(&self.locked).find(|it| it.kind == Kind::Write)
    }

    /// The thread that holds the lock upgradable and waits for the other readers to leave.
    pub(crate) fn upgrader(&self) -> Option<&Node<P>> {
        self.oldest_writer().filter(|front| front.kind == Kind::Upgrade)
    }

    /// The front of those that wait for upgradable access.
    pub(crate) fn oldest_upgradable(&self) -> Option<&Node<P>> {
        self.queue.writers.iter(&self.locked).find(|it| it.kind == Kind::Upgradable)
    }

    /// The first waiter of this side: the one that keeps time in the other's phase. A thread that
    /// upgrades holds the lock already.
    pub(crate) fn first_of(&self, side: Side) -> Option<&Node<P>> {
        match side {
            Side::Read => self.oldest_reader().or_else(|| self.oldest_upgradable()),
            Side::Write => self.oldest_exclusive(),
        }
    }

    /// A thread waits that can read next to the holders without passing a writer.
    pub(crate) fn may_read_be_joined(&self) -> bool {
        self.oldest_reader().is_some()
            || self.oldest_writer().is_some_and(|front| front.kind == Kind::Upgradable)
    }
}

/// Waiters taken off a queue (or one that stays on it), to be woken when the queue's lock is free
/// again. Chained through their own nodes, so waking allocates nothing.
#[must_use = "waiters that are taken off and not woken sleep for ever"]
pub(crate) struct WakeList<P: Platform> {
    first: *const Node<P>,
    last: *const Node<P>,
    len: u32,
    /// What their nodes say then: [`GRANTED`], or [`WOKEN_DEQUEUED`].
    verdict: u32,
    /// Waiters that stay on their lists and have to look at the clock: one that waits for
    /// exclusive, and one for shared access.
    queued: [*const P::AtomicU32; 2],
}

impl<P: Platform> WakeList<P> {
    pub(crate) fn none() -> Self {
        WakeList {
            first: ptr::null(),
            last: ptr::null(),
            len: 0,
            verdict: GRANTED,
            queued: [ptr::null(); 2],
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Takes `node` off its list, to be woken to start over, as all others of these.
    pub(crate) fn take_to_retry(&mut self, queue: &LockedQueue<'_, P>, node: &Node<P>) {
        debug_assert!(self.first.is_null() || self.verdict == WOKEN_DEQUEUED, "all or none");
        self.verdict = WOKEN_DEQUEUED;
        self.take(queue, node);
    }

    /// Also wakes `node`, which stays on its list and has to look.
    pub(crate) fn appoint(&mut self, node: &Node<P>) {
        // Relaxed: the owner looks at everything else under the queue's lock.
        node.state.store(APPOINTED, Relaxed);
        self.queued[usize::from(node.kind != Kind::Write)] = &node.state;
    }

    /// The same, but only once in each wait.
    pub(crate) fn appoint_once(&mut self, node: &Node<P>) {
        if node.has_looked.get() == 0 {
            node.has_looked.set(1);
            self.appoint(node);
        }
    }

    /// Takes `node` off its list, to be granted the lock.
    pub(crate) fn take(&mut self, queue: &LockedQueue<'_, P>, node: &Node<P>) {
        queue.remove(node);
        if self.first.is_null() {
            self.first = node;
        } else {
            // SAFETY: `last` was taken and is not granted yet, so its owner still waits; it is
            // on no list, so only this thread touches its links.
            unsafe { (*self.last).links.chain(node) };
        }
        self.last = node;
        self.len += 1;
    }

    /// Wakes every waiter taken: the lock is its own, or it starts over. Call it without the
    /// queue's lock.
    pub(crate) fn wake(self) {
        for state in self.queued.into_iter().filter(|state| !state.is_null()) {
            P::unpark(state);
        }
        wake(self.first, self.len, self.verdict);
    }
}

fn wake<P: Platform>(first: *const Node<P>, count: u32, verdict: u32) {
    // Those that are granted the lock wake others: a wake chain.
    let spread = verdict == GRANTED;
    let (mut node, mut left) = (first, count);
    while left > 0 {
        left -= 1;
        let chain = if spread { left.div_ceil(2) } else { 0 };
        left -= chain;
        // SAFETY: invariant 3, none of the `count` waiters is woken yet, so their nodes are alive.
        // Off every list, only this thread touches their links.
        let (state, next) = unsafe {
            let mut next: *const Node<P> = (*node).links.chained();
            (*node).chain.set(next.cast());
            (*node).chain_length.set(chain);
            for _ in 0..if left > 0 { chain } else { 0 } {
                next = (*next).links.chained();
            }
            (&raw const (*node).state, next)
        };
        // Release pairs with the Acquire in `RawRwSem::sleep`: what earlier holders did is
        // visible to the waiter.
        // SAFETY: invariant 3, it was not woken before this store, which is the last access.
        unsafe { (*state).store(verdict, Release) };
        P::unpark(state);
        node = next;
    }
}

impl<P: Platform> Node<P> {
    /// Wakes those that were given to this waiter. Its owner calls it as soon as it is granted.
    pub(crate) fn wake_chain(&self) {
        wake::<P>(self.chain.get().cast(), self.chain_length.get(), GRANTED);
    }

    /// Still on its list: no thread has decided about it.
    pub(crate) fn is_linked(&self, queue: &LockedQueue<'_, P>) -> bool {
        self.links.is_linked(&queue.locked)
    }
}

#[cfg(all(unix, not(miri)))]
#[cfg(test)]
impl<P: Platform> LockedQueue<'_, P> {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        let Queue { readers, writers, .. } = self.queue;
        readers.iter(&self.locked).chain(writers.iter(&self.locked)).count()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::platform::Os;

    #[derive(Debug, Clone)]
    enum Step {
        Push(Kind),
        PushFront(Kind),
        /// Takes off the waiter at this place, counted modulo those that are there.
        Remove(usize),
        TakeReaders(u32),
    }

    fn kind() -> impl Strategy<Value = Kind> {
        prop_oneof![3 => Just(Kind::Read), 2 => Just(Kind::Write), 1 => Just(Kind::Upgradable)]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => kind().prop_map(Step::Push),
            1 => prop_oneof![Just(Kind::Write), Just(Kind::Upgrade)].prop_map(Step::PushFront),
            2 => any::<usize>().prop_map(Step::Remove),
            1 => (0..5u32).prop_map(Step::TakeReaders),
        ]
    }

    /// A list as it should be: names of waiters, oldest first.
    #[derive(Default)]
    struct Model {
        readers: VecDeque<usize>,
        writers: VecDeque<usize>,
    }

    /// Wakes those taken, as `WakeList::wake` and the owners together do, and lists them.
    fn wake_all(granted: WakeList<Os>, nodes: &[Box<Node<Os>>]) -> Vec<usize> {
        let asleep = |node: &Node<Os>| node.state.load(Relaxed) == WAITING;
        let before: Vec<_> = nodes.iter().map(|node| asleep(node)).collect();
        granted.wake();
        loop {
            // Every owner that was woken wakes its chain, once.
            let granted = nodes
                .iter()
                .find(|node| node.state.load(Relaxed) == GRANTED && node.chain_length.get() != 0);
            let Some(granted) = granted else { break };
            granted.wake_chain();
            granted.chain_length.set(0);
        }
        (0..nodes.len()).filter(|&at| before[at] && !asleep(&nodes[at])).collect()
    }

    proptest! {
        #[cfg_attr(miri, ignore = "proptest looks for files, which Miri does not let it see")]
        #[test]
        fn the_queue_keeps_both_lists_in_order(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let queue = Queue::<Os>::NEW;
            let mut nodes: Vec<Box<Node<Os>>> = Vec::new();
            let mut model = Model::default();
            for step in steps {
                let locked = queue.lock();
                match step {
                    Step::Push(kind) => {
                        nodes.push(Box::new(Node::new(kind, 0, false)));
                        let list = match kind {
                            Kind::Read => &mut model.readers,
                            _ => &mut model.writers,
                        };
                        list.push_back(nodes.len() - 1);
                        locked.push(nodes.last().unwrap());
                    }
                    Step::PushFront(kind) => {
                        let front = model.writers.front().copied();
                        let upgrader = front.filter(|&front| nodes[front].kind == Kind::Upgrade);
                        if kind == Kind::Upgrade && upgrader.is_some() {
                            continue; // There is one at most.
                        }
                        nodes.push(Box::new(Node::new(kind, 0, false)));
                        model.writers.insert(upgrader.is_some().into(), nodes.len() - 1);
                        locked.push_front(nodes.last().unwrap());
                    }
                    Step::Remove(at) => {
                        let there: Vec<_> =
                            model.readers.iter().chain(&model.writers).copied().collect();
                        if there.is_empty() {
                            continue;
                        }
                        let gone = there[at % there.len()];
                        model.readers.retain(|&other| other != gone);
                        model.writers.retain(|&other| other != gone);
                        prop_assert!(nodes[gone].is_linked(&locked));
                        locked.remove(&nodes[gone]);
                        prop_assert!(!nodes[gone].is_linked(&locked));
                        nodes[gone].state.store(WOKEN_DEQUEUED, Relaxed);
                    }
                    Step::TakeReaders(most) => {
                        let mut granted = WakeList::none();
                        while let Some(reader) =
                            locked.oldest_reader().filter(|_| granted.len() < most)
                        {
                            granted.take(&locked, reader);
                        }
                        let len = granted.len();
                        let mut taken = wake_all(granted, &nodes);
                        prop_assert_eq!(len as usize, taken.len());
                        let count = (most as usize).min(model.readers.len());
                        taken.sort_unstable();
                        let mut expected: Vec<_> = model.readers.drain(..count).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(taken, expected);
                    }
                }
                let names = |list: &VecDeque<usize>| -> Vec<_> {
                    list.iter().map(|&at| ptr::from_ref(&*nodes[at])).collect()
                };
                prop_assert_eq!(queue.readers.all(&locked.locked), names(&model.readers));
                prop_assert_eq!(queue.writers.all(&locked.locked), names(&model.writers));
                prop_assert_eq!(
                    locked.is_empty(),
                    model.readers.is_empty() && model.writers.is_empty()
                );
            }
        }
    }

    #[test]
    fn a_waiter_that_returns_to_the_front_stays_behind_an_upgrader() {
        let queue = Queue::<Os>::NEW;
        let locked = queue.lock();
        let [upgrader, writer, back] =
            [Kind::Upgrade, Kind::Write, Kind::Write].map(|kind| Node::<Os>::new(kind, 0, false));
        locked.push(&writer);
        locked.push_front(&upgrader);
        locked.push_front(&back);
        assert!(queue.writers.all(&locked.locked).into_iter().eq([
            &raw const upgrader,
            &back,
            &writer
        ]));
    }

    #[test]
    fn writers_that_return_to_the_front_keep_their_order() {
        let queue = Queue::<Os>::NEW;
        let locked = queue.lock();
        let [first, second, third] =
            [1, 2, 3].map(|since| Node::<Os>::new(Kind::Write, since, false));
        let newcomer = Node::<Os>::new(Kind::Write, 9, false);
        locked.push(&newcomer);
        for node in [&second, &third, &first] {
            locked.push_front(node);
        }
        let all = [&first, &second, &third, &newcomer].map(ptr::from_ref);
        assert!(queue.writers.all(&locked.locked).into_iter().eq(all));
    }
}
