//! The daemon and all that it forks.
//!
//! ```text
//!   daemon ── handler ── delivery ── transport          depth 0, 1, 2, 3
//!             one a connection
//!                        one a message, after each other
//!                                    one a delivery
//! ```
//!
//! Invariants
//! 1. The daemon has one thread, so that what it forks may go on where it was. Even so a forked
//!    process calls only what a signal handler may call: it allocates nothing, locks nothing, and
//!    ends by `_exit`, also when it panics (which aborts it).
//! 2. A process has at most one child at a time, the daemon one for each client: no more than
//!    3 × clients + 1 processes are there at once, whatever goes wrong.
//! 3. A process ends when its parent does: the kernel kills it then.
//! 4. A process waits for each child that it forked before it ends, unless it is killed.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::ForkstormKernel;
use super::mappings::{Mappings, Stamper};
use super::shared::{Fault, Shared, Slot, Trouble};
use crate::error::LabError;
use crate::world::Usage;
use crate::world::processes::Member;

/// What the command calls [`work`] for.
pub const SUBCOMMAND: &str = "forkstorm-daemon";

/// Messages of a connection.
pub const MESSAGES: u64 = 10;
/// Forks of a connection: its handler, and a delivery and a transport for each message.
pub const FORKS: u64 = 1 + 2 * MESSAGES;

/// Depths below the daemon.
const HANDLER: u32 = 1;
const DELIVERY: u32 = 2;
const TRANSPORT: u32 = 3;

/// What a daemon is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    pub params: ForkstormKernel,
    /// What each process computes, in PAUSEs, as only the run has measured one.
    pub compute_pauses: u32,
    /// How long the storm may take. It ends itself then, should nobody else do so.
    pub longest: Duration,
}

/// Does the daemon's job, in a process of its own.
///
/// # Errors
/// When the job is not what the run makes, or there is no memory for the mappings. What happens in the
/// storm is told through what is shared.
pub fn work(job: &str) -> Result<(), LabError> {
    let (job, member): (Job, Member<Trouble, Slot>) = Member::join(job)?;
    let mappings = Mappings::new(job.params.vmas, job.params.pages, job.params.lock())?;
    let touched = job.params.touch as usize;
    let storm = Storm { job: &job, shared: member.shared(), mappings: &mappings, touched };
    member.work(|| {
        storm.serve();
        if let Err(fault) = mappings.check(0, Stamper::DAEMON) {
            storm.fail(fault);
        }
        Ok(())
    })
}

/// What every process of the storm knows.
struct Storm<'a> {
    job: &'a Job,
    shared: &'a Shared,
    mappings: &'a Mappings,
    /// Pages of each mapping that a forked process writes to.
    touched: usize,
}

/// A process that was forked, and when that was asked for.
struct Forked {
    process: libc::pid_t,
    asked: Instant,
}

/// A connection's first process, and what its client had done before.
struct Handler {
    process: libc::pid_t,
    client: u32,
    forks: u64,
    executed: u64,
}

