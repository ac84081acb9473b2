/** Sleeping to an instant of CLOCK_MONOTONIC, which all processes of a machine share, in seconds.
 */
#ifndef GW_BASE_NAP_H
#define GW_BASE_NAP_H

double gw_nap_now(void);

/** Sleep until `due_s`; the kernel wakes the thread some tens of microseconds later. */
void gw_nap_until(double due_s);

/** Have the kernel delay this thread's wake-ups as little as it can: it may else gather them over
 *  50 microseconds. */
void gw_nap_lightly(void);

#endif
