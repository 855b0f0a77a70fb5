//! The rwsem of the Linux kernel in user space, with the policies that it has had.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the policies: knobs, one for each fact about a version of `kernel/locking/rwsem.c`, and presets |
//! | `rwsem.rs` | the lock |
//! | `wait_list.rs` | its waiters, in the lock or in a table |
//!
//! Three things differ from the kernel, because user space needs them: a reader never adds itself to the word and removes
//! itself again; threads that spin sleep behind the first of them; and a spin has a budget, because a thread cannot see
//! that the owner was preempted. Where a published table depends on the kernel's own form, [`kernel`](crate::kernel)
//! has that.
//!
//! ```
//! use fairlock_reference::linux::{Linux5_11, LinuxRwSem};
//!
//! static LOCK: LinuxRwSem<u32, Linux5_11> = LinuxRwSem::new(7);
//! assert_eq!(*LOCK.read(), 7);
//! ```
//!
//! A policy of your own:
//! ```
//! use fairlock_reference::linux::{Knobs, Policy, ReaderWake};
//!
//! /// Linux 5.11, but a wake-up takes eight readers at most.
//! struct FewAtOnce;
//! impl Policy for FewAtOnce {
//!     const NAME: &'static str = "few-at-once";
//!     const KNOBS: Knobs = Knobs { wake: ReaderWake::Batch(8), ..Knobs::LINUX_5_11 };
//! }
//! ```

mod rwsem;
mod wait_list;

pub use fairlock::policy::HANDOFF_AFTER_NS;
use fairlock::policy::SPIN_ON_OWNER_NS;
pub use rwsem::{LinuxRwSem, RawLinuxRwSem};
pub use wait_list::{HasTable, InLock, InTable, Table, Waiters};

/// A policy of [`RawLinuxRwSem`]. Implementations are never instantiated.
pub trait Policy: Send + Sync + 'static {
    /// What the lab and the drop-in call it.
    const NAME: &'static str;
    /// What it does.
    const KNOBS: Knobs;
}

/// What distinguishes the policies. Each field is a fact about some version of `kernel/locking/rwsem.c`.
#[derive(Debug, Clone, Copy)]
pub struct Knobs {
    /// A reader takes the lock past queued waiters while no thread holds it and no handoff is
    /// pending (1a728dff855a, in 5.11).
    pub reader_steals: bool,
    /// Which readers are granted the lock together when a reader heads the queue.
    pub wake: ReaderWake,
    /// A writer takes a free lock past queued waiters (since 3.10's 4ecdf4e).
    pub writer_steals: bool,
    /// Where a writer spins while another writer, which may be running, holds the lock.
    pub writer_spins: WriterSpin,
    /// A writer that spins before it queues also spins while readers hold the lock, for
    /// (10 + readers / 2) µs, but not for longer than
    /// [`SPIN_ON_OWNER_NS`] (7d43f1ce9dd0, in 5.3).
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

/// Where a writer spins on a running writer, for at most
/// [`SPIN_ON_OWNER_NS`], before it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterSpin {
    /// Nowhere: it sleeps as soon as it has queued.
    Never,
    /// In the queue of waiters, whenever it would otherwise sleep: the first cure tried for the
    /// regression of 2013 (Tim Chen, 2013-06). All queued writers spin at the same time, on the lock
    /// word, as there is no queue of spinners. One that finds the lock free takes it as a woken writer
    /// does: with [`Knobs::writer_steals`] also past writers that queued before it.
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
    /// Once it has waited for this long, in ns.
    After(u64),
    /// At once: a release hands the lock to the head of the queue, and the lock is reserved for a head
    /// that finds it held. Ruinous for throughput, and therefore of interest ([`ImmediateHandoff`]).
    Immediate,
}

impl Handoff {
    /// A head that has waited for this long, in ns, has the lock reserved for it.
    fn is_due(self, waited: u64) -> bool {
        match self {
            Handoff::Never => false,
            Handoff::After(limit) => waited > limit,
            Handoff::Immediate => true,
        }
    }
}

impl Knobs {
    /// Those of [`Linux3_10`], to start a policy of your own from.
    pub const LINUX_3_10: Knobs = Knobs {
        reader_steals: false,
        wake: ReaderWake::FrontRun,
        writer_steals: true,
        writer_spins: WriterSpin::Never,
        writer_spins_on_readers: false,
        reader_spins: false,
        handoff: Handoff::Never,
        writer_fast_fail: false,
    };

