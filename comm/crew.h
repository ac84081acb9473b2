/** A crew: ranks of one node that work on shared memory in turns. Each has a flag, a count on a
 *  cache line of its own that it alone writes and all others read. Counts only grow, so nothing is
 *  ever reset and no two rounds can be confused. The functions are operations of a schedule: signal
 *  for gw_schedule_work, the others for gw_schedule_await. */
#ifndef GW_COMM_CREW_H
#define GW_COMM_CREW_H

#include "mpi/shared.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct gw_crew {
    gw_shared *memory;
    int first, n, me;         /* members: the node's ranks [first, first + n); me counts from 0 */
    int lead;                 /* whom gw_crew_lead waits for; 0 unless set */
    _Atomic uint64_t count;   /* of my signals; atomic for gw_crew_missing alone */
    int seen;                 /* members below have been seen to have signalled as often */
    _Atomic uint64_t *flag[]; /* of each member */
} gw_crew;

/** Collective over the node (every rank of it names the crew that it belongs to). Free with
 *  free(); the flags go with `memory`. */
gw_err gw_crew_new(gw_crew **out, gw_shared *memory, int first, int n);

/** Where member i has the twin of `mine`; see gw_shared_twin. */
void *gw_crew_twin(const gw_crew *c, const void *mine, int i);

/** Tell all: what I wrote before this may be read. All members signal equally often. */
gw_err gw_crew_signal(void *crew);

/** *done: every member (or the lead) has signalled as often as I have, and what they wrote before
 *  that may be read here. Never blocks. */
gw_err gw_crew_all(void *crew, bool *done);
gw_err gw_crew_lead(void *crew, bool *done);

/** For reports, any thread: the first rank in MPI_COMM_WORLD whose signal `crew` lacks; -1: none.
 *  `lead`: only the lead's matters. */
int gw_crew_missing(const gw_crew *c, bool lead);

#endif
