//! Has a sweep's tasks run by a program that distributes work already.
//!
//! What is submitted is a directory of its own within the sweep's: `slurm-1` has the script `submit.sh`, the file
//! `jobs.txt` with the tasks of each job on a line, and the jobs' logs. The script is short and may be edited and
//! submitted by hand: a job only ever runs `fairlock sweep work`, which leaves results where all others leave theirs.
//!
//! No engine is asked whether a task is done: its result is there or not. Engines are asked which jobs are still under
//! way, and what became of the others. A task without a result whose job is not under way any more is submitted again,
//! up to a bound.

mod hyperqueue;
mod parallel;
mod slurm;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::plan::{Plan, Task};
use super::results::Results;

/// What distributes work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Slurm: a job array; the sweep's directory is on a file system that all nodes share
    Slurm,
    /// HyperQueue: a task array; the sweep's directory is on a file system that all workers share
    Hyperqueue,
    /// GNU parallel: on this machine, or over ssh on hosts that share nothing with it
    Parallel,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Engine::Slurm => "slurm",
            Engine::Hyperqueue => "hyperqueue",
            Engine::Parallel => "parallel",
        })
    }
}

/// How tasks are to be submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// By what.
    pub engine: Engine,
    /// In so many jobs at most.
    pub jobs: u32,
    /// How often one task is submitted at most.
    pub attempts: u32,
    /// Whether jobs with real threads may be submitted, which get a machine of their own.
    pub exclusive: bool,
    /// Hosts for GNU parallel, as its `--sshlogin` takes them.
    pub hosts: Vec<String>,
    /// More options for the engine, one each.
    pub more: Vec<String>,
}

/// Something that was submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// How.
    pub options: Options,
    /// What the engine calls it.
    pub id: String,
    /// Its directory; not in the file.
    #[serde(skip)]
    pub dir: PathBuf,
    /// The tasks of each job; not in the file.
    #[serde(skip)]
    pub jobs: Vec<Vec<String>>,
}

/// What an engine says of a job, by its number from 1 up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It waits.
    Waiting,
    /// It runs.
    Running,
    /// It ended so: `TIMEOUT`, `exit status 1`.
    Ended(String),
}

/// A script that is about to be submitted.
struct Draft<'a> {
    /// The sweep's directory, from the root.
    sweep: &'a Path,
    /// Its own, from the root.
    dir: &'a Path,
    /// The command that jobs run, from the root.
    program: &'a Path,
    title: &'a str,
    /// The plan's [`id`](super::plan::Header::id).
    plan: &'a str,
    jobs: usize,
    /// Seconds that a job may take.
    seconds: u64,
    /// Memory that a job may take, MiB.
    memory_mib: u64,
    /// Whether a job needs a machine of its own.
    exclusive: bool,
    options: &'a Options,
}

impl Draft<'_> {
    /// The command of the job with this number, in a shell's words.
    fn command(&self, number: &str) -> String {
        let [program, sweep, jobs] = [self.program, self.sweep, &self.dir.join(JOBS)].map(quoted);
        let exclusive = if self.exclusive { " --exclusive" } else { "" };
        format!("exec {program} sweep work {sweep}{exclusive} --jobs {jobs} --job {number}")
    }

    /// What the engine calls it: the title, in letters that every engine takes.
    fn name(&self) -> String {
        format!("fairlock-{}", self.title.replace(|it: char| !it.is_ascii_alphanumeric(), "-"))
    }
}

