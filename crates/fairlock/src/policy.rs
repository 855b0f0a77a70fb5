//! Who may enter a contended [`RwSem`](crate::RwSem), and when: zero-sized policies.
//!
//! A policy is a set of associated constants, one knob for each fact about a real lock. The
//! presets are named after what they reproduce:
//!
//! | policy | reproduces | who can starve |
//! |---|---|---|
//! | [`TimeFair`] | Fairlock's own, the default | nobody: each side is passed for at most one budget |
//! | [`PhaseFair`] | phase-fair locks (Brandenburg and Anderson, 2010) | nobody; slow under contention |
//! | [`Linux3_10`] | rwsem of Linux 3.10 | readers and queued writers, by stealing writers |
//! | [`Linux3_16`] | rwsem of Linux 3.16: writers spin before they queue | the same |
//! | [`Linux5_1`] | before "wake almost all readers in the queue" (Long, 2019-05-20) | nobody for long (4 ms handoff), but slow |
//! | [`Linux5_2`] | after that patch | nobody for long |
//! | [`Linux5_3`] | rwsem of Linux 5.3 to 5.10: readers spin | writers, under readers that spin and overlap |
//! | [`Linux5_11`] | rwsem of Linux 5.11 and later: readers steal | writers, 4 ms for each write |
//! | [`NoReaderSteal`] | the same without reader stealing (Wang, 2026-05-21) | nobody for long |
//! | [`ImmediateHandoff`] | the same, handed over by every release: no real lock, but what 4 ms of stealing are for | nobody; slow under contention |
//!
//! ```
//! use fairlock::{PolicyRwSem, policy::Linux5_11};
//! let lock: PolicyRwSem<_, Linux5_11> = PolicyRwSem::new(1);
//! assert_eq!(*lock.read(), 1);
//! ```
//!
//! A policy of your own is a type with the constants you want; nothing else changes:
//!
//! ```
//! use fairlock::{PolicyRwSem, policy::{Competition, Discipline, Policy, WriterSpin}};
//! struct Patient;
//! impl Policy for Patient {
//!     const NAME: &'static str = "patient";
//!     const DISCIPLINE: Discipline = Discipline::Compete(Competition {
//!         writer_spins: WriterSpin::Never,
//!         ..Competition::LINUX_5_11
//!     });
//! }
//! static LOCK: PolicyRwSem<u64, Patient> = PolicyRwSem::new(7);
//! assert_eq!(*LOCK.read(), 7);
//! ```

/// For how long the head of a queue may be passed before the lock is reserved for it, ns: the kernel
/// rwsem's `RWSEM_WAIT_TIMEOUT`, one tick of a 250 Hz kernel. A shorter one hands over more often, each
/// time at the cost of a wake-up during which nobody holds the lock; a longer one makes the longest wait
/// longer.
pub const HANDOFF_AFTER_NS: u64 = 4_000_000;

/// The longest budget of a phase, ns: as long as Linux lets the head of the queue be passed, so that the
/// longest waits of both families compare.
pub const LONGEST_BUDGET_NS: u64 = HANDOFF_AFTER_NS;

/// Longest spin on a writer that may be running, ns. Linux spins for as long as the owner runs; a section
/// that runs for longer than this is worth a sleep. It is what a sleep costs: wake-ups have been measured
/// at 3.4 to 32 µs, and a thread that spins for as long as a sleep would take never pays more than twice
/// the better of the two (Karlin et al., 1991).
pub const SPIN_ON_OWNER_NS: u64 = 25_000;

/// A policy of [`RwSem`](crate::RwSem). Implementations are never instantiated.
pub trait Policy: Send + Sync + 'static {
    /// The name in reports.
    const NAME: &'static str;
    /// How waiters and newcomers share the lock.
    const DISCIPLINE: Discipline;
}

/// The two families of policies.
#[derive(Debug, Clone, Copy)]
pub enum Discipline {
    /// Woken writers compete for the lock with newcomers, as in Linux.
    Compete(Competition),
    /// Phases of readers and of writers alternate. When a phase ends the lock is handed to the other
    /// side; where only writers wait, they may compete for it until the phase's budget has ended.
    Phases(Phases),
}

