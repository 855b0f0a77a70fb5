//! Where the library is that programs are started with.

use std::env;
use std::path::{Path, PathBuf};

/// The library's file.
const FILE: &str = "libfairlock_pthread.so";

/// Names the library's file, for a command that stands elsewhere.
pub const VARIABLE: &str = "FAIRLOCK_PTHREAD_LIBRARY";

/// Where it can be, seen from the command's directory. Cargo leaves it in the first; beside the
/// command may lie an older one, so that is looked at later. The last is for an installed command.
const PLACES: [&str; 3] = ["deps", ".", "../lib"];

/// The library that belongs to this command.
///
/// # Errors
/// Where it was looked for, and what to do.
pub fn find() -> Result<PathBuf, String> {
    let found = match env::var_os(VARIABLE) {
        Some(named) => named_one(Path::new(&named))?,
        None => beside(&env::current_exe().map_err(|error| {
            format!("cannot find out where the `fairlock` command is ({error}); set {VARIABLE}")
        })?)?,
    };
    can_be_preloaded(&found)?;
    Ok(found)
}

fn named_one(named: &Path) -> Result<PathBuf, String> {
    named
        .canonicalize()
        .map_err(|error| format!("{VARIABLE} names {}, but: {error}", named.display()))
}

fn beside(command: &Path) -> Result<PathBuf, String> {
    let directory = command.parent().unwrap_or(Path::new("/"));
    let mut places = PLACES.iter().map(|place| directory.join(place).join(FILE));
    places.find_map(|path| path.canonicalize().ok()).ok_or_else(|| {
        format!(
            "{FILE} is not in {0}, {0}/deps or {0}/../lib: build it with `cargo build -p \
             fairlock-pthread`, or name its file by {VARIABLE}",
            directory.display()
        )
    })
}

/// The loader splits its list at spaces and colons and replaces `$…`, and knows no way to quote.
fn can_be_preloaded(path: &Path) -> Result<(), String> {
    let special = |byte: &u8| matches!(byte, b' ' | b':' | b'$');
    match path.as_os_str().as_encoded_bytes().iter().find(|byte| special(byte)) {
        None => Ok(()),
        Some(byte) => Err(format!(
            "the path {} has a `{}` in it, which LD_PRELOAD cannot express: copy the file \
             elsewhere and name it by {VARIABLE}",
            path.display(),
            char::from(*byte)
        )),
    }
}

#[cfg(test)]
pub(crate) mod programs;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_library_is_found_where_cargo_and_an_installation_put_it() {
        let directory = tempfile::tempdir().unwrap();
        let command = directory.path().join("bin/fairlock");
        for place in ["lib", "bin", "bin/deps"] {
            let folder = directory.path().join(place);
            fs::create_dir_all(&folder).unwrap();
            fs::create_dir_all(directory.path().join("bin")).unwrap();
            fs::write(folder.join(FILE), "").unwrap();
            let expected = folder.join(FILE).canonicalize().unwrap();
            assert_eq!(beside(&command), Ok(expected), "{place}");
        }
    }

    #[test]
    fn a_missing_library_is_an_error_that_says_what_to_do() {
        let said = beside(Path::new("/nowhere/fairlock")).unwrap_err();
        assert!(said.contains("/nowhere/deps") && said.contains(VARIABLE), "{said}");
    }

    #[test]
    fn paths_that_the_loader_would_split_are_refused() {
        for path in ["/a b/lib.so", "/a:b/lib.so", "/$LIB/lib.so"] {
            assert!(can_be_preloaded(Path::new(path)).is_err(), "{path}");
        }
    }
}
