//! Reads all of a log and lists what is damaged in it, then goes on behind the damage.
//!
//! What was acknowledged must be whole: everything up to the end that the control page knows, or that a
//! later batch proves (see `recovery.rs`). Each kind of header checks by itself, so much is found again:
//!
//! * Bytes of a record: it alone is lost.
//! * A record's header: the next of the same batch is looked for, at each place where a record may begin.
//! * A batch's header: records are looked for up to the next batch that checks.
//! * A segment's header: its batches say themselves where they belong.
//!
//! What an earlier epoch left behind does not count, as nowhere else: epochs never fall along a log.
//! Behind the known end only whole batches count. What is there of a write that was cut off is no damage.
//! Neither are holes and gaps, which stand for what was given up: they are counted.
//!
//! A damaged record that held what looks like a record's header, because somebody put it there, is reported;
//! what it held may be counted as a record all the same, as nothing says any more where it began.
//!
//! While a writer has the log open, what it commits after the beginning is not looked at.
//!
//! Whatever is found to be wrong is also noted as what would mend it ([`Mend`]): `repair.rs` does that.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::control::{self, Control, Look};
use super::cutting::{Cut, Cuts};
use super::error::{LogError, LogErrorKind};
use super::format::{
    BATCH_HEADER, BLOCK, BatchHeader, FIRST_BATCH, Kind, Layout, MOST_BATCH, RECORD_ALIGNMENT,
    RECORD_HEADER, RecordHeader,
};
use super::mending::Mend;
use super::opening;
use super::position::Position;
use super::recovery::{self, Place};
use super::segments::{self, Inventory};
use super::storage::Storage;
use super::window::{Window, layout_by_segment, open_segment};

/// Read at a time.
const WINDOW: usize = 1 << 20;

/// A piece of a log that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Where it begins.
    pub position: Position,
    /// The segment; none for the control page.
    pub segment: Option<u64>,
    /// Where it begins in its file.
    pub offset: u64,
    /// How many bytes from there on cannot be told to be what was written.
    pub bytes: u64,
    /// What should be there.
    pub what: Damaged,
    /// The file.
    pub path: PathBuf,
}

impl Damage {
    pub(crate) fn new<S: Storage>(
        storage: &S,
        layout: &Layout,
        what: Damaged,
        position: u64,
        bytes: u64,
    ) -> Damage {
        let segment = layout.segment(position);
        Damage {
            position: Position::new(position),
            segment: Some(segment),
            offset: layout.offset(position),
            bytes,
            what,
            path: storage.path().join(segments::name_of(segment)),
        }
    }
}

/// What a [`Damage`] took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Damaged {
    /// The bytes of a record, which is lost.
    Record,
    /// The header of a record, which is lost, as are others up to the end of the damage, if any were there.
    RecordHeader,
    /// The header of a batch. Its records are looked at all the same.
    BatchHeader,
    /// A batch, none of whose records was found; if it had any.
    Batch,
    /// What follows a batch's last record, up to the end of its last block: the file ends before. No record
    /// is lost.
    Padding,
    /// The first block of a segment. Its records are looked at all the same.
    SegmentHeader,
    /// A segment's file, which is missing.
    Segment,
    /// The control page. The log is read without it: what is missing behind the last batch that is whole may go
    /// unnoticed.
    ControlPage,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Damaged::Record => "a record",
            Damaged::RecordHeader => "a record's header",
            Damaged::BatchHeader => "a batch's header",
            Damaged::Batch => "a batch",
            Damaged::Padding => "the end of a batch",
            Damaged::SegmentHeader => "a segment's header",
            Damaged::Segment => "a segment that is missing",
            Damaged::ControlPage => "the control page",
        })
    }
}

/// What [`LogReader::verify`](crate::LogReader::verify) found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Segments that are there, those made ahead included.
    pub segments: u64,
    /// Batches whose header is whole.
    pub batches: u64,
    /// Records that are whole.
    pub records: u64,
    /// Their bytes.
    pub payload_bytes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// How many damages were reported.
    pub damages: u64,
    /// Records that are lost.
    pub lost_records: u64,
    /// Whether more may be lost than those: what says how many there were is gone, too.
    pub lost_more: bool,
    /// The first position that was not given up.
    pub first: Position,
    /// Where the next batch would begin: the log ends here, or before. While a writer has it open, how far it
    /// was looked at.
    pub end: Position,
    /// A batch at the end that was being written when its writer died and is not whole. It was not
    /// acknowledged. If the control page is damaged, the batch may be damaged, too: then `lost_more` is true.
    pub torn: Option<Position>,
    /// Bytes of whole batches behind the end, which were never brought to the device before the loss of
    /// power: see [`Recovery::lost_bytes`](crate::Recovery::lost_bytes).
    pub lost_bytes: u64,
    /// Holes in batches: records that were damaged, and given up by a repair.
    pub holes: u64,
    /// Gaps between batches: batches that were damaged or missing, and given up by a repair.
    pub gaps: u64,
    /// The bytes in holes and gaps.
    pub given_up_bytes: u64,
    /// Whether a writer had it open.
    pub open_for_writing: bool,
}

/// Reads a log from its first position to its end; `report` gets every damage, in the order of positions
/// but for the headers of segments, which come first.
pub(crate) fn verify<S: Storage>(
    storage: S,
    report: &mut dyn FnMut(Damage),
) -> Result<Verified, LogError> {
    Ok(survey(Arc::new(storage), false, report)?.found)
}

/// What is found in a log, and what would mend it.
pub(crate) struct Survey {
    pub(crate) found: Verified,
    pub(crate) layout: Layout,
    /// What the control page says; of one that is damaged, what could be read of it.
    pub(crate) page: Look,
    /// Whether the page itself is whole.
    pub(crate) has_page: bool,
    /// Of the last batch.
    pub(crate) epoch: u32,
    /// In the order in which they were found.
    pub(crate) mends: Vec<Mend>,
    /// The first thing that is damaged, other than the headers of segments and the page; none if nothing is.
    pub(crate) first_damage: Option<FirstDamage>,
    /// What is to become the first position, as no batch and no record begins at the present one; none if one
    /// does.
    pub(crate) moved_first: Option<u64>,
    /// Without the page: what may have been the last batch, and is not whole. The next appends take its place.
    pub(crate) rest: Option<Range<u64>>,
}

/// Where the part of a log ends before which nothing is damaged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstDamage {
    /// The batch that it is in; none if a batch begins there, or should.
    pub(crate) batch: Option<BatchHeader>,
    pub(crate) at: u64,
    /// Records that are whole, here and behind it.
    pub(crate) records: u64,
}

