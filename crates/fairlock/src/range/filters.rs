//! Filters: they tell a newcomer in one or two loads that nobody holds its range exclusively and
//! nobody waits for it. A filter may be raised for nothing, which costs a search; it is never
//! lowered too early.
//!
//! Positions are cut into blocks, and a hash assigns each block to a *stripe*, a cache line of its
//! own. A range of at most four blocks is *narrow*, and raises the stripes of its blocks. Any other
//! is *wide*: it raises a word that everybody looks at, with the lowest block that any such range
//! has. A newcomer below that block ignores the word (an append locks the end of a file, and reads
//! lie before it).
//!
//! ```text
//!   positions  0 ┬────┬────┬────┬────┬── … ─────────────► u64::MAX
//!   blocks       │ 0  │ 1  │ 2  │ 3  │
//!   stripes        a    c    a    d       narrow: raises its stripes;    looks at its stripes and wide
//!   wide         ─────────────────────    wide: raises wide;             looks at all
//! ```
//!
//! Why it is right: two ranges that overlap have a position in common, and so a block; each looks
//! at the stripe of that block, or at all stripes, and at the wide words.
//!
//! A range that is held shared raises nothing.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::Extent;
use crate::platform::AtomicCell;
use crate::platform::{AtomicInt, Platform};
use crate::slots::HasRecords;

/// What raises a filter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A thread holds the range exclusively, in a slot, or is about to.
    Exclusive,
    /// A thread is known under the lock of the queue only: it waits, or holds the range without a
    /// slot.
    Listed,
}

/// What the filters say about a range: whether some holder may be exclusive, and somebody may be
/// listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) exclusive: bool,
    pub(super) listed: bool,
}

/// A range is narrow up to this many blocks. Each block costs an exclusive holder a locked
/// instruction to acquire and one to release; a wide range costs one each, but makes all that reach
/// as high search the slots. Chosen, not measured: with blocks of 64 KiB, a range of up to 192 KiB
/// is narrow wherever it begins.
const NARROW: u64 = 4;

/// The lower half counts exclusive holders, the upper half listed ranges.
#[repr(C, align(64))]
struct Stripe<P: Platform>(P::AtomicU64);

impl<P: Platform> Stripe<P> {
    const NEW: Self = Stripe(P::AtomicU64::ZERO);
}

const LISTED: u64 = 1 << 32;

fn one(cause: Cause) -> u64 {
    match cause {
        Cause::Exclusive => 1,
        Cause::Listed => LISTED,
    }
}

/// How many wide ranges there are, and in the bits above how far the lowest block is from the last
/// one, so that 0 means none. Once [`MANY`] existed at the same time they are not counted any more:
/// the filter stays raised for as long as the lock lives. That makes newcomers search in vain, and
/// does no other harm.
struct Wide<P: Platform>(P::AtomicU64);

/// The bits of the count.
const COUNT: u64 = (1 << FLOOR_SHIFT) - 1;
const MANY: u64 = COUNT;
/// Bits for the count. 20 count a million ranges, and leave 44 for a block's number.
const FLOOR_SHIFT: u32 = 20;
/// Blocks from here on count as this one.
const LAST_BLOCK: u64 = u64::MAX >> FLOOR_SHIFT;

impl<P: Platform> Wide<P> {
    const NEW: Self = Wide(P::AtomicU64::ZERO);

    fn raise(&self, first_block: u64) {
        let height = LAST_BLOCK - first_block.min(LAST_BLOCK);
        self.update(|word| {
            let count = ((word & COUNT) + 1).min(MANY);
            ((word >> FLOOR_SHIFT).max(height) << FLOOR_SHIFT) | count
        });
    }

    /// The lowest block stays until no wide range is left.
    fn lower(&self) {
        self.update(|word| match word & COUNT {
            1 => 0,
            MANY => word,
            _ => word - 1,
        });
    }

    fn update(&self, next: impl Fn(u64) -> u64) {
        let mut found = self.0.load(Relaxed);
        // AcqRel as in `raise` and `lower` of `Filters`.
        while let Err(newer) = self.0.compare_exchange_weak(found, next(found), AcqRel, Relaxed) {
            found = newer;
        }
    }

    /// Whether a range that this word counts may reach down to this block.
    #[inline(always)]
    fn reaches(word: u64, last_block: u64) -> bool {
        word != 0 && (word >> FLOOR_SHIFT) + last_block.min(LAST_BLOCK) >= LAST_BLOCK
    }
}

/// A lock's filters, for blocks of `2^GRAIN` positions, and its number: what every newcomer reads,
/// and hardly anybody writes as long as ranges are shared.
#[repr(C)]
pub(super) struct Filters<P: Platform, const STRIPES: usize, const GRAIN: u32> {
    /// The lock's number in tags, 0 before its first use.
    number: P::AtomicU64,
    exclusive: Wide<P>,
    listed: Wide<P>,
    stripes: [Stripe<P>; STRIPES],
}

/// The blocks of a range.
#[derive(Clone, Copy)]
struct Blocks {
    first: u64,
    last: u64,
}

impl Blocks {
    #[inline(always)]
    fn are_few(self) -> bool {
        self.last - self.first < NARROW
    }

