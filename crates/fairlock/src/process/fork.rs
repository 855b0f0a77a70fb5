//! What `fork` does to the locks of real threads.
//!
//! The child has one thread. The records of the others are given back there, with what they read:
//! else a writer in the child would wait for readers that do not exist. Those that waited for a lock
//! in a rented room are taken off it unseen, as their stacks are nobody's: else who unlocks it would
//! hand it to one of them. A handler does that, by pthread_atfork(3), asked for before any thread
//! gets a record or rents a room.
//!
//! What holds in the child:
//! * Readers of other threads by slots are gone; but those by the semaphore of a lock remain, as it only
//!   counts them. `fork` is unsafe, and this is part of what its
//!   caller answers for: the child uses no reference that another thread's guard lent it.
//! * The forking thread keeps its guards.
//! * Nobody waits for a lock that rents its room ([`RwLock`](crate::RwLock), and
//!   [`RawRwSem`](crate::rwsem::RawRwSem) with [`Pooled`](crate::rwsem::Pooled)). So one that the
//!   forking thread holds for writing, whoever waited for it, is free once the child has unlocked
//!   it, and one that was free is free: the child may use both like new ones. One that it holds for
//!   reading is free for readers likewise; for writers if no other thread read under it, or was let
//!   in to do so, other than by a slot, and none was past the queue and waited for readers in slots.
//! * A lock that another thread held for writing, or was just taking, stays as it was, and the
//!   child must not use it; as with every lock. "Just taking" is also a writer under a policy without
//!   [`writer_fast_fail`](crate::policy::Competition::writer_fast_fail) in the few instructions
//!   between adding its bias in vain and removing it: then the lock of the forking thread stays as it
//!   was.
//! * Other locks that have waiters, that is those with their waiters' queue inside, are not to be
//!   unlocked by the child: [`RwSem`](crate::RwSem), [`Mutex`](crate::Mutex),
//!   [`RangeLock`](crate::RangeLock).
//!
//! The handler writes to the locks that others waited for. Where such a lock is in memory that parent
//! and child share, the parent's waiters would be forgotten, too; where the memory is kept from the
//! child (`MADV_DONTFORK`), the child gets no further. Locks do not belong there.
//!
//! What has no handlers: `vfork`, `_Fork`, the bare system calls, and those of other libraries
//! that run before this one's. There a writer may wait for ever for a reader of the parent. Nor
//! may `fork` interrupt a lock's own code, from a signal handler.
//!
//! Several copies of this crate in one program each have a handler of their own. Where a library
//! that contains one is unloaded, the C library drops its handlers (glibc) or does not unload at
//! all (musl); glibc keeps it loaded while a thread that has used its locks lives.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};

use super::os;

/// Whether the handler is there.
static HANDLED: AtomicU32 = AtomicU32::new(0);

/// Sees to it that the handler is there from now on.
pub(super) fn handle() {
    // Acquire pairs with the Release in `register`: the handler is there before the first record.
    if HANDLED.load(Acquire) == 0 {
        register();
    }
}

/// Threads that come here at once each ask for the handler: to run it twice does no harm, and
/// nobody has to wait for another that a `fork` may leave behind. Without memory the next thread
/// tries again.
#[cold]
fn register() {
    // SAFETY: the handler is a plain function of this library, and the C library forgets it when
    // the library goes.
    if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } == 0 {
        HANDLED.store(1, Release);
    }
}

