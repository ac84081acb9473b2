/* ternary, 64 elements an iteration. */
#include "compress/kernel/ternary.h"

/* Blocks from ctr / 16 on. x * inv lies within 2^16. */
INLINE void ternary_quantize(const float *x, size_t n, float inv, uint64_t seed, uint32_t ctr,
                             int8_t *codes) {
    draws d = chance_draws(seed, ctr);
    for (size_t i = 0; i < n; i += GW_BLOCK)
        chance_round(&d, x + i, inv, codes + i);
}

/* run is a multiple of GW_BLOCK; see gw_ternary_pack. */
INLINE void ternary_pack(const int8_t *codes, size_t run, unsigned char *bytes) {
    for (size_t j = 0; j < run; j += 4 * WIDTH) {
        vb b = *(const vec_byte *)(const void *)(codes + j);
        for (size_t r = 1; r < GW_TERNARY_RUNS; r++)
            b = b + b + (b + *(const vec_byte *)(const void *)(codes + r * run + j));
        *(vec_byte *)(void *)(bytes + j) = b + GW_TERNARY_TOP / 2;
    }
}

#ifndef TERNARY_DECODE /* a level has its own */
/* What to add to a byte to get the fraction of 256 (ternary.h), in words. */
INLINE vh ternary_up(vh b) {
    return (b * GW_TERNARY_UP_MUL + GW_TERNARY_UP_ADD) >> GW_TERNARY_UP_SHIFT;
}

INLINE void ternary_decode_runs(const unsigned char *bytes, size_t run, float scale, float *y,
                                int add) {
    for (size_t j = 0; j < run; j += 4 * WIDTH) {
        vb f = *(const vec_byte *)(bytes + j);
        f += (vb)(ternary_up((vh)f & 0xff) | ternary_up((vh)f >> 8 & 0xff) << 8);
        for (size_t r = 0; r < GW_TERNARY_RUNS; r++, f += f + f) {
            /* the digit that tripling carries out, less 1: a comparison that holds is -1 */
            vb code = 1 + (vb)(f <= 85) + (vb)(f <= 170);
            int8_t codes[4 * WIDTH];
            memcpy(codes, &code, sizeof codes);
            for (size_t l = 0; l < 4 * WIDTH; l += WIDTH)
                vec_put(y + r * run + j + l,
                        __builtin_convertvector(vec_widen(codes + l), vf) * scale, add);
        }
    }
}
#endif

APART void ternary_quantize_tail(const float *x, size_t tail, float inv, uint64_t seed,
                                 uint32_t ctr, int8_t *codes) {
    float block[GW_BLOCK] = {0};
    memcpy(block, x, tail * sizeof *block);
    ternary_quantize(block, GW_BLOCK, inv, seed, ctr, codes);
}

/* The last, short bucket is padded to a whole number of bytes. */
INLINE size_t ternary_run(size_t n) {
    return (n + GW_TERNARY_RUNS - 1) / GW_TERNARY_RUNS;
}

INLINE void ternary_encode_bucket(const gw_bucket_encoding *e, size_t bucket, size_t n,
                                  uint32_t top) {
    int8_t codes[GW_TERNARY_MOST + GW_BLOCK];
    const float *x = e->x + bucket * e->bucket;
    unsigned char *out = e->codes + bucket * (e->bucket / GW_TERNARY_RUNS);
    if (top >= GW_SCALE_INFINITE || top < GW_SCALE_TINY) {
        bool bad = top >= GW_SCALE_INFINITE;
        e->scales[bucket] = gw_le32(bad ? GW_SCALE_NAN : 0);
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

INLINE void ternary_decode_range(const gw_bucket_decoding *d, size_t lo, size_t hi, int add) {
    size_t bucket = lo / d->bucket, run = d->bucket / GW_TERNARY_RUNS;
    for (; lo < hi; bucket++, lo += d->bucket) {
        uint32_t top = gw_le32(d->scales[bucket]);
        float scale = gw_float_of(top < GW_SCALE_INFINITE ? top : GW_SCALE_NAN);
        const unsigned char *bytes = d->codes + bucket * run;
        if (hi - lo >= d->bucket)
            ternary_decode_runs(bytes, run, scale, d->y + lo, add);
        else
            ternary_decode_short(bytes, hi - lo, scale, d->y + lo, add);
    }
}

BUCKET_ENCODE(ternary_encode)
BUCKET_DECODE(ternary_decode)

const gw_bucket_kernels GW_LEVEL(gw_ternary) = {ternary_encode, ternary_decode, ternary_decode_add,
                                                NULL};
