/* Threads that wait for each other on a condition variable. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <fairlock.h>

#define OK(call) must(call, 0, #call, __LINE__)
#define MUST(expected, call) must(call, expected, #call, __LINE__)

static void must(int found, int expected, const char *what, int line) {
    if (found != expected) {
        fprintf(stderr, "line %d: %s is %s, not %s\n", line, what, strerror(found),
                strerror(expected));
        exit(1);
    }
}

static fairlock_mutex_t mutex = FAIRLOCK_MUTEX_INITIALIZER;
static fairlock_cond_t changed = FAIRLOCK_COND_INITIALIZER;

enum { WAITERS = 4, ROUNDS = 3000 };

/* Changes under the mutex. */
static int waiting, next_to_go, turn;
static int order[WAITERS];

static void *wait_once(void *number) {
    OK(fairlock_mutex_lock(&mutex));
    waiting++;
    OK(fairlock_cond_wait(&changed, &mutex));
    order[next_to_go++] = (int)(long)number;
    OK(fairlock_mutex_unlock(&mutex));
    return NULL;
}

/* Waits until this many threads wait, and returns with the mutex held. */
static void await(const int *count, int expected) {
    for (;;) {
        OK(fairlock_mutex_lock(&mutex));
        if (*count == expected) {
            return;
        }
        OK(fairlock_mutex_unlock(&mutex));
        sched_yield();
    }
}

static void start(pthread_t *thread, void *(*work)(void *), long number) {
    OK(pthread_create(thread, NULL, work, (void *)number));
}

/* One signal, one thread, and the one that has waited longest. */
static void first_come_first_served(void) {
    pthread_t threads[WAITERS];
    for (int i = 0; i < WAITERS; i++) {
        start(&threads[i], wait_once, i);
        await(&waiting, i + 1);
        OK(fairlock_mutex_unlock(&mutex));
    }
    for (int i = 0; i < WAITERS - 2; i++) {
        OK(fairlock_cond_signal(&changed));
        OK(pthread_join(threads[i], NULL));
        MUST(i, order[i]);
    }
    OK(fairlock_mutex_lock(&mutex));
    OK(fairlock_cond_broadcast(&changed));
    MUST(WAITERS - 2, next_to_go);
    OK(fairlock_mutex_unlock(&mutex));
    for (int i = WAITERS - 2; i < WAITERS; i++) {
        OK(pthread_join(threads[i], NULL));
    }
    MUST(WAITERS, next_to_go);
}

static void *take_turns(void *number) {
    for (int round = 0; round < ROUNDS; round++) {
        OK(fairlock_mutex_lock(&mutex));
        while (turn % WAITERS != (int)(long)number) {
            /* By all functions that wait. */
            int code = round % 3 == 0   ? fairlock_cond_wait(&changed, &mutex)
                       : round % 3 == 1 ? fairlock_cond_wait_for(&changed, &mutex, UINT64_MAX)
                                        : fairlock_cond_wait_for(&changed, &mutex, 10000);
            MUST(round % 3 == 2 && code != 0 ? ETIMEDOUT : 0, code);
        }
        turn++;
        OK(fairlock_cond_broadcast(&changed));
        OK(fairlock_mutex_unlock(&mutex));
    }
    return NULL;
}

static void no_notification_is_lost(void) {
    pthread_t threads[WAITERS];
    for (int i = 0; i < WAITERS; i++) {
        start(&threads[i], take_turns, i);
    }
    for (int i = 0; i < WAITERS; i++) {
        OK(pthread_join(threads[i], NULL));
    }
    MUST(WAITERS * ROUNDS, turn);
}

static void deadlines(void) {
    struct timespec past = { 1, 0 };
    OK(fairlock_mutex_lock(&mutex));
    MUST(ETIMEDOUT, fairlock_cond_wait_for(&changed, &mutex, 0));
    MUST(ETIMEDOUT, fairlock_cond_wait_for(&changed, &mutex, 1000));
    MUST(ETIMEDOUT, fairlock_cond_wait_until(&changed, &mutex, CLOCK_MONOTONIC, &past));
    MUST(ETIMEDOUT, fairlock_cond_wait_until(&changed, &mutex, CLOCK_REALTIME, &past));
    OK(fairlock_mutex_unlock(&mutex)); /* held after each */
}

static uint32_t interrupted;
static int interruptions;

static void *wait_for_interruption(void *unused) {
    OK(fairlock_mutex_lock(&mutex));
    waiting++;
    MUST(ECANCELED, fairlock_cond_wait_for_unless(&changed, &mutex, UINT64_MAX, &interrupted));
    interruptions++;
    OK(fairlock_mutex_unlock(&mutex));
    return unused;
}

/* The thread that interrupts does not need the mutex, and may have it. */
static void interruption(int with_mutex) {
    pthread_t thread;
    waiting = interruptions = 0;
    interrupted = 0;
    start(&thread, wait_for_interruption, 0);
    await(&waiting, 1);
    if (!with_mutex) {
        OK(fairlock_mutex_unlock(&mutex));
    }
    OK(fairlock_cond_interrupt(&changed, &interrupted));
    if (with_mutex) {
        MUST(0, interruptions);
        OK(fairlock_mutex_unlock(&mutex));
    }
    OK(pthread_join(thread, NULL));
    MUST(1, interruptions);
    OK(fairlock_mutex_lock(&mutex));
    MUST(ECANCELED, fairlock_cond_wait_for_unless(&changed, &mutex, UINT64_MAX, &interrupted));
    OK(fairlock_mutex_unlock(&mutex));
}

/* At whatever moment it comes. */
static void no_interruption_is_lost(void) {
    for (int round = 0; round < ROUNDS / 10; round++) {
        pthread_t thread;
        interrupted = 0;
        start(&thread, wait_for_interruption, 0);
        for (volatile int moment = 0; moment < round * 50; moment++) {
        }
        OK(fairlock_cond_interrupt(&changed, &interrupted));
        OK(pthread_join(thread, NULL));
    }
}

int main(void) {
    first_come_first_served();
    no_notification_is_lost();
    deadlines();
    interruption(0);
    interruption(1);
    no_interruption_is_lost();
    OK(fairlock_cond_destroy(&changed));
    OK(fairlock_mutex_destroy(&mutex));
    return 0;
}
