//! Every registered lock runs every workload; the broken one is caught by each of them.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use fairlock_lab::error::LabError;
use fairlock_lab::locks::{self, KERNEL, Kind};
use fairlock_lab::workload::AnyWorkload;
use fairlock_lab::workloads::dio::{
    DioKernel, DioKernelApart, DioLock, DioLog, DioLogApart, DioSleep, Io,
};
use fairlock_lab::workloads::forkstorm::{self, Forkstorm};
use fairlock_lab::workloads::log::{self, Log, Syncing};
use fairlock_lab::workloads::mix::{Arrival, Mix, Order};
use fairlock_lab::workloads::readseek::{
    Overlap, Reads, Readseek, ReadseekKernel, ReadseekKernelTmpfs, ReadseekProcesses,
};
use fairlock_lab::workloads::revocation::Revocation;
use fairlock_lab::workloads::rmapstorm::Rmapstorm;
use fairlock_lab::workloads::turns::Turns;
use fairlock_lab::workloads::uncontended::Uncontended;
use fairlock_report::params::Value;
use fairlock_report::row::{RoleStats, Row};
use fairlock_report::units::Length;
use fairlock_study::plan::{self, Cell, Plan};
use fairlock_study::registry;

const SECONDS: f64 = 0.03;

/// Where there is no directory: most workloads need none.
const NOWHERE: &str = "/nowhere";

fn cell(workload: &AnyWorkload, lock: &str) -> Cell {
    Cell {
        workload: workload.clone(),
        lock: lock.to_string(),
        repetitions: 1,
        seconds: SECONDS,
        on: None,
        for_limit: false,
    }
}

/// A plan of these cells, with their files in `directory`.
fn plan(cells: Vec<Cell>, directory: &Path) -> Plan {
    Plan { directory: directory.to_path_buf(), ..Plan::new(cells) }
}

fn run_all(workload: impl Into<AnyWorkload>) -> Result<Vec<Row>, LabError> {
    run_all_in(Path::new(NOWHERE), workload)
}

fn run_all_in(directory: &Path, workload: impl Into<AnyWorkload>) -> Result<Vec<Row>, LabError> {
    let workload = workload.into();
    let names = registry::all_locks(workload.name(), false);
    run_each_in(directory, workload, &names)
}

fn run_each(workload: impl Into<AnyWorkload>, names: &[&str]) -> Result<Vec<Row>, LabError> {
    run_each_in(Path::new(NOWHERE), workload, names)
}

fn run_each_in(
    directory: &Path,
    workload: impl Into<AnyWorkload>,
    names: &[&str],
) -> Result<Vec<Row>, LabError> {
    run_cells(directory, workload, names, SECONDS)
}

fn run_each_for(
    workload: impl Into<AnyWorkload>,
    names: &[&str],
    seconds: f64,
) -> Result<Vec<Row>, LabError> {
    run_cells(Path::new(NOWHERE), workload, names, seconds)
}

fn run_cells(
    directory: &Path,
    workload: impl Into<AnyWorkload>,
    names: &[&str],
    seconds: f64,
) -> Result<Vec<Row>, LabError> {
    run_until(everybody_acted, directory, workload, names, seconds)
}

/// Something was done in time, and where waits are timed, each thread waited.
fn everybody_acted(row: &Row) -> bool {
    let acted =
        |role: &RoleStats| role.wait.count == 0 || role.wait.count >= u64::from(role.threads);
    row.total_ops_per_s.median > 0.0 && row.roles.values().all(acted)
}

