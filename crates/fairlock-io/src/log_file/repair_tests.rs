//! Damaged logs, repaired: what is whole stays where it is, what is lost is said, and the log then opens like any
//! other, wherever the repair itself is cut off.

use std::collections::BTreeMap;
use std::env;
use std::io::IoSlice;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::control::{self, Control, Written};
use super::crash_tests::{read_all, record};
use super::error::LogErrorKind;
use super::format::{BATCH_HEADER, BLOCK, RECORD_HEADER};
use super::log::Log;
use super::options::{LogOptions, OpenMode, Prewrite, SyncPolicy};
use super::position::Position;
use super::reader::Reader;
use super::repair::{RepairOptions, RepairReport, repair};
use super::segments::{name_of, number_of_saved};
use super::simulated_disk::{Crash, Machine, SimulatedDisk};
use super::verify::{Damage, Damaged, Verified, verify};
use crate::long::depth;

const SEGMENT: u64 = 64 << 10;

/// The position, number and length of a record.
type Appended = (u64, u64, usize);

fn options() -> LogOptions {
    LogOptions::new().segment_bytes(SEGMENT).batch_bytes(16384).prewrite(Prewrite::Never)
}

fn open(machine: &Machine) -> Log<SimulatedDisk> {
    Log::open(machine.disk(), options()).expect("opened")
}

/// Two openings, four segments, batches of one record and of several.
fn fill(machine: &Machine, close: bool) -> Vec<Appended> {
    fill_with(machine, &options(), close)
}

fn fill_with(machine: &Machine, options: &LogOptions, close: bool) -> Vec<Appended> {
    let mut found: Vec<Appended> = Vec::new();
    for opening in 0..2 {
        let log = Log::open(machine.disk(), options.clone()).expect("opened");
        for batch in 0..12_usize {
            let count = [1, 4, 2][batch % 3];
            let submitted: Vec<_> = (0..count)
                .map(|it| {
                    let number = (found.len() + it) as u64;
                    let length = [20, 300, 4024, 5000, 16][number as usize % 5];
                    let bytes = record(number, length);
                    let submitted = log.submit(&[IoSlice::new(&bytes)]).expect("submitted");
                    (submitted, number, bytes.len())
                })
                .collect();
            for (submitted, number, length) in submitted {
                found.push((log.wait(submitted).expect("written").get(), number, length));
            }
        }
        match close || opening == 0 {
            true => log.close().expect("closed"),
            false => machine.kill(),
        }
        machine.restart(Crash::Process);
    }
    assert!(found.last().expect("some").0 > 3 * SEGMENT);
    found
}

fn edit(machine: &Machine, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = machine.bytes(name);
    change(&mut bytes);
    machine.set_bytes(name, bytes);
}

fn flip(machine: &Machine, position: u64, bits: u8) {
    let name = name_of(position / SEGMENT);
    if !machine.names().contains(&name) {
        return;
    }
    edit(machine, &name, |bytes| {
        if let Some(byte) = bytes.get_mut((position % SEGMENT) as usize) {
            *byte ^= bits;
        }
    });
}

fn verified(machine: &Machine) -> (Verified, Vec<Damage>) {
    let mut damages = Vec::new();
    let found = verify(machine.disk(), &mut |damage| damages.push(damage)).expect("verified");
    (found, damages)
}

fn files(machine: &Machine) -> BTreeMap<String, Vec<u8>> {
    machine.names().into_iter().map(|name| (name.clone(), machine.bytes(&name))).collect()
}

fn repaired(machine: &Machine, options: &RepairOptions) -> RepairReport {
    let report = repair(Arc::new(machine.disk()), options).unwrap_or_else(|error| {
        panic!("{error}; {}: {:?}", machine.describe(), verified(machine).1)
    });
    machine.restart(Crash::Process);
    report
}

