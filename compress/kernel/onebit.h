/** Kernels of the onebit codec: signs and the sum of magnitudes, and back; with error feedback in
 *  two passes over a bucket, which is in L1 for the second. */
#ifndef GW_COMPRESS_KERNEL_ONEBIT_H
#define GW_COMPRESS_KERNEL_ONEBIT_H

#include "compress/kernel/bucket.h"

/* Magnitudes from this bit pattern on are not denormal. */
#define GW_ONEBIT_NORMAL 0x00800000u

extern const gw_bucket_kernels gw_onebit_portable, gw_onebit_avx2, gw_onebit_avx512;

#endif
