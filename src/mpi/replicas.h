/** Compares replicas over the ranks: one hash of each rank's parameters and, only if these differ,
 *  all ranks' hashes of all layers, to find who differs and where. */
#ifndef GW_MPI_REPLICAS_H
#define GW_MPI_REPLICAS_H

#include "base/span.h"
#include "mpi/agree.h"

#include <stdint.h>

typedef struct gw_replicas {
    const float *params; /* NULL: they lie elsewhere, and `sum` has the CRC-32 of layer l */
    uint32_t (*sum)(const void *ctx, int l);
    const void *ctx;
    const gw_span *layers; /* which tile them, in order */
    int n_layers;
    const int *number; /* of the layers in the whole model, for the message; NULL: these are all */
    int64_t step;      /* likewise */
    MPI_Comm comm;
} gw_replicas;

/** Compare, with nothing pending. *hash is the CRC-32 (zlib's) of the parameters' bytes, equal on
 *  all ranks. GW_ERR_DIVERGED on all ranks: it is not; the message names the step, the ranks that
 *  differ from the majority (all, if there is none) and the first layer that differs, with both
 *  checksums. Collective. */
gw_err gw_replicas_compare(const gw_replicas *r, uint32_t *hash);

/** Return GW_ERR_DIVERGED with the message of gw_replicas_compare, where the layers' checksums are
 *  all[rank * r->n_layers + layer], and at least two ranks' differ. */
gw_err gw_replicas_tell(const gw_replicas *r, const uint32_t *all, int ranks);

#endif
