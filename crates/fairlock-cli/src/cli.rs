//! The commands: what they take, what they print, how they fail.
//!
//! Exit codes: 0 done (whatever the verdicts), 1 a run or a file failed, 2 wrong usage, 130
//! stopped by Ctrl-C; `fairlock run` has those of its program. It is no failure that nobody reads what is printed
//! (`fairlock list | head -1`), but that it cannot be written is one.
//!
//! What is printed has the width of the terminal, 120 columns at most and 80 where there is none. Errors and
//! warnings are one line each where standard error is no terminal.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter};
use std::num::ParseIntError;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::slice;
use std::time::{Duration, Instant};

use clap::error::{ContextKind, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use fairlock_lab::calibrate;
use fairlock_lab::machine;
use fairlock_lab::workload::Need;
use fairlock_lab::workloads::{forkstorm_kernel, readseek};
use fairlock_lab::world::probe_direct_io;
use fairlock_sim::profile::{self, HERE_FILE};
use fairlock_study::plan::{Batch, Simulated};
use fairlock_study::report::{self, replays, terminal, timeline_file};
use fairlock_study::study::{self, Effort, Study};
use fairlock_study::validate::{self, Score};

use crate::doctor_command::{self, Doctor};
use crate::failure::Failure;
use crate::fit_command::{self, FitArgs};
use crate::install::Install;
use crate::list_command::List;
use crate::log_command::LogCommand;
use crate::manual;
use crate::replay_command::{self, ReplayArgs};
use crate::run_command::{self, Run};
use crate::showing::{
    FINISHED_ARE_KEPT, check_page_name, columns, conclude, missing_text, studies_text, write_page,
};
use crate::sweep_command::SweepCommand;
use fairlock_report::printable::printable;
use fairlock_report::recording::{self, Header, Recording, Writer};
use fairlock_report::screen::{self, complain, say, wrapped_lines};
use fairlock_report::units::{self, at_least_one};
use fairlock_report::{busy, former_names};
use fairlock_study::harness::bench::{Bench, DEFAULT_PATIENCE};
use fairlock_study::harness::quiet::Quiet;
use fairlock_study::harness::runner::{Job, Outcome};
use fairlock_study::harness::{progress, runner};
use fairlock_trace::doctor::found::Found;
use fairlock_trace::doctor::reading::is_recording;

/// Where studies leave their report where nothing else is said.
const DEFAULT_OUT: &str = "fairlock-report";

/// Said of a report in which nothing but the header is.
const HEADER_ALONE: &str = "the file has only its header line: it may have been cut off";

/// Shows what a lock policy does to a workload, on this machine.
#[derive(Debug, Parser)]
#[command(name = "fairlock", version, after_help = "Example:\n  fairlock study --quick")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run studies: published numbers beside yours, with a verdict on every claim
    #[command(after_help = "Example:\n  \
        fairlock study              those of published systems and of shares, in 9 minutes\n  \
        fairlock study --quick      the same in 75 seconds\n  \
        fairlock study all          every study\n  \
        fairlock study s0 --dir /mnt/nvme   one, its scratch files on a drive of yours\n  \
        fairlock study memtable.toml        one of your own, from a file")]
    Study(StudyArgs),
    /// Run studies that are too large for one sitting or one machine: planned, in shares, on a cluster
    #[command(
        subcommand,
        after_help = "Example:\n  \
            fairlock sweep run grid.toml --out grid\n  \
            fairlock sweep submit grid.toml --out grid --engine slurm\n\n\
            A sweep's file is a study's: `machine` may name several simulated machines, and a list of values makes a \
            point of each."
    )]
    Sweep(SweepCommand),
    /// Search a simulated machine's or a policy's parameters that give published or measured figures
    #[command(after_help = fit_command::AFTER_HELP)]
    Fit(FitArgs),
    /// Compare locks on one workload with parameters of your choice
    #[command(after_help = "Example:\n  \
        fairlock bench mix --lock rwsem,std --threads 2,8,32\n  \
        fairlock bench mix --json | jq 'select(.lock) | [.lock, .total_ops_per_s.median]'")]
    Bench(BenchArgs),
    /// Does the work of one process of `bench readseek-processes`, which starts it
    #[command(name = readseek::SUBCOMMAND, hide = true)]
    ReadseekWorker {
        /// What that has written down for it
        job: String,
    },
    /// Forks the processes of `bench forkstorm-kernel`, which starts it
    #[command(name = forkstorm_kernel::SUBCOMMAND, hide = true)]
    ForkstormDaemon {
        /// What that has written down for it
        job: String,
    },
    /// Turn recorded rows into a page again
    #[command(after_help = "Example:\n  \
            fairlock report fairlock-report/rows.jsonl --out page.html\n  \
            fairlock report s0.jsonl mutex.jsonl --out page.md   several studies as Markdown\n\n\
            An .html page shows one file, whichever command wrote it. An .md page shows the studies of one or \
            several files of `fairlock study`, each study once; what `fairlock bench`, `fairlock replay`, \
            `fairlock run` and `fairlock doctor` recorded becomes an .html page only.")]
    Report(ReportArgs),
    /// Measure this machine and write its profile for the simulator, in about 10 seconds
    #[command(after_help = "Example:\n  \
        fairlock calibrate                  the machine `here`\n  \
        fairlock calibrate --out big.toml   a machine that you name by this path")]
    Calibrate(CalibrateArgs),
    /// Predict runs on this machine, make them, and say how far off the predictions are
    #[command(after_help = "Example:\n  \
        fairlock calibrate && fairlock validate   about 3 minutes\n  \
        fairlock validate --quick                 fewer points\n  \
        fairlock validate --wait 60               once other programs are done")]
    Validate(ValidateArgs),
    /// Run a program with its pthread_rwlocks replaced, and report who waited for whom
    #[command(after_help = run_command::AFTER_HELP)]
    Run(Run),
    /// Run a recorded program with more threads, other locks, or on a machine that you do not have
    #[command(after_help = replay_command::AFTER_HELP)]
    Replay(ReplayArgs),
    /// Diagnose a running system: which locks its threads wait for, in the kernel and in programs, and why
    #[command(after_help = doctor_command::AFTER_HELP)]
    Doctor(Doctor),
    /// Append to, follow, check and look at a log of records: a directory of segment files
    #[command(
        subcommand,
        after_help = "Example:\n  \
            fairlock log append journal < lines.txt\n  \
            fairlock log tail journal --follow"
    )]
    Log(LogCommand),
    /// Install this command, and Fairlock for C and C++
    #[command(after_help = "Example:\n  \
        fairlock install --prefix ~/.local\n  \
        cargo run --release -- install --prefix ~/.local   from the sources\n\n\
        Puts the command in bin, the libraries with their files for pkg-config and CMake in lib, fairlock.h and \
        fairlock.hpp in include, and man pages and what bash, zsh and fish complete by in share. The directory may be \
        moved afterwards.")]
    Install(Install),
    /// Print a script by which a shell completes this command
    #[command(after_help = "Example:\n  \
        source <(fairlock completions bash)   until the shell ends\n\n\
        `fairlock install` puts those of bash, zsh and fish where these shells look.")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// List the locks, workloads, studies, metrics and machines
    #[command(after_help = "Example:\n  \
        fairlock list\n  \
        fairlock list --machine ivybridge-ex-8s   its figures and their sources\n  \
        fairlock list --json | jq -r '.locks[].name'")]
    List(List),
}

