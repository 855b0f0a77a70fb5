//! Opens a log for appending: creates it if need be, becomes its one writer, finds its end, and makes the
//! place ready where it goes on.
//!
//! A crash in the middle of this leaves a log that the next opening finds as this one did: nothing is
//! changed before the end is known and on the device, and nothing is removed that another opening would miss.
//!
//! **Positions never return.** When the loss of power takes records that readers may have seen, the log goes
//! on in a segment that no reader has seen. A segment's name is on the device before anything is appended to
//! it, so the first name that does not exist was never used. Batches without records ([`Kind::End`]) end the
//! segments in which records were lost.
//!
//! **A full disk.** Opening a log that was closed needs no room. Where files may share blocks, even changing
//! the control page needs some; a file that does nothing but reserve it is deleted then.

use std::io;
use std::path::Path;
use std::process;
use std::sync::Arc;

use super::ahead::{self, Making, make_segment};
use super::batch::Batch;
use super::blocks::Blocks;
use super::control::{self, Control, Look, Opening, Written};
use super::copies;
use super::cutting::{Cover, Cuts};
use super::error::{LogError, LogErrorKind};
use super::format::{BLOCK, FIRST_BATCH, Identity, Kind, Layout, SegmentHeader, VERSION};
use super::options::{LogOptions, Prewriting, Recovery, SyncPolicy};
use super::prewriting;
use super::recovery::{self, End};
use super::segments::{self, Inventory, NAME_WHILE_COPIED, RESERVE};
use super::storage::{SharedPage, Storage, StoredFile};
use super::window::{layout_by_segment, open_segment};

/// Files of segments that were given up which are kept to be used again.
pub(crate) const SPARES: usize = 2;
/// What the control page may need, and what a file system needs to change it, in bytes.
const RESERVE_BYTES: u64 = 1 << 20;

/// A log that this process alone may append to.
pub(crate) struct Opened<S: Storage> {
    pub(crate) lock: S::Lock,
    pub(crate) control: Written<S::Page>,
    pub(crate) making: Making,
    pub(crate) lineage: u64,
    /// Where the next batch goes.
    pub(crate) end: u64,
    pub(crate) place: Place<S>,
    pub(crate) spares: Vec<String>,
    /// The number of the next spare.
    pub(crate) next_spare: u64,
    pub(crate) recovery: Recovery,
}

/// The segment in which a log goes on, or at whose end.
pub(crate) struct Place<S: Storage> {
    pub(crate) segment: u64,
    pub(crate) file: S::File,
    /// Up to where blocks are there to be overwritten.
    pub(crate) ready: u64,
}

