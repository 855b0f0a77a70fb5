//! Counts that are made up, for tests of what is said about them.

use fairlock_counts::layout::{READ, WRITE};
use fairlock_counts::snapshot::{
    Frame, Holding, Lock, Module, Role, Site, Snapshot, Thread, Use, Waiting,
};
use fairlock_report::row::Estimate;

use super::facts::{Compared, ComparedPolicy};

const SECOND: u64 = 1_000_000_000;

/// Four threads over two seconds, and no lock yet.
pub(super) fn snapshot() -> Snapshot {
    let names = ["server", "reader-1", "reader-2", "writer"];
    let threads = names.map(|name| Thread { pid: 100, tid: 7, lives: 1, name: name.into() });
    Snapshot {
        pid: 100,
        parent: 99,
        began: 10 * SECOND,
        ended: Some(12 * SECOND),
        taken: 13 * SECOND,
        policy: "glibc".to_owned(),
        program: "/usr/bin/server".into(),
        holds_sampled: 16,
        threads: threads.to_vec(),
        modules: vec![Module { base: 0, path: "/nowhere/libtable.so.1".into() }],
        stacks: [(0, vec![Frame { module: Some(0), address: 0x10 }])].into(),
        ..Snapshot::default()
    }
}

/// A lock that lives as long as the process. Its reads are the first thread's.
pub(super) fn lock(number: u32, reads: u64, writes: u64) -> Lock {
    let mut lock = Lock {
        number,
        address: 0x7f00_0000_0000 + u64::from(number) * 64,
        since: 10 * SECOND,
        first_used_at: Some(0),
        ..Lock::default()
    };
    acquire(&mut lock, 0, reads, writes);
    lock
}

/// So many acquisitions by this thread, too.
pub(super) fn acquire(lock: &mut Lock, thread: usize, reads: u64, writes: u64) {
    let name = snapshot().threads[thread].name.clone();
    let acquired = [reads, writes];
    lock.threads.push(Use { thread, tid: 7, lives: 1, name, acquired, ..Use::default() });
    for (role, count) in lock.roles.iter_mut().zip(acquired) {
        role.acquired += count;
    }
}

/// So many waits of this length of one role for the other, by the first thread.
pub(super) fn waits(lock: &mut Lock, waiter: usize, holder: usize, count: u64, ns: u64) {
    (0..count).for_each(|_| lock.roles[waiter].wait.record(ns));
    let sum = &mut lock.waited_for[waiter][holder];
    sum.count += count;
    sum.ns += count * ns;
    lock.threads[0].waited[waiter] += count;
    lock.threads[0].waited_ns[waiter] += count * ns;
    lock.sites.push(Site { stack: 0, role: waiter, waits: lock.waited_for[waiter][holder] });
}

/// So many measured holds of this length.
pub(super) fn holds(role: &mut Role, count: u64, ns: u64) {
    (0..count).for_each(|_| role.hold.record(ns));
    role.holders[0] += count;
}

/// A wait of this thread for the other role that does not end, passed by so many of that.
pub(super) fn still_waits(lock: &mut Lock, thread: usize, role: usize, ns: u64, passed: u64) {
    let mut both = [0, 0];
    both[1 - role] = passed;
    let (stack, passed) = (Some(0), Some(both));
    let holder = 1 - role;
    let is_exact = true;
    lock.waiting.push(Waiting { pid: 100, thread, role, holder, ns, stack, is_exact, passed });
    lock.roles[role].wait.record(ns);
    lock.roles[role].bypass = lock.roles[role].bypass.max((both[1 - role], ns));
    if !lock.threads.iter().any(|used| used.thread == thread) {
        acquire(lock, thread, 0, 0);
    }
}

/// A hold by this thread, whose place is that of this very acquisition or not.
pub(super) fn held_by(lock: &mut Lock, thread: usize, role: usize, is_exact: bool) {
    let acquired_at = Some(0);
    let held =
        Holding { pid: 100, thread, role, times: 1, acquired_at, is_exact, has_ended: false };
    lock.holding.push(held);
}

/// A lock on which 812 reads pass a write that waits 1.2 s.
pub(super) fn starving_writer() -> Lock {
    let mut lock = lock(2, 300_000, 0);
    acquire(&mut lock, 1, 280_000, 0);
    acquire(&mut lock, 2, 320_000, 0);
    acquire(&mut lock, 3, 0, 40);
    holds(&mut lock.roles[READ], 600, 90_000);
    holds(&mut lock.roles[WRITE], 40, 30_000);
    waits(&mut lock, READ, WRITE, 900, 40_000);
    waits(&mut lock, WRITE, READ, 39, 3_000_000);
    waits(&mut lock, WRITE, READ, 1, 1_200_000_000);
    lock.sites.remove(1);
    lock.threads[3].waited[WRITE] = std::mem::take(&mut lock.threads[0].waited[WRITE]);
    lock.threads[3].waited_ns[WRITE] = std::mem::take(&mut lock.threads[0].waited_ns[WRITE]);
    let bypass = &mut lock.roles[WRITE];
    (bypass.bypass, bypass.bypass_sum) = ((812, 1_200_000_000), 4000);
    lock
}

/// One policy that is faster than the control, and one that cannot be told from it.
pub(super) fn comparison() -> Compared {
    let policy = |policy: &str, wall_s, ratio: Option<[f64; 3]>| ComparedPolicy {
        policy: policy.to_owned(),
        runs: 10,
        failed: 0,
        wall_s,
        ratio: ratio.map(|[low, median, high]| Estimate { median, low, high }),
        ratio_range: ratio.map(|[low, median, high]| Estimate {
            median,
            low: low - 0.02,
            high: high + 0.02,
        }),
        locks: Vec::new(),
    };
    Compared {
        control: "glibc".to_owned(),
        used_locks: None,
        policies: vec![
            policy("glibc", 2.0, None),
            policy("rwsem", 1.6, Some([0.78, 0.8, 0.83])),
            policy("phase-fair", 2.02, Some([0.97, 1.01, 1.04])),
        ],
    }
}
