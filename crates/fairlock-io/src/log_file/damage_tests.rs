//! Bytes that change on the disk: an error with the place, never silently fewer records.

use std::io::IoSlice;

use crc32c::crc32c;

use super::control;
use super::crash_tests::{read_all, record};
use super::error::{LogError, LogErrorKind};
use super::format::VERSION;
use super::log::Log;
use super::options::{LogOptions, Prewrite, SyncPolicy};
use super::position::Position;
use super::reader::Reader;
use super::segments::name_of;
use super::simulated_disk::{Crash, Machine};
use crate::long::depth;

type Found = Vec<(u64, u64)>;

fn options() -> LogOptions {
    LogOptions::new().segment_bytes(64 << 10).batch_bytes(16384).prewrite(Prewrite::Never)
}

/// Some segments of records of all sizes; what they are.
fn fill(machine: &Machine, options: &LogOptions, close: bool) -> Found {
    let log = Log::open(machine.disk(), options.clone()).expect("opened");
    let mut found = Vec::new();
    for number in 0..24 {
        let length = [20, 300, 4024, 12_000][number as usize % 4];
        let bytes = record(number, length);
        let submitted = log.submit(&[IoSlice::new(&bytes)]).expect("submitted");
        let position = log.wait(submitted).expect("written");
        found.push((position.get(), number));
    }
    match close {
        true => log.close().expect("closed"),
        false => machine.kill(),
    }
    machine.restart(Crash::Process);
    found
}

/// What a reader finds.
fn read_alone(machine: &Machine) -> Result<Found, LogError> {
    Reader::open(machine.disk()).and_then(|mut reader| read_all(&mut reader))
}

/// What a writer finds.
fn read_opened(machine: &Machine) -> Result<Found, LogError> {
    Log::open(machine.disk(), options()).and_then(|log| read_all(&mut log.reader()?))
}

/// What a reader finds, and a writer.
fn read(machine: &Machine) -> [Result<Found, LogError>; 2] {
    [read_alone(machine), read_opened(machine)]
}

fn is_told(error: &LogError) -> bool {
    matches!(
        error.kind(),
        LogErrorKind::Damaged { .. }
            | LogErrorKind::NotALog
            | LogErrorKind::NewerVersion { .. }
            | LogErrorKind::MissingSegment
            | LogErrorKind::NoRecord(_)
            | LogErrorKind::Truncated { .. }
    )
}

/// Flips bits everywhere, but not all; what `check` says to each result. The suite takes one half of the
/// places, as `half` says, and reads each with a reader or with a writer in turn.
fn flip(
    machine: &Machine,
    half: usize,
    check: impl Fn(&str, usize, Result<Found, LogError>),
) -> usize {
    let mut flips = 0;
    for name in machine.names() {
        let bytes = machine.bytes(&name);
        let has_header = |block: usize| block == 0 || bytes[block..].starts_with(b"fBat");
        // Every byte of headers, and some of all others.
        let some =
            |at: &usize| at % depth(193, 97) == 0 || at % 4096 < 72 && has_header(at - at % 4096);
        let places = (0..bytes.len()).filter(some).skip(depth(half, 0)).step_by(depth(2, 1));
        for (nth, at) in places.enumerate() {
            let damaged = machine.copy();
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at * 5 % 8);
            damaged.set_bytes(&name, flipped);
            match depth(nth % 2, 2) {
                0 => check(&name, at, read_alone(&damaged)),
                1 => check(&name, at, read_opened(&damaged)),
                _ => read(&damaged).into_iter().for_each(|result| check(&name, at, result)),
            }
            flips += 1;
        }
    }
    flips
}

#[test]
fn a_flipped_bit_is_an_error_with_its_place_or_harmless() {
    for close in [true, false] {
        let machine = Machine::new(1);
        let intact = fill(&machine, &options(), close);
        let flips = flip(&machine, usize::from(close), |name, at, result| match result {
            Ok(found) => assert_eq!(found, intact, "{name} at {at}, closed: {close}"),
            Err(error) => {
                assert!(is_told(&error), "{name} at {at}: {error}");
                if let LogErrorKind::Damaged { position, .. } = error.kind() {
                    if name != control::NAME {
                        let offset = error.offset().expect("a place") as usize;
                        let segment = error.segment().expect("a place");
                        assert_eq!(name, name_of(segment), "{error}");
                        // The batch or record that the byte is in.
                        assert!(offset <= at && at < offset + 16_384, "{at}: {error}");
                        assert_eq!(position.get() % (64 << 10), offset as u64, "{error}");
                    }
                }
            }
        });
        assert!(flips > 500, "{flips}");
    }
}

#[test]
fn after_the_loss_of_power_only_the_last_batch_may_pass_for_torn() {
    // The page as it was before the last record, which the loss of power may leave.
    let machine = Machine::new(1);
    let intact = fill(&machine, &options(), false);
    let last = intact.last().expect("some").0;
    let mut page = machine.bytes(control::NAME);
    // What it knows of the end: see `control.rs`.
    for word in [8, 10] {
        page[word * 8..][..8].fill(0);
    }
    machine.set_bytes(control::NAME, page);
    machine.change_boot();
    flip(&machine, 0, |name, at, result| match result {
        Ok(found) if found.len() + 1 == intact.len() => {
            let batch = (last - 48) as usize % (64 << 10);
            assert!(name == name_of(last >> 16) && at >= batch, "{name} at {at}");
            assert_eq!(found, intact[..found.len()]);
        }
        Ok(found) => assert_eq!(found, intact, "{name} at {at}"),
        Err(error) => assert!(is_told(&error), "{name} at {at}: {error}"),
    });
    // And it is said.
    let name = name_of(last >> 16);
    let mut bytes = machine.bytes(&name);
    bytes[last as usize % (64 << 10) + 24] ^= 1;
    machine.set_bytes(&name, bytes);
    let log = Log::open(machine.disk(), options()).expect("opened");
    assert_eq!(log.recovery().torn.map(|it| it.get()), Some(last - 48));
}

