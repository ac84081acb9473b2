/** Sleeping to an instant of CLOCK_MONOTONIC, which all processes of a machine share, in seconds.
 */
#ifndef GW_BASE_NAP_H
#define GW_BASE_NAP_H

#include <stdbool.h>

double gw_nap_now(void);

/** Sleep until `due_s`; the kernel wakes the thread some tens of microseconds later. */
void gw_nap_until(double due_s);

/** Sleep until `due_s` or a little earlier: by *wake_s, which nine naps in ten oversleep at most.
 *  That depends on what else the machine does, so each nap adjusts it; 0 to begin with, or a
 *  measured one. */
void gw_nap_in_time(double due_s, double *wake_s);

/** Have the kernel delay this thread's wake-ups as little as it can: it may else gather them over
 *  50 microseconds. */
void gw_nap_lightly(void);

/** From now on this process sleeps where others compute (gradwire replay): to be off the processor
 *  is no interruption. gw_nap_computes: it does not. */
void gw_nap_instead(void);
bool gw_nap_computes(void);

#endif
