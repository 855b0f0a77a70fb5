//! `mmapstorm`: what a storm of mappings and page faults measures, and what it refuses.

use fairlock_lab::locks::KERNEL;
use fairlock_lab::workload::AnyWorkload;
use fairlock_lab::workloads;
use fairlock_lab::workloads::mmapstorm::Mmapstorm;
use fairlock_report::params;
use fairlock_report::row::Row;
use fairlock_study::plan::{self, Cell, Plan, Simulated};
use fairlock_study::registry;

fn storm(readers: u32, writers: u32, pages: u32) -> Mmapstorm {
    Mmapstorm { readers, writers, pages }
}

fn cell(params: Mmapstorm) -> Cell {
    Cell {
        workload: AnyWorkload::from(params),
        lock: KERNEL.to_owned(),
        repetitions: 1,
        seconds: 0.05,
        on: None,
        for_limit: false,
    }
}

fn run(params: Mmapstorm) -> Row {
    plan::run(&Plan::new(vec![cell(params)]), &mut ()).unwrap().remove(0)
}

fn refusal(cell: Cell) -> String {
    cell.validate().unwrap_err().to_string()
}

#[test]
fn each_role_has_its_calls_and_its_operations() {
    let row = run(storm(2, 2, 4));
    assert_eq!((row.workload.as_str(), row.lock.as_str()), ("mmapstorm", KERNEL));
    let (reader, writer) = (&row.roles["reader"], &row.roles["writer"]);
    assert_eq!((reader.threads, writer.threads), (2, 2));
    // An operation of a reader has one read, that of a writer an mmap and a munmap.
    assert_eq!(reader.wait.count, reader.latency.count);
    assert_eq!(writer.wait.count, 2 * writer.latency.count);
    for role in [reader, writer] {
        assert!(role.latency.count > 0 && role.hold.count == 0, "{row:?}");
        assert!(role.latency.max >= role.wait.max, "{row:?}");
    }
}

#[test]
fn a_role_may_be_alone_and_have_one_page() {
    assert_eq!(run(storm(1, 0, 1)).roles.keys().collect::<Vec<_>>(), ["reader"]);
    assert_eq!(run(storm(0, 2, 1)).roles.keys().collect::<Vec<_>>(), ["writer"]);
}

#[test]
fn parameters_out_of_range_are_refused_with_the_valid_ones() {
    for (params, words) in [
        (storm(0, 0, 1), ["`readers + writers` is 0", "1 to"]),
        (storm(1, 1, 0), ["`pages` is 0", "1 to 1024"]),
        (storm(1, 1, 1025), ["`pages` is 1025", "1 to 1024"]),
        (storm(2000, 2000, 1024), ["`pages` is 1024", "at most 1073741824 bytes"]),
    ] {
        let said = refusal(cell(params));
        words.iter().for_each(|word| assert!(said.contains(word), "`{said}` lacks `{word}`"));
    }
}

#[test]
fn it_measures_the_kernel_alone_and_on_this_machine_only() {
    let entry = workloads::named("mmapstorm").unwrap();
    let found = entry.parse(&params::of(&[("readers", 3.0), ("pages", 2.0)])).unwrap();
    assert_eq!(
        found,
        AnyWorkload::from(Mmapstorm { readers: 3, pages: 2, ..Mmapstorm::default() })
    );
    assert_eq!(registry::all_locks("mmapstorm", false), [KERNEL]);
    let said = refusal(Cell { lock: "std".to_owned(), ..cell(storm(1, 1, 1)) });
    assert!(said.contains("`std`; valid: kernel"), "{said}");
    let on = Some(Simulated::find("x86-12", 1).unwrap());
    let said = refusal(Cell { on, ..cell(storm(1, 1, 1)) });
    assert!(said.contains("a simulated machine has none"), "{said}");
}
