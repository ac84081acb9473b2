/* onebit, 64 elements an iteration: v = x, or with feedback v = e + x, which is computed twice,
 * since a load is cheaper than a store. */
#include "compress/kernel/bucket.h"

#include <math.h>

#define NORMAL 0x00800000u /* magnitudes from this bit pattern on are not denormal */

INLINE vf onebit_value(const float *x, const float *e, int feedback) {
    return feedback ? vec_load_floats(e) + vec_load_floats(x) : vec_load_floats(x);
}

/* The signs of v, and the sum of |v|: keeps a partial sum for each place in a block; in the end it
 * adds the upper half to the lower until one is left. It skips denormals, which would count or not
 * depending on the thread's mode. */
INLINE float onebit_gather(const float *x, const float *e, size_t n, unsigned char *signs,
                           int feedback) {
    vf sum[REGS];
    for (int r = 0; r < REGS; r++) /* an initialiser would become a slow memset */
        sum[r] = (vf){0};
    gw_u32u *word = (gw_u32u *)(void *)signs;
    for (size_t i = 0; i < n; i += GW_BLOCK)
        for (int r = 0; r < REGS; r += REGS / 2) {
            vu v[REGS / 2];
            for (int k = 0; k < REGS / 2; k++) {
                size_t at = i + (size_t)(r + k) * WIDTH;
                v[k] = (vu)onebit_value(x + at, feedback ? e + at : NULL, feedback);
                sum[r + k] += (vf)vec_reaching(v[k] & MAGNITUDE, NORMAL);
            }
            *word++ = gw_le32(vec_signs(v));
        }
    for (int half = REGS / 2; half >= PARTS; half /= 2)
        for (int r = 0; r < half; r++)
            sum[r] += sum[half + r];
    return vec_total(sum);
}

/* e = v - copysign(scale, v). */
INLINE void onebit_settle(const float *x, float *e, size_t n, float scale) {
    for (size_t i = 0; i < n; i += WIDTH) {
        size_t next = (n + i) * sizeof *x; /* the next bucket: memory is idle in this pass */
        __builtin_prefetch((const void *)((uintptr_t)x + next));
        __builtin_prefetch((const void *)((uintptr_t)e + next), 1);
        vf v = onebit_value(x + i, e + i, 1);
        vec_put(e + i, v - (vf)(((vu)v & SIGN) | gw_float_bits(scale)), 0);
    }
}

INLINE void onebit_decode_blocks(const unsigned char *signs, size_t n, float scale, float *y,
                                 int add) {
    enum { WORD = 32 };
    const gw_u32u *word = (const gw_u32u *)(const void *)signs;
    for (size_t i = 0; i < n; i += WORD, word++)
        for (unsigned r = 0; r < WORD; r += WIDTH) {
            vu sign = (vec_all(gw_le32(*word)) << (31 - r - vec_lanes())) & SIGN;
            vec_put(y + i + r, (vf)(gw_float_bits(scale) ^ sign), add);
        }
}

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
        if ((gw_float_bits(v) & 0x7fffffff) >= GW_SCALE_INFINITE)
            return GW_SCALE_NAN;
        sum += fabs((double)v);
    }
    return gw_float_bits((float)(sum / (double)n));
}

INLINE void onebit_encode_range(const gw_bucket_encoding *c, size_t lo, size_t hi, int feedback) {
    for (size_t bucket = lo / c->bucket; lo < hi; bucket++, lo += c->bucket) {
        size_t n = hi - lo < c->bucket ? hi - lo : c->bucket, tail = n % GW_BLOCK, full = n - tail;
        const float *x = c->x + lo, *e = feedback ? c->e + lo : NULL;
        unsigned char *signs = c->codes + lo / 8;
        float sum = onebit_gather(x, e, full, signs, feedback);
        if (tail)
            sum += onebit_gather_tail(x + full, e ? e + full : NULL, tail, signs + full / 8);
        uint32_t scale = gw_float_bits(sum / (float)n);
        if (scale >= GW_SCALE_INFINITE)
            scale = onebit_large_mean(x, e, n);
        else if (scale < GW_SCALE_TINY)
            scale = 0;
        c->scales[bucket] = gw_le32(scale);
        if (feedback) {
            onebit_settle(x, c->e + lo, full, gw_float_of(scale));
            onebit_settle_tail(x + full, c->e + lo + full, tail, gw_float_of(scale));
        }
    }
}

INLINE void onebit_decode_range(const gw_bucket_decoding *d, size_t lo, size_t hi, int add) {
    for (size_t bucket = lo / d->bucket; lo < hi; bucket++, lo += d->bucket) {
        size_t n = hi - lo < d->bucket ? hi - lo : d->bucket, tail = n % GW_BLOCK, full = n - tail;
        uint32_t mean = gw_le32(d->scales[bucket]);
        float scale = gw_float_of(mean < GW_SCALE_INFINITE ? mean : GW_SCALE_NAN);
        const unsigned char *signs = d->codes + lo / 8;
        float *y = d->y + lo;
        onebit_decode_blocks(signs, full, scale, y, add);
        if (tail) {
            float block[GW_BLOCK] = {0};
            unsigned char bits[GW_BLOCK / 8] = {0};
            memcpy(bits, signs + full / 8, (tail + 7) / 8);
            memcpy(block, y + full, tail * sizeof *block);
            onebit_decode_blocks(bits, GW_BLOCK, scale, block, add);
            memcpy(y + full, block, tail * sizeof *block);
        }
    }
}

TARGET static void onebit_encode(void *ctx, size_t lo, size_t hi) {
    onebit_encode_range(ctx, lo, hi, 0);
}

TARGET static void onebit_encode_feedback(void *ctx, size_t lo, size_t hi) {
    onebit_encode_range(ctx, lo, hi, 1);
}

BUCKET_DECODE(onebit_decode)

const gw_bucket_kernels GW_LEVEL(gw_onebit) = {onebit_encode, onebit_decode, onebit_decode_add,
                                               onebit_encode_feedback};
