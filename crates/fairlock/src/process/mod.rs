//! What the locks of one process share: the records of its threads, the queue pool, and barriers on
//! all CPUs.
//!
//! There is one [`Process`] for each platform; a simulated one begins and ends with a run. This is
//! where the layers meet: each lock names what it needs of a platform ([`HasRecords`],
//! [`HasQueuePool`], [`HasNesting`]), and a [`Host`] has all of it.
//!
//! One program may contain several copies of this crate, in several versions or in libraries that
//! it loads. Each copy has a `Process` of its own. A lock is only used through the copy that made
//! it, so its readers are in the records where its writers look: in Rust the types of two copies
//! differ, and the copies of the C library find each other and let one of them work for all. Copies
//! have only the kernel in common, which does no harm: its asymmetric barrier reaches all threads
//! of the process, and registering for it twice is the same as once. [`Os`](crate::platform::Os)
//! and [`Counting`](crate::platform::Counting) are two copies in this sense.

#[cfg(all(unix, not(miri)))]
mod fork;
#[cfg(test)]
mod lines;
mod os;

use core::ptr;

use crate::barrier::SharedBarrier;
use crate::line::Line;
use crate::platform::{PlainCell, Platform};
use crate::ready::{HasNesting, Nesting};
use crate::rwsem::{HasQueuePool, QueuePool};
use crate::slots::{EndedThread, HasRecords, Record, Threads};

/// A [platform](Platform) with a process whose threads have records: one on which all locks run.
///
/// Implement it, beside [`Platform`], to run Fairlock's locks somewhere else.
///
/// # Safety
/// An implementation promises:
/// * As long as a lock of this platform is used, [`process`](Self::process) returns the same
///   process, which no other platform returns.
/// * [`thread`](Self::thread) returns a record of that process that [`Process::new_thread`] gave to
///   the calling thread, and that the thread has neither shared with another nor given back.
///   [`ended_thread`](Self::ended_thread) returns what the calling thread itself was given for its
///   record.
/// * If [`Platform::is_asymmetric`] answers yes, [`asymmetric_heavy`](Self::asymmetric_heavy) has
///   the effect of [`Platform::barrier_on_all_cpus`].
/// * No function unwinds.
///
/// Safe code cannot end the thread of a record:
/// ```compile_fail,E0133
/// use fairlock::platform::Os;
/// use fairlock::process::Host;
/// let record = Os::thread().unwrap();
/// Os::process().thread_ended(record);
/// ```
pub unsafe trait Host: Platform {
    /// What the locks of this process share.
    fn process() -> &'static Process<Self>;

    /// The calling thread's record in that process, claimed at first use; none if the thread cannot
    /// have one, for instance because it is about to end.
    fn thread() -> Option<&'static Record<Self>> {
        None
    }

    /// The same if the thread has claimed one already; claims none.
    fn known_thread() -> Option<&'static Record<Self>> {
        None
    }

    /// What the calling thread was given when it [gave back its record](Process::thread_ended).
    /// This must work until the thread's very last instruction, as any code that runs there may
    /// unlock.
    fn ended_thread() -> EndedThread<Self> {
        EndedThread::NONE
    }

    /// The expensive side of an asymmetric barrier: a [barrier on all
    /// CPUs](Platform::barrier_on_all_cpus), shared by the threads that want one at the same time.
    /// It must not be called where [`Platform::is_asymmetric`] answers no.
    fn asymmetric_heavy() {
        Self::process().pass_barrier();
    }
}

// SAFETY: each function is the host's, whose promises are the same.
unsafe impl<P: Host> HasRecords for P {
    #[inline(always)]
    fn threads() -> &'static Threads<P> {
        &<P as Host>::process().threads
    }
    #[inline(always)]
    fn thread() -> Option<&'static Record<P>> {
        <P as Host>::thread()
    }
    #[inline(always)]
    fn known_thread() -> Option<&'static Record<P>> {
        <P as Host>::known_thread()
    }
    #[inline(always)]
    fn ended_thread() -> EndedThread<P> {
        <P as Host>::ended_thread()
    }
    #[inline(always)]
    fn asymmetric_heavy() {
        <P as Host>::asymmetric_heavy();
    }
}

