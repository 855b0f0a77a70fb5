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
//! After `kernel/locking/rwsem.c`; [`Version`] says of which Linux. [`Linux5_1`] and [`Linux5_2`] are 5.1 with the
//! first nine and the first ten patches of "locking/rwsem: Rwsem rearchitecture part 2", v8 (Waiman Long,
//! 2019-05-20), whose tenth is what the study S4 is about; [`Linux5_11`] is S0's.
//!
//! What differs from the kernel, and why
//! * No signals, no debugging, no downgrading, no real-time waiters: no table depends on them.
//! * A waiter has a word to sleep on, `granted` or `woken`, where the kernel has the thread's state. A
//!   writer's is set when it is put on the list of those to be woken, not when that is worked off: the
//!   waiter, on its own stack, may be gone by then.
//! * What a wake-up touches of the woken thread beside its state and its references (`pi_lock`, `wake_q`) is
//!   part of what the machine says that a wake-up costs.
//! * A spinner that should yield its CPU while it is in the queue of spinners stays there; see `spin_queue.rs`.
//! * A turn of a spin on readers may last longer than the kernel's; see [`Kernel::TURNS_BEFORE_CLOCK`].
//!
//! Invariants
//! 1. Readers are counted in `count` from their addition on; those that were granted the lock are counted
//!    by whoever granted it. `WRITER` is one writer's, who alone takes it back.
//! 2. `WAITERS` is set exactly while the list is not empty, seen under `wait_lock`.
//! 3. The list is read and changed under `wait_lock` alone, but for a look at its head by a waiter that wants
//!    to know whether it is the head. A waiter is on the list until it is granted the lock (a reader) or has
//!    taken it (a writer).
//! 4. While nobody holds the lock and somebody waits, whoever released it last, or queued last, or a
//!    writer that was woken, is about to look after the head of the list.
//! 5. A waiter lives as long as `wait_list.rs` says.

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, AtomicInt, PlainCell, Platform};

use super::spin_lock::SpinLock;
use super::spin_queue::SpinQueue;
use super::wait_list::{Held, WaitList, Waiter};
use super::{Kernel, Unpreempted};

const WRITER: u64 = 1;
const WAITERS: u64 = 1 << 1;
const HANDOFF: u64 = 1 << 2;
const READER: u64 = 1 << 8;
const READERS: u64 = !0 << 8;
const HOLDERS: u64 = WRITER | READERS;

/// Of `owner`: readers took it last; the rest is the number of one of them, plus one.
const READER_OWNED: u64 = 1;
/// Of `owner`: no writer spins on these readers. Versions that spin on readers only.
const NOT_SPINNABLE: u64 = 1 << 1;

fn as_writer(thread: u64) -> u64 {
    (thread + 1) << 2
}

/// A version of the lock.
pub trait Version: Send + Sync + 'static {
    /// Readers behind a writer on the list are granted the lock, too, when a reader heads it; at most 256 at
    /// once ("Wake up almost all readers in wait queue").
    const WAKES_ALL_READERS: bool;
    /// What came with Linux 5.3: writers spin on readers, for 10 µs and half a microsecond for each of them, 25 µs at
    /// most; then nobody spins until all readers have left. The head of the list spins on a writer once the lock is
    /// reserved for it.
    const SPINS_ON_READERS: bool;
    /// A reader takes the lock past the list unless a writer has it or it is reserved, and unless it would join other
    /// readers. One that is alone wakes the readers at the head.
    const READERS_STEAL: bool;
}

macro_rules! versions {
    ($($(#[$doc:meta])* $name:ident: $all:literal, $on_readers:literal, $steal:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl Version for $name {
            const WAKES_ALL_READERS: bool = $all;
            const SPINS_ON_READERS: bool = $on_readers;
            const READERS_STEAL: bool = $steal;
        }
    )*};
}

versions! {
    /// Before "Wake up almost all readers in wait queue": a wake-up takes the readers up to the first writer.
    Linux5_1: false, false, false;
    /// After that patch: readers anywhere on the list, at most 256.
    Linux5_2: true, false, false;
    /// Linux 5.11 and later: readers steal, writers spin on readers.
    Linux5_11: true, true, true;
    /// The same, but readers queue whenever somebody waits, as a patch of 2026 proposes.
    NoReaderSteal: true, true, false;
}

