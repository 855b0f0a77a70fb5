//! The list of constants that a simulated machine may replace: all of them, and on real threads they are what they were.

use std::fs;
use std::path::Path;

use fairlock::platform::{Os, Platform};
use fairlock::policy::{Bias, Shares};
use fairlock::tunables;

/// The names that files below a folder give to constants.
fn names_below(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder of the source") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            names_below(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).expect("a readable file");
        let calls = text.split("Tunable::new(").skip(1);
        found.extend(calls.map(|call| call.split('"').nth(1).expect("a name").to_owned()));
    }
}

#[test]
fn every_constant_that_has_a_name_is_in_the_list() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut in_the_source = Vec::new();
    for lock in ["rwsem", "rwlock"] {
        names_below(&source.join(lock), &mut in_the_source);
    }
    in_the_source.sort();
    let mut listed: Vec<_> = tunables().iter().map(|it| it.name().to_owned()).collect();
    listed.sort();
    assert_eq!(listed, in_the_source);
}

#[test]
fn real_threads_have_the_values_of_the_list_and_of_the_default_policies() {
    for &constant in tunables() {
        assert_eq!(Os::tuned(constant), constant.value(), "{}", constant.name());
    }
    let value = |name: &str| {
        let found = tunables().iter().find(|it| it.name() == name);
        found.unwrap_or_else(|| panic!("there is no {name}")).value()
    };
    assert_eq!(value("slack"), Shares::TIME_FAIR.slack);
    assert_eq!(value("spin"), Shares::TIME_FAIR.spin);
    assert_eq!(value("bias_reads"), Bias::READ_MOSTLY.reads);
}
