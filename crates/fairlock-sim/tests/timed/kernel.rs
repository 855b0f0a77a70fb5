//! The kernel's own rwsem and mutex on a simulated machine: what each operation does to the lock's cache line,
//! against what the kernel does; and who is let in when.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use fairlock::lock_api::{Mutex, RawRwLock, RwLock};
use fairlock::platform::{AtomicCell, Platform};
use fairlock_reference::kernel::Kernel;
use fairlock_reference::kernel::mutex::RawKernelMutex;
use fairlock_reference::kernel::rwsem::{
    Linux5_1, Linux5_2, Linux5_11, NoReaderSteal, RawKernelRwSem, Version,
};
use fairlock_reference::kernel::xadd_rwsem::{
    self as xadd_rwsem, Linux3_10, Linux3_10FastFail, Linux3_10Spin, Linux3_16, RawXaddRwSem,
};
use fairlock_sim::timed;

use crate::logged::{self, Logged, run};

struct Simulated;

impl Kernel for Simulated {
    type Platform = Logged;
    const TURNS_BEFORE_CLOCK: u32 = 1;

    fn forbid_preemption() {
        timed::forbid_preemption();
    }
    fn allow_preemption() {
        timed::allow_preemption();
    }
    fn is_to_yield() -> bool {
        timed::is_to_yield()
    }
    fn current() -> u64 {
        timed::thread().unwrap_or(0) as u64
    }
    fn is_on_cpu(thread: u64) -> bool {
        timed::is_on_cpu(thread as usize)
    }
    fn wake_in_vain(_thread: u64) {}
    fn has_slept() {}
    fn ticks() -> u64 {
        timed::ticks()
    }
    fn ticks_until_handoff() -> u64 {
        timed::ticks_in(4_000_000)
    }
    fn relax() {
        timed::relax_for(500);
    }
    fn exchange_part(word: &<Logged as Platform>::AtomicU64, mask: u64, bits: u64) -> u64 {
        let before = word.exchanged();
        timed::in_the_same_step(|| word.0.store(before & !mask | bits, Relaxed));
        before
    }
}

type Raw<V> = RawKernelRwSem<V, Simulated>;
type Lock<V> = RwLock<Raw<V>, Cell<u32>>;

/// What a thread did to the lock's own line. A look at an end of the list is left out: whoever looks has just had
/// the line, and the kernel's compiler merges such looks.
fn accesses<L>(lock: &L, words: [&str; 6], thread: usize) -> Vec<String> {
    let start = std::ptr::from_ref(lock).addr();
    let mut seen = Vec::new();
    logged::log_of_run(|log| {
        for entry in log.iter().filter(|entry| entry.thread == thread) {
            let Some(&word) =
                entry.address.checked_sub(start).and_then(|offset| words.get(offset / 8))
            else {
                continue;
            };
            if !(matches!(word, "head" | "tail") && entry.what == "load") {
                let mut text = String::new();
                write!(text, "{word} {}", entry.what).expect("a text");
                seen.push(text);
            }
        }
    });
    seen
}

const WORDS: [&str; 6] = ["count", "owner", "spinners", "wait_lock", "head", "tail"];
/// The semaphore's and the mutex's of 2013.
const OLD_WORDS: [&str; 6] = ["count", "wait_lock", "head", "tail", "owner", "spinners"];

fn assert_accesses<V: Version>(lock: &Lock<V>, thread: usize, kernel: &[&str]) {
    // SAFETY: the lock is only looked at.
    let seen = accesses(unsafe { lock.raw() }, WORDS, thread);
    let name = std::any::type_name::<V>();
    assert_eq!(seen, kernel, "{name}, thread {thread}; right: what the kernel does");
}

/// From here on, until everybody has come where the test wants them.
const LATER: u64 = 100_000;

