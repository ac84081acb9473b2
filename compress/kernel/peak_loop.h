/* The largest magnitude of a bucket of any length, for the loops over buckets. */
#include <string.h>

#define INLINE_LOOP TARGET static inline __attribute__((always_inline))
#define APART       TARGET static __attribute__((noinline)) /* ragged ends, once a span */

APART uint32_t peak_of_tail(const float *x, size_t tail) {
    float block[GW_BLOCK] = {0};
    memcpy(block, x, tail * sizeof *block);
    return peak_of(block, GW_BLOCK);
}

INLINE_LOOP uint32_t peak_of_bucket(const float *x, size_t n) {
    size_t tail = n % GW_BLOCK;
    uint32_t top = peak_of(x, n - tail), rest = tail ? peak_of_tail(x + n - tail, tail) : 0;
    return rest > top ? rest : top;
}
