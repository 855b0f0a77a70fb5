//! The file of a recording: what one machine recorded, to be looked at later or on another one.
//!
//! ```text
//! Fairlock system recording 1\n      which file this is, and the version of its format
//! length  checksum  head             everything but the events, and how many of those follow
//! length  checksum  events           65,536 of them in each part, the last one has the rest
//! …
//! ```
//!
//! Lengths and checksums (CRC-32C) are four bytes each, the lowest first; what follows them is in
//! [postcard](https://postcard.jamesmunns.com)'s format. That has no names: a value means what its place says. So any
//! change of what is recorded, even of the order of fields, needs another version, and each version reads its own files
//! only. Two million events take about 30 MB, because an event has its time since the one before, and the place of its
//! lock's address in a list instead of the address.
//!
//! A file may be damaged, or meant to do damage: whatever is in it, reading ends with a recording or with an error, and
//! takes memory in proportion to what is really there.
//!
//! Not for: judging what is in a recording. Threads, stacks and files that events name need not be in its lists.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::facts::Frame;

use super::recorded::{Cost, Event, FileSeen, Recording, System, Thread, What, Window};

/// How each file begins, before the version.
pub(super) const MAGIC: &[u8] = b"Fairlock system recording ";
/// The version of the format. Readers refuse others.
const FORMAT: u32 = 1;
/// A version has no more digits.
const LONGEST_VERSION: usize = 10;
/// Events in one part.
const EVENTS_OF_A_PART: usize = 1 << 16;
/// The head's length, bytes at most. A frame that is read takes up to 20 times the memory of its bytes in the file.
const LONGEST_HEAD: u32 = 64 << 20;
/// The length of a part with events, bytes at most; 65,536 of them have at most 60 bytes each.
const LONGEST_PART: u32 = 8 << 20;
/// Events of a recording. In memory, 40 bytes each.
const MOST_EVENTS: u64 = 1 << 25;

/// What to do about a damaged file.
const COPY_AGAIN: &str = "copy it again from where it was recorded, or record again";

/// Everything but the events, and how many of those there are: the fields of [`Recording`], in its order.
type Head<'a> = (
    &'a System,
    &'a BTreeMap<u32, Thread>,
    &'a [FileSeen],
    &'a [Frame],
    &'a [Vec<u32>],
    &'a [Window],
    u64,
    u64,
    &'a Cost,
    &'a [String],
);

/// The same, as it is read.
type HeadRead = (
    System,
    BTreeMap<u32, Thread>,
    Vec<FileSeen>,
    Vec<Frame>,
    Vec<Vec<u32>>,
    Vec<Window>,
    u64,
    u64,
    Cost,
    Vec<String>,
);

/// Addresses of locks, and events with places in that list: time since the event before, ns; CPU; thread; what.
type Packed = (Vec<u64>, Vec<(i64, u32, u32, What)>);