/// Granted at once at most (`MAX_READERS_WAKEUP`).
const MOST_READERS: u64 = 256;

/// The lock without its data. Use it through `lock_api`.
#[repr(C, align(64))]
pub struct RawKernelRwSem<V, K: Kernel> {
    count: <K::Platform as Platform>::AtomicU64,
    owner: <K::Platform as Platform>::AtomicU64,
    spinners: SpinQueue<K::Platform>,
    waiters: WaitList<SpinLock<K::Platform>, K::Platform>,
    version: PhantomData<V>,
}

/// Who is to be woken once `wait_lock` is released (`wake_q`).
struct WakeList<P: Platform> {
    /// What readers sleep on that have the lock now, and perhaps have left already (invariant 5).
    readers: Vec<*const P::AtomicU32>,
    /// What a writer sleeps on, which has perhaps left already.
    writer: Option<*const P::AtomicU32>,
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
    /// Readers, by one that has the lock.
    Beside,
}

/// What a spinner finds in `owner`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Nobody,
    Writer,
    Readers,
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
        waiters: WaitList::NEW,
        version: PhantomData,
    };

    // ---- acquire and release ----

    #[inline]
    fn read(&self) {
        let found = self.count.fetch_add(READER, Acquire);
        if found & (WRITER | WAITERS | HANDOFF) != 0 {
            self.read_slow(found + READER);
        } else {
            self.note_reader(K::current());
        }
    }

    #[inline]
    fn write(&self) {
        if self.count.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok() {
            return self.note_writer();
        }
        self.write_slow();
        if !V::SPINS_ON_READERS {
            // The slow path has done it before others could look.
            self.note_writer();
        }
    }

    #[inline]
    fn unlock_read(&self) {
        let count = self.count.fetch_sub(READER, Release) - READER;
        if count & (HOLDERS | WAITERS) == WAITERS {
            self.allow_spinning();
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

    fn note_reader(&self, thread: u64) {
        let kept = if V::SPINS_ON_READERS { self.owner.load(Relaxed) & NOT_SPINNABLE } else { 0 };
        self.owner.store(as_writer(thread) | READER_OWNED | kept, Relaxed);
    }

    fn note_writer(&self) {
        self.owner.store(as_writer(K::current()), Relaxed);
    }

    fn waiter(is_reader: bool) -> Waiter<K::Platform> {
        let waiter = Waiter::new(is_reader, K::current());
        waiter.due.set(K::ticks() + K::ticks_until_handoff());
        waiter
    }

    #[cold]
    fn wake_head(&self) {
        self.wake(Wake::Any);
    }

    /// Wakes somebody if anybody waits.
    fn wake(&self, whom: Wake) {
        let list = self.lock_list();
        let woken = if list.is_empty() { WakeList::none() } else { list.mark(whom) };
        drop(list);
        woken.wake::<K>();
    }

    fn lock_list(&self) -> List<'_, V, K> {
        List { sem: self, waiters: self.waiters.lock::<K>() }
    }

    // ---- readers that wait ----

    /// `count` is what this reader made of it.
    #[cold]
    fn read_slow(&self, count: u64) {
        if V::READERS_STEAL && self.read_past_list(count) {
            return;
        }
        let waiter = Self::waiter(true);
        let list = self.lock_list();
        let is_first = list.is_empty();
        if is_first && self.count.load(Acquire) & (WRITER | HANDOFF) == 0 {
            // It is counted already.
            drop(list);
            return self.note_reader(K::current());
        }
        list.push(&waiter);
        let flag = if is_first { WAITERS } else { 0 };
        let adjustment = flag.wrapping_sub(READER);
        let count = self.count.fetch_add(adjustment, Relaxed).wrapping_add(adjustment);
        if count & HOLDERS == 0 {
            self.allow_spinning();
        }
        let is_due = count & HOLDERS == 0 || count & WRITER == 0 && is_first;
        let woken = if is_due { list.mark(Wake::Any) } else { WakeList::none() };
        drop(list);
        woken.wake::<K>();
        waiter.sleep_until_granted::<K>();
    }

    /// A reader's attempt to stay although somebody waits; `count` is what it made of it.
    fn read_past_list(&self, count: u64) -> bool {
        let owner = self.owner.load(Relaxed);
        let readers = count / READER;
        // A crowd of readers would keep the waiters out for ever.
        let is_crowd = owner & READER_OWNED != 0 && readers > 1 && count & WRITER == 0;
        if is_crowd || count & (WRITER | HANDOFF) != 0 {
            return false;
        }
        self.note_reader(K::current());
        if readers == 1 && count & WAITERS != 0 {
            self.wake(Wake::Beside);
        }
        true
    }

    // ---- writers that wait ----

    #[cold]
    fn write_slow(&self) {
        if self.spin() {
            return;
        }
        let waiter = Self::waiter(false);
        let mut list = self.lock_list();
        let mut place = if list.is_empty() { Place::First } else { Place::Behind };
        list.push(&waiter);
        if place == Place::First {
            self.count.fetch_or(WAITERS, Relaxed);
        } else {
            let count = self.count.load(Relaxed);
            let woken = if count & WRITER != 0 {
                WakeList::none()
            } else if count & READERS != 0 {
                // Readers hold it: others may join them.
                list.mark(Wake::Readers)
            } else {
                self.allow_spinning();
                list.mark(Wake::Any)
            };
            if !woken.is_empty() {
                drop(list);
                woken.wake::<K>();
                list = self.lock_list();
            }
        }
        waiter.begin_to_sleep();
        while !list.try_write(&waiter, place) {
            drop(list);
            // The lock is reserved for this writer. If the owner is about to leave, there is no need to sleep.
            let is_handed = V::SPINS_ON_READERS
                && place == Place::Handoff
                && self.spin_on_owner() == Owner::Nobody;
            if !is_handed {
                self.sleep(&waiter, &mut place);
            }
            list = self.lock_list();
        }
        list.remove(&waiter);
    }

    /// Until there is something to try.
    fn sleep(&self, waiter: &Waiter<K::Platform>, place: &mut Place) {
        loop {
            // It takes the wake-up back before the look at `count`: one that comes after that look stays.
            waiter.sleep::<K>();
            if *place == Place::Handoff {
                return;
            }
            if *place == Place::Behind && self.waiters.is_head(waiter) {
                *place = Place::First;
            }
            if self.count.load(Relaxed) & HOLDERS == 0 {
                return;
            }
            if *place == Place::First && K::ticks() > waiter.due.get() {
                *place = Place::Handoff;
                return;
            }
        }
    }

    // ---- writers that spin ----

    /// Spins on the owner and takes the lock past the list; false if this writer has to queue.
    fn spin(&self) -> bool {
        let _unpreempted = Unpreempted::<K>::new();
        if K::is_to_yield() {
            return false;
        }
        let owner = self.owner.load(Relaxed);
        match Self::state_of(owner) {
            Owner::NotSpinnable => return false,
            Owner::Writer if !Self::runs(owner) => return false,
            _ => {}
        }
        self.spinners.at_front(|| self.spin_at_front())
    }

    fn spin_at_front(&self) -> bool {
        let mut before = Owner::Nobody;
        let (mut turns, mut end) = (0, 0);
        loop {
            let state = self.spin_on_owner();
            if state == Owner::NotSpinnable {
                return false;
            }
            if self.take_past_list() {
                return true;
            }
            if state == Owner::Readers {
                if before != Owner::Readers {
                    if self.owner.load(Relaxed) & NOT_SPINNABLE != 0 {
                        return false;
                    }
                    end = self.end_of_spin_on_readers();
                    turns = 0;
                    // That has read words anew, whose change since the attempt `relax` would miss.
                    before = state;
                    continue;
                }
                turns += 1;
                if turns % K::TURNS_BEFORE_CLOCK == 0 && K::Platform::now() > end {
                    self.forbid_spinning();
                    return false;
                }
            }
            if state != Owner::Writer && K::is_to_yield() {
                return false;
            }
            before = state;
            K::relax();
        }
    }

    fn state_of(owner: u64) -> Owner {
        match owner {
            0 => Owner::Nobody,
            _ if owner & NOT_SPINNABLE != 0 => Owner::NotSpinnable,
            _ if owner & READER_OWNED == 0 => Owner::Writer,
            _ if V::SPINS_ON_READERS => Owner::Readers,
            _ => Owner::NotSpinnable,
        }
    }

    fn runs(owner: u64) -> bool {
        K::is_on_cpu((owner >> 2) - 1)
    }

    /// Spins while one writer has the lock; says who comes then.
    fn spin_on_owner(&self) -> Owner {
        let first = self.owner.load(Relaxed);
        let state = Self::state_of(first);
        if state != Owner::Writer {
            return state;
        }
        loop {
            // Somebody on the list has it reserved; who spins would be in its way for nothing.
            if !V::SPINS_ON_READERS && self.count.load(Relaxed) & HANDOFF != 0 {
                return Owner::NotSpinnable;
            }
            let owner = self.owner.load(Relaxed);
            if owner != first {
                return Self::state_of(owner);
            }
            if K::is_to_yield() || !Self::runs(first) {
                return Owner::NotSpinnable;
            }
            K::relax();
        }
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

    /// When a spin that begins now gives up readers.
    fn end_of_spin_on_readers(&self) -> u64 {
        /// In µs: (20 + readers) / 2.
        const MOST_READERS: u64 = 30;
        let readers = (self.count.load(Relaxed) / READER).min(MOST_READERS);
        K::Platform::now() + (20 + readers) * 1_000 / 2
    }

    /// Readers have it for so long that nobody should spin until they have left.
    fn forbid_spinning(&self) {
        let mut owner = self.owner.load(Relaxed);
        while owner & (READER_OWNED | NOT_SPINNABLE) == READER_OWNED {
            match self.owner.compare_exchange(owner, owner | NOT_SPINNABLE, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(found) => owner = found,
            }
        }
    }

    /// They have left.
    fn allow_spinning(&self) {
        if V::SPINS_ON_READERS && self.owner.load(Relaxed) & NOT_SPINNABLE != 0 {
            self.owner.fetch_and(!NOT_SPINNABLE, Relaxed);
        }
    }
}

/// The list of waiters, with `wait_lock` held.
struct List<'a, V: Version, K: Kernel> {
    sem: &'a RawKernelRwSem<V, K>,
    waiters: Held<'a, SpinLock<K::Platform>, K>,
}

