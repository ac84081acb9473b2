/** Lent memory: the caller's, which the other ranks of the node map, too. Gradients that lie there
 *  are summed in place. In a table that all ranks read, each rank says of each tensor where its
 *  gradient lies, and its weight; what does not lie in lent memory is in the arena, weighed
 *  already. */
#ifndef GW_COMM_LENT_H
#define GW_COMM_LENT_H

#include "base/span.h"
#include "mpi/shared.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct gw_lent gw_lent;

/** Collective over the ranks of `memory`, which must outlive it. `arena`: this rank's, in that
 *  memory; `tensors`, the caller's, tile it. */
gw_err gw_lent_open(gw_lent **out, gw_shared *memory, float *arena, const gw_tensor *tensors,
                    int n_tensors);
void gw_lent_close(gw_lent *l); /* local; NULL: nothing */

/** Collective: `bytes` at `memory` are this rank's, mapped shared from the beginning of the file
 *  `fd`, until close. All ranks map each other's. GW_ERR_UNSUPPORTED on all of them, with the first
 *  rank's reason, where one cannot: nothing changed. */
gw_err gw_lent_add(gw_lent *l, void *memory, size_t bytes, int fd);

/** In the next exchange tensor t's gradient lies at `grad`, and counts `weight` times. False: that
 *  is not in lent memory, or NULL, and the arena has it. Before this rank signals the exchange. */
bool gw_lent_put(gw_lent *l, int t, float *grad, float weight);

/** What `arena` of gw_lent_open was. */
const float *gw_lent_arena(const gw_lent *l);

/** Once all ranks have signalled: where each rank has the first floats of the arena's span `s`, how
 *  they weigh, and how many lie there in a row (1 .. s.n). */
size_t gw_lent_rows(const gw_lent *l, gw_span s, float **rows, float *weights);

/** Any rank, of the row that begins with the arena's float `at`: the greatest magnitude of each
 *  rank's part as it was before the sum, as gw_guard_greatest has it. */
void gw_lent_saw(gw_lent *l, size_t at, const uint32_t *most);

/** After an exchange of all of it: the greatest that was seen of this rank's tensor t. */
uint32_t gw_lent_most(const gw_lent *l, int t);

#endif
