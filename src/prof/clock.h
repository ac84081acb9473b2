/** Time: seconds of one monotonic clock, cheap enough to read twice per kernel. It is the CPU's
 *  time-stamp counter if that is invariant (about 10 ns per read), calibrated against
 *  CLOCK_MONOTONIC; else CLOCK_MONOTONIC itself (about 23 ns). */
#ifndef GW_PROF_CLOCK_H
#define GW_PROF_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/** Begin to calibrate, on the main thread: a program that calls this before MPI_Init does not wait
 *  in gw_clock_start. Later calls do nothing. */
void gw_clock_begin(void);

/** Calibrate, over 10 ms or more since gw_clock_begin, which this calls if nobody has; call before
 *  anything else here, on the main thread. Later calls do nothing. */
void gw_clock_start(void);

/** Return "tsc" or "monotonic". Static string. */
const char *gw_clock_name(void);

/** From now on the clock is virtual: it shows `ns()`, in nanoseconds. NULL: it is the machine's
 *  again. Ticks of the two cannot be compared. Main thread. */
void gw_clock_virtual(uint64_t (*ns)(void));
bool gw_clock_is_virtual(void);

/** Read the clock in ticks; convert ticks to seconds. */
uint64_t gw_clock_ticks(void);
double gw_clock_seconds(uint64_t ticks);

/** Return the seconds since the reading `start`. */
static inline double gw_clock_since(uint64_t start) {
    return gw_clock_seconds(gw_clock_ticks() - start);
}

/** Read one instant on both clocks: ticks, and nanoseconds of CLOCK_MONOTONIC, which all processes
 *  of a host share. Two anchors far apart give a finer rate than the calibration at start. */
void gw_clock_anchor(uint64_t *ticks, uint64_t *ns);

#endif
