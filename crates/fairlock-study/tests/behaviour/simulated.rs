//! The same workloads on a simulated machine: every lock whose source runs there, exact repetition,
//! and what is refused.

use std::path::PathBuf;
use std::sync::Arc;

use fairlock_lab::error::LabError;
use fairlock_lab::locks;
use fairlock_lab::workload::AnyWorkload;
use fairlock_lab::workloads::dio::{DioKernel, DioLock, DioSleep};
use fairlock_lab::workloads::forkstorm::{self, Forkstorm};
use fairlock_lab::workloads::mix::{Arrival, Mix, Order};
use fairlock_lab::workloads::readseek::{Overlap, Reads, Readseek, ReadseekKernel};
use fairlock_lab::workloads::revocation::Revocation;
use fairlock_lab::workloads::rmapstorm::Rmapstorm;
use fairlock_lab::workloads::turns::Turns;
use fairlock_lab::workloads::uncontended::Uncontended;
use fairlock_report::params::Value;
use fairlock_report::row::Row;
use fairlock_report::timeline::{HOLD_READ, HOLD_WRITE, MEASURING_BEGINS};
use fairlock_report::units::Length;
use fairlock_sim::profile::Profile;
use fairlock_sim::timed::{Happening, Span, Timeline};
use fairlock_study::plan::{self, Cell, Observer, Plan, Simulated};
use fairlock_study::registry;

fn on(seed: u64) -> Option<Simulated> {
    Some(Simulated::of(Profile::example(), seed))
}

fn cell(workload: impl Into<AnyWorkload>, lock: &str) -> Cell {
    Cell {
        workload: workload.into(),
        lock: lock.to_string(),
        repetitions: 2,
        seconds: 0.001,
        on: on(1),
        for_limit: false,
    }
}

fn run(cells: Vec<Cell>) -> Result<Vec<Row>, LabError> {
    let directory = PathBuf::from("/nowhere");
    plan::run(&Plan { directory, ..Plan::new(cells) }, &mut ())
}

fn run_all(workload: impl Into<AnyWorkload>, seconds: f64) -> Vec<Row> {
    let workload = workload.into();
    let cells = locks::simulated_names().into_iter();
    run(cells.map(|lock| Cell { seconds, ..cell(workload.clone(), lock) }).collect()).unwrap()
}

#[test]
fn every_lock_whose_source_runs_there_runs_mix() {
    let rows = run_all(Mix::dedicated(2, 2), 0.001);
    let ran: Vec<&str> = rows.iter().map(|row| row.lock.as_str()).collect();
    assert_eq!(ran, locks::simulated_names());
    for row in rows {
        assert_eq!((row.machine.as_str(), row.repetitions), ("example", 2));
        assert!(row.roles["reader"].wait.count > 0 && row.roles["writer"].wait.count > 0);
        let counts = row.simulated.unwrap();
        assert!(counts.transfers > 0 && counts.operations > 0, "{row:?}");
        let cpu = row.cpu.unwrap();
        // Four threads on eight CPUs.
        assert!(cpu.user > 0.0 && cpu.idle >= 0.5, "{cpu:?}");
        assert!((cpu.user + cpu.system + cpu.idle - 1.0).abs() < 1e-9, "{cpu:?}");
        assert!(cpu.spinning.is_some_and(|spinning| spinning <= cpu.user), "{cpu:?}");
        // Those that only spin have no slow paths to count, and other libraries' locks do not count theirs.
        let counts_events = locks::find(&row.lock).unwrap().has_twin;
        assert_eq!(row.events.is_some(), counts_events, "{}", row.lock);
        assert_eq!(row.params["pause_ns"], Value::from(Profile::example().cost.pause_ns));
    }
}