#[derive(Debug, Args)]
struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,
    #[command(flatten)]
    quiet: Quiet,
}

#[derive(Debug, Args)]
struct StudyArgs {
    /// Studies to run: names (see `fairlock list`), `all`, or paths of study files of your own (.toml); those of
    /// published systems if none is named
    #[arg(value_name = "STUDY")]
    names: Vec<String>,
    /// Fewer locks and points, shorter repetitions: those of published systems in 75 seconds
    #[arg(long)]
    quick: bool,
    /// Directory for scratch files of direct I/O; the report's directory if not given
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Directory for the report and its rows
    #[arg(long, value_name = "DIR", default_value = DEFAULT_OUT)]
    out: PathBuf,
    /// Repeat undecided claims for up to SECONDS, counted from the start; decided ones are not repeated, nor those too
    /// close to decide [default: 540, with --quick 75]
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_seconds)]
    time: Option<f64>,
    /// Repetitions of every cell, instead of the study's
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    repetitions: Option<u32>,
    /// Seconds of every repetition, instead of the study's
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_seconds)]
    seconds: Option<f64>,
    /// Give a run SECONDS more than it should take before its lock counts as hung
    #[arg(long, value_name = "SECONDS", default_value = DEFAULT_PATIENCE, value_parser = units::parse_wait)]
    patience: Duration,
    #[command(flatten)]
    quiet: Quiet,
}

