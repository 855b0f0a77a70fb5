//! Scenarios of `RangeLock` over a few positions.

use std::sync::Arc;
use std::time::Duration;

use fairlock::range::{Extent, RangeLock, RangeReadGuard, RangeWriteGuard, RawRangeLock};

use crate::scenario::{Number, Subject, lists, scenarios};

/// Positions that the threads fight over. In the locks that these scenarios are for each is a block;
/// with two stripes 0 and 1 lie in different ones; ranges of more than four are of coarse blocks, and
/// those of more than 64 are wide.
const POSITIONS: usize = 6;

/// A lock, and a number at each position. Both are in boxes, so that guards can go elsewhere.
pub struct Positions<R: RawRangeLock, N> {
    /// What keeps threads apart.
    pub lock: Arc<RangeLock<R>>,
    /// What they get at.
    pub data: Arc<[N; POSITIONS]>,
}

/// A lock that lives for as long as it has to.
pub trait Raw: RawRangeLock + 'static {}

impl<R: RawRangeLock + 'static> Raw for R {}

/// The positions of a range that is not empty.
pub fn extent(from: u64, to: u64) -> Extent {
    Extent::of(from..to).expect("not empty")
}

impl<R: Raw, N: Number> Positions<R, N> {
    /// Reads what is there.
    pub fn read(&self, from: u64, to: u64) {
        self.look(&self.lock.read(extent(from, to)));
    }

    /// Adds one at each.
    pub fn write(&self, from: u64, to: u64) {
        self.add(&self.lock.write(extent(from, to)));
    }

    /// Reads what the guard is for.
    pub fn look(&self, guard: &RangeReadGuard<'_, R>) {
        self.of(RangeReadGuard::extent(guard)).for_each(|number| _ = number.get());
    }

    /// Adds one to all that the guard is for.
    pub fn add(&self, guard: &RangeWriteGuard<'_, R>) {
        self.of(RangeWriteGuard::extent(guard)).for_each(Number::add);
    }

    fn of(&self, extent: Extent) -> impl Iterator<Item = &N> {
        let last = extent.last().min(POSITIONS as u64 - 1);
        self.data[extent.first() as usize..=last as usize].iter()
    }
}

/// Additions are those to the first position.
impl<R: Raw, N: Number> Subject for Positions<R, N> {
    fn new() -> Self {
        let data = Arc::new([(); POSITIONS].map(|()| N::zero()));
        Positions { lock: Arc::new(RangeLock::new_in()), data }
    }
    fn additions(&self) -> u32 {
        let _all = self.lock.try_write(Extent::ALL).expect("free when everybody is done");
        self.data[0].get()
    }
}

// ---- steps ----

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident |$it:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub fn $name<R: Raw, N: Number>($it: &Positions<R, N>) {
            $body
        }
    )*};
}

steps! {
    /// Reads one position.
    read_0 |it| it.read(0, 1);
    /// Reads the next one.
    read_1 |it| it.read(1, 2);
    /// Reads two.
    read_01 |it| it.read(0, 2);
    /// Reads all but the first.
    read_1_to_5 |it| it.read(1, 6);
    /// Reads all.
    read_wide |it| it.read(0, 100);
    /// Reads one, and again.
    read_0_twice |it| { it.read(0, 1); it.read(0, 1) };
    /// Reads one and then another.
    read_0_then_1 |it| { it.read(0, 1); it.read(1, 2) };
    /// Writes one position.
    write_0 |it| it.write(0, 1);
    /// Writes the next one.
    write_1 |it| it.write(1, 2);
    /// Writes two.
    write_01 |it| it.write(0, 2);
    /// Writes the second and the third.
    write_12 |it| it.write(1, 3);
    /// Writes all but the last.
    write_0_to_4 |it| it.write(0, 5);
    /// Writes all but the first.
    write_1_to_5 |it| it.write(1, 6);
    /// Writes all but the first, and more.
    write_from_1 |it| it.write(1, 100);
    /// Writes whatever there is.
    write_all |it| it.add(&it.lock.write(Extent::ALL));
    /// Writes one and then another.
    write_0_then_1 |it| { it.write(0, 1); it.write(1, 2) };
    /// Writes one three times.
    write_0_thrice |it| { it.write(0, 1); it.write(0, 1); it.write(0, 1) };
    /// The other way round.
    write_1_then_0 |it| { it.write(1, 2); it.write(0, 1) };
    /// Reads the second position if it is free.
    try_read_1 |it| if let Some(guard) = it.lock.try_read(extent(1, 2)) { it.look(&guard) };
    /// Writes the first one if it is free.
    try_write_0 |it| if let Some(guard) = it.lock.try_write(extent(0, 1)) { it.add(&guard) };
    /// Reads one if nobody is in the way.
    try_read_0 |it| if let Some(guard) = it.lock.try_read(extent(0, 1)) {
        it.look(&guard);
    };
    /// Writes two if nobody is in the way.
    try_write_01 |it| if let Some(guard) = it.lock.try_write(extent(0, 2)) {
        it.add(&guard);
    };
    /// Tries to read and then to write.
    try_both |it| { try_read_0(it); try_write_01(it) };
    /// Reads two if it gets them in time.
    read_in_time |it| {
        if let Some(guard) = it.lock.try_read_for(extent(0, 2), Duration::from_micros(100)) {
            it.look(&guard);
        }
    };
    /// Writes two if it gets them in time.
    write_in_time |it| {
        if let Some(guard) = it.lock.try_write_for(extent(0, 2), Duration::from_micros(100)) {
            it.add(&guard);
        }
    };
    /// Writes two and reads on.
    downgrade |it| {
        let guard = it.lock.write(extent(0, 2));
        it.add(&guard);
        let before = it.data[0].get();
        let guard = RangeWriteGuard::downgrade(guard);
        it.look(&guard);
        assert_eq!(it.data[0].get(), before, "nobody writes in between");
    };
    /// Holds so many disjoint ranges that the last are in no slot.
    hold_five |it| {
        let [_a, _b] = [it.lock.read(extent(2, 3)), it.lock.read(extent(3, 4))];
        let [_c, _d] = [it.lock.read(extent(4, 5)), it.lock.read(extent(5, 6))];
        it.add(&it.lock.write(extent(0, 1)));
    };
}

