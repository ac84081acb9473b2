/** What the kernel knows of the main thread in a batch: CPU time, context switches, page faults.
 *  Asking costs system calls, of which a batch gets one (some 0.4 us, and as much again for what
 * they drive out of the processor), so two things are not asked:
 *  - at the beginning of a batch what was heard at the end of the last one, if that was just now;
 *  - CPU time, as long as the thread was not switched out: it goes on as the clock does. Every 64th
 *    time it is asked all the same, so that the two clocks cannot come apart.
 *  Time that a hypervisor takes away is no switch: it stays CPU time here. */
#ifndef GW_PROF_USAGE_H
#define GW_PROF_USAGE_H

#include <stdint.h>

typedef struct gw_usage {
    long nivcsw, minflt; /* involuntary context switches, minor faults */
    double cpu_s;
} gw_usage;

/** Forget what was heard: another thread is the main one now. */
void gw_usage_start(void);

/** A batch begins at this clock tick; call right before reading the tick that is told. Main thread.
 */
void gw_usage_begin(uint64_t now);

/** It ended at this tick: what happened since. */
gw_usage gw_usage_end(uint64_t now);

#endif
