//! How a log is opened, and what is said about how it was found.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::LogFile;
use super::error::{LogError, LogErrorKind};
use super::format::{
    BATCH_HEADER, BLOCK, FIRST_BATCH, Identity, Layout, MOST_BATCH, MOST_USER_HEADER, RECORD_HEADER,
};
use super::position::Position;
use super::verify::Damage;

/// When what was appended is brought to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncPolicy {
    /// Before it is acknowledged: an acknowledged record outlives the loss of power.
    #[default]
    EveryCommit,
    /// So long after the one before, at most, while something is appended. An acknowledged record
    /// outlives a crash of the process; the loss of power may take the last ones.
    Interval(Duration),
    /// When [`LogFile::sync`] is called and when the log is closed; each segment soon after it has ended.
    /// Otherwise as `Interval`.
    Never,
}

/// Whether blocks are written with zeros before they are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prewrite {
    /// Unless it is known, or found out when the log is opened, that it does not help here.
    #[default]
    Auto,
    /// In any case.
    Always,
    /// Not at all: for file systems that copy on write. Appends make the file longer, and wait for
    /// readers if the kernel lets them.
    Never,
}

/// Whether a log's blocks are written before they are needed, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prewriting {
    /// They are: appends overwrite blocks that are there, beside any readers.
    On,
    /// It was not wanted.
    Disabled,
    /// The file system puts elsewhere what is overwritten, so blocks written ahead are not used.
    CopiesOnWrite {
        /// Its name.
        filesystem: String,
    },
    /// This kernel lets nobody read while blocks are overwritten, either.
    OverwritesAlone {
        /// Its file system.
        filesystem: String,
    },
}

impl fmt::Display for Prewriting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Prewriting::On => write!(f, "on"),
            Prewriting::Disabled => write!(f, "off, as asked"),
            Prewriting::CopiesOnWrite { filesystem } => write!(
                f,
                "off: {filesystem} writes elsewhere what is overwritten, so it would not help"
            ),
            Prewriting::OverwritesAlone { filesystem } => write!(
                f,
                "off: this kernel's {filesystem} lets nobody read while it overwrites, so it would \
                 not help"
            ),
        }
    }
}

/// What becomes of a log that is damaged when it is opened: [`LogOptions::open_mode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OpenMode {
    /// It is not opened: [`LogErrorKind::Damaged`], [`LogErrorKind::MissingSegment`] or
    /// [`LogErrorKind::IncompleteCopy`]. Only what has to be read to find the end is read, so damage in the middle
    /// is met by readers.
    #[default]
    Strict,
    /// The log ends before the first damage, as after [`LogFile::repair`] with
    /// [`up_to_damage`](crate::RepairOptions::up_to_damage): all behind it is given up.
    UpToDamage,
    /// What is damaged is passed over, as after [`LogFile::repair`]: the log keeps every record that is whole.
    SkipDamage,
}

/// How a log was found when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// It had been closed. Otherwise its writer crashed, or was dropped.
    pub was_closed: bool,
    /// Where it ended.
    pub end: Position,
    /// Bytes that were read to find that.
    pub scanned_bytes: u64,
    /// A batch that was being written when its writer died and is not whole. It was not
    /// acknowledged: its records are gone.
    pub torn: Option<Position>,
    /// Bytes of whole batches behind a gap, which the loss of power may leave of what was never brought
    /// to the device ([`SyncPolicy::Interval`] and [`SyncPolicy::Never`]): these records are gone.
    pub lost_bytes: u64,
    /// There was no log, and this opening has made it.
    pub was_created: bool,
    /// Somebody had removed the file `control`, and another was made: records that had been given up are there
    /// again, as far as their files are.
    pub control_was_missing: bool,
    /// What was damaged, and was given up because of [`LogOptions::open_mode`], in the order of positions but
    /// for the headers of segments, which come first.
    pub damages: Vec<Damage>,
    /// With [`OpenMode::UpToDamage`]: where the log was cut off.
    pub cut_at: Option<Position>,
    /// The files in which the bytes were saved that this has overwritten, as
    /// [`RepairReport::saved`](crate::RepairReport::saved) says.
    pub saved: Vec<PathBuf>,
}