// ---- scenarios ----

scenarios! { Positions<R, N> where R: Raw, N: Number;
    a_reader_and_a_writer "a reader and a writer": [read_0, write_0] => 1..=1;
    two_reads_and_a_writer "two reads and a writer": [read_0_twice, write_01] => 1..=1;
    a_slot_of_one_range_and_then_another "a slot of one range and then another":
        [read_0_then_1, write_0] => 1..=1;
    two_writers "two writers": [write_0, write_0] => 2..=2;
    a_writer_and_one_of_more "a writer and one of more": [write_0, write_01] => 2..=2;
    writers_of_one_range_and_then_another "writers of one range and then another":
        [write_0_then_1, write_1_then_0] => 2..=2;
    writers_apart "writers apart": [write_0, write_1] => 1..=1;
    readers "readers": [read_0, read_01] => 0..=0;
    a_writer_and_a_wide_one_apart "apart, one wide": [write_0, write_from_1] => 1..=1;
    a_writer_and_a_coarse_one_apart "apart, one coarse": [write_0, write_1_to_5] => 1..=1;
    a_writer_and_a_coarse_reader_apart "apart, one coarse and shared": [write_0, read_1_to_5] => 1..=1;
    writers_that_overlap "writers that overlap": [write_01, write_12] => 1..=1;
    a_reader_of_two_stripes_and_a_writer "a reader of two stripes and a writer":
        [read_01, write_1] => 0..=0;
    a_reader_of_two_stripes_and_a_writer_of_one "a reader of two stripes and a writer of the first":
        [read_01, write_0] => 1..=1;
    a_wide_reader_and_a_writer "a wide reader and a writer": [read_wide, write_1] => 0..=0;
    a_coarse_reader_and_a_writer "a coarse reader and a writer": [read_1_to_5, write_1] => 0..=0;
    a_coarse_writer_and_a_reader "a coarse writer and a reader": [write_0_to_4, read_1] => 1..=1;
    a_coarse_writer_and_two_reads "a coarse writer and two reads":
        [write_0_to_4, read_0_then_1] => 1..=1;
    coarse_writers "coarse writers": [write_0_to_4, write_1_to_5] => 1..=1;
    a_coarse_writer_and_a_fine_one "a coarse writer and a fine one": [write_0_to_4, write_01] => 2..=2;
    a_wide_writer_and_a_reader "a wide writer and a reader": [write_from_1, read_1] => 0..=0;
    a_wide_writer_and_a_coarse_one "a wide writer and a coarse one": [write_all, write_0_to_4] => 2..=2;
    wide_writers_apart_at_0 "wide writers, one of them not at the first position":
        [write_all, write_from_1] => 1..=1;
    a_try_to_read_and_a_writer "a try to read and a writer": [try_read_0, write_0] => 1..=1;
    a_try_to_read_and_writes "a try to read and writes": [try_read_0, write_0_thrice] => 3..=3;
    a_try_to_write_and_a_reader "a try to write and a reader": [try_write_01, read_0] => 0..=1;
    tries_of_writers "tries of writers": [try_write_01, try_write_01] => 1..=2;
    tries_and_a_writer "tries and a writer": [try_both, write_0] => 1..=2;
    tries_and_tries "tries and tries": [try_both, try_both] => 0..=2;
    a_reader_in_time_and_a_writer "a reader in time and a writer": [read_in_time, write_0] => 1..=1;
    a_writer_in_time_and_a_reader "a writer in time and a reader": [write_in_time, read_0] => 0..=1;
    a_downgrade_and_a_reader "a downgrade and a reader": [downgrade, read_0] => 1..=1;
    a_downgrade_and_a_writer "a downgrade and a writer": [downgrade, write_0] => 2..=2;
    a_holder_without_a_slot_and_a_writer "a holder without a slot and a writer":
        [hold_five, write_01] => 2..=2;
    a_holder_without_a_slot_and_a_reader "a holder without a slot and a reader":
        [hold_five, read_01] => 1..=1;

    tries_of_which_one_begins_to_share "tries to read, apart, and to write":
        [try_read_1, try_read_0, try_write_0] => 0..=1;
    two_readers_and_a_writer "two readers and a writer": [read_0, read_01, write_0] => 1..=1;
    two_readers_and_a_writer_of_both "two readers and a writer of both":
        [read_0, read_01, write_01] => 1..=1;
    a_reader_and_two_writers "a reader and two writers": [read_0, write_0, write_01] => 2..=2;
    a_writer_in_time_between_others "a writer in time between others":
        [write_0, write_in_time, read_0] => 1..=2;
    a_writer_in_time_between_two_apart "a writer in time between two that are apart":
        [write_0, write_in_time, read_1] => 1..=2;
    a_writer_of_both_and_one_of_each "a writer of both and one of each":
        [write_0, write_1, write_01] => 2..=2;
    a_wide_reader_and_writers "a wide reader and writers": [read_wide, write_0, write_1] => 1..=1;
    a_wide_writer_and_readers "a wide writer and readers": [write_all, read_0, read_0] => 1..=1;
    a_wide_writer_above_a_narrow_one "a wide writer above a narrow one":
        [write_from_1, write_0, write_01] => 2..=2;
    a_downgrade_a_reader_and_a_writer "a downgrade, a reader and a writer":
        [downgrade, read_0, write_0] => 2..=2;
    three_writers "three writers": [write_0, write_01, write_0] => 3..=3;
}

