//! Whether a request to be told of something was answered.
//!
//! A producer that is to answer may be preempted before it does, so every producer answers until
//! one of them *has* answered. Requests are numbered: after answering, a producer stores the number
//! that it read before.
//!
//! Invariant: while `told` equals `asked`, the last request was answered after it was made. Whoever
//! made it has then looked since, or is about to.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, Platform};

pub(super) struct Request<P: Platform> {
    asked: P::AtomicU64,
    told: P::AtomicU64,
}

impl<P: Platform> Request<P> {
    pub(super) const NONE: Self = Request { asked: P::AtomicU64::ZERO, told: P::AtomicU64::ZERO };

    /// Makes a request. One thread at a time, and before it asks the list: the list's Release
    /// publishes the number to the producers.
    pub(super) fn ask(&self) {
        self.asked.store(self.asked.load(Relaxed) + 1, Relaxed);
    }

    /// Answers by `tell`, unless somebody has answered already.
    pub(super) fn answer(&self, tell: impl FnOnce()) {
        // Read before telling: a later request is another number.
        let asked = self.asked.load(Relaxed);
        // Acquire pairs with the Release below.
        if self.told.load(Acquire) != asked {
            tell();
            self.told.store(asked, Release);
        }
    }
}
