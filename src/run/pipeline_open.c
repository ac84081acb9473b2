/* The lanes of a pipeline, and what is laid down on them before the first step. */
#include "run/pipeline_parts.h"

#include "base/mem.h"
#include "comm/lane_parts.h"
#include "nn/gemm.h"

#include <stdlib.h>
#include <string.h>

/* ---- before MPI starts ---- */

static const gw_spec *pipeline_codec(const gw_parallel *p, gw_pipeline_way way) {
    if (way == GW_PIPELINE_EXACT)
        return &gw_codec_exact;
    const gw_spec *deltas = p->codec[GW_HOP_DELTA];
    return way == GW_PIPELINE_DELTAS && deltas ? deltas : p->codec[GW_HOP_ACTIVATION];
}

static gw_err pipeline_find_codec(gw_codec *out, const gw_spec *spec, bool framed) {
    GW_TRY(gw_codec_open(out, spec));
    if (framed)
        gw_codec_frame(out);
    return GW_OK;
}

static gw_err pipeline_find_codecs(gw_pipeline *w, bool framed) {
    for (int i = 0; i < GW_PIPELINE_WAYS; i++) {
        const gw_spec *spec = pipeline_codec(w->options, (gw_pipeline_way)i);
        GW_TRY(pipeline_find_codec(&w->hop_codec[i], spec, framed));
        GW_TRY(pipeline_find_codec(&w->join_codec[i], spec, framed));
        GW_TRY(gw_algo_open(&w->algo[i], w->options->tensor_algo, &w->join_codec[i]));
    }
    return GW_OK;
}

static bool pipeline_asked_for(const gw_parallel *p) {
    return gw_mesh_divides(&p->shape) || p->microbatches > 1;
}

/* What only passes between ranks of one replica. */
static gw_err pipeline_check_codecs(const gw_parallel *p) {
    const char *option = strcmp(p->codec[GW_HOP_ACTIVATION]->text, "none") != 0
                             ? "compress-activations"
                         : p->codec[GW_HOP_DELTA] ? "compress-deltas"
                                                  : NULL;
    if (!option || gw_mesh_divides(&p->shape))
        return GW_OK;
    return gw_fail(GW_ERR_USAGE,
                   "train: --%s: nothing carries activations: add pipe or tensor to --mesh",
                   option);
}

/* What knows of whole models alone. */
static gw_err pipeline_check_whole(const gw_train_config *c, const gw_session *session) {
    const struct {
        bool asked;
        const char *option, *why;
    } all[] = {
        {c->paired, "paired", "its blocking twins repeat the exchange of gradients alone"},
        {c->bound, "bound", "it is the bound of an exchange of gradients alone"},
        {session->mix.n == 0, "compress auto", "it predicts steps of a whole model"},
        {c->forecast, "forecast", "it predicts steps of a whole model"},
        {c->data.sharded, "data-layout sharded", "the ranks of a replica take the same samples"},
        {c->compress_stats > 0, "compress-stats", "it compares the gradients of a whole model"},
        {c->checkpoint.count > 0 || c->checkpoint.s > 0, "checkpoint-every",
         "a checkpoint holds whole models"},
        {c->resume, "resume", "a checkpoint holds whole models"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].asked)
            return gw_fail(GW_ERR_UNSUPPORTED,
                           "train: --%s does not go with pipe or tensor in --mesh: %s",
                           all[i].option, all[i].why);
    return GW_OK;
}

static gw_err pipeline_check_session(const gw_session *session) {
    if (gw_session_thread_level(session) <= MPI_THREAD_FUNNELED)
        return GW_OK;
    return gw_fail(
        GW_ERR_UNSUPPORTED,
        "train: --comm %s: progress=thread: hops and tensor sums call MPI meanwhile: use "
        "progress=poll",
        session->strategy.ops->head.name);
}

gw_err gw_pipeline_new(gw_pipeline **out, const gw_train_config *c, const gw_session *session) {
    const gw_parallel *p = &c->parallel;
    gw_pipeline *w = NULL;
    *out = NULL;
    GW_TRY(pipeline_check_codecs(p));
    if (!pipeline_asked_for(p))
        return GW_OK;
    GW_TRY(pipeline_check_session(session));
    if (gw_mesh_divides(&p->shape))
        GW_TRY(pipeline_check_whole(c, session));
    GW_TRY(gw_alloc(&w, 1, sizeof *w));
    w->options = p;
    gw_err e = pipeline_find_codecs(w, c->wire_check);
    if (e != GW_OK)
        gw_pipeline_free(w);
    else
        *out = w;
    return e;
}

void gw_pipeline_free(gw_pipeline *w) {
    if (!w)
        return;
    for (int i = 0; i < GW_PIPELINE_WAYS; i++) {
        gw_algo_close(&w->algo[i]);
        gw_codec_close(&w->hop_codec[i]);
        gw_codec_close(&w->join_codec[i]);
    }
    gw_timetable_close(w->timetable);
    free(w);
}

/* ---- lanes ---- */

static gw_err pipeline_open_lane(gw_pipeline *w, gw_pipeline_way way, gw_dim dim, const char *name,
                                 uint64_t seed, bool yield, gw_lane **out) {
    bool hop = dim == GW_DIM_PIPE; /* which nobody sums */
    gw_lane_setup setup = {.codec = hop ? &w->hop_codec[way] : &w->join_codec[way],
                           .apart = hop || !(w->algo[way].ops->caps & GW_ALGO_ORDERED),
                           .seed = seed,
                           .yield = yield,
                           .dim = (int)dim,
                           .name = name};
    return gw_lane_open(out, w->mesh->comm[dim], &setup);
}

