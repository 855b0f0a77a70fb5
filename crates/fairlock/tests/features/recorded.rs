//! What the feature `record` writes about a process. Its programs are tests of this file, which run in processes of their
//! own, each with a file.

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairlock::{
    Condvar, Mutex, ReentrantMutex, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard, RwSem,
};
use fairlock_counts::layout::{READ, WRITE};
use fairlock_counts::record::{How, Record, What};
use fairlock_counts::recording::{Recording, Thread};
use fairlock_counts::regular;
use fairlock_counts::snapshot::Snapshot;

/// Says to this program that it is one of those which are recorded.
const IS_RECORDED: &str = "FAIRLOCK_TEST_IS_RECORDED";
const SLEEP: Duration = Duration::from_millis(20);

/// What a program did, as its file says.
struct Recorded {
    recording: Option<Recording>,
    snapshot: Snapshot,
}

/// Runs the body of a test in a process of its own, to its good end, and returns what that has written; none in that
/// process.
fn run(test: &str, records: bool, body: impl FnOnce()) -> Option<Recorded> {
    if std::env::var_os(IS_RECORDED).is_some() {
        body();
        return None;
    }
    let directory = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([&format!("recorded::{test}"), "--exact", "--test-threads=1"]);
    command.env(IS_RECORDED, "1").env("FAIRLOCK_COUNTS", directory.path());
    command.env("FAIRLOCK_RECORD", if records { "1" } else { "0" });
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let mut files = fs::read_dir(directory.path()).expect("the folder");
    let path = files.next().expect("a file").expect("an entry").path();
    assert!(files.next().is_none(), "one process has one file");
    let file = regular::open(&path).expect("a file");
    Some(Recorded {
        recording: Recording::read(&file, usize::MAX).expect("a file of counts"),
        snapshot: Snapshot::read(&file).expect("a file of counts"),
    })
}

fn recorded(test: &str, body: impl FnOnce()) -> Option<(Recording, Snapshot)> {
    let recorded = run(test, true, body)?;
    Some((recorded.recording.expect("it records"), recorded.snapshot))
}

/// What the thread did, in words; locks are `a`, `b` and so on by their numbers.
fn steps(thread: &Thread) -> Vec<String> {
    let name = |lock: u32| char::from(b'a' + (lock - 2) as u8);
    let role = |is_write| if is_write { "write" } else { "read" };
    let word = |record: Record| match record.what {
        What::Asked { lock, is_write, how, is_granted, waited, .. } => {
            let how = match how {
                How::Waits => "",
                How::Tries => "try ",
                How::Timed => "timed ",
            };
            let end = match (is_granted, waited) {
                (true, false) => "",
                (true, true) => " waited",
                (false, false) => " refused",
                (false, true) => " waited, refused",
            };
            Some(format!("{how}{} {}{end}", role(is_write), name(lock)))
        }
        What::Released { lock, is_write, .. } => {
            Some(format!("end {} {}", role(is_write), name(lock)))
        }
        What::Looked { .. } | What::Window { .. } | What::Uncounted { .. } => None,
    };
    thread.records().filter_map(word).collect()
}

