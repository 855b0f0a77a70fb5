//! What keeps polls that are registered with each other from making a circle.

use lock_api::{Mutex, MutexGuard};

use crate::mutex::RawMutex;
use crate::platform::Platform;

/// Held while a poll is registered with another one: two threads that do so at once could make a circle
/// together of which neither sees more than its own half.
pub struct Nesting<P: Platform>(Mutex<RawMutex<P>, ()>);

impl<P: Platform> Nesting<P> {
    #[allow(clippy::declare_interior_mutable_const)] // becomes part of a static
    pub(crate) const NEW: Self = Nesting(Mutex::from_raw(RawMutex::NEW, ()));

    pub(super) fn lock(&self) -> MutexGuard<'_, RawMutex<P>, ()> {
        self.0.lock()
    }
}

/// A platform whose processes have one: what polls need of it. Every
/// [`Host`](crate::process::Host) is one.
pub trait HasNesting: Platform {
    /// That of this process.
    fn nesting() -> &'static Nesting<Self>;
}
