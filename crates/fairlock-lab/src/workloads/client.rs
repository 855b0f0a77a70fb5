//! One thread's timed and checked operations under the lock.

use fairlock_report::timeline::{HOLD_READ, HOLD_WRITE, WAIT_READ, WAIT_WRITE};

use super::Failure;

use crate::locks::LabLock;
use crate::measure::{Acquisitions, RoleRecorder};
use crate::world::World;

/// From this wait on an operation is always looked at closely, sampled or not: starvation is
/// what the lab is about, and another clock read is nothing against such a wait.
const LONG_WAIT_NS: u64 = 50_000;

/// What a thread tells a timeline when it neither waits nor holds.
pub(super) const NOTHING: &str = "";

/// How closely to look at one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Count it only: two clock reads take longer than the fastest locks' whole read.
    Count,
    /// Time the wait only.
    Wait,
    /// Also time the hold, and count the readers that pass a writer.
    Whole,
}

/// A thread's access to the lock under test, with its recorders.
pub(super) struct Client<'a, W, L> {
    world: &'a W,
    lock: &'a L,
    acquisitions: &'a Acquisitions,
    index: usize,
    last_write_was_long: bool,
    /// False while threads arrive, see [`Client::of_arriving_thread`].
    is_measured: bool,
    pub(super) reader: RoleRecorder,
    pub(super) writer: RoleRecorder,
}

impl<'a, W: World, L: LabLock> Client<'a, W, L> {
    pub(super) fn new(
        world: &'a W,
        lock: &'a L,
        acquisitions: &'a Acquisitions,
        index: usize,
    ) -> Self {
        Client {
            world,
            lock,
            acquisitions,
            index,
            // A writer that starves from its first operation on is counted from there.
            last_write_was_long: true,
            is_measured: true,
            reader: RoleRecorder::default(),
            writer: RoleRecorder::default(),
        }
    }

    /// The same for a thread that operates before measuring begins. Of an operation that is under way at that moment
    /// the rest is recorded.
    pub(super) fn of_arriving_thread(self) -> Self {
        Client { is_measured: false, ..self }
    }

    /// What there is to record of an operation with these times that has just ended: none if measuring has not begun,
    /// and otherwise no time before it began.
    #[inline]
    fn measured<const N: usize>(&mut self, times: [u64; N]) -> Option<[u64; N]> {
        if self.is_measured { Some(times) } else { self.first_measured(times) }
    }

    #[cold]
    fn first_measured<const N: usize>(&mut self, times: [u64; N]) -> Option<[u64; N]> {
        let since = self.world.measured_since()?;
        self.is_measured = true;
        Some(no_earlier(times, since))
    }

    /// One read around `inside`, which says how many bytes it moved.
    #[inline]
    pub(super) fn read(
        &mut self,
        look: Look,
        inside: impl FnOnce() -> Result<u64, Failure>,
    ) -> Result<(), Failure> {
        let world = self.world;
        world.mark(WAIT_READ);
        if look == Look::Count {
            let bytes = self.lock.read(|data| {
                world.mark(HOLD_READ);
                self.acquisitions.count(self.index);
                let result = data.read_around(inside);
                world.mark(NOTHING);
                result
            })??;
            match self.measured([]) {
                Some([]) => count(world, &mut self.reader, bytes),
                None => count_arriving(&mut self.reader),
            }
            return Ok(());
        }
        let asked = world.now();
        let (got, result) = self.lock.read(|data| {
            world.mark(HOLD_READ);
            let got = world.now();
            self.acquisitions.count(self.index);
            let result = data.read_around(inside);
            world.mark(NOTHING);
            (got, result)
        });
        let bytes = result??;
        match self.measured([asked, got]) {
            Some([asked, got]) => record(world, &mut self.reader, look, asked, got, bytes),
            None => count_arriving(&mut self.reader),
        }
        Ok(())
    }

    /// One write around `inside`, which says how many bytes it moved. Writes are always timed.
    ///
    /// The bypass is read inside the section, before waiting readers can follow; it may count a
    /// reader that got the lock just before this writer asked and counted itself just after.
    #[inline]
    pub(super) fn write(
        &mut self,
        look: Look,
        inside: impl FnOnce() -> Result<u64, Failure>,
    ) -> Result<(), Failure> {
        let count_bypass = look == Look::Whole || self.last_write_was_long;
        let before = count_bypass.then(|| self.acquisitions.total());
        let world = self.world;
        world.mark(WAIT_WRITE);
        let asked = world.now();
        let (got, bypass, result) = self.lock.write(|data| {
            world.mark(HOLD_WRITE);
            let got = world.now();
            let bypass = before.map(|before| self.acquisitions.total() - before);
            let result = data.write_around(inside);
            world.mark(NOTHING);
            (got, bypass, result)
        });
        let bytes = result??;
        // Nobody knows how many readers passed before measuring began.
        let bypass = bypass.filter(|_| self.is_measured);
        let Some([asked, got]) = self.measured([asked, got]) else {
            count_arriving(&mut self.writer);
            return Ok(());
        };
        if let Some(readers) = bypass {
            self.writer.bypassed_by(readers);
        }
        self.last_write_was_long = got.saturating_sub(asked) >= LONG_WAIT_NS;
        record(world, &mut self.writer, look, asked, got, bytes);
        Ok(())
    }
}

fn no_earlier<const N: usize>(times: [u64; N], since: u64) -> [u64; N] {
    times.map(|time| time.max(since))
}

/// One write that nobody records.
pub(super) fn hold<W: World, L: LabLock>(
    world: &W,
    lock: &L,
    inside: impl FnOnce(),
) -> Result<(), Failure> {
    world.mark(WAIT_WRITE);
    lock.write(|data| {
        world.mark(HOLD_WRITE);
        let result = data.write_around(inside);
        world.mark(NOTHING);
        result
    })?;
    Ok(())
}

/// Books an operation whose lock was just released.
#[inline]
fn record<W: World>(
    world: &W,
    recorder: &mut RoleRecorder,
    look: Look,
    asked: u64,
    got: u64,
    bytes: u64,
) {
    // Two CPUs' time stamp counters may differ by a few ticks.
    let wait = got.saturating_sub(asked);
    recorder.wait.record(wait);
    if look == Look::Whole {
        let released = world.now();
        recorder.hold.record(released.saturating_sub(got));
        recorder.latency.record(released.saturating_sub(asked));
    } else if wait >= LONG_WAIT_NS {
        recorder.latency.raise_max(world.now().saturating_sub(asked));
    }
    count(world, recorder, bytes);
}

/// Books an operation that has no lock to be seen: its wait is all of it. False when the run is over.
pub(super) fn record_whole<W: World>(
    world: &W,
    recorder: &mut RoleRecorder,
    started: u64,
    bytes: u64,
) -> bool {
    let latency = world.now().saturating_sub(started);
    recorder.wait.record(latency);
    recorder.latency.record(latency);
    recorder.executed += 1;
    let running = world.running();
    if running {
        recorder.ops += 1;
        recorder.bytes += bytes;
    }
    running
}

fn count_arriving(recorder: &mut RoleRecorder) {
    recorder.executed += 1;
    recorder.arriving += 1;
}

#[inline]
fn count<W: World>(world: &W, recorder: &mut RoleRecorder, bytes: u64) {
    recorder.executed += 1;
    if world.running() {
        recorder.ops += 1;
        recorder.bytes += bytes;
    }
}
