/* What a program may rely on with the kinds of locks that prefer readers: while readers hold such a lock, a
 * read is granted although a writer waits. At once under glibc, else after a time: but a reader that
 * others wait for comes in, whether it waits or polls, and so does the writer in the end.
 *
 *     reader_preference [handed_over]
 *
 * With the argument only what glibc itself does not guarantee is tried: see there. Exits 0 if all is well.
 * What hangs ends by an alarm. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* A thread that asks for a lock, and whether it waits. */
struct asks {
    pthread_rwlock_t *lock;
    atomic_int tid;
    pthread_t thread;
};

static void *write_once(void *argument) {
    struct asks *asks = argument;
    atomic_store(&asks->tid, (int)syscall(SYS_gettid));
    OK(pthread_rwlock_wrlock(asks->lock));
    OK(pthread_rwlock_unlock(asks->lock));
    return NULL;
}

static void until_it_sleeps(struct asks *asks) {
    while (atomic_load(&asks->tid) == 0)
        sched_yield();
    char path[64], line[512], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&asks->tid));
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        CHECK(file && fgets(line, sizeof line, file));
        fclose(file);
        state = strrchr(line, ')')[2];
        sched_yield();
    }
}

static void begin_to_write(struct asks *asks, pthread_rwlock_t *lock) {
    asks->lock = lock;
    atomic_store(&asks->tid, 0);
    OK(pthread_create(&asks->thread, NULL, write_once, asks));
    until_it_sleeps(asks);
}

/* As one that has been read often, so that policies which learn have done so. */
static void *read_often(void *lock) {
    for (int times = 0; times < 1000; times++) {
        OK(pthread_rwlock_rdlock(lock));
        OK(pthread_rwlock_unlock(lock));
    }
    return NULL;
}

/* The ways to read while another thread reads and a writer waits. */
static void *by_waiting(void *lock) {
    OK(pthread_rwlock_rdlock(lock));
    OK(pthread_rwlock_unlock(lock));
    return NULL;
}

static void *by_polling(void *lock) {
    int code;
    while ((code = pthread_rwlock_tryrdlock(lock)) != 0) {
        CHECK(code == EBUSY);
        usleep(500);
    }
    OK(pthread_rwlock_unlock(lock));
    return NULL;
}

