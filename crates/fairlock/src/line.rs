//! The line: an MCS queue (Mellor-Crummey and Scott, 1991) for threads whose accesses to one word
//! collide. Its front alone goes to the word; each other member waits on a cache line of its own,
//! and sleeps after a while.
//!
//! With many CPUs a word that all of them change costs each change a transfer between CPUs, and the
//! more of them ask for it the longer each takes. One at a time is faster, and one that comes right
//! back, while the next in line still wakes up, is faster still: it has the word in its cache.
//!
//! ```text
//!            OUT ──────────────► BEHIND ──────► ASLEEP          OUT: in no line
//!             ▲                   │  ▲            │  │
//!             │     front leaves  │  │ comes      │  │ its time
//!             ◄────── FRONT ◄─────┴──┼────────────┘  │ is over
//!             │                      │ again         ▼
//!             ◄──── REMOVED ◄────────┴───────────── GONE        REMOVED: by the front, just now
//! ```
//!
//! A member is part of its thread's record and never freed. So a thread may leave the line from
//! anywhere: it marks its member `GONE` and goes on, and the front removes the member when it comes
//! to it. Until then the thread stands in no other line.
//!
//! Invariants
//! 1. `tail` is the number of the youngest member, or 0 if there are no members. Where there are
//!    members, one of them is the front, which is a thread that is in [`at_front`](Line::at_front)
//!    and borrows the line. So a line that nobody borrows is empty.
//! 2. A member's `next` and its place in line change by its own thread while it is `OUT`, by the
//!    member behind it once, and by nobody else. It becomes `OUT` after the last look at its
//!    `next`.
//! 3. `BEHIND`, `ASLEEP` or `GONE` becomes `FRONT` or `REMOVED` by the front alone; everything else
//!    is the owner's to change.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::compiler_fence;

use crate::platform::{AtomicCell, PlainCell, Platform};
use crate::spin_budget::SpinBudget;

/// As a new record's memory is.
pub(crate) const OUT: u32 = 0;
const BEHIND: u32 = 1;
pub(crate) const ASLEEP: u32 = 2;
const FRONT: u32 = 3;
pub(crate) const GONE: u32 = 4;
const REMOVED: u32 = 5;

/// All members there are, by their numbers.
pub(crate) trait Members<P: Platform> {
    /// The member with this number, from 1 on.
    fn member(&self, number: u32) -> &Member<P>;
}

/// Part of a lock.
pub struct Line<P: Platform> {
    /// A member's number, 0 for none.
    tail: P::AtomicU32,
}

/// A thread's place in line; part of its record.
#[repr(C)]
pub struct Member<P: Platform> {
    /// The number of the member behind it, 0 if it is not known yet.
    next: P::AtomicU32,
    state: P::AtomicU32,
    /// The line that it is in, unless it is `OUT`.
    line: P::Cell<*const ()>,
}

// SAFETY: only the member's thread touches the plain cell, and in the child of a `fork` the one
// thread that exists there; everything else is atomic.
unsafe impl<P: Platform> Sync for Member<P> {}

impl<P: Platform> Member<P> {
    pub(crate) const NEW: Self =
        Member { next: P::AtomicU32::ZERO, state: P::AtomicU32::ZERO, line: P::Cell::ZERO };

    /// In the child of a `fork`, where no line has members: the line that this one was in, if any.
    pub(crate) fn forked(&self) -> Option<*const ()> {
        let was_in = self.state.load(Relaxed) != OUT;
        self.state.store(OUT, Relaxed);
        was_in.then(|| self.line.get())
    }
}

#[cfg(test)]
impl<P: Platform> Member<P> {
    pub(crate) fn state(&self) -> u32 {
        self.state.load(Relaxed)
    }
}

impl<P: Platform> Line<P> {
    /// Without a member.
    pub const NEW: Self = Line { tail: P::AtomicU32::ZERO };

    /// Empties it in the child of a `fork`, where its members do not exist.
    pub(crate) fn forked(&self) {
        self.tail.store(0, Relaxed);
    }

