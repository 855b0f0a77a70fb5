//! The list to use: a stack that producers push onto with one compare-exchange, and that a consumer
//! takes as a whole and reverses.
//!
//! The head word is a pointer to the youngest item; its low bits say who is to be told of a push, so
//! that "is there anything?" and "wake me" are one step.
//!
//! ```text
//!   head: │ youngest item │ SURVEY  OUTSIDE  SLEEPERS │
//!              │ next
//!              ▼
//!            item ─▶ item ─▶ null
//! ```
//!
//! 1. A producer claims the item: it sets `QUEUED`, and is counted in `LINKING` and `INSIDE`, in one
//!    step. If it is queued already, nobody is linking it and nobody is inside, a consumer will look at it
//!    later: done.
//! 2. It links the item, and by the same compare-exchange learns who is to be told.
//! 3. It says that the item is linked, tells them unless somebody has, and leaves.
//!
//! A producer that is preempted between 1 and 2 would hide what others signal on the *same* source
//! meanwhile: they find the item queued, and it is on no list. They cannot link it in its place (its
//! link is not theirs). So, after a short wait that the clock ends, they ask for a *survey*: the next
//! consumer goes through all items of its poll, and looks at those that are being linked, or have been
//! since it emptied the stack. That costs a pass over all items, and happens when two threads signal one
//! source at once and the first is preempted in a window of some ten instructions.
//!
//! One that is preempted in 3 may not have told those who watch. Then it is still inside, and whoever
//! signals the same source sees to it that they are told.
//!
//! Invariants
//! 1. An item is on the stack at most once: it is linked only by the thread that set `QUEUED`, and
//!    `QUEUED` is cleared only by a consumer that took it off (`item.rs`, invariant 1).
//! 2. A watcher's bit stays until a consumer takes what is on the stack: everybody who pushes until then
//!    sees to it that they are told (`request.rs`), because any one of them may be preempted before.
//! 3. A signal that has returned left the item on the stack, or with the consumers, or `SURVEY` in
//!    the head word, or found one of these so; and those who watched then were told.
//! 4. No step of a producer waits for another thread, but for a bounded spin.
//!
//! After R. K. Treiber, "Systems programming: coping with parallelism" (1986), for the stack. Nothing is
//! ever popped singly, which leaves no ABA problem: a producer links to whatever is on top, and if that
//! is the item that it saw it does not matter what became of it meanwhile.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::item::{INSIDE, Item, LINKING, QUEUED, is_inside, is_linking, is_queued, matters};
use super::list::{List, OUTSIDE, SLEEPERS, Watchers, hand_over};
use super::nesting::HasNesting;
use crate::platform::{AtomicCell, Os, Platform};
use crate::spin_budget::SpinBudget;

/// Somebody found an item queued that is not on the list yet.
const SURVEY: usize = 4;
const WATCHERS: usize = (SLEEPERS | OUTSIDE) as usize;
const FLAGS: usize = SURVEY | WATCHERS;

const _: () = assert!(align_of::<Item<Os>>() > FLAGS);

/// So long a producer waits for another one to link the item of both, ns. Linking takes two cache
/// misses; this is enough for it under contention, and ends soon if the other does not run.
const LINKING_TAKES: u64 = 500;

/// A list of ready items on which no producer can hold up another, nor a consumer.
///
/// Pushing an item is two atomic operations on the item's own line and one on the list; a signal of an
/// item that is on the list already is a load.
#[repr(align(64))]
pub struct ReadyList<P: Platform = Os> {
    head: P::AtomicPtr<()>,
}

/// What a producer found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Nothing: the item is its own to link.
    Claimed,
    /// Somebody who links the item and does not come on with it.
    Behind,
    /// Somebody who has linked the item, and perhaps not told those who watch.
    Beside,
}

fn watchers(head: *mut ()) -> Watchers {
    (head.addr() & WATCHERS) as Watchers
}

fn item_of(head: *mut ()) -> *mut () {
    head.map_addr(|address| address & !FLAGS)
}

/// Until an item is linked, or for as long as that should take.
#[cold]
fn wait_for_link<P: Platform>(item: &Item<P>) -> u64 {
    let mut budget = SpinBudget::new::<P>(LINKING_TAKES, None);
    loop {
        let state = item.state.load(Acquire);
        if !is_queued(state) || !is_linking(state) || !budget.relax::<P>() {
            return state;
        }
    }
}

