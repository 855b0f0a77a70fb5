//! Measures this machine and describes it as a profile for the simulator.
//!
//! Everything is measured in rounds that lie apart in time, since a shared machine changes over
//! seconds; [`samples`] says what the rounds come to. What one CPU, or the lack of a privilege,
//! hides is assumed, and the profile says so.

mod barriers;
pub mod cpus;
mod instructions;
mod lines;
pub mod samples;
mod sleeping;

use std::collections::BTreeMap;
use std::fs;

use fairlock_report::units::counted;
use fairlock_sim::profile::{Figure, HERE, HERE_FILE, Key, Origin, Sheet};
use toml::{Table, Value};

use crate::error::LabError;
use crate::machine;
use crate::world::RealWorld;
use cpus::{Cpus, Distance};
use samples::Samples;

/// Follows a calibration.
pub trait Watch {
    /// The next part of `parts` begins.
    fn begins(&mut self, what: &str, part: u64, parts: u64);
    /// Whether to stop before the next part.
    fn cancelled(&self) -> bool;
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The machine, as a file.
    pub sheet: Sheet,
    /// Every measured figure with its spread, in the order of the file.
    pub measured: Vec<Measured>,
}

/// A measured figure. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Its key, or what it is where the profile has no place for it.
    pub what: String,
    /// The figure in the profile.
    pub value: f64,
    /// Of all samples.
    pub p10: f64,
    /// Of all samples.
    pub p50: f64,
    /// Of all samples.
    pub p90: f64,
    /// What a reader should know beside that; may be empty.
    pub note: String,
}

/// How long CPUs are idle before they are woken, µs, and how often in one round.
const IDLE: [(u64, u32); 5] = [(10, 200), (50, 200), (200, 150), (1000, 60), (5000, 20)];
/// The most pairs of CPUs of one distance that are measured in one round.
const MOST_PAIRS: usize = 16;
/// How long two threads want one CPU in one round.
const CONTENDED_NS: u64 = 150_000_000;

/// Samples of everything.
#[derive(Default)]
struct Rounds {
    load: Samples,
    store: Samples,
    rmw: Samples,
    pause: Samples,
    clock: Samples,
    observe: Samples,
    memory: Samples,
    fast_paths: Samples,
    smt_slowdown: Samples,
    smt_spin: Samples,
    /// By distance.
    transfers: BTreeMap<Distance, Samples>,
    /// Parts of a transfer.
    keep: Samples,
    /// Changes of a word in a row by its owner, and how long until the next owner, ns.
    in_a_row: Samples,
    ownership: Samples,
    /// Factors.
    contended: Samples,
    /// By [`IDLE`].
    latency: [Samples; IDLE.len()],
    call: [Samples; IDLE.len()],
    call_same_cpu: Samples,
    nobody: Samples,
    failed_sleep: Samples,
    hand_over: Samples,
    switch: Samples,
    slice: Samples,
    barrier_alone: Samples,
    barrier_interrupting: Samples,
    barrier_lost: Samples,
}

/// One part of a round.
struct Part {
    what: &'static str,
    run: fn(&mut Rounds, &RealWorld, &Cpus) -> Result<(), LabError>,
}

const PARTS: [Part; 7] = [
    Part { what: "instructions", run: instructions },
    Part { what: "line transfers", run: transfers },
    Part { what: "contended lines", run: contests },
    Part { what: "wake-ups", run: wake_ups },
    Part { what: "switches", run: switches },
    Part { what: "barriers", run: barriers },
    Part { what: "time slices", run: slices },
];

/// Measures this machine in `rounds` rounds of about a second on a small machine. `None` if it was
/// cancelled.
///
/// # Errors
/// No thread could be started.
pub fn calibrate(rounds: u32, watch: &mut dyn Watch) -> Result<Option<Calibration>, LabError> {
    let world = RealWorld::new(false);
    let cpus = Cpus::here();
    let mut all = Rounds::default();
    let parts = u64::from(rounds) * PARTS.len() as u64;
    for part in 0..parts {
        let Part { what, run } = &PARTS[part as usize % PARTS.len()];
        if watch.cancelled() {
            return Ok(None);
        }
        watch.begins(what, part, parts);
        run(&mut all, &world, &cpus)?;
    }
    Ok((!watch.cancelled()).then(|| Description::of(&all, &cpus, rounds).finish()))
}

