/* natural, 64 elements an iteration. */
#include "compress/kernel/bucket.h"

#include <math.h>

enum {
    NATURAL_CODES = 127,  /* of magnitudes, besides zero */
    NATURAL_POISON = 255, /* the window of a bucket with an Inf or a NaN */
    FRACTION = 23         /* bits of a binary32 below its exponent */
};

/* The window of a bucket whose largest magnitude has the bit pattern `top`: code c stands for the
 * power of two with the exponent field window + c. The top code is one above top's exponent, since
 * top may round up, as far as binary32 goes. */
static inline uint32_t natural_window(uint32_t top) {
    uint32_t above = (top >> FRACTION) + 1;
    if (above > 255)
        return NATURAL_POISON;
    above = above < 255 ? above : 254;
    return above > NATURAL_CODES ? above - NATURAL_CODES : 0;
}

/* The part of a bucket's range that a kernel must handle. */
typedef enum natural_reach {
    NATURAL_WHOLE,  /* the window starts at zero: none below, none at the upper end */
    NATURAL_INSIDE, /* only zeros below, none at the upper end */
    NATURAL_BELOW   /* anything */
} natural_reach;

/* mag as an integer whose code starts at bit 23; random bits added below may carry into it. Below
 * the window this is |x| divided by the window's smallest power. */
INLINE vu natural_place(vu mag, uint32_t window, int below) {
    const uint32_t start = window << FRACTION;
    if (!below) /* only zeros are below it */
        return vec_max(mag, vec_all(start)) - start;
    vu field = vec_min(vec_max(mag >> FRACTION, vec_all(1)), vec_all(window + 1));
    vu down = vec_min(window + 1 - field, vec_all(31));
    return (mag - ((field - 1) << FRACTION)) >> down;
}

/* The sign in bit 31, the code from bit 23 up, the rest of the fraction below. */
INLINE vu natural_rounded(const float *x, vu word, uint32_t window, natural_reach reach) {
    vu v = vec_load(x), chance = word >> (32 - FRACTION);
    if (reach == NATURAL_WHOLE)
        return v + chance;
    vu drawn = natural_place(v & MAGNITUDE, window, reach == NATURAL_BELOW) + chance;
    if (reach == NATURAL_BELOW) /* the largest floats would round up to 2^128 */
        drawn = vec_min(drawn, vec_all(0x3fffffff));
    return (drawn & MAGNITUDE) | (v & SIGN);
}

INLINE void natural_quantize(const float *x, size_t n, uint32_t window, uint64_t seed, uint32_t ctr,
                             unsigned char *codes, natural_reach reach) {
    draws d = chance_draws(seed, ctr);
    for (size_t i = 0; i < n; i += GW_BLOCK) {
        vu word[REGS];
        vh half[REGS / 2];
        chance_draw(&d, word);
        for (int r = 0; r < REGS; r++)
            word[r] = natural_rounded(x + i + r * WIDTH, word[r], window, reach);
        for (int r = 0; r < REGS; r += 2) { /* bits 15 and 13 to 7 */
            vh upper = vec_upper(word[r], word[r + 1]);
            half[r / 2] = ((upper << 1 & 0x7fff) | (upper & INT16_MIN)) >> 8;
        }
        vec_pack(codes + i, half);
    }
}

/* The bit pattern, less one, of the least |x| that is not 0. */
INLINE uint32_t natural_least(const float *x, size_t n) {
    vu low = vec_all(UINT32_MAX);
    for (size_t i = 0; i < n; i += WIDTH)
        low = vec_min(low, (vec_load(x + i) & MAGNITUDE) - 1);
    uint32_t lane[WIDTH], least = UINT32_MAX;
    memcpy(lane, &low, sizeof lane);
    for (int l = 0; l < WIDTH; l++)
        least = lane[l] < least ? lane[l] : least;
    return least;
}

/* above: window is not 0. */
INLINE void natural_decode_blocks(const unsigned char *codes, size_t n, uint32_t window, float *y,
                                  int add, int above) {
    for (size_t i = 0; i < n; i += WIDTH) {
        vu raw = (vu)vec_widen(codes + i); /* after the shift the sign is in bits 31 and 30 */
        vu v = raw << FRACTION & ~(SIGN >> 1);
        if (above) /* but for the code 0 */
            v += (vu)((vi)(0 - (raw & 0x7f)) >> 31) & window << FRACTION;
        vec_put(y + i, (vf)v, add);
    }
}

APART void natural_quantize_tail(const float *x, size_t tail, uint32_t window, uint64_t seed,
                                 uint32_t ctr, unsigned char *out) {
    float block[GW_BLOCK] = {0};
    unsigned char codes[GW_BLOCK];
    memcpy(block, x, tail * sizeof *block);
    if (window)
        natural_quantize(block, GW_BLOCK, window, seed, ctr, codes, NATURAL_BELOW);
    else
        natural_quantize(block, GW_BLOCK, window, seed, ctr, codes, NATURAL_WHOLE);
    memcpy(out, codes, tail);
}

INLINE void natural_encode_bucket(const gw_bucket_encoding *e, size_t bucket, size_t n,
                                  uint32_t top) {
    const float *x = e->x + bucket * e->bucket;
    unsigned char *out = e->codes + bucket * e->bucket;
    uint32_t window = natural_window(top);
    e->windows[bucket] = (unsigned char)window;
    if (window == NATURAL_POISON) {
        memset(out, 0, n);
        return;
    }
    uint64_t seed = gw_rng_u64(e->key, bucket);
    size_t tail = n % GW_BLOCK, full = n - tail;
    if (window == 0)
        natural_quantize(x, full, window, seed, 0, out, NATURAL_WHOLE);
    else if (window < NATURAL_CODES && natural_least(x, full) >= ((window + 1) << FRACTION) - 1)
        natural_quantize(x, full, window, seed, 0, out, NATURAL_INSIDE);
    else
        natural_quantize(x, full, window, seed, 0, out, NATURAL_BELOW);
    if (tail)
        natural_quantize_tail(x + full, tail, window, seed, (uint32_t)(full / 4), out + full);
}

APART void natural_poison(float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = NAN;
}

INLINE void natural_decode_range(const gw_bucket_decoding *d, size_t lo, size_t hi, int add) {
    for (size_t bucket = lo / d->bucket; lo < hi; bucket++, lo += d->bucket) {
        size_t n = hi - lo < d->bucket ? hi - lo : d->bucket, tail = n % GW_BLOCK, full = n - tail;
        uint32_t window = d->windows[bucket];
        const unsigned char *in = d->codes + lo;
        float *y = d->y + lo;
        if (window > NATURAL_CODES) {
            natural_poison(y, n);
            continue;
        }
        if (window)
            natural_decode_blocks(in, full, window, y, add, 1);
        else
            natural_decode_blocks(in, full, window, y, add, 0);
        if (tail) {
            float block[GW_BLOCK] = {0};
            unsigned char codes[GW_BLOCK] = {0};
            memcpy(codes, in + full, tail);
            memcpy(block, y + full, tail * sizeof *block);
            natural_decode_blocks(codes, GW_BLOCK, window, block, add, 1);
            memcpy(y + full, block, tail * sizeof *block);
        }
    }
}

BUCKET_ENCODE(natural_encode)
BUCKET_DECODE(natural_decode)

const gw_bucket_kernels GW_LEVEL(gw_natural) = {natural_encode, natural_decode, natural_decode_add,
                                                NULL};
