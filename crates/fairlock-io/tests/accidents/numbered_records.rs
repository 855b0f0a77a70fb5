//! Records that say who appended them, and show when they are not what was appended.

use fastrand::Rng;

/// The record that `thread` appends as its `number`th.
pub fn record(thread: u64, number: u64) -> Vec<u8> {
    let mut random = Rng::with_seed(thread << 48 | number);
    let length = match random.u32(..8) {
        0..5 => random.usize(24..400),
        5..7 => random.usize(24..9000),
        _ => random.usize(24..60_000),
    };
    let mut bytes = vec![0; length];
    random.fill(&mut bytes[16..]);
    bytes[..8].copy_from_slice(&thread.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Thread and number of a record; none if no thread has appended these bytes.
pub fn source_of(bytes: &[u8]) -> Option<(u64, u64)> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let (thread, number) = (word(0)?, word(8)?);
    (record(thread, number) == bytes).then_some((thread, number))
}
