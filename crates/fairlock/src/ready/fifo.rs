//! The items that the consumers have taken off the list: a FIFO from which any item can be removed.
//! Its links are in the items, so nothing is allocated. Used under the consumer lock only.
//!
//! Invariant
//! 1. An item in the FIFO is alive and does not move: `append`'s caller promises it until `remove`
//!    or `take_oldest`.

use core::ptr;

use super::item::{Item, Place};
use crate::platform::{PlainCell, Platform};

pub(super) struct Fifo<P: Platform> {
    oldest: *const Item<P>,
    youngest: *const Item<P>,
    len: usize,
}

// SAFETY: its pointers lead to items, which may be sent (`item.rs`), and whose links only the
// thread touches that has the FIFO.
unsafe impl<P: Platform> Send for Fifo<P> {}

fn link<P: Platform>(item: *const Item<P>) -> *const () {
    item.cast()
}

impl<P: Platform> Fifo<P> {
    pub(super) const EMPTY: Self = Fifo { oldest: ptr::null(), youngest: ptr::null(), len: 0 };

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends an item that is elsewhere; from now on it is at `place`.
    ///
    /// # Safety
    /// The item stays where it is in memory until it has left the FIFO.
    pub(super) unsafe fn append(&mut self, item: &Item<P>, place: Place) {
        debug_assert!(item.place() == Place::Elsewhere && place != Place::Elsewhere);
        item.set_place(place);
        item.keep.older.set(link(self.youngest));
        item.keep.younger.set(ptr::null());
        // SAFETY: null, or in the FIFO and so alive (invariant 1).
        match unsafe { self.youngest.as_ref() } {
            Some(youngest) => youngest.keep.younger.set(link(item)),
            None => self.oldest = item,
        }
        self.youngest = item;
        self.len += 1;
    }

    /// Removes an item, wherever it stands.
    pub(super) fn remove(&mut self, item: &Item<P>) {
        debug_assert!(item.place() != Place::Elsewhere);
        item.set_place(Place::Elsewhere);
        let older: *const Item<P> = item.keep.older.get().cast();
        let younger: *const Item<P> = item.keep.younger.get().cast();
        // SAFETY: null, or in the FIFO and so alive (invariant 1).
        match unsafe { older.as_ref() } {
            Some(older) => older.keep.younger.set(link(younger)),
            None => self.oldest = younger,
        }
        // SAFETY: null, or in the FIFO and so alive (invariant 1).
        match unsafe { younger.as_ref() } {
            Some(younger) => younger.keep.older.set(link(older)),
            None => self.youngest = older,
        }
        self.len -= 1;
    }

    /// Removes the oldest item, and returns the place that it had.
    pub(super) fn take_oldest(&mut self) -> Option<(&Item<P>, Place)> {
        // SAFETY: null, or in the FIFO and so alive (invariant 1).
        let item = unsafe { self.oldest.as_ref() }?;
        let place = item.place();
        self.remove(item);
        Some((item, place))
    }
}
