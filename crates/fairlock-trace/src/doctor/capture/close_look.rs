//! A close look, for a few ms at a time: who ran, who woke whom, and what was read and written where.
//!
//! All this is far too frequent to be recorded always. Waits that are seen elsewhere say when a look is worth it.

use std::io;

use perf_event::data::Sample;

use super::super::recorded::{FileCall, Part, What};
use super::budget::{Budget, Limits};
use super::clock::now_ns;
use super::closing::Closing;
use super::files::FileCallBegin;
use super::kept::{Kept, Seen, Sight};
use super::rings::{Kind, Opened, Rings, Wanted};
use super::tracepoint::{Field, Tracefs, Tracepoint};
use super::windows::Windows;

/// What it may cost: ns of each CPU. 0.5 % of its time.
const LIMITS: Limits = Limits { per_second: 5e6, most: 1e7, worthwhile: 2.5e6 };
/// A look is over after so long, ns,
const LONGEST_NS: u64 = 20_000_000;
/// and the next one begins no earlier than so long after it has begun.
const EVERY_NS: u64 = 1_000_000_000;
/// Waits that make a look worth it.
const ENOUGH_WAITS: u64 = 20;
/// Calls that are not recorded take so many times as long as while only `futex` is traced: each is compared with a list.
pub const CALL_FACTOR: f64 = 3.0;

/// The CPU went from one thread to another.
pub const SWITCH: Kind = 6;
/// A thread is woken.
pub const WAKING: Kind = 7;
/// A call of the kernel began.
pub const CALL_BEGINS: Kind = 8;
/// One ended.
pub const CALL_ENDS: Kind = 9;

/// Calls that read or write files, and what they are; none: the one that sets a descriptor's position.
const CALLS: [(libc::c_long, Option<FileCall>); 11] = [
    (libc::SYS_read, Some(FileCall::Read)),
    (libc::SYS_write, Some(FileCall::Write)),
    (libc::SYS_pread64, Some(FileCall::Read)),
    (libc::SYS_pwrite64, Some(FileCall::Write)),
    (libc::SYS_lseek, None),
    (libc::SYS_readv, Some(FileCall::Read)),
    (libc::SYS_writev, Some(FileCall::Write)),
    (libc::SYS_preadv, Some(FileCall::Read)),
    (libc::SYS_pwritev, Some(FileCall::Write)),
    (libc::SYS_preadv2, Some(FileCall::Read)),
    (libc::SYS_pwritev2, Some(FileCall::Write)),
];

/// The kernel's filter for these calls. One tracepoint of all calls is opened and closed several times as fast as one for
/// each of them.
fn filter() -> String {
    CALLS.map(|(number, _)| format!("id == {number}")).join(" || ")
}

/// The kernel's tracepoints.
pub struct Tracepoints {
    switch: Tracepoint,
    waking: Tracepoint,
    /// Calls of the kernel; none: it was built without them.
    calls: Option<(Tracepoint, Tracepoint)>,
}

impl Tracepoints {
    /// None: this kernel was built without them.
    pub fn find(tracefs: &Tracefs) -> Option<Tracepoints> {
        let found = |name: &str| tracefs.tracepoint(name).ok();
        Some(Tracepoints {
            switch: found("sched/sched_switch")?,
            waking: found("sched/sched_waking")?,
            calls: found("raw_syscalls/sys_enter").zip(found("raw_syscalls/sys_exit")),
        })
    }
}

/// This part of the recording. Between looks, events of the scheduler are disabled and those of calls are closed, since the
/// kernel takes a longer way for all calls while some are traced.
pub struct CloseLook {
    tracepoints: Tracepoints,
    scheduler: Vec<Opened>,
    calls: Vec<Opened>,
    /// What it may still cost.
    pub budget: Budget,
    fields: Fields,
    began_ns: u64,
    /// Waits since the last look.
    waits: u64,
}

#[derive(Default)]
struct Fields {
    flags: Field,
    previous_state: Field,
    previous_priority: Field,
    next: Field,
    next_priority: Field,
    next_name: Field,
    woken: Field,
    woken_name: Field,
    call: Field,
    arguments: Field,
    result: Field,
}

