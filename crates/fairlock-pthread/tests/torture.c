/* Torture: threads and forked processes on many reader-writer locks, until the time is over.
 *
 *     torture SECONDS [SEED]
 *
 * Prints one line of totals and exits 0 if all went well; else says what did not and exits otherwise.
 * The ten minutes that a release has to stand, from the root of the repository:
 *
 *     cargo build --release -p fairlock-pthread
 *     cc -O2 -g -pthread -o target/torture crates/fairlock-pthread/tests/torture.c
 *     target/torture 600                                  # glibc itself: so that it is no error of this
 *     LD_PRELOAD=$PWD/target/release/libfairlock_pthread.so FAIRLOCK_LOCK=rwsem target/torture 600
 *
 * FAIRLOCK_LOCK has to be set under the library: without it these are taken for glibc's locks, which can
 * do less, see below.
 *
 * Each process has threads that come and go, one that forks while they run and waits for the
 * children, one that interrupts them all with signals, and one that watches whether somebody has
 * waited for a lock for half a minute. Children do the same, for a shorter time, and some then execute
 * this program anew.
 *
 * What is checked
 * 1. Behind each lock are two numbers that a writer adds to one after the other: equal whenever
 *    somebody has the lock, and in the end as large as all that writers say they added.
 * 2. Each code that is returned is one that the call may return there.
 * 3. Locks that are destroyed, and their memory overwritten, right after their last unlock and then
 *    made anew.
 * 4. Recursive reads among writers, where the kind allows them, and reads of several locks.
 * 5. Locks in destructors of keys, in threads that are cancelled, and held over a fork.
 *
 * What a child may do with its parent's private locks: those that the forking thread held it unlocks and
 * goes on to use; the one that it held for reading only for reading, as other threads of the parent
 * may have read, too. It has others of its own. glibc's locks can do less: a child cannot unlock one
 * that was held for writing, as it has another number than the thread that locked it, so it makes it
 * anew; and none may be held over a fork while somebody waits for it, so others only try to get it. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PLACES = 6,      /* locks that stay, of each process and of all */
    REMADE = 4,      /* locks that are destroyed and made anew, likewise */
    WORKERS = 5,     /* threads of a process, besides those that look after it */
    PROCESSES = 6,   /* at once */
    GENERATIONS = 3, /* of processes below the first */
    PATIENCE = 30,   /* s that a thread may wait */
};

/* ---- what all processes share ---- */

enum count { READS, WRITES, BUSY, TIMED_OUT, RECURSIONS, MADE, THREADS, CANCELLED, FORKS, EXECS, SIGNALS, COUNTS };
static const char *const names[COUNTS] = {"reads",   "writes",    "busy",  "timed out",   "recursive", "locks remade",
                                          "threads", "cancelled", "forks", "executions", "signals"};

/* A lock and what is behind it. */
struct place {
    pthread_rwlock_t lock;
    volatile long first, second;
    atomic_long added;
    int kind;
    /* Of one that is made anew: whether it is there, who may still come, and who has not left. */
    atomic_int stage, tickets, users;
};
enum { NONE, BEING_MADE, THERE };

struct shared {
    atomic_long ends; /* ms */
    atomic_int processes;
    atomic_ulong counts[COUNTS];
    struct place places[PLACES];
    struct place remade[REMADE];
};

static struct shared *shared;
static int shared_file;

/* ---- this process ---- */

struct worker {
    pthread_t thread;
    uint64_t random;
    atomic_int is_running, has_ended, tid;
    /* The call that it is in. */
    atomic_long since;
    struct place *_Atomic at;
    const char *_Atomic doing;
    unsigned long counts[COUNTS];
};

struct process {
    struct place places[PLACES];
    struct place remade[REMADE];
    struct worker main, forker, workers[WORKERS];
    atomic_int ends, is_watched;
    long until; /* ms */
};

static struct process *process;
static int generation;
static uint64_t seed;
static __thread struct worker *self;
static pthread_key_t key;

