//! Whether those who asked to be told have been.
//!
//! Who is to tell them may be preempted before he does, so everybody is to tell them who comes along
//! until somebody *has*. Numbers say which: requests count up, and whoever has told keeps the number
//! that he found before he did.
//!
//! Invariant: while `told` is `asked`, they were told after they asked. Those who asked have then
//! either looked since, or are about to.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::platform::{AtomicCell, Platform};

pub(super) struct Request<P: Platform> {
    asked: P::AtomicU64,
    told: P::AtomicU64,
}

impl<P: Platform> Request<P> {
    pub(super) const NONE: Self = Request { asked: P::AtomicU64::ZERO, told: P::AtomicU64::ZERO };

    /// One more. One thread at a time, and before the list is asked, by which it comes to those who
    /// are to tell.
    pub(super) fn ask(&self) {
        self.asked.store(self.asked.load(Relaxed) + 1, Relaxed);
    }

    /// Tells, unless somebody has already.
    pub(super) fn answer(&self, tell: impl FnOnce()) {
        // Before telling: who asks afterwards asks again.
        let asked = self.asked.load(Relaxed);
        // Acquire pairs with the Release below.
        if self.told.load(Acquire) != asked {
            tell();
            self.told.store(asked, Release);
        }
    }
}