fn instructions(all: &mut Rounds, world: &RealWorld, cpus: &Cpus) -> Result<(), LabError> {
    all.load.push(instructions::load(world));
    all.store.push(instructions::store(world));
    all.rmw.push(instructions::compare_exchange(world));
    all.pause.push(instructions::pause(world));
    all.clock.push(instructions::clock(world));
    all.observe.push(instructions::observe(world));
    all.memory.push(instructions::memory(world).unwrap_or_default());
    all.fast_paths.push(instructions::fast_paths(world));
    if let [siblings, ..] = cpus.pairs(Distance::Siblings, 1)[..] {
        let slowdown = |beside| instructions::slowdown(world, siblings, beside);
        all.smt_slowdown.push(vec![slowdown(instructions::compute)?]);
        all.smt_spin.push(vec![slowdown(std::hint::spin_loop)?]);
    }
    Ok(())
}

fn transfers(all: &mut Rounds, world: &RealWorld, cpus: &Cpus) -> Result<(), LabError> {
    for distance in [Distance::Siblings, Distance::Cluster, Distance::Socket, Distance::Cross] {
        let mut round = Vec::new();
        for pair in cpus.pairs(distance, MOST_PAIRS) {
            round.extend(lines::transfers(world, pair)?);
        }
        all.transfers.entry(distance).or_default().push(round);
    }
    Ok(())
}

/// Each figure is a ratio, so what it is compared with is measured right before: a machine may change
/// its state between parts.
fn contests(all: &mut Rounds, world: &RealWorld, cpus: &Cpus) -> Result<(), LabError> {
    let Some(pair) = cpus.two_cores() else { return Ok(()) };
    let median = |round: Vec<f64>| {
        let mut samples = Samples::default();
        samples.push(round);
        samples.quantile(0.5)
    };
    let transfer_ns = |from, to| Ok::<_, LabError>(median(lines::transfers(world, (from, to))?));
    let alone = lines::contests(world, &[&[pair.0]])?;
    let change_ns = median(alone.iter().map(|it| it.ns / it.changes as f64).collect());
    let pair_ns = transfer_ns(pair.0, pair.1)?;
    let contests = |groups: &[&[usize]]| {
        let mut found = lines::contests(world, groups)?;
        found.retain(|contest| contest.was_contested());
        Ok::<_, LabError>(found)
    };
    let found = contests(&[&[pair.0, pair.1]])?;
    all.keep.push(found.iter().map(|it| it.used_ns(change_ns) / pair_ns).collect());
    all.in_a_row.push(found.iter().map(|it| it.in_a_row()).collect());
    all.ownership.push(found.iter().map(|it| it.ownership_ns()).collect());
    if let Some([here, there]) = cpus.two_cores_in_two_sockets() {
        let near_ns = transfer_ns(here[0], here[1])?;
        let far_ns = transfer_ns(here[0], there[0])?;
        let found = contests(&[&here, &there])?;
        all.contended.push(found.iter().map(|it| it.far_factor(near_ns, far_ns)).collect());
    }
    Ok(())
}

fn wake_ups(all: &mut Rounds, world: &RealWorld, cpus: &Cpus) -> Result<(), LabError> {
    all.nobody.push(sleeping::calls_to_nobody(world));
    all.failed_sleep.push(sleeping::failed_sleeps(world));
    let Some(pair) = cpus.two_cores() else { return Ok(()) };
    for (index, (idle_us, times)) in IDLE.into_iter().enumerate() {
        let found = sleeping::wake_ups(world, pair, idle_us * 1000, times)?;
        all.latency[index].push(found.latency);
        all.call[index].push(found.call);
    }
    Ok(())
}

fn switches(all: &mut Rounds, world: &RealWorld, cpus: &Cpus) -> Result<(), LabError> {
    let cpu = cpus.list[0].number;
    all.hand_over.push(sleeping::hand_overs(world, cpu)?);
    all.call_same_cpu.push(sleeping::calls_on_same_cpu(world, cpu)?);
    all.switch.push(sleeping::switches(world, cpu)?);
    Ok(())
}

