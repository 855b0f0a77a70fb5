/* What no function of a lock does, whether threads wait for each other or not: it allocates nothing, does
 * not ask the dynamic linker for a thread's variables (which allocates now and then), and leaves errno
 * alone, even where system calls fail. Exits 0 if that is so; what hangs ends by an alarm. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* In the program itself, so found without a call. */
static __thread volatile int in_call;

#define CALL(code, call)                                                          \
    do {                                                                          \
        errno = 123;                                                              \
        in_call = 1;                                                              \
        int found = (call);                                                       \
        in_call = 0;                                                              \
        CHECK(errno == 123);                                                      \
        (code) = found;                                                           \
    } while (0)

static void not_in_a_call(const char *what) {
    if (!in_call)
        return;
    in_call = 0;
    fprintf(stderr, "a lock's function called %s\n", what);
    _exit(1);
}

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

void *malloc(size_t size) {
    not_in_a_call("malloc");
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    not_in_a_call("calloc");
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
    not_in_a_call("realloc");
    return __libc_realloc(memory, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    not_in_a_call("posix_memalign");
    *memory = __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

void free(void *memory) {
    if (memory)
        not_in_a_call("free");
    __libc_free(memory);
}

#ifdef __x86_64__
/* How code finds the variables of threads that were not compiled for a place known from the start. */
void *__tls_get_addr(void *index) {
    static void *(*next)(void *);
    not_in_a_call("__tls_get_addr");
    if (!next)
        next = (void *(*)(void *))dlsym(RTLD_NEXT, "__tls_get_addr");
    return next(index);
}
#endif

/* Calls that locks make and can do without fail from now on. */
static void refuse_system_calls(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrusage, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

enum { LOCKS = 4, THREADS = 6, ROUNDS = 1500 };
static pthread_rwlock_t *locks;
static atomic_int is_ready;

static struct timespec soon(void) {
    struct timespec time;
    OK(clock_gettime(CLOCK_MONOTONIC, &time));
    time.tv_nsec += 50000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

/* As somebody else would be heard of only by waiting, some hold the locks for a while. */
static void hold(int round) {
    if (round % 16 == 0)
        usleep(50);
    for (volatile int turn = 0; turn < 100; turn++)
        ;
}

static void *use(void *number) {
    /* Reads alone at first: some locks then find other ways for them. */
    for (int round = 0; round < 200 * LOCKS; round++) {
        int code;
        CALL(code, pthread_rwlock_rdlock(&locks[round % LOCKS]));
        OK(code);
        CALL(code, pthread_rwlock_unlock(&locks[round % LOCKS]));
        OK(code);
    }
    atomic_fetch_add(&is_ready, 1);
    while (atomic_load(&is_ready) < THREADS)
        sched_yield();
    for (int round = 0; round < ROUNDS; round++) {
        int code, way = (round + (int)(size_t)number) % 8;
        pthread_rwlock_t *lock = &locks[round / 8 % LOCKS];
        struct timespec time = soon();
        switch (way) {
        case 0: CALL(code, pthread_rwlock_wrlock(lock)); break;
        case 1: CALL(code, pthread_rwlock_tryrdlock(lock)); break;
        case 2: CALL(code, pthread_rwlock_trywrlock(lock)); break;
        case 3: CALL(code, pthread_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &time)); break;
        case 4: CALL(code, pthread_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, &time)); break;
        default: CALL(code, pthread_rwlock_rdlock(lock)); break;
        }
        CHECK(code == 0 || code == EBUSY || code == ETIMEDOUT);
        if (code == 0) {
            hold(round);
            CALL(code, pthread_rwlock_unlock(lock));
            OK(code);
        }
    }
    return NULL;
}

int main(int count, char **arguments) {
    alarm(600);
    if (count > 1 && strcmp(arguments[1], "refused") == 0)
        refuse_system_calls();
    locks = mmap(NULL, LOCKS * sizeof *locks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(locks != MAP_FAILED);
    for (int lock = 0; lock < LOCKS; lock++) {
        pthread_rwlockattr_t attributes;
        OK(pthread_rwlockattr_init(&attributes));
        OK(pthread_rwlockattr_setkind_np(&attributes, lock % 3));
        OK(pthread_rwlockattr_setpshared(&attributes, lock == 3));
        OK(pthread_rwlock_init(&locks[lock], &attributes));
    }
    pthread_t threads[THREADS];
    for (size_t thread = 0; thread < THREADS; thread++)
        OK(pthread_create(&threads[thread], NULL, use, (void *)thread));
    for (int thread = 0; thread < THREADS; thread++)
        OK(pthread_join(threads[thread], NULL));
    for (int lock = 0; lock < LOCKS; lock++)
        OK(pthread_rwlock_destroy(&locks[lock]));
    return 0;
}
