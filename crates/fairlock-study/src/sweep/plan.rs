//! Which tasks a sweep has.
//!
//! A task's name is a hash of all that decides its result: the workload with its parameters, the lock, the machine
//! with all its figures, what is changed of both, the seed, how long is measured, and the [`version`] of the
//! code. Where a seed stands in a plan and which other tasks there are makes no difference, so a larger grid finds
//! the results of a smaller one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlock_lab::workloads;
use fairlock_report::machine;
use fairlock_report::params::Params;
use fairlock_report::recording;
use fairlock_sim::profile::Sheet;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::changes;
use crate::plan::{self, Batch, Cell, Simulated};
use crate::study::{self, Effort, Study};

/// The file of a plan in its directory.
pub const FILE: &str = "plan.jsonl";

/// The version of the file's format.
const FORMAT: u32 = 1;

/// More tasks than this are a slip of the finger.
const MOST_TASKS: u64 = 1_000_000;

/// What decides results, beside a task's own parameters: the sources of the locks, of the simulator and of the
/// workloads. Two builds of one version have the same results; a build with debugging checks has its own.
pub fn version() -> String {
    let checks = if cfg!(debug_assertions) { "+checks" } else { "" };
    format!("{}-{}{checks}", env!("CARGO_PKG_VERSION"), env!("FAIRLOCK_SOURCES"))
}

/// What the first line of a plan says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format.
    format: u32,
    /// Of all tasks together: plans with the same tasks have the same.
    pub id: String,
    /// What decides the results beside the tasks' parameters; see [`version`].
    pub version: String,
    /// What it is called.
    pub title: String,
    /// When it was made.
    pub date: String,
    /// The studies that it is made of; none for a fit.
    pub studies: Vec<String>,
    /// What stands in the files of those that are not part of the program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub study_files: BTreeMap<String, Value>,
    /// Whether they were asked for with `--quick`.
    pub quick: bool,
    /// Whether what runs real threads was left out.
    #[serde(default)]
    pub simulated_only: bool,
    /// The machines' files, by the names that profiles have.
    pub machines: BTreeMap<String, String>,
    /// How many tasks there are.
    pub tasks: usize,
}

/// Cells that are compared with each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The cells.
    pub cells: Vec<Cell>,
    /// The place of the first repetition among all of the plan, which rows keep.
    order: u32,
    /// The names: of each cell's seeds in turn, or one for all cells with real threads.
    names: Vec<String>,
}

/// What one task runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work<'a> {
    /// One seed of one cell.
    Seed {
        /// The cell.
        cell: &'a Cell,
        /// Which repetition, from 0 up.
        repetition: u32,
    },
    /// Cells with real threads, all repetitions.
    Threads(&'a [Cell]),
}

/// A task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task<'a> {
    /// What it is called.
    pub name: &'a str,
    /// What it runs.
    pub work: Work<'a>,
}

impl Task<'_> {
    /// About how long it takes one CPU, or all CPUs where it runs real threads, seconds.
    pub fn estimate_s(&self) -> f64 {
        match self.work {
            Work::Seed { cell, .. } => cell.seed_s(),
            Work::Threads(cells) => cells.iter().map(Cell::estimate_s).sum(),
        }
    }

    /// Whether it runs real threads, which need a machine of their own.
    pub fn is_real(&self) -> bool {
        matches!(self.work, Work::Threads(_))
    }

    /// About how much memory it takes, bytes.
    pub fn memory_bytes(&self) -> u64 {
        /// The program with its tables; measured: 20 MB.
        const PROGRAM: u64 = 64 << 20;
        /// What a simulated thread takes with its stack and its histograms; measured: 120 KB with 240 threads.
        const THREAD: u64 = 256 << 10;
        let threads = match self.work {
            Work::Seed { cell, .. } => cell.workload.threads(),
            Work::Threads(cells) => {
                cells.iter().map(|cell| cell.workload.threads()).max().unwrap_or(0)
            }
        };
        PROGRAM + threads * THREAD
    }

    /// What it is about, in a line.
    pub fn describe(&self) -> String {
        let of = |cell: &Cell| {
            let words = crate::registry::describe(cell.workload.name(), &cell.row_params());
            format!("{} · {} · {words}", cell.workload.name(), cell.lock)
        };
        match self.work {
            Work::Seed { cell, repetition } => {
                let on = cell.on.as_ref();
                let machine = on.map_or("", Simulated::machine);
                let seed = on.map_or(0, |on| on.seed.wrapping_add(repetition.into()));
                format!("{} · {machine} · seed {seed}", of(cell))
            }
            Work::Threads(cells) => match cells.len() - 1 {
                0 => format!("{} · real threads", of(&cells[0])),
                more => format!("{} and {more} more · real threads", of(&cells[0])),
            },
        }
    }
}

