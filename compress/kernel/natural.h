/** Kernels of the natural codec: round magnitudes to powers of two at random, and back. */
#ifndef GW_COMPRESS_KERNEL_NATURAL_H
#define GW_COMPRESS_KERNEL_NATURAL_H

#include "compress/kernel/bucket.h"

enum {
    GW_NATURAL_CODES = 127,  /* of magnitudes, besides zero */
    GW_NATURAL_POISON = 255, /* the window of a bucket with an Inf or a NaN */
    GW_NATURAL_FRACTION = 23 /* bits of a binary32 below its exponent */
};

/** The window of a bucket whose largest magnitude has the bit pattern `top`: code c stands for the
 *  power of two with the exponent field window + c. The top code is one above top's exponent, since
 *  top may round up, as far as binary32 goes. */
static inline uint32_t gw_natural_window(uint32_t top) {
    uint32_t above = (top >> GW_NATURAL_FRACTION) + 1;
    if (above > 255)
        return GW_NATURAL_POISON;
    above = above < 255 ? above : 254;
    return above > GW_NATURAL_CODES ? above - GW_NATURAL_CODES : 0;
}

/** The part of a bucket's range that a kernel must handle. */
typedef enum gw_natural_reach {
    GW_NATURAL_WHOLE,  /* the window starts at zero: none below, none at the upper end */
    GW_NATURAL_INSIDE, /* only zeros below, none at the upper end */
    GW_NATURAL_BELOW   /* anything */
} gw_natural_reach;

extern const gw_bucket_kernels gw_natural_portable, gw_natural_avx2, gw_natural_avx512;

#endif