#[test]
fn what_nobody_disputes_costs_what_it_costs_in_the_kernel() {
    fn check<V: Version>(read: &[&str], write: &[&str]) {
        let lock = Lock::<V>::new(Cell::new(0));
        run(vec![Box::new(|| drop(lock.read()))]);
        assert_accesses(&lock, 0, read);
        run(vec![Box::new(|| drop(lock.write()))]);
        assert_accesses(&lock, 0, write);
    }
    let read = ["count add", "owner store", "count add"];
    let write = ["count compare-exchange", "owner store", "owner store", "count add"];
    check::<Linux5_1>(&read, &write);
    check::<Linux5_2>(&read, &write);
    // Whether somebody has given up spinning on readers.
    let read = ["count add", "owner load", "owner store", "count add"];
    check::<Linux5_11>(&read, &write);
    check::<NoReaderSteal>(&read, &write);
}

/// A reader behind a writer that holds the lock, and that writer's release.
#[test]
fn a_reader_that_queues_does_what_it_does_in_the_kernel() {
    let lock = Lock::<Linux5_1>::new(Cell::new(0));
    run(vec![
        Box::new(|| {
            let guard = lock.write();
            timed::sleep(LATER);
            drop(guard);
        }),
        Box::new(|| {
            timed::sleep(LATER / 2);
            drop(lock.read());
        }),
    ]);
    let queues = [
        "count add",
        "wait_lock compare-exchange",
        "count load",
        "tail store",
        "head store",
        "count add",
        "wait_lock add",
    ];
    let is_granted_and_leaves = ["count add"];
    assert_accesses(&lock, 1, &[&queues[..], &is_granted_and_leaves].concat());
    let enters = ["count compare-exchange", "owner store"];
    let leaves = ["owner store", "count add"];
    let grants = [
        "wait_lock compare-exchange",
        "count add",
        "owner store",
        "head store",
        "tail store",
        "count load",
        "count add",
        "wait_lock add",
    ];
    assert_accesses(&lock, 0, &[&enters[..], &leaves, &grants].concat());
}

/// A writer behind a reader that holds the lock, and that reader's release.
#[test]
fn a_writer_that_queues_does_what_it_does_in_the_kernel() {
    let lock = Lock::<Linux5_1>::new(Cell::new(0));
    run(vec![
        Box::new(|| {
            let guard = lock.read();
            timed::sleep(LATER);
            drop(guard);
        }),
        Box::new(|| {
            timed::sleep(LATER / 2);
            drop(lock.write());
        }),
    ]);
    let queues = [
        "count compare-exchange fails",
        "owner load",
        "wait_lock compare-exchange",
        "tail store",
        "head store",
        "count or",
        // The first attempt, under the same hold of `wait_lock`.
        "count load",
        "wait_lock add",
    ];
    let is_woken = [
        "count load",
        "wait_lock compare-exchange",
        "count load",
        "count compare-exchange",
        "owner store",
        "tail store",
        "head store",
        "wait_lock add",
        "owner store",
    ];
    let leaves = ["owner store", "count add"];
    assert_accesses(&lock, 1, &[&queues[..], &is_woken, &leaves].concat());
    let read = ["count add", "owner store", "count add"];
    let wakes = ["wait_lock compare-exchange", "wait_lock add"];
    assert_accesses(&lock, 0, &[&read[..], &wakes].concat());
}

/// A writer that comes while another one runs inside.
#[test]
fn a_writer_that_spins_does_what_it_does_in_the_kernel() {
    let lock = Lock::<Linux5_1>::new(Cell::new(0));
    run(vec![
        Box::new(|| {
            let guard = lock.write();
            timed::work(LATER);
            drop(guard);
        }),
        Box::new(|| {
            timed::work(LATER / 2);
            drop(lock.write());
        }),
    ]);
    let begins = [
        "count compare-exchange fails",
        "owner load",
        "spinners exchange",
        "owner load",
        "count load",
        "owner load",
    ];
    let takes = ["count load", "count compare-exchange", "owner store"];
    let ends = ["spinners compare-exchange", "owner store", "owner store", "count add"];
    // SAFETY: the lock is only looked at.
    let seen = accesses(unsafe { lock.raw() }, WORDS, 1);
    let turns = &seen[begins.len()..seen.len() - takes.len() - ends.len()];
    assert_eq!(seen[..begins.len()], begins);
    assert!(turns.iter().all(|what| ["count load", "owner load"].contains(&&**what)), "{turns:?}");
    assert_eq!(seen[begins.len() + turns.len()..], [&takes[..], &ends].concat());
}

