//! The seam between `readseek` and its file: pages in memory, or the model of a simulated machine.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use fairlock::platform::{AtomicCell, Platform};
use fairlock_report::random::{XorShift, jittered};
use fairlock_sim::{Sim, timed};

use super::pages::{Aligned, PAGE_BYTES, copy_out, fill, torn, words};
use super::{RealWorld, SimWorld, World};

/// A machine with a page cache.
pub trait PageCache: World {
    /// A file in it.
    type File: CachedFile;

    /// A file of so many blocks of so many bytes each, all zero.
    fn cached_file(&self, blocks: u32, block_bytes: u32) -> Self::File;
}

/// A file that is read and written block by block. Nothing keeps a read from seeing half a write.
pub trait CachedFile: Sync {
    /// A thread's buffer for one block.
    type Buffer: Send;

    /// A buffer for one block, for the worker of this number.
    fn buffer(&self, number: u32) -> Self::Buffer;

    /// What the calls take beside the copy.
    #[inline(always)]
    fn enter(&self, _buffer: &mut Self::Buffer) {}

    /// Copies a block out.
    fn read(&self, block: u32, buffer: &mut Self::Buffer);

    /// Overwrites blocks with one stamp.
    fn write(&self, blocks: Range<u32>, stamp: u64, buffer: &mut Self::Buffer);

    /// Two stamps of the block that was read, if it has several.
    fn torn(buffer: &Self::Buffer) -> Option<(u64, u64)>;
}

/// Pages in this machine's memory.
pub struct RealFile {
    pages: Aligned<AtomicU64>,
    block_words: usize,
}

impl PageCache for RealWorld {
    type File = RealFile;

    fn cached_file(&self, blocks: u32, block_bytes: u32) -> RealFile {
        let block_words = words(block_bytes);
        RealFile { pages: Aligned::new(blocks as usize * block_words), block_words }
    }
}

impl CachedFile for RealFile {
    type Buffer = Aligned<u64>;

    fn buffer(&self, _number: u32) -> Aligned<u64> {
        Aligned::new(self.block_words)
    }

    #[inline]
    fn read(&self, block: u32, buffer: &mut Aligned<u64>) {
        let start = block as usize * self.block_words;
        copy_out(&self.pages.words()[start..start + self.block_words], buffer.words_mut());
    }

    #[inline]
    fn write(&self, blocks: Range<u32>, stamp: u64, _buffer: &mut Aligned<u64>) {
        let [start, end] = [blocks.start, blocks.end].map(|it| it as usize * self.block_words);
        fill(&self.pages.words()[start..end], stamp);
    }

    #[inline]
    fn torn(buffer: &Aligned<u64>) -> Option<(u64, u64)> {
        torn(buffer.words())
    }
}

/// What one worker's iteration takes where nobody else is: ten workers of the source made
/// 25.7 million of them a second.
const ITERATION_NS: u32 = 389;
/// How much of that is the copy of a page, and so under the lock; the rest are two system calls.
/// Assumed: 40 bytes a nanosecond, from the second cache.
const PAGE_COPY_NS: u32 = 100;

/// A block is two words, its first and its last, on lines of their own: a copy looks at the one,
/// takes its time and looks at the other.
struct Block {
    first: CachePadded<Word>,
    last: CachePadded<Word>,
}

type Word = <Sim as Platform>::AtomicU64;

/// Blocks on a simulated machine.
pub struct SimulatedFile {
    blocks: Vec<Block>,
    copy_ns: u32,
    seed: u64,
}

/// What a simulated worker knows of a block.
pub struct Ends {
    first: u64,
    last: u64,
    /// For the lengths of what it does. They differ by 25 % either way: workers would fall into step, and
    /// two copies of one length that begin at one end never cross.
    random: XorShift,
}

impl Ends {
    fn work(&mut self, ns: u32) {
        timed::work(jittered(ns, &mut self.random).into());
    }
}

impl PageCache for SimWorld {
    type File = SimulatedFile;

    fn cached_file(&self, blocks: u32, block_bytes: u32) -> SimulatedFile {
        let word = || CachePadded::new(Word::ZERO);
        let block = || Block { first: word(), last: word() };
        SimulatedFile {
            blocks: std::iter::repeat_with(block).take(blocks as usize).collect(),
            copy_ns: PAGE_COPY_NS * (block_bytes / PAGE_BYTES),
            seed: self.seed(),
        }
    }
}

impl CachedFile for SimulatedFile {
    type Buffer = Ends;

    fn buffer(&self, number: u32) -> Ends {
        // Another sequence than that of the worker's offsets.
        let seed = !self.seed.wrapping_mul(1 << 32).wrapping_add(number.into());
        Ends { first: 0, last: 0, random: XorShift::new(seed) }
    }

    fn enter(&self, ends: &mut Ends) {
        ends.work(ITERATION_NS - PAGE_COPY_NS);
    }

    // Relaxed: the lock under test has to order them.

    fn read(&self, block: u32, ends: &mut Ends) {
        let block = &self.blocks[block as usize];
        ends.first = block.first.load(Ordering::Relaxed);
        ends.work(self.copy_ns);
        ends.last = block.last.load(Ordering::Relaxed);
    }

    fn write(&self, blocks: Range<u32>, stamp: u64, ends: &mut Ends) {
        for block in &self.blocks[blocks.start as usize..blocks.end as usize] {
            block.first.store(stamp, Ordering::Relaxed);
            ends.work(self.copy_ns);
            block.last.store(stamp, Ordering::Relaxed);
        }
    }

    fn torn(ends: &Ends) -> Option<(u64, u64)> {
        (ends.first != ends.last).then_some((ends.first, ends.last))
    }
}
