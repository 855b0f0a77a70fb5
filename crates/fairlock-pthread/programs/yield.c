// Writers that give their CPU away while they hold a lock, as in GLib's test rwlock7:
//
//   cc -O2 -pthread -o yield yield.c
//   fairlock run --compare glibc,rwsem,rwlock -- ./yield THREADS LOCKS YIELDS WRITES
//
// With more threads than CPUs, spinning for such a holder takes the CPU that it needs.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1024 };
static pthread_rwlock_t locks[MOST];
static int lock_count, yields, writes;

static void *write_here_and_there(void *seed) {
    unsigned random = (unsigned)(size_t)seed;
    for (int i = 0; i < writes; i++) {
        pthread_rwlock_t *lock = &locks[rand_r(&random) % lock_count];
        pthread_rwlock_wrlock(lock);
        for (int k = 0; k < yields; k++)
            sched_yield();
        pthread_rwlock_unlock(lock);
    }
    return NULL;
}

int main(int count, char **arguments) {
    int threads = count == 5 ? atoi(arguments[1]) : 0;
    if (threads < 1 || threads > MOST || (lock_count = atoi(arguments[2])) < 1 || lock_count > MOST) {
        fprintf(stderr, "usage: yield THREADS LOCKS YIELDS WRITES, at most %d threads and locks\n", MOST);
        return 2;
    }
    yields = atoi(arguments[3]);
    writes = atoi(arguments[4]) / threads;
    for (int i = 0; i < lock_count; i++)
        pthread_rwlock_init(&locks[i], NULL);
    pthread_t members[MOST];
    for (int i = 0; i < threads; i++)
        if (pthread_create(&members[i], NULL, write_here_and_there, (void *)(size_t)i) != 0)
            abort();
    for (int i = 0; i < threads; i++)
        pthread_join(members[i], NULL);
    printf("%d writes\n", writes * threads);
}
