//! The kernel's reader-writer semaphore of the years 2013 and 2014, whose word is added to.
//!
//! ```text
//!   count:  63                                           32                                  0
//!           │ less 1 for each writer inside or trying,     │ active: readers and writers that │
//!           │ and 1 if the list is not empty               │ are inside, or trying            │
//! ```
//!
//! A reader adds 1 to `count` and is inside if the sum is not negative. A writer adds 1 and subtracts 1 from the upper
//! half, and is inside if nobody was active: also past the list. Whoever may not stay takes its addition back,
//! under `wait_lock`, on the list of waiters. Until then it counts as active: nobody can enter meanwhile, and a
//! release wakes nobody. Whoever finds on the list that nobody is active any more looks after its head.
//! A release that leaves nobody active wakes the head of the list under `wait_lock`: readers are granted the lock, a
//! writer has to take it.
//!
//! [`Linux3_10`] is that of Linux 3.10: `lib/rwsem.c` and `arch/x86/include/asm/rwsem.h`. [`Linux3_16`] is that of 3.16,
//! `kernel/locking/rwsem-xadd.c`: a writer takes its addition back first, and spins on a running writer, one at a time
//! (`spin_queue.rs`), before it goes on the list. Between the two are the attempts of June 2013 (Tim Chen), which were
//! never in a kernel. They are written here after their descriptions: where these say nothing, as 3.16 does it.
//!
//! What differs from the kernel, and why
//! * No signals, no debugging, no downgrading, no real-time waiters: no table depends on them.
//! * A waiter has a word to sleep on, `granted` or `woken`, where the kernel has the thread's state. The reference to a
//!   reader is given back before `granted` is set, not after its wake-up: the waiter, on its own stack, may be gone
//!   by then.
//! * What a wake-up touches of the woken thread beside its state and its references is part of what the machine says
//!   that a wake-up costs.
//! * A spinner that should yield its CPU while it is in the queue of spinners stays there; see `spin_queue.rs`.
//!
//! Invariants
//! 1. Who is inside is active; a writer inside is the first active one after nobody was.
//! 2. `WAITING` is in `count` exactly while the list is not empty, seen under `wait_lock`.
//! 3. A waiter is on the list until it is granted the lock (a reader) or has taken it (a writer).
//! 4. While nobody is active and somebody waits, whoever was active last, or queued last, or a writer that was woken,
//!    is about to look after the head of the list.

use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, AtomicInt, PlainCell, Platform};

use super::spin_queue::SpinQueue;
use super::ticket_lock::TicketLock;
use super::wait_list::{Held, WaitList, Waiter};
use super::{Kernel, Unpreempted};

const ACTIVE: u64 = 0xffff_ffff;
const READER: u64 = 1;
const WAITING: u64 = !ACTIVE;
const WRITER: u64 = WAITING + 1;

/// Whether a reader may stay that has made this of `count`.
fn admits_readers(count: u64) -> bool {
    count.cast_signed() >= 0
}

/// Whether no writer is active, with the list not empty.
fn has_no_writer(count: u64) -> bool {
    count.cast_signed() > WAITING.cast_signed()
}

/// Whether somebody waits and nobody is active, so that whoever left has to wake the head of the list.
fn is_deserted(count: u64) -> bool {
    count.cast_signed() < 0 && count & ACTIVE == 0
}

/// Where a writer spins on a writer that runs inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spins {
    /// Nowhere; the lock has no owner.
    Nowhere,
    /// On the list, in place of going to sleep; all of them at once.
    OnList,
    /// Before it goes on the list, one at a time.
    BeforeList,
}

/// A version of the lock.
pub trait Version: Send + Sync + 'static {
    /// Where a writer spins.
    const SPINS: Spins;
    /// A writer that sees somebody active goes to the list without adding to `count`.
    const FAILS_FAST: bool;
}

macro_rules! versions {
    ($($(#[$doc:meta])* $name:ident: $spins:ident, $fast:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl Version for $name {
            const SPINS: Spins = Spins::$spins;
            const FAILS_FAST: bool = $fast;
        }
    )*};
}

versions! {
    /// Linux 3.10: nobody spins.
    Linux3_10: Nowhere, false;
    /// The first attempt of 2013: queued writers spin on a running owner.
    Linux3_10Spin: OnList, false;
    /// The second: a writer that sees a holder saves adding to `count` and subtracting again.
    Linux3_10FastFail: Nowhere, true;
    /// Both.
    Linux3_10Both: OnList, true;
    /// Linux 3.16: writers spin before they queue.
    Linux3_16: BeforeList, false;
}

/// The lock without its data. Use it through `lock_api`.
#[repr(C, align(64))]
pub struct RawXaddRwSem<V, K: Kernel> {
    count: <K::Platform as Platform>::AtomicU64,
    waiters: WaitList<TicketLock<K::Platform>, K::Platform>,
    /// The writer inside, plus one; 0 if there is none. Versions that spin only.
    owner: <K::Platform as Platform>::AtomicU64,
    spinners: SpinQueue<K::Platform>,
    version: PhantomData<V>,
}

