/** How many elements of a span a codec keeps: a ratio, which may fall to its value over a warm-up.
 *
 *    k = max(1, floor(r * n + 1/2)), at most n; 0 for an empty span
 *    r = ratio, except in the exchanges t = 1, 2, .. W of the warm-up:
 *    r = (1/4)^(1-s) * ratio^s,  s = (t-1) / W
 *
 *  so it falls by the same factor at each exchange, from a quarter to `ratio`; a ratio of a quarter
 *  or more stays constant. Y. Lin, S. Han, H. Mao, Y. Wang, W. J. Dally, "Deep Gradient
 *  Compression", ICLR 2018, section 3.3, where it falls epoch by epoch. Decoders read k from the
 *  wire, so ranks whose libraries round r differently still agree. */
#ifndef GW_COMPRESS_RATIO_H
#define GW_COMPRESS_RATIO_H

#include "compress/codec.h"

typedef struct gw_ratio {
    double ratio;
    uint64_t warmup; /* W; 0: none */
} gw_ratio;

/** Options of a codec that keeps a ratio. */
#define GW_RATIO_OPTS                                                                              \
    {"ratio", GW_OPT_REAL, "0.01", 1e-9, 1, NULL, NULL, "fraction of the elements to keep"}, {     \
        "warmup", GW_OPT_STEPS, "0", 0, 1e9, NULL, "STEPS",                                        \
            "exchanges over which the ratio falls from 0.25 to its value"                          \
    }

gw_ratio gw_ratio_read(const gw_args *args);

/** Return how many of n elements exchange number `step` (gw_turn.step) keeps, and the minimum and
 *  maximum over all exchanges; monotonic in n. */
size_t gw_ratio_kept(const gw_ratio *r, uint64_t step, size_t n);
size_t gw_ratio_least(const gw_ratio *r, size_t n);
size_t gw_ratio_most(const gw_ratio *r, size_t n);

/** True if every exchange keeps the same number. */
bool gw_ratio_steady(const gw_ratio *r);

#endif
