//! What `fork` does to the locks of real threads.
//!
//! What holds in the child, which has one thread:
//! * The forking thread keeps its guards.
//! * Reads of other threads by slots have ended. Their reads by a lock's semaphore remain, as it
//!   only counts them. `fork` is unsafe, and its caller answers for this: the child must not use a
//!   reference that it borrowed from another thread's guard.
//! * No thread waits for an [`RwLock`](crate::RwLock) or [`RwSem`](crate::RwSem). So a lock that
//!   was free is free, and one that the forking thread holds for writing is free once the child has
//!   unlocked it, whoever waited for it: the child may use both like new ones. A lock that the
//!   forking thread holds for reading is then free for readers, too, and for writers if no other
//!   thread had read it, or been granted a read, by the semaphore. For neither, if a writer of the
//!   parent had acquired the semaphore of an [`RwLock`](crate::RwLock) and waited for readers in
//!   slots: it was just acquiring the lock.
//! * As with every lock, a lock that another thread held for writing, or was just acquiring, stays
//!   as it was, and the child must not use it.
//! * The child must not unlock any other lock that has waiters, as its queue is in the lock:
//!   [`Mutex`](crate::Mutex), [`ReentrantMutex`](crate::ReentrantMutex),
//!   [`RangeLock`](crate::RangeLock); nor notify a [`Condvar`](crate::Condvar) that has.
//!
//! How it works: a handler of pthread_atfork(3) runs in the child. It is installed before any
//! thread gets a record or acquires a pooled queue. It gives back the records of the other threads
//! with what they read, so that no writer waits for readers that do not exist. And it empties
//! pooled queues without looking at their nodes, whose stacks are no longer in use, so that no
//! unlock hands the lock to a thread that does not exist.
//!
//! The handler writes to the locks for which other threads waited. If such a lock is in memory that
//! parent and child share, the parent's waiters are forgotten, too; if the memory is kept from the
//! child (`MADV_DONTFORK`), the child crashes there. Locks do not belong in such memory.
//!
//! No handlers run for `vfork`, `_Fork` and the bare system calls, and this one has yet to run
//! while handlers of other libraries run before it. There a writer may wait for ever for a reader
//! of the parent. Nor may a signal handler `fork` in the middle of a lock's own code.
//!
//! Where threads sleep in `parking_lot_core`, those of the child poll (`platform/os/elsewhere.rs`).
//! Miri has no `fork`: under it this module is not there.
//!
//! Several copies of this crate in one program each have a handler of their own. When a library
//! that contains a copy is unloaded, glibc drops its handlers, and musl never unloads it. While a
//! thread that has used the copy's locks lives, glibc keeps the library loaded.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};

use super::os;

/// 1 once the handler is installed.
static HANDLED: AtomicU32 = AtomicU32::new(0);

/// Installs the handler, if that has not been done.
pub(super) fn handle() {
    // Acquire pairs with the Release in `register`: the handler is installed before the first
    // record.
    if HANDLED.load(Acquire) == 0 {
        register();
    }
}

/// Of several threads that are here at once, each installs the handler: running it twice does no
/// harm, and no thread has to wait for another, which a `fork` might leave behind. If there is no
/// memory, the next thread tries again.
#[cold]
fn register() {
    // SAFETY: the handler is a plain function of this library, and the C library forgets it when
    // the library is unloaded.
    if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } == 0 {
        HANDLED.store(1, Release);
    }
}

unsafe extern "C" fn in_child() {
    // SAFETY: the C library calls this in the only thread of the child. That `fork` did not
    // interrupt a lock's code, and that locks are in private memory, is up to the caller of `fork`:
    // see the module.
    unsafe { os::all_forked() };
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread;

    use crate::child_process::{ChildThread, Ending, first_wrong, in_child_process};
    use crate::platform::{Counting, Symmetric};
    use crate::process::Host;
    use crate::slots::Readers;
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
                    // Joined: a scope alone does not wait for the end of thread-locals, which give
                    // records back.
                    thread::scope(|inner| inner.spawn(come_and_go).join().expect("no panic"));
                }
            });
            there.wait();
            let own = P::thread().expect("a record");
            let slot = own.free_slot().expect("a free slot");
            slot.announce(OWN);
            let threads = &P::process().threads;
            let child = || {
                in_child_process(|| {
                    let kept = threads.any_reader(Readers::Any, |tag| tag == OWN);
                    let gone = !threads.any_reader(Readers::Any, |tag| tag == THEIRS);
                    let is_same = P::thread().is_some_and(|it| core::ptr::eq(it, own));
                    slot.clear();
                    let waited =
                        threads.wait_for_readers(Readers::Any, |tag| tag != 0, None, || ());
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
            let parents = threads.any_reader(Readers::Any, |tag| tag == THEIRS);
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
            let other = ChildThread::start(|| {
                let slot = Counting::thread().and_then(|it| it.free_slot()).expect("a slot");
                slot.announce(THEIRS);
                there.wait();
                there.wait();
            });
            there.wait();
            // SAFETY: the child calls nothing but this crate and `_exit`, and no lock's code runs
            // meanwhile.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let left =
                    Counting::process().threads.any_reader(Readers::Any, |tag| tag == THEIRS);
                // SAFETY: ends the process.
                unsafe { libc::_exit(left.into()) };
            }
            let mut status = 1;
            // SAFETY: waits for the child of the child.
            unsafe { libc::waitpid(child, &mut status, 0) };
            there.wait();
            drop(other);
            status
        });
        assert_eq!(ending, Ending::Exited(0));
    }
}
