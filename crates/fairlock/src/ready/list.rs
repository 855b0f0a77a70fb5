//! What the consumers' side needs of a list, so that lists can be exchanged.

use core::sync::atomic::Ordering::Relaxed;

use super::item::Item;
use super::nesting::HasNesting;
use crate::platform::{AtomicCell, Platform};

/// Who wants to be told of the next push: bits of a list's own.
#[doc(hidden)]
pub type Watchers = u32;
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

/// What is wrong with a list, or with a poll over it: for checks of the checks, in
/// `fairlock-reference`. Constants, so that nothing of it is left where nothing is wrong.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Flaws {
    /// A consumer looks at the level, and then lets go of the item.
    pub looks_too_early: bool,
    /// It lets go of the item in two steps.
    pub releases_in_two_steps: bool,
    /// Whoever leaves something behind calls nobody.
    pub calls_nobody: bool,
    /// Whoever takes the list does not ask again for those who sleep.
    pub forgets_sleepers: bool,
    /// A source leaves while others are in the middle of signalling it.
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

/// A list that many threads put items on and one at a time takes all from: [`ReadyList`](super::ReadyList),
/// and others to measure it against. What it has is between a list and its poll.
///
/// # Safety
/// Whoever implements it promises that an item which was pushed is taken exactly once, by whoever takes next,
/// and is not touched afterwards; that of an item that is not on the list nothing is kept; and that `enter`,
/// `pushed` and `told` count whoever pushes an item in and out, so that the item stays until then. And
/// nothing is wrong with it.
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
    /// What entering found.
    #[doc(hidden)]
    type Entry: Copy;

    /// An empty list that nobody watches.
    #[doc(hidden)]
    const NEW: Self;
    #[doc(hidden)]
    const FLAWS: Flaws = Flaws::NONE;

    /// A producer has changed the level, and a fence has passed since: counts it in if it has to see to the
    /// list.
    #[doc(hidden)]
    fn enter(item: &Item<Self::Platform>) -> Option<Self::Entry>;

    /// Puts the item on the list, or does what else was found necessary. Answers who is to be told, unless
    /// somebody has done so.
    #[doc(hidden)]
    fn push(&self, item: &Item<Self::Platform>, entry: Self::Entry) -> Watchers;

    /// The push is over, except that watchers are still to be told.
    #[doc(hidden)]
    fn pushed(item: &Item<Self::Platform>, entry: Self::Entry);

    /// What is to be taken back from the item's state when the watchers were told.
    #[doc(hidden)]
    fn told(item: &Item<Self::Platform>, entry: Self::Entry);

    /// As both, where nobody is to be told.
    #[doc(hidden)]
    fn done(item: &Item<Self::Platform>, entry: Self::Entry) {
        Self::pushed(item, entry);
        Self::told(item, entry);
    }

    /// Takes everything off, the oldest first. True if items that are being linked have to be looked for
    /// too. One consumer at a time. `sink` may keep the item, and is its owner.
    #[doc(hidden)]
    fn take(&self, sink: impl FnMut(*const Item<Self::Platform>)) -> bool;

    /// Asks that `watchers` be told of the next push, beside those who asked since the list was last taken
    /// off. False if there is something to take.
    #[doc(hidden)]
    fn watch(&self, watchers: Watchers) -> bool;

    /// Nothing to take, as far as a look without obligation can tell.
    #[doc(hidden)]
    fn is_empty(&self) -> bool;
}