lists! { Positions<R, N> where R: Raw, N: Number;
    /// Every one of these.
    all: [
        a_reader_and_a_writer,
        two_reads_and_a_writer,
        a_slot_of_one_range_and_then_another,
        two_writers,
        a_writer_and_one_of_more,
        writers_of_one_range_and_then_another,
        writers_apart,
        readers,
        a_writer_and_a_wide_one_apart,
        a_writer_and_a_coarse_one_apart,
        a_writer_and_a_coarse_reader_apart,
        writers_that_overlap,
        a_reader_of_two_stripes_and_a_writer,
        a_reader_of_two_stripes_and_a_writer_of_one,
        a_wide_reader_and_a_writer,
        a_coarse_reader_and_a_writer,
        a_coarse_writer_and_a_reader,
        a_coarse_writer_and_two_reads,
        coarse_writers,
        a_coarse_writer_and_a_fine_one,
        a_wide_writer_and_a_reader,
        a_wide_writer_and_a_coarse_one,
        wide_writers_apart_at_0,
        a_try_to_read_and_a_writer,
        a_try_to_read_and_writes,
        a_try_to_write_and_a_reader,
        tries_of_writers,
        tries_and_a_writer,
        tries_and_tries,
        a_reader_in_time_and_a_writer,
        a_writer_in_time_and_a_reader,
        a_downgrade_and_a_reader,
        a_downgrade_and_a_writer,
        a_holder_without_a_slot_and_a_writer,
        a_holder_without_a_slot_and_a_reader,
        tries_of_which_one_begins_to_share,
        two_readers_and_a_writer,
        two_readers_and_a_writer_of_both,
        a_reader_and_two_writers,
        a_writer_in_time_between_others,
        a_writer_in_time_between_two_apart,
        a_writer_of_both_and_one_of_each,
        a_wide_reader_and_writers,
        a_wide_writer_and_readers,
        a_wide_writer_above_a_narrow_one,
        a_downgrade_a_reader_and_a_writer,
        three_writers,
    ];
}
