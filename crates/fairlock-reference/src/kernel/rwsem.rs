//! The kernel's reader-writer semaphore.
//!
//! ```text
//!   count:  63          8     2         1        0
//!           │  readers  │ HANDOFF │ WAITERS │ WRITER │
//!   owner:  who took it last, with READER_OWNED if to read; 0 once a writer has released it
//! ```
//!
//! A reader adds itself to `count` and looks at what it found; if it may not stay, it goes on to the list of
//! waiters and takes its addition back there. A writer takes a `count` of 0; else it spins on a running
//! writer, one at a time (`spin_queue.rs`), and takes the lock past the list as soon as nobody holds it; else it
//! goes on the list. A release that leaves nobody inside wakes the head of the list: readers are granted
//! the lock, a writer has to take it.
//!
//! After `kernel/locking/rwsem.c` of Linux 5.1 with the first nine or ten patches of "locking/rwsem: Rwsem
//! rearchitecture part 2", v8 (Waiman Long, 2019-05-20), whose tenth is what the study S4 is about. Left out:
//! signals, debugging, downgrading.
//!
//! Invariants
//! 1. Readers are counted in `count` from their addition on; those that were granted the lock are counted
//!    by whoever granted it. `WRITER` is one writer's, who alone takes it back.
//! 2. `WAITERS` is set exactly while the list is not empty, seen under `wait_lock`.
//! 3. The list is read and changed under `wait_lock` alone. A waiter is on it until it is granted the lock
//!    (a reader) or has taken it (a writer).
//! 4. While nobody holds the lock and somebody waits, whoever released it last, or queued last, or a
//!    writer that was woken, is about to look after the head of the list.
//! 5. After a reader's `granted` was set, its node may be gone.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, AtomicInt, PlainCell, Platform};

use super::spin_lock::SpinLock;
use super::spin_queue::SpinQueue;
use super::{Kernel, Unpreempted};

const WRITER: u64 = 1;
const WAITERS: u64 = 1 << 1;
const HANDOFF: u64 = 1 << 2;
const READER: u64 = 1 << 8;
const READERS: u64 = !0 << 8;
const HOLDERS: u64 = WRITER | READERS;

/// Of `owner`: readers took it last; the rest is the number of one of them, plus one.
const READER_OWNED: u64 = 1;

fn as_writer(thread: u64) -> u64 {
    (thread + 1) << 1
}

/// A version of the lock.
pub trait Version: Send + Sync + 'static {
    /// Readers behind a writer on the list are granted the lock, too, when a reader heads it.
    const WAKES_ALL_READERS: bool;
}

/// Before "Wake up almost all readers in wait queue": those up to the first writer.
#[derive(Debug)]
pub struct Before;

impl Version for Before {
    const WAKES_ALL_READERS: bool = false;
}

/// After that patch: readers anywhere on the list, at most 256.
#[derive(Debug)]
pub struct After;

impl Version for After {
    const WAKES_ALL_READERS: bool = true;
}

/// Granted at once at most (`MAX_READERS_WAKEUP`).
const MOST_READERS: u32 = 256;

/// A waiter, on its own stack. What the kernel keeps on the stack is on the first line, what it touches of
/// the thread itself on the second.
#[repr(C, align(64))]
struct Waiter<P: Platform> {
    next: P::Cell<*const ()>,
    prev: P::Cell<*const ()>,
    /// A reader's: 1 once it has the lock.
    granted: P::AtomicU32,
    is_reader: bool,
    thread: u64,
    /// When it has waited for too long, in ticks.
    due: Cell<u64>,
    task: Task<P>,
}

#[repr(C, align(64))]
struct Task<P: Platform> {
    /// A writer's: 1 once it was woken, since it last looked at the lock.
    woken: P::AtomicU32,
    references: P::AtomicU32,
}

impl<P: Platform> Waiter<P> {
    fn new(is_reader: bool, thread: u64, due: u64) -> Self {
        Waiter {
            next: P::Cell::ZERO,
            prev: P::Cell::ZERO,
            granted: P::AtomicU32::new(0),
            is_reader,
            thread,
            due: Cell::new(due),
            task: Task { woken: P::AtomicU32::new(0), references: P::AtomicU32::new(0) },
        }
    }

