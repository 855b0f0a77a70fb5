/* What C code can get wrong is a code, and changes nothing. Also: the header is C11 without extensions. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <fairlock.h>

static int failures;

static void expect(int found, int expected, const char *what, int line) {
    if (found != expected) {
        fprintf(stderr, "line %d: %s is %s, not %s\n", line, what, strerror(found),
                strerror(expected));
        failures++;
    }
}
#define EXPECT(expected, call) expect(call, expected, #call, __LINE__)

/* Elsewhere: what another thread gets. */
struct elsewhere {
    int (*call)(void *);
    void *argument;
    int code;
};

static void *run_elsewhere(void *data) {
    struct elsewhere *elsewhere = data;
    elsewhere->code = elsewhere->call(elsewhere->argument);
    return NULL;
}

static int in_another_thread(int (*call)(void *), void *argument) {
    struct elsewhere elsewhere = { call, argument, -1 };
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_elsewhere, &elsewhere) != 0) {
        abort();
    }
    pthread_join(thread, NULL);
    return elsewhere.code;
}

static int unlock_write(void *lock) { return fairlock_rwlock_unlock_write(lock); }
static int unlock_read(void *lock) { return fairlock_rwlock_unlock_read(lock); }
static int unlock(void *lock) { return fairlock_rwlock_unlock(lock); }
static int try_read(void *lock) { return fairlock_rwlock_try_read(lock); }
static int try_write(void *lock) { return fairlock_rwlock_try_write(lock); }
static int destroy(void *lock) { return fairlock_rwlock_destroy(lock); }
static int write_soon(void *lock) { return fairlock_rwlock_try_write_for(lock, 100000); }
static int read_soon(void *lock) { return fairlock_rwlock_try_read_for(lock, 100000); }
static int write_then(void *lock) {
    struct timespec past = { 1, 0 };
    return fairlock_rwlock_try_write_until(lock, CLOCK_REALTIME, &past);
}
static int unlock_mutex(void *mutex) { return fairlock_mutex_unlock(mutex); }
static int lock_soon(void *mutex) { return fairlock_mutex_try_lock_for(mutex, 100000); }

static void null_pointers(void) {
    struct timespec time = { 0, 0 };
    fairlock_range_hold_t hold;
    fairlock_ready_t ready[1];
    size_t count;
    uint64_t number;
    int descriptor;
    fairlock_poll_t *poll = fairlock_poll_new();
    fairlock_range_lock_t *ranges = fairlock_range_lock_new();
    EXPECT(EINVAL, fairlock_rwlock_init(NULL));
    EXPECT(EINVAL, fairlock_rwlock_destroy(NULL));
    EXPECT(EINVAL, fairlock_rwlock_read(NULL));
    EXPECT(EINVAL, fairlock_rwlock_write(NULL));
    EXPECT(EINVAL, fairlock_rwlock_unlock(NULL));
    EXPECT(EINVAL, fairlock_rwlock_try_read_until(NULL, CLOCK_MONOTONIC, &time));
    EXPECT(EINVAL, fairlock_mutex_init(NULL));
    EXPECT(EINVAL, fairlock_mutex_lock(NULL));
    EXPECT(EINVAL, fairlock_mutex_unlock(NULL));
    fairlock_cond_t cond = FAIRLOCK_COND_INITIALIZER;
    fairlock_mutex_t mutex = FAIRLOCK_MUTEX_INITIALIZER;
    uint32_t interrupted = 0;
    EXPECT(0, fairlock_mutex_lock(&mutex));
    EXPECT(EINVAL, fairlock_cond_init(NULL));
    EXPECT(EINVAL, fairlock_cond_destroy(NULL));
    EXPECT(EINVAL, fairlock_cond_signal(NULL));
    EXPECT(EINVAL, fairlock_cond_broadcast(NULL));
    EXPECT(EINVAL, fairlock_cond_interrupt(NULL, &interrupted));
    EXPECT(EINVAL, fairlock_cond_interrupt(&cond, NULL));
    EXPECT(EINVAL, fairlock_cond_wait(NULL, &mutex));
    EXPECT(EINVAL, fairlock_cond_wait(&cond, NULL));
    EXPECT(EINVAL, fairlock_cond_wait_for(&cond, NULL, 1));
    EXPECT(EINVAL, fairlock_cond_wait_until(&cond, NULL, CLOCK_MONOTONIC, &time));
    EXPECT(EINVAL, fairlock_cond_wait_until(&cond, &mutex, CLOCK_MONOTONIC, NULL));
    EXPECT(EINVAL, fairlock_cond_wait_until(&cond, &mutex, CLOCK_PROCESS_CPUTIME_ID, &time));
    EXPECT(EINVAL, fairlock_cond_wait_for_unless(&cond, &mutex, 1, NULL));
    EXPECT(0, fairlock_mutex_unlock(&mutex));
    EXPECT(EINVAL, fairlock_range_lock_free(NULL));
    EXPECT(EINVAL, fairlock_range_read(NULL, 0, 1, &hold));
    EXPECT(EINVAL, fairlock_range_read(ranges, 0, 1, NULL));
    EXPECT(EINVAL, fairlock_range_unlock(NULL));
    EXPECT(EINVAL, fairlock_range_downgrade(NULL));
    EXPECT(EINVAL, fairlock_source_free(NULL));
    EXPECT(EINVAL, fairlock_counter_add(NULL, 1));
    EXPECT(EINVAL, fairlock_counter_take(NULL, &number));
    EXPECT(EINVAL, fairlock_event_set(NULL, FAIRLOCK_READABLE));
    EXPECT(EINVAL, fairlock_poll_free(NULL));
    EXPECT(EINVAL, fairlock_poll_add(poll, NULL, 0, FAIRLOCK_READABLE, FAIRLOCK_LEVEL));
    EXPECT(EINVAL, fairlock_poll_wait(NULL, ready, 1, 0, &count));
    EXPECT(EINVAL, fairlock_poll_wait(poll, NULL, 1, 0, &count));
    EXPECT(EINVAL, fairlock_poll_wait(poll, ready, 1, 0, NULL));
    EXPECT(EINVAL, fairlock_poll_descriptor(NULL, &descriptor));
    EXPECT(EINVAL, fairlock_poll_descriptor(poll, NULL));
    EXPECT(0, fairlock_poll_free(poll));
    EXPECT(0, fairlock_range_lock_free(ranges));
}

