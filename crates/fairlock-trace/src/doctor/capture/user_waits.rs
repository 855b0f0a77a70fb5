//! Waits of programs: calls of the kernel that wait at a futex, which all locks of programs use to sleep.
//!
//! While one kind of call is traced, the kernel takes a longer way for all calls of all programs. So the events are closed
//! between windows, and what that longer way costs counts.

use std::collections::HashMap;
use std::io;

use perf_event::Counter;
use perf_event::data::{Sample, SampleRegsAbi};

use super::super::recorded::{Part, What};
use super::budget::{Budget, Limits};
use super::census::Census;
use super::clock::now_ns;
use super::closing::Closing;
use super::futex;
use super::kept::{Kept, Seen, Sight};
use super::rings::{Kind, Opened, Rings, Wanted};
use super::tracepoint::{Field, Tracefs, Tracepoint};
use super::unwinding::Registers;
use super::windows::Windows;

/// What recording them may cost: ns of each CPU. 1 % of its time, and no window that is not worth opening the events.
const LIMITS: Limits = Limits { per_second: 1e7, most: 2e7, worthwhile: 1e7 };

/// What is copied of a program's stack: the C library's calls take up to 400 bytes, and those of a lock's user a few
/// hundred more.
const STACK_BYTES: u32 = 2048;

/// A call of `futex` that waits began.
pub const BEGINS: Kind = 2;
/// A call of `futex` ended.
pub const ENDS: Kind = 3;
/// A call of `futex_wait` began.
pub const WAIT_BEGINS: Kind = 4;
/// A call of `futex_wait` ended.
pub const WAIT_ENDS: Kind = 5;

/// The kernel's tracepoints.
pub struct Tracepoints {
    enter: Tracepoint,
    exit: Tracepoint,
    /// Of `futex_wait`, where the kernel has it.
    newer: Option<(Tracepoint, Tracepoint)>,
    /// All calls of the kernel, to count them.
    all: Option<Tracepoint>,
}

impl Tracepoints {
    /// None: this kernel was built without them.
    pub fn find(tracefs: &Tracefs) -> Option<Tracepoints> {
        let found = |name: &str| tracefs.tracepoint(name).ok();
        Some(Tracepoints {
            enter: found("syscalls/sys_enter_futex")?,
            exit: found("syscalls/sys_exit_futex")?,
            newer: found("syscalls/sys_enter_futex_wait")
                .zip(found("syscalls/sys_exit_futex_wait")),
            all: found("raw_syscalls/sys_enter"),
        })
    }
}

/// This part of the recording.
pub struct UserWaits {
    tracepoints: Tracepoints,
    opened: Vec<Opened>,
    /// What it may still cost.
    pub budget: Budget,
    address: Field,
    result: Field,
    newer_address: Field,
    newer_result: Field,
    /// Waits that slept, since somebody asked.
    slept: u64,
}

impl UserWaits {
    /// Opens nothing yet.
    pub fn new(tracepoints: Tracepoints, cpus: usize) -> UserWaits {
        let Tracepoints { enter, exit, newer, .. } = &tracepoints;
        let newer_field = |name| {
            let (enter, exit) = newer.as_ref()?;
            Some((enter.field(name), exit.field("ret")))
        };
        let (newer_address, newer_result) = newer_field("uaddr").unwrap_or_default();
        UserWaits {
            opened: Vec::new(),
            budget: Budget::new(LIMITS, cpus, now_ns()),
            address: enter.field("uaddr"),
            result: exit.field("ret"),
            newer_address,
            newer_result,
            slept: 0,
            tracepoints,
        }
    }

    /// Opens events that count all calls of the kernel, where it can.
    pub fn counters(&self, rings: &Rings) -> io::Result<Vec<Counter>> {
        let Some(all) = &self.tracepoints.all else { return Ok(Vec::new()) };
        rings.count(all.id)
    }

    /// Begins a window.
    ///
    /// # Errors
    /// Those of perf_event_open(2).
    pub fn open(&mut self, rings: &mut Rings, windows: &mut Windows) -> io::Result<()> {
        let Tracepoints { enter, exit, newer, .. } = &self.tracepoints;
        let with_stack =
            Wanted { registers: Registers::WANTED, stack_bytes: STACK_BYTES, ..Wanted::default() };
        // Ends first, so that each wait that is seen to begin can be seen to end. A call that woke somebody was no wait.
        let ended = Some("ret <= 0");
        let mut open = |kind, tracepoint: &Tracepoint, wanted, filter: Option<&str>| {
            self.opened.push(rings.open(kind, tracepoint.id, wanted, filter)?);
            io::Result::Ok(())
        };
        open(ENDS, exit, Wanted::default(), ended)?;
        open(BEGINS, enter, with_stack, Some(&futex::filter()))?;
        if let Some((enter, exit)) = newer {
            open(WAIT_ENDS, exit, Wanted::default(), ended)?;
            open(WAIT_BEGINS, enter, with_stack, None)?;
        }
        self.opened.iter_mut().try_for_each(|opened| rings.enable(opened))?;
        windows.open(Part::UserWaits, now_ns());
        Ok(())
    }

    /// Ends the window. What was recorded is in the rings.
    pub fn stop(&mut self, windows: &mut Windows) {
        windows.close(Part::UserWaits, now_ns());
        self.opened.iter_mut().for_each(Opened::disable);
    }

    /// Closes the events, after their records were read.
    pub fn close(&mut self, rings: &mut Rings, closing: &Closing) {
        let opened = std::mem::take(&mut self.opened);
        opened.iter().for_each(|opened| rings.forget(opened));
        closing.close(opened);
    }

    /// Its events.
    pub fn events(&self) -> impl Iterator<Item = &Opened> {
        self.opened.iter()
    }

    /// Remembers the waits that are under way at the end of a window that began then, and whose records were all read.
    pub fn carry(&self, kept: &Kept, from_ns: u64, census: &mut Census) {
        let mut waiting = HashMap::new();
        for Seen { thread, what, .. } in kept.since(from_ns) {
            match what {
                Sight::Event(What::UserWaitBegins { address, stack }) => {
                    waiting.insert(thread, (address, stack));
                }
                Sight::FutexEnds(_) => {
                    waiting.remove(&thread);
                }
                _ => {}
            }
        }
        census.remember(
            waiting.into_iter().map(|(thread, (address, stack))| (thread, address, stack)),
        );
    }

    /// What a record says; none if it is about the recorder itself, or cut off.
    pub fn seen(&mut self, kind: Kind, sample: &Sample, kept: &mut Kept) -> Option<Seen> {
        let raw = sample.raw()?;
        if sample.pid()? == kept.own_pid {
            return None;
        }
        let what = match kind {
            BEGINS | WAIT_BEGINS => {
                let address =
                    if kind == BEGINS { self.address } else { self.newer_address }.unsigned(raw)?;
                self.slept += 1;
                let registers = sample.regs_user().filter(|it| it.abi == SampleRegsAbi::ABI_64);
                let registers = registers.and_then(|it| Registers::of(&it.regs));
                Sight::Event(What::UserWaitBegins {
                    address,
                    stack: kept.user_stack(sample, registers, 0),
                })
            }
            _ => Sight::FutexEnds(
                if kind == ENDS { self.result } else { self.newer_result }.signed(raw)? as i32,
            ),
        };
        kept.seen(sample, what)
    }

    /// Waits since the last call.
    pub fn take_slept(&mut self) -> u64 {
        std::mem::take(&mut self.slept)
    }
}
