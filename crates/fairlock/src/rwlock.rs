//! The default reader-writer lock: where writes are rare, reads without a locked instruction or a
//! shared cache line, under writers that are never starved.
//!
//! A lock is an [`RwSem`](crate::RwSem) under [`TimeFair`] and a word, the *bias*, which says how
//! readers come in:
//!
//! | bias | a reader | a writer, once it holds the semaphore |
//! |---|---|---|
//! | `SHARED` | takes the semaphore | is alone |
//! | `FENCED` | announces itself in a slot of its own thread (`slots/`) with a full fence, sees that no writer holds the semaphore, it is not closed and the bias is the same, is in | waits until no slot has the lock's number |
//! | `LIGHT` | announces itself with a plain store, sees that the bias is the same, is in | sets `FENCED`, raises a barrier on all CPUs, then the same |
//! | `DIMMED` | as in `FENCED` | as in `LIGHT` |
//!
//! ```text
//!        many reads, few writes                    no write for twenty barriers' time
//!   SHARED ────────────────────────────► FENCED ─────────────────────────────────► LIGHT
//!      ▲                                  │   ▲                                   │    │ somebody
//!      │                                  │   └── a writer that has the semaphore ┘    ▼ waits
//!      └──────────────────────────────────┘   └────────────────────────────────── DIMMED
//!                255 writes
//! ```
//!
//! Many are 128 reads more than 16 for each write since the lock became `SHARED`; of writes long ago some are
//! forgotten. Reads without a write in between would say nothing: under contention TimeFair lets in readers for a
//! while, and then writers for a while, however often each of them comes.
//!
//! A reader that finds a writer spins for as long as a wake-up takes and then, like one that finds
//! no free slot, takes the semaphore; so do upgradable readers. There the waiting is done. Writers
//! exclude each other and those readers by the semaphore alone.
//!
//! **While somebody waits for the semaphore, readers pass by slots only within the budget of the running
//! phase**, as newcomers do that take the semaphore: then it is closed, and every reader queues. So for
//! how long anybody is passed is what [`TimeFair`] says, however readers come in. The deadline waiter
//! closes the phase; as it may have no CPU, and there may be none, so does each reader that looks at
//! the clock, about every 16 µs. (Readers that do without fences cannot see waiters, so whoever queues
//! ends that; see invariant 6.)
//!
//! While readers use slots the semaphore stands free most of the time, so those that wait for it
//! are told to try again as soon as it is free, instead of being handed it: a lock that is reserved
//! for a thread that has to wake up first would stop all readers meanwhile.
//!
//! Why it is right: whoever enters by a slot first stores its announcement, then loads the state;
//! a writer first stores the state, then loads the slots. With a barrier between on both sides at
//! least one of them sees the other (Dekker). In `FENCED` the state is the semaphore's word and
//! both barriers are full fences; in `LIGHT` it is the bias, the reader's barrier is free and the
//! writer's is the asymmetric one that pays for both.
//!
//! Invariants
//! 1. The bias leaves `SHARED` only by a reader that holds the semaphore, and `FENCED` for `LIGHT`
//!    only by a reader that is in. So a writer that holds the semaphore and waited for all slots
//!    has seen every such change, and looks again if there was one meanwhile.
//! 2. The bias leaves `LIGHT` and `DIMMED` for `FENCED`, and `FENCED` for `SHARED`, only by a writer
//!    that holds the semaphore; for `SHARED` only after all slots are left. From `LIGHT` to
//!    `DIMMED` anybody may take it: writers treat the two alike.
//! 3. A lock's number belongs to no other lock of the process, ever. A slot that was forgotten
//!    blocks the lock that it was taken for, wherever that moves, and no other.
//! 4. Reads of one thread are alike: without guards each ends one of them, in a slot if there is one,
//!    else in the semaphore, whichever way it came in. While a thread is in by a slot the bias
//!    is not `SHARED` (invariant 2), and its number stays.
//! 5. An unlock releases with one atomic operation, on a slot or on the semaphore's word, and after
//!    that touches the lock only while it has seen, under the lock of the waiters' room, that
//!    somebody waits there for this very lock (`rwsem/queue_storage.rs`).
//! 6. While somebody is queued, or a writer waits for readers in slots, the bias is not `LIGHT`, but
//!    for moments: whoever queues or takes the semaphore looks at it afterwards, and a reader that
//!    makes it `LIGHT` looks for them afterwards, with a fence between on both sides.
//!
//! After Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks" (2019), with these
//! differences: slots belong to threads, so a reader's line is its own and finding it needs no hash;
//! plain stores with an asymmetric barrier; and `FENCED`, where a write costs a look at the
//! slots instead of an interrupt on all CPUs, so that one write in a hundred reads does not
//! send all readers to a shared word.

use core::hint::cold_path;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::{Duration, Instant};

use lock_api::GuardNoSend;

use crate::events::{Event, Snapshot};
use crate::platform::{AtomicCell, Os, Platform, after, until};
use crate::policy::{BiasPolicy, ReadMostly, TimeFair};
use crate::rwsem::{
    Entrance, HasQueuePool, NoSpinners, Pooled, READ_WITHIN_READ, RawRwSem, ReaderBias,
    WRITE_WITHIN_READ,
};
use crate::slots::{self, Record, Slot};
use crate::spin_budget::SpinBudget;
use crate::unguarded::{Refused, UnguardedRwLock};