unsafe extern "C" fn in_child() {
    // SAFETY: the C library calls this in the only thread of the child; the rest is for the caller
    // of `fork` to see to, see the module.
    unsafe { os::all_forked() };
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread;

    use crate::child_process::{Ending, first_wrong, in_child_process};
    use crate::platform::{Counting, Symmetric};
    use crate::process::Host;
    use crate::{Mutex as Fair, RwLock, RwSem};

    const READERS: usize = 3;
    const THEIRS: u64 = 0x1111;
    const OWN: u64 = 0x2222;

    /// Forks while other threads read, and yet others come and go.
    fn fork_among_readers<P: Host>() {
        let (there, over) = (Barrier::new(READERS + 1), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| {
                    let slot = P::thread().and_then(|it| it.free_slot()).expect("a free slot");
                    slot.announce(THEIRS);
                    there.wait();
                    there.wait();
                    slot.clear();
                });
            }
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    let come_and_go = || {
                        let slot = P::thread().and_then(|it| it.free_slot());
                        let slot = slot.expect("a free slot");
                        slot.announce(THEIRS);
                        slot.clear();
                    };
                    thread::scope(|inner| _ = inner.spawn(come_and_go));
                }
            });
            there.wait();
            let own = P::thread().expect("a record");
            let slot = own.free_slot().expect("a free slot");
            slot.announce(OWN);
            let threads = &P::process().threads;
            let child = || {
                in_child_process(|| {
                    let kept = threads.any_reader(|tag| tag == OWN);
                    let gone = !threads.any_reader(|tag| tag == THEIRS);
                    let is_same = P::thread().is_some_and(|it| core::ptr::eq(it, own));
                    slot.clear();
                    let waited = threads.wait_for_readers(|tag| tag != 0, None);
                    let records = [(); 2 * READERS].map(|()| P::process().new_thread());
                    let all = records.iter().all(|record| {
                        record.is_some_and(|it| !core::ptr::eq(it, own) && it.free_slot().is_some())
                    });
                    if P::is_asymmetric() {
                        P::asymmetric_heavy();
                    }
                    let lock = RwSem::new(1);
                    *lock.write() += *Fair::new(1).lock();
                    let sum = *lock.read() + 1;
                    first_wrong(&[kept, gone, is_same, waited, all, sum == 3])
                })
            };
            let endings: Vec<_> = (0..30).map(|_| child()).collect();
            let parents = threads.any_reader(|tag| tag == THEIRS);
            slot.clear();
            over.store(true, Relaxed);
            there.wait();
            assert!(endings.iter().all(|ending| *ending == Ending::Exited(0)), "{endings:?}");
            assert!(parents, "what the children forgot, the parent has not");
        });
    }

    #[test]
    fn a_child_has_no_readers_but_its_own_thread() {
        fork_among_readers::<Counting>();
    }

    #[test]
    fn a_child_has_no_readers_but_its_own_thread_without_an_asymmetric_barrier_either() {
        fork_among_readers::<Symmetric>();
    }

    /// What a child can do with a lock that another thread reads.
    fn in_a_child_while_another_thread_reads(lock: &RwLock<u32>, child: fn(&RwLock<u32>) -> bool) {
        let (there, over) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let guard = lock.read();
                there.wait();
                over.wait();
                drop(guard);
            });
            there.wait();
            let ending = in_child_process(|| (!child(lock)).into());
            over.wait();
            assert_eq!(ending, Ending::Exited(0));
        });
        assert!(lock.try_write().is_some(), "the parent's readers have left");
    }

    #[test]
    fn a_child_writes_under_a_lock_that_other_threads_read_by_slots() {
        let lock = RwLock::new(1);
        (0..300).for_each(|_| drop(lock.read()));
        in_a_child_while_another_thread_reads(&lock, |lock| {
            lock.try_read().is_some() && lock.try_write().is_some()
        });
    }

    #[test]
    fn a_child_only_reads_under_a_lock_that_other_threads_read_by_its_semaphore() {
        in_a_child_while_another_thread_reads(&RwLock::new(1), |lock| {
            lock.try_read().is_some() && lock.try_write().is_none()
        });
    }

    #[test]
    fn a_child_of_a_child_forgets_the_first_child_s_threads() {
        let ending = in_child_process(|| {
            let there = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    Counting::thread()
                        .and_then(|it| it.free_slot())
                        .expect("a slot")
                        .announce(THEIRS);
                    there.wait();
                    there.wait();
                });
                there.wait();
                // SAFETY: as in `in_child_process`.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    let left = Counting::process().threads.any_reader(|tag| tag == THEIRS);
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(left.into()) };
                }
                let mut status = 1;
                // SAFETY: waits for the child of the child.
                unsafe { libc::waitpid(child, &mut status, 0) };
                there.wait();
                status
            })
        });
        assert_eq!(ending, Ending::Exited(0));
    }
}
