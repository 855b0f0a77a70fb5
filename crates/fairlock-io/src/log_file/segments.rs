//! A log's directory: what its files are called, and which are there.

use std::io;

use super::storage::Storage;

/// The file of a segment.
pub(crate) fn name_of(segment: u64) -> String {
    format!("{segment:016}.segment")
}

/// Whether this is the name of a segment's file.
pub(crate) fn is_segment(name: &str) -> bool {
    number_in(name, ".segment").is_some()
}

/// A file that was a segment and may become another. The number only tells it from other spares.
pub(crate) fn spare_name(number: u64) -> String {
    format!("{number:016}.spare")
}

/// A segment while it is made: what is left of it after a crash is no segment.
pub(crate) const NAME_WHILE_NEW: &str = "segment.new";

/// A segment while it is copied, to be changed where others keep what it holds.
pub(crate) const NAME_WHILE_COPIED: &str = "copy.new";

/// A file that only takes room, for when a full disk has none for a change of the control page.
pub(crate) const RESERVE: &str = "reserve";

/// Removes a file, unless it is gone: a call that failed may have done it.
pub(crate) fn remove<S: Storage>(storage: &S, name: &str) -> io::Result<()> {
    match storage.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// What is in a log's directory.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// In order.
    pub(crate) segments: Vec<u64>,
    pub(crate) spares: Vec<String>,
    /// No spare has this number, or a higher one.
    pub(crate) next_spare: u64,
}

impl Inventory {
    pub(crate) fn of<S: Storage>(storage: &S) -> io::Result<Inventory> {
        let mut inventory = Inventory::default();
        for name in storage.names()? {
            if let Some(segment) = number_in(&name, ".segment") {
                inventory.segments.push(segment);
            } else if let Some(number) = number_in(&name, ".spare") {
                inventory.spares.push(name);
                inventory.next_spare = inventory.next_spare.max(number + 1);
            }
        }
        inventory.segments.sort_unstable();
        Ok(inventory)
    }
}

fn number_in(name: &str, suffix: &str) -> Option<u64> {
    let number = name.strip_suffix(suffix)?;
    (number.len() == 16).then(|| number.parse().ok()).flatten()
}

/// What a repair has saved before it changed it: from `place` on, in the repair of this number.
pub(crate) fn saved_name(place: &str, number: u64) -> String {
    format!("damaged-{place}-{number}.bytes")
}

/// The number of the repair, if this is the name of what one has saved.
pub(crate) fn number_of_saved(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("damaged-")?.strip_suffix(".bytes")?;
    rest.rsplit_once('-')?.1.parse().ok()
}
