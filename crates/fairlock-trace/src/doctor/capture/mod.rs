//! Recording a running system: what its threads wait for, at a cost that is bounded.
//!
//! The kernel writes records of chosen moments into a ring for each CPU, and this process reads them. Nothing of what is
//! recorded is stopped, changed or preloaded.
//!
//! | | |
//! |---|---|
//! | `permission` | whether this machine can be recorded, and what to do where it cannot |
//! | `clock` | the clock of records |
//! | `tracepoint` | the kernel's tracepoints: numbers and fields |
//! | `allowance` | how much the kernel may write before it was read |
//! | `rings` | where the kernel writes records |
//! | `closing` | closing events, which takes long |
//! | `budget` | what recording may cost |
//! | `cost` | what it does cost |
//! | `windows` | when what was recorded |
//! | `threads` | who threads are |
//! | `stacks` | stacks of calls, each kept once |
//! | `unwinding` | where in a program a thread is |
//! | `files` | files by descriptors |
//! | `kept` | what was read, and what it means in order of time |
//! | `futex` | which calls wait at futexes |
//! | `census` | who waits right now |
//! | `kernel_waits`, `user_waits`, `close_look`, `calls` | the parts of the recording |
//!
//! # What it costs
//!
//! A record takes a few µs of the thread that it is about, and more where others wait for that thread meanwhile. So each
//! part of the recording has a budget: where its events are rare it is always on, where they are frequent
//! it is on for a part of the time. [`Windows`](super::recorded::Window) say when it was.
//!
//! Not for: what the records mean, which is computed from the [`Recording`].

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use fairlock_report::machine;

use super::names::Names;
use super::recorded::{Part, Recording, System};

mod allowance;
mod budget;
mod calls;
mod census;
mod clock;
mod close_look;
mod closing;
mod cost;
mod files;
mod futex;
mod kept;
mod kernel_waits;
#[cfg(test)]
mod live_tests;
mod permission;
mod rings;
mod stacks;
mod threads;
mod tracepoint;
mod unwinding;
mod user_waits;
mod windows;

pub use permission::Refusal;

use calls::LockCalls;
use census::Census;
use clock::now_ns;
use close_look::CloseLook;
use closing::Closing;
use cost::{Calls, Meter, Prices, Rates};
use kept::Kept;
use kernel_waits::KernelWaits;
use permission::Facts;
use rings::{Kind, Opened, Read, Rings};
use stacks::Stacks;
use tracepoint::Tracefs;
use user_waits::UserWaits;
use windows::Windows;

/// What is recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The processes that the report is about; empty: all. Other processes are recorded too, but not where in them a wait
    /// was.
    pub pids: Vec<u32>,
    /// Calls of the C library's lock functions in these processes are recorded, too; there have to be some.
    pub traces_calls: bool,
    /// Everything is recorded all the time, whatever it costs the programs.
    pub records_everything: bool,
}

/// The reader looks so often while there are records,
const BUSY: Duration = Duration::from_millis(10);
/// and so often while there are nearly none.
const IDLE: Duration = Duration::from_millis(50);
/// While something is recorded for a few ms it has to look when that is over.
const SHORT: Duration = Duration::from_millis(4);
/// Records in one go that make it busy.
const MANY_RECORDS: u64 = 100;
/// Parts of the recording.
const PARTS: usize = 4;
/// The reader's niceness: before ordinary threads, after real-time ones.
const NICENESS: libc::c_int = -10;

/// A recording under way.
pub struct Capture {
    options: Options,
    facts: Facts,
    rings: Rings,
    closing: Closing,
    kernel_waits: Option<KernelWaits>,
    user_waits: Option<UserWaits>,
    close_look: Option<CloseLook>,
    calls: Option<LockCalls>,
    census: Census,
    windows: Windows,
    names: Names,
    kept: Kept,
    prices: Option<Prices>,
    /// How many calls of the kernel are made, and what counts them.
    rates: Rates,
    meter: Option<Meter>,
    traced_syscalls: f64,
    /// Calls are still traced since then, because of events of this part that are being closed.
    closed: Option<(Part, u64)>,
    began: Began,
}

/// When the recording, or this part of it, began.
struct Began {
    date: String,
    at_ns: u64,
    own_cpu_ns: u64,
}