/// Knobs of the Linux family. Every field is one fact about some version of
/// `kernel/locking/rwsem.c`.
#[derive(Debug, Clone, Copy)]
pub struct Competition {
    /// A reader takes the lock past queued waiters while no writer holds it and no handoff is
    /// pending, unless another reader holds it (1a728dff855a, in 5.11).
    pub reader_steals: bool,
    /// Which readers a waker lets in when a reader heads the queue.
    pub wake: ReaderWake,
    /// A writer takes a free lock past queued waiters (since 3.10's 4ecdf4e).
    pub writer_steals: bool,
    /// Where a writer spins while the lock is another writer's that may be running.
    pub writer_spins: WriterSpin,
    /// A writer that spins before it queues also spins while readers hold the lock,
    /// (10 + readers / 2) µs and at most 25 µs (7d43f1ce9dd0, in 5.3).
    pub writer_spins_on_readers: bool,
    /// Readers spin like writers (cf69482d62d9, in 5.3; removed by 617f3ef95177, in 5.11).
    pub reader_spins: bool,
    /// When the head of the queue has the lock reserved for it.
    pub handoff: Handoff,
    /// A writer that sees a holder goes straight to the slow path, without first adding and
    /// removing its bias on the lock word. (Without this, a million threads may be between these
    /// two steps at once, and no more.)
    pub writer_fast_fail: bool,
}

/// Where a writer spins on a running writer, for at most 25 µs, before it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterSpin {
    /// Nowhere: it sleeps as soon as it has queued.
    Never,
    /// In the queue of waiters, whenever it would sleep otherwise: the first cure tried for the
    /// regression of 2013 (Tim Chen, 2013-06). All that are queued spin at the same time, on the lock
    /// word, as there is no queue of spinners. Who finds the lock free takes it as a woken writer
    /// does: with [`Competition::writer_steals`] also past those that queued before.
    InQueue,
    /// Before it queues, one at a time under an MCS queue (4fc828e24cd9, in 3.16).
    BeforeQueueing,
}

/// Which queued readers are let in together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderWake {
    /// Those before the first queued writer.
    FrontRun,
    /// Those anywhere in the queue, at most this many for one wake-up.
    Batch(u32),
}

/// When the head of the queue stops competing and has the lock reserved for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handoff {
    /// Never.
    Never,
    /// Once it has waited this long, in ns.
    After(u64),
    /// At once: a release hands the lock to the head of the queue, and the lock is reserved for a head
    /// that finds it held. Ruinous for throughput, and therefore of interest ([`ImmediateHandoff`]).
    Immediate,
}

/// Knobs of the phase family. Times are in wake-up latencies (a running estimate, 3 µs on bare
/// metal, ten times that on some virtual machines), because what a phase must outweigh is the
/// wake-ups that it costs.
#[derive(Debug, Clone, Copy)]
pub struct Phases {
    /// Shortest budget: for this many wake-up latencies a side may keep entering past waiters of
    /// the other.
    pub shortest_budget: u32,
    /// Budget, in wake-up latencies, for each wake-up that the phase began with.
    pub budget_per_wakeup: u32,
    /// Longest budget in ns, whatever the above say. 0: nobody is ever passed.
    pub longest_budget: u64,
    /// Longest spin before queueing, in eighths of a wake-up latency; 0 queues at once.
    pub spin: u32,
}

impl Competition {
    /// The knobs of [`Linux3_10`], to start a policy of your own from.
    pub const LINUX_3_10: Competition = Competition {
        reader_steals: false,
        wake: ReaderWake::FrontRun,
        writer_steals: true,
        writer_spins: WriterSpin::Never,
        writer_spins_on_readers: false,
        reader_spins: false,
        handoff: Handoff::Never,
        writer_fast_fail: false,
    };

    /// The knobs of [`Linux5_11`], to start a policy of your own from.
    pub const LINUX_5_11: Competition = Competition {
        reader_steals: true,
        wake: ReaderWake::Batch(256),
        writer_steals: true,
        writer_spins: WriterSpin::BeforeQueueing,
        writer_spins_on_readers: true,
        reader_spins: false,
        handoff: Handoff::After(HANDOFF_AFTER_NS),
        writer_fast_fail: true,
    };
}

