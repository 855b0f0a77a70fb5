//! What Fairlock's locks are checked with. Tests only; nothing here is published.
//!
//! * [`scenario`]: what a few threads do with a lock, written once for every checker: [`read_write`]
//!   (`RwSem` and `RwLock`), [`mutex`], [`condvar`], [`patterns`] of
//!   both, [`reentrant`], [`process_shared`], [`range::scenarios`].
//! * [`explored`]: scenarios under the explorer.
//! * [`loom_platform`]: the locks' platform over Loom, faithful and with flaws.
//! * [`threads`]: scenarios and everything at once on real threads, and platforms that differ from the real one in
//!   one thing.
//! * [`range`]: what range locks are tested with.
//! * [`brief`]: parking_lot's locks with brief spins.
//! * [`long`]: how far searches go.
//!
//! `tests/` has one program for each checker: `explore` (every schedule within bounds, in
//! `fairlock-sim`), `loom` (C11's memory model) and `stress` (real threads).

pub mod brief;
pub mod condvar;
pub mod explored;
pub mod long;
pub mod loom_platform;
pub mod mutex;
pub mod patterns;
#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
pub mod process_shared;
pub mod range;
pub mod read_write;
pub mod reentrant;
pub mod scenario;
pub mod threads;
