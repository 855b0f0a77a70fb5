//! `fairlock log` from outside: a log through the shell, followed, killed, damaged, refused.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// On the build's disk: /tmp is often one without O_DIRECT.
fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn log(command: &str, path: &Path, options: &[&str]) -> Command {
    let mut fairlock = crate::fairlock();
    fairlock.args(["log", command]).arg(path).args(options);
    fairlock
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

/// What it prints; it must succeed.
fn prints(command: &str, path: &Path, options: &[&str]) -> String {
    let output = run(&mut log(command, path, options));
    let said = text(&output.stderr);
    assert!(output.status.success(), "{command} {options:?}: {said}");
    text(&output.stdout)
}

/// What it says on stderr; it must succeed and print nothing else.
fn append(path: &Path, options: &[&str], input: &[u8]) -> String {
    let mut child = start(&mut log("append", path, options));
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
    unbroken(&text(&output.stderr))
}

/// Runs, expects the exit code and one line on stderr, which must contain all of `words`.
fn refuses(command: &str, path: &Path, options: &[&str], code: i32, words: &[&str]) {
    let output = run(&mut log(command, path, options));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{command} {options:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in words {
        assert!(said.starts_with("error: ") && said.contains(word), "lacks {word}: {said}");
    }
}

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: the child is not waited for yet, so its number is still its own.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What was said, with the lines that were broken to fit whole again.
fn unbroken(said: &str) -> String {
    said.replace("\n  ", " ")
}

/// The positions of all records.
fn positions(path: &Path) -> Vec<u64> {
    let lines = prints("tail", path, &["--from", "start", "--positions"]);
    lines.lines().map(|line| line.split('\t').next().unwrap().parse().unwrap()).collect()
}

fn first_segment(path: &Path) -> PathBuf {
    path.join(format!("{:016}.segment", 0))
}

fn flip(file: &Path, offset: u64) {
    let file = fs::File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[!byte[0]], offset).unwrap();
}

#[test]
fn lines_come_back_as_they_were() {
    let directory = directory();
    let path = directory.path().join("log");
    let said = append(&path, &[], b"one\n\n  three\nfour");
    assert!(said.starts_with("4 records, 14 B, at positions "), "{said}");
    let figures = said.lines().nth(1).unwrap();
    // How many writes depends on how fast the lines come.
    assert!(figures.contains("; append p50 "), "{said}");
    assert!(figures.contains("; write p50 ") && !figures.contains("sync"), "{said}");
    assert_eq!(prints("tail", &path, &[]), "one\n\n  three\nfour\n");
    append(&path, &["--sync", "never"], b"five\n");
    append(&path, &["--sync", "interval", "--interval", "5ms"], b"six\n");
    assert_eq!(prints("tail", &path, &["-n", "2"]), "five\nsix\n");
    assert_eq!(prints("tail", &path, &["--records", "1"]), "six\n");
    assert_eq!(append(&path, &[], b""), "nothing appended: the input was empty\n");
}

#[test]
fn records_may_hold_anything() {
    let directory = directory();
    let path = directory.path().join("log");
    append(&path, &["-0"], b"a\nb\0\0c");
    assert_eq!(prints("tail", &path, &["-0"]), "a\nb\0\0c\0");
    let said = append(&path, &["--whole"], b"\xff\n\0");
    assert!(said.starts_with("1 record, 3 B, at position "), "{said}");
    let last = *positions_of_any(&path).last().unwrap();
    assert!(said.lines().next().unwrap().ends_with(&format!(" {last}")), "{said}");
    let raw = run(&mut log("tail", &path, &["-n", "1", "--format", "raw"]));
    assert_eq!(raw.stdout, b"\xff\n\0");
    let json = prints("tail", &path, &["-n", "1", "--format", "json"]);
    let record = objects(&json).next().unwrap();
    assert_eq!((&record["position"], &record["hex"]), (&last.into(), &"ff0a00".into()));
}

fn objects(lines: &str) -> impl Iterator<Item = serde_json::Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn positions_of_any(path: &Path) -> Vec<u64> {
    let json = prints("tail", path, &["--from", "start", "--format", "json"]);
    objects(&json).map(|record| record["position"].as_u64().unwrap()).collect()
}

#[test]
fn the_last_records_are_found_across_segments() {
    let directory = directory();
    let path = directory.path().join("log");
    let lines: Vec<String> = (0..300).map(|it| format!("{it} {}", "x".repeat(1000))).collect();
    append(&path, &["--segment", "64k"], (lines.join("\n") + "\n").as_bytes());
    let all = prints("tail", &path, &["--from", "start"]);
    assert_eq!(all.lines().collect::<Vec<_>>(), lines);
    for count in [0, 1, 10, 63, 64, 150, 299, 300, 1000] {
        let last = prints("tail", &path, &["-n", &count.to_string()]);
        let expected = &lines[lines.len().saturating_sub(count)..];
        assert_eq!(last.lines().collect::<Vec<_>>(), expected, "{count}");
    }
    flip(&path.join(format!("{:016}.segment", 4)), 4096);
    let (printed, _, said) = last(&path, 65);
    assert!(printed.iter().eq(&lines[300 - printed.len()..]), "{said}");
    assert!(said.contains("0000000000000004.segment, byte 4096"), "{said}");
    flip(&path.join(format!("{:016}.segment", 4)), 4096);
    let third = positions(&path)[297].to_string();
    assert_eq!(prints("tail", &path, &["--from", &third]).lines().count(), 3);
    assert_eq!(prints("tail", &path, &["--from", "end"]), "");
}

#[test]
fn a_line_is_committed_when_it_is_typed_and_followed_elsewhere() {
    let directory = directory();
    let path = directory.path().join("log");
    append(&path, &[], b"before\n");
    let mut tail = start(&mut log("tail", &path, &["--follow"]));
    let mut followed = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = || followed.next().unwrap().unwrap();
    assert_eq!(next(), "before");

    let mut appending = start(&mut log("append", &path, &[]));
    let mut typed = appending.stdin.take().unwrap();
    for line in ["first", "second"] {
        writeln!(typed, "{line}").unwrap();
        assert_eq!(next(), line, "while the input is still open");
    }
    refuses("append", &path, &[], 1, &[&format!("process {}", appending.id())]);
    let figures = prints("stat", &path, &[]);
    assert!(figures.contains(&format!("process {}", appending.id())), "{figures}");

    signal(&appending, libc::SIGINT);
    let output = appending.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).starts_with("2 records, 11 B"), "{}", text(&output.stderr));
    assert!(prints("stat", &path, &[]).contains("it was closed"));

    // Nobody reads what it prints any more.
    drop(followed);
    append(&path, &[], b"last\n");
    let output = tail.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn what_was_seen_before_the_appender_was_killed_is_there_after() {
    let directory = directory();
    let path = directory.path().join("log");
    append(&path, &["--segment", "1m"], b"0\n");
    for round in 0..5 {
        let before = prints("tail", &path, &["-n", "1"]).trim_end().parse::<u64>().unwrap();
        let mut tail = start(&mut log("tail", &path, &["--follow", "-n", "0"]));
        let mut appending = start(&mut log("append", &path, &[]));
        let mut input = appending.stdin.take().unwrap();
        let feeding = std::thread::spawn(move || {
            // Until the reading end is gone.
            (before + 1..).find(|it| writeln!(input, "{it}").is_err())
        });
        let mut seen = before;
        for line in BufReader::new(tail.stdout.take().unwrap()).lines().take(100 * (1 + round)) {
            seen = line.unwrap().parse().unwrap();
        }
        signal(&appending, libc::SIGKILL);
        appending.wait().unwrap();
        feeding.join().unwrap();
        let _ = tail.kill();
        tail.wait().unwrap();

        // What was written whole when it was killed is in the log from now on, though nobody was told.
        let said = append(&path, &[], b"");
        assert!(said.starts_with("the log had not been closed"), "{said}");
        let found = prints("verify", &path, &[]);
        assert!(found.contains("no damage"), "{found}");
        let all = prints("tail", &path, &["--from", "start"]);
        let all: Vec<u64> = all.lines().map(|line| line.parse().unwrap()).collect();
        let odd = all.iter().zip(0..).find(|&(&it, expected)| it != expected);
        assert_eq!(odd, None, "each once, in order");
        assert!(all.len() as u64 > seen, "{seen} was seen, {} are there", all.len());
    }
}

