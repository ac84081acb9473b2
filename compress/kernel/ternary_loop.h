/* The loop over buckets, included by each level's file, so that it and its plain loops over bytes
 * are compiled and vectorised for that level. Needs TARGET (a function attribute, or empty) and,
 * all inline and for n a multiple of GW_BLOCK:
 *   uint32_t peak_of(x, n)                               bit pattern of max |x|
 *   void ternary_quantize(x, n, inv, seed, ctr, codes)   int8_t -1, 0, 1, blocks from ctr / 16 on
 *   void ternary_pack(codes, run, bytes)                 run: a multiple of GW_BLOCK; see ternary.h
 *   void ternary_decode(bytes, run, scale, y, add)
 * Defines gw_ternary_LEVEL through GW_TERNARY_TABLE(LEVEL). */
#include "base/rng.h"
#include "compress/kernel/peak_loop.h"

#include <string.h>

typedef gw_ternary_encoding encoding;
typedef gw_ternary_decoding decoding;

APART void ternary_quantize_tail(const float *x, size_t tail, float inv, uint64_t seed,
                                 uint32_t ctr, int8_t *codes) {
    float block[GW_BLOCK] = {0};
    memcpy(block, x, tail * sizeof *block);
    ternary_quantize(block, GW_BLOCK, inv, seed, ctr, codes);
}

/* The last, short bucket is padded to a whole number of bytes. */
INLINE_LOOP size_t ternary_run(size_t n) {
    return (n + GW_TERNARY_RUNS - 1) / GW_TERNARY_RUNS;
}

INLINE_LOOP void ternary_encode_bucket(const encoding *e, size_t bucket, size_t n, uint32_t top) {
    int8_t codes[GW_TERNARY_MOST + GW_BLOCK];
    const float *x = e->x + bucket * e->bucket;
    unsigned char *out = e->bytes + bucket * (e->bucket / GW_TERNARY_RUNS);
    if (top >= GW_TERNARY_INFINITE || top < GW_TERNARY_TINY) {
        bool bad = top >= GW_TERNARY_INFINITE;
        e->scales[bucket] = gw_le32(bad ? GW_TERNARY_NAN : 0);
        memset(out, bad ? GW_TERNARY_TOP : GW_TERNARY_TOP / 2, ternary_run(n));
        return;
    }
    e->scales[bucket] = gw_le32(top);
    float inv = 65536.0f / gw_float_of(top);
    uint64_t seed = gw_rng_u64(e->key, bucket);
    size_t tail = n % GW_BLOCK, full = n - tail;
    ternary_quantize(x, full, inv, seed, 0, codes);
    if (tail)
        ternary_quantize_tail(x + full, tail, inv, seed, (uint32_t)(full / 4), codes + full);
    if (n == e->bucket) {
        ternary_pack(codes, n / GW_TERNARY_RUNS, out);
    } else {
        memset(codes + n, 0, GW_TERNARY_RUNS);
        gw_ternary_pack(codes, ternary_run(n), out);
    }
}

APART void ternary_decode_short(const unsigned char *bytes, size_t n, float scale, float *y,
                                int add) {
    int8_t codes[GW_TERNARY_MOST + GW_BLOCK];
    gw_ternary_unpack(bytes, ternary_run(n), codes);
    for (size_t i = 0; i < n; i++) {
        float value = (float)codes[i] * scale;
        y[i] = add ? y[i] + value : value;
    }
}

INLINE_LOOP void ternary_decode_range(const decoding *d, size_t lo, size_t hi, int add) {
    size_t bucket = lo / d->bucket, run = d->bucket / GW_TERNARY_RUNS;
    for (; lo < hi; bucket++, lo += d->bucket) {
        uint32_t top = gw_le32(d->scales[bucket]);
        float scale = gw_float_of(top < GW_TERNARY_INFINITE ? top : GW_TERNARY_NAN);
        const unsigned char *bytes = d->bytes + bucket * run;
        if (hi - lo >= d->bucket)
            ternary_decode(bytes, run, scale, d->y + lo, add);
        else
            ternary_decode_short(bytes, hi - lo, scale, d->y + lo, add);
    }
}

#define ENCODE_BUCKET ternary_encode_bucket
#define DECODE_RANGE  ternary_decode_range
#include "compress/kernel/bucket_loop.h"

#define GW_TERNARY_TABLE(level)                                                                    \
    const gw_ternary_kernels gw_ternary_##level = {bucket_encode_part, bucket_decode_part,         \
                                                   bucket_decode_add_part}