/// Runs under each lock, and for longer where not enough came of it: a busy machine may keep a thread from running.
fn run_until(
    is_enough: impl Fn(&Row) -> bool,
    directory: &Path,
    workload: impl Into<AnyWorkload>,
    names: &[&str],
    seconds: f64,
) -> Result<Vec<Row>, LabError> {
    let workload = workload.into();
    let run = |names: &[&str], seconds| {
        let cells = names.iter().map(|lock| Cell { seconds, ..cell(&workload, lock) }).collect();
        plan::run(&plan(cells, directory), &mut ())
    };
    let mut rows = run(names, seconds)?;
    assert_eq!(rows.iter().map(|row| row.lock.as_str()).collect::<Vec<_>>(), names);
    for row in &mut rows {
        let lengths = [10.0, 100.0, 1_000.0].map(|times| times * seconds);
        for longer in lengths {
            if is_enough(row) {
                break;
            }
            *row = run(&[&row.lock], longer)?.remove(0);
        }
    }
    Ok(rows)
}

/// As many threads as even a small machine has CPUs: these locks hand themselves to threads that
/// may not run.
#[test]
fn every_reference_lock_runs_every_workload() {
    let references = locks::registry().iter().filter(|lock| lock.kind == Kind::Reference);
    let references: Vec<_> = references.map(|lock| lock.name).collect();
    let directory = disk();
    for workload in [
        Mix::dedicated(1, 1).into(),
        Mix::mixed(2, 50.0).into(),
        turns(2, 50.0, 256).into(),
        forkstorm(2).into(),
        rmapstorm(2, 50.0).into(),
        DioSleep::default().into(),
        dio_lock(),
    ] {
        let result = run_each_in(directory.path(), workload, &references);
        for row in rows_unless_refused(result).into_iter().flatten() {
            assert!(row.roles.values().any(|role| role.hold.count > 0), "{row:?}");
        }
    }
}

fn assert_broken_is_caught(workload: impl Into<AnyWorkload>) {
    assert_broken_is_caught_in(Path::new(NOWHERE), workload);
}

fn assert_broken_is_caught_in(directory: &Path, workload: impl Into<AnyWorkload>) {
    let workload = workload.into();
    let broken = locks::registry().iter().find(|lock| lock.kind == Kind::Broken).unwrap();
    // The first overlap ends the run; the length only bounds a check that does not work.
    let cells = vec![Cell { seconds: 10.0, ..cell(&workload, broken.name) }];
    match plan::run(&plan(cells, directory), &mut ()) {
        Err(LabError::Broken { lock, .. }) => assert_eq!(lock, broken.name),
        other => panic!("`{}` did not notice: {other:?}", workload.name()),
    }
}

fn io() -> Io {
    Io { read_bytes: 16 * 1024, ..Io::default() }
}

fn dio_lock() -> AnyWorkload {
    DioLock { io: io() }.into()
}

fn dio_kernel() -> AnyWorkload {
    DioKernel { io: io() }.into()
}

/// A directory on the filesystem of the build, which is a disk more often than `/tmp` is.
fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Only a filesystem that really has no O_DIRECT may excuse a test.
fn rows_unless_refused(result: Result<Vec<Row>, LabError>) -> Option<Vec<Row>> {
    match result {
        Err(error @ LabError::NoDirectIo { .. }) => {
            eprintln!("skipped: {error}");
            None
        }
        other => Some(other.unwrap()),
    }
}

fn assert_empty(directory: &Path) {
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0, "a scratch file was left");
}

#[test]
fn every_lock_runs_mix_with_dedicated_roles() {
    for row in run_all(Mix::dedicated(2, 2)).unwrap() {
        assert_eq!(row.roles["reader"].threads, 2);
        assert_eq!(row.roles["writer"].threads, 2);
        for (name, role) in &row.roles {
            // Even a starved thread waited for its one operation.
            assert!(role.wait.count >= 2, "{} {name}: {role:?}", row.lock);
            // Whole operations are sampled, but none with a long wait is missed.
            let seen = role.latency.max >= role.wait.max || role.wait.max < 50_000;
            assert!(seen, "{} {name}: {role:?}", row.lock);
            assert!(role.hold.count > 0, "{} {name}: {role:?}", row.lock);
        }
        assert!(row.total_ops_per_s.median > 0.0);
        assert!(row.roles["writer"].longest_bypass.is_some());
        assert!(row.roles["reader"].longest_bypass.is_none());
    }
}

