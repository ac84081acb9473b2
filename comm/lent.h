/** Lent memory belongs to the caller, and the other ranks of the node map it, too. Gradients that
 *  lie there are summed in place. In a table that all ranks read, each rank enters for each tensor
 *  where its gradient lies, and its weight. Other gradients are in the arena, weighted already. */
#ifndef GW_COMM_LENT_H
#define GW_COMM_LENT_H

#include "base/span.h"
#include "mpi/shared.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct gw_lent gw_lent;

/** Open. `arena`: this rank's, in `memory`, which must outlive it; `tensors`, the caller's, tile
 *  it. Collective over the ranks of `memory`. */
gw_err gw_lent_open(gw_lent **out, gw_shared *memory, float *arena, const gw_tensor *tensors,
                    int n_tensors);
void gw_lent_close(gw_lent *l); /* local; NULL: nothing */

/** Lend this rank's `bytes` at `memory`, mapped shared from the beginning of the file `fd`, until
 *  close. All ranks map each other's. If one cannot, GW_ERR_UNSUPPORTED on all of them, with the
 *  first rank's reason, and nothing changes. Collective. */
gw_err gw_lent_add(gw_lent *l, void *memory, size_t bytes, int fd);

/** Say that tensor t's gradient of the next exchange lies at `grad`, and counts `weight` times:
 *  before this rank signals the exchange. False: `grad` is NULL or not in lent memory; the arena
 *  has the gradient. */
bool gw_lent_put(gw_lent *l, int t, float *grad, float weight);

/** Return the `arena` of gw_lent_open. */
const float *gw_lent_arena(const gw_lent *l);

/** Once all ranks have signalled: find where each rank has the first floats of the arena's span
 *  `s`, and their weights. Return how many lie there in a row (1 .. s.n). */
size_t gw_lent_rows(const gw_lent *l, gw_span s, float **rows, float *weights);

/** Report, for the row that begins at the arena's float `at`, the greatest magnitude of each rank's
 *  part before the sum, as gw_norm_greatest returns it. Any rank. */
void gw_lent_saw(gw_lent *l, size_t at, const uint32_t *most);

/** After an exchange of the whole arena: return the greatest reported for this rank's tensor t. */
uint32_t gw_lent_most(const gw_lent *l, int t);

#endif
