//! What replication and redo ask of a `LogFile`: records that arrive together, durability for each append, keys,
//! completions, openings that are counted, followers that know what is durable and whether the writer lives, and
//! ends that are cut off.
//!
//! All of it by the public API. What a crash in the middle of each leaves is tested on the simulated disk.

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use fairlock_io::{
    AppendOptions, Followed, LogError, LogErrorKind, LogFile, LogOptions, LogReader, LogWriter,
    Position, Record, SyncPolicy,
};
use tempfile::TempDir;

use crate::long::depth;

const SEGMENT_BYTES: u64 = 64 << 10;
/// A segment has a header, the batch of an opening, and so many blocks besides.
const BLOCKS_OF_A_SEGMENT: u64 = SEGMENT_BYTES / 4096 - 2;
/// Longer than anything takes that does not hang.
const LONG: Duration = Duration::from_secs(120);

fn directory() -> (TempDir, PathBuf) {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a writable target");
    let path = directory.path().join("log");
    (directory, path)
}

fn options() -> LogOptions {
    LogOptions::new().segment_bytes(SEGMENT_BYTES)
}

fn never() -> LogOptions {
    options().sync(SyncPolicy::Never)
}

/// A record that takes a block alone.
fn record(number: u64) -> Vec<u8> {
    let mut bytes = vec![number as u8; 4000];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn number_of(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    assert!(bytes == record(number), "record {number} is not what was appended");
    number
}

fn append(log: &LogFile, numbers: std::ops::Range<u64>) -> Vec<Position> {
    numbers.map(|number| log.append(&record(number)).unwrap()).collect()
}

/// The numbers of the records from here on.
fn numbers(reader: &mut LogReader) -> Vec<u64> {
    reader.records().map(|next| number_of(&next.unwrap().1)).collect()
}

fn numbers_at(path: &Path) -> Vec<u64> {
    numbers(&mut LogReader::open(path).unwrap())
}

fn all(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

/// Whoever looks at the log finds these records, and no damage.
fn assert_holds(path: &Path, expected: &[u64]) {
    assert_eq!(numbers_at(path), expected);
    let verified = LogReader::verify(path, |damage| panic!("{damage:?}")).unwrap();
    assert_eq!((verified.records, verified.damages), (expected.len() as u64, 0));
}

fn kind<T: std::fmt::Debug>(result: Result<T, LogError>) -> LogErrorKind {
    result.expect_err("it is refused").kind().clone()
}

fn next(reader: &mut LogReader) -> Option<Vec<u8>> {
    reader.next().unwrap().map(|record| record.bytes.to_vec())
}

// Together.

#[test]
fn records_that_are_appended_together_are_all_found_in_their_order() {
    let (_directory, path) = directory();
    let log = options().open(&path).unwrap();
    let records: Vec<Vec<u8>> = [0, 1, 7, 8, 9, 4000, 5000, 0, 3]
        .iter()
        .zip(1..)
        .map(|(&length, byte)| vec![byte; length])
        .collect();
    let slices: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    let before = log.append(b"before").unwrap();
    let submitted = log.submit_all(&slices, &AppendOptions::new()).unwrap();
    let places = submitted.positions().to_vec();
    assert_eq!(submitted.last().unwrap().position(), places[8]);
    assert_eq!(log.wait_all(submitted).unwrap(), places);
    assert!(before < places[0] && places.is_sorted());
    for (place, expected) in places.iter().zip(&records) {
        assert_eq!(log.read(*place).unwrap(), *expected);
    }
    log.close().unwrap();

    let mut reader = LogReader::open(&path).unwrap();
    reader.seek(places[0]).unwrap();
    for (place, expected) in places.iter().zip(&records) {
        let found = reader.next().unwrap().unwrap();
        assert_eq!((found.position, found.bytes), (*place, &expected[..]));
    }
    assert!(reader.next().unwrap().is_none());
}

#[test]
fn records_that_are_too_large_together_are_refused_and_the_largest_that_fit_are_not() {
    let (_directory, path) = directory();
    let log = options().open(&path).unwrap();
    let most = match kind(log.append(&vec![1; SEGMENT_BYTES as usize])) {
        LogErrorKind::TooLarge { most, .. } => most,
        other => panic!("{other:?}"),
    };
    // With a header for the second, and the first padded.
    let (first, second) = (vec![1; 1001], vec![2; most - 1008 - 24]);
    let larger = [&second[..], &[2]].concat();
    let options = AppendOptions::new();
    let refused = kind(log.append_all(&[&first, &larger], &options));
    assert!(
        matches!(refused, LogErrorKind::TooLargeTogether { most: of, .. } if of == most + 24),
        "{refused:?}"
    );
    // Nothing of them is there.
    assert_eq!(log.reader().unwrap().records().count(), 0);
    let places = log.append_all(&[&first, &second], &options).unwrap();
    assert_eq!(log.read(places[0]).unwrap(), first);
    assert_eq!(log.read(places[1]).unwrap(), second);
    log.append_all(&[&vec![3; most]], &options).unwrap();
    let empty: Vec<&[u8]> = vec![b""; (most + 24) / 24 + 1];
    assert!(matches!(
        kind(log.append_all(&empty, &options)),
        LogErrorKind::TooLargeTogether { .. }
    ));
    let places = log.append_all(&empty[1..], &options).unwrap();
    assert_eq!(places.len(), empty.len() - 1);
    log.close().unwrap();
    let found = LogReader::verify(&path, |damage| panic!("{damage:?}")).unwrap();
    assert_eq!(found.records, 3 + places.len() as u64);
}

#[test]
fn no_records_together_are_nothing() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    let first = append(&log, 0..1);
    log.sync().unwrap();
    let before = (log.stats().commits, log.committed(), log.durable());
    for durable in [None, Some(true), Some(false)] {
        let mut options = AppendOptions::new().key(7);
        if let Some(durable) = durable {
            options = options.durable(durable);
        }
        assert_eq!(log.append_all(&[], &options).unwrap(), []);
        let submitted = log.submit_all(&[], &options).unwrap();
        assert!(submitted.last().is_none() && submitted.positions().is_empty());
        assert_eq!(log.wait_all(submitted).unwrap(), []);
    }
    log.sync().unwrap();
    let after = (log.stats().commits, log.committed(), log.durable());
    assert_eq!(after, before, "something was written");
    assert_eq!(log.read(first[0]).unwrap(), record(0));
    append(&log, 1..2 * BLOCKS_OF_A_SEGMENT);
    log.close().unwrap();
    assert_holds(&path, &all(0..2 * BLOCKS_OF_A_SEGMENT));
}

#[test]
fn a_single_record_has_options_of_its_own() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    let append =
        |number, options: &AppendOptions| log.append_with(&record(number), options).unwrap();
    append(0, &AppendOptions::new().key(10));
    let lazy = append(1, &AppendOptions::new().key(20));
    assert!(log.durable() <= lazy);
    let durable = append(2, &AppendOptions::new().key(30).durable(true));
    assert!(log.durable() > durable);
    let mut reader = log.reader().unwrap();
    reader.seek_key(25).unwrap();
    assert_eq!(numbers(&mut reader), [1, 2]);
    let too_large = kind(log.append_with(&vec![1; SEGMENT_BYTES as usize], &AppendOptions::new()));
    assert!(matches!(too_large, LogErrorKind::TooLarge { .. }), "{too_large:?}");
}

