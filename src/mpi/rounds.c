#include "mpi/rounds.h"

#include "base/rng.h"
#include "mpi/wait.h"

#include <stddef.h>

gw_err gw_rounds_next(gw_rounds *r, int n, const bool *in, double *s) {
    uint32_t order[GW_ROUNDS_MOST], count = 0;
    for (int i = 0; i < n; i++) {
        if (s)
            s[i] = 0;
        if (!in || in[i])
            order[count++] = (uint32_t)i;
    }
    gw_rng_shuffle(gw_rng_key(r->seed, r->drawn++), order, count);
    for (uint32_t i = 0; i < count; i++)
        GW_TRY(r->once(r->ctx, (int)order[i], s ? &s[order[i]] : NULL));
    return s ? gw_allreduce(MPI_IN_PLACE, s, n, MPI_DOUBLE, MPI_MAX, r->comm) : GW_OK;
}
