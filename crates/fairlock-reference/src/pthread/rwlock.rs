//! glibc's reader-writer lock: phases of readers and of writers, handed over to whoever sleeps.
//!
//! # Guarantees
//! Mutual exclusion, and that somebody gets a free lock. Who may starve depends on the [`Kind`]: writers under
//! [`PreferReader`], readers under both others. Nobody spins; whoever has to wait sleeps at once.
//!
//! # How it works
//! The lock is always in a phase of readers or in a phase of writers, also while it is free. Writers first settle which
//! one of them is the *primary* writer. Only that one deals with readers.
//!
//! ```text
//!   readers        │ readers, inside or waiting │ READER_WAITS │ WRITER │ WRITE_PHASE │
//!   writers        │ HAND_OVER │ writers that wait behind the primary one; used where writers are preferred │
//!   phase_futex    1 in a phase of writers, 0 in one of readers; and USED: somebody may sleep on it
//!   writers_futex  OPEN while there is a primary writer; and USED
//! ```
//!
//! | phase | `WRITER` | readers | the lock is |
//! |---|---|---|---|
//! | read | no | 0 | free |
//! | read | no | some | read |
//! | read | yes | 0 | free, and the primary writer is about to start a phase of writers |
//! | read | yes | some | read; the last reader hands it over to the primary writer |
//! | write | no | 0 | free |
//! | write | no | some | free, and one of the readers is about to start a phase of readers |
//! | write | yes | 0 | written |
//! | write | yes | some | written; the writer hands it over to all these readers |
//!
//! A reader counts itself, and is inside if this is a phase of readers. In a phase of writers without a primary writer it
//! starts a phase of readers itself. Otherwise it sleeps on `phase_futex` until somebody else has done so. A writer sets
//! `WRITER`, or sleeps on `writers_futex` until it can. As the primary writer it starts a phase of writers if nobody
//! reads, or sleeps on `phase_futex` until the last reader has done so.
//!
//! Whoever changes the phase says so in `phase_futex` and wakes *all* who sleep there, in one call. They wait for that
//! even if they see the new phase in `readers` before: otherwise one of them could leave and free the lock's memory
//! while it is still to be written. So a release that finds somebody waiting gives the lock to a thread that sleeps, and
//! nobody can use it until that thread runs: a convoy, where sections are shorter than a wake-up.
//!
//! Where writers are preferred, a writer that releases hands its role over to a writer that waits, if there is one:
//! it sets `HAND_OVER` and leaves the phase as it is. The first of those that sees this clears it and is the primary
//! writer. Under [`PreferWriterNonrecursive`] a newcomer also does not count itself among readers while the primary
//! writer waits for them: it sets `READER_WAITS`, and sleeps on `readers` until the last of them has left.
//!
//! # Why it is right
//! 1. Only the primary writer clears `WRITER`, or passes it on by `HAND_OVER`. It is inside from the moment when it is
//!    the primary writer in a phase of writers.
//! 2. A phase of readers ends only when none is counted: by the last reader that leaves, if there is a primary writer, or
//!    by the primary writer. A phase of writers ends only by the primary writer's release, or by a reader while there is
//!    none. So a reader that is counted in a phase of readers is inside, and no writer is.
//! 3. `phase_futex` follows the phase: whoever changes the phase writes it next, and before that nobody who would change
//!    the phase again is let in. A sleeper sets `USED` while it still has the old value, so the change sees the flag.
//! 4. Whoever has slept on `writers_futex` shares `USED` with others, and sets it again as the primary writer. So each
//!    release wakes one of them until none is left.
//! 5. `READER_WAITS` is set only while readers are inside and a primary writer waits, and the last reader clears it.
//!
//! # What it costs
//! Without contention, in locked instructions: 2 for a read in a phase of readers, an addition and a compare-exchange
//! ("a single atomic addition" and "a single CAS" in glibc's own words); 4 for a read that ends a phase of writers. For a
//! write 3 in a phase of writers, and 5 in one of readers. One of these compare-exchanges always fails, in glibc as here:
//! it expects the word without the writer's own flag.
//!
//! # Source
//! The comments of `nptl/pthread_rwlock_common.c`, by Torvald Riegel, of glibc since 2.25, with the correction of 2.30:
//! an attempt that starts a phase wakes those who wait for it.
//!
//! What differs from glibc, and why
//! * A thread that locks what it has locked for writing waits for ever: `lock_api` has no answer `EDEADLK`. The word by
//!   which glibc knows is read and written all the same, for what that costs.
//! * No timeouts, and none of what shared memory needs.
//! * Where glibc tries again in a loop until another thread has taken its next step, the loop waits by `relax`.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use fairlock::lock_api::GuardNoSend;
use fairlock::platform::{AtomicCell, AtomicInt, Os, Platform};

