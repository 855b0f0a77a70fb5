//! How the readers of an [`RwLock`](crate::RwLock) acquire it: a word, the bias, and the history
//! that decides when the bias changes.
//!
//! ```text
//!    63                          11 10        3 2     0
//!   [ the lock's number            | tally     | mode  ]
//! ```
//!
//! The invariants in `mod.rs` say who may change the mode, and when.

use core::sync::atomic::Ordering::Relaxed;

use crate::platform::{AtomicCell, Platform, Tunable};
use crate::policy;
use crate::rwsem::ReaderBias;
use crate::slots::{HasRecords, Readers, Threads};

/// The knobs of [`Bias`](policy::Bias), which says what each is; the values are the policy's.
const DEFAULT: policy::Bias = policy::Bias::READ_MOSTLY;
pub(super) const READS: Tunable = Tunable::new("bias_reads", DEFAULT.reads, 0..=1 << 20);
pub(super) const WRITES: Tunable = Tunable::new("bias_writes", DEFAULT.writes as u32, 0..=255);
pub(super) const READS_PER_LOOK: Tunable =
    Tunable::new("bias_reads_per_look", DEFAULT.reads_per_look, 0..=1 << 20);
pub(super) const PATIENCE: Tunable = Tunable::new("bias_patience", DEFAULT.patience, 0..=10_000);

/// How readers acquire the lock: one bit or none.
const MODE: u64 = 0b111;
/// By the semaphore.
pub(super) const UNBIASED: u64 = 0;
/// By slots, with a full fence.
pub(super) const BIASED_FENCED: u64 = 0b001;
/// By slots, with a plain store.
pub(super) const BIASED_UNFENCED: u64 = 0b010;
/// By slots, with a full fence, as somebody waits; a writer still has to raise a barrier.
pub(super) const BIAS_REVOKING: u64 = 0b100;

/// How many more writes may find the lock biased before it becomes `UNBIASED` again.
const TALLY: u64 = 0xff << TALLY_SHIFT;
const TALLY_SHIFT: u32 = 3;

/// The lock's number is above these bits. It is 0 until the bias first leaves `UNBIASED`; in debug
/// builds, until the first read by a guard. 53 bits do not run out.
const NUMBER_SHIFT: u32 = 11;

/// While the bias is `UNBIASED`, a thread counts this many of its reads at a time, as each count is
/// a store to the lock's line. Chosen, not measured: on 2 CPUs counting each read is as fast. More:
/// a lock finds out later that it is mostly read.
pub(super) const MOST_PER_COUNT: Tunable = Tunable::new("bias_most_per_count", 64, 1..=65_536);

/// A write outweighs one part in this many of [`Bias::reads`](crate::policy::Bias::reads). With
/// fewer reads for each write, a lock with one write in ten accesses would be biased; that takes a
/// half of its rate where sections are empty (2 CPUs, 2 to 32 threads). With more, a lock with one
/// write in a hundred would not be biased, which makes it two to four times as fast.
const WRITE_OUTWEIGHS: Tunable = Tunable::new("bias_write_outweighs", 8, 1..=65_536);

/// How many reads a write outweighs.
#[inline(always)]
pub(super) fn outweighed<P: Platform>(reads: u32) -> u32 {
    reads / P::tuned(WRITE_OUTWEIGHS)
}

/// While readers use slots, a look at them is measured each time that looks have lowered the tally
/// by about this much.
pub(super) const TALLY_PER_MEASURED_LOOK: Tunable =
    Tunable::new("bias_tally_per_measured_look", 16, 1..=256);

/// By how much a look at the slots lowers the tally: one, and one more for each 1,024 ns that it
/// takes. So looks take about a quarter of a millisecond before the lock finds out anew whether
/// readers should use slots.
pub(super) fn spent_by_look(look_ns: u32) -> u32 {
    1 + (look_ns >> 10)
}

/// The most reads, about, that writes can make necessary before the lock is biased. More than
/// happen in one phase of readers, so that a phase does not make up for the writes before it; and
/// few enough that a lock that is no longer written is biased after some ten milliseconds of reads.
/// Chosen for that, not measured.
const LARGEST_DEBT: Tunable = Tunable::new("bias_largest_debt", 1 << 18, 0..=1 << 30);

pub(crate) const TUNABLES: &[Tunable] = &[
    READS,
    WRITES,
    READS_PER_LOOK,
    PATIENCE,
    MOST_PER_COUNT,
    WRITE_OUTWEIGHS,
    TALLY_PER_MEASURED_LOOK,
    LARGEST_DEBT,
];

/// Quiet times are measured in ticks of 2^12 ns, about 4 µs. 24 bits of ticks wrap after 68 s,
/// which only makes a quiet time look shorter.
const TICK_SHIFT: u32 = 12;
const TICKS: u32 = 0x00ff_ffff;

pub(super) fn mode(bias: u64) -> u64 {
    bias & MODE
}

pub(super) fn tally(bias: u64) -> u32 {
    ((bias & TALLY) >> TALLY_SHIFT) as u32
}

pub(super) fn number(bias: u64) -> u64 {
    bias >> NUMBER_SHIFT
}

