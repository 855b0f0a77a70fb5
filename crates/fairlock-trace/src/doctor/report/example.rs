//! What a system with a starved appender gives.

use crate::doctor::found::{
    Diagnosis, FORMAT, Found, Inversion, Kind, Lock, Looked, Role, Site, UnderWay, WaitedFor,
    Waiter,
};
use crate::doctor::recorded::{
    Cost, Event, KERNEL, Part, Recording, System, Thread, What, Window, flags,
};
use crate::facts::{Frame, Times, Weight};

/// Where time begins.
pub(super) const BEGIN_NS: u64 = 5_000_000_000;
/// The lock's address.
pub(super) const INODE_LOCK: u64 = 0xffff_8881_0a2b_3c40;
pub(super) const APPENDER: u32 = 41;
pub(super) const READER: u32 = 42;

fn frame(function: &str, module: &str) -> Frame {
    Frame {
        function: Some(function.to_owned()),
        module: Some(module.to_owned()),
        ..Frame::default()
    }
}

fn calls() -> Vec<Frame> {
    vec![
        frame("rwsem_down_write_slowpath", KERNEL),
        frame("ext4_buffered_write_iter", KERNEL),
        frame("pwrite64", "libc.so.6"),
        frame("Log::append", "server"),
    ]
}

/// A starved appender and a mutex that is waited for.
pub(crate) fn found() -> Found {
    let times = |count: u64, max_ns: u64| Times {
        count,
        sum_ns: count * max_ns / 2,
        p50_ns: max_ns / 2,
        p99_ns: max_ns,
        max_ns,
        buckets: vec![(65536, count / 2), (1 << 30, count - count / 2)],
    };
    let role = |role: &str, wait: Times| Role {
        role: role.to_owned(),
        wait,
        threads: 1,
        ..Role::default()
    };
    let inode = Lock {
        lock: 1,
        kind: Kind::Rwsem,
        name: "inode lock of journal/0001".to_owned(),
        address: format!("{INODE_LOCK:#x}"),
        locks: 1,
        roles: vec![
            role("read", times(2000, 90_000)),
            Role {
                longest_bypass: 812,
                longest_bypass_wait_ns: 1_200_000_000,
                ..role("write", times(40, 1_200_000_000))
            },
        ],
        waited_for: vec![WaitedFor {
            waiter_role: "write".to_owned(),
            waiter: "appender (41)".to_owned(),
            holder_role: "read".to_owned(),
            holder: "tail-1 (42)".to_owned(),
            count: 38,
            wait_ns: 4_200_000_000,
        }],
        sites: vec![Site {
            role: "write".to_owned(),
            calls: calls(),
            waits: 40,
            wait_ns: 4_800_000_000,
        }],
        threads: vec![Waiter {
            name: "appender".to_owned(),
            tid: APPENDER,
            pid: 40,
            role: "write".to_owned(),
            realtime_priority: 0,
            waits: 40,
            wait_ns: 4_800_000_000,
            longest_ns: 1_200_000_000,
        }],
        longest_convoy: 14,
        convoy_share: 0.25,
        wake_up_share: Some(0.125),
        preempted_share: Some(0.5),
        under_way: vec![UnderWay {
            name: "appender".to_owned(),
            tid: APPENDER,
            role: "write".to_owned(),
            wait_ns: 700_000_000,
            began_before: true,
            calls: calls(),
        }],
        diagnoses: vec![0],
        ..Lock::default()
    };
    let mutex = Lock {
        lock: 2,
        kind: Kind::UserMutex,
        name: "pthread_mutex in Cache::get".to_owned(),
        address: "0x7f0000001040".to_owned(),
        locks: 12,
        pid: Some(40),
        roles: vec![role("lock", times(100, 200_000))],
        inversion: Some(Inversion {
            waiter: "audio (43)".to_owned(),
            priority: 50,
            wait_ns: 3_000_000,
            ran: vec![("hog (44)".to_owned(), 2_500_000)],
        }),
        ..Lock::default()
    };
    Found {
        looked: Looked {
            format: FORMAT,
            system: System {
                date: "2026-02-03".to_owned(),
                kernel: "6.18.44".to_owned(),
                cpus: 8,
                from_ns: BEGIN_NS,
                to_ns: BEGIN_NS + 10_000_000_000,
                pids: vec![40],
                begun: 0,
            },
            processes: vec![(40, "server".to_owned())],
            threads: 312,
            kernel_ns: 10_000_000_000,
            user_ns: 10_000_000_000,
            close_ns: 2_000_000_000,
            calls_ns: 0,
            lost: 12,
            cost: Cost { records: 100_000, record_ns: 2000.0, ..Cost::default() },
            notes: vec!["Stacks of python3 are not known: it has no frame pointers.".to_owned()],
        },
        diagnoses: vec![
            Diagnosis {
                rule: "readers-starve-appender".to_owned(),
                disease: Some(0),
                weight: Weight::Problem,
                text: "Readers of journal/0001 starve its appender.".to_owned(),
                evidence: vec!["The appender waited 1.20s while 812 reads passed it.".to_owned()],
                cure: vec![
                    "Append with fairlock_io::LogFile, whose appends share the lock.".to_owned(),
                    "Read with O_DIRECT from another file.".to_owned(),
                ],
                locks: vec![1],
                waiting: 0.48,
            },
            Diagnosis {
                rule: "mutex-convoy".to_owned(),
                weight: Weight::Hint,
                text: "Threads of server wait in a convoy for a mutex.".to_owned(),
                locks: vec![2],
                ..Diagnosis::default()
            },
        ],
        locks: vec![inode, mutex],
    }
}

/// Two seconds: nobody waits in the first one; in the second one the appender does, until the reader wakes it.
pub(super) fn recording() -> Recording {
    let thread = |name: &str| Thread {
        pid: 40,
        name: name.to_owned(),
        program: "/usr/bin/server".to_owned(),
        ..Thread::default()
    };
    let end_ns = BEGIN_NS + 2_000_000_000;
    let window = |part| Window { part, from_ns: BEGIN_NS, to_ns: end_ns };
    let at =
        |ms: u64, cpu, thread, what| Event { at_ns: BEGIN_NS + ms * 1_000_000, cpu, thread, what };
    let switch = |sleeps, to| What::Switch { sleeps, to, priority: 120, to_priority: 120 };
    let lock = INODE_LOCK;
    Recording {
        system: System {
            cpus: 2,
            from_ns: BEGIN_NS,
            to_ns: end_ns,
            kernel: "6.18.44".to_owned(),
            ..System::default()
        },
        threads: [(APPENDER, thread("appender")), (READER, thread("tail-1"))].into(),
        frames: calls(),
        stacks: vec![vec![0, 1, 2, 3]],
        windows: vec![window(Part::KernelWaits), window(Part::UserWaits), window(Part::CloseLook)],
        events: vec![
            at(1200, 0, APPENDER, What::KernelWaitBegins { lock, flags: flags::WRITE, stack: 0 }),
            at(1201, 0, APPENDER, switch(true, 0)),
            at(1900, 1, READER, What::Wakes { thread: APPENDER }),
            at(1901, 0, 0, switch(false, APPENDER)),
            at(1902, 0, APPENDER, What::KernelWaitEnds { lock, gave_up: false }),
            at(1950, 1, READER, What::UserWaitBegins { address: 0x7f00_0000_1040, stack: 9 }),
            at(1951, 1, READER, switch(true, 0)),
        ],
        ..Recording::default()
    }
}