impl Storm<'_> {
    fn slot(&self, client: u32) -> &Slot {
        &self.shared.slots()[client as usize]
    }

    /// Notes what went wrong, if nothing has before, and stops the storm.
    fn fail(&self, fault: Fault) {
        self.shared.common().note(fault);
        self.shared.stop();
    }

    // ---- the daemon ----

    /// Has a connection for each client, one after the other, until the storm's end.
    fn serve(&self) {
        let end = Instant::now() + self.job.longest;
        let clients = self.job.params.threads;
        let mut handlers = Vec::with_capacity(clients as usize);
        for client in 0..clients {
            self.connect(client, &mut handlers);
        }
        while !handlers.is_empty() {
            let (process, status, usage) = match wait_for_any() {
                Ok(ended) => ended,
                // Without this answer there is no other one.
                Err(fault) => return self.fail(fault),
            };
            let place = handlers.iter().position(|handler| handler.process == process);
            // Nobody else is the daemon's child.
            let handler = handlers.swap_remove(place.expect("only handlers are waited for"));
            self.slot(handler.client).used.add(usage);
            if let Err(fault) = self.account(&handler, status) {
                self.fail(fault);
            }
            if Instant::now() > end {
                self.shared.stop();
            }
            self.connect(handler.client, &mut handlers);
        }
    }

    /// Begins a connection, unless the storm is over.
    fn connect(&self, client: u32, handlers: &mut Vec<Handler>) {
        if !self.shared.goes() {
            return;
        }
        let slot = self.slot(client);
        let (forks, executed) = (slot.forks.load(Relaxed), slot.executed.load(Relaxed));
        match self.fork(client, HANDLER) {
            Ok(Forked { process, .. }) => {
                handlers.push(Handler { process, client, forks, executed });
            }
            Err(fault) => self.fail(fault),
        }
    }

    /// Looks whether a connection that ended is complete, or was cut short by the storm's end
    /// between two messages.
    fn account(&self, handler: &Handler, status: i32) -> Result<(), Fault> {
        let slot = self.slot(handler.client);
        ended_well(slot, status)?;
        let forks = slot.forks.load(Relaxed) - handler.forks;
        let messages = slot.executed.load(Relaxed) - handler.executed;
        let expected = if self.shared.goes() { FORKS } else { 1 + 2 * messages };
        if forks == expected { Ok(()) } else { Err(Fault::ForkCount { forks, expected }) }
    }

    // ---- forked processes ----

    /// Forks a process of this depth; answers in the parent only.
    fn fork(&self, client: u32, depth: u32) -> Result<Forked, Fault> {
        let parent = std::process::id();
        let slot = self.slot(client);
        let asked = Instant::now();
        // SAFETY: invariant 1; the child never returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(Fault::Fork(error_number())),
            0 => forked(self, client, depth, parent),
            process => {
                slot.fork.record(nanoseconds(asked.elapsed()));
                slot.forks.fetch_add(1, Relaxed);
                Ok(Forked { process, asked })
            }
        }
    }

    /// What a forked process does: finds what its parent left in memory, writes there, has its own
    /// child if its depth has one, computes, and finds what it wrote.
    fn live(&self, client: u32, depth: u32) -> Result<(), Fault> {
        let (parent, own) = (Stamper::forked(client, depth - 1), Stamper::forked(client, depth));
        let inherited = if depth == HANDLER { 0 } else { self.touched };
        self.mappings.check(inherited, parent)?;
        self.mappings.write(self.touched, own);
        match depth {
            HANDLER => self.handle(client)?,
            DELIVERY => self.deliver(client)?,
            _ => {}
        }
        (0..self.job.compute_pauses).for_each(|_| std::hint::spin_loop());
        self.mappings.check(self.touched, own)
    }

    /// A connection: its messages, one after the other.
    fn handle(&self, client: u32) -> Result<(), Fault> {
        let slot = self.slot(client);
        for _ in 0..MESSAGES {
            if !self.shared.goes() {
                break;
            }
            let delivery = self.fork(client, DELIVERY)?;
            reap(slot, delivery.process)?;
            slot.message.record(nanoseconds(delivery.asked.elapsed()));
            slot.executed.fetch_add(1, Relaxed);
            slot.ops.fetch_add(u64::from(self.shared.goes()), Relaxed);
        }
        Ok(())
    }

    /// A message's delivery, which has a transport do it.
    fn deliver(&self, client: u32) -> Result<(), Fault> {
        let slot = self.slot(client);
        let transport = self.fork(client, TRANSPORT)?;
        reap(slot, transport.process)?;
        slot.life.record(nanoseconds(transport.asked.elapsed()));
        Ok(())
    }
}

/// Where a forked process begins and ends. Not a Rust function, so that no panic leaves it: behind it
/// are the frames of the parent.
extern "C" fn forked(storm: &Storm<'_>, client: u32, depth: u32, parent: u32) -> ! {
    // SAFETY: the calls take integers and touch no memory of this program.
    let adopted = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        // It may have ended before this one asked to be told.
        libc::getppid() as u32 != parent
    };
    let lived = if adopted { Err(Fault::Unsaid) } else { storm.live(client, depth) };
    if let Err(fault) = lived {
        storm.fail(fault);
    }
    // SAFETY: ends the process at once; nothing of it is to be cleaned up.
    unsafe { libc::_exit(i32::from(lived.is_err())) }
}

/// Waits for this child, which has to end well.
fn reap(slot: &Slot, process: libc::pid_t) -> Result<(), Fault> {
    let mut status = 0;
    // SAFETY: `status` is a place for the call to write to.
    while unsafe { libc::waitpid(process, &mut status, 0) } < 0 {
        if error_number() != libc::EINTR {
            return Err(Fault::Wait(error_number()));
        }
    }
    ended_well(slot, status)
}

fn ended_well(slot: &Slot, status: i32) -> Result<(), Fault> {
    if status != 0 {
        return Err(Fault::ForkedProcess { status });
    }
    slot.reaped.fetch_add(1, Relaxed);
    Ok(())
}

/// Waits for the next child that ends; answers its status and what it and all below it used.
fn wait_for_any() -> Result<(libc::pid_t, i32, Usage), Fault> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both are places for the call to write to.
        let process = unsafe { libc::wait4(-1, &mut status, 0, usage.as_mut_ptr()) };
        if process > 0 {
            // SAFETY: zeroed above, which is valid, and filled by the call.
            return Ok((process, status, Usage::of(&unsafe { usage.assume_init() })));
        }
        if error_number() != libc::EINTR {
            return Err(Fault::Wait(error_number()));
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

fn error_number() -> i32 {
    // SAFETY: the place is this thread's own.
    unsafe { *libc::__errno_location() }
}
