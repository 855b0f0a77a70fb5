//! The locks, and how each of them does an operation.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use fairlock::Condvar;
use fairlock::lock_api::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
};
use fairlock::mutex::RawMutex;
use fairlock::platform::Os;
use fairlock::policy::{self, Bias, BiasPolicy, ReadMostly};
use fairlock::process_shared::ProcessSharedRwLock;
use fairlock::range::{Extent, RangeLock, RangeWriteGuard, RawRangeLock, Slotted};
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::RawRwSem;
use fairlock::unguarded::UnguardedRwLock;

use crate::stress::Versatile;
use crate::stress::platforms::Symmetric;

use super::bounds::Promise;
use super::children::{self, Ending};
use super::clock::now;
use super::plan::Op;
use super::protected::{CELLS, Cells, Protected};
use super::seats::{Side, What};
use super::visitor::{Patience, Visitor};

/// A lock and what it protects.
pub trait Subject: Send + Sync {
    fn operate(&self, op: Op, visitor: &mut Visitor);

    /// Shared access that lasts until the box is dropped, by a thread that has asked for it.
    fn keep(&self) -> Option<Box<dyn Any>> {
        None
    }

    /// A guard that is never dropped. Nobody uses the lock afterwards.
    fn forget(&self) {}

    /// A fork by a thread that holds a lock of this kind, which nobody else uses, or nothing.
    fn fork(&self, visitor: &mut Visitor);

    /// Nobody uses the lock: it is free and nothing was lost.
    fn check(&self);

    /// For when it hangs: its state, and the bytes it consists of.
    fn describe(&self) -> String;
}

/// A kind of lock.
pub struct Kind {
    pub name: &'static str,
    pub promise: Promise,
    pub new: fn() -> Arc<dyn Subject>,
}

/// Readers use slots from the first read on, and the ways in change as often as they can.
pub struct Restless;

impl BiasPolicy for Restless {
    const BIAS: Bias = Bias { reads: 0, writes: 2, reads_per_look: 1, patience: 0 };
}

/// Slots from the first read on, fences for a while.
pub struct AtOnce;

impl BiasPolicy for AtOnce {
    const BIAS: Bias = Bias { reads: 0, writes: 3, reads_per_look: 2, patience: 1 };
}

type Sem<Policy> = RawRwSem<Policy, Os>;

const fn kind(name: &'static str, promise: Promise, new: fn() -> Arc<dyn Subject>) -> Kind {
    Kind { name, promise, new }
}

pub static ALL: [Kind; 14] = [
    kind("rwlock", Promise::TimeFair, guarded::<RawRwLock<Os, ReadMostly>>),
    kind("rwlock-at-once", Promise::TimeFair, guarded::<RawRwLock<Os, AtOnce>>),
    kind("rwlock-restless", Promise::TimeFair, guarded::<RawRwLock<Os, Restless>>),
    kind("rwlock-symmetric", Promise::TimeFair, guarded::<RawRwLock<Symmetric, Restless>>),
    kind("rwsem", Promise::TimeFair, guarded::<Sem<policy::TimeFair>>),
    kind("phase-fair", Promise::PhaseFair, guarded::<Sem<policy::PhaseFair>>),
    kind("mutex", Promise::Handoff, || Arc::new(Exclusive(Mutex::new(Protected::default())))),
    kind("condvar", Promise::Nothing, || Arc::new(Monitor::default())),
    kind("range", Promise::Handoff, ranges::<Slotted>),
    kind("range-crowded", Promise::Handoff, ranges::<Slotted<Symmetric, 2, 0>>),
    kind("process-shared", Promise::Turns, SharedPages::subject),
    kind("unguarded-rwlock", Promise::TimeFair, unguarded::<RawRwLock>),
    kind("unguarded-rwsem", Promise::TimeFair, unguarded::<Sem<policy::TimeFair>>),
    kind("unguarded-phase-fair", Promise::PhaseFair, unguarded::<Sem<policy::PhaseFair>>),
];

fn not_free(state: &str) -> ! {
    super::fail(&format!("lost: nobody holds the lock, and it is not free: {state}"))
}