#[test]
fn a_mix_beside_its_roles_alone_says_how_close_it_comes_to_sharing_the_time() {
    let mix = AnyWorkload::from(Mix {
        order: Some(Order::Interleaved),
        arrival: Arrival::Queued,
        stagger: Some(Length::Nanoseconds(10_000)),
        ..Mix::dedicated(2, 2)
    });
    let of = |lock: &str| -> Vec<Cell> {
        let alone =
            mix.alone().into_iter().map(|role| Cell { for_limit: true, ..cell(role, lock) });
        std::iter::once(cell(mix.clone(), lock)).chain(alone).collect()
    };
    let mut rows = run([of("rwsem"), of("linux-5.1")].concat()).unwrap();
    let for_limit: Vec<bool> = rows.iter().map(|row| row.for_limit).collect();
    assert_eq!(for_limit, [false, true, true, false, true, true]);
    let rate = |row: &Row| row.total_ops_per_s.median;
    let best = |role: usize| rate(&rows[role]).max(rate(&rows[3 + role]));
    let limit = f64::midpoint(best(1), best(2));
    for of_lock in rows.chunks(3) {
        let found = of_lock[0].limit.unwrap();
        // Medians of ratios are not ratios of medians, but close.
        let share = |role: &str, alone: &Row| {
            of_lock[0].roles[role].ops_per_s.median / alone.roles[role].ops_per_s.median
        };
        let shares = share("reader", &of_lock[1]).min(share("writer", &of_lock[2]));
        for (found, expected) in
            [(found.of_limit, rate(&of_lock[0]) / limit), (found.lesser_role.unwrap(), shares)]
        {
            assert!((found.median / expected - 1.0).abs() < 0.1, "{found:?}, {expected}");
        }
    }
    // From a file that does not have them they come out the same.
    let written = rows.clone();
    rows.iter_mut().for_each(|row| row.limit = None);
    fairlock_study::limit::fill(&mut rows);
    assert_eq!(rows, written);
}

/// Sections are shorter than a wake-up, which is when spinning pays.
#[test]
fn writers_that_spin_in_the_queue_switch_less_often_there() {
    let locks = ["linux-3.10", "linux-3.10-spin", "linux-3.10-fast-fail", "linux-3.10-both"];
    let rows = run(locks.map(|lock| cell(Mix::mixed(4, 0.0), lock)).into()).unwrap();
    let switches: Vec<f64> = rows
        .iter()
        .map(|row| row.simulated.unwrap())
        .map(|counts| counts.switches as f64 / counts.operations as f64)
        .collect();
    let [none, spin, fast_fail, both] = switches[..] else { unreachable!("four locks") };
    assert!(spin < none && both < fast_fail, "{switches:?}");
    for row in rows {
        let spun = row.events.unwrap().counts["rwsem_opt_lock"];
        assert_eq!(spun > 0, ["linux-3.10-spin", "linux-3.10-both"].contains(&row.lock.as_str()));
    }
}

#[test]
fn mixed_roles_and_real_io_run_there() {
    assert_eq!(run_all(Mix::mixed(4, 90.0), 0.001)[0].roles["writer"].threads, 4);
    for row in run_all(DioLock::default(), 0.01) {
        assert!(row.roles["reader"].bytes_per_s.is_some(), "{row:?}");
    }
    for row in run_all(DioSleep::default(), 0.01) {
        assert!(row.roles["writer"].hold.p50 >= 20_000, "{row:?}");
    }
}

#[test]
fn the_workloads_of_the_default_lock_run_there() {
    let think = Length::Pauses(100);
    let turns = Turns { threads: 4, think, time_every: 1, ..Turns::default() };
    let pinned = Turns { pinned: true, ..turns.clone() };
    let revocation = Revocation { readers: 2, reads_between: 20 };
    let workloads: [AnyWorkload; 4] =
        [turns.into(), pinned.into(), Uncontended::writes().into(), revocation.into()];
    for workload in workloads {
        for row in run_all(workload, 0.0005) {
            assert!(row.total_ops_per_s.median > 0.0, "{row:?}");
            assert_eq!(row.roles.contains_key("reader"), row.workload != "uncontended");
        }
    }
}

fn readseek(readers: u32, writers: u32) -> Readseek {
    let overlap = if writers > 0 { Overlap::Same } else { Overlap::Disjoint };
    Readseek { reads: Reads { readers, writers, overlap, ..Reads::default() } }
}

