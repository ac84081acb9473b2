#include "model.h"

#include "kernels.h"
#include "nn/tokens.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tensors of a block, in forward order; the first two and the last two of the model. */
enum { LN1, LN1_B, QKV, QKV_B, PROJ, PROJ_B, LN2, LN2_B, FC, FC_B, OUT, OUT_B, BLOCK };
enum { TABLE, PLACE, EMBEDDINGS };

/* What the forward pass of a block leaves for its backward pass. */
typedef struct gpt_kept {
    float *in, *told1, *ln1;      /* the residual stream, and its layer norm */
    float *qkv, *weights, *mixed; /* attention: its weights, the values that they mix */
    float *mid, *told2, *ln2;     /* the residual stream between */
    float *slope, *gelu;
} gpt_kept;

struct gpt {
    gpt_shape shape;
    int batch; /* of the last forward pass */
    int count;
    gpt_tensor *tensors;
    size_t size;
    float *param, *grad;
    float *memory; /* all that follows */
    gpt_kept *kept;
    float *last, *told, *norm, *logits;
    float *d_stream, *d_wide, *d_row, *d_score;
    uint8_t *input, *target;
};

static void declare(gpt *m, const char *layer, const char *name, int group, size_t rows,
                    size_t columns) {
    gpt_tensor *t = &m->tensors[m->count++];
    snprintf(t->name, sizeof t->name, "%s%s", layer, name);
    t->group = group;
    t->rows = rows;
    t->n = (rows ? rows : 1) * columns;
    t->at = m->size;
    m->size += (t->n + 15) / 16 * 16; /* each begins on a cache line */
}

static void declare_all(gpt *m) {
    gpt_shape s = m->shape;
    size_t c = (size_t)s.width;
    declare(m, "", "embedding", 0, (size_t)s.vocabulary, c);
    declare(m, "", "position", 0, (size_t)s.context, c);
    for (int l = 0; l < s.layers; l++) {
        char layer[16];
        snprintf(layer, sizeof layer, "%d.", l);
        declare(m, layer, "ln1.weight", l + 1, 0, c);
        declare(m, layer, "ln1.bias", l + 1, 0, c);
        declare(m, layer, "qkv.weight", l + 1, 3 * c, c);
        declare(m, layer, "qkv.bias", l + 1, 0, 3 * c);
        declare(m, layer, "proj.weight", l + 1, c, c);
        declare(m, layer, "proj.bias", l + 1, 0, c);
        declare(m, layer, "ln2.weight", l + 1, 0, c);
        declare(m, layer, "ln2.bias", l + 1, 0, c);
        declare(m, layer, "fc.weight", l + 1, 4 * c, c);
        declare(m, layer, "fc.bias", l + 1, 0, 4 * c);
        declare(m, layer, "out.weight", l + 1, c, 4 * c);
        declare(m, layer, "out.bias", l + 1, 0, c);
    }
    declare(m, "", "ln.weight", s.layers + 1, 0, c);
    declare(m, "", "ln.bias", s.layers + 1, 0, c);
}

/* Hands out aligned pieces of one block; with a NULL block it only counts. */
typedef struct arena {
    float *block;
    size_t used;
} arena;

static float *piece(arena *a, size_t n) {
    float *at = a->block ? a->block + a->used : NULL;
    a->used += (n + 15) / 16 * 16;
    return at;
}

static void divide(gpt *m, arena *a, int batch) {
    gpt_shape s = m->shape;
    size_t rows = (size_t)batch * (size_t)s.context, n = rows * (size_t)s.width;
    size_t square = (size_t)s.context * (size_t)s.context;
    for (int l = 0; l < s.layers; l++) {
        m->kept[l] = (gpt_kept){.in = piece(a, n),
                                .told1 = piece(a, 2 * rows),
                                .ln1 = piece(a, n),
                                .qkv = piece(a, 3 * n),
                                .weights = piece(a, (size_t)batch * (size_t)s.heads * square),
                                .mixed = piece(a, n),
                                .mid = piece(a, n),
                                .told2 = piece(a, 2 * rows),
                                .ln2 = piece(a, n),
                                .slope = piece(a, 4 * n),
                                .gelu = piece(a, 4 * n)};
    }
    m->last = piece(a, n);
    m->told = piece(a, 2 * rows);
    m->norm = piece(a, n);
    m->logits = piece(a, rows * (size_t)s.vocabulary);
    m->d_stream = piece(a, n);
    m->d_wide = piece(a, 4 * n);
    m->d_row = piece(a, n);
    m->d_score = piece(a, square);
}

