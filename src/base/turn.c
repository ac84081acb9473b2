#include "base/turn.h"

#include <stdatomic.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int wanted; /* a mutex alone need not be fair to them */
static atomic_int threads;

void gw_turn_take(void) {
    atomic_fetch_add(&wanted, 1);
    pthread_mutex_lock(&lock);
    atomic_fetch_sub(&wanted, 1);
}

void gw_turn_leave(void) {
    pthread_mutex_unlock(&lock);
}

bool gw_turn_wanted(void) {
    return atomic_load(&wanted) > 0;
}

void gw_turn_wait(pthread_cond_t *changed) {
    pthread_cond_wait(changed, &lock);
}

void gw_turn_join(bool more) {
    atomic_fetch_add(&threads, more ? 1 : -1);
}

bool gw_turn_shared(void) {
    return atomic_load_explicit(&threads, memory_order_relaxed) > 0;
}