#[derive(Debug, Args)]
struct ReportArgs {
    /// A .jsonl file of `fairlock study`, `replay`, `bench --out`, `run --report` or `doctor --report`;
    /// for a page of Markdown, one or several of `fairlock study`
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The page, an .html file, or an .md file for Markdown; an .html file beside the rows if not given
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The title of a page of Markdown [default: Measurements]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

#[derive(Debug, Args)]
struct CalibrateArgs {
    /// The profile, a .toml file; the one in the current directory is the machine `here`
    #[arg(long, value_name = "FILE", default_value = HERE_FILE)]
    out: PathBuf,
    /// Rounds in which everything is measured; more on a machine that others use, too
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
    repetitions: u32,
    #[command(flatten)]
    quiet: Quiet,
}

#[derive(Debug, Args)]
struct ValidateArgs {
    /// This machine's profile
    #[arg(long, value_name = "MACHINE", default_value = profile::HERE)]
    on: String,
    /// Fewer points, shorter runs
    #[arg(long)]
    quick: bool,
    /// Repetitions of every real run
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    repetitions: Option<u32>,
    /// Seconds of every real run
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_seconds)]
    seconds: Option<f64>,
    /// Seeds of every prediction
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    seeds: Option<u32>,
    /// Also write the rows to this .jsonl file, for `fairlock report`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Give a run SECONDS more than it should take before its lock counts as hung
    #[arg(long, value_name = "SECONDS", default_value = DEFAULT_PATIENCE, value_parser = units::parse_wait)]
    patience: Duration,
    #[command(flatten)]
    quiet: Quiet,
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let cli = match parse(&std::env::args_os().collect::<Vec<_>>()) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    if !matches!(&cli.command, Command::Run(run) if run.is_quiet()) {
        note_former_names();
    }
    let (code, messages) = match do_it(cli.command) {
        Ok(code) => return code,
        Err(Failure::Usage(message)) => (2, vec![message]),
        Err(Failure::Run(message)) => (1, vec![message]),
        Err(Failure::Several(messages)) => (1, messages),
        Err(Failure::Told) => (1, Vec::new()),
        Err(Failure::Cancelled) => (130, Vec::new()),
    };
    messages.iter().for_each(|message| complain(&format!("error: {}", printable(message))));
    ExitCode::from(code)
}

fn do_it(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Study(args) => run_studies(&args),
        Command::Bench(args) => run_bench(&args.bench, &args.quiet),
        Command::ReadseekWorker { job } => {
            readseek::work_in_process(&job).map_err(|error| Failure::Run(error.to_string()))
        }
        Command::ForkstormDaemon { job } => {
            forkstorm_kernel::work_as_daemon(&job).map_err(|error| Failure::Run(error.to_string()))
        }
        Command::Sweep(command) => command.run(),
        Command::Fit(args) => args.run(),
        Command::Report(args) => write_report(&args),
        Command::Calibrate(args) => calibrate_here(&args),
        Command::Validate(args) => validate_here(&args),
        Command::Run(run) => return run.run(),
        Command::Replay(args) => args.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Log(command) => command.run(),
        Command::Install(install) => install.run(Cli::command()),
        Command::Completions { shell } => print(&manual::completions(Cli::command(), shell)),
        Command::List(list) => list.run(),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Says which names that were read are called otherwise now.
fn note_former_names() {
    if let Some(note) = former_names::take_note() {
        complain(&note);
    }
}

/// Prints to standard output.
fn print(text: &str) -> Result<(), Failure> {
    Ok(screen::print(text)?)
}

/// Reads the command line.
fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let read = |args: &[OsString]| {
        let matches = Cli::command().term_width(columns()).try_get_matches_from(args)?;
        Cli::from_arg_matches(&matches)
    };
    read(args).map_err(|error| {
        let is_unknown = error.kind() == ErrorKind::UnknownArgument;
        let as_value = with_negative_value(args).filter(|_| is_unknown);
        // The option knows what is valid. Options that would take it keep their own rules for what begins so.
        let told = as_value.and_then(|args| read(&args).err());
        told.filter(|told| told.kind() == ErrorKind::ValueValidation).unwrap_or(error)
    })
}

/// The command line with what looks like a negative number as the value of the option before it: `--threads=-1`.
/// Taken for an option of its own, it would only be unknown. None if there is no such pair.
fn with_negative_value(args: &[OsString]) -> Option<Vec<OsString>> {
    let is_negative = |arg: &OsStr| {
        let rest = arg.to_str().and_then(|arg| arg.strip_prefix('-'));
        rest.is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit() || it == '.'))
    };
    let is_option = |arg: &OsStr| {
        arg.to_str().is_some_and(|arg| arg.starts_with('-') && arg != "--" && !arg.contains('='))
    };
    let mut joined: Vec<OsString> = Vec::new();
    for arg in args {
        match joined.last_mut() {
            Some(option) if is_negative(arg) && is_option(option) => {
                option.push("=");
                option.push(arg);
            }
            _ => joined.push(arg.clone()),
        }
    }
    (joined.len() < args.len()).then_some(joined)
}

