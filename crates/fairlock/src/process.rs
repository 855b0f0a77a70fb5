//! What the locks of one process share: the records of its threads, and waiting rooms.
//!
//! One such object exists for each [`Platform`]; where the process is a simulated one it begins
//! and ends with a run. Several copies of this crate in one program each have their own, and
//! share nothing.

use crate::platform::Platform;
use crate::rwsem::Rooms;
use crate::slots::{Record, Threads};

/// What the locks of one process share.
pub struct Process<P: Platform> {
    pub(crate) threads: Threads<P>,
    pub(crate) rooms: Rooms<P>,
}

impl<P: Platform> Process<P> {
    /// A process whose threads have not used a lock yet.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub const NEW: Self = Process { threads: Threads::NEW, rooms: Rooms::NEW };

    /// A record for a thread of this process that has none yet, to be
    /// [released](Record::release) when it ends; none if there are too many, and then it does
    /// without. For those that implement a [`Platform`].
    pub fn new_thread(&self) -> Option<&Record<P>> {
        self.threads.claim()
    }
}