/* Held by whoever forks. */
static struct place held_to_write = {.lock = PTHREAD_RWLOCK_INITIALIZER};
static struct place held_to_read = {.lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP,
                                    .kind = PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP};
static int is_glibc;

static void say_place(const struct place *place) {
    const uint32_t *words = (const uint32_t *)&place->lock;
    fprintf(stderr, " kind %d, %ld/%ld/%ld, users %d:", place->kind, place->first, place->second,
            atomic_load(&place->added), atomic_load(&place->users));
    for (size_t word = 0; word < sizeof place->lock / sizeof *words; word++)
        fprintf(stderr, " %08x", words[word]);
    fprintf(stderr, "\n");
}

static const char *name_of(const struct place *place) {
    static __thread char name[40];
    const struct place *const sets[] = {process->places, process->remade, shared->places, shared->remade};
    const char *const names[] = {"private", "private remade", "shared", "shared remade"};
    const int sizes[] = {PLACES, REMADE, PLACES, REMADE};
    if (place == &held_to_write || place == &held_to_read)
        return place == &held_to_write ? "held over forks to write" : "held over forks to read";
    for (int set = 0; set < 4; set++)
        if (place >= sets[set] && place < sets[set] + sizes[set])
            snprintf(name, sizeof name, "%s %d", names[set], (int)(place - sets[set]));
    return name;
}

/* Its parent sees that this process has failed, and does so too; what is below is killed. */
#define FAIL(place, ...)                                                                              \
    do {                                                                                              \
        fprintf(stderr, "torture: process %d, generation %d, thread %d: ", getpid(), generation, gettid()); \
        fprintf(stderr, __VA_ARGS__);                                                                 \
        if (place != NULL)                                                                            \
            fprintf(stderr, "; lock %s,", name_of(place)), say_place(place);                          \
        else                                                                                          \
            fprintf(stderr, "\n");                                                                    \
        abort();                                                                                      \
    } while (0)
#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition))                                             \
            FAIL((struct place *)NULL, "line %d: %s", __LINE__, #condition); \
    } while (0)
#define CHECK_AT(place, condition)                                    \
    do {                                                              \
        if (!(condition))                                             \
            FAIL(place, "line %d: %s", __LINE__, #condition);         \
    } while (0)

static long ns_of(clockid_t clock) {
    struct timespec time;
    CHECK(clock_gettime(clock, &time) == 0);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}
static long now_ms(void) { return ns_of(CLOCK_MONOTONIC) / 1000000; }

static uint64_t random_number(void) {
    uint64_t state = self->random;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return self->random = state;
}
static int one_in(int many) { return random_number() % many == 0; }
static void count(enum count what) { self->counts[what]++; }

/* Says where the thread is, for whoever watches it. */
static void begins(struct place *place, const char *doing) {
    atomic_store(&self->at, place);
    atomic_store(&self->doing, doing);
    atomic_store(&self->since, now_ms());
}
static int ended(int code) {
    atomic_store(&self->since, 0);
    return code;
}
#define CALL(place, call) (begins(place, #call), ended(call))

static void sleep_us(long us) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
    pthread_setcancelstate(before, &before);
}

/* In a section. Not a cancellation point. */
static void linger(void) {
    if (one_in(400))
        sleep_us(random_number() % 1000);
    else if (one_in(8))
        sched_yield();
    else
        for (volatile int turns = random_number() % 200; turns > 0; turns--)
            ;
}

/* ---- one lock ---- */

static struct timespec at_ns(long ns) { return (struct timespec){ns / 1000000000, ns % 1000000000}; }

