//! Who may import whom: crates, the modules of some of them, and the files of `rwsem`. Each list is read from
//! the ground up: a name imports only names above its own, so there are no cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates of the workspace, by their `[dependencies]` (what tests need is another matter).
const CRATES: &[&str] = &[
    "fairlock-counts",
    "fairlock",
    "fairlock-reference",
    "fairlock-io",
    "fairlock-checkers",
    "fairlock-c",
    "fairlock-pthread",
    "fairlock-sim",
    "fairlock-check",
    "fairlock-report",
    "fairlock-trace",
    "fairlock-lab",
    "fairlock-study",
    "fairlock-cli",
    "fairlock-book",
];

/// The modules of `fairlock`.
const MODULES: &[&str] = &[
    // What a lock stands on.
    "end_key",
    "recorded",
    "held",
    "deadlock",
    "events",
    "held",
    "platform",
    "backoff",
    "spin_budget",
    "wait_queue",
    "line",
    "policy",
    "raw",
    "unguarded",
    "hold",
    "modelled",
    "guard",
    "face",
    "chunks",
    "slots",
    "barrier",
    // The locks.
    "mutex",
    "condvar",
    "reentrant",
    "rwsem",
    "rwlock",
    "range",
    "ready",
    "process_shared",
    "tunables",
    // What they share in one process.
    "process",
    // The locks behind the traits of other crates.
    "interop",
    // Those for `fairlock-reference`.
    "inside",
];

/// The modules of `fairlock-report`.
const REPORT: &[&str] = &[
    // Words and figures.
    "units",
    "printable",
    "random",
    "quantity",
    // What a run found, and what keeps it.
    "params",
    "former_names",
    "row",
    "statistics",
    "timeline",
    "machine",
    "busy",
    "recording",
    // What a replay runs.
    "program",
    // What is shown of it.
    "screen",
    "table",
    "chart",
    "page",
];

/// The modules of `fairlock-trace`.
const TRACE: &[&str] = &[
    // Running a program.
    "locks",
    "library",
    "signals",
    "target",
    "counts",
    "recorded",
    "process",
    "comparison",
    // What was seen of it.
    "symbols",
    "facts",
    "deadlock",
    "diagnosis",
    "report",
    "program",
    // What was seen of a system that runs without the drop-in.
    "doctor",
];

/// The modules of `fairlock-lab`.
const LAB: &[&str] = &[
    // What a workload stands on.
    "error",
    "world",
    "machine",
    "locks",
    "pollers",
    "measure",
    // The workloads.
    "workload",
    "workloads",
    // What a simulated machine is made of.
    "calibrate",
];

/// The modules of `fairlock-study`.
const STUDY: &[&str] = &[
    // What workloads are called, and what rows of them say.
    "changes", "registry", "metric", "paired", "limit", // What is made of them.
    "plan", "example", "timeline", "validate", "study", "report", "sweep", "fit", "harness", "own",
];

/// The modules of `fairlock-cli`.
const CLI: &[&str] = &[
    "failure",
    "manual",
    "install",
    "log_command",
    "run_command",
    "showing",
    "list_command",
    "doctor_command",
    "replay_command",
    "sweep_command",
    "fit_command",
    "cli",
];

/// The files of `fairlock_trace::doctor::capture`.
const CAPTURE: &[&str] = &[
    // What the kernel offers.
    "permission",
    "clock",
    "tracepoint",
    "allowance",
    "rings",
    "closing",
    // When it is recorded, at what cost.
    "budget",
    "cost",
    "windows",
    // What is recorded.
    "threads",
    "stacks",
    "unwinding",
    "files",
    "kept",
    "futex",
    "census",
    // The parts of the recording.
    "kernel_waits",
    "user_waits",
    "close_look",
    "calls",
];

/// The files of `fairlock::rwsem`.
const RWSEM: &[&str] = &[
    "word",
    "wait_queue",
    "account",
    "owner",
    "free_list",
    "queue_pool",
    "own_queue",
    "reader_bias",
    "admission",
    "lock",
    "knobs",
    "serve",
    "slow_path",
    "raw",
    "unguarded",
    "api",
];

