//! `fairlock replay`: how far a recorded program scales, and under which lock.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fairlock_lab::machine;
use fairlock_report::recording::{Header, Recording, Writer};
use fairlock_report::screen::{self, say};
use fairlock_report::units::{self, at_least_one, parse_seconds, parse_wait};
use fairlock_study::harness::bench::DEFAULT_PATIENCE;
use fairlock_study::harness::progress;
use fairlock_study::harness::quiet::Quiet;
use fairlock_study::harness::replaying::Replaying;
use fairlock_study::harness::runner::{self, Job};
use fairlock_study::plan::{Batch, Simulated};
use fairlock_study::report::{self, replays, terminal};

use crate::failure::Failure;
use crate::showing::{FINISHED_ARE_KEPT, columns, conclude, missing_text, write_page};

/// What `--help` says at its end.
pub const AFTER_HELP: &str = "Examples:\n  \
    fairlock run --record server.toml -- ./server                   record a program\n  \
    fairlock replay server.toml                                     on real threads here: does the replay match the recording?\n  \
    fairlock replay server.toml --on graviton3,ivybridge-ex-8s      on machines that you do not have\n  \
    fairlock replay server.toml --on graviton3 --threads 8,64 --lock glibc,rwlock\n\n\
    The file says which threads there are more of in a larger program, and which locks they share; look at it and correct \
    anything that does not match your program. `--on here` is this machine, simulated, once `fairlock calibrate` has measured it.";

/// What to replay.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A file of `fairlock run --record`, or `example`
    #[arg(value_name = "FILE")]
    file: String,
    /// Simulated machines: names (see `fairlock list`) or files; real threads of this machine if not given
    #[arg(long, value_name = "MACHINE", value_delimiter = ',')]
    on: Vec<String>,
    /// Threads of the kinds that scale; the others are added on top [default: as many as were recorded; with --on 1,
    /// 2, 4, ... up to all CPUs]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = at_least_one)]
    threads: Vec<u32>,
    /// The locks to compare: those of `fairlock list`, or glibc
    #[arg(long, value_name = "LOCK", value_delimiter = ',', default_value = "glibc,rwsem,rwlock")]
    lock: Vec<String>,
    /// Seconds of each repetition [default: as long as the recording, within 1 to 60; with --on, enough for 300 000
    /// acquisitions, within 0.01 to 1]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Option<f64>,
    /// Repetitions, or seeds of a simulated machine, each from another moment of the recording
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = at_least_one)]
    repetitions: u32,
    /// Directory for the page and its rows
    #[arg(long, value_name = "DIR", default_value = "fairlock-replay")]
    out: PathBuf,
    /// Give a run SECONDS more than it should take before its lock counts as hung
    #[arg(long, value_name = "SECONDS", default_value = DEFAULT_PATIENCE, value_parser = parse_wait)]
    patience: Duration,
    #[command(flatten)]
    quiet: Quiet,
}

impl ReplayArgs {
    /// Does it.
    pub fn run(&self) -> Result<(), Failure> {
        let mut machines: Vec<Simulated> = Vec::new();
        for name in &self.on {
            let machine = Simulated::find(name, 1).map_err(Failure::Usage)?;
            if machines.iter().any(|known| known.machine() == machine.machine()) {
                let name = machine.machine();
                return Err(Failure::Usage(format!("--on names the machine \"{name}\" twice")));
            }
            machines.push(machine);
        }
        let replaying = Replaying {
            file: self.file.clone(),
            locks: self.lock.clone(),
            machines,
            threads: self.threads.clone(),
            seconds: self.seconds,
            repetitions: self.repetitions,
        };
        let batches = replaying.batches().map_err(Failure::Usage)?;
        runner::check(&batches).map_err(Failure::Usage)?;
        let cannot_write = |error: std::io::Error| {
            let out = self.out.display();
            Failure::Usage(format!(
                "cannot write in {out} ({error}); choose a directory with --out"
            ))
        };
        std::fs::create_dir_all(&self.out).map_err(cannot_write)?;
        let mut header = Header::now(Vec::new(), false, machine::here(None));
        // What a simulated machine does, others do not change.
        if self.on.is_empty() {
            header.others_busy_cpus = self.quiet.look();
        }
        let rows_path = self.out.join("rows.jsonl");
        let mut writer = Writer::create(&rows_path, &header).map_err(cannot_write)?;
        let estimate_s: f64 = batches.iter().map(Batch::estimate_s).sum();
        let about = units::format_minutes(estimate_s);
        say(&format!("{}\nabout {about}", terminal::machine(&header)));
        progress::handle_interrupts(FINISHED_ARE_KEPT);
        let mut recording = Recording::new(header.clone());
        let job = Job::new(&batches, self.patience);
        let outcome = runner::run(&job, &mut recording, Some(&mut writer));
        if !recording.cancelled {
            let looks = replaying.closer_looks(&recording.rows).map_err(Failure::Run)?;
            let mut begun = Recording::new(header);
            runner::run(&Job::new(&looks, self.patience), &mut begun, None);
            for timeline in begun.timelines {
                writer.timeline(&timeline).map_err(cannot_write)?;
                recording.timelines.push(timeline);
            }
        }
        let mut printed = replays::text(&recording, columns());
        printed += &missing_text(&recording, &outcome);
        let page = self.out.join("report.html");
        if !recording.rows.is_empty() {
            write_page(&page, &report::page(&replays::as_shown(&recording)), &[])?;
            printed += &format!("rows: {}\npage: {}\n", rows_path.display(), page.display());
        }
        screen::print(&printed)?;
        conclude(&recording, &outcome, Vec::new())
    }
}
