/* The lanes of a pipeline, and what is laid down on them before the first step. */
#include "mesh/pipeline_parts.h"

#include "base/mem.h"
#include "base/text.h"
#include "comm/lane.h"
#include "mpi/wait.h"
#include "run/session.h"

#include <stdlib.h>
#include <string.h>

/* ---- before MPI starts ---- */

static const gw_spec *pipeline_codec(const gw_parallel *o, gw_pipeline_way way) {
    if (way == GW_PIPELINE_EXACT)
        return &gw_codec_exact;
    const gw_spec *deltas = o->codec[GW_HOP_DELTA];
    return way == GW_PIPELINE_DELTAS && deltas ? deltas : o->codec[GW_HOP_ACTIVATION];
}

static gw_err pipeline_find_codec(gw_codec *out, const gw_spec *spec, bool framed) {
    GW_TRY(gw_codec_open(out, spec));
    if (framed)
        gw_codec_frame(out);
    return GW_OK;
}

static gw_err pipeline_find_codecs(gw_pipeline *p, bool framed) {
    for (int i = 0; i < GW_PIPELINE_WAYS; i++) {
        const gw_spec *spec = pipeline_codec(p->options, (gw_pipeline_way)i);
        GW_TRY(pipeline_find_codec(&p->hop_codec[i], spec, framed));
        GW_TRY(pipeline_find_codec(&p->join_codec[i], spec, framed));
        GW_TRY(gw_algo_open(&p->algo[i], p->options->tensor_algo, &p->join_codec[i]));
    }
    if (p->algo[0].ops->caps & GW_ALGO_SHARED) /* or it may choose one that is */
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "train: --tensor-algo %s may sum in memory that the ranks of a node share, "
                       "and activations lie in a rank's own: take native, ring or another that "
                       "sends messages",
                       p->options->tensor_algo->text);
    return GW_OK;
}

/* Where the options ask for no pipeline, too, what they name must exist. */
static gw_err pipeline_find_timetable(const gw_parallel *o) {
    gw_timetable *t = NULL;
    gw_err e = gw_timetable_open(&t, o->timetable, 1, 1);
    gw_timetable_close(t);
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e; /* its stages are known later */
}

static bool pipeline_asked_for(const gw_parallel *o) {
    return gw_mesh_divides(&o->shape) || o->microbatches > 1;
}

static bool pipeline_encodes(const gw_spec *codec) {
    return codec && strcmp(codec->text, "none") != 0;
}

/* What only passes between ranks of one replica. */
static gw_err pipeline_check_codecs(const gw_parallel *o) {
    const char *option = pipeline_encodes(o->codec[GW_HOP_ACTIVATION]) ? "compress-activations"
                         : pipeline_encodes(o->codec[GW_HOP_DELTA])    ? "compress-deltas"
                                                                       : NULL;
    if (!option || gw_mesh_divides(&o->shape))
        return GW_OK;
    return gw_fail(GW_ERR_USAGE,
                   "train: --%s: nothing carries activations: add pipe or tensor to --mesh",
                   option);
}

/* What would change nothing. */
gw_err gw_pipeline_check_idle(const gw_parallel *o, const char *owner) {
    const int *size = o->shape.size;
    const char *split = size[GW_DIM_PIPE] > 1 ? NULL : "nothing is cut into stages: add pipe",
               *steps = pipeline_asked_for(o)
                            ? NULL
                            : "a batch passes at once: give --microbatches, or add pipe",
               *neurons = size[GW_DIM_TENSOR] > 1 ? NULL : "no layer is cut: add tensor";
    const struct {
        bool asked;
        const char *option, *why;
    } all[] = {
        {strcmp(o->stages, "flops") != 0, "stages", split},
        {o->timetable && strcmp(o->timetable->text, "1f1b") != 0, "timetable", steps},
        {o->recompute, "recompute", steps},
        {o->columns, "tensor-split", neurons},
        {o->tensor_chunks > 1, "tensor-chunks", neurons},
        {o->tensor_algo, "tensor-algo", neurons},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].asked && all[i].why)
            return gw_fail(GW_ERR_USAGE, "%s: --%s: %s to --mesh", owner, all[i].option,
                           all[i].why);
    return GW_OK;
}

