//! What a run records is read back, by this version and by later ones.

use std::path::Path;

use fairlock_lab::machine;
use fairlock_report::recording::{Header, Recording, Skipped, Writer};
use fairlock_report::row::{Estimate, Limit, Row};
use fairlock_study::{example, registry};

fn recording() -> Recording {
    let mut recording =
        Recording::new(Header::now(vec!["s4".to_owned()], true, machine::here(None)));
    recording.rows.push(example::row("mix", "std", &[("readers", 2.0), ("writers", 2.0)]));
    recording.skipped.push(Skipped {
        workload: "dio-kernel".to_owned(),
        machine: None,
        reason: "no O_DIRECT".to_owned(),
    });
    recording.cancelled = true;
    recording.timelines.push(example::timeline("mix", "rwsem", "eight-sockets"));
    recording
}

fn write(path: &Path, recording: &Recording) {
    let mut writer = Writer::create(path, &recording.header).unwrap();
    for row in &recording.rows {
        writer.row(row).unwrap();
    }
    for skipped in &recording.skipped {
        writer.skipped(skipped).unwrap();
    }
    for timeline in &recording.timelines {
        writer.timeline(timeline).unwrap();
    }
    writer.cancelled().unwrap();
}

#[test]
fn what_is_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    let recording = recording();
    write(&path, &recording);
    assert_eq!(Recording::read(&path, registry::current).unwrap(), recording);
}

#[test]
fn a_recording_stays_until_the_next_one_has_a_result() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    write(&path, &recording());
    let before = std::fs::read(&path).unwrap();
    let header = Header::now(vec!["s3".to_owned()], false, machine::here(None));
    let mut writer = Writer::create(&path, &header).unwrap();
    writer.skipped(&recording().skipped[0]).unwrap();
    assert!(writer.left_the_older());
    assert_eq!(std::fs::read(&path).unwrap(), before);
    writer.row(&recording().rows[0]).unwrap();
    assert!(!writer.left_the_older());
    let read = Recording::read(&path, registry::current).unwrap();
    assert_eq!((read.header, read.skipped.len(), read.rows.len()), (header, 1, 1));
}

#[test]
fn what_is_odd_about_a_file_is_remarked_upon_and_what_no_run_comes_to_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    write(&path, &recording());
    let text = std::fs::read_to_string(&path).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    let (row, _) = rest.split_once('\n').unwrap();
    let read = |lines: &str| {
        std::fs::write(&path, format!("{header}\n{lines}")).unwrap();
        Recording::read(&path, registry::current)
    };
    assert_eq!(read(row).unwrap().remarks, [""; 0]);
    let cut = &row[..row.len() / 2];
    let remarks = read(&format!("{row}\n{cut}")).unwrap().remarks;
    assert!(remarks.len() == 1 && remarks[0].contains("line 3 is cut off"), "{remarks:?}");
    let remarks = read(&format!("{row}\n{row}")).unwrap().remarks;
    assert!(remarks.len() == 1 && remarks[0].contains("several rows of `std`"), "{remarks:?}");

    let whole: Row = serde_json::from_str(row).unwrap();
    fn limit(row: &mut Row, low: f64) {
        let figure = Estimate { median: 0.5, low, high: 0.75 };
        let of_limit = Estimate { low: 0.25, ..figure };
        row.limit = Some(Limit { of_limit, lesser_role: Some(figure) });
    }
    type Change = fn(&mut Row);
    let changes: [(Change, &str); 7] = [
        (|row| row.repetitions = 0, "repetitions: 0"),
        (|row| row.seconds = -1.0, "seconds: -1 is no duration"),
        (|row| row.total_ops_per_s.low = -5.0, "total_ops_per_s.low: -5 is below 0"),
        (|row| row.total_ops_per_s.high = 0.0, "is not within its interval"),
        (|row| row.roles.get_mut("reader").unwrap().jain.high = 9.0, "jain.high: 9 is above 1"),
        (|row| row.cpu.as_mut().unwrap().user = 7.0, "cpu.user: a share"),
        (|row| limit(row, -0.5), "limit.lesser_role.low: -0.5 is below 0"),
    ];
    for (change, words) in changes {
        let mut row = whole.clone();
        change(&mut row);
        let error = read(&serde_json::to_string(&row).unwrap()).unwrap_err();
        assert!(error.contains("line 2: ") && error.contains(words), "{error}");
    }
}

