//! A copy of a log that is made while the log is appended to.
//!
//! The copy ends at the position that was committed when the copy was begun. The segment that holds this
//! position is copied up to it. No byte of the segments before it is ever written again, so they are linked where that is
//! possible: neither log uses a file again that has two names (`StoredFile::is_linked`), and the copy goes on in
//! its last segment, which is a file of its own.
//!
//! **What is given up meanwhile.** Nothing that the writer does waits for the copy. It moves the first position
//! on before it touches a segment's file, so a segment was what it seemed to be if the first position is not
//! behind it once it is linked or copied. If it is, the segment is left out, and the copy begins later. Only if
//! the last segment is given up while it is copied, the copy starts over, with a later end.
//!
//! **Locks.** A writer locks the segments that it opens for writing, and a link is the same file. A segment that
//! the writer of the log still has open is therefore copied: its lock would keep the copy from being opened.
//!
//! **A crash.** Before anything else, the new directory gets a control page that keeps everybody from opening the
//! copy. When all else is on the device, a page that says where the copy is closed replaces it.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::control::{self, Control, Look, Written};
use super::disk::{Disk, DiskFile};
use super::error::{LogError, LogErrorKind};
use super::format::{FIRST_BATCH, Layout};
use super::opening;
use super::position::Position;
use super::segments;
use super::storage::{Storage, StoredFile};
use super::view::View;
use super::window::{damaged, open_segment};

/// What a checkpoint holds: see [`LogFile::checkpoint`](crate::LogFile::checkpoint).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The first position that is not given up in it.
    pub first: Position,
    /// Where it ends: all records of the log from `first` on that begin before this are in it.
    pub end: Position,
    /// Bytes of segments that it shares with the log.
    pub linked_bytes: u64,
    /// Bytes of segments that were copied.
    pub copied_bytes: u64,
}

/// How much of a log is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// All that is committed. What of it is not on the device is brought there.
    Committed,
    /// What is on the device. Its writer, which alone hears whether that succeeds for all that it has
    /// acknowledged, has seen to it that this is enough.
    Durable,
}

/// Copies the log into a new directory.
pub(crate) fn make(
    mut log: View<Disk>,
    until: Until,
    directory: &Path,
) -> Result<Checkpoint, LogError> {
    let copying = |error: LogError| error.while_copying(false);
    let mut copy = Unfinished::begin(&log, directory).map_err(copying)?;
    match copy.take_all(&mut log, until).and_then(|()| copy.finish(&log)) {
        Err(error) if !copy.is_finished => {
            let is_removed = copy.remove_all().is_ok();
            copy.is_finished = is_removed;
            Err(error.while_copying(is_removed))
        }
        made => made,
    }
}

/// A copy that is being made. What there is of it is removed with it, unless it was finished.
struct Unfinished<'a> {
    path: &'a Path,
    disk: Disk,
    layout: Layout,
    /// Where the copy ends.
    end: u64,
    /// All of the log below was on the device when the end was chosen.
    durable: u64,
    /// The directory was made for this.
    is_own: bool,
    taken: Vec<Taken>,
    is_finished: bool,
}

/// A segment of the copy.
struct Taken {
    segment: u64,
    linked: u64,
    copied: u64,
}

