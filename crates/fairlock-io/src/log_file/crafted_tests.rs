//! Logs that no writer wrote: numbers that cannot be, with checksums that are right, payloads that look like
//! headers, and holes and gaps as a repair leaves them.

use std::collections::BTreeMap;
use std::fs;
use std::io::IoSlice;
use std::sync::Arc;

use crc32c::{crc32c, crc32c_append};
use fastrand::Rng;

use super::control::{Control, Opening, Written};
use super::crash_tests::{read_all, record};
use super::error::{LogError, LogErrorKind};
use super::format::{BATCH_HEADER, BLOCK, BatchHeader, Kind, Layout, RECORD_HEADER, RecordHeader};
use super::log::Log;
use super::options::{LogOptions, Prewrite};
use super::position::Position;
use super::reader::Reader;
use super::recovery;
use super::repair_tests::each_seed;
use super::segments::name_of;
use super::simulated_disk::{Crash, Machine, SimulatedDisk, SimulatedPage};
use super::verify::{Damaged, Verified, verify};
use super::window::Window;
use crate::LogReader;
use crate::long::depth;
use crate::test_directory::test_directory;

const SEGMENT: u64 = 64 << 10;
const MAGIC: &[u8; 4] = b"fBat";

type Found = Vec<(u64, u64)>;

fn options() -> LogOptions {
    LogOptions::new().segment_bytes(SEGMENT).batch_bytes(16384).prewrite(Prewrite::Never)
}

fn open(machine: &Machine) -> Log<SimulatedDisk> {
    Log::open(machine.disk(), options()).expect("opened")
}

fn submit(log: &Log<SimulatedDisk>, bytes: &[u8]) -> Result<u64, LogError> {
    let submitted = log.submit(&[IoSlice::new(bytes)])?;
    log.wait(submitted).map(Position::get)
}

/// The control page, to be changed while nothing runs.
fn page_of(machine: &Machine) -> Written<SimulatedPage> {
    let control = Control::open(&machine.disk(), true).expect("opened");
    // It may already say what is impossible.
    let look = control.look().unwrap_or_default();
    Written::new(control, &look)
}

fn layout_of(machine: &Machine) -> Layout {
    Control::open(&machine.disk(), false).expect("opened").layout()
}

/// Appends batches of one record and of three, then closes the log or kills its writer; what is in it.
fn fill(machine: &Machine, batches: u64, close: bool) -> Found {
    let log = open(machine);
    let mut found = Vec::new();
    for batch in 0..batches {
        let lengths = [20, 300, 4024, 5000];
        let count = [1, 3][batch as usize % 2];
        let submitted: Vec<_> = (0..count)
            .map(|it| {
                let number = found.len() as u64 + it;
                let bytes = record(number, lengths[number as usize % 4]);
                (log.submit(&[IoSlice::new(&bytes)]).expect("submitted"), number)
            })
            .collect();
        for (submitted, number) in submitted {
            found.push((log.wait(submitted).expect("written").get(), number));
        }
    }
    match close {
        true => log.close().expect("closed"),
        false => machine.kill(),
    }
    machine.restart(Crash::Process);
    found
}

/// Changes what a segment's file holds from a position on.
fn edit(machine: &Machine, position: u64, change: impl FnOnce(&mut [u8])) {
    let name = name_of(position / SEGMENT);
    let mut bytes = machine.bytes(&name);
    let at = (position % SEGMENT) as usize;
    if bytes.len() < at + BLOCK {
        bytes.resize((at + BLOCK).next_multiple_of(BLOCK), 0);
    }
    change(&mut bytes[at..]);
    machine.set_bytes(&name, bytes);
}

fn seal_batch(layout: &Layout, bytes: &mut [u8]) {
    let checksum = crc32c_append(crc32c(&layout.identity), &bytes[..44]);
    bytes[44..48].copy_from_slice(&checksum.to_le_bytes());
}

fn seal_record(layout: &Layout, position: u64, bytes: &mut [u8]) {
    let checksum = crc32c_append(crc32c(&layout.identity), &position.to_le_bytes());
    let checksum = crc32c_append(checksum, &bytes[..20]);
    bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
}

fn seal_segment(bytes: &mut [u8]) {
    let checksum = crc32c(&bytes[..48]);
    bytes[48..52].copy_from_slice(&checksum.to_le_bytes());
}

