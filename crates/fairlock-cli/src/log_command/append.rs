//! `fairlock log append`: standard input becomes records.
//!
//! One thread reads, and goes on reading while another waits for the disk: what has come meanwhile is
//! then committed together.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fairlock_io::{
    Latency, LogError, LogErrorKind, LogFile, LogMetrics, LogOptions, Position, Prewrite,
    Prewriting, SyncPolicy,
};
use fairlock_report::screen::{complain, say};
use fairlock_report::units::{self, counted, plural};
use fairlock_study::harness::interrupts;

use super::{failure, refuse_files};
use crate::failure::Failure;

/// Asked of the input at a time: what a pipe holds.
const READ: usize = 64 << 10;
/// Pieces of the input that are read ahead: a megabyte.
const READ_AHEAD: usize = 16;
/// Records are waited for after so many bytes, though there may be more to read.
const AT_ONCE: usize = 1 << 20;
/// More than any record may have: what is longer need not be gathered.
const TOO_LONG: usize = 17 << 20;

/// Appends records to a log.
#[derive(Debug, Args)]
pub struct Append {
    /// The log: a directory, which is made if it is not there
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// When records are brought to the device
    #[arg(long, value_enum, default_value = "every")]
    sync: Sync,
    /// The longest that a record waits for its sync, with --sync interval
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = units::parse_time_ns)]
    interval: u64,
    /// The size of the segments of a new log: 64k to 1024g, a multiple of 4k [default: 64m]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_long_bytes)]
    segment: Option<u64>,
    /// Whether blocks are written ahead
    #[arg(long, value_enum, default_value = "auto")]
    prewrite: Ahead,
    /// Records end with a zero byte instead of a newline
    #[arg(short = '0', long)]
    null: bool,
    /// The whole input is one record
    #[arg(long, conflicts_with = "null")]
    whole: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Sync {
    /// Before a record counts as appended
    Every,
    /// After --interval at most
    Interval,
    /// When the input ends, and where a segment ends
    Never,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Ahead {
    /// Unless it does not help in this file system
    Auto,
    /// In any case
    Always,
    /// Not at all
    Never,
}

/// What the reading thread found.
enum Input {
    /// Records, with the separator behind each.
    Records(Vec<u8>),
    /// A single one.
    Whole(Vec<u8>),
    /// A record is longer than any log takes.
    TooLong,
    Failed(io::Error),
    End,
    /// Look whether to stop.
    Interrupted,
}

/// What was appended.
#[derive(Default)]
struct Appended {
    records: u64,
    bytes: u64,
    first: Option<Position>,
    last: Option<Position>,
    /// The number of the first record that is not in the log, and why.
    failed: Option<(u64, String)>,
    /// Records behind that one that are.
    after_failed: u64,
}

impl Append {
    pub fn run(&self) -> Result<(), Failure> {
        refuse_files(&self.path)?;
        let log = self.open()?;
        tell_how_it_was_found(&log);
        self.tell_of_other_segments(&log);
        let (sender, input) = mpsc::sync_channel(READ_AHEAD);
        let stopping = stop_at_interrupts(sender.clone());
        let separator = match (self.whole, self.null) {
            (true, _) => None,
            (false, true) => Some(0),
            (false, false) => Some(b'\n'),
        };
        // It is left behind where it waits for more input.
        thread::spawn(move || read(io::stdin().lock(), separator, &sender));

        let separator = separator.unwrap_or_default();
        let mut appended = Appended::default();
        while append_what_is_there(&log, &input, separator, &mut appended)
            && appended.failed.is_none()
            && !stopping.load(Ordering::Relaxed)
        {}
        if *log.prewriting() != Prewriting::On {
            say(&format!("prewriting {}", log.prewriting()));
        }
        let metrics = log.metrics();
        let closed = log.close();
        match appended.failed.is_none() && !stopping.load(Ordering::Relaxed) {
            true if appended.records == 0 => say("nothing appended: the input was empty"),
            _ => say(&appended.summary()),
        }
        if metrics.batches > 0 {
            say(&figures(&metrics));
        }
        if let Some(message) = appended.failure() {
            return Err(Failure::Run(message));
        }
        closed.map_err(|error| failure(&error))?;
        match stopping.load(Ordering::Relaxed) {
            true => Err(Failure::Cancelled),
            false => Ok(()),
        }
    }

    fn open(&self) -> Result<LogFile, Failure> {
        let sync = match self.sync {
            Sync::Every => SyncPolicy::EveryCommit,
            Sync::Interval => SyncPolicy::Interval(Duration::from_nanos(self.interval)),
            Sync::Never => SyncPolicy::Never,
        };
        let prewrite = match self.prewrite {
            Ahead::Auto => Prewrite::Auto,
            Ahead::Always => Prewrite::Always,
            Ahead::Never => Prewrite::Never,
        };
        let mut options = LogOptions::new().sync(sync).prewrite(prewrite);
        if let Some(bytes) = self.segment {
            options = options.segment_bytes(bytes);
        }
        options.open(&self.path).map_err(|error| match error.kind() {
            LogErrorKind::Option { name: "segment_bytes", valid } => {
                Failure::Usage(format!("--segment must be {valid}"))
            }
            LogErrorKind::Option { .. } => Failure::Usage(
                "--interval must be greater than 0; for none use --sync every".into(),
            ),
            _ => failure(&error),
        })
    }

    fn tell_of_other_segments(&self, log: &LogFile) {
        let bytes = log.segment_bytes();
        if self.segment.is_some_and(|wanted| wanted != bytes) {
            let bytes = units::format_bytes(bytes as f64);
            say(&format!(
                "the log was made with segments of {bytes}, and keeps them: --segment is for a new one"
            ));
        }
    }
}

fn tell_how_it_was_found(log: &LogFile) {
    let found = log.recovery();
    if found.control_was_missing {
        say(
            "the control page was missing, and was made anew: what had been given up may be there again",
        );
    }
    if !found.was_closed {
        say(&format!("the log had not been closed; it ended at position {}", found.end));
    }
    if let Some(torn) = found.torn {
        say(&format!(
            "what was being written at position {torn} had not been committed, and is gone"
        ));
    }
    if found.lost_bytes > 0 {
        let bytes = units::format_bytes(found.lost_bytes as f64);
        say(&format!(
            "{bytes} of records had not come to the device before it lost power, and are gone"
        ));
    }
}

/// At Ctrl-C what was read is committed; at the next one nothing more is done.
fn stop_at_interrupts(sender: SyncSender<Input>) -> Arc<AtomicBool> {
    let stopping = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stopping);
    let installed = interrupts::handle(move || {
        // Relaxed: nothing else is published with the flag.
        if told.swap(true, Ordering::Relaxed) {
            process::exit(130);
        }
        // If there is no room, nobody sleeps.
        let _ = sender.try_send(Input::Interrupted);
    });
    if let Err(error) = installed {
        complain(&format!("warning: Ctrl-C will end the program at once: {error}"));
    }
    stopping
}