fn barriers(all: &mut Rounds, world: &RealWorld, cpus: &Cpus) -> Result<(), LabError> {
    if !barriers::exist() {
        return Ok(());
    }
    all.barrier_alone.push(barriers::alone(world));
    if let Some(pair) = cpus.two_cores() {
        let found = barriers::interrupting(world, pair)?;
        all.barrier_interrupting.push(found.call);
        all.barrier_lost.push(found.lost);
    }
    Ok(())
}

fn slices(all: &mut Rounds, world: &RealWorld, cpus: &Cpus) -> Result<(), LabError> {
    all.slice.push(sleeping::slices(world, cpus.list[0].number, CONTENDED_NS)?);
    Ok(())
}

/// The file and the table, as they grow.
struct Description {
    sheet: Sheet,
    measured: Vec<Measured>,
}

impl Description {
    fn of(all: &Rounds, cpus: &Cpus, rounds: u32) -> Description {
        let here = machine::here(None);
        let date = fairlock_report::machine::date();
        let mut about = format!("Written by `fairlock calibrate` on {date}.");
        if !cpus.is_even() {
            about += " This machine's sockets or cores differ in size, or not all of its CPUs may be \
                      used: the topology is rounded up.";
        }
        if cfg!(debug_assertions) {
            about += " By a debug build: instructions look slower than they are.";
        }
        let sheet = Sheet {
            name: HERE.to_owned(),
            file: HERE_FILE.to_owned(),
            title: format!(
                "{}, {}, {}",
                here.cpu,
                counted(cpus.list.len() as u64, "CPU"),
                here.kernel
            ),
            about,
            sources: BTreeMap::from([
                (HERE.to_owned(), format!("fairlock calibrate, {rounds} rounds, {date}")),
                ("kernel".to_owned(), "what the kernel says".to_owned()),
            ]),
            figures: Vec::new(),
        };
        let mut description = Description { sheet, measured: Vec::new() };
        description.topology(cpus);
        description.costs(all, cpus);
        description.lines(all, cpus);
        let slice_ns = description.schedule(all);
        description.wake(all, slice_ns);
        description.barrier(all);
        description.device();
        description
    }

    fn finish(self) -> Calibration {
        Calibration { sheet: self.sheet, measured: self.measured }
    }

    fn add(&mut self, key: &str, amount: &[(&str, Value)], origin: Origin, note: &str) {
        let amount: Table =
            amount.iter().map(|(unit, value)| ((*unit).to_owned(), value.clone())).collect();
        let key = Key::named(key);
        self.sheet.figures.push(Figure { key, amount, origin, note: note.to_owned() });
    }

    fn assume(&mut self, key: &str, unit: &str, value: f64, why: &str) {
        self.add(key, &[(unit, Value::Float(value))], Origin::Assumed(why.to_owned()), "");
    }

    fn count(&mut self, key: &str, count: u32) {
        let origin = Origin::From("kernel".to_owned());
        self.add(key, &[("count", Value::Integer(count.into()))], origin, "");
    }

    /// Adds a measured time and its row.
    fn time(&mut self, key: &str, ns: f64, samples: &Samples, note: &str) {
        let note = self.row(key, ns, samples, note);
        let (unit, value) = if ns >= 1e6 {
            ("ms", ns / 1e6)
        } else if ns >= 1e3 {
            ("us", ns / 1e3)
        } else {
            ("ns", ns)
        };
        self.add(key, &[(unit, rounded(value))], from_here(), &note);
    }

    /// Adds a row and returns its note.
    fn row(&mut self, what: &str, value: f64, samples: &Samples, note: &str) -> String {
        let states = states(samples);
        let note: Vec<&str> =
            [note, states.as_str()].into_iter().filter(|note| !note.is_empty()).collect();
        let note = note.join("; ");
        self.measured.push(Measured {
            what: what.to_owned(),
            value,
            p10: samples.quantile(0.1),
            p50: samples.quantile(0.5),
            p90: samples.quantile(0.9),
            note: note.clone(),
        });
        note
    }

