//! What the waits mean: each rule looks for one problem, says what it saw and what to do.
//!
//! A rule makes a diagnosis only if the waits contain the evidence, and quotes it. Its thresholds are constants with
//! their reasons; `docs/src/measure/doctor.md` lists the rules by name.
//!
//! | file | rules |
//! |---|---|
//! | `files.rs` | `readers-starve-appender` (S0), `file-range` (S2), `file-overlap` |
//! | `epoll.rs` | `ready-list` (S1) |
//! | `forks.rs` | `fork-storm` (S3) |
//! | `mappings.rs` | `mmap-lock`, `rwsem-convoy` (S4) |
//! | `programs.rs` | `user-lock-starves`, `mutex-convoy`, `holder-preempted`, `user-lock-waits` |
//! | `mod.rs` | `fine`, `nothing-recorded`, `no-kernel-names` |
//!
//! Invariants
//! 1. There is at least one diagnosis: if nothing is wrong, that.
//! 2. Each lock is in at most one diagnosis of a disease.

mod epoll;
mod files;
mod forks;
mod mappings;
mod programs;
#[cfg(test)]
mod tests;

use fairlock_report::units::{format_count, format_ns, format_number};

use crate::facts::{Frame, Weight};

use super::found::{self, Diagnosis};
use super::locks::Seen;
use super::recorded::{Part, Recording};
use super::which_lock::Role;

/// From this on waiting is a disease: a twentieth of one thread's time. It is what the smallest gain is worth that anybody
/// changes a program for, and an order of magnitude above what healthy servers show.
pub const WAITING: f64 = 0.05;

/// What rules look at.
pub struct Case<'a> {
    /// All of it.
    pub recording: &'a Recording,
    /// The locks.
    pub seen: &'a [Seen],
    /// How long waits in the kernel and of programs were recorded, ns.
    pub kernel_ns: u64,
    /// See [`kernel_ns`](Self::kernel_ns).
    pub user_ns: u64,
}

type Rule = fn(&Case<'_>) -> Vec<Diagnosis>;

const RULES: [Rule; 7] = [
    files::readers_starve_appender,
    files::file_range,
    epoll::ready_list,
    forks::fork_storm,
    mappings::mmap_lock,
    mappings::rwsem_convoy,
    programs::user_locks,
];

/// What is wrong, the worst first; one that says that nothing is, if nothing is.
pub fn of(recording: &Recording, seen: &[Seen]) -> Vec<Diagnosis> {
    let case = Case {
        recording,
        seen,
        kernel_ns: recording.recorded_ns(Part::KernelWaits),
        user_ns: recording.recorded_ns(Part::UserWaits),
    };
    let mut diagnoses: Vec<Diagnosis> = RULES.iter().flat_map(|rule| rule(&case)).collect();
    diagnoses.sort_by(|one, other| {
        let order = |it: &Diagnosis| (it.weight, it.disease.is_none());
        order(one).cmp(&order(other)).then(other.waiting.total_cmp(&one.waiting))
    });
    if !diagnoses.iter().any(|it| it.weight == Weight::Problem) {
        diagnoses.insert(0, without_names(&case).unwrap_or_else(|| fine(&case)));
    }
    diagnoses
}

impl Case<'_> {
    /// Threads' time that waits for this lock took, over the time in which they were recorded.
    pub fn waiting(&self, seen: &Seen) -> f64 {
        self.share(seen, seen.wait_ns)
    }

    /// So much waiting for this lock, likewise.
    pub fn share(&self, seen: &Seen, wait_ns: u64) -> f64 {
        let recorded_ns = if seen.lock.pid.is_some() { self.user_ns } else { self.kernel_ns };
        if recorded_ns > 0 { wait_ns as f64 / recorded_ns as f64 } else { 0.0 }
    }

    /// Waits a second.
    pub fn rate(&self, seen: &Seen, waits: u64) -> f64 {
        let recorded_ns = if seen.lock.pid.is_some() { self.user_ns } else { self.kernel_ns };
        if recorded_ns > 0 { waits as f64 * 1e9 / recorded_ns as f64 } else { 0.0 }
    }

    /// What a role waited, in a sentence.
    pub fn waits(&self, seen: &Seen, role: Role, who: &str) -> Option<String> {
        let times = &seen.role(role)?.wait;
        match times.count {
            0 => None,
            1 => Some(format!("{who} waited once, for {}.", format_ns(times.max_ns as f64))),
            _ => Some(format!(
                "{who} waited {} times a second ({} p50, {} p99, {} at most), {} in all.",
                format_count(self.rate(seen, times.count)),
                format_ns(times.p50_ns as f64),
                format_ns(times.p99_ns as f64),
                format_ns(times.max_ns as f64),
                threads_time(self.share(seen, times.sum_ns)),
            )),
        }
    }

    /// Rows of sleepers that hand a lock over, and what waking them takes, in sentences.
    pub fn hand_overs(&self, seen: &Seen) -> Vec<String> {
        let lock = &seen.lock;
        let mut sentences = Vec::new();
        if lock.longest_convoy >= super::locks::CONVOY {
            sentences.push(format!(
                "The lock went from one sleeping thread to the next up to {} times in a row; {} of the acquisitions that \
                 waited were in runs of 10 or more.",
                format_count(lock.longest_convoy as f64),
                percent(lock.convoy_share),
            ));
        }
        if let Some(share) = lock.wake_up_share {
            sentences.push(format!(
                "{} of these waits' time went by between a wake-up and the thread running.",
                percent(share)
            ));
        }
        sentences
    }

    /// Where the most time was waited, in a sentence.
    pub fn site(&self, seen: &Seen) -> Option<String> {
        let site = seen.lock.sites.first()?;
        Some(format!("Mostly in {}.", calls(site)))
    }
}

