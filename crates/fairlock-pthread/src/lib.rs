//! Fairlock's locks in place of `pthread_rwlock_t`, for programs that do not know of it: a shared
//! library for `LD_PRELOAD`, which `fairlock run` sets up.
//!
//! * `lock.rs`: what lies in the 56 bytes of a `pthread_rwlock_t`.
//! * `functions.rs`: every `pthread_rwlock_*` and `pthread_rwlockattr_*` function of glibc.
//! * `modes.rs`: which locks the process uses, by its environment, and whether it counts.
//! * `counting.rs`, `stacks.rs`: what was done to which lock, and from where, for the report.
//! * `glibc.rs`: the functions that these replace, for `glibc`, which counts and passes on.
//! * `thread.rs`, `platform.rs`, `clock.rs`, `start.rs`: what they need of the process.
//!
//! # Environment
//! * `FAIRLOCK_LOCK`: the policy by name, `timefair` if not set.
//! * `FAIRLOCK_COUNTS`: a directory. If set, what happens is counted in a file there.
//!
//! # Guarantees
//! * Error codes, kinds, initialisers and process-shared locks are those of glibc; so is that a
//!   lock may be destroyed, and its memory reused, as soon as its last unlock has begun to return,
//!   and that none of the functions is a cancellation point.
//! * A lock path allocates nothing, looks up no symbol and registers nothing with the thread.
//! * Reads may be recursive unless the lock is of the kind
//!   `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`: a thread that holds any lock for reading is
//!   not made to wait for a writer that only waits itself. One that has waited behind such a writer
//!   for a second enters, too: what a program may rely on under glibc's preference for readers
//!   does not deadlock here.
//! * Who waits for whom, and how long, is the policy's: see the crate `fairlock`. All kinds are
//!   treated by it alike but for that recursion.

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64"
)))]
compile_error!(
    "fairlock-pthread replaces functions of glibc on x86-64 and aarch64, whose structures it knows"
);

mod clock;
mod counting;
mod functions;
mod glibc;
mod lock;
mod modes;
mod platform;
mod stacks;
mod start;
mod thread;
