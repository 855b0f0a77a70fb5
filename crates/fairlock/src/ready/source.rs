//! What every source is made of.

use std::sync::{Arc, Weak};

use core::sync::atomic::Ordering::Relaxed;

use super::consumers::Shared;
use super::item::{Item, Readiness};
use super::list::List;
use crate::mutex::Mutex;
use crate::platform::{AtomicCell, Platform};

/// Something that threads signal and that a [`Poll`](super::Poll) waits for.
///
/// A type of your own becomes a source by passing on what it contains:
/// ```
/// use fairlock::ready::{Batch, Event, Poll, RawSource, Readiness, ReadyList, Source, Trigger};
///
/// struct Job { done: Event }
///
/// impl Source<ReadyList> for Job {
///     fn source(&self) -> &RawSource<ReadyList> { self.done.source() }
/// }
///
/// let job = Job { done: Event::new() };
/// let poll = Poll::new();
/// poll.register(&job, 7, Readiness::READABLE, Trigger::Level)?;
/// job.done.set(Readiness::READABLE);
/// assert_eq!(poll.wait(&mut Batch::with_capacity(1), None), 1);
/// # Ok::<(), fairlock::ready::PollError>(())
/// ```
pub trait Source<L: List> {
    /// What it is made of: always the same.
    fn source(&self) -> &RawSource<L>;
}

/// What a source is made of: an item for the list of its poll. A source is registered with one poll
/// at most.
///
/// Two cache lines, 128 bytes: one that the poll's consumers write, and threads that register it,
/// and one that producers do. Dropping it removes it from its poll.
#[repr(C, align(64))]
pub struct RawSource<L: List> {
    // ---- the first line, with the beginning of the item ----
    /// The poll. It may be closed, and has detached the item then.
    pub(super) registration: Mutex<Option<Arc<Shared<L>>>, L::Platform>,
    /// Moves what producers write to the second line.
    room: [u64; 1],
    pub(super) item: Item<L::Platform>,
    // ---- on the second line, which producers write: neither it nor `home` ever changes beside a
    // signal ----
    /// If this is a poll's own source: that poll.
    pub(super) poll: Weak<Shared<L>>,
}

impl<L: List> RawSource<L> {
    /// A source at `level`, whose readiness is `readiness(level)`.
    pub(super) fn new(level: u64, readiness: fn(u64) -> Readiness) -> Self {
        RawSource {
            item: Item::new(level, readiness),
            registration: Mutex::new_in(None),
            room: [0],
            poll: Weak::new(),
        }
    }

    /// The source that stands for a poll in another one.
    pub(super) fn of_poll(poll: Weak<Shared<L>>, readiness: fn(u64) -> Readiness) -> Self {
        let mut source = RawSource::new(0, readiness);
        source.poll = poll;
        source
    }

    /// Tells the poll to look at the source. Called after an atomic update of the level by this
    /// thread.
    #[inline]
    pub(super) fn signal(&self) {
        L::Platform::fence_after_update();
        let item = &self.item;
        let Some(entry) = L::enter(item) else { return };
        let home: *const Shared<L> = item.home.load(Relaxed).cast();
        // SAFETY: this thread is counted inside, so the poll is alive until `leave` (`item.rs`,
        // invariant 4).
        let shared = unsafe { &*home };
        let watchers = shared.list.push(item, entry);
        if watchers == 0 {
            L::done(item, entry);
        } else {
            L::pushed(item, entry);
            shared.tell(watchers);
            L::told(item, entry);
        }
    }

    /// Removes it from its poll, if it has one.
    pub(super) fn unregister(&self) {
        if let Some(shared) = self.registration.lock().take() {
            shared.remove(&self.item);
        }
    }
}

impl<L: List> Drop for RawSource<L> {
    fn drop(&mut self) {
        if let Some(shared) = self.registration.get_mut().take() {
            shared.remove(&self.item);
        }
    }
}

#[cfg(all(target_pointer_width = "64", not(loom)))]
const _: () = {
    use crate::{hold::IdentityOf, platform::Os};
    type Source = RawSource<super::ReadyList>;
    // Numbers of locks take room.
    let has_numbers = size_of::<IdentityOf<Os>>() > 0;
    assert!(has_numbers || size_of::<Source>() == 128, "two cache lines");
    assert!(has_numbers || core::mem::offset_of!(Source, item.state) == 64, "the producers' line");
};
