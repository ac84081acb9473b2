#include "roofline/twins.h"

#include "base/mem.h"
#include "base/rng.h"
#include "comm/encoder.h"
#include "nn/layer.h"
#include "prof/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 9, MOST_TRIES = 15, CODEC_UNIT = 512, ARRAYS_OF_CODING = 4, LONGEST_SPEC = 100 };
#define RUN_S      0.25e-3
#define ENOUGH_S   4e-3 /* of one product, unless a single one is longer */
#define MOST_BYTES 4e9  /* of a product's operands */

/* ---- names; NULL: there is no such twin ---- */

static const char *twin_product_name(const gw_product *p, char name[GW_CEILING_NAME]) {
    snprintf(name, GW_CEILING_NAME, "product %c%c %dx%dx%d", p->ta ? 't' : 'n', p->tb ? 't' : 'n',
             p->m, p->n, p->k);
    return name;
}

static const gw_layer *twin_layer(const gw_twin_setup *s, int l) {
    return &s->load.shard->layers[l].layer;
}

static const char *twin_pointwise_name(const gw_layer *of, gw_part part,
                                       char name[GW_CEILING_NAME]) {
    static const char *const transfers[] = {
        [GW_RELU] = "relu",
        [GW_SIGMOID] = "sigmoid",
        [GW_TANH] = "tanh",
        [GW_LINEAR] = "linear",
    };
    snprintf(name, GW_CEILING_NAME, "twin %s %s %d",
             part == GW_PART_FORWARD_POINTWISE ? "forward" : "backward", transfers[of->transfer],
             of->out);
    return name;
}

/* What moves whole tensors takes as long as their shapes make it. */
static const char *twin_update_name(const gw_twin_setup *s, char name[GW_CEILING_NAME]) {
    if (!s->optimizer || gw_optimizer_whole(s->optimizer))
        return NULL;
    snprintf(name, GW_CEILING_NAME, "twin update %s", gw_optimizer_kernel(s->optimizer));
    return name;
}

static const char *twin_coding_name(const gw_twin_setup *s, gw_coding kind,
                                    char name[GW_CEILING_NAME]) {
    static const char *const kinds[GW_CODINGS] = {"encode", "adopt", "add", "set", "sum"};
    if (!s->codec)
        return NULL;
    snprintf(name, GW_CEILING_NAME, "twin %s%s %d %s %s", s->framed ? "framed " : "",
             s->feedback ? "feedback" : "codec", s->joined, kinds[kind], s->codec->text);
    return name;
}

static const char fork_name[] = "parallel region";

/* ---- timing ---- */

/* Best time of a call. `once` is called again and again: it must leave its data as fit as before.
 */
static double twin_best_of(void (*once)(void *ctx), void *ctx, int tries) {
    uint64_t calls = 1;
    double best = INFINITY;
    for (int t = -1; t < tries;) {
        uint64_t start = gw_clock_ticks();
        for (uint64_t i = 0; i < calls; i++)
            once(ctx);
        double took = gw_clock_since(start);
        if (t < 0 && took < RUN_S / 2) {
            calls *= 2;
            continue;
        }
        if (t >= 0)
            best = fmin(best, took / (double)calls);
        t++;
    }
    return best;
}

static size_t twin_resident(const gw_ceilings *c) {
    return c->caches[0].bytes / 2 / sizeof(float);
}

/* What is asked for becomes the latest, and so is the last to give its place to another. */
static bool twins_known(gw_ceilings *c, const char *name) {
    double seconds = gw_ceilings_time(c, name);
    if (isnan(seconds))
        return false;
    gw_ceilings_keep(c, name, seconds);
    gw_ceilings_use(c, name);
    return true;
}

static void twins_keep(gw_ceilings *c, const char *name, double seconds, int *added) {
    ++*added;
    gw_ceilings_keep(c, name, seconds);
    gw_ceilings_use(c, name);
}

static void twins_fill(float *x, size_t n, double scale) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(scale * gw_rng_normal(n, i));
}

/* ---- products ---- */

