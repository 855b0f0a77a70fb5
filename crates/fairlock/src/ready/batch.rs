//! What a wait reports, and when a source is reported.

use super::item::Readiness;

/// When a registered source is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// By every wait while it is ready.
    Level,
    /// By one wait for each signal, or for several signals together, if it is ready then. Also once
    /// after it was registered or modified.
    Edge,
    /// Once; then it is silent until [`modify`](super::RawPoll::modify).
    Once,
}

impl Trigger {
    pub(super) fn to_bits(self) -> u8 {
        self as u8
    }

    pub(super) fn from_bits(bits: u8) -> Trigger {
        match bits {
            0 => Trigger::Level,
            1 => Trigger::Edge,
            _ => Trigger::Once,
        }
    }
}

/// One source that a wait found ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// What it was registered with.
    pub token: u64,
    /// What it is ready for, of what was asked for.
    pub readiness: Readiness,
}

/// Room for what one wait reports.
///
/// ```
/// use fairlock::ready::Batch;
/// let batch = Batch::with_capacity(64);
/// assert!(batch.is_empty());
/// ```
#[derive(Debug)]
pub struct Batch {
    pub(super) ready: Vec<Ready>,
    most: usize,
}

impl Batch {
    /// Room for `most` sources; a wait reports no more, and the next wait reports the others.
    ///
    /// # Panics
    /// If it is zero: a wait could never end.
    pub fn with_capacity(most: usize) -> Batch {
        assert!(most > 0, "a batch needs room for one ready source at least");
        Batch { ready: Vec::with_capacity(most), most }
    }

    /// What the last wait reported, in the order in which it became ready.
    pub fn iter(&self) -> std::slice::Iter<'_, Ready> {
        self.ready.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// The last wait reported nothing.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.ready.len() == self.most
    }
}

/// With room for as many.
impl Clone for Batch {
    fn clone(&self) -> Batch {
        let mut batch = Batch::with_capacity(self.most);
        batch.ready.extend_from_slice(&self.ready);
        batch
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = &'a Ready;
    type IntoIter = std::slice::Iter<'a, Ready>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
