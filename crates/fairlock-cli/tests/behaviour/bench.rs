//! `fairlock bench` of every registered workload: its help, its examples, and the points that lists make; and what
//! study files of earlier versions say of it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Output;

use fairlock_lab::pollers::Trigger;
use fairlock_lab::workload::AnyWorkload;
use fairlock_lab::workloads::dio::{DioLock, Io};
use fairlock_lab::workloads::epoll_wait::EpollWait;
use fairlock_lab::workloads::forkstorm::Forkstorm;
use fairlock_lab::workloads::forkstorm_kernel::ForkstormKernel;
use fairlock_lab::workloads::inversion::{Access, InversionLock};
use fairlock_lab::workloads::log::{Log, Syncing};
use fairlock_lab::workloads::mix::Mix;
use fairlock_lab::workloads::readseek::{Overlap, Reads, Readseek};
use fairlock_lab::workloads::stress_epoll::StressEpoll;
use fairlock_lab::workloads::turns::Turns;
use fairlock_lab::workloads::uncontended::Uncontended;
use fairlock_lab::workloads::{self, REGISTRY};
use fairlock_report::params::{self, Params, Value};
use fairlock_report::recording::Recording;
use fairlock_report::row::Row;
use fairlock_report::units::Length;

fn bench(args: &[&str]) -> Output {
    crate::fairlock().arg("bench").args(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn help_of(workload: &str) -> String {
    let output = bench(&[workload, "--help"]);
    assert!(output.status.success(), "{workload}: {}", text(&output.stderr));
    // Lines that a shell joins.
    text(&output.stdout).replace(" \\\n      ", " ")
}

/// What a text says, however its lines are broken.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_help_of_each_workload_begins_with_its_own_line_and_shows_its_examples() {
    let all = words(text(&bench(&["--help"]).stdout));
    for entry in REGISTRY {
        let help = help_of(entry.name);
        assert!(words(&help).starts_with(&format!("{} Usage:", entry.about)), "{help}");
        let usage = format!("Usage: fairlock bench {} [OPTIONS]", entry.name);
        assert!(help.lines().any(|line| line == usage), "{help}");
        assert!(words(&help).contains(&words(entry.note)), "{help}");
        let option = format!("--{} <", entry.subjects.word);
        assert!(help.contains(&option), "{option}: {help}");
        assert!(!entry.examples.is_empty(), "{}", entry.name);
        for example in entry.examples {
            let line = format!("  fairlock bench {} {example}", entry.name);
            assert!(help.lines().any(|it| words(it) == words(&line)), "{line}: {help}");
        }
        assert!(all.contains(&format!(" {} {}", entry.name, entry.about)), "{all}");
    }
    let abouts: BTreeSet<&str> = REGISTRY.iter().map(|entry| entry.about).collect();
    assert_eq!(abouts.len(), REGISTRY.len());
}

/// The commands that a help shows, without the words behind them that say what they are for.
fn examples(help: &str) -> Vec<Vec<&str>> {
    let lines = help.lines().filter_map(|line| line.strip_prefix("  fairlock bench "));
    let commands = lines.map(|line| line.split("  ").next().expect("there is a first part"));
    commands.map(|command| command.split(' ').collect()).collect()
}

/// A bench that cannot write its rows is refused when everything else is right, before anything runs.
#[test]
fn each_example_of_a_help_is_a_bench_that_runs() {
    const OUT: &str = "/proc/none.jsonl";
    for entry in REGISTRY {
        let help = help_of(entry.name);
        let examples = examples(&help);
        assert_eq!(examples.len(), entry.examples.len(), "{help}");
        for example in examples {
            let mut args = example.clone();
            // A directory of this machine instead of the example's, on the build's disk: that takes direct I/O, if any.
            if let Some(place) = args.iter().position(|arg| *arg == "--dir") {
                args.drain(place..place + 2);
            }
            args.extend(["--dir", env!("CARGO_TARGET_TMPDIR")]);
            match args.iter().position(|arg| *arg == "--out") {
                Some(place) => args[place + 1] = OUT,
                None => args.extend(["--out", OUT]),
            }
            let output = bench(&args);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{example:?}: {said}");
            assert!(said.contains(OUT) || said.contains("O_DIRECT"), "{example:?}: {said}");
        }
    }
}

/// A former spelling, the current one, and what both mean.
type Spellings = (&'static str, &'static [(&'static str, f64)], Params, AnyWorkload);

fn values<const N: usize>(list: [(&str, Value); N]) -> Params {
    list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn spellings() -> Vec<Spellings> {
    let pauses = Length::Pauses;
    vec![
        (
            "mix",
            &[("readers", 2.0), ("writers", 1.0), ("section_pauses", 5.0), ("think_pauses", 20.0)],
            values([
                ("readers", 2.into()),
                ("writers", 1.into()),
                ("section", "5p".into()),
                ("think", "20p".into()),
            ]),
            Mix { section: pauses(5), think: pauses(20), ..Mix::dedicated(2, 1) }.into(),
        ),
        (
            "mix",
            &[
                ("threads", 4.0),
                ("read_percent", 99.5),
                ("read_section_pauses", 1.0),
                ("write_section_pauses", 2.0),
                ("read_think_pauses", 3.0),
                ("write_think_pauses", 4.0),
            ],
            values([
                ("threads", 4.into()),
                ("read_percent", 99.5.into()),
                ("read_section", "1p".into()),
                ("write_section", "2p".into()),
                ("read_think", "3p".into()),
                ("write_think", "4p".into()),
            ]),
            Mix {
                read_section: Some(pauses(1)),
                write_section: Some(pauses(2)),
                read_think: Some(pauses(3)),
                write_think: Some(pauses(4)),
                ..Mix::mixed(4, 99.5)
            }
            .into(),
        ),
        (
            "turns",
            &[("threads", 2.0), ("think_pauses", 10.0), ("pinned", 1.0)],
            values([("threads", 2.into()), ("think", "10p".into()), ("pinned", true.into())]),
            Turns { threads: 2, think: pauses(10), pinned: true, ..Turns::default() }.into(),
        ),
        (
            "stress-epoll",
            &[("writers", 3.0), ("trigger", 1.0), ("think_pauses", 7.0)],
            values([("writers", 3.into()), ("trigger", "edge".into()), ("think", "7p".into())]),
            StressEpoll {
                writers: 3,
                trigger: Trigger::Edge,
                think: pauses(7),
                ..StressEpoll::default()
            }
            .into(),
        ),
        (
            "epoll-wait",
            &[("readers", 2.0), ("trigger", 2.0), ("shared", 1.0), ("random", 0.0)],
            values([
                ("readers", 2.into()),
                ("trigger", "once".into()),
                ("shared", true.into()),
                ("random", false.into()),
            ]),
            EpollWait { readers: 2, trigger: Trigger::Once, shared: true, ..EpollWait::default() }
                .into(),
        ),
        (
            "readseek",
            &[("readers", 3.0), ("overlap", 2.0), ("think_pauses", 1.0)],
            values([("readers", 3.into()), ("overlap", "random".into()), ("think", "1p".into())]),
            Readseek {
                reads: Reads {
                    readers: 3,
                    overlap: Overlap::Random,
                    think: pauses(1),
                    ..Reads::default()
                },
            }
            .into(),
        ),
        (
            "log",
            &[("writers", 1.0), ("sync", 0.0)],
            values([("writers", 1.into()), ("sync", "every".into())]),
            Log { sync: Syncing::EveryCommit, ..Log::default() }.into(),
        ),
        (
            "log",
            &[("sync", 1.0)],
            values([("sync", "interval".into())]),
            Log { sync: Syncing::Interval, ..Log::default() }.into(),
        ),
        (
            "log",
            &[("sync", 2.0)],
            values([("sync", "never".into())]),
            Log { sync: Syncing::Never, ..Log::default() }.into(),
        ),
        (
            "inversion-lock",
            &[("work_ns", 50_000.0), ("low_reads", 1.0), ("high_reads", 0.0)],
            values([
                ("work_ns", "50us".into()),
                ("low", "reads".into()),
                ("high", "writes".into()),
            ]),
            InversionLock { low: Access::Reads, ..InversionLock::default() }.into(),
        ),
        (
            "forkstorm",
            &[("threads", 2.0), ("reuse", 1.0), ("wait_every_ns", 300_000.0)],
            values([
                ("threads", 2.into()),
                ("reuse", true.into()),
                ("wait_every_ns", "300us".into()),
            ]),
            Forkstorm { reuse: true, wait_every_ns: 300_000, ..Forkstorm::default() }.into(),
        ),
        (
            "forkstorm-kernel",
            &[("compute_pauses", 100.0)],
            values([("compute", "100p".into())]),
            ForkstormKernel { compute: pauses(100), ..ForkstormKernel::default() }.into(),
        ),
        (
            "dio-lock",
            &[("readers", 1.0), ("read_bytes", 65536.0)],
            values([("readers", 1.into()), ("read_bytes", "64k".into())]),
            DioLock { io: Io { readers: 1, read_bytes: 65536, ..Io::default() } }.into(),
        ),
        (
            "uncontended",
            &[("writers", 1.0)],
            values([("writers", 1.into())]),
            Uncontended::writes().into(),
        ),
    ]
}

#[test]
fn a_study_file_of_an_earlier_version_asks_for_the_same_workloads() {
    for (name, former, now, workload) in spellings() {
        let entry = workloads::named(name).unwrap();
        let former = params::of(former);
        let read = entry.parse(&former).unwrap_or_else(|error| panic!("{former:?}: {error}"));
        assert_eq!(read, workload, "{former:?}");
        assert_eq!(entry.parse(&now), Ok(workload), "{now:?}");
        // Also where only some parameters are asked for: by a claim, or a plot.
        assert_eq!(entry.canonical(&former), entry.canonical(&now), "{name}");
    }
}

#[test]
fn choices_that_never_were_are_refused_with_those_there_are() {
    for (workload, name, value, valid) in [
        ("stress-epoll", "trigger", 3.0, "`level`, `edge`, `once`"),
        ("readseek", "overlap", 3.0, "`disjoint`, `same`, `random`"),
        ("log", "sync", 3.0, "`every`, `interval`, `never`"),
        ("inversion-lock", "low_reads", 2.0, "`writes`, `reads`"),
    ] {
        let entry = workloads::named(workload).unwrap();
        let said = entry.parse(&params::of(&[(name, value)])).unwrap_err();
        let mut words = valid.split(", ");
        assert!(words.all(|word| said.contains(word)), "{workload}: {said}");
    }
}

/// The rows of a bench on a simulated machine, each run as briefly as can be.
fn rows(args: &[&str]) -> Vec<Row> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    let brief = ["--on", "x86-12", "--seeds", "1", "--seconds", "0.0001", "--out"];
    let output = bench(&[args, &brief, &[path.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    Recording::read(&path, fairlock_study::registry::current).unwrap().rows
}

/// The values of some parameters in each row that was asked for, in the order of the rows.
fn shown(rows: &[Row], names: &[&str]) -> Vec<String> {
    let of = |row: &Row| {
        names.iter().fold(row.lock.clone(), |mut text, name| {
            match row.params.get(*name) {
                Some(value) => write!(text, " {value}").expect("memory can be written"),
                None => text.push_str(" -"),
            }
            text
        })
    };
    rows.iter().filter(|row| !row.for_limit).map(of).collect()
}

#[test]
fn every_combination_of_lists_is_a_point_of_all_locks() {
    let args = ["turns", "--lock", "rwsem,mutex", "--threads", "1,2", "--read-percent", "0,50,100"];
    let found = rows(&[&args[..], &["--pinned", "--section", "1p", "--section", "30ns"]].concat());
    let mut expected = Vec::new();
    for threads in [1, 2] {
        for percent in [0, 50, 100] {
            for section in ["1p", "30ns"] {
                for lock in ["rwsem", "mutex"] {
                    expected.push(format!("{lock} {threads} {percent} {section} true"));
                }
            }
        }
    }
    let names = ["threads", "read_percent", "section", "pinned"];
    assert_eq!(shown(&found, &names), expected);
}

#[test]
fn points_that_differ_in_what_nobody_uses_run_once() {
    let args = ["dio-lock", "--lock", "rwsem", "--readers", "0,1,2", "--read-bytes", "4k,64k"];
    let found = shown(&rows(&args), &["readers", "read_bytes"]);
    let with_readers = ["rwsem 1 4096", "rwsem 1 65536", "rwsem 2 4096", "rwsem 2 65536"];
    assert_eq!(found, [&["rwsem 0 4096"][..], &with_readers].concat());
    // The same of what writers do, where there are none.
    let args = ["dio-sleep", "--lock", "rwsem", "--readers", "1", "--writers", "0,1"];
    let found = rows(&[&args[..], &["--write-hold", "10us,20us"]].concat());
    let found = shown(&found, &["writers", "write_hold_ns"]);
    assert_eq!(found, ["rwsem 0 10000", "rwsem 1 10000", "rwsem 1 20000"]);
    // What is named twice runs once, however it is written.
    let args =
        ["mix", "--lock", "rwsem,mutex,rwsem", "--threads", "2,4,2", "--section", "1us,1000ns"];
    let found = shown(&rows(&args), &["threads", "section"]);
    let of = |threads: u32| ["rwsem", "mutex"].map(|lock| format!("{lock} {threads} 1000ns"));
    assert_eq!(found, [of(2), of(4)].concat());
}

#[test]
fn options_that_are_not_given_have_their_default_points() {
    let threads = |args: &[&str]| {
        shown(&rows(&[args, &["--lock", "rwsem"]].concat()), &["readers", "writers", "threads"])
    };
    assert_eq!(threads(&["mix"]), ["rwsem 1 1 2", "rwsem 4 4 8"]);
    assert_eq!(threads(&["mix", "--read-percent", "50"]), ["rwsem - - 2", "rwsem - - 8"]);
    assert_eq!(threads(&["mix", "--readers", "3"]), ["rwsem 3 0 3"]);
    assert_eq!(
        threads(&["mix", "--readers", "1", "--writers", "1,2"]),
        ["rwsem 1 1 2", "rwsem 1 2 3"]
    );
    assert_eq!(threads(&["uncontended"]), ["rwsem 1 0 -", "rwsem 0 1 -"]);
    assert_eq!(threads(&["uncontended", "--readers", "1,2"]), ["rwsem 1 0 -", "rwsem 2 0 -"]);
}

#[test]
fn a_mix_brings_each_of_its_roles_alone_once_unless_that_is_declined() {
    let names = ["readers", "writers"];
    let all = |args: &[&str]| -> Vec<String> {
        let rows = rows(&[&["mix", "--lock", "rwsem"], args].concat());
        let words = |row: &Row| {
            let mark = if row.for_limit { "+" } else { "" };
            let asked = Row { for_limit: false, ..row.clone() };
            format!("{mark}{}", shown(&[asked], &names)[0])
        };
        assert!(rows.iter().all(|row| {
            let is_mix = row.roles.len() == 2 && !row.params.contains_key("read_percent");
            row.limit.is_some() == (is_mix && !args.contains(&"--no-limit"))
        }));
        rows.iter().map(words).collect()
    };
    let (mix, other) = ("rwsem 1 1", "rwsem 1 2");
    let two = ["--readers", "1", "--writers", "1,2"];
    assert_eq!(all(&two), [mix, "+rwsem 1 0", "+rwsem 0 1", other, "+rwsem 0 2"]);
    assert_eq!(all(&[&two[..], &["--no-limit"]].concat()), [mix, other]);
    // What is asked for anyway is no addition.
    let asked = ["--readers", "1", "--writers", "0,1"];
    assert_eq!(all(&asked), ["rwsem 1 0", mix, "+rwsem 0 1"]);
    // Alone there is no order, and each role arrives as it does beside the other.
    let arriving = ["--threads", "2", "--order", "shuffled", "--arrival", "queued"];
    assert_eq!(all(&arriving), [mix, "+rwsem 1 0", "+rwsem 0 1"]);
    assert_eq!(all(&["--threads", "2", "--read-percent", "50"]), ["rwsem - -"]);
    assert_eq!(all(&["--writers", "2"]), ["rwsem 0 2"]);
}

#[test]
fn locks_of_a_mix_are_ranked_in_the_terminal_and_in_a_page_of_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let [path, page] = ["rows.jsonl", "page.html"].map(|name| dir.path().join(name));
    let [path, page] = [&path, &page].map(|it| it.to_str().unwrap());
    let brief = ["mix", "--on", "x86-12", "--threads", "2", "--lock", "rwsem,linux-5.1"];
    let more = ["--seeds", "2", "--seconds", "0.0002", "--out", path];
    let output = bench(&[&brief[..], &more].concat());
    let said = text(&output.stdout);
    assert!(said.contains("of the limit") && !said.contains("1 reader ·"), "{said}");
    let report = |rows: &str| {
        let report = ["report", rows, "--out", page];
        let output = crate::fairlock().args(report).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        std::fs::read_to_string(page).unwrap()
    };
    let first = report(path);
    assert!(first.contains("<th>of the limit"), "{first}");
    // A file of an earlier version does not have the figures, only the rows.
    let written = std::fs::read_to_string(path).unwrap();
    let (before, rest) = written.split_once("\"limit\":{").expect("a limit");
    let (_, behind) = rest.split_once("}},").expect("the end of a limit");
    std::fs::write(path, format!("{before}{behind}")).unwrap();
    assert_eq!(report(path), first);
    let output = bench(&["turns", "--no-limit"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn more_points_than_anybody_means_are_refused() {
    let numbers: Vec<String> = (1..=101).map(|number| number.to_string()).collect();
    let list = numbers.join(",");
    let output = bench(&["mix", "--readers", &list, "--writers", &list]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("more than 10000 points"), "{said}");
}
