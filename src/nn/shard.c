#include "nn/shard.h"

#include <math.h>
#include <string.h>

/* Parts of a layer are multiples of so many neurons: whole cache lines, and a tile of the
 * libraries' innermost kernels. */
enum { UNIT = 16 };

/* The fewest parts of layers from `at` on that each cost no more than `most`. With any bound below
 * *more they would be these. */
static int partition_parts(const double *cost, int at, int n, double most, double *more) {
    int parts = 1;
    *more = INFINITY;
    for (double sum = cost[at]; ++at < n; sum += cost[at])
        if (sum + cost[at] > most) {
            *more = fmin(*more, sum + cost[at]);
            parts++;
            sum = 0;
        }
    return parts;
}

gw_err gw_partition(const double *cost, int n, int parts, int *sizes) {
    double most = 0, more;
    if (n < 1 || parts < 1 || parts > n)
        return gw_fail(GW_ERR_INTERNAL, "%d layers in %d parts", n, parts);
    for (int i = 0; i < n; i++) {
        if (!(cost[i] >= 0 && cost[i] < INFINITY))
            return gw_fail(GW_ERR_INTERNAL, "layer %d costs %g", i, cost[i]);
        most = fmax(most, cost[i]);
    }
    while (partition_parts(cost, 0, n, most, &more) > parts)
        most = more;
    for (int k = parts - 1, at = 0; k >= 0; k--) {
        int end = k ? at + 1 : n;
        while (k && partition_parts(cost, end, n, most, &more) > k)
            end++;
        *sizes++ = end - at;
        at = end;
    }
    return GW_OK;
}

gw_share gw_share_whole(const gw_model_spec *spec) {
    return (gw_share){.tensor = 1, .n_chunks = 1, .chunks = {{0, gw_model_spec_layers(spec)}}};
}

void gw_share_stage(gw_share *share, const int *sizes, int stages, int chunks, int stage) {
    share->n_chunks = chunks;
    for (int i = 0, first = 0; i < stages * chunks; first += sizes[i++])
        if (i % stages == stage)
            share->chunks[i / stages] = (gw_chunk){first, sizes[i]};
}

gw_span gw_share_part(int width, int part, int parts) {
    size_t n = (size_t)width, units = (n + UNIT - 1) / UNIT;
    if (n < (size_t)UNIT * (size_t)parts)
        return gw_span_part((gw_span){0, n}, part, parts);
    gw_span in_units = gw_span_part((gw_span){0, units}, part, parts);
    return gw_span_common((gw_span){in_units.off * UNIT, in_units.n * UNIT}, (gw_span){0, n});
}

/* Of n rows or columns, in so many pieces. */
static gw_span shard_pieces(int n, int pieces, int part, int parts) {
    if (pieces == 0)
        return gw_share_part(n, part, parts);
    size_t each = (size_t)(n / pieces);
    gw_span own = gw_span_part((gw_span){0, (size_t)pieces}, part, parts);
    return (gw_span){own.off * each, own.n * each};
}

gw_region gw_unit_region(const gw_unit *u, int i, int part, int parts) {
    int rows = u->tensor[i].rows, cols = u->tensor[i].cols, pieces = u->tensor[i].pieces;
    gw_region r = {{0, (size_t)rows}, {0, (size_t)cols}};
    if (u->tensor[i].cut == GW_CUT_ROWS)
        r.rows = shard_pieces(rows, pieces, part, parts);
    else if (u->tensor[i].cut == GW_CUT_COLUMNS)
        r.cols = shard_pieces(cols, pieces, part, parts);
    return r;
}

static gw_cut shard_cut_of(const gw_share *share, int l) {
    if (share->tensor == 1)
        return GW_CUT_NONE;
    return share->split == GW_SPLIT_PAIRS && l % 2 ? GW_CUT_ROWS : GW_CUT_COLUMNS;
}

/* The most ranks that unit l can be shared by. */
static int shard_most(const gw_model_spec *spec, int l) {
    gw_unit u = gw_model_spec_unit(spec, l);
    int most = GW_MAX_WIDTH;
    for (int i = 0; i < u.n_tensors; i++) {
        int n = u.tensor[i].cut == GW_CUT_ROWS ? u.tensor[i].rows : u.tensor[i].cols;
        int pieces = u.tensor[i].pieces > 0 ? u.tensor[i].pieces : n;
        most = pieces < most ? pieces : most;
    }
    return most;
}

