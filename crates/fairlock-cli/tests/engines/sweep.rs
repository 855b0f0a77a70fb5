//! A sweep in a directory of its own, what is left there, and the processes of its jobs.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The command as Cargo has built it.
const FAIRLOCK: &str = env!("CARGO_BIN_EXE_fairlock");

/// How many tasks [`GRID`] has.
pub const TASKS: usize = 208;

/// Two hundred tasks of some milliseconds each.
pub const GRID: &str = r#"
title = "Small machines"
question = "Are the rows the same, whoever runs the tasks?"
method = "Short runs on two simulated machines."

[[run]]
title = "reads and writes"
workload = "mix"
machine = ["riscv-4", "x86-12"]
locks = ["rwlock", "rwsem"]
params = { section = "500ns", think = "200ns" }
points = [{ threads = [2, 4], read_percent = [50, 90] }]
seeds = 13
seconds = 0.002
"#;

/// One more task, which always fails. Its cell has no row, so the rows are those of the grid.
pub const BROKEN: &str = r#"
[[run]]
title = "no lock at all"
workload = "mix"
machine = "riscv-4"
locks = ["broken"]
params = { section = "500ns", think = "200ns" }
points = [{ threads = 4, read_percent = 50 }]
seeds = 1
seconds = 0.002
"#;

/// What fails in it.
pub const FAILURE: &str = "lock `broken` broke `mix`";

/// A sweep in a directory of its own. Its processes end with it.
pub struct Sweep {
    pub folder: PathBuf,
    _temporary: TempDir,
    variables: Vec<(String, String)>,
}

impl Sweep {
    /// One of this study, whose commands get these variables.
    pub fn new(study: &str, variables: &[(&str, &str)]) -> Sweep {
        let temporary = tempfile::tempdir().unwrap();
        // Every engine has its own quotes and placeholders.
        let folder = temporary.path().join("it's 50 %a {#} sweep");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("grid.toml"), study).unwrap();
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Sweep { folder, _temporary: temporary, variables: variables.iter().map(own).collect() }
    }

    /// The sweep's directory.
    pub fn dir(&self) -> PathBuf {
        self.folder.join("grid")
    }

    /// `fairlock sweep`, in the folder that has the directory.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(FAIRLOCK);
        command.arg("sweep").args(args).current_dir(&self.folder).stdin(Stdio::null());
        command.env("COLUMNS", "120").envs(self.variables.iter().cloned());
        command
    }

    /// Runs it to its end.
    pub fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("it starts")
    }

    /// Runs it to a good end; what it says.
    pub fn succeeds(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        said(&output)
    }

    /// Runs it to exit code 1; what it complains about.
    pub fn fails(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The names of the results that are there, whole or not.
    pub fn results(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.dir().join("results")).into_iter().flatten().flatten();
        let names = entries.map(|it| it.file_name().to_string_lossy().into_owned());
        names.filter(|it| it.ends_with(".json") && !it.starts_with('.')).collect()
    }

    /// Waits until there are some results, but not all.
    pub fn wait_for_some_results(&self) {
        wait_for("a tenth of the results", || (self.results().len() > TASKS / 10).then_some(()));
        assert!(self.results().len() < TASKS, "too fast to be killed");
    }

    /// Brings it to its end, and compares; what is said on the way.
    pub fn ends_as_one_run_does(&self) -> String {
        let said = self.succeeds(&["fetch", "grid", "--wait"]);
        self.has_the_rows_of_one_run();
        assert_eq!(self.results().len(), TASKS);
        said
    }

    /// Compares rows, but for the header, which has the time and the machine.
    pub fn has_the_rows_of_one_run(&self) {
        let rows = rows(&self.dir());
        assert!(rows == rows_of_one_run(), "other rows in {}", self.dir().display());
    }

    /// The processes of its jobs.
    fn workers(&self) -> Vec<Process> {
        let program = self.dir().join("fairlock").canonicalize().unwrap_or_default();
        let is_worker = |process: &Process| {
            let words = process.words();
            let exe = fs::read_link(format!("/proc/{}/exe", process.0)).ok();
            words.get(1..3).is_some_and(|it| it == ["sweep", "work"])
                && exe.as_ref() == Some(&program)
        };
        Process::all().filter(is_worker).collect()
    }

    /// A process of a job, stopped, with at least one task still to do.
    pub fn stopped_worker(&self) -> Process {
        wait_for("a process of a job in the middle of it", || {
            let mut workers = self.workers().into_iter();
            workers.find(|worker| {
                worker.signal("STOP");
                let is_in_the_middle = worker.is_stopped() && self.has_to_do(worker);
                if !is_in_the_middle {
                    worker.signal("CONT");
                }
                is_in_the_middle
            })
        })
    }

    /// Whether a job of which this is the process lacks a result.
    fn has_to_do(&self, worker: &Process) -> bool {
        let words = worker.words();
        let value = |name: &str| words.iter().skip_while(|it| *it != name).nth(1).cloned();
        let (Some(jobs), Some(job)) = (value("--jobs"), value("--job")) else { return false };
        // Some engines start jobs in the sweep's directory.
        let jobs = fs::read_to_string(self.dir().join(jobs)).unwrap();
        let tasks = jobs.lines().nth(job.parse::<usize>().unwrap() - 1).unwrap();
        let results = self.results();
        tasks.split(' ').any(|task| !results.contains(&format!("{task}.json")))
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        self.workers().iter().for_each(|it| it.signal("KILL"));
    }
}

