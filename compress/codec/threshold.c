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
#include "compress/sparse_wire.h"

enum { CHUNK = 4096 }; /* floats: still in L1 when their values are read */

typedef struct threshold {
    gw_sparse s; /* first */
    uint32_t least;
} threshold;

static const gw_opt threshold_opts[] = {{"value", GW_OPT_REAL, "0.01", 0, 0x1.fffffep127, NULL,
                                         NULL, "keep elements of at least this magnitude"},
                                        {0}};

static gw_err threshold_select(gw_sparse *s, gw_turn turn, const float *x, float *e, size_t n,
                               gw_kept *kept, gw_block **block) {
    (void)turn;
    size_t room = (n + GW_BLOCK - 1) / GW_BLOCK * GW_BLOCK;
    uint32_t *words, least = ((const threshold *)s)->least;
    const float *from = e ? e : x;
    GW_TRY(gw_scratch_take(&s->scratch, s->name, 2 * room * sizeof *words, &words, block));
    *kept = (gw_kept){.at = words, .bits = words + room};
    for (size_t lo = 0; lo < n; lo += CHUNK) {
        size_t m = n - lo < CHUNK ? n - lo : CHUNK, had = kept->n;
        kept->n += gw_pick_chunk(s->kernels, x + lo, e ? e + lo : NULL, m, least, (uint32_t)lo,
                                 kept->at + had);
        for (size_t i = had; i < kept->n; i++)
            kept->bits[i] = gw_float_bits(from[kept->at[i]]);
    }
    return GW_OK;
}

static size_t threshold_least(const gw_sparse *s, size_t n) {
    (void)s, (void)n;
    return 0;
}

static size_t threshold_most(const gw_sparse *s, size_t n) {
    (void)s;
    return n;
}

static gw_err threshold_open(void **self, const gw_args *args) {
    GW_TRY(gw_sparse_open(self, "threshold", sizeof(threshold)));
    threshold *t = *self;
    t->s.select = threshold_select;
    t->s.least = threshold_least;
    t->s.most = threshold_most;
    t->least = gw_magnitude(gw_float_bits((float)gw_args_real(args, "value")));
    return GW_OK;
}

const gw_codec_ops gw_codec_threshold = {
    .head = {GW_CODEC_ABI, "threshold",
             "elements of at least a given magnitude (40 bits per element kept)", threshold_opts},
    .caps = GW_CODEC_SPARSE | GW_CODEC_BIASED,
    .open = threshold_open,
    .close = gw_sparse_close,
    .bound = gw_sparse_bound,
    .encode = gw_sparse_encode,
    .encode_feedback = gw_sparse_encode_feedback,
    .decode = gw_sparse_decode,
    .list = gw_sparse_list,
};