/// Whom to wake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wake {
    Any,
    Readers,
}

impl<V: Version, K: Kernel> RawXaddRwSem<V, K> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    pub const NEW: Self = RawXaddRwSem {
        count: AtomicCell::ZERO,
        waiters: WaitList::NEW,
        owner: AtomicCell::ZERO,
        spinners: SpinQueue::NEW,
        version: PhantomData,
    };

    /// Adds to `count`; answers the sum.
    fn add(&self, value: u64) -> u64 {
        // Acquire: who finds here that it may stay, or others may, follows the last release.
        self.count.fetch_add(value, Acquire).wrapping_add(value)
    }

    // ---- acquire and release ----

    #[inline]
    fn read(&self) {
        if !admits_readers(self.add(READER)) {
            self.read_slow();
        }
    }

    #[inline]
    fn write(&self) {
        if V::FAILS_FAST && self.count.load(Relaxed) & ACTIVE != 0 {
            self.write_slow(0);
        } else if self.count.fetch_add(WRITER, Acquire) & ACTIVE != 0 {
            self.write_slow(WRITER);
        }
        self.note_owner(K::current() + 1);
    }

    #[inline]
    fn unlock_read(&self) {
        self.leave(READER);
    }

    #[inline]
    fn unlock_write(&self) {
        self.note_owner(0);
        self.leave(WRITER);
    }

    fn leave(&self, active: u64) {
        if is_deserted(self.count.fetch_sub(active, Release).wrapping_sub(active)) {
            self.wake_head();
        }
    }

    fn note_owner(&self, owner: u64) {
        if V::SPINS != Spins::Nowhere {
            self.owner.store(owner, Relaxed);
        }
    }

    #[cold]
    fn wake_head(&self) {
        self.lock_list().wake(Wake::Any);
    }

    fn lock_list(&self) -> List<'_, V, K> {
        List { sem: self, waiters: self.waiters.lock::<K>() }
    }

    // ---- waiters ----

    #[cold]
    fn read_slow(&self) {
        let waiter = Waiter::<K::Platform>::new(true, K::current());
        waiter.task.references.fetch_add(1, Relaxed);
        let list = self.lock_list();
        let is_first = list.is_empty();
        list.push(&waiter);
        let count =
            self.add(if is_first { WAITING.wrapping_sub(READER) } else { READER.wrapping_neg() });
        if count == WAITING || has_no_writer(count) && is_first {
            list.wake(Wake::Any);
        }
        drop(list);
        waiter.sleep_until_granted::<K>();
    }

    /// `added` is what this writer has added to `count`.
    #[cold]
    fn write_slow(&self, mut added: u64) {
        if V::SPINS == Spins::BeforeList {
            self.add(added.wrapping_neg());
            added = 0;
            if self.spin_before_list() {
                return;
            }
        }
        let waiter = Waiter::new(false, K::current());
        let mut list = self.lock_list();
        let is_first = list.is_empty();
        list.push(&waiter);
        let adjustment = if is_first { WAITING.wrapping_sub(added) } else { added.wrapping_neg() };
        let mut count = match adjustment {
            0 => self.count.load(Relaxed),
            _ => self.add(adjustment),
        };
        if !is_first && has_no_writer(count) {
            // Readers hold it: others may join them.
            list.wake(Wake::Readers);
        }
        waiter.begin_to_sleep();
        while !list.try_write(count, &waiter) {
            drop(list);
            count = self.sleep(&waiter);
            list = self.lock_list();
        }
        list.remove(&waiter);
    }

    /// Until nobody is active; answers `count`.
    fn sleep(&self, waiter: &Waiter<K::Platform>) -> u64 {
        loop {
            if V::SPINS == Spins::OnList
                && self.may_spin()
                && let Some(count) = self.spin(|| self.unless_active())
            {
                return count;
            }
            waiter.sleep::<K>();
            if let Some(count) = self.unless_active() {
                return count;
            }
        }
    }

    fn unless_active(&self) -> Option<u64> {
        let count = self.count.load(Relaxed);
        (count & ACTIVE == 0).then_some(count)
    }

    // ---- writers that spin ----

    /// False if this writer has to queue.
    fn spin_before_list(&self) -> bool {
        let _unpreempted = Unpreempted::<K>::new();
        if !self.may_spin() {
            return false;
        }
        self.spinners.at_front(|| self.spin(|| self.take_past_list())).is_some()
    }

    /// Whether a writer runs inside. Without an owner, readers may be inside.
    fn may_spin(&self) -> bool {
        if K::is_to_yield() {
            return false;
        }
        let owner = self.owner.load(Relaxed);
        owner != 0 && K::is_on_cpu(owner - 1)
    }

    /// Attempts this whenever the owner has left; nothing if this writer has to sleep.
    fn spin<R>(&self, attempt: impl Fn() -> Option<R>) -> Option<R> {
        loop {
            let owner = self.owner.load(Relaxed);
            if owner != 0 && !self.outlasts(owner) {
                return None;
            }
            if let result @ Some(_) = attempt() {
                return result;
            }
            if owner == 0 && K::is_to_yield() {
                return None;
            }
            K::relax();
        }
    }

    /// Spins for as long as this owner runs inside; says whether nobody came after it.
    fn outlasts(&self, owner: u64) -> bool {
        while self.owner.load(Relaxed) == owner && K::is_on_cpu(owner - 1) && !K::is_to_yield() {
            K::relax();
        }
        self.owner.load(Relaxed) == 0
    }

    fn take_past_list(&self) -> Option<()> {
        let mut count = self.count.load(Relaxed);
        while count == 0 || count == WAITING {
            let taken = count.wrapping_add(WRITER);
            match self.count.compare_exchange(count, taken, Acquire, Relaxed) {
                Ok(_) => return Some(()),
                Err(found) => count = found,
            }
        }
        None
    }
}