/// The bytes of a lock. It may change meanwhile.
fn bytes<T>(lock: &T) -> String {
    let words = ptr_words(lock);
    let show = |at: usize| {
        // SAFETY: within the value; read as a whole word, as it may be written at the same time.
        let word = unsafe { words.add(at).read_volatile() };
        format!("{word:08x}")
    };
    (0..size_of::<T>() / 4).map(show).collect::<Vec<_>>().join(" ")
}

fn ptr_words<T>(lock: &T) -> *const u32 {
    assert!(align_of::<T>() >= 4);
    std::ptr::from_ref(lock).cast()
}

// ---- through lock_api ----

/// A reader-writer lock with guards.
struct Guarded<R>(Arc<RwLock<R, Protected>>);

/// One with guards.
pub fn guarded<R: Versatile + 'static>() -> Arc<dyn Subject> {
    Arc::new(Guarded(Arc::new(RwLock::<R, _>::new(Protected::default()))))
}

impl<R: Versatile + 'static> Subject for Guarded<R> {
    fn operate(&self, op: Op, v: &mut Visitor) {
        const SHARED: What = What::all(Side::Shared);
        const EXCLUSIVE: What = What::all(Side::Exclusive);
        const UPGRADABLE: What = What::all(Side::Upgradable);
        type Upgradable<'a, R> = RwLockUpgradableReadGuard<'a, R, Protected>;
        let lock = &*self.0;
        match op {
            Op::Read => {
                v.ask(SHARED, Patience::Endless);
                let guard = lock.read();
                read(guard, v, drop);
            }
            Op::TryRead => {
                v.ask(SHARED, Patience::Try);
                match lock.try_read() {
                    Some(guard) => read(guard, v, drop),
                    None => v.give_up(),
                }
            }
            Op::ReadFor => {
                let time = v.timeout();
                v.ask(SHARED, Patience::For(time));
                match lock.try_read_for(time) {
                    Some(guard) => read(guard, v, drop),
                    None => v.give_up(),
                }
            }
            Op::ReadFair => {
                v.ask(SHARED, Patience::Endless);
                let guard = lock.read();
                read(guard, v, RwLockReadGuard::unlock_fair);
            }
            Op::ReadWithin => {
                v.ask(SHARED, Patience::Endless);
                let guard = lock.read();
                read(guard, v, |guard| {
                    // Blocking, this would be the deadlock that no reader-writer lock is without.
                    drop(lock.try_read());
                    drop(guard);
                });
            }
            Op::Write => {
                v.ask(EXCLUSIVE, Patience::Endless);
                let guard = lock.write();
                write(guard, v, drop);
            }
            Op::TryWrite => {
                v.ask(EXCLUSIVE, Patience::Try);
                match lock.try_write() {
                    Some(guard) => write(guard, v, drop),
                    None => v.give_up(),
                }
            }
            Op::WriteFor => {
                let time = v.timeout();
                v.ask(EXCLUSIVE, Patience::For(time));
                match lock.try_write_for(time) {
                    Some(guard) => write(guard, v, drop),
                    None => v.give_up(),
                }
            }
            Op::WriteFair => {
                v.ask(EXCLUSIVE, Patience::Endless);
                let guard = lock.write();
                write(guard, v, RwLockWriteGuard::unlock_fair);
            }
            Op::WriteAndPanic => {
                v.ask(EXCLUSIVE, Patience::Endless);
                let guard = lock.write();
                write(guard, v, unwind_with);
            }
            Op::Downgrade => {
                v.ask(EXCLUSIVE, Patience::Endless);
                let guard = lock.write();
                v.enter();
                guard.write(v);
                v.upgrade();
                let guard = RwLockWriteGuard::downgrade(guard);
                v.upgraded();
                guard.read(v);
                v.leave();
                drop(guard);
                v.left();
            }
            Op::Upgradable => {
                v.ask(UPGRADABLE, Patience::Endless);
                let guard = lock.upgradable_read();
                v.enter();
                guard.read(v);
                v.leave();
                drop(guard);
                v.left();
            }
            Op::Upgrade => {
                v.ask(UPGRADABLE, Patience::Endless);
                let guard = lock.upgradable_read();
                v.enter();
                guard.read(v);
                v.upgrade();
                let guard = Upgradable::upgrade(guard);
                v.upgraded();
                guard.write(v);
                v.leave();
                drop(guard);
                v.left();
            }
            Op::TryUpgrade => {
                let time = v.timeout();
                v.ask(UPGRADABLE, Patience::For(time));
                let Some(guard) = lock.try_upgradable_read_for(time) else {
                    return v.give_up();
                };
                v.enter();
                guard.read(v);
                v.upgrade();
                match Upgradable::try_upgrade(guard) {
                    Ok(guard) => {
                        v.upgraded();
                        guard.write(v);
                        v.leave();
                        drop(guard);
                    }
                    Err(guard) => {
                        v.upgraded();
                        let guard = Upgradable::downgrade(guard);
                        guard.read(v);
                        v.leave();
                        drop(guard);
                    }
                }
                v.left();
            }
            Op::UpgradeFor => {
                let time = v.timeout();
                v.ask(UPGRADABLE, Patience::Endless);
                let guard = lock.upgradable_read();
                v.enter();
                guard.read(v);
                v.upgrade();
                match Upgradable::try_upgrade_for(guard, time) {
                    Ok(guard) => {
                        v.upgraded();
                        guard.write(v);
                        v.leave();
                        drop(guard);
                    }
                    Err(guard) => {
                        v.upgraded();
                        guard.read(v);
                        v.leave();
                        Upgradable::unlock_fair(guard);
                    }
                }
                v.left();
            }
            Op::DowngradeToUpgradable => {
                v.ask(EXCLUSIVE, Patience::Endless);
                let guard = lock.write();
                v.enter();
                guard.write(v);
                v.upgrade();
                let guard = RwLockWriteGuard::downgrade_to_upgradable(guard);
                v.upgraded();
                guard.read(v);
                v.upgrade();
                let guard = Upgradable::upgrade(guard);
                v.upgraded();
                guard.write(v);
                v.leave();
                drop(guard);
                v.left();
            }
        }
    }

    fn keep(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.0.read_arc()))
    }

    fn forget(&self) {
        mem::forget(self.0.read());
    }

    fn fork(&self, v: &mut Visitor) {
        let lock = Arc::new(RwLock::<R, _>::new(Protected::default()));
        let quiet = v.quiet();
        match v.dice.roll(4) {
            0 => children::fork(|_| {}, || use_in_child(&lock, quiet)),
            1 => {
                let guard = lock.read();
                children::fork(|_| drop(guard), || use_in_child(&lock, quiet));
            }
            2 => {
                let guard = lock.upgradable_read();
                let upgrade = |_: Ending| drop(RwLockUpgradableReadGuard::upgrade(guard));
                children::fork(upgrade, || use_in_child(&lock, quiet));
            }
            _ => {
                let guard = lock.write();
                children::fork(|_| drop(guard), || use_in_child(&lock, quiet));
            }
        }
    }

    fn check(&self) {
        match self.0.try_write() {
            Some(guard) => guard.check(),
            None => not_free(&self.describe()),
        }
    }

    fn describe(&self) -> String {
        let lock = &self.0;
        let state = match (lock.is_locked_exclusive(), lock.is_locked()) {
            (true, _) => "held exclusively",
            (_, true) => "held shared",
            _ => "free",
        };
        // SAFETY: looks at the raw lock and leaves it alone.
        format!("{state}; {}", bytes(unsafe { lock.raw() }))
    }
}