// SAFETY: the pool is part of the process, of which there is one.
unsafe impl<P: Host> HasQueuePool for P {
    #[inline(always)]
    fn queue_pool() -> &'static QueuePool<P> {
        &<P as Host>::process().queue_pool
    }
}

impl<P: Host> HasNesting for P {
    fn nesting() -> &'static Nesting<P> {
        &<P as Host>::process().nesting
    }
}

/// What the locks of one process share. Aligned to cache lines, so that the same words share a line
/// wherever it lies: a simulated process is on the heap, and has to cost the same in every run.
#[repr(align(128))]
pub struct Process<P: Platform> {
    threads: Threads<P>,
    queue_pool: QueuePool<P>,
    barrier: SharedBarrier<P>,
    nesting: Nesting<P>,
}

impl<P: Host> Process<P> {
    /// A process whose threads have not used any lock yet.
    #[allow(clippy::declare_interior_mutable_const)] // becomes a static
    pub const NEW: Self = Process {
        threads: Threads::NEW,
        queue_pool: QueuePool::NEW,
        barrier: SharedBarrier::NEW,
        nesting: Nesting::NEW,
    };

    /// A record for a thread of this process that has none yet, to be [given
    /// back](Self::thread_ended) when the thread ends. If there are too many threads there is none,
    /// and the thread does without. This function and those below are for implementations of
    /// [`Host`].
    pub fn new_thread(&self) -> Option<&Record<P>> {
        self.threads.claim()
    }

    /// The calling thread ends and gives back its record: from now on it acquires without one. It
    /// can still release what it holds by what this returns, which is then its
    /// [`Host::ended_thread`].
    ///
    /// # Safety
    /// The calling thread has the record from [`new_thread`](Self::new_thread) of this process and
    /// has not given it back. [`Host::thread`] no longer returns it to anybody, and only guards
    /// still refer to it.
    pub unsafe fn thread_ended(&self, record: &Record<P>) -> EndedThread<P> {
        self.threads.release(record)
    }

    /// Ends what the threads that do not exist in the child of a `fork` were doing: reading by
    /// slots, waiting in pooled queues, running barriers. Locks that they held otherwise stay held.
    ///
    /// # Safety
    /// * This process is the child of a `fork`, and the calling thread, which has the record `own`,
    ///   is its only one.
    /// * The `fork` did not interrupt one of this crate's functions, as a signal handler can.
    /// * The locks for which other threads waited are in memory that is neither kept from the child
    ///   nor shared with its parent: this function writes to them.
    pub unsafe fn forked(&self, own: Option<&Record<P>>) {
        let left_line = |line: *const ()| {
            // SAFETY: the line is alive: it had members when the process forked, and so a front,
            // which borrowed it.
            unsafe { &*line.cast::<Line<P>>() }.forked();
        };
        // SAFETY: the calling thread is the child's only one and was not in a lock's code, as this
        // function's caller promises.
        unsafe {
            self.threads.keep_only(own, left_line);
            self.queue_pool.forked(own.map_or(ptr::null(), |own| own.spare_queue().get()));
        }
        self.barrier.forked();
    }

    /// Returns once a [barrier on all CPUs](Platform::barrier_on_all_cpus) that began after the
    /// call has ended: one that this call ran, or one that another thread's call ran.
    pub fn pass_barrier(&self) {
        self.barrier.pass();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};
    use std::thread;

    use super::*;
    use crate::platform::{Os, Symmetric};
    use crate::slots::Readers;
    use crate::slots::range::{Claim, HELD, is_trying};

    type Records = Threads<Os>;

