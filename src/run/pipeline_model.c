/* The model as a whole: evaluated by all ranks of a replica, and collected from them. */
#include "run/pipeline_parts.h"

#include "base/mem.h"
#include "base/probe.h"
#include "comm/lane_parts.h"
#include "mpi/wait.h"

#include <stdlib.h>

/* ---- evaluation ---- */

/* Two chunks of samples take turns, so that one travels while the next is computed. Hops carry as many
 * rows as there is room for: the last chunk of a data set has fewer. */
static gw_err pipeline_test_chunk(gw_pipeline *w, const gw_pipeline_samples *s, gw_act act) {
    gw_schedule *from = gw_pipeline_hop(w, act, true);
    if (from) {
        GW_TRY(gw_pipeline_start(w, from, act.micro));
        GW_TRY(gw_pipeline_wait(w, from));
    }
    GW_TRY(gw_pipeline_vacate(w, act));
    if (gw_pipeline_is_bottom(w, act.chunk)) {
        gw_span to = gw_model_edge(w->model, 0, GW_EDGE_INPUT, gw_pipeline_at(w, act));
        gw_dataset_gather(s->set, s->idx, s->n, gw_model_work(w->model) + to.off, NULL);
    }
    GW_TRY(gw_pipeline_forward(w, act, false));
    return gw_pipeline_is_top(w, act.chunk) ? GW_OK : gw_pipeline_send(w, act);
}

static gw_err pipeline_test(gw_pipeline *w, const gw_pipeline_samples *s, double *loss,
                            int *correct) {
    gw_act act = {.kind = GW_ACT_FORWARD, .micro = w->tested++ % 2};
    for (act.chunk = 0; act.chunk < w->chunks; act.chunk++)
        GW_TRY(pipeline_test_chunk(w, s, act));
    act.chunk = w->chunks - 1;
    if (!gw_pipeline_is_top(w, act.chunk))
        return GW_OK;
    w->local = s->n; /* what no sample is in is not counted */
    return gw_pipeline_loss(w, act, s->labels, 1.0f, loss, correct);
}

gw_err gw_pipeline_test(gw_pipeline *w, const gw_pipeline_samples *s, double *loss, int *correct) {
    *loss = 0;
    *correct = 0;
    w->forward = true;
    w->size = GW_PIPELINE_TEST;
    w->local = w->room.rows;
    gw_err e = pipeline_test(w, s, loss, correct);
    w->forward = false;
    if (!gw_pipeline_counts(w)) {
        *loss = 0;
        *correct = 0;
    }
    return e;
}

gw_err gw_pipeline_tested(gw_pipeline *w) {
    w->forward = true;
    w->size = GW_PIPELINE_TEST;
    gw_err e = GW_OK;
    for (int c = 0; c < w->chunks; c++)
        for (int j = 0; j < 2; j++) {
            gw_schedule *s = gw_pipeline_hop(w, (gw_act){GW_ACT_FORWARD, c, j}, false);
            if (s)
                GW_THEN(e, gw_pipeline_wait(w, s));
        }
    w->forward = false;
    w->tested = 0;
    return e;
}

/* ---- the whole arena ---- */

/* What the rank at these coordinates of a replica holds. */
static gw_err pipeline_shard_of(const gw_pipeline *w, int stage, int part, gw_shard *out) {
    gw_share share = w->shard.share;
    share.part = part;
    gw_share_stage(&share, w->sizes, w->stages, w->chunks, stage);
    return gw_shard_of(out, &w->shard.spec, &share);
}

/* In pieces that an int can count. */
static gw_err pipeline_pass(float *data, size_t n, int peer, bool sends, MPI_Comm comm) {
    enum { PIECE = 1 << 26 };
    for (size_t at = 0; at < n; at += PIECE) {
        size_t left = n - at < PIECE ? n - at : PIECE;
        GW_TRY(gw_message(data + at, (int)(left * sizeof *data), peer, 0, sends, comm));
    }
    return GW_OK;
}

/* Rank 0 takes each other rank's shard in turn. */
static gw_err pipeline_collect_from(const gw_pipeline *w, float *whole, MPI_Comm comm) {
    float *theirs = NULL;
    gw_shard *s = NULL;
    gw_err e = gw_alloc(&s, 1, sizeof *s);
    GW_THEN(e, gw_alloc(&theirs, w->shard.whole, sizeof *theirs));
    for (int stage = 0; stage < w->stages; stage++)
        for (int part = 0; part < w->shard.share.tensor; part++) {
            const int at[GW_DIMS] = {[GW_DIM_PIPE] = stage, [GW_DIM_TENSOR] = part};
            int peer = gw_mesh_rank(w->mesh, at);
            if (peer == 0)
                continue;
            GW_THEN(e, pipeline_shard_of(w, stage, part, s));
            GW_THEN(e, pipeline_pass(theirs, s->size, peer, false, comm));
            if (e == GW_OK)
                gw_shard_scatter(s, theirs, whole);
        }
    free(theirs);
    free(s);
    return e;
}

gw_err gw_pipeline_collect(const gw_pipeline *w, const float *own, float *whole, MPI_Comm comm) {
    const int *at = w->mesh->at;
    if (at[GW_DIM_DATA] > 0)
        return GW_OK;
    if (at[GW_DIM_PIPE] > 0 || at[GW_DIM_TENSOR] > 0)
        return pipeline_pass((float *)own, w->shard.size, 0, true, comm);
    gw_shard_scatter(&w->shard, own, whole);
    return pipeline_collect_from(w, whole, comm);
}