/// Two that do not see each other though one stands above the other.
const SIBLINGS: &[(&str, &str)] = &[("raw", "slow_path"), ("slow_path", "raw")];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let nested = paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] });
    nested.filter(|path| path.extension().is_some_and(|it| it == "rs")).collect()
}

/// The code that is not for tests only, without comments, strings and characters.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skip = skipped(rest);
        if skip == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            rest = &rest[skip..];
        }
    }
    without_test_modules(&code)
}

/// How long the comment, the string or the character is that the text begins with; 0 if it is none.
fn skipped(text: &str) -> usize {
    let until = |end: &str, from: usize| match text[from..].find(end) {
        Some(at) => from + at + end.len(),
        None => text.len(),
    };
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return until("*/", 2);
    }
    if let Some(raw) = text.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            return until(&format!("\"{}", "#".repeat(hashes)), hashes + 2);
        }
    }
    let quoted = |quote: char| {
        let mut escaped = false;
        let mut inside = text.char_indices().skip(1);
        let end = inside.find(|&(_, letter)| {
            let ends = letter == quote && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        });
        end.map_or(text.len(), |(at, _)| at + 1)
    };
    match text.chars().next() {
        Some('"') => quoted('"'),
        // A character, not a lifetime.
        Some('\'') if text[1..].starts_with('\\') || text.chars().nth(2) == Some('\'') => {
            quoted('\'')
        }
        _ => 0,
    }
}

fn without_test_modules(code: &str) -> String {
    const MARKS: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test,"];
    let Some(at) = MARKS.iter().filter_map(|mark| code.find(mark)).min() else {
        return code.into();
    };
    let (before, marked) = code.split_at(at);
    let after = &marked[marked.find(")]").expect("an attribute has an end")..];
    let item = after.find([';', '{']).unwrap_or(after.len());
    let end = if after[item..].starts_with('{') {
        let mut depth = 0;
        let closing = after[item..].char_indices().find(|&(_, letter)| {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            depth == 0
        });
        closing.map_or(after.len(), |(at, _)| item + at + 1)
    } else {
        (item + 1).min(after.len())
    };
    format!("{before}{}", without_test_modules(&after[end..]))
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Every path in the code that begins with `crate`, `super` or `self`, groups spelled out, as the parts of
/// a path from the crate's root: `use super::{a::B, *};` in `x::y` is `x::a::B` and `x::*`.
fn paths_in(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for root in ["crate", "super", "self"] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].trim_end().chars().next_back();
            let is_inside = code[..at].chars().next_back().is_some_and(is_name);
            let follows = code[at + root.len()..].trim_start();
            if is_inside || before == Some(':') || !follows.starts_with("::") {
                continue;
            }
            let mut found = Vec::new();
            read_path(&code[at..], &[], &mut found);
            paths.extend(found.into_iter().map(|path| from_root(&path, module)));
        }
    }
    paths
}

/// Adds the paths that the text begins with, each behind `prefix`; how long they are.
fn read_path(text: &str, prefix: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        if text[at..].starts_with('{') {
            at += 1;
            loop {
                at += text[at..].len() - text[at..].trim_start().len();
                if text[at..].starts_with('}') || at >= text.len() {
                    return (at + 1).min(text.len());
                }
                at += read_path(&text[at..], &path, found).max(1);
                let next = text[at..].find([',', '}']).unwrap_or(text.len() - at);
                at += next + usize::from(text[at + next..].starts_with(','));
            }
        }
        let part: String = match text[at..].starts_with('*') {
            true => "*".into(),
            false => text[at..].chars().take_while(|&it| is_name(it)).collect(),
        };
        at += part.len();
        if !part.is_empty() {
            path.push(part);
        }
        let more = text[at..].trim_start();
        if !more.starts_with("::") || more[2..].trim_start().starts_with('<') {
            found.push(path);
            return at;
        }
        at += text[at..].len() - more.len() + 2;
    }
}

fn from_root(path: &[String], module: &[String]) -> Vec<String> {
    let mut whole: Vec<String> = module.to_vec();
    for part in path {
        match part.as_str() {
            "crate" => whole.clear(),
            "super" => _ = whole.pop(),
            "self" => {}
            _ => whole.push(part.clone()),
        }
    }
    whole
}