#[test]
fn threads_that_append_lists_do_not_mix_them() {
    const LISTS: u64 = 40;
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let log = &log;
            scope.spawn(move || {
                for list in 0..LISTS {
                    let words = [0, 1, 2].map(|word| format!("{thread} {list} {word}"));
                    let slices = words.each_ref().map(|word| word.as_bytes());
                    log.append_all(&slices, &AppendOptions::new()).unwrap();
                }
            });
        }
    });
    let mut last = [None; 4];
    let mut reader = log.reader().unwrap();
    for _ in 0..4 * LISTS {
        let words: Vec<String> =
            (0..3).map(|_| String::from_utf8(next(&mut reader).unwrap()).unwrap()).collect();
        let number =
            |word: &String, at: usize| -> u64 { word.split(' ').nth(at).unwrap().parse().unwrap() };
        let (thread, list) = (number(&words[0], 0), number(&words[0], 1));
        assert_eq!(words, [0, 1, 2].map(|word| format!("{thread} {list} {word}")));
        assert!(last[thread as usize] < Some(list), "a thread's lists are in its order");
        last[thread as usize] = Some(list);
    }
    assert!(next(&mut reader).is_none());
}

// Durable, each as it is wanted.

#[test]
fn a_durable_append_brings_all_before_it_to_the_device() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    // More than a segment, so that one is left that nobody has asked to sync.
    let places = append(&log, 0..BLOCKS_OF_A_SEGMENT + 3);
    assert!(log.durable() <= *places.last().unwrap());
    let durable = AppendOptions::new().durable(true);
    log.append_all(&[&record(100)], &durable).unwrap();
    assert_eq!(log.durable(), log.committed());
    append(&log, 101..102);
    assert!(log.durable() < log.committed());
    log.sync().unwrap();
    assert_eq!(log.durable(), log.committed());
}

#[test]
fn an_append_that_need_not_be_durable_leaves_that_to_the_next_sync() {
    let (_directory, path) = directory();
    let log = options().open(&path).unwrap();
    append(&log, 0..1);
    assert_eq!(log.durable(), log.committed());
    let durable = log.durable();
    let lazy = AppendOptions::new().durable(false);
    // Across segments, which nobody syncs behind these.
    for number in 1..3 * BLOCKS_OF_A_SEGMENT {
        log.append_all(&[&record(number)], &lazy).unwrap();
    }
    assert!(log.durable() < log.committed());
    assert!(log.durable() >= durable);
    log.sync().unwrap();
    assert_eq!(log.durable(), log.committed());
    log.append_all(&[&record(3 * BLOCKS_OF_A_SEGMENT)], &lazy).unwrap();
    // As the log's policy says.
    append(&log, 3 * BLOCKS_OF_A_SEGMENT + 1..3 * BLOCKS_OF_A_SEGMENT + 2);
    assert_eq!(log.durable(), log.committed());
    log.append_all(&[&record(3 * BLOCKS_OF_A_SEGMENT + 2)], &lazy).unwrap();
    log.close().unwrap();
    assert_holds(&path, &all(0..3 * BLOCKS_OF_A_SEGMENT + 3));
    let summary = LogReader::summary(&path).unwrap();
    assert_eq!(summary.durable, summary.committed);
}

#[test]
fn records_that_share_a_batch_are_durable_as_soon_as_one_has_to_be() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    let lazy = log.submit(&record(0)).unwrap();
    let durable = AppendOptions::new().durable(true);
    let eager = log.submit_all(&[b"durable"], &durable).unwrap();
    log.wait(lazy).unwrap();
    assert_eq!(log.durable(), log.committed());
    log.wait_all(eager).unwrap();
}

#[test]
fn a_reader_of_what_is_durable_sees_no_more_and_is_woken_when_it_becomes_more() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    let mut reader = LogReader::open(&path).unwrap().durable_only(true);
    let places = append(&log, 0..3);
    assert!(reader.next().unwrap().is_none());
    assert!(reader.committed() <= places[0]);
    assert_eq!(kind(reader.read_at(places[0])), LogErrorKind::NoRecord(places[0]));
    assert_eq!(kind(reader.seek(places[2])), LogErrorKind::NoRecord(places[2]));
    reader.seek_last(1 << 20).unwrap();
    assert!(reader.next().unwrap().is_none());
    assert_eq!(reader.follow(Some(Duration::ZERO)).unwrap(), Followed::TimedOut);
    assert!(!reader.wait(Some(Duration::ZERO)));

    log.sync().unwrap();
    assert_eq!(reader.durable(), Some(log.durable()));
    assert_eq!(numbers(&mut reader), [0, 1, 2]);
    append(&log, 3..4);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let found = reader.next_within(Some(LONG)).unwrap().expect("it is woken");
            number_of(found.bytes)
        });
        log.sync().unwrap();
        assert_eq!(waiting.join().unwrap(), 3);
    });
    let durable = AppendOptions::new().durable(true);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| match reader.follow(Some(LONG)).unwrap() {
            Followed::Record(found) => number_of(found.bytes),
            other => panic!("{other:?}"),
        });
        log.append_all(&[&record(4)], &durable).unwrap();
        assert_eq!(waiting.join().unwrap(), 4);
    });
    // What was lost with the writer was never durable.
    append(&log, 5..6);
    log.close().unwrap();
    assert_eq!(numbers(&mut reader), [5]);
    assert_eq!(reader.follow(Some(LONG)).unwrap(), Followed::Ended(LogWriter::Closed));
}