/// The list of waiters, with `wait_lock` held.
struct List<'a, V: Version, K: Kernel> {
    sem: &'a RawXaddRwSem<V, K>,
    waiters: Held<'a, TicketLock<K::Platform>, K>,
}

impl<'a, V: Version, K: Kernel> Deref for List<'a, V, K> {
    type Target = Held<'a, TicketLock<K::Platform>, K>;
    fn deref(&self) -> &Self::Target {
        &self.waiters
    }
}

impl<V: Version, K: Kernel> List<'_, V, K> {
    /// A queued writer's attempt, after it has seen this `count`. One that succeeds is still on the list.
    fn try_write(&self, count: u64, waiter: &Waiter<K::Platform>) -> bool {
        if count & ACTIVE != 0 {
            return false;
        }
        let others = if self.is_alone(waiter) { 0 } else { WAITING };
        // Linux 3.16 adds that once it has the lock.
        let (at_once, later) =
            if V::SPINS == Spins::BeforeList { (0, others) } else { (others, 0) };
        let count = &self.sem.count;
        let is_mine = count.load(Relaxed) == WAITING
            && count
                .compare_exchange(WAITING, WRITER.wrapping_add(at_once), Acquire, Relaxed)
                .is_ok();
        if is_mine && later != 0 {
            count.fetch_add(later, Relaxed);
        }
        is_mine
    }

    /// Grants the lock to the readers at the head of the list and wakes them, or wakes the writer there
    /// (`__rwsem_do_wake`).
    fn wake(&self, wake: Wake) {
        let Some(head) = self.at(self.head()) else { return };
        if !head.is_reader {
            if wake == Wake::Any {
                head.wake::<K>();
            }
            return;
        }
        // One reader first: if a writer was faster, there is nothing to count.
        while !has_no_writer(self.sem.add(READER)) {
            if self.sem.add(READER.wrapping_neg()) & ACTIVE != 0 {
                return;
            }
        }
        let mut readers = 0;
        let mut next = self.head();
        while let Some(reader) = self.at(next).filter(|waiter| waiter.is_reader) {
            readers += READER;
            next = reader.next.get();
        }
        let rest = if next.is_null() { WAITING } else { 0 };
        let adjustment = (readers - READER).wrapping_sub(rest);
        if adjustment != 0 {
            self.sem.count.fetch_add(adjustment, Relaxed);
        }
        // All are counted: the first may leave while the last is still to be granted the lock.
        let end = next;
        let mut next = self.head();
        while next != end
            && let Some(reader) = self.at(next)
        {
            next = reader.next.get();
            reader.task.references.fetch_sub(1, Relaxed);
            let granted = &raw const reader.granted;
            // Release pairs with the Acquire in `sleep_until_granted`. The last access to this waiter.
            reader.granted.store(1, Release);
            K::Platform::unpark(granted);
        }
        self.begin_at(end);
    }
}

// SAFETY: invariant 1: a writer is inside only if nobody was active before it, and whoever comes after it may not
// stay until it has left; readers stay, or are granted the lock, only while no writer is active. Every way to
// acquire is Acquire, both ways to release are Release. Guards are inert.
unsafe impl<V: Version, K: Kernel> fairlock::lock_api::RawRwLock for RawXaddRwSem<V, K> {
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
        while admits_readers(count) {
            match self.count.compare_exchange(count, count + READER, Acquire, Relaxed) {
                Ok(_) => return Some(GuardNoSend::new()),
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
        let mut count = self.count.load(Relaxed);
        while count & ACTIVE == 0 {
            let taken = count.wrapping_add(WRITER);
            match self.count.compare_exchange(count, taken, Acquire, Relaxed) {
                Ok(_) => {
                    self.note_owner(K::current() + 1);
                    return Some(GuardNoSend::new());
                }
                Err(found) => count = found,
            }
        }
        None
    }

    unsafe fn unlock_exclusive(&self, _guard: GuardNoSend) {
        self.unlock_write();
    }

    fn is_locked(&self) -> bool {
        self.count.load(Relaxed) & ACTIVE != 0
    }

    fn is_locked_exclusive(&self) -> bool {
        // Only the list says whether the upper half of `count` is for a writer, too. One that tries counts.
        let list = self.lock_list();
        let waiting = if list.is_empty() { 0 } else { WAITING };
        !admits_readers(self.count.load(Relaxed).wrapping_sub(waiting))
    }
}
