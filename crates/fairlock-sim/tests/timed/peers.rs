//! glibc's locks, those of Rust's standard library and parking_lot's on a simulated machine: what each operation does to the
//! lock's words, against what the originals do, and what it costs where they hand the lock over.
//!
//! That without contention a read costs one addition and one compare-exchange is glibc's own figure, in the first comment
//! of `nptl/pthread_rwlock_common.c`. The other lists follow its functions, those of the standard library's `futex.rs`, and
//! those of parking_lot's `raw_rwlock.rs` and `raw_mutex.rs`, statement by statement.

use std::cell::Cell;

use fairlock::lock_api::{Mutex, RawMutex, RawRwLock, RwLock};
use fairlock::policy::TimeFair;
use fairlock::rwsem::RawRwSem;
use fairlock_reference::parking_lot::mutex::RawParkingLotMutex;
use fairlock_reference::parking_lot::rwlock::RawParkingLotRwLock;
use fairlock_reference::parking_lot::{V0_12, V0_13, Version};
use fairlock_reference::pthread::mutex::{Adaptive, Normal, RawPthreadMutex};
use fairlock_reference::pthread::rwlock::{
    Kind, PreferReader, PreferWriter, PreferWriterNonrecursive, RawPthreadRwLock,
};
use fairlock_reference::rust_std::mutex::RawStdMutex;
use fairlock_reference::rust_std::rwlock::RawStdRwLock;
use fairlock_sim::Sim;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed;

use crate::logged::{self, Logged, run};

type Pthread<K> = RawPthreadRwLock<K, Logged>;

/// As in the declaration of the lock.
const PTHREAD: &[&str] = &["readers", "writers", "phase_futex", "writers_futex", "writer"];
const PTHREAD_MUTEX: &[&str] = &["word", "owner", "users", "spins"];
const STD: &[&str] = &["state", "notifications"];
const STD_MUTEX: &[&str] = &["word"];

/// A queue of parking_lot's, on a line of its own: the words in units of 32 bits, as are all of these.
const QUEUE: [&str; 16] = {
    let mut words = [""; 16];
    words[0] = "lock";
    words[1] = "seed";
    words[2] = "head";
    words[4] = "tail";
    words[6] = "due";
    words
};

/// A lock of parking_lot's with its queues, each of which has the words of [`QUEUE`] after its own name.
fn parking_lot(word: &str, queues: &[&str]) -> Vec<String> {
    let mut words = vec![String::new(); 16];
    words[0] = word.to_owned();
    for queue in queues {
        words.extend(QUEUE.map(|word| format!("{queue}.{word}")));
    }
    words
}

/// What a thread did to the lock in the last run.
fn accesses<L>(lock: &L, words: &[impl AsRef<str>], thread: usize) -> Vec<String> {
    assert_eq!(size_of::<L>(), 4 * words.len());
    let start = std::ptr::from_ref(lock).addr();
    let mut seen = Vec::new();
    logged::log_of_run(|log| {
        let word_at = |address: usize| words.get(address.checked_sub(start)? / 4);
        let of_thread = log.iter().filter(|entry| entry.thread == thread);
        let named = of_thread.filter_map(|entry| Some((word_at(entry.address)?, entry.what)));
        seen.extend(named.map(|(word, what)| format!("{} {what}", word.as_ref())));
    });
    seen
}

/// How many of these are locked instructions.
fn locked_instructions(accesses: &[String]) -> usize {
    let plain = ["load", "store", "sleep", "wake one", "wake all"];
    accesses.iter().filter(|access| !plain.iter().any(|plain| access.ends_with(plain))).count()
}

/// What it does without contention, and how many locked instructions that takes.
fn assert_costs<L>(
    lock: &L,
    words: &[impl AsRef<str>],
    does: impl Fn(&L),
    expected: &[&str],
    locked: usize,
) {
    run(vec![Box::new(|| does(lock))]);
    let seen = accesses(lock, words, 0);
    assert_eq!(seen, expected, "{}", std::any::type_name::<L>());
    assert_eq!(locked_instructions(&seen), locked);
}

fn read<R: RawRwLock>(lock: &R) {
    let guard = lock.lock_shared();
    // SAFETY: acquired just now.
    unsafe { lock.unlock_shared(guard) };
}

fn write<R: RawRwLock>(lock: &R) {
    let guard = lock.lock_exclusive();
    // SAFETY: acquired just now.
    unsafe { lock.unlock_exclusive(guard) };
}