#[test]
fn every_lock_runs_mix_with_mixed_roles() {
    for row in run_all(Mix::mixed(4, 90.0)).unwrap() {
        assert_eq!(row.roles["reader"].threads, 4);
        assert_eq!(row.roles["writer"].threads, 4);
        let rate = |role: &str| row.roles[role].ops_per_s.median;
        // Of a few operations, as on a busy machine, most may be writes by chance.
        let few = row.total_ops_per_s.median * row.seconds < 200.0;
        assert!(few || rate("reader") > rate("writer"), "{row:?}");
    }
}

#[test]
fn threads_arrive_in_any_order_and_manner() {
    let locks = ["rwsem", "std", "ticket", "linux-5.2"];
    for arrival in [Arrival::Staggered, Arrival::Queued] {
        let mix = Mix { order: Some(Order::Shuffled), arrival, ..Mix::dedicated(2, 2) };
        for row in run_each(mix, &locks).unwrap() {
            for (name, role) in &row.roles {
                assert_eq!(role.threads, 2);
                // Each thread's last operation is waited for.
                assert!(role.wait.count >= 2, "{} {name}: {role:?}", row.lock);
            }
            assert!(row.total_ops_per_s.median > 0.0, "{row:?}");
        }
    }
}

#[test]
fn a_role_that_cannot_act_has_no_stats() {
    let read_section = Some(Length::Nanoseconds(500));
    let rows = run_each(Mix { read_section, ..Mix::mixed(2, 100.0) }, &["std"]).unwrap();
    assert_eq!(rows[0].roles.keys().collect::<Vec<_>>(), ["reader"]);
}

#[test]
fn thinned_out_timing_still_counts_every_read() {
    let thinned = Mix { time_reads_every: 100, ..Mix::mixed(2, 99.0) };
    for row in run_all(thinned).unwrap() {
        let reader = &row.roles["reader"];
        let reads = reader.ops_per_s.median * row.seconds;
        assert!((reader.wait.count as f64) < reads / 2.0, "{}: {reader:?}", row.lock);
    }
}

fn turns(threads: u32, read_percent: f64, time_every: u32) -> Turns {
    Turns { threads, read_percent, time_every, ..Turns::default() }
}

#[test]
fn every_lock_runs_turns_and_times_a_few_of_them() {
    for row in run_all(turns(4, 90.0, 64)).unwrap() {
        for (name, role) in &row.roles {
            let ops = role.ops_per_s.median * row.seconds;
            assert_eq!(role.threads, 4);
            // The first 64 operations of each thread are timed.
            let few = ops < 3.0 * 64.0 * 4.0;
            let thinned = few || (role.wait.count as f64) < ops;
            assert!(role.wait.count > 0 && thinned, "{}: {name}", row.lock);
            assert_eq!((role.wait.count, role.longest_bypass), (role.hold.count, None));
        }
    }
}

#[test]
fn turns_read_as_often_as_asked() {
    for percent in [100.0, 99.9, 99.0, 50.0, 0.0] {
        let rows = run_each(turns(1, percent, 256), &["rwlock", "std"]).unwrap();
        for row in rows {
            let rate = |role: &str| row.roles.get(role).map_or(0.0, |it| it.ops_per_s.median);
            let part = 100.0 * rate("reader") / row.total_ops_per_s.median;
            assert_eq!(row.roles.len(), if percent % 100.0 == 0.0 { 1 } else { 2 });
            // Chance: the fewer operations, the more of it.
            let ops = row.total_ops_per_s.median * row.seconds;
            let chance = f64::max(1.0, 300.0 / ops.sqrt());
            assert!((part - percent).abs() < chance, "{}: {part} for {percent} %", row.lock);
        }
    }
}

#[test]
fn turns_that_are_all_timed_know_every_wait() {
    for row in run_each(turns(2, 50.0, 1), &["rwlock", "rwsem", "std"]).unwrap() {
        for role in row.roles.values() {
            // The operation under way at the end is timed and counts for no rate.
            let timed = role.wait.count as f64 / (role.ops_per_s.median * row.seconds);
            assert!(timed > 0.5, "{}: {role:?}", row.lock);
        }
    }
}

