//! The functions that several locks have in common, written once: how a lock and its data belong
//! together, its values, and what [`RwLock`](crate::RwLock) and [`RwSem`](crate::RwSem) do.

/// `lock_with_data!` says how a lock `{ raw, data }` and its data belong together. `free` makes one
/// of any type, and `try_lock` gives shared access.
macro_rules! lock_with_data {
    (
        $Lock:ident [$($generics:tt)*] [$($arguments:ty),*], raw: $Raw:ty = $new:expr,
        free: $free:ident, lock: $lock:ident, try_lock: $try_lock:ident $(,)?
    ) => {
        impl<T> $Lock<T> {
            /// A free lock.
            #[must_use]
            pub const fn new(value: T) -> Self {
                $Lock { raw: $new, data: UnsafeCell::new(value) }
            }
        }

        impl<T, $($generics)*> $Lock<T, $($arguments),*> {
            /// The data.
            pub fn into_inner(self) -> T {
                self.data.into_inner()
            }
        }

        impl<T: ?Sized, $($generics)*> $Lock<T, $($arguments),*> {
            /// A thread holds the lock. The answer may be out of date by the time that the caller
            /// has it. For an [`RwLock`](crate::RwLock) the look is not atomic: it can also say no
            /// if one thread releases while another acquires.
            #[must_use]
            pub fn is_locked(&self) -> bool {
                self.raw.is_locked()
            }

            /// The data, without locking: no other thread has access while the lock is borrowed
            /// like this.
            #[inline]
            pub fn get_mut(&mut self) -> &mut T {
                self.data.get_mut()
            }

            /// Where the data is. A thread that reads or writes there has to hold the lock.
            #[inline]
            pub fn data_ptr(&self) -> *mut T {
                self.data.get()
            }
        }

        // SAFETY: the same two fields each time.
        unsafe impl<T: ?Sized, $($generics)*> Lock for $Lock<T, $($arguments),*> {
            type Raw = $Raw;
            type Data = T;
            #[inline]
            fn raw(&self) -> &$Raw {
                &self.raw
            }
            #[inline]
            fn data(&self) -> *mut T {
                self.data.get()
            }
        }

        // Only with the default arguments, so that these are inferred.
        impl<T: Default> Default for $Lock<T> {
            fn default() -> Self {
                Self::new(T::default())
            }
        }

        impl<T> From<T> for $Lock<T> {
            fn from(value: T) -> Self {
                Self::new(value)
            }
        }

        /// Shows the data if that needs no waiting.
        impl<T: ?Sized + core::fmt::Debug, $($generics)*> core::fmt::Debug for $Lock<T, $($arguments),*> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let mut shown = f.debug_struct(stringify!($Lock));
                match self.$try_lock() {
                    Some(guard) => shown.field("data", &&*guard),
                    None => shown.field("data", &format_args!("<locked>")),
                };
                shown.finish()
            }
        }

        /// Serializes the data, while the lock is held.
        #[cfg(feature = "serde")]
        impl<T: ?Sized + serde::Serialize, $($generics)*> serde::Serialize for $Lock<T, $($arguments),*> {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.$lock().serialize(serializer)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de, T: serde::Deserialize<'de>, $($generics)*> serde::Deserialize<'de>
            for $Lock<T, $($arguments),*>
        {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                T::deserialize(deserializer).map(Self::$free)
            }
        }
    };
}

