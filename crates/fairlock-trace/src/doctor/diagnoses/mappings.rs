//! A process's mmap lock, and rwsems that go from one sleeper to the next.

use crate::facts::Weight;

use super::super::found::{Diagnosis, Kind};
use super::super::locks::Seen;
use super::super::which_lock::{Family, Role};
use super::{Case, numbers, percent, threads_time};

/// From this on waiting for a process's mmap lock is a disease, in threads' time. Threads that are started and end map and
/// unmap their stacks: some hundred of them a second waited for 0.11 of one thread's time on 2 CPUs, and nobody should mind.
const MAPPING: f64 = 0.25;
/// So much waiting for an rwsem, in threads' time, is a convoy of interest ...
const CONVOY_WAITING: f64 = 0.1;
/// ... if so much of its acquisitions are in rows of sleepers.
const CONVOY_SHARE: f64 = 0.5;

/// S4: page faults wait for mmap() and munmap() of other threads in the process's mmap lock. Evidence: waits of several
/// threads for that lock, and the share of them that wake-ups take.
pub fn mmap_lock(case: &Case<'_>) -> Vec<Diagnosis> {
    let waits = |seen: &&Seen| {
        seen.family == Family::Mmap
            && case.waiting(seen) >= MAPPING
            && seen.threads(Role::Read) + seen.threads(Role::Write) >= 2
    };
    case.seen.iter().filter(waits).map(|seen| fights(case, seen)).collect()
}

fn fights(case: &Case<'_>, seen: &Seen) -> Diagnosis {
    let waiting = case.waiting(seen);
    let mut evidence = Vec::new();
    evidence.extend(case.waits(seen, Role::Write, "mmap(), munmap() and the like"));
    evidence.extend(case.waits(seen, Role::Read, "Page faults and other readers"));
    evidence.extend(case.hand_overs(seen));
    evidence.extend(case.site(seen));
    let program = seen.lock.name.trim_start_matches("mmap lock of ");
    Diagnosis {
        rule: "mmap-lock".to_owned(),
        disease: Some(4),
        weight: Weight::Problem,
        text: format!("Threads of {program} wait for each other's mmap() and munmap(), and page faults with them, which costs {}.", threads_time(waiting)),
        evidence,
        cure: vec![
            "Map less often: keep what was mapped and reuse it. For malloc(), raise M_MMAP_THRESHOLD_ and M_TRIM_THRESHOLD_ \
             (glibc's tunables glibc.malloc.mmap_threshold, trim_threshold), or use an allocator that keeps its pages."
                .to_owned(),
            "Map in large pieces, and touch pages as they are mapped (MAP_POPULATE), so that fewer faults need the lock.".to_owned(),
            "Run a kernel with per-VMA locks (Linux 6.4 and later, CONFIG_PER_VMA_LOCK): there most page faults do without this lock. \
             Beyond that, several processes have several locks."
                .to_owned(),
        ],
        locks: numbers(&[seen]),
        waiting,
    }
}

/// S4 at other rwsems of the kernel: nearly each acquisition wakes a sleeper, and the lock is idle meanwhile.
pub fn rwsem_convoy(case: &Case<'_>) -> Vec<Diagnosis> {
    let is_convoy = |seen: &&Seen| {
        seen.family == Family::Other
            && seen.lock.kind == Kind::Rwsem
            && case.waiting(seen) >= CONVOY_WAITING
            && seen.lock.convoy_share >= CONVOY_SHARE
    };
    case.seen.iter().filter(is_convoy).map(|seen| convoy(case, seen)).collect()
}

fn convoy(case: &Case<'_>, seen: &Seen) -> Diagnosis {
    let waiting = case.waiting(seen);
    let mut evidence = Vec::new();
    evidence.extend(case.waits(seen, Role::Write, "Writers"));
    evidence.extend(case.waits(seen, Role::Read, "Readers"));
    evidence.extend(case.hand_overs(seen));
    evidence.extend(case.site(seen));
    Diagnosis {
        rule: "rwsem-convoy".to_owned(),
        disease: Some(4),
        weight: Weight::Problem,
        text: format!(
            "Threads pass an rwsem of the kernel ({}) from sleeper to sleeper: {} of those that waited, which costs {}.",
            seen.lock.name,
            percent(seen.lock.convoy_share),
            threads_time(waiting)
        ),
        evidence,
        cure: vec![
            "Do the work that takes this lock in fewer and larger pieces, or in one thread."
                .to_owned(),
            "Run Linux 5.3 or later: it wakes all readers of the queue at once.".to_owned(),
        ],
        locks: numbers(&[seen]),
        waiting,
    }
}
