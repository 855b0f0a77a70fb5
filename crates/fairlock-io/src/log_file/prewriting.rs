//! Whether it helps to write blocks before they are needed: where what is overwritten stays in its place,
//! and the kernel lets others read meanwhile.
//!
//! For the common file systems this is known. On others it is tried: a block of a file is written twice,
//! and each time the system is asked where on the device the block is.

use std::io;

use super::blocks::Blocks;
use super::error::LogError;
use super::format::BLOCK;
use super::options::{Prewrite, Prewriting};
use super::storage::{FileSystem, Overwrites, Storage, StoredFile};

const PROBE: &str = "probe.new";

/// What is done in this directory.
pub(crate) fn choose<S: Storage>(storage: &S, wish: Prewrite) -> Result<Prewriting, LogError> {
    match wish {
        Prewrite::Always => return Ok(Prewriting::On),
        Prewrite::Never => return Ok(Prewriting::Disabled),
        Prewrite::Auto => {}
    }
    let FileSystem { name: filesystem, overwrites, .. } = storage.filesystem();
    let in_place = match overwrites {
        Overwrites::InPlace => true,
        Overwrites::Alone => return Ok(Prewriting::OverwritesAlone { filesystem }),
        Overwrites::Depends { usually } => match stays_in_place(storage) {
            Ok(found) => found.unwrap_or(usually),
            // A full disk does not keep a log from being opened.
            Err(error) if LogError::is_full(&error) => usually,
            Err(error) => {
                let tried = "try how blocks are overwritten in";
                return Err(LogError::system(tried, storage.path(), error));
            }
        },
    };
    Ok(if in_place { Prewriting::On } else { Prewriting::CopiesOnWrite { filesystem } })
}

/// As the control page has it: the page of a log that was never opened for writing has zero.
pub(crate) fn number(prewriting: &Prewriting) -> u64 {
    match prewriting {
        Prewriting::On => 1,
        Prewriting::Disabled => 2,
        Prewriting::CopiesOnWrite { .. } => 3,
        Prewriting::OverwritesAlone { .. } => 4,
    }
}

/// What a number stands for, in this directory.
pub(crate) fn of_number<S: Storage>(storage: &S, number: u64) -> Option<Prewriting> {
    let filesystem = || storage.filesystem().name;
    match number {
        1 => Some(Prewriting::On),
        2 => Some(Prewriting::Disabled),
        3 => Some(Prewriting::CopiesOnWrite { filesystem: filesystem() }),
        4 => Some(Prewriting::OverwritesAlone { filesystem: filesystem() }),
        _ => None,
    }
}

/// Whether a block that is written again is where it was; none if the system does not say.
fn stays_in_place<S: Storage>(storage: &S) -> io::Result<Option<bool>> {
    match storage.remove(PROBE) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = storage.create(PROBE)?;
    let block = Blocks::zeroed(BLOCK);
    let write_and_find = || {
        file.write(&block, 0, true)?;
        Ok::<_, io::Error>(file.extent(0)?.filter(|extent| extent.written))
    };
    let places = write_and_find().and_then(|first| Ok((first, write_and_find()?)));
    // What is left of it is removed by the next opening.
    let removed = storage.remove(PROBE);
    let places = places?;
    removed?;
    Ok(match places {
        (Some(first), Some(second)) => Some(first.physical == second.physical),
        _ => None,
    })
}
