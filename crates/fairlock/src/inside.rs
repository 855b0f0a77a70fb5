//! What `fairlock-reference`, the locks and lists that fairlock's are measured against, shares with
//! them.
//!
//! **Not for users.** It changes without notice, in any release.

pub use crate::line::Line;
pub use crate::ready::item::{INSIDE, QUEUED, is_queued};
pub use crate::ready::list::hand_over;
pub use crate::slots::at_front;
pub use crate::spin_budget::SpinBudget;
pub use crate::wait_queue::{Links, Locked, OnRing, QueueLock, Ring};