/* What knows of whole models alone. */
static gw_err pipeline_check_whole(const gw_train_config *c, const gw_session *session) {
    const struct {
        bool asked;
        const char *option, *why;
    } all[] = {
        {c->bound, "bound", "it is the bound of an exchange of gradients alone"},
        {session->mix.n == 0, "compress auto", "it predicts steps of a whole model"},
        {c->forecast, "forecast", "it predicts steps of a whole model"},
        {c->data.sharded, "data-layout sharded", "the ranks of a replica take the same samples"},
        {c->run.compress_stats > 0, "compress-stats", "it compares the gradients of a whole model"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].asked)
            return gw_fail(GW_ERR_UNSUPPORTED,
                           "train: --%s does not go with pipe or tensor in --mesh: %s",
                           all[i].option, all[i].why);
    return GW_OK;
}

static gw_err pipeline_check_session(const gw_session *session) {
    if (gw_strategy_thread_level(&session->strategy) <= MPI_THREAD_FUNNELED)
        return GW_OK;
    return gw_fail(
        GW_ERR_UNSUPPORTED,
        "train: --comm %s: progress=thread: hops and tensor sums call MPI meanwhile: use "
        "progress=poll",
        session->strategy.ops->head.name);
}

static void pipeline_note(gw_pipeline *p) {
    const gw_codec *c = p->hop_codec;
    for (int i = GW_PIPELINE_DELTAS; i >= GW_PIPELINE_ACTIVATIONS; i--)
        if (c[i].caps & GW_CODEC_BIASED)
            gw_text_print(p->note, sizeof p->note,
                          "--compress-%s: %s is biased, and what it drops is lost: there is no "
                          "error feedback for the rows of other samples",
                          i == GW_PIPELINE_DELTAS ? "deltas" : "activations", c[i].name);
}

gw_err gw_pipeline_new(gw_pipeline **out, const gw_train_config *c, const gw_session *session) {
    const gw_parallel *o = &c->parallel;
    gw_pipeline *p = NULL;
    *out = NULL;
    GW_TRY(pipeline_check_codecs(o));
    GW_TRY(pipeline_find_timetable(o));
    if (pipeline_asked_for(o))
        GW_TRY(pipeline_check_session(session));
    if (gw_mesh_divides(&o->shape))
        GW_TRY(pipeline_check_whole(c, session));
    GW_TRY(gw_alloc(&p, 1, sizeof *p));
    p->options = o;
    p->walk = (gw_walk){.ops = &gw_pipeline_kernels,
                        .of = p,
                        .pieces = o->tensor_chunks,
                        .recompute = o->recompute};
    gw_err e = pipeline_find_codecs(p, c->run.wire_check);
    GW_THEN(e, gw_pipeline_check_idle(o, "train"));
    if (e != GW_OK || !pipeline_asked_for(o)) {
        gw_pipeline_free(p);
        return e;
    }
    pipeline_note(p);
    *out = p;
    return GW_OK;
}

int gw_pipeline_codecs(gw_pipeline *p, gw_codec **out) {
    for (int i = 0; i < GW_PIPELINE_WAYS; i++) {
        out[2 * i] = &p->hop_codec[i];
        out[2 * i + 1] = &p->join_codec[i];
    }
    return 2 * GW_PIPELINE_WAYS;
}

const char *gw_pipeline_note(const gw_pipeline *p) {
    return *p->note ? p->note : NULL;
}

void gw_pipeline_free(gw_pipeline *p) {
    if (!p)
        return;
    for (int i = 0; i < GW_PIPELINE_WAYS; i++) {
        gw_algo_close(&p->algo[i]);
        gw_codec_close(&p->hop_codec[i]);
        gw_codec_close(&p->join_codec[i]);
    }
    gw_timetable_close(p->timetable);
    free(p);
}

bool gw_pipeline_sums_by_mpi(const gw_pipeline *p) {
    return p->shard.share.tensor > 1 && (p->algo[0].ops->caps & GW_ALGO_ORDERED);
}

