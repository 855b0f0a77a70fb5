//! Group commit: what many threads submit while one write is under way goes into the next.
//!
//! ```text
//!   submit ──► open batch ──────► batch being written ──────► written, or failed
//!          full?         a leader takes it          and settles it
//! ```
//!
//! There are two batches, which take turns. One is open. Who waits for it, or finds it full, leads if nobody
//! does: takes it, opens the other, writes what it took without holding the lock, and settles it. Others
//! sleep in one of three queues (`waiters.rs`), for the batch that is written, for the one that is open, or
//! for room in that.
//!
//! 1. Who settles a batch tells all that wait for it, after it has called one to lead next, if somebody waits
//!    for what is open now. Nobody else is woken.
//! 2. Who was called competes with whoever comes: the device need not be idle for as long as a wake-up
//!    takes. Whoever leads writes what the called one waits for.
//! 3. Room is offered to one at a time, the oldest. If it fits, it invites the next; else it is the oldest
//!    again. Others do not wait for it as long as there is room, so that submitters of small things never
//!    line up to wake each other for each of them.
//! 4. A batch that is opened while somebody wants room is reserved: the oldest adds to it before
//!    anybody else does. It fits, because an empty batch takes anything.
//! 5. Who finds the open batch full and nobody leading, and nobody who wants room already, leads, and adds to
//!    the next batch before it writes.
//!
//! Who waits for whom, beside the time that a thread which was woken takes to run:
//! * [`Group::wait`]: for the write under way, and for that of its own batch; it may be the one that writes.
//! * [`Group::flush`]: as `wait` for what was submitted last.
//! * [`Group::submit`]: for nobody, while there is room that is not reserved. Else for the write under way,
//!   or for one that it does itself; and for one more batch for each that wanted room before it.
//!
//! Who is told that something failed: whoever waits for it, as often as it asks. A submission of which nobody was
//! told so far is kept in mind (`untold.rs`), whatever is written later, until it is waited for or
//! [`Group::flush_and_tell`] tells of it. [`Group::flush`] tells nobody.
//!
//! A panic while a batch is written, or added to, breaks the group: nobody knows what there is. Whoever waits
//! then, or comes later, panics, too, instead of sleeping for ever; what was settled before stays so.
//!
//! Invariants
//! 1. At most one thread leads, so batches are written one at a time, in order.
//! 2. A batch is settled once, after the call that wrote it has returned, and all before it are settled.
//! 3. If one fails, so does all that was submitted since, and the next batch takes its place: whatever is
//!    acknowledged has no gap before it.
//! 4. While somebody waits for the open batch, somebody leads, or is on the way to do so: it was called, or
//!    is about to be by whoever settled last.
//! 5. While somebody wants room, somebody leads, or is on the way to, or one is invited. Who is invited leads
//!    if it finds no room and nobody leading.
//! 6. While a batch is reserved it is empty, and the one that it is for is on the way.
//! 7. Submissions are numbered in the order of their batches. Those below `settled` are in batches that are settled,
//!    those from `opened_at` on are in the open batch, those between in the one that is being written.
//! 8. A submission that has failed is told of: by `wait` to who asks for it, or by `flush_and_tell` to one that
//!    began after it was submitted, unless somebody knew of it before.

#[cfg(test)]
mod checked;
#[cfg(test)]
mod explored;
#[cfg(test)]
mod threads;
mod untold;
mod waiters;

use std::mem;

use fairlock::platform::{Os, Platform};
use fairlock::{Mutex, MutexGuard};

use self::untold::Untold;
use self::waiters::{News, Queue, Taken, Waiter};

/// What is gathered and written at once. An empty one takes anything that is added to it.
pub(crate) trait Gather {
    /// What a group of these does wrong: the tests have to notice.
    const FLAW: Option<Flaw> = None;

    /// Empties it, to be what follows `previous`.
    fn begin_after(&mut self, previous: &Self);
    /// Empties it, to take the place of one that could not be written.
    fn begin_instead_of(&mut self, failed: &Self);
}

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Who settles a batch calls nobody to lead.
    CallsNobody,
    /// Who opens a batch, or adds to one, invites nobody.
    InvitesNobody,
    /// No batch is reserved.
    ReservesNothing,
    /// A batch counts as written when its writing begins.
    SettlesEarly,
    /// Who waits for the open batch writes it beside the leader.
    LeadsBeside,
    /// What was submitted after a batch that failed is kept.
    Forgives,
    /// Failures are forgotten when a batch is written.
    Forgets,
}

