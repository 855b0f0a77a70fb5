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
//! takes for inserts to be [`Forkstorm::insert_percent`] of all time. Some of the computing
//! lies between the vmas of a fork, which copies page tables there.
//!
//! With [`Forkstorm::wait_every_ns`] clients also wait now and then for something that is not a lock:
//! a parent for its child, a server for its network.
//!
//! What is measured: every section's wait; every message's latency, computing included; of one section in
//! [`LOOK_EVERY`] its hold, the convoy that it joins and, if it inserts, for how long.
//!
//! [`RoleStats::inserting`](fairlock_report::row::RoleStats::inserting) is what inserts really take: the time inside the
//! sections that insert, from the first access to the tree to the last, over the time that as many CPUs have
//! as there are clients, or all of them if there are fewer. It is time by the clock, so a holder that is
//! preempted, or waits for a cache line that another CPU wrote, counts. The share that was asked for is the
//! same of one client alone, without locks. On real threads it needs a quiet machine and more than one
//! repetition: CPUs that other processes take make it smaller, and a section that is looked at and
//! preempted there counts for all that were not looked at.
//!
//! Not for: what fork takes in a kernel, where page tables are most of it, and the reverse map's readers,
//! for which there is [`rmapstorm`](super::rmapstorm).

use std::collections::BTreeMap;
use std::sync::Mutex;

use clap::Args;
use fairlock::platform::Platform;
use fairlock_report::random::{XorShift, jittered};
use fairlock_report::statistics::median;
use fairlock_report::units::{
    at_least_one, counted, deserialize_time_ns, format_ns, parse_percent, parse_time_ns,
};
use serde::{Deserialize, Serialize};

pub use super::anon_vma::LOOK_EVERY;
use super::anon_vma::{
    Alone, Family, Inside, Pool, Process, Processes, Roots, Sections, Visitor, What, check_vmas,
};
use super::{Body, Failure, run_threads};
use crate::error::LabError;
use crate::locks::{LabLock, New};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord, WRITER};
use crate::workload::{
    DefaultPoints, DefaultSubjects, LONGEST_LENGTH_NS, Machine, Request, Role, UnderLock, Workload,
    check_thread_count, defaults, points, roles, run_under_erased_lock, running, wrong,
};
use crate::world::{Worker, World};

/// Messages of one connection.
pub const MESSAGES: u32 = 10;
/// Forks of one connection: its handler, and two for each message.
const FORKS: u32 = 1 + 2 * MESSAGES;
/// Host seconds for one simulated second of each thread that runs, where processes fork, under any lock.
pub(super) const SIMULATION_COST: f64 = 0.25;

/// Parameters of [`forkstorm`](self).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Forkstorm {
    /// Clients, a thread each
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    pub threads: u32,
    /// Vmas of each process, and as many locks
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one)]
    pub vmas: u32,
    /// Use unused anon_vmas of ancestors again, as Linux does since 3.19
    #[arg(long)]
    pub reuse: bool,
    /// Inserts into trees, in percent of the time of one thread alone: sets how long processes compute
    #[arg(long, value_name = "PERCENT", default_value_t = 3.5, value_parser = parse_percent)]
    pub insert_percent: f64,
    /// Part of the computing that lies between the vmas of a fork
    #[arg(long, value_name = "PERCENT", default_value_t = 25.0, value_parser = parse_percent)]
    pub copy_percent: f64,
    /// How long a client computes before it sleeps; 0ns: it never sleeps
    #[arg(long = "sleep-every", value_name = "TIME", default_value = "0ns", value_parser = parse_time_ns)]
    #[serde(deserialize_with = "deserialize_time_ns")]
    pub wait_every_ns: u64,
    /// How long it then sleeps
    #[arg(long = "sleep", value_name = "TIME", default_value = "50us", value_parser = parse_time_ns)]
    #[serde(deserialize_with = "deserialize_time_ns")]
    pub wait_ns: u64,
}

impl Default for Forkstorm {
    fn default() -> Forkstorm {
        defaults()
    }
}

