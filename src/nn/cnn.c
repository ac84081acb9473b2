/* cnn: convolutional networks for images. `lenet5`: LeCun et al., "Gradient-based learning applied
 * to document recognition", 1998, with rectifiers and maxima; `resnet`: the small ones of He et
 * al., "Deep residual learning for image recognition", CVPR 2016, 4.2: 2 + 6 `blocks` layers. Its
 * units: a convolution with what follows it, a residual block of two, a dense layer, a mean over
 * the image with the last layer. Images have their channels innermost, samples their planes. */
#include "base/rng.h"
#include "nn/conv.h"
#include "nn/model_ops.h"
#include "nn/shard.h"

#include <math.h>
#include <string.h>

/* ---- units: their shapes, of the options ---- */

enum { LENET5, RESNET };
enum { STAGES = 3 };

typedef struct self {
    int64_t preset, width, blocks, channels;
} self;

typedef enum kind { CONVOLUTION, BLOCK, DENSE, HEAD } kind;

/* first: of a convolution, or of a block; second, across: of a block, `across` only where the
 * shortcut has to change its shape. */
typedef struct unit {
    kind kind;
    gw_conv first, second, across;
    bool norm, pool, crosses; /* of a convolution: normalised, or with biases; then pooled */
    int in, out, places;      /* floats of a row; of the head: of an image */
} unit;

static const self *cnn_self(const gw_model_spec *spec) {
    return (const self *)spec->self;
}

static gw_err cnn_open(gw_model_spec *spec, const gw_args *args) {
    self *me = (self *)spec->self;
    bool resnet = strcmp(gw_args_text(args, "preset"), "resnet") == 0;
    *me = (self){resnet ? RESNET : LENET5, gw_args_int(args, "width"), gw_args_int(args, "blocks"),
                 gw_args_int(args, "channels")};
    if (!resnet && (gw_args_given(args, "width") || gw_args_given(args, "blocks")))
        return gw_fail(GW_ERR_USAGE, "cnn: width and blocks are of preset=resnet");
    return GW_OK;
}

static int cnn_units(const gw_model_spec *spec) {
    const self *me = cnn_self(spec);
    return me->preset == LENET5 ? 5 : 2 + STAGES * (int)me->blocks;
}

/* The side of a sample's image; 0: it is no square. */
static int cnn_side(const gw_model_spec *spec) {
    int channels = (int)cnn_self(spec)->channels;
    int side = (int)lround(sqrt((double)spec->inputs / channels));
    return side * side * channels == spec->inputs ? side : 0;
}

static const char *cnn_refuses(const gw_model_spec *spec) {
    if (cnn_side(spec) == 0)
        return "they must be `channels` square images: give --image-size, or for colour images "
               "cnn:channels=3";
    return cnn_self(spec)->preset == LENET5 && cnn_side(spec) < 12
               ? "lenet5 takes images of 12 x 12 or more: give --image-size, or preset=resnet"
               : NULL;
}

static gw_conv cnn_conv(int channels, int side, int filters, int kernel, int stride, int pad) {
    return (gw_conv){.channels = channels,
                     .rows = side,
                     .cols = side,
                     .filters = filters,
                     .kernel = kernel,
                     .stride = stride,
                     .pad = pad};
}

static unit cnn_convolution(gw_conv c, bool norm, bool pool) {
    int rows = gw_conv_rows(&c), cols = gw_conv_cols(&c);
    return (unit){.kind = CONVOLUTION,
                  .first = c,
                  .norm = norm,
                  .pool = pool,
                  .in = c.rows * c.cols * c.channels,
                  .out = c.filters * (pool ? rows / 2 * (cols / 2) : rows * cols)};
}

static unit cnn_dense(int in, int out) {
    return (unit){.kind = DENSE, .in = in, .out = out, .places = 1};
}

