//! `forkstorm`: clients of a mail server that forks for each message (exim under MOSBENCH, where Linux 3.10
//! lost 8 % when a mutex became an rwsem).
//!
//! A client is one thread that plays a chain of processes (`anon_vma/mod.rs` has a drawing). For each
//! connection the daemon forks a handler. For each of [`MESSAGES`] messages the handler forks a delivery,
//! that forks a transport; each computes and exits. That is 21 forks, and for each vma 72 inserts, 72
//! removes and 63 sections of its root's lock, all of them exclusive. One operation is one message.
//!
//! How long processes compute decides how much the locks matter. Before the first run one thread alone
//! measures what inserts take in trees of the size they will have; processes then compute for as long as it
//! takes for inserts to be [`ForkstormParams::insert_percent`] of all time. Some of the computing
//! lies between the vmas of a fork, which copies page tables there.
//!
//! With [`ForkstormParams::wait_every_ns`] clients also wait now and then for something that is not a lock:
//! a parent for its child, a server for its network.
//!
//! What is measured: every section's wait; every message's latency; the hold of one section in
//! [`LOOK_EVERY`].

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_utils::CachePadded;
use fairlock::platform::Platform;
use serde::{Deserialize, Serialize};

use super::anon_vma::{Family, Pool, Process, Sections, What};
use super::mix::jittered;
use super::{Body, Failure, HOLD_WRITE, NOTHING, Request, WAIT_WRITE, broken};
use super::{LONGEST_LENGTH_NS, check_thread_count, run_threads};
use crate::error::{LabError, Violation};
use crate::locks::{LabLock, Protected};
use crate::measure::statistics::{XorShift, median};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::world::{Worker, World};

/// The name that rows carry.
pub const NAME: &str = "forkstorm";

/// Messages of one connection.
pub const MESSAGES: u32 = 10;
/// Forks of one connection: its handler, and two for each message.
const FORKS: u32 = 1 + 2 * MESSAGES;
/// The holds of one section in so many are timed.
pub const LOOK_EVERY: u32 = 16;

/// Parameters of [`forkstorm`](self).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForkstormParams {
    /// How many clients, a thread each.
    pub clients: u32,
    /// Vmas of each process, and as many roots.
    pub vmas: u32,
    /// Whether a new vma may have an unused ancestor's anon_vma for its own, as since Linux 3.19.
    pub reuse: bool,
    /// Inserts into trees, in percent of all time of one thread alone; sets how long processes compute.
    pub insert_percent: f64,
    /// How much of the computing lies between the vmas of forks, percent.
    pub copy_percent: f64,
    /// A client gives its CPU away each time it has computed for so long; zero: never.
    pub wait_every_ns: u64,
    /// For how long.
    pub wait_ns: u64,
}

impl Default for ForkstormParams {
    /// Two clients with 16 vmas, the published share of inserts, no waits.
    fn default() -> ForkstormParams {
        ForkstormParams {
            clients: 2,
            vmas: 16,
            reuse: false,
            insert_percent: 3.5,
            copy_percent: 25.0,
            wait_every_ns: 0,
            wait_ns: 0,
        }
    }
}

impl ForkstormParams {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// [`LabError::Parameter`] names the first one that does not.
    pub fn validate(&self) -> Result<(), LabError> {
        let check = |name, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            let valid = format!("{least} to {most}");
            Err(LabError::Parameter { name, value: value.to_string(), valid })
        };
        check_thread_count("threads", self.clients.into())?;
        check("vmas", self.vmas.into(), 1.0, 256.0)?;
        check("insert_percent", self.insert_percent, 0.01, 50.0)?;
        check("copy_percent", self.copy_percent, 0.0, 100.0)?;
        check("wait_every_ns", self.wait_every_ns as f64, 0.0, LONGEST_LENGTH_NS)?;
        check("wait_ns", self.wait_ns as f64, 0.0, LONGEST_LENGTH_NS)
    }

    /// The row's `params`.
    pub fn row_params(&self, pause_ns: f64) -> BTreeMap<String, f64> {
        [
            ("threads", f64::from(self.clients)),
            ("vmas", f64::from(self.vmas)),
            ("reuse", f64::from(u8::from(self.reuse))),
            ("insert_percent", self.insert_percent),
            ("copy_percent", self.copy_percent),
            ("wait_every_ns", self.wait_every_ns as f64),
            ("wait_ns", self.wait_ns as f64),
            ("pause_ns", pause_ns),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    }
}

