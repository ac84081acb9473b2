#include "base/turn.h"

#include <stdatomic.h>

static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int turn_wanted; /* waiters: a mutex alone need not be fair */
static atomic_int turn_threads;

void gw_turn_take(void) {
    atomic_fetch_add(&turn_wanted, 1);
    pthread_mutex_lock(&turn_lock);
    atomic_fetch_sub(&turn_wanted, 1);
}

void gw_turn_leave(void) {
    pthread_mutex_unlock(&turn_lock);
}

bool gw_turn_wanted(void) {
    return atomic_load(&turn_wanted) > 0;
}

void gw_turn_wait(pthread_cond_t *changed) {
    pthread_cond_wait(changed, &turn_lock);
}

void gw_turn_join(bool more) {
    atomic_fetch_add(&turn_threads, more ? 1 : -1);
}

bool gw_turn_shared(void) {
    return atomic_load_explicit(&turn_threads, memory_order_relaxed) > 0;
}
