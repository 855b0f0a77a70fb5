//! Mends a damaged log in place: what is lost is covered by holes and gaps (invariant 7 of `format.rs`), and
//! headers whose contents are known are written anew. Then the log opens like any other.
//!
//! What is damaged, and what mends it, is what `verify.rs` finds. The order is such that a crash at any moment
//! leaves a log that can be repaired again, with nothing lost that was there before:
//!
//! 1. The caller becomes the log's one writer.
//! 2. All of the log is read. Nothing is changed if nothing is wrong.
//! 3. The bytes that will be changed are saved in files that no log has, and these are on the device.
//! 4. The control page, if it is damaged, is made anew. It knows how far the log goes, so that what follows
//!    cannot make it shorter. If the first position is in what is lost, it is moved on to what follows that, as
//!    readers begin there.
//! 5. The log is mended piece by piece (`mending.rs`). No piece needs another.
//!
//! If the log is to end before the first damage, the fifth step mends what is between that and the log's
//! beginning, and the headers and files of segments; then the rest of the log is cut off as
//! [`LogFile::truncate_after`](crate::LogFile::truncate_after) does it (`cutting.rs`). Its positions do not return.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::ahead;
use super::blocks::Blocks;
use super::control::{self, Control, Look, Written};
use super::cutting::{Cover, Cut};
use super::error::{LogError, LogErrorKind};
use super::format::{BATCH_HEADER, BLOCK, Layout, VERSION};
use super::mending::{Mend, Mending, read_block};
use super::opening;
use super::options::OpenMode;
use super::position::Position;
use super::recovery;
use super::segments::{self, Inventory};
use super::storage::{Storage, StoredFile};
use super::verify::{Damage, FirstDamage, Survey, Verified, likely_layout, survey};

/// What is saved, until all of it is there.
const NAME_WHILE_SAVED: &str = "damaged.new";
/// No log lacks so many segments: the page names an end that is none.
const MOST_MISSING: u64 = 1 << 16;

/// How to repair a log: for [`LogFile::repair`](crate::LogFile::repair).
///
/// ```
/// # use fairlock_io::{LogFile, RepairOptions};
/// # let directory = tempfile::tempdir_in(".")?;
/// # let path = directory.path().join("journal");
/// # LogFile::open(&path)?.close()?;
/// let report = LogFile::repair(&path, &RepairOptions::new().dry_run(true))?;
/// assert!(!report.is_needed);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct RepairOptions {
    pub(crate) dry_run: bool,
    pub(crate) up_to_damage: bool,
}

impl RepairOptions {
    /// Mends the log, and keeps every record that is whole.
    pub fn new() -> RepairOptions {
        RepairOptions::default()
    }

    /// Whether to change nothing, and only say what would be done. That needs only read access, and may be done
    /// beside a writer. Default: no.
    pub fn dry_run(mut self, dry_run: bool) -> RepairOptions {
        self.dry_run = dry_run;
        self
    }

    /// Whether the log is to end before the first damage, for users to whom a record means nothing without all
    /// those before it. Everything behind it is given up: saved, cut off, and its positions never used again.
    /// Damage that is no batch's or record's does not count: the control page, headers of segments. Default: no.
    pub fn up_to_damage(mut self, up_to_damage: bool) -> RepairOptions {
        self.up_to_damage = up_to_damage;
        self
    }
}

/// What a repair found and did: [`LogFile::repair`](crate::LogFile::repair).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// As [`LogReader::verify`](crate::LogReader::verify) finds it before the repair: what is lost is in it.
    pub found: Verified,
    /// Every damage, in the order of positions but for the headers of segments, which come first.
    pub damages: Vec<Damage>,
    /// Whether anything is to be mended. It may be though nothing is lost: damage before the first position
    /// keeps a log from opening, too.
    pub is_needed: bool,
    /// With [`up_to_damage`](RepairOptions::up_to_damage): where the log was cut off, or would be.
    pub cut_at: Option<Position>,
    /// Records that are whole and were given up, or would be, as they are behind that.
    pub given_up_records: u64,
    /// The files in which bytes were saved before they were changed. Each holds whole blocks of a segment from
    /// the position in its name on, `damaged-POSITION-NUMBER.bytes`, or the control page. The log has no use
    /// for them: remove them when nobody needs to look at them any more.
    pub saved: Vec<PathBuf>,
}

