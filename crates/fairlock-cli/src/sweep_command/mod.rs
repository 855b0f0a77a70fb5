//! `fairlock sweep`: many cells, here or on whatever distributes work.
//!
//! | | |
//! |---|---|
//! | `tasks.rs` | which tasks there are, and running them here |
//! | `results.rs` | rows and pages of results |
//! | `submit.rs` | engines: Slurm, HyperQueue, GNU parallel |

pub(crate) mod results;
pub(crate) mod submit;
pub(crate) mod tasks;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use fairlock_report::screen::say;
use fairlock_study::study;
use fairlock_study::sweep::plan::{self, Options, Plan};

use crate::failure::Failure;

/// What to do with a sweep.
#[derive(Debug, Subcommand)]
pub enum SweepCommand {
    /// Show which tasks a sweep has, and about how long each takes
    #[command(after_help = "Example:\n  \
        fairlock sweep plan grid.toml              how many tasks, how long\n  \
        fairlock sweep plan s4 --simulated         without real threads\n  \
        fairlock sweep plan grid.toml --tasks      every task with its name\n  \
        fairlock sweep plan grid.toml --out grid   write it for other commands")]
    Plan(tasks::PlanArgs),
    /// Run a sweep's tasks on this machine, then write its rows and its page; goes on where it stopped
    #[command(after_help = "Example:\n  \
        fairlock sweep run grid.toml --out grid     everything, on all CPUs\n  \
        fairlock sweep run grid --partition 3/40    the third of 40 shares\n  \
        fairlock sweep run s4 --exclusive           real threads, too\n\n\
        Results that are there are not made again, so a run that was stopped goes on. A grid that has grown, or a \
        study of which a part has changed, finds the results that it has in common with the one before.")]
    Run(tasks::RunArgs),
    /// Make rows of results that are in one or several directories, and say what is missing
    #[command(after_help = "Example:\n  \
        fairlock sweep merge grid                       grid/rows.jsonl\n  \
        fairlock sweep merge one two three --out all.jsonl\n\n\
        The directories are of one plan and one version of Fairlock; others are refused. Exit code 1 if a result is \
        missing; --partial makes rows of those that are there.")]
    Merge(results::MergeArgs),
    /// Print what the results say, and write the page of what there is
    #[command(after_help = "Example:\n  \
        fairlock sweep report grid\n  \
        fairlock sweep report grid --out grid.md   as Markdown")]
    Report(results::ReportArgs),
    /// Have the tasks that have no result run by Slurm, HyperQueue or GNU parallel
    #[command(after_help = "Example:\n  \
        fairlock sweep submit grid.toml --out grid --engine slurm\n  \
        fairlock sweep submit grid --engine slurm --option=--partition=long\n  \
        fairlock sweep submit grid --engine slurm --dry-run       only show the script\n  \
        fairlock sweep submit grid --engine hyperqueue --jobs 200\n  \
        fairlock sweep submit grid --engine parallel --hosts a,b  over ssh\n  \
        fairlock sweep fetch grid --wait                          then wait")]
    Submit(submit::SubmitArgs),
    /// Ask the engine how far a sweep has come
    #[command(after_help = "Example:\n  fairlock sweep status grid")]
    Status(submit::StatusArgs),
    /// Submit lost tasks again, and make rows and the page of what is there
    #[command(after_help = "Example:\n  \
        fairlock sweep fetch grid          what is there now\n  \
        fairlock sweep fetch grid --wait   until nothing is under way any more\n\n\
        A task without a result whose job has ended is submitted again, up to as many times as `submit --attempts` \
        said. What is lost for good is named with its log, and the exit code is 1.")]
    Fetch(submit::FetchArgs),
    /// Run some tasks, as a job of an engine does
    #[command(after_help = "Example:\n  \
        fairlock sweep work grid --jobs grid/slurm-1/jobs.txt --job 7\n  \
        fairlock sweep work grid --tasks 7b0c5f3ad1c2e4f60718")]
    Work(tasks::WorkArgs),
}