pub(super) fn is_biased(bias: u64) -> bool {
    mode(bias) != UNBIASED
}

/// Where a writer looks for the lock's readers that use slots.
pub(super) fn readers(bias: u64) -> Readers {
    if mode(bias) == BIASED_FENCED { Readers::UseFences } else { Readers::Any }
}

/// A thread reads by a slot, or tries to.
pub(super) fn is_read<P: HasRecords>(threads: &Threads<P>, bias: u64) -> bool {
    is_biased(bias) && threads.any_reader(readers(bias), |tag| number(tag) == number(bias))
}

pub(super) fn word_of(number: u64, tally: u32, mode: u64) -> u64 {
    number << NUMBER_SHIFT | u64::from(tally) << TALLY_SHIFT | mode
}

/// This many reads, or as many as a balance can count.
pub(super) fn enough(reads: u32) -> i32 {
    if reads > i32::MAX as u32 { i32::MAX } else { reads as i32 }
}

/// How readers acquire the lock: the mode, the tally and the lock's number. The semaphore keeps
/// this word for the lock, and calls it when threads queue.
pub struct Bias<P: Platform>(P::AtomicU64);

impl<P: Platform> Bias<P> {
    #[inline(always)]
    pub(super) fn word(&self) -> &P::AtomicU64 {
        &self.0
    }

    /// Somebody waits for the semaphore, or is about to: from now on readers use fences, and so see
    /// waiters.
    #[cold]
    pub(super) fn begin_revoking(&self) {
        let bias = self.0.load(Relaxed);
        if bias & BIASED_UNFENCED != 0 {
            let revoking = bias - BIASED_UNFENCED + BIAS_REVOKING;
            // Fails if a writer was faster: then the bias is no longer `BIASED_UNFENCED`.
            _ = self.0.compare_exchange(bias, revoking, Relaxed, Relaxed);
        }
    }

    /// A writer that found this bias gives up, and some may still read without a fence: the next
    /// one looks for them anew.
    pub(super) fn keep_revoking(&self, found: u64) {
        if mode(found) != BIASED_FENCED {
            let fenced = word_of(number(found), tally(found), BIASED_FENCED);
            let revoking = word_of(number(found), tally(found), BIAS_REVOKING);
            // Fails if a reader has dropped the fences again.
            _ = self.0.compare_exchange(fenced, revoking, Relaxed, Relaxed);
        }
    }
}

impl<P: HasRecords> ReaderBias for Bias<P> {
    type History = History<P>;
    const NEW: Self = Bias(P::AtomicU64::ZERO);
    const NO_HISTORY: History<P> = History(P::AtomicU32::ZERO);

    fn note_waiter(&self) -> bool {
        // Pairs with the fence in `RawRwLock::drop_fences`: either this thread sees that readers
        // have dropped their fences, or the reader that dropped them sees the waiter.
        P::fence_after_update();
        self.begin_revoking();
        self.is_biased()
    }

    fn is_biased(&self) -> bool {
        is_biased(self.0.load(Relaxed))
    }

    fn is_read(&self) -> bool {
        let bias = self.0.load(Relaxed);
        is_read(P::threads(), bias)
    }
}

/// What decides when the bias changes.
///
/// While the bias is `UNBIASED`, a *balance*: the number of reads, less what writes outweigh.
/// Otherwise the low byte is the tally that a reader saw when it last looked, which every write
/// changes; the rest says when a reader first saw that tally, in ticks.
pub struct History<P: Platform>(P::AtomicU32);

impl<P: Platform> History<P> {
    /// Counts reads; true if there are `enough` now. May lose the count of another thread.
    pub(super) fn count_reads(&self, reads: u32, enough: i32) -> bool {
        let balance = (self.0.load(Relaxed) as i32).saturating_add_unsigned(reads);
        self.0.store(balance as u32, Relaxed);
        balance >= enough
    }

    /// Counts a write, which outweighs this many reads.
    #[inline(always)]
    pub(super) fn count_write(&self, outweighed: u32) {
        let balance = self.0.load(Relaxed) as i32;
        if balance > -(P::tuned(LARGEST_DEBT) as i32) {
            self.0.store(balance.saturating_sub_unsigned(outweighed) as u32, Relaxed);
        }
    }

    /// The lock is `UNBIASED` again: the balance begins at 0.
    pub(super) fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    /// Whether no write has happened for `patience()` ns, as far as the readers that looked know.
    pub(super) fn is_quiet(&self, bias: u64, patience: impl FnOnce() -> u64) -> bool {
        let seen = self.0.load(Relaxed);
        if seen & 0xff != tally(bias) {
            self.note_write_seen(bias);
            return false;
        }
        let ticks = tick::<P>().wrapping_sub(seen >> 8) & TICKS;
        u64::from(ticks) << TICK_SHIFT >= patience()
    }

    /// Notes that the tally has changed, and when.
    pub(super) fn note_write_seen(&self, bias: u64) {
        self.0.store((tick::<P>() & TICKS) << 8 | tally(bias), Relaxed);
    }
}

fn tick<P: Platform>() -> u32 {
    (P::now() >> TICK_SHIFT) as u32
}