    fn pointer(&self) -> *const () {
        ptr::from_ref(self).cast()
    }
}

/// The lock without its data. Use it through `lock_api`.
#[repr(C, align(64))]
pub struct RawKernelRwSem<V, K: Kernel> {
    count: <K::Platform as Platform>::AtomicU64,
    owner: <K::Platform as Platform>::AtomicU64,
    spinners: SpinQueue<K::Platform>,
    wait_lock: SpinLock<K::Platform>,
    head: <K::Platform as Platform>::Cell<*const ()>,
    tail: <K::Platform as Platform>::Cell<*const ()>,
    version: PhantomData<V>,
}

/// Who is to be woken once `wait_lock` is released (`wake_q`).
struct WakeList<P: Platform> {
    /// Readers that are counted, chained by `next`.
    readers: *const Waiter<P>,
    writer: *const P::AtomicU32,
    /// A writer that was woken before and has not looked since.
    awake: Option<u64>,
}

/// What is known of a writer on the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Behind,
    First,
    /// First, and for so long that nobody else may take the lock.
    Handoff,
}

/// Whom to wake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wake {
    Any,
    Readers,
}

/// What a spinner finds in `owner`.
#[derive(PartialEq, Eq)]
enum Owner {
    /// Nobody, or a writer that runs.
    Spinnable,
    /// Readers, or a writer that does not run.
    NotSpinnable,
}

