/** A rank's portion of the samples, and how a data set is cut into those that ranks keep. */
#ifndef GW_DATA_PORTION_H
#define GW_DATA_PORTION_H

#include "base/err.h"
#include "base/span.h"

#include <stdint.h>

/** Into how many portions what is divided, and how large they are. */
typedef struct gw_shares {
    int parts;
    const uint32_t *ends; /* of parts 0..p: their weights' sum; NULL: all are equal */
} gw_shares;

/** The portion of n for part r; empty if r < 0. */
gw_span gw_portion_of(size_t n, int r, gw_shares by);

/** The cut: the number of samples in part r of an epoch's batches over n samples, and the number
 *  before them, of lower parts. GW_ERR_USAGE: `batch`, the global one, is not from 1 to n. */
gw_err gw_portion_cut(uint32_t n, int batch, int r, gw_shares by, uint32_t *first, uint32_t *count);

#endif