/// The child of a fork has the lock to itself, and starts a thread that shares it.
fn use_in_child<R: Versatile>(lock: &Arc<RwLock<R, Protected>>, mut v: Visitor) {
    children::beside(&|| (0..20).for_each(|_| drop(lock.read())), || {
        for _ in 0..5 {
            lock.write().write(&mut v);
            lock.read().read(&mut v);
        }
    });
    lock.try_write().expect("free in the child when nobody holds it").check();
}

fn read<'a, R: Versatile>(
    guard: RwLockReadGuard<'a, R, Protected>,
    v: &mut Visitor,
    release: impl FnOnce(RwLockReadGuard<'a, R, Protected>),
) {
    v.enter();
    guard.read(v);
    v.leave();
    release(guard);
    v.left();
}

fn write<'a, R: Versatile>(
    guard: RwLockWriteGuard<'a, R, Protected>,
    v: &mut Visitor,
    release: impl FnOnce(RwLockWriteGuard<'a, R, Protected>),
) {
    v.enter();
    guard.write(v);
    v.leave();
    release(guard);
    v.left();
}

/// Drops it by a panic.
fn unwind_with<G>(guard: G) {
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = guard;
        // Unlike `panic!` this calls no hook, which would print.
        resume_unwind(Box::new("while holding"));
    }));
    assert!(panicked.is_err());
}