/// How readers come in: one bit or none.
const MODE: u64 = 0b111;
const SHARED: u64 = 0;
const FENCED: u64 = 0b001;
const LIGHT: u64 = 0b010;
const DIMMED: u64 = 0b100;

/// Writes until the lock is `SHARED` again.
const TALLY: u64 = 0xff << TALLY_SHIFT;
const TALLY_SHIFT: u32 = 3;

/// A write outweighs so much of [`Bias::reads`](crate::policy::Bias::reads).
const WRITE_OUTWEIGHS: u32 = 8;

/// No more reads than about this have to make up for writes. That is more than come in one phase of
/// readers, and a lock whose writes have ended has slots again after some ten milliseconds of reads.
const LARGEST_DEBT: i32 = 1 << 18;

/// The lock's number, 0 before its bias first leaves `SHARED`; in debug builds before its first read by a
/// guard. 53 bits do not run out.
const NUMBER_SHIFT: u32 = 11;

/// The clock of quiet times ticks every 4 µs and wraps after 68 s, which only makes a time look
/// shorter.
const TICK_SHIFT: u32 = 12;
const TICKS: u32 = 0x00ff_ffff;

/// So often can one thread read within a read, by one slot: as often as by the semaphore.
const MOST_NESTED: u32 = 1 << 22;

/// So many as a balance can say.
const fn enough(reads: u32) -> i32 {
    if reads > i32::MAX as u32 { i32::MAX } else { reads as i32 }
}

fn mode(bias: u64) -> u64 {
    bias & MODE
}

fn tally(bias: u64) -> u32 {
    ((bias & TALLY) >> TALLY_SHIFT) as u32
}

fn number(bias: u64) -> u64 {
    bias >> NUMBER_SHIFT
}

fn has_slots(bias: u64) -> bool {
    mode(bias) != SHARED
}

/// A reader-writer lock for data that is mostly read: the one to use unless you know better.
///
/// Any number of readers or one writer. While nobody writes, a read locks and unlocks with two plain
/// stores and a few loads, on lines that nobody else writes: about a nanosecond, on any number of
/// CPUs at once. 32 bytes beside the data; usable in statics.
///
/// # Guarantees
/// * Nobody starves, however readers come in. From the moment at which somebody waits, everybody who
///   comes takes turns under [`TimeFair`]: nobody is passed for longer than the running phase and one of the
///   other side, which end after 4 ms at most, and as soon as those inside have left then; a writer that
///   was woken in vain, twice as long. A writer whose turn it is waits for the readers it finds;
///   readers that come after that wait for it.
/// * A write that finds readers using slots costs a look at one cache line for each record of a
///   thread: as many as threads have ever read at once. After a time without writes it also costs
///   a barrier on all CPUs that run the process (microseconds); that time is twenty times as long.
/// * While writes are frequent it is an [`RwSem`](crate::RwSem).
/// * A lock may be freed as soon as its last user's unlock has begun to return, even while others are
///   still inside unlocks of their own that released it before.
/// * A try fails only if somebody holds the lock, waits for it or tries to get it at that moment. Readers that
///   try do not make each other fail, and of writers that try one gets in; but of a reader and a writer that
///   try at the same moment neither may.
/// * No poisoning: a panic releases the lock through its guard.
/// * Not recursive: see [`crate::rwsem`]. A guard that is forgotten keeps the lock locked.
/// * Read guards do not move between threads.
///
/// A thread that reads under more than four locks at once takes the semaphore of the others; so does
/// one that is about to end, in destructors of thread-local variables, and one of more than 32,768.
///
/// # Panics
/// As [`RwSem`](crate::RwSem).
///
/// # Examples
/// ```
/// use fairlock::RwLock;
/// use std::time::Duration;
///
/// static TABLE: RwLock<Vec<u32>> = RwLock::new(Vec::new());
///
/// TABLE.write().push(7);
/// assert_eq!(*TABLE.read(), [7]);
///
/// // Timed, upgradable, downgrade:
/// let entry = TABLE.try_upgradable_read_for(Duration::from_millis(10)).unwrap();
/// if !entry.contains(&8) {
///     let mut entry = fairlock::RwLockUpgradableReadGuard::upgrade(entry);
///     entry.push(8);
///     let entry = fairlock::RwLockWriteGuard::downgrade(entry);
///     assert_eq!(entry.len(), 2);
/// }
/// ```
/// Guards that own their lock:
/// ```
/// use std::sync::Arc;
/// let lock = Arc::new(fairlock::RwLock::new(String::new()));
/// let mut guard = lock.write_arc();
/// guard.push('x');
/// ```
/// On another [platform](crate::platform), write the type out:
/// ```
/// use fairlock::{lock_api, platform::Counting, rwlock::RawRwLock};
/// let counted = lock_api::RwLock::<RawRwLock<Counting>, u8>::new(0);
/// assert!(!counted.is_locked());
/// ```
pub type RwLock<T> = lock_api::RwLock<RawRwLock<Os>, T>;

/// Shared access to an [`RwLock`]'s data; releases when dropped.
pub type RwLockReadGuard<'a, T, P = Os, B = ReadMostly> =
    lock_api::RwLockReadGuard<'a, RawRwLock<P, B>, T>;
