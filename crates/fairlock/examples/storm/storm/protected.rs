//! What a lock protects, able to notice when it does not: two counters and a checksum that writers
//! change one after the other. And cells, for locks over ranges.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use super::fail;
use super::seats::What;
use super::visitor::Visitor;

/// Zero at first, which all-zero memory is as well.
#[derive(Default)]
pub struct Protected {
    first: AtomicU64,
    second: AtomicU64,
    checksum: AtomicU64,
    /// Counted by each writer for itself, whatever the lock does.
    writes: AtomicU64,
}

fn checksum(count: u64) -> u64 {
    count.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

impl Protected {
    fn values(&self) -> [u64; 3] {
        [&self.first, &self.second, &self.checksum].map(|value| value.load(Relaxed))
    }

    /// A reader's stay.
    pub fn read(&self, visitor: &mut Visitor) {
        let [before, ..] = self.values();
        visitor.stay();
        let after = self.values();
        if after != [before, before, checksum(before)] {
            fail(&format!("torn: a reader that saw {before} first saw {after:?} last"));
        }
    }

    /// A writer's.
    pub fn write(&self, visitor: &mut Visitor) {
        let before = self.values();
        let count = before[0];
        if before != [count, count, checksum(count)] {
            fail(&format!("torn: a writer found {before:?}"));
        }
        self.first.store(count + 1, Relaxed);
        visitor.stay();
        self.second.store(count + 1, Relaxed);
        self.checksum.store(checksum(count + 1), Relaxed);
        let after = self.values();
        if after[..2] != [count + 1; 2] {
            fail(&format!("torn: a writer left {after:?} where it found {count}"));
        }
        self.writes.fetch_add(1, Relaxed);
    }

    /// Nobody uses the lock.
    pub fn check(&self) {
        let (values, writes) = (self.values(), self.writes.load(Relaxed));
        if values != [writes, writes, checksum(writes)] {
            fail(&format!("lost: {writes} writes left {values:?}"));
        }
    }
}

pub const CELLS: usize = 64;
/// What a holder alone leaves in its cells meanwhile.
const ALONE: i32 = -1;

/// For each position how many hold it.
pub struct Cells([AtomicI32; CELLS]);

impl Cells {
    pub const fn new() -> Self {
        Cells([const { AtomicI32::new(0) }; CELLS])
    }

    fn of(&self, what: What) -> &[AtomicI32] {
        &self.0[what.first.into()..=usize::from(what.last).min(CELLS - 1)]
    }

    pub fn alone(&self, what: What, visitor: &mut Visitor) {
        for cell in self.of(what) {
            let found = cell.swap(ALONE, Relaxed);
            if found != 0 {
                fail(&format!("torn: a holder alone found {found} others in {what:?}"));
            }
        }
        visitor.stay();
        self.of(what).iter().for_each(|cell| cell.store(0, Relaxed));
    }

    pub fn shared(&self, what: What, visitor: &mut Visitor) {
        for cell in self.of(what) {
            let found = cell.fetch_add(1, Relaxed);
            if found < 0 {
                fail(&format!("torn: a holder that shares found one alone in {what:?}"));
            }
        }
        visitor.stay();
        self.of(what).iter().for_each(|cell| _ = cell.fetch_sub(1, Relaxed));
    }

    /// Nobody uses them.
    pub fn check(&self) {
        if self.0.iter().any(|cell| cell.load(Relaxed) != 0) {
            fail("lost: a cell is held when nobody holds one");
        }
    }
}
