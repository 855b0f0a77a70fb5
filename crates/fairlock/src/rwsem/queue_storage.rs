//! Where a lock keeps its queue: inline, in the lock, or pooled (`queue_pool.rs`), from the moment in which
//! the first waiter queues until the last is off the queue.
//!
//! Invariants
//! 1. The word names a queue exactly while somebody is on it, seen under the lock of that queue. It
//!    changes under that lock only.
//! 2. A thread that holds the queue's lock and knows that the queue is this lock's (by what the pooled
//!    queue says it serves, or because the thread's own node is on it) may touch the lock: there is a
//!    waiter, which keeps the lock alive, until the lock of the queue is released *and* those taken off
//!    are woken. So what is to be noted in the lock when the queue is empty is noted before that.
//! 3. Any other thread that has released the lock may touch only the pooled queue's place that the word
//!    named then, without the queue in it; it may be another lock's by now. What is done to such a place
//!    spoils an estimate of that lock at most.
//! 4. A pooled queue knows its lock from before the word names it until after: whoever finds the word
//!    naming it finds the lock in it, also in the child of a `fork` that came in between.
//! 5. If another lock now is where the first one was, and has acquired the same queue, then it is served
//!    instead. That is no harm: any thread may serve any queue at any time.

use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::compiler_fence;

use super::account::Account;
use super::owner::Owner;
use super::phase_clock::PhaseClock;
use super::queue_pool::{self, HasQueuePool, PooledQueue};
use super::wait_queue::{LockedQueue, Queue};
use super::word::{queue_bits, queue_number};
use crate::line::Line;
use crate::platform::{AtomicCell, PlainCell, Platform};
use crate::slots::{HasRecords, at_front};

/// Where a [`RawRwSem`](super::RawRwSem) keeps what it needs while somebody waits: [`Inline`] or
/// [`Pooled`].
pub trait QueueStorage<P: Platform>: QueueStorageOf<P> {}

/// In the lock itself: 48 bytes of it.
#[repr(C)]
pub struct Inline<P: Platform> {
    queue: Queue<P>,
    line: Line<P>,
    owner: Owner<P>,
    account: Account<P>,
    clock: PhaseClock<P>,
}

/// In a queue that is acquired from the process's pool while somebody waits. 16 bytes are in the lock.
///
/// A lock without a waiter may be freed as soon as its last user has released it, though others may
/// still be inside an unlock that released it before: they leave it alone.
///
/// The pool has at most 8191 queues, of 64 bytes each; it grows with the number of threads that wait at
/// the same time and does not shrink. Threads that would have to wait for an 8192nd lock, or have no
/// memory for a queue, give way and try again until they have the lock or their time is over.
/// Meanwhile the policy does not know of them, so its guarantees are not for them.
///
/// # Examples
/// ```
/// use fairlock::platform::Os;
/// use fairlock::rwsem::Pooled;
/// use fairlock::{RwSem, policy::TimeFair};
/// static LOCK: RwSem<u32, TimeFair, Os, Pooled<Os>> = RwSem::with_policy(7);
/// assert_eq!(*LOCK.read(), 7);
/// ```
pub struct Pooled<P: Platform, B: ReaderBias = Unbiased> {
    owner: Owner<P>,
    account: Account<P>,
    /// Of the lock that is built on this one: how its readers enter.
    bias: B,
    /// Of that lock, too: what it remembers of them. Here so that no padding is wasted.
    history: B::History,
    /// In the lock, as nobody waits yet who stands in it.
    line: Line<P>,
}

/// How readers enter beside this lock, which is to be told when somebody waits for it.
pub trait ReaderBias: Send + Sync + 'static {
    /// What the lock remembers of its readers and writers beside the bias itself.
    type History: Send + Sync + 'static;
    const NEW: Self;
    const NO_HISTORY: Self::History;
    /// Somebody waits for the lock from now on, as its word says. True if readers need not take the lock
    /// while nobody waits.
    fn somebody_queued(&self) -> bool;
    /// Readers need not take the lock.
    fn is_biased(&self) -> bool;
    /// A reader that has not taken the lock reads.
    fn is_read(&self) -> bool;
}

/// Everybody takes the lock itself.
pub struct Unbiased;

impl ReaderBias for Unbiased {
    type History = ();
    const NEW: Self = Unbiased;
    const NO_HISTORY: () = ();
    fn somebody_queued(&self) -> bool {
        false
    }
    fn is_biased(&self) -> bool {
        false
    }
    fn is_read(&self) -> bool {
        false
    }
}

impl<P: Platform, B: ReaderBias> Pooled<P, B> {
    #[inline(always)]
    pub(crate) fn bias(&self) -> &B {
        &self.bias
    }

    #[inline(always)]
    pub(crate) fn history(&self) -> &B::History {
        &self.history
    }
}

// SAFETY: the plain cells inside are the queue's, touched only by the holder of its lock
// (wait_queue.rs, invariant 1); everything else is atomic.
unsafe impl<P: Platform> Sync for Inline<P> {}
// SAFETY: a lock that can be moved is borrowed by nobody, so its queue is empty and the pointers
// in it are null.
unsafe impl<P: Platform> Send for Inline<P> {}