    /// Runs `act` alone, once all earlier members have left. None if it is not this thread's turn
    /// by `until`, or if the thread cannot stand in line: it has gone from another one and not been
    /// removed from it yet. This thread has the member `number`.
    pub(crate) fn at_front<R>(
        &self,
        members: &impl Members<P>,
        number: u32,
        until: Option<u64>,
        act: impl FnOnce() -> R,
    ) -> Option<R> {
        if !self.enter(members, number)? && !self.wait(members.member(number), until) {
            return None;
        }
        // Leaves on unwinding, too: nothing in `act` panics, but a checker's assertions may.
        let _leave = Leave { line: self, members, number };
        Some(act())
    }

    /// True if `me` is the front. None if it cannot stand here.
    fn enter(&self, members: &impl Members<P>, number: u32) -> Option<bool> {
        let me = members.member(number);
        let here = ptr::from_ref(self).cast();
        // Acquire pairs with the Release in `leave`: the front has looked at `next` before this
        // changes it.
        match me.state.load(Acquire) {
            OUT => {}
            GONE if me.line.get() == here => {
                let is_back = me.state.compare_exchange(GONE, BEHIND, Relaxed, Relaxed).is_ok();
                return is_back.then_some(false);
            }
            _ => return None,
        }
        me.line.set(here);
        compiler_fence(Release); // Before it enters, as a `fork` may find it anywhere.
        me.next.store(0, Relaxed);
        me.state.store(BEHIND, Relaxed);
        // AcqRel: Release publishes the member to the next, Acquire sees the one before.
        let before = self.tail.swap(number, AcqRel);
        if before == 0 {
            return Some(true);
        }
        // Release pairs with the Acquire in `behind`.
        members.member(before).next.store(number, Release);
        Some(false)
    }

    /// True once `me` is the front, false if it has left by then.
    fn wait(&self, me: &Member<P>, until: Option<u64>) -> bool {
        // A spin that lasts as long as a wake-up never costs more than twice the better choice.
        let mut budget = SpinBudget::new::<P>(P::wake_latency().into(), until);
        while me.state.load(Acquire) != FRONT {
            if !budget.relax::<P>() {
                return self.sleep(me, until);
            }
        }
        true
    }

    fn sleep(&self, me: &Member<P>, until: Option<u64>) -> bool {
        if me.state.compare_exchange(BEHIND, ASLEEP, Relaxed, Acquire).is_err() {
            return true;
        }
        // Acquire pairs with the Release in `leave`.
        while me.state.load(Acquire) == ASLEEP {
            if until.is_some_and(|until| P::now() >= until) {
                return me.state.compare_exchange(ASLEEP, GONE, Relaxed, Acquire).is_err();
            }
            P::park(&me.state, ASLEEP, until);
        }
        true
    }

    /// The number of the member behind this one; 0 if there is none, and then the line is empty.
    fn behind(&self, number: u32, member: &Member<P>) -> u32 {
        let mut next = member.next.load(Acquire);
        if next != 0 {
            return next;
        }
        // Release pairs with the swap in `enter`.
        if self.tail.compare_exchange(number, 0, Release, Relaxed).is_ok() {
            return 0;
        }
        // Somebody is between its swap and its store.
        let mut attempt = 0;
        while next == 0 {
            P::give_way(attempt);
            attempt += 1;
            next = member.next.load(Acquire);
        }
        next
    }

    /// The front leaves: removes those behind it that are gone, and makes the first that is not the
    /// front.
    fn leave(&self, members: &impl Members<P>, number: u32) {
        let me = members.member(number);
        let mut next = self.behind(number, me);
        me.state.store(OUT, Relaxed);
        while next != 0 {
            let member = members.member(next);
            let found = member.state.load(Relaxed);
            let becomes = if found == GONE { REMOVED } else { FRONT };
            // Release: what this front did comes before what the next one does. Fails if the member
            // has fallen asleep, gone or come again meanwhile.
            if member.state.compare_exchange(found, becomes, Release, Relaxed).is_err() {
                continue;
            }
            if becomes == FRONT {
                if found == ASLEEP {
                    P::unpark(&member.state);
                }
                return;
            }
            next = self.behind(next, member);
            // Release: see `enter`.
            member.state.store(OUT, Release);
        }
    }
}

struct Leave<'a, P: Platform, M: Members<P>> {
    line: &'a Line<P>,
    members: &'a M,
    number: u32,
}

impl<P: Platform, M: Members<P>> Drop for Leave<'_, P, M> {
    fn drop(&mut self) {
        self.line.leave(self.members, self.number);
    }
}