impl Workload for Forkstorm {
    const NAME: &'static str = "forkstorm";
    const ABOUT: &'static str = "clients whose processes fork and exit, as in a mail server: 16 locks, all taken exclusively";
    const EXAMPLES: &'static [&'static str] = &[
        "--threads 1,2,8",
        "--lock linux-3.10,linux-5.11,rwsem,mutex,std-mutex --threads 8",
        "--insert-percent 10 --sleep-every 300us --sleep 50us",
        "--on westmere-ex-4s --threads 40,80 --seeds 3",
    ];
    const DEFAULT_SUBJECTS: DefaultSubjects = DefaultSubjects {
        here: &["rwlock", "rwsem", "mutex", "linux-3.10", "linux-5.11", "std", "parking_lot"],
        simulated: &["rwlock", "rwsem", "mutex", "linux-3.10", "linux-5.11"],
    };
    const DEFAULT_POINTS: &'static [DefaultPoints] = &[points("threads", "1,2,8")];

    fn roles(&self) -> Vec<Role> {
        roles(&[("client", self.threads)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = vec![("vmas", counted(self.vmas.into(), "vma"))];
        words.extend(self.reuse.then(|| ("reuse", "anon_vmas reused".to_owned())));
        words.push(("insert_percent", format!("{} % inserts", self.insert_percent)));
        if self.wait_every_ns != 0 {
            let every = format_ns(self.wait_every_ns as f64);
            words.push(("wait_every_ns", format!("a wait every {every}")));
        }
        words
    }

    fn validate(&self, _pause_ns: f64) -> Result<(), LabError> {
        let check = |name, value: f64, least: f64, most: f64| match (least..=most).contains(&value)
        {
            true => Ok(()),
            false => wrong(name, value, format!("{least} to {most}")),
        };
        check_thread_count("threads", self.threads.into())?;
        check_vmas(self.vmas, self.threads)?;
        check("insert_percent", self.insert_percent, 0.01, 50.0)?;
        check("copy_percent", self.copy_percent, 0.0, 100.0)?;
        check("wait_every_ns", self.wait_every_ns as f64, 0.0, LONGEST_LENGTH_NS)?;
        check("wait_ns", self.wait_ns as f64, 0.0, LONGEST_LENGTH_NS)
    }

    fn settled(self) -> Forkstorm {
        // Nobody sleeps.
        let wait_ns = if self.wait_every_ns == 0 { 0 } else { self.wait_ns };
        Forkstorm { wait_ns, ..self }
    }

    fn simulation_cost(&self, _lock: &str, cpus: u32) -> f64 {
        running(self.threads, cpus) * SIMULATION_COST
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_erased_lock(self, request)
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
    /// About all of one message.
    fn of_a_message(&self) -> u32 {
        self.after_step.saturating_mul(4).saturating_add(self.between_vmas.saturating_mul(32))
    }

    fn of(params: &Forkstorm, message_ns: f64, pause_ns: f64) -> Computing {
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

impl UnderLock for Forkstorm {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
    ) -> Result<Repetition, LabError> {
        run_at(request, self, &Roots::of(new, self.vmas, self.threads))
    }
}

/// The same at given roots.
fn run_at<W: World, P: Platform>(
    request: &Request<'_, W>,
    params: &Forkstorm,
    roots: &Roots<P>,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let calibrated = calibrated::<W, P>(request, params)?;
    let message_ns = calibrated.computing_ns(params.insert_percent);
    let computing = Computing::of(params, message_ns, world.pause_ns());
    let (family, pools) = family_of::<P>(params);
    let left = Mutex::new(Left::default());

    let bodies = pools.into_iter().zip(0_u32..).map(|(mut pool, index)| {
        let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(u64::from(index));
        let (family, left) = (&family, &left);
        let mut client = Client {
            world,
            visitor: Visitor::new(world, roots, index),
            computing,
            since_wait: 0,
            random: XorShift::new(seed),
            recorder: RoleRecorder::default(),
        };
        Box::new(move || {
            client.work(family, &mut pool)?;
            left.lock().expect("nobody panics with it").add(&client.visitor, pool, &calibrated);
            Ok(ThreadRecord { reader: None, writer: Some(client.recorder), excluded_ns: 0 })
        }) as Body<'_>
    });
    let mut repetition = run_threads(request, Forkstorm::NAME, bodies.collect())?;
    let left = left.into_inner().expect("all threads have ended");
    family
        .check_quiet(&left.pools)
        .map_err(|violation| request.broken(Forkstorm::NAME, violation))?;
    roots.check(request, Forkstorm::NAME, left.writes)?;
    repetition.events = roots.events();
    let threads = (params.threads as usize).min(world.cpus());
    let share = |ns: f64| ns / (repetition.elapsed_ns as f64 * threads as f64);
    let inserting = left.inserting_ns.map(share);
    if let Some(writer) = repetition.roles.get_mut(WRITER) {
        writer.inserting = inserting;
    }
    Ok(repetition)
}

/// What the clients leave behind.
#[derive(Default)]
struct Left {
    pools: Vec<Pool>,
    writes: u64,
    inserting_ns: Option<f64>,
}

impl Left {
    fn add<W, P: Platform>(
        &mut self,
        visitor: &Visitor<'_, W, P>,
        pool: Pool,
        calibrated: &Calibrated,
    ) {
        self.pools.push(pool);
        self.writes += visitor.writes;
        if let Some(ns) = visitor.inserting.ns(calibrated.look_ns) {
            *self.inserting_ns.get_or_insert(0.0) += ns;
        }
    }
}

fn family_of<P: Platform>(params: &Forkstorm) -> (Family<P>, Vec<Pool>) {
    Family::new(params.vmas, params.threads, Processes::OF_A_CONNECTION, params.reuse)
}

/// One client.
struct Client<'a, W, P: Platform> {
    world: &'a W,
    visitor: Visitor<'a, W, P>,
    computing: Computing,
    /// Computed since the last wait, PAUSEs; counted where there are waits.
    since_wait: u32,
    random: XorShift,
    recorder: RoleRecorder,
}

impl<W: World, P: Platform> Client<'_, W, P> {
    fn work(&mut self, family: &Family<P>, pool: &mut Pool) -> Result<(), Failure> {
        let world = self.world;
        let [mut handler, mut delivery, mut transport] = <[Process; 3]>::default();
        // Not all at once: nobody's clients arrive in step.
        world.compute(self.random.below(self.computing.of_a_message().saturating_add(1)));
        // At least one message: a client that could not run until the end waited, too.
        loop {
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
            if !world.running() {
                return Ok(());
            }
            self.compute(self.computing.after_step);
        }
    }

    fn compute(&mut self, pauses: u32) {
        let mut left = jittered(pauses, &mut self.random);
        let every = self.computing.wait_every;
        while every > 0 && self.since_wait + left >= every {
            let until_wait = every - self.since_wait;
            self.world.compute(until_wait);
            (left, self.since_wait) = (left - until_wait, 0);
            self.world.sleep(jittered(self.computing.wait_ns, &mut self.random).into());
        }
        self.world.compute(left);
        self.since_wait = self.since_wait.saturating_add(left);
    }
}

impl<W: World, P: Platform> Sections for Client<'_, W, P> {
    fn write(&mut self, root: usize, what: What, inside: &mut Inside<'_>) -> Result<(), Failure> {
        Ok(self.visitor.write(&mut self.recorder, root, what, inside)??)
    }

    fn between_vmas(&mut self) {
        self.compute(self.computing.between_vmas);
    }
}

