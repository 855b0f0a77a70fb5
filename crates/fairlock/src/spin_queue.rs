//! The queue of spinners: an MCS queue (Mellor-Crummey and Scott, 1991). Only its front spins on
//! the lock itself; each other member waits on a cache line of its own.
//!
//! Linux lets its spinners leave this queue when they must yield the CPU, which needs nodes that
//! are never freed. Here the nodes live on stacks, so no member leaves from the middle. Instead, a
//! member sleeps after a short spin, and the front stays only for as long as its own budget lasts.
//!
//! A front that leaves wakes the next member if it sleeps. That is worth it while there is a CPU
//! for everybody: the lock is used meanwhile by those that run. With more members than CPUs each
//! such wake-up takes the CPU from one of those. Then a front may *cull* the sleepers behind it,
//! which go on sleeping in a queue of their lock's.
//!
//! Invariants
//! 1. `tail` is the youngest member, or null if there are no members.
//! 2. A member's node lives until its `leave` returns, or it is culled and what happens to it then
//!    is over. `leave` does not return while a successor that has swapped `tail` has yet to link
//!    itself.
//! 3. At most one member is the front; `leave` makes a successor the front.
//! 4. Only the front culls, and only members that sleep. Nobody but the front looks at members
//!    behind it.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, Platform};
use crate::spin_budget::SpinBudget;

/// State of a member: it spins on its own state, behind the front.
const BEHIND: u32 = 0;
/// It is the front, and spins on the lock.
const FRONT: u32 = 1;
/// It sleeps until it is the front, or whatever those want who have culled it.
pub(crate) const ASLEEP: u32 = 2;

pub struct SpinQueue<P: Platform> {
    tail: P::AtomicPtr<Member<P>>,
}

/// One thread in the queue, on its own stack.
pub struct Member<P: Platform> {
    next: P::AtomicPtr<Member<P>>,
    /// Once it is culled, what this says is its lock's to decide.
    pub(crate) state: P::AtomicU32,
    /// About one more than its predecessor's, whose own may not be written yet; wraps.
    position: P::AtomicU32,
}

/// A node of a lock's own queue that can also be a member of this one.
///
/// # Safety
/// It is `repr(C)`, and its first field is the [`Member`].
pub(crate) unsafe trait HasMember<P: Platform>: Sized {}

impl<P: Platform> Member<P> {
    pub(crate) fn new() -> Self {
        Self::in_state(BEHIND)
    }

    /// Of a thread that does not join the queue; what the state says is its lock's to decide.
    pub(crate) fn in_state(state: u32) -> Self {
        Member {
            next: P::AtomicPtr::new(ptr::null_mut()),
            state: P::AtomicU32::new(state),
            position: P::AtomicU32::new(0),
        }
    }
}

/// Members in a row that were culled, from the oldest to the youngest.
pub(crate) struct Culled<P: Platform> {
    first: *const Member<P>,
    last: *const Member<P>,
}

impl<P: Platform> Culled<P> {
    /// Calls `keep` with each, the oldest first.
    ///
    /// # Safety
    /// All members of the queue are in nodes of type `N`. `keep` lets none of their owners return
    /// before this does.
    pub(crate) unsafe fn for_each<N: HasMember<P>>(self, mut keep: impl FnMut(&N)) {
        let mut member = self.first;
        loop {
            // SAFETY: it was culled asleep, and its owner does not return before this does
            // (invariant 2). It is the first field of its node, and the pointer to it was made from
            // one to the whole node.
            let (next, node) = unsafe { ((*member).next.load(Relaxed), &*member.cast::<N>()) };
            keep(node);
            if ptr::eq(member, self.last) {
                return;
            }
            member = next;
        }
    }
}

impl<P: Platform> SpinQueue<P> {
    pub(crate) const NEW: Self = SpinQueue { tail: P::AtomicPtr::ZERO };

    /// Runs `spin` alone, once all earlier members have left. Before it leaves, `node` culls those
    /// that sleep behind it if there are more than `most` behind it. Where it `may_queue` not, it
    /// runs only if nobody else is in the queue: waiting to become the front has no deadline. None
    /// if it was not alone then, or was itself culled; then its state has changed since.
    pub(crate) fn culling<N: HasMember<P>, R>(
        &self,
        node: &N,
        may_queue: bool,
        most: u32,
        cull: impl FnMut(Culled<P>),
        spin: impl FnOnce() -> R,
    ) -> Option<R> {
        let me: *const Member<P> = ptr::from_ref(node).cast();
        let is_front = if may_queue { self.enter(me) } else { self.enter_alone(me) };
        if !is_front {
            return None;
        }
        // Leaves on unwinding, too: nothing in `spin` panics, but a checker's assertions may.
        let _leave = Leave { queue: self, me, most, cull };
        Some(spin())
    }

