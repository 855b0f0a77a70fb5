//! Where a holder is known: in a slot of its thread, or on the tree of those that found none.

use core::marker::PhantomData;
use core::num::NonZero;
use core::ptr::NonNull;

use crate::platform::{Os, Platform, cold_path};
use crate::range::tree::{Interval, OnTree};
use crate::slots::HasRecords;
use crate::slots::range::RangeSlot;

/// A range that is held, or about to be, without a slot.
pub(super) struct Apart<P: Platform>(pub(super) Interval<P>);

const _: () = assert!(size_of::<Apart<Os>>() <= 80);

impl<P: Platform> OnTree<P> for Apart<P> {
    fn interval(&self) -> &Interval<P> {
        &self.0
    }
}

/// Where a holder is known: a slot, or what is on the tree of those apart, then with the address's
/// lowest bit set. One word, so that guards are as small as they can be.
pub(super) struct Place<P: Platform>(NonNull<()>, PhantomData<*const RangeSlot<P>>);

pub(super) enum Known<P: Platform> {
    InSlot(&'static RangeSlot<P>),
    Apart(NonNull<Apart<P>>),
}

impl<P: Platform> Clone for Place<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Platform> Copy for Place<P> {}

impl<P: HasRecords> Place<P> {
    #[inline(always)]
    pub(super) fn slot(slot: &'static RangeSlot<P>) -> Self {
        Place(NonNull::from(slot).cast(), PhantomData)
    }

    pub(super) fn apart(apart: NonNull<Apart<P>>) -> Self {
        Place(apart.cast().map_addr(|address| address | 1), PhantomData)
    }

    #[inline(always)]
    pub(super) fn known(self) -> Known<P> {
        if self.0.addr().get() & 1 == 0 {
            // SAFETY: made by `slot`, as all slots are aligned.
            return Known::InSlot(unsafe { self.0.cast().as_ref() });
        }
        cold_path();
        let address = |tagged: NonZero<usize>| NonZero::new(tagged.get() & !1).expect("aligned");
        Known::Apart(self.0.map_addr(address).cast())
    }
}

/// What a guard remembers.
pub struct SlottedHold<P: Platform>(pub(super) Place<P>);

// SAFETY: slots are atomics, and ranges held apart are touched under the queue's lock only.
unsafe impl<P: Platform> Send for SlottedHold<P> {}
// SAFETY: a shared reference to it gives access to nothing.
unsafe impl<P: Platform> Sync for SlottedHold<P> {}

/// Frees a range that is not on the tree any more.
pub(super) fn free<P: Platform>(apart: NonNull<Apart<P>>) {
    // SAFETY: it came from a box, and its owner, the only one who knows it off the tree, gives it
    // up here.
    drop(unsafe { Box::from_raw(apart.as_ptr()) });
}