/// The number of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// What threads submit, written in batches by those that wait; see the module.
///
/// Takes no memory but for its two batches, for each failure that follows a success, and, bounded, for the failures
/// that nobody was told of.
pub(crate) struct Group<B, E, P: Platform = Os> {
    state: Mutex<State<B, E, P>, P>,
}

type Locked<'a, B, E, P> = MutexGuard<'a, State<B, E, P>, P>;

struct State<B, E, P: Platform> {
    open: B,
    /// None while it is being written: somebody leads.
    other: Option<B>,
    /// Of the next submission.
    number: u64,
    /// Of the first submission to the open batch.
    opened_at: u64,
    /// All submissions below are written, or have failed.
    settled: u64,
    untold: Untold<E>,
    /// Oldest first.
    failures: Vec<Failures<E>>,
    broken: bool,
    /// Who waits for the batch that is being written.
    for_written: Queue<P>,
    /// Who waits for the open batch.
    for_open: Queue<P>,
    /// Who wants room, but for the one that is invited.
    for_room: Queue<P>,
    invited: Invited,
}

/// Whether the oldest who wanted room is on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Invited {
    Nobody,
    /// It is, and others may come first.
    One,
    /// It is, and nobody adds to the open batch before it.
    OneFirst,
}

/// Submissions that failed one after the other, and why the last of them did.
#[derive(Clone)]
struct Failures<E> {
    first: u64,
    end: u64,
    error: E,
}

impl<E> Failures<E> {
    fn is_empty(&self) -> bool {
        self.first == self.end
    }
}

impl<B: Gather, E: Clone, P: Platform> Group<B, E, P> {
    /// `open` and `other` take turns.
    pub(crate) fn new(open: B, other: B) -> Self {
        let state = State {
            open,
            other: Some(other),
            number: 0,
            opened_at: 0,
            settled: 0,
            untold: Untold::NONE,
            failures: Vec::new(),
            broken: false,
            for_written: Queue::EMPTY,
            for_open: Queue::EMPTY,
            for_room: Queue::EMPTY,
            invited: Invited::Nobody,
        };
        Group { state: Mutex::new_in(state) }
    }

    /// Adds to the open batch. If it is full, `add` says so with none, and this waits for room, or writes
    /// the batch: if that fails, so has what was added to the next.
    pub(crate) fn submit<R>(
        &self,
        mut add: impl FnMut(&mut B) -> Option<R>,
        write: impl Fn(&mut B) -> Result<(), E>,
    ) -> (R, Ticket) {
        self.or_break(|| {
            let mut state = self.state.lock();
            let mut invited = false;
            loop {
                state.assert_whole();
                if invited || state.invited != Invited::OneFirst {
                    if let Some(added) = add(&mut state.open) {
                        let submitted = (added, state.next_ticket());
                        let next = if invited { state.invite() } else { None };
                        Self::release(state, next);
                        return submitted;
                    }
                }
                if invited {
                    state.invited = Invited::Nobody;
                }
                if (invited || !state.is_room_wanted()) && !state.is_led() {
                    let batch = state.open_next();
                    let added = add(&mut state.open).expect("an empty batch takes anything");
                    let submitted = (added, state.next_ticket());
                    let next = state.invite();
                    Self::release(state, next);
                    // Whoever waits for it is told.
                    let _ = self.write_and_settle(batch, &write);
                    return submitted;
                }
                let push = if invited { Queue::push_front } else { Queue::push };
                Self::sleep(state, |state| &mut state.for_room, push);
                invited = true;
                state = self.state.lock();
            }
        })
    }

    /// Until a submission is written, or has failed. Whoever asks again gets the same answer; of failures one after the
    /// other, the last says why.
    pub(crate) fn wait(
        &self,
        ticket: Ticket,
        write: impl Fn(&mut B) -> Result<(), E>,
    ) -> Result<(), E> {
        let outcome = self.until_settled(ticket, write);
        if outcome.is_err() {
            self.state.lock().untold.tell(ticket.0);
        }
        outcome
    }

