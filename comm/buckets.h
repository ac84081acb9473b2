/** Buckets: the arena cut into runs of equal size, from its end towards its beginning, the order in
 * which a backward pass completes it. A bucket can be exchanged as soon as it is full, long before
 * the pass is over (Li et al., "PyTorch Distributed", VLDB 2020). */
#ifndef GW_COMM_BUCKETS_H
#define GW_COMM_BUCKETS_H

#include "base/span.h"

typedef struct gw_buckets {
    size_t n;    /* floats in the arena */
    size_t each; /* floats in a bucket; the last one (at the arena's beginning) may be smaller */
    int count;
} gw_buckets;

/** Cut n floats into buckets of `bytes` >= 4; an arena of 0 floats has no bucket. */
static inline gw_buckets gw_buckets_cut(size_t n, size_t bytes) {
    size_t each = bytes / sizeof(float);
    return (gw_buckets){n, each, (int)((n + each - 1) / each)};
}

/** Return bucket i, in the order in which they fill. */
static inline gw_span gw_buckets_span(const gw_buckets *b, int i) {
    size_t hi = b->n - (size_t)i * b->each;
    size_t lo = hi > b->each ? hi - b->each : 0;
    return (gw_span){lo, hi - lo};
}

#endif
