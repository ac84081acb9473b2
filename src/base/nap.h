/** Sleep until a time, in seconds, of CLOCK_MONOTONIC, which all processes of a machine share. */
#ifndef GW_BASE_NAP_H
#define GW_BASE_NAP_H

#include <stdbool.h>

double gw_nap_now(void);

/** Sleep until `due_s`; the kernel wakes the thread some tens of microseconds later. */
void gw_nap_until(double due_s);

/** Sleep until `due_s` - *wake_s; nine naps in ten oversleep by at most *wake_s. It depends on what
 *  else the machine does, so each nap adjusts it. Begin with 0, or a measured value. */
void gw_nap_in_time(double due_s, double *wake_s);

/** Make the kernel delay this thread's wake-ups as little as it can; by default it may gather them
 *  over 50 microseconds. */
void gw_nap_lightly(void);

/** Declare that this process sleeps in place of computing (gradwire replay), so being off the
 *  processor is no interruption. gw_nap_computes returns true without such a declaration. */
void gw_nap_instead(void);
bool gw_nap_computes(void);

#endif
