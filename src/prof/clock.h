/** Time: seconds of one monotonic clock, cheap enough to read twice a kernel. The CPU's time-stamp
 *  counter where it is invariant (about 10 ns a read), calibrated against CLOCK_MONOTONIC, which
 *  serves elsewhere (about 23 ns). */
#ifndef GW_PROF_CLOCK_H
#define GW_PROF_CLOCK_H

#include <stdint.h>

/** Calibrate (some ms); call once a process before anything else here. */
void gw_clock_start(void);

/** "tsc" or "monotonic". */
const char *gw_clock_name(void);

/** A reading in ticks, and ticks as seconds. */
uint64_t gw_clock_ticks(void);
double gw_clock_seconds(uint64_t ticks);

#endif
