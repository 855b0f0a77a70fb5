//! What will happen, and when: a queue of events ordered by time, then by when they were entered.
//!
//! Most events are due within nanoseconds, and each step of a run enters one and takes one. So the near future is
//! a wheel of short slots, each with a list of what is due in it; only what is due later is kept in a heap. An event
//! that is in the heap stays there until it happens.
//!
//! ```text
//!   now ──► slot: [ event ► event ] slot: [ ] slot: [ event ] …       later ──► heap
//! ```
//!
//! Invariants
//! 1. The wheel's events are due from now until [`SLOTS`] slots later; so a slot's are all of one turn of the wheel.
//! 2. A slot's list is ordered by time, then by when its events were entered.
//! 3. Of two events that are due at one moment, one in the heap was entered before one in the wheel: once a moment
//!    is near, it remains so until it has come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Ps;
use super::lines::LineId;

/// Something due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A thread's operation takes effect, its computation or its watch ends. Void if the thread
    /// has begun something else since (the number tells).
    Step(u32, u32),
    /// The deadline of a sleep or a watch; void in the same way.
    Deadline(u32, u32),
    /// A thread gets the CPU that was set aside for it.
    Start(u32),
    /// A CPU looks whether the running thread has used up its time; void if another look was
    /// planned since.
    Slice(u32, u32),
    /// A line chooses whom to serve next.
    LineFree(LineId),
    /// The disk has finished a request.
    DeviceDone(u32),
}

/// How long a slot is, in ps as a power of two: on a machine with hundreds of CPUs, some ten events are due in it.
const SLOT_SHIFT: u32 = 8;
/// Slots of the wheel, 262 ns in all: operations and most computations between them are shorter.
const SLOTS: usize = 1024;
/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Ps,
    order: u64,
    event: Event,
}

/// An event in the wheel, or a free entry.
#[derive(Debug)]
struct Entry {
    at: Ps,
    event: Event,
    /// The one after it in its slot's list, or the next free entry.
    next: u32,
}

/// The future.
#[derive(Debug)]
pub(super) struct Events {
    /// When the next one is due; the end of time if there is none.
    next_at: Ps,
    /// The same of those in the heap.
    heap_at: Ps,
    /// When the last one was, before which nothing is entered.
    now: Ps,
    /// The first entry of each slot's list.
    slots: [u32; SLOTS],
    /// A bit for each slot that has a list.
    filled: [u64; SLOTS / 64],
    /// How many events are in the wheel.
    near: usize,
    entries: Vec<Entry>,
    free: u32,
    heap: BinaryHeap<Reverse<Due>>,
    /// Events that were entered into the heap.
    entered: u64,
}

impl Default for Events {
    fn default() -> Events {
        Events {
            next_at: Ps::MAX,
            heap_at: Ps::MAX,
            now: 0,
            slots: [NONE; SLOTS],
            filled: [0; SLOTS / 64],
            near: 0,
            entries: Vec::new(),
            free: NONE,
            heap: BinaryHeap::new(),
            entered: 0,
        }
    }
}

/// Which slot a moment is in.
fn slot_of(at: Ps) -> usize {
    (at >> SLOT_SHIFT) as usize % SLOTS
}

impl Events {
    /// Enters an event, which is due when the last one was or later.
    #[inline(always)]
    pub(super) fn at(&mut self, at: Ps, event: Event) {
        self.next_at = self.next_at.min(at);
        if (at >> SLOT_SHIFT) - (self.now >> SLOT_SHIFT) < SLOTS as u64 {
            self.enter_near(at, event);
        } else {
            self.heap_at = self.heap_at.min(at);
            self.entered += 1;
            self.heap.push(Reverse(Due { at, order: self.entered, event }));
        }
    }