/// This is a phase of writers: also the value of `phase_futex`.
const WRITE_PHASE: u32 = 1;
/// There is a primary writer.
const WRITER: u32 = 2;
/// Newcomers sleep until the readers inside have left.
const READER_WAITS: u32 = 4;
/// One reader.
const READER: u32 = 8;
/// So many readers are a mistake: most likely guards that were forgotten.
const TOO_MANY_READERS: u32 = 1 << 31;

/// In `writers`: the first that clears it is the primary writer.
const HAND_OVER: u32 = 1 << 31;

/// In `writers_futex`: there is a primary writer, whose release wakes those who sleep.
const OPEN: u32 = 1;
/// In both futexes: somebody may sleep there.
const USED: u32 = 2;

/// In `writer`: it is inside. glibc has the number of its thread.
const INSIDE: u32 = 1;

fn is_read(readers: u32) -> bool {
    readers >= READER
}

fn is_write_phase(readers: u32) -> bool {
    readers & WRITE_PHASE != 0
}

fn has_primary_writer(readers: u32) -> bool {
    readers & WRITER != 0
}

/// Readers are inside, and a writer waits for them.
fn is_awaited(readers: u32) -> bool {
    is_read(readers) && has_primary_writer(readers) && !is_write_phase(readers)
}

/// Whom a lock prefers: what `pthread_rwlockattr_setkind_np` sets.
pub trait Kind: Send + Sync + 'static {
    /// Whether a writer that releases hands the lock over to a writer that waits, even if readers wait, too.
    const HANDS_OVER_TO_WRITERS: bool;
    /// Whether a reader that arrives waits behind a writer that waits for other readers.
    const READERS_QUEUE: bool;
}

/// `PTHREAD_RWLOCK_PREFER_READER_NP`, the default. Readers pass waiting writers, so writers may starve.
#[derive(Debug)]
pub struct PreferReader;

/// `PTHREAD_RWLOCK_PREFER_WRITER_NP`. Writers hand the lock over to each other, so readers that wait may starve; but
/// readers pass a writer that waits for other readers.
#[derive(Debug)]
pub struct PreferWriter;

/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`. As [`PreferWriter`], but no reader passes a writer that waits. So a
/// thread that reads within a read may wait for ever.
#[derive(Debug)]
pub struct PreferWriterNonrecursive;

impl Kind for PreferReader {
    const HANDS_OVER_TO_WRITERS: bool = false;
    const READERS_QUEUE: bool = false;
}

impl Kind for PreferWriter {
    const HANDS_OVER_TO_WRITERS: bool = true;
    const READERS_QUEUE: bool = false;
}

impl Kind for PreferWriterNonrecursive {
    const HANDS_OVER_TO_WRITERS: bool = true;
    const READERS_QUEUE: bool = true;
}

/// glibc's reader-writer lock, for comparison only. See the [module](self) for what it guarantees.
///
/// # Example
/// ```
/// use fairlock_reference::pthread::rwlock::PthreadRwLock;
///
/// static ROUTES: PthreadRwLock<Vec<&str>> = PthreadRwLock::new(Vec::new());
///
/// ROUTES.write().push("/");
/// let (one, other) = (ROUTES.read(), ROUTES.read());
/// assert_eq!(one.len(), other.len());
/// assert!(ROUTES.try_write().is_none());
/// ```
pub type PthreadRwLock<T, K = PreferReader> =
    fairlock::lock_api::RwLock<RawPthreadRwLock<K, Os>, T>;