static int timed(struct place *place, int is_writer, long ahead) {
    int is_realtime = one_in(2);
    clockid_t clock = is_realtime ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    long apart = ns_of(CLOCK_REALTIME) - ns_of(CLOCK_MONOTONIC);
    long until = ns_of(clock) + ahead;
    struct timespec time = at_ns(until);
    int code;
    if (is_realtime && one_in(2))
        code = is_writer ? CALL(place, pthread_rwlock_timedwrlock(&place->lock, &time))
                         : CALL(place, pthread_rwlock_timedrdlock(&place->lock, &time));
    else
        code = is_writer ? CALL(place, pthread_rwlock_clockwrlock(&place->lock, clock, &time))
                         : CALL(place, pthread_rwlock_clockrdlock(&place->lock, clock, &time));
    long now = ns_of(clock);
    /* The one clock may be set meanwhile. */
    long moved = ns_of(CLOCK_REALTIME) - ns_of(CLOCK_MONOTONIC) - apart;
    int was_set = is_realtime && labs(moved) > 5000000;
    CHECK_AT(place, code != ETIMEDOUT || was_set || now >= until - is_realtime * 10000000);
    return code;
}

enum patience { WAIT, TRY, TIMED };

/* Whether it has been had. */
static int acquire(struct place *place, int is_writer, enum patience patience) {
    int code;
    switch (patience) {
    case WAIT:
        code = is_writer ? CALL(place, pthread_rwlock_wrlock(&place->lock))
                         : CALL(place, pthread_rwlock_rdlock(&place->lock));
        CHECK_AT(place, code == 0);
        break;
    case TRY:
        code = is_writer ? CALL(place, pthread_rwlock_trywrlock(&place->lock))
                         : CALL(place, pthread_rwlock_tryrdlock(&place->lock));
        CHECK_AT(place, code == 0 || code == EBUSY);
        break;
    default:
        code = timed(place, is_writer, (long)(random_number() % 3000000) - 200000);
        CHECK_AT(place, code == 0 || code == ETIMEDOUT);
    }
    count(code == EBUSY ? BUSY : code == ETIMEDOUT ? TIMED_OUT : is_writer ? WRITES : READS);
    return code == 0;
}

static void release(void *argument) {
    struct place *place = argument;
    int code = CALL(place, pthread_rwlock_unlock(&place->lock));
    /* The lock may be gone. */
    if (code != 0)
        FAIL((struct place *)NULL, "pthread_rwlock_unlock: %d, lock %s", code, name_of(place));
}

static enum patience some_patience(void) {
    static const enum patience all[] = {WAIT, WAIT, WAIT, TRY, TIMED};
    return all[random_number() % 5];
}

/* What is answered to those that have it already. */
static void ask_wrongly(struct place *place, int is_writer) {
    struct timespec wrong = {0, 1000000000};
    if (is_writer) {
        CHECK_AT(place, CALL(place, pthread_rwlock_wrlock(&place->lock)) == EDEADLK);
        CHECK_AT(place, CALL(place, pthread_rwlock_rdlock(&place->lock)) == EDEADLK);
        CHECK_AT(place, CALL(place, pthread_rwlock_tryrdlock(&place->lock)) == EBUSY);
        CHECK_AT(place, timed(place, one_in(2), 100000) == EDEADLK);
    } else {
        CHECK_AT(place, timed(place, 1, random_number() % 1000000) == ETIMEDOUT);
    }
    CHECK_AT(place, CALL(place, pthread_rwlock_trywrlock(&place->lock)) == EBUSY);
    CHECK_AT(place, CALL(place, pthread_rwlock_timedrdlock(&place->lock, &wrong)) == EINVAL);
}

static void add(struct place *place) {
    CHECK_AT(place, place->first == place->second);
    place->first++;
    linger();
    if (one_in(64))
        ask_wrongly(place, 1);
    place->second++;
    atomic_fetch_add(&place->added, 1);
    CHECK_AT(place, place->first == place->second);
}

static void look(struct place *place) {
    long first = place->first;
    linger();
    CHECK_AT(place, first == place->second);
}

static int is_recursive(const struct place *place) {
    return place->kind != PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP;
}

static void use(struct place *places, int from);