static unit cnn_resnet(const gw_model_spec *spec, int l) {
    const self *me = cnn_self(spec);
    int side = cnn_side(spec), width = (int)me->width, blocks = (int)me->blocks;
    gw_conv entry = cnn_conv((int)me->channels, side, width, 3, 1, 1);
    entry.planes = true;
    if (l == 0)
        return cnn_convolution(entry, true, false);
    int stage = l + 1 == cnn_units(spec) ? STAGES - 1 : (l - 1) / blocks;
    bool opens = stage > 0 && (l - 1) % blocks == 0; /* halves the image, doubles the channels */
    for (int s = 0; s < stage; s++) {
        bool now = s + 1 == stage && opens && l + 1 < cnn_units(spec);
        side = now ? side : (side + 1) / 2;
        width *= now ? 1 : 2;
    }
    if (l + 1 == cnn_units(spec))
        return (unit){
            .kind = HEAD, .in = side * side * width, .out = spec->classes, .places = side * side};
    int stride = opens ? 2 : 1, filters = opens ? 2 * width : width;
    unit u = {.kind = BLOCK,
              .first = cnn_conv(width, side, filters, 3, stride, 1),
              .across = cnn_conv(width, side, filters, 1, stride, 0),
              .crosses = opens,
              .norm = true,
              .in = side * side * width};
    u.second = cnn_conv(filters, gw_conv_rows(&u.first), filters, 3, 1, 1);
    u.out = filters * gw_conv_places(&u.second);
    return u;
}

static unit cnn_plan(const gw_model_spec *spec, int l) {
    if (cnn_self(spec)->preset == RESNET)
        return cnn_resnet(spec, l);
    int side = cnn_side(spec), channels = (int)cnn_self(spec)->channels;
    gw_conv one = cnn_conv(channels, side, 6, 5, 1, 2);
    one.planes = true;
    gw_conv two = cnn_conv(6, side / 2, 16, 5, 1, 0);
    int flat = 16 * (gw_conv_rows(&two) / 2) * (gw_conv_cols(&two) / 2);
    switch (l) {
    case 0: return cnn_convolution(one, false, true);
    case 1: return cnn_convolution(two, false, true);
    case 2: return cnn_dense(flat, 120);
    case 3: return cnn_dense(120, 84);
    default: return cnn_dense(84, spec->classes);
    }
}

static const gw_opt cnn_opts[] = {
    {"preset", GW_OPT_CHOICE, "lenet5", 0, 0, "lenet5|resnet", NULL,
     "two convolutions and three dense layers, or residual blocks"},
    {"width", GW_OPT_INT, "16", 1, 1024, NULL, "N",
     "resnet: channels of the first of its three stages"},
    {"blocks", GW_OPT_INT, "1", 1, 20, NULL, "N", "resnet: residual blocks per stage"},
    {"channels", GW_OPT_INT, "1", 1, 16, NULL, "N", "planes of a sample, a square image"},
    {0}};

/* ---- a unit's tensors ---- */

/* Behind the weights of a convolution that is normalised; else its biases are. */
enum { WEIGHTS, GAIN, BIAS, MEAN, VAR, NORMED };

static void cnn_add(gw_unit *u, int rows, int cols, bool tracks) {
    u->tensor[u->n_tensors].rows = rows;
    u->tensor[u->n_tensors].cols = cols;
    u->tensor[u->n_tensors++].tracks = tracks;
}

static void cnn_add_conv(gw_unit *u, const gw_conv *c, bool norm) {
    cnn_add(u, gw_conv_patch(c), c->filters, false);
    for (int i = GAIN; i < (norm ? NORMED : BIAS); i++)
        cnn_add(u, 1, c->filters, i >= MEAN);
}

static size_t cnn_conv_floats(const gw_conv *c, bool norm) {
    return (size_t)c->filters * ((size_t)gw_conv_patch(c) + (norm ? NORMED - GAIN : 1));
}

/* Where one's lie. */
typedef struct tensors {
    float *w, *gain, *bias, *mean, *var;
} tensors;

static tensors cnn_tensors(const gw_conv *c, float *at) {
    size_t n = (size_t)c->filters;
    float *gain = at + (size_t)gw_conv_patch(c) * n;
    return (tensors){at, gain, gain + n, gain + 2 * n, gain + 3 * n};
}

/* ---- what a unit keeps ---- */

/* Of all rows of a call. z: what a convolution gave; d: the gradient of that; told: mean and
 * variance. a: of a block, what is between. */
typedef struct kept {
    float *z[3], *d[3], *told[3], *a, *room;
} kept;