/// Connections that are timed to find out what an insert takes.
const CALIBRATION_CONNECTIONS: usize = 9;
/// By far longer than they take.
const LONGEST_CALIBRATION_NS: u64 = 10_000_000_000;
/// Looks at the clock that show what one takes.
const CALIBRATION_LOOKS: u32 = 256;

/// What one message takes on one thread that does not compute.
#[derive(Debug, Clone, Copy)]
struct Calibrated {
    /// All of it, without locks, ns.
    message_ns: f64,
    /// Its inserts, ns.
    inserts_ns: f64,
    /// A look at the clock, ns.
    look_ns: f64,
}

impl Calibrated {
    /// How long the processes of one message compute for inserts to be so much of its time, ns.
    fn computing_ns(&self, insert_percent: f64) -> f64 {
        (self.inserts_ns * 100.0 / insert_percent - self.message_ns).max(0.0)
    }
}

/// What it depends on: the machine, clients, vmas, reuse.
type Machines = BTreeMap<(String, u32, u32, bool), Calibrated>;

/// Measured once for each machine and size of trees, so that all locks' processes compute for equally long.
fn calibrated<W: World, P: Platform>(
    request: &Request<'_, W>,
    params: &Forkstorm,
) -> Result<Calibrated, LabError> {
    static MACHINES: Mutex<Machines> = Mutex::new(BTreeMap::new());
    let name = request.world.name().to_owned();
    let key = (name, params.threads, params.vmas, params.reuse);
    let mut machines = MACHINES.lock().expect("nobody panics with it");
    if let Some(&known) = machines.get(&key) {
        return Ok(known);
    }
    let measured = calibrate::<W, P>(request, params)?;
    machines.insert(key, measured);
    Ok(measured)
}

