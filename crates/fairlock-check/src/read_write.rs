//! Scenarios of reader-writer locks that can do everything: `RwSem` with each policy, and `RwLock`; and of those
//! that can only be acquired, tried and released.

use std::time::Duration;

use fairlock::lock_api::{
    RawRwLock, RawRwLockDowngrade, RawRwLockFair, RawRwLockTimed, RawRwLockUpgradeDowngrade,
    RawRwLockUpgradeTimed, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard as Upgradable,
    RwLockWriteGuard,
};

use crate::scenario::{Number, Subject, lists, scenarios};

/// A lock that can be acquired, tried and released.
pub trait Basic: RawRwLock + 'static {}

impl<R: RawRwLock + 'static> Basic for R {}

/// A lock that can do everything, by whatever clock.
pub trait Raw:
    RawRwLockDowngrade
    + RawRwLockFair
    + RawRwLockTimed<Duration = Duration>
    + RawRwLockUpgradeDowngrade
    + RawRwLockUpgradeTimed
    + 'static
{
}

impl<R> Raw for R where
    R: RawRwLockDowngrade
        + RawRwLockFair
        + RawRwLockTimed<Duration = Duration>
        + RawRwLockUpgradeDowngrade
        + RawRwLockUpgradeTimed
        + 'static
{
}

impl<R: Basic, N: Number> Subject for RwLock<R, N> {
    fn new() -> Self {
        RwLock::new(N::zero())
    }
    fn additions(&self) -> u32 {
        self.try_write().expect("the lock is free when everybody is done").get()
    }
}

// ---- steps ----

/// Writes.
pub fn write<R: Basic, N: Number>(lock: &RwLock<R, N>) {
    lock.write().add();
}

/// Writes, and writes again.
pub fn write_twice<R: Basic, N: Number>(lock: &RwLock<R, N>) {
    write(lock);
    write(lock);
}

/// Writes and hands the lock over.
pub fn write_fair<R: Raw, N: Number>(lock: &RwLock<R, N>) {
    let guard = lock.write();
    guard.add();
    RwLockWriteGuard::unlock_fair(guard);
}

/// Reads.
pub fn read<R: Basic, N: Number>(lock: &RwLock<R, N>) {
    lock.read().get();
}

/// Reads, and reads again.
pub fn read_twice<R: Basic, N: Number>(lock: &RwLock<R, N>) {
    read(lock);
    read(lock);
}

/// Reads and hands the lock over.
pub fn read_fair<R: Raw, N: Number>(lock: &RwLock<R, N>) {
    let guard = lock.read();
    guard.get();
    RwLockReadGuard::unlock_fair(guard);
}

/// Reads once more while it reads, without waiting.
pub fn read_within<R: Basic, N: Number>(lock: &RwLock<R, N>) {
    let outer = lock.read();
    let before = outer.get();
    if let Some(inner) = lock.try_read() {
        drop(outer);
        assert_eq!(inner.get(), before, "nobody writes in between");
    }
}

/// Reads if nobody is in the way.
pub fn try_read<R: Basic, N: Number>(lock: &RwLock<R, N>) {
    if let Some(guard) = lock.try_read() {
        guard.get();
    }
}

/// Writes if nobody is in the way.
pub fn try_write<R: Basic, N: Number>(lock: &RwLock<R, N>) {
    if let Some(guard) = lock.try_write() {
        guard.add();
    }
}

/// Tries to read and then to write.
pub fn try_both<R: Basic, N: Number>(lock: &RwLock<R, N>) {
    try_read(lock);
    try_write(lock);
}

/// Writes and reads on.
pub fn downgrade<R: Raw, N: Number>(lock: &RwLock<R, N>) {
    let guard = lock.write();
    guard.add();
    let before = guard.get();
    let guard = RwLockWriteGuard::downgrade(guard);
    assert_eq!(guard.get(), before, "nobody writes in between");
}

/// Reads and then writes what nobody else has changed meanwhile.
pub fn upgrade<R: Raw, N: Number>(lock: &RwLock<R, N>) {
    let guard = lock.upgradable_read();
    let before = guard.get();
    let guard = Upgradable::upgrade(guard);
    assert_eq!(guard.get(), before, "nobody writes in between");
    guard.add();
}

/// Reads and then writes if nobody else reads.
pub fn try_upgrade<R: Raw, N: Number>(lock: &RwLock<R, N>) {
    let guard = lock.upgradable_read();
    match Upgradable::try_upgrade(guard) {
        Ok(guard) => guard.add(),
        Err(guard) => _ = guard.get(),
    }
}

/// Reads, writes if nobody else reads, and reads on.
pub fn upgrade_and_back<R: Raw, N: Number>(lock: &RwLock<R, N>) {
    let guard = lock.upgradable_read();
    let guard = match Upgradable::try_upgrade(guard) {
        Ok(guard) => {
            guard.add();
            RwLockWriteGuard::downgrade_to_upgradable(guard)
        }
        Err(guard) => guard,
    };
    Upgradable::downgrade(guard).get();
}