/* It is held for reading. */
static void read_on(struct place *places, int at, int depth) {
    struct place *place = &places[at];
    look(place);
    if (depth < 3 && is_recursive(place) && one_in(3)) {
        count(RECURSIONS);
        if (acquire(place, 0, some_patience())) {
            read_on(places, at, depth + 1);
            release(place);
        }
    } else if (one_in(10) && at + 1 < PLACES) {
        use(places, at + 1); /* In one order, so that there can be no cycle. */
    } else if (one_in(64)) {
        ask_wrongly(place, 0);
    }
    look(place);
}

static void use(struct place *places, int from) {
    int at = from + random_number() % (PLACES - from);
    struct place *place = &places[at];
    if (one_in(3)) {
        if (acquire(place, 1, some_patience())) {
            add(place);
            release(place);
        }
    } else if (acquire(place, 0, some_patience())) {
        read_on(places, at, 1);
        release(place);
    }
}

/* Read, and perhaps cancelled meanwhile. */
static void read_to_be_cancelled(struct place *place) {
    if (acquire(place, 0, WAIT)) {
        pthread_cleanup_push(release, place);
        look(place);
        pthread_testcancel();
        pthread_cleanup_pop(1);
    }
}

/* ---- locks that are destroyed and made anew ---- */

static void make(struct place *place, int is_shared) {
    pthread_rwlockattr_t attributes;
    place->kind = random_number() % 3;
    CHECK(pthread_rwlockattr_init(&attributes) == 0);
    CHECK(pthread_rwlockattr_setkind_np(&attributes, place->kind) == 0);
    CHECK(pthread_rwlockattr_setpshared(&attributes, is_shared) == 0);
    if (place->kind == 0 && !is_shared && one_in(2))
        place->lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
    else
        CHECK(pthread_rwlock_init(&place->lock, &attributes) == 0);
    CHECK(pthread_rwlockattr_destroy(&attributes) == 0);
    place->first = place->second = 0;
    atomic_store(&place->added, 0);
}

/* Nobody has it. */
static void destroy(struct place *place) {
    CHECK_AT(place, place->first == place->second && place->second == atomic_load(&place->added));
    CHECK_AT(place, pthread_rwlock_destroy(&place->lock) == 0);
    memset(&place->lock, one_in(2) ? 0xff : (int)random_number(), sizeof place->lock);
}

static int take_ticket(struct place *place, int is_shared) {
    int nothing = NONE;
    if (atomic_compare_exchange_strong(&place->stage, &nothing, BEING_MADE)) {
        int users = 2 + random_number() % 4;
        make(place, is_shared);
        count(MADE);
        atomic_store(&place->users, users);
        atomic_store(&place->stage, THERE);
        atomic_store(&place->tickets, users - 1);
        return 1;
    }
    int tickets = atomic_load(&place->tickets);
    while (tickets > 0)
        if (atomic_compare_exchange_weak(&place->tickets, &tickets, tickets - 1))
            return 1;
    return 0;
}

/* The last one to leave destroys it, as soon as it knows that nobody else has it. */
static void use_ticket(struct place *place) {
    for (int times = random_number() % 4; times > 0; times--) {
        int is_writer = one_in(2);
        if (acquire(place, is_writer, some_patience())) {
            is_writer ? add(place) : look(place);
            release(place);
        }
    }
    int is_writer = one_in(2);
    acquire(place, is_writer, WAIT);
    is_writer ? add(place) : look(place);
    int is_last = atomic_fetch_sub(&place->users, 1) == 1;
    release(place);
    if (!is_last)
        return;
    if (!is_writer) { /* Other readers may not have left it. */
        acquire(place, 1, WAIT);
        release(place);
    }
    destroy(place);
    atomic_store(&place->stage, NONE);
}

static void use_remade(struct place *place, int is_shared) {
    if (take_ticket(place, is_shared))
        use_ticket(place);
}

/* Only this process's main thread is left. */
static void use_up(struct place *remade, int is_shared) {
    for (int at = 0; at < REMADE; at++)
        while (atomic_load(&remade[at].stage) != NONE)
            use_remade(&remade[at], is_shared);
}

