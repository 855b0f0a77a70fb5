//! Storms of fork, exit and unmap.

use fairlock_report::units::format_count;

use crate::facts::Weight;

use super::super::found::Diagnosis;
use super::super::locks::Seen;
use super::super::which_lock::{Family, Role};
use super::{Case, WAITING, numbers, threads_time};

/// S3: processes that fork and end all the time meet at the locks of what they inherited: the trees of anonymous mappings
/// (anon_vma), of mapped files (i_mmap), and the list of processes. Evidence: waits for those, and new processes a second.
pub fn fork_storm(case: &Case<'_>) -> Vec<Diagnosis> {
    let is_inherited = |seen: &&Seen| {
        matches!(seen.family, Family::AnonVma | Family::FileMappings | Family::ProcessList)
    };
    let seen: Vec<&Seen> = case.seen.iter().filter(is_inherited).collect();
    let waiting: f64 = seen.iter().map(|seen| case.waiting(seen)).sum();
    if waiting < WAITING {
        return Vec::new();
    }
    let mut evidence = Vec::new();
    for seen in &seen {
        let name = &seen.lock.name;
        for role in [Role::Write, Role::Read, Role::Lock] {
            evidence.extend(case.waits(
                seen,
                role,
                &format!("For the {name}, threads that {}", wants(role)),
            ));
        }
    }
    let recorded_s =
        case.recording.system.to_ns.saturating_sub(case.recording.system.from_ns) as f64 / 1e9;
    let begun = case.recording.system.begun;
    if begun > 0 && recorded_s > 0.0 {
        evidence.push(format!(
            "{} processes and threads began each second.",
            format_count(begun as f64 / recorded_s)
        ));
    }
    for seen in seen.iter().take(1) {
        evidence.extend(case.hand_overs(seen));
        evidence.extend(case.site(seen));
    }
    vec![Diagnosis {
        rule: "fork-storm".to_owned(),
        disease: Some(3),
        weight: Weight::Problem,
        text: format!("Processes that fork and end wait for each other in the locks of what they inherited, for {}.", threads_time(waiting)),
        evidence,
        cure: vec![
            "Start programs with posix_spawn() or vfork(), which copy no mappings; in Python `subprocess` does so, in Rust \
             `std::process::Command` without `pre_exec`."
                .to_owned(),
            "Fork from a small process that was started early (a zygote), not from the large one: each mapping costs each child two \
             visits to these locks."
                .to_owned(),
            "Keep children from what they do not need with madvise(MADV_DONTFORK), and use fewer, larger mappings.".to_owned(),
        ],
        locks: numbers(&seen),
        waiting,
    }]
}

fn wants(role: Role) -> &'static str {
    match role {
        Role::Read => "read it",
        Role::Write => "change it",
        Role::Lock => "need it",
    }
}