/* So many nanoseconds from now. */
static struct timespec after(long nanoseconds) {
    struct timespec time;
    OK(clock_gettime(CLOCK_REALTIME, &time));
    time.tv_nsec += nanoseconds;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void *by_short_waits(void *lock) {
    for (;;) {
        struct timespec time = after(30000000);
        int code = pthread_rwlock_timedrdlock(lock, &time);
        if (code == 0)
            break;
        CHECK(code == ETIMEDOUT);
    }
    OK(pthread_rwlock_unlock(lock));
    return NULL;
}

static void *one_after_the_other(void *lock) {
    for (int times = 0; times < 500; times++)
        by_waiting(lock);
    return NULL;
}

/* This thread reads, a writer waits for it, and this thread waits for one that reads. */
static void read_by_another(void *(*read)(void *), pthread_rwlock_t *lock) {
    struct asks writer;
    pthread_t reader;
    OK(pthread_rwlock_rdlock(lock));
    begin_to_write(&writer, lock);
    OK(pthread_create(&reader, NULL, read, lock));
    OK(pthread_join(reader, NULL));
    OK(pthread_rwlock_unlock(lock));
    OK(pthread_join(writer.thread, NULL));
}

/* Writers that never wait for long: each gives up before the one that polls has been refused for long. */
struct impatient {
    pthread_rwlock_t *lock;
    atomic_int *given_up;
    long nanoseconds;
    pthread_t thread;
};

static void *write_for_a_moment(void *argument) {
    struct impatient *it = argument;
    while (!atomic_load(it->given_up)) {
        struct timespec time = after(it->nanoseconds);
        int code = pthread_rwlock_timedwrlock(it->lock, &time);
        CHECK(code == 0 || code == ETIMEDOUT);
        if (code == 0)
            OK(pthread_rwlock_unlock(it->lock));
    }
    return NULL;
}

static void *by_polling_now_and_then(void *lock) {
    int code;
    while ((code = pthread_rwlock_tryrdlock(lock)) != 0) {
        CHECK(code == EBUSY);
        usleep(10000);
    }
    OK(pthread_rwlock_unlock(lock));
    return NULL;
}

static void beside_impatient_writers(pthread_rwlock_t *lock) {
    enum { WRITERS = 3 };
    struct impatient writers[WRITERS];
    atomic_int given_up = 0;
    pthread_t reader;
    OK(pthread_rwlock_rdlock(lock));
    for (int writer = 0; writer < WRITERS; writer++) {
        writers[writer] = (struct impatient){lock, &given_up, 5000000 + 7000000 * writer, 0};
        OK(pthread_create(&writers[writer].thread, NULL, write_for_a_moment, &writers[writer]));
    }
    OK(pthread_create(&reader, NULL, by_polling_now_and_then, lock));
    OK(pthread_join(reader, NULL));
    atomic_store(&given_up, 1);
    OK(pthread_rwlock_unlock(lock));
    for (int writer = 0; writer < WRITERS; writer++)
        OK(pthread_join(writers[writer].thread, NULL));
}

/* Two threads that read two locks in both orders, while writers wait for both. */
struct crosswise {
    pthread_rwlock_t *locks[2];
    pthread_barrier_t *reads, *writers_wait;
};

static void *read_both(void *argument) {
    struct crosswise *it = argument;
    OK(pthread_rwlock_rdlock(it->locks[0]));
    pthread_barrier_wait(it->reads);
    pthread_barrier_wait(it->writers_wait);
    OK(pthread_rwlock_rdlock(it->locks[1]));
    OK(pthread_rwlock_unlock(it->locks[1]));
    OK(pthread_rwlock_unlock(it->locks[0]));
    return NULL;
}

static void crosswise(pthread_rwlock_t *one, pthread_rwlock_t *other) {
    pthread_barrier_t reads, writers_wait;
    OK(pthread_barrier_init(&reads, NULL, 3));
    OK(pthread_barrier_init(&writers_wait, NULL, 3));
    struct crosswise sides[2] = {
        {{one, other}, &reads, &writers_wait},
        {{other, one}, &reads, &writers_wait},
    };
    struct asks writers[2];
    pthread_t readers[2];
    for (int side = 0; side < 2; side++)
        OK(pthread_create(&readers[side], NULL, read_both, &sides[side]));
    pthread_barrier_wait(&reads);
    for (int side = 0; side < 2; side++)
        begin_to_write(&writers[side], sides[side].locks[0]);
    pthread_barrier_wait(&writers_wait);
    for (int side = 0; side < 2; side++) {
        OK(pthread_join(readers[side], NULL));
        OK(pthread_join(writers[side].thread, NULL));
    }
}

/* A thread reads for others, which unlock: always some of those reads are held, so a reader that comes is
 * one more of them as far as its thread can know. The writer gets in all the same. Not under glibc, where
 * readers may keep writers out. */
static pthread_rwlock_t handed = PTHREAD_RWLOCK_INITIALIZER;
static sem_t taken, room;
static atomic_int ends;

static void *read_for_others(void *unused) {
    while (!atomic_load(&ends)) {
        OK(sem_wait(&room));
        OK(pthread_rwlock_rdlock(&handed));
        OK(sem_post(&taken));
    }
    return unused;
}

static void *unlock_for_another(void *unused) {
    while (!atomic_load(&ends)) {
        OK(sem_wait(&taken));
        /* Not before there is another, but for the time that a writer may keep those out. */
        for (int times = 0; times < 20; times++) {
            int others;
            OK(sem_getvalue(&taken, &others));
            if (others > 0)
                break;
            usleep(500);
        }
        OK(pthread_rwlock_unlock(&handed));
        OK(sem_post(&room));
    }
    return unused;
}

static void handed_over(void) {
    OK(sem_init(&taken, 0, 0));
    OK(sem_init(&room, 0, 4));
    pthread_t threads[2];
    OK(pthread_create(&threads[0], NULL, read_for_others, NULL));
    OK(pthread_create(&threads[1], NULL, unlock_for_another, NULL));
    /* Until the first has read more often than it can hold the lock. */
    for (int times = 0; times < 100; times++) {
        OK(sem_wait(&room));
        OK(sem_post(&room));
        sched_yield();
    }
    OK(pthread_rwlock_wrlock(&handed));
    OK(pthread_rwlock_unlock(&handed));
    atomic_store(&ends, 1);
    _exit(0);
}

/* Locks of one kind, each read in another way. */
struct kind {
    int warm, shared;
    pthread_t thread;
};

static void *locks_of(void *argument) {
    struct kind *kind = argument;
    void *(*const ways[])(void *) = {by_waiting, by_polling, by_short_waits, one_after_the_other};
    enum { WAYS = sizeof ways / sizeof *ways };
    pthread_rwlock_t locks[WAYS + 3];
    pthread_rwlockattr_t attributes;
    OK(pthread_rwlockattr_init(&attributes));
    OK(pthread_rwlockattr_setpshared(&attributes, kind->shared));
    OK(pthread_rwlockattr_setkind_np(&attributes, kind->warm ? PTHREAD_RWLOCK_PREFER_READER_NP
                                                             : PTHREAD_RWLOCK_PREFER_WRITER_NP));
    for (int lock = 0; lock < WAYS + 3; lock++) {
        OK(pthread_rwlock_init(&locks[lock], &attributes));
        pthread_t thread;
        OK(pthread_create(&thread, NULL, read_often, &locks[lock]));
        OK(pthread_join(thread, NULL));
        if (!kind->warm) /* A write, to begin anew. */
            OK(pthread_rwlock_init(&locks[lock], &attributes));
    }
    for (int way = 0; way < WAYS; way++)
        read_by_another(ways[way], &locks[way]);
    crosswise(&locks[WAYS], &locks[WAYS + 1]);
    beside_impatient_writers(&locks[WAYS + 2]);
    return NULL;
}

int main(int count, char **arguments) {
    alarm(600);
    if (count > 1 && strcmp(arguments[1], "handed_over") == 0)
        handed_over();
    struct kind kinds[4];
    for (int number = 0; number < 4; number++) {
        kinds[number] = (struct kind){number / 2, number % 2, 0};
        OK(pthread_create(&kinds[number].thread, NULL, locks_of, &kinds[number]));
    }
    for (int number = 0; number < 4; number++)
        OK(pthread_join(kinds[number].thread, NULL));
    return 0;
}