/// Calls in one line, those of locking itself left out.
fn calls(site: &found::Site) -> String {
    const MOST: usize = 5;
    let from = site.calls.iter().position(|call| !super::which_lock::is_locking(call)).unwrap_or(0);
    let own = &site.calls[from..];
    // How the kernel was entered says nothing.
    const ENTRIES: [&str; 4] = ["do_syscall_64", "x64_sys_call", "entry_SYSCALL_64", "asm_exc_"];
    let is_entry = |call: &Frame| {
        call.function
            .as_ref()
            .is_some_and(|name| ENTRIES.iter().any(|entry| name.starts_with(entry)))
    };
    let end = own.iter().position(is_entry).unwrap_or(own.len());
    let own = &own[..end];
    // The place to look at first is known to the line, where the program has that.
    match own.split_first() {
        Some((first, callers)) if first.file.is_some() && first.line.is_some() => match callers {
            [] => first.to_string(),
            _ => format!("{first} ← {}", crate::facts::chain(callers, MOST - 1)),
        },
        _ => crate::facts::chain(own, MOST),
    }
}

/// `31 % of one thread's time`, `2.4 threads' time`.
pub(super) fn threads_time(waiting: f64) -> String {
    match waiting {
        ..1.0 => format!("{} of one thread's time", percent(waiting)),
        _ => format!("the time of {} threads", format_number(waiting)),
    }
}

/// `31 %`.
pub(super) fn percent(share: f64) -> String {
    match 100.0 * share {
        percent @ ..0.1 if percent > 0.0 => "less than 0.1 %".to_owned(),
        percent => format!("{} %", format_number(percent)),
    }
}

/// The numbers of these locks.
fn numbers(seen: &[&Seen]) -> Vec<usize> {
    seen.iter().map(|seen| seen.lock.lock).collect()
}

/// No disease can be told where nothing has a name.
fn without_names(case: &Case<'_>) -> Option<Diagnosis> {
    let in_kernel = case.seen.iter().filter(|seen| seen.lock.pid.is_none());
    let all: u64 = in_kernel.clone().map(|seen| seen.wait_ns).sum();
    let unnamed: u64 = in_kernel.filter(|seen| seen.is_unnamed).map(|seen| seen.wait_ns).sum();
    (unnamed > 0 && unnamed >= all / 2).then(|| Diagnosis {
        rule: "no-kernel-names".to_owned(),
        weight: Weight::Hint,
        text: "The kernel's functions have no names in this recording, so none of the five diseases can be recognised.".to_owned(),
        evidence: vec![format!(
            "Waits for locks of the kernel without a name took {}.",
            threads_time(unnamed as f64 / case.kernel_ns.max(1) as f64)
        )],
        cure: vec![
            "Record as root, or with CAP_SYSLOG besides, or with kernel.kptr_restrict=0 and kernel.perf_event_paranoid=1.".to_owned(),
        ],
        ..Diagnosis::default()
    })
}

fn fine(case: &Case<'_>) -> Diagnosis {
    if case.kernel_ns == 0 && case.user_ns == 0 {
        return Diagnosis {
            rule: "nothing-recorded".to_owned(),
            weight: Weight::Hint,
            text: "No waits were recorded, so nothing can be said about them.".to_owned(),
            cure: vec![
                "Record for longer: where threads wait very often, waits are recorded for a part of the time only, and this time \
                 had no such part."
                    .to_owned(),
            ],
            ..Diagnosis::default()
        };
    }
    let all = |kernel: bool| -> f64 {
        let of_it = case.seen.iter().filter(|seen| seen.lock.pid.is_none() == kernel);
        of_it.map(|seen| case.waiting(seen)).sum()
    };
    let (kernel, user) = (all(true), all(false));
    let mut evidence = vec![format!(
        "All waits for locks of the kernel together took {}, those of programs {}.",
        threads_time(kernel),
        threads_time(user)
    )];
    if let Some(first) = case.seen.first() {
        evidence.push(format!(
            "Threads waited most for the {}: {}.",
            first.lock.name,
            threads_time(case.waiting(first))
        ));
    }
    Diagnosis {
        rule: "fine".to_owned(),
        weight: Weight::Fine,
        text: "None of the five diseases, and no lock that keeps threads from their work."
            .to_owned(),
        evidence,
        waiting: kernel + user,
        ..Diagnosis::default()
    }
}
