/*
 * Threads that move amounts between the records of an array: each locks the two records alone, and a
 * reader of all of it sees every amount once.
 *
 *   cc -std=c11 range.c $(pkg-config --cflags --libs fairlock) && ./a.out
 */
#include <pthread.h>
#include <stdio.h>

#include <fairlock.h>

enum { RECORDS = 64, MOVERS = 3, ROUNDS = 20000, AMOUNT = 100 };

static fairlock_range_lock_t *lock;
static long records[RECORDS];

static void *move_amounts(void *seed) {
    unsigned state = *(unsigned *)seed;
    for (int round = 0; round < ROUNDS; round++) {
        state = state * 1103515245u + 12345u;
        /* Neighbours, so that both are one range: nobody waits for one while holding another. */
        unsigned first = (state >> 16) % (RECORDS - 1);
        fairlock_range_hold_t hold;
        if (fairlock_range_write(lock, first, 2, &hold) != 0) {
            return seed;
        }
        records[first]--;
        records[first + 1]++;
        fairlock_range_unlock(&hold);
    }
    return NULL;
}

static long sum(void) {
    fairlock_range_hold_t hold;
    if (fairlock_range_read(lock, 0, FAIRLOCK_TO_END, &hold) != 0) {
        return -1;
    }
    long all = 0;
    for (int i = 0; i < RECORDS; i++) {
        all += records[i];
    }
    fairlock_range_unlock(&hold);
    return all;
}

int main(void) {
    lock = fairlock_range_lock_new();
    if (lock == NULL) {
        return 1;
    }
    for (int i = 0; i < RECORDS; i++) {
        records[i] = AMOUNT;
    }
    pthread_t threads[MOVERS];
    unsigned seeds[MOVERS];
    for (int i = 0; i < MOVERS; i++) {
        seeds[i] = 17u + (unsigned)i;
        if (pthread_create(&threads[i], NULL, move_amounts, &seeds[i])) {
            return 1;
        }
    }
    int wrong = 0;
    for (int round = 0; round < 1000; round++) {
        wrong += sum() != RECORDS * AMOUNT;
    }
    for (int i = 0; i < MOVERS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        wrong += failed != NULL;
    }
    printf("%d wrong sums, %ld at the end\n", wrong, sum());
    wrong += sum() != RECORDS * AMOUNT;
    return fairlock_range_lock_free(lock) == 0 && wrong == 0 ? 0 : 1;
}
