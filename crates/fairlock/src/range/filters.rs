//! Filters: they tell a newcomer in one or two loads that no thread holds its range exclusively and
//! none waits for it, and an exclusive newcomer that no thread shares anything. A filter may be
//! raised for nothing, which costs a search of all slots; it is never lowered too early.
//!
//! Positions are cut into blocks of two sizes, and a hash assigns each block to a *stripe*, a cache
//! line of its own. A range of at most four *fine* blocks raises the stripes of these; a longer one
//! of at most four *coarse* blocks raises theirs. Any other is *wide*: it raises a word that all
//! newcomers look at, with the lowest block that any such range has. A newcomer below that block
//! ignores the word (an append locks the end of a file, and reads lie before it).
//!
//! A stripe has seven *cells*, in which exclusive holders write which positions of the block they
//! hold. So those of disjoint ranges in one block do not search each other's slots. A holder that
//! finds all cells taken is counted.
//!
//! ```text
//!   positions  0 ┬───┬───┬───┬───┬───┬───┬───┬── … ───────► u64::MAX
//!   fine         │ 0 │ 1 │ 2 │ 3 │ 4 │ 5 │ 6 │
//!   stripes        a   c   a   d   b   b   c     looked at by fine ranges: those of their blocks
//!   coarse       │       0       │       1            by coarse ranges: all
//!   stripes              b               d       looked at by both: those of their blocks
//!   wide         ──────────────────────────      looked at by all; looks at all stripes
//! ```
//!
//! Blocks of a size that no range has raised so far are not looked at: `sizes` says which have
//! been.
//!
//! Why it is right: two ranges that overlap have a position in common, and so a block of either
//! size; each looks at what the other raises.
//!
//! A shared range raises no stripe. The first shared newcomer sets `sharing`, and from then on
//! exclusive newcomers search the slots. One of them that has searched often takes `sharing` back
//! if no slot has a shared range:
//!
//! ```text
//!          a shared newcomer       an exclusive one                no slot has a shared range
//!   NONE ─────────────────► SHARED ────────────────► ENDING ────────────────────────────► NONE
//!                              ▲                        │
//!                              └────────────────────────┘
//!                           a shared newcomer, or a slot has one
//! ```
//!
//! Why that is right: a shared newcomer writes its slot, then looks at `sharing`, with a fence between. If it finds `SHARED`
//! as it was before it wrote its slot, the search after the change to `ENDING` finds that slot. If it finds anything else, it
//! sees to it that `SHARED` is there: if it writes it, with a new version, the last change fails.
//!
//! A shared and an exclusive newcomer see each other. Each has a fence behind what it writes, and one of the two fences comes
//! first. The shared one's comes after a look at `sharing` that found `SHARED`: so an exclusive one whose fence comes later
//! finds `SHARED`, or what followed. Had the first look come after the fence, it might see what another thread has written
//! there, and the exclusive one might not, as nothing orders the three; on POWER, too.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::Extent;
use crate::platform::AtomicCell;
use crate::platform::{AtomicInt, Platform};
use crate::slots::HasRecords;

/// What the filters say about a range: whether some holder may be exclusive, and somebody may be
/// listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) exclusive: bool,
    pub(super) listed: bool,
}

impl Seen {
    const NOTHING: Self = Seen { exclusive: false, listed: false };

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        Seen { exclusive: self.exclusive | other.exclusive, listed: self.listed | other.listed }
    }
}

/// Up to this many blocks of one size are raised one by one. Each costs an exclusive holder a
/// locked instruction to acquire and one to release; a wide range costs one each, but makes all
/// that reach as high search the slots. Chosen, not measured: with coarse blocks of 64 KiB, a range
/// of up to 192 KiB is not wide, wherever it begins.
const FEW: u64 = 4;
/// A coarse block has `2^COARSER` fine ones.
const COARSER: u32 = 4;

/// How many exclusive holders of one stripe say which positions they hold: as many as fit its line.
const CELLS: usize = 7;

/// In a stripe's word: the cells that are taken, a bit each.
const TAKEN: u64 = (1 << CELLS) - 1;
/// In a stripe's word: one exclusive holder without a cell. 24 bits count them.
const COUNTED: u64 = 1 << 8;
/// In a stripe's word: one listed range. The upper half counts them.
const LISTED: u64 = 1 << 32;

/// Blocks of one hash. A word says which exclusive holders there are. A holder writes its positions
/// after that word, and without a fence: a newcomer that sees its cell taken may find it still 0,
/// which may be any position.
#[repr(C, align(64))]
struct Stripe<P: Platform> {
    word: P::AtomicU64,
    cells: [P::AtomicU64; CELLS],
}

