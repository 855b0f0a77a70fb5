//! Tests of the repetitions that a task of a sweep leaves behind, which need a plan to run.

use fairlock_lab::measure::{Kept, Repetition, RowLabel, row, simulated_counts};
use fairlock_lab::workloads::mix::Mix;

use super::{Cell, Simulated};

fn cell(lock: &str) -> Cell {
    Cell {
        workload: Mix::dedicated(3, 2).into(),
        lock: lock.to_owned(),
        repetitions: 2,
        seconds: 0.0005,
        on: Some(Simulated::find("riscv-4", 1).unwrap()),
        for_limit: false,
    }
}

fn roles(cell: &Cell) -> Vec<&'static str> {
    cell.workload.roles().iter().map(|role| role.name).collect()
}

#[test]
fn rows_of_kept_repetitions_are_those_of_the_repetitions() {
    for lock in ["rwsem", "linux-5.11", "mutex"] {
        let cell = cell(lock);
        let whole: Vec<Repetition> =
            (0..2).map(|seed| cell.simulate(seed, &|| false).unwrap()).collect();
        let kept: Vec<Repetition> = whole
            .iter()
            .map(|it| {
                let text = serde_json::to_string(&Kept::of(it.clone())).unwrap();
                let kept: Kept = serde_json::from_str(&text).unwrap();
                kept.restored(&roles(&cell)).unwrap()
            })
            .collect();
        let label = || RowLabel {
            workload: "mix".to_owned(),
            lock: lock.to_owned(),
            machine: "riscv-4".to_owned(),
            params: cell.row_params(),
            seconds: cell.seconds,
        };
        let of = |all: &[Repetition]| serde_json::to_string(&row(label(), all, None)).unwrap();
        assert_eq!(of(&kept), of(&whole), "{lock}");
        assert_eq!(simulated_counts(1, &kept), simulated_counts(1, &whole));
    }
}

#[test]
fn what_no_run_leaves_is_refused() {
    let kept = Kept::of(cell("rwsem").simulate(0, &|| false).unwrap());
    let text = serde_json::to_string(&kept).unwrap();
    let odd = text.replacen("\"counts\":[", "\"counts\":[7,", 1);
    assert!(serde_json::from_str::<Kept>(&odd).is_err());
    let role = text.replacen("\"reader\":", "\"ghost\":", 1);
    let kept: Kept = serde_json::from_str(&role).unwrap();
    let said = kept.restored(&roles(&cell("rwsem"))).unwrap_err();
    assert!(said.contains("ghost"), "{said}");
}
