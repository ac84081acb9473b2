/* gpt: a transformer that tells the next token (Radford et al., "Language models are unsupervised
 * multitask learners", 2019). Its units: the embedding; of each layer attention and a perceptron,
 * each y = x + f(norm(x)); a norm and the head. Rows of a unit are whole texts of `context` tokens,
 * token behind token.
 *
 * Tensor ranks share attention by heads, a perceptron by its hidden neurons, so that one sum over
 * ranks forward and one backward serve a unit, and the head by classes (Shoeybi et al.,
 * "Megatron-LM", 2019); embeddings and what is as wide as a token by columns. */
#include "base/rng.h"
#include "nn/elementwise.h"
#include "nn/shard.h"
#include "nn/tokens.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { WIDEN = 4 }; /* the perceptron's hidden neurons, of the width */

typedef struct self {
    int64_t layers, heads, width;
} self;

/* ---- units: their shapes, of the options, and a rank's part of them ---- */

typedef enum kind { EMBEDDING, ATTENTION, PERCEPTRON, HEAD } kind;

/* A unit's tensors in the arena's order. All but the embedding have a norm, the product behind it
 * with its biases, and the one that leads back. The head has no biases and none that leads back.
 * Columns of attention's first product are each head's q, k and v. */
enum { GAIN, BIAS, WIDE, WIDE_BIAS, BACK, BACK_BIAS, TENSORS };
enum { TABLE, PLACE };

/* Sizes of a rank's part of a unit. */
typedef struct form {
    int c, wide,
        inner;   /* floats of a token: of a row, behind the first product, before the second */
    gw_span own; /* of a row, what a rank holds of vectors and embeddings */
    size_t t;    /* tokens of a text */
    size_t heads;
    size_t scores; /* floats of a text's attention */
} form;

/* What the forward pass leaves, from a call's first row on. d_: gradients, which `enter` leaves
 * for `weights`. */
typedef struct kept {
    float *told, *norm, *wide, *inner, *scores, *d_wide, *d_inner, *d_norm, *d_scores;
} kept;

static const self *gpt_self(const gw_model_spec *spec) {
    return (const self *)spec->self;
}

static gw_err gpt_open(gw_model_spec *spec, const gw_args *args) {
    self *me = (self *)spec->self;
    *me =
        (self){gw_args_int(args, "layers"), gw_args_int(args, "heads"), gw_args_int(args, "width")};
    spec->context = (int)gw_args_int(args, "context");
    if (me->width % me->heads != 0)
        return gw_fail(GW_ERR_USAGE, "gpt: width=%lld must be a multiple of heads=%lld",
                       (long long)me->width, (long long)me->heads);
    return GW_OK;
}

static int gpt_units(const gw_model_spec *spec) {
    return 2 + 2 * (int)gpt_self(spec)->layers;
}

static kind gpt_kind_of(const gw_model_spec *spec, int l) {
    return l == 0 ? EMBEDDING : l + 1 == gpt_units(spec) ? HEAD : l % 2 ? ATTENTION : PERCEPTRON;
}

static form gpt_form(const gw_model_spec *spec, int l, int part, int parts) {
    int c = (int)gpt_self(spec)->width, heads = (int)gpt_self(spec)->heads, t = spec->context;
    form f = {.c = c, .own = gw_share_part(c, part, parts), .t = (size_t)t};
    switch (gpt_kind_of(spec, l)) {
    case EMBEDDING: break;
    case ATTENTION:
        f.heads = gw_span_part((gw_span){0, (size_t)heads}, part, parts).n;
        f.inner = (int)f.heads * (c / heads);
        f.wide = 3 * f.inner;
        f.scores = f.heads * f.t * f.t;
        break;
    case PERCEPTRON: f.wide = f.inner = (int)gw_share_part(WIDEN * c, part, parts).n; break;
    case HEAD: f.wide = (int)gw_share_part(spec->classes, part, parts).n; break;
    }
    return f;
}

static form gpt_form_of(const gw_model_spec *spec, const gw_shard_layer *u) {
    return gpt_form(spec, u->number, u->part, u->parts);
}

/* Floats of a row; with `base`, where the areas of `room` rows are, from row `first` on. */
static size_t gpt_keep(const form *f, kind is, float *base, size_t room, size_t first, kept *k) {
    size_t c = f->t * (size_t)f->c, at = 0;
    size_t wide = is == HEAD ? 0 : f->t * (size_t)f->wide, inner = f->t * (size_t)f->inner;
    const size_t floats[] = {2 * f->t, c, wide,     inner, f->scores, is == ATTENTION ? wide : 0,
                             inner,    c, f->scores};
    float **const area[] = {&k->told,   &k->norm,    &k->wide,   &k->inner,   &k->scores,
                            &k->d_wide, &k->d_inner, &k->d_norm, &k->d_scores};
    for (size_t i = 0; i < sizeof floats / sizeof *floats && is != EMBEDDING; i++) {
        *area[i] = base + room * at + first * floats[i];
        at += floats[i];
    }
    return at;
}