fn readseek_rows(workload: &Readseek) -> Vec<Row> {
    let locks = registry::all_locks("readseek", true).into_iter();
    run(locks.map(|lock| cell(workload.clone(), lock)).collect()).unwrap()
}

#[test]
fn readseek_runs_there_under_range_locks_and_others() {
    for row in readseek_rows(&readseek(4, 1)) {
        let torn = row.roles["reader"].torn.unwrap();
        assert_eq!(torn > 0, row.lock == "none", "{}: {torn}", row.lock);
    }
}

#[test]
fn an_iteration_without_a_lock_takes_there_what_it_took_the_source() {
    let rows = readseek_rows(&readseek(4, 0));
    let none = rows.iter().find(|row| row.lock == "none").unwrap();
    let ns = 4.0 * 1e9 / none.total_ops_per_s.median;
    // The loads of a block's two words come on top.
    assert!((389.0..400.0).contains(&ns), "{ns}");
    assert_eq!(none.simulated.unwrap().shared_writes, 0);
    for row in &rows {
        assert!(row.total_ops_per_s.median <= none.total_ops_per_s.median, "{}", row.lock);
    }
}

/// Another state of the program's heap: many blocks of odd sizes, of which every other one is free. The others are
/// to be kept.
fn disturbed_heap() -> Vec<Vec<u8>> {
    let mut blocks: Vec<Vec<u8>> =
        (0..4000).map(|index| Vec::with_capacity(40 + index * 56 % 1000)).collect();
    let mut index = 0;
    blocks.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    blocks
}

/// Whatever the program did before, and whatever its allocator makes of that.
fn check_that_rows_repeat_themselves(cells: impl Fn() -> Vec<Cell>) {
    let first = run(cells()).unwrap();
    let _kept = disturbed_heap();
    for (first, again) in first.into_iter().zip(run(cells()).unwrap()) {
        assert_eq!(first, again);
    }
}

#[test]
fn readseek_repeats_itself_for_the_same_seed() {
    check_that_rows_repeat_themselves(|| {
        let locks = registry::all_locks("readseek", true).into_iter().chain(["clh"]);
        locks.map(|lock| cell(readseek(4, 1), lock)).collect()
    });
}

#[test]
fn forkstorm_repeats_itself_for_the_same_seed() {
    check_that_rows_repeat_themselves(|| {
        let locks = ["mutex", "linux-3.10", "rwlock", "rwsem", "clh"];
        locks.map(|lock| cell(forkstorm(4, 3.5), lock)).into()
    });
}

#[test]
fn the_same_seeds_give_the_same_rows() {
    let rows =
        || run(["rwsem", "linux-5.1"].map(|lock| cell(Mix::dedicated(4, 4), lock)).into()).unwrap();
    let first = rows();
    assert_eq!(first, rows());
    let other = run(vec![Cell { on: on(100), ..cell(Mix::dedicated(4, 4), "rwsem") }]).unwrap();
    assert_ne!(first[0].total_ops_per_s, other[0].total_ops_per_s);
    // The second of two seeds is the first of the next one.
    let alone = |seed| {
        let once = Cell { repetitions: 1, on: on(seed), ..cell(Mix::dedicated(4, 4), "rwsem") };
        run(vec![once]).unwrap()[0].simulated.unwrap().operations
    };
    assert_eq!(first[0].simulated.unwrap().operations, alone(1) + alone(2));
}

#[test]
fn a_broken_lock_is_caught_there() {
    let workloads: [AnyWorkload; 7] = [
        Mix::dedicated(1, 1).into(),
        Mix::dedicated(0, 2).into(),
        DioSleep::default().into(),
        DioLock::default().into(),
        forkstorm(4, 3.5).into(),
        rmapstorm(4, 0.0).into(),
        rmapstorm(4, 90.0).into(),
    ];
    for workload in workloads {
        match run(vec![Cell { seconds: 0.1, ..cell(workload.clone(), "broken") }]) {
            Err(LabError::Broken { lock, .. }) => assert_eq!(lock, "broken"),
            other => panic!("`{}` did not notice: {other:?}", workload.name()),
        }
    }
}

