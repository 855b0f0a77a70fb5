/* What the tests record: threads that wait for locks of every kind, until they are killed.
 *
 * cc -O1 -pthread -o waits waits.c && ./waits FILE
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t never = PTHREAD_RWLOCK_INITIALIZER;
static const char *path;
/* Written after each call, so that none is the last thing that its function does and becomes a jump. */
volatile int done;

__attribute__((noinline)) void look_up(void) {
    pthread_rwlock_rdlock(&lock);
    usleep(2000);
    pthread_rwlock_unlock(&lock);
    done++;
}

__attribute__((noinline)) void update(void) {
    pthread_rwlock_wrlock(&lock);
    usleep(1000);
    pthread_rwlock_unlock(&lock);
    done++;
}

__attribute__((noinline)) void starve(void) {
    pthread_rwlock_wrlock(&never);
    done++;
}

__attribute__((noinline)) void append(int file, char *bytes) {
    if (pwrite(file, bytes, 1 << 20, 0) < 0)
        exit(1);
    done++;
}

static void *looks_up(void *unused) {
    for (;;) {
        look_up();
        /* Otherwise the writer may starve for long, and nobody begins to wait. */
        usleep(1000);
    }
}

static void *updates(void *unused) {
    for (;;) {
        update();
        usleep(1000);
    }
}

static void *starves(void *unused) {
    starve();
    return 0;
}

static void *appends(void *unused) {
    char *bytes = calloc(1, 1 << 20);
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    pthread_setname_np(pthread_self(), "appender");
    for (;;) {
        append(file, bytes);
        usleep(2000);
    }
}

int main(int count, char **arguments) {
    void *(*threads[])(void *) = {looks_up, looks_up, updates, starves, appends, appends, appends};
    if (count < 2)
        return 1;
    path = arguments[1];
    pthread_rwlock_rdlock(&never);
    for (unsigned i = 0; i < sizeof threads / sizeof *threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, threads[i], 0))
            return 1;
    }
    pause();
}
