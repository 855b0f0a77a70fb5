//! A log's place, and records that say which they are, in their order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use fairlock_io::{LogFile, LogReader, Position};
use tempfile::TempDir;

/// Where a log can be, for as long as the directory lives.
pub fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a writable target");
    let path = directory.path().join("log");
    (directory, path)
}

/// Bytes of very different lengths.
pub fn record(number: u64) -> Vec<u8> {
    let length = [0, 100, 3_000, 9_000][number as usize % 4];
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + length, number as u8);
    bytes
}

/// Appends the records of these numbers; where they are.
pub fn append(log: &LogFile, numbers: Range<u64>) -> BTreeMap<u64, Position> {
    numbers.map(|number| (number, log.append(&record(number)).unwrap())).collect()
}

/// All records, each of which must be whole: their numbers, and where they are.
pub fn read(mut reader: LogReader) -> BTreeMap<u64, Position> {
    let mut found = BTreeMap::new();
    for next in reader.records() {
        let (position, bytes) = next.unwrap();
        let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(bytes == record(number), "record {number} is not what was appended");
        assert_eq!(found.insert(number, position), None, "record {number} comes twice");
    }
    found
}
