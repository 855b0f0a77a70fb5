//! One run, to its end and as its end.

use std::path::Path;
use std::time::{Duration, Instant};

use fairlock_trace::DEFAULT_LOCK;
use fairlock_trace::comparison::Exit;
use fairlock_trace::counts::Counts;
use fairlock_trace::process::{DropIn, Ended, Event, Running, Start};
use fairlock_trace::recorded::Windows;
use fairlock_trace::signals::Signals;
use fairlock_trace::target::Target;

use super::present::{Moment, present};
use super::recorder::Recorder;
use super::{End, Run, cannot_start, cannot_watch};
use crate::failure::Failure;

impl Run {
    /// Runs the program and reports, also while it runs.
    pub(super) fn once(
        &self,
        target: &Target,
        library: &Path,
        signals: &Signals,
    ) -> Result<End, Failure> {
        let counts = new_counts()?;
        let lock = self.lock.as_deref().unwrap_or(DEFAULT_LOCK);
        // Before the program starts: it measures something of its own.
        let windows = self.record.is_some().then(|| Windows::new(&counts));
        let records = windows.is_some();
        let drop_in = DropIn { library, lock, counts: Some(counts.path()), records };
        let start = Start { target, command: &self.command, drop_in: Some(drop_in) };
        let mut running = start.plain(signals).map_err(|error| cannot_start(&error, target))?;
        let mut recorder = windows.map(Recorder::new);
        let ended = self.attend(&mut running, signals, (&counts, lock), recorder.as_mut())?;
        if let (Some(recorder), Some(file)) = (recorder, &self.record) {
            recorder.write(self, &counts, file);
        }
        present(self, &counts, Moment::End(Exit::of(ended.status)));
        Ok(End::of(&ended))
    }

    fn attend(
        &self,
        running: &mut Running,
        signals: &Signals,
        (counts, lock): (&Counts, &str),
        mut recorder: Option<&mut Recorder<'_>>,
    ) -> Result<Ended, Failure> {
        let mut limit = self.limit();
        let mut due = self.every.map(|every| Instant::now() + every);
        loop {
            let window = recorder.as_ref().map(|recorder| recorder.due());
            let soonest = due.into_iter().chain(limit.next).chain(window).min();
            match running.attend(signals, soonest).map_err(|error| cannot_watch(&error))? {
                Event::Ended(ended) => return Ok(ended),
                Event::Report => present(self, counts, Moment::Meanwhile),
                Event::Due => {
                    if let Some(recorder) = &mut recorder {
                        recorder.goes_on();
                    }
                    if limit.is_over() {
                        if !limit.was_asked_to_end {
                            self.say_timed_out(lock);
                        }
                        limit.end(running);
                    } else if due.is_some_and(|due| due <= Instant::now()) {
                        present(self, counts, Moment::Meanwhile);
                        let now = Instant::now();
                        due = due.zip(self.every).map(|(due, every)| next(due, every, now));
                    }
                }
                // The program decides whether it ends by that.
                Event::Asked(_) => {}
            }
        }
    }
}

/// A directory for a run's counts.
pub(super) fn new_counts() -> Result<Counts, Failure> {
    Counts::create().map_err(|error| {
        Failure::Run(format!(
            "cannot make a directory for counts ({error}); set TMPDIR to a directory with free space"
        ))
    })
}

/// The next time of the same beat that is not over yet: a slow report is not made up for.
fn next(due: Instant, every: Duration, now: Instant) -> Instant {
    let now = now.max(due);
    let since_beat = (now - due).as_nanos() % every.as_nanos();
    // Less than `every`, which has an hour at most.
    now + every - Duration::from_nanos(since_beat as u64)
}

impl End {
    /// As the program ended.
    pub(super) fn of(ended: &Ended) -> End {
        Exit::of(ended.status).into()
    }
}

impl From<Exit> for End {
    fn from(exit: Exit) -> End {
        match exit {
            // Codes have eight bits.
            Exit::Code(code) => End::Code(code as u8),
            Exit::Signal(signal) => End::Signal(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_report_is_on_the_beat_and_not_over_yet() {
        let (due, every) = (Instant::now(), Duration::from_millis(10));
        for (late, beats) in [(0, 1), (1, 1), (9_999, 1), (10_000, 2), (25_000, 3)] {
            let now = due + Duration::from_micros(late);
            assert_eq!(next(due, every, now), due + beats * every, "{late} µs late");
        }
        // As many missed beats as there can be take no time.
        let (every, hour) = (Duration::from_nanos(1), Duration::from_secs(3600));
        assert_eq!(next(due, every, due + hour), due + hour + every);
        assert_eq!(next(due + hour, hour, due), due + 2 * hour, "called too early");
    }
}
