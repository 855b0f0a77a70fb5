//! `fairlock list`: everything that has a name, as text and as JSON; and the figures of one machine.

use clap::Args;
use fairlock::platform::Tunable;
use fairlock_lab::locks::{self, Kind, ranges};
use fairlock_lab::pollers;
use fairlock_lab::workloads::{self, log, readseek};
use fairlock_report::screen::{self, entry, wrapped_lines};
use fairlock_report::units;
use fairlock_sim::profile::{self, Origin, Profile, Sheet};
use fairlock_study::metric;
use fairlock_study::report;
use fairlock_study::study;
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::showing::columns;

/// What to list.
#[derive(Debug, Args)]
pub struct List {
    /// Show the figures of a machine: a name, `here`, or the path of its file
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl List {
    /// Prints it.
    pub fn run(&self) -> Result<(), Failure> {
        let text = match &self.machine {
            None if self.json => in_json(&Names::all()),
            None => Names::all().text(),
            Some(name) => {
                let sheet = Sheet::find(name).map_err(|error| Failure::Usage(error.to_string()))?;
                match self.json {
                    true => in_json(&figures(&sheet)),
                    false => report::machines::figures(&sheet, columns()),
                }
            }
        };
        Ok(screen::print(&text)?)
    }
}

fn in_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("values with names for keys");
    text + "\n"
}

/// Everything that has a name. Its fields, and theirs, are those of the JSON object: programs rely on them, so they may
/// only become more.
#[derive(Debug, Serialize)]
struct Names {
    locks: Vec<Lock>,
    range_locks: Vec<RangeLock>,
    process_locks: Vec<Name>,
    run_locks: Vec<Name>,
    logs: Vec<Name>,
    pollers: Vec<Name>,
    workloads: Vec<Name>,
    studies: Vec<Listed>,
    metrics: Vec<Name>,
    machines: Vec<Machine>,
    constants: Vec<Constant>,
}

#[derive(Debug, Serialize)]
struct Name {
    name: String,
    about: String,
}

#[derive(Debug, Serialize)]
struct Lock {
    name: &'static str,
    kind: &'static str,
    /// What it adds to its data.
    bytes: usize,
    /// Whether simulated machines run it, too.
    simulated: bool,
    about: &'static str,
}

#[derive(Debug, Serialize)]
struct RangeLock {
    name: &'static str,
    bytes: usize,
    about: &'static str,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    title: String,
    /// Whether it is of a published system: `fairlock study` runs these if none is named.
    published: bool,
}

#[derive(Debug, Serialize)]
struct Machine {
    name: &'static str,
    /// None where its file is wrong; the title says what is.
    cpus: Option<u32>,
    title: String,
}

#[derive(Debug, Serialize)]
struct Constant {
    name: String,
    value: u32,
    least: u32,
    most: u32,
}

/// As the JSON object names it. None: it is not listed.
fn kind_name(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Ours => Some("fairlock"),
        Kind::Preset => Some("preset"),
        Kind::Peer => Some("peer"),
        Kind::Reference => Some(REFERENCE),
        Kind::Broken => None,
    }
}

const REFERENCE: &str = "reference";

fn names<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Name> {
    let owned =
        |(name, about): (&str, &str)| Name { name: name.to_owned(), about: about.to_owned() };
    all.into_iter().map(owned).collect()
}

impl Names {
    fn all() -> Names {
        let lock = |lock: &locks::Descriptor| {
            Some(Lock {
                name: lock.name,
                kind: kind_name(lock.kind)?,
                bytes: lock.bytes,
                simulated: lock.is_simulated,
                about: lock.about,
            })
        };
        let range_lock = |lock: &ranges::RangeDescriptor| RangeLock {
            name: lock.name,
            bytes: lock.bytes,
            about: lock.about,
        };
        let pollers = pollers::registry().iter().filter(|poller| poller.kind != Kind::Broken);
        let metric = |(name, about)| Name { name, about };
        Names {
            locks: locks::registry().iter().filter_map(lock).collect(),
            range_locks: ranges::registry().iter().map(range_lock).collect(),
            process_locks: names(readseek::PROCESS_LOCKS),
            run_locks: names(fairlock_trace::LOCKS),
            logs: names(log::registry().iter().map(|log| (log.name, log.about))),
            pollers: names(pollers.map(|poller| (poller.name, poller.about))),
            workloads: names(workloads::REGISTRY.iter().map(|it| (it.name, it.about))),
            studies: study::names().into_iter().map(Listed::named).collect(),
            metrics: metric::forms().into_iter().map(metric).collect(),
            machines: profile::names().into_iter().map(Machine::named).collect(),
            constants: fairlock::tunables().iter().map(Constant::of).collect(),
        }
    }

