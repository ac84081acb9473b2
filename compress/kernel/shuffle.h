/** Split words into byte planes and join them again. A plane holds the bytes of equal significance,
 *  where an entropy coder finds what floats share: signs and exponents. Plane p, at planes + p *
 *  stride, has byte p of each word, lowest first; that is by value, in any byte order of the
 *  host. */
#ifndef GW_COMPRESS_KERNEL_SHUFFLE_H
#define GW_COMPRESS_KERNEL_SHUFFLE_H

#include "compress/kernel/simd.h"

enum { GW_PLANES = 4 };

/** n is a multiple of GW_BLOCK; words and planes need not be aligned. */
typedef struct gw_shuffle_kernels {
    void (*split)(const void *words, size_t n, unsigned char *planes, size_t stride);
    void (*join)(const unsigned char *planes, size_t stride, size_t n, void *words);
    void (*join_add)(const unsigned char *planes, size_t stride, size_t n, float *y); /* y += */
} gw_shuffle_kernels;

extern const gw_shuffle_kernels gw_shuffle_portable, gw_shuffle_avx2, gw_shuffle_avx512;

#endif
