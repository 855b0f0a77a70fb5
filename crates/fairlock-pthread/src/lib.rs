//! Fairlock's locks in place of `pthread_rwlock_t`, for programs that do not know of it: a shared
//! library for `LD_PRELOAD`, which `fairlock run` sets up.
//!
//! * `lock.rs`: what lies in the 56 bytes of a `pthread_rwlock_t`.
//! * `functions.rs`: every `pthread_rwlock_*` and `pthread_rwlockattr_*` function of glibc.
//! * `standstill.rs`: when a reader is let past a writer that only waits itself.
//! * `modes.rs`: which locks the process uses, by its environment, and whether it counts.
//! * `counting.rs`: what was done to which lock, for the report.
//! * `recording.rs`: what each thread did one by one, for a replay.
//! * `glibc.rs`: glibc's own functions, which the mode `glibc` calls and counts.
//! * `watched.rs`: programs under a checker of races, which is told what the locks do.
//! * `thread.rs`, `platform.rs`, `clock.rs`, `start.rs`: what they need of the process.
//!
//! # Environment
//! * `FAIRLOCK_LOCK`: the lock by name, `rwsem` if not set.
//! * `FAIRLOCK_COUNTS`: a directory. If set, what happens is counted in a file there.
//! * `FAIRLOCK_RECORD`: if it is `1` and counts are written, each thread's operations are recorded there, too, while
//!   a window is open: at first, and when `fairlock run` opens another one.
//!
//! # Guarantees
//! * Error codes, kinds, initialisers and process-shared locks are those of glibc; so is that a
//!   lock may be destroyed, and its memory reused, as soon as its last unlock has begun to return,
//!   and that none of the functions is a cancellation point.
//! * A lock path allocates nothing, looks up no symbol, registers nothing with the thread and leaves
//!   `errno` alone. Variables of threads are at a fixed distance from the thread pointer.
//! * A program that makes progress under glibc neither deadlocks nor waits for ever under `rwsem`, even if
//!   its threads try, or wait for a short time, in a loop. `standstill.rs` is what ensures it.
//! * Who waits for whom, and how long, is otherwise the policy's: see the crate `fairlock`. By kind:
//!
//! | kind | a reader, while readers hold the lock and a writer waits |
//! |---|---|
//! | `PTHREAD_RWLOCK_PREFER_READER_NP`, the default, and `PTHREAD_RWLOCK_PREFER_WRITER_NP` | waits as the policy says, and passes the writer when that has lasted for 0.1 s (a poll) or 0.2 s (a wait) and no writer has got the lock meanwhile; its thread reads already, under any lock: passes at once |
//! | `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP` | waits until the writer has had the lock or has given up |
//!
//! | lock | what it keeps of this |
//! |---|---|
//! | `rwsem`, `phase-fair`, `no-reader-steal`, `linux-3.10` to `linux-5.2` | all |
//! | `linux-5.3`, `linux-5.11` | all; locks that prefer writers are `no-reader-steal`, as these let readers pass |
//! | `rwlock` | all, but a wait in place of a poll may last 0.4 s: the writer has to give way itself; locks that prefer writers are `rwsem`. A read must be unlocked by its thread |
//! | `glibc` | readers pass at once |

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64"
)))]
compile_error!(
    "fairlock-pthread replaces functions of glibc on x86-64 and aarch64, whose structures it knows: elsewhere, use \
     fairlock's locks in the program itself"
);

mod clock;
mod counting;
mod functions;
mod glibc;
mod lock;
mod modes;
mod platform;
mod recording;
mod standstill;
mod start;
mod thread;
mod watched;