impl Group {
    /// Its tasks, in the order of their names.
    pub fn tasks(&self) -> impl Iterator<Item = Task<'_>> {
        let works: Vec<Work<'_>> = match self.cells[0].on {
            None => vec![Work::Threads(&self.cells)],
            Some(_) => {
                let seeds = |cell: &'_ Cell| 0..cell.repetitions;
                let works = self.cells.iter().flat_map(|cell| {
                    seeds(cell).map(move |repetition| Work::Seed { cell, repetition })
                });
                works.collect()
            }
        };
        self.names.iter().zip(works).map(|(name, work)| Task { name, work })
    }

    /// The place of the first repetition among all of the plan.
    pub(super) fn order(&self) -> u32 {
        self.order
    }
}

/// A sweep's tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The first line.
    pub header: Header,
    /// In the order of the studies.
    pub groups: Vec<Group>,
}

/// How a sweep departs from its studies.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Options {
    /// Take the quick variants.
    pub quick: bool,
    /// Seeds of every cell on a simulated machine.
    pub seeds: Option<u32>,
    /// Leave cells with real threads out.
    pub simulated_only: bool,
}

impl Plan {
    /// The tasks of these studies.
    ///
    /// # Errors
    /// A machine that cannot be read any more; nothing to run.
    pub fn of_studies(studies: &[Study], options: Options) -> Result<Plan, String> {
        let effort = Effort { quick: options.quick, ..Effort::default() };
        let mut batches = study::batches(studies, effort);
        let cells = batches.iter_mut().flat_map(|batch| &mut batch.cells);
        for cell in cells.filter(|cell| cell.on.is_some()) {
            cell.repetitions = options.seeds.unwrap_or(cell.repetitions);
        }
        if options.simulated_only {
            batches.retain(|batch| batch.machine().is_some());
        }
        let mut machines = BTreeMap::new();
        for name in studies.iter().flat_map(|study| &study.runs).flat_map(|run| run.machines()) {
            let sheet = Sheet::find(name).map_err(|error| error.to_string())?;
            let text = sheet.write();
            let before = machines.insert(sheet.name.clone(), text.clone());
            if before.is_some_and(|before| before != text) {
                return Err(format!(
                    "two different machines are called \"{}\", as rows would call them; give one of the files another name",
                    sheet.name
                ));
            }
        }
        let names: Vec<String> = studies.iter().map(|study| study.name.clone()).collect();
        let file = |study: &Study| Some((study.name.clone(), study.file.clone()?));
        let header = Header {
            studies: names.clone(),
            study_files: studies.iter().filter_map(file).collect(),
            quick: options.quick,
            simulated_only: options.simulated_only,
            ..Header::new(&names.join(", "), machines)
        };
        Plan::of_batches(&batches, header)
    }

    /// The tasks of these batches.
    ///
    /// # Errors
    /// A cell that cannot run; nothing to run.
    pub(crate) fn of_batches(batches: &[Batch], header: Header) -> Result<Plan, String> {
        let mut naming = Naming::default();
        let (mut groups, mut order) = (Vec::new(), 0);
        let cells = batches.iter().flat_map(|batch| &batch.cells);
        let seeds: u64 = cells.map(|cell| u64::from(cell.repetitions)).sum();
        if seeds > MOST_TASKS {
            return Err(format!(
                "more than {MOST_TASKS} tasks ({seeds}): give shorter lists, or several sweeps"
            ));
        }
        for batch in batches {
            for cells in plan::groups(&batch.cells) {
                cells.iter().try_for_each(|cell| cell.validate()).map_err(|it| it.to_string())?;
                let cells: Vec<Cell> = cells.into_iter().cloned().collect();
                let names = naming.names(&cells);
                let next = order + cells[0].repetitions;
                groups.push(Group { cells, order, names });
                order = next;
            }
        }
        if groups.is_empty() {
            return Err("nothing to run: no cell is left".to_owned());
        }
        let mut plan = Plan { header, groups };
        plan.header.tasks = plan.tasks().count();
        plan.header.id = plan.id();
        Ok(plan)
    }

