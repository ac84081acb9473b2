/* The model as a whole: evaluated by all ranks of a replica, and collected from them. */
#include "mesh/pipeline_parts.h"

#include "base/hook.h"
#include "base/mem.h"
#include "base/nap.h"
#include "mpi/agree.h"
#include "mpi/wait.h"

#include <stdlib.h>

/* ---- evaluation ---- */

/* Two calls are under way at a time: one's samples travel while the next's are computed. Hops carry
 * as many rows as there is room for, though the last samples of a data set are fewer. */
static gw_err pipeline_test_chunk(gw_pipeline *p, const gw_pipeline_samples *s, gw_act act,
                                  gw_pipeline_result *out) {
    if (!gw_pipeline_is_whole(p))
        gw_hook_act("evaluation", p->at.stage, act.chunk, act.micro);
    gw_schedule *from = gw_runner_hop(&p->walk.runner, act, true);
    if (from) {
        GW_TRY(gw_runner_start(&p->walk.runner, from, act.micro));
        GW_TRY(gw_runner_wait(&p->walk.runner, from));
    }
    GW_TRY(gw_runner_vacate(&p->walk.runner, act));
    if (gw_walk_is_bottom(&p->walk, act.chunk)) {
        gw_span to = gw_model_edge(p->model, 0, GW_EDGE_INPUT, gw_pipeline_at(p, act));
        gw_dataset_gather(s->set, s->idx, s->n, gw_model_work(p->model) + to.off, NULL);
    }
    double start_s = gw_nap_now();
    GW_TRY(gw_walk_forward(&p->walk, act, true));
    out->forward_s += gw_nap_now() - start_s;
    return gw_walk_is_top(&p->walk, act.chunk) ? GW_OK : gw_walk_send(&p->walk, act);
}

static gw_err pipeline_test(gw_pipeline *p, const gw_pipeline_samples *s, gw_pipeline_result *out) {
    gw_act act = {.kind = GW_ACT_FORWARD, .micro = p->now.tested++ % GW_PIPELINE_TEST_MICROS};
    for (act.chunk = 0; act.chunk < p->at.chunks; act.chunk++)
        GW_TRY(pipeline_test_chunk(p, s, act, out));
    act.chunk = p->at.chunks - 1;
    if (!gw_walk_is_top(&p->walk, act.chunk))
        return GW_OK;
    p->now.local = s->n; /* what no sample is in is not counted */
    return gw_pipeline_loss(p, act, s->labels, 1.0f, &out->loss, &out->correct);
}

gw_err gw_pipeline_test(gw_pipeline *p, const gw_pipeline_samples *s, gw_pipeline_result *out) {
    *out = (gw_pipeline_result){0};
    gw_model_count(p->model, 0);
    p->now.testing = true;
    gw_pipeline_run_over(p, GW_PIPELINE_TEST);
    p->now.local = gw_pipeline_is_whole(p) ? s->n : p->room.rows;
    gw_err e = pipeline_test(p, s, out);
    gw_hook_act(NULL, 0, 0, 0);
    p->now.testing = false;
    if (!gw_pipeline_counts(p))
        *out = (gw_pipeline_result){0};
    gw_model_count(p->model, 0);
    return e;
}

gw_err gw_pipeline_tested(gw_pipeline *p) {
    p->now.testing = true;
    gw_pipeline_run_over(p, GW_PIPELINE_TEST);
    gw_err e = GW_OK;
    for (int c = 0; c < p->at.chunks; c++)
        for (int j = 0; j < GW_PIPELINE_TEST_MICROS; j++) {
            gw_schedule *s = gw_runner_hop(&p->walk.runner, (gw_act){GW_ACT_FORWARD, c, j}, false);
            gw_hook_act("evaluation", p->at.stage, c, j);
            if (s)
                GW_THEN(e, gw_runner_wait(&p->walk.runner, s));
        }
    gw_hook_act(NULL, 0, 0, 0);
    p->now.testing = false;
    p->now.tested = 0;
    return e;
}

/* ---- the whole arena ---- */

/* What the rank at these coordinates of a replica holds. */
static gw_err pipeline_shard_of(const gw_pipeline *p, int stage, int part, gw_shard *out) {
    gw_share share = p->shard.share;
    share.part = part;
    gw_share_stage(&share, p->at.sizes, p->at.stages, p->at.chunks, stage);
    return gw_shard_of(out, &p->shard.spec, &share);
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

/* Rank 0 takes each other rank's shard in turn, or deals it out; `theirs` holds it on the way. */
static gw_err pipeline_serve(const gw_pipeline *p, float *whole, float *theirs, gw_shard *s,
                             bool deals, MPI_Comm comm) {
    for (int stage = 0; stage < p->at.stages; stage++)
        for (int part = 0; part < p->shard.share.tensor; part++) {
            const int at[GW_DIMS] = {[GW_DIM_PIPE] = stage, [GW_DIM_TENSOR] = part};
            int peer = gw_mesh_rank(p->mesh, at);
            if (peer == 0)
                continue;
            GW_TRY(pipeline_shard_of(p, stage, part, s));
            if (deals)
                gw_shard_gather(s, whole, theirs);
            GW_TRY(pipeline_pass(theirs, s->size, peer, deals, comm));
            if (!deals)
                gw_shard_scatter(s, theirs, whole);
        }
    return GW_OK;
}

static gw_err pipeline_move(const gw_pipeline *p, float *own, float *whole, bool deals,
                            MPI_Comm comm) {
    const int *at = p->mesh->at;
    bool serves = at[GW_DIM_DATA] + at[GW_DIM_PIPE] + at[GW_DIM_TENSOR] == 0;
    float *theirs = NULL;
    gw_shard *s = NULL;
    gw_err e = serves ? gw_alloc(&s, 1, sizeof *s) : GW_OK;
    if (serves)
        GW_THEN(e, gw_alloc(&theirs, p->shard.whole, sizeof *theirs));
    e = gw_agree(comm, e); /* before anybody sends */
    if (e == GW_OK && serves) {
        if (deals)
            gw_shard_gather(&p->shard, whole, own);
        else
            gw_shard_scatter(&p->shard, own, whole);
        e = pipeline_serve(p, whole, theirs, s, deals, comm);
    } else if (e == GW_OK && at[GW_DIM_DATA] == 0) {
        e = pipeline_pass(own, p->shard.size, 0, !deals, comm);
    }
    free(theirs);
    free(s);
    return e;
}

gw_err gw_pipeline_collect(const gw_pipeline *p, const float *own, float *whole, MPI_Comm comm) {
    return pipeline_move(p, (float *)own, whole, false, comm);
}

gw_err gw_pipeline_deal(const gw_pipeline *p, const float *whole, float *own, MPI_Comm comm) {
    return pipeline_move(p, own, (float *)whole, true, comm);
}
