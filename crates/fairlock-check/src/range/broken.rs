//! Range locks with a flaw, which the tests must be seen to catch.

use fairlock::platform::{AtomicCell, Os, Platform};
use fairlock::range::{Access, Extent, Patience, RawRangeLock};
use fairlock_reference::range::Naive;

/// Lets everybody in.
pub struct Open;

// SAFETY: none; its users notice, and share nothing but atomics.
unsafe impl RawRangeLock for Open {
    type Platform = Os;
    type Hold = ();
    const NEW: Self = Open;

    fn acquire(&self, _extent: Extent, _access: Access, _patience: Patience) -> Option<()> {
        Some(())
    }
    unsafe fn downgrade(&self, _extent: Extent, _hold: &mut ()) {}
    unsafe fn release(&self, _extent: Extent, _access: Access, _hold: ()) {}
}

/// Ignores the last position of each range.
pub struct Short<R>(R);

fn shortened(extent: Extent) -> Option<Extent> {
    Extent::of(extent.first()..extent.last()).ok()
}

// SAFETY: none; its users notice, and share nothing but atomics.
unsafe impl<R: RawRangeLock> RawRangeLock for Short<R> {
    type Platform = R::Platform;
    /// None for a range with one position.
    type Hold = Option<R::Hold>;
    const NEW: Self = Short(R::NEW);

    fn acquire(&self, extent: Extent, access: Access, patience: Patience) -> Option<Self::Hold> {
        match shortened(extent) {
            Some(extent) => self.0.acquire(extent, access, patience).map(Some),
            None => Some(None),
        }
    }
    unsafe fn downgrade(&self, extent: Extent, hold: &mut Self::Hold) {
        if let (Some(hold), Some(extent)) = (hold, shortened(extent)) {
            // SAFETY: `hold` came from this lock for this extent, as the caller promises.
            unsafe { self.0.downgrade(extent, hold) };
        }
    }
    unsafe fn release(&self, extent: Extent, access: Access, hold: Self::Hold) {
        if let (Some(hold), Some(extent)) = (hold, shortened(extent)) {
            // SAFETY: `hold` came from this lock for this extent, as the caller promises.
            unsafe { self.0.release(extent, access, hold) };
        }
    }
}

/// Lets in whoever comes first when those who wait look again, now and then.
pub struct Barging<P: Platform = Os> {
    lock: Naive<P>,
    nothing: P::AtomicU32,
}

// SAFETY: as the lock in it.
unsafe impl<P: Platform> RawRangeLock for Barging<P> {
    type Platform = P;
    type Hold = <Naive<P> as RawRangeLock>::Hold;
    const NEW: Self = Barging { lock: Naive::NEW, nothing: P::AtomicU32::ZERO };

    fn acquire(&self, extent: Extent, access: Access, patience: Patience) -> Option<Self::Hold> {
        const NOW_AND_THEN: u64 = 20_000;
        loop {
            if let Some(hold) = self.lock.acquire(extent, access, Patience::None) {
                return Some(hold);
            }
            match patience {
                Patience::None => return None,
                Patience::Until(Some(deadline)) if P::now() >= deadline => return None,
                Patience::Until(_) => P::park(&self.nothing, 0, Some(P::now() + NOW_AND_THEN)),
            }
        }
    }
    unsafe fn downgrade(&self, extent: Extent, hold: &mut Self::Hold) {
        // SAFETY: `hold` came from this lock for this extent, as the caller promises.
        unsafe { self.lock.downgrade(extent, hold) };
    }
    unsafe fn release(&self, extent: Extent, access: Access, hold: Self::Hold) {
        // SAFETY: `hold` came from this lock for this extent, as the caller promises.
        unsafe { self.lock.release(extent, access, hold) };
    }
}

/// Fails every try and every timed acquisition of less than everything.
pub struct Timid<P: Platform = Os>(Naive<P>);

// SAFETY: as the lock in it.
unsafe impl<P: Platform> RawRangeLock for Timid<P> {
    type Platform = P;
    type Hold = <Naive<P> as RawRangeLock>::Hold;
    const NEW: Self = Timid(Naive::NEW);

    fn acquire(&self, extent: Extent, access: Access, patience: Patience) -> Option<Self::Hold> {
        if patience != Patience::Until(None) && extent != Extent::ALL {
            return None;
        }
        self.0.acquire(extent, access, patience)
    }
    unsafe fn downgrade(&self, extent: Extent, hold: &mut Self::Hold) {
        // SAFETY: `hold` came from this lock for this extent, as the caller promises.
        unsafe { self.0.downgrade(extent, hold) };
    }
    unsafe fn release(&self, extent: Extent, access: Access, hold: Self::Hold) {
        // SAFETY: `hold` came from this lock for this extent, as the caller promises.
        unsafe { self.0.release(extent, access, hold) };
    }
}
