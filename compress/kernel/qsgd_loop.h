/* The loop over buckets, included by each level's file, so that it is compiled with that level's
 * instructions and the constants of its inlined kernels stay in registers. Wants TARGET (a function
 * attribute, or nothing) and, all inline and for n a multiple of GW_BLOCK:
 *   uint32_t peak(x, n)                             bit pattern of max |x|
 *   void quantize(bits, x, n, inv, seed, ctr, out)  codes of a bucket's blocks from ctr / 16 on
 *   void decode(bits, in, n, step, y, add)
 * Defines gw_qsgd_LEVEL through GW_QSGD_TABLE(LEVEL). */
#include "base/rng.h"

#include <string.h>

#define INLINE_LOOP TARGET static inline __attribute__((always_inline))
#define APART       TARGET static __attribute__((noinline)) /* ragged ends, one a span */

APART uint32_t peak_of_tail(const float *x, size_t tail) {
    float block[GW_BLOCK] = {0};
    memcpy(block, x, tail * sizeof *block);
    return peak(block, GW_BLOCK);
}

INLINE_LOOP uint32_t peak_of_bucket(const float *x, size_t n) {
    size_t tail = n % GW_BLOCK;
    uint32_t top = peak(x, n - tail), rest = tail ? peak_of_tail(x + n - tail, tail) : 0;
    return rest > top ? rest : top;
}

APART void quantize_tail(unsigned bits, const float *x, size_t tail, float inv, uint64_t seed,
                         uint32_t ctr, void *out) {
    float block[GW_BLOCK] = {0};
    unsigned char codes[GW_BLOCK];
    memcpy(block, x, tail * sizeof *block);
    switch (bits) {
    case 2: quantize(2, block, GW_BLOCK, inv, seed, ctr, codes); break;
    case 4: quantize(4, block, GW_BLOCK, inv, seed, ctr, codes); break;
    default: quantize(8, block, GW_BLOCK, inv, seed, ctr, codes); break;
    }
    memcpy(out, codes, (tail * bits + 7) / 8);
}

INLINE_LOOP void encode_bucket(unsigned bits, const gw_qsgd_encoding *e, size_t bucket, size_t n,
                               uint32_t top) {
    const float *x = e->x + bucket * e->bucket;
    unsigned char *out = e->codes + bucket * e->bucket * bits / 8;
    if (top >= GW_QSGD_INFINITE || top < GW_QSGD_TINY) {
        e->scales[bucket] = gw_le32(top < GW_QSGD_TINY ? 0 : GW_QSGD_NAN);
        memset(out, 0, (n * bits + 7) / 8);
        return;
    }
    e->scales[bucket] = gw_le32(top < GW_QSGD_MOST ? top : GW_QSGD_MOST);
    /* |x| * inv rounds to at most levels * 2^16: the error of inv is below half a step there. */
    float inv = (float)((1 << (bits - 1)) - 1) * 65536.0f / gw_float_of(top);
    uint64_t seed = gw_rng_u64(e->key, bucket);
    size_t tail = n % GW_BLOCK, full = n - tail;
    quantize(bits, x, full, inv, seed, 0, out);
    if (tail)
        quantize_tail(bits, x + full, tail, inv, seed, (uint32_t)(full / 4), out + full * bits / 8);
}

/* The peak of the next bucket is found before this one is written, so that its latency, and that
 * of its cache misses, hides behind the work. */
INLINE_LOOP void encode_range(unsigned bits, const gw_qsgd_encoding *e, size_t lo, size_t hi) {
    size_t n = hi - lo < e->bucket ? hi - lo : e->bucket;
    uint32_t top = peak_of_bucket(e->x + lo, n);
    for (size_t bucket = lo / e->bucket; n; bucket++) {
        lo += n;
        size_t next = hi - lo < e->bucket ? hi - lo : e->bucket;
        uint32_t next_top = next ? peak_of_bucket(e->x + lo, next) : 0;
        encode_bucket(bits, e, bucket, n, top);
        n = next, top = next_top;
    }
}

INLINE_LOOP void decode_range(unsigned bits, const gw_qsgd_decoding *d, size_t lo, size_t hi,
                              int add) {
    for (size_t bucket = lo / d->bucket; lo < hi; bucket++, lo += d->bucket) {
        size_t n = hi - lo < d->bucket ? hi - lo : d->bucket, tail = n % GW_BLOCK, full = n - tail;
        float step = gw_float_of(gw_le32(d->scales[bucket])) / (float)((1 << (bits - 1)) - 1);
        const unsigned char *in = d->codes + lo * bits / 8;
        float *y = d->y + lo;
        decode(bits, in, full, step, y, add);
        if (tail) {
            float block[GW_BLOCK] = {0};
            unsigned char codes[GW_BLOCK] = {0};
            memcpy(codes, in + full * bits / 8, (tail * bits + 7) / 8);
            memcpy(block, y + full, tail * sizeof *block);
            decode(bits, codes, GW_BLOCK, step, block, add);
            memcpy(y + full, block, tail * sizeof *block);
        }
    }
}

#define WIDTH(bits)                                                                                \
    TARGET static void encode##bits(void *ctx, size_t lo, size_t hi) {                             \
        encode_range(bits, ctx, lo, hi);                                                           \
    }                                                                                              \
    TARGET static void decode##bits(void *ctx, size_t lo, size_t hi) {                             \
        decode_range(bits, ctx, lo, hi, 0);                                                        \
    }                                                                                              \
    TARGET static void decode_add##bits(void *ctx, size_t lo, size_t hi) {                         \
        decode_range(bits, ctx, lo, hi, 1);                                                        \
    }

WIDTH(2)
WIDTH(4)
WIDTH(8)

#define GW_QSGD_TABLE(level)                                                                       \
    const gw_qsgd_kernels gw_qsgd_##level[GW_QSGD_WIDTHS] = {{encode2, decode2, decode_add2},      \
                                                             {encode4, decode4, decode_add4},      \
                                                             {encode8, decode8, decode_add8}}