/// How long processes compute, in PAUSEs.
#[derive(Debug, Clone, Copy, Default)]
struct Computing {
    /// Between two vmas of a fork.
    between_vmas: u32,
    /// After a fork, and after an exit.
    after_step: u32,
    /// Between two waits; 0: never waits.
    wait_every: u32,
    /// The length of a wait, ns.
    wait_ns: u32,
}

impl Computing {
    fn of(params: &ForkstormParams, message_ns: f64, pause_ns: f64) -> Computing {
        let forks = f64::from(FORKS) / f64::from(MESSAGES);
        let pauses = |ns: f64| (ns / pause_ns).round() as u32;
        let copying = message_ns * params.copy_percent / 100.0;
        Computing {
            between_vmas: pauses(copying / forks / f64::from(params.vmas)),
            after_step: pauses((message_ns - copying) / (2.0 * forks)),
            wait_every: pauses(params.wait_every_ns as f64),
            wait_ns: params.wait_ns as u32,
        }
    }
}

/// A root's lock, alone on its cache lines.
type Roots<L> = Box<[CachePadded<L>]>;

/// Runs the workload once on fresh locks.
///
/// # Errors
/// When a lock breaks the invariant, or threads cannot be started.
pub fn run<W: World, L: LabLock>(
    request: &Request<'_, W>,
    params: &ForkstormParams,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let message_ns = computing_ns::<W, L>(request, params)?;
    let computing = Computing::of(params, message_ns, world.pause_ns());
    let roots: Roots<L> =
        (0..params.vmas).map(|_| CachePadded::new(L::new(Protected::new()))).collect();
    let (family, pools) = Family::<L::Platform>::new(params.vmas, params.clients, params.reuse);
    let left = Mutex::new(Vec::new());
    let sections_run = AtomicU64::new(0);

    let bodies = pools.into_iter().zip(0_u32..).map(|(mut pool, index)| {
        let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(u64::from(index));
        let (roots, family) = (&roots, &family);
        let (left, sections_run) = (&left, &sections_run);
        let mut client = Client {
            world,
            roots,
            computing,
            since_wait: 0,
            sections: 0,
            random: XorShift::new(seed),
            recorder: RoleRecorder::default(),
        };
        Box::new(move || {
            client.work(family, &mut pool)?;
            left.lock().expect("nobody panics with it").push(pool);
            sections_run.fetch_add(client.sections, Relaxed);
            Ok(ThreadRecord { reader: None, writer: Some(client.recorder), excluded_ns: 0 })
        }) as Body<'_>
    });
    let mut repetition = run_threads(request, NAME, bodies.collect())?;
    let pools = left.into_inner().expect("all threads have ended");
    family.check_quiet(&pools).map_err(|violation| broken(request.lock, NAME, violation))?;
    check_sections(request, &roots, sections_run.into_inner())?;
    for root in &roots {
        for (event, count) in root.events() {
            *repetition.events.entry(event).or_default() += count;
        }
    }
    Ok(repetition)
}

/// The locks count their sections as the threads do.
fn check_sections<W, L: LabLock>(
    request: &Request<'_, W>,
    roots: &Roots<L>,
    writes: u64,
) -> Result<(), LabError> {
    let count =
        || -> Result<u64, Violation> { roots.iter().map(|root| root.read(Protected::value)).sum() };
    match count() {
        Ok(counted) if counted == writes => Ok(()),
        Ok(counted) => Err(broken(request.lock, NAME, Violation::LostUpdate { writes, counted })),
        Err(violation) => Err(broken(request.lock, NAME, violation)),
    }
}

