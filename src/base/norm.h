/** Norms with one order of additions for any threads and vector widths: ranks with the same floats
 *  get the same bits. And how large a float may be whose square is kept as one. */
#ifndef GW_BASE_NORM_H
#define GW_BASE_NORM_H

#include <stddef.h>
#include <stdint.h>

/** Return the sum of x[i] * x[i], in double. OpenMP threads share the work. */
double gw_norm_squares(const float *x, size_t n);

/** Return the bits of the greatest magnitude of n floats: NaN is above infinity, and infinity above
 *  all others. One pass, at the speed of the cache. */
uint32_t gw_norm_greatest(const float *x, size_t n);

/** `most` of a strategy or optimizer that keeps squares of gradients: this one's is far from the
 *  end of binary32, 2^128. */
#define GW_SQUARES_MOST 0x1p60f

#endif
