/** The order in which samples are visited.
 *
 *  Replicated: each epoch is one permutation of all samples, a pure function of (seed, epoch);
 *  global batch b is its b-th run of `batch` entries (the last may be shorter), and rank r takes
 *  part r of P of it (gw_span_part), so any number of ranks visits the same global batches.
 *  Sharded, or a set that is divided: each rank permutes its own portion, which holds exactly what
 *  its parts of an epoch's batches need; in a divided set its parts are as large as its share.
 *
 *  Ranks are numbered among those that take samples; a negative rank takes none. */
#ifndef GW_DATA_SAMPLER_H
#define GW_DATA_SAMPLER_H

#include "data/data.h"

typedef struct gw_sampler gw_sampler;

typedef struct gw_batch {
    const uint32_t *idx; /* global sample indices of this rank's part, [0, local) */
    int local;           /* samples here; may be 0 */
    int global;          /* samples over all ranks */
} gw_batch;

/** A sampler of `set` for `rank` of `ranks`, at epoch 0. `batch`: global batch size, from 1 to
 *  set->n_global, else GW_ERR_USAGE. GW_ERR_INTERNAL: `set` was cut for another batch or layout.
 *  For use by one thread; it does not keep `set`. */
gw_err gw_sampler_open(gw_sampler **out, const gw_dataset *set, int batch, bool sharded,
                       uint64_t seed, int rank, int ranks);
void gw_sampler_close(gw_sampler *s); /* s may be NULL */

int gw_sampler_batches(const gw_sampler *s); /* global batches an epoch */
/** Those of full size: all but a shorter last one; at least 1. */
int gw_sampler_full(const gw_sampler *s);
int gw_sampler_max_local(const gw_sampler *s);   /* largest `local` of any batch on this rank */
void gw_sampler_epoch(gw_sampler *s, int epoch); /* prepare an epoch, 0.. */

/** Global batch b, 0.., of the current epoch; idx is valid until the next epoch or close. */
gw_batch gw_sampler_batch(const gw_sampler *s, int b);

#endif
