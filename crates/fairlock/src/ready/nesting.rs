//! What keeps polls that are registered with each other from making a cycle.

use crate::mutex::{Mutex, MutexGuard};
use crate::platform::Platform;

/// Held while a poll is registered with another one: two threads that do so at once could make a
/// cycle together of which neither sees more than its own half.
pub struct Nesting<P: Platform>(Mutex<(), P>);

impl<P: Platform> Nesting<P> {
    #[allow(clippy::declare_interior_mutable_const)] // becomes part of a static
    pub(crate) const NEW: Self = Nesting(Mutex::new_in(()));

    pub(super) fn lock(&self) -> MutexGuard<'_, (), P> {
        self.0.lock()
    }
}

/// A platform whose processes have one: what polls need of it. Every
/// [`Host`](crate::process::Host) is one.
pub trait HasNesting: Platform {
    /// That of this process.
    fn nesting() -> &'static Nesting<Self>;
}
