//! How records are appended, other than one by one and as the log's options say.

use super::log::Submitted;
use super::position::Position;

/// How some records are appended: [`LogFile::append_with`](crate::LogFile::append_with),
/// [`LogFile::append_all`](crate::LogFile::append_all).
///
/// ```
/// use fairlock_io::{AppendOptions, LogFile};
///
/// # let directory = tempfile::tempdir_in(".")?;
/// let log = LogFile::open(directory.path().join("journal"))?;
/// let options = AppendOptions::new().key(1_700_000_000);
/// let places = log.append_all(&[b"debit", b"credit"], &options)?;
/// assert_eq!(log.read(places[1])?, b"credit");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AppendOptions {
    pub(crate) key: Option<u64>,
    pub(crate) durable: Option<bool>,
}

impl AppendOptions {
    /// As the log's options say, and without a key.
    pub fn new() -> AppendOptions {
        AppendOptions::default()
    }

    /// What [`LogReader::seek_key`](crate::LogReader::seek_key) finds these records by: a time, or a number of
    /// the user's, which is never smaller than that of what was appended before. Records that are written together
    /// are found together, by the first of their keys.
    ///
    /// Keys are not checked: if they do not rise, a search may stop anywhere. Where several threads append, choose
    /// the key and submit the record under one lock.
    pub fn key(mut self, key: u64) -> AppendOptions {
        self.key = Some(key);
        self
    }

    /// Whether the records are on the device before they are acknowledged, with all that was before them.
    /// Otherwise they outlive a crash of the process, but not the loss of power until
    /// [`LogFile::sync`](crate::LogFile::sync) is called, or a record is appended that has to be there; whoever
    /// reads only what is on the device waits until then. Default: as the log's [`SyncPolicy`](crate::SyncPolicy) says.
    ///
    /// Records that are written together are on the device as soon as one of them has to be.
    pub fn durable(mut self, durable: bool) -> AppendOptions {
        self.durable = Some(durable);
        self
    }
}

/// Records that were submitted together, and are not yet known to be committed:
/// [`LogFile::submit_all`](crate::LogFile::submit_all).
#[derive(Debug, Clone)]
#[must_use = "whether they were committed is known when they are waited for"]
pub struct SubmittedAll {
    pub(crate) last: Option<Submitted>,
    pub(crate) positions: Vec<Position>,
}

impl SubmittedAll {
    /// Where the records are, if they are committed.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    /// The last of them: what becomes of it becomes of all. None if there are none.
    pub fn last(&self) -> Option<Submitted> {
        self.last
    }
}