enum { FIRST, SECOND, ACROSS };

static size_t cnn_take(float **area, float *base, size_t n, size_t *at, size_t floats) {
    *area = base + n * *at;
    *at += floats;
    return floats;
}

/* Floats of a row; with `base`, where the areas of n rows are. */
static size_t cnn_keep(const unit *u, float *base, size_t n, kept *k) {
    size_t at = 0, room = 0;
    const gw_conv *all[] = {&u->first, u->kind == BLOCK ? &u->second : NULL,
                            u->crosses ? &u->across : NULL};
    if (u->kind == HEAD)
        cnn_take(&k->a, base, n, &at, (size_t)(u->in / u->places));
    for (int i = 0; i < 3 && u->kind <= BLOCK; i++) {
        if (!all[i])
            continue;
        size_t floats = (size_t)(all[i]->filters * gw_conv_places(all[i]));
        cnn_take(&k->z[i], base, n, &at, floats);
        cnn_take(&k->d[i], base, n, &at, floats);
        cnn_take(&k->told[i], base, n, &at, 2 * (size_t)all[i]->filters);
        room = gw_conv_room(all[i]) > room ? gw_conv_room(all[i]) : room;
    }
    if (u->kind == BLOCK)
        cnn_take(&k->a, base, n, &at, (size_t)(u->first.filters * gw_conv_places(&u->first)));
    if (u->pool)
        cnn_take(&k->a, base, n, &at, (size_t)(u->first.filters * gw_conv_places(&u->first)));
    cnn_take(&k->room, base, n, &at, room);
    return at;
}

static kept cnn_kept(const unit *u, const gw_unit_rows *r) {
    kept k = {0};
    cnn_keep(u, r->kept, (size_t)r->n, &k);
    return k;
}

static gw_unit cnn_unit(const gw_model_spec *spec, int l) {
    unit u = cnn_plan(spec, l);
    kept none = {0};
    gw_unit out = {
        .in = u.in, .out = u.out, .kept = gw_model_spec_kept(cnn_keep(&u, NULL, 0, &none))};
    if (u.kind <= BLOCK)
        cnn_add_conv(&out, &u.first, u.norm);
    if (u.kind == BLOCK)
        cnn_add_conv(&out, &u.second, true);
    if (u.crosses)
        cnn_add_conv(&out, &u.across, true);
    if (u.kind >= DENSE) {
        cnn_add(&out, u.in / u.places, u.out, false);
        cnn_add(&out, 1, u.out, false);
    }
    return out;
}

/* Patches by weights, each convolution as one product of all rows. */
static int cnn_products(const gw_model_spec *spec, const gw_shard_layer *held, int rows,
                        gw_product out[GW_UNIT_PRODUCTS]) {
    unit u = cnn_plan(spec, held->number);
    int sides[3][3] = {{u.in / (u.places ? u.places : 1), u.out, 1}}, n = 0, count = 1;
    const gw_conv *all[] = {&u.first, &u.second, &u.across};
    if (u.kind <= BLOCK)
        count = u.kind == BLOCK ? 2 + u.crosses : 1;
    for (int i = 0; i < count; i++) {
        int *s = sides[i];
        if (u.kind <= BLOCK) {
            s[0] = gw_conv_patch(all[i]);
            s[1] = all[i]->filters;
            s[2] = gw_conv_places(all[i]);
        }
        int m = rows * s[2];
        out[n++] = (gw_product){.m = m, .n = s[1], .k = s[0]};
        out[n++] = (gw_product){.ta = true, .m = s[0], .n = s[1], .k = m};
        if (held->number > 0)
            out[n++] = (gw_product){.tb = true, .m = m, .n = s[0], .k = s[1]};
    }
    return n;
}

