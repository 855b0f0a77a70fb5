//! Which tasks a sweep has, and running them here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::thread;

use clap::Args;
use fairlock_report::screen::{self, Column, Table, say};
use fairlock_report::units::{at_least_one, counted, format_minutes};
use fairlock_study::harness::progress;
use fairlock_study::harness::quiet::look;
use fairlock_study::harness::sweeping::Sweeping;
use fairlock_study::sweep::engine;
use fairlock_study::sweep::plan::{Plan, Task};
use fairlock_study::sweep::results::Results;
use fairlock_study::sweep::run::{self, Means, Ran};
use fairlock_study::sweep::share::Share;

use super::{Source, results, write_plan};
use crate::failure::Failure;

/// Which tasks to show.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    source: Source,
    /// Print every task: its name, its estimated seconds, what it runs, and whether its result is there
    #[arg(long)]
    tasks: bool,
}

/// Which tasks to run here.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    source: Source,
    /// Run a share of the tasks: 3/40 or count:3/40 for every 40th from the third on, hash:3/40 for those whose names
    /// fall there
    #[arg(long = "partition", value_name = "SHARE")]
    share: Option<Share>,
    /// Tasks at a time [default: as many as there are CPUs]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    workers: Option<u32>,
    /// Run real threads, too, one task after the other: nothing else is to run on this machine
    #[arg(long)]
    exclusive: bool,
}

/// Which tasks a job runs.
#[derive(Debug, Args)]
pub struct WorkArgs {
    /// The sweep's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Names of tasks, with spaces between them
    #[arg(long, value_name = "NAMES", conflicts_with = "jobs", required_unless_present = "jobs")]
    tasks: Vec<String>,
    /// A file with the tasks of each job on a line
    #[arg(long, value_name = "FILE", requires = "job")]
    jobs: Option<PathBuf>,
    /// The line of that file, from 1 up
    #[arg(long, value_name = "N", requires = "jobs")]
    job: Option<usize>,
    /// Run real threads, too: nothing else is to run on this machine
    #[arg(long)]
    exclusive: bool,
}

pub(super) fn plan(args: &PlanArgs) -> Result<(), Failure> {
    let (plan, dir, is_new) = args.source.plan()?;
    if is_new && args.source.out.is_some() {
        write_plan(&plan, &dir)?;
    }
    let there = Results::of(&dir).names();
    let mut text = String::new();
    if args.tasks {
        for task in plan.tasks() {
            let state = if there.contains(task.name) { "done" } else { "-" };
            let _ = writeln!(
                text,
                "{} {:>9.3} s  {state:4}  {}",
                task.name,
                task.estimate_s(),
                task.describe()
            );
        }
    } else {
        text += &table(&plan, &there);
        text += &left(&plan, &there);
    }
    if is_new && args.source.out.is_some() {
        let _ = writeln!(text, "plan: {}", dir.join("plan.jsonl").display());
    }
    Ok(screen::print(&text)?)
}

/// How many tasks there are of what, and how long they take.
fn table(plan: &Plan, there: &BTreeSet<String>) -> String {
    struct Kind {
        cells: usize,
        tasks: usize,
        done: usize,
        seconds: f64,
    }
    let mut kinds: BTreeMap<(String, String), Kind> = BTreeMap::new();
    for group in &plan.groups {
        let cell = &group.cells[0];
        let machine = cell.on.as_ref().map_or("(real threads)", |on| on.machine());
        let key = (cell.workload.name().to_owned(), machine.to_owned());
        let none = Kind { cells: 0, tasks: 0, done: 0, seconds: 0.0 };
        let kind = kinds.entry(key).or_insert(none);
        kind.cells += group.cells.len();
        for task in group.tasks() {
            kind.tasks += 1;
            kind.done += usize::from(there.contains(task.name));
            kind.seconds += task.estimate_s();
        }
    }
    let columns = ["cells", "tasks", "done", "one CPU\ntakes"].map(Column::number);
    let heads = ["workload", "machine"].map(Column::text);
    let mut table = Table::new(2, heads.into_iter().chain(columns));
    for ((workload, machine), kind) in &kinds {
        let Kind { cells, tasks, done, seconds } = kind;
        let counts = [cells, tasks, done].map(ToString::to_string);
        let cells = [workload.clone(), machine.clone()].into_iter().chain(counts);
        table.row(cells.chain([format_minutes(*seconds)]));
    }
    table.fitted(screen::columns(&std::io::stdout())).trim_end().to_owned() + "\n\n"
}