/// Exclusive access to an [`RwLock`]'s data; releases when dropped.
pub type RwLockWriteGuard<'a, T, P = Os, B = ReadMostly> =
    lock_api::RwLockWriteGuard<'a, RawRwLock<P, B>, T>;
/// Shared access that can become exclusive; one at a time, beside plain readers.
pub type RwLockUpgradableReadGuard<'a, T, P = Os, B = ReadMostly> =
    lock_api::RwLockUpgradableReadGuard<'a, RawRwLock<P, B>, T>;

/// The [events](crate::events) of an [`RwLock`] so far, those of its semaphore among them; all zero on
/// a platform that does not count.
///
/// ```
/// use fairlock::{events::Event, lock_api, platform::Counting, rwlock};
/// let lock = lock_api::RwLock::<rwlock::RawRwLock<Counting>, u32>::new(0);
/// *lock.write() += 1;
/// assert_eq!(rwlock::events(&lock).get(Event::SleepWriter), 0); // nobody waited
/// ```
pub fn events<T: ?Sized, P: HasQueuePool, B: BiasPolicy>(
    lock: &lock_api::RwLock<RawRwLock<P, B>, T>,
) -> Snapshot {
    // SAFETY: reading the counters touches neither the lock's state nor its data.
    unsafe { lock.raw() }.sem.events()
}

/// The lock without its data: what [`RwLock`] is made of. Use it through `lock_api`.
pub struct RawRwLock<P: HasQueuePool = Os, B = ReadMostly> {
    sem: RawRwSem<TimeFair, P, Pooled<P, NoSpinners, Bias<P>>>,
    policy: PhantomData<fn() -> B>,
}

/// How readers come in: the mode, the tally and the lock's number. The semaphore keeps it for the lock,
/// and tells it of waiters.
pub struct Bias<P: Platform>(P::AtomicU64);

impl<P: Platform> Bias<P> {
    /// Those who wait for the semaphore make readers look at it: from now on they see waiters.
    #[cold]
    fn dim(&self) {
        let bias = self.0.load(Relaxed);
        if bias & LIGHT != 0 {
            let dimmed = bias - LIGHT + DIMMED;
            // In vain if a writer was faster: then it is not `LIGHT` any more.
            _ = self.0.compare_exchange(bias, dimmed, Relaxed, Relaxed);
        }
    }
}

impl<P: Platform> ReaderBias for Bias<P> {
    const NEW: Self = Bias(P::AtomicU64::ZERO);

    fn somebody_queued(&self) -> bool {
        // Pairs with the fence in `RawRwLock::lighten`: either this thread sees that readers do without
        // fences, or the reader that decided so sees the waiter.
        P::fence_after_update();
        self.dim();
        has_slots(self.0.load(Relaxed))
    }
}

/// What a read guard remembers: the slot in which the thread said that it reads, if not the
/// semaphore. Inert: forgetting it keeps the lock locked.
pub struct Shared<P: Platform> {
    slot: Option<&'static Slot<P>>,
    /// Slots are thread-owned; see [`crate::slots`].
    not_send: PhantomData<*mut ()>,
}

const _: () = assert!(size_of::<RwLock<()>>() <= 32);

// SAFETY: a shared reference to it gives access to nothing.
unsafe impl<P: Platform> Sync for Shared<P> {}

impl<P: Platform> Shared<P> {
    #[inline(always)]
    fn by(slot: &'static Slot<P>) -> Self {
        Shared { slot: Some(slot), not_send: PhantomData }
    }

    #[inline(always)]
    fn by_semaphore() -> Self {
        Shared { slot: None, not_send: PhantomData }
    }
}

impl<P: HasQueuePool, B: BiasPolicy> RawRwLock<P, B> {
    /// A free lock.
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    pub const NEW: Self = RawRwLock { sem: RawRwSem::NEW, policy: PhantomData };

    /// What the lock is called where recursion is looked for: by its number, which no other lock ever has.
    /// An address would be another lock's when this one is dropped or moved, with a guard that was forgotten.
    fn id(&self) -> *const () {
        let bias = self.bias().load(Relaxed);
        let number = match number(bias) {
            0 => self.get_number(),
            number => number,
        };
        // Odd, which addresses of locks are not.
        core::ptr::without_provenance((number as usize) << 1 | 1)
    }

    /// Gives it a number before readers use slots, which changes nothing else.
    #[cold]
    fn get_number(&self) -> u64 {
        let number = P::threads().new_lock();
        match self.bias().compare_exchange(0, number << NUMBER_SHIFT | SHARED, Relaxed, Relaxed) {
            Ok(_) => number,
            Err(others) => self::number(others),
        }
    }

    #[inline(always)]
    fn bias(&self) -> &P::AtomicU64 {
        &self.sem.storage().bias().0
    }

    /// In `SHARED`: how many reads came more than its writes outweigh. Else, in the low byte, the tally
    /// that a reader saw when it last looked, which every write changes; in the rest when it was first seen, in ticks.
    #[inline(always)]
    fn count(&self) -> &P::AtomicU32 {
        self.sem.storage().bias_count()
    }

    // ---- readers ----