/// Mends what a log is to be opened with in spite of damage; what was found, if that was needed.
pub(crate) fn before_opening<S: Storage>(
    storage: &Arc<S>,
    mode: OpenMode,
) -> Result<Option<RepairReport>, LogError> {
    let options = match mode {
        OpenMode::Strict => return Ok(None),
        OpenMode::UpToDamage => RepairOptions::new().up_to_damage(true),
        OpenMode::SkipDamage => RepairOptions::new(),
    };
    match repair(Arc::clone(storage), &options) {
        // There may be none yet.
        Err(error) if *error.kind() == LogErrorKind::NotALog => Ok(None),
        report => report.map(|report| Some(report).filter(|report| report.is_needed)),
    }
}

pub(crate) fn repair<S: Storage>(
    storage: Arc<S>,
    options: &RepairOptions,
) -> Result<RepairReport, LogError> {
    let lock = match options.dry_run {
        true => None,
        false => Some(lock(&*storage)?),
    };
    if lock.is_some() {
        finish_cut(&storage)?;
    }
    let mut damages = Vec::new();
    let is_writer = lock.is_some();
    let found = survey(Arc::clone(&storage), is_writer, &mut |damage| damages.push(damage))?;
    let cut = match options.up_to_damage {
        true => found.first_damage.map(|damage| cut_before(&found, &damage)),
        false => None,
    };
    let given_up = found.first_damage.filter(|_| cut.is_some());
    let mut report = RepairReport {
        found: found.found,
        damages,
        is_needed: !found.has_page || !found.mends.is_empty() || found.moved_first.is_some(),
        cut_at: cut.map(|cut| Position::new(cut.at).max(found.found.first)),
        given_up_records: given_up.map_or(0, |damage| damage.records),
        saved: Vec::new(),
    };
    if options.dry_run || !report.is_needed {
        return Ok(report);
    }
    let mends: Vec<&Mend> =
        found.mends.iter().filter(|mend| is_wanted(mend, cut, &found)).collect();
    check_number_missing(&*storage, &mends)?;

    let mut saving = Saving { storage: &*storage, layout: found.layout, saved: Vec::new() };
    saving.save(&found, &mends, cut)?;
    report.saved = saving.saved;
    // Not yet if all is cut off: until the page says so, a repair after a crash must find the damage again.
    let is_all_cut = cut.is_some_and(|cut| cut.at < found.found.first.get());
    let first = found.moved_first.filter(|_| !is_all_cut);
    let version = Control::open(&*storage, false).map(|control| control.version());
    if !found.has_page || version.is_ok_and(|version| version != VERSION) {
        replace_page(&*storage, &found, first)?;
    } else if let Some(first) = first {
        move_first(&*storage, first)?;
    }
    if let Some(cut) = cut {
        // Before anything is mended: afterwards nothing would say that the log is to end here.
        change_page(&*storage, |page| page.begin_cut(&cut))?;
    }
    let mut mending = Mending::new(&storage, found.layout);
    for mend in mends {
        mending.make(mend)?;
    }
    drop(mending);
    if let Some(cut) = cut {
        cover(&storage, &cut, found.epoch)?;
        if is_all_cut {
            move_first(&*storage, found.layout.end_before(cut.end))?;
        }
    }
    check_opens(&storage)?;
    drop(lock);
    Ok(report)
}

/// Finds the end of the log as the next opening will.
fn check_opens<S: Storage>(storage: &Arc<S>) -> Result<(), LogError> {
    let control = Control::open(&**storage, false)?;
    let look = control.look()?;
    let list = |error| LogError::system("list", storage.path(), error);
    let segments = segments::Inventory::of(&**storage).map_err(list)?.segments;
    let (_, segments) = recovery::without_given_up(control.layout(), &look, segments);
    opening::find_end(storage, control.layout(), &look, &segments).map(|_| ())
}

/// Becomes the writer of a log, whatever its control page is.
fn lock<S: Storage>(storage: &S) -> Result<S::Lock, LogError> {
    let path = storage.path();
    let failing = |tried: &'static str| move |error| LogError::system(tried, path, error);
    loop {
        // What is no log is to stay as it is.
        let process = match Control::open(storage, false) {
            Ok(control) => control.look().ok().and_then(|look| look.process),
            Err(error) => match error.kind() {
                LogErrorKind::Damaged { .. } | LogErrorKind::NotALog => None,
                _ => return Err(error),
            },
        };
        let (page, name) = match storage.page(control::NAME, true) {
            Ok(page) => (page, control::NAME.to_owned()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
                ) =>
            {
                let Some(layout) = likely_layout(storage)? else {
                    return Err(Control::open(storage, false)
                        .err()
                        .unwrap_or_else(|| LogError::new(LogErrorKind::NotALog, path)));
                };
                let name = Control::<S::Page>::make_stand_in(storage, &layout);
                let name = name.map_err(failing("make a file in"))?;
                (storage.page(&name, true).map_err(failing("open a file in"))?, name)
            }
            Err(error) => {
                let page = path.join(control::NAME);
                return Err(LogError::system("open", &page, error));
            }
        };
        let Some(lock) = storage.lock(control::LOCK, &page).map_err(failing("lock"))? else {
            let process = process.unwrap_or(0);
            return Err(LogError::new(LogErrorKind::BusyWriter { process }, path));
        };
        // Another writer may have replaced it since it was opened.
        let in_place = storage.is_in_place(&lock, &name, &page);
        if in_place.map_err(failing("look at the files of"))? {
            Control::<S::Page>::remove_unfinished(storage).map_err(failing("remove in"))?;
            return Ok(lock);
        }
    }
}

