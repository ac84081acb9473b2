/* gpt: a transformer that tells the next token (Radford et al., "Language models are unsupervised
 * multitask learners", 2019). Its units: the embedding; of each layer attention and a perceptron,
 * each y = x + f(norm(x)); a norm and the head. Rows of a unit are whole texts of `context` tokens,
 * token behind token. */
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

typedef enum kind { EMBEDDING, ATTENTION, PERCEPTRON, HEAD } kind;

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

static kind gpt_kind(const gw_model_spec *spec, int l) {
    return l == 0 ? EMBEDDING : l + 1 == gpt_units(spec) ? HEAD : l % 2 ? ATTENTION : PERCEPTRON;
}

/* ---- a unit's tensors, and what it keeps ---- */

/* Those of all but the embedding, in the arena's order: norm, the product behind it with its
 * biases, and the one that leads back. The head has no biases and none that leads back. */
enum { GAIN, BIAS, WIDE, WIDE_BIAS, BACK, BACK_BIAS, TENSORS };
enum { TABLE, PLACE };

typedef struct form {
    int c, wide,
        inner;     /* floats of a token: of a row, behind the first product, before the second */
    size_t t;      /* tokens of a text */
    size_t scores; /* floats of a text's attention */
} form;

static form gpt_form(const gw_model_spec *spec, int l) {
    int c = (int)gpt_self(spec)->width, t = spec->context;
    form f = {.c = c, .t = (size_t)t};
    switch (gpt_kind(spec, l)) {
    case EMBEDDING: break;
    case ATTENTION:
        f.wide = 3 * c;
        f.inner = c;
        f.scores = (size_t)gpt_self(spec)->heads * (size_t)t * (size_t)t;
        break;
    case PERCEPTRON: f.wide = f.inner = WIDEN * c; break;
    case HEAD: f.wide = spec->classes; break;
    }
    return f;
}

/* Of all rows of a call. d_: gradients, which `enter` leaves for `weights`. */
typedef struct kept {
    float *told, *norm, *wide, *inner, *scores, *d_wide, *d_inner, *d_norm, *d_scores;
} kept;

/* Floats of a row; with `base`, where the areas of n rows are. */
static size_t gpt_keep(const gw_model_spec *spec, int l, float *base, size_t n, kept *k) {
    form f = gpt_form(spec, l);
    size_t c = f.t * (size_t)f.c, at = 0;
    bool attends = gpt_kind(spec, l) == ATTENTION, ends = gpt_kind(spec, l) == HEAD;
    size_t wide = ends ? 0 : f.t * (size_t)f.wide, inner = f.t * (size_t)f.inner;
    const size_t floats[] = {2 * f.t, c, wide,    inner, f.scores, attends ? wide : 0,
                             inner,   c, f.scores};
    float **const area[] = {&k->told,   &k->norm,    &k->wide,   &k->inner,   &k->scores,
                            &k->d_wide, &k->d_inner, &k->d_norm, &k->d_scores};
    for (size_t i = 0; i < sizeof floats / sizeof *floats && f.wide > 0; i++) {
        *area[i] = base + n * at;
        at += floats[i];
    }
    return at;
}

static kept gpt_kept(const gw_model_spec *spec, const gw_shard_layer *u, const gw_unit_rows *r) {
    kept k = {0};
    gpt_keep(spec, u->number, r->kept, (size_t)r->n, &k);
    return k;
}

