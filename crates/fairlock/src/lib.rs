//! Locks that stay fair *and* fast under contention.
//!
//! * [`RwLock`]: the lock to pick. Readers announce themselves in a cache line of their own thread,
//!   so that a read costs about a nanosecond on any number of CPUs while nobody writes. Writers
//!   never starve.
//! * [`RwSem`]: a reader-writer semaphore that shares its time evenly between readers and
//!   writers ([`policy::TimeFair`]), or lets no thread pass another ([`policy::PhaseFair`]).
//! * [`RangeLock`]: shared and exclusive ranges of positions. Threads whose ranges are disjoint, or
//!   both shared, write no cache line in common. [`RangeVec`] and [`RangeSlice`] hand out `&mut
//!   [T]` of disjoint parts.
//! * [`Mutex`]: exclusive access only, in 16 bytes. Threads spin for a moment, sleep in the order of
//!   their arrival, and are handed the lock once they have been passed for
//!   [`HANDOFF_AFTER_NS`](policy::HANDOFF_AFTER_NS).
//! * [`Condvar`]: threads wait until another one says that what a [`Mutex`] protects has changed.
//! * [`ReentrantMutex`]: a mutex that its owner may lock again.
//! * [`ready::Poll`]: waits for the first of many sources, as epoll does for descriptors. A
//!   producer that is preempted delays nobody else.
//! * `process_shared::ProcessSharedRwLock` (Linux): a fair reader-writer lock for memory
//!   that several processes map, in 24 bytes without a pointer.
//!
//! ```
//! use fairlock::RwLock;
//!
//! static ROUTES: RwLock<Vec<&str>> = RwLock::new(Vec::new());
//!
//! ROUTES.write().push("/");
//! assert_eq!(ROUTES.read().len(), 1);
//! ```
//!
//! There is no poisoning: a panic releases what its thread holds. Debug builds panic where a
//! blocking call would, or could, deadlock the calling thread with itself. Locks are generic over a
//! [`platform`]; users get real threads and never name it.
//!
//! # Features
//! None is on by default.
//!
//! | feature | what it does |
//! |---|---|
//! | `deadlock_detection` | finds deadlocks between threads, and lock orders that could lead to one; acquisitions become slower |
//! | `send_guard` | guards of [`RwSem`] may be sent to another thread |
//! | `serde` | a lock is serialized as what it protects |
//! | `lock_api` | the raw locks implement the traits of lock_api 0.5; needs Rust 1.95 |
//! | `lock_api_04` | the same for lock_api 0.4 |
//! | `record` | what threads do with locks is counted and recorded under `fairlock run`: see [below](#recording) |
//!
//! # Recording
//! With the feature `record`, `fairlock run` says what a program's threads do with its locks: who
//! waits for whom, and how long. `fairlock run --record FILE` also records their operations one by
//! one, for a replay under other locks or on other machines by `fairlock replay`. No code changes
//! are needed:
//!
//! ```sh
//! fairlock run --record server.toml -- target/release/server
//! ```
//!
//! * [`RwLock`], [`RwSem`], [`Mutex`] and [`ReentrantMutex`] are recorded, by guards of every kind
//!   and behind lock_api's traits; not raw locks that are used without guards, nor other locks and
//!   lists.
//! * A mutex is written. What is held upgradable is read. An upgrade is a release of that read and
//!   a request to write, a downgrade a release of the write and a read at once; so in a replay a
//!   writer may come between.
//! * A wait with a [`Condvar`] is a release of the mutex, a time away, and an acquisition. The
//!   thread is away until it has the mutex again.
//! * A lock has 16 bytes more, and is known by the first place that uses it, or by the name of its
//!   static variable. Up to 16,382 locks are told apart, those that were dropped among them.
//! * Outside of `fairlock run`, an operation costs a load and a branch more than without the
//!   feature. Whether the process runs under it is decided before `main`.
//! * It does something on Linux with glibc, on x86-64 and aarch64, and nothing elsewhere, nor in
//!   builds with `--cfg loom`.
//!
//! # Platforms
//! The locks work on every system on which std has threads, and make the same promises there. Linux
//! has two things more: locks that processes share ([`process_shared`]), as its futex alone can
//! wake a thread of another process, and [`Poll::descriptor`](ready::RawPoll::descriptor), which is
//! made of an eventfd, a timerfd and an epoll descriptor.
//!
//! # Checking your code with Loom
//! In builds with `--cfg loom`, [`RwLock`], [`RwSem`], [`Mutex`], [`Condvar`] and
//! [`ReentrantMutex`] are small models over [Loom](https://docs.rs/loom)'s primitives, so that it
//! runs your tests in every schedule. All other locks and lists are not; they panic where they
//! would have to wait. The book's page "Loom and Miri" has an example.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(target_family = "wasm")]
compile_error!(
    "fairlock puts threads to sleep: it does not build for WebAssembly, where they cannot"
);
#[cfg(not(target_has_atomic = "64"))]
compile_error!(
    "a lock of fairlock is one 64-bit word: it builds for targets with 64-bit atomics only"
);