#[test]
fn a_segment_that_is_missing_swapped_foreign_or_short_is_an_error() {
    let machine = Machine::new(1);
    let intact = fill(&machine, &options(), true);
    let other = Machine::new(2);
    fill(&other, &options(), true);
    let segments: Vec<String> =
        machine.names().into_iter().filter(|name| name.ends_with(".segment")).collect();
    assert!(segments.len() > 2);
    let each = |what: &str, name: &str, damaged: &Machine| {
        for result in read(damaged) {
            let error = result.expect_err(what);
            assert!(is_told(&error), "{what}: {error}");
            assert!(error.path().ends_with(name), "{what} {name}: {error}");
        }
    };
    for (number, name) in segments.iter().enumerate() {
        let damaged = machine.copy();
        damaged.remove(name);
        each("missing", name, &damaged);

        let damaged = machine.copy();
        let next = &segments[(number + 1) % segments.len()];
        damaged.set_bytes(name, machine.bytes(next));
        each("swapped", name, &damaged);

        let damaged = machine.copy();
        damaged.set_bytes(name, other.bytes(name));
        each("of another log", name, &damaged);

        let bytes = machine.bytes(name);
        for length in [0, 4096, bytes.len() - 4096] {
            let damaged = machine.copy();
            damaged.set_bytes(name, bytes[..length].to_vec());
            for result in read(&damaged) {
                match result {
                    // The rest of a segment behind its end is nothing.
                    Ok(found) => assert_eq!(found, intact),
                    Err(error) => assert!(error.path().ends_with(name), "{length}: {error}"),
                }
            }
        }

        let later = machine.copy();
        let mut bytes = machine.bytes(name);
        bytes[8] = VERSION as u8 + 1;
        later.set_bytes(name, bytes.clone());
        each("with a damaged version", name, &later);
        let checksum = crc32c(&bytes[..48]);
        bytes[48..52].copy_from_slice(&checksum.to_le_bytes());
        later.set_bytes(name, bytes);
        for result in read(&later) {
            let newer = LogErrorKind::NewerVersion { found: VERSION + 1, supported: VERSION };
            assert_eq!(*result.expect_err("newer").kind(), newer);
        }
    }
}

#[test]
fn a_lost_control_page_is_made_again() {
    for close in [true, false] {
        let machine = Machine::new(1);
        let intact = fill(&machine, &options(), close);
        machine.remove(control::NAME);
        let log = Log::open(machine.disk(), options()).expect("opened");
        assert_eq!(read_all(&mut log.reader().expect("opened")).expect("read"), intact);
    }
}

#[test]
fn the_first_position_outlives_half_of_its_store() {
    let machine = Machine::new(1);
    let intact = fill(&machine, &options(), true);
    let log = Log::open(machine.disk(), options()).expect("opened");
    log.truncate_before(Position::new(intact[9].0)).expect("given up");
    log.close().expect("closed");
    machine.restart(Crash::Process);
    for word in [18, 19, 24, 25] {
        let torn = machine.copy();
        let mut page = torn.bytes(control::NAME);
        page[word * 8] ^= 0x10;
        torn.set_bytes(control::NAME, page);
        for result in read(&torn) {
            assert_eq!(result.expect("one of them is whole"), intact[9..]);
        }
    }
}

#[test]
fn a_log_whose_full_last_segment_was_given_up_opens_again() {
    let machine = Machine::new(1);
    let options = options().sync(SyncPolicy::Never);
    let log = Log::open(machine.disk(), options.clone()).expect("opened");
    // Behind the segment's header and the opening: to the last byte.
    for number in 0..14 {
        let bytes = record(number, 4096 - 48 - 24);
        let submitted = log.submit(&[IoSlice::new(&bytes)]).expect("submitted");
        log.wait(submitted).expect("written");
    }
    let end = log.committed();
    assert_eq!(end.get(), 64 << 10);
    log.truncate_before(end).expect("given up");
    log.close().expect("closed");
    let log = Log::open(machine.disk(), options).expect("opened");
    assert_eq!(read_all(&mut log.reader().expect("opened")).expect("read"), []);
    let submitted = log.submit(&[IoSlice::new(b"next")]).expect("submitted");
    assert!(log.wait(submitted).expect("written") > end);
}

#[test]
fn a_log_is_free_for_the_next_writer_as_soon_as_it_is_closed() {
    let machine = Machine::new(1);
    let log = Log::open(machine.disk(), options()).expect("opened");
    let reader = log.reader().expect("opened");
    log.close().expect("closed");
    // Though a reader that was made by it lives on.
    assert!(Log::open(machine.disk(), options()).is_ok());
    drop(reader);
}
