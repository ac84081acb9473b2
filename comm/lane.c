#include "comm/lane_parts.h"

#include "base/mem.h"
#include "base/rng.h"
#include "compress/feedback.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct gw_attachment {
    struct gw_attachment *next;
    const void *key;
    void *data;
    void (*release)(void *data);
} gw_attachment;

/* The lane that all of a family were split off. */
static gw_lane *lane_root(const gw_lane *lane) {
    while (lane->parent)
        lane = lane->parent;
    return (gw_lane *)lane;
}

int gw_lane_rank(const gw_lane *lane) {
    return lane->rank;
}

int gw_lane_size(const gw_lane *lane) {
    return lane->size;
}

MPI_Comm gw_lane_comm(const gw_lane *lane) {
    return lane->fabric->comm;
}

gw_err gw_lane_agree(const gw_lane *lane, gw_err mine) {
    return lane->fabric->ops->agree(lane->fabric, mine);
}

const gw_codec *gw_lane_codec(const gw_lane *lane) {
    return lane->codec;
}

bool gw_lane_yields(const gw_lane *lane) {
    return lane->yield;
}

uint64_t gw_lane_seed(const gw_lane *lane) {
    return lane->seed;
}

bool gw_lane_mixed(const gw_lane *lane) {
    return lane->n_runs > 0;
}

bool gw_lane_exact(const gw_lane *lane) {
    return lane->codec->caps & GW_CODEC_IDENTITY;
}

void gw_lane_reshape(gw_lane *lane) {
    lane->tally.n = 0;
}

gw_err gw_lane_decay(gw_lane *lane, float decay) {
    gw_lane *root = lane_root(lane);
    if (!root->kept.store)
        return gw_fail(GW_ERR_USAGE,
                       "decay=%g: there is no error feedback that could decay: use a codec that "
                       "holds something back, or --error-feedback on",
                       (double)decay);
    root->kept.decay = decay;
    return GW_OK;
}