/// A `tail --follow` that has printed these lines, and the rest of what it prints.
fn following(path: &Path, options: &[&str], lines: &[&str]) -> (Child, impl FnMut() -> String) {
    let mut tail = start(log("tail", path, options).arg("--follow"));
    let mut printed = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = move || printed.next().unwrap().unwrap();
    for &line in lines {
        assert_eq!(next(), line);
    }
    (tail, next)
}

#[test]
fn who_follows_a_log_is_told_that_its_writer_died_and_goes_on_with_the_next() {
    let directory = directory();
    let path = directory.path().join("log");
    let mut appending = start(&mut log("append", &path, &[]));
    let mut typed = appending.stdin.take().unwrap();
    writeln!(typed, "one").unwrap();
    while run(&mut log("tail", &path, &[])).stdout != b"one\n" {}
    let (mut tail, mut next) = following(&path, &[], &["one"]);
    let mut told = BufReader::new(tail.stderr.take().unwrap()).lines();
    writeln!(typed, "two").unwrap();
    assert_eq!(next(), "two");
    signal(&appending, libc::SIGKILL);
    appending.wait().unwrap();
    let said = told.next().unwrap().unwrap();
    assert!(said.contains("the log's writer died"), "{said}");
    append(&path, &[], b"three\n");
    assert_eq!(next(), "three");
    tail.kill().unwrap();
    tail.wait().unwrap();
    assert!(told.next().is_none(), "it is said once, and nothing of a log that is closed");
}

