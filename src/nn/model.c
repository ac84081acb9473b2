/* A model: its arenas, the areas of the work arena, and a step's computation by the parts that
 * exchanges come between. */
#include "nn/model.h"

#include "base/mem.h"
#include "base/probe.h"
#include "nn/loss.h"

#include <stdlib.h>
#include <string.h>

/* Areas begin at multiples of so many floats: a cache line. */
enum { LINE = 16 };

/* Which copy of an area a microbatch uses. */
typedef enum gw_copies { GW_COPIES_ONE, GW_COPIES_SLOT, GW_COPIES_DELTA } gw_copies;

/* Rows of `width` floats in the work arena: copies of `copy` floats from `off` on. */
typedef struct gw_area {
    size_t off, copy;
    int width;
    gw_copies copies;
} gw_area;

/* The areas of a layer. Where nothing is exchanged, or in place, several of them are one and the
 * same. */
typedef struct gw_model_areas {
    gw_area below, x; /* what the layer below left here, and what the product reads */
    gw_area y;
    gw_area dy;        /* of the last layer: y, which the loss overwrites */
    gw_area dx, lower; /* what descending writes, and what the layer below enters */
    gw_area kept;
    gw_span gathered; /* tensors that ranks have parts of */
} gw_model_areas;

struct gw_model {
    gw_shard shard;
    gw_model_room room;
    gw_span spans[GW_MAX_LAYERS]; /* of the layers */
    int n_tensors;
    gw_tensor tensors[GW_UNIT_TENSORS * GW_MAX_LAYERS];
    float *params, *grads;
    bool lent; /* the caller owns these two */
    gw_model_areas areas[GW_MAX_LAYERS];
    gw_area blocks, told; /* to be gathered, or reduced and scattered; of the loss */
    size_t work_size;
    float *work;
    int global;     /* samples of the batch, over all ranks; 0: it is only evaluated */
    float *zeros;   /* the biases of outputs that include them */
    double *losses; /* one a target, as best: */
    gw_label *best; /* threads share no sum */
};

static const gw_shard_layer *model_held(const gw_model *m, int l) {
    return &m->shard.layers[l];
}

/* Is l the first layer of its chunk, or the last? */
static bool model_begins(const gw_model *m, int l) {
    return l == 0 || model_held(m, l - 1)->chunk != model_held(m, l)->chunk;
}

static bool model_ends(const gw_model *m, int l) {
    return l + 1 == m->shard.n_layers || model_begins(m, l + 1);
}

/* Are the outputs of layer l the logits? */
static bool model_tops(const gw_model *m, int l) {
    return model_held(m, l)->number + 1 == gw_model_spec_layers(&m->shard.spec);
}

/* Cut by columns below a layer that is cut so, too: the inputs are gathered. */
static bool model_gathers(const gw_model *m, int l) {
    const gw_shard_layer *held = model_held(m, l);
    return m->shard.share.split == GW_SPLIT_COLUMNS && held->cut == GW_CUT_COLUMNS &&
           held->number > 0;
}

/* ---- the work arena: where the rows of each layer lie ---- */

static int model_larger(int a, int b) {
    return a > b ? a : b;
}

/* Neurons on this rank, and on the tensor rank that holds most of them: room is taken for so many
 * on each, so that joins are over the same span on all. */
typedef struct widths {
    int own, most;
} widths;

/* The widths of the whole model's layer l, which is cut over the tensor ranks or not. */
static widths model_widths(const gw_model *m, int l, bool cut) {
    const gw_share *share = &m->shard.share;
    int width = gw_model_spec_width(&m->shard.spec, l), most = 0;
    int targets = gw_model_spec_targets(&m->shard.spec);
    if (!cut)
        return (widths){width, width};
    for (int t = 0; t < share->tensor; t++)
        most = model_larger(most, (int)gw_share_part(width / targets, t, share->tensor).n);
    int own = (int)gw_share_part(width / targets, share->part, share->tensor).n;
    return (widths){own * targets, most * targets};
}

/* All blocks of layer l's inputs get the width of the widest. */
static int model_block_width(const gw_model *m, int l) {
    return model_widths(m, model_held(m, l)->number - 1, true).most;
}

