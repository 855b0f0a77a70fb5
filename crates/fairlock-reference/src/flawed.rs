//! Lists and polls with one mistake each: checks that do not notice it are worth nothing. Not for use.

use std::marker::PhantomData;

use fairlock::ready::{Flaws, Item, List, Watchers};

/// What is wrong, of those mistakes that are the poll's and those that are the list's.
#[derive(Debug, Clone, Copy)]
pub struct Mistakes {
    /// The poll's.
    pub of_poll: Flaws,
    /// The youngest come first.
    pub takes_youngest_first: bool,
    /// Items that are being linked are not looked for.
    pub surveys_nothing: bool,
}

impl Mistakes {
    /// Nothing is wrong.
    pub const NONE: Mistakes =
        Mistakes { of_poll: Flaws::NONE, takes_youngest_first: false, surveys_nothing: false };
}

/// A choice of mistakes.
///
/// # Safety
/// Polls over a list with mistakes do what polls must not, for instance touch sources that are gone. Whoever
/// chooses them sees to it that this does no harm: under a checker that keeps memory from being used again.
pub unsafe trait Mistake: Send + Sync + 'static {
    /// Them.
    const MISTAKES: Mistakes;
}

/// A list with mistakes, and a poll over it.
pub struct Flawed<L, M>(L, PhantomData<M>);

// SAFETY: the list's, but for the mistakes, which whoever has chosen them answers for.
unsafe impl<L: List, M: Mistake> List for Flawed<L, M> {
    type Platform = L::Platform;
    type Entry = L::Entry;
    const NEW: Self = Flawed(L::NEW, PhantomData);
    const FLAWS: Flaws = M::MISTAKES.of_poll;

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
        if M::MISTAKES.takes_youngest_first {
            taken.reverse();
        }
        taken.into_iter().for_each(sink);
        survey && !M::MISTAKES.surveys_nothing
    }
    fn watch(&self, watchers: Watchers) -> bool {
        self.0.watch(watchers)
    }
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