    /// By this slot, without a fence: the bias is `LIGHT`.
    #[inline(always)]
    fn read_light(&self, slot: &'static Slot<P>, bias: u64) -> Option<Shared<P>> {
        slot.announce(bias);
        // Acquire pairs with the Release in `look` and `use_slots`, and so with all writers before
        // that.
        if self.bias().load(Acquire) == bias {
            return Some(Shared::by(slot));
        }
        cold_path();
        slot.clear();
        None
    }

    /// By this slot of this thread, with a fence.
    #[inline(always)]
    fn read_fenced(
        &self,
        thread: &Record<P>,
        slot: &'static Slot<P>,
        bias: u64,
    ) -> Option<Shared<P>> {
        slot.announce_fenced(bias);
        // In this order: a writer that came and went may have left the lock without slots.
        // Its Release pairs with the Acquire in `entrance`. Acquire as in `read_light`.
        let is_open = match self.sem.entrance() {
            Entrance::Free => true,
            Entrance::PastWaiters(word) => {
                // In place, as a call would be: see `read_at_once`.
                cold_path();
                !thread.is_time_to_look() || self.look_past_waiters(thread, word)
            }
            Entrance::Shut => false,
        };
        if !is_open || self.bias().load(Acquire) != bias {
            slot.clear();
            return None;
        }
        Some(Shared::by(slot))
    }

    /// Readers may still pass those that wait, as far as the clock is concerned.
    #[cold]
    fn look_past_waiters(&self, thread: &Record<P>, word: u64) -> bool {
        thread.note_look();
        self.sem.has_budget(word)
    }

    /// Everything that can be tried without waiting, in place: what a call keeps on the stack would
    /// have to reach the cache before a fence ends, which makes such a read half as dear again.
    #[inline(always)]
    fn read_at_once(&self) -> Option<Shared<P>> {
        let bias = self.bias().load(Relaxed);
        if bias & LIGHT != 0 {
            return self.read_light(P::thread()?.first_slot()?, bias);
        }
        // Not rare, but where a jump more hardly counts.
        cold_path();
        if has_slots(bias) {
            let thread = P::thread()?;
            let shared = self.read_fenced(thread, thread.first_slot()?, bias)?;
            if thread.counts_read(B::BIAS.reads_per_look) {
                self.look(bias);
            }
            return Some(shared);
        }
        self.sem.try_read_once().then(|| {
            self.count_read(bias);
            Shared::by_semaphore()
        })
    }

    #[cold]
    fn wait_to_read(&self) -> Shared<P> {
        self.read_slow(None).expect("without a deadline a wait ends with the lock")
    }

    /// By a slot or by the semaphore. None if the deadline passed.
    #[cold]
    fn read_slow(&self, deadline: Option<u64>) -> Option<Shared<P>> {
        if let Some(shared) = self.read_by_slot_soon(deadline) {
            return Some(shared);
        }
        if !self.sem.read(deadline) {
            return None;
        }
        self.count_read(self.bias().load(Relaxed));
        Some(Shared::by_semaphore())
    }

    /// By a slot, now or as soon as a writer is out. None if it is better to ask the semaphore.
    #[inline(always)]
    fn read_by_slot_soon(&self, deadline: Option<u64>) -> Option<Shared<P>> {
        let mut budget = None;
        while has_slots(self.bias().load(Relaxed)) {
            if !self.sem.has_writer() {
                if let Some(shared) = self.read_by_any_slot() {
                    return Some(shared);
                }
                if !self.sem.has_writer() {
                    break; // No slot is free, or a writer came and went.
                }
            }
            // While a writer is in that may be out sooner than a sleep takes.
            let budget = budget
                .get_or_insert_with(|| SpinBudget::new::<P>(P::wake_latency().into(), deadline));
            if !self.sem.owner_may_run() || !budget.relax::<P>() {
                break;
            }
        }
        None
    }

    /// By any slot.
    fn read_by_any_slot(&self) -> Option<Shared<P>> {
        let bias = self.bias().load(Relaxed);
        if !has_slots(bias) {
            return None;
        }
        let thread = P::thread()?;
        let slot = thread.free_slot()?;
        if bias & LIGHT != 0 {
            return self.read_light(slot, bias);
        }
        self.read_fenced(thread, slot, bias)
    }

    /// By a slot or the semaphore, without waiting.
    fn try_read(&self) -> Option<Shared<P>> {
        if let Some(shared) = self.read_by_any_slot() {
            return Some(shared);
        }
        let entered = self.sem.try_read();
        entered.then(|| {
            self.count_read(self.bias().load(Relaxed));
            Shared::by_semaphore()
        })
    }

    /// The caller has just entered by the semaphore. Loses counts to other readers, which does not
    /// matter; costs no locked instruction, and the lock's line is the caller's anyway.
    #[inline(always)]
    fn count_read(&self, bias: u64) {
        if mode(bias) == SHARED {
            let balance = self.count().load(Relaxed).cast_signed();
            if balance < const { enough(B::BIAS.reads) } {
                self.count().store((balance + 1).cast_unsigned(), Relaxed);
            } else {
                self.use_slots(bias);
            }
        }
    }