static gw_area model_take(gw_model *m, widths w, gw_copies copies, int chunk) {
    size_t floats = (size_t)m->room.rows * (size_t)w.most;
    gw_area area = {m->work_size, (floats + LINE - 1) / LINE * LINE, w.own, copies};
    int n = copies == GW_COPIES_SLOT    ? m->room.slots[chunk]
            : copies == GW_COPIES_DELTA ? m->room.deltas
                                        : 1;
    m->work_size += (size_t)n * area.copy;
    return area;
}

/* What layers use one after another: deltas within a chunk, by turns, and what descending writes
 * where it is to be scattered. */
typedef struct shared {
    gw_area delta[2], dx;
} shared;

static gw_area model_take_one(gw_model *m, int width) {
    return model_take(m, (widths){width, width}, GW_COPIES_ONE, 0);
}

static int model_told(const gw_model *m) {
    return GW_LOSS_TOLD * gw_model_spec_targets(&m->shard.spec);
}

static shared model_share(gw_model *m) {
    int delta[2] = {0}, dx = 0, block = 0, told = 0, ranks = m->shard.share.tensor;
    shared s;
    for (int l = 0; l < m->shard.n_layers; l++) {
        const gw_shard_layer *held = model_held(m, l);
        bool columns = held->cut == GW_CUT_COLUMNS;
        if (!model_ends(m, l) && !m->room.keep)
            delta[l % 2] = model_larger(delta[l % 2], model_widths(m, held->number, columns).most);
        if (model_gathers(m, l)) {
            dx = model_larger(dx, held->layer.in);
            block = model_larger(block, model_block_width(m, l));
        }
        if (model_tops(m, l) && columns)
            told = model_told(m);
    }
    m->blocks = model_take_one(m, block * ranks);
    m->told = model_take_one(m, told * ranks);
    s.delta[0] = model_take_one(m, delta[0]);
    s.delta[1] = model_take_one(m, delta[1]);
    s.dx = model_take_one(m, dx);
    return s;
}

static gw_area model_as_wide(gw_area area, widths w) {
    area.width = w.own;
    return area;
}

static void model_lay_out_rows(gw_model *m, int l, const shared *s) {
    const gw_shard_layer *held = model_held(m, l);
    gw_model_areas *a = &m->areas[l];
    bool begins = model_begins(m, l), gathers = model_gathers(m, l);
    widths in = model_widths(m, held->number - 1, held->cut == GW_CUT_ROWS);
    widths out = model_widths(m, held->number, held->cut == GW_CUT_COLUMNS);
    widths below = gathers ? model_widths(m, held->number - 1, true) : in;
    gw_copies outputs = !m->room.recompute ? GW_COPIES_SLOT
                        : m->room.keep     ? GW_COPIES_DELTA
                                           : GW_COPIES_ONE;
    a->below = begins ? model_take(m, below, GW_COPIES_SLOT, held->chunk) : a[-1].y;
    a->x = gathers ? model_take(m, in, outputs, held->chunk) : a->below;
    a->y = model_take(m, out, outputs, held->chunk);
    gw_unit u = gw_model_spec_unit(&m->shard.spec, held->number);
    a->kept = model_take(m, (widths){u.kept, u.kept}, outputs, held->chunk);
    a->gathered = (gw_span){m->work_size, 0}; /* each gathered tensor as a whole */
    for (int i = 0; i < u.n_tensors && held->cut != GW_CUT_NONE; i++)
        if (u.tensor[i].gathered)
            a->gathered.n += (size_t)u.tensor[i].rows * (size_t)u.tensor[i].cols;
    m->work_size += (a->gathered.n + LINE - 1) / LINE * LINE;
    if (model_tops(m, l))
        a->dy = a->y;
    else if (model_ends(m, l) || m->room.keep)
        a->dy = model_take(m, out, GW_COPIES_DELTA, held->chunk);
    else
        a->dy = model_as_wide(s->delta[l % 2], out);
    if (held->number == 0)
        return; /* nothing is below */
    a->lower = begins ? model_take(m, below, GW_COPIES_DELTA, held->chunk) : a[-1].dy;
    a->dx = gathers ? model_as_wide(s->dx, in) : a->lower;
}