static gw_err shard_check(const gw_model_spec *spec, const gw_share *share) {
    int narrowest = -1, from = 0, layers = gw_model_spec_layers(spec);
    if (share->tensor < 1 || share->part < 0 || share->part >= share->tensor ||
        share->n_chunks < 1 || share->n_chunks > layers)
        return gw_fail(GW_ERR_INTERNAL, "part %d of %d, %d chunks", share->part, share->tensor,
                       share->n_chunks);
    for (int c = 0; c < share->n_chunks; c++) {
        gw_chunk chunk = share->chunks[c];
        if (chunk.first < from || chunk.n < 1 || chunk.n > layers - chunk.first)
            return gw_fail(GW_ERR_INTERNAL, "chunk %d: %d layers from layer %d on", c, chunk.n,
                           chunk.first);
        from = chunk.first + chunk.n;
    }
    if (share->tensor == 1)
        return GW_OK;
    if (gw_model_spec_dense(spec)) {
        for (int l = 0; l < layers; l++) /* held or not: all ranks refuse alike */
            if (shard_cut_of(share, l) == GW_CUT_COLUMNS &&
                (narrowest < 0 ||
                 gw_model_spec_width(spec, l) < gw_model_spec_width(spec, narrowest)))
                narrowest = l;
        int width = gw_model_spec_width(spec, narrowest);
        if (width < share->tensor)
            return gw_fail(GW_ERR_USAGE,
                           "--mesh tensor=%d: layer %d has %d neuron%s: at most tensor=%d",
                           share->tensor, narrowest, width, width == 1 ? "" : "s", width);
        return GW_OK;
    }
    const char *name = gw_model_ops_of(spec)->head.name;
    if (!(gw_model_ops_of(spec)->traits & GW_MODEL_SHARES))
        return gw_fail(
            GW_ERR_USAGE,
            "--mesh tensor=%d: the model %s has no layers that tensor ranks could share: "
            "leave tensor out",
            share->tensor, name);
    if (share->split == GW_SPLIT_COLUMNS)
        return gw_fail(GW_ERR_USAGE,
                       "--tensor-split columns: it is of dense layers, and the model %s has "
                       "others: leave it out",
                       name);
    for (int l = 0; l < layers; l++)
        if (share->tensor > shard_most(spec, l))
            return gw_fail(GW_ERR_USAGE,
                           "--mesh tensor=%d: unit %d of the model %s comes in %d piece%s: at most "
                           "tensor=%d",
                           share->tensor, l, name, shard_most(spec, l),
                           shard_most(spec, l) == 1 ? "" : "s", shard_most(spec, l));
    return GW_OK;
}

gw_unit gw_shard_unit(const gw_shard *s, const gw_shard_layer *l) {
    gw_unit u = gw_model_spec_unit(&s->spec, l->number);
    if (gw_model_spec_dense(&s->spec)) { /* biases by columns either way: each has one owner */
        u.cut = u.tensor[0].cut = shard_cut_of(&s->share, l->number);
        u.tensor[1].cut = GW_CUT_COLUMNS;
    }
    return u;
}

/* The parts of a unit's tensors, which begin at `off` in the whole arena. */
static gw_span shard_add_tensors(gw_shard *s, const gw_shard_layer *l, const gw_unit *u,
                                 size_t off) {
    size_t first = s->size;
    for (int i = 0; i < u->n_tensors; i++) {
        size_t stride = (size_t)u->tensor[i].cols;
        gw_region r = gw_unit_region(u, i, l->part, l->parts);
        gw_block b = {.off = off + r.rows.off * stride + r.cols.off,
                      .own = s->size,
                      .rows = r.rows.n,
                      .cols = r.cols.n,
                      .stride = stride};
        if (b.rows * b.cols > 0)
            s->blocks[s->n_blocks++] = b;
        s->size += b.rows * b.cols;
        off += (size_t)u->tensor[i].rows * stride;
    }
    return (gw_span){first, s->size - first};
}

static void shard_set_unit(const gw_shard *s, gw_shard_layer *l, const gw_unit *u) {
    int targets = gw_model_spec_targets(&s->spec);
    l->out = l->cut == GW_CUT_COLUMNS ? gw_share_part(s->spec.classes, l->part, l->parts)
                                      : (gw_span){0, (size_t)u->out};
    l->layer =
        (gw_layer){.in = u->in, .out = l->cut == GW_CUT_COLUMNS ? targets * (int)l->out.n : u->out};
}

static void shard_set_dense(const gw_shard *s, gw_shard_layer *l, const gw_unit *u) {
    bool last = l->number + 1 == gw_model_spec_layers(&s->spec);
    gw_span part = gw_share_part(u->out, l->part, l->parts);
    l->out = l->cut == GW_CUT_COLUMNS ? part : (gw_span){0, (size_t)u->out};
    if (l->cut == GW_CUT_ROWS)
        l->in = gw_share_part(u->in, l->part, l->parts);
    l->layer = (gw_layer){.in = (int)l->in.n,
                          .out = (int)l->out.n,
                          .transfer = last ? GW_LINEAR : s->spec.activation,
                          .own = l->cut == GW_CUT_ROWS ? part : (gw_span){0, l->out.n},
                          .partial = l->cut == GW_CUT_ROWS};
}

