//! `rmapstorm`: threads that look for who maps a page, and threads that change it: the reverse map of a
//! server under memory pressure, beside its forks.
//!
//! Every thread keeps a handler and a delivery alive (`anon_vma/mod.rs` says what they are), so that each
//! root's tree has 1 + 2 × threads chains. Then it draws one operation after another:
//!
//! * **a read** goes from a page of a random root to every vma that may map it, under the root's lock held
//!   shared;
//! * **a write** copies one vma of the delivery and unmaps the copy, as a fork, a split or a move of a mapping
//!   does, and a while later an exit: three exclusive sections of one random root, two with inserts and one
//!   with removes.
//!
//! A read checks that each vma that it comes to maps the page, and that there are as many as can be: those
//! that stay, and at most one copy of each thread.
//!
//! What is measured: every section's wait, which for a write are three; every operation's latency, think
//! time excluded; the hold of one section in [`LOOK_EVERY`](super::anon_vma::LOOK_EVERY), and the convoy that
//! it joins.

use std::sync::Mutex;

use clap::Args;
use fairlock::platform::Platform;
use fairlock_report::random::{XorShift, jittered};
use fairlock_report::units::{Length, at_least_one, counted, parse_percent};
use serde::{Deserialize, Serialize};

use super::anon_vma::{
    Alone, Family, Inside, PAGES, Pool, Process, Processes, Roots, Sections, Visitor, What,
    check_vmas,
};
use super::mix::ReadShare;
use super::{Body, Failure, run_threads};
use crate::error::{LabError, Violation};
use crate::locks::{LabLock, New};
use crate::measure::{Repetition, RoleRecorder, ThreadRecord};
use crate::workload::{
    DefaultPoints, DefaultSubjects, Machine, Request, Role, UnderLock, Workload, check_length,
    check_share, check_thread_count, defaults, percent_of_reads, points, roles,
    run_under_erased_lock, running,
};
use crate::world::World;

/// Host seconds for one simulated second of each thread that runs.
const SIMULATION_COST: f64 = super::forkstorm::SIMULATION_COST;

/// Parameters of [`rmapstorm`](self).
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct Rmapstorm {
    /// Threads; each reads and writes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    pub threads: u32,
    /// Share of operations that walk; the rest copy and unmap a vma
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0, value_parser = parse_percent)]
    pub read_percent: f64,
    /// Vmas of each process, and as many locks
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one)]
    pub vmas: u32,
    /// Time between two operations: pauses (10p) or time (200ns), ±25 %
    #[arg(long, value_name = "LENGTH", default_value = "100p")]
    pub think: Length,
}

impl Default for Rmapstorm {
    fn default() -> Rmapstorm {
        defaults()
    }
}

impl Workload for Rmapstorm {
    const NAME: &'static str = "rmapstorm";
    const ABOUT: &'static str =
        "threads that look up who maps a page, and that change mappings: the same locks and trees";
    const EXAMPLES: &'static [&'static str] = &[
        "--threads 1,2,8 --read-percent 0,50,90,99",
        "--lock all --threads 8 --read-percent 90 --think 2us",
        "--on westmere-ex-4s --threads 40 --seeds 3",
    ];
    const DEFAULT_SUBJECTS: DefaultSubjects = DefaultSubjects {
        here: &["rwlock", "rwsem", "mutex", "linux-3.10", "linux-5.11", "std", "parking_lot"],
        simulated: &["rwlock", "rwsem", "mutex", "linux-3.10", "linux-5.11"],
    };
    const DEFAULT_POINTS: &'static [DefaultPoints] =
        &[points("threads", "1,2,8"), points("read_percent", "0,50,90,99")];

    fn roles(&self) -> Vec<Role> {
        roles(&[("thread", self.threads)])
    }

    fn words(&self) -> Vec<(&'static str, String)> {
        vec![
            ("read_percent", percent_of_reads(self.read_percent)),
            ("vmas", counted(self.vmas.into(), "vma")),
            ("think", format!("think {}", self.think.words())),
        ]
    }

    fn validate(&self, pause_ns: f64) -> Result<(), LabError> {
        check_thread_count("threads", self.threads.into())?;
        check_share(self.read_percent)?;
        check_vmas(self.vmas, self.threads)?;
        check_length("think", self.think, pause_ns)
    }

    fn simulation_cost(&self, _lock: &str, cpus: u32) -> f64 {
        running(self.threads, cpus) * SIMULATION_COST
    }

    fn run<W: Machine>(&self, request: &Request<'_, W>) -> Result<Repetition, LabError> {
        run_under_erased_lock(self, request)
    }
}

