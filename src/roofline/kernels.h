/** Kernels of known character: what they are bound by is no question, so they serve as yardsticks
 *  of the machine (src/roofline/ceilings.h) and of the figures that claim to tell what a batch is
 *  bound by. Each runs on the calling thread, over memory of its own. */
#ifndef GW_ROOFLINE_KERNELS_H
#define GW_ROOFLINE_KERNELS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef enum gw_kernel_kind {
    GW_KERNEL_FMA,    /* fused multiply-adds within registers; no memory at all */
    GW_KERNEL_READ,   /* sum of an array */
    GW_KERNEL_UPDATE, /* a += s b: two streams in, one out; the update of plain SGD */
    GW_KERNEL_COPY,   /* memcpy from one half to the other */
    GW_KERNEL_CHASE,  /* each load's address comes out of the one before; one a cache line, shuffled
                       */
    GW_KERNELS
} gw_kernel_kind;

typedef struct gw_kernel gw_kernel;

/** A kernel on a working set of about `bytes`, all arrays together, at least a few cache lines
 * (FMA: ignored); pages are touched. Close may be given NULL. */
gw_err gw_kernel_open(gw_kernel **out, gw_kernel_kind kind, size_t bytes);
void gw_kernel_close(gw_kernel *k);

/** From now on run another of READ, UPDATE and COPY on the memory of one of these. */
void gw_kernel_turn(gw_kernel *k, gw_kernel_kind kind);

/** Run so many sweeps over the working set (of a large one a part each, of some 100 us, where the
 *  last sweep ended); the seconds that took, without start-up. Any thread,
 *  one at a time; gw_clock_start has been called. */
double gw_kernel_run(gw_kernel *k, uint64_t sweeps);

/** What one sweep does: flops (FMA), loads (CHASE), else bytes as the program sees them: read,
 *  and written (UPDATE counts 12 a float pair, COPY two for each byte copied). */
double gw_kernel_work(const gw_kernel *k);

/** Sweeps that take about `seconds`, at least 1, found by running some; the first ones warm up. */
uint64_t gw_kernel_sweeps(gw_kernel *k, double seconds);

/** The best rate (work a second) of `tries` runs of about `seconds` each: what disturbs a run on a
 *  shared machine only ever slows it. */
double gw_kernel_rate(gw_kernel *k, int tries, double seconds);

#endif