/// Prints help as it is, and an error as one line with the valid choices.
fn refuse(error: &clap::Error) -> ExitCode {
    let is_text = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if !is_text {
        complain(&in_one_line(error));
        return ExitCode::from(2);
    }
    let text = |is_rich: bool| match is_rich {
        true => error.render().ansi().to_string(),
        false => error.to_string(),
    };
    if error.use_stderr() {
        say(&text(screen::is_rich(&io::stderr())));
        return ExitCode::from(2);
    }
    match print(&text(screen::is_rich(&io::stdout()))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Failure::Run(message) = failure {
                complain(&format!("error: {message}"));
            }
            ExitCode::from(1)
        }
    }
}

/// What is wrong with the command line, and what is valid.
fn in_one_line(error: &clap::Error) -> String {
    if let Some(message) = whole_number_wanted(error) {
        return message;
    }
    let text = error.to_string();
    let said = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let said = said.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    said.collect::<Vec<_>>().join(" ")
}

/// What is said of a value that is no whole number, or not one that the option takes: the parser's own words do not
/// say what is valid.
fn whole_number_wanted(error: &clap::Error) -> Option<String> {
    let reason = error.source()?;
    let reason_text = reason.to_string();
    let range = reason_text.split_once(" is not in ").map(|(_, range)| range);
    let valid = match range {
        None if reason.is::<ParseIntError>() => "a whole number, not below 0".to_owned(),
        None => return None,
        Some(range) => match range.split_once("..") {
            Some((least, most)) if !most.trim_start_matches('=').is_empty() => {
                format!("a whole number from {least} to {}", most.trim_start_matches('='))
            }
            Some((least, _)) => format!("a whole number, at least {least}"),
            None => return None,
        },
    };
    let told = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    Some(format!(
        "error: invalid value '{}' for '{}': give {valid}",
        told(ContextKind::InvalidValue),
        told(ContextKind::InvalidArg)
    ))
}

/// The reason that direct I/O cannot run in `dir`, if it cannot.
fn direct_io_trouble(batches: &[Batch], dir: &Path) -> Option<String> {
    if !batches.iter().any(|batch| batch.needs(Need::DirectIo)) {
        return None;
    }
    probe_direct_io(dir).err().map(|error| error.to_string())
}

fn check_writable(option: &str, dir: &Path) -> Result<(), Failure> {
    machine::probe_writable(dir).map_err(|reason| {
        Failure::Usage(format!(
            "cannot write in {} ({reason}); choose a writable directory with {option}",
            dir.display()
        ))
    })
}

/// How long studies take, and the same in quick: the time after which nothing that is undecided gets another
/// repetition.
const STUDY_SECONDS: f64 = 540.0;
const QUICK_STUDY_SECONDS: f64 = 75.0;
/// Of these, what the report takes.
const REPORT_SECONDS: f64 = 4.0;

/// Until when what is undecided is repeated; never where somebody has said how often everything is.
fn decide_until(args: &StudyArgs) -> Option<Instant> {
    if args.repetitions.is_some() || args.seconds.is_some() {
        return None;
    }
    let usual = if args.quick { QUICK_STUDY_SECONDS } else { STUDY_SECONDS };
    let seconds = args.time.unwrap_or(usual - REPORT_SECONDS);
    Some(Instant::now() + Duration::from_secs_f64(seconds))
}

