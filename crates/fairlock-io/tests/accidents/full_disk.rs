//! A log on a small file system that fills up, and has room again.
//!
//! It needs the right to mount a file; without, it says so and tests nothing.

use std::error::Error;
use std::fs::{self, File};

use fairlock_io::{LogErrorKind, LogOptions, LogReader, Prewrite, SyncPolicy};

use crate::mounted::{FileSystem, Mounted};

const EXT4: FileSystem =
    FileSystem { name: "ext4", mkfs: &["mkfs.ext4", "-q", "-F", "-m", "0"], megabytes: 32 };

fn record(number: u64) -> Vec<u8> {
    let length = [30, 50_000, 400_000][number as usize % 3];
    let mut bytes = vec![number as u8; length];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
fn appends_resume_when_a_full_disk_has_room_again() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let Some(mounted) = Mounted::make(directory.path(), &EXT4) else {
        return Ok(());
    };
    for prewrite in [Prewrite::Always, Prewrite::Never] {
        let path = mounted.place().join("log");
        let filler = mounted.place().join("filler");
        fs::write(&filler, vec![1; 8 << 20])?;
        File::open(&filler)?.sync_all()?;
        let log = LogOptions::new()
            .segment_bytes(4 << 20)
            .batch_bytes(256 << 10)
            .prewrite(prewrite)
            .sync(SyncPolicy::Never)
            .open(&path)?;
        let mut acknowledged = Vec::new();
        let mut number = 0;
        let full = loop {
            number += 1;
            match log.append(&record(number)) {
                Ok(position) => acknowledged.push((position, number)),
                Err(error) => break error,
            }
            assert!(number < 10_000, "it never fills up");
        };
        assert_eq!(*full.kind(), LogErrorKind::StorageFull, "{full}");
        assert!(full.path().starts_with(&path) && full.segment().is_some(), "{full}");
        assert!(full.offset().is_some(), "{full}");
        // Still.
        number += 1;
        let again =
            log.append(&record(number)).map(|position| acknowledged.push((position, number)));
        if let Err(error) = again {
            assert_eq!(*error.kind(), LogErrorKind::StorageFull, "{error}");
        }

        fs::remove_file(&filler)?;
        for _ in 0..30 {
            number += 1;
            acknowledged.push((log.append(&record(number))?, number));
        }
        // Once as it is, once as another process would find it.
        for close in [false, true] {
            let mut reader = if close { LogReader::open(&path)? } else { log.reader()? };
            for &(position, number) in &acknowledged {
                let found = reader.next()?.ok_or("a record is lost")?;
                assert_eq!(found.position, position);
                assert!(found.bytes == record(number), "record {number} is another");
            }
            assert!(reader.next()?.is_none());
        }
        log.close()?;
        let mut reader = LogReader::open(&path)?;
        let mut count = 0;
        while reader.next()?.is_some() {
            count += 1;
        }
        assert_eq!(count, acknowledged.len());
        fs::remove_dir_all(&path)?;
    }
    Ok(())
}