static int try_upgradable(void *lock) { return fairlock_rwlock_try_upgradable(lock); }
static int unlock_upgradable(void *lock) { return fairlock_rwlock_unlock_upgradable(lock); }
static int upgrade_there(void *lock) { return fairlock_rwlock_try_upgrade(lock); }
static int downgrade(void *lock) { return fairlock_rwlock_downgrade(lock); }
static int read_and_unlock(void *lock) {
    int code = fairlock_rwlock_try_read(lock);
    return code != 0 ? code : fairlock_rwlock_unlock_read(lock);
}

static void upgrades(void) {
    fairlock_rwlock_t lock = FAIRLOCK_RWLOCK_INITIALIZER;
    struct timespec past = { 1, 0 };
    EXPECT(EINVAL, fairlock_rwlock_upgradable(NULL));
    EXPECT(EINVAL, fairlock_rwlock_upgrade(NULL));
    EXPECT(EINVAL, fairlock_rwlock_downgrade(NULL));
    EXPECT(EPERM, fairlock_rwlock_upgrade(&lock));
    EXPECT(EPERM, fairlock_rwlock_downgrade(&lock));
    EXPECT(EPERM, fairlock_rwlock_downgrade_to_upgradable(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock_upgradable(&lock));

    EXPECT(0, fairlock_rwlock_upgradable(&lock));
    EXPECT(EDEADLK, fairlock_rwlock_upgradable(&lock));
    EXPECT(EDEADLK, fairlock_rwlock_try_upgradable_for(&lock, 1));
    EXPECT(EDEADLK, fairlock_rwlock_write(&lock));
    EXPECT(EBUSY, fairlock_rwlock_try_write(&lock));
    EXPECT(EBUSY, fairlock_rwlock_destroy(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock_read(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock_write(&lock));
    EXPECT(EPERM, fairlock_rwlock_downgrade_to_upgradable(&lock));
    EXPECT(EBUSY, in_another_thread(try_upgradable, &lock));
    EXPECT(EPERM, in_another_thread(unlock_upgradable, &lock));
    EXPECT(EPERM, in_another_thread(upgrade_there, &lock));
    EXPECT(EPERM, in_another_thread(downgrade, &lock));
    EXPECT(EPERM, in_another_thread(unlock_read, &lock));
    EXPECT(EPERM, in_another_thread(unlock, &lock));
    EXPECT(0, in_another_thread(read_and_unlock, &lock));

    /* Its own thread may read beside it. */
    EXPECT(0, fairlock_rwlock_read(&lock));
    EXPECT(EBUSY, fairlock_rwlock_try_upgrade(&lock));
    EXPECT(ETIMEDOUT, fairlock_rwlock_try_upgrade_for(&lock, 1000));
    EXPECT(ETIMEDOUT, fairlock_rwlock_try_upgrade_until(&lock, CLOCK_MONOTONIC, &past));
    EXPECT(EINVAL, fairlock_rwlock_try_upgrade_until(&lock, -1, &past));
    EXPECT(0, fairlock_rwlock_unlock_read(&lock));
    EXPECT(0, fairlock_rwlock_upgrade(&lock));
    EXPECT(EPERM, fairlock_rwlock_upgrade(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock_upgradable(&lock));
    EXPECT(EBUSY, in_another_thread(try_read, &lock));
    EXPECT(0, fairlock_rwlock_downgrade_to_upgradable(&lock));
    EXPECT(0, in_another_thread(read_and_unlock, &lock));
    EXPECT(0, fairlock_rwlock_downgrade(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock_upgradable(&lock));
    EXPECT(0, in_another_thread(read_and_unlock, &lock));
    EXPECT(0, fairlock_rwlock_unlock_read(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock_read(&lock));

    /* What releases in any way releases the most that the thread holds. */
    EXPECT(0, fairlock_rwlock_try_upgradable(&lock));
    EXPECT(0, fairlock_rwlock_read(&lock));
    EXPECT(0, fairlock_rwlock_unlock(&lock));
    EXPECT(EPERM, fairlock_rwlock_upgrade(&lock));
    EXPECT(0, fairlock_rwlock_unlock(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock(&lock));

    EXPECT(0, fairlock_rwlock_destroy(&lock));
    EXPECT(EINVAL, fairlock_rwlock_upgradable(&lock));
    EXPECT(EINVAL, fairlock_rwlock_upgrade(&lock));
    EXPECT(EINVAL, fairlock_rwlock_downgrade(&lock));
}

static void rwlock(void) {
    fairlock_rwlock_t lock = FAIRLOCK_RWLOCK_INITIALIZER;
    EXPECT(EPERM, fairlock_rwlock_unlock(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock_read(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock_write(&lock));

    EXPECT(0, fairlock_rwlock_write(&lock));
    EXPECT(EDEADLK, fairlock_rwlock_write(&lock));
    EXPECT(EDEADLK, fairlock_rwlock_read(&lock));
    EXPECT(EDEADLK, fairlock_rwlock_try_write_for(&lock, 1));
    EXPECT(EBUSY, fairlock_rwlock_try_write(&lock));
    EXPECT(EBUSY, fairlock_rwlock_try_read(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock_read(&lock));
    EXPECT(EBUSY, fairlock_rwlock_destroy(&lock));
    EXPECT(EPERM, in_another_thread(unlock_write, &lock));
    EXPECT(EPERM, in_another_thread(unlock_read, &lock));
    EXPECT(EPERM, in_another_thread(unlock, &lock));
    EXPECT(EBUSY, in_another_thread(try_read, &lock));
    EXPECT(EBUSY, in_another_thread(destroy, &lock));
    EXPECT(ETIMEDOUT, in_another_thread(write_soon, &lock));
    EXPECT(ETIMEDOUT, in_another_thread(read_soon, &lock));
    EXPECT(ETIMEDOUT, in_another_thread(write_then, &lock));
    EXPECT(0, fairlock_rwlock_unlock(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock(&lock));

    EXPECT(0, fairlock_rwlock_read(&lock));
    EXPECT(0, fairlock_rwlock_read_recursive(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock_write(&lock));
    EXPECT(EBUSY, fairlock_rwlock_destroy(&lock));
    EXPECT(EBUSY, in_another_thread(try_write, &lock));
    EXPECT(0, fairlock_rwlock_unlock(&lock));
    EXPECT(0, fairlock_rwlock_unlock_read(&lock));
    EXPECT(EPERM, fairlock_rwlock_unlock_read(&lock));

    EXPECT(0, fairlock_rwlock_destroy(&lock));
    EXPECT(EINVAL, fairlock_rwlock_destroy(&lock));
    EXPECT(EINVAL, fairlock_rwlock_read(&lock));
    EXPECT(EINVAL, fairlock_rwlock_try_read(&lock));
    EXPECT(EINVAL, fairlock_rwlock_write(&lock));
    EXPECT(EINVAL, fairlock_rwlock_unlock(&lock));
    EXPECT(EINVAL, fairlock_rwlock_unlock_write(&lock));
    EXPECT(0, fairlock_rwlock_init(&lock));
    EXPECT(0, fairlock_rwlock_write(&lock));
    EXPECT(0, fairlock_rwlock_unlock(&lock));
}

static void deadlines(void) {
    fairlock_rwlock_t lock = FAIRLOCK_RWLOCK_INITIALIZER;
    struct timespec past = { 0, 0 }, odd = { 0, 1000000000 }, negative = { 0, -1 };
    EXPECT(0, fairlock_rwlock_try_write_until(&lock, CLOCK_MONOTONIC, &past));
    EXPECT(0, fairlock_rwlock_unlock(&lock));
    EXPECT(EINVAL, fairlock_rwlock_try_write_until(&lock, CLOCK_MONOTONIC, NULL));
    EXPECT(EINVAL, fairlock_rwlock_try_write_until(&lock, CLOCK_MONOTONIC, &odd));
    EXPECT(EINVAL, fairlock_rwlock_try_read_until(&lock, CLOCK_REALTIME, &negative));
    EXPECT(EINVAL, fairlock_rwlock_try_read_until(&lock, CLOCK_PROCESS_CPUTIME_ID, &past));
    EXPECT(EPERM, fairlock_rwlock_unlock(&lock));
}

static void mutex(void) {
    fairlock_mutex_t mutex = FAIRLOCK_MUTEX_INITIALIZER;
    EXPECT(EPERM, fairlock_mutex_unlock(&mutex));
    EXPECT(0, fairlock_mutex_lock(&mutex));
    EXPECT(EDEADLK, fairlock_mutex_lock(&mutex));
    EXPECT(EBUSY, fairlock_mutex_try_lock(&mutex));
    EXPECT(EBUSY, fairlock_mutex_destroy(&mutex));
    EXPECT(EPERM, in_another_thread(unlock_mutex, &mutex));
    EXPECT(ETIMEDOUT, in_another_thread(lock_soon, &mutex));
    EXPECT(0, fairlock_mutex_unlock(&mutex));
    EXPECT(0, fairlock_mutex_destroy(&mutex));
    EXPECT(EINVAL, fairlock_mutex_lock(&mutex));
    EXPECT(EINVAL, fairlock_mutex_unlock(&mutex));
}

struct waiter {
    fairlock_mutex_t mutex;
    fairlock_cond_t cond;
    int waits;
    int code;
};

static void *wait_there(void *data) {
    struct waiter *waiter = data;
    fairlock_mutex_lock(&waiter->mutex);
    waiter->waits = 1;
    waiter->code = fairlock_cond_wait(&waiter->cond, &waiter->mutex);
    fairlock_mutex_unlock(&waiter->mutex);
    return NULL;
}

static int wait_without_mutex(void *data) {
    struct waiter *waiter = data;
    return fairlock_cond_wait(&waiter->cond, &waiter->mutex);
}

static void cond(void) {
    struct waiter waiter = { FAIRLOCK_MUTEX_INITIALIZER, FAIRLOCK_COND_INITIALIZER, 0, -1 };
    fairlock_mutex_t other = FAIRLOCK_MUTEX_INITIALIZER;
    uint32_t interrupted = 0;
    struct timespec past = { 1, 0 };
    EXPECT(EPERM, fairlock_cond_wait(&waiter.cond, &waiter.mutex));
    EXPECT(EPERM, fairlock_cond_wait_for(&waiter.cond, &waiter.mutex, 1));
    EXPECT(EPERM, fairlock_cond_wait_until(&waiter.cond, &waiter.mutex, CLOCK_REALTIME, &past));
    EXPECT(EPERM, fairlock_cond_wait_for_unless(&waiter.cond, &waiter.mutex, 1, &interrupted));
    EXPECT(0, fairlock_mutex_lock(&waiter.mutex));
    EXPECT(EPERM, in_another_thread(wait_without_mutex, &waiter));
    EXPECT(0, fairlock_mutex_unlock(&waiter.mutex));

    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_there, &waiter) != 0) {
        abort();
    }
    for (int waits = 0; !waits; sched_yield()) {
        fairlock_mutex_lock(&waiter.mutex);
        waits = waiter.waits;
        fairlock_mutex_unlock(&waiter.mutex);
    }
    EXPECT(0, fairlock_mutex_lock(&other));
    EXPECT(EBUSY, fairlock_cond_wait(&waiter.cond, &other));
    EXPECT(EBUSY, fairlock_cond_wait_for(&waiter.cond, &other, 1));
    EXPECT(EBUSY, fairlock_mutex_try_lock(&other)); /* still held */
    EXPECT(EBUSY, fairlock_cond_destroy(&waiter.cond));
    EXPECT(0, fairlock_cond_signal(&waiter.cond));
    pthread_join(thread, NULL);
    EXPECT(0, waiter.code);

    /* Without waiters any mutex will do. */
    EXPECT(ETIMEDOUT, fairlock_cond_wait_for(&waiter.cond, &other, 1));
    EXPECT(0, fairlock_cond_destroy(&waiter.cond));
    EXPECT(EINVAL, fairlock_cond_destroy(&waiter.cond));
    EXPECT(EINVAL, fairlock_cond_wait(&waiter.cond, &other));
    EXPECT(EINVAL, fairlock_cond_signal(&waiter.cond));
    EXPECT(EINVAL, fairlock_cond_broadcast(&waiter.cond));
    EXPECT(0, fairlock_cond_init(&waiter.cond));
    EXPECT(ETIMEDOUT, fairlock_cond_wait_for(&waiter.cond, &other, 1));
    EXPECT(0, fairlock_mutex_unlock(&other));
    EXPECT(0, fairlock_mutex_destroy(&other));
    EXPECT(EINVAL, fairlock_cond_wait(&waiter.cond, &other));
}

static void ranges(void) {
    fairlock_range_lock_t *lock = fairlock_range_lock_new();
    struct timespec past = { 0, 0 };
    fairlock_range_hold_t first, second;
    EXPECT(EINVAL, fairlock_range_write(lock, 0, 0, &first));
    EXPECT(EINVAL, fairlock_range_write(lock, UINT64_MAX, 2, &first));
    EXPECT(0, fairlock_range_write(lock, UINT64_MAX, 1, &first));
    EXPECT(0, fairlock_range_write(lock, 0, 10, &second));
    EXPECT(EBUSY, fairlock_range_try_read(lock, 9, 1, &(fairlock_range_hold_t){ 0 }));
    EXPECT(ETIMEDOUT, fairlock_range_try_read_for(lock, 9, 1, 1000, &(fairlock_range_hold_t){ 0 }));
    EXPECT(ETIMEDOUT, fairlock_range_try_write_until(lock, 9, FAIRLOCK_TO_END, CLOCK_REALTIME, &past,
                                                     &(fairlock_range_hold_t){ 0 }));
    EXPECT(EBUSY, fairlock_range_lock_free(lock));
    EXPECT(0, fairlock_range_downgrade(&second));
    EXPECT(EPERM, fairlock_range_downgrade(&second));
    EXPECT(0, fairlock_range_unlock(&second));
    EXPECT(EPERM, fairlock_range_unlock(&second));
    EXPECT(EPERM, fairlock_range_downgrade(&second));
    EXPECT(EBUSY, fairlock_range_lock_free(lock));
    EXPECT(0, fairlock_range_unlock(&first));
    EXPECT(0, fairlock_range_lock_free(lock));
}

static void sources(void) {
    fairlock_poll_t *poll = fairlock_poll_new(), *other = fairlock_poll_new();
    fairlock_source_t *counter = fairlock_counter_new(UINT64_MAX - 1);
    fairlock_source_t *event = fairlock_event_new();
    fairlock_ready_t ready[2];
    size_t count = 7;
    uint64_t number = 0;
    EXPECT(EINVAL, fairlock_poll_add(poll, event, 0, 8, FAIRLOCK_LEVEL));
    EXPECT(EINVAL, fairlock_poll_add(poll, event, 0, FAIRLOCK_READABLE, 3));
    EXPECT(ENOENT, fairlock_poll_modify(poll, event, 0, FAIRLOCK_READABLE, FAIRLOCK_ONCE));
    EXPECT(ENOENT, fairlock_poll_remove(poll, event));
    EXPECT(0, fairlock_poll_add(poll, event, 5, FAIRLOCK_READABLE, FAIRLOCK_LEVEL));
    EXPECT(EEXIST, fairlock_poll_add(poll, event, 5, FAIRLOCK_READABLE, FAIRLOCK_LEVEL));
    EXPECT(EEXIST, fairlock_poll_add(other, event, 5, FAIRLOCK_READABLE, FAIRLOCK_LEVEL));
    EXPECT(ENOENT, fairlock_poll_remove(other, event));
    EXPECT(EINVAL, fairlock_poll_wait(poll, ready, 0, 0, &count));
    EXPECT(EINVAL, fairlock_poll_wait(poll, ready, 2, -2, &count));
    EXPECT(ETIMEDOUT, fairlock_poll_wait(poll, ready, 2, 0, &count));
    EXPECT(0, (int)count);

    EXPECT(EINVAL, fairlock_counter_add(event, 1));
    EXPECT(EINVAL, fairlock_event_set(counter, FAIRLOCK_READABLE));
    EXPECT(EINVAL, fairlock_event_set(event, 64));
    EXPECT(EAGAIN, fairlock_counter_add(counter, 2));
    EXPECT(0, fairlock_counter_take(counter, &number));
    EXPECT(1, number == UINT64_MAX - 1);
    EXPECT(EAGAIN, fairlock_counter_take(counter, &number));

    EXPECT(0, fairlock_event_set(event, FAIRLOCK_READABLE | FAIRLOCK_CLOSED));
    EXPECT(0, fairlock_poll_wait(poll, ready, SIZE_MAX, FAIRLOCK_FOR_EVER, &count));
    EXPECT(1, count == 1 && ready[0].token == 5);
    EXPECT(FAIRLOCK_READABLE | FAIRLOCK_CLOSED, (int)ready[0].readiness);
    EXPECT(0, fairlock_event_clear(event, FAIRLOCK_READABLE | FAIRLOCK_CLOSED));
    EXPECT(ETIMEDOUT, fairlock_poll_wait(poll, ready, 2, 0, &count));

    fairlock_source_t *timer = fairlock_timer_new(), *in, *out;
    struct timespec odd = { 0, 1000000000 };
    void *message;
    EXPECT(EINVAL, fairlock_counter_add(timer, 1));
    EXPECT(EINVAL, fairlock_timer_take(counter, &number));
    EXPECT(EINVAL, fairlock_timer_take(timer, NULL));
    EXPECT(EAGAIN, fairlock_timer_take(timer, &number));
    EXPECT(EINVAL, fairlock_timer_set_at(timer, &odd));
    EXPECT(EINVAL, fairlock_timer_set_at(timer, NULL));
    EXPECT(EINVAL, fairlock_timer_set_every(timer, 1, 0));
    EXPECT(EINVAL, fairlock_timer_set_after(NULL, 1));
    EXPECT(0, fairlock_timer_cancel(timer));
    EXPECT(0, fairlock_source_free(timer));
    EXPECT(EINVAL, fairlock_channel_new(0, &in, &out));
    EXPECT(EINVAL, fairlock_channel_new(SIZE_MAX, &in, &out));
    EXPECT(EINVAL, fairlock_channel_new(1, NULL, &out));
    EXPECT(0, fairlock_channel_new(1, &in, &out));
    EXPECT(EINVAL, fairlock_channel_send(out, NULL));
    EXPECT(EINVAL, fairlock_channel_receive(in, &message));
    EXPECT(EINVAL, fairlock_channel_receive(out, NULL));
    EXPECT(EAGAIN, fairlock_channel_receive(out, &message));
    EXPECT(0, fairlock_channel_send(in, &number));
    EXPECT(EAGAIN, fairlock_channel_send(in, &number));
    EXPECT(0, fairlock_channel_receive(out, &message));
    EXPECT(1, message == &number);
    EXPECT(0, fairlock_source_free(out));
    EXPECT(EPIPE, fairlock_channel_send(in, &number));
    EXPECT(0, fairlock_source_free(in));

    /* In this order the poll lets go of it. */
    EXPECT(0, fairlock_poll_free(poll));
    EXPECT(0, fairlock_poll_add(other, event, 5, FAIRLOCK_READABLE, FAIRLOCK_LEVEL));
    EXPECT(0, fairlock_source_free(event));
    EXPECT(0, fairlock_source_free(counter));
    EXPECT(0, fairlock_poll_free(other));
}

int main(void) {
    null_pointers();
    rwlock();
    upgrades();
    deadlines();
    mutex();
    cond();
    ranges();
    sources();
    return failures == 0 ? 0 : 1;
}