/// What a log has that opens without complaint, and that nothing is wrong with.
fn sound(machine: &Machine) -> Vec<(u64, u64)> {
    let read = Reader::open(machine.disk()).and_then(|mut reader| read_all(&mut reader));
    let read = read.unwrap_or_else(|error| panic!("{error}; {}", machine.describe()));
    let (found, damages) = verified(machine);
    assert_eq!((damages, found.lost_records, found.lost_more), (Vec::new(), 0, false));
    assert_eq!(found.records, read.len() as u64);
    let log = Log::open(machine.disk(), options());
    let log = log.unwrap_or_else(|error| panic!("{error}; {}", machine.describe()));
    assert_eq!(read_all(&mut log.reader().expect("opened")).expect("read"), read);
    for &(position, _) in &read {
        log.read(Position::new(position)).expect("read by its position");
    }
    let submitted = log.submit(&[IoSlice::new(&record(1_000_000, 5000))]).expect("submitted");
    let position = log.wait(submitted).expect("written");
    assert!(read.iter().all(|it| it.0 < position.get()), "a position has returned");
    log.close().expect("closed");
    machine.restart(Crash::Process);
    let log = open(machine);
    let mut again = read_all(&mut log.reader().expect("opened")).expect("read");
    assert_eq!(again.pop(), Some((position.get(), 1_000_000)));
    assert_eq!(again, read);
    drop(log);
    machine.restart(Crash::Process);
    read
}

fn places(records: &[Appended]) -> Vec<(u64, u64)> {
    records.iter().map(|&(position, number, _)| (position, number)).collect()
}

/// Repairs a log: what it then has, and what was said of it.
fn check(machine: &Machine) -> (Vec<(u64, u64)>, RepairReport) {
    check_with(machine, true)
}

/// The same. A log that needs no repair is repaired once more only if it `repeats`.
fn check_with(machine: &Machine, repeats: bool) -> (Vec<(u64, u64)>, RepairReport) {
    let (found, damages) = verified(machine);
    let before = files(machine);
    let planned = repaired(machine, &RepairOptions::new().dry_run(true));
    assert!(files(machine) == before, "a dry run has changed something");
    let report = repaired(machine, &RepairOptions::new());
    assert_eq!((report.found, &report.damages), (found, &damages));
    assert_eq!(RepairReport { saved: Vec::new(), ..report.clone() }, planned);
    if report.is_needed || repeats {
        let after = files(machine);
        let again = repaired(machine, &RepairOptions::new());
        assert!(!again.is_needed, "{:?} after {damages:?}", again.damages);
        assert!(files(machine) == after, "there was nothing to do");
    }
    let whole = sound(machine);
    assert_eq!(whole.len() as u64, found.records, "{damages:?}");
    (whole, report)
}

/// Whether a record has bytes in this part of the log.
fn is_hit(record: &Appended, from: u64, to: u64) -> bool {
    let &(position, _, length) = record;
    position < to && from < position + (RECORD_HEADER + length) as u64
}

fn without(records: &[Appended], from: u64, to: u64) -> Vec<(u64, u64)> {
    let whole: Vec<_> = records.iter().copied().filter(|it| !is_hit(it, from, to)).collect();
    places(&whole)
}

#[test]
fn a_log_without_damage_is_left_alone() {
    for close in [true, false] {
        let machine = Machine::new(1);
        let records = fill(&machine, close);
        let (whole, report) = check(&machine);
        assert!(!report.is_needed && report.saved.is_empty());
        assert_eq!(whole, places(&records));
    }
}

#[test]
fn a_flipped_bit_costs_a_record_at_most() {
    for close in [true, false] {
        let machine = Machine::new(1);
        let records = fill(&machine, close);
        for name in machine.names().into_iter().filter(|name| name.ends_with(".segment")) {
            let bytes = machine.bytes(&name);
            let segment: u64 = name[..16].parse().expect("a number");
            let places = (0..bytes.len()).filter(|at| at % 4096 % 1021 < 2 || at % 4096 == 60);
            // In the suite half of them in each log.
            let places = places.skip(depth(usize::from(close), 0)).step_by(depth(2, 1));
            for (nth, at) in places.enumerate() {
                let damaged = machine.copy();
                edit(&damaged, &name, |bytes| bytes[at] ^= 0x10);
                let position = segment * SEGMENT + at as u64;
                let (whole, report) = check_with(&damaged, nth % depth(4, 1) == 0);
                assert_eq!(whole, without(&records, position, position + 1), "{position}");
                let lost = records.len() - whole.len();
                assert_eq!(report.found.lost_records, lost as u64, "{position}");
            }
        }
    }
}

