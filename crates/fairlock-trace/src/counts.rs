//! The directory that the program's processes leave their counts in.
//!
//! Each process makes a file there that remains when the process ends, however it ends. The directory is
//! removed when its [`Counts`] is dropped; a process that still runs continues, and nobody reads its
//! counts. The owner of a directory holds a lock on it. A directory without a lock was left by a command
//! that was killed, and the next command removes it.
//!
//! No other user can add a file. The outer directory can be listed only by its owner. Inside is another
//! one, whose name nobody can guess, and which is known only from the program's environment:
//!
//! ```text
//!   /dev/shm/fairlock-counts-Xy4kQ2                       0700   (root's: 0711)
//!   └── 9f0c6d1b2e…, 128 random bits                      0700   (root's: 1733)
//!       ├── 4711-0.counts                                 0600, its process's
//! ```
//!
//! A program that root starts may become another user, and must then still make files for programs that it
//! executes: the modes in brackets allow that. A process that can read the environment of such a program,
//! and so could also trace it, can make files, too. So files are not trusted: only regular files are
//! opened, [`Snapshot::read`] is bounded, and so is the total that is read.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fairlock_counts::layout;
use fairlock_counts::map::{EXTENSION, RUN_PREFIX};
use fairlock_counts::regular;
use fairlock_counts::snapshot::Snapshot;
use tempfile::TempDir;

/// Memory that no disk is behind: a page written by the kernel would hold up who counts in it.
const IN_MEMORY: &str = "/dev/shm";

/// Of both directories.
const PRIVATE: u32 = 0o700;
/// Of root's outer one: to be passed through, not to be listed.
const PASSED: u32 = 0o711;
/// Of root's inner one: everybody may make files, and remove only their own.
const SHARED: u32 = 0o1733;

/// Files that are read, at most: those of the processes that began first.
const MOST_FILES: usize = 1 << 12;
/// Names that are looked at, at most.
const MOST_NAMES: usize = 1 << 16;
/// What all snapshots together may have, in uses of a lock by a thread: some hundred MB.
const MOST_KEPT: usize = 1 << 20;
/// What a lock takes, likewise.
const LOCK: usize = 8;

/// A fresh directory for counts.
#[derive(Debug)]
pub struct Counts {
    outer: TempDir,
    /// Where the files are.
    path: PathBuf,
    /// The same, opened.
    inner: File,
    /// The outer directory, locked.
    _owned: File,
}

/// What a run's processes counted.
#[derive(Debug, Default)]
pub struct Counted {
    /// Oldest first.
    pub snapshots: Vec<Snapshot>,
    /// Files of counts that were not looked at, as there was too much in those before.
    pub left_out: usize,
}

impl Counts {
    /// Makes it, in memory if there is enough space.
    ///
    /// # Errors
    /// Those of mkdir(2), flock(2) and getrandom(2).
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
        let (outer_mode, inner_mode) =
            if user() == 0 { (PASSED, SHARED) } else { (PRIVATE, PRIVATE) };
        loop {
            let outer = tempfile::Builder::new().prefix(RUN_PREFIX).tempdir_in(parent)?;
            let Some(owned) = own(outer.path())? else { continue };
            let path = outer.path().join(secret()?);
            DirBuilder::new().mode(PRIVATE).create(&path)?;
            // mkdir(2) would apply the umask.
            fs::set_permissions(&path, Permissions::from_mode(inner_mode))?;
            let inner = open_directory(&path)?;
            // Last: until now nobody else could get here at all.
            fs::set_permissions(outer.path(), Permissions::from_mode(outer_mode))?;
            return Ok(Counts { outer, path, inner, _owned: owned });
        }
    }

    /// Its path, for the program's environment and nobody else.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of files that may be counts.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)?.take(MOST_NAMES) {
            let name = entry?.file_name();
            if is_counts(&name) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Opens a file to read it.
    pub(crate) fn open(&self, name: &OsStr) -> io::Result<File> {
        regular::open_in(self.inner.as_fd(), name)
    }

    /// Opens a file to read it and to write to it.
    pub(crate) fn open_to_write(&self, name: &OsStr) -> io::Result<File> {
        regular::open_in_to_write(self.inner.as_fd(), name)
    }

    /// What all processes counted up to now. Files that are no counts, or not complete yet, are left
    /// out.
    ///
    /// # Errors
    /// Those of readdir(3).
    pub fn read(&self) -> io::Result<Counted> {
        let mut files: Vec<(u64, OsString)> = Vec::new();
        for name in self.names()? {
            if let Ok(file) = self.open(&name) {
                files.extend(Snapshot::began(&file).map(|began| (began, name)));
            }
        }
        files.sort();
        let mut counted = Counted::default();
        let mut kept = 0;
        for (_, name) in files {
            if counted.snapshots.len() >= MOST_FILES || kept >= MOST_KEPT {
                counted.left_out += 1;
                continue;
            }
            let file = self.open(&name);
            let Ok(snapshot) = file.and_then(|file| Snapshot::read(&file)) else { continue };
            let uses = snapshot.locks.iter().map(|lock| LOCK + lock.threads.len());
            kept += uses.sum::<usize>();
            counted.snapshots.push(snapshot);
        }
        counted.snapshots.sort_by_key(|snapshot| (snapshot.began, snapshot.pid));
        Ok(counted)
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        // Nobody begins to count here any more, so that all of it can be removed.
        let _ = fs::set_permissions(self.outer.path(), Permissions::from_mode(PRIVATE));
    }
}