    /// Invariant 1: the caller holds the semaphore, so no writer does.
    #[cold]
    fn use_slots(&self, bias: u64) {
        let number = match number(bias) {
            0 => P::threads().new_lock(),
            number => number,
        };
        let next = number << NUMBER_SHIFT | u64::from(B::BIAS.writes) << TALLY_SHIFT | FENCED;
        // Release pairs with the Acquire of readers that come in by it.
        if self.bias().compare_exchange(bias, next, AcqRel, Relaxed).is_ok() {
            self.note_write_seen(next);
            self.sem.count(Event::BiasBegin);
            if B::BIAS.patience == 0 && P::is_asymmetric() {
                self.lighten(next);
            }
        }
    }

    /// What a reader that uses fences does now and then. Invariant 1: the caller is in.
    #[cold]
    fn look(&self, bias: u64) {
        if bias & FENCED != 0 && P::is_asymmetric() && self.is_quiet(bias) {
            self.lighten(bias);
        }
    }

    /// Readers do without fences, unless somebody waits or a writer waits for those that are in.
    /// Invariant 1: the caller is in.
    fn lighten(&self, bias: u64) {
        if self.sem.has_waiters() || self.sem.has_writer() {
            return;
        }
        // Release pairs with the Acquire of readers that come in by it.
        let light = bias - FENCED + LIGHT;
        if self.bias().compare_exchange(bias, light, AcqRel, Relaxed).is_ok() {
            self.sem.count(Event::BiasUnfenced);
            // Invariant 6; pairs with the fences in `somebody_queued` and `revoke`.
            P::fence_after_update();
            if self.sem.has_waiters() || self.sem.has_writer() {
                self.sem.storage().bias().dim();
            }
        }
    }

    /// No write has come for `patience` times as long as a barrier takes.
    fn is_quiet(&self, bias: u64) -> bool {
        let seen = self.count().load(Relaxed);
        if seen & 0xff != tally(bias) {
            self.note_write_seen(bias);
            return false;
        }
        let ticks = Self::tick().wrapping_sub(seen >> 8) & TICKS;
        let patience = P::threads().barrier_ns() * u64::from(B::BIAS.patience);
        u64::from(ticks) << TICK_SHIFT >= patience
    }

    fn note_write_seen(&self, bias: u64) {
        self.count().store((Self::tick() & TICKS) << 8 | tally(bias), Relaxed);
    }

    fn tick() -> u32 {
        (P::now() >> TICK_SHIFT) as u32
    }

    /// # Safety
    /// The caller holds the lock shared, as `held` says.
    #[inline(always)]
    unsafe fn unlock_read(&self, held: &Shared<P>) {
        let Some(slot) = held.slot else {
            // SAFETY: the caller's.
            return unsafe { self.sem.unlock_read() };
        };
        slot.clear();
    }

    // ---- writers ----

    /// Waits for the readers in slots. The caller holds the semaphore exclusively; so it does
    /// afterwards, also if the deadline passed and this returns false.
    #[inline(always)]
    fn exclude_readers(&self, deadline: Option<u64>) -> bool {
        // Relaxed: invariant 1.
        let bias = self.bias().load(Relaxed);
        if has_slots(bias) {
            return self.revoke(bias, Wait::Until(deadline));
        }
        self.count_write();
        true
    }

    /// The same without waiting: false if there are any.
    #[inline(always)]
    fn finds_no_readers(&self) -> bool {
        let bias = self.bias().load(Relaxed);
        if has_slots(bias) {
            return self.revoke(bias, Wait::No);
        }
        self.count_write();
        true
    }

    /// The caller holds the semaphore exclusively, and the bias is `SHARED`.
    #[inline(always)]
    fn count_write(&self) {
        let balance = self.count().load(Relaxed).cast_signed();
        if balance > -LARGEST_DEBT {
            let outweighed = const { enough(B::BIAS.reads / WRITE_OUTWEIGHS) };
            self.count().store(balance.wrapping_sub(outweighed).cast_unsigned(), Relaxed);
        }
    }

    #[inline(never)]
    fn revoke(&self, mut bias: u64, wait: Wait) -> bool {
        self.sem.count(Event::BiasRevoke);
        let threads = P::threads();
        let mine = number(bias);
        let is_mine = |tag: u64| number(tag) == mine;
        loop {
            if bias & (LIGHT | DIMMED) != 0 {
                self.darken(bias);
            } else {
                P::fence_after_update();
            }
            let left = match wait {
                Wait::Until(deadline) => threads.wait_for_readers(is_mine, deadline),
                Wait::No => !threads.any_reader(is_mine),
            };
            if !left {
                return false;
            }
            // One that was in may have changed it.
            bias = self.bias().load(Relaxed);
            if bias & FENCED != 0 {
                break;
            }
        }
        // Nobody is in by a slot, so nobody else writes the bias now.
        let next = match tally(bias).checked_sub(1) {
            Some(tally) => bias & !TALLY | u64::from(tally) << TALLY_SHIFT,
            None => {
                self.sem.count(Event::BiasEnd);
                bias - FENCED + SHARED
            }
        };
        self.bias().store(next, Relaxed);
        if !has_slots(next) {
            self.count().store(0, Relaxed);
        }
        true
    }

    /// To `FENCED`, and a barrier so that every reader has seen it or is seen.
    #[cold]
    fn darken(&self, bias: u64) {
        self.sem.count(Event::BiasBarrier);
        let began = P::now();
        self.bias().store(bias & !MODE | FENCED, Relaxed);
        P::asymmetric_heavy();
        P::threads().note_barrier(P::now() - began);
    }

