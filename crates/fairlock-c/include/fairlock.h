/*
 * Fairlock: locks that stay fair and fast under contention, for C11 and later; for C++ see fairlock.hpp.
 *
 * Every function that returns an int returns 0, or a number of <errno.h> that says why it has done
 * nothing; errno itself may change. What a function does not list it does not return, but one:
 * ENOTRECOVERABLE, from range locks and polls, if Fairlock itself is wrong; a message has been printed
 * then, and the object is not to be used again.
 *
 * Pointers are NULL, which is EINVAL, or point to what their type says. Unless a function says
 * otherwise any thread may call it at any time, but not in a signal handler. A thread that is in a
 * function must not be cancelled with pthread_cancel.
 *
 * After fork the child has its parent's locks as they were: those that other threads held stay held.
 *
 * Made from the sources by cbindgen: do not edit.
 */


#ifndef FAIRLOCK_H
#define FAIRLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* A lock that is free. */
#define FAIRLOCK_RWLOCK_INITIALIZER { { 0 } }

/* A mutex that is free. */
#define FAIRLOCK_MUTEX_INITIALIZER { { 0 } }


/**
 * As a length: all from the offset on.
 */
#define FAIRLOCK_TO_END UINT64_MAX

/**
 * There is something to read or to receive.
 */
#define FAIRLOCK_READABLE 1

/**
 * There is room to write or to send.
 */
#define FAIRLOCK_WRITABLE 2

/**
 * The other side is gone. Reported whether asked for or not.
 */
#define FAIRLOCK_CLOSED 4

/**
 * A source is reported by every wait for as long as it is ready.
 */
#define FAIRLOCK_LEVEL 0

/**
 * A source is reported by one wait for each signal, or for several together, if it is ready then; and
 * once after it was added or modified.
 */
#define FAIRLOCK_EDGE 1

/**
 * A source is reported once, and then not before fairlock_poll_modify.
 */
#define FAIRLOCK_ONCE 2

/**
 * As a timeout: as long as it takes.
 */
#define FAIRLOCK_FOR_EVER -1

/**
 * Waits for the first of many sources, as epoll does for descriptors, in user space. Signalling a source
 * takes some ten to twenty nanoseconds, and no system call unless somebody sleeps. Any number of threads
 * may signal, wait, add and remove.
 *
 * A wait that begins after a signal has returned reports its source if it is still ready then, also if
 * another thread was preempted in the middle of a signal.
 */
typedef struct fairlock_poll_t fairlock_poll_t;

/**
 * A lock over ranges of positions, say bytes of a file or elements of an array: readers share, writers
 * are alone, and only those wait for each other whose ranges overlap.
 *
 * Ranges that are disjoint, and those that are shared, write no cache line in common. A thread may hold
 * many ranges; one that asks for a range that its own keep from it waits for ever.
 */
typedef struct fairlock_range_lock_t fairlock_range_lock_t;

/**
 * Something that threads signal and that a poll waits for: a counter or an event. It is in one poll at a
 * time.
 */
typedef struct fairlock_source_t fairlock_source_t;

/**
 * A reader-writer lock: any number of readers, or one writer. 64 bytes, anywhere in memory; a free
 * one is all zero, so FAIRLOCK_RWLOCK_INITIALIZER, static memory and calloc make one.
 *
 * While readers and writers both want it, phases of either side alternate and share its time: those
 * that come later pass a waiting thread for two phases at most, of at most 4 ms each, or four if it was
 * woken in vain. Waiting threads sleep. Its memory may be
 * freed as soon as the last unlock that concerns it has let somebody else in, whether or not that
 * unlock has returned. Not for memory that processes share.
 *
 * A thread that reads and asks to read again may wait for ever, if a writer came in between: see
 * fairlock_rwlock_read_recursive.
 */
typedef struct fairlock_rwlock_t {
    /**
     * The library's.
     */
    uint64_t opaque[8];
} fairlock_rwlock_t;