#[test]
fn pinned_turns_run_and_say_so() {
    let pinned = Turns { pinned: true, read_percent: 100.0, ..Turns::default() };
    for row in run_each(pinned, &["rwlock", "std"]).unwrap() {
        assert_eq!(row.params["pinned"], Value::from(true));
        assert_eq!(row.roles.keys().collect::<Vec<_>>(), ["reader"]);
    }
}

#[test]
fn every_lock_runs_uncontended() {
    for (what, role) in [(Uncontended::reads(1), "reader"), (Uncontended::writes(), "writer")] {
        for row in run_all(what).unwrap() {
            assert_eq!(row.roles.keys().collect::<Vec<_>>(), [role]);
            assert!(row.total_ops_per_s.median > 0.0 && row.roles[role].wait.count == 0);
        }
    }
}

#[test]
fn every_lock_runs_revocation_and_times_every_write() {
    for reads_between in [0, 100] {
        let workload = AnyWorkload::from(Revocation { readers: 2, reads_between });
        let names = registry::all_locks(workload.name(), false);
        let writes = |row: &Row| row.roles["writer"].wait.count > 0;
        let rows = run_until(writes, Path::new(NOWHERE), workload, &names, SECONDS).unwrap();
        for row in rows {
            let writer = &row.roles["writer"];
            assert!(writer.wait.count > 0, "{}", row.lock);
            assert_eq!((writer.wait.count, writer.threads), (writer.hold.count, 1));
            assert_eq!(row.params["reads_between"], Value::from(reads_between));
        }
    }
}

#[test]
fn every_lock_runs_dio_sleep() {
    for row in run_all(DioSleep::default()).unwrap() {
        let writer = &row.roles["writer"];
        assert!(writer.hold.p50 >= 19_000, "{}: {writer:?}", row.lock);
        assert_eq!(writer.wait.count, writer.hold.count);
        assert_eq!(writer.bytes_per_s, None);
    }
}

#[test]
fn every_lock_runs_dio_lock() {
    let directory = disk();
    let result = run_all_in(directory.path(), dio_lock());
    assert_empty(directory.path());
    for row in rows_unless_refused(result).into_iter().flatten() {
        // One role may starve for the whole run, both cannot.
        let moved = |role: &str| row.roles[role].wait.count > 0;
        assert!(moved("reader") || moved("writer"), "{row:?}");
    }
}

#[test]
fn the_kernel_form_measures_whole_operations() {
    let directory = disk();
    let result = run_all_in(directory.path(), dio_kernel());
    assert_empty(directory.path());
    for row in rows_unless_refused(result).into_iter().flatten() {
        assert_eq!(row.lock, KERNEL);
        let writer = &row.roles["writer"];
        assert!(writer.latency.count > 0);
        assert_eq!(writer.latency, writer.wait);
        assert_eq!(writer.hold.count, 0);
        assert!(writer.longest_bypass.is_some());
    }
}

#[test]
fn readers_of_another_file_are_fed_there() {
    let directory = disk();
    let result = run_all_in(directory.path(), DioKernelApart { io: io() });
    assert_empty(directory.path());
    for row in rows_unless_refused(result).into_iter().flatten() {
        assert_eq!(row.workload, "dio-kernel-apart");
        assert!(row.roles["reader"].wait.count > 0 && row.roles["writer"].wait.count > 0);
    }
}

#[test]
fn readers_of_a_log_find_what_was_acknowledged_and_leave_nothing_behind() {
    let directory = disk();
    let forms: [(&str, AnyWorkload); 2] = [
        ("dio-log", DioLog { io: io() }.into()),
        ("dio-log-apart", DioLogApart { io: io() }.into()),
    ];
    for (name, form) in forms {
        let result = run_all_in(directory.path(), form);
        assert_empty(directory.path());
        for row in rows_unless_refused(result).into_iter().flatten() {
            assert_eq!((row.workload.as_str(), row.lock.as_str()), (name, KERNEL));
            let (reader, writer) = (&row.roles["reader"], &row.roles["writer"]);
            assert!(reader.wait.count > 0 && writer.wait.count > 0, "{row:?}");
            assert!(writer.longest_bypass.is_some());
        }
    }
}

