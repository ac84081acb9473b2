/** How the sharded layout cuts a data set among ranks. */
#ifndef GW_DATA_SHARD_H
#define GW_DATA_SHARD_H

#include "base/err.h"
#include "base/span.h"

#include <stdint.h>

/** What rank r of `ranks` gets of n; nothing where r < 0. */
gw_span gw_shard_part(size_t n, int rank, int ranks);

/** How many samples rank r's parts of an epoch over n samples add up to, and how many come
 *  before them over the ranks below: the cut of the sharded layout. GW_ERR_USAGE:
 *  `batch`, the global one, is not from 1 to n. */
gw_err gw_shard_cut(uint32_t n, int batch, int rank, int ranks, uint32_t *first, uint32_t *count);

#endif
