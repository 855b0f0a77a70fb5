//! The directory that the program's processes leave their counts in.
//!
//! Each process makes a file there that stays when it ends, however it ends. The directory is gone
//! when its [`Counts`] is; a process that still runs then goes on, and nobody reads its counts.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fairlock_counts::layout;
use fairlock_counts::map::{EXTENSION, Map};
use fairlock_counts::snapshot::Snapshot;
use tempfile::TempDir;

/// Memory that no disk is behind: a page written by the kernel would hold up who counts in it.
const IN_MEMORY: &str = "/dev/shm";

/// A root's program may become somebody else, who must still make files, and need not list them.
const SHARED: u32 = 0o1733;
/// Others' programs stay theirs.
const PRIVATE: u32 = 0o700;

/// A fresh directory for counts.
#[derive(Debug)]
pub struct Counts {
    directory: TempDir,
}

impl Counts {
    /// Makes it, in memory if there is room.
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn create() -> io::Result<Counts> {
        // SAFETY: only asks.
        let mode = if unsafe { libc::geteuid() } == 0 { SHARED } else { PRIVATE };
        let mut builder = tempfile::Builder::new();
        builder.prefix("fairlock-").permissions(Permissions::from_mode(mode));
        let in_memory = has_room(Path::new(IN_MEMORY)).then(|| builder.tempdir_in(IN_MEMORY));
        let directory = match in_memory {
            Some(Ok(directory)) => directory,
            _ => builder.tempdir()?,
        };
        // mkdir(2) takes the umask away.
        fs::set_permissions(directory.path(), Permissions::from_mode(mode))?;
        Ok(Counts { directory })
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
    fn the_directory_goes_with_its_owner() {
        let counts = Counts::create().unwrap();
        let path = counts.path().to_owned();
        assert!(path.is_dir());
        drop(counts);
        assert!(!path.exists());
    }
}
