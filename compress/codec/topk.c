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
 * bytes: 0.43 bits an element at ratio = 0.01. With q = (1 - ratio)^255 the expected size of
 * independent elements is 4 + k (5 + q / (1 - q)), at least 0.93 of that. */
#include "compress/ratio.h"
#include "compress/sparse_wire.h"

typedef struct topk {
    gw_sparse s; /* first */
    gw_ratio ratio;
} topk;

static const gw_opt topk_opts[] = {GW_RATIO_OPTS, {0}};

static gw_err topk_select(gw_sparse *s, gw_turn turn, const float *x, float *e, size_t n,
                          gw_kept *kept, gw_block **block) {
    size_t k = gw_ratio_kept(&((topk *)s)->ratio, turn.step, n);
    uint32_t *words;
    GW_TRY(gw_scratch_take(&s->scratch, s->name, gw_select_words(n, k) * sizeof *words, &words,
                           block));
    gw_select_largest(s->kernels, x, e, n, k, words, kept);
    return GW_OK;
}

static size_t topk_least(const gw_sparse *s, size_t n) {
    return gw_ratio_least(&((const topk *)s)->ratio, n);
}

static size_t topk_most(const gw_sparse *s, size_t n) {
    return gw_ratio_most(&((const topk *)s)->ratio, n);
}

static gw_err topk_open(void **self, const gw_args *args) {
    GW_TRY(gw_sparse_open(self, "topk", sizeof(topk)));
    topk *t = *self;
    t->s.select = topk_select;
    t->s.least = topk_least;
    t->s.most = topk_most;
    t->ratio = gw_ratio_read(args);
    return GW_OK;
}

/* During the warm-up k changes. */
static unsigned topk_traits(const void *self) {
    unsigned caps = GW_CODEC_SPARSE | GW_CODEC_BIASED;
    return gw_ratio_steady(&((const topk *)self)->ratio) ? caps | GW_CODEC_TIGHT
                                                         : caps | GW_CODEC_WARMS;
}

const gw_codec_ops gw_codec_topk = {
    .head = {GW_CODEC_ABI, "topk", "the largest elements (0.43 bits per element at ratio 0.01)",
             topk_opts},
    .caps = GW_CODEC_SPARSE | GW_CODEC_BIASED,
    .open = topk_open,
    .close = gw_sparse_close,
    .traits = topk_traits,
    .bound = gw_sparse_bound,
    .encode = gw_sparse_encode,
    .encode_feedback = gw_sparse_encode_feedback,
    .decode = gw_sparse_decode,
    .list = gw_sparse_list,
};