fn forkstorm(threads: u32, insert_percent: f64) -> Forkstorm {
    Forkstorm { threads, insert_percent, ..Forkstorm::default() }
}

fn rmapstorm(threads: u32, read_percent: f64) -> Rmapstorm {
    Rmapstorm { threads, read_percent, vmas: 2, ..Rmapstorm::default() }
}

#[test]
fn every_lock_whose_source_runs_there_runs_the_storms() {
    for row in run_all(forkstorm(3, 20.0), 0.0001) {
        let writer = &row.roles["writer"];
        assert!(writer.latency.count > 0 && writer.hold.count > 0, "{row:?}");
        let counts_events = locks::find(&row.lock).unwrap().has_twin;
        assert_eq!(row.events.is_some(), counts_events, "{}", row.lock);
    }
    for row in run_all(rmapstorm(3, 50.0), 0.0002) {
        assert!(row.roles["reader"].wait.count > 0 && row.roles["writer"].wait.count > 0);
    }
}

#[test]
fn the_storms_repeat_themselves_for_the_same_seed() {
    let locks = ["rwsem", "linux-3.10", "linux-5.11", "mutex"];
    let workloads: [AnyWorkload; 2] = [forkstorm(3, 20.0).into(), rmapstorm(4, 50.0).into()];
    for workload in workloads {
        let brief = |lock| Cell { repetitions: 1, seconds: 0.0003, ..cell(workload.clone(), lock) };
        let rows = || run(locks.map(brief).into()).unwrap();
        for (first, again) in rows().into_iter().zip(rows()) {
            assert_eq!(first, again);
        }
    }
}

#[test]
fn inserts_take_there_the_share_that_was_asked_for() {
    for percent in [1.75, 3.5, 7.0] {
        let once = Cell { repetitions: 1, seconds: 0.015, ..cell(forkstorm(1, percent), "mutex") };
        let writer = &run(vec![once]).unwrap()[0].roles["writer"];
        let share = 100.0 * writer.inserting.unwrap();
        // Taking the locks is on top of what was calibrated; and chance, which sections are timed.
        assert!((0.92..1.08).contains(&(share / percent)), "{share} % for {percent} %");
        let looked = writer.hold.count as f64 * f64::from(forkstorm::LOOK_EVERY);
        assert!((looked / writer.wait.count as f64 - 1.0).abs() < 0.1, "{writer:?}");
    }
}

#[test]
fn inserts_take_longer_where_others_write_to_the_same_trees() {
    let share = |clients| {
        let cell = Cell { repetitions: 1, ..cell(forkstorm(clients, 3.5), "mutex") };
        run(vec![cell]).unwrap()[0].roles["writer"].inserting.unwrap()
    };
    let shares = [1, 8].map(share);
    assert!(shares[1] > 2.0 * shares[0], "{shares:?}");
}

#[test]
fn what_does_not_run_there_is_refused_with_what_does() {
    let cases = [
        (cell(Mix::dedicated(1, 1), "usync"), vec!["`usync`", "real threads only", "rwsem"]),
        (cell(Mix::dedicated(1, 1), "foo"), vec!["no lock `foo`"]),
        (
            cell(DioKernel::default(), "kernel"),
            vec!["`dio-kernel`", "there dio-lock and dio-sleep"],
        ),
        (
            Cell { repetitions: 0, ..cell(Mix::dedicated(1, 1), "rwsem") },
            vec!["repetitions", "1 to 1000"],
        ),
        (
            cell(ReadseekKernel::default(), "kernel"),
            vec!["`readseek-kernel`", "there readseek runs"],
        ),
        (cell(readseek(1, 0), "usync"), vec!["`usync`", "real threads only", "naive"]),
        (Cell { seconds: 11.0, ..cell(Mix::dedicated(1, 1), "rwsem") }, vec!["seconds", "11"]),
    ];
    for (cell, words) in cases {
        let error = run(vec![cell]).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "`{error}` lacks `{word}`");
        }
    }
}

