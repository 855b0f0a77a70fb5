//! Sweeps on engines: what is submitted, how far it has come, and what is lost.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;
use fairlock_report::screen::{self, complain, say};
use fairlock_report::units::{at_least_one, counted};
use fairlock_study::harness::progress as interrupts;
use fairlock_study::sweep::engine::{
    self, DEFAULT_JOBS, Engine, Lost, Options, Progress, Submission,
};
use fairlock_study::sweep::plan::{Plan, Task};
use fairlock_study::sweep::results::Results;
use fairlock_study::sweep::run::missing;

use super::{Source, read_plan, results, write_plan};
use crate::failure::Failure;

/// What to submit, and how.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    #[command(flatten)]
    source: Source,
    /// What distributes the work
    #[arg(long, value_enum, value_name = "ENGINE")]
    engine: Engine,
    #[command(flatten)]
    how: How,
    /// Ask for machines of their own for tasks that run real threads
    #[arg(long)]
    exclusive: bool,
    /// Write the script and print it, but submit nothing
    #[arg(long)]
    dry_run: bool,
}

/// How tasks are submitted to an engine.
#[derive(Debug, Args)]
pub struct How {
    /// Jobs at most; fewer where that would make jobs of a moment (a minute for Slurm)
    #[arg(long, value_name = "N", default_value_t = DEFAULT_JOBS, value_parser = at_least_one)]
    jobs: u32,
    /// How often a task is submitted at most
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    attempts: u32,
    /// Hosts for GNU parallel to reach over ssh, as its --sshlogin takes them; : is this machine
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    hosts: Vec<String>,
    /// One more option for the engine, such as --option=--partition=long; may be given several times
    #[arg(long = "option", value_name = "OPTION", allow_hyphen_values = true)]
    more: Vec<String>,
}

impl How {
    /// The options for this engine.
    ///
    /// # Errors
    /// One that it has no use for.
    pub fn options(&self, engine: Engine, exclusive: bool) -> Result<Options, Failure> {
        if !self.hosts.is_empty() && engine != Engine::Parallel {
            return Err(Failure::Usage(format!(
                "--hosts is for --engine parallel; {engine} knows its machines itself"
            )));
        }
        let How { jobs, attempts, hosts, more } = self;
        let (hosts, more) = (hosts.clone(), more.clone());
        Ok(Options { engine, jobs: *jobs, attempts: *attempts, exclusive, hosts, more })
    }
}

/// Keeps other programs from submitting tasks of this sweep until it is dropped.
fn submitting(dir: &Path) -> Result<File, Failure> {
    let path = dir.join("submitting.lock");
    let lock = || -> std::io::Result<File> {
        let file = File::options().create(true).append(true).open(&path)?;
        file.lock()?;
        Ok(file)
    };
    lock().map_err(|error| Failure::Run(format!("cannot lock {} ({error})", path.display())))
}

/// Which sweep to look at.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The sweep's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Which sweep to bring to its end.
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// The sweep's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Wait until no job is under way any more
    #[arg(long)]
    wait: bool,
}

/// Lost tasks that are named; of the others only the number.
const MOST_NAMED: usize = 10;

/// How often engines are asked while somebody waits.
const POLL: Duration = Duration::from_secs(2);