fn run_studies(args: &StudyArgs) -> Result<(), Failure> {
    let until = decide_until(args);
    let names: Vec<&str> = args.names.iter().map(String::as_str).collect();
    let studies = study::choose(&names).map_err(|error| Failure::Usage(error.to_string()))?;
    let effort = Effort { quick: args.quick, repetitions: args.repetitions, seconds: args.seconds };
    let batches = study::batches(&studies, effort);
    runner::check(&batches).map_err(Failure::Usage)?;

    std::fs::create_dir_all(&args.out).map_err(|error| {
        Failure::Usage(format!(
            "cannot create {} ({error}); choose a writable directory with --out",
            args.out.display()
        ))
    })?;
    check_writable("--out", &args.out)?;
    let dir = args.dir.as_deref().unwrap_or(&args.out);
    check_writable("--dir", dir)?;
    let trouble = direct_io_trouble(&batches, dir);
    if let (Some(trouble), Some(_)) = (&trouble, &args.dir) {
        return Err(Failure::Usage(trouble.clone()));
    }

    let rows_path = args.out.join("rows.jsonl");
    let page_path = args.out.join("report.html");
    let cells: usize = batches.iter().map(|batch| batch.cells.len()).sum();
    let estimate_s: f64 = batches.iter().map(Batch::estimate_s).sum();
    say(&format!(
        "{}: {}, about {}; scratch files in {}, results in {}",
        studies.iter().map(|study| study.name.as_str()).collect::<Vec<_>>().join(", "),
        units::counted(cells as u64, "cell"),
        units::format_minutes(estimate_s),
        dir.display(),
        args.out.display()
    ));

    let mut header = study::header(&studies, args.quick, machine::here(Some(dir)));
    say(&terminal::machine(&header));
    header.others_busy_cpus = look_for_others(&batches, &args.quiet);
    let mut writer = Writer::create(&rows_path, &header).map_err(|error| {
        Failure::Usage(format!("cannot write {}: {error}", rows_path.display()))
    })?;
    progress::handle_interrupts(FINISHED_ARE_KEPT);
    let mut recording = Recording::new(header);
    let job = Job {
        dir,
        no_direct_io: trouble.as_deref(),
        decide: until.map(|until| (studies.as_slice(), until)),
        ..Job::new(&batches, args.patience)
    };
    let outcome = runner::run(&job, &mut recording, Some(&mut writer));

    if writer.left_the_older() {
        return nothing_to_report(&recording, &outcome, &rows_path, &page_path);
    }
    report_studies(studies, &recording, &outcome, &rows_path, &page_path)
}

/// Nothing has finished, so an older report stays.
fn nothing_to_report(
    recording: &Recording,
    outcome: &Outcome,
    rows_path: &Path,
    page_path: &Path,
) -> Result<(), Failure> {
    let paths = format!("{} and {}", page_path.display(), rows_path.display());
    let stay = format!("no results; {paths} are of an earlier run");
    print(&format!("{}{}\n", missing_text(recording, outcome), wrapped_lines(&stay, columns())))?;
    conclude(recording, outcome, Vec::new())
}

/// Prints what studies came to, and writes their page.
fn report_studies(
    studies: Vec<Study>,
    recording: &Recording,
    outcome: &Outcome,
    rows_path: &Path,
    page_path: &Path,
) -> Result<(), Failure> {
    let cpus = recording.header.machine.cpus;
    let mut printed = terminal::tables(&recording.rows, cpus, false, columns());
    printed += &studies_text(studies, recording);
    printed += "\n";
    printed += &missing_text(recording, outcome);
    // Whatever becomes of what is printed, the page is there afterwards.
    let page = std::fs::write(page_path, report::page(recording));
    let mut unwritten = Vec::new();
    unwritten.extend(outcome.write_error.as_ref().map(|error| (rows_path, error.clone())));
    unwritten.extend(page.err().map(|error| (page_path, error.to_string())));
    let is_written = |path| !unwritten.iter().any(|(unwritten, _)| *unwritten == path);
    // The last lines are what everybody wants to know, and where to read on.
    if is_written(rows_path) {
        let _ = writeln!(printed, "rows: {}", rows_path.display());
    }
    printed += &terminal::answer(recording, columns());
    if is_written(page_path) {
        let _ = writeln!(printed, "page: {}", page_path.display());
    }
    print(&printed)?;
    conclude(recording, outcome, unwritten_text(&unwritten))
}

/// Which files could not be written, a line for each reason.
fn unwritten_text(unwritten: &[(&Path, String)]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for (path, reason) in unwritten {
        let path = path.display().to_string();
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, paths)) => paths.push(path),
            None => reasons.push((reason, vec![path])),
        }
    }
    let told = reasons.into_iter().map(|(reason, paths)| {
        let paths = paths.join(" and ");
        format!("cannot write {paths} ({reason}); choose another place with --out")
    });
    told.collect()
}

/// How busy others keep the CPUs on which these are to run.
fn look_for_others(batches: &[Batch], quiet: &Quiet) -> Option<f64> {
    // What a simulated machine does, others do not change.
    let is_real = batches.iter().any(|batch| batch.machine().is_none());
    if is_real {
        note_a_debug_build();
    }
    is_real.then(|| quiet.look()).flatten()
}

