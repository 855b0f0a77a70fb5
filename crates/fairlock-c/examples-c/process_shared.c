/*
 * Two processes that write the same memory, under a lock that lies in it.
 *
 *   cc -std=c11 process_shared.c $(pkg-config --cflags --libs fairlock) && ./a.out
 */
#define _GNU_SOURCE

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fairlock.h>

enum { ROUNDS = 20000 };

struct shared {
    fairlock_process_shared_t lock; /* new pages are zero: a free lock */
    unsigned long low, high;
};

static int use(struct shared *shared) {
    for (int round = 0; round < ROUNDS; round++) {
        if (fairlock_process_shared_write(&shared->lock) != 0) {
            return 1;
        }
        shared->low++;
        shared->high++;
        fairlock_process_shared_unlock_write(&shared->lock);
        fairlock_process_shared_read(&shared->lock);
        int torn = shared->low != shared->high;
        fairlock_process_shared_unlock_read(&shared->lock);
        if (torn) {
            return 1;
        }
    }
    return 0;
}

int main(void) {
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        _exit(use(shared));
    }
    int failures = use(shared), status = 1;
    failures += waitpid(child, &status, 0) != child || status != 0;

    fairlock_process_shared_write(&shared->lock);
    failures += fairlock_process_shared_try_read(&shared->lock) != EBUSY;
    failures += fairlock_process_shared_try_write_for(&shared->lock, 1000) != ETIMEDOUT;
    failures += fairlock_process_shared_unlock_read(&shared->lock) != EPERM;
    failures += fairlock_process_shared_unlock_write(&shared->lock) != 0;
    failures += fairlock_process_shared_unlock_write(&shared->lock) != EPERM;
    failures += fairlock_process_shared_destroy(&shared->lock) != 0;
    failures += fairlock_process_shared_read(&shared->lock) != EINVAL;
    failures += fairlock_process_shared_init(&shared->lock) != 0;
    failures += fairlock_process_shared_read(&shared->lock) != 0;
    printf("%lu writes, %d failures\n", shared->low, failures);
    return shared->low == 2 * ROUNDS && failures == 0 ? 0 : 1;
}
