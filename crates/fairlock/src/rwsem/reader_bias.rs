//! How readers may enter without taking the lock.

/// How readers enter without taking this lock, which tells it when a thread waits.
pub trait ReaderBias: Send + Sync + 'static {
    /// What the lock remembers of its readers and writers in addition to the bias itself.
    type History: Send + Sync + 'static;
    /// At first.
    const NEW: Self;
    /// At first.
    const NO_HISTORY: Self::History;
    /// A thread waits for the lock from now on, as its word says. True if readers need not take the
    /// lock while none waits.
    fn note_waiter(&self) -> bool;
    /// Readers need not take the lock.
    fn is_biased(&self) -> bool;
    /// A reader that has not taken the lock reads.
    fn is_read(&self) -> bool;
}

/// All threads take the lock itself.
pub struct Unbiased;

impl ReaderBias for Unbiased {
    type History = ();
    const NEW: Self = Unbiased;
    const NO_HISTORY: () = ();
    fn note_waiter(&self) -> bool {
        false
    }
    fn is_biased(&self) -> bool {
        false
    }
    fn is_read(&self) -> bool {
        false
    }
}
