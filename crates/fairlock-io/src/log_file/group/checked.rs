//! A group whose batches are numbers and whose device is memory, and what must hold for it on any platform:
//! every check of `explored.rs` and `threads.rs`.
//!
//! Every number is submitted once. The device holds those that are committed, in order; it notices two that
//! write at once and a gap before a batch, and fails the writes that it is told to.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use fairlock::platform::{AtomicCell, AtomicInt, Os, Platform};

use super::{Flaw, Gather, Group, Ticket};

/// A batch.
pub(super) struct Numbers<M = Nothing> {
    /// Of the first, on the device.
    place: usize,
    numbers: Vec<u32>,
    most: usize,
    mistake: PhantomData<fn() -> M>,
}

/// What a group does wrong.
pub(super) trait Mistake: 'static {
    const FLAW: Option<Flaw>;
}

macro_rules! mistakes {
    ($($name:ident: $flaw:expr;)*) => {$(
        pub(super) struct $name;
        impl Mistake for $name {
            const FLAW: Option<Flaw> = $flaw;
        }
    )*};
}

mistakes! {
    Nothing: None;
    CallsNobody: Some(Flaw::CallsNobody);
    InvitesNobody: Some(Flaw::InvitesNobody);
    ReservesNothing: Some(Flaw::ReservesNothing);
    SettlesEarly: Some(Flaw::SettlesEarly);
    LeadsBeside: Some(Flaw::LeadsBeside);
    Forgives: Some(Flaw::Forgives);
    Forgets: Some(Flaw::Forgets);
}

impl<M: Mistake> Numbers<M> {
    pub(super) fn new(most: usize) -> Self {
        Numbers { place: 0, numbers: Vec::new(), most, mistake: PhantomData }
    }

    fn begin(&mut self, place: usize) {
        self.place = place;
        self.numbers.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Where the number will be.
    pub(super) fn add(&mut self, number: u32) -> Option<usize> {
        if self.numbers.len() == self.most {
            return None;
        }
        self.numbers.push(number);
        Some(self.place + self.numbers.len() - 1)
    }
}

impl<M: Mistake> Gather for Numbers<M> {
    const FLAW: Option<Flaw> = M::FLAW;

    fn begin_after(&mut self, previous: &Self) {
        self.begin(previous.place + previous.numbers.len());
    }

    fn begin_instead_of(&mut self, failed: &Self) {
        self.begin(failed.place);
    }
}

/// Which write failed, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused(pub(super) u32);

/// Whether a write fails, by its count.
pub(super) type Refuses = fn(u32) -> bool;

/// What batches are written to.
struct Device<P: Platform> {
    refuses: Refuses,
    /// Somebody writes.
    busy: P::AtomicU32,
    writes: P::AtomicU32,
    committed: P::AtomicU32,
    contents: Mutex<Vec<u32>>,
}

impl<P: Platform> Device<P> {
    fn write<M: Mistake>(&self, batch: &Numbers<M>) -> Result<(), Refused> {
        assert_eq!(self.busy.swap(1, AcqRel), 0, "two write at once");
        assert!(!batch.is_empty(), "a batch without anything in it is written");
        let count = self.writes.fetch_add(1, Relaxed);
        let written = if (self.refuses)(count) { Err(Refused(count)) } else { Ok(()) };
        if written.is_ok() {
            let mut contents = self.contents.lock().expect("nobody panics with it");
            let end = contents.len();
            let numbers = batch.numbers.iter();
            contents.extend(numbers);
            let length = contents.len();
            drop(contents);
            assert_eq!(batch.place, end, "a gap, or something overwritten");
            self.committed.store(length as u32, Release);
        }
        assert_eq!(self.busy.swap(0, AcqRel), 1, "two wrote at once");
        written
    }
}

/// Something that was submitted.
#[derive(Clone, Copy)]
pub(super) struct Submitted {
    number: u32,
    place: usize,
    ticket: Ticket,
    /// Flushes that had told of a failure before.
    told_before: u32,
}

/// A group and its device.
pub(super) struct Checked<P: Platform = Os, M = Nothing> {
    group: Group<Numbers<M>, Refused, P>,
    device: Device<P>,
    /// How many batches others may fill before somebody who finds the open one full adds to the next: that
    /// one, and one for each that wanted room before.
    patience: usize,
    /// Submitted and not waited for.
    left: Mutex<Vec<Submitted>>,
    /// Numbers that failed.
    failed: Mutex<BTreeSet<u32>>,
    /// Flushes that told of a failure.
    told: AtomicU32,
}

impl<P: Platform, M: Mistake> Checked<P, M> {
    /// For so many threads, with batches of so many numbers.
    pub(super) fn new(threads: usize, most: usize, refuses: Refuses) -> Self {
        let device = Device {
            refuses,
            busy: AtomicCell::new(0),
            writes: AtomicCell::new(0),
            committed: AtomicCell::new(0),
            contents: Mutex::default(),
        };
        let group = Group::new(Numbers::new(most), Numbers::new(most));
        Checked {
            group,
            device,
            patience: threads,
            left: Mutex::default(),
            failed: Mutex::default(),
            told: AtomicU32::new(0),
        }
    }