    fn topology(&mut self, cpus: &Cpus) {
        self.count("topology.sockets", cpus.sockets);
        self.count("topology.cores_per_socket", cpus.cores_per_socket);
        self.count("topology.threads_per_core", cpus.threads_per_core);
        if cpus.cores_per_cluster < cpus.cores_per_socket {
            self.count("topology.cores_per_cluster", cpus.cores_per_cluster);
        }
    }

    fn costs(&mut self, all: &Rounds, cpus: &Cpus) {
        for (key, samples) in
            [("cost.load", &all.load), ("cost.store", &all.store), ("cost.rmw", &all.rmw)]
        {
            self.time(key, positive(samples.typical()), samples, "");
        }
        self.step(all);
        for (key, samples) in
            [("cost.pause", &all.pause), ("cost.clock", &all.clock), ("cost.observe", &all.observe)]
        {
            self.time(key, positive(samples.typical()), samples, "");
        }
        if cpus.threads_per_core > 1 && !all.smt_slowdown.is_empty() {
            let factor = |samples: &Samples| rounded(samples.quantile(0.5).clamp(1.0, 8.0));
            let busy = factor(&all.smt_slowdown);
            self.add("cost.smt_slowdown", &[("factor", busy.clone())], from_here(), "");
            // Left out where it could make no difference.
            if let Value::Float(busy) = busy
                && busy > 1.0
            {
                let spin = all.smt_spin.quantile(0.5).clamp(1.0, busy);
                self.add("cost.smt_spin", &[("factor", rounded(spin))], from_here(), "");
            }
        } else {
            self.assume("cost.smt_slowdown", "factor", 1.0, "no siblings");
        }
    }

    /// What a lock's fast paths take beyond the operations on its words, as the simulator counts these.
    fn step(&mut self, all: &Rounds) {
        let [loads, stores, updates] = instructions::FAST_PATHS.map(f64::from);
        let operations_ns =
            loads * all.load.typical() + stores * all.store.typical() + updates * all.rmw.typical();
        let rest_ns = all.fast_paths.typical() - operations_ns;
        let step_ns = (rest_ns / (loads + stores + updates)).max(0.0);
        let note = if rest_ns < 0.0 {
            "a lock's fast paths, whose spread this is, take no longer than their operations one by one"
        } else {
            "a lock's fast paths, whose spread this is, less their operations, for each of these"
        };
        self.time("cost.step", step_ns, &all.fast_paths, note);
    }

    fn lines(&mut self, all: &Rounds, cpus: &Cpus) {
        let mut nearest_ns: f64 = 0.0;
        for (distance, key, exists, otherwise_ns) in [
            (Distance::Siblings, "line.smt", cpus.threads_per_core > 1, 10.0),
            (
                Distance::Cluster,
                "line.cluster",
                cpus.cores_per_cluster < cpus.cores_per_socket,
                30.0,
            ),
            (Distance::Socket, "line.socket", true, 50.0),
            (Distance::Cross, "line.cross", cpus.sockets > 1, 130.0),
        ] {
            if !exists {
                continue;
            }
            let none = Samples::default();
            let samples = all.transfers.get(&distance).unwrap_or(&none);
            if samples.is_empty() {
                let ns = nearest_ns.max(otherwise_ns);
                nearest_ns = ns;
                self.assume(key, "ns", ns, "no two such CPUs here");
                continue;
            }
            // A profile's transfers take no longer the nearer they are; noise may say otherwise.
            let measured_ns = positive(samples.typical());
            let note = if measured_ns < nearest_ns { "raised to that of nearer CPUs" } else { "" };
            nearest_ns = measured_ns.max(nearest_ns);
            self.time(key, nearest_ns, samples, note);
        }
        if all.memory.is_empty() {
            self.assume("line.memory", "ns", 100.0, "this CPU's lines cannot be flushed");
        } else {
            self.time("line.memory", positive(all.memory.typical()), &all.memory, "");
        }
        self.assume("line.invalidate", "ns", 1.0, "sharers are invalidated side by side");
        self.assume("line.share", "ns", 10.0, "a last-level cache is busy for about 30 cycles");
        self.assume("line.spread", "part", 0.2, "a sample here is the mean of many transfers");
        self.contests(all, cpus);
        let fifo = Value::String("fifo".to_owned());
        let why = "requests for a busy line are queued where it is homed";
        self.add("line.arbitration", &[("order", fifo)], Origin::Assumed(why.to_owned()), "");
    }