impl<P: Platform> Stripe<P> {
    const NEW: Self =
        Stripe { word: P::AtomicU64::ZERO, cells: [const { P::AtomicU64::ZERO }; CELLS] };

    /// Adds an exclusive holder, in this cell if it can. Returns its cell's number, from 1; 0 if
    /// none is left.
    #[inline(always)]
    fn enter(&self, positions: Positions, mut cell: u32) -> u32 {
        loop {
            let bit = 1 << cell;
            // Not looked at before, which would move the line once more. Acquire: the thread that
            // lowered it before has cleared its slot. Release: a newcomer that sees it raised sees
            // the slot.
            if self.word.fetch_or(bit, AcqRel) & bit == 0 {
                // Release pairs with the Acquire in `is_in_the_way`: a thread that finds these
                // positions comes after the cell's holders before.
                self.cells[cell as usize].store(positions.0, Release);
                return cell + 1;
            }
            cell = (!self.word.load(Relaxed) & TAKEN).trailing_zeros();
            if cell == u64::BITS {
                // AcqRel as for the cells.
                self.word.fetch_add(COUNTED, AcqRel);
                return 0;
            }
        }
    }

    #[inline(always)]
    fn leave(&self, cell: u32) {
        // AcqRel as in `enter`.
        if let Some(cell) = cell.checked_sub(1) {
            self.cells[cell as usize].store(0, Relaxed);
            self.word.fetch_and(!(1 << cell), AcqRel);
        } else {
            self.word.fetch_sub(COUNTED, AcqRel);
        }
    }

    /// What `word` shows. Of exclusive holders with a cell only those count that `overlap`.
    #[inline(always)]
    fn seen(&self, word: u64, overlap: impl Fn(Positions) -> bool) -> Seen {
        Seen { exclusive: self.is_in_the_way(word, overlap), listed: word >= LISTED }
    }

    #[inline(always)]
    fn is_in_the_way(&self, word: u64, overlap: impl Fn(Positions) -> bool) -> bool {
        let mut taken = word & TAKEN;
        if word % LISTED != taken {
            return true;
        }
        while taken != 0 {
            // Acquire pairs with the Release in `enter`.
            let cell = self.cells[taken.trailing_zeros() as usize].load(Acquire);
            if cell == 0 || overlap(Positions(cell)) {
                return true;
            }
            taken &= taken - 1;
        }
        false
    }
}

/// The cells of an exclusive range: three bits for each of its blocks, 0 where it has none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Cells(pub(super) u32);

impl Cells {
    pub(super) const NONE: Self = Cells(0);

    /// The number of the cell for the first block, and the cells of those that follow.
    #[inline(always)]
    fn split(self) -> (u32, Cells) {
        (self.0 % 8, Cells(self.0 / 8))
    }
}

/// Positions within a block, and some bits of its number: `[block 30 | coarse 1 | 1 | first 16 |
/// last 16]`. Two that do not overlap have no position in common.
#[derive(Clone, Copy)]
struct Positions(u64);

impl Positions {
    #[inline(always)]
    fn new(extent: Extent, block: u64, blocks: Blocks) -> Self {
        let grain = blocks.grain;
        let within = |position: u64| (position & ((1 << grain) - 1)) >> grain.saturating_sub(16);
        let first = if block == blocks.first { within(extent.first()) } else { 0 };
        let last = within(if block == blocks.last { extent.last() } else { u64::MAX });
        Positions(block << 34 | u64::from(blocks.coarse) << 33 | 1 << 32 | first << 16 | last)
    }

    /// Not those of blocks of the other size.
    #[inline(always)]
    fn overlap(self, other: Self) -> bool {
        let (first, last) = (|at: Self| at.0 >> 16 & 0xffff, |at: Self| at.0 & 0xffff);
        let is_same_block = (self.0 ^ other.0) >> 32 == 0;
        is_same_block && first(self) <= last(other) && first(other) <= last(self)
    }

