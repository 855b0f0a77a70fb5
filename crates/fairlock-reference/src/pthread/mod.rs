//! The locks of glibc on Linux, form and all: what C and C++ programs use today, also on a simulated machine.
//!
//! | file | is | in glibc |
//! |---|---|---|
//! | [`rwlock`] | `pthread_rwlock_t` since 2.25, in its three kinds | `nptl/pthread_rwlock_common.c` |
//! | [`mutex`] | `pthread_mutex_t`, normal and adaptive | `nptl/lowlevellock.c`, `nptl/pthread_mutex_lock.c` |
//!
//! They follow the algorithms that glibc describes, word by word and step by step: the same words on one cache line, the
//! same atomic operations on them, sleeps and wake-ups where glibc has them. On real threads, tests hold their answers
//! and the order in which they admit threads against the C library's.
//!
//! **Not for production**: where a program can have glibc's own, it has the error checks, timeouts and debuggers' support
//! that are left out here.

pub mod mutex;
pub mod rwlock;
