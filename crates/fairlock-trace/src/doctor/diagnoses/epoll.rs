//! The ready list of an epoll instance.

use fairlock_report::units::{format_count, format_ns};

use crate::facts::Weight;

use super::super::found::Diagnosis;
use super::super::locks::Seen;
use super::super::which_lock::{Family, Role};
use super::{Case, numbers, threads_time};

/// From this on it is a disease, of one thread's time: less than for locks that sleep, since whoever spins keeps its CPU from
/// others, and the line that it spins on from the lock's holder.
const SPINNING: f64 = 0.02;
/// A healthy server's producers meet at the list some hundred times a second; a storm's, ten thousands of times.
const MEETINGS: f64 = 1_000.0;
/// A real-time consumer that waits so long for a fair thread is inverted: longer than any critical section of the list, ns.
const INVERTED_NS: u64 = 1_000_000;

/// S1: threads that add events to an epoll instance and the one that takes them spin for the lock of its ready list, or a
/// real-time thread waits for a less urgent one there.
pub fn ready_list(case: &Case<'_>) -> Vec<Diagnosis> {
    let seen = case.seen.iter().filter(|seen| seen.family == Family::Epoll);
    seen.filter_map(|seen| list(case, seen)).collect()
}

fn list(case: &Case<'_>, seen: &Seen) -> Option<Diagnosis> {
    let waiting = case.waiting(seen);
    let waits: u64 = seen.lock.roles.iter().map(|role| role.wait.count).sum();
    let inversion =
        seen.lock.inversion.as_ref().filter(|it| it.wait_ns >= INVERTED_NS && !it.ran.is_empty());
    let meets = waiting >= SPINNING && case.rate(seen, waits) >= MEETINGS;
    if !meets && inversion.is_none() {
        return None;
    }
    let mut evidence = Vec::new();
    evidence.extend(case.waits(seen, Role::Lock, "Threads that add or take events"));
    if let Some(inversion) = inversion {
        let (name, ran_ns) = &inversion.ran[0];
        evidence.push(format!(
            "{}, of real-time priority {}, waited {} while {name} ran for {}.",
            inversion.waiter,
            inversion.priority,
            format_ns(inversion.wait_ns as f64),
            format_ns(*ran_ns as f64),
        ));
    }
    evidence.push(format!("{} threads met there.", format_count(seen.lock.threads.len() as f64)));
    evidence.extend(case.site(seen));
    let text = match inversion {
        Some(_) => {
            "A real-time thread waits at an epoll instance for a less urgent one.".to_owned()
        }
        None => format!(
            "Threads fight for the ready list of an epoll instance ({}), which costs {}.",
            seen.lock.name.trim_start_matches("epoll locks of "),
            threads_time(waiting)
        ),
    };
    let mut cure = vec![
        "Collect events in user space with Fairlock's `ready::Poll`: producers add to its list without a lock, and it has a file \
         descriptor that nests in this epoll instance."
            .to_owned(),
        "Spread the sources over several epoll instances, one for each consumer; and signal less: a producer that finds its \
         eventfd signalled need not write again."
            .to_owned(),
    ];
    if inversion.is_some() {
        cure.insert(0, "Give the producers the consumer's priority, or share a mutex with priority inheritance between them.".to_owned());
    }
    Some(Diagnosis {
        rule: "ready-list".to_owned(),
        disease: Some(1),
        weight: Weight::Problem,
        text,
        evidence,
        cure,
        locks: numbers(&[seen]),
        waiting,
    })
}
