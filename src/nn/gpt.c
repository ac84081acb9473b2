/* gpt: a transformer that tells the next token (Radford et al., "Language models are unsupervised
 * multitask learners", 2019). Its units: the embedding; of each layer attention and a perceptron,
 * each y = x + f(norm(x)); a norm and the head. Rows of a unit are whole texts of `context` tokens,
 * token behind token.
 *
 * Tensor ranks share attention by heads, a perceptron by its hidden neurons, so that one sum over
 * ranks forward and one backward serve a unit, and the head by classes (Shoeybi et al.,
 * "Megatron-LM", 2019); embeddings and what is as wide as a token by columns. */
#include "nn/elementwise.h"
#include "nn/gpt_plan.h"
#include "nn/tokens.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* ---- kernels over threads, which share rows or columns ---- */

static int gpt_threads(size_t rows, int width) {
    return rows * (size_t)width < GW_PARALLEL_ELEMENTS ? 1 : omp_get_max_threads();
}

/* `gain` and the biases behind it are whole. */
static void gpt_norm(const gw_gpt_form *f, const float *gain, const float *x, const gw_gpt_kept *k,
                     size_t rows) {
    size_t c = (size_t)f->c;
    int threads = gpt_threads(rows, f->c);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)rows, part, threads);
        gw_tokens_norm(k->norm + s.off * c, k->told + 2 * s.off, x + s.off * c, gain, gain + c, s.n,
                       f->c);
    }
}

/* dx = the gradient through the norm + `above`. */
static void gpt_norm_back(const gw_gpt_form *f, const float *gain, const float *x,
                          const gw_gpt_kept *k, float *dx, const float *above, size_t rows) {
    size_t c = (size_t)f->c;
    int threads = gpt_threads(rows, f->c);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)rows, part, threads);
        gw_tokens_norm_back(dx + s.off * c, above + s.off * c, k->d_norm + s.off * c, x + s.off * c,
                            k->told + 2 * s.off, gain, s.n, f->c);
    }
}

/* Of the columns that this rank holds. */
static void gpt_norm_columns(const gw_gpt_form *f, float *grads, const float *x,
                             const gw_gpt_kept *k, size_t rows) {
    int own = (int)f->own.n, threads = gpt_threads(rows, own);
    const float *d = k->d_norm + f->own.off;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part(own, part, threads);
        gw_tokens_norm_columns(grads, grads + own, d, x + f->own.off, k->told, rows, f->c,
                               (int)s.off, (int)gw_span_end(s));
    }
}

/* Of n columns of rows of `width`. */
static void gpt_columns(float *sum, const float *x, size_t rows, int width, int n) {
    int threads = gpt_threads(rows, n);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part(n, part, threads);
        gw_tokens_columns(sum, x, rows, width, (int)s.off, (int)gw_span_end(s));
    }
}

/* The columns of y that this rank holds += bias. */
static void gpt_add_own(const gw_gpt_form *f, float *y, const float *bias, size_t rows) {
    size_t c = (size_t)f->c;
    int threads = gpt_threads(rows, (int)f->own.n);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < f->own.n; j++)
            y[i * c + f->own.off + j] += bias[j];
}

static void gpt_fill(float *y, const float *bias, size_t rows, int width) {
    int threads = gpt_threads(rows, width);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)rows, part, threads);
        gw_tokens_fill(y + s.off * (size_t)width, bias, s.n, width);
    }
}

static void gpt_gelu(float *y, float *x, const float *bias, size_t rows, int width) {
    int threads = gpt_threads(rows, width);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)rows, part, threads);
        gw_tokens_gelu(y + s.off * (size_t)width, x + s.off * (size_t)width, bias, s.n, width);
    }
}

/* d *= slope, and its sums over rows onto `sum`. */
static void gpt_slope(float *d, const float *slope, float *sum, size_t rows, int width) {
    int threads = gpt_threads(rows, width);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part(width, part, threads);
        gw_tokens_slope(d, slope, sum, rows, width, (int)s.off, (int)gw_span_end(s));
    }
}

/* ---- attention ---- */