fn lock<R: RawMutex>(lock: &R) {
    let guard = lock.lock();
    // SAFETY: acquired just now.
    unsafe { lock.unlock(guard) };
}

#[test]
fn what_nobody_disputes_costs_what_it_costs_in_glibc() {
    fn check<K: Kind>() {
        let all = Pthread::<K>::INIT;
        // A fresh lock is in a phase of readers.
        let looks_first: &[&str] = if K::READERS_QUEUE { &["readers load"] } else { &[] };
        let reads = ["readers add", "readers load", "readers compare-exchange"];
        let expected = [&["writer load"], looks_first, &reads].concat();
        assert_costs(&all, PTHREAD, read, &expected, 2);

        let looks_for_writers: &[&str] =
            if K::HANDS_OVER_TO_WRITERS { &["writers load"] } else { &[] };
        let becomes_primary = ["writer load", "readers or", "writers_futex store"];
        // The first attempt is in vain: it expects the word without `WRITER`.
        let starts_phase =
            ["readers compare-exchange fails", "readers compare-exchange", "phase_futex store"];
        let leaves = [
            &["writer store", "writer store", "writers_futex exchange"],
            looks_for_writers,
            &["readers load", "readers compare-exchange"],
        ]
        .concat();
        let expected = [&becomes_primary[..], &starts_phase, &leaves].concat();
        assert_costs(&all, PTHREAD, write, &expected, 5);
        // It has left the lock in a phase of writers.
        let expected = [&becomes_primary[..], &leaves].concat();
        assert_costs(&all, PTHREAD, write, &expected, 3);
        // A reader ends that.
        let starts_phase = ["readers add", "readers compare-exchange", "phase_futex exchange"];
        let leaves = ["readers load", "readers compare-exchange"];
        let expected = [&["writer load"], looks_first, &starts_phase, &leaves].concat();
        assert_costs(&all, PTHREAD, read, &expected, 4);
    }
    check::<PreferReader>();
    check::<PreferWriter>();
    check::<PreferWriterNonrecursive>();

    let expected = [
        "word compare-exchange",
        "owner store",
        "users load",
        "users store",
        "owner store",
        "users load",
        "users store",
        "word exchange",
    ];
    let normal = RawPthreadMutex::<Normal, Logged>::INIT;
    assert_costs(&normal, PTHREAD_MUTEX, lock, &expected, 2);
    let adaptive = RawPthreadMutex::<Adaptive, Logged>::INIT;
    assert_costs(&adaptive, PTHREAD_MUTEX, lock, &expected, 2);
}

#[test]
fn what_nobody_disputes_costs_what_it_costs_in_the_standard_library() {
    let all = RawStdRwLock::<Logged>::INIT;
    let expected = ["state load", "state compare-exchange", "state add"];
    assert_costs(&all, STD, read, &expected, 2);
    assert_costs(&all, STD, write, &expected[1..], 2);
    let expected = ["word compare-exchange", "word exchange"];
    let mutex = RawStdMutex::<Logged>::INIT;
    assert_costs(&mutex, STD_MUTEX, lock, &expected, 2);
}

#[test]
fn what_nobody_disputes_costs_what_it_costs_in_parking_lot() {
    fn check<V: Version>(leaves: &str) {
        let all = RawParkingLotRwLock::<V, Logged>::INIT;
        let words = parking_lot("state", &["waiters", "writer"]);
        let expected = ["state load", "state compare-exchange", "state add"];
        assert_costs(&all, &words, read, &expected, 2);
        let expected = ["state compare-exchange", &format!("state {leaves}")];
        assert_costs(&all, &words, write, &expected, 2);
        let mutex = RawParkingLotMutex::<V, Logged>::INIT;
        let expected = ["word compare-exchange", &format!("word {leaves}")];
        assert_costs(&mutex, &parking_lot("word", &["waiters"]), lock, &expected, 2);
    }
    check::<V0_12>("compare-exchange");
    check::<V0_13>("add");
}

/// From here on, until everybody has come where the test wants them.
const LATER: u64 = 100_000;