// ---- the locks of 2013 ----

type XaddLock<V> = RwLock<RawXaddRwSem<V, Simulated>, Cell<u32>>;
type KernelMutex = Mutex<RawKernelMutex<Simulated>, Cell<u32>>;

/// What this thread did to the lock of this name.
fn assert_did<L>(lock: &L, thread: usize, name: &str, kernel: &[&[&str]]) {
    let seen = accesses(lock, OLD_WORDS, thread);
    assert_eq!(seen, kernel.concat(), "{name}, thread {thread}; right: what the kernel does");
}

fn assert_xadd<V: xadd_rwsem::Version>(lock: &XaddLock<V>, thread: usize, kernel: &[&[&str]]) {
    // SAFETY: the lock is only looked at.
    assert_did(unsafe { lock.raw() }, thread, std::any::type_name::<V>(), kernel);
}

#[test]
fn what_nobody_disputes_costs_what_it_cost_in_2013() {
    fn check<V: xadd_rwsem::Version>(write: &[&str]) {
        let lock = XaddLock::<V>::new(Cell::new(0));
        run(vec![Box::new(|| drop(lock.read()))]);
        assert_xadd(&lock, 0, &[&["count add", "count add"]]);
        run(vec![Box::new(|| drop(lock.write()))]);
        assert_xadd(&lock, 0, &[write]);
    }
    check::<Linux3_10>(&["count add", "count add"]);
    check::<Linux3_10FastFail>(&["count load", "count add", "count add"]);
    let with_owner = ["count add", "owner store", "owner store", "count add"];
    check::<Linux3_10Spin>(&with_owner);
    check::<Linux3_16>(&with_owner);
    let lock = KernelMutex::new(Cell::new(0));
    run(vec![Box::new(|| drop(lock.lock()))]);
    // SAFETY: the lock is only looked at.
    assert_did(unsafe { lock.raw() }, 0, "mutex", &[&with_owner]);
}

/// A writer behind a reader that holds the lock, and that reader's release.
#[test]
fn a_writer_that_queues_does_what_it_did_in_2013() {
    fn check<V: xadd_rwsem::Version>(fails: &[&str], leaves: &[&str]) {
        let lock = XaddLock::<V>::new(Cell::new(0));
        run(vec![
            Box::new(|| {
                let guard = lock.read();
                timed::sleep(LATER);
                drop(guard);
            }),
            Box::new(|| {
                timed::sleep(LATER / 2);
                drop(lock.write());
            }),
        ]);
        let queues = ["wait_lock add", "tail store", "head store", "count add", "wait_lock add"];
        let is_woken = [
            "count load",
            "wait_lock add",
            "count load",
            "count compare-exchange",
            "tail store",
            "head store",
            "wait_lock add",
        ];
        assert_xadd(&lock, 1, &[fails, &queues, &is_woken, leaves]);
        let wakes = ["wait_lock add", "wait_lock add"];
        assert_xadd(&lock, 0, &[&["count add", "count add"], &wakes]);
    }
    check::<Linux3_10>(&["count add"], &["count add"]);
    check::<Linux3_10FastFail>(&["count load"], &["count add"]);
    // Its addition is taken back first; nobody is the owner, so it does not spin.
    check::<Linux3_16>(
        &["count add", "count add", "owner load"],
        &["owner store", "owner store", "count add"],
    );
}

