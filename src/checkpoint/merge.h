/** A whole model put together out of ranks' files: what several ranks hold, or own the optimizer's
 *  state of, becomes their mean. No MPI. */
#ifndef GW_CHECKPOINT_MERGE_H
#define GW_CHECKPOINT_MERGE_H

#include "checkpoint/position.h"

/** Zeroed before the first use. */
typedef struct gw_merge {
    size_t n;                   /* floats of the whole model's arena */
    int vectors;                /* of the optimizer, n floats each; none wanted: 0 */
    double *params, *state;     /* sums; state: of all vectors, one behind another */
    uint32_t *holders, *owners; /* terms of these sums */
    float *first;               /* the state, as the first rank that holds it has it */
    int64_t updates;            /* the most of a rank */
    bool differ;                /* parameters, over their holders */
} gw_merge;

/** GW_ERR_NOMEM; gw_merge_free frees what there is. */
gw_err gw_merge_open(gw_merge *m, size_t n, int vectors);
void gw_merge_free(gw_merge *m);

/** Add what a rank had, of a model of n parameters; where vectors are wanted, with so many. */
void gw_merge_add(gw_merge *m, const gw_rank_state *r);

/** The model into params[0..n), and the vectors into state[0..vectors*n). GW_ERR_INPUT: the ranks
 *  lack a part of it; `from` names them. */
gw_err gw_merge_end(const gw_merge *m, const char *from, float *params, float *state);

#endif