/// Keeps the timeline.
#[derive(Default)]
struct Watch(Timeline);

impl Observer for Watch {
    fn timeline(&mut self, _cell: &Cell, timeline: &Timeline) {
        self.0.clone_from(timeline);
    }
}

#[test]
fn the_timeline_shows_that_writers_hold_the_lock_alone() {
    let timeline_ns = 300_000;
    let on = on(1).map(|on| Simulated { timeline_ns, ..on });
    let cells = vec![Cell { on, ..cell(Mix::dedicated(4, 4), "rwsem") }];
    let mut watch = Watch::default();
    plan::run(&Plan::new(cells), &mut watch).unwrap();
    let held = |what: &'static str| -> Vec<&Span> {
        watch.0.iter().filter(|span| span.what == Happening::Mark(what)).collect()
    };
    let (reads, writes) = (held(HOLD_READ), held(HOLD_WRITE));
    assert!(!reads.is_empty() && !writes.is_empty());
    for write in &writes {
        for other in reads.iter().chain(&writes).filter(|other| other != &write) {
            let apart = write.to_ns <= other.from_ns || other.to_ns <= write.from_ns;
            assert!(apart, "{write:?} {other:?}");
        }
    }
    assert!(watch.0.iter().all(|span| span.to_ns <= timeline_ns && span.thread < 8));
}

fn arriving(readers: u32, writers: u32, arrival: Arrival) -> Mix {
    let order = Some(Order::Interleaved);
    let section = Length::Nanoseconds(500);
    Mix { order, arrival, section, ..Mix::dedicated(readers, writers) }
}

/// One repetition with all of its timeline: its row, its holds, and when measuring began.
fn watched(mix: Mix, lock: &str) -> (Row, Vec<Span>, u64) {
    let on = on(1).map(|on| Simulated { timeline_ns: 50_000_000, ..on });
    let mut watch = Watch::default();
    let cell = Cell { on, repetitions: 1, ..cell(mix, lock) };
    let row = plan::run(&Plan::new(vec![cell]), &mut watch).unwrap().remove(0);
    let is = |span: &Span, what| span.what == Happening::Mark(what);
    let begins: Vec<&Span> = watch.0.iter().filter(|span| is(span, MEASURING_BEGINS)).collect();
    assert_eq!(begins.len(), 1, "{lock}");
    let since = begins[0].from_ns;
    let mut holds = watch.0.clone();
    holds.retain(|span| is(span, HOLD_READ) || is(span, HOLD_WRITE));
    holds.sort_by_key(|span| span.from_ns);
    (row, holds, since)
}

/// The threads in the order in which they hold the lock for the first time after the beginning.
fn first_holders(holds: &[Span], since: u64) -> Vec<u32> {
    let mut seen = Vec::new();
    for hold in holds.iter().filter(|hold| hold.from_ns >= since) {
        if !seen.contains(&hold.thread) {
            seen.push(hold.thread);
        }
    }
    seen
}

#[test]
fn threads_that_queued_hold_a_fair_lock_in_the_order_in_which_they_arrived() {
    // Reader, writer, reader, writer, …, and the holder.
    let (_, holds, since) = watched(arriving(4, 4, Arrival::Queued), "ticket");
    assert_eq!((holds[0].thread, &holds[0].what), (8, &Happening::Mark(HOLD_WRITE)));
    assert_eq!(first_holders(&holds, since), [0, 1, 2, 3, 4, 5, 6, 7]);
    // Readers share a phase: each begins when it has woken up.
    let (_, holds, since) = watched(arriving(4, 4, Arrival::Queued), "phase-fair");
    let mut first = first_holders(&holds, since);
    first[..4].sort_unstable();
    assert_eq!(first, [0, 2, 4, 6, 1, 3, 5, 7]);
}