#[test]
fn readers_of_what_is_durable_never_come_to_more_while_others_append() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    const RECORDS: u64 = 300;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut reader = LogReader::open(&path).unwrap().durable_only(true);
                for expected in 0..RECORDS {
                    let found = reader.next_within(Some(LONG)).unwrap().expect("all are synced");
                    assert_eq!(number_of(found.bytes), expected);
                    let position = found.position;
                    assert!(position < reader.durable().unwrap(), "{position} is not durable");
                }
            });
        }
        for number in 0..RECORDS {
            let options = AppendOptions::new().durable(number % 7 == 6 || number + 1 == RECORDS);
            log.append_all(&[&record(number)], &options).unwrap();
        }
    });
}

/// Whether a reader's descriptor becomes readable within this time.
fn is_readable(reader: &mut LogReader, within: Duration) -> bool {
    use std::os::fd::AsRawFd;
    let fd = reader.event_fd().unwrap().as_raw_fd();
    let mut events = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    // SAFETY: one entry, which the call fills in.
    unsafe { libc::poll(events.as_mut_ptr(), 1, within.as_millis() as i32) > 0 }
}

#[test]
fn the_descriptor_of_a_reader_of_what_is_durable_is_readable_when_more_is_durable() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    // The opening is durable as soon as something is appended, and makes readers look.
    append(&log, 0..1);
    let mut reader = LogReader::open(&path).unwrap().durable_only(true);
    assert!(reader.next().unwrap().is_none());
    reader.event_fd().unwrap();
    assert!(reader.next().unwrap().is_none());
    append(&log, 1..3);
    assert!(!is_readable(&mut reader, Duration::ZERO));
    log.sync().unwrap();
    assert!(is_readable(&mut reader, LONG));
    assert_eq!(numbers(&mut reader), [0, 1, 2]);
}

// Keys.

/// The first record from where the reader goes for this key.
fn at_key(reader: &mut LogReader, key: u64) -> Option<u64> {
    reader.seek_key(key).unwrap();
    reader.next().unwrap().map(|found| number_of(found.bytes))
}

fn append_keyed(log: &LogFile, number: u64, key: u64) -> Position {
    log.append_all(&[&record(number)], &AppendOptions::new().key(key)).unwrap()[0]
}

#[test]
fn records_are_found_by_their_keys_in_one_segment() {
    let (_directory, path) = directory();
    let log = options().open(&path).unwrap();
    let mut reader = LogReader::open(&path).unwrap();
    assert_eq!(at_key(&mut reader, 5), None);
    append(&log, 0..2);
    assert_eq!(at_key(&mut reader, 5), Some(0), "none has a key");
    for (number, key) in [(2, 10), (3, 20), (4, 20), (5, 30)] {
        append_keyed(&log, number, key);
    }
    append(&log, 6..8);
    for (key, expected) in [
        (0, 0),
        (9, 0),
        (10, 2),
        (19, 2),
        // The last of those that are not larger.
        (20, 4),
        (29, 4),
        (30, 5),
        (31, 5),
        (u64::MAX, 5),
    ] {
        assert_eq!(at_key(&mut reader, key), Some(expected), "key {key}");
    }
}

#[test]
fn records_that_share_a_batch_are_found_by_the_first_of_their_keys() {
    let (_directory, path) = directory();
    let log = options().open(&path).unwrap();
    append_keyed(&log, 0, 10);
    let unkeyed = log.submit(&record(1)).unwrap();
    let submitted = [(2, 20), (3, 30)].map(|(number, key)| {
        log.submit_all(&[&record(number)], &AppendOptions::new().key(key)).unwrap()
    });
    for submitted in submitted {
        log.wait_all(submitted).unwrap();
    }
    log.wait(unkeyed).unwrap();
    append_keyed(&log, 4, 40);
    let mut reader = log.reader().unwrap();
    for (key, expected) in [(19, 0), (20, 1), (30, 1), (39, 1), (40, 4)] {
        assert_eq!(at_key(&mut reader, key), Some(expected), "key {key}");
    }
}

/// What `seek_key` promises: the first record of the last batch with a key that is not larger, or the first
/// record. Each record is a batch.
fn expected_at(records: &[(u64, Option<u64>)], key: u64) -> Option<u64> {
    let not_larger = |of: &&(u64, Option<u64>)| of.1.is_some_and(|of| of <= key);
    let found = records.iter().rfind(not_larger).or(records.first());
    found.map(|&(number, _)| number)
}

#[test]
fn keys_are_found_in_many_segments_whatever_has_none_and_whatever_was_given_up() {
    let (_directory, path) = directory();
    let mut log = never().open(&path).unwrap();
    let mut records = Vec::new();
    let mut places = Vec::new();
    let mut key = 100;
    // Also whole segments without keys, at the beginning, in the middle, and at the end.
    for number in 0..12 * BLOCKS_OF_A_SEGMENT {
        let segment = number / BLOCKS_OF_A_SEGMENT;
        let has_key = !matches!(segment, 0 | 4..7 | 11) && number % 3 != 1;
        let of = has_key.then_some(key);
        places.push(match of {
            Some(key) => append_keyed(&log, number, key),
            None => log.append(&record(number)).unwrap(),
        });
        records.push((number, of));
        key += [0, 1, 10][number as usize % 3];
        if number % 50 == 49 {
            log.close().unwrap();
            log = never().open(&path).unwrap();
        } else if number % 50 == 20 {
            // As after the process died.
            drop(log);
            log = never().open(&path).unwrap();
        }
    }
    let mut reader = LogReader::open(&path).unwrap();
    // In the suite: where it begins, in a segment with keys and in one without, and the last.
    let last = 12 * BLOCKS_OF_A_SEGMENT - 1;
    for &given_up in depth(&[0, 17, 80, last][..], &[0, 3, 17, 30, 77, 80, 120, last]) {
        log.truncate_before(places[given_up as usize]).unwrap();
        let left = &records[given_up as usize..];
        let near =
            |key: &u64| records.iter().any(|of| of.1.is_some_and(|of| of.abs_diff(*key) < 2));
        for key in (95..key + 2).filter(|key| depth(false, true) || near(key)) {
            let found = at_key(&mut reader, key);
            assert_eq!(found, expected_at(left, key), "key {key}, {given_up} given up");
        }
    }
    log.truncate_before(log.committed()).unwrap();
    assert_eq!(at_key(&mut reader, key), None);
    append_keyed(&log, 1000, key + 10);
    assert_eq!(at_key(&mut reader, key), Some(1000));
}

