/*
 * Fairlock: locks that stay fair and fast under contention, for C11 and later; for C++ see fairlock.hpp.
 *
 * Every function that returns an int returns 0, or a number of <errno.h> that says why it did
 * nothing, or why its wait ended; errno itself may change. Functions list the numbers that they
 * return, except one: range locks and polls return ENOTRECOVERABLE if Fairlock itself has a bug.
 * Then a message has been printed, and the object must not be used again.
 *
 * A pointer is NULL, which gives EINVAL, or points to what its type says. Unless a function says
 * otherwise, any thread may call it at any time, but not in a signal handler. Do not cancel a thread with
 * pthread_cancel while it is in a function.
 *
 * After fork the child has its parent's locks as they were: locks that other threads held stay held.
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

/* A condition variable without waiters. */
#define FAIRLOCK_COND_INITIALIZER { { 0 } }

/* A lock for memory that processes share, free. */
#define FAIRLOCK_PROCESS_SHARED_INITIALIZER { { 0 } }


/**
 * As a length: all from the offset on.
 */
#define FAIRLOCK_TO_END UINT64_MAX

/**
 * There is something to read or to receive.
 */
#define FAIRLOCK_READABLE 1

/**
 * There is space to write or to send.
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
 * Something that threads signal and that a poll waits for: a counter, an event, a timer, or an end of a channel.
 * It is in one poll at a time.
 */
typedef struct fairlock_source_t fairlock_source_t;

/**
 * A reader-writer lock: any number of readers, or one writer. 64 bytes, anywhere in memory; a free
 * one is all zero, so FAIRLOCK_RWLOCK_INITIALIZER, static memory and calloc make one.
 *
 * Beside the readers one thread may hold it upgradable: it looks first, and becomes the writer, if it has to,
 * without letting go; nobody writes in between. And a writer may become a reader or the upgradable holder.
 *
 * While both readers and writers want it, each side has it for about as long as the other. Threads that come
 * later pass a waiting thread until its side is owed 16 wake-ups, or for as long as it has been ahead, at most
 * 16 ms; for 6 ms more if many readers came at the same moment. Waiting threads sleep.
 * The lock's memory may be freed as soon as its last unlock has allowed another thread to acquire it,
 * whether or not that unlock has returned. Not for memory that processes share: see fairlock_process_shared_t.
 *
 * A thread that reads, or holds it upgradable, and asks to read again may wait for ever, if a writer has queued in between: see
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
 * A thread that finds it held spins for a while, then sleeps in the order of arrival. An unlock wakes the
 * thread that has waited longest. That thread competes with newcomers, which pass it for at most 4 ms. The
 * mutex's memory may be freed as soon as its last unlock has allowed another thread to acquire it, whether
 * or not that unlock has returned. Not for memory that processes share.
 */
typedef struct fairlock_mutex_t {
    /**
     * The library's.
     */
    uint64_t opaque[5];
} fairlock_mutex_t;

/**
 * A condition variable: threads wait for something that other threads change under a
 * fairlock_mutex_t. 32 bytes, anywhere in memory; one without waiters is all zero, so
 * FAIRLOCK_COND_INITIALIZER, static memory and calloc make one.
 *
 * Threads are notified in the order in which they began to wait. A wait returns 0 only if its
 * thread was notified: there are no spurious wake-ups. But another thread may have changed the
 * data by the time this one has the mutex again, so look at them again. A signal or broadcast
 * that finds no waiter costs one load. It may come before or after the unlock of the mutex.
 *
 * All threads that wait at the same time use the same mutex. The condition variable's memory may
 * be freed as soon as its last waiter was notified, whether or not that signal or broadcast has
 * returned. In the child of a fork, initialise it again if threads waited. Not for memory that
 * processes share.
 */
typedef struct fairlock_cond_t {
    /**
     * The library's.
     */
    uint64_t opaque[4];
} fairlock_cond_t;