impl Capture {
    /// Begins to record.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn start(options: &Options) -> Result<Capture, Refusal> {
        if options.traces_calls && options.pids.is_empty() {
            return Err(permission::traces_nobody());
        }
        let mut facts = Facts::find();
        let tracefs = Tracefs::find();
        facts.tracefs = tracefs.as_ref().err().map(io::Error::kind);
        let contention = tracefs.as_ref().ok().and_then(kernel_waits::Tracepoints::find);
        let futexes = tracefs.as_ref().ok().and_then(user_waits::Tracepoints::find);
        facts.has_contention = contention.is_some();
        facts.has_futexes = futexes.is_some();
        let tracefs = match (tracefs, permission::refusal(&facts)) {
            (Ok(tracefs), None) => tracefs,
            (_, refusal) => return Err(refusal.expect("nothing can be recorded without tracefs")),
        };
        Capture::open(options, &facts, &tracefs, contention, futexes).map_err(|error| {
            let error = error.raw_os_error().unwrap_or(libc::EINVAL);
            let facts = Facts { perf_event_open: Some(error), ..facts };
            permission::refusal(&facts).expect("a call that fails is refused")
        })
    }

    fn open(
        options: &Options,
        facts: &Facts,
        tracefs: &Tracefs,
        contention: Option<kernel_waits::Tracepoints>,
        futexes: Option<user_waits::Tracepoints>,
    ) -> io::Result<Capture> {
        // Rings have to be read before they are full. It does no harm where that is not permitted.
        // SAFETY: the calls take numbers only.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, NICENESS) };
        allow_many_files();
        let began =
            Began { date: machine::date(), at_ns: now_ns(), own_cpu_ns: cost::own_cpu_ns() };
        let mut rings = Rings::new()?;
        let scheduler = close_look::Tracepoints::find(tracefs);
        let cpus = rings.cpus().len();
        let mut capture = Capture {
            options: options.clone(),
            facts: facts.clone(),
            kernel_waits: contention.map(|it| KernelWaits::new(&mut rings, &it)).transpose()?,
            user_waits: futexes.map(|it| UserWaits::new(it, cpus)),
            close_look: scheduler.map(|it| CloseLook::new(&mut rings, it)).transpose()?,
            calls: None,
            closing: Closing::new(),
            rings,
            census: Census::default(),
            windows: Windows::default(),
            names: Names::new(),
            kept: Kept {
                own_pid: std::process::id(),
                pids: options.pids.clone(),
                ..Kept::default()
            },
            prices: None,
            rates: Rates::new(cpus),
            meter: None,
            traced_syscalls: 0.0,
            closed: None,
            began,
        };
        if options.traces_calls {
            match LockCalls::new(tracefs, &mut capture.kept, cpus) {
                Ok(calls) => capture.calls = Some(calls),
                Err(error) => capture.kept.note(format!(
                    "Calls of lock functions were not traced: breakpoints in programs cannot be set here ({error})."
                )),
            }
        }
        capture.steer();
        Ok(capture)
    }

    /// Records until then, or until `stopped` says that it is enough, which it is asked at least every 50 ms.
    pub fn run_until(&mut self, end: Instant, stopped: &dyn Fn() -> bool) {
        loop {
            let read = self.read();
            self.steer();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || stopped() {
                return;
            }
            let is_short = |part| self.windows.is_open(part) && !self.options.records_everything;
            let pause = if is_short(Part::CloseLook) || is_short(Part::Calls) {
                SHORT
            } else if self.rates.is_counting() || read > MANY_RECORDS {
                BUSY
            } else {
                IDLE
            };
            self.rings.wait(left.min(pause));
        }
    }

    /// Everything since the start, or since the last call. Nothing is recorded until [`run_until`](Self::run_until) goes
    /// on; waits that are under way by then are recorded again.
    pub fn recording(&mut self) -> Recording {
        self.close_calls();
        self.close_close_look();
        self.close_user_waits();
        self.close_kernel_waits();
        self.facts.hides_kernel_names = self.names.kernel_names_hidden();
        let to_ns = now_ns();
        let mut recording = Recording {
            system: System {
                date: std::mem::replace(&mut self.began.date, machine::date()),
                kernel: self.facts.kernel.clone(),
                cpus: self.rings.cpus().len() as u32,
                from_ns: std::mem::replace(&mut self.began.at_ns, to_ns),
                to_ns,
                pids: self.options.pids.clone(),
                begun: self.kept.threads.take_begun(),
            },
            windows: self.windows.take(),
            notes: permission::notes(&self.facts),
            ..Recording::default()
        };
        self.kept.give(&mut self.names, &mut recording);
        if self.kept.stacks.are_many() {
            // Waits that are under way are found again.
            self.kept.stacks = Stacks::default();
            self.kept.cut.clear();
            self.census = Census::default();
            self.kernel_waits.iter_mut().for_each(KernelWaits::forget);
        }
        let prices = self.prices.unwrap_or_default();
        recording.cost.record_ns = prices.record_ns;
        recording.cost.syscall_ns = prices.syscall_ns;
        recording.cost.traced_syscalls = std::mem::take(&mut self.traced_syscalls) as u64;
        recording.cost.breakpoints_ns = self.calls.as_mut().map_or(0, LockCalls::take_taken_ns);
        let own_cpu_ns = cost::own_cpu_ns();
        recording.cost.own_cpu_ns =
            own_cpu_ns - std::mem::replace(&mut self.began.own_cpu_ns, own_cpu_ns);
        recording
    }

    /// Reads the rings, up to where a budget is spent; returns how many records there were.
    fn read(&mut self) -> u64 {
        let before = self.kept.records;
        let record_ns = self.prices.unwrap_or_default().record_ns;
        let ends_windows = !self.options.records_everything;
        let Capture { rings, kernel_waits, user_waits, close_look, calls, windows, kept, .. } =
            self;
        let _ = rings.read(&mut |place, read| {
            match read {
                Read::Sample(kind, sample) => {
                    kept.records += 1;
                    let (budget, price, seen) = match part(kind) {
                        Part::KernelWaits => {
                            let Some(waits) = kernel_waits else {
                                return ControlFlow::Continue(());
                            };
                            let seen = waits.seen(kind, sample, kept);
                            (&mut waits.budget, 1.0, seen)
                        }
                        Part::UserWaits => {
                            let Some(waits) = user_waits else { return ControlFlow::Continue(()) };
                            let seen = waits.seen(kind, sample, kept);
                            (&mut waits.budget, record_ns, seen)
                        }
                        Part::CloseLook => {
                            let Some(look) = close_look else { return ControlFlow::Continue(()) };
                            let seen = look.seen(kind, sample, kept);
                            (&mut look.budget, record_ns, seen)
                        }
                        Part::Calls => {
                            let Some(calls) = calls else { return ControlFlow::Continue(()) };
                            let seen = calls.seen(kind, sample, kept);
                            (&mut calls.budget, record_ns + calls.breakpoint_ns, seen)
                        }
                    };
                    kept.events
                        .extend(seen.filter(|seen| windows.contains(part(kind), seen.at_ns)));
                    let was_spent = budget.is_spent();
                    budget.spend(place, price);
                    // The window has to end before the rest is read.
                    if ends_windows && !was_spent && budget.is_spent() {
                        return ControlFlow::Break(());
                    }
                }
                Read::Comm(comm, is_new_program) => {
                    let name = String::from_utf8_lossy(&comm.comm).into_owned();
                    kept.threads.named(comm.tid, comm.pid, name, is_new_program);
                    if is_new_program {
                        kept.processes.executed(comm.pid);
                    }
                }
                Read::Fork(fork) => {
                    kept.threads.began(fork.tid, fork.pid, fork.ptid);
                    if fork.pid != fork.ppid {
                        kept.processes.began(fork.pid, fork.ppid);
                    }
                }
                Read::Exit(exit) => kept.thread_ended(exit.tid, exit.time),
                Read::Mmap(map) => {
                    let addresses = map.addr..map.addr.saturating_add(map.len);
                    kept.processes.mapped(
                        map.pid,
                        addresses,
                        map.pgoff,
                        map.filename_os().as_ref(),
                    );
                }
                Read::Lost(records) => kept.lost += records,
                Read::Gap(kind, gap) => windows.remove(part(kind), gap),
            }
            ControlFlow::Continue(())
        });
        if let Some(from_ns) = self.kept.drop_older_half() {
            self.windows.cut(from_ns);
        }
        self.kept.records - before
    }

    /// Lets the kernel write on.
    fn allow_more(&mut self) {
        let Capture { rings, kernel_waits, user_waits, close_look, calls, windows, .. } = self;
        let mut allow = |part, events: &mut dyn Iterator<Item = &Opened>| {
            if windows.is_open(part) {
                for gap in events.flat_map(|opened| rings.allow_more(opened)) {
                    windows.remove(part, gap);
                }
            }
        };
        kernel_waits.iter().for_each(|it| allow(Part::KernelWaits, &mut it.events()));
        user_waits.iter().for_each(|it| allow(Part::UserWaits, &mut it.events()));
        close_look.iter().for_each(|it| allow(Part::CloseLook, &mut it.events()));
        calls.iter().for_each(|it| allow(Part::Calls, &mut it.events()));
    }

    /// Begins and ends windows, as budgets allow.
    fn steer(&mut self) {
        self.allow_more();
        let now = now_ns();
        let always = self.options.records_everything;
        self.count_syscalls(now);
        if self.windows.is_open(Part::Calls) {
            // Nothing that may take long, since breakpoints are there until this window is over.
            self.steer_calls(now);
            return;
        }
        let may_open = self.closing.is_done();
        // First what may take long, such as a look at all threads.
        if let Some(waits) = &mut self.user_waits {
            waits.budget.fill(now);
            let is_open = self.windows.is_open(Part::UserWaits);
            if is_open && waits.budget.is_spent() && !always {
                self.close_user_waits();
            } else if !is_open && may_open && (waits.budget.allows_a_window() || always) {
                self.open_user_waits();
            }
        }
        if let Some(waits) = &mut self.kernel_waits {
            waits.budget.fill(now);
            let is_open = self.windows.is_open(Part::KernelWaits);
            if is_open && waits.budget.is_spent() && !always {
                self.close_kernel_waits();
            } else if !is_open && (waits.budget.allows_a_window() || always) {
                waits.open(&mut self.rings, &mut self.windows, &mut self.kept);
            }
        }
        self.steer_close_look(now);
        self.steer_calls(now);
    }

    fn steer_close_look(&mut self, now_ns: u64) {
        let Some(look) = &mut self.close_look else { return };
        let in_kernel = self.kernel_waits.as_mut().map_or(0, KernelWaits::take_slept);
        look.count(in_kernel + self.user_waits.as_mut().map_or(0, UserWaits::take_slept));
        look.budget.fill(now_ns);
        let always = self.options.records_everything;
        if self.windows.is_open(Part::CloseLook) {
            if look.is_over(now_ns) && !always {
                self.close_close_look();
            }
        } else if self.closing.is_done()
            && (always || look.is_worth_it(now_ns))
            && let Err(error) = look.open(&mut self.rings, &mut self.windows, &mut self.kept)
        {
            self.kept.note(format!("Context switches and files were not recorded: {error}."));
            look.close(&mut self.rings, &self.closing);
            self.close_look = None;
        }
    }

    fn close_close_look(&mut self) {
        let Some(look) = self.close_look.as_mut().filter(|_| self.windows.is_open(Part::CloseLook))
        else {
            return;
        };
        look.stop(&mut self.windows);
        let lasted_ns = look.lasted_ns(now_ns());
        let price = self.prices.unwrap_or_default().syscall_ns * close_look::CALL_FACTOR;
        for (place, calls) in self.rates.in_time(lasted_ns).enumerate() {
            self.traced_syscalls += calls;
            look.budget.spend(place, calls * price);
        }
        self.read_all();
        if let Some(look) = &mut self.close_look {
            cut_window(Part::CloseLook, look.events(), &self.rings, &mut self.windows);
            look.close(&mut self.rings, &self.closing);
            // While waits of programs are recorded, calls are traced anyway.
            if self.meter.is_none() && self.closed.is_none() {
                self.closed = Some((Part::CloseLook, now_ns()));
            }
        }
    }

    fn steer_calls(&mut self, now_ns: u64) {
        let Some(calls) = &mut self.calls else { return };
        calls.budget.fill(now_ns);
        if self.windows.is_open(Part::Calls) {
            if calls.is_over(now_ns) {
                self.close_calls();
            }
        } else if self.closing.is_done()
            && calls.is_time(now_ns)
            && let Err(error) = calls.open(&mut self.rings, &mut self.windows, &mut self.kept)
        {
            self.kept.note(format!("Calls of lock functions were not traced: {error}."));
            calls.close(&mut self.rings);
            self.calls.take().into_iter().for_each(|it| it.end(&mut self.rings, &self.closing));
        }
    }

    fn close_calls(&mut self) {
        let Some(calls) = self.calls.as_mut().filter(|_| self.windows.is_open(Part::Calls)) else {
            return;
        };
        calls.stop(&mut self.windows);
        self.read_all();
        if let Some(calls) = &mut self.calls {
            cut_window(Part::Calls, calls.events(), &self.rings, &mut self.windows);
            calls.close(&mut self.rings);
        }
    }

    fn count_syscalls(&mut self, now_ns: u64) {
        self.count_syscalls_of_closing(now_ns);
        let (Some(meter), Some(waits)) = (&mut self.meter, &mut self.user_waits) else { return };
        let price = self.prices.unwrap_or_default().syscall_ns;
        meter.count(&mut self.rates, now_ns);
        for (place, calls) in self.rates.calls(now_ns).into_iter().enumerate() {
            self.traced_syscalls += calls;
            waits.budget.spend(place, calls * price);
        }
    }

    /// Until the last event is closed, the kernel takes the longer way for all calls.
    fn count_syscalls_of_closing(&mut self, now_ns: u64) {
        let Some((part, since_ns)) = self.closed.filter(|_| self.closing.is_done()) else { return };
        self.closed = None;
        let budget = match part {
            Part::UserWaits => self.user_waits.as_mut().map(|waits| &mut waits.budget),
            _ => self.close_look.as_mut().map(|look| &mut look.budget),
        };
        let Some(budget) = budget else { return };
        let price = self.prices.unwrap_or_default().syscall_ns;
        for (place, calls) in self.rates.in_time(now_ns.saturating_sub(since_ns)).enumerate() {
            self.traced_syscalls += calls;
            budget.spend(place, calls * price);
        }
    }

    fn close_kernel_waits(&mut self) {
        let Some(window) = self.windows.latest(Part::KernelWaits) else { return };
        let Some(waits) = &mut self.kernel_waits else { return };
        if !self.windows.is_open(Part::KernelWaits) {
            return;
        }
        waits.close(&mut self.windows);
        self.read_all();
        if let Some(waits) = &mut self.kernel_waits {
            cut_window(Part::KernelWaits, waits.events(), &self.rings, &mut self.windows);
            waits.carry(&self.kept, window.from_ns);
        }
    }

    fn open_user_waits(&mut self) {
        let Some(waits) = &mut self.user_waits else { return };
        let before = self.prices.is_none().then(Calls::measure);
        self.rates.skip_to(now_ns());
        if let Err(error) = waits.open(&mut self.rings, &mut self.windows) {
            self.kept.note(format!("Waits of programs could not be recorded: {error}."));
            waits.close(&mut self.rings, &self.closing);
            self.user_waits = None;
            return;
        }
        if let Some(before) = before {
            self.prices = Some(Calls::measure().prices_since(before));
        }
        let counters = waits.counters(&self.rings).unwrap_or_default();
        self.meter = Some(Meter::new(counters));
        self.census.look(&mut self.kept);
    }

    fn close_user_waits(&mut self) {
        let Some(window) = self.windows.latest(Part::UserWaits) else { return };
        let Some(waits) = &mut self.user_waits else { return };
        if !self.windows.is_open(Part::UserWaits) {
            return;
        }
        waits.stop(&mut self.windows);
        self.read_all();
        self.count_syscalls(now_ns());
        if let Some(meter) = self.meter.take() {
            self.closing.close(meter.into_counters());
        }
        self.closed = Some((Part::UserWaits, now_ns()));
        if let Some(waits) = &mut self.user_waits {
            cut_window(Part::UserWaits, waits.events(), &self.rings, &mut self.windows);
            waits.close(&mut self.rings, &self.closing);
            waits.carry(&self.kept, window.from_ns, &mut self.census);
        }
    }

    /// Reads all that is in the rings after a window's end. Other parts go on writing, so this is not until they are empty.
    fn read_all(&mut self) {
        // Reading breaks off once for each budget that it finds to be spent.
        for _ in 0..=PARTS {
            if self.read() == 0 {
                return;
            }
        }
    }
}

/// After all records of a window were read: it ended where the kernel was not let write on.
fn cut_window<'a>(
    part: Part,
    events: impl Iterator<Item = &'a Opened>,
    rings: &Rings,
    windows: &mut Windows,
) {
    if let Some(stopped_ns) = events.filter_map(|opened| rings.stopped_ns(opened)).min() {
        windows.remove(part, stopped_ns..u64::MAX);
    }
}

/// Which part of the recording a record of this kind belongs to.
fn part(kind: Kind) -> Part {
    match kind {
        kernel_waits::BEGINS | kernel_waits::ENDS => Part::KernelWaits,
        user_waits::BEGINS..=user_waits::WAIT_ENDS => Part::UserWaits,
        close_look::SWITCH..=close_look::CALL_ENDS => Part::CloseLook,
        calls::FIRST.. => Part::Calls,
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(calls) = self.calls.take() {
            calls.end(&mut self.rings, &self.closing);
        }
    }
}

/// Events take a descriptor for each CPU.
fn allow_many_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for one rlimit, which the first call fills in and the second reads.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