    /// Inlined, as all of an event would have to be in memory before its parts could be passed on.
    #[inline(always)]
    fn enter_near(&mut self, at: Ps, event: Event) {
        let slot = slot_of(at);
        let entry = self.free_entry();
        // Behind those that are due no later (invariant 2).
        let (mut before, mut next) = (NONE, self.slots[slot]);
        while next != NONE && self.entries[next as usize].at <= at {
            (before, next) = (next, self.entries[next as usize].next);
        }
        match before {
            NONE => self.slots[slot] = entry,
            before => self.entries[before as usize].next = entry,
        }
        self.entries[entry as usize] = Entry { at, event, next };
        self.filled[slot / 64] |= 1 << (slot % 64);
        self.near += 1;
    }

    fn free_entry(&mut self) -> u32 {
        if self.free == NONE {
            self.free = self.entries.len() as u32;
            self.entries.push(Entry { at: 0, event: Event::Start(0), next: NONE });
        }
        let next = self.entries[self.free as usize].next;
        std::mem::replace(&mut self.free, next)
    }

    /// When the next one is due; the end of time if there is none.
    #[inline]
    pub(super) fn next_at(&self) -> Ps {
        self.next_at
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<(Ps, Event)> {
        let at = self.next_at;
        // Invariant 3. A thread may want to sleep until the end of time.
        let event = if self.heap_at == at {
            let Reverse(due) = self.heap.pop()?;
            self.heap_at = self.heap.peek().map_or(Ps::MAX, |Reverse(due)| due.at);
            due.event
        } else {
            self.take_first(slot_of(at))
        };
        self.now = at;
        self.next_at = self.heap_at.min(self.near_at());
        Some((at, event))
    }

    /// Takes the first of a slot's list.
    fn take_first(&mut self, slot: usize) -> Event {
        let first = self.slots[slot];
        let entry = &mut self.entries[first as usize];
        let next = std::mem::replace(&mut entry.next, self.free);
        self.free = first;
        self.slots[slot] = next;
        self.filled[slot / 64] ^= u64::from(next == NONE) << (slot % 64);
        self.near -= 1;
        entry.event
    }

    /// When the next one in the wheel is due.
    fn near_at(&self) -> Ps {
        if self.near == 0 {
            return Ps::MAX;
        }
        let now = slot_of(self.now);
        let mut word = now / 64;
        // What the next turn has in now's word comes last.
        let mut filled = self.filled[word] & (!0 << (now % 64));
        while filled == 0 {
            word = (word + 1) % self.filled.len();
            filled = self.filled[word];
        }
        let slot = word * 64 + filled.trailing_zeros() as usize;
        self.entries[self.slots[slot] as usize].at
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    #[test]
    fn events_of_one_moment_happen_in_the_order_they_were_entered() {
        let mut events = Events::default();
        for (at, thread) in [(5, 3), (5, 1), (2, 9), (5, 2)] {
            events.at(at, Event::Start(thread));
        }
        let order: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        let start = |at, thread| (at, Event::Start(thread));
        assert_eq!(order, [start(2, 9), start(5, 3), start(5, 1), start(5, 2)]);
    }

    /// Entered while others happen, near and far and often for one moment.
    #[test]
    fn events_happen_in_the_order_of_a_sorted_list() {
        let mut random = Random::new(1);
        let (mut events, mut sorted) = (Events::default(), std::collections::BTreeMap::new());
        let (mut now, mut entered) = (1_000_000, 0);
        for round in 0..200_000 {
            let most = if round / 1000 % 3 == 0 { 5 } else { 80 };
            while sorted.len() < most {
                let reach = [1, 100, 4_000, 300_000, 5_000_000][random.below(5) as usize];
                let at = now + random.below(reach);
                entered += 1;
                events.at(at, Event::Start(entered));
                sorted.insert((at, entered), ());
            }
            let ((at, number), ()) = sorted.pop_first().unwrap();
            assert_eq!(events.next_at(), at);
            assert_eq!(events.pop(), Some((at, Event::Start(number))));
            now = at;
        }
        while let Some(((at, number), ())) = sorted.pop_first() {
            assert_eq!(events.pop(), Some((at, Event::Start(number))));
        }
        assert_eq!(events.pop(), None);
    }
}
