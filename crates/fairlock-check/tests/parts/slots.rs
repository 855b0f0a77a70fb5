//! Readers that announce themselves in slots, and a writer that looks at them: the protocol alone,
//! without a lock around it, for each checker.
//!
//! Private in `fairlock`, so its source is compiled again in each program that tests it.

#[path = "../../../fairlock/src/slots/mod.rs"]
#[allow(dead_code)] // what locks need beside slots
mod protocol;

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use fairlock::platform::AtomicCell;
use fairlock_check::scenario::Number;
pub(crate) use protocol::{EndedThread, HasRecords, Readers, Record, Slot, Threads};
#[allow(unused_imports)] // by the explorer only
pub(crate) use protocol::{RangeSlot, range::Claim};

/// Says that a platform's threads have no records but those of a [`State`].
macro_rules! own_records {
    ($platform:ty $(where $flaw:ident: $of:path)?) => {
        // SAFETY: nobody asks for a record but these programs, which claim them from their own `threads`.
        unsafe impl$(<$flaw: $of>)? crate::slots::parts::HasRecords for $platform {
            fn threads() -> &'static crate::slots::parts::Threads<Self> {
                unreachable!("these programs have records of their own")
            }
            fn thread() -> Option<&'static crate::slots::parts::Record<Self>> {
                unreachable!("these programs have records of their own")
            }
            fn ended_thread() -> crate::slots::parts::EndedThread<Self> {
                unreachable!("threads of these programs do not end before they are done")
            }
            fn asymmetric_heavy() {
                <Self as fairlock::process::Host>::asymmetric_heavy();
            }
        }
    };
}

pub(crate) use own_records;

/// Of the lock that all of them use.
pub(crate) const TAG: u64 = 5;

/// Readers with a record each, and what a writer changes.
pub(crate) struct State<P: HasRecords, N> {
    /// Too large for a coroutine's stack twice.
    pub(crate) threads: Box<Threads<P>>,
    /// Of the readers, in `threads`.
    records: Vec<*const Record<P>>,
    /// In the first of them.
    first_slot: *const Slot<P>,
    /// A writer is there or about to be.
    marked: P::AtomicU32,
    pub(crate) data: N,
}

// SAFETY: the records live as long as the state, and are made to be shared; the data is what tests watch.
unsafe impl<P: HasRecords, N> Send for State<P, N> {}
// SAFETY: the records are made to be shared.
unsafe impl<P: HasRecords, N> Sync for State<P, N> {}

#[inline(never)]
fn all_threads<P: HasRecords>() -> Box<Threads<P>> {
    Box::new(Threads::NEW)
}

impl<P: HasRecords, N: Number> State<P, N> {
    pub(crate) fn new(readers: usize) -> Self {
        let threads = all_threads();
        let claim = |_| ptr::from_ref(threads.claim().expect("a record for each"));
        let records: Vec<_> = (0..readers).map(claim).collect();
        // SAFETY: records live as long as `threads`, at the same place.
        let first_slot = unsafe { &*records[0] }.free_slot().expect("a fresh record");
        let first_slot = ptr::from_ref(first_slot);
        State { threads, records, first_slot, marked: AtomicCell::new(0), data: N::zero() }
    }

    /// With one reader, who is there.
    pub(crate) fn with_a_reader_inside() -> Self {
        let state = State::new(1);
        state.first_slot().announce_fenced(TAG);
        state
    }

    fn first_slot(&self) -> &Slot<P> {
        // SAFETY: records live as long as the state.
        unsafe { &*self.first_slot }
    }

    /// The one that is inside leaves.
    pub(crate) fn leave(&self) {
        self.first_slot().clear();
    }

    /// A reader enters and leaves, or finds the lock marked and goes.
    pub(crate) fn read(&self, reader: usize) {
        // SAFETY: the records live as long as the state.
        let record = unsafe { &*self.records[reader] };
        let slot = record.free_slot().expect("only one is used");
        if P::is_asymmetric() {
            slot.announce(TAG)
        } else {
            slot.announce_fenced(TAG)
        }
        if self.marked.load(Acquire) == 0 {
            self.data.get();
        }
        slot.clear();
    }

    /// The same with a fence: a writer looks at listed records only.
    pub(crate) fn read_listed(&self, reader: usize) {
        // SAFETY: the records live as long as the state.
        let record = unsafe { &*self.records[reader] };
        if !record.is_listed() && !self.threads.list(record) {
            return;
        }
        let slot = record.free_slot().expect("only one is used");
        slot.announce_fenced(TAG);
        if self.marked.load(Acquire) == 0 && record.is_listed() {
            self.data.get();
        }
        slot.clear();
    }

    pub(crate) fn write_looking_at_listed(&self) {
        self.marked.store(1, Relaxed);
        P::fence();
        let all_left =
            self.threads.wait_for_readers(Readers::UseFences, |tag| tag == TAG, None, || ());
        assert!(all_left, "there is no deadline");
        self.data.add();
        self.marked.store(0, Release);
    }

    pub(crate) fn write(&self) {
        self.marked.store(1, Relaxed);
        if P::is_asymmetric() {
            <P as HasRecords>::asymmetric_heavy()
        } else {
            P::fence()
        }
        self.wait();
        self.data.add();
        self.marked.store(0, Release);
    }

    /// Until no reader is inside.
    pub(crate) fn wait(&self) {
        assert!(
            self.threads.wait_for_readers(Readers::Any, |tag| tag == TAG, None, || ()),
            "there is no deadline"
        );
    }
}