/// One client's messages, on a thread alone, while a handler and a delivery of each other client stand still:
/// that is how large the trees are on average.
fn calibrate<W: World, P: Platform>(
    request: &Request<'_, W>,
    params: &Forkstorm,
) -> Result<Calibrated, LabError> {
    let world = request.world;
    let worker: Worker<'_, Result<Calibrated, Failure>> = Box::new(move || {
        let measured = Unlocked::new(world).calibrate::<P>(params);
        // On real threads a run lasts until then.
        world.stop();
        measured
    });
    let run = world.run(LONGEST_CALIBRATION_NS, request.cancelled, vec![worker])?;
    let mut outputs = run.workers.into_iter().map(|worker| worker.output);
    let times = outputs.next().expect("one worker");
    times.map_err(|failure| request.failed(Forkstorm::NAME, failure))
}

/// Sections without a lock, for a thread alone.
struct Unlocked<'a, W> {
    world: &'a W,
    inserts_ns: u64,
    looks: u32,
}

impl<'a, W: World> Unlocked<'a, W> {
    fn new(world: &'a W) -> Self {
        Unlocked { world, inserts_ns: 0, looks: 0 }
    }

    fn calibrate<P: Platform>(mut self, params: &Forkstorm) -> Result<Calibrated, Failure> {
        let (family, mut pools) = family_of::<P>(params);
        for pool in &mut pools[1..] {
            let [mut handler, mut delivery] = <[Process; 2]>::default();
            family.fork(&mut Alone, pool, family.daemon(), &mut handler)?;
            family.fork(&mut Alone, pool, &handler, &mut delivery)?;
        }
        let look_ns = self.look_ns();
        let (mut messages, mut inserts) = (Vec::new(), Vec::new());
        for _ in 0..CALIBRATION_CONNECTIONS {
            let (message_ns, inserts_ns) = self.connection(&family, &mut pools[0], look_ns)?;
            messages.push(message_ns);
            inserts.push(inserts_ns);
        }
        Ok(Calibrated { message_ns: median(&messages), inserts_ns: median(&inserts), look_ns })
    }

    /// What a look at the clock takes.
    fn look_ns(&self) -> f64 {
        let began = self.world.now();
        for _ in 0..CALIBRATION_LOOKS {
            self.world.now();
        }
        self.world.now().saturating_sub(began) as f64 / f64::from(CALIBRATION_LOOKS)
    }