// ---- exclusive ----

struct Exclusive(Mutex<RawMutex<Os>, Protected>);

impl Subject for Exclusive {
    fn operate(&self, op: Op, v: &mut Visitor) {
        const EXCLUSIVE: What = What::all(Side::Exclusive);
        let guard = match op {
            Op::TryRead | Op::TryWrite => {
                v.ask(EXCLUSIVE, Patience::Try);
                self.0.try_lock()
            }
            Op::ReadFor | Op::WriteFor | Op::TryUpgrade | Op::UpgradeFor => {
                let time = v.timeout();
                v.ask(EXCLUSIVE, Patience::For(time));
                self.0.try_lock_for(time)
            }
            _ => {
                v.ask(EXCLUSIVE, Patience::Endless);
                Some(self.0.lock())
            }
        };
        let Some(guard) = guard else {
            return v.give_up();
        };
        v.enter();
        guard.write(v);
        v.leave();
        match op {
            Op::ReadFair | Op::WriteFair => MutexGuard::unlock_fair(guard),
            Op::WriteAndPanic => unwind_with(guard),
            _ => drop(guard),
        }
        v.left();
    }

    fn forget(&self) {
        if let Some(guard) = self.0.try_lock() {
            mem::forget(guard);
        }
    }

    fn fork(&self, v: &mut Visitor) {
        let lock = Mutex::<RawMutex<Os>, _>::new(Protected::default());
        let mut quiet = v.quiet();
        let guard = lock.lock();
        let use_it = || {
            children::beside(&|| (0..20).for_each(|_| drop(lock.lock())), || {
                (0..5).for_each(|_| lock.lock().write(&mut quiet));
            });
            lock.try_lock().expect("free in the child when nobody holds it").check();
        };
        children::fork(|_| drop(guard), use_it);
    }

    fn check(&self) {
        match self.0.try_lock() {
            Some(guard) => guard.check(),
            None => not_free(&self.describe()),
        }
    }

    fn describe(&self) -> String {
        let state = if self.0.is_locked() { "held" } else { "free" };
        // SAFETY: looks at the raw lock and leaves it alone.
        format!("{state}; {}", bytes(unsafe { self.0.raw() }))
    }
}

// ---- a condition variable ----

/// A lock made of a mutex and a condition variable: whoever finds it held waits for a notification, so that one that is lost
/// leaves somebody asleep.
#[derive(Default)]
struct Monitor {
    is_held: fairlock::Mutex<bool>,
    released: Condvar,
    protected: Protected,
}

/// Somebody holds it; released when dropped.
struct Entered<'a> {
    monitor: &'a Monitor,
    way: Notification,
}

/// How those that wait are notified.
#[derive(Clone, Copy)]
enum Notification {
    One,
    OneOutside,
    All,
    AllOutside,
}

impl Notification {
    fn any(v: &mut Visitor) -> Self {
        const WAYS: [Notification; 4] = [
            Notification::One,
            Notification::OneOutside,
            Notification::All,
            Notification::AllOutside,
        ];
        WAYS[v.dice.roll(WAYS.len() as u64) as usize]
    }
}

impl Monitor {
    fn enter(&self, patience: Patience, way: Notification) -> Option<Entered<'_>> {
        let mut is_held = self.is_held.lock();
        match patience {
            Patience::Endless => self.released.wait_while(&mut is_held, |is_held| *is_held),
            Patience::For(time) => {
                self.released.wait_while_for(&mut is_held, |is_held| *is_held, time);
            }
            Patience::Try => {}
        }
        let is_free = !mem::replace(&mut *is_held, true);
        is_free.then(|| Entered { monitor: self, way })
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let Monitor { is_held, released, .. } = self.monitor;
        let mut is_held = is_held.lock();
        *is_held = false;
        match self.way {
            Notification::One => _ = released.notify_one(),
            Notification::All => _ = released.notify_all(),
            Notification::OneOutside => {
                drop(is_held);
                released.notify_one();
            }
            Notification::AllOutside => {
                drop(is_held);
                released.notify_all();
            }
        }
    }
}