/// Reads all of a log, and notes what would mend it. Changes nothing. `is_writer`: the caller is the log's one
/// writer, so that nothing is appended meanwhile.
pub(crate) fn survey<S: Storage>(
    storage: Arc<S>,
    is_writer: bool,
    report: &mut dyn FnMut(Damage),
) -> Result<Survey, LogError> {
    let is_damaged = |error: &LogError| {
        matches!(error.kind(), LogErrorKind::NotALog | LogErrorKind::Damaged { .. })
    };
    let opened = Control::open(&*storage, false).and_then(|control| {
        let page = control.look()?;
        Ok((control, page))
    });
    // Before the list of segments: what is committed now is in segments that are there.
    let (mut control, layout, page) = match opened {
        Ok((control, page)) => {
            let layout = control.layout();
            (Some(control), layout, page)
        }
        Err(error) if is_damaged(&error) => match likely_layout(&*storage)? {
            Some(layout) => (None, layout, Control::salvage(&*storage, layout)),
            None => return Err(error),
        },
        Err(error) => return Err(error),
    };
    let asked = control.as_ref().filter(|_| !is_writer);
    let known = Known::of(&*storage, asked, &page, layout)?;
    let list = |error| LogError::system("list", storage.path(), error);
    let Inventory { mut segments, .. } = Inventory::of(&*storage).map_err(list)?;
    // What has a name that no segment of this log can have is none.
    segments.retain(|&segment| layout.may_have(segment));
    let there = segments.first().copied().unwrap_or(0);
    let mut first = page.first.unwrap_or_else(|| layout.first_batch(there));
    let last = segments.last().map_or(0, |&last| layout.end(last));
    let mut page = page;
    if first > layout.next_batch(known.end.max(last)) {
        // The log would begin behind its end.
        (first, page.first, control) = (layout.first_batch(there), None, None);
    }
    if recovery::check_cut(&*storage, layout, &page, &segments).is_err() {
        (page.cuts, control) = (page.cuts.map(Cuts::covered), None);
    }
    let mut window = Window::new(Arc::clone(&storage), layout, WINDOW).with_any_header();
    let is_in_segments =
        page.closed.is_some_and(|it| segments.contains(&layout.segment(layout.next_batch(it))));
    if is_in_segments && !known.open && recovery::is_older(&page, &mut window).unwrap_or(false) {
        (page.closed, page.committed, control) = (None, None, None);
    }
    let mut walk = Walk {
        storage,
        is_writer,
        cut: page.cut(),
        opening: page.epoch.unwrap_or(0),
        control,
        layout,
        window,
        first,
        known: known.end,
        epoch: 0,
        durable: 0,
        made_in: 0,
        headers: BTreeMap::new(),
        mends: Vec::new(),
        first_damage: None,
        recent: Vec::new(),
        entry: None,
        moved_first: None,
        rest: None,
        found: Verified { first: Position::new(first), ..Verified::default() },
        report,
    };
    walk.run(&segments, &known)?;
    Ok(Survey {
        found: walk.found,
        layout,
        has_page: walk.control.is_some(),
        epoch: walk.epoch,
        mends: walk.mends,
        first_damage: walk.first_damage,
        moved_first: walk.moved_first,
        rest: walk.rest,
        page,
    })
}

/// What the control page says of the end.
struct Known {
    /// All before was acknowledged: where what follows it begins.
    end: u64,
    /// A writer has the log open.
    open: bool,
    /// The kernel has not been restarted since the log was opened, or nothing says that it was.
    same_boot: bool,
}

impl Known {
    fn of<S: Storage>(
        storage: &S,
        control: Option<&Control<S::Page>>,
        page: &Look,
        layout: Layout,
    ) -> Result<Known, LogError> {
        let open = control.map(|control| control.has_writer(storage)).transpose()?;
        let same_boot = opening::is_same_boot(storage, page);
        // While this kernel runs, the page of a copy's original was not lost, either.
        let committed = page.committed.filter(|_| page.boot == Some(storage.boot()));
        let ends = [page.closed, page.durable, committed];
        let end = ends.into_iter().flatten().map(|end| layout.next_batch(end)).max();
        // What lies behind a gap in a copy is not what a loss of power has left.
        // If the page is gone that would say in which run of the kernel it was written, nothing speaks for one.
        let same_boot = same_boot || page.is_copy || page.boot.is_none();
        let open = open.unwrap_or(false);
        Ok(Known { end: end.unwrap_or(FIRST_BATCH), open, same_boot })
    }
}

