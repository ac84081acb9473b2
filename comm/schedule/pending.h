/** Describes in words what is under way on this process's lanes, while it may be stuck: for the
 * watchdog, a different thread from the one that runs the schedules. It reads only numbers that
 * such a reader may read at any time, and makes no MPI call. */
#ifndef GW_COMM_SCHEDULE_PENDING_H
#define GW_COMM_SCHEDULE_PENDING_H

#include "comm/schedule/schedule.h"

/** For each schedule that has begun and is not complete, or waits for its turn in a queue, call
 *  tell(ctx, text): its lane, number, run and span, where it stands, and for whom it waits, by rank
 *  in MPI_COMM_WORLD. At most `most` lines; one more counts what is left out. Return the number of
 *  schedules. Any thread; `tell` must not free a schedule. */
int gw_pending_each(int most, void (*tell)(void *ctx, const char *text), void *ctx);

/** For the queue: say whether `s` waits for its turn. */
void gw_pending_defer(gw_schedule *s, bool waits);

#endif
