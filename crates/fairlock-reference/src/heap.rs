//! What locks keep on the heap, in memory of their platform.
//!
//! On real threads that is the system's allocator. A simulated machine has memory of its own, so that what it
//! measures does not depend on which freed block the program's allocator happens to return.

use core::alloc::Layout;
use core::marker::PhantomData;
use core::mem;
use core::ops::Deref;
use core::ptr::NonNull;
use std::alloc::handle_alloc_error;

use fairlock::platform::Platform;

/// A `Box` in memory from [`Platform::allocate`].
///
/// Invariant: `value` is initialised, in memory that `P` allocated for a `T`, and nobody else refers to it.
pub(crate) struct HeapBox<P: Platform, T> {
    value: NonNull<T>,
    owns: PhantomData<(T, fn() -> P)>,
}

impl<P: Platform, T> HeapBox<P, T> {
    const LAYOUT: Layout = {
        assert!(size_of::<T>() > 0, "platforms allocate at least one byte");
        Layout::new::<T>()
    };

    pub(crate) fn new(value: T) -> Self {
        // SAFETY: the size is not 0.
        let memory = unsafe { P::allocate(Self::LAYOUT) };
        let Some(place) = NonNull::new(memory.cast::<T>()) else {
            handle_alloc_error(Self::LAYOUT)
        };
        // SAFETY: memory for a `T` that nobody else uses.
        unsafe { place.write(value) };
        HeapBox { value: place, owns: PhantomData }
    }

    /// The value, which is now the caller's to free.
    pub(crate) fn into_raw(self) -> NonNull<T> {
        mem::ManuallyDrop::new(self).value
    }

    /// # Safety
    /// The value came from [`into_raw`](Self::into_raw) on the same platform, and nobody else refers to it.
    pub(crate) unsafe fn from_raw(value: NonNull<T>) -> Self {
        HeapBox { value, owns: PhantomData }
    }
}

impl<P: Platform, T> Deref for HeapBox<P, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the invariant.
        unsafe { self.value.as_ref() }
    }
}

impl<P: Platform, T> Drop for HeapBox<P, T> {
    fn drop(&mut self) {
        // SAFETY: the invariant, and this is the last use.
        unsafe {
            self.value.drop_in_place();
            P::deallocate(self.value.as_ptr().cast(), Self::LAYOUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use fairlock::platform::Os;

    use super::*;

    #[test]
    fn a_value_is_dropped_once_with_its_box() {
        let value = Rc::new(7_u32);
        let boxed = HeapBox::<Os, _>::new(Rc::clone(&value));
        assert_eq!((**boxed, Rc::strong_count(&value)), (7, 2));
        let raw = boxed.into_raw();
        assert_eq!(Rc::strong_count(&value), 2);
        // SAFETY: it came from there just now.
        drop(unsafe { HeapBox::<Os, _>::from_raw(raw) });
        assert_eq!(Rc::strong_count(&value), 1);
    }
}