macro_rules! policies {
    ($($(#[$doc:meta])* $name:ident $label:literal = $discipline:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            pub struct $name;

            impl Policy for $name {
                const NAME: &'static str = $label;
                const DISCIPLINE: Discipline = $discipline;
            }
        )*
    };
}

policies! {
    /// Nobody is passed for longer than about the time the other side needs: the default.
    ///
    /// Phases of readers and of writers alternate while both wait. A running phase stays open
    /// to newcomers of its own side until its budget ends, so short sections keep the speed of
    /// lock stealing; a holder is admitted past a waiter only if it is expected to be out
    /// before the budget ends. The budget is the longest of: the running estimates of both
    /// sides' hold times, 48 wake-up latencies (16 if holds are short and only one waits), and 2 for each
    /// wake-up that the phase began with; it is at most 4 ms, and both sides get about the same.
    ///
    /// # Guarantees
    /// * A waiting reader is passed in what is left of the running phase and in one phase of writers
    ///   at most, and then enters together with every waiting reader. Admissions to a phase end with its
    ///   budget.
    /// * The writer that has waited longest is passed in what is left of the running phase and in one
    ///   phase of readers. If it is woken to compete beside the running writer and gets nothing, the
    ///   next one may overtake it, once: then it is twice as much.
    /// * Writers come up for the lock in the order in which they queued, but for that. Where only
    ///   writers wait, the one that has waited longest is woken whenever the lock is left free and
    ///   competes with those that come, which pass it for at most one budget.
    /// * Newcomers of either side may use a lock that stands free in a phase of the other, within its
    ///   budget: at once where sections are short, else after that side has stayed away.
    /// * This holds for whoever waits, also when another waiter gives up, and whether those that come
    ///   wait or only try.
    /// * When nobody looks at the clock a budget ends at most one wake-up and one timer slack
    ///   late (Linux: 50 µs by default), and a holder that stays in longer than it was expected
    ///   to extends the phase by that much: no lock can throw a holder out.
    ///
    /// The figures were chosen on a 2-CPU virtual machine whose wake-ups took between 4 µs and
    /// 60 µs, by trying 16 to 64 latencies on an equal mix of readers and writers: a phase must be
    /// long against the wake-ups that it costs, and longer ones make waits longer.
    TimeFair "timefair" = Discipline::Phases(Phases {
        shortest_budget: 48,
        budget_per_wakeup: 2,
        longest_budget: LONGEST_BUDGET_NS,
        spin: 8,
    });

    /// Phases without admission past a waiter: phase-fair in the sense of Brandenburg and
    /// Anderson (2010).
    ///
    /// # Guarantees
    /// * The writer that heads the queue is passed by each reader at most once; that is at most
    ///   as many acquisitions as there are readers.
    /// * A reader is passed by at most one writer.
    /// * Writers are first come, first served.
    PhaseFair "phase-fair" = Discipline::Phases(Phases {
        shortest_budget: 0,
        budget_per_wakeup: 0,
        longest_budget: 0,
        spin: 0,
    });

    /// The rwsem of Linux 3.10: writers steal and nobody spins.
    ///
    /// # Guarantees
    /// None for readers or queued writers while newcoming writers keep stealing. Readers never
    /// pass a waiter.
    Linux3_10 "linux-3.10" = Discipline::Compete(Competition::LINUX_3_10);

    /// The rwsem of Linux 3.16: [`Linux3_10`] whose writers spin on a running writer before they
    /// queue (4fc828e24cd9).
    ///
    /// # Guarantees
    /// None for readers or queued writers while newcoming writers keep stealing, which those that
    /// spin do more often than those that would have to wake up. Readers never pass a waiter.
    Linux3_16 "linux-3.16" = Discipline::Compete(Competition {
        writer_spins: WriterSpin::BeforeQueueing,
        ..Competition::LINUX_3_10
    });

    /// The lock under "rwsem: wake almost all readers in the queue" before that patch (Waiman
    /// Long, v8 10/19, 2019-05-20): front readers are woken up to the first writer.
    ///
    /// # Guarantees
    /// The head of the queue is passed for at most 4 ms plus the holders it then finds.
    Linux5_1 "linux-5.1" = Discipline::Compete(Competition {
        reader_steals: false,
        wake: ReaderWake::FrontRun,
        writer_spins_on_readers: false,
        ..Competition::LINUX_5_11
    });

    /// The same lock after that patch: readers anywhere in the queue are woken, at most 256.
    ///
    /// # Guarantees
    /// As [`Linux5_1`]; in addition a reader waits for at most one turn of a queued writer once
    /// any reader heads the queue.
    Linux5_2 "linux-5.2" = Discipline::Compete(Competition {
        reader_steals: false,
        writer_spins_on_readers: false,
        ..Competition::LINUX_5_11
    });

    /// The rwsem of Linux 5.3 to 5.10: readers spin too, writers spin on readers.
    ///
    /// # Guarantees
    /// As [`Linux5_2`], but a reader that spins takes the lock past waiters as soon as no writer is in. Where
    /// such readers overlap all the time, the head of the queue does not wake up to have the lock
    /// reserved, and is passed for as long as they do.
    Linux5_3 "linux-5.3" = Discipline::Compete(Competition {
        reader_steals: false,
        reader_spins: true,
        ..Competition::LINUX_5_11
    });

    /// The rwsem of Linux 5.11 and later: readers steal past waiters.
    ///
    /// # Guarantees
    /// A writer that heads the queue is passed for at most 4 ms plus the holders it then finds.
    /// Under a reader with long sections that back to back takes the lock, every write pays
    /// those 4 ms (Peng Wang, 2026-05-21).
    Linux5_11 "linux-5.11" = Discipline::Compete(Competition::LINUX_5_11);

    /// [`Linux5_11`] without reader stealing: the cure proposed on 2026-05-21.
    ///
    /// # Guarantees
    /// A reader never passes a waiter; a queued writer is passed by newcoming writers for at
    /// most 4 ms.
    NoReaderSteal "no-reader-steal" = Discipline::Compete(Competition {
        reader_steals: false,
        ..Competition::LINUX_5_11
    });

    /// [`Linux5_11`] that hands over at once: what its 4 ms of stealing buy is the difference.
    ///
    /// # Guarantees
    /// The lock is reserved for a waiter that heads the queue, and the holder's release hands it over. Only
    /// those pass that waiter who take the lock between a release and the handover, before the lock is
    /// reserved: each thread at most once. Every handover waits for a thread to wake up, so throughput under
    /// contention is that of wake-ups.
    ImmediateHandoff "immediate-handoff" = Discipline::Compete(Competition {
        handoff: Handoff::Immediate,
        ..Competition::LINUX_5_11
    });
}

/// When the readers of an [`RwLock`](crate::RwLock) use slots: a zero-sized type with one constant.
/// [`ReadMostly`] is the default.
///
/// ```
/// use fairlock::lock_api;
/// use fairlock::platform::Os;
/// use fairlock::policy::{Bias, BiasPolicy};
/// use fairlock::rwlock::RawRwLock;
///
/// /// From the first read on.
/// struct AtOnce;
/// impl BiasPolicy for AtOnce {
///     const BIAS: Bias = Bias { reads: 0, ..Bias::READ_MOSTLY };
/// }
/// static LOCK: lock_api::RwLock<RawRwLock<Os, AtOnce>, u64> = lock_api::RwLock::new(7);
/// assert_eq!(*LOCK.read(), 7);
/// ```
pub trait BiasPolicy: Send + Sync + 'static {
    /// The knobs.
    const BIAS: Bias;
}

/// Knobs of [`RwLock`](crate::RwLock)'s bias; see [`crate::rwlock`] for the states.
#[derive(Debug, Clone, Copy)]
pub struct Bias {
    /// After so many reads, and an eighth of that for each write, readers use slots.
    pub reads: u32,
    /// After so many writes that had to look at the slots, and one more, the lock counts reads anew.
    pub writes: u8,
    /// Every so many-th read of a thread with a fence looks at the clock whether fences are still
    /// needed.
    pub reads_per_look: u32,
    /// Readers do without fences once no write has come for so many times as long as a barrier on
    /// all CPUs takes, which the next write will cost.
    pub patience: u32,
}

impl Bias {
    /// The knobs of [`ReadMostly`], to start a policy of your own from.
    pub const READ_MOSTLY: Bias =
        Bias { reads: 128, writes: 255, reads_per_look: 512, patience: 20 };
}

/// Readers use slots after 128 reads, and 16 for each write; and no fences after a time without a
/// write of which a barrier on all CPUs is a twentieth.
#[derive(Debug, Clone, Copy)]
pub struct ReadMostly;

impl BiasPolicy for ReadMostly {
    const BIAS: Bias = Bias::READ_MOSTLY;
}