/// A thread behind one that holds the mutex and sleeps.
#[test]
fn a_thread_that_queues_for_the_mutex_does_what_it_did_in_2013() {
    let lock = KernelMutex::new(Cell::new(0));
    run(vec![
        Box::new(|| {
            let guard = lock.lock();
            timed::sleep(LATER);
            drop(guard);
        }),
        Box::new(|| {
            timed::sleep(LATER / 2);
            drop(lock.lock());
        }),
    ]);
    let queues = [
        "count add",
        "owner load",
        "wait_lock add",
        "tail store",
        "head store",
        // It sees twice that the mutex is contended: by its own subtraction.
        "count load",
        "count load",
        "wait_lock add",
    ];
    let is_woken = [
        "wait_lock add",
        "count load",
        "count exchange",
        "tail store",
        "head store",
        "owner store",
        "count store",
        "wait_lock add",
        "owner store",
    ];
    let leaves = ["owner store", "count add"];
    // SAFETY: the lock is only looked at.
    let raw = unsafe { lock.raw() };
    assert_did(raw, 1, "mutex", &[&queues, &is_woken, &leaves]);
    let wakes = ["wait_lock add", "count store", "wait_lock add"];
    assert_did(raw, 0, "mutex", &[&["count add", "owner store"], &leaves, &wakes]);
}

/// A thread that comes while another one runs inside, and so sends the release to `wait_lock`.
#[test]
fn a_thread_that_spins_on_the_mutex_does_what_it_did_in_2013() {
    let lock = KernelMutex::new(Cell::new(0));
    run(vec![
        Box::new(|| {
            let guard = lock.lock();
            timed::work(LATER);
            drop(guard);
        }),
        Box::new(|| {
            timed::work(LATER / 2);
            drop(lock.lock());
        }),
    ]);
    // SAFETY: the lock is only looked at.
    let raw = unsafe { lock.raw() };
    let wakes = ["wait_lock add", "count store", "wait_lock add"];
    let leaves = ["owner store", "count add"];
    assert_did(raw, 0, "mutex", &[&["count add", "owner store"], &leaves, &wakes]);
    let seen = accesses(raw, OLD_WORDS, 1);
    let begins = ["count add", "owner load", "spinners exchange", "owner load"];
    let ends = ["count compare-exchange", "owner store", "spinners compare-exchange"];
    assert_eq!(seen[..begins.len()], begins);
    let last = seen.len() - 3;
    assert_eq!(seen[last..], [&["owner store"], &leaves[..]].concat());
    assert_eq!(seen[last - ends.len()..last], ends);
}

/// Whether a writer that comes takes a free lock past a writer that is waking up.
#[test]
fn writers_steal_past_a_sleeping_writer() {
    fn passes<V: xadd_rwsem::Version>() -> bool {
        let lock = XaddLock::<V>::new(Cell::new(0));
        let passed = Cell::new(false);
        run(vec![
            Box::new(|| {
                let guard = lock.write();
                timed::sleep(LATER);
                drop(guard);
                let guard = lock.write();
                passed.set(guard.get() == 0);
                drop(guard);
            }),
            Box::new(|| {
                timed::sleep(LATER / 2);
                lock.write().set(1);
            }),
        ]);
        passed.get()
    }
    assert!(passes::<Linux3_10>());
    assert!(passes::<Linux3_10FastFail>());
    assert!(passes::<Linux3_16>());
}

// ---- who is let in ----

/// Readers and writers in this order, each 20 µs after the one before, behind a writer that sleeps meanwhile;
/// the order in which they were let in.
fn order_behind_a_writer<V: Version>(roles: &str) -> String {
    let lock = Lock::<V>::new(Cell::new(0));
    let order = RefCell::new(String::new());
    let mut bodies: Vec<Box<dyn FnOnce() + '_>> = vec![Box::new(|| {
        let guard = lock.write();
        timed::sleep(1_000_000);
        drop(guard);
    })];
    for (number, role) in roles.chars().enumerate() {
        let (lock, order) = (&lock, &order);
        bodies.push(Box::new(move || {
            timed::sleep(20_000 * (number as u64 + 1));
            if role == 'r' {
                let guard = lock.read();
                order.borrow_mut().push(role);
                timed::sleep(100_000);
                drop(guard);
            } else {
                let guard = lock.write();
                order.borrow_mut().push(role);
                timed::sleep(100_000);
                drop(guard);
            }
        }));
    }
    run(bodies);
    order.into_inner()
}