impl UnderLock for Rmapstorm {
    fn run_under<W: Machine, L: LabLock>(
        &self,
        request: &Request<'_, W>,
        new: New<L>,
    ) -> Result<Repetition, LabError> {
        run_at(request, self, &Roots::of(new, self.vmas, self.threads))
    }
}

/// What one thread has of its own.
#[derive(Default)]
struct Own {
    pool: Pool,
    handler: Process,
    delivery: Process,
}

/// The same at given roots.
fn run_at<W: World, P: Platform>(
    request: &Request<'_, W>,
    params: &Rmapstorm,
    roots: &Roots<P>,
) -> Result<Repetition, LabError> {
    let world = request.world;
    let processes = Processes::OF_A_CONNECTION;
    let (family, pools) = Family::<P>::new(params.vmas, params.threads, processes, false);
    let mut owns = pools
        .into_iter()
        .map(|pool| begin(&family, pool))
        .collect::<Result<Vec<Own>, Failure>>()
        .map_err(|failure| request.failed(Rmapstorm::NAME, failure))?;
    let writes = Mutex::new(0);

    let bodies = owns.iter_mut().zip(0_u32..).map(|(own, index)| {
        let seed = world.seed().wrapping_mul(1 << 32).wrapping_add(u64::from(index));
        let (family, writes) = (&family, &writes);
        let thread = Thread {
            world,
            family,
            visitor: Visitor::new(world, roots, index),
            visits: u64::from(1 + 2 * params.threads)..=u64::from(1 + 3 * params.threads),
            vmas: params.vmas,
            think: params.think.pauses(world.pause_ns()),
            random: XorShift::new(seed),
            reader: RoleRecorder::default(),
            writer: RoleRecorder::default(),
        };
        let share = ReadShare::percent(params.read_percent);
        Box::new(move || {
            let (record, sections) = thread.work(share, own)?;
            *writes.lock().expect("nobody panics with it") += sections;
            Ok(record)
        }) as Body<'_>
    });
    let mut repetition = run_threads(request, Rmapstorm::NAME, bodies.collect())?;
    let pools: Result<Vec<Pool>, Failure> = owns.into_iter().map(|own| end(&family, own)).collect();
    let pools = pools.map_err(|failure| request.failed(Rmapstorm::NAME, failure))?;
    family.check_quiet(&pools).map_err(|violation| request.broken(Rmapstorm::NAME, violation))?;
    roots.check(request, Rmapstorm::NAME, writes.into_inner().expect("all threads have ended"))?;
    repetition.events = roots.events();
    Ok(repetition)
}

fn begin<P: Platform>(family: &Family<P>, pool: Pool) -> Result<Own, Failure> {
    let mut own = Own { pool, ..Own::default() };
    family.fork(&mut Alone, &mut own.pool, family.daemon(), &mut own.handler)?;
    family.fork(&mut Alone, &mut own.pool, &own.handler, &mut own.delivery)?;
    Ok(own)
}

fn end<P: Platform>(family: &Family<P>, mut own: Own) -> Result<Pool, Failure> {
    family.exit(&mut Alone, &mut own.pool, &mut own.delivery)?;
    family.exit(&mut Alone, &mut own.pool, &mut own.handler)?;
    Ok(own.pool)
}

/// One thread.
struct Thread<'a, W, P: Platform> {
    world: &'a W,
    family: &'a Family<P>,
    visitor: Visitor<'a, W, P>,
    /// How many vmas a walk can find.
    visits: std::ops::RangeInclusive<u64>,
    vmas: u32,
    think: u32,
    random: XorShift,
    reader: RoleRecorder,
    writer: RoleRecorder,
}