#[test]
fn keys_are_found_when_the_log_begins_in_the_middle_of_a_batch() {
    let (_directory, path) = directory();
    let log = options().open(&path).unwrap();
    let first = [record(0), record(1), record(2)];
    let slices = first.each_ref().map(Vec::as_slice);
    let places = log.append_all(&slices, &AppendOptions::new().key(10)).unwrap();
    append_keyed(&log, 3, 20);
    log.truncate_before(places[1]).unwrap();
    let mut reader = log.reader().unwrap();
    for (key, expected) in [(0, 1), (10, 1), (15, 1), (20, 3), (99, 3)] {
        assert_eq!(at_key(&mut reader, key), Some(expected), "key {key}");
    }
}

// Told later.

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park_timeout(LONG),
        }
    }
}

#[test]
fn calls_come_in_their_order_with_the_positions() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    let (sender, receiver) = mpsc::channel();
    let mut expected = Vec::new();
    for number in 0..50 {
        let submitted = log.submit(&record(number)).unwrap();
        expected.push((number, submitted.position()));
        let sender = sender.clone();
        log.notify(submitted, move |outcome| sender.send((number, outcome.unwrap())).unwrap())
            .unwrap();
    }
    // Told twice, and after it was waited for.
    let submitted = log.submit(&record(50)).unwrap();
    assert_eq!(log.wait(submitted).unwrap(), submitted.position());
    for _ in 0..2 {
        let sender = sender.clone();
        log.notify(submitted, move |outcome| sender.send((50, outcome.unwrap())).unwrap()).unwrap();
        expected.push((50, submitted.position()));
    }
    // Waits for the calls.
    log.close().unwrap();
    let told: Vec<_> = receiver.try_iter().collect();
    assert_eq!(told, expected);
}

#[test]
fn completions_are_awaited_in_any_order_dropped_and_outlive_the_log() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    let submitted: Vec<_> = (0..5).map(|it| log.submit(&record(it)).unwrap()).collect();
    let mut completions: Vec<_> = submitted.iter().map(|&it| log.completion(it).unwrap()).collect();
    let last = completions.pop().unwrap();
    drop(completions.remove(1));
    assert_eq!(block_on(last).unwrap(), submitted[4].position());
    for (completion, at) in completions.into_iter().zip([0, 2, 3]) {
        assert_eq!(block_on(completion).unwrap(), submitted[at].position());
    }
    let after = log.submit(&record(5)).unwrap();
    let completion = log.completion(after).unwrap();
    drop(log);
    assert_eq!(block_on(completion).unwrap(), after.position());
    assert_eq!(numbers_at(&path), all(0..6));
}

#[test]
fn a_call_that_panics_keeps_no_other_from_being_told() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    let submitted = log.submit(b"one").unwrap();
    log.notify(submitted, |_| panic!("of the test, in a call")).unwrap();
    let completion = log.completion(log.submit(b"two").unwrap()).unwrap();
    block_on(completion).unwrap();
    log.append(b"three").unwrap();
    log.close().unwrap();
}

#[test]
fn a_call_can_append_wait_and_ask_to_be_told() {
    let (_directory, path) = directory();
    let log = Arc::new(options().open(&path).unwrap());
    let (sender, receiver) = mpsc::channel();
    let in_call = Arc::clone(&log);
    log.notify(log.submit(&record(0)).unwrap(), move |_| {
        in_call.append(&record(1)).unwrap();
        let submitted = in_call.submit(&record(2)).unwrap();
        let again = Arc::clone(&in_call);
        in_call
            .notify(submitted, move |outcome| {
                again.sync().unwrap();
                sender.send(outcome.unwrap()).unwrap();
            })
            .unwrap();
    })
    .unwrap();
    let told = receiver.recv_timeout(LONG).expect("it does not hang");
    assert_eq!(log.read(told).unwrap(), record(2));
    assert_eq!(numbers_at(&path), all(0..3));
}

#[test]
fn a_call_can_drop_the_last_handle_of_a_log() {
    let (_directory, path) = directory();
    let log = Arc::new(options().open(&path).unwrap());
    let (go, may_go) = mpsc::channel::<()>();
    let (sender, receiver) = mpsc::channel();
    let in_call = Arc::clone(&log);
    let submitted = log.submit(&record(0)).unwrap();
    log.notify(submitted, move |outcome| {
        may_go.recv().unwrap();
        drop(in_call);
        outcome.unwrap();
    })
    .unwrap();
    // One behind it is told all the same.
    log.notify(log.submit(&record(1)).unwrap(), move |outcome| {
        sender.send(outcome.map(|_| ())).unwrap();
    })
    .unwrap();
    drop(log);
    go.send(()).unwrap();
    receiver.recv_timeout(LONG).expect("it does not hang").unwrap();
    assert_eq!(numbers_at(&path), all(0..2));
}

/// Makes appends fail: its files are no longer those that keep a second writer out.
fn displace(path: &Path) {
    fs::remove_file(path.join("lock")).unwrap();
}

#[test]
fn who_is_told_later_is_told_of_failures() {
    let (_directory, path) = directory();
    let log = options().open(&path).unwrap();
    append(&log, 0..1);
    let submitted = [1, 2].map(|number| log.submit(&record(number)).unwrap());
    displace(&path);
    let (sender, receiver) = mpsc::channel();
    log.notify(submitted[0], move |outcome| sender.send(outcome).unwrap()).unwrap();
    let completion = log.completion(submitted[1]).unwrap();
    let told = receiver.recv_timeout(LONG).unwrap();
    assert_eq!(kind(told), LogErrorKind::Displaced);
    assert_eq!(kind(block_on(completion)), LogErrorKind::Displaced);
    drop(log);
    assert_eq!(numbers_at(&path), [0]);
}

// Openings, and who writes.

