//! Which kind of file somebody gives: a recording of `fairlock doctor`, or what `perf script` printed. What is in it
//! decides, not its name.
//!
//! Whatever it is, its texts are made fit to be shown: threads and files of a system have any name.
//!
//! Not for: reading either of them, which [`file`](mod@file) and [`script`] do.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use fairlock_report::printable::printable;

use super::recorded::Recording;
use super::{file, script};

/// How `perf.data` begins, on machines of either order of bytes.
const PERF_DATA: [&[u8]; 2] = [b"PERFILE2", b"2ELIFREP"];
/// As much of a file tells what it is, in bytes.
const ENOUGH: u64 = 512;

/// Reads a recording, of either kind.
///
/// # Errors
/// What is wrong with the file, and what to do, in a sentence that begins with its name.
pub fn open(path: &Path) -> Result<Recording, String> {
    let name = path.display();
    let mut from = File::open(path).map_err(|error| format!("cannot open {name}: {error}"))?;
    let mut start = Vec::new();
    let read = from.by_ref().take(ENOUGH).read_to_end(&mut start);
    read.map_err(|error| format!("cannot read {name}: {error}"))?;
    let mut recording = match kind(&start) {
        Kind::Recording => {
            let mut from = BufReader::new(Cursor::new(start).chain(from));
            file::read_from(&mut from).map_err(|error| format!("{name} {error}"))
        }
        Kind::Text => {
            let from = BufReader::with_capacity(1 << 16, Cursor::new(start).chain(from));
            script::read(from).map_err(|error| format!("{name}: {error}"))
        }
        Kind::PerfData => Err(format!(
            "{name} is what `perf record` wrote, and only perf reads that: run `{} -i {name} > {name}.txt`, and \
             give {name}.txt",
            script::PRINT
        )),
        Kind::Lines => Err(format!(
            "{name} is a report or the results of a study as JSON Lines, not a recording of a system: show it with \
             `fairlock report {name}`"
        )),
        Kind::Empty => Err(format!(
            "{name} is empty: what wrote it failed, or still runs; record again with `fairlock doctor --record`, or \
             print again with `{}`",
            script::PRINT
        )),
        Kind::Other => Err(format!(
            "{name} is neither a recording of `fairlock doctor` nor a text of `perf script`: give a file that \
             `fairlock doctor --record` wrote, or `{} > FILE.txt`",
            script::PRINT
        )),
    }?;
    make_printable(&mut recording);
    Ok(recording)
}

/// Whether a file is a recording of `fairlock doctor`; one that cannot be read is none.
pub fn is_recording(path: &Path) -> bool {
    let mut start = Vec::new();
    let length = file::MAGIC.len() as u64;
    let read = File::open(path).and_then(|from| from.take(length).read_to_end(&mut start));
    read.is_ok() && start == file::MAGIC
}

enum Kind {
    Recording,
    Text,
    PerfData,
    Lines,
    Empty,
    Other,
}

fn kind(start: &[u8]) -> Kind {
    let text = start.trim_ascii_start();
    match start {
        [] => Kind::Empty,
        _ if start.starts_with(file::MAGIC) || file::MAGIC.starts_with(start) => Kind::Recording,
        _ if PERF_DATA.iter().any(|magic| start.starts_with(magic)) => Kind::PerfData,
        _ if text.starts_with(b"{") => Kind::Lines,
        _ if start.contains(&0) => Kind::Other,
        _ => Kind::Text,
    }
}

/// All texts of a recording, so that they do nothing but show themselves.
fn make_printable(recording: &mut Recording) {
    let Recording { system, threads, files, frames, notes, .. } = recording;
    let texts = [&mut system.date, &mut system.kernel].into_iter().chain(notes);
    let of_threads = threads.values_mut().flat_map(|it| [&mut it.name, &mut it.program]);
    let of_files = files.iter_mut().flat_map(|it| [&mut it.path, &mut it.file_system]);
    let of_frames = frames
        .iter_mut()
        .flat_map(|it| [&mut it.function, &mut it.file, &mut it.module].into_iter().flatten());
    for text in texts.chain(of_threads).chain(of_files).chain(of_frames) {
        if let Cow::Owned(shown) = printable(text) {
            *text = shown;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::recorded::Thread;
    use super::*;

    #[test]
    fn a_file_is_what_is_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("some.file");
        let given = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("a writable folder");
            open(&path)
        };
        let mut recording = Recording::default();
        recording.threads.insert(7, Thread { name: "\u{1b}[31m".to_owned(), ..Thread::default() });
        let mut bytes = Vec::new();
        file::write(&recording, &mut bytes).expect("memory can be written");
        let read = given(&bytes).expect("a recording");
        assert_eq!(read.threads[&7].name, r"\x1b[31m");
        let text = "a\u{1b}b 7 5.000001: lock:contention_begin: 0x10 (flags=READ)\n";
        let read = given(text.as_bytes()).expect("a text of perf script");
        assert_eq!((read.events.len(), read.threads[&7].name.as_str()), (1, r"a\x1bb"));

        let cut_off = given(&bytes[..9]).expect_err("it was cut off");
        let shorter = given(&bytes[..bytes.len() - 1]).expect_err("it was cut off");
        let later = given(b"Fairlock system recording 2\n").expect_err("another version");
        let perf = given(b"PERFILE2\x68\0\0\0").expect_err("perf's own format");
        let report = given(b"{\"run\":{}}\n").expect_err("a report");
        let empty = given(b"").expect_err("nothing");
        let other = given(b"\x7fELF\x02\x01\x01\0").expect_err("a program");
        let no_waits = given(b"Dear Sir or Madam\n").expect_err("a letter");
        let missing = open(&folder.path().join("missing")).expect_err("no file");
        let directory = open(folder.path()).expect_err("a folder");
        for (error, says) in [
            (cut_off, "--record"),
            (shorter, "not complete"),
            (later, "version 2"),
            (perf, "run `perf script"),
            (report, "fairlock report"),
            (empty, "is empty"),
            (other, "neither"),
            (no_waits, "perf record"),
            (missing, "missing"),
            (directory, "irectory"),
        ] {
            assert!(error.contains(says) && !error.contains('\n'), "{error}");
            assert!(error.contains(folder.path().to_str().expect("a name")), "{error}");
        }
    }
}
