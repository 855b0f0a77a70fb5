//! The beginning of a run on a simulated machine, small enough to keep with the rows: who did what
//! when, cut into as many slots as a picture has pixels.

use serde::{Deserialize, Serialize};

use crate::former_names;
use crate::params::Params;

/// What a thread tells a timeline about itself. A hold ends before the lock is released, so that
/// two holds overlap only if the lock lets them.
pub const WAIT_READ: &str = "wait read";
/// See [`WAIT_READ`].
pub const HOLD_READ: &str = "hold read";
/// See [`WAIT_READ`].
pub const WAIT_WRITE: &str = "wait write";
/// See [`WAIT_READ`].
pub const HOLD_WRITE: &str = "hold write";

/// What stands at the moment at which measuring begins, where threads arrive before.
pub const MEASURING_BEGINS: &str = "measuring begins";

/// Slots of a timeline.
pub const SLOTS: usize = 640;

/// A slot in which nothing is known.
pub const NOTHING: char = '.';
/// What a slot of [`ThreadTimeline::activity`] says, in one letter and in words.
pub const ACTIVITIES: [(char, &str); 4] =
    [('r', "runs"), ('s', "spins"), ('z', "sleeps"), ('q', "woken or without a CPU")];
/// What a slot of [`ThreadTimeline::section`] says, in one letter and as the workloads mark it.
pub const SECTIONS: [(char, &str); 4] =
    [('h', HOLD_READ), ('H', HOLD_WRITE), ('w', WAIT_READ), ('W', WAIT_WRITE)];

/// The beginning of a cell's first repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// As in the cell's row.
    pub workload: String,
    /// As in the cell's row.
    #[serde(deserialize_with = "former_names::read_lock")]
    pub lock: String,
    /// As in the cell's row.
    pub machine: String,
    /// As in the cell's row.
    pub params: Params,
    /// What all slots together stand for.
    pub length_ns: u64,
    /// When measuring began, ns from the start; none where it began with the run, or after the timeline's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_from_ns: Option<u64>,
    /// One for each thread, or for the first and the last ones. Earlier versions called them lanes.
    #[serde(alias = "lanes")]
    pub threads: Vec<ThreadTimeline>,
    /// Who woke whom: the places in `threads` of the waker and of the woken thread, and the slot.
    pub wake_ups: Vec<[usize; 3]>,
}

/// What one thread did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadTimeline {
    /// `reader 1`.
    pub thread: String,
    /// A letter of [`ACTIVITIES`] for each slot: what took most of its time.
    pub activity: String,
    /// A letter of [`SECTIONS`] for each slot, likewise.
    pub section: String,
}

impl Timeline {
    /// Whether a timeline of a file can be drawn.
    ///
    /// # Errors
    /// The field, and what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        for (index, [by, woken, _]) in self.wake_ups.iter().enumerate() {
            let threads = self.threads.len();
            if *by >= threads || *woken >= threads {
                return Err(format!(
                    "wake_ups[{index}]: from thread {by} to thread {woken}, but there are {threads} threads"
                ));
            }
        }
        Ok(())
    }
}