impl Subject for Monitor {
    fn operate(&self, op: Op, v: &mut Visitor) {
        let patience = match op {
            Op::TryRead | Op::TryWrite => Patience::Try,
            Op::ReadFor | Op::WriteFor | Op::TryUpgrade | Op::UpgradeFor => {
                Patience::For(v.timeout())
            }
            _ => Patience::Endless,
        };
        let way = Notification::any(v);
        v.ask(What::all(Side::Exclusive), patience);
        let Some(entered) = self.enter(patience, way) else {
            return v.give_up();
        };
        v.enter();
        self.protected.write(v);
        v.leave();
        match op {
            Op::WriteAndPanic => unwind_with(entered),
            _ => drop(entered),
        }
        v.left();
    }

    fn forget(&self) {
        mem::forget(self.enter(Patience::Try, Notification::One));
    }

    fn fork(&self, v: &mut Visitor) {
        let monitor = Monitor::default();
        let mut quiet = v.quiet();
        let enter = || monitor.enter(Patience::Endless, Notification::One);
        let entered = enter();
        let use_it = || {
            children::beside(&|| (0..20).for_each(|_| drop(enter())), || {
                for _ in 0..5 {
                    let _entered = enter();
                    monitor.protected.write(&mut quiet);
                }
            });
            monitor.check();
        };
        children::fork(|_| drop(entered), use_it);
    }

    fn check(&self) {
        if self.enter(Patience::Try, Notification::All).is_none() {
            not_free(&self.describe());
        }
        if self.released.notify_one() {
            super::fail("lost: nobody uses the lock, and somebody waits for a notification");
        }
        self.protected.check();
    }

    fn describe(&self) -> String {
        format!("mutex {}; condition variable {}", bytes(&self.is_held), bytes(&self.released))
    }
}

// ---- ranges ----

struct Ranges<R> {
    lock: Arc<RangeLock<R>>,
    cells: Cells,
}

fn ranges<R: RawRangeLock + 'static>() -> Arc<dyn Subject> {
    Arc::new(Ranges { lock: Arc::new(RangeLock::<R>::new_in()), cells: Cells::new() })
}

impl<R: RawRangeLock + 'static> Ranges<R> {
    /// Mostly short, sometimes everything.
    fn pick(v: &mut Visitor, side: Side) -> (Extent, What) {
        if v.dice.roll(50) == 0 {
            return (Extent::ALL, What { side, first: 0, last: CELLS as u8 - 1 });
        }
        let first = v.dice.roll(CELLS as u64);
        let length = 1 + v.dice.roll((CELLS as u64 - first).min(8));
        let extent = Extent::at(first, length).expect("not empty");
        (extent, What { side, first: first as u8, last: (first + length - 1) as u8 })
    }

    fn read(&self, op: Op, v: &mut Visitor) {
        let (extent, what) = Self::pick(v, Side::Shared);
        let guard = match op {
            Op::TryRead => {
                v.ask(what, Patience::Try);
                self.lock.try_read(extent)
            }
            Op::ReadFor => {
                let time = v.timeout();
                v.ask(what, Patience::For(time));
                self.lock.try_read_for(extent, time)
            }
            _ => {
                v.ask(what, Patience::Endless);
                Some(self.lock.read(extent))
            }
        };
        let Some(guard) = guard else {
            return v.give_up();
        };
        v.enter();
        // More than a thread has slots for, without waiting while something is held.
        let more = if op == Op::ReadWithin { 6 } else { 0 };
        let more: Vec<_> =
            (0..more).filter_map(|_| self.lock.try_read(Self::pick(v, Side::Shared).0)).collect();
        self.cells.shared(what, v);
        v.leave();
        drop((guard, more));
        v.left();
    }

    fn write(&self, op: Op, v: &mut Visitor) {
        let (extent, what) = Self::pick(v, Side::Exclusive);
        let guard = match op {
            Op::TryWrite => {
                v.ask(what, Patience::Try);
                self.lock.try_write(extent)
            }
            Op::WriteFor | Op::TryUpgrade | Op::UpgradeFor => {
                let time = v.timeout();
                v.ask(what, Patience::For(time));
                self.lock.try_write_for(extent, time)
            }
            _ => {
                v.ask(what, Patience::Endless);
                Some(self.lock.write(extent))
            }
        };
        let Some(guard) = guard else {
            return v.give_up();
        };
        v.enter();
        self.cells.alone(what, v);
        if matches!(op, Op::Downgrade | Op::DowngradeToUpgradable) {
            v.upgrade();
            let guard = RangeWriteGuard::downgrade(guard);
            v.upgraded();
            self.cells.shared(what, v);
            v.leave();
            drop(guard);
        } else {
            v.leave();
            drop(guard);
        }
        v.left();
    }
}