/// The module that a file below `source` is.
fn module_of(path: &Path, source: &Path) -> Vec<String> {
    let inside = path.strip_prefix(source).expect("below it").with_extension("");
    let names = inside.iter().map(|part| part.to_string_lossy().into_owned());
    names.filter(|name| !["mod", "lib", "main"].contains(&name.as_str())).collect()
}

/// What each name imports of the others.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn assert_only_upwards(what: &str, order: &[&str], imports: &Imports) {
    let place = |name: &str| order.iter().position(|&it| it == name);
    let mut wrong = Vec::new();
    for (importer, imported) in imports {
        let Some(here) = place(importer) else {
            wrong.push(format!("{importer} is not in the list of {what}: give it a place"));
            continue;
        };
        for other in imported.iter().filter(|&other| other != importer) {
            match place(other) {
                Some(there) if there < here => {}
                Some(_) => wrong.push(format!("{importer} imports {other}, which stands above it")),
                None => wrong.push(format!("{importer} imports {other}, which is not in the list")),
            }
        }
    }
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

#[test]
fn crates_import_only_those_below_them() {
    let mut imports = Imports::new();
    for entry in fs::read_dir(workspace().join("crates")).expect("the crates") {
        let folder = entry.expect("a crate").path();
        let own = folder.file_name().expect("a name").to_string_lossy().into_owned();
        imports.insert(own, dependencies(&read(&folder.join("Cargo.toml"))));
    }
    assert_only_upwards("crates", CRATES, &imports);
}

/// Those of this workspace, whatever they are needed for but tests.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let is_ours = |name: &str| name.starts_with("fairlock") && !name.contains(' ');
    let mut found = BTreeSet::new();
    for section in manifest.split("\n[") {
        let (title, lines) = section.split_once('\n').unwrap_or((section, ""));
        let title = title.trim_end_matches(']');
        if title.contains("dev-dependencies") || !title.contains("dependencies") {
            continue;
        }
        let last = title.rsplit('.').next().unwrap_or_default();
        found.extend(Some(last.to_owned()).filter(|name| is_ours(name)));
        let names =
            lines.lines().map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default());
        found.extend(names.filter(|name| is_ours(name)).map(str::to_owned));
    }
    found
}

/// The modules below `source` that are for tests alone.
fn modules_for_tests(source: &Path) -> BTreeSet<String> {
    let face = ["lib.rs", "mod.rs", "main.rs"].into_iter().map(|name| source.join(name));
    let face = face.filter(|path| path.exists()).map(|path| read(&path)).collect::<String>();
    let marked = face.split("#[cfg(test)]\n").skip(1);
    let names = marked.filter_map(|rest| rest.lines().next()?.split("mod ").nth(1));
    names.map(|name| name.trim_end_matches(';').to_owned()).collect()
}

/// What the files below `source` import: by the name that `level` names of their module lead to. What is
/// found there is one of them, or the face's.
fn imports_at(source: &Path, level: usize, folder: &[&str]) -> Imports {
    let for_tests = modules_for_tests(source);
    let mut imports = Imports::new();
    let mut paths = Vec::new();
    for path in files_below(source) {
        let module: Vec<String> =
            folder.iter().map(|&name| name.to_owned()).chain(module_of(&path, source)).collect();
        let Some(own) = module.get(level) else { continue }; // The face, which composes.
        if for_tests.contains(own) {
            continue;
        }
        imports.entry(own.clone()).or_default();
        let found = paths_in(&code_of(&read(&path)), &module);
        paths.extend(found.into_iter().map(|found| (own.clone(), found)));
    }
    for (own, path) in paths {
        if path.len() > level && path[..level].iter().eq(folder) {
            imports.get_mut(&own).expect("entered above").insert(path[level].clone());
        }
    }
    imports
}

