//! `fairlock run`: a program under Fairlock's locks.
//!
//! | | |
//! |---|---|
//! | `once.rs` | one run, to its end and as its end |
//! | `recorder.rs` | what its threads did with its locks, to a file |
//! | `several.rs` | many runs under several locks, compared |
//! | `present.rs` | what was counted, to the terminal and to files |
//!
//! All that is said goes to the standard error: the standard output is the program's.

mod once;
mod present;
mod recorder;
mod several;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use fairlock_report::recording;
use fairlock_report::screen::say;
use fairlock_report::units;
use fairlock_report::units::at_least_one;
use fairlock_trace::comparison::{ENOUGH_RUNS, Variant};
use fairlock_trace::library;
use fairlock_trace::process::Running;
use fairlock_trace::signals::{self, Signals};
use fairlock_trace::target::Target;

use crate::failure::Failure;

/// What the help says below the options.
pub const AFTER_HELP: &str = "Examples:\n  \
    fairlock run -- python3 server.py\n  \
    fairlock run --lock glibc -- ./program      counts, and changes nothing\n  \
    fairlock run --report locks.html -- ./program\n  \
    fairlock run --json locks.jsonl -- ./program   for jq and other programs\n  \
    fairlock run --compare glibc,rwsem,rwlock -- make check   which is faster\n  \
    fairlock run --lock glibc --record server.toml -- ./server   for fairlock replay\n\n\
    The program keeps its input, output, terminal, exit code and signals; fairlock's exit code is \
    the program's, and 2 if nothing was started. All that fairlock says goes to the standard \
    error. Signals sent to fairlock are passed on, except SIGUSR2, which makes a report of what \
    was counted so far (`kill -USR2`). Programs that the program starts are under the same \
    lock, and counted, too.\n\n\
    --compare runs the program again and again, each time with the same file as input or with \
    none, and shows the output of the first run. Names are those of --lock; runs under them are \
    not counted, unless +counts follows the name. The name none means without the library. \
    Warm-up rounds are counted, for a report on a run that does not end (Ctrl-C, --timeout). At \
    the end the program runs once more under each of these locks, counted, for waits, bypass and \
    rates of readers and writers. The rest of the report is about one of these runs: the one under \
    --lock if given, else under glibc if that is compared, else under the first.";

/// Runs a program with its pthread_rwlocks replaced.
#[derive(Debug, Args)]
pub struct Run {
    // Its help names all of `fairlock_trace::LOCKS`.
    #[arg(long, value_name = "NAME", value_parser = fairlock_trace::check, help = locks_help())]
    lock: Option<String>,
    /// Also write the report to this file: a page if it ends in .html, else JSON Lines
    #[arg(long, value_name = "FILE")]
    report: Vec<PathBuf>,
    /// Also write the report as JSON Lines to this file, whatever its name: the standard output is the program's
    #[arg(long, value_name = "FILE", value_parser = json_file)]
    json: Vec<PathBuf>,
    /// Also record what each thread does with its locks, in this TOML file, for `fairlock replay`
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    record: Option<PathBuf>,
    /// Also report every SECONDS while it runs
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_wait, conflicts_with = "compare")]
    every: Option<Duration>,
    /// Compare whole runs under several locks, interleaved
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    compare: Vec<Variant>,
    /// Runs under each of them; fewer than 6 give no intervals and show no difference
    #[arg(long, value_name = "N", default_value_t = ENOUGH_RUNS as u32, value_parser = at_least_one, requires = "compare")]
    runs: u32,
    /// Rounds before them that do not count
    #[arg(long, value_name = "N", default_value_t = 1, requires = "compare")]
    warm_up: u32,
    /// Before the first run, wait up to SECONDS until other programs leave the CPUs alone
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_wait, requires = "compare")]
    wait: Option<Duration>,
    /// End a run that takes longer than SECONDS with SIGTERM, and with SIGKILL 5 s later if it is
    /// still running; the report says what its locks did until then
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_wait)]
    timeout: Option<Duration>,
    /// Print nothing on the standard error unless something is wrong
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