impl<P: HasRecords> QueueStorage<P> for Inline<P> {}
impl<P: HasQueuePool, B: ReaderBias> QueueStorage<P> for Pooled<P, B> {}

/// Where a queue is, with its lock and its clock: all that may be touched by a thread that does not know
/// whether the lock still exists.
pub trait Place<P: Platform>: 'static {
    fn queue(&self) -> &Queue<P>;
    fn clock(&self) -> &PhaseClock<P>;
    /// The queue's number, as it stands in the word.
    fn bits(&self) -> u64;
    /// When somebody queued last, readers did not need to take the lock. A hint.
    fn is_biased(&self) -> bool;
}

/// What [`QueueStorage`] is to this module.
pub trait QueueStorageOf<P: Platform>: Send + Sync + Sized + 'static {
    const NEW: Self;
    const IS_INLINE: bool;
    type Place: Place<P>;

    fn owner(&self) -> &Owner<P>;

    /// What the two sides owe each other.
    fn account(&self) -> &Account<P>;

    /// As of [`ReaderBias`].
    fn is_biased(&self) -> bool {
        false
    }

    /// As of [`ReaderBias`].
    fn is_read(&self) -> bool {
        false
    }

    /// Runs `act` as the [front of the line](Line::at_front).
    fn at_front<R>(&self, until: Option<u64>, act: impl FnOnce() -> R) -> Option<R>;

    /// The place of the queue that a word of this lock names. Does not touch the lock if it is pooled.
    fn place(&self, word: u64) -> &Self::Place;

    /// The queue is that of the lock with this word.
    fn serves(place: &Self::Place, queue: &LockedQueue<'_, P>, word: &P::AtomicU64) -> bool;

    /// A queue for a lock whose word names none, or may do so, locked; none if the pool has none left.
    ///
    /// # Safety
    /// `word` is that of the lock that this is part of, and what it returns is dropped, not forgotten.
    unsafe fn acquire<'a>(&'a self, word: &'a P::AtomicU64) -> Option<OwnQueue<'a, P, Self>>;

    /// Somebody has queued here, and the word says so.
    fn note_queued(&self, _place: &Self::Place) {}

    /// The word does not name the queue any more, or not yet.
    ///
    /// # Safety
    /// `queue` is that of the place, and empty.
    unsafe fn detach(place: &Self::Place, queue: &LockedQueue<'_, P>);

    /// Gives the queue back to the pool.
    ///
    /// # Safety
    /// This thread acquired it, or took its last waiter off, and has detached it since.
    unsafe fn release(place: &Self::Place);
}

/// A lock's own queue, locked by a thread that may touch the lock (invariant 2). If it is empty when this
/// is dropped, it goes back to the pool.
pub struct OwnQueue<'a, P: Platform, L: QueueStorageOf<P>> {
    storage: &'a L,
    place: &'a L::Place,
    queue: ManuallyDrop<LockedQueue<'a, P>>,
    /// The word names the queue, or did so until it became empty.
    is_named: Cell<bool>,
}

impl<'a, P: Platform, L: QueueStorageOf<P>> OwnQueue<'a, P, L> {
    /// The queue in this place, if it is still that of the lock with this word.
    pub(super) fn lock(storage: &'a L, word: &P::AtomicU64, place: &'a L::Place) -> Option<Self> {
        Self::if_own(storage, word, place, place.queue().lock())
    }

    /// The same if nobody has the queue's lock.
    pub(super) fn try_lock(
        storage: &'a L,
        word: &P::AtomicU64,
        place: &'a L::Place,
    ) -> Option<Self> {
        Self::if_own(storage, word, place, place.queue().try_lock()?)
    }

    fn if_own(
        storage: &'a L,
        word: &P::AtomicU64,
        place: &'a L::Place,
        queue: LockedQueue<'a, P>,
    ) -> Option<Self> {
        if !L::serves(place, &queue, word) {
            return None;
        }
        Some(OwnQueue {
            storage,
            place,
            queue: ManuallyDrop::new(queue),
            is_named: Cell::new(true),
        })
    }

    pub(super) fn place(&self) -> &'a L::Place {
        self.place
    }

    pub(super) fn clock(&self) -> &'a PhaseClock<P> {
        self.place.clock()
    }

    /// As in the word.
    pub(super) fn bits(&self) -> u64 {
        self.place.bits()
    }

    /// Whoever waits according to this word does so here, or nobody waits.
    pub(super) fn is_for(&self, word: u64) -> bool {
        self.is_named.get() || queue_number(word) == 0
    }

    /// The word now names this queue.
    pub(super) fn note_named(&self) {
        self.is_named.set(true);
    }

    /// Somebody has queued here.
    pub(super) fn note_queued(&self) {
        self.storage.note_queued(self.place);
    }

    /// The lock keeps the queue when this is dropped.
    pub(super) fn stays(&self) -> bool {
        L::IS_INLINE || !self.queue.is_empty()
    }
}

