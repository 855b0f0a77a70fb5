//! `fairlock doctor`: what a running system waits for, and which disease that is.
//!
//! The report goes to the standard output; what is said while recording goes to the standard error. The exit code is
//! that of a command that did its work, whatever was found.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use fairlock_report::machine;
use fairlock_report::recording as files;
use fairlock_report::screen::{self, complain, say};
use fairlock_report::units::{self, at_least_one, counted, trimmed};
use fairlock_study::harness::interrupts;
use fairlock_trace::doctor::capture::{Capture, Options};
use fairlock_trace::doctor::found::Found;
use fairlock_trace::doctor::recorded::Recording;
use fairlock_trace::doctor::report::{format_seconds, timeline};
use fairlock_trace::doctor::{examine, file, reading};

use crate::failure::Failure;
use crate::showing::columns;

/// What the help says below the options.
pub const AFTER_HELP: &str = "Examples:\n  \
    fairlock doctor                         all processes, for 10 s\n  \
    fairlock doctor --pid \"$(pidof server)\" --seconds 30\n  \
    fairlock doctor --report locks.html --timeline worst.json\n  \
    fairlock doctor --record today.doctor   on a production machine\n  \
    fairlock doctor --read today.doctor     anywhere else\n  \
    perf record -e lock:contention_begin -e lock:contention_end -a -g -- sleep 10\n  \
    perf script --ns \\\n    \
    -F comm,pid,tid,cpu,time,event,ip,sym,symoff,dso,trace > perf.txt\n  \
    fairlock doctor --read perf.txt         where only perf can record\n\n\
    No program is restarted or changed. The report begins with the diagnosis: which of the five diseases the \
    system has, what was seen, and what to do. Recording needs root, or CAP_PERFMON and a readable tracefs; reading \
    needs neither. How closely it looks is limited so that recording costs little, and the report says \
    what it did cost.";

/// Recorded if nothing else is said.
const USUAL_LENGTH: Duration = Duration::from_secs(10);

/// Shorter periods have too little in them: some waits are recorded for a part of the time only.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);

/// Where to open a timeline.
const VIEWERS: &str = "https://ui.perfetto.dev or chrome://tracing";

/// Diagnoses a running system.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Report about this process and all its threads; may be given several times. Other processes that held its locks are
    /// shown, too
    #[arg(long, value_name = "N", value_parser = parse_pids)]
    pid: Vec<Pids>,
    /// Report about all processes, as without --pid
    #[arg(long, conflicts_with = "pid")]
    all: bool,
    /// Record for SECONDS [default: 10; with --every until Ctrl-C]
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_wait)]
    seconds: Option<Duration>,
    /// Report every SECONDS on what was recorded since the last report; files are rewritten each time
    #[arg(long, value_name = "SECONDS", value_parser = units::parse_wait)]
    every: Option<Duration>,
    /// Also write the report to this file: a page if it ends in .html, JSON Lines if in .jsonl or .json; may be given
    /// several times
    #[arg(long, value_name = "FILE")]
    report: Vec<PathBuf>,
    /// Also write the second with the most waiting to this .json file, thread by thread, for Perfetto
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Only record, into this file, for --read
    #[arg(long, value_name = "FILE", conflicts_with_all = ["report", "timeline", "every", "read"])]
    record: Option<PathBuf>,
    /// Record nothing; report on this file of --record, or on what `perf script` printed
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["seconds", "every", "trace_calls", "everything"]
    )]
    read: Option<PathBuf>,
    /// Also trace the calls of the C library's lock functions, to learn how long locks are held and how often they are
    /// free; a traced call takes microseconds instead of nanoseconds, so not for production
    #[arg(long)]
    trace_calls: bool,
    /// Record every wait, whatever it costs
    #[arg(long)]
    everything: bool,
    /// Show N locks on the terminal
    #[arg(long, value_name = "N", default_value_t = fairlock_trace::report::SHOWN_LOCKS)]
    locks: usize,
}

/// Numbers of processes: several as `pidof` prints them, or with commas between.
#[derive(Debug, Clone)]
struct Pids(Vec<u32>);

fn parse_pids(text: &str) -> Result<Pids, String> {
    let numbers = text.split(|it: char| it == ',' || it.is_whitespace());
    let pids: Vec<u32> =
        numbers.filter(|it| !it.is_empty()).map(at_least_one).collect::<Result<_, _>>()?;
    if pids.is_empty() {
        return Err("there is no number: is the program running?".to_owned());
    }
    Ok(Pids(pids))
}

impl Doctor {
    /// Each number once.
    fn pids(&self) -> Vec<u32> {
        let pids: BTreeSet<u32> = self.pid.iter().flat_map(|it| &it.0).copied().collect();
        pids.into_iter().collect()
    }