fn run_bench(bench: &Bench, quiet: &Quiet) -> Result<(), Failure> {
    let common = &bench.common;
    let batches = bench.batches().map_err(Failure::Usage)?;
    runner::check(&batches).map_err(Failure::Usage)?;
    check_files(common.out.as_deref(), common.timeline.as_deref())?;
    let uses_files = batches.iter().any(|batch| batch.needs(Need::Directory));
    if uses_files {
        check_writable("--dir", &common.dir)?;
        if let Some(trouble) = direct_io_trouble(&batches, &common.dir) {
            return Err(Failure::Usage(trouble));
        }
    }
    let mut header =
        Header::now(Vec::new(), false, machine::here(uses_files.then_some(common.dir.as_path())));
    header.others_busy_cpus = look_for_others(&batches, quiet);
    let mut writer = match common.json {
        true => Some(Writer::to_stdout(&header)?),
        false => rows_writer(common.out.as_deref(), &header)?,
    };
    let estimate_s: f64 = batches.iter().map(Batch::estimate_s).sum();
    say(&format!("{}\nabout {}", terminal::machine(&header), units::format_minutes(estimate_s)));
    progress::handle_interrupts(FINISHED_ARE_KEPT);
    let mut recording = Recording::new(header);
    let job = Job { dir: &common.dir, ..Job::new(&batches, common.patience) };
    let outcome = runner::run(&job, &mut recording, writer.as_mut());
    // With --json nothing is on standard output but rows.
    let tell = |text: &str| match common.json {
        true if text.is_empty() => Ok(()),
        true => {
            say(text.trim_end());
            Ok(())
        }
        false => print(text),
    };
    let mut shown = match common.json {
        true => String::new(),
        false => terminal::tables(&recording.rows, recording.header.machine.cpus, true, columns()),
    };
    shown += &missing_text(&recording, &outcome);
    let printed = tell(&shown);
    if let Some(path) = &common.timeline {
        let file = File::create(path);
        let write = |file| timeline_file::write(BufWriter::new(file), &outcome.full_timelines);
        let written = file.and_then(write);
        written.map_err(|error| {
            Failure::Run(format!(
                "cannot write {} ({error}); choose a file in a writable directory with --timeline",
                path.display()
            ))
        })?;
        tell(&format!(
            "timeline: {},\n  for https://ui.perfetto.dev or chrome://tracing\n",
            path.display()
        ))?;
    }
    printed?;
    if let (Some(path), None) = (&common.out, &outcome.write_error) {
        let path = path.display();
        print(&match writer.is_some_and(|writer| writer.left_the_older()) {
            true => format!("no results; {path} is of an earlier run\n"),
            false => format!("rows: {path}\nfor a page: fairlock report {path}\n"),
        })?;
    }
    let unwritten = match (&outcome.write_error, common.json) {
        (Some(error), true) => vec![format!("cannot write the output: {error}")],
        _ => rows_unwritten(common.out.as_ref(), &outcome),
    };
    conclude(&recording, &outcome, unwritten)
}

/// Whether the files for rows and for a timeline can be written, before anybody waits for what goes there.
fn check_files(rows: Option<&Path>, timeline: Option<&Path>) -> Result<(), Failure> {
    if let Some(rows) = rows {
        recording::check_rows_name(rows)
            .map_err(|error| Failure::Usage(format!("--out {error}")))?;
    }
    for (option, path) in [("--out", rows), ("--timeline", timeline)] {
        let Some(path) = path else { continue };
        recording::probe_file(path).map_err(|error| {
            Failure::Usage(format!(
                "cannot write {} ({error}); choose a file in a writable directory with {option}",
                path.display()
            ))
        })?;
    }
    match (rows, timeline) {
        (Some(rows), Some(timeline)) if recording::is_one_file(rows, timeline) => {
            Err(Failure::Usage(format!(
                "--out and --timeline both name {}, and one would be lost; give two files",
                rows.display()
            )))
        }
        _ => Ok(()),
    }
}

/// A file for rows, if one is wanted.
fn rows_writer(path: Option<&Path>, header: &Header) -> Result<Option<Writer>, Failure> {
    let create = |path: &Path| {
        Writer::create(path, header).map_err(|error| {
            Failure::Usage(format!(
                "cannot write {} ({error}); choose a file in a writable directory with --out",
                path.display()
            ))
        })
    };
    path.map(create).transpose()
}

/// That rows could not be written to their file, if so.
fn rows_unwritten(path: Option<&PathBuf>, outcome: &Outcome) -> Vec<String> {
    let unwritten = path.map(PathBuf::as_path).zip(outcome.write_error.clone());
    unwritten_text(&unwritten.into_iter().collect::<Vec<_>>())
}

/// What is odd about recordings, each sentence once.
fn warn_of_remarks(recordings: &[Recording]) {
    let remarks = recordings.iter().flat_map(|recording| &recording.remarks);
    for remark in remarks.collect::<BTreeSet<_>>() {
        complain(&format!("warning: {remark}"));
    }
}