    fn contests(&mut self, all: &Rounds, cpus: &Cpus) {
        if all.keep.is_empty() {
            let why = "one CPU: half, as when nobody is before the other's request";
            self.assume("line.keep", "part", 0.5, why);
        } else {
            // The median is in the more frequent of two states, too. A neighbour may make a ratio larger
            // or smaller, so none of the rounds is the least disturbed one.
            let keep = all.keep.quantile(0.5).clamp(0.0, 0.9);
            let ownership_ns = all.ownership.quantile(0.5);
            let in_a_row = format!("{} changes in a row", plain(all.in_a_row.quantile(0.5)));
            let row_note = format!("not in the profile: {in_a_row}");
            self.row("an ownership of a contended line", ownership_ns, &all.ownership, &row_note);
            let note = format!("{in_a_row} in {} ns by each of two CPUs", plain(ownership_ns));
            self.add("line.keep", &[("part", rounded(keep))], from_here(), &note);
        }
        if cpus.sockets == 1 {
            return; // Left out where it could make no difference.
        }
        if all.contended.is_empty() {
            let why = "as fitted for ivybridge-ex-8s: no two cores in each of two sockets here";
            self.assume("line.contended", "factor", 2.0, why);
        } else {
            let factor = all.contended.quantile(0.5).clamp(1.0, 8.0);
            let note = "two cores in each of two sockets change one word";
            self.add("line.contended", &[("factor", rounded(factor))], from_here(), note);
        }
    }

    /// Adds what the scheduler does and returns its slice.
    fn schedule(&mut self, all: &Rounds) -> f64 {
        let spread = Value::String("spread".to_owned());
        let why = "as Linux spreads threads that it starts".to_owned();
        self.add("schedule.placement", &[("order", spread)], Origin::Assumed(why), "");
        match sleeping::ticks_per_second() {
            Some(hz) => {
                let origin = Origin::From("kernel".to_owned());
                let note = "the step of the coarse clock";
                self.add("schedule.tick", &[("hz", rounded(hz))], origin, note);
            }
            None => self.assume("schedule.tick", "hz", 250.0, "a common choice of distributors"),
        }
        let base_slice = fs::read_to_string("/sys/kernel/debug/sched/base_slice_ns")
            .ok()
            .and_then(|text| text.trim().parse::<f64>().ok())
            .filter(|&ns| ns > 0.0 && ns < 1e9);
        let slice_ns = if !all.slice.is_empty() {
            let ns = all.slice.quantile(0.5);
            let note = "two threads on one CPU, with what the tick adds";
            self.time("schedule.slice", ns, &all.slice, note);
            ns
        } else if let Some(ns) = base_slice {
            let origin = Origin::From("kernel".to_owned());
            self.add("schedule.slice", &[("us", rounded(ns / 1e3))], origin, "base_slice_ns");
            ns
        } else {
            self.assume("schedule.slice", "ms", 2.8, "Linux since 6.15, with 8 CPUs or more");
            2.8e6
        };
        if all.switch.is_empty() {
            self.assume("schedule.switch", "us", 1.5, "no thread yielded to another here");
        } else {
            let ns = positive(all.switch.typical());
            self.time("schedule.switch", ns, &all.switch, "two threads that yield to each other");
        }
        let why = "some dozens of lines from another cache";
        self.assume("schedule.migration", "us", 2.0, why);
        slice_ns
    }