/// A writer's release with readers asleep: one exchange and one call for all of them.
#[test]
fn one_call_of_glibc_s_writer_wakes_all_readers() {
    let lock = RwLock::<Pthread<PreferReader>, ()>::new(());
    let mut bodies: Vec<Box<dyn FnOnce()>> = vec![Box::new(|| {
        let guard = lock.write();
        timed::sleep(LATER);
        drop(guard);
    })];
    for _ in 0..3 {
        bodies.push(Box::new(|| {
            timed::sleep(LATER / 2);
            drop(lock.read());
        }));
    }
    let report = run(bodies);
    // SAFETY: the lock is only looked at.
    let raw = unsafe { lock.raw() };
    let writer = accesses(raw, PTHREAD, 0);
    let release = [
        "writer store",
        "writers_futex exchange",
        "readers load",
        "readers compare-exchange",
        "phase_futex exchange",
        "phase_futex wake all",
    ];
    assert_eq!(writer[writer.len() - release.len()..], release);
    // The three that slept on the lock, beside the ends of everybody's `timed::sleep`.
    assert_eq!(report.counts.wakeups, 3 + 4);
    // One of them says for all that somebody sleeps.
    let readers: Vec<_> = (1..=3).flat_map(|thread| accesses(raw, PTHREAD, thread)).collect();
    let times = |what: &str| readers.iter().filter(|access| *access == what).count();
    assert_eq!(times("phase_futex sleep"), 3);
    assert_eq!(times("phase_futex compare-exchange"), 1);
}

/// The last reader's release with a writer asleep, and the end of that writer's wait.
#[test]
fn glibc_s_last_reader_hands_the_lock_to_the_writer_that_sleeps() {
    let lock = RwLock::<Pthread<PreferReader>, ()>::new(());
    run(vec![
        Box::new(|| {
            let guard = lock.read();
            timed::sleep(LATER);
            drop(guard);
            // It has just been the last, and comes too late.
            assert!(lock.try_read().is_none());
        }),
        Box::new(|| {
            timed::sleep(LATER / 2);
            drop(lock.write());
        }),
    ]);
    // SAFETY: the lock is only looked at.
    let raw = unsafe { lock.raw() };
    let reader = accesses(raw, PTHREAD, 0);
    let reads = ["writer load", "readers add"];
    let hands_over = [
        "readers load",
        "readers compare-exchange",
        "phase_futex exchange",
        "phase_futex wake all",
    ];
    let tries = ["readers load"];
    assert_eq!(reader, [&reads[..], &hands_over, &tries].concat());
    let waits = [
        "writer load",
        "readers or",
        "writers_futex store",
        "phase_futex load",
        "phase_futex compare-exchange",
        "phase_futex sleep",
        "phase_futex load",
        // Has the phase begun? Then one last look whether that was announced.
        "readers load",
        "phase_futex load",
        "writer store",
    ];
    assert_eq!(accesses(raw, PTHREAD, 1)[..waits.len()], waits);
}

/// A writer of the standard library leaves the flag for readers behind when it wakes a writer, and wakes readers if that
/// was the last one.
#[test]
fn the_standard_library_wakes_readers_when_no_writer_is_left() {
    let lock = RwLock::<RawStdRwLock<Logged>, ()>::new(());
    run(vec![
        Box::new(|| {
            let guard = lock.write();
            timed::sleep(LATER);
            drop(guard);
        }),
        Box::new(|| {
            timed::sleep(LATER / 4);
            drop(lock.write());
        }),
        Box::new(|| {
            timed::sleep(LATER / 2);
            drop(lock.read());
        }),
    ]);
    // SAFETY: the lock is only looked at.
    let raw = unsafe { lock.raw() };
    let leaves =
        ["state add", "state compare-exchange", "notifications add", "notifications wake one"];
    let first = accesses(raw, STD, 0);
    assert_eq!(first[first.len() - leaves.len()..], leaves);
    // Nobody was woken by that, as the call tells.
    let last = accesses(raw, STD, 1);
    let wakes_readers = [&leaves[..], &["state compare-exchange", "state wake all"]].concat();
    assert_eq!(last[last.len() - wakes_readers.len()..], wakes_readers);
}

