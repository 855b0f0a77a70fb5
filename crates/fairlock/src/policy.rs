//! Who acquires a contended [`RwSem`](crate::RwSem), and when: policies, which are zero-sized types.
//!
//! A policy is a set of constants, one knob for each fact about a real lock. The presets are named
//! after what they reproduce:
//!
//! | policy | reproduces | who can starve |
//! |---|---|---|
//! | [`TimeFair`] | Fairlock's own, the default: the sides share the lock's time | no thread |
//! | [`PhaseFair`] | phase-fair locks (Brandenburg and Anderson, 2010) | nobody; slow under contention |
//! | [`Linux3_10`] | rwsem of Linux 3.10 | readers and queued writers, under writers that steal |
//! | [`Linux3_16`] | rwsem of Linux 3.16: writers spin before they queue | the same |
//! | [`Linux5_1`] | before "wake almost all readers in the queue" (Long, 2019-05-20) | nobody for long (4 ms handoff), but slow |
//! | [`Linux5_2`] | after that patch | nobody for long |
//! | [`Linux5_3`] | rwsem of Linux 5.3 to 5.10: readers spin | writers, under readers that spin and overlap |
//! | [`Linux5_11`] | rwsem of Linux 5.11 and later: readers steal | writers, 4 ms for each write |
//! | [`NoReaderSteal`] | the same without reader stealing (Wang, 2026-05-21) | nobody for long |
//! | [`ImmediateHandoff`] | the same, handed over by every release: no real lock, but what 4 ms of stealing are for | nobody; slow under contention |
//!
//! ```
//! use fairlock::{RwSem, policy::Linux5_11};
//! let lock: RwSem<_, Linux5_11> = RwSem::with_policy(1);
//! assert_eq!(*lock.read(), 1);
//! ```
//!
//! A policy of your own is a type with the constants you want; nothing else changes:
//!
//! ```
//! use fairlock::{RwSem, policy::{Competition, Discipline, Policy, WriterSpin}};
//! struct Patient;
//! impl Policy for Patient {
//!     const NAME: &'static str = "patient";
//!     const DISCIPLINE: Discipline = Discipline::Compete(Competition {
//!         writer_spins: WriterSpin::Never,
//!         ..Competition::LINUX_5_11
//!     });
//! }
//! static LOCK: RwSem<u64, Patient> = RwSem::with_policy(7);
//! assert_eq!(*LOCK.read(), 7);
//! ```

/// How long the head of a queue may be passed before the lock is reserved for it: 4 ms, in ns. It is the
/// kernel rwsem's `RWSEM_WAIT_TIMEOUT`, one tick of a 250 Hz kernel, and not a measurement of our own. A
/// shorter time hands over more often, each time at the cost of a wake-up during which nobody holds the
/// lock; a longer one lengthens the longest wait.
pub const HANDOFF_AFTER_NS: u64 = 4_000_000;

/// The most that readers and writers can owe each other under [`TimeFair`]: 16 ms, in ns. So long, and for sixteen wake-ups and
/// a section more, may a side that waits be passed. Longer sections are not made up for.
pub const MOST_OWED_NS: u64 = 16_000_000;

/// How long a reader may stand in line under [`TimeFair`], once its entry has collided with others', before it queues:
/// 6 ms, in ns. It does not count as a waiter meanwhile, so this is part of how long it may be passed.
pub const LONGEST_IN_LINE_NS: u64 = 6_000_000;

/// The longest spin on an owner that may be running: 25 µs, in ns. Linux spins for as long as the owner
/// runs, but user space cannot see when it stops running, so a spin needs an end. A thread that spins for
/// as long as a sleep would take never pays more than twice the better of the two (Karlin et al., 1991);
/// the figure lies within the wake-ups that were measured
/// ([`WAKE_LATENCY_AT_FIRST`](crate::platform::WAKE_LATENCY_AT_FIRST)), and is the longest that Linux lets
/// a writer spin on readers.
pub const SPIN_ON_OWNER_NS: u64 = 25_000;