/* ---- threads ---- */

static void use_held_over_forks(void) {
    int is_writer = one_in(2);
    struct place *place = is_writer || one_in(2) ? &held_to_write : &held_to_read;
    if (generation == 0 && one_in(4))
        place = &held_to_read;
    if (acquire(place, is_writer, is_glibc ? TRY : some_patience())) {
        is_writer ? add(place) : look(place);
        release(place);
    }
}

static void do_something(void) {
    uint64_t choice = random_number() % 100;
    if (choice < 35)
        use(process->places, 0);
    else if (choice < 65)
        use(shared->places, 0);
    else if (choice < 80)
        use_remade(&process->remade[random_number() % REMADE], 0);
    else if (choice < 93)
        use_remade(&shared->remade[random_number() % REMADE], 1);
    else
        use_held_over_forks();
}

static void add_up(struct worker *worker) {
    for (int what = 0; what < COUNTS; what++) {
        atomic_fetch_add(&shared->counts[what], worker->counts[what]);
        worker->counts[what] = 0;
    }
}

static void at_the_end(void *rounds) {
    do_something();
    if ((intptr_t)rounds > 1)
        CHECK(pthread_setspecific(key, (void *)((intptr_t)rounds - 1)) == 0);
    else
        atomic_store(&self->has_ended, 1);
}

static void *work(void *argument) {
    self = argument;
    atomic_store(&self->tid, gettid());
    CHECK(pthread_setspecific(key, (void *)(intptr_t)(1 + random_number() % 3)) == 0);
    for (int times = random_number() % 2000; times > 0 && !atomic_load(&process->ends); times--) {
        do_something();
        pthread_testcancel();
        if (one_in(20))
            read_to_be_cancelled(&process->places[random_number() % PLACES]);
    }
    return NULL;
}

static void start(struct worker *worker, void *(*what)(void *)) {
    worker->random = random_number() | 1;
    atomic_store(&worker->has_ended, 0);
    count(THREADS);
    CHECK(pthread_create(&worker->thread, NULL, what, worker) == 0);
    atomic_store(&worker->is_running, 1);
}

static void end(struct worker *worker) {
    void *result;
    CHECK(pthread_join(worker->thread, &result) == 0);
    atomic_store(&worker->tid, 0);
    atomic_store(&worker->is_running, 0);
    if (result == PTHREAD_CANCELED)
        count(CANCELLED);
    add_up(worker);
}

/* What every thread of this process is in. */
static void say_waits(long now) {
    for (struct worker *worker = &process->main; worker < process->workers + WORKERS; worker++) {
        struct place *place = atomic_load(&worker->at);
        long since = atomic_load(&worker->since);
        if (since == 0 || place == NULL)
            continue;
        fprintf(stderr, "torture: thread %d waits since %ld ms in %s; lock %s,", atomic_load(&worker->tid),
                now - since, atomic_load(&worker->doing), name_of(place));
        say_place(place);
    }
}

/* Calls that take too long. */
static void *watch(void *unused) {
    while (atomic_load(&process->is_watched)) {
        long now = now_ms();
        for (struct worker *worker = &process->main; worker < process->workers + WORKERS; worker++) {
            long since = atomic_load(&worker->since);
            if (since == 0 || now - since < PATIENCE * 1000)
                continue;
            say_waits(now);
            FAIL(atomic_load(&worker->at), "thread %d waits", atomic_load(&worker->tid));
        }
        if (now > atomic_load(&shared->ends) + 2 * PATIENCE * 1000)
            FAIL((struct place *)NULL, "does not end");
        sleep_us(50000);
    }
    return unused;
}

static atomic_ulong signals;
static void on_signal(int signal) {
    (void)signal;
    atomic_fetch_add_explicit(&signals, 1, memory_order_relaxed);
}