    /// Does it.
    pub fn run(&self) -> Result<(), Failure> {
        if let Some(every) = self.every.filter(|every| *every < SHORTEST_PERIOD) {
            return Err(Failure::Usage(format!(
                "--every {}: within that time hardly any wait would be seen from its beginning to its end; give 1 or more seconds",
                trimmed(every.as_secs_f64())
            )));
        }
        self.check_files()?;
        match &self.read {
            Some(path) => self.read(path),
            None => self.record(),
        }
    }

    /// Whether all files can be written, and none in the place of another one.
    fn check_files(&self) -> Result<(), Failure> {
        let reports = self.report.iter().map(|path| ("--report", path));
        let others = [("--timeline", &self.timeline), ("--record", &self.record)];
        let others = others.into_iter().filter_map(|(option, path)| Some((option, path.as_ref()?)));
        let mut taken: Vec<(&str, &PathBuf)> =
            self.read.iter().map(|path| ("--read", path)).collect();
        for (option, path) in reports.chain(others) {
            let same = taken.iter().find(|(_, other)| files::is_one_file(other, path));
            if let Some((other, _)) = same {
                let both = match *other == option {
                    true => format!("{option} names {} twice", path.display()),
                    false => format!("{other} and {option} both name {}", path.display()),
                };
                return Err(Failure::Usage(format!(
                    "{both}, and one would be lost; give two files"
                )));
            }
            check_ending(option, path).map_err(Failure::Usage)?;
            files::probe_file(path)
                .map_err(|error| Failure::Usage(unwritable(path, option, &error)))?;
            taken.push((option, path));
        }
        Ok(())
    }

    fn read(&self, path: &Path) -> Result<(), Failure> {
        let mut recording = reading::open(path).map_err(Failure::Run)?;
        let pids = self.pids();
        for pid in &pids {
            if !recording.threads.values().any(|thread| thread.pid == *pid) {
                let path = path.display();
                return Err(Failure::Usage(format!("--pid {pid}: {path} has no such process")));
            }
        }
        if self.all || !pids.is_empty() {
            recording.system.pids = pids;
        }
        self.conclude(&recording, 1)
    }

    fn record(&self) -> Result<(), Failure> {
        let pids = self.pids();
        pids.iter().try_for_each(|pid| check_process(*pid)).map_err(Failure::Usage)?;
        let stopping = stop_at_interrupts();
        let is_stopped = || stopping.load(Ordering::Relaxed);
        let options =
            Options { pids, traces_calls: self.trace_calls, records_everything: self.everything };
        let mut capture =
            Capture::start(&options).map_err(|refusal| Failure::Run(refusal.to_string()))?;
        say(&self.announcement());
        let begun = Instant::now();
        let end = self.length().map(|length| begun + length);
        let mut number = 1;
        loop {
            let report = self.every.map(|every| Instant::now() + every);
            let until = report.into_iter().chain(end).min().expect("either ends it");
            capture.run_until(until, &is_stopped);
            let recording = capture.recording();
            if is_stopped() || end.is_some_and(|end| end <= until) {
                return match &self.record {
                    Some(path) => save(&recording, path),
                    None => self.conclude(&recording, number),
                };
            }
            let failures = self.present(&recording, number)?;
            failures.iter().for_each(|failure| complain(&format!("warning: {failure}")));
            number += 1;
        }
    }

    /// How long is recorded; none: until Ctrl-C.
    fn length(&self) -> Option<Duration> {
        match self.every {
            Some(_) => self.seconds,
            None => Some(self.seconds.unwrap_or(USUAL_LENGTH)),
        }
    }

    fn announcement(&self) -> String {
        let seconds = |length: Duration| format!("{} s", trimmed(length.as_secs_f64()));
        let every = self.every.map(|every| format!(", with a report every {}", seconds(every)));
        let every = every.unwrap_or_default();
        match self.length() {
            Some(length) => {
                format!("recording for {}{every} (Ctrl-C ends early) …", seconds(length))
            }
            None => format!("recording until Ctrl-C{every} …"),
        }
    }

    /// The last report, which is the first one without `--every`.
    fn conclude(&self, recording: &Recording, number: u32) -> Result<(), Failure> {
        match self.present(recording, number)? {
            failures if failures.is_empty() => Ok(()),
            failures => Err(Failure::Several(failures)),
        }
    }

