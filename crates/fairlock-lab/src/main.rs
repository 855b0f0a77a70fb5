//! The `fairlock` command.

fn main() {}
