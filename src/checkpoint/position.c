#include "checkpoint/position.h"

#include "base/mem.h"
#include "folder/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the fields behind it are: floats, floats, spans, bytes, bytes; the floats of the whole
 * model, and blocks; and a count of updates. */
typedef struct sizes {
    uint64_t params, state, owned, exchange, statistics, whole, blocks, updates;
} sizes;

_Static_assert(sizeof(gw_span) == 2 * sizeof(uint64_t), "spans are written as they are");
_Static_assert(sizeof(gw_block) == 5 * sizeof(uint64_t), "blocks are, too");

void gw_rank_state_shape(gw_rank_state *r, const gw_shard *shard) {
    r->whole = shard->whole;
    r->n = shard->size;
    r->n_blocks = r->n < r->whole ? shard->n_blocks : 1;
    r->blocks[0] = (gw_block){.rows = 1, .cols = r->n, .stride = r->n};
    if (r->n < r->whole)
        memcpy(r->blocks, shard->blocks, (size_t)r->n_blocks * sizeof *r->blocks);
}

bool gw_rank_state_alike(const gw_rank_state *a, const gw_rank_state *b) {
    return a->whole == b->whole && a->n_blocks == b->n_blocks &&
           memcmp(a->blocks, b->blocks, (size_t)a->n_blocks * sizeof *a->blocks) == 0;
}

/* What the file claims is bounded by what it has before memory is taken for it. */
static gw_err position_make_room(gw_rank_state *r, const gw_io *io, const sizes *s, uint64_t bytes,
                                 size_t whole) {
    uint64_t most = bytes / sizeof(float);
    if (s->whole != whole)
        return gw_fail(GW_ERR_INPUT, "%s: %llu parameters, this model has %zu", gw_io_name(io),
                       (unsigned long long)s->whole, whole);
    if (s->params > most || s->params > whole || s->state > most || s->owned > GW_MAX_LAYERS ||
        s->blocks > GW_SHARD_BLOCKS || s->exchange > bytes || s->statistics > bytes ||
        s->state > GW_OPTIMIZER_VECTORS * s->params || s->updates > INT64_MAX ||
        (s->params > 0 && s->state % s->params > 0))
        return gw_fail(GW_ERR_INPUT, "%s: claims more than it holds", gw_io_name(io));
    r->whole = whole;
    r->n = (size_t)s->params;
    r->vectors.count = s->params > 0 ? (int)(s->state / s->params) : 0;
    r->updates = (int64_t)s->updates;
    r->owned.n = (int)s->owned;
    r->n_blocks = (int)s->blocks;
    r->exchange.bytes = r->exchange.room = (size_t)s->exchange;
    r->statistics.bytes = r->statistics.room = (size_t)s->statistics;
    GW_TRY(gw_alloc(&r->params, r->n, sizeof(float)));
    GW_TRY(gw_alloc(&r->vectors.x, (size_t)s->state, sizeof(float)));
    GW_TRY(gw_alloc(&r->exchange.data, r->exchange.bytes, 1));
    return gw_alloc(&r->statistics.data, r->statistics.bytes, 1);
}

static gw_err position_fields(gw_rank_state *r, gw_io *io, uint64_t bytes, size_t whole) {
    float none = 0; /* an empty field still wants an address */
    sizes s = {r->n,
               r->n * (size_t)r->vectors.count,
               (uint64_t)r->owned.n,
               r->exchange.bytes,
               r->statistics.bytes,
               r->whole,
               (uint64_t)r->n_blocks,
               (uint64_t)r->updates};
    GW_TRY(gw_io_field(io, "sizes", &s, sizeof s));
    if (gw_io_loading(io))
        GW_TRY(position_make_room(r, io, &s, bytes, whole));
    GW_TRY(gw_io_field(io, "position", &r->at, sizeof r->at));
    GW_TRY(gw_io_field(io, "blocks", r->blocks, (size_t)r->n_blocks * sizeof *r->blocks));
    if (!gw_blocks_sound(r->blocks, r->n_blocks, r->n, r->whole))
        return gw_fail(GW_ERR_INPUT, "%s: its blocks do not fit into the model", gw_io_name(io));
    GW_TRY(gw_io_field(io, "parameters", r->params, r->n * sizeof(float)));
    GW_TRY(gw_io_field(io, "state", r->vectors.x ? r->vectors.x : &none,
                       r->n * (size_t)r->vectors.count * sizeof(float)));
    gw_span *owned = r->owned.span;
    GW_TRY(gw_io_field(io, "owned", owned, (size_t)r->owned.n * sizeof *owned));
    for (int i = 0; i < r->owned.n; i++)
        if (owned[i].off > r->n || owned[i].n > r->n - owned[i].off)
            return gw_fail(GW_ERR_INPUT, "%s: a span that ends behind the parameters",
                           gw_io_name(io));
    GW_TRY(gw_io_field(io, "exchange", r->exchange.data, r->exchange.bytes));
    return gw_io_field(io, "statistics", r->statistics.data, r->statistics.bytes);
}