static gw_err pipeline_open_lanes(gw_pipeline *w, uint64_t seed, bool yield) {
    static const char *const hop[] = {"activations", "deltas", "evaluation"};
    static const char *const join[] = {"tensor outputs", "tensor deltas", "tensor exact"};
    for (int i = 0; i < GW_PIPELINE_WAYS; i++) {
        gw_pipeline_way way = (gw_pipeline_way)i;
        if (w->stages > 1)
            GW_TRY(pipeline_open_lane(w, way, GW_DIM_PIPE, hop[i], seed, yield, &w->hop_lane[i]));
        if (w->shard.share.tensor > 1)
            GW_TRY(
                pipeline_open_lane(w, way, GW_DIM_TENSOR, join[i], seed, yield, &w->join_lane[i]));
    }
    return GW_OK;
}

/* ---- hops ---- */

static gw_span pipeline_where(const void *pipeline, gw_hop hop, bool receives) {
    const gw_pipeline *w = pipeline;
    bool activation = hop.kind == GW_HOP_ACTIVATION;
    int run = hop.boundary + (activation == receives); /* the hop's end here */
    gw_edge edge = activation ? (receives ? GW_EDGE_INPUT : GW_EDGE_OUTPUT)
                              : (receives ? GW_EDGE_OUTPUT_DELTA : GW_EDGE_INPUT_DELTA);
    int chunk = run / w->stages;
    gw_act act = {activation ? GW_ACT_FORWARD : GW_ACT_BACKWARD, chunk, hop.micro};
    return gw_model_edge(w->model, chunk, edge, gw_pipeline_at(w, act));
}

static gw_err pipeline_open_hops(gw_pipeline *w, gw_pipeline_size size, int local) {
    bool test = size == GW_PIPELINE_TEST;
    gw_hops_setup setup = {.lane = {w->hop_lane[test ? GW_PIPELINE_EXACT : GW_PIPELINE_ACTIVATIONS],
                                    w->hop_lane[GW_PIPELINE_DELTAS]},
                           .chunks = w->stages * w->chunks,
                           .deltas = !test,
                           .base = gw_model_work(w->model),
                           .where = pipeline_where,
                           .ctx = w};
    w->local = local;
    w->forward = test;
    setup.micro = gw_pipeline_micros(w);
    gw_err e = gw_hops_open(&w->hops[size], &setup);
    w->forward = false;
    return e;
}

/* ---- joins ---- */

static void pipeline_open_joins(gw_pipeline *w) {
    static const gw_verb verbs[] = {[GW_JOIN_ALLREDUCE] = GW_ALLREDUCE,
                                    [GW_JOIN_ALLGATHER] = GW_ALLGATHER,
                                    [GW_JOIN_REDUCE_SCATTER] = GW_REDUCE_SCATTER};
    for (int i = 0; i < GW_PIPELINE_WAYS; i++)
        for (int k = GW_JOIN_ALLREDUCE; k < GW_PIPELINE_VERBS; k++)
            w->join[i][k] = (gw_collective){.algo = &w->algo[i],
                                            .verb = verbs[k],
                                            .lane = w->join_lane[i],
                                            .base = gw_model_work(w->model)};
}

static gw_err pipeline_open(gw_pipeline *w, uint64_t seed, bool yield) {
    int most = 4 * (w->options->microbatches + 1) * w->chunks + 4 * w->options->tensor_chunks;
    GW_TRY(pipeline_open_lanes(w, seed, yield));
    GW_TRY(gw_alloc(&w->labels, (size_t)(w->rows.full > w->room.rows ? w->rows.full : w->room.rows),
                    1));
    GW_TRY(gw_queue_open(&w->queue, GW_PROGRESS_POLL, most, yield));
    gw_queue_beside(w->queue, w->hooks.poll, w->hooks.ctx);
    pipeline_open_joins(w);
    if (w->stages == 1)
        return GW_OK;
    GW_TRY(pipeline_open_hops(w, GW_PIPELINE_FULL, w->rows.full));
    GW_TRY(pipeline_open_hops(w, GW_PIPELINE_LAST, w->rows.last));
    return pipeline_open_hops(w, GW_PIPELINE_TEST, w->room.rows);
}

gw_err gw_pipeline_open(gw_pipeline *w, gw_model *model, const gw_pipeline_hooks *hooks,
                        uint64_t seed, bool yield, MPI_Comm comm) {
    w->model = model;
    w->hooks = *hooks;
    return gw_agree(comm, pipeline_open(w, seed, yield));
}

void gw_pipeline_close(gw_pipeline *w) {
    if (!w)
        return;
    gw_queue_close(w->queue);
    for (int i = 0; i < GW_PIPELINE_SIZES; i++)
        gw_hops_close(w->hops[i]);
    for (int i = 0; i < GW_PIPELINE_WAYS; i++) {
        for (int k = 0; k < GW_PIPELINE_VERBS; k++)
            gw_collective_clear(&w->join[i][k]);
        gw_lane_close(w->hop_lane[i]);
        gw_lane_close(w->join_lane[i]);
        w->hop_lane[i] = w->join_lane[i] = NULL;
    }
    free(w->labels);
    w->labels = NULL;
    w->queue = NULL;
}