    fn wake(&mut self, all: &Rounds, slice_ns: f64) {
        let why = "a running thread keeps its slice (RUN_TO_PARITY)";
        self.add(
            "schedule.wakeup_granularity",
            &[("us", rounded(slice_ns / 1e3))],
            Origin::Assumed(why.to_owned()),
            "",
        );
        let call = &all.call[1];
        let same_cpu_call_ns = all.call_same_cpu.least_median();
        self.time("wake.call", positive(same_cpu_call_ns), &all.call_same_cpu, "");
        if call.is_empty() {
            self.assume("wake.remote", "ns", 0.0, "there is no other CPU");
        } else {
            let remote_ns = (call.typical() - same_cpu_call_ns).max(0.0);
            let note =
                "a call to a CPU idle for 50 µs, whose spread this is, less one on the same CPU";
            self.time("wake.remote", remote_ns, call, note);
        }
        self.assume("wake.lines", "count", 0.0, "in the figures above");
        self.time("wake.nobody", positive(all.nobody.typical()), &all.nobody, "");

        let hand_over_ns = all.hand_over.least_median();
        self.row(
            "a hand-over",
            hand_over_ns,
            &all.hand_over,
            "not in the profile: call, sleep and switch on one CPU",
        );
        let rest_ns = hand_over_ns - same_cpu_call_ns - all.switch.least_median();
        let note =
            "a hand-over less call and switch, at least a failed sleep, whose spread this is";
        let sleep_ns = positive(rest_ns.max(all.failed_sleep.least_median()));
        self.time("wake.sleep", sleep_ns, &all.failed_sleep, note);

        let mut first = true;
        for ((idle_us, _), samples) in IDLE.into_iter().zip(&all.latency) {
            if samples.is_empty() {
                continue;
            }
            let p50 = positive(samples.typical()) / 1e3;
            let p99 = samples.least_quantile(0.99).min(1e9) / 1e3;
            let what = format!("wake.idle, {idle_us} µs");
            let note = format!("p99 {} µs", plain(p99));
            self.row(&what, p50 * 1e3, samples, &note);
            // The table begins at 0: nobody sleeps for less than a wake-up takes.
            let (from_us, note) = match first {
                true => (0.0, format!("measured after {idle_us} µs")),
                false => (idle_us as f64, String::new()),
            };
            let note = [note, states(samples)].join("; ");
            first = false;
            self.wakening(from_us, p50, p99, from_here(), note.trim_matches([';', ' ']));
        }
        if first {
            let p50 = positive(hand_over_ns) / 1e3;
            let why = "one CPU: as a hand-over on it".to_owned();
            self.wakening(0.0, p50, 3.0 * p50, Origin::Assumed(why), "");
        }
    }

    fn wakening(&mut self, idle_us: f64, p50: f64, p99: f64, origin: Origin, note: &str) {
        let p99 = p99.max(p50);
        let amount =
            [("idle_us", rounded(idle_us)), ("p50_us", rounded(p50)), ("p99_us", rounded(p99))];
        self.add("wake.idle", &amount, origin, note);
    }

    fn barrier(&mut self, all: &Rounds) {
        /// A write to the interrupt controller.
        const EACH_NS: f64 = 100.0;
        let call_ns = all.barrier_alone.typical();
        if all.barrier_alone.is_empty() {
            self.assume("barrier.call", "ns", 400.0, "this kernel has no membarrier");
        } else {
            self.time("barrier.call", positive(call_ns), &all.barrier_alone, "");
        }
        if all.barrier_interrupting.is_empty() {
            self.assume("barrier.wait", "us", 1.5, "nobody else could be interrupted here");
        } else {
            let wait_ns = (all.barrier_interrupting.typical() - call_ns - EACH_NS).max(0.0);
            let note = "one that interrupts a CPU, whose spread this is, less the other two";
            self.time("barrier.wait", wait_ns, &all.barrier_interrupting, note);
        }
        self.assume("barrier.each", "ns", EACH_NS, "not measured: the interrupt controller");
        if all.barrier_lost.is_empty() {
            self.assume("barrier.interrupt", "us", 1.0, "nobody else could be interrupted here");
        } else {
            let lost_ns = all.barrier_lost.typical();
            self.time("barrier.interrupt", lost_ns, &all.barrier_lost, "");
        }
    }

