//! Fairlock's locks in place of `pthread_rwlock_t`, for programs that do not know of it.