    /// What one message of a connection takes, and its inserts, ns.
    fn connection<P: Platform>(
        &mut self,
        family: &Family<P>,
        pool: &mut Pool,
        look_ns: f64,
    ) -> Result<(f64, f64), Failure> {
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
        let all = self.world.now().saturating_sub(began) as f64;
        let per_message = |ns: f64| ns.max(0.0) / f64::from(MESSAGES);
        let looks = f64::from(self.looks) * look_ns;
        // Of the two looks around the inserts of a section, one lies between what they say.
        Ok((per_message(all - 2.0 * looks), per_message(self.inserts_ns as f64 - looks)))
    }
}

impl<W: World> Sections for Unlocked<'_, W> {
    fn write(&mut self, _root: usize, what: What, inside: &mut Inside<'_>) -> Result<(), Failure> {
        if what == What::Removes {
            return Ok(inside()?);
        }
        let began = self.world.now();
        inside()?;
        self.inserts_ns += self.world.now().saturating_sub(began);
        self.looks += 1;
        Ok(())
    }

    fn between_vmas(&mut self) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fairlock_sim::Sim;
    use fairlock_sim::profile::Profile;

    use super::*;
    use crate::world::SimWorld;

    fn calibrated_with(seed: u64, params: &Forkstorm) -> Calibrated {
        let world = SimWorld::new(Arc::new(Profile::example()), seed, 0, false);
        calibrate::<_, Sim>(&Request::new(&world, "rwsem", 1), params).unwrap()
    }

    #[test]
    fn a_simulated_machine_is_calibrated_alike_whatever_the_seed() {
        let params = Forkstorm { threads: 3, vmas: 4, ..Forkstorm::default() };
        let [one, other] = [1, 2].map(|seed| calibrated_with(seed, &params));
        assert_eq!((one.message_ns, one.inserts_ns), (other.message_ns, other.inserts_ns));
        // A look takes nothing on this one.
        assert_eq!(one.look_ns, 0.0);
        assert!(one.inserts_ns < one.message_ns, "{one:?}");
    }

    #[test]
    fn inserts_take_longer_in_the_trees_of_more_clients() {
        let inserts_ns = |clients| {
            let params = Forkstorm { threads: clients, vmas: 4, ..Forkstorm::default() };
            calibrated_with(1, &params).inserts_ns
        };
        let few_and_many = [1, 64].map(inserts_ns);
        assert!(few_and_many[1] > 1.1 * few_and_many[0], "{few_and_many:?}");
    }

    #[test]
    fn computing_makes_inserts_the_share_that_was_asked_for() {
        let calibrated = Calibrated { message_ns: 3000.0, inserts_ns: 350.0, look_ns: 0.0 };
        assert_eq!(calibrated.computing_ns(3.5), 7000.0);
        // More than there is without any computing.
        assert_eq!(calibrated.computing_ns(50.0), 0.0);
        let params = Forkstorm { vmas: 10, ..Forkstorm::default() };
        let computing = Computing::of(&params, 84_000.0, 10.0);
        // A quarter between the vmas of 2.1 forks, the rest after forks and exits.
        assert_eq!((computing.between_vmas, computing.after_step), (100, 1500));
        assert_eq!(computing.wait_every, 0);
    }

    #[test]
    fn a_parameter_out_of_its_range_is_named() {
        let default = Forkstorm::default;
        default().validate(10.0).unwrap();
        for (name, params) in [
            ("threads", Forkstorm { threads: 0, ..default() }),
            ("threads", Forkstorm { threads: 5000, ..default() }),
            ("vmas", Forkstorm { vmas: 0, ..default() }),
            ("vmas", Forkstorm { vmas: 257, ..default() }),
            ("vmas", Forkstorm { vmas: 17, threads: 4096, ..default() }),
            ("insert_percent", Forkstorm { insert_percent: 0.0, ..default() }),
            ("insert_percent", Forkstorm { insert_percent: f64::NAN, ..default() }),
            ("copy_percent", Forkstorm { copy_percent: 100.5, ..default() }),
            ("wait_every_ns", Forkstorm { wait_every_ns: 2_000_000_000, ..default() }),
            ("wait_ns", Forkstorm { wait_ns: 2_000_000_000, ..default() }),
        ] {
            let error = params.validate(10.0).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{name}` is ")), "{error}");
        }
    }
}
