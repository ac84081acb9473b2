/** Kernels with known results: an event is used only if it has counted one of them correctly. Some
 *  systems accept an event and deliver nothing. */
#ifndef GW_COUNTERS_SANITY_H
#define GW_COUNTERS_SANITY_H

#include "counters/source.h"

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
