//! What Fairlock's locks are checked with. Tests only; nothing here is published.
//!
//! * [`loom_platform`]: the locks' platform over Loom, faithful and with flaws.
//! * [`threads`]: everything at once on real threads, and platforms that differ from the real one in
//!   one thing.
//! * [`range`]: what range locks are tested with.
//! * [`long`]: how far searches go.
//!
//! `tests/` has one program for each checker: `explore` (every schedule within bounds, in
//! `fairlock-sim`), `loom` (C11's memory model) and `stress` (real threads).

pub mod long;
pub mod loom_platform;
pub mod range;
pub mod threads;
