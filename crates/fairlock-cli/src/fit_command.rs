//! `fairlock fit`: which parameters give the figures that are known.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use clap::Args;
use fairlock_report::screen::{self, say};
use fairlock_report::units::{counted, format_minutes};
use fairlock_study::fit::file::Fit;
use fairlock_study::fit::{self, Stage, report};
use fairlock_study::harness::progress;
use fairlock_study::harness::sweeping::Sweeping;
use fairlock_study::sweep::engine::{self, Engine};
use fairlock_study::sweep::plan::{Plan, Task};
use fairlock_study::sweep::results::Results;
use fairlock_study::sweep::run::{self, Means, missing};

use crate::failure::Failure;
use crate::sweep_command::submit::{How, bring_to_the_end};
use crate::sweep_command::write_plan;

/// What `--help` says at its end.
pub const AFTER_HELP: &str = "Example:\n  \
    fairlock fit fits/ivybridge-ex-8s.toml --out fit   here, on all CPUs\n  \
    fairlock fit mine.toml --out fit --engine slurm    rounds as job arrays\n  \
    fairlock fit mine.toml --out fit --plan            write the next round\n\n\
    The file says which parameters of a simulated machine or of a lock may take which values, and which published or \
    measured rows they are to give; the book's page on fits explains it. What was tried is kept in --out: a fit that \
    was stopped goes on, and the same command again only shows the results. The page is fit.md there, beside the \
    machine's file with the values found.";

/// What to fit.
#[derive(Debug, Args)]
pub struct FitArgs {
    /// The fit's file
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// The directory of all that is tried, which is a sweep's [default: fairlock-fit/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the plan of the next round, and run nothing: `fairlock sweep run DIR` or `fairlock sweep submit DIR` does
    #[arg(long, conflicts_with = "engine")]
    plan: bool,
    /// Have each round run by this engine, and wait for it
    #[arg(long, value_enum, value_name = "ENGINE")]
    engine: Option<Engine>,
    #[command(flatten)]
    how: How,
}

impl FitArgs {
    /// Does it.
    pub fn run(&self) -> Result<(), Failure> {
        let fit = Fit::read(&self.file).map_err(Failure::Usage)?;
        let dir = self.out.clone().unwrap_or_else(|| fit::default_directory(&self.file));
        let results = Results::of(&dir);
        loop {
            let stage = fit.next(&results).map_err(Failure::Usage)?;
            let (round, of, plan) = match stage {
                Stage::Done(fitted) => {
                    let text = report::text(&fit, &fitted);
                    let page = dir.join("fit.md");
                    let mut said = format!("{text}\npage: {}\n", page.display());
                    write(&page, &text)?;
                    if let Some(sheet) = fit.fitted_machine(&fitted).map_err(Failure::Run)? {
                        let path = dir.join(format!("{}-fitted.toml", sheet.name));
                        write(&path, &sheet.write())?;
                        said += &format!("machine: {0}, for --on {0}\n", path.display());
                    }
                    return Ok(screen::print(&said)?);
                }
                Stage::Try { round, of, plan } => (round, of, plan),
            };
            write_plan(&plan, &dir)?;
            let tasks = missing(&plan, &results);
            let seconds = tasks.iter().map(Task::estimate_s).sum::<f64>() / cpus() as f64;
            let what = if round == of { ", the sensitivity" } else { "" };
            let tasks_left = counted(tasks.len() as u64, "task");
            let round = format!("round {round} of {of}{what}: {tasks_left}");
            if self.plan {
                let dir = dir.display();
                let text = format!(
                    "{round}\nplan: {dir}\nrun it with `fairlock sweep run {dir}`, or with `fairlock sweep submit {dir} --engine ENGINE` \
                     and `fairlock sweep fetch {dir} --wait`; then this command again\n"
                );
                return Ok(screen::print(&text)?);
            }
            match self.engine {
                Some(engine) => {
                    say(&round);
                    self.run_by(engine, &dir, &plan, &tasks)?;
                }
                None => {
                    say(&format!("{round}, about {} here", format_minutes(seconds)));
                    progress::handle_interrupts(
                        "what was tried is kept, and the same command goes on",
                    );
                    run_here(&dir, &plan, &results)?;
                }
            }
        }
    }

    fn run_by(
        &self,
        engine: Engine,
        dir: &Path,
        plan: &Plan,
        tasks: &[Task<'_>],
    ) -> Result<(), Failure> {
        let options = self.how.options(engine, false)?;
        let results = Results::of(dir);
        results.create().map_err(|error| Failure::Usage(format!("{}: {error}", dir.display())))?;
        // A round that was submitted before this command was stopped is waited for.
        let submissions = engine::submissions(dir).map_err(Failure::Run)?;
        let known = engine::progress(plan, &results, &submissions).map_err(Failure::Run)?;
        if known.running + known.waiting == 0 {
            let prepared = engine::prepare(dir, plan, tasks, &options).map_err(Failure::Usage)?;
            for prepared in prepared {
                prepared.submit().map_err(Failure::Run)?;
            }
        }
        let lost = bring_to_the_end(dir, true)?;
        match lost.is_empty() {
            true => Ok(()),
            false => Err(Failure::Several(lost)),
        }
    }
}

fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn run_here(dir: &Path, plan: &Plan, results: &Results) -> Result<(), Failure> {
    let means = Means { results, workers: cpus(), scratch: dir };
    let mut watch = Sweeping::new(false);
    let ran = run::run(plan, &|_, _| true, means, &mut watch).map_err(Failure::Run)?;
    watch.finish();
    if ran.cancelled {
        return Err(Failure::Cancelled);
    }
    let failed = ran.failed.iter().map(|(name, reason)| format!("task {name} failed: {reason}"));
    let failed: Vec<String> = failed.take(5).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Several(failed)),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| {
        Failure::Run(format!(
            "cannot write {} ({error}); choose a writable directory with --out",
            path.display()
        ))
    })
}