#[test]
fn each_opening_has_a_larger_number_which_its_records_carry() {
    let (_directory, path) = directory();
    let mut reader = None;
    let mut epochs = Vec::new();
    for number in 0..4 {
        let log = options().open(&path).unwrap();
        let reader = reader.get_or_insert_with(|| LogReader::open(&path).unwrap());
        assert_eq!(reader.epoch().unwrap(), log.epoch());
        epochs.push(log.epoch());
        append(&log, 2 * number..2 * number + 2);
        let found: Record<'_> = reader.next().unwrap().unwrap();
        assert_eq!(found.epoch, log.epoch());
        assert_eq!(reader.next().unwrap().unwrap().epoch, log.epoch());
        match number {
            1 => drop(log),
            _ => log.close().unwrap(),
        }
    }
    assert!(epochs.is_sorted_by(|before, after| before < after), "{epochs:?}");
    let mut again = LogReader::open(&path).unwrap();
    for number in 0..8 {
        assert_eq!(again.next().unwrap().unwrap().epoch, epochs[number / 2]);
    }
    // A refused writer is none.
    let log = options().open(&path).unwrap();
    let epoch = log.epoch();
    assert!(matches!(kind(options().open(&path)), LogErrorKind::BusyWriter { .. }));
    assert_eq!(again.epoch().unwrap(), epoch);
}

// Cut off.

/// A log with one record in each batch, but for one batch of three in each segment.
fn make_log(path: &Path) -> (LogFile, Vec<Position>) {
    let log = never().open(path).unwrap();
    let mut places = Vec::new();
    for segment in 0..4 {
        let number = 12 * segment;
        places.extend(append(&log, number..number + 6));
        let together = [6, 7, 8].map(|it| record(number + it));
        let slices = together.each_ref().map(Vec::as_slice);
        places.extend(log.append_all(&slices, &AppendOptions::new().key(number)).unwrap());
        places.extend(append(&log, number + 9..number + 12));
    }
    (log, places)
}

#[test]
fn what_is_cut_off_is_gone_wherever_the_cut_is() {
    let every_fifth = (0..48).rev().step_by(5).chain(17..21).chain([47, 0]).collect();
    let some = [0, 5, 6, 7, 8, 17, 18, 19, 20, 32, 47].to_vec();
    for cut in depth(some, every_fifth) {
        let (_directory, path) = directory();
        let (log, places) = make_log(&path);
        let end = log.committed();
        log.truncate_after(places[cut]).unwrap();
        assert_eq!(log.committed(), end, "positions do not return");
        assert_eq!(log.durable(), end);
        let left = all(0..cut as u64 + 1);
        assert_holds(&path, &left);
        let mut reader = log.reader().unwrap();
        for (number, &place) in places.iter().enumerate() {
            match number <= cut {
                true => assert_eq!(log.read(place).unwrap(), record(number as u64)),
                false => assert_eq!(kind(log.read(place)), LogErrorKind::NoRecord(place)),
            }
            assert_eq!(reader.seek(place).is_ok(), number <= cut, "{number} of {cut}");
        }
        // The summary, the last bytes, and keys, beside the writer and behind it.
        assert_eq!(LogReader::summary(&path).unwrap().committed, Some(end));
        let looks = |expected: &[u64]| {
            let mut reader = LogReader::open(&path).unwrap();
            for bytes in [4096, 16 << 10, 64 << 10, 128 << 10, 1 << 20] {
                reader.seek_last(bytes).unwrap();
                let found = numbers(&mut reader);
                assert!(expected.ends_with(&found), "{found:?} in the last {bytes} bytes");
            }
            for key in [0, 12, 24, 36, 48] {
                let mut batches = expected.iter().filter(|&&it| it < 48 && it % 12 == 6);
                let at = batches.rfind(|&&it| it - 6 <= key).copied().unwrap_or(0);
                assert_eq!(at_key(&mut reader, key), Some(at), "key {key}, cut {cut}");
            }
        };
        looks(&left);

        // It goes on, behind where it ended.
        let next = log.append(&record(100)).unwrap();
        assert!(next > end);
        let left = [left, vec![100]].concat();
        assert_holds(&path, &left);
        looks(&left);
        let copy = path.with_extension("copy");
        log.checkpoint(&copy).unwrap();
        assert_holds(&copy, &left);
        match cut % 2 {
            0 => log.close().unwrap(),
            _ => drop(log),
        }
        assert_holds(&path, &left);
        looks(&left);
        for path in [&path, &copy] {
            let log = never().open(path).unwrap();
            append(&log, 101..101 + BLOCKS_OF_A_SEGMENT);
            log.close().unwrap();
            assert_holds(path, &[left.clone(), all(101..101 + BLOCKS_OF_A_SEGMENT)].concat());
        }
    }
}

#[test]
fn to_cut_off_what_is_behind_the_last_record_changes_nothing() {
    let (_directory, path) = directory();
    let (log, places) = make_log(&path);
    for _ in 0..3 {
        log.truncate_after(places[47]).unwrap();
        assert_holds(&path, &all(0..48));
    }
    log.close().unwrap();
    let log = options().open(&path).unwrap();
    log.truncate_after(places[47]).unwrap();
    let next = log.append(&record(48)).unwrap();
    log.truncate_after(next).unwrap();
    log.close().unwrap();
    assert_holds(&path, &all(0..49));
}

#[test]
fn all_records_can_be_cut_off() {
    let (_directory, path) = directory();
    let (log, places) = make_log(&path);
    log.truncate_after(Position::START).unwrap();
    assert_holds(&path, &[]);
    assert!(log.read(places[0]).is_err());
    log.truncate_after(Position::START).unwrap();
    let next = append(&log, 0..3);
    assert!(next[0] > places[47]);
    log.close().unwrap();
    assert_holds(&path, &all(0..3));
    // An empty one, too, closed and opened.
    let log = options().open(&path).unwrap();
    log.truncate_after(Position::START).unwrap();
    log.close().unwrap();
    let log = options().open(&path).unwrap();
    assert_holds(&path, &[]);
    append(&log, 5..6);
    log.truncate_after(Position::START).unwrap();
    append(&log, 6..7);
    drop(log);
    assert_holds(&path, &[6]);
}

