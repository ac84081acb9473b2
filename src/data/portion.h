/** A rank's portion of the samples, and how the sharded layout cuts a data set into them. */
#ifndef GW_DATA_PORTION_H
#define GW_DATA_PORTION_H

#include "base/err.h"
#include "base/span.h"

#include <stdint.h>

/** The portion of n for rank r of `ranks`; empty if r < 0. */
gw_span gw_portion_of(size_t n, int rank, int ranks);

/** The sharded layout's cut: the number of samples in rank r's parts of an epoch over n samples,
 *  and the number before them, of lower ranks. GW_ERR_USAGE: `batch`, the global one, is not from 1
 *  to n. */
gw_err gw_portion_cut(uint32_t n, int batch, int rank, int ranks, uint32_t *first, uint32_t *count);

#endif
