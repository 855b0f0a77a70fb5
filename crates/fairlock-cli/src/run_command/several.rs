//! Many runs under several locks, compared.

use std::path::Path;

use fairlock_counts::snapshot::Snapshot;

use super::once::new_counts;
use super::present::{Moment, command, present_compared, read};
use super::{End, Run, cannot_start, cannot_watch, warn};
use crate::failure::Failure;
use fairlock_report::printable::printable_lines;
use fairlock_report::screen::complain;
use fairlock_study::harness::quiet;
use fairlock_trace::GLIBC;
use fairlock_trace::comparison::{Comparison, Exit, Run as Finished, Variant, order};
use fairlock_trace::counts::Counts;
use fairlock_trace::process::{self, DropIn, Ended, Event, Output, Running, Start};
use fairlock_trace::signals::Signals;
use fairlock_trace::target::Target;

/// What all runs of a comparison share.
struct Runs<'a> {
    run: &'a Run,
    target: &'a Target,
    library: &'a Path,
    signals: &'a Signals,
    /// How the first one ended, once it has.
    usual: Option<Exit>,
    /// What the run that was stopped had counted, and under which lock.
    unfinished: Option<(String, Vec<Snapshot>)>,
}

/// The whole comparison ends before its time.
#[derive(Clone, Copy)]
enum Stopped {
    /// Somebody wants that, by this signal.
    By(i32),
    /// A run took too long: so may all that follow.
    TimedOut,
}

impl Run {
    /// Runs the program under each lock in turn, then once more counted, and compares.
    pub(super) fn several(
        &self,
        target: &Target,
        library: &Path,
        signals: &Signals,
    ) -> Result<End, Failure> {
        if process::withholds_input() {
            complain(
                "warning: the standard input is a pipe, which only one run could read: all get an \
                 empty one; give a file (< FILE)",
            );
        }
        let others_busy_cpus = quiet::look(self.wait);
        let mut comparison = Comparison::new(command(self), self.compare.clone());
        let mut runs = Runs { run: self, target, library, signals, usual: None, unfinished: None };
        let mut counted = Vec::new();
        let stopped = runs.all(&mut comparison, &mut counted)?.err();
        let (main, moment) = match (stopped, runs.unfinished.take()) {
            (None, _) => (self.counted().to_owned(), Moment::Compared),
            (Some(_), Some(run)) => {
                let main = run.0.clone();
                counted = vec![run];
                (main, Moment::Stopped)
            }
            (Some(_), None) => (self.counted().to_owned(), Moment::Uncounted),
        };
        present_compared(self, &comparison, &counted, &main, others_busy_cpus, moment);
        match stopped {
            None => Ok(end(&comparison)),
            Some(Stopped::By(libc::SIGINT)) => Err(Failure::Cancelled),
            Some(Stopped::By(signal)) => Ok(End::Signal(signal)),
            Some(Stopped::TimedOut) => Ok(End::Code(1)),
        }
    }

    /// What the run is made under that the report tells everything about.
    fn counted(&self) -> &str {
        let glibc = || self.compare.iter().any(|variant| variant.lock.as_deref() == Some(GLIBC));
        match (&self.lock, &self.compare[0].lock) {
            (Some(lock), _) => lock,
            (None, Some(first)) if !glibc() => first,
            _ => GLIBC,
        }
    }
}

/// As the program ended, if it always ended so.
fn end(comparison: &Comparison) -> End {
    comparison.exit().map_or(End::Code(1), End::from)
}

