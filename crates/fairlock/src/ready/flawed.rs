//! Lists and polls with one mistake each: checks that do not notice it are worth nothing. Not for use.

use core::marker::PhantomData;

use super::item::Item;
use super::list::Watchers;
use super::list::sealed::List;

/// What is wrong. Constants, so that nothing of it is left in a list without flaws.
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
    /// The youngest come first.
    pub takes_youngest_first: bool,
    /// Items that are being linked are not looked for.
    pub surveys_nothing: bool,
}

impl Flaws {
    /// Nothing is wrong.
    pub const NONE: Flaws = Flaws {
        looks_too_early: false,
        releases_in_two_steps: false,
        calls_nobody: false,
        forgets_sleepers: false,
        leaves_at_once: false,
        takes_youngest_first: false,
        surveys_nothing: false,
    };
}

/// A choice of flaws.
pub trait Flaw: Send + Sync + 'static {
    /// Them.
    const FLAWS: Flaws;
}

/// A list with flaws, and a poll over it.
pub struct Flawed<L, F>(L, PhantomData<F>);

impl<L: List, F: Flaw> List for Flawed<L, F> {
    type Platform = L::Platform;
    type Entry = L::Entry;
    const NEW: Self = Flawed(L::NEW, PhantomData);
    const FLAWS: Flaws = F::FLAWS;

    fn enter(item: &Item<L::Platform>) -> Option<L::Entry> {
        L::enter(item)
    }
    fn push(&self, item: &Item<L::Platform>, entry: L::Entry) -> Watchers {
        self.0.push(item, entry)
    }
    fn pushed(item: &Item<L::Platform>, entry: L::Entry) {
        L::pushed(item, entry);
    }
    fn told(item: &Item<L::Platform>, entry: L::Entry) {
        L::told(item, entry);
    }
    fn done(item: &Item<L::Platform>, entry: L::Entry) {
        L::done(item, entry);
    }
    fn take(&self, sink: impl FnMut(*const Item<L::Platform>)) -> bool {
        let mut taken = Vec::new();
        let survey = self.0.take(|item| taken.push(item));
        if F::FLAWS.takes_youngest_first {
            taken.reverse();
        }
        taken.into_iter().for_each(sink);
        survey && !F::FLAWS.surveys_nothing
    }
    fn watch(&self, watchers: Watchers) -> bool {
        self.0.watch(watchers)
    }
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
