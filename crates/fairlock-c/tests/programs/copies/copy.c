/* In a library that is loaded, and in the program: the functions of the copy that each is linked with. */
#include "copies.h"

const struct copy *this_copy(void) {
    static const struct copy copy = {
        fairlock_rwlock_read,        fairlock_rwlock_try_read,     fairlock_rwlock_unlock_read,
        fairlock_rwlock_write,       fairlock_rwlock_try_write,    fairlock_rwlock_unlock_write,
        fairlock_mutex_lock,         fairlock_mutex_try_lock,      fairlock_mutex_unlock,
        fairlock_cond_wait,          fairlock_cond_signal,         fairlock_range_lock_new,
        fairlock_range_lock_free,    fairlock_range_read,          fairlock_range_try_write,
        fairlock_range_unlock,       fairlock_poll_new,            fairlock_poll_free,
        fairlock_poll_add,           fairlock_poll_wait,           fairlock_counter_new,
        fairlock_counter_add,        fairlock_source_free,
    };
    return &copy;
}
