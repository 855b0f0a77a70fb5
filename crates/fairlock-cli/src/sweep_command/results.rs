//! Rows and pages of a sweep's results.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use fairlock_report::recording::{self, Recording, Skipped, Writer};
use fairlock_report::screen::{self, complain};
use fairlock_report::units::counted;
use fairlock_study::report::{self, comparisons, terminal};
use fairlock_study::sweep::merge::{self, Merged, common_plan};
use fairlock_study::sweep::plan::Plan;
use fairlock_study::sweep::results::Results;

use super::read_plan;

use crate::failure::Failure;
use crate::showing::{check_page_name, columns, studies_text, write_page};

/// Which results to merge.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Directories of one sweep, each with some results
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// The file of rows, for `fairlock report` [default: rows.jsonl in the first directory]
    #[arg(long, value_name = "FILE.jsonl")]
    out: Option<PathBuf>,
    /// Make rows also if results are missing
    #[arg(long)]
    partial: bool,
}

/// What to show.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Directories of one sweep, each with some results
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// The page, an .html or an .md file [default: report.html in the first directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Missing tasks that are named; of the others only the number.
const MOST_NAMED: usize = 10;

pub(super) fn merge(args: &MergeArgs) -> Result<(), Failure> {
    let plan = common_plan(&args.dirs).map_err(Failure::Usage)?;
    if let Some(out) = &args.out {
        recording::check_rows_name(out)
            .map_err(|error| Failure::Usage(format!("--out {error}")))?;
    }
    check_place(args.out.as_deref(), &args.dirs)?;
    let merged = merged(&plan, &args.dirs)?;
    let path = args.out.clone().unwrap_or_else(|| args.dirs[0].join("rows.jsonl"));
    let missing = missing(&plan, &merged);
    if !merged.missing.is_empty() && !args.partial {
        let advice = "--partial makes rows of the results that are there";
        screen::print(&(missing.join("\n") + "\n"))?;
        return Err(Failure::Run(format!("{}; {advice}", without(&plan, &merged))));
    }
    let (rows, without_all) = (merged.rows.len(), without(&plan, &merged));
    write_rows(&path, &recording(&plan, merged))?;
    let mut text = String::new();
    if !missing.is_empty() {
        let _ = writeln!(text, "{}:\n{}", without_all, missing.join("\n"));
    }
    let _ = writeln!(text, "{}: {}", counted(rows as u64, "row"), path.display());
    Ok(screen::print(&text)?)
}

pub(super) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let plan = common_plan(&args.dirs).map_err(Failure::Usage)?;
    check_place(args.out.as_deref(), &args.dirs)?;
    let merged = merged(&plan, &args.dirs)?;
    let out = args.out.clone().unwrap_or_else(|| args.dirs[0].join("report.html"));
    if out.extension().is_none_or(|it| it != "md") {
        check_page_name(&out)?;
    }
    show(&plan, merged, &args.dirs[0], &out)
}

/// Refuses a file that a sweep needs.
fn check_place(out: Option<&Path>, dirs: &[PathBuf]) -> Result<(), Failure> {
    let Some(out) = out else { return Ok(()) };
    let needed = |dir: &PathBuf| recording::is_one_file(out, &dir.join("plan.jsonl"));
    match dirs.iter().any(needed) {
        false => Ok(()),
        true => Err(Failure::Usage(format!(
            "{} is a sweep's plan, which would be lost; choose another file with --out",
            out.display()
        ))),
    }
}

/// Rows and page of what a directory has.
pub(crate) fn present(plan: &Plan, dir: &Path) -> Result<(), Failure> {
    let merged = merged(plan, std::slice::from_ref(&dir.to_owned()))?;
    show(plan, merged, dir, &dir.join("report.html"))
}

/// The same of a directory whose plan has to be read.
pub(crate) fn present_directory(dir: &Path) -> Result<(), Failure> {
    present(&read_plan(dir)?, dir)
}

fn merged(plan: &Plan, dirs: &[PathBuf]) -> Result<Merged, Failure> {
    let results: Vec<Results> = dirs.iter().map(|dir| Results::of(dir)).collect();
    merge::merge(plan, &results).map_err(Failure::Run)
}

fn recording(plan: &Plan, merged: Merged) -> Recording {
    let mut header = plan.recording_header();
    if let [first, others @ ..] = merged.machines.as_slice() {
        header.machine = first.clone();
        if !others.is_empty() {
            let others: Vec<&str> = others.iter().map(|machine| machine.cpu.as_str()).collect();
            complain(&format!(
                "warning: real threads ran on different machines, {} and {}: compare rows of one task only",
                first.cpu,
                others.join(", ")
            ));
        }
    }
    let mut recording = Recording::new(header);
    recording.skipped = skipped(plan, &merged);
    recording.rows = merged.rows;
    recording.timelines = merged.timelines;
    recording
}

/// How many tasks have no result, in words.
fn without(plan: &Plan, merged: &Merged) -> String {
    format!("{} of {} tasks have no result", merged.missing.len(), plan.header.tasks)
}

