//! Holds and acquisitions without a wait, from traced calls of the C library's lock functions.
//!
//! Only what began and ended inside one window of [`Part::Calls`] is told.

use std::collections::HashMap;

use super::recorded::{LockCall, Part, Recording, What};
use super::waits::Place;
use super::which_lock::Role;

/// What was seen of one lock by calls.
#[derive(Debug, Default)]
pub struct Traced {
    /// By role: how long it was held each time, ns.
    pub holds: HashMap<Role, Vec<u64>>,
    /// By role: acquisitions that did not wait.
    pub uncontended: HashMap<Role, u64>,
    /// By role: when it was acquired, in order of time.
    pub acquired: HashMap<Role, Vec<u64>>,
}

/// The locks whose calls were traced, by their addresses.
pub fn of(recording: &Recording) -> HashMap<Place, Traced> {
    let mut traced: HashMap<Place, Traced> = HashMap::new();
    let mut windows: Vec<(u64, u64)> = recording
        .windows
        .iter()
        .filter(|window| window.part == Part::Calls)
        .map(|window| (window.from_ns, window.to_ns))
        .collect();
    windows.sort_unstable();
    let mut window = 0;
    // By thread: the call under way, the lock, and whether it waited; by thread and lock: since when it is held.
    let mut calling: HashMap<u32, (LockCall, u64, bool)> = HashMap::new();
    let mut held: HashMap<(u32, u64), (Role, u64)> = HashMap::new();
    for event in &recording.events {
        while windows.get(window).is_some_and(|(_, to_ns)| event.at_ns > *to_ns) {
            window += 1;
            calling.clear();
            held.clear();
        }
        let place = |address| Place {
            pid: recording.threads.get(&event.thread).map_or(event.thread, |thread| thread.pid),
            address,
        };
        match event.what {
            What::CallBegins { function, lock, .. } => {
                calling.insert(event.thread, (function, lock, false));
                if matches!(function, LockCall::Unlock | LockCall::MutexUnlock)
                    && let Some((role, since)) = held.remove(&(event.thread, lock))
                {
                    let holds =
                        traced.entry(place(lock)).or_default().holds.entry(role).or_default();
                    holds.push(event.at_ns.saturating_sub(since));
                }
            }
            What::UserWaitBegins { .. } => {
                if let Some((_, _, waited)) = calling.get_mut(&event.thread) {
                    *waited = true;
                }
            }
            What::CallEnds { function, result } => {
                let Some((begun, lock, waited)) = calling.remove(&event.thread) else { continue };
                let Some(role) = role(function).filter(|_| begun == function && result == 0) else {
                    continue;
                };
                held.insert((event.thread, lock), (role, event.at_ns));
                let traced_here = traced.entry(place(lock)).or_default();
                traced_here.acquired.entry(role).or_default().push(event.at_ns);
                if !waited {
                    *traced.entry(place(lock)).or_default().uncontended.entry(role).or_default() +=
                        1;
                }
            }
            _ => {}
        }
    }
    traced
}

/// What a call acquires.
fn role(function: LockCall) -> Option<Role> {
    match function {
        LockCall::ReadLock | LockCall::TryReadLock => Some(Role::Read),
        LockCall::WriteLock | LockCall::TryWriteLock => Some(Role::Write),
        LockCall::MutexLock | LockCall::MutexTryLock => Some(Role::Lock),
        LockCall::Unlock | LockCall::MutexUnlock => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorded::{Event, Thread, Window};
    use super::*;

    #[test]
    fn holds_and_acquisitions_without_a_wait() {
        let begins = |function| What::CallBegins { function, lock: 0x1000, stack: 0 };
        let ends = |function| What::CallEnds { function, result: 0 };
        let events = [
            (10, begins(LockCall::WriteLock)),
            (11, ends(LockCall::WriteLock)),
            (31, begins(LockCall::Unlock)),
            (32, ends(LockCall::Unlock)),
            (40, begins(LockCall::ReadLock)),
            (41, What::UserWaitBegins { address: 0x1008, stack: 0 }),
            (50, ends(LockCall::ReadLock)),
            // The window ends before it is released.
            (70, begins(LockCall::Unlock)),
        ];
        let window = |from_ns, to_ns| Window { part: Part::Calls, from_ns, to_ns };
        let traced = of(&Recording {
            windows: vec![window(0, 60), window(65, 80)],
            threads: [(7, Thread { pid: 5, ..Thread::default() })].into(),
            events: events.map(|(at_ns, what)| Event { at_ns, cpu: 0, thread: 7, what }).to_vec(),
            ..Recording::default()
        });
        let lock = &traced[&Place { pid: 5, address: 0x1000 }];
        assert_eq!(lock.holds, HashMap::from([(Role::Write, vec![20])]));
        assert_eq!(lock.uncontended, HashMap::from([(Role::Write, 1)]));
    }
}