pub(crate) fn open<S: Storage>(
    storage: &Arc<S>,
    options: &LogOptions,
) -> Result<Opened<S>, LogError> {
    let failing = Failing { path: storage.path() };
    let TakenOver { lock, control, control_was_missing } = take_over(&**storage, options)?;
    let layout = control.layout();
    let mut look = control.look()?;
    let inventory = Inventory::of(&**storage).map_err(failing.to("list"))?;
    recovery::check_cut(&**storage, layout, &look, &inventory.segments)?;
    let was_cut = look.cut();
    look.cuts = look.cuts.map(Cuts::covered);
    if let Some(cut) = &was_cut {
        // A crash may have come before that: the loss of power must not leave what is covered, and no word of it.
        control.page().sync().map_err(failing.to("sync the control page of"))?;
        let epoch = look.epoch.unwrap_or(cut.epoch);
        Cover { storage, layout, epoch, durable: 0, current: None }.cover(cut)?;
    }
    let Inventory { segments, mut spares, next_spare } = inventory;
    let (given_up, segments) = recovery::without_given_up(layout, &look, segments);
    let same_boot = is_same_boot(&**storage, &look);
    let End { end: gap, begin, epoch, mut recovery } = find_end(storage, layout, &look, &segments)?;
    let path = storage.path().join(control::NAME);
    let epoch = epoch
        .max(look.epoch.unwrap_or(0))
        .checked_add(1)
        .ok_or_else(|| control::damaged(&path, "the count of openings"))?;
    recovery.control_was_missing = control_was_missing;
    recovery.was_created = look.epoch.is_none() && segments.is_empty();
    let prewriting = prewriting::choose(&**storage, options.prewrite)?;
    // Behind the end may be batches that were lost, or a part of one: zeros come over them.
    let is_clean = recovery.torn.is_none() && recovery.lost_bytes == 0;

    // What a crashed process wrote may not be on the device, though it is there.
    let read = begin..=layout.segment(gap);
    for &left in segments.iter().filter(|&it| read.contains(it)) {
        let (file, _) = open_segment(&**storage, layout, left, false)?;
        file.sync().map_err(failing.to("sync"))?;
    }
    // From here on the log is changed.
    let is_exact = recovery.was_closed || same_boot && look.committed.is_some();
    let may_be_known = !is_exact && look.shown != Some(false);
    let end = match segments.last() {
        Some(&last) if may_be_known && layout.segment(gap) <= last => {
            leave_lost(&**storage, layout, epoch, gap, &segments)?;
            layout.end(last)
        }
        // The next segment is made when something is appended.
        Some(&last) => gap.min(layout.end(last)),
        None => gap,
    };
    let segment = layout.segment(layout.next_batch(end));
    let control = Written::new(control, &look);
    let lineage = if look.is_copy { new_lineage() } else { look.lineage };
    let opening = Opening {
        epoch,
        boot: storage.boot(),
        process: process::id(),
        prewriting: prewriting::number(&prewriting),
        lineage,
        shown: options.sync != SyncPolicy::EveryCommit,
    };
    with_reserve(&**storage, || {
        if was_cut.is_some() {
            control.end_cut()?;
        }
        if look.first.is_none() {
            control.set_first(layout.first_batch(segments.first().copied().unwrap_or(0)))?;
        }
        // Positions first: readers believe them when they see that the log was opened since the kernel was
        // started.
        control.commit(end, true)?;
        control.set_opening(&opening)?;
        control.sync()
    })?;

    let beyond = segments.iter().filter(|&&it| it > segment).rev().chain(&given_up);
    let next_spare = give_up(&**storage, beyond, &mut spares, next_spare, is_clean)?;

    let header = options.segment_header.clone();
    let making = Making { layout, epoch, prewriting, header };
    let place = find_place(&**storage, &making, &segments, segment, end, is_clean)?;
    make_reserve(&**storage);
    Ok(Opened { lock, control, making, lineage, end, place, spares, next_spare, recovery })
}

/// Makes spares of segments that hold nothing any more, or removes them. Returns the number of the next spare.
fn give_up<'a, S: Storage>(
    storage: &S,
    segments: impl Iterator<Item = &'a u64>,
    spares: &mut Vec<String>,
    mut next_spare: u64,
    is_clean: bool,
) -> Result<u64, LogError> {
    let failing = Failing { path: storage.path() };
    // The last first: a crash must not leave a log in which one is missing.
    for &segment in segments {
        let name = segments::name_of(segment);
        let spare = segments::spare_name(next_spare);
        next_spare += 1;
        // A full disk may have no room for another name.
        if is_clean && storage.rename(&name, &spare).is_ok() {
            spares.push(spare);
        } else {
            segments::remove(storage, &name).map_err(failing.to("remove a file of"))?;
        }
    }
    for name in spares.drain(SPARES.min(spares.len())..) {
        segments::remove(storage, &name).map_err(failing.to("remove a file of"))?;
    }
    storage.sync_names().map_err(failing.to("sync"))?;
    Ok(next_spare)
}