#[test]
fn zeroed_blocks_cost_the_records_in_them() {
    let machine = Machine::new(1);
    let records = fill(&machine, true);
    let end = records.last().expect("some").0;
    for blocks in [1, 3] {
        for from in (0..end).step_by(BLOCK) {
            let damaged = machine.copy();
            let to = from + blocks * BLOCK as u64;
            for block in (from..to).step_by(BLOCK) {
                edit(&damaged, &name_of(block / SEGMENT), |bytes| {
                    let at = (block % SEGMENT) as usize;
                    let end = bytes.len().min(at + BLOCK);
                    bytes[at.min(end)..end].fill(0);
                });
            }
            let (whole, _) = check(&damaged);
            assert_eq!(whole, without(&records, from, to), "{from}");
        }
    }
}

#[test]
fn a_truncated_segment_costs_what_was_behind() {
    let machine = Machine::new(1);
    let records = fill(&machine, true);
    for segment in 0..4 {
        let name = name_of(segment);
        let length = machine.bytes(&name).len();
        for kept in [0, 1, 4096, 4144, 8192, 9000, 20480, 20000, length - 4096, length - 50] {
            let damaged = machine.copy();
            edit(&damaged, &name, |bytes| bytes.truncate(kept));
            let (whole, _) = check(&damaged);
            let begin = segment * SEGMENT;
            let expected = without(&records, begin + kept as u64, begin + SEGMENT);
            assert_eq!(whole, expected, "{kept} of {segment}");
        }
    }
}

#[test]
fn missing_segments_cost_their_records_and_get_files() {
    for missing in [vec![0], vec![1], vec![3], vec![1, 2], vec![0, 2], vec![0, 1, 2, 3]] {
        let machine = Machine::new(1);
        let records = fill(&machine, true);
        let there = |it: &&Appended| !missing.contains(&(it.0 / SEGMENT));
        let expected: Vec<_> = records.iter().filter(there).copied().collect();
        missing.iter().for_each(|&segment| machine.remove(&name_of(segment)));
        let (whole, report) = check(&machine);
        assert_eq!(whole, places(&expected), "{missing:?}");
        assert!(report.found.lost_more && report.saved.is_empty());
    }
}

#[test]
fn a_damaged_control_page_is_made_anew() {
    for close in [true, false] {
        let machine = Machine::new(1);
        let records = fill(&machine, close);
        for way in ["magic", "version", "short", "empty", "zeros"] {
            let damaged = machine.copy();
            edit(&damaged, control::NAME, |bytes| match way {
                "magic" => bytes[3] ^= 1,
                "version" => bytes[13] ^= 1,
                "short" => bytes.truncate(100),
                "empty" => bytes.clear(),
                _ => bytes.fill(0),
            });
            let (whole, report) = check(&damaged);
            assert_eq!(whole, places(&records), "{way}");
            assert_eq!(report.damages[0].what, Damaged::ControlPage);
        }
        let damaged = machine.copy();
        damaged.remove(control::NAME);
        assert_eq!(check(&damaged).0, places(&records));
    }
}

#[test]
fn without_its_control_page_a_log_that_was_never_synced_keeps_every_record_that_is_whole() {
    for policy in [SyncPolicy::Never, SyncPolicy::EveryCommit] {
        for close in [true, false] {
            let machine = Machine::new(1);
            let records = fill_with(&machine, &options().sync(policy), close);
            machine.remove(control::NAME);
            for damaged_record in [0, 1, 5, 20, records.len() - 3] {
                let damaged = machine.copy();
                let (position, ..) = records[damaged_record];
                flip(&damaged, position + 30, 1);
                let opened = Log::open(damaged.copy().disk(), options()).map(|_| ());
                match opened {
                    Err(error) => {
                        assert!(matches!(error.kind(), LogErrorKind::Damaged { .. }), "{error}");
                    }
                    // It need not be read to find the end.
                    Ok(()) => assert!(position / SEGMENT < records[records.len() - 1].0 / SEGMENT),
                }
                let (whole, report) = check(&damaged);
                assert_eq!(whole, without(&records, position, position + 31));
                assert_eq!((report.found.lost_records, report.found.lost_bytes), (1, 0));
            }
        }
    }
}

