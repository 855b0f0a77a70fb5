//! The seam between `readseek` and its file: pages in memory, or the model of a simulated machine.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use fairlock::platform::{AtomicCell, Platform};
use fairlock_sim::{Sim, timed};

use super::pages::{Aligned, PAGE_BYTES, copy_out, fill, torn, words};
use crate::world::{RealWorld, SimWorld, World};

/// A machine with a page cache.
pub trait PageCache: World {
    /// A file in it.
    type File: CachedFile;

    /// A file of so many blocks of so many bytes each, all zero.
    fn cached_file(&self, blocks: u32, block_bytes: u32) -> Self::File;
}

/// A file that is read and written block by block. Nothing keeps a read from seeing half a write.
pub trait CachedFile: Sync {
    /// A thread's room for one block.
    type Buffer: Send;

    /// Room for one block.
    fn buffer(&self) -> Self::Buffer;

    /// What a call takes beside the copy.
    fn enter(&self) {}

    /// Copies a block out.
    fn read(&self, block: u32, buffer: &mut Self::Buffer);

    /// Overwrites blocks with one stamp.
    fn write(&self, blocks: Range<u32>, stamp: u64);

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

    fn buffer(&self) -> Aligned<u64> {
        Aligned::new(self.block_words)
    }

    #[inline]
    fn read(&self, block: u32, buffer: &mut Aligned<u64>) {
        let start = block as usize * self.block_words;
        copy_out(&self.pages.words()[start..start + self.block_words], buffer.words_mut());
    }

    #[inline]
    fn write(&self, blocks: Range<u32>, stamp: u64) {
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
const ITERATION_NS: u64 = 389;
/// How much of that is the copy of a page, and so under the lock; the rest are two system calls.
/// Assumed: 40 bytes a nanosecond, from the second cache.
const PAGE_COPY_NS: u64 = 100;

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
    copy_ns: u64,
}

impl PageCache for SimWorld {
    type File = SimulatedFile;

    fn cached_file(&self, blocks: u32, block_bytes: u32) -> SimulatedFile {
        let word = || CachePadded::new(Word::ZERO);
        let block = || Block { first: word(), last: word() };
        SimulatedFile {
            blocks: std::iter::repeat_with(block).take(blocks as usize).collect(),
            copy_ns: PAGE_COPY_NS * u64::from(block_bytes / PAGE_BYTES),
        }
    }
}

impl CachedFile for SimulatedFile {
    type Buffer = (u64, u64);

    fn buffer(&self) -> (u64, u64) {
        (0, 0)
    }

    fn enter(&self) {
        timed::work(ITERATION_NS - PAGE_COPY_NS);
    }

    // Relaxed: the lock under test has to order them.

    fn read(&self, block: u32, buffer: &mut (u64, u64)) {
        let block = &self.blocks[block as usize];
        buffer.0 = block.first.load(Ordering::Relaxed);
        timed::work(self.copy_ns);
        buffer.1 = block.last.load(Ordering::Relaxed);
    }

    fn write(&self, blocks: Range<u32>, stamp: u64) {
        for block in &self.blocks[blocks.start as usize..blocks.end as usize] {
            block.first.store(stamp, Ordering::Relaxed);
            timed::work(self.copy_ns);
            block.last.store(stamp, Ordering::Relaxed);
        }
    }

    fn torn(&(first, last): &(u64, u64)) -> Option<(u64, u64)> {
        (first != last).then_some((first, last))
    }
}