#[test]
fn every_log_is_appended_to_as_it_is_asked() {
    let directory = disk();
    for (sync, writers, readers) in
        [(Syncing::EveryCommit, 2, 0), (Syncing::Interval, 1, 1), (Syncing::Never, 2, 1)]
    {
        let params = Log { sync, writers, readers, ..Log::default() };
        let able = log::registry().iter().filter(|log| log.check(&params).is_ok());
        let names: Vec<&str> = able.map(|log| log.name).collect();
        assert_eq!(names.contains(&"okaywal"), sync == Syncing::EveryCommit);
        let result = run_each_in(directory.path(), params, &names);
        assert_empty(directory.path());
        for row in rows_unless_refused(result).into_iter().flatten() {
            let writer = &row.roles["writer"];
            assert!(writer.wait.count > 0, "{row:?}");
            assert_eq!(writer.bytes_per_s.is_some(), writer.ops_per_s.median > 0.0, "{row:?}");
            assert_eq!(row.roles.contains_key("reader"), readers > 0, "{row:?}");
        }
    }
}

#[test]
fn a_log_is_not_asked_for_what_it_cannot_do() {
    let params = Log { sync: Syncing::Never, ..Log::default() };
    let error = run_each(params, &["okaywal"]).unwrap_err().to_string();
    assert!(error.contains("never") && error.contains("okaywal"), "{error}");
    let error = run_each(Log::default(), &["std"]).unwrap_err().to_string();
    assert!(error.contains("`std`") && error.contains("logfile"), "{error}");
    let params = Log { record_bytes: 0, ..Log::default() };
    let error = run_each(params, &["logfile"]).unwrap_err().to_string();
    assert!(error.contains("record_bytes"), "{error}");
}

#[test]
fn the_kernel_form_goes_on_in_a_new_file() {
    let directory = disk();
    let io = Io { rotate_bytes: 64 * 1024, read_bytes: 8192, readers: 2, ..Io::default() };
    let result = run_all_in(directory.path(), DioKernel { io });
    assert_empty(directory.path());
    for row in rows_unless_refused(result).into_iter().flatten() {
        assert!(row.roles["reader"].wait.count > 0);
    }
}

#[test]
fn baselines_run_with_one_role_only() {
    let directory = disk();
    for (readers, writers) in [(0, 1), (2, 0)] {
        let io = || Io { readers, writers, ..io() };
        let forms: [(AnyWorkload, &str); 4] = [
            (DioSleep { readers, writers, ..DioSleep::default() }.into(), "std"),
            (DioLock { io: io() }.into(), "std"),
            (DioKernel { io: io() }.into(), KERNEL),
            (DioLog { io: io() }.into(), KERNEL),
        ];
        for (alone, lock) in forms {
            let result = run_each_in(directory.path(), alone, &[lock]);
            for row in rows_unless_refused(result).into_iter().flatten() {
                assert_eq!(row.roles.len(), 1);
            }
        }
    }
}