    /// Calls `act` for each block of a narrow range, which mostly has one.
    #[inline(always)]
    fn each(self, mut act: impl FnMut(u64)) {
        act(self.first);
        let mut block = self.first;
        while block != self.last {
            block += 1;
            act(block);
        }
    }
}

impl<P: HasRecords, const STRIPES: usize, const GRAIN: u32> Filters<P, STRIPES, GRAIN> {
    pub(super) const NEW: Self = {
        assert!(STRIPES > 0 && GRAIN < 64, "stripes, of blocks that are not everything");
        Filters {
            number: P::AtomicU64::ZERO,
            exclusive: Wide::NEW,
            listed: Wide::NEW,
            stripes: [const { Stripe::NEW }; STRIPES],
        }
    };

    /// The lock's number in tags.
    #[inline(always)]
    pub(super) fn number(&self) -> u64 {
        match self.number.load(Relaxed) {
            0 => self.get_number(),
            number => number,
        }
    }

    #[cold]
    fn get_number(&self) -> u64 {
        let number = P::threads().new_lock();
        match self.number.compare_exchange(0, number, Relaxed, Relaxed) {
            Ok(_) => number,
            Err(others) => others,
        }
    }

    #[inline(always)]
    fn blocks(extent: Extent) -> Blocks {
        Blocks { first: extent.first() >> GRAIN, last: extent.last() >> GRAIN }
    }

    /// Neighbours, and blocks at any regular distance, mostly have different stripes.
    #[inline(always)]
    fn stripe(&self, block: u64) -> &P::AtomicU64 {
        // 2^64 over the golden ratio: Fibonacci hashing (Knuth, vol. 3, 6.4).
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = block.wrapping_mul(GOLDEN) >> 32;
        &self.stripes[((hash * STRIPES as u64) >> 32) as usize].0
    }

    fn wide(&self, cause: Cause) -> &Wide<P> {
        match cause {
            Cause::Exclusive => &self.exclusive,
            Cause::Listed => &self.listed,
        }
    }

    /// Raises the filters of a range, by a locked instruction at least. A
    /// [`Platform::fence_after_update`] must follow before the caller looks for conflicts.
    #[inline(always)]
    pub(super) fn raise(&self, extent: Extent, cause: Cause) {
        let blocks = Self::blocks(extent);
        if blocks.are_few() {
            // Acquire: whoever lowered it before has cleared its slot. Release: a newcomer that
            // sees it raised sees the slot.
            blocks.each(|block| _ = self.stripe(block).fetch_add(one(cause), AcqRel));
        } else {
            self.wide(cause).raise(blocks.first);
        }
    }

    /// Takes back one [`raise`](Self::raise) of this range.
    #[inline(always)]
    pub(super) fn lower(&self, extent: Extent, cause: Cause) {
        let blocks = Self::blocks(extent);
        if blocks.are_few() {
            // As in `raise`.
            blocks.each(|block| _ = self.stripe(block).fetch_sub(one(cause), AcqRel));
        } else {
            self.wide(cause).lower();
        }
    }

    /// What the filters of this range say. A range that has raised them itself sees that, too.
    #[inline(always)]
    pub(super) fn look(&self, extent: Extent) -> Seen {
        let blocks = Self::blocks(extent);
        let mut stripes = 0;
        // Acquire pairs with the Releases in `raise` and `lower`, for all three.
        if blocks.are_few() {
            blocks.each(|block| stripes |= self.stripe(block).load(Acquire));
        } else {
            self.stripes.iter().for_each(|stripe| stripes |= stripe.0.load(Acquire));
        }
        // In this order: a waiter that is granted exclusive access raises `exclusive` before it
        // lowers `listed`, so a newcomer that finds it no longer listed finds it exclusive. A
        // stripe has both.
        let listed = self.listed.0.load(Acquire);
        let exclusive = self.exclusive.0.load(Acquire);
        if stripes | listed | exclusive == 0 {
            return Seen { exclusive: false, listed: false };
        }
        Seen {
            exclusive: stripes % LISTED != 0 || Wide::<P>::reaches(exclusive, blocks.last),
            listed: stripes / LISTED != 0 || Wide::<P>::reaches(listed, blocks.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;

    #[test]
    fn more_wide_ranges_than_can_be_counted_keep_the_filter_raised() {
        let wide = Wide::<Os>::NEW;
        let reaches = |block| Wide::<Os>::reaches(wide.0.load(Relaxed), block);
        const MORE: u64 = MANY + 3;
        (0..MORE).for_each(|at| wide.raise(2 * MORE - at));
        assert!(reaches(MORE + 1) && !reaches(MORE));
        for left in (0..MORE).rev() {
            wide.lower();
            assert!(reaches(MORE + 1) && !reaches(MORE), "{left} are left");
        }
        wide.raise(7);
        wide.lower();
        assert!(reaches(7) && !reaches(6));
    }

    #[test]
    fn the_filter_is_lowered_with_the_last_wide_range_where_they_can_be_counted() {
        let wide = Wide::<Os>::NEW;
        (1..MANY).for_each(|_| wide.raise(0));
        (1..MANY).for_each(|_| {
            assert!(Wide::<Os>::reaches(wide.0.load(Relaxed), 0));
            wide.lower();
        });
        assert!(!Wide::<Os>::reaches(wide.0.load(Relaxed), LAST_BLOCK));
    }
}