/* He: N(0, 2 / inputs of a filter); the last layer N(0, 1 / inputs). Gains and variances 1. */
static void cnn_initialise(const gw_model_spec *spec, const gw_shard_layer *held, float *w) {
    gw_unit u = cnn_unit(spec, held->number);
    bool last = held->number + 1 == cnn_units(spec),
         dense = cnn_plan(spec, held->number).kind >= DENSE;
    bool norm = cnn_plan(spec, held->number).norm;
    uint64_t key = gw_rng_key(gw_rng_key(spec->seed, 0x636e6e69), (uint64_t)held->number);
    for (int i = 0; i < u.n_tensors; i++) {
        size_t n = (size_t)u.tensor[i].rows * (size_t)u.tensor[i].cols;
        double sigma = sqrt((last ? 1.0 : 2.0) / u.tensor[i].rows);
        int role = dense ? i : i % NORMED;
        bool one = norm && !dense && (role == GAIN || role == VAR);
        uint64_t own = gw_rng_key(key, (uint64_t)i);
#pragma omp parallel for schedule(static)
        for (size_t j = 0; j < n; j++)
            w[j] = u.tensor[i].rows > 1 || role == WEIGHTS ? (float)(sigma * gw_rng_normal(own, j))
                                                           : (float)one;
        w += n;
    }
}

/* ---- forward ---- */

/* y = f(z), z = x * w: normalised by its own statistics, or, in an evaluation, by those that were
 * tracked; or with biases. */
static void cnn_finish(const gw_conv *c, bool norm, const tensors *t, const float *z, float *told,
                       const float *more, bool relu, float *y, const gw_unit_rows *r) {
    size_t rows = (size_t)r->n * (size_t)gw_conv_places(c), n = (size_t)c->filters;
    if (!norm) {
#pragma omp parallel for schedule(static)
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < n; j++) {
                float v = z[i * n + j] + t->gain[j]; /* the biases */
                y[i * n + j] = v < 0 ? 0 : v;
            }
        return;
    }
    if (r->share > 0)
        gw_norm_tell(z, rows, c->filters, told, told + n);
    gw_norm_apply(z, r->share > 0 ? told : t->mean, r->share > 0 ? told + n : t->var, t->gain,
                  t->bias, more, relu, y, rows, c->filters);
}

static void cnn_product_block(const unit *u, float *w, const kept *k, const gw_unit_rows *r) {
    tensors first = cnn_tensors(&u->first, w);
    float *at = w + cnn_conv_floats(&u->first, true);
    tensors second = cnn_tensors(&u->second, at);
    tensors across = cnn_tensors(&u->across, at + cnn_conv_floats(&u->second, true));
    const float *more = r->x;
    gw_conv_forward(&u->first, r->x, first.w, k->z[FIRST], r->n, k->room);
    cnn_finish(&u->first, true, &first, k->z[FIRST], k->told[FIRST], NULL, true, k->a, r);
    gw_conv_forward(&u->second, k->a, second.w, k->z[SECOND], r->n, k->room);
    if (u->crosses) {
        gw_conv_forward(&u->across, r->x, across.w, k->z[ACROSS], r->n, k->room);
        cnn_finish(&u->across, true, &across, k->z[ACROSS], k->told[ACROSS], NULL, false,
                   k->d[ACROSS], r);
        more = k->d[ACROSS];
    }
    cnn_finish(&u->second, true, &second, k->z[SECOND], k->told[SECOND], more, true, r->y, r);
}

static void cnn_product(const gw_model_spec *spec, const gw_shard_layer *held, const float *params,
                        const gw_unit_rows *r) {
    unit u = cnn_plan(spec, held->number);
    kept k = cnn_kept(&u, r);
    float *w = (float *)params; /* it is only read */
    if (u.kind == CONVOLUTION) {
        tensors t = cnn_tensors(&u.first, w);
        gw_conv_forward(&u.first, r->x, t.w, k.z[FIRST], r->n, k.room);
        cnn_finish(&u.first, u.norm, &t, k.z[FIRST], k.told[FIRST], NULL, true, u.pool ? k.a : r->y,
                   r);
        if (u.pool)
            gw_pool_forward(k.a, r->y, r->n, gw_conv_rows(&u.first), gw_conv_cols(&u.first),
                            u.first.filters);
        return;
    }
    if (u.kind == BLOCK) {
        cnn_product_block(&u, w, &k, r);
        return;
    }
    size_t in = (size_t)(u.in / u.places), out = (size_t)u.out;
    const float *x = r->x, *bias = params + in * out;
    if (u.kind == HEAD) { /* means over the places of each image: (n, channels) */
        memset(k.a, 0, (size_t)r->n * in * sizeof *k.a);
        for (int i = 0; i < r->n * u.places; i++, x += in)
            for (size_t j = 0; j < in; j++)
                k.a[(size_t)(i / u.places) * in + j] += x[j] / (float)u.places;
        x = k.a;
    }
    bool relu = held->number + 1 < cnn_units(spec);
    gw_gemm(false, false, r->n, u.out, (int)in, x, (int)in, params, u.out, 0, r->y, u.out);
    for (size_t i = 0; i < (size_t)r->n * out; i++) {
        float v = r->y[i] + bias[i % out];
        r->y[i] = relu && v < 0 ? 0 : v;
    }
}