/// What the rows and the page say of missing results: once for each workload on each machine.
fn skipped(plan: &Plan, merged: &Merged) -> Vec<Skipped> {
    let missing: BTreeSet<&str> = merged.missing.iter().map(String::as_str).collect();
    let mut skipped: Vec<Skipped> = Vec::new();
    if plan.header.simulated_only {
        let runs = plan.studies().0.into_iter().flat_map(|study| study.runs);
        let real = runs.filter(|run| run.machine.is_none());
        for workload in real.flat_map(|run| run.workload.list().to_vec()) {
            let reason = "planned with --simulated, without real threads".to_owned();
            let one = Skipped { workload, machine: None, reason };
            if !skipped.contains(&one) {
                skipped.push(one);
            }
        }
    }
    for group in &plan.groups {
        if !group.tasks().any(|task| missing.contains(task.name)) {
            continue;
        }
        let cell = &group.cells[0];
        let one = Skipped {
            workload: cell.workload.name().to_owned(),
            machine: cell.on.as_ref().map(|on| on.machine().to_owned()),
            reason: without(plan, merged),
        };
        if !skipped.contains(&one) {
            skipped.push(one);
        }
    }
    skipped
}

/// Writes rows, whole or not at all; another program may do the same at the same time.
fn write_rows(path: &Path, recording: &Recording) -> Result<(), Failure> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let write = || {
        let mut writer = Writer::create(&new, &recording.header)?;
        recording.rows.iter().try_for_each(|row| writer.row(row))?;
        recording.skipped.iter().try_for_each(|skipped| writer.skipped(skipped))?;
        recording.timelines.iter().try_for_each(|timeline| writer.timeline(timeline))?;
        std::fs::rename(&new, path)
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&new);
        Failure::Run(format!(
            "cannot write {} ({error}); choose a file in a writable directory with --out",
            path.display()
        ))
    })
}

/// What is missing, in lines: the tasks by name as far as there is room for them.
fn missing(plan: &Plan, merged: &Merged) -> Vec<String> {
    if merged.missing.is_empty() {
        return Vec::new();
    }
    let named = &merged.missing[..merged.missing.len().min(MOST_NAMED)];
    let tasks = plan.tasks().filter(|task| named.iter().any(|name| name == task.name));
    let mut lines: Vec<String> =
        tasks.map(|task| format!("missing: {} ({})", task.name, task.describe())).collect();
    if merged.missing.len() > named.len() {
        lines.push(format!("and {} more", merged.missing.len() - named.len()));
    }
    lines
}

/// Prints what the results say, and writes rows and page.
fn show(plan: &Plan, merged: Merged, dir: &Path, page: &Path) -> Result<(), Failure> {
    if merged.rows.is_empty() {
        return Err(Failure::Run(format!(
            "no task of {0} has a result yet; `fairlock sweep run {0}` or `fairlock sweep submit {0} --engine ENGINE` \
             makes them",
            dir.display()
        )));
    }
    let missing = missing(plan, &merged);
    let (gone, all) = (merged.missing.len(), plan.header.tasks);
    let recording = recording(plan, merged);
    let rows = dir.join("rows.jsonl");
    let is_elsewhere = page.parent() != Some(dir);
    match write_rows(&rows, &recording) {
        // The page is wanted elsewhere: perhaps the sweep's directory is somebody else's.
        Err(Failure::Run(message)) if is_elsewhere => complain(&format!("warning: {message}")),
        written => written?,
    }
    let (studies, unread) = plan.studies();
    let mut printed = String::new();
    let is_short = recording.rows.len() <= MOST_ROWS;
    if is_short {
        printed +=
            &terminal::tables(&recording.rows, recording.header.machine.cpus, false, columns());
    }
    let has_claims = studies.iter().any(|study| !study.claims.is_empty());
    let of_page = match page.extension().is_some_and(|it| it == "md") {
        true => report::markdown::page(
            std::slice::from_ref(&recording),
            studies.first().map_or("Sweep", |study| &study.title),
        )
        .map_err(Failure::Run)?,
        false => report::page(&recording),
    };
    match has_claims {
        true => printed += &(studies_text(studies, &recording) + "\n"),
        false => printed += &comparisons::text(&studies, &recording.rows, columns()),
    }
    unread.iter().for_each(|it| printed += &format!("{it}\n"));
    if gone > 0 {
        let _ = writeln!(printed, "{gone} of {all} tasks have no result:");
        missing.iter().for_each(|line| printed += &format!("  {line}\n"));
    }
    write_page(page, &of_page, std::slice::from_ref(&rows))?;
    let _ = writeln!(
        printed,
        "rows: {} ({})\npage: {}",
        rows.display(),
        recording.rows.len(),
        page.display()
    );
    Ok(screen::print(&printed)?)
}

/// Of more rows, the terminal has the comparisons and the claims only.
const MOST_ROWS: usize = 12;
