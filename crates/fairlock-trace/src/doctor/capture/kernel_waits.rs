//! Waits for the kernel's own locks: when they begin, where in the kernel, and when they end.

use std::collections::HashMap;
use std::io;

use perf_event::data::Sample;

use super::super::recorded::{Part, StackId, What, flags};
use super::budget::{Budget, Limits};
use super::census::runs;
use super::clock::now_ns;
use super::kept::{Kept, Seen, Sight};
use super::rings::{Kind, Opened, Rings, Wanted};
use super::tracepoint::{Field, Tracefs, Tracepoint};
use super::windows::Windows;

/// What recording them may cost: records of each CPU.
///
/// Measured on 2 CPUs, where 8 threads wait 250,000 times a second for one spin lock: a record then takes 16 µs of a CPU,
/// since its thread holds up the others, and 1,500 of them 2.4 % of its time. A window of 1,000 is over in 20 ms then.
const LIMITS: Limits = Limits { per_second: 1500.0, most: 2000.0, worthwhile: 1000.0 };

/// Threads of which it is looked at whether their waits outlast a window.
const MOST_CARRIED: usize = 1000;

/// A wait began.
pub const BEGINS: Kind = 0;
/// A wait ended.
pub const ENDS: Kind = 1;

/// The kernel's two tracepoints.
pub struct Tracepoints {
    begin: Tracepoint,
    end: Tracepoint,
}

impl Tracepoints {
    /// None: this kernel is older than 5.19.
    pub fn find(tracefs: &Tracefs) -> Option<Tracepoints> {
        let begin = tracefs.tracepoint("lock/contention_begin").ok()?;
        Some(Tracepoints { begin, end: tracefs.tracepoint("lock/contention_end").ok()? })
    }
}

/// This part of the recording. Its events stay open; between windows they are disabled, which costs nothing.
pub struct KernelWaits {
    begins: Opened,
    ends: Opened,
    /// What it may still cost.
    pub budget: Budget,
    lock: Field,
    flags: Field,
    ended_lock: Field,
    result: Field,
    /// Waits that were under way when the last window ended, by thread: they may be still.
    under_way: HashMap<u32, Waiting>,
    /// Waits that slept, since somebody asked.
    slept: u64,
}

/// A wait, and what tells that it is still the same one.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    cpu: u32,
    lock: u64,
    flags: u32,
    stack: StackId,
    /// How often the thread has run.
    runs: u64,
}

impl KernelWaits {
    /// Opens the events, disabled.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn new(
        rings: &mut Rings,
        Tracepoints { begin, end }: &Tracepoints,
    ) -> io::Result<KernelWaits> {
        let with_calls = Wanted { kernel_calls: true, ..Wanted::default() };
        Ok(KernelWaits {
            begins: rings.open(BEGINS, begin.id, with_calls, None)?,
            ends: rings.open(ENDS, end.id, Wanted::default(), None)?,
            budget: Budget::new(LIMITS, rings.cpus().len(), now_ns()),
            lock: begin.field("lock_addr"),
            flags: begin.field("flags"),
            ended_lock: end.field("lock_addr"),
            result: end.field("ret"),
            under_way: HashMap::new(),
            slept: 0,
        })
    }

    /// Begins a window.
    pub fn open(&mut self, rings: &mut Rings, windows: &mut Windows, kept: &mut Kept) {
        // Ends first, so that each wait that is seen to begin can be seen to end.
        if let Err(error) =
            rings.enable(&mut self.ends).and_then(|()| rings.enable(&mut self.begins))
        {
            kept.note(format!("Waits for the kernel's locks could not be recorded: {error}."));
            return;
        }
        let at_ns = now_ns();
        windows.open(Part::KernelWaits, at_ns);
        for (thread, wait) in self.under_way.drain() {
            if runs(thread) == Some(wait.runs) {
                let Waiting { cpu, lock, flags, stack, .. } = wait;
                let what = Sight::Event(What::KernelWaitBegins { lock, flags, stack });
                kept.events.push(Seen { at_ns, cpu, thread, what });
            }
        }
    }

    /// Ends the window. What was recorded is in the rings.
    pub fn close(&mut self, windows: &mut Windows) {
        windows.close(Part::KernelWaits, now_ns());
        self.begins.disable();
        self.ends.disable();
    }

    /// Its events.
    pub fn events(&self) -> impl Iterator<Item = &Opened> {
        [&self.ends, &self.begins].into_iter()
    }

    /// Remembers the waits that are under way at the end of a window that began then, and whose records were all read.
    pub fn carry(&mut self, kept: &Kept, from_ns: u64) {
        self.under_way.clear();
        for Seen { cpu, thread, what, .. } in kept.since(from_ns) {
            match what {
                Sight::Event(What::KernelWaitBegins { lock, flags, stack }) => {
                    self.under_way.insert(thread, Waiting { cpu, lock, flags, stack, runs: 0 });
                }
                Sight::Event(What::KernelWaitEnds { .. }) => {
                    self.under_way.remove(&thread);
                }
                _ => {}
            }
        }
        let mut room = MOST_CARRIED;
        self.under_way.retain(|&thread, wait| {
            // A thread that spins runs.
            let Some(runs) = runs(thread).filter(|_| room > 0 && wait.flags & flags::SPIN == 0)
            else {
                return false;
            };
            room -= 1;
            wait.runs = runs;
            true
        });
    }

    /// Forgets the waits that are under way.
    pub fn forget(&mut self) {
        self.under_way.clear();
    }

    /// What a record says; none if it is about the recorder itself, or cut off.
    pub fn seen(&mut self, kind: Kind, sample: &Sample, kept: &mut Kept) -> Option<Seen> {
        let raw = sample.raw()?;
        let what = if kind == BEGINS {
            let stack = kept.kernel_stack(sample.callchain().unwrap_or_default());
            let flags = self.flags.unsigned(raw)? as u32;
            self.slept += u64::from(flags & flags::SPIN == 0);
            What::KernelWaitBegins { lock: self.lock.unsigned(raw)?, flags, stack }
        } else {
            let gave_up = self.result.signed(raw)? != 0;
            What::KernelWaitEnds { lock: self.ended_lock.unsigned(raw)?, gave_up }
        };
        kept.seen(sample, Sight::Event(what))
    }

    /// Waits that slept since the last call.
    pub fn take_slept(&mut self) -> u64 {
        std::mem::take(&mut self.slept)
    }
}
