/** The data caches of a core, as the system describes them. */
#ifndef GW_MACHINE_CACHES_H
#define GW_MACHINE_CACHES_H

#include <stddef.h>

enum { GW_CACHES = 3 }; /* levels 1 to 3 */

typedef struct gw_cache {
    size_t bytes; /* of one of them; 0: there is none, or it cannot be told */
    int sharers;  /* logical CPUs that share it; 0: cannot be told */
} gw_cache;

/** Of the CPU that the caller runs on: by /sys, or where that is silent by sysconf(3). A cache that
 *  is not larger than the one before is left out. Level 1 is never 0: without any word 32 KiB,
 * which no current CPU undercuts. */
void gw_caches_read(gw_cache out[GW_CACHES]);

#endif
