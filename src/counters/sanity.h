/** Sources of counts (PAPI, or one of a test), and kernels with known results: an event is used
 *  only if it has counted one of them correctly. Some systems accept an event and deliver
 *  nothing. */
#ifndef GW_COUNTERS_SANITY_H
#define GW_COUNTERS_SANITY_H

#include "base/err.h"

#include <stdbool.h>

/** A list of events counted together on one thread. All calls of a set come from the thread that
 *  opened it; only one set of a source runs on a thread at a time. Errors are GW_ERR_UNSUPPORTED
 * with the reason. */
typedef struct gw_counter_source {
    /** For the calling thread. */
    gw_err (*open)(void **set, const char *const *events, int n);
    gw_err (*start)(void *set);
    /** Counts since a fixed moment at or before the start, one an event, in the order of `open`. */
    gw_err (*read)(void *set, long long *values);
    gw_err (*stop)(void *set);
    void (*close)(void *set);
    /** False: the event belongs to the process (or machine) and must be counted on one thread
     *  only. */
    bool (*per_thread)(const char *event);
    /** Called when a thread has closed all its sets and ends or stops counting; may be NULL. */
    void (*leave)(void);
} gw_counter_source;

/** PAPI. Starts the library at the first open. */
extern const gw_counter_source gw_counters_papi;

typedef enum gw_sanity {
    GW_SANITY_ANY,          /* accepted, started and read: no kernel */
    GW_SANITY_CYCLES,       /* GW_SANITY_STEPS dependent multiplications: at least one a step, at
                               most GW_SANITY_MOST */
    GW_SANITY_INSTRUCTIONS, /* the same: at least one a step */
    GW_SANITY_STALLS,       /* a chase of pointers beyond the last cache: at least one a load */
    GW_SANITY_MISSES,       /* the same: at least one */
    GW_SANITY_STORES,       /* stores beyond the last cache: at least one */
    GW_SANITY_WINDOW,       /* the chase with other instructions between: at least one */
    GW_SANITIES
} gw_sanity;

enum { GW_SANITY_STEPS = 1000000, GW_SANITY_MOST = 1000, GW_SANITY_EVENTS = 8 };

/** "cycles", ... as group files write it. */
const char *gw_sanity_name(gw_sanity s);

/** Check that `source` counts events[0..n) together, each as sanity[i] requires. GW_ERR_UNSUPPORTED
 *  with a reason for the user. Main thread, while nothing else is counted. The first kernel that
 *  needs memory allocates it, gw_sanity_end frees it. */
gw_err gw_sanity_check(const gw_counter_source *source, const char *const *events,
                       const gw_sanity *sanity, int n);
void gw_sanity_end(void);

#endif