/* ---- backward ---- */

/* d = the gradient of z from that of f(z), which d is. The running statistics are to be moved by
 * what `mean` and `var` get (gw_unit's `tracks`): of the unbiased variance, as others track it. */
static void cnn_enter_norm(const gw_conv *c, float *w, float *grads, const float *z,
                           const float *told, const float *dy, float *d, const gw_unit_rows *r) {
    tensors t = cnn_tensors(c, w), g = cnn_tensors(c, grads);
    size_t rows = (size_t)r->n * (size_t)gw_conv_places(c);
    float unbiased = rows > 1 ? (float)rows / ((float)rows - 1) : 1;
    gw_norm_back(z, told, told + c->filters, t.gain, dy, d, g.gain, g.bias, rows, c->filters);
    for (int j = 0; j < c->filters; j++) {
        g.mean[j] += r->share * (t.mean[j] - told[j]);
        g.var[j] += r->share * (t.var[j] - told[c->filters + j] * unbiased);
    }
}

static void cnn_enter_conv(const unit *u, float *w, float *grads, const kept *k,
                           const gw_unit_rows *r) {
    const gw_conv *c = &u->first;
    size_t rows = (size_t)r->n * (size_t)gw_conv_places(c), n = (size_t)c->filters;
    const float *y = u->pool ? k->a : r->y;
    float *d = k->d[FIRST];
    if (u->pool)
        gw_pool_back(k->a, r->dy, d, r->n, gw_conv_rows(c), gw_conv_cols(c), c->filters);
    else
        memcpy(d, r->dy, rows * n * sizeof *d);
    gw_relu_back(d, y, rows * n);
    if (u->norm) {
        cnn_enter_norm(c, w, grads, k->z[FIRST], k->told[FIRST], d, d, r);
        return;
    }
    float *bias = cnn_tensors(c, grads).gain;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < n; j++)
            bias[j] += d[i * n + j];
}

static void cnn_enter_block(const unit *u, float *w, float *grads, const kept *k,
                            const gw_unit_rows *r) {
    size_t one = cnn_conv_floats(&u->first, true), two = one + cnn_conv_floats(&u->second, true);
    size_t n = (size_t)r->n * (size_t)u->out;
    size_t between = (size_t)r->n * (size_t)(u->first.filters * gw_conv_places(&u->first));
    gw_relu_back(r->dy, r->y, n);
    if (u->crosses)
        cnn_enter_norm(&u->across, w + two, grads + two, k->z[ACROSS], k->told[ACROSS], r->dy,
                       k->d[ACROSS], r);
    cnn_enter_norm(&u->second, w + one, grads + one, k->z[SECOND], k->told[SECOND], r->dy,
                   k->d[SECOND], r);
    memset(k->d[FIRST], 0, between * sizeof(float));
    gw_conv_inputs(&u->second, k->d[SECOND], w + one, k->d[FIRST], r->n, k->room);
    gw_relu_back(k->d[FIRST], k->a, between);
    cnn_enter_norm(&u->first, w, grads, k->z[FIRST], k->told[FIRST], k->d[FIRST], k->d[FIRST], r);
}

