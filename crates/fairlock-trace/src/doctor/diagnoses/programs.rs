//! Locks of programs.

use fairlock_report::units::{format_count, format_ns};

use crate::facts::Weight;

use super::super::found::{Diagnosis, Kind};
use super::super::locks::Seen;
use super::super::recorded::Thread;
use super::super::which_lock::{Family, Role};
use super::{Case, WAITING, numbers, percent, threads_time};

/// A person notices a delay of this length, ns.
const LONG_WAIT_NS: u64 = 100_000_000;
/// The role that is starved waits so much longer, per thread, than the one that starves it.
const STARVED: f64 = 10.0;
/// Several threads' waiting for one mutex: with less there is nothing to gain.
const CONVOY_WAITING: f64 = 0.5;
/// So much of the acquisitions that waited are in rows of sleepers.
const CONVOY_SHARE: f64 = 0.5;
/// So much of the waits' time the holder had no CPU.
const PREEMPTED: f64 = 0.25;

/// More hints would hide the problems.
const MOST_HINTS: usize = 5;

/// What is wrong with each lock of a program: at most one thing.
pub fn user_locks(case: &Case<'_>) -> Vec<Diagnosis> {
    let locks = case.seen.iter().filter(|seen| seen.family == Family::User);
    let rules = [starves, preempted, convoy, waits];
    let found = locks.filter_map(|seen| rules.iter().find_map(|rule| rule(case, seen)));
    // Locks are in the order of their waits: the table has the others.
    let mut hints = 0;
    let is_told = |diagnosis: &Diagnosis| {
        hints += usize::from(diagnosis.weight == Weight::Hint);
        diagnosis.weight == Weight::Problem || hints <= MOST_HINTS
    };
    found.filter(is_told).collect()
}

/// The place of the most waiting of this role, with its line.
fn place(seen: &Seen, role: Role) -> Option<String> {
    let site = seen.lock.sites.iter().find(|site| site.role == role.name())?;
    Some(super::calls(site))
}

fn program(case: &Case<'_>, seen: &Seen) -> String {
    let pid = seen.lock.pid.unwrap_or_default();
    let thread = case.recording.threads.values().find(|thread| thread.pid == pid);
    let name = thread.map(Thread::program_name);
    match name {
        Some(name) if !name.is_empty() => format!("{name} (process {pid})"),
        _ => format!("process {pid}"),
    }
}

/// A reader-writer lock that keeps one role waiting for as long as the other one comes.
fn starves(case: &Case<'_>, seen: &Seen) -> Option<Diagnosis> {
    if seen.lock.kind != Kind::UserRwlock {
        return None;
    }
    let longest = |role| seen.longest_ns(role);
    let (role, other) = match longest(Role::Write) >= longest(Role::Read) {
        true => (Role::Write, Role::Read),
        false => (Role::Read, Role::Write),
    };
    let each = |role| case.share(seen, seen.waited_ns(role)) / seen.threads(role).max(1) as f64;
    if longest(role) < LONG_WAIT_NS || each(role) < STARVED * each(other) {
        return None;
    }
    let (starved, others) = match role {
        Role::Write => ("writers", "readers"),
        _ => ("readers", "writers"),
    };
    let mut evidence = Vec::new();
    evidence.extend(case.waits(seen, role, &capital(starved)));
    evidence.extend(case.waits(seen, other, &capital(others)));
    for wait in seen.lock.under_way.iter().filter(|wait| wait.role == role.name()).take(3) {
        let before = if wait.began_before { "at least " } else { "" };
        evidence.push(format!(
            "{} ({}) still waits, for {before}{}.",
            wait.name,
            wait.tid,
            format_ns(wait.wait_ns as f64)
        ));
    }
    if let Some(told) = seen.role(role).filter(|told| told.longest_bypass > 0) {
        evidence.push(format!(
            "{} {others} that had waited themselves passed one of them.",
            format_count(told.longest_bypass as f64)
        ));
    }
    evidence.extend(place(seen, role).map(|place| format!("They wait here: {place}.")));
    let waiting = case.waiting(seen);
    Some(Diagnosis {
        rule: "user-lock-starves".to_owned(),
        disease: None,
        weight: Weight::Problem,
        text: format!("A reader-writer lock of {} starves its {starved}: one waited {}.", program(case, seen), format_ns(longest(role) as f64)),
        evidence,
        cure: vec![
            "Start the program as `fairlock run --compare glibc,rwlock,rwsem -- …`: if it uses pthread_rwlock, that shows what a lock \
             does for it that divides its time between readers and writers. `rwlock` suits many reads, `rwsem` many writes."
                .to_owned(),
            "In Rust, `fairlock::RwLock` is such a lock; in C and C++, `fairlock_rwlock` and `fairlock::shared_mutex`.".to_owned(),
        ],
        locks: numbers(&[seen]),
        waiting,
    })
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn kind_in_words(seen: &Seen) -> &'static str {
    if seen.lock.kind == Kind::UserRwlock { "reader-writer lock" } else { "mutex" }
}

