//! The rwsem and the mutex of the Linux kernel, form and all: what a simulated kernel runs.
//!
//! [`linux`](crate::linux) has the kernel's *policies* in a form that user space can bear: its spins have
//! budgets, its words change by compare-exchange, its queue of spinners sleeps. Where a published table
//! depends on the form, this room has the same policies as the kernel writes them: the same words on the
//! same cache line, added to and taken back; spin locks; a clock of ticks; wake-ups one by one.
//!
//! | file | is | in the kernel |
//! |---|---|---|
//! | [`rwsem`] | the semaphore since Linux 5.1 | `kernel/locking/rwsem.c` |
//! | [`xadd_rwsem`] | the semaphore of Linux 3.10 and 3.16 | `lib/rwsem.c`, `kernel/locking/rwsem-xadd.c` |
//! | [`mutex`] | the mutex of Linux 3.10 | `kernel/mutex.c` |
//! | `spin_queue` | their queue of spinners | `osq_lock.c`, `kernel/mutex.c` |
//! | `wait_list` | their list of waiters | |
//! | `spin_lock` | the lock of that list | `qspinlock.c` |
//! | `ticket_lock` | the same until Linux 4.1 | `arch/x86/include/asm/spinlock.h` |
//!
//! **Not for production.** In a kernel nobody is preempted who holds a spin lock or spins, and a spinner
//! sees whether the owner runs. What the locks need of that is [`Kernel`]; a simulated machine has it. On
//! real threads, [`UserSpace`] has nothing of the kind: the locks exclude as they should, but every spin
//! lasts until the scheduler comes round to the thread that it waits for.

pub mod mutex;
pub mod rwsem;
mod spin_lock;
mod spin_queue;
mod ticket_lock;
mod wait_list;
pub mod xadd_rwsem;

use core::marker::PhantomData;

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use fairlock::platform::{AtomicCell, Os, Platform};

/// What a lock of the kernel asks of its scheduler, beside what a [`Platform`] has.
pub trait Kernel: Send + Sync + 'static {
    /// The words that the lock is made of.
    type Platform: Platform;

    /// Turns of a spin on readers between two looks at the clock, at least one. The kernel's 16 unless one
    /// [`relax`](Self::relax) may last as long as all of these.
    const TURNS_BEFORE_CLOCK: u32 = 16;

    /// Turns of a spin on a mutex that is held without an owner, before the spinner queues. No bound in a kernel,
    /// where whoever is about to say that it is the owner, or has just said that it is no longer, keeps its CPU.
    const TURNS_WITHOUT_OWNER: u32 = u32::MAX;

    /// From here on the calling thread keeps its CPU (`preempt_disable`).
    fn forbid_preemption();
    /// Takes one [`forbid_preemption`](Self::forbid_preemption) back.
    fn allow_preemption();
    /// Somebody else should have this thread's CPU (`need_resched`).
    fn is_to_yield() -> bool;
    /// The calling thread's number, below 2⁶⁰ (`current`).
    fn current() -> u64;
    /// Whether the thread of this number has a CPU (`owner_on_cpu`).
    fn is_on_cpu(thread: u64) -> bool;
    /// A wake-up of a thread that turns out to be awake: it takes the lock of that thread's state
    /// (`try_to_wake_up`).
    fn wake_in_vain(thread: u64);
    /// The calling thread has slept: it has another look at its own state.
    fn has_slept();
    /// The clock of ticks (`jiffies`), which costs no more than a load.
    fn ticks() -> u64;
    /// Ticks in four milliseconds, at least one.
    fn ticks_until_handoff() -> u64;
    /// One turn of a spin on an owner: until a word changes that was read since the turn before, or for so
    /// long that the owner may have lost its CPU.
    fn relax();

    /// Exchanges those bits of `word` that are in `mask` for `bits`; answers the whole word that was there. A
    /// kernel has one operation for that; on real threads it takes several. AcqRel.
    fn exchange_part(word: &<Self::Platform as Platform>::AtomicU64, mask: u64, bits: u64) -> u64 {
        let mut found = word.load(Relaxed);
        loop {
            match word.compare_exchange_weak(found, found & !mask | bits, AcqRel, Relaxed) {
                Ok(before) => return before,
                Err(now) => found = now,
            }
        }
    }
}

/// Real threads: nothing is known of the scheduler.
#[derive(Debug)]
pub struct UserSpace<P = Os>(PhantomData<P>);

impl<P: Platform> Kernel for UserSpace<P> {
    type Platform = P;

    const TURNS_WITHOUT_OWNER: u32 = 2;

    fn forbid_preemption() {}
    fn allow_preemption() {}
    fn is_to_yield() -> bool {
        false
    }
    fn current() -> u64 {
        0
    }
    fn is_on_cpu(_thread: u64) -> bool {
        true
    }
    fn wake_in_vain(_thread: u64) {}
    fn has_slept() {}
    fn ticks() -> u64 {
        P::now() / 1_000_000
    }
    fn ticks_until_handoff() -> u64 {
        4
    }
    fn relax() {
        P::relax(None);
    }
}

/// Forbids preemption while it lives.
struct Unpreempted<K: Kernel>(PhantomData<K>);

impl<K: Kernel> Unpreempted<K> {
    fn new() -> Self {
        K::forbid_preemption();
        Unpreempted(PhantomData)
    }
}

impl<K: Kernel> Drop for Unpreempted<K> {
    fn drop(&mut self) {
        K::allow_preemption();
    }
}