static void *interrupt(void *unused) {
    struct worker *worker = &process->main;
    while (atomic_load(&process->is_watched)) {
        int tid = atomic_load(&worker->tid);
        if (tid != 0) /* It may have ended: then nothing comes of it. */
            syscall(SYS_tgkill, getpid(), tid, SIGALRM);
        if (++worker == process->workers + WORKERS)
            worker = &process->main;
        sleep_us(300);
    }
    return unused;
}

/* ---- processes ---- */

static void run(long until);

static void before_fork(void) {
    acquire(&held_to_write, 1, WAIT);
    acquire(&held_to_read, 0, WAIT);
    held_to_write.first++;
    if (one_in(2)) /* So that others wait. */
        sleep_us(random_number() % 1000);
}
static void after_fork(void) {
    held_to_write.second++;
    atomic_fetch_add(&held_to_write.added, 1);
    look(&held_to_read);
    release(&held_to_read);
    look(&held_to_write);
    release(&held_to_write);
}
static void after_fork_in_child(void) {
    if (is_glibc) {
        held_to_write.lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
        acquire(&held_to_write, 1, WAIT);
    }
    after_fork();
}

static void execute_anew(void) {
    char numbers[3][32];
    struct itimerval never = {0};
    sigset_t alarm;
    /* No handler would be there at first. */
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    CHECK(sigprocmask(SIG_BLOCK, &alarm, NULL) == 0 && setitimer(ITIMER_REAL, &never, NULL) == 0);
    snprintf(numbers[0], sizeof numbers[0], "%d", shared_file);
    snprintf(numbers[1], sizeof numbers[1], "%d", generation);
    snprintf(numbers[2], sizeof numbers[2], "%lu", (unsigned long)random_number());
    execl("/proc/self/exe", "torture", "again", numbers[0], numbers[1], numbers[2], (char *)NULL);
    FAIL((struct place *)NULL, "execl: %s", strerror(errno));
}

/* A child, in the thread that forked. */
static void be_child(pid_t parent, uint64_t random) {
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
    static struct worker child;
    memset(&child, 0, sizeof child);
    child.random = random | 1;
    self = &child;
    generation++;
    atomic_store(&signals, 0); /* Those were the parent's. */
    int anew = one_in(3);
    run(now_ms() + random_number() % 300);
    if (anew && now_ms() < atomic_load(&shared->ends))
        execute_anew();
    if (one_in(2))
        exit(0);
    _exit(0);
}

static pid_t fork_one(void) {
    if (atomic_fetch_add(&shared->processes, 1) >= PROCESSES) {
        atomic_fetch_sub(&shared->processes, 1);
        return 0;
    }
    pid_t parent = getpid();
    uint64_t random = random_number();
    pid_t child = fork();
    if (child == 0)
        be_child(parent, random);
    CHECK(child > 0);
    count(FORKS);
    return child;
}

