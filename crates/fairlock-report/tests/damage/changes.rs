//! Damage to files of JSON Lines, as strangers may give them, and tests that go on for as long as is wanted: for
//! the tests of whatever reads such files.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

/// Tries so many cases, and goes on if more time is given. Those that failed are kept beside `file`.
pub fn fuzz<S: Strategy>(file: &'static str, cases: u32, strategy: S, test: impl Fn(S::Value)) {
    /// What takes longer is taken for a hang.
    const HUNG: Duration = Duration::from_secs(30);
    let seconds = std::env::var("FAIRLOCK_FUZZ_SECONDS").ok();
    let seconds = seconds.map(|it| it.parse().expect("FAIRLOCK_FUZZ_SECONDS is a number"));
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    let mut tried = 0;
    loop {
        let config = Config { cases, source_file: Some(file), ..Config::default() };
        let outcome = TestRunner::new(config).run(&strategy, |case| {
            let began = cpu_time();
            test(case);
            let took = cpu_time() - began;
            prop_assert!(took < HUNG, "it took {took:?}");
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
        tried += u64::from(cases);
        if Instant::now() >= end {
            println!("{tried} cases");
            return;
        }
    }
}

/// What this thread has computed so far; nothing where the system does not tell.
fn cpu_time() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = told.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

/// What somebody may write where something else is expected.
fn odd_value() -> impl Strategy<Value = Value> {
    let number = |it: u64| Value::from(it);
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        select(vec![0, 1, 2, 63, u64::MAX, u64::MAX - 1, 1 << 53, 1 << 63]).prop_map(number),
        select(vec![-1.0, 0.0, 0.5, 1e-300, 1e300, f64::MAX, f64::MIN, 1e18, -1e18])
            .prop_map(Value::from),
        select(vec!["", "\u{1b}]0;x\u{7}", "<script>", "\u{202e}a\n\u{9b}", "reads", "writes"])
            .prop_map(Value::from),
        select(vec!["problem", "fine", "here", "mix", "kernel", "é–→"]).prop_map(Value::from),
        Just(Value::Array(Vec::new())),
        Just(serde_json::json!({})),
    ]
}

#[derive(Debug, Clone)]
pub enum Change {
    /// This leaf becomes something else.
    Leaf(Index, Value),
    /// A field goes, or gets another name.
    Field(Index, Option<String>),
    /// A line goes, or comes twice.
    Line(Index, bool),
    /// The text is cut off there.
    Cut(Index),
    /// A byte becomes another.
    Byte(Index, u8),
}

pub fn change() -> impl Strategy<Value = Change> {
    let name = select(vec!["run", "lock", "header", "timeline", "events", "x\u{1b}", ""]);
    let name = prop::option::of(name.prop_map(str::to_owned));
    prop_oneof![
        8 => (any::<Index>(), odd_value()).prop_map(|(at, value)| Change::Leaf(at, value)),
        3 => (any::<Index>(), name).prop_map(|(at, name)| Change::Field(at, name)),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(at, twice)| Change::Line(at, twice)),
        1 => any::<Index>().prop_map(Change::Cut),
        1 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
    ]
}

/// All values below this one, itself first.
fn values(value: &mut Value, each: &mut impl FnMut(&mut Value)) {
    each(value);
    match value {
        Value::Array(values_) => values_.iter_mut().for_each(|it| values(it, each)),
        Value::Object(fields) => fields.values_mut().for_each(|it| values(it, each)),
        _ => {}
    }
}

/// Changes the one of those that are wanted which the index names.
fn nth(
    lines: &mut [Value],
    at: Index,
    is_wanted: impl Fn(&Value) -> bool,
    change: impl Fn(&mut Value),
) {
    let mut count = 0;
    let mut each = |it: &mut Value| count += usize::from(is_wanted(it));
    lines.iter_mut().for_each(|line| values(line, &mut each));
    if count == 0 {
        return;
    }
    let (chosen, mut seen) = (at.index(count), 0);
    let mut each = |it: &mut Value| {
        if is_wanted(it) {
            if seen == chosen {
                change(it);
            }
            seen += 1;
        }
    };
    lines.iter_mut().for_each(|line| values(line, &mut each));
}

pub fn changed(mut lines: Vec<Value>, changes: &[Change]) -> Vec<u8> {
    let written = |lines: &[Value]| -> Vec<u8> {
        lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()
    };
    for change in changes {
        match change {
            Change::Leaf(at, value) => {
                let is_leaf = |it: &Value| !it.is_object();
                nth(&mut lines, *at, is_leaf, |it| *it = value.clone());
            }
            Change::Field(at, name) => {
                let has_fields = |it: &Value| it.as_object().is_some_and(|it| !it.is_empty());
                nth(&mut lines, *at, has_fields, |it| {
                    let fields = it.as_object_mut().expect("it has some");
                    let key = fields.keys().nth(at.index(fields.len())).cloned();
                    let value = key.and_then(|key| fields.remove(&key)).unwrap_or_default();
                    fields.extend(name.clone().map(|name| (name, value)));
                });
            }
            Change::Line(at, twice) if !lines.is_empty() => {
                let at = at.index(lines.len());
                let line = lines.remove(at);
                if *twice {
                    lines.extend([line.clone(), line]);
                }
            }
            _ => {}
        }
    }
    let mut bytes = written(&lines);
    for change in changes {
        match change {
            Change::Cut(at) if !bytes.is_empty() => bytes.truncate(at.index(bytes.len())),
            Change::Byte(at, byte) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            _ => {}
        }
    }
    bytes
}

pub fn parsed(text: &[u8]) -> Vec<Value> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("it was written as JSON")).collect()
}

/// One line that names what is wrong, and that a terminal can be given.
pub fn is_told_well(error: &str) {
    let shown = fairlock_report::printable::printable(error);
    assert!(!shown.contains('\n') && !shown.is_empty());
}
