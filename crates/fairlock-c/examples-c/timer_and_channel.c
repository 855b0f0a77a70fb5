/*
 * A thread that receives work through a channel and does something else at times, and waits for both at once.
 *
 *   cc -std=c11 timer_and_channel.c $(pkg-config --cflags --libs fairlock) && ./a.out
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <fairlock.h>

enum { SENDERS = 2, MESSAGES = 5000, TIMER = 1, WORK = 2 };

static fairlock_source_t *work_in, *work_out;

static void *send(void *unused) {
    fairlock_poll_t *room = unused;
    for (int i = 0; i < MESSAGES; i++) {
        int *message = malloc(sizeof *message);
        *message = i;
        while (fairlock_channel_send(work_in, message) == EAGAIN) {
            fairlock_ready_t ready;
            size_t count;
            fairlock_poll_wait(room, &ready, 1, FAIRLOCK_FOR_EVER, &count);
        }
    }
    return NULL;
}

int main(void) {
    fairlock_poll_t *poll = fairlock_poll_new(), *room = fairlock_poll_new();
    fairlock_source_t *timer = fairlock_timer_new();
    if (fairlock_channel_new(16, &work_in, &work_out) != 0 ||
        fairlock_poll_add(room, work_in, 0, FAIRLOCK_WRITABLE, FAIRLOCK_LEVEL) != 0 ||
        fairlock_poll_add(poll, work_out, WORK, FAIRLOCK_READABLE, FAIRLOCK_LEVEL) != 0 ||
        fairlock_poll_add(poll, timer, TIMER, FAIRLOCK_READABLE, FAIRLOCK_LEVEL) != 0 ||
        fairlock_timer_set_every(timer, 1000000, 1000000) != 0) { /* each millisecond */
        return 1;
    }
    pthread_t threads[SENDERS];
    for (int i = 0; i < SENDERS; i++) {
        if (pthread_create(&threads[i], NULL, send, room)) {
            return 1;
        }
    }

    long long sum = 0;
    int received = 0;
    uint64_t ticks = 0;
    while (received < SENDERS * MESSAGES || ticks == 0) {
        fairlock_ready_t ready[2];
        size_t count;
        if (fairlock_poll_wait(poll, ready, 2, FAIRLOCK_FOR_EVER, &count) != 0) {
            return 1;
        }
        for (size_t i = 0; i < count; i++) {
            uint64_t some = 0;
            void *message;
            if (ready[i].token == TIMER) {
                fairlock_timer_take(timer, &some);
                ticks += some;
            } else if (fairlock_channel_receive(work_out, &message) == 0) {
                sum += *(int *)message;
                received++;
                free(message);
            }
        }
    }
    for (int i = 0; i < SENDERS; i++) {
        pthread_join(threads[i], NULL);
    }

    int failures = sum != (long long)SENDERS * MESSAGES * (MESSAGES - 1) / 2;
    uint64_t none;
    failures += fairlock_timer_cancel(timer) != 0 || fairlock_timer_take(timer, &none) != EAGAIN;
    /* Once the sending end is gone, the receiving one says so. */
    void *message;
    failures += fairlock_channel_receive(work_out, &message) != EAGAIN;
    failures += fairlock_source_free(work_in) != 0;
    failures += fairlock_channel_receive(work_out, &message) != EPIPE;
    fairlock_source_free(work_out);
    fairlock_source_free(timer);
    failures += fairlock_poll_free(room) != 0 || fairlock_poll_free(poll) != 0;
    printf("%d messages, %s, %d failures\n", received, ticks > 0 ? "ticks" : "no tick", failures);
    return failures == 0 ? 0 : 1;
}
