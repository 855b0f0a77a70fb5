//! What will happen, and when: a queue of events ordered by time, then by when they were entered.

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

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Ps,
    order: u64,
    event: Event,
}

/// The future.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Due>>,
    entered: u64,
}

impl Events {
    pub(super) fn at(&mut self, at: Ps, event: Event) {
        self.entered += 1;
        self.heap.push(Reverse(Due { at, order: self.entered, event }));
    }

    /// When the next one is due.
    #[inline]
    pub(super) fn next_at(&self) -> Option<Ps> {
        self.heap.peek().map(|Reverse(due)| due.at)
    }

    pub(super) fn pop(&mut self) -> Option<(Ps, Event)> {
        self.heap.pop().map(|Reverse(due)| (due.at, due.event))
    }
}

#[cfg(test)]
mod tests {
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
}