int gw_twin_products(const gw_shard *shard, int rows, gw_product out[GW_PRODUCTS]) {
    int n = 0;
    for (int l = 0; l < shard->n_layers; l++)
        n += gw_twin_products_of(shard, l, rows, out + n);
    return n;
}

int gw_twin_products_of(const gw_shard *shard, int l, int rows, gw_product out[GW_UNIT_PRODUCTS]) {
    const gw_model_spec *spec = &shard->spec;
    return gw_model_ops_of(spec)->products(spec, &shard->layers[l], rows, out);
}

gw_err gw_twin_time_product(const gw_product *of, double *seconds) {
    size_t m = (size_t)of->m, n = (size_t)of->n, k = (size_t)of->k;
    float *a = NULL, *b = NULL, *c = NULL;
    double best = INFINITY, spent = 0;
    gw_err e = gw_alloc(&a, m * k, sizeof *a);
    GW_THEN(e, gw_alloc(&b, k * n, sizeof *b));
    GW_THEN(e, gw_alloc(&c, m * n, sizeof *c));
    for (size_t i = 0; e == GW_OK && i < m * k; i++)
        a[i] = (float)(i % 7) - 3;
    for (size_t i = 0; e == GW_OK && i < k * n; i++)
        b[i] = (float)(i % 5) - 2;
    for (int t = -1; e == GW_OK && t < MOST_TRIES && (t < 1 || spent < ENOUGH_S); t++) {
        uint64_t start = gw_clock_ticks();
        gw_gemm(of->ta, of->tb, of->m, of->n, of->k, a, of->ta ? of->m : of->k, b,
                of->tb ? of->k : of->n, of->add ? 1 : 0, c, of->n);
        double took = gw_clock_since(start);
        spent += took;
        if (t >= 0)
            best = fmin(best, took);
    }
    free(a);
    free(b);
    free(c);
    *seconds = best;
    return e;
}

static gw_err twin_measure_products(gw_ceilings *c, const gw_twin_setup *s, int *added) {
    gw_product all[GW_PRODUCTS];
    int n = s->load.batch > 0 ? gw_twin_products(s->load.shard, gw_load_rows(&s->load), all) : 0;
    for (int i = 0; i < n; i++) {
        char name[GW_CEILING_NAME];
        double m = all[i].m, w = all[i].n, k = all[i].k;
        if (twins_known(c, twin_product_name(&all[i], name)) ||
            (m * k + k * w + m * w) * sizeof(float) > MOST_BYTES)
            continue;
        double seconds;
        if (gw_twin_time_product(&all[i], &seconds) == GW_OK) /* or it does not fit the memory */
            twins_keep(c, name, seconds, added);
    }
    return n > 0 ? gw_gemm_check() : GW_OK;
}

/* ---- pointwise kernels ---- */

typedef struct bout {
    gw_activation transfer;
    int rows, cols;
    float *y, *dy, *bias; /* bias: 0, so that y stays what it is; backward: column sums */
    bool backward;
} bout;

static void twin_pointwise(void *ctx) {
    bout *b = ctx;
    if (b->backward)
        gw_layer_start(b->transfer, b->bias, b->dy, b->y, b->rows, b->cols, (size_t)b->cols);
    else
        gw_layer_finish(b->transfer, b->y, b->bias, b->rows, b->cols);
}

/* As many rows of the layer's own width as fit; of a layer wider than that a part of a row. */
static gw_err twin_measure_pointwise(gw_ceilings *c, const gw_layer *of, gw_part part, int *added) {
    char name[GW_CEILING_NAME];
    if (twins_known(c, twin_pointwise_name(of, part, name)))
        return GW_OK;
    bout b = {
        .transfer = of->transfer, .cols = of->out, .backward = part == GW_PART_BACKWARD_POINTWISE};
    size_t arrays = b.backward ? 2 : 1, room = twin_resident(c);
    if ((size_t)b.cols * (arrays + 1) > room)
        b.cols = (int)(room / (arrays + 1));
    size_t cols = (size_t)b.cols, rows = (room - cols) / (arrays * cols), n = rows * cols;
    b.rows = (int)rows;
    float *memory = NULL; /* one block: three would share the cache's sets by chance */
    GW_TRY(gw_alloc(&memory, 2 * n + cols, sizeof *memory));
    b.y = memory;
    b.dy = memory + n;
    b.bias = memory + 2 * n;
    twins_fill(b.y, n, 0.5);
    twins_fill(b.dy, n, 1e-3);
    twins_keep(c, name, twin_best_of(twin_pointwise, &b, TRIES) / (double)n, added);
    free(memory);
    return GW_OK;
}

