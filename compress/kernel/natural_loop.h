/* The loop over buckets, included by each level's file and so compiled for its instructions. Needs
 * TARGET (a function attribute, or empty) and, all inline and for n a multiple of GW_BLOCK:
 *   uint32_t peak_of(x, n)         bit pattern of max |x|
 *   uint32_t natural_least(x, n)   bit pattern, less one, of the least |x| that is not 0
 *   void natural_quantize(x, n, window, seed, ctr, codes, reach)   blocks from ctr / 16 on
 *   void natural_decode(codes, n, window, y, add, above)           above: window is not 0
 * Defines gw_natural_LEVEL through GW_NATURAL_TABLE(LEVEL). */
#include "base/rng.h"
#include "compress/kernel/peak_loop.h"

#include <math.h>
#include <string.h>

typedef gw_natural_encoding encoding;
typedef gw_natural_decoding decoding;

APART void natural_quantize_tail(const float *x, size_t tail, uint32_t window, uint64_t seed,
                                 uint32_t ctr, unsigned char *out) {
    float block[GW_BLOCK] = {0};
    unsigned char codes[GW_BLOCK];
    memcpy(block, x, tail * sizeof *block);
    if (window)
        natural_quantize(block, GW_BLOCK, window, seed, ctr, codes, GW_NATURAL_BELOW);
    else
        natural_quantize(block, GW_BLOCK, window, seed, ctr, codes, GW_NATURAL_WHOLE);
    memcpy(out, codes, tail);
}

INLINE_LOOP void natural_encode_bucket(const encoding *e, size_t bucket, size_t n, uint32_t top) {
    const float *x = e->x + bucket * e->bucket;
    unsigned char *out = e->codes + bucket * e->bucket;
    uint32_t window = gw_natural_window(top);
    e->windows[bucket] = (unsigned char)window;
    if (window == GW_NATURAL_POISON) {
        memset(out, 0, n);
        return;
    }
    uint64_t seed = gw_rng_u64(e->key, bucket);
    size_t tail = n % GW_BLOCK, full = n - tail;
    if (window == 0)
        natural_quantize(x, full, window, seed, 0, out, GW_NATURAL_WHOLE);
    else if (window < GW_NATURAL_CODES &&
             natural_least(x, full) >= ((window + 1) << GW_NATURAL_FRACTION) - 1)
        natural_quantize(x, full, window, seed, 0, out, GW_NATURAL_INSIDE);
    else
        natural_quantize(x, full, window, seed, 0, out, GW_NATURAL_BELOW);
    if (tail)
        natural_quantize_tail(x + full, tail, window, seed, (uint32_t)(full / 4), out + full);
}

APART void natural_poison(float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = NAN;
}

INLINE_LOOP void natural_decode_range(const decoding *d, size_t lo, size_t hi, int add) {
    for (size_t bucket = lo / d->bucket; lo < hi; bucket++, lo += d->bucket) {
        size_t n = hi - lo < d->bucket ? hi - lo : d->bucket, tail = n % GW_BLOCK, full = n - tail;
        uint32_t window = d->windows[bucket];
        const unsigned char *in = d->codes + lo;
        float *y = d->y + lo;
        if (window > GW_NATURAL_CODES) {
            natural_poison(y, n);
            continue;
        }
        if (window)
            natural_decode(in, full, window, y, add, 1);
        else
            natural_decode(in, full, window, y, add, 0);
        if (tail) {
            float block[GW_BLOCK] = {0};
            unsigned char codes[GW_BLOCK] = {0};
            memcpy(codes, in + full, tail);
            memcpy(block, y + full, tail * sizeof *block);
            natural_decode(codes, GW_BLOCK, window, block, add, 1);
            memcpy(y + full, block, tail * sizeof *block);
        }
    }
}

#define ENCODE_BUCKET natural_encode_bucket
#define DECODE_RANGE  natural_decode_range
#include "compress/kernel/bucket_loop.h"

#define GW_NATURAL_TABLE(level)                                                                    \
    const gw_natural_kernels gw_natural_##level = {bucket_encode_part, bucket_decode_part,         \
                                                   bucket_decode_add_part}