    /// All tasks.
    pub fn tasks(&self) -> impl Iterator<Item = Task<'_>> {
        self.groups.iter().flat_map(Group::tasks)
    }

    fn id(&self) -> String {
        let mut hash = Sha256::new();
        self.tasks().for_each(|task| hash.update(task.name.as_bytes()));
        hex(&hash.finalize()[..10])
    }

    /// The studies, as far as this version can judge them, and why not the others.
    pub fn studies(&self) -> (Vec<Study>, Vec<String>) {
        study::recorded(&self.recording_header())
    }

    /// The header of a recording of the plan's rows.
    pub fn recording_header(&self) -> recording::Header {
        let Header { studies, study_files, quick, .. } = self.header.clone();
        let here = fairlock_lab::machine::here(None);
        recording::Header { study_files, ..recording::Header::now(studies, quick, here) }
    }

    /// Writes the plan into its directory, whole or not at all.
    ///
    /// # Errors
    /// The operating system's.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let new = dir.join(format!(".{FILE}.{}", std::process::id()));
        let written = self.write_to(&new).and_then(|()| std::fs::rename(&new, dir.join(FILE)));
        if written.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        written
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        serde_json::to_writer(&mut file, &FirstLine { sweep: self.header.clone() })?;
        file.write_all(b"\n")?;
        for group in &self.groups {
            serde_json::to_writer(&mut file, &GroupLine::of(group))?;
            file.write_all(b"\n")?;
        }
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }

    /// Reads the plan of a directory.
    ///
    /// # Errors
    /// The file, the line and what is wrong with it.
    pub fn read(dir: &Path) -> Result<Plan, String> {
        let plan = Plan::read_some(dir, |_| true)?;
        let (path, told) = (dir.join(FILE), plan.header.tasks);
        match plan.tasks().count() {
            count if count == told && plan.id() == plan.header.id => Ok(plan),
            count => Err(format!(
                "{}: {count} tasks, and not those that its first line tells of ({told}): the file was cut or changed; \
                 make it anew with `fairlock sweep plan … --out {}`",
                path.display(),
                dir.display()
            )),
        }
    }

    /// Reads those groups of a plan that have one of these tasks; the rest of the file is only looked through.
    ///
    /// # Errors
    /// As [`read`](Plan::read); a task that there is not.
    pub fn read_tasks(dir: &Path, names: &[String]) -> Result<Plan, String> {
        let has = |line: &str| names.iter().any(|name| line.contains(name.as_str()));
        let plan = Plan::read_some(dir, has)?;
        let known: BTreeSet<&str> = plan.tasks().map(|task| task.name).collect();
        match names.iter().find(|name| !known.contains(name.as_str())) {
            None => Ok(plan),
            Some(unknown) => Err(format!(
                "{} has no task {unknown}: it is the plan of other tasks now; submit them again",
                dir.join(FILE).display()
            )),
        }
    }

    fn read_some(dir: &Path, has: impl Fn(&str) -> bool) -> Result<Plan, String> {
        let path = dir.join(FILE);
        let shown = path.display();
        let file = File::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!(
                "{} is no sweep's directory: it has no {FILE}; make one with `fairlock sweep plan FILE.toml --out {0}`",
                dir.display()
            ),
            _ => format!("cannot read {shown}: {error}"),
        })?;
        let mut lines = BufReader::new(file).lines();
        let mut next =
            || lines.next().transpose().map_err(|it| format!("cannot read {shown}: {it}"));
        let first = next()?.unwrap_or_default();
        let FirstLine { sweep: header } = serde_json::from_str(&first)
            .map_err(|error| format!("{shown}, line 1: {error}; it is no sweep's plan"))?;
        if header.format != FORMAT {
            let format = header.format;
            return Err(format!("{shown} has format {format}; this version reads format {FORMAT}"));
        }
        let mut machines =
            Machines { texts: &header.machines, known: Vec::new(), naming: Naming::default() };
        let (mut groups, mut number) = (Vec::new(), 1);
        while let Some(line) = next()? {
            number += 1;
            if line.is_empty() || !has(&line) {
                continue;
            }
            let wrong = |error: &dyn std::fmt::Display| format!("{shown}, line {number}: {error}");
            let group: GroupLine = serde_json::from_str(&line).map_err(|error| wrong(&error))?;
            groups
                .push(group.group(&mut machines, &header.version).map_err(|error| wrong(&error))?);
        }
        Ok(Plan { header, groups })
    }
}

