//! How the readers of an [`RwLock`](crate::RwLock) enter: its bias, a word, and what decides when that
//! changes.
//!
//! ```text
//!    63                          11 10        3 2     0
//!   [ the lock's number            | tally     | mode  ]
//! ```
//!
//! Who may change the mode, and when, is in the invariants of `mod.rs`.

use core::sync::atomic::Ordering::Relaxed;

use crate::platform::{AtomicCell, Platform};
use crate::rwsem::ReaderBias;

/// How readers enter: one bit or none.
const MODE: u64 = 0b111;
/// By the semaphore.
pub(super) const UNBIASED: u64 = 0;
/// By slots, with a full fence.
pub(super) const BIASED_FENCED: u64 = 0b001;
/// By slots, with a plain store.
pub(super) const BIASED_UNFENCED: u64 = 0b010;
/// By slots, with a full fence, as somebody waits; a writer still has to raise a barrier.
pub(super) const BIAS_REVOKING: u64 = 0b100;

/// Writes that find the lock biased until it is `UNBIASED` again.
const TALLY: u64 = 0xff << TALLY_SHIFT;
const TALLY_SHIFT: u32 = 3;

/// The lock's number, 0 before its bias first leaves `UNBIASED`; in debug builds before its first read by a
/// guard. 53 bits do not run out.
const NUMBER_SHIFT: u32 = 11;

/// A write outweighs this fraction of [`Bias::reads`](crate::policy::Bias::reads): with 128, 16 reads. Fewer,
/// and a lock with a tenth of writes is biased and pays a look at all slots for each; more, and one in a
/// hundred is not.
pub(super) const WRITE_OUTWEIGHS: u32 = 8;

/// No more reads than about this have to make up for writes. That is more than come in one phase of
/// readers, and a lock whose writes have ended is biased again after some ten milliseconds of reads.
const LARGEST_DEBT: i32 = 1 << 18;

/// The clock of quiet times ticks every 4 µs and wraps after 68 s, which only makes a time look
/// shorter.
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

pub(super) fn word_of(number: u64, tally: u32, mode: u64) -> u64 {
    number << NUMBER_SHIFT | u64::from(tally) << TALLY_SHIFT | mode
}

/// So many reads as a balance can say.
pub(super) const fn enough(reads: u32) -> i32 {
    if reads > i32::MAX as u32 { i32::MAX } else { reads as i32 }
}

/// How readers enter: the mode, the tally and the lock's number. The semaphore keeps it for the lock,
/// and tells it of waiters.
pub struct Bias<P: Platform>(P::AtomicU64);

impl<P: Platform> Bias<P> {
    #[inline(always)]
    pub(super) fn word(&self) -> &P::AtomicU64 {
        &self.0
    }

    /// Somebody waits for the semaphore, or is about to: readers use fences from now on, and see that.
    #[cold]
    pub(super) fn begin_revoking(&self) {
        let bias = self.0.load(Relaxed);
        if bias & BIASED_UNFENCED != 0 {
            let revoking = bias - BIASED_UNFENCED + BIAS_REVOKING;
            // In vain if a writer was faster: then it is not `BIASED_UNFENCED` any more.
            _ = self.0.compare_exchange(bias, revoking, Relaxed, Relaxed);
        }
    }
}

impl<P: Platform> ReaderBias for Bias<P> {
    type History = History<P>;
    const NEW: Self = Bias(P::AtomicU64::ZERO);
    const NO_HISTORY: History<P> = History(P::AtomicU32::ZERO);

    fn somebody_queued(&self) -> bool {
        // Pairs with the fence in `RawRwLock::drop_fences`: either this thread sees that readers do without
        // fences, or the reader that decided so sees the waiter.
        P::fence_after_update();
        self.begin_revoking();
        is_biased(self.0.load(Relaxed))
    }
}

/// What decides when the bias changes. In `UNBIASED` a *balance*: how many reads came more than writes
/// outweigh. Else, in the low byte, the tally that a reader saw when it last looked, which every write
/// changes; in the rest when that was first seen, in ticks.
pub struct History<P: Platform>(P::AtomicU32);

impl<P: Platform> History<P> {
    /// True if there are enough reads. May lose a count to another reader.
    #[inline(always)]
    pub(super) fn count_read(&self, enough: i32) -> bool {
        let balance = self.0.load(Relaxed).cast_signed();
        let is_enough = balance >= enough;
        if !is_enough {
            self.0.store((balance + 1).cast_unsigned(), Relaxed);
        }
        is_enough
    }

    /// One write, which outweighs so many reads.
    #[inline(always)]
    pub(super) fn count_write(&self, outweighed: i32) {
        let balance = self.0.load(Relaxed).cast_signed();
        if balance > -LARGEST_DEBT {
            self.0.store(balance.wrapping_sub(outweighed).cast_unsigned(), Relaxed);
        }
    }

    /// The lock is `UNBIASED` again.
    pub(super) fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    /// No write has come for so many ns, as far as the readers that looked know.
    pub(super) fn is_quiet(&self, bias: u64, patience: impl FnOnce() -> u64) -> bool {
        let seen = self.0.load(Relaxed);
        if seen & 0xff != tally(bias) {
            self.note_write_seen(bias);
            return false;
        }
        let ticks = tick::<P>().wrapping_sub(seen >> 8) & TICKS;
        u64::from(ticks) << TICK_SHIFT >= patience()
    }

    /// The tally has changed.
    pub(super) fn note_write_seen(&self, bias: u64) {
        self.0.store((tick::<P>() & TICKS) << 8 | tally(bias), Relaxed);
    }
}

fn tick<P: Platform>() -> u32 {
    (P::now() >> TICK_SHIFT) as u32
}
