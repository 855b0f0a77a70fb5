//! Where records are: one number for the life of a log.

use std::fmt;

/// Where a record of a [`LogFile`](crate::LogFile) is.
///
/// Positions grow from record to record, keep their meaning when older segments are given up or used
/// again, and never return. They are counted in bytes: position `p` lies in segment `p / segment_bytes`
/// at offset `p % segment_bytes` of its file. Between two records there are headers and padding, so
/// positions have gaps.
///
/// ```
/// use fairlock_io::Position;
///
/// let stored: u64 = Position::new(4_144).get();
/// assert_eq!(Position::new(stored).to_string(), "4144");
/// assert!(Position::START < Position::new(stored));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(u64);

impl Position {
    /// Before the first record of any log.
    pub const START: Position = Position(0);

    /// The position that [`get`](Self::get) gave.
    pub const fn new(position: u64) -> Position {
        Position(position)
    }

    /// As a number, to be stored elsewhere.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
