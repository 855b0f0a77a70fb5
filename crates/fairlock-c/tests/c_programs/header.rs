//! The header declares what the sources define, in the same words.
//!
//! Each public item of the sources is put as the header should have it, with its documentation. Line
//! breaks and the order of items are the header's own.

use std::collections::BTreeSet;
use std::fs;

use super::{MODULES, package};

/// A type's C declaration of `name`, which may be a pointer to it, an array or a function.
fn declared(rust: &str, name: &str) -> String {
    if let Some(target) = rust.strip_prefix("*mut ") {
        return declared(target, &format!("*{name}"));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("const {}", declared(target, &format!("*{name}")));
    }
    if let Some((element, count)) = rust.trim_matches(['[', ']']).split_once("; ") {
        return declared(element, &format!("{name}[{count}]"));
    }
    let c = match rust {
        "c_int" => "int",
        "c_void" => "void",
        "i64" => "int64_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "libc::timespec" => "struct timespec",
        own if own.starts_with("fairlock_") => &format!("struct {own}"),
        other => panic!("add the C type of {other} to tests/c_programs/header.rs"),
    };
    format!("{c} {name}")
}

/// A Rust item, of which the documentation and the attributes were taken off, in C.
fn in_c(item: &str, has_c_layout: bool) -> String {
    if let Some(constant) = item.strip_prefix("pub const ") {
        let (name, rest) = constant.split_once(": ").expect("a type");
        let value = rest.split_once(" = ").expect("a value").1.trim_end_matches(';');
        return format!("#define {name} {}", value.replace("u64::MAX", "UINT64_MAX"));
    }
    if let Some(structure) = item.strip_prefix("pub struct ") {
        let name = structure.split([' ', '(']).next().expect("a name");
        if !has_c_layout {
            return format!("typedef struct {name} {name};");
        }
        let mut c = format!("typedef struct {name} {{\n");
        for line in structure.lines().skip(1).map(str::trim) {
            match line.strip_prefix("/// ") {
                Some(documentation) => c += &format!("/** * {documentation} */\n"),
                None if line == "}" => c += &format!("}} {name};"),
                None => {
                    let (field, rust) =
                        line.trim_end_matches(',').split_once(": ").expect("a field");
                    c += &format!("{};\n", declared(rust, field));
                }
            }
        }
        return c;
    }
    let (_, function) = item.split_once(" fn ").expect("a function");
    let (name, rest) = function.split_once('(').expect("arguments");
    let (arguments, result) = rest.split_once(')').expect("the end of the arguments");
    let arguments = arguments.split(',').map(str::trim).filter(|argument| !argument.is_empty());
    let arguments = arguments.map(|argument| {
        let (name, rust) = argument.split_once(": ").expect("a type");
        declared(rust, name)
    });
    let arguments = arguments.collect::<Vec<_>>().join(", ");
    let arguments = if arguments.is_empty() { "void" } else { &arguments };
    let result = result.trim_start_matches(" -> ").trim_end_matches(" {");
    declared(result, &format!("{name}({arguments});"))
}

/// What the header should have of a source file.
fn expected(source: &str) -> Vec<String> {
    const KINDS: [&str; 4] =
        ["pub const ", "pub struct ", "pub extern \"C\" fn ", "pub unsafe extern \"C\" fn "];
    let mut all = Vec::new();
    let (mut documentation, mut has_c_layout) = (String::new(), false);
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if let Some(more) = line.strip_prefix("///") {
            documentation += &format!(" *{more}\n");
        } else if line.starts_with("#[") {
            has_c_layout |= line == "#[repr(C)]";
        } else {
            if KINDS.iter().any(|kind| line.starts_with(kind)) {
                let mut item = line.to_owned();
                let end = if line.starts_with("pub struct ") { '}' } else { '{' };
                while !item.ends_with([';', end]) {
                    item += "\n";
                    item += lines.next().expect("the end of the item");
                }
                all.push(format!("/**\n{documentation} */\n{}", in_c(&item, has_c_layout)));
            }
            (documentation, has_c_layout) = (String::new(), false);
        }
    }
    all
}

/// Without line breaks.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_header_declares_what_the_sources_define() {
    let read = |path| fs::read_to_string(path).expect("a readable file");
    let sources = MODULES.map(|module| read(package().join(format!("src/{module}.rs"))));
    let expected: Vec<String> = sources.iter().flat_map(|source| expected(source)).collect();
    let header = read(package().join("include/fairlock.h"));
    // An empty line ends each.
    let items = header.split("\n\n").filter(|item| item.trim_start().starts_with("/**"));
    let mut items: BTreeSet<String> = items.map(in_one_line).collect();
    for item in &expected {
        assert!(items.remove(&in_one_line(item)), "include/fairlock.h should have:\n{item}");
    }
    assert!(items.is_empty(), "include/fairlock.h has what no source defines: {items:#?}");
    assert!(expected.len() > 80);
}
