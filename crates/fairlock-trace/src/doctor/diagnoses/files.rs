//! Reads and writes of one file that wait for each other in its inode's lock.

use fairlock_report::units::{format_count, format_ns, several};

use crate::facts::Weight;

use super::super::found::Diagnosis;
use super::super::locks::{FileUse, Seen};
use super::super::which_lock::{Family, Role};
use super::{Case, WAITING, numbers, percent, threads_time};

/// So many times more pairs of calls must be disjoint than overlapping: those that overlap have to wait.
const MOSTLY: u64 = 4;

/// S0: direct reads of a file hold its inode's lock for as long as the device takes, and keep the thread that appends
/// from it. Evidence: the appender's waits as a writer of that lock, reads that passed one of them.
pub fn readers_starve_appender(case: &Case<'_>) -> Vec<Diagnosis> {
    let starved = case.seen.iter().filter(|seen| is_starved_by_readers(case, seen));
    starved.map(|seen| starves(case, seen)).collect()
}

fn is_starved_by_readers(case: &Case<'_>, seen: &Seen) -> bool {
    let reads =
        seen.waited_ns(Role::Read) > 0 || seen.file.as_ref().is_some_and(|file| file.reads > 0);
    let direct = seen.direct_waits > 0 || seen.file.as_ref().is_some_and(|file| file.is_direct);
    seen.family == Family::Inode
        && reads
        && direct
        && case.share(seen, seen.waited_ns(Role::Write)) >= WAITING
}

fn named(file: Option<&FileUse>) -> String {
    file.filter(|file| !file.path.is_empty()).map_or("a file".to_owned(), |file| file.path.clone())
}

fn starves(case: &Case<'_>, seen: &Seen) -> Diagnosis {
    let waiting = case.share(seen, seen.waited_ns(Role::Write));
    let file = seen.file.as_ref();
    let mut evidence = Vec::new();
    evidence.extend(case.waits(seen, Role::Write, "Writes"));
    evidence.extend(case.waits(seen, Role::Read, "Reads"));
    if let Some(file) = file.filter(|file| file.reads_past_a_write > 0) {
        evidence.push(format!(
            "{} passed one write, which waited {} for them.",
            several(file.reads_past_a_write as f64, "read"),
            format_ns(file.passed_wait_ns as f64)
        ));
    } else if let Some(role) = seen.role(Role::Write).filter(|role| role.longest_bypass > 0) {
        evidence.push(format!(
            "{} that had to wait, too, got the lock during one wait of a write ({}).",
            several(role.longest_bypass as f64, "read"),
            format_ns(role.longest_bypass_wait_ns as f64)
        ));
    }
    if let Some(file) = file.filter(|file| file.writes > 0) {
        evidence.push(format!(
            "{} of the writes made the file longer, which takes the lock alone.",
            percent(file.appends as f64 / file.writes as f64)
        ));
    }
    evidence.extend(case.hand_overs(seen));
    evidence.extend(case.site(seen));
    Diagnosis {
        rule: "readers-starve-appender".to_owned(),
        disease: Some(0),
        weight: Weight::Problem,
        text: format!(
            "Direct reads of {} keep its writer waiting in the inode's lock, for {}.",
            named(file),
            threads_time(waiting)
        ),
        evidence,
        cure: vec![
            "Write the log with fairlock-io's `LogFile`: it appends into blocks that are written already, so the kernel takes the \
             lock shared, and readers never delay the writer."
                .to_owned(),
            "Do the same by hand: keep a piece of the file ahead of the writer filled with zeros. Blocks that fallocate() only \
             reserves do not help."
                .to_owned(),
            "Run a kernel without reader lock stealing (\"locking/rwsem: remove reader optimistic lock stealing\", posted in May \
             2026): there a read queues behind a waiting write."
                .to_owned(),
        ],
        locks: numbers(&[seen]),
        waiting,
    }
}

/// S2: reads and writes of one file queue in its inode's lock, though few of them touch the same bytes. Evidence: waits of
/// several threads for that lock, and the ranges of calls that were under way at the same time.
pub fn file_range(case: &Case<'_>) -> Vec<Diagnosis> {
    let queued = case.seen.iter().filter(|seen| {
        seen.family == Family::Inode
            && !is_starved_by_readers(case, seen)
            && case.waiting(seen) >= WAITING
            && seen.threads(Role::Read) + seen.threads(Role::Write) >= 2
    });
    queued.map(|seen| queues(case, seen)).collect()
}

fn queues(case: &Case<'_>, seen: &Seen) -> Diagnosis {
    let waiting = case.waiting(seen);
    let file = seen.file.as_ref();
    let pairs = file.map_or((0, 0), |file| (file.disjoint, file.overlapping));
    let overlaps = pairs.1 > 0 && pairs.0 < MOSTLY * pairs.1;
    let mut evidence = Vec::new();
    evidence.extend(case.waits(seen, Role::Read, "Reads"));
    evidence.extend(case.waits(seen, Role::Write, "Writes"));
    evidence.push(match pairs {
        (0, 0) => "Which bytes the calls touch was not seen.".to_owned(),
        (disjoint, overlapping) => format!(
            "Of {} pairs of calls that were under way at the same time, {} touched no byte in common.",
            format_count((disjoint + overlapping) as f64),
            percent(disjoint as f64 / (disjoint + overlapping) as f64)
        ),
    });
    evidence.extend(case.hand_overs(seen));
    evidence.extend(case.site(seen));
    let name = named(file);
    let threads = seen.threads(Role::Read) + seen.threads(Role::Write);
    let time = threads_time(waiting);
    if overlaps {
        return Diagnosis {
            rule: "file-overlap".to_owned(),
            disease: None,
            weight: Weight::Hint,
            text: format!("{threads} threads wait for each other at the same bytes of {name}, for {time}."),
            evidence,
            cure: vec!["They have to: give each thread bytes of its own, or gather their writes in one thread.".to_owned()],
            locks: numbers(&[seen]),
            waiting,
        };
    }
    Diagnosis {
        rule: "file-range".to_owned(),
        disease: Some(2),
        weight: Weight::Problem,
        text: format!("{threads} threads queue in the lock of {name}, though they use different parts of it, for {time}."),
        evidence,
        cure: vec![
            "Split the file, one part for each thread or shard: each inode has a lock of its own.".to_owned(),
            "Where writes only overwrite, open the file with O_DIRECT: ext4 and XFS share the lock among aligned overwrites. Where \
             reads must be atomic beside them, fairlock-io's `AtomicFile` locks ranges instead of the file."
                .to_owned(),
        ],
        locks: numbers(&[seen]),
        waiting,
    }
}
