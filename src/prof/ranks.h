/** Compares the ranks of a run: who computes longest, who waits, and for whom. */
#ifndef GW_PROF_RANKS_H
#define GW_PROF_RANKS_H

#include "prof/record.h"
#include "prof/resident.h"
#include "prof/waits.h"

#include <jansson.h>

/** One rank's mean step, after warm-up; NaN: not known. */
typedef struct gw_rank_figures {
    gw_record_rank step;
    double last_share;   /* share of the exchanges at which it arrived last */
    double waited_for_s; /* how long the others, together, waited for it per step */
    gw_resident_bytes memory[GW_RESIDENT_PHASES];
    int node; /* the first rank of its node */
} gw_rank_figures;

/** The rank that delays the others; rank -1: none does noticeably. */
typedef struct gw_straggler {
    int rank;
    double last_share;
    double of_waiting;        /* share of all that the ranks waited for each other */
    double waited_s, of_step; /* by each other rank in a mean step; share of their mean step */
} gw_straggler;

/** Collect all ranks, in order, in *out at rank 0 (NULL before; free(), also after a failure).
 *  `steps`: of the run; the first `before` belong to an earlier start and do not count. *dropped:
 *  exchanges that did not fit in the log. w NULL: waiting is not known. Collective. */
gw_err gw_ranks_collect(gw_rank_figures **out, uint64_t *dropped, const gw_record *r,
                        const gw_waits *w, int64_t steps, int64_t before, MPI_Comm comm);

/** After gw_ranks_collect: put the ranks' memory into `all` (rank 0's; NULL elsewhere). `mine` has
 *  ended; at rank 0 its `why` becomes that of the first rank that has one. Collective. */
gw_err gw_ranks_memory(gw_rank_figures *all, gw_resident *mine, MPI_Comm comm);

/** Make the ranks' memory for run.json, an object of phases each. *largest: the most on a rank;
 *  *sum: over all ranks, where what the ranks of a node share counts once, as its largest share. */
void gw_ranks_memory_json(const gw_rank_figures *all, int n, json_t **largest, json_t **sum);

/** Return the rank for which the others wait longest, if each other rank waits for it at least 5%
 *  of a mean step. At how many exchanges it is last does not count: one of several in a step may
 *  cost all of the waiting. */
gw_straggler gw_ranks_straggler(const gw_rank_figures *all, int n);

/** For run.json. */
json_t *gw_ranks_json(const gw_rank_figures *all, int n);

#endif