    /// Some thread has said that it reads, or tries to.
    fn has_reader_in_slot(&self) -> bool {
        let bias = self.bias().load(Relaxed);
        has_slots(bias) && P::threads().any_reader(|tag| number(tag) == number(bias))
    }

    /// A writer may have to wait for the semaphore.
    fn dim(&self) {
        self.sem.storage().bias().dim();
    }

    fn write(&self, deadline: Option<u64>) -> bool {
        if !self.sem.write_at_once() {
            self.dim();
            if !self.sem.write_slow(deadline) {
                return false;
            }
        }
        let alone = self.exclude_readers(deadline);
        if !alone {
            // SAFETY: acquired above.
            unsafe { self.sem.unlock_write() };
        }
        alone
    }

    #[cold]
    fn wait_to_write(&self) {
        self.dim();
        let acquired = self.sem.write_slow(None);
        assert!(acquired, "without a deadline a wait ends with the lock");
    }

    fn try_write(&self) -> bool {
        // First without disturbing anybody.
        if self.has_reader_in_slot() || !self.sem.try_write() {
            return false;
        }
        let alone = self.finds_no_readers();
        if !alone {
            // SAFETY: acquired above.
            unsafe { self.sem.unlock_write() };
        }
        alone
    }

    /// # Safety
    /// The caller holds the lock upgradable. If this returns true it holds it exclusively, else
    /// still upgradable.
    unsafe fn upgrade(&self, deadline: Option<u64>) -> bool {
        // SAFETY: the caller's.
        if !unsafe { self.sem.upgrade(deadline) } {
            return false;
        }
        let alone = self.exclude_readers(deadline);
        if !alone {
            // SAFETY: upgraded above.
            unsafe { self.sem.take_back_upgrade() };
        }
        alone
    }

    /// # Safety
    /// As [`upgrade`](Self::upgrade).
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: the caller's.
        if self.has_reader_in_slot() || !unsafe { self.sem.try_upgrade() } {
            return false;
        }
        let alone = self.finds_no_readers();
        if !alone {
            // SAFETY: upgraded above.
            unsafe { self.sem.take_back_upgrade() };
        }
        alone
    }
}

// ---- without guards ----

impl<P: HasQueuePool, B: BiasPolicy> RawRwLock<P, B> {
    /// After [`read_at_once`](Self::read_at_once) has failed.
    #[cold]
    fn read_unguarded(&self, deadline: Option<u64>, past_waiters: bool) -> Result<(), Refused> {
        if let Some(nested) = self.read_within_slot() {
            return nested;
        }
        if self.read_by_slot_soon(deadline).is_some() {
            return Ok(());
        }
        if !self.sem.try_read_once() {
            self.sem.read_unguarded(deadline, past_waiters)?;
        }
        self.count_read(self.bias().load(Relaxed));
        Ok(())
    }

    /// The same without waiting.
    #[cold]
    fn try_read_unguarded(&self, past_waiters: bool) -> Result<(), Refused> {
        if let Some(nested) = self.read_within_slot() {
            return nested;
        }
        if self.read_by_any_slot().is_some() {
            return Ok(());
        }
        if !self.sem.try_read_once() {
            self.sem.try_read_unguarded(past_waiters)?;
        }
        self.count_read(self.bias().load(Relaxed));
        Ok(())
    }

    /// By a slot in which this thread is already: no writer is in or gets in before it leaves, also
    /// one that waits for just this slot. None if there is no such slot.
    fn read_within_slot(&self) -> Option<Result<(), Refused>> {
        // Relaxed: invariant 4; what this thread itself has seen.
        let bias = self.bias().load(Relaxed);
        if !has_slots(bias) {
            return None;
        }
        let nest = |own: &Record<P>| own.nest(|tag| number(tag) == number(bias), MOST_NESTED);
        // SAFETY: adds a read to a slot's, if there is one.
        let entered = unsafe { slots::with_record(nest) }??;
        Some(if entered { Ok(()) } else { Err(Refused::Full) })
    }

    /// False if this thread is in by no slot.
    #[inline(always)]
    fn leave_slot(&self) -> bool {
        // As in `read_within_slot`. The last look at the lock.
        let bias = self.bias().load(Relaxed);
        if !has_slots(bias) {
            return false;
        }
        let leave = |own: &Record<P>| own.leave(|tag| number(tag) == number(bias));
        // SAFETY: ends a read, if there is one.
        unsafe { slots::with_record(leave) }.unwrap_or(false)
    }
}

// SAFETY: as for `lock_api::RawRwLock`, below.
unsafe impl<P: HasQueuePool, B: BiasPolicy> UnguardedRwLock for RawRwLock<P, B> {
    const FREE: Self = Self::NEW;

    #[inline]
    fn read(&self, deadline: Option<u64>, past_waiters: bool) -> Result<(), Refused> {
        match self.read_at_once() {
            Some(_) => Ok(()),
            None => self.read_unguarded(deadline, past_waiters),
        }
    }

    #[inline]
    fn try_read(&self, past_waiters: bool) -> Result<(), Refused> {
        match self.read_at_once() {
            Some(_) => Ok(()),
            None => self.try_read_unguarded(past_waiters),
        }
    }