static void cnn_enter(const gw_model_spec *spec, const gw_shard_layer *held, const float *params,
                      float *grads, bool add, const gw_unit_rows *r) {
    unit u = cnn_plan(spec, held->number);
    gw_unit all = cnn_unit(spec, held->number);
    kept k = cnn_kept(&u, r);
    float *w = (float *)params; /* it is only read */
    size_t at = 0;
    for (int i = 0; i < all.n_tensors && !add; i++) { /* what follows adds to vectors */
        size_t n = (size_t)all.tensor[i].rows * (size_t)all.tensor[i].cols;
        if (all.tensor[i].rows == 1 && i > 0)
            memset(grads + at, 0, n * sizeof *grads);
        at += n;
    }
    if (u.kind == CONVOLUTION)
        cnn_enter_conv(&u, w, grads, &k, r);
    if (u.kind == BLOCK)
        cnn_enter_block(&u, w, grads, &k, r);
    if (u.kind < DENSE)
        return;
    float *bias = grads + (size_t)(u.in / u.places) * (size_t)u.out;
    size_t n = (size_t)r->n * (size_t)u.out;
    if (held->number + 1 < cnn_units(spec))
        gw_relu_back(r->dy, r->y, n);
    for (size_t i = 0; i < n; i++)
        bias[i % (size_t)u.out] += r->dy[i];
}

static void cnn_descend(const gw_model_spec *spec, const gw_shard_layer *held, const float *params,
                        const gw_unit_rows *r) {
    unit u = cnn_plan(spec, held->number);
    kept k = cnn_kept(&u, r);
    size_t n = (size_t)r->n * (size_t)u.in;
    int in = u.in / (u.places ? u.places : 1);
    if (u.kind == DENSE) {
        gw_gemm(false, true, r->n, in, u.out, r->dy, u.out, params, u.out, 0, r->dx, in);
        return;
    }
    if (u.kind == HEAD) {
        for (int i = 0; i < r->n; i++) {
            float *dx = r->dx + (size_t)i * (size_t)u.in;
            gw_gemm(false, true, 1, in, u.out, r->dy + (size_t)i * (size_t)u.out, u.out, params,
                    u.out, 0, dx, in);
            for (int j = 0; j < in; j++)
                dx[j] /= (float)u.places;
            for (int p = 1; p < u.places; p++)
                memcpy(dx + (size_t)p * (size_t)in, dx, (size_t)in * sizeof *dx);
        }
        return;
    }
    if (u.kind == BLOCK && !u.crosses)
        memcpy(r->dx, r->dy, n * sizeof *r->dx);
    else
        memset(r->dx, 0, n * sizeof *r->dx);
    if (u.crosses)
        gw_conv_inputs(&u.across, k.d[ACROSS],
                       params + cnn_conv_floats(&u.first, true) + cnn_conv_floats(&u.second, true),
                       r->dx, r->n, k.room);
    gw_conv_inputs(&u.first, k.d[FIRST], params, r->dx, r->n, k.room);
}

static void cnn_weights(const gw_model_spec *spec, const gw_shard_layer *held, float *grads,
                        bool add, const gw_unit_rows *r) {
    unit u = cnn_plan(spec, held->number);
    kept k = cnn_kept(&u, r);
    float beta = add ? 1 : 0;
    if (u.kind >= DENSE) {
        int in = u.in / u.places;
        gw_gemm(true, false, in, u.out, r->n, u.kind == HEAD ? k.a : r->x, in, r->dy, u.out, beta,
                grads, u.out);
        return;
    }
    gw_conv_weights(&u.first, r->x, k.d[FIRST], beta, grads, r->n, k.room);
    grads += cnn_conv_floats(&u.first, u.norm);
    if (u.kind == BLOCK)
        gw_conv_weights(&u.second, k.a, k.d[SECOND], beta, grads, r->n, k.room);
    if (u.crosses)
        gw_conv_weights(&u.across, r->x, k.d[ACROSS], beta,
                        grads + cnn_conv_floats(&u.second, true), r->n, k.room);
}

const gw_model_ops gw_model_cnn = {
    .head = {GW_MODEL_ABI, "cnn", "convolutions: LeNet-5, or a small ResNet", cnn_opts},
    .open = cnn_open,
    .refuses = cnn_refuses,
    .units = cnn_units,
    .unit = cnn_unit,
    .products = cnn_products,
    .initialise = cnn_initialise,
    .product = cnn_product,
    .enter = cnn_enter,
    .descend = cnn_descend,
    .weights = cnn_weights,
};
