#include "compress/bucket.h"

#include "base/mem.h"

gw_err gw_bucketed_open(void **self, const gw_args *args, const char *codec, int grain, size_t size,
                        gw_simd *level) {
    long long bucket = gw_args_int(args, "bucket");
    if (bucket % grain)
        return gw_fail(GW_ERR_USAGE, "%s: bucket=%lld: must be a multiple of %d", codec, bucket,
                       grain);
    gw_bucketed *b = NULL;
    GW_TRY(gw_simd_pick(level));
    GW_TRY(gw_alloc(&b, size, 1));
    b->bucket = (size_t)bucket;
    *self = b;
    return GW_OK;
}

size_t gw_bucketed_bound(const void *self, size_t n) {
    const gw_bucketed *b = self;
    return b->codes_bytes(b, n) + gw_bucketed_count(b, n) * b->head_bytes;
}

static void bucketed_encode(const gw_bucketed *b, gw_bucket_part *part, gw_turn turn,
                            const float *x, float *e, size_t n, void *out, size_t *len) {
    gw_bucket_encoding c = {.codec = b,
                            .x = x,
                            .e = e,
                            .bucket = b->bucket,
                            .levels = b->levels,
                            .key = turn.key,
                            .turn = &turn,
                            .heads = (unsigned char *)out + b->codes_bytes(b, n),
                            .codes = out};
    gw_simd_split(n, b->bucket, part, &c);
    *len = gw_bucketed_bound(b, n);
}

gw_err gw_bucketed_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                          size_t cap, size_t *len) {
    (void)cap;
    const gw_bucketed *b = self;
    bucketed_encode(b, b->k.encode, turn, x, NULL, n, out, len);
    return GW_OK;
}

gw_err gw_bucketed_encode_feedback(const void *self, gw_turn turn, const float *x, float *e,
                                   size_t n, void *out, size_t cap, size_t *len) {
    (void)cap;
    const gw_bucketed *b = self;
    bucketed_encode(b, b->k.encode_feedback, turn, x, e, n, out, len);
    return GW_OK;
}

gw_err gw_bucketed_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                          gw_into into) {
    (void)len;
    const gw_bucketed *b = self;
    gw_bucket_decoding d = {.y = y,
                            .bucket = b->bucket,
                            .levels = b->levels,
                            .heads = (const unsigned char *)in + b->codes_bytes(b, n),
                            .codes = in};
    gw_simd_split(n, b->bucket, into == GW_INTO_ADD ? b->k.decode_add : b->k.decode, &d);
    return GW_OK;
}

gw_err gw_bucketed_add_int8(void *inout, const void *in, size_t len) {
    unsigned char *a = inout; /* unsigned, so that it wraps around as MPI's sum does */
    const unsigned char *b = in;
    for (size_t i = 0; i < len; i++)
        a[i] = (unsigned char)(a[i] + b[i]);
    return GW_OK;
}
