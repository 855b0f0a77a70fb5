//! What the locks of one process share: the records of its threads.
//!
//! One such object exists for each [`Platform`]; where the process is a simulated one it begins
//! and ends with a run.
//!
//! Several copies of this crate in one program, by their versions or in libraries that are loaded,
//! each have their own, and share nothing: a lock is used through the copy that made it, so its
//! readers are in the records where its writers look. What they have in common is harmless to
//! share: the kernel's asymmetric barrier reaches all threads of the process, and registering for
//! it twice is registering once. [`Os`](crate::platform::Os) and
//! [`Counting`](crate::platform::Counting) are two copies in this sense.

use crate::platform::Platform;
use crate::slots::{Record, Threads};

/// What the locks of one process share.
pub struct Process<P: Platform> {
    pub(crate) threads: Threads<P>,
}

impl<P: Platform> Process<P> {
    /// A process whose threads have not used a lock yet.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub const NEW: Self = Process { threads: Threads::NEW };

    /// A record for a thread of this process that has none yet, [given
    /// back](Self::thread_ended) when it ends; none if there are too many, and then it does
    /// without. For those that implement a [`Platform`], as all that follow.
    pub fn new_thread(&self) -> Option<&Record<P>> {
        self.threads.claim()
    }

    /// The thread to which this record was given reads no more.
    pub fn thread_ended(&self, record: &Record<P>) {
        self.threads.release(record);
    }

    /// This process is the child of a `fork` by the thread that has the record `own`, and has no
    /// other threads yet.
    pub fn forked(&self, own: Option<&Record<P>>) {
        self.threads.keep_only(own);
    }
}