/// Refuses paths that an engine cannot have in a script.
fn check_path(sweep: &Path, engine: Engine) -> Result<(), String> {
    let odd = match sweep.to_str() {
        None => Some("characters that are no UTF-8"),
        Some(path) if path.contains(char::is_control) => Some("control characters"),
        Some(path) if path.contains('\\') && engine == Engine::Slurm => Some("a backslash"),
        Some(_) => None,
    };
    odd.map_or(Ok(()), |odd| {
        let path = sweep.display();
        Err(format!(
            "{path} has {odd}, which {engine} cannot have in a path; use another directory"
        ))
    })
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

const JOBS: &str = "jobs.txt";
const LOGS: &str = "logs";
const SCRIPT: &str = "submit.sh";
const SUBMITTED: &str = "submission.json";
/// What is copied beside the plan, so that a build meanwhile changes nothing.
const PROGRAM: &str = "fairlock";

/// Jobs may take this many times as long as they should, as a node may be slower, and so much more.
const SLOWER: f64 = 4.0;
const MORE_SECONDS: f64 = 120.0;

impl Engine {
    /// A job takes at least so long, seconds, where nobody says how many there are to be: Slurm takes a second or so to
    /// start one and remembers each for minutes, the others take milliseconds.
    fn shortest_job_s(self) -> f64 {
        match self {
            Engine::Slurm => 60.0,
            Engine::Hyperqueue | Engine::Parallel => 2.0,
        }
    }
}

impl Options {
    /// How many jobs to make of these tasks.
    fn wanted_jobs(&self, tasks: &[Task<'_>], exclusive: bool) -> usize {
        let most = (self.jobs as usize).min(tasks.len()).max(1);
        let seconds: f64 = tasks.iter().map(Task::estimate_s).sum();
        match self.jobs {
            // Over ssh, what comes back is the result of one task.
            _ if !self.hosts.is_empty() => tasks.len(),
            _ if exclusive => most,
            DEFAULT_JOBS => {
                ((seconds / self.engine.shortest_job_s()).ceil() as usize).clamp(1, most)
            }
            // So many were asked for.
            _ => most,
        }
    }
}

/// The tasks of each of so many jobs: about as long each, in the order of the plan.
fn jobs(tasks: &[Task<'_>], wanted: usize) -> Vec<Vec<String>> {
    let total: f64 = tasks.iter().map(Task::estimate_s).sum();
    let wanted = wanted.min(tasks.len()).max(1);
    let mut jobs: Vec<Vec<String>> = vec![Vec::new(); wanted];
    let (mut before, mut first_empty) = (0.0, 0);
    for (place, task) in tasks.iter().enumerate() {
        // The middle of the task decides, and there is always one for each job that is left.
        let share = (before + task.estimate_s() / 2.0) / total.max(f64::MIN_POSITIVE);
        let job = ((share * wanted as f64) as usize).min(wanted - 1);
        let left = tasks.len() - place;
        let job = if wanted - first_empty >= left { first_empty } else { job.min(first_empty) };
        jobs[job].push(task.name.to_owned());
        first_empty = first_empty.max(job + 1);
        before += task.estimate_s();
    }
    jobs
}

/// How many jobs at most where nobody says: Slurm's arrays have up to 1001 unless it is told otherwise.
pub const DEFAULT_JOBS: u32 = 1000;

/// What is written down for an engine before it is asked.
pub struct Prepared {
    /// The directory.
    pub dir: PathBuf,
    /// The script.
    pub script: PathBuf,
    /// How many jobs.
    pub jobs: usize,
    options: Options,
    tasks: Vec<Vec<String>>,
}

/// Writes down what submits these tasks: one directory for those on simulated machines, one for those with real
/// threads. Nothing is submitted yet.
///
/// # Errors
/// Real threads without [`Options::exclusive`]; a file that cannot be written.
pub fn prepare(
    sweep: &Path,
    plan: &Plan,
    tasks: &[Task<'_>],
    options: &Options,
) -> Result<Vec<Prepared>, String> {
    let (real, simulated): (Vec<Task<'_>>, Vec<Task<'_>>) =
        tasks.iter().copied().partition(Task::is_real);
    if !real.is_empty() && !options.exclusive {
        return Err(format!(
            "{} of {} tasks run real threads, whose results would be of a machine that others use, too: give --exclusive \
             to ask {} for machines of their own, or --simulated to leave them out",
            real.len(),
            tasks.len(),
            options.engine
        ));
    }
    if !real.is_empty() && !options.hosts.is_empty() {
        return Err("real threads cannot be measured over ssh by GNU parallel, which does not keep others off a host; \
                    plan with --simulated, or use another engine"
            .to_owned());
    }
    let sweep = sweep.canonicalize().map_err(|error| format!("{}: {error}", sweep.display()))?;
    check_path(&sweep, options.engine)?;
    let program = keep_program(&sweep)?;
    let earlier = submissions(&sweep)?;
    let mut prepared = Vec::new();
    for (tasks, exclusive) in [(simulated, false), (real, true)] {
        if tasks.is_empty() {
            continue;
        }
        let places: Vec<BTreeMap<&str, usize>> = earlier.iter().map(Submission::places).collect();
        let attempts =
            |task: &Task<'_>| places.iter().filter(|it| it.contains_key(task.name)).count();
        let attempt = tasks.iter().map(attempts).max().unwrap_or(0);
        let jobs = jobs(&tasks, options.wanted_jobs(&tasks, exclusive));
        let by_name: BTreeMap<&str, &Task<'_>> =
            tasks.iter().map(|task| (task.name, task)).collect();
        let longest = jobs
            .iter()
            .map(|job| job.iter().map(|name| by_name[name.as_str()].estimate_s()).sum::<f64>());
        let longest = longest.fold(0.0, f64::max);
        // What had no time enough gets twice as much.
        let seconds = (longest * SLOWER + MORE_SECONDS) * f64::from(1u32 << attempt.min(6));
        let memory = tasks.iter().map(Task::memory_bytes).max().unwrap_or(0);
        let dir = new_directory(&sweep, options.engine)?;
        let draft = Draft {
            sweep: &sweep,
            dir: &dir,
            program: &program,
            title: &plan.header.title,
            plan: &plan.header.id,
            jobs: jobs.len(),
            seconds: seconds.ceil() as u64,
            memory_mib: memory.div_ceil(1 << 20),
            exclusive,
            options,
        };
        let script = match options.engine {
            Engine::Slurm => slurm::script(&draft),
            Engine::Hyperqueue => hyperqueue::script(&draft),
            Engine::Parallel => parallel::script(&draft),
        };
        let lines: Vec<String> = jobs.iter().map(|job| job.join(" ")).collect();
        let cannot = |what: &str, error: io::Error| {
            format!("cannot write {} ({error})", dir.join(what).display())
        };
        fs::create_dir_all(dir.join(LOGS)).map_err(|error| cannot(LOGS, error))?;
        fs::write(dir.join(JOBS), lines.join("\n") + "\n").map_err(|error| cannot(JOBS, error))?;
        let path = dir.join(SCRIPT);
        fs::write(&path, script).map_err(|error| cannot(SCRIPT, error))?;
        prepared.push(Prepared {
            script: path,
            jobs: jobs.len(),
            options: options.clone(),
            tasks: jobs,
            dir,
        });
    }
    Ok(prepared)
}

impl Prepared {
    /// Submits it.
    ///
    /// # Errors
    /// That the engine is not there, or what it says.
    pub fn submit(self) -> Result<Submission, String> {
        let id = match self.options.engine {
            Engine::Slurm => slurm::submit(&self.script),
            Engine::Hyperqueue => hyperqueue::submit(&self.script),
            Engine::Parallel => {
                parallel::submit(&self.script, &self.dir, !self.options.hosts.is_empty())
            }
        }?;
        let Prepared { options, dir, tasks: jobs, .. } = self;
        let submission = Submission { options, id, dir, jobs };
        let path = submission.dir.join(SUBMITTED);
        let text = serde_json::to_string_pretty(&submission).map_err(|error| error.to_string())?;
        fs::write(&path, text + "\n").map_err(|error| {
            format!(
                "submitted as {}, but cannot write {} ({error}): `fairlock sweep fetch` will not know of it",
                submission.id,
                path.display()
            )
        })?;
        Ok(submission)
    }
}

/// The program that runs, beside the plan.
fn keep_program(sweep: &Path) -> Result<PathBuf, String> {
    let own =
        std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let kept = sweep.join(PROGRAM);
    let same = |one: &Path, other: &Path| -> io::Result<bool> {
        Ok(fs::metadata(one)?.len() == fs::metadata(other)?.len()
            && fs::read(one)? == fs::read(other)?)
    };
    if own == kept || same(&own, &kept).unwrap_or(false) {
        return Ok(kept);
    }
    // Jobs may be running the one that is there.
    let new = sweep.join(format!(".{PROGRAM}.{}", std::process::id()));
    let copied = fs::copy(&own, &new).and_then(|_| fs::rename(&new, &kept));
    match copied {
        Ok(()) => Ok(kept),
        Err(error) => Err(format!("cannot copy this program to {} ({error})", kept.display())),
    }
}

/// A directory that there was not.
fn new_directory(sweep: &Path, engine: Engine) -> Result<PathBuf, String> {
    for number in 1u32.. {
        let dir = sweep.join(format!("{engine}-{number}"));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("cannot create {} ({error})", dir.display())),
        }
    }
    unreachable!("there are not so many directories")
}

/// What was submitted of a sweep, in that order.
///
/// # Errors
/// A file that cannot be read.
pub fn submissions(sweep: &Path) -> Result<Vec<Submission>, String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sweep).into_iter().flatten().flatten() {
        let dir = entry.path();
        let path = dir.join(SUBMITTED);
        // Prepared, but not submitted, if there is none.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let cannot = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
        let submission: Submission = serde_json::from_str(&text).map_err(|error| cannot(&error))?;
        let jobs = fs::read_to_string(dir.join(JOBS)).map_err(|error| cannot(&error))?;
        let jobs = jobs.lines().map(|line| line.split_whitespace().map(str::to_owned).collect());
        let since = fs::metadata(&path).and_then(|it| it.modified()).ok();
        found.push((since, Submission { jobs: jobs.collect(), dir, ..submission }));
    }
    found.sort_by(|(one, a), (other, b)| (one, &a.dir).cmp(&(other, &b.dir)));
    Ok(found.into_iter().map(|(_, submission)| submission).collect())
}