static void wait_for(pid_t *child, int flags) {
    int status;
    pid_t ended = waitpid(*child, &status, flags);
    if (ended == 0 || (ended < 0 && errno == EINTR))
        return;
    if (ended != *child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        FAIL((struct place *)NULL, "child %d ended with status %x", *child, status);
    *child = 0;
    atomic_fetch_sub(&shared->processes, 1);
}

/* Children are killed when the thread that made them ends; so this one lasts longer than they. */
static void *fork_and_wait(void *argument) {
    pid_t children[3] = {0};
    self = argument;
    atomic_store(&self->tid, gettid());
    for (;;) {
        int ends = atomic_load(&process->ends) || generation == GENERATIONS, left = 0;
        for (int at = 0; at < 3; at++) {
            if (children[at] != 0)
                wait_for(&children[at], WNOHANG);
            else if (!ends && one_in(3))
                children[at] = fork_one();
            left += children[at] != 0;
        }
        if (ends && left == 0)
            return NULL;
        ends ? sleep_us(1000) : do_something();
    }
}

static void look_after(struct worker *worker) {
    if (!atomic_load(&worker->is_running))
        start(worker, work);
    else if (atomic_load(&worker->has_ended))
        end(worker);
    else if (one_in(300))
        CHECK(pthread_cancel(worker->thread) == 0);
}

/* A process's life, in whatever thread. */
static void run(long until) {
    pthread_t watcher, interrupter;
    process = calloc(1, sizeof *process);
    CHECK(process != NULL);
    process->main.random = self->random;
    self = &process->main;
    atomic_store(&self->tid, gettid());
    for (int at = 0; at < PLACES; at++)
        make(&process->places[at], 0);
    atomic_store(&process->is_watched, 1);
    CHECK(pthread_create(&watcher, NULL, watch, NULL) == 0);
    CHECK(pthread_create(&interrupter, NULL, interrupt, NULL) == 0);
    struct itimerval often = {{0, 700}, {0, 700}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    start(&process->forker, fork_and_wait);
    while (now_ms() < until && now_ms() < atomic_load(&shared->ends)) {
        for (int at = 0; at < WORKERS; at++)
            look_after(&process->workers[at]);
        do_something();
    }
    atomic_store(&process->ends, 1);
    for (int at = 0; at < WORKERS; at++)
        if (atomic_load(&process->workers[at].is_running))
            end(&process->workers[at]);
    end(&process->forker);
    use_up(process->remade, 0);
    atomic_store(&process->is_watched, 0);
    CHECK(pthread_join(watcher, NULL) == 0 && pthread_join(interrupter, NULL) == 0);
    for (int at = 0; at < PLACES; at++)
        destroy(&process->places[at]);
    count(SIGNALS);
    self->counts[SIGNALS] = atomic_exchange(&signals, 0);
    add_up(self);
}

static void begin_process(void) {
    struct rlimit none = {0, 0};
    struct sigaction action = {.sa_handler = on_signal}; /* Nothing goes on by itself. */
    sigset_t alarm;
    const char *policy = getenv("FAIRLOCK_LOCK");
    CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    CHECK(sigprocmask(SIG_UNBLOCK, &alarm, NULL) == 0);
    CHECK(pthread_key_create(&key, at_the_end) == 0);
    CHECK(pthread_atfork(before_fork, after_fork, after_fork_in_child) == 0);
    is_glibc = policy == NULL || strcmp(policy, "glibc") == 0;
}

static void share(int file) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(shared != MAP_FAILED);
    shared_file = file;
}

int main(int count_of_arguments, char **arguments) {
    static struct worker first;
    self = &first;
    if (count_of_arguments == 5 && strcmp(arguments[1], "again") == 0) {
        share(atoi(arguments[2]));
        generation = atoi(arguments[3]);
        first.random = strtoul(arguments[4], NULL, 10) | 1;
        begin_process();
        count(EXECS);
        add_up(self);
        run(now_ms() + random_number() % 200);
        return 0;
    }
    double seconds = count_of_arguments > 1 ? atof(arguments[1]) : 0;
    seed = count_of_arguments > 2 ? strtoul(arguments[2], NULL, 10) : (unsigned long)ns_of(CLOCK_REALTIME);
    if (seconds <= 0) {
        fprintf(stderr, "torture: for how long? For ten minutes: torture 600\n");
        return 2;
    }
    int file = memfd_create("torture", 0);
    CHECK(file >= 0 && ftruncate(file, sizeof *shared) == 0);
    share(file);
    first.random = seed * 0x9e3779b97f4a7c15 | 1;
    begin_process();
    for (int at = 0; at < PLACES; at++)
        make(&shared->places[at], 1);
    long ends = now_ms() + (long)(seconds * 1000);
    atomic_store(&shared->ends, ends);
    run(ends);
    use_up(shared->remade, 1);
    for (int at = 0; at < PLACES; at++)
        destroy(&shared->places[at]);
    CHECK(atomic_load(&shared->processes) == 0);
    printf("torture: seed %lu:", (unsigned long)seed);
    for (int what = 0; what < COUNTS; what++)
        printf("%s %lu %s", what ? "," : "", atomic_load(&shared->counts[what]), names[what]);
    printf("\n");
    return 0;
}
