/*
 * A table that many threads read and few write, under a lock that lies in it.
 *
 *   cc -std=c11 rwlock.c $(pkg-config --cflags --libs fairlock) && ./a.out
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <fairlock.h>

enum { READERS = 3, WRITERS = 2, ROUNDS = 20000 };

/* Under the lock `low` and `high` are equal. */
static struct {
    fairlock_rwlock_t lock;
    unsigned long low, high;
} table = { .lock = FAIRLOCK_RWLOCK_INITIALIZER };

static void *read_often(void *torn) {
    for (int round = 0; round < ROUNDS; round++) {
        fairlock_rwlock_read(&table.lock);
        if (table.low != table.high) {
            *(int *)torn += 1;
        }
        fairlock_rwlock_unlock_read(&table.lock);
    }
    return NULL;
}

static void *write_often(void *unused) {
    for (int round = 0; round < ROUNDS; round++) {
        fairlock_rwlock_write(&table.lock);
        table.low++;
        table.high++;
        fairlock_rwlock_unlock_write(&table.lock);
    }
    return unused;
}

static void *read_soon(void *code) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_nsec += 1000000;
    if (deadline.tv_nsec >= 1000000000) {
        deadline.tv_nsec -= 1000000000;
        deadline.tv_sec++;
    }
    *(int *)code = fairlock_rwlock_try_read_until(&table.lock, CLOCK_REALTIME, &deadline);
    return NULL;
}

int main(void) {
    pthread_t threads[READERS + WRITERS];
    int torn[READERS] = { 0 };
    for (int i = 0; i < READERS + WRITERS; i++) {
        int failed = i < READERS ? pthread_create(&threads[i], NULL, read_often, &torn[i])
                                 : pthread_create(&threads[i], NULL, write_often, NULL);
        if (failed) {
            fprintf(stderr, "no thread: %s\n", strerror(failed));
            return 1;
        }
    }
    int torn_reads = 0;
    for (int i = 0; i < READERS + WRITERS; i++) {
        pthread_join(threads[i], NULL);
        torn_reads += i < READERS ? torn[i] : 0;
    }

    /* While one thread writes, another's time runs out. */
    int code = 0;
    pthread_t late;
    fairlock_rwlock_write(&table.lock);
    if (pthread_create(&late, NULL, read_soon, &code)) {
        return 1;
    }
    pthread_join(late, NULL);
    fairlock_rwlock_unlock(&table.lock);

    printf("%lu writes, %d torn reads; %s\n", table.low, torn_reads, strerror(code));
    return table.low == WRITERS * ROUNDS && torn_reads == 0 && code == ETIMEDOUT ? 0 : 1;
}