static gw_unit gpt_unit(const gw_model_spec *spec, int l) {
    form f = gpt_form(spec, l);
    kept none = {0};
    int row = (int)f.t * f.c;
    gw_unit u = {
        .in = row, .out = row, .kept = gw_model_spec_kept(gpt_keep(spec, l, NULL, 0, &none))};
    switch (gpt_kind(spec, l)) {
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
    u.n_tensors = gpt_kind(spec, l) == HEAD ? WIDE + 1 : TENSORS;
    for (int i = 0; i < TENSORS; i++)
        u.tensor[i].rows = 1;
    u.tensor[WIDE].rows = u.tensor[GAIN].cols = u.tensor[BIAS].cols = f.c;
    u.tensor[WIDE].cols = u.tensor[WIDE_BIAS].cols = f.wide;
    u.tensor[BACK].rows = f.inner;
    u.tensor[BACK].cols = u.tensor[BACK_BIAS].cols = f.c;
    return u;
}

static size_t gpt_at(const gw_model_spec *spec, const gw_shard_layer *u, int tensor) {
    gw_unit unit = gpt_unit(spec, u->number);
    size_t at = 0;
    for (int i = 0; i < tensor; i++)
        at += (size_t)unit.tensor[i].rows * (size_t)unit.tensor[i].cols;
    return at;
}

/* Attention's own products, of a head each, are not among them. */
static int gpt_products(const gw_model_spec *spec, const gw_shard_layer *u, int rows,
                        gw_product out[GW_UNIT_PRODUCTS]) {
    form f = gpt_form(spec, u->number);
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

/* Normal weights of deviation 0.02, less for what is added to x; gains 1. */
static void gpt_initialise(const gw_model_spec *spec, const gw_shard_layer *u, float *w) {
    gw_unit unit = gpt_unit(spec, u->number);
    uint64_t key = gw_rng_key(gw_rng_key(spec->seed, 0x67707469), (uint64_t)u->number);
    bool embeds = gpt_kind(spec, u->number) == EMBEDDING;
    for (int i = 0; i < unit.n_tensors; i++) {
        size_t n = (size_t)unit.tensor[i].rows * (size_t)unit.tensor[i].cols;
        double sigma =
            !embeds && i == BACK ? 0.02 / sqrt(2.0 * (double)gpt_self(spec)->layers) : 0.02;
        uint64_t own = gw_rng_key(key, (uint64_t)i);
#pragma omp parallel for schedule(static)
        for (size_t j = 0; j < n; j++)
            w[j] = embeds || unit.tensor[i].rows > 1 ? (float)(sigma * gw_rng_normal(own, j))
                                                     : (float)(i == GAIN);
        w += n;
    }
}

/* ---- kernels over threads, which share rows or columns ---- */

static int gpt_threads(size_t rows, int width) {
    return rows * (size_t)width < GW_PARALLEL_ELEMENTS ? 1 : omp_get_max_threads();
}

static void gpt_norm(const form *f, const float *w, const float *x, const kept *k, size_t rows) {
    size_t c = (size_t)f->c;
    int threads = gpt_threads(rows, f->c);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)rows, part, threads);
        gw_tokens_norm(k->norm + s.off * c, k->told + 2 * s.off, x + s.off * c, w, w + c, s.n,
                       f->c);
    }
}

/* dx += the gradient through the norm. */
static void gpt_norm_back(const form *f, const float *gain, const float *x, const kept *k,
                          float *dx, size_t rows) {
    size_t c = (size_t)f->c;
    int threads = gpt_threads(rows, f->c);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)rows, part, threads);
        gw_tokens_norm_back(dx + s.off * c, k->d_norm + s.off * c, x + s.off * c,
                            k->told + 2 * s.off, gain, s.n, f->c);
    }
}

static void gpt_norm_columns(const form *f, float *grads, const float *x, const kept *k,
                             size_t rows) {
    int threads = gpt_threads(rows, f->c);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part(f->c, part, threads);
        gw_tokens_norm_columns(grads, grads + f->c, k->d_norm, x, k->told, rows, f->c, (int)s.off,
                               (int)gw_span_end(s));
    }
}

static void gpt_columns(float *sum, const float *x, size_t rows, int width) {
    int threads = gpt_threads(rows, width);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part(width, part, threads);
        gw_tokens_columns(sum, x, rows, width, (int)s.off, (int)gw_span_end(s));
    }
}

static void gpt_fill(float *y, const float *bias, size_t rows, int width) {
    int threads = gpt_threads(rows, width);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)rows, part, threads);
        gw_tokens_fill(y + s.off * (size_t)width, bias, s.n, width);
    }
}

static void gpt_gelu(float *y, float *x, size_t n) {
    enum { SHARE = 1 << 12 };
    int threads = gpt_threads(n, 1);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t at = 0; at < n; at += SHARE)
        gw_tokens_gelu(y + at, x + at, n - at < SHARE ? n - at : SHARE);
}

/* ---- attention ---- */

/* Of head h of a text: q, k and v are columns of `wide`, rows of 3 c. */
static void gpt_attend_one(const form *f, const kept *k, size_t text, size_t head, size_t heads) {
    int t = (int)f->t, c = f->c, d = c / (int)heads;
    const float *q = k->wide + text * f->t * 3 * (size_t)c + head * (size_t)d;
    float *score = k->scores + (text * heads + head) * f->t * f->t;
    float *mixed = k->inner + text * f->t * (size_t)c + head * (size_t)d;
    gw_gemm(false, true, t, t, d, q, 3 * c, q + c, 3 * c, 0, score, t);
    gw_tokens_attend(score, 1 / sqrtf((float)d), t);
    gw_gemm(false, false, t, d, t, score, t, q + 2 * c, 3 * c, 0, mixed, c);
}

