/* What threads unlock and lock when they are about to end: in destructors of keys, one round after the
 * other, and in a handler of atexit(3). */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fairlock.h>

static void expect(int found, int expected, const char *what, int line) {
    if (found != expected) {
        fprintf(stderr, "line %d: %s is %s, not %s\n", line, what, strerror(found),
                strerror(expected));
        _Exit(1);
    }
}
#define EXPECT(expected, call) expect(call, expected, #call, __LINE__)
#define OK(call) EXPECT(0, call)

enum { LOCKS = 6 }; /* More than a thread has slots. */
static fairlock_rwlock_t locks[LOCKS];
static fairlock_rwlock_t kept = FAIRLOCK_RWLOCK_INITIALIZER;

/* So often that readers use slots from then on, if nobody writes meanwhile. */
static void warm(fairlock_rwlock_t *lock) {
    for (int i = 0; i < 300; i++) {
        OK(fairlock_rwlock_read(lock));
        OK(fairlock_rwlock_unlock_read(lock));
    }
}

static void *warm_all(void *nothing) {
    for (int i = 0; i < LOCKS; i++) {
        warm(&locks[i]);
    }
    return nothing;
}

static void *write_and_unlock(void *lock) {
    OK(fairlock_rwlock_try_write_for(lock, 10000000000));
    OK(fairlock_rwlock_unlock_write(lock));
    return NULL;
}

static void *is_busy(void *lock) {
    EXPECT(EBUSY, fairlock_rwlock_try_write(lock));
    return NULL;
}

static void in_another_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    OK(pthread_create(&thread, NULL, body, argument));
    OK(pthread_join(thread, NULL));
}

/* What a thread still does after its body, one step in each round of destructors. */
struct late {
    pthread_key_t key;
    int rounds;
    void (*step)(struct late *, int round);
};

static void destructor(void *data) {
    struct late *late = data;
    int round = late->rounds++;
    if (round + 1 < PTHREAD_DESTRUCTOR_ITERATIONS) {
        OK(pthread_setspecific(late->key, late));
    }
    late->step(late, round);
}

/* Ends the reads of all locks, each of which is held twice, in another order than they were acquired. */
static void unlock_step(struct late *late, int round) {
    (void)late;
    fairlock_rwlock_t *lock = &locks[(LOCKS - 1 - round) % LOCKS];
    in_another_thread(is_busy, lock);
    OK(fairlock_rwlock_unlock_read(lock));
    in_another_thread(is_busy, lock);
    OK(fairlock_rwlock_unlock_read(lock));
    in_another_thread(write_and_unlock, lock);
    if (round + 1 == PTHREAD_DESTRUCTOR_ITERATIONS) {
        for (int i = 0; i < LOCKS - PTHREAD_DESTRUCTOR_ITERATIONS; i++) {
            OK(fairlock_rwlock_unlock_read(&locks[i]));
            in_another_thread(is_busy, &locks[i]);
            OK(fairlock_rwlock_unlock_read(&locks[i]));
            in_another_thread(write_and_unlock, &locks[i]);
            EXPECT(EPERM, fairlock_rwlock_unlock_read(&locks[i]));
        }
    }
}

/* Reads that begin in a destructor, within reads that began before and beside them. */
static void lock_step(struct late *late, int round) {
    (void)late;
    fairlock_rwlock_t *held = &locks[0], *other = &locks[1 + round];
    warm(other);
    OK(fairlock_rwlock_read_recursive(held));
    OK(fairlock_rwlock_read(other));
    in_another_thread(is_busy, other);
    OK(fairlock_rwlock_unlock_read(held));
    in_another_thread(is_busy, held);
    OK(fairlock_rwlock_unlock_read(other));
    in_another_thread(write_and_unlock, other);
    if (round + 1 == PTHREAD_DESTRUCTOR_ITERATIONS) {
        OK(fairlock_rwlock_unlock_read(held));
        in_another_thread(write_and_unlock, held);
    }
}

static void *read_all_twice(void *late) {
    for (int i = 0; i < LOCKS; i++) {
        OK(fairlock_rwlock_read(&locks[i]));
        OK(fairlock_rwlock_read(&locks[i]));
    }
    OK(pthread_setspecific(((struct late *)late)->key, late));
    return NULL;
}

