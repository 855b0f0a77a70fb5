//! Processes that append to a log and are killed: what was acknowledged is read back.
//!
//! `examples/log_kills.rs` is the same for longer.

use std::error::Error;

use crate::killing;
use crate::long::depth;

#[test]
fn what_was_acknowledged_outlives_kills() -> Result<(), Box<dyn Error>> {
    if killing::is_child() {
        return killing::append_until_killed();
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let arguments = ["kills::what_was_acknowledged_outlives_kills", "--exact", "--nocapture"];
    let figures = killing::kill(directory.path(), depth(20, 60), &arguments)?;
    println!("{figures}");
    Ok(())
}