impl Unfinished<'_> {
    fn begin<'a>(log: &View<Disk>, directory: &'a Path) -> Result<Unfinished<'a>, LogError> {
        let source = log.storage();
        let cannot =
            |tried: &'static str| move |error: io::Error| LogError::system(tried, directory, error);
        let look = |error| LogError::system("look at the files of", source.path(), error);
        let mode = source.mode_of(control::NAME).map_err(look)?;
        let directory_mode = source.own_mode().map_err(look)?;
        if source.is_around(directory).map_err(look)? {
            return Err(LogError::new(LogErrorKind::InsideLog, directory));
        }
        let is_own = match fs::create_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            created => created.map(|()| true).map_err(cannot("create"))?,
        };
        let disk = Disk::open(directory).map_err(cannot("open"))?.with_mode(Some(mode));
        let layout = log.layout();
        let mut copy = Unfinished {
            path: directory,
            disk,
            layout,
            end: FIRST_BATCH,
            durable: 0,
            is_own,
            taken: Vec::new(),
            // Until there is something to be removed.
            is_finished: true,
        };
        copy.refuse_others_files()?;
        if is_own {
            let mode = fs::Permissions::from_mode(directory_mode);
            fs::set_permissions(directory, mode).map_err(cannot("set the permissions of"))?;
        }
        match Control::begin_checkpoint(&copy.disk, &layout) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(LogError::new(LogErrorKind::Exists, directory));
            }
            begun => {
                copy.is_finished = false;
                begun.map_err(cannot("create the control page of"))?;
            }
        }
        Ok(copy)
    }

    fn refuse_others_files(&self) -> Result<(), LogError> {
        let names = self.disk.names();
        let names = names.map_err(|error| LogError::system("list", self.path, error))?;
        let is_a_log = |name: &String| name == control::NAME || segments::is_segment(name);
        match names.iter().find(|name| *name != "lost+found") {
            None => Ok(()),
            Some(_) if names.iter().any(is_a_log) => {
                Err(LogError::new(LogErrorKind::Exists, self.path))
            }
            Some(_) => Err(LogError::new(LogErrorKind::OthersFiles, self.path)),
        }
    }

    /// Links or copies all segments.
    fn take_all(&mut self, log: &mut View<Disk>, until: Until) -> Result<(), LogError> {
        // Again if the segment in which it ended was given up meanwhile, as the log's end is elsewhere by then;
        // and if a part of the log was cut off, which changes segments that were taken.
        loop {
            self.take_nothing()?;
            log.refresh()?;
            let cuts = log.progress().seen().cuts;
            let durable = log.progress().seen().durable;
            self.end = match until {
                Until::Committed => log.committed(),
                Until::Durable => durable.unwrap_or(0).clamp(FIRST_BATCH, log.committed()),
            };
            self.durable = durable.unwrap_or(0);
            if !self.take_last(log)? {
                continue;
            }
            self.take_full(log)?;
            log.refresh()?;
            if log.progress().seen().cuts == cuts {
                return Ok(());
            }
        }
    }

    /// Gives up what was taken.
    fn take_nothing(&mut self) -> Result<(), LogError> {
        while let Some(taken) = self.taken.pop() {
            self.remove(taken.segment)?;
        }
        Ok(())
    }

    /// Copies the segment in which the copy ends; false if it was given up meanwhile.
    fn take_last(&mut self, log: &mut View<Disk>) -> Result<bool, LogError> {
        let layout = self.layout;
        let mut last = layout.segment_before(self.end);
        let mut opened = open_segment(&**log.storage(), layout, last, false);
        // Where it was found to go on is perhaps not yet a segment.
        if let Err(error) = &opened {
            if *error.kind() == LogErrorKind::MissingSegment
                && layout.offset(self.end) == FIRST_BATCH
            {
                if last == 0 {
                    return Ok(true);
                }
                self.end -= FIRST_BATCH;
                last -= 1;
                opened = open_segment(&**log.storage(), layout, last, false);
            }
        }
        let taken = opened.and_then(|(file, _)| {
            let until = match layout.offset(self.end) {
                0 => layout.segment_bytes,
                offset => offset,
            };
            self.copy(log, &file, last, until)
        });
        log.refresh()?;
        if layout.segment_before(log.first()) > last {
            self.remove(last)?;
            return Ok(false);
        }
        self.taken.push(taken?);
        Ok(true)
    }

    /// Links or copies all segments before the last.
    fn take_full(&mut self, log: &mut View<Disk>) -> Result<(), LogError> {
        let layout = self.layout;
        let last = layout.segment_before(self.end);
        let mut segment = layout.segment_before(log.first());
        while segment < last {
            let taken = self.take(log, segment);
            log.refresh()?;
            let first = layout.segment_before(log.first());
            if segment < first {
                self.remove(segment)?;
                segment = first;
                continue;
            }
            self.taken.push(taken?);
            segment += 1;
        }
        Ok(())
    }

    /// Links or copies a segment that is full.
    fn take(&self, log: &View<Disk>, segment: u64) -> Result<Taken, LogError> {
        let source = &**log.storage();
        let name = segments::name_of(segment);
        let path = source.path().join(&name);
        let cannot = |tried: &'static str| {
            let path = path.clone();
            move |error: io::Error| LogError::system(tried, &path, error).at(segment, 0)
        };
        let (file, _) = open_segment(source, self.layout, segment, false)?;
        let is_written = file.is_written().map_err(cannot("learn who writes"))?;
        let is_linked =
            !is_written && self.disk.link_from(source, &name).map_err(cannot("link"))?;
        if !is_linked {
            return self.copy(log, &file, segment, self.layout.segment_bytes);
        }
        let file = self.own(segment)?;
        if !self.is_on_device(segment) {
            file.sync().map_err(cannot("sync"))?;
        }
        Ok(Taken { segment, linked: self.layout.segment_bytes, copied: 0 })
    }

    /// Copies a segment up to this offset.
    fn copy(
        &self,
        log: &View<Disk>,
        file: &DiskFile,
        segment: u64,
        until: u64,
    ) -> Result<Taken, LogError> {
        let name = segments::name_of(segment);
        let (from, to) = (log.storage().path().join(&name), self.path.join(&name));
        let at = |path: &Path, tried, error| LogError::system(tried, path, error).at(segment, 0);
        if !self.is_on_device(segment) {
            // What is in the copy is not to be lost in the log.
            file.sync().map_err(|error| at(&from, "sync", error))?;
        }
        let cannot = |error| at(&to, "copy a segment to", error);
        let new = self.disk.create(&name).map_err(cannot)?;
        let is_shared = until == self.layout.segment_bytes && new.share_blocks_of(file);
        let copied = match is_shared {
            true => 0,
            false => opening::copy(file, &new, until).map_err(cannot)?,
        };
        // One that is full may have been ended before.
        if !is_shared && copied < until && until < self.layout.segment_bytes {
            let end = self.layout.start(segment) + copied;
            return Err(damaged(&**log.storage(), self.layout, end, "the end of the segment"));
        }
        new.sync().map_err(cannot)?;
        self.own(segment)?;
        Ok(Taken { segment, linked: if is_shared { until } else { 0 }, copied })
    }

    /// A segment of the copy, if it is the right one.
    fn own(&self, segment: u64) -> Result<DiskFile, LogError> {
        Ok(open_segment(&self.disk, self.layout, segment, false)?.0)
    }

    fn remove(&self, segment: u64) -> Result<(), LogError> {
        match self.disk.remove(&segments::name_of(segment)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LogError::system("remove a file of", self.path, error))
            }
            _ => Ok(()),
        }
    }

    /// Whether all of the log in this segment that is copied was on the device from the beginning.
    fn is_on_device(&self, segment: u64) -> bool {
        self.durable >= self.end || segment < self.layout.segment(self.durable)
    }

    fn finish(&mut self, log: &View<Disk>) -> Result<Checkpoint, LogError> {
        // What is given up of the last segment cannot be more than there is.
        let end = self.end;
        let first = log.first().min(end);
        let begin = self.layout.segment_before(first);
        for taken in self.taken.iter().filter(|taken| taken.segment < begin) {
            self.remove(taken.segment)?;
        }
        self.taken.retain(|taken| taken.segment >= begin);
        let &Look { epoch, cuts, .. } = log.progress().seen();
        let ends = Look {
            committed: Some(end),
            durable: Some(end),
            first: Some(first),
            closed: Some(end),
            epoch,
            lineage: opening::new_lineage(),
            // What a writer that died has not covered, who opens the copy does.
            cuts,
            ..Look::default()
        };
        let cannot = |error| LogError::system("finish", self.path, error);
        self.disk.sync_names().map_err(cannot)?;
        Control::replace(&self.disk, self.layout, &ends).map_err(cannot)?;
        // So that copies of it are known as such.
        let page = Control::open(&self.disk, true)?;
        Written::new(page, &ends).set_number()?;
        // From here on it is a log.
        self.is_finished = true;
        self.disk.sync_own_name().map_err(cannot)?;
        Ok(Checkpoint {
            first: Position::new(first),
            end: Position::new(end),
            linked_bytes: self.taken.iter().map(|taken| taken.linked).sum(),
            copied_bytes: self.taken.iter().map(|taken| taken.copied).sum(),
        })
    }

    /// Removes what was made; the control page last, as what remains otherwise is a log that has lost its page.
    fn remove_all(&self) -> io::Result<()> {
        let names = self.disk.names()?;
        for name in names.iter().filter(|name| segments::is_segment(name)) {
            self.disk.remove(name)?;
        }
        Control::<<Disk as Storage>::Page>::remove_unfinished(&self.disk)?;
        self.disk.sync_names()?;
        match self.disk.remove(control::NAME) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if self.is_own { fs::remove_dir(self.path) } else { self.disk.sync_names() }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            // What cannot be removed is refused by who opens it. Why the copy failed is what matters.
            let _ = self.remove_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::super::reader::Reader;
    use super::*;
    use crate::test_directory::test_directory;
    use crate::{LogFile, LogOptions, LogReader, SyncPolicy};

    /// A log with some full segments, and where a copy may be.
    fn log() -> (TempDir, LogFile, PathBuf) {
        let directory = test_directory();
        let options = LogOptions::new().segment_bytes(64 << 10).sync(SyncPolicy::Never);
        let log = options.open(directory.path().join("log")).unwrap();
        fill(&log);
        let copy = directory.path().join("copy");
        (directory, log, copy)
    }

    /// Some segments.
    fn fill(log: &LogFile) {
        for _ in 0..80 {
            log.append(&[7; 3_000]).unwrap();
        }
    }

    fn view(log: &LogFile) -> View<Disk> {
        Reader::open(Disk::open(log.path()).unwrap()).unwrap().into_view()
    }

    fn begin<'a>(view: &mut View<Disk>, path: &'a Path) -> Unfinished<'a> {
        let mut copy = Unfinished::begin(view, path).unwrap();
        view.refresh().unwrap();
        copy.end = view.committed();
        copy
    }

    /// Its records, all of them undamaged.
    fn count(path: &Path) -> usize {
        let found = LogReader::verify(path, |damage| panic!("{damage:?}")).unwrap();
        let records = LogReader::open(path).unwrap().records().map(Result::unwrap).count();
        assert_eq!(records as u64, found.records);
        records
    }

    #[test]
    fn what_is_not_finished_opens_as_nothing_at_any_time() {
        let (_directory, log, path) = log();
        let mut view = view(&log);
        let refuses = || {
            let errors = [
                LogReader::open(&path).unwrap_err(),
                LogFile::open(&path).unwrap_err(),
                LogReader::summary(&path).unwrap_err(),
                LogReader::verify(&path, |_| {}).unwrap_err(),
                LogReader::checkpoint(&path, path.with_extension("more")).unwrap_err(),
            ];
            for error in errors {
                assert_eq!(*error.kind(), LogErrorKind::UnfinishedCheckpoint, "{error}");
            }
        };
        let mut copy = begin(&mut view, &path);
        refuses();
        assert!(copy.take_last(&mut view).unwrap());
        refuses();
        copy.take_full(&mut view).unwrap();
        refuses();
        // As when the process dies.
        mem::forget(copy);
        refuses();
        let error = log.checkpoint(&path).unwrap_err();
        assert_eq!(*error.kind(), LogErrorKind::Exists, "{error}");
    }

    #[test]
    fn a_copy_that_fails_is_removed() {
        let (_directory, log, path) = log();
        let mut view = view(&log);
        let mut copy = begin(&mut view, &path);
        assert!(copy.take_last(&mut view).unwrap());
        copy.take_full(&mut view).unwrap();
        drop(copy);
        assert!(!path.exists());
    }

    #[test]
    fn segments_given_up_while_it_is_made_are_left_out() {
        for stage in 0..3 {
            let (_directory, log, path) = log();
            let middle = log.append(b"middle").unwrap();
            fill(&log);
            let mut view = view(&log);
            let mut copy = begin(&mut view, &path);
            let end = copy.end;
            let truncate = |at| {
                if at == stage {
                    log.truncate_before(middle).unwrap();
                    // The files of segments that were given up become others.
                    fill(&log);
                }
            };
            truncate(0);
            assert!(copy.take_last(&mut view).unwrap());
            truncate(1);
            copy.take_full(&mut view).unwrap();
            truncate(2);
            view.refresh().unwrap();
            let checkpoint = copy.finish(&view).unwrap();
            assert_eq!((checkpoint.first.get(), checkpoint.end.get()), (middle.get(), end));
            assert_eq!(count(&path), 81);
        }
    }

    #[test]
    fn a_last_segment_that_is_given_up_meanwhile_is_not_taken() {
        let (_directory, log, path) = log();
        let mut view = view(&log);
        let mut copy = begin(&mut view, &path);
        fill(&log);
        log.truncate_before(log.committed()).unwrap();
        fill(&log);
        assert!(!copy.take_last(&mut view).unwrap());
        copy.end = view.committed();
        assert!(copy.take_last(&mut view).unwrap());
        copy.take_full(&mut view).unwrap();
        copy.finish(&view).unwrap();
        assert_eq!(count(&path), 80);
    }

    #[test]
    fn records_of_the_last_segment_that_are_given_up_meanwhile_leave_an_empty_copy() {
        let (_directory, log, path) = log();
        let mut view = view(&log);
        let mut copy = begin(&mut view, &path);
        log.append(b"behind the end of the copy").unwrap();
        log.truncate_before(log.committed()).unwrap();
        assert!(copy.take_last(&mut view).unwrap());
        copy.take_full(&mut view).unwrap();
        let checkpoint = copy.finish(&view).unwrap();
        assert_eq!(checkpoint.first, checkpoint.end);
        assert_eq!(count(&path), 0);
        LogFile::open(&path).unwrap().append(b"goes on").unwrap();
        assert_eq!(count(&path), 1);
    }
}
