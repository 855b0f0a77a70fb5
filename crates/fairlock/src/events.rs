//! Lock events: what the slow paths did, counted per lock in the style of the Linux kernel's
//! `lock_events` (`kernel/locking/lock_events_list.h`).
//!
//! Counting is a property of the platform a lock is built on: locks on
//! [`Os`](crate::platform::Os) carry a zero-sized counter and compile to no instruction at all,
//! locks on [`Counting`](crate::platform::Counting) carry sharded counters.
//!
//! ```
//! use fairlock::{RwSem, platform::Counting, policy::TimeFair, rwsem};
//! let lock: RwSem<u32, TimeFair, Counting> = RwSem::with_policy(0);
//! *lock.write() += 1;
//! assert!(rwsem::events(&lock).iter().all(|(_, count)| count == 0)); // nobody waited
//! ```

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! events {
    ($($variant:ident = $name:literal: $meaning:literal,)*) => {
        /// What can be counted. The list is the single source of names and meanings.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Event {
            $(#[doc = $meaning] $variant,)*
        }

        impl Event {
            /// Every event, in the order of their numbers.
            pub const ALL: &'static [Event] = &[$(Event::$variant,)*];

            /// The event's name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Event::$variant => $name,)* }
            }

            /// One line on what was counted.
            pub const fn meaning(self) -> &'static str {
                match self { $(Event::$variant => $meaning,)* }
            }
        }
    };
}

events! {
    SleepReader = "rwsem_sleep_reader": "A waiting reader went to sleep.",
    SleepWriter = "rwsem_sleep_writer": "A waiting writer went to sleep.",
    WakeReader = "rwsem_wake_reader": "A queued reader was woken with the lock granted.",
    WakeWriter = "rwsem_wake_writer": "A queued writer was woken.",
    OptLock = "rwsem_opt_lock": "Acquired the lock by spinning, instead of queueing or, if queued, of sleeping.",
    OptFail = "rwsem_opt_fail": "Spun in vain, then queued or, if queued, slept.",
    OptNospin = "rwsem_opt_nospin": "Did not spin: the owner is not running, or spinning was ruled out.",
    Rlock = "rwsem_rlock": "A reader acquired the lock after queueing.",
    RlockSteal = "rwsem_rlock_steal": "A reader took the lock past the queued waiters.",
    RlockFast = "rwsem_rlock_fast": "A reader or writer acquired the lock at once in the slow path, without spinning or queueing.",
    RlockFail = "rwsem_rlock_fail": "A queued reader gave up at its deadline.",
    RlockHandoff = "rwsem_rlock_handoff": "A reader that waited too long had the lock reserved for it.",
    Wlock = "rwsem_wlock": "A writer acquired the lock after queueing.",
    WlockFail = "rwsem_wlock_fail": "A queued writer gave up at its deadline.",
    WlockHandoff = "rwsem_wlock_handoff": "A writer that waited too long had the lock reserved for it.",
    PhaseRead = "phase_read": "A phase of readers began.",
    PhaseWrite = "phase_write": "A phase of writers began.",
    PhaseIdle = "phase_idle": "A thread acquired the lock in a phase of the other side, which had left it free.",
    PhaseWoken = "phase_woken": "A waiter was woken to try again: because only writers wait and it has waited longest, or because readers in slots leave the lock free most of the time.",
    PhaseClosed = "phase_closed": "The lock was shut to newcomers, to be handed over.",
    Upgrade = "rwsem_upgrade": "An upgradable read had to wait for other readers to release the lock.",
    BiasBegin = "bias_begin": "Readers began to use slots.",
    BiasEnd = "bias_end": "Readers stopped using slots, so that the lock can find out anew whether they should.",
    BiasRevoke = "bias_revoke": "A writer had to look at the slots.",
    BiasBarrier = "bias_barrier": "A writer raised a barrier on all CPUs, because readers used no fences.",
    BiasUnfenced = "bias_unfenced": "Readers stopped using fences.",
    MutexSleep = "mutex_sleep": "A thread that waited for a mutex went to sleep.",
    MutexWake = "mutex_wake": "A thread that waited for a mutex was woken.",
    MutexHandoff = "mutex_handoff": "A mutex was handed to the thread that had waited longest.",
}

/// Receives the events of one lock. The two implementations are [`NoCounters`] and [`Counters`].
pub trait CountEvents: Send + Sync {
    /// Counters at zero, usable in statics.
    const NEW: Self;
    /// Adds `n` to `event`.
    fn add(&self, event: Event, n: u64);
    /// The event's count so far.
    fn get(&self, event: Event) -> u64;
    /// Adds one to `event`.
    #[inline(always)]
    fn count(&self, event: Event) {
        self.add(event, 1);
    }
}

/// Counts nothing and takes no space.
#[derive(Debug, Clone, Copy)]
pub struct NoCounters;

impl CountEvents for NoCounters {
    const NEW: Self = NoCounters;
    #[inline(always)]
    fn add(&self, _event: Event, _n: u64) {}
    fn get(&self, _event: Event) -> u64 {
        0
    }
}

/// Shards of a lock's counters. More of them let more threads count at once without sharing a line,
/// at two or more lines each; 16 was chosen, not measured.
const SHARDS: usize = 16;
const EVENTS: usize = Event::ALL.len();

#[repr(align(128))]
struct Shard([AtomicU64; EVENTS]);

/// Sharded counters: threads are spread over shards so that counting does not itself become
/// the contended line.
pub struct Counters([Shard; SHARDS]);

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(Snapshot::of(self).iter().map(|(event, n)| (event.name(), n)))
            .finish()
    }
}

impl CountEvents for Counters {
    const NEW: Self = Counters([const { Shard([const { AtomicU64::new(0) }; EVENTS]) }; SHARDS]);

    fn add(&self, event: Event, n: u64) {
        self.0[shard()].0[event as usize].fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self, event: Event) -> u64 {
        let of = |shard: &Shard| shard.0[event as usize].load(Ordering::Relaxed);
        self.0.iter().map(of).sum()
    }
}

/// Threads take shards in turn, at their first counted event.
fn shard() -> usize {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    std::thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) as usize % SHARDS;
    }
    MINE.try_with(|&mine| mine).unwrap_or(0)
}

/// One lock's counts at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot([u64; EVENTS]);

impl Snapshot {
    /// What these have counted so far.
    pub fn of(counters: &impl CountEvents) -> Self {
        let mut counts = [0; EVENTS];
        for &event in Event::ALL {
            counts[event as usize] = counters.get(event);
        }
        Snapshot(counts)
    }

    /// One event's count.
    pub fn get(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    /// Every event with its count, zeros included.
    pub fn iter(&self) -> impl Iterator<Item = (Event, u64)> + '_ {
        Event::ALL.iter().map(|&event| (event, self.get(event)))
    }
}
