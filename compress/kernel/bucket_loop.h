/* What the codecs share that scale bucket by bucket: peaks, random words, the loop over buckets. */
#include "base/rng.h"
#include "compress/kernel/qsgd.h"

/* ---- the largest magnitude ---- */

/* The bit pattern of max |x|; n is a multiple of GW_BLOCK. A prefetch may point anywhere. */
INLINE uint32_t peak_of(const float *x, size_t n) {
    enum { AHEAD = 4096 }; /* bytes */
    vu none = {0}, top[4] = {none, none, none, none};
    for (size_t i = 0; i < n; i += 4 * WIDTH)
        for (int r = 0; r < 4; r++) {
            const float *at = x + i + r * WIDTH;
            __builtin_prefetch((const void *)((uintptr_t)at + AHEAD));
            top[r] = vec_max(top[r], vec_load(at) & MAGNITUDE);
        }
    uint32_t lane[WIDTH], peak = 0;
    top[0] = vec_max(vec_max(top[0], top[1]), vec_max(top[2], top[3]));
    memcpy(lane, top, sizeof lane);
    for (int l = 0; l < WIDTH; l++)
        peak = lane[l] > peak ? lane[l] : peak;
    return peak;
}

APART uint32_t peak_of_tail(const float *x, size_t tail) {
    float block[GW_BLOCK] = {0};
    memcpy(block, x, tail * sizeof *block);
    return peak_of(block, GW_BLOCK);
}

INLINE uint32_t peak_of_bucket(const float *x, size_t n) {
    size_t tail = n % GW_BLOCK;
    uint32_t top = peak_of(x, n - tail), rest = tail ? peak_of_tail(x + n - tail, tail) : 0;
    return rest > top ? rest : top;
}

/* ---- random words: see qsgd.h ---- */

/* The Weyl terms of a block's lanes, and the seed's high half. */
typedef struct draws {
    vu weyl[PARTS];
    uint32_t high;
} draws;

INLINE draws chance_draws(uint64_t seed, uint32_t ctr) {
    draws d = {.high = (uint32_t)(seed >> 32)};
    for (int p = 0; p < PARTS; p++)
        d.weyl[p] = (vec_lanes() + (uint32_t)(p * WIDTH) + ctr) * GW_QSGD_WEYL + (uint32_t)seed;
    return d;
}

/* The words of the next block: each element's in its lane, with its half above. */
INLINE void chance_draw(draws *d, vu word[REGS]) {
    for (int p = 0; p < PARTS; p++) {
        vu h = (d->weyl[p] ^ d->weyl[p] >> 16) * GW_QSGD_MUL1;
        d->weyl[p] += LANES * GW_QSGD_WEYL;
        h ^= h >> 15 ^ d->high;
        vu r = h * GW_QSGD_MUL2, s = (h << 16 | h >> 16) * GW_QSGD_MUL3;
        word[p] = r << 16 | r >> 16;
        word[PARTS + p] = r;
        word[2 * PARTS + p] = s << 16 | s >> 16;
        word[3 * PARTS + p] = s;
    }
}

/* Codes of a block, rounded up or down at random: x * inv has 16 bits of fraction. */
INLINE void chance_round(draws *d, const float *x, float inv, int8_t *codes) {
    vu word[REGS];
    vh half[REGS / 2];
    chance_draw(d, word);
    for (int r = 0; r < REGS; r++)
        word[r] = (vu)vec_round(vec_load_floats(x + r * WIDTH) * inv) + (word[r] >> 16);
    for (int r = 0; r < REGS; r += 2)
        half[r / 2] = vec_upper(word[r], word[r + 1]);
    vec_pack(codes, half);
}

/* ---- buckets ---- */

INLINE size_t bucket_at(size_t bucket, size_t lo, size_t hi) {
    return hi - lo < bucket ? hi - lo : bucket;
}

/* Finds the next bucket's peak before it writes this one, to hide the latency of both the reduction
 * and the cache misses. Needs NAME_bucket(encoding, bucket, n, top): n floats, whose peak is
 * `top`. */
#define BUCKET_ENCODE(name)                                                                        \
    TARGET static void name(void *ctx, size_t lo, size_t hi) {                                     \
        const gw_bucket_encoding *e = ctx;                                                         \
        size_t n = bucket_at(e->bucket, lo, hi);                                                   \
        uint32_t top = peak_of_bucket(e->x + lo, n);                                               \
        for (size_t bucket = lo / e->bucket; n; bucket++) {                                        \
            lo += n;                                                                               \
            size_t next = bucket_at(e->bucket, lo, hi);                                            \
            uint32_t next_top = next ? peak_of_bucket(e->x + lo, next) : 0;                        \
            name##_bucket(e, bucket, n, top);                                                      \
            n = next, top = next_top;                                                              \
        }                                                                                          \
    }

/* Needs NAME_range(decoding, lo, hi, add). */
#define BUCKET_DECODE(name)                                                                        \
    TARGET static void name(void *ctx, size_t lo, size_t hi) {                                     \
        name##_range(ctx, lo, hi, 0);                                                              \
    }                                                                                              \
    TARGET static void name##_add(void *ctx, size_t lo, size_t hi) {                               \
        name##_range(ctx, lo, hi, 1);                                                              \
    }