#[test]
fn a_recording_is_written_anew_without_rows_that_were_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut recording = recording();
    let mut writer = Writer::create(&link, &recording.header).unwrap();
    for repetitions in 1..=5 {
        recording.rows[0].repetitions = repetitions;
        writer.row(&recording.rows[0]).unwrap();
    }
    let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
    assert_eq!(lines(), 6);
    writer.compact(&recording).unwrap();
    assert_eq!(lines(), 5);
    assert_eq!(Recording::read(&path, registry::current).unwrap(), recording);
    writer.cancelled().unwrap();
    assert_eq!(lines(), 6);
    assert!(link.is_symlink() && std::fs::read_dir(dir.path()).unwrap().count() == 2);
}

#[test]
fn rows_of_older_versions_lack_what_was_added_since() {
    let row = &recording().rows[0];
    let mut old = serde_json::to_value(row).unwrap();
    assert!(old.as_object_mut().unwrap().remove("cpu").is_some());
    for role in old["roles"].as_object_mut().unwrap().values_mut() {
        for added in ["wait_histogram", "hold_histogram"] {
            assert!(role.as_object_mut().unwrap().remove(added).is_some(), "{added}");
        }
        assert!(role.get("convoy").is_none());
    }
    let read: Row = serde_json::from_value(old.clone()).unwrap();
    assert_eq!(read.cpu, None);
    assert!(read.roles.values().all(|role| role.hold_histogram.is_empty()));
    // What is not there is not written either.
    assert_eq!(serde_json::to_value(&read).unwrap(), old);
}

#[test]
fn a_last_line_cut_short_loses_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    let recording = recording();
    write(&path, &recording);
    let mut text = std::fs::read_to_string(&path).unwrap();
    let row = serde_json::to_string(&recording.rows[0]).unwrap();
    text.push_str(&row[..row.len() / 2]);
    std::fs::write(&path, &text).unwrap();
    assert_eq!(Recording::read(&path, registry::current).unwrap().rows.len(), 1);
    text.push_str("\n{}\n");
    std::fs::write(&path, &text).unwrap();
    let error = Recording::read(&path, registry::current).unwrap_err();
    assert!(error.contains("line 6"), "{error}");
}

#[test]
fn a_line_that_cannot_be_read_is_named_with_its_field() {
    let recording = recording();
    let header = serde_json::json!({"header": recording.header}).to_string();
    let row = serde_json::to_value(&recording.rows[0]).unwrap();
    let timeline = serde_json::json!({"timeline": recording.timelines[0]});
    let error = |values: &[&serde_json::Value]| {
        let values = values.iter().map(|value| format!("{value}\n"));
        let text = format!("{header}\n{}", values.collect::<String>());
        Recording::read_lines(text.as_bytes(), "rows.jsonl", registry::current).unwrap_err()
    };
    let with = |value: &serde_json::Value, at: &str, new: serde_json::Value| {
        let mut value = value.clone();
        *value.pointer_mut(at).expect(at) = new;
        value
    };
    let counted = |counts: serde_json::Value| {
        let events = serde_json::json!({"seconds": 1.0, "operations": 1, "counts": counts});
        with(&row, "/events", events)
    };
    let (one, two) =
        (counted(serde_json::json!({"a": 1})), counted(serde_json::json!({"a": 1, "b": 2})));
    for (values, words) in [
        (&[&one, &two][..], "rows.jsonl, line 3: events.counts.b: "),
        (&[&two, &row, &one], "rows.jsonl, line 4: events.counts.b: missing"),
        (
            &[&with(&row, "/roles/reader/wait/p50", "x\u{1b}".into()), &row],
            "rows.jsonl, line 2: roles.reader.wait.p50: invalid type: string \"x\\\\x1b\"",
        ),
        (
            &[&with(&timeline, "/timeline/wake_ups/0/1", 7.into())],
            "rows.jsonl, line 2: timeline.wake_ups[0]: from thread 1 to thread 7",
        ),
        (
            &[&serde_json::json!({"header": recording.header})],
            "rows.jsonl, line 2: header: there is one already",
        ),
        (
            &[&with(&row, "/roles/reader/wait_histogram/1", u64::MAX.into())],
            "rows.jsonl, line 2: roles.reader.wait_histogram[1]: 18446744073709551615 is no",
        ),
        (&[&serde_json::json!({"skipped": 1})], "rows.jsonl, line 2: skipped"),
    ] {
        let said = error(values);
        assert!(said.starts_with(words), "{said}");
    }
}

#[test]
fn a_file_that_is_no_recording_is_refused_with_what_would_be_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    std::fs::write(&path, "hello\n").unwrap();
    let error = Recording::read(&path, registry::current).unwrap_err();
    assert!(error.contains("rows.jsonl, line 1") && error.contains("fairlock study"), "{error}");
    std::fs::write(&path, "").unwrap();
    assert!(Recording::read(&path, registry::current).unwrap_err().contains("empty"));
    assert!(
        Recording::read(dir.path().join("none").as_path(), registry::current)
            .unwrap_err()
            .contains("cannot read")
    );
}
