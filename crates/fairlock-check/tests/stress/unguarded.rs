//! Locks without guards on real threads: threads that read one to three times within each other among
//! writers, with and without an end, on locks that are freed right after the last unlock; and what
//! a child of a `fork` holds.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Barrier, RwLock};
use std::thread;

use fairlock::platform::{Os, Platform};
use fairlock::policy::{Bias, BiasPolicy, PhaseFair, TimeFair};
use fairlock::rwlock::RawRwLock;
use fairlock::rwsem::RawRwSem;
use fairlock::unguarded::{Refused, UnguardedRwLock};
use fairlock_check::threads::platforms::Symmetric;
use fairlock_check::threads::{Dice, Protected, crowd, watched};
use fairlock_reference::linux::{Linux3_10, Linux5_11, RawLinuxRwSem};

/// Changes between the ways in which readers come in as often as it can.
struct Restless;

impl BiasPolicy for Restless {
    const BIAS: Bias = Bias { reads: 0, writes: 2, reads_per_look: 1, patience: 0 };
}

struct Object<R> {
    lock: R,
    data: Protected,
}

impl<R: UnguardedRwLock> Object<R> {
    fn new() -> Self {
        Object { lock: R::FREE, data: Protected::default() }
    }

    fn read(&self, dice: &mut Dice, depth: u64) {
        let within = depth > 0;
        let soon = Os::now() + dice.roll(200_000);
        let entered = match dice.roll(4) {
            0 => self.lock.try_read(within),
            1 => self.lock.read(Some(soon), within),
            _ => self.lock.read(None, within),
        };
        if within {
            assert_eq!(entered, Ok(()), "a thread that is in comes in");
        }
        if entered.is_err() {
            return;
        }
        self.data.read();
        if dice.roll(3) > depth {
            self.read(dice, depth + 1);
        }
        self.data.glance();
        // SAFETY: entered.
        unsafe { self.lock.unlock_read() };
    }

    /// How many writes that were.
    fn write(&self, dice: &mut Dice) -> u64 {
        let entered = match dice.roll(4) {
            0 => self.lock.try_write(),
            1 => self.lock.write(Some(Os::now() + dice.roll(200_000))),
            _ => self.lock.write(None),
        };
        if entered.is_err() {
            return 0;
        }
        self.data.write();
        // SAFETY: entered.
        unsafe { self.lock.unlock_write() };
        1
    }

    fn assert_intact(&self, writes: u64) {
        assert!(!self.lock.is_locked(), "everybody has left");
        assert!(!self.data.violated.load(Relaxed), "somebody was beside a writer");
        assert_eq!(self.data.count.load(Relaxed), writes, "a write was lost");
    }
}

const STEPS: u64 = 1_500;

fn withstands_reads_within_reads<R: UnguardedRwLock>() {
    let object = Object::<R>::new();
    let writes = crowd(|dice| {
        let step = |_| match dice.roll(4) {
            0 => object.write(dice),
            _ => {
                object.read(dice, 0);
                0
            }
        };
        (0..STEPS).map(step).sum()
    });
    object.assert_intact(writes);
}

#[test]
fn semaphores_withstand_reads_within_reads_among_writers() {
    withstands_reads_within_reads::<RawRwSem<TimeFair, Os>>();
    withstands_reads_within_reads::<RawRwSem<PhaseFair, Os>>();
    withstands_reads_within_reads::<RawLinuxRwSem<Linux5_11>>();
    withstands_reads_within_reads::<RawLinuxRwSem<Linux3_10>>();
}

#[test]
fn slots_withstand_reads_within_reads_among_writers() {
    withstands_reads_within_reads::<RawRwLock>();
    withstands_reads_within_reads::<RawRwLock<Os, Restless>>();
    withstands_reads_within_reads::<RawRwLock<Symmetric, Restless>>();
}