const A_WHILE: Duration = Duration::from_micros(100);

/// Reads and then writes if the others that read leave in time.
pub fn upgrade_in_time<R: Raw, N: Number>(lock: &RwLock<R, N>) {
    let guard = lock.upgradable_read();
    match Upgradable::try_upgrade_for(guard, A_WHILE) {
        Ok(guard) => guard.add(),
        Err(guard) => _ = guard.get(),
    }
}

/// Reads if it gets the lock in time.
pub fn read_in_time<R: Raw, N: Number>(lock: &RwLock<R, N>) {
    if let Some(guard) = lock.try_read_for(A_WHILE) {
        guard.get();
    }
}

/// Writes if it gets the lock in time.
pub fn write_in_time<R: Raw, N: Number>(lock: &RwLock<R, N>) {
    if let Some(guard) = lock.try_write_for(A_WHILE) {
        guard.add();
    }
}

// ---- scenarios ----

scenarios! { RwLock<R, N> where R: Basic, N: Number;
    two_writers "two writers": [write, write] => 2..=2;
    a_reader_and_a_writer "a reader and a writer": [read, write] => 1..=1;
    two_reads_and_a_writer "two reads and a writer": [read_twice, write] => 1..=1;
    two_reads_and_two_writes "two reads and two writes": [read_twice, write_twice] => 2..=2;
    a_read_within_a_read_and_a_writer "a reader within a read and a writer":
        [read_within, write] => 1..=1;
    tries_and_a_writer "tries and a writer": [try_both, write] => 1..=2;
    a_try_to_read_and_a_writer "a try to read and a writer": [try_read, write] => 1..=1;
    a_try_to_write_and_a_reader "a try to write and a reader": [try_write, read] => 0..=1;
    tries_and_a_reader "tries and a reader": [try_both, read] => 0..=1;
    a_reader_and_two_writers "a reader and two writers": [read, write, write] => 2..=2;
    two_readers_and_a_writer "two readers and a writer": [read, read, write] => 1..=1;
    three_writers "three writers": [write, write, write] => 3..=3;
    tries_beside_both "tries beside both": [try_both, read, write] => 1..=2;
    two_readers_and_two_writers "two readers and two writers": [read, write, read, write] => 2..=2;
    eight_readers_and_writers "eight readers and writers":
        [read_twice, write, read, write_twice, read, write, try_both, write] => 5..=6;
}

lists! { RwLock<R, N> where R: Basic, N: Number;
    /// Two threads with a lock that can do no more.
    two_basic: [
        two_writers,
        a_reader_and_a_writer,
        two_reads_and_a_writer,
        two_reads_and_two_writes,
        a_read_within_a_read_and_a_writer,
        tries_and_a_writer,
        tries_and_a_reader,
    ];
    /// Three.
    three_basic: [
        a_reader_and_two_writers,
        two_readers_and_a_writer,
        three_writers,
        tries_beside_both,
    ];
}

scenarios! { RwLock<R, N> where R: Raw, N: Number;
    a_downgrade_and_a_writer "a downgrade and a writer": [downgrade, write] => 2..=2;
    a_downgrade_and_a_reader "a downgrade and a reader": [downgrade, read] => 1..=1;
    an_upgrade_and_a_writer "an upgrade and a writer": [upgrade, write] => 2..=2;
    an_upgrade_and_a_reader "an upgrade and a reader": [upgrade, read] => 1..=1;
    two_upgrades "two upgrades": [upgrade, upgrade] => 2..=2;
    a_try_to_upgrade_and_a_reader "a try to upgrade and a reader": [try_upgrade, read] => 0..=1;
    an_upgrade_and_back_and_a_writer "an upgrade and back, and a writer":
        [upgrade_and_back, write] => 1..=2;
    an_upgrade_and_back_and_a_reader "an upgrade and back, and a reader":
        [upgrade_and_back, read] => 0..=1;
    a_timed_upgrade_and_a_reader "a timed upgrade and a reader": [upgrade_in_time, read] => 0..=1;
    fair_unlocks_of_writers "fair unlocks of writers": [write_fair, write] => 2..=2;
    fair_unlocks_of_a_reader_and_a_writer "fair unlocks of a reader and a writer":
        [read_fair, write_fair] => 1..=1;
    a_timed_writer_and_a_writer "a timed writer and a writer": [write_in_time, write] => 1..=2;
    a_timed_writer_and_a_reader "a timed writer and a reader": [write_in_time, read] => 0..=1;
    a_timed_reader_and_a_writer "a timed reader and a writer": [read_in_time, write] => 1..=1;

    a_reader_a_writer_and_a_downgrade "a reader, a writer and a downgrade":
        [read, write, downgrade] => 2..=2;
    an_upgrade_a_reader_and_a_writer "an upgrade, a reader and a writer":
        [upgrade, read, write] => 2..=2;
    an_upgrade_and_back_beside_both "an upgrade and back beside both":
        [upgrade_and_back, read, write] => 1..=2;
    a_timed_upgrade_beside_both "a timed upgrade beside both":
        [upgrade_in_time, read, write] => 1..=2;
    fair_unlocks_among_all "fair unlocks among all": [read_fair, write_fair, write] => 2..=2;
    a_timeout_before_both "a timeout before both": [write_in_time, read, write] => 1..=2;
    a_timeout_before_an_upgrade "a timeout before an upgrade":
        [write_in_time, read, upgrade_and_back] => 0..=2;
    a_timeout_between_two_writers "a timeout between two writers":
        [write, write_in_time, write] => 2..=3;
    two_timeouts "two timeouts": [write_in_time, write_in_time, write] => 1..=3;
    a_fair_unlock_to_two_writers "a fair unlock to two writers":
        [write_fair, write, write_in_time] => 2..=3;
    a_downgrade_under_two_writers "a downgrade under two writers":
        [downgrade, write, write] => 3..=3;
    an_upgrade_beside_two_writers "an upgrade beside two writers": [upgrade, write, write] => 3..=3;

    four_kinds "four kinds": [write_in_time, read_fair, upgrade, downgrade] => 2..=3;
    upgrades_beside_both "three upgrades, a reader and a writer":
        [upgrade, upgrade_and_back, upgrade_and_back, read_twice, write] => 2..=4;
    three_readers_and_tries "three readers and one that tries":
        [read, read_within, read_in_time, try_both] => 0..=1;

    eight_kinds "eight threads": [
        read_twice, write, read_in_time, write_in_time, upgrade, write_fair, upgrade_in_time, downgrade
    ] => 4..=6;
    eight_kinds_of_which_one_reads_within "eight threads of which one reads within a read": [
        read_twice, write, read_in_time, write_in_time, upgrade, read_within, upgrade_in_time, downgrade
    ] => 3..=5;
}

