//! The directory that the program's processes leave their counts in.
//!
//! Each process makes a file there that stays when it ends, however it ends. The directory is gone
//! when its [`Counts`] is; a process that still runs then goes on, and nobody reads its counts.
//! Whoever owns a directory holds a lock on it: one without was left by a command that was killed,
//! and the next takes it away.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use fairlock_counts::layout;
use fairlock_counts::map::{EXTENSION, Map};
use fairlock_counts::snapshot::Snapshot;
use tempfile::TempDir;

/// Memory that no disk is behind: a page written by the kernel would hold up who counts in it.
const IN_MEMORY: &str = "/dev/shm";

/// How the directories' names begin.
const PREFIX: &str = "fairlock-counts-";

/// A root's program may become somebody else, who must still make files, and need not list them.
const SHARED: u32 = 0o1733;
/// Others' programs stay theirs.
const PRIVATE: u32 = 0o700;

/// A fresh directory for counts.
#[derive(Debug)]
pub struct Counts {
    directory: TempDir,
    /// The directory, locked.
    _owned: File,
}

impl Counts {
    /// Makes it, in memory if there is room.
    ///
    /// # Errors
    /// Those of mkdir(2) and flock(2).
    pub fn create() -> io::Result<Counts> {
        if has_room(Path::new(IN_MEMORY)) {
            // Where that is not possible, another directory may be.
            if let Ok(counts) = Counts::create_in(Path::new(IN_MEMORY)) {
                return Ok(counts);
            }
        }
        Counts::create_in(&std::env::temp_dir())
    }

    fn create_in(parent: &Path) -> io::Result<Counts> {
        remove_left_ones(parent);
        let mode = if user() == 0 { SHARED } else { PRIVATE };
        loop {
            let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            if let Some(owned) = own(directory.path())? {
                fs::set_permissions(directory.path(), Permissions::from_mode(mode))?;
                return Ok(Counts { directory, _owned: owned });
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// What all processes counted up to now, oldest first. Files that are not complete yet are
    /// left out.
    ///
    /// # Errors
    /// Those of readdir(3).
    pub fn snapshots(&self) -> io::Result<Vec<Snapshot>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.path())? {
            let entry = entry?;
            // Whoever may write here could leave a link.
            if entry.file_type()?.is_file() && is_counts(&entry.path()) {
                found.extend(Map::open(&entry.path()).ok().map(|map| Snapshot::of(&map)));
            }
        }
        found.sort_by_key(|snapshot| (snapshot.began, snapshot.pid));
        Ok(found)
    }
}

fn user() -> u32 {
    // SAFETY: only asks.
    unsafe { libc::geteuid() }
}

/// Locks a new directory; none if another command found it before it was locked and removed it.
fn own(directory: &Path) -> io::Result<Option<File>> {
    let owned = match File::open(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    owned.lock()?;
    Ok(directory.exists().then_some(owned))
}

/// Removes this user's directories that nobody owns. What cannot be removed stays.
fn remove_left_ones(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && entry.metadata().is_ok_and(|about| about.is_dir() && about.uid() == user());
        if is_ours && File::open(entry.path()).is_ok_and(|left| left.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_counts(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
}

/// Whether a whole file of counts fits. A program that counts into memory that is not there dies.
fn has_room(directory: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(directory.as_os_str().as_encoded_bytes()) else {
        return false;
    };
    let mut room = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: both live; all zero is a value.
    let room = unsafe {
        match libc::statvfs(path.as_ptr(), room.as_mut_ptr()) {
            0 => room.assume_init(),
            _ => return false,
        }
    };
    room.f_bavail.saturating_mul(room.f_frsize) >= layout::SIZE as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_processes_are_read_and_other_files_are_not() {
        let counts = Counts::create().unwrap();
        assert!(counts.snapshots().unwrap().is_empty());
        let map = Map::create(counts.path(), "timefair").unwrap();
        fs::write(counts.path().join("1-0.counts"), "not complete").unwrap();
        std::os::unix::fs::symlink(map.path(), counts.path().join("2-0.counts")).unwrap();
        let snapshots = counts.snapshots().unwrap();
        assert_eq!(snapshots.len(), 1);
        assert_eq!(snapshots[0].pid, std::process::id());
    }

    #[test]
    fn the_directory_goes_with_its_owner_and_one_that_was_left_with_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(format!("{PREFIX}left"));
        let strange = parent.path().join("strange");
        fs::create_dir(&left).unwrap();
        fs::create_dir(&strange).unwrap();
        let one = Counts::create_in(parent.path()).unwrap();
        assert!(!left.exists() && strange.exists());
        let another = Counts::create_in(parent.path()).unwrap();
        let path = one.path().to_owned();
        assert!(path.is_dir() && another.path().is_dir());
        drop(one);
        assert!(!path.exists());
    }
}
