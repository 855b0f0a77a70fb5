//! Directories for unit tests with real files.

use std::env;

use tempfile::TempDir;

/// A new directory next to the test program. That is on the disk where the build is, and writable even
/// where the sources are not.
pub(crate) fn test_directory() -> TempDir {
    let program = env::current_exe().expect("this test has a path");
    let place = program.parent().expect("it is in a directory");
    tempfile::tempdir_in(place).expect("a writable target")
}