#[test]
fn a_log_can_be_cut_off_again_and_again() {
    let (_directory, path) = directory();
    let (mut log, places) = make_log(&path);
    let mut left = all(0..48);
    for cut in [40, 39, 31, 30, 29, 19, 8, 7, 6, 2] {
        log.truncate_after(places[cut]).unwrap();
        left.retain(|&number| number <= cut as u64);
        assert_holds(&path, &left);
        if cut % 3 == 0 {
            log.close().unwrap();
            log = never().open(&path).unwrap();
        }
    }
    // Also what was appended behind a cut.
    let more = append(&log, 50..50 + 2 * BLOCKS_OF_A_SEGMENT);
    log.truncate_after(more[4]).unwrap();
    left.extend(50..55);
    assert_holds(&path, &left);
    log.truncate_after(places[1]).unwrap();
    assert_holds(&path, &[0, 1]);
    // The files that were covered can be used again.
    log.truncate_before(places[1]).unwrap();
    append(&log, 200..200 + 3 * BLOCKS_OF_A_SEGMENT);
    let last = append(&log, 500..501);
    log.truncate_before(last[0]).unwrap();
    append(&log, 501..501 + 3 * BLOCKS_OF_A_SEGMENT);
    log.close().unwrap();
    assert_holds(&path, &all(500..501 + 3 * BLOCKS_OF_A_SEGMENT));
}

#[test]
fn a_follower_hears_once_that_what_it_read_was_cut_off_and_goes_on_there() {
    for appends_first in [false, true] {
        for cuts in [1, 2, 3, 12] {
            let (_directory, path) = directory();
            let (log, places) = make_log(&path);
            let mut reader = LogReader::open(&path).unwrap();
            assert_eq!(numbers(&mut reader), all(0..48));
            // Who has not read it has nothing to hear of.
            let mut behind = LogReader::open(&path).unwrap();
            assert_eq!(next(&mut behind), Some(record(0)));
            for cut in 0..cuts {
                log.truncate_after(places[20 - cut]).unwrap();
            }
            if appends_first {
                append(&log, 100..101);
            }
            let told = reader.follow(Some(Duration::ZERO)).unwrap_err();
            let LogErrorKind::CutOff { from } = *told.kind() else { panic!("{told}") };
            let kept = all(1..22 - cuts as u64);
            if cuts > 10 {
                // The log notes where the last ten were. Of more, nobody knows where they began.
                assert_eq!(from, Position::START);
                assert_eq!(
                    numbers(&mut reader),
                    [all(0..1), kept, all(100..101)[..usize::from(appends_first)].to_vec()]
                        .concat()
                );
                let told = behind.records().find_map(Result::err).unwrap();
                assert_eq!(*told.kind(), LogErrorKind::CutOff { from: Position::START });
                continue;
            }
            assert!(places[21 - cuts] < from && from <= places[22 - cuts], "{cuts}: {from}");
            if !appends_first {
                assert_eq!(reader.follow(Some(Duration::ZERO)).unwrap(), Followed::TimedOut);
                append(&log, 100..101);
            }
            assert_eq!(numbers(&mut reader), [100]);
            assert_eq!(numbers(&mut behind), [kept, vec![100]].concat());
        }
    }
}

/// Keeps what the log has, as a replica does: what was cut off goes, and what follows is read.
struct Follower {
    reader: LogReader,
    kept: Vec<(Position, u64)>,
}

impl Follower {
    fn new(path: &Path) -> Follower {
        Follower { reader: LogReader::open(path).unwrap(), kept: Vec::new() }
    }

    /// Reads up to so many records; whether there are more.
    fn read(&mut self, most: usize) -> bool {
        for _ in 0..most {
            match self.reader.next() {
                Ok(None) => return false,
                Ok(Some(record)) => {
                    let last = self.kept.last().map(|it| it.0);
                    assert!(last.is_none_or(|last| last < record.position), "{record:?}");
                    self.kept.push((record.position, number_of(record.bytes)));
                }
                Err(error) => match *error.kind() {
                    LogErrorKind::CutOff { from } => {
                        let known = self.kept.len();
                        self.kept.retain(|it| it.0 < from);
                        assert!(self.kept.len() < known, "nothing was lost by {error}");
                    }
                    _ => panic!("{error}"),
                },
            }
        }
        true
    }

    /// Has what the log has.
    fn catch_up(mut self, path: &Path) {
        while self.read(1000) {}
        let mut whole = Follower::new(path);
        while whole.read(1000) {}
        assert!(self.kept == whole.kept, "{:?} instead of {:?}", self.kept, whole.kept);
    }
}

#[test]
fn whatever_is_cut_off_and_appended_followers_have_what_the_log_has() {
    for seed in 0..depth(15, 60) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (_directory, path) = directory();
        let log = never().open(&path).unwrap();
        let mut places = append(&log, 0..3);
        let mut followers: Vec<_> = (0..3).map(|_| Follower::new(&path)).collect();
        for number in 3..60 {
            match random.u8(..5) {
                0 => {
                    let stays = random.usize(..places.len());
                    places.truncate(stays + 1);
                    log.truncate_after(places[stays]).unwrap();
                }
                1 => {
                    let records = [record(number), record(1000 + number), record(2000 + number)];
                    let records: Vec<&[u8]> = records.iter().map(|it| &it[..]).collect();
                    places.extend(log.append_all(&records, &AppendOptions::new()).unwrap());
                }
                2 | 3 => places.push(log.append(&record(number)).unwrap()),
                _ => {
                    let follower = &mut followers[random.usize(..3)];
                    follower.read(random.usize(1..20));
                }
            }
        }
        if seed % 7 == 0 {
            log.truncate_after(Position::START).unwrap();
            log.append(&record(99)).unwrap();
        }
        followers.into_iter().for_each(|it| it.catch_up(&path));
    }
}

#[test]
fn followers_beside_cuts_have_what_the_log_has() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    let mut places = append(&log, 0..3);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let followers: Vec<_> = thread::scope(|scope| {
        let followers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut follower = Follower::new(&path);
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        follower.read(10);
                    }
                    follower
                })
            })
            .collect();
        let mut random = fastrand::Rng::with_seed(1);
        for number in 3..depth(600, 1500) {
            places.push(log.append(&record(number)).unwrap());
            if random.u8(..4) == 0 {
                places.truncate(places.len() - random.usize(..places.len().min(4)));
                log.truncate_after(*places.last().unwrap()).unwrap();
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        followers.into_iter().map(|it| it.join().unwrap()).collect()
    });
    followers.into_iter().for_each(|it| it.catch_up(&path));
}

