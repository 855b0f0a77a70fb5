/* What glibc's reader-writer locks answer, asked of whatever the process has in their place. Prints
 * nothing and exits 0 if all is as it should be; else says which line is not and exits 1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static pthread_rwlock_t early = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t late = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

__attribute__((constructor)) static void before_main(void) {
    OK(pthread_rwlock_wrlock(&early));
    OK(pthread_rwlock_unlock(&early));
    OK(pthread_rwlock_rdlock(&early));
}

__attribute__((destructor)) static void after_main(void) {
    OK(pthread_rwlock_rdlock(&late));
    OK(pthread_rwlock_unlock(&late));
    OK(pthread_rwlock_unlock(&early));
    OK(pthread_rwlock_wrlock(&early));
    OK(pthread_rwlock_unlock(&early));
    OK(pthread_rwlock_destroy(&early));
}

static struct timespec in_ms(clockid_t clock, long ms) {
    struct timespec time;
    OK(clock_gettime(clock, &time));
    time.tv_nsec += ms % 1000 * 1000000;
    time.tv_sec += ms / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

/* What another thread gets. */
typedef int (*attempt)(pthread_rwlock_t *);
struct job {
    attempt attempt;
    pthread_rwlock_t *lock;
    int code;
};

static void *do_job(void *argument) {
    struct job *job = argument;
    errno = 123;
    job->code = job->attempt(job->lock);
    CHECK(errno == 123); /* It is not by errno that they speak. */
    if (job->code == 0)
        OK(pthread_rwlock_unlock(job->lock));
    return NULL;
}

static int elsewhere(attempt attempt, pthread_rwlock_t *lock) {
    struct job job = {attempt, lock, -1};
    pthread_t thread;
    OK(pthread_create(&thread, NULL, do_job, &job));
    OK(pthread_join(thread, NULL));
    return job.code;
}

static int timed_read(pthread_rwlock_t *lock) {
    struct timespec time = in_ms(CLOCK_REALTIME, 5);
    return pthread_rwlock_timedrdlock(lock, &time);
}
static int timed_write(pthread_rwlock_t *lock) {
    struct timespec time = in_ms(CLOCK_REALTIME, 5);
    return pthread_rwlock_timedwrlock(lock, &time);
}
static int clock_read(pthread_rwlock_t *lock) {
    struct timespec time = in_ms(CLOCK_MONOTONIC, 5);
    return pthread_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &time);
}
static int clock_write(pthread_rwlock_t *lock) {
    struct timespec time = in_ms(CLOCK_MONOTONIC, 5);
    return pthread_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, &time);
}

static void codes_of(pthread_rwlock_t *lock) {
    OK(pthread_rwlock_rdlock(lock));
    OK(elsewhere(pthread_rwlock_tryrdlock, lock));
    OK(elsewhere(pthread_rwlock_rdlock, lock));
    OK(elsewhere(timed_read, lock));
    CHECK(pthread_rwlock_trywrlock(lock) == EBUSY);
    CHECK(elsewhere(pthread_rwlock_trywrlock, lock) == EBUSY);
    CHECK(elsewhere(timed_write, lock) == ETIMEDOUT);
    CHECK(elsewhere(clock_write, lock) == ETIMEDOUT);
    OK(elsewhere(pthread_rwlock_tryrdlock, lock)); /* Nothing is left of the writers. */
    OK(pthread_rwlock_unlock(lock));

    OK(pthread_rwlock_wrlock(lock));
    CHECK(pthread_rwlock_wrlock(lock) == EDEADLK);
    CHECK(pthread_rwlock_rdlock(lock) == EDEADLK);
    CHECK(timed_read(lock) == EDEADLK);
    CHECK(timed_write(lock) == EDEADLK);
    CHECK(clock_read(lock) == EDEADLK);
    CHECK(pthread_rwlock_tryrdlock(lock) == EBUSY);
    CHECK(pthread_rwlock_trywrlock(lock) == EBUSY);
    CHECK(elsewhere(pthread_rwlock_tryrdlock, lock) == EBUSY);
    CHECK(elsewhere(timed_read, lock) == ETIMEDOUT);
    CHECK(elsewhere(clock_read, lock) == ETIMEDOUT);
    CHECK(elsewhere(timed_write, lock) == ETIMEDOUT);
    OK(pthread_rwlock_unlock(lock));

    struct timespec past = {0, 0}, wrong = {0, 1000000000}, before = {-1, 0};
    OK(pthread_rwlock_timedrdlock(lock, &past)); /* Free, so the time does not matter. */
    OK(pthread_rwlock_unlock(lock));
    OK(pthread_rwlock_timedwrlock(lock, &before));
    OK(pthread_rwlock_unlock(lock));
    CHECK(pthread_rwlock_timedwrlock(lock, &wrong) == EINVAL);
    CHECK(pthread_rwlock_timedrdlock(lock, &wrong) == EINVAL);
    wrong.tv_nsec = -1;
    CHECK(pthread_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &wrong) == EINVAL);
    CHECK(pthread_rwlock_clockwrlock(lock, CLOCK_PROCESS_CPUTIME_ID, &past) == EINVAL);
    CHECK(pthread_rwlock_clockrdlock(lock, 12345, &past) == EINVAL);
    OK(elsewhere(pthread_rwlock_wrlock, lock));
}

