/* A child that was forked off uses a lock that nobody has used before, while the thread has counted much in its
   parent. Prints nothing, and exits with 0. */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOCKS = 40, TIMES = 5 };
static pthread_rwlock_t locks[LOCKS];
static pthread_rwlock_t new_lock = PTHREAD_RWLOCK_INITIALIZER;

static void use(pthread_rwlock_t *lock) {
    assert(pthread_rwlock_rdlock(lock) == 0);
    assert(pthread_rwlock_unlock(lock) == 0);
}

int main(void) {
    for (int lock = 0; lock < LOCKS; lock++) {
        assert(pthread_rwlock_init(&locks[lock], 0) == 0);
        use(&locks[lock]);
    }
    pid_t child = fork();
    assert(child >= 0);
    if (child == 0) {
        for (int times = 0; times < TIMES; times++)
            use(&new_lock);
        exit(0);
    }
    int status;
    assert(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
