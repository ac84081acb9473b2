/* The loop over buckets, included by each level's file and so compiled for its instructions, with
 * the constants of its inlined kernels in registers. Needs TARGET (a function attribute, or empty)
 * and, all inline and for n a multiple of GW_BLOCK:
 *   uint32_t peak_of(x, n)  bit pattern of max |x|, of a NaN if there is one
 *   bool qsgd_quantize(bits, look, x, n, inv, seed, ctr, out, next, top)
 *                           codes of a bucket's blocks from ctr / 16 on; `look`: also sets *top to
 *                           the peak of next[0..n), which may miss a NaN. True: x holds a NaN
 *                           (never, where all peaks are exact).
 *   void qsgd_decode(bits, in, n, step, y, add)
 * Defines gw_qsgd_LEVEL through GW_QSGD_LEVEL(LEVEL). */
#include "base/rng.h"
#include "compress/kernel/peak_loop.h"

#include <string.h>

/* ---- ragged ends: a zero-padded block ---- */

typedef bool quantize_end(const float *x, size_t tail, float inv, uint64_t seed, uint32_t ctr,
                          void *out);

INLINE_LOOP bool qsgd_quantize_tail(unsigned bits, const float *x, size_t tail, float inv,
                                    uint64_t seed, uint32_t ctr, void *out) {
    float block[GW_BLOCK] = {0};
    unsigned char codes[GW_BLOCK];
    memcpy(block, x, tail * sizeof *block);
    bool bad = qsgd_quantize(bits, 0, block, GW_BLOCK, inv, seed, ctr, codes, NULL, NULL);
    memcpy(out, codes, (tail * bits + 7) / 8);
    return bad;
}

INLINE_LOOP void qsgd_decode_tail(unsigned bits, const unsigned char *in, size_t tail, float step,
                                  float *y, int add) {
    float block[GW_BLOCK] = {0};
    unsigned char codes[GW_BLOCK] = {0};
    memcpy(codes, in, (tail * bits + 7) / 8);
    memcpy(block, y, tail * sizeof *block);
    qsgd_decode(bits, codes, GW_BLOCK, step, block, add);
    memcpy(y, block, tail * sizeof *block);
}

INLINE_LOOP unsigned char *qsgd_codes_at(unsigned bits, const gw_qsgd_encoding *e, size_t bucket) {
    return e->codes + bucket * e->bucket * bits / 8;
}

/* For |x| <= scale, |x| times this rounds to at most levels * 2^16: its error there is below half a
 * step. */
INLINE_LOOP float qsgd_inverse(const gw_qsgd_encoding *e, uint32_t scale) {
    return e->levels * 65536.0f / gw_float_of(scale);
}

INLINE_LOOP void qsgd_send_blank(unsigned bits, const gw_qsgd_encoding *e, size_t bucket, size_t n,
                                 uint32_t scale) {
    e->scales[bucket] = gw_le32(scale);
    memset(qsgd_codes_at(bits, e, bucket), 0, (n * bits + 7) / 8);
}

/* Encode a bucket with the peak `top` (which may have missed a NaN); return the peak of the `next`
 * floats behind it, a bucket or less. Reading ahead hides latency and cache misses. */
INLINE_LOOP uint32_t qsgd_encode_bucket(unsigned bits, quantize_end *end, const gw_qsgd_encoding *e,
                                        size_t bucket, size_t n, uint32_t top, size_t next) {
    const float *x = e->x + bucket * e->bucket, *behind = x + n;
    if (top < GW_QSGD_TINY)
        top = peak_of_bucket(x, n);
    if (top < GW_QSGD_TINY || top >= GW_QSGD_INFINITE) {
        qsgd_send_blank(bits, e, bucket, n, top < GW_QSGD_TINY ? 0 : GW_QSGD_NAN);
        return peak_of_bucket(behind, next);
    }
    e->scales[bucket] = gw_le32(top < GW_QSGD_MOST ? top : GW_QSGD_MOST);
    float inv = qsgd_inverse(e, top);
    uint64_t seed = gw_rng_u64(e->key, bucket);
    size_t tail = n % GW_BLOCK, full = n - tail;
    unsigned char *out = qsgd_codes_at(bits, e, bucket);
    bool whole = next == e->bucket;
    uint32_t next_top = 0;
    bool bad = qsgd_quantize(bits, 1, x, full, inv, seed, 0, out, whole ? behind : x, &next_top);
    if (tail)
        bad |= end(x + full, tail, inv, seed, (uint32_t)(full / 4), out + full * bits / 8);
    if (bad)
        qsgd_send_blank(bits, e, bucket, n, GW_QSGD_NAN);
    return whole ? next_top : peak_of_bucket(behind, next);
}

INLINE_LOOP size_t qsgd_bucket_at(size_t bucket, size_t lo, size_t hi) {
    return hi - lo < bucket ? hi - lo : bucket;
}