    #[inline]
    fn write(&self, deadline: Option<u64>) -> Result<(), Refused> {
        match RawRwLock::write(self, deadline) {
            true => Ok(()),
            false => Err(Refused::TimedOut),
        }
    }

    #[inline]
    fn try_write(&self) -> Result<(), Refused> {
        match RawRwLock::try_write(self) {
            true => Ok(()),
            false => Err(Refused::Busy),
        }
    }

    #[inline]
    unsafe fn unlock_read(&self) {
        if !self.leave_slot() {
            // SAFETY: the caller holds the lock for reading, and invariant 4: not by a slot.
            unsafe { self.sem.unlock_read() };
        }
    }

    #[inline]
    unsafe fn try_unlock_read(&self) -> bool {
        // SAFETY: the caller's; if the thread is in by no slot it is by the semaphore.
        self.leave_slot() || unsafe { self.sem.try_unlock_read() }
    }

    #[inline]
    unsafe fn unlock_write(&self) {
        // SAFETY: the caller's.
        unsafe { self.sem.unlock_write() };
    }

    fn has_writer(&self) -> bool {
        self.sem.has_writer()
    }

    fn is_locked(&self) -> bool {
        self.sem.is_locked() || self.has_reader_in_slot()
    }
}

/// Whether a writer waits for readers in slots.
#[derive(Clone, Copy)]
enum Wait {
    No,
    Until(Option<u64>),
}

// ---- lock_api ----

impl<P: HasQueuePool, B: BiasPolicy> RawRwLock<P, B> {
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn check_recursion(&self, message: &'static str) {
        if P::CHECKS_RECURSION {
            P::check_recursion(self.id(), message);
        }
    }

    #[inline(always)]
    fn begin_shared(&self) {
        if P::CHECKS_RECURSION {
            P::note_shared(self.id());
        }
    }

