//! How a contended lock is shared: policies, which are zero-sized types with a constant or two.
//!
//! | policy | readers and writers | who can starve |
//! |---|---|---|
//! | [`TimeFair`] | divide the lock's time; the default | no thread |
//! | [`PhaseFair`] | take turns, and no thread passes a waiter (Brandenburg and Anderson, 2010) | no thread; slow under contention |
//!
//! A policy of your own is a type with the constants you want:
//!
//! ```
//! use fairlock::{RwSem, policy::{Policy, Shares}};
//! /// Changes sides more often than the default, for shorter waits.
//! struct Impatient;
//! impl Policy for Impatient {
//!     const NAME: &'static str = "impatient";
//!     const SHARES: Shares = Shares { slack: 4, ..Shares::TIME_FAIR };
//! }
//! static LOCK: RwSem<u64, Impatient> = RwSem::with_policy(7);
//! assert_eq!(*LOCK.read(), 7);
//! ```

/// How long the head of a queue may be passed before the lock is reserved for it: 4 ms, in ns. It
/// is the kernel rwsem's `RWSEM_WAIT_TIMEOUT`, one tick of a 250 Hz kernel, and not a measurement
/// of our own. A shorter time hands over more often, each time at the cost of a wake-up during
/// which no thread holds the lock; a longer one lengthens the longest wait.
pub const HANDOFF_AFTER_NS: u64 = 4_000_000;

/// The most that readers and writers can owe each other under [`TimeFair`]: 16 ms, in ns. A side
/// that waits is passed for at most this long, sixteen wake-ups and a section. What one section
/// takes beyond it is never paid back.
pub const MOST_OWED_NS: u64 = 16_000_000;

/// How long a reader may stand in line under [`TimeFair`], once its entry has collided with
/// others', before it queues: 6 ms, in ns. It does not count as a waiter meanwhile, so this is part
/// of how long it may be passed.
pub const LONGEST_IN_LINE_NS: u64 = 6_000_000;

/// The longest spin on an owner that may be running: 25 µs, in ns. Linux spins for as long as the
/// owner runs, but user space cannot see when it stops running, so a spin needs an end. A thread
/// that spins for as long as a sleep would take never pays more than twice the better of the two
/// (Karlin et al., 1991); the figure lies within the wake-ups that were measured
/// ([`WAKE_LATENCY_AT_FIRST`](crate::platform::WAKE_LATENCY_AT_FIRST)), and is the longest that
/// Linux lets a writer spin on readers.
pub const SPIN_ON_OWNER_NS: u64 = 25_000;

/// A policy of [`RwSem`](crate::RwSem). Implementations are never instantiated.
pub trait Policy: Send + Sync + 'static {
    /// The policy's name. The lab calls the lock by it, but for the default policy's, which is
    /// `rwsem`.
    const NAME: &'static str;
    /// How the two sides divide the lock's time.
    const SHARES: Shares;
}

/// Knobs of Fairlock's own policies, in *wake-up latencies*
/// ([`Platform::wake_latency`](crate::platform::Platform::wake_latency)): the running estimate of
/// what a wake-up costs here, which differs tenfold between machines.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    /// A side shuts the other out once it is owed this many. Fewer: more of the time is spent on
    /// changes of sides. More: each side waits longer; more than 1,024 count as 1,024. 0: no thread
    /// ever passes a waiter.
    pub slack: u32,
    /// The spin before queueing. A thread that spins for as long as a sleep would take never pays
    /// more than twice the better of the two. 0 queues at once.
    pub spin: u32,
}

impl Shares {
    /// The knobs of [`TimeFair`], to start a policy of your own from.
    pub const TIME_FAIR: Shares = Shares { slack: 16, spin: 1 };

    /// The knobs of [`PhaseFair`].
    pub const PHASE_FAIR: Shares = Shares { slack: 0, spin: 0 };
}

