/*
 * A table that threads look at first, and change only if they have to: with the lock held upgradable, others
 * read meanwhile, and nobody writes between the look and the change.
 *
 *   cc -std=c11 upgrade.c $(pkg-config --cflags --libs fairlock) && ./a.out
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include <fairlock.h>

enum { THREADS = 4, ROUNDS = 2000, SLOTS = 500 };

static struct {
    fairlock_rwlock_t lock;
    int filled[SLOTS];
    int changes;
} table = { .lock = FAIRLOCK_RWLOCK_INITIALIZER };

static void *fill(void *failed) {
    for (int round = 0; round < ROUNDS; round++) {
        int slot = round % SLOTS;
        fairlock_rwlock_upgradable(&table.lock);
        if (table.filled[slot]) {
            fairlock_rwlock_unlock_upgradable(&table.lock);
            continue;
        }
        fairlock_rwlock_upgrade(&table.lock);
        table.filled[slot]++;
        table.changes++;
        fairlock_rwlock_downgrade(&table.lock); /* to reading: what was written is still there */
        if (table.filled[slot] != 1) {
            *(int *)failed = 1;
        }
        fairlock_rwlock_unlock_read(&table.lock);
    }
    return NULL;
}

static void *others(void *unused) {
    (void)unused;
    static int codes[4];
    codes[0] = fairlock_rwlock_try_upgradable(&table.lock); /* one at a time */
    codes[1] = fairlock_rwlock_try_read(&table.lock);       /* beside readers */
    codes[2] = fairlock_rwlock_try_upgradable_for(&table.lock, 1000);
    codes[3] = fairlock_rwlock_unlock_upgradable(&table.lock); /* it is not this thread's */
    fairlock_rwlock_unlock_read(&table.lock);
    return codes;
}

int main(void) {
    pthread_t threads[THREADS];
    int failed[THREADS] = { 0 }, failures = 0;
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, fill, &failed[i])) {
            return 1;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        failures += failed[i];
    }

    fairlock_rwlock_write(&table.lock);
    failures += fairlock_rwlock_downgrade_to_upgradable(&table.lock) != 0;
    void *codes = NULL;
    if (pthread_create(&threads[0], NULL, others, NULL)) {
        return 1;
    }
    pthread_join(threads[0], &codes);
    const int *code = codes;
    failures += code[0] != EBUSY || code[1] != 0 || code[2] != ETIMEDOUT || code[3] != EPERM;
    failures += fairlock_rwlock_unlock(&table.lock) != 0;

    printf("%d changes, %d failures\n", table.changes, failures);
    return table.changes == SLOTS && failures == 0 ? 0 : 1;
}