/* The rows of a microbatch in an area, within the work arena. */
static gw_span model_rows(const gw_area *area, gw_micro at) {
    int copy = area->copies == GW_COPIES_SLOT    ? at.slot
               : area->copies == GW_COPIES_DELTA ? at.delta
                                                 : 0;
    size_t width = (size_t)area->width;
    return (gw_span){area->off + (size_t)copy * area->copy + (size_t)at.first * width,
                     (size_t)at.n * width};
}

gw_span gw_model_edge(const gw_model *m, int chunk, gw_edge edge, gw_micro at) {
    int first = 0, last;
    while (model_held(m, first)->chunk < chunk)
        first++;
    for (last = first; !model_ends(m, last);)
        last++;
    switch (edge) {
    case GW_EDGE_INPUT: return model_rows(&m->areas[first].below, at);
    case GW_EDGE_OUTPUT: return model_rows(&m->areas[last].y, at);
    case GW_EDGE_OUTPUT_DELTA:
        return model_tops(m, last) ? (gw_span){0, 0} : model_rows(&m->areas[last].dy, at);
    case GW_EDGE_INPUT_DELTA: return model_rows(&m->areas[first].lower, at);
    }
    return (gw_span){0, 0};
}

/* ---- a model, from its opening to its end ---- */

static gw_err model_build(gw_model **out, const gw_shard *shard, const gw_model_room *room) {
    bool sound = room->rows >= 0 && room->deltas >= 1;
    for (int c = 0; c < shard->share.n_chunks; c++)
        sound = sound && room->slots[c] >= 1;
    if (!sound)
        return gw_fail(GW_ERR_INTERNAL, "a model for %d rows, %d deltas", room->rows, room->deltas);
    gw_model *m = NULL;
    GW_TRY(gw_alloc(&m, 1, sizeof *m));
    m->shard = *shard;
    m->room = *room;
    size_t widest = 0, targets = (size_t)gw_model_spec_targets(&shard->spec) * (size_t)room->rows;
    shared s = model_share(m);
    for (int l = 0; l < shard->n_layers; l++) { /* where layers and tensors lie in the arenas */
        const gw_shard_layer *held = model_held(m, l);
        gw_unit u = gw_shard_unit(&m->shard, held);
        m->spans[l] = held->layer.span;
        size_t off = held->layer.span.off, n;
        for (int i = 0; i < u.n_tensors; i++, off += n) {
            gw_region r = gw_unit_region(&u, i, held->part, held->parts);
            int rows = (int)r.rows.n, cols = (int)r.cols.n;
            n = (size_t)rows * (size_t)cols;
            if (n > 0)
                m->tensors[m->n_tensors++] =
                    (gw_tensor){{off, n}, held->number, rows, cols, u.tensor[i].tracks};
        }
        if ((held->layer.partial || held->cut == GW_CUT_BOTH) && held->out.n > widest)
            widest = held->out.n;
        model_lay_out_rows(m, l, &s);
    }
    gw_err e = gw_alloc(&m->params, shard->size, sizeof(float));
    GW_THEN(e, gw_alloc(&m->grads, shard->size, sizeof(float)));
    GW_THEN(e, gw_alloc(&m->work, m->work_size, sizeof(float)));
    GW_THEN(e, gw_alloc(&m->zeros, widest, sizeof(float)));
    GW_THEN(e, gw_alloc(&m->losses, targets, sizeof *m->losses));
    GW_THEN(e, gw_alloc(&m->best, targets, sizeof *m->best));
    GW_OPENED(e, out, m, gw_model_close);
}

gw_err gw_model_build(gw_model **out, const gw_model_spec *spec, int max_batch) {
    gw_share share = gw_share_whole(spec);
    gw_model_room room = {.rows = max_batch, .slots = {1}, .deltas = 1};
    gw_shard shard;
    GW_TRY(gw_shard_of(&shard, spec, &share));
    return model_build(out, &shard, &room);
}

static void model_initialise(gw_model *m) {
    const gw_model_spec *spec = &m->shard.spec;
    for (int l = 0; l < m->shard.n_layers; l++)
        gw_model_ops_of(spec)->initialise(spec, model_held(m, l), m->params + m->spans[l].off);
}

gw_err gw_model_open(gw_model **out, const gw_model_spec *spec, int max_batch) {
    GW_TRY(gw_model_build(out, spec, max_batch));
    model_initialise(*out);
    return GW_OK;
}