#[test]
fn threads_append_while_the_end_is_cut_off() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    let base = append(&log, 0..2)[1];
    thread::scope(|scope| {
        let appends: Vec<_> = (1..3_u64)
            .map(|thread| {
                let log = &log;
                scope.spawn(move || {
                    for number in 0..depth(40, 150) {
                        log.append(&record(1000 * thread + number)).unwrap();
                    }
                })
            })
            .collect();
        while appends.iter().any(|thread| !thread.is_finished()) {
            log.truncate_after(base).unwrap();
        }
    });
    log.truncate_after(base).unwrap();
    append(&log, 2..4);
    log.close().unwrap();
    assert_holds(&path, &all(0..4));
}

#[test]
fn a_descriptor_follows_what_its_reader_is_to_see() {
    let (_directory, path) = directory();
    let log = never().open(&path).unwrap();
    append(&log, 0..1);
    log.sync().unwrap();
    // Of what is durable first, and then of all.
    let mut reader = LogReader::open(&path).unwrap().durable_only(true);
    assert_eq!(numbers(&mut reader), [0]);
    reader.event_fd().unwrap();
    let mut reader = reader.durable_only(false);
    assert!(reader.next().unwrap().is_none());
    append(&log, 1..2);
    assert!(is_readable(&mut reader, LONG), "what is committed is there for it");
    assert_eq!(numbers(&mut reader), [1]);
    // And the other way round.
    log.sync().unwrap();
    let mut reader = reader.durable_only(true);
    assert!(reader.next().unwrap().is_none());
    append(&log, 2..3);
    assert!(reader.next().unwrap().is_none());
    append(&log, 3..4);
    assert!(!is_readable(&mut reader, Duration::from_millis(100)), "nothing more is durable");
    log.sync().unwrap();
    assert!(is_readable(&mut reader, LONG));
}

#[test]
fn a_call_can_close_the_log_which_can_be_opened_again_at_once() {
    let (_directory, path) = directory();
    let log = Arc::new(Mutex::new(Some(options().open(&path).unwrap())));
    let (sender, receiver) = mpsc::channel();
    let (in_call, place) = (Arc::clone(&log), path.clone());
    let locked = log.lock().unwrap();
    let submitted = locked.as_ref().unwrap().submit(&record(0)).unwrap();
    locked
        .as_ref()
        .unwrap()
        .notify(submitted, move |_| {
            let log = in_call.lock().unwrap().take().unwrap();
            let closed = log.close();
            sender.send((closed, options().open(&place).map(drop))).unwrap();
        })
        .unwrap();
    drop(locked);
    let (closed, opened) = receiver.recv_timeout(LONG).expect("it does not hang");
    closed.unwrap();
    opened.unwrap();
}

#[test]
fn a_reader_that_stands_in_what_is_cut_off_hears_of_it() {
    for (cut, read_bytes) in
        [(3, 4096), (7, 4096), (11, 8192), (19, 4096), (19, 256 << 10), (30, 16 << 10)]
    {
        let (_directory, path) = directory();
        let (log, places) = make_log(&path);
        // Each stands before the record of its number.
        let some = |number: &usize| number % depth(3, 1) == 0 || number.abs_diff(cut) < 3;
        let mut readers: Vec<(usize, LogReader)> = (0..48)
            .filter(some)
            .map(|number| {
                let mut reader = LogReader::open(&path).unwrap().read_bytes(read_bytes);
                for _ in 0..number {
                    reader.next().unwrap().unwrap();
                }
                (number, reader)
            })
            .collect();
        log.truncate_after(places[cut]).unwrap();
        log.append(&record(100)).unwrap();
        let mut wrong = Vec::new();
        for (stood, reader) in &mut readers {
            let stood = *stood;
            let mut found = Vec::new();
            let end = loop {
                match reader.next() {
                    Ok(Some(next)) => found.push(number_of(next.bytes)),
                    Ok(None) => break None,
                    Err(error) => break Some(error.kind().clone()),
                }
            };
            let is_right = match end {
                // It passed over what was cut off without having seen any of it.
                None => {
                    stood <= cut + 1
                        && found == [all(stood as u64..cut as u64 + 1), vec![100]].concat()
                }
                // It gave what it held in memory, and no more.
                Some(LogErrorKind::CutOff { .. } | LogErrorKind::NoRecord(_)) => {
                    let until = stood + found.len();
                    until > cut + 1 && found == all(stood as u64..until as u64)
                }
                Some(_) => false,
            };
            if !is_right {
                wrong.push(format!("before {stood}: {found:?}, then {end:?}"));
            }
        }
        assert!(wrong.is_empty(), "cut behind {cut}, read by {read_bytes}: {wrong:#?}");
    }
}

#[test]
fn a_log_is_cut_off_only_behind_a_record() {
    let (_directory, path) = directory();
    let (log, places) = make_log(&path);
    let of_batch = Position::new(places[3].get() - 48);
    let (header, inside) = (Position::new(4096), Position::new(places[3].get() + 8));
    let beyond = Position::new(log.committed().get() + (1 << 20));
    for wrong in [inside, header, of_batch, log.committed(), beyond] {
        assert_eq!(kind(log.truncate_after(wrong)), LogErrorKind::NoRecord(wrong), "{wrong}");
        assert_holds(&path, &all(0..48));
    }
    log.truncate_after(places[20]).unwrap();
    let cut = places[30];
    assert_eq!(kind(log.truncate_after(cut)), LogErrorKind::NoRecord(cut));
    log.truncate_before(places[10]).unwrap();
    let given_up = kind(log.truncate_after(places[5]));
    assert!(matches!(given_up, LogErrorKind::Truncated { first, .. } if first == places[10]));
    assert_holds(&path, &all(10..21));
}