    /// Each kind under a heading, in the width that there is.
    fn text(&self) -> String {
        let of = |list: &[Name]| -> Vec<(String, String)> {
            list.iter().map(|it| (it.name.clone(), it.about.clone())).collect()
        };
        let studies = |published| {
            let listed = self.studies.iter().filter(move |it| it.published == published);
            listed.map(|it| (it.name.clone(), it.title.clone()))
        };
        let here = (profile::HERE.to_owned(), "this one, after `fairlock calibrate`".to_owned());
        let parts = [
            self.locks_text(),
            section("Locks that processes share (for readseek-processes)", of(&self.process_locks)),
            section("Locks for unmodified programs (`fairlock run --lock`)", of(&self.run_locks)),
            section("Logs (for log)", of(&self.logs)),
            section("Pollers (for stress-epoll, epoll-wait and inversion-list)", of(&self.pollers)),
            section("Workloads", of(&self.workloads)),
            section("Studies of published systems (`fairlock study` runs them)", studies(true)),
            section("Studies by name alone (`fairlock study all` runs them, too)", studies(false)),
            section("Metrics (for the claims, plots and grids of study files)", of(&self.metrics)),
            section(
                "Simulated machines (--on)",
                self.machines.iter().map(Machine::line).chain([here]),
            ),
            section(
                "Constants that simulated runs can change",
                self.constants.iter().map(Constant::line),
            ),
        ];
        parts.join("\n")
    }

    fn locks_text(&self) -> String {
        let of = |are_references: bool| {
            let locks =
                self.locks.iter().filter(move |it| (it.kind == REFERENCE) == are_references);
            locks.map(|lock| (lock.name, lock.bytes, where_it_runs(lock.about, lock.simulated)))
        };
        let record = size_of::<fairlock::slots::Record<fairlock::platform::Os>>();
        let more = wrapped_lines(
            &format!(
                "  rwlock takes {record} B more for each thread that reads, however many locks there are."
            ),
            columns(),
        );
        [
            lock_section("Locks, and the bytes that each adds to its data", of(false))
                + &format!("{more}\n"),
            lock_section("Reference locks (to measure against; by name, not in `all`)", of(true)),
            lock_section(
                "Range locks (for readseek)",
                self.range_locks.iter().map(|lock| (lock.name, lock.bytes, lock.about.to_owned())),
            ),
        ]
        .join("\n")
    }
}

impl Listed {
    fn named(name: &str) -> Listed {
        match study::find(name) {
            Ok(study) => {
                let published = study.summary.is_some();
                Listed { name: study.name, title: study.title, published }
            }
            Err(error) => {
                Listed { name: name.to_owned(), title: error.to_string(), published: false }
            }
        }
    }
}

impl Machine {
    fn named(name: &'static str) -> Machine {
        match Profile::find(name) {
            Ok(machine) => {
                Machine { name, cpus: Some(machine.topology.cpus()), title: machine.title }
            }
            Err(error) => Machine { name, cpus: None, title: error.to_string() },
        }
    }

    fn line(&self) -> (String, String) {
        let cpus = self.cpus.map(|cpus| format!("{}: ", units::counted(u64::from(cpus), "CPU")));
        (self.name.to_owned(), cpus.unwrap_or_default() + &self.title)
    }
}

impl Constant {
    fn of(constant: &Tunable) -> Constant {
        let (least, most) = constant.bounds().into_inner();
        Constant { name: format!("tune.{}", constant.name()), value: constant.value(), least, most }
    }

    fn line(&self) -> (String, String) {
        let Constant { value, least, most, .. } = self;
        (self.name.clone(), format!("{value}, from {least} to {most}"))
    }
}

/// Under a heading, a name and what it is in each line.
fn section(heading: &str, entries: impl IntoIterator<Item = (String, String)>) -> String {
    const NAME: usize = 25;
    let entries = entries.into_iter().map(|(name, about)| entry(&name, NAME, &about, columns()));
    format!("{heading}\n{}", entries.collect::<String>())
}

/// As [`section`], of locks: their bytes stand before what they are.
fn lock_section<'a>(
    heading: &str,
    locks: impl IntoIterator<Item = (&'a str, usize, String)>,
) -> String {
    const ABOUT: usize = 34;
    let entries = locks.into_iter().map(|(name, bytes, about)| {
        entry(&format!("{name:<22} {bytes:>4} B"), ABOUT, &about, columns())
    });
    format!("{heading}\n{}", entries.collect::<String>())
}

/// What a lock is, and that no simulated machine runs it if that is so.
fn where_it_runs(about: &str, is_simulated: bool) -> String {
    let only = if is_simulated { "" } else { " (real threads only)" };
    format!("{about}{only}")
}

/// The figures of a machine, as its file has them, and what each comes to in ns where it is a time.
fn figures(sheet: &Sheet) -> Value {
    let figures = sheet.figures.iter().map(|figure| {
        let (from, assumed) = match &figure.origin {
            Origin::From(key) => (Some(key), None),
            Origin::Assumed(why) => (None, Some(why)),
        };
        json!({
            "key": figure.key.name,
            "value": figure.amount,
            "ns": sheet.nanoseconds(figure),
            "from": from,
            "assumed": assumed,
            "note": figure.note,
        })
    });
    json!({
        "name": sheet.name,
        "title": sheet.title,
        "about": sheet.about.trim(),
        "sources": sheet.sources,
        "figures": figures.collect::<Vec<_>>(),
    })
}
