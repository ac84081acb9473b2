/* The loop over buckets, included by each level's file and so compiled for its instructions. Needs
 * TARGET (a function attribute, or empty) and, all inline and for n a multiple of GW_BLOCK, with v
 * = x, or with feedback v = e + x:
 *   float onebit_gather(x, e, n, signs, feedback)   sum of |v| without denormals; signs of v
 *   void onebit_settle(x, e, n, scale)              e = v - copysign(scale, v)
 *   void onebit_decode(signs, n, scale, y, add)
 * Defines gw_onebit_LEVEL through GW_ONEBIT_TABLE(LEVEL).
 *
 * v is computed twice, since a load is cheaper than a store. onebit_gather keeps a partial sum for
 * each place in a block; in the end it adds the upper half to the lower until one is left. It skips
 * denormals, which would count or not depending on the thread's mode. */
#include <math.h>
#include <string.h>

#define INLINE_LOOP TARGET static inline __attribute__((always_inline))
#define APART       TARGET static __attribute__((noinline)) /* rare, or once a span */

APART float onebit_gather_tail(const float *x, const float *e, size_t tail, unsigned char *signs) {
    float block[GW_BLOCK] = {0};
    unsigned char bits[GW_BLOCK / 8];
    for (size_t i = 0; i < tail; i++)
        block[i] = e ? e[i] + x[i] : x[i];
    float sum = onebit_gather(block, NULL, GW_BLOCK, bits, 0);
    memcpy(signs, bits, (tail + 7) / 8);
    return sum;
}

APART void onebit_settle_tail(const float *x, float *e, size_t tail, float scale) {
    for (size_t i = 0; i < tail; i++) {
        float v = e[i] + x[i];
        e[i] = v - copysignf(scale, v);
    }
}

/* The sum overflowed: an element is not finite, or all are large. */
APART uint32_t onebit_large_mean(const float *x, const float *e, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        float v = e ? e[i] + x[i] : x[i];
        if ((gw_float_bits(v) & 0x7fffffff) >= GW_ONEBIT_INFINITE)
            return GW_ONEBIT_NAN;
        sum += fabs((double)v);
    }
    return gw_float_bits((float)(sum / (double)n));
}

INLINE_LOOP void onebit_encode_range(const gw_onebit_encoding *c, size_t lo, size_t hi,
                                     int feedback) {
    for (size_t bucket = lo / c->bucket; lo < hi; bucket++, lo += c->bucket) {
        size_t n = hi - lo < c->bucket ? hi - lo : c->bucket, tail = n % GW_BLOCK, full = n - tail;
        const float *x = c->x + lo, *e = feedback ? c->e + lo : NULL;
        unsigned char *signs = c->signs + lo / 8;
        float sum = onebit_gather(x, e, full, signs, feedback);
        if (tail)
            sum += onebit_gather_tail(x + full, e ? e + full : NULL, tail, signs + full / 8);
        uint32_t scale = gw_float_bits(sum / (float)n);
        if (scale >= GW_ONEBIT_INFINITE)
            scale = onebit_large_mean(x, e, n);
        else if (scale < GW_ONEBIT_TINY)
            scale = 0;
        c->scales[bucket] = gw_le32(scale);
        if (feedback) {
            onebit_settle(x, c->e + lo, full, gw_float_of(scale));
            onebit_settle_tail(x + full, c->e + lo + full, tail, gw_float_of(scale));
        }
    }
}

INLINE_LOOP void onebit_decode_range(const gw_onebit_decoding *d, size_t lo, size_t hi, int add) {
    for (size_t bucket = lo / d->bucket; lo < hi; bucket++, lo += d->bucket) {
        size_t n = hi - lo < d->bucket ? hi - lo : d->bucket, tail = n % GW_BLOCK, full = n - tail;
        uint32_t mean = gw_le32(d->scales[bucket]);
        float scale = gw_float_of(mean < GW_ONEBIT_INFINITE ? mean : GW_ONEBIT_NAN);
        const unsigned char *signs = d->signs + lo / 8;
        float *y = d->y + lo;
        onebit_decode(signs, full, scale, y, add);
        if (tail) {
            float block[GW_BLOCK] = {0};
            unsigned char bits[GW_BLOCK / 8] = {0};
            memcpy(bits, signs + full / 8, (tail + 7) / 8);
            memcpy(block, y + full, tail * sizeof *block);
            onebit_decode(bits, GW_BLOCK, scale, block, add);
            memcpy(y + full, block, tail * sizeof *block);
        }
    }
}

TARGET static void onebit_encode_part(void *ctx, size_t lo, size_t hi) {
    onebit_encode_range(ctx, lo, hi, 0);
}

TARGET static void onebit_encode_feedback_part(void *ctx, size_t lo, size_t hi) {
    onebit_encode_range(ctx, lo, hi, 1);
}

TARGET static void onebit_decode_part(void *ctx, size_t lo, size_t hi) {
    onebit_decode_range(ctx, lo, hi, 0);
}

TARGET static void onebit_decode_add_part(void *ctx, size_t lo, size_t hi) {
    onebit_decode_range(ctx, lo, hi, 1);
}

#define GW_ONEBIT_TABLE(level)                                                                     \
    const gw_onebit_kernels gw_onebit_##level = {onebit_encode_part, onebit_encode_feedback_part,  \
                                                 onebit_decode_part, onebit_decode_add_part}