/* ---- the optimizer ---- */

typedef struct update {
    gw_optimizer *optimizer;
    float *param, *grad;
    size_t n;
} update;

static void twins_move(void *ctx) {
    update *u = ctx;
    gw_optimizer_update(u->optimizer, u->param, u->grad, (gw_span){0, u->n}, 1e-6f, 1.0f);
}

static gw_err twin_measure_update(gw_ceilings *c, const gw_twin_setup *s, int *added) {
    char name[GW_CEILING_NAME];
    if (!twin_update_name(s, name) || twins_known(c, name))
        return GW_OK;
    update u = {.n = twin_resident(c) / (size_t)(2 + s->optimizer->state.count)};
    float *memory = NULL;
    GW_TRY(gw_alloc(&memory, 2 * u.n, sizeof *memory));
    u.param = memory;
    u.grad = memory + u.n;
    twins_fill(memory, 2 * u.n, 0.1);
    gw_err e = gw_optimizer_like(&u.optimizer, s->optimizer, u.n);
    if (e == GW_OK)
        twins_keep(c, name, twin_best_of(twins_move, &u, TRIES) / (double)u.n, added);
    gw_optimizer_close(u.optimizer);
    free(memory);
    return e;
}

/* ---- the codec ---- */

typedef struct coding {
    gw_encoder encoder;
    uint64_t ticket;
    gw_coding kind;
    const float *gradient;
    float *x;
    void *wire;
    size_t n, cap, len;
    gw_err e;
} coding;

static void twins_restore(void *ctx) {
    coding *k = ctx;
    memcpy(k->x, k->gradient, k->n * sizeof *k->x);
    __asm__ volatile("" ::: "memory");
}

/* What an encoding leaves of x is undefined, so it gets back what it was; the copy's own time is
 * taken off. */
static void twins_code(void *ctx) {
    coding *k = ctx;
    gw_span all = {0, k->n};
    bool encodes = k->kind == GW_CODING_ENCODE || k->kind == GW_CODING_ADOPT;
    twins_restore(k);
    gw_err e = encodes ? gw_encoder_encode(&k->encoder, k->ticket++, k->x, all,
                                           k->kind == GW_CODING_ADOPT, k->wire, k->cap, &k->len)
                       : gw_encoder_decode(&k->encoder, k->wire, k->len, k->x, all,
                                           k->kind == GW_CODING_ADD);
    k->e = k->e == GW_OK ? e : k->e;
}

static gw_err twin_code_resident(gw_ceilings *c, const gw_twin_setup *s, gw_codec *codec,
                                 int *added) {
    coding k = {.n = twin_resident(c) / ARRAYS_OF_CODING / CODEC_UNIT * CODEC_UNIT};
    k.n = k.n < CODEC_UNIT ? CODEC_UNIT : k.n;
    gw_encoders of = {.n = k.n, .seed = 1};
    k.encoder = (gw_encoder){.of = &of, .ranks = 1};
    GW_TRY(gw_encoder_open(&k.encoder, codec, s->feedback));
    k.ticket = (uint64_t)1 << 40; /* beyond any warm-up: what the run is like for long */
    float *memory = NULL;
    gw_err e = gw_codec_join(codec, s->joined);
    GW_THEN(e, gw_alloc(&memory, 2 * k.n, sizeof *memory));
    if (e == GW_OK) {
        k.cap = gw_codec_bound(codec, k.n);
        e = gw_alloc(&k.wire, k.cap, 1);
    }
    if (e == GW_OK) {
        twins_fill(memory, k.n, 1e-2);
        k.gradient = memory;
        k.x = memory + k.n;
    }
    double copy = e == GW_OK ? twin_best_of(twins_restore, &k, TRIES) : 0;
    for (k.kind = GW_CODING_ENCODE; e == GW_OK && k.kind <= GW_CODING_SET; k.kind++) {
        char name[GW_CEILING_NAME];
        twin_coding_name(s, k.kind, name);
        double seconds = fmax(twin_best_of(twins_code, &k, TRIES) - copy, 0) / (double)k.n;
        e = k.e;
        if (e == GW_OK)
            twins_keep(c, name, fmax(seconds, 1e-15), added); /* a file's times are positive */
    }
    free(memory);
    free(k.wire);
    gw_encoders_close(&of);
    return e;
}