#[test]
fn a_thread_reads_under_more_locks_than_it_has_slots_each_within_itself() {
    let objects: [Object<RawRwLock<Os, Restless>>; 7] = std::array::from_fn(|_| Object::new());
    let read = |object: &Object<RawRwLock<Os, Restless>>, past_waiters| {
        assert_eq!(object.lock.try_read(past_waiters), Ok(()));
    };
    for _ in 0..3 {
        objects.iter().for_each(|object| read(object, false));
    }
    for held in (1..=3).rev() {
        for object in &objects {
            assert_eq!(object.lock.try_write(), Err(Refused::Busy), "{held} reads are left");
            // SAFETY: one of three reads.
            unsafe { object.lock.unlock_read() };
        }
    }
    let mut dice = Dice::new(1);
    objects.iter().for_each(|object| object.assert_intact(0));
    assert!((0..20).map(|_| objects[0].write(&mut dice)).sum::<u64>() > 0);
}

/// The lock's memory is given back by whoever is told first that all have left: an unlock that
/// touched it later would be seen by tools that watch memory, and now and then by what it hits.
fn last_unlock_frees<R: UnguardedRwLock + 'static>() {
    const USERS: usize = 3;
    let (there, place) = (Barrier::new(USERS), RwLock::new(None::<Arc<Object<R>>>));
    watched(|| {
        thread::scope(|scope| {
            for user in 0..USERS {
                let (there, place) = (&there, &place);
                scope.spawn(move || {
                    let mut dice = Dice::new(user as u64);
                    for _ in 0..200 {
                        if there.wait().is_leader() {
                            *place.write().expect("no panic") = Some(Arc::new(Object::new()));
                        }
                        there.wait();
                        let object = place.read().expect("no panic").clone().expect("placed");
                        there.wait();
                        *place.write().expect("no panic") = None;
                        match user {
                            0 => _ = object.write(&mut dice),
                            _ => object.read(&mut dice, 0),
                        }
                        drop(object);
                    }
                });
            }
        });
    });
}

#[test]
fn a_lock_is_freed_right_after_its_last_unlock() {
    last_unlock_frees::<RawRwSem<TimeFair, Os>>();
    last_unlock_frees::<RawRwLock<Os, Restless>>();
}

#[test]
fn a_forking_thread_keeps_what_it_reads_and_nobody_else_does() {
    let object = Object::<RawRwLock<Os, Restless>>::new();
    let lock = &object.lock;
    let (there, over) = (Barrier::new(2), Barrier::new(2));
    watched(|| {
        thread::scope(|scope| {
            // The first read makes the lock use slots.
            object.read(&mut Dice::new(0), 2);
            scope.spawn(|| {
                assert_eq!(lock.read(None, false), Ok(()));
                assert_eq!(lock.read(None, true), Ok(()));
                there.wait();
                over.wait();
                // SAFETY: locked twice above.
                unsafe {
                    lock.unlock_read();
                    lock.unlock_read();
                }
            });
            there.wait();
            (0..3).for_each(|_| assert_eq!(lock.try_read(true), Ok(())));
            // SAFETY: the child uses what is safe after a `fork`, and ends by `_exit`.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "{}", std::io::Error::last_os_error());
            if child == 0 {
                let mut wrong = 0;
                for _ in 0..3 {
                    wrong += i32::from(lock.try_write() != Err(Refused::Busy));
                    // SAFETY: one of three reads.
                    unsafe { lock.unlock_read() };
                }
                wrong += i32::from(lock.try_write() != Ok(()));
                // SAFETY: ends the process.
                unsafe { libc::_exit(wrong) };
            }
            let mut status = 0;
            // SAFETY: waits for the child of this function; `status` lives.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            // SAFETY: one of three reads each.
            (0..3).for_each(|_| unsafe { lock.unlock_read() });
            over.wait();
            assert!(libc::WIFEXITED(status));
            assert_eq!(libc::WEXITSTATUS(status), 0, "wrong answers of the child");
        });
    });
    object.assert_intact(0);
}