#[test]
fn who_follows_a_log_that_is_removed_or_replaced_is_told_and_one_that_is_renamed_goes_on() {
    let directory = directory();
    let path = directory.path().join("log");
    let ends = |tail: Child, word: &str| {
        let output = tail.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("error: ") && said.contains(word), "{said}");
    };
    append(&path, &[], b"one\n");
    let (tail, _next) = following(&path, &[], &["one"]);
    fs::remove_dir_all(&path).unwrap();
    ends(tail, "was removed");

    append(&path, &[], b"one\n");
    let (tail, mut next) = following(&path, &[], &["one"]);
    let renamed = directory.path().join("renamed");
    fs::rename(&path, &renamed).unwrap();
    append(&renamed, &[], b"two\n");
    assert_eq!(next(), "two");
    append(&path, &[], b"of another log\n");
    ends(tail, "another log");
}

#[test]
fn damage_is_passed_over_if_that_is_wanted_and_named() {
    let directory = directory();
    let path = directory.path().join("log");
    let lines: Vec<String> = (0..300).map(|it| format!("{it} {}", "x".repeat(1000))).collect();
    append(&path, &["--segment", "64k"], (lines.join("\n") + "\n").as_bytes());
    let skipping = |options: &[&str]| {
        let output = run(log("tail", &path, options).arg("--skip-damage"));
        let printed: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
        (printed, output.status.code(), unbroken(&text(&output.stderr)))
    };
    let all = (lines.clone(), Some(0), String::new());
    assert_eq!(skipping(&["--from", "start"]), all);

    let places = positions(&path);
    // The first batch of a segment, whose header is before its first record, and one record more.
    let fourth = places.iter().position(|&place| place > 4 << 16).unwrap();
    let segment = path.join(format!("{:016}.segment", 4));
    flip(&segment, 4096);
    flip(&first_segment(&path), places[1] + 24);
    let (printed, code, said) = skipping(&["--from", "start"]);
    assert_eq!(code, Some(1), "{said}");
    let mut whole = lines.clone();
    whole.remove(1);
    assert_eq!(printed, whole);
    let told: Vec<_> = said.lines().collect();
    let begins = |line: &str, position: u64, what: &str| {
        assert!(line.starts_with(&format!("position {position}: {what}")), "{said}");
    };
    begins(told[0], places[1], "a record, ");
    begins(told[1], (4 << 16) + 4096, "a batch's header");
    assert!(told[2].starts_with("error: ") && told[2].contains("2 places passed over"), "{said}");

    // Only what is among the records that are asked for is told of.
    let at_damage = 300 - fourth;
    for (count, damages) in [(10, 0), (at_damage, 1), (at_damage + 1, 1), (299, 2)] {
        let (printed, code, said) = skipping(&["-n", &count.to_string()]);
        assert_eq!(printed, whole[299 - count..], "{count}: {said}");
        assert_eq!(code, Some(i32::from(damages > 0)), "{count}: {said}");
        assert_eq!(said.matches("position ").count(), damages, "{count}: {said}");
    }
}