static void attributes(void) {
    pthread_rwlockattr_t attributes;
    int value = -1;
    OK(pthread_rwlockattr_init(&attributes));
    OK(pthread_rwlockattr_getkind_np(&attributes, &value));
    CHECK(value == PTHREAD_RWLOCK_DEFAULT_NP);
    OK(pthread_rwlockattr_getpshared(&attributes, &value));
    CHECK(value == PTHREAD_PROCESS_PRIVATE);
    CHECK(pthread_rwlockattr_setkind_np(&attributes, 3) == EINVAL);
    CHECK(pthread_rwlockattr_setkind_np(&attributes, -1) == EINVAL);
    CHECK(pthread_rwlockattr_setpshared(&attributes, 2) == EINVAL);
    int kinds[] = {PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_RWLOCK_PREFER_WRITER_NP,
                   PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP};
    int sharings[] = {PTHREAD_PROCESS_PRIVATE, PTHREAD_PROCESS_SHARED};
    for (int kind = 0; kind < 3; kind++)
        for (int sharing = 0; sharing < 2; sharing++) {
            pthread_rwlock_t lock;
            memset(&lock, 0xa5, sizeof lock);
            OK(pthread_rwlockattr_setkind_np(&attributes, kinds[kind]));
            OK(pthread_rwlockattr_setpshared(&attributes, sharings[sharing]));
            OK(pthread_rwlockattr_getkind_np(&attributes, &value));
            CHECK(value == kinds[kind]);
            OK(pthread_rwlockattr_getpshared(&attributes, &value));
            CHECK(value == sharings[sharing]);
            OK(pthread_rwlock_init(&lock, &attributes));
            codes_of(&lock);
            OK(pthread_rwlock_destroy(&lock));
        }
    OK(pthread_rwlockattr_destroy(&attributes));
}

static atomic_int arrived;

static void *write_once(void *lock) {
    atomic_fetch_add(&arrived, 1);
    OK(pthread_rwlock_wrlock(lock));
    OK(pthread_rwlock_unlock(lock));
    return NULL;
}

/* Until a writer waits, as far as one can see. */
static void until_writer_waits(void) {
    while (atomic_load(&arrived) == 0)
        sched_yield();
    usleep(20000);
}

static pthread_rwlock_t first = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t second = PTHREAD_RWLOCK_INITIALIZER;

