//! What locks, polls and sources take in memory: the figures in the book's table "What a lock costs in memory",
//! measured. What threads take is in the unit tests of `process` and of `rwsem::queue_pool`.

#![cfg(target_pointer_width = "64")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;

use fairlock::ready::{
    Counter, Event, Poll, RawSource, Readiness, ReadyList, Source, Timer, Trigger,
};
use fairlock::{Mutex, RwLock, RwSem};

/// Whether locks have numbers for the checks for deadlocks.
const HAS_NUMBERS: bool = cfg!(any(debug_assertions, feature = "deadlock_detection"));
/// What a lock has then beside what the book says.
const NUMBER: usize = if HAS_NUMBERS { size_of::<usize>() } else { 0 };
/// What that makes of whole cache lines of which one has a lock.
const LINE: usize = if HAS_NUMBERS { 64 } else { 0 };

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        _ = ALLOCATED.try_with(|bytes| bytes.set(bytes.get() + layout.size()));
        // SAFETY: of this layout, as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: of this layout, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `make` returns, and how many bytes it has allocated.
fn allocated<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.get();
    let made = make();
    (made, ALLOCATED.get() - before)
}

/// The rows of the book's table: a name, and the number in the next column.
fn book() -> BTreeMap<String, usize> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/use/which-lock.md");
    let page = std::fs::read_to_string(path).expect("the book is beside the crates");
    let section = page.split("## What a lock costs in memory").nth(1).expect("the section");
    let section = section.split("\n## ").next().expect("its text");
    let row = |line: &str| {
        let mut columns = line.strip_prefix("| ")?.split(" | ");
        Some((columns.next()?.to_owned(), columns.next()?.parse().ok()?))
    };
    section.lines().filter_map(row).collect()
}

#[test]
fn the_book_says_what_locks_polls_and_sources_take() {
    let (poll, bytes_of_poll) = allocated(Poll::new);
    let (counter, bytes_of_source) = allocated(|| Counter::new(0));
    assert_eq!(bytes_of_source, allocated(Event::new).1);
    assert_eq!(bytes_of_source, allocated(Timer::new).1);
    assert_eq!(bytes_of_source, size_of::<RawSource<ReadyList>>());

    let book = book();
    for (name, bytes) in [
        ("`RwLock`", size_of::<RwLock<()>>() - NUMBER),
        ("`RwSem`", size_of::<RwSem<()>>() - NUMBER),
        ("`Mutex`", size_of::<Mutex<()>>() - NUMBER),
        ("`ready::Poll`", bytes_of_poll),
        ("a source", bytes_of_source - LINE),
    ] {
        assert_eq!(book.get(name), Some(&bytes), "{name}");
    }

    // Data that needs no alignment of its own begins right behind the lock.
    assert_eq!(size_of::<RwLock<[u8; 7]>>(), 40 + NUMBER);
    assert_eq!(size_of::<Mutex<[u8; 8]>>(), 24 + NUMBER);

    // A poll that somebody watches from outside is a source, too.
    let outer = Poll::new();
    let watch = || outer.register(&poll, 0, Readiness::READABLE, Trigger::Level);
    let (watched, bytes) = allocated(watch);
    watched.expect("a new source");
    let table_of_sources = 4 * size_of::<usize>();
    assert_eq!(bytes, bytes_of_source + 64 + table_of_sources, "the source, and its descriptor");
    let (done, bytes) =
        allocated(|| poll.register(&counter, 0, Readiness::READABLE, Trigger::Edge));
    done.expect("a new source");
    assert_eq!(bytes, table_of_sources, "it is made once");
    assert_eq!(allocated(|| _ = poll.source()).1, 0);
}