/// A spin of the standard library is as long as a hundred turns of the machine.
#[test]
fn a_spin_of_the_standard_library_ends_after_a_hundred_turns() {
    let profile = Profile::example();
    let turns = |turns: f64| (turns * profile.cost.pause_ns) as u64;
    let sleeps_if_held_for = |ns: u64| {
        let lock = Mutex::<RawStdMutex<Logged>, ()>::new(());
        run(vec![
            Box::new(|| {
                let guard = lock.lock();
                timed::work(LATER + ns);
                drop(guard);
            }),
            Box::new(|| {
                timed::work(LATER);
                drop(lock.lock());
            }),
        ]);
        // SAFETY: the lock is only looked at.
        let waiter = accesses(unsafe { lock.raw() }, STD_MUTEX, 1);
        waiter.contains(&"word sleep".to_string())
    };
    assert!(!sleeps_if_held_for(turns(50.0)));
    assert!(sleeps_if_held_for(turns(200.0)));
}

/// A writer holds the lock while two readers, a writer and a third reader fall asleep, in this order. What the first writer
/// does to the lock when it leaves, and what was done by whom it woke first.
fn a_release_of_parking_lot<V: Version>() -> (Vec<String>, Vec<String>) {
    let lock = RwLock::<RawParkingLotRwLock<V, Logged>, ()>::new(());
    let mut bodies: Vec<Box<dyn FnOnce()>> = vec![Box::new(|| {
        let guard = lock.write();
        timed::sleep(LATER);
        drop(guard);
    })];
    for (at, writes) in [(1, false), (2, false), (3, true), (4, false)] {
        let lock = &lock;
        bodies.push(Box::new(move || {
            timed::sleep(at * LATER / 5);
            if writes {
                drop(lock.write());
            } else {
                drop(lock.read());
            }
        }));
    }
    run(bodies);
    let words = parking_lot("state", &["waiters", "writer"]);
    // SAFETY: the lock is only looked at.
    let raw = unsafe { lock.raw() };
    (accesses(raw, &words, 0), accesses(raw, &words, 1))
}

/// In version 0.12, a first release hands the lock over: to the readers at the front and the writer behind them, as one store.
#[test]
fn parking_lot_0_12_hands_the_lock_to_all_whom_it_wakes() {
    let (writer, reader) = a_release_of_parking_lot::<V0_12>();
    let release = [
        "state compare-exchange fails",
        "waiters.lock compare-exchange",
        "waiters.head load",
        "waiters.head store",
        "waiters.due load",
        "waiters.seed load",
        "waiters.seed store",
        "waiters.due store",
        "state store",
        "waiters.lock exchange",
    ];
    assert_eq!(writer[writer.len() - release.len()..], release);
    // It finds itself inside.
    assert_eq!(reader.last().unwrap(), "state add");
    assert_eq!(reader[reader.len() - 2], "waiters.lock exchange", "{reader:?}");
}

/// In version 0.13, a release makes the lock free before it goes for the queue, and those whom it wakes start again.
#[test]
fn parking_lot_0_13_makes_the_lock_free_and_then_wakes() {
    let (writer, reader) = a_release_of_parking_lot::<V0_13>();
    let release = [
        "state add",
        "waiters.lock compare-exchange",
        "waiters.head load",
        "waiters.head store",
        "waiters.lock exchange",
    ];
    assert_eq!(writer[writer.len() - release.len()..], release);
    let starts_again = ["waiters.lock exchange", "state load", "state compare-exchange"];
    assert!(reader.windows(3).any(|accesses| accesses == starts_again), "{reader:?}");
}

/// Two steps of parking_lot's writer: it takes the lock from the readers that would come, and sleeps until those inside have
/// left, in a queue of its own.
#[test]
fn parking_lot_s_last_reader_wakes_the_writer_that_waits_for_it() {
    let lock = RwLock::<RawParkingLotRwLock<V0_13, Logged>, ()>::new(());
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
    let words = parking_lot("state", &["waiters", "writer"]);
    // SAFETY: the lock is only looked at.
    let raw = unsafe { lock.raw() };
    let leaves = [
        "state add",
        "writer.lock compare-exchange",
        "writer.head load",
        "writer.head store",
        "writer.tail store",
        "state and",
        "writer.lock exchange",
    ];
    let reader = accesses(raw, &words, 0);
    assert_eq!(reader[reader.len() - leaves.len()..], leaves);
    let claims = ["state compare-exchange fails", "state load", "state compare-exchange"];
    // Ten rounds, and a look before and after each.
    let spins = ["state load"; 11];
    let sleeps = [
        "state compare-exchange",
        "writer.lock compare-exchange",
        "state load",
        "writer.tail load",
        "writer.head store",
        "writer.tail store",
        "writer.lock exchange",
    ];
    let goes_on = ["state load", "state add"];
    let expected = [&claims[..], &spins, &sleeps, &goes_on].concat();
    assert_eq!(accesses(raw, &words, 1), expected);
}