static kept gpt_kept_of(const gw_model_spec *spec, const gw_shard_layer *u, const gw_unit_rows *r) {
    kept k = {0};
    form f = gpt_form_of(spec, u);
    gpt_keep(&f, gpt_kind_of(spec, u->number), r->kept, (size_t)r->room, (size_t)r->first, &k);
    return k;
}

static gw_unit gpt_unit(const gw_model_spec *spec, int l) {
    form f = gpt_form(spec, l, 0, 1);
    kind is = gpt_kind_of(spec, l);
    kept none = {0};
    int row = (int)f.t * f.c, heads = is == ATTENTION ? (int)f.heads : 0;
    gw_unit u = {.in = row,
                 .out = row,
                 .cut = is == HEAD ? GW_CUT_COLUMNS : GW_CUT_BOTH,
                 .kept = gw_model_spec_kept(gpt_keep(&f, is, NULL, 0, 0, &none))};
    for (int i = 0; i < TENSORS; i++)
        u.tensor[i].cut = i == BACK ? GW_CUT_ROWS : GW_CUT_COLUMNS;
    switch (is) {
    case EMBEDDING:
        u.in = (int)f.t;
        u.n_tensors = 2;
        u.tensor[TABLE].rows = spec->classes;
        u.tensor[PLACE].rows = (int)f.t;
        u.tensor[TABLE].cols = u.tensor[PLACE].cols = f.c;
        return u;
    case HEAD: u.out = (int)f.t * spec->classes; break;
    default: break;
    }
    u.n_tensors = is == HEAD ? WIDE + 1 : TENSORS;
    for (int i = 0; i < TENSORS; i++)
        u.tensor[i].rows = 1;
    u.tensor[GAIN].gathered = u.tensor[BIAS].gathered = true;
    u.tensor[WIDE].pieces = u.tensor[WIDE_BIAS].pieces = u.tensor[BACK].pieces = heads;
    u.tensor[WIDE].rows = u.tensor[GAIN].cols = u.tensor[BIAS].cols = f.c;
    u.tensor[WIDE].cols = u.tensor[WIDE_BIAS].cols = f.wide;
    u.tensor[BACK].rows = f.inner;
    u.tensor[BACK].cols = u.tensor[BACK_BIAS].cols = f.c;
    return u;
}

/* Where a rank's part of a tensor begins among the unit's parameters. */
static size_t gpt_at(const gw_model_spec *spec, const gw_shard_layer *u, int tensor) {
    gw_unit unit = gpt_unit(spec, u->number);
    size_t at = 0;
    for (int i = 0; i < tensor; i++) {
        gw_region r = gw_unit_region(&unit, i, u->part, u->parts);
        at += r.rows.n * r.cols.n;
    }
    return at;
}

/* Attention's own products, of a head each, are not among them. */
static int gpt_products(const gw_model_spec *spec, const gw_shard_layer *u, int rows,
                        gw_product out[GW_UNIT_PRODUCTS]) {
    form f = gpt_form_of(spec, u);
    int n = 0, tokens = rows * (int)f.t;
    const int sides[][2] = {{f.c, f.wide}, {f.inner, f.c}};
    for (int i = 0; i < 2 && f.wide > 0; i++) {
        int in = sides[i][0], width = sides[i][1];
        if (in == 0)
            continue;
        out[n++] = (gw_product){.m = tokens, .n = width, .k = in};
        out[n++] = (gw_product){.ta = true, .m = in, .n = width, .k = tokens};
        out[n++] = (gw_product){.tb = true, .m = tokens, .n = in, .k = width};
    }
    return n;
}

/* Normal weights of deviation 0.02, less for what is added to x; gains 1. A weight depends on its
 * place in the whole model alone. */