impl CloseLook {
    /// Opens the scheduler's events, disabled.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn new(rings: &mut Rings, tracepoints: Tracepoints) -> io::Result<CloseLook> {
        let Tracepoints { switch, waking, calls } = &tracepoints;
        let mut open = |kind, tracepoint: &Tracepoint| {
            rings.open(kind, tracepoint.id, Wanted::default(), None)
        };
        let scheduler = vec![open(SWITCH, switch)?, open(WAKING, waking)?];
        let (enter, exit) = calls.clone().unwrap_or_default();
        let fields = Fields {
            flags: waking.field("common_flags"),
            previous_state: switch.field("prev_state"),
            previous_priority: switch.field("prev_prio"),
            next: switch.field("next_pid"),
            next_priority: switch.field("next_prio"),
            next_name: switch.field("next_comm"),
            woken: waking.field("pid"),
            woken_name: waking.field("comm"),
            call: enter.field("id"),
            arguments: enter.field("args"),
            result: exit.field("ret"),
        };
        let budget = Budget::new(LIMITS, rings.cpus().len(), now_ns());
        Ok(CloseLook {
            tracepoints,
            scheduler,
            calls: Vec::new(),
            budget,
            fields,
            began_ns: 0,
            waits: 0,
        })
    }

    /// Counts waits that were seen.
    pub fn count(&mut self, waits: u64) {
        self.waits += waits;
    }

    /// Whether a look is to begin now.
    pub fn is_worth_it(&self, now_ns: u64) -> bool {
        let is_time = self.began_ns == 0 || now_ns >= self.began_ns + EVERY_NS;
        is_time && self.waits >= ENOUGH_WAITS && self.budget.allows_a_window()
    }

    /// Whether the look is to end now.
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.began_ns + LONGEST_NS || self.budget.is_spent()
    }

    /// Begins a look.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn open(
        &mut self,
        rings: &mut Rings,
        windows: &mut Windows,
        kept: &mut Kept,
    ) -> io::Result<()> {
        if let Some((enter, exit)) = &self.tracepoints.calls {
            let filter = filter();
            for (kind, tracepoint) in [(CALL_ENDS, exit), (CALL_BEGINS, enter)] {
                self.calls.push(rings.open(
                    kind,
                    tracepoint.id,
                    Wanted::default(),
                    Some(&filter),
                )?);
            }
        }
        kept.files.forget_descriptors();
        let mut events = self.scheduler.iter_mut().chain(&mut self.calls);
        events.try_for_each(|opened| rings.enable(opened))?;
        self.waits = 0;
        self.began_ns = now_ns();
        windows.open(Part::CloseLook, self.began_ns);
        Ok(())
    }

    /// Ends the look. What was recorded is in the rings.
    pub fn stop(&mut self, windows: &mut Windows) {
        windows.close(Part::CloseLook, now_ns());
        self.calls.iter_mut().chain(&mut self.scheduler).for_each(Opened::disable);
    }

    /// Closes the events of calls, after their records were read.
    pub fn close(&mut self, rings: &mut Rings, closing: &Closing) {
        let opened = std::mem::take(&mut self.calls);
        opened.iter().for_each(|opened| rings.forget(opened));
        closing.close(opened);
    }

    /// Its events.
    pub fn events(&self) -> impl Iterator<Item = &Opened> {
        self.calls.iter().chain(&self.scheduler)
    }

    /// How long the look has lasted, ns.
    pub fn lasted_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.began_ns)
    }

    /// What a record says; none if it is about the recorder itself or no file, or cut off.
    pub fn seen(&self, kind: Kind, sample: &Sample, kept: &mut Kept) -> Option<Seen> {
        let raw = sample.raw()?;
        let fields = &self.fields;
        match kind {
            SWITCH => {
                let to = fields.next.unsigned(raw)? as u32;
                kept.threads.see_named(to, &|| fields.next_name.text(raw));
                let what = What::Switch {
                    // Bits above these eight say that it was preempted while it was about to sleep.
                    sleeps: fields.previous_state.unsigned(raw)? & 0xff != 0,
                    to,
                    priority: fields.previous_priority.signed(raw)? as i32,
                    to_priority: fields.next_priority.signed(raw)? as i32,
                };
                // The recorder takes CPUs like any other thread.
                kept.seen_of_anybody(sample, Sight::Event(what))
            }
            WAKING => {
                const IN_INTERRUPT: u64 = 0x08 | 0x10;
                let thread = fields.woken.unsigned(raw)? as u32;
                kept.threads.see_named(thread, &|| fields.woken_name.text(raw));
                let mut seen = kept.seen(sample, Sight::Event(What::Wakes { thread }))?;
                if fields.flags.unsigned(raw)? & IN_INTERRUPT != 0 {
                    // The interrupted thread has nothing to do with it.
                    kept.threads.see(0, 0);
                    seen.thread = 0;
                }
                Some(seen)
            }
            CALL_BEGINS => {
                let number = fields.call.signed(raw)?;
                let (_, call) = CALLS.into_iter().find(|&(it, _)| it == number)?;
                let argument = |place| fields.arguments.element(raw, place);
                let (pid, descriptor) = (sample.pid()?, argument(0)? as u32);
                if pid == kept.own_pid {
                    return None;
                }
                let found = kept.files.descriptor(pid, descriptor)?;
                let begin = FileCallBegin {
                    call,
                    pid,
                    descriptor,
                    file: found.file,
                    offset: match number {
                        libc::SYS_pread64
                        | libc::SYS_pwrite64
                        | libc::SYS_preadv
                        | libc::SYS_pwritev => Some(argument(3)?),
                        // −1 means the descriptor's position.
                        libc::SYS_preadv2 | libc::SYS_pwritev2 => {
                            Some(argument(3)?).filter(|&it| it != u64::MAX)
                        }
                        _ => None,
                    },
                    // Of a list of buffers only their number is known.
                    bytes: match number {
                        libc::SYS_read
                        | libc::SYS_write
                        | libc::SYS_pread64
                        | libc::SYS_pwrite64 => argument(2)?,
                        _ => 0,
                    },
                    appends: found.appends && call == Some(FileCall::Write),
                };
                kept.seen(sample, Sight::FileCallBegins(begin))
            }
            _ => kept.seen(sample, Sight::FileCallEnds(fields.result.signed(raw)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_filter_lists_each_call_once() {
        let filter = filter();
        assert_eq!(filter.split(" || ").count(), CALLS.len());
        assert!(filter.contains(&format!("id == {}", libc::SYS_pwritev2)));
    }
}
