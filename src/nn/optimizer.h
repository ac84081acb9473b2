/** Optimizers: a rule that moves a span of parameters along a gradient. */
#ifndef GW_NN_OPTIMIZER_H
#define GW_NN_OPTIMIZER_H

#include "base/io.h"
#include "base/span.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct gw_optimizer gw_optimizer;

/** SGD over an arena of n floats: g = scale*grad + weight_decay*param; with momentum mu > 0,
 *  v = mu*v + g and param -= lr*v, else param -= lr*g (PyTorch's form of Polyak's momentum). */
gw_err gw_optimizer_open(gw_optimizer **out, size_t n, double momentum, double weight_decay);
void gw_optimizer_close(gw_optimizer *o);

/** Update param[s] from grad[s] (both arenas of n floats); OpenMP threads split the span. */
void gw_optimizer_update(gw_optimizer *o, float *param, const float *grad, gw_span s, float lr,
                         float scale);

/** True if an update does not change a parameter with a zero gradient: neither momentum nor decay.
 *  Then gw_optimizer_update_at() moves param[at[i]], each index once, along grad[i]. */
bool gw_optimizer_lists(const gw_optimizer *o);
void gw_optimizer_update_at(gw_optimizer *o, float *param, const uint32_t *at, const float *grad,
                            size_t n, float lr, float scale);

/** Threads that split a span of n floats: 1, or all. */
int gw_optimizer_threads(size_t n);

/** The momentum, n floats; NULL if there is none. */
float *gw_optimizer_momentum(gw_optimizer *o);

/** Save or load the momentum. */
gw_err gw_optimizer_state(gw_optimizer *o, gw_io *io);

#endif