    fn until_settled(
        &self,
        ticket: Ticket,
        write: impl Fn(&mut B) -> Result<(), E>,
    ) -> Result<(), E> {
        self.or_break(|| {
            let mut state = self.state.lock();
            loop {
                if let Some(outcome) = state.outcome(ticket) {
                    return outcome;
                }
                state.assert_whole();
                if !state.is_led() {
                    break;
                }
                if B::FLAW == Some(Flaw::LeadsBeside) && ticket.0 >= state.opened_at {
                    return write(&mut state.open);
                }
                let news = Self::sleep(state, |state| state.waiting_for(ticket), Queue::push);
                if news == News::Written {
                    return Ok(());
                }
                state = self.state.lock();
            }
            debug_assert!(ticket.0 >= state.opened_at, "all others are settled");
            let batch = state.open_next();
            let first = state.reserve();
            Self::release(state, first);
            self.write_and_settle(batch, &write)
        })
    }

    /// Until all that was submitted before is written, or has failed. Nobody is told of what has failed.
    pub(crate) fn flush(&self, write: impl Fn(&mut B) -> Result<(), E>) {
        let state = self.state.lock();
        let last = state.last_unsettled();
        drop(state);
        if let Some(last) = last {
            let _ = self.until_settled(last, write);
        }
    }

    /// As [`flush`](Self::flush), for who has to know whether something has failed that was submitted before: it is
    /// told of what fails meanwhile, or else of what nobody was told of when it began, and nobody is told of this
    /// again but who waits for it. Of all that, the last says why.
    pub(crate) fn flush_and_tell(&self, write: impl Fn(&mut B) -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state.lock();
        let end = state.number;
        let untold = state.untold.tell_below(end);
        let last = state.last_unsettled();
        drop(state);
        if let Some(last) = last {
            if let Err(error) = self.until_settled(last, write) {
                self.state.lock().untold.tell_below(end);
                return Err(error);
            }
        }
        untold.map_or(Ok(()), Err)
    }

    /// Somebody panicked while a batch was written or added to: to wait or submit would panic.
    pub(crate) fn is_broken(&self) -> bool {
        self.state.lock().broken
    }

    /// The leader's part without the lock. It has opened the next batch.
    fn write_and_settle(
        &self,
        mut batch: B,
        write: &impl Fn(&mut B) -> Result<(), E>,
    ) -> Result<(), E> {
        if B::FLAW == Some(Flaw::SettlesEarly) {
            let mut state = self.state.lock();
            state.settled = state.opened_at;
        }
        let written = write(&mut batch);
        let mut state = self.state.lock();
        let (next, settled) = state.settle(batch, &written);
        // First, so that the device is soon busy again.
        Self::release(state, next);
        settled.tell(if written.is_ok() { News::Written } else { News::Look });
        written
    }

    /// Unlocks, and wakes who was called or invited.
    fn release(state: Locked<'_, B, E, P>, woken: Option<Taken<P>>) {
        drop(state);
        if let Some(woken) = woken {
            woken.tell(News::Look);
        }
    }

    /// Sleeps on a queue until told something.
    fn sleep(
        mut state: Locked<'_, B, E, P>,
        queue: impl FnOnce(&mut State<B, E, P>) -> &mut Queue<P>,
        push: unsafe fn(&mut Queue<P>, &Waiter<P>),
    ) -> News {
        let waiter = Waiter::new();
        // SAFETY: it stays here until it has been told something, since that is when it stops sleeping.
        unsafe { push(queue(&mut state), &waiter) };
        drop(state);
        waiter.sleep()
    }

    /// Does something, and breaks the group if that panics. Not with its lock held.
    fn or_break<R>(&self, act: impl FnOnce() -> R) -> R {
        let unwinding = Unwinding(self);
        let result = act();
        mem::forget(unwinding);
        result
    }
}

/// Breaks the group when it is dropped.
struct Unwinding<'a, B: Gather, E: Clone, P: Platform>(&'a Group<B, E, P>);

