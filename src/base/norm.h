/** Norms in one order of additions, whatever the threads and the width of vectors: ranks with the
 *  same floats get the same bits. */
#ifndef GW_BASE_NORM_H
#define GW_BASE_NORM_H

#include <stddef.h>

/** The sum of x[i] * x[i], in double. OpenMP threads share it. */
double gw_norm_squares(const float *x, size_t n);

#endif