#[test]
fn without_its_control_page_the_last_batch_is_saved_if_it_is_not_whole() {
    for policy in [SyncPolicy::Never, SyncPolicy::EveryCommit] {
        let machine = Machine::new(1);
        let records = fill_with(&machine, &options().sync(policy), true);
        machine.remove(control::NAME);
        let (last, number, length) = records[records.len() - 1];
        let (first, ..) = records[records.len() - 2];
        // A byte of the first of its two records, and of the batch's header.
        for at in [first + 30, first - BATCH_HEADER as u64] {
            let damaged = machine.copy();
            flip(&damaged, at, 1);
            let (whole, report) = check(&damaged);
            assert_eq!(whole, places(&records[..records.len() - 2]));
            assert!(report.found.lost_more);
            let saved = report.saved.iter().filter_map(|it| it.file_name()?.to_str());
            let batch = first - BATCH_HEADER as u64;
            let name = format!("damaged-{batch}-1.bytes");
            assert_eq!(saved.collect::<Vec<_>>(), [name.as_str()]);
            let bytes = damaged.bytes(&name);
            let payload = &bytes[(last - batch) as usize + RECORD_HEADER..][..length];
            assert!(payload == record(number, length));
        }
    }
}

#[test]
fn what_was_given_up_stays_given_up_when_the_control_page_is_made_anew() {
    let machine = Machine::new(1);
    let records = fill(&machine, true);
    let log = open(&machine);
    log.truncate_before(Position::new(records[9].0)).expect("given up");
    log.close().expect("closed");
    machine.restart(Crash::Process);
    edit(&machine, control::NAME, |bytes| bytes[3] ^= 1);
    assert_eq!(check(&machine).0, places(&records[9..]));
}

#[test]
fn damage_before_the_first_position_is_mended_too() {
    let machine = Machine::new(1);
    let records = fill(&machine, false);
    let log = open(&machine);
    log.truncate_before(Position::new(records[9].0)).expect("given up");
    machine.kill();
    machine.restart(Crash::Process);
    let before = records[..9].iter().rfind(|it| it.0 / SEGMENT == records[9].0 / SEGMENT);
    flip(&machine, before.expect("in the same segment").0 + 3, 1);
    let (whole, report) = check(&machine);
    assert_eq!(whole, places(&records[9..]));
    assert!(report.is_needed && report.damages.is_empty());
}

/// A batch of five records, the third of which is the first that was not given up, between two others.
fn fill_around_the_first(machine: &Machine, length: usize, in_one_batch: bool) -> Vec<Appended> {
    let log = open(machine);
    let append = |number: u64, length: usize| {
        (log.submit(&[IoSlice::new(&record(number, length))]).expect("submitted"), number, length)
    };
    let mut records = Vec::new();
    for batch in [&[0][..], &[1, 2, 3, 4, 5], &[6]] {
        let mut submitted = Vec::new();
        for &number in batch {
            submitted.push(append(number, length));
            if !in_one_batch {
                log.wait(submitted.last().expect("just submitted").0).expect("written");
            }
        }
        for (submitted, number, length) in submitted {
            records.push((log.wait(submitted).expect("written").get(), number, length));
        }
    }
    log.truncate_before(Position::new(records[3].0)).expect("given up");
    log.close().expect("closed");
    machine.restart(Crash::Process);
    records
}

#[test]
fn a_log_whose_first_record_is_damaged_begins_behind_it() {
    for (length, in_one_batch) in [(20, true), (20, false), (5000, true), (5000, false)] {
        let machine = Machine::new(1);
        let records = fill_around_the_first(&machine, length, in_one_batch);
        let first = records[3].0;
        let batch = if in_one_batch { records[1].0 } else { first } - BATCH_HEADER as u64;
        let block = first - first % BLOCK as u64;
        for (from, to) in [
            (first, first + 1),
            (first, first + 24),
            (first + 30, first + 31),
            (batch, batch + 1),
            (batch, first + 1),
            (records[2].0, first + 1),
            (block, block + BLOCK as u64),
            (batch, records[6].0 - 48),
            (batch, SEGMENT),
        ] {
            for (options, up_to_damage) in
                [(RepairOptions::new(), false), (RepairOptions::new().up_to_damage(true), true)]
            {
                let damaged = machine.copy();
                edit(&damaged, &name_of(0), |bytes| {
                    let to = bytes.len().min(to as usize);
                    bytes[from as usize..to].iter_mut().for_each(|byte| *byte = !*byte);
                });
                let case = format!("{from}..{to}, {length}, {in_one_batch}, {up_to_damage}");
                let mut reader = Reader::open(damaged.disk()).expect("its end is known");
                reader.set_skip_damage(true);
                let skipped = read_all(&mut reader).expect("passed over");
                assert_eq!(skipped, without(&records[3..], from, to), "{case}");
                let damages = reader.damages();
                let is_true = |it: &Damage| {
                    let begin = it.position.get();
                    begin < to && from < begin + it.bytes
                };
                assert!(!damages.is_empty() && damages.iter().all(is_true), "{case}: {damages:?}");
                drop(reader);
                damaged.restart(Crash::Process);
                let expected = match up_to_damage {
                    false => without(&records[3..], from, to),
                    true => Vec::new(),
                };
                let report = repaired(&damaged, &options);
                assert!(report.is_needed, "{case}");
                assert!(!repaired(&damaged, &options).is_needed, "{case}");
                assert_eq!(sound(&damaged), expected, "{case}");
            }
        }
    }
}