/// The tasks of one line of a file of jobs.
///
/// # Errors
/// A file that cannot be read; a line that it does not have.
pub fn tasks_of_job(jobs: &Path, number: usize) -> Result<Vec<String>, String> {
    let shown = jobs.display();
    // A device would be read for ever.
    if !fs::metadata(jobs).is_ok_and(|it| it.is_file()) {
        return Err(format!("cannot read {shown}: there is no such file"));
    }
    let text = fs::read_to_string(jobs).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let lines = text.lines().count();
    match number.checked_sub(1).and_then(|place| text.lines().nth(place)) {
        Some(line) => Ok(line.split_whitespace().map(str::to_owned).collect()),
        None => Err(format!("{shown} has no job {number}; it has 1 to {lines}")),
    }
}

impl Submission {
    /// What the engine says of these jobs, as far as it knows of them.
    ///
    /// # Errors
    /// That the engine is not there, or what it says.
    fn states(&self, jobs: &BTreeSet<usize>) -> Result<BTreeMap<usize, State>, String> {
        let states = match self.options.engine {
            Engine::Slurm => slurm::states(&self.id, jobs),
            Engine::Hyperqueue => hyperqueue::states(&self.id),
            Engine::Parallel => parallel::states(&self.id, &self.dir, jobs),
        };
        states.map_err(|error| {
            let submitted = self.dir.join(SUBMITTED);
            format!("{error}; if its jobs are lost for good, remove {}", submitted.display())
        })
    }