gw_err gw_model_open_shard(gw_model **out, const gw_shard *shard, const gw_model_room *room) {
    GW_TRY(model_build(out, shard, room));
    model_initialise(*out);
    return GW_OK;
}

void gw_model_close(gw_model *m) {
    if (!m)
        return;
    if (!m->lent) {
        free(m->params);
        free(m->grads);
    }
    free(m->work);
    free(m->zeros);
    free(m->losses);
    free(m->best);
    free(m);
}

const gw_model_spec *gw_model_get_spec(const gw_model *m) {
    return &m->shard.spec;
}

const gw_shard *gw_model_shard(const gw_model *m) {
    return &m->shard;
}

int gw_model_layers(const gw_model *m) {
    return m->shard.n_layers;
}

const gw_span *gw_model_spans(const gw_model *m) {
    return m->spans;
}

const gw_tensor *gw_model_tensors(const gw_model *m) {
    return m->tensors;
}

int gw_model_tensor_count(const gw_model *m) {
    return m->n_tensors;
}

size_t gw_model_size(const gw_model *m) {
    return m->shard.size;
}

void gw_model_lend(gw_model *m, float *params, float *grads) {
    if (!m->lent) {
        free(m->params);
        free(m->grads);
    }
    m->params = params;
    m->grads = grads;
    m->lent = true;
}

float *gw_model_params(gw_model *m) {
    return m->params;
}

float *gw_model_grads(gw_model *m) {
    return m->grads;
}

size_t gw_model_work_size(const gw_model *m) {
    return m->work_size;
}

float *gw_model_work(gw_model *m) {
    return m->work;
}

const gw_label *gw_model_predictions(const gw_model *m) {
    return m->best;
}

/* ---- among the tensor ranks ---- */

/* For each of the rows `width` floats of each tensor rank, rank by rank. */
static gw_span model_by_rank(const gw_model *m, const gw_area *area, int width, gw_micro at) {
    size_t row = (size_t)m->shard.share.tensor * (size_t)width;
    return (gw_span){area->off + (size_t)at.first * row, (size_t)at.n * row};
}

gw_join gw_model_join(const gw_model *m, int l, gw_moment moment, gw_micro at) {
    const gw_shard_layer *held = model_held(m, l);
    bool columns = held->cut == GW_CUT_COLUMNS, gathers = model_gathers(m, l);
    gw_join none = {GW_JOIN_NONE, {0, 0}};
    switch (moment) {
    case GW_MOMENT_PARAMETERS:
        if (m->areas[l].gathered.n == 0)
            return none;
        return (gw_join){GW_JOIN_ALLREDUCE, m->areas[l].gathered};
    case GW_MOMENT_INPUT:
    case GW_MOMENT_DELTA:
        if (gathers)
            return (gw_join){moment == GW_MOMENT_INPUT ? GW_JOIN_ALLGATHER : GW_JOIN_REDUCE_SCATTER,
                             model_by_rank(m, &m->blocks, model_block_width(m, l), at)};
        if (moment == GW_MOMENT_INPUT || !(columns || held->cut == GW_CUT_BOTH) ||
            held->number == 0)
            return none;
        return (gw_join){GW_JOIN_ALLREDUCE, model_rows(&m->areas[l].dx, at)};
    case GW_MOMENT_PRODUCT:
        if (held->cut != GW_CUT_ROWS && held->cut != GW_CUT_BOTH)
            return none;
        return (gw_join){GW_JOIN_ALLREDUCE, model_rows(&m->areas[l].y, at)};
    case GW_MOMENT_LOSS:
        if (!columns || !model_tops(m, l))
            return none;
        return (gw_join){GW_JOIN_ALLGATHER, model_by_rank(m, &m->told, model_told(m), at)};
    }
    return none;
}

/* Between columns `cols` of an area's rows and the block of tensor rank t. */
static void model_copy(gw_model *m, int l, gw_micro at, const gw_area *area, gw_span cols, int t,
                       bool pack) {
    size_t block = (size_t)model_block_width(m, l), width = (size_t)area->width;
    gw_span blocks = model_by_rank(m, &m->blocks, (int)block, at);
    float *rows = m->work + model_rows(area, at).off + cols.off;
    float *dense = m->work + blocks.off + (size_t)t * (size_t)at.n * block;
    int threads = gw_layer_threads(at.n, (int)cols.n);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < at.n; i++) {
        float *a = rows + (size_t)i * width, *b = dense + (size_t)i * block;
        memcpy(pack ? b : a, pack ? a : b, cols.n * sizeof *a);
        if (pack) /* a codec looks at what fills the block up, too */
            memset(b + cols.n, 0, (block - cols.n) * sizeof *b);
    }
}