static long ms_since(struct timespec began) {
    struct timespec now = in_ms(CLOCK_MONOTONIC, 0);
    return (now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000;
}

/* A reader that reads again, also under another lock, while writers wait for both. Reads that do not wait, or not for
 * long, are only promised for about 400 ms after the first one that passed a writer. So a round in which this thread
 * had no CPU for that long is repeated. */
static void recursion(void) {
    for (int rounds = 0, in_time = 0; in_time < 3 && rounds < 50; rounds++) {
        pthread_t writers[2];
        atomic_store(&arrived, 0);
        OK(pthread_rwlock_rdlock(&first));
        OK(pthread_create(&writers[0], NULL, write_once, &first));
        until_writer_waits();
        struct timespec began = in_ms(CLOCK_MONOTONIC, 0);
        OK(pthread_rwlock_rdlock(&first));
        int tried = pthread_rwlock_tryrdlock(&first);
        OK(pthread_rwlock_rdlock(&second));
        int timed = timed_read(&first);
        int is_late = ms_since(began) > 300;
        CHECK(tried == 0 || (is_late && tried == EBUSY));
        CHECK(timed == 0 || (is_late && timed == ETIMEDOUT));
        in_time += !is_late;
        int reads = 2 + (tried == 0) + (timed == 0);
        OK(pthread_create(&writers[1], NULL, write_once, &second));
        for (int times = 0; times < reads; times++)
            OK(pthread_rwlock_unlock(&first));
        OK(pthread_join(writers[0], NULL));
        OK(pthread_rwlock_unlock(&second));
        OK(pthread_join(writers[1], NULL));
    }
}

/* Holds a lock for reading that a thread which waits for a mutex needs to end. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *read_then_mutex(void *lock) {
    OK(pthread_rwlock_rdlock(lock));
    atomic_store(&arrived, 1);
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_rwlock_unlock(lock));
    return NULL;
}

/* Under glibc's preference for readers no cycle; so nobody may make one of it. */
static void reader_preference(void) {
    pthread_t reader, writer;
    OK(pthread_mutex_lock(&mutex));
    atomic_store(&arrived, 0);
    OK(pthread_create(&reader, NULL, read_then_mutex, &first));
    until_writer_waits();
    atomic_store(&arrived, 0);
    OK(pthread_create(&writer, NULL, write_once, &first));
    until_writer_waits();
    OK(pthread_rwlock_rdlock(&first));
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_rwlock_unlock(&first));
    OK(pthread_join(reader, NULL));
    OK(pthread_join(writer, NULL));
}

struct shared {
    pthread_rwlock_t lock;
    long a, b;
};

