/** What is under way on this process's lanes, told in words while it may be stuck: for the
 * watchdog, which is another thread than the one that runs the schedules. Only numbers that such a
 * reader may read at any time are used, and no MPI call is made. */
#ifndef GW_COMM_PENDING_H
#define GW_COMM_PENDING_H

#include "comm/schedule.h"

/** For each schedule that has begun and is not complete, or waits for its turn in a queue, call
 *  tell(ctx, text): its lane, number, run and span, where it stands, and for whom it waits, by rank
 *  in MPI_COMM_WORLD. At most `most` lines; what is left out is counted in one more. Returns how
 *  many schedules there were. Any thread; a schedule must not be freed by `tell`. */
int gw_pending_each(int most, void (*tell)(void *ctx, const char *text), void *ctx);

/** For the queue: `s` waits for its turn, or does no more. */
void gw_pending_defer(gw_schedule *s, bool waits);

#endif
