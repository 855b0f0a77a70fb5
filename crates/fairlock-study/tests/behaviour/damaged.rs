//! Rows of a file that is damaged at random are shown, or refused with what is wrong with them.
//!
//! In the suite this is a second. `FAIRLOCK_FUZZ_SECONDS` makes it longer: it goes on for so many seconds. Cases that
//! failed are kept in `proptest-regressions` and tried first.

use std::fs;

use fairlock_lab::machine;
use fairlock_report::recording::{Header, Recording, Writer};
use fairlock_study::report::{self, terminal};
use fairlock_study::{example, registry, study};
use proptest::collection::vec;

#[path = "../../../fairlock-report/tests/damage/changes.rs"]
mod changes;

use changes::{change, changed, fuzz, is_told_well, parsed};

#[test]
fn damaged_rows_are_shown_or_refused() {
    let studies = vec!["rwlock".to_owned(), "s4".to_owned()];
    let mut header = Header::now(studies, true, machine::here(None));
    // A study of somebody's own comes with its rows.
    let own =
        toml::from_str(include_str!("../../../../studies/uncontended.toml")).expect("a study");
    header.studies.push("own".to_owned());
    header.study_files.insert("own".to_owned(), own);
    let mut recording = Recording::new(header);
    for name in ["rwlock", "s4", "s0"] {
        let batches = study::find(name).expect("it exists").batches(study::Effort::default());
        let cells = batches.iter().flat_map(|batch| batch.cells.iter().take(3));
        recording.rows.extend(cells.map(example::row_of));
    }
    recording.timelines.push(example::timeline("mix", "rwsem", "eight-sockets"));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rows.jsonl");
    let mut writer = Writer::create(&path, &recording.header).expect("a writable folder");
    recording.rows.iter().for_each(|row| writer.row(row).expect("room"));
    recording.timelines.iter().for_each(|it| writer.timeline(it).expect("room"));
    let lines = parsed(&fs::read(&path).expect("it was written"));
    fuzz(file!(), 24, vec(change(), 1..6), |changes| {
        let bytes = changed(lines.clone(), &changes);
        match Recording::read_lines(&bytes[..], "rows.jsonl", registry::current) {
            Err(error) => is_told_well(&error),
            Ok(recording) => {
                let (studies, _) = study::recorded(&recording.header);
                for (study, verdicts) in report::judge(studies, &recording) {
                    terminal::study(&study, &verdicts, &recording, 80);
                }
                terminal::tables(&recording.rows, 2, true, 80);
                report::page(&recording);
            }
        }
    });
}