macro_rules! policies {
    ($($(#[$doc:meta])* $name:ident $label:literal = $shares:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            pub struct $name;

            impl Policy for $name {
                const NAME: &'static str = $label;
                const SHARES: Shares = $shares;
            }
        )*
    };
}

policies! {
    /// The default: the two sides divide the lock's *time*, whatever their sections take.
    ///
    /// # Guarantees
    /// * While both sides want the lock, each has it for about as long as the other. A side that
    ///   wants less than half of the time gets what it wants, as far as the other's sections let
    ///   it, and leaves the rest to the other.
    /// * Threads that come later pass a side that waits until it is owed sixteen wake-ups; a side
    ///   that has been ahead first pays that back, which takes at most [`MOST_OWED_NS`]. Then no
    ///   thread enters before it, but an upgradable reader that was waiting when the other side's
    ///   turn began. Of the readers that wait, as many as there are CPUs enter at once, and each
    ///   that has begun to run lets in one more.
    /// * When a writer leaves, the writer that has waited longest is woken and competes with those
    ///   that run. If it loses, it is the next to get the lock, unless the writers' turn is over.
    /// * Readers whose entries collide stand in a line, for at most [`LONGEST_IN_LINE_NS`]; they do
    ///   not count as waiters yet.
    /// * All of this also holds when another waiter gives up, and whether newcomers wait or only
    ///   try.
    ///
    /// # How it works
    /// An account says for how much longer one side has had the lock than the other. While the two
    /// are level, threads spin and take the lock as it comes. A side that has waited shuts the
    /// other out once it is owed enough, and then has the lock for what it is owed and sixteen
    /// wake-ups more, unless it leaves the lock free for a while. The first waiter of the side that
    /// is passed watches the clock; of the threads that enter while a side that owes time is shut
    /// out, one in sixteen looks at it.
    TimeFair "timefair" = Shares::TIME_FAIR;

    /// Phases without admission past a waiter: phase-fair in the sense of Brandenburg and
    /// Anderson (2010).
    ///
    /// # Guarantees
    /// * The writer that heads the queue is passed by each reader at most once: by at most as many
    ///   acquisitions as there are readers.
    /// * A reader is passed by at most one writer.
    /// * Writers are first come, first served.
    PhaseFair "phase-fair" = Shares::PHASE_FAIR;
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
    /// Readers use slots after about this many reads, and an eighth of it more for each write in
    /// between. 0: at once; `u32::MAX`: never. Fewer: a lock that is written often is biased, and
    /// each write looks at the slots in vain. More: a lock that is mostly read stays unbiased for
    /// longer.
    pub reads: u32,
    /// After this many writes that had to look at the slots, and one more, readers use the
    /// semaphore again and the lock counts reads anew; after fewer where a look takes more than a
    /// microsecond. Fewer: the lock finds out sooner that it is now written often. More: it
    /// interrupts its readers' use of slots less often.
    pub writes: u8,
    /// While a thread's reads use fences, one in this many looks at the clock to find out whether
    /// fences are still needed; with 0 and 1 each does. Fewer: the clock costs each read more.
    /// More: fences are dropped later.
    pub reads_per_look: u32,
    /// Readers drop their fences once no write has come for this many times as long as a barrier on
    /// all CPUs and a quarter of a look at all slots take. The next write has to do both, so
    /// barriers take at most 1 ÷ `patience` of the time, and looks at most 4 ÷ `patience`. Less
    /// patience: writes pay for barriers more often. More: reads pay for fences for longer.
    pub patience: u32,
}

impl Bias {
    /// The knobs of [`ReadMostly`], to start a policy of your own from. With these `reads`, a lock
    /// with one write in ten accesses stays unbiased, and one with a write in a hundred becomes
    /// biased. On 2 CPUs, with empty sections, slots would halve the rate of the former, and make
    /// that of the latter two to four times as high. The other knobs were chosen, not measured:
    /// `writes` is the largest that fits the lock's word, and the other two bound what a look at
    /// the clock costs a read and what barriers cost writes.
    pub const READ_MOSTLY: Bias =
        Bias { reads: 128, writes: 255, reads_per_look: 512, patience: 20 };
}

/// Readers use slots after about 128 reads, and 16 more for each write in between. They drop their
/// fences once a barrier on all CPUs costs at most a twentieth of the time since the last write.
#[derive(Debug, Clone, Copy)]
pub struct ReadMostly;

impl BiasPolicy for ReadMostly {
    const BIAS: Bias = Bias::READ_MOSTLY;
}
