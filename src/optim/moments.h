/** Means of a gradient and of its square, which Adam and its heirs move by: D. P. Kingma, J. Ba,
 *  "Adam: a method for stochastic optimization", ICLR 2015. */
#ifndef GW_OPTIM_MOMENTS_H
#define GW_OPTIM_MOMENTS_H

#include "optim/optimizer.h"

typedef struct gw_moments {
    double beta1, beta2, eps;
} gw_moments;

/** The rows of an option table that gw_moments_of reads. */
#define GW_MOMENTS_OPTS(EPS)                                                                       \
    {"beta1", GW_OPT_REAL, "0.9", 0, 0.9999, NULL, "X", "decay of the gradient's mean"},           \
        {"beta2", GW_OPT_REAL, "0.999", 0, 0.999999, NULL, "X", "decay of its square's mean"}, {   \
        "eps", GW_OPT_REAL, EPS, 1e-30, 1, NULL, "X", "added to the root of that mean"             \
    }
gw_moments gw_moments_of(const gw_args *args);

/** `vectors` of a rule that keeps nothing else. */
const char *const *gw_moments_vectors(const void *self);

/** Move the means of a part on, its vectors 0 (of the gradient) and 1 (of the square), and then:
 *  out = mean / (sqrt(square) + eps), both corrected for their start at 0; or
 *  param -= rate * (that + decay * param). */
void gw_moments_direction(const gw_moments *m, const gw_optimizer_part *x, float *out);
void gw_moments_descend(const gw_moments *m, const gw_optimizer_part *x, float rate, float decay);

#endif