/// A process of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Process(pub u32);

impl Process {
    /// All that there are.
    pub fn all() -> impl Iterator<Item = Process> {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|it| it.file_name().to_str()?.parse().ok()).map(Process)
    }

    /// The one whose number stands in this file.
    pub fn of_file(path: &Path) -> Option<Process> {
        fs::read_to_string(path).ok()?.trim().parse().ok().map(Process)
    }

    /// What it was started as; nothing if it has ended.
    pub fn words(self) -> Vec<String> {
        let text = fs::read(format!("/proc/{}/cmdline", self.0)).unwrap_or_default();
        let words = text.split(|it| *it == 0).map(|it| String::from_utf8_lossy(it).into_owned());
        words.collect()
    }

    /// Its state and its parent, as the kernel writes them.
    fn state_and_parent(self) -> Option<(String, u32)> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
    }

    /// Which process started it.
    pub fn parent(self) -> Process {
        Process(self.state_and_parent().expect("it is there").1)
    }

    /// Whether it has stopped; waits until it has that or has ended.
    fn is_stopped(self) -> bool {
        wait_for("a process that stops", || match self.state_and_parent() {
            Some((state, _)) if state == "T" => Some(true),
            Some((state, _)) if state != "Z" => None,
            _ => Some(false),
        })
    }

    /// Sends a signal; one that has ended gets none.
    pub fn signal(self, name: &str) {
        let mut kill = Command::new("kill");
        let status = kill.args([&format!("-{name}"), &self.0.to_string()]).stderr(Stdio::null());
        status.status().expect("kill starts");
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(self) {
        self.signal("KILL");
        wait_for("a killed process to end", || match self.state_and_parent() {
            Some((state, _)) => (state == "Z").then_some(()),
            None => Some(()),
        });
    }
}

/// Waits for what comes in a moment, and fails after a time that no moment has.
pub fn wait_for<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// All that a command has said.
pub fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it)).concat()
}

/// The rows of a directory, without the header and the notes of what is missing.
pub fn rows(dir: &Path) -> String {
    let text = fs::read_to_string(dir.join("rows.jsonl")).unwrap();
    let rows = text.lines().skip(1).filter(|line| !line.starts_with("{\"skipped\""));
    rows.flat_map(|row| [row, "\n"]).collect()
}

/// What `sweep run` makes of [`GRID`], also if it has the broken lock beside it.
pub fn rows_of_one_run() -> &'static str {
    static ROWS: OnceLock<String> = OnceLock::new();
    ROWS.get_or_init(|| {
        let sweep = Sweep::new(&format!("{GRID}{BROKEN}"), &[]);
        let complaint = sweep.fails(&["run", "grid.toml", "--out", "grid"]);
        assert!(complaint.contains(FAILURE), "{complaint}");
        let rows = rows(&sweep.dir());
        assert_eq!(rows.lines().count(), 16);
        rows
    })
}

/// Submits the grid with the broken lock, and expects the rows of the grid, and the broken lock's task by name.
pub fn an_engine_gives_the_rows_and_names_what_fails(engine: &[&str], variables: &[(&str, &str)]) {
    let sweep = Sweep::new(&format!("{GRID}{BROKEN}"), variables);
    let submit = [&["submit", "grid.toml", "--out", "grid", "--attempts", "2"], engine].concat();
    sweep.succeeds(&submit);
    let complaint = sweep.fails(&["fetch", "grid", "--wait"]);
    sweep.has_the_rows_of_one_run();
    let told = complaint.lines().find(|line| line.starts_with("error:")).expect("an error");
    for words in ["mix · broken", "2 attempts", FAILURE, "; log: "] {
        assert!(told.contains(words), "\"{words}\" is not in: {told}");
    }
    let log = told.rsplit_once("; log: ").expect("a log").1;
    let log = fs::read_to_string(sweep.folder.join(log)).unwrap();
    assert!(log.contains(FAILURE), "{log}");
    assert_eq!(complaint.matches("error:").count(), 1, "{complaint}");
    // Nothing is left to submit again.
    let complaint = sweep.fails(&["fetch", "grid"]);
    assert!(!complaint.contains("submitted again"), "{complaint}");
}

/// Whether these programs are here. If not, says what a test needs, and where to get it.
pub fn are_here(programs: &[&str], from: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    let missing =
        programs.iter().find(|it| !path.split(':').any(|dir| Path::new(dir).join(it).exists()));
    if let Some(missing) = missing {
        // Not with eprintln, which is kept back for tests that pass.
        let _ = writeln!(
            std::io::stderr(),
            "skipped {}: there is no {missing} here; install {from}",
            thread::current().name().unwrap_or("a test")
        );
    }
    missing.is_none()
}