#[test]
fn modules_import_only_those_below_them() {
    let mut imports = imports_at(&workspace().join("crates/fairlock/src"), 0, &[]);
    assert!(imports.len() > 15, "the modules are where this looks for them: {imports:?}");
    // Of another crate: the face only passes it on.
    imports.values_mut().for_each(|found| _ = found.remove("lock_api"));
    assert_only_upwards("modules", MODULES, &imports);
}

#[test]
fn modules_of_the_crates_that_measure_import_only_those_below_them() {
    let crates =
        [("report", REPORT), ("trace", TRACE), ("lab", LAB), ("study", STUDY), ("cli", CLI)];
    for (name, order) in crates {
        let source = workspace().join(format!("crates/fairlock-{name}/src"));
        let imports = imports_at(&source, 0, &[]);
        let missing: Vec<_> = order.iter().filter(|&&it| !imports.contains_key(it)).collect();
        assert!(missing.is_empty(), "fairlock-{name} has no {missing:?}");
        assert_only_upwards(&format!("modules of fairlock-{name}"), order, &imports);
    }
}

#[test]
fn the_files_of_rwsem_import_only_those_below_them() {
    let imports = imports_at(&workspace().join("crates/fairlock/src/rwsem"), 1, &["rwsem"]);
    assert_only_upwards("files of rwsem", RWSEM, &imports);
    for (one, other) in SIBLINGS {
        assert!(!imports[*one].contains(*other), "{one} does not need {other}");
    }
}

#[test]
fn the_files_of_the_doctors_recording_import_only_those_below_them() {
    let folder = workspace().join("crates/fairlock-trace/src/doctor/capture");
    let imports = imports_at(&folder, 2, &["doctor", "capture"]);
    assert!(imports.len() == CAPTURE.len(), "the files are where this looks for them: {imports:?}");
    assert_only_upwards("files of the doctor's recording", CAPTURE, &imports);
}

#[test]
fn imports_are_found() {
    let module = ["x".to_owned(), "y".to_owned()];
    let paths = |text: &str| -> BTreeSet<String> {
        paths_in(&code_of(text), &module).iter().map(|path| path.join("::")).collect()
    };
    let of = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(
        paths("use crate::{a::B, c::{d, e as f}, g};\ncrate::h::i(); use $crate::j;"),
        of(&["a::B", "c::d", "c::e", "g", "h::i", "j"])
    );
    assert_eq!(
        paths("use super::{k, *};\nuse super::super::l::M; use self::n::o; super::p::<q>();"),
        of(&["x::k", "x::*", "l::M", "x::y::n::o", "x::p"])
    );
    let hidden = "// crate::a\n/* crate::b */ let _ = \"crate::c\"; r#\"a\"crate::d\"#; '\\''; '{';\n\
                  #[cfg(test)]\nmod tests { use crate::e; fn f() { '}' } }\n#[cfg(test)]\nmod more;\n\
                  #[cfg(all(test, unix))]\nmod others { use crate::f; }\n\
                  fn g<'a>(h: x::crate_::i) {} use crate::k;";
    assert_eq!(paths(hidden), of(&["k"]));
}

#[test]
fn a_cycle_and_the_faces_names_are_refused() {
    for (imported, said) in
        [("b", "a imports b, which stands above it"), ("*", "which is not in the list")]
    {
        let imports = Imports::from([("a".into(), of_one(imported)), ("b".into(), of_one("a"))]);
        let caught =
            std::panic::catch_unwind(|| assert_only_upwards("them", &["a", "b"], &imports));
        let message = caught.expect_err("it is refused");
        let message = message.downcast_ref::<String>().expect("a message");
        assert!(message.contains(said), "{message}");
    }
    let manifest = "[package]\nname = \"x\"\n[dependencies]\nfairlock = { path = \"\" }\n\
                    [dependencies.fairlock-io]\npath = \"\"\n[target.'cfg(unix)'.dependencies]\n\
                    fairlock-c.workspace = true\n[dev-dependencies]\nfairlock-sim = \"1\"\n";
    let found: Vec<_> = dependencies(manifest).into_iter().collect();
    assert_eq!(found, ["fairlock", "fairlock-c", "fairlock-io"]);
}

fn of_one(name: &str) -> BTreeSet<String> {
    BTreeSet::from([name.to_owned()])
}
