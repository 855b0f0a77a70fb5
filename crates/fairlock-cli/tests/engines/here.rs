//! `sweep run`, whole, in shares, and killed.

use crate::sweep::{GRID, Process, Sweep, TASKS, rows_of_one_run, said};

#[test]
fn shares_that_are_merged_have_the_rows_of_one_run() {
    let shares: Vec<Sweep> = (0..3).map(|_| Sweep::new(GRID, &[])).collect();
    for (number, share) in (1..).zip(&shares) {
        let which = format!("{number}/3");
        share.succeeds(&["run", "grid.toml", "--out", "grid", "--share", &which]);
        assert!(share.results().len() < TASKS);
    }
    let dirs: Vec<String> = shares.iter().map(|it| it.dir().display().to_string()).collect();
    let dirs: Vec<&str> = dirs.iter().map(String::as_str).collect();
    shares[0].succeeds(&[&["merge"], &dirs[..]].concat());
    shares[0].has_the_rows_of_one_run();
    let missing = shares[1].fails(&["merge", "grid"]);
    assert!(missing.contains("have no result"), "{missing}");
}

#[test]
fn a_run_that_was_killed_goes_on_with_what_it_has() {
    rows_of_one_run();
    let sweep = Sweep::new(GRID, &[]);
    let mut run = sweep.start(&["run", "grid.toml", "--out", "grid"]);
    sweep.wait_for_some_results();
    Process(run.id()).kill();
    run.wait().unwrap();
    let kept = sweep.results();
    assert!(kept.len() < TASKS);
    let made = |name: &String| {
        sweep.dir().join("results").join(name).metadata().and_then(|it| it.modified()).unwrap()
    };
    let made_then: Vec<_> = kept.iter().map(made).collect();
    let output = sweep.output(&["run", "grid"]);
    assert!(output.status.success(), "{}", said(&output));
    sweep.has_the_rows_of_one_run();
    assert_eq!(sweep.results().len(), TASKS);
    assert_eq!(kept.iter().map(made).collect::<Vec<_>>(), made_then, "made twice");
}