/// Covers what somebody was cutting off, as the next opening would: nothing there is missed.
fn finish_cut<S: Storage>(storage: &Arc<S>) -> Result<(), LogError> {
    let look = Control::open(&**storage, false).and_then(|control| {
        let look = control.look()?;
        let list = |error| LogError::system("list", storage.path(), error);
        let Inventory { segments, .. } = Inventory::of(&**storage).map_err(list)?;
        recovery::check_cut(&**storage, control.layout(), &look, &segments)?;
        Ok(look)
    });
    match look {
        Ok(look) => look.cut().map_or(Ok(()), |cut| cover(storage, &cut, cut.epoch)),
        // The page will be mended first.
        Err(_) => Ok(()),
    }
}

/// Changes what the page says was cut off.
fn change_page<S: Storage>(
    storage: &S,
    change: impl Fn(&Written<S::Page>) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let control = Control::open(storage, true)?;
    let look = control.look()?;
    let written = Written::new(control, &look);
    opening::with_reserve(storage, || change(&written))
}

/// Covers what the page says is cut off, and lets the page forget it.
fn cover<S: Storage>(storage: &Arc<S>, cut: &Cut, epoch: u32) -> Result<(), LogError> {
    let control = Control::open(&**storage, false)?;
    let layout = control.layout();
    let epoch = control.look()?.epoch.unwrap_or(0).max(epoch);
    Cover { storage, layout, epoch, durable: 0, current: None }.cover(cut)?;
    change_page(&**storage, Written::end_cut)
}

/// Lets the log begin elsewhere, as no record begins at its first position any more.
fn move_first<S: Storage>(storage: &S, first: u64) -> Result<(), LogError> {
    let control = Control::open(storage, true)?;
    let look = control.look()?;
    let written = Written::new(control, &look);
    opening::with_reserve(storage, || {
        written.set_first(first)?;
        written.sync()
    })
}

/// What is cut off if the log is to end before this.
fn cut_before(found: &Survey, damage: &FirstDamage) -> Cut {
    let end = found.found.end.get();
    match damage.batch {
        Some(batch) => Cut::of(&batch, damage.at, end),
        None => Cut {
            batch: damage.at,
            used: BATCH_HEADER as u32,
            epoch: found.epoch.max(1),
            at: damage.at,
            end,
        },
    }
}

/// Whether this is to be mended, if something is cut off.
fn is_wanted(mend: &Mend, cut: Option<Cut>, found: &Survey) -> bool {
    let Some(cut) = cut else { return true };
    match mend {
        // The files of what is cut off must be there, and open.
        Mend::Header { .. } | Mend::Missing { .. } | Mend::Blank { .. } => true,
        other => other.end(&found.layout) <= cut.at,
    }
}

fn check_number_missing<S: Storage>(storage: &S, mends: &[&Mend]) -> Result<(), LogError> {
    let is_too_many = |mend: &&&Mend| matches!(mend, Mend::Missing { segments, .. } if segments.end - segments.start > MOST_MISSING);
    match mends.iter().any(|mend| is_too_many(&mend)) {
        true => {
            let path = storage.path().join(control::NAME);
            Err(control::damaged(&path, "the end of the log in the control page"))
        }
        false => Ok(()),
    }
}

/// Makes the control page anew, of what is known.
fn replace_page<S: Storage>(
    storage: &S,
    found: &Survey,
    first: Option<u64>,
) -> Result<(), LogError> {
    let layout = found.layout;
    let failing = |error| LogError::system("replace", &storage.path().join(control::NAME), error);
    let end = found.found.end.get();
    let inventory = segments::Inventory::of(storage).map_err(failing)?;
    let there = inventory.segments.first().copied().unwrap_or(0);
    let first = first.or(found.page.first).filter(|&first| first <= end);
    let page = Look {
        first: Some(first.unwrap_or(layout.first_batch(there))),
        durable: Some(found.page.durable.unwrap_or(0).max(end)),
        epoch: Some(found.page.epoch.unwrap_or(0).max(found.epoch)),
        ..found.page.clone()
    };
    opening::with_reserve(storage, || {
        Control::<S::Page>::replace(storage, layout, &page).map_err(failing)
    })
}