/// One client.
struct Client<'a, W, L> {
    world: &'a W,
    roots: &'a Roots<L>,
    computing: Computing,
    /// Computed since the last wait, PAUSEs.
    since_wait: u32,
    sections: u64,
    random: XorShift,
    recorder: RoleRecorder,
}

impl<W: World, L: LabLock> Client<'_, W, L> {
    fn work(&mut self, family: &Family<L::Platform>, pool: &mut Pool) -> Result<(), Failure> {
        let world = self.world;
        let [mut handler, mut delivery, mut transport] = <[Process; 3]>::default();
        // Not all at once: nobody's clients arrive in step.
        let message = 4 * self.computing.after_step + 32 * self.computing.between_vmas;
        world.compute(self.random.below(message + 1));
        while world.running() {
            family.fork(self, pool, family.daemon(), &mut handler)?;
            self.compute(self.computing.after_step);
            for _ in 0..MESSAGES {
                let began = world.now();
                family.fork(self, pool, &handler, &mut delivery)?;
                self.compute(self.computing.after_step);
                family.fork(self, pool, &delivery, &mut transport)?;
                self.compute(self.computing.after_step);
                family.exit(self, pool, &mut transport)?;
                self.compute(self.computing.after_step);
                family.exit(self, pool, &mut delivery)?;
                self.compute(self.computing.after_step);
                self.recorder.latency.record(world.now().saturating_sub(began));
                self.recorder.executed += 1;
                if !world.running() {
                    break;
                }
                self.recorder.ops += 1;
            }
            family.exit(self, pool, &mut handler)?;
            self.compute(self.computing.after_step);
        }
        Ok(())
    }

    fn compute(&mut self, pauses: u32) {
        let pauses = jittered(pauses, &mut self.random);
        self.world.compute(pauses);
        self.since_wait += pauses;
        if self.computing.wait_every > 0 && self.since_wait >= self.computing.wait_every {
            self.since_wait = 0;
            self.world.sleep(jittered(self.computing.wait_ns, &mut self.random).into());
        }
    }
}

impl<W: World, L: LabLock> Sections for Client<'_, W, L> {
    fn write<R>(
        &mut self,
        root: usize,
        _what: What,
        inside: impl FnOnce() -> R,
    ) -> Result<R, Failure> {
        let world = self.world;
        self.sections += 1;
        let looks = self.sections.is_multiple_of(LOOK_EVERY.into());
        world.mark(WAIT_WRITE);
        let asked = world.now();
        let (got, result) = self.roots[root].write(|data| {
            world.mark(HOLD_WRITE);
            let got = world.now();
            let result = data.write_around(inside);
            world.mark(NOTHING);
            (got, result)
        });
        if looks {
            self.recorder.hold.record(world.now().saturating_sub(got));
        }
        self.recorder.wait.record(got.saturating_sub(asked));
        Ok(result?)
    }

    fn between_vmas(&mut self) {
        self.compute(self.computing.between_vmas);
    }
}

/// Connections that are timed to find out what an insert takes.
const CALIBRATION_CONNECTIONS: usize = 9;
/// Pairs of looks at the clock that show what one costs.
const CALIBRATION_LOOKS: u32 = 256;

/// What computing depends on: the machine, clients, vmas, reuse.
type Calibrated = BTreeMap<(String, u32, u32, bool), MessageTimes>;

/// What one message takes on one thread that does not compute, ns.
#[derive(Debug, Clone, Copy)]
struct MessageTimes {
    all: f64,
    inserts: f64,
}

/// How long the processes of one message compute, ns. Measured once for each machine and size of trees.
fn computing_ns<W: World, L: LabLock>(
    request: &Request<'_, W>,
    params: &ForkstormParams,
) -> Result<f64, LabError> {
    static CALIBRATED: Mutex<Calibrated> = Mutex::new(BTreeMap::new());
    let world = request.world;
    let key = (world.name().to_owned(), params.clients, params.vmas, params.reuse);
    let mut calibrated = CALIBRATED.lock().expect("nobody panics with it");
    let times = match calibrated.get(&key) {
        Some(&times) => times,
        None => {
            let times = calibrate::<W, L>(request, params)?;
            calibrated.insert(key, times);
            times
        }
    };
    Ok((times.inserts * 100.0 / params.insert_percent - times.all).max(0.0))
}

