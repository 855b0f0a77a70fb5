/*
 * A thread that waits for the first of many sources, which other threads signal; and the same poll in
 * the system's poll(2).
 *
 *   cc -std=c11 ready.c $(pkg-config --cflags --libs fairlock) && ./a.out
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>

#include <fairlock.h>

enum { PRODUCERS = 3, ROUNDS = 20000 };

static fairlock_source_t *counters[PRODUCERS];

static void *produce(void *counter) {
    for (int round = 0; round < ROUNDS; round++) {
        if (fairlock_counter_add(counter, 1) != 0) {
            return counter;
        }
    }
    return NULL;
}

/* Takes what is ready, and answers how much. */
static unsigned long long take(const fairlock_ready_t *ready, size_t count) {
    unsigned long long taken = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t some = 0;
        if (fairlock_counter_take(counters[ready[i].token], &some) == 0) {
            taken += some;
        }
    }
    return taken;
}

int main(void) {
    fairlock_poll_t *sources = fairlock_poll_new();
    pthread_t threads[PRODUCERS];
    for (uint64_t i = 0; i < PRODUCERS; i++) {
        counters[i] = fairlock_counter_new(0);
        if (fairlock_poll_add(sources, counters[i], i, FAIRLOCK_READABLE, FAIRLOCK_LEVEL) != 0) {
            return 1;
        }
        if (pthread_create(&threads[i], NULL, produce, counters[i])) {
            return 1;
        }
    }

    unsigned long long taken = 0;
    fairlock_ready_t ready[8];
    size_t count;
    while (taken < PRODUCERS * ROUNDS / 2) {
        if (fairlock_poll_wait(sources, ready, 8, FAIRLOCK_FOR_EVER, &count) != 0) {
            return 1;
        }
        taken += take(ready, count);
    }

    /* The other half with the descriptor. */
    struct pollfd watched = { .events = POLLIN };
    if (fairlock_poll_descriptor(sources, &watched.fd) != 0) {
        return 1;
    }
    while (taken < PRODUCERS * ROUNDS) {
        if (poll(&watched, 1, -1) < 0 && errno != EINTR) {
            return 1;
        }
        while (fairlock_poll_wait(sources, ready, 8, 0, &count) == 0) {
            taken += take(ready, count);
        }
    }

    for (int i = 0; i < PRODUCERS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        fairlock_source_free(counters[i]);
        if (failed != NULL) {
            return 1;
        }
    }
    printf("%llu signals\n", taken);
    return fairlock_poll_free(sources) == 0 && taken == PRODUCERS * ROUNDS ? 0 : 1;
}