fn write_report(args: &ReportArgs) -> Result<(), Failure> {
    if let Some(file) = args.files.iter().find(|file| is_recording(file)) {
        let file = file.display();
        return Err(Failure::Usage(format!(
            "{file} is a recording of `fairlock doctor`; read it with: fairlock doctor --read {file} --report page.html"
        )));
    }
    let is_markdown = |out: &&PathBuf| out.extension().is_some_and(|it| it == "md");
    if let Some(out) = args.out.as_ref().filter(is_markdown) {
        return write_markdown(&args.files, out, args.title.as_deref().unwrap_or("Measurements"));
    }
    if args.title.is_some() {
        let advice = "--title is for a page of Markdown; give an .md file with --out";
        return Err(Failure::Usage(advice.to_owned()));
    }
    let [file] = args.files.as_slice() else {
        return Err(Failure::Usage(format!(
            "{} files, but an .html page shows one; give one, or for several studies an .md file with --out",
            args.files.len()
        )));
    };
    if let Some(report) = fairlock_trace::report::Report::read(file).map_err(Failure::Run)? {
        note_former_names();
        return write_locks_report(file, args.out.as_deref(), &report);
    }
    if let Some(found) = Found::read(file).map_err(Failure::Run)? {
        let out = write_page_beside(file, args.out.as_deref(), &found.page())?;
        let text = found.terminal(columns(), fairlock_trace::report::SHOWN_LOCKS);
        return print(&format!("{text}\npage: {}\n", out.display()));
    }
    let recording = report::read(file).map_err(Failure::Run)?;
    note_former_names();
    warn_of_remarks(slice::from_ref(&recording));
    let (studies, missing) = study::recorded(&recording.header);
    missing.iter().for_each(|missing| complain(&format!("warning: {}", printable(missing))));
    let mut printed = studies_text(studies, &recording);
    if let Some(note) = busy::note(recording.header.others_busy_cpus) {
        let _ = write!(printed, "\n{}\n", wrapped_lines(&note, columns()));
    }
    let out = args.out.clone().unwrap_or_else(|| file.with_extension("html"));
    check_page_name(&out)?;
    // A study's claims know the locks by the names that the rows have.
    let page = match recording.header.studies.is_empty() {
        true => report::page(&replays::as_shown(&recording)),
        false => report::page(&recording),
    };
    write_page(&out, &page, &args.files)?;
    let rows = units::counted(recording.rows.len() as u64, "row");
    printed += &terminal::answer(&recording, columns());
    let _ = writeln!(printed, "\n{rows}, page: {}", out.display());
    if recording.rows.is_empty() && recording.skipped.is_empty() && !recording.cancelled {
        let _ = writeln!(printed, "{HEADER_ALONE}");
    }
    print(&printed)
}

/// Writes a page of Markdown on these recordings.
fn write_markdown(files: &[PathBuf], out: &Path, title: &str) -> Result<(), Failure> {
    let mut recordings = Vec::new();
    for file in files {
        let is_of_run = fairlock_trace::report::Report::read(file).map_err(Failure::Run)?.is_some();
        if is_of_run || Found::read(file).map_err(Failure::Run)?.is_some() {
            return Err(Failure::Usage(format!(
                "{} was written by `fairlock {}`, which has no Markdown page; give --out a file that ends in .html",
                file.display(),
                if is_of_run { "run" } else { "doctor" }
            )));
        }
        recordings.push(report::read(file).map_err(Failure::Run)?);
    }
    note_former_names();
    warn_of_remarks(&recordings);
    write_page(out, &report::markdown::page(&recordings, title).map_err(Failure::Run)?, files)?;
    let rows = recordings.iter().map(|recording| recording.rows.len() as u64).sum();
    print(&format!("{}, page: {}\n", units::counted(rows, "row"), out.display()))
}

fn write_locks_report(
    file: &Path,
    out: Option<&Path>,
    report: &fairlock_trace::report::Report,
) -> Result<(), Failure> {
    let out = write_page_beside(file, out, &report.page())?;
    let mut printed = format!("{}\npage: {}\n", report.terminal(columns()), out.display());
    if report.processes.is_empty() {
        let _ = writeln!(printed, "{HEADER_ALONE}");
    }
    print(&printed)
}

/// Writes the page of a file there, or beside it where nothing is said; which file that is.
fn write_page_beside(file: &Path, out: Option<&Path>, page: &str) -> Result<PathBuf, Failure> {
    let out = out.map_or_else(|| file.with_extension("html"), Path::to_owned);
    check_page_name(&out)?;
    write_page(&out, page, &[file.to_owned()])?;
    Ok(out)
}

fn note_a_debug_build() {
    if cfg!(debug_assertions) {
        complain("note: a debug build; locks and instructions look slower than they are");
    }
}