/* Of a head of a text: q, k and v are columns of `wide`, d each. */
static void gpt_attend_one(const gw_gpt_form *f, const gw_gpt_kept *k, size_t text, size_t head) {
    int t = (int)f->t, c = f->inner, d = c / (int)f->heads;
    const float *q = k->wide + text * f->t * (size_t)f->wide + 3 * head * (size_t)d;
    float *score = k->scores + (text * f->heads + head) * f->t * f->t;
    float *mixed = k->inner + text * f->t * (size_t)c + head * (size_t)d;
    gw_gemm(false, true, t, t, d, q, f->wide, q + d, f->wide, 0, score, t);
    gw_tokens_attend(score, 1 / sqrtf((float)d), t);
    gw_gemm(false, false, t, d, t, score, t, q + 2 * d, f->wide, 0, mixed, c);
}

/* From d_inner to d_wide. */
static void gpt_attend_one_back(const gw_gpt_form *f, const gw_gpt_kept *k, size_t text,
                                size_t head) {
    int t = (int)f->t, c = f->inner, d = c / (int)f->heads, wide = f->wide;
    size_t at = text * f->t * (size_t)wide + 3 * head * (size_t)d;
    size_t square = (text * f->heads + head) * f->t * f->t;
    const float *q = k->wide + at, *weight = k->scores + square;
    const float *dm = k->d_inner + text * f->t * (size_t)c + head * (size_t)d;
    float *dq = k->d_wide + at, *ds = k->d_scores + square;
    gw_gemm(true, false, t, d, t, weight, t, dm, c, 0, dq + 2 * d, wide);
    gw_gemm(false, true, t, t, d, dm, c, q + 2 * d, wide, 0, ds, t);
    gw_tokens_attend_back(ds, weight, 1 / sqrtf((float)d), t);
    gw_gemm(false, false, t, d, t, ds, t, q + d, wide, 0, dq, wide);
    gw_gemm(true, false, t, d, t, ds, t, q, wide, 0, dq + d, wide);
}

static void gpt_attend(const gw_gpt_form *f, const gw_gpt_kept *k, size_t texts,
                       void (*one)(const gw_gpt_form *, const gw_gpt_kept *, size_t, size_t)) {
    int threads = gpt_threads(texts * f->t, f->inner);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t i = 0; i < texts * f->heads; i++)
        one(f, k, i / f->heads, i % f->heads);
}

/* ---- the walk's calls ---- */

/* Other ranks' columns are 0. */
static void gpt_embed(const gw_gpt_form *f, const float *w, const gw_unit_rows *r, int classes) {
    size_t c = (size_t)f->c, own = f->own.n, rows = (size_t)r->n * f->t;
    const float *place = w + (size_t)classes * own;
    int threads = gpt_threads(rows, f->c);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)rows, part, threads);
        for (size_t i = s.off; i < gw_span_end(s); i++) {
            const float *word = w + (size_t)r->x[i] * own, *at = place + i % f->t * own;
            float *y = r->y + i * c;
            if (own < c)
                memset(y, 0, c * sizeof *y);
            for (size_t j = 0; j < own; j++)
                y[f->own.off + j] = word[j] + at[j];
        }
    }
}

static void gpt_embed_weights(const gw_gpt_form *f, float *grads, const gw_unit_rows *r,
                              int classes) {
    size_t c = (size_t)f->c, own = f->own.n, rows = (size_t)r->n * f->t;
    float *place = grads + (size_t)classes * own;
    int threads = gpt_threads(rows, (int)own);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)own, part, threads);
        for (size_t i = 0; i < rows; i++) {
            float *word = grads + (size_t)r->x[i] * own, *at = place + i % f->t * own;
            const float *dy = r->dy + i * c + f->own.off;
            for (size_t j = s.off; j < gw_span_end(s); j++) {
                word[j] += dy[j];
                at[j] += dy[j];
            }
        }
    }
}

/* A norm's gains, and its biases behind them. */
static const float *gpt_gain(const float *w, const gw_unit_rows *r) {
    return r->gathered ? r->gathered : w;
}