/// How long the tasks that have no result take, in a line or two.
fn left(plan: &Plan, there: &BTreeSet<String>) -> String {
    let left: Vec<Task<'_>> = plan.tasks().filter(|task| !there.contains(task.name)).collect();
    let (real, simulated): (Vec<&Task<'_>>, Vec<&Task<'_>>) =
        left.iter().partition(|task| task.is_real());
    let seconds = |tasks: &[&Task<'_>]| tasks.iter().map(|task| task.estimate_s()).sum::<f64>();
    let longest = left.iter().map(Task::estimate_s).fold(0.0, f64::max);
    let here = seconds(&simulated) / cpus() as f64 + seconds(&real);
    let mut text = String::new();
    let all = plan.header.tasks;
    if left.is_empty() {
        return format!("{}: all {} done\n", plan.header.title, counted(all as u64, "task"));
    }
    let _ = writeln!(
        text,
        "{}: {}, {} of them done; the others take about {} here ({}), the longest {}",
        plan.header.title,
        counted(all as u64, "task"),
        all - left.len(),
        format_minutes(here),
        counted(cpus() as u64, "CPU"),
        format_minutes(longest),
    );
    if !real.is_empty() {
        let _ = writeln!(
            text,
            "{} of them run real threads and need a machine for themselves: --exclusive, or plan with --simulated",
            real.len()
        );
    }
    text
}

fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (plan, dir, is_new) = args.source.plan()?;
    let wanted =
        |place: usize, task: &Task<'_>| args.share.is_none_or(|share| share.has(place, task.name));
    let real = plan.tasks().enumerate();
    let real = real.filter(|(place, task)| task.is_real() && wanted(*place, task)).count();
    if real > 0 && !args.exclusive {
        return Err(Failure::Usage(format!(
            "{} of the tasks {} real threads, which need this machine for themselves: give --exclusive if nothing else \
             runs here, or --simulated to leave them out",
            real,
            if real == 1 { "runs" } else { "run" },
        )));
    }
    if is_new {
        write_plan(&plan, &dir)?;
    }
    let results = Results::of(&dir);
    results.clean();
    say(left(&plan, &results.names()).trim_end());
    if real > 0 {
        look(None);
    }
    progress::handle_interrupts("finished tasks are kept, and the same command goes on");
    let workers = args.workers.map_or_else(cpus, |workers| workers as usize);
    let means = Means { results: &results, workers, scratch: &dir };
    let mut watch = Sweeping::new(true);
    let ran = run::run(&plan, &wanted, means, &mut watch).map_err(Failure::Run);
    watch.finish();
    let ran = ran?;
    if let Some(error) = watch.print_error.take() {
        return Err(error.into());
    }
    if ran.cancelled {
        return Err(Failure::Cancelled);
    }
    let failures = failures(&ran, &dir);
    if args.share.is_some() {
        let text = format!(
            "{} of this share done; with the other shares: fairlock sweep merge {} …\n",
            counted((ran.finished + ran.there) as u64, "task"),
            dir.display()
        );
        screen::print(&text)?;
        return failed(failures);
    }
    results::present(&plan, &dir)?;
    failed(failures)
}

fn failed(failures: Vec<String>) -> Result<(), Failure> {
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::Several(failures)),
    }
}

/// What is said of tasks that failed.
fn failures(ran: &Ran, dir: &Path) -> Vec<String> {
    const MOST: usize = 10;
    let shown = ran.failed.iter().take(MOST);
    let mut told: Vec<String> = shown
        .map(|(name, reason)| {
            let kept = dir.join("failed").join(format!("{name}.txt"));
            format!("task {name} failed: {reason} ({})", kept.display())
        })
        .collect();
    if ran.failed.len() > MOST {
        let more = ran.failed.len() - MOST;
        told.push(format!("{more} more tasks failed; see {}", dir.join("failed").display()));
    }
    told
}

pub(super) fn work(args: &WorkArgs) -> Result<(), Failure> {
    let names: Vec<String> = match (&args.jobs, args.job) {
        (Some(jobs), Some(job)) => engine::tasks_of_job(jobs, job).map_err(Failure::Usage)?,
        _ => {
            let words = args.tasks.iter().flat_map(|it| it.split_whitespace());
            words.map(str::to_owned).collect()
        }
    };
    let plan = Plan::read_tasks(&args.dir, &names).map_err(Failure::Usage)?;
    plan.header.check_version(&args.dir).map_err(Failure::Usage)?;
    let is_named = |task: &Task<'_>| names.iter().any(|name| name == task.name);
    if !args.exclusive && plan.tasks().any(|task| task.is_real() && is_named(&task)) {
        return Err(Failure::Usage(
            "some of these tasks run real threads, which need this machine for themselves: give --exclusive if \
             nothing else runs here"
                .to_owned(),
        ));
    }
    let results = Results::of(&args.dir);
    let means = Means { results: &results, workers: 1, scratch: &args.dir };
    let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    progress::handle_interrupts("finished tasks are kept");
    let mut watch = Sweeping::new(false);
    let wanted = |_: usize, task: &Task<'_>| wanted.contains(task.name);
    let ran = run::run(&plan, &wanted, means, &mut watch).map_err(Failure::Run)?;
    watch.finish();
    if ran.cancelled {
        return Err(Failure::Cancelled);
    }
    screen::print(&format!("{} of {} done\n", ran.finished + ran.there, names.len()))?;
    failed(failures(&ran, &args.dir))
}
