/* The work arena: where the rows of each layer lie, which of them come from other ranks or go
 * there, and how. */
#include "nn/loss.h"
#include "nn/model_parts.h"

#include <string.h>

/* Areas begin at multiples of so many floats: a cache line. */
enum { LINE = 16 };

static int work_larger(int a, int b) {
    return a > b ? a : b;
}

/* Neurons on this rank, and on the tensor rank that holds most of them: room is taken for so many
 * on each, so that joins are over the same span on all. */
typedef struct widths {
    int own, most;
} widths;

/* Of the whole model's layer l, which is cut over the tensor ranks or not. */
static widths work_widths(const gw_model *m, int l, bool cut) {
    const gw_share *share = &m->shard.share;
    int width = gw_model_spec_width(&m->shard.spec, l), most = 0;
    int targets = gw_model_spec_targets(&m->shard.spec);
    if (!cut)
        return (widths){width, width};
    for (int t = 0; t < share->tensor; t++)
        most = work_larger(most, (int)gw_share_part(width / targets, t, share->tensor).n);
    int own = (int)gw_share_part(width / targets, share->part, share->tensor).n;
    return (widths){own * targets, most * targets};
}

/* All blocks of layer l's inputs get the width of the widest. */
static int work_block_width(const gw_model *m, int l) {
    return work_widths(m, gw_model_held(m, l)->number - 1, true).most;
}

static gw_area work_take(gw_model *m, widths w, gw_copies copies, int chunk) {
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

static gw_area work_take_one(gw_model *m, int width) {
    return work_take(m, (widths){width, width}, GW_COPIES_ONE, 0);
}

static int work_told(const gw_model *m) {
    return GW_LOSS_TOLD * gw_model_spec_targets(&m->shard.spec);
}

static shared work_share(gw_model *m) {
    int delta[2] = {0}, dx = 0, block = 0, told = 0, ranks = m->shard.share.tensor;
    shared s;
    for (int l = 0; l < m->shard.n_layers; l++) {
        const gw_shard_layer *held = gw_model_held(m, l);
        bool columns = held->cut == GW_CUT_COLUMNS;
        if (!gw_model_ends(m, l) && !m->room.keep)
            delta[l % 2] = work_larger(delta[l % 2], work_widths(m, held->number, columns).most);
        if (gw_model_gathers(m, l)) {
            dx = work_larger(dx, held->layer.in);
            block = work_larger(block, work_block_width(m, l));
        }
        if (gw_model_tops(m, l) && columns)
            told = work_told(m);
    }
    m->blocks = work_take_one(m, block * ranks);
    m->told = work_take_one(m, told * ranks);
    s.delta[0] = work_take_one(m, delta[0]);
    s.delta[1] = work_take_one(m, delta[1]);
    s.dx = work_take_one(m, dx);
    return s;
}

/* Of each of what is gathered all. */
static gw_span work_take_gathered(gw_model *m, const gw_shard_layer *held) {
    gw_unit u = gw_model_spec_unit(&m->shard.spec, held->number);
    gw_span at = {m->work_size, 0};
    for (int i = 0; i < u.n_tensors && held->cut != GW_CUT_NONE; i++)
        if (u.tensor[i].gathered)
            at.n += (size_t)u.tensor[i].rows * (size_t)u.tensor[i].cols;
    m->work_size += (at.n + LINE - 1) / LINE * LINE;
    return at;
}

static gw_area work_as_wide(gw_area area, widths w) {
    area.width = w.own;
    return area;
}

static void work_lay_out_layer(gw_model *m, int l, const shared *s) {
    const gw_shard_layer *held = gw_model_held(m, l);
    gw_model_areas *a = &m->areas[l];
    bool begins = gw_model_begins(m, l), gathers = gw_model_gathers(m, l);
    widths in = work_widths(m, held->number - 1, held->cut == GW_CUT_ROWS);
    widths out = work_widths(m, held->number, held->cut == GW_CUT_COLUMNS);
    widths below = gathers ? work_widths(m, held->number - 1, true) : in;
    gw_copies outputs = !m->room.recompute ? GW_COPIES_SLOT
                        : m->room.keep     ? GW_COPIES_DELTA
                                           : GW_COPIES_ONE;
    a->below = begins ? work_take(m, below, GW_COPIES_SLOT, held->chunk) : a[-1].y;
    a->x = gathers ? work_take(m, in, outputs, held->chunk) : a->below;
    a->y = work_take(m, out, outputs, held->chunk);
    int kept = gw_model_spec_unit(&m->shard.spec, held->number).kept;
    a->kept = work_take(m, (widths){kept, kept}, outputs, held->chunk);
    a->gathered = work_take_gathered(m, held);
    if (gw_model_tops(m, l))
        a->dy = a->y;
    else if (gw_model_ends(m, l) || m->room.keep)
        a->dy = work_take(m, out, GW_COPIES_DELTA, held->chunk);
    else
        a->dy = work_as_wide(s->delta[l % 2], out);
    if (held->number == 0)
        return; /* nothing is below */
    a->lower = begins ? work_take(m, below, GW_COPIES_DELTA, held->chunk) : a[-1].dy;
    a->dx = gathers ? work_as_wide(s->dx, in) : a->lower;
}

void gw_model_lay_out_work(gw_model *m) {
    shared s = work_share(m);
    for (int l = 0; l < m->shard.n_layers; l++)
        work_lay_out_layer(m, l, &s);
}

gw_span gw_model_rows(const gw_area *area, gw_micro at) {
    int copy = area->copies == GW_COPIES_SLOT    ? at.slot
               : area->copies == GW_COPIES_DELTA ? at.delta
                                                 : 0;
    size_t width = (size_t)area->width;
    return (gw_span){area->off + (size_t)copy * area->copy + (size_t)at.first * width,
                     (size_t)at.n * width};
}

gw_span gw_model_edge(const gw_model *m, int chunk, gw_edge edge, gw_micro at) {
    int first = 0, last;
    while (gw_model_held(m, first)->chunk < chunk)
        first++;
    for (last = first; !gw_model_ends(m, last);)
        last++;
    switch (edge) {
    case GW_EDGE_INPUT: return gw_model_rows(&m->areas[first].below, at);
    case GW_EDGE_OUTPUT: return gw_model_rows(&m->areas[last].y, at);
    case GW_EDGE_OUTPUT_DELTA:
        return gw_model_tops(m, last) ? (gw_span){0, 0} : gw_model_rows(&m->areas[last].dy, at);
    case GW_EDGE_INPUT_DELTA: return gw_model_rows(&m->areas[first].lower, at);
    }
    return (gw_span){0, 0};
}

/* ---- among the tensor ranks ---- */

/* For each of the rows `width` floats of each tensor rank, rank by rank. */
static gw_span work_by_rank(const gw_model *m, const gw_area *area, int width, gw_micro at) {
    size_t row = (size_t)m->shard.share.tensor * (size_t)width;
    return (gw_span){area->off + (size_t)at.first * row, (size_t)at.n * row};
}

gw_join gw_model_join(const gw_model *m, int l, gw_moment moment, gw_micro at) {
    const gw_shard_layer *held = gw_model_held(m, l);
    bool columns = held->cut == GW_CUT_COLUMNS, gathers = gw_model_gathers(m, l);
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
                             work_by_rank(m, &m->blocks, work_block_width(m, l), at)};
        if (moment == GW_MOMENT_INPUT || !(columns || held->cut == GW_CUT_BOTH) ||
            held->number == 0)
            return none;
        return (gw_join){GW_JOIN_ALLREDUCE, gw_model_rows(&m->areas[l].dx, at)};
    case GW_MOMENT_PRODUCT:
        if (held->cut != GW_CUT_ROWS && held->cut != GW_CUT_BOTH)
            return none;
        return (gw_join){GW_JOIN_ALLREDUCE, gw_model_rows(&m->areas[l].y, at)};
    case GW_MOMENT_LOSS:
        if (!columns || !gw_model_tops(m, l))
            return none;
        return (gw_join){GW_JOIN_ALLGATHER, work_by_rank(m, &m->told, work_told(m), at)};
    }
    return none;
}

