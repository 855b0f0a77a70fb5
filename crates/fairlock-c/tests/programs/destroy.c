/*
 * Objects that lie in the same memory as their lock, and are freed by whoever gives up the last of them,
 * while the unlocks before may still be on their way out. Each object is a mapping of its own, so that an
 * unlock that comes late ends the program, or finds the next object there.
 *
 *   ./destroy [ROUNDS]
 */
#define _DEFAULT_SOURCE

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <fairlock.h>

enum { THREADS = 4 };

enum kind { RWLOCK, MUTEX, RANGE, COND, KINDS };

struct object {
    union {
        fairlock_rwlock_t rwlock;
        fairlock_mutex_t mutex;
        fairlock_range_lock_t *ranges;
        struct {
            fairlock_mutex_t mutex;
            fairlock_cond_t changed;
        } cond;
    } lock;
    enum kind kind;
    int users;
    int sum;
};

static pthread_barrier_t begin, end;
static struct object *object;
static long rounds;

static void must(int code, const char *what) {
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(code));
        abort();
    }
}

static struct object *new_object(enum kind kind) {
    struct object *new = mmap(NULL, sizeof *new, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (new == MAP_FAILED) {
        abort();
    }
    new->kind = kind;
    new->users = THREADS;
    new->sum = 0;
    switch (kind) {
    case RWLOCK:
        must(fairlock_rwlock_init(&new->lock.rwlock), "init");
        break;
    case MUTEX:
        must(fairlock_mutex_init(&new->lock.mutex), "init");
        break;
    case COND:
        must(fairlock_mutex_init(&new->lock.cond.mutex), "init");
        must(fairlock_cond_init(&new->lock.cond.changed), "init");
        break;
    default:
        new->lock.ranges = fairlock_range_lock_new();
    }
    return new;
}

static void free_object(struct object *old) {
    switch (old->kind) {
    case RWLOCK:
        must(fairlock_rwlock_destroy(&old->lock.rwlock), "destroy");
        break;
    case MUTEX:
        must(fairlock_mutex_destroy(&old->lock.mutex), "destroy");
        break;
    case COND:
        must(fairlock_mutex_destroy(&old->lock.cond.mutex), "destroy");
        must(fairlock_cond_destroy(&old->lock.cond.changed), "destroy");
        break;
    default:
        must(fairlock_range_lock_free(old->lock.ranges), "free");
    }
    munmap(old, sizeof *old);
}

static void acquire(struct object *one, int reads, fairlock_range_hold_t *hold) {
    switch (one->kind) {
    case RWLOCK:
        must(reads ? fairlock_rwlock_read(&one->lock.rwlock)
                   : fairlock_rwlock_write(&one->lock.rwlock),
             "acquire");
        break;
    case MUTEX:
        must(fairlock_mutex_lock(&one->lock.mutex), "acquire");
        break;
    default:
        must(reads ? fairlock_range_read(one->lock.ranges, 0, 8, hold)
                   : fairlock_range_write(one->lock.ranges, 0, 8, hold),
             "acquire");
    }
}

static void release(struct object *one, fairlock_range_hold_t *hold) {
    switch (one->kind) {
    case RWLOCK:
        must(fairlock_rwlock_unlock(&one->lock.rwlock), "release");
        break;
    case MUTEX:
        must(fairlock_mutex_unlock(&one->lock.mutex), "release");
        break;
    default:
        must(fairlock_range_unlock(hold), "release");
    }
}

/* Reads some, then gives up its share of the object, and frees it if that was the last. */
static void use(struct object *one) {
    fairlock_range_hold_t hold;
    for (int i = 0; i < 3; i++) {
        acquire(one, 1, &hold);
        int seen = one->sum;
        release(one, &hold);
        if (seen < 0 || seen > THREADS) {
            abort();
        }
    }
    acquire(one, 0, &hold);
    one->sum++;
    int last = --one->users == 0;
    if (last && one->sum != THREADS) {
        abort();
    }
    release(one, &hold);
    if (last) {
        free_object(one);
    }
}

/* Waits until all are here. Those that waited may free the object while the broadcast returns. */
static void meet(struct object *one) {
    fairlock_mutex_t *mutex = &one->lock.cond.mutex;
    fairlock_cond_t *changed = &one->lock.cond.changed;
    must(fairlock_mutex_lock(mutex), "acquire");
    int all_are_here = ++one->sum == THREADS;
    while (one->sum != THREADS) {
        must(fairlock_cond_wait(changed, mutex), "wait");
    }
    int last = --one->users == 0;
    must(fairlock_mutex_unlock(mutex), "release");
    if (all_are_here) {
        must(fairlock_cond_broadcast(changed), "broadcast");
    }
    if (last) {
        free_object(one);
    }
}

static void *take_part(void *unused) {
    for (long round = 0; round < rounds; round++) {
        pthread_barrier_wait(&begin);
        if (object->kind == COND) {
            meet(object);
        } else {
            use(object);
        }
        pthread_barrier_wait(&end);
    }
    return unused;
}

int main(int count, char **arguments) {
    rounds = count > 1 ? atol(arguments[1]) : 3000;
    pthread_t threads[THREADS];
    pthread_barrier_init(&begin, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        must(pthread_create(&threads[i], NULL, take_part, NULL), "no thread");
    }
    for (long round = 0; round < rounds; round++) {
        object = new_object((enum kind)(round % KINDS));
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%ld objects\n", rounds);
    return 0;
}