/* ---- lanes ---- */

static gw_err pipeline_open_lane(gw_pipeline *p, gw_pipeline_way way, gw_dim dim, const char *name,
                                 uint64_t seed, bool yield, gw_lane **out) {
    bool hop = dim == GW_DIM_PIPE; /* which nobody sums */
    gw_lane_setup setup = {.codec = hop ? &p->hop_codec[way] : &p->join_codec[way],
                           .apart = hop || !(p->algo[way].ops->caps & GW_ALGO_ORDERED),
                           .seed = seed,
                           .yield = yield,
                           .dim = (int)dim,
                           .name = name,
                           .codings = way < GW_PIPELINE_EXACT ? &p->codings[way] : NULL};
    return gw_lane_open(out, p->mesh->comm[dim], &setup);
}

const char *gw_pipeline_hop_name(int way) {
    static const char *const names[] = {"activations", "deltas", "evaluation"};
    return names[way];
}

static gw_err pipeline_open_lanes(gw_pipeline *p, uint64_t seed, bool yield) {
    static const char *const join[] = {"tensor outputs", "tensor deltas", "tensor exact"};
    for (int i = 0; i < GW_PIPELINE_WAYS; i++) {
        gw_pipeline_way way = (gw_pipeline_way)i;
        if (p->at.stages > 1)
            GW_TRY(pipeline_open_lane(p, way, GW_DIM_PIPE, gw_pipeline_hop_name(way), seed, yield,
                                      &p->hop_lane[i]));
        if (p->shard.share.tensor > 1)
            GW_TRY(
                pipeline_open_lane(p, way, GW_DIM_TENSOR, join[i], seed, yield, &p->join_lane[i]));
    }
    return GW_OK;
}

/* ---- hops ---- */

static gw_span pipeline_where(const void *pipeline, gw_hop hop, bool receives) {
    const gw_pipeline *p = pipeline;
    bool activation = hop.kind == GW_HOP_ACTIVATION;
    int run = hop.boundary + (activation == receives); /* the hop's end here */
    gw_edge edge = activation ? (receives ? GW_EDGE_INPUT : GW_EDGE_OUTPUT)
                              : (receives ? GW_EDGE_OUTPUT_DELTA : GW_EDGE_INPUT_DELTA);
    int chunk = run / p->at.stages;
    gw_act act = {activation ? GW_ACT_FORWARD : GW_ACT_BACKWARD, chunk, hop.micro};
    return gw_model_edge(p->model, chunk, edge, gw_pipeline_at(p, act));
}

static gw_err pipeline_open_hops(gw_pipeline *p, gw_pipeline_size size, int local) {
    bool test = size == GW_PIPELINE_TEST;
    gw_hops_setup setup = {.lane = {p->hop_lane[test ? GW_PIPELINE_EXACT : GW_PIPELINE_ACTIVATIONS],
                                    p->hop_lane[GW_PIPELINE_DELTAS]},
                           .chunks = p->at.stages * p->at.chunks,
                           .deltas = !test,
                           .base = gw_model_work(p->model),
                           .where = pipeline_where,
                           .ctx = p};
    p->now.local = local;
    p->now.testing = test;
    setup.micro = gw_pipeline_micros(p);
    gw_err e = gw_hops_open(&p->hops[size], &setup);
    p->now.testing = false;
    return e;
}

/* ---- joins ---- */

static void pipeline_open_joins(gw_pipeline *p) {
    static const gw_verb verbs[] = {[GW_JOIN_ALLREDUCE] = GW_ALLREDUCE,
                                    [GW_JOIN_ALLGATHER] = GW_ALLGATHER,
                                    [GW_JOIN_REDUCE_SCATTER] = GW_REDUCE_SCATTER};
    for (int i = 0; i < GW_PIPELINE_WAYS; i++)
        for (int k = GW_JOIN_ALLREDUCE; k < GW_PIPELINE_VERBS; k++)
            p->join[i][k] = (gw_collective){.algo = &p->algo[i],
                                            .verb = verbs[k],
                                            .lane = p->join_lane[i],
                                            .base = gw_model_work(p->model)};
}