impl<V: Version, K: Kernel> RawKernelRwSem<V, K> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    pub const NEW: Self = RawKernelRwSem {
        count: AtomicCell::ZERO,
        owner: AtomicCell::ZERO,
        spinners: SpinQueue::NEW,
        wait_lock: SpinLock::NEW,
        head: PlainCell::ZERO,
        tail: PlainCell::ZERO,
        version: PhantomData,
    };

    // ---- acquire and release ----

    #[inline]
    fn read(&self) {
        if self.count.fetch_add(READER, Acquire) & (WRITER | WAITERS | HANDOFF) != 0 {
            self.read_slow();
        } else {
            self.note_reader();
        }
    }

    #[inline]
    fn write(&self) {
        if self.count.compare_exchange(0, WRITER, Acquire, Relaxed).is_err() {
            self.write_slow();
        }
        self.note_writer();
    }

    #[inline]
    fn unlock_read(&self) {
        let count = self.count.fetch_sub(READER, Release) - READER;
        if count & (HOLDERS | WAITERS) == WAITERS {
            self.wake_head();
        }
    }

    #[inline]
    fn unlock_write(&self) {
        self.owner.store(0, Relaxed);
        if self.count.fetch_sub(WRITER, Release) & WAITERS != 0 {
            self.wake_head();
        }
    }

    fn note_reader(&self) {
        self.owner.store(as_writer(K::current()) | READER_OWNED, Relaxed);
    }

    fn note_writer(&self) {
        self.owner.store(as_writer(K::current()), Relaxed);
    }

    #[cold]
    fn wake_head(&self) {
        self.locked(|list| if list.is_empty() { WakeList::none() } else { list.mark(Wake::Any) })
            .wake::<K>();
    }

    fn locked<R>(&self, section: impl FnOnce(List<'_, V, K>) -> R) -> R {
        self.wait_lock.with::<K, R>(|| section(List(self)))
    }

    // ---- readers that wait ----

    #[cold]
    fn read_slow(&self) {
        let waiter = Waiter::new(true, K::current(), K::ticks() + K::ticks_until_handoff());
        let queued = self.locked(|list| {
            let is_first = list.is_empty();
            if is_first && self.count.load(Acquire) & (WRITER | HANDOFF) == 0 {
                // It is counted already.
                return None;
            }
            list.push(&waiter);
            let flag = if is_first { WAITERS } else { 0 };
            let adjustment = flag.wrapping_sub(READER);
            let count = self.count.fetch_add(adjustment, Relaxed).wrapping_add(adjustment);
            let is_due = count & HOLDERS == 0 || count & WRITER == 0 && is_first;
            Some(if is_due { list.mark(Wake::Any) } else { WakeList::none() })
        });
        let Some(woken) = queued else {
            return self.note_reader();
        };
        woken.wake::<K>();
        // Acquire pairs with the Release of `WakeList::wake`.
        while waiter.granted.load(Acquire) == 0 {
            K::Platform::park(&waiter.granted, 0, None);
            K::has_slept();
        }
    }

    // ---- writers that wait ----

    #[cold]
    fn write_slow(&self) {
        if self.spin() {
            return;
        }
        let waiter = Waiter::new(false, K::current(), K::ticks() + K::ticks_until_handoff());
        let (mut place, woken) = self.locked(|list| {
            let is_first = list.is_empty();
            list.push(&waiter);
            if is_first {
                self.count.fetch_or(WAITERS, Relaxed);
                return (Place::First, WakeList::none());
            }
            let count = self.count.load(Relaxed);
            let woken = match () {
                () if count & WRITER != 0 => WakeList::none(),
                // Readers hold it: others may join them.
                () if count & READERS != 0 => list.mark(Wake::Readers),
                () => list.mark(Wake::Any),
            };
            (Place::Behind, woken)
        });
        woken.wake::<K>();
        while !self.locked(|list| list.try_write(&waiter, place)) {
            loop {
                // Before the look at `count` (`set_current_state`): a wake-up that comes after that look
                // stays. Acquire pairs with the Release in `List::mark`.
                while waiter.task.woken.swap(0, Acquire) == 0 {
                    K::Platform::park(&waiter.task.woken, 0, None);
                    K::has_slept();
                }
                if place == Place::Handoff {
                    break;
                }
                if place == Place::Behind && self.head.get() == waiter.pointer() {
                    place = Place::First;
                }
                if self.count.load(Relaxed) & HOLDERS == 0 {
                    break;
                }
                if place == Place::First && K::ticks() > waiter.due.get() {
                    place = Place::Handoff;
                    break;
                }
            }
        }
    }

    /// Spins on a running writer and takes the lock past the list; false if it has to queue.
    fn spin(&self) -> bool {
        let _unpreempted = Unpreempted::<K>::new();
        if K::is_to_yield() {
            return false;
        }
        let owner = self.owner.load(Relaxed);
        if owner != 0 && (owner & READER_OWNED != 0 || !self.runs(owner)) {
            return false;
        }
        self.spinners.at_front(|| {
            while self.spin_on_owner() == Owner::Spinnable {
                if self.take_past_list() {
                    return true;
                }
                if K::is_to_yield() && self.owner.load(Relaxed) == 0 {
                    return false;
                }
                K::relax();
            }
            false
        })
    }

    fn runs(&self, owner: u64) -> bool {
        K::is_on_cpu((owner >> 1) - 1)
    }

    fn spin_on_owner(&self) -> Owner {
        let first = self.owner.load(Relaxed);
        if first & READER_OWNED != 0 {
            return Owner::NotSpinnable;
        }
        let mut owner = first;
        while owner != 0 && owner == first {
            if K::is_to_yield() || !self.runs(owner) {
                return Owner::NotSpinnable;
            }
            K::relax();
            owner = self.owner.load(Relaxed);
        }
        if owner & READER_OWNED != 0 {
            return Owner::NotSpinnable;
        }
        // Nobody is inside, and it is reserved for the head of the list.
        let is_reserved = self.count.load(Relaxed) & (HOLDERS | HANDOFF) == HANDOFF;
        if is_reserved { Owner::NotSpinnable } else { Owner::Spinnable }
    }

    fn take_past_list(&self) -> bool {
        let mut count = self.count.load(Relaxed);
        while count & (HOLDERS | HANDOFF) == 0 {
            match self.count.compare_exchange_weak(count, count | WRITER, Acquire, Relaxed) {
                Ok(_) => {
                    // While the next one still stands behind this one.
                    self.note_writer();
                    return true;
                }
                Err(found) => count = found,
            }
        }
        false
    }
}