    /// Those of [`Linux5_11`], to start a policy of your own from.
    pub const LINUX_5_11: Knobs = Knobs {
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
    ($($(#[$doc:meta])* $name:ident $label:literal = $knobs:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            pub struct $name;

            impl Policy for $name {
                const NAME: &'static str = $label;
                const KNOBS: Knobs = $knobs;
            }
        )*
    };
}

policies! {
    /// The rwsem of Linux 3.10: writers steal and no thread spins.
    ///
    /// # Guarantees
    /// None for readers or queued writers while newly arrived writers keep stealing. Readers never
    /// pass a waiter.
    Linux3_10 "linux-3.10" = Knobs::LINUX_3_10;

    /// What was tried first in 2013 on the way to [`Linux3_16`]: a queued writer spins while a writer that may be
    /// running has the lock, instead of going to sleep at once. A step of study S3, never a kernel.
    Linux3_10Spin "linux-3.10-spin" = Knobs {
        writer_spins: WriterSpin::InQueue,
        ..Knobs::LINUX_3_10
    };

    /// What was tried second: a writer that sees a holder queues without first adding and removing its bias. A step
    /// of study S3, never a kernel.
    Linux3_10FastFail "linux-3.10-fast-fail" = Knobs {
        writer_fast_fail: true,
        ..Knobs::LINUX_3_10
    };

    /// Both at once.
    Linux3_10Both "linux-3.10-both" = Knobs {
        writer_spins: WriterSpin::InQueue,
        writer_fast_fail: true,
        ..Knobs::LINUX_3_10
    };

    /// The rwsem of Linux 3.16: [`Linux3_10`] whose writers spin on a running writer before they
    /// queue (4fc828e24cd9).
    ///
    /// # Guarantees
    /// None for readers or queued writers while newly arrived writers keep stealing, and a writer that
    /// spins steals more often than one that would have to wake up. Readers never pass a waiter.
    Linux3_16 "linux-3.16" = Knobs {
        writer_spins: WriterSpin::BeforeQueueing,
        ..Knobs::LINUX_3_10
    };

    /// The rwsem just before the patch "rwsem: wake almost all readers in the queue" (Waiman Long,
    /// v8 10/19, 2019-05-20): only the readers before the first queued writer are woken.
    ///
    /// # Guarantees
    /// The head of the queue is passed for at most [`HANDOFF_AFTER_NS`], plus the sections of the holders
    /// that it then finds.
    Linux5_1 "linux-5.1" = Knobs {
        reader_steals: false,
        wake: ReaderWake::FrontRun,
        writer_spins_on_readers: false,
        ..Knobs::LINUX_5_11
    };

    /// The same lock after that patch: readers anywhere in the queue are woken, at most 256 at a time.
    ///
    /// # Guarantees
    /// Those of [`Linux5_1`]. In addition, once any reader heads the queue, a reader waits for at most one turn
    /// of a queued writer.
    Linux5_2 "linux-5.2" = Knobs {
        reader_steals: false,
        writer_spins_on_readers: false,
        ..Knobs::LINUX_5_11
    };

    /// The rwsem of Linux 5.3 to 5.10: readers spin too, writers spin on readers.
    ///
    /// # Guarantees
    /// Those of [`Linux5_2`], but a reader that spins takes the lock past waiters as soon as no writer holds it.
    /// While such readers overlap without a gap, the head of the queue is not woken and so cannot have the
    /// lock reserved: it is passed for as long as they overlap.
    Linux5_3 "linux-5.3" = Knobs {
        reader_steals: false,
        reader_spins: true,
        ..Knobs::LINUX_5_11
    };

    /// The rwsem of Linux 5.11 and later: readers steal past waiters.
    ///
    /// # Guarantees
    /// A writer that heads the queue is passed for at most [`HANDOFF_AFTER_NS`], plus the sections of the
    /// holders that it then finds. Under a reader that takes the lock back to back for long sections, every
    /// write waits for that long (Peng Wang, 2026-05-21).
    Linux5_11 "linux-5.11" = Knobs::LINUX_5_11;

    /// [`Linux5_11`] without reader stealing: the cure proposed on 2026-05-21.
    ///
    /// # Guarantees
    /// A reader never passes a waiter; newly arrived writers pass a queued writer for at most
    /// [`HANDOFF_AFTER_NS`].
    NoReaderSteal "no-reader-steal" = Knobs {
        reader_steals: false,
        ..Knobs::LINUX_5_11
    };

    /// [`Linux5_11`] that hands over at once: the difference shows what 4 ms of stealing gain.
    ///
    /// # Guarantees
    /// The lock is reserved for a waiter that heads the queue, and the holder's release hands it over. Only
    /// those threads pass that waiter that take the lock between a release and the handover, before the lock is
    /// reserved: each thread at most once. Every handover waits for a thread to wake up, so throughput under
    /// contention is that of wake-ups.
    ImmediateHandoff "immediate-handoff" = Knobs {
        handoff: Handoff::Immediate,
        ..Knobs::LINUX_5_11
    };
}

/// Spin on readers, ns: this long and `SPIN_FOR_EACH_READER` for each of them, at most
/// `SPIN_ON_READERS_MOST`. Linux's own figures (`rwsem_rspin_threshold`): more readers take longer to
/// leave; the bound is reached with 30.
const SPIN_ON_READERS: u64 = 10_000;
const SPIN_FOR_EACH_READER: u64 = 500;
const SPIN_ON_READERS_MOST: u64 = SPIN_ON_OWNER_NS;