const char *gw_pipeline_codec(const gw_pipeline *p, int way) {
    return pipeline_codec(p->options, (gw_pipeline_way)way)->text;
}

gw_err gw_pipeline_idle(const gw_pipeline *p, int way, MPI_Comm comm, bool *idle) {
    uint64_t n = p->codings[way].floats;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &n, 1, MPI_UINT64_T, MPI_SUM, comm));
    *idle = pipeline_encodes(p->options->codec[way]) && n == 0;
    return GW_OK;
}

uint64_t gw_pipeline_frames(const gw_pipeline *p) {
    uint64_t sum = 0;
    for (int i = 0; i < GW_PIPELINE_WAYS; i++) {
        sum += p->hop_lane[i] ? gw_lane_encoder(p->hop_lane[i])->of->frames : 0;
        sum += p->join_lane[i] ? gw_lane_encoder(p->join_lane[i])->of->frames : 0;
    }
    return sum;
}

static gw_err pipeline_beside(void *pipeline) {
    gw_pipeline *p = pipeline;
    return p->hooks.poll ? p->hooks.poll(p->hooks.ctx, false) : GW_OK;
}

static gw_err pipeline_open(gw_pipeline *p, uint64_t seed, bool yield) {
    int most = 4 * (p->options->microbatches + 1) * p->at.chunks + 4 * p->options->tensor_chunks;
    GW_TRY(pipeline_open_lanes(p, seed, yield));
    GW_TRY(gw_queue_open(&p->walk.runner.queue, GW_PROGRESS_POLL, most, yield));
    gw_queue_beside(p->walk.runner.queue, pipeline_beside, p);
    pipeline_open_joins(p);
    if (p->at.stages == 1)
        return GW_OK;
    GW_TRY(pipeline_open_hops(p, GW_PIPELINE_FULL, p->rows.full));
    GW_TRY(pipeline_open_hops(p, GW_PIPELINE_LAST, p->rows.last));
    return pipeline_open_hops(p, GW_PIPELINE_TEST, p->room.rows);
}

gw_err gw_pipeline_open(gw_pipeline *p, gw_model *model, const gw_pipeline_hooks *hooks,
                        uint64_t seed, bool yield, MPI_Comm comm) {
    p->model = model;
    p->hooks = *hooks;
    return gw_agree(comm, pipeline_open(p, seed, yield));
}

gw_err gw_pipeline_open_whole(gw_pipeline **out, gw_model *model, const gw_pipeline_hooks *hooks) {
    static const gw_parallel alone = {.microbatches = 1, .tensor_chunks = 1};
    gw_pipeline *p;
    GW_TRY(gw_alloc(&p, 1, sizeof *p));
    *p = (gw_pipeline){.options = &alone,
                       .walk = {.ops = &gw_pipeline_kernels, .of = p, .pieces = 1},
                       .at.stages = 1,
                       .at.chunks = 1,
                       .shard = *gw_model_shard(model),
                       .room = {.slots = {1}, .deltas = 1},
                       .model = model};
    if (hooks)
        p->hooks = *hooks;
    gw_err e = gw_timetable_open(&p->timetable, NULL, 1, 1);
    p->walk.runner.timetable = p->timetable;
    *out = p;
    return e;
}

void gw_pipeline_close(gw_pipeline *p) {
    if (!p)
        return;
    gw_queue_close(p->walk.runner.queue);
    for (int i = 0; i < GW_PIPELINE_SIZES; i++)
        gw_hops_close(p->hops[i]);
    for (int i = 0; i < GW_PIPELINE_WAYS; i++) {
        for (int k = 0; k < GW_PIPELINE_VERBS; k++)
            gw_collective_clear(&p->join[i][k]);
        gw_lane_close(p->hop_lane[i]);
        gw_lane_close(p->join_lane[i]);
        p->hop_lane[i] = p->join_lane[i] = NULL;
    }
    p->walk.runner.queue = NULL;
}
