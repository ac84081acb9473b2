/** Adam's two moments and its direction (D. P. Kingma, J. Ba, "Adam: a method for stochastic
 *  optimization", ICLR 2015), for strategies that exchange the first moment. Inputs, results and
 *  what is exchanged lie in env->grad. */
#ifndef GW_COMM_ADAM_H
#define GW_COMM_ADAM_H

#include "comm/strategy.h"

typedef struct gw_adam {
    const gw_env *env;
    float beta1, beta2, eps;
    float *m, *v; /* arenas; zeros at first */
    gw_algo plain;
    gw_collective dense, coded; /* exact; by the run's codec */
} gw_adam;

/** The rows of an option table that gw_adam_open reads. */
#define GW_ADAM_OPTS                                                                               \
    {"beta1", GW_OPT_REAL, "0.9", 0, 0.9999, NULL, "X", "decay of the gradient's mean"},           \
        {"beta2", GW_OPT_REAL, "0.999", 0, 0.999999, NULL, "X", "decay of its square's mean"}, {   \
        "eps", GW_OPT_REAL, "1e-8", 1e-30, 1, NULL, "X", "added to the root of that mean"          \
    }

/** Collective. gw_adam_close takes one that failed. */
gw_err gw_adam_open(gw_adam *a, const gw_env *env);
void gw_adam_close(gw_adam *a);

/** Update both moments by the mean gradient. */
void gw_adam_learn(const gw_adam *a, gw_span s);

/** g = share b1 m + (1 - b1) g: this rank's part of the next m, from its part of the gradient. */
void gw_adam_blend(const gw_adam *a, gw_span s, float share);

/** m = g / steps, where g is the sum of so many m; but m = 0 where v = 0: there was never a
 *  gradient, and a codec may have no zero. */
void gw_adam_take(const gw_adam *a, gw_span s, int64_t steps);

/** g = steps m / (sqrt(v) + eps), with m and v corrected for their start at zero, `first` and
 *  `second` updates ago. */
void gw_adam_direct(const gw_adam *a, gw_span s, int64_t steps, int64_t first, int64_t second);

gw_err gw_adam_state(gw_adam *a, gw_io *io);

#endif
