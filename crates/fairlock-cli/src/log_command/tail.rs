//! `fairlock log tail`: records become standard output.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fairlock_io::{Damage, LogError, LogErrorKind, LogReader, LogWriter, Position, Record};
use fairlock_report::screen::{complain, say};
use fairlock_report::units::counted;
use serde_json::json;

use super::inspect::damage_as_text;
use super::{failure, refuse_files, unless_reader_left};
use crate::failure::Failure;

/// How long it may take until it is noticed that nobody reads the output any more, that the writer died, or that
/// the log was removed.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// Where the first batch of a segment begins.
const FIRST_BATCH: u64 = 4096;

/// Prints records of a log.
#[derive(Debug, Args)]
pub struct Tail {
    /// The log: its directory
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Print the last N records
    #[arg(
        short = 'n',
        long,
        visible_alias = "records",
        value_name = "N",
        default_value_t = 10,
        conflicts_with = "from"
    )]
    lines: usize,
    /// Print all from a position on: of a record, or `start` or `end`; not with -n
    #[arg(long, value_name = "POSITION", value_parser = from)]
    from: Option<From>,
    /// Go on with what is appended later, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "lines")]
    format: Format,
    /// End each record with a zero byte instead of a newline
    #[arg(short = '0', long, conflicts_with = "format")]
    null: bool,
    /// Print its position and a tab before each record
    #[arg(long)]
    positions: bool,
    /// Pass damage over: print what is whole, name what is damaged on stderr; exit code 1 if anything is
    #[arg(long)]
    skip_damage: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A newline behind each
    Lines,
    /// Nothing: its bytes alone
    Raw,
    /// An object in a line, with "position", and "text" or, if it is not UTF-8, "hex"
    Json,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum From {
    At(Position),
    End,
}

pub(super) fn from(text: &str) -> Result<From, String> {
    match text {
        "start" => Ok(From::At(Position::START)),
        "end" => Ok(From::End),
        _ => text.parse().map(|position| From::At(Position::new(position))).map_err(|_| {
            format!("\"{text}\" is not a position; give start, end, or a number from --positions")
        }),
    }
}

impl Tail {
    pub fn run(&self) -> Result<(), Failure> {
        if self.positions && self.format == Format::Raw {
            let reason = "--positions needs to know where records end; use --format lines or json";
            return Err(Failure::Usage(reason.to_owned()));
        }
        refuse_files(&self.path)?;
        let place = Place::of(&self.path);
        let (mut reader, begin) = self.open()?;
        let mut output = BufWriter::with_capacity(64 << 10, io::stdout().lock());
        let mut record_bytes = Vec::new();
        let mut damages = 0;
        // The opening of the writer that is known to have died.
        let mut died = None;
        loop {
            record_bytes.clear();
            let read = match reader.next() {
                Ok(Some(record)) => self.print(&mut record_bytes, record).map(|()| true),
                Ok(None) => Ok(false),
                Err(error) => {
                    unless_reader_left(output.flush())?;
                    return Err(failure(&error));
                }
            };
            let printed = read.and_then(|is_read| {
                // Those before the record.
                let mut passed = reader.damages();
                passed.retain(|damage| damage.position >= begin.told_before);
                if !passed.is_empty() || !is_read {
                    output.flush()?;
                }
                damages += passed.len() as u64;
                passed.iter().for_each(|damage| say(&damage_as_text(damage)));
                output.write_all(&record_bytes)?;
                Ok(is_read)
            });
            match printed {
                Err(error) => return unless_reader_left(Err(error)),
                Ok(true) => {}
                Ok(false) if !self.follow => break,
                Ok(false) => loop {
                    if reader.wait(Some(LOOK_AROUND)) {
                        break;
                    }
                    if is_closed(output.get_ref()) {
                        return Ok(());
                    }
                    self.look_around(&mut reader, place.as_ref(), &mut died)?;
                },
            }
        }
        match damages {
            0 if begin.is_short => Err(Failure::Told),
            0 => Ok(()),
            _ => Err(Failure::Run(format!(
                "{} is damaged: {} passed over",
                self.path.display(),
                counted(damages, "place")
            ))),
        }
    }

    /// A reader at the first record that is to be printed.
    fn open(&self) -> Result<(LogReader, Begin), Failure> {
        let reader = match self.from.is_some() && !self.skip_damage {
            true => LogReader::open(&self.path),
            // Damage may hide the end, too.
            false => LogReader::open_damaged(&self.path),
        };
        let reader = reader.map_err(|error| failure(&error))?;
        let Some(from) = self.from else { return self.seek_to_last(reader) };
        let mut reader = reader.skip_damage(self.skip_damage);
        let position = match from {
            From::At(position) => position,
            From::End => reader.committed(),
        };
        reader.seek(position).map_err(|error| failure(&error))?;
        Ok((reader, Begin::default()))
    }