static void gpt_initialise(const gw_model_spec *spec, const gw_shard_layer *u, float *w) {
    gw_unit unit = gpt_unit(spec, u->number);
    uint64_t key = gw_rng_key(gw_rng_key(spec->seed, 0x67707469), (uint64_t)u->number);
    bool embeds = gpt_kind_of(spec, u->number) == EMBEDDING;
    for (int i = 0; i < unit.n_tensors; i++) {
        gw_region own_part = gw_unit_region(&unit, i, u->part, u->parts);
        size_t stride = (size_t)unit.tensor[i].cols, cols = own_part.cols.n;
        size_t first = own_part.rows.off * stride + own_part.cols.off, n = own_part.rows.n * cols;
        double sigma =
            !embeds && i == BACK ? 0.02 / sqrt(2.0 * (double)gpt_self(spec)->layers) : 0.02;
        uint64_t own = gw_rng_key(key, (uint64_t)i);
#pragma omp parallel for schedule(static)
        for (size_t j = 0; j < n; j++) {
            size_t place = first + j / cols * stride + j % cols;
            w[j] = embeds || unit.tensor[i].rows > 1 ? (float)(sigma * gw_rng_normal(own, place))
                                                     : (float)(i == GAIN);
        }
        w += n;
    }
}

static const gw_opt gpt_opts[] = {
    {"layers", GW_OPT_INT, "4", 1, (GW_MAX_LAYERS - 2) / 2, NULL, "N",
     "blocks of attention and perceptron"},
    {"heads", GW_OPT_INT, "4", 1, 256, NULL, "N", "attention heads, which share the width"},
    {"width", GW_OPT_INT, "128", 1, 1 << 14, NULL, "N", "floats per token"},
    {"context", GW_OPT_INT, "64", 1, 4096, NULL, "N", "tokens per sample"},
    {0}};

/* ---- kernels over threads, which share rows or columns ---- */

static int gpt_threads(size_t rows, int width) {
    return rows * (size_t)width < GW_PARALLEL_ELEMENTS ? 1 : omp_get_max_threads();
}

#define GPT_THREADS                                                                                \
    _Pragma("omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)")

/* Does `work` on each of the threads that rows x width floats are worth, `s` being its part of `n`
 * rows or columns. */
#define GPT_SHARE(n, rows, width, work)                                                            \
    do {                                                                                           \
        int threads = gpt_threads(rows, width);                                                    \
        GPT_THREADS for (int part = 0; part < threads; part++) {                                   \
            gw_span s = gw_share_part((int)(n), part, threads);                                    \
            work;                                                                                  \
        }                                                                                          \
    } while (0)

/* Of the columns that this rank holds. */
static void gpt_norm_columns(const form *f, float *grads, const float *x, const kept *k,
                             size_t rows) {
    int own = (int)f->own.n;
    const float *d = k->d_norm + f->own.off;
    GPT_SHARE(own, rows, own,
              gw_tokens_norm_columns(grads, grads + own, d, x + f->own.off, k->told, rows, f->c,
                                     (int)s.off, (int)gw_span_end(s)));
}

/* ---- attention ---- */

/* Of a head of a text: q, k and v are columns of `wide`, d each. */
static void gpt_attend_one(const form *f, const kept *k, size_t text, size_t head) {
    int t = (int)f->t, c = f->inner, d = c / (int)f->heads;
    const float *q = k->wide + text * f->t * (size_t)f->wide + 3 * head * (size_t)d;
    float *score = k->scores + (text * f->heads + head) * f->t * f->t;
    float *mixed = k->inner + text * f->t * (size_t)c + head * (size_t)d;
    gw_gemm(false, true, t, t, d, q, f->wide, q + d, f->wide, 0, score, t);
    gw_tokens_attend(score, 1 / sqrtf((float)d), t);
    gw_gemm(false, false, t, d, t, score, t, q + 2 * d, f->wide, 0, mixed, c);
}

/* From d_inner to d_wide. */
static void gpt_attend_one_back(const form *f, const kept *k, size_t text, size_t head) {
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

static void gpt_attend(const form *f, const kept *k, size_t texts,
                       void (*one)(const form *, const kept *, size_t, size_t)) {
    int threads = gpt_threads(texts * f->t, f->inner);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t i = 0; i < texts * f->heads; i++)
        one(f, k, i / f->heads, i % f->heads);
}

/* ---- the walk's calls ---- */

/* Other ranks' columns are 0. */
static void gpt_embed(const form *f, const float *w, const gw_unit_rows *r, int classes) {
    size_t c = (size_t)f->c, own = f->own.n, rows = (size_t)r->n * f->t;
    const float *place = w + (size_t)classes * own;
    int threads = gpt_threads(rows, f->c);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t i = 0; i < rows; i++) {
        const float *word = w + (size_t)r->x[i] * own, *at = place + i % f->t * own;
        float *y = r->y + i * c;
        if (own < c)
            memset(y, 0, c * sizeof *y);
        for (size_t j = 0; j < own; j++)
            y[f->own.off + j] = word[j] + at[j];
    }
}

