/** A crew: ranks of one node that take turns to work on shared memory. Each has a flag: a count on
 *  its own cache line, which only it writes and all others read. Counts only grow, so nothing is
 *  ever reset and rounds cannot be confused. The functions are operations of a schedule: signal for
 *  gw_schedule_work, the others for gw_schedule_await. */
#ifndef GW_COMM_SCHEDULE_CREW_H
#define GW_COMM_SCHEDULE_CREW_H

#include "mpi/shared.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct gw_crew {
    gw_shared *memory;
    int first, n, me;         /* members: the node's ranks [first, first + n); me counts from 0 */
    int lead;                 /* the member that gw_crew_lead waits for; 0 unless set */
    _Atomic uint64_t count;   /* of my signals; atomic only for gw_crew_missing */
    int seen;                 /* members below this one are known to have signalled as often */
    _Atomic uint64_t *flag[]; /* of each member */
} gw_crew;

/** Make a crew. Collective over the node: every rank names its own crew. Free with free(); the
 *  flags are freed with `memory`. */
gw_err gw_crew_new(gw_crew **out, gw_shared *memory, int first, int n);

/** Return where member i has the twin of `mine`; see gw_shared_twin. */
void *gw_crew_twin(const gw_crew *c, const void *mine, int i);

/** Tell all members that they may read what this rank wrote before. All signal equally often. */
gw_err gw_crew_signal(void *crew);

/** *done: every member (or the lead) has signalled as often as this rank, so that what they wrote
 *  before may be read here. Never blocks. */
gw_err gw_crew_all(void *crew, bool *done);
gw_err gw_crew_lead(void *crew, bool *done);

/** Return, for reports, the first rank in MPI_COMM_WORLD whose signal `crew` lacks; -1: none.
 *  `lead`: only the lead's matters. Any thread. */
int gw_crew_missing(const gw_crew *c, bool lead);

#endif
