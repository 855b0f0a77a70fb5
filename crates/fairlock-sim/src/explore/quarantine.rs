//! Memory that a program's threads free stays what it was until the execution has ended.
//!
//! An atomic that is dropped is marked, and whoever uses it afterwards is found, as long as nothing
//! else has come to its place. So what is freed must not be used again before the execution's end.
//!
//! Every block has a header in front of it, so that keeping one needs no memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

use super::execution::Run;

/// A test binary's allocator, with which the explorer finds uses of *boxed* words after they were
/// freed: what a program's threads free is kept until the execution has ended.
///
/// Without it such a use is found only while nothing else has been put there. Only words are
/// watched: a use of plain memory is not found. Memory that is not a program's is freed at once.
///
/// ```
/// use fairlock::platform::{AtomicCell, Platform};
/// use fairlock_sim::Explored;
/// use fairlock_sim::explore::{FailureKind, Program, Quarantine, Search};
/// use std::{cell::Cell, sync::atomic::Ordering::Relaxed};
///
/// #[global_allocator]
/// static ALLOCATOR: Quarantine = Quarantine;
///
/// type Word = <Explored as Platform>::AtomicU64;
/// let word = || Cell::new(Box::into_raw(Box::new(Word::new(1))));
/// let program = Program::new("freed too early", word)
///     // SAFETY: none; that is what is found.
///     .thread(|word| drop(unsafe { Box::from_raw(word.get()) }))
///     .thread(|word| _ = unsafe { &*word.get() }.load(Relaxed));
/// let failure = program.check(&Search::exhaustive()).expect_err("it is used after that");
/// assert!(matches!(failure.kind, FailureKind::Gone { .. }), "{failure}");
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Quarantine;

/// In front of each block.
struct Header {
    /// The block that was freed before, of those that are kept.
    next: *mut Header,
    layout: Layout,
}

thread_local! {
    /// The block that was freed last, of those that are kept; null if none is.
    static KEPT: Cell<*mut Header> = const { Cell::new(ptr::null_mut()) };
}

/// The whole of a block, and where in it the part for the user is.
fn with_header(layout: Layout) -> Option<(Layout, usize)> {
    let (whole, offset) = Layout::new::<Header>().extend(layout).ok()?;
    Some((whole, offset))
}

// SAFETY: blocks are the system's, with room for a header; each is given back to the system once, with
// the layout that it was asked for.
unsafe impl GlobalAlloc for Quarantine {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some((whole, offset)) = with_header(layout) else { return ptr::null_mut() };
        // SAFETY: not of size zero.
        let block = unsafe { System.alloc(whole) };
        if block.is_null() {
            return block;
        }
        // SAFETY: inside the block, at whose end there is room for the layout.
        unsafe { block.add(offset) }
    }

    unsafe fn dealloc(&self, user: *mut u8, layout: Layout) {
        let (whole, offset) = with_header(layout).expect("it was made");
        // SAFETY: made by `alloc`, with this layout.
        let block = unsafe { user.sub(offset) };
        if Run::current().is_none() {
            // SAFETY: made by `alloc`, with this layout.
            return unsafe { System.dealloc(block, whole) };
        }
        let header = block.cast::<Header>();
        // SAFETY: in front of what is the user's, and aligned: the whole begins with it.
        unsafe { header.write(Header { next: KEPT.get(), layout: whole }) };
        KEPT.set(header);
    }
}

/// The execution has ended when this is dropped: what was kept goes.
pub(super) struct UntilTheEnd;

impl Drop for UntilTheEnd {
    fn drop(&mut self) {
        let mut kept = KEPT.replace(ptr::null_mut());
        while !kept.is_null() {
            // SAFETY: a header of a block that nobody uses any more.
            let Header { next, layout } = unsafe { kept.read() };
            // SAFETY: the block begins with it, and was made with this layout.
            unsafe { System.dealloc(kept.cast(), layout) };
            kept = next;
        }
    }
}