    /// Tells of a writer that died, once, and ends if the log is no longer there.
    fn look_around(
        &self,
        reader: &mut LogReader,
        place: Option<&Place>,
        died: &mut Option<u32>,
    ) -> Result<(), Failure> {
        let writer = reader.writer().map_err(|error| failure(&error))?;
        let is_open = matches!(writer, LogWriter::Open { .. });
        // What was committed before it died is printed first.
        if reader.wait(Some(Duration::ZERO)) {
            return Ok(());
        }
        if writer == LogWriter::Died {
            let epoch = reader.epoch().map_err(|error| failure(&error))?;
            if died.replace(epoch) != Some(epoch) {
                say("the log's writer died without closing it: waiting for the next one");
            }
        }
        match place.and_then(|place| place.lost(&self.path, is_open)) {
            Some(reason) => Err(Failure::Run(format!("{}: {reason}", self.path.display()))),
            None => Ok(()),
        }
    }

    /// Goes to the first of the last records. Of a damaged log, to the first of those that are asked for behind the
    /// last damage, and says where that is; unless damage is to be passed over.
    fn seek_to_last(&self, reader: LogReader) -> Result<(LogReader, Begin), Failure> {
        // Damage may be before the last records, and is no reason not to find them.
        let mut reader = reader.skip_damage(true);
        let last = self.find_last(&mut reader)?;
        reader.damages();
        let first = match (last.first, self.skip_damage && self.lines > 0) {
            (Some(first), _) => first,
            // There all that is damaged is told.
            (None, true) => Position::START,
            (None, false) => last.end,
        };
        if let Some(damage) = &last.damage {
            complain(&note_on(damage, last.count, self.lines));
        }
        reader = reader.skip_damage(self.skip_damage);
        match reader.seek(first) {
            // Its batch has no header any more: it can only be read from earlier records on.
            Err(error) if is_damage(&error) => {
                reader = reader.skip_damage(true);
                reader.seek(last.way.from).map_err(|error| failure(&error))?;
                for _ in 0..last.way.records {
                    reader.next().map_err(|error| failure(&error))?;
                }
                // Those before the last records are not asked for.
                reader.damages();
            }
            sought => sought.map_err(|error| failure(&error))?,
        }
        let is_short = last.damage.is_some() && last.count < self.lines;
        let told_before = last.damage.map_or(Position::START, |_| first);
        Ok((reader, Begin { is_short, told_before }))
    }

    /// Looks for the last records from segment to segment, from the end on, with a reader that passes damage over.
    fn find_last(&self, reader: &mut LogReader) -> Result<Last, Failure> {
        let segment_bytes =
            LogReader::summary(&self.path).map_err(|error| failure(&error))?.segment_bytes;
        let end = reader.committed();
        let mut last = Last { end, ..Last::default() };
        let mut until = end;
        let mut segment = end.get() / segment_bytes;
        while last.count < self.lines && until > reader.first() && last.damage.is_none() {
            let begin = Position::new(segment * segment_bytes + FIRST_BATCH);
            let begin = if begin <= reader.first() { Position::START } else { begin };
            match reader.seek(begin) {
                // From an earlier segment on it is passed over.
                Err(error) if begin != Position::START && is_damage(&error) => {
                    segment -= 1;
                    continue;
                }
                sought => sought.map_err(|error| failure(&error))?,
            }
            let found = self.find_in(reader, begin, until, self.lines - last.count)?;
            last.put_before(found);
            if begin == Position::START {
                break;
            }
            until = begin;
            segment -= 1;
        }
        Ok(last)
    }

    /// The last records, at most so many, from where the reader is up to a position.
    fn find_in(
        &self,
        reader: &mut LogReader,
        begin: Position,
        until: Position,
        most: usize,
    ) -> Result<Last, Failure> {
        let mut found = VecDeque::new();
        let mut passed = 0;
        let mut damage = None;
        loop {
            let record = reader.next().map_err(|error| failure(&error))?.map(|it| it.position);
            let record = record.filter(|position| *position < until);
            // Before this record, or behind the last one.
            let mut damages = reader.damages().into_iter().filter(|damage| damage.position < until);
            if let (Some(latest), false) = (damages.next_back(), self.skip_damage) {
                damage = Some(latest);
                passed += found.len() as u64;
                found.clear();
            }
            let Some(position) = record else { break };
            if found.len() == most {
                found.pop_front();
                passed += 1;
            }
            found.push_back(position);
        }
        let way = Way { from: begin, records: passed };
        let count = found.len();
        // Damage that none of the wanted records is behind does not concern them.
        Ok(Last { first: found.pop_front(), count, way, damage, ..Last::default() })
    }