/// A thread that is in nobody's way looks at parking_lot's mutex before each of ten rounds and once more; then it sleeps.
#[test]
fn a_spin_of_parking_lot_ends_after_ten_rounds() {
    fn looks<V: Version>() -> usize {
        let lock = Mutex::<RawParkingLotMutex<V, Logged>, ()>::new(());
        run(vec![
            Box::new(|| {
                let guard = lock.lock();
                timed::sleep(LATER);
                drop(guard);
            }),
            Box::new(|| {
                timed::work(LATER / 2);
                drop(lock.lock());
            }),
        ]);
        // SAFETY: the lock is only looked at.
        let waiter = accesses(unsafe { lock.raw() }, &parking_lot("word", &["waiters"]), 1);
        let sleeps = waiter.iter().position(|access| access.starts_with("waiters.")).unwrap();
        waiter[..sleeps].iter().filter(|access| *access == "word load").count()
    }
    assert_eq!([looks::<V0_12>(), looks::<V0_13>()], [11, 11]);
}

/// One thread has the mutex for 50 µs and takes it again at once, always. How often another one gets it that wants it 50 µs after
/// it last had it, in 20 ms.
fn acquisitions_beside_a_glutton<V: Version>() -> u32 {
    const END: u64 = 20_000_000;
    let lock = Mutex::<RawParkingLotMutex<V, Sim>, ()>::new(());
    let acquisitions = Cell::new(0);
    run(vec![
        Box::new(|| {
            while timed::now() < END {
                let guard = lock.lock();
                timed::work(50_000);
                drop(guard);
            }
        }),
        Box::new(|| {
            loop {
                timed::sleep(50_000);
                let guard = lock.lock();
                if timed::now() >= END {
                    break;
                }
                acquisitions.set(acquisitions.get() + 1);
                drop(guard);
            }
        }),
    ]);
    acquisitions.get()
}

/// What eventual fairness is for, and what giving it up means.
#[test]
fn parking_lot_0_12_hands_the_mutex_over_within_a_millisecond_and_0_13_does_not() {
    let fair = acquisitions_beside_a_glutton::<V0_12>();
    assert!(fair >= 20, "{fair}");
    assert_eq!(acquisitions_beside_a_glutton::<V0_13>(), 0);
}

// ---- convoys ----

/// Two readers and two writers with short sections, each on a CPU of its own, for 5 ms: wake-ups per operation.
fn wake_ups_for_short_sections<R: RawRwLock>() -> f64 {
    let lock = RwLock::<R, ()>::new(());
    let operations = Cell::new(0);
    let body = |is_reader: bool, seed: u32| {
        let (lock, operations) = (&lock, &operations);
        let body = move || {
            let mut chance = seed;
            while timed::now() < 5_000_000 {
                if is_reader {
                    let _held = lock.read();
                    timed::compute(5);
                } else {
                    let _held = lock.write();
                    timed::compute(5);
                }
                operations.set(operations.get() + 1);
                // Not in step.
                chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                timed::compute(20 + (chance >> 28));
            }
        };
        Box::new(body) as Box<dyn FnOnce() + '_>
    };
    let report = run(vec![body(true, 1), body(true, 2), body(false, 3), body(false, 4)]);
    report.counts.wakeups as f64 / f64::from(operations.get())
}

/// Why databases gain under Fairlock, in the simulator's exact counts: a release of glibc's lock gives it to a thread that
/// sleeps, and everybody who comes before that one runs goes to sleep as well.
#[test]
fn short_sections_form_a_convoy_under_glibc_s_lock() {
    let readers_first = wake_ups_for_short_sections::<RawPthreadRwLock<PreferReader, Sim>>();
    let writers_first =
        wake_ups_for_short_sections::<RawPthreadRwLock<PreferWriterNonrecursive, Sim>>();
    let std = wake_ups_for_short_sections::<RawStdRwLock<Sim>>();
    let fairlock = wake_ups_for_short_sections::<RawRwSem<TimeFair, Sim>>();
    let all = format!("{readers_first} {writers_first} {std} {fairlock}");
    assert!(readers_first > 0.2 && writers_first > 0.2, "{all}");
    assert!(std < 0.02 && fairlock < 0.02, "{all}");
}