    fn claim(threads: &Records) -> &Record<Os> {
        threads.claim().expect("there are enough")
    }

    fn address<P: Platform>(record: &Record<P>) -> usize {
        ptr::from_ref(record).addr()
    }

    #[test]
    fn the_lowest_free_record_is_given_out() {
        let threads = Records::NEW;
        let records: Vec<_> = (0..200).map(|_| claim(&threads)).collect();
        for free in [150, 3, 199, 64] {
            threads.release(records[free]);
        }
        for lowest in [3, 64, 150, 199] {
            assert!(ptr::eq(claim(&threads), records[lowest]));
        }
        let next = claim(&threads);
        assert!(records.iter().all(|record| !ptr::eq(next, *record)));
    }

    #[test]
    fn a_process_has_memory_for_eight_records_or_twice_as_many_as_there_were_threads_at_once() {
        let threads = Records::NEW;
        assert_eq!(threads.bytes(), [0, 0]);
        let listed = crate::slots::MOST_RECORDS / 8;
        assert!(size_of::<Process<Os>>() <= 640 + listed, "what is there before");
        let mut records = Vec::new();
        for (at_once, bytes) in [(1, 1024), (8, 1024), (9, 2048), (16, 2048), (1000, 131_072)] {
            records.extend((records.len()..at_once).map(|_| claim(&threads)));
            assert_eq!(threads.bytes(), [bytes, 0], "{at_once} threads");
        }
        for record in records {
            threads.release(record);
        }
        for _ in 0..9 {
            let record = claim(&threads);
            record.free_range_in(|| &threads).expect("there is memory");
            record.free_range_in(|| &threads).expect("the same");
        }
        assert_eq!(
            threads.bytes(),
            [131_072, 2048],
            "slots for ranges are for those that use them"
        );
    }

    #[test]
    fn a_record_that_still_says_something_is_nobody_elses() {
        let threads = Records::NEW;
        let [first, forgotten] = [claim(&threads), claim(&threads)];
        let slot = forgotten.free_slot().expect("a fresh record");
        slot.announce(7);
        threads.release(forgotten);
        let next = claim(&threads);
        assert!(!ptr::eq(next, forgotten));
        assert!(
            threads.any_reader(Readers::Any, |tag| tag == 7),
            "a forgotten guard keeps its slot"
        );
        // SAFETY: this test is alone with these records.
        unsafe { threads.keep_only(Some(next), |_| ()) };
        assert!(threads.any_reader(Readers::Any, |tag| tag == 7), "also in the child of a fork");
        slot.clear();
        // `keep_only` has given back a lower one.
        assert!(ptr::eq(claim(&threads), first));
        assert!(ptr::eq(claim(&threads), forgotten), "found again");
    }

    #[test]
    fn ranges_that_are_held_stay_so_in_the_child_of_a_fork_and_others_are_dropped() {
        let threads = Records::NEW;
        let [own, other] = [claim(&threads), claim(&threads)];
        let take = || {
            let slot = other.free_range_in(|| &threads).expect("a fresh record");
            slot.announce(Claim::new(7, true), 0, 9);
            slot
        };
        let [held, trying] = [take(), take()];
        held.set(Claim::new(7, true), HELD);
        // SAFETY: this test is alone with these records.
        unsafe { threads.keep_only(Some(own), |_| ()) };
        let rival = Claim::new(7, false);
        let keeps_away = held.keeps_away(rival, 9, 9);
        assert_eq!(keeps_away, Some(held.tag()), "its guard may be here");
        assert!(!keeps_away.is_some_and(is_trying), "it is held");
        assert_eq!(trying.keeps_away(rival, 9, 9), None, "nobody goes on with it");
        let next = claim(&threads);
        assert!(!ptr::eq(next, other), "not while a range is held in it");
        held.clear_unseen();
        threads.release(own);
        assert!(ptr::eq(claim(&threads), own));
        assert!(ptr::eq(claim(&threads), other), "found again");
    }

