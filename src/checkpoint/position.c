#include "checkpoint/position.h"

#include "base/mem.h"
#include "checkpoint/store.h"

#include <stdio.h>
#include <stdlib.h>

/* How long the fields behind it are: floats, floats, spans, bytes, bytes. */
typedef struct sizes {
    uint64_t params, momentum, owned, exchange, statistics;
} sizes;

_Static_assert(sizeof(gw_span) == 2 * sizeof(uint64_t), "spans are written as they are");

/* What the file claims is bounded by what it has before memory is taken for it. */
static gw_err position_make_room(gw_rank_state *r, const gw_io *io, const sizes *s, uint64_t bytes,
                                 size_t n) {
    uint64_t most = bytes / sizeof(float);
    if (s->params != n)
        return gw_fail(GW_ERR_INPUT, "%s: %llu parameters, this model has %zu", gw_io_name(io),
                       (unsigned long long)s->params, n);
    if (s->momentum > most || s->owned > GW_MAX_LAYERS || s->exchange > bytes ||
        s->statistics > bytes)
        return gw_fail(GW_ERR_INPUT, "%s: claims more than it holds", gw_io_name(io));
    r->n = n;
    r->n_momentum = (size_t)s->momentum;
    r->owned.n = (int)s->owned;
    r->exchange.bytes = r->exchange.room = (size_t)s->exchange;
    r->statistics.bytes = r->statistics.room = (size_t)s->statistics;
    GW_TRY(gw_alloc(&r->params, r->n, sizeof(float)));
    GW_TRY(gw_alloc(&r->momentum, r->n_momentum, sizeof(float)));
    GW_TRY(gw_alloc(&r->exchange.data, r->exchange.bytes, 1));
    return gw_alloc(&r->statistics.data, r->statistics.bytes, 1);
}

static gw_err position_spans(gw_rank_state *r, gw_io *io) {
    gw_span *all = r->owned.span;
    GW_TRY(gw_io_field(io, "owned", all, (size_t)r->owned.n * sizeof *all));
    for (int i = 0; i < r->owned.n; i++)
        if (all[i].off > r->n || all[i].n > r->n - all[i].off)
            return gw_fail(GW_ERR_INPUT, "%s: a span that ends behind the parameters",
                           gw_io_name(io));
    return GW_OK;
}

static gw_err position_fields(gw_rank_state *r, gw_io *io, uint64_t bytes, size_t n) {
    float none = 0; /* an empty field still wants an address */
    sizes s = {r->n, r->n_momentum, (uint64_t)r->owned.n, r->exchange.bytes, r->statistics.bytes};
    GW_TRY(gw_io_field(io, "sizes", &s, sizeof s));
    if (gw_io_loading(io))
        GW_TRY(position_make_room(r, io, &s, bytes, n));
    GW_TRY(gw_io_field(io, "position", &r->at, sizeof r->at));
    GW_TRY(gw_io_field(io, "parameters", r->params, r->n * sizeof(float)));
    GW_TRY(gw_io_field(io, "momentum", r->momentum ? r->momentum : &none,
                       r->n_momentum * sizeof(float)));
    GW_TRY(position_spans(r, io));
    GW_TRY(gw_io_field(io, "exchange", r->exchange.data, r->exchange.bytes));
    return gw_io_field(io, "statistics", r->statistics.data, r->statistics.bytes);
}

gw_err gw_rank_state_save(gw_rank_state *r, const char *dir, int rank, uint64_t *bytes,
                          uint32_t *crc32) {
    char name[GW_STORE_NAME];
    gw_io *io = NULL;
    gw_store_rank_name(rank, name);
    GW_TRY(gw_io_save(&io, dir, name, GW_RANK_MAGIC, GW_RANK_VERSION));
    gw_err e = position_fields(r, io, 0, r->n);
    if (e == GW_OK)
        return gw_io_close_with(io, bytes, crc32);
    gw_io_abandon(io);
    return e;
}

gw_err gw_rank_state_load(gw_rank_state *r, const char *dir, int rank, uint64_t bytes, size_t n) {
    char name[GW_STORE_NAME], path[GW_STORE_PATH + GW_STORE_NAME];
    gw_io *io = NULL;
    gw_store_rank_name(rank, name);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    *r = (gw_rank_state){0};
    GW_TRY(gw_io_load(&io, path, GW_RANK_MAGIC, GW_RANK_VERSION, (size_t)bytes));
    gw_err e = gw_io_end(io, position_fields(r, io, bytes, n));
    if (e != GW_OK)
        gw_rank_state_free(r);
    return e;
}

void gw_rank_state_free(gw_rank_state *r) {
    free(r->params);
    free(r->momentum);
    free(r->exchange.data);
    free(r->statistics.data);
    *r = (gw_rank_state){0};
}