gw_err gw_lane_open_on(gw_lane **out, gw_fabric *fabric, const gw_lane_setup *setup) {
    gw_lane *lane = NULL;
    bool residual = setup->feedback && !(setup->codec->caps & GW_CODEC_LOSSLESS);
    int id = (*fabric->lanes)++; /* on every rank, whatever goes wrong on one */
    gw_err e = gw_alloc(&lane, 1, sizeof *lane);
    GW_THEN(e, gw_codec_join(setup->codec, setup->apart ? 1 : fabric->size));
    if (e == GW_OK) {
        *lane = (gw_lane){.fabric = fabric,
                          .rank = fabric->rank,
                          .size = fabric->size,
                          .codec = setup->codec,
                          .n = setup->n,
                          .seed = setup->seed,
                          .yield = setup->yield,
                          .phantom = setup->phantom,
                          .id = id,
                          .dim = setup->dim,
                          .kept.decay = 1,
                          .said.name = setup->name,
                          .said.table = setup->table};
        if (residual)
            e = gw_alloc(&lane->kept.store, setup->n, sizeof(float));
        lane->kept.residual = lane->kept.store;
    }
    e = fabric->ops->agree(fabric, e);
    if (e != GW_OK) {
        if (!lane || !lane->fabric)
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
    gw_err e = setup->shared ? gw_shared_open(&lane->shared, parent) : GW_OK;
    GW_OPENED(e, out, lane, gw_lane_close);
}

static void lane_close_attached(gw_lane *lane) {
    while (lane->attached) {
        gw_attachment *a = lane->attached;
        lane->attached = a->next;
        a->release(a->data);
        free(a);
    }
}

void gw_lane_close(gw_lane *lane) {
    if (!lane)
        return;
    lane_close_attached(lane); /* last come, first gone */
    if (!lane->branch)
        gw_shared_close(lane->shared);
    if (lane->fabric)
        lane->fabric->ops->close(lane->fabric);
    if (!lane->parent)
        free(lane->kept.store);
    free(lane->said.notes);
    free(lane->said.choices);
    free(lane);
}

static void lane_release(void *lane) {
    gw_lane_close(lane);
}

gw_err gw_lane_split(gw_lane *lane, int color, gw_lane **sub) {
    gw_fabric *fabric;
    gw_lane *l = NULL;
    *sub = NULL;
    GW_TRY(lane->fabric->ops->split(lane->fabric, color, &fabric));
    gw_err e = fabric ? gw_alloc(&l, 1, sizeof *l) : GW_OK;
    e = gw_lane_agree(lane, e);
    if (e != GW_OK) {
        free(l);
        if (fabric)
            fabric->ops->close(fabric);
        return e;
    }
    if (!l)
        return GW_OK;
    *l = *lane;
    l->fabric = fabric;
    l->rank = fabric->rank;
    l->size = fabric->size;
    l->parent = lane;
    l->shared = NULL;
    l->attached = NULL;
    l->runs = NULL;
    l->n_runs = 0;
    l->said.notes = l->said.choices = NULL;
    l->next_tag = 0;
    GW_TRY(gw_lane_attach(lane, l, l, lane_release));
    *sub = l;
    return GW_OK;
}

gw_err gw_lane_branch(gw_lane *lane, gw_codec *codec, bool apart, bool feedback, gw_lane **branch) {
    gw_lane *root = lane_root(lane), *l;
    GW_TRY(gw_codec_join(codec, apart ? 1 : lane->size)); /* the same on all ranks */
    feedback = feedback && !(codec->caps & GW_CODEC_LOSSLESS);
    gw_err e =
        feedback && !root->kept.store ? gw_alloc(&root->kept.store, root->n, sizeof(float)) : GW_OK;
    GW_TRY(gw_lane_agree(lane, e));
    GW_TRY(gw_lane_split(lane, 0, &l));
    l->codec = codec;
    l->branch = true;
    l->shared = lane->shared;
    l->kept.residual = feedback ? root->kept.store : NULL;
    if (!(feedback && codec->caps & GW_CODEC_SPARSE))
        l->kept.velocity = NULL;
    *branch = l;
    return GW_OK;
}

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

gw_exchange gw_lane_exchange(gw_lane *lane, gw_span span) {
    gw_lane *root = lane_root(lane);
    return (gw_exchange){.dim = root->dim,
                         .lane = root->id,
                         .schedule = root->schedules++,
                         .off = span.off,
                         .n = span.n,
                         .name = root->said.name};
}

void *gw_lane_attached(const gw_lane *lane, const void *key) {
    for (const gw_attachment *a = lane->attached; a; a = a->next)
        if (a->key == key)
            return a->data;
    return NULL;
}

static gw_err lane_phantom_floats(gw_phantom *p, size_t n, float **out) {
    size_t rounded = (n + GW_ALIGN - 1) / GW_ALIGN * GW_ALIGN;
    if (rounded > p->room - p->used)
        return gw_fail(GW_ERR_NOMEM, "lane: more than %zu floats are asked for", p->room);
    *out = p->floats + p->used;
    p->used += rounded;
    return GW_OK;
}

gw_err gw_lane_floats(gw_lane *lane, size_t n, float **out) {
    void *fresh = NULL;
    if (lane->phantom)
        return lane_phantom_floats(lane->phantom, n, out);
    if (lane->shared) {
        GW_TRY(gw_lane_agree(lane, gw_shared_alloc(lane->shared, n * sizeof(float), &fresh)));
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

static gw_err lane_append(char **text, const char *more, const char *end) {
    char *wide;
    if (asprintf(&wide, "%s%s%s", *text ? *text : "", more, end) < 0)
        return gw_fail(GW_ERR_NOMEM, "lane: out of memory");
    free(*text);
    *text = wide;
    return GW_OK;
}

void gw_lane_note(gw_lane *lane, const char *line) {
    gw_lane *root = lane_root(lane);
    if (!root->said.notes || !strstr(root->said.notes, line))
        lane_append(&root->said.notes, line, "\n"); /* without memory: a report without this line */
}

gw_err gw_lane_choices(gw_lane *lane, const char *rows) {
    gw_lane *root = lane_root(lane);
    return lane_append(&root->said.choices, rows, "");
}

int gw_lane_tag(gw_lane *lane) {
    int tag = lane->next_tag;
    lane->next_tag = tag == lane->fabric->most_tag ? 0 : tag + 1;
    return tag;
}

int gw_lane_root_rank(const gw_lane *lane, int rank) {
    const int *family = lane_root(lane)->fabric->world;
    int i = 0;
    while (family[i] != lane->fabric->world[rank])
        i++;
    return i;
}

/* ---- coding ---- */

/* As the encoding that comes now finds it. */
static float *lane_residual(const gw_lane *lane, gw_span s) {
    float decay = lane_root(lane)->kept.decay;
    float *e = lane->kept.residual ? lane->kept.residual + s.off : NULL;
    for (size_t i = 0; e && decay != 1 && i < s.n; i++)
        e[i] *= decay;
    return e;
}

uint64_t gw_lane_ticket(const gw_lane *lane) {
    return lane_root(lane)->ticket;
}

static gw_turn lane_turn(const gw_lane *lane, uint64_t ticket, gw_span s, bool alone) {
    uint64_t rank = lane->codec->caps & GW_CODEC_SHARED ? 0 : (uint64_t)lane->rank;
    uint64_t exchange = gw_rng_key(lane->seed, ticket);
    return (gw_turn){.key = gw_rng_key(gw_rng_key(exchange, rank), s.off),
                     .step = ticket,
                     .common = gw_rng_key(gw_rng_key(exchange, UINT64_MAX), s.off),
                     .rank = lane->rank,
                     .ranks = alone ? 1 : lane->size};
}

static void lane_tally(const gw_lane *lane, gw_span s, size_t len) {
    const gw_lane *root = lane_root(lane);
    for (int i = 0; root->tally.coded && i < root->tally.n; i++) {
        size_t n = gw_span_common(root->tally.layers[i], s).n;
        root->tally.coded[i].floats += n;
        root->tally.coded[i].bytes +=
            n == s.n ? len : (uint64_t)((double)len * (double)n / (double)s.n);
    }
}

static gw_err lane_encode(gw_lane *lane, uint64_t ticket, float *base, gw_span s, unsigned how,
                          void *out, size_t cap, size_t *len) {
    float *v = base + s.off, *e = lane_residual(lane, s);
    const gw_codec *c = lane->codec;
    bool adopt = how & GW_ENCODE_ADOPT;
    gw_turn turn = lane_turn(lane, ticket, s, how & GW_ENCODE_ALONE);
    if (lane->phantom) {
        size_t most = gw_codec_bound(c, s.n), some = (size_t)(lane->phantom->bytes * (double)s.n);
        *len = !c->fixed && some > 0 && some < most ? some : most;
        return GW_OK;
    }
    if (!e) {
        GW_TRY(gw_codec_encode(c, turn, v, s.n, out, cap, len));
        return adopt ? gw_codec_decode(c, out, *len, v, s.n, GW_INTO_SET) : GW_OK;
    }
    if (lane_root(lane)->kept.fed)
        GW_TRY(gw_feedback_encode_sum(c, turn, v, e, s.n, adopt, out, cap, len));
    else
        GW_TRY(gw_feedback_encode(c, turn, v, e, s.n, adopt, out, cap, len));
    float *u = lane->kept.velocity;
    return u ? gw_codec_decode(c, out, *len, u + s.off, s.n, GW_INTO_CLEAR) : GW_OK;
}

void gw_lane_measure(gw_lane *lane, float *base, gw_span s, void *out) {
    gw_work_enter(GW_PHASE_ENCODE);
    float *v = base + s.off, *e = lane_residual(lane, s);
    if (e)
        gw_feedback_add(e, v, s.n);
    gw_codec_measure(lane->codec, e ? e : v, s.n, out);
    gw_work_leave();
}

static gw_err lane_encode_agreed(gw_lane *lane, uint64_t ticket, float *base, gw_span s, bool adopt,
                                 void *out, size_t cap, size_t *len) {
    float *v = base + s.off, *e = lane->kept.residual; /* gw_lane_measure has added v to it */
    gw_turn turn = lane_turn(lane, ticket, s, false);
    if (e)
        return gw_feedback_encode_agreed(lane->codec, turn, v, e + s.off, s.n, out, cap, len);
    GW_TRY(gw_codec_encode_agreed(lane->codec, turn, v, s.n, out, cap, len));
    return adopt ? gw_codec_decode(lane->codec, out, *len, v, s.n, GW_INTO_SET) : GW_OK;
}

/* `floats` were coded; under virtual time that takes what the codec's price says. */
static void lane_coded(const gw_lane *lane, gw_coding kind, size_t floats) {
    const gw_codec_price *p = lane->codec->price;
    gw_coded_tell(kind, floats);
    if (gw_probe_spend && p)
        gw_probe_spend(p->call_s[kind] + p->float_s[kind] * (double)floats);
}

/* An encoding of s ended with `e`. */
static gw_err lane_encoded(gw_lane *lane, gw_span s, bool adopt, const size_t *len, gw_err e) {
    if (e == GW_OK)
        lane_tally(lane, s, *len);
    if (e == GW_OK && lane->tally.codings) {
        lane->tally.codings->floats += s.n;
        lane->tally.codings->bytes += *len;
    }
    lane_coded(lane, adopt ? GW_CODING_ADOPT : GW_CODING_ENCODE, s.n);
    gw_phase_leave();
    return e;
}

gw_err gw_lane_encode(gw_lane *lane, uint64_t ticket, float *base, gw_span s, unsigned how,
                      void *out, size_t cap, size_t *len) {
    gw_phase_enter(GW_PHASE_ENCODE);
    gw_err e = lane_encode(lane, ticket, base, s, how, out, cap, len);
    return lane_encoded(lane, s, how & GW_ENCODE_ADOPT, len, e);
}

gw_err gw_lane_encode_agreed(gw_lane *lane, uint64_t ticket, float *base, gw_span s, bool adopt,
                             void *out, size_t cap, size_t *len) {
    gw_phase_enter(GW_PHASE_ENCODE);
    gw_err e = lane_encode_agreed(lane, ticket, base, s, adopt, out, cap, len);
    return lane_encoded(lane, s, adopt, len, e);
}

/* What was damaged belongs to these floats; and to these layers, where that is known. */
static gw_err lane_tell_damage(const gw_lane *root, gw_span s, uint64_t frames, gw_err e) {
    char layers[64] = "", count[64] = "";
    int first = -1, last = -1;
    for (int i = 0; i < root->tally.n; i++)
        if (gw_span_overlap(root->tally.layers[i], s)) {
            first = first < 0 ? i : first;
            last = i;
        }
    if (first >= 0 && first == last)
        snprintf(layers, sizeof layers, "layer %d, ", first);
    else if (first >= 0)
        snprintf(layers, sizeof layers, "layers %d to %d, ", first, last);
    if (frames > 0)
        snprintf(count, sizeof count, "; frame %" PRIu64 " that this rank checked", frames);
    return gw_fail(e, "%s (%s, %sfloats %zu to %zu%s)", gw_err_text(),
                   root->said.name ? root->said.name : "unnamed lane", layers, s.off,
                   gw_span_end(s) - 1, count);
}

/* A decoding of s ended with `e`. */
static gw_err lane_checked(gw_lane *lane, gw_span s, gw_err e) {
    gw_lane *root = lane_root(lane);
    if (lane->codec->framed && s.n > 0)
        root->tally.frames++;
    return e == GW_ERR_CORRUPT ? lane_tell_damage(root, s, root->tally.frames, e) : e;
}

gw_err gw_lane_decode(gw_lane *lane, const void *in, size_t len, float *base, gw_span s, bool add) {
    gw_phase_enter(GW_PHASE_DECODE);
    gw_into into = add ? GW_INTO_ADD : GW_INTO_SET;
    gw_err e =
        lane->phantom ? GW_OK : gw_codec_decode(lane->codec, in, len, base + s.off, s.n, into);
    e = lane_checked(lane, s, e);
    lane_coded(lane, add ? GW_CODING_ADD : GW_CODING_SET, s.n);
    gw_phase_leave();
    return e;
}

gw_err gw_lane_list(gw_lane *lane, const void *in, size_t len, gw_span s, gw_elements *out) {
    gw_work_enter(GW_PHASE_DECODE);
    gw_err e = lane_checked(lane, s, gw_codec_list(lane->codec, in, len, s.n, out));
    gw_work_leave();
    return e;
}

gw_err gw_lane_state(gw_lane *lane, gw_io *io) {
    GW_TRY(gw_io_alike(io, "ticket", &lane->ticket, sizeof lane->ticket));
    float *residual = lane->kept.store;
    return residual ? gw_io_field(io, "residual", residual, lane->n * sizeof(float)) : GW_OK;
}
