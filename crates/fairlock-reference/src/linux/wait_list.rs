//! The waiters of one lock or of several: nodes on the waiters' stacks, in the order of their arrival, under a small lock.
//!
//! A list is in its lock ([`InLock`]), or one of a table that locks find by their address ([`InTable`]). A lock whose list
//! is in a table may be freed as soon as its last user has released it, though another thread is still
//! inside an unlock: that thread looks at the list, and not at the lock unless it finds a waiter there.
//!
//! Invariants
//! 1. A list is read and changed by the holder of its lock alone.
//! 2. A node is on its list from `push` to `remove`, and its owner does not return before that.
//! 3. A thread that takes a node off stores [`GRANTED`] into its state after the last look at the node: from then on the
//!    owner's stack frame may be gone. The wake-up that follows uses the address alone.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::inside::{Links, Locked, OnRing, QueueLock, Ring};
use fairlock::platform::{AtomicCell, Platform};

/// State of a node: its owner waits.
pub(super) const WAITING: u32 = 0;
/// The lock is the owner's, and the node is off the list.
pub(super) const GRANTED: u32 = 1;
/// A writer at the head of the list should try to take the lock; it is still on the list.
pub(super) const WOKEN: u32 = 2;

/// One waiter, on its own stack. It starts a cache line, so that the layout of the caller's frame does not decide what shares it.
#[repr(align(64))]
pub(super) struct Node<P: Platform> {
    pub(super) state: P::AtomicU32,
    pub(super) is_reader: bool,
    /// When it came to queue, ns.
    pub(super) since: u64,
    /// The address of the lock.
    lock: *const (),
    links: Links<P>,
}

impl<P: Platform> OnRing<P> for Node<P> {
    fn links(&self) -> &Links<P> {
        &self.links
    }
}

impl<P: Platform> Node<P> {
    pub(super) fn new(is_reader: bool, lock: *const ()) -> Self {
        let state = P::AtomicU32::new(WAITING);
        Node { state, is_reader, since: P::now(), lock, links: Links::NEW }
    }

    pub(super) fn is_granted(&self) -> bool {
        // Pairs with the Release in `Woken::wake`.
        self.state.load(Acquire) == GRANTED
    }

    pub(super) fn is_on(&self, list: &LockedList<'_, P>) -> bool {
        self.links.is_linked(&list.locked)
    }

    /// For a writer that was granted the lock and is about to be woken. A wake-up from before is void, and with its state
    /// the writer would not sleep until then. The state can only have become `GRANTED` meanwhile, which stays.
    pub(super) fn forget_wake_up(&self) {
        let _ = self.state.compare_exchange(WOKEN, WAITING, Relaxed, Relaxed);
    }
}

/// A list with its lock.
pub struct List<P: Platform> {
    lock: QueueLock<P>,
    nodes: Ring<P, Node<P>>,
}

// SAFETY: the plain cells inside are touched by the holder of the list's lock alone (invariant 1).
unsafe impl<P: Platform> Sync for List<P> {}
// SAFETY: a lock that can be moved is borrowed by no thread, so its list is empty and the pointers in it are null.
unsafe impl<P: Platform> Send for List<P> {}

impl<P: Platform> List<P> {
    #[allow(clippy::declare_interior_mutable_const)] // part of the lock's own constant
    const EMPTY: Self = List { lock: QueueLock::NEW, nodes: Ring::EMPTY };

    /// Locked, by a thread that looks for waiters of the lock at this address.
    pub(super) fn lock(&self, lock: *const ()) -> LockedList<'_, P> {
        LockedList { nodes: &self.nodes, locked: self.lock.lock(), lock }
    }
}

/// The waiters of one lock, with the lock of their list held.
pub(super) struct LockedList<'a, P: Platform> {
    nodes: &'a Ring<P, Node<P>>,
    locked: Locked<'a, P>,
    lock: *const (),
}

impl<P: Platform> LockedList<'_, P> {
    /// The waiter that came first.
    pub(super) fn head(&self) -> Option<&Node<P>> {
        self.own_from(self.nodes.oldest(&self.locked))
    }

    /// The one that came after this one, which is on the list.
    fn after(&self, node: &Node<P>) -> Option<&Node<P>> {
        self.own_from(self.nodes.younger(&self.locked, node))
    }

    /// The first of this lock's waiters from this one on.
    fn own_from<'l>(&'l self, mut node: Option<&'l Node<P>>) -> Option<&'l Node<P>> {
        while let Some(other) = node.filter(|node| node.lock != self.lock) {
            node = self.nodes.younger(&self.locked, other);
        }
        node
    }

    pub(super) fn is_head(&self, node: &Node<P>) -> bool {
        self.head().is_some_and(|head| ptr::eq(head, node))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head().is_none()
    }

    /// Behind all others. It must not move until it is off the list.
    pub(super) fn push(&self, node: &Node<P>) {
        self.nodes.push(&self.locked, node);
    }

    pub(super) fn remove(&self, node: &Node<P>) {
        self.nodes.remove(&self.locked, node);
    }

    /// Takes readers off the list, the first ones, at most this many; and only those before the first writer, if that is
    /// said.
    pub(super) fn take_readers(&self, most: u32, before_writers: bool) -> Woken<P> {
        let mut woken = Woken::none();
        let mut next = self.head();
        while let Some(node) = next.filter(|_| woken.len < most) {
            next = self.after(node);
            if node.is_reader {
                woken.take(self, node);
            } else if before_writers {
                break;
            }
        }
        woken
    }
}