#[test]
fn damage_is_listed_with_its_place_and_the_rest_counted() {
    let directory = directory();
    let path = directory.path().join("log");
    append(&path, &[], b"one\ntwo\nthree\nfour\n");
    let sound = prints("verify", &path, &[]);
    assert!(sound.starts_with("4 records") && sound.ends_with("no damage\n"), "{sound}");

    let places = positions(&path);
    for place in [places[1] + 24, places[2]] {
        flip(&first_segment(&path), place);
    }
    refuses("verify", &path, &["--json"], 1, &["damaged in 2 places", "2 records lost"]);
    let output = run(&mut log("verify", &path, &[]));
    let said = unbroken(&text(&output.stdout));
    for (place, what) in [(places[1], "a record, 27 bytes"), (places[2], "a record's header, ")] {
        let expected = format!("position {place}: {what}");
        let line = said.lines().find(|line| line.starts_with(&expected));
        let line = line.unwrap_or_else(|| panic!("{expected} in {said}"));
        assert!(line.ends_with(&format!("(0000000000000000.segment, byte {place})")), "{line}");
    }
    assert!(said.contains("2 records, 7 B"), "{said}");

    let output = run(&mut log("verify", &path, &["--json"]));
    let objects: Vec<_> = objects(&text(&output.stdout)).collect();
    assert_eq!(objects.len(), 3);
    let types: Vec<_> = objects.iter().map(|object| &object["type"]).collect();
    assert_eq!(types, ["damage", "damage", "summary"]);
    assert_eq!(
        (&objects[0]["position"], &objects[0]["offset"]),
        (&places[1].into(), &places[1].into())
    );
    assert_eq!((&objects[2]["damages"], &objects[2]["records"]), (&2.into(), &2.into()));

    let output = run(&mut log("tail", &path, &["--from", "start"]));
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "one\n".to_owned()));
    let said = text(&output.stderr);
    let place = format!("0000000000000000.segment, byte {})", places[1]);
    assert!(said.contains(&place) && said.contains("log verify"), "{said}");
}