static void processes(void) {
    enum { PROCESSES = 3, ROUNDS = 3000 };
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pthread_rwlockattr_t attributes;
    OK(pthread_rwlockattr_init(&attributes));
    OK(pthread_rwlockattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    OK(pthread_rwlock_init(&shared->lock, &attributes));
    for (int process = 0; process < PROCESSES; process++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            alarm(600); /* Not inherited. */
            for (int round = 0; round < ROUNDS; round++) {
                OK(pthread_rwlock_wrlock(&shared->lock));
                shared->a++;
                if (round % 64 == 0)
                    sched_yield();
                shared->b++;
                OK(pthread_rwlock_unlock(&shared->lock));
                OK(pthread_rwlock_rdlock(&shared->lock));
                CHECK(shared->a == shared->b);
                OK(pthread_rwlock_unlock(&shared->lock));
            }
            _exit(0);
        }
    }
    for (int process = 0; process < PROCESSES; process++) {
        int status;
        CHECK(wait(&status) > 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK(shared->a == PROCESSES * ROUNDS && shared->b == shared->a);
    OK(pthread_rwlock_destroy(&shared->lock));
    OK(munmap(shared, sizeof *shared));
}

static void lock_first(void) { OK(pthread_rwlock_rdlock(&first)); }
static void unlock_first(void) { OK(pthread_rwlock_unlock(&first)); }

/* A child inherits what the forking thread holds, and unlocks it. */
static void forks(void) {
    OK(pthread_atfork(lock_first, unlock_first, unlock_first));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(600);
        OK(pthread_rwlock_wrlock(&first));
        OK(pthread_rwlock_unlock(&first));
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static pthread_key_t key;
static atomic_int destructors;

/* Also after this library's own destructors, in whatever order. */
static void lock_at_the_end(void *rounds) {
    OK(pthread_rwlock_rdlock(&second));
    OK(pthread_rwlock_unlock(&second));
    OK(pthread_rwlock_wrlock(&second));
    OK(pthread_rwlock_unlock(&second));
    atomic_fetch_add(&destructors, 1);
    if ((long)rounds > 1)
        OK(pthread_setspecific(key, (void *)((long)rounds - 1)));
}

static void *set_key(void *unused) {
    OK(pthread_setspecific(key, (void *)3));
    return unused;
}

static void ends_of_threads(void) {
    OK(pthread_key_create(&key, lock_at_the_end));
    for (int times = 0; times < 20; times++) {
        pthread_t thread;
        OK(pthread_create(&thread, NULL, set_key, NULL));
        OK(pthread_join(thread, NULL));
    }
    CHECK(atomic_load(&destructors) == 60);
    OK(pthread_key_delete(key));
}

static void *wait_and_be_cancelled(void *lock) {
    OK(pthread_rwlock_rdlock(lock)); /* Is no cancellation point. */
    atomic_store(&arrived, 2);
    OK(pthread_rwlock_unlock(lock));
    pthread_testcancel();
    CHECK(!"cancelled here");
    return NULL;
}

static void cancellation(void) {
    pthread_t thread;
    void *result;
    OK(pthread_rwlock_wrlock(&first));
    atomic_store(&arrived, 0);
    OK(pthread_create(&thread, NULL, wait_and_be_cancelled, &first));
    usleep(20000);
    OK(pthread_cancel(thread));
    usleep(20000);
    CHECK(atomic_load(&arrived) == 0);
    OK(pthread_rwlock_unlock(&first));
    OK(pthread_join(thread, &result));
    CHECK(result == PTHREAD_CANCELED && atomic_load(&arrived) == 2);
}

static void other_ways_to_find_them(void) {
    attempt found = (attempt)dlsym(RTLD_DEFAULT, "pthread_rwlock_wrlock");
    CHECK(found == pthread_rwlock_wrlock);
    /* Names for programs linked long ago: dlsym finds them only where something defines them anew. */
    attempt old = (attempt)dlsym(RTLD_DEFAULT, "__pthread_rwlock_wrlock");
    if (old != NULL) {
        OK(old(&first));
        OK(pthread_rwlock_unlock(&first));
    }
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    CHECK(libc != NULL);
    OK(dlclose(libc));
}

static void *read_long(void *lock) {
    OK(pthread_rwlock_rdlock(lock));
    OK(pthread_rwlock_unlock(lock));
    return NULL;
}

/* Its memory is overwritten right after the last unlock, while those before may be on their way out. */
static void destroyed_after_the_last_unlock(void) {
    for (int times = 0; times < 300; times++) {
        pthread_rwlock_t *lock = malloc(sizeof *lock);
        pthread_t threads[2];
        OK(pthread_rwlock_init(lock, NULL));
        OK(pthread_rwlock_wrlock(lock));
        OK(pthread_create(&threads[0], NULL, read_long, lock));
        OK(pthread_create(&threads[1], NULL, write_once, lock));
        if (times % 2)
            sched_yield();
        OK(pthread_rwlock_unlock(lock));
        OK(pthread_join(threads[0], NULL));
        OK(pthread_join(threads[1], NULL));
        OK(pthread_rwlock_wrlock(lock));
        OK(pthread_rwlock_unlock(lock));
        OK(pthread_rwlock_destroy(lock));
        memset(lock, 0xff, sizeof *lock);
        free(lock);
    }
}

int main(void) {
    alarm(600);
    codes_of(&first);
    codes_of(&late);
    attributes();
    recursion();
    reader_preference();
    ends_of_threads();
    cancellation();
    other_ways_to_find_them();
    destroyed_after_the_last_unlock();
    processes();
    forks();
    return 0;
}