/**
 * A mutex: one thread at a time. 40 bytes, anywhere in memory; a free one is all zero, so
 * FAIRLOCK_MUTEX_INITIALIZER, static memory and calloc make one.
 *
 * A thread that finds it taken spins for a while, then sleeps in the order of arrival. Whenever the
 * mutex is left free the one that has waited longest is woken, and competes with those that come,
 * which pass it for 4 ms at most. Its memory may be freed as soon as the last unlock has let somebody
 * else in, whether or not that unlock has returned. Not for memory that processes share.
 */
typedef struct fairlock_mutex_t {
    /**
     * The library's.
     */
    uint64_t opaque[5];
} fairlock_mutex_t;

/**
 * A range that is held: what its unlock needs. Anywhere in memory, and not initialised before.
 */
typedef struct fairlock_range_hold_t {
    /**
     * The library's.
     */
    uint64_t opaque[6];
} fairlock_range_hold_t;

/**
 * One source that a wait found ready.
 */
typedef struct fairlock_ready_t {
    /**
     * What it was added with.
     */
    uint64_t token;
    /**
     * What it is ready for, of what was asked for: FAIRLOCK_READABLE and so on, together.
     */
    uint32_t readiness;
    /**
     * 0.
     */
    uint32_t reserved;
} fairlock_ready_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes the lock free, as FAIRLOCK_RWLOCK_INITIALIZER does: for memory that is not zero. Nobody may
 * be using it.
 *
 * Errors: EINVAL (null).
 */
int fairlock_rwlock_init(struct fairlock_rwlock_t *lock);

/**
 * Ends the lock's use: it frees nothing, and whoever uses the lock afterwards gets EINVAL until it is
 * initialised again. May be left out.
 *
 * Errors: EINVAL (null, or destroyed already), EBUSY (somebody holds it or waits: nothing is done).
 */
