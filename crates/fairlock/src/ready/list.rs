//! What the consumers' side needs of a list, so that lists can be exchanged.

use core::sync::atomic::Ordering::Relaxed;

use super::flawed::Flaws;
use super::item::Item;
use crate::platform::{AtomicCell, Platform};

/// Who wants to be told of the next push: bits of a list's own.
pub(super) type Watchers = u32;
/// A consumer sleeps.
pub(super) const SLEEPERS: Watchers = 1;
/// Somebody watches the poll from outside: its descriptor, or the poll that it is in.
pub(super) const OUTSIDE: Watchers = 2;

/// Gives the items of a chain that was taken off a list to `sink`, which owns each from then on.
///
/// # Safety
/// `oldest` is null or leads to an item of platform `P`, and so do their links. They were on a list of
/// the caller's, and so live until `sink` has them.
pub(super) unsafe fn hand_over<P: Platform>(
    mut oldest: *mut (),
    mut sink: impl FnMut(*const Item<P>),
) {
    while !oldest.is_null() {
        let item = oldest.cast::<Item<P>>();
        // SAFETY: the caller's. Read before the sink, which may let go of the item.
        oldest = unsafe { &*item }.next.load(Relaxed);
        sink(item);
    }
}

/// A list that many threads put items on and one at a time takes all from. Sealed: the protocol of
/// an item's state is between the lists here and their poll.
pub trait List: sealed::List {}

impl<L: sealed::List> List for L {}

pub(super) mod sealed {
    use super::{Flaws, Item, Platform, Watchers};

    /// See [`super::List`].
    pub trait List: Sized + Send + Sync + 'static {
        /// What it runs on.
        type Platform: Platform;
        /// What entering found.
        type Entry: Copy;

        /// An empty list that nobody watches.
        const NEW: Self;
        /// For checks of the checks.
        const FLAWS: Flaws = Flaws::NONE;

        /// A producer has changed the level, and a fence has passed since: counts it in if it has
        /// to see to the list.
        fn enter(item: &Item<Self::Platform>) -> Option<Self::Entry>;

        /// Puts the item on the list, or does what else was found necessary. Answers who is to be
        /// told, unless somebody has done so.
        fn push(&self, item: &Item<Self::Platform>, entry: Self::Entry) -> Watchers;

        /// The push is over, except that watchers are still to be told.
        fn pushed(item: &Item<Self::Platform>, entry: Self::Entry);

        /// What is to be taken back from the item's state when the watchers were told.
        fn told(item: &Item<Self::Platform>, entry: Self::Entry);

        /// As both, where nobody is to be told.
        fn done(item: &Item<Self::Platform>, entry: Self::Entry) {
            Self::pushed(item, entry);
            Self::told(item, entry);
        }

        /// Takes everything off, the oldest first. True if items that are being linked have to be
        /// looked for too. One consumer at a time. `sink` may keep the item, and is its owner.
        fn take(&self, sink: impl FnMut(*const Item<Self::Platform>)) -> bool;

        /// Asks that `watchers` be told of the next push, beside those who asked since the list was
        /// last taken off. False if there is something to take.
        fn watch(&self, watchers: Watchers) -> bool;

        /// Nothing to take, as far as a look without obligation can tell.
        fn is_empty(&self) -> bool;
    }
}
