#include "nn/gpt_plan.h"

#include "base/rng.h"

#include <math.h>

enum { WIDEN = 4 }; /* the perceptron's hidden neurons, of the width */

typedef struct self {
    int64_t layers, heads, width;
} self;

static const self *gpt_self(const gw_model_spec *spec) {
    return (const self *)spec->self;
}

gw_err gw_gpt_open(gw_model_spec *spec, const gw_args *args) {
    self *me = (self *)spec->self;
    *me =
        (self){gw_args_int(args, "layers"), gw_args_int(args, "heads"), gw_args_int(args, "width")};
    spec->context = (int)gw_args_int(args, "context");
    if (me->width % me->heads != 0)
        return gw_fail(GW_ERR_USAGE, "gpt: width=%lld must be a multiple of heads=%lld",
                       (long long)me->width, (long long)me->heads);
    return GW_OK;
}

int gw_gpt_units(const gw_model_spec *spec) {
    return 2 + 2 * (int)gpt_self(spec)->layers;
}

gw_gpt_kind gw_gpt_kind_of(const gw_model_spec *spec, int l) {
    return l == 0                        ? GW_GPT_EMBEDDING
           : l + 1 == gw_gpt_units(spec) ? GW_GPT_HEAD
           : l % 2                       ? GW_GPT_ATTENTION
                                         : GW_GPT_PERCEPTRON;
}

static gw_gpt_form gpt_form(const gw_model_spec *spec, int l, int part, int parts) {
    int c = (int)gpt_self(spec)->width, heads = (int)gpt_self(spec)->heads, t = spec->context;
    gw_gpt_form f = {.c = c, .own = gw_share_part(c, part, parts), .t = (size_t)t};
    switch (gw_gpt_kind_of(spec, l)) {
    case GW_GPT_EMBEDDING: break;
    case GW_GPT_ATTENTION:
        f.heads = gw_span_part((gw_span){0, (size_t)heads}, part, parts).n;
        f.inner = (int)f.heads * (c / heads);
        f.wide = 3 * f.inner;
        f.scores = f.heads * f.t * f.t;
        break;
    case GW_GPT_PERCEPTRON: f.wide = f.inner = (int)gw_share_part(WIDEN * c, part, parts).n; break;
    case GW_GPT_HEAD: f.wide = (int)gw_share_part(spec->classes, part, parts).n; break;
    }
    return f;
}

gw_gpt_form gw_gpt_form_of(const gw_model_spec *spec, const gw_shard_layer *u) {
    return gpt_form(spec, u->number, u->part, u->parts);
}

/* Floats of a row; with `base`, where the areas of `room` rows are, from row `first` on. */
static size_t gpt_keep(const gw_gpt_form *f, gw_gpt_kind is, float *base, size_t room, size_t first,
                       gw_gpt_kept *k) {
    size_t c = f->t * (size_t)f->c, at = 0;
    size_t wide = is == GW_GPT_HEAD ? 0 : f->t * (size_t)f->wide, inner = f->t * (size_t)f->inner;
    const size_t floats[] = {2 * f->t, c,         wide,
                             inner,    f->scores, is == GW_GPT_ATTENTION ? wide : 0,
                             inner,    c,         f->scores};
    float **const area[] = {&k->told,   &k->norm,    &k->wide,   &k->inner,   &k->scores,
                            &k->d_wide, &k->d_inner, &k->d_norm, &k->d_scores};
    for (size_t i = 0; i < sizeof floats / sizeof *floats && is != GW_GPT_EMBEDDING; i++) {
        *area[i] = base + room * at + first * floats[i];
        at += floats[i];
    }
    return at;
}

gw_gpt_kept gw_gpt_kept_of(const gw_model_spec *spec, const gw_shard_layer *u,
                           const gw_unit_rows *r) {
    gw_gpt_kept k = {0};
    gw_gpt_form f = gw_gpt_form_of(spec, u);
    gpt_keep(&f, gw_gpt_kind_of(spec, u->number), r->kept, (size_t)r->room, (size_t)r->first, &k);
    return k;
}