/// Where lines of JSON go. Refuses what means the standard output elsewhere.
fn json_file(name: &str) -> Result<PathBuf, String> {
    match name {
        "-" => Err("the standard output is the program's; give a file, or a descriptor that the shell opens: \
                    --json /dev/fd/3 3>report.jsonl"
            .to_owned()),
        name => Ok(PathBuf::from(name)),
    }
}

/// What `--lock` is for, with every lock that there is.
fn locks_help() -> String {
    let names = fairlock_trace::LOCKS.map(|(name, _)| match name {
        fairlock_trace::DEFAULT_LOCK => format!("{name} (if not given)"),
        fairlock_trace::GLIBC => format!("{name} (which only counts)"),
        _ => name.to_owned(),
    });
    let [others @ .., last] = &names;
    format!("What its pthread_rwlocks become: {} or {last}", others.join(", "))
}

/// How long a run may take.
struct Limit {
    /// When something is to be done about it.
    next: Option<Instant>,
    was_asked_to_end: bool,
}

impl Limit {
    /// To end by itself after SIGTERM.
    const GRACE: Duration = Duration::from_secs(5);

    fn is_over(&self) -> bool {
        self.next.is_some_and(|next| next <= Instant::now())
    }

    /// Ends the program, the second time without asking.
    fn end(&mut self, running: &Running) {
        running.send(if self.was_asked_to_end { libc::SIGKILL } else { libc::SIGTERM });
        self.next = (!self.was_asked_to_end).then(|| Instant::now() + Limit::GRACE);
        self.was_asked_to_end = true;
    }
}

/// How the command ends.
enum End {
    Code(u8),
    Signal(i32),
}

impl Run {
    /// Whether nothing is to be said unless something is wrong.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Does it. Ends as the program did.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        self.check_compared()?;
        let files = [
            ("--report", &self.report[..]),
            ("--json", &self.json),
            ("--record", self.record.as_slice()),
        ];
        for (option, paths) in files {
            for path in paths {
                recording::probe_file(path).map_err(|error| {
                    let path = path.display();
                    Failure::Usage(format!(
                        "cannot write {path} ({error}); choose a file in a writable directory with {option}"
                    ))
                })?;
            }
        }
        let target = Target::examine(&self.command[0])
            .map_err(|refusal| Failure::Usage(refusal.to_string()))?;
        let library = library::find().map_err(Failure::Usage)?;
        let signals = Signals::take()
            .map_err(|error| Failure::Run(format!("cannot take signals over: {error}")))?;
        let end = match self.compare.is_empty() {
            true => self.once(&target, &library, &signals)?,
            false => self.several(&target, &library, &signals)?,
        };
        match end {
            End::Code(code) => Ok(ExitCode::from(code)),
            // Everything this command leaves behind is gone by now.
            End::Signal(signal) => signals::die_by(signal),
        }
    }

    fn check_compared(&self) -> Result<(), Failure> {
        let mut names: Vec<String> = self.compare.iter().map(Variant::to_string).collect();
        names.sort();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(Failure::Usage(format!("--compare names {} twice: once is enough", pair[0])))
            }
            None => Ok(()),
        }
    }

    /// For a run that begins now.
    fn limit(&self) -> Limit {
        let next = self.timeout.map(|time| Instant::now() + time);
        Limit { next, was_asked_to_end: false }
    }

    /// Says that a run took too long.
    fn say_timed_out(&self, under: &str) {
        let seconds = self.timeout.unwrap_or_default().as_secs_f64();
        warn(&format!("fairlock: the run under {under} took longer than {seconds} s (--timeout)"));
    }

    /// Says something, unless nobody wants to hear it. Nobody may be there to.
    fn say(&self, text: &str) {
        if !self.quiet {
            warn(text);
        }
    }
}

/// Says something whether somebody wants to hear it or not.
fn warn(text: &str) {
    say(text.trim_end());
}

fn cannot_start(error: &io::Error, target: &Target) -> Failure {
    Failure::Usage(format!("cannot start {}: {error}", target.path.display()))
}

fn cannot_watch(error: &io::Error) -> Failure {
    Failure::Run(format!("lost sight of the program: {error}; it may still run"))
}