/// The list of waiters, with `wait_lock` held.
struct List<'a, V, K: Kernel>(&'a RawKernelRwSem<V, K>);

impl<V: Version, K: Kernel> List<'_, V, K> {
    fn is_empty(&self) -> bool {
        self.0.head.get().is_null()
    }

    /// The waiter at this address.
    fn at(&self, pointer: *const ()) -> Option<&Waiter<K::Platform>> {
        // SAFETY: invariant 3: it is on the list, so its owner waits; `self` is `wait_lock`.
        unsafe { pointer.cast::<Waiter<K::Platform>>().as_ref() }
    }

    fn push(&self, waiter: &Waiter<K::Platform>) {
        let last = self.0.tail.get();
        waiter.prev.set(last);
        waiter.next.set(ptr::null());
        match self.at(last) {
            Some(last) => last.next.set(waiter.pointer()),
            None => self.0.head.set(waiter.pointer()),
        }
        self.0.tail.set(waiter.pointer());
    }

    fn remove(&self, waiter: &Waiter<K::Platform>) {
        let (prev, next) = (waiter.prev.get(), waiter.next.get());
        match self.at(prev) {
            Some(prev) => prev.next.set(next),
            None => self.0.head.set(next),
        }
        match self.at(next) {
            Some(next) => next.prev.set(prev),
            None => self.0.tail.set(prev),
        }
    }

    /// A queued writer's attempt (`rwsem_try_write_lock`).
    fn try_write(&self, waiter: &Waiter<K::Platform>, place: Place) -> bool {
        let sem = self.0;
        let mut count = sem.count.load(Relaxed);
        let is_mine = loop {
            let is_reserved = count & HANDOFF != 0;
            if is_reserved && place == Place::Behind {
                return false;
            }
            let (next, is_mine) = if count & HOLDERS != 0 {
                if is_reserved || place != Place::Handoff {
                    return false;
                }
                (count | HANDOFF, false)
            } else {
                let is_alone =
                    sem.head.get() == waiter.pointer() && sem.tail.get() == waiter.pointer();
                let gone = if is_alone { HANDOFF | WAITERS } else { HANDOFF };
                ((count | WRITER) & !gone, true)
            };
            match sem.count.compare_exchange_weak(count, next, Acquire, Relaxed) {
                Ok(_) => break is_mine,
                Err(found) => count = found,
            }
        };
        if is_mine {
            self.remove(waiter);
        }
        is_mine
    }

    /// Grants the lock to readers at the head of the list, or marks the writer there to be woken
    /// (`rwsem_mark_wake`).
    fn mark(&self, wake: Wake) -> WakeList<K::Platform> {
        let sem = self.0;
        let mut woken = WakeList::none();
        let Some(head) = self.at(sem.head.get()) else { return woken };
        if !head.is_reader {
            if wake == Wake::Any {
                head.task.references.fetch_add(1, Relaxed);
                if head.task.woken.swap(1, Release) == 0 {
                    woken.writer = &head.task.woken;
                } else {
                    woken.awake = Some(head.thread);
                }
            }
            return woken;
        }
        // One reader first: if a writer was faster, there is nothing to count.
        let before = sem.count.fetch_add(READER, Acquire);
        if before & WRITER != 0 {
            let is_due = before & HANDOFF == 0 && K::ticks() > head.due.get();
            let handoff = if is_due { HANDOFF } else { 0 };
            sem.count.fetch_add(handoff.wrapping_sub(READER), Relaxed);
            return woken;
        }
        sem.note_reader();
        let (mut last, mut count) = (None::<&Waiter<K::Platform>>, 0);
        let mut next = sem.head.get();
        while let Some(waiter) = self.at(next) {
            next = waiter.next.get();
            if !waiter.is_reader {
                if V::WAKES_ALL_READERS {
                    continue;
                }
                break;
            }
            self.remove(waiter);
            waiter.next.set(ptr::null());
            match last {
                Some(last) => last.next.set(waiter.pointer()),
                None => woken.readers = waiter,
            }
            last = Some(waiter);
            count += 1;
            if count == MOST_READERS {
                break;
            }
        }
        let mut adjustment = u64::from(count - 1) * READER;
        if self.is_empty() {
            adjustment = adjustment.wrapping_sub(WAITERS);
        }
        if sem.count.load(Relaxed) & HANDOFF != 0 {
            adjustment = adjustment.wrapping_sub(HANDOFF);
        }
        if adjustment != 0 {
            sem.count.fetch_add(adjustment, Relaxed);
        }
        // Each is referred to until it is woken (`get_task_struct`, `wake_q_add`).
        let mut next: *const () = woken.readers.cast();
        while let Some(waiter) = self.at(next) {
            waiter.task.references.fetch_add(1, Relaxed);
            next = waiter.next.get();
        }
        woken
    }
}

