/* The public functions: what the exchange carries from batch to batch, out and in again. */
#include "api/handle.h"
#include "base/io.h"
#include "base/mem.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* A blob is this, then the fields of a gw_io in memory, then the CRC-32 of both. */
typedef struct state_head {
    char magic[8];
    uint64_t bytes; /* of the fields */
    uint32_t words, tensors;
    int32_t rank, ranks;
} state_head;

#define MOST_STEPS ((int64_t)1 << 53) /* which figures, being doubles, can count */

static const char magic[8] = "GWSTATE";

static state_head state_head_of(const gradwire *g, size_t bytes) {
    state_head head = {.bytes = bytes,
                       .words = gw_words_exchange_sum(&g->words),
                       .tensors = gw_layout_sum(g),
                       .rank = g->rank,
                       .ranks = g->ranks};
    memcpy(head.magic, magic, sizeof magic);
    return head;
}

static uint32_t state_sum(const void *bytes, size_t n) {
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), bytes, n);
}

static gw_err state_refuse(const char *why) {
    return gw_fail(GW_ERR_INPUT, "gradwire_load: %s", why);
}

static gw_err state_fields(gradwire *g, gw_io *io) {
    int64_t at[2] = {g->batch.step, g->batch.epoch};
    GW_TRY(gw_io_alike(io, "steps", at, sizeof at));
    if (at[0] < 0 || at[0] > MOST_STEPS || at[1] < 1 || at[1] >= INT_MAX)
        return state_refuse("the state counts steps or epochs that no run has");
    GW_TRY(gw_session_state(g->session, io));
    if (g->optimizer)
        GW_TRY(gw_optimizer_state(g->optimizer, io));
    g->batch.step = at[0];
    g->batch.epoch = (int)at[1];
    return GW_OK;
}

/* ---- out ---- */

static gw_err state_pack(const gradwire *g, const gw_io_memory *m, void **bytes, size_t *n) {
    state_head head = state_head_of(g, m->bytes);
    size_t all = sizeof head + m->bytes;
    uint32_t sum;
    unsigned char *blob = malloc(all + sizeof sum);
    if (!blob)
        return gw_fail(GW_ERR_NOMEM, "gradwire_save: cannot allocate %zu bytes", all);
    memcpy(blob, &head, sizeof head);
    memcpy(blob + sizeof head, m->data, m->bytes);
    sum = state_sum(blob, all);
    memcpy(blob + all, &sum, sizeof sum);
    *bytes = blob;
    *n = all + sizeof sum;
    return GW_OK;
}

static gw_err state_save(gradwire *g, void **bytes, size_t *n) {
    gw_io_memory m = {0};
    gw_io *io = NULL;
    gw_err e = gw_agree(g->comm, gw_io_keep(&io, &m));
    if (e == GW_OK) {
        gw_files_aside(g); /* an exchange may be drained: the run's bytes, and no batch's */
        e = gw_io_end(io, state_fields(g, io));
        gw_files_aside_end(g);
        e = gw_agree(g->comm, e);
    } else {
        gw_io_abandon(io);
    }
    if (e == GW_OK)
        e = gw_agree(g->comm, state_pack(g, &m, bytes, n));
    free(m.data);
    return e;
}

int gradwire_save(gradwire *g, void **bytes, size_t *n) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "save", GW_IN_BETWEEN, false);
    if (e == GW_OK && (!bytes || !n))
        e = gw_call_refuse("save", "bytes or n is NULL");
    if (e == GW_OK && g->batch.pending)
        e = gw_call_refuse("save", "an exchange is pending: finish, update and await every group "
                                   "first");
    if (e == GW_OK) {
        *bytes = NULL;
        *n = 0;
        c.together = true;
        e = state_save(g, bytes, n);
        if (e != GW_OK) {
            free(*bytes);
            *bytes = NULL;
        }
    }
    return gw_call_end(&c, e);
}

/* ---- in ---- */

static gw_err state_check(const gradwire *g, const unsigned char *blob, size_t n) {
    state_head head, own;
    uint32_t sum;
    if (n < sizeof head + sizeof sum)
        return state_refuse("the state is cut short, or none");
    memcpy(&head, blob, sizeof head);
    memcpy(&sum, blob + n - sizeof sum, sizeof sum);
    if (memcmp(head.magic, magic, sizeof magic) != 0)
        return state_refuse("these bytes were not written by gradwire_save");
    if (head.bytes != n - sizeof head - sizeof sum || sum != state_sum(blob, n - sizeof sum))
        return state_refuse("the state is damaged: its checksum or length is wrong");
    own = state_head_of(g, head.bytes);
    if (head.ranks != own.ranks || head.rank != own.rank)
        return gw_fail(GW_ERR_INPUT,
                       "gradwire_load: the state is of rank %d of %d, and this is rank %d of %d",
                       (int)head.rank, (int)head.ranks, g->rank, g->ranks);
    if (head.words != own.words)
        return state_refuse("the state is of a run with other words (strategy, codec, error "
                            "feedback, update, seed ..): give the same ones");
    if (head.tensors != own.tensors)
        return state_refuse("the state is of other tensors (names, groups, sizes)");
    return GW_OK;
}

static gw_err state_load(gradwire *g, const unsigned char *blob, size_t n) {
    gw_io_memory m = {.bytes = n - sizeof(state_head) - sizeof(uint32_t)};
    gw_io *io = NULL;
    m.room = m.bytes;
    gw_err e = gw_alloc(&m.data, m.bytes, 1);
    if (e == GW_OK) {
        memcpy(m.data, blob + sizeof(state_head), m.bytes);
        e = gw_io_recall(&io, &m);
    }
    e = gw_agree(g->comm, e);
    if (e == GW_OK)
        e = gw_agree(g->comm, gw_io_end(io, state_fields(g, io)));
    else
        gw_io_abandon(io);
    free(m.data);
    if (e != GW_OK) /* whole, and of these words, but not what they carry: half is loaded */
        g->state = GW_HANDLE_BROKEN;
    gw_recorder_count_on(&g->files.rec, g->batch.step);
    g->batch.fresh = true;
    return e;
}

int gradwire_load(gradwire *g, const void *bytes, size_t n) {
    gw_call c;
    gw_err e = gw_call_begin(&c, g, "load", GW_IN_BETWEEN, false);
    if (e == GW_OK && g->batch.step > 0)
        e = gw_call_refuse("load", "there was a batch already: load comes before the first one");
    if (e == GW_OK) {
        c.together = true;
        e = gw_agree(g->comm, bytes ? state_check(g, bytes, n) : state_refuse("bytes is NULL"));
        GW_THEN(e, state_load(g, bytes, n));
    }
    return gw_call_end(&c, e);
}