/// A policy of [`RwSem`](crate::RwSem). Implementations are never instantiated.
pub trait Policy: Send + Sync + 'static {
    /// The policy's name. The lab calls the lock by it, but for the default policy's, which is `rwsem`.
    const NAME: &'static str;
    /// How waiters and newcomers share the lock.
    const DISCIPLINE: Discipline;
}

/// The two families of policies.
#[derive(Debug, Clone, Copy)]
pub enum Discipline {
    /// Woken writers compete for the lock with newcomers, as in Linux.
    Compete(Competition),
    /// The two sides divide the lock's time.
    Shares(Shares),
}

/// Knobs of the Linux family. Every field is one fact about some version of
/// `kernel/locking/rwsem.c`.
#[derive(Debug, Clone, Copy)]
pub struct Competition {
    /// A reader takes the lock past queued waiters while nobody holds it and no handoff is
    /// pending (1a728dff855a, in 5.11).
    pub reader_steals: bool,
    /// Which readers are granted the lock together when a reader heads the queue.
    pub wake: ReaderWake,
    /// A writer takes a free lock past queued waiters (since 3.10's 4ecdf4e).
    pub writer_steals: bool,
    /// Where a writer spins while another writer, which may be running, holds the lock.
    pub writer_spins: WriterSpin,
    /// A writer that spins before it queues also spins while readers hold the lock, for
    /// (10 + readers / 2) µs, but not for longer than [`SPIN_ON_OWNER_NS`] (7d43f1ce9dd0, in 5.3).
    pub writer_spins_on_readers: bool,
    /// Readers spin like writers (cf69482d62d9, in 5.3; removed by 617f3ef95177, in 5.11).
    pub reader_spins: bool,
    /// When the head of the queue has the lock reserved for it.
    pub handoff: Handoff,
    /// A writer that sees a holder goes straight to the slow path, without first adding its bias to the
    /// lock word and removing it again. (Without this, at most 131,071 threads may be between these
    /// two steps at once.)
    pub writer_fast_fail: bool,
}

/// Where a writer spins on a running writer, for at most [`SPIN_ON_OWNER_NS`], before it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterSpin {
    /// Nowhere: it sleeps as soon as it has queued.
    Never,
    /// In the queue of waiters, whenever it would otherwise sleep: the first cure tried for the
    /// regression of 2013 (Tim Chen, 2013-06). All queued writers spin at the same time, on the lock
    /// word, as there is no queue of spinners. One that finds the lock free takes it as a woken writer
    /// does: with [`Competition::writer_steals`] also past writers that queued before it.
    InQueue,
    /// Before it queues, one at a time under an MCS queue (4fc828e24cd9, in 3.16).
    BeforeQueueing,
}

/// Which queued readers are granted the lock together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderWake {
    /// The readers before the first queued writer.
    FrontRun,
    /// Readers anywhere in the queue, at most this many at a time.
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

/// Knobs of Fairlock's own policies, in *wake-up latencies*
/// ([`Platform::wake_latency`](crate::platform::Platform::wake_latency)): the running estimate of what a wake-up
/// costs here, which differs tenfold between machines.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    /// A side shuts the other out once it is owed this many. Fewer: more of the time is spent on changes of sides. More:
    /// each side waits longer. 0: no thread ever passes a waiter.
    pub slack: u32,
    /// The spin before queueing. A thread that spins for as long as a sleep would take never pays more than twice the better
    /// of the two. 0 queues at once.
    pub spin: u32,
}

impl Shares {
    /// The knobs of [`TimeFair`], to start a policy of your own from.
    pub const TIME_FAIR: Shares = Shares { slack: 16, spin: 1 };