impl<P: Platform> WakeList<P> {
    fn none() -> Self {
        WakeList { readers: ptr::null(), writer: ptr::null(), awake: None }
    }

    /// Wakes them one by one; without `wait_lock`.
    fn wake<K: Kernel<Platform = P>>(self) {
        let mut reader = self.readers;
        while !reader.is_null() {
            // SAFETY: off the list and not granted yet, so its owner waits for the store below. From then
            // on only the word's address is used (invariant 5).
            let granted = unsafe {
                let (granted, next) = (&raw const (*reader).granted, (*reader).next.get());
                reader = next.cast();
                (*granted).store(1, Release);
                granted
            };
            P::unpark(granted);
        }
        if !self.writer.is_null() {
            P::unpark(self.writer);
        }
        if let Some(thread) = self.awake {
            K::wake_in_vain(thread);
        }
    }
}

// SAFETY: the list's ends are read and changed under `wait_lock` alone (invariant 3), but for a look at the
// head by its own waiter.
unsafe impl<V: Version, K: Kernel> Send for RawKernelRwSem<V, K> {}
// SAFETY: as above.
unsafe impl<V: Version, K: Kernel> Sync for RawKernelRwSem<V, K> {}

// SAFETY: invariants 1 and 3: `WRITER` is set only where nobody is counted, and readers stay counted only where
// it is not set. Every way to acquire is Acquire, both ways to release are Release. Guards are inert.
unsafe impl<V: Version, K: Kernel> fairlock::lock_api::RawRwLock for RawKernelRwSem<V, K> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = Self::NEW;
    type SharedGuard = GuardNoSend;
    type ExclusiveGuard = GuardNoSend;

    fn lock_shared(&self) -> GuardNoSend {
        self.read();
        GuardNoSend::new()
    }

    fn try_lock_shared(&self) -> Option<GuardNoSend> {
        let mut count = self.count.load(Relaxed);
        while count & (WRITER | WAITERS | HANDOFF) == 0 {
            match self.count.compare_exchange_weak(count, count + READER, Acquire, Relaxed) {
                Ok(_) => {
                    self.note_reader();
                    return Some(GuardNoSend::new());
                }
                Err(found) => count = found,
            }
        }
        None
    }

    unsafe fn unlock_shared(&self, _guard: GuardNoSend) {
        self.unlock_read();
    }

    fn lock_exclusive(&self) -> GuardNoSend {
        self.write();
        GuardNoSend::new()
    }

    fn try_lock_exclusive(&self) -> Option<GuardNoSend> {
        self.count.compare_exchange(0, WRITER, Acquire, Relaxed).ok()?;
        self.note_writer();
        Some(GuardNoSend::new())
    }

    unsafe fn unlock_exclusive(&self, _guard: GuardNoSend) {
        self.unlock_write();
    }

    fn is_locked(&self) -> bool {
        self.count.load(Relaxed) & HOLDERS != 0
    }

    fn is_locked_exclusive(&self) -> bool {
        self.count.load(Relaxed) & WRITER != 0
    }
}
