//! The doctor: what a running system waits for, kernel and programs, and which disease that is.
//! `fairlock doctor` is made of this.
//!
//! | | |
//! |---|---|
//! | [`recorded`] | what is recorded of a system, as plain values |
//! | [`names`] | names for addresses of the kernel and of programs |
//! | [`capture`] | recording: what the kernel tells of waits, while they happen |
//! | [`file`](mod@file) | the file of a recording |
//! | [`script`] | a recording that perf made, and printed |
//! | [`reading`] | which of both a file is |
//! | [`waits`] | who waited for which lock, from when to when |
//! | [`activity`] | what threads did meanwhile |
//! | [`locks`] | locks, from their waits |
//! | [`diagnoses`] | what the waits mean, one rule for each disease |
//! | [`found`] | what is said about it: locks, waits, diagnoses |
//! | [`report`] | all that, for a terminal, as JSON Lines, as a page, and as a timeline |
//!
//! A recording comes from this machine's kernel, from a file, or from what `perf script` printed. Everything that is said
//! is computed from a recording and from nothing else, so a production machine only needs to record.
//!
//! Not for: programs under the drop-in, which counts more than a kernel can see; that is the rest of this crate.

use fairlock_report::printable::printable;
use fairlock_report::units::{counted, format_ns};

pub mod activity;
mod calls;
pub mod capture;
pub mod diagnoses;
pub mod file;
pub mod found;
pub mod locks;
pub mod names;
pub mod reading;
pub mod recorded;
pub mod report;
pub mod script;
#[cfg(test)]
mod story;
pub mod waits;
mod which_lock;

use found::{FORMAT, Found, Looked};
use recorded::{Part, Recording};

/// What is to be said about a recording.
pub fn examine(recording: &Recording) -> Found {
    let waits = waits::of(recording);
    let activity = activity::Activity::of(recording);
    let mut seen = locks::of(recording, &waits, &activity);
    let diagnoses = diagnoses::of(recording, &seen);
    for (index, diagnosis) in diagnoses.iter().enumerate() {
        for seen in seen.iter_mut().filter(|seen| diagnosis.locks.contains(&seen.lock.lock)) {
            seen.lock.diagnoses.push(index);
        }
    }
    let name = |pid: u32| {
        let main = recording.threads.get(&pid);
        let thread = main.or_else(|| recording.threads.values().find(|thread| thread.pid == pid));
        thread.map_or(String::new(), |thread| printable(thread.program_name()).into_owned())
    };
    let mut notes = recording.notes.clone();
    notes.extend(unknown_waits(recording, &waits));
    let looked = Looked {
        format: FORMAT,
        system: recording.system.clone(),
        processes: recording.system.pids.iter().map(|&pid| (pid, name(pid))).collect(),
        threads: recording.threads.len() as u64,
        kernel_ns: recording.recorded_ns(Part::KernelWaits),
        user_ns: recording.recorded_ns(Part::UserWaits),
        close_ns: recording.recorded_ns(Part::CloseLook),
        calls_ns: recording.recorded_ns(Part::Calls),
        lost: recording.lost,
        cost: recording.cost,
        notes,
    };
    Found { looked, diagnoses, locks: seen.into_iter().map(|seen| seen.lock).collect() }
}

/// Waits at futexes of which nobody knows whether they are locks, in a sentence.
fn unknown_waits(recording: &Recording, waits: &waits::Waits) -> Option<String> {
    /// With fewer calls nobody can tell: a lock's own functions are that many.
    const TELLING_CALLS: usize = 3;
    let unknown =
        waits.waits.iter().filter(|wait| waits.which(wait).family == which_lock::Family::Unknown);
    let longest = unknown.clone().max_by_key(|wait| wait.seen_ns)?;
    let all: u64 = unknown.clone().map(|wait| wait.seen_ns).sum();
    let calls: Vec<_> = recording.calls(longest.stack).cloned().collect();
    let place = calls.iter().find(|call| !which_lock::is_locking(call));
    let place = place.map(|call| format!(", the longest in {call}")).unwrap_or_default();
    let why = match calls.len() < TELLING_CALLS {
        true => "; too few of their calls were recorded to tell (perf needs --call-graph dwarf)",
        false => "",
    };
    let count = unknown.count() as u64;
    let was = if count == 1 { "was" } else { "were" };
    Some(printable(&format!(
        "{} of programs, {} together, {was} at futexes that are not known to be locks{place}{why}.",
        counted(count, "wait"),
        format_ns(all as f64)
    )).into_owned())
}
