/* qsgd, 64 elements an iteration. Codes narrower than 8 bits need, all inline and for n a multiple
 * of GW_BLOCK,
 *   void qsgd_pack(bits, codes, out)                a block's codes, one a byte
 *   void qsgd_unpack(bits, in, n, step, y, add) */

/* Blocks from ctr / 16 on. x * inv lies within 127 * 2^16. */
INLINE void qsgd_quantize(unsigned bits, const float *x, size_t n, float inv, uint64_t seed,
                          uint32_t ctr, unsigned char *out) {
    draws d = chance_draws(seed, ctr);
    for (size_t i = 0; i < n; i += GW_BLOCK, out += bits * GW_BLOCK / 8) {
        int8_t codes[GW_BLOCK];
        chance_round(&d, x + i, inv, codes);
        if (bits < 8)
            qsgd_pack(bits, codes, out);
        else
            memcpy(out, codes, sizeof codes);
    }
}

INLINE void qsgd_decode(unsigned bits, const unsigned char *in, size_t n, float step, float *y,
                        int add) {
    if (bits < 8)
        qsgd_unpack(bits, in, n, step, y, add);
    else
        for (size_t i = 0; i < n; i += WIDTH)
            vec_put(y + i, __builtin_convertvector(vec_widen(in + i), vf) * step, add);
}

/* ---- ragged ends: a zero-padded block ---- */

typedef void quantize_end(const float *x, size_t tail, float inv, uint64_t seed, uint32_t ctr,
                          unsigned char *out);

INLINE void qsgd_quantize_tail(unsigned bits, const float *x, size_t tail, float inv, uint64_t seed,
                               uint32_t ctr, unsigned char *out) {
    float block[GW_BLOCK] = {0};
    unsigned char codes[GW_BLOCK];
    memcpy(block, x, tail * sizeof *block);
    qsgd_quantize(bits, block, GW_BLOCK, inv, seed, ctr, codes);
    memcpy(out, codes, (tail * bits + 7) / 8);
}

INLINE void qsgd_decode_tail(unsigned bits, const unsigned char *in, size_t tail, float step,
                             float *y, int add) {
    float block[GW_BLOCK] = {0};
    unsigned char codes[GW_BLOCK] = {0};
    memcpy(codes, in, (tail * bits + 7) / 8);
    memcpy(block, y, tail * sizeof *block);
    qsgd_decode(bits, codes, GW_BLOCK, step, block, add);
    memcpy(y, block, tail * sizeof *block);
}

/* ---- buckets ---- */

/* For |x| <= scale, |x| times the factor rounds to at most levels * 2^16: its error there is below
 * half a step. */
INLINE void qsgd_encode_at(unsigned bits, quantize_end *end, const gw_bucket_encoding *e,
                           size_t bucket, size_t n, uint32_t scale) {
    const float *x = e->x + bucket * e->bucket;
    unsigned char *out = e->codes + bucket * e->bucket * bits / 8;
    if (scale < GW_SCALE_TINY || scale >= GW_SCALE_INFINITE) {
        memset(out, 0, (n * bits + 7) / 8);
        return;
    }
    float inv = e->levels * 65536.0f / gw_float_of(scale);
    uint64_t seed = gw_rng_u64(e->key, bucket);
    size_t tail = n % GW_BLOCK, full = n - tail;
    qsgd_quantize(bits, x, full, inv, seed, 0, out);
    if (tail)
        end(x + full, tail, inv, seed, (uint32_t)(full / 4), out + full * bits / 8);
}

INLINE uint32_t qsgd_scale(uint32_t top, uint32_t bad) {
    if (top < GW_SCALE_TINY)
        return 0;
    return top <= GW_QSGD_MOST ? top : top < GW_SCALE_INFINITE ? GW_QSGD_MOST : bad;
}

INLINE void qsgd_encode_bucket(unsigned bits, quantize_end *end, const gw_bucket_encoding *e,
                               size_t bucket, size_t n, uint32_t top) {
    e->scales[bucket] = gw_le32(qsgd_scale(top, GW_SCALE_NAN));
    qsgd_encode_at(bits, end, e, bucket, n, top);
}

INLINE void qsgd_decode_range(unsigned bits, const gw_bucket_decoding *d, size_t lo, size_t hi,
                              int add) {
    for (size_t bucket = lo / d->bucket; lo < hi; bucket++, lo += d->bucket) {
        size_t n = bucket_at(d->bucket, lo, hi), tail = n % GW_BLOCK, full = n - tail;
        uint32_t scale = d->host_order ? d->scales[bucket] : gw_le32(d->scales[bucket]);
        float step = gw_float_of(scale < GW_SCALE_INFINITE ? scale : GW_SCALE_NAN) / d->levels;
        const unsigned char *in = d->codes + lo * bits / 8;
        qsgd_decode(bits, in, full, step, d->y + lo, add);
        if (tail)
            qsgd_decode_tail(bits, in + full * bits / 8, tail, step, d->y + lo + full, add);
    }
}

#define CODES(bits)                                                                                \
    APART void qsgd_end##bits(const float *x, size_t tail, float inv, uint64_t seed, uint32_t ctr, \
                              unsigned char *out) {                                                \
        qsgd_quantize_tail(bits, x, tail, inv, seed, ctr, out);                                    \
    }                                                                                              \
    INLINE void qsgd_encode##bits##_bucket(const gw_bucket_encoding *e, size_t bucket, size_t n,   \
                                           uint32_t top) {                                         \
        qsgd_encode_bucket(bits, qsgd_end##bits, e, bucket, n, top);                               \
    }                                                                                              \
    BUCKET_ENCODE(qsgd_encode##bits)                                                               \
    INLINE void qsgd_decode##bits##_range(const gw_bucket_decoding *d, size_t lo, size_t hi,       \
                                          int add) {                                               \
        qsgd_decode_range(bits, d, lo, hi, add);                                                   \
    }                                                                                              \
    BUCKET_DECODE(qsgd_decode##bits)

CODES(2)
CODES(3)
CODES(4)
CODES(5)
CODES(6)
CODES(7)
CODES(8)

TARGET static void qsgd_measure(void *ctx, size_t lo, size_t hi) {
    const gw_bucket_encoding *e = ctx;
    for (size_t bucket = lo / e->bucket; lo < hi; bucket++, lo += e->bucket) {
        uint32_t top = peak_of_bucket(e->x + lo, bucket_at(e->bucket, lo, hi));
        e->scales[bucket] = qsgd_scale(top, GW_SCALE_INFINITE);
    }
}

TARGET static void qsgd_encode_agreed(void *ctx, size_t lo, size_t hi) {
    const gw_bucket_encoding *e = ctx;
    for (size_t bucket = lo / e->bucket; lo < hi; bucket++, lo += e->bucket)
        qsgd_encode_at(8, qsgd_end8, e, bucket, bucket_at(e->bucket, lo, hi), e->scales[bucket]);
}

#define KERNELS(bits)                                                                              \
    { qsgd_encode##bits, qsgd_decode##bits, qsgd_decode##bits##_add, NULL }
const gw_qsgd_level GW_LEVEL(gw_qsgd) = {
    {KERNELS(2), KERNELS(3), KERNELS(4), KERNELS(5), KERNELS(6), KERNELS(7), KERNELS(8)},
    qsgd_measure,
    qsgd_encode_agreed};