    #[test]
    fn records_claimed_and_given_back_at_once_have_one_owner_each_and_none_is_lost() {
        const THREADS: usize = 4;
        let (threads, there) = (Records::NEW, Barrier::new(THREADS));
        let lowest = claim(&threads);
        threads.release(lowest);
        let (owned, ever) = (Mutex::new(HashSet::new()), Mutex::new(HashSet::new()));
        let claim_and_release = || {
            there.wait();
            for _ in 0..if cfg!(miri) { 20 } else { 5_000 } {
                let records = [claim(&threads), claim(&threads)];
                for record in records.map(address) {
                    assert!(owned.lock().expect("no panic").insert(record), "two owners");
                    ever.lock().expect("no panic").insert(record);
                }
                for record in records {
                    owned.lock().expect("no panic").remove(&address(record));
                    threads.release(record);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(claim_and_release);
            }
        });
        assert!(ever.into_inner().expect("no panic").len() <= 2 * THREADS);
        assert!(ptr::eq(claim(&threads), lowest));
    }

    #[test]
    fn threads_that_come_and_go_use_no_more_records_than_there_were_at_once() {
        const AT_ONCE: usize = 8;
        /// Of the crate's other tests, the forks use records of `Symmetric`, too.
        const OTHERS: usize = 8;
        let body = || <Symmetric as Host>::thread().map(address).expect("a record for each");
        let mut ever = HashSet::new();
        for _ in 0..if cfg!(miri) { 3 } else { 10_000 / AT_ONCE } {
            let threads = [(); AT_ONCE].map(|()| thread::spawn(body));
            ever.extend(threads.map(|thread| thread.join().expect("no panic")));
        }
        assert!(ever.len() <= AT_ONCE + OTHERS, "{}", ever.len());
    }

    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "Miri panics where the destructor of a key makes another destructor")]
    #[test]
    fn threads_that_first_read_in_the_destructor_of_a_key_give_their_records_back() {
        static EVER: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        unsafe extern "C" fn read(_: *mut libc::c_void) {
            let record = <crate::platform::Counting as Host>::thread();
            let slot = record.and_then(Record::free_slot).expect("a record, with slots");
            slot.announce(9);
            slot.clear();
            EVER.lock().expect("no panic").extend(record.map(address));
        }
        let mut key = 0;
        // SAFETY: the destructor is a function.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(read)) }, 0);
        // SAFETY: the key exists; any value but null.
        let body = move || unsafe { libc::pthread_setspecific(key, (&raw const EVER).cast()) };
        const THREADS: usize = 100;
        for _ in 0..THREADS {
            assert_eq!(thread::spawn(body).join().expect("no panic"), 0);
        }
        let mut ever = EVER.lock().expect("no panic");
        assert_eq!(ever.len(), THREADS);
        ever.sort_unstable();
        ever.dedup();
        // Of the crate's other tests, the forks use records of `Counting`, too.
        assert!(ever.len() <= 10, "{} records", ever.len());
    }

    /// Asks for its thread's record when it goes.
    struct Late;

    impl Drop for Late {
        fn drop(&mut self) {
            if let Some(slot) = <Os as Host>::thread().and_then(Record::free_slot) {
                slot.announce(9);
                slot.clear();
            }
        }
    }

    #[test]
    fn a_thread_local_that_reads_when_it_goes_does_no_harm() {
        std::thread_local! {
            static LATE: Late = const { Late };
        }
        // Made before the record and after it, so that it goes in both orders; and without one.
        for order in 0..3 {
            let body = move || {
                if order == 0 {
                    LATE.with(|_| ());
                }
                if order < 2 {
                    assert!(<Os as Host>::thread().is_some());
                }
                LATE.with(|_| ());
            };
            thread::spawn(body).join().expect("no panic");
        }
    }
}