#[test]
fn a_refusal_of_direct_io_names_the_directory_and_the_flag() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        eprintln!("skipped: no /dev/shm here");
        return;
    }
    let directory = tempfile::tempdir_in(memory).unwrap();
    let result = run_all_in(directory.path(), dio_kernel());
    assert_empty(directory.path());
    // Newer kernels let tmpfs pass O_DIRECT; then the workload simply runs.
    if let Err(error) = result {
        assert!(matches!(error, LabError::NoDirectIo { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains(&directory.path().display().to_string()), "{message}");
        assert!(message.contains("--dir"), "{message}");
    }
}

#[test]
fn a_missing_directory_is_named() {
    let error = run_all_in(Path::new("/no/such/place"), dio_lock()).unwrap_err().to_string();
    assert!(error.contains("/no/such/place"), "{error}");
}

#[test]
fn a_broken_lock_is_caught_by_mix() {
    assert_broken_is_caught(Mix::dedicated(1, 1));
    assert_broken_is_caught(Mix::dedicated(0, 2));
    assert_broken_is_caught(Mix::mixed(4, 50.0));
}

#[test]
fn a_broken_lock_is_caught_by_turns() {
    assert_broken_is_caught(turns(4, 50.0, 256));
    assert_broken_is_caught(turns(2, 0.0, 1));
}

/// Three vmas, so that clients meet; little computing, so that they meet often.
fn forkstorm(threads: u32) -> Forkstorm {
    Forkstorm { threads, vmas: 3, insert_percent: 20.0, ..Forkstorm::default() }
}

fn rmapstorm(threads: u32, read_percent: f64) -> Rmapstorm {
    Rmapstorm { threads, read_percent, vmas: 3, think: Length::Pauses(10) }
}

#[test]
fn every_lock_runs_forkstorm_and_looks_at_some_sections() {
    // One message at least, each with its sections.
    let sections = 3 * (2 * 2 + 2);
    for row in run_each_for(forkstorm(3), &locks::all(), 0.01).unwrap() {
        let writer = &row.roles["writer"];
        assert_eq!((row.roles.len(), writer.threads), (1, 3));
        assert!(writer.latency.count >= 3, "{}: {writer:?}", row.lock);
        assert!(writer.wait.count >= writer.latency.count * sections, "{}: {writer:?}", row.lock);
        let looked = (writer.hold.count * u64::from(forkstorm::LOOK_EVERY)) as f64;
        // Chance, and the first look of each thread.
        let expected = writer.wait.count as f64;
        assert!((looked / expected - 1.0).abs() < 20.0 / expected.sqrt() + 0.2, "{writer:?}");
    }
}

#[test]
fn every_lock_runs_rmapstorm_in_all_its_mixtures() {
    for percent in [0.0, 90.0, 100.0] {
        for row in run_each_for(rmapstorm(3, percent), &locks::all(), 0.005).unwrap() {
            assert_eq!(row.roles.contains_key("reader"), percent > 0.0);
            assert_eq!(row.roles.contains_key("writer"), percent < 100.0);
            for (name, role) in &row.roles {
                let sections = if name == "writer" { 3 } else { 1 };
                assert_eq!(role.wait.count, sections * role.latency.count, "{}", row.lock);
                assert_eq!(role.threads, 3);
            }
            assert!(row.roles.values().any(|role| role.latency.count > 0), "{row:?}");
        }
    }
}

#[test]
fn a_broken_lock_is_caught_by_the_storms() {
    assert_broken_is_caught(forkstorm(3));
    for percent in [0.0, 50.0, 99.0] {
        assert_broken_is_caught(rmapstorm(3, percent));
    }
}

#[test]
fn a_broken_lock_is_caught_by_dio() {
    assert_broken_is_caught(DioSleep::default());
    let directory = disk();
    let probe = run_all_in(directory.path(), dio_kernel());
    if rows_unless_refused(probe).is_some() {
        assert_broken_is_caught_in(directory.path(), dio_lock());
    }
}

fn reads(readers: u32, writers: u32) -> Reads {
    Reads { readers, writers, ..Reads::default() }
}

#[test]
fn every_lock_runs_readseek_and_tears_no_read() {
    for &overlap in Overlap::value_variants() {
        let reads = Reads { overlap, write_blocks: 2, ..reads(2, 1) };
        for row in run_all(Readseek { reads }).unwrap() {
            let (reader, writer) = (&row.roles["reader"], &row.roles["writer"]);
            assert_eq!((reader.threads, writer.threads, writer.torn), (2, 1, None));
            assert!(row.lock == "none" || reader.torn == Some(0), "{row:?}");
            assert!(reader.wait.count > 0 && reader.wait.count == reader.hold.count, "{row:?}");
            let name = overlap.to_possible_value().expect("none is hidden");
            assert_eq!(row.params["overlap"], Value::from(name.get_name()));
        }
    }
}

#[test]
fn readers_alone_are_not_looked_at_for_torn_reads() {
    let reads = Reads { block_bytes: 16 * 1024, ..reads(2, 0) };
    for row in run_each(Readseek { reads }, &["none", "range", "naive", "std"]).unwrap() {
        assert_eq!(row.roles.keys().collect::<Vec<_>>(), ["reader"]);
        assert_eq!(row.roles["reader"].torn, None);
    }
}

#[test]
fn reads_without_a_lock_are_torn() {
    // Some thousand writes long, so that a read meets one even on one CPU, by preemption.
    let reads = Reads { block_bytes: 1 << 20, overlap: Overlap::Same, ..reads(1, 1) };
    let rows = run_each_for(Readseek { reads }, &["none"], 0.5).unwrap();
    assert!(rows[0].roles["reader"].torn > Some(0), "{:?}", rows[0]);
}

#[test]
fn reads_beside_writers_with_blocks_of_their_own_are_whole_without_a_lock() {
    for &overlap in Overlap::value_variants() {
        let reads = Reads { overlap, own_blocks: true, write_blocks: 3, ..reads(2, 2) };
        let rows = run_each(Readseek { reads: reads.clone() }, &["none", "range"]).unwrap();
        let kernel = run_each(ReadseekKernelTmpfs { reads }, &[KERNEL]).unwrap();
        for row in rows.iter().chain(&kernel) {
            assert_eq!(row.roles["reader"].torn, Some(0), "{row:?}");
            assert!(row.roles["writer"].wait.count > 0, "{row:?}");
        }
    }
}

#[test]
fn writers_with_blocks_of_their_own_make_the_file_longer_up_to_a_limit() {
    let of = |writers, write_blocks| Reads { own_blocks: true, write_blocks, ..reads(1, writers) };
    let check = |reads: Reads| cell(&Readseek { reads }.into(), "none").validate();
    // With the reader's block exactly a gigabyte.
    assert!(check(of(1, (1 << 18) - 1)).is_ok());
    for reads in [of(1, 1 << 18), of(1 << 10, 1 << 8), of(1 << 11, u32::MAX)] {
        let said = check(reads).unwrap_err().to_string();
        assert!(said.contains("at most 1073741824 bytes"), "{said}");
    }
}

#[test]
fn a_broken_lock_is_caught_by_readseek() {
    let reads = Reads { block_bytes: 1 << 20, overlap: Overlap::Same, ..reads(1, 1) };
    assert_broken_is_caught(Readseek { reads });
}

#[test]
fn the_kernel_reads_a_file_in_memory_and_on_disk() {
    let forms: [(&str, AnyWorkload); 2] = [
        ("readseek-kernel", ReadseekKernel { reads: reads(2, 1) }.into()),
        ("readseek-kernel-tmpfs", ReadseekKernelTmpfs { reads: reads(2, 1) }.into()),
    ];
    for (name, form) in forms {
        let directory = disk();
        let rows = run_all_in(directory.path(), form).unwrap();
        assert_empty(directory.path());
        assert_eq!((rows.len(), rows[0].lock.as_str()), (1, KERNEL));
        assert_eq!(rows[0].workload, name);
        assert!(rows[0].roles["reader"].wait.count > 0 && rows[0].roles["reader"].torn.is_some());
    }
}

#[test]
fn a_worker_process_that_does_not_work_ends_the_run() {
    for (program, words) in
        [("/bin/false", "of 2 ended before its time"), ("/no/such", "No such file")]
    {
        let workload = ReadseekProcesses { reads: reads(2, 0) }.into();
        let plan = Plan {
            program: PathBuf::from(program),
            ..plan(vec![cell(&workload, "none")], Path::new(NOWHERE))
        };
        let error = plan::run(&plan, &mut ()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
