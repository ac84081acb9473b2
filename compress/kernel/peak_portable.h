/** The largest magnitude of a span, in plain C. */
#include "compress/kernel/simd.h"

/** The bit pattern of max |x|. */
static inline uint32_t peak_of(const float *x, size_t n) {
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t mag = gw_float_bits(x[i]) & 0x7fffffff;
        top = mag > top ? mag : top;
    }
    return top;
}