/// Opens or makes the segment in which the log goes on, or the last one if that ends where the next begins.
fn find_place<S: Storage>(
    storage: &S,
    making: &Making,
    segments: &[u64],
    segment: u64,
    end: u64,
    is_clean: bool,
) -> Result<Place<S>, LogError> {
    let failing = Failing { path: storage.path() };
    let layout = making.layout;
    match segments.iter().rfind(|&&it| it <= segment) {
        Some(&last) if last == segment => {
            continue_segment(storage, layout, &making.prewriting, end, is_clean)
        }
        Some(&last) => {
            let (shared, _) = open_segment(storage, layout, last, false)?;
            // Nothing is written into it any more. To open it for writing locks it, which would keep the writer
            // of a copy from one that both have by links.
            let file = match shared.is_linked().map_err(failing.to("look at a segment of"))? {
                true => shared,
                false => open_segment(storage, layout, last, true)?.0,
            };
            Ok(Place { segment: last, file, ready: layout.end(last) })
        }
        None => {
            let (file, ready) = make_segment(storage, making, segment)?;
            Ok(Place { segment, file, ready })
        }
    }
}

/// Whether what the kernel was told to store into the page is what is found there.
pub(crate) fn is_same_boot<S: Storage>(storage: &S, look: &Look) -> bool {
    look.boot == Some(storage.boot()) && !look.is_copy
}

/// Finds where a log ends, or a copy of one, whose segments, without those that were given up, are these.
pub(crate) fn find_end<S: Storage>(
    storage: &Arc<S>,
    layout: Layout,
    look: &Look,
    segments: &[u64],
) -> Result<End, LogError> {
    match look.is_copy {
        true => copies::find_end(storage, layout, look, segments),
        false => {
            let same_boot = is_same_boot(&**storage, look);
            recovery::find_end(storage, layout, look, same_boot, segments)
        }
    }
}

/// Makes errors of system calls.
struct Failing<'a> {
    path: &'a Path,
}

impl Failing<'_> {
    fn to(&self, tried: &'static str) -> impl Fn(io::Error) -> LogError {
        move |error| LogError::system(tried, self.path, error)
    }
}

/// A log that nobody else writes.
struct TakenOver<S: Storage> {
    lock: S::Lock,
    control: Control<S::Page>,
    control_was_missing: bool,
}

/// Becomes the writer of the log that is there, or of one that is made now.
fn take_over<S: Storage>(storage: &S, options: &LogOptions) -> Result<TakenOver<S>, LogError> {
    let path = storage.path();
    let failing = Failing { path };
    let mut control_was_missing = false;
    loop {
        let inventory = Inventory::of(storage).map_err(failing.to("list"))?;
        let control = match Control::open(storage, true) {
            Err(error) if *error.kind() == LogErrorKind::NotALog => {
                control_was_missing = !inventory.segments.is_empty();
                make_control(storage, options, &inventory)?;
                Control::open(storage, true)?
            }
            other => other?,
        };
        let look = control.look()?;
        let was_opened = look.epoch.is_some_and(|epoch| epoch > 0);
        if options.create_new && (was_opened || !inventory.segments.is_empty()) {
            return Err(LogError::new(LogErrorKind::Exists, path));
        }
        let lock = storage.lock(control::LOCK, control.page()).map_err(failing.to("lock"))?;
        let Some(lock) = lock else {
            // Who was the writer until just now may have been the last.
            let process = control.look()?.process.unwrap_or(0);
            return Err(LogError::new(LogErrorKind::BusyWriter { process }, path));
        };
        Control::<S::Page>::remove_unfinished(storage).map_err(failing.to("remove a file of"))?;
        // Another writer may have replaced it since it was opened.
        let in_place = storage.is_in_place(&lock, control::NAME, control.page());
        if !in_place.map_err(failing.to("look at the files of"))? {
            continue;
        }
        let is_linked = control.page().is_linked().map_err(failing.to("look at the files of"))?;
        if control.version() == VERSION && !is_linked {
            return Ok(TakenOver { lock, control, control_was_missing });
        }
        let mut look = control.look()?;
        look.is_copy |= is_linked;
        with_reserve(storage, || {
            Control::<S::Page>::replace(storage, control.layout(), &look)
                .map_err(failing.to("replace the control page of"))
        })?;
    }
}

