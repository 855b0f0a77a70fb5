//! Threads that stand in a line, and go to something that is theirs while they are the front: the protocol alone, without a lock
//! around it, for each checker.

use fairlock::platform::Platform;
use fairlock_check::scenario::Number;

use crate::line::{Line, Member, Members};

/// A line, its members, and what only the front uses.
pub(crate) struct State<P: Platform, N> {
    line: Line<P>,
    members: Vec<Member<P>>,
    pub(crate) data: N,
}

// SAFETY: members are made to be shared, and the data is what tests watch.
unsafe impl<P: Platform, N> Send for State<P, N> {}
// SAFETY: the same.
unsafe impl<P: Platform, N> Sync for State<P, N> {}

struct All<'a, P: Platform>(&'a [Member<P>]);

impl<P: Platform> Members<P> for All<'_, P> {
    fn member(&self, number: u32) -> &Member<P> {
        &self.0[number as usize - 1]
    }
}

impl<P: Platform, N: Number> State<P, N> {
    pub(crate) fn new(threads: usize) -> Self {
        let members = (0..threads).map(|_| Member::NEW).collect();
        State { line: Line::NEW, members, data: N::zero() }
    }

    /// True if it was the front, by then.
    pub(crate) fn add(&self, thread: usize, until: Option<u64>) -> bool {
        let members = All(&self.members);
        self.line.at_front(&members, thread as u32 + 1, until, || self.data.add()).is_some()
    }

    /// Stands in line until it has been the front.
    pub(crate) fn add_once(&self, thread: usize) {
        assert!(self.add(thread, None), "it has all the time there is");
    }

    /// Gives up, comes again and, where it was removed meanwhile, has a new place.
    pub(crate) fn give_up_and_come_again(&self, thread: usize) {
        let was_front = self.add(thread, Some(P::now()));
        if !was_front {
            // It is being removed, or has its old place again, or a new one.
            while !self.add(thread, None) {
                P::give_way(0);
            }
        }
    }
}
