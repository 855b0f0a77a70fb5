/*
 * For checkers of races: a correct program that uses every lock. With the argument `race` two threads write a
 * variable under different locks; with `order` they acquire two locks in opposite orders.
 *
 *   cc -std=c11 -g -fsanitize=thread checkers.c $(pkg-config --cflags --libs fairlock) && ./a.out
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fairlock.h>

enum { THREADS = 3, ROUNDS = 300 };

static fairlock_rwlock_t lock = FAIRLOCK_RWLOCK_INITIALIZER;
static fairlock_mutex_t mutex = FAIRLOCK_MUTEX_INITIALIZER;
static fairlock_process_shared_t shared = FAIRLOCK_PROCESS_SHARED_INITIALIZER;
static fairlock_range_lock_t *ranges;

/* What each of them protects. */
static struct {
    long low, high;
} by_lock, by_shared;
static long by_mutex, by_upgradable, by_range[4];

static int failures;

static void *use_locks(void *number) {
    const long self = (long)number;
    for (int round = 0; round < ROUNDS; round++) {
        fairlock_rwlock_read(&lock);
        fairlock_rwlock_read_recursive(&lock);
        int torn = by_lock.low != by_lock.high;
        fairlock_rwlock_unlock_read(&lock);
        fairlock_rwlock_unlock(&lock);

        if (round % 4 == 0) {
            fairlock_rwlock_write(&lock);
            by_lock.low++;
            by_lock.high++;
            if (round % 8 == 0) {
                fairlock_rwlock_downgrade(&lock);
                torn |= by_lock.low != by_lock.high;
            }
            fairlock_rwlock_unlock(&lock);
        }
        if (round % 4 == 1 && fairlock_rwlock_try_write_for(&lock, 10000) == 0) {
            by_lock.low++;
            by_lock.high++;
            fairlock_rwlock_unlock_write(&lock);
        }
        if (round % 4 == 2) {
            fairlock_rwlock_upgradable(&lock);
            torn |= by_lock.low != by_lock.high;
            by_upgradable++; /* one thread at a time is here */
            if (fairlock_rwlock_try_upgrade_for(&lock, 20000) == 0) {
                by_lock.low++;
                by_lock.high++;
                fairlock_rwlock_downgrade_to_upgradable(&lock);
            }
            fairlock_rwlock_unlock_upgradable(&lock);
        }

        fairlock_mutex_lock(&mutex);
        by_mutex += torn ? 0 : 1;
        fairlock_mutex_unlock(&mutex);

        fairlock_process_shared_write(&shared);
        by_shared.low++;
        by_shared.high++;
        fairlock_process_shared_unlock_write(&shared);

        fairlock_range_hold_t hold;
        fairlock_range_write(ranges, self, 2, &hold); /* overlaps with that of the next thread */
        by_range[self]++;
        by_range[self + 1]++;
        fairlock_range_unlock(&hold);
    }
    return NULL;
}

static fairlock_poll_t *sources;
static fairlock_source_t *counter, *to, *from;

static void *produce(void *unused) {
    for (int round = 0; round < ROUNDS; round++) {
        int *message = malloc(sizeof *message);
        *message = round;
        while (fairlock_channel_send(to, message) != 0) {
            sched_yield();
        }
        fairlock_counter_add(counter, 1);
    }
    return unused;
}

static void consume(void) {
    long received = 0, counted = 0;
    while (received < THREADS * ROUNDS || counted < THREADS * ROUNDS) {
        fairlock_ready_t ready[2];
        size_t count;
        fairlock_poll_wait(sources, ready, 2, FAIRLOCK_FOR_EVER, &count);
        for (size_t i = 0; i < count; i++) {
            uint64_t some;
            void *message;
            if (ready[i].token == 1 && fairlock_counter_take(counter, &some) == 0) {
                counted += (long)some;
            } else if (ready[i].token == 2 && fairlock_channel_receive(from, &message) == 0) {
                received += *(int *)message >= 0;
                free(message);
            }
        }
    }
}

/* An object that its last user frees, with the lock in it. */
struct object {
    fairlock_mutex_t mutex;
    int users;
    int value;
};

static void *use_object(void *object) {
    struct object *mine = object;
    fairlock_mutex_lock(&mine->mutex);
    mine->value++;
    int left = --mine->users;
    fairlock_mutex_unlock(&mine->mutex);
    if (left == 0) {
        free(mine);
    }
    return NULL;
}

static fairlock_cond_t turned = FAIRLOCK_COND_INITIALIZER;
static long turn;

static void *take_turns(void *number) {
    for (int round = 0; round < ROUNDS / 10; round++) {
        fairlock_mutex_lock(&mutex);
        while (turn % THREADS != (long)number) {
            if (round % 2 == 0) {
                fairlock_cond_wait(&turned, &mutex);
            } else {
                fairlock_cond_wait_for(&turned, &mutex, 20000);
            }
        }
        turn++;
        fairlock_cond_broadcast(&turned);
        fairlock_mutex_unlock(&mutex);
    }
    return NULL;
}

static void in_threads(void *(*work)(void *), void *argument) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, argument ? argument : (void *)i)) {
            abort();
        }
    }
    if (work == produce) {
        consume();
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static fairlock_rwlock_t others[2];
static long raced;

static void *race(void *which) {
    for (int round = 0; round < ROUNDS; round++) {
        fairlock_rwlock_write(&others[(long)which % 2]);
        raced++;
        fairlock_rwlock_unlock_write(&others[(long)which % 2]);
    }
    return NULL;
}

static void *acquire_both(void *first) {
    fairlock_rwlock_t *one = &others[(long)first], *other = &others[1 - (long)first];
    fairlock_rwlock_write(one);
    fairlock_rwlock_write(other);
    fairlock_rwlock_unlock_write(other);
    fairlock_rwlock_unlock_write(one);
    return NULL;
}

int main(int count, char **arguments) {
    const char *wrong = count > 1 ? arguments[1] : "";
    if (strcmp(wrong, "race") == 0) {
        in_threads(race, NULL);
        return 0;
    }
    if (strcmp(wrong, "order") == 0) {
        for (long first = 0; first < 2; first++) { /* one after the other: it does not deadlock this time */
            pthread_t thread;
            if (pthread_create(&thread, NULL, acquire_both, (void *)first)) {
                return 1;
            }
            pthread_join(thread, NULL);
        }
        return 0;
    }

    ranges = fairlock_range_lock_new();
    in_threads(use_locks, NULL);
    failures += by_lock.low != by_lock.high || by_mutex != THREADS * ROUNDS;
    failures += by_shared.low != THREADS * ROUNDS || by_range[0] != ROUNDS;
    failures += fairlock_range_lock_free(ranges) != 0;

    in_threads(take_turns, NULL);
    failures += turn != THREADS * ROUNDS / 10;

    sources = fairlock_poll_new();
    counter = fairlock_counter_new(0);
    failures += fairlock_channel_new(8, &to, &from) != 0;
    failures += fairlock_poll_add(sources, counter, 1, FAIRLOCK_READABLE, FAIRLOCK_EDGE) != 0;
    failures += fairlock_poll_add(sources, from, 2, FAIRLOCK_READABLE, FAIRLOCK_LEVEL) != 0;
    in_threads(produce, sources);
    fairlock_source_free(counter);
    fairlock_source_free(to);
    fairlock_source_free(from);
    failures += fairlock_poll_free(sources) != 0;

    for (int round = 0; round < 10; round++) {
        struct object *object = calloc(1, sizeof *object);
        object->users = THREADS;
        in_threads(use_object, object);
    }
    printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