    #[inline(always)]
    fn end_shared(&self) {
        if P::CHECKS_RECURSION {
            P::forget_shared(self.id());
        }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_read(&self, deadline: Option<u64>) -> Option<Shared<P>> {
        self.check_recursion(READ_WITHIN_READ);
        self.read_at_once().or_else(|| self.read_slow(deadline)).inspect(|_| self.begin_shared())
    }

    fn lock_write(&self, deadline: Option<u64>) -> Option<GuardNoSend> {
        self.write(deadline).then_some(GuardNoSend::new())
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_upgrade(&self, deadline: Option<u64>) -> Option<GuardNoSend> {
        self.check_recursion(READ_WITHIN_READ);
        self.sem.upgradable(deadline).then(|| self.new_upgradable())
    }

    fn new_upgradable(&self) -> GuardNoSend {
        self.begin_shared();
        GuardNoSend::new()
    }

    fn upgrade_by(
        &self,
        deadline: Option<u64>,
        held: GuardNoSend,
    ) -> Result<GuardNoSend, GuardNoSend> {
        // SAFETY: `held` is an upgradable acquisition's state.
        if unsafe { self.upgrade(deadline) } {
            self.end_shared();
            Ok(held)
        } else {
            Err(held)
        }
    }
}

// SAFETY: invariants 1 and 2: a writer is alone in the semaphore and in the slots; acquisitions are
// Acquire, releases Release. Guard state is inert. A lock that is moved takes its number along,
// and one that is dropped its number with it (invariant 3); waiters borrow it.
unsafe impl<P: HasQueuePool, B: BiasPolicy> lock_api::RawRwLock for RawRwLock<P, B> {
    const INIT: Self = Self::NEW;
    type SharedGuard = Shared<P>;
    type ExclusiveGuard = GuardNoSend;

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_shared(&self) -> Shared<P> {
        self.check_recursion(READ_WITHIN_READ);
        let shared = self.read_at_once().unwrap_or_else(|| self.wait_to_read());
        self.begin_shared();
        shared
    }
    #[inline]
    fn try_lock_shared(&self) -> Option<Shared<P>> {
        self.read_at_once().or_else(|| self.try_read()).inspect(|_| self.begin_shared())
    }
    #[inline]
    unsafe fn unlock_shared(&self, held: Shared<P>) {
        self.end_shared();
        // SAFETY: the caller's.
        unsafe { self.unlock_read(&held) };
    }
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_exclusive(&self) -> GuardNoSend {
        self.check_recursion(WRITE_WITHIN_READ);
        if !self.sem.write_at_once() {
            self.wait_to_write();
        }
        let alone = self.exclude_readers(None);
        debug_assert!(alone, "without a deadline all readers leave");
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock_exclusive(&self) -> Option<GuardNoSend> {
        self.try_write().then(GuardNoSend::new)
    }
    #[inline]
    unsafe fn unlock_exclusive(&self, _guard: GuardNoSend) {
        // SAFETY: the caller's.
        unsafe { self.sem.unlock_write() };
    }
    fn is_locked(&self) -> bool {
        self.sem.is_locked() || self.has_reader_in_slot()
    }
    fn is_locked_exclusive(&self) -> bool {
        self.sem.is_locked_exclusive()
    }
}

// SAFETY: as above; who waits does so at the semaphore, which chooses the next holder before it is
// free.
unsafe impl<P: HasQueuePool, B: BiasPolicy> lock_api::RawRwLockFair for RawRwLock<P, B> {
    #[inline]
    unsafe fn unlock_shared_fair(&self, held: Shared<P>) {
        self.end_shared();
        match held.slot {
            Some(slot) => slot.clear(),
            // SAFETY: the caller's.
            None => unsafe { self.sem.unlock_read_fair() },
        }
    }
    #[inline]
    unsafe fn unlock_exclusive_fair(&self, _guard: GuardNoSend) {
        // SAFETY: the caller's.
        unsafe { self.sem.unlock_write_fair() };
    }
}

// SAFETY: the writer becomes a reader of the semaphore in one atomic step, which is a Release.
unsafe impl<P: HasQueuePool, B: BiasPolicy> lock_api::RawRwLockDowngrade for RawRwLock<P, B> {
    unsafe fn downgrade(&self, _guard: GuardNoSend) -> Shared<P> {
        // SAFETY: the caller's.
        unsafe { self.sem.downgrade_to_read() };
        self.begin_shared();
        Shared::by_semaphore()
    }
}

// SAFETY: as for the untimed forms; failing leaves nothing held and no node queued.
unsafe impl<P: HasQueuePool, B: BiasPolicy> lock_api::RawRwLockTimed for RawRwLock<P, B> {
    type Duration = Duration;
    type Instant = Instant;

    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_shared_for(&self, timeout: Duration) -> Option<Shared<P>> {
        self.lock_read(after::<P>(timeout))
    }
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_shared_until(&self, instant: Instant) -> Option<Shared<P>> {
        self.lock_read(until::<P>(instant))
    }
    fn try_lock_exclusive_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        self.lock_write(after::<P>(timeout))
    }
    fn try_lock_exclusive_until(&self, instant: Instant) -> Option<GuardNoSend> {
        self.lock_write(until::<P>(instant))
    }
}

// SAFETY: the semaphore admits one such holder; it becomes the writer once it is alone in the
// semaphore and then in the slots.
unsafe impl<P: HasQueuePool, B: BiasPolicy> lock_api::RawRwLockUpgrade for RawRwLock<P, B> {
    type UpgradableGuard = GuardNoSend;

    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_upgradable(&self) -> GuardNoSend {
        self.lock_upgrade(None).expect("without a deadline a wait ends with the lock")
    }
    fn try_lock_upgradable(&self) -> Option<GuardNoSend> {
        self.sem.try_upgradable().then(|| self.new_upgradable())
    }
    unsafe fn unlock_upgradable(&self, _guard: GuardNoSend) {
        self.end_shared();
        // SAFETY: the caller's.
        unsafe { self.sem.unlock_upgradable() };
    }
    unsafe fn upgrade(&self, guard: GuardNoSend) -> GuardNoSend {
        self.upgrade_by(None, guard).unwrap_or_else(|guard| guard)
    }
    unsafe fn try_upgrade(&self, guard: GuardNoSend) -> Result<GuardNoSend, GuardNoSend> {
        // SAFETY: the caller's.
        if unsafe { self.try_upgrade() } {
            self.end_shared();
            Ok(guard)
        } else {
            Err(guard)
        }
    }
}

// SAFETY: as for the plain fair unlock.
unsafe impl<P: HasQueuePool, B: BiasPolicy> lock_api::RawRwLockUpgradeFair for RawRwLock<P, B> {
    unsafe fn unlock_upgradable_fair(&self, _guard: GuardNoSend) {
        self.end_shared();
        // SAFETY: the caller's.
        unsafe { self.sem.unlock_upgradable_fair() };
    }
}

// SAFETY: one atomic step of the semaphore each, a Release.
unsafe impl<P: HasQueuePool, B: BiasPolicy> lock_api::RawRwLockUpgradeDowngrade
    for RawRwLock<P, B>
{
    unsafe fn downgrade_upgradable(&self, _guard: GuardNoSend) -> Shared<P> {
        // SAFETY: the caller's.
        unsafe { self.sem.downgrade_upgradable() };
        Shared::by_semaphore()
    }
    unsafe fn downgrade_to_upgradable(&self, _guard: GuardNoSend) -> GuardNoSend {
        // SAFETY: the caller's.
        unsafe { self.sem.downgrade_to_upgradable() };
        self.new_upgradable()
    }
}

// SAFETY: as for the untimed forms; a failed upgrade still holds the upgradable acquisition.
unsafe impl<P: HasQueuePool, B: BiasPolicy> lock_api::RawRwLockUpgradeTimed for RawRwLock<P, B> {
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_upgradable_for(&self, timeout: Duration) -> Option<GuardNoSend> {
        self.lock_upgrade(after::<P>(timeout))
    }
    #[cfg_attr(debug_assertions, track_caller)]
    fn try_lock_upgradable_until(&self, instant: Instant) -> Option<GuardNoSend> {
        self.lock_upgrade(until::<P>(instant))
    }
    unsafe fn try_upgrade_for(
        &self,
        guard: GuardNoSend,
        timeout: Duration,
    ) -> Result<GuardNoSend, GuardNoSend> {
        self.upgrade_by(after::<P>(timeout), guard)
    }
    unsafe fn try_upgrade_until(
        &self,
        guard: GuardNoSend,
        instant: Instant,
    ) -> Result<GuardNoSend, GuardNoSend> {
        self.upgrade_by(until::<P>(instant), guard)
    }
}