/// One client's messages, on a thread alone, while the processes of the others stand still.
fn calibrate<W: World, L: LabLock>(
    request: &Request<'_, W>,
    params: &ForkstormParams,
) -> Result<MessageTimes, LabError> {
    let world = request.world;
    let worker: Worker<'_, Result<MessageTimes, Failure>> = Box::new(move || {
        let (family, mut pools) =
            Family::<L::Platform>::new(params.vmas, params.clients, params.reuse);
        let mut unlocked = Unlocked { world, inserts_ns: 0, looks: 0 };
        for pool in &mut pools[1..] {
            let [mut handler, mut delivery] = <[Process; 2]>::default();
            family.fork(&mut unlocked, pool, family.daemon(), &mut handler)?;
            family.fork(&mut unlocked, pool, &handler, &mut delivery)?;
        }
        let look_ns = unlocked.look_ns();
        let mut times = Vec::new();
        for _ in 0..CALIBRATION_CONNECTIONS {
            times.push(unlocked.connection(&family, &mut pools[0], look_ns)?);
        }
        let of =
            |time: fn(&MessageTimes) -> f64| median(&times.iter().map(time).collect::<Vec<_>>());
        Ok(MessageTimes { all: of(|times| times.all), inserts: of(|times| times.inserts) })
    });
    // Long enough, and it ends by itself.
    let run = world.run(u64::from(u32::MAX), request.cancelled, vec![worker])?;
    let mut outputs = run.workers.into_iter().map(|worker| worker.output);
    let times = outputs.next().expect("one worker");
    times.map_err(|failure| match failure {
        Failure::Violation(violation) => broken(request.lock, NAME, violation),
        Failure::Error(error) => error,
    })
}

/// Sections without a lock, for a thread alone.
struct Unlocked<'a, W> {
    world: &'a W,
    inserts_ns: u64,
    looks: u32,
}

impl<W: World> Unlocked<'_, W> {
    /// What a look at the clock takes.
    fn look_ns(&self) -> f64 {
        let began = self.world.now();
        for _ in 0..CALIBRATION_LOOKS {
            self.world.now();
        }
        (self.world.now() - began) as f64 / f64::from(CALIBRATION_LOOKS)
    }

    fn connection<P: Platform>(
        &mut self,
        family: &Family<P>,
        pool: &mut Pool,
        look_ns: f64,
    ) -> Result<MessageTimes, Failure> {
        let [mut handler, mut delivery, mut transport] = <[Process; 3]>::default();
        (self.inserts_ns, self.looks) = (0, 0);
        let began = self.world.now();
        family.fork(self, pool, family.daemon(), &mut handler)?;
        for _ in 0..MESSAGES {
            family.fork(self, pool, &handler, &mut delivery)?;
            family.fork(self, pool, &delivery, &mut transport)?;
            family.exit(self, pool, &mut transport)?;
            family.exit(self, pool, &mut delivery)?;
        }
        family.exit(self, pool, &mut handler)?;
        let all = (self.world.now() - began) as f64;
        let per_message = |ns: f64| ns.max(0.0) / f64::from(MESSAGES);
        Ok(MessageTimes {
            all: per_message(all - 2.0 * f64::from(self.looks) * look_ns),
            // Of the two looks around an insert, one lies between what they say.
            inserts: per_message(self.inserts_ns as f64 - f64::from(self.looks) * look_ns),
        })
    }
}

impl<W: World> Sections for Unlocked<'_, W> {
    fn write<R>(
        &mut self,
        _root: usize,
        what: What,
        inside: impl FnOnce() -> R,
    ) -> Result<R, Failure> {
        if what == What::Removes {
            return Ok(inside());
        }
        let began = self.world.now();
        let result = inside();
        self.inserts_ns += self.world.now() - began;
        self.looks += 1;
        Ok(result)
    }

    fn between_vmas(&mut self) {}
}