static float *zeros(size_t n) {
    float *at = aligned_alloc(64, (n * sizeof *at + 63) / 64 * 64);
    return at ? memset(at, 0, n * sizeof *at) : NULL;
}

gpt *gpt_new(gpt_shape shape, int batch) {
    gpt *m = calloc(1, sizeof *m);
    if (!m) {
        return NULL;
    }
    m->shape = shape;
    m->tensors = calloc((size_t)(shape.layers * BLOCK + 2 * EMBEDDINGS), sizeof *m->tensors);
    m->kept = calloc((size_t)shape.layers, sizeof *m->kept);
    m->input = malloc((size_t)batch * (size_t)shape.context);
    m->target = malloc((size_t)batch * (size_t)shape.context);
    arena a = {0};
    if (m->tensors && m->kept) {
        declare_all(m);
        divide(m, &a, batch);
        m->memory = zeros(a.used);
        m->param = zeros(m->size);
        m->grad = zeros(m->size);
    }
    if (!m->memory || !m->param || !m->grad || !m->input || !m->target) {
        gpt_free(m);
        return NULL;
    }
    divide(m, &(arena){.block = m->memory}, batch);
    return m;
}

void gpt_free(gpt *m) {
    if (m) {
        free(m->tensors);
        free(m->kept);
        free(m->input);
        free(m->target);
        free(m->memory);
        free(m->param);
        free(m->grad);
        free(m);
    }
}

const gpt_tensor *gpt_tensors(const gpt *m, int *count) {
    *count = m->count;
    return m->tensors;
}

size_t gpt_size(const gpt *m) {
    return m->size;
}

float *gpt_param(gpt *m) {
    return m->param;
}

float *gpt_grad(gpt *m) {
    return m->grad;
}

static uint64_t next(uint64_t *state) { /* SplitMix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

void gpt_draw(gpt *m, uint64_t seed) {
    for (int t = 0; t < m->count; t++) {
        const gpt_tensor *tensor = &m->tensors[t];
        float *at = m->param + tensor->at;
        const char *name = strchr(tensor->name, '.');
        int adds = name && (!strcmp(name, ".proj.weight") || !strcmp(name, ".out.weight"));
        double deviation = adds ? 0.02 / sqrt(2.0 * m->shape.layers) : 0.02;
        int gain = !tensor->rows && strstr(tensor->name, "weight");
        for (size_t i = 0; i < tensor->n; i++) {
            if (tensor->rows) { /* Box and Muller */
                double u = ((double)(next(&seed) >> 11) + 0.5) * 0x1p-53;
                double v = (double)(next(&seed) >> 11) * 0x1p-53;
                at[i] = (float)(deviation * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
            } else {
                at[i] = gain ? 1 : 0;
            }
        }
    }
}

