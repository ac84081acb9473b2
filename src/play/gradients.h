/** The gradients that a replay exchanges: normal numbers with each tensor's deviation, or captured
 *  ones out of a file. */
#ifndef GW_PLAY_GRADIENTS_H
#define GW_PLAY_GRADIENTS_H

#include "play/profile.h"

#include <stdint.h>

typedef struct gw_gradients {
    const gw_step_profile *profile;
    float *table; /* normal numbers; NULL: captured */
    uint64_t key;
    const float *captured; /* all tensors in forward order, one step after another */
    size_t bytes;
    long steps;
} gw_gradients;

/** `from`: "normal", or a file of float32 in host order, all tensors in forward order, for one step
 *  or more, one after another; each rank begins at another one. GW_ERR_INPUT: it is not that. */
gw_err gw_gradients_open(gw_gradients *g, const gw_step_profile *profile, const char *from,
                         uint64_t seed, int rank);
void gw_gradients_close(gw_gradients *g);

/** Write the gradient of a tensor, which begins `at` floats into the model, in step `step` to
 *  `to`. */
void gw_gradients_write(const gw_gradients *g, int tensor, size_t at, long step, float *to);

#endif
