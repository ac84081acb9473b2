/* Lanes and their families: see comm/lane.h. */
#include "comm/lane.h"

#include "base/mem.h"
#include "comm/channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct gw_attachment {
    struct gw_attachment *next;
    const void *key;
    void *data;
    void (*release)(void *data);
} gw_attachment;

struct gw_lane {
    gw_channel channel;
    gw_encoder encoder;
    gw_lane *parent; /* of a lane split off another, else NULL: it is the root of a family */
    gw_attachment *attached;
    const gw_lane_run *runs; /* see gw_lane_divide */
    int n_runs;
    /* of a root: */
    gw_encoders encoders; /* what those of the family share */
    gw_lane_notes *notes;
    const char *table;
    int id;        /* number of a lane that was opened, in order; from 0 */
    int schedules; /* laid down so far, by the family */
};

/* The lane that all of a family were split off. */
static gw_lane *lane_root(const gw_lane *lane) {
    while (lane->parent)
        lane = lane->parent;
    return (gw_lane *)lane;
}

/* ---- what it has ---- */

int gw_lane_rank(const gw_lane *lane) {
    return lane->channel.fabric->rank;
}

int gw_lane_size(const gw_lane *lane) {
    return lane->channel.fabric->size;
}

MPI_Comm gw_lane_comm(const gw_lane *lane) {
    return lane->channel.fabric->comm;
}

gw_err gw_lane_agree(const gw_lane *lane, gw_err mine) {
    return lane->channel.fabric->ops->agree(lane->channel.fabric, mine);
}

bool gw_lane_yields(const gw_lane *lane) {
    return lane->channel.yield;
}

gw_channel *gw_lane_channel(const gw_lane *lane) {
    return (gw_channel *)&lane->channel;
}

gw_encoder *gw_lane_encoder(const gw_lane *lane) {
    return (gw_encoder *)&lane->encoder;
}

const gw_codec *gw_lane_codec(const gw_lane *lane) {
    return lane->encoder.codec;
}

bool gw_lane_exact(const gw_lane *lane) {
    return lane->encoder.codec->caps & GW_CODEC_IDENTITY;
}

uint64_t gw_lane_seed(const gw_lane *lane) {
    return lane->encoder.of->seed;
}

const char *gw_lane_table(const gw_lane *lane) {
    return lane_root(lane)->table;
}

bool gw_lane_mixed(const gw_lane *lane) {
    return lane->n_runs > 0;
}

void gw_lane_divide(gw_lane *lane, const gw_lane_run *runs, int n) {
    lane->runs = runs;
    lane->n_runs = n;
}

const gw_lane_run *gw_lane_runs(const gw_lane *lane, int *n) {
    *n = lane->n_runs;
    return lane->runs;
}

void gw_lane_reshape(gw_lane *lane) {
    lane->encoder.of->n_layers = 0;
}

gw_err gw_lane_decay(gw_lane *lane, float decay) {
    if (!lane->encoder.of->store)
        return gw_fail(GW_ERR_USAGE,
                       "decay=%g: there is no error feedback that could decay: use a codec that "
                       "holds something back, or --error-feedback on",
                       (double)decay);
    lane->encoder.of->decay = decay;
    return GW_OK;
}

void gw_lane_begin(gw_lane *lane) {
    lane->encoder.of->ticket++;
}

void gw_lane_begin_at(gw_lane *lane, uint64_t ticket) {
    lane->encoder.of->ticket = ticket;
}

uint64_t gw_lane_ticket(const gw_lane *lane) {
    return lane->encoder.of->ticket;
}

int gw_lane_root_rank(const gw_lane *lane, int rank) {
    const int *family = lane_root(lane)->channel.fabric->world;
    int i = 0;
    while (family[i] != lane->channel.fabric->world[rank])
        i++;
    return i;
}

gw_exchange gw_lane_exchange(gw_lane *lane, gw_span span) {
    gw_lane *root = lane_root(lane);
    return (gw_exchange){.dim = root->channel.dim,
                         .lane = root->id,
                         .schedule = root->schedules++,
                         .off = span.off,
                         .n = span.n,
                         .name = root->encoders.name};
}

/* ---- opening and closing ---- */

gw_err gw_lane_open_on(gw_lane **out, gw_fabric *fabric, const gw_lane_setup *setup) {
    gw_lane *lane = NULL;
    int id = (*fabric->lanes)++; /* on every rank, whatever goes wrong on one */
    gw_err e = gw_alloc(&lane, 1, sizeof *lane);
    GW_THEN(e, gw_codec_join(setup->codec, setup->apart ? 1 : fabric->size));
    if (e == GW_OK) {
        *lane = (gw_lane){.channel = {.fabric = fabric, .dim = setup->dim, .yield = setup->yield},
                          .encoders = {.name = setup->name,
                                       .n = setup->n,
                                       .seed = setup->seed,
                                       .fed = setup->fed && fabric->size > 1,
                                       .phantom = setup->phantom,
                                       .layers = setup->layers,
                                       .n_layers = setup->n_layers,
                                       .coded = setup->coded},
                          .encoder = {.of = &lane->encoders,
                                      .rank = fabric->rank,
                                      .ranks = fabric->size,
                                      .velocity = setup->velocity,
                                      .codings = setup->codings},
                          .notes = setup->notes,
                          .table = setup->table,
                          .id = id};
        e = gw_encoder_open(&lane->encoder, setup->codec, setup->feedback);
    }
    e = fabric->ops->agree(fabric, e);
    if (e != GW_OK) {
        if (!lane || !lane->channel.fabric)
            fabric->ops->close(fabric);
        gw_lane_close(lane);
        return e;
    }
    *out = lane;
    return GW_OK;
}

