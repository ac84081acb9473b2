/** What this process's threads are doing right now, for a reader on another thread that reports it
 *  when they may be stuck: the ledger's region and the MPI call. Relaxed stores, plain ones on
 *  current CPUs; ordered for the writer, not for the reader. */
#ifndef GW_MPI_PRESENT_H
#define GW_MPI_PRESENT_H

#include "base/probe.h"

#include <stdatomic.h>
#include <stdbool.h>

/** One for the main thread, one for all others together (at most a progress thread). */
typedef struct gw_present_calls {
    _Atomic(const char *) call;   /* the last MPI call; NULL: none yet */
    _Atomic(const char *) posted; /* the last call that started an operation */
    atomic_bool inside;           /* `call` has not returned */
} gw_present_calls;

enum { GW_PRESENT_MAIN, GW_PRESENT_ASIDE, GW_PRESENT_THREADS };

extern gw_present_calls gw_present[GW_PRESENT_THREADS];
extern atomic_int gw_present_region; /* a gw_phase; negative: outside a batch, or not measured */
extern _Thread_local int gw_present_thread; /* the caller's place in gw_present */

/** Declare the calling thread the main one, before any other makes an MPI call. */
void gw_present_start(void);

static inline void gw_present_enter(const char *call) {
    gw_present_calls *now = &gw_present[gw_present_thread];
    atomic_store_explicit(&now->call, call, memory_order_relaxed);
    atomic_store_explicit(&now->inside, true, memory_order_relaxed);
}

static inline void gw_present_post(const char *call) {
    atomic_store_explicit(&gw_present[gw_present_thread].posted, call, memory_order_relaxed);
}

static inline void gw_present_leave(void) {
    atomic_store_explicit(&gw_present[gw_present_thread].inside, false, memory_order_relaxed);
}

static inline void gw_present_phase(int phase) {
    atomic_store_explicit(&gw_present_region, phase, memory_order_relaxed);
}

#endif