/// Options to open a log with.
///
/// ```
/// use fairlock_io::{LogOptions, SyncPolicy};
/// use std::time::Duration;
///
/// # let directory = tempfile::tempdir_in(".")?;
/// # let path = directory.path().join("journal");
/// let log = LogOptions::new()
///     .segment_bytes(4 << 20)
///     .sync(SyncPolicy::Interval(Duration::from_millis(100)))
///     .open(&path)?;
/// log.append(b"hello")?;
/// log.close()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LogOptions {
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) segment_bytes: u64,
    pub(crate) batch_bytes: usize,
    pub(crate) sync: SyncPolicy,
    pub(crate) prewrite: Prewrite,
    pub(crate) mode: Option<u32>,
    pub(crate) segment_header: Vec<u8>,
    pub(crate) retain_bytes: Option<u64>,
    pub(crate) retain_for: Option<Duration>,
    pub(crate) open_mode: OpenMode,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            create: true,
            create_new: false,
            segment_bytes: 64 << 20,
            batch_bytes: 1 << 20,
            sync: SyncPolicy::EveryCommit,
            prewrite: Prewrite::Auto,
            mode: None,
            segment_header: Vec::new(),
            retain_bytes: None,
            retain_for: None,
            open_mode: OpenMode::Strict,
        }
    }
}

impl LogOptions {
    /// What [`LogFile::open`] uses: creates the log if there is none, with segments of 64 MiB, and syncs
    /// at every commit.
    pub fn new() -> LogOptions {
        LogOptions::default()
    }

    /// Whether to create the log if there is none. Default: yes.
    pub fn create(mut self, create: bool) -> LogOptions {
        self.create = create;
        self
    }

    /// Whether to refuse a log that is there. Default: no.
    pub fn create_new(mut self, create_new: bool) -> LogOptions {
        self.create_new = create_new;
        self
    }

    /// The size of each segment file of a log that is created, in bytes: a multiple of 4096 from 64 KiB to
    /// 1 TiB. A log that is there keeps its own. Default: 64 MiB.
    ///
    /// Space is given back, and reused, by whole segments. A record must fit into one, with its headers: the
    /// largest has 4168 bytes less than a segment, and 16,777,144 bytes (16 MiB less 72 bytes) at most,
    /// however large segments are.
    pub fn segment_bytes(mut self, bytes: u64) -> LogOptions {
        self.segment_bytes = bytes;
        self
    }

    /// The most that is gathered for one write, in bytes: 4096 to 16 MiB. Default: 1 MiB.
    ///
    /// A larger record makes a larger batch of its own.
    pub fn batch_bytes(mut self, bytes: usize) -> LogOptions {
        self.batch_bytes = bytes;
        self
    }

    /// When records are brought to the device. Default: [`SyncPolicy::EveryCommit`].
    pub fn sync(mut self, policy: SyncPolicy) -> LogOptions {
        self.sync = policy;
        self
    }

    /// Whether blocks are written ahead. Default: [`Prewrite::Auto`].
    pub fn prewrite(mut self, prewrite: Prewrite) -> LogOptions {
        self.prewrite = prewrite;
        self
    }

    /// Bytes that are put into the first block of each segment that is made from now on, at most 4032: what a
    /// program needs to know before it reads a log's records, such as the version of their format. Default: none.
    ///
    /// [`LogReader::segment_header`](crate::LogReader::segment_header) reads them. Segments that were begun by
    /// earlier openings keep what was said then.
    pub fn segment_header(mut self, bytes: impl Into<Vec<u8>>) -> LogOptions {
        self.segment_header = bytes.into();
        self
    }

    /// The permissions of the files that are made, but for `lock`, as in `0o640`, and with them those of the directory if it
    /// is made: who may read a file may list it. Without this they are what the process makes otherwise.
    ///
    /// Who may write the files may become the writer; who may only read them can follow the log, and do
    /// nothing that a writer would notice.
    pub fn mode(mut self, mode: u32) -> LogOptions {
        self.mode = Some(mode);
        self
    }