gw_err gw_lane_open(gw_lane **out, MPI_Comm parent, const gw_lane_setup *setup) {
    gw_fabric *fabric;
    gw_lane *lane;
    GW_TRY(gw_fabric_of(&fabric, parent));
    GW_TRY(gw_lane_open_on(&lane, fabric, setup));
    gw_err e = setup->shared ? gw_shared_open(&lane->channel.shared, parent) : GW_OK;
    GW_OPENED(e, out, lane, gw_lane_close);
}

void gw_lane_close(gw_lane *lane) {
    if (!lane)
        return;
    while (lane->attached) { /* last come, first gone */
        gw_attachment *a = lane->attached;
        lane->attached = a->next;
        a->release(a->data);
        free(a);
    }
    if (lane->parent)
        lane->channel.shared = NULL; /* a branch's is its parent's */
    gw_channel_close(&lane->channel);
    gw_encoders_close(&lane->encoders);
    free(lane);
}

static void lane_release(void *lane) {
    gw_lane_close(lane);
}

gw_err gw_lane_split(gw_lane *lane, int color, gw_lane **sub) {
    gw_channel channel;
    gw_lane *l = NULL;
    *sub = NULL;
    GW_TRY(gw_channel_split(&lane->channel, color, &channel));
    gw_err e = channel.fabric ? gw_alloc(&l, 1, sizeof *l) : GW_OK;
    e = gw_lane_agree(lane, e);
    if (e != GW_OK) {
        free(l);
        gw_channel_close(&channel);
        return e;
    }
    if (!l)
        return GW_OK;
    *l = (gw_lane){.channel = channel, .encoder = lane->encoder, .parent = lane};
    l->encoder.rank = channel.fabric->rank;
    l->encoder.ranks = channel.fabric->size;
    GW_TRY(gw_lane_attach(lane, l, l, lane_release));
    *sub = l;
    return GW_OK;
}

gw_err gw_lane_branch(gw_lane *lane, gw_codec *codec, bool apart, bool feedback, gw_lane **branch) {
    gw_encoder encoder = lane->encoder;
    gw_lane *l;
    GW_TRY(gw_codec_join(codec, apart ? 1 : gw_lane_size(lane))); /* the same on all ranks */
    GW_TRY(gw_lane_agree(lane, gw_encoder_open(&encoder, codec, feedback)));
    GW_TRY(gw_lane_split(lane, 0, &l));
    encoder.codings = NULL;
    if (!(encoder.residual && codec->caps & GW_CODEC_SPARSE))
        encoder.velocity = NULL;
    l->encoder = encoder;
    l->channel.shared = lane->channel.shared;
    *branch = l;
    return GW_OK;
}

/* ---- what is attached ---- */

gw_err gw_lane_attach(gw_lane *lane, const void *key, void *data, void (*release)(void *data)) {
    gw_attachment *a = NULL;
    gw_err e = gw_alloc(&a, 1, sizeof *a);
    if (e != GW_OK) {
        release(data);
        return e;
    }
    *a = (gw_attachment){lane->attached, key, data, release};
    lane->attached = a;
    return GW_OK;
}

void *gw_lane_attached(const gw_lane *lane, const void *key) {
    for (const gw_attachment *a = lane->attached; a; a = a->next)
        if (a->key == key)
            return a->data;
    return NULL;
}

gw_err gw_lane_floats(gw_lane *lane, size_t n, float **out) {
    gw_shared *shared = lane->channel.shared;
    gw_phantom *phantom = lane->encoder.of->phantom;
    void *fresh = NULL;
    if (phantom) {
        size_t rounded = (n + GW_ALIGN - 1) / GW_ALIGN * GW_ALIGN;
        if (rounded > phantom->room - phantom->used)
            return gw_fail(GW_ERR_NOMEM, "lane: more than %zu floats are asked for", phantom->room);
        fresh = phantom->floats + phantom->used;
        phantom->used += rounded;
    } else if (shared) {
        GW_TRY(gw_lane_agree(lane, gw_shared_alloc(shared, n * sizeof(float), &fresh)));
    } else {
        float *own = NULL;
        gw_err e = gw_alloc(&own, n, sizeof *own);
        GW_THEN(e, gw_lane_attach(lane, own, own, free));
        GW_TRY(gw_lane_agree(lane, e));
        fresh = own;
    }
    *out = fresh;
    return GW_OK;
}

gw_err gw_lane_stand_in(gw_lane *lane, int ranks, gw_lane **out) {
    struct {
        gw_lane lane;
        gw_fabric fabric;
    } *s = NULL;
    GW_TRY(gw_alloc(&s, 1, sizeof *s));
    s->fabric.size = ranks;
    s->lane = (gw_lane){.channel.fabric = &s->fabric, .encoder = lane->encoder, .parent = lane};
    *out = &s->lane;
    return gw_lane_attach(lane, s, s, free);
}

/* ---- notes ---- */

static gw_err lane_append(char **text, const char *more, const char *end) {
    char *wide;
    if (asprintf(&wide, "%s%s%s", *text ? *text : "", more, end) < 0)
        return gw_fail(GW_ERR_NOMEM, "lane: out of memory");
    free(*text);
    *text = wide;
    return GW_OK;
}

void gw_lane_note(gw_lane *lane, const char *line) {
    gw_lane_notes *to = lane_root(lane)->notes;
    if (to && (!to->lines || !strstr(to->lines, line)))
        lane_append(&to->lines, line, "\n"); /* without memory: a report without this line */
}

gw_err gw_lane_choices(gw_lane *lane, const char *rows) {
    gw_lane_notes *to = lane_root(lane)->notes;
    return to ? lane_append(&to->choices, rows, "") : GW_OK;
}