    /// Prints what a recording says, and writes it to files. Those that could not be written come back, with reasons.
    fn present(&self, recording: &Recording, number: u32) -> Result<Vec<String>, Failure> {
        let found = examine(recording);
        let mut printed = String::new();
        if self.every.is_some() {
            printed += &heading(recording, number);
        }
        printed += &found.terminal(columns(), self.locks);
        let mut failures = Vec::new();
        for path in &self.report {
            match write(path, |file| write_report(&found, path, file)) {
                Ok(()) if is_page(path) => printed += &format!("\npage: {}\n", path.display()),
                Ok(()) => {
                    let path = path.display();
                    printed += &format!("\nlines: {path}\nfor a page: fairlock report {path}\n");
                }
                Err(error) => failures.push(unwritable(path, "--report", &error)),
            }
        }
        if let Some(path) = &self.timeline {
            match write(path, |file| timeline::write(recording, &found, file)) {
                Ok(()) => printed += &timeline_text(path, recording),
                Err(error) => failures.push(unwritable(path, "--timeline", &error)),
            }
        }
        screen::print(&printed)?;
        Ok(failures)
    }
}

/// Between the reports of `--every`: `── 23:01:15 UTC, report 3, the last 60 s`.
fn heading(recording: &Recording, number: u32) -> String {
    let date = machine::date();
    let time = date.split_once(' ').map_or(date.as_str(), |(_, time)| time);
    let system = &recording.system;
    let length = format_seconds(system.to_ns.saturating_sub(system.from_ns));
    let apart = if number > 1 { "\n" } else { "" };
    format!("{apart}── {time}, report {number}, the last {length}\n\n")
}

/// At Ctrl-C recording ends, and the report is made; at the next one nothing more is done.
fn stop_at_interrupts() -> Arc<AtomicBool> {
    let stopping = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stopping);
    let installed = interrupts::handle(move || {
        // Relaxed: nothing else is published with the flag.
        if told.swap(true, Ordering::Relaxed) {
            process::exit(130);
        }
    });
    if let Err(error) = installed {
        complain(&format!("warning: Ctrl-C will end the program without a report: {error}"));
    }
    stopping
}

/// Refuses the number of what is no process, and of a thread, of which there is no report.
fn check_process(pid: u32) -> Result<(), String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .map_err(|_| format!("--pid {pid}: there is no such process"))?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")).map(str::trim);
    match process {
        Some(process) if process != pid.to_string() => Err(format!(
            "--pid {pid} is a thread of process {process}; give the process, with --pid {process}"
        )),
        _ => Ok(()),
    }
}

/// Writes a recording to its file, and says how to read it.
fn save(recording: &Recording, path: &Path) -> Result<(), Failure> {
    file::save(recording, path).map_err(Failure::Run)?;
    let system = &recording.system;
    let length = format_seconds(system.to_ns.saturating_sub(system.from_ns));
    let events = counted(recording.events.len() as u64, "event");
    let path = path.display();
    screen::print(&format!(
        "recorded {length}, {events}: {path}; for the report: fairlock doctor --read {path}\n"
    ))?;
    Ok(())
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"))
}

fn write(
    path: &Path,
    contents: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    contents(&mut file)?;
    file.flush()
}

/// Refuses a file whose name ends like that of a format which the option does not write. Pipes and devices may have any
/// name.
fn check_ending(option: &str, path: &Path) -> Result<(), String> {
    let (endings, advice): (&[&str], &str) = match option {
        "--report" => (
            &["html", "jsonl", "json"],
            "give a file that ends in .html for a page, or in .jsonl or .json for JSON Lines",
        ),
        "--timeline" => (&["json"], "give a file that ends in .json, for Perfetto"),
        _ => return Ok(()),
    };
    let is_known = path
        .extension()
        .is_some_and(|it| endings.iter().any(|ending| it.eq_ignore_ascii_case(ending)));
    let is_other = path.metadata().is_ok_and(|it| !it.is_file() && !it.is_dir());
    match is_known || is_other {
        true => Ok(()),
        false => Err(format!("{option} {}: {advice}", path.display())),
    }
}

/// A page if the name says so, else lines.
fn write_report(found: &Found, path: &Path, file: &mut impl Write) -> io::Result<()> {
    match is_page(path) {
        true => file.write_all(found.page().as_bytes()),
        false => found.write_lines(file),
    }
}

fn timeline_text(path: &Path, recording: &Recording) -> String {
    let path = path.display();
    match timeline::worst_second(recording) {
        None => format!("\ntimeline: {path} has no event, since nobody was seen to wait\n"),
        Some((from_ns, _)) => {
            let after = from_ns.saturating_sub(recording.system.from_ns) / 1_000_000_000;
            format!("\ntimeline: {path}, the second that began after {after} s,\n  for {VIEWERS}\n")
        }
    }
}

fn unwritable(path: &Path, option: &str, error: &io::Error) -> String {
    let path = path.display();
    format!("cannot write {path} ({error}); choose a file in a writable directory with {option}")
}
