//! How far a log may be read, as of the last look at its control page.
//!
//! A look is a system call, so a reader looks only when it reaches the end that it knew, or reads something
//! that it did not expect.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use super::control::{Control, Look, Written};
use super::error::LogError;
use super::format::FIRST_BATCH;
use super::storage::{Boot, SharedPage};

/// What was seen of a log's control page, and what it does not know.
pub(crate) struct Progress<P> {
    source: Source<P>,
    /// The end that was found in this run of the kernel, when the control page did not know it.
    found_end: Option<Found>,
    /// What is not on the device is not there: for all that belongs to one reader.
    durable_only: Arc<AtomicBool>,
    seen: Look,
}

/// An end that was found by reading the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) end: u64,
    pub(crate) boot: Boot,
    /// What the page said then. If it says something else, somebody writes it, on whatever system.
    pub(crate) commits: u32,
}

/// Who knows.
enum Source<P> {
    Page(Arc<Control<P>>),
    /// The writer, in this process: it knows without a look.
    Writer(Arc<Written<P>>),
}

impl<P> Clone for Source<P> {
    fn clone(&self) -> Self {
        match self {
            Source::Page(control) => Source::Page(Arc::clone(control)),
            Source::Writer(written) => Source::Writer(Arc::clone(written)),
        }
    }
}

impl<P> Clone for Progress<P> {
    fn clone(&self) -> Self {
        let Progress { source, found_end, durable_only, seen } = self;
        let (found_end, durable_only, seen) = (*found_end, durable_only.clone(), seen.clone());
        Progress { source: source.clone(), found_end, durable_only, seen }
    }
}

impl<P: SharedPage> Progress<P> {
    pub(crate) fn new(
        control: Arc<Control<P>>,
        found_end: Option<Found>,
    ) -> Result<Self, LogError> {
        let seen = control.look()?;
        let durable_only = Arc::default();
        Ok(Progress { source: Source::Page(control), found_end, durable_only, seen })
    }

    /// Of the log that this process writes.
    pub(crate) fn of_writer(written: Arc<Written<P>>) -> Self {
        let seen = written.look();
        let durable_only = Arc::default();
        Progress { source: Source::Writer(written), found_end: None, durable_only, seen }
    }

    pub(crate) fn control(&self) -> &Control<P> {
        match &self.source {
            Source::Page(control) => control,
            Source::Writer(written) => written.control(),
        }
    }

    /// What the page says now.
    pub(crate) fn look(&self) -> Result<Look, LogError> {
        match &self.source {
            Source::Page(control) => control.look(),
            Source::Writer(written) => Ok(written.look()),
        }
    }

    /// Looks again.
    pub(crate) fn refresh(&mut self) -> Result<(), LogError> {
        self.seen = self.look()?;
        Ok(())
    }

    pub(crate) fn seen(&self) -> &Look {
        &self.seen
    }

    /// Where the committed part ended.
    pub(crate) fn committed(&self) -> u64 {
        self.committed_in(&self.seen)
    }

    /// Where the committed part ends, as this look has it.
    pub(crate) fn committed_in(&self, look: &Look) -> u64 {
        let committed = match self.found_end {
            // Until a writer opens it: that stores how far it is committed before the boot.
            Some(Found { end, boot, commits })
                if (look.boot != Some(boot) || look.is_copy) && look.commits == commits =>
            {
                end
            }
            // Its page may be damaged.
            found => look.committed.or(found.map(|found| found.end)).unwrap_or(FIRST_BATCH),
        };
        match self.durable_only.load(Relaxed) {
            true => committed.min(look.durable.unwrap_or(FIRST_BATCH)),
            false => committed,
        }
    }

    /// Whether what is not on the device counts as not there.
    pub(crate) fn set_durable_only(&self, durable_only: bool) {
        self.durable_only.store(durable_only, Relaxed);
    }

    /// The first position that was not given up; none if a crash has taken that.
    pub(crate) fn first(&self) -> Option<u64> {
        self.seen.first
    }
}

/// Sleeps between looks.
#[derive(Default)]
pub(crate) struct Idle {
    seen: Option<u32>,
    in_vain: u32,
}

impl Idle {
    /// Until the page says something else than when it was looked at, or until the deadline.
    pub(crate) fn wait<P: SharedPage>(
        &mut self,
        progress: &Progress<P>,
        deadline: Option<Instant>,
    ) {
        let began = Instant::now();
        let commits = progress.seen().commits;
        // Where the file that is read is not the one that is waited on, as on overlayfs once a writer has copied
        // it, the system says that it has changed, always.
        if self.in_vain > IN_VAIN {
            let rest = deadline.map(|it| it.saturating_duration_since(began));
            thread::sleep(rest.unwrap_or(NAP).min(NAP));
        } else {
            progress.control().wait(commits, deadline);
        }
        let is_same = self.seen == Some(commits) && began.elapsed() < NAP;
        self.in_vain = if is_same { self.in_vain + 1 } else { 0 };
        self.seen = Some(commits);
    }
}

/// So often nothing had changed, and the sleep was over at once.
const IN_VAIN: u32 = 16;
/// How long it then takes to learn of a commit.
const NAP: Duration = Duration::from_millis(5);