impl Header {
    /// One without tasks yet.
    pub(crate) fn new(title: &str, machines: BTreeMap<String, String>) -> Header {
        Header {
            format: FORMAT,
            id: String::new(),
            version: version(),
            title: title.to_owned(),
            date: machine::date(),
            studies: Vec::new(),
            study_files: BTreeMap::new(),
            quick: false,
            simulated_only: false,
            machines,
            tasks: 0,
        }
    }

    /// Refuses a plan of another version: its tasks would not be what their names say.
    ///
    /// # Errors
    /// Both versions, and what to do.
    pub fn check_version(&self, dir: &Path) -> Result<(), String> {
        let own = version();
        match self.version == own {
            true => Ok(()),
            false => Err(format!(
                "{} was planned by version {}, and this is {own}: locks, simulator or workloads differ; plan anew with \
                 `fairlock sweep plan … --out {}`, or use the program that planned it",
                dir.display(),
                self.version,
                dir.display()
            )),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Names tasks.
#[derive(Default)]
struct Naming {
    /// What profiles were hashed to: most cells have one in common.
    profiles: Vec<(Arc<fairlock_sim::profile::Profile>, String)>,
}

impl Naming {
    fn names(&mut self, cells: &[Cell]) -> Vec<String> {
        match cells[0].on {
            None => {
                let mut hash = Sha256::new();
                for cell in cells {
                    let with = format!("{} {}", self.what(cell), cell.repetitions);
                    hash.update(with.as_bytes());
                }
                vec![hex(&hash.finalize()[..10])]
            }
            Some(_) => cells.iter().flat_map(|cell| self.of_seeds(cell)).collect(),
        }
    }

    fn of_seeds(&mut self, cell: &Cell) -> Vec<String> {
        let hash = Sha256::new_with_prefix(self.what(cell).as_bytes());
        let on = cell.on.as_ref().expect("only simulated cells have seeds");
        let timeline_ns = cell.timeline_ns();
        let name = |repetition: u32| {
            let timeline_ns = if repetition == 0 { timeline_ns } else { 0 };
            let seed = on.seed.wrapping_add(repetition.into());
            let mut hash = hash.clone();
            hash.update(format!("\n{seed} {timeline_ns}").as_bytes());
            hex(&hash.finalize()[..10])
        };
        (0..cell.repetitions).map(name).collect()
    }

    /// All that decides the results of a cell, but for seeds.
    fn what(&mut self, cell: &Cell) -> String {
        let (name, fields) = (cell.workload.name(), cell.workload.fields());
        let place = match &cell.on {
            None => "here".to_owned(),
            // A constant with its usual value changes nothing.
            Some(on) => {
                let usual = |name: &str| {
                    let known = fairlock::tunables().iter().find(|it| it.name() == name);
                    known.map(fairlock::platform::Tunable::value)
                };
                let tuned = on.tuning.iter().filter(|(name, value)| usual(name) != Some(*value));
                format!("{} {:?}", self.profile(on), tuned.collect::<Vec<_>>())
            }
        };
        let (version, lock, seconds) = (version(), &cell.lock, cell.seconds);
        format!("{version}\n{name}\n{fields:?}\n{lock}\n{seconds}\n{place}")
    }

    fn profile(&mut self, on: &Simulated) -> String {
        let known = self.profiles.iter().find(|(known, _)| Arc::ptr_eq(known, &on.profile));
        if let Some((_, hash)) = known {
            return hash.clone();
        }
        let hash = hex(&Sha256::digest(format!("{:?}", on.profile).as_bytes()));
        self.profiles.push((on.profile.clone(), hash.clone()));
        hash
    }
}

/// The first line of the file.
#[derive(Serialize, Deserialize)]
struct FirstLine {
    sweep: Header,
}

/// A group as the file has it.
#[derive(Serialize, Deserialize)]
struct GroupLine {
    order: u32,
    cells: Vec<CellLine>,
    tasks: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct CellLine {
    workload: String,
    lock: String,
    /// The workload's, and what is changed.
    params: Params,
    repetitions: u32,
    seconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    timeline_ns: u64,
    #[serde(default)]
    for_limit: bool,
}

impl GroupLine {
    fn of(group: &Group) -> GroupLine {
        let line = |cell: &Cell| {
            let on = cell.on.as_ref();
            let mut params = cell.workload.fields().clone();
            params.extend(on.iter().flat_map(|on| on.changes.clone()));
            CellLine {
                workload: cell.workload.name().to_owned(),
                lock: cell.lock.clone(),
                params,
                repetitions: cell.repetitions,
                seconds: cell.seconds,
                machine: on.map(|on| on.profile.name.clone()),
                seed: on.map_or(0, |on| on.seed),
                timeline_ns: on.map_or(0, |on| on.timeline_ns),
                for_limit: cell.for_limit,
            }
        };
        let cells = group.cells.iter().map(line).collect();
        GroupLine { order: group.order, cells, tasks: group.names.clone() }
    }

    /// The group, if its cells can run and its tasks are called what they are.
    fn group(self, machines: &mut Machines<'_>, version: &str) -> Result<Group, String> {
        let cell = |line: CellLine| -> Result<Cell, String> {
            let (own, changed) = changes::split(&line.params);
            let on = match &line.machine {
                None => None,
                Some(name) => {
                    let on = machines.find(name, &changed)?;
                    Some(Simulated { seed: line.seed, timeline_ns: line.timeline_ns, ..on })
                }
            };
            Ok(Cell {
                workload: workloads::named(&line.workload)?.parse(&own)?,
                lock: line.lock,
                repetitions: line.repetitions,
                seconds: line.seconds,
                on,
                for_limit: line.for_limit,
            })
        };
        let cells = self.cells.into_iter().map(cell).collect::<Result<Vec<_>, _>>()?;
        if cells.is_empty() {
            return Err("a group without cells".to_owned());
        }
        cells.iter().try_for_each(Cell::validate).map_err(|error| error.to_string())?;
        // Those of another version are called otherwise; who asks for its plan is told.
        if version == self::version() && machines.naming.names(&cells) != self.tasks {
            return Err(
                "the tasks are not called what they are: the file was changed by hand; plan anew"
                    .to_owned(),
            );
        }
        Ok(Group { cells, order: self.order, names: self.tasks })
    }
}

/// The machines of a plan, with what was changed.
struct Machines<'a> {
    texts: &'a BTreeMap<String, String>,
    known: Vec<Simulated>,
    naming: Naming,
}

impl Machines<'_> {
    fn find(&mut self, name: &str, changed: &Params) -> Result<Simulated, String> {
        let is_it = |on: &&Simulated| on.profile.name == name && on.changes == *changed;
        if let Some(on) = self.known.iter().find(is_it) {
            return Ok(on.clone());
        }
        let text =
            self.texts.get(name).ok_or_else(|| format!("no machine \"{name}\" in the plan"))?;
        let sheet = Sheet::checked(name, name, text).map_err(|error| error.to_string())?;
        let on = Simulated::changed(&sheet, changed, 0)?;
        self.known.push(on.clone());
        Ok(on)
    }
}

/// Where a sweep of this name has its directory where nothing else is said.
pub fn default_directory(title: &str) -> PathBuf {
    let name: String =
        title.chars().map(|it| if it.is_alphanumeric() { it } else { '-' }).collect();
    Path::new("fairlock-sweep").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlock_lab::workloads::mix::Mix;

    fn cell() -> Cell {
        Cell {
            workload: Mix::mixed(4, 50.0).into(),
            lock: "rwsem".to_owned(),
            repetitions: 2,
            seconds: 0.001,
            on: Some(Simulated::find("westmere-ex-4s", 1).unwrap()),
            for_limit: false,
        }
    }

    fn names(cells: Vec<Cell>) -> Vec<String> {
        let batches = [Batch { title: "batch".to_owned(), cells }];
        let machines = ["westmere-ex-4s", "riscv-4"].map(|name| {
            let sheet = Sheet::find(name).unwrap();
            (sheet.name.clone(), sheet.write())
        });
        let plan = Plan::of_batches(&batches, Header::new("plan", machines.into())).unwrap();
        let folder = tempfile::tempdir().unwrap();
        plan.write(folder.path()).unwrap();
        let read = Plan::read(folder.path()).unwrap();
        assert_eq!(read, plan);
        plan.tasks().map(|task| task.name.to_owned()).collect()
    }

    fn changed(name: &str, value: f64) -> Option<Simulated> {
        let sheet = Sheet::find("westmere-ex-4s").unwrap();
        let changes = [(name.to_owned(), value.into())].into();
        Some(Simulated::changed(&sheet, &changes, 1).unwrap())
    }

    #[test]
    fn a_tasks_name_is_of_all_that_decides_its_result() {
        let on = |machine: &str, seed| Some(Simulated::find(machine, seed).unwrap());
        let timeline = on("westmere-ex-4s", 1).map(|on| Simulated { timeline_ns: 1_000, ..on });
        let others = [
            Cell { lock: "mutex".to_owned(), ..cell() },
            Cell { seconds: 0.002, ..cell() },
            Cell { workload: Mix::mixed(5, 50.0).into(), ..cell() },
            Cell { workload: Mix::mixed(4, 60.0).into(), ..cell() },
            Cell { on: on("riscv-4", 1), ..cell() },
            Cell { on: on("westmere-ex-4s", 7), ..cell() },
            Cell { on: changed("machine.line.contended", 3.0), ..cell() },
            Cell { on: changed("tune.slack", 3.0), ..cell() },
            Cell { on: changed("tune.slack", 4.0), ..cell() },
            Cell { on: changed("tune.spin", 4.0), ..cell() },
            Cell { on: timeline, ..cell() },
        ];
        let all = others.into_iter().chain([cell()]).flat_map(|cell| names(vec![cell]));
        let all: Vec<String> = all.collect();
        // The second seed of a run with a timeline has none.
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert_eq!((all.len(), distinct.len()), (24, 23));
    }

    #[test]
    fn other_tasks_and_more_seeds_do_not_change_a_tasks_name() {
        let alone = names(vec![cell()]);
        let more = Cell { repetitions: 3, for_limit: true, ..cell() };
        let other = Cell { lock: "mutex".to_owned(), repetitions: 3, ..cell() };
        let among = names(vec![other, more]);
        assert_eq!(among[3..5], alone[..]);
        // What it usually is.
        assert_eq!(names(vec![Cell { on: changed("tune.slack", 16.0), ..cell() }]), alone);
    }

    #[test]
    fn some_tasks_are_read_without_the_others() {
        let cells = vec![cell(), Cell { lock: "mutex".to_owned(), ..cell() }];
        let far = Cell { workload: Mix::mixed(6, 50.0).into(), ..cell() };
        let batches = [cells, vec![far]].map(|cells| Batch { title: String::new(), cells });
        let sheet = Sheet::find("westmere-ex-4s").unwrap();
        let machines = [(sheet.name.clone(), sheet.write())].into();
        let plan = Plan::of_batches(&batches, Header::new("plan", machines)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        plan.write(folder.path()).unwrap();
        let last = plan.tasks().last().unwrap().name.to_owned();
        let some = Plan::read_tasks(folder.path(), std::slice::from_ref(&last)).unwrap();
        assert_eq!((plan.groups.len(), some.groups.len()), (2, 1));
        assert!(some.tasks().any(|task| task.name == last));
        let error = Plan::read_tasks(folder.path(), &["beef".to_owned()]).unwrap_err();
        assert!(error.contains("no task beef"), "{error}");
        let text = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        let cut = &text[..text.trim_end().rfind('\n').unwrap() + 1];
        std::fs::write(folder.path().join(FILE), cut).unwrap();
        let error = Plan::read(folder.path()).unwrap_err();
        assert!(error.contains("cut or changed"), "{error}");
    }
}