#[test]
fn a_log_that_begins_where_no_record_does_is_repaired() {
    let machine = Machine::new(1);
    let records = fill_around_the_first(&machine, 300, true);
    for (first, expected) in [
        (records[3].0 + 8, 4),
        (records[5].0 + 8, 6),
        (records[0].0 + 8, 1),
        (records[6].0 + 400, 7),
    ] {
        let damaged = machine.copy();
        let control = Control::open(&damaged.disk(), true).expect("opened");
        let look = control.look().expect("looked at");
        Written::new(control, &look).set_first(first).expect("stored");
        damaged.restart(Crash::Process);
        let (found, damages) = verified(&damaged);
        let [damage] = &damages[..] else { panic!("{first}: {damages:?}") };
        assert_eq!((damage.what, found.lost_records), (Damaged::ControlPage, 0), "{first}");
        assert_eq!(check(&damaged).0, places(&records[expected..]), "{first}");
    }
}

#[test]
fn a_log_of_version_1_is_repaired() {
    let machine = Machine::new(1);
    let records = fill(&machine, true);
    for name in machine.names().into_iter().filter(|name| name.ends_with(".segment")) {
        edit(&machine, &name, |bytes| {
            bytes[8] = 1;
            let checksum = crc32c::crc32c(&bytes[..48]);
            bytes[48..52].copy_from_slice(&checksum.to_le_bytes());
        });
    }
    let (position, ..) = records[10];
    flip(&machine, position + 30, 1);
    flip(&machine, 2 * SEGMENT + 20, 1);
    machine.remove(&name_of(1));
    let there = |it: &&Appended| it.0 / SEGMENT != 1 && it.0 != position;
    let expected: Vec<_> = records.iter().filter(there).copied().collect();
    assert_eq!(check(&machine).0, places(&expected));
}

#[test]
fn what_covers_a_segment_is_not_older_than_what_covers_the_one_before() {
    let machine = Machine::new(1);
    let records = fill(&machine, true);
    // All that was written by the second opening; of its segments a header is left that says so.
    edit(&machine, &name_of(1), |bytes| bytes.truncate(30_000));
    edit(&machine, &name_of(2), |bytes| bytes.truncate(BLOCK));
    machine.remove(&name_of(3));
    assert_eq!(check(&machine).0, without(&records, SEGMENT + 30_000, 4 * SEGMENT));
}

#[test]
fn what_is_overwritten_is_saved_first() {
    let machine = Machine::new(1);
    let records = fill(&machine, true);
    let &(position, number, length) = records.iter().find(|it| it.2 > 4096).expect("one");
    flip(&machine, position + 100, 1);
    let before = machine.bytes(&name_of(position / SEGMENT));
    let report = repaired(&machine, &RepairOptions::new());
    let [saved] = &report.saved[..] else { panic!("{:?}", report.saved) };
    let block = position - position % BLOCK as u64;
    let name = saved.file_name().and_then(|name| name.to_str()).expect("a name");
    assert_eq!(name, format!("damaged-{block}-1.bytes"));
    assert_eq!(number_of_saved(name), Some(1));
    let bytes = machine.bytes(name);
    let at = (block % SEGMENT) as usize;
    assert!(bytes == before[at..at + bytes.len()]);
    let mut payload = bytes[(position - block) as usize + RECORD_HEADER..][..length].to_vec();
    payload[100 - RECORD_HEADER] ^= 1;
    assert!(payload == record(number, length));
    let error = Reader::open(machine.disk()).expect("opened").read(Position::new(position));
    assert_eq!(*error.unwrap_err().kind(), LogErrorKind::NoRecord(Position::new(position)));
}