impl<'a, P: Platform, L: QueueStorageOf<P>> Deref for OwnQueue<'a, P, L> {
    type Target = LockedQueue<'a, P>;
    fn deref(&self) -> &LockedQueue<'a, P> {
        &self.queue
    }
}

impl<P: Platform, L: QueueStorageOf<P>> Drop for OwnQueue<'_, P, L> {
    fn drop(&mut self) {
        let leaves = !self.stays();
        if leaves {
            // SAFETY: it is empty, as `stays` says.
            unsafe { L::detach(self.place, &self.queue) };
        }
        // SAFETY: not used after this.
        unsafe { ManuallyDrop::drop(&mut self.queue) };
        if leaves {
            // SAFETY: detached above, by the thread that held the queue's lock when it became empty.
            unsafe { L::release(self.place) };
        }
    }
}

impl<P: HasRecords> Place<P> for Inline<P> {
    #[inline(always)]
    fn queue(&self) -> &Queue<P> {
        &self.queue
    }
    #[inline(always)]
    fn clock(&self) -> &PhaseClock<P> {
        &self.clock
    }
    #[inline(always)]
    fn bits(&self) -> u64 {
        const { queue_bits(1) }
    }
    #[inline(always)]
    fn is_biased(&self) -> bool {
        false
    }
}

impl<P: HasRecords> QueueStorageOf<P> for Inline<P> {
    const NEW: Self = Inline {
        queue: Queue::NEW,
        line: Line::NEW,
        owner: Owner::NEW,
        account: Account::NEW,
        clock: PhaseClock::NEW,
    };
    const IS_INLINE: bool = true;
    type Place = Self;

    #[inline(always)]
    fn owner(&self) -> &Owner<P> {
        &self.owner
    }
    #[inline(always)]
    fn account(&self) -> &Account<P> {
        &self.account
    }
    fn at_front<R>(&self, until: Option<u64>, act: impl FnOnce() -> R) -> Option<R> {
        at_front(&self.line, until, act)
    }
    #[inline(always)]
    fn place(&self, _word: u64) -> &Self {
        self
    }
    #[inline(always)]
    fn serves(_place: &Self, _queue: &LockedQueue<'_, P>, _word: &P::AtomicU64) -> bool {
        true
    }
    unsafe fn acquire<'a>(&'a self, word: &'a P::AtomicU64) -> Option<OwnQueue<'a, P, Self>> {
        OwnQueue::lock(self, word, self)
    }
    unsafe fn detach(_place: &Self, _queue: &LockedQueue<'_, P>) {}
    unsafe fn release(_place: &Self) {}
}

impl<P: Platform> Place<P> for PooledQueue<P> {
    fn queue(&self) -> &Queue<P> {
        &self.queue
    }
    fn clock(&self) -> &PhaseClock<P> {
        &self.clock
    }
    fn bits(&self) -> u64 {
        queue_bits(self.number)
    }
    fn is_biased(&self) -> bool {
        self.next_or_biased.load(Relaxed) != 0
    }
}

impl<P: HasQueuePool, B: ReaderBias> QueueStorageOf<P> for Pooled<P, B> {
    const NEW: Self = Pooled {
        owner: Owner::NEW,
        account: Account::NEW,
        bias: B::NEW,
        history: B::NO_HISTORY,
        line: Line::NEW,
    };
    const IS_INLINE: bool = false;
    type Place = PooledQueue<P>;

    #[inline(always)]
    fn owner(&self) -> &Owner<P> {
        &self.owner
    }
    #[inline(always)]
    fn account(&self) -> &Account<P> {
        &self.account
    }
    fn at_front<R>(&self, until: Option<u64>, act: impl FnOnce() -> R) -> Option<R> {
        at_front(&self.line, until, act)
    }
    fn is_biased(&self) -> bool {
        self.bias.is_biased()
    }
    fn is_read(&self) -> bool {
        self.bias.is_read()
    }
    fn place(&self, word: u64) -> &PooledQueue<P> {
        P::queue_pool().named(queue_number(word))
    }
    fn serves(place: &PooledQueue<P>, _queue: &LockedQueue<'_, P>, word: &P::AtomicU64) -> bool {
        place.serves.get() == ptr::from_ref(word).cast::<()>()
    }
    unsafe fn acquire<'a>(&'a self, word: &'a P::AtomicU64) -> Option<OwnQueue<'a, P, Self>> {
        let (place, queue) = queue_pool::acquire::<P>()?;
        place.serves.set(ptr::from_ref(word).cast::<()>());
        compiler_fence(Release); // Invariant 4: before the word.
        let (queue, is_named) = (ManuallyDrop::new(queue), Cell::new(false));
        Some(OwnQueue { storage: self, place, queue, is_named })
    }
    fn note_queued(&self, place: &PooledQueue<P>) {
        place.next_or_biased.store(self.bias.somebody_queued().into(), Relaxed);
    }
    unsafe fn detach(place: &PooledQueue<P>, _queue: &LockedQueue<'_, P>) {
        compiler_fence(Release); // Invariant 4: after the word.
        place.serves.set(ptr::null());
    }
    unsafe fn release(place: &PooledQueue<P>) {
        queue_pool::release(place);
    }
}