#[test]
fn nothing_is_measured_before_all_threads_have_arrived() {
    for arrival in [Arrival::Staggered, Arrival::Queued] {
        for lock in ["ticket", "rwsem", "linux-5.2"] {
            let (row, holds, since) = watched(arriving(4, 4, arrival), lock);
            assert!(since >= 700_000, "{since}");
            let later = holds.iter().filter(|hold| hold.from_ns >= since).count() as u64;
            let recorded: u64 = row.roles.values().map(|role| role.wait.count).sum();
            match arrival {
                Arrival::Queued => assert_eq!(recorded, later, "{lock}"),
                // Each thread may have held the lock a moment ago and not have released it.
                _ => assert!((later..later + 8).contains(&recorded), "{lock} {later} {recorded}"),
            }
            assert_eq!(row.events.as_ref().map_or(recorded, |it| it.operations), recorded);
            assert_eq!(row.simulated.unwrap().operations, recorded);
            let rate = row.total_ops_per_s.median;
            assert!(rate * row.seconds <= recorded as f64 && rate > 0.0, "{rate} {recorded}");
            // The last threads have waited for a whole stagger before.
            let longest = row.roles.values().map(|role| role.wait.max).max().unwrap();
            let ended = holds.iter().map(|hold| hold.to_ns).max().unwrap();
            assert!(longest <= ended - since, "{longest} {}", ended - since);
        }
    }
}

#[test]
fn roles_keep_their_threads_in_any_order() {
    for order in [Order::Apart, Order::Interleaved, Order::Shuffled] {
        for arrival in [Arrival::Together, Arrival::Staggered, Arrival::Queued] {
            let mix = || Mix { order: Some(order), arrival, ..Mix::dedicated(3, 2) };
            let once = || run(vec![cell(mix(), "phase-fair")]).unwrap().remove(0);
            let row = once();
            assert_eq!((row.roles["reader"].threads, row.roles["writer"].threads), (3, 2));
            assert!(row.roles.values().all(|role| role.thread_min > 0.0), "{row:?}");
            assert_eq!(row, once());
            assert_eq!(row.params.contains_key("stagger"), arrival != Arrival::Together);
        }
    }
}

#[test]
fn each_seed_shuffles_the_roles_anew() {
    let names = |seed| {
        let mix = Mix { order: Some(Order::Shuffled), ..Mix::dedicated(4, 4) };
        Cell { on: on(seed), ..cell(mix, "rwsem") }.thread_names()
    };
    assert_eq!(names(1), names(1));
    assert!((2..6).any(|seed| names(seed) != names(1)));
}

#[test]
fn threads_that_do_both_and_those_that_only_read_queue_behind_a_holder() {
    let mix = Mix { arrival: Arrival::Queued, ..Mix::mixed(4, 90.0) };
    let (row, holds, since) = watched(mix, "phase-fair");
    assert_eq!((holds[0].thread, &holds[0].what), (4, &Happening::Mark(HOLD_WRITE)));
    assert!(holds[1..].iter().all(|hold| hold.from_ns >= since), "{since}");
    assert_eq!((row.roles["reader"].threads, row.roles["writer"].threads), (4, 4));
    let (row, holds, since) = watched(arriving(3, 0, Arrival::Queued), "rwsem");
    assert_eq!(row.roles.keys().collect::<Vec<_>>(), ["reader"]);
    assert!(holds[1..].iter().all(|hold| hold.from_ns >= since), "{since}");
}

/// Operations per second before and after "wake almost all readers", on the machine of study S4, whose threads queue
/// in turns before the first section begins.
fn before_and_after(each: u32) -> [f64; 2] {
    let mix = Mix {
        section: Length::Pauses(0),
        think: Length::Pauses(600),
        order: Some(Order::Interleaved),
        arrival: Arrival::Queued,
        stagger: Some(Length::Nanoseconds(1_000_000)),
        ..Mix::dedicated(each, each)
    };
    let profile = Arc::new(Profile::find("ivybridge-ex-8s").unwrap());
    ["kernel-5.1", "kernel-5.2"].map(|lock| {
        let on = Some(Simulated::of(profile.clone(), 1));
        let cell = Cell { on, repetitions: 1, seconds: 0.02, ..cell(mix.clone(), lock) };
        run(vec![cell]).unwrap()[0].total_ops_per_s.median
    })
}