    /// In which job, from 1 up, each of its tasks is.
    fn places(&self) -> BTreeMap<&str, usize> {
        let jobs = (1..).zip(&self.jobs);
        jobs.flat_map(|(job, tasks)| tasks.iter().map(move |task| (task.as_str(), job))).collect()
    }

    /// Where the output of a job is.
    pub fn log(&self, job: usize) -> PathBuf {
        self.dir.join(LOGS).join(format!("{job}.log"))
    }
}

/// A task without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The task.
    pub name: String,
    /// What the engine said of its last job.
    pub how: String,
    /// Why the task failed, where it says.
    pub reason: Option<String>,
    /// Where the output of its last job is.
    pub log: Option<PathBuf>,
    /// How often it was submitted.
    pub attempts: u32,
}

/// How far a sweep has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Tasks that have results.
    pub done: usize,
    /// Tasks in jobs that run.
    pub running: usize,
    /// Tasks in jobs that wait.
    pub waiting: usize,
    /// Tasks that have none, and no job that could still bring one.
    pub lost: Vec<Lost>,
    /// Tasks that never were in a job.
    pub unsubmitted: usize,
}

/// Looks at results, and asks the engines about tasks without any: about the last job of each, as the earlier ones had
/// ended when the task was submitted again. An engine that has no such job any more is not asked.
///
/// # Errors
/// What an engine says.
pub fn progress(
    plan: &Plan,
    results: &Results,
    submissions: &[Submission],
) -> Result<Progress, String> {
    let there = results.names();
    let mut progress = Progress::default();
    let places: Vec<BTreeMap<&str, usize>> = submissions.iter().map(Submission::places).collect();
    let mut asked = vec![BTreeSet::new(); submissions.len()];
    let mut open = Vec::new();
    for task in plan.tasks().filter(|task| !there.contains(task.name)) {
        let mut jobs = places.iter().enumerate();
        let last = jobs.rfind(|(_, places)| places.contains_key(task.name));
        let last = last.map(|(at, places)| (at, places[task.name]));
        if let Some((at, job)) = last {
            asked[at].insert(job);
        }
        open.push((task, last));
    }
    let mut states = Vec::new();
    for (submission, jobs) in submissions.iter().zip(&asked) {
        states.push(match jobs.is_empty() {
            true => BTreeMap::new(),
            false => submission.states(jobs)?,
        });
    }
    // The engines before the results: a job that ends in between has left them by then.
    open.retain(|(task, _)| !results.has(task.name));
    progress.done = plan.header.tasks - open.len();
    let failures = results.failures();
    for (task, last) in open {
        let Some((at, job)) = last else {
            progress.unsubmitted += 1;
            continue;
        };
        let submission = &submissions[at];
        let how = match states[at].get(&job) {
            Some(State::Running) => {
                progress.running += 1;
                continue;
            }
            Some(State::Waiting) => {
                progress.waiting += 1;
                continue;
            }
            Some(State::Ended(how)) => how.clone(),
            None => format!("{} knows nothing of it any more", submission.options.engine),
        };
        let log = submission.log(job);
        progress.lost.push(Lost {
            name: task.name.to_owned(),
            how,
            reason: failures.get(task.name).cloned(),
            log: log.exists().then_some(log),
            attempts: places.iter().filter(|it| it.contains_key(task.name)).count() as u32,
        });
    }
    Ok(progress)
}

