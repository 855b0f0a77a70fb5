//! What machine files are refused, and with which words.

use std::fs;
use std::time::UNIX_EPOCH;

use super::{HERE_FILE, KEYS, Origin, Profile, Sheet, names};

/// A machine with two sockets, clusters, siblings and every key.
const COMPLETE: &str = r#"
title = "a machine"
[sources]
paper = "A paper, 2020"
[topology]
sockets = { count = 2, from = "paper" }
cores_per_socket = { count = 4, from = "paper" }
threads_per_core = { count = 2, from = "paper" }
cores_per_cluster = { count = 2, from = "paper" }
hops = { links = [[0, 1], [1, 0]], from = "paper" }
frequency = { ghz = 2, from = "paper" }
[cost]
load = { cy = 4, from = "paper" }
store = { cy = 1, from = "paper" }
rmw = { cy = 20, from = "paper" }
step = { cy = 6, from = "paper" }
pause = { cy = 10, from = "paper" }
clock = { ns = 25, from = "paper" }
observe = { ns = 0, assumed = "free" }
smt_slowdown = { factor = 1.5, from = "paper" }
smt_spin = { factor = 1.1, from = "paper" }
[line]
smt = { cy = 20, from = "paper" }
cluster = { cy = 40, from = "paper" }
socket = { cy = 100, from = "paper" }
cross = [{ cy = 300, at_ghz = 3, from = "paper" }]
memory = { ns = 90, from = "paper" }
invalidate = { ns = 1, assumed = "little" }
share = { ns = 10, assumed = "little" }
spread = { part = 0.2, assumed = "common" }
keep = { part = 0.4, assumed = "common" }
contended = { factor = 1.5, assumed = "common" }
arbitration = { order = "nearest", assumed = "why not" }
[schedule]
placement = { order = "spread", assumed = "common" }
tick = { hz = 250, assumed = "common" }
slice = { ms = 3, assumed = "common" }
switch = { us = 1.5, assumed = "common" }
migration = { us = 0, assumed = "common" }
wakeup_granularity = { ms = 1, assumed = "common" }
[wake]
call = { us = 1.5, assumed = "common" }
remote = { ns = 0, assumed = "common" }
lines = { count = 0, assumed = "common" }
nobody = { ns = 100, assumed = "common" }
sleep = { us = 1, assumed = "common" }
idle = [
  { idle_us = 0, p50_us = 4, p99_us = 12, assumed = "common" },
  { idle_us = 50, p50_us = 10, p99_us = 20, assumed = "common", note = "deeper" },
]
[barrier]
call = { ns = 400, assumed = "common" }
wait = { us = 1.5, assumed = "common" }
each = { ns = 100, assumed = "common" }
interrupt = { us = 1, assumed = "common" }
[device]
servers = { count = 8, assumed = "common" }
queue = { count = 100, assumed = "common" }
read = { base_us = 80, kib_ns = 320, sigma = 0.2, assumed = "common" }
write = { base_us = 18, kib_ns = 320, sigma = 0.2, assumed = "common" }
"#;

fn read(text: &str) -> Result<Profile, String> {
    let sheet = Sheet::parse("test", "test.toml", text).map_err(|error| error.to_string())?;
    sheet.profile().map_err(|error| error.to_string())
}

/// The line of `key` in [`COMPLETE`].
fn line_of(key: &str) -> &'static str {
    let (section, short) = key.split_once('.').unwrap();
    let from = COMPLETE.find(&format!("[{section}]")).unwrap();
    let start = from + COMPLETE[from..].find(&format!("\n{short} = ")).unwrap() + 1;
    COMPLETE[start..].lines().next().unwrap()
}

/// [`COMPLETE`] with the line of `key` replaced.
fn with(key: &str, line: &str) -> String {
    COMPLETE.replacen(line_of(key), line, 1)
}