#[test]
fn operations_are_in_order_with_locks_roles_and_results() {
    let body = || {
        let (table, jobs) = (RwLock::new(0), Mutex::new(0));
        let read = table.read();
        let job = jobs.lock();
        assert!(table.try_write().is_none());
        assert!(table.try_write_for(Duration::ZERO).is_none());
        drop(job);
        drop(read);
        let read = table.upgradable_read();
        let write = RwLockUpgradableReadGuard::upgrade(read);
        drop(RwLockWriteGuard::downgrade(write));
        let read = table.try_upgradable_read().expect("nobody has it");
        let beside = table.try_read().expect("nobody writes");
        let Err(read) = RwLockUpgradableReadGuard::try_upgrade(read) else { panic!("read") };
        drop(beside);
        drop(read);
        let mut write = table.write();
        RwLockWriteGuard::bump(&mut write);
    };
    let test = "operations_are_in_order_with_locks_roles_and_results";
    let Some((recording, snapshot)) = recorded(test, body) else { return };
    let [thread] = &recording.threads[..] else { panic!("{:?}", recording.threads) };
    let expected = [
        "read a",
        "write b",
        "try write a refused",
        "timed write a waited, refused",
        "end write b",
        "end read a",
        // An upgrade is a release, and a request to write; a downgrade likewise.
        "read a",
        "end read a",
        "write a",
        "end write a",
        "read a",
        "end read a",
        "try read a",
        "try read a",
        "end read a",
        "try write a refused",
        "read a",
        "end read a",
        "end read a",
        "write a",
        "end write a",
        "write a",
        "end write a",
    ];
    assert_eq!(steps(thread), expected);
    let of = |number: usize| &snapshot.locks[number];
    assert_eq!((of(0).roles[READ].acquired, of(0).roles[WRITE].acquired), (6, 3));
    assert_eq!((of(0).roles[WRITE].refused, of(0).roles[WRITE].timed_out), (3, 1));
    assert_eq!((of(1).roles[READ].acquired, of(1).roles[WRITE].acquired), (0, 1));
    assert!(snapshot.locks.iter().all(|lock| lock.holding.is_empty()));
    // Both were local variables.
    assert!(recording.locks.iter().skip(1).all(|lock| lock.destroyed.is_some()));
    assert!(recording.locks.iter().skip(1).all(|lock| lock.first_used_at.is_some()));
    assert!(snapshot.ended.is_some());
}

#[test]
fn each_thread_has_what_it_did_to_each_kind_of_lock() {
    const ROUNDS: usize = 1000;
    let body = || {
        static TABLE: RwLock<usize> = RwLock::new(0);
        let (sem, counted, nested) = (RwSem::new(0), Mutex::new(0), ReentrantMutex::new(()));
        let many = |name: &str, work: &(dyn Fn() + Sync)| {
            thread::scope(|scope| {
                let builder = thread::Builder::new().name(name.to_owned());
                let work = || (0..ROUNDS).for_each(|_| work());
                builder.spawn_scoped(scope, work).expect("a thread").join().expect("no panic");
            });
        };
        thread::scope(|scope| {
            scope.spawn(|| many("readers", &|| assert!(*TABLE.read() <= ROUNDS)));
            scope.spawn(|| many("writers", &|| *TABLE.write() += 1));
            scope.spawn(|| many("sems", &|| drop((sem.read(), counted.lock()))));
            scope.spawn(|| many("semw", &|| *sem.write() += 1));
            // Twice by the same thread is one acquisition.
            scope.spawn(|| many("nested", &|| drop((nested.lock(), nested.lock()))));
        });
    };
    let test = "each_thread_has_what_it_did_to_each_kind_of_lock";
    let Some((recording, snapshot)) = recorded(test, body) else { return };
    let mut done: HashMap<&str, HashMap<(u32, bool), [usize; 2]>> = HashMap::new();
    for thread in &recording.threads {
        let done = done.entry(&thread.name).or_default();
        for record in thread.records() {
            match record.what {
                What::Asked { lock, is_write, is_granted, .. } => {
                    assert!(is_granted);
                    done.entry((lock, is_write)).or_default()[0] += 1;
                }
                What::Released { lock, is_write, .. } => {
                    done.entry((lock, is_write)).or_default()[1] += 1;
                }
                What::Looked { .. } | What::Window { .. } | What::Uncounted { .. } => {}
            }
        }
    }
    let only =
        |name: &str| done[name].iter().map(|(key, count)| (*key, *count)).collect::<Vec<_>>();
    let mut sizes: Vec<(&str, usize)> =
        done.iter().map(|(name, used)| (*name, used.len())).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [("nested", 1), ("readers", 1), ("sems", 2), ("semw", 1), ("writers", 1)]);
    assert!(done.values().flat_map(HashMap::values).all(|counts| *counts == [ROUNDS; 2]));
    let [((read, false), _)] = only("readers")[..] else { panic!("{done:?}") };
    assert!(
        done["writers"].contains_key(&(read, true)) && !done["semw"].contains_key(&(read, true))
    );
    let acquired: u64 = snapshot.locks.iter().map(|lock| lock.acquired()).sum();
    assert_eq!((acquired, snapshot.locks.len()), (6 * ROUNDS as u64, 4));
    // A place in the file is taken over from a thread that has ended.
    let lives: u32 = snapshot.threads.iter().map(|thread| thread.lives).sum();
    assert_eq!(lives, 5);
}

