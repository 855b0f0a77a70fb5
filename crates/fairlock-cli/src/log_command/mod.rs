//! `fairlock log`: a log file from the shell.
//!
//! | | |
//! |---|---|
//! | `append.rs` | standard input becomes records |
//! | `tail.rs` | records become standard output |
//! | `backup.rs` | a copy of a log that is appended to |
//! | `inspect.rs` | what is damaged, and the figures |
//! | `repair.rs` | a damaged log opens again |
//! | `truncate.rs` | records that are no longer wanted are given up |

mod append;
mod backup;
mod inspect;
mod repair;
mod tail;
mod truncate;

use std::io;
use std::path::Path;

use clap::Subcommand;
use fairlock_io::{LogError, LogErrorKind};

use crate::failure::Failure;

/// What to do with a log.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Append standard input, each line a record; creates the log if there is none
    #[command(after_help = "Example:\n  \
        fairlock log append journal < lines.txt\n  \
        fairlock log append journal --whole < picture.png\n  \
        find . -print0 | fairlock log append journal -0 --sync never\n\n\
        Input that is available at once is committed together, and a line that is typed is committed at once. \
        Ctrl-C commits what was read and closes the log.")]
    Append(append::Append),
    /// Print the last records, and follow
    #[command(after_help = "Example:\n  \
        fairlock log tail journal                 the last 10 records\n  \
        fairlock log tail journal --from start    all of them\n  \
        fairlock log tail journal --follow -n 0   what comes from now on\n  \
        fairlock log tail journal --from 4144 --format json\n  \
        fairlock log tail journal --from start --skip-damage\n\n\
        Of a damaged log, -n prints the last records behind the damage, and says on stderr where that is. \
        --skip-damage prints what is whole of all records that are asked for.")]
    Tail(tail::Tail),
    /// Copy a log into a new directory, also while it is appended to
    #[command(after_help = "Example:\n  \
        fairlock log backup journal /backup/journal-monday\n  \
        fairlock log backup journal copy --json | jq .end\n\n\
        On the same file system full segments are linked: that takes no space and no time, but is no second \
        copy of the bytes. The appending program need not know of it, and waits for nothing.")]
    Backup(backup::Backup),
    /// Read all of a log and list what is damaged; exit code 1 if anything is
    #[command(after_help = "Example:\n  \
        fairlock log verify journal\n  \
        fairlock log verify journal --json | jq 'select(.type == \"damage\")'")]
    Verify(inspect::Inspect),
    /// Mend a damaged log in place; what it overwrites is saved first
    #[command(after_help = "Example:\n  \
        fairlock log repair journal --dry-run        change nothing, say what is lost\n  \
        fairlock log repair journal                  keep each record that is whole\n  \
        fairlock log repair journal --up-to-damage   keep what is before the damage\n\n\
        With --dry-run the exit code is 1 if anything is damaged. \
        The bytes that are overwritten are saved in files damaged-POSITION-NUMBER.bytes in the log's \
        directory, whole blocks from that position on. The log has no use for them: look at them with \
        `xxd`, and remove them.")]
    Repair(repair::Repair),
    /// Give up records that are no longer wanted: the oldest, or the last
    #[command(
        override_usage = "fairlock log truncate --before <POSITION> <DIR>\n       \
                          fairlock log truncate --after <POSITION> <DIR>\n       \
                          fairlock log truncate --keep <SIZE> <DIR>",
        after_help = "Example:\n  \
        fairlock log truncate journal --before 81920   what is before that record\n  \
        fairlock log truncate journal --keep 1g        the oldest, down to about 1 GiB\n  \
        fairlock log truncate journal --after 81920    what is behind that record\n\n\
        The place of records that are cut off is not used again. \
        No program may have the log open for writing. One that has gives up records itself: \
        LogFile::truncate_before, LogOptions::retain_bytes."
    )]
    Truncate(truncate::Truncate),
    /// Print a log's figures without reading it
    #[command(after_help = "Example:\n  fairlock log stat journal")]
    Stat(inspect::Inspect),
}

impl LogCommand {
    /// Does it.
    pub fn run(&self) -> Result<(), Failure> {
        match self {
            LogCommand::Append(append) => append.run(),
            LogCommand::Tail(tail) => tail.run(),
            LogCommand::Backup(backup) => backup.run(),
            LogCommand::Verify(inspect) => inspect.verify(),
            LogCommand::Repair(repair) => repair.run(),
            LogCommand::Truncate(truncate) => truncate.run(),
            LogCommand::Stat(inspect) => inspect.stat(),
        }
    }
}

/// A log is a directory: a path of anything else is refused.
fn refuse_files(path: &Path) -> Result<(), Failure> {
    match path.metadata() {
        Ok(there) if !there.is_dir() => Err(Failure::Run(format!(
            "{} is a file, but a log is a directory of segments: give the path of that",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Whether somebody has taken the control page from a log.
fn has_segments(path: &Path) -> bool {
    let Ok(entries) = path.read_dir() else { return false };
    let is_segment = |path: &Path| path.extension().is_some_and(|it| it == "segment");
    entries.filter_map(Result::ok).any(|entry| is_segment(&entry.path()))
}

fn failure(error: &LogError) -> Failure {
    Failure::Run(match error.kind() {
        LogErrorKind::NotALog if has_segments(error.path()) => format!(
            "{error}, but segments of one: its control page is missing, and `fairlock log repair` makes \
             it anew"
        ),
        LogErrorKind::NotALog => format!("{error}; `fairlock log append` creates one"),
        _ => error.to_string(),
    })
}

/// Nobody wants to read on: that is no failure.
fn unless_reader_left(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::Run(format!("cannot write the output: {error}"))),
        Ok(()) => Ok(()),
    }
}
