/* For checkers: a correct program. With the argument `race` two threads write a variable under different locks; with
 * `order` they acquire two locks in opposite orders; with `leak` memory is lost. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 3, ROUNDS = 300 };

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t others[2] = { PTHREAD_RWLOCK_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER };
static long low, high, raced;

static void *use_lock(void *torn) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_rwlock_rdlock(&lock);
        *(long *)torn += low != high;
        pthread_rwlock_unlock(&lock);
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        if (round % 3 == 0 ? pthread_rwlock_wrlock(&lock) == 0
            : round % 3 == 1 ? pthread_rwlock_trywrlock(&lock) == 0
                             : pthread_rwlock_timedwrlock(&lock, &soon) == 0) {
            low++;
            high++;
            pthread_rwlock_unlock(&lock);
        }
    }
    return NULL;
}

static void *race(void *own) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_rwlock_wrlock(own);
        raced++;
        pthread_rwlock_unlock(own);
    }
    return NULL;
}

static void *acquire_both(void *first) {
    pthread_rwlock_t *other = first == &others[0] ? &others[1] : &others[0];
    pthread_rwlock_wrlock(first);
    pthread_rwlock_wrlock(other);
    pthread_rwlock_unlock(other);
    pthread_rwlock_unlock(first);
    return NULL;
}

int main(int count, char **arguments) {
    const char *wrong = count > 1 ? arguments[1] : "";
    pthread_t threads[THREADS];
    long torn[THREADS] = { 0 }, all = 0;
    if (strcmp(wrong, "race") == 0) {
        for (int i = 0; i < 2; i++) {
            if (pthread_create(&threads[i], NULL, race, &others[i])) {
                return 2;
            }
        }
        pthread_join(threads[0], NULL);
        return pthread_join(threads[1], NULL);
    }
    for (int i = 0; i < 2 && strcmp(wrong, "order") == 0; i++) { /* it does not deadlock this time */
        if (pthread_create(&threads[0], NULL, acquire_both, &others[i]) ||
            pthread_join(threads[0], NULL)) {
            return 2;
        }
    }
    if (strcmp(wrong, "leak") == 0) {
        static void *volatile lost;
        lost = malloc(1000);
        if (lost != NULL) {
            lost = NULL;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, use_lock, &torn[i])) {
            return 2;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        all += torn[i];
    }
    return all == 0 && low == high ? 0 : 1;
}