/// Replaces the figure of `key`, expects a refusal that names file, key and all of `words`.
fn refuses(key: &str, figure: &str, words: &[&str]) {
    let short = key.split_once('.').unwrap().1;
    let said = read(&with(key, &format!("{short} = {figure}"))).unwrap_err();
    for word in ["test.toml: ", &format!("`{key}"), "give "].iter().chain(words) {
        assert!(said.contains(word), "{key} = {figure}: lacks {word}: {said}");
    }
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn cycles_and_units_become_nanoseconds() {
    let profile = read(COMPLETE).unwrap();
    assert_eq!(profile.cost.load_ns, 2.0);
    assert_eq!(profile.cost.step_ns, 3.0);
    assert_eq!((profile.cost.smt_spin, profile.line.keep, profile.line.contended), (1.1, 0.4, 1.5));
    assert_eq!(profile.line.cross_ns, [100.0]);
    assert_eq!(profile.schedule.slice_ns, 3e6);
    assert_eq!(profile.wake.idle[1].p50_ns, 10_000.0);
    assert_eq!(profile.device.read.base_ns, 80_000.0);
    assert_eq!(profile.topology.cpus(), 16);
}

#[test]
fn every_machine_is_valid_and_names_its_sources() {
    for name in names() {
        let sheet = Sheet::find(name).unwrap();
        let profile = sheet.profile().unwrap();
        assert_eq!(profile.name, name);
        for source in sheet.sources.keys() {
            let used = Origin::From(source.clone());
            assert!(
                sheet.figures.iter().any(|figure| figure.origin == used),
                "{name}: nothing is from \"{source}\""
            );
        }
    }
}

#[test]
fn the_figures_of_ivy_bridge_ex_are_as_published() {
    let profile = Profile::find("ivybridge-ex-8s").unwrap();
    assert_eq!(profile.topology.cpus(), 240);
    assert_eq!(profile.line.socket_ns, 40.0);
    assert_eq!(profile.line.smt_ns, 10.0);
    assert!((profile.line.cross_ns[0] - 160.1).abs() < 0.1);
    assert!((profile.line.cross_ns[1] - 215.0).abs() < 0.1);
    // Three neighbours each, the other four over two links.
    for row in &profile.topology.hops {
        assert_eq!(row.iter().filter(|&&links| links == 1).count(), 3);
        assert_eq!(row.iter().filter(|&&links| links == 2).count(), 4);
    }
}

#[test]
fn what_is_written_is_read_again_the_same() {
    let mut sheets = vec![Sheet::parse("test", "test.toml", COMPLETE).unwrap()];
    sheets.extend(names().iter().map(|name| Sheet::find(name).unwrap()));
    for sheet in sheets {
        let text = sheet.write();
        let again = Sheet::parse(&sheet.name, &sheet.file, &text).unwrap();
        assert_eq!(again.profile(), sheet.profile());
        assert_eq!(again.write(), text);
        assert_eq!(again.title, sheet.title);
        assert_eq!(again.sources, sheet.sources);
        assert_eq!(again.figures.len(), sheet.figures.len());
    }
}

#[test]
fn a_missing_figure_is_named_with_what_it_means_and_an_example() {
    let optional = ["topology.cores_per_cluster", "topology.hops", "topology.frequency"];
    for key in KEYS.iter().filter(|key| !key.kind.is_list() && !optional.contains(&key.name)) {
        let said = read(&with(key.name, "")).unwrap_err();
        let words = [key.name, "is missing", key.meaning, "test.toml", "{ "];
        assert!(words.iter().all(|word| said.contains(word)), "{}: {said}", key.name);
    }
    // What was measured here is best measured again.
    let again = "or run `fairlock calibrate` again";
    let here = Sheet::parse("here", HERE_FILE, &with("cost.step", "")).unwrap();
    let said = here.profile().unwrap_err().to_string();
    assert!(said.contains("`cost.step`") && said.ends_with(again), "{said}");
    assert!(!read(&with("cost.step", "")).unwrap_err().contains(again));
    let said = read(&COMPLETE.replace("title = \"a machine\"", "")).unwrap_err();
    assert!(said.contains("`title` is missing"), "{said}");
    let said = read(&with("topology.frequency", "")).unwrap_err();
    assert!(said.contains("`line.socket` is in cycles (cy = 100)"), "{said}");
}

#[test]
fn every_figure_needs_a_source_or_an_assumption() {
    refuses("line.socket", "{ ns = 50 }", &["from", "assumed", "ns = 50"]);
    refuses("line.socket", "{ ns = 50, from = \"paper\", assumed = \"x\" }", &["either"]);
    refuses("line.socket", "{ ns = 50, assumed = \" \" }", &["texts"]);
    refuses("line.socket", "50", &["`line.socket` is 50"]);
    let said = read(&with("line.socket", "socket = { ns = 50, from = \"blog\" }")).unwrap_err();
    assert!(said.contains("\"blog\"") && said.contains("it has: paper"), "{said}");
    let said = read(&COMPLETE.replace("\"A paper, 2020\"", "3")).unwrap_err();
    assert!(said.contains("`sources.paper` is 3"), "{said}");
}

#[test]
fn impossible_times_are_refused() {
    for figure in [
        "{ ns = -3, assumed = \"x\" }",
        "{ ns = 0, assumed = \"x\" }",
        "{ ns = nan, assumed = \"x\" }",
        "{ ns = inf, assumed = \"x\" }",
        "{ ms = 2000, assumed = \"x\" }",
        "{ ns = \"50\", assumed = \"x\" }",
        "{ ns = 50, us = 1, assumed = \"x\" }",
        "{ min = 1, assumed = \"x\" }",
        "{ cy = 50, at_ghz = 0, assumed = \"x\" }",
        "{ ns = 50, at_ghz = 2, assumed = \"x\" }",
        "{ assumed = \"x\" }",
    ] {
        refuses("line.memory", figure, &["a time above 0"]);
    }
    refuses("line.share", "{ ns = -1, assumed = \"x\" }", &["a time from 0", "-1"]);
    read(&with("line.share", "share = { ns = 0, assumed = \"x\" }")).unwrap();
}

#[test]
fn impossible_figures_of_other_kinds_are_refused() {
    refuses("topology.sockets", "{ count = 0, assumed = \"x\" }", &["count = 0", "1 to 64"]);
    refuses("topology.sockets", "{ count = 1.5, assumed = \"x\" }", &["count = 1.5"]);
    refuses("topology.frequency", "{ ghz = 2800, assumed = \"x\" }", &["at most 20"]);
    refuses("cost.smt_slowdown", "{ factor = 0.5, assumed = \"x\" }", &["from 1 to 8"]);
    refuses("line.arbitration", "{ order = \"lifo\", assumed = \"x\" }", &["lifo", "nearest"]);
    refuses("schedule.tick", "{ hz = 0, assumed = \"x\" }", &["hz = 0", "hz = 250"]);
    let service = "{ base_us = 80, kib_ns = -1, sigma = 0.2, assumed = \"x\" }";
    refuses("device.read", service, &["kib_ns = -1"]);
    refuses("device.write", "{ base_us = 80, kib_ns = 1, assumed = \"x\" }", &["sigma"]);
}

#[test]
fn unknown_keys_are_refused_with_the_known_ones() {
    for (text, words) in [
        (format!("{COMPLETE}\nheads = 3"), ["`device.heads`", "servers, queue, read, write"]),
        (format!("{COMPLETE}\n[cache]\nl1 = 3"), ["`cache`", "topology, cost, line"]),
        (format!("colour = 1\n{COMPLETE}"), ["`colour`", "title, about"]),
        (format!("wake = 1\n{}", &COMPLETE[..20]), ["`wake` is 1", "a section"]),
        (format!("title = 3\n{}", &COMPLETE[21..]), ["`title` is 3", "a text"]),
        (COMPLETE.replace("title =", "title"), ["test.toml: line 2", ""]),
    ] {
        let said = read(&text).unwrap_err();
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_topology_that_does_not_fit_together_is_refused() {
    let clusters = "{ count = 3, assumed = \"x\" }";
    refuses("topology.cores_per_cluster", clusters, &["is 3", "divides the 4"]);
    for (links, word) in [
        ("[[0, 1]]", "1 rows of 2"),
        ("[[0, 1], [1]]", "2 rows of 2, 1"),
        ("[[1, 1], [1, 0]]", "from socket 0 to itself"),
        ("[[0, 0], [1, 0]]", "0 from socket 0 to socket 1"),
        ("[[0, 2], [2, 0]]", "is 2 from socket 0"),
        ("[[0, -1], [1, 0]]", "links = [[0, -1]"),
        ("7", "links = 7"),
    ] {
        refuses("topology.hops", &format!("{{ links = {links}, assumed = \"x\" }}"), &[word]);
    }
    let three = with("topology.sockets", "sockets = { count = 3, from = \"paper\" }");
    let uneven = "hops = { links = [[0, 1, 2], [1, 0, 1], [1, 1, 0]], assumed = \"x\" }";
    let said = read(&three.replacen(line_of("topology.hops"), uneven, 1)).unwrap_err();
    assert!(said.contains("2 from socket 0 to socket 2 but 1 back"), "{said}");

    let many =
        with("topology.cores_per_socket", "cores_per_socket = { count = 1024, from = \"paper\" }");
    let many = many.replacen(
        line_of("topology.threads_per_core"),
        "threads_per_core = { count = 8, from = \"paper\" }",
        1,
    );
    let said = read(&many).unwrap_err();
    assert!(said.contains("16384 CPUs (2 × 1024 × 8)") && said.contains("4096"), "{said}");
}

#[test]
fn transfers_must_fit_the_topology_and_grow_with_distance() {
    let slow_sibling = "{ ns = 45, assumed = \"x\" }";
    refuses("line.smt", slow_sibling, &["45.0 ns", "`line.cluster` is 20.0 ns"]);
    refuses("line.cross", "[{ ns = 30, assumed = \"x\" }]", &["`line.socket` is 50.0 ns", "30.0"]);
    refuses("line.cross", "[]", &["`line.cross` is []"]);
    let two = "[{ ns = 90, assumed = \"x\" }, { ns = 99, assumed = \"x\" }]";
    refuses("line.cross", two, &["2 entries", "up to 1 links"]);
    refuses("line.cross", "[{ ns = -1, assumed = \"x\" }]", &["`line.cross[0]` is { ns = -1 }"]);
    let said = read(&with("line.cross", "")).unwrap_err();
    assert!(said.contains("it is missing"), "{said}");
    let alone =
        with("topology.threads_per_core", "threads_per_core = { count = 1, from = \"paper\" }");
    let said = read(&alone).unwrap_err();
    assert!(said.contains("`line.smt` is cy = 20") && said.contains("leave it out"), "{said}");
    let alone = read(&alone.replacen(line_of("line.smt"), "", 1)).unwrap();
    assert_eq!(alone.line.smt_ns, alone.line.cluster_ns);
}

#[test]
fn figures_about_siblings_and_sockets_are_left_out_where_there_are_none() {
    refuses(
        "cost.smt_spin",
        "{ factor = 1.6, assumed = \"x\" }",
        &["1.6", "`cost.smt_slowdown` 1.5"],
    );
    let slowdown = "smt_slowdown = { factor = 1, assumed = \"x\" }";
    let none = with("cost.smt_slowdown", slowdown);
    let said = read(&none).unwrap_err();
    assert!(
        said.contains("`cost.smt_spin` is factor = 1.1") && said.contains("leave it out"),
        "{said}"
    );
    let none = read(&none.replacen(line_of("cost.smt_spin"), "", 1)).unwrap();
    assert_eq!(none.cost.smt_spin, 1.0);

    let one = with("topology.sockets", "sockets = { count = 1, from = \"paper\" }")
        .replacen(line_of("topology.hops"), "", 1)
        .replacen(line_of("line.cross"), "", 1);
    let said = read(&one).unwrap_err();
    assert!(
        said.contains("`line.contended` is factor = 1.5") && said.contains("leave it out"),
        "{said}"
    );
    let one = read(&one.replacen(line_of("line.contended"), "", 1)).unwrap();
    assert_eq!(one.line.contended, 1.0);
}

#[test]
fn the_table_of_wake_ups_begins_at_zero_and_ascends() {
    let table = &COMPLETE[COMPLETE.find("idle = [").unwrap()..COMPLETE.find("[device]").unwrap()];
    let entry = |idle: u32, p50: f64, p99: f64| {
        format!("{{ idle_us = {idle}, p50_us = {p50}, p99_us = {p99}, assumed = \"x\" }}")
    };
    for (list, word) in [
        (String::new(), "`wake.idle` is []"),
        (entry(5, 1.0, 2.0), "idle_us = 5"),
        (format!("{}, {}", entry(0, 1.0, 2.0), entry(0, 1.0, 2.0)), "idle_us = 0, 0"),
        (entry(0, 3.0, 2.0), "`wake.idle[0]` is { idle_us = 0, p50_us = 3, p99_us = 2 }"),
        (entry(0, 0.0, 2.0), "p50_us = 0"),
    ] {
        let said = read(&COMPLETE.replace(table, &format!("idle = [{list}]\n"))).unwrap_err();
        assert!(said.contains(word), "{word}: {said}");
    }
    let said = read(&COMPLETE.replace(table, "")).unwrap_err();
    assert!(said.contains("`wake.idle`") && said.contains("is missing"), "{said}");
}

#[test]
fn machines_are_found_by_name_and_by_path() {
    let said = Profile::find("pdp-11").unwrap_err().to_string();
    for word in ["\"pdp-11\"", "ivybridge-ex-8s", "here", "path"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    // No test runs in a directory with such a file.
    let said = Profile::find("here").unwrap_err().to_string();
    assert!(said.starts_with(HERE_FILE) && said.contains("fairlock calibrate"), "{said}");
    let said = Profile::find("/nowhere/mine.toml").unwrap_err().to_string();
    assert!(said.contains("/nowhere/mine.toml: cannot read it"), "{said}");

    // Containers that share the folder may have processes of the same number.
    let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let name = format!("fairlock-{}-{now}.toml", std::process::id());
    let path = std::env::temp_dir().join(name);
    fs::write(&path, COMPLETE).unwrap();
    let found = Profile::find(path.to_str().unwrap());
    fs::remove_file(&path).unwrap();
    assert_eq!(found.unwrap().name, path.file_stem().unwrap().to_str().unwrap());
}
