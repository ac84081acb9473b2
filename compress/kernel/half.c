#include "compress/kernel/half.h"

#include <string.h>

const gw_half_table gw_fp16_kernels = GW_SIMD_TABLE(gw_fp16);
const gw_half_table gw_bf16_kernels = GW_SIMD_TABLE(gw_bf16);

enum { WIRE = 2 }; /* bytes an element */

typedef struct half_job {
    gw_half_kernel *kernel;
    const unsigned char *in;
    unsigned char *out;
    size_t in_bytes, out_bytes; /* an element */
} half_job;

static void half_part(void *ctx, size_t lo, size_t hi) {
    const half_job *j = ctx;
    size_t tail = (hi - lo) % GW_BLOCK, end = hi - tail;
    j->kernel(j->in + lo * j->in_bytes, end - lo, j->out + lo * j->out_bytes);
    if (tail) {
        float in[GW_BLOCK] = {0}, out[GW_BLOCK] = {0}; /* or halves */
        memcpy(in, j->in + end * j->in_bytes, tail * j->in_bytes);
        memcpy(out, j->out + end * j->out_bytes, tail * j->out_bytes);
        j->kernel(in, GW_BLOCK, out);
        memcpy(j->out + end * j->out_bytes, out, tail * j->out_bytes);
    }
}

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

gw_err gw_half_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                      size_t cap, size_t *len) {
    (void)turn, (void)cap;
    const gw_half_kernels *k = self;
    half_job j = {k->encode, (const unsigned char *)x, out, sizeof *x, WIRE};
    gw_simd_split(n, GW_BLOCK, half_part, &j);
    *len = n * WIRE;
    return GW_OK;
}

gw_err gw_half_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                      gw_into into) {
    (void)len;
    const gw_half_kernels *k = self;
    half_job j = {into == GW_INTO_ADD ? k->decode_add : k->decode, in, (unsigned char *)y, WIRE,
                  sizeof *y};
    gw_simd_split(n, GW_BLOCK, half_part, &j);
    return GW_OK;
}

gw_err gw_half_add(const gw_half_table table, void *inout, const void *in, size_t len) {
    gw_simd level;
    GW_TRY(gw_simd_pick(&level));
    half_job j = {table[level]->add, in, inout, WIRE, WIRE};
    gw_simd_split(len / WIRE, GW_BLOCK, half_part, &j);
    return GW_OK;
}
