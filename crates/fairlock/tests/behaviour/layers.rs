//! Who may import whom: crates, the modules of `fairlock`, and the files of `rwsem`. Each list is read from
//! the ground up: a name imports only names above its own, so there are no circles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates of the workspace, by their `[dependencies]` (what tests need is another matter).
const CRATES: &[&str] = &[
    "fairlock",
    "fairlock-reference",
    "fairlock-io",
    "fairlock-counts",
    "fairlock-c",
    "fairlock-pthread",
    "fairlock-sim",
    "fairlock-check",
    "fairlock-lab",
];

/// The modules of `fairlock`.
const MODULES: &[&str] = &[
    // What a lock stands on.
    "events",
    "platform",
    "spin_budget",
    "wait_queue",
    "spin_queue",
    "policy",
    "unguarded",
    "guarded",
    "chunks",
    "slots",
    "barrier",
    // The locks.
    "mutex",
    "rwsem",
    "rwlock",
    "range",
    "ready",
    "process_shared",
    // What they share in one process.
    "process",
    // Those for `fairlock-reference`.
    "inside",
];

/// The files of `fairlock::rwsem`.
const RWSEM: &[&str] = &[
    "word",
    "wait_queue",
    "phase_clock",
    "free_list",
    "queue_pool",
    "queue_storage",
    "core",
    "compete",
    "phases",
    "fast_path",
    "conversions",
    "api",
    "unguarded",
];

/// Two that do not see each other though one stands above the other.
const SIBLINGS: &[(&str, &str)] =
    &[("phases", "compete"), ("conversions", "compete"), ("conversions", "phases")];

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

/// The code that is not for tests only, without comments and strings.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            let bytes = rest.as_bytes();
            let mut end = 1;
            while end < bytes.len() && bytes[end] != b'"' {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            (end + 1).min(rest.len())
        } else if rest.starts_with("'\"'") {
            3
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        rest = &rest[skip..];
    }
    without_test_modules(&code)
}

fn without_test_modules(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let Some(at) = code.find(MARK) else { return code.into() };
    let (before, after) = (&code[..at], &code[at + MARK.len()..]);
    let item = after.find([';', '{']).unwrap_or(after.len());
    let end = if after[item..].starts_with('{') {
        let mut depth = 0;
        let closing = after.char_indices().skip(item).find(|&(_, letter)| {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            depth == 0
        });
        closing.map_or(after.len(), |(at, _)| at + 1)
    } else {
        (item + 1).min(after.len())
    };
    format!("{before}{}", without_test_modules(&after[end..]))
}

/// The names that follow `prefix` in paths: `crate::` in `use crate::{a::B, c};` is followed by `a`, `c`.
fn names_after(code: &str, prefix: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let name = |text: &str| -> String { text.chars().take_while(|&it| is_name(it)).collect() };
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].chars().next_back().is_some_and(|it| is_name(it) || it == ':') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(name(rest));
            continue;
        };
        let mut depth = 1;
        let mut item = String::new();
        for letter in group.chars() {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            if depth == 0 || (depth == 1 && letter == ',') {
                names.insert(name(item.trim_start()));
                item.clear();
            } else {
                item.push(letter);
            }
            if depth == 0 {
                break;
            }
        }
    }
    names.remove("");
    names
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
        let manifest = read(&folder.join("Cargo.toml"));
        let section = manifest.split("\n[").find(|it| it.starts_with("dependencies]"));
        let lines = section.unwrap_or_default().lines();
        let name = |line: &str| line.split(['.', ' ', '=']).next().unwrap_or_default().to_owned();
        let ours = lines.map(name).filter(|name| name.starts_with("fairlock"));
        let own = folder.file_name().expect("a name").to_string_lossy().into_owned();
        imports.insert(own, ours.collect());
    }
    assert_only_upwards("crates", CRATES, &imports);
}

#[test]
fn modules_import_only_those_below_them() {
    let source = workspace().join("crates/fairlock/src");
    let mut imports = Imports::new();
    for path in files_below(&source) {
        let inside = path.strip_prefix(&source).expect("below it").with_extension("");
        let module = inside.iter().next().expect("a name").to_string_lossy().into_owned();
        if module == "lib" || module == "child_process" {
            continue; // The face; and what tests alone use.
        }
        let code = code_of(&read(&path));
        let found = imports.entry(module).or_default();
        found.extend(names_after(&code, "crate::"));
    }
    // Types and functions that the crate's face names, and macros.
    let modules: BTreeSet<_> = imports.keys().cloned().collect();
    for found in imports.values_mut() {
        found.retain(|name| modules.contains(name));
    }
    assert!(imports.len() > 15, "the modules are where this looks for them: {imports:?}");
    assert_only_upwards("modules", MODULES, &imports);
}

#[test]
fn the_files_of_rwsem_import_only_those_below_them() {
    let source = workspace().join("crates/fairlock/src/rwsem");
    let mut imports = Imports::new();
    for path in files_below(&source) {
        let inside = path.strip_prefix(&source).expect("below it").with_extension("");
        let file = inside.iter().next().expect("a name").to_string_lossy().into_owned();
        if file == "mod" {
            continue; // The face, which composes.
        }
        let (code, is_nested) = (code_of(&read(&path)), inside.iter().count() > 1);
        let found = imports.entry(file).or_default();
        found.extend(names_after(&code, "crate::rwsem::"));
        if !is_nested {
            found.extend(names_after(&code, "super::"));
        }
    }
    let files: BTreeSet<_> = imports.keys().cloned().collect();
    for found in imports.values_mut() {
        // By the face's names, which it has from those files.
        found.retain(|name| files.contains(name));
    }
    assert_only_upwards("files of rwsem", RWSEM, &imports);
    for (one, other) in SIBLINGS {
        assert!(!imports[*one].contains(*other), "{one} does not need {other}");
    }
}

#[test]
fn imports_are_found() {
    let code = code_of(
        "// crate::not\nuse crate::{a::B, c::{d, e}, f};\nlet _ = \"crate::no\"; crate::g::h();\n\
         #[cfg(test)]\nmod tests { use crate::hidden; fn it() {} }\nuse $crate::i;\n\
         #[cfg(test)]\nmod more;\nfn j(x: x::crate_::k) {}",
    );
    let names: Vec<_> = names_after(&code, "crate::").into_iter().collect();
    assert_eq!(names, ["a", "c", "f", "g", "i"], "of macros, too");
    let circle = Imports::from([
        ("a".into(), BTreeSet::from(["b".into()])),
        ("b".into(), BTreeSet::from(["a".into()])),
    ]);
    let caught = std::panic::catch_unwind(|| assert_only_upwards("them", &["a", "b"], &circle));
    let message = caught.expect_err("b stands above a");
    let message = message.downcast_ref::<String>().expect("a message");
    assert!(message.contains("a imports b, which stands above it"), "{message}");
}
