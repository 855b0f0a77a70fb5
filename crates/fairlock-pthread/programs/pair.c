/* What an uncontended lock and unlock take: the least of many short series, ns, for reads and writes. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { SERIES = 400, PAIRS = 10000 };

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(void) {
    double read = 1e9, write = 1e9;
    for (int series = 0; series < SERIES; series++) {
        double began = now();
        for (int pair = 0; pair < PAIRS; pair++) {
            pthread_rwlock_rdlock(&lock);
            pthread_rwlock_unlock(&lock);
        }
        double between = now();
        for (int pair = 0; pair < PAIRS; pair++) {
            pthread_rwlock_wrlock(&lock);
            pthread_rwlock_unlock(&lock);
        }
        double ended = now();
        if ((between - began) / PAIRS < read)
            read = (between - began) / PAIRS;
        if ((ended - between) / PAIRS < write)
            write = (ended - between) / PAIRS;
    }
    printf("%.3f %.3f\n", read, write);
    return 0;
}
