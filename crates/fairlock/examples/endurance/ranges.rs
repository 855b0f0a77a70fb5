//! Ranges: random ones in every way, and guards that outlive the thread that took them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use fairlock::range::{Extent, RangeLock, RangeWriteGuard, RawRangeLock};

use crate::stress::Dice;

const CELLS: u64 = 64;
/// What a holder alone leaves in its cells meanwhile.
const ALONE: i32 = -1;

/// A range lock, and for each position how many hold it.
pub struct Ranges<R> {
    lock: Arc<RangeLock<R>>,
    cells: [AtomicI32; CELLS as usize],
}

impl<R: RawRangeLock> Ranges<R> {
    pub fn new() -> Self {
        let cells = [const { AtomicI32::new(0) }; CELLS as usize];
        Ranges { lock: Arc::new(RangeLock::new_in()), cells }
    }

    fn cells(&self, extent: Extent) -> &[AtomicI32] {
        &self.cells[extent.first() as usize..=extent.last().min(CELLS - 1) as usize]
    }

    fn alone(&self, extent: Extent) {
        for cell in self.cells(extent) {
            assert_eq!(cell.swap(ALONE, Relaxed), 0, "somebody else is in {extent}");
        }
        self.cells(extent).iter().for_each(|cell| cell.store(0, Relaxed));
    }

    fn shared(&self, extent: Extent) {
        for cell in self.cells(extent) {
            assert!(cell.fetch_add(1, Relaxed) >= 0, "somebody is alone in {extent}");
        }
        self.cells(extent).iter().for_each(|cell| _ = cell.fetch_sub(1, Relaxed));
    }

    /// Mostly short, sometimes everything.
    fn extent(dice: &mut Dice) -> Extent {
        if dice.roll(50) == 0 {
            return Extent::ALL;
        }
        let first = dice.roll(CELLS);
        let length = 1 + dice.roll((CELLS - first).min(8));
        Extent::at(first, length).expect("not empty")
    }

    /// One operation of any kind.
    pub fn operate(&self, dice: &mut Dice) {
        let extent = Self::extent(dice);
        let patience = Duration::from_micros(dice.roll(100));
        match dice.roll(8) {
            0..3 => {
                let _guard = self.lock.read(extent);
                self.shared(extent);
            }
            3 => {
                let _guard = self.lock.write(extent);
                self.alone(extent);
            }
            4 => {
                if let Some(_guard) = self.lock.try_read(extent) {
                    self.shared(extent);
                }
            }
            5 => {
                if let Some(_guard) = self.lock.try_write_for(extent, patience) {
                    self.alone(extent);
                }
            }
            6 => {
                let guard = self.lock.write(extent);
                self.alone(extent);
                let _guard = RangeWriteGuard::downgrade(guard);
                self.shared(extent);
            }
            _ => self.hold_many(dice),
        }
    }

    /// More than there are slots, without waiting while something is held.
    fn hold_many(&self, dice: &mut Dice) {
        let extents: Vec<_> = (0..8).map(|_| Self::extent(dice)).collect();
        let guards = extents.iter().filter_map(|&extent| self.lock.try_read(extent));
        for guard in guards.collect::<Vec<_>>() {
            self.shared(fairlock::RangeReadGuard::extent(&guard));
        }
    }

    /// A guard that ends on another thread than the one that took it, which may be gone by then.
    pub fn pass_on(&self, dice: &mut Dice) {
        let extent = Self::extent(dice);
        thread::scope(|scope| {
            scope.spawn(|| {
                let guard = self.lock.read_arc(extent);
                scope.spawn(move || {
                    self.shared(extent);
                    drop(guard);
                });
            });
        });
    }

    /// # Panics
    /// If the lock is not as its users have left it.
    pub fn check(&self) {
        let all = self.lock.try_write(Extent::ALL).expect("nothing is held when all are done");
        self.alone(RangeWriteGuard::extent(&all));
    }
}

/// A child of `fork` goes on with a range that its parent holds, and with other ranges.
pub fn use_as_child(lock: &RangeLock, held: RangeWriteGuard<'_>) {
    let extent = RangeWriteGuard::extent(&held);
    assert!(lock.try_read(extent).is_none(), "it is held in the child, too");
    drop(held);
    drop(lock.write(Extent::ALL));
    drop(RangeLock::new().write(extent));
}