impl<R: RawRangeLock + 'static> Subject for Ranges<R> {
    fn operate(&self, op: Op, v: &mut Visitor) {
        match op {
            Op::Read | Op::TryRead | Op::ReadFor | Op::ReadFair | Op::ReadWithin => {
                self.read(op, v)
            }
            _ => self.write(op, v),
        }
    }

    fn keep(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.lock.read_arc(Extent::ALL)))
    }

    fn forget(&self) {
        mem::forget(self.lock.read(Extent::ALL));
    }

    fn fork(&self, _v: &mut Visitor) {
        let lock = RangeLock::<R>::new_in();
        let extent = Extent::of(10..20).expect("not empty");
        let guard = lock.write(extent);
        let use_it = || {
            children::beside(&|| (0..20).for_each(|_| drop(lock.read(extent))), || {
                (0..5).for_each(|_| drop(lock.write(Extent::ALL)));
            });
            drop(RangeLock::<R>::new_in().write(extent));
        };
        let release = |ending| {
            if ending == Ending::Child {
                assert!(lock.try_read(extent).is_none(), "it is held in the child, too");
            }
            drop(guard);
        };
        children::fork(release, use_it);
    }

    fn check(&self) {
        if self.lock.try_write(Extent::ALL).is_none() {
            not_free(&self.describe());
        }
        self.cells.check();
    }

    fn describe(&self) -> String {
        let state = if self.lock.try_write(Extent::ALL).is_some() { "free" } else { "held" };
        format!("{state}; {}", bytes(self.lock.raw()))
    }
}

// ---- without guards ----

struct Unguarded<L, D> {
    lock: L,
    data: D,
}

fn unguarded<L: UnguardedRwLock + 'static>() -> Arc<dyn Subject> {
    Arc::new(Unguarded { lock: L::FREE, data: Protected::default() })
}

/// By a lock without guards.
fn operate_unguarded<L: UnguardedRwLock>(lock: &L, data: &Protected, op: Op, v: &mut Visitor) {
    const SHARED: What = What::all(Side::Shared);
    const EXCLUSIVE: What = What::all(Side::Exclusive);
    let timed = |time: Duration| Some(now() + time.as_nanos() as u64);
    let (what, patience) = match op {
        Op::Read | Op::ReadWithin | Op::Upgradable => (SHARED, Patience::Endless),
        Op::TryRead | Op::ReadFair => (SHARED, Patience::Try),
        Op::ReadFor | Op::TryUpgrade => (SHARED, Patience::For(v.timeout())),
        Op::TryWrite | Op::WriteFair => (EXCLUSIVE, Patience::Try),
        Op::WriteFor | Op::UpgradeFor => (EXCLUSIVE, Patience::For(v.timeout())),
        _ => (EXCLUSIVE, Patience::Endless),
    };
    v.ask(what, patience);
    let entered = match (what.side, patience, op) {
        (Side::Exclusive, Patience::Try, Op::TryWrite) => lock.try_write().is_ok(),
        (Side::Exclusive, Patience::Try, _) => lock.write_at_once(),
        (Side::Exclusive, Patience::For(time), _) => lock.write(timed(time)).is_ok(),
        (Side::Exclusive, ..) => lock.write(None).is_ok(),
        (_, Patience::Try, Op::TryRead) => lock.try_read(false).is_ok(),
        (_, Patience::Try, _) => lock.read_at_once(),
        (_, Patience::For(time), _) => lock.read(timed(time), false).is_ok(),
        _ => lock.read(None, false).is_ok(),
    };
    if !entered {
        return v.give_up();
    }
    v.enter();
    if what.side == Side::Exclusive {
        data.write(v);
        v.leave();
        // SAFETY: locked above, by this thread.
        unsafe { lock.unlock_write() };
    } else {
        data.read(v);
        if op == Op::ReadWithin {
            // Past writers that wait, as this thread is in.
            v.upgrade();
            lock.read(None, true).expect("nobody can keep out a thread that is in");
            v.upgraded();
            data.read(v);
            // SAFETY: locked above, twice, by this thread.
            unsafe { lock.unlock_read() };
        }
        v.leave();
        // SAFETY: locked above, by this thread.
        unsafe { lock.unlock_read() };
    }
    v.left();
}