    fn enter_alone(&self, me: *const Member<P>) -> bool {
        // Release publishes the node to a successor, which pairs with the AcqRel in `enter`.
        self.tail.compare_exchange(ptr::null_mut(), me.cast_mut(), Release, Relaxed).is_ok()
    }

    /// True once `me` is the front, false if it was culled.
    fn enter(&self, me: *const Member<P>) -> bool {
        // AcqRel: Release publishes the node to the successor, Acquire sees the predecessor's.
        let predecessor = self.tail.swap(me.cast_mut(), AcqRel);
        let my_pointer = me.cast_mut();
        // SAFETY: the caller's own, on its stack.
        let me = unsafe { &*me };
        if predecessor.is_null() {
            return true;
        }
        // SAFETY: the predecessor's node is alive: its `leave` waits for the store (invariant 2).
        // Release pairs with the Acquire loads of `next` in `successor`.
        unsafe {
            let position = (*predecessor).position.load(Relaxed).wrapping_add(1);
            me.position.store(position, Relaxed);
            (*predecessor).next.store(my_pointer, Release);
        }
        // A spin that lasts as long as a wake-up never costs more than twice the better choice.
        let mut budget = SpinBudget::new::<P>(P::wake_latency().into(), None);
        loop {
            if me.state.load(Acquire) == FRONT {
                return true;
            }
            if !budget.relax::<P>() {
                break;
            }
        }
        if me.state.compare_exchange(BEHIND, ASLEEP, Acquire, Acquire).is_err() {
            return true;
        }
        loop {
            // Acquire pairs with the swap in `pass_on`, or with what those do who have culled it.
            match me.state.load(Acquire) {
                ASLEEP => P::park(&me.state, ASLEEP, None),
                state => return state == FRONT,
            }
        }
    }

    /// The member behind this one, which is the front or being culled; none if there is none, and
    /// then this one is out.
    fn successor(&self, member: *mut Member<P>) -> Option<*mut Member<P>> {
        // SAFETY: alive, as it is this thread's own or sleeps (invariant 2).
        let link = unsafe { &(*member).next };
        let mut next = link.load(Acquire);
        if next.is_null() {
            // Release pairs with the swap in `enter`.
            if self.tail.compare_exchange(member, ptr::null_mut(), Release, Relaxed).is_ok() {
                return None;
            }
            // A successor is between its swap and its store.
            let mut attempt = 0;
            while next.is_null() {
                P::give_way(attempt);
                attempt += 1;
                next = link.load(Acquire);
            }
        }
        Some(next)
    }

    fn leave(&self, me: *const Member<P>, most: u32, mut cull: impl FnMut(Culled<P>)) {
        let Some(next) = self.successor(me.cast_mut()) else {
            return;
        };
        if !self.has_more_behind(me, most) {
            self.pass_on(next);
        } else if !self.pass_on_awake(next) {
            let mut last = next;
            while let Some(younger) = self.successor(last) {
                if self.pass_on_awake(younger) {
                    break;
                }
                last = younger;
            }
            cull(Culled { first: next, last });
        }
    }

    /// More than `most` are behind this one, which is the front and not the last.
    fn has_more_behind(&self, me: *const Member<P>, most: u32) -> bool {
        let Ok(most) = i32::try_from(most) else {
            return false;
        };
        // Acquire: the node that this points to.
        let youngest = self.tail.load(Acquire);
        // SAFETY: this thread's own, and one that does not leave before it (invariants 2 and 4).
        let [mine, youngest] = unsafe { [&*me, &*youngest] };
        let behind = youngest.position.load(Relaxed).wrapping_sub(mine.position.load(Relaxed));
        behind as i32 > most
    }

    /// Makes this member the front.
    fn pass_on(&self, member: *mut Member<P>) {
        // SAFETY: the member's node is alive, as it waits to become the front (invariant 2). Its
        // frame may be gone right after the swap, so the wake-up uses the address alone.
        unsafe {
            let state = &raw const (*member).state;
            if (*state).swap(FRONT, Release) == ASLEEP {
                P::unpark(state);
            }
        }
    }

    /// The same unless it sleeps.
    fn pass_on_awake(&self, member: *mut Member<P>) -> bool {
        // SAFETY: as in `pass_on`. Acquire: this thread goes on with what a sleeper wrote.
        unsafe { (*member).state.compare_exchange(BEHIND, FRONT, Release, Acquire).is_ok() }
    }
}

struct Leave<'a, P: Platform, C: FnMut(Culled<P>)> {
    queue: &'a SpinQueue<P>,
    me: *const Member<P>,
    most: u32,
    cull: C,
}

impl<P: Platform, C: FnMut(Culled<P>)> Drop for Leave<'_, P, C> {
    fn drop(&mut self) {
        self.queue.leave(self.me, self.most, &mut self.cull);
    }
}
