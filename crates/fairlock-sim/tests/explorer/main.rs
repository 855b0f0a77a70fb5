//! The explorer itself. What it says of the locks is in the crate `fairlock-check`.

mod in_time;
mod schedules;
