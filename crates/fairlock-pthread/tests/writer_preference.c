/* PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP: while readers hold such a lock and a writer waits, no other
 * reader comes in before the writer, however it asks. Exits 0 if it is so; what hangs ends by an alarm. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_rwlock_t another = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int writer, reader, wrote;

static void *write_once(void *unused) {
    atomic_store(&writer, (int)syscall(SYS_gettid));
    OK(pthread_rwlock_wrlock(&lock));
    atomic_store(&wrote, 1);
    OK(pthread_rwlock_unlock(&lock));
    return unused;
}

static void *read_once(void *unused) {
    /* Nor does it help to read under another lock. */
    OK(pthread_rwlock_rdlock(&another));
    atomic_store(&reader, (int)syscall(SYS_gettid));
    OK(pthread_rwlock_rdlock(&lock));
    CHECK(atomic_load(&wrote));
    OK(pthread_rwlock_unlock(&lock));
    OK(pthread_rwlock_unlock(&another));
    return unused;
}

static void *ask_in_vain(void *unused) {
    for (int times = 0; times < 20000; times++)
        CHECK(pthread_rwlock_tryrdlock(&lock) == EBUSY);
    struct timespec time;
    OK(clock_gettime(CLOCK_REALTIME, &time));
    time.tv_sec += (time.tv_nsec + 150000000) / 1000000000;
    time.tv_nsec = (time.tv_nsec + 150000000) % 1000000000;
    CHECK(pthread_rwlock_timedrdlock(&lock, &time) == ETIMEDOUT);
    CHECK(pthread_rwlock_tryrdlock(&lock) == EBUSY);
    return unused;
}

static void *read_often(void *unused) {
    for (int times = 0; times < 1000; times++) {
        OK(pthread_rwlock_rdlock(&lock));
        OK(pthread_rwlock_unlock(&lock));
    }
    return unused;
}

static void until_it_sleeps(atomic_int *tid) {
    while (atomic_load(tid) == 0)
        sched_yield();
    char path[64], line[512], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(tid));
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        CHECK(file && fgets(line, sizeof line, file));
        fclose(file);
        state = strrchr(line, ')')[2];
        sched_yield();
    }
}

static void run(void *(*body)(void *)) {
    pthread_t thread;
    OK(pthread_create(&thread, NULL, body, NULL));
    OK(pthread_join(thread, NULL));
}

static void round_trip(void) {
    pthread_t threads[2];
    atomic_store(&writer, 0);
    atomic_store(&reader, 0);
    atomic_store(&wrote, 0);
    OK(pthread_rwlock_rdlock(&lock));
    /* By slots from here on, where readers have some. */
    run(read_often);
    OK(pthread_create(&threads[0], NULL, write_once, NULL));
    until_it_sleeps(&writer);
    run(ask_in_vain);
    OK(pthread_create(&threads[1], NULL, read_once, NULL));
    until_it_sleeps(&reader);
    OK(pthread_rwlock_unlock(&lock));
    for (int thread = 0; thread < 2; thread++)
        OK(pthread_join(threads[thread], NULL));
}

int main(void) {
    alarm(600);
    round_trip();
    run(read_often);
    round_trip();
    pthread_rwlockattr_t attributes;
    OK(pthread_rwlockattr_init(&attributes));
    OK(pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP));
    OK(pthread_rwlock_init(&lock, &attributes));
    round_trip();
    OK(pthread_rwlockattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    OK(pthread_rwlock_init(&lock, &attributes));
    round_trip();
    return 0;
}