/// A name that nobody guesses.
fn secret() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    // SAFETY: the call writes as many bytes as the buffer has.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(got) {
        Ok(got) if got == bytes.len() => {
            Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
        }
        Ok(_) => Err(io::ErrorKind::Interrupted.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The directory itself, not what a link leads to.
fn open_directory(path: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    File::options().read(true).custom_flags(flags).open(path)
}

fn user() -> u32 {
    // SAFETY: the call takes nothing and returns a number.
    unsafe { libc::geteuid() }
}

/// Locks a new directory; none if another command found it before it was locked and removed it.
fn own(directory: &Path) -> io::Result<Option<File>> {
    let owned = match open_directory(directory) {
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
        if !entry.file_name().as_encoded_bytes().starts_with(RUN_PREFIX.as_bytes()) {
            continue;
        }
        let Ok(left) = open_directory(&entry.path()) else { continue };
        if left.metadata().is_ok_and(|about| about.uid() == user()) && left.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_counts(name: &OsStr) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == EXTENSION)
}

/// Whether a whole file of counts fits. A program that counts into memory that is not there dies.
fn has_room(directory: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(directory.as_os_str().as_bytes()) else {
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
    use std::os::unix::fs::symlink;

    use fairlock_counts::map::Map;

    use super::*;

    fn pids(counts: &Counts) -> Vec<u32> {
        let counted = counts.read().unwrap();
        counted.snapshots.iter().map(|snapshot| snapshot.pid).collect()
    }

    #[test]
    fn counts_of_processes_are_read_and_other_files_are_not() {
        let counts = Counts::create().unwrap();
        assert!(pids(&counts).is_empty());
        let map = Map::create(counts.path(), "rwsem").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let stranger = Map::create(elsewhere.path(), "rwsem").unwrap();
        let at = |name: &str| counts.path().join(name);
        fs::write(at("1-0.counts"), "not complete").unwrap();
        symlink(map.path(), at("2-0.counts")).unwrap();
        fs::create_dir(at("3-0.counts")).unwrap();
        let fifo = std::ffi::CString::new(at("4-0.counts").as_os_str().as_bytes()).unwrap();
        // SAFETY: the path ends with a 0.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        File::create(at("5-0.counts")).unwrap().set_len(layout::SIZE as u64).unwrap();
        // Another file system has no such links.
        let _ = fs::hard_link(stranger.path(), at("6-0.counts"));
        assert_eq!(pids(&counts), [std::process::id()]);
    }

    #[test]
    fn nobody_else_gets_where_the_files_are() {
        let counts = Counts::create().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let (outer, inner) = (counts.outer.path(), counts.path());
        assert_eq!(inner.parent(), Some(outer));
        // What others could list would not have to be guessed.
        assert_eq!((mode(outer) & 0o066, mode(inner) & 0o044), (0, 0));
        assert!(user() == 0 || (mode(outer), mode(inner)) == (PRIVATE, PRIVATE));
        let name = inner.file_name().unwrap().to_str().unwrap();
        assert!(name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
        assert_ne!(secret().unwrap(), secret().unwrap());
        let map = Map::create(inner, "rwsem").unwrap();
        assert_eq!(mode(&map.path()), 0o600);
    }

    #[test]
    fn the_directory_goes_with_its_owner_and_one_that_was_left_with_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(format!("{RUN_PREFIX}left"));
        let strange = parent.path().join("strange");
        fs::create_dir(&left).unwrap();
        fs::create_dir(&strange).unwrap();
        let link = parent.path().join(format!("{RUN_PREFIX}link"));
        symlink(&strange, &link).unwrap();
        let one = Counts::create_in(parent.path()).unwrap();
        assert!(!left.exists() && strange.exists() && link.exists());
        let another = Counts::create_in(parent.path()).unwrap();
        let path = one.outer.path().to_owned();
        assert!(path.is_dir() && another.path().is_dir());
        drop(one);
        assert!(!path.exists());
    }
}
