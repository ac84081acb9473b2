/** Rounds of things to compare: each runs once per round, in a new random order, the same on all
 *  ranks. So a disturbance of the machine affects all of them, and none always follows the same
 *  other one. */
#ifndef GW_MPI_ROUNDS_H
#define GW_MPI_ROUNDS_H

#include "mpi/check.h"

#include <stdbool.h>
#include <stdint.h>

enum { GW_ROUNDS_MOST = 12288 }; /* things that take turns */

typedef struct gw_rounds {
    MPI_Comm comm;
    uint64_t seed, drawn; /* drawn: rounds so far, each in its own order */
    /** Run number i once; *s: the figure to reduce, such as what this rank took. */
    gw_err (*once)(void *ctx, int i, double *s);
    void *ctx;
} gw_rounds;

/** Run one round of those of 0..n-1 that are `in`; NULL: all. s[i]: the largest figure of all
 *  ranks, 0 if i is not in. s NULL: `once` keeps its figures, and gets NULL. Collective. */
gw_err gw_rounds_next(gw_rounds *r, int n, const bool *in, double *s);

#endif