gw_err gw_rank_state_save(gw_rank_state *r, const char *dir, int rank, uint64_t *bytes,
                          uint32_t *crc32) {
    char name[GW_STORE_NAME];
    gw_io *io = NULL;
    gw_store_rank_name(rank, name);
    GW_TRY(gw_io_save(&io, dir, name, GW_RANK_MAGIC, GW_RANK_VERSION));
    gw_err e = position_fields(r, io, 0, r->whole);
    if (e == GW_OK)
        return gw_io_close_with(io, bytes, crc32);
    gw_io_abandon(io);
    return e;
}

gw_err gw_rank_state_load(gw_rank_state *r, const char *dir, int rank, uint64_t bytes,
                          size_t whole) {
    char name[GW_STORE_NAME], path[GW_STORE_PATH + GW_STORE_NAME];
    gw_io *io = NULL;
    gw_store_rank_name(rank, name);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    *r = (gw_rank_state){0};
    GW_TRY(gw_io_load(&io, path, GW_RANK_MAGIC, GW_RANK_VERSION, (size_t)bytes));
    gw_err e = gw_io_end(io, position_fields(r, io, bytes, whole));
    if (e != GW_OK)
        gw_rank_state_free(r);
    return e;
}

void gw_rank_state_free(gw_rank_state *r) {
    free(r->params);
    free(r->vectors.x);
    free(r->exchange.data);
    free(r->statistics.data);
    *r = (gw_rank_state){0};
}

/* ---- out of several ranks' files ---- */

gw_err gw_merge_open(gw_merge *m, size_t n, int vectors) {
    size_t all = (size_t)vectors * n;
    m->n = n;
    m->vectors = vectors;
    GW_TRY(gw_alloc(&m->params, n, sizeof *m->params));
    GW_TRY(gw_alloc(&m->holders, n, sizeof *m->holders));
    GW_TRY(gw_alloc(&m->state, all, sizeof *m->state));
    GW_TRY(gw_alloc(&m->owners, vectors > 0 ? n : 0, sizeof *m->owners));
    return gw_alloc(&m->first, all, sizeof *m->first);
}

void gw_merge_free(gw_merge *m) {
    free(m->params);
    free(m->state);
    free(m->holders);
    free(m->owners);
    free(m->first);
    *m = (gw_merge){0};
}

/* A row of a block: `n` floats at `own` of the rank's arena, at `off` of the whole one. */
static void position_add_params(gw_merge *m, const gw_rank_state *r, size_t own, size_t off,
                                size_t n) {
    for (size_t i = 0; i < n; i++) {
        double x = (double)r->params[own + i];
        size_t k = off + i;
        m->differ |= m->holders[k] > 0 && m->params[k] != x * m->holders[k];
        for (int v = 0; v < m->vectors && m->holders[k] == 0; v++)
            m->first[(size_t)v * m->n + k] = r->vectors.x[(size_t)v * r->n + own + i];
        m->params[k] += x;
        m->holders[k]++;
    }
}

static void position_add_owned(gw_merge *m, const gw_rank_state *r, size_t own, size_t off,
                               size_t n) {
    for (int i = 0; m->vectors > 0 && i < r->owned.n; i++) {
        gw_span s = gw_span_common(r->owned.span[i], (gw_span){own, n});
        for (size_t at = s.off, k = off + s.off - own; at < gw_span_end(s); at++, k++) {
            for (int v = 0; v < m->vectors; v++)
                m->state[(size_t)v * m->n + k] += (double)r->vectors.x[(size_t)v * r->n + at];
            m->owners[k]++;
        }
    }
}

void gw_merge_add(gw_merge *m, const gw_rank_state *r) {
    m->updates = r->updates > m->updates ? r->updates : m->updates;
    for (const gw_block *b = r->blocks; b < r->blocks + r->n_blocks; b++)
        for (size_t row = 0; row < b->rows; row++) {
            size_t own = b->own + row * b->cols, off = b->off + row * b->stride;
            position_add_params(m, r, own, off, b->cols);
            position_add_owned(m, r, own, off, b->cols);
        }
}

/* A mean of equal floats is that float, to the bit: their sum in doubles is exact. */
gw_err gw_merge_end(const gw_merge *m, const char *from, float *params, float *state) {
    for (size_t k = 0; k < m->n; k++) {
        if (m->holders[k] == 0)
            return gw_fail(GW_ERR_INPUT, "%s: no rank's file has parameter %zu", from, k);
        params[k] = (float)(m->params[k] / m->holders[k]);
    }
    for (size_t i = 0; i < (size_t)m->vectors * m->n; i++) {
        uint32_t owners = m->owners[i % m->n]; /* none: no step since it was merged */
        state[i] = owners ? (float)(m->state[i] / owners) : m->first[i];
    }
    return GW_OK;
}