static void gpt_embed_weights(const form *f, float *grads, const gw_unit_rows *r, int classes) {
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

static void gpt_product(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                        const gw_unit_rows *r) {
    form f = gpt_form_of(spec, u);
    kept k = gpt_kept_of(spec, u, r);
    kind is = gpt_kind_of(spec, u->number);
    int tokens = r->n * (int)f.t, c = f.c;
    size_t rows = (size_t)tokens, own = f.own.n, wide = (size_t)f.wide;
    if (is == EMBEDDING) {
        gpt_embed(&f, w, r, spec->classes);
        return;
    }
    float *y = is == HEAD ? r->y : k.wide;
    const float *gain = r->gathered ? r->gathered : w; /* the norm's biases lie behind it */
    GPT_SHARE(rows, rows, c,
              gw_tokens_norm(k.norm + s.off * (size_t)c, k.told + 2 * s.off,
                             r->x + s.off * (size_t)c, gain, gain + c, s.n, c));
    const float *bias = w + gpt_at(spec, u, WIDE_BIAS);
    if (is == ATTENTION)
        GPT_SHARE(rows, rows, f.wide, gw_tokens_fill(y + s.off * wide, bias, s.n, f.wide));
    gw_gemm(false, false, tokens, f.wide, c, k.norm, c, w + gpt_at(spec, u, WIDE), f.wide,
            is == ATTENTION ? 1 : 0, y, f.wide);
    if (is == HEAD)
        return;
    if (is == ATTENTION)
        gpt_attend(&f, &k, (size_t)r->n, gpt_attend_one);
    else
        GPT_SHARE(rows, rows, f.wide,
                  gw_tokens_gelu(k.inner + s.off * wide, k.wide + s.off * wide, bias, s.n, f.wide));
    gw_gemm(false, false, tokens, c, f.inner, k.inner, f.inner, w + gpt_at(spec, u, BACK), c, 0,
            r->y, c);
    if (u->parts == 1)
        return;
    /* The columns of y that this rank holds get their biases. */
    const float *last = w + gpt_at(spec, u, BACK_BIAS);
    int threads = gpt_threads(rows, (int)own);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < own; j++)
            r->y[i * (size_t)c + f.own.off + j] += last[j];
}

/* Of what two products and a sum over tensor ranks, with their biases, lead back to. */
static void gpt_transfer(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                         const gw_unit_rows *r) {
    form f = gpt_form_of(spec, u);
    size_t rows = (size_t)r->n * f.t, c = (size_t)f.c;
    kind is = gpt_kind_of(spec, u->number);
    if (is == EMBEDDING || is == HEAD)
        return;
    const float *bias = u->parts > 1 ? r->zeros : w + gpt_at(spec, u, BACK_BIAS);
    GPT_SHARE(rows, rows, f.c, gw_tokens_add(r->y + s.off * c, r->x + s.off * c, bias, s.n, f.c));
}

/* The gradient behind the first product. */
static const float *gpt_d_wide(const gw_model_spec *spec, const gw_shard_layer *u,
                               const gw_unit_rows *r, const kept *k) {
    switch (gpt_kind_of(spec, u->number)) {
    case ATTENTION: return k->d_wide;
    case PERCEPTRON: return k->d_inner;
    default: return r->dy;
    }
}

/* The gradient of the norm's outputs; with tensor ranks a term of it. */
static void gpt_d_norm(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                       const gw_unit_rows *r, const kept *k, float *d_norm) {
    form f = gpt_form_of(spec, u);
    gw_gemm(false, true, r->n * (int)f.t, f.c, f.wide, gpt_d_wide(spec, u, r, k), f.wide,
            w + gpt_at(spec, u, WIDE), f.wide, 0, d_norm, f.c);
}

