/** The ranks of a run side by side: who computes longest, who waits, and whom for. */
#ifndef GW_PROF_RANKS_H
#define GW_PROF_RANKS_H

#include "prof/record.h"
#include "prof/resident.h"
#include "prof/waits.h"

#include <jansson.h>

/** One rank's mean step, after warm-up; NaN: not known. */
typedef struct gw_rank_figures {
    gw_record_rank step;
    double last_share;   /* of the exchanges, that it was the last to arrive at */
    double waited_for_s; /* what the others, together, waited for it a step */
    gw_resident_bytes memory[GW_RESIDENT_PHASES];
    int node; /* the first rank of its node */
} gw_rank_figures;

/** The rank that holds the others up; rank -1: none does noticeably. */
typedef struct gw_straggler {
    int rank;
    double last_share;
    double waited_s, of_step; /* by each other rank in a mean step; its share of that step */
} gw_straggler;

/** Collective: *out (NULL before; free(), after a failure, too) at rank 0: all ranks in order.
 *  `steps`: of the run, of which the first `before` were an earlier start's and do not count;
 *  *dropped: exchanges that the log had no room for. w NULL: waiting is not known. */
gw_err gw_ranks_collect(gw_rank_figures **out, uint64_t *dropped, const gw_record *r,
                        const gw_waits *w, int64_t steps, int64_t before, MPI_Comm comm);

/** Collective, after gw_ranks_collect: the ranks' memory into `all` (rank 0's; NULL elsewhere).
 *  `mine` has ended; at rank 0 its `why` becomes that of the first rank that has one. */
gw_err gw_ranks_memory(gw_rank_figures *all, gw_resident *mine, MPI_Comm comm);

/** The ranks' memory for run.json, an object of phases each. *largest: the most that a rank had;
 *  *sum: of all ranks, with what the ranks of a node share counted once, as its largest share. */
void gw_ranks_memory_json(const gw_rank_figures *all, int n, json_t **largest, json_t **sum);

/** The rank that the others wait longest for, if it was the last to arrive at half of the exchanges
 *  at least, and each other rank waits for it at least 5% of a mean step. */
gw_straggler gw_ranks_straggler(const gw_rank_figures *all, int n);

/** For run.json. */
json_t *gw_ranks_json(const gw_rank_figures *all, int n);

#endif