#[test]
fn s4_falls_between_16_and_32_threads_as_published() {
    for (threads, published) in [(16, [564e3, 924e3]), (32, [78e3, 300e3]), (64, [38e3, 195e3])] {
        let simulated = before_and_after(threads / 2);
        let within = |one: f64, other: f64, factor: f64| one.max(other) <= factor * one.min(other);
        let is_near = |(one, other): (&f64, &f64)| within(*one, *other, 2.5);
        assert!(simulated.iter().zip(&published).all(is_near), "{threads}: {simulated:?}");
        let ratio = |of: [f64; 2]| of[1] / of[0];
        assert!(within(ratio(simulated), ratio(published), 2.0), "{threads}: {simulated:?}");
    }
}

/// Operations per second of threads that only write, back to back, without a section.
fn spinning(machine: &str, lock: &str, writers: u32) -> f64 {
    let none = Length::Pauses(0);
    let mix = Mix { section: none, think: none, ..Mix::dedicated(0, writers) };
    let profile = Arc::new(Profile::find(machine).unwrap());
    let on = Some(Simulated::of(profile, 1));
    let cell = Cell { on, repetitions: 1, seconds: 0.0002, ..cell(mix, lock) };
    run(vec![cell]).unwrap()[0].total_ops_per_s.median
}

#[test]
fn spin_locks_decline_in_the_order_of_what_a_handover_writes() {
    for (machine, cores) in
        [("westmere-ex-8s", 80), ("opteron-48", 48), ("graviton3", 64), ("epyc-milan-2s", 96)]
    {
        let rates = ["tas", "ttas", "ticket", "mcs", "clh"]
            .map(|lock| [1, cores / 4, cores].map(|threads| spinning(machine, lock, threads)));
        let queues = &rates[3..];
        assert!(queues.iter().all(|[.., many]| *many > 1.5 * rates[0][2]), "{machine}: {rates:?}");
        let [_, few, many] = rates[2];
        assert!(few > many && many < 0.2 * rates[2][0], "{machine}: {rates:?}");
        for [alone, few, many] in &rates[..2] {
            // Whoever comes has a part in each handover.
            assert!(alone > few && *few > 2.0 * many, "{machine}: {rates:?}");
        }
        for [alone, few, many] in queues {
            assert!(*alone > 5.0 * few, "{machine}: {rates:?}");
            // Each waits on its own line: as fast with all cores as with some.
            assert!((0.8..1.25).contains(&(many / few)), "{machine}: {rates:?}");
            assert!(*many > rates[2][2], "{machine}: {rates:?}");
        }
    }
}

#[test]
fn how_long_threads_take_to_arrive_and_to_end_is_in_no_count() {
    let counted = |stagger_ns| {
        let mix = Mix {
            // The run ends in the midst of several.
            section: Length::Nanoseconds(2_000_000),
            think: Length::Pauses(0),
            stagger: Some(Length::Nanoseconds(stagger_ns)),
            ..arriving(4, 4, Arrival::Queued)
        };
        let cell = Cell { repetitions: 1, seconds: 0.02, ..cell(mix, "phase-fair") };
        let row = run(vec![cell]).unwrap().remove(0);
        let cpu = row.cpu.unwrap();
        let wakeups = row.simulated.unwrap().wakeups as f64 / 0.02;
        (row.voluntary_switches_per_s, wakeups, cpu.user + cpu.system)
    };
    let [soon, late] = [10_000, 5_000_000].map(counted);
    let is_near = |one: f64, other: f64| (0.8..1.25).contains(&(one / other));
    let are_alike = is_near(soon.0, late.0) && is_near(soon.1, late.1) && is_near(soon.2, late.2);
    assert!(are_alike, "the arrival is counted: {soon:?}, {late:?}");
    // Whoever sleeps is woken.
    assert!(is_near(late.0, late.1), "{late:?}");
}