impl<'a, V: Version, K: Kernel> Deref for List<'a, V, K> {
    type Target = Held<'a, SpinLock<K::Platform>, K>;
    fn deref(&self) -> &Self::Target {
        &self.waiters
    }
}

/// Readers taken off the list, chained by `next`.
struct Readers<P: Platform> {
    first: *const (),
    last: *const Waiter<P>,
    number: u64,
}

impl<V: Version, K: Kernel> List<'_, V, K> {
    /// A queued writer's attempt (`rwsem_try_write_lock`). One that succeeds is still on the list.
    fn try_write(&self, waiter: &Waiter<K::Platform>, place: Place) -> bool {
        let sem = self.sem;
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
                let gone = if self.is_alone(waiter) { HANDOFF | WAITERS } else { HANDOFF };
                ((count | WRITER) & !gone, true)
            };
            match sem.count.compare_exchange_weak(count, next, Acquire, Relaxed) {
                Ok(_) => break is_mine,
                Err(found) => count = found,
            }
        };
        if is_mine {
            sem.note_writer();
        }
        is_mine
    }

    /// Grants the lock to readers at the head of the list, or marks the writer there to be woken
    /// (`rwsem_mark_wake`). The list is not empty.
    fn mark(&self, wake: Wake) -> WakeList<K::Platform> {
        let sem = self.sem;
        let mut woken = WakeList::none();
        let Some(head) = self.at(self.head()) else { return woken };
        if !head.is_reader {
            if wake == Wake::Any {
                head.task.references.fetch_add(1, Relaxed);
                if head.mark_woken() {
                    woken.writer = Some(&raw const head.task.woken);
                } else {
                    woken.awake = Some(head.thread);
                }
            }
            return woken;
        }
        if V::SPINS_ON_READERS {
            // The kernel looks whether they are too many for `count`.
            sem.count.load(Relaxed);
        }
        let mut counted = 0;
        if wake != Wake::Beside {
            // One reader first: if a writer was faster, there is nothing to count.
            counted = 1;
            let before = sem.count.fetch_add(READER, Acquire);
            if before & WRITER != 0 {
                let is_due = before & HANDOFF == 0 && K::ticks() > head.due.get();
                let handoff = if is_due { HANDOFF } else { 0 };
                sem.count.fetch_add(handoff.wrapping_sub(READER), Relaxed);
                return woken;
            }
            sem.note_reader(head.thread);
        }
        let readers = if V::WAKES_ALL_READERS { self.pick_readers() } else { self.cut_readers() };
        let mut adjustment = (readers.number - counted) * READER;
        if self.is_empty() {
            adjustment = adjustment.wrapping_sub(WAITERS);
        }
        if sem.count.load(Relaxed) & HANDOFF != 0 {
            adjustment = adjustment.wrapping_sub(HANDOFF);
        }
        if adjustment != 0 {
            sem.count.fetch_add(adjustment, Relaxed);
        }
        // All are counted: the first may leave while the last is still to be granted the lock.
        let mut next = readers.first;
        while let Some(waiter) = self.at(next) {
            next = waiter.next.get();
            waiter.task.references.fetch_add(1, Relaxed);
            woken.readers.push(&raw const waiter.granted);
            // Release pairs with the Acquire in `sleep_until_granted`. The last access to this waiter.
            waiter.granted.store(1, Release);
        }
        woken
    }

    /// Takes the readers up to the first writer off the list.
    fn cut_readers(&self) -> Readers<K::Platform> {
        let mut readers = Readers::none();
        readers.first = self.head();
        let mut next = readers.first;
        while let Some(waiter) = self.at(next).filter(|waiter| waiter.is_reader) {
            next = waiter.next.get();
            readers.last = waiter;
            readers.number += 1;
        }
        self.end_chain(&readers);
        self.begin_at(next);
        readers
    }

    /// Takes readers off the list wherever they stand, at most [`MOST_READERS`].
    fn pick_readers(&self) -> Readers<K::Platform> {
        let mut readers = Readers::none();
        let mut next = self.head();
        while let Some(waiter) = self.at(next) {
            next = waiter.next.get();
            if !waiter.is_reader {
                continue;
            }
            self.remove(waiter);
            match self.at(readers.last.cast()) {
                Some(last) => last.next.set(waiter.pointer()),
                None => readers.first = waiter.pointer(),
            }
            readers.last = waiter;
            readers.number += 1;
            if readers.number == MOST_READERS {
                break;
            }
        }
        self.end_chain(&readers);
        readers
    }

    fn end_chain(&self, readers: &Readers<K::Platform>) {
        if let Some(last) = self.at(readers.last.cast()) {
            last.next.set(ptr::null());
        }
    }
}

impl<P: Platform> Readers<P> {
    fn none() -> Self {
        Readers { first: ptr::null(), last: ptr::null(), number: 0 }
    }
}

impl<P: Platform> WakeList<P> {
    fn none() -> Self {
        WakeList { readers: Vec::new(), writer: None, awake: None }
    }

    fn is_empty(&self) -> bool {
        self.readers.is_empty() && self.writer.is_none() && self.awake.is_none()
    }

    /// Wakes them one by one; without `wait_lock`.
    fn wake<K: Kernel<Platform = P>>(self) {
        self.readers.into_iter().chain(self.writer).for_each(P::unpark);
        if let Some(thread) = self.awake {
            K::wake_in_vain(thread);
        }
    }
}

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
                    self.note_reader(K::current());
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
