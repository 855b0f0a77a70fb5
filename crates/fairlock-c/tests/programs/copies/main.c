/* Two copies of the library in one process use the same locks: those of the libraries that are named, or
 * that of the program (linked with copy.c, OWN) and that of the one that is named. */
#define _POSIX_C_SOURCE 200809L

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "copies.h"

static void expect(int found, int expected, const char *what, int line) {
    if (found != expected) {
        fprintf(stderr, "line %d: %s is %s, not %s\n", line, what, strerror(found),
                strerror(expected));
        exit(1);
    }
}
#define EXPECT(expected, call) expect(call, expected, #call, __LINE__)
#define OK(call) EXPECT(0, call)

static const struct copy *load(const char *path, void **handle) {
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = *handle == NULL ? NULL : dlsym(*handle, "this_copy");
    if (symbol == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    const struct copy *(*of_library)(void);
    memcpy(&of_library, &symbol, sizeof symbol);
    return of_library();
}

static void readers_and_writers(fairlock_rwlock_t *lock, const struct copy *a,
                                const struct copy *b) {
    OK(a->read(lock));
    EXPECT(EBUSY, b->try_write(lock));
    OK(b->read(lock));
    OK(a->unlock_read(lock));
    EXPECT(EBUSY, a->try_write(lock));
    EXPECT(EBUSY, b->try_write(lock));
    OK(a->unlock_read(lock));
    OK(b->try_write(lock));
    EXPECT(EBUSY, a->try_read(lock));
    EXPECT(EDEADLK, a->write(lock));
    OK(a->unlock_write(lock));
}

static void *read_often(void *lock_and_copy) {
    void **both = lock_and_copy;
    fairlock_rwlock_t *lock = both[0];
    const struct copy *copy = both[1];
    for (int i = 0; i < 300; i++) {
        OK(copy->read(lock));
        OK(copy->unlock_read(lock));
    }
    return NULL;
}

static void mutexes(const struct copy *a, const struct copy *b) {
    fairlock_mutex_t mutex = FAIRLOCK_MUTEX_INITIALIZER;
    OK(a->lock(&mutex));
    EXPECT(EBUSY, b->try_lock(&mutex));
    EXPECT(EDEADLK, b->lock(&mutex));
    OK(b->unlock(&mutex));
}

static struct {
    const struct copy *copy;
    fairlock_mutex_t mutex;
    fairlock_cond_t changed;
    int is_set;
} awaited;

static void *wait_by_a_copy(void *unused) {
    OK(awaited.copy->lock(&awaited.mutex));
    while (!awaited.is_set) {
        OK(awaited.copy->cond_wait(&awaited.changed, &awaited.mutex));
    }
    OK(awaited.copy->unlock(&awaited.mutex));
    return unused;
}

static void conditions(const struct copy *a, const struct copy *b) {
    pthread_t waiter;
    awaited.copy = a;
    awaited.is_set = 0;
    OK(pthread_create(&waiter, NULL, wait_by_a_copy, NULL));
    OK(b->lock(&awaited.mutex));
    awaited.is_set = 1;
    OK(b->unlock(&awaited.mutex));
    OK(b->cond_signal(&awaited.changed));
    OK(pthread_join(waiter, NULL));
}

static void ranges(const struct copy *a, const struct copy *b) {
    fairlock_range_lock_t *lock = a->range_new();
    fairlock_range_hold_t hold, other;
    OK(a->range_read(lock, 0, 10, &hold));
    EXPECT(EBUSY, b->range_try_write(lock, 9, 1, &other));
    OK(b->range_try_write(lock, 10, 1, &other));
    OK(b->range_unlock(&hold));
    OK(a->range_unlock(&other));
    OK(b->range_free(lock));
}

static void polls(const struct copy *a, const struct copy *b) {
    fairlock_poll_t *poll = a->poll_new();
    fairlock_source_t *counter = b->counter_new(0);
    OK(b->poll_add(poll, counter, 7, FAIRLOCK_READABLE, FAIRLOCK_LEVEL));
    OK(a->counter_add(counter, 1));
    fairlock_ready_t ready;
    size_t count;
    OK(b->poll_wait(poll, &ready, 1, 10000000000, &count));
    EXPECT(7, (int)ready.token);
    OK(a->source_free(counter));
    OK(b->poll_free(poll));
}

static fairlock_rwlock_t crowded;
static long first_half, second_half;

/* Waits for threads that are in by the other copy, and is waited for. */
static void *in_a_crowd(void *data) {
    const struct copy *copy = data;
    for (int i = 0; i < 5000; i++) {
        if (i % 4 == 0) {
            OK(copy->write(&crowded));
            first_half++;
            second_half++;
            OK(copy->unlock_write(&crowded));
        } else {
            OK(copy->read(&crowded));
            EXPECT(0, first_half != second_half);
            OK(copy->unlock_read(&crowded));
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        return 2;
    }
    void *handles[2] = { NULL, NULL };
#ifdef OWN
    const struct copy *a = this_copy(), *b = load(argv[1], &handles[1]);
#else
    const struct copy *a = load(argv[1], &handles[0]), *b = load(argv[2], &handles[1]);
#endif
#ifndef VISIBLE /* Where the dynamic linker prefers the program's functions. */
    if (a->read == b->read) {
        fprintf(stderr, "there is only one copy\n");
        return 1;
    }
#endif
    static fairlock_rwlock_t lock;
    readers_and_writers(&lock, a, b);
    /* Once more where readers use slots. */
    pthread_t threads[4];
    void *lock_and_copy[2] = { &lock, (void *)a };
    OK(pthread_create(&threads[0], NULL, read_often, lock_and_copy));
    OK(pthread_join(threads[0], NULL));
    readers_and_writers(&lock, a, b);
    readers_and_writers(&lock, b, a);
    mutexes(a, b);
    conditions(a, b);
    conditions(b, a);
    ranges(a, b);
    polls(b, a);
    for (int i = 0; i < 4; i++) {
        OK(pthread_create(&threads[i], NULL, in_a_crowd, (void *)(i % 2 ? a : b)));
    }
    for (int i = 0; i < 4; i++) {
        OK(pthread_join(threads[i], NULL));
    }
    EXPECT(5000, (int)first_half);
    /* The first copy goes on serving when nobody asks for it any more. */
    OK(a->read(&lock));
    if (handles[0] != NULL) {
        OK(dlclose(handles[0]));
    }
    EXPECT(EBUSY, b->try_write(&lock));
    OK(b->unlock_read(&lock));
    OK(b->try_write(&lock));
    OK(b->unlock_write(&lock));
    return 0;
}
