//! How threads come to their lock: together, one after the other, or behind a holder so that all of them queue.
//!
//! Threads that start together come in an order that nobody chose, and what a queue looks like at first can decide what
//! it looks like for ever. Here each thread waits for its turn, and measuring begins with the last one:
//!
//! ```text
//! staggered   0 operates · 1 joins · … · the last one joins: measuring begins
//! queued      the holder holds · 0 asks · 1 asks · … · the last one asks · one more stagger: measuring begins,
//!                                                                            the holder releases and leaves
//! ```
//!
//! The holder is a thread of its own. One that went on would ask again before any of the others had woken up, steal the
//! lock from all of them, and stand elsewhere in the queue than in the order.
//!
//! A turn waits for the thread before it, never for the lock, so threads arrive whatever the lock does to them.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::world::World;

/// Sleeps are cut into parts so that a run that is cancelled ends soon.
const LONGEST_SLEEP_NS: u64 = 20_000_000;
/// A thread whose predecessor is late looks so many times in a stagger whether it has come.
const LOOKS: u64 = 16;

/// Threads that come one after the other.
pub(super) struct Arrival<'a> {
    threads: usize,
    stagger_ns: u64,
    /// Whether a thread more holds the lock until all of these wait for it.
    behind_a_holder: bool,
    /// Those that stand at the lock, the holder included.
    arrived: AtomicUsize,
    /// What else is to be done when measuring begins.
    at_the_beginning: Box<dyn Fn() + Sync + 'a>,
}

impl<'a> Arrival<'a> {
    /// So many threads, each `stagger_ns` after the one before it.
    pub(super) fn new(
        threads: usize,
        stagger_ns: u64,
        behind_a_holder: bool,
        at_the_beginning: impl Fn() + Sync + 'a,
    ) -> Arrival<'a> {
        let at_the_beginning = Box::new(at_the_beginning);
        let arrived = AtomicUsize::new(0);
        Arrival { threads, stagger_ns, behind_a_holder, arrived, at_the_beginning }
    }

    pub(super) fn has_holder(&self) -> bool {
        self.behind_a_holder
    }

    /// Waits until it is this thread's turn to ask for the lock for the first time.
    pub(super) fn arrive<W: World>(&self, world: &W, index: usize) {
        let turn = index + usize::from(self.behind_a_holder);
        self.sleep_until(world, world.now() + turn as u64 * self.stagger_ns, turn);
        self.note_arrival();
        if !self.behind_a_holder && turn + 1 == self.threads {
            self.begin(world);
        }
    }

    /// What the holder does with the lock held: waits until all threads wait for it.
    pub(super) fn hold<W: World>(&self, world: &W) {
        self.note_arrival();
        let all = self.threads + 1;
        self.sleep_until(world, world.now() + self.threads as u64 * self.stagger_ns, all);
        // The last one may have come late, and has to queue.
        self.sleep_until(world, world.now() + self.stagger_ns, all);
        self.begin(world);
    }

    fn note_arrival(&self) {
        // Relaxed, also where it is read: it says whose turn it is and publishes nothing.
        self.arrived.fetch_add(1, Ordering::Relaxed);
    }

    /// Until this moment, and until so many threads have arrived; or until the run is over.
    fn sleep_until<W: World>(&self, world: &W, moment: u64, arrived: usize) {
        while world.running() {
            let left = moment.saturating_sub(world.now());
            if left > 0 {
                world.sleep(left.min(LONGEST_SLEEP_NS));
            } else if self.arrived.load(Ordering::Relaxed) < arrived {
                world.sleep((self.stagger_ns / LOOKS).max(1));
            } else {
                break;
            }
        }
    }

    fn begin<W: World>(&self, world: &W) {
        if world.running() {
            (self.at_the_beginning)();
            world.begin_measuring();
        }
    }
}