// SAFETY: invariants 1 and 3; `INSIDE` counts a producer in with its claim, or beside it, and out by `told`.
unsafe impl<P: HasNesting> List for ReadyList<P> {
    type Platform = P;
    type Entry = Entry;
    const NEW: Self = ReadyList { head: P::AtomicPtr::ZERO };

    #[inline]
    fn enter(item: &Item<P>) -> Option<Entry> {
        let mut has_waited = false;
        // Acquire pairs with the Release in `leave`, where the item is found on the list: whoever is told
        // that this signal has returned finds it there too.
        let mut state = item.state.load(Acquire);
        while matters(state) {
            let (entry, entered) = if !is_queued(state) {
                (Entry::Claimed, (state | QUEUED) + LINKING + INSIDE)
            } else if !is_linking(state) {
                if !is_inside(state) {
                    return None;
                }
                (Entry::Beside, state + INSIDE)
            } else if !has_waited {
                has_waited = true;
                state = wait_for_link(item);
                continue;
            } else {
                (Entry::Behind, state + INSIDE)
            };
            // Acquire pairs with the Release in `Item::attach` and in `Item::release`.
            match item.state.compare_exchange_weak(state, entered, Acquire, Acquire) {
                Ok(_) => return Some(entry),
                Err(found) => state = found,
            }
        }
        None
    }

    #[inline]
    fn push(&self, item: &Item<P>, entry: Entry) -> Watchers {
        let mut head = self.head.load(Relaxed);
        loop {
            let pushed = match entry {
                Entry::Claimed => {
                    item.next.store(item_of(head), Relaxed);
                    item.as_link().map_addr(|address| address | head.addr() & FLAGS)
                }
                Entry::Behind => head.map_addr(|address| address | SURVEY),
                // An exchange, too: it is to come after the request of those who are to be told.
                Entry::Beside => head,
            };
            // Release pairs with the Acquire in `take`; Acquire with the Release in `watch`, so that
            // a request is known to those who are to answer it.
            match self.head.compare_exchange_weak(head, pushed, AcqRel, Relaxed) {
                Ok(_) => return watchers(head),
                Err(found) => head = found,
            }
        }
    }

    #[inline]
    fn pushed(item: &Item<P>, entry: Entry) {
        if entry == Entry::Claimed {
            item.leave(LINKING);
        }
    }

    #[inline]
    fn told(item: &Item<P>, _entry: Entry) {
        item.leave(INSIDE);
    }

    #[inline]
    fn done(item: &Item<P>, entry: Entry) {
        item.leave(match entry {
            Entry::Claimed => LINKING + INSIDE,
            Entry::Behind | Entry::Beside => INSIDE,
        });
    }

    fn take(&self, sink: impl FnMut(*const Item<P>)) -> bool {
        if self.is_empty() {
            return false;
        }
        // Acquire pairs with the Release in `push`, of all producers, since there are only
        // read-modify-writes in between. Those who watched are told by those who pushed, or see what is
        // taken here.
        let head = self.head.swap(ptr::null_mut(), Acquire);
        let mut oldest: *mut () = ptr::null_mut();
        let mut link = item_of(head);
        while !link.is_null() {
            // SAFETY: invariant 1; an item lives until it is off its poll's list.
            let item = unsafe { &*link.cast::<Item<P>>() };
            let next = item.next.load(Relaxed);
            item.next.store(oldest, Relaxed);
            (oldest, link) = (link, next);
        }
        // SAFETY: as above.
        unsafe { hand_over(oldest, sink) };
        head.addr() & SURVEY != 0
    }

    fn watch(&self, watchers: Watchers) -> bool {
        let mut head = self.head.load(Relaxed);
        loop {
            if !item_of(head).is_null() || head.addr() & SURVEY != 0 {
                return false;
            }
            let watched = head.map_addr(|address| address | watchers as usize);
            // Release pairs with the Acquire in `push`: also where the bits are as they were.
            match self.head.compare_exchange_weak(head, watched, Release, Relaxed) {
                Ok(_) => return true,
                Err(found) => head = found,
            }
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        let head = self.head.load(Relaxed);
        item_of(head).is_null() && head.addr() & SURVEY == 0
    }
}