impl SweepCommand {
    /// Does it.
    pub fn run(&self) -> Result<(), Failure> {
        match self {
            SweepCommand::Plan(args) => tasks::plan(args),
            SweepCommand::Run(args) => tasks::run(args),
            SweepCommand::Merge(args) => results::merge(args),
            SweepCommand::Report(args) => results::report(args),
            SweepCommand::Submit(args) => submit::submit(args),
            SweepCommand::Status(args) => submit::status(args),
            SweepCommand::Fetch(args) => submit::fetch(args),
            SweepCommand::Work(args) => tasks::work(args),
        }
    }
}

/// What a sweep is made of: a directory with a plan, or studies.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// The directory of a sweep, or studies: names (see `fairlock list`) or paths of study files (.toml)
    #[arg(value_name = "SWEEP", required = true)]
    names: Vec<String>,
    /// The sweep's directory, which is made if it is not there [default: fairlock-sweep/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Leave out what runs real threads
    #[arg(long)]
    simulated: bool,
    /// Fewer locks and points, as `fairlock study --quick`
    #[arg(long)]
    quick: bool,
    /// Seeds of every cell on a simulated machine, instead of the study's
    #[arg(long, value_name = "N", value_parser = fairlock_report::units::at_least_one)]
    seeds: Option<u32>,
}

impl Source {
    /// The plan, and its directory. It is not written yet where it comes from studies.
    fn plan(&self) -> Result<(Plan, PathBuf, bool), Failure> {
        if let [only] = self.names.as_slice()
            && Path::new(only).is_dir()
        {
            return self.planned(Path::new(only));
        }
        if let Some(dir) = self.names.iter().find(|name| Path::new(name).is_dir()) {
            return Err(Failure::Usage(format!(
                "{dir} is a directory: give one sweep's directory, or studies, not both"
            )));
        }
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let studies = study::choose(&names).map_err(|error| Failure::Usage(error.to_string()))?;
        let options =
            Options { quick: self.quick, seeds: self.seeds, simulated_only: self.simulated };
        let plan = Plan::of_studies(&studies, options).map_err(Failure::Usage)?;
        let dir = self.out.clone();
        let dir = dir.unwrap_or_else(|| plan::default_directory(&plan.header.title));
        Ok((plan, dir, true))
    }

    /// What is planned in a directory.
    fn planned(&self, dir: &Path) -> Result<(Plan, PathBuf, bool), Failure> {
        let options = [
            ("--out", self.out.is_some()),
            ("--simulated", self.simulated),
            ("--quick", self.quick),
            ("--seeds", self.seeds.is_some()),
        ];
        if let Some((option, _)) = options.iter().find(|(_, is_given)| *is_given) {
            return Err(Failure::Usage(format!(
                "{option} is for a plan that is made of studies; {} has its plan already",
                dir.display()
            )));
        }
        let plan = read_plan(dir)?;
        Ok((plan, dir.to_owned(), false))
    }
}

/// The plan of a directory, if this version made it.
fn read_plan(dir: &Path) -> Result<Plan, Failure> {
    let plan = Plan::read(dir).map_err(Failure::Usage)?;
    plan.header.check_version(dir).map_err(Failure::Usage)?;
    Ok(plan)
}

/// Writes a plan into its directory, where one of other tasks may be.
pub(crate) fn write_plan(plan: &Plan, dir: &Path) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| {
        Failure::Usage(format!(
            "cannot write a plan in {} ({error}); choose a writable directory with --out",
            dir.display()
        ))
    };
    std::fs::create_dir_all(dir).map_err(cannot)?;
    if let Ok(before) = Plan::read(dir)
        && before.header.title != plan.header.title
    {
        let (dir, before) = (dir.display(), before.header.title);
        say(&format!(
            "{dir} had the plan of \"{before}\", which this one replaces; its results stay"
        ));
    }
    plan.write(dir).map_err(cannot)
}