#[test]
fn a_wake_up_takes_the_readers_up_to_the_first_writer_or_all() {
    assert_eq!(order_behind_a_writer::<Linux5_1>("rrwrwr"), "rrwrwr");
    assert_eq!(order_behind_a_writer::<Linux5_2>("rrwrwr"), "rrrrww");
    assert_eq!(order_behind_a_writer::<NoReaderSteal>("rrwrwr"), "rrrrww");
    // A writer at the head is alone.
    assert_eq!(order_behind_a_writer::<Linux5_2>("wrwr"), "wrrw");
}

#[test]
fn a_wake_up_takes_256_readers_at_most() {
    let roles: String = std::iter::repeat_n('r', 300).collect();
    let inside = |lock: &Lock<Linux5_2>| {
        let most = Cell::new(0);
        let mut bodies: Vec<Box<dyn FnOnce() + '_>> = vec![Box::new(|| {
            let guard = lock.write();
            timed::sleep(100_000_000);
            drop(guard);
        })];
        for _ in roles.chars() {
            let most = &most;
            bodies.push(Box::new(move || {
                timed::sleep(1_000);
                let guard = lock.read();
                guard.set(guard.get() + 1);
                most.set(most.get().max(guard.get()));
                timed::sleep(100_000_000);
                guard.set(guard.get() - 1);
                drop(guard);
            }));
        }
        run(bodies);
        most.get()
    };
    assert_eq!(inside(&Lock::new(Cell::new(0))), 256);
}

/// A reader holds the lock, a writer waits, and a reader comes once the lock is free and the writer is waking up.
fn a_reader_passes_a_writer_that_wakes_up<V: Version>() -> bool {
    let lock = Lock::<V>::new(Cell::new(0));
    let passed = Cell::new(false);
    run(vec![
        Box::new(|| {
            let guard = lock.read();
            timed::sleep(LATER);
            drop(guard);
            let guard = lock.read();
            passed.set(guard.get() == 0);
            drop(guard);
        }),
        Box::new(|| {
            timed::sleep(LATER / 2);
            lock.write().set(1);
        }),
    ]);
    passed.get()
}

#[test]
fn a_reader_steals_past_a_sleeping_writer_where_the_version_lets_it() {
    assert!(a_reader_passes_a_writer_that_wakes_up::<Linux5_11>());
    assert!(!a_reader_passes_a_writer_that_wakes_up::<Linux5_1>());
    assert!(!a_reader_passes_a_writer_that_wakes_up::<Linux5_2>());
    assert!(!a_reader_passes_a_writer_that_wakes_up::<NoReaderSteal>());
}

/// How long a writer keeps its CPU before it sleeps behind readers that stay for long, ns.
fn spin_on_readers<V: Version>(readers: usize) -> u64 {
    let lock = Lock::<V>::new(Cell::new(0));
    let began = Cell::new(0);
    let mut bodies: Vec<Box<dyn FnOnce() + '_>> = vec![Box::new(|| {
        timed::sleep(LATER);
        began.set(timed::now());
        drop(lock.write());
    })];
    for _ in 0..readers {
        bodies.push(Box::new(|| {
            let guard = lock.read();
            timed::sleep(10 * LATER);
            drop(guard);
        }));
    }
    run(bodies).threads[0].spinning_ns
}

#[test]
fn a_writer_spins_on_readers_for_as_long_as_the_kernels_does() {
    assert_eq!(spin_on_readers::<Linux5_2>(1), 0);
    let spun = spin_on_readers::<Linux5_11>(1);
    assert!((10_000..12_000).contains(&spun), "{spun}");
    let spun = spin_on_readers::<NoReaderSteal>(4);
    assert!((11_500..13_500).contains(&spun), "{spun}");
}

#[test]
fn the_lock_has_a_line_of_its_own() {
    assert_eq!(size_of::<RawXaddRwSem<Linux3_16, Simulated>>(), 64);
    assert_eq!(size_of::<RawKernelMutex<Simulated>>(), 64);
    assert_eq!(size_of::<Raw<Linux5_1>>(), 64);
    assert_eq!(align_of::<Raw<Linux5_1>>(), 64);
    let _unlocked = <Raw<Linux5_11> as RawRwLock>::INIT;
}
