//! What a poll needs of its list, so that lists can be exchanged.

use core::sync::atomic::Ordering::Relaxed;

use super::item::Item;
use super::nesting::HasNesting;
use crate::platform::{AtomicCell, Platform};

/// Who wants to be told of the next push: [`SLEEPERS`], [`OUTSIDE`] or both.
#[doc(hidden)]
pub type Watchers = u32;
/// A consumer sleeps.
pub(super) const SLEEPERS: Watchers = 1;
/// Somebody watches the poll from outside: by its descriptor, or as an outer poll.
pub(super) const OUTSIDE: Watchers = 2;

/// Passes the items of a chain that was taken off a list to `sink`, which owns each from then on.
///
/// # Safety
/// `oldest` is null or leads to an item of platform `P`, and so do their links. They were on a list
/// of the caller's, and so live until `sink` has them.
pub unsafe fn hand_over<P: Platform>(mut oldest: *mut (), mut sink: impl FnMut(*const Item<P>)) {
    while !oldest.is_null() {
        let item = oldest.cast::<Item<P>>();
        // SAFETY: an item of this chain, which lives until `sink` has it, as the caller promises.
        // The link is read first, as `sink` may release the item.
        oldest = unsafe { &*item }.next.load(Relaxed);
        sink(item);
    }
}

/// What is wrong with a list, or with a poll over it: for checks of the checks, in
/// `fairlock-reference`. Constants, so that nothing of it is left where nothing is wrong.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Flaws {
    /// A consumer looks at the level, and then releases the item.
    pub looks_too_early: bool,
    /// It releases the item in two steps.
    pub releases_in_two_steps: bool,
    /// A consumer that leaves ready items behind wakes nobody.
    pub calls_nobody: bool,
    /// A consumer that empties the list does not ask again for those that sleep.
    pub forgets_sleepers: bool,
    /// A source is removed while others are in the middle of signalling it.
    pub leaves_at_once: bool,
}

impl Flaws {
    /// Nothing is wrong.
    pub const NONE: Flaws = Flaws {
        looks_too_early: false,
        releases_in_two_steps: false,
        calls_nobody: false,
        forgets_sleepers: false,
        leaves_at_once: false,
    };
}

/// A list on which many threads put items, and from which one thread at a time takes all:
/// [`ReadyList`](super::ReadyList), and others to measure it against. Its functions are for polls
/// only.
///
/// # Safety
/// An implementation promises that an item that was pushed is taken exactly once, by the next take,
/// and is not touched afterwards; that it keeps nothing of an item that is not on the list; that
/// `enter`, `pushed` and `told` count each producer in and out, so that the item stays until then;
/// and that `FLAWS` is [`Flaws::NONE`].
///
/// ```compile_fail,E0200
/// use fairlock::ready::{List, ReadyList};
/// struct Lost;
/// impl List for Lost {
///     type Platform = fairlock::platform::Os;
///     type Entry = <ReadyList as List>::Entry;
///     const NEW: Self = Lost;
///     fn enter(item: &fairlock::ready::Item<Self::Platform>) -> Option<Self::Entry> { None }
///     fn push(&self, _: &fairlock::ready::Item<Self::Platform>, _: Self::Entry) -> u32 { 0 }
///     fn pushed(_: &fairlock::ready::Item<Self::Platform>, _: Self::Entry) {}
///     fn told(_: &fairlock::ready::Item<Self::Platform>, _: Self::Entry) {}
///     fn take(&self, _: impl FnMut(*const fairlock::ready::Item<Self::Platform>)) -> bool { false }
///     fn watch(&self, _: u32) -> bool { true }
///     fn is_empty(&self) -> bool { true }
/// }
/// ```
pub unsafe trait List: Sized + Send + Sync + 'static {
    /// What it runs on.
    type Platform: HasNesting;
    /// What [`enter`](Self::enter) found.
    #[doc(hidden)]
    type Entry: Copy;

    /// An empty list that nobody watches.
    #[doc(hidden)]
    const NEW: Self;
    #[doc(hidden)]
    const FLAWS: Flaws = Flaws::NONE;

    /// A producer has changed the level, with a full fence since: counts it in if it has to push
    /// the item.
    #[doc(hidden)]
    fn enter(item: &Item<Self::Platform>) -> Option<Self::Entry>;

    /// Puts the item on the list, or does what else `enter` found necessary. Returns who is to be
    /// told.
    #[doc(hidden)]
    fn push(&self, item: &Item<Self::Platform>, entry: Self::Entry) -> Watchers;

    /// The push is over, except that watchers are still to be told.
    #[doc(hidden)]
    fn pushed(item: &Item<Self::Platform>, entry: Self::Entry);

    /// The watchers were told: counts the producer out.
    #[doc(hidden)]
    fn told(item: &Item<Self::Platform>, entry: Self::Entry);

    /// Both, where nobody is to be told.
    #[doc(hidden)]
    fn done(item: &Item<Self::Platform>, entry: Self::Entry) {
        Self::pushed(item, entry);
        Self::told(item, entry);
    }

    /// Takes everything off, the oldest first. True if the poll has to look for items that are
    /// being linked, too. One consumer at a time. `sink` becomes the owner of each item.
    #[doc(hidden)]
    fn take(&self, sink: impl FnMut(*const Item<Self::Platform>)) -> bool;

    /// Asks that `watchers` be told of the next push, beside those that asked since the list was
    /// last emptied. False if the list is not empty.
    #[doc(hidden)]
    fn watch(&self, watchers: Watchers) -> bool;

    /// Whether the list is empty, by a look that orders nothing.
    #[doc(hidden)]
    fn is_empty(&self) -> bool;
}
