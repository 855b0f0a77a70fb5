//! What a range lock should answer to one thread, from a plain list of what is held.

use fairlock::range::{Access, Extent};

/// Which ranges are held.
#[derive(Debug, Default)]
pub struct Oracle {
    holds: Vec<(Extent, Access)>,
    /// Everything overlaps everything: a lock that ignores ranges.
    ignores_ranges: bool,
}

impl Oracle {
    /// Of a lock of which this is held.
    pub fn new(holds: Vec<(Extent, Access)>) -> Self {
        Oracle { holds, ignores_ranges: false }
    }

    /// Of a free lock that takes every range for everything.
    pub fn ignoring_ranges() -> Self {
        Oracle { holds: Vec::new(), ignores_ranges: true }
    }

    /// Whether an acquisition succeeds now.
    pub fn is_free(&self, extent: Extent, access: Access) -> bool {
        self.holds.iter().all(|&(held, by)| {
            !by.conflicts(access) || !(self.ignores_ranges || held.overlaps(extent))
        })
    }

    /// It has succeeded.
    pub fn acquire(&mut self, extent: Extent, access: Access) {
        assert!(self.is_free(extent, access));
        self.holds.push((extent, access));
    }

    /// One hold has become shared.
    pub fn downgrade(&mut self, extent: Extent) {
        self.hold(extent, Access::Exclusive).1 = Access::Shared;
    }

    /// One hold has gone.
    pub fn release(&mut self, extent: Extent, access: Access) {
        let found = self.holds.iter().position(|&hold| hold == (extent, access));
        self.holds.swap_remove(found.expect("it is held"));
    }

    fn hold(&mut self, extent: Extent, access: Access) -> &mut (Extent, Access) {
        self.holds.iter_mut().find(|hold| **hold == (extent, access)).expect("it is held")
    }
}
