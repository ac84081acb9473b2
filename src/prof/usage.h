/** What the kernel counts for the main thread in a batch: CPU time, context switches, page faults.
 *  A system call costs about 0.4 us, and as much again for what it drives out of the caches, so a
 *  batch makes only one:
 *  - its beginning uses what was read at the end of the last batch, if that was just now;
 *  - while the thread is not switched out, CPU time advances as the clock does. It is read only in
 *    every 64th batch, so that the two cannot drift apart.
 *  Time that a hypervisor takes away is no context switch and counts as CPU time. */
#ifndef GW_PROF_USAGE_H
#define GW_PROF_USAGE_H

#include <stdint.h>

typedef struct gw_usage {
    long nivcsw, minflt; /* involuntary context switches, minor faults */
    double cpu_s;
} gw_usage;

/** Forget earlier readings: another thread is the main one now. */
void gw_usage_start(void);

/** Begin a batch at this clock tick; call right before reading the tick that is reported. Main
 *  thread. */
void gw_usage_begin(uint64_t now);

/** End it at this tick: return what happened since. */
gw_usage gw_usage_end(uint64_t now);

#endif