int fairlock_rwlock_destroy(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock for reading, and waits as long as that takes.
 *
 * Errors: EINVAL (null, or destroyed), EDEADLK (the calling thread writes), EAGAIN (more than four
 * million readers hold it).
 */
int fairlock_rwlock_read(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock for reading if that is possible without waiting.
 *
 * Errors: EBUSY (somebody writes, is to write first, or tries to at this moment), EINVAL, EAGAIN.
 */
int fairlock_rwlock_try_read(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock for reading, waiting so many nanoseconds at most.
 *
 * Errors: ETIMEDOUT; otherwise as fairlock_rwlock_read.
 */
int fairlock_rwlock_try_read_for(struct fairlock_rwlock_t *lock, uint64_t nanoseconds);

/**
 * Acquires the lock for reading, waiting until the clock shows the deadline. The clock is
 * CLOCK_MONOTONIC or CLOCK_REALTIME, and may be set meanwhile: one that is set back prolongs the wait,
 * one that is set forward does not shorten it. A lock that is free is taken although the deadline is
 * over.
 *
 * Errors: ETIMEDOUT, EINVAL (also another clock, no deadline, or tv_nsec not below a billion);
 * otherwise as fairlock_rwlock_read.
 */
int fairlock_rwlock_try_read_until(struct fairlock_rwlock_t *lock,
                                   int clock,
                                   const struct timespec *deadline);

/**
 * As fairlock_rwlock_read, for a thread that reads already: it enters past writers that wait, which
 * would otherwise wait for this thread while it waits for them. It makes writers wait longer, so not
 * for others. Each of the acquisitions is unlocked.
 *
 * Errors: as fairlock_rwlock_read.
 */
int fairlock_rwlock_read_recursive(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock for writing, and waits as long as that takes.
 *
 * Errors: EINVAL (null, or destroyed), EDEADLK (the calling thread writes already).
 */
int fairlock_rwlock_write(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock for writing if that is possible without waiting. Of a thread that tries to read and one
 * that tries to write at the same moment neither may get in.
 *
 * Errors: EBUSY (somebody holds it, is to get it first, or tries to at this moment), EINVAL.
 */
int fairlock_rwlock_try_write(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock for writing, waiting so many nanoseconds at most.
 *
 * Errors: ETIMEDOUT; otherwise as fairlock_rwlock_write.
 */
int fairlock_rwlock_try_write_for(struct fairlock_rwlock_t *lock, uint64_t nanoseconds);

/**
 * Acquires the lock for writing, waiting until the clock shows the deadline, as
 * fairlock_rwlock_try_read_until does.
 *
 * Errors: ETIMEDOUT, EINVAL as there; otherwise as fairlock_rwlock_write.
 */
int fairlock_rwlock_try_write_until(struct fairlock_rwlock_t *lock,
                                    int clock,
                                    const struct timespec *deadline);

/**
 * Releases the lock, in whichever way the calling thread holds it. The lock may be gone when this
 * returns, as somebody else may have freed it.
 *
 * Errors: EPERM (nobody holds it, or another thread writes), EINVAL (null, or destroyed). A thread that
 * unlocks what other threads read is not noticed, and spoils the lock.
 */
int fairlock_rwlock_unlock(struct fairlock_rwlock_t *lock);

/**
 * Releases the lock, which the calling thread holds for reading.
 *
 * Errors: EPERM (nobody reads), EINVAL (null, or destroyed). As with fairlock_rwlock_unlock, whose
 * read it is is not known.
 */
int fairlock_rwlock_unlock_read(struct fairlock_rwlock_t *lock);

/**
 * Releases the lock, which the calling thread holds for writing.
 *
 * Errors: EPERM (the calling thread does not write), EINVAL (null, or destroyed).
 */
int fairlock_rwlock_unlock_write(struct fairlock_rwlock_t *lock);

/**
 * Makes the mutex free, as FAIRLOCK_MUTEX_INITIALIZER does: for memory that is not zero. Nobody may be
 * using it.
 *
 * Errors: EINVAL (null).
 */
int fairlock_mutex_init(struct fairlock_mutex_t *mutex);

/**
 * Ends the mutex's use: it frees nothing, and whoever uses the mutex afterwards gets EINVAL until it is
 * initialised again. May be left out.
 *
 * Errors: EINVAL (null, or destroyed already), EBUSY (somebody holds it or waits: nothing is done).
 */
int fairlock_mutex_destroy(struct fairlock_mutex_t *mutex);

/**
 * Acquires the mutex, and waits as long as that takes.
 *
 * Errors: EINVAL (null, or destroyed), EDEADLK (the calling thread holds it).
 */
int fairlock_mutex_lock(struct fairlock_mutex_t *mutex);

/**
 * Acquires the mutex if that is possible without waiting.
 *
 * Errors: EBUSY (somebody holds it, or is to get it first), EINVAL.
 */
int fairlock_mutex_try_lock(struct fairlock_mutex_t *mutex);

/**
 * Acquires the mutex, waiting so many nanoseconds at most.
 *
 * Errors: ETIMEDOUT; otherwise as fairlock_mutex_lock.
 */
int fairlock_mutex_try_lock_for(struct fairlock_mutex_t *mutex, uint64_t nanoseconds);

/**
 * Acquires the mutex, waiting until the clock shows the deadline, as fairlock_rwlock_try_read_until does.
 *
 * Errors: ETIMEDOUT, EINVAL as there; otherwise as fairlock_mutex_lock.
 */
int fairlock_mutex_try_lock_until(struct fairlock_mutex_t *mutex,
                                  int clock,
                                  const struct timespec *deadline);

/**
 * Releases the mutex. It may be gone when this returns, as somebody else may have freed it.
 *
 * Errors: EPERM (the calling thread does not hold it), EINVAL (null, or destroyed).
 */
int fairlock_mutex_unlock(struct fairlock_mutex_t *mutex);

/**
 * A new lock of which nothing is taken; null if there is no memory for it (about 1200 bytes).
 */
struct fairlock_range_lock_t *fairlock_range_lock_new(void);

/**
 * Frees a lock. Its memory is kept for later range locks, so it may be freed as soon as the last unlock
 * has let somebody else in, whether or not that unlock has returned.
 *
 * Errors: EINVAL (null), EBUSY (some of it is held or waited for: nothing is done).
 */
int fairlock_range_lock_free(struct fairlock_range_lock_t *lock);

/**
 * Acquires a range to share, `length` positions from `offset` on, and waits as long as that
 * takes. FAIRLOCK_TO_END is a length, too.
 *
 * Errors: EINVAL (null, a length of 0, or an end beyond UINT64_MAX).
 */
int fairlock_range_read(struct fairlock_range_lock_t *lock,
                        uint64_t offset,
                        uint64_t length,
                        struct fairlock_range_hold_t *hold);

/**
 * Acquires a range to share if that is possible without waiting.
 *
 * Errors: EBUSY (somebody holds some of it, or waits for it first), EINVAL.
 */
int fairlock_range_try_read(struct fairlock_range_lock_t *lock,
                            uint64_t offset,
                            uint64_t length,
                            struct fairlock_range_hold_t *hold);

/**
 * Acquires a range to share, waiting so many nanoseconds at most. A wait that is given up leaves
 * nothing behind.
 *
 * Errors: ETIMEDOUT, EINVAL.
 */
int fairlock_range_try_read_for(struct fairlock_range_lock_t *lock,
                                uint64_t offset,
                                uint64_t length,
                                uint64_t nanoseconds,
                                struct fairlock_range_hold_t *hold);

/**
 * Acquires a range to share, waiting until the clock shows the deadline, as
 * fairlock_rwlock_try_read_until does.
 *
 * Errors: ETIMEDOUT, EINVAL (also as there).
 */
int fairlock_range_try_read_until(struct fairlock_range_lock_t *lock,
                                  uint64_t offset,
                                  uint64_t length,
                                  int clock,
                                  const struct timespec *deadline,
                                  struct fairlock_range_hold_t *hold);

/**
 * Acquires a range to be alone in, and waits as long as that takes.
 *
 * Errors: EINVAL as with fairlock_range_read.
 */
int fairlock_range_write(struct fairlock_range_lock_t *lock,
                         uint64_t offset,
                         uint64_t length,
                         struct fairlock_range_hold_t *hold);

/**
 * Acquires a range to be alone in if that is possible without waiting.
 *
 * Errors: EBUSY (somebody holds some of it, or waits for it first), EINVAL.
 */
int fairlock_range_try_write(struct fairlock_range_lock_t *lock,
                             uint64_t offset,
                             uint64_t length,
                             struct fairlock_range_hold_t *hold);

/**
 * Acquires a range to be alone in, waiting so many nanoseconds at most. A wait that is given up leaves
 * nothing behind.
 *
 * Errors: ETIMEDOUT, EINVAL.
 */
int fairlock_range_try_write_for(struct fairlock_range_lock_t *lock,
                                 uint64_t offset,
                                 uint64_t length,
                                 uint64_t nanoseconds,
                                 struct fairlock_range_hold_t *hold);

/**
 * Acquires a range to be alone in, waiting until the clock shows the deadline, as
 * fairlock_rwlock_try_read_until does.
 *
 * Errors: ETIMEDOUT, EINVAL (also as there).
 */
int fairlock_range_try_write_until(struct fairlock_range_lock_t *lock,
                                   uint64_t offset,
                                   uint64_t length,
                                   int clock,
                                   const struct timespec *deadline,
                                   struct fairlock_range_hold_t *hold);

/**
 * Releases a range, on any thread. The lock may be gone when this returns, as somebody else may have
 * freed it.
 *
 * Errors: EPERM (it was released already), EINVAL (null). A hold must have been acquired once, and of
 * copies only one be released.
 */
int fairlock_range_unlock(struct fairlock_range_hold_t *hold);

/**
 * Goes on sharing a range that the thread was alone in, and lets in those that wait to share it, and
 * nobody in between.
 *
 * Errors: EPERM (it is not held, or not alone), EINVAL (null).
 */
int fairlock_range_downgrade(struct fairlock_range_hold_t *hold);

/**
 * A new counter at `count`: readable while it is not zero, writable while one can be added. What eventfd
 * is, in user space.
 */
struct fairlock_source_t *fairlock_counter_new(uint64_t count);

/**
 * A new event, ready for nothing: for a thing of your own that becomes ready.
 */
struct fairlock_source_t *fairlock_event_new(void);

/**
 * Frees a source, and takes it out of its poll. Nobody else may be using it.
 *
 * Errors: EINVAL (null).
 */
int fairlock_source_free(struct fairlock_source_t *source);

/**
 * Adds to a counter, and tells its poll. Never waits for another thread. What the thread did before is
 * seen by whoever takes the count.
 *
 * Errors: EAGAIN (the sum does not fit: nothing is added), EINVAL (null, or not a counter).
 */
int fairlock_counter_add(struct fairlock_source_t *counter_source,
                         uint64_t count);

/**
 * Takes a counter's count, and leaves zero.
 *
 * Errors: EAGAIN (it is zero), EINVAL (null, or not a counter).
 */
int fairlock_counter_take(struct fairlock_source_t *counter_source, uint64_t *count);

/**
 * Adds to what an event is ready for, and tells its poll: an edge, even if it was ready already. Never
 * waits for another thread.
 *
 * Errors: EINVAL (null, not an event, or bits that mean nothing).
 */
int fairlock_event_set(struct fairlock_source_t *event_source,
                       uint32_t readiness);

/**
 * Takes from what an event is ready for.
 *
 * Errors: as fairlock_event_set.
 */
int fairlock_event_clear(struct fairlock_source_t *event_source, uint32_t readiness);

/**
 * A new poll without sources.
 */
struct fairlock_poll_t *fairlock_poll_new(void);

/**
 * Frees a poll, and lets go of its sources, which live on. Nobody else may be using it.
 *
 * Errors: EINVAL (null), EBUSY (a thread waits: nothing is done).
 */
int fairlock_poll_free(struct fairlock_poll_t *poll);

/**
 * Waits for a source from now on, and reports it as `token` when it is ready for some of `interest`
 * (FAIRLOCK_READABLE and so on, together), as `trigger` says (FAIRLOCK_LEVEL, FAIRLOCK_EDGE or
 * FAIRLOCK_ONCE).
 *
 * Errors: EEXIST (the source is in a poll, this or another), EINVAL.
 */
int fairlock_poll_add(struct fairlock_poll_t *poll,
                      struct fairlock_source_t *source,
                      uint64_t token,
                      uint32_t interest,
                      uint32_t trigger);

/**
 * Changes what is reported of a source, and looks anew: one that is ready is reported once more,
 * whatever the trigger.
 *
 * Errors: ENOENT (the source is not in this poll), EINVAL.
 */
int fairlock_poll_modify(struct fairlock_poll_t *poll,
                         struct fairlock_source_t *source,
                         uint64_t token,
                         uint32_t interest,
                         uint32_t trigger);

/**
 * Waits for a source no longer. Nothing of it is reported to a wait that begins after this has returned.
 *
 * Errors: ENOENT (the source is not in this poll), EINVAL (null).
 */
int fairlock_poll_remove(struct fairlock_poll_t *poll,
                         struct fairlock_source_t *source);

/**
 * Waits until a source is ready, or so many nanoseconds are over; FAIRLOCK_FOR_EVER waits as long as it
 * takes, 0 does not wait. Fills `ready` with what is ready, `capacity` (and 4096) at most and the others
 * next time, in the order in which they became ready, and `count` with how many.
 *
 * Errors: ETIMEDOUT (nothing was ready: the count is 0), EINVAL (null, no capacity, or another negative
 * timeout).
 */
int fairlock_poll_wait(struct fairlock_poll_t *poll,
                       struct fairlock_ready_t *ready,
                       size_t capacity,
                       int64_t nanoseconds,
                       size_t *count);

/**
 * A descriptor that is readable while something may be ready, for epoll, poll or select: when it is, call
 * fairlock_poll_wait with a timeout of 0, until nothing is ready. It belongs to the poll: do not read, write
 * or close it. It is closed on exec.
 *
 * Errors: EINVAL (null), EMFILE and others of the system's where no descriptor can be made.
 */
int fairlock_poll_descriptor(struct fairlock_poll_t *poll,
                             int *descriptor);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FAIRLOCK_H */