/// The longest that the thread `timed` was asleep.
fn away_ns(recording: &Recording) -> Option<f64> {
    let ticks_per_ns = {
        let [first, .., last] = &recording.moments[..] else { panic!("{recording:?}") };
        let [one, other] = if first[1] < last[1] { [first, last] } else { [last, first] };
        (other[0] - one[0]) as f64 / (other[1] - one[1]) as f64
    };
    let timed = recording.threads.iter().find(|thread| thread.name == "timed").expect("it locked");
    let longest = timed.records().filter_map(|record| match record.what {
        What::Looked { voluntary, .. } if voluntary > 0 => Some(record.since),
        _ => None,
    });
    Some(longest.max()? as f64 / ticks_per_ns)
}

#[test]
fn a_wait_with_a_condvar_is_time_away_without_the_mutex() {
    let body = || {
        let (is_ready, changed) = (Mutex::new(false), Condvar::new());
        thread::scope(|scope| {
            let waiter = thread::Builder::new().name("waiter".to_owned());
            let waits = || changed.wait_while(&mut is_ready.lock(), |is_ready| !*is_ready);
            waiter.spawn_scoped(scope, waits).expect("a thread");
            thread::sleep(SLEEP);
            *is_ready.lock() = true;
            changed.notify_one();
            let timed = || {
                let mut is_ready = is_ready.lock();
                assert!(changed.wait_for(&mut is_ready, SLEEP).timed_out());
            };
            thread::Builder::new()
                .name("timed".to_owned())
                .spawn_scoped(scope, timed)
                .expect("a thread");
        });
    };
    let test = "a_wait_with_a_condvar_is_time_away_without_the_mutex";
    let Some((mut recording, _)) = recorded(test, body) else { return };
    // On a busy machine a thread may have been stopped until it need not sleep any more, or between two looks at clocks.
    for _ in 0..20 {
        if away_ns(&recording).is_some_and(|ns| ns > SLEEP.as_nanos() as f64 / 2.0) {
            break;
        }
        (recording, _) = recorded(test, body).expect("this is not the process that is recorded");
    }
    let timed = recording.threads.iter().find(|thread| thread.name == "timed").expect("it locked");
    // The waiter may have held the mutex just then.
    let timed: Vec<String> = steps(timed).iter().map(|step| step.replace(" waited", "")).collect();
    assert_eq!(timed, ["write a", "end write a", "write a", "end write a"]);
    // The kernel does not wake it earlier.
    let away_ns = away_ns(&recording).expect("it slept");
    assert!(away_ns > SLEEP.as_nanos() as f64 / 2.0, "{away_ns}");
    // The waiter may have come too late to wait.
    let waiter = recording.threads.iter().find(|thread| thread.name == "waiter");
    let steps = steps(waiter.expect("it locked"));
    assert!(steps.iter().filter(|step| step.starts_with("write")).count() <= 2, "{steps:?}");
}