fn calibrate_here(args: &CalibrateArgs) -> Result<(), Failure> {
    let dir = match args.out.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    check_writable("--out", dir)?;
    note_a_debug_build();
    args.quiet.look();
    progress::handle_interrupts("nothing is written");
    let mut parts = progress::Parts::default();
    let found = calibrate::calibrate(args.repetitions, &mut parts);
    parts.finish();
    let found = found.map_err(|error| Failure::Run(error.to_string()))?;
    let Some(found) = found else { return Err(Failure::Cancelled) };
    let printed = print(&report::machines::calibration(&found, columns()));
    // Nobody should find out later that a profile cannot be read.
    found.sheet.profile().map_err(|error| Failure::Run(error.to_string()))?;
    std::fs::write(&args.out, found.sheet.write()).map_err(|error| {
        Failure::Usage(format!(
            "cannot write {} ({error}); choose a file in a writable directory with --out",
            args.out.display()
        ))
    })?;
    printed?;
    print(&format!("profile: {}\n", args.out.display()))
}

fn validate_here(args: &ValidateArgs) -> Result<(), Failure> {
    let on = Simulated::find(&args.on, 1).map_err(Failure::Usage)?;
    note_a_debug_build();
    let effort = if args.quick { validate::Effort::QUICK } else { validate::Effort::FULL };
    let effort = validate::Effort {
        repetitions: args.repetitions.unwrap_or(effort.repetitions),
        seconds: args.seconds.unwrap_or(effort.seconds),
        seeds: args.seeds.unwrap_or(effort.seeds),
        ..effort
    };
    let batches = validate::batches(effort, &on);
    let mut header = Header::now(Vec::new(), args.quick, machine::here(None));
    rows_writer(args.out.as_deref(), &header)?;
    header.others_busy_cpus = look_for_others(&batches, &args.quiet);
    let mut writer = rows_writer(args.out.as_deref(), &header)?;
    let estimate_s: f64 = batches.iter().map(Batch::estimate_s).sum();
    say(&format!("{}\nabout {}", terminal::machine(&header), units::format_minutes(estimate_s)));
    progress::handle_interrupts(FINISHED_ARE_KEPT);
    let mut recording = Recording::new(header);
    let outcome = runner::run(&Job::new(&batches, args.patience), &mut recording, writer.as_mut());
    let score = Score::of(&recording.rows, on.machine());
    let score = report::validation::validation(&score, columns());
    let mut printed = score + &missing_text(&recording, &outcome);
    if let Some(note) = busy::note(recording.header.others_busy_cpus) {
        let _ = write!(printed, "\n{}\n", wrapped_lines(&note, columns()));
    }
    if let (Some(path), None) = (&args.out, &outcome.write_error) {
        let _ = writeln!(printed, "rows: {}", path.display());
    }
    print(&printed)?;
    conclude(&recording, &outcome, rows_unwritten(args.out.as_ref(), &outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Cli, clap::Error> {
        parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_negative_number_is_the_value_of_the_option_before_it() {
        let said = |line: &str| in_one_line(&parsed(line).expect_err("it is refused"));
        let error = said("fairlock study --seconds -1");
        assert!(error.contains("'--seconds <SECONDS>'") && error.contains("above 0"), "{error}");
        let error = said("fairlock run --warm-up -1 --compare glibc -- true");
        assert!(error.contains("--warm-up <N>") && error.contains("from 0 to"), "{error}");
        let error = said("fairlock study --out -1 --repetitions -2");
        assert!(error.contains("--repetitions") && error.contains("at least 1"), "{error}");
        let error = said("fairlock log tail -n -1 journal");
        assert!(error.contains("--lines <N>") && error.contains("not below 0"), "{error}");
        // Elsewhere it is an option that nobody knows.
        assert!(said("fairlock list -1").contains("unexpected argument '-1'"));
    }

    #[test]
    fn the_arguments_of_a_program_that_is_run_are_left_alone() {
        let cli = parsed("fairlock run head --lines -1").expect("a program and its arguments");
        assert!(matches!(cli.command, Command::Run(_)));
    }

    #[test]
    fn files_that_cannot_be_written_share_their_reason() {
        let (rows, page) = (Path::new("rows.jsonl"), Path::new("report.html"));
        let full = "no room".to_owned();
        let told = unwritten_text(&[(rows, full.clone()), (page, full)]);
        let expected = "cannot write rows.jsonl and report.html (no room); choose another place \
                        with --out";
        assert_eq!(told, [expected]);
        assert!(unwritten_text(&[]).is_empty());
    }
}