fn put(bytes: &mut [u8], at: usize, value: u64, size: usize) {
    bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// All batches whose headers are whole, in order.
fn batches(machine: &Machine) -> Vec<BatchHeader> {
    let layout = layout_of(machine);
    let mut found = Vec::new();
    for segment in 0.. {
        let name = name_of(segment);
        if !machine.names().contains(&name) {
            return found;
        }
        for (block, bytes) in machine.bytes(&name).chunks(BLOCK).enumerate() {
            let at = segment * SEGMENT + (block * BLOCK) as u64;
            found.extend(BatchHeader::decode(&layout, at, bytes).and_then(Result::ok));
        }
    }
    found
}

fn batch_of(machine: &Machine, position: u64) -> BatchHeader {
    let within = |batch: &BatchHeader| (batch.position..batch.end_of_records()).contains(&position);
    batches(machine).into_iter().find(within).expect("it is in one")
}

/// What a reader finds, and a writer.
fn read(machine: &Machine) -> [Result<Found, LogError>; 2] {
    let alone = Reader::open(machine.disk()).and_then(|mut reader| read_all(&mut reader));
    machine.restart(Crash::Process);
    let opened = Log::open(machine.disk(), options()).and_then(|log| read_all(&mut log.reader()?));
    machine.restart(Crash::Process);
    [alone, opened]
}

fn verified(machine: &Machine) -> (Verified, Vec<(Damaged, u64)>) {
    let mut damages = Vec::new();
    let found = verify(machine.disk(), &mut |damage| {
        damages.push((damage.what, damage.position.get()));
    });
    (found.expect("verified"), damages)
}

/// A batch's header as a client would forge it.
fn forged_batch(layout: &Layout, position: u64, used: u32, durable: u64) -> Vec<u8> {
    let mut bytes = vec![0; BATCH_HEADER];
    bytes[..4].copy_from_slice(MAGIC);
    put(&mut bytes, 4, 1, 4);
    put(&mut bytes, 8, position, 8);
    put(&mut bytes, 16, durable, 8);
    put(&mut bytes, 24, 1000, 4);
    put(&mut bytes, 28, used.into(), 4);
    seal_batch(layout, &mut bytes);
    bytes
}

#[test]
fn a_payload_that_holds_a_batch_header_is_read_back_and_is_no_batch_after_a_crash() {
    for used in [0, 48, 4096] {
        let machine = Machine::new(1);
        let log = open(&machine);
        let layout = layout_of(&machine);
        let before = submit(&log, &record(0, 100)).expect("written");
        let batch = before / 4096 * 4096 + 4096;
        let mut payload = vec![0xAB; 3 * BLOCK];
        for block in 1..3 {
            let at = batch + block * BLOCK as u64;
            let forged = forged_batch(&layout, at, used, at);
            payload[(at - batch) as usize - 72..][..forged.len()].copy_from_slice(&forged);
        }
        let position = submit(&log, &payload).expect("written");
        assert_eq!(position, batch + 48);
        assert_eq!(log.read(Position::new(position)).expect("read"), payload);
        let mut reader = log.reader().expect("opened");
        reader.next().expect("read");
        assert!(reader.next().expect("read").expect("there").bytes == payload);
        // In a reader's last look at it, with little at a time.
        reader.set_read_bytes(BLOCK);
        reader.seek(Position::new(position)).expect("a record");
        assert!(reader.next().expect("read").expect("there").bytes == payload);
        drop(reader);
        machine.kill();
        machine.restart(Crash::Process);
        assert_eq!(verified(&machine).1, []);

        // It was torn by the loss of power, and is not acknowledged.
        edit(&machine, batch, |bytes| bytes[..BLOCK].fill(0));
        page_of(&machine).commit(batch, true).expect("stored");
        machine.restart(Crash::Process);
        machine.change_boot();
        for found in read(&machine) {
            assert_eq!(found.expect("it ends before"), [(before, 0)], "used: {used}");
        }
    }
}

#[test]
fn a_payload_that_holds_record_headers_has_no_records_in_it() {
    let machine = Machine::new(1);
    let log = open(&machine);
    let layout = layout_of(&machine);
    let before = submit(&log, &record(0, 100)).expect("written");
    let batch = before / 4096 * 4096 + 4096;
    // One forged header after the other, each for a record of four bytes.
    let mut payload = vec![0; 3 * BLOCK];
    let bytes = *b"evil";
    let mut forged = Vec::new();
    for at in (0..payload.len() - 32).step_by(32) {
        let position = batch + 72 + at as u64;
        // Of this batch, and of a place where none is.
        let in_batch = (position - batch) as u32 + if at % 64 == 0 { 0 } else { 4096 };
        let header = RecordHeader {
            length: 4,
            lost: false,
            more: false,
            payload: crc32c(&bytes),
            epoch: 1,
            in_batch,
            mask: 0,
        };
        header.encode(&layout.identity, position, &mut payload[at..]);
        payload[at + 24..at + 28].copy_from_slice(&bytes);
        forged.push(position);
    }
    let large = submit(&log, &payload).expect("written");
    let after = submit(&log, &record(1, 10)).expect("written");
    let committed = log.committed().get();
    let mut reader = log.reader().expect("opened");
    for &position in &forged {
        let error = reader.seek(Position::new(position)).expect_err("it is no record");
        assert_eq!(*error.kind(), LogErrorKind::NoRecord(Position::new(position)));
        reader.seek_last(committed - position).expect("found");
        let next = reader.next().expect("read").expect("there");
        assert_eq!((next.position.get(), next.bytes), (after, &record(1, 10)[..]), "{position}");
    }
    reader.seek_last(committed - batch).expect("found");
    assert_eq!(reader.next().expect("read").expect("there").position.get(), large);
}

#[test]
fn a_batch_that_cannot_be_is_damage_with_its_name() {
    let (kind, size) = ("the kind in a batch's header", "the size in a batch's header");
    let cases = [
        (4, 4, 0, kind),
        (4, 4, 0x102, kind),
        (28, 4, 0, size),
        (28, 4, u64::from(u32::MAX), size),
        (28, 4, 64 << 10, size),
        (32, 4, u64::from(u32::MAX), "the number of records in a batch's header"),
        (32, 4, 2, "the number of records in a batch's header"),
        (24, 4, 0, "the epoch in a batch's header"),
        (16, 8, u64::MAX, "the durable position in a batch's header"),
    ];
    for close in [true, false] {
        let machine = Machine::new(1);
        let found = fill(&machine, 12, close);
        let layout = layout_of(&machine);
        for (at, bytes, value, what) in cases {
            // In the middle, the last one, and one that a crash may have left behind the end.
            let middle = batch_of(&machine, found[8].0).position;
            let last = batch_of(&machine, found[found.len() - 1].0);
            let behind = last.next(&layout) + BLOCK as u64;
            for position in [middle, last.position, behind] {
                if position == behind && (close || value == 2) {
                    continue;
                }
                let damaged = machine.copy();
                edit(&damaged, position, |block| {
                    if position == behind {
                        BatchHeader { position, used: 104, records: 1, ..last }
                            .encode(&layout.identity, block);
                    }
                    put(block, at, value, bytes);
                    seal_batch(&layout, block);
                });
                let case = format!("{what} {value} at {position}, closed: {close}");
                let [alone, opened] = read(&damaged);
                // What is behind the end, and in a closed log what was checked before, nobody reads.
                if position != behind {
                    is_damage(&case, alone.expect_err(&case), position, what);
                }
                if !close {
                    is_damage(&case, opened.expect_err(&case), position, what);
                }
                let (_, damages) = verified(&damaged);
                assert_eq!(damages.len(), 1, "{case}: {damages:?}");
                assert!(damages[0].1 == position, "{case}: {damages:?}");
            }
        }
    }
}

#[track_caller]
fn is_damage(case: &str, error: LogError, at: u64, expected: &str) {
    match error.kind() {
        LogErrorKind::Damaged { position, what } => {
            assert_eq!((position.get(), *what), (at, expected), "{case}: {error}");
        }
        _ => panic!("{case}: {error}"),
    }
}

#[test]
fn a_batch_of_an_earlier_epoch_in_the_middle_is_damage() {
    let machine = Machine::new(1);
    fill(&machine, 3, true);
    let found = fill(&machine, 4, true);
    let layout = layout_of(&machine);
    let second = batch_of(&machine, found[2].0);
    assert_eq!(second.epoch, 2);
    edit(&machine, second.position, |block| {
        BatchHeader { epoch: 1, ..second }.encode(&layout.identity, block);
    });
    let [alone, _] = read(&machine);
    let what = "the epoch in a batch's header";
    is_damage("earlier", alone.expect_err("damaged"), second.position, what);
}

#[test]
fn a_record_that_cannot_be_is_damage_with_its_name() {
    let machine = Machine::new(1);
    let found = fill(&machine, 6, false);
    let layout = layout_of(&machine);
    for (at, value, what) in [
        (0, u64::from(u32::MAX >> 1), "the length in a record's header"),
        (0, 1 << 24, "the length in a record's header"),
        (8, 9, "the epoch in a record's header"),
        (12, 4096, "the place in its batch in a record's header"),
        (12, u64::from(u32::MAX), "the place in its batch in a record's header"),
        (16, 5, "a record"),
    ] {
        let damaged = machine.copy();
        // Its payload goes over a block.
        let position = found.iter().find(|it| it.1 == 7).expect("there").0;
        edit(&damaged, position, |block| {
            put(block, at, value, 4);
            seal_record(&layout, position, block);
        });
        let [alone, opened] = read(&damaged);
        for found in [alone, opened] {
            is_damage(what, found.expect_err(what), position, what);
        }
        let mut reader = Reader::open(damaged.disk()).expect("opened");
        let single = reader.read(Position::new(position));
        assert!(matches!(at, 8 | 12) || single.is_err(), "{what}: read as if it were well");
        let (checked, damages) = verified(&damaged);
        assert_eq!(checked.records, found.len() as u64 - 1, "{what}: {damages:?}");
    }
}

#[test]
fn a_header_that_somebody_wrote_for_bytes_that_match_is_a_record() {
    let machine = Machine::new(1);
    let found = fill(&machine, 6, true);
    let layout = layout_of(&machine);
    // The checksum of no bytes is 0.
    let position = found[4].0;
    edit(&machine, position, |block| {
        put(block, 0, 0, 4);
        put(block, 4, 0, 4);
        seal_record(&layout, position, block);
    });
    let mut reader = Reader::open(machine.disk()).expect("opened");
    assert!(reader.read(Position::new(position)).expect("it is one").is_empty());
    reader.seek(Position::new(position)).expect("it is one");
    let record = reader.next().expect("it is one").expect("there");
    assert_eq!((record.position.get(), record.bytes), (position, &[][..]));
    // But it does not fill the place of the other.
    let behind = position + RECORD_HEADER as u64;
    is_damage("behind it", reader.next().expect_err("damaged"), behind, "a record's header");
    let (checked, damages) = verified(&machine);
    assert_eq!(damages.first(), Some(&(Damaged::RecordHeader, behind)));
    assert_eq!(checked.records, found.len() as u64);
}

#[test]
fn a_segment_whose_header_cannot_be_is_damage() {
    let machine = Machine::new(1);
    fill(&machine, 12, true);
    for (at, size, value) in
        [(12, 4, 0), (16, 8, 0), (16, 8, 1), (16, 8, 1 << 41), (24, 8, u64::MAX), (24, 8, 7)]
    {
        let damaged = machine.copy();
        edit(&damaged, 0, |block| {
            put(block, at, value, size);
            seal_segment(block);
        });
        for result in read(&damaged) {
            let error = result.expect_err("damaged");
            assert!(matches!(error.kind(), LogErrorKind::Damaged { .. }), "{error}");
        }
        assert_eq!(verified(&damaged).1, [(Damaged::SegmentHeader, 0)], "{at} {value}");
        // And without the page, from which its size would be known.
        damaged.remove("control");
        let _ = verify(damaged.disk(), &mut |_| {});
        let _ = Log::open(damaged.disk(), options());
    }
}

#[test]
fn a_log_of_version_1_is_read_and_continued() {
    let machine = Machine::new(1);
    let mut found = fill(&machine, 12, true);
    for name in machine.names().into_iter().filter(|name| name.ends_with(".segment")) {
        let mut bytes = machine.bytes(&name);
        put(&mut bytes, 8, 1, 4);
        seal_segment(&mut bytes);
        machine.set_bytes(&name, bytes);
    }
    let more = fill(&machine, 12, false);
    found.extend(more);
    let versions: Vec<u8> = (machine.names().iter().filter(|name| name.ends_with(".segment")))
        .map(|name| machine.bytes(name)[8])
        .collect();
    assert!(versions.contains(&1) && versions.contains(&2), "{versions:?}");
    assert_eq!(verified(&machine).1, []);
    for result in read(&machine) {
        assert_eq!(result.expect("read"), found);
    }
}

/// Everything in a log but these records is found in every way, and these are not.
fn is_without(machine: &Machine, all: &Found, lost: &[u64], holes: u64, gaps: u64) {
    let left: Found = all.iter().filter(|it| !lost.contains(&it.0)).copied().collect();
    let (found, damages) = verified(machine);
    assert_eq!((damages, found.lost_records, found.lost_more), (vec![], 0, false));
    assert_eq!((found.records, found.holes, found.gaps), (left.len() as u64, holes, gaps));
    assert!(found.given_up_bytes > 0);

    let mut reader = Reader::open(machine.disk()).expect("opened");
    let committed = reader.committed_now();
    for &(position, _) in all {
        let at = Position::new(position);
        let is_lost = lost.contains(&position);
        for error in [reader.seek(at).err(), reader.read(at).err()] {
            let expected = is_lost.then_some(LogErrorKind::NoRecord(at));
            assert_eq!(error.map(|it| it.kind().clone()), expected, "{position}");
        }
        reader.seek_last(committed - position).expect("found");
        let next = reader.next().expect("read").map(|it| it.position.get());
        let expected = left.iter().map(|it| it.0).find(|&it| it >= position);
        assert_eq!(next, expected, "the last from {position} on");
    }
    for result in read(machine) {
        assert_eq!(result.expect("read"), left);
    }
    // And behind all of it the log goes on.
    let log = open(machine);
    let last = submit(&log, &record(99, 100)).expect("written");
    log.close().expect("closed");
    machine.restart(Crash::Process);
    for result in read(machine) {
        assert_eq!(result.expect("read").last(), Some(&(last, 99)));
    }
}

/// As a repair gives up records of one batch, from one to where another begins or the batch ends.
fn make_hole(machine: &Machine, from: u64, to: u64) {
    let (layout, batch) = (layout_of(machine), batch_of(machine, from));
    let [begin, end] = [from, to].map(|it| (it - batch.position) as u32);
    edit(machine, from, |bytes| {
        RecordHeader::hole(begin, end, batch.epoch).encode(&layout.identity, from, bytes);
        bytes[RECORD_HEADER..(to - from) as usize].fill(0);
    });
}

/// As a repair gives up batches.
fn make_gap(machine: &Machine, before: &BatchHeader, from: u64, to: u64) {
    let layout = layout_of(machine);
    edit(machine, from, |bytes| {
        let there = (to.min(layout.end(layout.segment(from))) - from) as usize;
        let there = there.min(bytes.len());
        bytes[..there].fill(0);
        let kind = Kind::Gap { to };
        let size = BATCH_HEADER as u32;
        BatchHeader { kind, position: from, used: size, records: 0, ..*before }
            .encode(&layout.identity, bytes);
    });
}

#[test]
fn holes_are_passed_over() {
    for close in [true, false] {
        let machine = Machine::new(1);
        let all = fill(&machine, 12, close);
        let batches: Vec<BatchHeader> =
            batches(&machine).into_iter().filter(|batch| batch.records == 3).collect();
        let records_of = |batch: &BatchHeader| -> Vec<u64> {
            let within = batch.position..batch.end_of_records();
            all.iter().map(|it| it.0).filter(|it| within.contains(it)).collect()
        };
        let mut lost = Vec::new();
        // The first, the middle one, the tail, and all.
        for (batch, (from, to)) in batches.iter().zip([(0, 1), (1, 2), (1, 3), (0, 3)]) {
            let mut places = records_of(batch);
            places.push(batch.end_of_records());
            make_hole(&machine, places[from], places[to]);
            lost.extend(&places[from..to]);
        }
        assert_eq!(lost.len(), 7);
        is_without(&machine, &all, &lost, 4, 0);
    }
}

#[test]
fn gaps_are_passed_over() {
    for close in [true, false] {
        for (from, to) in [(3, 4), (2, 6), (10, 12)] {
            let machine = Machine::new(1);
            let all = fill(&machine, 24, close);
            let layout = layout_of(&machine);
            let batches: Vec<BatchHeader> =
                batches(&machine).into_iter().filter(|it| it.kind == Kind::Records).collect();
            let (first, next) = (&batches[from], &batches[to]);
            let begin = first.position;
            // A gap ends in its segment, or with it.
            let end = match layout.segment(begin) == layout.segment(next.position) {
                true => next.position,
                false => layout.first_batch(layout.segment(begin) + 1),
            };
            make_gap(&machine, &batches[from - 1], begin, end);
            let lost: Vec<u64> =
                all.iter().map(|it| it.0).filter(|it| (begin..end).contains(it)).collect();
            assert!(!lost.is_empty());
            is_without(&machine, &all, &lost, 0, 1);
        }
    }
}

#[test]
fn a_gap_can_be_the_whole_of_a_segment_and_the_end_of_a_log() {
    let machine = Machine::new(1);
    let all = fill(&machine, 24, true);
    let layout = layout_of(&machine);
    let all_batches = batches(&machine);
    let last = layout.segment(all_batches.last().expect("some").position);
    assert!(last > 1);
    let before = all_batches.iter().rfind(|it| it.position < layout.start(1)).expect("some");
    make_gap(&machine, before, layout.first_batch(1), layout.first_batch(2));
    let lost: Vec<u64> = all.iter().map(|it| it.0).filter(|it| layout.segment(*it) == 1).collect();
    // No more of the file than the header and the gap.
    let mut bytes = machine.bytes(&name_of(1));
    bytes.truncate(2 * BLOCK);
    machine.set_bytes(&name_of(1), bytes);
    is_without(&machine, &all, &lost, 0, 1);

    let machine = Machine::new(1);
    let all = fill(&machine, 24, true);
    let committed = Reader::open(machine.disk()).expect("opened").committed_now();
    let [.., before, begin] = &all_batches[..] else { panic!("too few") };
    make_gap(&machine, before, begin.position, committed);
    let lost: Vec<u64> = all.iter().map(|it| it.0).filter(|it| *it > begin.position).collect();
    assert!(!lost.is_empty());
    is_without(&machine, &all, &lost, 0, 1);
}

#[test]
fn a_gap_beyond_what_is_committed_is_damage() {
    let machine = Machine::new(1);
    let all = fill(&machine, 3, true);
    let last = batch_of(&machine, all.last().expect("some").0);
    let committed = Reader::open(machine.disk()).expect("opened").committed_now();
    make_gap(&machine, &last, last.position, committed + BLOCK as u64);
    let [alone, _] = read(&machine);
    is_damage("too far", alone.expect_err("damaged"), last.position, "the end of a gap");
}

#[test]
fn a_page_that_names_an_end_far_away_is_one_damage() {
    let machine = Machine::new(1);
    let all = fill(&machine, 24, true);
    page_of(&machine).note_durable(1 << 60).expect("stored");
    machine.restart(Crash::Process);
    let (found, damages) = verified(&machine);
    assert_eq!(found.records, all.len() as u64);
    assert!(damages.len() <= 2, "{damages:?}");
    assert!(damages.iter().any(|it| it.0 == Damaged::Segment), "{damages:?}");
}

#[test]
fn a_page_that_gives_up_what_was_never_written_is_damage() {
    for close in [true, false] {
        let machine = Machine::new(1);
        fill(&machine, 12, close);
        let page = page_of(&machine);
        page.set_first(page.committed() + 2 * BLOCK as u64).expect("stored");
        machine.restart(Crash::Process);
        let error = Log::open(machine.disk(), options()).err().expect("damaged");
        assert!(matches!(error.kind(), LogErrorKind::Damaged { .. }), "{error}");
    }
}

#[test]
fn what_lies_in_a_gap_behind_a_gap_of_the_log_is_not_looked_at() {
    let machine = Machine::new(1);
    fill(&machine, 6, false);
    let all = batches(&machine);
    let layout = layout_of(&machine);
    let (begin, end) = (all[3].position, all[5].position);
    edit(&machine, begin, |bytes| {
        let size = BATCH_HEADER as u32;
        let kind = Kind::Gap { to: end };
        BatchHeader { kind, used: size, records: 0, ..all[3] }.encode(&layout.identity, bytes);
    });
    let mut window = Window::new(Arc::new(machine.disk()), layout, BLOCK);
    let mut seen = Vec::new();
    let bytes = recovery::behind(&mut window, all[1].position, 0, 1, |position, found| {
        assert!(found.is_ok());
        seen.push(position);
        Ok(())
    });
    let expected: Vec<u64> =
        [2, 3].into_iter().chain(5..all.len()).map(|it| all[it].position).collect();
    assert_eq!(seen, expected);
    assert!(bytes.expect("read") > 0);
}

#[test]
fn a_reader_can_start_behind_a_damaged_header_and_does_not_pass_over_it() {
    let machine = Machine::new(1);
    let found = fill(&machine, 6, true);
    let batch = batches(&machine).into_iter().rfind(|it| it.records == 3).expect("some");
    let within = batch.position..batch.end_of_records();
    let records: Vec<u64> = found.iter().map(|it| it.0).filter(|it| within.contains(it)).collect();
    edit(&machine, records[1], |bytes| bytes[0] ^= 1);
    let mut reader = Reader::open(machine.disk()).expect("opened");
    let committed = reader.committed_now();
    reader.seek(Position::new(records[2])).expect("it is whole");
    assert_eq!(reader.next().expect("read").expect("there").position.get(), records[2]);
    reader.seek_last(committed - records[1] - 8).expect("the next one");
    assert_eq!(reader.next().expect("read").expect("there").position.get(), records[2]);
    reader.seek_last(committed - records[0]).expect("the one before");
    assert_eq!(reader.next().expect("read").expect("there").position.get(), records[0]);
    let header = "a record's header";
    is_damage(header, reader.next().expect_err("damaged"), records[1], header);
}

/// What a reader is told of a log that somebody wrote to harm it.
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

struct Fuzz {
    random: Rng,
    layout: Layout,
    intact: BTreeMap<u64, u64>,
    /// What was changed says that records are no longer there.
    hides: bool,
}

impl Fuzz {
    fn extreme(&mut self, near: u64) -> u64 {
        let random = &mut self.random;
        let edges = [
            0,
            1,
            2,
            4,
            47,
            48,
            49,
            4095,
            4096,
            4097,
            SEGMENT,
            (16 << 20) - 72,
            16 << 20,
            1 << 31,
            u64::from(u32::MAX),
            1 << 40,
            1 << 62,
            i64::MAX as u64,
            u64::MAX - 4095,
            u64::MAX,
        ];
        match random.u32(..5) {
            0 | 1 => edges[random.usize(..edges.len())],
            2 => near.wrapping_add(random.u64(..33)).wrapping_sub(16),
            3 => near.wrapping_add((random.u64(..33) * 4096).wrapping_sub(16 * 4096)),
            _ => random.u64(..) >> random.u32(..64),
        }
    }

    fn change(&mut self, machine: &Machine) -> String {
        let layout = self.layout;
        let segments: Vec<String> =
            machine.names().into_iter().filter(|name| name.ends_with(".segment")).collect();
        let batches = batches(machine);
        let batch = batches[self.random.usize(..batches.len())];
        match self.random.u32(..9) {
            0..3 => {
                let fields = [(4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 8)];
                let (at, size) = fields[self.random.usize(..fields.len())];
                let near = [0, batch.position, batch.used.into(), batch.epoch.into()];
                let near = near[self.random.usize(..4)];
                let value = self.extreme(near);
                // A kind can be another, and a gap end elsewhere.
                self.hides |= at == 4 || at == 36;
                edit(machine, batch.position, |block| {
                    put(block, at, value, size);
                    seal_batch(&layout, block);
                });
                format!("batch {}: {value} at {at}", batch.position)
            }
            3..6 => {
                let nth = self.random.usize(..self.intact.len());
                let (&position, _) = self.intact.iter().nth(nth).expect("some");
                let at = self.random.usize(..5) * 4;
                let near = [0, position - batch.position.min(position), 1, 4024];
                let near = near[self.random.usize(..4)];
                let value = self.extreme(near);
                let name = name_of(position / SEGMENT);
                let before = machine.bytes(&name);
                edit(machine, position, |block| {
                    put(block, at, value, 4);
                    seal_record(&layout, position, block);
                });
                if self.is_forged(machine, position) {
                    machine.set_bytes(&name, before);
                    return format!("record {position} as it was");
                }
                // It says that it is a hole.
                self.hides |= at == 0 && value as u32 >> 31 == 1;
                format!("record {position}: {value} at {at}")
            }
            6 => {
                let segment = self.random.u64(..segments.len() as u64);
                let (at, size) =
                    [(8, 4), (12, 4), (16, 8), (24, 8), (32, 8)][self.random.usize(..5)];
                let value = self.extreme(segment);
                edit(machine, layout.start(segment), |block| {
                    put(block, at, value, size);
                    seal_segment(block);
                });
                format!("segment {segment}: {value} at {at}")
            }
            7 => {
                // A header of any kind where none was, or one was.
                let last = batches.last().expect("some").position;
                let position = self.random.u64(1..last / BLOCK as u64 + 9) * BLOCK as u64;
                if position % SEGMENT == 0 || position / SEGMENT >= segments.len() as u64 {
                    return "nothing".to_owned();
                }
                self.hides = true;
                let values: Vec<u64> = (0..6).map(|_| self.extreme(position)).collect();
                let kind = [1, 2, 3, 4, 4, 0x101, 5][self.random.usize(..7)];
                let sane = self.random.bool();
                edit(machine, position, |block| {
                    block[..4].copy_from_slice(MAGIC);
                    put(block, 4, kind, 4);
                    put(block, 8, position, 8);
                    put(block, 16, if sane { 4096 } else { values[0] }, 8);
                    put(block, 24, if sane { 1 } else { values[1] }, 4);
                    put(block, 28, if sane { 48 } else { values[2] }, 4);
                    put(block, 32, if sane { 0 } else { values[3] }, 4);
                    put(block, 36, values[4], 8);
                    seal_batch(&layout, block);
                });
                format!("a header of kind {kind} at {position}, sane: {sane}, {values:?}")
            }
            _ => {
                // The page, by its own checks.
                self.hides = true;
                let value = self.extreme(batch.position);
                let page = page_of(machine);
                let which = self.random.u32(..6);
                let changed = match which {
                    0 => page.commit(value, self.random.bool()),
                    1 => page.note_durable(value),
                    2 => page.set_closed(Some(value)),
                    3 => page.set_first(value),
                    4 => page.set_shown(),
                    _ => page.set_opening(&Opening {
                        epoch: value as u32,
                        boot: [value, 7],
                        process: 1,
                        prewriting: value,
                        lineage: value,
                        shown: self.random.bool(),
                    }),
                };
                changed.expect("stored");
                machine.restart(Crash::Process);
                format!("page: {value} in {which}")
            }
        }
    }

    /// Whether changes have made another record of one, with bytes that match its header: nothing says that it is
    /// none.
    fn is_forged(&self, machine: &Machine, position: u64) -> bool {
        let bytes = machine.bytes(&name_of(position / SEGMENT));
        let bytes = &bytes[(position % SEGMENT) as usize..];
        let header = RecordHeader::decode(&self.layout.identity, position, bytes);
        let Some(header) = header.filter(|header| !header.lost) else { return false };
        let Some(stored) = bytes[RECORD_HEADER..].get(..header.length as usize) else {
            return false;
        };
        let mut payload = stored.to_vec();
        header.unmask(position, &mut payload);
        header.is_of(position, stored)
            && payload != record(self.intact[&position], header.length as usize)
    }

    /// All that a reader says is what was appended.
    fn look(&mut self, machine: &Machine, what: &str) {
        let intact = self.intact.clone();
        let check = |result: &Result<Found, LogError>, hides: bool| match result {
            Ok(found) => {
                for (position, number) in found {
                    assert_eq!(intact.get(position), Some(number), "{what}");
                }
                assert!(found.is_sorted_by(|a, b| a.0 < b.0), "{what}");
                assert!(hides || found.len() == intact.len(), "fewer: {what}");
            }
            Err(error) => assert!(is_told(error), "{what}: {error}"),
        };
        if let Ok(mut reader) = Reader::open(machine.disk()) {
            check(&read_all(&mut reader), self.hides);
            for _ in 0..8 {
                let nth = self.random.usize(..intact.len());
                let position = match self.random.u32(..3) {
                    0 => self.extreme(SEGMENT),
                    _ => *intact.iter().nth(nth).expect("some").0,
                };
                if reader.seek(Position::new(position)).is_ok() {
                    check(&read_all(&mut reader), true);
                }
                let bytes = match reader.committed_now().checked_sub(position) {
                    Some(bytes) if self.random.bool() => bytes,
                    _ => position,
                };
                if reader.seek_last(bytes).is_ok() {
                    check(&read_all(&mut reader), true);
                }
                if let Ok(bytes) = reader.read(Position::new(position)) {
                    let expected = intact.get(&position).map(|&it| record(it, bytes.len()));
                    assert_eq!(Some(bytes), expected, "{what}");
                }
            }
        }
        if let Ok(mut reader) = Reader::open(machine.disk()) {
            reader.set_skip_damage(true);
            check(&read_all(&mut reader), self.hides || !reader.damages().is_empty());
        }
        machine.restart(Crash::Process);
        let verified = verify(machine.disk(), &mut |_| {});
        if let Err(error) = verified {
            assert!(is_told(&error), "{what}: {error}");
        }
        machine.restart(Crash::Process);
        match Log::open(machine.disk(), options()) {
            Ok(log) => {
                check(&log.reader().and_then(|mut reader| read_all(&mut reader)), self.hides);
                let appended = submit(&log, &record(1000, 50));
                if let (Ok(position), Ok(())) = (appended, log.close()) {
                    self.intact.insert(position, 1000);
                    machine.restart(Crash::Process);
                    let found =
                        Reader::open(machine.disk()).and_then(|mut reader| read_all(&mut reader));
                    if let Ok(found) = &found {
                        assert_eq!(found.last(), Some(&(position, 1000)), "{what}");
                    }
                }
            }
            Err(error) => assert!(is_told(&error), "{what}: {error}"),
        }
        machine.restart(Crash::Process);
    }
}

/// Numbers in headers become others, with checksums that are right: nothing panics, hangs, or reads as a
/// record what was not appended, unless all numbers in its header were chosen to match. For longer: `FAIRLOCK_FUZZ_SECONDS`.
#[test]
fn whatever_headers_say_nothing_that_was_not_appended_is_read() {
    let machines = [true, false].map(|close| {
        let machine = Machine::new(1);
        fill(&machine, 6, true);
        let again = fill(&machine, 10, close);
        let mut intact = read(&machine.copy())[0].clone().expect("intact");
        intact.sort_unstable();
        assert!(again.iter().all(|it| intact.contains(it)));
        (machine, intact)
    });
    each_seed(depth(150, 400), |seed| {
        let (machine, intact) = &machines[seed as usize % 2];
        let machine = machine.copy();
        let mut fuzz = Fuzz {
            random: Rng::with_seed(seed),
            layout: layout_of(&machine),
            intact: intact.iter().copied().collect(),
            hides: false,
        };
        if fuzz.random.u32(..4) == 0 {
            machine.change_boot();
            fuzz.hides = true;
        }
        let changes = fuzz.random.u32(1..4);
        let mut what = format!("seed {seed}");
        for _ in 0..changes {
            what += &format!("; {}", fuzz.change(&machine));
        }
        fuzz.look(&machine, &what);
    });
}

#[test]
fn a_record_too_large_for_any_log_is_not_blamed_on_its_segments() {
    let directory = test_directory();
    let path = directory.path().join("log");
    let options = LogOptions::new().prewrite(Prewrite::Never);
    let log = options.open(&path).expect("opened");
    let most = (16 << 20) - 72;
    let error = log.append(&vec![0; most + 1]).expect_err("too large");
    assert_eq!(*error.kind(), LogErrorKind::TooLarge { bytes: most + 1, most });
    assert!(!error.to_string().contains("larger segments"), "{error}");
    let position = log.append(&vec![7; most]).expect("it fits");
    log.close().expect("closed");
    let mut reader = LogReader::open(&path).expect("opened");
    assert_eq!(reader.read_at(position).expect("read").len(), most);
    fs::remove_dir_all(&path).expect("removed");
}