/// Reads records until the input ends, or nobody wants more.
fn read(mut input: impl Read, separator: Option<u8>, sender: &SyncSender<Input>) {
    let mut bytes = Vec::new();
    loop {
        let begun = bytes.len();
        bytes.resize(begun + READ, 0);
        let read = match input.read(&mut bytes[begun..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0..0,
            Err(error) => {
                let _ = sender.send(Input::Failed(error));
                return;
            }
            Ok(0) => {
                bytes.truncate(begun);
                let _ = match separator {
                    None => sender.send(Input::Whole(bytes)),
                    Some(_) if bytes.is_empty() => Ok(()),
                    Some(separator) => {
                        bytes.push(separator);
                        sender.send(Input::Records(bytes))
                    }
                };
                let _ = sender.send(Input::End);
                return;
            }
            Ok(more) => begun..begun + more,
        };
        bytes.truncate(begun + read.len());
        let last = separator
            .and_then(|separator| bytes[begun..].iter().rposition(|&byte| byte == separator));
        if let Some(last) = last {
            let rest = bytes.split_off(begun + last + 1);
            if sender.send(Input::Records(bytes)).is_err() {
                return;
            }
            bytes = rest;
        }
        if bytes.len() > TOO_LONG {
            let _ = sender.send(Input::TooLong);
            return;
        }
    }
}

/// Waits for input, and commits it with what comes along; whether there may be more.
fn append_what_is_there(
    log: &LogFile,
    input: &Receiver<Input>,
    separator: u8,
    appended: &mut Appended,
) -> bool {
    let mut submitted = Vec::new();
    let mut submit = |record: &[u8]| {
        let it = log.submit(record);
        let goes_on = it.is_ok();
        submitted.push((it, record.len()));
        goes_on
    };
    let mut bytes = 0;
    let mut more = true;
    let mut trouble = None;
    let mut next = input.recv().ok();
    while let Some(piece) = next {
        more = match piece {
            Input::Records(records) => {
                bytes += records.len();
                let (_, all) = records.split_last().expect("a separator is behind each");
                all.split(|&byte| byte == separator).all(&mut submit)
            }
            Input::Whole(record) => submit(&record),
            Input::TooLong => {
                trouble = Some(format!("it has more than {TOO_LONG} bytes"));
                false
            }
            Input::Failed(error) => {
                trouble = Some(format!("cannot read the input: {error}"));
                false
            }
            Input::End => false,
            Input::Interrupted => break,
        };
        if !more || bytes >= AT_ONCE {
            break;
        }
        next = input.try_recv().ok();
    }
    for (submitted, length) in submitted {
        appended.add(submitted.and_then(|submitted| log.wait(submitted)), length);
    }
    if let Some(trouble) = trouble {
        appended.fail(trouble);
    }
    more
}

impl Appended {
    fn add(&mut self, record: Result<Position, LogError>, length: usize) {
        match record {
            Ok(position) => {
                self.records += 1;
                self.bytes += length as u64;
                self.first.get_or_insert(position);
                self.last = Some(position);
                self.after_failed += u64::from(self.failed.is_some());
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// Notes why the next record is not in the log, if all before are.
    fn fail(&mut self, reason: String) {
        self.failed.get_or_insert((self.records + 1, reason));
    }

    fn summary(&self) -> String {
        let bytes = units::format_bytes(self.bytes as f64);
        match (self.first, self.last) {
            (Some(first), Some(last)) if first == last => {
                format!("1 record, {bytes}, at position {first}")
            }
            (Some(first), Some(last)) => {
                let records = counted(self.records, "record");
                format!("{records}, {bytes}, at positions {first} to {last}")
            }
            _ => "nothing appended".to_owned(),
        }
    }

    fn failure(&self) -> Option<String> {
        let (number, reason) = self.failed.as_ref()?;
        let after = match self.after_failed {
            0 => String::new(),
            1 => " (1 behind it is)".to_owned(),
            some => format!(" ({some} behind it are)"),
        };
        Some(format!("record {number} of the input is not in the log{after}: {reason}"))
    }
}

/// How the records came to the device, and how long that took.
fn figures(metrics: &LogMetrics) -> String {
    let each = units::format_count(metrics.records_per_batch().unwrap_or(0.0));
    let writes = counted(metrics.batches, "write");
    let mut said = match (metrics.batches, metrics.records) {
        (1, 1) => writes,
        (1, records) => format!("{writes} of {}", counted(records, "record")),
        _ => format!("{writes} of {each} {} on average", plural(u64::from(each == "1"), "record")),
    };
    let times = [("append", &metrics.append), ("write", &metrics.write), ("sync", &metrics.sync)];
    for (name, latency) in times.into_iter().filter(|(_, latency)| latency.count() > 0) {
        said += &format!("; {name} {}", quantiles(latency));
    }
    said
}

fn quantiles(latency: &Latency) -> String {
    let each = [
        ("p50", latency.p50()),
        ("p99", latency.p99()),
        ("p99.9", latency.p999()),
        ("max", latency.max()),
    ];
    each.map(|(name, time)| format!("{name} {}", units::format_ns(time.as_nanos() as f64)))
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one piece at each call.
    struct Pieces(Vec<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            bytes[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    fn pieces(input: &[&'static [u8]], separator: Option<u8>) -> Vec<Vec<u8>> {
        let (sender, receiver) = mpsc::sync_channel(100);
        read(Pieces(input.to_vec()), separator, &sender);
        drop(sender);
        let bytes = receiver.iter().map(|it| match it {
            Input::Records(bytes) | Input::Whole(bytes) => bytes,
            Input::End => b"end".to_vec(),
            _ => panic!("something else"),
        });
        bytes.collect()
    }

    #[test]
    fn lines_come_whole_however_the_input_is_cut() {
        let found = pieces(&[b"one\ntw", b"o", b"\n\nthree\n"], Some(b'\n'));
        assert_eq!(found, [b"one\n".to_vec(), b"two\n\nthree\n".to_vec(), b"end".to_vec()]);
    }

    #[test]
    fn a_last_line_without_an_end_is_one() {
        assert_eq!(pieces(&[b"one"], Some(0)), [b"one\0".to_vec(), b"end".to_vec()]);
        assert_eq!(pieces(&[], Some(0)), [b"end".to_vec()]);
    }

    #[test]
    fn the_whole_input_is_one_record() {
        assert_eq!(pieces(&[b"a\n", b"b"], None), [b"a\nb".to_vec(), b"end".to_vec()]);
    }

    #[test]
    fn the_first_record_that_failed_is_named() {
        let mut appended = Appended::default();
        appended.add(Ok(Position::new(4144)), 3);
        appended.fail("full".to_owned());
        appended.add(Ok(Position::new(8240)), 2);
        assert_eq!(appended.summary(), "2 records, 5 B, at positions 4144 to 8240");
        let said = appended.failure().unwrap();
        assert_eq!(said, "record 2 of the input is not in the log (1 behind it is): full");
    }
}