    /// The knobs of [`PhaseFair`].
    pub const PHASE_FAIR: Shares = Shares { slack: 0, spin: 0 };
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
    /// The default: the two sides divide the lock's *time*, whatever their sections take.
    ///
    /// # Guarantees
    /// * While both sides want the lock, each has it for about as long as the other. A side that wants less than half of
    ///   the time gets what it wants, as far as the other's sections let it, and leaves the rest to the other.
    /// * A side that waits is passed until it is owed sixteen wake-ups, or for as long as it has been ahead, at most
    ///   [`MOST_OWED_NS`]. Then no thread enters before it. Of the readers that wait, as many as there are CPUs enter at once, and
    ///   each that has begun to run lets in one more.
    /// * Of the writers that wait, the one that has waited longest competes with those that are awake. If it gets nothing, it is next.
    /// * Readers whose entries collide stand in a line, for at most [`LONGEST_IN_LINE_NS`]; they do not count as waiters yet.
    /// * All of this also holds when another waiter gives up, and whether newcomers wait or only try.
    ///
    /// # How it works
    /// An account says for how much longer one side has had the lock than the other. While the two are level, threads
    /// spin and take the lock as it comes. A side that has waited shuts the other out once it is owed enough, and then has
    /// the lock for what it is owed and sixteen wake-ups more. The first waiter of the side that is passed watches the clock;
    /// of those that enter while others want the lock, one in sixteen looks at it.
    TimeFair "timefair" = Discipline::Shares(Shares::TIME_FAIR);

    /// Phases without admission past a waiter: phase-fair in the sense of Brandenburg and
    /// Anderson (2010).
    ///
    /// # Guarantees
    /// * The writer that heads the queue is passed by each reader at most once: by at most as many
    ///   acquisitions as there are readers.
    /// * A reader is passed by at most one writer.
    /// * Writers are first come, first served.
    PhaseFair "phase-fair" = Discipline::Shares(Shares::PHASE_FAIR);

    /// The rwsem of Linux 3.10: writers steal and nobody spins.
    ///
    /// # Guarantees
    /// None for readers or queued writers while newly arrived writers keep stealing. Readers never
    /// pass a waiter.
    Linux3_10 "linux-3.10" = Discipline::Compete(Competition::LINUX_3_10);

    /// The rwsem of Linux 3.16: [`Linux3_10`] whose writers spin on a running writer before they
    /// queue (4fc828e24cd9).
    ///
    /// # Guarantees
    /// None for readers or queued writers while newly arrived writers keep stealing, and a writer that
    /// spins steals more often than one that would have to wake up. Readers never pass a waiter.
    Linux3_16 "linux-3.16" = Discipline::Compete(Competition {
        writer_spins: WriterSpin::BeforeQueueing,
        ..Competition::LINUX_3_10
    });

    /// The rwsem just before the patch "rwsem: wake almost all readers in the queue" (Waiman Long,
    /// v8 10/19, 2019-05-20): only the readers before the first queued writer are woken.
    ///
    /// # Guarantees
    /// The head of the queue is passed for at most [`HANDOFF_AFTER_NS`], plus the sections of the holders
    /// that it then finds.
    Linux5_1 "linux-5.1" = Discipline::Compete(Competition {
        reader_steals: false,
        wake: ReaderWake::FrontRun,
        writer_spins_on_readers: false,
        ..Competition::LINUX_5_11
    });

    /// The same lock after that patch: readers anywhere in the queue are woken, at most 256 at a time.
    ///
    /// # Guarantees
    /// As [`Linux5_1`]. In addition, once any reader heads the queue, a reader waits for at most one turn
    /// of a queued writer.
    Linux5_2 "linux-5.2" = Discipline::Compete(Competition {
        reader_steals: false,
        writer_spins_on_readers: false,
        ..Competition::LINUX_5_11
    });

    /// The rwsem of Linux 5.3 to 5.10: readers spin too, writers spin on readers.
    ///
    /// # Guarantees
    /// As [`Linux5_2`], but a reader that spins takes the lock past waiters as soon as no writer holds it.
    /// While such readers overlap without a gap, the head of the queue is not woken and so cannot have the
    /// lock reserved: it is passed for as long as they overlap.
    Linux5_3 "linux-5.3" = Discipline::Compete(Competition {
        reader_steals: false,
        reader_spins: true,
        ..Competition::LINUX_5_11
    });