/// Submits again what was lost and may be; answers what was submitted, and how many tasks.
///
/// # Errors
/// As [`prepare`] and [`Prepared::submit`].
pub fn submit_again(
    sweep: &Path,
    plan: &Plan,
    lost: &[Lost],
    submissions: &[Submission],
) -> Result<(Vec<Submission>, usize), String> {
    let Some(last) = submissions.last() else { return Ok((Vec::new(), 0)) };
    let again = lost.iter().filter(|it| it.attempts < last.options.attempts);
    let names: BTreeSet<&str> = again.map(|it| it.name.as_str()).collect();
    if names.is_empty() {
        return Ok((Vec::new(), 0));
    }
    let tasks: Vec<Task<'_>> = plan.tasks().filter(|task| names.contains(task.name)).collect();
    let prepared = prepare(sweep, plan, &tasks, &last.options)?;
    let submitted = prepared.into_iter().map(Prepared::submit).collect::<Result<Vec<_>, _>>()?;
    Ok((submitted, tasks.len()))
}

/// Runs a program of an engine; answers what it prints.
///
/// # Errors
/// That it is not there; what it complains about, in a line.
fn output_of(command: &mut Command, package: &str) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("there is no `{name}` here; it is part of {package}"),
        _ => format!("cannot run {name}: {error}"),
    })?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        // HyperQueue complains in JSON where it is to answer in JSON.
        let answer = serde_json::from_str::<serde_json::Value>(&said).unwrap_or_default();
        let complaint = match answer.get("error").and_then(serde_json::Value::as_str) {
            Some(error) => error.to_owned(),
            None => String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        return Err(format!("{name} failed ({}): {}", output.status, one_line(&complaint)));
    }
    Ok(said)
}