    fn print(&self, output: &mut impl Write, record: Record<'_>) -> io::Result<()> {
        let position = record.position.get();
        if self.format == Format::Json {
            let object = match str::from_utf8(record.bytes) {
                Ok(text) => json!({ "position": position, "text": text }),
                Err(_) => json!({ "position": position, "hex": hex(record.bytes) }),
            };
            return writeln!(output, "{object}");
        }
        if self.positions {
            write!(output, "{position}\t")?;
        }
        output.write_all(record.bytes)?;
        match (self.null, self.format) {
            (true, _) => output.write_all(&[0]),
            (false, Format::Raw) => Ok(()),
            (false, _) => output.write_all(b"\n"),
        }
    }
}

/// What the end of a damaged log lacks.
#[derive(Debug, Default)]
struct Begin {
    /// Some of the records that are asked for are not printed, as they are damaged or before damage.
    is_short: bool,
    /// What is damaged before this position has been told.
    told_before: Position,
}

/// The last records of a log.
#[derive(Debug, Default)]
struct Last {
    /// Where the first of them is, if there is one.
    first: Option<Position>,
    /// How many they are.
    count: usize,
    way: Way,
    /// What is damaged before the first of them, as far as was looked: others are behind it, or none.
    damage: Option<Damage>,
    /// Where the log ends.
    end: Position,
}

/// Where the first of the last records was found from, and how many records are between.
#[derive(Debug, Default, Clone, Copy)]
struct Way {
    from: Position,
    records: u64,
}

impl Last {
    /// Adds what was found before these.
    fn put_before(&mut self, found: Last) {
        if found.first.is_some() {
            (self.first, self.way) = (found.first, found.way);
        }
        self.count += found.count;
        self.damage = found.damage;
    }
}

/// What is said of damage before the records that are printed.
fn note_on(damage: &Damage, printed: usize, wanted: usize) -> String {
    let behind = match printed {
        0 => "no record is behind it".to_owned(),
        _ if printed < wanted => format!("only {} behind it", are(printed)),
        _ => "the records below are behind it".to_owned(),
    };
    format!(
        "warning: the log is damaged at {}; {behind}. --skip-damage prints what is whole before, too; \
         `fairlock log verify` lists all damage, `fairlock log repair` mends it",
        damage_as_text(damage)
    )
}

/// `1 record is`, `2 records are`.
fn are(records: usize) -> String {
    let are = if records == 1 { "is" } else { "are" };
    format!("{} {are}", counted(records as u64, "record"))
}

/// Whether a segment does not begin as it was written.
fn is_damage(error: &LogError) -> bool {
    matches!(
        error.kind(),
        LogErrorKind::NoRecord(_) | LogErrorKind::Damaged { .. } | LogErrorKind::MissingSegment
    )
}

/// A file, whatever its name is.
type FileId = (u64, u64);

fn id_of(path: &Path) -> io::Result<FileId> {
    fs::metadata(path).map(|it| (it.dev(), it.ino()))
}

/// The log that is followed, which may be renamed, removed or replaced meanwhile.
struct Place {
    directory: File,
    id: FileId,
    control: FileId,
}

impl Place {
    /// None if this cannot be known, as where there is no /proc.
    fn of(path: &Path) -> Option<Place> {
        let directory = File::open(path).ok()?;
        let about = directory.metadata().ok()?;
        let control = id_of(&control_in(&directory)).ok()?;
        Some(Place { directory, id: (about.dev(), about.ino()), control })
    }

    /// Why nothing more will come, if that is so. A log that was renamed goes on where it is, at least as long as
    /// somebody has it open for writing.
    fn lost(&self, path: &Path, is_open: bool) -> Option<&'static str> {
        match id_of(&control_in(&self.directory)) {
            Ok(control) if control == self.control => {}
            Ok(_) => return Some("its control page was replaced; start again to follow the log"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Some("the log was removed while it was followed");
            }
            Err(_) => return None,
        }
        let is_replaced = id_of(path).is_ok_and(|id| id != self.id);
        (is_replaced && !is_open)
            .then_some("another log is there now, and nobody writes the one that was followed")
    }
}

/// Wherever the directory is by now.
fn control_in(directory: &File) -> PathBuf {
    format!("/proc/self/fd/{}/control", directory.as_raw_fd()).into()
}

/// Whether nobody reads any more what is written there.
fn is_closed(output: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd { fd: output.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one question, which does not wait.
    let answers = unsafe { libc::poll(&mut asked, 1, 0) };
    answers == 1 && asked.revents & libc::POLLERR != 0
}

/// Two digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