static void model_copy_own(gw_model *m, int l, gw_micro at, const gw_area *area, bool pack) {
    model_copy(m, l, at, area, (gw_span){0, (size_t)area->width}, m->shard.share.part, pack);
}

static void model_copy_all(gw_model *m, int l, gw_micro at, const gw_area *area, bool pack) {
    int ranks = m->shard.share.tensor;
    for (int t = 0; t < ranks; t++)
        model_copy(m, l, at, area, gw_share_part(area->width, t, ranks), t, pack);
}

/* This rank's parts in their places among zeros, so that a sum gathers them. */
static void model_copy_gathered(gw_model *m, int l) {
    const gw_shard_layer *held = model_held(m, l);
    gw_unit u = gw_model_spec_unit(&m->shard.spec, held->number);
    float *to = m->work + m->areas[l].gathered.off;
    const float *from = m->params + m->spans[l].off;
    memset(to, 0, m->areas[l].gathered.n * sizeof *to);
    for (int i = 0; i < u.n_tensors; i++) {
        size_t rows = (size_t)u.tensor[i].rows, cols = (size_t)u.tensor[i].cols;
        gw_region r = gw_unit_region(&u, i, held->part, held->parts);
        for (size_t j = 0; j < r.rows.n && u.tensor[i].gathered; j++)
            memcpy(to + (r.rows.off + j) * cols + r.cols.off, from + j * r.cols.n,
                   r.cols.n * sizeof *to);
        from += r.rows.n * r.cols.n;
        to += u.tensor[i].gathered ? rows * cols : 0;
    }
}

void gw_model_pack(gw_model *m, int l, gw_moment moment, gw_micro at) {
    if (moment == GW_MOMENT_PARAMETERS && m->areas[l].gathered.n > 0)
        model_copy_gathered(m, l);
    else if (model_gathers(m, l) && moment == GW_MOMENT_INPUT)
        model_copy_own(m, l, at, &m->areas[l].below, true);
    else if (model_gathers(m, l) && moment == GW_MOMENT_DELTA)
        model_copy_all(m, l, at, &m->areas[l].dx, true);
}

void gw_model_unpack(gw_model *m, int l, gw_moment moment, gw_micro at) {
    if (model_gathers(m, l) && moment == GW_MOMENT_INPUT)
        model_copy_all(m, l, at, &m->areas[l].x, false);
    else if (model_gathers(m, l) && moment == GW_MOMENT_DELTA)
        model_copy_own(m, l, at, &m->areas[l].lower, false);
}

/* ---- a step ---- */

static float *model_floats(gw_model *m, const gw_area *area, gw_micro at) {
    return m->work + model_rows(area, at).off;
}

static gw_unit_rows model_unit_rows(gw_model *m, int l, gw_micro at) {
    const gw_model_areas *a = &m->areas[l];
    return (gw_unit_rows){
        .n = at.n,
        .x = model_floats(m, &a->x, at),
        .y = model_floats(m, &a->y, at),
        .dy = model_floats(m, &a->dy, at),
        .dx = model_held(m, l)->number > 0 ? model_floats(m, &a->dx, at) : NULL,
        .kept = model_floats(m, &a->kept, (gw_micro){at.slot, at.delta, 0, at.n}),
        .first = at.first,
        .room = m->room.rows,
        .zeros = m->zeros,
        .gathered = a->gathered.n > 0 ? m->work + a->gathered.off : NULL,
        .share = m->global > 0 ? (float)at.n / (float)m->global : 0,
    };
}

void gw_model_count(gw_model *m, int samples) {
    m->global = samples;
}

void gw_model_product(gw_model *m, int l, gw_micro at) {
    const gw_model_spec *spec = &m->shard.spec;
    gw_unit_rows rows = model_unit_rows(m, l, at);
    gw_model_ops_of(spec)->product(spec, model_held(m, l), m->params + m->spans[l].off, &rows);
}

