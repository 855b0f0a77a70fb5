//! The commands: what they take, what they print, how they fail.
//!
//! Exit codes: 0 done (whatever the verdicts), 1 a run or a file failed, 2 wrong usage, 130
//! stopped by Ctrl-C; `fairlock run` has those of its program.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use fairlock_lab::calibrate;
use fairlock_lab::dropin;
use fairlock_lab::former_names;
use fairlock_lab::locks::{self, Kind, ranges};
use fairlock_lab::machine::{self, Machine};
use fairlock_lab::plan::{Batch, Simulated};
use fairlock_lab::pollers;
use fairlock_lab::printable::printable;
use fairlock_lab::report::recording::{Header, Recording, Writer};
use fairlock_lab::report::{self, terminal, timeline_file};
use fairlock_lab::study::{self, Effort, Study};
use fairlock_lab::units::{self, at_least_one};
use fairlock_lab::validate::{self, Score};
use fairlock_lab::workload::Need;
use fairlock_lab::workloads::{self, forkstorm_kernel, log, readseek};
use fairlock_lab::world::probe_direct_io;
use fairlock_sim::profile::{self, HERE_FILE, Profile, Sheet};

use crate::bench::{Bench, DEFAULT_PATIENCE};
use crate::install::Install;
use crate::log_command::LogCommand;
use crate::run_command::{self, Run};
use crate::{progress, runner};

/// Where studies leave their report where nothing else is said.
const DEFAULT_OUT: &str = "fairlock-report";

/// Said of a report in which nothing but the header is.
const HEADER_ALONE: &str = "the file has only its header line: it may have been cut off";

/// What becomes of a run's results at Ctrl-C.
const FINISHED_ARE_KEPT: &str = "finished repetitions are kept";

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
        fairlock study                      those of published systems, under 10 minutes\n  \
        fairlock study --quick              the same in under a minute and a half\n  \
        fairlock study s0 --dir /mnt/nvme   one, its files on a drive of your choice\n  \
        fairlock study all                  every study")]
    Study(StudyArgs),
    /// Compare locks on one workload with parameters of your choice
    #[command(
        subcommand,
        after_help = "Example:\n  fairlock bench mix --lock rwsem,std --threads 2,8,32"
    )]
    Bench(Bench),
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
    #[command(
        after_help = "Example:\n  fairlock report fairlock-report/rows.jsonl --out page.html"
    )]
    Report(ReportArgs),
    /// Measure this machine and write its profile for the simulator, in about 10 seconds
    #[command(after_help = "Example:\n  \
        fairlock calibrate                  the machine `here`\n  \
        fairlock calibrate --out big.toml   a machine that you name by this path")]
    Calibrate(CalibrateArgs),
    /// Predict runs on this machine, make them, and say how far off the predictions are
    #[command(after_help = "Example:\n  \
        fairlock calibrate && fairlock validate   about 3 minutes; other programs closed\n  \
        fairlock validate --quick                 fewer points")]
    Validate(ValidateArgs),
    /// Run a program with its pthread_rwlocks replaced, and report who waited for whom
    #[command(after_help = run_command::AFTER_HELP)]
    Run(Run),
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
        fairlock install --prefix ~/.local                       from where it was built\n  \
        cargo run --release -- install --prefix /tmp/fairlock    from the sources\n\n\
        Puts the command in bin, the libraries with their files for pkg-config and CMake in lib, and \
        fairlock.h and fairlock.hpp in include. The directory may be moved afterwards.")]
    Install(Install),
    /// List the locks, workloads, studies and machines
    #[command(after_help = "Example:\n  \
        fairlock list\n  \
        fairlock list --machine ivybridge-ex-8s   every figure of a machine and its source")]
    List(ListArgs),
}