/* From d_inner to d_wide. */
static void gpt_attend_one_back(const form *f, const kept *k, size_t text, size_t head,
                                size_t heads) {
    int t = (int)f->t, c = f->c, d = c / (int)heads;
    size_t at = text * f->t * 3 * (size_t)c + head * (size_t)d;
    size_t square = (text * heads + head) * f->t * f->t;
    const float *q = k->wide + at, *weight = k->scores + square;
    const float *dm = k->d_inner + text * f->t * (size_t)c + head * (size_t)d;
    float *dq = k->d_wide + at, *ds = k->d_scores + square;
    gw_gemm(true, false, t, d, t, weight, t, dm, c, 0, dq + 2 * c, 3 * c);
    gw_gemm(false, true, t, t, d, dm, c, q + 2 * c, 3 * c, 0, ds, t);
    gw_tokens_attend_back(ds, weight, 1 / sqrtf((float)d), t);
    gw_gemm(false, false, t, d, t, ds, t, q + c, 3 * c, 0, dq, 3 * c);
    gw_gemm(true, false, t, d, t, ds, t, q, 3 * c, 0, dq + c, 3 * c);
}

static void gpt_attend(const gw_model_spec *spec, const form *f, const kept *k, size_t texts,
                       void (*one)(const form *, const kept *, size_t, size_t, size_t)) {
    size_t heads = (size_t)gpt_self(spec)->heads;
    int threads = gpt_threads(texts * f->t, f->c);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t i = 0; i < texts * heads; i++)
        one(f, k, i / heads, i % heads, heads);
}

/* ---- the walk's calls ---- */

static void gpt_embed(const form *f, const float *w, const gw_unit_rows *r, int classes) {
    size_t c = (size_t)f->c, rows = (size_t)r->n * f->t;
    const float *place = w + (size_t)classes * c;
    int threads = gpt_threads(rows, f->c);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)rows, part, threads);
        for (size_t i = s.off; i < gw_span_end(s); i++) {
            const float *word = w + (size_t)r->x[i] * c, *at = place + i % f->t * c;
            for (size_t j = 0; j < c; j++)
                r->y[i * c + j] = word[j] + at[j];
        }
    }
}

static void gpt_embed_weights(const form *f, float *grads, const gw_unit_rows *r, int classes) {
    size_t c = (size_t)f->c, rows = (size_t)r->n * f->t;
    float *place = grads + (size_t)classes * c;
    int threads = gpt_threads(rows, f->c);
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)c, part, threads);
        for (size_t i = 0; i < rows; i++) {
            float *word = grads + (size_t)r->x[i] * c, *at = place + i % f->t * c;
            for (size_t j = s.off; j < gw_span_end(s); j++) {
                word[j] += r->dy[i * c + j];
                at[j] += r->dy[i * c + j];
            }
        }
    }
}

static void gpt_product(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                        const gw_unit_rows *r) {
    form f = gpt_form(spec, u->number);
    kept k = gpt_kept(spec, u, r);
    kind is = gpt_kind(spec, u->number);
    int tokens = r->n * (int)f.t, c = f.c;
    if (is == EMBEDDING) {
        gpt_embed(&f, w, r, spec->classes);
        return;
    }
    float *wide = is == HEAD ? r->y : k.wide;
    gpt_norm(&f, w, r->x, &k, (size_t)tokens);
    if (is != HEAD)
        gpt_fill(wide, w + gpt_at(spec, u, WIDE_BIAS), (size_t)tokens, f.wide);
    gw_gemm(false, false, tokens, f.wide, c, k.norm, c, w + gpt_at(spec, u, WIDE), f.wide,
            is == HEAD ? 0 : 1, wide, f.wide);
    if (is == HEAD)
        return;
    if (is == ATTENTION)
        gpt_attend(spec, &f, &k, (size_t)r->n, gpt_attend_one);
    else
        gpt_gelu(k.inner, k.wide, (size_t)tokens * (size_t)f.wide);
    gw_gemm(false, false, tokens, c, f.inner, k.inner, f.inner, w + gpt_at(spec, u, BACK), c, 0,
            r->y, c);
}

/* Of what two products and a sum over tensor ranks lead back to. */
static void gpt_transfer(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                         const gw_unit_rows *r) {
    form f = gpt_form(spec, u->number);
    size_t rows = (size_t)r->n * f.t, c = (size_t)f.c;
    const float *bias = w + gpt_at(spec, u, BACK_BIAS);
    int threads = gpt_threads(rows, f.c);
    if (f.inner == 0)
        return;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        gw_span s = gw_share_part((int)rows, part, threads);
        gw_tokens_add(r->y + s.off * c, r->x + s.off * c, bias, s.n, f.c);
    }
}

