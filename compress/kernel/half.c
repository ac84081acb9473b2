#include "compress/kernel/half.h"

#include <string.h>

const gw_half_table gw_fp16_kernels = GW_SIMD_TABLE(gw_fp16);
const gw_half_table gw_bf16_kernels = GW_SIMD_TABLE(gw_bf16);

enum { WIRE = 2 }; /* bytes an element */

typedef struct half_job {
    const gw_half_kernels *k;
    const float *x;
    float *y;
    const unsigned char *in;
    unsigned char *out;
} half_job;

gw_err gw_half_open(void **self, const gw_half_table table) {
    gw_simd level;
    GW_TRY(gw_simd_pick(&level));
    *self = (void *)table[level]; /* read only, never freed */
    return GW_OK;
}

size_t gw_half_bound(const void *self, size_t n) {
    (void)self;
    return n * WIRE;
}

static void half_encode_part(void *ctx, size_t lo, size_t hi) {
    const half_job *j = ctx;
    size_t tail = (hi - lo) % GW_BLOCK, end = hi - tail;
    j->k->encode(j->x + lo, end - lo, j->out + WIRE * lo);
    if (tail) {
        float x[GW_BLOCK] = {0};
        unsigned char out[WIRE * GW_BLOCK];
        memcpy(x, j->x + end, tail * sizeof *x);
        j->k->encode(x, GW_BLOCK, out);
        memcpy(j->out + WIRE * end, out, WIRE * tail);
    }
}

gw_err gw_half_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                      size_t cap, size_t *len) {
    (void)turn, (void)cap;
    half_job j = {.k = self, .x = x, .out = out};
    gw_simd_split(n, GW_BLOCK, half_encode_part, &j);
    *len = n * WIRE;
    return GW_OK;
}

static void half_decode_with(const half_job *j, void (*kernel)(const void *, size_t, float *),
                             size_t lo, size_t hi) {
    size_t tail = (hi - lo) % GW_BLOCK, end = hi - tail;
    kernel(j->in + WIRE * lo, end - lo, j->y + lo);
    if (tail) {
        unsigned char in[WIRE * GW_BLOCK] = {0};
        float y[GW_BLOCK] = {0};
        memcpy(in, j->in + WIRE * end, WIRE * tail);
        memcpy(y, j->y + end, tail * sizeof *y);
        kernel(in, GW_BLOCK, y);
        memcpy(j->y + end, y, tail * sizeof *y);
    }
}

static void half_decode_part(void *ctx, size_t lo, size_t hi) {
    const half_job *j = ctx;
    half_decode_with(j, j->k->decode, lo, hi);
}

static void half_decode_add_part(void *ctx, size_t lo, size_t hi) {
    const half_job *j = ctx;
    half_decode_with(j, j->k->decode_add, lo, hi);
}

gw_err gw_half_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                      gw_into into) {
    (void)len;
    half_job j = {.k = self, .in = in, .y = y};
    gw_simd_split(n, GW_BLOCK, into == GW_INTO_ADD ? half_decode_add_part : half_decode_part, &j);
    return GW_OK;
}

static void half_add_part(void *ctx, size_t lo, size_t hi) {
    const half_job *j = ctx;
    size_t tail = (hi - lo) % GW_BLOCK, end = hi - tail;
    j->k->add(j->out + WIRE * lo, j->in + WIRE * lo, end - lo);
    if (tail) {
        unsigned char a[WIRE * GW_BLOCK] = {0}, b[WIRE * GW_BLOCK] = {0};
        memcpy(a, j->out + WIRE * end, WIRE * tail);
        memcpy(b, j->in + WIRE * end, WIRE * tail);
        j->k->add(a, b, GW_BLOCK);
        memcpy(j->out + WIRE * end, a, WIRE * tail);
    }
}

gw_err gw_half_add(const gw_half_table table, void *inout, const void *in, size_t len) {
    gw_simd level;
    GW_TRY(gw_simd_pick(&level));
    half_job j = {.k = table[level], .in = in, .out = inout};
    gw_simd_split(len / WIRE, GW_BLOCK, half_add_part, &j);
    return GW_OK;
}
