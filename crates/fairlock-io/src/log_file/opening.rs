//! Opens a log for appending: creates it if need be, becomes its one writer, finds its end, and makes the
//! place ready where it goes on.
//!
//! A crash in the middle of this leaves a log that the next opening finds as this one did: nothing is
//! changed before the end is known and on the device, and nothing is removed that another opening would miss.

use std::io;
use std::path::Path;
use std::process;
use std::sync::Arc;

use super::ahead::{self, make_segment};
use super::control::{self, Control};
use super::error::{LogError, LogErrorKind};
use super::format::{FIRST_BATCH, Identity, Layout};
use super::options::{LogOptions, Prewriting, Recovery};
use super::prewriting;
use super::recovery::{self, End};
use super::segments::{self, Inventory};
use super::storage::{Storage, StoredFile};
use super::window::{damaged, open_segment};

/// Files of segments that were given up which are kept to be used again.
pub(crate) const SPARES: usize = 2;

/// A log that this process alone may append to.
pub(crate) struct Opened<S: Storage> {
    pub(crate) control: Control<S::Memory>,
    pub(crate) epoch: u32,
    /// Where the next batch goes.
    pub(crate) end: u64,
    pub(crate) prewriting: Prewriting,
    /// Of the segment that `end` is in.
    pub(crate) file: S::File,
    /// Up to where blocks are there to be overwritten.
    pub(crate) ready: u64,
    pub(crate) spares: Vec<String>,
    /// The number of the next spare.
    pub(crate) next_spare: u64,
    pub(crate) recovery: Recovery,
}