pub(super) fn submit(args: &SubmitArgs) -> Result<(), Failure> {
    let options = args.how.options(args.engine, args.exclusive)?;
    let (plan, dir, is_new) = args.source.plan()?;
    // Jobs that are under way need the plan that they were submitted with.
    if is_new && let Ok(before) = read_plan(&dir) {
        let submissions = engine::submissions(&dir).map_err(Failure::Run)?;
        let under_way = under_way(&before, &Results::of(&dir), &submissions);
        if under_way > 0 && before.header.id != plan.header.id {
            return Err(Failure::Usage(format!(
                "{under_way} tasks of another plan are under way in {0}; wait for them with `fairlock sweep fetch {0} \
                 --wait`, or choose another directory with --out",
                dir.display()
            )));
        }
    }
    if is_new {
        write_plan(&plan, &dir)?;
    }
    let _submitting = submitting(&dir)?;
    let results = Results::of(&dir);
    results
        .create()
        .map_err(|error| Failure::Usage(format!("cannot write in {} ({error})", dir.display())))?;
    // What is under way already is not submitted twice.
    let submissions = engine::submissions(&dir).map_err(Failure::Run)?;
    let under_way = under_way(&plan, &results, &submissions);
    let mut tasks = missing(&plan, &results);
    if under_way > 0 && !args.dry_run {
        return Err(Failure::Usage(format!(
            "{} of {} are under way; `fairlock sweep fetch {} --wait` waits for them, and submits again what is lost",
            under_way,
            counted(plan.header.tasks as u64, "task"),
            dir.display()
        )));
    }
    if tasks.is_empty() {
        let text = format!(
            "all {} tasks have results: fairlock sweep report {}\n",
            plan.header.tasks,
            dir.display()
        );
        return Ok(screen::print(&text)?);
    }
    tasks.sort_by_key(Task::is_real);
    let prepared = engine::prepare(&dir, &plan, &tasks, &options).map_err(Failure::Usage)?;
    let mut text = String::new();
    for prepared in prepared {
        let (script, jobs) = (prepared.script.clone(), prepared.jobs);
        if args.dry_run {
            let written = std::fs::read_to_string(&script).map_err(|error| {
                Failure::Run(format!("cannot read {}: {error}", script.display()))
            })?;
            let _ = writeln!(
                text,
                "{written}# {} with {}; nothing is submitted: this is {}",
                counted(tasks.len() as u64, "task"),
                counted(jobs as u64, "job"),
                script.display()
            );
            continue;
        }
        let submission = prepared.submit().map_err(Failure::Run)?;
        let _ = writeln!(
            text,
            "{}: {} as {} {}",
            submission.dir.display(),
            counted(jobs as u64, "job"),
            args.engine,
            submission.id
        );
    }
    if !args.dry_run {
        let _ = writeln!(
            text,
            "{} submitted; fairlock sweep status {1}, fairlock sweep fetch {1} --wait",
            counted(tasks.len() as u64, "task"),
            dir.display()
        );
    }
    Ok(screen::print(&text)?)
}

/// Tasks in jobs that run or wait. An engine that does not answer cannot say; to run a task twice does no harm.
fn under_way(plan: &Plan, results: &Results, submissions: &[Submission]) -> usize {
    match engine::progress(plan, results, submissions) {
        Ok(progress) => progress.running + progress.waiting,
        Err(error) => {
            complain(&format!("warning: jobs of an earlier submission may be under way: {error}"));
            0
        }
    }
}

pub(super) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let (plan, results, submissions) = known(&args.dir)?;
    let progress = engine::progress(&plan, &results, &submissions).map_err(Failure::Run)?;
    let mut text = line(&plan, &progress) + "\n";
    let mut hows: BTreeMap<&str, usize> = BTreeMap::new();
    progress.lost.iter().for_each(|lost| *hows.entry(&lost.how).or_default() += 1);
    for (how, count) in hows {
        let _ = writeln!(text, "{}: {how}", counted(count as u64, "lost task"));
    }
    for lost in progress.lost.iter().take(MOST_NAMED) {
        let _ = writeln!(text, "lost: {}", told(&plan, lost));
    }
    if progress.lost.len() > MOST_NAMED {
        let _ = writeln!(text, "and {} more", progress.lost.len() - MOST_NAMED);
    }
    Ok(screen::print(&text)?)
}

fn known(dir: &Path) -> Result<(Plan, Results, Vec<Submission>), Failure> {
    let plan = read_plan(dir)?;
    let submissions = engine::submissions(dir).map_err(Failure::Run)?;
    Ok((plan, Results::of(dir), submissions))
}