impl<W: World, P: Platform> Thread<'_, W, P> {
    /// Answers also how many exclusive sections there were.
    fn work(mut self, share: ReadShare, own: &mut Own) -> Result<(ThreadRecord, u64), Failure> {
        let world = self.world;
        loop {
            let reads = share.pick(&mut self.random);
            let began = world.now();
            if reads {
                self.read()?;
            } else {
                self.write(own)?;
            }
            let recorder = if reads { &mut self.reader } else { &mut self.writer };
            recorder.latency.record(world.now().saturating_sub(began));
            recorder.executed += 1;
            if !world.running() {
                break;
            }
            recorder.ops += 1;
            world.compute(jittered(self.think, &mut self.random));
        }
        let record = ThreadRecord {
            reader: share.has_reads().then_some(self.reader),
            writer: share.has_writes().then_some(self.writer),
            excluded_ns: 0,
        };
        Ok((record, self.visitor.writes))
    }

    fn read(&mut self) -> Result<(), Failure> {
        let page = u64::from(self.random.below(self.vmas * PAGES as u32));
        let (mut visited, mut astray) = (0, false);
        let mut visit = |(first, last)| {
            visited += 1;
            astray |= !(first..=last).contains(&page);
        };
        let family = self.family;
        let root = (page / PAGES) as usize;
        self.visitor.read(&mut self.reader, root, || family.walk(page, &mut visit))??;
        if astray {
            return Err(Violation::Walk { what: "a vma does not map the page" }.into());
        }
        if !self.visits.contains(&visited) {
            return Err(Violation::Walk { what: "too few vmas, or too many" }.into());
        }
        Ok(())
    }

    fn write(&mut self, own: &mut Own) -> Result<(), Failure> {
        let place = self.random.below(self.vmas) as usize;
        let mut writing = Writing { visitor: &mut self.visitor, recorder: &mut self.writer };
        let copy = self.family.copy_one(&mut writing, &mut own.pool, &own.delivery, place)?;
        self.family.unmap_one(&mut writing, &mut own.pool, copy)
    }
}

/// The sections of a write.
struct Writing<'b, 'a, W, P: Platform> {
    visitor: &'b mut Visitor<'a, W, P>,
    recorder: &'b mut RoleRecorder,
}

impl<W: World, P: Platform> Sections for Writing<'_, '_, W, P> {
    fn write(&mut self, root: usize, what: What, inside: &mut Inside<'_>) -> Result<(), Failure> {
        Ok(self.visitor.write(self.recorder, root, what, inside)??)
    }

    fn between_vmas(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::{NewLock, Protected};
    use crate::world::RealWorld;

    #[test]
    fn a_walk_that_misses_somebody_or_finds_too_many_is_a_violation() {
        let world = RealWorld::new(false);
        let roots = Roots::of(<std::sync::RwLock<Protected> as NewLock>::new, 3, 2);
        let (family, pools) = Family::new(3, 2, Processes::OF_A_CONNECTION, false);
        let owns: Vec<_> = pools.into_iter().map(|pool| begin(&family, pool).unwrap()).collect();
        let walk_with = |visits| {
            let mut thread = Thread {
                world: &world,
                family: &family,
                visitor: Visitor::new(&world, &roots, 0),
                visits,
                vmas: 3,
                think: 0,
                random: XorShift::new(1),
                reader: RoleRecorder::default(),
                writer: RoleRecorder::default(),
            };
            let walked = thread.read();
            assert_eq!(thread.reader.wait.count(), 1);
            walked
        };
        // The daemon, and two processes of each thread.
        walk_with(5..=7).unwrap();
        for visits in [4..=4, 6..=7] {
            let failure = walk_with(visits).unwrap_err();
            assert!(matches!(failure, Failure::Violation(Violation::Walk { .. })), "{failure:?}");
        }
        let pools: Vec<_> = owns.into_iter().map(|own| end(&family, own).unwrap()).collect();
        family.check_quiet(&pools).unwrap();
    }

    #[test]
    fn a_parameter_out_of_its_range_is_named() {
        let default = Rmapstorm::default;
        default().validate(10.0).unwrap();
        for (name, params) in [
            ("threads", Rmapstorm { threads: 0, ..default() }),
            ("read_percent", Rmapstorm { read_percent: 101.0, ..default() }),
            ("vmas", Rmapstorm { vmas: 0, ..default() }),
            ("vmas", Rmapstorm { vmas: 257, ..default() }),
            ("vmas", Rmapstorm { vmas: 17, threads: 4096, ..default() }),
            ("think", Rmapstorm { think: Length::Nanoseconds(2_000_000_000), ..default() }),
        ] {
            let error = params.validate(10.0).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{name}` is ")), "{error}");
        }
    }
}