/// The child of a fork has the lock to itself.
fn use_unguarded_in_child<L: UnguardedRwLock>(lock: &L, data: &Protected, v: &mut Visitor) {
    let read = || {
        assert_eq!(lock.read(None, false), Ok(()));
        // SAFETY: locked above.
        unsafe { lock.unlock_read() };
    };
    children::beside(&|| (0..20).for_each(|_| read()), || {
        for _ in 0..5 {
            assert_eq!(lock.write(None), Ok(()));
            data.write(v);
            // SAFETY: locked above.
            unsafe { lock.unlock_write() };
            read();
        }
    });
    assert!(!lock.is_locked());
    data.check();
}

fn fork_unguarded<L: UnguardedRwLock>(v: &mut Visitor) {
    let (lock, data) = (L::FREE, Protected::default());
    let mut quiet = v.quiet();
    let exclusive = v.dice.roll(2) == 0;
    let entered = if exclusive { lock.write(None) } else { lock.read(None, false) };
    assert_eq!(entered, Ok(()));
    let release = |_: Ending| {
        // SAFETY: locked above, by this thread; in the child it is the only one.
        unsafe { if exclusive { lock.unlock_write() } else { lock.unlock_read() } }
    };
    children::fork(release, || use_unguarded_in_child(&lock, &data, &mut quiet));
}

fn check_unguarded<L: UnguardedRwLock>(lock: &L, data: &Protected) {
    if lock.is_locked() {
        not_free(&describe_unguarded(lock));
    }
    data.check();
}

fn describe_unguarded<L: UnguardedRwLock>(lock: &L) -> String {
    let state = match (lock.has_writer(), lock.is_locked()) {
        (true, _) => "held exclusively, or about to be",
        (_, true) => "held",
        _ => "free",
    };
    format!("{state}; {}", bytes(lock))
}

impl<L: UnguardedRwLock> Subject for Unguarded<L, Protected> {
    fn operate(&self, op: Op, v: &mut Visitor) {
        operate_unguarded(&self.lock, &self.data, op, v);
    }

    fn fork(&self, v: &mut Visitor) {
        fork_unguarded::<L>(v);
    }

    fn check(&self) {
        check_unguarded(&self.lock, &self.data);
    }

    fn describe(&self) -> String {
        describe_unguarded(&self.lock)
    }
}

// ---- for several processes ----

/// A lock and its data in memory that children share with their parent. Children use it, too.
struct SharedPages(&'static Unguarded<ProcessSharedRwLock, Protected>);

impl SharedPages {
    const SIZE: usize = size_of::<Unguarded<ProcessSharedRwLock, Protected>>();

    fn subject() -> Arc<dyn Subject> {
        // SAFETY: asks for new pages.
        let pages = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), Self::SIZE, access, kind, -1, 0)
        };
        assert_ne!(pages, libc::MAP_FAILED);
        // SAFETY: pages are aligned and all zero, as a free lock and data at first are; they stay
        // until this subject ends.
        Arc::new(SharedPages(unsafe { &*pages.cast() }))
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        let pages = std::ptr::from_ref(self.0).cast_mut().cast();
        // SAFETY: mapped in `subject`, and nobody uses it any more.
        assert_eq!(unsafe { libc::munmap(pages, Self::SIZE) }, 0);
    }
}

impl Subject for SharedPages {
    fn operate(&self, op: Op, v: &mut Visitor) {
        operate_unguarded(&self.0.lock, &self.0.data, op, v);
    }

    fn fork(&self, v: &mut Visitor) {
        let mut quiet = v.quiet();
        let use_it = || {
            for _ in 0..20 {
                let op = Op::ALL[quiet.dice.roll(Op::ALL.len() as u64) as usize];
                operate_unguarded(&self.0.lock, &self.0.data, op, &mut quiet);
            }
        };
        children::fork(|_| {}, use_it);
    }

    fn check(&self) {
        check_unguarded(&self.0.lock, &self.0.data);
    }

    fn describe(&self) -> String {
        describe_unguarded(&self.0.lock)
    }
}