/// Saves what a repair changes.
struct Saving<'a, S: Storage> {
    storage: &'a S,
    layout: Layout,
    saved: Vec<PathBuf>,
}

impl<S: Storage> Saving<'_, S> {
    fn save(&mut self, found: &Survey, mends: &[&Mend], cut: Option<Cut>) -> Result<(), LogError> {
        let layout = self.layout;
        let number = self.number()?;
        if !found.has_page {
            self.save_page(number)?;
        }
        // Whole blocks, each once.
        let mut ranges: Vec<Range<u64>> = mends
            .iter()
            .filter_map(|mend| mend.changes(&layout))
            .chain(found.rest.clone())
            .collect();
        if let Some(Cut { at, end, .. }) = cut {
            let segments = layout.segment(at)..=layout.segment_before(end);
            ranges.extend(
                segments.map(|segment| at.max(layout.start(segment))..end.min(layout.end(segment))),
            );
        }
        for range in &mut ranges {
            range.start -= range.start % BLOCK as u64;
            range.end = range.end.next_multiple_of(BLOCK as u64);
        }
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last)
                    if range.start <= last.end
                        && layout.segment(range.start) == layout.segment(last.start) =>
                {
                    last.end = last.end.max(range.end);
                }
                _ => merged.push(range),
            }
        }
        for range in merged {
            self.save_range(range, number)?;
        }
        if !self.saved.is_empty() {
            self.storage.sync_names().map_err(|error| self.cannot(error))?;
        }
        Ok(())
    }

    /// That no file has which was saved by an earlier repair.
    fn number(&self) -> Result<u64, LogError> {
        let names = self.storage.names().map_err(|error| self.cannot(error))?;
        Ok(names
            .iter()
            .filter_map(|name| segments::number_of_saved(name))
            .max()
            .map_or(1, |number| number + 1))
    }

    fn cannot(&self, error: io::Error) -> LogError {
        LogError::system("save what is damaged in", self.storage.path(), error)
    }

    fn save_page(&mut self, number: u64) -> Result<(), LogError> {
        let file = match self.storage.open(control::NAME, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file.map_err(|error| self.cannot(error))?,
        };
        self.copy(&file, 0, 0..BLOCK as u64, &segments::saved_name("control", number))
    }

    fn save_range(&mut self, range: Range<u64>, number: u64) -> Result<(), LogError> {
        let layout = self.layout;
        let segment = layout.segment(range.start);
        let file = match self.storage.open(&segments::name_of(segment), false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file.map_err(|error| self.cannot(error))?,
        };
        let name = segments::saved_name(&range.start.to_string(), number);
        self.copy(&file, layout.start(segment), range, &name)
    }

    /// Copies a part of a file that begins at `start` into a new one, without the zeros at its end; none is made
    /// if there is nothing else.
    fn copy(
        &mut self,
        from: &S::File,
        start: u64,
        range: Range<u64>,
        name: &str,
    ) -> Result<(), LogError> {
        let path = self.storage.path().join(name);
        let cannot = |error| LogError::system("save what is damaged in", &path, error);
        match self.storage.remove(NAME_WHILE_SAVED) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
            _ => {}
        }
        let mut to = None;
        let mut bytes = Blocks::zeroed(ahead::CHUNK.min((range.end - range.start) as usize));
        let mut at = range.start;
        while at < range.end {
            let size = bytes.len().min((range.end - at) as usize);
            let chunk = &mut bytes[..size];
            chunk.fill(0);
            let read = match from.read(chunk, at - start) {
                Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                    for (number, block) in chunk.chunks_mut(BLOCK).enumerate() {
                        let offset = at - start + (number * BLOCK) as u64;
                        read_block(from, offset, block).map_err(cannot)?;
                    }
                    size
                }
                read => read.map_err(cannot)?,
            };
            if chunk.iter().any(|&byte| byte != 0) {
                if to.is_none() {
                    to = Some(self.storage.create(NAME_WHILE_SAVED).map_err(cannot)?);
                }
                let file = to.as_ref().expect("just made");
                let used = chunk.iter().rposition(|&byte| byte != 0).unwrap_or(0) + 1;
                let used = used.next_multiple_of(BLOCK);
                file.write(&chunk[..used], at - range.start, false).map_err(cannot)?;
            }
            if read < size {
                break;
            }
            at += size as u64;
        }
        if let Some(file) = to {
            file.sync().map_err(cannot)?;
            self.storage.rename_new(NAME_WHILE_SAVED, name).map_err(cannot)?;
            self.saved.push(path);
        }
        Ok(())
    }
}