#[test]
fn what_a_copy_by_links_shares_is_not_cut_off_in_it() {
    for full in [false, true] {
        let (_directory, path) = directory();
        let log = options().open(&path).unwrap();
        let records = if full { 2 * BLOCKS_OF_A_SEGMENT + 1 } else { 20 };
        let places = append(&log, 0..records);
        if full {
            assert_eq!(log.committed().get() % SEGMENT_BYTES, 0, "the last segment is full");
        }
        let copy = path.with_extension("copy");
        log.checkpoint(&copy).unwrap();
        log.close().unwrap();
        // As `cp -al` does.
        let links = path.with_extension("links");
        fs::create_dir(&links).unwrap();
        for entry in fs::read_dir(&path).unwrap() {
            let name = entry.unwrap().file_name();
            fs::hard_link(path.join(&name), links.join(&name)).unwrap();
        }
        // Its page is its own, as it would be changed.
        fs::copy(path.join("control"), path.join("control.copy")).unwrap();
        fs::rename(path.join("control.copy"), path.join("control")).unwrap();

        let log = options().open(&path).unwrap();
        for cut in [records - 2, 5] {
            log.truncate_after(places[cut as usize]).unwrap();
            assert_holds(&path, &all(0..cut + 1));
            for copy in [&copy, &links] {
                assert_holds(copy, &all(0..records));
            }
        }
        append(&log, 6..8);
        log.close().unwrap();
        assert_holds(&path, &all(0..8));
    }
}

#[test]
fn a_reader_that_gave_from_memory_what_was_cut_off_hears_so_before_what_came_later() {
    let (_directory, path) = directory();
    let (log, places) = make_log(&path);
    let mut reader = LogReader::open(&path).unwrap();
    for number in 0..14 {
        assert_eq!(next(&mut reader), Some(record(number)));
    }
    log.truncate_after(places[12]).unwrap();
    log.append(&record(100)).unwrap();
    let mut expected = 14;
    let end = loop {
        match reader.next() {
            Ok(Some(found)) => {
                assert_eq!(number_of(found.bytes), expected, "it goes on without a word");
                expected += 1;
            }
            Ok(None) => panic!("it goes on without a word"),
            Err(error) => break error.kind().clone(),
        }
    };
    assert!(matches!(end, LogErrorKind::CutOff { .. }), "{end:?}");
}

#[test]
fn records_say_which_were_appended_together() {
    let (_directory, path) = directory();
    let log = options().open(&path).unwrap();
    let mut expected = Vec::new();
    for group in [1, 3, 1, 2, 5] {
        let records: Vec<Vec<u8>> = (0..group).map(record).collect();
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        log.append_all(&records, &AppendOptions::new()).unwrap();
        expected.extend((1..=group).map(|number| number < group));
    }
    let mut reader = LogReader::open(&path).unwrap();
    let mut found = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        found.push(record.continues);
    }
    assert_eq!(found, expected);
}

#[test]
fn a_cut_beyond_what_a_reader_has_seen_is_no_damage() {
    let (_directory, path) = directory();
    let log = options().open(&path).unwrap();
    let places = append(&log, 0..2);
    let mut reader = LogReader::open(&path).unwrap().read_bytes(4096);
    assert_eq!(next(&mut reader), Some(record(0)));
    append(&log, 2..3);
    log.truncate_after(places[0]).unwrap();
    assert!(reader.next().unwrap().is_none());
    append(&log, 3..4);
    assert_eq!(next(&mut reader), Some(record(3)));
}

#[test]
fn who_seeks_after_a_cut_finds_what_is_there_now() {
    let (_directory, path) = directory();
    let log = options().open(&path).unwrap();
    let keyed = |number: u64, key| {
        log.append_all(&[&record(number)], &AppendOptions::new().key(key)).unwrap()[0]
    };
    let first = keyed(0, 1);
    let second = keyed(1, 2);
    let mut readers: Vec<LogReader> = (0..3).map(|_| LogReader::open(&path).unwrap()).collect();
    for reader in &mut readers {
        reader.seek_key(2).unwrap();
        assert_eq!(next(reader), Some(record(1)));
        assert_eq!(reader.read_at(second).unwrap(), record(1));
    }
    keyed(2, 3);
    log.truncate_after(first).unwrap();
    readers[0].seek_key(2).unwrap();
    assert_eq!(next(&mut readers[0]), Some(record(0)));
    keyed(3, 5);
    for reader in &mut readers[1..] {
        reader.seek_key(3).unwrap();
        assert_eq!(numbers(reader), [0, 3]);
        assert_eq!(kind(reader.seek(second)), LogErrorKind::NoRecord(second));
        assert_eq!(kind(reader.read_at(second)), LogErrorKind::NoRecord(second));
    }
}

#[test]
fn where_a_reader_stands_can_be_sought() {
    let (_directory, path) = directory();
    let (log, _) = make_log(&path);
    let mut reader = LogReader::open(&path).unwrap();
    let mut number = 0;
    loop {
        let mut other = LogReader::open(&path).unwrap();
        other.seek(reader.position()).unwrap();
        assert_eq!(numbers(&mut other), all(number..48));
        if reader.next().unwrap().is_none() {
            break;
        }
        number += 1;
    }
    assert_eq!((number, reader.position()), (48, log.committed()));
}

#[test]
fn a_record_of_another_log_or_opening_is_not_waited_for() {
    let (_directory, path) = directory();
    let (_other_directory, other_path) = directory();
    let (log, other) = (options().open(&path).unwrap(), options().open(&other_path).unwrap());
    let submitted = log.submit(b"of one").unwrap();
    assert_eq!(kind(other.wait(submitted)), LogErrorKind::OtherLog);
    log.wait(submitted).unwrap();
    log.close().unwrap();
    let again = options().open(&path).unwrap();
    assert_eq!(kind(again.wait(submitted)), LogErrorKind::OtherLog);
}

#[test]
fn a_call_that_panics_with_what_panics_is_not_the_last() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("when it is dropped");
        }
    }
    let (_directory, path) = directory();
    let log = options().open(&path).unwrap();
    let (sender, receiver) = mpsc::channel();
    log.notify(log.submit(b"one").unwrap(), |_| std::panic::panic_any(Bomb)).unwrap();
    log.notify(log.submit(b"two").unwrap(), move |outcome| sender.send(outcome).unwrap()).unwrap();
    receiver.recv_timeout(LONG).expect("it is called").unwrap();
}

#[test]
fn no_records_hide_none_from_who_seeks_a_key() {
    let (_directory, path) = directory();
    let log = options().open(&path).unwrap();
    let keyed = AppendOptions::new().key(9);
    log.append_all(&[&record(0)], &keyed).unwrap();
    log.append_all(&[], &keyed).unwrap();
    log.append(&record(1)).unwrap();
    let mut reader = LogReader::open(&path).unwrap();
    reader.seek_key(9).unwrap();
    assert_eq!(numbers(&mut reader), [0, 1]);
}