/* Between columns `cols` of an area's rows and the block of tensor rank t. */
static void work_copy(gw_model *m, int l, gw_micro at, const gw_area *area, gw_span cols, int t,
                      bool pack) {
    size_t block = (size_t)work_block_width(m, l), width = (size_t)area->width;
    gw_span blocks = work_by_rank(m, &m->blocks, (int)block, at);
    float *rows = m->work + gw_model_rows(area, at).off + cols.off;
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

static void work_copy_own(gw_model *m, int l, gw_micro at, const gw_area *area, bool pack) {
    work_copy(m, l, at, area, (gw_span){0, (size_t)area->width}, m->shard.share.part, pack);
}

static void work_copy_all(gw_model *m, int l, gw_micro at, const gw_area *area, bool pack) {
    int ranks = m->shard.share.tensor;
    for (int t = 0; t < ranks; t++)
        work_copy(m, l, at, area, gw_share_part(area->width, t, ranks), t, pack);
}

/* This rank's parts in their places among zeros, so that a sum gathers them. */
static void work_copy_gathered(gw_model *m, int l) {
    const gw_shard_layer *held = gw_model_held(m, l);
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
        work_copy_gathered(m, l);
    else if (gw_model_gathers(m, l) && moment == GW_MOMENT_INPUT)
        work_copy_own(m, l, at, &m->areas[l].below, true);
    else if (gw_model_gathers(m, l) && moment == GW_MOMENT_DELTA)
        work_copy_all(m, l, at, &m->areas[l].dx, true);
}

void gw_model_unpack(gw_model *m, int l, gw_moment moment, gw_micro at) {
    if (gw_model_gathers(m, l) && moment == GW_MOMENT_INPUT)
        work_copy_all(m, l, at, &m->areas[l].x, false);
    else if (gw_model_gathers(m, l) && moment == GW_MOMENT_DELTA)
        work_copy_own(m, l, at, &m->areas[l].lower, false);
}