/**
 * A reader-writer lock for memory that several processes map, at whatever address: 32 bytes. All zero it is
 * free, so FAIRLOCK_PROCESS_SHARED_INITIALIZER, new pages of shm_open or mmap, and static memory are free locks.
 *
 * Readers and writers take turns: a reader that waits for a writer is next, and no other thread writes more than
 * twice before a writer that waits. At most 262143 readers, over all processes. Waiting threads sleep. Threads of
 * one process may use it, too, but a fairlock_rwlock_t is faster for them.
 *
 * The lock's memory may be freed as soon as its last unlock has allowed another thread to acquire it, whether or
 * not that unlock has returned. All processes must use the same version of Fairlock, built for the same
 * architecture. Not robust: if a process ends while a thread of it holds the lock or waits, others may wait for
 * ever.
 *
 * The lock knows neither which threads read nor which thread writes.
 */
typedef struct fairlock_process_shared_t {
    /**
     * The library's.
     */
    uint64_t opaque[4];
} fairlock_process_shared_t;

/**
 * A held range: what its unlock needs. It may be anywhere in memory and need not be initialised.
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
     * What it is ready for, among what was asked for: FAIRLOCK_READABLE and so on, combined.
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
 * Makes the lock free, as FAIRLOCK_RWLOCK_INITIALIZER does, in memory that is not zero. No thread may be
 * using it.
 *
 * Errors: EINVAL (null).
 */
int fairlock_rwlock_init(struct fairlock_rwlock_t *lock);

/**
 * Ends the lock's use. It frees nothing: every use of the lock afterwards returns EINVAL until it is
 * initialised again. Optional.
 *
 * Errors: EINVAL (null, or destroyed already), EBUSY (a thread holds it or waits: nothing is done).
 */
