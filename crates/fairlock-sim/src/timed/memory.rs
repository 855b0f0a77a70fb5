//! The heap of the machine's locks: blocks on cache lines of their own, which come back in an order that is part
//! of the run.
//!
//! A line is known by its address, and what each CPU has of it outlasts the block there. So it matters which
//! words share a line, and which freed block the next allocation gets. If the program's allocator decided that,
//! figures would depend on what the program did before the run and on how large it is.
//!
//! A block consists of whole pairs of lines. A block that a thread frees is the next one of its size that this
//! thread gets, as allocators with a cache for each thread do it. A thread keeps [`KEPT`] blocks of a size; those
//! beyond that go to whichever thread runs out of its own. Allocating takes no simulated time.
//!
//! Outside a run, where locks are made before it and dropped after it, blocks come from the system and go back
//! to it. Inside a run they come from the system, too, but none goes back before the run ends: a new block is
//! never at an address that the run has seen. As each block is an allocation of its own, whoever frees it may do
//! so in this run, in a later one, or outside. A thread that never ends leaks the blocks that it owns, as
//! whatever else it owns (`fiber.rs`).
//!
//! Invariant
//! 1. A block in [`FREED`] came from the system with the layout it is filed under, and nobody uses it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ptr;

use super::Timed;
use crate::platform::Backend;

/// Two lines, as locks keep apart what CPUs that fetch lines in pairs should not share.
const ALIGN: usize = 128;

/// How many freed blocks of a size a thread keeps for itself: as many as glibc's allocator does by default.
const KEPT: usize = 7;

/// Blocks are filed by size and alignment, and by the thread that keeps them: none for those beyond [`KEPT`].
type File = (usize, usize, Option<usize>);