/// How far it has come, in a line.
fn line(plan: &Plan, progress: &Progress) -> String {
    let Progress { done, running, waiting, lost, unsubmitted } = progress;
    let mut parts = vec![format!("{done} of {} done", counted(plan.header.tasks as u64, "task"))];
    for (count, what) in [
        (*running, "in jobs that run"),
        (*waiting, "in jobs that wait"),
        (lost.len(), "lost"),
        (*unsubmitted, "not submitted"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    parts.join(", ")
}

/// What is said of a lost task.
fn told(plan: &Plan, lost: &Lost) -> String {
    let what = plan.tasks().find(|task| task.name == lost.name).map(|task| task.describe());
    let Lost { name, how, reason, log, attempts } = lost;
    let mut text = format!(
        "task {name} ({}), {}: {how}",
        what.unwrap_or_default(),
        counted((*attempts).into(), "attempt")
    );
    if let Some(reason) = reason {
        let _ = write!(text, "; {reason}");
    }
    if let Some(log) = log {
        let _ = write!(text, "; log: {}", log.display());
    }
    text
}

pub(super) fn fetch(args: &FetchArgs) -> Result<(), Failure> {
    let lost = bring_to_the_end(&args.dir, args.wait)?;
    let presented = results::present_directory(&args.dir);
    if lost.is_empty() {
        return presented;
    }
    // Also what came out of the others.
    if let Err(Failure::Run(message)) = presented {
        return Err(Failure::Several(lost.into_iter().chain([message]).collect()));
    }
    Err(Failure::Several(lost))
}

/// Submits again what is lost, and waits if that is wanted; answers what is lost for good. An engine that does not
/// answer while somebody waits, as one that is started anew, is asked again.
pub(crate) fn bring_to_the_end(dir: &Path, wait: bool) -> Result<Vec<String>, Failure> {
    if wait {
        interrupts::handle_interrupts("jobs go on; the same command waits for them again");
    }
    let mut said = String::new();
    let mut tell = |text: String| {
        if text != said {
            say(&text);
            said = text;
        }
    };
    loop {
        let (plan, results, submissions) = known(dir)?;
        match advance(dir, &plan, &results, &submissions) {
            Ok((progress, submitted)) => {
                tell(line(&plan, &progress));
                submitted.iter().for_each(|again| tell(again.clone()));
                let is_over = submitted.is_empty() && progress.running + progress.waiting == 0;
                if is_over || !wait {
                    let bound = submissions.last().map_or(0, |it| it.options.attempts);
                    let for_good: Vec<&Lost> =
                        progress.lost.iter().filter(|it| it.attempts >= bound).collect();
                    let named = for_good.iter().take(MOST_NAMED).map(|lost| told(&plan, lost));
                    let mut lines: Vec<String> = named.collect();
                    if progress.unsubmitted > 0 {
                        let count = counted(progress.unsubmitted as u64, "task");
                        let advice = "`fairlock sweep submit` or `run` does them";
                        lines.push(format!("{count} never submitted; {advice}"));
                    }
                    if for_good.len() > MOST_NAMED {
                        lines.push(format!("{} more tasks are lost", for_good.len() - MOST_NAMED));
                    }
                    return Ok(lines);
                }
            }
            Err(error) if !wait => return Err(Failure::Run(error)),
            Err(error) => tell(format!("{error}; asking again")),
        }
        let mut waited = Duration::ZERO;
        while waited < POLL {
            if interrupts::cancelled() {
                return Err(Failure::Cancelled);
            }
            let step = Duration::from_millis(100);
            thread::sleep(step);
            waited += step;
        }
    }
}

/// Asks the engines, and submits again what is lost and may be; what was submitted, in words.
///
/// One program at a time: another one would submit the same again.
fn advance(
    dir: &Path,
    plan: &Plan,
    results: &Results,
    submissions: &[Submission],
) -> Result<(Progress, Vec<String>), String> {
    let progress = engine::progress(plan, results, submissions)?;
    if progress.lost.is_empty() {
        return Ok((progress, Vec::new()));
    }
    let _submitting = submitting(dir).map_err(|_| "cannot lock the sweep".to_owned())?;
    // What another one has submitted in between is not lost.
    let submissions = &engine::submissions(dir)?;
    let progress = engine::progress(plan, results, submissions)?;
    let (submitted, tasks) = engine::submit_again(dir, plan, &progress.lost, submissions)?;
    let words = |submission: &Submission| {
        let (engine, id) = (submission.options.engine, &submission.id);
        format!("{} submitted again as {engine} {id}", counted(tasks as u64, "lost task"))
    };
    Ok((progress, submitted.iter().map(words).collect()))
}
