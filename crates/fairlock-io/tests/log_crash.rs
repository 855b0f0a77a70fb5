//! Processes that append to a log and are killed: what was acknowledged is read back.
//!
//! `examples/log_kills.rs` is the same for longer.

use std::error::Error;

mod log_kills;

#[test]
fn what_was_acknowledged_outlives_kills() -> Result<(), Box<dyn Error>> {
    if log_kills::is_child() {
        return log_kills::append_until_killed();
    }
    let directory = tempfile::tempdir_in(".")?;
    let arguments = ["what_was_acknowledged_outlives_kills", "--exact", "--nocapture"];
    let figures = log_kills::kill(directory.path(), 60, &arguments)?;
    println!("{figures}");
    Ok(())
}