/// Makes the control page of a log that is new, or has lost it.
fn make_control<S: Storage>(
    storage: &S,
    options: &LogOptions,
    inventory: &Inventory,
) -> Result<(), LogError> {
    let (layout, first, lineage) = match inventory.segments.first() {
        // What had been given up may be there again.
        Some(&segment) => {
            let layout = layout_by_segment(storage, segment)?;
            (layout, layout.first_batch(segment), new_lineage())
        }
        None if options.create || options.create_new => {
            refuse_others_files(storage)?;
            let identity = new_identity();
            (Layout { identity, segment_bytes: options.segment_bytes }, FIRST_BATCH, 0)
        }
        None => return Err(LogError::new(LogErrorKind::NotALog, storage.path())),
    };
    Control::<S::Page>::create(storage, layout, first, lineage)
        .map_err(|error| LogError::system("create", &storage.path().join(control::NAME), error))
}

/// A log's directory holds nothing else: what is not its own would be in its way, or it in theirs.
fn refuse_others_files<S: Storage>(storage: &S) -> Result<(), LogError> {
    let names = storage.names();
    let names = names.map_err(|error| LogError::system("list", storage.path(), error))?;
    let is_fine = |name: &String| {
        name.ends_with(".new") || ["lost+found", control::LOCK, "writer"].contains(&name.as_str())
    };
    // Another process may make the log at the same time.
    match names.iter().all(is_fine) || names.iter().any(|name| name == control::NAME) {
        true => Ok(()),
        false => Err(LogError::new(LogErrorKind::OthersFiles, storage.path())),
    }
}

/// For a log that goes on beside the one that it was copied from.
pub(crate) fn new_lineage() -> u64 {
    let bytes = new_identity();
    // 0 is that of a log which was not copied.
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")).max(1)
}

/// From the system's source of random numbers.
fn new_identity() -> Identity {
    let mut identity = Identity::default();
    // SAFETY: sixteen bytes that may be written; so few are given at once.
    let given = unsafe { libc::getrandom(identity.as_mut_ptr().cast(), identity.len(), 0) };
    assert_eq!(given, identity.len() as isize, "the system has no random numbers");
    identity
}

/// Copied at a time.
const COPIED: usize = 1 << 20;

/// Opens a segment's file for writing. One that has other names, as in a copy made by links, stays as it is: a
/// file of the log's own takes its place, with what there is up to an offset.
pub(crate) fn open_own<S: Storage>(
    storage: &S,
    segment: u64,
    until: u64,
) -> Result<S::File, LogError> {
    let name = segments::name_of(segment);
    let path = storage.path().join(&name);
    let cannot = |tried| {
        let path = path.clone();
        move |error| LogError::system(tried, &path, error).at(segment, 0)
    };
    // For reading: to open it for writing would lock what is somebody else's.
    let shared = storage.open(&name, false).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            LogError::new(LogErrorKind::MissingSegment, &path).at(segment, 0)
        }
        _ => cannot("open")(error),
    })?;
    if !shared.is_linked().map_err(cannot("look at"))? {
        return storage.open(&name, true).map_err(cannot("open"));
    }
    match storage.remove(NAME_WHILE_COPIED) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(cannot("remove what is left of")(error));
        }
        _ => {}
    }
    let own = storage.create(NAME_WHILE_COPIED).map_err(cannot("copy"))?;
    let copied = copy(&shared, &own, until).and_then(|_| {
        own.sync()?;
        storage.rename(NAME_WHILE_COPIED, &name)?;
        storage.sync_names()
    });
    if let Err(error) = copied {
        // Its room, which others may need.
        let _ = storage.remove(NAME_WHILE_COPIED);
        return Err(cannot("copy")(error));
    }
    Ok(own)
}

/// Copies a file's bytes up to this offset, or to its end if that comes first; how many there were.
pub(crate) fn copy<F: StoredFile>(from: &F, to: &F, until: u64) -> io::Result<u64> {
    let most = usize::try_from(until).unwrap_or(COPIED).clamp(BLOCK, COPIED);
    let mut bytes = Blocks::zeroed(most);
    let mut offset = 0;
    while offset < until {
        let wanted = bytes.len().min(usize::try_from(until - offset).unwrap_or(usize::MAX));
        let read = from.read(&mut bytes[..wanted], offset)?;
        // Half a block is what no log has written.
        let whole = read - read % BLOCK;
        if whole > 0 {
            to.write(&bytes[..whole], offset, false)?;
        }
        offset += whole as u64;
        if whole < wanted {
            break;
        }
    }
    Ok(offset)
}

