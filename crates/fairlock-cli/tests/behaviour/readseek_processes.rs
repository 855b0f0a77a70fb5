//! Processes read and write one file: each is the command, started again.

use std::path::PathBuf;

use fairlock_lab::workload::AnyWorkload;
use fairlock_lab::workloads::readseek::{Overlap, Reads, ReadseekProcesses};
use fairlock_study::plan::{self, Cell, Plan};
use fairlock_study::registry;

#[test]
fn processes_run_readseek_and_tear_no_read_under_a_lock() {
    let reads = Reads { readers: 2, writers: 1, overlap: Overlap::Same, ..Reads::default() };
    let workload = AnyWorkload::from(ReadseekProcesses { reads });
    let cell = |lock: &str| Cell {
        workload: workload.clone(),
        lock: lock.to_owned(),
        repetitions: 1,
        seconds: 0.05,
        on: None,
        for_limit: false,
    };
    let locks = registry::all_locks(workload.name(), false);
    let cells = locks.iter().map(|lock| cell(lock)).collect();
    let plan = Plan { program: PathBuf::from(crate::FAIRLOCK), ..Plan::new(cells) };
    let rows = plan::run(&plan, &mut ()).unwrap();
    assert_eq!(rows.iter().map(|row| row.lock.as_str()).collect::<Vec<_>>(), locks);
    for row in rows {
        let reader = &row.roles["reader"];
        assert_eq!((reader.threads, row.roles["writer"].threads), (2, 1));
        assert!(reader.torn.is_some() && row.total_ops_per_s.median > 0.0, "{row:?}");
        let locks = ["pthread", "fcntl"].contains(&row.lock.as_str());
        assert!(!locks || reader.torn == Some(0), "{row:?}");
    }
}