    fn device(&mut self) {
        let why = || Origin::Assumed("not measured: an NVMe drive".to_owned());
        self.add("device.servers", &[("count", Value::Integer(16))], why(), "");
        self.add("device.queue", &[("count", Value::Integer(1008))], why(), "");
        for (key, base_us) in [("device.read", 80.0), ("device.write", 18.0)] {
            let amount = [
                ("base_us", Value::Float(base_us)),
                ("kib_ns", Value::Float(320.0)),
                ("sigma", Value::Float(0.2)),
            ];
            self.add(key, &amount, why(), "");
        }
    }
}

/// Two clusters in words; empty for one.
fn states(samples: &Samples) -> String {
    let words = samples.clusters().map(|[low, high]| {
        format!(
            "two states: {} ns in {:.0} % of the samples, {} ns in the others",
            plain(low.median),
            100.0 * low.share,
            plain(high.median)
        )
    });
    words.unwrap_or_default()
}

fn from_here() -> Origin {
    Origin::From(HERE.to_owned())
}

/// Above 0, as profiles need it: a clock may be too coarse to see a figure.
fn positive(ns: f64) -> f64 {
    ns.max(0.01)
}

/// Three significant digits.
fn rounded(value: f64) -> Value {
    if value == 0.0 {
        return Value::Float(0.0);
    }
    let scale = 10_f64.powi(2 - value.abs().log10().floor() as i32);
    // Dividing last keeps 0.1 what it is: 1/10, not 0.1 times something inexact.
    let inverse = 1.0 / scale;
    Value::Float(if scale >= 1.0 {
        (value * scale).round() / scale
    } else {
        (value / inverse).round() * inverse
    })
}