/// `lock_of_values!` gives a lock the functions that copy or replace its data, and access to itself
/// without its data. `lock` gives shared access, `lock_mut` exclusive access. `example` is the path
/// under which users know the type.
macro_rules! lock_of_values {
    (
        $Lock:ident [$($generics:tt)*] [$($arguments:ty),*], raw: $Raw:ty, example: $example:literal,
        lock: $lock:ident, lock_mut: $lock_mut:ident $(,)?
    ) => {
        impl<T, $($generics)*> $Lock<T, $($arguments),*> {
            /// A copy of the data, made while the lock is held.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("use fairlock::", $example, ";")]
            #[doc = concat!("let lock = ", $example, "::new(1);")]
            /// lock.set(2);
            /// assert_eq!((lock.get_cloned(), lock.replace(3)), (2, 2));
            /// ```
            #[track_caller]
            pub fn get_cloned(&self) -> T
            where
                T: Clone,
            {
                self.$lock().clone()
            }

            /// Writes `value` in place of the data, which is dropped after the lock was released.
            #[track_caller]
            pub fn set(&self, value: T) {
                drop(self.replace(value));
            }

            /// Writes `value` in place of the data, and returns that.
            #[track_caller]
            pub fn replace(&self, value: T) -> T {
                core::mem::replace(&mut *self.$lock_mut(), value)
            }
        }

        impl<T: ?Sized, $($generics)*> $Lock<T, $($arguments),*> {
            /// The lock without its data.
            ///
            /// # Safety
            /// The caller releases only what it has acquired, and leaves guards what they hold.
            #[inline]
            pub unsafe fn raw(&self) -> &$Raw {
                &self.raw
            }
        }
    };
}

