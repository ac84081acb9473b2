/** Norms with one order of additions for any threads and vector widths: ranks with the same floats
 *  get the same bits. */
#ifndef GW_BASE_NORM_H
#define GW_BASE_NORM_H

#include <stddef.h>

/** Return the sum of x[i] * x[i], in double. OpenMP threads share the work. */
double gw_norm_squares(const float *x, size_t n);

#endif
