//! The files of a log that hold what is not yet known to be on the device, in order.
//!
//! With [`SyncPolicy::EveryCommit`](super::options::SyncPolicy) there are none. Otherwise whoever appends
//! does not wait for a segment that ends: its file is kept here, and a thread syncs it meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;

use fairlock::Mutex;

/// Segments that may be left before the oldest of them is synced. Whoever leaves one more syncs it:
/// each is an open file, and a log that a crash leaves is read from the oldest on.
const MOST: usize = 4;

pub(crate) struct Unsynced<F> {
    files: Mutex<Files<F>>,
}

struct Files<F> {
    left: VecDeque<Left<F>>,
    current: Arc<F>,
}

/// A segment that was left.
pub(crate) struct Left<F> {
    pub(crate) segment: u64,
    /// What was committed then: on the device, once this file and those before are synced.
    pub(crate) committed: u64,
    pub(crate) file: Arc<F>,
}

/// What is to be synced next.
pub(crate) enum Oldest<F> {
    Left(Left<F>),
    /// No other is.
    Current(Arc<F>),
}

impl<F> Unsynced<F> {
    pub(crate) fn new(current: Arc<F>) -> Unsynced<F> {
        Unsynced { files: Mutex::new(Files { left: VecDeque::new(), current }) }
    }

    /// Another file is written from now on; the one before is kept, unless it is synced.
    pub(crate) fn go_on(&self, left: Option<Left<F>>, next: Arc<F>) {
        let mut files = self.files.lock();
        files.left.extend(left);
        files.current = next;
    }

    /// Whether no more may be left.
    pub(crate) fn is_full(&self) -> bool {
        self.files.lock().left.len() >= MOST
    }

    pub(crate) fn oldest(&self) -> Oldest<F> {
        let files = self.files.lock();
        match files.left.front() {
            Some(Left { segment, committed, file }) => Oldest::Left(Left {
                segment: *segment,
                committed: *committed,
                file: Arc::clone(file),
            }),
            None => Oldest::Current(Arc::clone(&files.current)),
        }
    }

    /// Forgets those up to this segment: they are synced.
    pub(crate) fn forget(&self, segment: u64) {
        self.files.lock().left.retain(|left| left.segment > segment);
    }
}