/// The shape of a log that lost its control page: that of most of its segments, as one of another log may be
/// among them.
pub(crate) fn likely_layout<S: Storage>(storage: &S) -> Result<Option<Layout>, LogError> {
    let list = |error| LogError::system("list", storage.path(), error);
    let Inventory { segments, .. } = Inventory::of(storage).map_err(list)?;
    let mut layouts: Vec<(Layout, usize)> = Vec::new();
    for segment in segments {
        match layout_by_segment(storage, segment) {
            Ok(layout) => match layouts.iter_mut().find(|it| it.0 == layout) {
                Some((_, count)) => *count += 1,
                None => layouts.push((layout, 1)),
            },
            // Nothing else says that it is damage.
            Err(error) if matches!(error.kind(), LogErrorKind::NewerVersion { .. }) => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
    // The first of those that are as frequent.
    Ok(layouts.into_iter().rev().max_by_key(|it| it.1).map(|it| it.0))
}

struct Walk<'a, S: Storage> {
    storage: Arc<S>,
    /// Nobody else writes the log.
    is_writer: bool,
    control: Option<Control<S::Page>>,
    layout: Layout,
    window: Window<S>,
    /// Records before it were given up.
    first: u64,
    /// All before it was acknowledged.
    known: u64,
    /// Of what was found last.
    epoch: u32,
    /// All below was on the device, as batches say that are whole.
    durable: u64,
    /// The latest in the header of a segment that the walk came to.
    made_in: u32,
    /// The epochs in the headers of segments; none in those that are damaged.
    headers: BTreeMap<u64, Option<u32>>,
    mends: Vec<Mend>,
    first_damage: Option<FirstDamage>,
    /// Records in the batch that is looked at, as long as nothing is damaged.
    recent: Vec<u64>,
    /// The least place from the first position on where a batch or a record begins once everything is mended.
    entry: Option<u64>,
    moved_first: Option<u64>,
    rest: Option<Range<u64>>,
    /// What is being cut off, and may be anything.
    cut: Option<Cut>,
    /// Of the latest opening when the walk began.
    opening: u32,
    found: Verified,
    report: &'a mut dyn FnMut(Damage),
}

impl<S: Storage> Walk<'_, S> {
    fn run(&mut self, segments: &[u64], known: &Known) -> Result<(), LogError> {
        self.found.open_for_writing = known.open;
        if self.control.is_none() {
            self.control_damaged();
        }
        let begin = self.layout.segment_before(self.first);
        let there = &segments[segments.partition_point(|&segment| segment < begin)..];
        for &segment in there {
            self.look_at_header(segment)?;
        }
        let mut at = self.walk(self.layout.first_batch(begin), there)?;
        if !known.open {
            while let Some(proven) = self.walk_beyond(&mut at, there, known.same_boot)? {
                self.known = proven;
                at = self.walk(at, there)?;
            }
        }
        // Those that the log has not come to.
        while let Some((segment, header)) = self.headers.pop_first() {
            if header.is_none() {
                self.mends.push(Mend::Header { segment, epoch: self.least_epoch() });
            }
        }
        if self.control.is_some() && self.first > at {
            self.control = None;
            self.control_damaged();
        } else if self.first <= at {
            self.check_first(at);
        }
        self.found.end = Position::new(at);
        self.found.read_bytes = self.window.bytes_read;
        Ok(())
    }

    /// Readers begin at the first position, so a batch or a record must begin there. If what is damaged covers it,
    /// the log begins behind that. If nothing does, the page names a place that it should not.
    fn check_first(&mut self, end: u64) {
        let layout = self.layout;
        self.may_enter(end);
        let first = layout.next_batch(self.first);
        let Some(entry) = self.entry.filter(|&entry| entry != first) else { return };
        if self.first_now() != self.first {
            // What was given up meanwhile may have been read as something else.
            return;
        }
        // The end may be in a segment that is not begun before something is appended.
        self.moved_first = Some(if entry == end { layout.end_before(entry) } else { entry });
        let is_covered = |mend: &Mend| (mend.begin(&layout)..mend.end(&layout)).contains(&first);
        if self.control.is_some() && !self.mends.iter().any(is_covered) {
            self.control = None;
            self.control_damaged();
        }
    }

    /// Notes where a batch or a record begins, or will when everything is mended.
    fn may_enter(&mut self, at: u64) {
        if at >= self.layout.next_batch(self.first) {
            self.entry = Some(self.entry.map_or(at, |entry| entry.min(at)));
        }
    }

    fn control_damaged(&mut self) {
        self.found.damages += 1;
        (self.report)(Damage {
            position: Position::START,
            segment: None,
            offset: 0,
            bytes: BLOCK as u64,
            what: Damaged::ControlPage,
            path: self.storage.path().join(control::NAME),
        });
    }

    fn look_at_header(&mut self, segment: u64) -> Result<(), LogError> {
        self.found.segments += 1;
        let epoch = match open_segment(&*self.storage, self.layout, segment, false) {
            Ok((_, epoch)) => Some(epoch),
            Err(error) => match error.kind() {
                LogErrorKind::Damaged { .. } => None,
                // Given up meanwhile; otherwise it is noticed when the walk comes to it.
                LogErrorKind::MissingSegment => return Ok(()),
                _ if is_unreadable(&error) => None,
                _ => return Err(error),
            },
        };
        self.headers.insert(segment, epoch);
        if epoch.is_none() {
            let begin = self.layout.start(segment);
            let end = self.layout.end(segment);
            self.damaged(Damaged::SegmentHeader, begin, FIRST_BATCH, end, 0);
        }
        Ok(())
    }

    /// Looks at everything from a batch to the known end; where the first batch behind that may begin.
    fn walk(&mut self, from: u64, segments: &[u64]) -> Result<u64, LogError> {
        let mut at = from;
        while at < self.known {
            let segment = self.layout.segment(at);
            let first = self.layout.segment_before(self.first_now());
            if segment < first {
                at = self.layout.first_batch(first);
                continue;
            }
            if let Some(cut) = self.cut.filter(|cut| cut.batch == at) {
                self.may_enter(cut.batch);
                self.may_enter(cut.at);
                at = self.layout.next_batch(cut.end);
                continue;
            }
            if at == self.layout.first_batch(segment) && !self.is_there(segment)? {
                // The page may name an end far away.
                let there = segments.partition_point(|&there| there <= segment);
                let end = self.beyond_known();
                let next = segments.get(there).map_or(end, |&there| end.min(there));
                self.missing(segment, next);
                (segment..next).take(2).for_each(|it| self.may_enter(self.layout.first_batch(it)));
                at = self.layout.first_batch(next).min(self.known);
                let epoch = self.least_epoch();
                self.mend(Mend::Missing { segments: segment..next, epoch, to: Some(at) });
                continue;
            }
            if at == self.layout.first_batch(segment) {
                self.come_to(segment);
            }
            at = match self.batch_at(at)? {
                Some(batch) => self.look_at_batch(&batch)?,
                None => self.look_without_header(at)?,
            };
        }
        Ok(at)
    }

    /// Goes on from batch to batch as long as they are whole, though it is not known that they were
    /// acknowledged. If what lies behind shows that the log goes on, up to where it was acknowledged.
    fn walk_beyond(
        &mut self,
        at: &mut u64,
        segments: &[u64],
        same_boot: bool,
    ) -> Result<Option<u64>, LogError> {
        let mut torn = None;
        let mut impossible = Vec::new();
        while segments.binary_search(&self.layout.segment(*at)).is_ok() {
            let segment = self.layout.segment(*at);
            if *at == self.layout.first_batch(segment) {
                self.come_to(segment);
            }
            match recovery::look_at(&mut self.window, *at) {
                Ok(Place::Whole(batch)) if batch.epoch >= self.epoch => {
                    *at = self.look_at_batch(&batch)?;
                    continue;
                }
                Ok(Place::Part(..)) => torn = Some(*at),
                Ok(Place::Impossible(_)) => impossible.push(*at),
                Ok(Place::Whole(_) | Place::Nothing) => {}
                Err(error) if is_unreadable(&error) => {}
                Err(error) => return Err(error),
            }
            break;
        }

        let gap = *at;
        let layout = self.layout;
        let mut proven = gap;
        let mut lost_bytes = 0;
        for &segment in segments.iter().filter(|&&it| it >= layout.segment(gap)) {
            let from = gap.max(layout.start(segment));
            let found =
                recovery::behind(&mut self.window, from, segment, self.epoch, |position, found| {
                    match found {
                        Ok(batch) => {
                            let end = batch.position + batch.size();
                            let shown = if same_boot { end } else { batch.durable };
                            proven = proven.max(layout.next_batch(shown));
                        }
                        Err(_) => impossible.push(position),
                    }
                    Ok(())
                });
            lost_bytes += found?;
        }
        if self.is_open_now()? {
            // What was just found may have been written meanwhile.
            return Ok(None);
        }
        if proven > gap {
            return Ok(Some(proven));
        }
        self.found.torn = torn.map(Position::new);
        self.found.lost_bytes = lost_bytes;
        if self.control.is_none() {
            self.look_at_rest(gap)?;
        }
        // The log does not go there, but cannot be opened for writing like this.
        for at in impossible {
            let size = BATCH_HEADER as u64;
            self.damaged(Damaged::BatchHeader, at, size, at + BLOCK as u64, 0);
            self.mends.push(Mend::Blank { at });
        }
        for (&one, &next) in segments.iter().zip(segments.iter().skip(1)) {
            // Those before are known to be missing.
            let from = self.beyond_known().max(one + 1);
            if from < next {
                self.missing(from, next);
                let epoch = self.least_epoch();
                self.mends.push(Mend::Missing { segments: from..next, epoch, to: None });
            }
        }
        Ok(None)
    }

    /// Looks for a last batch of which only a part is whole. Without the page nobody knows whether it was being
    /// written, or is damaged.
    fn look_at_rest(&mut self, gap: u64) -> Result<(), LogError> {
        let limit = self.layout.end(self.layout.segment(gap)).min(gap + MOST_BATCH as u64);
        let mut end = self.batch_at(gap)?.map_or(gap, |batch| batch.end_of_records());
        let from = gap + BATCH_HEADER as u64;
        while let Some((at, record)) = self.find_loose(end.max(from), limit, gap, None)? {
            end = record.end(at);
        }
        if end > gap {
            self.found.lost_more = true;
            self.rest = Some(gap..end);
        }
        Ok(())
    }

    /// The first segment that has no batch before the known end.
    fn beyond_known(&self) -> u64 {
        let last = self.layout.segment(self.known);
        last + u64::from(self.known > self.layout.first_batch(last))
    }

    /// What covers something here has this epoch: not earlier than what is before it, and not later than what
    /// follows.
    fn least_epoch(&self) -> u32 {
        self.epoch.max(self.made_in).max(1)
    }

    /// The walk begins a segment: if its header is damaged, it will have an epoch that is not later than what
    /// follows.
    fn come_to(&mut self, segment: u64) {
        match self.headers.remove(&segment) {
            Some(None) => {
                self.made_in = self.least_epoch();
                self.mends.push(Mend::Header { segment, epoch: self.made_in });
            }
            Some(Some(epoch)) => self.made_in = self.made_in.max(epoch),
            None => {}
        }
    }

    /// Notes what mends a damage in the part of the log that readers come to.
    fn mend(&mut self, mend: Mend) {
        if self.first_damage.is_none() && mend.end(&self.layout) > self.first_now() {
            let (batch, at) = match &mend {
                Mend::Hole { batch, from, .. } => (Some(*batch), *from),
                other => (None, other.begin(&self.layout)),
            };
            let records = self.recent.iter().filter(|&&record| record >= at).count() as u64;
            self.first_damage = Some(FirstDamage { batch, at, records });
            self.recent = Vec::new();
        }
        self.mends.push(mend);
    }

    /// Covers what is damaged from one place where a batch begins to the next.
    fn cover(&mut self, from: u64, next: u64) {
        if from < next {
            self.may_enter(from);
            let epoch = self.least_epoch();
            let to = self.layout.next_batch(next);
            self.mend(Mend::Gap { from, to, epoch, durable: self.durable.min(from) });
        }
    }

    /// Whether the segment is there, which the walk comes to.
    fn is_there(&mut self, segment: u64) -> Result<bool, LogError> {
        // It may have been narrowed by blocks that cannot be read.
        self.window.resize(WINDOW);
        let name = segments::name_of(segment);
        match self.storage.open(&name, false) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => {
                let path = self.storage.path().join(name);
                Err(LogError::system("open", &path, error).at(segment, 0))
            }
        }
    }

    /// Reports segments that are not there, up to the one that is.
    fn missing(&mut self, segment: u64, there: u64) {
        let begin = self.layout.start(segment);
        let end = self.layout.start(there);
        self.damaged(Damaged::Segment, begin, end - begin, end, 0);
    }

    /// Looks at a batch whose header is whole; where the next may begin.
    fn look_at_batch(&mut self, batch: &BatchHeader) -> Result<u64, LogError> {
        self.epoch = batch.epoch;
        self.recent.clear();
        self.found.batches += 1;
        let header = *batch;
        let start = batch.position;
        self.may_enter(start);
        let end = batch.end_of_records();
        let next = batch.next(&self.layout);
        if let Kind::Gap { .. } = batch.kind {
            if next > self.first_now() {
                self.found.gaps += 1;
                self.found.given_up_bytes += next - start;
            }
        }
        self.durable = self.durable.max(batch.durable);
        let mut at = start + BATCH_HEADER as u64;
        // Those that were found, and those reported one by one.
        let mut seen = 0;
        let mut holes = 0;
        let mut covered = Covered::default();
        while at < end {
            let is_its = |batch: u64, epoch: u32| batch == start && epoch == header.epoch;
            let found = self.find_record(at, end, is_its)?;
            let (here, record) = match found {
                Some((here, record)) => (here, Some(record)),
                None => (end, None),
            };
            if here > at {
                self.damaged(Damaged::RecordHeader, at, here - at, here, 0);
                covered.is_unknown = true;
                covered.add(at, here);
            }
            at = match record {
                Some(record) => {
                    *(if record.lost { &mut holes } else { &mut seen }) += 1;
                    let at = record.end(here);
                    match self.look_at_record(here, &record)? {
                        true => covered.records += u32::from(!record.lost),
                        false => covered.add(here, at),
                    }
                    at
                }
                None => end,
            };
        }
        if end > self.first_now() {
            let missing = batch.records.saturating_sub(seen);
            match holes {
                0 => self.found.lost_records += u64::from(missing),
                // How many of them are in the holes is not known.
                _ => self.found.lost_more |= covered.is_unknown && missing > holes,
            }
            if !covered.is_unknown && !batch.may_have(seen, holes) {
                self.damaged(Damaged::BatchHeader, start, BATCH_HEADER as u64, end, 0);
            }
        }
        let ends_in_hole = covered.holes.last().is_some_and(|&(_, to)| to == end);
        let whole = self.cover_records(header, covered, holes);
        if whole != *batch {
            self.mend(Mend::Batch(whole));
        }
        if !ends_in_hole && !self.has_all_blocks(batch)? {
            let rest = end.next_multiple_of(BLOCK as u64);
            self.damaged(Damaged::Padding, end, rest - end, end + 1, 0);
            self.mends.push(Mend::Tail { from: end, to: rest });
        }
        Ok(next)
    }

    /// Notes the holes in a batch; the header that then fits.
    fn cover_records(&mut self, batch: BatchHeader, covered: Covered, holes: u32) -> BatchHeader {
        let mut batch = batch;
        let mut holes = holes;
        for (from, to) in covered.holes {
            if to - from < RECORD_HEADER as u64 {
                // Too little for the header of a hole, and nothing follows it: see `Covered::add`.
                batch.used = (from - batch.position) as u32;
                continue;
            }
            holes += 1;
            self.may_enter(from);
            self.mend(Mend::Hole { batch, from, to });
        }
        if !batch.may_have(covered.records, holes) {
            batch.records = covered.records;
        }
        batch
    }

    /// Whether the blocks of a batch are all there, that after its last record's last byte included.
    fn has_all_blocks(&mut self, batch: &BatchHeader) -> Result<bool, LogError> {
        let last = batch.position + batch.size() - BLOCK as u64;
        Ok(self.bytes(last, BLOCK)?.is_some() || !self.window.file_ends_by(last + BLOCK as u64 - 1))
    }

    /// Looks at what is there of a batch, or of several, whose headers are damaged; where the next may
    /// begin.
    fn look_without_header(&mut self, start: u64) -> Result<u64, LogError> {
        self.recent.clear();
        let segment_end = self.layout.end(self.layout.segment(start));
        let limit = segment_end.min(self.known);
        let next = self.find_batch(start + BLOCK as u64, limit)?;
        let header_end = start + BATCH_HEADER as u64;
        let mut found = self.find_loose(header_end, next, start, None)?;
        if found.is_none() {
            self.without_records(start, next)?;
            self.cover(start, next);
            return Ok(self.layout.next_batch(next));
        }

        self.damaged(Damaged::BatchHeader, start, BATCH_HEADER as u64, next, 0);
        let mut loose = Loose::at(start);
        let mut at = header_end;
        while let Some((here, record)) = found {
            let its_batch = here - u64::from(record.in_batch);
            if its_batch != loose.batch {
                self.gap_to_batch(at, its_batch)?;
                self.rebuild(loose, at, its_batch);
                self.damaged(Damaged::BatchHeader, its_batch, BATCH_HEADER as u64, next, 0);
                loose = Loose::at(its_batch);
                at = its_batch + BATCH_HEADER as u64;
            }
            if here > at {
                self.damaged(Damaged::RecordHeader, at, here - at, here, 1);
                loose.covered.add(at, here);
            }
            self.epoch = record.epoch;
            loose.epoch = Some(record.epoch);
            at = record.end(here);
            match self.look_at_record(here, &record)? {
                true if record.lost => loose.holes += 1,
                true => loose.covered.records += 1,
                false => loose.covered.add(here, at),
            }
            found = self.find_loose(at, next, loose.batch, loose.epoch)?;
        }
        self.gap_to_batch(at, next)?;
        self.rebuild(loose, at, next);
        Ok(self.layout.next_batch(next))
    }

    /// Notes what makes a batch anew of the records that were found, the last of which ends at `end`, and what
    /// covers the rest up to the next batch.
    fn rebuild(&mut self, loose: Loose, end: u64, next: u64) {
        let Loose { batch: start, epoch: Some(epoch), covered, holes } = loose else {
            self.cover(loose.batch, next);
            return;
        };
        let header = BatchHeader {
            kind: Kind::Records,
            position: start,
            epoch,
            durable: self.durable.min(start),
            used: (end - start) as u32,
            records: covered.records,
            key: None,
        };
        self.may_enter(start);
        // First: it is what the log ends before, if it is to end before the damage.
        self.mend(Mend::Batch(header));
        let batch = self.cover_records(header, covered, holes);
        debug_assert_eq!(batch, header, "its last record ends it");
        let rest = end.next_multiple_of(BLOCK as u64);
        if rest > end {
            self.mends.push(Mend::Tail { from: end, to: rest });
        }
        self.cover(rest, next);
    }

    /// Reports that there is no header and no record from `start` up to the next batch.
    fn without_records(&mut self, start: u64, next: u64) -> Result<(), LogError> {
        let block_end = start + BLOCK as u64;
        // As in a batch that has none, which says that the log was opened, or that a segment ends.
        let is_blank = self.is_blank(start + BATCH_HEADER as u64, block_end)?;
        match is_blank && next == block_end {
            true => self.damaged(Damaged::BatchHeader, start, BATCH_HEADER as u64, next, 0),
            false => {
                let lost = u64::from(!is_blank);
                self.damaged(Damaged::Batch, start, next - start, next, lost);
            }
        }
        Ok(())
    }

    /// Reports what is missing between a record's end and the next batch: nothing if there is only
    /// padding.
    fn gap_to_batch(&mut self, at: u64, batch: u64) -> Result<(), LogError> {
        let block_end = at.next_multiple_of(BLOCK as u64);
        if !self.is_blank(at, block_end)? {
            self.damaged(Damaged::RecordHeader, at, batch - at, batch, 1);
        } else if block_end < batch {
            self.without_records(block_end, batch)?;
        }
        Ok(())
    }

    /// Looks at the bytes of a record whose header is whole; whether they are.
    fn look_at_record(&mut self, at: u64, record: &RecordHeader) -> Result<bool, LogError> {
        let length = record.length as usize;
        let end = record.end(at);
        if record.lost {
            self.may_enter(at);
            if end > self.first_now() {
                self.found.holes += 1;
                self.found.given_up_bytes += end - at;
            }
            return Ok(true);
        }
        let bytes = self.bytes(at + RECORD_HEADER as u64, length)?;
        let is_whole = bytes.is_some_and(|bytes| record.is_of(at, bytes));
        if !is_whole {
            let size = (RECORD_HEADER + length) as u64;
            self.damaged(Damaged::Record, at, size, end, 1);
        } else if at >= self.first {
            self.may_enter(at);
            self.found.records += 1;
            self.found.payload_bytes += u64::from(record.length);
            match &mut self.first_damage {
                Some(damage) => damage.records += 1,
                None => self.recent.push(at),
            }
        }
        Ok(is_whole)
    }

    /// The next record from `at` on that ends by `end`, and whose batch and epoch may be these. Between it and
    /// `at` there is nothing, or room for the header of a hole.
    fn find_record(
        &mut self,
        at: u64,
        end: u64,
        may_be: impl Fn(u64, u32) -> bool,
    ) -> Result<Option<(u64, RecordHeader)>, LogError> {
        let layout = self.layout;
        let mut here = at;
        while here + RECORD_HEADER as u64 <= end {
            let Some(bytes) = self.bytes(here, RECORD_HEADER)? else {
                if self.window.file_ends_by(here) {
                    return Ok(None);
                }
                // Nothing to be read in this block.
                here = (here + 1).next_multiple_of(BLOCK as u64);
                continue;
            };
            let record = RecordHeader::decode(&layout.identity, here, bytes).filter(|record| {
                let batch = here.checked_sub(u64::from(record.in_batch));
                let is_its = |it: u64| {
                    let first = at.max(it + BATCH_HEADER as u64);
                    it % (BLOCK as u64) == 0
                        && may_be(it, record.epoch)
                        && (here == first || here >= first + RECORD_HEADER as u64)
                        && record.end(here) - it <= MOST_BATCH as u64
                };
                batch.is_some_and(is_its)
                    && record.impossible(&layout, here).is_none()
                    && record.end(here) <= end
            });
            if let Some(record) = record {
                return Ok(Some((here, record)));
            }
            here += RECORD_ALIGNMENT as u64;
        }
        Ok(None)
    }

    /// As [`find_record`](Self::find_record), of the batch that begins at `batch`, which may have an epoch, or
    /// of any that begins from `at` on: their headers may be damaged.
    fn find_loose(
        &mut self,
        at: u64,
        end: u64,
        batch: u64,
        its_epoch: Option<u32>,
    ) -> Result<Option<(u64, RecordHeader)>, LogError> {
        let least = self.epoch;
        self.find_record(at, end, |its_batch, epoch| {
            let is_same = its_batch == batch && its_epoch.is_none_or(|its| its == epoch);
            (is_same || its_batch >= at) && epoch >= least
        })
    }

    /// Where the next batch begins from `at` on, or `end`.
    fn find_batch(&mut self, at: u64, end: u64) -> Result<u64, LogError> {
        let mut here = at;
        while here < end && self.batch_at(here)?.is_none() {
            here += BLOCK as u64;
            if self.window.file_ends_by(here) {
                return Ok(end);
            }
        }
        Ok(here.min(end))
    }

    fn batch_at(&mut self, at: u64) -> Result<Option<BatchHeader>, LogError> {
        let layout = self.layout;
        let epoch = self.epoch;
        let bytes = self.bytes(at, BATCH_HEADER)?;
        let batch = bytes.and_then(|bytes| BatchHeader::decode(&layout, at, bytes));
        Ok(batch.and_then(Result::ok).filter(|batch| batch.epoch >= epoch))
    }

    /// Whether all is zero from `at` to `end`, in one block.
    fn is_blank(&mut self, at: u64, end: u64) -> Result<bool, LogError> {
        if at == end {
            return Ok(true);
        }
        let bytes = self.bytes(at, (end - at) as usize)?;
        Ok(bytes.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0)))
    }

    /// What is there; none if it cannot be read, or the file ends before.
    fn bytes(&mut self, position: u64, size: usize) -> Result<Option<&[u8]>, LogError> {
        if self.window.bytes(position, size, u64::MAX).is_err() {
            // Perhaps because of another block than these.
            self.window.resize(BLOCK);
        }
        match self.window.bytes(position, size, u64::MAX) {
            Err(error) if is_unreadable(&error) => Ok(None),
            Err(error) if *error.kind() == LogErrorKind::MissingSegment => Ok(None),
            answer => answer,
        }
    }

    /// Reports a damage that concerns what is before `until`, unless that was given up.
    fn damaged(&mut self, what: Damaged, position: u64, bytes: u64, until: u64, lost: u64) {
        if until <= self.first_now() {
            return;
        }
        self.found.damages += 1;
        self.found.lost_records += lost;
        self.found.lost_more |= match what {
            Damaged::Batch | Damaged::Segment => true,
            // Whose batch has no header, either; otherwise they are counted with their batch.
            Damaged::RecordHeader => lost > 0,
            _ => false,
        };
        (self.report)(Damage::new(&*self.storage, &self.layout, what, position, bytes));
    }

    /// The first position that was not given up by now.
    fn first_now(&self) -> u64 {
        let page = self.control.as_ref().and_then(|control| control.look().ok());
        page.and_then(|page| page.first).unwrap_or(self.first)
    }

    /// Whether somebody has opened the log for writing since the walk began.
    fn is_open_now(&self) -> Result<bool, LogError> {
        let Some(control) = self.control.as_ref().filter(|_| !self.is_writer) else {
            return Ok(false);
        };
        Ok(control.has_writer(&*self.storage)?
            || control.look()?.epoch.unwrap_or(0) != self.opening)
    }
}