/* Others count by the form of a product. */
static gw_err shard_check_products(const gw_shard *s, const gw_shard_layer *held) {
    enum { ROWS = 3 };
    gw_product all[GW_UNIT_PRODUCTS];
    int n = gw_model_ops_of(&s->spec)->products(&s->spec, held, ROWS, all);
    if (n < 0 || n > GW_UNIT_PRODUCTS)
        return gw_fail(GW_ERR_USAGE, "the model %s, unit %d: %d products, and there may be %d",
                       gw_model_ops_of(&s->spec)->head.name, held->number, n, GW_UNIT_PRODUCTS);
    for (int i = 0; i < n; i++)
        if ((all[i].ta && all[i].tb) || (all[i].ta ? all[i].k : all[i].m) % ROWS != 0)
            return gw_fail(GW_ERR_USAGE, "the model %s, unit %d: product %d is not of its rows",
                           gw_model_ops_of(&s->spec)->head.name, held->number, i);
    return GW_OK;
}

gw_err gw_shard_of(gw_shard *out, const gw_model_spec *spec, const gw_share *share) {
    size_t whole, off = 0;
    GW_TRY(gw_model_spec_check(spec, GW_ERR_USAGE, "", &whole));
    GW_TRY(shard_check(spec, share));
    *out = (gw_shard){.spec = *spec, .share = *share, .whole = whole};
    for (int l = 0, c = 0; l < gw_model_spec_layers(spec) && c < share->n_chunks; l++) {
        gw_unit u = gw_model_spec_unit(spec, l);
        if (l >= share->chunks[c].first) {
            gw_shard_layer *held = &out->layers[out->n_layers++];
            *held = (gw_shard_layer){l, c, .part = share->part, .parts = share->tensor,
                                     .in = {0, (size_t)u.in}};
            gw_unit cut = gw_shard_unit(out, held);
            held->cut = share->tensor > 1 ? cut.cut : GW_CUT_NONE;
            (gw_model_spec_dense(spec) ? shard_set_dense : shard_set_unit)(out, held, &cut);
            held->layer.span = shard_add_tensors(out, held, &cut, off);
            GW_TRY(shard_check_products(out, held));
        }
        if (l + 1 == share->chunks[c].first + share->chunks[c].n)
            c++;
        off += gw_unit_params(&u);
    }
    return GW_OK;
}

double gw_shard_flops(const gw_model_spec *spec, int l) {
    gw_unit u = gw_model_spec_unit(spec, l);
    gw_shard_layer whole = {.number = l,
                            .parts = 1,
                            .in = {0, (size_t)u.in},
                            .out = {0, (size_t)u.out},
                            .layer = {.in = u.in, .out = u.out}};
    gw_product all[GW_UNIT_PRODUCTS];
    double flops = 0;
    int n = gw_model_ops_of(spec)->products(spec, &whole, 1, all);
    for (int i = 0; i < n; i++)
        flops += gw_product_flops(&all[i]);
    return flops;
}

bool gw_blocks_sound(const gw_block *b, int n, size_t own, size_t whole) {
    size_t at = 0;
    for (const gw_block *end = b + n; b < end; b++) {
        bool fits = b->rows > 0 && b->cols > 0 && b->cols <= b->stride && b->off <= whole &&
                    b->cols <= whole - b->off &&
                    b->rows - 1 <= (whole - b->off - b->cols) / b->stride;
        if (!fits || b->own != at)
            return false;
        at += b->rows * b->cols; /* at most `whole` each, of which there are few */
    }
    return at == own;
}

void gw_shard_gather(const gw_shard *s, const float *whole, float *own) {
    for (const gw_block *b = s->blocks; b < s->blocks + s->n_blocks; b++)
        for (size_t i = 0; i < b->rows; i++)
            memcpy(own + b->own + i * b->cols, whole + b->off + i * b->stride,
                   b->cols * sizeof *own);
}

void gw_blocks_scatter(const gw_block *b, int n, const float *own, float *whole) {
    for (const gw_block *end = b + n; b < end; b++)
        for (size_t i = 0; i < b->rows; i++)
            memcpy(whole + b->off + i * b->stride, own + b->own + i * b->cols,
                   b->cols * sizeof *own);
}

void gw_shard_scatter(const gw_shard *s, const float *own, float *whole) {
    gw_blocks_scatter(s->blocks, s->n_blocks, own, whole);
}