void gw_model_transfer(gw_model *m, int l, gw_micro at) {
    const gw_model_spec *spec = &m->shard.spec;
    gw_unit_rows rows = model_unit_rows(m, l, at);
    if (gw_model_ops_of(spec)->transfer)
        gw_model_ops_of(spec)->transfer(spec, model_held(m, l), m->params + m->spans[l].off, &rows);
}

static gw_loss_cut model_loss_cut(const gw_model *m) {
    return (gw_loss_cut){m->shard.spec.output, model_held(m, m->shard.n_layers - 1)->out,
                         m->shard.share.part, m->shard.share.tensor};
}

static bool model_splits_loss(const gw_model *m) {
    return model_held(m, m->shard.n_layers - 1)->cut == GW_CUT_COLUMNS;
}

void gw_model_loss_tell(gw_model *m, const gw_label *labels, gw_micro at) {
    int last = m->shard.n_layers - 1, targets = gw_model_spec_targets(&m->shard.spec);
    if (!model_splits_loss(m))
        return;
    gw_loss_cut cut = model_loss_cut(m);
    gw_span told = gw_model_join(m, last, GW_MOMENT_LOSS, at).over;
    gw_part_begin(GW_PART_LOSS);
    gw_loss_tell(model_floats(m, &m->areas[last].y, at), labels, at.n * targets, cut,
                 m->work + gw_span_part(told, cut.part, cut.parts).off);
    gw_part_end(GW_PART_LOSS);
}

double gw_model_loss_join(gw_model *m, const gw_label *labels, gw_micro at, float grad_scale,
                          int *correct) {
    const gw_model_spec *spec = &m->shard.spec;
    int last = m->shard.n_layers - 1, targets = gw_model_spec_targets(spec), n = at.n * targets;
    float *z = model_floats(m, &m->areas[last].y, at);
    float scale = grad_scale / (float)targets;
    gw_part_begin(GW_PART_LOSS);
    if (model_splits_loss(m))
        gw_loss_join(z, labels, n, model_loss_cut(m),
                     m->work + gw_model_join(m, last, GW_MOMENT_LOSS, at).over.off, scale,
                     m->losses, m->best);
    else if (gw_model_ops_of(spec)->loss)
        gw_model_ops_of(spec)->loss(spec, z, labels, n, scale, m->losses, m->best);
    else
        gw_loss_whole(spec->output, z, labels, n, spec->classes, scale, m->losses, m->best);
    double sum = 0.0;
    int hits = 0;
    for (int i = 0; i < n; i++) {
        sum += m->losses[i];
        hits += m->best[i] == labels[i];
    }
    gw_part_end(GW_PART_LOSS);
    if (correct)
        *correct = hits;
    return sum / targets;
}

void gw_model_enter(gw_model *m, int l, gw_micro at, float *grads, bool add) {
    const gw_model_spec *spec = &m->shard.spec;
    gw_unit_rows rows = model_unit_rows(m, l, at);
    size_t off = m->spans[l].off;
    gw_model_ops_of(spec)->enter(spec, model_held(m, l), m->params + off, grads + off, add, &rows);
}

void gw_model_weights(gw_model *m, int l, gw_micro at, float *grads, bool add) {
    const gw_model_spec *spec = &m->shard.spec;
    gw_unit_rows rows = model_unit_rows(m, l, at);
    gw_model_ops_of(spec)->weights(spec, model_held(m, l), grads + m->spans[l].off, add, &rows);
}

void gw_model_descend_rows(gw_model *m, int l, gw_micro at) {
    const gw_model_spec *spec = &m->shard.spec;
    gw_unit_rows rows = model_unit_rows(m, l, at);
    if (rows.dx)
        gw_model_ops_of(spec)->descend(spec, model_held(m, l), m->params + m->spans[l].off, &rows);
}

bool gw_model_arrives(const gw_model *m, int l) {
    return model_held(m, l)->cut != GW_CUT_NONE && gw_model_ops_of(&m->shard.spec)->arrive;
}

void gw_model_arrive(gw_model *m, int l, gw_micro at, float *grads) {
    const gw_model_spec *spec = &m->shard.spec;
    gw_unit_rows rows = model_unit_rows(m, l, at);
    if (rows.dx && gw_model_arrives(m, l))
        gw_model_ops_of(spec)->arrive(spec, model_held(m, l), grads + m->spans[l].off, &rows);
}
