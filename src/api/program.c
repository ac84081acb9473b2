/* What the program that holds the library asks of a handle: inside.h. */
#include "api/handle.h"
#include "base/mem.h"
#include "comm/tuning.h"
#include "run/report.h"

#include <stdio.h>

gw_err gw_inside_new(gradwire **out, gw_session *session) {
    gradwire *g = NULL;
    gw_err e = gw_alloc(&g, 1, sizeof *g);
    if (e != GW_OK) {
        gw_session_free(session);
        return e;
    }
    g->inside = true;
    g->session = session;
    gw_call_remember(g);
    *out = g;
    return GW_OK;
}

static bool inside_lossless(const gw_mix *mix) {
    bool all = true;
    for (int i = 0; i < mix->n; i++)
        all = all && mix->codec[i].caps & GW_CODEC_LOSSLESS;
    return all;
}

gw_inside_facts gw_inside_know(const gradwire *g) {
    gw_session *s = g->session;
    const gw_strategy_ops *ops = s->strategy.ops;
    bool bound = s->mix.n > 0;
    gw_inside_facts f = {.strategy = ops->head.name,
                         .framed = s->framed,
                         .plan = s->strategy.plan,
                         .shape = ops->shape,
                         .gives = ops->gives,
                         .level = gw_strategy_thread_level(&s->strategy),
                         .hooks.ready = ops->ready,
                         .hooks.await = ops->await,
                         .hooks.state = ops->state,
                         .synchronous = gw_strategy_synchronous(ops),
                         .lossy = ops->traits & GW_STRATEGY_LOSSY,
                         .feedback = gw_session_feeds_back(s),
                         .unmet = &s->unmet,
                         .corrects = s->residuals.corrects,
                         .masks = s->residuals.masks,
                         .rule = gw_residuals_rule(&s->residuals),
                         .residual = g->opened && gw_session_residual(s),
                         .most = g->opened ? gw_session_most(s, 1.0 / g->ranks) : 0,
                         .notes = s->notes.lines ? s->notes.lines : ""};
    if (!bound)
        return f;
    f.codec = s->mix.codec;
    f.one = s->mix.n == 1;
    f.lossless = inside_lossless(&s->mix);
    f.algorithm = s->mix.algo->ops->head.name;
    f.ordered = s->mix.algo->ops->caps & GW_ALGO_ORDERED;
    return f;
}

void gw_inside_tensor(gradwire *g, int tensor, int layer, bool tracks) {
    g->arena.tensor[tensor].layer = layer;
    g->arena.tensor[tensor].tracks = tracks;
}

void gw_inside_tell(gradwire *g, const gw_inside_setup *setup) {
    g->told = *setup;
    g->words.run.lazy = setup->lazy;
    g->comm = setup->comm;
    gw_comm_place(g->comm, &g->rank, &g->ranks);
    gw_session *s = g->session;
    s->note = s->note ? s->note : setup->note;
    s->table = setup->table;
}

/* ---- a step ---- */

gw_err gw_inside_sums(gradwire *g, float **sums) {
    if (!g->batch.begun)
        GW_TRY(gw_batch_exchange(g));
    *sums = gw_session_sums(g->session);
    return GW_OK;
}

const gw_update *gw_inside_update(const gradwire *g) {
    return &g->batch.update;
}

void gw_inside_leave_out(gradwire *g, bool out) {
    g->session->env.skip = out;
}

bool gw_inside_leaves_out(const gradwire *g) {
    return gw_session_leaves_out(g->session);
}

void gw_inside_abandon(gradwire *g) {
    g->batch.pending = false;
}

void gw_inside_undo(gradwire *g) {
    gw_session_undo(g->session, false);
}

gw_err gw_inside_drain(gradwire *g) {
    return gw_session_settle(g->session);
}

bool gw_inside_agrees(const gradwire *g, int steps) {
    return gw_session_agrees(g->session, steps);
}

bool gw_inside_together(const gradwire *g) {
    return g->session->together;
}

bool gw_inside_voids(const gradwire *g) {
    return gw_session_voids(g->session);
}

gw_repeat gw_inside_repeat(const gradwire *g, int64_t from) {
    return gw_session_repeat(g->session, from);
}

/* ---- its state ---- */

gw_err gw_inside_state(gradwire *g, gw_io *io) {
    return gw_session_state(g->session, io);
}

void gw_inside_count_on(gradwire *g, int64_t steps) {
    gw_session_count_on(g->session, steps);
}

/* ---- telling of it ---- */

uint64_t gw_inside_logical(const gradwire *g) {
    return g->session->logical_bytes;
}

uint64_t gw_inside_frames(const gradwire *g) {
    return gw_session_frames(g->session);
}

int gw_inside_codecs(gradwire *g, gw_codec **out) {
    gw_session *s = g->session;
    int n = 0;
    for (int i = 0; i < s->mix.n; i++)
        out[n++] = &s->mix.codec[i];
    out[n++] = &s->exact;
    return n;
}

gw_session *gw_inside_session(const gradwire *g) {
    return g->session;
}

gw_err gw_inside_unmet(gradwire *g, gw_unmet_ask ask, MPI_Comm comm) {
    return gw_session_find_unmet(g->session, ask, comm);
}

void gw_inside_recount(gradwire *g) {
    gw_session_recount(g->session);
}

json_t *gw_inside_json(const gradwire *g, const gw_codec_row *rows, const char *warning) {
    return gw_report_comm(g->session, rows, warning);
}

gw_err gw_inside_write_choices(const gradwire *g, const char *dir) {
    return gw_report_choices(dir, g->session);
}

char *gw_inside_choices(const gradwire *g) {
    char *text;
    const char *rows = g->session->notes.choices;
    return rows && asprintf(&text, GW_TUNING_HEADER "%s", rows) >= 0 ? text : NULL;
}