impl<B: Gather, E: Clone, P: Platform> Drop for Unwinding<'_, B, E, P> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.broken = true;
        let mut all = state.for_written.take();
        all.append(state.for_open.take());
        all.append(state.for_room.take());
        drop(state);
        all.tell(News::Look);
    }
}

impl<B: Gather, E: Clone, P: Platform> State<B, E, P> {
    fn is_led(&self) -> bool {
        self.other.is_none()
    }

    fn is_room_wanted(&self) -> bool {
        self.invited != Invited::Nobody || !self.for_room.is_empty()
    }

    /// Those who wait for a batch that is not settled.
    fn waiting_for(&mut self, ticket: Ticket) -> &mut Queue<P> {
        if ticket.0 >= self.opened_at { &mut self.for_open } else { &mut self.for_written }
    }

    fn assert_whole(&self) {
        assert!(!self.broken, "a thread panicked while it wrote, or added to, what this waits for");
    }

    /// Of what was just added to the open batch.
    fn next_ticket(&mut self) -> Ticket {
        self.number += 1;
        Ticket(self.number - 1)
    }

    /// The last submission, unless all are settled.
    fn last_unsettled(&self) -> Option<Ticket> {
        (self.settled < self.number).then(|| Ticket(self.number - 1))
    }

    /// None while the submission is neither written nor has failed.
    fn outcome(&self, ticket: Ticket) -> Option<Result<(), E>> {
        if ticket.0 >= self.settled {
            return None;
        }
        let at = self.failures.partition_point(|it| it.end <= ticket.0);
        let failed = self.failures.get(at).filter(|it| it.first <= ticket.0);
        Some(failed.map_or(Ok(()), |failures| Err(failures.error.clone())))
    }

    /// Takes the open batch, to be written by the caller, and opens the other.
    fn open_next(&mut self) -> B {
        let mut next = self.other.take().expect("nobody leads");
        next.begin_after(&self.open);
        self.opened_at = self.number;
        debug_assert!(self.for_written.is_empty(), "those of the last were told");
        self.for_written = self.for_open.take();
        mem::replace(&mut self.open, next)
    }

    /// Who has wanted room for longest, and is not on the way, shall look for it.
    fn invite(&mut self) -> Option<Taken<P>> {
        if B::FLAW == Some(Flaw::InvitesNobody) {
            return None;
        }
        let oldest = self.for_room.pop();
        self.invited = if oldest.is_some() { Invited::One } else { Invited::Nobody };
        oldest
    }

    /// The open batch is empty, and is for who has wanted room for longest.
    fn reserve(&mut self) -> Option<Taken<P>> {
        let invited = if self.invited == Invited::Nobody { self.invite() } else { None };
        if self.invited != Invited::Nobody && B::FLAW != Some(Flaw::ReservesNothing) {
            self.invited = Invited::OneFirst;
        }
        invited
    }

    /// The batch before the open one was written, or could not be. Returns who is to go on next, and those
    /// for whom all is over.
    fn settle(&mut self, batch: B, written: &Result<(), E>) -> (Option<Taken<P>>, Queue<P>) {
        let mut settled = self.for_written.take();
        let next = match written {
            Ok(()) => {
                self.settled = self.opened_at;
                if B::FLAW == Some(Flaw::Forgets) {
                    self.untold = Untold::NONE;
                }
                self.call()
            }
            Err(_) if B::FLAW == Some(Flaw::Forgives) => {
                self.settled = self.opened_at;
                self.call()
            }
            Err(error) => {
                self.fail(&batch, error.clone());
                settled.append(self.for_open.take());
                self.reserve()
            }
        };
        self.other = Some(batch);
        (next, settled)
    }

    /// Who is to lead, if somebody waits for what is open.
    fn call(&mut self) -> Option<Taken<P>> {
        if B::FLAW == Some(Flaw::CallsNobody) {
            return None;
        }
        match self.for_open.pop() {
            None if self.invited == Invited::Nobody => self.invite(),
            called => called,
        }
    }

