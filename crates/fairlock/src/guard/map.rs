//! How a guard becomes one of a part of its data.

use core::convert::Infallible;
use core::ptr::NonNull;

use super::{Borrowed, Borrows, Guard, Part, Place};
use crate::hold::{Exclusive, Mode, Reentrant, Shared};
use crate::raw::RawLock;

/// For guards in this mode, which give access to their data as `&$mut`.
macro_rules! maps_its_data {
    ($(#[$doc:meta])* $mode:ident [$($mut:tt)?]) => {
        $(#[$doc])*
        impl<P: Place<Raw = R>, R: RawLock> Guard<$mode, P, R>
        where
            $mode: Mode<R>,
        {
            /// Access to a part of the data.
            #[inline]
            pub fn map<'a, U: ?Sized, F>(
                guard: Self,
                part: F,
            ) -> Guard<$mode, Borrowed<'a, U, R, Part<&'a $($mut)? U>>, R>
            where
                P: Borrows<'a>,
                F: FnOnce(&$($mut)? P::Data) -> &$($mut)? U,
            {
                let mapped = Self::try_map_or_err(guard, |data| Ok::<_, Infallible>(part(data)));
                let Ok(mapped) = mapped;
                mapped
            }

            /// Access to a part of the data, if there is one.
            ///
            /// # Errors
            /// The guard, if there is none.
            #[inline]
            pub fn try_map<'a, U: ?Sized, F>(
                guard: Self,
                part: F,
            ) -> Result<Guard<$mode, Borrowed<'a, U, R, Part<&'a $($mut)? U>>, R>, Self>
            where
                P: Borrows<'a>,
                F: FnOnce(&$($mut)? P::Data) -> Option<&$($mut)? U>,
            {
                let mapped = Self::try_map_or_err(guard, |data| part(data).ok_or(()));
                mapped.map_err(|(guard, ())| guard)
            }

            /// As [`try_map`](Self::try_map), and says why there is no such part.
            ///
            /// # Errors
            /// The guard, and what `part` says.
            #[inline]
            pub fn try_map_or_err<'a, U: ?Sized, F, E>(
                $($mut)? guard: Self,
                part: F,
            ) -> Result<Guard<$mode, Borrowed<'a, U, R, Part<&'a $($mut)? U>>, R>, (Self, E)>
            where
                P: Borrows<'a>,
                F: FnOnce(&$($mut)? P::Data) -> Result<&$($mut)? U, E>,
            {
                let part = match part(&$($mut)? guard) {
                    Ok(part) => NonNull::from(part),
                    Err(error) => return Err((guard, error)),
                };
                let (place, hold) = guard.into_parts();
                // SAFETY: a part of the data, accessed as before; the guard had this hold.
                Ok(unsafe { Guard::new(Borrowed::new(place.borrowed(), part), hold) })
            }
        }
    };
}

maps_its_data! {
    /// Of read guards, unless they own an `Arc`.
    Shared []
}
maps_its_data! {
    /// Of guards of a [`ReentrantMutex`](crate::ReentrantMutex), unless they own an `Arc`.
    Reentrant []
}
maps_its_data! {
    /// Of write guards and of guards of a [`Mutex`](crate::Mutex), unless they own an `Arc`.
    Exclusive [mut]
}