impl Runs<'_> {
    /// All rounds, then a counted run under each lock.
    fn all(
        &mut self,
        comparison: &mut Comparison,
        counted: &mut Vec<(String, Vec<Snapshot>)>,
    ) -> Result<Result<(), Stopped>, Failure> {
        let rounds = self.run.warm_up + self.run.runs;
        for round in 0..rounds {
            for side in order(comparison.sides.len(), round) {
                let variant = comparison.sides[side].variant.clone();
                self.announce(round, rounds, &variant.to_string());
                // A program that deadlocks may do so in its very first run: what that counted is all
                // there is to tell then.
                let warms_up = round < self.run.warm_up;
                let is_counted = variant.is_counted || warms_up && variant.lock.is_some();
                let scratch = is_counted.then(new_counts).transpose()?;
                let drop_in = variant.lock.as_deref().map(|lock| DropIn {
                    library: self.library,
                    lock,
                    counts: scratch.as_ref().map(Counts::path),
                    records: false,
                });
                match self.one(drop_in, &variant)? {
                    Err(stopped) => {
                        self.keep(&variant, scratch.as_ref());
                        return Ok(Err(stopped));
                    }
                    Ok(_) if warms_up => {}
                    Ok((ended, output)) => {
                        let run = Finished::of(&ended, &output);
                        comparison.sides[side].runs.push(run);
                    }
                }
            }
        }
        let mut locks: Vec<String> = Vec::new();
        let compared = comparison.sides.iter().filter_map(|side| side.variant.lock.clone());
        for lock in compared.chain([self.run.counted().to_owned()]) {
            if !locks.contains(&lock) {
                locks.push(lock);
            }
        }
        for lock in locks {
            let variant = Variant { lock: Some(lock.clone()), is_counted: true };
            self.run.say(&format!("fairlock: once more under {variant}, for waits"));
            let counts = new_counts()?;
            let drop_in = DropIn {
                library: self.library,
                lock: &lock,
                counts: Some(counts.path()),
                records: false,
            };
            if let Err(stopped) = self.one(Some(drop_in), &variant)? {
                self.keep(&variant, Some(&counts));
                return Ok(Err(stopped));
            }
            counted.extend(read(&counts).map(|snapshots| (lock, snapshots)));
        }
        Ok(Ok(()))
    }

    /// Keeps what a run counted that was stopped.
    fn keep(&mut self, variant: &Variant, counts: Option<&Counts>) {
        let snapshots = counts.and_then(read).filter(|snapshots| !snapshots.is_empty());
        self.unfinished = variant.lock.clone().zip(snapshots);
        if let (Some(lock), None) = (&variant.lock, counts) {
            self.run.say(&format!(
                "fairlock: runs that are timed are not counted; what this one waited for, \
                 `--lock {lock}` without --compare tells"
            ));
        }
    }

    fn announce(&self, round: u32, rounds: u32, under: &str) {
        let what = match round < self.run.warm_up {
            true => "warming up".to_owned(),
            false => {
                format!("round {} of {}", round - self.run.warm_up + 1, rounds - self.run.warm_up)
            }
        };
        self.run.say(&format!("fairlock: {what}, {under}"));
    }

    /// One run. The first of all is shown.
    fn one(
        &mut self,
        drop_in: Option<DropIn<'_>>,
        variant: &Variant,
    ) -> Result<Result<(Ended, Output), Stopped>, Failure> {
        if let Some(stopped) = self.stopped_between() {
            return Ok(Err(stopped));
        }
        let start = Start { target: self.target, command: &self.run.command, drop_in };
        let is_first = self.usual.is_none();
        let mut running = start
            .captured(self.signals, process::repeatable_input(), is_first)
            .map_err(|error| cannot_start(&error, self.target))?;
        let (ended, stopped) = self.attend(&mut running, variant)?;
        if let Some(stopped) = stopped {
            return Ok(Err(stopped));
        }
        let output = running.output();
        let exit = Exit::of(ended.status);
        if *self.usual.get_or_insert(exit) != exit {
            let errors = printable_lines(&String::from_utf8_lossy(&output.errors));
            warn(&format!("fairlock: {exit} under {variant}, after:\n{errors}"));
        }
        Ok(Ok((ended, output)))
    }

    /// A signal that came while no program ran.
    fn stopped_between(&self) -> Option<Stopped> {
        std::iter::from_fn(|| self.signals.next())
            .find(|signal| process::ends_programs(signal.number))
            .map(|signal| Stopped::By(signal.number))
    }

    /// Waits for the end of a run, and whether it was asked for.
    fn attend(
        &self,
        running: &mut Running,
        variant: &Variant,
    ) -> Result<(Ended, Option<Stopped>), Failure> {
        let mut limit = self.run.limit();
        let mut stopped = None;
        loop {
            match running.attend(self.signals, limit.next).map_err(|error| cannot_watch(&error))? {
                Event::Ended(ended) => return Ok((ended, stopped)),
                Event::Asked(signal) => stopped = Some(Stopped::By(signal)),
                Event::Due => {
                    if stopped.is_none() {
                        self.run.say_timed_out(&variant.to_string());
                        stopped = Some(Stopped::TimedOut);
                    }
                    limit.end(running);
                }
                // Reports are made at the end.
                Event::Report => {}
            }
        }
    }
}
