//! Locks whose waiters stand in a pooled queue: such a lock may go as soon as its last user knows
//! that it is the last, though others may still be on their way out of an unlock; and pooled queues
//! move from lock to lock.

use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::time::Duration;

use fairlock::lock_api::{RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
use fairlock::policy::{PhaseFair, Policy, Shares};
use fairlock::rwsem::RawRwSem;
use fairlock_check::long;
use fairlock_sim::Explored;
use fairlock_sim::explore::{Guarded, Program, Search};

type Lock<Pol> = RwLock<RawRwSem<Pol, Explored>, Guarded>;

/// [`TimeFair`] without its spins, each of which multiplies the executions.
struct TimeFairAsleep;

impl Policy for TimeFairAsleep {
    const NAME: &'static str = "timefair-asleep";
    const SHARES: Shares = Shares { spin: 0, ..Shares::TIME_FAIR };
}

// ---- the last user frees the lock ----

/// A lock and its users, who count themselves out while they hold it. Users exclude each other, so
/// the last one knows that all others have released the lock.
struct Object<Pol: Policy> {
    lock: UnsafeCell<ManuallyDrop<Lock<Pol>>>,
    users: Users,
}

struct Users(Cell<u32>);

impl Users {
    /// True for the last.
    fn leave(&self) -> bool {
        self.0.set(self.0.get() - 1);
        self.0.get() == 0
    }
}

/// Takes the lock, leaves, and releases the lock: true for the last user.
type Use<Pol> = fn(&Lock<Pol>, &Users) -> bool;

fn write<Pol: Policy>(lock: &Lock<Pol>, users: &Users) -> bool {
    let guard = lock.write();
    guard.add();
    users.leave()
}

fn write_in_time<Pol: Policy>(lock: &Lock<Pol>, users: &Users) -> bool {
    let guard = lock.try_write_for(Duration::from_micros(100));
    let guard = guard.unwrap_or_else(|| lock.write());
    guard.add();
    users.leave()
}

fn write_fair<Pol: Policy>(lock: &Lock<Pol>, users: &Users) -> bool {
    let guard = lock.write();
    let last = users.leave();
    RwLockWriteGuard::unlock_fair(guard);
    last
}

fn read<Pol: Policy>(lock: &Lock<Pol>, users: &Users) -> bool {
    let guard = lock.read();
    guard.get();
    users.leave()
}

fn read_fair<Pol: Policy>(lock: &Lock<Pol>, users: &Users) -> bool {
    let guard = lock.read();
    let last = users.leave();
    RwLockReadGuard::unlock_fair(guard);
    last
}

fn downgrade<Pol: Policy>(lock: &Lock<Pol>, users: &Users) -> bool {
    let guard = RwLockWriteGuard::downgrade(lock.write());
    guard.get();
    users.leave()
}

fn upgradable<Pol: Policy>(lock: &Lock<Pol>, users: &Users) -> bool {
    let guard = lock.upgradable_read();
    guard.get();
    users.leave()
}

fn upgrade<Pol: Policy>(lock: &Lock<Pol>, users: &Users) -> bool {
    let guard = RwLockUpgradableReadGuard::upgrade(lock.upgradable_read());
    guard.add();
    users.leave()
}

fn upgrade_and_back<Pol: Policy>(lock: &Lock<Pol>, users: &Users) -> bool {
    let guard = RwLockUpgradableReadGuard::upgrade(lock.upgradable_read());
    let guard = RwLockWriteGuard::downgrade_to_upgradable(guard);
    let guard = RwLockUpgradableReadGuard::downgrade(guard);
    guard.get();
    users.leave()
}

/// Beside other readers: they do not exclude each other, so it leaves the freeing to others.
fn read_along<Pol: Policy>(lock: &Lock<Pol>, users: &Users) -> bool {
    let _guard = lock.read();
    users.leave();
    false
}

fn freed_by_the_last<Pol: Policy>(name: &str, uses: &[Use<Pol>]) -> Program<Object<Pol>> {
    let count = uses.len() as u32;
    let program = Program::new(format!("{}: {name}", Pol::NAME), move || Object {
        lock: UnsafeCell::new(ManuallyDrop::new(Lock::<Pol>::new(Guarded::new()))),
        users: Users(Cell::new(count)),
    });
    let threads = uses.iter().fold(program, |program, &step| {
        program.thread(move |object: &Object<Pol>| {
            // SAFETY: alive until the last user has released it.
            let last = step(unsafe { &*object.lock.get() }, &object.users);
            if last {
                // SAFETY: nobody uses it any more, and nobody drops it twice. The memory stays, and
                // the explorer reports whoever touches it.
                unsafe { ManuallyDrop::drop(&mut *object.lock.get()) };
            }
        })
    });
    threads.clock_jumps(1)
}

/// Of two threads: with two the explorer notices an unlock that touches what has gone (`linux.rs`).
fn preemptions_of_two() -> u32 {
    long::depth(2, 3)
}

type Job<Pol> = (&'static str, Vec<Use<Pol>>);

/// In each of them somebody is still in an unlock when the lock goes.
fn jobs<Pol: Policy>() -> Vec<Job<Pol>> {
    vec![
        ("two writers free it", vec![write, write]),
        ("a reader and a writer free it", vec![read, write]),
        ("a downgraded writer and a writer free it", vec![downgrade, write]),
        ("an upgradable reader and a writer free it", vec![upgradable, write]),
        ("two upgradable readers free it", vec![upgradable, upgradable]),
        ("an upgrade and a writer free it", vec![upgrade, write]),
        ("an upgrade and back, and a writer free it", vec![upgrade_and_back, write]),
        ("two timed writers free it", vec![write_in_time, write_in_time]),
    ]
}

/// Fair unlocks hand over with the queue locked, which needs the lock until then.
fn other_jobs<Pol: Policy>() -> Vec<Job<Pol>> {
    vec![
        ("fair unlocks free it", vec![write_fair, write]),
        ("fair unlocks of both kinds free it", vec![read_fair, write_fair]),
        ("three writers free it", vec![write, write, write_in_time]),
        ("readers and a writer free it", vec![read_along, read_along, write]),
        ("an upgrade beside both frees it", vec![read_along, upgrade, write]),
    ]
}

fn a_pooled_queue_lets_the_lock_go<Pol: Policy>() {
    for (name, uses) in jobs::<Pol>() {
        let program = freed_by_the_last(name, &uses);
        let search = Search::exhaustive().preemptions(preemptions_of_two());
        assert!(program.assert(&search).complete);
        let program = program.store_buffers();
        program.assert(&Search::exhaustive().at_most(2_000));
        program.assert(&Search::random(1, 1_000));
    }
}

fn a_pooled_queue_lets_a_lock_with_other_users_go<Pol: Policy>() {
    for (name, uses) in other_jobs::<Pol>() {
        let program = freed_by_the_last(name, &uses);
        let preemptions = if uses.len() == 2 { preemptions_of_two() } else { 1 };
        assert!(program.assert(&Search::exhaustive().preemptions(preemptions)).complete);
        program.assert(&Search::pct(1, 3, 1_000));
    }
}

#[test]
fn under_time_fair_a_lock_with_a_pooled_queue_can_go_once_its_last_user_has_released_it() {
    a_pooled_queue_lets_the_lock_go::<TimeFairAsleep>();
}

#[test]
fn under_time_fair_it_can_go_after_fair_unlocks_and_more_users() {
    a_pooled_queue_lets_a_lock_with_other_users_go::<TimeFairAsleep>();
}

#[test]
fn under_phase_fair_a_lock_with_a_pooled_queue_can_go_once_its_last_user_has_released_it() {
    a_pooled_queue_lets_the_lock_go::<PhaseFair>();
}

#[test]
fn under_phase_fair_it_can_go_after_fair_unlocks_and_more_users() {
    a_pooled_queue_lets_a_lock_with_other_users_go::<PhaseFair>();
}

// ---- pooled queues move ----

type Locks<Pol> = [Lock<Pol>; 2];

fn write_both<Pol: Policy>(locks: &Locks<Pol>) {
    locks.iter().for_each(|lock| lock.write().add());
}

fn write_both_in_time<Pol: Policy>(locks: &Locks<Pol>) {
    for lock in locks.iter().rev() {
        let guard = lock.try_write_for(Duration::from_micros(100));
        guard.unwrap_or_else(|| lock.write()).add();
    }
}

fn read_and_upgrade<Pol: Policy>(locks: &Locks<Pol>) {
    locks[1].read().get();
    RwLockUpgradableReadGuard::upgrade(locks[0].upgradable_read()).add();
    locks[1].write().add();
}

fn two_locks<Pol: Policy>(name: &str, steps: &[fn(&Locks<Pol>)]) -> Program<Locks<Pol>> {
    let program = Program::new(format!("{}: {name}", Pol::NAME), || {
        [Lock::new(Guarded::new()), Lock::new(Guarded::new())]
    });
    let additions = steps.len() as u32;
    let program = steps.iter().fold(program, |program, &step| program.thread(step));
    program.finally(move |locks| {
        for lock in locks {
            let value = lock.try_write().expect("free when everybody is done").get();
            assert_eq!(value, additions);
        }
    })
}

fn queues_move<Pol: Policy>() {
    let program = two_locks::<Pol>("two threads and two locks", &[write_both, write_both_in_time]);
    assert!(program.assert(&Search::exhaustive().preemptions(2)).complete);
    let steps: [fn(&Locks<Pol>); 3] = [write_both, write_both_in_time, read_and_upgrade];
    let program = two_locks::<Pol>("three threads and two locks", &steps);
    assert!(program.assert(&Search::exhaustive().preemptions(1)).complete);
    program.assert(&Search::pct(1, 3, 2_000));
    program.clock_jumps(1).store_buffers().assert(&Search::random(2, 2_000));
}

#[test]
fn queues_move_between_locks_and_threads() {
    queues_move::<TimeFairAsleep>();
    queues_move::<PhaseFair>();
}