/// Writes a recording.
///
/// # Errors
/// Those of `to`; `InvalidInput` for a recording that is larger than what [`read`] takes.
pub fn write(recording: &Recording, to: &mut impl Write) -> io::Result<()> {
    let Recording { system, threads, files, frames, stacks, windows, events, lost, cost, notes } =
        recording;
    if events.len() as u64 > MOST_EVENTS {
        let text = format!("{} events are more than a file's {MOST_EVENTS}", events.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    to.write_all(MAGIC)?;
    writeln!(to, "{FORMAT}")?;
    let count = events.len() as u64;
    let head: Head<'_> =
        (system, threads, files, frames, stacks, windows, count, *lost, cost, notes);
    write_part(&head, LONGEST_HEAD, to)?;
    for events in events.chunks(EVENTS_OF_A_PART) {
        write_part(&packed(events), LONGEST_PART, to)?;
    }
    Ok(())
}

fn write_part(part: &impl Serialize, longest: u32, to: &mut impl Write) -> io::Result<()> {
    let bytes = postcard::to_stdvec(part).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= longest);
    let length = length.ok_or_else(|| {
        let text = format!(
            "{} bytes of names and stacks are more than a file's {longest}: record for a shorter time",
            bytes.len()
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&crc32c::crc32c(&bytes).to_le_bytes())?;
    to.write_all(&bytes)
}

/// Writes a recording to a file. There is a whole file under this name at any time, the former one or this one: it is
/// written under another name, and renamed. Only its owner may read it, since it has addresses of the kernel.
///
/// # Errors
/// What could not be done with which file, in a sentence.
pub fn save(recording: &Recording, path: &Path) -> Result<(), String> {
    let cannot =
        |error: io::Error| format!("cannot write the recording to {}: {error}", path.display());
    // What a link leads to is replaced, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|it| !it.is_file()) {
        return Err(format!(
            "cannot write the recording to {}, which is no regular file: give another name",
            path.display()
        ));
    }
    let folder = target.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new().prefix(".fairlock-recording-").tempfile_in(folder);
    let mut file = file.map_err(cannot)?;
    let mut buffer = BufWriter::new(&mut file);
    write(recording, &mut buffer).and_then(|()| buffer.flush()).map_err(cannot)?;
    drop(buffer);
    // Else a power failure could leave the new name without the bytes.
    file.as_file().sync_all().map_err(cannot)?;
    file.persist(&target).map_err(|error| cannot(error.error))?;
    Ok(())
}

/// Reads a recording that [`save`] wrote.
///
/// # Errors
/// What is wrong with the file, and what to do, in a sentence.
pub fn read(path: &Path) -> Result<Recording, String> {
    let name = path.display();
    let file = File::open(path).map_err(|error| format!("cannot open {name}: {error}"))?;
    read_from(&mut BufReader::new(file)).map_err(|error| format!("{name} {error}"))
}

/// Reads a recording; errors go on from the file's name.
pub(super) fn read_from(from: &mut impl Read) -> Result<Recording, String> {
    let version = version(from)?;
    if version != FORMAT.to_string() {
        return Err(format!(
            "has version {version} of the format, and this fairlock reads version {FORMAT}: use the fairlock that \
             recorded it, or record again"
        ));
    }
    let head: HeadRead = read_part(from, 0, LONGEST_HEAD)?;
    let (system, threads, files, frames, stacks, windows, count, lost, cost, notes) = head;
    if count > MOST_EVENTS {
        return Err(format!(
            "says that it has {count} events, but no recording has more than {MOST_EVENTS}: {COPY_AGAIN}"
        ));
    }
    let mut events = Vec::new();
    let mut number = 0;
    while (events.len() as u64) < count {
        number += 1;
        let (addresses, packed): Packed = read_part(from, number, LONGEST_PART)?;
        let left = count - events.len() as u64;
        if packed.is_empty() || packed.len() as u64 > left {
            return Err(format!(
                "is damaged: part {number} has {} events where {left} are missing; {COPY_AGAIN}",
                packed.len()
            ));
        }
        unpack(&addresses, packed, &mut events).ok_or_else(|| {
            format!("is damaged: part {number} names a lock that it has not; {COPY_AGAIN}")
        })?;
    }
    match from.read(&mut [0]) {
        Ok(0) => {}
        Ok(_) => return Err(format!("goes on behind its last event: {COPY_AGAIN}")),
        Err(error) => return Err(format!("cannot be read: {error}")),
    }
    Ok(Recording { system, threads, files, frames, stacks, windows, events, lost, cost, notes })
}

/// The version, as it stands in the first line.
fn version(from: &mut impl Read) -> Result<String, String> {
    let mut magic = Vec::new();
    let cannot = |error| format!("cannot be read: {error}");
    from.take(MAGIC.len() as u64).read_to_end(&mut magic).map_err(cannot)?;
    let no_recording = || {
        "is no recording of `fairlock doctor`: give a file that `fairlock doctor --record` wrote"
            .to_owned()
    };
    if magic != MAGIC {
        return Err(no_recording());
    }
    let mut version = String::new();
    while version.len() <= LONGEST_VERSION {
        let mut byte = [0];
        match from.read_exact(&mut byte) {
            Ok(()) if byte == *b"\n" && !version.is_empty() => return Ok(version),
            Ok(()) if byte[0].is_ascii_digit() => version.push(char::from(byte[0])),
            _ => break,
        }
    }
    Err(no_recording())
}

fn read_part<T: DeserializeOwned>(
    from: &mut impl Read,
    number: u64,
    longest: u32,
) -> Result<T, String> {
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            format!("is not complete: it ends in part {number}, or before it; {COPY_AGAIN}")
        }
        _ => format!("cannot be read: {error}"),
    };
    let mut word = || {
        let mut bytes = [0; 4];
        from.read_exact(&mut bytes).map(|()| u32::from_le_bytes(bytes))
    };
    let (length, checksum) = (word().map_err(cannot)?, word().map_err(cannot)?);
    if length > longest {
        return Err(format!(
            "is damaged: part {number} says that it has {length} bytes, but it cannot have more than {longest}; \
             {COPY_AGAIN}"
        ));
    }
    // Grows with what is there, not with what the file says.
    let mut bytes = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 != u64::from(length) {
        return Err(cannot(io::ErrorKind::UnexpectedEof.into()));
    }
    let found = crc32c::crc32c(&bytes);
    if found != checksum {
        return Err(format!(
            "is damaged: the checksum of part {number} is {found:#010x}, not {checksum:#010x}; {COPY_AGAIN}"
        ));
    }
    match postcard::take_from_bytes(&bytes) {
        Ok((part, [])) => Ok(part),
        Ok((_, rest)) => Err(format!(
            "is damaged: part {number} has {} bytes too many; {COPY_AGAIN}",
            rest.len()
        )),
        Err(error) => Err(format!("is damaged: part {number}: {error}; {COPY_AGAIN}")),
    }
}