#[test]
fn locks_behind_lock_api_are_recorded() {
    macro_rules! used {
        ($api:ident) => {{
            use fairlock::$api::{RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};
            let lock = Arc::new(RwLock::<fairlock::RawRwLock, _>::new(0));
            drop(lock.read());
            let write = lock.try_write_arc().expect("nobody has it");
            assert!(lock.try_read().is_none() && lock.try_read_for(Duration::ZERO).is_none());
            drop(write);
            let read = RwLockWriteGuard::downgrade_to_upgradable(lock.write());
            RwLockUpgradableReadGuard::unlock_fair(read);
            let mutex = fairlock::$api::Mutex::<fairlock::RawMutex, _>::new(0);
            drop(mutex.lock());
        }};
    }
    macro_rules! used_0_4 {
        () => {{
            use fairlock::lock_api_04::{RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};
            let lock = Arc::new(RwLock::<fairlock::RawRwLock, _>::new(0));
            drop(lock.read());
            let write = lock.try_write_arc().expect("nobody has it");
            assert!(lock.try_read().is_none() && lock.try_read_for(Duration::ZERO).is_none());
            drop(write);
            let read: RwLockUpgradableReadGuard<'_, _, _> =
                RwLockWriteGuard::downgrade_to_upgradable(lock.write());
            drop(read);
            let mutex = fairlock::lock_api_04::Mutex::<fairlock::RawMutex, _>::new(0);
            drop(mutex.lock());
        }};
    }
    let body = || {
        thread::spawn(|| used!(lock_api)).join().expect("no panic");
        thread::spawn(|| used_0_4!()).join().expect("no panic");
    };
    let Some((recording, _)) = recorded("locks_behind_lock_api_are_recorded", body) else { return };
    let [new, old] = &recording.threads[..] else { panic!("{:?}", recording.threads) };
    let expected = [
        "read a",
        "end read a",
        "try write a",
        "try read a refused",
        "timed read a waited, refused",
        "end write a",
        "write a",
        "end write a",
        "read a",
        "end read a",
        "write b",
        "end write b",
    ];
    assert_eq!(steps(new), expected);
    let renamed = |step: &str| step.replace(" a", " c").replace(" b", " d");
    assert_eq!(steps(old), expected.map(renamed));
}

#[test]
fn a_wait_is_counted_with_its_place_and_what_it_waited_for() {
    let body = || {
        let lock = RwSem::new(0);
        let held = lock.write();
        thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_read_for(Duration::from_millis(1)).is_none()));
        });
        drop(held);
    };
    let test = "a_wait_is_counted_with_its_place_and_what_it_waited_for";
    let Some((_, snapshot)) = recorded(test, body) else { return };
    let [lock] = &snapshot.locks[..] else { panic!("{:?}", snapshot.locks) };
    assert_eq!((lock.roles[READ].wait.count, lock.roles[WRITE].wait.count), (1, 0));
    assert_eq!((lock.roles[READ].acquired, lock.roles[READ].timed_out), (0, 1));
    assert_eq!(lock.waited_for[READ][WRITE].count, 1);
    assert_eq!((lock.sites.len(), lock.sites[0].role), (1, READ));
    assert!(snapshot.stacks[&lock.sites[0].stack].len() > 2);
    assert!(lock.waiting.is_empty());
}

#[test]
fn a_process_that_is_not_asked_to_record_only_counts() {
    let body = || drop(Mutex::new(0).lock());
    let test = "a_process_that_is_not_asked_to_record_only_counts";
    let Some(counted) = run(test, false, body) else { return };
    assert!(counted.recording.is_none());
    assert_eq!(counted.snapshot.locks[0].roles[WRITE].acquired, 1);
}

#[test]
fn a_child_process_that_was_forked_off_goes_on_in_the_file_as_another_thread() {
    let body = || {
        let lock = Mutex::new(0);
        let held = lock.lock();
        // SAFETY: the child only uses locks, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(held);
            (0..7).for_each(|_| drop(lock.lock()));
            // SAFETY: a plain call.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: a child of this process, whose status nobody wants.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
        drop(held);
    };
    let test = "a_child_process_that_was_forked_off_goes_on_in_the_file_as_another_thread";
    let Some((recording, _)) = recorded(test, body) else { return };
    let [parent, child] = &recording.threads[..] else { panic!("{:?}", recording.threads) };
    assert_eq!((parent.pid, child.pid == recording.pid), (recording.pid, false));
    assert_eq!(steps(parent), ["write a", "end write a"]);
    let asked = steps(child).iter().filter(|step| *step == "write a").count();
    // What the child released first was acquired by the parent.
    assert_eq!((asked, steps(child).len()), (7, 15));
}