#[test]
fn a_log_that_is_to_end_before_the_damage_keeps_all_before_it_and_no_position_returns() {
    let machine = Machine::new(1);
    let records = fill(&machine, true);
    let end = machine.copy();
    let end = open(&end).committed().get();
    for damaged_record in [0, 1, 2, 3, 17, 30, records.len() - 1] {
        let (position, ..) = records[damaged_record];
        for at in [position + 3, position + 30, position - position % BLOCK as u64] {
            let damaged = machine.copy();
            flip(&damaged, at, 1);
            flip(&damaged, records.last().expect("some").0 + 1, 1);
            let options = RepairOptions::new().up_to_damage(true);
            let planned = repaired(&damaged, &options.clone().dry_run(true));
            let report = repaired(&damaged, &options);
            assert_eq!(RepairReport { saved: Vec::new(), ..report.clone() }, planned);
            let cut = report.cut_at.expect("cut off").get();
            assert!(cut <= at, "{cut} for {at}");
            assert!(!repaired(&damaged, &options).is_needed);
            let whole = sound(&damaged);
            let kept: Vec<_> = records.iter().copied().filter(|it| it.0 < cut).collect();
            assert_eq!(whole, places(&kept), "{at}");
            let lost = report.found.records - report.given_up_records;
            assert_eq!(whole.len() as u64, lost, "{at}: {report:?}");
            let log = open(&damaged);
            assert!(log.committed().get() >= end, "{at}");
            drop(log);
            damaged.restart(Crash::Process);
        }
    }
}

#[test]
fn an_open_mode_decides_what_becomes_of_a_damaged_log() {
    let machine = Machine::new(1);
    let records = fill(&machine, true);
    let (position, ..) = records[10];
    flip(&machine, position + 30, 1);
    machine.remove(&name_of(2));
    for (mode, expected) in [
        (OpenMode::SkipDamage, {
            let there = |it: &&Appended| it.0 != position && it.0 / SEGMENT != 2;
            records.iter().filter(there).copied().collect::<Vec<_>>()
        }),
        (OpenMode::UpToDamage, records[..10].to_vec()),
    ] {
        let damaged = machine.copy();
        let strict = Log::open(damaged.disk(), options()).map(|_| ()).unwrap_err();
        assert_eq!(*strict.kind(), LogErrorKind::MissingSegment);
        damaged.restart(Crash::Process);
        let log = Log::open(damaged.disk(), options().open_mode(mode)).expect("opened");
        let damages: Vec<_> =
            log.recovery().damages.iter().map(|it| (it.what, it.position.get())).collect();
        assert_eq!(damages, [(Damaged::Record, position), (Damaged::Segment, 2 * SEGMENT)]);
        assert_eq!(log.recovery().cut_at.is_some(), mode == OpenMode::UpToDamage);
        assert!(!log.recovery().saved.is_empty());
        assert_eq!(read_all(&mut log.reader().expect("opened")).expect("read"), places(&expected));
        drop(log);
        damaged.restart(Crash::Process);
        assert_eq!(sound(&damaged), places(&expected));
    }
    // One that is new.
    let new = Machine::new(1);
    Log::open(new.disk(), options().open_mode(OpenMode::SkipDamage)).expect("created");
}

#[test]
fn a_reader_that_skips_damage_gives_what_is_whole_and_says_what_is_not() {
    let machine = Machine::new(1);
    let records = fill(&machine, true);
    each_seed(60, |seed| {
        let mut random = Rng::with_seed(seed);
        let damaged = machine.copy();
        let records = give_up_some(&damaged, &mut random, &records);
        let hit = damage(&damaged, &mut random, &records);
        let mut expected = places(&records);
        for &(from, to) in &hit {
            let whole = without(&records, from, to);
            expected.retain(|it| whole.contains(it));
        }
        let mut reader = Reader::open(damaged.disk()).expect("its end is known");
        reader.set_skip_damage(true);
        let found =
            read_all(&mut reader).unwrap_or_else(|error| panic!("{seed}: {error}; {hit:?}"));
        assert_eq!(found, expected, "{seed}: {hit:?}");
        let damages = reader.damages();
        for record in records.iter().filter(|it| !expected.contains(&(it.0, it.1))) {
            let is_told = |it: &Damage| {
                let begin = it.position.get();
                is_hit(record, begin, begin + it.bytes)
            };
            assert!(damages.iter().any(is_told), "{seed}, {record:?}: {damages:?}");
        }
        let (_, known) = verified(&damaged);
        assert!(!known.is_empty() || damages.is_empty(), "{seed}: {damages:?}");
        assert_eq!(reader.damages(), []);
    });
}