/// The lock without its data: what [`PthreadRwLock`] is made of. Use it through `lock_api`.
#[repr(C)]
pub struct RawPthreadRwLock<K: Kind, P: Platform = Os> {
    readers: P::AtomicU32,
    writers: P::AtomicU32,
    phase_futex: P::AtomicU32,
    writers_futex: P::AtomicU32,
    /// `INSIDE` or 0.
    writer: P::AtomicU32,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind, P: Platform> RawPthreadRwLock<K, P> {
    // ---- readers ----

    #[inline]
    fn read(&self) {
        self.look_for_own_write();
        if K::READERS_QUEUE {
            self.let_writer_pass();
        }
        // Acquire pairs with the Releases of `unlock_write` and, for the words that follow the phase, of `unlock_read`.
        let readers = self.readers.fetch_add(READER, Acquire).wrapping_add(READER);
        if readers >= TOO_MANY_READERS {
            self.refuse(readers);
        }
        if is_write_phase(readers) {
            self.read_in_write_phase(readers);
        }
    }

    /// Where glibc looks whether this thread itself is the writer.
    fn look_for_own_write(&self) {
        self.writer.load(Relaxed);
    }

    /// Sleeps while readers are inside and a writer waits for them.
    fn let_writer_pass(&self) {
        let mut readers = self.readers.load(Relaxed);
        while is_awaited(readers) {
            let waits = readers | READER_WAITS;
            if let Err(found) = self.readers.compare_exchange_weak(readers, waits, Relaxed, Relaxed)
            {
                readers = found;
                continue;
            }
            loop {
                readers = self.readers.load(Relaxed);
                if readers & READER_WAITS == 0 {
                    break;
                }
                P::park(&self.readers, readers, None);
            }
        }
    }

    /// Takes this reader's count back.
    #[cold]
    fn refuse(&self, mut readers: u32) -> ! {
        while let Err(found) =
            self.readers.compare_exchange_weak(readers, readers - READER, Relaxed, Relaxed)
        {
            readers = found;
        }
        panic!("too many readers: forgotten guards are never released");
    }

    /// This reader is counted.
    #[cold]
    fn read_in_write_phase(&self, mut readers: u32) {
        while is_write_phase(readers) && !has_primary_writer(readers) {
            // Acquire as in `read`.
            match self.readers.compare_exchange_weak(
                readers,
                readers ^ WRITE_PHASE,
                Acquire,
                Relaxed,
            ) {
                Ok(_) => return self.announce(0),
                Err(found) => readers = found,
            }
        }
        self.await_phase(0);
    }

    #[inline]
    fn try_read(&self) -> bool {
        let mut readers = self.readers.load(Relaxed);
        loop {
            let is_refused = has_primary_writer(readers)
                && (is_write_phase(readers) || K::READERS_QUEUE)
                || readers >= TOO_MANY_READERS - READER;
            if is_refused {
                return false;
            }
            let counted = (readers + READER) & !WRITE_PHASE;
            // Acquire as in `read`.
            match self.readers.compare_exchange_weak(readers, counted, Acquire, Relaxed) {
                Ok(_) => break,
                Err(found) => readers = found,
            }
        }
        if is_write_phase(readers) {
            // It has started a phase of readers.
            self.announce(0);
        }
        true
    }

    #[inline]
    fn unlock_read(&self) {
        let mut readers = self.readers.load(Relaxed);
        let left = loop {
            let mut left = readers - READER;
            // Release pairs with the Acquires of writers, and of readers after them.
            let mut order = Release;
            if !is_read(left) {
                left &= !READER_WAITS;
                if has_primary_writer(left) {
                    left |= WRITE_PHASE;
                    // Acquire pairs with the Release of the reader that has started this phase, so that its change of
                    // `phase_futex` comes before the one below.
                    order = AcqRel;
                }
            }
            match self.readers.compare_exchange_weak(readers, left, order, Relaxed) {
                Ok(_) => break left,
                Err(found) => readers = found,
            }
        };
        if is_write_phase(left) {
            self.announce(WRITE_PHASE);
        }
        if (readers ^ left) & READER_WAITS != 0 {
            P::unpark_many(&raw const self.readers, u32::MAX);
        }
    }

    // ---- phases ----

    /// The caller has changed the phase, and nobody who waits for that can go on before this. Relaxed: it orders nothing
    /// but itself; what the lock protects is ordered by `readers`.
    fn announce(&self, phase: u32) {
        if self.phase_futex.swap(phase, Relaxed) & USED != 0 {
            P::unpark_many(&raw const self.phase_futex, u32::MAX);
        }
    }

    /// Sleeps until another thread has started the phase and has announced it.
    fn await_phase(&self, phase: u32) {
        let before = phase ^ WRITE_PHASE;
        let mut has_begun = false;
        loop {
            loop {
                let futex = self.phase_futex.load(Relaxed);
                if futex & !USED != before {
                    break;
                }
                let sleeps = before | USED;
                let is_marked = futex == sleeps
                    || self
                        .phase_futex
                        .compare_exchange_weak(futex, sleeps, Relaxed, Relaxed)
                        .is_ok();
                if is_marked {
                    P::park(&self.phase_futex, sleeps, None);
                }
            }
            if has_begun {
                return;
            }
            // Acquire pairs with the Release by which the phase was changed. After it, `phase_futex` can no longer have
            // the value of the phase before the last one: a last look says whether the new phase was announced.
            has_begun = self.readers.load(Acquire) & WRITE_PHASE == phase;
            if !has_begun {
                // The phase before this one is still to be announced.
                P::relax(None);
            }
        }
    }

    // ---- writers ----

    #[inline]
    fn write(&self) {
        self.look_for_own_write();
        // Acquire pairs with the Releases of `unlock_write` and `unlock_read`.
        let mut readers = self.readers.fetch_or(WRITER, Acquire);
        let mut used = 0;
        if has_primary_writer(readers) {
            (readers, used) = self.become_primary(readers);
        }
        self.writers_futex.store(OPEN | used, Relaxed);
        if !is_write_phase(readers) {
            self.start_write_phase(readers);
        }
        self.writer.store(INSIDE, Relaxed);
    }

    /// Waits for the primary writer's role. What `readers` is then; and `USED` if others may sleep on `writers_futex`.
    #[cold]
    fn become_primary(&self, mut readers: u32) -> (u32, u32) {
        if K::HANDS_OVER_TO_WRITERS {
            self.writers.fetch_add(1, Relaxed);
        }
        let mut used = 0;
        loop {
            if !has_primary_writer(readers) {
                let primary = readers | WRITER;
                // Acquire as in `write`.
                match self.readers.compare_exchange_weak(readers, primary, Acquire, Relaxed) {
                    Ok(_) => {
                        if K::HANDS_OVER_TO_WRITERS {
                            self.writers.fetch_sub(1, Relaxed);
                        }
                        return (primary, used);
                    }
                    Err(found) => readers = found,
                }
                continue;
            }
            if K::HANDS_OVER_TO_WRITERS {
                let writers = self.writers.load(Relaxed);
                if writers & HAND_OVER != 0 {
                    let left = (writers ^ HAND_OVER) - 1;
                    // Acquire pairs with the Release in `hand_over`.
                    if self.writers.compare_exchange_weak(writers, left, Acquire, Relaxed).is_ok() {
                        return (self.readers.load(Relaxed), used);
                    }
                    continue;
                }
            }
            let sleeps = OPEN | USED;
            let futex = self.writers_futex.load(Relaxed);
            let is_marked = futex == sleeps
                || futex == OPEN
                    && self
                        .writers_futex
                        .compare_exchange_weak(OPEN, sleeps, Relaxed, Relaxed)
                        .is_ok();
            if is_marked {
                used = USED;
                P::park(&self.writers_futex, sleeps, None);
            } else {
                // The primary writer has just come or is about to leave.
                P::relax(None);
            }
            readers = self.readers.load(Relaxed);
        }
    }

    /// The caller is the primary writer.
    fn start_write_phase(&self, mut readers: u32) {
        while !is_write_phase(readers) && !is_read(readers) {
            // Acquire as in `write`.
            match self.readers.compare_exchange_weak(
                readers,
                readers | WRITE_PHASE,
                Acquire,
                Relaxed,
            ) {
                // Nobody waits for a phase of writers but the primary one.
                Ok(_) => return self.phase_futex.store(WRITE_PHASE, Relaxed),
                Err(found) => readers = found,
            }
        }
        self.await_phase(WRITE_PHASE);
    }

    #[inline]
    fn try_write(&self) -> bool {
        let mut readers = self.readers.load(Relaxed);
        loop {
            // Readers that wait for nobody are about to start a phase: preferred writers are faster.
            let is_free = !is_read(readers) || K::HANDS_OVER_TO_WRITERS && is_write_phase(readers);
            if has_primary_writer(readers) || !is_free {
                return false;
            }
            let written = readers | WRITER | WRITE_PHASE;
            // Acquire as in `write`.
            match self.readers.compare_exchange_weak(readers, written, Acquire, Relaxed) {
                Ok(_) => break,
                Err(found) => readers = found,
            }
        }
        self.writers_futex.store(OPEN, Relaxed);
        if !is_write_phase(readers) {
            self.phase_futex.store(WRITE_PHASE, Relaxed);
        }
        self.writer.store(INSIDE, Relaxed);
        true
    }

    #[inline]
    fn unlock_write(&self) {
        self.writer.store(0, Relaxed);
        let has_sleepers = self.writers_futex.swap(0, Relaxed) & USED != 0;
        if !(K::HANDS_OVER_TO_WRITERS && self.hand_over()) {
            self.end_write();
        }
        if has_sleepers {
            P::unpark(&raw const self.writers_futex);
        }
    }

    /// Passes the primary writer's role on; false if no writer waits.
    fn hand_over(&self) -> bool {
        let mut writers = self.writers.load(Relaxed);
        while writers != 0 {
            // Release pairs with the Acquire in `become_primary`.
            match self.writers.compare_exchange_weak(writers, writers | HAND_OVER, Release, Relaxed)
            {
                Ok(_) => return true,
                Err(found) => writers = found,
            }
        }
        false
    }

    /// Gives the lock to all readers that wait, or leaves it free in a phase of writers.
    fn end_write(&self) {
        let mut readers = self.readers.load(Relaxed);
        loop {
            let phase = if is_read(readers) { WRITE_PHASE } else { 0 };
            // Release pairs with the Acquires of `read` and `write`.
            match self.readers.compare_exchange_weak(
                readers,
                readers ^ (WRITER | phase),
                Release,
                Relaxed,
            ) {
                Ok(_) => break,
                Err(found) => readers = found,
            }
        }
        if is_read(readers) {
            self.announce(0);
        }
    }
}

// SAFETY: invariants 1 and 2. Every way to acquire is Acquire, every way to release is Release. Guards are inert, and
// nothing refers to the lock but borrows, so it may be moved or dropped while held.
unsafe impl<K: Kind, P: Platform> fairlock::lock_api::RawRwLock for RawPthreadRwLock<K, P> {
    #[allow(clippy::declare_interior_mutable_const)] // lock_api's own shape for statics
    const INIT: Self = RawPthreadRwLock {
        readers: P::AtomicU32::ZERO,
        writers: P::AtomicU32::ZERO,
        phase_futex: P::AtomicU32::ZERO,
        writers_futex: P::AtomicU32::ZERO,
        writer: P::AtomicU32::ZERO,
        kind: PhantomData,
    };
    type SharedGuard = GuardNoSend;
    type ExclusiveGuard = GuardNoSend;

    #[inline]
    fn lock_shared(&self) -> GuardNoSend {
        self.read();
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock_shared(&self) -> Option<GuardNoSend> {
        self.try_read().then(GuardNoSend::new)
    }
    #[inline]
    unsafe fn unlock_shared(&self, _guard: GuardNoSend) {
        self.unlock_read();
    }
    #[inline]
    fn lock_exclusive(&self) -> GuardNoSend {
        self.write();
        GuardNoSend::new()
    }
    #[inline]
    fn try_lock_exclusive(&self) -> Option<GuardNoSend> {
        self.try_write().then(GuardNoSend::new)
    }
    #[inline]
    unsafe fn unlock_exclusive(&self, _guard: GuardNoSend) {
        self.unlock_write();
    }
    fn is_locked(&self) -> bool {
        let readers = self.readers.load(Relaxed);
        is_read(readers) || has_primary_writer(readers)
    }
    fn is_locked_exclusive(&self) -> bool {
        let readers = self.readers.load(Relaxed);
        is_write_phase(readers) && has_primary_writer(readers)
    }
}