    pub(super) fn submit(&self, number: u32) -> Submitted {
        let mut latest = usize::MAX;
        let add = |batch: &mut Numbers<M>| {
            let added = batch.add(number);
            match added {
                // Sooner than that if a batch fails.
                Some(place) => assert!(place < latest, "passed by more than came before it"),
                None => latest = latest.min(batch.place + (self.patience + 1) * batch.most),
            }
            added
        };
        let told_before = self.told.load(Relaxed);
        let (place, ticket) = self.group.submit(add, |batch| self.device.write(batch));
        Submitted { number, place, ticket, told_before }
    }

    /// Submits what `add` adds.
    pub(super) fn submit_by(&self, add: fn(&mut Numbers<M>) -> Option<usize>) -> Ticket {
        self.group.submit(add, |batch| self.device.write(batch)).1
    }

    /// Submits for somebody else to wait for.
    pub(super) fn submit_only(&self, number: u32) {
        let submitted = self.submit(number);
        self.left.lock().expect("nobody panics with it").push(submitted);
    }

    pub(super) fn append(&self, number: u32) -> Result<(), Refused> {
        self.wait(self.submit(number))
    }

    /// What was committed when this returned is there.
    pub(super) fn wait(&self, submitted: Submitted) -> Result<(), Refused> {
        let Submitted { number, place, ticket, .. } = submitted;
        let outcome = self.group.wait(ticket, |batch| self.device.write(batch));
        match outcome {
            Ok(()) => {
                let committed = self.device.committed.load(Acquire) as usize;
                assert!(place < committed, "acknowledged before it was written");
                let contents = self.device.contents.lock().expect("nobody panics with it");
                assert_eq!(contents[place], number, "something else is in its place");
            }
            Err(Refused(write)) => {
                assert!((self.device.refuses)(write), "an error that nobody made");
                self.failed.lock().expect("nobody panics with it").insert(number);
            }
        }
        outcome
    }

    /// Tells of failures.
    pub(super) fn flush(&self) -> Result<(), Refused> {
        let flushed = self.group.flush_and_tell(|batch| self.device.write(batch));
        self.told.fetch_add(flushed.is_err().into(), Relaxed);
        flushed
    }

    /// Tells nobody.
    pub(super) fn flush_unheard(&self) {
        self.group.flush(|batch| self.device.write(batch));
    }

    /// When all threads have ended: each of so many `numbers` is there once or has failed, and nothing else
    /// is there. How many are. Of each that failed, and that nobody has waited for, a flush has told.
    pub(super) fn finish(&self, numbers: usize) -> usize {
        let _ = self.flush();
        self.flush().expect("a failure is told of once");
        let left = std::mem::take(&mut *self.left.lock().expect("nobody panics with it"));
        for submitted in left {
            let outcome = self.wait(submitted);
            let told_since = self.told.load(Relaxed) - submitted.told_before;
            assert!(outcome.is_ok() || told_since > 0, "a failure was forgotten");
            assert_eq!(self.wait(submitted), outcome, "the answer stands");
        }
        assert!(!self.group.is_broken());
        let contents = self.device.contents.lock().expect("nobody panics with it");
        let failed = self.failed.lock().expect("nobody panics with it");
        let there: BTreeSet<u32> = contents.iter().copied().collect();
        assert_eq!(there.len(), contents.len(), "something is there twice");
        assert!(there.is_disjoint(&failed), "something failed, and yet it is there");
        assert_eq!(there.len() + failed.len(), numbers, "something is neither there nor failed");
        there.len()
    }

    /// What the group keeps of its failures.
    pub(super) fn failures(&self) -> usize {
        self.group.state.lock().failures.len()
    }

    /// Writes that were tried.
    pub(super) fn writes(&self) -> u32 {
        self.device.writes.load(Relaxed)
    }
}