/// The records of a batch that is looked at.
#[derive(Default)]
struct Covered {
    /// That are whole.
    records: u32,
    /// What holes are to cover, in order.
    holes: Vec<(u64, u64)>,
    /// Whether the headers of some are damaged, too, so that their number is not known.
    is_unknown: bool,
}

impl Covered {
    /// What is damaged next. Pieces that follow each other become one.
    fn add(&mut self, from: u64, to: u64) {
        match self.holes.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => self.holes.push((from, to)),
        }
    }
}

/// A batch whose header is damaged.
struct Loose {
    batch: u64,
    /// Of its records; none if there were none.
    epoch: Option<u32>,
    covered: Covered,
    /// Those that were there.
    holes: u32,
}

impl Loose {
    fn at(batch: u64) -> Loose {
        Loose { batch, epoch: None, covered: Covered::default(), holes: 0 }
    }
}

/// Whether the device could not read a block, which is damage.
fn is_unreadable(error: &LogError) -> bool {
    let system = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    system.and_then(io::Error::raw_os_error) == Some(libc::EIO)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::super::disk::{Disk, DiskFile};
    use super::super::storage::{Boot, Extent, FileSystem, StoredFile};
    use super::*;
    use crate::test_directory::test_directory;
    use crate::{LogFile, LogOptions, LogReader, SyncPolicy};

    const SEGMENT: u64 = 64 << 10;

    /// A log that was closed, and what is where in it.
    struct Sample {
        directory: TempDir,
        records: Vec<Range<u64>>,
        batch_headers: Vec<Range<u64>>,
        segment_headers: Vec<Range<u64>>,
        payload_bytes: u64,
    }

    impl Sample {
        /// Two openings, five segments, batches of one and of many records.
        fn new() -> Sample {
            let directory = test_directory();
            let mut records = Vec::new();
            let mut payload_bytes = 0;
            for opening in 0..2 {
                let log = open(directory.path());
                for batch in 0..12_usize {
                    let lengths = [batch * 700, 3, 0, 5000 - batch * 31, 18 * batch, 4096];
                    let count = [1, 6, 2, 4][batch % 4];
                    let submitted: Vec<_> = lengths[..count]
                        .iter()
                        .map(|&length| {
                            let bytes: Vec<u8> = (0..length).map(|it| (it % 251) as u8).collect();
                            payload_bytes += length as u64;
                            (log.submit(&bytes).unwrap(), length)
                        })
                        .collect();
                    for (submitted, length) in submitted {
                        let at = log.wait(submitted).unwrap().get();
                        records.push(at..at + (RECORD_HEADER + length) as u64);
                    }
                }
                // The first as after a crash of the process, which leaves what was made ahead.
                if opening > 0 {
                    log.close().unwrap();
                }
            }
            let mut sample = Sample {
                directory,
                records,
                batch_headers: Vec::new(),
                segment_headers: Vec::new(),
                payload_bytes,
            };
            sample.find_headers();
            sample
        }

        fn path(&self) -> &Path {
            self.directory.path()
        }

        fn find_headers(&mut self) {
            let control = Control::open(&Disk::open(self.path()).unwrap(), false).unwrap();
            let layout = control.layout();
            for segment in 0..=self.last_segment() {
                let begin = segment * SEGMENT;
                self.segment_headers.push(begin..begin + 52);
                let bytes = fs::read(self.path().join(segments::name_of(segment))).unwrap();
                for (block, bytes) in bytes.chunks(BLOCK).enumerate() {
                    let at = begin + (block * BLOCK) as u64;
                    if matches!(BatchHeader::decode(&layout, at, bytes), Some(Ok(_))) {
                        self.batch_headers.push(at..at + BATCH_HEADER as u64);
                    }
                }
            }
        }

        fn last_segment(&self) -> u64 {
            self.records.last().unwrap().start / SEGMENT
        }

        fn flip(&self, position: u64, bits: u8) {
            let path = self.path().join(segments::name_of(position / SEGMENT));
            let file = fs::File::options().read(true).write(true).open(path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, position % SEGMENT).unwrap();
            file.write_all_at(&[byte[0] ^ bits], position % SEGMENT).unwrap();
        }

        fn verify(&self) -> (Verified, Vec<Damage>) {
            let mut damages = Vec::new();
            let found = LogReader::verify(self.path(), |damage| damages.push(damage)).unwrap();
            assert_eq!(found.damages, damages.len() as u64);
            (found, damages)
        }

        fn count(&self) -> u64 {
            self.records.len() as u64
        }
    }

    /// A disk that cannot read a block of the first segment.
    struct Failing {
        disk: Disk,
        block: u64,
    }

    struct FailingFile {
        file: DiskFile,
        block: Option<u64>,
    }

    impl Storage for Failing {
        type File = FailingFile;
        type Page = <Disk as Storage>::Page;
        type Lock = <Disk as Storage>::Lock;

        fn path(&self) -> &Path {
            self.disk.path()
        }

        fn names(&self) -> io::Result<Vec<String>> {
            self.disk.names()
        }

        fn create(&self, name: &str) -> io::Result<FailingFile> {
            Ok(FailingFile { file: self.disk.create(name)?, block: None })
        }

        fn open(&self, name: &str, writable: bool) -> io::Result<FailingFile> {
            let block = (name == segments::name_of(0)).then_some(self.block);
            Ok(FailingFile { file: self.disk.open(name, writable)?, block })
        }

        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            self.disk.rename(from, to)
        }

        fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
            self.disk.rename_new(from, to)
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            self.disk.remove(name)
        }

        fn sync_names(&self) -> io::Result<()> {
            self.disk.sync_names()
        }

        fn sync_own_name(&self) -> io::Result<()> {
            self.disk.sync_own_name()
        }

        fn page(&self, name: &str, writable: bool) -> io::Result<Self::Page> {
            self.disk.page(name, writable)
        }

        fn lock(&self, name: &str, page: &Self::Page) -> io::Result<Option<Self::Lock>> {
            self.disk.lock(name, page)
        }

        fn has_writer(&self, page: &Self::Page) -> io::Result<bool> {
            self.disk.has_writer(page)
        }

        fn free_what_was_removed(&self) -> io::Result<()> {
            self.disk.free_what_was_removed()
        }

        fn is_in_place(
            &self,
            lock: &Self::Lock,
            page_name: &str,
            page: &Self::Page,
        ) -> io::Result<bool> {
            self.disk.is_in_place(lock, page_name, page)
        }

        fn has_page(&self, name: &str, page: &Self::Page) -> io::Result<bool> {
            self.disk.has_page(name, page)
        }

        fn is_intact(&self, lock: &Self::Lock, page: &Self::Page) -> io::Result<bool> {
            self.disk.is_intact(lock, page)
        }

        fn modified(&self, name: &str) -> io::Result<std::time::SystemTime> {
            self.disk.modified(name)
        }

        fn now(&self) -> std::time::SystemTime {
            self.disk.now()
        }

        fn boot(&self) -> Boot {
            self.disk.boot()
        }

        fn filesystem(&self) -> FileSystem {
            self.disk.filesystem()
        }
    }

    impl StoredFile for FailingFile {
        fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
            let blocks = offset / BLOCK as u64..(offset + bytes.len() as u64) / BLOCK as u64;
            match self.block.is_some_and(|block| blocks.contains(&block)) {
                true => Err(io::Error::from_raw_os_error(libc::EIO)),
                false => self.file.read(bytes, offset),
            }
        }

        fn write(&self, bytes: &[u8], offset: u64, durable: bool) -> io::Result<()> {
            self.file.write(bytes, offset, durable)
        }

        fn sync(&self) -> io::Result<()> {
            self.file.sync()
        }

        fn set_len(&self, length: u64) -> io::Result<()> {
            self.file.set_len(length)
        }

        fn allocate(&self, length: u64) -> io::Result<bool> {
            self.file.allocate(length)
        }

        fn is_named(&self) -> io::Result<bool> {
            self.file.is_named()
        }

        fn is_linked(&self) -> io::Result<bool> {
            self.file.is_linked()
        }

        fn extent(&self, offset: u64) -> io::Result<Option<Extent>> {
            self.file.extent(offset)
        }
    }

    fn open(path: &Path) -> LogFile {
        LogOptions::new().segment_bytes(SEGMENT).sync(SyncPolicy::Never).open(path).unwrap()
    }

    fn places(ranges: &[Range<u64>]) -> impl Iterator<Item = u64> {
        ranges.iter().flat_map(|range| [range.start, range.start + 9, range.end - 1])
    }

    fn covers(damage: &Damage, position: u64) -> bool {
        (damage.position.get()..damage.position.get() + damage.bytes).contains(&position)
    }

    #[test]
    fn a_whole_log_has_no_damage_and_all_its_records() {
        let sample = Sample::new();
        let (found, damages) = sample.verify();
        assert_eq!(damages, []);
        assert_eq!((found.records, found.lost_records), (sample.count(), 0));
        assert_eq!(found.payload_bytes, sample.payload_bytes);
        assert_eq!(found.batches, sample.batch_headers.len() as u64);
        assert_eq!(found.segments, sample.last_segment() + 1);
        let mut reader = LogReader::open(sample.path()).unwrap();
        reader.seek(found.end).unwrap();
        assert_eq!(reader.next().unwrap(), None);
        assert_eq!((found.torn, found.lost_bytes, found.open_for_writing), (None, 0, false));
        assert!(found.segments >= 3, "{found:?}");
    }

    #[test]
    fn a_flipped_bit_in_a_record_costs_that_record_alone() {
        let sample = Sample::new();
        for record in sample.records.iter().step_by(3) {
            for at in places(std::slice::from_ref(record)) {
                sample.flip(at, 0x10);
                let (found, damages) = sample.verify();
                let [damage] = &damages[..] else { panic!("{at} in {record:?}: {damages:?}") };
                assert!(covers(damage, at), "{at}: {damage:?}");
                assert_eq!(damage.position.get(), record.start);
                assert_eq!(damage.segment, Some(at / SEGMENT));
                assert_eq!(damage.offset, record.start % SEGMENT);
                let is_header = at < record.start + RECORD_HEADER as u64;
                assert_eq!(damage.what == Damaged::RecordHeader, is_header, "{at}: {damage:?}");
                assert_eq!((found.records, found.lost_records), (sample.count() - 1, 1));
                assert!(!found.lost_more);
                sample.flip(at, 0x10);
            }
        }
    }

    #[test]
    fn damaged_headers_of_batches_and_segments_cost_no_record() {
        let sample = Sample::new();
        let headers = [
            (&sample.batch_headers, Damaged::BatchHeader),
            (&sample.segment_headers, Damaged::SegmentHeader),
        ];
        for (ranges, expected) in headers {
            for at in places(ranges) {
                sample.flip(at, 1);
                let (found, damages) = sample.verify();
                let [damage] = &damages[..] else { panic!("{at}: {damages:?}") };
                assert!(covers(damage, at), "{at}: {damage:?}");
                // The one that ends a segment may as well have been one with records.
                let ends_segment = damage.what == Damaged::Batch
                    && (damage.position.get() + damage.bytes) % SEGMENT == 0;
                assert!(damage.what == expected || ends_segment, "{at}: {damage:?}");
                assert_eq!((found.records, found.lost_records), (sample.count(), 0), "{at}");
                sample.flip(at, 1);
            }
        }
    }

    #[test]
    fn a_block_that_cannot_be_read_costs_what_is_in_it() {
        let sample = Sample::new();
        for block in 0..SEGMENT / BLOCK as u64 {
            let storage = Failing { disk: Disk::open(sample.path()).unwrap(), block };
            let mut damages = Vec::new();
            let found = verify(storage, &mut |damage| damages.push(damage)).unwrap();
            let bad = block * BLOCK as u64..(block + 1) * BLOCK as u64;
            let is_hit = |it: &&Range<u64>| it.start < bad.end && bad.start < it.end;
            let hit: Vec<_> = sample.records.iter().filter(is_hit).collect();
            assert_eq!(found.records, sample.count() - hit.len() as u64, "{block}: {damages:?}");
            for record in hit {
                let is_told = |it: &Damage| {
                    it.position.get() < record.end && record.start < it.position.get() + it.bytes
                };
                assert!(damages.iter().any(is_told), "{block}, {record:?}: {damages:?}");
            }
        }
    }

    #[test]
    fn what_no_record_uses_may_hold_anything() {
        let sample = Sample::new();
        let used = |at: u64| {
            let ranges =
                [&sample.records, &sample.batch_headers, &sample.segment_headers].into_iter();
            ranges.flatten().any(|range| range.contains(&at))
        };
        let end = LogReader::open(sample.path()).unwrap().committed().get();
        for at in (0..end).step_by(997).filter(|&at| !used(at)) {
            sample.flip(at, 0xFF);
        }
        let (found, damages) = sample.verify();
        assert_eq!((damages, found.records), (Vec::new(), sample.count()));
    }

    #[test]
    fn a_missing_segment_is_one_damage_and_the_others_are_read() {
        for missing in [0, 1] {
            let sample = Sample::new();
            fs::remove_file(sample.path().join(segments::name_of(missing))).unwrap();
            let (found, damages) = sample.verify();
            let [damage] = &damages[..] else { panic!("{damages:?}") };
            assert_eq!((damage.what, damage.segment), (Damaged::Segment, Some(missing)));
            assert_eq!((damage.position.get(), damage.bytes), (missing * SEGMENT, SEGMENT));
            let rest = sample.records.iter().filter(|it| it.start / SEGMENT != missing).count();
            assert_eq!((found.records, found.lost_more), (rest as u64, true));
        }
    }

    #[test]
    fn acknowledged_records_that_are_missing_at_the_end_are_damage() {
        let sample = Sample::new();
        let last = sample.last_segment();
        let begin = last * SEGMENT;
        let path = sample.path().join(segments::name_of(last));
        let cut = sample.batch_headers.iter().rfind(|it| it.start >= begin).unwrap().start;
        fs::File::options().write(true).open(&path).unwrap().set_len(cut - begin).unwrap();
        let (found, damages) = sample.verify();
        let [damage] = &damages[..] else { panic!("{damages:?}") };
        assert_eq!((damage.what, damage.position.get()), (Damaged::Batch, cut));
        let before = sample.records.iter().filter(|it| it.end <= cut).count() as u64;
        assert_eq!(found.records, before);

        fs::remove_file(&path).unwrap();
        let (_, damages) = sample.verify();
        assert_eq!((damages.len(), damages[0].what), (1, Damaged::Segment));
    }

    #[test]
    fn a_log_without_its_control_page_is_still_read() {
        let sample = Sample::new();
        let control = sample.path().join(control::NAME);
        let mut page = fs::read(&control).unwrap();
        page[16] ^= 1;
        fs::write(&control, page).unwrap();
        for _ in 0..2 {
            let (found, damages) = sample.verify();
            let [damage] = &damages[..] else { panic!("{damages:?}") };
            assert_eq!((damage.what, damage.segment), (Damaged::ControlPage, None));
            assert_eq!(found.records, sample.count());
            let _ = fs::remove_file(&control);
        }
    }

    #[test]
    fn damage_that_only_later_batches_show_is_found() {
        let sample = Sample::new();
        fs::remove_file(sample.path().join(control::NAME)).unwrap();
        // The last batch says that all before it was on the device.
        let last = sample.batch_headers.last().unwrap().start;
        for record in sample.records.iter().step_by(2).filter(|it| it.end < last) {
            sample.flip(record.end - 1, 2);
            let (found, damages) = sample.verify();
            assert_eq!(damages.len(), 2, "the control page and {record:?}: {damages:?}");
            assert!(covers(&damages[1], record.end - 1), "{record:?}: {damages:?}");
            assert_eq!((found.records, found.torn), (sample.count() - 1, None), "{record:?}");
            sample.flip(record.end - 1, 2);
        }
    }

    #[test]
    fn a_torn_batch_at_the_end_is_told_and_is_no_damage() {
        let sample = Sample::new();
        // As if it had not been acknowledged: only segments are left to say so.
        fs::remove_file(sample.path().join(control::NAME)).unwrap();
        let last = sample.records.last().unwrap().clone();
        sample.flip(last.end - 1, 1);
        let (found, damages) = sample.verify();
        assert_eq!(damages.len(), 1, "the control page: {damages:?}");
        let batch = sample.batch_headers.iter().rfind(|it| it.start < last.start).unwrap();
        assert_eq!(found.torn, Some(Position::new(batch.start)));
        assert_eq!(found.end, Position::new(batch.start));
        assert_eq!(found.lost_records, 0);
        let before = sample.records.iter().filter(|it| it.start < batch.start).count();
        assert_eq!(found.records, before as u64);
    }

    #[test]
    fn records_that_were_given_up_are_not_missed() {
        let sample = Sample::new();
        let first = sample.records[sample.records.len() / 2].start;
        let log = open(sample.path());
        log.truncate_before(Position::new(first)).unwrap();
        log.close().unwrap();
        let before = sample.records.iter().rfind(|it| it.start < first).unwrap();
        if before.start / SEGMENT == first / SEGMENT {
            sample.flip(before.end - 1, 1);
        }
        let (found, damages) = sample.verify();
        assert_eq!((damages, found.first), (Vec::new(), Position::new(first)));
        let rest = sample.records.iter().filter(|it| it.start >= first).count();
        assert_eq!(found.records, rest as u64);
    }

    #[test]
    fn it_reads_beside_a_writer_what_was_committed() {
        let directory = test_directory();
        let log = open(directory.path());
        for count in 1..40_u64 {
            log.append(&count.to_le_bytes().repeat(500)).unwrap();
            let found = LogReader::verify(directory.path(), |damage| panic!("{damage:?}")).unwrap();
            assert_eq!(found.records, count);
            assert!(found.open_for_writing);
            assert!(found.end >= log.committed());
        }
    }

    #[test]
    fn what_is_given_up_and_used_again_meanwhile_is_no_damage() {
        let directory = test_directory();
        let log = open(directory.path());
        let verified = AtomicU32::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut places = VecDeque::new();
                while verified.load(Ordering::Relaxed) < 30 {
                    places.push_back(log.append(&[7; 20_000]).unwrap());
                    if places.len() > 8 {
                        log.truncate_before(places.pop_front().unwrap()).unwrap();
                    }
                }
            });
            while verified.load(Ordering::Relaxed) < 30 {
                let mut damages = Vec::new();
                let found = LogReader::verify(directory.path(), |damage| damages.push(damage));
                let is_fine =
                    damages.is_empty() && matches!(&found, Ok(it) if it.lost_records == 0);
                // What is verified before a segment was used again tests little. The other thread ends even if
                // this one panics.
                let count = if is_fine { u32::from(log.stats().recycled_segments > 0) } else { 30 };
                verified.fetch_add(count, Ordering::Relaxed);
                assert!(is_fine, "{damages:?}, {found:?}");
            }
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever bytes change, records that they are not in are found, and those that they are in are
        /// reported.
        #[test]
        fn records_beside_the_damage_are_found(
            pieces in prop::collection::vec((0..3_usize, any::<prop::sample::Index>(), 0..3_usize), 1..8),
        ) {
            thread_local!(static SAMPLE: Sample = Sample::new());
            SAMPLE.with(|sample| {
                let kinds = [&sample.records, &sample.batch_headers, &sample.segment_headers];
                let mut flipped: Vec<u64> = (pieces.iter())
                    .map(|(kind, index, place)| {
                        let ranges = kinds[*kind];
                        places(std::slice::from_ref(index.get(ranges))).nth(*place).unwrap()
                    })
                    .collect();
                flipped.sort_unstable();
                flipped.dedup();
                flipped.iter().for_each(|&at| sample.flip(at, 4));
                let (found, damages) = sample.verify();
                flipped.iter().for_each(|&at| sample.flip(at, 4));

                for &at in &flipped {
                    prop_assert!(damages.iter().any(|it| covers(it, at)), "{at}: {damages:?}");
                }
                let is_hit = |it: &&Range<u64>| flipped.iter().any(|at| it.contains(at));
                let hit = sample.records.iter().filter(is_hit).count() as u64;
                prop_assert_eq!(found.records, sample.count() - hit, "{:?}", damages);
                prop_assert!(found.lost_records <= hit, "{:?}", damages);
                prop_assert!(found.lost_records == hit || found.lost_more, "{:?}", damages);
                Ok(())
            })?;
        }
    }
}