gw_unit gw_gpt_unit(const gw_model_spec *spec, int l) {
    gw_gpt_form f = gpt_form(spec, l, 0, 1);
    gw_gpt_kind is = gw_gpt_kind_of(spec, l);
    gw_gpt_kept none = {0};
    int row = (int)f.t * f.c, heads = is == GW_GPT_ATTENTION ? (int)f.heads : 0;
    gw_unit u = {.in = row,
                 .out = row,
                 .cut = is == GW_GPT_HEAD ? GW_CUT_COLUMNS : GW_CUT_BOTH,
                 .kept = gw_model_spec_kept(gpt_keep(&f, is, NULL, 0, 0, &none))};
    for (int i = 0; i < GW_GPT_TENSORS; i++)
        u.tensor[i].cut = i == GW_GPT_BACK ? GW_CUT_ROWS : GW_CUT_COLUMNS;
    switch (is) {
    case GW_GPT_EMBEDDING:
        u.in = (int)f.t;
        u.n_tensors = 2;
        u.tensor[GW_GPT_TABLE].rows = spec->classes;
        u.tensor[GW_GPT_PLACE].rows = (int)f.t;
        u.tensor[GW_GPT_TABLE].cols = u.tensor[GW_GPT_PLACE].cols = f.c;
        return u;
    case GW_GPT_HEAD: u.out = (int)f.t * spec->classes; break;
    default: break;
    }
    u.n_tensors = is == GW_GPT_HEAD ? GW_GPT_WIDE + 1 : GW_GPT_TENSORS;
    for (int i = 0; i < GW_GPT_TENSORS; i++)
        u.tensor[i].rows = 1;
    u.tensor[GW_GPT_GAIN].gathered = u.tensor[GW_GPT_BIAS].gathered = true;
    u.tensor[GW_GPT_WIDE].pieces = u.tensor[GW_GPT_WIDE_BIAS].pieces =
        u.tensor[GW_GPT_BACK].pieces = heads;
    u.tensor[GW_GPT_WIDE].rows = u.tensor[GW_GPT_GAIN].cols = u.tensor[GW_GPT_BIAS].cols = f.c;
    u.tensor[GW_GPT_WIDE].cols = u.tensor[GW_GPT_WIDE_BIAS].cols = f.wide;
    u.tensor[GW_GPT_BACK].rows = f.inner;
    u.tensor[GW_GPT_BACK].cols = u.tensor[GW_GPT_BACK_BIAS].cols = f.c;
    return u;
}

size_t gw_gpt_at(const gw_model_spec *spec, const gw_shard_layer *u, int tensor) {
    gw_unit unit = gw_gpt_unit(spec, u->number);
    size_t at = 0;
    for (int i = 0; i < tensor; i++) {
        gw_region r = gw_unit_region(&unit, i, u->part, u->parts);
        at += r.rows.n * r.cols.n;
    }
    return at;
}

/* Attention's own products, of a head each, are not among them. */
int gw_gpt_products(const gw_model_spec *spec, const gw_shard_layer *u, int rows,
                    gw_product out[GW_UNIT_PRODUCTS]) {
    gw_gpt_form f = gw_gpt_form_of(spec, u);
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
void gw_gpt_initialise(const gw_model_spec *spec, const gw_shard_layer *u, float *w) {
    gw_unit unit = gw_gpt_unit(spec, u->number);
    uint64_t key = gw_rng_key(gw_rng_key(spec->seed, 0x67707469), (uint64_t)u->number);
    bool embeds = gw_gpt_kind_of(spec, u->number) == GW_GPT_EMBEDDING;
    for (int i = 0; i < unit.n_tensors; i++) {
        gw_region own_part = gw_unit_region(&unit, i, u->part, u->parts);
        size_t stride = (size_t)unit.tensor[i].cols, cols = own_part.cols.n;
        size_t first = own_part.rows.off * stride + own_part.cols.off, n = own_part.rows.n * cols;
        double sigma =
            !embeds && i == GW_GPT_BACK ? 0.02 / sqrt(2.0 * (double)gpt_self(spec)->layers) : 0.02;
        uint64_t own = gw_rng_key(key, (uint64_t)i);
#pragma omp parallel for schedule(static)
        for (size_t j = 0; j < n; j++) {
            size_t place = first + j / cols * stride + j % cols;
            w[j] = embeds || unit.tensor[i].rows > 1 ? (float)(sigma * gw_rng_normal(own, place))
                                                     : (float)(i == GW_GPT_GAIN);
        }
        w += n;
    }
}

const gw_opt gw_gpt_opts[] = {
    {"layers", GW_OPT_INT, "4", 1, (GW_MAX_LAYERS - 2) / 2, NULL, "N",
     "blocks of attention and perceptron"},
    {"heads", GW_OPT_INT, "4", 1, 256, NULL, "N", "attention heads, which share the width"},
    {"width", GW_OPT_INT, "128", 1, 1 << 14, NULL, "N", "floats per token"},
    {"context", GW_OPT_INT, "64", 1, 4096, NULL, "N", "tokens per sample"},
    {0}};
