//! The list to use: a stack that producers push onto with one compare-exchange, and that a consumer
//! takes as a whole and reverses.
//!
//! # What it guarantees
//! A producer that is preempted, at any instruction, delays no other producer and hides nobody's
//! signal.
//!
//! # How it works
//! The head word is a pointer to the youngest item; its low bits say who is to be told of a push,
//! so that a consumer checks for items and asks to be woken in one step.
//!
//! ```text
//!   head: │ youngest item │ SURVEY  OUTSIDE  SLEEPERS │
//!              │ next
//!              ▼
//!            item ─▶ item ─▶ null
//! ```
//!
//! 1. A producer claims the item: in one step it sets `QUEUED` and counts itself in `LINKING` and
//!    `INSIDE`. If the item is queued already, nobody links it and nobody is inside, then a
//!    consumer will look at it later, and the producer is done.
//! 2. It links the item, and learns from the same compare-exchange who is to be told.
//! 3. It says that the item is linked, tells the watchers unless somebody has, and counts itself
//!    out.
//!
//! A producer that is preempted between 1 and 2 would hide what others signal on the *same* source
//! meanwhile: they find the item queued, but it is on no list. They cannot link it instead, as they
//! do not own its link. So, after a short bounded wait, they ask for a *survey*: the next consumer
//! goes through all items of its poll, and looks at those that are being linked, or were linked
//! since it emptied the stack.
//!
//! A producer that is preempted in 3 may not have told the watchers. Then it is still inside, and
//! the next producer that signals the same source tells them.
//!
//! # Why it is right
//! 1. An item is on the stack at most once: it is linked only by the thread that set `QUEUED`, and
//!    `QUEUED` is cleared only by a consumer that took it off (`item.rs`, invariant 1).
//! 2. A watcher's bit stays until a consumer takes the stack. Every producer that pushes until then
//!    makes sure that the watchers are told (`request.rs`), as any one of them may be preempted
//!    before it does.
//! 3. When a signal has returned, the item was on the stack or with the consumers, or `SURVEY` was
//!    in the head word; and those that watched then were told.
//! 4. A producer waits for no other thread, except in one bounded spin.
//!
//! The stack is R. K. Treiber's ("Systems programming: coping with parallelism", 1986). It has no
//! ABA problem, as nothing is popped singly: a producer links its item to the top, and if the top
//! is the item that it saw, it does not matter what happened to that item in between.
//!
//! # What it costs
//! A signal of an idle source: two atomic operations on the item's own line and one on the head,
//! which all producers of the poll share. Of a queued one: a load. A survey costs a pass over all
//! items; it happens when two threads signal one source at once and the first is preempted in a
//! window of some ten instructions.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::item::{INSIDE, Item, LINKING, QUEUED, is_inside, is_linking, is_queued, matters};
use super::list::{List, OUTSIDE, SLEEPERS, Watchers, hand_over};
use super::nesting::HasNesting;
use crate::platform::{AtomicCell, Os, Platform};
use crate::spin_budget::SpinBudget;

/// A producer found an item queued that may not be on the list yet.
const SURVEY: usize = 4;
const WATCHERS: usize = (SLEEPERS | OUTSIDE) as usize;
const FLAGS: usize = SURVEY | WATCHERS;

const _: () = assert!(align_of::<Item<Os>>() > FLAGS);

/// How long a producer waits for another one to link their item, in ns. A longer wait avoids
/// surveys, a shorter one costs less behind a producer that does not run. Estimated, not tuned:
/// linking takes two cache misses, which under contention take less than this.
const LINKING_TAKES: u64 = 500;

/// A list of ready items on which no producer can hold up another, nor a consumer.
///
/// A push takes two atomic operations on the item's own line and one on the list; a signal of an
/// item that is on the list already takes a load.
pub struct ReadyList<P: Platform = Os> {
    head: P::AtomicPtr<()>,
}

/// What a producer found when it entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// The item was not queued: this producer owns it and links it.
    Claimed,
    /// Another producer is linking the item and does not get on.
    Behind,
    /// Another producer has linked the item, and may not have told the watchers.
    Beside,
}

fn watchers(head: *mut ()) -> Watchers {
    (head.addr() & WATCHERS) as Watchers
}

fn item_of(head: *mut ()) -> *mut () {
    head.map_addr(|address| address & !FLAGS)
}

/// Waits until an item is linked, or for as long as that should take.
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

// SAFETY: invariants 1 and 3; `INSIDE` counts a producer in with its claim, or beside it, and out
// by `told`.
unsafe impl<P: HasNesting> List for ReadyList<P> {
    type Platform = P;
    type Entry = Entry;
    const NEW: Self = ReadyList { head: P::AtomicPtr::ZERO };

    #[inline]
    fn enter(item: &Item<P>) -> Option<Entry> {
        let mut has_waited = false;
        // Acquire pairs with the Release in `leave`, so the item is seen on the list: a consumer
        // that learns that this signal has returned finds it there, too.
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
                // An exchange, too: its Acquire orders it after the request of the watchers.
                Entry::Beside => head,
            };
            // Release pairs with the Acquire in `take`. Acquire pairs with the Release in `watch`,
            // so that the producer that is to answer a request knows its number.
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
        // Acquire pairs with the Release in `push` of all producers, since there are only
        // read-modify-writes in between. The watchers are told by those that pushed, or see what is
        // taken here.
        let head = self.head.swap(ptr::null_mut(), Acquire);
        let mut oldest: *mut () = ptr::null_mut();
        let mut link = item_of(head);
        while !link.is_null() {
            // SAFETY: on the stack (invariant 1), and an item lives until it is off its poll's
            // list.
            let item = unsafe { &*link.cast::<Item<P>>() };
            let next = item.next.load(Relaxed);
            item.next.store(oldest, Relaxed);
            (oldest, link) = (link, next);
        }
        // SAFETY: the chain leads through items that were on the stack, which live until `sink` has
        // them.
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
            // Release pairs with the Acquire in `push`, also where it changes no bit.
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
