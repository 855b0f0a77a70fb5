/* A child that was forked off has its parent's counts in its memory, and writes what it likes to them,
   also while the parent counts: the parent goes on, as if nobody had.

   Prints nothing, and exits with 0, if all is well. */
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOCKS = 200, SCRIBBLES = 6 };
static pthread_rwlock_t locks[LOCKS];
static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
static uint32_t *counts;
static size_t words;
static int begins[2], done[2];

static void find_counts(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1024];
    unsigned long start, end;
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, ".counts") && sscanf(line, "%lx-%lx", &start, &end) == 2) {
            counts = (uint32_t *)start;
            words = (end - start) / sizeof *counts;
        }
    assert(counts);
    fclose(maps);
}

/* The header and the tables, and the pages that were handed out first. */
static void scribble(int how) {
    uint32_t state = 12345;
    size_t header = 16, end = (709 + 600) * 1024;
    assert(end < words);
    for (size_t at = header; at < end; at++) {
        state = state * 1664525 + 1013904223;
        uint32_t word[SCRIBBLES] = {0xffffffff, state >> 15, 0, state, 709 + (state >> 24), 0x7fffffff};
        __atomic_store_n(&counts[at], word[how], __ATOMIC_RELAXED);
    }
}

static void use(pthread_rwlock_t *lock) {
    struct timespec soon;
    assert(pthread_rwlock_wrlock(lock) == 0);
    /* Refused where the library is not glibc's. */
    pthread_rwlock_tryrdlock(lock);
    clock_gettime(CLOCK_REALTIME, &soon);
    pthread_rwlock_timedwrlock(lock, &soon);
    assert(pthread_rwlock_unlock(lock) == 0);
    for (int times = 0; times < 40; times++) {
        assert(pthread_rwlock_rdlock(lock) == 0);
        assert(pthread_rwlock_unlock(lock) == 0);
    }
}

static void *thread(void *unused) {
    for (int lock = 0; lock < LOCKS; lock += 7)
        use(&locks[lock]);
    for (int times = 0; times < 300; times++) {
        assert(pthread_rwlock_wrlock(&shared) == 0);
        assert(pthread_rwlock_unlock(&shared) == 0);
    }
    return unused;
}

static void several_threads(void) {
    pthread_t threads[4];
    for (int round = 0; round < 3; round++) {
        for (int number = 0; number < 4; number++)
            assert(pthread_create(&threads[number], 0, thread, 0) == 0);
        for (int number = 0; number < 4; number++)
            assert(pthread_join(threads[number], 0) == 0);
    }
}

int main(void) {
    for (int lock = 0; lock < LOCKS; lock++)
        assert(pthread_rwlock_init(&locks[lock], 0) == 0);
    several_threads();
    find_counts();
    assert(pipe(begins) == 0 && pipe(done) == 0);
    pid_t child = fork();
    assert(child >= 0);
    if (child == 0) {
        /* Not longer than the parent. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(begins[1]);
        char how;
        while (read(begins[0], &how, 1) == 1) {
            if (how == SCRIBBLES)
                for (;;)
                    for (how = 0; how < SCRIBBLES; how++)
                        scribble(how);
            scribble(how);
            assert(write(done[1], "", 1) == 1);
        }
        _exit(0);
    }
    char how, answer;
    for (how = 0; how < SCRIBBLES; how++) {
        assert(write(begins[1], &how, 1) == 1 && read(done[0], &answer, 1) == 1);
        several_threads();
        for (int lock = 0; lock < LOCKS; lock++)
            use(&locks[lock]);
        int status;
        pid_t other = fork();
        if (other == 0) {
            several_threads();
            exit(0);
        }
        assert(waitpid(other, &status, 0) == other && status == 0);
        for (int lock = 0; lock < LOCKS; lock++) {
            assert(pthread_rwlock_destroy(&locks[lock]) == 0);
            assert(pthread_rwlock_init(&locks[lock], 0) == 0);
        }
    }
    /* And all the time. */
    assert(write(begins[1], &how, 1) == 1);
    several_threads();
    kill(child, SIGKILL);
    return 0;
}