static void gpt_product(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                        const gw_unit_rows *r) {
    gw_gpt_form f = gw_gpt_form_of(spec, u);
    gw_gpt_kept k = gw_gpt_kept_of(spec, u, r);
    gw_gpt_kind is = gw_gpt_kind_of(spec, u->number);
    int tokens = r->n * (int)f.t, c = f.c;
    if (is == GW_GPT_EMBEDDING) {
        gpt_embed(&f, w, r, spec->classes);
        return;
    }
    float *wide = is == GW_GPT_HEAD ? r->y : k.wide;
    gpt_norm(&f, gpt_gain(w, r), r->x, &k, (size_t)tokens);
    const float *bias = w + gw_gpt_at(spec, u, GW_GPT_WIDE_BIAS);
    if (is == GW_GPT_ATTENTION)
        gpt_fill(wide, bias, (size_t)tokens, f.wide);
    gw_gemm(false, false, tokens, f.wide, c, k.norm, c, w + gw_gpt_at(spec, u, GW_GPT_WIDE), f.wide,
            is == GW_GPT_ATTENTION ? 1 : 0, wide, f.wide);
    if (is == GW_GPT_HEAD)
        return;
    if (is == GW_GPT_ATTENTION)
        gpt_attend(&f, &k, (size_t)r->n, gpt_attend_one);
    else
        gpt_gelu(k.inner, k.wide, bias, (size_t)tokens, f.wide);
    gw_gemm(false, false, tokens, c, f.inner, k.inner, f.inner, w + gw_gpt_at(spec, u, GW_GPT_BACK),
            c, 0, r->y, c);
    if (u->parts > 1)
        gpt_add_own(&f, r->y, w + gw_gpt_at(spec, u, GW_GPT_BACK_BIAS), (size_t)tokens);
}

/* Of what two products and a sum over tensor ranks, with their biases, lead back to. */
static void gpt_transfer(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                         const gw_unit_rows *r) {
    gw_gpt_form f = gw_gpt_form_of(spec, u);
    size_t rows = (size_t)r->n * f.t, c = (size_t)f.c;
    gw_gpt_kind is = gw_gpt_kind_of(spec, u->number);
    if (is == GW_GPT_EMBEDDING || is == GW_GPT_HEAD)
        return;
    const float *bias = u->parts > 1 ? r->zeros : w + gw_gpt_at(spec, u, GW_GPT_BACK_BIAS);
    int threads = gpt_threads(rows, f.c);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)rows, part, threads);
        gw_tokens_add(r->y + s.off * c, r->x + s.off * c, bias, s.n, f.c);
    }
}

/* d_inner and d_wide from dy; the first product's biases get their gradient. */
static void gpt_enter_inner(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                            float *d_bias, const gw_unit_rows *r, const gw_gpt_form *f,
                            const gw_gpt_kept *k) {
    int tokens = r->n * (int)f->t;
    gw_gemm(false, true, tokens, f->inner, f->c, r->dy, f->c, w + gw_gpt_at(spec, u, GW_GPT_BACK),
            f->c, 0, k->d_inner, f->inner);
    if (gw_gpt_kind_of(spec, u->number) == GW_GPT_ATTENTION) {
        gpt_attend(f, k, (size_t)r->n, gpt_attend_one_back);
        gpt_columns(d_bias, k->d_wide, (size_t)tokens, f->wide, f->wide);
    } else {
        gpt_slope(k->d_inner, k->wide, d_bias, (size_t)tokens, f->wide);
    }
}

/* The gradient behind the first product. */
static const float *gpt_d_wide(const gw_model_spec *spec, const gw_shard_layer *u,
                               const gw_unit_rows *r, const gw_gpt_kept *k) {
    switch (gw_gpt_kind_of(spec, u->number)) {
    case GW_GPT_ATTENTION: return k->d_wide;
    case GW_GPT_PERCEPTRON: return k->d_inner;
    default: return r->dy;
    }
}

/* The gradient of the norm's outputs; with tensor ranks a term of it. */
static void gpt_d_norm(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                       const gw_unit_rows *r, const gw_gpt_kept *k, float *d_norm) {
    gw_gpt_form f = gw_gpt_form_of(spec, u);
    gw_gemm(false, true, r->n * (int)f.t, f.c, f.wide, gpt_d_wide(spec, u, r, k), f.wide,
            w + gw_gpt_at(spec, u, GW_GPT_WIDE), f.wide, 0, d_norm, f.c);
}

