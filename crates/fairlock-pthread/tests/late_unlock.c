/* A thread that ends unlocks what it reads in destructors of keys, in every round of them, and takes other
 * locks there; the main thread does so in a handler of atexit(3). Exits with 0 if that is as with glibc. */
#define _GNU_SOURCE

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void expect(int found, int expected, const char *what, int line) {
    if (found != expected) {
        fprintf(stderr, "line %d: %s is %s, not %s\n", line, what, strerror(found),
                strerror(expected));
        _exit(1);
    }
}
#define EXPECT(expected, call) expect(call, expected, #call, __LINE__)
#define OK(call) EXPECT(0, call)

enum { ROUNDS = 4 };
static pthread_rwlock_t locks[ROUNDS] = {
    PTHREAD_RWLOCK_INITIALIZER,
    PTHREAD_RWLOCK_INITIALIZER,
    PTHREAD_RWLOCK_INITIALIZER,
    PTHREAD_RWLOCK_INITIALIZER,
};
static pthread_rwlock_t other = PTHREAD_RWLOCK_INITIALIZER;
static pthread_key_t key;
static int round_of_destructors;

static void *warm(void *lock) {
    for (int i = 0; i < 300; i++) {
        OK(pthread_rwlock_rdlock(lock));
        OK(pthread_rwlock_unlock(lock));
    }
    return NULL;
}

static void *write_and_unlock(void *lock) {
    struct timespec soon;
    OK(clock_gettime(CLOCK_REALTIME, &soon));
    soon.tv_sec += 10;
    OK(pthread_rwlock_timedwrlock(lock, &soon));
    OK(pthread_rwlock_unlock(lock));
    return NULL;
}

static void *is_busy(void *lock) {
    EXPECT(EBUSY, pthread_rwlock_trywrlock(lock));
    return NULL;
}

static void in_another_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    OK(pthread_create(&thread, NULL, body, argument));
    OK(pthread_join(thread, NULL));
}

/* Each lock is held twice. */
static void unlock_both(pthread_rwlock_t *lock) {
    in_another_thread(is_busy, lock);
    OK(pthread_rwlock_unlock(lock));
    in_another_thread(is_busy, lock);
    OK(pthread_rwlock_unlock(lock));
    in_another_thread(write_and_unlock, lock);
}

static void destructor(void *data) {
    pthread_rwlock_t *lock = &locks[round_of_destructors++];
    if (round_of_destructors < ROUNDS) {
        OK(pthread_setspecific(key, data));
    }
    warm(&other);
    OK(pthread_rwlock_rdlock(&other));
    OK(pthread_rwlock_rdlock(lock)); /* Within its own reads. */
    in_another_thread(is_busy, &other);
    OK(pthread_rwlock_unlock(lock));
    OK(pthread_rwlock_unlock(&other));
    in_another_thread(write_and_unlock, &other);
    unlock_both(lock);
}

static void *read_all_twice(void *data) {
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_rwlock_rdlock(&locks[i]));
        OK(pthread_rwlock_rdlock(&locks[i]));
    }
    OK(pthread_setspecific(key, data));
    return NULL;
}

static void at_exit(void) {
    for (int i = 0; i < ROUNDS; i++) {
        unlock_both(&locks[i]);
    }
}

int main(void) {
    if (PTHREAD_DESTRUCTOR_ITERATIONS != ROUNDS) {
        return 0;
    }
    alarm(600);
    OK(atexit(at_exit));
    OK(pthread_key_create(&key, destructor));
    for (int times = 0; times < 20; times++) {
        for (int i = 0; i < ROUNDS; i++) {
            in_another_thread(warm, &locks[i]);
        }
        round_of_destructors = 0;
        in_another_thread(read_all_twice, &locks);
        EXPECT(ROUNDS, round_of_destructors);
    }
    for (int i = 0; i < ROUNDS; i++) {
        warm(&locks[i]);
    }
    read_all_twice(NULL);
    exit(0);
}