/// The first paragraph of what a program complains about, in a line. What follows are causes and backtraces.
fn one_line(text: &str) -> String {
    let paragraph = text.trim().split("\n\n").next().unwrap_or_default();
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Cell, Simulated};
    use crate::sweep::plan::Work;
    use fairlock_lab::workloads::mix::Mix;

    fn cell(seconds: f64) -> Cell {
        Cell {
            workload: Mix::dedicated(2, 2).into(),
            lock: "rwsem".to_owned(),
            repetitions: 1,
            seconds,
            on: Some(Simulated::find("riscv-4", 1).unwrap()),
            for_limit: false,
        }
    }

    #[test]
    fn jobs_are_about_as_long_each_and_have_every_task_once() {
        let cells: Vec<Cell> = (1..=50).map(|n| cell(0.001 * f64::from(n % 7 + 1))).collect();
        let names: Vec<String> = (0..50).map(|place| format!("t{place}")).collect();
        let tasks: Vec<Task<'_>> = names
            .iter()
            .zip(&cells)
            .map(|(name, cell)| Task { name, work: Work::Seed { cell, repetition: 0 } })
            .collect();
        for most in [1, 3, 7, 49, 50, 80] {
            let jobs = jobs(&tasks, most);
            assert_eq!(jobs.len(), most.min(50));
            assert!(jobs.iter().all(|job| !job.is_empty()));
            assert_eq!(jobs.concat(), names, "{most}");
        }
        let long = jobs(&tasks, 5);
        let cost = |job: &Vec<String>| -> f64 {
            let of = |name: &String| cells[name[1..].parse::<usize>().unwrap()].seed_s();
            job.iter().map(of).sum()
        };
        let costs: Vec<f64> = long.iter().map(cost).collect();
        let most = costs.iter().copied().fold(0.0, f64::max);
        assert!(costs.iter().all(|cost| *cost > 0.6 * most), "{costs:?}");
    }

    #[test]
    fn jobs_are_as_many_as_was_asked_for_and_few_where_nobody_asked() {
        let cells = vec![cell(0.001); 50];
        let work = |cell| Work::Seed { cell, repetition: 0 };
        let tasks: Vec<Task<'_>> =
            cells.iter().map(|cell| Task { name: "t", work: work(cell) }).collect();
        let wanted = |engine, jobs, hosts: &[&str], exclusive| {
            let hosts = hosts.iter().map(|it| (*it).to_owned()).collect();
            let options = Options { engine, jobs, attempts: 3, exclusive, hosts, more: Vec::new() };
            options.wanted_jobs(&tasks, exclusive)
        };
        assert_eq!(wanted(Engine::Slurm, DEFAULT_JOBS, &[], false), 1);
        assert_eq!(wanted(Engine::Slurm, 3, &[], false), 3);
        assert_eq!(wanted(Engine::Slurm, 80, &[], false), 50);
        // A machine each, as far as an array goes.
        assert_eq!(wanted(Engine::Slurm, DEFAULT_JOBS, &[], true), 50);
        assert_eq!(wanted(Engine::Slurm, 20, &[], true), 20);
        assert_eq!(wanted(Engine::Parallel, 3, &["a", "b"], false), 50);
    }

    #[test]
    fn of_a_complaint_the_first_paragraph_is_told_in_a_line() {
        assert_eq!(one_line("no server\n start one\n\nCaused by:\n  x"), "no server start one");
    }

    #[test]
    fn paths_are_words_of_a_shell() {
        assert_eq!(quoted(Path::new("/it's here")), "'/it'\\''s here'");
    }
}