fn packed(events: &[Event]) -> Packed {
    let mut addresses = Vec::new();
    let mut places = HashMap::new();
    let mut before = 0;
    let mut pack = |event: &Event| {
        let mut what = event.what;
        if let Some(lock) = lock_of(&mut what) {
            *lock = *places.entry(*lock).or_insert_with(|| {
                addresses.push(*lock);
                addresses.len() as u64 - 1
            });
        }
        let since = event.at_ns.wrapping_sub(before) as i64;
        before = event.at_ns;
        (since, event.cpu, event.thread, what)
    };
    let events = events.iter().map(&mut pack).collect();
    (addresses, events)
}

/// None if an event's lock is not in the list.
fn unpack(
    addresses: &[u64],
    packed: Vec<(i64, u32, u32, What)>,
    events: &mut Vec<Event>,
) -> Option<()> {
    let mut at_ns: u64 = 0;
    for (since, cpu, thread, mut what) in packed {
        at_ns = at_ns.wrapping_add(since as u64);
        if let Some(lock) = lock_of(&mut what) {
            *lock = *addresses.get(usize::try_from(*lock).ok()?)?;
        }
        events.push(Event { at_ns, cpu, thread, what });
    }
    Some(())
}

/// The address in an event that many others have, too.
fn lock_of(what: &mut What) -> Option<&mut u64> {
    match what {
        What::KernelWaitBegins { lock, .. }
        | What::KernelWaitEnds { lock, .. }
        | What::CallBegins { lock, .. } => Some(lock),
        What::UserWaitBegins { address, .. } | What::UserWaitUnderWay { address, .. } => {
            Some(address)
        }
        What::UserWaitEnds { .. }
        | What::KernelWaitUnderWay { .. }
        | What::Switch { .. }
        | What::Wakes { .. }
        | What::FileCallBegins { .. }
        | What::FileCallEnds { .. }
        | What::CallEnds { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::super::recorded::{FileCall, LockCall, Part, flags};
    use super::*;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just(String::new()), "[a-z/]{1,12}", any::<String>()]
    }

    fn what() -> impl Strategy<Value = What> {
        let address = || prop_oneof![select(vec![0, 1 << 47, 0xffff_8884_e07b_e950]), any::<u64>()];
        let call = select(vec![LockCall::ReadLock, LockCall::MutexUnlock]);
        let stack = any::<u32>;
        prop_oneof![
            (address(), any::<u32>(), stack())
                .prop_map(|(lock, flags, stack)| What::KernelWaitBegins { lock, flags, stack }),
            (address(), any::<bool>())
                .prop_map(|(lock, gave_up)| What::KernelWaitEnds { lock, gave_up }),
            (address(), stack())
                .prop_map(|(address, stack)| What::UserWaitBegins { address, stack }),
            any::<i32>().prop_map(|result| What::UserWaitEnds { result }),
            (address(), stack())
                .prop_map(|(address, stack)| What::UserWaitUnderWay { address, stack }),
            stack().prop_map(|stack| What::KernelWaitUnderWay { stack }),
            any::<(bool, u32, i32, i32)>().prop_map(|(sleeps, to, priority, to_priority)| {
                What::Switch { sleeps, to, priority, to_priority }
            }),
            any::<u32>().prop_map(|thread| What::Wakes { thread }),
            (any::<(u32, Option<u64>, u64)>()).prop_map(|(file, offset, bytes)| {
                What::FileCallBegins { call: FileCall::Write, file, offset, bytes }
            }),
            any::<i64>().prop_map(|result| What::FileCallEnds { result }),
            (call.clone(), address(), stack())
                .prop_map(|(function, lock, stack)| What::CallBegins { function, lock, stack }),
            (call, any::<i32>()).prop_map(|(function, result)| What::CallEnds { function, result }),
        ]
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let names = (option::of(text()), option::of(text()), option::of(text()));
        (names, any::<(u64, Option<u32>, u64)>()).prop_map(|(names, (offset, line, address))| {
            let (function, file, module) = names;
            Frame { function, offset, file, line, module, address }
        })
    }

    prop_compose! {
        fn system()(
            date in text(),
            kernel in text(),
            (cpus, from_ns, to_ns) in any::<(u32, u64, u64)>(),
            pids in vec(any::<u32>(), 0..3),
        ) -> System {
            System { date, kernel, cpus, from_ns, to_ns, begun: pids.len() as u64, pids }
        }
    }

    prop_compose! {
        fn thread()(
            name in text(),
            program in text(),
            (pid, realtime_priority, nice) in any::<(u32, u8, i8)>(),
        ) -> Thread {
            Thread { pid, name, program, realtime_priority, nice }
        }
    }

    prop_compose! {
        fn file_seen()(
            path in text(),
            file_system in text(),
            (device, inode, is_direct) in any::<(u64, u64, bool)>(),
        ) -> FileSeen {
            FileSeen { path, device, inode, file_system, is_direct }
        }
    }

    prop_compose! {
        fn recording()(
            system in system(),
            threads in btree_map(any::<u32>(), thread(), 0..4),
            files in vec(file_seen(), 0..4),
            frames in vec(frame(), 0..6),
            stacks in vec(vec(any::<u32>(), 0..5), 0..5),
            windows in vec(any::<(u64, u64)>(), 0..3),
            events in vec((any::<(u64, u32, u32)>(), what()), 0..40),
            (lost, records, record_ns) in (any::<u64>(), any::<u64>(), 0.0..1e9),
            notes in vec(text(), 0..3),
        ) -> Recording {
            let window = |(from_ns, to_ns)| Window { part: Part::CloseLook, from_ns, to_ns };
            let event = |((at_ns, cpu, thread), what)| Event { at_ns, cpu, thread, what };
            Recording {
                system,
                threads,
                files,
                frames,
                stacks,
                windows: windows.into_iter().map(window).collect(),
                events: events.into_iter().map(event).collect(),
                lost,
                cost: Cost { records, record_ns, ..Cost::default() },
                notes,
            }
        }
    }

    fn written(recording: &Recording) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(recording, &mut bytes).expect("memory can be written");
        bytes
    }

    /// As a recorder makes them: waits of 64 threads for 1000 locks.
    fn busy(events: u64) -> Recording {
        let event = |number: u64| {
            let lock = 0xffff_8881_0000_0000 + (number / 2 * 7919 % 1000) * 0x340;
            let what = match number % 2 {
                0 => What::KernelWaitBegins {
                    lock,
                    flags: flags::WRITE,
                    stack: (number * 31 % 5000) as u32,
                },
                _ => What::KernelWaitEnds { lock, gave_up: false },
            };
            let thread = 1_000_000 + (number / 2 % 64) as u32;
            let at_ns = 22_562_000_000_000 + number * 4321;
            Event { at_ns, cpu: (number % 32) as u32, thread, what }
        };
        Recording { events: (0..events).map(event).collect(), ..Recording::default() }
    }

    #[test]
    fn two_million_events_take_less_than_30_mb() {
        // A tenth of them, as a debug build is slow.
        let recording = busy(200_000);
        let bytes = written(&recording);
        assert!(bytes.len() < 3_000_000, "{} bytes", bytes.len());
        assert!(read_from(&mut &bytes[..]) == Ok(recording));
    }

    #[test]
    fn the_layout_is_that_of_version_1() {
        let frame = Frame {
            function: Some("f".to_owned()),
            offset: 1,
            file: Some("f.c".to_owned()),
            line: Some(2),
            module: Some("m".to_owned()),
            address: 3,
        };
        let thread = Thread {
            pid: 1,
            name: "n".to_owned(),
            program: "p".to_owned(),
            realtime_priority: 2,
            nice: -3,
        };
        let file = FileSeen {
            path: "p".to_owned(),
            device: 1,
            inode: 2,
            file_system: "s".to_owned(),
            is_direct: true,
        };
        let parts = [Part::KernelWaits, Part::UserWaits, Part::CloseLook, Part::Calls];
        let calls = [
            LockCall::ReadLock,
            LockCall::WriteLock,
            LockCall::TryReadLock,
            LockCall::TryWriteLock,
            LockCall::Unlock,
            LockCall::MutexLock,
            LockCall::MutexTryLock,
            LockCall::MutexUnlock,
        ];
        let calls = calls.map(|function| What::CallBegins { function, lock: 1, stack: 2 });
        let whats = [
            What::KernelWaitBegins { lock: 1, flags: 2, stack: 3 },
            What::KernelWaitEnds { lock: 1, gave_up: true },
            What::UserWaitBegins { address: 1, stack: 2 },
            What::UserWaitEnds { result: -11 },
            What::UserWaitUnderWay { address: 1, stack: 2 },
            What::KernelWaitUnderWay { stack: 1 },
            What::Switch { sleeps: true, to: 1, priority: 2, to_priority: 3 },
            What::Wakes { thread: 1 },
            What::FileCallBegins { call: FileCall::Read, file: 1, offset: Some(2), bytes: 3 },
            What::FileCallBegins { call: FileCall::Write, file: 1, offset: None, bytes: 3 },
            What::FileCallEnds { result: -1 },
            What::CallEnds { function: LockCall::Unlock, result: 1 },
        ];
        let event = |(at_ns, what)| Event { at_ns, cpu: 1, thread: 2, what };
        let recording = Recording {
            system: System {
                date: "d".to_owned(),
                kernel: "k".to_owned(),
                cpus: 1,
                from_ns: 2,
                to_ns: 3,
                pids: vec![4],
                begun: 9,
            },
            threads: BTreeMap::from([(1, thread)]),
            files: vec![file],
            frames: vec![frame],
            stacks: vec![vec![0]],
            windows: parts.map(|part| Window { part, from_ns: 1, to_ns: 2 }).to_vec(),
            events: (1..).zip(whats.into_iter().chain(calls)).map(event).collect(),
            lost: 5,
            cost: Cost {
                records: 1,
                record_ns: 2.0,
                traced_syscalls: 3,
                syscall_ns: 4.0,
                own_cpu_ns: 5,
            },
            notes: vec!["n".to_owned()],
        };
        let bytes = written(&recording);
        // Whoever changes this raises FORMAT: files of the former version would be misread.
        assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (262, 0x1c65_9bde));
    }

    #[test]
    fn a_file_of_another_version_or_kind_is_refused() {
        let read = |bytes: &[u8]| read_from(&mut &bytes[..]).expect_err("it is no recording");
        let later = read(b"Fairlock system recording 7\n");
        assert!(later.contains("version 7") && later.contains("reads version 1"), "{later}");
        for other in ["", "Fairlock", "Fairlock system recording ", "PERFILE2", "\n"] {
            assert!(read(other.as_bytes()).contains("--record"), "{other:?}");
        }
        let endless = "Fairlock system recording ".to_owned() + &"1".repeat(1000);
        assert!(read(endless.as_bytes()).contains("--record"));
    }

    #[test]
    fn lengths_that_no_file_has_take_no_memory() {
        let mut bytes = b"Fairlock system recording 1\n".to_vec();
        bytes.extend([0xff; 8]);
        let error = read_from(&mut &bytes[..]).expect_err("it is damaged");
        assert!(error.contains("4294967295 bytes"), "{error}");
        // A list of 2^63 frames, and a right checksum.
        let mut bytes = b"Fairlock system recording 1\n".to_vec();
        let head = [&[0; 8][..], &[0xff; 8], &[0x7f]].concat();
        bytes.extend((head.len() as u32).to_le_bytes());
        bytes.extend(crc32c::crc32c(&head).to_le_bytes());
        bytes.extend(&head);
        let error = read_from(&mut &bytes[..]).expect_err("it is damaged");
        assert!(error.starts_with("is damaged: part 0"), "{error}");
    }

    #[test]
    fn a_file_that_was_cut_off_says_so() {
        let bytes = written(&busy(70_000));
        for length in [MAGIC.len() + 2, MAGIC.len() + 30, bytes.len() / 2, bytes.len() - 1] {
            let error = read_from(&mut &bytes[..length]).expect_err("it was cut off");
            assert!(error.contains("not complete") && error.contains("again"), "{error}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(read_from(&mut &longer[..]).is_err());
    }

    #[test]
    fn a_recording_replaces_the_former_one_at_once_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("system.fairlock");
        save(&busy(3), &path).expect("a writable folder");
        save(&busy(5), &path).expect("a writable folder");
        assert!(read(&path) == Ok(busy(5)));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a writable folder");
        save(&busy(7), &link).expect("a writable folder");
        assert!(read(&path) == Ok(busy(7)));
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 2);
        let error = save(&busy(3), folder.path()).expect_err("a folder is no file");
        assert!(error.contains("no regular file"), "{error}");
        let error = save(&busy(3), &folder.path().join("missing/file")).expect_err("no folder");
        assert!(error.contains("missing/file"), "{error}");
        let error = read(&folder.path().join("missing")).expect_err("no file");
        assert!(error.contains("missing"), "{error}");
    }

    proptest! {
        #[test]
        fn any_recording_is_read_as_it_was_written(recording in recording()) {
            prop_assert_eq!(read_from(&mut &written(&recording)[..]), Ok(recording));
        }

        #[test]
        fn a_damaged_file_is_refused_or_means_the_same(
            recording in recording(),
            damage in vec((any::<Index>(), any::<u8>()), 1..4),
            cut in option::of(any::<Index>()),
        ) {
            let mut bytes = written(&recording);
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            match read_from(&mut &bytes[..]) {
                Ok(read) => prop_assert_eq!(read, recording),
                Err(error) => prop_assert!(!error.is_empty() && !error.contains('\n')),
            }
        }

        #[test]
        fn parts_with_a_right_checksum_and_anything_in_them_are_read_or_refused(
            recording in recording(),
            damage in vec((any::<Index>(), any::<u8>()), 1..8),
        ) {
            let mut bytes = written(&recording);
            let first = MAGIC.len() + 2;
            let number = |bytes: &[u8], at| {
                let word: [u8; 4] = bytes[at..at + 4].try_into().expect("four bytes");
                u32::from_le_bytes(word) as usize
            };
            let ends = [first, first + 8 + number(&bytes, first)];
            let has_events = !recording.events.is_empty();
            for from in ends.into_iter().take(1 + usize::from(has_events)) {
                let length = number(&bytes, from);
                let inside = from + 8..from + 8 + length;
                for (at, byte) in &damage {
                    let at = at.index(length);
                    bytes[inside.clone()][at] = *byte;
                }
                let checksum = crc32c::crc32c(&bytes[inside]);
                bytes[from + 4..from + 8].copy_from_slice(&checksum.to_le_bytes());
            }
            let _ = read_from(&mut &bytes[..]);
        }
    }
}
