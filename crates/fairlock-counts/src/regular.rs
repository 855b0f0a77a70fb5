//! Opening files that somebody else may have named or made: regular files, and nothing else.
//!
//! Opening a device can start it. Opening a FIFO can wait for ever, or wake a process that waits for a
//! reader. So a file is examined before it is opened, and exactly that file is opened, even if its name
//! has come to mean another one in between.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens the regular file that this path leads to, to read. Never waits.
///
/// # Errors
/// Those of open(2); `InvalidInput` for what is no regular file.
///
/// ```
/// use fairlock_counts::regular;
/// assert!(regular::open(&std::env::current_exe()?).is_ok());
/// assert!(regular::open("/dev/null".as_ref()).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn open(path: &Path) -> io::Result<File> {
    reopen(look(libc::AT_FDCWD, path.as_os_str(), 0)?, File::options().read(true))
}

/// Opens the regular file of this name in a directory, to read, if that is its only name. Follows no
/// link, and never waits.
///
/// # Errors
/// As [`open`].
pub fn open_in(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<File> {
    open_only(directory, name, File::options().read(true))
}

/// As [`open_in`], to read and to write.
///
/// # Errors
/// As [`open`].
pub fn open_in_to_write(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<File> {
    open_only(directory, name, File::options().read(true).write(true))
}

fn open_only(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    options: &mut OpenOptions,
) -> io::Result<File> {
    let file = look(directory.as_raw_fd(), name, libc::O_NOFOLLOW)?;
    match file.metadata()?.nlink() {
        1 => reopen(file, options),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not the file's only name")),
    }
}

/// The file itself, not opened for anything.
fn look(directory: RawFd, path: &OsStr, flags: libc::c_int) -> io::Result<File> {
    let path = CString::new(path.as_bytes())?;
    let flags = flags | libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the path ends with a 0.
    match unsafe { libc::openat(directory, path.as_ptr(), flags) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: open, and nobody else's.
        file => Ok(File::from(unsafe { OwnedFd::from_raw_fd(file) })),
    }
}

fn reopen(file: File, options: &mut OpenOptions) -> io::Result<File> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // O_NONBLOCK: its owner may hold a lease, which would take the kernel 45 s to break.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    options.custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_in_a_directory_only_under_their_only_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").expect("a writable folder");
        symlink(at("file"), at("link")).expect("a writable folder");
        let fifo = CString::new(at("fifo").as_os_str().as_bytes()).expect("a path");
        // SAFETY: the path ends with a 0.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let directory = File::open(folder.path()).expect("it is there");
        let is_opened_in = |name: &str| {
            let (directory, name) = (directory.as_fd(), OsStr::new(name));
            let is_opened = open_in(directory, name).is_ok();
            assert_eq!(open_in_to_write(directory, name).is_ok(), is_opened);
            is_opened
        };

        assert!(open(&at("file")).is_ok() && open(&at("link")).is_ok());
        assert!(is_opened_in("file") && !is_opened_in("link"));
        for path in [at("fifo"), at("missing"), folder.path().into(), "/dev/zero".into()] {
            assert!(open(&path).is_err(), "{}", path.display());
        }
        for name in ["fifo", "missing", ".", ".."] {
            assert!(!is_opened_in(name), "{name}");
        }
        fs::hard_link(at("file"), at("other")).expect("the same file system");
        assert!(!is_opened_in("file") && !is_opened_in("other"));
    }
}