/* d_inner and d_wide from dy. */
static void gpt_enter_inner(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                            const gw_unit_rows *r, const form *f, const kept *k) {
    int tokens = r->n * (int)f->t;
    gw_gemm(false, true, tokens, f->inner, f->c, r->dy, f->c, w + gpt_at(spec, u, BACK), f->c, 0,
            k->d_inner, f->inner);
    if (gpt_kind(spec, u->number) == ATTENTION) {
        gpt_attend(spec, f, k, (size_t)r->n, gpt_attend_one_back);
        return;
    }
    size_t n = (size_t)tokens * (size_t)f->wide;
    int threads = gpt_threads(n, 1);
#pragma omp parallel for simd num_threads(threads) schedule(static) if (threads > 1)
    for (size_t i = 0; i < n; i++)
        k->d_inner[i] *= k->wide[i]; /* the slope */
}

/* The gradient behind the first product. */
static const float *gpt_d_wide(const gw_model_spec *spec, const gw_shard_layer *u,
                               const gw_unit_rows *r, const kept *k) {
    switch (gpt_kind(spec, u->number)) {
    case ATTENTION: return k->d_wide;
    case PERCEPTRON: return k->d_inner;
    default: return r->dy;
    }
}

static void gpt_enter(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                      float *grads, bool add, const gw_unit_rows *r) {
    form f = gpt_form(spec, u->number);
    kept k = gpt_kept(spec, u, r);
    kind is = gpt_kind(spec, u->number);
    int tokens = r->n * (int)f.t;
    if (is == EMBEDDING)
        return;
    if (is != HEAD)
        gpt_enter_inner(spec, u, w, r, &f, &k);
    const float *d_wide = gpt_d_wide(spec, u, r, &k);
    gw_gemm(false, true, tokens, f.c, f.wide, d_wide, f.wide, w + gpt_at(spec, u, WIDE), f.wide, 0,
            k.d_norm, f.c);
    float *wide_bias = grads + gpt_at(spec, u, WIDE_BIAS),
          *back_bias = grads + gpt_at(spec, u, BACK_BIAS);
    if (!add) {
        memset(grads, 0, 2 * (size_t)f.c * sizeof *grads);
        if (is != HEAD) {
            memset(wide_bias, 0, (size_t)f.wide * sizeof *grads);
            memset(back_bias, 0, (size_t)f.c * sizeof *grads);
        }
    }
    gpt_norm_columns(&f, grads, r->x, &k, (size_t)tokens);
    if (is == HEAD)
        return;
    gpt_columns(wide_bias, d_wide, (size_t)tokens, f.wide);
    gpt_columns(back_bias, r->dy, (size_t)tokens, f.c);
}

static void gpt_descend(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                        const gw_unit_rows *r) {
    form f = gpt_form(spec, u->number);
    kept k = gpt_kept(spec, u, r);
    size_t rows = (size_t)r->n * f.t, n = rows * (size_t)f.c;
    if (gpt_kind(spec, u->number) == HEAD)
        memset(r->dx, 0, n * sizeof *r->dx);
    else
        memcpy(r->dx, r->dy, n * sizeof *r->dx);
    gpt_norm_back(&f, w, r->x, &k, r->dx, rows);
}

static void gpt_weights(const gw_model_spec *spec, const gw_shard_layer *u, float *grads, bool add,
                        const gw_unit_rows *r) {
    form f = gpt_form(spec, u->number);
    kept k = gpt_kept(spec, u, r);
    kind is = gpt_kind(spec, u->number);
    int tokens = r->n * (int)f.t;
    if (is == EMBEDDING) {
        if (!add)
            memset(grads, 0, ((size_t)spec->classes + f.t) * (size_t)f.c * sizeof *grads);
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

static const gw_opt opts[] = {
    {"layers", GW_OPT_INT, "4", 1, (GW_MAX_LAYERS - 2) / 2, NULL, "N",
     "of attention and perceptron"},
    {"heads", GW_OPT_INT, "4", 1, 256, NULL, "N", "of attention, which share the width"},
    {"width", GW_OPT_INT, "128", 1, 1 << 14, NULL, "N", "floats of a token"},
    {"context", GW_OPT_INT, "64", 1, 4096, NULL, "N", "tokens of a sample"},
    {0}};

const gw_model_ops gw_model_gpt = {
    .head = {GW_MODEL_ABI, "gpt", "a transformer that tells the next character of --data text:FILE",
             opts},
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
};