/// `reader_writer_lock!` gives a lock `{ raw, data }` all this and the functions of a reader-writer
/// lock. `example` is the path under which users know the type.
macro_rules! reader_writer_lock {
    (
        $Lock:ident [$($generics:tt)*] [$($arguments:ty),*], raw: $Raw:ty = $new:expr,
        example: $example:literal,
        guards: $Read:ident, $Write:ident, $Upgradable:ident,
        arc: $ArcRead:ident, $ArcWrite:ident, $ArcUpgradable:ident $(,)?
    ) => {
        lock_with_data! {
            $Lock [$($generics)*] [$($arguments),*], raw: $Raw = $new,
            free: with_policy, lock: read, try_lock: try_read,
        }

        lock_of_values! {
            $Lock [$($generics)*] [$($arguments),*], raw: $Raw, example: $example,
            lock: read, lock_mut: write,
        }

        // SAFETY: the lock gives access to the data to one thread at a time, or shared.
        unsafe impl<T: ?Sized + Send, $($generics)*> Send for $Lock<T, $($arguments),*> {}
        // SAFETY: as for `Send`; readers on several threads get `&T`.
        unsafe impl<T: ?Sized + Send + Sync, $($generics)*> Sync for $Lock<T, $($arguments),*> {}

        impl<T: ?Sized, $($generics)*> $Lock<T, $($arguments),*> {
            /// Acquires the lock for reading: shared with other readers, while nobody writes. Waits
            /// for as long as it takes.
            ///
            /// # Panics
            /// See the lock's documentation: too many readers; in debug builds also a deadlock of
            /// this thread with itself.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("use fairlock::", $example, ";")]
            #[doc = concat!("let lock = ", $example, "::new(vec![1, 2]);")]
            /// assert_eq!(lock.read().len(), 2);
            /// ```
            #[inline]
            #[track_caller]
            pub fn read(&self) -> $Read<'_, T, $($arguments),*> {
                Guard::acquire(self.borrow())
            }

            /// Acquires the lock for writing: alone. Waits for as long as it takes.
            ///
            /// # Panics
            /// In debug builds, if this thread holds the lock already: it would wait for itself for
            /// ever.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("use fairlock::", $example, ";")]
            #[doc = concat!("let lock = ", $example, "::new(vec![1, 2]);")]
            /// lock.write().push(3);
            /// ```
            #[inline]
            #[track_caller]
            pub fn write(&self) -> $Write<'_, T, $($arguments),*> {
                Guard::acquire(self.borrow())
            }

            /// Acquires the lock for reading with the right to
            #[doc = concat!("[upgrade](crate::guard::Guard::upgrade): next to readers, but one thread at a time.")]
            /// Waits for as long as it takes.
            ///
            /// # Panics
            /// As [`read`](Self::read).
            #[track_caller]
            pub fn upgradable_read(&self) -> $Upgradable<'_, T, $($arguments),*> {
                Guard::acquire(self.borrow())
            }

            /// As [`read`](Self::read), if that needs no waiting.
            #[inline]
            #[track_caller]
            pub fn try_read(&self) -> Option<$Read<'_, T, $($arguments),*>> {
                Guard::try_acquire(self.borrow())
            }

            /// As [`write`](Self::write), if that needs no waiting.
            #[inline]
            #[track_caller]
            pub fn try_write(&self) -> Option<$Write<'_, T, $($arguments),*>> {
                Guard::try_acquire(self.borrow())
            }

            /// As [`upgradable_read`](Self::upgradable_read), if that needs no waiting.
            #[track_caller]
            pub fn try_upgradable_read(&self) -> Option<$Upgradable<'_, T, $($arguments),*>> {
                Guard::try_acquire(self.borrow())
            }



            /// As [`read`](Self::read), but gives up after `timeout`.
            #[track_caller]
            pub fn try_read_for(&self, timeout: Duration) -> Option<$Read<'_, T, $($arguments),*>> {
                Guard::acquire_within(self.borrow(), Limit::For(timeout))
            }

            /// As [`read`](Self::read), but gives up at `instant`.
            #[track_caller]
            pub fn try_read_until(&self, instant: Instant) -> Option<$Read<'_, T, $($arguments),*>> {
                Guard::acquire_within(self.borrow(), Limit::Until(instant))
            }

            /// As [`write`](Self::write), but gives up after `timeout`.
            #[track_caller]
            pub fn try_write_for(&self, timeout: Duration) -> Option<$Write<'_, T, $($arguments),*>> {
                Guard::acquire_within(self.borrow(), Limit::For(timeout))
            }

            /// As [`write`](Self::write), but gives up at `instant`.
            #[track_caller]
            pub fn try_write_until(&self, instant: Instant) -> Option<$Write<'_, T, $($arguments),*>> {
                Guard::acquire_within(self.borrow(), Limit::Until(instant))
            }

            /// As [`upgradable_read`](Self::upgradable_read), but gives up after `timeout`.
            #[track_caller]
            pub fn try_upgradable_read_for(
                &self,
                timeout: Duration,
            ) -> Option<$Upgradable<'_, T, $($arguments),*>> {
                Guard::acquire_within(self.borrow(), Limit::For(timeout))
            }

            /// As [`upgradable_read`](Self::upgradable_read), but gives up at `instant`.
            #[track_caller]
            pub fn try_upgradable_read_until(
                &self,
                instant: Instant,
            ) -> Option<$Upgradable<'_, T, $($arguments),*>> {
                Guard::acquire_within(self.borrow(), Limit::Until(instant))
            }

            /// A thread holds the lock for writing, or is about to. By the time that the caller
            /// knows, this may have changed.
            #[must_use]
            pub fn is_locked_exclusive(&self) -> bool {
                self.raw.is_locked_exclusive()
            }
        }

        /// With guards that own an [`Arc`] of the lock.
        impl<T: ?Sized, $($generics)*> $Lock<T, $($arguments),*> {
            /// As [`read`](Self::read).
            ///
            /// # Examples
            /// ```
            #[doc = concat!("use fairlock::", $example, ";")]
            /// use std::sync::Arc;
            #[doc = concat!("let lock = Arc::new(", $example, "::new(1));")]
            /// let guard = lock.read_arc();
            /// drop(lock);
            /// assert_eq!(*guard, 1);
            /// ```
            #[track_caller]
            pub fn read_arc(self: &Arc<Self>) -> $ArcRead<T, $($arguments),*> {
                Guard::acquire(self.share())
            }

            /// As [`write`](Self::write).
            #[track_caller]
            pub fn write_arc(self: &Arc<Self>) -> $ArcWrite<T, $($arguments),*> {
                Guard::acquire(self.share())
            }

            /// As [`upgradable_read`](Self::upgradable_read).
            #[track_caller]
            pub fn upgradable_read_arc(self: &Arc<Self>) -> $ArcUpgradable<T, $($arguments),*> {
                Guard::acquire(self.share())
            }

            /// As [`try_read`](Self::try_read).
            #[track_caller]
            pub fn try_read_arc(self: &Arc<Self>) -> Option<$ArcRead<T, $($arguments),*>> {
                Guard::try_acquire(self.share())
            }

            /// As [`try_write`](Self::try_write).
            #[track_caller]
            pub fn try_write_arc(self: &Arc<Self>) -> Option<$ArcWrite<T, $($arguments),*>> {
                Guard::try_acquire(self.share())
            }

            /// As [`try_upgradable_read`](Self::try_upgradable_read).
            #[track_caller]
            pub fn try_upgradable_read_arc(
                self: &Arc<Self>,
            ) -> Option<$ArcUpgradable<T, $($arguments),*>> {
                Guard::try_acquire(self.share())
            }



            /// As [`try_read_for`](Self::try_read_for).
            #[track_caller]
            pub fn try_read_arc_for(
                self: &Arc<Self>,
                timeout: Duration,
            ) -> Option<$ArcRead<T, $($arguments),*>> {
                Guard::acquire_within(self.share(), Limit::For(timeout))
            }

            /// As [`try_read_until`](Self::try_read_until).
            #[track_caller]
            pub fn try_read_arc_until(
                self: &Arc<Self>,
                instant: Instant,
            ) -> Option<$ArcRead<T, $($arguments),*>> {
                Guard::acquire_within(self.share(), Limit::Until(instant))
            }

            /// As [`try_write_for`](Self::try_write_for).
            #[track_caller]
            pub fn try_write_arc_for(
                self: &Arc<Self>,
                timeout: Duration,
            ) -> Option<$ArcWrite<T, $($arguments),*>> {
                Guard::acquire_within(self.share(), Limit::For(timeout))
            }

            /// As [`try_write_until`](Self::try_write_until).
            #[track_caller]
            pub fn try_write_arc_until(
                self: &Arc<Self>,
                instant: Instant,
            ) -> Option<$ArcWrite<T, $($arguments),*>> {
                Guard::acquire_within(self.share(), Limit::Until(instant))
            }

            /// As [`try_upgradable_read_for`](Self::try_upgradable_read_for).
            #[track_caller]
            pub fn try_upgradable_read_arc_for(
                self: &Arc<Self>,
                timeout: Duration,
            ) -> Option<$ArcUpgradable<T, $($arguments),*>> {
                Guard::acquire_within(self.share(), Limit::For(timeout))
            }

            /// As [`try_upgradable_read_until`](Self::try_upgradable_read_until).
            #[track_caller]
            pub fn try_upgradable_read_arc_until(
                self: &Arc<Self>,
                instant: Instant,
            ) -> Option<$ArcUpgradable<T, $($arguments),*>> {
                Guard::acquire_within(self.share(), Limit::Until(instant))
            }
        }

        /// Without guards, and after guards were forgotten.
        impl<T: ?Sized, $($generics)*> $Lock<T, $($arguments),*> {
            /// Makes the guard of a read again that was passed to `mem::forget`. If this thread
            /// forgot several, drop each guard that is made again before the next.
            ///
            /// # Safety
            /// The calling thread has forgotten the guard of a read, no other guard was made of it
            /// since, and the thread has no other guard of a read of this lock.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("use fairlock::", $example, ";")]
            #[doc = concat!("let lock = ", $example, "::new(1);")]
            /// std::mem::forget(lock.read());
            /// assert!(lock.try_write().is_none());
            /// // SAFETY: the guard was forgotten above.
            /// drop(unsafe { lock.make_read_guard_unchecked() });
            /// assert!(lock.try_write().is_some());
            /// ```
            pub unsafe fn make_read_guard_unchecked(&self) -> $Read<'_, T, $($arguments),*> {
                // SAFETY: as the caller promises.
                unsafe { Guard::recover(self.borrow()) }
            }

            /// A guard of a write whose guard was forgotten.
            ///
            /// # Safety
            /// The calling thread has forgotten the guard of a write, and no other guard was made
            /// of it since.
            pub unsafe fn make_write_guard_unchecked(&self) -> $Write<'_, T, $($arguments),*> {
                // SAFETY: as the caller promises.
                unsafe { Guard::recover(self.borrow()) }
            }

            /// A guard of an upgradable read whose guard was forgotten.
            ///
            /// # Safety
            /// The calling thread has forgotten the guard of an upgradable read, and no other guard
            /// was made of it since.
            pub unsafe fn make_upgradable_guard_unchecked(&self) -> $Upgradable<'_, T, $($arguments),*> {
                // SAFETY: as the caller promises.
                unsafe { Guard::recover(self.borrow()) }
            }

            /// As [`make_read_guard_unchecked`](Self::make_read_guard_unchecked), with an [`Arc`]
            /// of the lock.
            ///
            /// # Safety
            /// As for that function.
            pub unsafe fn make_arc_read_guard_unchecked(self: &Arc<Self>) -> $ArcRead<T, $($arguments),*> {
                // SAFETY: as the caller promises.
                unsafe { Guard::recover(self.share()) }
            }

            /// As [`make_write_guard_unchecked`](Self::make_write_guard_unchecked), with an [`Arc`]
            /// of the lock.
            ///
            /// # Safety
            /// As for that function.
            pub unsafe fn make_arc_write_guard_unchecked(self: &Arc<Self>) -> $ArcWrite<T, $($arguments),*> {
                // SAFETY: as the caller promises.
                unsafe { Guard::recover(self.share()) }
            }

            /// As [`make_upgradable_guard_unchecked`](Self::make_upgradable_guard_unchecked), with
            /// an [`Arc`] of the lock.
            ///
            /// # Safety
            /// As for that function.
            pub unsafe fn make_upgradable_arc_guard_unchecked(
                self: &Arc<Self>,
            ) -> $ArcUpgradable<T, $($arguments),*> {
                // SAFETY: as the caller promises.
                unsafe { Guard::recover(self.share()) }
            }

            /// Releases a read whose guard was forgotten.
            ///
            /// # Safety
            /// As [`make_read_guard_unchecked`](Self::make_read_guard_unchecked).
            pub unsafe fn force_unlock_read(&self) {
                // SAFETY: as the caller promises.
                drop(unsafe { self.make_read_guard_unchecked() });
            }

            /// As [`force_unlock_read`](Self::force_unlock_read), by a
            /// [fair unlock](crate::guard::Guard::unlock_fair).
            ///
            /// # Safety
            /// As [`make_read_guard_unchecked`](Self::make_read_guard_unchecked).
            pub unsafe fn force_unlock_read_fair(&self) {
                // SAFETY: as the caller promises.
                Guard::unlock_fair(unsafe { self.make_read_guard_unchecked() });
            }

            /// Releases a write whose guard was forgotten.
            ///
            /// # Safety
            /// As [`make_write_guard_unchecked`](Self::make_write_guard_unchecked).
            pub unsafe fn force_unlock_write(&self) {
                // SAFETY: as the caller promises.
                drop(unsafe { self.make_write_guard_unchecked() });
            }

            /// As [`force_unlock_write`](Self::force_unlock_write), by a
            /// [fair unlock](crate::guard::Guard::unlock_fair).
            ///
            /// # Safety
            /// As [`make_write_guard_unchecked`](Self::make_write_guard_unchecked).
            pub unsafe fn force_unlock_write_fair(&self) {
                // SAFETY: as the caller promises.
                Guard::unlock_fair(unsafe { self.make_write_guard_unchecked() });
            }
        }

    };
}

pub(crate) use {lock_of_values, lock_with_data, reader_writer_lock};
