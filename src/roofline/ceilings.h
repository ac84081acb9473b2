/** What the machine can do at most, measured: the floor under the times of a batch. Generic figures
 *  are measured here; times of particular kernels (matrix products of the model's shapes, twins)
 * are kept by name beside them, measured by those who know the kernels. Plain data: a set may be
 * copied and sent as bytes between processes of one program. */
#ifndef GW_ROOFLINE_CEILINGS_H
#define GW_ROOFLINE_CEILINGS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GW_CACHES = 3,             /* levels 1 to 3 */
    GW_LEVELS = GW_CACHES + 1, /* the caches, then DRAM */
    GW_CEILING_TIMES = 512,    /* more than a run of 64 layers needs */
    GW_CEILING_NAME = 160
};

/** A data cache of a core, as the system describes it. */
typedef struct gw_cache {
    size_t bytes; /* of one of them; 0: there is none, or it cannot be told */
    int sharers;  /* logical CPUs that share it; 0: cannot be told */
} gw_cache;

/** By one thread, and by all threads of the host together; NaN: not measured. */
typedef struct gw_ceiling_pair {
    double one, all;
} gw_ceiling_pair;

/** Bandwidth of a level of the memory hierarchy, bytes a second as the program sees them. */
typedef struct gw_ceiling_level {
    size_t bytes;           /* working set measured with; 0: there is no such level */
    gw_ceiling_pair read;   /* a sum */
    gw_ceiling_pair update; /* a += s b: of three bytes two are read and one is written */
} gw_ceiling_level;

/** The best time of a kernel; what a unit is, the name's owner knows. */
typedef struct gw_ceiling_time {
    char name[GW_CEILING_NAME];
    double seconds;
    bool used; /* by this run; not kept in files */
} gw_ceiling_time;

typedef struct gw_ceilings {
    char host[64], cpu[128], kernels[128]; /* kernels: the GEMM library and its kernel set */
    int threads;                           /* of a rank */
    int all_threads;                       /* of all ranks on the host */
    bool oversubscribed;                   /* more of them than CPUs: "all" is not measured */
    int64_t measured_at;                   /* seconds since 1970 */
    gw_cache caches[GW_CACHES];
    gw_ceiling_pair fma;  /* multiply-adds in registers, flop/s */
    gw_ceiling_pair copy; /* memcpy between two parts of DRAM, bytes read and written a second */
    gw_ceiling_level level[GW_LEVELS];
    int n_times;
    gw_ceiling_time time[GW_CEILING_TIMES];
} gw_ceilings;

/** "L1", "L2", "L3", "DRAM". Static string. */
const char *gw_level_name(int level);

/** Measure everything but the times, about a second. `threads`, `all_threads`, `oversubscribed` and
 *  `kernels` are set, the rest is filled. Rule: the best of 15 runs of 0.3 ms, since what disturbs
 * a run only slows it, and runs that short meet moments without; of all threads together, the same
 *  with runs that they begin at once, the work of all over the time of the slowest. Starts threads
 *  of its own. */
gw_err gw_ceilings_measure(gw_ceilings *c);

/** True if all threads together do less than one alone: others were at work meanwhile. */
bool gw_ceilings_disturbed(const gw_ceilings *c);

/** The time kept under `name`; NaN: none. */
double gw_ceilings_time(const gw_ceilings *c, const char *name);

/** Keep a time, instead of an older one of that name; where all places are taken, of the one that
 *  was kept longest ago. */
void gw_ceilings_keep(gw_ceilings *c, const char *name, double seconds);

/** Mark the time of that name, if there is one, as used; drop all times that are not. */
void gw_ceilings_use(gw_ceilings *c, const char *name);
void gw_ceilings_drop_unused(gw_ceilings *c);

/** Level that a working set of `bytes` a thread is served from with `active` threads at work on the
 *  host: the smallest cache of which a thread's share is at least twice that, else DRAM. */
int gw_ceilings_level(const gw_ceilings *c, double bytes, int active);

/** Bytes a second (`update`) for one of `active` threads that work on that level at the same time;
 *  where the level has no such figure, of the next one out; NaN: none has. */
double gw_ceilings_bandwidth(const gw_ceilings *c, int level, int active);

#endif