static void *read_one(void *late) {
    OK(fairlock_rwlock_read(&locks[0]));
    OK(pthread_setspecific(((struct late *)late)->key, late));
    return NULL;
}

static void *read_nothing(void *late) {
    OK(pthread_setspecific(((struct late *)late)->key, late));
    return NULL;
}

/* The thread's first read is in a destructor. */
static void first_step(struct late *late, int round) {
    if (round == 0) {
        OK(fairlock_rwlock_read(&locks[0]));
    }
    lock_step(late, round);
}

/* A thread that ends in the middle of another one's last unlocks takes nothing away from it, nor is
 * anything taken away from it. */
static void *come_and_go(void *lock) {
    OK(fairlock_rwlock_read(lock));
    OK(fairlock_rwlock_unlock_read(lock));
    return NULL;
}

static void *read_and_unlock_later(void *argument) {
    pthread_barrier_t *there = argument;
    OK(fairlock_rwlock_read(&kept));
    pthread_barrier_wait(there);
    pthread_barrier_wait(there);
    OK(fairlock_rwlock_unlock_read(&kept));
    return NULL;
}

/* By now another thread reads the same lock, perhaps in the very slots that were this thread's. */
static void unlock_while_another_reads_step(struct late *late, int round) {
    (void)late;
    if (round != 1) {
        return;
    }
    OK(fairlock_rwlock_unlock_read(&kept));
    pthread_barrier_t there;
    OK(pthread_barrier_init(&there, NULL, 2));
    pthread_t reader;
    OK(pthread_create(&reader, NULL, read_and_unlock_later, &there));
    pthread_barrier_wait(&there);
    /* One by the semaphore, as this thread has ended. */
    OK(fairlock_rwlock_read(&kept));
    OK(fairlock_rwlock_unlock_read(&kept));
    in_another_thread(is_busy, &kept);
    in_another_thread(come_and_go, &kept);
    in_another_thread(is_busy, &kept);
    pthread_barrier_wait(&there);
    OK(pthread_join(reader, NULL));
    OK(pthread_barrier_destroy(&there));
    in_another_thread(write_and_unlock, &kept);
}

static void *read_kept(void *late) {
    warm(&kept);
    OK(fairlock_rwlock_read(&kept));
    OK(pthread_setspecific(((struct late *)late)->key, late));
    return NULL;
}

static void ends(void *(*body)(void *), void (*step)(struct late *, int)) {
    struct late late = { .rounds = 0, .step = step };
    OK(pthread_key_create(&late.key, destructor));
    in_another_thread(body, &late);
    if (late.rounds != PTHREAD_DESTRUCTOR_ITERATIONS) {
        fprintf(stderr, "%d rounds of destructors\n", late.rounds);
        _Exit(1);
    }
    OK(pthread_key_delete(late.key));
}

static void at_exit(void) {
    in_another_thread(is_busy, &kept);
    OK(fairlock_rwlock_unlock_read(&kept));
    in_another_thread(is_busy, &kept);
    OK(fairlock_rwlock_unlock_read(&kept));
    in_another_thread(write_and_unlock, &kept);
    /* And what begins there. */
    warm(&kept);
    OK(fairlock_rwlock_read(&kept));
    in_another_thread(is_busy, &kept);
    OK(fairlock_rwlock_unlock_read(&kept));
    in_another_thread(write_and_unlock, &kept);
}

int main(void) {
    if (PTHREAD_DESTRUCTOR_ITERATIONS >= LOCKS) {
        return 0;
    }
    OK(atexit(at_exit));
    for (int times = 0; times < 20; times++) {
        /* Before and after the main thread has slots of its own. */
        if (times % 2) {
            warm_all(NULL);
        } else {
            in_another_thread(warm_all, NULL);
        }
        ends(read_all_twice, unlock_step);
        warm(&locks[0]);
        ends(read_one, lock_step);
        warm(&locks[0]);
        ends(read_nothing, first_step);
        ends(read_kept, unlock_while_another_reads_step);
    }
    warm(&kept);
    OK(fairlock_rwlock_read(&kept));
    OK(fairlock_rwlock_read(&kept));
    exit(0);
}