int fairlock_rwlock_destroy(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock for reading, and waits for as long as necessary.
 *
 * Errors: EINVAL (null, or destroyed), EDEADLK (the calling thread writes), EAGAIN (more than four
 * million readers hold it).
 */
int fairlock_rwlock_read(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock for reading if that is possible without waiting.
 *
 * Errors: EBUSY (a thread writes, is to write first, or tries to write at this moment), EINVAL, EAGAIN.
 */
int fairlock_rwlock_try_read(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock for reading, waiting for at most so many nanoseconds.
 *
 * Errors: ETIMEDOUT; otherwise as fairlock_rwlock_read.
 */
int fairlock_rwlock_try_read_for(struct fairlock_rwlock_t *lock, uint64_t nanoseconds);

/**
 * Acquires the lock for reading, waiting until the clock shows the deadline. The clock is
 * CLOCK_MONOTONIC or CLOCK_REALTIME. If it is set back meanwhile the wait becomes longer; if it is set
 * forward the wait does not become shorter. A free lock is acquired even if the deadline is over.
 *
 * Errors: ETIMEDOUT, EINVAL (also another clock, no deadline, or tv_nsec not below a billion);
 * otherwise as fairlock_rwlock_read.
 */
int fairlock_rwlock_try_read_until(struct fairlock_rwlock_t *lock,
                                   int clock,
                                   const struct timespec *deadline);

/**
 * As fairlock_rwlock_read, for a thread that already reads: it passes waiting writers, which would
 * otherwise wait for this thread while it waits for them. It makes writers wait longer, so other threads
 * should not use it. Unlock each of the acquisitions.
 *
 * Errors: as fairlock_rwlock_read.
 */
int fairlock_rwlock_read_recursive(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock for writing, and waits for as long as necessary.
 *
 * Errors: EINVAL (null, or destroyed), EDEADLK (the calling thread writes already, or holds it upgradable: see
 * fairlock_rwlock_upgrade). A thread that reads and asks to write waits for itself for ever.
 */
int fairlock_rwlock_write(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock for writing if that is possible without waiting. If one thread tries to read and
 * another tries to write at the same moment, both may fail.
 *
 * Errors: EBUSY (a thread holds it, is to get it first, or tries to at this moment), EINVAL.
 */
int fairlock_rwlock_try_write(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock for writing, waiting for at most so many nanoseconds.
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
 * Releases the lock, which the calling thread holds for reading, upgradable or for writing; if it reads
 * and holds it upgradable, too, then the latter. The lock may be gone when this returns, since another
 * thread may have freed it.
 *
 * Errors: EPERM (nobody holds it, or another thread writes), EINVAL (null, or destroyed). To unlock a lock
 * that only other threads read is not detected, and breaks the lock.
 */
int fairlock_rwlock_unlock(struct fairlock_rwlock_t *lock);

/**
 * Releases the lock, which the calling thread holds for reading.
 *
 * Errors: EPERM (nobody reads), EINVAL (null, or destroyed). As with fairlock_rwlock_unlock, the lock does
 * not know which threads read.
 */
int fairlock_rwlock_unlock_read(struct fairlock_rwlock_t *lock);

/**
 * Releases the lock, which the calling thread holds for writing.
 *
 * Errors: EPERM (the calling thread does not write), EINVAL (null, or destroyed).
 */
int fairlock_rwlock_unlock_write(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock upgradable, beside readers, and waits for as long as necessary: while another thread writes
 * or holds it upgradable. A try_read of other threads succeeds meanwhile.
 *
 * Errors: EINVAL (null, or destroyed), EDEADLK (the calling thread writes, or holds it upgradable already).
 */
int fairlock_rwlock_upgradable(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock upgradable if that is possible without waiting.
 *
 * Errors: EBUSY (a thread writes or holds it upgradable, or is to get it first), EINVAL.
 */
int fairlock_rwlock_try_upgradable(struct fairlock_rwlock_t *lock);

/**
 * Acquires the lock upgradable, waiting for at most so many nanoseconds.
 *
 * Errors: ETIMEDOUT; otherwise as fairlock_rwlock_upgradable.
 */
int fairlock_rwlock_try_upgradable_for(struct fairlock_rwlock_t *lock, uint64_t nanoseconds);

/**
 * Acquires the lock upgradable, waiting until the clock shows the deadline, as
 * fairlock_rwlock_try_read_until does.
 *
 * Errors: ETIMEDOUT, EINVAL as there; otherwise as fairlock_rwlock_upgradable.
 */
int fairlock_rwlock_try_upgradable_until(struct fairlock_rwlock_t *lock,
                                         int clock,
                                         const struct timespec *deadline);

/**
 * Releases the lock, which the calling thread holds upgradable.
 *
 * Errors: EPERM (the calling thread does not hold it upgradable), EINVAL (null, or destroyed).
 */
int fairlock_rwlock_unlock_upgradable(struct fairlock_rwlock_t *lock);

/**
 * Makes the calling thread, which holds the lock upgradable, its writer. Waits until the readers have left;
 * from now on none enters. Nobody writes in between. If the thread reads, too, it waits for itself for ever.
 *
 * Errors: EPERM (the calling thread does not hold it upgradable), EINVAL (null, or destroyed).
 */
int fairlock_rwlock_upgrade(struct fairlock_rwlock_t *lock);

/**
 * The same, if no thread reads. Otherwise the calling thread still holds the lock upgradable.
 *
 * Errors: EBUSY (a thread reads, or tries to at this moment); otherwise as fairlock_rwlock_upgrade.
 */
int fairlock_rwlock_try_upgrade(struct fairlock_rwlock_t *lock);

/**
 * The same, waiting for at most so many nanoseconds. If they are over, the calling thread still holds the lock
 * upgradable, and readers enter again.
 *
 * Errors: ETIMEDOUT; otherwise as fairlock_rwlock_upgrade.
 */
int fairlock_rwlock_try_upgrade_for(struct fairlock_rwlock_t *lock,
                                    uint64_t nanoseconds);

/**
 * The same, waiting until the clock shows the deadline, as fairlock_rwlock_try_read_until does.
 *
 * Errors: ETIMEDOUT, EINVAL as there; otherwise as fairlock_rwlock_upgrade.
 */
int fairlock_rwlock_try_upgrade_until(struct fairlock_rwlock_t *lock,
                                      int clock,
                                      const struct timespec *deadline);

/**
 * Makes the calling thread, which holds the lock for writing or upgradable, a reader: unlock it as one. Readers
 * that wait may enter at once. Nobody writes in between. Never waits.
 *
 * Errors: EPERM (the calling thread holds it neither for writing nor upgradable), EINVAL (null, or destroyed).
 */
int fairlock_rwlock_downgrade(struct fairlock_rwlock_t *lock);

/**
 * Makes the calling thread, which holds the lock for writing, its upgradable holder. Readers that wait may
 * enter at once. Nobody writes in between. Never waits.
 *
 * Errors: EPERM (the calling thread does not write), EINVAL (null, or destroyed).
 */
int fairlock_rwlock_downgrade_to_upgradable(struct fairlock_rwlock_t *lock);

/**
 * Makes the mutex free, as FAIRLOCK_MUTEX_INITIALIZER does, in memory that is not zero. No thread may be
 * using it.
 *
 * Errors: EINVAL (null).
 */
int fairlock_mutex_init(struct fairlock_mutex_t *mutex);

/**
 * Ends the mutex's use. It frees nothing: every use of the mutex afterwards returns EINVAL until it is
 * initialised again. Optional.
 *
 * Errors: EINVAL (null, or destroyed already), EBUSY (a thread holds it or waits: nothing is done).
 */
int fairlock_mutex_destroy(struct fairlock_mutex_t *mutex);

/**
 * Acquires the mutex, and waits for as long as necessary.
 *
 * Errors: EINVAL (null, or destroyed), EDEADLK (the calling thread holds it).
 */
int fairlock_mutex_lock(struct fairlock_mutex_t *mutex);

/**
 * Acquires the mutex if that is possible without waiting.
 *
 * Errors: EBUSY (a thread holds it, or is to get it first), EINVAL.
 */
int fairlock_mutex_try_lock(struct fairlock_mutex_t *mutex);

/**
 * Acquires the mutex, waiting for at most so many nanoseconds.
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
 * Releases the mutex. It may be gone when this returns, since another thread may have freed it.
 *
 * Errors: EPERM (the calling thread does not hold it), EINVAL (null, or destroyed).
 */
int fairlock_mutex_unlock(struct fairlock_mutex_t *mutex);

/**
 * Makes a condition variable without waiters, as FAIRLOCK_COND_INITIALIZER does, in memory that
 * is not zero. No thread may be using it.
 *
 * Errors: EINVAL (null).
 */
int fairlock_cond_init(struct fairlock_cond_t *cond);

/**
 * Ends the condition variable's use. It frees nothing: every use afterwards returns EINVAL until
 * it is initialised again. Optional.
 *
 * Errors: EINVAL (null, or destroyed already), EBUSY (a thread waits: nothing is done).
 */
int fairlock_cond_destroy(struct fairlock_cond_t *cond);

/**
 * Releases the mutex, which the calling thread holds, waits until the thread is notified, and
 * acquires the mutex again.
 *
 * Errors: EPERM (the calling thread does not hold the mutex), EBUSY (threads wait with another
 * mutex), EINVAL (null, or destroyed; if the mutex was destroyed during the wait, it is not
 * held).
 */
int fairlock_cond_wait(struct fairlock_cond_t *cond,
                       struct fairlock_mutex_t *mutex);

/**
 * As fairlock_cond_wait, waiting for a notification for at most this many nanoseconds. Acquiring
 * the mutex again takes as long as necessary.
 *
 * Errors: ETIMEDOUT (the mutex is held again); otherwise as fairlock_cond_wait.
 */
int fairlock_cond_wait_for(struct fairlock_cond_t *cond,
                           struct fairlock_mutex_t *mutex,
                           uint64_t nanoseconds);

/**
 * As fairlock_cond_wait, waiting for a notification until the clock shows the deadline, as
 * fairlock_rwlock_try_read_until does. Acquiring the mutex again takes as long as necessary.
 *
 * Errors: ETIMEDOUT (the mutex is held again), EINVAL as there; otherwise as fairlock_cond_wait.
 */
int fairlock_cond_wait_until(struct fairlock_cond_t *cond,
                             struct fairlock_mutex_t *mutex,
                             int clock,
                             const struct timespec *deadline);

/**
 * As fairlock_cond_wait_for, but the wait also ends when fairlock_cond_interrupt has set
 * `*interrupted`, before the wait or during it. The flag is 0 at first. Only these two functions
 * may touch it while threads wait.
 *
 * Errors: ECANCELED (it was interrupted: the mutex is held again, and the thread may have been
 * notified, too); otherwise as fairlock_cond_wait_for.
 */
int fairlock_cond_wait_for_unless(struct fairlock_cond_t *cond,
                                  struct fairlock_mutex_t *mutex,
                                  uint64_t nanoseconds,
                                  const uint32_t *interrupted);

/**
 * Notifies the thread that has waited longest, if a thread waits.
 *
 * Errors: EINVAL (null, or destroyed).
 */
int fairlock_cond_signal(struct fairlock_cond_t *cond);

/**
 * Notifies all threads that wait at this moment.
 *
 * Errors: EINVAL (null, or destroyed).
 */
int fairlock_cond_broadcast(struct fairlock_cond_t *cond);

/**
 * Sets `*interrupted` to 1, which ends the waits of fairlock_cond_wait_for_unless with that
 * flag, and notifies all threads that wait at this moment. Never waits for the mutex, and no
 * wait misses it: the caller need not hold the mutex. The condition variable must exist until
 * this returns.
 *
 * Errors: EINVAL (null, or destroyed).
 */
int fairlock_cond_interrupt(struct fairlock_cond_t *cond,
                            uint32_t *interrupted);

/**
 * Makes the lock free, in memory that is not zero. No thread of any process may be using it.
 *
 * Errors: EINVAL (null).
 */
int fairlock_process_shared_init(struct fairlock_process_shared_t *lock);

/**
 * Ends the lock's use, for all processes. It frees nothing: every use of the lock afterwards returns EINVAL until
 * it is initialised again. Optional.
 *
 * Errors: EINVAL (null, or destroyed already), EBUSY (a thread holds it or waits: nothing is done).
 */
int fairlock_process_shared_destroy(struct fairlock_process_shared_t *lock);

/**
 * Acquires the lock for reading, and waits for as long as necessary. A thread that reads and asks to read again
 * may wait for ever, if a writer waits: see fairlock_process_shared_read_recursive.
 *
 * Errors: EINVAL (null, or destroyed), EAGAIN (as many readers as there can be hold it, or wait).
 */
int fairlock_process_shared_read(struct fairlock_process_shared_t *lock);

/**
 * Acquires the lock for reading if that is possible without waiting.
 *
 * Errors: EBUSY (a thread writes, or waits to), EINVAL, EAGAIN.
 */
int fairlock_process_shared_try_read(struct fairlock_process_shared_t *lock);

/**
 * Acquires the lock for reading, waiting for at most so many nanoseconds.
 *
 * Errors: ETIMEDOUT; otherwise as fairlock_process_shared_read.
 */
int fairlock_process_shared_try_read_for(struct fairlock_process_shared_t *lock,
                                         uint64_t nanoseconds);

/**
 * Acquires the lock for reading, waiting until the clock shows the deadline, as fairlock_rwlock_try_read_until
 * does.
 *
 * Errors: ETIMEDOUT, EINVAL as there; otherwise as fairlock_process_shared_read.
 */
int fairlock_process_shared_try_read_until(struct fairlock_process_shared_t *lock,
                                           int clock,
                                           const struct timespec *deadline);

/**
 * As fairlock_process_shared_read, for a thread that already reads: it passes waiting writers. Unlock each of the
 * acquisitions.
 *
 * Errors: as fairlock_process_shared_read.
 */
int fairlock_process_shared_read_recursive(struct fairlock_process_shared_t *lock);

/**
 * Acquires the lock for writing, and waits for as long as necessary. A thread that holds it waits for itself for
 * ever.
 *
 * Errors: EINVAL (null, or destroyed).
 */
int fairlock_process_shared_write(struct fairlock_process_shared_t *lock);

/**
 * Acquires the lock for writing if that is possible without waiting.
 *
 * Errors: EBUSY (a thread holds it), EINVAL.
 */
int fairlock_process_shared_try_write(struct fairlock_process_shared_t *lock);

/**
 * Acquires the lock for writing, waiting for at most so many nanoseconds.
 *
 * Errors: ETIMEDOUT, EINVAL.
 */
int fairlock_process_shared_try_write_for(struct fairlock_process_shared_t *lock,
                                          uint64_t nanoseconds);

/**
 * Acquires the lock for writing, waiting until the clock shows the deadline, as fairlock_rwlock_try_read_until
 * does.
 *
 * Errors: ETIMEDOUT, EINVAL (also as there).
 */
int fairlock_process_shared_try_write_until(struct fairlock_process_shared_t *lock,
                                            int clock,
                                            const struct timespec *deadline);

/**
 * Releases the lock, which the calling thread holds for reading. The lock may be gone when this returns.
 *
 * Errors: EPERM (nobody reads), EINVAL (null, or destroyed). To unlock a lock that only others read is not
 * detected, and breaks the lock.
 */
int fairlock_process_shared_unlock_read(struct fairlock_process_shared_t *lock);

/**
 * Releases the lock, which the calling thread holds for writing. The lock may be gone when this returns.
 *
 * Errors: EPERM (nobody writes), EINVAL (null, or destroyed). To unlock a lock that another thread writes is
 * not detected, and breaks the lock.
 */
int fairlock_process_shared_unlock_write(struct fairlock_process_shared_t *lock);

/**
 * A new lock of which no range is held; null if there is no memory for it (about 1200 bytes).
 */
struct fairlock_range_lock_t *fairlock_range_lock_new(void);

/**
 * Frees a lock. Its memory is kept for later range locks, so it may be freed as soon as the last unlock has
 * allowed another thread to acquire a range, whether or not that unlock has returned.
 *
 * Errors: EINVAL (null), EBUSY (a range of it is held or waited for: nothing is done).
 */
int fairlock_range_lock_free(struct fairlock_range_lock_t *lock);

/**
 * Acquires a range shared: `length` positions from `offset` on. Waits for as long as necessary.
 * FAIRLOCK_TO_END is a length, too.
 *
 * Errors: EINVAL (null, a length of 0, or an end beyond UINT64_MAX).
 */
int fairlock_range_read(struct fairlock_range_lock_t *lock,
                        uint64_t offset,
                        uint64_t length,
                        struct fairlock_range_hold_t *hold);

/**
 * Acquires a range shared if that is possible without waiting.
 *
 * Errors: EBUSY (another thread holds some of it exclusively, or waited for it earlier), EINVAL.
 */
int fairlock_range_try_read(struct fairlock_range_lock_t *lock,
                            uint64_t offset,
                            uint64_t length,
                            struct fairlock_range_hold_t *hold);

/**
 * Acquires a range shared, waiting for at most so many nanoseconds. A wait that runs out of time leaves no
 * trace.
 *
 * Errors: ETIMEDOUT, EINVAL.
 */
int fairlock_range_try_read_for(struct fairlock_range_lock_t *lock,
                                uint64_t offset,
                                uint64_t length,
                                uint64_t nanoseconds,
                                struct fairlock_range_hold_t *hold);

/**
 * Acquires a range shared, waiting until the clock shows the deadline, as
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
 * Acquires a range exclusively, and waits for as long as necessary.
 *
 * Errors: EINVAL as with fairlock_range_read.
 */
int fairlock_range_write(struct fairlock_range_lock_t *lock,
                         uint64_t offset,
                         uint64_t length,
                         struct fairlock_range_hold_t *hold);

/**
 * Acquires a range exclusively if that is possible without waiting.
 *
 * Errors: EBUSY (another thread holds some of it, or waited for it earlier), EINVAL.
 */
int fairlock_range_try_write(struct fairlock_range_lock_t *lock,
                             uint64_t offset,
                             uint64_t length,
                             struct fairlock_range_hold_t *hold);

/**
 * Acquires a range exclusively, waiting for at most so many nanoseconds. A wait that runs out of time
 * leaves no trace.
 *
 * Errors: ETIMEDOUT, EINVAL.
 */
int fairlock_range_try_write_for(struct fairlock_range_lock_t *lock,
                                 uint64_t offset,
                                 uint64_t length,
                                 uint64_t nanoseconds,
                                 struct fairlock_range_hold_t *hold);

/**
 * Acquires a range exclusively, waiting until the clock shows the deadline, as
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
 * Releases a range, on any thread. The lock may be gone when this returns, since another thread may have
 * freed it.
 *
 * Errors: EPERM (it was released already), EINVAL (null). The hold must come from an acquisition; if it was
 * copied, release only one of the copies.
 */
int fairlock_range_unlock(struct fairlock_range_hold_t *hold);

/**
 * Turns an exclusive range into a shared one. Threads that wait to share it acquire it, and nobody acquires it
 * exclusively in between.
 *
 * Errors: EPERM (it is not held, or not held exclusively), EINVAL (null).
 */
int fairlock_range_downgrade(struct fairlock_range_hold_t *hold);

/**
 * A new counter with the value `count`: readable while it is not zero, writable while one can be added. It
 * is to user space what eventfd is to the kernel.
 */
struct fairlock_source_t *fairlock_counter_new(uint64_t count);

/**
 * A new event, ready for nothing, for your own purposes.
 */
struct fairlock_source_t *fairlock_event_new(void);

/**
 * A new timer that is not set. It is readable from when its time has come until it is taken, set anew or
 * cancelled. Its clock is CLOCK_MONOTONIC. It is never early, and costs no descriptor and no system call of
 * its own: it is to user space what timerfd is to the kernel.
 */
struct fairlock_source_t *fairlock_timer_new(void);

/**
 * A new channel with room for so many messages, which are pointers. Its two ends are sources: the sending one is
 * writable while there is room, the receiving one readable while there is a message; each is closed once the other
 * was freed. Any thread may use either; senders do not wait for each other. Free both.
 *
 * Errors: EINVAL (null, no capacity, or one of more than 2^24 - 1), ENOMEM.
 */
int fairlock_channel_new(size_t capacity,
                         struct fairlock_source_t **sending_end,
                         struct fairlock_source_t **receiving_end);

/**
 * Frees a source, and removes it from its poll. No other thread may be using it. What was sent through a channel
 * and not received is forgotten: so receive until that says EAGAIN or EPIPE first, if messages have to be
 * freed.
 *
 * Errors: EINVAL (null).
 */
int fairlock_source_free(struct fairlock_source_t *source);

/**
 * Adds to a counter, and signals its poll. Never waits for another thread. The thread that takes the count
 * sees everything that this thread did before.
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
 * Adds to what an event is ready for, and signals its poll: an edge, even if it was ready already. Never
 * waits for another thread.
 *
 * Errors: EINVAL (null, not an event, or unknown bits).
 */
int fairlock_event_set(struct fairlock_source_t *event_source,
                       uint32_t readiness);

/**
 * Removes from what an event is ready for.
 *
 * Errors: as fairlock_event_set.
 */
int fairlock_event_clear(struct fairlock_source_t *event_source, uint32_t readiness);

/**
 * Sets a timer to expire once, after so many nanoseconds. Forgets expirations that were not taken, as
 * everything does that sets or cancels the timer. Any thread may set it, whether or not another one waits.
 *
 * Errors: EINVAL (null, or not a timer).
 */
int fairlock_timer_set_after(struct fairlock_source_t *timer_source,
                             uint64_t nanoseconds);

/**
 * Sets a timer to expire once, when CLOCK_MONOTONIC shows the deadline; at once if that is over.
 *
 * Errors: EINVAL (null, not a timer, or tv_nsec not below a billion).
 */
int fairlock_timer_set_at(struct fairlock_source_t *timer_source, const struct timespec *deadline);

/**
 * Sets a timer to expire after `first` nanoseconds, and then every `period` nanoseconds. Its moments do not
 * shift, however late it is looked at.
 *
 * Errors: EINVAL (null, not a timer, or a period of 0).
 */
int fairlock_timer_set_every(struct fairlock_source_t *timer_source,
                             uint64_t first,
                             uint64_t period);

/**
 * Cancels a timer, set or not.
 *
 * Errors: EINVAL (null, or not a timer).
 */
int fairlock_timer_cancel(struct fairlock_source_t *timer_source);

/**
 * Takes how often a timer has expired since it was set or last taken.
 *
 * Errors: EAGAIN (it has not), EINVAL (null, or not a timer).
 */
int fairlock_timer_take(struct fairlock_source_t *timer_source, uint64_t *expirations);

/**
 * Sends a message, which may be null, and signals the receiving end's poll. Never waits for another thread. The
 * thread that receives it sees everything that this thread did before. Messages of one thread arrive in
 * their order.
 *
 * Errors: EAGAIN (there is no room), EPIPE (the receiving end was freed), EINVAL (null, or not a sending end).
 */
int fairlock_channel_send(struct fairlock_source_t *sending_end,
                          void *message);

/**
 * Receives the next message, if there is one. Threads that receive at once wait for each other for a moment.
 *
 * Errors: EAGAIN (there is none), EPIPE (there is none, and the sending end was freed), EINVAL (null, or not a
 * receiving end).
 */
int fairlock_channel_receive(struct fairlock_source_t *receiving_end,
                             void **message);

/**
 * A new poll without sources.
 */
struct fairlock_poll_t *fairlock_poll_new(void);

/**
 * Frees a poll and removes its sources from it, but does not free them. No other thread may be using it.
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
 * Changes what is reported of a source, and looks at it again: if it is ready it is reported once more,
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
 * Removes a source from the poll. No wait that begins after this has returned reports it.
 *
 * Errors: ENOENT (the source is not in this poll), EINVAL (null).
 */
int fairlock_poll_remove(struct fairlock_poll_t *poll, struct fairlock_source_t *source);

/**
 * Waits until a source is ready, or until so many nanoseconds are over. FAIRLOCK_FOR_EVER waits for as long as
 * necessary, 0 does not wait. Fills `ready` with the sources that are ready, in the order in which they became
 * ready, and `count` with their number: at most `capacity`, and at most 4096. The next wait reports the
 * others.
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
 * A descriptor that is readable while something may be ready, for epoll, poll or select. When it is
 * readable, call fairlock_poll_wait with a timeout of 0 until nothing is ready. The descriptor belongs to the
 * poll: do not read, write or close it. It is closed on exec.
 *
 * Errors: EINVAL (null), EMFILE and others of the system's if no descriptor can be made.
 */
int fairlock_poll_descriptor(struct fairlock_poll_t *poll,
                             int *descriptor);

/**
 * Tells checkers of races that a lock is gone, of any kind, which was not destroyed: its memory becomes
 * something else. Only memory needs it that is never given back to free, such as the stack, where they would take the
 * next lock at the same place for the same lock. It does nothing else, and nothing where no checker is. See the
 * page on checkers in the book.
 *
 * Errors: EINVAL (null).
 */
int fairlock_lock_ends(const void *lock);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FAIRLOCK_H */