#[test]
fn a_log_that_is_open_for_writing_is_not_repaired() {
    let machine = Machine::new(1);
    let log = open(&machine);
    let error = repair(Arc::new(machine.disk()), &RepairOptions::new()).unwrap_err();
    assert!(matches!(error.kind(), LogErrorKind::BusyWriter { .. }), "{error}");
    let report = repair(Arc::new(machine.disk()), &RepairOptions::new().dry_run(true));
    assert!(report.expect("looked at").found.open_for_writing);
    drop(log);
}

/// Gives up what is before some record, or nothing; what is then left.
fn give_up_some(machine: &Machine, random: &mut Rng, records: &[Appended]) -> Vec<Appended> {
    if random.bool() {
        return records.to_vec();
    }
    let first = random.usize(..records.len());
    let log = open(machine);
    log.truncate_before(Position::new(records[first].0)).expect("given up");
    match random.bool() {
        true => log.close().expect("closed"),
        false => machine.kill(),
    }
    machine.restart(Crash::Process);
    records[first..].to_vec()
}

/// Damages some segments; where bytes are no longer what they were.
fn damage(machine: &Machine, random: &mut Rng, records: &[Appended]) -> Vec<(u64, u64)> {
    let before = machine.copy();
    for _ in 0..random.usize(1..6) {
        let name = name_of(random.u64(..4));
        if !machine.names().contains(&name) {
            continue;
        }
        let length = machine.bytes(&name).len() as u64;
        match random.u32(..8) {
            0 => machine.remove(&name),
            1 => {
                let kept = random.usize(..=length as usize);
                edit(machine, &name, |bytes| bytes.truncate(kept));
            }
            2 | 3 if length > 0 => {
                let from = random.u64(..length);
                let to = length.min(from + random.u64(1..9000));
                edit(machine, &name, |bytes| random.fill(&mut bytes[from as usize..to as usize]));
            }
            4 => {
                let (position, ..) = records[random.usize(..records.len())];
                let at = [position, position - position % BLOCK as u64][random.usize(..2)];
                let at = at + random.u64(..BATCH_HEADER as u64);
                flip(machine, at, 1 << random.u32(..8));
            }
            _ if length > 0 => {
                let at = random.usize(..length as usize);
                edit(machine, &name, |bytes| bytes[at] ^= 1 << random.u32(..8));
            }
            _ => {}
        }
    }
    (0..4).flat_map(|segment| changes(&before, machine, segment)).collect()
}

/// Where the bytes of a segment differ.
fn changes(before: &Machine, after: &Machine, segment: u64) -> Vec<(u64, u64)> {
    let name = name_of(segment);
    if !before.names().contains(&name) {
        return Vec::new();
    }
    let after = if after.names().contains(&name) { after.bytes(&name) } else { Vec::new() };
    let before = before.bytes(&name);
    let mut changes: Vec<(u64, u64)> = Vec::new();
    for (at, _) in
        before.iter().zip(&after).enumerate().filter(|(_, (before, after))| before != after)
    {
        let at = segment * SEGMENT + at as u64;
        match changes.last_mut() {
            Some((_, to)) if *to == at => *to += 1,
            _ => changes.push((at, at + 1)),
        }
    }
    if after.len() < before.len() {
        changes.push((segment * SEGMENT + after.len() as u64, (segment + 1) * SEGMENT));
    }
    changes
}