/* c = beta c + a b, where `ta` and `tb` tell that a, b lie transposed. */
static void product(int ta, int tb, size_t m, size_t n, size_t k, const float *a, size_t lda,
                    const float *b, size_t ldb, float beta, float *c, size_t ldc) {
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                (int)m, (int)n, (int)k, 1, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

/* y += x W', rows of x by rows of the weights. */
static void linear(float *y, const float *x, const float *w, size_t rows, size_t in, size_t out) {
    product(0, 1, rows, out, in, x, in, w, in, 1, y, out);
}

/* dw = dy' x, and dx = dy W. */
static void linear_back(float *dx, float *dw, const float *dy, const float *x, const float *w,
                        size_t rows, size_t in, size_t out) {
    product(1, 0, out, in, rows, dy, out, x, in, 0, dw, in);
    product(0, 0, rows, in, out, dy, out, w, in, 0, dx, in);
}

static const float *weight(const gpt *m, int tensor) {
    return m->param + m->tensors[tensor].at;
}

static float *slope(gpt *m, int tensor) {
    return m->grad + m->tensors[tensor].at;
}

static void columns(float *sum, const float *x, size_t rows, int width) {
    memset(sum, 0, (size_t)width * sizeof *sum);
    gw_tokens_columns(sum, x, rows, width, 0, width);
}

/* dx += the gradient through the norm whose gain is tensor t, its bias the next. */
static void norm_back(gpt *m, int t, float *dx, const float *dy, const float *x,
                      const float *told) {
    size_t rows = (size_t)m->batch * (size_t)m->shape.context;
    int width = m->shape.width;
    memset(slope(m, t), 0, (size_t)width * sizeof(float));
    memset(slope(m, t + 1), 0, (size_t)width * sizeof(float));
    gw_tokens_norm_columns(slope(m, t), slope(m, t + 1), dy, x, told, rows, width, 0, width);
    gw_tokens_norm_back(dx, dx, dy, x, told, weight(m, t), rows, width);
}

static void attention(gpt *m, const gpt_kept *k) {
    size_t t = (size_t)m->shape.context, c = (size_t)m->shape.width;
    size_t heads = (size_t)m->shape.heads, d = c / heads;
    float scale = 1.0F / sqrtf((float)d);
    for (size_t i = 0; i < (size_t)m->batch * heads; i++) {
        size_t row = i / heads * t, column = i % heads * d;
        const float *q = k->qkv + row * 3 * c + column;
        float *w = k->weights + i * t * t;
        product(0, 1, t, t, d, q, 3 * c, q + c, 3 * c, 0, w, t);
        gw_tokens_attend(w, scale, (int)t);
        product(0, 0, t, d, t, w, t, q + 2 * c, 3 * c, 0, k->mixed + row * c + column, c);
    }
}

/* From the gradient of `mixed` to that of q, k and v. */
static void attention_back(gpt *m, const gpt_kept *k, const float *dy, float *dqkv) {
    size_t t = (size_t)m->shape.context, c = (size_t)m->shape.width;
    size_t heads = (size_t)m->shape.heads, d = c / heads;
    float scale = 1.0F / sqrtf((float)d);
    for (size_t i = 0; i < (size_t)m->batch * heads; i++) {
        size_t row = i / heads * t, column = i % heads * d;
        const float *q = k->qkv + row * 3 * c + column, *w = k->weights + i * t * t;
        const float *dm = dy + row * c + column;
        float *dq = dqkv + row * 3 * c + column, *ds = m->d_score;
        product(1, 0, t, d, t, w, t, dm, c, 0, dq + 2 * c, 3 * c);
        product(0, 1, t, t, d, dm, c, q + 2 * c, 3 * c, 0, ds, t);
        gw_tokens_attend_back(ds, w, scale, (int)t);
        product(0, 0, t, d, t, ds, t, q + c, 3 * c, 0, dq, 3 * c);
        product(1, 0, t, d, t, ds, t, q, 3 * c, 0, dq + c, 3 * c);
    }
}

static void block_forward(gpt *m, int layer, float *out) {
    const gpt_kept *k = &m->kept[layer];
    int t = EMBEDDINGS + layer * BLOCK, width = m->shape.width;
    size_t rows = (size_t)m->batch * (size_t)m->shape.context, c = (size_t)width;
    gw_tokens_norm(k->ln1, k->told1, k->in, weight(m, t + LN1), weight(m, t + LN1_B), rows, width);
    gw_tokens_fill(k->qkv, weight(m, t + QKV_B), rows, 3 * width);
    linear(k->qkv, k->ln1, weight(m, t + QKV), rows, c, 3 * c);
    attention(m, k);
    gpt_add(k->mid, k->in, weight(m, t + PROJ_B), rows, width);
    linear(k->mid, k->mixed, weight(m, t + PROJ), rows, c, c);
    gw_tokens_norm(k->ln2, k->told2, k->mid, weight(m, t + LN2), weight(m, t + LN2_B), rows, width);
    product(0, 1, rows, 4 * c, c, k->ln2, c, weight(m, t + FC), c, 0, k->slope, 4 * c);
    gw_tokens_gelu(k->gelu, k->slope, weight(m, t + FC_B), rows, 4 * width);
    gpt_add(out, k->mid, weight(m, t + OUT_B), rows, width);
    linear(out, k->gelu, weight(m, t + OUT), rows, 4 * c, c);
}

/* m->d_stream: the gradient of what the block gave becomes that of what it got. */
static void block_backward(gpt *m, int layer) {
    const gpt_kept *k = &m->kept[layer];
    int t = EMBEDDINGS + layer * BLOCK, width = m->shape.width;
    size_t rows = (size_t)m->batch * (size_t)m->shape.context, c = (size_t)width;
    float *d = m->d_stream, *wide = m->d_wide, *narrow = m->d_row;
    columns(slope(m, t + OUT_B), d, rows, width);
    linear_back(wide, slope(m, t + OUT), d, k->gelu, weight(m, t + OUT), rows, 4 * c, c);
    memset(slope(m, t + FC_B), 0, 4 * c * sizeof(float));
    gw_tokens_slope(wide, k->slope, slope(m, t + FC_B), rows, 4 * width, 0, 4 * width);
    linear_back(narrow, slope(m, t + FC), wide, k->ln2, weight(m, t + FC), rows, c, 4 * c);
    norm_back(m, t + LN2, d, narrow, k->mid, k->told2);
    columns(slope(m, t + PROJ_B), d, rows, width);
    linear_back(narrow, slope(m, t + PROJ), d, k->mixed, weight(m, t + PROJ), rows, c, c);
    attention_back(m, k, narrow, wide);
    columns(slope(m, t + QKV_B), wide, rows, 3 * width);
    linear_back(narrow, slope(m, t + QKV), wide, k->ln1, weight(m, t + QKV), rows, c, 3 * c);
    norm_back(m, t + LN1, d, narrow, k->in, k->told1);
}

double gpt_forward(gpt *m, const uint8_t *text, const size_t *at, int batch,
                   void (*needs)(void *to, int group), void *to) {
    gpt_shape s = m->shape;
    size_t t = (size_t)s.context, rows = (size_t)batch * t, c = (size_t)s.width;
    m->batch = batch;
    float *stream = s.layers ? m->kept[0].in : m->last;
    if (needs) {
        needs(to, 0);
    }
    for (size_t i = 0; i < (size_t)batch; i++) {
        memcpy(m->input + i * t, text + at[i], t);
        memcpy(m->target + i * t, text + at[i] + 1, t);
        gpt_embed(stream + i * t * c, weight(m, TABLE), weight(m, PLACE), m->input + i * t,
                  s.context, s.width);
    }
    for (int l = 0; l < s.layers; l++) {
        if (needs) {
            needs(to, l + 1);
        }
        block_forward(m, l, l + 1 < s.layers ? m->kept[l + 1].in : m->last);
    }
    if (needs) {
        needs(to, s.layers + 1);
    }
    gw_tokens_norm(m->norm, m->told, m->last, weight(m, m->count - 2), weight(m, m->count - 1),
                   rows, s.width);
    size_t v = (size_t)s.vocabulary;
    product(0, 1, rows, v, c, m->norm, c, weight(m, TABLE), c, 0, m->logits, v);
    float scale = 1.0F / (float)rows;
    return gpt_cross_entropy(m->logits, m->target, scale, rows, s.vocabulary) / (double)rows;
}

void gpt_backward(gpt *m, void (*done)(void *to, int group), void *to) {
    gpt_shape s = m->shape;
    size_t t = (size_t)s.context, rows = (size_t)m->batch * t, c = (size_t)s.width;
    linear_back(m->d_row, slope(m, TABLE), m->logits, m->norm, weight(m, TABLE), rows, c,
                (size_t)s.vocabulary);
    memset(m->d_stream, 0, rows * c * sizeof *m->d_stream);
    norm_back(m, m->count - 2, m->d_stream, m->d_row, m->last, m->told);
    for (int l = s.layers; l > 0; l--) {
        if (done) {
            done(to, l + 1);
        }
        block_backward(m, l - 1);
    }
    if (done) {
        done(to, 1);
    }
    memset(slope(m, PLACE), 0, t * c * sizeof(float));
    for (size_t i = 0; i < (size_t)m->batch; i++) {
        gpt_embed_back(slope(m, TABLE), slope(m, PLACE), m->d_stream + i * t * c, m->input + i * t,
                       s.context, s.width);
    }
    if (done) { /* the head's part of the embedding came first, the encoder's now */
        done(to, 0);
    }
}