#[derive(Debug, Args)]
struct StudyArgs {
    /// Studies to run, or `all`; those of published systems if none is named (see `fairlock list`)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Fewer locks and points, shorter repetitions: for those of published systems under a minute
    /// and a half
    #[arg(long)]
    quick: bool,
    /// Directory for scratch files of direct I/O; the report's directory if not given
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Directory for the report and its rows
    #[arg(long, value_name = "DIR", default_value = DEFAULT_OUT)]
    out: PathBuf,
    /// Repetitions of every cell, instead of the study's
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    repetitions: Option<u32>,
    /// Seconds of every repetition, instead of the study's
    #[arg(long, value_name = "S", value_parser = units::parse_seconds)]
    seconds: Option<f64>,
    /// Seconds that a run may take too long before its lock counts as hung
    #[arg(long, value_name = "S", default_value = DEFAULT_PATIENCE, value_parser = units::parse_wait)]
    patience: Duration,
}

#[derive(Debug, Args)]
struct ReportArgs {
    /// Rows that `fairlock study` or `fairlock bench --out` wrote, or a report of `fairlock run`
    #[arg(value_name = "FILE.jsonl")]
    file: PathBuf,
    /// The page; beside the rows if not given
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CalibrateArgs {
    /// The profile; the machine `here` is this one in the current directory
    #[arg(long, value_name = "FILE.toml", default_value = HERE_FILE)]
    out: PathBuf,
    /// Rounds in which everything is measured; more on a machine that others use, too
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
    repetitions: u32,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Show the figures of a machine: a name, `here`, or the path of its file
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
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
    #[arg(long, value_name = "S", value_parser = units::parse_seconds)]
    seconds: Option<f64>,
    /// Seeds of every prediction
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    seeds: Option<u32>,
    /// Also write the rows to this file, for `fairlock report`
    #[arg(long, value_name = "FILE.jsonl")]
    out: Option<PathBuf>,
    /// Seconds that a run may take too long before its lock counts as hung
    #[arg(long, value_name = "S", default_value = DEFAULT_PATIENCE, value_parser = units::parse_wait)]
    patience: Duration,
}

/// Why a command ended without success; the message is one line.
pub enum Failure {
    /// The command line asks for what cannot be.
    Usage(String),
    /// Something went wrong on the way.
    Run(String),
    /// Ctrl-C.
    Cancelled,
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    if !matches!(&cli.command, Command::Run(run) if run.is_quiet()) {
        note_former_names();
    }
    let result = match cli.command {
        Command::Study(args) => run_studies(&args),
        Command::Bench(bench) => run_bench(&bench),
        Command::ReadseekWorker { job } => {
            readseek::work_in_process(&job).map_err(|error| Failure::Run(error.to_string()))
        }
        Command::ForkstormDaemon { job } => {
            forkstorm_kernel::work_as_daemon(&job).map_err(|error| Failure::Run(error.to_string()))
        }
        Command::Report(args) => write_report(&args),
        Command::Calibrate(args) => calibrate_here(&args),
        Command::Validate(args) => validate_here(&args),
        Command::Run(run) => match run.run() {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Log(command) => command.run(),
        Command::Install(install) => install.run(),
        Command::List(ListArgs { machine: None }) => {
            list();
            Ok(())
        }
        Command::List(ListArgs { machine: Some(name) }) => show_machine(&name),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprintln!("error: {}", printable(&message));
            ExitCode::from(2)
        }
        Err(Failure::Run(message)) => {
            eprintln!("error: {}", printable(&message));
            ExitCode::from(1)
        }
        Err(Failure::Cancelled) => ExitCode::from(130),
    }
}

/// Says which names that were read are called otherwise now.
fn note_former_names() {
    if let Some(note) = former_names::take_note() {
        eprintln!("{note}");
    }
}

/// Prints help as it is, and an error as one line with the valid choices.
fn refuse(error: &clap::Error) -> ExitCode {
    let is_text = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if is_text {
        // Nothing is left to do if the terminal is gone.
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
    }
    let text = error.to_string();
    let said = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let said = said.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    eprintln!("{}", said.collect::<Vec<_>>().join(" "));
    ExitCode::from(2)
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

fn run_studies(args: &StudyArgs) -> Result<(), Failure> {
    let names: Vec<&str> = args.names.iter().map(String::as_str).collect();
    let studies = study::choose(&names).map_err(|error| Failure::Usage(error.to_string()))?;
    let effort = Effort { quick: args.quick, repetitions: args.repetitions, seconds: args.seconds };
    let batches: Vec<Batch> = studies.iter().flat_map(|study| study.batches(effort)).collect();

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
    eprintln!(
        "{}: {cells} cells, about {}; scratch files in {}, results in {}",
        studies.iter().map(|study| study.name.as_str()).collect::<Vec<_>>().join(", "),
        units::format_minutes(estimate_s),
        dir.display(),
        args.out.display()
    );

    let header = Header::now(
        studies.iter().map(|study| study.name.clone()).collect(),
        args.quick,
        Machine::here(Some(dir)),
    );
    eprintln!("{}", terminal::machine(&header));
    let mut writer = Writer::create(&rows_path, &header).map_err(|error| {
        Failure::Usage(format!("cannot write {}: {error}", rows_path.display()))
    })?;
    progress::handle_interrupts(FINISHED_ARE_KEPT);
    let mut recording = Recording::new(header);
    let outcome = runner::run(
        &batches,
        dir,
        trouble.as_deref(),
        args.patience,
        &mut recording,
        Some(&mut writer),
    );

    print!("{}", terminal::tables(&recording.rows, false));
    print_studies(studies, &recording);
    print!("\n{}", terminal::missing(&recording));
    write_page(&page_path, &report::page(&recording))?;
    println!("page: {}\nrows: {}", page_path.display(), rows_path.display());
    conclude(&recording, &outcome.failures)
}

/// What each of the studies says, then all of them in one table.
fn print_studies(studies: Vec<Study>, recording: &Recording) {
    let judged = report::judge(studies, recording);
    for (study, verdicts) in &judged {
        print!("{}", terminal::study(study, verdicts, &recording.rows));
    }
    print!("{}", terminal::summary(&report::summary(&judged)));
}

fn run_bench(bench: &Bench) -> Result<(), Failure> {
    let common = &bench.common;
    let batches = bench.batches().map_err(Failure::Usage)?;
    runner::check(&batches).map_err(Failure::Usage)?;
    let uses_files = batches.iter().any(|batch| batch.needs(Need::Directory));
    if uses_files {
        check_writable("--dir", &common.dir)?;
        if let Some(trouble) = direct_io_trouble(&batches, &common.dir) {
            return Err(Failure::Usage(trouble));
        }
    }
    let header =
        Header::now(Vec::new(), false, Machine::here(uses_files.then_some(common.dir.as_path())));
    let mut writer = rows_writer(common.out.as_deref(), &header)?;
    let estimate_s: f64 = batches.iter().map(Batch::estimate_s).sum();
    eprintln!("{}\nabout {}", terminal::machine(&header), units::format_minutes(estimate_s));
    progress::handle_interrupts(FINISHED_ARE_KEPT);
    let mut recording = Recording::new(header);
    let outcome =
        runner::run(&batches, &common.dir, None, common.patience, &mut recording, writer.as_mut());
    print!("{}{}", terminal::tables(&recording.rows, true), terminal::missing(&recording));
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
        println!("timeline: {}, for https://ui.perfetto.dev or chrome://tracing", path.display());
    }
    if let Some(path) = &common.out {
        println!("rows: {0}; for a page: fairlock report {0}", path.display());
    }
    conclude(&recording, &outcome.failures)
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

fn conclude(recording: &Recording, failures: &[String]) -> Result<(), Failure> {
    if recording.cancelled {
        return Err(Failure::Cancelled);
    }
    match failures {
        [] => Ok(()),
        failures => Err(Failure::Run(failures.join("; "))),
    }
}

fn write_page(path: &Path, page: &str) -> Result<(), Failure> {
    std::fs::write(path, page).map_err(|error| {
        Failure::Run(format!(
            "cannot write {} ({error}); choose a writable place with --out",
            path.display()
        ))
    })
}

fn write_report(args: &ReportArgs) -> Result<(), Failure> {
    if let Some(out) = &args.out
        && let (Ok(file), Ok(out)) = (args.file.canonicalize(), out.canonicalize())
        && file == out
    {
        return Err(Failure::Usage(format!(
            "--out {} is the file that is read, which would be lost; choose another",
            out.display()
        )));
    }
    if let Some(report) = dropin::report::Report::read(&args.file).map_err(Failure::Run)? {
        note_former_names();
        return write_locks_report(args, &report);
    }
    let recording = Recording::read(&args.file).map_err(Failure::Run)?;
    note_former_names();
    let names = recording.header.studies.iter();
    let studies = names.map(|name| study::find(name)).collect::<Result<Vec<Study>, _>>();
    print_studies(studies.map_err(|error| Failure::Run(error.to_string()))?, &recording);
    let out = args.out.clone().unwrap_or_else(|| args.file.with_extension("html"));
    write_page(&out, &report::page(&recording))?;
    println!("\n{} rows, page: {}", recording.rows.len(), out.display());
    if recording.rows.is_empty() && recording.skipped.is_empty() && !recording.cancelled {
        println!("{HEADER_ALONE}");
    }
    Ok(())
}

/// A report on the locks of a program.
fn write_locks_report(args: &ReportArgs, report: &dropin::report::Report) -> Result<(), Failure> {
    /// What tables are made for everywhere here.
    const COLUMNS: usize = 120;
    let out = args.out.clone().unwrap_or_else(|| args.file.with_extension("html"));
    write_page(&out, &report.page())?;
    print!("{}", report.terminal(COLUMNS));
    println!("\npage: {}", out.display());
    if report.processes.is_empty() {
        println!("{HEADER_ALONE}");
    }
    Ok(())
}

fn calibrate_here(args: &CalibrateArgs) -> Result<(), Failure> {
    let dir = match args.out.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    check_writable("--out", dir)?;
    if cfg!(debug_assertions) {
        eprintln!("warning: a debug build; instructions look slower than they are");
    }
    progress::handle_interrupts("nothing is written");
    let mut parts = progress::Parts::new();
    let found = calibrate::calibrate(args.repetitions, &mut parts);
    parts.finish();
    let found = found.map_err(|error| Failure::Run(error.to_string()))?;
    let Some(found) = found else { return Err(Failure::Cancelled) };
    print!("{}", report::machines::calibration(&found));
    // Nobody should find out later that a profile cannot be read.
    found.sheet.profile().map_err(|error| Failure::Run(error.to_string()))?;
    std::fs::write(&args.out, found.sheet.write()).map_err(|error| {
        Failure::Usage(format!(
            "cannot write {} ({error}); choose a file in a writable directory with --out",
            args.out.display()
        ))
    })?;
    println!("profile: {}", args.out.display());
    Ok(())
}

fn validate_here(args: &ValidateArgs) -> Result<(), Failure> {
    let on = Simulated::find(&args.on, 1).map_err(Failure::Usage)?;
    if cfg!(debug_assertions) {
        eprintln!("warning: a debug build; instructions look slower than they are");
    }
    let effort = if args.quick { validate::Effort::QUICK } else { validate::Effort::FULL };
    let effort = validate::Effort {
        repetitions: args.repetitions.unwrap_or(effort.repetitions),
        seconds: args.seconds.unwrap_or(effort.seconds),
        seeds: args.seeds.unwrap_or(effort.seeds),
        ..effort
    };
    let batches = validate::batches(effort, &on);
    let header = Header::now(Vec::new(), args.quick, Machine::here(None));
    let mut writer = rows_writer(args.out.as_deref(), &header)?;
    let estimate_s: f64 = batches.iter().map(Batch::estimate_s).sum();
    eprintln!("{}\nabout {}", terminal::machine(&header), units::format_minutes(estimate_s));
    progress::handle_interrupts(FINISHED_ARE_KEPT);
    let mut recording = Recording::new(header);
    let nowhere = Path::new(".");
    let outcome =
        runner::run(&batches, nowhere, None, args.patience, &mut recording, writer.as_mut());
    let score = Score::of(&recording.rows, on.machine());
    print!("{}{}", report::validation::validation(&score), terminal::missing(&recording));
    if let Some(path) = &args.out {
        println!("rows: {}", path.display());
    }
    conclude(&recording, &outcome.failures)
}

fn show_machine(name: &str) -> Result<(), Failure> {
    let sheet = Sheet::find(name).map_err(|error| Failure::Usage(error.to_string()))?;
    print!("{}", report::machines::figures(&sheet));
    Ok(())
}

fn list_studies() {
    let found = |name| study::find(name).map_err(|error| println!("\n{error}")).ok();
    let studies: Vec<Study> = study::names().into_iter().filter_map(found).collect();
    let print = |is_listed: fn(&Study) -> bool| {
        for study in studies.iter().filter(|study| is_listed(study)) {
            println!("  {:<20} {}", study.name, study.title);
        }
    };
    println!("\nStudies of published systems (`fairlock study` runs them)");
    print(|study| study.summary.is_some());
    println!("\nStudies by name alone (`fairlock study all` runs them, too)");
    print(|study| study.summary.is_none());
}

fn list() {
    let print = |kinds: &[Kind]| {
        for lock in locks::registry().iter().filter(|lock| kinds.contains(&lock.kind)) {
            println!("  {:<20} {:>5} B  {}", lock.name, lock.bytes, lock.about);
        }
    };
    println!("Locks, and their bytes beside the data");
    print(&[Kind::Ours, Kind::Peer]);
    let record = size_of::<fairlock::slots::Record<fairlock::platform::Os>>();
    println!(
        "  rwlock takes {record} B more for each thread that reads, however many locks there are."
    );
    println!("\nReference locks (to measure against; by name, not in `all`)");
    print(&[Kind::Reference]);
    println!("\nRange locks (for readseek)");
    for lock in ranges::registry() {
        println!("  {:<20} {:>5} B  {}", lock.name, lock.bytes, lock.about);
    }
    println!("\nLocks that processes share (for readseek-processes)");
    for (name, about) in readseek::PROCESS_LOCKS {
        println!("  {name:<20} {:>7}  {about}", "");
    }
    println!("\nLocks for unmodified programs (`fairlock run --lock`)");
    for (name, about) in dropin::LOCKS {
        println!("  {name:<20} {:>7}  {about}", "");
    }
    println!("\nLogs (for log)");
    for log in log::registry() {
        println!("  {:<20} {:>7}  {}", log.name, "", log.about);
    }
    println!("\nPollers (for stress-epoll, epoll-wait and inversion-list)");
    for poller in pollers::registry().iter().filter(|poller| poller.kind != Kind::Broken) {
        println!("  {:<24} {}", poller.name, poller.about);
    }
    println!("\nWorkloads");
    for entry in workloads::REGISTRY {
        println!("  {:<22} {}", entry.name, entry.about);
    }
    list_studies();
    println!("\nSimulated machines (--on)");
    for name in profile::names() {
        match Profile::find(name) {
            Ok(machine) => {
                println!("  {name:<20} {:>4} CPUs  {}", machine.topology.cpus(), machine.title);
            }
            Err(error) => println!("  {name:<20} {error}"),
        }
    }
    println!("  {:<20} this one, after `fairlock calibrate`", profile::HERE);
}
