/** A whole model put together out of ranks' files: what several ranks hold, or own the momentum of,
 *  becomes their mean. No MPI. */
#ifndef GW_CHECKPOINT_MERGE_H
#define GW_CHECKPOINT_MERGE_H

#include "checkpoint/position.h"

/** Zeroed before the first use. */
typedef struct gw_merge {
    size_t n;                   /* floats of the whole model's arena */
    double *params, *momentum;  /* sums; no momentum wanted: NULL, likewise below */
    uint32_t *holders, *owners; /* terms of these sums */
    float *first;               /* each momentum, as the first rank that holds it has it */
    bool differ;                /* parameters, over their holders */
} gw_merge;

/** GW_ERR_NOMEM; gw_merge_free frees what there is. */
gw_err gw_merge_open(gw_merge *m, size_t n, bool momentum);
void gw_merge_free(gw_merge *m);

/** Add what a rank had, of a model of n parameters. */
void gw_merge_add(gw_merge *m, const gw_rank_state *r);

/** The model into params[0..n) and, where it was wanted, momentum[0..n). GW_ERR_INPUT: the ranks
 *  lack a part of it; `from` names them. */
gw_err gw_merge_end(const gw_merge *m, const char *from, float *params, float *momentum);

#endif
