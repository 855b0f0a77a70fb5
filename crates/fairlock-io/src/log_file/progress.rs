//! How far a log may be read, by who does not write it.

use std::sync::Arc;

use super::control::Control;
use super::format::FIRST_BATCH;
use super::storage::{Boot, SharedMemory};

/// A log's control page, and what it does not know.
pub(crate) struct Progress<M> {
    control: Arc<Control<M>>,
    /// The end that was found in this run of the kernel, when the control page did not know it.
    found_end: Option<(u64, Boot)>,
}

impl<M> Clone for Progress<M> {
    fn clone(&self) -> Self {
        Progress { control: Arc::clone(&self.control), ..*self }
    }
}

impl<M: SharedMemory> Progress<M> {
    pub(crate) fn new(control: Arc<Control<M>>, found_end: Option<(u64, Boot)>) -> Self {
        Progress { control, found_end }
    }

    pub(crate) fn control(&self) -> &Control<M> {
        &self.control
    }

    /// Where the committed part ends.
    pub(crate) fn committed(&self) -> u64 {
        match self.found_end {
            // Until a writer opens it: that stores how far it is committed before the boot.
            Some((end, boot)) if self.control.boot() != boot => end,
            // Its page may be damaged.
            found => {
                let found = found.map(|(end, _)| end);
                self.control.committed().or(found).unwrap_or(FIRST_BATCH)
            }
        }
    }

    /// The first position that was not given up; none if a crash has taken that.
    pub(crate) fn first(&self) -> Option<u64> {
        self.control.first()
    }
}