static void gpt_enter(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                      float *grads, bool add, const gw_unit_rows *r) {
    gw_gpt_form f = gw_gpt_form_of(spec, u);
    gw_gpt_kept k = gw_gpt_kept_of(spec, u, r);
    gw_gpt_kind is = gw_gpt_kind_of(spec, u->number);
    int tokens = r->n * (int)f.t;
    if (is == GW_GPT_EMBEDDING)
        return;
    float *wide_bias = grads + gw_gpt_at(spec, u, GW_GPT_WIDE_BIAS),
          *back_bias = grads + gw_gpt_at(spec, u, GW_GPT_BACK_BIAS);
    if (!add) {
        memset(grads, 0, 2 * f.own.n * sizeof *grads);
        if (is != GW_GPT_HEAD) {
            memset(wide_bias, 0, (size_t)f.wide * sizeof *grads);
            memset(back_bias, 0, f.own.n * sizeof *grads);
        }
    }
    if (is != GW_GPT_HEAD) {
        gpt_enter_inner(spec, u, w, wide_bias, r, &f, &k);
        gpt_columns(back_bias, r->dy + f.own.off, (size_t)tokens, f.c, (int)f.own.n);
    }
    if (u->parts == 1) { /* else when it is the sum */
        gpt_d_norm(spec, u, w, r, &k, k.d_norm);
        gpt_norm_columns(&f, grads, r->x, &k, (size_t)tokens);
    }
}

/* dx out of d_norm and, but for the head's, dy. */
static void gpt_through_norm(const gw_model_spec *spec, const gw_shard_layer *u, const float *gain,
                             const gw_unit_rows *r, const gw_gpt_kept *k) {
    gw_gpt_form f = gw_gpt_form_of(spec, u);
    size_t rows = (size_t)r->n * f.t;
    bool head = gw_gpt_kind_of(spec, u->number) == GW_GPT_HEAD;
    if (head)
        memset(r->dx, 0, rows * (size_t)f.c * sizeof *r->dx);
    gpt_norm_back(&f, gain, r->x, k, r->dx, head ? r->dx : r->dy, rows);
}

static void gpt_descend(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                        const gw_unit_rows *r) {
    gw_gpt_kept k = gw_gpt_kept_of(spec, u, r);
    if (u->parts > 1)
        gpt_d_norm(spec, u, w, r, &k, r->dx);
    else
        gpt_through_norm(spec, u, w, r, &k);
}

static void gpt_arrive(const gw_model_spec *spec, const gw_shard_layer *u, float *grads,
                       const gw_unit_rows *r) {
    gw_gpt_form f = gw_gpt_form_of(spec, u);
    gw_gpt_kept k = gw_gpt_kept_of(spec, u, r);
    size_t rows = (size_t)r->n * f.t;
    memcpy(k.d_norm, r->dx, rows * (size_t)f.c * sizeof *r->dx);
    gpt_norm_columns(&f, grads, r->x, &k, rows);
    gpt_through_norm(spec, u, r->gathered, r, &k);
}

static void gpt_weights(const gw_model_spec *spec, const gw_shard_layer *u, float *grads, bool add,
                        const gw_unit_rows *r) {
    gw_gpt_form f = gw_gpt_form_of(spec, u);
    gw_gpt_kept k = gw_gpt_kept_of(spec, u, r);
    gw_gpt_kind is = gw_gpt_kind_of(spec, u->number);
    int tokens = r->n * (int)f.t;
    if (is == GW_GPT_EMBEDDING) {
        if (!add)
            memset(grads, 0, ((size_t)spec->classes + f.t) * f.own.n * sizeof *grads);
        gpt_embed_weights(&f, grads, r, spec->classes);
        return;
    }
    float beta = add ? 1 : 0;
    gw_gemm(true, false, f.c, f.wide, tokens, k.norm, f.c, gpt_d_wide(spec, u, r, &k), f.wide, beta,
            grads + gw_gpt_at(spec, u, GW_GPT_WIDE), f.wide);
    if (is != GW_GPT_HEAD)
        gw_gemm(true, false, f.inner, f.c, tokens, k.inner, f.inner, r->dy, f.c, beta,
                grads + gw_gpt_at(spec, u, GW_GPT_BACK), f.c);
}

const gw_model_ops gw_model_gpt = {
    .head = {GW_MODEL_ABI, "gpt", "a transformer that tells the next character of --data text:FILE",
             gw_gpt_opts},
    .traits = GW_MODEL_SHARES,
    .open = gw_gpt_open,
    .units = gw_gpt_units,
    .unit = gw_gpt_unit,
    .products = gw_gpt_products,
    .initialise = gw_gpt_initialise,
    .product = gpt_product,
    .transfer = gpt_transfer,
    .enter = gpt_enter,
    .descend = gpt_descend,
    .weights = gpt_weights,
    .arrive = gpt_arrive,
};
