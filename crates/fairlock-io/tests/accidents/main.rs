//! What happens to logs: their writers are killed, systems and disks fail, other programs copy, damage or remove
//! what is in their directories.
//!
//! Some of it needs root, `mkfs` or a C compiler; what a test lacks it says. With `FAIRLOCK_LONG=1` more
//! processes are killed and more calls fail.

mod backup;
mod failing_calls;
mod faulting;
mod full_disk;
mod full_file_systems;
mod in_use;
mod killing;
mod kills;
#[path = "../../src/long.rs"]
mod long;
mod mounted;
mod numbered_records;
mod part;
mod plain_records;
mod power_loss;
mod preloaded;
mod processes;
mod repair;

#[test]
fn part() {
    part::run(&[
        backup::PARTS,
        full_file_systems::PARTS,
        in_use::PARTS,
        power_loss::PARTS,
        processes::PARTS,
    ]);
}