    /// Whether these are of a fine block in one of these coarse ones.
    fn are_within(self, coarse: Blocks) -> bool {
        let from_first = (self.0 >> 34 >> COARSER).wrapping_sub(coarse.first);
        let modulo = (1 << (30 - COARSER)) - 1;
        self.0 >> 33 & 1 == 0 && from_first & modulo <= coarse.last - coarse.first
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

/// `sharing` at some moment.
#[derive(Clone, Copy)]
pub(super) struct Sharing(u64);

/// In `sharing`, below a version.
const STATE: u64 = 0b11;
/// No slot has a shared range of this lock.
const NONE: u64 = 0b00;
/// Some may.
const SHARED: u64 = 0b01;
/// The same, and a thread searches for one.
const ENDING: u64 = 0b10;
const VERSION: u64 = STATE + 1;

/// In `sizes`: some range has raised the stripes of fine blocks, or of coarse ones.
const FINE: u64 = 0b01;
const COARSE: u64 = 0b10;

/// A lock's filters, for fine blocks of `2^GRAIN` positions, and its number: what every newcomer
/// reads, and hardly any writes as long as ranges are shared.
#[repr(C)]
pub(super) struct Filters<P: Platform, const STRIPES: usize, const GRAIN: u32> {
    /// The lock's number in tags, 0 before its first use.
    number: P::AtomicU64,
    exclusive: Wide<P>,
    listed: Wide<P>,
    /// Whether ranges may be shared: [`NONE`], [`SHARED`] or [`ENDING`], and a version.
    sharing: P::AtomicU64,
    /// [`FINE`] and [`COARSE`].
    sizes: P::AtomicU64,
    stripes: [Stripe<P>; STRIPES],
}

/// The blocks of one size of a range.
#[derive(Clone, Copy)]
struct Blocks {
    first: u64,
    last: u64,
    coarse: bool,
    /// Each has `2^grain` positions.
    grain: u32,
}

impl Blocks {
    #[inline(always)]
    fn are_few(self) -> bool {
        self.last - self.first < FEW
    }

    #[inline(always)]
    fn size(self) -> u64 {
        if self.coarse { COARSE } else { FINE }
    }

    /// A few blocks, mostly one.
    #[inline(always)]
    fn each(self) -> impl Iterator<Item = u64> {
        (0..self.last - self.first + 1).map(move |at| self.first + at)
    }
}

impl<P: HasRecords, const STRIPES: usize, const GRAIN: u32> Filters<P, STRIPES, GRAIN> {
    pub(super) const NEW: Self = {
        assert!(STRIPES > 0 && GRAIN + COARSER < 64, "stripes, of blocks that are not everything");
        Filters {
            number: P::AtomicU64::ZERO,
            exclusive: Wide::NEW,
            listed: Wide::NEW,
            sharing: P::AtomicU64::ZERO,
            sizes: P::AtomicU64::ZERO,
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
    fn blocks(extent: Extent, coarse: bool) -> Blocks {
        let grain = if coarse { GRAIN + COARSER } else { GRAIN };
        Blocks { first: extent.first() >> grain, last: extent.last() >> grain, coarse, grain }
    }

    /// The blocks whose stripes a range raises. None if it is wide.
    #[inline(always)]
    fn few_blocks(extent: Extent) -> Option<Blocks> {
        let fine = Self::blocks(extent, false);
        if fine.are_few() {
            return Some(fine);
        }
        let coarse = Self::blocks(extent, true);
        coarse.are_few().then_some(coarse)
    }

    /// Neighbours, and blocks at any regular distance, mostly have different stripes.
    #[inline(always)]
    fn stripe(&self, block: u64, coarse: bool) -> &Stripe<P> {
        // 2^64 over the golden ratio: Fibonacci hashing (Knuth, vol. 3, 6.4).
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = block.wrapping_add(u64::from(coarse) << 63).wrapping_mul(GOLDEN) >> 32;
        &self.stripes[((hash * STRIPES as u64) >> 32) as usize]
    }

    /// The stripes of a range, or none if it is wide, as it is about to raise them.
    #[inline(always)]
    fn to_raise(&self, extent: Extent) -> Option<Blocks> {
        let blocks = Self::few_blocks(extent)?;
        if self.sizes.load(Relaxed) & blocks.size() == 0 {
            // Release: a newcomer that sees a stripe raised sees this. The fence that follows lets
            // the caller see one that does not.
            self.sizes.fetch_or(blocks.size(), AcqRel);
        }
        Some(blocks)
    }

    /// Adds an exclusive range, by a locked instruction at least. A
    /// [`Platform::fence_after_update`] must follow before the caller looks for conflicts.
    #[inline(always)]
    pub(super) fn add_exclusive(&self, extent: Extent) -> Cells {
        let Some(blocks) = self.to_raise(extent) else {
            self.exclusive.raise(extent.first() >> GRAIN);
            return Cells::NONE;
        };
        // Threads that run at the same time begin with different cells.
        let cell = P::cpu() % CELLS as u32;
        let (mut cells, mut shift) = (0, 0);
        for block in blocks.each() {
            let positions = Positions::new(extent, block, blocks);
            cells |= self.stripe(block, blocks.coarse).enter(positions, cell) << shift;
            shift += 3;
        }
        Cells(cells)
    }

    /// Takes back one [`add_exclusive`](Self::add_exclusive) of this range, which returned these
    /// cells.
    #[inline(always)]
    pub(super) fn remove_exclusive(&self, extent: Extent, mut cells: Cells) {
        let Some(blocks) = Self::few_blocks(extent) else {
            return self.exclusive.lower();
        };
        for block in blocks.each() {
            let (cell, others) = cells.split();
            self.stripe(block, blocks.coarse).leave(cell);
            cells = others;
        }
    }

    /// Lists a range: a thread is known under the lock of the queue only. It waits, or holds the
    /// range without a slot. A fence must follow as after [`add_exclusive`](Self::add_exclusive).
    pub(super) fn list(&self, extent: Extent) {
        let Some(blocks) = self.to_raise(extent) else {
            return self.listed.raise(extent.first() >> GRAIN);
        };
        // AcqRel as in `Stripe::enter`.
        for block in blocks.each() {
            self.stripe(block, blocks.coarse).word.fetch_add(LISTED, AcqRel);
        }
    }

    /// Takes back one [`list`](Self::list) of this range.
    pub(super) fn unlist(&self, extent: Extent) {
        let Some(blocks) = Self::few_blocks(extent) else {
            return self.listed.lower();
        };
        // AcqRel as in `Stripe::enter`.
        for block in blocks.each() {
            self.stripe(block, blocks.coarse).word.fetch_sub(LISTED, AcqRel);
        }
    }

    /// Whether slots may have shared ranges.
    #[inline(always)]
    pub(super) fn is_shared(&self) -> bool {
        // Acquire pairs with the Release in `end_sharing`: what sharing holders did is seen.
        self.sharing.load(Acquire) & STATE != NONE
    }

    /// What a shared newcomer has to remember while it writes its slot.
    #[inline(always)]
    pub(super) fn sharing(&self) -> Sharing {
        Sharing(self.sharing.load(Relaxed))
    }

    /// Says that slots may have shared ranges. The caller has written its slot since it asked for `before`, with a full fence
    /// after it.
    #[inline(always)]
    pub(super) fn share(&self, before: Sharing) {
        let Sharing(before) = before;
        if before & STATE != SHARED || self.sharing.load(Acquire) != before {
            self.begin_sharing();
        }
    }

    /// With a full fence after it, also if another thread has just said so: it need not have raised its own yet.
    #[cold]
    fn begin_sharing(&self) {
        let mut found = self.sharing.load(Relaxed);
        while found & STATE != SHARED {
            let shared = (found & !STATE).wrapping_add(VERSION) | SHARED;
            // AcqRel pairs with itself, and with those in `end_sharing`.
            match self.sharing.compare_exchange(found, shared, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(newer) => found = newer,
            }
        }
        P::fence();
    }

    /// Says that no slot has a shared range any more, if that is so.
    #[cold]
    pub(super) fn end_sharing(&self, is_over: impl Fn() -> bool) {
        let found = self.sharing.load(Relaxed);
        let ending = found & !STATE | ENDING;
        // AcqRel as in `begin_sharing`.
        if found & STATE != SHARED
            || !is_over()
            || self.sharing.compare_exchange(found, ending, AcqRel, Relaxed).is_err()
        {
            return;
        }
        P::fence_after_update();
        let end = if is_over() { found & !STATE | NONE } else { found };
        // Fails if a shared range has come meanwhile. AcqRel: those that find `NONE` come after the
        // holders that are gone.
        _ = self.sharing.compare_exchange(ending, end, AcqRel, Relaxed);
    }

    /// What the filters of this range say, but for the caller's own cells.
    #[inline(always)]
    pub(super) fn look(&self, extent: Extent, own: Cells) -> Seen {
        // Acquire pairs with the Releases where they are raised and lowered, for all of them.
        let sizes = self.sizes.load(Acquire);
        let blocks = Self::blocks(extent, sizes == COARSE);
        let mut seen = Seen::NOTHING;
        if sizes != FINE | COARSE && blocks.are_few() {
            if sizes != 0 {
                seen = self.look_at(extent, blocks, own);
            }
        } else {
            seen = self.look_at_sizes(extent, sizes, own);
        }
        // In this order: a waiter that is granted exclusive access is added before it is no longer
        // listed, so a newcomer that does not find it listed finds it exclusive. A stripe has both.
        let listed = self.listed.0.load(Acquire);
        let exclusive = self.exclusive.0.load(Acquire);
        if listed | exclusive == 0 {
            return seen;
        }
        seen.or(Seen {
            exclusive: Wide::<P>::reaches(exclusive, extent.last() >> GRAIN),
            listed: Wide::<P>::reaches(listed, extent.last() >> GRAIN),
        })
    }

    /// The same of the stripes of a few blocks, and only of ranges that raise blocks of their size.
    #[inline(always)]
    fn look_at(&self, extent: Extent, blocks: Blocks, mut own: Cells) -> Seen {
        let mut seen = Seen::NOTHING;
        for block in blocks.each() {
            let stripe = self.stripe(block, blocks.coarse);
            let (cell, others) = own.split();
            own = others;
            let word = stripe.word.load(Acquire) & !((1 << cell) >> 1);
            if word != 0 {
                let positions = Positions::new(extent, block, blocks);
                seen = seen.or(stripe.seen(word, |other| positions.overlap(other)));
            }
        }
        seen
    }

    #[inline(never)]
    fn look_at_sizes(&self, extent: Extent, sizes: u64, own: Cells) -> Seen {
        let raised = Self::few_blocks(extent).map(Blocks::size);
        let coarse = Self::blocks(extent, true);
        let mut seen = Seen::NOTHING;
        for blocks in [Self::blocks(extent, false), coarse] {
            if sizes & blocks.size() == 0 {
                continue;
            }
            seen = seen.or(if blocks.are_few() {
                let own = if raised == Some(blocks.size()) { own } else { Cells::NONE };
                self.look_at(extent, blocks, own)
            } else {
                self.look_at_all(coarse)
            });
        }
        seen
    }

    /// The same of all stripes: of the ranges that raise fine blocks if the coarse ones are few.
    fn look_at_all(&self, coarse: Blocks) -> Seen {
        let overlap = |other: Positions| !coarse.are_few() || other.are_within(coarse);
        let look = |stripe: &Stripe<P>| stripe.seen(stripe.word.load(Acquire), overlap);
        self.stripes.iter().map(look).fold(Seen::NOTHING, Seen::or)
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

    fn extent(first: u64, last: u64) -> Extent {
        Extent::of(first..=last).unwrap()
    }

    #[test]
    fn exclusive_ranges_are_told_apart_within_a_block_and_counted_when_there_are_more() {
        let filters = Filters::<Os, 2, 16>::NEW;
        let sees = |range| filters.look(range, Cells::NONE).exclusive;
        let mine = |at: u64| extent(100 * at, 100 * at + 99);
        let add = |range| filters.add_exclusive(range);
        let cells: Vec<_> = (0..7).map(|at| add(mine(at))).collect();
        assert!(
            (0..7)
                .all(|at| sees(mine(at)) && !filters.look(mine(at), cells[at as usize]).exclusive)
        );
        assert!(!sees(mine(7)) && !sees(extent(700, 2 << 16)) && sees(extent(699, 2 << 16)));
        let more = add(mine(8));
        assert!(more == Cells::NONE && sees(mine(7)));
        filters.remove_exclusive(mine(8), more);
        cells.iter().zip(0..).for_each(|(&cells, at)| filters.remove_exclusive(mine(at), cells));
        assert!(!sees(extent(0, u64::MAX)));
    }

    #[test]
    fn positions_that_do_not_overlap_have_none_in_common() {
        let ranges = [(0, 0), (0, 3), (3, 3), (4, 9), (14, 17), (16, 16), (16, 70), (30, 31)];
        for (range, other) in ranges.iter().flat_map(|it| ranges.map(|other| (*it, other))) {
            let (range, other) = (extent(range.0, range.1), extent(other.0, other.1));
            for block in (range.first() >> 4)..=(range.last() >> 4) {
                if (other.first() >> 4..=other.last() >> 4).contains(&block) {
                    let in_block = extent(block << 4, block << 4 | 15);
                    let part = |it: Extent| {
                        extent(it.first().max(in_block.first()), it.last().min(in_block.last()))
                    };
                    let overlap = part(range).overlaps(part(other));
                    let blocks = |it| Filters::<Os, 1, 4>::blocks(it, false);
                    let positions = |it| Positions::new(it, block, blocks(it));
                    assert_eq!(positions(range).overlap(positions(other)), overlap);
                }
            }
        }
    }

    #[test]
    fn sharing_ends_only_if_none_began_meanwhile() {
        let filters = Filters::<Os, 2, 16>::NEW;
        assert!(!filters.is_shared());
        filters.share(filters.sharing());
        filters.end_sharing(|| false);
        assert!(filters.is_shared());
        filters.end_sharing(|| {
            filters.share(filters.sharing());
            true
        });
        assert!(filters.is_shared());
        filters.end_sharing(|| true);
        assert!(!filters.is_shared());
    }
}