    /// The rwsem of Linux 5.11 and later: readers steal past waiters.
    ///
    /// # Guarantees
    /// A writer that heads the queue is passed for at most [`HANDOFF_AFTER_NS`], plus the sections of the
    /// holders that it then finds. Under a reader that takes the lock back to back for long sections, every
    /// write waits for that long (Peng Wang, 2026-05-21).
    Linux5_11 "linux-5.11" = Discipline::Compete(Competition::LINUX_5_11);

    /// [`Linux5_11`] without reader stealing: the cure proposed on 2026-05-21.
    ///
    /// # Guarantees
    /// A reader never passes a waiter; newly arrived writers pass a queued writer for at most
    /// [`HANDOFF_AFTER_NS`].
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
/// use fairlock::RwLock;
/// use fairlock::policy::{Bias, BiasPolicy};
///
/// /// From the first read on.
/// struct AtOnce;
/// impl BiasPolicy for AtOnce {
///     const BIAS: Bias = Bias { reads: 0, ..Bias::READ_MOSTLY };
/// }
/// static LOCK: RwLock<u64, AtOnce> = RwLock::with_policy(7);
/// assert_eq!(*LOCK.read(), 7);
/// ```
pub trait BiasPolicy: Send + Sync + 'static {
    /// The knobs.
    const BIAS: Bias;
}

/// Knobs of [`RwLock`](crate::RwLock)'s bias; see [`crate::rwlock`] for the states.
#[derive(Debug, Clone, Copy)]
pub struct Bias {
    /// Readers use slots after about this many reads, and an eighth of it more for each write in between, or more where a look at all
    /// slots takes long. 0: at once; `u32::MAX`: never. Fewer: a lock that is written often is biased, and each write looks at the
    /// slots in vain. More: a lock that is mostly read stays unbiased for longer.
    pub reads: u32,
    /// After this many writes that had to look at the slots, and one more, readers use the semaphore again
    /// and the lock counts reads anew; after fewer where a look takes more than a microsecond. Fewer: the lock finds out sooner that it
    /// is now written often. More: it interrupts its readers' use of slots less often.
    pub writes: u8,
    /// While a thread's reads use fences, one in this many looks at the clock to find out whether fences
    /// are still needed; with 0 and 1 each does. Fewer: the clock costs each read more. More: fences are dropped later.
    pub reads_per_look: u32,
    /// Readers drop their fences once no write has come for this many times as long as a barrier on all
    /// CPUs and a quarter of a look at all slots take. The next write has to do both, so barriers take at most one part in this many
    /// of the time, and looks four. Less patience: writes pay for barriers more often. More: reads pay for fences for
    /// longer.
    pub patience: u32,
}

impl Bias {
    /// The knobs of [`ReadMostly`], to start a policy of your own from. With these `reads`, a lock with one write in ten accesses stays
    /// unbiased, and one with a write in a hundred becomes biased. On 2 CPUs, with empty sections, slots would halve the rate of the
    /// former, and make that of the latter two to four times as high. The other knobs were chosen, not measured: `writes` is the largest
    /// that fits the lock's word, and the other two bound what a look at the clock costs a read and what barriers cost writes.
    pub const READ_MOSTLY: Bias =
        Bias { reads: 128, writes: 255, reads_per_look: 512, patience: 20 };
}

/// Readers use slots after about 128 reads, and 16 more for each write in between. They drop their fences once a
/// barrier on all CPUs costs at most a twentieth of the time since the last write.
#[derive(Debug, Clone, Copy)]
pub struct ReadMostly;

impl BiasPolicy for ReadMostly {
    const BIAS: Bias = Bias::READ_MOSTLY;
}
