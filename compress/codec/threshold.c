/* threshold: the elements of at least a given magnitude, as indices and values. N. Strom, "Scalable
 * Distributed DNN Training Using Commodity GPU Cloud Computing", INTERSPEECH 2015, but with values
 * in place of signs.
 *
 *   kept: |x| >= value, `value` rounded to binary32
 *
 * The size on the wire depends on the data and may be zero elements. -x keeps the same elements as
 * x; a NaN counts as larger than infinity and is kept. Biased: with error feedback a small element
 * is sent once it has added up to `value`.
 *
 * Wire format (sparse_wire.h): k, a byte a gap, k binary32. 40 bits a kept element if at least one
 * of 255 is; at most 40 bits an element. */
#include "base/mem.h"
#include "compress/scratch.h"
#include "compress/sparse_wire.h"

#include <stdlib.h>

enum { CHUNK = 4096 }; /* floats: still in L1 when their values are read */

typedef struct threshold {
    uint32_t least;
    const gw_pick_kernels *kernels;
    gw_scratch scratch;
} threshold;

static const gw_opt threshold_opts[] = {{"value", GW_OPT_REAL, "0.01", 0, 0x1.fffffep127, NULL,
                                         NULL, "keep elements of at least this magnitude"},
                                        {0}};

static gw_err threshold_open(void **self, const gw_args *args) {
    const gw_pick_kernels *kernels;
    GW_TRY(gw_pick_open(&kernels));
    threshold *t = NULL;
    GW_TRY(gw_alloc(&t, 1, sizeof *t));
    t->least = gw_magnitude(gw_float_bits((float)gw_args_real(args, "value")));
    t->kernels = kernels;
    *self = t;
    return GW_OK;
}

static void threshold_close(void *self) {
    threshold *t = self;
    if (t)
        gw_scratch_clear(&t->scratch);
    free(t);
}

static size_t threshold_bound(const void *self, size_t n) {
    (void)self;
    return gw_sparse_bound(n, n);
}

static void threshold_pick(const threshold *t, const float *x, float *e, size_t n, gw_kept *kept) {
    const float *from = e ? e : x;
    for (size_t lo = 0; lo < n; lo += CHUNK) {
        size_t m = n - lo < CHUNK ? n - lo : CHUNK, had = kept->n;
        kept->n += gw_pick_chunk(t->kernels, x + lo, e ? e + lo : NULL, m, t->least, (uint32_t)lo,
                                 kept->at + had);
        for (size_t i = had; i < kept->n; i++)
            kept->bits[i] = gw_float_bits(from[kept->at[i]]);
    }
}

/* Encode x, or e += x; then subtract what is kept from e. */
static gw_err threshold_encode_either(const void *self, const float *x, float *e, size_t n,
                                      void *out, size_t *len) {
    threshold *t = (threshold *)self; /* only its scratch changes */
    *len = 0;
    if (n == 0)
        return GW_OK;
    if (n > GW_SELECT_MOST)
        return gw_fail(
            GW_ERR_UNSUPPORTED,
            "threshold: a span of %zu floats is too long for 32-bit indices: use buckets", n);
    size_t room = (n + GW_BLOCK - 1) / GW_BLOCK * GW_BLOCK;
    uint32_t *words;
    gw_block *block;
    GW_TRY(gw_scratch_take(&t->scratch, "threshold", 2 * room * sizeof *words, &words, &block));
    gw_kept kept = {.at = words, .bits = words + room};
    threshold_pick(t, x, e, n, &kept);
    *len = gw_sparse_encode(&kept, out);
    if (e)
        gw_kept_take(&kept, e);
    gw_scratch_give(&t->scratch, block);
    return GW_OK;
}

static gw_err threshold_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                               size_t cap, size_t *len) {
    (void)turn, (void)cap;
    return threshold_encode_either(self, x, NULL, n, out, len);
}

static gw_err threshold_encode_feedback(const void *self, gw_turn turn, const float *x, float *e,
                                        size_t n, void *out, size_t cap, size_t *len) {
    (void)turn, (void)cap;
    return threshold_encode_either(self, x, e, n, out, len);
}

static gw_err threshold_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                               gw_into into) {
    (void)self;
    return gw_sparse_decode("threshold", in, len, y, n, 0, n, into);
}

static gw_err threshold_list(const void *self, const void *in, size_t len, size_t n,
                             gw_elements *out) {
    (void)self;
    return gw_sparse_list("threshold", in, len, n, 0, n, out);
}

const gw_codec_ops gw_codec_threshold = {
    .head = {GW_CODEC_ABI, "threshold",
             "elements of at least a given magnitude (40 bits per element kept)", threshold_opts},
    .caps = GW_CODEC_SPARSE | GW_CODEC_BIASED,
    .open = threshold_open,
    .close = threshold_close,
    .bound = threshold_bound,
    .encode = threshold_encode,
    .encode_feedback = threshold_encode_feedback,
    .decode = threshold_decode,
    .list = threshold_list,
};