// The modules from the ground up; each imports only those above it (tests/behaviour/layers.rs).
//
// end_key         the end of threads that use a lock for the first time when they end
// recorded/       what threads do to locks, for `fairlock run` (feature record)
// held/           what each thread holds, so that deadlocks are found
// deadlock        deadlocks between threads, and lock orders that could lead to one (feature
//                 deadlock_detection)
// events          what slow paths count
// platform/       the seam: atomics, sleeping, time; real threads (`os/`) are one platform
// backoff, spin_budget   how long a thread waits for another before it sleeps
// wait_queue      rings of nodes on waiters' stacks, under a small lock of their own
// line            an MCS queue whose members may leave, for those whose accesses collide
// policy          how a contended lock is shared: knobs
// raw             the traits of locks without their data
// unguarded       locks that are used without guards
// hold            what a guard remembers of its hold, and how every acquisition begins and ends
// guard/          the guards
// modelled        the locks as Loom sees them; only with `--cfg loom`
// face            the functions that several locks have in common
// chunks, slots/  records of threads, in which they say what they read or hold
// barrier         the asymmetric barrier, shared by those that want one
// mutex, rwsem/, rwlock/, range/, ready/, process_shared/   the locks
// condvar, reentrant     what is built on the mutex
// tunables        their constants that were found by trial, for simulated platforms to try others
// process/        what the locks of one process share; real threads' records, fork
// interop/        the locks behind lock_api's traits
// inside          what `fairlock-reference` needs of all this
mod backoff;
mod barrier;
#[cfg(unix)]
#[cfg(test)]
mod child_process;
mod chunks;
pub mod condvar;
#[cfg(feature = "deadlock_detection")]
#[cfg_attr(docsrs, doc(cfg(feature = "deadlock_detection")))]
pub mod deadlock;
#[cfg(unix)]
mod end_key;
pub mod events;
mod face;
pub mod guard;
mod held;
mod hold;
#[doc(hidden)]
pub mod inside;
mod interop;
mod line;
#[cfg(loom)]
pub mod modelled;
pub mod mutex;
pub mod platform;
pub mod policy;
pub mod process;
#[cfg(all(target_os = "linux", not(fairlock_elsewhere)))]
#[cfg_attr(docsrs, doc(cfg(target_os = "linux")))]
pub mod process_shared;
pub mod range;
mod raw;
pub mod ready;
mod recorded;
pub mod reentrant;
pub mod rwlock;
pub mod rwsem;
pub mod slots;
mod spin_budget;
mod tunables;
pub mod unguarded;
mod wait_queue;

#[doc(inline)]
pub use condvar::{Condvar, WaitTimeoutResult};
#[cfg(feature = "lock_api")]
pub use lock_api;
#[cfg(feature = "lock_api_04")]
pub use lock_api_04;
#[doc(no_inline)]
pub use mutex::RawMutex;
#[doc(inline)]
pub use mutex::{ArcMutexGuard, MappedMutexGuard, Mutex, MutexGuard};
#[doc(inline)]
pub use range::{RangeLock, RangeReadGuard, RangeSlice, RangeVec, RangeWriteGuard};
#[doc(inline)]
pub use reentrant::{
    ArcReentrantMutexGuard, MappedReentrantMutexGuard, ReentrantMutex, ReentrantMutexGuard,
};
#[doc(no_inline)]
pub use rwlock::RawRwLock;
#[doc(inline)]
pub use rwlock::{
    ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard, ArcRwLockWriteGuard, MappedRwLockReadGuard,
    MappedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
};
#[doc(no_inline)]
pub use rwsem::RawRwSem;
#[doc(inline)]
pub use rwsem::{
    ArcRwSemReadGuard, ArcRwSemUpgradableReadGuard, ArcRwSemWriteGuard, MappedRwSemReadGuard,
    MappedRwSemWriteGuard, RwSem, RwSemReadGuard, RwSemUpgradableReadGuard, RwSemWriteGuard,
};
#[doc(inline)]
pub use tunables::tunables;

/// Runs the example of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