/// Ends, at the gap, what the loss of power has left, and every later segment at its beginning.
fn leave_lost<S: Storage>(
    storage: &S,
    layout: Layout,
    epoch: u32,
    gap: u64,
    segments: &[u64],
) -> Result<(), LogError> {
    let mut block = Blocks::zeroed(BLOCK);
    let mut end_at = |file: &S::File, position: u64| {
        let mut end = Batch::new(layout, epoch, BLOCK, position);
        block.copy_from_slice(end.seal(Kind::End, gap));
        let offset = layout.offset(position);
        file.write(&block, offset, true)?;
        // What is behind is not read again, even by who has an old position.
        file.set_len(offset + BLOCK as u64)
    };
    let torn = layout.segment(gap);
    // The last first: while one of them is not ended, the gap is found again.
    for &segment in segments.iter().filter(|&&it| it > torn).rev() {
        let path = storage.path().join(segments::name_of(segment));
        let file = open_own(storage, segment, FIRST_BATCH)?;
        let cannot = |error| LogError::system("end", &path, error).at(segment, 0);
        let mut header = Blocks::zeroed(BLOCK);
        SegmentHeader { layout, segment, epoch }.encode(&mut header);
        file.write(&header, 0, true).map_err(cannot)?;
        end_at(&file, layout.first_batch(segment)).map_err(cannot)?;
    }
    if segments.contains(&torn) {
        let file = open_own(storage, torn, layout.offset(gap))?;
        let path = storage.path().join(segments::name_of(torn));
        end_at(&file, gap)
            .map_err(|error| LogError::system("end", &path, error).at(torn, layout.offset(gap)))?;
    }
    Ok(())
}

/// Opens the segment in which the log ends, and says how far it is ready.
fn continue_segment<S: Storage>(
    storage: &S,
    layout: Layout,
    prewriting: &Prewriting,
    end: u64,
    is_clean: bool,
) -> Result<Place<S>, LogError> {
    let segment = layout.segment(end);
    let file = open_own(storage, segment, layout.offset(end))?;
    let path = storage.path().join(segments::name_of(segment));
    let cannot = |error| LogError::system("look at", &path, error).at(segment, 0);
    if *prewriting != Prewriting::On {
        return Ok(Place { segment, file, ready: layout.end(segment) });
    }
    // It was trimmed if the log was closed. Without room it is written as far as there is some.
    let _ = file.allocate(layout.segment_bytes);
    if !is_clean {
        return Ok(Place { segment, file, ready: end });
    }
    let base = segment * layout.segment_bytes;
    let written = ahead::written_until(&file, layout.offset(end), layout.segment_bytes);
    let ready = base + written.map_err(cannot)?;
    Ok(Place { segment, file, ready })
}

/// Does what changes the control page; if the disk is full, once more with the room that was kept for that.
pub(crate) fn with_reserve<S: Storage>(
    storage: &S,
    mut change: impl FnMut() -> Result<(), LogError>,
) -> Result<(), LogError> {
    match change() {
        Err(error) if *error.kind() == LogErrorKind::StorageFull => {
            let released = storage.remove(RESERVE).and_then(|()| storage.free_what_was_removed());
            if released.is_err() { Err(error) } else { change() }
        }
        changed => changed,
    }
}

/// Makes the file that only takes room, where that is of use; false if there is no room now. Without it all
/// goes on as long as there is some.
pub(crate) fn make_reserve<S: Storage>(storage: &S) -> bool {
    if !storage.filesystem().shares_blocks {
        return true;
    }
    let file = match storage.create(RESERVE) {
        Err(error) => return error.kind() == io::ErrorKind::AlreadyExists,
        Ok(file) => file,
    };
    let made = file.allocate(RESERVE_BYTES).and_then(|_| file.sync());
    if made.is_err() {
        let _ = storage.remove(RESERVE);
    }
    made.is_ok()
}