    /// The batch before the open one has failed: so has the open one.
    fn fail(&mut self, batch: &B, error: E) {
        let failures = Failures { first: self.settled, end: self.number, error };
        self.settled = self.number;
        self.opened_at = self.number;
        self.open.begin_instead_of(batch);
        self.untold.add(failures.clone());
        match self.failures.last_mut() {
            Some(last) if last.end == failures.first => {
                last.end = failures.end;
                last.error = failures.error;
            }
            _ => self.failures.push(failures),
        }
    }
}

/// The protocol step by step: the nodes stand in for sleeping threads.
#[cfg(test)]
mod tests {
    use std::array;

    use super::checked::{Nothing, Numbers};
    use super::*;

    type Batch = Numbers<Nothing>;
    const LOOK: Option<News> = Some(News::Look);
    const WRITTEN: Option<News> = Some(News::Written);

    /// A state in which the first batch is written and the second is open, each with one number and full;
    /// two wait for each, and two for room.
    fn busy(waiters: &[Waiter<Os>; 6]) -> (State<Batch, (), Os>, Batch) {
        let mut state =
            Group::<Batch, ()>::new(Numbers::new(1), Numbers::new(1)).state.into_inner();
        state.open.add(0).expect("it is empty");
        state.next_ticket();
        let batch = state.open_next();
        state.open.add(1).expect("it is empty");
        state.next_ticket();
        let [first, second, third, fourth, fifth, sixth] = waiters;
        // SAFETY: the waiters outlive the state.
        unsafe {
            state.for_written.push(first);
            state.for_written.push(second);
            state.for_open.push(third);
            state.for_open.push(fourth);
            state.for_room.push(fifth);
            state.for_room.push(sixth);
        }
        (state, batch)
    }

    fn tell(woken: Option<Taken<Os>>) {
        woken.expect("somebody is woken").tell(News::Look);
    }

    fn news(waiters: &[Waiter<Os>; 6]) -> [Option<News>; 6] {
        waiters.each_ref().map(Waiter::news)
    }

    #[test]
    fn who_settles_a_batch_wakes_those_of_the_batch_and_one_to_lead() {
        let waiters = array::from_fn(|_| Waiter::new());
        let (mut state, batch) = busy(&waiters);
        let (next, settled) = state.settle(batch, &Ok(()));
        tell(next);
        settled.tell(News::Written);
        assert_eq!(news(&waiters), [WRITTEN, WRITTEN, LOOK, None, None, None]);
        assert_eq!(state.outcome(Ticket(0)), Some(Ok(())));
        assert_eq!(state.outcome(Ticket(1)), None);
    }

    #[test]
    fn who_opens_a_batch_reserves_it_for_the_oldest_who_wants_room() {
        let waiters = array::from_fn(|_| Waiter::new());
        let (mut state, batch) = busy(&waiters);
        let (next, settled) = state.settle(batch, &Ok(()));
        tell(next);
        settled.tell(News::Written);
        let batch = state.open_next();
        tell(state.reserve());
        assert_eq!(news(&waiters), [WRITTEN, WRITTEN, LOOK, None, LOOK, None]);
        assert_eq!(state.invited, Invited::OneFirst);
        let (next, settled) = state.settle(batch, &Ok(()));
        assert!(next.is_none(), "nobody waits for what is open, and who is invited is on the way");
        settled.tell(News::Written);
        assert_eq!(news(&waiters), [WRITTEN, WRITTEN, LOOK, WRITTEN, LOOK, None]);
        // The one that was invited has come, and has added something.
        tell(state.invite());
        assert_eq!(news(&waiters)[5], LOOK);
        assert_eq!(state.invited, Invited::One);
    }

    #[test]
    fn a_failure_wakes_those_of_both_batches_and_the_oldest_who_wants_room() {
        let waiters = array::from_fn(|_| Waiter::new());
        let (mut state, batch) = busy(&waiters);
        let (next, settled) = state.settle(batch, &Err(()));
        tell(next);
        settled.tell(News::Look);
        assert_eq!(news(&waiters), [LOOK, LOOK, LOOK, LOOK, LOOK, None]);
        assert_eq!(state.invited, Invited::OneFirst);
        assert!(state.open.is_empty());
        for ticket in [0, 1] {
            assert_eq!(state.outcome(Ticket(ticket)), Some(Err(())));
        }
        assert_eq!(state.outcome(Ticket(2)), None);
    }
}