#[test]
fn whatever_is_damaged_the_rest_is_there_after_a_repair() {
    let policies = [SyncPolicy::EveryCommit, SyncPolicy::Never];
    let machines = [0, 1, 2, 3].map(|which| {
        let machine = Machine::new(1);
        let records = fill_with(&machine, &options().sync(policies[which / 2]), which % 2 == 0);
        (machine, records)
    });
    each_seed(depth(50, 120), |seed| {
        let mut random = Rng::with_seed(seed);
        let (machine, records) = &machines[random.usize(..machines.len())];
        let damaged = machine.copy();
        let left = give_up_some(&damaged, &mut random, records);
        let hit = damage(&damaged, &mut random, &left);
        let mut expected = places(records);
        for &(from, to) in &hit {
            let whole = without(records, from, to);
            expected.retain(|it| whole.contains(it));
        }
        if random.u32(..4) == 0 {
            // Then nothing says what was given up, and how far the log went, but what is left of it.
            damaged.remove(control::NAME);
            if damaged.names().iter().any(|name| name.ends_with(".segment"))
                && repair(Arc::new(damaged.disk()), &RepairOptions::new().dry_run(true)).is_ok()
            {
                let (whole, _) = check(&damaged);
                assert!(whole.iter().all(|it| expected.contains(it)), "{seed}");
                // What is missed is what nothing whole lies behind.
                let last = whole.last().map_or(0, |it| it.0);
                let segments = damaged.names();
                let there = |it: &&(u64, u64)| segments.contains(&name_of(it.0 / SEGMENT));
                let mut missed = expected.iter().filter(there).filter(|it| !whole.contains(it));
                assert!(missed.all(|it| it.0 > last), "{seed}: {hit:?}");
            }
            return;
        }
        expected.retain(|it| it.0 >= left[0].0);
        let (whole, _) = check(&damaged);
        assert_eq!(whole, expected, "{seed}: {hit:?}");
    });
}

/// Does it for so many numbers, from `FAIRLOCK_FUZZ_SEED` on, and for as long as `FAIRLOCK_FUZZ_SECONDS` says.
/// Says which number it was that failed.
pub(super) fn each_seed(least: u64, mut run: impl FnMut(u64)) {
    struct Seed(u64);
    impl Drop for Seed {
        fn drop(&mut self) {
            if thread::panicking() {
                eprintln!("with FAIRLOCK_FUZZ_SEED={}", self.0);
            }
        }
    }
    let number = |name| env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(0);
    let until = Instant::now() + Duration::from_secs(number("FAIRLOCK_FUZZ_SECONDS"));
    let first = number("FAIRLOCK_FUZZ_SEED");
    let mut seed = Seed(first);
    while seed.0 - first < least || Instant::now() < until {
        run(seed.0);
        seed.0 += 1;
    }
    println!("{} seeds", seed.0 - first);
}

#[test]
fn a_repair_that_is_cut_off_anywhere_can_be_done_again() {
    let machine = Machine::new(1);
    let records = fill(&machine, true);
    each_seed(6, |seed| {
        let mut random = Rng::with_seed(seed);
        let damaged = machine.copy();
        let records = give_up_some(&damaged, &mut random, &records);
        let hit = damage(&damaged, &mut random, &records);
        if random.bool() {
            edit(&damaged, control::NAME, |bytes| bytes[3] ^= 1);
        }
        let options = RepairOptions::new().up_to_damage(seed % 3 == 2);
        if repair(Arc::new(damaged.disk()), &options.clone().dry_run(true)).is_err() {
            // No header is left that says what log it was.
            return;
        }
        let expected = {
            let all = damaged.copy();
            repaired(&all, &options);
            sound(&all)
        };
        for operation in 0.. {
            let cut_off = damaged.copy();
            let crash = [Crash::Process, Crash::Power][random.usize(..2)];
            cut_off.crash_at(operation);
            let first = repair(Arc::new(cut_off.disk()), &options);
            let is_done = !cut_off.is_dead();
            assert_eq!(first.is_ok(), is_done, "{seed} at {operation}: {:?}", first.err());
            cut_off.restart(if is_done { Crash::Process } else { crash });
            repaired(&cut_off, &options);
            let whole = sound(&cut_off);
            assert_eq!(whole, expected, "{seed} at {operation}, {crash:?}: {hit:?}");
            if is_done {
                break;
            }
        }
    });
}

#[test]
fn a_cut_before_damage_is_finished_though_the_last_segment_is_missing() {
    let machine = Machine::new(1);
    let records = fill(&machine, true);
    let last = records[records.len() - 1].0 / SEGMENT;
    machine.remove(&name_of(1));
    machine.remove(&name_of(last));
    let options = RepairOptions::new().up_to_damage(true);
    let expected = {
        let all = machine.copy();
        repaired(&all, &options);
        sound(&all)
    };
    for operation in 0.. {
        let cut_off = machine.copy();
        cut_off.crash_at(operation);
        let is_done = repair(Arc::new(cut_off.disk()), &options).is_ok();
        cut_off.restart(Crash::Process);
        repaired(&cut_off, &options);
        assert_eq!(sound(&cut_off), expected, "at {operation}");
        if is_done {
            break;
        }
    }
}
