/** Layers over the stages of a pipeline. */
#ifndef GW_NN_PARTITION_H
#define GW_NN_PARTITION_H

#include "base/err.h"

/** Cut layers 0..n-1 of these costs into contiguous parts, none empty, so that the most expensive
 *  part costs least: the slowest stage is a pipeline's pace. Of several such cuts, the one with the
 *  fewest layers in the first part, then in the second, and so on: early stages hold the outputs of
 *  more microbatches. sizes[i] = layers of part i. GW_ERR_INTERNAL: not 1 <= parts <= n, or a cost
 *  that is negative or not finite. */
gw_err gw_partition(const double *cost, int n, int parts, int *sizes);

#endif