fn plain(value: f64) -> String {
    match rounded(value) {
        Value::Float(value) => value.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent {
        parts: Vec<(String, u64, u64)>,
        stop_after: usize,
    }

    impl Watch for Silent {
        fn begins(&mut self, what: &str, part: u64, parts: u64) {
            self.parts.push((what.to_owned(), part, parts));
        }

        fn cancelled(&self) -> bool {
            self.parts.len() >= self.stop_after
        }
    }

    fn reads(sheet: &Sheet) {
        let text = sheet.write();
        let read = Sheet::parse(HERE, HERE_FILE, &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(
            read.profile().unwrap_or_else(|e| panic!("{e}\n{text}")),
            sheet.profile().unwrap()
        );
    }

    #[test]
    fn what_is_measured_here_is_a_valid_profile() {
        let mut watch = Silent { parts: Vec::new(), stop_after: usize::MAX };
        let found = calibrate(1, &mut watch).unwrap().unwrap();
        reads(&found.sheet);
        assert_eq!(watch.parts.len(), PARTS.len());
        assert_eq!(watch.parts[1], ("line transfers".to_owned(), 1, PARTS.len() as u64));
        let rmw = found.measured.iter().find(|row| row.what == "cost.rmw");
        assert!(rmw.unwrap().value > 0.0);
    }

    #[test]
    fn stopping_leaves_nothing_half_measured() {
        let mut watch = Silent { parts: Vec::new(), stop_after: 1 };
        assert_eq!(calibrate(3, &mut watch).unwrap(), None);
        assert_eq!(watch.parts.len(), 1);
    }

    #[test]
    fn one_cpu_with_nothing_measured_is_a_valid_profile_with_assumptions() {
        let mut cpus = Cpus::here();
        cpus.list.truncate(1);
        (cpus.sockets, cpus.cores_per_socket, cpus.threads_per_core) = (1, 1, 1);
        cpus.cores_per_cluster = 1;
        let sheet = Description::of(&Rounds::default(), &cpus, 1).finish().sheet;
        reads(&sheet);
        for key in ["line.socket", "line.keep"] {
            let figure = sheet.figures.iter().find(|figure| figure.key.name == key).unwrap();
            assert!(matches!(figure.origin, Origin::Assumed(_)), "{key}");
        }
        assert!(!sheet.write().contains("contended"), "there is one socket");
    }

    #[test]
    fn sockets_of_one_core_each_have_an_assumed_cost_of_contention() {
        let mut cpus = Cpus::here();
        (cpus.sockets, cpus.cores_per_socket, cpus.threads_per_core) = (2, 1, 1);
        cpus.cores_per_cluster = 1;
        let sheet = Description::of(&Rounds::default(), &cpus, 1).finish().sheet;
        reads(&sheet);
        assert_eq!(sheet.profile().unwrap().line.contended, 2.0);
    }

    #[test]
    fn a_step_is_what_fast_paths_take_beyond_their_operations() {
        let step = |fast_paths_ns: f64| {
            let mut all = Rounds::default();
            all.load.push(vec![1.0]);
            all.store.push(vec![0.5]);
            all.rmw.push(vec![5.0]);
            all.fast_paths.push(vec![fast_paths_ns]);
            let found = Description::of(&all, &Cpus::here(), 1).finish();
            (found.sheet.profile().unwrap().cost.step_ns, found.sheet.write())
        };
        assert_eq!(step(25.0).0, 2.0);
        // CPUs do much at once: nothing takes less than nothing.
        let (none, text) = step(10.0);
        assert_eq!(none, 0.0);
        assert!(text.contains("no longer than their operations one by one"), "{text}");
    }

    #[test]
    fn what_an_owner_keeps_is_the_median_and_at_most_what_a_profile_may_say() {
        let keep = |parts: Vec<f64>| {
            let mut all = Rounds::default();
            all.ownership.push(vec![130.0; parts.len()]);
            all.in_a_row.push(vec![14.0; parts.len()]);
            all.keep.push(parts);
            let found = Description::of(&all, &Cpus::here(), 1).finish();
            (found.sheet.profile().unwrap().line.keep, found.sheet.write())
        };
        // A neighbour that stops one of the two leaves the word to the other.
        let (part, text) = keep(vec![0.4, 0.45, 0.5, 0.55, 90.0]);
        assert_eq!(part, 0.5);
        assert!(text.contains("14 changes in a row in 130 ns"), "{text}");
        assert_eq!(keep(vec![3.0; 5]).0, 0.9);
        assert_eq!(keep(vec![-0.1; 5]).0, 0.0);
    }

    #[test]
    fn a_big_machine_is_a_valid_profile_even_where_noise_reverses_its_transfers() {
        let mut cpus = Cpus::here();
        (cpus.sockets, cpus.cores_per_socket, cpus.threads_per_core) = (2, 8, 2);
        cpus.cores_per_cluster = 4;
        let mut all = Rounds::default();
        for (distance, ns) in [
            (Distance::Siblings, 12.0),
            (Distance::Cluster, 60.0),
            (Distance::Socket, 55.0),
            (Distance::Cross, 120.0),
        ] {
            all.transfers.entry(distance).or_default().push(vec![ns; 9]);
        }
        all.smt_slowdown.push(vec![1.4]);
        all.smt_spin.push(vec![1.5]);
        all.contended.push(vec![1.7; 9]);
        all.slice.push(vec![4e6; 9]);
        let mixed = [vec![4_000.0; 50], vec![40_000.0; 50]].concat();
        all.latency[2].push(mixed);
        let found = Description::of(&all, &cpus, 1).finish();
        reads(&found.sheet);
        let profile = found.sheet.profile().unwrap();
        assert_eq!((profile.line.cluster_ns, profile.line.socket_ns), (60.0, 60.0));
        assert_eq!(profile.line.cross_ns, [120.0]);
        assert_eq!(profile.line.contended, 1.7);
        // No more than beside one that is busy, whatever noise says.
        assert_eq!((profile.cost.smt_slowdown, profile.cost.smt_spin), (1.4, 1.4));
        assert_eq!(profile.schedule.slice_ns, 4e6);
        let text = found.sheet.write();
        assert!(text.contains("raised to that of nearer CPUs"), "{text}");
        assert!(text.contains("two states: 4000 ns in 50 % of the samples, 40000 ns"), "{text}");
    }

    #[test]
    fn figures_have_three_digits() {
        for (value, digits) in
            [(0.0, 0.0), (1234.5, 1230.0), (0.012_345, 0.0123), (99.96, 100.0), (5.0, 5.0)]
        {
            assert_eq!(rounded(value), Value::Float(digits));
        }
    }
}