/// Threads to be woken once the list's lock is released.
#[must_use = "waiters that are taken off and not woken sleep for ever"]
pub(super) struct Woken<P: Platform> {
    /// Off the list, the lock theirs, chained by their links.
    first: *const Node<P>,
    last: *const Node<P>,
    len: u32,
    /// A writer that stays on the list and should try.
    writer: *const P::AtomicU32,
}

impl<P: Platform> Woken<P> {
    pub(super) fn none() -> Self {
        Woken { first: ptr::null(), last: ptr::null(), len: 0, writer: ptr::null() }
    }

    /// How many are granted the lock.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Takes `node` off the list, to be granted the lock.
    pub(super) fn take(&mut self, list: &LockedList<'_, P>, node: &Node<P>) {
        list.remove(node);
        if self.first.is_null() {
            self.first = node;
        } else {
            // SAFETY: `last` was taken and is not granted yet, so its owner waits; off the list, only this thread touches
            // its links.
            unsafe { (*self.last).links.chain(node) };
        }
        self.last = node;
        self.len += 1;
    }

    /// Wakes the writer at the head, awake or not, as every release does in Linux (`wake_q_add`): what that costs is part of
    /// what these policies are.
    pub(super) fn writer(_list: &LockedList<'_, P>, node: &Node<P>) -> Self {
        // Relaxed: the owner looks at everything else under the list's lock.
        node.state.store(WOKEN, Relaxed);
        Woken { writer: &node.state, ..Self::none() }
    }

    /// Wakes them one by one. Call it without the list's lock.
    pub(super) fn wake(self) {
        if !self.writer.is_null() {
            P::unpark(self.writer);
        }
        let mut next = self.first;
        for _ in 0..self.len {
            // SAFETY: invariant 3: not woken yet, so alive; off the list, only this thread touches its links. The store,
            // whose Release pairs with `is_granted`, is the last access.
            unsafe {
                let state = &raw const (*next).state;
                next = (*next).links.chained();
                (*state).store(GRANTED, Release);
                P::unpark(state);
            }
        }
    }
}

/// Where the waiters of a lock are.
pub trait Waiters<P: Platform>: Send + Sync + 'static {
    /// Of a free lock.
    #[allow(clippy::declare_interior_mutable_const)] // part of the lock's own constant
    const NONE: Self;

    /// The list of the lock at this address. Touches nothing of the lock unless the list is in it.
    fn list(&self, lock: *const ()) -> &List<P>;

    /// Stands in the lock's word while a thread waits; another one in the child of a `fork`. Not 0, and below 2¹⁶.
    fn generation() -> u64 {
        1
    }
}

/// In the lock itself. Such a lock must outlive every unlock, and the child of a `fork` must not unlock one that has waiters.
pub struct InLock<P: Platform>(List<P>);

impl<P: Platform> Waiters<P> for InLock<P> {
    const NONE: Self = InLock(List::EMPTY);

    #[inline(always)]
    fn list(&self, _lock: *const ()) -> &List<P> {
        &self.0
    }
}

/// In the [table](Table) that `T` has. Such a lock may be freed by its last user, and the child of a `fork` may use one as
/// if no other thread had waited for it. One exception: without `writer_fast_fail`, if another thread was just adding its bias
/// in vain when the `fork` came, the bias stays in the child's lock.
pub struct InTable<T>(PhantomData<fn() -> T>);

/// Has the table of a process.
pub trait HasTable<P: Platform>: 'static {
    /// Always the same one.
    fn table() -> &'static Table<P>;
}

impl<P: Platform, T: HasTable<P>> Waiters<P> for InTable<T> {
    const NONE: Self = InTable(PhantomData);

    fn list(&self, lock: *const ()) -> &List<P> {
        let hash = (lock.addr() as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &T::table().lists[(hash >> (64 - LISTS.ilog2())) as usize]
    }

    fn generation() -> u64 {
        u64::from(T::table().forks.load(Relaxed) % GENERATIONS) + 1
    }
}

const LISTS: usize = 64;
const GENERATIONS: u32 = (1 << 16) - 1;

/// Lists for the waiters of any number of locks.
pub struct Table<P: Platform> {
    lists: [List<P>; LISTS],
    /// How many `fork`s led to this process.
    forks: AtomicU32,
}

impl<P: Platform> Table<P> {
    /// Without a waiter.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub const NEW: Self = Table { lists: [const { List::EMPTY }; LISTS], forks: AtomicU32::new(0) };

    /// In the child of a `fork`: no thread waits. Words of locks still say that some do, with an older
    /// [generation](Waiters::generation).
    ///
    /// # Safety
    /// The calling thread is the only one in its process, and was not in a lock's code at the `fork`.
    pub unsafe fn forked(&self) {
        self.forks.fetch_add(1, Relaxed);
        for list in &self.lists {
            // SAFETY: no thread holds the list's lock, as the caller promises.
            let locked = unsafe { list.lock.seize() };
            list.nodes.forget_all(&locked);
        }
    }
}
