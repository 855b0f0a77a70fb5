//! All ways to lock a range of elements: one text for slices and vectors, with an example for each.

pub(super) const WITHOUT_DEADLINE: &str = "without a deadline an acquisition succeeds";

/// All ways to lock a range. `$setup` makes `numbers`, ten zeros, for the examples.
macro_rules! locked_ranges {
    ($setup:literal) => {
        /// Waits for shared access to these elements.
        ///
        /// # Errors
        /// [`InvalidRange`] if the range begins after it ends, or goes beyond the last element.
        ///
        /// # Example
        /// ```
        #[doc = $setup]
        /// assert_eq!(numbers.read(3..5)?[..], [0, 0]);
        /// assert!(numbers.read(8..11).is_err());
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn read(
            &self,
            range: impl RangeBounds<usize>,
        ) -> Result<SliceReadGuard<'_, T, R>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| Some(lock.read(extent)))?;
            Ok(SliceReadGuard::new(part.expect(WITHOUT_DEADLINE)))
        }

        /// Waits for exclusive access to these elements.
        ///
        /// # Errors
        /// [`InvalidRange`] if the range begins after it ends, or goes beyond the last element.
        ///
        /// # Example
        /// ```
        #[doc = $setup]
        /// let mut low = numbers.write(..5)?;
        /// let mut high = numbers.write(5..)?; // disjoint: does not wait
        /// low[0] = 1;
        /// high[0] = 2;
        /// drop((low, high));
        /// assert_eq!(numbers.read(..=5)?[..], [1, 0, 0, 0, 0, 2]);
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn write(
            &self,
            range: impl RangeBounds<usize>,
        ) -> Result<SliceWriteGuard<'_, T, R>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| Some(lock.write(extent)))?;
            Ok(SliceWriteGuard::new(part.expect(WITHOUT_DEADLINE)))
        }

        /// Shared access to these elements, if no conflicting range is held or waited for.
        ///
        /// # Errors
        /// [`InvalidRange`] if the range begins after it ends, or goes beyond the last element.
        ///
        /// # Example
        /// ```
        #[doc = $setup]
        /// let writing = numbers.write(3..5)?;
        /// assert!(numbers.try_read(4..6)?.is_none());
        /// assert!(numbers.try_read(5..6)?.is_some());
        /// # drop(writing);
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn try_read(
            &self,
            range: impl RangeBounds<usize>,
        ) -> Result<Option<SliceReadGuard<'_, T, R>>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| lock.try_read(extent))?;
            Ok(part.map(SliceReadGuard::new))
        }

        /// Exclusive access to these elements, if no conflicting range is held or waited for.
        ///
        /// # Errors
        /// [`InvalidRange`] if the range begins after it ends, or goes beyond the last element.
        ///
        /// # Example
        /// ```
        #[doc = $setup]
        /// let reading = numbers.read(3..5)?;
        /// assert!(numbers.try_write(4..6)?.is_none());
        /// assert!(numbers.try_write(5..6)?.is_some());
        /// # drop(reading);
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn try_write(
            &self,
            range: impl RangeBounds<usize>,
        ) -> Result<Option<SliceWriteGuard<'_, T, R>>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| lock.try_write(extent))?;
            Ok(part.map(SliceWriteGuard::new))
        }

        /// Shared access to these elements, waiting at most for `timeout`.
        ///
        /// # Errors
        /// [`InvalidRange`] if the range begins after it ends, or goes beyond the last element.
        ///
        /// # Example
        /// ```
        /// use std::time::Duration;
        ///
        #[doc = $setup]
        /// let writing = numbers.write(3..5)?;
        /// assert!(numbers.try_read_for(4..6, Duration::from_millis(1))?.is_none());
        /// # drop(writing);
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn try_read_for(
            &self,
            range: impl RangeBounds<usize>,
            timeout: Duration,
        ) -> Result<Option<SliceReadGuard<'_, T, R>>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| lock.try_read_for(extent, timeout))?;
            Ok(part.map(SliceReadGuard::new))
        }

        /// Exclusive access to these elements, waiting at most for `timeout`.
        ///
        /// # Errors
        /// [`InvalidRange`] if the range begins after it ends, or goes beyond the last element.
        ///
        /// # Example
        /// ```
        /// use std::time::Duration;
        ///
        #[doc = $setup]
        /// let reading = numbers.read(3..5)?;
        /// assert!(numbers.try_write_for(4..6, Duration::from_millis(1))?.is_none());
        /// # drop(reading);
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn try_write_for(
            &self,
            range: impl RangeBounds<usize>,
            timeout: Duration,
        ) -> Result<Option<SliceWriteGuard<'_, T, R>>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| lock.try_write_for(extent, timeout))?;
            Ok(part.map(SliceWriteGuard::new))
        }

        /// Shared access to these elements, waiting until `deadline` at most.
        ///
        /// # Errors
        /// [`InvalidRange`] if the range begins after it ends, or goes beyond the last element.
        ///
        /// # Example
        /// ```
        /// use std::time::{Duration, Instant};
        ///
        #[doc = $setup]
        /// let soon = Instant::now() + Duration::from_millis(1);
        /// assert!(numbers.try_read_until(4..6, soon)?.is_some());
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn try_read_until(
            &self,
            range: impl RangeBounds<usize>,
            deadline: Instant,
        ) -> Result<Option<SliceReadGuard<'_, T, R>>, InvalidRange> {
            let part = self.acquire(range, |lock, extent| lock.try_read_until(extent, deadline))?;
            Ok(part.map(SliceReadGuard::new))
        }

        /// Exclusive access to these elements, waiting until `deadline` at most.
        ///
        /// # Errors
        /// [`InvalidRange`] if the range begins after it ends, or goes beyond the last element.
        ///
        /// # Example
        /// ```
        /// use std::time::{Duration, Instant};
        ///
        #[doc = $setup]
        /// let soon = Instant::now() + Duration::from_millis(1);
        /// assert!(numbers.try_write_until(4..6, soon)?.is_some());
        /// # Ok::<(), fairlock::range::InvalidRange>(())
        /// ```
        pub fn try_write_until(
            &self,
            range: impl RangeBounds<usize>,
            deadline: Instant,
        ) -> Result<Option<SliceWriteGuard<'_, T, R>>, InvalidRange> {
            let part =
                self.acquire(range, |lock, extent| lock.try_write_until(extent, deadline))?;
            Ok(part.map(SliceWriteGuard::new))
        }
    };
}

pub(super) use locked_ranges;