pub(crate) fn open<S: Storage>(
    storage: &Arc<S>,
    options: &LogOptions,
) -> Result<Opened<S>, LogError> {
    let failing = Failing { path: storage.path() };
    let control = take_over(&**storage, options)?;
    let layout = control.layout();
    let inventory = Inventory::of(&**storage).map_err(failing.to("list"))?;
    let Inventory { segments, mut spares, mut next_spare } = inventory;
    let (given_up, segments) = recovery::without_given_up(&control, segments);
    let End { end, begin, epoch, recovery } = recovery::find_end(storage, &control, &segments)?;
    // It never grows so far, but who can write the files can say so.
    let Some(epoch) = epoch.max(control.epoch()).checked_add(1) else {
        return Err(damaged(&**storage, layout, end, "the count of openings"));
    };
    let segment = layout.segment(end);

    let prewriting = prewriting::choose(&**storage, options.prewrite)?;
    // Behind the end may be batches that were lost, or a part of one: zeros come over them.
    let is_clean = recovery.torn.is_none() && recovery.lost_bytes == 0;
    let continued = match segments.contains(&segment) {
        true => Some(continue_segment(&**storage, layout, &prewriting, end, is_clean)?),
        false => None,
    };
    // What a crashed process wrote may not be on the device, though it is there.
    for &left in segments.iter().filter(|&&it| begin <= it && it <= segment) {
        let (file, _) = open_segment(&**storage, left, false)?;
        file.sync().map_err(failing.to("sync"))?;
    }
    // From here on the log is changed. Positions first: readers believe them when they see that the
    // log was opened since the kernel was started.
    if control.first().is_none() {
        control.set_first(layout.first_batch(segments.first().copied().unwrap_or(0)));
    }
    control.set_durable(end);
    control.commit(end);
    control.set_prewriting(prewriting::number(&prewriting));
    control.set_opening(epoch, storage.boot(), process::id());
    control.sync().map_err(failing.to("sync the control page of"))?;

    // The last first: a crash must not leave a log in which one is missing.
    for &beyond in segments.iter().filter(|&&it| it > segment).rev().chain(&given_up) {
        let name = segments::name_of(beyond);
        if is_clean {
            let spare = segments::spare_name(next_spare);
            next_spare += 1;
            storage.rename(&name, &spare).map_err(failing.to("rename in"))?;
            spares.push(spare);
        } else {
            storage.remove(&name).map_err(failing.to("remove in"))?;
        }
    }
    for name in spares.drain(SPARES.min(spares.len())..) {
        storage.remove(&name).map_err(failing.to("remove in"))?;
    }
    storage.sync_names().map_err(failing.to("sync"))?;
    let (file, ready) = match continued {
        Some(continued) => continued,
        None => make_segment(&**storage, layout, &prewriting, epoch, segment)?,
    };
    Ok(Opened { control, epoch, end, prewriting, file, ready, spares, next_spare, recovery })
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

/// Becomes the writer of the log that is there, or of one that is made now.
fn take_over<S: Storage>(
    storage: &S,
    options: &LogOptions,
) -> Result<Control<S::Memory>, LogError> {
    let path = storage.path();
    let failing = Failing { path };
    let inventory = Inventory::of(storage).map_err(failing.to("list"))?;
    let control = match Control::open(storage, true) {
        Err(error) if *error.kind() == LogErrorKind::NotALog && error.path() == path => {
            make_control(storage, options, &inventory)?;
            Control::open(storage, true)?
        }
        other => other?,
    };
    if options.create_new && (control.epoch() > 0 || !inventory.segments.is_empty()) {
        return Err(LogError::new(LogErrorKind::Exists, path));
    }
    if !control.lock().map_err(failing.to("lock"))? {
        let busy = LogErrorKind::BusyWriter { process: control.process() };
        return Err(LogError::new(busy, path));
    }
    Control::<S::Memory>::remove_unfinished(storage).map_err(failing.to("remove in"))?;
    Ok(control)
}

/// Makes the control page of a log that is new, or has lost it.
fn make_control<S: Storage>(
    storage: &S,
    options: &LogOptions,
    inventory: &Inventory,
) -> Result<(), LogError> {
    let (layout, first) = match inventory.segments.first() {
        Some(&segment) => {
            let (_, header) = open_segment(storage, segment, false)?;
            (header.layout, header.layout.first_batch(segment))
        }
        None if options.create || options.create_new => {
            refuse_others_files(storage)?;
            let identity = new_identity();
            (Layout { identity, segment_bytes: options.segment_bytes }, FIRST_BATCH)
        }
        None => return Err(LogError::new(LogErrorKind::NotALog, storage.path())),
    };
    Control::<S::Memory>::create(storage, layout, first)
        .map_err(|error| LogError::system("create", &storage.path().join(control::NAME), error))
}

/// A log's directory holds nothing else: what is not its own would be in its way, or it in theirs.
fn refuse_others_files<S: Storage>(storage: &S) -> Result<(), LogError> {
    let names = storage.names();
    let names = names.map_err(|error| LogError::system("list", storage.path(), error))?;
    let is_fine = |name: &String| name.ends_with(".new") || name == "lost+found";
    // Another process may make the log at the same time.
    match names.iter().all(is_fine) || names.iter().any(|name| name == control::NAME) {
        true => Ok(()),
        false => Err(LogError::new(LogErrorKind::OthersFiles, storage.path())),
    }
}

/// From the system's source of random numbers.
fn new_identity() -> Identity {
    let mut identity = Identity::default();
    // SAFETY: sixteen bytes that may be written; so few are given at once.
    let given = unsafe { libc::getrandom(identity.as_mut_ptr().cast(), identity.len(), 0) };
    assert_eq!(given, identity.len() as isize, "the system has no random numbers");
    identity
}

/// Opens the segment in which the log ends, and says how far it is ready.
fn continue_segment<S: Storage>(
    storage: &S,
    layout: Layout,
    prewriting: &Prewriting,
    end: u64,
    is_clean: bool,
) -> Result<(S::File, u64), LogError> {
    let segment = layout.segment(end);
    let (file, _) = open_segment(storage, segment, true)?;
    let path = storage.path().join(segments::name_of(segment));
    let cannot = |error| LogError::system("look at", &path, error).at(segment, 0);
    if *prewriting != Prewriting::On {
        return Ok((file, layout.end(segment)));
    }
    // It was trimmed if the log was closed. Without room it is written as far as there is some.
    let _ = file.allocate(layout.segment_bytes);
    if !is_clean {
        return Ok((file, end));
    }
    let base = segment * layout.segment_bytes;
    let written = ahead::written_until(&file, layout.offset(end), layout.segment_bytes);
    Ok((file, base + written.map_err(cannot)?))
}
