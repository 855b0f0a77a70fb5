//! What each thread holds: for the checks for deadlocks.

/// How a lock is held, or asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Shared,
    Upgradable,
    Exclusive,
}

/// What a guard remembers for the checks for deadlocks.
pub trait Holding: Sized + Send + Sync + 'static {
    /// Whether anything is checked.
    const CHECKS: bool;
    /// Whether waits under way are shown.
    const SHOWS_WAITS: bool;
    /// Of a hold that is not checked.
    const NONE: Self;
    /// A wait under way.
    type Waiting;

    /// Before a wait.
    #[cfg_attr(debug_assertions, track_caller)]
    fn check(lock: *const (), wanted: Access, recursive: bool);
    /// The thread begins to wait.
    fn waiting(lock: *const (), wanted: Access) -> Self::Waiting;
    /// The thread holds the lock now.
    #[cfg_attr(debug_assertions, track_caller)]
    fn begin(lock: *const (), access: Access) -> Self;
    /// A hold of the calling thread that was forgotten.
    fn recover(lock: *const ()) -> Self;
    /// Held differently from now on.
    fn change(&mut self, access: Access);
    /// Released.
    fn end(self);
}

/// Checks nothing.
pub struct Unchecked;

impl Holding for Unchecked {
    const CHECKS: bool = false;
    const SHOWS_WAITS: bool = false;
    const NONE: Self = Unchecked;
    type Waiting = ();

    fn check(_: *const (), _: Access, _: bool) {}
    fn waiting(_: *const (), _: Access) {}
    fn begin(_: *const (), _: Access) -> Self {
        Unchecked
    }
    fn recover(_: *const ()) -> Self {
        Unchecked
    }
    fn change(&mut self, _: Access) {}
    fn end(self) {}
}