static void gpt_enter(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                      float *grads, bool add, const gw_unit_rows *r) {
    form f = gpt_form_of(spec, u);
    kept k = gpt_kept_of(spec, u, r);
    kind is = gpt_kind_of(spec, u->number);
    int tokens = r->n * (int)f.t, own = (int)f.own.n;
    size_t rows = (size_t)tokens;
    if (is == EMBEDDING)
        return;
    float *wide_bias = grads + gpt_at(spec, u, WIDE_BIAS),
          *back_bias = grads + gpt_at(spec, u, BACK_BIAS);
    if (!add) {
        memset(grads, 0, 2 * f.own.n * sizeof *grads);
        if (is != HEAD) {
            memset(wide_bias, 0, (size_t)f.wide * sizeof *grads);
            memset(back_bias, 0, f.own.n * sizeof *grads);
        }
    }
    if (is != HEAD) /* d_inner and d_wide from dy, and the biases' gradients */
        gw_gemm(false, true, tokens, f.inner, f.c, r->dy, f.c, w + gpt_at(spec, u, BACK), f.c, 0,
                k.d_inner, f.inner);
    if (is == ATTENTION) {
        gpt_attend(&f, &k, (size_t)r->n, gpt_attend_one_back);
        GPT_SHARE(
            f.wide, rows, f.wide,
            gw_tokens_columns(wide_bias, k.d_wide, rows, f.wide, (int)s.off, (int)gw_span_end(s)));
    }
    if (is == PERCEPTRON)
        GPT_SHARE(f.wide, rows, f.wide,
                  gw_tokens_slope(k.d_inner, k.wide, wide_bias, rows, f.wide, (int)s.off,
                                  (int)gw_span_end(s)));
    if (is != HEAD)
        GPT_SHARE(own, rows, own,
                  gw_tokens_columns(back_bias, r->dy + f.own.off, rows, f.c, (int)s.off,
                                    (int)gw_span_end(s)));
    if (u->parts == 1) { /* else when it is the sum */
        gpt_d_norm(spec, u, w, r, &k, k.d_norm);
        gpt_norm_columns(&f, grads, r->x, &k, rows);
    }
}

/* dx out of d_norm and, but for the head's, dy. */
static void gpt_through_norm(const gw_model_spec *spec, const gw_shard_layer *u, const float *gain,
                             const gw_unit_rows *r, const kept *k) {
    form f = gpt_form_of(spec, u);
    size_t rows = (size_t)r->n * f.t, c = (size_t)f.c;
    bool head = gpt_kind_of(spec, u->number) == HEAD;
    if (head)
        memset(r->dx, 0, rows * c * sizeof *r->dx);
    const float *above = head ? r->dx : r->dy;
    GPT_SHARE(rows, rows, f.c,
              gw_tokens_norm_back(r->dx + s.off * c, above + s.off * c, k->d_norm + s.off * c,
                                  r->x + s.off * c, k->told + 2 * s.off, gain, s.n, f.c));
}

static void gpt_descend(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                        const gw_unit_rows *r) {
    kept k = gpt_kept_of(spec, u, r);
    if (u->parts > 1)
        gpt_d_norm(spec, u, w, r, &k, r->dx);
    else
        gpt_through_norm(spec, u, w, r, &k);
}

static void gpt_arrive(const gw_model_spec *spec, const gw_shard_layer *u, float *grads,
                       const gw_unit_rows *r) {
    form f = gpt_form_of(spec, u);
    kept k = gpt_kept_of(spec, u, r);
    size_t rows = (size_t)r->n * f.t;
    memcpy(k.d_norm, r->dx, rows * (size_t)f.c * sizeof *r->dx);
    gpt_norm_columns(&f, grads, r->x, &k, rows);
    gpt_through_norm(spec, u, r->gathered, r, &k);
}

static void gpt_weights(const gw_model_spec *spec, const gw_shard_layer *u, float *grads, bool add,
                        const gw_unit_rows *r) {
    form f = gpt_form_of(spec, u);
    kept k = gpt_kept_of(spec, u, r);
    kind is = gpt_kind_of(spec, u->number);
    int tokens = r->n * (int)f.t;
    if (is == EMBEDDING) {
        if (!add)
            memset(grads, 0, ((size_t)spec->classes + f.t) * f.own.n * sizeof *grads);
        gpt_embed_weights(&f, grads, r, spec->classes);
        return;
    }
    float beta = add ? 1 : 0;
    gw_gemm(true, false, f.c, f.wide, tokens, k.norm, f.c, gpt_d_wide(spec, u, r, &k), f.wide, beta,
            grads + gpt_at(spec, u, WIDE), f.wide);
    if (is != HEAD)
        gw_gemm(true, false, f.inner, f.c, tokens, k.inner, f.inner, r->dy, f.c, beta,
                grads + gpt_at(spec, u, BACK), f.c);
}

const gw_model_ops gw_model_gpt = {
    .head = {GW_MODEL_ABI, "gpt", "a transformer that tells the next character of --data text:FILE",
             gpt_opts},
    .traits = GW_MODEL_SHARES,
    .open = gpt_open,
    .units = gpt_units,
    .unit = gpt_unit,
    .products = gpt_products,
    .initialise = gpt_initialise,
    .product = gpt_product,
    .transfer = gpt_transfer,
    .enter = gpt_enter,
    .descend = gpt_descend,
    .weights = gpt_weights,
    .arrive = gpt_arrive,
};
