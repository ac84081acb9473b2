/* topk: the k elements largest in magnitude, exactly, as indices and values. A. F. Aji, K.
 * Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017; the threshold
 * guess from a sample and the warm-up after Y. Lin, S. Han, H. Mao, Y. Wang, W. J. Dally, "Deep
 * Gradient Compression", ICLR 2018, but the guess is never trusted (select.h).
 *
 *   k = max(1, floor(ratio * n + 1/2)), at most n; 0 of an empty span; more during the
 *       warm-up (ratio.h)
 *
 * Among equal magnitudes the lower index wins, so the bytes depend on the span alone, and -x
 * keeps the same elements as x. A NaN counts as larger than infinity, so it is kept and shows at
 * once. Zeros are kept only if fewer than k elements are nonzero. Biased: it needs error feedback.
 *
 * Wire format (sparse_wire.h): k, a byte a gap, k binary32; at most 4 + 5 k + floor((n - k) / 255)
 * bytes: 0.43 bits an element at ratio = 0.01. */
#include "base/mem.h"
#include "compress/ratio.h"
#include "compress/scratch.h"
#include "compress/sparse_wire.h"

#include <stdlib.h>

typedef struct topk {
    gw_ratio ratio;
    const gw_pick_kernels *kernels;
    gw_scratch scratch;
} topk;

static const gw_opt topk_opts[] = {GW_RATIO_OPTS, {0}};

static gw_err topk_open(void **self, const gw_args *args) {
    const gw_pick_kernels *kernels;
    GW_TRY(gw_pick_open(&kernels));
    topk *t = NULL;
    GW_TRY(gw_alloc(&t, 1, sizeof *t));
    t->ratio = gw_ratio_read(args);
    t->kernels = kernels;
    *self = t;
    return GW_OK;
}

static void topk_close(void *self) {
    topk *t = self;
    if (t)
        gw_scratch_clear(&t->scratch);
    free(t);
}

static size_t topk_bound(const void *self, size_t n) {
    const topk *t = self;
    return gw_sparse_bound(n, gw_ratio_most(&t->ratio, n));
}

/* Encode x, or e += x; then subtract what is kept from e. */
static gw_err topk_encode_either(const void *self, gw_turn turn, const float *x, float *e, size_t n,
                                 void *out, size_t *len) {
    topk *t = (topk *)self; /* only its scratch changes */
    *len = 0;
    if (n == 0)
        return GW_OK;
    if (n > GW_SELECT_MOST)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "topk: a span of %zu floats is too long for 32-bit indices: use buckets", n);
    size_t k = gw_ratio_kept(&t->ratio, turn.step, n);
    uint32_t *words;
    gw_block *block;
    gw_kept kept;
    GW_TRY(gw_scratch_take(&t->scratch, "topk", gw_select_words(n, k) * sizeof *words, &words,
                           &block));
    gw_select_largest(t->kernels, x, e, n, k, words, &kept);
    *len = gw_sparse_encode(&kept, out);
    if (e)
        gw_kept_take(&kept, e);
    gw_scratch_give(&t->scratch, block);
    return GW_OK;
}

static gw_err topk_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                          size_t cap, size_t *len) {
    (void)cap;
    return topk_encode_either(self, turn, x, NULL, n, out, len);
}

static gw_err topk_encode_feedback(const void *self, gw_turn turn, const float *x, float *e,
                                   size_t n, void *out, size_t cap, size_t *len) {
    (void)cap;
    return topk_encode_either(self, turn, x, e, n, out, len);
}

static gw_err topk_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                          gw_into into) {
    const topk *t = self;
    return gw_sparse_decode("topk", in, len, y, n, gw_ratio_least(&t->ratio, n),
                            gw_ratio_most(&t->ratio, n), into);
}

static gw_err topk_list(const void *self, const void *in, size_t len, size_t n, gw_elements *out) {
    const topk *t = self;
    return gw_sparse_list("topk", in, len, n, gw_ratio_least(&t->ratio, n),
                          gw_ratio_most(&t->ratio, n), out);
}

const gw_codec_ops gw_codec_topk = {
    .head = {GW_CODEC_ABI, "topk", "the largest elements (0.43 bits per element at ratio 0.01)",
             topk_opts},
    .caps = GW_CODEC_SPARSE | GW_CODEC_BIASED,
    .open = topk_open,
    .close = topk_close,
    .bound = topk_bound,
    .encode = topk_encode,
    .encode_feedback = topk_encode_feedback,
    .decode = topk_decode,
    .list = topk_list,
};