#[test]
fn a_damaged_log_is_repaired_and_what_is_overwritten_is_saved() {
    let directory = directory();
    let path = directory.path().join("log");
    append(&path, &[], b"one\ntwo\nthree\nfour\n");
    let sound = prints("repair", &path, &[]);
    assert_eq!(sound, "4 records, no damage: nothing to do\n");

    let places = positions(&path);
    flip(&first_segment(&path), places[1] + 24);
    let names = || {
        let names = fs::read_dir(&path).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let before = (names(), fs::read(first_segment(&path)).unwrap());
    let needed =
        ["needs to be repaired", "1 record lost", "`fairlock log repair`, without --dry-run"];
    refuses("repair", &path, &["--dry-run"], 1, &needed);
    let (given_up, advice) =
        ("2 records that are whole", "repair --up-to-damage`, without --dry-run");
    let needed = ["1 record lost", given_up, "given up", advice];
    refuses("repair", &path, &["--dry-run", "--up-to-damage"], 1, &needed);
    assert!(before == (names(), fs::read(first_segment(&path)).unwrap()));
    let output = run(&mut log("repair", &path, &["--dry-run", "--up-to-damage", "--json"]));
    let planned = objects(&text(&output.stdout)).last().unwrap();
    assert_eq!(
        (&planned["given_up_records"], &planned["cut_at"], &planned["repaired"]),
        (&2.into(), &places[1].into(), &false.into())
    );

    let said = prints("repair", &path, &[]);
    assert!(said.starts_with(&format!("position {}: a record, 27 bytes", places[1])), "{said}");
    assert!(said.contains("3 records kept, 1 record lost\n"), "{said}");
    let saved = path.join("damaged-8192-1.bytes");
    assert!(said.contains(&format!("saved {}\n", saved.display())), "{said}");
    assert!(fs::read(saved).unwrap().windows(4).any(|it| it == b"four"));
    assert_eq!(prints("tail", &path, &[]), "one\nthree\nfour\n");
    let said = prints("verify", &path, &[]);
    let hole = "1 hole, 32 B: records that an earlier repair or cut gave up";
    assert!(said.contains(&format!("{hole}; that is no damage\n")), "{said}");
    let summary = objects(&prints("verify", &path, &["--json"])).last().unwrap();
    assert_eq!(
        (&summary["type"], &summary["holes"], &summary["gaps"], &summary["given_up_bytes"]),
        (&"summary".into(), &1.into(), &0.into(), &32.into())
    );
    assert!(prints("repair", &path, &[]).ends_with(&format!("nothing to do\n{hole}\n")));
    let summary = objects(&prints("repair", &path, &["--json"])).last().unwrap();
    assert_eq!((&summary["type"], &summary["holes"]), (&"summary".into(), &1.into()));
    append(&path, &[], b"five\n");
    assert_eq!(prints("tail", &path, &[]), "one\nthree\nfour\nfive\n");
}

#[test]
fn of_a_missing_segment_its_size_is_told_as_nothing_says_how_many_records_it_had() {
    let directory = directory();
    let path = directory.path().join("log");
    append(&path, &["--segment", "64k", "--sync", "never"], &b"some line\n".repeat(20_000));
    let places = positions(&path);
    fs::remove_file(path.join(format!("{:016}.segment", 3))).unwrap();
    let lost = "all records in missing segments (64 KiB)";
    refuses("verify", &path, &["--json"], 1, &[&format!("{lost} lost: their number is not known")]);
    flip(&first_segment(&path), places[0] + 24);
    let expected = format!("1 record lost, and {lost}: their number is not known");
    refuses("verify", &path, &["--json"], 1, &[&expected]);
    refuses("repair", &path, &["--dry-run", "--json"], 1, &[&expected]);
    assert!(unbroken(&prints("repair", &path, &[])).contains(&expected));
    let said = prints("verify", &path, &[]);
    assert!(said.contains("1 hole and 1 gap, "), "{said}");
}

#[test]
fn a_damaged_log_can_be_cut_off_before_the_damage() {
    let directory = directory();
    let path = directory.path().join("log");
    append(&path, &[], b"one\ntwo\nthree\nfour\n");
    let places = positions(&path);
    flip(&first_segment(&path), places[1] + 24);
    let said = prints("repair", &path, &["--up-to-damage"]);
    let cut = format!("cut off at position {}: 2 records that are whole given up\n", places[1]);
    assert!(said.contains(&cut) && said.contains("1 record kept, 1 record lost\n"), "{said}");
    append(&path, &[], b"five\n");
    assert_eq!(prints("tail", &path, &[]), "one\nfive\n");
    prints("verify", &path, &[]);
}

#[test]
fn a_log_that_lost_its_control_page_is_told_from_none() {
    let directory = directory();
    let path = directory.path().join("log");
    append(&path, &[], b"one\n");
    fs::remove_file(path.join("control")).unwrap();
    for command in ["tail", "stat"] {
        refuses(command, &path, &[], 1, &["control page is missing", "log repair"]);
    }
    prints("repair", &path, &[]);
    assert_eq!(prints("tail", &path, &[]), "one\n");
}

#[test]
fn what_is_no_log_is_refused_with_what_to_do() {
    let directory = directory();
    let path = directory.path().join("log");
    for command in ["tail", "verify", "stat"] {
        refuses(command, &path, &[], 1, &["there is no log", "log append"]);
        refuses(command, directory.path(), &[], 1, &["there is no log", "log append"]);
    }
    let file = directory.path().join("file");
    fs::write(&file, "text").unwrap();
    for command in ["append", "tail", "verify", "stat"] {
        refuses(command, &file, &[], 1, &["is a file", "a log is a directory"]);
    }
    refuses("append", &path, &["--segment", "5000"], 2, &["--segment", "4096"]);
    refuses("append", &path, &["--segment", "1025g"], 2, &["--segment", "1 TiB"]);
    refuses("append", &path, &["--sync", "often"], 2, &["every, interval, never"]);
    refuses("append", &path, &["--whole", "-0"], 2, &["--whole", "--null"]);
    assert!(!path.exists());

    append(&path, &[], b"one\n");
    let said = append(&path, &["--segment", "1m"], b"");
    assert!(said.contains("segments of 64 MiB"), "{said}");
    refuses("tail", &path, &["--from", "4145"], 1, &["no record begins at position 4145"]);
    refuses("tail", &path, &["--from", "x"], 2, &["\"x\"", "start, end"]);
    refuses("tail", &path, &["--positions", "--format", "raw"], 2, &["--format lines"]);

    let page = fs::read(path.join("control")).unwrap();
    let checked = [&page[24..40], &1_u64.to_le_bytes(), &page[16..24], &99_u64.to_le_bytes()];
    let word = 99 | u64::from(crc32c::crc32c(&checked.concat())) << 32;
    let control = fs::File::options().write(true).open(path.join("control")).unwrap();
    control.write_all_at(&word.to_le_bytes(), 8).unwrap();
    for command in ["append", "tail", "verify", "stat"] {
        refuses(command, &path, &[], 1, &["version 99", "version 2", "later program"]);
    }
}

#[test]
fn records_that_are_no_longer_wanted_are_given_up() {
    let directory = directory();
    let path = directory.path().join("log");
    append(&path, &["--segment", "64k", "--sync", "never"], &b"some line\n".repeat(20_000));
    let all = positions(&path);
    let at = |number: usize| all[number].to_string();

    assert!(prints("truncate", &path, &["--before", &at(3)]).contains(&at(3)));
    assert_eq!(positions(&path), all[3..]);
    prints("truncate", &path, &["--after", &at(19_990)]);
    assert_eq!(positions(&path), all[3..=19_990]);
    let said = prints("truncate", &path, &["--keep", "128k"]);
    assert!(!said.contains(" 0 segments"), "{said}");
    let kept = positions(&path);
    assert!(kept.len() < 10_000 && all[3..=19_990].ends_with(&kept), "{}", kept.len());
    prints("truncate", &path, &["--before", "end"]);
    assert_eq!(positions(&path), [0; 0]);
    append(&path, &[], b"one\ntwo\n");
    prints("truncate", &path, &["--after", "start"]);
    assert_eq!(positions(&path), [0; 0]);
    prints("verify", &path, &[]);

    for which in ["--before", "--after"] {
        refuses("truncate", &path, &[which, "999999999"], 1, &["no record", "999999999"]);
    }
    refuses("truncate", &path, &[], 2, &["--before", "--after", "--keep"]);
    refuses("truncate", &path, &["--keep", "1m", "--after", "start"], 2, &["--keep", "--after"]);
    let none = directory.path().join("none");
    refuses("truncate", &none, &["--keep", "1m"], 1, &["there is no log"]);
    assert!(!none.exists());
}

#[test]
fn figures_are_told_without_reading_the_log() {
    let directory = directory();
    let path = directory.path().join("log");
    append(&path, &["--segment", "64k"], &b"some line\n".repeat(10_000));
    let figures = serde_json::from_str::<serde_json::Value>(&prints("stat", &path, &["--json"]));
    let figures = figures.unwrap();
    assert_eq!((&figures["segment_bytes"], &figures["openings"]), (&65536.into(), &1.into()));
    assert_eq!(figures["lineage"], "0".repeat(16));
    assert_eq!((&figures["closed"], &figures["writer"]), (&true.into(), &().into()));
    assert_eq!(figures["committed"], figures["durable"]);
    let files = figures["segments"].as_u64().unwrap();
    assert!(files > 4 && figures["disk_bytes"].as_u64().unwrap() > (files - 1) * 65536);
    let text = prints("stat", &path, &[]);
    assert!(text.contains("64 KiB") && text.contains("it was closed"), "{text}");
}

#[test]
fn a_closed_output_is_no_failure_and_a_full_one_is_an_error() {
    let directory = directory();
    let path = directory.path().join("log");
    append(&path, &[], b"one\ntwo\n");
    for command in ["tail", "stat", "verify", "repair"] {
        let with = |output: Stdio| {
            let mut command = log(command, &path, &[]);
            let output = command.stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
            let output = output.spawn().unwrap().wait_with_output().unwrap();
            (output.status.code(), text(&output.stderr))
        };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(with(writer.into()), (Some(0), String::new()), "{command}");
        let (code, said) = with(fs::File::options().write(true).open("/dev/full").unwrap().into());
        assert_eq!(code, Some(1), "{command}: {said}");
        assert!(said.starts_with("error: cannot write the output: No space"), "{command}: {said}");
        assert_eq!(said.lines().count(), 1, "{command}: {said}");
    }
}

#[test]
fn a_record_that_is_too_large_is_named_and_those_before_it_are_kept() {
    let directory = directory();
    let path = directory.path().join("log");
    let mut child = start(&mut log("append", &path, &["--segment", "64k"]));
    let mut input = b"one\ntwo\n".to_vec();
    input.extend([b'x'; 70_000]);
    // It may stop before it has read all.
    let _ = child.stdin.take().unwrap().write_all(&input);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(said.contains("record 3 of the input is not in the log"), "{said}");
    assert!(said.contains("70000 bytes") && said.contains("larger segments"), "{said}");
    assert_eq!(prints("tail", &path, &[]), "one\ntwo\n");
}

#[test]
fn a_backup_has_what_was_appended_while_the_log_goes_on() {
    let directory = directory();
    let path = directory.path().join("log");
    let lines: Vec<String> = (0..300).map(|it| format!("{it} {}", "x".repeat(1000))).collect();
    let mut appending = start(&mut log("append", &path, &["--segment", "64k"]));
    let mut input = appending.stdin.take().unwrap();
    input.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    input.flush().unwrap();
    while !path.exists() || prints("tail", &path, &["-n", "1"]).trim() != lines[299] {}

    let copy = directory.path().join("copy");
    let said = prints("backup", &path, &[copy.to_str().unwrap()]);
    assert!(said.starts_with("positions 4096 to "), "{said}");
    assert!(said.contains(" linked, ") && said.ends_with(" copied\n"), "{said}");
    input.write_all(b"later\n").unwrap();
    drop(input);
    assert!(appending.wait().unwrap().success());
    let copied = prints("tail", &copy, &["--from", "start"]);
    assert_eq!(copied.lines().collect::<Vec<_>>(), lines);
    prints("verify", &copy, &[]);
    append(&copy, &[], b"another\n");
    assert_eq!(prints("tail", &copy, &["-n", "1"]), "another\n");
    assert_eq!(prints("tail", &path, &["-n", "1"]), "later\n");

    let other = directory.path().join("other");
    let json = prints("backup", &path, &[other.to_str().unwrap(), "--json"]);
    let made = objects(&json).next().unwrap();
    assert_eq!(made["first"], 4096);
    let stat = objects(&prints("stat", &other, &["--json"])).next().unwrap();
    assert_eq!(stat["committed"], made["end"]);
    assert_eq!(stat["closed"], true);
    let lineage = stat["lineage"].as_str().unwrap();
    assert_ne!(lineage, "0".repeat(16), "it is a copy");
    let said = prints("stat", &other, &[]);
    assert!(said.lines().any(|line| line.split_once(' ').unwrap().1.trim() == lineage), "{said}");
}

#[test]
fn a_backup_into_what_is_there_or_of_what_is_not_is_refused() {
    let directory = directory();
    let path = directory.path().join("log");
    append(&path, &[], b"one\n");
    let to = |copy: &Path| copy.to_str().unwrap().to_owned();
    refuses("backup", &path, &[&to(&path)], 1, &["there is a log already"]);
    refuses("backup", &path, &[&to(&path.join("x"))], 1, &["the log's own directory"]);
    assert!(!path.join("x").exists());
    let others = directory.path().join("others");
    fs::create_dir(&others).unwrap();
    fs::write(others.join("file"), b"").unwrap();
    refuses("backup", &path, &[&to(&others)], 1, &["other files"]);
    refuses("backup", &path, &[&to(&others.join("file"))], 1, &["is a file"]);
    let missing = directory.path().join("missing");
    refuses("backup", &missing, &[&to(&directory.path().join("copy"))], 1, &["no log", "missing"]);
    assert!(!directory.path().join("copy").exists());
}

/// What `tail -n` prints and says of a damaged log, and its exit code.
fn last(path: &Path, count: usize) -> (Vec<String>, Option<i32>, String) {
    let output = run(&mut log("tail", path, &["-n", &count.to_string()]));
    let printed = text(&output.stdout).lines().map(str::to_owned).collect();
    (printed, output.status.code(), unbroken(&text(&output.stderr)))
}

#[test]
fn the_last_records_behind_damage_are_printed_and_the_damage_is_named_once() {
    const RECORDS: usize = 300;
    let directory = directory();
    let sound = directory.path().join("sound");
    let lines: Vec<String> = (0..RECORDS).map(|it| format!("{it} {}", "x".repeat(1000))).collect();
    append(&sound, &["--segment", "64k"], (lines.join("\n") + "\n").as_bytes());
    let places = positions(&sound);
    let fourth = places.iter().position(|&place| place > 4 << 16).unwrap();
    let segment_of = |record: usize| (places[record] >> 16, places[record] & 0xffff);
    // The number of the first record that is whole behind it, where it is, and what is there.
    let damages = [
        (2, segment_of(1).0, segment_of(1).1 + 24, "a record, "),
        (200, segment_of(199).0, segment_of(199).1, "a record's header, "),
        (fourth, 4, 4096, "a batch's header, "),
        (fourth, 4, 10, "a segment's header, "),
        (RECORDS - 3, segment_of(RECORDS - 4).0, segment_of(RECORDS - 4).1 + 50, "a record, "),
        (RECORDS, segment_of(RECORDS - 1).0, segment_of(RECORDS - 1).1 + 50, "a record, "),
    ];
    // A copy that knows where it ends, and one in which damage hides that.
    let ways = [true, false].into_iter().flat_map(|is_backup| damages.map(|it| (is_backup, it)));
    for (number, (is_backup, (behind, segment, offset, what))) in ways.enumerate() {
        let path = directory.path().join(number.to_string());
        if is_backup {
            prints("backup", &sound, &[path.to_str().unwrap()]);
        } else {
            fs::create_dir(&path).unwrap();
            for file in sound.read_dir().unwrap().map(|file| file.unwrap()) {
                fs::copy(file.path(), path.join(file.file_name())).unwrap();
            }
        }
        // A backup may share its files with the log.
        let file = path.join(format!("{segment:016}.segment"));
        let bytes = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        fs::write(&file, bytes).unwrap();
        flip(&file, offset);

        let whole = RECORDS - behind;
        for count in [1, 3, whole, RECORDS].into_iter().filter(|count| *count > 0) {
            let (printed, code, said) = last(&path, count);
            let enough = count <= whole;
            assert_eq!(printed, lines[RECORDS - count.min(whole)..], "{what} {count}: {said}");
            assert_eq!(code, Some(i32::from(!enough)), "{what} {count}: {said}");
            assert!(said.lines().count() <= 1 && (enough || !said.is_empty()), "{said}");
            if !said.is_empty() {
                let file = format!("{segment:016}.segment, byte ");
                for words in ["warning: ", what, &file, "--skip-damage", "fairlock log repair"] {
                    assert!(said.contains(words), "lacks {words}: {said}");
                }
            }
        }
    }
    // A segment that is missing is damage like any other.
    let path = directory.path().join("0");
    fs::remove_file(path.join(format!("{:016}.segment", 3))).unwrap();
    let (printed, code, said) = last(&path, RECORDS);
    assert_eq!((code, &printed[..]), (Some(1), &lines[fourth..]), "{said}");
    assert!(said.contains("missing") && said.contains("0000000000000003.segment"), "{said}");
    // Where the damage is not looked at, nothing is said of it.
    let (printed, code, said) = last(&directory.path().join("0"), 3);
    assert_eq!((printed.len(), code, said.as_str()), (3, Some(0), ""));
}