/* The codec is an instance of its own, since the session's was told its ranks. A long spec has no
 * place in a name. */
static gw_err twin_measure_codec(gw_ceilings *c, const gw_twin_setup *s, int *added) {
    char name[GW_CEILING_NAME];
    gw_codec codec;
    if (!s->codec || strlen(s->codec->text) > LONGEST_SPEC)
        return GW_OK;
    bool all = true;
    for (int k = GW_CODING_ENCODE; k <= GW_CODING_SET; k++)
        all &= twins_known(c, twin_coding_name(s, (gw_coding)k, name));
    if (all)
        return GW_OK;
    GW_TRY(gw_codec_open(&codec, s->codec));
    if (s->framed)
        gw_codec_frame(&codec);
    gw_err e = twin_code_resident(c, s, &codec, added);
    gw_codec_close(&codec);
    return e;
}

/* ---- all ---- */

static void twin_fork_once(void *ctx) {
#pragma omp parallel num_threads(*(int *)ctx)
    __asm__ volatile("" ::: "memory");
}

gw_err gw_twins_measure(gw_ceilings *c, const gw_twin_setup *s, int *added) {
    *added = 0;
    gw_clock_start();
    GW_TRY(twin_measure_products(c, s, added));
    bool dense = gw_model_spec_dense(&s->load.shard->spec);
    for (int l = 0; dense && s->load.batch > 0 && l < s->load.shard->n_layers; l++) {
        GW_TRY(twin_measure_pointwise(c, twin_layer(s, l), GW_PART_FORWARD_POINTWISE, added));
        GW_TRY(twin_measure_pointwise(c, twin_layer(s, l), GW_PART_BACKWARD_POINTWISE, added));
    }
    GW_TRY(twin_measure_update(c, s, added));
    GW_TRY(twin_measure_codec(c, s, added));
    int threads = s->threads;
    if (threads > 1 && !twins_known(c, fork_name))
        twins_keep(c, fork_name, twin_best_of(twin_fork_once, &threads, TRIES), added);
    return GW_OK;
}

static double twin_time(const gw_ceilings *c, const char *name) {
    return name ? gw_ceilings_time(c, name) : NAN;
}

double gw_twin_product(const gw_ceilings *c, const gw_product *p) {
    char name[GW_CEILING_NAME];
    return twin_time(c, twin_product_name(p, name));
}

double gw_twin_pointwise(const gw_ceilings *c, const gw_twin_setup *s, int l, gw_part part) {
    char name[GW_CEILING_NAME];
    bool dense = gw_model_spec_dense(&s->load.shard->spec);
    return twin_time(c, dense ? twin_pointwise_name(twin_layer(s, l), part, name) : NULL);
}

double gw_twin_update(const gw_ceilings *c, const gw_twin_setup *s) {
    char name[GW_CEILING_NAME];
    return twin_time(c, twin_update_name(s, name));
}

double gw_twin_coded(const gw_ceilings *c, const gw_twin_setup *s, gw_coding kind) {
    char name[GW_CEILING_NAME];
    return twin_time(c, twin_coding_name(s, kind, name));
}

double gw_twin_fork(const gw_ceilings *c) {
    return gw_ceilings_time(c, fork_name);
}