thread_local! {
    /// What the threads of the run under way have freed, the last one at the end.
    static FREED: RefCell<BTreeMap<File, Vec<*mut u8>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The layout of the block for a layout; none if there is no such block.
fn block_for(layout: Layout) -> Option<Layout> {
    // Padding is checked, too: a size up to `isize::MAX` may become larger than that.
    let size = layout.size().checked_next_multiple_of(ALIGN)?;
    Layout::from_size_align(size, layout.align().max(ALIGN)).ok()
}

/// See [`Backend::allocate`].
///
/// # Safety
/// The layout's size is not 0.
pub(super) unsafe fn allocate(layout: Layout) -> *mut u8 {
    let Some(block) = block_for(layout) else { return ptr::null_mut() };
    // Invariant 1: nobody uses a freed block, and once it is off the list nobody else gets it.
    freed(block).unwrap_or_else(|| {
        // SAFETY: the size is not 0, as the caller promises.
        unsafe { system::alloc(block) }
    })
}

/// A block that was freed in the run under way.
fn freed(block: Layout) -> Option<*mut u8> {
    let thread = Timed::thread()?;
    FREED.with_borrow_mut(|freed| {
        let mut last = |owner| freed.get_mut(&(block.size(), block.align(), owner))?.pop();
        last(Some(thread)).or_else(|| last(None))
    })
}

/// See [`Backend::deallocate`].
///
/// # Safety
/// [`allocate`] returned the memory for this layout, and nobody uses it any more.
pub(super) unsafe fn deallocate(memory: *mut u8, layout: Layout) {
    let block = block_for(layout).expect("it was allocated");
    let Some(thread) = Timed::thread() else {
        // SAFETY: `allocate` has it from the system with this layout, and nobody uses it any more, as the
        // caller promises.
        return unsafe { system::dealloc(memory, block) };
    };
    FREED.with_borrow_mut(|freed| {
        let file = |owner| (block.size(), block.align(), owner);
        let own = freed.entry(file(Some(thread))).or_default();
        if own.len() < KEPT {
            own.push(memory);
        } else {
            freed.entry(file(None)).or_default().push(memory);
        }
    });
}

/// The run has ended, however it did, when this is dropped: freed blocks go back to the system.
pub(super) struct UntilTheEnd;

impl Drop for UntilTheEnd {
    fn drop(&mut self) {
        for ((size, align, _), blocks) in FREED.take() {
            let block = Layout::from_size_align(size, align).expect("a block has this layout");
            for memory in blocks {
                // SAFETY: invariant 1, and it is on no list any more.
                unsafe { system::dealloc(memory, block) };
            }
        }
    }
}

/// The system's allocator; tests count what was not given back.
mod system {
    use super::*;

    #[cfg(test)]
    thread_local! {
        pub(super) static BLOCKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    /// # Safety
    /// As [`GlobalAlloc::alloc`].
    pub(super) unsafe fn alloc(block: Layout) -> *mut u8 {
        #[cfg(test)]
        BLOCKS.set(BLOCKS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(block) }
    }

    /// # Safety
    /// As [`GlobalAlloc::dealloc`].
    pub(super) unsafe fn dealloc(memory: *mut u8, block: Layout) {
        #[cfg(test)]
        BLOCKS.set(BLOCKS.get() - 1);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, block) };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use fairlock::lock_api::Mutex;
    use fairlock::platform::Platform;
    use fairlock::range::{Extent, RangeLock};
    use fairlock_reference::range::Naive;
    use fairlock_reference::spin::RawClh;

    use super::super::{Failure, Report, Setup, Thread, run, sleep};
    use super::*;
    use crate::Sim;
    use crate::profile::Profile;

    type Clh = Mutex<RawClh<Sim>, u32>;

    fn run_all<'a>(
        bodies: impl IntoIterator<Item = Box<dyn FnOnce() + 'a>>,
    ) -> Result<Report, Failure> {
        let profile = Profile::example();
        let setup =
            Setup { profile: &profile, seed: 1, pinned: false, timeline_ns: 0, tuning: None };
        let thread = |body| Thread { body, priority: 0 };
        run(&setup, bodies.into_iter().map(thread).collect(), &|| false, &|| ())
    }

    fn in_a_run(body: impl FnOnce()) {
        run_all([Box::new(body) as Box<dyn FnOnce() + '_>]).unwrap();
    }

    fn blocks() -> usize {
        // Those of the last run's process go.
        crate::platform::begin_process();
        system::BLOCKS.get()
    }

    fn layout() -> Layout {
        Layout::new::<[u64; 5]>()
    }

    fn allocated() -> *mut u8 {
        // SAFETY: not of size 0.
        unsafe { Sim::allocate(layout()) }
    }

    /// # Safety
    /// As [`Platform::deallocate`], for [`layout`].
    unsafe fn free(memory: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { Sim::deallocate(memory, layout()) };
    }

    /// Several threads take turns at a lock: those that wait and those that do not.
    fn count_to(lock: &Clh, sum: u32) -> Result<Report, Failure> {
        run_all((0..4).map(|_| {
            Box::new(move || {
                for _ in 0..sum / 4 {
                    *lock.lock() += 1;
                    _ = lock.try_lock();
                }
            }) as Box<dyn FnOnce() + '_>
        }))
    }

    #[test]
    fn blocks_have_lines_of_their_own() {
        let both = [allocated(), allocated()];
        assert!(both.iter().all(|memory| memory.addr().is_multiple_of(ALIGN)));
        // SAFETY: allocated above, used by nobody.
        both.into_iter().for_each(|memory| unsafe { free(memory) });
        for (size, bytes) in [(1, 128), (128, 128), (129, 256)] {
            let block = block_for(Layout::from_size_align(size, 1).unwrap()).unwrap();
            assert_eq!((block.size(), block.align()), (bytes, ALIGN));
        }
        let page = block_for(Layout::from_size_align(8, 4096).unwrap()).unwrap();
        assert_eq!(page.align(), 4096);
        assert_eq!(block_for(Layout::from_size_align(isize::MAX as usize, 1).unwrap()), None);
    }

    #[test]
    fn a_thread_gets_back_what_it_freed_last() {
        let theirs = Cell::new(ptr::null_mut());
        let first = Box::new(|| {
            let [a, b] = [allocated(), allocated()];
            // SAFETY: allocated above, used by nobody.
            [a, b].into_iter().for_each(|memory| unsafe { free(memory) });
            sleep(1000);
            let again = [allocated(), allocated(), allocated()];
            assert_eq!(again[..2], [b, a]);
            assert!(again[2] != theirs.get(), "another thread keeps that");
            // SAFETY: as above.
            again.into_iter().for_each(|memory| unsafe { free(memory) });
        }) as Box<dyn FnOnce() + '_>;
        let second = Box::new(|| {
            theirs.set(allocated());
            // SAFETY: allocated just now, used by nobody.
            unsafe { free(theirs.get()) };
        });
        run_all([first, second]).unwrap();
        assert_eq!(blocks(), 0);
    }

    #[test]
    fn a_thread_that_only_frees_feeds_one_that_only_allocates() {
        let handed = Cell::new(ptr::null_mut::<u8>());
        const ROUNDS: usize = 100;
        let maker = Box::new(|| {
            for _ in 0..ROUNDS {
                while !handed.get().is_null() {
                    sleep(100);
                }
                handed.set(allocated());
            }
        }) as Box<dyn FnOnce() + '_>;
        let user = Box::new(|| {
            for _ in 0..ROUNDS {
                while handed.get().is_null() {
                    sleep(100);
                }
                // SAFETY: the other thread allocated it and keeps no pointer.
                unsafe { free(handed.replace(ptr::null_mut())) };
            }
            assert!(system::BLOCKS.get() <= KEPT + 2, "{} blocks", system::BLOCKS.get());
        });
        run_all([maker, user]).unwrap();
        assert_eq!(blocks(), 0);
    }

    #[test]
    fn no_block_goes_to_the_system_and_back_during_a_run() {
        let before = allocated();
        in_a_run(|| {
            // SAFETY: allocated above, used by nobody else.
            unsafe { free(before) };
            assert_eq!(system::BLOCKS.get(), 1);
            assert_eq!(allocated(), before);
            // SAFETY: allocated just now.
            unsafe { free(before) };
        });
        assert_eq!(blocks(), 0);
    }

    #[test]
    fn a_lock_may_be_made_before_a_run_be_used_in_several_and_be_dropped_after_them() {
        let lock = Clh::new(0);
        drop(lock.lock());
        for run in 1..4 {
            count_to(&lock, 400).unwrap();
            assert_eq!(*lock.lock(), 400 * run);
        }
        drop(lock);
        assert_eq!(blocks(), 0);
    }

    #[test]
    fn a_lock_may_be_dropped_while_another_run_is_under_way_or_on_another_thread() {
        let locks = [Clh::new(0), Clh::new(0)];
        for lock in &locks {
            count_to(lock, 400).unwrap();
        }
        let [first, second] = locks;
        in_a_run(|| drop(first));
        let left = blocks();
        let theirs = std::thread::spawn(move || {
            // This thread frees what that one allocated, which counts for itself.
            system::BLOCKS.set(left);
            drop(second);
            system::BLOCKS.get()
        });
        assert_eq!(theirs.join().unwrap(), 0);
    }

    #[test]
    fn a_lock_outlives_a_run_whose_thread_panicked_and_leaks_nothing() {
        let lock = Clh::new(0);
        let ranges = RangeLock::<Naive<Sim>>::new_in();
        let failure = run_all([Box::new(|| {
            let held = (lock.lock(), ranges.write(Extent::ALL));
            assert_eq!(*held.0, 1, "nobody has written yet");
        }) as Box<dyn FnOnce() + '_>]);
        assert!(matches!(failure, Err(Failure::Panicked(_))), "{failure:?}");
        count_to(&lock, 40).unwrap();
        assert_eq!(*lock.lock(), 40);
        drop(lock);
        assert_eq!(blocks(), 0);
    }

    /// Those that never get the lock are forgotten with what they own; the lock owns the rest.
    #[test]
    fn a_lock_may_be_dropped_after_a_deadlock() {
        let lock = Clh::new(0);
        let holds = || Box::new(|| std::mem::forget(lock.lock())) as Box<dyn FnOnce() + '_>;
        let failure = run_all([holds(), holds(), holds()]);
        assert!(matches!(failure, Err(Failure::Deadlock(_))), "{failure:?}");
        let before = blocks();
        drop(lock);
        assert!(system::BLOCKS.get() < before, "the last in the queue is the lock's");
    }
}