    /// Gives up segments that are not needed to hold this many bytes, oldest first. Default: none are given
    /// up.
    ///
    /// The newest segments are kept whose files come to `bytes`, each with its full
    /// [`segment_bytes`](Self::segment_bytes), the one that is being written included: so many segments as
    /// `bytes` needs, rounded up, and at least two. So a full segment of records is kept whatever the limit is,
    /// and the records on disk, with their headers and padding, are between `bytes` − `segment_bytes` and
    /// `bytes`, rounded up. Segments made ahead (one, as a rule) and those kept to be used again (two at
    /// most) come on top.
    ///
    /// The limit is applied when the log is opened; whenever it begins a segment, by a thread in the background,
    /// for which no append waits; and by [`LogFile::retain`]. A failure fails no append: it is in
    /// [`LogFile::metrics`], and the next time it is tried again. With [`retain_for`](Self::retain_for), a
    /// segment goes when either limit says so. Readers that stand in what was given up get
    /// [`LogErrorKind::Truncated`].
    ///
    /// ```
    /// use fairlock_io::LogOptions;
    /// use std::time::Duration;
    ///
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("journal");
    /// let log = LogOptions::new()
    ///     .segment_bytes(1 << 20)
    ///     .retain_bytes(8 << 20) // Eight segments.
    ///     .retain_for(Duration::from_secs(7 * 86_400))
    ///     .open(&path)?;
    /// log.append(b"hello")?;
    /// log.close()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn retain_bytes(mut self, bytes: u64) -> LogOptions {
        self.retain_bytes = Some(bytes);
        self
    }

    /// Gives up segments that were left longer ago than this, oldest first. Default: none are given up.
    ///
    /// A segment is left when the log goes on to the next: its age is counted from then on, as its file's
    /// modification time and the system's clock have it. So all records in it are older. A copy of the log
    /// whose files have new times begins to count anew, and a segment that was left in the future, as the
    /// clock has it, is kept. The segment that is being written, and the one of the last record, are never
    /// given up, however old they are.
    ///
    /// The limit is applied when [`retain_bytes`](Self::retain_bytes) is. A log that is rarely appended to
    /// rarely begins a segment: call [`LogFile::retain`] now and then.
    pub fn retain_for(mut self, time: Duration) -> LogOptions {
        self.retain_for = Some(time);
        self
    }

    /// What becomes of a log that is damaged. Default: [`OpenMode::Strict`], it is not opened.
    ///
    /// The other modes read all of the log first, like [`LogReader::verify`](crate::LogReader::verify), and mend it in
    /// place if they find damage. Whatever they overwrite is saved first. [`LogFile::recovery`] says what was
    /// damaged.
    ///
    /// ```
    /// use fairlock_io::{LogOptions, OpenMode};
    ///
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("journal");
    /// let log = LogOptions::new().open_mode(OpenMode::SkipDamage).open(&path)?;
    /// for damage in &log.recovery().damages {
    ///     eprintln!("{} at position {} is lost", damage.what, damage.position);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open_mode(mut self, mode: OpenMode) -> LogOptions {
        self.open_mode = mode;
        self
    }

    /// Opens the log in the directory `path` for appending.
    ///
    /// # Errors
    /// [`LogErrorKind::Option`] for values that make no sense, [`LogErrorKind::BusyWriter`] while it is
    /// open for appending already, [`LogErrorKind::Damaged`] if records that were acknowledged are not
    /// what was written, [`LogErrorKind::NewerVersion`] if it was written by a later format, and what
    /// the system refuses.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<LogFile, LogError> {
        self.check(path.as_ref())?;
        LogFile::open_with(path.as_ref(), self.clone())
    }

    fn check(&self, path: &Path) -> Result<(), LogError> {
        let wrong = |name, valid| Err(LogError::new(LogErrorKind::Option { name, valid }, path));
        if Layout::checked(Identity::default(), self.segment_bytes).is_none() {
            return wrong("segment_bytes", "a multiple of 4096 from 64 KiB to 1 TiB");
        }
        if !(BLOCK..=MOST_BATCH).contains(&self.batch_bytes) {
            return wrong("batch_bytes", "between 4096 bytes and 16 MiB");
        }
        if self.segment_header.len() > MOST_USER_HEADER {
            return wrong("segment_header", "at most 4032 bytes");
        }
        if self.mode.is_some_and(|mode| mode & !0o777 != 0 || mode & 0o600 != 0o600) {
            return wrong("mode", "at most 0o777, and let the owner read and write");
        }
        if self.sync == SyncPolicy::Interval(Duration::ZERO) {
            return wrong(
                "the sync interval",
                "greater than 0; for none use SyncPolicy::EveryCommit",
            );
        }
        if self.retain_bytes == Some(0) {
            return wrong("retain_bytes", "greater than 0; leave it out to keep everything");
        }
        if self.retain_for == Some(Duration::ZERO) {
            return wrong("retain_for", "greater than 0; leave it out to keep everything");
        }
        Ok(())
    }
}

/// The largest record that fits into a segment, and into memory.
pub(crate) fn largest_record(segment_bytes: u64) -> usize {
    let room = segment_bytes - FIRST_BATCH;
    let room = usize::try_from(room).unwrap_or(usize::MAX).min(MOST_BATCH);
    room - BATCH_HEADER - RECORD_HEADER
}