INLINE_LOOP void qsgd_encode_range(unsigned bits, quantize_end *end, const gw_qsgd_encoding *e,
                                   size_t lo, size_t hi) {
    size_t n = qsgd_bucket_at(e->bucket, lo, hi);
    uint32_t top = peak_of_bucket(e->x + lo, n);
    for (size_t bucket = lo / e->bucket; n; bucket++) {
        lo += n;
        size_t next = qsgd_bucket_at(e->bucket, lo, hi);
        top = qsgd_encode_bucket(bits, end, e, bucket, n, top, next);
        n = next;
    }
}

INLINE_LOOP void qsgd_decode_range(unsigned bits, const gw_qsgd_decoding *d, size_t lo, size_t hi,
                                   int add) {
    for (size_t bucket = lo / d->bucket; lo < hi; bucket++, lo += d->bucket) {
        size_t n = qsgd_bucket_at(d->bucket, lo, hi), tail = n % GW_BLOCK, full = n - tail;
        uint32_t scale = d->host_order ? d->scales[bucket] : gw_le32(d->scales[bucket]);
        float step = gw_float_of(scale < GW_QSGD_INFINITE ? scale : GW_QSGD_NAN) / d->levels;
        const unsigned char *in = d->codes + lo * bits / 8;
        qsgd_decode(bits, in, full, step, d->y + lo, add);
        if (tail)
            qsgd_decode_tail(bits, in + full * bits / 8, tail, step, d->y + lo + full, add);
    }
}

#define WIDTH(bits)                                                                                \
    APART bool qsgd_end##bits(const float *x, size_t tail, float inv, uint64_t seed, uint32_t ctr, \
                              void *out) {                                                         \
        return qsgd_quantize_tail(bits, x, tail, inv, seed, ctr, out);                             \
    }                                                                                              \
    TARGET static void qsgd_encode##bits(void *ctx, size_t lo, size_t hi) {                        \
        qsgd_encode_range(bits, qsgd_end##bits, ctx, lo, hi);                                      \
    }                                                                                              \
    TARGET static void qsgd_decode##bits(void *ctx, size_t lo, size_t hi) {                        \
        qsgd_decode_range(bits, ctx, lo, hi, 0);                                                   \
    }                                                                                              \
    TARGET static void qsgd_decode_add##bits(void *ctx, size_t lo, size_t hi) {                    \
        qsgd_decode_range(bits, ctx, lo, hi, 1);                                                   \
    }

WIDTH(2)
WIDTH(3)
WIDTH(4)
WIDTH(5)
WIDTH(6)
WIDTH(7)
WIDTH(8)

TARGET static void qsgd_measure(void *ctx, size_t lo, size_t hi) {
    const gw_qsgd_encoding *e = ctx;
    for (size_t bucket = lo / e->bucket; lo < hi; bucket++, lo += e->bucket) {
        uint32_t top = peak_of_bucket(e->x + lo, qsgd_bucket_at(e->bucket, lo, hi));
        if (top < GW_QSGD_TINY)
            top = 0;
        else if (top > GW_QSGD_MOST)
            top = top < GW_QSGD_INFINITE ? GW_QSGD_MOST : GW_QSGD_INFINITE;
        e->scales[bucket] = top;
    }
}

TARGET static void qsgd_encode_agreed(void *ctx, size_t lo, size_t hi) {
    const gw_qsgd_encoding *e = ctx;
    for (size_t bucket = lo / e->bucket; lo < hi; bucket++, lo += e->bucket) {
        size_t n = qsgd_bucket_at(e->bucket, lo, hi), tail = n % GW_BLOCK, full = n - tail;
        uint32_t scale = e->scales[bucket];
        if (scale < GW_QSGD_TINY || scale >= GW_QSGD_INFINITE) {
            memset(qsgd_codes_at(8, e, bucket), 0, n);
            continue;
        }
        float inv = qsgd_inverse(e, scale);
        uint64_t seed = gw_rng_u64(e->key, bucket);
        unsigned char *out = qsgd_codes_at(8, e, bucket);
        qsgd_quantize(8, 0, e->x + lo, full, inv, seed, 0, out, NULL, NULL);
        if (tail)
            qsgd_end8(e->x + lo + full, tail, inv, seed, (uint32_t)(full / 4), out + full);
    }
}

#define KERNELS(bits)                                                                              \
    { qsgd_encode##bits, qsgd_decode##bits, qsgd_decode_add##bits }
#define GW_QSGD_LEVEL(level)                                                                       \
    extern const gw_qsgd_level gw_qsgd_##level;                                                    \
    const gw_qsgd_level gw_qsgd_##level = {                                                        \
        {KERNELS(2), KERNELS(3), KERNELS(4), KERNELS(5), KERNELS(6), KERNELS(7), KERNELS(8)},      \
        qsgd_measure,                                                                              \
        qsgd_encode_agreed}