lists! { RwLock<R, N> where R: Raw, N: Number;
    /// Every operation beside a writer or a reader.
    two_threads: [
        two_writers,
        a_reader_and_a_writer,
        tries_and_a_writer,
        a_downgrade_and_a_writer,
        a_downgrade_and_a_reader,
        an_upgrade_and_a_writer,
        an_upgrade_and_a_reader,
        two_upgrades,
        an_upgrade_and_back_and_a_writer,
        a_timed_upgrade_and_a_reader,
        fair_unlocks_of_writers,
        a_timed_writer_and_a_writer,
        a_timed_reader_and_a_writer,
    ];
    /// Two threads of which one does not write, or need not.
    a_reader_and_another: [
        a_reader_and_a_writer,
        two_reads_and_a_writer,
        a_read_within_a_read_and_a_writer,
        tries_and_a_reader,
        a_downgrade_and_a_reader,
        an_upgrade_and_a_reader,
        an_upgrade_and_back_and_a_reader,
        a_timed_upgrade_and_a_reader,
        a_timed_writer_and_a_reader,
        a_timed_reader_and_a_writer,
        fair_unlocks_of_a_reader_and_a_writer,
    ];
    /// Two threads that write, or may.
    two_who_write: [
        two_writers,
        tries_and_a_writer,
        a_downgrade_and_a_writer,
        an_upgrade_and_a_writer,
        two_upgrades,
        an_upgrade_and_back_and_a_writer,
        fair_unlocks_of_writers,
        a_timed_writer_and_a_writer,
    ];
    /// Somebody between a reader and a writer.
    three_threads: [
        a_reader_and_two_writers,
        two_readers_and_a_writer,
        a_reader_a_writer_and_a_downgrade,
        an_upgrade_a_reader_and_a_writer,
        an_upgrade_and_back_beside_both,
        a_timed_upgrade_beside_both,
        fair_unlocks_among_all,
        a_timeout_before_both,
        a_timeout_before_an_upgrade,
    ];
    /// The same, with tries for the last one.
    three_threads_and_tries: [
        a_reader_and_two_writers,
        two_readers_and_a_writer,
        a_reader_a_writer_and_a_downgrade,
        an_upgrade_a_reader_and_a_writer,
        an_upgrade_and_back_beside_both,
        a_timed_upgrade_beside_both,
        fair_unlocks_among_all,
        a_timeout_before_both,
        tries_beside_both,
    ];
    /// A writer that waits behind another one: the lock may be released to it, stolen by it, handed
    /// over or given up, and be the readers' meanwhile.
    several_writers: [
        three_writers,
        a_timeout_between_two_writers,
        two_timeouts,
        a_fair_unlock_to_two_writers,
        a_downgrade_under_two_writers,
        an_upgrade_beside_two_writers,
    ];
    /// All sorts.
    four_threads: [two_readers_and_two_writers, four_kinds];
    /// The same, and one that reads within a read.
    four_threads_and_tries: [two_readers_and_two_writers, four_kinds, three_readers_and_tries];
}
