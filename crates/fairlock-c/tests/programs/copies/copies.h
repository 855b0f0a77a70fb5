/* What one copy of the library shows to the program that loads it. */
#include <fairlock.h>

struct copy {
    int (*read)(fairlock_rwlock_t *);
    int (*try_read)(fairlock_rwlock_t *);
    int (*unlock_read)(fairlock_rwlock_t *);
    int (*write)(fairlock_rwlock_t *);
    int (*try_write)(fairlock_rwlock_t *);
    int (*unlock_write)(fairlock_rwlock_t *);
    int (*lock)(fairlock_mutex_t *);
    int (*try_lock)(fairlock_mutex_t *);
    int (*unlock)(fairlock_mutex_t *);
    int (*cond_wait)(fairlock_cond_t *, fairlock_mutex_t *);
    int (*cond_signal)(fairlock_cond_t *);
    fairlock_range_lock_t *(*range_new)(void);
    int (*range_free)(fairlock_range_lock_t *);
    int (*range_read)(fairlock_range_lock_t *, uint64_t, uint64_t, fairlock_range_hold_t *);
    int (*range_try_write)(fairlock_range_lock_t *, uint64_t, uint64_t, fairlock_range_hold_t *);
    int (*range_unlock)(fairlock_range_hold_t *);
    fairlock_poll_t *(*poll_new)(void);
    int (*poll_free)(fairlock_poll_t *);
    int (*poll_add)(fairlock_poll_t *, fairlock_source_t *, uint64_t, uint32_t, uint32_t);
    int (*poll_wait)(fairlock_poll_t *, fairlock_ready_t *, size_t, int64_t, size_t *);
    fairlock_source_t *(*counter_new)(uint64_t);
    int (*counter_add)(fairlock_source_t *, uint64_t);
    int (*source_free)(fairlock_source_t *);
};

/* The copy that this is linked with. */
const struct copy *this_copy(void);