fn all_waits(case: &Case<'_>, seen: &Seen) -> Vec<String> {
    let roles = [(Role::Lock, "Threads"), (Role::Read, "Readers"), (Role::Write, "Writers")];
    let mut sentences: Vec<String> =
        roles.iter().filter_map(|(role, who)| case.waits(seen, *role, who)).collect();
    sentences.extend(case.hand_overs(seen));
    sentences.extend(case.site(seen));
    sentences
}

/// Threads wait for one that holds the lock and has no CPU.
fn preempted(case: &Case<'_>, seen: &Seen) -> Option<Diagnosis> {
    let share = seen.lock.preempted_share.filter(|share| *share >= PREEMPTED)?;
    let waiting = case.waiting(seen);
    if waiting < WAITING {
        return None;
    }
    let mut evidence = vec![format!(
        "In {} of the waits' time that was looked at closely, the thread that had the lock had no CPU.",
        percent(share)
    )];
    evidence.extend(all_waits(case, seen));
    Some(Diagnosis {
        rule: "holder-preempted".to_owned(),
        disease: None,
        weight: Weight::Hint,
        text: format!("Threads of {} wait for a {} whose holder was preempted, for {}.", program(case, seen), kind_in_words(seen), threads_time(waiting)),
        evidence,
        cure: vec![
            "Run fewer threads than CPUs, or keep other programs from these CPUs (cgroup cpuset, taskset).".to_owned(),
            "Make the section shorter: what need not be protected belongs outside.".to_owned(),
        ],
        locks: numbers(&[seen]),
        waiting,
    })
}

/// A mutex that goes from one sleeper to the next.
fn convoy(case: &Case<'_>, seen: &Seen) -> Option<Diagnosis> {
    let waiting = case.waiting(seen);
    if waiting < CONVOY_WAITING || seen.lock.convoy_share < CONVOY_SHARE {
        return None;
    }
    Some(Diagnosis {
        rule: "mutex-convoy".to_owned(),
        disease: None,
        weight: Weight::Hint,
        text: format!("Threads of {} queue for a {} and get it one after the other, asleep, for {}.", program(case, seen), kind_in_words(seen), threads_time(waiting)),
        evidence: all_waits(case, seen),
        cure: vec![
            "Take the lock less often or for a shorter time, or divide what it protects among several locks.".to_owned(),
            "A mutex that spins for a while before it sleeps needs fewer wake-ups: `fairlock::Mutex`, or PTHREAD_MUTEX_ADAPTIVE_NP.".to_owned(),
        ],
        locks: numbers(&[seen]),
        waiting,
    })
}

/// Nothing of that, but a good deal of waiting.
fn waits(case: &Case<'_>, seen: &Seen) -> Option<Diagnosis> {
    let waiting = case.waiting(seen);
    if waiting < WAITING {
        return None;
    }
    Some(Diagnosis {
        rule: "user-lock-waits".to_owned(),
        disease: None,
        weight: Weight::Hint,
        text: format!("Threads of {} wait for a {}, for {}.", program(case, seen), kind_in_words(seen), threads_time(waiting)),
        evidence: all_waits(case, seen),
        cure: vec!["`fairlock run` counts every acquisition and hold of a pthread_rwlock, and says which policy suits it.".to_owned()],
        locks: numbers(&[seen]),
        waiting,
    })
}
